/* Work of the server's own that needs the keyspace for itself: a saving that is due, the end of a
 * loading. It waits at the gate like an exclusive command (engine/gate.h), in order of arrival, and
 * blocks nobody meanwhile. */
#ifndef KV_ENGINE_ALONE_H
#define KV_ENGINE_ALONE_H

struct kv_client;
struct kv_engine;
struct kv_worker;

/* Has fn(arg) called once on worker 0 behind the gate ([alone]), soon. Any thread of the engine's
 * or its user's while workers run; `arg` must last until then. When the engine ends before its
 * turn, fn is not called. */
void kv_engine_run_alone(struct kv_engine *e, void (*fn)(void *arg), void *arg);

/* --- for engine/ --- */

void kv_alone_on_message(struct kv_worker *w, void *job);
void kv_alone_resume(struct kv_client *c); /* the stand-in client may go on */
void kv_alone_release(struct kv_worker *w);

#endif
