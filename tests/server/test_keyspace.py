#!/usr/bin/python3
"""Commands on keys of any type: DEL, EXISTS, RENAME, COPY, MOVE, KEYS, SCAN, RANDOMKEY, OBJECT."""
import collections
import threading
import time

import pytest

from raw import Error, encode

SYNTAX = Error(b"ERR syntax error")
NOT_INTEGER = Error(b"ERR value is not an integer or out of range")
INT_RANGE = Error(b"ERR value is out of range, value must between -2147483648 and 2147483647")
DB_RANGE = Error(b"ERR DB index is out of range")
SAME = Error(b"ERR source and destination objects are the same")
NO_KEY = Error(b"ERR no such key")


def fill(conn, count, prefix="key:"):
    names = {("%s%d" % (prefix, i)).encode() for i in range(count)}
    ordered = sorted(names)
    for start in range(0, count, 500):
        line = ["MSET"]
        for name in ordered[start:start + 500]:
            line += [name, b"v"]
        assert conn.cmd(*line) == b"OK"
    return names


def scan_all(conn, *options):
    """A whole walk; gives the keys in the order of arrival."""
    cursor, found, calls = b"0", [], 0
    while True:
        cursor, keys = conn.cmd("SCAN", cursor, *options)
        found += keys
        calls += 1
        assert int(cursor) < 1 << 53
        assert calls < 200000
        if cursor == b"0":
            return found


# --- DEL, UNLINK, EXISTS, TOUCH, TYPE ---


@pytest.mark.parametrize("command", ["DEL", "UNLINK"])
def test_delete_counts_what_existed(raw, command):
    raw.cmd("MSET", "a", "1", "b", "2", "c", "3")
    assert raw.cmd(command, "a", "none", "a", "b") == 2
    assert raw.cmd("EXISTS", "a", "b", "c") == 1
    assert raw.cmd(command, "a") == 0


@pytest.mark.parametrize("count", [1, 2, 3, 15, 16, 17, 33, 1000])
def test_long_key_lists(raw, count):
    names = sorted(fill(raw, count))
    assert raw.cmd("EXISTS", *names, "none") == count
    assert raw.cmd("TOUCH", *names, "none") == count
    assert raw.cmd("UNLINK", *names[::2]) == len(names[::2])
    assert raw.cmd("EXISTS", *names) == count - len(names[::2])
    assert raw.cmd("DEL", *names) == count - len(names[::2])
    assert raw.cmd("DBSIZE") == 0


def test_exists_counts_a_key_as_often_as_it_is_named(raw):
    raw.cmd("SET", "a", "1")
    assert raw.cmd("EXISTS", "a", "a", "b", "a") == 3
    assert raw.cmd("TOUCH", "a", "a", "b") == 2


def test_large_values_are_deleted(raw):
    raw.cmd("SET", "a", b"x" * 3_000_000)
    assert raw.cmd("UNLINK", "a") == 1
    raw.cmd("SET", "a", b"x" * 3_000_000)
    assert raw.cmd("DEL", "a") == 1
    assert raw.cmd("GET", "a") is None


def test_type(raw):
    raw.cmd("SET", "a", "1")
    assert raw.cmd_bytes("TYPE", "a") == b"+string\r\n"
    assert raw.cmd_bytes("TYPE", "none") == b"+none\r\n"


def test_lookups_count_hits_and_misses(raw):
    def counts():
        text = raw.cmd("INFO", "stats").decode()
        fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
        return int(fields["keyspace_hits"]), int(fields["keyspace_misses"])

    raw.cmd("SET", "a", "1")
    hits, misses = counts()
    for command in (["EXISTS", "a", "none"], ["TYPE", "a"], ["TYPE", "none"], ["TTL", "a"],
                    ["TOUCH", "a", "none"], ["OBJECT", "ENCODING", "a"]):
        raw.cmd(*command)
    assert counts() == (hits + 5, misses + 3)
    for command in (["DEL", "none"], ["EXPIRE", "none", "10"], ["PERSIST", "none"]):
        raw.cmd(*command)
    assert counts() == (hits + 5, misses + 3)


# --- RENAME, RENAMENX ---


