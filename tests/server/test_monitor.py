#!/usr/bin/python3
"""MONITOR: what is shown of which commands, when, of all workers, and what a monitor may do."""
import random
import re
import threading
import time

import pytest

from process import TIME_SCALE
from raw import Error, Status, encode

LINE = re.compile(rb"\d+\.\d{6} \[(\d+) (\S+)\] (.*)", re.DOTALL)


def wait_until(condition, seconds=20):
    deadline = time.monotonic() + seconds * TIME_SCALE
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


@pytest.fixture
def monitor(connect):
    conn = connect()
    assert conn.cmd("MONITOR") == b"OK"
    return conn


def shown(monitor, other):
    """The words of all commands that ended before this call."""
    mark = b"%016x" % random.getrandbits(64)
    other.cmd("ECHO", mark)
    got = []
    while True:
        line = monitor.read()
        assert isinstance(line, Status)
        words = LINE.fullmatch(line).group(3)
        if mark in words:
            return got
        got.append(words)


def test_the_form_of_a_line(raw, monitor):
    before = time.time()
    raw.cmd("SET", "k", "v")
    line = monitor.read_bytes()
    address = dict(word.split(b"=", 1) for word in raw.cmd("CLIENT", "INFO").split())[b"addr"]
    stamp, rest = line.split(b" ", 1)
    assert rest == b'[0 %s] "SET" "k" "v"\r\n' % address
    assert stamp.startswith(b"+") and before - 1 < float(stamp[1:]) < time.time() + 1
    monitor.read()
    raw.cmd("SELECT", 3)
    assert b" [3 %s] \"SELECT\" \"3\"\r\n" % address in monitor.read_bytes()


def test_bytes_that_are_written_otherwise(raw, monitor):
    raw.cmd("set", b"", b"a\r\n\t\x07\x08\x00\xff\"\\ '\x7fz")
    raw.cmd("GET", b"x" * 70000 + b"\x01" * 30000)
    assert shown(monitor, raw) == [
        b'"set" "" "a\\r\\n\\t\\a\\b\\x00\\xff\\"\\\\ \'\\x7fz"',
        b'"GET" "' + b"x" * 70000 + b"\\x01" * 30000 + b'"']


def test_which_commands_are_shown(raw, monitor):
    for line in [("GET",), ("nosuch", "x"), ("CONFIG", "GET", "port"), ("CLIENT", "LIST"),
                 ("SLOWLOG", "LEN"), ("CLIENT", "KILL", "x"), ("LATENCY", "RESET")]:
        raw.cmd(*line)
    assert shown(monitor, raw) == []
    for line in [("PING",), ("INFO", "server"), ("HINCRBY", "k", "f", "x"), ("CLIENT", "ID"),
                 ("COMMAND", "COUNT"), ("FLUSHALL",), ("DBSIZE",), ("WATCH", "k"), ("RESET",)]:
        raw.cmd(*line)
        assert shown(monitor, raw) == [b" ".join(b'"%s"' % word.encode() for word in line)]


def test_passwords_are_not(raw, monitor):
    raw.cmd("AUTH", "secret")
    raw.cmd("AUTH", "user", "secret")
    raw.cmd("HELLO", "2", "AUTH", "default", "secret", "SETNAME", "me")
    raw.cmd("HELLO", "2")
    raw.cmd("HELLO", "2", "SETNAME", "auth", "AUTH", "default", "secret")
    raw.cmd("MIGRATE", "127.0.0.1", "1", "", "0", "10", "AUTH", "secret", "KEYS", "auth", "k")
    raw.cmd("MIGRATE", "127.0.0.1", "1", "", "0", "10", "AUTH2", "auth", "secret", "COPY")
    raw.cmd("CONFIG", "SET", "requirepass", "")
    assert shown(monitor, raw) == [
        b'"AUTH" "(redacted)"', b'"AUTH" "(redacted)" "(redacted)"',
        b'"HELLO" "2" "AUTH" "(redacted)" "(redacted)" "SETNAME" "me"', b'"HELLO" "2"',
        b'"HELLO" "2" "SETNAME" "auth" "AUTH" "(redacted)" "(redacted)"',
        b'"MIGRATE" "127.0.0.1" "1" "" "0" "10" "AUTH" "(redacted)" "KEYS" "auth" "k"',
        b'"MIGRATE" "127.0.0.1" "1" "" "0" "10" "AUTH2" "(redacted)" "(redacted)" "COPY"']


def test_a_transaction_is_shown_as_it_runs(raw, monitor):
    raw.send(encode("MULTI") + encode("SET", "a", 1) + encode("GET", "a"))
    for _ in range(3):
        raw.read()
    assert monitor.read().endswith(b'] "MULTI"')
    raw.cmd("EXEC")
    assert shown(monitor, raw) == [b'"SET" "a" "1"', b'"GET" "a"', b'"EXEC"']


