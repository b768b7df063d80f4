/* The elements of a SORT: collecting them and putting them in order. Options and results are in
 * sort.c.
 *
 * Data layout: one kv_sort_element per element in one array of the arena, 32 bytes each. Texts of a
 * list are borrowed from where they lie, unless they are numbers or STORE may overwrite them;
 * others are copied, since a visit may print them into memory of its own.
 *
 * Order. Numbers that are equal are ordered by the elements' texts, so that the result is the same
 * everywhere; texts that are equal stay as they were. BY without a * means as stored: backwards
 * with DESC, but for sets, which have no order. When a set is to be stored unsorted, it is sorted
 * all the same: two servers may keep one set in different orders. With LIMIT, a heap of as many
 * elements as end in the result takes all others in turn, so that only they are sorted.
 *
 * Rejected: qsort of the C library, which takes memory of its own for what a client decides.
 *
 * Threads: see engine/call.h.
 */
#include "base/number.h"
#include "cmd/sort_priv.h"
#include "store/list.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#define RUN 12u          /* elements that are sorted by insertion */
#define HEAP_FRACTION 4u /* a heap pays when the result is at most this part of all */

/* --- collecting --- */

/* Reads a number as C does: blanks before it, hexadecimal, infinities; an empty text is 0, and a
 * zero byte ends it. */
static enum kv_err read_number(struct kv_sort *s, struct kv_slice text, double *number)
{
    int64_t whole;
    char *end;
    if (KV_LIKELY(kv_int_parse(text, &whole))) {
        *number = (double)whole;
        return KV_OK;
    }
    if (!kv_sort_room(s, text.len + 1))
        return KV_ERR_NOMEM;
    if (text.len != 0)
        memcpy(s->buffer, text.ptr, text.len);
    s->buffer[text.len] = '\0';
    errno = 0;
    *number = strtod(s->buffer, &end);
    return *end != '\0' || errno == ERANGE || isnan(*number) ? KV_ERR_SYNTAX : KV_OK;
}

/* What an element is sorted by. */
static enum kv_err read_key(struct kv_sort *s, struct kv_sort_element *x)
{
    struct kv_slice value = x->text;
    x->key.by = (struct kv_slice){NULL, 0};
    if (s->as_stored || (s->alpha && s->by == NULL))
        return KV_OK;
    if (s->by != NULL) {
        enum kv_err err = kv_sort_look_up(s, *s->by, x->text, &value);
        if (err != KV_OK)
            return err;
    }
    if (s->alpha) {
        if (value.ptr == NULL)
            return KV_OK;
        return kv_sort_copy(s, value, &x->key.by) ? KV_OK : KV_ERR_NOMEM;
    }
    x->key.number = 0;
    return value.ptr != NULL ? read_number(s, value, &x->key.number) : KV_OK;
}

/* Which elements of `count` are shown. */
static void choose(struct kv_sort *s, uint64_t count)
{
    s->first = s->offset < 0 ? 0 : KV_MIN((uint64_t)s->offset, count);
    s->shown = count - s->first;
    if (s->limit >= 0)
        s->shown = KV_MIN(s->shown, (uint64_t)s->limit);
}

static enum kv_err make_room(struct kv_sort *s, uint64_t count)
{
    s->elements = kv_arena_try_alloc(s->call->arena, count * sizeof(*s->elements));
    return s->elements != NULL ? KV_OK : KV_ERR_NOMEM;
}

/* Of a list that is not sorted only what is shown is looked at. */
static enum kv_err load_list(struct kv_sort *s, const struct kv_entry *e)
{
    char scratch[KV_INT_TEXT_MAX];
    uint64_t count = kv_store_list_count(e);
    bool backwards = s->as_stored && s->descending;
    int64_t from = 0;
    choose(s, count);
    if (s->as_stored) {
        from = (int64_t)s->first;
        count = s->shown;
        s->first = 0;
    }
    if (count == 0)
        return KV_OK;
    if (make_room(s, count) != KV_OK)
        return KV_ERR_NOMEM;
    struct kv_item item = kv_store_list_seek(e, backwards ? -1 - from : from);
    while (s->count < count) {
        struct kv_sort_element *x = &s->elements[s->count++];
        x->text = kv_item_text(&item, scratch);
        if ((x->text.ptr == scratch || s->stores) && !kv_sort_copy(s, x->text, &x->text))
            return KV_ERR_NOMEM;
        enum kv_err err = read_key(s, x);
        if (err != KV_OK)
            return err;
        if (backwards)
            kv_item_prev(&item);
        else
            kv_item_next(&item);
    }
    return KV_OK;
}

static bool is_gone(const struct kv_sort *s, const struct kv_member *m)
{
    return m->due != KV_NOT_DUE && m->due <= s->call->view.now_ms;
}

static void count_member(const struct kv_member *m, void *arg)
{
    struct kv_sort *s = arg;
    s->count += !is_gone(s, m);
}

struct loading {
    struct kv_sort *s;
    enum kv_err err;
};

static void load_member(const struct kv_member *m, void *arg)
{
    struct loading *l = arg;
    struct kv_sort *s = l->s;
    if (l->err != KV_OK || is_gone(s, m))
        return;
    struct kv_sort_element *x = &s->elements[s->count++];
    l->err = kv_sort_copy(s, m->name, &x->text) ? read_key(s, x) : KV_ERR_NOMEM;
}

