#!/usr/bin/python3
"""DUMP and RESTORE: options, error texts, every form of every version, both directions with the
reference, damaged payloads, memory."""
import os
import random
import struct
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "persist"))

import rdb_bytes as rdb  # noqa: E402

BAD_SUM = b"ERR DUMP payload version or checksum are wrong"
BAD_DATA = b"ERR Bad data format"
BUSY = b"BUSYKEY Target key name already exists."
INF = float("inf")


def content(conn, key):
    """A value in a form that does not depend on encodings."""
    kind = conn.cmd("TYPE", key)
    if kind == b"string":
        return kind, conn.cmd("GET", key)
    if kind == b"list":
        return kind, conn.cmd("LRANGE", key, 0, -1)
    if kind == b"set":
        return kind, sorted(conn.cmd("SMEMBERS", key))
    if kind == b"hash":
        got = conn.cmd("HGETALL", key)
        return kind, sorted(zip(got[0::2], got[1::2]))
    if kind == b"zset":
        got = conn.cmd("ZRANGE", key, 0, -1, "WITHSCORES")
        return kind, [(name, float(score)) for name, score in zip(got[0::2], got[1::2])]
    return kind, None


def dataset(conn):
    for line in conn.cmd("INFO", "memory").split(b"\r\n"):
        if line.startswith(b"used_memory_dataset:"):
            return int(line.split(b":")[1])
    raise AssertionError("no used_memory_dataset")


def wait_for_dataset(conn, wanted):
    deadline = time.monotonic() + 5
    while dataset(conn) != wanted and time.monotonic() < deadline:
        time.sleep(0.01)
    assert dataset(conn) == wanted


# --- options and errors ---

def test_what_is_dumped_can_be_restored(raw):
    raw.cmd("SET", "k", "value")
    dump = raw.cmd("DUMP", "k")
    assert raw.cmd("DUMP", "missing") is None
    assert raw.cmd("RESTORE", "copy", 0, dump) == b"OK"
    assert raw.cmd("GET", "copy") == b"value"
    assert raw.cmd("PTTL", "copy") == -1


def test_errors_and_their_order(raw):
    raw.cmd("SET", "k", "value")
    good = raw.cmd("DUMP", "k")
    assert raw.cmd("RESTORE", "k", 0, good) == BUSY
    assert raw.cmd("RESTORE", "k", "x", b"junk") == BUSY
    assert raw.cmd("RESTORE", "new", "x", b"junk") == b"ERR value is not an integer or out of range"
    assert raw.cmd("RESTORE", "new", -1, b"junk") == b"ERR Invalid TTL value, must be >= 0"
    assert raw.cmd("RESTORE", "new", 0, b"junk") == BAD_SUM
    assert raw.cmd("RESTORE", "new", 0, b"") == BAD_SUM
    assert raw.cmd("RESTORE", "new", 0, good[:-1]) == BAD_SUM
    assert raw.cmd("RESTORE", "new", 0, good[:-8] + b"\0" * 8) == BAD_SUM
    assert raw.cmd("RESTORE", "new", 0, rdb.payload(0, b"\x01v", 99)) == BAD_SUM
    assert raw.cmd("RESTORE", "k", 0, good, "WORD") == b"ERR syntax error"
    assert raw.cmd("RESTORE", "new", 0, good, "IDLETIME") == b"ERR syntax error"
    assert raw.cmd("RESTORE", "new", 0, good, "IDLETIME", -1) == \
        b"ERR Invalid IDLETIME value, must be >= 0"
    assert raw.cmd("RESTORE", "new", 0, good, "IDLETIME", "x") == \
        b"ERR value is not an integer or out of range"
    for frequency in (-1, 256):
        assert raw.cmd("RESTORE", "new", 0, good, "FREQ", frequency) == \
            b"ERR Invalid FREQ value, must be >= 0 and <= 255"
    assert raw.cmd("RESTORE", "new", 0, good, "FREQ", 1, "IDLETIME", 1) == b"ERR syntax error"
    assert raw.cmd("RESTORE", "new", 0) == \
        b"ERR wrong number of arguments for 'restore' command"
    assert raw.cmd("DUMP") == b"ERR wrong number of arguments for 'dump' command"
    assert raw.cmd("EXISTS", "new") == 0
    assert raw.cmd("GET", "k") == b"value"


