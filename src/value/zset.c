/* Large sorted sets. The layout of a member is drawn in zset.h.
 *
 * Table and order point to the same blocks. A member's score stands in its block, for look-ups by
 * name, and in the leaf of the order, so that a search by score touches no members but those with
 * equal scores. The order itself finds a member by score and name; nothing points back.
 *
 * Invariants (kv_zset_check): table and order hold the same members; the order's scores are the
 * members'; LONG_NAME is set exactly when the length passes 255; the index has one record per
 * member with a due time, and exists exactly while there is one; the counted bytes are the sums.
 *
 * Rejected: a skip list (a block of 20 to 60 bytes more per member, and a miss for each step);
 * members inside the leaves (they would move whenever a leaf changes, and the table with them).
 *
 * Threads: as zset.h.
 */
#include "value/zset.h"

#define SHORT_MAX 255u
#define WORD 8u
#define HEAD offsetof(struct kv_scored, data)

static size_t size_for(size_t name_len, int64_t due)
{
    return HEAD + (due != KV_NOT_DUE ? WORD : 0) + (name_len > SHORT_MAX ? 4 : 1) + name_len;
}

static uint8_t flags_for(size_t name_len, int64_t due)
{
    return (uint8_t)((due != KV_NOT_DUE ? KV_SCORED_DUE : 0) |
                     (name_len > SHORT_MAX ? KV_SCORED_LONG_NAME : 0));
}

static struct kv_scored *build(struct kv_slice name, double score, int64_t due)
{
    struct kv_scored *m = NULL;
    if (KV_LIKELY(name.len <= UINT32_MAX))
        m = kv_mem_try_alloc(size_for(name.len, due), KV_MEM_VALUE);
    if (m == NULL)
        return NULL;
    m->score = score;
    m->flags = flags_for(name.len, due);
    uint8_t *p = m->data;
    if (due != KV_NOT_DUE) {
        memcpy(p, &due, sizeof(due));
        p += WORD;
    }
    if (KV_LIKELY(name.len <= SHORT_MAX)) {
        *p++ = (uint8_t)name.len;
    } else {
        uint32_t wide = (uint32_t)name.len;
        memcpy(p, &wide, sizeof(wide));
        p += sizeof(wide);
    }
    if (name.len != 0)
        memcpy(p, name.ptr, name.len);
    KV_DASSERT(kv_scored_size(m) == size_for(name.len, due));
    return m;
}

static void count_in(struct kv_zset *z, size_t size)
{
    z->member_block_bytes += kv_mem_block_size(size);
    z->member_used_bytes += size;
}

static void count_out(struct kv_zset *z, size_t size)
{
    z->member_block_bytes -= kv_mem_block_size(size);
    z->member_used_bytes -= size;
}

static void free_member(struct kv_scored *m)
{
    kv_mem_free_movable(m, kv_scored_size(m), KV_MEM_VALUE);
}

/* --- places --- */

static bool name_below(const void *item, const void *arg)
{
    return kv_slice_compare(kv_scored_name(item), *(const struct kv_slice *)arg) < 0;
}

static bool name_not_above(const void *item, const void *arg)
{
    return kv_slice_compare(kv_scored_name(item), *(const struct kv_slice *)arg) <= 0;
}

static bool always(const void *item, const void *arg)
{
    (void)item;
    (void)arg;
    return true;
}

static bool member_less(const void *a, const void *b)
{
    struct kv_slice name = kv_scored_name(b);
    return name_below(a, &name);
}

struct kv_order_place kv_zset_before_score(double score)
{
    return (struct kv_order_place){.score = score};
}

struct kv_order_place kv_zset_behind_score(double score)
{
    return (struct kv_order_place){.score = score, .before = always};
}

struct kv_order_place kv_zset_before_name(double score, const struct kv_slice *name)
{
    return (struct kv_order_place){score, name_below, name};
}

struct kv_order_place kv_zset_behind_name(double score, const struct kv_slice *name)
{
    return (struct kv_order_place){score, name_not_above, name};
}

/* --- life --- */

