/* Socket helpers: thin, without state.
 *
 * Errors keep errno so that the caller can log the reason; what a caller must tell apart (nothing
 * to do, closed, no such address) is an error value of its own. IPv6 sockets take IPv6 only, so
 * that "*" and "::*" can be bound beside each other. A socket file that is in the way of a unix
 * socket is removed, any other file is not. Signals never end a call: it is repeated. */
#include "net/socket.h"
#include "base/assert.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static enum kv_err close_and_fail(int fd, enum kv_err err)
{
    int saved = errno;
    close(fd);
    errno = saved;
    return err;
}

static enum kv_err listen_on(const struct addrinfo *a, int backlog, int *fd_out)
{
    int fd = socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, a->ai_protocol);
    if (fd < 0)
        return errno == EAFNOSUPPORT || errno == EPROTONOSUPPORT ? KV_ERR_NOTFOUND : KV_ERR_IO;
    int yes = 1;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    if (a->ai_family == AF_INET6)
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &yes, sizeof(yes));
    if (bind(fd, a->ai_addr, a->ai_addrlen) < 0)
        return close_and_fail(fd, errno == EADDRNOTAVAIL ? KV_ERR_NOTFOUND : KV_ERR_IO);
    if (listen(fd, backlog) < 0)
        return close_and_fail(fd, KV_ERR_IO);
    *fd_out = fd;
    return KV_OK;
}

enum kv_err kv_socket_listen_tcp(const char *address, uint32_t port, int backlog, int *fd_out)
{
    char service[16];
    snprintf(service, sizeof(service), "%u", port);
    struct addrinfo hints = {.ai_family = AF_UNSPEC,
                             .ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    if (strcmp(address, "*") == 0) {
        hints.ai_family = AF_INET;
        address = NULL;
    } else if (strcmp(address, "::*") == 0) {
        hints.ai_family = AF_INET6;
        address = NULL;
    }
    struct addrinfo *list;
    if (getaddrinfo(address, service, &hints, &list) != 0) {
        errno = EADDRNOTAVAIL;
        return KV_ERR_NOTFOUND;
    }
    enum kv_err err = KV_ERR_NOTFOUND;
    for (struct addrinfo *a = list; a != NULL; a = a->ai_next) {
        err = listen_on(a, backlog, fd_out);
        if (err == KV_OK)
            break;
    }
    int saved = errno;
    freeaddrinfo(list);
    errno = saved;
    return err;
}

static enum kv_err begin_connection(const struct addrinfo *a, int *fd_out)
{
    int fd = socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, a->ai_protocol);
    if (fd < 0)
        return KV_ERR_IO;
    if (connect(fd, a->ai_addr, a->ai_addrlen) < 0 && errno != EINPROGRESS)
        return close_and_fail(fd, KV_ERR_IO);
    *fd_out = fd;
    return KV_OK;
}

enum kv_err kv_socket_connect_tcp(const char *host, uint32_t port, uint32_t *next, int *fd_out)
{
    char service[16];
    snprintf(service, sizeof(service), "%u", port);
    struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    struct addrinfo *list;
    if (getaddrinfo(host, service, &hints, &list) != 0)
        return KV_ERR_NOTFOUND;
    enum kv_err err = KV_ERR_NOTFOUND;
    uint32_t number = 0;
    for (struct addrinfo *a = list; a != NULL && err != KV_OK; a = a->ai_next, number++)
        if (number >= *next)
            err = begin_connection(a, fd_out);
    *next = number;
    freeaddrinfo(list);
    return err == KV_OK ? KV_OK : KV_ERR_NOTFOUND;
}

enum kv_err kv_socket_connected(int fd)
{
    int error = 0;
    socklen_t len = sizeof(error);
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0)
        return KV_ERR_IO;
    errno = error;
    return error == 0 ? KV_OK : KV_ERR_IO;
}

enum kv_err kv_socket_wait(int fd, bool write, int timeout_ms, bool *readable, bool *writable)
{
    struct pollfd p = {.fd = fd, .events = (short)(POLLIN | (write ? POLLOUT : 0))};
    int n = poll(&p, 1, timeout_ms);
    if (n < 0 && errno != EINTR)
        return KV_ERR_IO;
    bool over = n > 0 && p.revents & (POLLERR | POLLHUP | POLLNVAL);
    *readable = n > 0 && (over || p.revents & POLLIN);
    *writable = n > 0 && write && (over || p.revents & POLLOUT);
    return *readable || *writable ? KV_OK : KV_ERR_AGAIN;
}

