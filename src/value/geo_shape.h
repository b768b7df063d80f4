/* Areas on earth that are searched: is a place inside, and which scores may be.
 *
 * Terms
 *   shape    circle, box or polygon around a centre
 *   sieve    bounds in degrees of a circle: rejects most places outside without trigonometry, and
 *            none inside
 *   cover    up to nine cells, the centre's and those around it, as ranges of scores. All places
 *            inside lie in them, but for the limits below; most others do not
 *
 * A box has its width and height measured along the parallel of the place that is asked about and
 * along the meridian, so on the map it is a trapezoid. A polygon has straight edges on the map, may
 * not cross the date line, and holds what a line to the south crosses an odd number of edges of.
 *
 * Limits, those of the servers whose replies these are: near a pole, and where a shape goes over
 * one, the cover of a circle or box may leave out places inside; places of the largest longitude or
 * latitude themselves are found from there only.
 *
 * Nothing here allocates. Threads: pure functions.
 */
#ifndef KV_VALUE_GEO_SHAPE_H
#define KV_VALUE_GEO_SHAPE_H

#include "value/geohash.h"
#include <stddef.h>

enum kv_geo_kind { KV_GEO_CIRCLE, KV_GEO_BOX, KV_GEO_POLYGON };

struct kv_geo_shape {
    enum kv_geo_kind kind;
    struct kv_geo_place centre;          /* valid; distances count from here */
    double radius_m;                     /* circle */
    double width_m, height_m;            /* box */
    const struct kv_geo_place *vertices; /* polygon: borrowed, valid, at least 3 */
    size_t vertex_count;
};

struct kv_geo_sieve {
    struct kv_geo_place centre;
    double north_max, east_max; /* degrees: farther north or south, east or west, is outside */
};

/* For a distance from the centre; an infinite one rejects nothing. */
void kv_geo_sieve_init(struct kv_geo_sieve *sieve, struct kv_geo_place centre, double reach_m);

KV_INLINE bool kv_geo_sieve_rejects(const struct kv_geo_sieve *sieve, struct kv_geo_place place)
{
    double east = fabs(place.longitude - sieve->centre.longitude);
    return fabs(place.latitude - sieve->centre.latitude) > sieve->north_max ||
           (east > 180 ? 360 - east : east) > sieve->east_max;
}

#define KV_GEO_COVER_MAX 9

/* Scores from `min` on, below `end`. */
struct kv_geo_range {
    double min, end;
};

/* The mean of a polygon's vertices, its centre. */
struct kv_geo_place kv_geo_polygon_centre(const struct kv_geo_place *vertices, size_t count);

/* True when a place is inside; then *distance_m is its distance from the centre. */
bool kv_geo_shape_has(const struct kv_geo_shape *s, struct kv_geo_place place,
                      double *distance_m) KV_HOT;

/* Writes the cover, the centre's cell first, and returns how many ranges it has. */
size_t kv_geo_shape_cover(const struct kv_geo_shape *s, struct kv_geo_range out[KV_GEO_COVER_MAX]);

#endif
