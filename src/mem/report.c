/* Where resident memory is: the figures of all parts of mem/ put together.
 *
 * Nothing here is counted for the report alone. Owners' bytes come from the threads' counters,
 * slabs know their live blocks and the pages they have touched, jemalloc keeps statistics of its
 * own, the system tells what is resident. What the owners' counters and the slabs' say about the
 * same blocks differs by what caches hold: live blocks of slabs = owners' small blocks + cached
 * ones.
 *
 * resident = owners + caches + free in slabs + empty slabs + metadata + what the allocator below
 * keeps beyond its blocks + the image of the program. The last is what was resident when
 * kv_mem_init ran; pages of code that are read in later are missing from it.
 *
 * In debug builds headers count as metadata. Figures are read one after the other: with other
 * threads at work they belong to slightly different moments.
 */
#include "mem/mem_priv.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

static uint64_t image_bytes; /* resident before kv_mem_init; constant afterwards */

uint64_t kv_mem_rss_bytes(void)
{
    char text[128];
    int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t got = read(fd, text, sizeof(text) - 1);
    close(fd);
    if (got <= 0)
        return 0;
    text[got] = '\0';
    unsigned long long total_pages = 0, resident_pages = 0;
    if (sscanf(text, "%llu %llu", &total_pages, &resident_pages) != 2)
        return 0;
    return resident_pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static uint64_t beyond(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

void kv_report_init(void)
{
    struct large_totals large;
    kv_large_totals(&large);
    image_bytes = beyond(kv_mem_rss_bytes(), large.resident);
}

/* All sources at about one moment. */
struct sources {
    struct chunk_totals chunks;
    struct slab_totals slabs;
    struct large_totals large;
    uint64_t cached_bytes, stack_bytes;
    uint64_t used_total;
};

static void sources_read(struct sources *s)
{
    *s = (struct sources){0};
#if MEM_SLABS
    kv_chunk_totals(&s->chunks);
    kv_slab_totals(&s->slabs);
#endif
    kv_large_totals(&s->large);
    kv_cache_totals(&s->cached_bytes, &s->stack_bytes);
    int64_t used = kv_mem_used_total();
    s->used_total = used > 0 ? (uint64_t)used : 0;
}

void kv_mem_report_read(struct kv_mem_report *out)
{
    KV_ASSERT(out != NULL);
    struct sources s;
    sources_read(&s);
    *out = (struct kv_mem_report){.used_total = (int64_t)s.used_total};
    for (unsigned i = 0; i < KV_MEM_OWNER_COUNT; i++)
        out->used[i] = kv_mem_used((enum kv_mem_owner)i);
    out->small_bytes = KV_MIN(beyond(s.slabs.live_bytes, s.cached_bytes), s.used_total);
    out->large_bytes = s.used_total - out->small_bytes;
    out->cached_bytes = s.cached_bytes;
    out->slab_free_bytes = beyond(s.slabs.resident_bytes, s.slabs.live_bytes);
    out->slab_unused_bytes = s.chunks.unused_bytes;
    out->metadata_bytes = s.chunks.metadata_bytes + s.stack_bytes + s.large.metadata;
    uint64_t slab_resident = s.slabs.resident_bytes + s.chunks.unused_bytes;
    out->slab_untouched_bytes =
        beyond(s.chunks.chunks * CHUNK_BYTES, slab_resident + s.chunks.metadata_bytes);
    out->large_overhead_bytes = beyond(s.large.resident, s.large.metadata + out->large_bytes);
    out->image_bytes = image_bytes;
    out->huge_bytes = s.chunks.huge_chunks * CHUNK_BYTES;
    out->slabs = s.slabs.slabs;
    out->slabs_empty = s.chunks.slabs_empty;
    out->chunks = s.chunks.chunks;
    out->rss_bytes = kv_mem_rss_bytes();
    out->accounted_bytes = s.used_total + out->cached_bytes + out->slab_free_bytes +
                           out->slab_unused_bytes + out->metadata_bytes +
                           out->large_overhead_bytes + out->image_bytes;
}

void kv_mem_system_read(struct kv_mem_system *out)
{
    KV_ASSERT(out != NULL);
    struct sources s;
    sources_read(&s);
    uint64_t slab_resident = s.slabs.resident_bytes + s.chunks.unused_bytes;
    uint64_t small = beyond(s.slabs.live_bytes, s.cached_bytes);
    *out = (struct kv_mem_system){
        .allocated = small + s.large.allocated,
        .active = s.slabs.resident_bytes + s.large.active,
        .resident = slab_resident + s.chunks.metadata_bytes + s.stack_bytes + s.large.resident,
        .retained = beyond(s.chunks.chunks * CHUNK_BYTES, slab_resident + s.chunks.metadata_bytes) +
                    s.large.retained,
        .metadata = s.chunks.metadata_bytes + s.stack_bytes + s.large.metadata,
        .rss = kv_mem_rss_bytes(),
    };
    if (s.large.resident == 0) { /* the C library tells nothing */
        out->allocated = KV_MAX(out->allocated, s.used_total);
        out->active = KV_MAX(out->active, out->allocated);
        out->resident = out->rss;
    }
}
