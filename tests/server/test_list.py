#!/usr/bin/python3
"""List commands: replies, error texts, encodings, exact memory.

`SCRIPT` is sent line by line to the server under test and to the reference; every reply must be the
same bytes. Random sequences do the same with lists of all sizes, under several limits of a node. What
the reference does not know (LMOVEM, the encoding of small lists) is stated below.
"""
import random
import shlex
import time

import pytest

WRONG_TYPE = b"WRONGTYPE Operation against a key holding the wrong kind of value"
NOT_INTEGER = b"ERR value is not an integer or out of range"
MUST_BE_POSITIVE = b"ERR value is out of range, must be positive"
SYNTAX = b"ERR syntax error"

SCRIPT = r"""
set s x
rpush l a b c
lpop l -1
lpop l x
lpop l 0
lpop nokey 0
lpop nokey 5
lpop nokey x
lpop s 0
lpop s -1
lpop s
lpop l 1 2
lpop nokey
lindex nokey x
lindex s x
lindex l x
lindex l 99
lset nokey 0 v
lset s 0 v
lset l x v
lset l 99 v
lset nokey x v
linsert l middle a b
linsert nokey before a b
linsert s before a b
linsert s middle a b
linsert l before zz b
lrem l x a
lrem nokey x a
lrem s 0 a
lrem s x a
ltrim l x y
ltrim nokey 0 1
ltrim s 0 1
lpos l a rank 0
lpos l a rank x
lpos l a count -1
lpos l a count x
lpos l a maxlen -1
lpos l a maxlen x
lpos l a foo 1
lpos l a rank
lpos nokey a rank 0
lpos nokey a
lpos nokey a count 1
lpos l zz
lpos l zz count 0
lpos s a
lpos l a rank -9223372036854775807
lmove nokey s left right
lmove nokey l left foo
lmove l s left right
lmove s l left right
lmpop 0 l left
lmpop -1 l left
lmpop x l left
lmpop 2 l left
lmpop 1 l left count
lmpop 1 l foo
lmpop 1 l left count 0
lmpop 1 l left count -1
lmpop 1 l left count x
lmpop 1 l left count 1 count 2
lmpop 1 nokey left
lmpop 2 nokey s left
lmpop 1 l left foo 1
lmpop 1 l left count 1
lmpop 3 l left
lmpop 99999999999 l left
lrange l x 1
lrange nokey x 1
lrange s 0 1
lrange nokey 0 1
llen s
rpush s a
rpushx s a
lpushx nokey a
lpushx s a
rpoplpush nokey s
rpoplpush l s
del l
rpush l 1 2 3 a b c 1 2 3 "" 10000000000 -5 05
lrange l 0 -1
lrange l -100 100
lrange l 3 1
lrange l -3 -2
lrange l 9223372036854775807 9223372036854775807
lrange l -9223372036854775808 9223372036854775807
lindex l -1
lindex l 9223372036854775807
lindex l -9223372036854775808
lindex l -13
lindex l -14
lpos l 1 rank 2
lpos l 1 rank -1
lpos l 1 rank -2 count 0
lpos l 2 count 0 maxlen 5
lpos l 2 count 1 count 0
lpos l 05
lpos l 5
lpos l ""
lpos l 10000000000 maxlen 11
lpos l 10000000000 maxlen 10
lpos l 3 rank 9223372036854775807
lrem l -1 1
lrange l 0 -1
lrem l 0 2
lrem l 5 nothere
lrem l -9223372036854775808 3
lrange l 0 -1
linsert l before a new
linsert l AFTER c last
linsert l before "" 7
lset l -1 tail
lset l 0 head
lset l 9223372036854775807 x
lset l -9223372036854775808 x
lrange l 0 -1
ltrim l 1 -2
lrange l 0 -1
ltrim l 0 100
ltrim l -100 2
lrange l 0 -1
ltrim l 5 1
exists l
rpush l 1 2 3
lpop l 2
lpop l 100
exists l
rpush l a b c
lmove l l left right
lmove l l right right
lmove l l right left
lrange l 0 -1
lmove l d left left
lmove l d right right
lmove l d LEFT Right
exists l
lmove d d left right
lrange d 0 -1
rpoplpush d d
rpoplpush d e
lrange d 0 -1
lmpop 3 nokey d e right count 2
lmpop 3 nokey d e right count 2
lmpop 3 nokey d e right count 2
lmpop 2 l s left
rpush one x
lmove one one left right
lrange one 0 -1
rpop one
type one
lpush l 1 2 3
rename l m
lrange m 0 -1
copy m n
lpop m 3
lrange n 0 -1
type n
expire n 100
lpop n
ttl n
object encoding nokey
get n
append n x
incr n
"""


