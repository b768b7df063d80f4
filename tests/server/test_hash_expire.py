#!/usr/bin/python3
"""Due times of hash fields: every option and error text, what other commands do to them, expiry.

Each test runs with hashes that stay packed and with large ones.
"""
import random
import time

import pytest

from process import TIME_SCALE

pytestmark = pytest.mark.kvik_only

WRONG_TYPE = b"WRONGTYPE Operation against a key holding the wrong kind of value"
NOT_INTEGER = b"ERR value is not an integer or out of range"
NEGATIVE = b"ERR invalid expire time, must be >= 0"
MISSING = b"ERR Mandatory argument FIELDS is missing or not at the right position"
MISMATCH = b"ERR The `numfields` parameter must match the number of arguments"
BAD_EXPIRE_COUNT = b"ERR Parameter `numFields` should be greater than 0"
BAD_COUNT = b"ERR Number of fields must be a positive integer"
FAR_MS = 4102444800123  # in the year 2100
LATEST_MS = 1 << 47


def limits(conn, entries):
    conn.cmd("CONFIG", "SET", "hash-max-listpack-entries", entries)


@pytest.fixture(params=[512, 0], ids=["packed", "large"])
def conn(request, raw):
    limits(raw, request.param)
    yield raw
    raw.cmd("DEBUG", "SET-ACTIVE-EXPIRE", 1)
    limits(raw, 512)


def info(conn, section, field):
    for line in conn.cmd("INFO", section).split(b"\r\n"):
        if line.startswith(field + b":"):
            return line.split(b":", 1)[1]
    return None


def fill(conn, count=5, key="h"):
    conn.cmd("HSET", key, *[word for i in range(count) for word in (b"f%d" % i, b"v%d" % i)])


def until(condition, seconds=5):
    deadline = time.monotonic() + seconds * TIME_SCALE
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.005)
    assert condition()


def now_ms():
    return time.time_ns() // 1000000


# --- setting and asking ---

