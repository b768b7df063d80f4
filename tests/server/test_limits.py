#!/usr/bin/python3
"""What the server costs and how it behaves at its limits: connections, memory, sizes."""
import re
import resource
import time

import pytest

from process import TIME_SCALE
from raw import Closed, Error, encode


def info(conn, name, section="everything"):
    found = re.search(rb"^%s:(.*)\r$" % name.encode(), conn.cmd("INFO", section), re.MULTILINE)
    assert found, "INFO has no %s" % name
    return int(found.group(1))


def resident_bytes(server):
    with open("/proc/%d/statm" % server.pid) as file:
        return int(file.read().split()[1]) * 4096


def instrumented(server):
    """True for sanitizer variants, whose memory says nothing."""
    return "san" in server.binary or TIME_SCALE > 1


def wait_until(condition, seconds=5):
    deadline = time.monotonic() + seconds * TIME_SCALE
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


@pytest.mark.kvik_only
def test_empty_server_is_small(start_server):
    server = start_server(threads=1)
    if instrumented(server):
        pytest.skip("an instrumented build")
    assert resident_bytes(server) <= 8 * 1024 * 1024


@pytest.mark.kvik_only
def test_idle_connection_costs_two_kibibytes(start_server):
    server = start_server(threads=1)
    if instrumented(server):
        pytest.skip("an instrumented build")
    with server.raw() as control:
        control.cmd("PING")
        warm = [server.raw() for _ in range(50)]
        for conn in warm:
            assert conn.cmd("SET", "a", "x" * 5000) == b"OK"
        before, used_before = resident_bytes(server), info(control, "used_memory")
        conns = [server.raw() for _ in range(2000)]
        for conn in conns:
            assert conn.cmd("GET", "a") == b"x" * 5000
        time.sleep(0.3)
        resident = (resident_bytes(server) - before) / len(conns)
        used = (info(control, "used_memory") - used_before) / len(conns)
        for conn in conns + warm:
            conn.close()
        print("bytes per idle connection: resident %.0f, used %.0f" % (resident, used))
        assert used <= 2048
        assert resident <= 2048 + 256
        wait_until(lambda: info(control, "connected_clients") == 1)


def test_many_connections_work_at_once(start_server):
    count = min(3000, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 200)
    server = start_server()
    conns = [server.raw(timeout=30) for _ in range(count)]
    for conn in conns:
        conn.send_cmd("INCR", "n")
    assert sorted(conn.read() for conn in conns) == list(range(1, count + 1))
    with server.raw() as control:
        assert info(control, "connected_clients") == count + 1
    for conn in conns:
        conn.close()
    with server.raw() as control:
        wait_until(lambda: info(control, "connected_clients") == 1, 10)


def test_memory_is_given_back_after_large_values(start_server, reference):
    server = start_server()
    with server.raw() as conn:
        conn.cmd("SET", "warm", "x")
        conn.cmd("DEL", "warm")
        before = info(conn, "used_memory")
        for number in range(20):
            assert conn.cmd("SET", "big%d" % number, b"x" * (1 << 20)) == b"OK"
        assert info(conn, "used_memory") - before > 20 << 20
        assert conn.cmd("DEL", *["big%d" % number for number in range(20)]) == 20
        wait_until(lambda: info(conn, "used_memory") - before < 1 << 20)


@pytest.mark.kvik_only
def test_dataset_memory_returns_to_its_start(start_server):
    """To the byte: everything that was stored is accounted for when it is deleted."""
    server = start_server()
    with server.raw() as conn:
        start = info(conn, "used_memory_dataset")
        for number in range(3000):
            conn.cmd("SET", "k%d" % number, "v" * (number % 700))
        conn.cmd("SET", "big", b"x" * 300000)
        for number in range(0, 3000, 3):
            conn.cmd("EXPIRE", "k%d" % number, 1000)
            conn.cmd("APPEND", "k%d" % number, "tail" * 20)
        for number in range(0, 3000, 7):
            conn.cmd("RENAME", "k%d" % number, "r%d" % number)
        assert info(conn, "used_memory_dataset") > start + 500000
        conn.cmd("FLUSHALL", "SYNC")
        wait_until(lambda: info(conn, "used_memory_dataset") == start)


