#!/usr/bin/python3
"""RDB files: those of the reference, of older and newer servers (made by hand), our own, damaged
ones; through DEBUG RELOAD, which saves, empties and loads."""
import json
import os
import random
import shutil
import struct
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "persist"))

import rdb_bytes as rdb  # noqa: E402
from content import content, to_json  # noqa: E402

FIXTURES = Path(__file__).resolve().parents[1] / "persist" / "fixtures"
FAILED = b"ERR Error trying to load the RDB dump, check server logs"
FAR = 4102444800000

pytestmark = pytest.mark.kvik_only


@pytest.fixture
def load(empty_server, raw):
    """load(bytes): the server has what the file says; returns the reply."""
    def load_bytes(data, *options):
        (empty_server.dir / "dump.rdb").write_bytes(data)
        return raw.cmd("DEBUG", "RELOAD", "NOSAVE", *options)
    return load_bytes


def save(server, conn):
    """The bytes of a file that the server writes of what it has."""
    assert conn.cmd("DEBUG", "RELOAD") == b"OK"
    return (server.dir / "dump.rdb").read_bytes()


def last_fault(server):
    lines = [line for line in server.log().splitlines() if "failed at offset" in line]
    return lines[-1].split("failed at offset ")[1]


# --- files of the reference ---

@pytest.mark.parametrize("name", sorted(path.stem for path in FIXTURES.glob("*.rdb")))
@pytest.mark.parametrize("form", ["packed", "large"])
def test_files_of_the_reference_are_loaded(raw, load, form, name):
    changed = {"hash-max-listpack-entries": 512, "set-max-listpack-entries": 128,
               "set-max-intset-entries": 512, "zset-max-listpack-entries": 128,
               "list-max-listpack-size": -2}
    if form == "large":
        for directive in changed:
            raw.cmd("CONFIG", "SET", directive, 1 if directive.startswith("list") else 0)
    try:
        assert load((FIXTURES / (name + ".rdb")).read_bytes()) == b"OK"
        assert to_json(content(raw)) == json.loads((FIXTURES / (name + ".json")).read_text())
        assert raw.cmd("DEBUG", "RELOAD") == b"OK"
        assert to_json(content(raw)) == json.loads((FIXTURES / (name + ".json")).read_text())
    finally:
        for directive, value in changed.items():
            raw.cmd("CONFIG", "SET", directive, value)


@pytest.mark.parametrize("name", sorted(path.stem for path in FIXTURES.glob("*.rdb")))
def test_what_we_save_the_reference_loads(empty_server, raw, load, name, redis_server):
    assert load((FIXTURES / (name + ".rdb")).read_bytes()) == b"OK"
    assert bool(raw.cmd("FUNCTION", "LIST")) == (name == "functions")
    data = save(empty_server, raw)
    raw.cmd("FUNCTION", "FLUSH")
    assert data.startswith(b"REDIS0010")
    with redis_server.raw() as other:
        # The stream's bytes are compared, and Kvik gave back those that came.
        other.cmd("CONFIG", "SET", "rdbcompression", "no" if name == "small" else "yes")
        (redis_server.dir / "dump.rdb").write_bytes(data)
        assert other.cmd("DEBUG", "RELOAD", "NOSAVE") == b"OK"
        assert to_json(content(other)) == json.loads((FIXTURES / (name + ".json")).read_text())
        if name == "functions":
            assert other.cmd("FCALL", "f", 0) == 1
            other.cmd("FUNCTION", "FLUSH")
        other.cmd("FLUSHALL")
        other.cmd("CONFIG", "SET", "rdbcompression", "yes")


def test_use_is_kept_as_the_policy_wants_it(start_server):
    for policy, name in (("allkeys-lru", "lru"), ("allkeys-lfu", "lfu")):
        server = start_server("--maxmemory-policy", policy)
        shutil.copy(FIXTURES / (name + ".rdb"), server.dir / "dump.rdb")
        with server.raw() as conn:
            assert conn.cmd("DEBUG", "RELOAD", "NOSAVE") == b"OK"
            if name == "lfu":
                assert conn.cmd("OBJECT", "FREQ", "text") >= 4
            else:
                assert conn.cmd("OBJECT", "IDLETIME", "text") >= 0


# --- records ---

def key(form, name, value, before=b""):
    return before + bytes([form]) + rdb.string(name) + value


def text(name, value, before=b""):
    return key(0, name, rdb.string(value), before)


def aux(name, value):
    return b"\xfa" + rdb.string(name) + rdb.string(value)


def expire_ms(ms):
    return b"\xfc" + struct.pack("<q", ms)


@pytest.mark.parametrize("version", range(1, 15))
def test_every_version_is_read(raw, load, version):
    assert load(rdb.rdb_file(b"\xfe\x00" + text(b"k", b"v"), version)) == b"OK"
    assert raw.cmd("GET", "k") == b"v"


