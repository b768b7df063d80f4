#!/usr/bin/python3
"""Due times of members of sets, which are Kvik's own: in packed and large sets."""
import random
import time

import pytest

pytestmark = pytest.mark.kvik_only

FAR = 4102444800  # seconds
NUMBER = b"ERR Parameter `numMembers` should be greater than 0"
MATCH = b"ERR The `nummembers` parameter must match the number of arguments"
MISSING = b"ERR Mandatory argument MEMBERS is missing or not at the right position"


@pytest.fixture(params=["integers", "packed", "large"])
def members(raw, request):
    """A set `s` of each form; its members."""
    names = {"integers": [b"%d" % i for i in range(20)], "packed": [b"m%d" % i for i in range(20)],
             "large": [b"m%d" % i for i in range(500)]}[request.param]
    raw.cmd("SADD", "s", *names)
    return names


def encoding(conn, key):
    return conn.cmd("OBJECT", "ENCODING", key)


def test_due_times_are_set_and_told(raw, members):
    a, b = members[:2]
    assert raw.cmd("STTL", "s", "MEMBERS", 3, a, b, "none") == [-1, -1, -2]
    assert raw.cmd("SEXPIREAT", "s", FAR, "MEMBERS", 3, a, "none", a) == [1, -2, 1]
    assert encoding(raw, "s") == (b"listpackex" if len(members) < 100 else b"hashtable")
    assert raw.cmd("SEXPIRETIME", "s", "MEMBERS", 2, a, b) == [FAR, -1]
    assert raw.cmd("SPEXPIRETIME", "s", "MEMBERS", 1, a) == [FAR * 1000]
    assert raw.cmd("SEXPIRE", "s", 100, "MEMBERS", 1, b) == [1]
    assert raw.cmd("STTL", "s", "MEMBERS", 1, b) == [100]
    assert raw.cmd("SPEXPIRE", "s", 50000, "MEMBERS", 1, b) == [1]
    assert 49000 < raw.cmd("SPTTL", "s", "MEMBERS", 1, b)[0] <= 50000
    assert raw.cmd("SPEXPIREAT", "s", FAR * 1000 + 1, "MEMBERS", 1, b) == [1]
    assert raw.cmd("SEXPIRETIME", "s", "MEMBERS", 1, b) == [FAR + 1]
    assert raw.cmd("SPERSIST", "s", "MEMBERS", 3, a, members[2], "none") == [1, -1, -2]
    assert raw.cmd("STTL", "s", "MEMBERS", 1, a) == [-1]
    assert sorted(raw.cmd("SMEMBERS", "s")) == sorted(members)
    assert raw.cmd("SADD", "s", b) == 0
    assert raw.cmd("SEXPIRETIME", "s", "MEMBERS", 1, b) == [FAR + 1]
    assert raw.cmd("SCARD", "s") == len(members)


def test_conditions(raw, members):
    a = members[0]

    def expire(seconds, *condition):
        return raw.cmd("SEXPIREAT", "s", seconds, *condition, "MEMBERS", 1, a)[0]

    assert expire(FAR, "XX") == 0
    assert expire(FAR, "GT") == 0
    assert expire(FAR, "NX") == 1
    assert expire(FAR + 5, "NX") == 0
    assert expire(FAR, "GT") == 0
    assert expire(FAR + 1, "gt") == 1
    assert expire(FAR + 1, "LT") == 0
    assert expire(FAR, "LT") == 1
    assert expire(FAR + 9, "XX") == 1
    raw.cmd("SPERSIST", "s", "MEMBERS", 1, a)
    assert expire(FAR, "LT") == 1
    assert raw.cmd("SEXPIRE", "s", 0, "GT", "MEMBERS", 1, a) == [0]
    assert raw.cmd("SEXPIRE", "s", 100, "MEMBERS", 1, a, "NX") == [0]
    assert raw.cmd("SEXPIRE", "s", 0, "MEMBERS", 2, a, a) == [2, -2]
    assert raw.cmd("SISMEMBER", "s", a) == 0


