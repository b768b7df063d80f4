#!/usr/bin/python3
"""Sorted sets: replies, error texts, encodings, exact memory.

`SCRIPT` is sent line by line to the server under test and to the reference; every reply must be the
same bytes, but for doubles of which the reference prints 17 digits. Random series do the same with
packed and large sets beside a naive model. What the reference does not know is stated below.
"""
import random
import shlex
import time

import pytest

from process import TIME_SCALE
from raw import Error

WRONG_TYPE = b"WRONGTYPE Operation against a key holding the wrong kind of value"

SCRIPT = r"""
zadd z 1 a 2 b 3 c
zadd z 1 a 2 b 3 c
zadd z ch 5 a 2 b 9 d 9 d 10 d
zrange z 0 -1 withscores
zadd z gt ch 1 a 20 b
zadd z lt ch 1 a 200 b
zadd z xx incr 5 a
zadd z nx incr 5 a
zadd z gt incr -5 a
zincrby z 1.5 a
zincrby z -inf a
zincrby z inf a
zrange z 0 -1 withscores
zrank z b
zrevrank z b
zrank z nosuch
zmscore z a b nosuch
zscore z a
zcount z -inf 10
zcount z (3 +inf
zrange z (1 +inf byscore limit 1 1 withscores
zrange z +inf (1 byscore rev limit 0 2 withscores
zrange z 1 2 rev withscores
zrevrange z 0 1 withscores
zrangebyscore z -inf inf withscores limit 1 2
zrevrangebyscore z inf -inf limit 1 -1
zrem z a nosuch
zrem z a
zpopmin z
zpopmax z 5
exists z
zadd l 0 a 0 b 0 c 0 d 0 ee 0 123 0 45
zrangebylex l - +
zrangebylex l [b (d
zrevrangebylex l (d [b
zrange l [b + bylex limit 1 2
zrange l + [b bylex rev limit 1 2
zlexcount l - +
zlexcount l (a [d
zremrangebylex l (b [d
zrange l 0 -1
zremrangebyrank l 0 1
zrange l 0 -1
zremrangebyscore l -inf inf
exists l
zadd a 1 x 2 y 3 z
zadd b 10 y 20 z 30 w
sadd s y z q
zunion 2 a b withscores
zunion 3 a b s weights 2 3 4 withscores
zunion 3 a b s aggregate max withscores
zinter 3 a b s withscores
zinter 2 a b aggregate min withscores
zdiff 2 a s withscores
zdiff 1 s withscores
zunionstore a 2 a b
zrange a 0 -1 withscores
zinterstore d 2 a s
zrange d 0 -1 withscores
zdiffstore d 2 a a
exists d
zintercard 2 a b
zintercard 2 a b limit 1
zrangestore e a 0 1
zrange e 0 -1 withscores
zrangestore a a 1 2
zrange a 0 -1 withscores
zmpop 2 nokey a min count 10
zmpop 2 nokey a max
zadd r 1 a 2 b 3 c
zrandmember r 0
zscan r 0 match b
zadd f 0.5 a 1.25 b -3.75 c 1e30 d 1e17 e -0 f
zrange f 0 -1 withscores
object encoding f
config set zset-max-listpack-entries 3
zadd f 1 zz
object encoding f
zrange f 0 -1 withscores
zscore f f
zadd f 3 n1 4 n2 5 n3 5 n3 1 zz 7 zz
zrange f 0 -1 rev
zpopmin f 2
zpopmax f
zrange f 1 4 withscores
zremrangebyrank f 1 2
zrange f 0 -1 withscores
zrangestore g f 0 -1
object encoding g
zrangestore g f 0 1
object encoding g
zadd big 1 aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
object encoding big
config set zset-max-listpack-entries 128
set s v
zadd s 1 a
zadd z nx xx 1 a
zadd z nx xx 1
zadd z nx gt 1 a
zadd z gt lt 1 a
zadd z nx lt gt 1 a
zadd z incr 1 a 2 b
zadd z gt lt x a
zadd z x a
zadd z nan a
zadd s x a
zadd z 1
zadd nokey xx incr 1 a
zadd nokey xx 1 a
exists nokey
zadd i inf a
zincrby i -inf a
zadd i incr -inf a
zincrby i x a
zincrby i 1e308 b
zincrby i 1e308 b
zincrby i 1e400 b
zscore i b
zscore s a
zmscore s a
zmscore nokey a b
zrank s a
zrank nokey a
zrange s 0 -1
zrange s x y
zrange nokey x y
zrange nokey 0 -1
zrange i 0 -1 limit 0 1
zrange i 0 -1 limit 0 -1
zrange i 0 -1 limit x 1
zrange i 0 -1 limit 0
zrange i a b bylex withscores
zrange i a b bylex
zrange i a b byscore
zrange i a b
zrange i 0 1 byscore bylex
zrange i 0 1 rev rev
zrange i 0 1 byscore byscore
zrange i - + bylex rev
zrevrange i 0 -1 rev
zrangebyscore i 0 10 rev
zrangebyscore i -inf +inf limit -1 5
zrangebyscore i -inf +inf limit 0 -5
zrangebyscore i -inf +inf limit 1 9223372036854775807
zrangebyscore i -inf +inf limit 9223372036854775807 9223372036854775807
zrangebyscore i -inf +inf limit 9999999999999999999 1
zrangebylex i - + withscores
zrangebylex i - + foo
zrange i -9223372036854775808 9223372036854775807
zrange i 9223372036854775807 -9223372036854775808
zcount i "" ""
zcount i ( (
zcount i " 1" +inf
zcount i "1 " +inf
zcount i 1e99999 inf
zcount i nan 1
zcount i (inf inf
zcount i (-inf (+inf
zcount nokey x y
zcount s 0 1
zlexcount i a b
zlexcount i -- +
zlexcount i "" +
zlexcount s - +
zlexcount i + -
zremrangebyrank i x y
zremrangebylex i a b
zremrangebyscore i a b
zremrangebyrank s 0 1
zremrangebyrank nokey 0 1
zremrangebyrank i 9 3
zpopmin i -1
zpopmin i x
zpopmin i 0
zpopmin i 1 2
zpopmin nokey
zpopmin nokey x
zpopmin nokey 5
zpopmin s 0
zpopmin s x
zmpop 0 i min
zmpop x i min
zmpop 1 i min count 0
zmpop 1 i min count x
zmpop 1 i min count 1 count 1
zmpop 1 i foo
zmpop 5 i min
zmpop 1 nokey max
zmpop 2 nokey s max
zmpop 99999999999 i min
zrandmember i x
zrandmember i 1 foo
zrandmember i -9223372036854775808
zrandmember i 9223372036854775807 withscores
zrandmember i 1 withscores 3
zrandmember nokey
zrandmember nokey 5
zrandmember nokey -5 withscores
zrandmember s 1
zunion 0 i
zunion x i
zunion 3 i
zunionstore d 0 i
zunion 1 i weights x
zunion 1 i weights
zunion 1 i weights nan
zunion 1 i weights 1 weights 2 withscores
zunion 1 i aggregate foo
zunion 1 i aggregate
zunion 1 s foo
zunion 1 i withscores withscores
zunionstore d 1 i withscores
zinterstore d 1 i foo
zintercard 1 i limit -1
zintercard 1 i limit x
zintercard 0 i
zintercard 1 i foo
zintercard 1 i limit
zdiff 1 i weights 1
zdiff 1 i aggregate sum
zdiffstore d 2 i
zadd n inf a -inf b 0 c
zadd m -inf a 5 c
zunion 2 n m withscores
zunion 2 n m weights 0 1 withscores
zinter 2 n m aggregate min withscores
zinter 2 n n weights 2 3 withscores
zunionstore n 2 n nokey
zinterstore n 2 n nokey
exists n
zunionstore d 1 nokey
expire m 100
zadd m 1 x
ttl m
zunionstore m 1 m
ttl m
zrangestore s m 0 -1
type s
set s v
zrangestore m s 0 -1
zrangestore m nokey 0 -1
exists m
zrangestore d z 0 -1 withscores
zrangestore d z 0 -1 limit 1 1
zscan s 0
zscan z x
zscan nokey 0 count 0
zadd z 1 a
zscan z 0 count 0
zscan z 0 match
zscan z 0 match a* count 5
zadd e 1 ""
zrange e 0 -1
zrangebylex e [ [
zrank e ""
zrem e ""
exists e
rename z zz
copy zz z
zrange z 0 -1 withscores
object encoding nokey
get z
type z
"""


