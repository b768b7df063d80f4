#!/usr/bin/python3
"""Everything that saves, at once and in random order, while writers work.

One connection begins, schedules, cancels and spoils savings and rewrites, changes files, modes and folders,
and reloads; others write values of all kinds and sizes. Whatever happened, the server answers, nothing is left
over on disk, memory is back to the byte, and the log and the file that are written at the end hold what the
server has. SEED= repeats the random choices.
"""
import os
import random
import threading
import time

import pytest

from process import REFERENCE, TIME_SCALE, Server, kvik_binary
from raw import Closed, Error

pytestmark = pytest.mark.kvik_only

SECONDS = min(2.0 * TIME_SCALE, 5.0)
SANITIZED = TIME_SCALE >= 4  # less data, for the same ways through the code
needs_faults = pytest.mark.skipif(
    not any(word in kvik_binary() for word in ("debug", "asan", "tsan", "coverage")),
    reason="this build injects no faults")


def info(conn, name, section="persistence"):
    for line in conn.cmd("INFO", section).splitlines():
        if line.startswith(name.encode() + b":"):
            return line.split(b":", 1)[1].decode()
    raise AssertionError("no " + name)


def wait_until(condition, seconds=60):
    deadline = time.monotonic() + seconds * TIME_SCALE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_quiet(conn):
    return all(info(conn, name) == "0" for name in (
        "rdb_bgsave_in_progress", "aof_rewrite_in_progress", "aof_rewrite_scheduled"))


def send_all(conn, commands):
    for command in commands:
        conn.send_cmd(*command)
    return [conn.read() for _ in commands]


def seed_of():
    seed = int(os.environ.get("SEED") or random.randrange(1 << 30))
    print("SEED=%d" % seed)
    return seed


def change(rng):
    """A command that changes something, of any type; large collections among them."""
    n = rng.randrange(200)
    big = rng.randrange(3)
    return rng.choice([
        lambda: ("SET", "s%d" % n, "x" * rng.choice((1, 50, 3000, 90_000))),
        lambda: ("SET", "due%d" % n, "x", "PX", rng.randrange(1, 2000)),
        lambda: ("APPEND", "s%d" % n, "more"),
        lambda: ("INCR", "n%d" % n),
        lambda: ("HSET", "h%d" % big, "f%d" % rng.randrange(5000), "v" * rng.randrange(60)),
        lambda: ("HDEL", "h%d" % big, "f%d" % rng.randrange(5000)),
        lambda: ("HPEXPIRE", "h%d" % big, rng.randrange(1, 3000), "FIELDS", 1,
                 "f%d" % rng.randrange(5000)),
        lambda: ("ZADD", "z%d" % big, rng.randrange(100), "m%d" % rng.randrange(5000)),
        lambda: ("ZPOPMIN", "z%d" % big, 3),
        lambda: ("SADD", "set%d" % big, *["m%d" % rng.randrange(9000) for _ in range(20)]),
        lambda: ("SPOP", "set%d" % big, 5),
        lambda: ("RPUSH", "l%d" % big, *["item:%d" % i for i in range(50)]),
        lambda: ("LTRIM", "l%d" % big, 20, -1),
        lambda: ("DEL", "s%d" % n, "h%d" % rng.randrange(60)),
        lambda: ("RENAME", "l%d" % big, "l%d" % rng.randrange(3)),
        lambda: ("COPY", "h%d" % big, "copy%d" % big, "REPLACE"),
    ])()


class Load:
    """Writers; errors that a refusal explains are none of theirs."""

    def __init__(self, server, seed, count=3):
        self.stop = threading.Event()
        self.problems = []
        self.threads = [threading.Thread(target=self.run, args=(server, seed + n))
                        for n in range(count)]
        for thread in self.threads:
            thread.start()

    def run(self, server, seed):
        rng = random.Random(seed)
        try:
            while not self.stop.is_set():
                try:
                    with server.raw(timeout=60) as conn:
                        while not self.stop.is_set():
                            send_all(conn, [change(rng) for _ in range(20)])
                except (Closed, ConnectionError):  # always: the log could not be written
                    assert server.alive()
        except Exception as problem:  # shown below
            self.problems.append(problem)

    def end(self):
        self.stop.set()
        for thread in self.threads:
            thread.join(60 * TIME_SCALE)
            assert not thread.is_alive()
        assert not self.problems


