/* Small tools that several command families share. Worker's thread, inside a call. */
#ifndef KV_CMD_HELPER_H
#define KV_CMD_HELPER_H

#include "admin/text.h"
#include "base/compiler.h"
#include "base/random.h"
#include "base/slice.h"
#include "engine/call.h"

/* Replies the text as a verbatim string (bulk in RESP2), or the error for short memory, and
 * releases it. */
void kv_cmd_reply_text_take(struct kv_text *t, struct kv_call *call);

/* Argument as number of a database: true and *db, or the error is replied (that of
 * kv_call_int_range, or "ERR DB index is out of range"). */
bool kv_cmd_database(struct kv_call *call, int arg, uint32_t *db) KV_MUST_CHECK;

/* Argument ON or OFF: true and *on, or a syntax error is replied. */
bool kv_cmd_on_off(struct kv_call *call, int arg, bool *on) KV_MUST_CHECK;

/* Argument as cursor of a scan: true and *cursor, or the error is replied. */
bool kv_cmd_cursor(struct kv_call *call, int arg, uint64_t *cursor) KV_MUST_CHECK;

/* The calling thread's generator, for commands whose result is random. */
struct kv_random *kv_cmd_random(void);

/* Reads an entry for a command that is about the key and not its value: counted as hit or miss, but
 * not an access. */
struct kv_entry *kv_cmd_read_untouched(struct kv_call *call, const struct kv_key *k);

/* References to a value as OBJECT REFCOUNT tells them. Values are never shared here, but clients
 * that know Redis expect the count of its shared integers (0 to 9,999), INT_MAX, all the same. */
int kv_cmd_references(const struct kv_entry *e);

/* What the engine asks about commands (struct kv_command_table). */
uint32_t kv_cmd_line_key_flags(const struct kv_command *cmd, const struct kv_slice *argv, int argc,
                               uint32_t flags);
size_t kv_cmd_client_line(struct kv_engine *e, const struct kv_client *c,
                          const struct kv_command *cmd, char *text, size_t size);

/* Names of clients and libraries: printable ASCII without spaces, so that CLIENT LIST stays
 * parseable. Empty is valid and clears the name. */
bool kv_cmd_client_text_valid(struct kv_slice text) KV_MUST_CHECK;
#define KV_CMD_BAD_CLIENT_NAME                                                                     \
    "ERR Client names cannot contain spaces, newlines or special characters."

/* An error text that quotes an argument of a client: at most this many bytes of it are shown. */
#define KV_CMD_QUOTE_MAX 128
#define KV_CMD_QUOTE(slice) (int)KV_MIN((slice).len, (size_t)KV_CMD_QUOTE_MAX), (slice).ptr

#endif