def lines(script):
    return [shlex.split(line) for line in script.strip().splitlines()]


def same(ours, theirs):
    """Equal replies, where texts of one double are."""
    if isinstance(ours, list) and isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    if isinstance(ours, bytes) and isinstance(theirs, bytes) and ours != theirs:
        return float(ours) == float(theirs)
    return ours == theirs and type(ours) is type(theirs)


@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("entries", [0, 3, 128])
def test_replies_are_those_of_the_reference(empty_server, redis_server, protocol, entries):
    with empty_server.raw() as ours, redis_server.raw() as theirs:
        for conn in (ours, theirs):
            conn.cmd("FLUSHALL")
            conn.cmd("CONFIG", "SET", "zset-max-listpack-entries", entries)
            conn.cmd("HELLO", protocol)
        for line in lines(SCRIPT):
            if line[0] == "config" and entries != 128:
                continue
            replies = [conn.cmd(*line) for conn in (ours, theirs)]
            assert same(*replies), (protocol, line, replies)
        for conn in (ours, theirs):
            conn.cmd("CONFIG", "SET", "zset-max-listpack-entries", 128)


@pytest.fixture(params=["packed", "large"])
def form(raw, request):
    """Makes all sorted sets of a test packed, or large."""
    raw.cmd("CONFIG", "SET", "zset-max-listpack-entries", 5000 if request.param == "packed" else 0)
    yield request.param
    raw.cmd("CONFIG", "SET", "zset-max-listpack-entries", 128)


