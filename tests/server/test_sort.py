#!/usr/bin/python3
"""SORT and SORT_RO: replies of all options beside the reference, patterns from several threads.

Lines over sorted sets are left out while the server has none.
"""
import random
import shlex
import threading

import pytest

from test_list import assert_dataset, dataset

SCRIPT = r"""
rpush l 3 1 2 10
rpush a b A "" c a
sadd set 5 3 1
zadd z 3 a 1 b 2 c
zadd zn 3 7 1 9 2 8
set s x
mset w_1 3 w_2 2 w_3 1 w_10 0
mset d_1 one d_2 two d_3 three
hset h_1 f 9 g 1
hset h_2 f 8
sort l
sort l desc
sort l alpha
sort l alpha desc
sort a
sort a alpha
sort a alpha desc limit 1 2
sort l limit 1 2
sort l limit -1 2
sort l limit 0 -1
sort l limit 0 -5
sort l limit 5 1
sort l limit 10 10
sort l limit 1 0
sort l limit x 1
sort s limit x 1
sort nokey limit x 1
sort s
sort nokey
sort nokey foo
sort s foo
sort l by
sort l get
sort l limit 1
sort l limit
sort l store
sort l by w_*
sort l by w_* desc
sort l by nosort
sort l by nosort desc
sort l by nosort limit 1 2
sort l by nosort by w_*
sort l by w_* by nosort
sort l by w_* get d_*
sort l by w_* get d_* get # get nostar get h_*->f get h_*->nof get h_*-> get s get *
sort l by h_*->f
sort l by h_*->f desc get #
sort l by d_*
sort l by d_* alpha
sort l by d_* alpha desc
sort z
sort z alpha
sort z by nosort
sort z by nosort desc
sort z by nosort limit 1 1
sort z by nosort desc limit 0 2
sort zn
sort zn desc limit 0 2
sort set
sort set desc
sort set by nosort store dst
lrange dst 0 -1
sort set desc by nosort store dst
lrange dst 0 -1
sort l store dst
lrange dst 0 -1
type dst
sort l get d_* store dst
lrange dst 0 -1
sort nokey store dst
exists dst
sort l store l
lrange l 0 -1
sort l store dst store dst2
exists dst dst2
sort_ro l
sort_ro l by w_* get #
rpush e "" 1 -1
sort e
rpush bad 1 inf -inf 0x10
sort bad
sort bad store q
rpush bad2 1 nan
sort bad2
rpush bad5 1 1x
sort bad5
sort bad5 by nosort
sort bad5 by w_*
sort bad5 alpha
rpush dup 1 1.0 01 1
rpush dup2 x1 x2 x3 x4
mset v_x1 1 v_x2 1 v_x3 0 v_x4 0
sort dup2 by v_*
sort dup2 by v_* desc
sort dup2 by v_* alpha
sort dup2 by v_* alpha desc
sort dup2 by v_* alpha limit 0 3
sort dup2 by v_* alpha desc limit 1 3
sort l asc desc
sort l desc asc
sort l get
sort l get *->f get w_* limit 0 2
sort l limit 0 1 limit 1 2
set t 1
sort l by *
rpush star "a*b" ""
sort star alpha get pre*post
sort l get **
sort l limit 9223372036854775807 9223372036854775807
sort l limit 1 9223372036854775807
sort l limit -9223372036854775808 2
sort l limit 0 9223372036854775808
sort z by nosort limit -1 2
sort z by nosort limit 1 9223372036854775807
sort z by nosort desc limit 9223372036854775807 1
sort z by nosort limit 0 0
sort z by nosort get # store dst3
lrange dst3 0 -1
sort_ro s
sort_ro nokey
sort l store s
type s
expire s 100
sort l store s
ttl s
sort_ro l store x
sort_ro l store
rpush dup2 x1 x1 ""
sort dup2 by v_* get v_* get # limit 1 4
mset dd_1 5 dd_2 5 dd_3 5 dd_10 5
sort l by dd_*
sort l by dd_* desc
sort l by dd_* alpha
sort l by dd_* limit 1 2
set w_2 " 7"
sort l by w_*
set w_2 "7 "
sort l by w_*
set w_2 ""
sort l by w_*
hset h_1 f ""
sort l by h_*->f get h_*->f
sort l by h_*->nothere get #
sort l get h_*->f->f
sort l get h*->f
sort l by nosort get w_* get # desc limit 1 2
sort l by nosort store dst desc limit 1 2
lrange dst 0 -1
sort l store dst get w_* get nothing get #
lrange dst 0 -1
sort l alpha by w_* store dst
lrange dst 0 -1
sadd sset a b c d "" 1 2
sort sset alpha
sort sset alpha desc limit 2 3
sort sset by nosort alpha store dst
lrange dst 0 -1
sort sset by nosort desc limit 1 3 store dst
lrange dst 0 -1
"""