def test_the_first_version_had_no_sum_and_seconds(raw, load):
    soon = int(time.time()) + 1000
    body = b"\xfe\x00" + text(b"k", b"v", b"\xfd" + struct.pack("<I", soon)) + text(b"l", b"w")
    assert load(rdb.rdb_file(body, 2)) == b"OK"
    assert raw.cmd("EXPIRETIME", "k") == soon
    assert raw.cmd("EXPIRETIME", "l") == -1


def test_files_of_valkey(raw, load):
    due = struct.pack("<q", FAR)
    hash_ = rdb.length(2) + rdb.string(b"f") + rdb.string(b"1") + due + rdb.string(b"g") + \
        rdb.string(b"2") + struct.pack("<q", -1)
    body = aux(b"valkey-ver", b"9.0.0") + b"\xfe\x00" + b"\xf4" + rdb.length(5) * 3 + \
        key(22, b"h", hash_) + b"\xf3" + rdb.string(b"j" * 40) + b"\x01\x05\x09" + text(b"k", b"v")
    assert load(rdb.rdb_file(body, 80, b"VALKEY")) == b"OK"
    assert raw.cmd("HPEXPIRETIME", "h", "FIELDS", 2, "f", "g") == [FAR, -1]
    assert raw.cmd("GET", "k") == b"v"
    assert load(rdb.rdb_file(body, 81, b"VALKEY")) == FAILED


def test_records_of_other_servers_are_walked_over(raw, load):
    module = rdb.length(12345 << 10 | 1)
    body = (aux(b"redis-ver", b"8.6.0") + aux(b"unknown", b"x" * 100) +
            b"\xf7" + module + b"\x02\x02" + b"\x05" + rdb.string(b"data") + b"\x00" +
            b"\xfe\x00\xfb\x02\x00" + b"\xf4\x01\x02\x03" +
            b"\xf3\x01" + b"cls1" + b"\x02\x07\x00" + text(b"k", b"v") +
            b"\xf8" + rdb.length(500) + text(b"i", b"w") +
            b"\xf9\x64" + text(b"u", b"w"))
    assert load(rdb.rdb_file(body, 13)) == b"OK"
    assert raw.cmd("DBSIZE") == 3
    assert 500 <= raw.cmd("OBJECT", "IDLETIME", "i") <= 510


def test_functions_and_data_of_modules_are_saved_back(empty_server, raw, load):
    module = rdb.length(12345 << 10 | 1)
    first = b"\xf7" + module + b"\x02\x02" + b"\x05" + rdb.string(b"data") + b"\x00"
    function = b"\xf5" + rdb.string(b"#!lua name=l\nredis.register_function('f', function() end)")
    last = b"\xf7" + module + b"\x02\x01" + b"\x04" + b"d" * 8 + b"\x00"
    assert load(rdb.rdb_file(first + function + b"\xfe\x00" + text(b"k", b"v") + last)) == b"OK"
    data = save(empty_server, raw)
    assert data.index(function + first) < data.index(b"\x01k\x01v") < data.index(last)
    assert raw.cmd("FUNCTION", "FLUSH") == b"OK"


def test_keys_that_are_due_are_left_out(raw, load):
    now = int(time.time() * 1000)
    everything = {  # each form once, so that all can be walked over
        0: rdb.string(b"v"), 1: rdb.length(1) + rdb.string(b"a"), 2: rdb.length(1) + rdb.string(b"a"),
        3: rdb.length(3) + rdb.string(b"a") + b"\x011" + rdb.string(b"b") + b"\xfd" +
        rdb.string(b"c") + b"\xff",
        4: rdb.length(1) + rdb.string(b"a") * 2, 5: rdb.length(1) + rdb.string(b"a") + b"d" * 8,
        7: rdb.length(5 << 10) + b"\x05" + rdb.string(b"x") + b"\x00",
        9: rdb.string(rdb.zipmap([(b"a", b"b")])), 10: rdb.string(rdb.ziplist([b"a"])),
        11: rdb.string(rdb.intset([1])), 14: rdb.length(1) + rdb.string(rdb.ziplist([b"a"])),
        16: rdb.string(rdb.listpack([b"a", b"b"])), 18: b"\x01\x02" + rdb.string(rdb.listpack([b"a"])),
        22: b"\x01\x05" + rdb.string(b"f") + rdb.string(b"v"),
        24: struct.pack("<Q", now) + b"\x01\x01" + rdb.string(b"f") + rdb.string(b"v"),
        25: struct.pack("<Q", now) + rdb.string(rdb.listpack([b"a", b"b", b"0"])),
        176: b"\x01" + rdb.string(b"m") + b"t" * 8, 177: b"\x01" + rdb.string(b"m") + b"t" * 16,
    }
    body = b"\xfe\x00" + text(b"stays", b"v", expire_ms(now + 100000))
    for form, value in everything.items():
        body += key(form, b"gone %d" % form, value, expire_ms(now - 1000))
    body += text(b"last", b"v")
    assert load(rdb.rdb_file(body, 12)) == b"OK"
    assert sorted(raw.cmd("KEYS", "*")) == [b"last", b"stays"]


