/* The floor: a server that does nothing. It counts pipelined commands by the '*' at the start of a
 * line and answers +OK to each, on one thread with epoll, read and write, as the real servers do.
 *
 *     null PORT
 *
 * Its CPU per command is what the kernel's socket path and the least imaginable parsing cost on
 * this machine: no server on epoll gets below it. No reply but SET's is right. */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

static char input[1 << 16], output[1 << 17];

/* Commands that begin in the bytes: a '*' at the start or behind a line end. */
static size_t count_commands(const char *bytes, size_t len, char *last)
{
    size_t n = 0;
    for (const char *p = bytes; (p = memchr(p, '*', (size_t)(bytes + len - p))) != NULL; p++)
        n += p == bytes ? *last == '\n' : p[-1] == '\n';
    *last = bytes[len - 1];
    return n;
}

int main(int argc, char **argv)
{
    int listener = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons((uint16_t)(argc > 1 ? atoi(argv[1]) : 7000)),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    if (bind(listener, (struct sockaddr *)&a, sizeof(a)) < 0 || listen(listener, 511) < 0) {
        perror("null server");
        return 1;
    }
    int loop = epoll_create1(0);
    struct epoll_event events[256], ev = {.events = EPOLLIN, .data.fd = listener};
    epoll_ctl(loop, EPOLL_CTL_ADD, listener, &ev);
    static char last[65536];
    for (;;) {
        int n = epoll_wait(loop, events, 256, -1);
        for (int i = 0; i < n; i++) {
            int fd = events[i].data.fd;
            if (fd == listener) {
                fd = accept(listener, NULL, NULL);
                setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
                ev.data.fd = fd;
                last[fd % 65536] = '\n';
                epoll_ctl(loop, EPOLL_CTL_ADD, fd, &ev);
                continue;
            }
            ssize_t len = read(fd, input, sizeof(input));
            if (len <= 0) {
                close(fd);
                continue;
            }
            size_t commands = count_commands(input, (size_t)len, &last[fd % 65536]);
            for (size_t k = 0; k < commands; k++)
                memcpy(output + k * 5, "+OK\r\n", 5);
            if (commands > 0 && write(fd, output, commands * 5) < 0)
                close(fd);
        }
    }
}
