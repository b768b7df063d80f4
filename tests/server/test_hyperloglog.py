#!/usr/bin/python3
"""HyperLogLogs: the same replies, estimates and bytes as the reference's."""
import random
import shlex

import pytest

SCRIPT = r"""
set str x
sadd set x
pfadd str a
pfadd set a
pfadd h
pfadd h
get h
pfadd h a b c
pfadd h a b
pfadd h d
get h
pfcount h
get h
pfcount h
pfcount nokey
pfcount nokey h
pfcount str
pfcount h set
pfcount h str
pfcount set
object encoding h
pfdebug encoding h
pfdebug decode h
pfdebug todense h
pfdebug todense h
pfdebug encoding h
pfdebug decode h
pfdebug foo h
pfdebug encoding nokey
pfdebug encoding str
pfdebug encoding set
pfdebug encoding
pfadd h2 x y z
pfmerge h3 h h2
get h3
pfmerge h4 h2
get h4
pfmerge h2
get h2
pfmerge empty
get empty
pfmerge dst nokey
pfmerge str h
pfmerge h5 str
exists h5
pfmerge h5 h2 set
pfcount h h2 h3
pfselftest
set bad HYLL
pfcount bad
set bad "HYLL            "
pfadd bad x
setrange empty 16 x
pfcount empty
pfadd empty a b c d e f g h
pfmerge h6 empty
pfdebug todense empty
expire h 100
pfadd h qqq
ttl h
pfdebug getreg h2
get h2
"""


def test_replies_are_those_of_the_reference(raw, redis_server):
    with redis_server.raw() as other:
        other.cmd("FLUSHALL")
        for line in SCRIPT.strip().splitlines():
            words = shlex.split(line)
            assert raw.cmd(*words) == other.cmd(*words), line


@pytest.mark.parametrize("sparse_max", [3000, 60, 0, 20000])
def test_bytes_and_estimates_are_those_of_the_reference(raw, redis_server, sparse_max):
    seed = random.randrange(1 << 32)
    rng = random.Random(seed)
    with redis_server.raw() as other:
        other.cmd("FLUSHALL")
        for conn in (raw, other):
            conn.cmd("CONFIG", "SET", "hll-sparse-max-bytes", sparse_max)

        def both(*words):
            mine, theirs = raw.cmd(*words), other.cmd(*words)
            assert mine == theirs, (seed, words[:3], mine, theirs)

        try:
            for _ in range(300):
                key = "h%d" % rng.randrange(4)
                kind = rng.randrange(8)
                if kind < 5:
                    count = rng.choice([1, 2, 10, 200, 2000 if rng.random() < 0.1 else 5])
                    both("PFADD", key, *[str(rng.randrange(100000)) for _ in range(count)])
                elif kind == 5:
                    both("PFCOUNT", *["h%d" % rng.randrange(5) for _ in range(rng.randrange(1, 4))])
                elif kind == 6:
                    both("PFMERGE", key, "h%d" % rng.randrange(5))
                elif rng.random() < 0.1:
                    both("DEL", key)
                both("GET", key)
        finally:
            for conn in (raw, other):
                conn.cmd("CONFIG", "SET", "hll-sparse-max-bytes", 3000)


def test_a_sparse_value_that_fills_up_is_the_reference_s(raw, redis_server):
    """So many registers that runs of equal levels meet and are joined, or just not."""
    seed = random.randrange(1 << 32)
    rng = random.Random(seed)
    with redis_server.raw() as other:
        other.cmd("FLUSHALL")
        for conn in (raw, other):
            conn.cmd("CONFIG", "SET", "hll-sparse-max-bytes", 20000)
        try:
            for _ in range(60):
                elements = [rng.randrange(1 << 40) for _ in range(500)]
                assert raw.cmd("PFADD", "h", *elements) == other.cmd("PFADD", "h", *elements), seed
                assert raw.cmd("GET", "h") == other.cmd("GET", "h"), seed
                assert raw.cmd("PFCOUNT", "h") == other.cmd("PFCOUNT", "h"), seed
        finally:
            for conn in (raw, other):
                conn.cmd("CONFIG", "SET", "hll-sparse-max-bytes", 3000)


def test_estimates_are_close(raw):
    for start in range(0, 100000, 1000):
        raw.cmd("PFADD", "h", *range(start, start + 1000))
    assert abs(raw.cmd("PFCOUNT", "h") - 100000) < 3000


def test_memory_comes_back(raw, server):
    def dataset():
        return int(raw.cmd("INFO", "memory").split(b"used_memory_dataset:")[1].split(b"\r\n")[0])

    before = dataset()
    raw.cmd("PFADD", "h", *range(3000))
    raw.cmd("PFMERGE", "i", "h")
    raw.cmd("DEL", "h", "i")
    assert dataset() == before


def test_foreign_bytes_do_no_harm(raw, redis_server):
    """Random bytes behind a right head: no crash, and the reference finds the same ones corrupt."""
    seed = random.randrange(1 << 32)
    rng = random.Random(seed)
    with redis_server.raw() as other:
        for _ in range(300):
            head = b"HYLL" + bytes([rng.choice([0, 1, 1, 1, 2])]) + b"\0" * 10 + b"\x80"
            body = bytes(rng.randrange(256) for _ in range(rng.choice([0, 1, 2, 10, 300])))
            for conn in (raw, other):
                conn.cmd("SET", "h", head + body)
            assert raw.cmd("PFCOUNT", "h") == other.cmd("PFCOUNT", "h"), (seed, head + body)
            raw.cmd("PFADD", "h", "a", "b", "c")
            raw.cmd("PFMERGE", "x", "h")
            raw.cmd("PFDEBUG", "DECODE", "h")
            raw.cmd("PFDEBUG", "TODENSE", "h")