def test_a_script_and_what_it_runs(raw, monitor):
    script = "redis.call('set', KEYS[1], 'v') return redis.call('get', KEYS[1])"
    assert raw.cmd("EVAL", script, 1, "k") == b"v"
    lines = [LINE.fullmatch(monitor.read()) for _ in range(3)]
    assert [line.group(3) for line in lines] == [b'"EVAL" "%s" "1" "k"' % script.encode(),
                                                 b'"set" "k" "v"', b'"get" "k"']
    assert lines[0].group(2) != b"lua"
    assert [line.group(2) for line in lines[1:]] == [b"lua", b"lua"]


def test_scripts_that_never_begin_are_shown(raw, monitor):
    raw.cmd("EVALSHA", "f" * 40, 0)
    raw.cmd("EVAL", "x x", 0)
    raw.cmd("EVAL", "return 1", 0)
    assert shown(monitor, raw) == [b'"EVALSHA" "%s" "0"' % (b"f" * 40), b'"EVAL" "x x" "0"',
                                   b'"EVAL" "return 1" "0"']


def test_batches_are_shown_in_their_order(raw, monitor):
    raw.send(b"".join(encode("SET", "k%d" % i, i) + encode("GET", "k%d" % i) for i in range(200)))
    for _ in range(400):
        raw.read()
    want = []
    for i in range(200):
        want += [b'"SET" "k%d" "%d"' % (i, i), b'"GET" "k%d"' % i]
    assert shown(monitor, raw) == want


def test_what_a_monitor_may_do(raw, monitor, connect):
    for line in (("GET", "x"), ("SET", "x", "y"), ("PUBLISH", "a", "b"), ("DBSIZE",), ("SCAN", "0")):
        assert monitor.cmd(*line) == Error(b"ERR Replica can't interact with the keyspace")
    monitor.send_cmd("PING")
    assert monitor.read() == b"PONG"
    assert monitor.read().endswith(b'] "PING"')
    monitor.send_cmd("MONITOR")
    raw.cmd("ECHO", "x")
    assert monitor.read().endswith(b'] "ECHO" "x"')
    assert any(b" flags=O " in line for line in raw.cmd("CLIENT", "LIST").split(b"\n"))
    assert monitor.cmd("RESET") == b"RESET"
    raw.cmd("SET", "x", "y")
    assert monitor.cmd("GET", "x") == b"y"
    raw.cmd("MULTI")
    raw.cmd("MONITOR")
    assert raw.cmd("EXEC") == [Error(b"ERR MONITOR isn't allowed for DENY BLOCKING client")]


def test_monitors_of_all_workers_see_all_workers(connect):
    monitors = [connect() for _ in range(4)]
    for conn in monitors:
        assert conn.cmd("MONITOR") == b"OK"
    writers = [connect() for _ in range(4)]
    failures = []

    def write(number):
        for i in range(50):
            key = "w%d:%d" % (number, i)
            if writers[number].cmd("SET", key, "v") != b"OK":
                failures.append(key)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    mine = [b'"SET" "w%d:%d" "v"' % (number, i) for number in range(4) for i in range(50)]
    # Whoever has seen the replies finds all lines delivered, before the answer to a PING.
    for conn in monitors:
        conn.send_cmd("PING")
        lines = []
        while True:
            line = conn.read()
            if line == b"PONG":
                break
            lines.append(LINE.fullmatch(line).group(3))
        writes = [line for line in lines if line.startswith(b'"SET"')]
        assert sorted(writes) == sorted(mine)
        for number in range(4):
            own = [line for line in writes if line.startswith(b'"SET" "w%d:' % number)]
            assert own == mine[number * 50:number * 50 + 50]


def test_a_monitor_that_never_reads_is_cut_off(start_server):
    server = start_server("--client-output-buffer-limit", "normal", "2mb", "0", "0")
    with server.raw() as conn, server.raw() as slow:
        number = slow.cmd("CLIENT", "ID")
        slow.cmd("MONITOR")
        for _ in range(600):
            conn.cmd("SET", "k", b"x" * 50000)
            if b"id=%d " % number not in conn.cmd("CLIENT", "LIST"):
                break
        assert b"id=%d " % number not in conn.cmd("CLIENT", "LIST")
        assert conn.cmd("GET", "k") == b"x" * 50000


def test_nothing_stays_behind(raw, server):
    conns = [server.raw() for _ in range(50)]
    for conn in conns:
        assert conn.cmd("MONITOR") == b"OK"
    for conn in conns:
        conn.close()
    for _ in range(10):
        raw.cmd("PING")
    wait_until(lambda: b" flags=O " not in raw.cmd("CLIENT", "LIST"))
    assert raw.cmd("PING") == b"PONG"