def test_times_beyond_our_clock_are_its_end(raw, load):
    body = b"\xfe\x00" + text(b"k", b"v", expire_ms((1 << 63) - 1))
    assert load(rdb.rdb_file(body)) == b"OK"
    assert raw.cmd("PEXPIRETIME", "k") == 1 << 47


def test_empty_collections_are_left_out(raw, load):
    body = b"\xfe\x00" + key(1, b"l", b"\x00") + key(11, b"s", rdb.string(rdb.intset([]))) + \
        text(b"k", b"v")
    assert load(rdb.rdb_file(body)) == b"OK"
    assert raw.cmd("KEYS", "*") == [b"k"]


def test_options_of_reload(empty_server, raw, load):
    raw.cmd("SET", "here", 1)
    raw.cmd("SET", "both", "old")
    data = rdb.rdb_file(b"\xfe\x00" + text(b"both", b"new") + text(b"there", b"2"))
    assert load(data, "NOFLUSH") == FAILED
    assert load(data, "NOFLUSH", "MERGE") == b"OK"
    assert raw.cmd("MGET", "here", "both", "there") == [b"1", b"new", b"2"]
    assert load(data) == b"OK"
    assert raw.cmd("MGET", "here", "both", "there") == [None, b"new", b"2"]
    assert raw.cmd("DEBUG", "RELOAD", "X").text.startswith(b"ERR DEBUG RELOAD only")


# --- damage ---

def test_faults_are_told_with_their_offset(empty_server, raw, load):
    good = b"\xfe\x00" + text(b"k", b"v")
    faults = {
        "does not begin": rdb.rdb_file(good, 10, b"RODIS"),
        "version 15": rdb.rdb_file(good, 15),
        "checksum": rdb.rdb_file(good, crc=12345),
        "ends too early": rdb.rdb_file(good)[:-1],
        "comes twice": rdb.rdb_file(good + text(b"k", b"w")),
        "has database": rdb.rdb_file(b"\xfe\x40\xff" + text(b"k", b"v")),
        "type 99": rdb.rdb_file(good + key(99, b"x", b"")),
        "damaged": rdb.rdb_file(good + key(16, b"x", rdb.string(b"xyz"))),
        "candidate": rdb.rdb_file(b"\xf6" + rdb.string(b"f") + good),
    }
    for words, data in faults.items():
        assert load(data) == FAILED
        fault = last_fault(empty_server)
        assert words in fault, fault
        assert 0 < int(fault.split(":")[0]) <= len(data)
    assert load(rdb.rdb_file(good, crc=0)) == b"OK"


def test_no_checksum_is_compared_without_the_directive(start_server):
    server = start_server("--rdbchecksum", "no")
    data = rdb.rdb_file(b"\xfe\x00" + text(b"k", b"v"), crc=12345)
    (server.dir / "dump.rdb").write_bytes(data)
    with server.raw() as conn:
        assert conn.cmd("DEBUG", "RELOAD", "NOSAVE") == b"OK"
        assert conn.cmd("DEBUG", "RELOAD") == b"OK"
    assert (server.dir / "dump.rdb").read_bytes()[-8:] == b"\0" * 8


def test_every_cut_of_a_file_is_noticed(raw, load):
    data = (FIXTURES / "small-lzf.rdb").read_bytes()
    for cut in range(len(data)):
        assert load(data[:cut]) == FAILED, cut


def test_random_damage_never_harms(raw, load):
    seed = int(os.environ.get("SEED") or random.randrange(1 << 30))
    print("SEED=%d" % seed)
    rng = random.Random(seed)
    whole = [(FIXTURES / (name + ".rdb")).read_bytes() for name in ("small", "small-lzf", "large")]
    for _ in range(400):
        data = bytearray(rng.choice(whole))
        for _ in range(rng.choice([1, 1, 2, 10])):
            data[rng.randrange(len(data))] = rng.choice([0, 1, 0x3f, 0x80, 0x81, 0xc3, 0xfe, 0xff,
                                                         rng.randrange(256)])
        data[-8:] = b"\0" * 8
        assert load(bytes(data)) in (b"OK", FAILED)
        assert raw.cmd("DEBUG", "RELOAD") == b"OK"


