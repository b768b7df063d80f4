/* Large sets and hashes. The layout of an element is drawn in dict.h.
 *
 * An element's size follows from its content, so that a free knows it. A new value goes over the
 * old one when the block stays the same class, else into a new block whose pointer replaces the old
 * in its slot; either way what may fail comes first.
 *
 * Invariants (kv_dict_check): an element is found under its own name; LONG_ flags are set exactly
 * when a length passes 255; the index has one record {due, position} per element with a due time,
 * and exists exactly while there is one; the counted bytes are the sums over the elements.
 *
 * Rejected: a value in a block of its own, pointed to by the element. It makes a new value cheaper
 * when lengths vary much, and every read a cache miss dearer.
 */
#include "value/dict.h"

#define SHORT_MAX 255u
#define WORD 8u

/* What an element consists of. */
struct form {
    struct kv_slice name;
    const struct kv_slice *value; /* NULL: none */
    int64_t due;
};

static uint8_t form_flags(const struct form *f)
{
    return (uint8_t)((f->due != KV_NOT_DUE ? KV_ELEMENT_DUE : 0) |
                     (f->name.len > SHORT_MAX ? KV_ELEMENT_LONG_NAME : 0) |
                     (f->value != NULL ? KV_ELEMENT_VALUE : 0) |
                     (f->value != NULL && f->value->len > SHORT_MAX ? KV_ELEMENT_LONG_VALUE : 0));
}

static size_t form_size(const struct form *f)
{
    size_t size = sizeof(struct kv_element) + (f->due != KV_NOT_DUE ? WORD : 0) +
                  (f->name.len > SHORT_MAX ? 4 : 1) + f->name.len;
    if (f->value != NULL)
        size += (f->value->len > SHORT_MAX ? 4 : 1) + f->value->len;
    return size;
}

size_t kv_element_bytes_for(size_t name_len, const struct kv_slice *value, int64_t due)
{
    struct form f = {{NULL, name_len}, value, due};
    return name_len > UINT32_MAX || (value != NULL && value->len > UINT32_MAX) ? 0 : form_size(&f);
}

static uint8_t *write_len(uint8_t *p, size_t len)
{
    if (KV_LIKELY(len <= SHORT_MAX)) {
        *p = (uint8_t)len;
        return p + 1;
    }
    uint32_t wide = (uint32_t)len;
    memcpy(p, &wide, sizeof(wide));
    return p + sizeof(wide);
}

/* Writes an element; name and value may lie in it where they lay before. */
static void write_form(struct kv_element *e, const struct form *f)
{
    size_t head = form_size(f) - f->name.len - (f->value != NULL ? f->value->len : 0);
    uint8_t *name = (uint8_t *)e + head;
    if (f->value != NULL && f->value->len != 0)
        memmove(name + f->name.len, f->value->ptr, f->value->len);
    if (f->name.len != 0 && f->name.ptr != (const char *)name)
        memmove(name, f->name.ptr, f->name.len);
    e->flags = form_flags(f);
    uint8_t *p = e->data;
    if (f->due != KV_NOT_DUE) {
        memcpy(p, &f->due, sizeof(f->due));
        p += WORD;
    }
    p = write_len(p, f->name.len);
    if (f->value != NULL)
        p = write_len(p, f->value->len);
    KV_DASSERT(p == name);
}

static struct kv_element *build(const struct form *f)
{
    size_t size = kv_element_bytes_for(f->name.len, f->value, f->due);
    struct kv_element *e = size != 0 ? kv_mem_try_alloc(size, KV_MEM_VALUE) : NULL;
    if (e != NULL)
        write_form(e, f);
    return e;
}

static void count_in(struct kv_dict *d, size_t size)
{
    d->element_block_bytes += kv_mem_block_size(size);
    d->element_used_bytes += size;
}

static void count_out(struct kv_dict *d, size_t size)
{
    d->element_block_bytes -= kv_mem_block_size(size);
    d->element_used_bytes -= size;
}

static void free_element(struct kv_element *e)
{
    kv_mem_free_movable(e, kv_element_size(e), KV_MEM_VALUE);
}

/* --- life --- */

static uint64_t hash_of(const void *item, void *arg)
{
    struct kv_slice name = kv_element_name(item);
    return kv_hash_bytes(arg, name.ptr, name.len);
}

struct kv_dict *kv_dict_create(const struct kv_hash_key *hash_key)
{
    struct kv_dict *d = kv_mem_try_alloc(sizeof(*d), KV_MEM_VALUE);
    if (d == NULL)
        return NULL;
    *d = (struct kv_dict){.hash_key = hash_key, .registered_due = KV_NOT_DUE};
    kv_table_init(&d->table, hash_of, (void *)(uintptr_t)hash_key, KV_MEM_VALUE);
    return d;
}