def test_times_to_live(raw):
    raw.cmd("SET", "k", "value")
    good = raw.cmd("DUMP", "k")
    assert raw.cmd("RESTORE", "relative", 100000, good) == b"OK"
    assert 0 < raw.cmd("PTTL", "relative") <= 100000
    later = int(time.time() * 1000) + 500000
    assert raw.cmd("RESTORE", "absolute", later, good, "ABSTTL") == b"OK"
    assert raw.cmd("PEXPIRETIME", "absolute") == later
    assert raw.cmd("RESTORE", "absolute", 0, good, "REPLACE", "ABSTTL") == b"OK"
    assert raw.cmd("PTTL", "absolute") == -1
    assert raw.cmd("RESTORE", "past", 1, good, "ABSTTL") == b"OK"
    assert raw.cmd("EXISTS", "past") == 0
    assert raw.cmd("RESTORE", "past", 1, rdb.payload(8, b""), "ABSTTL") == BAD_DATA
    assert raw.cmd("RESTORE", "k", 1, good, "ABSTTL", "REPLACE") == b"OK"
    assert raw.cmd("EXISTS", "k") == 0


@pytest.mark.kvik_only
def test_replacing_changes_the_type(raw):
    raw.cmd("SET", "k", "value")
    raw.cmd("RPUSH", "l", 1, 2)
    dump = raw.cmd("DUMP", "l")
    assert raw.cmd("RESTORE", "k", 0, dump, "replace") == b"OK"
    assert raw.cmd("LRANGE", "k", 0, -1) == [b"1", b"2"]
    assert raw.cmd("RESTORE", "k", 0, rdb.payload(0, b"\x05ab"), "REPLACE") == BAD_DATA
    assert raw.cmd("LRANGE", "k", 0, -1) == [b"1", b"2"]


def test_access_clocks_are_restored(raw):
    raw.cmd("SET", "k", "value")
    dump = raw.cmd("DUMP", "k")
    try:
        assert raw.cmd("RESTORE", "idle", 0, dump, "IDLETIME", 1000) == b"OK"
        assert 1000 <= raw.cmd("OBJECT", "IDLETIME", "idle") <= 1010
        assert raw.cmd("RESTORE", "idle", 0, dump, "REPLACE", "FREQ", 100) == b"OK"
        assert raw.cmd("OBJECT", "IDLETIME", "idle") <= 10
        raw.cmd("CONFIG", "SET", "maxmemory-policy", "allkeys-lfu")
        assert raw.cmd("RESTORE", "used", 0, dump, "FREQ", 200) == b"OK"
        assert raw.cmd("OBJECT", "FREQ", "used") == 200
    finally:
        raw.cmd("CONFIG", "SET", "maxmemory-policy", "noeviction")


@pytest.mark.kvik_only
def test_the_time_of_the_clock_ends(raw):
    raw.cmd("SET", "k", "value")
    dump = raw.cmd("DUMP", "k")
    assert raw.cmd("RESTORE", "new", (1 << 63) - 1, dump) == \
        b"ERR invalid expire time in 'restore' command"
    assert raw.cmd("RESTORE", "new", (1 << 47) + 1, dump, "ABSTTL") == \
        b"ERR invalid expire time in 'restore' command"
    assert raw.cmd("EXISTS", "new") == 0


# --- forms ---

WORDS = [b"a", b"bb", b"12", b"-1", b"c" * 70, b"123456789012345678", b""]
PAIRS = [(b"f", b"1"), (b"g", b"text"), (b"7", b"-5000"), (b"h", b"x" * 60)]
SCORES = [(b"a", -1.5), (b"b", 0.0), (b"c", 3.0), (b"d", 1e300)]
FLAT_PAIRS = [part for pair in PAIRS for part in pair]
FLAT_SCORES = [part for name, score in SCORES
               for part in (name, b"%d" % score if score == int(score) and abs(score) < 1e15
                            else repr(score).encode())]

