/* Slabs: 64 KiB cut into blocks of one size class.
 *
 * A slab's free blocks are bits in words of its descriptor's chunk (chunk.c); blocks carry nothing,
 * are not written when freed, and fresh ones cost no page until somebody writes them. Blocks are
 * handed out lowest address first. Slabs that have free and used blocks are in one of eight lists
 * of their class by how full they are; batches come from the fullest, so that the others run empty
 * by themselves. A slab without free blocks is in no list, an empty one goes back to its chunk.
 *
 * Evacuation marks, per class, the emptiest slabs whose blocks fit into what is free in the others.
 * They move to a list of their own and give out nothing until they are empty or the evacuation
 * ends.
 *
 * Invariants: free_count is the number of free bits; a slab's list follows from free_count and
 * capacity, or is the list of evacuated ones; no free bit lies before free_word.
 *
 * Locks: one mutex per class, held for one batch; cold descriptors are fetched before it is taken.
 * Chunks' mutex ranks above and is never needed under it, since getting a slab may be a system
 * call.
 *
 * Rejected: links through the free blocks (each refill would walk cold memory, each flush write to
 * it); slabs owned by threads with a second list for foreign frees (an atomic per foreign free, and
 * slabs of idle threads stay half empty).
 */
#include "mem/mem_priv.h"

#if MEM_SLABS

#define LIST_EVACUATED (FULLNESS_COUNT + 1)
#define LIST_NONE FULLNESS_COUNT
#define ROOM_USED_PERCENT 90 /* of the free blocks in other slabs that an evacuation may claim */
#define EVACUATION_STEP 64   /* slabs marked between two chances for others to have the mutex */

struct slab_class {
    struct kv_mutex mutex;
    struct slab *lists[LIST_EVACUATED + 1]; /* LIST_NONE stays empty */
    uint64_t slabs;                         /* of this class */
    uint64_t live;                          /* blocks handed out */
    uint64_t resident_bytes;                /* of its slabs: pages that may be there */
    uint64_t space_bytes;                   /* of its slabs: capacity * size */
} KV_ALIGNED(KV_CACHE_LINE);

#define CLASS_INIT                                                                                 \
    {                                                                                              \
        .mutex = KV_MUTEX_INIT(KV_RANK_MEM_CLASS)                                                  \
    }
static struct slab_class classes[KV_MEM_CLASS_COUNT] = {[0 ... KV_MEM_CLASS_COUNT - 1] =
                                                            CLASS_INIT};

static uint64_t *word_of(const struct slab *s, unsigned word)
{
    return word < 16 ? &s->low_words[word] : &s->high_words[word - 16];
}

static unsigned index_of(const struct slab *s, const void *block)
{
    size_t offset = (size_t)((const char *)block - s->first);
    return (unsigned)(offset * (uint64_t)s->reciprocal >> 32);
}

/* --- lists; class mutex --- */

static uint8_t list_for(const struct slab *s)
{
    if (atomic_load_explicit(&s->flags, memory_order_relaxed) & SLAB_EVACUATES)
        return LIST_EVACUATED;
    if (s->free_count == 0)
        return LIST_NONE;
    return (uint8_t)((s->free_count - 1u) * s->list_factor >> 16);
}

static void list_remove(struct slab_class *k, struct slab *s)
{
    if (s->list == LIST_NONE)
        return;
    if (s->next != NULL)
        s->next->prev = s->prev;
    if (s->prev != NULL)
        s->prev->next = s->next;
    else
        k->lists[s->list] = s->next;
    s->list = LIST_NONE;
}

static KV_NOINLINE void list_change(struct slab_class *k, struct slab *s, uint8_t list)
{
    list_remove(k, s);
    if (list == LIST_NONE)
        return;
    s->list = list;
    s->prev = NULL;
    s->next = k->lists[list];
    if (s->next != NULL)
        s->next->prev = s;
    k->lists[list] = s;
}

static inline void list_update(struct slab_class *k, struct slab *s)
{
    uint8_t list = list_for(s);
    if (KV_UNLIKELY(list != s->list))
        list_change(k, s, list);
}

static void class_add(struct slab_class *k, struct slab *s)
{
    k->slabs++;
    k->resident_bytes += s->resident_bytes;
    k->space_bytes += (uint64_t)s->capacity * kv_mem_class_bytes[s->class_index];
    list_update(k, s);
}

static void class_remove(struct slab_class *k, struct slab *s)
{
    KV_ASSERT(k->slabs > 0 && k->resident_bytes >= s->resident_bytes);
    list_remove(k, s);
    k->slabs--;
    k->resident_bytes -= s->resident_bytes;
    k->space_bytes -= (uint64_t)s->capacity * kv_mem_class_bytes[s->class_index];
}

/* --- blocks --- */

static void note_resident(struct slab_class *k, struct slab *s, size_t end)
{
    end = (end + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1);
    if (end <= s->resident_bytes)
        return;
    k->resident_bytes += end - s->resident_bytes;
    s->resident_bytes = (uint32_t)end;
}

