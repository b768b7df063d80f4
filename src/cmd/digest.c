/* DIGEST, DELEX and DELIFEQ: comparing without transferring, and deleting what compares equal.
 *
 * The digest of a string is its 64-bit XXH3 hash with seed 0, printed as 16 hexadecimal digits,
 * most significant first. Clients compute it themselves to write conditions (IFDEQ, IFDNE), so it
 * is part of the protocol: the algorithm can never change and is unkeyed on purpose. It is not a
 * protection against somebody who chooses values; the keyspace's own hash is another one.
 *
 * The hash comes from libxxhash. Writing it here was considered and rejected: the library runs at
 * memory speed through vector code for each processor, and Debian ships it.
 *
 * Data layout: nothing is stored; a digest is computed when it is asked for.
 *
 * Threads: under the lock of the key's shard, like every keyed command.
 *
 * Errors are checked in this order: number of arguments, type of the old value, condition. Without
 * a condition DELEX deletes a key of any type.
 */
#include "cmd/functions.h"
#include "cmd/string_priv.h"
#include <xxhash.h>

void kv_string_digest(struct kv_slice bytes, char out[KV_DIGEST_LEN])
{
    static const char digits[] = "0123456789abcdef";
    KV_ASSERT(bytes.ptr != NULL || bytes.len == 0);
    uint64_t hash = XXH3_64bits(bytes.ptr, bytes.len);
    for (int i = 0; i < KV_DIGEST_LEN; i++)
        out[i] = digits[hash >> (60 - 4 * i) & 15];
}

void kv_cmd_digest(struct kv_call *call)
{
    struct kv_entry *e = kv_store_read(&call->view, &call->keys[0]);
    if (!kv_call_want_string(call, e))
        return;
    if (e == NULL) {
        kv_reply_null(call->out);
        return;
    }
    char scratch[KV_INT_TEXT_MAX];
    char digest[KV_DIGEST_LEN];
    kv_string_digest(kv_entry_string(e, scratch), digest);
    kv_reply_bulk(call->out, digest, sizeof(digest));
}

static void delete_and_count(struct kv_call *call, struct kv_entry *e, bool wanted)
{
    bool removed = e != NULL && wanted;
    if (removed)
        kv_string_delete(call, &call->keys[0], e);
    kv_reply_int(call->out, removed);
}

/* DELEX key [IFEQ value | IFNE value | IFDEQ digest | IFDNE digest] */
void kv_cmd_delex(struct kv_call *call)
{
    struct kv_string_options options = {0};
    if (call->argc != 2 && call->argc != 4) {
        kv_call_error(call, "ERR wrong number of arguments for 'delex' command");
        return;
    }
    int arg = 2;
    if (call->argc == 4 && !kv_string_option(call, &arg, KV_SET_MATCH, &options)) {
        kv_call_error(call, "ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE");
        return;
    }
    struct kv_entry *e = kv_store_write(&call->view, &call->keys[0]);
    bool failed;
    bool holds = kv_string_holds(call, &options, e, &failed);
    if (!failed)
        delete_and_count(call, e, holds);
}

/* DELIFEQ key value */
void kv_cmd_delifeq(struct kv_call *call)
{
    struct kv_entry *e = kv_store_write(&call->view, &call->keys[0]);
    if (!kv_call_want_string(call, e))
        return;
    char scratch[KV_INT_TEXT_MAX];
    bool equal = e != NULL && kv_slice_equal(kv_entry_string(e, scratch), call->argv[2]);
    delete_and_count(call, e, equal);
}
