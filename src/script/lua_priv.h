/* What the files of this folder share: one interpreter, and how they get from a lua_State to it.
 *
 * An interpreter is used by whoever holds the token (engine/script.h), one thread at a time. Every
 * call of Lua's that may allocate runs inside lua_cpcall or lua_pcall: an error jumps out of the
 * function that raised it, so nothing that must be given back is held across such a call. */
#ifndef KV_SCRIPT_LUA_PRIV_H
#define KV_SCRIPT_LUA_PRIV_H

#include "engine/script.h"
#include <lua5.1/lauxlib.h>
#include <lua5.1/lua.h>
#include <lua5.1/lualib.h>

#define KV_LUA_SOURCE_MAX 64 /* bytes of a chunk's name that an error shows */

struct kv_lua {
    lua_State *main;                /* NULL while it is being made */
    size_t used_bytes;              /* of all blocks that Lua has */
    size_t limit_bytes;             /* beyond this an allocation fails; SIZE_MAX: none does */
    size_t collect_bytes;           /* a full collection is due when it holds more after a script */
    int globals;                    /* reference of the true table of globals, behind its guard */
    struct kv_script *run;          /* script that runs, or NULL */
    bool killed;                    /* it must end: every error handler of its own is passed by */
    size_t reply_left;              /* what its reply may still cost, see kv_lua_reply */
    int resp;                       /* protocol that it has chosen for its commands: 2 or 3 */
    uint64_t random;                /* state of math.random: 48 bits */
    struct kv_library *library;     /* that is being loaded (library.h), or NULL */
    uint64_t load_ticks;            /* and must be by then; UINT64_MAX: whenever */
    int load_globals;               /* of functions: reference of what loading sees instead */
    bool sees_loading;              /* code sees these (kv_lua_set_loading) */
    char source[KV_LUA_SOURCE_MAX]; /* where the error that ended it was raised; "" unknown */
    int line;
};

/* The interpreter of a state. */
KV_INLINE struct kv_lua *kv_lua_of(lua_State *l)
{
    void *lua;
    (void)lua_getallocf(l, &lua);
    return lua;
}

/* state.c. NULL: out of memory. Without a limit. */
struct kv_lua *kv_lua_create(void);
/* The same for functions: what is loaded sees its own globals while it loads (kv_lua_set_loading),
 * and there are neither KEYS nor ARGV. */
struct kv_lua *kv_lua_create_for_functions(void);
void kv_lua_destroy(struct kv_lua *lua);
/* Destroys one; `async`: in the background. */
void kv_lua_drop(struct kv_engine *e, struct kv_lua *lua, bool async);
/* As script-memory-limit says. */
void kv_lua_set_limit(struct kv_lua *lua, struct kv_engine *e);
/* lua_load from bytes, which are never taken for precompiled code. Protected. */
int kv_lua_load(lua_State *l, struct kv_slice code, const char *name);
/* After a script: a full collection when much has piled up. */
void kv_lua_tidy(struct kv_lua *lua);
/* Gives a reference to a value back; it is kept when there is no memory to do so. */
void kv_lua_unref(struct kv_lua *lua, int reference);
/* Asks whether the script that runs must end, and serves others when it is busy; if so, kv_lua_end.
 * Protected. */
void kv_lua_poll(lua_State *l);
/* Ends the script: raises an error that nothing of its own catches for long. Protected. */
int kv_lua_end(lua_State *l);
/* The handler that notes where an error was raised; for lua_pcall. */
int kv_lua_note_error(lua_State *l);

/* sandbox.c: puts the guarded libraries and globals in place. Protected. */
void kv_lua_open_sandbox(lua_State *l);
/* Replaces the table on top of the stack by a guard through which it can be read only. `metatable`:
 * what getmetatable shows of it is a guarded table, not nil. */
void kv_lua_guard(lua_State *l, bool metatable);

/* Of an interpreter with its sandbox: makes it one for functions. Protected. */
void kv_lua_open_functions(lua_State *l);
/* Whether code sees the globals of loading, or those of functions that run. Protected. */
void kv_lua_set_loading(lua_State *l, bool loading);

/* api.c: pushes the table `redis`; what of it is there while a library loads. */
void kv_lua_push_api(lua_State *l);
void kv_lua_push_load_api(lua_State *l);
/* Raises a table with `err`. Protected. */
int kv_lua_raise(lua_State *l, const char *text);
/* The text of an error that was raised, which lies at -1: of a table its `err`; a string gets "ERR
 * " before it. "": it is neither. Protected, but after an error without memory; pushes it. */
const char *kv_lua_error_text(lua_State *l);

/* library.c: redis.register_function. */
int kv_library_register(lua_State *l);

/* Libraries of our own, and cjson within bounds; each returns its table. */
int kv_lua_open_json(lua_State *l);    /* cjson */
int kv_lua_open_msgpack(lua_State *l); /* cmsgpack */
int kv_lua_open_struct(lua_State *l);

/* convert.c */
/* An error's text as it is told: without the newlines at its end. */
struct kv_slice kv_script_error_text(struct kv_slice text);
/* Pushes the value of the one complete reply in `o`. */
void kv_lua_push_reply(lua_State *l, struct kv_out *o);
/* Pops the value on top of the stack and writes it as a reply. `bools`: true and false are such in
 * RESP3, else 1 and null. A value that is larger than lua->reply_left is an error. Protected. */
void kv_lua_reply(lua_State *l, struct kv_out *out, bool bools);

/* run.c */

/* What is to run. */
struct kv_lua_task {
    int function;         /* reference */
    struct kv_slice name; /* that errors tell */
    int key_count;
    uint32_t flags; /* enum kv_script_flags; KV_SCRIPT_IS_FUNCTION: keys and arguments are its
                       parameters, not KEYS and ARGV */
};
/* Runs it for the command, whose words are name, what, number of keys, keys, arguments, and writes
 * the reply. */
void kv_lua_run(struct kv_call *call, struct kv_lua *lua, const struct kv_lua_task *task);

/* The number of keys, word 2. False: an error is replied; `no_number`: when it is none. */
bool kv_lua_key_count(struct kv_call *call, const char *no_number, int *count) KV_MUST_CHECK;

/* What flags (enum kv_shebang_flags) allow the run, as enum kv_script_flags. False: it may not run
 * now, and the error is replied. */
bool kv_lua_judge_flags(struct kv_call *call, uint32_t shebang_flags, bool read_only,
                        uint32_t *flags) KV_MUST_CHECK;

#define KV_LUA_NO_MEMORY "OOM the server is out of memory for this command"

#endif