static unsigned take_from(struct slab_class *k, struct slab *s, void **blocks, unsigned n)
{
    size_t size = kv_mem_class_bytes[s->class_index];
    unsigned got = 0, index = 0;
    unsigned word = s->free_word;
    unsigned want = KV_MIN(n, (unsigned)s->free_count);
    KV_ASSERT(want > 0);
    while (got < want) {
        KV_DASSERT(word * 64 < s->capacity);
        uint64_t *w = word_of(s, word);
        uint64_t bits = *w;
        while (bits != 0 && got < want) {
            index = word * 64 + (unsigned)__builtin_ctzl(bits);
            bits &= bits - 1;
            blocks[got++] = s->first + index * size;
        }
        *w = bits;
        if (bits == 0)
            word++;
    }
    s->free_word = (uint16_t)word;
    s->free_count = (uint16_t)(s->free_count - got);
    k->live += got;
    note_resident(k, s, (index + 1) * size);
    list_update(k, s);
    return got;
}

static struct slab *fullest(const struct slab_class *k)
{
    for (unsigned i = 0; i < FULLNESS_COUNT; i++)
        if (k->lists[i] != NULL)
            return k->lists[i];
    return NULL;
}

unsigned kv_slab_take(unsigned class_index, void **blocks, unsigned n)
{
    KV_ASSERT(class_index < KV_MEM_CLASS_COUNT && n > 0);
    struct slab_class *k = &classes[class_index];
    unsigned got = 0;
    kv_mutex_lock(&k->mutex);
    while (got < n) {
        struct slab *s = fullest(k);
        if (s == NULL) {
            if (got > 0)
                break; /* a smaller batch is better than a new slab for its rest */
            kv_mutex_unlock(&k->mutex);
            s = kv_chunk_slab_take(class_index);
            if (s == NULL)
                return 0;
            kv_mutex_lock(&k->mutex);
            /* Used even if others gave blocks back meanwhile: a slab without any block in use would
             * never go back to its chunk. */
            class_add(k, s);
        }
        got += take_from(k, s, blocks + got, n - got);
    }
    kv_mutex_unlock(&k->mutex);
    for (unsigned i = 0; i < got / 2; i++) {
        void *low = blocks[i];
        blocks[i] = blocks[got - 1 - i];
        blocks[got - 1 - i] = low;
    }
    return got;
}

void *kv_slab_take_dense(unsigned class_index)
{
    KV_ASSERT(class_index < KV_MEM_CLASS_COUNT);
    struct slab_class *k = &classes[class_index];
    void *block = NULL;
    kv_mutex_lock(&k->mutex);
    struct slab *s = fullest(k);
    if (s != NULL)
        take_from(k, s, &block, 1);
    kv_mutex_unlock(&k->mutex);
    return block;
}

static KV_COLD KV_NORETURN void freed_twice(const void *block, const struct slab *s)
{
    if (s->capacity == 0)
        kv_panic("memory: %p is no block of a slab, or was freed before", block);
    kv_panic("memory: block %p of %u bytes was freed before, or is none", block,
             (unsigned)kv_mem_class_bytes[s->class_index]);
}

/* Sets the block's bit. The slab is wholly free afterwards: true, and it is out of its class. */
static bool give_to(struct slab_class *k, unsigned class_index, void *block)
{
    struct slab *s = slab_of(block);
    size_t offset = (size_t)((char *)block - s->first);
    unsigned index = index_of(s, block);
    if (KV_UNLIKELY(s->capacity == 0 || s->class_index != class_index || index >= s->capacity ||
                    index * (size_t)kv_mem_class_bytes[class_index] != offset))
        freed_twice(block, s);
    unsigned word = index / 64;
    uint64_t *w = word_of(s, word), bit = (uint64_t)1 << index % 64;
    if (KV_UNLIKELY(*w & bit))
        freed_twice(block, s);
    *w |= bit;
    if (word < s->free_word)
        s->free_word = (uint16_t)word;
    s->free_count++;
    k->live--;
    if (KV_UNLIKELY(s->free_count == s->capacity)) {
        class_remove(k, s);
        return true;
    }
    list_update(k, s);
    return false;
}

/* Fetches what give_to will touch, descriptors and words, from the addresses alone: waiting for the
 * one to find the other would take as long as what it saves. (The words of the first, shorter slab
 * of a chunk are not quite there.) */
static void fetch_for(unsigned class_index, void *const *blocks, unsigned n)
{
    uint64_t reciprocal = slab_reciprocal(kv_mem_class_bytes[class_index]);
    for (unsigned i = 0; i < n; i++) {
        const struct slab *s = slab_of(blocks[i]);
        unsigned index = (unsigned)((uintptr_t)blocks[i] % SLAB_BYTES * reciprocal >> 32);
        KV_PREFETCH_OWN(s);
        KV_PREFETCH_OWN(
            slab_word(chunk_of(s), (uintptr_t)blocks[i] / SLAB_BYTES % CHUNK_SLABS, index / 64));
    }
}

