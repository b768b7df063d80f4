/* Searches for places: GEOSEARCH, GEOSEARCHSTORE, GEORADIUS, GEORADIUSBYMEMBER, their _RO forms.
 *
 * A shape has a cover of at most nine ranges of scores (value/geo_shape.h). Each is a span of ranks
 * of the sorted set, whose members are asked one by one whether they are inside. Nothing else of
 * the set is read.
 *
 *   all        what is found, in the order of the cover, then sorted if that is asked for
 *   COUNT      a heap of the best so far, the worst of them on top: memory for those alone. Without
 *              an order it means the nearest; then what is farther than the worst is sieved out
 *   COUNT ANY  the first that are found; an order sorts those
 *
 * Invariants
 *   - Of places equally far the one that was found first comes first, so a reply is certain.
 *   - Options are read before the set is searched, and in Redis' order: the first error is the same
 *     one. The set is looked up before them, since FROMMEMBER asks it.
 *   - Of several STORE and STOREDIST the last counts. kv_geo_store_key and kv_geo_storedist_key
 *     tell the engine, by the same rule, which keys to lock.
 *
 * Change stream: goes as it came; the arithmetic has one result.
 *
 * Threads: under the locks of all keys' shards.
 */
#include "cmd/functions.h"
#include "cmd/geo_priv.h"
#include "cmd/helper.h"
#include "value/geo_shape.h"
#include <stdlib.h>

#define FIRST_CAPACITY 16u
#define STORE_WORDS_FROM                                                                           \
    5 /* the first argument of GEORADIUS and BYMEMBER that may be an option                        \
       */

enum order { ORDER_NONE, ORDER_ASC, ORDER_DESC };
enum from { FROM_NOTHING, FROM_MEMBER, FROM_PLACE };

/* What reading an option gives, besides how many words it has. */
#define NO_OPTION 0
#define FAILED (-1) /* an error is replied */

struct found {
    struct kv_slice name;
    double score, distance_m;
    uint64_t number; /* in the order of finding */
};

struct search {
    struct kv_call *call;
    struct kv_ranking set;
    struct kv_geo_shape shape;
    struct kv_geo_sieve sieve; /* what is too far anyway */
    double unit_m;
    bool modern, stores; /* GEOSEARCH and GEOSEARCHSTORE; one of the storing commands */
    enum from from;      /* whose centre it is; of GEOSEARCH */
    bool by;             /* the shape is known */
    bool any, with_distance, with_hash, with_place;
    enum order order;
    uint64_t limit;             /* UINT64_MAX: none */
    bool store, store_distance; /* a key is stored, distances are its scores */
    bool store_key_given;       /* STORE was among the words */
    struct found *found;
    size_t found_count, capacity;
    uint64_t seen; /* places inside */
};

/* --- keys --- */

/* The argument behind the last of a word, among the options of GEORADIUS; 0: it is not there. */
static int store_argument(const struct kv_slice *argv, int argc, const char *word)
{
    int found = 0;
    for (int arg = STORE_WORDS_FROM; arg < argc - 1; arg++) {
        if (!kv_slice_is(argv[arg], "store") && !kv_slice_is(argv[arg], "storedist"))
            continue;
        if (kv_slice_is(argv[arg], word))
            found = arg + 1;
        arg++;
    }
    return found;
}

int kv_geo_store_key(const struct kv_slice *argv, int argc)
{
    return store_argument(argv, argc, "store");
}

int kv_geo_storedist_key(const struct kv_slice *argv, int argc)
{
    return store_argument(argv, argc, "storedist");
}

/* Which of the call's keys is stored. */
static int store_key(const struct search *s)
{
    if (s->modern || !s->store_distance)
        return s->modern ? 0 : 1;
    return s->store_key_given ? 2 : 1;
}

/* --- arguments --- */

/* A length that is not negative; `what` is its name in errors. */
static bool length_at(struct search *s, int arg, const char *what, double *value)
{
    if (kv_double_parse(s->call->argv[arg], value))
        return true;
    kv_call_errorf(s->call, "ERR need numeric %s", what);
    return false;
}

