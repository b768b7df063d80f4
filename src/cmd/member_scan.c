/* SSCAN, HSCAN and ZSCAN: what they have in common.
 *
 * The cursor is read before the key is looked up, the options only when there is one, as in Redis,
 * so that the same error wins. COUNT is a wish: small collections come whole, large ones in whole
 * groups of their table.
 *
 * Texts are kept as slices in blocks of the arena. What lies in the collection stays where it is
 * for the command's duration and is not copied; texts that the walk prints into scratch memory are.
 *
 * Threads: everything belongs to the call that made it.
 */
#include "cmd/member_scan.h"
#include "base/glob.h"
#include "cmd/helper.h"

#define BLOCK_TEXTS 128

struct kv_scan_block {
    struct kv_scan_block *next;
    int count;
    struct kv_slice texts[BLOCK_TEXTS];
};

/* One option at *arg; false: an error was replied. */
static bool read_option(struct kv_member_scan *s, struct kv_call *call, int *arg, unsigned allowed)
{
    bool has_value = *arg + 1 < call->argc;
    int64_t count;
    if (kv_call_arg_is(call, *arg, "count") && has_value) {
        if (!kv_call_int(call, ++*arg, &count))
            return false;
        if (count >= 1) {
            s->count = (uint64_t)count;
            return true;
        }
    } else if (kv_call_arg_is(call, *arg, "match") && has_value) {
        s->pattern = call->argv[++*arg];
        if (kv_slice_equal(s->pattern, KV_SLICE("*")))
            s->pattern = (struct kv_slice){NULL, 0};
        return true;
    } else if (allowed & KV_SCAN_NO_VALUES && kv_call_arg_is(call, *arg, "novalues")) {
        s->no_values = true;
        return true;
    }
    kv_call_syntax_error(call);
    return false;
}

bool kv_member_scan_init(struct kv_member_scan *s, struct kv_call *call)
{
    KV_ASSERT(call->argc >= 3);
    *s = (struct kv_member_scan){.call = call, .count = 10};
    return kv_cmd_cursor(call, 2, &s->cursor);
}

bool kv_member_scan_options(struct kv_member_scan *s, unsigned allowed)
{
    for (int arg = 3; arg < s->call->argc; arg++)
        if (!read_option(s, s->call, &arg, allowed))
            return false;
    return true;
}

bool kv_member_scan_matches(const struct kv_member_scan *s, struct kv_slice member)
{
    return s->pattern.ptr == NULL || kv_glob_match(s->pattern, member, false);
}

void kv_member_scan_add(struct kv_member_scan *s, struct kv_slice text, bool stable)
{
    struct kv_arena *arena = s->call->arena;
    if (s->failed)
        return;
    if (s->last == NULL || s->last->count == BLOCK_TEXTS) {
        struct kv_scan_block *block = kv_arena_try_alloc(arena, sizeof(*block));
        if (block == NULL) {
            s->failed = true;
            return;
        }
        block->next = NULL;
        block->count = 0;
        *(s->last == NULL ? &s->first : &s->last->next) = block;
        s->last = block;
    }
    if (!stable && text.len != 0) {
        char *copy = kv_arena_try_alloc(arena, text.len);
        if (copy == NULL) {
            s->failed = true;
            return;
        }
        memcpy(copy, text.ptr, text.len);
        text.ptr = copy;
    }
    s->last->texts[s->last->count++] = text;
    s->found++;
}

void kv_member_scan_reply(struct kv_member_scan *s, uint64_t cursor)
{
    struct kv_out *out = s->call->out;
    if (s->failed) {
        kv_call_no_memory(s->call);
        return;
    }
    KV_DASSERT(cursor < (uint64_t)1 << 53); /* exact as a double */
    kv_reply_array(out, 2);
    kv_reply_bulk_int(out, (int64_t)cursor);
    kv_reply_array(out, s->found);
    for (const struct kv_scan_block *b = s->first; b != NULL; b = b->next)
        for (int i = 0; i < b->count; i++)
            kv_reply_slice(out, b->texts[i]);
}
