/* Due times of members of sets: SEXPIRE, SPEXPIRE, SEXPIREAT, SPEXPIREAT, STTL, SPTTL, SEXPIRETIME,
 * SPEXPIRETIME, SPERSIST. Kvik's own; grammar, replies and errors are those of the commands on
 * fields of hashes, with MEMBERS for FIELDS (docs/extensions.md).
 *
 * Members are worked on one by one in the order named, so one that is named twice is seen twice. A
 * time that has passed removes the member, and the key with the last one. Events: sexpire,
 * spersist, srem, del, once each; and sexpired when a member's time comes.
 *
 * The change stream gets what was done: SPEXPIREAT with the moment for the members that got it, and
 * SREM for those that were removed.
 *
 * Failure: when memory ends between two members, those before it have their due times, announced
 * and propagated; the reply is the error alone.
 *
 * Threads: under the lock of the key's shard.
 */
#include "cmd/functions.h"
#include "cmd/member_expire.h"
#include "cmd/set_priv.h"

/* What was done so far, for the announcements. */
struct done {
    struct kv_slice *set, *gone; /* members */
    size_t set_count, gone_count;
};

static enum kv_err expire_member(struct kv_set *s, struct kv_slice member,
                                 const struct kv_member_expire *x, struct done *done,
                                 enum kv_member_result *result)
{
    uint64_t removed;
    int64_t due;
    enum kv_err err;
    *result = KV_MEMBER_NONE;
    if (s->entry == NULL || !kv_set_member_due(s->entry, member, s->view->now_ms, &due))
        return KV_OK;
    *result = KV_MEMBER_UNMET;
    if (!kv_member_expire_holds(x, due))
        return KV_OK;
    if (x->when_ms <= s->view->now_ms) {
        err = kv_set_remove(s, &member, 1, &removed);
        if (err == KV_OK)
            done->gone[done->gone_count++] = member;
        *result = KV_MEMBER_GONE;
    } else {
        err = kv_set_set_due(s, member, x->when_ms);
        if (err == KV_OK)
            done->set[done->set_count++] = member;
        *result = KV_MEMBER_DONE;
    }
    return err;
}

static void tell(struct kv_call *call, const struct kv_set *s, const struct kv_member_expire *x,
                 const struct done *done)
{
    if (done->set_count != 0) {
        kv_store_changed(&call->view, s->key, KV_EVENT_SET, "sexpire");
        kv_member_propagate(call, "SPEXPIREAT", "MEMBERS", x->when_ms, done->set, done->set_count);
    }
    if (done->gone_count != 0) {
        kv_cmd_set_shrunk(call, s, "srem");
        kv_member_propagate(call, "SREM", NULL, 0, done->gone, done->gone_count);
    }
}

static void expire_generic(struct kv_call *call, int64_t unit_ms, int64_t base_ms)
{
    struct kv_member_expire x;
    struct done done = {0};
    struct kv_set s;
    enum kv_err err = KV_OK;
    if (!kv_member_expire_read(call, "MEMBERS", unit_ms, base_ms, &x) ||
        !kv_cmd_set_write(call, 0, &s))
        return;
    size_t bytes = (size_t)x.count * sizeof(struct kv_slice);
    done.set = kv_arena_try_alloc(call->arena, bytes);
    done.gone = kv_arena_try_alloc(call->arena, bytes);
    if (done.set == NULL || done.gone == NULL) {
        kv_call_no_memory(call);
        return;
    }
    struct kv_out_mark mark = kv_out_mark(call->out);
    kv_reply_array(call->out, (size_t)x.count);
    for (int i = 0; i < x.count && err == KV_OK; i++) {
        enum kv_member_result result;
        err = expire_member(&s, call->argv[x.first + i], &x, &done, &result);
        kv_reply_int(call->out, result);
    }
    tell(call, &s, &x, &done);
    if (err != KV_OK) {
        kv_out_rewind(call->out, &mark);
        kv_call_no_memory(call);
    }
}

void kv_cmd_sexpire(struct kv_call *call)
{
    expire_generic(call, 1000, call->view.now_ms);
}

void kv_cmd_spexpire(struct kv_call *call)
{
    expire_generic(call, 1, call->view.now_ms);
}

void kv_cmd_sexpireat(struct kv_call *call)
{
    expire_generic(call, 1000, 0);
}

void kv_cmd_spexpireat(struct kv_call *call)
{
    expire_generic(call, 1, 0);
}

static void ttl_generic(struct kv_call *call, int64_t unit_ms, int64_t base_ms)
{
    struct kv_member_expire x;
    struct kv_entry *e;
    if (!kv_member_names_read(call, "MEMBERS", &x) || !kv_cmd_set_read(call, 0, &e))
        return;
    kv_reply_array(call->out, (size_t)x.count);
    for (int i = 0; i < x.count; i++) {
        int64_t due;
        if (e != NULL && kv_set_member_due(e, call->argv[x.first + i], call->view.now_ms, &due))
            kv_member_due_reply(call, due, unit_ms, base_ms);
        else
            kv_reply_int(call->out, KV_MEMBER_NONE);
    }
}

void kv_cmd_sttl(struct kv_call *call)
{
    ttl_generic(call, 1000, call->view.now_ms);
}

void kv_cmd_spttl(struct kv_call *call)
{
    ttl_generic(call, 1, call->view.now_ms);
}

void kv_cmd_sexpiretime(struct kv_call *call)
{
    ttl_generic(call, 1000, 0);
}

void kv_cmd_spexpiretime(struct kv_call *call)
{
    ttl_generic(call, 1, 0);
}

void kv_cmd_spersist(struct kv_call *call)
{
    struct kv_member_expire x;
    struct kv_set s;
    bool changed = false;
    enum kv_err err = KV_OK;
    if (!kv_member_names_read(call, "MEMBERS", &x) || !kv_cmd_set_write(call, 0, &s))
        return;
    struct kv_out_mark mark = kv_out_mark(call->out);
    kv_reply_array(call->out, (size_t)x.count);
    for (int i = 0; i < x.count && err == KV_OK; i++) {
        struct kv_slice member = call->argv[x.first + i];
        int64_t due;
        if (s.entry == NULL || !kv_set_member_due(s.entry, member, call->view.now_ms, &due)) {
            kv_reply_int(call->out, KV_MEMBER_NONE);
            continue;
        }
        if (due != KV_NOT_DUE)
            err = kv_set_set_due(&s, member, KV_NOT_DUE);
        changed |= due != KV_NOT_DUE && err == KV_OK;
        kv_reply_int(call->out, due != KV_NOT_DUE ? KV_MEMBER_DONE : KV_MEMBER_STAYS);
    }
    if (changed)
        kv_store_changed(&call->view, s.key, KV_EVENT_SET, "spersist");
    if (err != KV_OK) {
        kv_out_rewind(call->out, &mark);
        kv_call_failed(call, err);
    }
}