static bool circle_at(struct search *s, int arg)
{
    double radius;
    if (!length_at(s, arg, "radius", &radius))
        return false;
    if (radius < 0) {
        kv_call_error(s->call, "ERR radius cannot be negative");
        return false;
    }
    if (!kv_geo_unit_at(s->call, arg + 1, &s->unit_m))
        return false;
    s->shape.kind = KV_GEO_CIRCLE;
    s->shape.radius_m = radius * s->unit_m;
    s->by = true;
    return true;
}

static bool box_at(struct search *s, int arg)
{
    double width, height;
    if (!length_at(s, arg, "width", &width) || !length_at(s, arg + 1, "height", &height))
        return false;
    if (width < 0 || height < 0) {
        kv_call_error(s->call, "ERR height or width cannot be negative");
        return false;
    }
    if (!kv_geo_unit_at(s->call, arg + 2, &s->unit_m))
        return false;
    s->shape.kind = KV_GEO_BOX;
    s->shape.width_m = width * s->unit_m;
    s->shape.height_m = height * s->unit_m;
    s->by = true;
    return true;
}

/* Reads the vertices from the argument with their number on. */
static bool polygon_at(struct search *s, int arg)
{
    struct kv_call *call = s->call;
    int64_t count;
    if (!kv_call_int(call, arg, &count))
        return false;
    if (count < 3) {
        kv_call_error(call, "ERR BYPOLYGON needs at least 3 vertices");
        return false;
    }
    if (count > (call->argc - arg - 1) / 2) {
        kv_call_syntax_error(call);
        return false;
    }
    struct kv_geo_place *vertices =
        kv_arena_try_alloc(call->arena, (size_t)count * sizeof(*vertices));
    if (vertices == NULL) {
        kv_call_no_memory(call);
        return false;
    }
    for (int64_t i = 0; i < count; i++)
        if (!kv_geo_place_at(call, arg + 1 + 2 * (int)i, &vertices[i]))
            return false;
    s->shape.kind = KV_GEO_POLYGON;
    s->shape.vertices = vertices;
    s->shape.vertex_count = (size_t)count;
    s->shape.centre = kv_geo_polygon_centre(vertices, (size_t)count);
    s->unit_m = 1;
    s->by = true;
    return true;
}

/* The centre is a member's place. Where there is no set, anything is taken: nothing is found. */
static bool member_at(struct search *s, int arg)
{
    double score;
    int64_t due;
    s->from = FROM_MEMBER;
    if (kv_ranking_count(&s->set) == 0)
        return true;
    if (!kv_ranking_find(&s->set, s->call->argv[arg], &score, &due)) {
        kv_call_error(s->call, "ERR could not decode requested zset member");
        return false;
    }
    s->shape.centre = kv_geohash_decode(score);
    return true;
}

static bool count_at(struct search *s, int arg)
{
    int64_t count;
    if (!kv_call_int(s->call, arg, &count))
        return false;
    if (count <= 0) {
        kv_call_error(s->call, "ERR COUNT must be > 0");
        return false;
    }
    s->limit = (uint64_t)count;
    return true;
}

/* Words alone; false: it is none of them. */
static bool read_word(struct search *s, int arg)
{
    const struct kv_call *call = s->call;
    if (kv_call_arg_is(call, arg, "withdist"))
        s->with_distance = true;
    else if (kv_call_arg_is(call, arg, "withhash"))
        s->with_hash = true;
    else if (kv_call_arg_is(call, arg, "withcoord"))
        s->with_place = true;
    else if (kv_call_arg_is(call, arg, "any"))
        s->any = true;
    else if (kv_call_arg_is(call, arg, "asc"))
        s->order = ORDER_ASC;
    else if (kv_call_arg_is(call, arg, "desc"))
        s->order = ORDER_DESC;
    else if (s->modern && s->stores && kv_call_arg_is(call, arg, "storedist"))
        s->store_distance = true;
    else
        return false;
    return true;
}

/* --- options --- */

