#!/usr/bin/python3
"""The backend of the event loops: which one is used, what happens where the system refuses io_uring,
and connections under io_uring in greater numbers than its queues hold."""
import ctypes
import errno
import os
import socket
import struct
import subprocess

import pytest

from process import Server, sanitizer_environment

pytestmark = pytest.mark.kvik_only

IO_URING_SETUP = 425
PR_SET_SECCOMP, SECCOMP_MODE_FILTER, PR_SET_NO_NEW_PRIVS = 22, 2, 38
NEEDED_FLAGS = 1 << 12 | 1 << 13  # single issuer, deferred work: Linux 6.1


def refused_here():
    libc = ctypes.CDLL(None, use_errno=True)
    parameters = ctypes.create_string_buffer(struct.pack("=3I", 0, 0, NEEDED_FLAGS), 120)
    ring = libc.syscall(IO_URING_SETUP, 2, parameters)
    if ring < 0:
        return True
    os.close(ring)
    return False


needs_io_uring = pytest.mark.skipif(refused_here(), reason="io_uring is refused on this system")


def refuse_io_uring():
    """Between fork and exec: the call fails from now on as it does in many containers."""
    def line(code, true, false, number):
        return struct.pack("=HBBI", code, true, false, number)
    program = (line(0x20, 0, 0, 0) +  # load the number of the call
               line(0x15, 0, 1, IO_URING_SETUP) +
               line(0x06, 0, 0, 0x00050000 | errno.EPERM) +
               line(0x06, 0, 0, 0x7fff0000))
    code = ctypes.create_string_buffer(program, len(program))
    head = ctypes.create_string_buffer(struct.pack("@HP", 4, ctypes.addressof(code)))
    libc = ctypes.CDLL(None, use_errno=True)
    long = ctypes.c_ulong
    if libc.prctl(PR_SET_NO_NEW_PRIVS, long(1), long(0), long(0), long(0)) != 0 or \
            libc.prctl(PR_SET_SECCOMP, long(SECCOMP_MODE_FILTER), head) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


class RefusingServer(Server):
    """A server on a system that refuses io_uring."""

    def launch(self):
        with open(self.dir / "stdout", "ab") as out, open(self.dir / "stderr", "ab") as err:
            self.process = subprocess.Popen(self.command_line(), stdout=out, stderr=err,
                                            stdin=subprocess.DEVNULL, cwd=self.dir,
                                            env=sanitizer_environment(self.dir),
                                            preexec_fn=refuse_io_uring)


def backends(running):
    with running.raw() as raw:
        text = raw.cmd("INFO", "server", "kvik").decode()
    fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    return fields["multiplexing_api"], fields["io_backend"]


def test_epoll_is_used_when_asked_for(start_server):
    assert backends(start_server("--io-backend", "epoll")) == ("epoll", "epoll")


@needs_io_uring
def test_io_uring_is_used_when_asked_for(start_server):
    assert backends(start_server("--io-backend", "io_uring")) == ("io_uring", "io_uring")


def test_auto_is_one_of_them(start_server):
    api, backend = backends(start_server("--io-backend", "auto"))
    assert api == backend and api in ("epoll", "io_uring")


def test_who_insists_on_io_uring_is_told_that_it_is_refused():
    running = RefusingServer("--io-backend", "io_uring", wait=False)
    try:
        assert running.wait() == 1
        assert "Can't use io-backend io_uring: io_uring is not permitted" in running.log()
        assert not running.faults()
    finally:
        running.abandon()


def test_auto_takes_epoll_where_io_uring_is_refused():
    running = RefusingServer("--io-backend", "auto", "--loglevel", "verbose")
    assert backends(running) == ("epoll", "epoll")
    running.stop()


@needs_io_uring
def test_the_port_is_free_as_soon_as_the_server_has_ended(start_server):
    first = start_server("--io-backend", "io_uring")
    port = str(first.port)
    first.stop()
    for _ in range(3):
        running = start_server("--io-backend", "io_uring", "--port", port)
        running.stop()


@needs_io_uring
def test_more_connections_than_a_queue_holds(start_server):
    running = start_server("--io-backend", "io_uring")
    many = 2500
    sockets = [socket.create_connection(("127.0.0.1", running.port)) for _ in range(many)]
    for round_number in range(2):
        for sock in sockets:
            sock.sendall(b"PING\r\n")
        for sock in sockets:
            sock.settimeout(30)
            assert sock.recv(64) == b"+PONG\r\n"
    # Half of them end, in the way of a client that just goes and of one that says so.
    for sock in sockets[::2]:
        sock.shutdown(socket.SHUT_WR)
        assert sock.recv(64) == b""
    for sock in sockets[::2]:
        sock.close()
    with running.raw() as raw:
        assert b"connected_clients:%d\r\n" % (many // 2 + 1) in raw.cmd("INFO", "clients")
        assert raw.cmd("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes") == many // 2
    for sock in sockets[1::2]:
        assert sock.recv(64) == b""
        sock.close()


@needs_io_uring
def test_a_client_that_does_not_read_is_served_when_it_does(start_server):
    running = start_server("--io-backend", "io_uring")
    value = b"v" * 100000
    with running.raw() as raw:
        assert raw.cmd("SET", "k", value) == b"OK"
    with socket.create_connection(("127.0.0.1", running.port)) as sock:
        sock.settimeout(30)
        sock.sendall(b"GET k\r\n" * 300)
        expected = (b"$100000\r\n" + value + b"\r\n") * 300
        got = bytearray()
        while len(got) < len(expected):
            part = sock.recv(1 << 20)
            assert part
            got += part
        assert bytes(got) == expected
