/* Due times of members of sorted sets: ZEXPIRE, ZPEXPIRE, ZEXPIREAT, ZPEXPIREAT, ZTTL, ZPTTL,
 * ZEXPIRETIME, ZPEXPIRETIME, ZPERSIST. Kvik's own; grammar, replies and errors are those of the
 * commands on fields of hashes, with MEMBERS for FIELDS (docs/extensions.md).
 *
 * Members are worked on one by one in the order named, so one that is named twice is seen twice. A
 * time that has passed removes the member, and the key with the last one. Events: zexpire,
 * zpersist, zrem, del, once each; and zexpired when a member's time comes.
 *
 * The change stream gets what was done: ZPEXPIREAT with the moment for the members that got it, and
 * ZREM for those that were removed.
 *
 * Failure: when memory ends between two members, those before it have their due times, announced
 * and propagated; the reply is the error alone.
 *
 * Threads: under the lock of the key's shard.
 */
#include "cmd/functions.h"
#include "cmd/member_expire.h"
#include "cmd/zset_priv.h"

/* A command at work, and what it has done so far. */
struct work {
    struct kv_call *call;
    struct kv_entry *e;
    struct kv_member_expire x;
    struct kv_slice *set, *gone; /* members */
    size_t set_count, gone_count;
};

/* The due time of a member; false: there is none of that name. */
static bool find_due(struct work *w, struct kv_slice member, int64_t *due)
{
    struct kv_ranking r;
    double score;
    return w->e != NULL &&
           kv_ranking_open(&w->call->view, &w->call->keys[0], &w->e, w->call->arena, &r) == KV_OK &&
           kv_ranking_find(&r, member, &score, due);
}

static enum kv_err expire_member(struct work *w, struct kv_slice member,
                                 enum kv_member_result *result)
{
    struct kv_view *v = &w->call->view;
    const struct kv_key *k = &w->call->keys[0];
    uint64_t removed;
    int64_t due;
    bool found;
    enum kv_err err;
    *result = KV_MEMBER_NONE;
    if (!find_due(w, member, &due))
        return KV_OK;
    *result = KV_MEMBER_UNMET;
    if (!kv_member_expire_holds(&w->x, due))
        return KV_OK;
    if (w->x.when_ms <= v->now_ms) {
        err = kv_store_zset_remove(v, k, &w->e, &member, 1, w->call->arena, &removed);
        if (err == KV_OK)
            w->gone[w->gone_count++] = member;
        *result = KV_MEMBER_GONE;
    } else {
        err = kv_store_zset_set_due(v, k, &w->e, member, w->x.when_ms, w->call->arena, &found);
        if (err == KV_OK)
            w->set[w->set_count++] = member;
        *result = KV_MEMBER_DONE;
    }
    return err;
}

static void tell(struct work *w)
{
    struct kv_call *call = w->call;
    if (w->set_count != 0) {
        kv_store_changed(&call->view, &call->keys[0], KV_EVENT_ZSET, "zexpire");
        kv_member_propagate(call, "ZPEXPIREAT", "MEMBERS", w->x.when_ms, w->set, w->set_count);
    }
    if (w->gone_count != 0) {
        kv_zset_shrunk(call, &call->keys[0], w->e, "zrem");
        kv_member_propagate(call, "ZREM", NULL, 0, w->gone, w->gone_count);
    }
}

static void expire_generic(struct kv_call *call, int64_t unit_ms, int64_t base_ms)
{
    struct work w = {.call = call};
    struct kv_ranking r;
    enum kv_err err = KV_OK;
    if (!kv_member_expire_read(call, "MEMBERS", unit_ms, base_ms, &w.x) ||
        !kv_zset_write(call, 0, &w.e, &r))
        return;
    size_t bytes = (size_t)w.x.count * sizeof(struct kv_slice);
    w.set = kv_arena_try_alloc(call->arena, bytes);
    w.gone = kv_arena_try_alloc(call->arena, bytes);
    if (w.set == NULL || w.gone == NULL) {
        kv_call_no_memory(call);
        return;
    }
    struct kv_out_mark mark = kv_out_mark(call->out);
    kv_reply_array(call->out, (size_t)w.x.count);
    for (int i = 0; i < w.x.count && err == KV_OK; i++) {
        enum kv_member_result result;
        err = expire_member(&w, call->argv[w.x.first + i], &result);
        kv_reply_int(call->out, result);
    }
    tell(&w);
    if (err != KV_OK) {
        kv_out_rewind(call->out, &mark);
        kv_call_no_memory(call);
    }
}

void kv_cmd_zexpire(struct kv_call *call)
{
    expire_generic(call, 1000, call->view.now_ms);
}

void kv_cmd_zpexpire(struct kv_call *call)
{
    expire_generic(call, 1, call->view.now_ms);
}

void kv_cmd_zexpireat(struct kv_call *call)
{
    expire_generic(call, 1000, 0);
}

void kv_cmd_zpexpireat(struct kv_call *call)
{
    expire_generic(call, 1, 0);
}

static void ttl_generic(struct kv_call *call, int64_t unit_ms, int64_t base_ms)
{
    struct kv_member_expire x;
    struct kv_ranking r;
    struct kv_ranking_cursor c = {NULL};
    if (!kv_member_names_read(call, "MEMBERS", &x) || !kv_zset_read(call, 0, &r))
        return;
    kv_reply_array(call->out, (size_t)x.count);
    for (int i = 0; i < x.count; i++) {
        double score;
        int64_t due;
        if (kv_ranking_find_on(&r, &c, call->argv[x.first + i], &score, &due))
            kv_member_due_reply(call, due, unit_ms, base_ms);
        else
            kv_reply_int(call->out, KV_MEMBER_NONE);
    }
}

void kv_cmd_zttl(struct kv_call *call)
{
    ttl_generic(call, 1000, call->view.now_ms);
}

void kv_cmd_zpttl(struct kv_call *call)
{
    ttl_generic(call, 1, call->view.now_ms);
}

void kv_cmd_zexpiretime(struct kv_call *call)
{
    ttl_generic(call, 1000, 0);
}

void kv_cmd_zpexpiretime(struct kv_call *call)
{
    ttl_generic(call, 1, 0);
}

void kv_cmd_zpersist(struct kv_call *call)
{
    struct work w = {.call = call};
    struct kv_ranking r;
    bool changed = false, found;
    enum kv_err err = KV_OK;
    if (!kv_member_names_read(call, "MEMBERS", &w.x) || !kv_zset_write(call, 0, &w.e, &r))
        return;
    struct kv_out_mark mark = kv_out_mark(call->out);
    kv_reply_array(call->out, (size_t)w.x.count);
    for (int i = 0; i < w.x.count && err == KV_OK; i++) {
        struct kv_slice member = call->argv[w.x.first + i];
        int64_t due;
        if (!find_due(&w, member, &due)) {
            kv_reply_int(call->out, KV_MEMBER_NONE);
            continue;
        }
        if (due != KV_NOT_DUE)
            err = kv_store_zset_set_due(&call->view, &call->keys[0], &w.e, member, KV_NOT_DUE,
                                        call->arena, &found);
        changed |= due != KV_NOT_DUE && err == KV_OK;
        kv_reply_int(call->out, due != KV_NOT_DUE ? KV_MEMBER_DONE : KV_MEMBER_STAYS);
    }
    if (changed)
        kv_store_changed(&call->view, &call->keys[0], KV_EVENT_ZSET, "zpersist");
    if (err != KV_OK) {
        kv_out_rewind(call->out, &mark);
        kv_call_failed(call, err);
    }
}
