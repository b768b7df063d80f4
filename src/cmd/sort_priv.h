/* One SORT: what is asked for, its elements, their order. Lives in the arena of the call. */
#ifndef KV_CMD_SORT_PRIV_H
#define KV_CMD_SORT_PRIV_H

#include "engine/call.h"
#include "store/hash.h"

struct kv_sort_element {
    struct kv_slice text;
    union {
        double number;      /* sorted by, unless ALPHA */
        struct kv_slice by; /* sorted by with BY and ALPHA; ptr NULL: no such value */
    } key;
};

struct kv_sort {
    struct kv_call *call;
    const struct kv_slice *by; /* pattern with a star, or NULL: by the elements themselves */
    int64_t offset, limit;     /* of LIMIT; limit negative: all */
    int get_count;             /* GET options */
    bool descending, alpha, stores;
    bool as_stored; /* not sorted at all */

    struct kv_sort_element *elements;
    uint64_t count; /* of elements */
    uint64_t first; /* of those shown */
    uint64_t shown;

    char *buffer; /* names of keys and texts of numbers are made here */
    size_t buffer_len;
    struct kv_hash_field field; /* what was looked up last */
};

/* What a pattern names for an element: value NULL: nothing. The value lasts until the next one.
 * KV_ERR_NOMEM. */
enum kv_err kv_sort_look_up(struct kv_sort *s, struct kv_slice pattern, struct kv_slice element,
                            struct kv_slice *value) KV_MUST_CHECK;

/* Room for `len` bytes in s->buffer; false: no memory. */
bool kv_sort_room(struct kv_sort *s, size_t len) KV_MUST_CHECK;

/* A copy in the arena; false: no memory. */
bool kv_sort_copy(struct kv_sort *s, struct kv_slice text, struct kv_slice *out) KV_MUST_CHECK;

/* Collects the elements of e (NULL: none), with what they are sorted by, and says which are shown.
 * KV_ERR_SYNTAX: not a number. KV_ERR_NOMEM. */
enum kv_err kv_sort_load(struct kv_sort *s, const struct kv_entry *e) KV_MUST_CHECK;

/* Puts those that are shown in order. KV_ERR_NOMEM. */
enum kv_err kv_sort_order(struct kv_sort *s) KV_MUST_CHECK;

#endif