def lines(script):
    return [shlex.split(line) for line in script.strip().splitlines()]


def test_replies_are_those_of_the_reference(empty_server, redis_server):
    for protocol in (2, 3):
        with empty_server.raw() as ours, redis_server.raw() as theirs:
            for conn in (ours, theirs):
                conn.cmd("FLUSHALL")
                conn.cmd("HELLO", protocol)
            for line in lines(SCRIPT):
                assert ours.cmd_bytes(*line) == theirs.cmd_bytes(*line), (protocol, line)


# --- random sequences ---

def random_item(rng):
    kind = rng.random()
    if kind < 0.4:
        return rng.choice(["a", "b", "c", "", "0", "1", "-1", "007", "70000", str(2 ** 63 - 1)])
    if kind < 0.8:
        return str(rng.randrange(1000))
    if kind < 0.97:
        return rng.choice("xyz") * rng.choice([40, 63, 64, 65, 127, 128, 500, 1020])
    return rng.choice("xyz") * rng.choice([4000, 5000, 9000, 20000, 70000])


def random_line(rng):
    key, other = rng.choice("abcd"), rng.choice("abcd")
    item = random_item(rng)
    items = [random_item(rng) for _ in range(rng.choice([1, 1, 2, 5, 30]))]
    index = str(rng.choice([0, 1, -1, 2, -2, rng.randrange(-60, 60), rng.randrange(-900, 900)]))
    end = str(rng.choice([-1, -1, -2, rng.randrange(-100, 900)]))
    count = str(rng.choice([1, 2, 5, 40]))
    sides = [rng.choice(["left", "right"]) for _ in range(2)]
    pushes = [["lpush", key] + items, ["rpush", key] + items]
    return rng.choice(pushes * 4 + [
        ["lpushx", key, item], ["rpushx", key] + items, ["lpop", key], ["rpop", key],
        ["lpop", key, count], ["rpop", key, count], ["llen", key], ["lindex", key, index],
        ["lrange", key, index, end], ["lset", key, index, item], ["lset", key, index, item],
        ["linsert", key, "before", item, random_item(rng)],
        ["linsert", key, "after", random_item(rng)[:1], item],
        ["lrem", key, str(rng.choice([0, 1, -1, 3])), item], ["lrem", key, "-2", item],
        ["ltrim", key, str(rng.choice([0, 1, 3])), str(rng.choice([-1, -2, 400]))],
        ["ltrim", key, index, "-1"] if rng.random() < 0.2 else ["llen", key],
        ["lpos", key, item, "rank", str(rng.choice([1, -1, 2])), "count", "0"],
        ["lmove", key, other] + sides, ["rpoplpush", key, other],
        ["lmpop", "2", key, other, sides[0], "count", count], ["lrange", key, "0", "-1"],
        ["copy", key, other, "replace"], ["rename", key, other],
        ["del", key] if rng.random() < 0.1 else ["llen", other],
    ])