OLD_FORMS = {
    "string": (0, rdb.string(b"text"), (b"string", b"text")),
    "int8": (0, rdb.int_string(-5, 1), (b"string", b"-5")),
    "int16": (0, rdb.int_string(-500, 2), (b"string", b"-500")),
    "int32": (0, rdb.int_string(-2147483648, 4), (b"string", b"-2147483648")),
    "lzf literals": (0, rdb.lzf_literals(b"abc" * 40), (b"string", b"abc" * 40)),
    "lzf run": (0, rdb.lzf_run(65, 200), (b"string", b"A" * 200)),
    "list": (1, rdb.length(len(WORDS)) + b"".join(map(rdb.string, WORDS)), (b"list", WORDS)),
    "set": (2, rdb.length(len(WORDS)) + b"".join(map(rdb.string, WORDS)),
            (b"set", sorted(WORDS))),
    "zset": (3, rdb.length(len(SCORES)) + b"".join(rdb.string(n) + rdb.score_text(s)
                                                   for n, s in SCORES), (b"zset", SCORES)),
    "zset inf": (3, rdb.length(2) + b"".join(rdb.string(n) + rdb.score_text(s)
                                             for n, s in [(b"y", INF), (b"x", -INF)]),
                 (b"zset", [(b"x", -INF), (b"y", INF)])),
    "hash": (4, rdb.length(len(PAIRS)) + b"".join(map(rdb.string, FLAT_PAIRS)),
             (b"hash", sorted(PAIRS))),
    "zset2": (5, rdb.length(len(SCORES)) + b"".join(rdb.string(n) + struct.pack("<d", s)
                                                    for n, s in reversed(SCORES)),
              (b"zset", SCORES)),
    "zipmap": (9, rdb.string(rdb.zipmap(PAIRS)), (b"hash", sorted(PAIRS))),
    "zipmap long": (9, rdb.string(rdb.zipmap([(b"f" * 300, b"v" * 253), (b"g", b"w" * 254)],
                                             unused=2)),
                    (b"hash", [(b"f" * 300, b"v" * 253), (b"g", b"w" * 254)])),
    "list ziplist": (10, rdb.string(rdb.ziplist(WORDS)), (b"list", WORDS)),
    "list ziplist long": (10, rdb.string(rdb.ziplist([b"x" * 300, b"y", b"z" * 20000, b"1"])),
                          (b"list", [b"x" * 300, b"y", b"z" * 20000, b"1"])),
    "ziplist numbers": (10, rdb.string(rdb.ziplist([b"%d" % n for n in (
        0, 12, 13, -1, 127, -128, 128, 32767, -32768, 32768, 8388607, -8388608, 8388608, 2147483647,
        -2147483648, 2147483648, 9223372036854775807, -9223372036854775808)])), None),
    "intset": (11, rdb.string(rdb.intset([5, -3, 1000])), (b"set", [b"-3", b"1000", b"5"])),
    "intset wide": (11, rdb.string(rdb.intset([1 << 40, -70000])),
                    (b"set", [b"-70000", b"1099511627776"])),
    "zset ziplist": (12, rdb.string(rdb.ziplist(FLAT_SCORES)), (b"zset", SCORES)),
    "hash ziplist": (13, rdb.string(rdb.ziplist(FLAT_PAIRS)), (b"hash", sorted(PAIRS))),
    "quicklist": (14, rdb.length(2) + rdb.string(rdb.ziplist(WORDS[:3])) +
                  rdb.string(rdb.ziplist(WORDS[3:])), (b"list", WORDS)),
    "hash listpack": (16, rdb.string(rdb.listpack(FLAT_PAIRS)), (b"hash", sorted(PAIRS))),
    "hash listpack wide": (16, rdb.string(rdb.listpack(FLAT_PAIRS, wide=True)),
                           (b"hash", sorted(PAIRS))),
    "hash listpack uncounted": (16, rdb.string(rdb.listpack(FLAT_PAIRS, count=65535)),
                                (b"hash", sorted(PAIRS))),
    "zset listpack": (17, rdb.string(rdb.listpack(FLAT_SCORES)), (b"zset", SCORES)),
    "quicklist 2": (18, rdb.length(2) + b"\x02" + rdb.string(rdb.listpack(WORDS[:3])) + b"\x01" +
                    rdb.string(b"q" * 10000), (b"list", WORDS[:3] + [b"q" * 10000])),
    "quicklist 2 wide": (18, rdb.length(1) + b"\x02" + rdb.string(rdb.listpack(WORDS, wide=True)),
                         (b"list", WORDS)),
}
SOON = int(time.time() * 1000) + 3600000
NEW_FORMS = {
    "set listpack": (20, 11, rdb.string(rdb.listpack(WORDS)), (b"set", sorted(WORDS))),
    "hash early": (22, 12, rdb.length(2) + rdb.length(SOON) + rdb.string(b"f") + rdb.string(b"1") +
                   rdb.length(0) + rdb.string(b"g") + rdb.string(b"2"),
                   {b"f": SOON, b"g": -1}),
    "hash listpack early": (23, 12, rdb.string(rdb.listpack([b"f", b"1", b"%d" % SOON,
                                                             b"g", b"2", b"0"])),
                            {b"f": SOON, b"g": -1}),
    "hash due": (24, 12, struct.pack("<Q", SOON) + rdb.length(3) + rdb.length(11) +
                 rdb.string(b"f") + rdb.string(b"1") + rdb.length(0) + rdb.string(b"g") +
                 rdb.string(b"2") + rdb.length(1) + rdb.string(b"h") + rdb.string(b"3"),
                 {b"f": SOON + 10, b"g": -1, b"h": SOON}),
    "hash listpack due": (25, 12, struct.pack("<Q", SOON) +
                          rdb.string(rdb.listpack([b"f", b"1", b"%d" % SOON, b"g", b"2", b"0"])),
                          {b"f": SOON, b"g": -1}),
    "hash of Valkey": (22, 80, rdb.length(2) + rdb.string(b"f") + rdb.string(b"1") +
                       struct.pack("<q", SOON) + rdb.string(b"g") + rdb.string(b"2") +
                       struct.pack("<q", -1), {b"f": SOON, b"g": -1}),
}
LIMITS = ["hash-max-listpack-entries", "set-max-intset-entries", "set-max-listpack-entries",
          "zset-max-listpack-entries"]