static uint64_t hash_of(const void *item, void *arg)
{
    struct kv_slice name = kv_scored_name(item);
    return kv_hash_bytes(arg, name.ptr, name.len);
}

struct kv_zset *kv_zset_create(const struct kv_hash_key *hash_key)
{
    struct kv_zset *z = kv_mem_try_alloc(sizeof(*z), KV_MEM_VALUE);
    if (z == NULL)
        return NULL;
    *z = (struct kv_zset){.hash_key = hash_key, .registered_due = KV_NOT_DUE};
    kv_table_init(&z->table, hash_of, (void *)(uintptr_t)hash_key, KV_MEM_VALUE);
    kv_order_init(&z->order, KV_MEM_VALUE);
    return z;
}

static void free_index(struct kv_zset *z)
{
    if (z->due == NULL)
        return;
    kv_time_index_release(z->due);
    kv_mem_free_movable(z->due, sizeof(*z->due), KV_MEM_VALUE);
    z->due = NULL;
}

static void free_item(void *item, void *arg)
{
    (void)arg;
    free_member(item);
}

void kv_zset_free(struct kv_zset *z)
{
    KV_ASSERT(z->guard == NULL);
    kv_table_each(&z->table, free_item, NULL);
    kv_table_release(&z->table);
    kv_order_release(&z->order);
    free_index(z);
    kv_mem_free_movable(z, sizeof(*z), KV_MEM_VALUE);
}

struct kv_zset *kv_zset_copy(const struct kv_zset *z)
{
    struct kv_zset *to = kv_zset_create(z->hash_key);
    struct kv_order_cursor c;
    if (to == NULL)
        return NULL;
    for (bool more = kv_order_at(&z->order, 0, &c); more; more = kv_order_next(&c)) {
        const struct kv_scored *m = kv_zset_at(&c);
        struct kv_slice name = kv_scored_name(m);
        if (kv_zset_add(to, name, kv_zset_hash(to, name), m->score, kv_scored_due(m), true) !=
            KV_OK) {
            kv_zset_free(to);
            return NULL;
        }
    }
    to->registered_due = z->registered_due;
    return to;
}

struct kv_footprint kv_zset_footprint(const struct kv_zset *z)
{
    size_t other = kv_table_memory(&z->table) + kv_order_memory(&z->order);
    if (z->due != NULL)
        other += kv_time_index_memory(z->due) + kv_mem_block_size(sizeof(*z->due));
    return (struct kv_footprint){
        .block_bytes = other + kv_mem_block_size(sizeof(*z)) + z->member_block_bytes,
        .used_bytes = other + sizeof(*z) + z->member_used_bytes,
    };
}

/* --- due times --- */

/* Brings the index from one due time of a member to another. On failure nothing changed. */
static enum kv_err index_due(struct kv_zset *z, uint64_t hash, int64_t from, int64_t to)
{
    uint64_t position = kv_table_position(hash);
    enum kv_err err = KV_OK;
    if (KV_LIKELY(from == to))
        return KV_OK;
    if (z->due == NULL) {
        z->due = kv_mem_try_alloc(sizeof(*z->due), KV_MEM_VALUE);
        if (z->due == NULL)
            return KV_ERR_NOMEM;
        kv_time_index_init(z->due, KV_MEM_VALUE);
    }
    if (from == KV_NOT_DUE)
        err = kv_time_index_insert(z->due, (uint64_t)to, position);
    else if (to == KV_NOT_DUE)
        kv_time_index_remove(z->due, (uint64_t)from, position);
    else
        err = kv_time_index_move(z->due, (uint64_t)from, (uint64_t)to, position);
    if (z->due->count == 0)
        free_index(z);
    return err;
}

static void unindex_due(struct kv_zset *z, uint64_t hash, int64_t due)
{
    enum kv_err err = index_due(z, hash, due, KV_NOT_DUE);
    KV_ASSERT(err == KV_OK);
}

static bool is_due_at(void *item, void *arg)
{
    const int64_t *due = arg;
    return kv_scored_due(item) == *due;
}