def test_memory_of_a_client_that_leaves_is_given_back(start_server):
    server = start_server()
    with server.raw() as conn:
        conn.cmd("SET", "k", b"x" * 100000)
        before = info(conn, "used_memory")
        slow = [server.raw() for _ in range(10)]
        for other in slow:
            other.send(encode("GET", "k") * 100 + b"*2\r\n$3\r\nGET\r\n$900000\r\n" + b"y" * 300000)
        time.sleep(0.3)
        assert conn.cmd("PING") == b"PONG"
        for other in slow:
            other.close()
        wait_until(lambda: info(conn, "connected_clients") == 1)
        wait_until(lambda: info(conn, "used_memory") - before < 2 << 20)


def test_slow_reader_does_not_hold_up_others(start_server):
    server = start_server()
    with server.raw() as conn, server.raw() as slow:
        conn.cmd("SET", "k", b"x" * 1000000)
        slow.send(encode("GET", "k") * 50)
        time.sleep(0.1)
        start = time.monotonic()
        for _ in range(200):
            assert conn.cmd("PING") == b"PONG"
        assert time.monotonic() - start < 2 * TIME_SCALE


def test_number_of_databases(start_server):
    server = start_server("--databases", "3")
    with server.raw() as conn:
        assert conn.cmd("SELECT", 2) == b"OK"
        assert conn.cmd("SELECT", 3) == b"ERR DB index is out of range"
        assert conn.cmd("SET", "a", 1) == b"OK"
        assert conn.cmd("MOVE", "a", 3) == b"ERR DB index is out of range"
        assert conn.cmd("SWAPDB", 0, 3) == b"ERR DB index is out of range"
        assert conn.cmd("MOVE", "a", 0) == 1


@pytest.mark.kvik_only
def test_databases_cost_nothing_before_their_first_key(start_server):
    few, many = start_server(threads=1), start_server("--databases", "10000", threads=1)
    if instrumented(few):
        pytest.skip("an instrumented build")
    assert resident_bytes(many) - resident_bytes(few) < 6 << 20


@pytest.mark.parametrize("length", [1, 200, 255, 256, 300, 16383, 16384, 70000, 1 << 20])
def test_long_keys(raw, length):
    key = (b"%d:" % length + b"k" * length)[:length]
    assert raw.cmd("SET", key, "v", "EX", 100) == b"OK"
    assert raw.cmd("GET", key) == b"v"
    assert raw.cmd("KEYS", "*") == [key]
    assert raw.cmd("SCAN", 0, "COUNT", 10000)[1] in ([key], [])
    assert raw.cmd("RENAME", key, "short") == b"OK"
    assert raw.cmd("RENAME", "short", key) == b"OK"
    assert raw.cmd("TTL", key) in (99, 100)
    assert raw.cmd("PERSIST", key) == 1
    assert raw.cmd("APPEND", key, "w") == 2
    assert raw.cmd("DEL", key) == 1


@pytest.mark.parametrize("length", [0, 1, 19, 20, 44, 45, 254, 255, 256, 1000, 16383, 16384, 16385,
                                    65536, 1 << 20])