def encoding(conn, key):
    return conn.cmd("OBJECT", "ENCODING", key)


def dataset(conn):
    info = conn.cmd("INFO", "memory")
    return int(info.split(b"used_memory_dataset:")[1].split(b"\r\n")[0])


def score_text(score):
    return b"%d" % score if score == int(score) else repr(score).encode()


# --- what is newer than the reference ---

@pytest.mark.kvik_only
def test_rank_with_score(raw, form):
    raw.cmd("ZADD", "z", 1, "a", "2.5", "b", 3, "c")
    assert raw.cmd("ZRANK", "z", "b", "WITHSCORE") == [1, b"2.5"]
    assert raw.cmd("ZREVRANK", "z", "c", "withscore") == [0, b"3"]
    assert raw.cmd_bytes("ZRANK", "z", "none", "WITHSCORE") == b"*-1\r\n"
    assert raw.cmd_bytes("ZRANK", "nokey", "none", "WITHSCORE") == b"*-1\r\n"
    assert raw.cmd("ZRANK", "z", "a", "x") == b"ERR syntax error"
    assert raw.cmd("ZRANK", "z", "a", "WITHSCORE", "x") == \
        b"ERR wrong number of arguments for 'zrank' command"
    raw.cmd("HELLO", 3)
    assert raw.cmd_bytes("ZRANK", "z", "b", "WITHSCORE") == b"*2\r\n:1\r\n,2.5\r\n"
    assert raw.cmd_bytes("ZRANK", "z", "none", "WITHSCORE") == b"_\r\n"


@pytest.mark.kvik_only
def test_aggregate_count(raw, form):
    raw.cmd("ZADD", "a", 1, "foo", 1, "bar")
    raw.cmd("ZADD", "b", 2, "foo", 2, "bar")
    raw.cmd("SADD", "c", "foo")
    assert raw.cmd("ZUNION", 3, "a", "b", "c", "AGGREGATE", "COUNT", "WITHSCORES") == \
        [b"bar", b"2", b"foo", b"3"]
    assert raw.cmd("ZINTER", 3, "a", "b", "c", "WEIGHTS", 2, 3, "0.5", "AGGREGATE", "count",
                   "WITHSCORES") == [b"foo", b"5.5"]
    assert raw.cmd("ZUNIONSTORE", "d", 2, "a", "b", "WEIGHTS", "inf", "-inf", "AGGREGATE",
                   "COUNT") == 2
    assert raw.cmd("ZRANGE", "d", 0, -1, "WITHSCORES") == [b"bar", b"0", b"foo", b"0"]


