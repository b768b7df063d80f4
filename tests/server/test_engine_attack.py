#!/usr/bin/python3
"""Clients that behave badly: they vanish at every moment, flood, do not read, send half commands
and kill each other, while others go on. Afterwards the server answers, holds nothing of them, and
its log and sanitizer reports are clean (server/process.py judges both).
"""
import random
import socket
import struct
import threading
import time

import pytest

from process import TIME_SCALE, Server
from raw import Closed, Error, encode

SECONDS = min(1.0 * TIME_SCALE, 2.5)  # of load in one test
THREADS = 4
BIG = 1 << 20


@pytest.fixture(scope="module")
def server():
    running = Server(threads=THREADS)
    yield running
    running.stop()


def wait_for(condition, seconds=10):
    deadline = time.monotonic() + seconds * TIME_SCALE
    while not condition():
        assert time.monotonic() < deadline, "still not so after %s s" % seconds
        time.sleep(0.01)


def info(conn, name, section="all"):
    for line in bytes(conn.cmd("INFO", section)).splitlines():
        if line.startswith(name.encode() + b":"):
            return line.split(b":", 1)[1].decode()
    raise KeyError(name)


def clients(conn):
    return len(bytes(conn.cmd("CLIENT", "LIST")).splitlines())


def reset(conn):
    """Ends the connection with RST instead of FIN."""
    conn.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    conn.close()


class Crowd:
    """Threads that call work(random) until the time is over; the first error counts."""

    def __init__(self, seconds=SECONDS):
        self.seconds = seconds
        self.stopping = threading.Event()
        self.errors = []
        self.threads = []

    def add(self, work, copies=1):
        for copy in range(copies):
            dice = random.Random("%s %s" % (work.__name__, copy))
            self.threads.append(threading.Thread(target=self.loop, args=(work, dice)))

    def loop(self, work, dice):
        try:
            while not self.stopping.is_set():
                work(dice)
        except BaseException as problem:  # shown by run()
            self.errors.append((work.__name__, problem))
            self.stopping.set()

    def run(self):
        for thread in self.threads:
            thread.start()
        self.stopping.wait(self.seconds)
        self.stopping.set()
        for thread in self.threads:
            thread.join(60 * TIME_SCALE)
            assert not thread.is_alive(), "no answer: deadlock?"
        if self.errors:
            raise self.errors[0][1]


# --- requests cut at bad places ---


@pytest.mark.parametrize("before", [b"\r\n", b"\n", b" \r\n", b"\r\n\r\n", b"*0\r\n", b"*-1\r\n",
                                    b"*0\r\n\n*0\r\n", b"*1\r\n$4\r\nPING\r\n\n"])
@pytest.mark.parametrize("large", ["argument", "arguments"])
def test_large_command_behind_empty_requests(raw, before, large):
    """What begins a large command is found behind requests that have nothing to run."""
    value = b"x" * 70000
    command = encode("SET", "k", value) if large == "argument" else \
        encode("MSET", *[b"key"] * 8000)
    sent = before + command
    cut = len(before) + 20000
    raw.send(sent[:cut])
    time.sleep(0.02)
    raw.send(sent[cut:])
    if b"PING" in before:
        assert raw.read() == b"PONG"
    assert raw.read() == b"OK"
    assert raw.cmd("PING") == b"PONG"


def test_blank_lines_behind_a_pipeline(raw):
    raw.send((encode("PING") + b"\r\n\n*0\r\n") * 5000 + b"\n" * 70000 + encode("PING"))
    for _ in range(5001):
        raw.expect(b"+PONG\r\n")


