/* Sets: building one whole, for commands that store a result.
 *
 * Members come one by one, and nobody knows how many will. While they may still be a small set they
 * are copied to the arena; the first that is one too many or too long moves all of them to a hash
 * table, which takes the rest as they come. At the end the smallest form that the limits allow is
 * made: integers sorted, a packed list, or the table.
 *
 * The result may replace one of the sets that its members come from: until
 * kv_set_builder_store_take nothing of the keyspace has changed, and by then the builder borrows
 * nothing.
 *
 * Invariants: `dict` has all members, or `members` has, never both.
 *
 * Threads: under the locks of the sources' and the destination's shards.
 */
#include "store/set_priv.h"

#define FIRST_CAPACITY 16u

void kv_set_builder_init(struct kv_set_builder *b, struct kv_view *v, struct kv_arena *arena)
{
    *b = (struct kv_set_builder){.view = v, .arena = arena, .all_integers = true};
}

void kv_set_builder_release(struct kv_set_builder *b)
{
    if (b->dict != NULL)
        kv_dict_free(b->dict);
    b->dict = NULL;
}

uint64_t kv_set_builder_count(const struct kv_set_builder *b)
{
    return b->dict != NULL ? kv_dict_count(b->dict) : b->count;
}

static enum kv_err add_large(struct kv_set_builder *b, struct kv_slice member)
{
    return kv_dict_add(b->dict, member, kv_dict_hash(b->dict, member), NULL, KV_NOT_DUE);
}

static enum kv_err become_large(struct kv_set_builder *b)
{
    b->dict = kv_dict_create(kv_store_hash_key(b->view->store));
    if (b->dict == NULL)
        return KV_ERR_NOMEM;
    for (size_t i = 0; i < b->count; i++) {
        enum kv_err err = add_large(b, b->members[i]);
        if (err != KV_OK)
            return err;
    }
    return KV_OK;
}

static bool is_small(const struct kv_set_builder *b)
{
    const struct kv_collection_limits *limits = kv_store_limits(b->view->store);
    if (b->all_integers && b->count <= set_intset_limit(limits))
        return true;
    return b->count <= limits->set_max_listpack_entries &&
           b->longest <= limits->set_max_listpack_value &&
           b->count * (b->longest + 10) <= KV_PACKED_MAX / 2;
}

static enum kv_err keep_copy(struct kv_set_builder *b, struct kv_slice member)
{
    if (b->count == b->capacity) {
        size_t capacity = b->capacity != 0 ? b->capacity * 2 : FIRST_CAPACITY;
        struct kv_slice *members = kv_arena_try_alloc(b->arena, capacity * sizeof(*members));
        if (members == NULL)
            return KV_ERR_NOMEM;
        if (b->count != 0)
            memcpy(members, b->members, b->count * sizeof(*members));
        b->members = members;
        b->capacity = capacity;
    }
    char *copy = kv_arena_try_alloc(b->arena, member.len);
    if (copy == NULL)
        return KV_ERR_NOMEM;
    if (member.len != 0)
        memcpy(copy, member.ptr, member.len);
    b->members[b->count++] = kv_slice(copy, member.len);
    return KV_OK;
}

enum kv_err kv_set_builder_add(struct kv_set_builder *b, struct kv_slice member)
{
    int64_t number;
    if (KV_LIKELY(b->dict != NULL))
        return add_large(b, member);
    enum kv_err err = keep_copy(b, member);
    if (err != KV_OK)
        return err;
    b->longest = KV_MAX(b->longest, member.len);
    b->all_integers = b->all_integers && kv_int_parse(member, &number);
    return is_small(b) ? KV_OK : become_large(b);
}

static enum kv_err store_integers(struct kv_set_builder *b, const struct kv_key *k,
                                  struct kv_entry **e)
{
    uint32_t width = 2, count = (uint32_t)b->count;
    uint8_t *bytes;
    int64_t *numbers = kv_arena_try_alloc(b->arena, count * sizeof(*numbers));
    if (numbers == NULL)
        return KV_ERR_NOMEM;
    for (uint32_t i = 0; i < count; i++) {
        bool parsed = kv_int_parse(b->members[i], &numbers[i]);
        KV_ASSERT(parsed);
        width = KV_MAX(width, kv_intset_width_of(numbers[i]));
    }
    uint32_t left = kv_intset_sort(numbers, count);
    KV_ASSERT(left == count);
    enum kv_err err = kv_store_put_bytes(b->view, k, e, KV_TYPE_SET, KV_ENC_INTSET,
                                         kv_intset_bytes(width, count), KV_NO_EXPIRY, &bytes);
    if (err == KV_OK)
        kv_intset_write(bytes, width, numbers, count);
    return err;
}

static enum kv_err store_packed(struct kv_set_builder *b, const struct kv_key *k,
                                struct kv_entry **e)
{
    size_t len = KV_PACKED_EMPTY;
    struct kv_needle n;
    uint8_t *bytes;
    for (size_t i = 0; i < b->count; i++) {
        kv_needle_init(&n, b->members[i]);
        len += kv_needle_bytes(&n);
    }
    enum kv_err err =
        kv_store_put_bytes(b->view, k, e, KV_TYPE_SET, KV_ENC_LISTPACK, len, KV_NO_EXPIRY, &bytes);
    if (err != KV_OK)
        return err;
    uint8_t *to = bytes + KV_PACKED_HEAD;
    for (size_t i = 0; i < b->count; i++) {
        kv_needle_init(&n, b->members[i]);
        to = kv_packed_put(to, &n);
    }
    kv_packed_seal(bytes, len, (uint32_t)b->count);
    return KV_OK;
}

enum kv_err kv_set_builder_store_take(struct kv_set_builder *b, const struct kv_key *k,
                                      struct kv_entry **e)
{
    KV_ASSERT(kv_set_builder_count(b) != 0);
    if (b->dict != NULL) {
        enum kv_err err =
            kv_store_put_large(b->view, k, e, KV_TYPE_SET, KV_ENC_HASHTABLE, b->dict, KV_NO_EXPIRY);
        if (err == KV_OK)
            b->dict = NULL;
        return err;
    }
    if (b->all_integers && b->count <= set_intset_limit(kv_store_limits(b->view->store)))
        return store_integers(b, k, e);
    return store_packed(b, k, e);
}
