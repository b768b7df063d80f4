/* Crash report: what is written before the process dies of a fatal signal. */
#ifndef KV_SERVER_CRASH_H
#define KV_SERVER_CRASH_H

#include "engine/options.h"

/* Installs handlers for SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGABRT. The report goes to the log;
 * facts of the server are composed now, because later nothing may be relied on. In sanitizer
 * builds, which have reports of their own, it does nothing. Main thread, after the options are
 * final. */
void kv_crash_init(const struct kv_options *o, const char *config_file);

#endif
