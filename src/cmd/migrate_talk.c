/* The conversation with the target of a MIGRATE.
 *
 * One connection for all rounds of a migration. First AUTH (when there is a password) and SELECT,
 * and their answers are awaited: what follows must not end in another database, or with a target
 * that does not know us. Then all RESTOREs in one go, while answers are read as they come, so that
 * neither side's buffers can fill up with nobody reading:
 *
 *     AUTH [user] password | SELECT db          until both are answered
 *     RESTORE key ttl value [REPLACE]           of each key
 *
 * The time to live is what is left of it at the moment of sending, since clocks of machines differ;
 * at least 1 ms, since 0 means for ever. Values are sent from where they lie: a group of commands
 * is a list of parts, of which only the words between keys and values are put together here.
 *
 * The timeout is for each pause of the target, not for the whole: a large value may take its time
 * as long as bytes move. The first failure ends the conversation; an error that the target answers
 * does not, for the answers to the other keys tell whether those have arrived.
 *
 * Threads: all of it runs on a thread of the errand, which owns the migration meanwhile.
 */
#include "base/clock.h"
#include "base/number.h"
#include "cmd/migrate_priv.h"
#include "net/socket.h"
#include "store/entry.h"
#include <stdio.h>
#include <unistd.h>

#define GROUP 16           /* commands that are put together at a time */
#define PARTS_A_COMMAND 5u /* words, key, words, value, words */
#define WORDS_MAX 96u      /* bytes of the words between */
#define WRITE_PARTS 32

struct talk {
    struct kv_migration *m;
    bool greets;                     /* AUTH and SELECT, not keys */
    int greetings;                   /* so many commands of them */
    int send_at;                     /* next item to put together */
    int answer_at;                   /* next item, or greeting, that is to be answered */
    int64_t moved_ms;                /* monotonic: when bytes moved last */
    char line[KV_MIGRATE_ERROR_MAX]; /* of an answer; what is longer is dropped */
    size_t line_len;
    struct iovec parts[GROUP * PARTS_A_COMMAND]; /* that are not sent */
    uint32_t part_at, part_count;
    char words[GROUP * 2][WORDS_MAX];
};

static int64_t mono_ms(void)
{
    return (int64_t)(kv_clock_mono_ns() / 1000000);
}

static void fail(struct kv_migration *m, const char *text)
{
    if (m->error[0] == '\0')
        snprintf(m->error, sizeof(m->error), "%s", text);
    if (m->fd >= 0)
        close(m->fd);
    m->fd = -1;
}

static void fail_io(struct talk *t)
{
    fail(t->m, t->part_at < t->part_count || (!t->greets && t->send_at < t->m->item_count)
                   ? "IOERR error or timeout writing to target instance"
                   : "IOERR error or timeout reading to target instance");
}

/* Until bytes can move. False: cancelled, or the target has been still for too long. */
static bool wait_for(struct talk *t, bool write, bool *readable, bool *writable)
{
    struct kv_migration *m = t->m;
    for (;;) {
        int64_t left_ms = t->moved_ms + m->timeout_ms - mono_ms();
        if (left_ms <= 0 || atomic_load(&m->errand.cancelled))
            return false;
        int slice_ms = (int)KV_MIN(left_ms, (int64_t)KV_ERRAND_CANCEL_MS);
        enum kv_err err = kv_socket_wait(m->fd, write, slice_ms, readable, writable);
        if (err != KV_ERR_AGAIN)
            return err == KV_OK;
    }
}

/* --- connecting --- */

static bool connected(struct talk *t)
{
    bool readable, writable;
    t->moved_ms = mono_ms();
    return wait_for(t, true, &readable, &writable) && kv_socket_connected(t->m->fd) == KV_OK;
}