@pytest.mark.parametrize("limit", ["-2", "-1", "-5", "1", "3", "64"])
def test_random_sequences_agree_with_the_reference(empty_server, redis_server, limit):
    seed = random.randrange(2 ** 32)
    print("SEED=%d" % seed)
    rng = random.Random(seed)
    with empty_server.raw() as ours, redis_server.raw() as theirs:
        for conn in (ours, theirs):
            conn.cmd("FLUSHALL")
            conn.cmd("CONFIG", "SET", "list-max-listpack-size", limit)
        for _ in range(1500):
            line = random_line(rng)
            assert ours.cmd_bytes(*line) == theirs.cmd_bytes(*line), (seed, [w[:20] for w in line])
        for key in "abcd":
            assert ours.cmd("LRANGE", key, 0, -1) == theirs.cmd("LRANGE", key, 0, -1), seed
        for conn in (ours, theirs):
            conn.cmd("CONFIG", "SET", "list-max-listpack-size", "-2")


# --- encodings and memory ---

def dataset(conn):
    info = conn.cmd("INFO", "memory").decode()
    return int(info.split("used_memory_dataset:")[1].split()[0])


def assert_dataset(conn, expected):
    """What was large is freed by another thread: a moment later."""
    deadline = time.monotonic() + 10
    while dataset(conn) != expected and time.monotonic() < deadline:
        time.sleep(0.02)
    assert dataset(conn) == expected


def encoding(conn, key="l"):
    return conn.cmd("OBJECT", "ENCODING", key)


@pytest.mark.kvik_only
def test_a_list_is_packed_while_it_is_small(raw):
    raw.cmd("RPUSH", "l", "a", "b")
    assert encoding(raw) == b"listpack"
    raw.cmd("RPUSH", "l", "x" * 8192)
    assert encoding(raw) == b"quicklist"
    raw.cmd("RPOP", "l")
    assert encoding(raw) == b"listpack"
    raw.cmd("RPUSH", "l", *["y" * 100] * 100)
    assert encoding(raw) == b"quicklist"
    raw.cmd("LTRIM", "l", 0, 60)
    assert encoding(raw) == b"quicklist"
    raw.cmd("LTRIM", "l", 0, 30)
    assert encoding(raw) == b"listpack"
    assert raw.cmd("LLEN", "l") == 31


@pytest.mark.kvik_only
@pytest.mark.parametrize("change", [
    ["RPUSH", "l", "d"], ["LPUSH", "l", "d"], ["RPUSHX", "l", "d", "e"],
    ["LINSERT", "l", "BEFORE", "b", "d"], ["LMOVE", "m", "l", "LEFT", "LEFT"],
])
def test_a_list_becomes_large_when_it_has_too_many_items(raw, change):
    raw.cmd("CONFIG", "SET", "list-max-listpack-size", 3)
    raw.cmd("RPUSH", "l", "a", "b", "c")
    raw.cmd("RPUSH", "m", "z")
    assert encoding(raw) == b"listpack"
    raw.cmd(*change)
    assert encoding(raw) == b"quicklist"
    assert raw.cmd("LLEN", "l") in (4, 5)
    raw.cmd("CONFIG", "SET", "list-max-listpack-size", -2)


@pytest.mark.kvik_only
def test_lset_of_a_large_item_makes_a_list_large_and_back(raw):
    raw.cmd("RPUSH", "l", "a", "b", "c")
    assert raw.cmd("LSET", "l", 1, "x" * 9000) == b"OK"
    assert encoding(raw) == b"quicklist"
    assert raw.cmd("LRANGE", "l", 0, -1) == [b"a", b"x" * 9000, b"c"]
    assert raw.cmd("LSET", "l", -2, "y") == b"OK"
    assert raw.cmd("LRANGE", "l", 0, -1) == [b"a", b"y", b"c"]
    assert raw.cmd("LREM", "l", 0, "y") == 1
    assert raw.cmd("LRANGE", "l", 0, -1) == [b"a", b"c"]


@pytest.mark.kvik_only
def test_equal_lists_have_equal_digests_whatever_their_encoding(raw):
    items = ["%d" % i for i in range(200)] + ["w" * 30] * 20
    raw.cmd("RPUSH", "packed", *items)
    raw.cmd("CONFIG", "SET", "list-max-listpack-size", 7)
    raw.cmd("RPUSH", "large", *items)
    raw.cmd("CONFIG", "SET", "list-max-listpack-size", -2)
    assert encoding(raw, "packed") == b"listpack"
    assert encoding(raw, "large") == b"quicklist"
    one, two = raw.cmd("DEBUG", "DIGEST-VALUE", "packed", "large")
    assert one == two
    raw.cmd("LSET", "large", 100, "other")
    assert raw.cmd("DEBUG", "DIGEST-VALUE", "large")[0] != one