/* Centre and shape of the modern commands. A word may replace an equal one, but no other. */
static int read_shape(struct search *s, int arg)
{
    struct kv_call *call = s->call;
    int left = call->argc - arg - 1;
    bool polygon = s->by && s->shape.kind == KV_GEO_POLYGON;
    if (left >= 1 && kv_call_arg_is(call, arg, "frommember") && s->from != FROM_PLACE && !polygon)
        return member_at(s, arg + 1) ? 2 : FAILED;
    if (left >= 2 && kv_call_arg_is(call, arg, "fromlonlat") && s->from != FROM_MEMBER &&
        !polygon) {
        s->from = FROM_PLACE;
        return kv_geo_place_at(call, arg + 1, &s->shape.centre) ? 3 : FAILED;
    }
    if (left >= 2 && kv_call_arg_is(call, arg, "byradius") &&
        (!s->by || s->shape.kind == KV_GEO_CIRCLE))
        return circle_at(s, arg + 1) ? 3 : FAILED;
    if (left >= 3 && kv_call_arg_is(call, arg, "bybox") && (!s->by || s->shape.kind == KV_GEO_BOX))
        return box_at(s, arg + 1) ? 4 : FAILED;
    if (left >= 1 && kv_call_arg_is(call, arg, "bypolygon") && (!s->by || polygon) &&
        s->from == FROM_NOTHING)
        return polygon_at(s, arg + 1) ? 2 + 2 * (int)s->shape.vertex_count : FAILED;
    return NO_OPTION;
}

static int read_option(struct search *s, int arg)
{
    const struct kv_call *call = s->call;
    int left = call->argc - arg - 1;
    if (read_word(s, arg))
        return 1;
    if (left >= 1 && kv_call_arg_is(call, arg, "count"))
        return count_at(s, arg + 1) ? 2 : FAILED;
    if (s->modern)
        return read_shape(s, arg);
    if (s->stores && left >= 1 && kv_call_arg_is(call, arg, "store")) {
        s->store = s->store_key_given = true;
        s->store_distance = false;
        return 2;
    }
    if (s->stores && left >= 1 && kv_call_arg_is(call, arg, "storedist")) {
        s->store = s->store_distance = true;
        return 2;
    }
    return NO_OPTION;
}

/* What goes together and what does not. */
static bool check_options(struct search *s)
{
    struct kv_call *call = s->call;
    bool polygon = s->by && s->shape.kind == KV_GEO_POLYGON;
    if (s->store && (s->with_distance || s->with_hash || s->with_place))
        kv_call_errorf(call,
                       "ERR %s is not compatible with WITHDIST, WITHHASH and WITHCOORD options",
                       s->modern ? "GEOSEARCHSTORE" : "STORE option in GEORADIUS");
    else if (s->modern && s->from == FROM_NOTHING && !polygon)
        kv_call_errorf(call,
                       "ERR exactly one of FROMMEMBER or FROMLONLAT can be specified for %.*s",
                       KV_CMD_QUOTE(call->argv[0]));
    else if (s->modern && !s->by)
        kv_call_errorf(call, "ERR exactly one of BYRADIUS and BYBOX can be specified for %.*s",
                       KV_CMD_QUOTE(call->argv[0]));
    else if (s->any && s->limit == UINT64_MAX)
        kv_call_error(call, "ERR the ANY argument requires COUNT argument");
    else
        return true;
    return false;
}

static bool read_options(struct search *s, int arg)
{
    while (arg < s->call->argc) {
        int words = read_option(s, arg);
        if (words == NO_OPTION)
            kv_call_syntax_error(s->call);
        if (words <= 0)
            return false;
        arg += words;
    }
    if (!check_options(s))
        return false;
    if (s->limit != UINT64_MAX && s->order == ORDER_NONE && !s->any)
        s->order = ORDER_ASC;
    return true;
}

/* --- finding --- */

/* Below zero when `a` comes before `b`. */
static int compare(enum order order, const struct found *a, const struct found *b)
{
    const struct found *first = order == ORDER_DESC ? b : a, *second = first == a ? b : a;
    if (order != ORDER_NONE && first->distance_m != second->distance_m)
        return first->distance_m < second->distance_m ? -1 : 1;
    return a->number < b->number ? -1 : a->number > b->number;
}

static int compare_near(const void *a, const void *b)
{
    return compare(ORDER_ASC, a, b);
}

static int compare_far(const void *a, const void *b)
{
    return compare(ORDER_DESC, a, b);
}

