#!/usr/bin/python3
"""Sets: replies, error texts, encodings, randomness, scans, memory.

`SCRIPT` is sent line by line to the server under test and to the reference; every reply must be the
same bytes (aggregates in any order). What the reference does not know, or answers as releases before
8 did, is stated below.
"""
import random
import shlex
import time

import pytest

from process import TIME_SCALE

WRONG_TYPE = b"WRONGTYPE Operation against a key holding the wrong kind of value"
NOT_INTEGER = b"ERR value is not an integer or out of range"
SYNTAX = b"ERR syntax error"

SCRIPT = r"""
set str x
sadd s a b c
sadd s a b c
sadd s a d d
sadd s
sadd str a
scard s
scard nokey
scard str
smembers s
smembers nokey
smembers str
sismember s a
sismember s z
sismember nokey a
sismember str a
smismember s a z b
smismember nokey a b
smismember str a
smismember s
srem s a z a
srem s z
srem nokey a
srem str a
srem s
srem s b c d
exists s
sadd i 1 2 3 9223372036854775807 -9223372036854775808 70000
object encoding i
sismember i 9223372036854775807
sismember i 9223372036854775808
sismember i 01
sismember i -0
srem i 9223372036854775807 3
smembers i
srem i 1 2 70000 -9223372036854775808
exists i
sadd i 5
sadd i -3000000000
sadd i 100000
smembers i
sadd m 1 2 x 3
smembers m
sismember m 2
srem m 2 x
sadd e "" ""
smembers e
sismember e ""
smove s t a
sadd s a b
smove s t a
smembers t
smove s t zz
smove s s b
smove s s zz
smove s str b
smove str s b
smove nokey str b
smove nokey s b
sadd t b
smove s t b
exists s
smembers t
spop nokey
spop nokey 1
spop nokey -1
spop t -1
spop t abc
spop t 0
spop t 1 2
spop str
spop str 1
spop t 5
exists t
sadd one x
spop one
exists one
spop one
srandmember nokey
srandmember nokey 1
srandmember nokey -1
srandmember str
srandmember str 1
sadd one x
srandmember one
srandmember one 0
srandmember one 4
srandmember one -4
srandmember one abc
srandmember one -9223372036854775808
srandmember one 9223372036854775807
srandmember one 1 2
sscan one 0
sscan one 0 match y*
sscan one 0 match x* count 3
sscan one 0 match * count 3
sscan nokey 0
sscan str 0
sscan one abc
sscan str abc
sscan one 0 count 0
sscan one 0 count abc
sscan one 0 count
sscan one 0 match
sscan one 0 foo bar
sscan one 0 novalues
sscan one 0 type set
expire one 100
sadd one y
ttl one
srem one y
ttl one
type one
"""


def in_order(value):
    return sorted(value, key=repr) if isinstance(value, list) else value


@pytest.mark.parametrize("resp", [2, 3])
def test_replies_are_those_of_the_reference(raw, redis_server, resp):
    with redis_server.raw() as other:
        other.cmd("FLUSHALL")
        for conn in (raw, other):
            conn.cmd("HELLO", resp)
        for line in SCRIPT.strip().splitlines():
            words = shlex.split(line)
            mine, theirs = raw.cmd(*words), other.cmd(*words)
            assert type(mine) is type(theirs), line
            assert in_order(mine) == in_order(theirs), line
        raw.cmd("HELLO", 2)


def encoding(conn, key):
    return conn.cmd("OBJECT", "ENCODING", key)


