/* net/socket.h: listening, connecting, names, and what reading and writing tell apart. Everything
 * happens on loopback addresses and in a folder of its own. */
#include "mem/mem.h"
#include "net/socket.h"
#include "unit.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static int listen_local(uint32_t *port)
{
    struct sockaddr_in a;
    socklen_t len = sizeof(a);
    int fd = -1;
    ck_assert_int_eq(kv_socket_listen_tcp("127.0.0.1", 0, 16, &fd), KV_OK);
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&a, &len), 0);
    *port = ntohs(a.sin_port);
    return fd;
}

static int connect_local(uint32_t port)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons((uint16_t)port),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    return fd;
}

static int accept_one(int listener)
{
    int fd = -1;
    enum kv_err err;
    while ((err = kv_socket_accept(listener, &fd)) == KV_ERR_AGAIN)
        usleep(1000);
    ck_assert_int_eq(err, KV_OK);
    return fd;
}

static enum kv_err read_some(int fd, char *bytes, size_t size, size_t *len)
{
    struct iovec part = {bytes, size};
    return kv_socket_read(fd, &part, 1, len);
}

static void read_all(int fd, const char *expected)
{
    char bytes[64];
    size_t len = 0, n;
    while (len < strlen(expected)) {
        enum kv_err err = read_some(fd, bytes + len, sizeof(bytes) - len, &n);
        ck_assert(err == KV_OK || err == KV_ERR_AGAIN);
        len += err == KV_OK ? n : 0;
    }
    ck_assert_uint_eq(len, strlen(expected));
    ck_assert_mem_eq(bytes, expected, len);
}

START_TEST(a_connection_is_accepted_and_named)
{
    uint32_t port;
    int fd, listener = listen_local(&port);
    char name[128], expected[128];
    ck_assert_int_eq(kv_socket_accept(listener, &fd), KV_ERR_AGAIN);
    int client = connect_local(port);
    int server = accept_one(listener);
    snprintf(expected, sizeof(expected), "127.0.0.1:%u", port);
    ck_assert_uint_eq(kv_socket_name(server, false, name), strlen(expected));
    ck_assert_str_eq(name, expected);
    kv_socket_name(client, true, name);
    ck_assert_str_eq(name, expected);
    char peer[128];
    kv_socket_name(server, true, peer);
    kv_socket_name(client, false, name);
    ck_assert_str_eq(peer, name);
    ck_assert(kv_socket_peer_is_loopback(server));
    close(client);
    close(server);
    close(listener);
}
END_TEST

static enum kv_err wait_for_connection(int fd)
{
    bool readable, writable;
    enum kv_err err;
    while ((err = kv_socket_wait(fd, true, 1000, &readable, &writable)) == KV_ERR_AGAIN)
        ;
    ck_assert_int_eq(err, KV_OK);
    ck_assert(writable);
    return kv_socket_connected(fd);
}