/* Moves the element at `at` of the heap up or down to where it belongs; the last is on top. */
static void heap_up(struct search *s, size_t at)
{
    struct found moving = s->found[at];
    for (size_t above; at > 0 && compare(s->order, &s->found[above = (at - 1) / 2], &moving) < 0;
         at = above)
        s->found[at] = s->found[above];
    s->found[at] = moving;
}

static void heap_down(struct search *s)
{
    struct found moving = s->found[0];
    size_t at = 0, below;
    while ((below = 2 * at + 1) < s->found_count) {
        if (below + 1 < s->found_count &&
            compare(s->order, &s->found[below + 1], &s->found[below]) > 0)
            below++;
        if (compare(s->order, &s->found[below], &moving) < 0)
            break;
        s->found[at] = s->found[below];
        at = below;
    }
    s->found[at] = moving;
}

static bool grow(struct search *s)
{
    size_t capacity = s->capacity == 0 ? FIRST_CAPACITY : 2 * s->capacity;
    if (capacity > s->limit)
        capacity = s->limit;
    struct found *found = kv_arena_try_alloc(s->call->arena, capacity * sizeof(*found));
    if (found == NULL)
        return false;
    if (s->found_count != 0)
        memcpy(found, s->found, s->found_count * sizeof(*found));
    s->found = found;
    s->capacity = capacity;
    return true;
}

/* Once there are as many as COUNT wants, what is farther than the worst of them does not matter. */
static void narrow(struct search *s)
{
    if (s->order == ORDER_ASC)
        kv_geo_sieve_init(&s->sieve, s->shape.centre, s->found[0].distance_m);
}

/* Takes a place that is inside. False: memory was short. */
static bool take(struct search *s, const struct kv_ranked *m, double score, double distance_m)
{
    struct found f = {.score = score, .distance_m = distance_m, .number = s->seen++};
    bool full = s->found_count == s->limit;
    KV_DASSERT(!full || s->order != ORDER_NONE);
    if (full && compare(s->order, &f, &s->found[0]) > 0)
        return true;
    f.name = kv_zset_stable_name(s->call, m);
    if (f.name.ptr == NULL)
        return false;
    if (full) {
        s->found[0] = f;
        heap_down(s);
        narrow(s);
        return true;
    }
    if (s->found_count == s->capacity && !grow(s))
        return false;
    s->found[s->found_count++] = f;
    if (s->limit != UINT64_MAX && !s->any)
        heap_up(s, s->found_count - 1);
    return true;
}

/* Asks the members of a range. False: memory was short. */
static bool search_range(struct search *s, const struct kv_geo_range *range)
{
    struct kv_score_range scores = {.min = range->min, .max = range->end, .max_open = true};
    struct kv_span span = kv_ranking_by_score(&s->set, &scores);
    struct kv_ranking_walk w;
    struct kv_ranked m;
    double distance_m;
    if (span.count == 0)
        return true;
    kv_ranking_walk(&s->set, span.first, false, &w);
    for (uint64_t i = 0; i < span.count && !(s->any && s->found_count == s->limit); i++) {
        bool more = kv_ranking_next(&w, &m);
        KV_ASSERT(more);
        double score = kv_ranked_score(&m);
        struct kv_geo_place place = kv_geohash_decode(score);
        if (kv_geo_sieve_rejects(&s->sieve, place))
            continue;
        if (kv_geo_shape_has(&s->shape, place, &distance_m) && !take(s, &m, score, distance_m))
            return false;
    }
    return true;
}

static bool find(struct search *s)
{
    struct kv_geo_range ranges[KV_GEO_COVER_MAX];
    size_t count = kv_geo_shape_cover(&s->shape, ranges);
    kv_geo_sieve_init(&s->sieve, s->shape.centre,
                      s->shape.kind == KV_GEO_CIRCLE ? s->shape.radius_m : INFINITY);
    for (size_t i = 0; i < count; i++) {
        if (!search_range(s, &ranges[i])) {
            kv_call_no_memory(s->call);
            return false;
        }
    }
    if (s->order != ORDER_NONE && s->found_count > 1)
        qsort(s->found, s->found_count, sizeof(*s->found),
              s->order == ORDER_ASC ? compare_near : compare_far);
    return true;
}

/* --- results --- */

