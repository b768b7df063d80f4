/* One library of functions: its code, and what it registered when that ran.
 *
 * A library is made by running its code in the interpreter of functions, where it registers them;
 * it is in use when function.c has put it into the set of all. It is one block with its name and
 * code, and one block for each function; the callbacks are references in the interpreter.
 *
 * Threads: as script.h. */
#ifndef KV_SCRIPT_LIBRARY_PRIV_H
#define KV_SCRIPT_LIBRARY_PRIV_H

#include "script/lua_priv.h"

struct kv_function {
    struct kv_function *next;    /* of its library, in the order of registration */
    struct kv_library *library;  /* that owns it */
    struct kv_slice name;        /* in `text` */
    struct kv_slice description; /* likewise; ptr NULL: it has none */
    uint32_t flags;              /* enum kv_shebang_flags */
    uint32_t hash;               /* of its name in lower case */
    int callback;                /* reference, or LUA_NOREF */
    size_t size;                 /* of this block */
    char text[];
};

struct kv_library {
    struct kv_library *next; /* of those that are being added */
    struct kv_slice name, code;
    struct kv_function *first, **last;
    uint32_t function_count;
    bool no_memory; /* a block was not to be had while it loaded */
    size_t size;    /* of this block */
    char text[];
};

/* The hash of a function's name in any case. */
uint32_t kv_function_hash(struct kv_slice name);
bool kv_function_names_equal(struct kv_slice a, struct kv_slice b);

/* What the first line says: the name, and the rest. False: why not, in `error`. */
bool kv_library_read_head(struct kv_slice text, struct kv_slice *name, struct kv_slice *code,
                          char error[KV_LIBRARY_ERROR_MAX]) KV_MUST_CHECK;

/* Runs the code of a library whose head was read. NULL: why not, in `error`, and nothing is left.
 * `limited`: it may take half a second. */
struct kv_library *kv_library_create(struct kv_lua *lua, struct kv_slice text, struct kv_slice name,
                                     struct kv_slice code, bool limited,
                                     char error[KV_LIBRARY_ERROR_MAX]) KV_MUST_CHECK;

/* `lua`: NULL when its interpreter goes too. */
void kv_library_destroy(struct kv_library *lib, struct kv_lua *lua);

/* Bytes of all its blocks. */
size_t kv_library_bytes(const struct kv_library *lib);

#endif
