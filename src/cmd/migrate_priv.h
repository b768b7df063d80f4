/* A migration under way: what MIGRATE asks for, the keys' values in the form of DUMP, and how far
 * it has come. Made by migrate.c under the keys' locks; while the errand is out it belongs to the
 * thread that talks to the target (migrate_talk.c), in between to its worker. */
#ifndef KV_CMD_MIGRATE_PRIV_H
#define KV_CMD_MIGRATE_PRIV_H

#include "base/slice.h"
#include "engine/errand.h"
#include "persist/rdb_io.h"

#define KV_MIGRATE_ERROR_MAX                                                                       \
    1024 /* bytes of an error text that is replied; longer ones are cut                            \
          */

enum kv_migrate_state {
    KV_MIGRATE_SEND,    /* its value is to be sent */
    KV_MIGRATE_ARRIVED, /* the target has done what was asked for */
    KV_MIGRATE_REFUSED, /* the target has answered with an error */
    KV_MIGRATE_OVER,    /* there is nothing left to do */
};

struct kv_migrate_item {
    struct kv_key key;           /* bytes in the block of the migration */
    struct kv_watch *watch;      /* tells of changes since the value was taken; NULL with COPY */
    struct kv_rdb_bytes payload; /* owned */
    int64_t expiry;              /* ms of Unix time or KV_NO_EXPIRY */
    uint8_t state;               /* enum kv_migrate_state */
    bool again;                  /* a value of it was sent before: that is to be replaced */
    bool clean;                  /* unchanged since; for a moment within a turn */
};

struct kv_migration {
    struct kv_errand errand; /* first */
    size_t block_bytes;      /* size of this block, which holds all that is not owned singly */
    char *host;              /* ends with a zero byte */
    int64_t port;            /* -1: no port at all */
    struct kv_slice db;      /* as text */
    struct kv_slice user, password;
    int auth_words;     /* 0: no AUTH; 1: a password; 2: a user and a password */
    int64_t timeout_ms; /* longest pause of the target, > 0 */
    bool copy, replace;
    int rounds;                       /* how often values were sent */
    int fd;                           /* of the connection; -1: none */
    char error[KV_MIGRATE_ERROR_MAX]; /* first failure, as the client is told; "": none */
    struct kv_key *keys;              /* of all items, for the engine */
    int item_count;
    struct kv_migrate_item items[];
};

/* kv_errand.work: sends what is to be sent over one connection and notes what is answered. */
void kv_migrate_talk(struct kv_errand *x);

#endif
