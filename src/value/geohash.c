/* Places on earth as numbers.
 *
 * Data layout of a score: bit 2i+1 is bit i of the column, bit 2i bit i of the row, of 2^26 columns
 * and rows each. A double holds 53 bits and more where the last ones are zero, so a score is exact.
 *
 * Sources
 *   - geohash: G. Niemeyer's scheme of 2008, as geohash.org and Wikipedia ("Geohash") describe it
 *   - interleaving by doubling the gaps between bits: S. E. Anderson, "Bit Twiddling Hacks",
 *     "Interleave bits by Binary Magic Numbers"
 *   - distance: the haversine formula, R. W. Sinnott, "Virtues of the Haversine", 1984
 *
 * The order of the floating-point operations is part of the format: scores, coordinates and
 * distances are compared digit by digit with those of other servers. Nothing may be rearranged.
 *
 * Rejected: the table of bytes for interleaving (no faster than five shifts, and it takes cache).
 *
 * Threads: pure functions.
 */
#include "value/geohash.h"

#include "base/assert.h"
#include <assert.h>

static_assert(2 * KV_GEO_STEPS == 52, "a score has 52 bits");

/* --- bits --- */

/* Bit i of x moves to bit 2i. */
static uint64_t spread(uint32_t x)
{
    uint64_t u = x;
    u = (u | u << 16) & 0x0000ffff0000ffff;
    u = (u | u << 8) & 0x00ff00ff00ff00ff;
    u = (u | u << 4) & 0x0f0f0f0f0f0f0f0f;
    u = (u | u << 2) & 0x3333333333333333;
    return (u | u << 1) & 0x5555555555555555;
}

/* Bit 2i of u moves to bit i; the odd ones are dropped. */
static uint32_t gather(uint64_t u)
{
    u &= 0x5555555555555555;
    u = (u | u >> 1) & 0x3333333333333333;
    u = (u | u >> 2) & 0x0f0f0f0f0f0f0f0f;
    u = (u | u >> 4) & 0x00ff00ff00ff00ff;
    u = (u | u >> 8) & 0x0000ffff0000ffff;
    return (uint32_t)(u | u >> 16);
}

/* A score that is no place's may be anything but NaN: the conversion is that of x86-64, for all. */
static uint64_t bits_of_score(double score)
{
    KV_DASSERT(score == score);
    if (score >= 0x1p64)
        return 0;
    if (score >= 0)
        return (uint64_t)score;
    return score >= -0x1p63 ? (uint64_t)(int64_t)score : UINT64_C(1) << 63;
}

/* --- cells --- */

bool kv_geo_place_valid(struct kv_geo_place place)
{
    return fabs(place.longitude) <= KV_GEO_LONGITUDE_MAX &&
           fabs(place.latitude) <= KV_GEO_LATITUDE_MAX;
}

/* In which of 2^step equal parts of -limit .. limit a value lies. */
static uint32_t part_of(double value, double limit, unsigned step)
{
    double share = (value + limit) / (limit + limit);
    KV_DASSERT(share >= 0 && share <= 1);
    return (uint32_t)(share * (double)(UINT64_C(1) << step));
}

/* Where a part begins; one part on is where it ends. */
static double part_start(uint32_t part, double limit, unsigned step)
{
    return -limit + (double)part / (double)(UINT64_C(1) << step) * (limit + limit);
}

struct kv_geo_cell kv_geo_cell_of(struct kv_geo_place place, unsigned step)
{
    KV_ASSERT(step <= KV_GEO_STEPS);
    KV_DASSERT(kv_geo_place_valid(place));
    return (struct kv_geo_cell){part_of(place.longitude, KV_GEO_LONGITUDE_MAX, step),
                                part_of(place.latitude, KV_GEO_LATITUDE_MAX, step)};
}

struct kv_geo_bounds kv_geo_cell_bounds(struct kv_geo_cell cell, unsigned step)
{
    KV_ASSERT(step <= KV_GEO_STEPS);
    return (struct kv_geo_bounds){
        .west = part_start(cell.column, KV_GEO_LONGITUDE_MAX, step),
        .south = part_start(cell.row, KV_GEO_LATITUDE_MAX, step),
        .east = part_start(cell.column + 1, KV_GEO_LONGITUDE_MAX, step),
        .north = part_start(cell.row + 1, KV_GEO_LATITUDE_MAX, step),
    };
}

uint64_t kv_geo_cell_number(struct kv_geo_cell cell)
{
    return spread(cell.column) << 1 | spread(cell.row);
}

/* --- scores --- */

double kv_geohash_encode(struct kv_geo_place place)
{
    return (double)kv_geo_cell_number(kv_geo_cell_of(place, KV_GEO_STEPS));
}

static double clamp(double value, double limit)
{
    return value > limit ? limit : value < -limit ? -limit : value;
}

struct kv_geo_place kv_geohash_decode(double score)
{
    uint64_t bits = bits_of_score(score);
    struct kv_geo_bounds b =
        kv_geo_cell_bounds((struct kv_geo_cell){gather(bits >> 1), gather(bits)}, KV_GEO_STEPS);
    struct kv_geo_place place = {clamp((b.west + b.east) / 2, KV_GEO_LONGITUDE_MAX),
                                 clamp((b.south + b.north) / 2, KV_GEO_LATITUDE_MAX)};
    KV_DASSERT(kv_geo_place_valid(place));
    return place;
}

void kv_geohash_print(struct kv_geo_place place, char out[KV_GEOHASH_TEXT_LEN])
{
    static const char digits[] = "0123456789bcdefghjkmnpqrstuvwxyz";
    static_assert(sizeof(digits) == 33, "five bits make a digit");
    KV_DASSERT(kv_geo_place_valid(place));
    struct kv_geo_cell cell = {part_of(place.longitude, 180.0, KV_GEO_STEPS),
                               part_of(place.latitude, 90.0, KV_GEO_STEPS)};
    uint64_t bits = kv_geo_cell_number(cell);
    for (unsigned i = 0; i < KV_GEOHASH_TEXT_LEN - 1; i++)
        out[i] = digits[bits >> (2 * KV_GEO_STEPS - 5 * (i + 1)) & 31];
    out[KV_GEOHASH_TEXT_LEN - 1] = digits[0];
}

/* --- distances --- */

double kv_geo_distance(struct kv_geo_place a, struct kv_geo_place b)
{
    double a_latitude = kv_geo_radians(a.latitude), b_latitude = kv_geo_radians(b.latitude);
    double v = sin((kv_geo_radians(b.longitude) - kv_geo_radians(a.longitude)) / 2);
    if (v == 0) /* on one meridian; also more exact */
        return KV_GEO_EARTH_RADIUS_M * fabs(b_latitude - a_latitude);
    double u = sin((b_latitude - a_latitude) / 2);
    double h = u * u + cos(a_latitude) * cos(b_latitude) * v * v;
    /* Of opposite places h may come out above 1. */
    return 2.0 * KV_GEO_EARTH_RADIUS_M * asin(sqrt(h > 1 ? 1 : h));
}