@pytest.mark.kvik_only
def test_a_set_takes_the_form_that_holds_it(raw):
    raw.cmd("SADD", "s", 1, 2, 3)
    assert encoding(raw, "s") == b"intset"
    raw.cmd("SADD", "s", "x")
    assert encoding(raw, "s") == b"listpack"
    raw.cmd("SADD", "s", "y" * 64)
    assert encoding(raw, "s") == b"listpack"
    raw.cmd("SADD", "s", "y" * 65)
    assert encoding(raw, "s") == b"hashtable"
    assert sorted(raw.cmd("SMEMBERS", "s")) == sorted(
        [b"1", b"2", b"3", b"x", b"y" * 64, b"y" * 65])
    raw.cmd("SADD", "l", *["m%d" % i for i in range(128)])
    assert encoding(raw, "l") == b"listpack"
    raw.cmd("SADD", "l", "one more")
    assert encoding(raw, "l") == b"hashtable"
    raw.cmd("SADD", "i", *range(512))
    assert encoding(raw, "i") == b"intset"
    raw.cmd("SADD", "i", 511)
    assert encoding(raw, "i") == b"intset"
    raw.cmd("SADD", "i", 512)
    assert encoding(raw, "i") == b"hashtable"
    raw.cmd("SREM", "i", *range(500))
    assert encoding(raw, "i") == b"hashtable"
    raw.cmd("SADD", "big", *range(513))
    assert encoding(raw, "big") == b"hashtable"
    raw.cmd("SADD", "j", *range(200))
    raw.cmd("SADD", "j", "text")
    assert encoding(raw, "j") == b"hashtable"


@pytest.mark.kvik_only
def test_limits_are_settings(start_server):
    server = start_server("--set-max-intset-entries", "2", "--set-max-listpack-entries", "4",
                          "--set-max-listpack-value", "3")
    with server.raw() as conn:
        conn.cmd("SADD", "i", 1, 2)
        assert encoding(conn, "i") == b"intset"
        conn.cmd("SADD", "i", 3)
        assert encoding(conn, "i") == b"hashtable"
        conn.cmd("SADD", "l", 1, 2, 3)
        assert encoding(conn, "l") == b"listpack"
        conn.cmd("SADD", "l", "abcd")
        assert encoding(conn, "l") == b"hashtable"
        conn.cmd("SADD", "n", 1000)
        conn.cmd("SADD", "n", "ab")
        assert encoding(conn, "n") == b"hashtable"


def test_a_random_series_does_what_python_does(raw):
    seed = random.randrange(1 << 32)
    rng = random.Random(seed)
    pool = ["%d" % rng.choice([i, i * 1000, i << 33, -i]) for i in range(40)]
    pool += ["m" * (i % 70) + str(i) for i in range(160)] + [""]
    model = {}
    for _ in range(2500):
        key = "s%d" % rng.randrange(4)
        have = model.setdefault(key, set())
        members = [rng.choice(pool[:40] if key == "s0" else pool)
                   for _ in range(rng.choice([1, 1, 2, 5, 30]))]
        kind = rng.randrange(10)
        if kind < 4:
            assert raw.cmd("SADD", key, *members) == len(set(members) - have), seed
            have |= set(members)
        elif kind < 7:
            assert raw.cmd("SREM", key, *members) == len(set(members) & have), seed
            have -= set(members)
        elif kind == 7:
            count = rng.randrange(6)
            got = {m.decode() for m in raw.cmd("SPOP", key, count)}
            assert got <= have and len(got) == min(count, len(have)), seed
            have -= got
        elif kind == 8:
            other = "s%d" % rng.randrange(4)
            there = model.setdefault(other, set())
            moved = members[0] in have
            assert raw.cmd("SMOVE", key, other, members[0]) == moved, seed
            if moved and other != key:
                have.discard(members[0])
                there.add(members[0])
        else:
            assert raw.cmd("SMISMEMBER", key, *members) == [m in have for m in members], seed
        if rng.random() < 0.05:
            assert {m.decode() for m in raw.cmd("SMEMBERS", key)} == have, seed
            assert raw.cmd("SCARD", key) == len(have), seed
        if rng.random() < 0.01:
            raw.cmd("DEL", key)
            have.clear()


@pytest.mark.kvik_only
@pytest.mark.parametrize("members", [range(300), ["m%d" % i for i in range(100)],
                                     ["m%d" % i for i in range(3000)]])
