#!/usr/bin/python3
"""maxmemory-clients: who is disconnected when connections hold too much, who stays, and that the
server's memory stays bounded and the server responsive meanwhile.

A transaction's queue is the steady way to hold memory: it stays until EXEC, whoever reads.
"""
import re
import resource
import threading
import time

import pytest

from process import TIME_SCALE
from raw import Closed, encode

MIB = 1024 * 1024


def info(conn, name):
    found = re.search(rb"^%s:(\d+)" % name.encode(), conn.cmd("INFO", "everything"), re.MULTILINE)
    assert found, "INFO has no %s" % name
    return int(found.group(1))


def wait_until(condition, seconds=10):
    deadline = time.monotonic() + seconds * TIME_SCALE
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


def fields(conn, command="INFO", *args):
    """The connections of CLIENT LIST (or INFO) as dictionaries of texts."""
    text = conn.cmd("CLIENT", command, *args).decode()
    return [dict(word.split("=", 1) for word in line.split(" ")) for line in text.splitlines()]


def hold(conn, size):
    """Lets a connection hold about `size` bytes; the reply tells that they are counted."""
    assert conn.cmd("MULTI") == b"OK"
    try_send(conn, encode("SET", "k", b"x" * size))
    return conn.read()


def try_send(conn, data):
    """Sends what the other side takes; it may close meanwhile."""
    try:
        conn.send(data)
    except OSError:
        pass


def lives(conn):
    try:
        return conn.cmd("PING") in (b"PONG", b"QUEUED")
    except (Closed, ConnectionError):
        return False


@pytest.fixture
def limited(start_server):
    """A server, a connection to it that is never evicted, and a function for further ones."""
    server = start_server()
    opened = []

    def connect(**options):
        conn = server.raw(**options)
        opened.append(conn)
        return conn

    control = connect(timeout=30)
    assert control.cmd("CLIENT", "NO-EVICT", "ON") == b"OK"
    yield server, control, connect
    for conn in opened:
        conn.close()


def test_without_a_limit_nobody_goes(limited):
    _server, control, connect = limited
    assert control.cmd("CONFIG", "GET", "maxmemory-clients") == [b"maxmemory-clients", b"0"]
    conns = [connect() for _ in range(4)]
    for conn in conns:
        assert hold(conn, 2 * MIB) == b"QUEUED"
    assert all(lives(conn) for conn in conns)
    assert info(control, "evicted_clients") == 0


def test_the_largest_goes_and_the_others_stay(limited):
    server, control, connect = limited
    small, middle, large = connect(), connect(), connect()
    name = b"the-large-one"
    assert large.cmd("CLIENT", "SETNAME", name) == b"OK"
    assert hold(middle, 1 * MIB) == b"QUEUED"
    assert hold(large, 5 * MIB) == b"QUEUED"
    assert control.cmd("CONFIG", "SET", "maxmemory-clients", "4mb") == b"OK"
    wait_until(lambda: info(control, "evicted_clients") == 1)
    large.expect_closed()
    assert lives(small) and lives(middle)
    assert info(control, "evicted_clients") == 1
    assert re.search("Evicting client: id=.*%s" % name.decode(), server.log())
    assert control.cmd("CONFIG", "RESETSTAT") == b"OK"
    assert info(control, "evicted_clients") == 0


def test_a_limit_counts_at_once(limited):
    _server, control, connect = limited
    conns = [connect() for _ in range(6)]
    for conn in conns:
        assert hold(conn, 1 * MIB) == b"QUEUED"
    assert control.cmd("CONFIG", "SET", "maxmemory-clients", "100mb") == b"OK"
    assert all(lives(conn) for conn in conns)
    assert control.cmd("CONFIG", "SET", "maxmemory-clients", "1mb") == b"OK"
    for conn in conns:
        conn.expect_closed()
    assert info(control, "evicted_clients") == 6