@pytest.fixture(params=["packed", "large"])
def form(request, raw):
    """Collections are packed as usual, or never."""
    changed = LIMITS + ["list-max-listpack-size"]
    before = {name: raw.cmd("CONFIG", "GET", name) for name in changed}
    if request.param == "large":
        for name in changed:
            raw.cmd("CONFIG", "SET", name, 1 if name.startswith("list") else 0)
    yield request.param
    for name, pair in before.items():
        if pair:
            raw.cmd("CONFIG", "SET", name, pair[1])


@pytest.mark.parametrize("name", OLD_FORMS)
def test_every_form_of_old_versions_is_read(raw, form, name):
    number, value, wanted = OLD_FORMS[name]
    assert raw.cmd("RESTORE", "k", 0, rdb.payload(number, value)) == b"OK"
    if wanted is not None:
        assert content(raw, "k") == wanted
    assert raw.cmd("RESTORE", "again", 0, raw.cmd("DUMP", "k")) == b"OK"
    assert content(raw, "again") == content(raw, "k")


def test_numbers_of_ziplists(raw):
    number, value, _ = OLD_FORMS["ziplist numbers"]
    raw.cmd("RESTORE", "k", 0, rdb.payload(number, value))
    assert [int(item) for item in raw.cmd("LRANGE", "k", 0, -1)] == [
        0, 12, 13, -1, 127, -128, 128, 32767, -32768, 32768, 8388607, -8388608, 8388608, 2147483647,
        -2147483648, 2147483648, 9223372036854775807, -9223372036854775808]


@pytest.mark.kvik_only
@pytest.mark.parametrize("name", NEW_FORMS)
def test_every_form_of_newer_versions_is_read(raw, form, name):
    number, version, value, wanted = NEW_FORMS[name]
    assert raw.cmd("RESTORE", "k", 0, rdb.payload(number, value, version)) == b"OK"
    if isinstance(wanted, tuple):
        assert content(raw, "k") == wanted
        return
    assert sorted(raw.cmd("HKEYS", "k")) == sorted(wanted)
    dump = raw.cmd("DUMP", "k")
    assert raw.cmd("RESTORE", "again", 0, dump) == b"OK"
    assert raw.cmd("DEBUG", "DIGEST-VALUE", "k") == raw.cmd("DEBUG", "DIGEST-VALUE", "again")
    for key in ("k", "again"):
        assert raw.cmd("HPEXPIRETIME", key, "FIELDS", len(wanted), *wanted) == list(wanted.values())


