#!/usr/bin/python3
"""Large values in snapshots: what a file holds is what a value was at the moment, however it changes
while it is saved."""
import random
import threading
import time

import pytest

from process import REFERENCE, TIME_SCALE, Server
from raw import Error

pytestmark = pytest.mark.kvik_only


def info(conn, name):
    for line in conn.cmd("INFO", "persistence").splitlines():
        if line.startswith(name.encode() + b":"):
            return line.split(b":", 1)[1]
    raise AssertionError("no " + name)


def wait_saved(conn, saves):
    deadline = time.monotonic() + 30 * TIME_SCALE
    while info(conn, "rdb_bgsave_in_progress") != b"0" or int(info(conn, "rdb_saves")) < saves:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def send_all(conn, commands):
    for command in commands:
        conn.send_cmd(*command)
    return [conn.read() for _ in commands]


def save_and_change(conn, commands, saves):
    """Begins a saving and changes values before anything of them can have been saved, in one
    packet. Returns the digest of the moment."""
    replies = send_all(conn, [("MULTI",), ("DEBUG", "DIGEST"), ("BGSAVE",), ("EXEC",)] + commands)
    assert not [reply for reply in replies if isinstance(reply, Error)]
    wait_saved(conn, saves)
    return replies[3][0]


def digest_of_file(start_server, folder):
    server = start_server("--dir", str(folder))
    digest = server.raw().cmd("DEBUG", "DIGEST")
    server.stop()
    return digest


def assert_memory_returned(conn):
    assert info(conn, "snapshot_buffer_bytes") == b"0"
    stats = conn.cmd("MEMORY", "STATS")
    pairs = dict(zip(stats[::2], stats[1::2]))
    assert pairs.get(b"snapshot", 0) == 0


