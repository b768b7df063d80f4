#!/usr/bin/python3
"""The dataset's memory returns to its start value to the byte, whatever happened before.

Two sources of random histories: Hypothesis draws steps that were chosen for what they do to blocks
(and shrinks a failing history to its few steps that matter); the generator of tests/compare draws
lines of every command in the table. Both end with FLUSHALL, connections half way through commands
and replies still open.

SEED=<number> repeats a run; it is printed.
"""
import os
import random
import sys
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, note, seed, settings
from hypothesis import strategies as st

from process import TIME_SCALE
from raw import Closed, encode

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "compare"))
import generate  # noqa: E402
from test_memory import check_sums, stats, wait_until  # noqa: E402

pytestmark = pytest.mark.kvik_only

SEED = int(os.environ.get("SEED", random.SystemRandom().randrange(1 << 32)))
EXAMPLES = 200 if TIME_SCALE == 1 else 60
HISTORIES = 20 if TIME_SCALE == 1 else 8

KEYS = [b"a", b"b", b"a key of twenty bytes", b"k" * 260, b"K" * 1030]
# Around every border of layout: classes, 44 and 45, one and four bytes of length, embedded or not,
# copied or received in a block, one page more or less.
SIZES = [0, 1, 7, 20, 44, 45, 100, 255, 256, 700, 960, 1000, 1100, 4000, 16383, 16384, 20000, 70000,
         300000]
CONNECTIONS = 3
DATABASES = 3

keys = st.sampled_from(KEYS)
sizes = st.sampled_from(SIZES)
small = st.integers(-3, 400)
times = st.sampled_from([b"-1", b"0", b"1", b"20", b"100000"])
databases = st.integers(0, DATABASES - 1)


def line(*words):
    """A command line: strategies and fixed words; sizes become values of that length."""
    return st.tuples(*[word if isinstance(word, st.SearchStrategy) else st.just(word)
                       for word in words])


def value(strategy=sizes):
    return strategy.map(lambda size: b"v" * size)


LINES = st.one_of(
    line("SET", keys, value()),
    line("SET", keys, value(), "KEEPTTL"),
    line("SET", keys, value(), "PX", times),
    line("SET", keys, value(), "NX", "GET"),
    line("SET", keys, small),
    line("APPEND", keys, value()),
    line("SETRANGE", keys, sizes, value(st.sampled_from([0, 1, 30, 5000]))),
    line("SETBIT", keys, sizes, "1"),
    line("BITOP", st.sampled_from(["AND", "OR", "XOR", "NOT"]), keys, keys),
    line("BITOP", "OR", keys, keys, keys),
    line("BITFIELD", keys, "SET", "u8", sizes, "1", "INCRBY", "i5", "100", "1"),
    line("INCRBY", keys, small),
    line("INCRBYFLOAT", keys, "0.5"),
    line("GET", keys),
    line("GETDEL", keys),
    line("GETSET", keys, value()),
    line("GETEX", keys, "PX", times),
    line("GETEX", keys, "PERSIST"),
    line("MSET", keys, value(), keys, value()),
    line("MSETNX", keys, value(), keys, value()),
    line("DEL", keys, keys),
    line("UNLINK", keys),
    line("RENAME", keys, keys),
    line("RENAMENX", keys, keys),
    line("COPY", keys, keys, "DB", databases, "REPLACE"),
    line("MOVE", keys, databases),
    line("SWAPDB", databases, databases),
    line("SELECT", databases),
    line("PEXPIRE", keys, times),
    line("PERSIST", keys),
    line("WATCH", keys, keys),
    line("UNWATCH"),
    line("FLUSHDB", st.sampled_from(["SYNC", "ASYNC"])),
    line("FLUSHALL", st.sampled_from(["SYNC", "ASYNC"])),
    line("SCAN", "0"),
    line("RANDOMKEY"),
    line("NOSUCH", keys),
    line("SET", keys),
)

connections = st.integers(0, CONNECTIONS - 1)
STEPS = st.one_of(
    st.tuples(st.just("one"), connections, LINES),
    st.tuples(st.just("pipeline"), connections, st.lists(LINES, min_size=2, max_size=20)),
    st.tuples(st.just("exec"), connections, st.lists(LINES, max_size=6)),
    st.tuples(st.just("discard"), connections, st.lists(LINES, max_size=6)),
    # A client that leaves, or is closed by another, in the middle of what it sends.
    st.tuples(st.just("leave"), connections, LINES),
    st.tuples(st.just("kill"), connections, st.lists(LINES, max_size=4)),
    # A client that does not read: its replies hold values that change meanwhile.
    st.tuples(st.just("unread"), databases, keys, sizes),
    st.tuples(st.just("half"), keys, st.sampled_from([100, 20000, 300000])),
    st.tuples(st.just("pause"), st.integers(1, 10), connections),
    st.tuples(st.just("purge")),
)