@pytest.mark.kvik_only
def test_members_with_due_times_are_kept(raw, form):
    raw.cmd("SADD", "s", *range(20), *[b"m%d" % i for i in range(20)])
    raw.cmd("SEXPIRE", "s", 1000, "MEMBERS", 3, "m1", 5, "m7")
    raw.cmd("ZADD", "z", *[word for i in range(20) for word in (i * 0.5, b"m%d" % i)])
    raw.cmd("ZEXPIRE", "z", 1000, "MEMBERS", 2, "m1", "m7")
    raw.cmd("HSET", "h", *range(20))
    raw.cmd("HEXPIRE", "h", 1000, "FIELDS", 2, 2, 4)
    for key in "szh":
        dump = raw.cmd("DUMP", key)
        assert raw.cmd("RESTORE", "copy", 0, dump, "REPLACE") == b"OK"
        assert raw.cmd("DEBUG", "DIGEST-VALUE", key) == raw.cmd("DEBUG", "DIGEST-VALUE", "copy")
        assert content(raw, "copy") == content(raw, key)


@pytest.mark.kvik_only
def test_the_reference_refuses_what_it_does_not_know(raw, redis_server):
    with redis_server.raw() as other:
        raw.cmd("SADD", "s", "a", "b")
        raw.cmd("SEXPIRE", "s", 1000, "MEMBERS", 1, "a")
        raw.cmd("HSET", "h", "f", 1)
        raw.cmd("HEXPIRE", "h", 1000, "FIELDS", 1, "f")
        for key in "sh":
            assert other.cmd("RESTORE", "k", 0, raw.cmd("DUMP", key), "REPLACE") == BAD_SUM
        # A form with due times that holds none is written as what it is without.
        raw.cmd("HPERSIST", "h", "FIELDS", 1, "f")
        raw.cmd("SPERSIST", "s", "MEMBERS", 1, "a")
        for key in "sh":
            assert other.cmd("RESTORE", "k", 0, raw.cmd("DUMP", key), "REPLACE") == b"OK"
            assert content(other, "k") == content(raw, key)


# --- damage: the reference reads on into version and sum, and takes some of it ---

@pytest.mark.kvik_only
def test_damaged_values_are_refused(raw):
    ziplist = rdb.ziplist(WORDS)
    bad = {
        "empty list": (1, rdb.length(0)),
        "empty intset": (11, rdb.string(rdb.intset([]))),
        "empty listpack": (16, rdb.string(rdb.listpack([]))),
        "odd hash": (16, rdb.string(rdb.listpack([b"f", b"1", b"g"]))),
        "field twice": (16, rdb.string(rdb.listpack([b"f", b"1", b"f", b"2"]))),
        "member twice": (2, rdb.length(2) + rdb.string(b"a") * 2),
        "number twice": (2, rdb.length(2) + rdb.int_string(5, 1) + rdb.string(b"5")),
        "name twice": (17, rdb.string(rdb.listpack([b"a", b"1", b"a", b"2"]))),
        "short list": (1, rdb.length(3) + rdb.string(b"a")),
        "no score": (17, rdb.string(rdb.listpack([b"a", b"b"]))),
        "nan": (5, rdb.length(1) + rdb.string(b"a") + struct.pack("<d", float("nan"))),
        "ziplist tail": (10, rdb.string(ziplist[:4] + b"\x0b" + ziplist[5:])),
        "ziplist count": (10, rdb.string(rdb.ziplist(WORDS, count=3))),
        "ziplist end": (10, rdb.string(ziplist[:-1] + b"\x00")),
        "listpack count": (16, rdb.string(rdb.listpack(FLAT_PAIRS, count=2))),
        "intset order": (11, rdb.string(struct.pack("<IIhh", 2, 2, 5, 3))),
        "intset width": (11, rdb.string(struct.pack("<IIhh", 3, 2, 3, 5))),
        "lzf": (0, b"\xc3\x02\x20\xff\xff"),
        "string form": (0, b"\xc4\x00"),
        "huge string": (0, b"\x81" + b"\x7f" * 8),
        "huge list": (1, b"\x81" + b"\x7f" * 8),
        "unknown form": (8, b"\x01a"),
        "unknown node": (18, rdb.length(1) + b"\x03" + rdb.string(b"a")),
    }
    before = dataset(raw)
    for name, (number, value) in bad.items():
        assert raw.cmd("RESTORE", "k", 0, rdb.payload(number, value)) == BAD_DATA, name
        assert raw.cmd("EXISTS", "k") == 0, name
    assert dataset(raw) == before