struct kv_scored *kv_zset_first_due_member(const struct kv_zset *z)
{
    uint64_t when, position;
    if (z->due == NULL || !kv_time_index_first(z->due, &when, &position))
        return NULL;
    int64_t due = (int64_t)when;
    struct kv_scored *m = kv_table_find_position(&z->table, position, is_due_at, &due);
    KV_ASSERT(m != NULL);
    return m;
}

/* --- members --- */

static bool has_name(const void *item, const void *key)
{
    return kv_slice_equal(kv_scored_name(item), *(const struct kv_slice *)key);
}

struct kv_scored *kv_zset_find(const struct kv_zset *z, struct kv_slice name, uint64_t hash)
{
    KV_DASSERT(hash == kv_zset_hash(z, name));
    return kv_table_find(&z->table, hash, has_name, &name);
}

enum kv_err kv_zset_add(struct kv_zset *z, struct kv_slice name, uint64_t hash, double score,
                        int64_t due, bool last)
{
    struct kv_order_place place = kv_zset_before_name(score, &name);
    KV_DASSERT(score == score);
    KV_DASSERT(kv_guard_permits(z->guard, hash));
    struct kv_scored *m = build(name, score, due);
    if (m == NULL)
        return KV_ERR_NOMEM;
    enum kv_err err = index_due(z, hash, KV_NOT_DUE, due);
    if (err == KV_OK) {
        err = kv_table_insert(&z->table, hash, m);
        if (err == KV_OK) {
            err =
                last ? kv_order_append(&z->order, score, m) : kv_order_insert(&z->order, &place, m);
            if (err != KV_OK)
                kv_table_remove(&z->table, hash, m);
        }
        if (err != KV_OK)
            unindex_due(z, hash, due);
    }
    if (err != KV_OK) {
        free_member(m);
        return err;
    }
    count_in(z, size_for(name.len, due));
    return KV_OK;
}

enum kv_err kv_zset_set_score(struct kv_zset *z, struct kv_scored *m, double score)
{
    struct kv_slice name = kv_scored_name(m);
    struct kv_order_place from = kv_zset_before_name(m->score, &name);
    struct kv_order_place to = kv_zset_before_name(score, &name);
    KV_DASSERT(score == score);
    KV_DASSERT(z->guard == NULL || kv_guard_permits(z->guard, kv_zset_hash(z, name)));
    if (score == m->score)
        return KV_OK;
    enum kv_err err = kv_order_change(&z->order, &from, &to, m);
    if (err == KV_OK)
        m->score = score;
    return err;
}

enum kv_err kv_zset_set_due(struct kv_zset *z, struct kv_scored *m, uint64_t hash, int64_t due)
{
    int64_t old_due = kv_scored_due(m);
    struct kv_slice name = kv_scored_name(m);
    struct kv_order_place place = kv_zset_before_name(m->score, &name);
    struct kv_order_cursor c;
    KV_DASSERT(kv_guard_permits(z->guard, hash));
    if ((due == KV_NOT_DUE) == (old_due == KV_NOT_DUE)) {
        enum kv_err err = index_due(z, hash, old_due, due);
        if (err == KV_OK && due != KV_NOT_DUE)
            memcpy(m->data, &due, sizeof(due));
        return err;
    }
    struct kv_scored *to = build(name, m->score, due);
    if (to == NULL)
        return KV_ERR_NOMEM;
    enum kv_err err = index_due(z, hash, old_due, due);
    if (err != KV_OK) {
        free_member(to);
        return err;
    }
    bool found = kv_order_seek(&z->order, &place, &c);
    KV_ASSERT(found && kv_zset_at(&c) == m);
    kv_order_replace(&c, to);
    kv_table_replace(&z->table, hash, m, to);
    count_out(z, kv_scored_size(m));
    count_in(z, kv_scored_size(to));
    free_member(m);
    return KV_OK;
}

void kv_zset_remove(struct kv_zset *z, struct kv_scored *m, uint64_t hash)
{
    struct kv_slice name = kv_scored_name(m);
    struct kv_order_place place = kv_zset_before_name(m->score, &name);
    KV_DASSERT(kv_guard_permits(z->guard, hash));
    unindex_due(z, hash, kv_scored_due(m));
    kv_order_remove(&z->order, &place, m);
    kv_table_remove(&z->table, hash, m);
    count_out(z, kv_scored_size(m));
    free_member(m);
}