static bool connect_to_target(struct talk *t)
{
    struct kv_migration *m = t->m;
    uint32_t next = 0;
    bool tried = false;
    if (m->port >= 0 && m->host[0] != '\0') {
        while (kv_socket_connect_tcp(m->host, (uint32_t)m->port, &next, &m->fd) == KV_OK) {
            if (connected(t)) {
                kv_socket_tune(m->fd, 0);
                return true;
            }
            close(m->fd);
            m->fd = -1;
            tried = true;
            if (atomic_load(&m->errand.cancelled))
                break;
        }
    }
    fail(m, tried ? "IOERR error or timeout writing to target instance"
                  : "IOERR error or timeout connecting to the client");
    return false;
}

/* --- what is sent --- */

static void add_part(struct talk *t, const void *bytes, size_t len)
{
    KV_ASSERT(t->part_count < KV_ARRAY_LEN(t->parts));
    if (len != 0)
        t->parts[t->part_count++] =
            (struct iovec){.iov_base = (void *)(uintptr_t)bytes, .iov_len = len};
}

static void add_words(struct talk *t, char words[WORDS_MAX], int len)
{
    KV_ASSERT(len > 0);
    KV_ASSERT((size_t)len < WORDS_MAX);
    add_part(t, words, (size_t)len);
}

static void add_text(struct talk *t, const char *text)
{
    add_part(t, text, strlen(text));
}

static void add_restore(struct talk *t, const struct kv_migrate_item *it, char first[WORDS_MAX],
                        char second[WORDS_MAX])
{
    bool replace = t->m->replace || it->again;
    char ttl[KV_INT_TEXT_MAX + 1];
    int64_t left_ms = 0;
    if (it->expiry != KV_NO_EXPIRY)
        left_ms = KV_MAX(it->expiry - kv_clock_wall_ms(), (int64_t)1);
    size_t ttl_len = kv_int_print(left_ms, ttl);
    ttl[ttl_len] = '\0';
    add_words(t, first,
              snprintf(first, WORDS_MAX, "*%d\r\n$7\r\nRESTORE\r\n$%zu\r\n", replace ? 5 : 4,
                       it->key.len));
    add_part(t, it->key.ptr, it->key.len);
    add_words(
        t, second,
        snprintf(second, WORDS_MAX, "\r\n$%zu\r\n%s\r\n$%zu\r\n", ttl_len, ttl, it->payload.len));
    add_part(t, it->payload.ptr, it->payload.len);
    add_text(t, replace ? "\r\n$7\r\nREPLACE\r\n" : "\r\n");
}

static bool is_asked(const struct kv_migrate_item *it)
{
    return it->state == KV_MIGRATE_SEND;
}

/* Puts the next commands together when all before them were sent. */
static void compose(struct talk *t)
{
    struct kv_migration *m = t->m;
    if (t->greets || t->part_at < t->part_count)
        return;
    t->part_at = t->part_count = 0;
    for (int n = 0; n < GROUP && t->send_at < m->item_count; t->send_at++) {
        const struct kv_migrate_item *it = &m->items[t->send_at];
        if (!is_asked(it))
            continue;
        add_restore(t, it, t->words[2 * n], t->words[2 * n + 1]);
        n++;
    }
}

static void add_argument(struct talk *t, struct kv_slice word, char words[WORDS_MAX])
{
    add_words(t, words, snprintf(words, WORDS_MAX, "$%zu\r\n", word.len));
    add_part(t, word.ptr, word.len);
    add_text(t, "\r\n");
}

static void compose_greeting(struct talk *t)
{
    const struct kv_migration *m = t->m;
    t->greets = true;
    t->greetings = 1;
    if (m->auth_words > 0) {
        add_text(t, m->auth_words == 2 ? "*3\r\n$4\r\nAUTH\r\n" : "*2\r\n$4\r\nAUTH\r\n");
        if (m->auth_words == 2)
            add_argument(t, m->user, t->words[0]);
        add_argument(t, m->password, t->words[1]);
        t->greetings = 2;
    }
    add_text(t, "*2\r\n$6\r\nSELECT\r\n");
    add_argument(t, m->db, t->words[2]);
}