@pytest.mark.kvik_only
def test_doubles_are_as_short_as_can_be(raw, form):
    texts = [b"-inf", b"-1e+30", b"-3.75", b"-0.1", b"0.1", b"0.30000000000000004", b"1e-7",
             b"3.141592653589793", b"123456.789", b"1e+17", b"1.7976931348623157e+308", b"inf",
             b"4503599627370495.5", b"9007199254740992", b"5e-324", b"-1e-300"]
    for i, text in enumerate(texts):
        assert raw.cmd("ZADD", "z", text, b"m%d" % i) == 1
        assert raw.cmd("ZSCORE", "z", b"m%d" % i) == text
    raw.cmd("HELLO", 3)
    for i, text in enumerate(texts):
        assert raw.cmd_bytes("ZSCORE", "z", b"m%d" % i) == b",%s\r\n" % text


# --- both forms ---

def test_encodings(raw):
    raw.cmd("ZADD", "z", *[word for i in range(128) for word in (i, "m%d" % i)])
    assert encoding(raw, "z") == b"listpack"
    raw.cmd("ZADD", "z", 5, "m7")
    assert encoding(raw, "z") == b"listpack"
    raw.cmd("ZADD", "z", 5, "new")
    assert encoding(raw, "z") == b"skiplist"
    raw.cmd("ZREMRANGEBYRANK", "z", 0, 100)
    assert encoding(raw, "z") == b"skiplist"
    raw.cmd("ZADD", "y", 1, "x" * 64)
    assert encoding(raw, "y") == b"listpack"
    raw.cmd("ZADD", "y", 1, "x" * 65)
    assert encoding(raw, "y") == b"skiplist"
    raw.cmd("ZRANGESTORE", "x", "z", 0, 5)
    assert encoding(raw, "x") == b"listpack"


@pytest.mark.kvik_only
def test_both_forms_have_one_digest(raw):
    words = [word for i in range(60) for word in ("%.2f" % (i * 1.37), "member:%d" % i)]
    words += ["inf", "a", "-inf", "b", "1e17", "77", "1e30", "x" * 40]
    raw.cmd("ZADD", "packed", *words)
    raw.cmd("CONFIG", "SET", "zset-max-listpack-entries", 0)
    raw.cmd("ZADD", "large", *words)
    raw.cmd("CONFIG", "SET", "zset-max-listpack-entries", 128)
    assert [encoding(raw, key) for key in ("packed", "large")] == [b"listpack", b"skiplist"]
    first, second = raw.cmd("DEBUG", "DIGEST-VALUE", "packed", "large")
    assert first == second
    raw.cmd("ZADD", "large", "0.001", "member:3")
    assert raw.cmd("DEBUG", "DIGEST-VALUE", "large") != [first]


class Model:
    """Scores by name."""

    def __init__(self):
        self.scores = {}

    def ranked(self):
        return sorted(self.scores, key=lambda name: (self.scores[name], name))

    def add(self, name, score):
        new = name not in self.scores
        self.scores[name] = score
        return new


def check_reads(raw, model, rng, seed):
    ranked = model.ranked()
    flat = [word for name in ranked for word in (name, score_text(model.scores[name]))]
    assert raw.cmd("ZRANGE", "z", 0, -1, "WITHSCORES") == flat, seed
    assert raw.cmd("ZREVRANGE", "z", 0, -1) == ranked[::-1], seed
    assert raw.cmd("ZCARD", "z") == len(ranked)
    for name in rng.sample(ranked, min(5, len(ranked))):
        rank = ranked.index(name)
        assert raw.cmd("ZRANK", "z", name) == rank, seed
        assert raw.cmd("ZREVRANK", "z", name) == len(ranked) - 1 - rank
    low, high = sorted(rng.choice([-3, 0, 1.5, 2, 7, 20]) for _ in range(2))
    within = [name for name in ranked if low < model.scores[name] <= high]
    assert raw.cmd("ZRANGEBYSCORE", "z", b"(%g" % low, high) == within, seed
    assert raw.cmd("ZCOUNT", "z", b"(%g" % low, high) == len(within)
    assert raw.cmd("ZREVRANGEBYSCORE", "z", high, b"(%g" % low, "LIMIT", 1, 3) == \
        within[::-1][1:4], seed