static void reply_found(const struct search *s)
{
    struct kv_call *call = s->call;
    size_t parts = 1 + s->with_distance + s->with_hash + s->with_place;
    kv_reply_array(call->out, s->found_count);
    for (size_t i = 0; i < s->found_count; i++) {
        const struct found *f = &s->found[i];
        if (parts > 1)
            kv_reply_array(call->out, parts);
        kv_reply_slice(call->out, f->name);
        if (s->with_distance)
            kv_geo_reply_distance(call, f->distance_m / s->unit_m);
        if (s->with_hash)
            kv_reply_int(call->out, (int64_t)f->score);
        if (s->with_place)
            kv_geo_reply_place(call, kv_geohash_decode(f->score));
    }
}

static int compare_pairs(const void *a, const void *b)
{
    return kv_zset_pair_compare(a, b);
}

static void store_found(struct search *s)
{
    struct kv_call *call = s->call;
    struct kv_zset_pair *pairs = kv_arena_try_alloc(call->arena, s->found_count * sizeof(*pairs));
    if (pairs == NULL) {
        kv_call_no_memory(call);
        return;
    }
    for (size_t i = 0; i < s->found_count; i++) {
        const struct found *f = &s->found[i];
        pairs[i] = (struct kv_zset_pair){f->name,
                                         s->store_distance ? f->distance_m / s->unit_m : f->score};
    }
    if (s->found_count > 1)
        qsort(pairs, s->found_count, sizeof(*pairs), compare_pairs);
    if (kv_zset_store(call, store_key(s), pairs, s->found_count,
                      s->modern ? "geosearchstore" : "georadiusstore"))
        kv_reply_int(call->out, (int64_t)s->found_count);
}

/* Reads the options from `arg` on, searches and answers. */
static void run(struct search *s, int arg)
{
    if (!read_options(s, arg))
        return;
    if (kv_ranking_count(&s->set) != 0 && !find(s))
        return;
    if (s->store)
        store_found(s);
    else
        reply_found(s);
}

/* --- commands --- */

/* GEOSEARCH key [FROMMEMBER member | FROMLONLAT longitude latitude] BYRADIUS radius unit |
 * BYBOX width height unit | BYPOLYGON num-vertices longitude latitude [longitude latitude ...]
 * [ASC | DESC] [COUNT count [ANY]] [WITHCOORD] [WITHDIST] [WITHHASH] */
void kv_cmd_geosearch(struct kv_call *call)
{
    struct search s = {.call = call, .modern = true, .limit = UINT64_MAX};
    if (kv_zset_read(call, 0, &s.set))
        run(&s, 2);
}

/* GEOSEARCHSTORE destination source, then as GEOSEARCH with STOREDIST and without WITH... */
void kv_cmd_geosearchstore(struct kv_call *call)
{
    struct search s = {
        .call = call, .modern = true, .stores = true, .store = true, .limit = UINT64_MAX};
    if (kv_zset_read(call, 1, &s.set))
        run(&s, 3);
}

/* key longitude latitude radius unit [WITHCOORD] [WITHDIST] [WITHHASH] [COUNT count [ANY]]
 * [ASC | DESC] [STORE key | STOREDIST key] */
static void georadius(struct kv_call *call, bool stores)
{
    struct search s = {.call = call, .stores = stores, .limit = UINT64_MAX};
    if (kv_zset_read(call, 0, &s.set) && kv_geo_place_at(call, 2, &s.shape.centre) &&
        circle_at(&s, 4))
        run(&s, 6);
}

/* Likewise with a member for the place. Without a set the radius is not looked at. */
static void georadiusbymember(struct kv_call *call, bool stores)
{
    struct search s = {.call = call, .stores = stores, .limit = UINT64_MAX};
    if (!kv_zset_read(call, 0, &s.set))
        return;
    if (kv_ranking_count(&s.set) == 0 || (member_at(&s, 2) && circle_at(&s, 3)))
        run(&s, 5);
}

void kv_cmd_georadius(struct kv_call *call)
{
    georadius(call, true);
}

void kv_cmd_georadius_ro(struct kv_call *call)
{
    georadius(call, false);
}

void kv_cmd_georadiusbymember(struct kv_call *call)
{
    georadiusbymember(call, true);
}

void kv_cmd_georadiusbymember_ro(struct kv_call *call)
{
    georadiusbymember(call, false);
}
