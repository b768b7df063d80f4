#!/usr/bin/python3
"""Random keyspaces and random changes through append-only logs, both ways: redis-server reads the folder that
Kvik wrote and has the same content, goes on in it, and Kvik reads that. SEED= repeats a run.
"""
import os
import random
import sys
import time
from pathlib import Path

import pytest

from process import REFERENCE, TIME_SCALE, Server
from raw import Error

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "persist"))
from content import content  # noqa: E402

pytestmark = pytest.mark.kvik_only

FAR = 4102444800000


def info(conn, name):
    for line in conn.cmd("INFO", "persistence").splitlines():
        if line.startswith(name.encode() + b":"):
            return line.split(b":", 1)[1].decode()
    raise AssertionError("no " + name)


def words(rng):
    def word():
        return rng.choice([
            b"%d" % rng.randrange(-1 << 40, 1 << 40), b"w%d" % rng.randrange(99), b"",
            b"x" * rng.choice([63, 64, 70, 5000]), rng.randbytes(12), b"\r\n$3\r\n*1\r\n"])

    return word


def grow(rng):
    """Commands that make values of every type and encoding, in several databases."""
    word = words(rng)
    commands = []
    for i in range(120):
        key, count = b"key:%d" % i, rng.choice([1, 3, 20, 129, 600])
        commands.append(rng.choice([
            lambda: ("SET", key, word() * rng.choice([1, 1, 30])),
            lambda: ("SET", key, rng.randrange(1 << 40)),
            lambda: ("RPUSH", key, *[word() for _ in range(count)]),
            lambda: ("SADD", key, *[rng.randrange(1 << 33) for _ in range(count)]),
            lambda: ("SADD", key, *[word() for _ in range(count)]),
            lambda: ("HSET", key, *[word() for _ in range(2 * count)]),
            lambda: ("ZADD", key, *[part for _ in range(count) for part in (
                rng.choice([1, 2.5, 0.1, -1e300, b"inf"]), word())]),
            lambda: ("PFADD", key, *[word() for _ in range(count)]),
            lambda: ("GEOADD", key, rng.uniform(-180, 180), rng.uniform(-85, 85), word()),
            lambda: ("SETBIT", key, rng.randrange(9000), 1),
        ])())
        if rng.random() < 0.3:
            commands.append(("PEXPIREAT", key, FAR + rng.randrange(100000)))
        if rng.random() < 0.1:
            commands.append(("SELECT", rng.randrange(16)))
    return commands


def change(rng):
    """Commands whose effect is random, relative, or depends on what is there. Errors are welcome."""
    word = words(rng)
    commands = []
    for _ in range(250):
        key, other = (b"key:%d" % rng.randrange(120) for _ in range(2))
        commands.append(rng.choice([
            lambda: ("APPEND", key, word()), lambda: ("INCRBYFLOAT", key, "0.1"),
            lambda: ("SETRANGE", key, rng.randrange(300), word()),
            lambda: ("GETEX", key, "EX", 100000000), lambda: ("PERSIST", key),
            lambda: ("SPOP", key, rng.randrange(5)), lambda: ("SPOP", key),
            lambda: ("SMOVE", key, other, word()), lambda: ("SUNIONSTORE", key, key, other),
            lambda: ("SINTERSTORE", key, key, other),
            lambda: ("HINCRBYFLOAT", key, word(), "1.1"), lambda: ("HDEL", key, word(), word()),
            lambda: ("HSETNX", key, word(), word()),
            lambda: ("ZINCRBY", key, "0.7", word()), lambda: ("ZPOPMAX", key, 3),
            lambda: ("ZREMRANGEBYRANK", key, 0, 2), lambda: ("ZUNIONSTORE", key, 2, key, other),
            lambda: ("ZRANGESTORE", key, other, 0, 5), lambda: ("LTRIM", key, 1, -2),
            lambda: ("LINSERT", key, "BEFORE", word(), word()), lambda: ("LREM", key, 1, word()),
            lambda: ("RPOPLPUSH", key, other), lambda: ("LMPOP", 2, key, other, "LEFT", "COUNT", 3),
            lambda: ("SORT", key, "ALPHA", "STORE", other), lambda: ("BITOP", "XOR", key, key, other),
            lambda: ("BITFIELD", key, "INCRBY", "u8", 5, 100), lambda: ("PFMERGE", key, other),
            lambda: ("RENAME", key, other), lambda: ("COPY", key, other, "REPLACE"),
            lambda: ("DEL", key), lambda: ("UNLINK", key, other), lambda: ("MOVE", key, 2),
            lambda: ("EXPIRE", key, 100000000), lambda: ("PEXPIRE", key, -5),
            lambda: ("SWAPDB", 3, 4), lambda: ("SELECT", rng.randrange(4)), lambda: ("MULTI",),
            lambda: ("EXEC",), lambda: ("BLPOP", key, other, "0.001"),
        ])())
    return commands + [("DISCARD",)]


def run(conn, commands):
    for i in range(0, len(commands), 50):
        for command in commands[i:i + 50]:
            conn.send_cmd(*command)
        for _ in commands[i:i + 50]:
            conn.read()


def rewrite(conn):
    deadline = time.monotonic() + 30 * TIME_SCALE
    assert not isinstance(conn.cmd("BGREWRITEAOF"), Error)
    while info(conn, "aof_rewrite_in_progress") != "0":
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert info(conn, "aof_last_bgrewrite_status") == "ok"


def live(server, rng):
    """Changes what a server has, with or without a rewrite in between. Its content at the end."""
    with server.raw(timeout=30) as conn:
        run(conn, grow(rng))
        if rng.randrange(3):
            rewrite(conn)
        run(conn, change(rng))
        conn.cmd("SELECT", 0)
        return content(conn)


def equal(one, other):
    """Expiries that a server has taken from its own clock are the same to the second."""
    assert one.keys() == other.keys()
    for db, keys in one.items():
        assert keys.keys() == other[db].keys()
        for key, value in keys.items():
            assert value[:2] == other[db][key][:2], (db, key)
            assert value[2] == other[db][key][2], (db, key)


@pytest.mark.parametrize("preamble", ["yes", "no"])
def test_random_changes_go_both_ways(tmp_path, preamble):
    seed = int(os.environ.get("SEED") or random.randrange(1 << 30))
    print("SEED=%d" % seed)
    rng = random.Random(seed)
    options = ("--dir", str(tmp_path), "--appendonly", "yes", "--aof-use-rdb-preamble", preamble)
    want = {}
    for binary in (None, REFERENCE, None, REFERENCE, None):
        server = Server(*options, binary=binary)
        try:
            with server.raw(timeout=30) as conn:
                equal(want, content(conn))
            want = live(server, rng)
        finally:
            server.stop()
