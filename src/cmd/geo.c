/* Places of members: GEOADD, GEOPOS, GEODIST, GEOHASH, and what the searches (geo_search.c) share.
 *
 * Data layout: a sorted set whose scores are geohashes of 52 bits (value/geohash.h), nothing else.
 * So ZREM removes a place, ZRANGE lists them, and a member with any other score has some place too.
 *
 * Invariants
 *   - All places of a GEOADD are checked before the key is looked up: a bad one changes nothing.
 *   - Coordinates come back as the middle of the cell that they were put into, with 17 digits after
 *     the point, not as they were given.
 *
 * Change stream: GEOADD goes as it came; its arithmetic is that of IEEE 754 and has one result.
 *
 * Threads: under the lock of the key's shard.
 */
#include "cmd/functions.h"
#include "cmd/geo_priv.h"
#include <stdio.h>

/* --- shared --- */

bool kv_geo_place_at(struct kv_call *call, int arg, struct kv_geo_place *place)
{
    if (!kv_double_parse(call->argv[arg], &place->longitude) ||
        !kv_double_parse(call->argv[arg + 1], &place->latitude)) {
        kv_call_not_float(call);
        return false;
    }
    if (kv_geo_place_valid(*place))
        return true;
    kv_call_errorf(call, "ERR invalid longitude,latitude pair %f,%f", place->longitude,
                   place->latitude);
    return false;
}

bool kv_geo_unit_at(struct kv_call *call, int arg, double *metres)
{
    static const struct {
        const char *word;
        double metres;
    } units[] = {{"m", 1}, {"km", 1000}, {"ft", 0.3048}, {"mi", 1609.34}};
    for (size_t i = 0; i < KV_ARRAY_LEN(units); i++) {
        if (kv_call_arg_is(call, arg, units[i].word)) {
            *metres = units[i].metres;
            return true;
        }
    }
    kv_call_error(call, "ERR unsupported unit provided. please use M, KM, FT, MI");
    return false;
}

void kv_geo_reply_distance(struct kv_call *call, double distance)
{
    char text[2 * KV_INT_TEXT_MAX];
    /* The product is rounded as well, so that a five may go up or down: as Redis prints it. */
    long long parts = llrint(distance * 10000);
    KV_DASSERT(parts >= 0);
    int len = snprintf(text, sizeof(text), "%lld.%04lld", parts / 10000, parts % 10000);
    KV_ASSERT(len > 0 && (size_t)len < sizeof(text));
    kv_reply_bulk(call->out, text, (size_t)len);
}

static void reply_degrees(struct kv_call *call, double degrees)
{
    char text[KV_LDOUBLE_TEXT_MAX];
    size_t len = kv_ldouble_print(degrees, text);
    if (call->out->resp == 2) {
        kv_reply_bulk(call->out, text, len);
        return;
    }
    KV_REPLY_RAW(call->out, ",");
    kv_reply_raw(call->out, text, len);
    KV_REPLY_RAW(call->out, "\r\n");
}

void kv_geo_reply_place(struct kv_call *call, struct kv_geo_place place)
{
    kv_reply_array(call->out, 2);
    reply_degrees(call, place.longitude);
    reply_degrees(call, place.latitude);
}

/* --- adding --- */

/* Reads the option words from argument 2 on; *arg is then the first longitude. */
static void geoadd_options(const struct kv_call *call, uint32_t *flags, bool *changed, int *arg)
{
    for (*arg = 2; *arg < call->argc; ++*arg) {
        if (kv_call_arg_is(call, *arg, "nx"))
            *flags |= KV_ZADD_NX;
        else if (kv_call_arg_is(call, *arg, "xx"))
            *flags |= KV_ZADD_XX;
        else if (kv_call_arg_is(call, *arg, "ch"))
            *changed = true;
        else
            return;
    }
}

