/* kvik-check: verifies files of persistence without a server. */
#ifndef KV_SERVER_CHECK_H
#define KV_SERVER_CHECK_H

#include "base/compiler.h"

/* True when the program was called by that name. */
bool kv_check_is_wanted(const char *program);

/* Its main: 0 when everything is in order or was mended, 1 when not, 2 for wrong arguments. */
int kv_check_main(int argc, char *const *argv);

#endif
