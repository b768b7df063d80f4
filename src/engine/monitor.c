/* Lines for monitors: the model is in monitor.h.
 *
 * A line's length is measured before it is written, word by word, with one function that does both:
 * words may be as large as a client's input.
 *
 * Passwords must not be seen by a monitor (secret.h). Commands with the flag `admin` are left out
 * whole (CONFIG, ACL SETUSER and their like).
 *
 * Rejected: one list of monitors under a lock: outputs belong to their workers.
 */
#include "engine/monitor.h"
#include "base/clock.h"
#include "engine/delivery.h"
#include "engine/secret.h"
#include "engine/worker.h"
#include <stdio.h>

#define HEAD_BYTES 192 /* of a line: time, database and address */

bool kv_monitor_active(const struct kv_worker *w)
{
    return atomic_load_explicit(&w->engine->monitor_count, memory_order_relaxed) != 0;
}

void kv_monitor_join(struct kv_client *c)
{
    struct kv_worker *w = c->worker;
    KV_ASSERT(!(c->flags & KV_CLIENT_MONITOR));
    c->flags |= KV_CLIENT_MONITOR;
    c->monitor_prev = NULL;
    c->monitor_next = w->monitors;
    if (w->monitors != NULL)
        w->monitors->monitor_prev = c;
    w->monitors = c;
    atomic_fetch_add(&w->monitor_count, 1);
    atomic_fetch_add(&w->engine->monitor_count, 1);
    w->late_ticks = 0; /* the others see it when they go on */
}

void kv_monitor_leave(struct kv_client *c)
{
    struct kv_worker *w = c->worker;
    if (!(c->flags & KV_CLIENT_MONITOR))
        return;
    c->flags &= ~(uint32_t)KV_CLIENT_MONITOR;
    if (c->monitor_prev != NULL)
        c->monitor_prev->monitor_next = c->monitor_next;
    else
        w->monitors = c->monitor_next;
    if (c->monitor_next != NULL)
        c->monitor_next->monitor_prev = c->monitor_prev;
    c->monitor_next = c->monitor_prev = NULL;
    atomic_fetch_sub(&w->monitor_count, 1);
    atomic_fetch_sub(&w->engine->monitor_count, 1);
}

/* --- lines --- */

/* Writes ` "word"` to `to`, or only measures it when that is NULL; returns its length. */
static size_t put_word(char *to, struct kv_slice word)
{
    static const char digits[] = "0123456789abcdef";
    static const char plain[] = "\n\r\t\a\b\"\\", letters[] = "nrtab\"\\";
    size_t len = 0;
#define PUT(c)                                                                                     \
    do {                                                                                           \
        if (to != NULL)                                                                            \
            to[len] = (char)(c);                                                                   \
        len++;                                                                                     \
    } while (0)
    PUT(' ');
    PUT('"');
    for (size_t i = 0; i < word.len; i++) {
        unsigned char c = (unsigned char)word.ptr[i];
        const char *found = c != '\0' ? strchr(plain, c) : NULL;
        if (found != NULL) {
            PUT('\\');
            PUT(letters[found - plain]);
        } else if (c >= ' ' && c <= '~') {
            PUT(c);
        } else {
            PUT('\\');
            PUT('x');
            PUT(digits[c >> 4]);
            PUT(digits[c & 15]);
        }
    }
    PUT('"');
#undef PUT
    return len;
}

static size_t put_words(char *to, const struct kv_command *cmd, const struct kv_slice *argv,
                        int argc)
{
    size_t len = 0;
    struct kv_secrets secrets = kv_secrets_begin(cmd, argv);
    for (int i = 0; i < argc; i++) {
        bool hidden = kv_secrets_next(&secrets);
        len += put_word(to != NULL ? to + len : NULL, hidden ? KV_SLICE("(redacted)") : argv[i]);
    }
    return len;
}

static size_t put_head(const struct kv_client *c, char head[HEAD_BYTES])
{
    const char *address = c->peer != NULL ? c->peer : "-";
    bool in_script = c->worker->call.flags & KV_CALL_IN_SCRIPT;
    bool is_unix = c->flags & KV_CLIENT_UNIX && !in_script;
    if (in_script)
        address = "lua";
    else if (is_unix)
        address = c->worker->engine->options.unixsocket;
    int64_t now_us = kv_clock_wall_us();
    int len = snprintf(head, HEAD_BYTES, "+%lld.%06d [%u %s%s]", (long long)(now_us / 1000000),
                       (int)(now_us % 1000000), c->db, is_unix ? "unix:" : "", address);
    return KV_MIN((size_t)len, (size_t)HEAD_BYTES - 1);
}

void kv_monitor_show(struct kv_client *c, const struct kv_command *cmd, const struct kv_slice *argv,
                     int argc)
{
    struct kv_worker *w = c->worker;
    struct kv_engine *e = w->engine;
    char head[HEAD_BYTES];
    if (cmd->flags & KV_CMD_ADMIN || c->flags & KV_CLIENT_APPLY)
        return;
    size_t head_len = put_head(c, head), words_len = put_words(NULL, cmd, argv, argc);
    struct kv_payload *p = kv_payload_try_create(head_len + words_len + 2);
    if (p == NULL)
        return;
    memcpy(p->bytes, head, head_len);
    size_t written = put_words(p->bytes + head_len, cmd, argv, argc);
    KV_ASSERT(written == words_len);
    memcpy(p->bytes + head_len + words_len, "\r\n", 2);
    for (uint32_t i = 0; i < e->worker_count; i++)
        if (atomic_load_explicit(&e->workers[i]->monitor_count, memory_order_relaxed) != 0)
            kv_delivery_post(w, e->workers[i], KV_DELIVER_MONITOR, NULL, p);
    kv_payload_unref(p);
}

void kv_monitor_deliver(struct kv_worker *w, struct kv_payload *payload)
{
    for (struct kv_client *c = w->monitors; c != NULL; c = c->monitor_next)
        kv_delivery_give(c, NULL, 0, payload);
}
