#!/usr/bin/python3
"""aof-use-rdb-preamble no: the base of a log consists of commands, which any server can run."""
import sys
import time
from pathlib import Path

import pytest

from process import REFERENCE, TIME_SCALE, Server

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "persist"))

import rdb_bytes as rdb  # noqa: E402

pytestmark = pytest.mark.kvik_only

COMMANDS = "appendonly.aof.1.base.aof"


def info(conn):
    text = conn.cmd("INFO", "persistence").decode()
    return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)


def wait_rewritten(conn):
    deadline = time.monotonic() + 20 * TIME_SCALE
    while info(conn)["aof_rewrite_in_progress"] != "0" or not int(info(conn)["aof_base_size"]):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def fill(conn):
    """Values of every type that redis-server 7.0 has, small and large, in two databases."""
    conn.cmd("SET", "text", b"\x00\r\n$3\r\n\xff")
    conn.cmd("SET", "number", "-17")
    conn.cmd("SET", "", "a key without a name")
    conn.cmd("SET", "due", "x", "PXAT", "33333333333333")
    conn.cmd("SET", "big", b"y" * 200000)
    for count in (1, 63, 64, 65, 128, 700):
        conn.cmd("RPUSH", "list:%d" % count, *range(count))
        conn.cmd("SADD", "ints:%d" % count, *range(count))
        conn.cmd("SADD", "set:%d" % count, *("member %d" % n for n in range(count)))
        conn.cmd("HSET", "hash:%d" % count,
                 *(w for n in range(count) for w in ("field %d" % n, n * n)))
        conn.cmd("ZADD", "zset:%d" % count,
                 *(w for n in range(count) for w in (n / 4 - 9, "member %d" % n)))
    conn.cmd("ZADD", "zset:edge", "inf", "a", "-inf", "b", "1e300", "c", "0.1", "d")
    conn.cmd("PEXPIREAT", "zset:65", "33333333333334")
    conn.cmd("SELECT", "5")
    conn.cmd("RPUSH", "list", b"", b"\r\n", "x" * 30000)
    conn.cmd("SELECT", "0")


def fill_dues(conn):
    """Members with due times, and a stream, which Kvik keeps as it came."""
    for count in (3, 300):
        conn.cmd("HSET", "due:hash:%d" % count, *(w for n in range(count) for w in (n, n)))
        conn.cmd("SADD", "due:set:%d" % count, *("m%d" % n for n in range(count)))
        conn.cmd("ZADD", "due:zset:%d" % count, *(w for n in range(count) for w in (n, n)))
        conn.cmd("HPEXPIREAT", "due:hash:%d" % count, "33333333333335", "FIELDS", "2", "0", "2")
        conn.cmd("SPEXPIREAT", "due:set:%d" % count, "33333333333336", "MEMBERS", "1", "m1")
        conn.cmd("ZPEXPIREAT", "due:zset:%d" % count, "33333333333337", "MEMBERS", "1", "2")


@pytest.fixture
def start(start_server, tmp_path):
    def begin(*args):
        return start_server("--dir", tmp_path, "--appendonly", "yes",
                            "--aof-use-rdb-preamble", "no", *args)
    return begin


def rewrite(server, folder, filled):
    """Fills the server and rewrites its log; the digest and the base."""
    with server.raw() as conn:
        filled(conn)
        assert b"rewriting" in conn.cmd("BGREWRITEAOF")
        wait_rewritten(conn)
        conn.cmd("SET", "later", "1")
        digest = conn.cmd("DEBUG", "DIGEST")
    server.stop()
    base = (folder / "appendonlydir" / COMMANDS).read_bytes()
    assert base.startswith(b"*2\r\n$6\r\nSELECT\r\n$1\r\n")
    return digest, base


def test_a_base_of_commands_comes_back(start, redis_server, tmp_path):
    def filled(conn):
        fill(conn)
        fill_dues(conn)
        with redis_server.raw() as redis:
            redis.cmd("XADD", "kvik:stream", "1-1", "f", "v")
            stream = redis.cmd("DUMP", "kvik:stream")
            redis.cmd("DEL", "kvik:stream")
        assert conn.cmd("RESTORE", "stream", "0", stream) == b"OK"
        assert conn.cmd("RESTORE", "stream:due", "33333333333338", stream, "ABSTTL") == b"OK"

    digest, base = rewrite(start(), tmp_path, filled)
    assert b"HPEXPIREAT" in base and b"ABSTTL" in base
    server = start()
    with server.raw() as conn:
        assert conn.cmd("DEBUG", "DIGEST") == digest
        assert conn.cmd("PEXPIRETIME", "stream:due") == 33333333333338
        assert conn.cmd("HPEXPIRETIME", "due:hash:300", "FIELDS", "2", "2", "3") == \
            [33333333333335, -1]