def test_no_evict_protects_and_is_shown(limited, reference):
    _server, control, connect = limited
    kept, other = connect(), connect()
    assert fields(kept)[0]["flags"] == "N"
    assert kept.cmd("CLIENT", "NO-EVICT", "ON") == b"OK"
    assert fields(kept)[0]["flags"] == "e"
    number = kept.cmd("CLIENT", "ID")
    assert hold(other, 2 * MIB) == b"QUEUED"
    assert hold(kept, 2 * MIB) == b"QUEUED"
    assert control.cmd("CONFIG", "SET", "maxmemory-clients", "3mb") == b"OK"
    other.expect_closed()
    assert lives(kept)
    assert [line["flags"] for line in fields(control, "LIST", "ID", number)] == ["xe"]
    # It counts though it stays: nobody else has room beside it.
    assert hold(connect(), 2000) == b"QUEUED"
    assert control.cmd("CONFIG", "SET", "maxmemory-clients", "1mb") == b"OK"
    late = connect()
    wait_until(lambda: not lives(late))
    assert lives(kept)
    # RESET takes the memory away that was the trouble, and the protection (7.0.15 leaves that).
    assert kept.cmd("RESET") == b"RESET"
    assert reference or fields(kept)[0]["flags"] == "N"
    wait_until(lambda: info(control, "mem_clients_normal") < MIB)
    assert lives(connect())


def test_a_percentage_is_one_of_maxmemory(limited):
    _server, control, connect = limited
    assert control.cmd("CONFIG", "SET", "maxmemory-clients", "10%") == b"OK"
    assert control.cmd("CONFIG", "GET", "maxmemory-clients") == [b"maxmemory-clients", b"10%"]
    first, second = connect(), connect()
    assert hold(first, 1 * MIB) == b"QUEUED"
    assert control.cmd("CONFIG", "SET", "maxmemory", "200mb") == b"OK"
    assert hold(second, 2 * MIB) == b"QUEUED"
    assert info(control, "evicted_clients") == 0
    assert control.cmd("CONFIG", "SET", "maxmemory", "25mb") == b"OK"
    second.expect_closed()
    assert lives(first)
    assert control.cmd("CONFIG", "SET", "maxmemory", "0") == b"OK"
    assert hold(connect(), 4 * MIB) == b"QUEUED"
    assert info(control, "evicted_clients") == 1