static void free_index(struct kv_dict *d)
{
    if (d->due == NULL)
        return;
    kv_time_index_release(d->due);
    kv_mem_free_movable(d->due, sizeof(*d->due), KV_MEM_VALUE);
    d->due = NULL;
}

static void free_item(void *item, void *arg)
{
    (void)arg;
    free_element(item);
}

void kv_dict_free(struct kv_dict *d)
{
    KV_ASSERT(d->guard == NULL);
    kv_table_each(&d->table, free_item, NULL);
    kv_table_release(&d->table);
    free_index(d);
    kv_mem_free_movable(d, sizeof(*d), KV_MEM_VALUE);
}

struct copying {
    struct kv_dict *to;
    bool failed;
};

static void copy_item(void *item, void *arg)
{
    struct copying *c = arg;
    const struct kv_element *e = item;
    struct kv_element_parts parts = kv_element_parts(e);
    const struct kv_slice *value = e->flags & KV_ELEMENT_VALUE ? &parts.value : NULL;
    if (c->failed)
        return;
    uint64_t hash = kv_dict_hash(c->to, parts.name);
    c->failed = kv_dict_add(c->to, parts.name, hash, value, kv_element_due(e)) != KV_OK;
}

struct kv_dict *kv_dict_copy(const struct kv_dict *d)
{
    struct copying c = {kv_dict_create(d->hash_key), false};
    if (c.to == NULL)
        return NULL;
    kv_table_each(&d->table, copy_item, &c);
    if (c.failed) {
        kv_dict_free(c.to);
        return NULL;
    }
    c.to->registered_due = d->registered_due;
    return c.to;
}

struct kv_footprint kv_dict_footprint(const struct kv_dict *d)
{
    size_t other = kv_table_memory(&d->table);
    if (d->due != NULL)
        other += kv_time_index_memory(d->due) + kv_mem_block_size(sizeof(*d->due));
    return (struct kv_footprint){
        .block_bytes = other + kv_mem_block_size(sizeof(*d)) + d->element_block_bytes,
        .used_bytes = other + sizeof(*d) + d->element_used_bytes,
    };
}

/* --- due times --- */

/* Brings the index from one due time of an element to another. On failure nothing changed. */
static enum kv_err index_due(struct kv_dict *d, uint64_t hash, int64_t from, int64_t to)
{
    uint64_t position = kv_table_position(hash);
    enum kv_err err = KV_OK;
    if (KV_LIKELY(from == to))
        return KV_OK;
    if (d->due == NULL) {
        d->due = kv_mem_try_alloc(sizeof(*d->due), KV_MEM_VALUE);
        if (d->due == NULL)
            return KV_ERR_NOMEM;
        kv_time_index_init(d->due, KV_MEM_VALUE);
    }
    if (from == KV_NOT_DUE)
        err = kv_time_index_insert(d->due, (uint64_t)to, position);
    else if (to == KV_NOT_DUE)
        kv_time_index_remove(d->due, (uint64_t)from, position);
    else
        err = kv_time_index_move(d->due, (uint64_t)from, (uint64_t)to, position);
    if (d->due->count == 0)
        free_index(d);
    return err;
}

static bool is_due_at(void *item, void *arg)
{
    const int64_t *due = arg;
    return kv_element_due(item) == *due;
}

struct kv_element *kv_dict_first_due_element(const struct kv_dict *d)
{
    uint64_t when, position;
    if (d->due == NULL || !kv_time_index_first(d->due, &when, &position))
        return NULL;
    int64_t due = (int64_t)when;
    struct kv_element *e = kv_table_find_position(&d->table, position, is_due_at, &due);
    KV_ASSERT(e != NULL);
    return e;
}

/* --- elements --- */

static bool has_name(const void *item, const void *key)
{
    const struct kv_slice *name = key;
    struct kv_slice have = kv_element_name(item);
    return kv_slice_equal(have, *name);
}

struct kv_element *kv_dict_find(const struct kv_dict *d, struct kv_slice name, uint64_t hash)
{
    KV_DASSERT(hash == kv_dict_hash(d, name));
    return kv_table_find(&d->table, hash, has_name, &name);
}

enum kv_err kv_dict_add(struct kv_dict *d, struct kv_slice name, uint64_t hash,
                        const struct kv_slice *value, int64_t due)
{
    struct form f = {name, value, due};
    KV_DASSERT(kv_guard_permits(d->guard, hash));
    struct kv_element *e = build(&f);
    if (e == NULL)
        return KV_ERR_NOMEM;
    enum kv_err err = index_due(d, hash, KV_NOT_DUE, due);
    if (err == KV_OK) {
        err = kv_table_insert(&d->table, hash, e);
        if (err != KV_OK) {
            enum kv_err undone = index_due(d, hash, due, KV_NOT_DUE);
            KV_ASSERT(undone == KV_OK);
        }
    }
    if (err != KV_OK) {
        free_element(e);
        return err;
    }
    count_in(d, form_size(&f));
    return KV_OK;
}

