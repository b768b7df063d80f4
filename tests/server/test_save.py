#!/usr/bin/python3
"""SAVE, BGSAVE, save points and the end of the server: what is on disk, and when."""
import os
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


def wait_saved(conn, saves=None):
    """Until no saving goes on (and so many were good)."""
    deadline = time.monotonic() + 30 * TIME_SCALE
    while info(conn, "rdb_bgsave_in_progress") != b"0" or \
            (saves is not None and int(info(conn, "rdb_saves")) < saves):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def fill(conn):
    conn.cmd("SET", "s", "x" * 100)
    conn.cmd("SET", "n", "12345", "EX", "1000")
    conn.cmd("RPUSH", "l", *range(300))
    conn.cmd("HSET", "h", "f", "v", "g", "w" * 70)
    conn.cmd("SADD", "set", *range(100), "text")
    conn.cmd("ZADD", "z", *[word for i in range(200) for word in (i * 1.5, "m%d" % i)])
    conn.cmd("SELECT", "3")
    conn.cmd("SET", "other", "database")
    conn.cmd("SELECT", "0")


def again(start_server, server, *args, **more):
    """A new server on what an old one left."""
    return start_server("--dir", str(server.dir), *args, **more)


@pytest.mark.parametrize("command", ["SAVE", "BGSAVE"])
def test_what_was_saved_is_loaded(start_server, tmp_path, command):
    first = start_server("--dir", str(tmp_path))
    conn = first.raw()
    fill(conn)
    digest = conn.cmd("DEBUG", "DIGEST")
    assert conn.cmd(command) in (b"OK", b"Background saving started")
    wait_saved(conn, 1)
    assert info(conn, "rdb_changes_since_last_save") == b"0"
    assert abs(conn.cmd("LASTSAVE") - time.time()) < 60
    first.stop()
    second = start_server("--dir", str(tmp_path))
    assert second.raw().cmd("DEBUG", "DIGEST") == digest
    assert int(info(second.raw(), "rdb_last_load_keys_loaded")) == 7


@pytest.mark.parametrize("command", ["SAVE", "BGSAVE"])
def test_the_reference_reads_it(start_server, tmp_path, command):
    first = start_server("--dir", str(tmp_path))
    conn = first.raw()
    fill(conn)
    conn.cmd(command)
    wait_saved(conn, 1)
    first.stop()
    other = Server("--dir", str(tmp_path), binary=REFERENCE)
    try:
        theirs = other.raw()
        assert theirs.cmd("DBSIZE") == 6
        assert theirs.cmd("LRANGE", "l", "0", "-1") == [b"%d" % i for i in range(300)]
        assert theirs.cmd("ZSCORE", "z", "m199") == b"298.5"
        assert sorted(theirs.cmd("HGETALL", "h")) == sorted([b"f", b"v", b"g", b"w" * 70])
        assert theirs.cmd("TTL", "n") > 900
        theirs.cmd("SELECT", "3")
        assert theirs.cmd("GET", "other") == b"database"
    finally:
        other.stop()


