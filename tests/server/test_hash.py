#!/usr/bin/python3
"""Hash commands without due times: replies, error texts, encodings, memory.

`SCRIPT` is sent line by line to the server under test and to the reference, packed and large; every
reply must be the same bytes. Due times of fields are in test_hash_expire.py.
"""
import random
import shlex
import time

import pytest

WRONG_TYPE = b"WRONGTYPE Operation against a key holding the wrong kind of value"
OUT_OF_MEMORY = b"OOM the server is out of memory for this command"

SCRIPT = r"""
set s v
hset h f
hset h f 1 g
hmset h f 1 g
hset s f 1
hset s f
hset h f 1
hset h f 2 g 3 f 4
hgetall h
hset h f 1 f 22 f 333
hget h f
hget h missing
hget none f
hget s f
hmset h a 1 b 2
hmset s a 1
hmget h a b c a
hmget none a b
hmget s a
hsetnx h a 9
hsetnx h new 9
hsetnx s a 1
hgetall h
hlen h
hlen none
hlen s
hstrlen h f
hstrlen h none
hstrlen none f
hstrlen s f
hset h n -12345
hstrlen h n
hexists h n
hexists h none
hexists none f
hexists s f
hkeys none
hvals none
hgetall none
hkeys s
hvals s
hgetall s
hdel h n n
hdel h none
hdel none f
hdel s f
hdel h f g a b new
exists h
hset h "" ""
hget h ""
hgetall h
hset h 007 1 7 2 -0 3 +1 4 " 1" 5
hmget h 007 7 -0 0 +1 1 " 1"
hset h 9223372036854775807 a -9223372036854775808 b 9223372036854775808 c
hmget h 9223372036854775807 -9223372036854775808 9223372036854775808
del h
hincrby h c 5
hincrby h c -7
hincrby h c x
hincrby h c 1.5
hincrby s c 1
hincrby s c x
hset h t text e "" sp " 1"
hincrby h t 1
hincrby h e 1
hincrby h sp 1
hset h big 9223372036854775807 small -9223372036854775808
hincrby h big 1
hincrby h big 0
hincrby h small -1
hincrby h small 9223372036854775807
hincrby h big -9223372036854775808
hincrbyfloat h d 1.5
hincrbyfloat h d 1.5
hincrbyfloat h d x
hincrbyfloat h d inf
hincrbyfloat h d -inf
hincrbyfloat h d nan
hincrbyfloat h t 1
hincrbyfloat h e 1
hincrbyfloat h sp 1
hincrbyfloat s d 1
hincrbyfloat s d x
hincrbyfloat h d 5.0e3
hincrbyfloat h huge 1e4000
hset h inf inf
hincrbyfloat h inf 1
hincrbyfloat h c 0.1
hincrbyfloat h d -3002.999
hget h d
hrandfield none
hrandfield none 5
hrandfield none -5
hrandfield none 5 withvalues
hrandfield s
hrandfield s 1
hrandfield h x
hrandfield h 1 values
hrandfield h 1 withvalues 2
hrandfield h 9223372036854775808
hrandfield h -9223372036854775808
hrandfield h -9223372036854775807 withvalues
hrandfield h 4611686018427387904 withvalues
hrandfield h 0
hrandfield h 0 withvalues
hrandfield none 9223372036854775807
hscan none 0
hscan none x
hscan none 0 badword
hscan s 0
hscan h x
hscan h 0 badword
hscan h 0 match
hscan h 0 count
hscan h 0 count x
hscan h 0 count 0
hscan h 0 count -1
hscan h 0 type hash
hscan h 0 match nothing*
type h
object encoding h
del h
hset h f 1
hget h
hget h f g
hgetall
hlen h x
hexists h
hsetnx h f
hsetnx h f 1 g
hincrby h f
hincrbyfloat h f
hdel h
hmget h
hstrlen h
"""


def lines(script):
    return [shlex.split(line) for line in script.strip().splitlines()]


def flat(value):
    return [item for pair in value.items() for item in pair] if isinstance(value, dict) else value


def in_any_order(line, value):
    """A reply whose order is nobody's promise, sorted; others as they are."""
    value = flat(value)
    name = line[0].lower()
    if name == "hgetall" and isinstance(value, list):
        return sorted(zip(value[0::2], value[1::2]))
    if name in ("hkeys", "hvals") and isinstance(value, list):
        return sorted(value)
    return value