def test_the_reference_runs_a_base_of_commands(start, tmp_path):
    _, base = rewrite(start(), tmp_path, fill)
    # 700 items are 11 commands: each has 64 at most.
    assert base.count(b"$5\r\nRPUSH\r\n$8\r\nlist:700\r\n") == 11
    assert base.count(b"$5\r\nRPUSH\r\n$7\r\nlist:64\r\n") == 1
    want = start()
    redis = Server("--dir", tmp_path, "--appendonly", "yes", "--aof-use-rdb-preamble", "no",
                   binary=REFERENCE)
    try:
        with redis.raw() as one, want.raw() as other:
            keys = sorted(one.cmd("KEYS", "*"))
            assert keys == sorted(other.cmd("KEYS", "*"))
            for key in keys:
                kind = one.cmd("TYPE", key)
                assert kind == other.cmd("TYPE", key)
                assert one.cmd("PEXPIRETIME", key) == other.cmd("PEXPIRETIME", key)
                read = {b"string": ("GET", key), b"list": ("LRANGE", key, 0, -1),
                        b"set": ("SMEMBERS", key), b"hash": ("HGETALL", key),
                        b"zset": ("ZRANGE", key, 0, -1, "WITHSCORES")}[kind]
                a, b = one.cmd(*read), other.cmd(*read)
                if kind in (b"set", b"hash"):
                    a, b = sorted(a), sorted(b)
                if kind == b"zset":  # Redis 8 prints scores shorter than 7.0
                    a, b = ([[float(s) for s in x[1::2]], x[::2]] for x in (a, b))
                assert a == b, key
    finally:
        redis.stop()


def test_the_form_of_the_base_may_change_while_the_server_runs(start_server, tmp_path):
    server = start_server("--dir", tmp_path, "--aof-use-rdb-preamble", "no")
    with server.raw() as conn:
        fill(conn)
        assert conn.cmd("CONFIG", "SET", "appendonly", "yes") == b"OK"
        wait_rewritten(conn)
        log = tmp_path / "appendonlydir"
        assert (log / COMMANDS).exists()
        assert conn.cmd("CONFIG", "SET", "aof-use-rdb-preamble", "yes") == b"OK"
        assert b"rewriting" in conn.cmd("BGREWRITEAOF")
        deadline = time.monotonic() + 20 * TIME_SCALE
        while not (log / "appendonly.aof.2.base.rdb").exists() or (log / COMMANDS).exists():
            assert time.monotonic() < deadline, "waited in vain"
            time.sleep(0.01)
        digest = conn.cmd("DEBUG", "DIGEST")
    server.stop()
    with start_server("--dir", tmp_path, "--appendonly", "yes").raw() as conn:
        assert conn.cmd("DEBUG", "DIGEST") == digest


def test_due_keys_of_a_base_wait_for_what_follows(start, tmp_path):
    server = start()
    with server.raw() as conn:
        conn.cmd("DEBUG", "SET-ACTIVE-EXPIRE", "0")
        conn.cmd("SET", "kept", "1", "PX", "150")
        conn.cmd("SET", "gone", "1", "PX", "150")
        conn.cmd("HSET", "hash", "f", "v", "g", "w")
        conn.cmd("HPEXPIRE", "hash", "150", "FIELDS", "1", "f")
        conn.cmd("BGREWRITEAOF")
        wait_rewritten(conn)
        assert conn.cmd("PERSIST", "kept") in (0, 1)
        persisted = conn.cmd("EXISTS", "kept")
    server.stop()
    time.sleep(0.2)
    with start().raw() as conn:
        assert conn.cmd("EXISTS", "kept") == persisted
        assert conn.cmd("EXISTS", "gone") == 0
        assert conn.cmd("HGETALL", "hash") == [b"g", b"w"]


def test_data_of_modules_keeps_the_format_that_holds_it(start, tmp_path):
    """Functions become commands (test_functions.py); what belongs to modules does not."""
    folder = tmp_path / "appendonlydir"
    folder.mkdir()
    module = b"\xf7" + rdb.length(12345 << 10 | 1) + b"\x02\x02" + b"\x05" + rdb.string(b"data") + b"\x00"
    (folder / "appendonly.aof.1.base.rdb").write_bytes(rdb.rdb_file(module))
    (folder / "appendonly.aof.manifest").write_text("file appendonly.aof.1.base.rdb seq 1 type b\n")
    server = start()
    with server.raw() as conn:
        conn.cmd("BGREWRITEAOF")
        deadline = time.monotonic() + 20 * TIME_SCALE
        while not (folder / "appendonly.aof.2.base.rdb").exists():
            assert time.monotonic() < deadline, "waited in vain"
            time.sleep(0.01)
    assert "since it holds modules' data" in server.log()
    assert module in (folder / "appendonly.aof.2.base.rdb").read_bytes()