def test_vanishing_in_the_middle_of_anything(server):
    """Memory and connections return whatever a client was about to do when it went away."""
    begun = [
        b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$%d\r\n" % BIG + b"x" * 300000,
        b"*100000\r\n" + b"$5\r\nhello\r\n" * 5000,
        b"*2\r\n$4\r\nPI",
        b"GET some", b"*", b"\n", b"*0\r\n",
        encode("MULTI") + encode("SET", "k", "x" * 50000) * 3,
        encode("WATCH", *["w%d" % i for i in range(200)]) + encode("MULTI"),
        encode("CLIENT", "REPLY", "OFF") + encode("SET", "k", "v"),
        encode("SUBSTR", "big", "0", "-1") * 40,
        encode("GET", "big") * 40,
        encode("SET", "k", "x" * 100000) + encode("KEYS", "*"),
    ]
    with server.raw() as control:
        control.cmd("FLUSHALL")
        control.cmd("SET", "big", b"b" * BIG)
        wait_for(lambda: clients(control) == 1)  # those of earlier tests are gone

        def visit(dice):
            conn = server.raw()
            conn.send(dice.choice(begun))
            if dice.random() < 0.3:
                time.sleep(0.005)
            if dice.random() < 0.5:
                reset(conn)
            else:
                conn.close()

        crowd = Crowd()
        crowd.add(visit, 4)
        crowd.run()
        wait_for(lambda: clients(control) == 1)
        assert control.cmd("EXISTS", "big") == 1
        for name in ("w0", "w199"):
            assert control.cmd("SET", name, "1") == b"OK"
        wait_for(lambda: int(info(control, "watching_clients")) == 0)


def test_half_closed_socket_gets_its_answers(server):
    """A client that has sent everything and closed its sending side still reads all replies, also
    of commands that had to wait for others."""
    def visit(dice):
        with server.raw() as conn:
            count = dice.randrange(1, 200)
            line = dice.choice([encode("INCR", "n"), encode("DBSIZE"), encode("MSET", "a", 1, "n", 2),
                                encode("FLUSHDB"), encode("SCAN", "0")])
            conn.send(line * count)
            conn.sock.shutdown(socket.SHUT_WR)
            for _ in range(count):
                assert not isinstance(conn.read(), Error)
            conn.expect_closed()

    crowd = Crowd()
    crowd.add(visit, 6)
    crowd.run()


# --- waiting connections that go away ---


def test_vanishing_while_parked(server):
    """Connections wait for a busy shard and for the gate, and go away while they do."""
    names = ["p%d" % number for number in range(3)]

    def exclusive(dice):
        with server.raw() as conn:
            for _ in range(dice.randrange(1, 20)):
                conn.send_cmd(*dice.choice([("DBSIZE",), ("KEYS", "*"), ("FLUSHALL",),
                                            ("SWAPDB", 0, 1), ("INFO", "clients"),
                                            ("CLIENT", "LIST")]))
            if dice.random() < 0.5:
                reset(conn)

    def plain(dice):
        with server.raw() as conn:
            conn.send(encode("MSET", *sum([[name, dice.random()] for name in names], [])) *
                      dice.randrange(1, 400))
            if dice.random() < 0.5:
                conn.send(encode("MULTI") + encode("MGET", *names) + encode("KEYS", "*") +
                          encode("EXEC"))
            if dice.random() < 0.7:
                reset(conn)

    def steady(dice):
        with server.raw(timeout=30) as conn:
            for _ in range(20):
                assert conn.cmd("INCR", "steady" + str(dice.randrange(4))) > 0
                assert conn.cmd("SCAN", "0")[0] is not None

    crowd = Crowd()
    crowd.add(exclusive, 3)
    crowd.add(plain, 3)
    crowd.add(steady, 2)
    crowd.run()
    with server.raw() as control:
        wait_for(lambda: clients(control) == 1)


def test_kill_storm(server):
    """Everybody kills everybody; who survives goes on."""
    def victim(dice):
        try:
            with server.raw() as conn:
                for _ in range(50):
                    conn.send(encode("MSET", "a", 1, "b", 2) * 30 + encode("GET", "a"))
                    for _ in range(31):
                        conn.read()
                    conn.cmd("WATCH", "a", "b")
                    conn.cmd("MULTI")
                    conn.cmd("SET", "a", "x" * 20000)
                    if dice.random() < 0.7:
                        conn.cmd("EXEC")
        except (Closed, BrokenPipeError, ConnectionResetError):
            pass

    def killer(dice):
        try:
            with server.raw() as conn:
                for _ in range(5):
                    lines = bytes(conn.cmd("CLIENT", "LIST")).splitlines()
                    ids = [line.split()[0][3:] for line in lines]
                    conn.cmd("CLIENT", "KILL", "ID", dice.choice(ids), "SKIPME", "no")
                    if dice.random() < 0.1:
                        conn.cmd("CLIENT", "KILL", "TYPE", "normal")
        except (Closed, BrokenPipeError, ConnectionResetError):
            pass

    crowd = Crowd()
    crowd.add(victim, 5)
    crowd.add(killer, 3)
    crowd.run()
    with server.raw() as control:
        wait_for(lambda: clients(control) == 1)
        assert int(info(control, "connected_clients")) == 1


