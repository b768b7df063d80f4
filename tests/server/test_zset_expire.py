#!/usr/bin/python3
"""Due times of members of sorted sets, which are Kvik's own: in packed and large sets."""
import random
import time

import pytest

from raw import parse_all

pytestmark = pytest.mark.kvik_only

FAR = 4102444800  # seconds
NUMBER = b"ERR Parameter `numMembers` should be greater than 0"
MATCH = b"ERR The `nummembers` parameter must match the number of arguments"
MISSING = b"ERR Mandatory argument MEMBERS is missing or not at the right position"


@pytest.fixture(params=["packed", "large"])
def members(raw, request):
    """A sorted set `z` of each form, scores 0, 1, 2 ...; its members."""
    names = [b"m%03d" % i for i in range(20 if request.param == "packed" else 300)]
    raw.cmd("ZADD", "z", *[word for i, name in enumerate(names) for word in (i, name)])
    return names


def encoding(conn, key):
    return conn.cmd("OBJECT", "ENCODING", key)


def test_due_times_are_set_and_told(raw, members):
    a, b = members[:2]
    assert raw.cmd("ZTTL", "z", "MEMBERS", 3, a, b, "none") == [-1, -1, -2]
    assert raw.cmd("ZEXPIREAT", "z", FAR, "MEMBERS", 3, a, "none", a) == [1, -2, 1]
    assert encoding(raw, "z") == (b"listpackex" if len(members) < 100 else b"skiplist")
    assert raw.cmd("ZEXPIRETIME", "z", "MEMBERS", 2, a, b) == [FAR, -1]
    assert raw.cmd("ZPEXPIRETIME", "z", "MEMBERS", 1, a) == [FAR * 1000]
    assert raw.cmd("ZEXPIRE", "z", 100, "MEMBERS", 1, b) == [1]
    assert raw.cmd("ZTTL", "z", "MEMBERS", 1, b) == [100]
    assert raw.cmd("ZPEXPIRE", "z", 50000, "MEMBERS", 1, b) == [1]
    assert 49000 < raw.cmd("ZPTTL", "z", "MEMBERS", 1, b)[0] <= 50000
    assert raw.cmd("ZPEXPIREAT", "z", FAR * 1000 + 1, "MEMBERS", 1, b) == [1]
    assert raw.cmd("ZEXPIRETIME", "z", "MEMBERS", 1, b) == [FAR + 1]
    assert raw.cmd("ZPERSIST", "z", "MEMBERS", 3, a, members[2], "none") == [1, -1, -2]
    assert raw.cmd("ZTTL", "z", "MEMBERS", 1, a) == [-1]
    assert raw.cmd("ZRANGE", "z", 0, -1) == members
    assert raw.cmd("ZSCORE", "z", b) == b"1"


def test_a_new_score_leaves_the_due_time(raw, members):
    a, b = members[:2]
    raw.cmd("ZEXPIREAT", "z", FAR, "MEMBERS", 2, a, b)
    assert raw.cmd("ZADD", "z", "1000.5", a, 7, "new") == 1
    assert raw.cmd("ZINCRBY", "z", 5000, b) == b"5001"
    assert raw.cmd("ZRANGE", "z", -2, -1) == [a, b]
    assert raw.cmd("ZEXPIRETIME", "z", "MEMBERS", 3, a, b, "new") == [FAR, FAR, -1]
    raw.cmd("ZREM", "z", a)
    raw.cmd("ZADD", "z", 1, a)
    assert raw.cmd("ZTTL", "z", "MEMBERS", 1, a) == [-1]
    assert raw.cmd("ZRANGESTORE", "y", "z", 0, -1) == len(members) + 1
    assert raw.cmd("ZTTL", "y", "MEMBERS", 1, b) == [-1]
    raw.cmd("RENAME", "z", "x")
    raw.cmd("COPY", "x", "w")
    for key in ("x", "w"):
        assert raw.cmd("ZEXPIRETIME", key, "MEMBERS", 1, b) == [FAR]


def test_conditions(raw, members):
    a = members[0]

    def expire(seconds, *condition):
        return raw.cmd("ZEXPIREAT", "z", seconds, *condition, "MEMBERS", 1, a)[0]

    assert expire(FAR, "XX") == 0
    assert expire(FAR, "GT") == 0
    assert expire(FAR, "NX") == 1
    assert expire(FAR + 5, "NX") == 0
    assert expire(FAR, "GT") == 0
    assert expire(FAR + 1, "gt") == 1
    assert expire(FAR + 1, "LT") == 0
    assert expire(FAR, "LT") == 1
    assert expire(FAR + 9, "XX") == 1
    raw.cmd("ZPERSIST", "z", "MEMBERS", 1, a)
    assert expire(FAR, "LT") == 1
    assert raw.cmd("ZEXPIRE", "z", 0, "MEMBERS", 2, a, a) == [2, -2]
    assert raw.cmd("ZSCORE", "z", a) is None


