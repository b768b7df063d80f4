/* Due times of members: the arguments that SEXPIRE, ZEXPIRE, HEXPIRE and their relatives have in
 * common, and the replies. Worker's thread, inside a call. */
#ifndef KV_CMD_MEMBER_EXPIRE_H
#define KV_CMD_MEMBER_EXPIRE_H

#include "engine/call.h"

enum kv_member_condition {
    KV_MEMBER_NX = 1, /* only without a due time */
    KV_MEMBER_XX = 2, /* only with one */
    KV_MEMBER_GT = 4, /* only a later one; without one it is for ever */
    KV_MEMBER_LT = 8, /* only an earlier one */
};

/* What is replied for each member. */
enum kv_member_result {
    KV_MEMBER_NONE = -2,  /* no such member, no such key */
    KV_MEMBER_STAYS = -1, /* it has no due time */
    KV_MEMBER_UNMET = 0,  /* the condition does not hold */
    KV_MEMBER_DONE = 1,
    KV_MEMBER_GONE = 2, /* the time has passed: removed */
};

struct kv_member_expire {
    uint32_t condition; /* enum kv_member_condition, 0: none */
    int64_t when_ms;    /* Unix time */
    int first, count;   /* arguments that name the members */
};

/* <time> [NX | XX | GT | LT] <word> <number> <member ...> from argument 2 on. The time is in
 * `unit_ms` after base_ms. `word` is MEMBERS or FIELDS. False: an error was replied. */
bool kv_member_expire_read(struct kv_call *call, const char *word, int64_t unit_ms, int64_t base_ms,
                           struct kv_member_expire *x) KV_MUST_CHECK;

/* <word> <number> <member ...> from argument 2 on. */
bool kv_member_names_read(struct kv_call *call, const char *word,
                          struct kv_member_expire *x) KV_MUST_CHECK;

/* True when a member with due time `due` (KV_NOT_DUE: none) may get the new one. */
bool kv_member_expire_holds(const struct kv_member_expire *x, int64_t due);

/* Replies when a member is due, counted from base_ms in units of unit_ms, rounded up. */
void kv_member_due_reply(struct kv_call *call, int64_t due, int64_t unit_ms, int64_t base_ms);

/* Tells the change stream: <name> key [when_ms <word> number] member ...; word NULL: without them.
 * Nothing when there are no members. */
void kv_member_propagate(struct kv_call *call, const char *name, const char *word, int64_t when_ms,
                         const struct kv_slice *chosen, size_t count);

#endif
