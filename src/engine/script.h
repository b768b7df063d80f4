/* Scripts, as the engine sees them: commands that run other commands.
 *
 * Terms
 *   token     what a script holds while it runs: one lock behind those of the shards. Scripts share
 *             one interpreter, so one runs at a time, beside plain commands on other shards
 *   declared  the keys that the command line of EVAL names. Their shards are locked before the
 *             script begins
 *   upgrade   a script that touches anything else closes the gate first (kv_gate_upgrade), and from
 *             then on its kind begins behind the gate: it is remembered by the text or name that
 *             called it
 *   busy      a script that has run for longer than busy-reply-threshold. Its worker then serves
 *             other connections between its instructions, but refuses nearly everything with BUSY;
 *             other workers refuse what would have to wait for it
 *
 * Life cycle: a command function with the flag KV_CMD_SCRIPT calls kv_script_begin, then
 * kv_script_call for each command of the script, kv_script_poll now and then, and kv_script_end.
 * What is called runs with call->client's identity and the script's own protocol and database, into
 * an output of its own. Its effects go to the change stream as they happen, between MULTI and EXEC.
 * Clients that wait for keys are served when the command that runs the script has ended.
 *
 * One script at a time is alive: `struct kv_script` lies on the stack of the command function. The
 * worker's own, unless marked. */
#ifndef KV_ENGINE_SCRIPT_H
#define KV_ENGINE_SCRIPT_H

#include "base/lock.h"
#include "engine/call.h"
#include <stdatomic.h>

#define KV_SCRIPT_ERROR_MAX 512 /* bytes of a refusal */

enum kv_script_flags {
    KV_SCRIPT_READ_ONLY = 1,   /* commands that write are refused */
    KV_SCRIPT_ALLOW_OOM = 2,   /* commands that need memory run above maxmemory */
    KV_SCRIPT_IS_FUNCTION = 4, /* FCALL: FUNCTION KILL ends it, not SCRIPT KILL */
};

struct kv_script {
    struct kv_call outer;  /* of the command that runs the script, kept meanwhile */
    struct kv_arena arena; /* and what its worker's arena held */
    struct kv_out out;     /* reply of the last command */
    uint32_t flags;        /* enum kv_script_flags */
    uint32_t db;           /* that the client had selected */
    uint64_t start_ticks;  /* when the command began, for the command log */
    uint64_t busy_ticks;   /* from here on it is busy; UINT64_MAX: never */
    const struct kv_command *last_cmd;
    bool oom;                      /* memory was above the limit when it began */
    bool wrote;                    /* a command with the flag `write` has run */
    bool multi;                    /* MULTI was written to the stream */
    bool upgraded;                 /* holds everything, beyond what it was given */
    size_t after_multi;            /* length of the worker's stream buffer behind MULTI */
    uint32_t first_db, last_db;    /* of that buffer before MULTI */
    size_t stream_len;             /* and its length */
    uint64_t next_serve_ticks;     /* when busy: next look at other connections */
    struct kv_script_aside *aside; /* what is put aside meanwhile; NULL: it was not busy */
    char error[KV_SCRIPT_ERROR_MAX];
};

/* Nothing could be evicted for the script that is about to begin, and it needs memory. */
bool kv_script_out_of_memory(const struct kv_call *call);

/* The script begins. `flags`: enum kv_script_flags. Under what its command holds. */
void kv_script_begin(struct kv_call *call, struct kv_script *s, uint32_t flags);

/* Whether the user who runs the script may run a command line; with the wrong number of words,
 * whether he may run the command. False: there is no such command. Logs nothing. */
bool kv_script_may(struct kv_script *s, const struct kv_slice *argv, int argc,
                   bool *allowed) KV_MUST_CHECK;

/* Runs one command. NULL: it ran and its reply, perhaps an error, is in s->out until the next call.
 * Else why it was refused ("ERR ..."), a text that stays until the next call; nothing ran. */
const char *kv_script_call(struct kv_script *s, const struct kv_slice *argv,
                           int argc) KV_MUST_CHECK;

/* Drops the last reply. */
void kv_script_drop_reply(struct kv_script *s);

/* Protocol of the replies from now on: 2 or 3. */
void kv_script_set_resp(struct kv_script *s, int resp);

/* Before a command: whether to ask kv_script_poll, since the script is busy or must end. */
bool kv_script_due(const struct kv_script *s) KV_MUST_CHECK;

/* Between two instructions, every millisecond or so: true when the script must end now. Serves
 * other connections when it is busy; nothing of the script may be in the worker's arena. */
bool kv_script_poll(struct kv_script *s) KV_MUST_CHECK;

/* The script has ended: call and worker are what they were, effects are in the stream's buffer.
 * Before the reply of the command is written. */
