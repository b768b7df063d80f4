/* value/geohash.h: known places, ways there and back, scores that are no place's, distances. */
#include "base/random.h"
#include "unit.h"
#include "value/geohash.h"

#define CELL_WIDTH (360.0 / (1 << KV_GEO_STEPS))

static double random_between(struct kv_random *r, double low, double high)
{
    return low + (high - low) * (double)(kv_random_next(r) >> 11) / 0x1p53;
}

static struct kv_geo_place random_place(struct kv_random *r)
{
    return (struct kv_geo_place){random_between(r, -KV_GEO_LONGITUDE_MAX, KV_GEO_LONGITUDE_MAX),
                                 random_between(r, -KV_GEO_LATITUDE_MAX, KV_GEO_LATITUDE_MAX)};
}

/* Bit by bit, as geohashes are defined. */
static uint64_t halve(struct kv_geo_place p)
{
    double west = -KV_GEO_LONGITUDE_MAX, east = KV_GEO_LONGITUDE_MAX;
    double south = -KV_GEO_LATITUDE_MAX, north = KV_GEO_LATITUDE_MAX;
    uint64_t bits = 0;
    for (unsigned i = 0; i < KV_GEO_STEPS; i++) {
        double middle = (west + east) / 2;
        bits = bits << 1 | (p.longitude >= middle);
        *(p.longitude >= middle ? &west : &east) = middle;
        middle = (south + north) / 2;
        bits = bits << 1 | (p.latitude >= middle);
        *(p.latitude >= middle ? &south : &north) = middle;
    }
    return bits;
}

static void check_text(struct kv_geo_place p, const char *expected)
{
    char text[KV_GEOHASH_TEXT_LEN];
    kv_geohash_print(p, text);
    ck_assert_mem_eq(text, expected, KV_GEOHASH_TEXT_LEN);
}

START_TEST(well_known_places_have_well_known_numbers)
{
    struct kv_geo_place palermo = {13.361389, 38.115556}, catania = {15.087269, 37.502669};
    ck_assert_double_eq(kv_geohash_encode(palermo), 3479099956230698.0);
    ck_assert_double_eq(kv_geohash_encode(catania), 3479447370796909.0);
    check_text(kv_geohash_decode(3479099956230698.0), "sqc8b49rny0");
    check_text((struct kv_geo_place){10.40744, 57.64911}, "u4pruydqqv0");
    ck_assert_double_eq_tol(kv_geo_distance(kv_geohash_decode(3479099956230698.0),
                                            kv_geohash_decode(3479447370796909.0)),
                            166274.1516, 0.0001);
}
END_TEST

START_TEST(a_score_is_halved_bit_by_bit_and_names_the_cell_of_its_place)
{
    struct kv_random r;
    kv_random_init(&r, unit_seed("geohash"));
    for (int i = 0; i < UNIT_ROUNDS(200000); i++) {
        struct kv_geo_place p = random_place(&r);
        double score = kv_geohash_encode(p);
        ck_assert_uint_eq((uint64_t)score, halve(p));
        struct kv_geo_place back = kv_geohash_decode(score);
        ck_assert_double_le(fabs(back.longitude - p.longitude), CELL_WIDTH / 2 + 1e-9);
        ck_assert_double_le(fabs(back.latitude - p.latitude), CELL_WIDTH / 4 + 1e-9);
        ck_assert_double_eq(kv_geohash_encode(back), score);
    }
}
END_TEST

START_TEST(the_corners_of_the_map_are_on_it)
{
    struct kv_geo_place southwest = {-180, -85.05112878}, northeast = {180, 85.05112878};
    ck_assert(kv_geo_place_valid(southwest));
    ck_assert(kv_geo_place_valid(northeast));
    ck_assert(!kv_geo_place_valid((struct kv_geo_place){180.0000001, 0}));
    ck_assert(!kv_geo_place_valid((struct kv_geo_place){0, -85.0511288}));
    ck_assert_double_eq(kv_geohash_encode(southwest), 0);
    ck_assert_double_eq(kv_geohash_encode(northeast), 13510798882111488.0);
    struct kv_geo_place back = kv_geohash_decode(13510798882111488.0);
    ck_assert_double_eq(back.longitude, 180);
    ck_assert_double_eq(back.latitude, 85.05112878);
}
END_TEST

START_TEST(any_score_gives_a_place)
{
    static const double scores[] = {-1,      -5,      1.5,   0x1p52, 0x1p53,   0x1p63,    0x1p64,
                                    -0x1p63, -0x1p64, 1e300, -1e300, INFINITY, -INFINITY, -0.0};
    struct kv_random r;
    kv_random_init(&r, unit_seed("scores"));
    for (size_t i = 0; i < KV_ARRAY_LEN(scores); i++)
        ck_assert(kv_geo_place_valid(kv_geohash_decode(scores[i])));
    for (int i = 0; i < UNIT_ROUNDS(100000); i++) {
        uint64_t bits = kv_random_next(&r);
        double score;
        memcpy(&score, &bits, sizeof(score));
        if (score == score)
            ck_assert(kv_geo_place_valid(kv_geohash_decode(score)));
    }
    /* What a conversion on x86-64 gives for numbers out of range. */
    ck_assert_double_eq(kv_geohash_decode(1e300).longitude, kv_geohash_decode(0).longitude);
    ck_assert_double_eq(kv_geohash_decode(-1e300).longitude, 180);
}
END_TEST

START_TEST(a_distance_is_that_of_spherical_trigonometry)
{
    struct kv_random r;
    kv_random_init(&r, unit_seed("distance"));
    for (int i = 0; i < UNIT_ROUNDS(100000); i++) {
        struct kv_geo_place a = random_place(&r), b = random_place(&r);
        double x = kv_geo_radians(a.latitude), y = kv_geo_radians(b.latitude);
        double z = kv_geo_radians(a.longitude - b.longitude);
        double cosine = sin(x) * sin(y) + cos(x) * cos(y) * cos(z);
        double expected = KV_GEO_EARTH_RADIUS_M * acos(fmax(-1, fmin(1, cosine)));
        ck_assert_double_eq_tol(kv_geo_distance(a, b), expected, 1.0);
        ck_assert_double_eq(kv_geo_distance(a, b), kv_geo_distance(b, a));
        struct kv_geo_place opposite = {a.longitude > 0 ? a.longitude - 180 : a.longitude + 180,
                                        -a.latitude};
        ck_assert_double_eq_tol(kv_geo_distance(a, opposite), M_PI * KV_GEO_EARTH_RADIUS_M, 1.0);
        ck_assert_double_eq(kv_geo_distance(a, a), 0);
    }
}
END_TEST

int main(void)
{
    struct unit u;
    unit_begin(&u, "geohash");
    unit_add(&u, well_known_places_have_well_known_numbers);
    unit_add(&u, a_score_is_halved_bit_by_bit_and_names_the_cell_of_its_place);
    unit_add(&u, the_corners_of_the_map_are_on_it);
    unit_add(&u, any_score_gives_a_place);
    unit_add(&u, a_distance_is_that_of_spherical_trigonometry);
    return unit_run(&u);
}