def test_values_grow_and_shrink(raw, length):
    data = (b"0123456789abcdef" * (length // 16 + 1))[:length]
    assert raw.cmd("SET", "k", data) == b"OK"
    assert raw.cmd("APPEND", "k", data) == 2 * length
    assert raw.cmd("GET", "k") == (data + data if length else b"")
    assert raw.cmd("SETRANGE", "k", 2 * length + 10, "end") == 2 * length + 13
    assert raw.cmd("GETRANGE", "k", 2 * length, -1) == b"\0" * 10 + b"end"
    assert raw.cmd("SET", "k", data[:length // 2]) == b"OK"
    assert raw.cmd("GET", "k") == data[:length // 2]
    assert raw.cmd("EXPIRE", "k", 100) == 1
    assert raw.cmd("GET", "k") == data[:length // 2]


def test_append_one_byte_at_a_time(raw):
    for start in range(0, 20000, 500):
        raw.send(encode("APPEND", "k", "x") * 500)
        raw.expect(b"".join(b":%d\r\n" % number for number in range(start + 1, start + 501)))
    assert raw.cmd("GET", "k") == b"x" * 20000


@pytest.mark.parametrize("line, text", [
    (["SETRANGE", "k", 536870912, "x"],
     b"ERR string exceeds maximum allowed size (proto-max-bulk-len)"),
    (["SETRANGE", "k", -1, "x"], b"ERR offset is out of range"),
    (["SETBIT", "k", 4294967296, 1], b"ERR bit offset is not an integer or out of range"),
    (["SETBIT", "k", -1, 1], b"ERR bit offset is not an integer or out of range"),
    (["GETBIT", "k", 4294967296], b"ERR bit offset is not an integer or out of range"),
    (["SET", "k", "v", "EX", 9223372036854775807], b"ERR invalid expire time in 'set' command"),
    (["EXPIRE", "k", 9223372036854775807], b"ERR invalid expire time in 'expire' command"),
])
def test_sizes_and_times_beyond_the_limit(raw, line, text):
    raw.cmd("SET", "k", "v")
    assert raw.cmd(*line) == text
    assert raw.cmd("GET", "k") == b"v"


def test_sparse_string_costs_what_it_says(raw):
    assert raw.cmd("SETRANGE", "k", 10_000_000, "x") == 10_000_001
    assert raw.cmd("GETRANGE", "k", 9_999_990, -1) == b"\0" * 10 + b"x"
    assert raw.cmd("BITCOUNT", "k") == 4
    assert raw.cmd("DEL", "k") == 1


def test_a_ttl_refreshed_often_costs_once(raw, reference):
    raw.cmd("SET", "k", "v")
    raw.cmd("EXPIRE", "k", 1000)
    before = info(raw, "used_memory")
    for _ in range(20):
        raw.send(b"".join(encode("EXPIRE", "k", 1000 + number) for number in range(1000)))
        raw.expect(b":1\r\n" * 1000)
    assert info(raw, "used_memory") - before < 200_000


@pytest.mark.single
def test_hundred_thousand_due_keys_are_gone_soon(start_server, reference):
    server = start_server()
    if reference:
        pytest.skip("the reference samples: it takes as long as it takes")
    count = 100000 if TIME_SCALE == 1 else 10000
    with server.raw(timeout=60) as conn:
        due = int(time.time() * 1000) + int(3000 * TIME_SCALE)
        for start in range(0, count, 1000):
            conn.send(b"".join(encode("SET", "k%d" % number, "v" * 20, "PXAT", due)
                               for number in range(start, start + 1000)))
            conn.expect(b"+OK\r\n" * 1000)
        full = info(conn, "used_memory")
        time.sleep(max(0, due / 1000 - time.time()))
        assert conn.cmd("GET", "k1") is None
        start = time.monotonic()
        wait_until(lambda: conn.cmd("DBSIZE") == 0, 3)  # generous: other programs run beside it
        print("all due keys were gone after %.0f ms" % ((time.monotonic() - start) * 1000))
        assert info(conn, "expired_keys") == count
        assert full - info(conn, "used_memory") > count * 40


def test_command_with_a_million_arguments(raw):
    count = 1_000_000
    raw.send(b"*%d\r\n$6\r\nEXISTS\r\n" % (count + 1) + b"$1\r\na\r\n" * count)
    assert raw.read() == 0
    assert raw.cmd("PING") == b"PONG"


@pytest.mark.single
def test_watching_many_keys(raw, connect):
    for start in range(0, 10000, 1000):
        assert raw.cmd("WATCH", *["w%d" % number for number in range(start, start + 1000)]) == b"OK"
    connect().cmd("SET", "w7777", 1)
    raw.cmd("MULTI")
    raw.cmd("PING")
    assert raw.cmd("EXEC") is None
    assert raw.cmd("WATCH", "a") == b"OK"
    raw.cmd("MULTI")
    assert raw.cmd("EXEC") == []


def test_nobody_is_served_after_a_closed_limit(start_server):
    """A client over its output limit is closed though it sits in the middle of a pipeline."""
    server = start_server("--client-output-buffer-limit", "normal 1mb 0 0")
    with server.raw() as conn:
        conn.cmd("SET", "k", b"x" * 100000)
        greedy = server.raw()
        try:
            greedy.send(encode("GET", "k") * 2000 + encode("SET", "after", 1))
            greedy.read_to_end()
        except (OSError, Closed):
            pass
        greedy.close()
        wait_until(lambda: info(conn, "connected_clients") == 1)
        assert conn.cmd("PING") == b"PONG"
        assert not isinstance(conn.cmd("EXISTS", "after"), Error)


@pytest.mark.parametrize("last", [("PING",), ("BLPOP", "q", "0.01")])
def test_output_that_can_be_sent_is_within_its_limit(start_server, last):
    server = start_server("--client-output-buffer-limit", "normal 100kb 0 0")
    with server.raw() as conn:
        conn.cmd("SET", "k", b"x" * 150000)
        conn.send(encode("GET", "k") + encode(*last))
        assert conn.read() == b"x" * 150000
        assert conn.read() == (b"PONG" if last == ("PING",) else None)