def test_a_snapshot_shows_one_moment(start_server, tmp_path):
    """Transfers between accounts in transactions, and within one sorted set, while snapshots are
    taken: each snapshot holds the whole sum."""
    accounts, start, rounds = 400, 1000, 6
    server = start_server("--dir", str(tmp_path))
    conn = server.raw()
    for i in range(accounts):
        conn.cmd("SET", "account:%d" % i, start)
    conn.cmd("ZADD", "ledger", *[word for i in range(accounts) for word in (start, "m%d" % i)])
    stop = threading.Event()
    problems = []

    def transfer(seed):
        rng = random.Random(seed)
        own = server.raw()
        try:
            while not stop.is_set():
                a, b = rng.sample(range(accounts), 2)
                amount = rng.randrange(1, 50)
                own.cmd("MULTI")
                own.cmd("DECRBY", "account:%d" % a, amount)
                own.cmd("INCRBY", "account:%d" % b, amount)
                own.cmd("ZINCRBY", "ledger", -amount, "m%d" % a)
                own.cmd("ZINCRBY", "ledger", amount, "m%d" % b)
                own.cmd("SET", "noise:%d" % rng.randrange(2000), "x" * rng.randrange(500))
                own.cmd("DEL", "noise:%d" % rng.randrange(2000))
                assert len(own.cmd("EXEC")) == 6
        except Exception as problem:  # shown below
            problems.append(problem)

    threads = [threading.Thread(target=transfer, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    files = []
    try:
        for n in range(rounds):
            assert conn.cmd("BGSAVE") == b"Background saving started"
            wait_saved(conn, n + 1)
            files.append((tmp_path / "dump.rdb").read_bytes())
    finally:
        stop.set()
        for thread in threads:
            thread.join(20 * TIME_SCALE)
    assert not problems
    for content in files:
        folder = tmp_path / "look"
        folder.mkdir(exist_ok=True)
        (folder / "dump.rdb").write_bytes(content)
        other = start_server("--dir", str(folder))
        look = other.raw()
        keys = ["account:%d" % i for i in range(accounts)]
        assert sum(map(int, look.cmd("MGET", *keys))) == accounts * start
        flat = look.cmd("ZRANGE", "ledger", "0", "-1", "WITHSCORES")
        assert len(flat) == 2 * accounts
        assert sum(map(int, flat[1::2])) == accounts * start
        other.stop()


def test_a_second_saving_is_refused_or_scheduled(raw):
    assert raw.cmd("BGSAVE", "NOW") == Error(b"ERR syntax error")
    assert raw.cmd("BGSAVE", "CANCEL") == \
        Error(b"ERR Background saving is currently not in progress or scheduled")


def test_flushall_spoils_the_snapshot_that_goes_on(start_server, tmp_path):
    server = start_server("--dir", str(tmp_path))
    conn = server.raw()
    fill(conn)
    conn.cmd("SAVE")
    before = (tmp_path / "dump.rdb").read_bytes()
    conn.send_cmd("BGSAVE")
    conn.send_cmd("FLUSHALL")
    assert conn.read() == b"Background saving started" and conn.read() == b"OK"
    wait_saved(conn)
    conn.cmd("SET", "k", "v")
    after = (tmp_path / "dump.rdb").read_bytes()
    # Either it was complete before the flush, or the old file stays.
    assert after == before or info(conn, "rdb_last_bgsave_status") == b"ok"
    assert not [name for name in os.listdir(tmp_path) if name.endswith(".temp")]


def test_a_folder_that_cannot_be_written(start_server, tmp_path):
    server = start_server("--dir", str(tmp_path), "--enable-protected-configs", "yes")
    conn = server.raw()
    fill(conn)
    conn.cmd("SAVE")
    before = (tmp_path / "dump.rdb").read_bytes()
    # A name that exists as a folder cannot be replaced by a file.
    (tmp_path / "busy.rdb").mkdir()
    (tmp_path / "busy.rdb" / "x").write_text("x")
    assert conn.cmd("CONFIG", "SET", "dbfilename", "busy.rdb") == b"OK"
    assert conn.cmd("SAVE") == Error(b"ERR")
    assert conn.cmd("BGSAVE") == b"Background saving started"
    wait_saved(conn)
    assert info(conn, "rdb_last_bgsave_status") == b"err"
    assert (tmp_path / "dump.rdb").read_bytes() == before
    assert conn.cmd("GET", "s") == b"x" * 100
    assert conn.cmd("SET", "s", "x" * 100) == b"OK"
    # With save points a server that cannot save refuses writes, as soon as it has seen that.
    assert conn.cmd("CONFIG", "SET", "save", "3600 1000000") == b"OK"
    deadline = time.monotonic() + 10 * TIME_SCALE
    while conn.cmd("SET", "s", "y") == b"OK":
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert conn.cmd("SET", "s", "y").code == b"MISCONF"
    assert conn.cmd("GET", "s")[:1] in (b"x", b"y")
    assert conn.cmd("CONFIG", "SET", "stop-writes-on-bgsave-error", "no") == b"OK"
    while conn.cmd("SET", "s", "x" * 100) != b"OK":
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert conn.cmd("CONFIG", "SET", "stop-writes-on-bgsave-error", "yes", "save", "") == b"OK"
    assert not [name for name in os.listdir(tmp_path) if name.endswith(".temp")]
    assert conn.cmd("CONFIG", "SET", "dbfilename", "dump.rdb") == b"OK"
    assert conn.cmd("BGSAVE") == b"Background saving started"
    wait_saved(conn)
    assert info(conn, "rdb_last_bgsave_status") == b"ok"


def test_save_points(start_server, tmp_path):
    server = start_server("--dir", str(tmp_path), "--save", "1 5")
    conn = server.raw()
    for i in range(10):
        conn.cmd("SET", i, i)
    wait_saved(conn, 1)
    assert (tmp_path / "dump.rdb").exists()


def test_the_end_saves_when_there_are_save_points(start_server, tmp_path):
    server = start_server("--dir", str(tmp_path), "--save", "3600 1")
    fill(server.raw())
    server.stop()
    second = start_server("--dir", str(tmp_path))
    assert second.raw().cmd("DBSIZE") == 6
    second.raw().cmd("SET", "new", "x")
    second.raw().send_cmd("SHUTDOWN", "SAVE")
    assert second.wait() == 0
    third = start_server("--dir", str(tmp_path), "--save", "3600 1")
    assert third.raw().cmd("GET", "new") == b"x"
    third.raw().cmd("SET", "unsaved", "x")
    third.raw().send_cmd("SHUTDOWN", "NOSAVE")
    assert third.wait() == 0
    fourth = start_server("--dir", str(tmp_path))
    assert fourth.raw().cmd("EXISTS", "unsaved", "new") == 1


def test_a_damaged_file_ends_the_start(start_server, tmp_path):
    (tmp_path / "dump.rdb").write_bytes(b"REDIS0010\xff12345678")
    server = Server("--dir", str(tmp_path), wait=False)
    assert server.wait() == 1
    assert "dump.rdb" in server.log()
    server.abandon()


def test_memory_of_a_snapshot_is_given_back(start_server, tmp_path):
    server = start_server("--dir", str(tmp_path), "--snapshot-memory-limit", "100kb")
    conn = server.raw()
    for i in range(5000):
        conn.send_cmd("SET", "key:%d" % i, "v%d" % i * 20)
    for i in range(5000):
        assert conn.read() == b"OK"
    conn.cmd("BGSAVE")
    for i in range(5000):
        conn.send_cmd("APPEND", "key:%d" % i, "more")
    for i in range(5000):
        assert isinstance(conn.read(), int)
    wait_saved(conn, 1)
    assert info(conn, "snapshot_buffer_bytes") == b"0"
    stats = conn.cmd("MEMORY", "STATS")
    pairs = dict(zip(stats[::2], stats[1::2]))
    assert pairs.get(b"snapshot", 0) == 0


# --- the base of the append-only log ---


def wait_rewritten(conn, rewrites):
    deadline = time.monotonic() + 30 * TIME_SCALE
    while info(conn, "aof_rewrite_in_progress") != b"0" or int(info(conn, "aof_rewrites")) < rewrites:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert info(conn, "aof_last_bgrewrite_status") == b"ok"


def test_a_log_is_rewritten_while_it_is_written(start_server, tmp_path):
    args = ("--dir", str(tmp_path), "--appendonly", "yes", "--appendfsync", "no")
    server = start_server(*args)
    conn = server.raw()
    fill(conn)
    stop = threading.Event()

    def write():
        own = server.raw()
        number = 0
        while not stop.is_set():
            own.cmd("INCR", "counter")
            own.cmd("RPUSH", "list:%d" % (number % 7), number)
            own.cmd("HSET", "hash", "f%d" % (number % 300), number)
            number += 1

    threads = [threading.Thread(target=write) for _ in range(2)]
    for thread in threads:
        thread.start()
    for n in range(3):
        while isinstance(reply := conn.cmd("BGREWRITEAOF"), Error):
            assert b"already in progress" in reply.text  # the end of the one before
            time.sleep(0.01)
        assert reply.startswith(b"Background append only file rewriting s")
        wait_rewritten(conn, n + 1)
        time.sleep(0.1)
    stop.set()
    for thread in threads:
        thread.join()
    digest = conn.cmd("DEBUG", "DIGEST")
    server.stop()
    names = os.listdir(tmp_path / "appendonlydir")
    assert "appendonly.aof.1.incr.aof" not in names
    bases = [name for name in names if name.endswith(".base.rdb")]
    assert len(bases) == 1 and bases[0] != "appendonly.aof.1.base.rdb"
    second = start_server(*args)
    assert second.raw().cmd("DEBUG", "DIGEST") == digest
    second.stop()
    other = Server("--dir", str(tmp_path), "--appendonly", "yes", binary=REFERENCE)
    try:
        assert other.raw().cmd("DBSIZE") == 6 + 1 + 7 + 1
    finally:
        other.stop()


def test_a_log_is_begun_with_data(start_server, tmp_path):
    server = start_server("--dir", str(tmp_path))
    conn = server.raw()
    fill(conn)
    assert conn.cmd("BGREWRITEAOF").code == b"ERR"
    assert conn.cmd("CONFIG", "SET", "appendonly", "yes") == b"OK"
    wait_rewritten(conn, 1)
    deadline = time.monotonic() + 30 * TIME_SCALE
    while int(info(conn, "aof_base_size")) == 0:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    conn.cmd("SET", "after", "1")
    digest = conn.cmd("DEBUG", "DIGEST")
    server.stop()
    second = start_server("--dir", str(tmp_path), "--appendonly", "yes")
    assert second.raw().cmd("DEBUG", "DIGEST") == digest