def test_rename_moves_value_and_expiry(raw):
    raw.cmd("SET", "a", "1", "PX", "100000")
    raw.cmd("SET", "b", "old")
    assert raw.cmd("RENAME", "a", "b") == b"OK"
    assert raw.cmd("GET", "b") == b"1"
    assert raw.cmd("EXISTS", "a") == 0
    assert 0 < raw.cmd("PTTL", "b") <= 100000


def test_rename_replaces_the_expiry_of_the_target(raw):
    raw.cmd("SET", "a", "1")
    raw.cmd("SET", "b", "old", "PX", "100000")
    assert raw.cmd("RENAME", "a", "b") == b"OK"
    assert raw.cmd("TTL", "b") == -1


def test_rename_to_itself(raw):
    assert raw.cmd("RENAME", "a", "a") == NO_KEY
    raw.cmd("SET", "a", "1")
    assert raw.cmd("RENAME", "a", "a") == b"OK"
    assert raw.cmd("RENAMENX", "a", "a") == 0
    assert raw.cmd("GET", "a") == b"1"


def test_rename_of_nothing(raw):
    raw.cmd("SET", "b", "1")
    assert raw.cmd("RENAME", "a", "b") == NO_KEY
    assert raw.cmd("RENAMENX", "a", "b") == NO_KEY
    assert raw.cmd("GET", "b") == b"1"


def test_renamenx(raw):
    raw.cmd("MSET", "a", "1", "b", "2")
    assert raw.cmd("RENAMENX", "a", "b") == 0
    assert raw.cmd("MGET", "a", "b") == [b"1", b"2"]
    assert raw.cmd("RENAMENX", "a", "c") == 1
    assert raw.cmd("MGET", "a", "b", "c") == [None, b"2", b"1"]


@pytest.mark.parametrize("size", [0, 40, 1000, 20000, 200000])
def test_rename_and_copy_of_every_size(raw, size):
    value = bytes(i % 251 for i in range(size))
    raw.cmd("SET", "a", value)
    assert raw.cmd("RENAME", "a", "another key with a longer name") == b"OK"
    assert raw.cmd("COPY", "another key with a longer name", "b") == 1
    assert raw.cmd("APPEND", "b", "!") == size + 1
    assert raw.cmd("GET", "another key with a longer name") == value
    assert raw.cmd("GET", "b") == value + b"!"


# --- COPY, MOVE ---


def test_copy(raw):
    raw.cmd("SET", "a", "1", "PX", "100000")
    raw.cmd("SET", "b", "2")
    assert raw.cmd("COPY", "a", "b") == 0
    assert raw.cmd("COPY", "none", "c") == 0
    assert raw.cmd("COPY", "a", "b", "REPLACE") == 1
    assert raw.cmd("GET", "b") == b"1"
    assert 0 < raw.cmd("PTTL", "b") <= 100000
    assert raw.cmd("PERSIST", "b") == 1
    assert raw.cmd("TTL", "a") > 0


def test_copy_to_another_database(raw):
    raw.cmd("SET", "a", "1")
    assert raw.cmd("COPY", "a", "a", "DB", "3") == 1
    assert raw.cmd("COPY", "a", "a", "DB", "3") == 0
    assert raw.cmd("COPY", "a", "a", "db", "3", "replace") == 1
    assert raw.cmd("SELECT", "3") == b"OK"
    assert raw.cmd("GET", "a") == b"1"
    assert raw.cmd("DBSIZE") == 1


@pytest.mark.parametrize("options,error", [
    ([], SAME),
    (["DB", "0"], SAME),
    (["DB", "99"], DB_RANGE),
    (["DB", "-1"], DB_RANGE),
    (["DB", "x"], NOT_INTEGER),
    (["DB"], SYNTAX),
    (["FOO"], SYNTAX),
    (["REPLACE", "FOO"], SYNTAX),
])
def test_copy_errors(raw, options, error):
    raw.cmd("SET", "a", "1")
    assert raw.cmd("COPY", "a", "a", *options) == error