def test_a_random_series_beside_a_model(raw, form):
    raw.cmd("FLUSHALL")
    before = dataset(raw) if raw.cmd("INFO", "server").find(b"kvik") >= 0 else None
    seed = random.randrange(1 << 32)
    rng = random.Random(seed)
    model = Model()
    names = [b"%d" % i for i in range(-20, 60)] + [b"name:%d" % i for i in range(60)]
    for step in range(700):
        some = [(rng.choice(names), rng.choice([-3, 0, 1, 1.5, 2, 2.25, 7, 1e10]))
                for _ in range(rng.choice([1, 1, 2, 8]))]
        words = [word for name, score in some for word in (score, name)]
        kind = rng.randrange(8)
        if kind < 4:
            assert raw.cmd("ZADD", "z", *words) == sum(model.add(*pair) for pair in some), seed
        elif kind == 4:
            gone = {name for name, _ in some if name in model.scores}
            assert raw.cmd("ZREM", "z", *[name for name, _ in some]) == len(gone), seed
            for name in gone:
                del model.scores[name]
        elif kind == 5:
            name, score = some[0]
            model.add(name, model.scores.get(name, 0) + score)
            assert float(raw.cmd("ZINCRBY", "z", score, name)) == model.scores[name], seed
        elif kind == 6 and model.scores:
            name = model.ranked()[-1]
            assert raw.cmd("ZPOPMAX", "z") == [name, score_text(model.scores.pop(name))], seed
        elif kind == 7:
            start = rng.randrange(20)
            for name in model.ranked()[start:start + 3]:
                del model.scores[name]
            raw.cmd("ZREMRANGEBYRANK", "z", start, start + 2)
        if step % 10 == 0:
            check_reads(raw, model, rng, seed)
    raw.cmd("DEL", "z")
    if before is not None:
        # What had more than 64 members is freed by another thread.
        deadline = time.monotonic() + 5 * TIME_SCALE
        while dataset(raw) != before and time.monotonic() < deadline:
            time.sleep(0.01)
        assert dataset(raw) == before


def test_ranges_of_names(raw, form):
    rng = random.Random(3)
    names = sorted({bytes(rng.choice(b"ab1\xff") for _ in range(rng.randrange(5)))
                    for _ in range(150)})
    raw.cmd("ZADD", "z", *[word for name in names for word in (0, name)])

    def within(low, high):
        return [name for name in names
                if (low == b"-" or (name > low[1:] if low[:1] == b"(" else name >= low[1:]))
                and (high == b"+" or (name < high[1:] if high[:1] == b"(" else name <= high[1:]))]

    for _ in range(200):
        low, high = (rng.choice([edge, b"[" + rng.choice(names), b"(" + rng.choice(names) + b"a"])
                     for edge in (b"-", b"+"))
        wanted = within(low, high)
        assert raw.cmd("ZRANGEBYLEX", "z", low, high) == wanted
        assert raw.cmd("ZLEXCOUNT", "z", low, high) == len(wanted)
        assert raw.cmd("ZREVRANGEBYLEX", "z", high, low, "LIMIT", 1, 2) == wanted[::-1][1:3]
        assert raw.cmd("ZRANGE", "z", high, low, "BYLEX", "REV") == wanted[::-1]
    wanted = within(b"[a", b"(b")
    assert raw.cmd("ZREMRANGEBYLEX", "z", "[a", "(b") == len(wanted)
    assert raw.cmd("ZCARD", "z") == len(names) - len(wanted)


def test_random_members(raw, form):
    names = [b"%d" % i for i in range(40)]
    raw.cmd("ZADD", "z", *[word for name in names for word in (name, name)])
    for count in (1, 5, 39):
        some = raw.cmd("ZRANDMEMBER", "z", count)
        assert len(set(some)) == count and set(some) <= set(names)
    assert sorted(raw.cmd("ZRANDMEMBER", "z", 1000)) == sorted(names)
    many = raw.cmd("ZRANDMEMBER", "z", -3000, "WITHSCORES")
    assert len(many) == 6000 and many[::2] == many[1::2] and set(many) == set(names)
    first = {tuple(raw.cmd("ZRANDMEMBER", "z", 2)) for _ in range(200)}
    assert len(first) > 100
    assert raw.cmd("ZRANDMEMBER", "z") in names


