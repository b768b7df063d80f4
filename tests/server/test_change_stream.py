#!/usr/bin/python3
"""The change stream: its bytes, replayed onto an empty server, give the same content.

DEBUG CHANGE-STREAM START opens the test reader, READ gives what was published since, as RESP
commands, STOP closes it. Random writes of every kind go to server A from one or many connections;
the stream goes to server B; DEBUG DIGEST must agree.
"""
import os
import random
import sys
import threading
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "compare"))

from generate import Generator, load_table  # noqa: E402
from process import TIME_SCALE  # noqa: E402
from raw import Error, encode, parse_all  # noqa: E402

pytestmark = pytest.mark.kvik_only

SEED = int(os.environ.get("SEED", "20240817"))
WRITES = [command for command in load_table()
          if command.flags & {"write"} and not command.flags & {"blocking"} and command.group in (
              "string", "bitmap", "generic", "hash", "sorted-set", "set", "hyperloglog", "geo")] + \
    [command for command in load_table() if command.id in ("flushall", "flushdb", "swapdb", "select")]
RELATIVE = {b"EXPIRE", b"PEXPIRE", b"SETEX", b"PSETEX", b"GETEX", b"INCRBYFLOAT", b"INCREX", b"GETDEL",
            b"GETSET", b"ZINCRBY", b"ZMPOP", b"ZEXPIRE", b"ZPEXPIRE", b"ZEXPIREAT", b"SPOP", b"SEXPIRE",
            b"SPEXPIRE", b"SEXPIREAT"}


class Pair:
    """Server A with an open stream and the empty server B that follows it."""

    def __init__(self, first, second):
        self.first, self.second = first, second
        self.control = first.raw(timeout=30)
        self.replica = second.raw(timeout=30)
        # The stream alone says what expires, however late it is replayed.
        assert self.replica.cmd("DEBUG", "CHANGE-STREAM", "APPLY") == b"OK"
        assert self.replica.cmd("DEBUG", "SET-ACTIVE-EXPIRE", 0) == b"OK"
        self.seen = bytearray()
        self.control.cmd("FLUSHALL")
        self.replica.cmd("FLUSHALL")
        self.replica.cmd("SELECT", 0)
        assert self.control.cmd("DEBUG", "CHANGE-STREAM", "START") == b"OK"

    def read(self):
        """Takes what is published; True when there was something."""
        data = self.control.cmd("DEBUG", "CHANGE-STREAM", "READ")
        assert isinstance(data, bytes), data
        self.seen += data
        return bool(data)

    def commands(self):
        while self.read():
            pass
        return parse_all(bytes(self.seen))

    def finish(self):
        """Reads the rest, closes the stream, replays it and compares. Gives the commands."""
        commands = self.commands()
        assert self.control.cmd("DEBUG", "CHANGE-STREAM", "STOP") == b"OK"
        self.replay(commands)
        self.compare()
        return commands

    def replay(self, commands):
        for start in range(0, len(commands), 500):
            batch = commands[start:start + 500]
            self.replica.send(b"".join(encode(*command) for command in batch))
            for command in batch:
                reply = self.replica.read()
                for one in reply if isinstance(reply, list) else [reply]:
                    assert not isinstance(one, Error), (command, one)

    def compare(self):
        mine = self.control.cmd("DEBUG", "DIGEST")
        other = self.replica.cmd("DEBUG", "DIGEST")
        assert not isinstance(mine, Error), mine
        if mine != other:
            raise AssertionError("content differs: %s" % "; ".join(self.differing())[:2000])

    def differing(self):
        for database in range(16):
            contents = []
            for server in (self.first, self.second):
                with server.raw() as conn:
                    conn.cmd("SELECT", database)
                    keys = conn.cmd("KEYS", "*")
                    contents.append({key: (conn.cmd("GET", key), conn.cmd("PEXPIRETIME", key))
                                     for key in keys})
            for key in sorted(set(contents[0]) | set(contents[1])):
                if contents[0].get(key) != contents[1].get(key):
                    yield "db %d key %r: A %r, B %r" % (database, key, contents[0].get(key),
                                                        contents[1].get(key))


@pytest.fixture(scope="module", params=[1, 4])
def threads(request):
    return request.param


@pytest.fixture
def pair(start_server, threads):
    made = Pair(start_server(threads=threads), start_server(threads=1))
    yield made
    made.control.close()
    made.replica.close()


def names(commands):
    return [command[0].upper() for command in commands]


def test_without_reader_there_is_no_stream(start_server):
    with start_server().raw() as conn:
        assert isinstance(conn.cmd("DEBUG", "CHANGE-STREAM", "READ"), Error)
        assert isinstance(conn.cmd("DEBUG", "CHANGE-STREAM", "STOP"), Error)
        assert conn.cmd("SET", "a", "1") == b"OK"
        assert conn.cmd("DEBUG", "CHANGE-STREAM", "START") == b"OK"
        assert conn.cmd("DEBUG", "CHANGE-STREAM", "READ") == b""
        assert conn.cmd("DEBUG", "CHANGE-STREAM", "STOP") == b"OK"