def lines(script):
    return [shlex.split(line) for line in script.strip().splitlines()]


def known(conn, script):
    """The script, less the lines over sorted sets where there are none."""
    if conn.cmd("COMMAND", "INFO", "ZADD") != [None]:
        return script
    return [line for line in script if not line[0].startswith("z") and
            not (len(line) > 1 and line[1] in ("z", "zn")) and "dst3" not in line]


def test_replies_are_those_of_the_reference(empty_server, redis_server):
    for protocol in (2, 3):
        with empty_server.raw() as ours, redis_server.raw() as theirs:
            for conn in (ours, theirs):
                conn.cmd("FLUSHALL")
                conn.cmd("HELLO", protocol)
            for line in known(ours, lines(SCRIPT)):
                assert ours.cmd_bytes(*line) == theirs.cmd_bytes(*line), (protocol, line)


def test_command_info_names_the_same_keys(empty_server, redis_server):
    with empty_server.raw() as ours, redis_server.raw() as theirs:
        for words in (["sort", "k"], ["sort", "k", "GET", "STORE", "STORE", "d", "store", "e"],
                      ["sort", "k", "by", "w_*", "get", "#"], ["sort_ro", "k", "get", "x*"]):
            assert ours.cmd("COMMAND", "GETKEYS", *words) == theirs.cmd("COMMAND", "GETKEYS", *words)
        for name in ("sort", "sort_ro"):
            mine, other = [conn.cmd("COMMAND", "INFO", name)[0] for conn in (ours, theirs)]
            assert mine[:6] == other[:6]
            assert [spec[spec.index(b"flags"):] for spec in mine[8]] == \
                [spec[spec.index(b"flags"):] for spec in other[8]]


def random_sort(rng, key):
    line = ["sort", key]
    options = [["desc"], ["asc"], ["by", "w_*"], ["by", "h_*->f"], ["get", "#"], ["get", "d_*"],
               ["get", "h_*->g"], ["limit", str(rng.randrange(-2, 30)), str(rng.randrange(-2, 50))]]
    if key != "set":  # a set has no order to be compared
        options.append(["by", "nosort"])
    for option in rng.sample(options, rng.randrange(5)):
        line += option
    if rng.random() < 0.3:
        # Texts that are equal are in no certain order when sorted by something else.
        line += ["alpha"] if "by" not in line else []
    return line + (["store", "dst"] if rng.random() < 0.3 else [])


@pytest.mark.parametrize("limit", ["-2", "5"])
def test_random_sorts_agree_with_the_reference(empty_server, redis_server, limit):
    seed = random.randrange(2 ** 32)
    print("SEED=%d" % seed)
    rng = random.Random(seed)
    with empty_server.raw() as ours, redis_server.raw() as theirs:
        def both(*line):
            assert ours.cmd_bytes(*line) == theirs.cmd_bytes(*line), (seed, line)
        for conn in (ours, theirs):
            conn.cmd("FLUSHALL")
            conn.cmd("CONFIG", "SET", "list-max-listpack-size", limit)
        for number in range(150):
            both("SET", "w_%d" % number, rng.choice([rng.randrange(50), rng.random(), "-1e3"]))
            if number % 3:
                both("HSET", "h_%d" % number, "f", rng.randrange(1000), "g", "g%d" % number)
                both("SET", "d_%d" % number, "d%d" % rng.randrange(9))
        for size in (0, 1, 2, 13, 60, 300):
            both("DEL", "list", "set")
            for _ in range(size):
                number = rng.choice([rng.randrange(150), "%.2f" % rng.random(), -rng.randrange(99)])
                both("RPUSH", "list", number)
                both("SADD", "set", number)
            for _ in range(60):
                both(*random_sort(rng, rng.choice(["list", "set"])))
                both("LRANGE", "dst", 0, -1)
        for conn in (ours, theirs):
            conn.cmd("CONFIG", "SET", "list-max-listpack-size", -2)