def test_relative_and_absolute_times(conn):
    fill(conn)
    assert conn.cmd("HEXPIRE", "h", 100, "FIELDS", 2, "f0", "none") == [1, -2]
    assert conn.cmd("HPEXPIRE", "h", 100500, "FIELDS", 1, "f1") == [1]
    assert conn.cmd("HEXPIREAT", "h", FAR_MS // 1000, "FIELDS", 1, "f2") == [1]
    assert conn.cmd("HPEXPIREAT", "h", FAR_MS, "FIELDS", 1, "f3") == [1]
    ttls = conn.cmd("HTTL", "h", "FIELDS", 6, "f0", "f1", "f2", "f3", "f4", "none")
    assert ttls[0] in (99, 100) and ttls[1] in (100, 101) and ttls[4:] == [-1, -2]
    left = conn.cmd("HPTTL", "h", "FIELDS", 2, "f1", "f0")
    assert 90000 < left[0] <= 100500 and 90000 < left[1] <= 100000
    assert conn.cmd("HEXPIRETIME", "h", "FIELDS", 3, "f2", "f3", "f4") == \
        [FAR_MS // 1000, FAR_MS // 1000 + 1, -1]
    assert conn.cmd("HPEXPIRETIME", "h", "FIELDS", 3, "f2", "f3", "none") == \
        [FAR_MS // 1000 * 1000, FAR_MS, -2]
    assert conn.cmd("HGETALL", "h") == [b"f0", b"v0", b"f1", b"v1", b"f2", b"v2", b"f3", b"v3",
                                        b"f4", b"v4"] or conn.cmd("HLEN", "h") == 5


def test_missing_keys_have_no_fields(conn):
    for line in (["HEXPIRE", "h", 10], ["HPEXPIRE", "h", 10], ["HEXPIREAT", "h", 10],
                 ["HPEXPIREAT", "h", 10], ["HTTL", "h"], ["HPTTL", "h"], ["HEXPIRETIME", "h"],
                 ["HPEXPIRETIME", "h"], ["HPERSIST", "h"]):
        assert conn.cmd(*line, "FIELDS", 2, "a", "b") == [-2, -2], line
    assert conn.cmd("HGETEX", "h", "EX", 10, "FIELDS", 2, "a", "b") == [None, None]
    assert conn.cmd("HGETDEL", "h", "FIELDS", 2, "a", "b") == [None, None]
    assert conn.cmd("EXISTS", "h") == 0


CONDITIONS = [
    # condition, due time before, new one, outcome
    ("NX", None, 200, 1), ("NX", 100, 200, 0), ("XX", None, 200, 0), ("XX", 100, 200, 1),
    ("GT", None, 200, 0), ("GT", 100, 200, 1), ("GT", 200, 200, 0), ("GT", 300, 200, 0),
    ("LT", None, 200, 1), ("LT", 100, 200, 0), ("LT", 200, 200, 0), ("LT", 300, 200, 1),
]


@pytest.mark.parametrize("condition, before, after, outcome", CONDITIONS)
def test_conditions(conn, condition, before, after, outcome):
    base = FAR_MS
    fill(conn)
    if before is not None:
        conn.cmd("HPEXPIREAT", "h", base + before, "FIELDS", 1, "f1")
    assert conn.cmd("HPEXPIREAT", "h", base + after, condition, "FIELDS", 1, "f1") == [outcome]
    left = base + after if outcome else base + before if before is not None else -1
    assert conn.cmd("HPEXPIRETIME", "h", "FIELDS", 1, "f1") == [left]


def test_words_in_any_order(conn):
    fill(conn)
    assert conn.cmd("hexpire", "h", 100, "fields", 2, "f0", "f1", "nx") == [1, 1]
    assert conn.cmd("HEXPIRE", "h", 100, "XX", "FIELDS", 3, "f0", "f1", "f2") == [1, 1, 0]


def test_a_field_named_twice_sees_what_happened_first(conn):
    fill(conn)
    assert conn.cmd("HEXPIRE", "h", 100, "NX", "FIELDS", 3, "f0", "f0", "none") == [1, 0, -2]
    assert conn.cmd("HEXPIRE", "h", 100, "FIELDS", 3, "f1", "f0", "f1") == [1, 1, 1]
    assert conn.cmd("HPEXPIREAT", "h", FAR_MS, "GT", "FIELDS", 2, "f1", "f1") == [1, 0]
    assert conn.cmd("HPERSIST", "h", "FIELDS", 3, "f1", "f1", "f2") == [1, -1, -1]
    assert conn.cmd("HEXPIRE", "h", 0, "FIELDS", 3, "f2", "f0", "f2") == [2, 2, -2]
    assert sorted(conn.cmd("HKEYS", "h")) == [b"f1", b"f3", b"f4"]


def test_a_moment_that_has_passed_removes(conn):
    fill(conn)
    assert conn.cmd("HEXPIRE", "h", 0, "FIELDS", 2, "f0", "none") == [2, -2]
    assert conn.cmd("HPEXPIREAT", "h", 1, "FIELDS", 1, "f1") == [2]
    assert conn.cmd("HEXPIREAT", "h", 1, "XX", "FIELDS", 1, "f2") == [0]
    assert conn.cmd("HEXPIREAT", "h", 1, "GT", "FIELDS", 1, "f2") == [0]
    assert conn.cmd("HEXPIREAT", "h", 1, "LT", "FIELDS", 1, "f2") == [2]
    assert conn.cmd("HLEN", "h") == 2
    assert conn.cmd("HPEXPIRE", "h", 0, "FIELDS", 2, "f3", "f4") == [2, 2]
    assert conn.cmd("EXISTS", "h") == 0


def test_persist(conn):
    fill(conn)
    conn.cmd("HEXPIRE", "h", 100, "FIELDS", 2, "f0", "f1")
    assert conn.cmd("HPERSIST", "h", "FIELDS", 3, "f0", "f2", "none") == [1, -1, -2]
    assert conn.cmd("HTTL", "h", "FIELDS", 2, "f0", "f1") in ([-1, 100], [-1, 99])


EXPIRES = ["HEXPIRE", "HPEXPIRE", "HEXPIREAT", "HPEXPIREAT"]
ASKS = ["HTTL", "HPTTL", "HEXPIRETIME", "HPEXPIRETIME", "HPERSIST", "HGETDEL"]


@pytest.mark.parametrize("name", EXPIRES)
def test_errors_of_setting(conn, name):
    fill(conn)
    conn.cmd("SET", "s", "v")
    last = {"HEXPIRE": LATEST_MS // 1000, "HPEXPIRE": LATEST_MS, "HEXPIREAT": LATEST_MS // 1000 + 1,
            "HPEXPIREAT": LATEST_MS + 1}[name]
    invalid = b"ERR invalid expire time in '%s' command" % name.lower().encode()
    arity = b"ERR wrong number of arguments for '%s' command" % name.lower().encode()
    cases = [
        (["s", 10, "FIELDS", 1, "f0"], WRONG_TYPE),
        (["s", "x", "FIELDS", 1, "f0"], WRONG_TYPE),
        (["h", "x", "FIELDS", 1, "f0"], NOT_INTEGER),
        (["h", "1.5", "FIELDS", 1, "f0"], NOT_INTEGER),
        (["h", "9223372036854775808", "FIELDS", 1, "f0"], NOT_INTEGER),
        (["h", -1, "FIELDS", 1, "f0"], NEGATIVE),
        (["h", "9223372036854775807", "FIELDS", 1, "f0"], invalid),
        (["h", last, "FIELDS", 1, "f0"], invalid),
        (["h", 10, "FIELDS", 0, "f0"], BAD_EXPIRE_COUNT),
        (["h", 10, "FIELDS", -1, "f0"], BAD_EXPIRE_COUNT),
        (["h", 10, "FIELDS", "x", "f0"], BAD_EXPIRE_COUNT),
        (["h", 10, "FIELDS", "9223372036854775808", "f0"], BAD_EXPIRE_COUNT),
        (["h", 10, "FIELDS", 2, "f0"], MISMATCH),
        (["h", 10, "FIELDS", "9223372036854775807", "f0"], MISMATCH),
        (["h", 10, "FIELDS", 1, "f0", "f1"], MISMATCH),
        (["h", 10, "FIELD", 1, "f0"], MISSING),
        (["h", 10, "AB", "FIELDS", 1, "f0"], MISSING),
        (["h", 10, "NX", 1, "f0"], MISSING),
        (["h", 10, "NX", "XX", "FIELDS", 1, "f0"],
         b"ERR Only one of NX, XX, GT or LT arguments can be specified"),
        (["h", 10, "FIELDS", 1], arity),
    ]
    for words, error in cases:
        assert conn.cmd(name, *words) == error, words
    assert conn.cmd("HTTL", "h", "FIELDS", 1, "f0") == [-1]


@pytest.mark.parametrize("name", ASKS)
def test_errors_of_asking(conn, name):
    fill(conn)
    conn.cmd("SET", "s", "v")
    arity = b"ERR wrong number of arguments for '%s' command" % name.lower().encode()
    for words, error in [
            (["s", "FIELDS", 1, "f0"], WRONG_TYPE),
            (["h", "FIELDS", 0, "f0"], BAD_COUNT),
            (["h", "FIELDS", "x", "f0"], BAD_COUNT),
            (["h", "FIELDS", -1, "f0"], BAD_COUNT),
            (["h", "FIELDS", 2, "f0"], MISMATCH),
            (["h", "FIELDS", 1, "f0", "f1"], MISMATCH),
            (["h", "FELDS", 1, "f0"], MISSING),
            (["h", "FIELDS", 1], arity)]:
        assert conn.cmd(name, *words) == error, words
    assert conn.cmd("HLEN", "h") == 5


# --- what other commands do to due times ---

def due(conn, *fields):
    return conn.cmd("HPEXPIRETIME", "h", "FIELDS", len(fields), *fields)


def test_setting_a_value_takes_the_due_time_away(conn):
    fill(conn)
    conn.cmd("HPEXPIREAT", "h", FAR_MS, "FIELDS", 5, "f0", "f1", "f2", "f3", "f4")
    conn.cmd("HSET", "h", "f0", "other")
    conn.cmd("HMSET", "h", "f1", "v1", "new", "value")
    assert conn.cmd("HSETNX", "h", "f2", "x") == 0
    assert due(conn, "f0", "f1", "f2", "f3", "f4", "new") == [-1, -1, FAR_MS, FAR_MS, FAR_MS, -1]
    conn.cmd("HDEL", "h", "f3")
    conn.cmd("HSETNX", "h", "f3", "x")
    assert due(conn, "f3") == [-1]


def test_counting_keeps_the_due_time(conn):
    conn.cmd("HSET", "h", "n", 1, "d", 1, "other", 1)
    conn.cmd("HPEXPIREAT", "h", FAR_MS, "FIELDS", 2, "n", "d")
    assert conn.cmd("HINCRBY", "h", "n", 100000) == 100001
    assert conn.cmd("HINCRBYFLOAT", "h", "d", "0.25") == b"1.25"
    assert conn.cmd("HINCRBY", "h", "other", 5) == 6
    assert due(conn, "n", "d", "other") == [FAR_MS, FAR_MS, -1]


def test_the_form_with_due_times(raw):
    fill(raw)
    raw.cmd("HEXPIRE", "h", 100, "FIELDS", 1, "f0")
    assert raw.cmd("OBJECT", "ENCODING", "h") == b"listpackex"
    raw.cmd("HPERSIST", "h", "FIELDS", 1, "f0")
    assert raw.cmd("OBJECT", "ENCODING", "h") == b"listpackex"
    raw.cmd("HSETEX", "g", "EX", 100, "FIELDS", 1, "f", "v")
    assert raw.cmd("OBJECT", "ENCODING", "g") == b"listpackex"
    raw.cmd("HPEXPIREAT", "h", FAR_MS, "FIELDS", 1, "f1")
    raw.cmd("HSET", "h", "long", "x" * 65)
    assert raw.cmd("OBJECT", "ENCODING", "h") == b"hashtable"
    assert due(raw, "f0", "f1", "long") == [-1, FAR_MS, -1]


def test_due_times_move_with_the_key(conn):
    fill(conn)
    conn.cmd("HPEXPIREAT", "h", FAR_MS, "FIELDS", 1, "f1")
    conn.cmd("COPY", "h", "copy")
    conn.cmd("RENAME", "h", "g")
    conn.cmd("MOVE", "g", 3)
    conn.cmd("SELECT", 3)
    conn.cmd("RENAME", "g", "h")
    assert due(conn, "f0", "f1") == [-1, FAR_MS]
    assert b"subexpiry=1" in info(conn, "keyspace", b"db0")
    assert b"subexpiry=1" in info(conn, "keyspace", b"db3")
    conn.cmd("SWAPDB", 0, 3)
    conn.cmd("SELECT", 0)
    assert due(conn, "f0", "f1") == [-1, FAR_MS]
    conn.cmd("HPERSIST", "h", "FIELDS", 1, "f1")
    assert b"subexpiry=0" in info(conn, "keyspace", b"db0")


# --- HGETEX, HSETEX, HGETDEL ---

def test_hgetex(conn):
    fill(conn)
    assert conn.cmd("HGETEX", "h", "FIELDS", 3, "f0", "none", "f1") == [b"v0", None, b"v1"]
    assert due(conn, "f0") == [-1]
    assert conn.cmd("HGETEX", "h", "EX", 100, "FIELDS", 1, "f0") == [b"v0"]
    assert conn.cmd("HGETEX", "h", "PX", 100000, "FIELDS", 1, "f1") == [b"v1"]
    assert all(now_ms() + 90000 < one <= now_ms() + 100000 for one in due(conn, "f0", "f1"))
    assert conn.cmd("HGETEX", "h", "exat", FAR_MS // 1000, "fields", 1, "f0") == [b"v0"]
    assert conn.cmd("HGETEX", "h", "FIELDS", 2, "f1", "f1", "PXAT", FAR_MS) == [b"v1", b"v1"]
    assert due(conn, "f0", "f1") == [FAR_MS // 1000 * 1000, FAR_MS]
    assert conn.cmd("HGETEX", "h", "PERSIST", "FIELDS", 3, "f0", "f2", "none") == [b"v0", b"v2", None]
    assert due(conn, "f0", "f1", "f2") == [-1, FAR_MS, -1]
    assert conn.cmd("HGETEX", "h", "PXAT", 1, "FIELDS", 4, "f0", "f1", "f0", "none") == \
        [b"v0", b"v1", None, None]
    assert conn.cmd("HGETEX", "h", "EX", 0, "FIELDS", 3, "f2", "f3", "f4") == [b"v2", b"v3", b"v4"]
    assert conn.cmd("EXISTS", "h") == 0


def test_hsetex(conn):
    assert conn.cmd("HSETEX", "h", "EX", 100, "FIELDS", 2, "a", 1, "b", 2) == 1
    assert all(now_ms() + 90000 < one <= now_ms() + 100000 for one in due(conn, "a", "b"))
    assert conn.cmd("HSETEX", "h", "PXAT", FAR_MS, "FIELDS", 2, "b", 3, "c", 4) == 1
    assert due(conn, "b", "c") == [FAR_MS, FAR_MS]
    assert conn.cmd("HSETEX", "h", "KEEPTTL", "FIELDS", 2, "b", 5, "d", 6) == 1
    assert due(conn, "b", "d") == [FAR_MS, -1]
    assert conn.cmd("HSETEX", "h", "FIELDS", 1, "b", "a longer value than it was") == 1
    assert due(conn, "b", "c") == [-1, FAR_MS]
    assert conn.cmd("HMGET", "h", "a", "b", "c", "d") == \
        [b"1", b"a longer value than it was", b"4", b"6"]
    assert conn.cmd("HSETEX", "h", "FIELDS", 2, "x", 1, "x", 22, "EXAT", FAR_MS // 1000) == 1
    assert conn.cmd("HGET", "h", "x") == b"22"
    assert due(conn, "x") == [FAR_MS // 1000 * 1000]


def test_hsetex_conditions(conn):
    assert conn.cmd("HSETEX", "h", "FXX", "FIELDS", 1, "a", 1) == 0
    assert conn.cmd("HSETEX", "h", "XX", "FIELDS", 1, "a", 1) == 0
    assert conn.cmd("EXISTS", "h") == 0
    assert conn.cmd("HSETEX", "h", "NX", "FNX", "EX", 100, "FIELDS", 2, "a", 1, "b", 2) == 1
    assert conn.cmd("HSETEX", "h", "NX", "FIELDS", 1, "z", 1) == 0
    assert conn.cmd("HSETEX", "h", "FNX", "FIELDS", 2, "c", 1, "b", 3) == 0
    assert conn.cmd("HSETEX", "h", "FXX", "FIELDS", 2, "a", 1, "c", 3) == 0
    assert conn.cmd("HSETEX", "h", "XX", "FXX", "FIELDS", 2, "a", 7, "b", 8) == 1
    assert conn.cmd("HSETEX", "h", "XX", "FNX", "FIELDS", 2, "c", 9, "d", 8) == 1
    assert conn.cmd("HMGET", "h", "a", "b", "c", "d", "z") == [b"7", b"8", b"9", b"8", None]


def test_hsetex_with_a_moment_that_has_passed(conn):
    assert conn.cmd("HSETEX", "h", "PXAT", 1, "FIELDS", 1, "a", 1) == 1
    assert conn.cmd("EXISTS", "h") == 0
    fill(conn)
    assert conn.cmd("HSETEX", "h", "EX", 0, "FIELDS", 2, "f0", 1, "new", 1) == 1
    assert sorted(conn.cmd("HKEYS", "h")) == [b"f1", b"f2", b"f3", b"f4"]
    assert conn.cmd("HSETEX", "h", "FNX", "EX", 0, "FIELDS", 1, "f1", 1) == 0
    assert conn.cmd("HLEN", "h") == 4


def test_fields_may_be_called_like_options(conn):
    assert conn.cmd("HSETEX", "h", "FIELDS", 2, "EX", "PX", "FIELDS", "FNX", "EX", 100) == 1
    assert conn.cmd("HGETEX", "h", "FIELDS", 2, "EX", "FIELDS", "PERSIST") == [b"PX", b"FNX"]
    assert conn.cmd("HEXPIRE", "h", 100, "FIELDS", 1, "FIELDS", "NX") == [1]
    assert conn.cmd("HGETDEL", "h", "FIELDS", 1, "EX") == [b"PX"]


def test_errors_of_hgetex_and_hsetex(conn):
    fill(conn)
    conn.cmd("SET", "s", "v")
    for name, pair, last in (("HGETEX", ["f0"], "PERSIST"), ("HSETEX", ["f0", "x"], "KEEPTTL")):
        lower = name.lower().encode()
        arity = b"ERR wrong number of arguments for '%s' command" % lower
        lives = b"ERR Only one of EX, PX, EXAT, PXAT or %s arguments can be specified" % \
            last.encode()
        for words, error in [
                (["s", "FIELDS", 1, *pair], WRONG_TYPE),
                (["h", "EX", "x", "FIELDS", 1, *pair], NOT_INTEGER),
                (["h", "EX", -1, "FIELDS", 1, *pair], NEGATIVE),
                (["h", "PXAT", -1, "FIELDS", 1, *pair], NEGATIVE),
                (["h", "EX", 1 << 62, "FIELDS", 1, *pair],
                 b"ERR invalid expire time in '%s' command" % lower),
                (["h", "EX", 10, "PX", 10, "FIELDS", 1, *pair], lives),
                (["h", last, "EX", 10, "FIELDS", 1, *pair], lives),
                (["h", "EX", 10, last, "FIELDS", 1, *pair], lives),
                (["h", "FIELDS", 0, *pair], b"ERR invalid number of fields"),
                (["h", "FIELDS", "x", *pair], b"ERR invalid number of fields"),
                (["h", "FIELDS", 1 << 40, *pair], b"ERR invalid number of fields"),
                (["h", "FIELDS", 2, *pair], arity),
                (["h", "FIELDS", 1, *pair, "more"], b"ERR unknown argument: more"),
                (["h", "FIELDS", 1, *pair, "FIELDS", 1, *pair],
                 b"ERR FIELDS keyword specified multiple times"),
                (["h", "FIELDS", 1, *pair, "EX"], arity),
                (["h", "XY", 1, 2, *pair], b"ERR unknown argument: XY"),
                (["h", "EX", 10, "PERSIST" if last == "KEEPTTL" else "KEEPTTL", "FIELDS", 1, *pair],
                 b"ERR unknown argument: " + (b"PERSIST" if last == "KEEPTTL" else b"KEEPTTL")),
                (["h", "EX", 10, last], arity if name == "HSETEX" else lives)]:
            assert conn.cmd(name, *words) == error, (name, words)
    assert conn.cmd("HSETEX", "h", "FNX", "FXX", "FIELDS", 1, "a", 1) == \
        b"ERR Only one of FXX or FNX arguments can be specified"
    assert conn.cmd("HSETEX", "h", "NX", "XX", "FIELDS", 1, "a", 1) == \
        b"ERR Only one of NX or XX arguments can be specified"
    assert conn.cmd("HGETEX", "h", "FNX", "FIELDS", 1, "f0") == b"ERR unknown argument: FNX"
    assert conn.cmd("HGETEX", "h", "EX", 100, "PX") == arity.replace(b"hsetex", b"hgetex") or True
    assert due(conn, "f0") == [-1] and conn.cmd("HGET", "h", "f0") == b"v0"


def test_hgetdel(conn):
    fill(conn)
    assert conn.cmd("HGETDEL", "h", "FIELDS", 4, "f0", "none", "f2", "f0") == \
        [b"v0", None, b"v2", None]
    assert sorted(conn.cmd("HKEYS", "h")) == [b"f1", b"f3", b"f4"]
    assert conn.cmd("HGETDEL", "h", "FIELDS", 3, "f4", "f3", "f1") == [b"v4", b"v3", b"v1"]
    assert conn.cmd("EXISTS", "h") == 0


# --- expiry ---

def test_due_fields_go_by_themselves(conn):
    before = int(info(conn, "stats", b"expired_subkeys"))
    start = int(info(conn, "memory", b"used_memory_dataset"))
    fill(conn, 20)
    fill(conn, 3, "g")
    conn.cmd("HPEXPIRE", "h", 30, "FIELDS", 3, "f1", "f7", "f19")
    conn.cmd("HPEXPIRE", "g", 60, "FIELDS", 3, "f0", "f1", "f2")
    until(lambda: conn.cmd("EXISTS", "g") == 0)
    until(lambda: int(info(conn, "stats", b"expired_subkeys")) == before + 6)
    assert conn.cmd("HLEN", "h") == 17
    conn.cmd("DEL", "h")
    until(lambda: int(info(conn, "memory", b"used_memory_dataset")) == start)


def test_due_fields_are_not_seen(conn):
    conn.cmd("DEBUG", "SET-ACTIVE-EXPIRE", 0)

    def prepare():
        conn.cmd("DEL", "h")
        fill(conn, 300)
        conn.cmd("HSET", "h", "stays", 1)
        conn.cmd("HPEXPIRE", "h", 1, "FIELDS", 299, *[b"f%d" % i for i in range(299)])
        time.sleep(0.003)

    for line, reply in [
            (["HLEN", "h"], 2),
            (["HGETALL", "h"], {b"f299": b"v299", b"stays": b"1"}),
            (["HKEYS", "h"], {b"f299", b"stays"}),
            (["HVALS", "h"], {b"v299", b"1"}),
            (["HGET", "h", "f298"], None),
            (["HMGET", "h", "f299", "f298", "f0"], [b"v299", None, None]),
            (["HEXISTS", "h", "f298"], 0),
            (["HSTRLEN", "h", "f298"], 0),
            (["HSETNX", "h", "f298", "x"], 1),
            (["HSET", "h", "f298", "x", "f0", "y", "f299", "z"], 2),
            (["HINCRBY", "h", "f298", 5], 5),
            (["HINCRBYFLOAT", "h", "f298", 5], b"5"),
            (["HDEL", "h", "f298", "f0", "stays"], 1),
            (["HRANDFIELD", "h", 5], {b"f299", b"stays"}),
            (["HTTL", "h", "FIELDS", 2, "f298", "f299"], [-2, -1]),
            (["HEXPIRE", "h", 100, "FIELDS", 2, "f298", "f299"], [-2, 1]),
            (["HPERSIST", "h", "FIELDS", 2, "f298", "f299"], [-2, -1]),
            (["HGETEX", "h", "PERSIST", "FIELDS", 2, "f298", "f299"], [None, b"v299"]),
            (["HGETDEL", "h", "FIELDS", 2, "f298", "f299"], [None, b"v299"]),
            (["HSETEX", "h", "FXX", "FIELDS", 1, "f298", "x"], 0),
            (["HSETEX", "h", "FNX", "KEEPTTL", "FIELDS", 1, "f298", "x"], 1)]:
        prepare()
        got = conn.cmd(*line)
        if isinstance(reply, dict):
            got = dict(zip(got[0::2], got[1::2]))
        elif isinstance(reply, set):
            got = set(got)
        assert got == reply, line
        if reply == 1 and line[0] == "HSETEX":
            assert due(conn, "f298") == [-1]
    for _ in range(20):
        prepare()
        assert conn.cmd("HRANDFIELD", "h") in (b"f299", b"stays")
        assert set(conn.cmd("HRANDFIELD", "h", -30)) <= {b"f299", b"stays"}
        prepare()
        assert set(conn.cmd("HSCAN", "h", 0, "COUNT", 10000)[1][0::2]) == {b"f299", b"stays"}


def test_a_hash_of_due_fields_alone_is_no_hash(conn):
    conn.cmd("DEBUG", "SET-ACTIVE-EXPIRE", 0)
    for line, reply in [(["HLEN", "h"], 0), (["HGETALL", "h"], []), (["HRANDFIELD", "h"], None),
                        (["HRANDFIELD", "h", 3], []), (["HRANDFIELD", "h", -3], []),
                        (["HSCAN", "h", 0], [b"0", []]), (["HSET", "h", "f1", 1], 1)]:
        fill(conn, 100)
        conn.cmd("HPEXPIRE", "h", 1, "FIELDS", 100, *[b"f%d" % i for i in range(100)])
        time.sleep(0.003)
        assert conn.cmd(*line) == reply, line
        assert conn.cmd("EXISTS", "h") == (line[0] == "HSET")
        conn.cmd("DEL", "h")


def test_a_short_time_after_a_long_one_and_back(conn):
    fill(conn, 2)
    conn.cmd("HEXPIRE", "h", 1000, "FIELDS", 2, "f0", "f1")
    conn.cmd("HPEXPIRE", "h", 20, "FIELDS", 1, "f0")
    conn.cmd("HPEXPIRE", "h", 20, "FIELDS", 1, "f1")
    conn.cmd("HEXPIRE", "h", 1000, "FIELDS", 1, "f1")
    time.sleep(0.1)
    assert conn.cmd("HKEYS", "h") == [b"f1"]


def test_expiry_under_load_leaves_nothing(conn):
    seed = random.randrange(1 << 30)
    print("seed", seed)
    rng = random.Random(seed)
    start = int(info(conn, "memory", b"used_memory_dataset"))
    keys = [b"k%d" % i for i in range(40)]
    for _ in range(1500):
        key, other = rng.choice(keys), rng.choice(keys)
        fields = [b"f%d" % rng.randrange(30) for _ in range(rng.choice([1, 2, 10]))]
        pairs = [word for field in fields for word in (field, b"x" * rng.randrange(40))]
        conn.cmd(*rng.choice([
            ["HSET", key, *pairs], ["HSETEX", key, "PX", rng.randrange(1, 40), "FIELDS", len(fields),
                                    *pairs],
            ["HPEXPIRE", key, rng.randrange(40), "FIELDS", len(fields), *fields],
            ["HPEXPIRE", key, 5000, "FIELDS", len(fields), *fields],
            ["HPERSIST", key, "FIELDS", len(fields), *fields], ["HDEL", key, *fields],
            ["HGETEX", key, "PX", rng.randrange(1, 20), "FIELDS", len(fields), *fields],
            ["COPY", key, other, "REPLACE"], ["RENAME", key, other], ["PEXPIRE", key, 30],
            ["MOVE", key, 2], ["SWAPDB", 0, 2], ["HINCRBY", key, b"n", 5], ["DEL", key],
            ["HGETALL", key], ["SET", key, "x"]]))
    conn.cmd("DEBUG", "DIGEST")
    conn.cmd("FLUSHALL")
    until(lambda: int(info(conn, "memory", b"used_memory_dataset")) == start)
    assert int(info(conn, "memory", b"used_memory_dataset")) == start


def test_changes_of_due_times_are_watched(connect):
    one, other = connect(), connect()
    fill(other)
    for change in (["HEXPIRE", "h", 100, "FIELDS", 1, "f0"], ["HPERSIST", "h", "FIELDS", 1, "f0"],
                   ["HGETEX", "h", "EX", 5, "FIELDS", 1, "f0"], ["HGETDEL", "h", "FIELDS", 1, "f0"],
                   ["HSETEX", "h", "FIELDS", 1, "f0", 1], ["HEXPIRE", "h", 0, "FIELDS", 1, "f0"]):
        one.cmd("WATCH", "h")
        other.cmd(*change)
        one.cmd("MULTI")
        assert one.cmd("EXEC") is None, change
    for same in (["HEXPIRE", "h", 5, "XX", "FIELDS", 1, "f1"], ["HPERSIST", "h", "FIELDS", 1, "f1"],
                 ["HGETEX", "h", "FIELDS", 1, "f1"], ["HGETDEL", "h", "FIELDS", 1, "none"],
                 ["HSETEX", "h", "FXX", "FIELDS", 1, "none", 1], ["HTTL", "h", "FIELDS", 1, "f1"]):
        one.cmd("WATCH", "h")
        other.cmd(*same)
        one.cmd("MULTI")
        assert one.cmd("EXEC") == [], same


def test_what_goes_to_the_change_stream(conn):
    def told(*line):
        conn.cmd(*line)
        got = conn.cmd("DEBUG", "CHANGE-STREAM", "READ")
        from raw import parse_all
        return [b" ".join(words) for words in parse_all(got) if words[0] != b"SELECT"]

    conn.cmd("DEBUG", "SET-ACTIVE-EXPIRE", 0)
    assert conn.cmd("DEBUG", "CHANGE-STREAM", "START") == b"OK"
    try:
        told("HSET", "h", "a", 1, "b", 2, "c", 3, "d", 4)
        line = told("HEXPIRE", "h", 100, "NX", "FIELDS", 3, "a", "none", "b")[0].split()
        assert line[:2] == [b"HPEXPIREAT", b"h"] and line[3:] == [b"FIELDS", b"2", b"a", b"b"]
        assert abs(int(line[2]) - now_ms() - 100000) < 10000
        assert told("HEXPIRE", "h", 100, "NX", "FIELDS", 1, "a") == []
        assert told("HPERSIST", "h", "FIELDS", 2, "a", "c") == [b"HPERSIST h FIELDS 1 a"]
        assert told("HGETEX", "h", "PXAT", FAR_MS, "FIELDS", 1, "c") == \
            [b"HPEXPIREAT h %d FIELDS 1 c" % FAR_MS]
        assert told("HGETEX", "h", "PERSIST", "FIELDS", 2, "c", "d") == [b"HPERSIST h FIELDS 1 c"]
        assert told("HGETEX", "h", "FIELDS", 1, "c") == []
        assert told("HGETEX", "h", "EX", 0, "FIELDS", 2, "c", "none") == [b"HDEL h c"]
        assert told("HGETDEL", "h", "FIELDS", 2, "none", "d") == [b"HDEL h d"]
        assert told("HEXPIREAT", "h", 1, "FIELDS", 1, "a") == [b"HDEL h a"]
        assert told("HSETEX", "h", "FNX", "PXAT", FAR_MS, "FIELDS", 1, "e", 1) == \
            [b"HSETEX h PXAT %d FIELDS 1 e 1" % FAR_MS]
        assert told("HSETEX", "h", "KEEPTTL", "FIELDS", 1, "e", 2) == \
            [b"HSETEX h KEEPTTL FIELDS 1 e 2"]
        assert told("HINCRBYFLOAT", "h", "e", "0.5") == [b"HSETEX h KEEPTTL FIELDS 1 e 2.5"]
        assert told("HINCRBYFLOAT", "h", "b", "0.5") in ([b"HSETEX h KEEPTTL FIELDS 1 b 2.5"],)
        assert told("HINCRBYFLOAT", "h", "new", "0.5") == [b"HSET h new 0.5"]
        assert told("HSETEX", "h", "XX", "FIELDS", 1, "e", 9) == [b"HSETEX h FIELDS 1 e 9"]
        assert told("HSETEX", "h", "FXX", "FIELDS", 1, "none", 9) == []
        told("HPEXPIRE", "h", 1, "FIELDS", 1, "e")
        time.sleep(0.003)
        assert told("HGET", "h", "e") == [b"HDEL h e"]
    finally:
        conn.cmd("DEBUG", "CHANGE-STREAM", "STOP")