def test_move(raw):
    raw.cmd("SET", "a", "1", "PX", "100000")
    assert raw.cmd("MOVE", "a", "3") == 1
    assert raw.cmd("EXISTS", "a") == 0
    raw.cmd("SET", "a", "2")
    assert raw.cmd("MOVE", "a", "3") == 0
    assert raw.cmd("MOVE", "none", "3") == 0
    assert raw.cmd("GET", "a") == b"2"
    raw.cmd("SELECT", "3")
    assert raw.cmd("GET", "a") == b"1"
    assert 0 < raw.cmd("PTTL", "a") <= 100000


@pytest.mark.parametrize("db,error", [("0", SAME), ("16", DB_RANGE), ("-1", DB_RANGE),
                                      ("x", NOT_INTEGER), ("99999999999", INT_RANGE)])
def test_move_errors(raw, db, error):
    raw.cmd("SET", "a", "1")
    assert raw.cmd("MOVE", "a", db) == error


def test_a_due_key_is_no_obstacle(raw):
    raw.cmd("DEBUG", "SET-ACTIVE-EXPIRE", "0")
    try:
        raw.cmd("SELECT", "3")
        raw.cmd("SET", "a", "old", "PX", "1")
        raw.cmd("SELECT", "0")
        raw.cmd("MSET", "a", "1", "src", "2")
        raw.cmd("SET", "due", "old", "PX", "1")
        while raw.cmd("EXISTS", "due"):
            pass
        assert raw.cmd("MOVE", "a", "3") == 1
        assert raw.cmd("RENAMENX", "src", "due") == 1
        assert raw.cmd("GET", "due") == b"2"
    finally:
        raw.cmd("DEBUG", "SET-ACTIVE-EXPIRE", "1")


# --- KEYS ---


@pytest.mark.parametrize("pattern,expected", [
    ("*", {"one", "two", "three", "t[o", "\\x"}),
    ("t*", {"two", "three", "t[o"}),
    ("t?o", {"two", "t[o"}),
    ("t[a-w]o", {"two"}),
    ("t[^w]o", {"t[o"}),
    ("t\\[o", {"t[o"}),
    ("\\\\x", {"\\x"}),
    ("*e", {"one", "three"}),
    ("", set()),
    ("one", {"one"}),
])
def test_keys(raw, pattern, expected):
    raw.cmd("MSET", "one", 1, "two", 2, "three", 3, "t[o", 4, "\\x", 5)
    assert {key.decode() for key in raw.cmd("KEYS", pattern)} == expected


def test_keys_sees_its_database_only_and_nothing_due(raw):
    raw.cmd("DEBUG", "SET-ACTIVE-EXPIRE", "0")
    try:
        raw.cmd("SET", "due", "1", "PX", "1")
        raw.cmd("SET", "a", "1")
        while raw.cmd("EXISTS", "due"):
            pass
        raw.cmd("SET", "due2", "1", "PXAT", "1")
        assert raw.cmd("KEYS", "*") == [b"a"]
        raw.cmd("SELECT", "1")
        assert raw.cmd("KEYS", "*") == []
    finally:
        raw.cmd("DEBUG", "SET-ACTIVE-EXPIRE", "1")


# --- SCAN ---


@pytest.mark.parametrize("count", [None, 1, 7, 100, 100000])
def test_scan_reports_every_key(raw, count):
    names = fill(raw, 2000)
    options = [] if count is None else ["COUNT", count]
    found = scan_all(raw, *options)
    assert set(found) == names


@pytest.mark.kvik_only  # the reference may report a key twice
def test_scan_reports_a_stable_key_once_while_others_come_and_go(raw, connect):
    stable = fill(raw, 3000, "stable:")
    other = connect()
    cursor, found, step = b"0", collections.Counter(), 0
    while True:
        cursor, keys = raw.cmd("SCAN", cursor, "COUNT", 20)
        found.update(keys)
        names = ["tmp:%d:%d" % (step, i) for i in range(40)]
        other.cmd("MSET", *[word for name in names for word in (name, "x")])
        if step % 2:
            other.cmd("DEL", *["tmp:%d:%d" % (step - 1, i) for i in range(40)])
        step += 1
        if cursor == b"0":
            break
        assert step < 10000
    assert {key: found[key] for key in stable} == {key: 1 for key in stable}


