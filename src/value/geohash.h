/* Places on earth as numbers: the score that a place has in a sorted set, and back.
 *
 * Terms
 *   place   longitude and latitude in degrees; latitudes end where the map projection of web maps
 *           (EPSG:3857, a square) ends
 *   score   52 bits: bit by bit, the halves in which longitude and latitude lie, the longitude's
 *           first. Places with a common beginning lie in a common cell
 *   step    how many halvings each of the two has: a cell of step n is one of 2^n x 2^n
 *   cell    its column (longitude) and row (latitude), from the southwest
 *
 * The largest longitude and latitude are one column and row beyond the last, so a score may have
 * two bits more than 52. That is how the scores are that other servers have given, and stays.
 *
 * Nothing here allocates. Threads: pure functions.
 */
#ifndef KV_VALUE_GEOHASH_H
#define KV_VALUE_GEOHASH_H

#include "base/compiler.h"
#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#define KV_GEO_STEPS 26u /* of a score */
#define KV_GEO_LONGITUDE_MAX 180.0
#define KV_GEO_LATITUDE_MAX 85.05112878
#define KV_GEO_EARTH_RADIUS_M 6372797.560856
#define KV_GEOHASH_TEXT_LEN 11

struct kv_geo_place {
    double longitude, latitude; /* degrees */
};

struct kv_geo_bounds {
    double west, south, east, north; /* degrees; may lie beyond the map */
};

struct kv_geo_cell {
    uint32_t column, row;
};

/* False for what is beyond the limits. */
bool kv_geo_place_valid(struct kv_geo_place place) KV_MUST_CHECK;

/* The cell of a place, which is valid, and a cell's bounds and number among the cells of its step
 * (a score, with all steps). */
struct kv_geo_cell kv_geo_cell_of(struct kv_geo_place place, unsigned step);
struct kv_geo_bounds kv_geo_cell_bounds(struct kv_geo_cell cell, unsigned step);
uint64_t kv_geo_cell_number(struct kv_geo_cell cell);

/* The score of a place, which is valid, and the middle of the cell that a score names. Any score
 * gives a valid place. */
double kv_geohash_encode(struct kv_geo_place place);
struct kv_geo_place kv_geohash_decode(double score);

/* The place as geohash.org writes it, where latitudes go up to 90 degrees. Not terminated. The last
 * of the 11 characters would need 55 bits and is always 0. */
void kv_geohash_print(struct kv_geo_place place, char out[KV_GEOHASH_TEXT_LEN]);

KV_INLINE double kv_geo_radians(double degrees)
{
    return degrees * (M_PI / 180.0);
}

KV_INLINE double kv_geo_degrees(double radians)
{
    return radians / (M_PI / 180.0);
}

/* Metres on the surface of a sphere. */
double kv_geo_distance(struct kv_geo_place a, struct kv_geo_place b);

#endif
