/* Signals: an orderly end on SIGTERM and SIGINT. */
#ifndef KV_SERVER_SIGNALS_H
#define KV_SERVER_SIGNALS_H

#include "engine/engine.h"

/* From now on SIGTERM and SIGINT stop this engine; a second SIGINT ends the process at once.
 * SIGHUP and SIGPIPE are ignored. `pidfile` is removed by the quick end, "" for none; it must stay
 * valid. Main thread, once. */
void kv_signals_init(struct kv_engine *e, const char *pidfile);

/* While deferred, SIGTERM or SIGINT does not stop the engine itself: kv_signals_take tells once
 * that one has come, and which (else 0), to somebody who saves first and then calls kv_engine_stop,
 * or kv_signals_refuse to go on. Any thread. */
void kv_signals_defer(bool on_sigterm, bool on_sigint);
int kv_signals_take(void);
void kv_signals_refuse(void);
void kv_signals_again(void); /* kv_signals_take tells once more */

/* Back to ignoring SIGTERM and SIGINT's engine: before it is destroyed. */
void kv_signals_release(void);

#endif