def test_what_changes_nothing_is_not_in_the_stream(pair):
    conn = pair.first.raw()
    for line in (["GET", "a"], ["DEL", "a"], ["SET", "a", "1", "XX"], ["EXPIRE", "a", "10"],
                 ["PERSIST", "a"], ["INCRBY", "a", "x"], ["FOO"], ["RENAME", "a", "b"],
                 ["COPY", "a", "b"], ["GETDEL", "a"], ["GETEX", "a", "EX", "10"], ["MGET", "a", "b"],
                 ["SETRANGE", "a", "0", ""], ["KEYS", "*"], ["SELECT", "3"], ["SELECT", "0"],
                 ["WATCH", "a"], ["MULTI"], ["GET", "a"], ["EXEC"], ["PING"], ["MOVE", "a", "1"]):
        conn.cmd(*line)
    assert pair.commands() == []
    conn.close()


def test_relative_times_become_absolute(pair):
    conn = pair.first.raw()
    for line in (["SET", "a", "1", "EX", "100"], ["SET", "b", "1", "PX", "100000"],
                 ["SETEX", "c", "100", "1"], ["PSETEX", "d", "100000", "1"], ["SET", "e", "1"],
                 ["EXPIRE", "e", "100"], ["SET", "f", "1"], ["PEXPIRE", "f", "100000", "NX"],
                 ["SET", "g", "1"], ["GETEX", "g", "EX", "100"], ["GETEX", "a", "PERSIST"],
                 ["SET", "h", "1.5"], ["INCRBYFLOAT", "h", "0.1"], ["SET", "i", "1", "KEEPTTL"],
                 ["INCRBYFLOAT", "f", "0.25"], ["EXPIREAT", "i", "4102444800"]):
        assert not isinstance(conn.cmd(*line), Error)
    conn.close()
    time.sleep(0.05)  # a relative time would now give another due time
    commands = pair.finish()
    assert not RELATIVE & set(names(commands)), commands
    for command in commands:
        words = {word.upper() for word in command[3:]} if command[0].upper() == b"SET" else set()
        assert not words & {b"EX", b"PX"}, command


def test_members_that_were_popped_are_named(pair):
    conn = pair.first.raw()
    many = ["m%d" % number for number in range(1000)]
    for line in (["SADD", "ints"] + list(range(100)), ["SPOP", "ints"], ["SPOP", "ints", 30],
                 ["SADD", "few"] + many[:50], ["SPOP", "few"], ["SPOP", "few", 20],
                 ["SADD", "many"] + many, ["SPOP", "many"], ["SPOP", "many", 200],
                 ["SPOP", "many", 700], ["SADD", "all"] + many, ["SPOP", "all", 1000],
                 ["SADD", "due"] + many[:20], ["SEXPIRE", "due", 1000, "MEMBERS", 2, "m0", "m1"],
                 ["SEXPIRE", "due", 0, "MEMBERS", 2, "m2", "m3"],
                 ["SPEXPIRE", "due", 1, "MEMBERS", 2, "m4", "m5"],
                 ["SMOVE", "due", "few", "m1"], ["PFADD", "h"] + many[:100], ["PFCOUNT", "h"]):
        assert not isinstance(conn.cmd(*line), Error), line
    time.sleep(0.05)
    conn.cmd("SCARD", "due")
    conn.close()
    commands = pair.finish()
    assert not RELATIVE & set(names(commands)), names(commands)
    assert b"PFCOUNT" in names(commands)  # keeps its estimate in the value


def test_every_database_is_selected(pair):
    conn = pair.first.raw()
    for line in (["SET", "a", "0"], ["SELECT", "3"], ["SET", "a", "3"], ["SELECT", "0"], ["SET", "b", "0"],
                 ["MOVE", "b", "5"], ["SELECT", "5"], ["COPY", "b", "c", "DB", "7"], ["SWAPDB", "3", "9"],
                 ["SELECT", "9"], ["APPEND", "a", "x"], ["SELECT", "7"], ["FLUSHDB"]):
        assert not isinstance(conn.cmd(*line), Error)
    conn.close()
    pair.finish()


def test_transaction_is_replayed(pair):
    conn = pair.first.raw()
    for line in (["MULTI"], ["SET", "a", "1"], ["SELECT", "2"], ["INCR", "a"], ["GET", "a"],
                 ["INCRBY", "a", "x"], ["EXPIRE", "a", "100"], ["EXEC"], ["SET", "b", "1"]):
        conn.cmd(*line)
    conn.close()
    commands = pair.finish()
    assert names(commands).count(b"MULTI") == names(commands).count(b"EXEC")


def test_expired_keys_are_deleted_by_the_stream(pair):
    conn = pair.first.raw()
    for number in range(200):
        conn.cmd("SET", "s%d" % number, "x", "PX", "30")
    conn.cmd("SET", "stays", "1")
    time.sleep(0.4 * TIME_SCALE)
    deleted = [command for command in pair.commands() if command[0].upper() in (b"DEL", b"UNLINK")]
    assert sum(len(command) - 1 for command in deleted) == 200
    conn.close()
    pair.finish()