def test_memory_comes_back(raw, server, members):
    before = dataset(raw)
    for step in range(3):
        raw.cmd("SADD", "s", *members)
        raw.cmd("SPOP", "s", 50)
        raw.cmd("SREM", "s", *list(members)[::2])
        raw.cmd("COPY", "s", "t")
        raw.cmd("SADD", "t", "x", "y" * 100)
        raw.cmd("DEL", "s", "t")
    # What had more than 64 members is freed by another thread.
    deadline = time.monotonic() + 5 * TIME_SCALE
    while dataset(raw) != before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert dataset(raw) == before


def dataset(conn):
    info = conn.cmd("INFO", "memory")
    return int(info.split(b"used_memory_dataset:")[1].split(b"\r\n")[0])


@pytest.mark.parametrize("size", [10, 100, 1000])
@pytest.mark.parametrize("integers", [True, False])
def test_random_members_are_uniform(raw, size, integers):
    members = [b"%d" % i if integers else b"m%d" % i for i in range(size)]
    raw.cmd("SADD", "s", *members)
    counts = dict.fromkeys(members, 0)
    for member in raw.cmd("SRANDMEMBER", "s", -size * 200):
        counts[member] += 1
    assert_uniform(counts, 200)
    for share in (0.1, 0.5, 0.9):
        counts = dict.fromkeys(members, 0)
        for _ in range(200):
            got = raw.cmd("SRANDMEMBER", "s", int(size * share))
            assert len(set(got)) == int(size * share)
            for member in got:
                counts[member] += 1
        assert_uniform(counts, 200 * share)


def assert_uniform(counts, mean):
    """Chi-squared per member stays near 1; the bound is far outside of what chance does."""
    deviation = sum((n - mean) ** 2 for n in counts.values()) / (mean * len(counts))
    assert deviation < 4, deviation
    assert min(counts.values()) > 0


def test_popped_members_are_uniform(raw):
    counts = dict.fromkeys([b"m%d" % i for i in range(300)], 0)
    for _ in range(60):
        raw.cmd("SADD", "s", *counts)
        for member in raw.cmd("SPOP", "s", 40) + [raw.cmd("SPOP", "s")]:
            counts[member] += 1
    deviation = sum((n - 8.2) ** 2 for n in counts.values()) / (8.2 * len(counts))
    assert 0.5 < deviation < 2


def scan_all(conn, key, step):
    seen, cursor = [], b"0"
    while True:
        cursor, part = conn.cmd("SSCAN", key, cursor, "COUNT", 7)
        seen += part
        step()
        if cursor == b"0":
            return seen


@pytest.mark.parametrize("kind", ["integers", "texts", "mixed"])
def test_a_scan_sees_what_stays(raw, kind):
    seed = random.randrange(1 << 32)
    rng = random.Random(seed)
    name = {"integers": "%d", "texts": "m%d", "mixed": "%d"}[kind]
    stays = {(name % i).encode() for i in range(0, 2000, 2)}
    if kind == "mixed":
        stays |= {b"t%d" % i for i in range(50)}
    for size in (40, 400, 1050):
        raw.cmd("DEL", "s")
        kept = set(sorted(stays)[:size])
        raw.cmd("SADD", "s", *kept)

        def disturb():
            for _ in range(rng.randrange(40)):
                member = name % (2 * rng.randrange(3000) + 1)
                raw.cmd(rng.choice(["SADD", "SADD", "SREM"]), "s", member)

        seen = scan_all(raw, "s", disturb)
        assert kept <= set(seen), seed
        repeated = [m for m in kept if seen.count(m) > 1]
        assert not repeated or encoding(raw, "s") != b"hashtable", seed


@pytest.mark.kvik_only
def test_a_huge_negative_count_is_refused(raw):
    raw.cmd("SADD", "s", "a")
    assert raw.cmd("SRANDMEMBER", "s", "-9223372036854775807").code == b"OOM"