START_TEST(a_connection_is_made_without_blocking)
{
    uint32_t port, next = 0;
    int fd = -1, listener = listen_local(&port);
    bool readable, writable;
    ck_assert_int_eq(kv_socket_connect_tcp("127.0.0.1", port, &next, &fd), KV_OK);
    ck_assert_uint_eq(next, 1);
    ck_assert(fcntl(fd, F_GETFL) & O_NONBLOCK);
    ck_assert(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    ck_assert_int_eq(wait_for_connection(fd), KV_OK);
    ck_assert_int_eq(kv_socket_wait(fd, false, 1, &readable, &writable), KV_ERR_AGAIN);
    int server = accept_one(listener);
    ck_assert_int_eq((int)write(server, "hello", 5), 5);
    ck_assert_int_eq(kv_socket_wait(fd, false, 10000, &readable, &writable), KV_OK);
    ck_assert(readable);
    ck_assert(!writable);
    read_all(fd, "hello");
    int other = -1;
    ck_assert_int_eq(kv_socket_connect_tcp("127.0.0.1", port, &next, &other), KV_ERR_NOTFOUND);
    close(fd);
    close(server);
    close(listener);
    next = 0;
    ck_assert_int_eq(kv_socket_connect_tcp("127.0.0.1", port, &next, &fd), KV_OK);
    ck_assert_int_eq(wait_for_connection(fd), KV_ERR_IO);
    ck_assert_int_eq(errno, ECONNREFUSED);
    close(fd);
    next = 0;
    ck_assert_int_eq(kv_socket_connect_tcp("no.such.host.invalid", port, &next, &fd),
                     KV_ERR_NOTFOUND);
}
END_TEST

START_TEST(descriptors_do_not_block_and_are_not_inherited)
{
    uint32_t port;
    int listener = listen_local(&port), client = connect_local(port);
    int fds[] = {listener, accept_one(listener)};
    for (size_t i = 0; i < KV_ARRAY_LEN(fds); i++) {
        ck_assert(fcntl(fds[i], F_GETFL) & O_NONBLOCK);
        ck_assert(fcntl(fds[i], F_GETFD) & FD_CLOEXEC);
    }
    close(client);
    close(fds[1]);
    close(listener);
}
END_TEST

START_TEST(reading_tells_nothing_from_the_end)
{
    uint32_t port;
    char bytes[16];
    size_t len;
    int listener = listen_local(&port), client = connect_local(port);
    int server = accept_one(listener);
    ck_assert_int_eq(read_some(server, bytes, sizeof(bytes), &len), KV_ERR_AGAIN);
    ck_assert_int_eq((int)write(client, "hello", 5), 5);
    read_all(server, "hello");
    close(client);
    enum kv_err err;
    while ((err = read_some(server, bytes, sizeof(bytes), &len)) == KV_ERR_AGAIN)
        usleep(1000);
    ck_assert_int_eq(err, KV_ERR_CLOSED);
    ck_assert_int_eq(read_some(1000000, bytes, sizeof(bytes), &len), KV_ERR_IO);
    ck_assert_int_eq(errno, EBADF);
    close(server);
    close(listener);
}
END_TEST

START_TEST(parts_are_filled_in_order)
{
    char first[3], second[10];
    struct iovec in[2] = {{first, 3}, {second, 10}};
    char head[] = "ab", tail[] = "cdefg";
    struct iovec out[3] = {{head, 2}, {head, 0}, {tail, 5}};
    int fds[2];
    size_t len;
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    ck_assert_int_eq(kv_socket_write(fds[0], out, 3, &len), KV_OK);
    ck_assert_uint_eq(len, 7);
    ck_assert_int_eq(kv_socket_read(fds[1], in, 2, &len), KV_OK);
    ck_assert_uint_eq(len, 7);
    ck_assert_mem_eq(first, "abc", 3);
    ck_assert_mem_eq(second, "defg", 4);
    close(fds[0]);
    close(fds[1]);
}
END_TEST

START_TEST(a_full_socket_says_try_again)
{
    static char bytes[1 << 16];
    struct iovec part = {bytes, sizeof(bytes)};
    int fds[2];
    size_t len = 0;
    enum kv_err err;
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    while ((err = kv_socket_write(fds[0], &part, 1, &len)) == KV_OK)
        ck_assert_uint_gt(len, 0);
    ck_assert_int_eq(err, KV_ERR_AGAIN);
    close(fds[1]);
    signal(SIGPIPE, SIG_IGN);
    ck_assert_int_eq(kv_socket_write(fds[0], &part, 1, &len), KV_ERR_IO);
    ck_assert_int_eq(errno, EPIPE);
    close(fds[0]);
}
END_TEST

START_TEST(an_address_in_use_or_unknown_is_told)
{
    uint32_t port;
    int fd, listener = listen_local(&port);
    ck_assert_int_eq(kv_socket_listen_tcp("127.0.0.1", port, 16, &fd), KV_ERR_IO);
    ck_assert_int_eq(errno, EADDRINUSE);
    /* Of a range for documentation: on no machine. */
    ck_assert_int_eq(kv_socket_listen_tcp("192.0.2.1", 0, 16, &fd), KV_ERR_NOTFOUND);
    ck_assert_int_eq(errno, EADDRNOTAVAIL);
    ck_assert_int_eq(kv_socket_listen_tcp("300.1.1.1", 0, 16, &fd), KV_ERR_NOTFOUND);
    close(listener);
}
END_TEST

START_TEST(every_address_is_a_star)
{
    int fd;
    char name[128];
    ck_assert_int_eq(kv_socket_listen_tcp("*", 0, 16, &fd), KV_OK);
    kv_socket_name(fd, false, name);
    ck_assert_int_eq(strncmp(name, "0.0.0.0:", 8), 0);
    close(fd);
    enum kv_err err = kv_socket_listen_tcp("::*", 0, 16, &fd);
    if (err == KV_OK) {
        kv_socket_name(fd, false, name);
        ck_assert_int_eq(strncmp(name, "[::]:", 5), 0);
        close(fd);
    } else {
        ck_assert_int_eq(err, KV_ERR_NOTFOUND); /* a machine without IPv6 */
    }
}
END_TEST

START_TEST(an_unconnected_socket_has_no_peer)
{
    char name[128];
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    kv_socket_name(fd, true, name);
    ck_assert_str_eq(name, "?:0");
    ck_assert(!kv_socket_peer_is_loopback(fd));
    close(fd);
}
END_TEST

START_TEST(options_are_set)
{
    uint32_t port;
    int value = 0;
    socklen_t len = sizeof(value);
    int listener = listen_local(&port), client = connect_local(port);
    kv_socket_tune(client, 0);
    ck_assert_int_eq(getsockopt(client, SOL_SOCKET, SO_KEEPALIVE, &value, &len), 0);
    ck_assert_int_eq(value, 0);
    kv_socket_tune(client, 30);
    ck_assert_int_eq(getsockopt(client, SOL_SOCKET, SO_KEEPALIVE, &value, &len), 0);
    ck_assert_int_ne(value, 0);
    kv_socket_tune(-1, 30);
    close(client);
    close(listener);
}
END_TEST

START_TEST(a_unix_socket_has_permissions_and_replaces_a_stale_one)
{
    char folder[] = "/tmp/kvik-unit-socket-XXXXXX", path[128], longer[200];
    struct stat st;
    int fd, again;
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/socket", folder);
    ck_assert_int_eq(kv_socket_listen_unix(path, 0600, 16, &fd), KV_OK);
    ck_assert_int_eq(stat(path, &st), 0);
    ck_assert(S_ISSOCK(st.st_mode));
    ck_assert_uint_eq(st.st_mode & 0777, 0600);
    close(fd);
    ck_assert_int_eq(kv_socket_listen_unix(path, 0, 16, &again), KV_OK);
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    memcpy(a.sun_path, path, strlen(path));
    int client = socket(AF_UNIX, SOCK_STREAM, 0);
    ck_assert_int_eq(connect(client, (struct sockaddr *)&a, sizeof(a)), 0);
    int server = accept_one(again);
    ck_assert(kv_socket_peer_is_loopback(server));
    close(server);
    close(client);
    close(again);
    unlink(path);

    memset(longer, 'x', sizeof(longer) - 1);
    longer[sizeof(longer) - 1] = '\0';
    ck_assert_int_eq(kv_socket_listen_unix(longer, 0, 16, &fd), KV_ERR_IO);
    ck_assert_int_eq(errno, ENAMETOOLONG);
    /* What is no socket is not removed. */
    fd = open(path, O_CREAT | O_WRONLY, 0600);
    close(fd);
    ck_assert_int_eq(kv_socket_listen_unix(path, 0, 16, &fd), KV_ERR_IO);
    ck_assert_int_eq(errno, EADDRINUSE);
    ck_assert_int_eq(unlink(path), 0);
    rmdir(folder);
}
END_TEST

int main(void)
{
    struct unit u;
    kv_mem_init();
    unit_begin(&u, "socket");
    unit_add(&u, a_connection_is_accepted_and_named);
    unit_add(&u, a_connection_is_made_without_blocking);
    unit_add(&u, descriptors_do_not_block_and_are_not_inherited);
    unit_add(&u, reading_tells_nothing_from_the_end);
    unit_add(&u, parts_are_filled_in_order);
    unit_add(&u, a_full_socket_says_try_again);
    unit_add(&u, an_address_in_use_or_unknown_is_told);
    unit_add(&u, every_address_is_a_star);
    unit_add(&u, an_unconnected_socket_has_no_peer);
    unit_add(&u, options_are_set);
    unit_add(&u, a_unix_socket_has_permissions_and_replaces_a_stale_one);
    return unit_run(&u);
}