def test_key_that_a_reader_finds_expired_is_deleted_by_the_stream(pair):
    conn = pair.first.raw()
    conn.cmd("DEBUG", "SET-ACTIVE-EXPIRE", "0")
    for name in ("a", "b", "c", "d", "e"):
        conn.cmd("SET", name, "1", "PX", "20")
    time.sleep(0.1 * TIME_SCALE)
    assert conn.cmd("GET", "a") is None
    assert conn.cmd("INCR", "b") == 1
    assert conn.cmd("SET", "c", "2", "XX") is None
    assert conn.cmd("RENAME", "d", "x") == b"ERR no such key"
    assert conn.cmd("APPEND", "e", "x") == 1
    conn.cmd("DEBUG", "SET-ACTIVE-EXPIRE", "1")
    conn.close()
    pair.finish()


def random_writes(server, seed, count, errors):
    try:
        generator = Generator(random.Random(seed), WRITES)
        with server.raw(timeout=60) as conn:
            done = 0
            while done < count:
                lines = [line for _, line in generator.sequence(generator.random.randint(1, 40))]
                lines = [line for line in lines if line[0].upper() != b"RESET"]
                conn.send(b"".join(encode(*line) for line in lines))
                for line in lines:
                    conn.read()
                done += len(lines)
    except Exception as problem:  # shown by the test that started the thread
        errors.append(problem)


@pytest.mark.timeout(180 * TIME_SCALE)
@pytest.mark.parametrize("writers", [1, 6])
def test_random_writes_are_replayed(pair, writers):
    print("SEED=%d" % SEED)
    errors = []
    team = [threading.Thread(target=random_writes, args=(pair.first, SEED + n, 4000 // writers, errors))
            for n in range(writers)]
    for thread in team:
        thread.start()
    while any(thread.is_alive() for thread in team):
        pair.read()
        time.sleep(0.002)
    assert not errors, errors
    commands = pair.finish()
    assert len(commands) > 600


def short_lived_writes(server, seed, count, errors):
    """Writes on keys that expire all the time; none of them makes a short life long.

    So the final content does not depend on how late the stream is replayed.
    """
    try:
        dice = random.Random(seed)
        with server.raw(timeout=60) as conn:
            for _ in range(count):
                key = b"s%d" % dice.randrange(12)
                line = dice.choice([
                    [b"SET", key, b"%d" % dice.randrange(9), b"PX", b"%d" % dice.randint(1, 30)],
                    [b"SET", key, b"5", b"PX", b"%d" % dice.randint(1, 30), b"NX"],
                    [b"INCR", key], [b"APPEND", key, b"1"], [b"GET", key], [b"DEL", key],
                    [b"PSETEX", key, b"%d" % dice.randint(1, 30), b"7"], [b"SETRANGE", key, b"1", b"2"],
                    [b"MGET", key, b"s1", b"s2"], [b"EXISTS", key], [b"SETNX", key, b"3"],
                    [b"GETDEL", key], [b"SETBIT", key, b"9", b"1"], [b"RANDOMKEY"], [b"KEYS", b"*"]])
                conn.send_cmd(*line)
                conn.read()
    except Exception as problem:  # shown by the test that started the thread
        errors.append(problem)


@pytest.mark.timeout(180 * TIME_SCALE)
@pytest.mark.parametrize("active", [1, 0])
def test_expiry_among_writes_is_replayed(pair, active):
    print("SEED=%d" % SEED)
    pair.control.cmd("DEBUG", "SET-ACTIVE-EXPIRE", active)
    errors = []
    team = [threading.Thread(target=short_lived_writes, args=(pair.first, SEED + n, 800, errors))
            for n in range(4)]
    for thread in team:
        thread.start()
    while any(thread.is_alive() for thread in team):
        pair.read()
        time.sleep(0.002)
    assert not errors, errors
    time.sleep(0.1 * TIME_SCALE)
    pair.control.cmd("DEBUG", "SET-ACTIVE-EXPIRE", 1)
    time.sleep(0.3 * TIME_SCALE)
    pair.finish()


def test_writers_wait_for_a_slow_reader_and_lose_nothing(pair):
    """More is written than the ring holds; the reader starts late."""
    errors = []

    def flood():
        try:
            with pair.first.raw(timeout=60) as conn:
                value = b"x" * 4000
                for start in range(0, 6000, 100):
                    conn.send(b"".join(encode("SET", "k%d" % (n % 50), b"%d" % n + value)
                                       for n in range(start, start + 100)))
                    for _ in range(100):
                        assert conn.read() == b"OK"
        except Exception as problem:  # shown below
            errors.append(problem)

    thread = threading.Thread(target=flood)
    thread.start()
    time.sleep(0.5)
    while thread.is_alive():
        pair.read()
        time.sleep(0.001)
    assert not errors, errors
    assert len(pair.finish()) >= 6000