@pytest.mark.kvik_only
def test_every_cut_of_every_form_is_refused(raw):
    before = dataset(raw)
    forms = list(OLD_FORMS.items()) + [(n, (f[0], f[2])) for n, f in NEW_FORMS.items()]
    for name, one in forms:
        number, value = one[0], one[1]
        for cut in range(min(len(value), 400)):
            got = raw.cmd("RESTORE", "k", 0, rdb.payload(number, value[:cut], 10))
            assert got == BAD_DATA, (name, cut)
    assert raw.cmd("DBSIZE") == 0
    assert dataset(raw) == before


@pytest.mark.kvik_only
def test_random_damage_never_harms(raw):
    seed = int(os.environ.get("SEED") or random.randrange(1 << 30))
    print("SEED=%d" % seed)
    rng = random.Random(seed)
    before = dataset(raw)
    forms = [(f[0], f[1]) for f in OLD_FORMS.values()] + [(f[0], f[2]) for f in NEW_FORMS.values()]
    raw.cmd("DEBUG", "SET-ACTIVE-EXPIRE", 0)  # damaged due times may have passed
    for _ in range(4000):
        number, value = rng.choice(forms)
        value = bytearray(value[:2000])
        for _ in range(rng.choice([1, 1, 2, 5])):
            value[rng.randrange(len(value))] = rng.choice([0, 1, 127, 128, 254, 255,
                                                           rng.randrange(256)])
        got = raw.cmd("RESTORE", "k", 0, rdb.payload(number, bytes(value), 12), "REPLACE")
        assert got in (b"OK", BAD_DATA)
        if got == b"OK":
            dump = raw.cmd("DUMP", "k")
            assert raw.cmd("RESTORE", "again", 0, dump, "REPLACE") == b"OK"
            assert raw.cmd("DEBUG", "DIGEST-VALUE", "k") == \
                raw.cmd("DEBUG", "DIGEST-VALUE", "again"), dump
    raw.cmd("DEBUG", "SET-ACTIVE-EXPIRE", 1)
    raw.cmd("DEL", "k", "again")
    wait_for_dataset(raw, before)


# --- both directions with the reference ---

def random_value(rng, conn, key):
    """Makes a random value under a key."""
    def word():
        return rng.choice([b"%d" % rng.randrange(-1 << rng.randrange(1, 63), 1 << 62),
                           b"w%d" % rng.randrange(1000), bytes(rng.randrange(256) for _ in range(9)),
                           b"x" * rng.choice([0, 40, 63, 64, 70, 300, 5000])])

    count = rng.choice([1, 2, 10, 100, 130, 600])
    kind = rng.randrange(5)
    if kind == 0:
        conn.cmd("SET", key, word() * rng.choice([1, 1, 1, 100]))
    elif kind == 1:
        conn.cmd("RPUSH", key, *[word() for _ in range(count)])
    elif kind == 2:
        small = rng.random() < 0.4
        conn.cmd("SADD", key, *[rng.randrange(-50000, 50000) if small else word()
                                for _ in range(count)])
    elif kind == 3:
        conn.cmd("HSET", key, *[word() for _ in range(2 * count)])
    else:
        pairs = []
        for _ in range(count):
            pairs += [rng.choice([rng.randrange(-100, 100), rng.random() * 1e6, b"inf", b"-inf",
                                  1e300 * rng.random(), rng.randrange(1 << 60), b"1e17"]), word()]
        conn.cmd("ZADD", key, *pairs)


@pytest.mark.kvik_only
def test_random_values_go_both_ways(raw, redis_server):
    seed = int(os.environ.get("SEED") or random.randrange(1 << 30))
    print("SEED=%d" % seed)
    rng = random.Random(seed)
    before = dataset(raw)
    with redis_server.raw() as other:
        other.cmd("FLUSHALL")
        for round_ in range(150):
            source, target = rng.choice([(raw, other), (other, raw), (raw, raw)])
            for conn in (raw, other):
                conn.cmd("DEL", "k", "copy")
            random_value(rng, source, "k")
            dump = source.cmd("DUMP", "k")
            assert target.cmd("RESTORE", "copy", 0, dump) == b"OK", round_
            assert content(target, "copy") == content(source, "k"), round_
    raw.cmd("DEL", "k", "copy")
    wait_for_dataset(raw, before)


