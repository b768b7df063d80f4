#!/usr/bin/python3
"""Sets, several at a time: intersections, unions, differences, stored and counted.

`SCRIPT` is sent line by line to the server under test and to the reference. The random tests have
Python's sets as their model; forms of the sets change with their sizes.
"""
import random
import shlex

import pytest

SCRIPT = r"""
set str x
sadd a 1 2 3 x
sadd b 2 3 4 y
sadd c 3 x y z
sinter a b
sinter a b c
sinter a nokey
sinter nokey
sinter a
sinter a a
sinter a str
sinter nokey str
sinter str
sunion a b c
sunion nokey
sunion a a nokey
sunion a str
sdiff a b
sdiff a b c
sdiff a a
sdiff a nokey
sdiff nokey a
sdiff a str
sdiff nokey str
sinterstore d a b
smembers d
sinterstore d a nokey
exists d
sinterstore d nokey
sinterstore d a str
sunionstore d a b
scard d
sunionstore a a b
scard a
sdiffstore a a b
smembers a
sdiffstore d nokey a
exists d
sunionstore str a b
type str
set str x
sinterstore str a nokey
exists str
sadd d 1
expire d 100
sunionstore d a
ttl d
sintercard 1 a
sintercard 2 a b
sintercard 2 b c limit 1
sintercard 2 b c limit 0
sintercard 2 b c limit 5 limit 1
sintercard 2 b nokey
sintercard 0 a
sintercard -1 a
sintercard abc a
sintercard 3 a b
sintercard 1 a b
sintercard 1 a limit
sintercard 1 a limit -1
sintercard 1 a limit abc
sintercard 1 a foo 1
set str x
sintercard 2 a str
sintercard 2 nokey str
sinter
sinterstore d
sintercard 1
sunion
sdiff
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


OPERATIONS = {"INTER": set.intersection, "UNION": set.union, "DIFF": set.difference}


def combine(operation, sets):
    result = set(sets[0])
    for other in sets[1:]:
        result = OPERATIONS[operation](result, other)
    return result


@pytest.mark.parametrize("set_count", [2, 4, 40])
def test_random_sets_combine_as_in_python(raw, reference, set_count):
    seed = random.randrange(1 << 32)
    rng = random.Random(seed)
    keys = ["k%d" % i for i in range(set_count)]
    for _ in range(8):
        raw.cmd("FLUSHALL")
        model = {}
        for key in keys:
            kind = rng.randrange(3)
            pool = [str(i) for i in range(700)] + ["t%d" % i for i in range(700)]
            pool = pool[:700] if kind == 0 else pool[700:] if kind == 1 else pool
            model[key] = set(rng.sample(pool, rng.choice([0, 1, 5, 90, 600])))
            if model[key]:
                raw.cmd("SADD", key, *model[key])
        for _ in range(12):
            chosen = [rng.choice(keys) for _ in range(rng.randrange(1, set_count + 1))]
            for operation in OPERATIONS:
                want = combine(operation, [model[key] for key in chosen])
                got = [m.decode() for m in raw.cmd("S" + operation, *chosen)]
                assert len(got) == len(want) and set(got) == want, (seed, operation, chosen)
                assert raw.cmd("S%sSTORE" % operation, "dst", *chosen) == len(want), seed
                assert {m.decode() for m in raw.cmd("SMEMBERS", "dst")} == want, seed
                if reference:
                    continue
                limit = rng.choice([0, 1, 7, 10000])
                assert raw.cmd("S%sCARD" % operation, len(chosen), *chosen, "LIMIT", limit) == (
                    min(limit, len(want)) if limit else len(want)), seed
            assert raw.cmd("SUNIONSTORE", chosen[0], *chosen) == len(
                combine("UNION", [model[key] for key in chosen])), seed
            model[chosen[0]] = combine("UNION", [model[key] for key in chosen])


@pytest.mark.kvik_only
def test_results_take_the_smallest_form(raw):
    raw.cmd("SADD", "i", *range(1000))
    raw.cmd("SADD", "j", *range(500, 900))
    raw.cmd("SADD", "t", *range(100), "x")
    assert raw.cmd("OBJECT", "ENCODING", "i") == b"hashtable"
    for words, form in ((["SINTERSTORE", "d", "i", "j"], b"intset"),
                        (["SUNIONSTORE", "d", "i", "t"], b"hashtable"),
                        (["SDIFFSTORE", "d", "t", "nokey"], b"listpack"),
                        (["SDIFFSTORE", "d", "i", "t"], b"hashtable"),
                        (["SINTERSTORE", "d", "i", "t"], b"intset")):
        raw.cmd(*words)
        assert raw.cmd("OBJECT", "ENCODING", "d") == form, words


@pytest.mark.kvik_only
def test_counts_of_newer_releases(raw):
    raw.cmd("SADD", "a", 1, 2, 3)
    raw.cmd("SADD", "b", 3, 4)
    assert raw.cmd("SUNIONCARD", 2, "a", "b") == 4
    assert raw.cmd("SUNIONCARD", 2, "a", "b", "LIMIT", 2) == 2
    assert raw.cmd("SUNIONCARD", 2, "a", "nokey") == 3
    assert raw.cmd("SUNIONCARD", 2, "a", "b", "APPROX") == 4
    assert raw.cmd("SUNIONCARD", 2, "a", "b", "LIMIT", 3, "approx") == 3
    assert raw.cmd("SUNIONCARD", 1, "nokey", "APPROX", "LIMIT", 0) == 0
    raw.cmd("SADD", "c", *range(20000))
    assert abs(raw.cmd("SUNIONCARD", 3, "a", "b", "c", "APPROX") - 20000) < 800
    assert raw.cmd("SDIFFCARD", 2, "a", "b") == 2
    assert raw.cmd("SDIFFCARD", 2, "a", "b", "LIMIT", 1) == 1
    assert raw.cmd("SDIFFCARD", 2, "nokey", "b") == 0
    assert raw.cmd("SDIFFCARD", 1, "a") == 3
    for name in ("SUNIONCARD", "SDIFFCARD"):
        assert raw.cmd(name, 0, "a") == b"ERR numkeys should be greater than 0"
        assert raw.cmd(name, 2, "a") == b"ERR Number of keys can't be greater than number of args"
        assert raw.cmd(name, 1, "a", "LIMIT", "-1") == b"ERR LIMIT can't be negative"
        assert raw.cmd(name, 1, "a", "FOO") == b"ERR syntax error"
    assert raw.cmd("SDIFFCARD", 1, "a", "APPROX") == b"ERR syntax error"


def test_a_result_may_replace_one_of_its_sources(raw):
    raw.cmd("SADD", "a", *["m%d" % i for i in range(2000)])
    raw.cmd("SADD", "b", *["m%d" % i for i in range(1000, 3000)])
    assert raw.cmd("SINTERSTORE", "a", "a", "b") == 1000
    assert raw.cmd("SDIFFSTORE", "b", "b", "a") == 1000
    assert raw.cmd("SUNIONSTORE", "a", "b", "a") == 2000
    assert raw.cmd("SDIFFSTORE", "a", "a", "a") == 0
    assert raw.cmd("EXISTS", "a") == 0