@pytest.mark.kvik_only
def test_memory_comes_back_to_the_byte(raw):
    seed = random.randrange(2 ** 32)
    print("SEED=%d" % seed)
    rng = random.Random(seed)
    raw.cmd("SET", "x", "y")
    raw.cmd("DEL", "x")
    before = dataset(raw)
    for _ in range(2000):
        raw.cmd(*random_line(rng))
    for key in "abcd":
        raw.cmd("DEL", key)
    assert_dataset(raw, before)


# --- LMOVEM ---

@pytest.mark.kvik_only
@pytest.mark.parametrize("sides,order,reply,left,other", [
    ("LEFT LEFT", "OBO", "2 1", "3 4", "2 1 x y"),
    ("LEFT LEFT", "BULK", "1 2", "3 4", "1 2 x y"),
    ("LEFT RIGHT", "OBO", "1 2", "3 4", "x y 1 2"),
    ("LEFT RIGHT", "BULK", "1 2", "3 4", "x y 1 2"),
    ("RIGHT LEFT", "OBO", "3 4", "1 2", "3 4 x y"),
    ("RIGHT LEFT", "BULK", "3 4", "1 2", "3 4 x y"),
    ("RIGHT RIGHT", "OBO", "4 3", "1 2", "x y 4 3"),
    ("RIGHT RIGHT", "BULK", "3 4", "1 2", "x y 3 4"),
])
@pytest.mark.parametrize("limit", [-2, 1])
def test_lmovem_moves_in_the_order_that_is_asked_for(raw, sides, order, reply, left, other, limit):
    raw.cmd("CONFIG", "SET", "list-max-listpack-size", limit)
    for selector in ("COUNT", "EXACTLY"):
        raw.cmd("DEL", "l", "d")
        raw.cmd("RPUSH", "l", *"1234")
        raw.cmd("RPUSH", "d", *"xy")
        got = raw.cmd("LMOVEM", "l", "d", *sides.split(), selector, 2, order)
        assert got == reply.encode().split()
        assert raw.cmd("LRANGE", "l", 0, -1) == left.encode().split()
        assert raw.cmd("LRANGE", "d", 0, -1) == other.encode().split()
    raw.cmd("CONFIG", "SET", "list-max-listpack-size", -2)


@pytest.mark.kvik_only
@pytest.mark.parametrize("limit", [-2, 1])
@pytest.mark.parametrize("sides,order,reply,after", [
    ("LEFT LEFT", "OBO", "b a", "b a c"), ("LEFT LEFT", "BULK", "a b", "a b c"),
    ("RIGHT RIGHT", "OBO", "c b", "a c b"), ("RIGHT RIGHT", "BULK", "b c", "a b c"),
    ("LEFT RIGHT", "OBO", "a b", "c a b"), ("RIGHT LEFT", "BULK", "b c", "b c a"),
])
def test_lmovem_within_one_list(raw, sides, order, reply, after, limit):
    raw.cmd("CONFIG", "SET", "list-max-listpack-size", limit)
    raw.cmd("RPUSH", "l", *"abc")
    assert raw.cmd("LMOVEM", "l", "l", *sides.split(), "EXACTLY", 2, order) == reply.encode().split()
    assert raw.cmd("LRANGE", "l", 0, -1) == after.encode().split()
    raw.cmd("CONFIG", "SET", "list-max-listpack-size", -2)