def test_a_past_time_removes(raw, members):
    assert raw.cmd("ZEXPIREAT", "z", 1, "MEMBERS", 2, *members[:2]) == [2, 2]
    assert raw.cmd("ZCARD", "z") == len(members) - 2
    assert raw.cmd("ZPEXPIRE", "z", 0, "MEMBERS", len(members), *members) == \
        [-2, -2] + [2] * (len(members) - 2)
    assert raw.cmd("EXISTS", "z") == 0
    assert raw.cmd("ZEXPIRE", "z", 5, "MEMBERS", 1, "a") == [-2]
    assert raw.cmd("ZTTL", "z", "MEMBERS", 2, "a", "b") == [-2, -2]
    assert raw.cmd("ZPERSIST", "z", "MEMBERS", 1, "a") == [-2]


def test_errors(raw):
    raw.cmd("ZADD", "z", 1, "a")
    raw.cmd("SET", "str", "x")
    wrong = b"WRONGTYPE Operation against a key holding the wrong kind of value"
    assert raw.cmd("ZEXPIRE", "str", 5, "MEMBERS", 1, "a") == wrong
    assert raw.cmd("ZTTL", "str", "MEMBERS", 1, "a") == wrong
    assert raw.cmd("ZPERSIST", "str", "MEMBERS", 1, "a") == wrong
    expect = [
        ((5, "MEMBERS", 0, "a"), NUMBER), ((5, "MEMBERS", 2, "a"), MATCH),
        ((5, "FIELDS", 1, "a"), MISSING),
        (("x", "MEMBERS", 1, "a"), b"ERR value is not an integer or out of range"),
        ((-1, "MEMBERS", 1, "a"), b"ERR invalid expire time, must be >= 0"),
        ((1 << 62, "MEMBERS", 1, "a"), b"ERR invalid expire time in 'zexpire' command"),
    ]
    for words, text in expect:
        assert raw.cmd("ZEXPIRE", "z", *words) == text, words
    assert raw.cmd("ZTTL", "z", "MEMBERS", 2, "a") == MATCH
    assert raw.cmd("ZTTL", "z", "MEMBERS", 1, "a") == [-1]


def wait_until(condition, seconds=5):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_due_members_are_neither_counted_nor_ranked(raw, members):
    """Without active expiry only the commands themselves notice."""
    raw.cmd("DEBUG", "SET-ACTIVE-EXPIRE", 0)
    try:
        for command in (("ZCARD", "z"), ("ZRANGE", "z", 0, -1), ("ZRANK", "z", members[19]),
                        ("ZRANGEBYSCORE", "z", 0, 19), ("ZUNION", 2, "z", "none")):
            raw.cmd("DEL", "z")
            raw.cmd("ZADD", "z", *[w for i, name in enumerate(members) for w in (i, name)])
            raw.cmd("ZPEXPIRE", "z", 1, "MEMBERS", 10, *members[:10])
            time.sleep(0.005)
            want = {"ZCARD": len(members) - 10, "ZRANK": 9, "ZRANGEBYSCORE": members[10:20]}
            assert raw.cmd(*command) == want.get(command[0], members[10:]), command
        assert raw.cmd("ZADD", "z", 5, members[0]) == 1
        raw.cmd("ZPEXPIRE", "z", 1, "MEMBERS", len(members), *members)
        time.sleep(0.005)
        assert raw.cmd("ZPOPMIN", "z") == []
        assert raw.cmd("EXISTS", "z") == 0
    finally:
        raw.cmd("DEBUG", "SET-ACTIVE-EXPIRE", 1)


def test_due_members_go_by_themselves(raw, members):
    raw.cmd("ZPEXPIRE", "z", 20, "MEMBERS", len(members), *members)
    wait_until(lambda: raw.cmd("DBSIZE") == 0)
    raw.cmd("ZADD", "z", 1, "a", 2, "b")
    raw.cmd("ZPEXPIRE", "z", 20, "MEMBERS", 1, "a")
    raw.cmd("RENAME", "z", "y")
    raw.cmd("COPY", "y", "x")
    wait_until(lambda: raw.cmd("ZCARD", "x") == raw.cmd("ZCARD", "y") == 1)