def test_a_huge_length_takes_no_memory(empty_server, raw, load):
    for length in (b"\x80\x7f\xff\xff\xff", b"\x81" + b"\x7f" * 8, b"\x81" + b"\xff" * 8):
        for form in (0, 1, 2, 3, 4, 5, 10, 14, 16, 18, 24, 176):
            assert load(rdb.rdb_file(b"\xfe\x00" + key(form, b"k", length))) == FAILED
        assert load(rdb.rdb_file(b"\xfe\x00\x00" + length)) == FAILED
    assert load(rdb.rdb_file(b"\xfe\x00" + key(0, b"k", b"\xc3\x05\x80\x7f\xff\xff\xff" + b"x" * 5))) \
        == FAILED


# --- our own files ---

def test_due_times_of_members_make_a_newer_file(empty_server, raw, redis_server):
    raw.cmd("HSET", "h", "f", 1, "g", 2)
    assert save(empty_server, raw).startswith(b"REDIS0010")
    raw.cmd("HPEXPIREAT", "h", FAR, "FIELDS", 1, "f")
    raw.cmd("SADD", "s", "a", "b")
    raw.cmd("SPEXPIREAT", "s", FAR, "MEMBERS", 1, "a")
    raw.cmd("ZADD", "z", 1, "a", 2, "b")
    raw.cmd("ZPEXPIREAT", "z", FAR, "MEMBERS", 1, "a")
    before = raw.cmd("DEBUG", "DIGEST")
    data = save(empty_server, raw)
    assert data.startswith(b"REDIS0012")
    assert data[-8:] == struct.pack("<Q", rdb.crc64(data[:-8]))
    assert raw.cmd("DEBUG", "DIGEST") == before
    assert raw.cmd("HPEXPIRETIME", "h", "FIELDS", 1, "f") == [FAR]


def fill(conn, rng):
    def word():
        return rng.choice([b"%d" % rng.randrange(-1 << 40, 1 << 40), b"w%d" % rng.randrange(99),
                           b"x" * rng.choice([0, 63, 64, 70, 5000]),
                           bytes(rng.randrange(256) for _ in range(12))])

    for i in range(200):
        name = b"%d:%d" % (i, rng.randrange(1000))
        count = rng.choice([1, 3, 20, 129, 513])
        kind = rng.randrange(5)
        if kind == 0:
            conn.cmd("SET", name, word() * rng.choice([1, 1, 30]))
        elif kind == 1:
            conn.cmd("RPUSH", name, *[word() for _ in range(count)])
        elif kind == 2:
            conn.cmd("SADD", name, *[rng.randrange(9999) if i % 2 else word() for _ in range(count)])
        elif kind == 3:
            conn.cmd("HSET", name, *[word() for _ in range(2 * count)])
        else:
            conn.cmd("ZADD", name, *[part for _ in range(count)
                                     for part in (rng.choice([1, 2.5, -1e300, b"inf"]), word())])
        if rng.random() < 0.3:
            conn.cmd("PEXPIREAT", name, FAR + rng.randrange(100000))
        if rng.random() < 0.1:
            conn.cmd("SELECT", rng.randrange(16))
    conn.cmd("SELECT", 0)


def test_random_keyspaces_go_both_ways(empty_server, raw, load, redis_server):
    seed = int(os.environ.get("SEED") or random.randrange(1 << 30))
    print("SEED=%d" % seed)
    rng = random.Random(seed)
    for _ in range(4):
        raw.cmd("FLUSHALL")
        fill(raw, rng)
        ours, digest = content(raw), raw.cmd("DEBUG", "DIGEST")
        data = save(empty_server, raw)
        assert raw.cmd("DEBUG", "DIGEST") == digest
        with redis_server.raw() as other:
            (redis_server.dir / "dump.rdb").write_bytes(data)
            assert other.cmd("DEBUG", "RELOAD", "NOSAVE") == b"OK"
            assert content(other) == ours
            assert other.cmd("SAVE") == b"OK"
            other.cmd("FLUSHALL")
        assert load((redis_server.dir / "dump.rdb").read_bytes()) == b"OK"
        assert content(raw) == ours
        assert raw.cmd("DEBUG", "DIGEST") == digest


def test_a_file_that_cannot_be_written_leaves_the_old_one(empty_server, raw):
    raw.cmd("SET", "k", "v")
    data = save(empty_server, raw)
    raw.cmd("CONFIG", "SET", "enable-protected-configs", "yes")
    raw.cmd("SET", "k", "w")
    temporary = empty_server.dir / ("dump.rdb.%d.temp" % empty_server.process.pid)
    temporary.mkdir()
    try:
        assert raw.cmd("DEBUG", "RELOAD") == b"ERR Error saving the RDB file, check the server log"
    finally:
        temporary.rmdir()
    assert (empty_server.dir / "dump.rdb").read_bytes() == data
    assert raw.cmd("GET", "k") == b"w"