@pytest.mark.kvik_only
def test_lmovem_without_enough_items(raw, connect):
    resp3 = connect()
    resp3.hello3()
    raw.cmd("RPUSH", "l", "1", "2")
    assert raw.cmd_bytes("LMOVEM", "l", "d", "LEFT", "LEFT", "EXACTLY", 3, "BULK") == b"*-1\r\n"
    assert resp3.cmd_bytes("LMOVEM", "no", "d", "LEFT", "LEFT", "EXACTLY", 1, "OBO") == b"_\r\n"
    assert raw.cmd("LMOVEM", "no", "d", "LEFT", "LEFT", "COUNT", 3, "BULK") == []
    assert raw.cmd("LMOVEM", "no", "d", "LEFT", "LEFT") == []
    assert raw.cmd("LMOVEM", "l", "d", "LEFT", "LEFT", "COUNT", 0, "OBO") == []
    assert raw.cmd("EXISTS", "d") == 0
    assert raw.cmd("LMOVEM", "l", "d", "LEFT", "LEFT") == [b"1"]
    assert raw.cmd("LMOVEM", "l", "d", "LEFT", "RIGHT", "COUNT", 9, "OBO") == [b"2"]
    assert raw.cmd("EXISTS", "l") == 0
    assert raw.cmd("LRANGE", "d", 0, -1) == [b"1", b"2"]


@pytest.mark.kvik_only
@pytest.mark.parametrize("words,error", [
    ("l d LEFT UP", SYNTAX), ("l d LEFT LEFT COUNT 1", SYNTAX), ("l d LEFT LEFT COUNT 1 ANY", SYNTAX),
    ("l d LEFT LEFT SOME 1 OBO", SYNTAX), ("l d LEFT LEFT COUNT 1 OBO BULK", SYNTAX),
    ("l d LEFT LEFT COUNT -1 OBO", MUST_BE_POSITIVE), ("l d LEFT LEFT EXACTLY x OBO", MUST_BE_POSITIVE),
    ("l s LEFT LEFT", WRONG_TYPE), ("s d LEFT LEFT COUNT 1 OBO", WRONG_TYPE),
    ("l d LEFT", b"ERR wrong number of arguments for 'lmovem' command"),
])
def test_lmovem_errors(raw, words, error):
    raw.cmd("RPUSH", "l", "1")
    raw.cmd("SET", "s", "x")
    assert raw.cmd("LMOVEM", *words.split()) == error
    assert raw.cmd("LRANGE", "l", 0, -1) == [b"1"]


@pytest.mark.kvik_only
def test_lpos_refuses_a_rank_that_cannot_be_negated(raw):
    raw.cmd("RPUSH", "l", "1")
    assert raw.cmd("LPOS", "l", "1", "RANK", -2 ** 63) == (
        b"ERR value is out of range, value must between -9223372036854775807 and "
        b"9223372036854775807")


# --- change stream ---

@pytest.mark.kvik_only
def test_the_change_stream_has_what_was_done(raw, connect):
    raw.cmd("DEBUG", "CHANGE-STREAM", "START")
    for line in lines("""
        rpush l a b c d
        lpop l 2
        lpop none 3
        lmpop 2 none l right count 5
        rpush l a b
        lmove l l left right
        lmovem l m left left count 9 bulk
        lrem m 0 nothere
    """):
        raw.cmd(*line)
    stream = raw.cmd("DEBUG", "CHANGE-STREAM", "READ")
    raw.cmd("DEBUG", "CHANGE-STREAM", "STOP")
    assert b"lmpop" not in stream and b"nothere" not in stream and b"none" not in stream
    for text in (b"rpush", b"RPOP", b"lmove", b"lmovem"):
        assert text in stream


def test_watch_sees_changes_and_no_others(raw, connect):
    other = connect()
    raw.cmd("RPUSH", "l", "a", "b")
    for change, seen in ((["LPUSH", "l", "x"], True), (["LREM", "l", "0", "none"], False),
                         (["LSET", "l", "0", "y"], True), (["LINDEX", "l", "0"], False),
                         (["LINSERT", "l", "BEFORE", "none", "x"], False),
                         (["LTRIM", "l", "0", "-1"], True), (["LPUSHX", "m", "x"], False)):
        raw.cmd("WATCH", "l", "m")
        other.cmd(*change)
        raw.cmd("MULTI")
        raw.cmd("PING")
        assert (raw.cmd("EXEC") is None) == seen, change
