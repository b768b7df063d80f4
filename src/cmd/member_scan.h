/* Scans within one collection (SSCAN, HSCAN, ZSCAN): arguments and reply. The collection's own
 * function visits members (or fields and values) and hands each text on here; since the reply
 * carries the cursor first, the texts are kept in the call's arena until the walk has ended.
 * Worker's thread, inside a call. */
#ifndef KV_CMD_MEMBER_SCAN_H
#define KV_CMD_MEMBER_SCAN_H

#include "engine/call.h"

#define KV_SCAN_NO_VALUES 1u /* NOVALUES is allowed (HSCAN) */

struct kv_scan_block;

struct kv_member_scan {
    struct kv_call *call;
    uint64_t cursor;         /* where to go on from */
    uint64_t count;          /* COUNT: members to visit about */
    struct kv_slice pattern; /* MATCH; ptr NULL: all */
    bool no_values;          /* NOVALUES */
    struct kv_scan_block *first, *last;
    size_t found; /* texts */
    bool failed;  /* memory was short */
};

/* Reads the cursor (argument 2); false: an error was replied. */
bool kv_member_scan_init(struct kv_member_scan *s, struct kv_call *call) KV_MUST_CHECK;

/* Reads the options, once the key was found: without one they are not looked at. Likewise. */
bool kv_member_scan_options(struct kv_member_scan *s, unsigned allowed) KV_MUST_CHECK;

/* True when the pattern takes a member. */
bool kv_member_scan_matches(const struct kv_member_scan *s, struct kv_slice member);

/* Adds a text to the reply. `stable`: its bytes are good until the command ends, else they are
 * copied. */
void kv_member_scan_add(struct kv_member_scan *s, struct kv_slice text, bool stable);

/* Replies the next cursor and the texts, or that memory is short. */
void kv_member_scan_reply(struct kv_member_scan *s, uint64_t cursor);

#endif