ORDERS = [
    ("BGSAVE",), ("BGSAVE",), ("BGSAVE", "SCHEDULE"), ("BGSAVE", "CANCEL"), ("SAVE",),
    ("BGREWRITEAOF",), ("BGREWRITEAOF",), ("BGREWRITEAOF",), ("FLUSHALL",), ("FLUSHDB", "ASYNC"),
    ("SWAPDB", 0, 1), ("SWAPDB", 1, 0), ("CONFIG", "SET", "appendonly", "no"),
    ("CONFIG", "SET", "appendonly", "yes"), ("CONFIG", "SET", "appendonly", "yes"),
    ("CONFIG", "SET", "appendfsync", "always"), ("CONFIG", "SET", "appendfsync", "everysec"),
    ("CONFIG", "SET", "appendfsync", "no"), ("CONFIG", "SET", "save", "1 1"),
    ("CONFIG", "SET", "save", ""), ("CONFIG", "SET", "dbfilename", "other.rdb"),
    ("CONFIG", "SET", "dbfilename", "dump.rdb"), ("CONFIG", "SET", "dir", "one"),
    ("CONFIG", "SET", "dir", ".."), ("CONFIG", "SET", "snapshot-memory-limit", "64kb"),
    ("CONFIG", "SET", "snapshot-memory-limit", "256mb"),
    ("CONFIG", "SET", "aof-use-rdb-preamble", "no"),
    ("CONFIG", "SET", "aof-use-rdb-preamble", "yes"), ("DEBUG", "RELOAD"), ("DEBUG", "CHECK"),
    ("CONFIG", "SET", "no-appendfsync-on-rewrite", "yes"),
    ("CONFIG", "SET", "no-appendfsync-on-rewrite", "no"),
]
FAULTS = ["write:%d:1:28", "write:%d:3:0", "sync:%d:1:5", "open:%d:1:13", "rename:%d:1:5"]


def attack(server, seed, faults):
    rng = random.Random(seed)
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        try:
            with server.raw(timeout=60) as conn:
                while time.monotonic() < until:
                    order(conn, rng, faults)
        except (Closed, ConnectionError):  # as the writers
            assert server.alive()
    with server.raw(timeout=60) as conn:
        for kind in ("write", "sync", "open", "rename") if faults else ():
            assert conn.cmd("DEBUG", "FILE-FAULTS", kind + ":1:0:0") == b"OK"


def order(conn, rng, faults):
    for words in rng.choices(ORDERS, k=rng.randrange(1, 4)):
        if words[0] != "DEBUG" or not faults:  # RELOAD fails with its file
            conn.cmd(*words)
    if faults and rng.randrange(4) == 0:
        conn.cmd("DEBUG", "FILE-FAULTS", rng.choice(FAULTS) % rng.randrange(1, 12))
    time.sleep(rng.choice((0, 0, 0.01, 0.05)))


def left_over(folder):
    return [name for _, _, files in os.walk(folder) for name in files
            if name.endswith((".temp", ".tmp")) or name.startswith("temp-")]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("faults", [False, pytest.param(True, marks=needs_faults)])