class Play:
    """Carries out the steps of one history."""

    def __init__(self, server):
        self.server = server
        self.conns = [server.raw() for _ in range(CONNECTIONS)]
        self.others = []

    def close(self):
        for conn in self.conns + self.others:
            conn.close()

    def renew(self, number):
        self.conns[number].close()
        self.conns[number] = self.server.raw()

    def step(self, kind, *args):
        getattr(self, kind)(*args)

    def one(self, number, words):
        self.conns[number].cmd(*words)

    def pipeline(self, number, lines):
        conn = self.conns[number]
        conn.send(b"".join(encode(*words) for words in lines))
        for _ in lines:
            conn.read()

    def exec(self, number, lines):
        self.pipeline(number, [("MULTI",)] + lines + [("EXEC",)])

    def discard(self, number, lines):
        self.pipeline(number, [("MULTI",)] + lines + [("DISCARD",)])

    def leave(self, number, words):
        data = encode(*words)
        self.conns[number].send(data[:len(data) * 2 // 3])
        self.renew(number)

    def kill(self, number, lines):
        victim = self.conns[number]
        ident = victim.cmd("CLIENT", "ID")
        victim.send(b"".join(encode(*words) for words in [("MULTI",)] + lines))
        with self.server.raw() as killer:
            assert killer.cmd("CLIENT", "KILL", "ID", ident) == 1
        try:
            while True:
                victim.read()
        except Closed:
            self.renew(number)

    def unread(self, db, key, size):
        conn = self.server.raw()
        conn.cmd("SELECT", db)
        conn.cmd("SET", key, b"u" * size)
        conn.send(encode("GET", key) * 80)
        self.others.append(conn)

    def half(self, key, size):
        data = encode("SET", key, b"h" * size)
        conn = self.server.raw()
        conn.send(data[:len(data) - 50])
        self.others.append(conn)

    def pause(self, millis, number):
        self.conns[number].cmd("CLIENT", "PAUSE", millis, "WRITE")
        self.conns[number].cmd("SET", "paused", "x" * 2000)

    def purge(self):
        self.conns[0].cmd("MEMORY", "PURGE")


def assert_empty(conn, start):
    have = stats(conn)
    check_sums(have)
    assert have["dataset.bytes"] == start
    for name, bytes_ in have.items():
        assert not name.startswith("keyspace.") or bytes_ == 0, name
        assert not name.startswith("db.") or name == "db.dict.rehashing.count"


@pytest.fixture(scope="module")
def start(server):
    """Bytes of the dataset of a server that never held a key."""
    with server.raw() as conn:
        return stats(conn)["dataset.bytes"]


@seed(SEED)
@settings(max_examples=EXAMPLES, deadline=None, database=None, print_blob=False,
          suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(steps=st.lists(STEPS, min_size=5, max_size=60), leave_first=st.booleans())
@pytest.mark.timeout(240)
def test_dataset_returns_after_steps(server, start, steps, leave_first):
    note("SEED=%d" % SEED)
    with server.raw() as control:
        play = Play(server)
        try:
            for step in steps:
                play.step(*step)
            wait_until(lambda: stats(control)["keyspace.detached"] == 0)
            check_sums(stats(control))
            if leave_first:
                play.close()
            assert control.cmd("FLUSHALL", "SYNC") == b"OK"
            assert_empty(control, start)
        finally:
            play.close()


# What ends or mutes the connection, stops writers, or changes the server for the tests after.
LEFT_OUT = {"shutdown", "debug", "quit", "hello", "auth", "reset", "client|pause", "client|reply",
            "client|kill", "client|no-evict", "config|set", "config|rewrite", "monitor"}


BLOCKING = {b"BLPOP", b"BRPOP", b"BLMOVE", b"BLMOVEM", b"BRPOPLPUSH", b"BZPOPMIN", b"BZPOPMAX", b"WAIT",
            b"WAITAOF", b"BLMPOP", b"BZMPOP"}


def waits_long(words):
    """A line that was spoiled may have any number as its timeout."""
    name = words[0].upper()
    if name not in BLOCKING:
        return False
    try:
        return not 0 < float(words[1] if name in (b"BLMPOP", b"BZMPOP") else words[-1]) <= 1
    except (ValueError, IndexError):
        return False


@pytest.mark.timeout(240)
def test_dataset_returns_after_lines_of_all_commands(server, start):
    print("SEED=%d" % SEED)
    rng = random.Random(SEED)
    commands = [c for c in generate.load_table() if c.id not in LEFT_OUT]
    with server.raw() as control:
        for _ in range(HISTORIES):
            maker = generate.Generator(rng, commands, keys=generate.KEYS + KEYS)
            conns = [server.raw() for _ in range(CONNECTIONS)]
            try:
                for _ in range(40):
                    conn = rng.choice(conns)
                    lines = [words for _, words in maker.sequence(rng.randrange(1, 30))
                             if not waits_long(words)]
                    conn.send(b"".join(encode(*words) for words in lines))
                    for _ in lines:
                        conn.read()
                wait_until(lambda: stats(control)["keyspace.detached"] == 0)
                check_sums(stats(control))
                control.cmd("FLUSHALL", rng.choice(["SYNC", "ASYNC"]))
                wait_until(lambda: stats(control)["keyspace.detached"] == 0)
                assert_empty(control, start)
            finally:
                for conn in conns:
                    conn.close()
