/* Libraries of functions: what FCALL and FUNCTION do. A library is code that registers functions
 * when it is loaded; its name and those of its functions, in any case, are taken by one library
 * only. Functions have an interpreter of their own, made when the first library comes and freed
 * with the last by FUNCTION FLUSH; what a library keeps in its local variables lasts as long as it
 * does.
 *
 * All changes are whole or not at all. Whoever uses this holds the token or is alone
 * (engine/script.h), but where marked. */
#ifndef KV_SCRIPT_FUNCTION_H
#define KV_SCRIPT_FUNCTION_H

#include "engine/call.h"

struct kv_library_ops;

/* FCALL, FCALL_RO: argv is name, function, number of keys, keys, arguments. Writes the reply. */
void kv_function_call(struct kv_call *call, bool read_only);

/* FUNCTION LOAD: writes the reply. True: a library was added. [alone] */
bool kv_function_load(struct kv_call *call, struct kv_slice code, bool replace);

enum kv_function_policy {
    KV_FUNCTION_APPEND,  /* the name of a library that is there is an error */
    KV_FUNCTION_REPLACE, /* it goes */
    KV_FUNCTION_FLUSH,   /* all go */
};

/* FUNCTION RESTORE: adds all or none; false: the error is replied. [alone] */
bool kv_function_restore(struct kv_call *call, const struct kv_slice *codes, uint32_t count,
                         enum kv_function_policy policy) KV_MUST_CHECK;

/* FUNCTION DELETE: false: the error is replied. [alone] */
bool kv_function_delete(struct kv_call *call, struct kv_slice name) KV_MUST_CHECK;

/* FUNCTION FLUSH: removes all, with the interpreter, which `async` leaves to the background.
 * [alone] */
void kv_function_flush(struct kv_engine *e, bool async);

/* FUNCTION LIST: of those whose name matches the pattern (NULL: all), by name; writes the reply.
 * [alone] */
void kv_function_list(struct kv_call *call, const struct kv_slice *pattern, bool with_code);

struct kv_function_figures {
    uint64_t libraries, functions;
    uint64_t vm_bytes;    /* of the interpreter */
    uint64_t cache_bytes; /* of code and records */
};
/* [alone] All are 0 when there was never a library. */
void kv_function_figures_read(const struct kv_engine *e, struct kv_function_figures *out);

/* For whoever saves and loads. */
extern const struct kv_library_ops kv_function_library_ops;

#endif