def test_scan_of_an_empty_database_ends_at_once(raw):
    assert raw.cmd("SCAN", "0") == [b"0", []]


def test_scan_does_about_count(raw):
    fill(raw, 5000)
    keys = raw.cmd("SCAN", "0", "COUNT", 100)[1]
    assert 90 <= len(keys) <= 300
    assert len(raw.cmd("SCAN", "0", "COUNT", 100000)[1]) == 5000


def test_scan_match_and_type(raw):
    names = fill(raw, 300)
    raw.cmd("SET", "other", "1")
    assert set(scan_all(raw, "MATCH", "key:*")) == names
    assert set(scan_all(raw, "MATCH", "key:1?", "COUNT", 50)) == {b"key:%d" % i
                                                                  for i in range(10, 20)}
    assert set(scan_all(raw, "TYPE", "STRING", "match", "o*")) == {b"other"}
    assert scan_all(raw, "TYPE", "hash") == []
    assert scan_all(raw, "TYPE", "foo") == []


def test_scan_in_a_transaction(raw):
    names = fill(raw, 100)
    raw.cmd("MULTI")
    raw.cmd("SCAN", "0", "COUNT", 1000)
    assert set(raw.cmd("EXEC")[0][1]) == names


@pytest.mark.parametrize("args,error", [
    (["x"], b"ERR invalid cursor"),
    (["1x"], b"ERR invalid cursor"),
    ([" 1"], b"ERR invalid cursor"),
    (["18446744073709551616"], b"ERR invalid cursor"),
    (["0", "COUNT"], b"ERR syntax error"),
    (["0", "FOO"], b"ERR syntax error"),
    (["0", "FOO", "1"], b"ERR syntax error"),
    (["0", "COUNT", "0"], b"ERR syntax error"),
    (["0", "COUNT", "-1"], b"ERR syntax error"),
    (["0", "COUNT", "x"], b"ERR value is not an integer or out of range"),
    (["0", "MATCH", "*", "COUNT"], b"ERR syntax error"),
])
def test_scan_errors(raw, args, error):
    assert raw.cmd("SCAN", *args) == Error(error)


@pytest.mark.parametrize("cursor", ["18446744073709551615", "9007199254740991", "99999999999999999"])
def test_scan_cursor_out_of_the_keyspace_ends(raw, cursor):
    fill(raw, 10)
    cursor, keys = raw.cmd("SCAN", cursor)
    assert cursor == b"0"
    assert len(keys) <= 10


def test_scan_redis_py(client):
    for i in range(500):
        client.set("k%d" % i, i)
    assert sorted(client.scan_iter(match="k1*")) == sorted(
        b"k%d" % i for i in range(500) if str(i).startswith("1"))


# --- RANDOMKEY ---


def test_randomkey_of_nothing(raw):
    assert raw.cmd("RANDOMKEY") is None
    raw.cmd("SET", "a", "1")
    raw.cmd("SELECT", "1")
    assert raw.cmd("RANDOMKEY") is None


@pytest.mark.kvik_only  # the reference is unfair where a bucket holds several keys
@pytest.mark.parametrize("count", [1, 2, 5, 20])
def test_randomkey_is_fair_among_few_keys(raw, count):
    names = fill(raw, count)
    draws = 300 * count
    raw.send(b"*1\r\n$9\r\nRANDOMKEY\r\n" * draws)
    found = collections.Counter(raw.read() for _ in range(draws))
    assert set(found) == names
    # 300 expected each; 5 standard deviations are 87.
    assert all(200 <= n <= 400 for n in found.values()), found


@pytest.mark.kvik_only
def test_randomkey_reaches_all_of_many_keys(raw):
    names = fill(raw, 3000)
    raw.send(b"*1\r\n$9\r\nRANDOMKEY\r\n" * 30000)
    found = {raw.read() for _ in range(30000)}
    assert found <= names
    assert len(found) > 2900


def test_randomkey_skips_due_keys(raw):
    raw.cmd("DEBUG", "SET-ACTIVE-EXPIRE", "0")
    try:
        raw.cmd("SET", "live", "1")
        raw.cmd("SET", "due", "1", "PX", "1")
        while raw.cmd("EXISTS", "due"):
            pass
        assert raw.cmd("RANDOMKEY") == b"live"
    finally:
        raw.cmd("DEBUG", "SET-ACTIVE-EXPIRE", "1")