enum kv_err kv_zset_reserve(struct kv_zset *z, uint64_t changes)
{
    return kv_order_reserve(&z->order, changes);
}

void kv_zset_unreserve(struct kv_zset *z)
{
    kv_order_unreserve(&z->order);
}

uint64_t kv_zset_rank(const struct kv_zset *z, const struct kv_scored *m)
{
    struct kv_slice name = kv_scored_name(m);
    struct kv_order_place place = kv_zset_before_name(m->score, &name);
    return kv_order_rank(&z->order, &place);
}

/* --- scanning --- */

struct visiting {
    void (*visit)(struct kv_scored *m, void *arg);
    void *arg;
};

static void visit_item(void *item, void *arg)
{
    const struct visiting *v = arg;
    v->visit(item, v->arg);
}

uint64_t kv_zset_scan(const struct kv_zset *z, uint64_t position, uint64_t count,
                      void (*visit)(struct kv_scored *m, void *arg), void *arg)
{
    struct visiting v = {visit, arg};
    return kv_table_scan(&z->table, position, count, visit_item, &v);
}

/* --- moving blocks, checking --- */

static void move_members(struct kv_zset *z, struct kv_moves *m)
{
    struct kv_order_cursor c;
    for (bool more = kv_order_at(&z->order, 0, &c); more; more = kv_order_next(&c)) {
        struct kv_scored *old = kv_zset_at(&c);
        struct kv_scored *to = kv_move_block(old, kv_scored_size(old), KV_MEM_VALUE, m);
        if (to == old)
            continue;
        kv_order_replace(&c, to);
        kv_table_replace(&z->table, kv_zset_hash(z, kv_scored_name(to)), old, to);
    }
}

/* A table moves its items where it meets them; ours have been moved already. */
static void *stay(void *item, void *arg)
{
    (void)arg;
    return item;
}

struct kv_zset *kv_zset_move(struct kv_zset *z, struct kv_moves *m)
{
    uint64_t cursor = 0;
    move_members(z, m);
    kv_order_move_nodes(&z->order, m);
    while (cursor != KV_TABLE_MOVE_END)
        cursor = kv_table_move(&z->table, cursor, UINT32_MAX, stay, NULL, m);
    if (z->due != NULL) {
        uint64_t when = 0, position = 0;
        while (kv_time_index_move_nodes(z->due, &when, &position, m)) {
        }
        z->due = kv_move_block(z->due, sizeof(*z->due), KV_MEM_VALUE, m);
    }
    return kv_move_block(z, sizeof(*z), KV_MEM_VALUE, m);
}

static void check_members(const struct kv_zset *z)
{
    struct kv_order_cursor c;
    size_t block_bytes = 0, used_bytes = 0;
    uint64_t due_count = 0;
    for (bool more = kv_order_at(&z->order, 0, &c); more; more = kv_order_next(&c)) {
        const struct kv_scored *m = kv_zset_at(&c);
        struct kv_slice name = kv_scored_name(m);
        KV_ASSERT(m->score == kv_order_score(&c));
        KV_ASSERT(m->flags == flags_for(name.len, kv_scored_due(m)));
        KV_ASSERT(kv_zset_find(z, name, kv_zset_hash(z, name)) == m);
        block_bytes += kv_mem_block_size(kv_scored_size(m));
        used_bytes += kv_scored_size(m);
        due_count += kv_scored_due(m) != KV_NOT_DUE;
    }
    KV_ASSERT(block_bytes == z->member_block_bytes);
    KV_ASSERT(used_bytes == z->member_used_bytes);
    KV_ASSERT((z->due != NULL) == (due_count != 0));
    if (z->due != NULL) {
        kv_time_index_check(z->due);
        KV_ASSERT(z->due->count == due_count);
    }
}

void kv_zset_check(const struct kv_zset *z)
{
    kv_table_check(&z->table);
    kv_order_check(&z->order, member_less);
    KV_ASSERT(z->table.count == z->order.count);
    check_members(z);
}