@pytest.mark.kvik_only
def test_patterns_and_other_commands_from_several_connections(start_server):
    """SORT with patterns sees all keys of one moment, in a transaction as well."""
    server = start_server(threads=4)
    with server.raw() as conn:
        conn.cmd("RPUSH", "l", *range(40))
        conn.cmd("MSET", *[word for i in range(40) for word in ("w_%d" % i, 0)])
    stop = threading.Event()
    problems = []

    def write():
        with server.raw() as conn:
            value = 0
            while not stop.is_set():
                value += 1
                conn.cmd("MSET", *[word for i in range(40) for word in ("w_%d" % i, value)])

    def sort():
        with server.raw() as conn:
            for turn in range(150):
                if turn % 2:
                    conn.cmd("MULTI")
                line = ["SORT", "l", "BY", "w_*", "GET", "w_*"]
                got = conn.cmd(*line)
                got = conn.cmd("EXEC")[0] if turn % 2 else got
                if len(set(got)) != 1:
                    problems.append(got)

    writer = threading.Thread(target=write)
    readers = [threading.Thread(target=sort) for _ in range(3)]
    for thread in [writer] + readers:
        thread.start()
    for thread in readers:
        thread.join()
    stop.set()
    writer.join()
    assert not problems, problems[0]


@pytest.mark.kvik_only
def test_store_replaces_any_type_and_leaves_no_byte(raw):
    raw.cmd("SET", "x", "y")
    raw.cmd("DEL", "x")
    before = dataset(raw)
    raw.cmd("RPUSH", "l", *range(500))
    raw.cmd("SET", "dst", "text", "EX", 100)
    assert raw.cmd("SORT", "l", "DESC", "STORE", "dst") == 500
    assert raw.cmd("TTL", "dst") == -1
    assert raw.cmd("LRANGE", "dst", 0, 2) == [b"499", b"498", b"497"]
    assert raw.cmd("SORT", "l", "LIMIT", 0, 3, "STORE", "l") == 3
    assert raw.cmd("LRANGE", "l", 0, -1) == [b"0", b"1", b"2"]
    assert raw.cmd("SORT", "nothere", "STORE", "dst") == 0
    raw.cmd("DEL", "l")
    assert_dataset(raw, before)


@pytest.mark.kvik_only
def test_a_large_sort_with_a_small_limit(raw):
    numbers = list(range(20000))
    random.shuffle(numbers)
    raw.cmd("RPUSH", "l", *numbers)
    assert raw.cmd("SORT", "l", "LIMIT", 5, 3) == [b"5", b"6", b"7"]
    assert raw.cmd("SORT", "l", "DESC", "LIMIT", 0, 2) == [b"19999", b"19998"]
    assert raw.cmd("SORT", "l") == [b"%d" % i for i in range(20000)]


@pytest.mark.kvik_only
def test_a_number_out_of_range_fails_this_sort_and_no_other(raw):
    raw.cmd("RPUSH", "l", "1", "1e400", "1.5")
    assert raw.cmd("SORT", "l") == b"ERR One or more scores can't be converted into double"
    assert raw.cmd("SORT", "l", "ALPHA") == [b"1", b"1.5", b"1e400"]
    raw.cmd("LREM", "l", 1, "1e400")
    assert raw.cmd("SORT", "l", "DESC") == [b"1.5", b"1"]
