/* Areas on earth that are searched.
 *
 * The cover: the size of the shape gives a step at which a cell is about as large; the eight cells
 * around the centre's then hold the bounds of the shape, and those which the bounds do not reach
 * are left out. Where the eight do not hold them, because longitudes grow narrow towards the poles,
 * cells of the step above are taken.
 *
 *     northwest  north   northeast      columns and rows go round: east of the last column is the
 *     west       centre  east           first, which is right for the date line; that it holds for
 *     southwest  south   southeast      rows as well costs nothing
 *
 * The order of the cells, the choice of the step and what the bounds of a circle are decide the
 * order of an unsorted reply, and so follow what redis-server 7.0.15 was seen to do. Its bounds go
 * wrong where a shape reaches over a pole (a parallel beyond 90 degrees has a negative radius).
 *
 * Invariants: ranges of a cover do not overlap, since equal cells stand side by side in the order
 * (with one halving there are but four cells) and come once.
 *
 * Sources: meridians that touch a circle: J. P. Matuschek, "Finding Points Within a Distance of a
 * Latitude/Longitude Using Bounding Coordinates". Length of a degree of a parallel: the cosine of
 * its latitude, as in any textbook. Even and odd crossings: M. Shimrat, "Algorithm 112: Position of
 * point relative to polygon", 1962.
 *
 * Threads: pure functions.
 */
#include "value/geo_shape.h"

#include "base/assert.h"

#define MAP_HALF_M 20037726.37 /* half of the map's width at the equator */

#define SIEVE_MARGIN 1e-9
#define SIEVE_REACH_MAX                                                                            \
    1.5 /* radians; near a quarter of the earth the formulas lose their digits */

/* Where parallels have become so short that a step, and another, is too fine. */
#define NARROW_LATITUDE 66.0
#define NARROWER_LATITUDE 80.0

/* --- polygons --- */

struct kv_geo_place kv_geo_polygon_centre(const struct kv_geo_place *vertices, size_t count)
{
    struct kv_geo_place sum = {0, 0};
    KV_ASSERT(count >= 3);
    for (size_t i = 0; i < count; i++) {
        sum.longitude += vertices[i].longitude;
        sum.latitude += vertices[i].latitude;
    }
    return (struct kv_geo_place){sum.longitude / (double)count, sum.latitude / (double)count};
}

static bool polygon_has(const struct kv_geo_shape *s, struct kv_geo_place place)
{
    bool inside = false;
    const struct kv_geo_place *a = &s->vertices[s->vertex_count - 1];
    for (size_t i = 0; i < s->vertex_count; i++) {
        const struct kv_geo_place *b = &s->vertices[i];
        if ((a->longitude > place.longitude) != (b->longitude > place.longitude)) {
            double share = (place.longitude - a->longitude) / (b->longitude - a->longitude);
            inside ^= a->latitude + share * (b->latitude - a->latitude) <= place.latitude;
        }
        a = b;
    }
    return inside;
}

static struct kv_geo_bounds polygon_bounds(const struct kv_geo_shape *s)
{
    struct kv_geo_bounds b = {s->centre.longitude, s->centre.latitude, s->centre.longitude,
                              s->centre.latitude};
    for (size_t i = 0; i < s->vertex_count; i++) {
        b.west = fmin(b.west, s->vertices[i].longitude);
        b.east = fmax(b.east, s->vertices[i].longitude);
        b.south = fmin(b.south, s->vertices[i].latitude);
        b.north = fmax(b.north, s->vertices[i].latitude);
    }
    return b;
}

/* --- inside or not --- */

static bool box_has(const struct kv_geo_shape *s, struct kv_geo_place place)
{
    struct kv_geo_place above = {s->centre.longitude, place.latitude};
    double north_m = KV_GEO_EARTH_RADIUS_M *
                     fabs(kv_geo_radians(place.latitude) - kv_geo_radians(s->centre.latitude));
    return north_m <= s->height_m / 2 && kv_geo_distance(place, above) <= s->width_m / 2;
}

bool kv_geo_shape_has(const struct kv_geo_shape *s, struct kv_geo_place place, double *distance_m)
{
    switch (s->kind) {
    case KV_GEO_CIRCLE:
        *distance_m = kv_geo_distance(s->centre, place);
        return *distance_m <= s->radius_m;
    case KV_GEO_BOX:
        if (!box_has(s, place))
            return false;
        break;
    case KV_GEO_POLYGON:
        if (!polygon_has(s, place))
            return false;
        break;
    }
    *distance_m = kv_geo_distance(s->centre, place);
    return true;
}

/* --- the sieve --- */

void kv_geo_sieve_init(struct kv_geo_sieve *sieve, struct kv_geo_place centre, double reach_m)
{
    /* More than what rounding may do to a distance, and to a place. */
    double reach = reach_m / KV_GEO_EARTH_RADIUS_M * (1 + SIEVE_MARGIN) + SIEVE_MARGIN;
    double latitude = fabs(kv_geo_radians(centre.latitude));
    KV_DASSERT(reach_m >= 0);
    *sieve = (struct kv_geo_sieve){centre, 180, 180};
    if (reach > SIEVE_REACH_MAX)
        return;
    sieve->north_max = kv_geo_degrees(reach);
    /* A circle around a pole has all longitudes; another touches two meridians. */
    if (latitude + reach < SIEVE_REACH_MAX)
        sieve->east_max = kv_geo_degrees(asin(sin(reach) / cos(latitude))) + SIEVE_MARGIN;
}