void kv_slab_give(unsigned class_index, void *const *blocks, unsigned n)
{
    KV_ASSERT(class_index < KV_MEM_CLASS_COUNT);
    struct slab_class *k = &classes[class_index];
    fetch_for(class_index, blocks, n);
    struct slab *empty = NULL;
    kv_mutex_lock(&k->mutex);
    for (unsigned i = 0; i < n; i++) {
        if (KV_UNLIKELY(give_to(k, class_index, blocks[i]))) {
            struct slab *s = slab_of(blocks[i]);
            s->next = empty;
            empty = s;
        }
    }
    kv_mutex_unlock(&k->mutex);
    while (empty != NULL) {
        struct slab *s = empty;
        empty = s->next;
        kv_chunk_slab_give(s);
    }
}

/* --- evacuation --- */

/* Lets others have the mutex in the middle of something long. */
static void step_aside(struct slab_class *k)
{
    kv_mutex_unlock(&k->mutex);
    kv_mutex_lock(&k->mutex);
}

/* Marks the emptiest slabs of a class while their blocks fit elsewhere; returns their space. Each
 * is a cold line, and a class may have tens of thousands. */
static uint64_t evacuate_class(struct slab_class *k, size_t size)
{
    uint64_t room = (k->space_bytes / size - k->live) * ROOM_USED_PERCENT / 100;
    uint64_t bytes = 0;
    unsigned marked = 0;
    KV_ASSERT(k->live * size <= k->space_bytes);
    /* Not the fullest quarter: moving six of eight blocks to free two is not worth it. */
    for (unsigned i = FULLNESS_COUNT - 1; i >= FULLNESS_COUNT / 4; i--) {
        while (k->lists[i] != NULL) {
            struct slab *s = k->lists[i];
            if (room < s->capacity) /* its blocks need places, its free ones are none */
                return bytes;
            room -= s->capacity;
            atomic_store_explicit(&s->flags, SLAB_EVACUATES, memory_order_relaxed);
            list_update(k, s);
            bytes += s->resident_bytes;
            if (++marked % EVACUATION_STEP == 0)
                step_aside(k);
        }
    }
    return bytes;
}

uint64_t kv_slab_evacuation_begin(void)
{
    uint64_t bytes = 0;
    for (unsigned i = 0; i < KV_MEM_CLASS_COUNT; i++) {
        kv_mutex_lock(&classes[i].mutex);
        KV_ASSERT(classes[i].lists[LIST_EVACUATED] == NULL);
        bytes += evacuate_class(&classes[i], kv_mem_class_bytes[i]);
        kv_mutex_unlock(&classes[i].mutex);
    }
    return bytes;
}

void kv_slab_evacuation_end(void)
{
    for (unsigned i = 0; i < KV_MEM_CLASS_COUNT; i++) {
        struct slab_class *k = &classes[i];
        unsigned done = 0;
        kv_mutex_lock(&k->mutex);
        while (k->lists[LIST_EVACUATED] != NULL) {
            struct slab *s = k->lists[LIST_EVACUATED];
            atomic_store_explicit(&s->flags, 0, memory_order_relaxed);
            list_update(k, s);
            if (++done % EVACUATION_STEP == 0)
                step_aside(k);
        }
        kv_mutex_unlock(&k->mutex);
    }
}

/* --- reading --- */

void kv_slab_totals(struct slab_totals *out)
{
    *out = (struct slab_totals){0};
    for (unsigned i = 0; i < KV_MEM_CLASS_COUNT; i++) {
        struct slab_class *k = &classes[i];
        size_t size = kv_mem_class_bytes[i];
        kv_mutex_lock(&k->mutex);
        out->slabs += k->slabs;
        out->live_bytes += k->live * size;
        out->resident_bytes += k->resident_bytes;
        out->space_bytes += k->space_bytes;
        kv_mutex_unlock(&k->mutex);
    }
}

static void check_slab(const struct slab *s, unsigned class_index)
{
    unsigned bits = 0;
    for (unsigned word = 0; word * 64 < s->capacity; word++) {
        unsigned n = (unsigned)__builtin_popcountl(*word_of(s, word));
        KV_ASSERT(n == 0 || word >= s->free_word);
        bits += n;
    }
    KV_ASSERT(s->class_index == class_index);
    KV_ASSERT(bits == s->free_count);
    KV_ASSERT(s->free_count > 0 && s->free_count < s->capacity);
    KV_ASSERT(s->list == list_for(s));
}

void kv_slab_check(void)
{
    for (unsigned i = 0; i < KV_MEM_CLASS_COUNT; i++) {
        struct slab_class *k = &classes[i];
        kv_mutex_lock(&k->mutex);
        uint64_t partial = 0;
        for (unsigned list = 0; list <= LIST_EVACUATED; list++) {
            for (const struct slab *s = k->lists[list]; s != NULL; s = s->next) {
                if (list != LIST_EVACUATED || s->free_count != 0)
                    check_slab(s, i);
                partial++;
            }
        }
        KV_ASSERT(partial <= k->slabs);
        KV_ASSERT(k->lists[LIST_NONE] == NULL);
        KV_ASSERT(k->live * kv_mem_class_bytes[i] <= k->space_bytes);
        kv_mutex_unlock(&k->mutex);
    }
}

#endif
