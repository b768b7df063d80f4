/* Scripts in Lua: what EVAL and SCRIPT do. The state of all scripts of an engine (interpreter,
 * known scripts) is made when the first needs it and freed with the engine; whoever uses it holds
 * the token or is alone (engine/script.h), but where marked.
 *
 * A known script is named by the SHA-1 of its text, in hexadecimal digits of any case. Those that
 * came by EVAL are forgotten, least recently used first, when there are more than
 * KV_SCRIPT_EVALS_MAX; those of SCRIPT LOAD stay until SCRIPT FLUSH. */
#ifndef KV_SCRIPT_SCRIPT_H
#define KV_SCRIPT_SCRIPT_H

#include "engine/call.h"

#define KV_SCRIPT_EVALS_MAX 500

/* EVAL, EVAL_RO, EVALSHA, EVALSHA_RO: argv is name, text or digest, number of keys, keys,
 * arguments. Writes the reply. */
void kv_script_eval(struct kv_call *call, bool by_digest, bool read_only);

/* SCRIPT LOAD: makes the text known, not to be forgotten; `digest` gets its name. False: the error
 * is replied. [alone] */
bool kv_script_load(struct kv_call *call, struct kv_slice text, char digest[40]) KV_MUST_CHECK;

/* The text of a known script, or false. [alone] */
bool kv_script_find(struct kv_engine *e, struct kv_slice digest,
                    struct kv_slice *text) KV_MUST_CHECK;

/* SCRIPT FLUSH: forgets all, with the interpreter, which `async` leaves to the background. [alone]
 */
void kv_script_flush(struct kv_engine *e, bool async);

struct kv_script_figures {
    uint64_t scripts;     /* known */
    uint64_t evicted;     /* forgotten for others */
    uint64_t vm_bytes;    /* of the interpreter */
    uint64_t cache_bytes; /* of the known scripts: texts and records */
};
/* [alone] All are 0 when no script has run. */
void kv_script_figures_read(const struct kv_engine *e, struct kv_script_figures *out);

#endif