static void reverse(struct kv_sort *s)
{
    for (uint64_t i = 0; i < s->count / 2; i++) {
        struct kv_sort_element other = s->elements[i];
        s->elements[i] = s->elements[s->count - 1 - i];
        s->elements[s->count - 1 - i] = other;
    }
}

enum kv_err kv_sort_load(struct kv_sort *s, const struct kv_entry *e)
{
    if (e == NULL)
        return KV_OK;
    if (kv_entry_type(e) == KV_TYPE_LIST)
        return load_list(s, e);
    if (kv_entry_type(e) == KV_TYPE_SET && s->as_stored && s->stores) {
        s->as_stored = false;
        s->alpha = true;
        s->by = NULL;
    }
    kv_entry_each_member(e, count_member, s);
    choose(s, s->count);
    if (make_room(s, s->count) != KV_OK)
        return KV_ERR_NOMEM;
    struct loading l = {s, KV_OK};
    s->count = 0;
    kv_entry_each_member(e, load_member, &l);
    if (s->as_stored && s->descending && kv_entry_type(e) == KV_TYPE_ZSET)
        reverse(s);
    return l.err;
}

/* --- ordering --- */

static int compare_numbers(const struct kv_sort_element *a, const struct kv_sort_element *b)
{
    if (a->key.number != b->key.number)
        return a->key.number < b->key.number ? -1 : 1;
    return kv_slice_compare(a->text, b->text);
}

/* What has no value to be sorted by comes first. */
static int compare_values(const struct kv_sort_element *a, const struct kv_sort_element *b)
{
    if (a->key.by.ptr == NULL || b->key.by.ptr == NULL)
        return (a->key.by.ptr != NULL) - (b->key.by.ptr != NULL);
    return kv_slice_compare(a->key.by, b->key.by);
}

/* True when a comes before b. */
static bool before(const struct kv_sort *s, const struct kv_sort_element *a,
                   const struct kv_sort_element *b)
{
    int order = !s->alpha       ? compare_numbers(a, b)
                : s->by != NULL ? compare_values(a, b)
                                : kv_slice_compare(a->text, b->text);
    return s->descending ? order > 0 : order < 0;
}

static void sort_run(const struct kv_sort *s, struct kv_sort_element *x, uint64_t count)
{
    for (uint64_t i = 1; i < count; i++) {
        struct kv_sort_element moving = x[i];
        uint64_t to = i;
        for (; to > 0 && before(s, &moving, &x[to - 1]); to--)
            x[to] = x[to - 1];
        x[to] = moving;
    }
}

/* Merges x[0 .. middle) and x[middle .. count), equal ones from the first half before. */
static void merge(const struct kv_sort *s, struct kv_sort_element *x, uint64_t middle,
                  uint64_t count, struct kv_sort_element *scratch)
{
    uint64_t left = 0, right = middle, to = 0;
    memcpy(scratch, x, middle * sizeof(*x));
    while (left < middle && right < count) {
        if (before(s, &x[right], &scratch[left]))
            x[to++] = x[right++];
        else
            x[to++] = scratch[left++];
    }
    memcpy(&x[to], &scratch[left], (middle - left) * sizeof(*x));
}

/* Sorts by merging; scratch has room for half of them. */
static void sort_all(const struct kv_sort *s, struct kv_sort_element *x, uint64_t count,
                     struct kv_sort_element *scratch)
{
    if (count <= RUN) {
        sort_run(s, x, count);
        return;
    }
    uint64_t middle = count / 2;
    sort_all(s, x, middle, scratch);
    sort_all(s, x + middle, count - middle, scratch);
    if (before(s, &x[middle], &x[middle - 1]))
        merge(s, x, middle, count, scratch);
}

/* The element at `at` sinks below those that come later than it: the last one is on top. */
static void sink(const struct kv_sort *s, struct kv_sort_element *heap, uint64_t at, uint64_t count)
{
    struct kv_sort_element moving = heap[at];
    for (;;) {
        uint64_t child = 2 * at + 1;
        if (child >= count)
            break;
        if (child + 1 < count && before(s, &heap[child], &heap[child + 1]))
            child++;
        if (!before(s, &moving, &heap[child]))
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = moving;
}

/* Brings the first `wanted` elements of the order to the front, in no order. */
static void select_first(struct kv_sort *s, uint64_t wanted)
{
    struct kv_sort_element *x = s->elements;
    for (uint64_t i = wanted / 2; i-- > 0;)
        sink(s, x, i, wanted);
    for (uint64_t i = wanted; i < s->count; i++) {
        if (!before(s, &x[i], &x[0]))
            continue;
        struct kv_sort_element out = x[0];
        x[0] = x[i];
        x[i] = out;
        sink(s, x, 0, wanted);
    }
}

enum kv_err kv_sort_order(struct kv_sort *s)
{
    uint64_t count = s->count;
    if (s->as_stored || s->shown == 0)
        return KV_OK;
    uint64_t wanted = s->first + s->shown;
    if (wanted <= count / HEAP_FRACTION) {
        select_first(s, wanted);
        count = wanted;
    }
    struct kv_sort_element *scratch =
        kv_arena_try_alloc(s->call->arena, (count / 2 + 1) * sizeof(*scratch));
    if (scratch == NULL)
        return KV_ERR_NOMEM;
    sort_all(s, s->elements, count, scratch);
    return KV_OK;
}