def test_a_past_time_removes(raw, members):
    assert raw.cmd("SEXPIREAT", "s", 1, "MEMBERS", 2, *members[:2]) == [2, 2]
    assert raw.cmd("SCARD", "s") == len(members) - 2
    assert raw.cmd("SPEXPIRE", "s", 0, "MEMBERS", len(members), *members) == \
        [-2, -2] + [2] * (len(members) - 2)
    assert raw.cmd("EXISTS", "s") == 0
    assert raw.cmd("SEXPIRE", "s", 5, "MEMBERS", 1, "a") == [-2]
    assert raw.cmd("STTL", "s", "MEMBERS", 2, "a", "b") == [-2, -2]
    assert raw.cmd("SPERSIST", "s", "MEMBERS", 1, "a") == [-2]


def test_errors(raw):
    raw.cmd("SADD", "s", "a")
    raw.cmd("SET", "str", "x")
    wrong = b"WRONGTYPE Operation against a key holding the wrong kind of value"
    assert raw.cmd("SEXPIRE", "str", 5, "MEMBERS", 1, "a") == wrong
    assert raw.cmd("STTL", "str", "MEMBERS", 1, "a") == wrong
    assert raw.cmd("SPERSIST", "str", "MEMBERS", 1, "a") == wrong
    expect = [
        ((5, "MEMBERS", 0, "a"), NUMBER), ((5, "MEMBERS", "x", "a"), NUMBER),
        ((5, "MEMBERS", -1, "a"), NUMBER), ((5, "MEMBERS", 2, "a"), MATCH),
        ((5, "MEMBERS", 1, "a", "b"), MATCH), ((5, "MEMBERS", 2147483647, "a"), MATCH),
        ((5, "FIELDS", 1, "a"), MISSING), ((5, "NX", "1", "a"), MISSING),
        ((5, "NX", "XX", "MEMBERS", 1, "a"), b"ERR Multiple condition flags specified"),
        (("x", "MEMBERS", 1, "a"), b"ERR value is not an integer or out of range"),
        ((-1, "MEMBERS", 1, "a"), b"ERR invalid expire time, must be >= 0"),
        ((1 << 62, "MEMBERS", 1, "a"), b"ERR invalid expire time in 'sexpire' command"),
        ((5, "MEMBERS", 1, "a", "MEMBERS", 1, "a"),
         b"ERR MEMBERS keyword specified multiple times"),
    ]
    for words, text in expect:
        assert raw.cmd("SEXPIRE", "s", *words) == text, words
    assert raw.cmd("STTL", "s", "MEMBERS", 0, "a") == NUMBER
    assert raw.cmd("STTL", "s", "MEMBERS", 2, "a") == MATCH
    assert raw.cmd("STTL", "s", "FIELDS", 1, "a") == MISSING
    assert raw.cmd("SEXPIRE", "s", 5, "MEMBERS", 1) == \
        b"ERR wrong number of arguments for 'sexpire' command"
    assert raw.cmd("STTL", "s", "MEMBERS", 1, "a") == [-1]


def wait_until(condition, seconds=5):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_due_members_are_not_there(raw, members):
    """Without active expiry only the commands themselves notice."""
    raw.cmd("DEBUG", "SET-ACTIVE-EXPIRE", 0)
    try:
        gone, stay = members[:10], members[10:]
        raw.cmd("SADD", "other", *members)
        raw.cmd("SPEXPIRE", "s", 1, "MEMBERS", len(gone), *gone)
        time.sleep(0.01)
        assert raw.cmd("SMISMEMBER", "s", *members) == [0] * 10 + [1] * len(stay)
        assert raw.cmd("SCARD", "s") == len(stay)
        raw.cmd("SADD", "s", *gone)
        raw.cmd("SPEXPIRE", "s", 1, "MEMBERS", len(gone), *gone)
        time.sleep(0.01)
        assert sorted(raw.cmd("SINTER", "s", "other", "s")) == sorted(stay)
        raw.cmd("SPEXPIRE", "s", 1, "MEMBERS", len(stay), *stay)
        time.sleep(0.01)
        assert raw.cmd("SMEMBERS", "s") == []
        wait_until(lambda: raw.cmd("SCARD", "s") == 0 and raw.cmd("EXISTS", "s") == 0)
    finally:
        raw.cmd("DEBUG", "SET-ACTIVE-EXPIRE", 1)


