/* Sockets: listening, accepting, options, names, and reading and writing without blocking. Plain
 * functions over descriptors; any thread. Every descriptor is close-on-exec and non-blocking. */
#ifndef KV_NET_SOCKET_H
#define KV_NET_SOCKET_H

#include "base/err.h"
#include "base/slice.h"
#include <sys/types.h>
#include <sys/uio.h>

/* Opens a listening TCP socket on an address ("127.0.0.1", "::1", "*" for every IPv4 address, "::*"
 * for every IPv6 address, or a host name). KV_ERR_NOTFOUND: no such address on this machine, or the
 * protocol is not supported; KV_ERR_IO: errno says why. */
enum kv_err kv_socket_listen_tcp(const char *address, uint32_t port, int backlog,
                                 int *fd_out) KV_MUST_CHECK;

/* Opens a listening unix socket; removes a socket file that is in the way. permissions 0: leave. */
enum kv_err kv_socket_listen_unix(const char *path, uint32_t permissions, int backlog,
                                  int *fd_out) KV_MUST_CHECK;

/* Accepts one connection. KV_ERR_AGAIN: none is waiting. KV_ERR_LIMIT: out of descriptors. */
enum kv_err kv_socket_accept(int listen_fd, int *fd_out) KV_MUST_CHECK;

/* Begins to connect to a host (an address or a name) and port, to the first of its addresses for
 * which that can be begun at number *next or behind it, and moves *next on: 0 at first, then again
 * for the next address when the connection was not made (kv_socket_connected). KV_ERR_NOTFOUND: no
 * such host, or no address is left; resolving a name may take seconds. */
enum kv_err kv_socket_connect_tcp(const char *host, uint32_t port, uint32_t *next,
                                  int *fd_out) KV_MUST_CHECK;

/* A socket that has become writable: KV_OK when the connection was made, else KV_ERR_IO. */
enum kv_err kv_socket_connected(int fd) KV_MUST_CHECK;

/* For threads that may wait: until the socket is readable or (`write`) writable, at most
 * timeout_ms. KV_ERR_AGAIN: neither. An error or the end of the stream counts as both. */
enum kv_err kv_socket_wait(int fd, bool write, int timeout_ms, bool *readable,
                           bool *writable) KV_MUST_CHECK;

/* No delay, and keepalive probes after `keepalive_seconds` (0: none). Failures are ignored: they
 * cost speed, not correctness. */
void kv_socket_tune(int fd, uint32_t keepalive_seconds);

/* "address:port" ("[...]:port" for IPv6) of a socket's peer or own side; "?:0" when unknown. */
size_t kv_socket_name(int fd, bool peer, char out[128]);
bool kv_socket_peer_is_loopback(int fd);

/* Reads what is there: KV_OK and *len > 0; KV_ERR_AGAIN; KV_ERR_CLOSED at the end of the stream;
 * KV_ERR_IO. Interrupted calls are repeated. */
enum kv_err kv_socket_read(int fd, const struct iovec *parts, int count, size_t *len) KV_MUST_CHECK;
enum kv_err kv_socket_write(int fd, const struct iovec *parts, int count,
                            size_t *len) KV_MUST_CHECK;

#endif