enum kv_err kv_socket_listen_unix(const char *path, uint32_t permissions, int backlog, int *fd_out)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof(addr.sun_path)) {
        errno = ENAMETOOLONG;
        return KV_ERR_IO;
    }
    memcpy(addr.sun_path, path, strlen(path));
    struct stat st;
    if (lstat(path, &st) == 0 && S_ISSOCK(st.st_mode))
        unlink(path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return KV_ERR_IO;
    if (bind(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0)
        return close_and_fail(fd, KV_ERR_IO);
    if (permissions != 0 && chmod(path, (mode_t)permissions) < 0)
        return close_and_fail(fd, KV_ERR_IO);
    if (listen(fd, backlog) < 0)
        return close_and_fail(fd, KV_ERR_IO);
    *fd_out = fd;
    return KV_OK;
}

enum kv_err kv_socket_accept(int listen_fd, int *fd_out)
{
    for (;;) {
        int fd = accept4(listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            *fd_out = fd;
            return KV_OK;
        }
        switch (errno) {
        case EINTR:
        case ECONNABORTED:
            continue;
        case EAGAIN:
            return KV_ERR_AGAIN;
        case EMFILE:
        case ENFILE:
        case ENOBUFS:
        case ENOMEM:
            return KV_ERR_LIMIT;
        default:
            return KV_ERR_IO;
        }
    }
}

void kv_socket_tune(int fd, uint32_t keepalive_seconds)
{
    int yes = 1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
    if (keepalive_seconds == 0)
        return;
    int idle = (int)keepalive_seconds;
    int interval = KV_MAX(idle / 3, 1);
    int count = 3;
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof(yes));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof(interval));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof(count));
}

union any_address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    struct sockaddr_storage storage;
};

static bool address_of(int fd, bool peer, union any_address *a)
{
    socklen_t len = sizeof(*a);
    memset(a, 0, sizeof(*a));
    return (peer ? getpeername(fd, &a->any, &len) : getsockname(fd, &a->any, &len)) == 0;
}

size_t kv_socket_name(int fd, bool peer, char out[128])
{
    union any_address a;
    char text[INET6_ADDRSTRLEN];
    if (address_of(fd, peer, &a)) {
        if (a.any.sa_family == AF_INET &&
            inet_ntop(AF_INET, &a.v4.sin_addr, text, sizeof(text)) != NULL)
            return (size_t)snprintf(out, 128, "%s:%u", text, ntohs(a.v4.sin_port));
        if (a.any.sa_family == AF_INET6 &&
            inet_ntop(AF_INET6, &a.v6.sin6_addr, text, sizeof(text)) != NULL)
            return (size_t)snprintf(out, 128, "[%s]:%u", text, ntohs(a.v6.sin6_port));
    }
    return (size_t)snprintf(out, 128, "?:0");
}

bool kv_socket_peer_is_loopback(int fd)
{
    union any_address a;
    if (!address_of(fd, true, &a))
        return false;
    if (a.any.sa_family == AF_INET)
        return ntohl(a.v4.sin_addr.s_addr) >> 24 == 127;
    if (a.any.sa_family == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(&a.v6.sin6_addr) ||
               (IN6_IS_ADDR_V4MAPPED(&a.v6.sin6_addr) && a.v6.sin6_addr.s6_addr[12] == 127);
    return a.any.sa_family == AF_UNIX;
}

enum kv_err kv_socket_read(int fd, const struct iovec *parts, int count, size_t *len)
{
    for (;;) {
        ssize_t n =
            count == 1 ? read(fd, parts->iov_base, parts->iov_len) : readv(fd, parts, count);
        if (n > 0) {
            *len = (size_t)n;
            return KV_OK;
        }
        if (n == 0)
            return KV_ERR_CLOSED;
        if (errno == EAGAIN)
            return KV_ERR_AGAIN;
        if (errno != EINTR)
            return KV_ERR_IO;
    }
}

enum kv_err kv_socket_write(int fd, const struct iovec *parts, int count, size_t *len)
{
    for (;;) {
        ssize_t n =
            count == 1 ? write(fd, parts->iov_base, parts->iov_len) : writev(fd, parts, count);
        if (n >= 0) {
            *len = (size_t)n;
            return KV_OK;
        }
        if (errno == EAGAIN)
            return KV_ERR_AGAIN;
        if (errno != EINTR)
            return KV_ERR_IO;
    }
}