def test_large_strings(start_server, tmp_path):
    server = start_server("--dir", str(tmp_path))
    conn = server.raw()
    rng = random.Random(1)
    texts = [rng.randbytes(300_000), b"compressible " * 30_000, rng.randbytes(70_000)]
    changes = [("APPEND", "s%d", "more"), ("SETRANGE", "s%d", 1000, "within"), ("SET", "s%d", "x"),
               ("SETBIT", "s%d", 5, 1), ("DEL", "s%d"), ("RENAME", "s%d", "t%d"),
               ("SET", "s%d", b"y" * 300_000), ("EXPIRE", "s%d", 1000), ("GETDEL", "s%d")]
    for i in range(3 * len(changes)):
        conn.cmd("SET", "s%d" % i, texts[i % 3], *(("EX", 5000) if i % 2 else ()))
    moved = []
    for i in range(3 * len(changes)):
        change = changes[i // 3]
        moved.append([word % i if isinstance(word, str) and "%d" in word else word
                      for word in change])
    digest = save_and_change(conn, moved, 1)
    assert digest_of_file(start_server, tmp_path) == digest
    assert_memory_returned(conn)
    other = Server("--dir", str(tmp_path), binary=REFERENCE)
    try:
        for i in range(3 * len(changes)):
            assert other.raw().cmd("GET", "s%d" % i) == texts[i % 3]
    finally:
        other.stop()


# --- large collections ---

MEMBERS = 20_000


def send_many(conn, commands):
    """As send_all, in packets that neither side can choke on."""
    for i in range(0, len(commands), 200):
        for reply in send_all(conn, commands[i:i + 200]):
            assert not isinstance(reply, Error)


def chunked(command, key, words, size):
    return [(command, key, *words[i:i + size]) for i in range(0, len(words), size)]


def fill_large(conn, suffix="", members=MEMBERS):
    """A hash, a set, a sorted set, a list, each beyond a megabyte."""
    names = ["member:%d:%s" % (i, "m" * 20) for i in range(members)]
    fields = [word for name in names for word in (name, "value of " + name)]
    scored = [word for i, name in enumerate(names) for word in (i % 1000, name)]
    send_many(conn, chunked("HSET", "hash" + suffix, fields, 500) +
              chunked("SADD", "set" + suffix, names, 500) +
              chunked("ZADD", "zset" + suffix, scored, 500) +
              chunked("RPUSH", "list" + suffix, fields, 500))
    return names


def changes_of(names, suffix, rng, count):
    """Random changes of members, and some of the kind that finishes what is open."""
    commands = []
    name = lambda: rng.choice(names) if rng.randrange(4) else "new:%d" % rng.randrange(1000)
    some = lambda: [name() for _ in range(rng.randrange(1, 4))]
    for _ in range(count):
        commands.append(rng.choice([
            lambda: ("HSET", "hash" + suffix, name(), rng.randrange(1000)),
            lambda: ("HDEL", "hash" + suffix, *some()),
            lambda: ("HINCRBY", "hash" + suffix, "number:%d" % rng.randrange(50), 5),
            lambda: ("SADD", "set" + suffix, *some()),
            lambda: ("SREM", "set" + suffix, *some()),
            lambda: ("SPOP", "set" + suffix, 2),
            lambda: ("ZADD", "zset" + suffix, rng.randrange(1000), name()),
            lambda: ("ZINCRBY", "zset" + suffix, rng.randrange(-500, 500), name()),
            lambda: ("ZREM", "zset" + suffix, *some()),
            lambda: ("ZPOPMIN", "zset" + suffix, 3),
            lambda: ("ZPOPMAX", "zset" + suffix),
            lambda: ("ZREMRANGEBYRANK", "zset" + suffix, 100, 110),
            lambda: ("LPUSH", "list" + suffix, *some()),
            lambda: ("RPUSH", "list" + suffix, *some()),
            lambda: ("LPOP", "list" + suffix, 50),
            lambda: ("RPOP", "list" + suffix, 50),
            lambda: ("LTRIM", "list" + suffix, 20, -20),
            lambda: ("LMOVE", "list" + suffix, "list" + suffix, "LEFT", "RIGHT"),
        ])())
    return commands


@pytest.mark.parametrize("limit", ["256mb", "200kb"])
def test_members_that_change_before_they_are_saved(start_server, tmp_path, limit):
    server = start_server("--dir", str(tmp_path), "--snapshot-memory-limit", limit)
    conn = server.raw()
    rng = random.Random(2)
    names = fill_large(conn)
    assert conn.cmd("EXPIRE", "zset", 5000) == 1
    conn.cmd("HPEXPIRE", "hash", 5_000_000, "FIELDS", 3, *names[:3])
    changes = changes_of(names, "", rng, 900)
    digest = save_and_change(conn, changes, 1)
    assert digest_of_file(start_server, tmp_path) == digest
    assert_memory_returned(conn)
    # Once more, with what has become of them.
    digest = save_and_change(conn, changes_of(names, "", rng, 300), 2)
    assert digest_of_file(start_server, tmp_path) == digest


def test_values_that_go_before_they_are_saved(start_server, tmp_path):
    server = start_server("--dir", str(tmp_path))
    conn = server.raw()
    for i in range(7):
        fill_large(conn, ":%d" % i, 3000)
    kinds = ("hash:%d", "set:%d", "zset:%d", "list:%d")
    middle = [("LSET", "list:6", 3000, "x"), ("LINSERT", "list:5", "BEFORE", "x", "y"),
              ("LREM", "list:4", 1, "no such item")]
    changes = middle + [
        words for kind in kinds for words in (
            ("DEL", kind % 0), ("SET", kind % 1, "text"), ("RENAME", kind % 2, "new:" + kind % 2),
            ("EXPIRE", kind % 3, 0), ("COPY", kind % 4, "copy:" + kind % 4),
            ("MOVE", kind % 5, 3), ("UNLINK", kind % 6),
            ("PERSIST", kind % 4))]
    # What was renamed goes on changing under its new name.
    changes += [("HSET", "new:hash:2", "f", "v"), ("SADD", "new:set:2", "m"),
                ("ZADD", "new:zset:2", 1, "m"), ("LPOP", "new:list:2")]
    digest = save_and_change(conn, changes, 1)
    assert digest_of_file(start_server, tmp_path) == digest
    assert_memory_returned(conn)


def test_the_reference_reads_values_that_were_sliced(start_server, tmp_path):
    server = start_server("--dir", str(tmp_path))
    conn = server.raw()
    names = fill_large(conn, "", 5000)
    expected = {
        "hash": conn.cmd("HLEN", "hash"), "set": sorted(conn.cmd("SMEMBERS", "set")),
        "zset": conn.cmd("ZRANGE", "zset", 0, -1, "WITHSCORES"),
        "list": conn.cmd("LRANGE", "list", 0, -1)}
    save_and_change(conn, changes_of(names, "", random.Random(3), 300), 1)
    other = Server("--dir", str(tmp_path), binary=REFERENCE)
    try:
        theirs = other.raw()
        assert theirs.cmd("HLEN", "hash") == expected["hash"]
        values = theirs.cmd("HMGET", "hash", *names)
        assert values == [("value of " + name).encode() for name in names]
        assert sorted(theirs.cmd("SMEMBERS", "set")) == expected["set"]
        assert theirs.cmd("ZRANGE", "zset", 0, -1, "WITHSCORES") == expected["zset"]
        assert theirs.cmd("LRANGE", "list", 0, -1) == expected["list"]
    finally:
        other.stop()


# --- while they are saved ---

SUM = 1000


class Writers:
    """Connections that keep what holds between members, in transactions."""

    def __init__(self, server, names, count=3):
        self.stop = threading.Event()
        self.problems = []
        self.threads = [threading.Thread(target=self.run, args=(server, names, n))
                        for n in range(count)]
        for thread in self.threads:
            thread.start()

    def run(self, server, names, seed):
        rng = random.Random(seed)
        conn = server.raw()
        try:
            while not self.stop.is_set():
                commands = []
                for _ in range(10):
                    commands += self.transaction(rng, names)
                for reply in send_all(conn, commands):
                    assert not isinstance(reply, Error), reply
        except Exception as problem:  # shown below
            self.problems.append(problem)

    @staticmethod
    def transaction(rng, names):
        one, other = rng.sample(names, 2)
        amount = rng.randrange(1, 50)
        new = "new:%d" % rng.randrange(10 ** 18)  # never the same one twice
        ends = ("LEFT", "RIGHT") if rng.randrange(2) else ("RIGHT", "LEFT")
        sets = ("set", "twin") if rng.randrange(2) else ("twin", "set")
        return [("MULTI",),
                ("ZINCRBY", "zset", -amount, one), ("ZINCRBY", "zset", amount, other),
                ("HINCRBY", "hash", one, amount), ("HINCRBY", "hash", other, -amount),
                ("LMOVE", "list", "list", *ends),
                ("SMOVE", *sets, one),
                ("INCR", "count"), ("HSET", "log", new, "x" * 30), ("RPUSH", "log:list", new),
                ("ZADD", "log:zset", amount, new), ("SADD", "log:set", new),
                ("EXEC",)]

    def end(self):
        self.stop.set()
        for thread in self.threads:
            thread.join(20 * TIME_SCALE)
        assert not self.problems


def fill_for_writers(conn, names):
    words = [word for name in names for word in (SUM, name)]
    fields = [word for name in names for word in (name, SUM)]
    log = ["old:%d:%s" % (i, "o" * 20) for i in range(len(names))]
    send_many(conn, chunked("ZADD", "zset", words, 500) + chunked("HSET", "hash", fields, 500) +
              chunked("RPUSH", "list", range(len(names)), 500) +
              chunked("SADD", "set", names, 500) +
              chunked("HSET", "log", [word for name in log for word in (name, "y" * 30)], 500) +
              chunked("RPUSH", "log:list", log, 500) + chunked("SADD", "log:set", log, 500) +
              chunked("ZADD", "log:zset", [word for name in log for word in (7, name)], 500))
    conn.cmd("SET", "count", len(names))


def assert_holds(conn, names):
    count = len(names)
    flat = conn.cmd("ZRANGE", "zset", 0, -1, "WITHSCORES")
    assert len(flat) == 2 * count and sum(map(int, flat[1::2])) == count * SUM
    values = conn.cmd("HVALS", "hash")
    assert len(values) == count and sum(map(int, values)) == count * SUM
    assert sorted(map(int, conn.cmd("LRANGE", "list", 0, -1))) == list(range(count))
    members = conn.cmd("SMEMBERS", "set") + conn.cmd("SMEMBERS", "twin")
    assert sorted(members) == sorted(name.encode() for name in names)
    logged = int(conn.cmd("GET", "count"))
    assert [conn.cmd("HLEN", "log"), conn.cmd("LLEN", "log:list"), conn.cmd("ZCARD", "log:zset"),
            conn.cmd("SCARD", "log:set")] == [logged] * 4
    items = conn.cmd("LRANGE", "log:list", 0, -1)
    assert sorted(items) == sorted(conn.cmd("SMEMBERS", "log:set")) == \
        sorted(conn.cmd("HKEYS", "log")) == sorted(conn.cmd("ZRANGE", "log:zset", 0, -1))


@pytest.mark.parametrize("limit", ["256mb", "150kb"])
def test_what_holds_between_members_holds_in_each_file(start_server, tmp_path, limit):
    server = start_server("--dir", str(tmp_path), "--snapshot-memory-limit", limit)
    conn = server.raw()
    names = ["member:%d" % i for i in range(10_000)]
    fill_for_writers(conn, names)
    writers = Writers(server, names)
    files = []
    try:
        for n in range(3):
            assert conn.cmd("BGSAVE") == b"Background saving started"
            wait_saved(conn, n + 1)
            files.append((tmp_path / "dump.rdb").read_bytes())
    finally:
        writers.end()
    assert_holds(conn, names)
    assert_memory_returned(conn)
    folder = tmp_path / "look"
    folder.mkdir()
    for content in files:
        (folder / "dump.rdb").write_bytes(content)
        other = start_server("--dir", str(folder))
        assert_holds(other.raw(), names)
        other.stop()
    theirs = Server("--dir", str(folder), binary=REFERENCE)
    try:
        assert_holds(theirs.raw(), names)
    finally:
        theirs.stop()


def test_a_log_is_rewritten_while_members_change(start_server, tmp_path):
    args = ("--dir", str(tmp_path), "--appendonly", "yes", "--appendfsync", "no")
    server = start_server(*args)
    conn = server.raw()
    names = ["member:%d" % i for i in range(10_000)]
    fill_for_writers(conn, names)
    writers = Writers(server, names, 2)
    try:
        assert conn.cmd("BGREWRITEAOF").startswith(b"Background append only file rewriting")
        deadline = time.monotonic() + 30 * TIME_SCALE
        while info(conn, "aof_rewrite_in_progress") != b"0" or info(conn, "aof_rewrites") == b"0":
            assert time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        writers.end()
    digest = conn.cmd("DEBUG", "DIGEST")
    server.stop()
    second = start_server(*args)
    assert second.raw().cmd("DEBUG", "DIGEST") == digest
    assert_holds(second.raw(), names)


@pytest.mark.parametrize("way", ["FLUSHALL", "CANCEL", "SWAPDB", "SHUTDOWN", "RELOAD"])
def test_a_saving_ends_in_the_middle_of_values(start_server, tmp_path, way):
    server = start_server("--dir", str(tmp_path), "--snapshot-memory-limit", "100kb",
                          "--enable-debug-command", "yes")
    conn = server.raw()
    names = fill_large(conn, "", 5000)
    rng = random.Random(4)
    for n in range(4):
        save = [("BGSAVE",)] + changes_of(names, "", rng, 60 * n)
        save += {"FLUSHALL": [("FLUSHALL",)], "CANCEL": [("BGSAVE", "CANCEL")],
                 "SWAPDB": [("SWAPDB", 0, 1), ("SWAPDB", 0, 1)], "RELOAD": [("DEBUG", "RELOAD")],
                 "SHUTDOWN": []}[way]
        replies = send_all(conn, save)
        assert replies[0] == b"Background saving started"
        if way == "SHUTDOWN":
            conn.send_cmd("SHUTDOWN", "NOSAVE")
            assert server.wait() == 0
            return
        deadline = time.monotonic() + 30 * TIME_SCALE
        while info(conn, "rdb_bgsave_in_progress") != b"0":
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert_memory_returned(conn)
        if way == "FLUSHALL":
            fill_large(conn, "", 5000)
    digest = conn.cmd("DEBUG", "DIGEST")
    assert conn.cmd("BGSAVE") == b"Background saving started"
    wait_saved(conn, 1)
    assert digest_of_file(start_server, tmp_path) == digest