def limits(conn, entries, longest=64):
    conn.cmd("CONFIG", "SET", "hash-max-listpack-entries", entries)
    conn.cmd("CONFIG", "SET", "hash-max-listpack-value", longest)


@pytest.fixture(params=[512, 0], ids=["packed", "large"])
def form(request, raw):
    """The number of fields up to which hashes are packed, set on `raw`'s server."""
    limits(raw, request.param)
    yield request.param
    limits(raw, 512)


@pytest.mark.parametrize("resp", [2, 3])
def test_replies_are_those_of_the_reference(raw, form, resp, redis_server):
    with redis_server.raw() as other:
        other.cmd("FLUSHALL")
        limits(other, form)
        for conn in (raw, other):
            conn.cmd("HELLO", resp)
        for line in lines(SCRIPT):
            ours, theirs = raw.cmd(*line), other.cmd(*line)
            assert in_any_order(line, ours) == in_any_order(line, theirs), line
        limits(other, 512)


def test_the_form_follows_the_limits(raw):
    def encoding():
        return raw.cmd("OBJECT", "ENCODING", "h")

    limits(raw, 4, 8)
    try:
        raw.cmd("HSET", "h", *range(8))
        assert encoding() == b"listpack"
        raw.cmd("HSET", "h", 0, "12345678")
        assert encoding() == b"listpack"
        raw.cmd("HSET", "h", "fifth", 1)
        assert encoding() == b"hashtable"
        raw.cmd("HDEL", "h", "fifth", 0, 2)
        assert encoding() == b"hashtable"
        for long in (["123456789", 1], ["f", "123456789"]):
            raw.cmd("DEL", "h")
            raw.cmd("HSET", "h", "f", 1)
            raw.cmd("HSET", "h", *long)
            assert encoding() == b"hashtable"
            raw.cmd("DEL", "h")
            raw.cmd("HSET", "h", *long)
            assert encoding() == b"hashtable"
        raw.cmd("DEL", "h")
        raw.cmd("HSET", "h", *([1, 2] * 9))
        assert encoding() == b"listpack"
        raw.cmd("HINCRBY", "h", 1, 1234567890)
        assert encoding() == b"hashtable"
        raw.cmd("DEL", "h")
        raw.cmd("HINCRBYFLOAT", "h", "f", "0.123456789")
        assert encoding() == b"hashtable"
    finally:
        limits(raw, 512)


class Model:
    """Random commands on a hash and on a dictionary."""

    def __init__(self, rng):
        self.rng = rng
        self.fields = {}

    def name(self):
        return self.rng.choice([b"%d", b"f%d", b"field-%d" + b"x" * 30]) % self.rng.randrange(25)

    def value(self):
        return self.rng.choice([b"", b"1", b"127", b"128", b"-4097", b"70000", b"-9223372036854775808",
                                b"text", b"x" * self.rng.randrange(64)])

    def step(self, conn, key):
        kind = self.rng.randrange(6)
        names = [self.name() for _ in range(self.rng.choice([1, 1, 2, 3, 10, 40]))]
        if kind < 3:
            pairs = [(name, self.value()) for name in names]
            new = len({name for name in names if name not in self.fields})
            self.fields.update(pairs)
            assert conn.cmd("HSET", key, *[word for pair in pairs for word in pair]) == new
        elif kind == 3:
            assert conn.cmd("HMGET", key, *names) == [self.fields.get(name) for name in names]
        elif kind == 4:
            gone = {name for name in names if name in self.fields}
            assert conn.cmd("HDEL", key, *names) == len(gone)
            for name in gone:
                del self.fields[name]
        else:
            assert conn.cmd("HGETALL", key) == flat(self.fields) if not self.fields else True
            got = conn.cmd("HGETALL", key)
            assert dict(zip(got[0::2], got[1::2])) == self.fields


