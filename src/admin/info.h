/* INFO: what the server tells about itself, as sections of `name:value` lines that monitoring tools
 * read. Values are measured; what this version does not have shows the value that a server not
 * using it would show. */
#ifndef KV_ADMIN_INFO_H
#define KV_ADMIN_INFO_H

#include "admin/text.h"
#include "engine/engine.h"

/* Notes facts of the start: memory in use so far, random ids, the program's path (argv[0]). Main
 * thread, before workers run. Without it (library use) the ids are zeros and the path is empty. */
void kv_info_init(const char *program);

/* Bytes in use when kv_info_init ran (used_memory_startup); 0 without it. Any thread. */
uint64_t kv_info_startup_bytes(void);

/* Appends the sections that are named, any case: a section's name, `default`, `all`, `everything`;
 * no name means `default`. Unknown names add nothing. [KV_MODE_STOP] */
void kv_info_write(struct kv_engine *e, const struct kv_slice *names, int count,
                   struct kv_text *out);

#endif