def test_kill_inside_transactions(server):
    with server.raw() as conn, server.raw() as other:
        other_id = other.cmd("CLIENT", "ID")
        conn.send(encode("MULTI") + encode("SET", "a", 1) +
                  encode("CLIENT", "KILL", "ID", other_id) +
                  encode("CLIENT", "KILL", "ID", conn.cmd("CLIENT", "ID"), "SKIPME", "no") +
                  encode("SET", "a", 2) + encode("EXEC"))
        assert [conn.read() for _ in range(5)] == [b"OK"] + [b"QUEUED"] * 4
        assert conn.read() == [b"OK", 1, 1, b"OK"]
        conn.expect_closed()
        other.expect_closed()


# --- CLIENT PAUSE ---


def test_pause_with_exec_and_vanishing_clients(server):
    with server.raw() as control:
        def pauser(dice):
            with server.raw() as conn:
                conn.cmd("CLIENT", "PAUSE", dice.randrange(1, 40),
                         dice.choice(["WRITE", "ALL"]))
                time.sleep(dice.random() * 0.02)
                assert conn.cmd("CLIENT", "UNPAUSE") == b"OK"

        def writer(dice):
            with server.raw(timeout=30) as conn:
                for _ in range(10):
                    conn.send(encode("MULTI") + encode("INCR", "t") + encode("DBSIZE") +
                              encode("EXEC") + encode("GET", "t") + encode("FLUSHDB") * 2)
                    replies = [conn.read() for _ in range(7)]
                    assert isinstance(replies[3], list) and len(replies[3]) == 2
                if dice.random() < 0.5:
                    conn.send(encode("MULTI") + encode("INCR", "t") + encode("EXEC") * 3)
                    reset(conn)

        crowd = Crowd()
        crowd.add(pauser, 1)
        crowd.add(writer, 5)
        crowd.run()
        control.cmd("CLIENT", "UNPAUSE")
        wait_for(lambda: clients(control) == 1)


def test_batches_return_after_a_pause_has_run_out(server):
    """A pause that ends by itself leaves nothing behind."""
    with server.raw() as conn:
        conn.cmd("CLIENT", "PAUSE", 20, "WRITE")
        time.sleep(0.05)
        conn.send(encode("GET", "k") * 64)
        for _ in range(64):
            conn.read()
        before = int(info(conn, "batch_commands"))
        conn.send(encode("GET", "k") * 64)
        for _ in range(64):
            conn.read()
        assert int(info(conn, "batch_commands")) >= before + 32


def test_paused_client_is_not_idle(start_server):
    """`timeout` closes those who are silent, not those whom we keep waiting."""
    running = start_server("--timeout", "1", threads=THREADS)
    with running.raw(timeout=20) as conn, running.raw() as idle, running.raw() as control:
        assert control.cmd("CLIENT", "PAUSE", "3500", "WRITE") == b"OK"
        began = time.monotonic()
        conn.send_cmd("SET", "k", "v")
        idle.expect_closed()
        assert conn.read() == b"OK"
        assert time.monotonic() - began > 3


def test_reset_ends_a_paused_client(server):
    """A connection that is in error goes at once, not when the pause ends."""
    with server.raw() as control:
        control.cmd("CLIENT", "PAUSE", "60000", "WRITE")
        for _ in range(20):
            conn = server.raw()
            conn.send(encode("SET", "k", "v") * 10)
            time.sleep(0.002)
            conn.send(encode("SET", "k", "v"))
            time.sleep(0.002)
            reset(conn)
        wait_for(lambda: clients(control) == 1)
        control.cmd("CLIENT", "UNPAUSE")


# --- output ---