/* The members with their scores; NULL: an error is replied. */
static struct kv_zset_pair *geoadd_pairs(struct kv_call *call, int arg, size_t count)
{
    struct kv_zset_pair *pairs = kv_arena_try_alloc(call->arena, count * sizeof(*pairs));
    struct kv_geo_place place;
    if (pairs == NULL) {
        kv_call_no_memory(call);
        return NULL;
    }
    for (size_t i = 0; i < count; i++, arg += 3) {
        if (!kv_geo_place_at(call, arg, &place))
            return NULL;
        pairs[i] = (struct kv_zset_pair){call->argv[arg + 2], kv_geohash_encode(place)};
    }
    return pairs;
}

/* GEOADD key [NX | XX] [CH] longitude latitude member [longitude latitude member ...] */
void kv_cmd_geoadd(struct kv_call *call)
{
    const struct kv_key *k = &call->keys[0];
    struct kv_zadd_result result;
    struct kv_entry *e;
    struct kv_ranking r;
    uint32_t flags = 0;
    bool changed = false;
    int arg;
    geoadd_options(call, &flags, &changed, &arg);
    if (arg == call->argc || (call->argc - arg) % 3 != 0 || flags == (KV_ZADD_NX | KV_ZADD_XX)) {
        kv_call_syntax_error(call);
        return;
    }
    size_t count = (size_t)(call->argc - arg) / 3;
    struct kv_zset_pair *pairs = geoadd_pairs(call, arg, count);
    if (pairs == NULL || !kv_zset_write(call, 0, &e, &r))
        return;
    enum kv_err err =
        kv_store_zset_add(&call->view, k, &e, pairs, count, flags, call->arena, &result);
    if (err != KV_OK) {
        kv_call_failed(call, err);
        return;
    }
    if (result.added + result.updated != 0)
        kv_store_changed(&call->view, k, KV_EVENT_ZSET, "zadd");
    kv_reply_int(call->out, (int64_t)(changed ? result.added + result.updated : result.added));
}

/* --- asking --- */

/* Replies something of each member's place, or null for one that is not there. */
static void reply_members(struct kv_call *call, bool hash)
{
    char text[KV_GEOHASH_TEXT_LEN];
    struct kv_ranking_cursor c = {NULL};
    struct kv_ranking r;
    double score;
    int64_t due;
    if (!kv_zset_read(call, 0, &r))
        return;
    kv_reply_array(call->out, (size_t)call->argc - 2);
    for (int i = 2; i < call->argc; i++) {
        bool found = kv_ranking_find_on(&r, &c, call->argv[i], &score, &due);
        if (found && hash) {
            kv_geohash_print(kv_geohash_decode(score), text);
            kv_reply_bulk(call->out, text, sizeof(text));
        } else if (found) {
            kv_geo_reply_place(call, kv_geohash_decode(score));
        } else if (hash) {
            kv_reply_null(call->out);
        } else {
            kv_reply_null_array(call->out);
        }
    }
}

void kv_cmd_geopos(struct kv_call *call)
{
    reply_members(call, false);
}

void kv_cmd_geohash(struct kv_call *call)
{
    reply_members(call, true);
}

/* GEODIST key member1 member2 [unit] */
void kv_cmd_geodist(struct kv_call *call)
{
    struct kv_ranking r;
    double metres = 1, a, b;
    int64_t due;
    if (call->argc > 5) {
        kv_call_syntax_error(call);
        return;
    }
    if (call->argc == 5 && !kv_geo_unit_at(call, 4, &metres))
        return;
    if (!kv_zset_read(call, 0, &r))
        return;
    if (!kv_ranking_find(&r, call->argv[2], &a, &due) ||
        !kv_ranking_find(&r, call->argv[3], &b, &due)) {
        kv_reply_null(call->out);
        return;
    }
    kv_geo_reply_distance(call,
                          kv_geo_distance(kv_geohash_decode(a), kv_geohash_decode(b)) / metres);
}