def test_everything_at_once(start_server, tmp_path, faults):
    seed = seed_of()
    home = tmp_path / "home"
    (home / "one").mkdir(parents=True)
    server = start_server("--dir", str(home), "--enable-protected-configs", "yes",
                          "--set-max-listpack-entries", "20")
    load = Load(server, seed)
    try:
        attack(server, seed, faults)
    finally:
        load.end()
    with server.raw(timeout=60) as conn:
        assert conn.cmd("CONFIG", "SET", "appendonly", "no", "save", "") == b"OK"
        wait_until(lambda: is_quiet(conn))
        assert not left_over(home)
        assert conn.cmd("CONFIG", "SET", "dir", str(home), "dbfilename", "dump.rdb",
                        "appendfsync", "everysec", "no-appendfsync-on-rewrite", "no") == b"OK"
        # Fields and keys that become due are all that changes by itself; the reference knows no such fields.
        for db in (1, 0):
            conn.cmd("SELECT", db)
            wait_until(lambda: conn.cmd("KEYS", "due*") == [])
            for i in range(3):
                send_all(conn, [("DEL", "h%d" % i), ("DEL", "copy%d" % i)])
        assert conn.cmd("CONFIG", "SET", "appendonly", "yes") == b"OK"
        wait_until(lambda: is_quiet(conn) and info(conn, "aof_base_size") != "0")
        wait_until(lambda: conn.cmd("SET", "end", "x") == b"OK")
        assert conn.cmd("SAVE") == b"OK"
        assert conn.cmd("DEBUG", "CHECK") == b"OK"
        digest = conn.cmd("DEBUG", "DIGEST")
        assert info(conn, "snapshot_buffer_bytes") == "0"
    server.stop()
    for more in (("--appendonly", "yes"), ("--appendonly", "no")):
        again = start_server("--dir", str(home), *more)
        assert again.raw().cmd("DEBUG", "DIGEST") == digest
        again.stop()
    theirs = Server("--dir", str(home), "--appendonly", "yes", binary=REFERENCE)
    try:
        with theirs.raw() as conn:
            assert conn.cmd("GET", "end") == b"x"
    finally:
        theirs.stop()


# --- memory ---

def fill_large(conn):
    for kind in ("HSET h%d", "ZADD z%d", "SADD set%d", "RPUSH l%d"):
        command, key = kind.split()
        for big in range(2):
            for i in range(0, 4000, 500):
                words = []
                for n in range(i, i + 500):
                    name = "member:%d:%s" % (n, "m" * 15)
                    words += {"HSET": [name, n], "ZADD": [n, name]}.get(command, [name])
                conn.cmd(command, key % big, *words)


def test_memory_after_savings_that_were_ended(start_server, tmp_path):
    """To the byte, whatever ended them."""
    server = start_server("--dir", str(tmp_path), "--snapshot-memory-limit", "200kb",
                          "--appendonly", "yes", "--appendfsync", "no",
                          "--auto-aof-rewrite-percentage", "0")
    rng = random.Random(seed_of())
    conn = server.raw(timeout=60)

    def flushed():
        wait_until(lambda: is_quiet(conn))
        assert conn.cmd("FLUSHALL", "SYNC") == b"OK"
        assert conn.cmd("DBSIZE") == 0
        return int(info(conn, "used_memory_dataset", "memory"))

    fill_large(conn)
    start = flushed()
    for begin in ("BGSAVE", "BGREWRITEAOF"):
        ends = [("SWAPDB", 0, 1), ("FLUSHALL",), ("DEBUG", "RELOAD"),
                ("BGSAVE", "CANCEL") if begin == "BGSAVE" else ("CONFIG", "SET", "appendonly", "no")]
        for end in rng.sample(ends, 2) if SANITIZED else ends:
            fill_large(conn)
            replies = send_all(conn, [(begin,)] + [change(rng) for _ in range(150)] + [end] +
                               [change(rng) for _ in range(50)])
            assert replies[0].startswith(b"Background ")
            conn.cmd("CONFIG", "SET", "appendonly", "yes")
            wait_until(lambda: flushed() == start)
            assert info(conn, "snapshot_buffer_bytes") == "0"


