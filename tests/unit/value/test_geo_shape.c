/* value/geo_shape.h: what is inside lies in the cover, ranges do not overlap, polygons. */
#include "base/random.h"
#include "unit.h"
#include "value/geo_shape.h"

static double random_between(struct kv_random *r, double low, double high)
{
    return low + (high - low) * (double)(kv_random_next(r) >> 11) / 0x1p53;
}

static struct kv_geo_place random_place(struct kv_random *r, double latitude_max)
{
    return (struct kv_geo_place){random_between(r, -KV_GEO_LONGITUDE_MAX, KV_GEO_LONGITUDE_MAX),
                                 random_between(r, -latitude_max, latitude_max)};
}

/* A place within some degrees of another; longitudes go round. */
static struct kv_geo_place place_near(struct kv_random *r, struct kv_geo_place p, double degrees)
{
    double longitude = p.longitude + random_between(r, -3 * degrees, 3 * degrees);
    double latitude = p.latitude + random_between(r, -degrees, degrees);
    while (longitude >= 180)
        longitude -= 360;
    while (longitude < -180)
        longitude += 360;
    return (struct kv_geo_place){
        longitude, fmax(-KV_GEO_LATITUDE_MAX, fmin(KV_GEO_LATITUDE_MAX - 1e-6, latitude))};
}

static bool covered(const struct kv_geo_range *ranges, size_t count, double score)
{
    for (size_t i = 0; i < count; i++)
        if (score >= ranges[i].min && score < ranges[i].end)
            return true;
    return false;
}

static void check_ranges(const struct kv_geo_range *ranges, size_t count)
{
    ck_assert_uint_ge(count, 1);
    ck_assert_uint_le(count, KV_GEO_COVER_MAX);
    for (size_t i = 0; i < count; i++) {
        ck_assert_double_lt(ranges[i].min, ranges[i].end);
        for (size_t j = 0; j < i; j++)
            ck_assert(ranges[i].end <= ranges[j].min || ranges[i].min >= ranges[j].end);
    }
}

/* Places around a shape: those inside have their score in the cover. Returns how many are inside.
 */
static int check_cover(struct kv_random *r, const struct kv_geo_shape *s, double degrees)
{
    struct kv_geo_range ranges[KV_GEO_COVER_MAX];
    size_t count = kv_geo_shape_cover(s, ranges);
    int inside = 0;
    double distance_m;
    check_ranges(ranges, count);
    for (int i = 0; i < 50; i++) {
        double score = kv_geohash_encode(place_near(r, s->centre, degrees));
        if (kv_geo_shape_has(s, kv_geohash_decode(score), &distance_m)) {
            ck_assert(covered(ranges, count, score));
            inside++;
        }
    }
    return inside;
}

START_TEST(what_is_inside_a_circle_or_box_is_in_its_cover)
{
    struct kv_random r;
    kv_random_init(&r, unit_seed("cover"));
    int inside = 0;
    for (int i = 0; i < UNIT_ROUNDS(20000); i++) {
        struct kv_geo_shape s = {.centre = random_place(&r, 60)};
        double degrees = 10 * pow(2, -random_between(&r, 0, 20)), metres = degrees * 111226;
        s.kind = i % 2 ? KV_GEO_CIRCLE : KV_GEO_BOX;
        s.radius_m = metres;
        s.width_m = metres * random_between(&r, 0, 2);
        s.height_m = metres * random_between(&r, 0, 2);
        inside += check_cover(&r, &s, degrees);
    }
    ck_assert_int_gt(inside, UNIT_ROUNDS(20000));
}
END_TEST