def test_due_members_go_by_themselves(raw, members):
    raw.cmd("SPEXPIRE", "s", 20, "MEMBERS", len(members), *members)
    wait_until(lambda: raw.cmd("DBSIZE") == 0)
    raw.cmd("SADD", "s", *members)
    raw.cmd("SPEXPIRE", "s", 20, "MEMBERS", 1, members[0])
    raw.cmd("RENAME", "s", "t")
    raw.cmd("COPY", "t", "u")
    wait_until(lambda: raw.cmd("SCARD", "t") == len(members) - 1)
    assert raw.cmd("SCARD", "u") == len(members) - 1


def test_a_moved_member_takes_its_time_along(raw, members):
    a, b = members[:2]
    raw.cmd("SEXPIREAT", "s", FAR, "MEMBERS", 1, a)
    raw.cmd("SADD", "t", "x", b)
    assert raw.cmd("SMOVE", "s", "t", a) == 1
    assert raw.cmd("SMOVE", "s", "t", b) == 1
    assert raw.cmd("SEXPIRETIME", "t", "MEMBERS", 3, a, b, "x") == [FAR, -1, -1]
    assert raw.cmd("SUNIONSTORE", "u", "t") == 3
    assert raw.cmd("SEXPIRETIME", "u", "MEMBERS", 1, a) == [-1]


def test_a_packed_set_with_due_times_grows(raw):
    raw.cmd("SADD", "s", 1, 2, 3)
    raw.cmd("SEXPIREAT", "s", FAR, "MEMBERS", 1, 2)
    raw.cmd("SADD", "s", 4, "x", 2)
    assert encoding(raw, "s") == b"listpackex"
    assert raw.cmd("SREM", "s", 1, "x") == 2
    assert raw.cmd("SEXPIRETIME", "s", "MEMBERS", 2, 2, 3) == [FAR, -1]
    raw.cmd("SADD", "s", *["m%d" % i for i in range(200)])
    assert encoding(raw, "s") == b"hashtable"
    assert raw.cmd("SEXPIRETIME", "s", "MEMBERS", 2, 2, 3) == [FAR, -1]
    assert raw.cmd("SCARD", "s") == 203


def dataset(conn):
    info = conn.cmd("INFO", "memory")
    return int(info.split(b"used_memory_dataset:")[1].split(b"\r\n")[0])


def test_a_random_series_leaves_nothing_behind(raw, members):
    before_all = raw.cmd("FLUSHALL")
    assert before_all == b"OK"
    before = dataset(raw)
    seed = random.randrange(1 << 32)
    rng = random.Random(seed)
    due = {}
    names = members[:60]
    for _ in range(600):
        some = rng.sample(names, rng.randrange(1, 8))
        kind = rng.randrange(5)
        if kind == 0:
            raw.cmd("SADD", "s", *some)
            for name in some:
                due.setdefault(name, -1)
        elif kind == 1:
            when = FAR + rng.randrange(100)
            got = raw.cmd("SEXPIREAT", "s", when, "MEMBERS", len(some), *some)
            assert got == [1 if name in due else -2 for name in some], seed
            due.update((name, when) for name in some if name in due)
        elif kind == 2:
            assert raw.cmd("SREM", "s", *some) == sum(name in due for name in some), seed
            for name in some:
                due.pop(name, None)
        elif kind == 3:
            got = raw.cmd("SPERSIST", "s", "MEMBERS", len(some), *some)
            assert got == [1 if due.get(n, -1) >= 0 else -1 if n in due else -2 for n in some], seed
            due.update((name, -1) for name in some if name in due)
        else:
            got = raw.cmd("SEXPIRETIME", "s", "MEMBERS", len(some), *some)
            assert got == [due.get(name, -2) for name in some], seed
    raw.cmd("DEL", "s")
    assert dataset(raw) == before
