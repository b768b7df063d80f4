/* What the files of geo commands share. For src/cmd alone. Worker's thread, inside a call.
 */
#ifndef KV_CMD_GEO_PRIV_H
#define KV_CMD_GEO_PRIV_H

#include "cmd/zset_priv.h"
#include "value/geohash.h"

/* Arguments `arg` and the next as longitude and latitude of a place on the map; false: an error is
 * replied. */
bool kv_geo_place_at(struct kv_call *call, int arg, struct kv_geo_place *place) KV_MUST_CHECK;

/* An argument as unit, in metres: m, km, ft, mi. False: an error is replied. */
bool kv_geo_unit_at(struct kv_call *call, int arg, double *metres) KV_MUST_CHECK;

/* Replies a distance, in its unit already, with four digits after the point. */
void kv_geo_reply_distance(struct kv_call *call, double distance);

/* Replies longitude and latitude as an array of two. */
void kv_geo_reply_place(struct kv_call *call, struct kv_geo_place place);

#endif