START_TEST(covers_of_any_size_do_not_overlap)
{
    static const double reaches[] = {0,   1e-300, 1e-5, 1,    1000, 1e5,     1e6,
                                     5e6, 1e7,    2e7,  21e6, 1e30, INFINITY};
    struct kv_random r;
    struct kv_geo_range ranges[KV_GEO_COVER_MAX];
    kv_random_init(&r, unit_seed("sizes"));
    for (size_t i = 0; i < KV_ARRAY_LEN(reaches); i++) {
        for (int j = 0; j < UNIT_ROUNDS(2000); j++) {
            struct kv_geo_shape s = {.centre = random_place(&r, KV_GEO_LATITUDE_MAX),
                                     .radius_m = reaches[i],
                                     .width_m = reaches[i],
                                     .height_m = reaches[(i + (size_t)j) % KV_ARRAY_LEN(reaches)]};
            s.centre.longitude = j % 10 == 0 ? 180 : s.centre.longitude;
            s.centre.latitude = j % 10 == 1 ? KV_GEO_LATITUDE_MAX : s.centre.latitude;
            s.kind = j % 2 ? KV_GEO_CIRCLE : KV_GEO_BOX;
            check_ranges(ranges, kv_geo_shape_cover(&s, ranges));
        }
    }
}
END_TEST

START_TEST(a_circle_without_radius_holds_its_centre)
{
    double distance_m, score = kv_geohash_encode((struct kv_geo_place){2.35, 48.86});
    struct kv_geo_shape s = {.kind = KV_GEO_CIRCLE, .centre = kv_geohash_decode(score)};
    struct kv_geo_range ranges[KV_GEO_COVER_MAX];
    ck_assert(kv_geo_shape_has(&s, kv_geohash_decode(score), &distance_m));
    ck_assert_double_eq(distance_m, 0);
    ck_assert(covered(ranges, kv_geo_shape_cover(&s, ranges), score));
    ck_assert(!kv_geo_shape_has(&s, kv_geohash_decode(score + 1), &distance_m));
}
END_TEST

START_TEST(a_sieve_rejects_nothing_inside_and_most_outside)
{
    struct kv_random r;
    kv_random_init(&r, unit_seed("sieve"));
    int rejected = 0, outside = 0;
    for (int i = 0; i < UNIT_ROUNDS(300000); i++) {
        struct kv_geo_place centre = random_place(&r, KV_GEO_LATITUDE_MAX);
        double degrees = 80 * pow(2, -random_between(&r, 0, 30));
        struct kv_geo_place place =
            i % 3 == 0 ? random_place(&r, KV_GEO_LATITUDE_MAX) : place_near(&r, centre, degrees);
        double distance_m = kv_geo_distance(centre, place);
        struct kv_geo_sieve sieve;
        kv_geo_sieve_init(&sieve, centre, distance_m);
        ck_assert(!kv_geo_sieve_rejects(&sieve, place));
        kv_geo_sieve_init(&sieve, centre, INFINITY);
        ck_assert(!kv_geo_sieve_rejects(&sieve, place));
        kv_geo_sieve_init(&sieve, centre, distance_m / 2);
        rejected += kv_geo_sieve_rejects(&sieve, place);
        outside++;
    }
    ck_assert_int_gt(rejected, outside / 2);
}
END_TEST

/* The easternmost place of a circle is on the bound itself. */
START_TEST(a_sieve_holds_the_places_where_meridians_touch_the_circle)
{
    struct kv_random r;
    kv_random_init(&r, unit_seed("touching"));
    for (int i = 0; i < UNIT_ROUNDS(100000); i++) {
        double latitude = random_between(&r, -80, 80), reach = random_between(&r, 0, 0.15);
        double phi = kv_geo_radians(latitude);
        struct kv_geo_place centre = {random_between(&r, -90, 90), latitude};
        struct kv_geo_place east = {centre.longitude + kv_geo_degrees(asin(sin(reach) / cos(phi))),
                                    kv_geo_degrees(asin(sin(phi) / cos(reach)))};
        struct kv_geo_sieve sieve;
        kv_geo_sieve_init(&sieve, centre, kv_geo_distance(centre, east));
        ck_assert(!kv_geo_sieve_rejects(&sieve, east));
    }
}
END_TEST

/* Left of all edges, that go round counterclockwise. */
static bool convex_has(const struct kv_geo_place *v, size_t count, struct kv_geo_place p)
{
    for (size_t i = 0; i < count; i++) {
        struct kv_geo_place a = v[i], b = v[(i + 1) % count];
        if ((b.longitude - a.longitude) * (p.latitude - a.latitude) <
            (b.latitude - a.latitude) * (p.longitude - a.longitude))
            return false;
    }
    return true;
}