void kv_script_end(struct kv_script *s);

/* SCRIPT KILL, FUNCTION KILL (`function`). Any worker. */
enum kv_script_kill {
    KV_SCRIPT_KILLED,   /* it will end soon */
    KV_SCRIPT_NOTHING,  /* none of that kind runs */
    KV_SCRIPT_WRITTEN,  /* it has written already */
    KV_SCRIPT_OF_OTHER, /* what runs is of the other kind, and busy */
};
enum kv_script_kill kv_script_kill(struct kv_engine *e, bool function);

/* The refusal of commands while a script is busy ("BUSY ..."); it names the command that kills its
 * kind. Any worker. */
const char *kv_script_busy_text(const struct kv_engine *e);

/* What FUNCTION STATS shows of a function that is busy. */
struct kv_script_shown {
    const struct kv_slice *argv; /* the command line of FCALL, in the arena */
    int argc;                    /* 0: none is busy */
    int64_t duration_ms;
};
/* False: memory is short, or (*busy_script) a script that is no function is busy. Any worker. */
bool kv_script_show(struct kv_engine *e, struct kv_arena *arena, struct kv_script_shown *out,
                    bool *busy_script) KV_MUST_CHECK;

/* Where the owner of interpreters keeps them: freed with `destroy` when the engine ends. Set behind
 * the token. */
enum kv_script_owner { KV_SCRIPT_OF_EVAL, KV_SCRIPT_OF_FUNCTIONS, KV_SCRIPT_OWNERS };
void kv_script_keep(struct kv_engine *e, enum kv_script_owner owner, void *scripts,
                    void (*destroy)(void *scripts));
void *kv_script_kept(const struct kv_engine *e, enum kv_script_owner owner);

/* --- libraries of functions, which belong to what is saved --- */

#define KV_LIBRARY_ERROR_MAX 512

/* What whoever saves and loads needs of them; filled in by script/. [alone, or a slice of loading]
 */
struct kv_library_ops {
    /* Compiles a library and adds it; `replace`: one of its name may be there, and goes. False: why
     * not, in `error`, and nothing has changed. */
    bool (*load)(struct kv_engine *e, struct kv_slice code, bool replace,
                 char error[KV_LIBRARY_ERROR_MAX]);
    /* Calls `fn` with the code of each; stops when it returns false, and returns that. */
    bool (*each)(struct kv_engine *e, bool (*fn)(void *arg, struct kv_slice code), void *arg);
    /* Removes all. */
    void (*clear)(struct kv_engine *e);
};
/* NULL: the engine's commands know none. */
const struct kv_library_ops *kv_library_ops(const struct kv_engine *e);

/* How many there are, for whoever does not stand alone; the owner tells, behind the token. */
struct kv_library_counts {
    uint32_t libraries, functions;
};
void kv_library_note_counts(struct kv_engine *e, struct kv_library_counts counts);
struct kv_library_counts kv_library_counts(const struct kv_engine *e);

/* --- for engine/ --- */

#define KV_SCRIPT_UPGRADERS 1024 /* power of two */

/* Of the engine. */
struct kv_script_state {
    atomic_uint phase;    /* enum in script.c: none, running, has written, killed */
    atomic_bool busy;     /* it is busy */
    atomic_bool function; /* and a function */
    atomic_bool ending;   /* SHUTDOWN NOSAVE: it must end, whatever it has written */
    _Atomic(uint32_t) library_count, function_count;  /* written behind the token */
    struct kv_mutex lock;                             /* of the next */
    struct kv_script_line *line;                      /* command line of a busy function, or NULL */
    _Atomic(uint64_t) upgraders[KV_SCRIPT_UPGRADERS]; /* hashes of texts that upgraded; 0: none */
};

/* The command line's script is known to upgrade: it takes the gate from the start. */
bool kv_script_known_to_upgrade(struct kv_engine *e, const struct kv_slice *argv, int argc);

/* A script is busy, perhaps on this worker: what becomes of a valid command of another client. */
enum kv_script_verdict {
    KV_SCRIPT_GO_ON,   /* as usual; refused if it would have to wait */
    KV_SCRIPT_DONE,    /* it has run beside the script */
    KV_SCRIPT_LATER,   /* it is to run again when the script has ended, which it does soon */
    KV_SCRIPT_REFUSED, /* with BUSY */
};
enum kv_script_verdict kv_script_judge(struct kv_client *c, const struct kv_command *cmd,
                                       const struct kv_slice *argv, int argc) KV_MUST_CHECK;

/* Message handler: a script has become busy. */
void kv_script_on_busy(struct kv_worker *w);

/* Of the engine's creation and end. */
void kv_script_state_init(struct kv_engine *e);
void kv_script_state_release(struct kv_engine *e);

#endif
