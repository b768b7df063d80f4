/* Listening: sockets named by the options, and where new connections go.
 *
 * Worker 0 accepts for all: it gives a connection to the worker with the fewest, counting those
 * that are still on their way. Accepting is rare beside commands, and one acceptor keeps the choice
 * exact.
 */
#include "base/log.h"
#include "engine/worker.h"
#include "net/socket.h"
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#define ACCEPT_MAX 256 /* connections taken per round and socket */

static struct kv_worker *least_loaded(struct kv_engine *e)
{
    struct kv_worker *best = e->workers[0];
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < e->worker_count; i++) {
        struct kv_worker *w = e->workers[i];
        uint64_t arrived =
            kv_stat_read(&w->stats.connections) + kv_stat_read(&w->stats.rejected_connections);
        uint64_t underway = w->assigned > arrived ? w->assigned - arrived : 0;
        uint64_t load = kv_stat_read(&w->stats.clients) + underway;
        if (load < least) {
            least = load;
            best = w;
        }
    }
    return best;
}

/* The process is out of descriptors or memory, and the waiting connection keeps the socket ready:
 * looks away until the next periodic work. */
static KV_COLD void rest_listeners(struct kv_engine *e)
{
    for (uint32_t i = 0; i < e->listener_count; i++)
        (void)!kv_loop_set(e->workers[0]->loop, &e->listeners[i], 0);
    e->listeners_rest = true;
}

void kv_listen_again(struct kv_engine *e)
{
    e->listeners_rest = false;
    for (uint32_t i = 0; i < e->listener_count; i++)
        if (kv_loop_set(e->workers[0]->loop, &e->listeners[i], KV_IO_READ) != KV_OK)
            e->listeners_rest = true;
}

void kv_listen_handler(struct kv_io *io, uint32_t events)
{
    struct kv_worker *w = kv_this_worker;
    struct kv_engine *e = w->engine;
    bool is_unix = e->unix_listener[io - e->listeners];
    (void)events;
    for (int i = 0; i < ACCEPT_MAX; i++) {
        int fd;
        enum kv_err err = kv_socket_accept(io->fd, &fd);
        if (err == KV_ERR_AGAIN)
            return;
        if (err != KV_OK) {
            kv_log(KV_LOG_WARNING, "Accepting client connection: %s", strerror(errno));
            rest_listeners(e);
            return;
        }
        struct kv_worker *to = least_loaded(e);
        to->assigned++;
        if (to == w)
            kv_worker_accept(w, fd, is_unix);
        else
            kv_inbox_post(to, KV_MSG_ACCEPTED, (uint32_t)fd, is_unix, NULL);
    }
}

static enum kv_err add_listener(struct kv_engine *e, int fd, bool is_unix)
{
    KV_ASSERT(e->listener_count < KV_LISTEN_MAX);
    struct kv_io *io = &e->listeners[e->listener_count];
    *io = (struct kv_io){.fd = fd, .fn = kv_listen_handler};
    e->unix_listener[e->listener_count] = is_unix;
    enum kv_err err = kv_loop_set(e->workers[0]->loop, io, KV_IO_READ);
    if (err != KV_OK) {
        close(fd);
        return err;
    }
    e->listener_count++;
    return KV_OK;
}

static enum kv_err listen_tcp(struct kv_engine *e, const char *bind, char what[256])
{
    const struct kv_options *o = &e->options;
    bool optional = bind[0] == '-';
    if (optional)
        bind++;
    int fd;
    enum kv_err err = kv_socket_listen_tcp(bind, o->port, (int)o->tcp_backlog, &fd);
    if (err == KV_ERR_NOTFOUND && optional)
        return KV_OK;
    if (err != KV_OK) {
        snprintf(what, 256, "%.200s:%u", bind, o->port);
        return KV_ERR_IO;
    }
    return add_listener(e, fd, false);
}

enum kv_err kv_engine_listen(struct kv_engine *e, char what[256])
{
    const struct kv_options *o = &e->options;
    if (o->port != 0) {
        for (uint32_t i = 0; i < o->bind_count; i++) {
            enum kv_err err = listen_tcp(e, o->bind[i], what);
            if (err != KV_OK)
                return err;
        }
    }
    if (o->unixsocket[0] != '\0') {
        int fd;
        enum kv_err err =
            kv_socket_listen_unix(o->unixsocket, o->unixsocketperm, (int)o->tcp_backlog, &fd);
        if (err != KV_OK) {
            snprintf(what, 256, "%.250s", o->unixsocket);
            return err;
        }
        return add_listener(e, fd, true);
    }
    return KV_OK;
}

uint32_t kv_engine_listener_count(const struct kv_engine *e)
{
    return e->listener_count;
}