START_TEST(what_is_inside_a_polygon_is_in_its_cover)
{
    struct kv_random r;
    struct kv_geo_place v[8];
    kv_random_init(&r, unit_seed("polygon"));
    int inside = 0;
    for (int i = 0; i < UNIT_ROUNDS(20000); i++) {
        size_t count = 3 + kv_random_below(&r, 6);
        double turn = random_between(&r, 0, 1), size = 80 * pow(2, -random_between(&r, 0, 20));
        struct kv_geo_place middle = {random_between(&r, -180 + size, 180 - size),
                                      random_between(&r, -85 + size, 85 - size)};
        /* On an ellipse: convex, counterclockwise. */
        for (size_t j = 0; j < count; j++) {
            double angle = 2 * M_PI * ((double)j + turn) / (double)count;
            v[j] = (struct kv_geo_place){middle.longitude + size * cos(angle),
                                         middle.latitude + size / 2 * sin(angle)};
        }
        struct kv_geo_shape s = {.kind = KV_GEO_POLYGON, .vertices = v, .vertex_count = count};
        s.centre = kv_geo_polygon_centre(v, count);
        inside += check_cover(&r, &s, size / 2);
        for (int j = 0; j < 20; j++) {
            double distance_m;
            struct kv_geo_place p = {middle.longitude + random_between(&r, -size, size),
                                     middle.latitude + random_between(&r, -size, size) / 2};
            if (kv_geo_place_valid(p))
                ck_assert_int_eq(kv_geo_shape_has(&s, p, &distance_m), convex_has(v, count, p));
        }
    }
    ck_assert_int_gt(inside, UNIT_ROUNDS(20000));
}
END_TEST

START_TEST(a_polygon_may_have_dents_and_go_round_either_way)
{
    static const struct kv_geo_place u[] = {{0, 0},   {30, 0},  {30, 30}, {20, 30},
                                            {20, 10}, {10, 10}, {10, 30}, {0, 30}};
    struct kv_geo_place back[KV_ARRAY_LEN(u)];
    for (size_t i = 0; i < KV_ARRAY_LEN(u); i++)
        back[i] = u[KV_ARRAY_LEN(u) - 1 - i];
    struct kv_geo_shape shapes[] = {
        {.kind = KV_GEO_POLYGON, .vertices = u, .vertex_count = KV_ARRAY_LEN(u)},
        {.kind = KV_GEO_POLYGON, .vertices = back, .vertex_count = KV_ARRAY_LEN(u)}};
    for (size_t i = 0; i < 2; i++) {
        double distance_m;
        ck_assert(kv_geo_shape_has(&shapes[i], (struct kv_geo_place){5, 25}, &distance_m));
        ck_assert(kv_geo_shape_has(&shapes[i], (struct kv_geo_place){25, 25}, &distance_m));
        ck_assert(kv_geo_shape_has(&shapes[i], (struct kv_geo_place){15, 5}, &distance_m));
        ck_assert(!kv_geo_shape_has(&shapes[i], (struct kv_geo_place){15, 25}, &distance_m));
        ck_assert(!kv_geo_shape_has(&shapes[i], (struct kv_geo_place){35, 5}, &distance_m));
        ck_assert(!kv_geo_shape_has(&shapes[i], (struct kv_geo_place){5, -1}, &distance_m));
    }
}
END_TEST

int main(void)
{
    struct unit u;
    unit_begin(&u, "geo_shape");
    unit_add(&u, what_is_inside_a_circle_or_box_is_in_its_cover);
    unit_add(&u, covers_of_any_size_do_not_overlap);
    unit_add(&u, a_circle_without_radius_holds_its_centre);
    unit_add(&u, a_sieve_rejects_nothing_inside_and_most_outside);
    unit_add(&u, a_sieve_holds_the_places_where_meridians_touch_the_circle);
    unit_add(&u, what_is_inside_a_polygon_is_in_its_cover);
    unit_add(&u, a_polygon_may_have_dents_and_go_round_either_way);
    return unit_run(&u);
}