@needs_faults
@pytest.mark.parametrize("command", ["BGSAVE", "BGREWRITEAOF"])
def test_a_slow_disk_does_not_fill_memory(start_server, tmp_path, command):
    """Writers change everything while each write takes 20 ms or more: what waits stays below the limit and
    what a command in flight may add."""
    limit = 1 << 20
    server = start_server("--dir", str(tmp_path), "--snapshot-memory-limit", str(limit),
                          "--appendonly", "yes" if command == "BGREWRITEAOF" else "no",
                          "--appendfsync", "no", "--rdbcompression", "no")
    conn = server.raw(timeout=60)
    keys = 6000
    for i in range(0, keys, 1000):
        send_all(conn, [("SET", "key:%d" % n, "%01000d" % n) for n in range(i, i + 1000)])
    digest = conn.cmd("DEBUG", "DIGEST")
    assert conn.cmd("DEBUG", "FILE-FAULTS", "write:1:1000000:-%d" % (20 * TIME_SCALE)) == b"OK"
    assert not isinstance(conn.cmd(command), Error)
    stop = threading.Event()
    problems = []

    def flood(first):
        try:
            own = server.raw(timeout=120)
            for i in range(first, keys, 200):
                if stop.is_set():
                    return
                send_all(own, [("APPEND", "key:%d" % n, "!") for n in range(i, min(i + 50, keys))])
        except Exception as problem:  # shown below
            problems.append(problem)

    threads = [threading.Thread(target=flood, args=(50 * n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    peak = 0
    saving = lambda: not is_quiet(conn)
    while any(thread.is_alive() for thread in threads) and saving():
        peak = max(peak, int(info(conn, "snapshot_buffer_bytes")))
        time.sleep(0.02)
    stop.set()
    assert conn.cmd("DEBUG", "FILE-FAULTS", "write:1:0:0") == b"OK"
    for thread in threads:
        thread.join(120 * TIME_SCALE)
    assert not problems
    wait_until(lambda: is_quiet(conn))
    peak = max(peak, int(info(conn, "snapshot_buffer_peak_bytes")))
    # A buffer being filled by each worker, and a batch of commands that passed the check together.
    assert peak <= limit + (server.threads + 4) * (64 << 10)
    assert int(info(conn, "snapshot_throttled_commands")) > 0
    if command == "BGSAVE":
        conn.cmd("FLUSHALL")
        assert conn.cmd("DEBUG", "RELOAD", "NOSAVE") == b"OK"
        assert conn.cmd("DEBUG", "DIGEST") == digest


# --- large values ---

def test_a_value_of_many_megabytes(start_server, tmp_path):
    """64 MB in one string, 16 in a list of long items, saved, logged and changed meanwhile."""
    megabytes = 16 if SANITIZED else 64
    server = start_server("--dir", str(tmp_path), "--appendonly", "yes", "--appendfsync", "no",
                          "--rdbcompression", "no", "--snapshot-memory-limit", "1mb")
    conn = server.raw(timeout=120)
    piece = os.urandom(1 << 20)
    for _ in range(megabytes):
        conn.cmd("APPEND", "string", piece)
    for _ in range(4):
        conn.cmd("RPUSH", "list", piece, piece, piece, piece)
    assert conn.cmd("CONFIG", "SET", "auto-aof-rewrite-percentage", 0) == b"OK"
    wait_until(lambda: is_quiet(conn))
    replies = send_all(conn, [("BGREWRITEAOF",), ("SETRANGE", "string", 5, "within"),
                              ("LSET", "list", 3, "changed"), ("RPUSH", "list", "behind")])
    assert replies[1:] == [megabytes << 20, b"OK", 17]
    wait_until(lambda: is_quiet(conn))
    assert info(conn, "aof_last_bgrewrite_status") == "ok"
    replies = send_all(conn, [("BGSAVE",), ("APPEND", "string", "!"), ("DEL", "list")])
    assert replies[0] == b"Background saving started"
    wait_until(lambda: is_quiet(conn) and info(conn, "rdb_saves") == "1")
    digest = conn.cmd("DEBUG", "DIGEST")
    server.stop()
    again = start_server("--dir", str(tmp_path), "--appendonly", "yes")
    with again.raw(timeout=120) as conn:
        assert conn.cmd("DEBUG", "DIGEST") == digest
        assert conn.cmd("STRLEN", "string") == (megabytes << 20) + 1
    again.stop()
    last = start_server("--dir", str(tmp_path), "--appendonly", "no")
    with last.raw(timeout=120) as conn:
        assert conn.cmd("STRLEN", "string") == megabytes << 20 and conn.cmd("LLEN", "list") == 17
        assert conn.cmd("LINDEX", "list", 3) == b"changed"
