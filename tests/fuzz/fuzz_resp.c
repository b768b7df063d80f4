/* The request stream: whole, byte by byte and cut at random places, the same bytes give the same
 * replies and end the connection in the same way. Nothing is left behind: keyspace and client give
 * all their memory back.
 *
 * The engine is a library with the tiny table. The first byte of an input chooses whether the
 * client is authenticated; what follows is the stream. A stream is shorter than the limit of a
 * length line, since an endless line is refused once the limit has passed, which depends on the
 * cuts. */
#include "library.h"
#include "tiny_table.h"

#define STREAM_MAX (60 * 1024)
#define BULK_MAX (256 * 1024)
#define STEPS_MAX 4096 /* a longer stream comes in pieces of some bytes instead of one */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct kv_engine *engine;

struct outcome {
    struct library_bytes reply;
    uint32_t flags; /* of closing */
};

static void start(void)
{
    struct kv_options options;
    kv_mem_init();
    kv_clock_init();
    kv_log_set_level(KV_LOG_NOTHING);
    kv_options_default(&options);
    options.proto_max_bulk_len = BULK_MAX;
    options.command_log[KV_COMMAND_LOG_SLOW].limit = -1;
    options.requirepass = "secret"; /* clients start as strangers */
    engine = kv_engine_create(&options, &tiny_table);
    kv_worker_attach(kv_engine_worker(engine, 0));
}

/* Feeds the stream in pieces of `step` bytes; 0: of random lengths. */
static void feed(const char *stream, size_t len, size_t step, bool known, struct outcome *o)
{
    struct kv_random r;
    struct kv_client *c = kv_client_create_virtual(kv_engine_worker(engine, 0));
    kv_random_init(&r, len);
    if (known)
        c->flags |= KV_CLIENT_AUTHENTICATED;
    *o = (struct outcome){0};
    for (size_t pos = 0; pos < len;) {
        size_t n = step != 0 ? step : (size_t)kv_random_below(&r, 1u << kv_random_below(&r, 14));
        n = KV_MIN(n, len - pos);
        /* A block of its own, so that a read behind the piece is seen. */
        char *piece = malloc(n > 0 ? n : 1);
        KV_ASSERT(piece != NULL);
        memcpy(piece, stream + pos, n);
        kv_client_feed(c, piece, n);
        free(piece);
        library_take(c, &o->reply);
        pos += n;
    }
    o->flags = c->flags & (KV_CLIENT_CLOSE_AFTER | KV_CLIENT_CLOSE_NOW);
    kv_client_destroy(c);
    library_flush(engine);
}

static void compare(const struct outcome *a, const struct outcome *b)
{
    KV_ASSERT(a->flags == b->flags);
    KV_ASSERT(a->reply.len == b->reply.len);
    KV_ASSERT(a->reply.len == 0 || memcmp(a->reply.bytes, b->reply.bytes, a->reply.len) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (engine == NULL)
        start();
    if (size < 1 || size - 1 > STREAM_MAX)
        return 0;
    bool known = (data[0] & 1) != 0;
    const char *stream = (const char *)data + 1;
    struct outcome whole, bytes, cut;
    int64_t client_before = kv_mem_used(KV_MEM_CLIENT) + kv_mem_used(KV_MEM_CLIENT_INPUT);
    feed(stream, size - 1, size, known, &whole);
    feed(stream, size - 1, 1 + size / STEPS_MAX, known, &bytes);
    feed(stream, size - 1, 0, known, &cut);
    compare(&whole, &bytes);
    compare(&whole, &cut);
    library_release(&whole.reply);
    library_release(&bytes.reply);
    library_release(&cut.reply);
    KV_ASSERT(kv_mem_used_dataset() == 0);
    KV_ASSERT(kv_mem_used(KV_MEM_CLIENT) + kv_mem_used(KV_MEM_CLIENT_INPUT) == client_before);
    return 0;
}