/* --- what is answered --- */

/* The next item that is to be answered; past the last one: there is none. */
static void skip_unasked(struct talk *t)
{
    while (!t->greets && t->answer_at < t->m->item_count && !is_asked(&t->m->items[t->answer_at]))
        t->answer_at++;
}

static bool all_answered(struct talk *t)
{
    skip_unasked(t);
    return t->answer_at >= (t->greets ? t->greetings : t->m->item_count);
}

/* An answer in t->line. False: it is none that these commands have. */
static bool take_answer(struct talk *t)
{
    struct kv_migration *m = t->m;
    bool good = t->line[0] == '+';
    if (all_answered(t) || (!good && t->line[0] != '-'))
        return false;
    if (!good && m->error[0] == '\0')
        snprintf(m->error, sizeof(m->error), "ERR Target instance replied with error: %s",
                 t->line + 1);
    if (!t->greets)
        m->items[t->answer_at].state = good ? KV_MIGRATE_ARRIVED : KV_MIGRATE_REFUSED;
    t->answer_at++;
    return true;
}

static bool take_bytes(struct talk *t, const char *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (bytes[i] != '\n') {
            if (t->line_len < sizeof(t->line) - 1)
                t->line[t->line_len++] = bytes[i];
            continue;
        }
        if (t->line_len > 0 && t->line[t->line_len - 1] == '\r')
            t->line_len--;
        t->line[t->line_len] = '\0';
        t->line_len = 0;
        if (!take_answer(t))
            return false;
    }
    return true;
}

static bool read_some(struct talk *t)
{
    char bytes[4096];
    struct iovec part = {.iov_base = bytes, .iov_len = sizeof(bytes)};
    size_t len;
    enum kv_err err = kv_socket_read(t->m->fd, &part, 1, &len);
    if (err == KV_ERR_AGAIN)
        return true;
    if (err != KV_OK)
        return false;
    t->moved_ms = mono_ms();
    return take_bytes(t, bytes, len);
}

static bool write_some(struct talk *t)
{
    size_t len;
    int count = (int)KV_MIN(t->part_count - t->part_at, (uint32_t)WRITE_PARTS);
    enum kv_err err = kv_socket_write(t->m->fd, t->parts + t->part_at, count, &len);
    if (err == KV_ERR_AGAIN)
        return true;
    if (err != KV_OK)
        return false;
    t->moved_ms = mono_ms();
    while (len > 0) {
        struct iovec *part = &t->parts[t->part_at];
        size_t step = KV_MIN(len, part->iov_len);
        part->iov_base = (char *)part->iov_base + step;
        part->iov_len -= step;
        len -= step;
        if (part->iov_len == 0)
            t->part_at++;
    }
    return true;
}

/* Sends all commands and takes all answers. False: the connection is no good any more. */
static bool converse(struct talk *t)
{
    t->moved_ms = mono_ms();
    compose(t);
    while (!all_answered(t)) {
        bool readable, writable, write = t->part_at < t->part_count;
        if (!wait_for(t, write, &readable, &writable) || (readable && !read_some(t)) ||
            (writable && !write_some(t))) {
            fail_io(t);
            return false;
        }
        compose(t);
    }
    return true;
}

void kv_migrate_talk(struct kv_errand *x)
{
    struct kv_migration *m = KV_CONTAINER_OF(x, struct kv_migration, errand);
    struct talk greeting = {.m = m}, talk = {.m = m};
    KV_ASSERT(m->error[0] == '\0');
    if (m->fd < 0) {
        if (!connect_to_target(&greeting))
            return;
        compose_greeting(&greeting);
        if (!converse(&greeting))
            return;
    }
    if (m->error[0] == '\0')
        (void)converse(&talk);
}