def test_large_values_change_while_they_are_sent(server):
    """A reply by reference shows the value of its moment, whole."""
    size = 3 * BIG
    with server.raw() as control:
        control.cmd("SET", "v", b"a" * size)

        def writer(dice):
            with server.raw() as conn:
                letter = dice.choice([b"a", b"b", b"c"])
                for line in (("SET", "v", letter * size), ("SETRANGE", "v", 0, letter * 30000),
                             ("APPEND", "v", letter), ("SETBIT", "v", 7, 1),
                             ("COPY", "v", "w", "REPLACE"), ("RENAME", "w", "v"),
                             ("DEL", "v"), ("SET", "v", letter * size)):
                    conn.cmd(*line)

        def slow_reader(dice):
            with server.raw(timeout=30) as conn:
                conn.send(encode("GET", "v") * 4 + encode("PING"))
                time.sleep(dice.random() * 0.05)
                if dice.random() < 0.3:
                    reset(conn)
                    return
                for _ in range(4):
                    value = conn.read()
                    if value is not None and len(value) == size:
                        # SETRANGE changes only a beginning, SETBIT only a byte of it.
                        assert len(set(value[40000::4096])) == 1
                assert conn.read() == b"PONG"

        crowd = Crowd()
        crowd.add(writer, 2)
        crowd.add(slow_reader, 3)
        crowd.run()
        control.cmd("FLUSHALL")
        wait_for(lambda: clients(control) == 1)
        wait_for(lambda: int(info(control, "used_memory_dataset")) < BIG)


def test_pipeline_of_a_hundred_thousand_without_reading(server):
    count = 100000
    with server.raw(timeout=60) as conn:
        sender = threading.Thread(target=conn.send, args=(encode("INCR", "many") * count,))
        sender.start()
        time.sleep(0.2)
        with server.raw() as other:
            assert other.cmd("PING") == b"PONG"
        for number in range(1, count + 1):
            conn.expect(b":%d\r\n" % number)
        sender.join(60)


def test_reader_that_never_reads_is_closed_at_the_limit(start_server):
    running = start_server("--client-output-buffer-limit", "normal 4mb 0 0", threads=THREADS)
    with running.raw() as control:
        control.cmd("SET", "v", b"v" * BIG)
        with running.raw() as conn:
            conn.send(encode("GET", "v") * 100)
            # The count of clients would also fit before the connection was taken, and who reads
            # then gets everything.
            wait_for(lambda: int(info(control, "client_output_buffer_limit_disconnections")) == 1)
            conn.read_to_end()
        with running.raw() as conn:  # inside a transaction, and with small replies
            conn.send(encode("MULTI") + encode("GET", "v") * 20 + encode("EXEC"))
            wait_for(lambda: int(info(control, "client_output_buffer_limit_disconnections")) == 2)
        wait_for(lambda: clients(control) == 1)


def test_muted_replies_of_every_kind(server):
    """What CLIENT REPLY hides leaves no byte, references and deferred lengths included."""
    with server.raw() as conn:
        conn.cmd("SET", "big", b"b" * 50000)
        hidden = encode("GET", "big") + encode("MGET", "big", "none", "big") + \
            encode("KEYS", "*") + encode("SCAN", "0") + encode("NOSUCH") + encode("GET") + \
            encode("LCS", "big", "none", "IDX") + encode("RANDOMKEY") + encode("COMMAND", "COUNT")
        conn.send(encode("PING") + encode("GET", "big") + encode("CLIENT", "REPLY", "OFF") +
                  hidden * 10 + encode("CLIENT", "REPLY", "ON") + encode("PING"))
        conn.expect(b"+PONG\r\n$50000\r\n" + b"b" * 50000 + b"\r\n+OK\r\n+PONG\r\n")
        conn.send((encode("CLIENT", "REPLY", "SKIP") + encode("GET", "big") +
                   encode("ECHO", "x")) * 300)
        for _ in range(300):
            conn.expect(b"$1\r\nx\r\n")
        conn.send(encode("CLIENT", "REPLY", "OFF") + encode("MULTI") + encode("GET", "big") +
                  encode("EXEC") + encode("CLIENT", "REPLY", "ON"))
        conn.expect(b"+OK\r\n")


# --- many connections, large input ---


def test_thousand_connections_at_once(server):
    with server.raw() as control:
        for _ in range(2):
            crowd = [server.raw() for _ in range(1000)]
            for conn in crowd:
                conn.send(encode("INCR", "c") + encode("DBSIZE"))
            for conn in crowd:
                assert conn.read() > 0
                assert conn.read() >= 1
            assert clients(control) == 1001
            for number, conn in enumerate(crowd):
                reset(conn) if number % 2 else conn.close()
            wait_for(lambda: clients(control) == 1)