def test_random_changes_agree_with_a_model(raw, form):
    seed = random.randrange(1 << 30)
    print("seed", seed)
    rng = random.Random(seed)
    before = dataset(raw)
    models = {b"h%d" % i: Model(rng) for i in range(4)}
    for _ in range(1500):
        key = rng.choice(list(models))
        models[key].step(raw, key)
        if rng.random() < 0.02:
            assert raw.cmd("DEL", key) == bool(models[key].fields)
            models[key].fields = {}
    for key, model in models.items():
        assert raw.cmd("HLEN", key) == len(model.fields)
        raw.cmd("DEL", key)
    # What had many fields is freed by another thread.
    deadline = time.monotonic() + 5
    while dataset(raw) != before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert dataset(raw) == before


def dataset(conn):
    for line in conn.cmd("INFO", "memory").split(b"\r\n"):
        if line.startswith(b"used_memory_dataset:"):
            return int(line.split(b":")[1])
    raise AssertionError("no used_memory_dataset")


@pytest.mark.kvik_only
def test_content_counts_and_not_the_form(raw):
    pairs = [word for i in range(60) for word in (b"f%d" % i, b"%d" % (i * 1000))]
    raw.cmd("HSET", "packed", *pairs)
    limits(raw, 10)
    raw.cmd("HSET", "large", *reversed([word for pair in zip(pairs[1::2], pairs[0::2])
                                        for word in pair]))
    limits(raw, 512)
    assert raw.cmd("OBJECT", "ENCODING", "packed") == b"listpack"
    assert raw.cmd("OBJECT", "ENCODING", "large") == b"hashtable"
    digests = raw.cmd("DEBUG", "DIGEST-VALUE", "packed", "large")
    assert digests[0] == digests[1]


def test_large_values_come_back_as_they_were(raw, form):
    values = [bytes([i]) * size for i, size in enumerate([63, 64, 65, 16383, 16384, 100000, 3000000])]
    for i, value in enumerate(values):
        assert raw.cmd("HSET", "h", i, value, b"small", b"1") in (1, 2)
        assert raw.cmd("HGET", "h", i) == value
    assert raw.cmd("HMGET", "h", *range(len(values))) == values
    assert raw.cmd("HSTRLEN", "h", 6) == 3000000


# --- random fields ---

def fill(conn, count):
    pairs = {b"f%d" % i: b"v%d" % i for i in range(count)}
    conn.cmd("HSET", "h", *[word for pair in pairs.items() for word in pair])
    return pairs


@pytest.mark.parametrize("wanted", [1, 3, 30, 60, 99, 100, 1000])
def test_random_fields_are_different(raw, form, wanted):
    pairs = fill(raw, 100)
    got = raw.cmd("HRANDFIELD", "h", wanted, "WITHVALUES")
    assert len(got) == 2 * min(wanted, 100)
    assert len(set(got[0::2])) == len(got[0::2])
    assert all(pairs[name] == value for name, value in zip(got[0::2], got[1::2]))
    names = raw.cmd("HRANDFIELD", "h", wanted)
    assert len(set(names)) == min(wanted, 100) and set(names) <= set(pairs)


def test_random_fields_may_repeat(raw, form):
    pairs = fill(raw, 10)
    names = raw.cmd("HRANDFIELD", "h", -500)
    assert len(names) == 500 and set(names) == set(pairs)
    got = raw.cmd("HRANDFIELD", "h", -500, "withvalues")
    assert len(got) == 1000
    assert all(pairs[name] == value for name, value in zip(got[0::2], got[1::2]))
    raw.cmd("HELLO", 3)
    assert all(pairs[name] == value for name, value in raw.cmd("HRANDFIELD", "h", -20, "WITHVALUES"))
    assert all(pairs[name] == value for name, value in raw.cmd("HRANDFIELD", "h", 5, "WITHVALUES"))


