/* Values that are carried without being understood: walking over them, so that a reader knows where
 * they end, and what TYPE says of them. Threads as rdb_io.h. */
#ifndef KV_PERSIST_RDB_FOREIGN_H
#define KV_PERSIST_RDB_FOREIGN_H

#include "persist/rdb_format.h"
#include "persist/rdb_io.h"

#define KV_RDB_MODULE_NAME 9 /* bytes of the name of a module's type */

/* True for the forms that are kept as they are. */
bool kv_rdb_form_is_foreign(uint8_t form);

/* Walks over a foreign value. `module`: gets the identity of a module's type; untouched else. */
bool kv_rdb_skip_foreign(struct kv_rdb_reader *r, uint8_t form, uint64_t *module) KV_MUST_CHECK;

/* The parts of a module's value or auxiliary data, up to and with their end. */
bool kv_rdb_skip_module_parts(struct kv_rdb_reader *r) KV_MUST_CHECK;

/* The name within the identity of a module's type. */
void kv_rdb_module_name(uint64_t module, char out[KV_RDB_MODULE_NAME]);

#endif
