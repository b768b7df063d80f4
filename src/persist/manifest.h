/* The manifest of an append-only log: which files it consists of.
 *
 * A log lies in a folder of its own. One base file holds the data of a moment, incr files hold the
 * commands after it in order of their numbers, history files were replaced by a newer base and are
 * about to be removed. The manifest names them, a line each:
 *
 *     file appendonly.aof.2.base.rdb seq 2 type b
 *     file appendonly.aof.1.incr.aof seq 1 type h
 *     file appendonly.aof.2.incr.aof seq 2 type i
 *
 * Lines that begin with # and pairs of words with other names are read over. Names are file names,
 * never paths. This is the layout of Redis 7 and Valkey, both ways.
 *
 * A change is made in a copy, the copy is stored, and only then takes the place of the old one: a
 * manifest on disk is replaced whole.
 *
 * Memory: lines are few; all of it is KV_MEM_OTHER. Threads: one at a time per manifest. */
#ifndef KV_PERSIST_MANIFEST_H
#define KV_PERSIST_MANIFEST_H

#include "base/err.h"
#include "base/slice.h"

#define KV_MANIFEST_NAME 256          /* bytes of a file name, terminator included */
#define KV_MANIFEST_LINE 1024         /* longest line, its end included */
#define KV_MANIFEST_BYTES (16u << 20) /* longest manifest that is read */

enum kv_manifest_type { KV_MANIFEST_BASE = 'b', KV_MANIFEST_HISTORY = 'h', KV_MANIFEST_INCR = 'i' };

struct kv_manifest_file {
    char name[KV_MANIFEST_NAME]; /* within the folder */
    uint64_t seq;                /* number; bases and incr files count for themselves */
    enum kv_manifest_type type;
};

struct kv_manifest {
    struct kv_manifest_file *files; /* base, then history, then incr files by number; owned */
    uint32_t count, capacity;
    uint64_t base_seq, incr_seq; /* highest numbers used so far */
};

struct kv_manifest_fault {
    uint32_t line;               /* 0: not of a line */
    char text[KV_MANIFEST_LINE]; /* the line */
    const char *reason;
};

void kv_manifest_init(struct kv_manifest *m); /* empty, takes no memory */
void kv_manifest_release(struct kv_manifest *m);
void kv_manifest_copy(struct kv_manifest *to, const struct kv_manifest *from); /* inits `to` */

/* KV_ERR_SYNTAX: *fault says why; the manifest is empty then. Inits the manifest. */
enum kv_err kv_manifest_parse(struct kv_manifest *m, struct kv_slice text,
                              struct kv_manifest_fault *fault) KV_MUST_CHECK;

/* Reads `folder`/`name`.manifest. KV_ERR_NOTFOUND: there is none. KV_ERR_IO: errno. Inits the
 * manifest, empty on failure. */
enum kv_err kv_manifest_load(struct kv_manifest *m, const char *folder, const char *name,
                             struct kv_manifest_fault *fault) KV_MUST_CHECK;

/* Replaces `folder`/`name`.manifest on disk. KV_ERR_IO: errno. */
enum kv_err kv_manifest_store(const struct kv_manifest *m, const char *folder,
                              const char *name) KV_MUST_CHECK;

/* The same. On failure *visible tells whether it is there all the same, though it may be gone after
 * a crash of the machine. */
enum kv_err kv_manifest_store_told(const struct kv_manifest *m, const char *folder,
                                   const char *name, bool *visible) KV_MUST_CHECK;

/* The base file, NULL without one; the last incr file, likewise. */
const struct kv_manifest_file *kv_manifest_base(const struct kv_manifest *m);
const struct kv_manifest_file *kv_manifest_last_incr(const struct kv_manifest *m);

/* Whether the log ends with this file, so that its tail may be missing: it is the last one, or an
 * incr file that only empty ones follow. The next file is listed before it is switched to, and a
 * crash may come between. `folder` is the log's. */
bool kv_manifest_ends_at(const struct kv_manifest *m, const char *folder, uint32_t index);

/* Adds an incr file under the next number, or a base file; `name` is that of the log
 * ("appendonly.aof"), `suffix` what a base consists of ("rdb" or "aof"). Returns the new file. An
 * older base becomes history, and so do incr files with numbers below `from_incr`. */
const struct kv_manifest_file *kv_manifest_add_incr(struct kv_manifest *m, const char *name);
const struct kv_manifest_file *kv_manifest_add_base(struct kv_manifest *m, const char *name,
                                                    const char *suffix, uint64_t from_incr);

/* Takes a file of that name as the base: an old log that is one file. */
void kv_manifest_adopt_base(struct kv_manifest *m, const char *name);

/* Forgets history files. */
void kv_manifest_drop_history(struct kv_manifest *m);

/* "folder/name", "folder/name.manifest" in a buffer. False: too long. */
bool kv_manifest_path(char *path, size_t size, const char *folder, const char *name,
                      const char *suffix) KV_MUST_CHECK;

#endif
