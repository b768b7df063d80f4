/* kvik-check: verifies files of persistence without a server. */
#ifndef KV_SERVER_CHECK_H
#define KV_SERVER_CHECK_H

#include "base/compiler.h"
#include "persist/manifest.h"
#include <limits.h>

/* True when the program was called by that name. */
bool kv_check_is_wanted(const char *program);

/* Its main: 0 when everything is in order or was mended, 1 when not, 2 for wrong arguments. */
int kv_check_main(int argc, char *const *argv);

/* Whether a path ends like a manifest's; *stem is its length without that. */
bool kv_check_is_manifest(const char *name, size_t *stem);

/* The folder of a manifest, and the name of the log. False: the path is none of a manifest, or too
 * long. */
bool kv_check_split_manifest(const char *path, char folder[PATH_MAX], char name[KV_MANIFEST_NAME]);

#endif