def test_large_argument_at_a_busy_shard(server):
    """A command that came in pieces waits for its shard, for the gate, for the end of a pause, and
    has its large argument afterwards."""
    def big_writer(dice):
        with server.raw(timeout=30) as conn:
            letter = dice.choice([b"x", b"y"])
            sent = encode("SET", "hot", letter * BIG)
            cut = dice.randrange(1, len(sent))
            conn.send(sent[:cut])
            time.sleep(0.001)
            conn.send(sent[cut:] + encode("STRLEN", "hot") + encode("PING"))
            assert conn.read() == b"OK"
            assert conn.read() in (0, 1, BIG)
            assert conn.read() == b"PONG"

    def small_writer(dice):
        with server.raw(timeout=30) as conn:
            conn.send(encode("SET", "hot", "1") * 200 + encode("MSET", "hot", 1, "a", 2) * 100)
            for _ in range(300):
                assert conn.read() == b"OK"

    def exclusive(dice):
        with server.raw(timeout=30) as conn:
            conn.cmd("KEYS", "*")
            conn.cmd("CLIENT", "PAUSE", 5, "WRITE")
            conn.cmd("FLUSHALL")

    crowd = Crowd()
    crowd.add(big_writer, 3)
    crowd.add(small_writer, 2)
    crowd.add(exclusive, 1)
    crowd.run()
    with server.raw() as control:
        control.cmd("FLUSHALL")
        wait_for(lambda: int(info(control, "used_memory_dataset")) < BIG)


def test_flush_of_other_databases_under_pipelines(server):
    """Look-ahead must not look at tables that a flush or swap takes away."""
    def pipelines(dice):
        with server.raw(timeout=30) as conn:
            conn.cmd("SELECT", 3)
            for _ in range(5):
                names = ["f%d" % dice.randrange(3000) for _ in range(300)]
                conn.send(b"".join(encode("SET", name, "v") for name in names))
                for _ in names:
                    assert conn.read() == b"OK"

    def flusher(dice):
        with server.raw(timeout=30) as conn:
            conn.cmd("SWAPDB", 3, 4)
            conn.cmd("FLUSHALL", dice.choice(["SYNC", "ASYNC"]))

    crowd = Crowd()
    crowd.add(pipelines, 4)
    crowd.add(flusher, 2)
    crowd.run()


# --- statistics ---


def test_reset_of_statistics_is_no_failure(server):
    with server.raw() as conn:
        conn.cmd("NOSUCH")
        assert conn.cmd("CONFIG", "RESETSTAT") == b"OK"
        assert info(conn, "cmdstat_config|resetstat").endswith("failed_calls=0")


def test_longest_hold_stays_believable(server):
    """Commands that find their first shard busy have held nothing."""
    def scanner(dice):
        with server.raw(timeout=30) as conn:
            for _ in range(50):
                conn.cmd("SCAN", "0")
                conn.cmd("RANDOMKEY")

    def writer(dice):
        with server.raw(timeout=30) as conn:
            conn.send(encode("MSET", *sum([["h%d" % i, i] for i in range(100)], [])) * 50)
            for _ in range(50):
                conn.read()

    crowd = Crowd()
    crowd.add(scanner, 3)
    crowd.add(writer, 3)
    crowd.run()
    with server.raw() as control:
        assert int(info(control, "hold_us_max")) < 60e6


# --- the end ---


def test_shutdown_with_every_kind_of_waiting_client(start_server):
    for _ in range(3):
        running = start_server(threads=THREADS)
        crowd = [running.raw() for _ in range(60)]
        crowd[0].cmd("CLIENT", "PAUSE", "100000", "WRITE")
        for number, conn in enumerate(crowd[1:]):
            conn.send([encode("SET", "k", "v") * 50, encode("KEYS", "*") * 20,
                       encode("WATCH", "a", "b") + encode("MULTI") + encode("SET", "a", 1) +
                       encode("EXEC"), b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1000000\r\n" + b"x" * 70000,
                       encode("FLUSHALL")][number % 5])
        time.sleep(0.05)
        running.stop()
        for conn in crowd:
            conn.close()
