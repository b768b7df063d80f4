/* kvik-check --to-rdb and --to-aof: the data of a log as an RDB file, and the other way round. */
#ifndef KV_SERVER_CONVERT_H
#define KV_SERVER_CONVERT_H

#include "base/compiler.h"

enum kv_convert_form { KV_CONVERT_NONE = 0, KV_CONVERT_TO_RDB, KV_CONVERT_TO_AOF };

/* Reads `from` (an RDB file, an append-only file, a manifest, or the folder of a log) and writes
 * its data to `to`: an RDB file, or the folder of a log, which must not exist yet. Everything is
 * there in the end, or nothing. Tells on standard output what it did, or why not; the exit status.
 * [one thread, no engine runs] */
int kv_convert(enum kv_convert_form form, const char *to, const char *from);

#endif