def test_each_field_is_drawn_about_as_often(raw, form):
    fill(raw, 20)
    for wanted in (1, 4, 15):
        counts = dict.fromkeys((b"f%d" % i for i in range(20)), 0)
        for _ in range(4000 // wanted):
            for name in raw.cmd("HRANDFIELD", "h", wanted):
                counts[name] += 1
        assert min(counts.values()) > 100 and max(counts.values()) < 320, counts


@pytest.mark.kvik_only
def test_a_reply_without_end_is_refused(start_server):
    with start_server("--proto-max-bulk-len", "1mb").raw() as conn:
        conn.cmd("HSET", "h", "f", "v")
        assert conn.cmd("HRANDFIELD", "h", -(1 << 62)) == OUT_OF_MEMORY
        assert len(conn.cmd("HRANDFIELD", "h", -1000)) == 1000


# --- scanning ---

def scan(conn, *options):
    cursor, found = b"0", []
    for _ in range(100000):
        cursor, items = conn.cmd("HSCAN", "h", cursor, *options)
        found += items
        if cursor == b"0":
            return found
    raise AssertionError("the scan does not end")


def test_a_scan_finds_every_field(raw, form):
    pairs = fill(raw, 500)
    got = scan(raw)
    assert dict(zip(got[0::2], got[1::2])) == pairs
    got = scan(raw, "MATCH", "f1*", "COUNT", 7)
    assert set(got[0::2]) == {name for name in pairs if name.startswith(b"f1")}


@pytest.mark.kvik_only
def test_a_scan_without_values(raw, form):
    pairs = fill(raw, 500)
    assert sorted(scan(raw, "NOVALUES")) == sorted(pairs)
    assert sorted(scan(raw, "count", 100, "novalues", "match", "*")) == sorted(pairs)


@pytest.mark.kvik_only
def test_a_scan_finds_what_stays_while_others_come_and_go(raw):
    limits(raw, 0)
    rng = random.Random(7)
    stay = [b"stay%d" % i for i in range(800)]
    raw.cmd("HSET", "h", *[word for name in stay for word in (name, 1)])
    cursor, found = b"0", []
    while True:
        cursor, items = raw.cmd("HSCAN", "h", cursor, "COUNT", 10, "NOVALUES")
        found += [name for name in items if name.startswith(b"stay")]
        if cursor == b"0":
            break
        names = [b"go%d" % rng.randrange(3000) for _ in range(200)]
        if rng.random() < 0.5:
            raw.cmd("HSET", "h", *[word for name in names for word in (name, 2)])
        else:
            raw.cmd("HDEL", "h", *names)
    limits(raw, 512)
    assert sorted(found) == sorted(stay)


@pytest.mark.parametrize("cursor", [1, 1 << 40, 1 << 41, (1 << 64) - 1])
def test_any_cursor_is_answered(raw, form, cursor):
    fill(raw, 50)
    reply = raw.cmd("HSCAN", "h", cursor)
    assert len(reply) == 2 and isinstance(reply[1], list)


# --- other commands ---

def test_copies_are_independent(raw, form):
    pairs = fill(raw, 30)
    raw.cmd("COPY", "h", "copy")
    raw.cmd("HSET", "h", "f0", "changed")
    raw.cmd("HDEL", "h", "f1")
    assert raw.cmd("HGET", "copy", "f0") == b"v0"
    assert raw.cmd("HLEN", "copy") == len(pairs)
    raw.cmd("RENAME", "copy", "h")
    assert raw.cmd("HLEN", "h") == len(pairs)
    assert raw.cmd("SET", "h", "string") == b"OK"
    assert raw.cmd("HGET", "h", "f0") == WRONG_TYPE


def test_lifetimes_of_the_key_stay(raw, form):
    fill(raw, 5)
    raw.cmd("EXPIRE", "h", 1000)
    raw.cmd("HSET", "h", "f0", "a longer value", "f100", "new")
    raw.cmd("HDEL", "h", "f1", "f2")
    raw.cmd("HINCRBY", "h", "n", 5)
    assert raw.cmd("TTL", "h") >= 999
    raw.cmd("HDEL", "h", *[b"f%d" % i for i in range(101)], "n")
    assert raw.cmd("EXISTS", "h") == 0
    raw.cmd("HSET", "h", "f", "v")
    assert raw.cmd("TTL", "h") == -1


def test_changes_are_watched(connect):
    one, other = connect(), connect()
    for change in (["HSET", "h", "f", 1], ["HINCRBY", "h", "n", 1], ["HDEL", "h", "f"],
                   ["HSETNX", "h", "x", 1], ["HINCRBYFLOAT", "h", "n", 1]):
        one.cmd("WATCH", "h")
        other.cmd(*change)
        one.cmd("MULTI")
        one.cmd("PING")
        assert one.cmd("EXEC") is None, change
    for same in (["HDEL", "h", "f"], ["HSETNX", "h", "x", 1], ["HGET", "h", "x"]):
        one.cmd("WATCH", "h")
        other.cmd(*same)
        one.cmd("MULTI")
        assert one.cmd("EXEC") == [], same