@pytest.mark.kvik_only
def test_streams_are_kept_as_they_are(raw, redis_server):
    before = dataset(raw)
    with redis_server.raw() as other:
        other.cmd("FLUSHALL")
        for i in range(300):
            other.cmd("XADD", "x", "*", "field", i, "other", b"v" * (i % 50))
        other.cmd("XGROUP", "CREATE", "x", "g", "0")
        other.cmd("XREADGROUP", "GROUP", "g", "c", "COUNT", 10, "STREAMS", "x", ">")
        dump = other.cmd("DUMP", "x")
        assert raw.cmd("RESTORE", "x", 0, dump) == b"OK"
        assert raw.cmd("TYPE", "x") == b"stream"
        assert raw.cmd("OBJECT", "ENCODING", "x") == b"stream"
        wrong = b"WRONGTYPE Operation against a key holding the wrong kind of value"
        for line in (["GET", "x"], ["LPUSH", "x", 1], ["SADD", "x", 1], ["HSET", "x", 1, 2],
                     ["ZADD", "x", 1, 2], ["APPEND", "x", 1]):
            assert raw.cmd(*line) == wrong
        assert raw.cmd("COPY", "x", "y") == 1
        assert raw.cmd("RENAME", "y", "z") == b"OK"
        raw.cmd("PEXPIRE", "z", 100000)
        assert raw.cmd("DUMP", "z") == dump
        assert raw.cmd("DEBUG", "DIGEST-VALUE", "x") == raw.cmd("DEBUG", "DIGEST-VALUE", "z")
        assert other.cmd("RESTORE", "back", 0, raw.cmd("DUMP", "z")) == b"OK"
        assert other.cmd("XLEN", "back") == 300
        assert other.cmd("XPENDING", "back", "g")[0] == 10
        for cut in range(0, len(dump) - 11, 7):
            body = dump[1:-10][:cut]
            assert raw.cmd("RESTORE", "cut", 0, rdb.payload(dump[0], body)) == BAD_DATA
    raw.cmd("DEL", "x", "z")
    wait_for_dataset(raw, before)


@pytest.mark.kvik_only
def test_values_of_modules_are_kept_as_they_are(raw):
    letters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    identity = 0
    for letter in b"ReJSON-RL":
        identity = identity << 6 | letters.index(letter)
    identity = identity << 10 | 3
    value = (rdb.length(identity) + b"\x02" + rdb.length(1 << 40) + b"\x01\x05" + b"\x04" + b"d" * 8 +
             b"\x03" + b"f" * 4 + b"\x05" + rdb.string(b"{}") + b"\x00")
    before = dataset(raw)
    dump = rdb.payload(7, value)
    assert raw.cmd("RESTORE", "m", 0, dump) == b"OK"
    assert raw.cmd("TYPE", "m") == b"ReJSON-RL"
    assert raw.cmd("OBJECT", "ENCODING", "m") == b"raw"
    assert raw.cmd("SCAN", 0, "TYPE", "ReJSON-RL", "COUNT", 1000)[1] == [b"m"]
    assert raw.cmd("DUMP", "m") == dump
    assert raw.cmd("RESTORE", "n", 0, rdb.payload(7, value[:-1])) == BAD_DATA
    assert raw.cmd("RESTORE", "n", 0, rdb.payload(6, value)) == BAD_DATA
    raw.cmd("DEL", "m")
    wait_for_dataset(raw, before)


@pytest.mark.kvik_only
@pytest.mark.parametrize("compress", ["yes", "no"])
def test_compression_follows_its_directive(raw, compress):
    raw.cmd("CONFIG", "SET", "rdbcompression", compress)
    try:
        raw.cmd("SET", "k", b"x" * 1000)
        assert (len(raw.cmd("DUMP", "k")) < 100) == (compress == "yes")
        assert raw.cmd("RESTORE", "copy", 0, raw.cmd("DUMP", "k")) == b"OK"
        assert raw.cmd("GET", "copy") == b"x" * 1000
    finally:
        raw.cmd("CONFIG", "SET", "rdbcompression", "yes")


@pytest.mark.kvik_only
def test_large_payloads(raw):
    before = dataset(raw)
    raw.cmd("SET", "k", b"ab" * 4000000)
    raw.cmd("SADD", "s", *range(100000, 160000))
    for key in "ks":
        assert raw.cmd("RESTORE", "copy", 0, raw.cmd("DUMP", key), "REPLACE") == b"OK"
        assert content(raw, "copy") == content(raw, key)
    raw.cmd("DEL", "k", "s", "copy")
    wait_for_dataset(raw, before)