def test_a_packed_set_with_due_times_grows(raw):
    raw.cmd("ZADD", "z", 1, 1, 2, 2, 3, 3)
    raw.cmd("ZEXPIREAT", "z", FAR, "MEMBERS", 1, 2)
    raw.cmd("ZADD", "z", 4, 4, 0, "x", 9, 2)
    assert encoding(raw, "z") == b"listpackex"
    assert raw.cmd("ZREM", "z", 1, "x") == 2
    assert raw.cmd("ZRANGE", "z", 0, -1, "WITHSCORES") == [b"3", b"3", b"4", b"4", b"2", b"9"]
    assert raw.cmd("ZEXPIRETIME", "z", "MEMBERS", 2, 2, 3) == [FAR, -1]
    raw.cmd("ZADD", "z", *[word for i in range(200) for word in (i, "m%d" % i)])
    assert encoding(raw, "z") == b"skiplist"
    assert raw.cmd("ZEXPIRETIME", "z", "MEMBERS", 2, 2, 3) == [FAR, -1]
    assert raw.cmd("ZCARD", "z") == 203


def test_what_goes_to_the_change_stream(raw, members):
    a, b, c = members[:3]
    raw.cmd("DEBUG", "CHANGE-STREAM", "START")
    try:
        raw.cmd("ZEXPIRE", "z", 100, "MEMBERS", 2, a, "none")
        raw.cmd("ZEXPIREAT", "z", 1, "MEMBERS", 1, b)
        raw.cmd("ZINCRBY", "z", "0.25", c)
        raw.cmd("ZADD", "z", "XX", "INCR", 1, c)
        raw.cmd("ZADD", "z", "NX", 1, c)
        raw.cmd("ZMPOP", 2, "none", "z", "MAX", "COUNT", 2)
        raw.cmd("ZPERSIST", "z", "MEMBERS", 1, a)
        seen = parse_all(raw.cmd("DEBUG", "CHANGE-STREAM", "READ"))
    finally:
        raw.cmd("DEBUG", "CHANGE-STREAM", "STOP")
    seen = [line for line in seen if line[0] != b"SELECT"]
    assert seen[0][:2] == [b"ZPEXPIREAT", b"z"] and seen[0][3:] == [b"MEMBERS", b"1", a]
    assert seen[1:] == [[b"ZREM", b"z", b], [b"ZADD", b"z", b"2.25", c], [b"ZADD", b"z", b"3.25", c],
                        [b"ZPOPMAX", b"z", b"2"], [b"ZPERSIST", b"z", b"MEMBERS", b"1", a]]


def dataset(conn):
    info = conn.cmd("INFO", "memory")
    return int(info.split(b"used_memory_dataset:")[1].split(b"\r\n")[0])


def test_a_random_series_leaves_nothing_behind(raw, members):
    raw.cmd("FLUSHALL")
    before = dataset(raw)
    seed = random.randrange(1 << 32)
    rng = random.Random(seed)
    due = {}
    if len(members) > 100:
        raw.cmd("CONFIG", "SET", "zset-max-listpack-entries", 5)
    names = members[:60]
    for _ in range(600):
        some = rng.sample(names, min(len(names), rng.randrange(1, 8)))
        kind = rng.randrange(5)
        if kind == 0:
            raw.cmd("ZADD", "z", *[word for name in some for word in (rng.randrange(9), name)])
            for name in some:
                due.setdefault(name, -1)
        elif kind == 1:
            when = FAR + rng.randrange(100)
            got = raw.cmd("ZEXPIREAT", "z", when, "MEMBERS", len(some), *some)
            assert got == [1 if name in due else -2 for name in some], seed
            due.update((name, when) for name in some if name in due)
        elif kind == 2:
            assert raw.cmd("ZREM", "z", *some) == sum(name in due for name in some), seed
            for name in some:
                due.pop(name, None)
        elif kind == 3:
            got = raw.cmd("ZPERSIST", "z", "MEMBERS", len(some), *some)
            assert got == [1 if due.get(n, -1) >= 0 else -1 if n in due else -2 for n in some], seed
            due.update((name, -1) for name in some if name in due)
        else:
            got = raw.cmd("ZEXPIRETIME", "z", "MEMBERS", len(some), *some)
            assert got == [due.get(name, -2) for name in some], seed
    raw.cmd("DEL", "z")
    raw.cmd("CONFIG", "SET", "zset-max-listpack-entries", 128)
    assert dataset(raw) == before