enum kv_err kv_dict_set(struct kv_dict *d, struct kv_element *e, uint64_t hash,
                        const struct kv_slice *value, int64_t due)
{
    struct form f = {kv_element_name(e), value, due};
    int64_t old_due = kv_element_due(e);
    size_t old_size = kv_element_size(e);
    size_t size = kv_element_bytes_for(f.name.len, value, due);
    KV_DASSERT(kv_guard_permits(d->guard, hash));
    if (size == 0)
        return KV_ERR_NOMEM;
    /* A due time that comes or goes shifts what lies behind it: the value's bytes could be
     * overwritten before they are moved when they lie in the element itself. */
    bool same_head = form_flags(&f) == e->flags;
    struct kv_element *to = e;
    if (!kv_mem_same_block(size, old_size) || !same_head) {
        to = build(&f);
        if (to == NULL)
            return KV_ERR_NOMEM;
    }
    enum kv_err err = index_due(d, hash, old_due, due);
    if (err != KV_OK) {
        if (to != e)
            free_element(to);
        return err;
    }
    count_out(d, old_size);
    count_in(d, size);
    if (to == e) {
        write_form(e, &f);
        return KV_OK;
    }
    kv_table_replace(&d->table, hash, e, to);
    free_element(e);
    return KV_OK;
}

void kv_dict_remove(struct kv_dict *d, struct kv_element *e, uint64_t hash)
{
    enum kv_err err = index_due(d, hash, kv_element_due(e), KV_NOT_DUE);
    KV_ASSERT(err == KV_OK);
    KV_DASSERT(kv_guard_permits(d->guard, hash));
    kv_table_remove(&d->table, hash, e);
    count_out(d, kv_element_size(e));
    free_element(e);
}

/* --- all of them --- */

struct visiting {
    void (*visit)(struct kv_element *e, void *arg);
    void *arg;
};

static void visit_item(void *item, void *arg)
{
    const struct visiting *v = arg;
    v->visit(item, v->arg);
}

void kv_dict_each(const struct kv_dict *d, void (*visit)(struct kv_element *e, void *arg),
                  void *arg)
{
    struct visiting v = {visit, arg};
    kv_table_each(&d->table, visit_item, &v);
}

uint64_t kv_dict_scan(const struct kv_dict *d, uint64_t position, uint64_t count,
                      void (*visit)(struct kv_element *e, void *arg), void *arg)
{
    struct visiting v = {visit, arg};
    return kv_table_scan(&d->table, position, count, visit_item, &v);
}

struct kv_element *kv_dict_random(const struct kv_dict *d, struct kv_random *r)
{
    return kv_table_random(&d->table, r);
}

/* --- moving blocks, checking --- */

static void *move_element(void *item, void *arg)
{
    return kv_move_block(item, kv_element_size(item), KV_MEM_VALUE, arg);
}

struct kv_dict *kv_dict_move(struct kv_dict *d, struct kv_moves *m)
{
    uint64_t cursor = 0;
    while (cursor != KV_TABLE_MOVE_END)
        cursor = kv_table_move(&d->table, cursor, UINT32_MAX, move_element, m, m);
    if (d->due != NULL) {
        uint64_t when = 0, position = 0;
        while (kv_time_index_move_nodes(d->due, &when, &position, m)) {
        }
        d->due = kv_move_block(d->due, sizeof(*d->due), KV_MEM_VALUE, m);
    }
    return kv_move_block(d, sizeof(*d), KV_MEM_VALUE, m);
}

struct totals {
    const struct kv_dict *d;
    size_t block_bytes, used_bytes;
    uint64_t due;
};

static void check_element(void *item, void *arg)
{
    struct totals *t = arg;
    const struct kv_element *e = item;
    struct kv_element_parts parts = kv_element_parts(e);
    struct form f = {parts.name, e->flags & KV_ELEMENT_VALUE ? &parts.value : NULL,
                     kv_element_due(e)};
    KV_ASSERT(form_flags(&f) == e->flags);
    KV_ASSERT(form_size(&f) == kv_element_size(e));
    KV_ASSERT(kv_dict_find(t->d, parts.name, kv_dict_hash(t->d, parts.name)) == e);
    t->block_bytes += kv_mem_block_size(form_size(&f));
    t->used_bytes += form_size(&f);
    t->due += f.due != KV_NOT_DUE;
}

void kv_dict_check(const struct kv_dict *d)
{
    struct totals t = {.d = d};
    kv_table_check(&d->table);
    kv_table_each(&d->table, check_element, &t);
    KV_ASSERT(t.block_bytes == d->element_block_bytes);
    KV_ASSERT(t.used_bytes == d->element_used_bytes);
    KV_ASSERT((d->due != NULL) == (t.due != 0));
    if (d->due != NULL) {
        kv_time_index_check(d->due);
        KV_ASSERT(d->due->count == t.due);
    }
}