def test_a_scan_meets_every_member(raw, form):
    names = [b"m%d" % i for i in range(1000)]
    raw.cmd("ZADD", "z", *[word for i, name in enumerate(names) for word in (i / 2, name)])
    found, cursor = {}, b"0"
    while True:
        cursor, part = raw.cmd("ZSCAN", "z", cursor, "COUNT", 50)
        found.update(zip(part[::2], part[1::2]))
        raw.cmd("ZADD", "z", 5, b"extra%d" % len(found))
        if cursor == b"0":
            break
    assert set(names) <= set(found)
    assert found[b"m3"] == b"1.5" and found[b"m4"] == b"2"
    part = raw.cmd("ZSCAN", "z", 0, "MATCH", "m99?", "COUNT", 100000)[1]
    assert sorted(part[::2]) == sorted(name for name in names if name[:3] == b"m99"
                                       and len(name) == 4)


def test_a_million_is_ranked(raw):
    """A large set built, asked and taken apart in bulk."""
    count = 20000
    for start in range(0, count, 1000):
        raw.cmd("ZADD", "z", *[word for i in range(start, start + 1000)
                               for word in ((i * 7919) % count, b"m%05d" % i)])
    assert raw.cmd("ZCARD", "z") == count
    for i in (0, 1, 777, 19999):
        assert raw.cmd("ZRANK", "z", b"m%05d" % i) == (i * 7919) % count
    assert raw.cmd("ZCOUNT", "z", 100, "(200") == 100
    assert raw.cmd("ZREMRANGEBYSCORE", "z", 5000, 14999) == 10000
    assert len(raw.cmd("ZRANGE", "z", 0, -1)) == 10000
    assert raw.cmd("ZRANGESTORE", "y", "z", 2, 5001) == 5000
    assert raw.cmd("ZINTERCARD", 2, "y", "z", "LIMIT", 100) == 100
    assert raw.cmd("ZDIFFSTORE", "y", 2, "z", "y") == 5000
    assert len(raw.cmd("ZPOPMIN", "y", 6000)) == 10000
    assert raw.cmd("EXISTS", "y") == 0


def test_destinations_among_the_sources(raw, form):
    def fill():
        raw.cmd("ZADD", "a", 1, "x", 2, "77")
        raw.cmd("ZADD", "b", 10, "77", 20, "z")

    fill()
    assert raw.cmd("ZUNIONSTORE", "a", 2, "a", "b") == 3
    assert raw.cmd("ZRANGE", "a", 0, -1, "WITHSCORES") == [b"x", b"1", b"77", b"12", b"z", b"20"]
    fill()
    assert raw.cmd("ZINTERSTORE", "b", 2, "b", "b") == 2
    assert raw.cmd("ZDIFFSTORE", "a", 2, "b", "a") == 0
    assert raw.cmd("EXISTS", "a") == 0
    assert raw.cmd("ZRANGESTORE", "b", "b", 0, 0) == 1
    assert raw.cmd("ZRANGE", "b", 0, -1) == [b"77"]


def test_wrong_types(raw):
    raw.cmd("SET", "s", "x")
    for words in (("ZADD", "s", 1, "a"), ("ZCARD", "s"), ("ZUNION", 1, "s"), ("ZRANGE", "s", 0, 1),
                  ("ZRANGESTORE", "d", "s", 0, 1), ("ZPOPMIN", "s"), ("ZSCAN", "s", 0),
                  ("ZINTERCARD", 1, "s"), ("ZMPOP", 1, "s", "MIN"), ("ZRANDMEMBER", "s")):
        assert raw.cmd(*words) == WRONG_TYPE, words
    raw.cmd("ZADD", "z", 1, "a")
    for words in (("GET", "z"), ("LPUSH", "z", 1), ("SADD", "z", 1), ("HGET", "z", "f")):
        assert raw.cmd(*words) == WRONG_TYPE, words
    assert isinstance(raw.cmd("INCR", "z"), Error)