/* --- the cover --- */

/* Degrees that a length along a parallel spans. */
static double parallel_degrees(double length_m, double latitude)
{
    return kv_geo_degrees(length_m / KV_GEO_EARTH_RADIUS_M / cos(kv_geo_radians(latitude)));
}

static struct kv_geo_bounds bounds_of(const struct kv_geo_shape *s)
{
    if (s->kind == KV_GEO_POLYGON)
        return polygon_bounds(s);
    bool circle = s->kind == KV_GEO_CIRCLE;
    double half_height_m = circle ? s->radius_m : s->height_m / 2;
    double half_width_m = circle ? s->radius_m : s->width_m / 2;
    double up = kv_geo_degrees(half_height_m / KV_GEO_EARTH_RADIUS_M);
    /* The parallel away from the equator is the one on which the width spans most degrees. */
    double outer = s->centre.latitude < 0 ? s->centre.latitude - up : s->centre.latitude + up;
    double sideways = parallel_degrees(half_width_m, outer);
    return (struct kv_geo_bounds){s->centre.longitude - sideways, s->centre.latitude - up,
                                  s->centre.longitude + sideways, s->centre.latitude + up};
}

/* How far from the centre the shape reaches at most. */
static double reach_m(const struct kv_geo_shape *s, const struct kv_geo_bounds *b)
{
    if (s->kind == KV_GEO_CIRCLE)
        return s->radius_m;
    if (s->kind == KV_GEO_BOX)
        return sqrt(s->width_m / 2 * (s->width_m / 2) + s->height_m / 2 * (s->height_m / 2));
    return kv_geo_distance((struct kv_geo_place){b->west, b->south},
                           (struct kv_geo_place){b->east, b->north});
}

/* Halvings of the map after which a cell is still at least as wide as the reach. */
static unsigned step_for(double reach, double latitude)
{
    int map_exponent, exponent;
    KV_DASSERT(reach >= 0);
    if (reach == 0)
        return KV_GEO_STEPS;
    double map_fraction = frexp(MAP_HALF_M, &map_exponent), fraction = frexp(reach, &exponent);
    int step = -1;
    if (reach < MAP_HALF_M)
        step += map_exponent - exponent + (fraction < map_fraction);
    step -= fabs(latitude) > NARROW_LATITUDE;
    step -= fabs(latitude) > NARROWER_LATITUDE;
    return step < 1 ? 1 : step > (int)KV_GEO_STEPS ? KV_GEO_STEPS : (unsigned)step;
}

/* The cell so many columns east and rows north. What does not move keeps what lies beyond the last
 * column or row. */
static struct kv_geo_cell moved(struct kv_geo_cell c, int east, int north, unsigned step)
{
    uint32_t mask = (UINT32_C(1) << step) - 1;
    if (east != 0)
        c.column = (c.column + (uint32_t)east) & mask;
    if (north != 0)
        c.row = (c.row + (uint32_t)north) & mask;
    return c;
}

/* True when the cells around the centre's hold all of the bounds. */
static bool holds(struct kv_geo_cell centre, unsigned step, const struct kv_geo_bounds *b)
{
    return kv_geo_cell_bounds(moved(centre, 0, 1, step), step).north >= b->north &&
           kv_geo_cell_bounds(moved(centre, 0, -1, step), step).south <= b->south &&
           kv_geo_cell_bounds(moved(centre, 1, 0, step), step).east >= b->east &&
           kv_geo_cell_bounds(moved(centre, -1, 0, step), step).west <= b->west;
}

size_t kv_geo_shape_cover(const struct kv_geo_shape *s, struct kv_geo_range out[KV_GEO_COVER_MAX])
{
    static const struct {
        int8_t east, north;
    } around[KV_GEO_COVER_MAX] = {{0, 0}, {0, 1},  {0, -1}, {1, 0},  {-1, 0},
                                  {1, 1}, {-1, 1}, {1, -1}, {-1, -1}};
    struct kv_geo_bounds bounds = bounds_of(s);
    unsigned step = step_for(reach_m(s, &bounds), s->centre.latitude);
    struct kv_geo_cell centre = kv_geo_cell_of(s->centre, step), last = {0, 0};
    size_t count = 0;
    while (step > 1 && !holds(centre, step, &bounds)) {
        centre = kv_geo_cell_of(s->centre, --step);
        if (s->kind != KV_GEO_POLYGON)
            break;
    }
    struct kv_geo_bounds inner = kv_geo_cell_bounds(centre, step);
    for (size_t i = 0; i < KV_GEO_COVER_MAX; i++) {
        int east = around[i].east, north = around[i].north;
        struct kv_geo_cell cell = moved(centre, east, north, step);
        bool unreached = (north < 0 && inner.south < bounds.south) ||
                         (north > 0 && inner.north > bounds.north) ||
                         (east < 0 && inner.west < bounds.west) ||
                         (east > 0 && inner.east > bounds.east);
        /* With one halving the cells on either side are the same. */
        if (step > 1 && unreached)
            continue;
        if (count != 0 && cell.column == last.column && cell.row == last.row)
            continue;
        double size = (double)(UINT64_C(1) << 2 * (KV_GEO_STEPS - step));
        double number = (double)kv_geo_cell_number(cell);
        out[count++] = (struct kv_geo_range){number * size, (number + 1) * size};
        last = cell;
    }
    KV_ASSERT(count >= 1);
    return count;
}