@pytest.fixture
def flood(connect):
    """Three connections that write and delete keys "w..." until the test ends."""
    end = threading.Event()
    problems = []

    def write(conn, number):
        try:
            while not end.is_set():
                names = ["w%d:%d" % (number, i) for i in range(50)]
                conn.send(b"".join(encode("SET", name, "v") for name in names) +
                          encode("DEL", *names[::2]) + encode("MGET", *names))
                for _ in range(52):
                    conn.read()
        except Exception as problem:  # told to the test, which runs on another thread
            problems.append(problem)

    threads = [threading.Thread(target=write, args=(connect(), i)) for i in range(3)]
    for thread in threads:
        thread.start()
    yield
    end.set()
    for thread in threads:
        thread.join()
    assert not problems


def test_scan_and_randomkey_in_a_flood_of_writes(raw, flood):
    stable = fill(raw, 500, "stable:")
    deadline = time.monotonic() + 1
    while time.monotonic() < deadline:
        assert stable <= set(scan_all(raw, "COUNT", 50))
        assert all(raw.cmd("RANDOMKEY") is not None for _ in range(50))
        assert stable <= set(raw.cmd("KEYS", "*"))
        assert raw.cmd("DBSIZE") >= 500
        assert b"\nid=" in raw.cmd("CLIENT", "LIST")


# --- OBJECT ---


@pytest.mark.parametrize("value,encoding,references", [
    ("0", b"int", 2147483647),
    ("9999", b"int", 2147483647),
    ("10000", b"int", 1),
    ("-1", b"int", 1),
    ("hello", b"embstr", 1),
    ("x" * 44, b"embstr", 1),
    ("x" * 45, b"raw", 1),
    ("1.5", b"embstr", 1),
    ("", b"embstr", 1),
])
def test_object_encoding_and_refcount(raw, value, encoding, references):
    raw.cmd("SET", "a", value)
    assert raw.cmd("OBJECT", "ENCODING", "a") == encoding
    assert raw.cmd("OBJECT", "REFCOUNT", "a") == references
    if references == 1:  # the reference shares the idle time of its shared integers
        assert raw.cmd("object", "idletime", "a") in (0, 1)


def test_object_after_change_in_place(raw):
    raw.cmd("SET", "a", "5")
    raw.cmd("APPEND", "a", "6")
    assert raw.cmd("OBJECT", "ENCODING", "a") == b"raw"
    assert raw.cmd("OBJECT", "REFCOUNT", "a") == 1


@pytest.mark.parametrize("sub", ["ENCODING", "REFCOUNT", "IDLETIME", "FREQ"])
def test_object_of_nothing(raw, sub):
    assert raw.cmd("OBJECT", sub, "none") is None


def test_object_errors(raw):
    raw.cmd("SET", "a", "1")
    assert raw.cmd("OBJECT", "FREQ", "a") == Error(
        b"ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note "
        b"that when switching between policies at runtime LRU and LFU data will take some time to "
        b"adjust.")
    assert raw.cmd("OBJECT", "FOO", "a") == Error(
        b"ERR unknown subcommand 'FOO'. Try OBJECT HELP.")
    assert raw.cmd("OBJECT", "ENCODING") == Error(
        b"ERR wrong number of arguments for 'object|encoding' command")
    assert raw.cmd("OBJECT", "HELP")[0].startswith(b"OBJECT <subcommand>")


@pytest.mark.timeout(30)
def test_no_touch_leaves_idle_time(raw, connect):
    quiet = connect()
    raw.cmd("SET", "a", "1")
    time.sleep(2.1)
    quiet.cmd("OBJECT", "ENCODING", "a")
    quiet.cmd("EXISTS", "a")
    quiet.cmd("TTL", "a")
    assert quiet.cmd("OBJECT", "IDLETIME", "a") >= 1
    assert quiet.cmd("TOUCH", "a") == 1
    assert quiet.cmd("OBJECT", "IDLETIME", "a") in (0, 1)