def test_a_connection_falls_for_its_own_command(limited):
    _server, control, connect = limited
    assert control.cmd("SET", "big", b"x" * 8 * MIB) == b"OK"
    assert control.cmd("CONFIG", "SET", "maxmemory-clients", "2mb") == b"OK"
    queues = connect()
    with pytest.raises(Closed) as closed:
        hold(queues, 3 * MIB)
    assert closed.value.rest == b""
    half = connect()
    try_send(half, b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$%d\r\n" % (50 * MIB) + b"x" * 20000)
    half.expect_closed()
    reads = connect()
    reads.send_cmd("GET", "big")
    assert len(reads.read_to_end()) < 8 * MIB  # what fits into the socket, or nothing
    assert info(control, "evicted_clients") == 3
    assert lives(connect())


@pytest.mark.single
@pytest.mark.kvik_only
def test_watches_and_many_arguments_count(limited):
    _server, control, connect = limited
    before = info(control, "mem_clients_normal")
    watcher, sender = connect(), connect()
    for i in range(0, 10000, 1000):
        keys = ["key-%050d" % j for j in range(i, i + 1000)]
        assert watcher.cmd("WATCH", *keys) == b"OK"
    sender.send(b"*200000\r\n$3\r\nDEL\r\n" + b"$1\r\na\r\n" * 100000)
    # A key and its records; a slice (doubled) and a copy of each argument.
    wait_until(lambda: info(control, "mem_clients_normal") > before + 10000 * 100 + 100000 * 35)
    sizes = {int(line["id"]): int(line["tot-mem"]) for line in fields(control, "LIST")}
    assert sizes[watcher.cmd("CLIENT", "ID")] > 10000 * 50
    assert control.cmd("CONFIG", "SET", "maxmemory-clients", "2mb") == b"OK"
    sender.expect_closed()
    assert lives(watcher)
    assert control.cmd("CONFIG", "SET", "maxmemory-clients", "700kb") == b"OK"
    wait_until(lambda: not lives(watcher))
    wait_until(lambda: info(control, "total_watched_keys") == 0)


@pytest.mark.kvik_only
def test_the_total_is_the_sum_of_the_list(limited):
    _server, control, connect = limited
    conns = [connect() for _ in range(20)]
    for i, conn in enumerate(conns):
        if i % 3 == 0:
            assert hold(conn, 1000 * i + 1) == b"QUEUED"
        elif i % 3 == 1:
            conn.send(b"*2\r\n$3\r\nGET\r\n$100\r\n" + b"x" * i)
        else:
            assert conn.cmd("CLIENT", "SETNAME", "n" * i) == b"OK"

    def difference():
        total = info(control, "mem_clients_normal")
        lines = fields(control, "LIST")
        assert len(lines) == 21
        return total - sum(int(line["tot-mem"]) for line in lines)

    wait_until(lambda: info(control, "connected_clients") == 21)
    # The caller's own output is on its way while it reads the list.
    wait_until(lambda: -64 * 1024 <= difference() <= 0)
    assert -64 * 1024 <= difference() <= 0
    for conn in conns:
        conn.close()
    wait_until(lambda: info(control, "connected_clients") == 1)
    wait_until(lambda: info(control, "mem_clients_normal") == int(fields(control)[0]["tot-mem"]))


class Watchman:
    """Looks at the memory of connections all the time, and at how long an answer takes."""

    def __init__(self, conn):
        self.conn = conn
        self.most = 0
        self.slowest = 0.0
        self.looks = 0
        self.ending = False
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        while not self.ending:
            start = time.monotonic()
            self.most = max(self.most, info(self.conn, "mem_clients_normal"))
            self.slowest = max(self.slowest, time.monotonic() - start)
            self.looks += 1
            time.sleep(0.002)

    def end(self):
        self.ending = True
        self.thread.join()


@pytest.mark.kvik_only
def test_peers_that_never_read_do_not_pass_the_limit(limited):
    server, control, connect = limited
    limit = 16 * MIB
    assert control.cmd("SET", "value", b"x" * 12000) == b"OK"
    assert control.cmd("CONFIG", "SET", "maxmemory-clients", limit) == b"OK"
    watch = Watchman(control)
    try:
        for _ in range(15):
            greedy = connect()
            greedy.sock.settimeout(0.2 * TIME_SCALE)
            try:
                for _ in range(20):
                    greedy.send(encode("GET", "value") * 2000)
            except OSError:
                continue  # closed, or so full that it is not read any more
        # Each asks for more than the limit and reads nothing.
        wait_until(lambda: evicted_by(server) == 15, 30)
    finally:
        watch.end()
    assert watch.looks > 0
    # A step, a batch of replies and a read of input for each worker, the looker's own output.
    assert watch.most <= limit + server.threads * MIB + MIB
    assert lives(connect())


@pytest.mark.kvik_only
def test_many_queues_stop_at_the_limit(limited):
    server, control, connect = limited
    limit = 4 * MIB
    assert control.cmd("CONFIG", "SET", "maxmemory-clients", limit) == b"OK"
    watch = Watchman(control)
    try:
        conns = [connect() for _ in range(60)]
        for conn in conns:
            conn.send_cmd("MULTI")
        for _ in range(10):
            for conn in conns:
                try_send(conn, encode("SET", "k", b"x" * 20000))
        living = [conn for conn in conns if lives_after(conn, 11)]
    finally:
        watch.end()
    assert watch.most <= limit + server.threads * MIB

    def counts_agree():
        # Who was asked early may have gone while others were asked.
        living[:] = [conn for conn in living if lives(conn)]
        return len(living) + info(control, "evicted_clients") == 60

    wait_until(counts_agree, 10)
    # No more went than had to: what stays nearly fills the limit.
    assert len(living) >= 60 // 4
    assert info(control, "mem_clients_normal") <= limit
    assert info(control, "mem_clients_normal") >= limit / 2


def lives_after(conn, replies):
    try:
        for _ in range(replies):
            conn.read()
    except Closed:
        return False
    return lives(conn)


@pytest.mark.kvik_only
@pytest.mark.timeout(180)
def test_half_sent_arguments_do_not_pile_up(limited):
    server, control, connect = limited
    limit = 32 * MIB
    used = info(control, "used_memory")
    assert control.cmd("CONFIG", "SET", "maxmemory-clients", limit) == b"OK"
    watch = Watchman(control)
    try:
        conns = [connect() for _ in range(50)]
        for conn in conns:
            try_send(conn, b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$%d\r\n" % (10 * MIB) + b"x" * 100000)
        wait_until(lambda: sum(1 for line in fields(connect(), "LIST")
                               if line["cmd"] == "NULL" and int(line["tot-mem"]) > MIB) <= 3)
    finally:
        watch.end()
    assert watch.most <= limit + server.threads * MIB
    assert info(control, "evicted_clients") >= 47
    # The memory itself, not what is said of it.
    assert info(control, "used_memory") - used <= limit + 2 * MIB


@pytest.mark.kvik_only
@pytest.mark.timeout(180)
def test_thousands_of_idle_connections(limited):
    server, control, connect = limited
    count = min(3000, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 300)
    conns = [connect(timeout=60) for _ in range(count)]
    for conn in conns:
        assert conn.cmd("PING") == b"PONG"
    total = info(control, "mem_clients_normal")
    limit = total // 2
    watch = Watchman(connect_kept(server))
    try:
        assert control.cmd("CONFIG", "SET", "maxmemory-clients", limit) == b"OK"
        wait_until(lambda: info(control, "mem_clients_normal") <= limit)
    finally:
        watch.end()
    watch.conn.close()
    print("slowest answer: %.1f ms" % (watch.slowest * 1000))
    assert lives(control)
    evicted = info(control, "evicted_clients")
    wait_until(lambda: info(control, "connected_clients") == count + 1 - evicted)
    # Each costs the same: half of them go, and a few where workers looked at the same time.
    assert count * 0.45 <= evicted <= count * 0.55 + server.threads
    assert control.cmd("CONFIG", "SET", "maxmemory-clients", "0") == b"OK"
    assert lives(connect())


def evicted_by(server):
    conn = connect_kept(server)
    try:
        return info(conn, "evicted_clients")
    finally:
        conn.close()


def connect_kept(server):
    conn = server.raw(timeout=60)
    assert conn.cmd("CLIENT", "NO-EVICT", "ON") == b"OK"
    return conn


@pytest.mark.kvik_only
@pytest.mark.parametrize("threads", [1, 4])
def test_only_the_large_ones_go_wherever_they_are(start_server, threads):
    server = start_server("--maxmemory-clients", "20mb", threads=threads)
    control = connect_kept(server)
    small = [server.raw() for _ in range(40)]
    for conn in small:
        assert hold(conn, 50000) == b"QUEUED"
    large = [server.raw() for _ in range(24)]
    for conn in large:
        conn.send_cmd("MULTI")
        try_send(conn, encode("SET", "k", b"x" * 3 * MIB))
        if not lives_after(conn, 2):
            conn.expect_closed()
    assert all(lives(conn) for conn in small)
    living = 24 - info(control, "evicted_clients")
    assert 5 - threads <= living <= 6
    for conn in small + large + [control]:
        conn.close()
