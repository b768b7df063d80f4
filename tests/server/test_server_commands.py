#!/usr/bin/python3
"""DBSIZE, FLUSHDB, FLUSHALL, SWAPDB, TIME, LOLWUT, SHUTDOWN, MEMORY, SLOWLOG, DEBUG."""
import re
import time

import pytest

from process import TIME_SCALE
from raw import Closed, Error, Status, Verbatim, parse_all

SYNTAX = Error(b"ERR syntax error")


def info(conn, section):
    text = conn.cmd("INFO", section).decode()
    return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)


# --- DBSIZE, FLUSH, SWAPDB ---


def test_dbsize_and_flush(raw):
    raw.cmd("MSET", "a", "1", "b", "2")
    raw.cmd("SELECT", "1")
    raw.cmd("SET", "c", "3")
    assert raw.cmd("DBSIZE") == 1
    assert raw.cmd("FLUSHDB") == b"OK"
    assert raw.cmd("DBSIZE") == 0
    raw.cmd("SELECT", "0")
    assert raw.cmd("DBSIZE") == 2
    raw.cmd("SELECT", "1")
    assert raw.cmd("FLUSHALL") == b"OK"
    raw.cmd("SELECT", "0")
    assert raw.cmd("DBSIZE") == 0


@pytest.mark.parametrize("command", ["FLUSHDB", "FLUSHALL"])
@pytest.mark.parametrize("word", [[], ["SYNC"], ["async"]])
def test_flush_words(raw, command, word):
    for i in range(300):
        raw.cmd("SET", "k%d" % i, "v" * i, "EX", "100")
    assert raw.cmd(command, *word) == b"OK"
    assert raw.cmd("DBSIZE") == 0
    raw.cmd("SET", "k1", "new")
    assert raw.cmd("GET", "k1") == b"new"
    assert raw.cmd("TTL", "k1") == -1
    assert raw.cmd("EXISTS", "k2") == 0


@pytest.mark.parametrize("command", ["FLUSHDB", "FLUSHALL"])
def test_flush_errors(raw, command):
    raw.cmd("SET", "a", "1")
    assert raw.cmd(command, "FOO") == SYNTAX
    assert raw.cmd(command, "SYNC", "ASYNC") == SYNTAX
    assert raw.cmd("DBSIZE") == 1


def test_swapdb(raw, connect):
    other = connect()
    other.cmd("SELECT", "1")
    raw.cmd("SET", "a", "zero", "EX", "100")
    other.cmd("SET", "a", "one")
    assert raw.cmd("SWAPDB", "0", "1") == b"OK"
    assert raw.cmd("GET", "a") == b"one"
    assert raw.cmd("TTL", "a") == -1
    assert other.cmd("GET", "a") == b"zero"
    assert other.cmd("TTL", "a") > 0
    assert raw.cmd("SWAPDB", "0", "0") == b"OK"
    assert raw.cmd("GET", "a") == b"one"


@pytest.mark.parametrize("a,b,error", [
    ("x", "1", b"ERR invalid first DB index"), ("0", "x", b"ERR invalid second DB index"),
    ("0", "16", b"ERR DB index is out of range"), ("-1", "0", b"ERR DB index is out of range"),
])
def test_swapdb_errors(raw, a, b, error):
    assert raw.cmd("SWAPDB", a, b) == Error(error)


# --- TIME, LOLWUT ---


def test_time(raw):
    before = time.time()
    seconds, micros = raw.cmd("TIME")
    assert before - 1 <= int(seconds) + int(micros) / 1e6 <= time.time() + 1
    assert 0 <= int(micros) < 1000000


def test_lolwut(raw, reference):
    text = raw.cmd("LOLWUT")
    assert text.decode().rstrip().splitlines()[-1].split()[-2] == "ver."
    assert raw.cmd("LOLWUT", "VERSION", "x") == Error(
        b"ERR value is not an integer or out of range")
    raw.hello3()
    assert isinstance(raw.cmd("LOLWUT", "VERSION", "5", "4", "3"), Verbatim)
    if not reference:
        lines = raw.cmd("LOLWUT", "VERSION", "5", "4", "3").decode().splitlines()
        assert [len(line) for line in lines[:4]] == [4, 4, 4, 0]
        assert len(raw.cmd("LOLWUT", "VERSION", "5", "999999999", "999999999")) < 1 << 20


# --- SHUTDOWN ---


@pytest.mark.parametrize("words", [["FOO"], ["SAVE", "NOSAVE"], ["ABORT", "NOW"], ["NOW", "FOO"]])
def test_shutdown_syntax(raw, words):
    assert raw.cmd("SHUTDOWN", *words) == SYNTAX


def test_shutdown_abort_of_nothing(raw):
    assert raw.cmd("SHUTDOWN", "ABORT") == Error(b"ERR No shutdown in progress.")


@pytest.mark.parametrize("words", [[], ["NOSAVE"], ["NOSAVE", "NOW", "FORCE"], ["now"]])
def test_shutdown(start_server, words):
    server = start_server()
    with server.raw() as conn, server.raw() as other:
        other.cmd("SET", "a", "1")
        conn.send_cmd("SHUTDOWN", *words)
        conn.expect_closed()
        other.expect_closed()
    assert server.wait() == 0


# --- MEMORY ---


def test_memory_usage(raw):
    assert raw.cmd("MEMORY", "USAGE", "none") is None
    raw.cmd("SET", "a", "1")
    raw.cmd("SET", "big", "x" * 100000)
    assert 0 < raw.cmd("MEMORY", "USAGE", "a") < 100
    assert 100000 <= raw.cmd("MEMORY", "USAGE", "big", "SAMPLES", "0") < 140000
    for args, error in ((["SAMPLES"], SYNTAX), (["SAMPLES", "-1"], SYNTAX), (["FOO", "1"], SYNTAX),
                        (["SAMPLES", "0", "x"], SYNTAX),
                        (["SAMPLES", "x"],
                         Error(b"ERR value is not an integer or out of range"))):
        assert raw.cmd("MEMORY", "USAGE", "a", *args) == error
        assert raw.cmd("MEMORY", "USAGE", "none", *args) == error


@pytest.mark.kvik_only
def test_memory_usage_adds_up(raw):
    def dataset_without_tables():
        stats = raw.cmd("MEMORY", "STATS")
        stats = dict(zip(stats[0::2], stats[1::2]))
        tables = stats.get(b"db.0", [0, 0, 0, 0])
        return stats[b"dataset.bytes"] - tables[1] - tables[3]

    raw.cmd("SET", "first", "1")
    before, total = dataset_without_tables(), 0
    for i in range(2000):
        raw.cmd("SET", "key:%d" % i, "v" * (i % 500))
        total += raw.cmd("MEMORY", "USAGE", "key:%d" % i)
    assert dataset_without_tables() - before == total


def test_memory_stats(raw):
    raw.cmd("SET", "a", "1")
    raw.hello3()
    stats = raw.cmd("MEMORY", "STATS")
    for name in ("peak.allocated total.allocated startup.allocated replication.backlog "
                 "clients.slaves clients.normal cluster.links aof.buffer lua.caches "
                 "functions.caches overhead.total keys.count keys.bytes-per-key dataset.bytes "
                 "dataset.percentage peak.percentage allocator.allocated allocator.active "
                 "allocator.resident allocator-fragmentation.ratio allocator-fragmentation.bytes "
                 "allocator-rss.ratio allocator-rss.bytes rss-overhead.ratio rss-overhead.bytes "
                 "fragmentation fragmentation.bytes").split():
        assert isinstance(stats[name.encode()], (int, float)), name
    assert stats[b"keys.count"] == 1
    assert set(stats[b"db.0"]) >= {b"overhead.hashtable.main", b"overhead.hashtable.expires"}
    assert b"db.1" not in stats
    assert stats[b"total.allocated"] > 0


def test_memory_words(raw):
    assert raw.cmd("MEMORY", "PURGE") == b"OK"
    assert len(raw.cmd("MEMORY", "DOCTOR")) > 10
    assert len(raw.cmd("MEMORY", "MALLOC-STATS")) > 10
    assert raw.cmd("MEMORY", "HELP")[0].startswith(b"MEMORY <subcommand>")
    assert raw.cmd("MEMORY", "FOO") == Error(b"ERR unknown subcommand 'FOO'. Try MEMORY HELP.")


# --- SLOWLOG ---


@pytest.fixture
def slow(raw):
    """A connection to the server with every command in the slow log."""
    raw.cmd("CONFIG", "SET", "slowlog-log-slower-than", "0")
    raw.cmd("SLOWLOG", "RESET")
    yield raw
    raw.cmd("CONFIG", "SET", "slowlog-log-slower-than", "10000", "slowlog-max-len", "128")
    raw.cmd("SLOWLOG", "RESET")


def test_slowlog_entry(slow):
    slow.cmd("CLIENT", "SETNAME", "me")
    slow.cmd("SET", "a", "1")
    entry = slow.cmd("SLOWLOG", "GET", "1")[0]
    assert len(entry) == 6
    number, when, micros, args, address, name = entry
    assert isinstance(number, int) and abs(when - time.time()) < 5 and 0 <= micros < 10_000_000
    assert args == [b"SET", b"a", b"1"]
    assert address.decode() == "%s:%d" % slow.sock.getsockname()
    assert name == b"me"


def test_slowlog_order_and_counts(slow):
    for i in range(20):
        slow.cmd("GET", "k%d" % i)
    assert len(slow.cmd("SLOWLOG", "GET")) == 10
    entries = slow.cmd("SLOWLOG", "GET", "-1")
    numbers = [entry[0] for entry in entries]
    assert numbers == sorted(numbers, reverse=True)
    assert len(entries) == slow.cmd("SLOWLOG", "LEN") - 1
    assert slow.cmd("SLOWLOG", "GET", "0") == []
    assert len(slow.cmd("SLOWLOG", "GET", "3")) == 3


def test_slowlog_max_len(slow):
    slow.cmd("CONFIG", "SET", "slowlog-max-len", "5")
    for _ in range(20):
        slow.cmd("GET", "a")
    assert slow.cmd("SLOWLOG", "LEN") == 5


def test_slowlog_shortens(slow):
    slow.cmd("MGET", *["k%d" % i for i in range(100)])
    slow.cmd("SET", "a", "x" * 200)
    long_value, many = slow.cmd("SLOWLOG", "GET", "2")
    assert long_value[3][2] == b"x" * 128 + b"... (72 more bytes)"
    assert len(many[3]) == 32
    assert many[3][-1] == b"... (70 more arguments)"


def test_slowlog_off_and_errors(raw):
    raw.cmd("CONFIG", "SET", "slowlog-log-slower-than", "-1")
    raw.cmd("SLOWLOG", "RESET")
    raw.cmd("DEBUG", "SLEEP", "0.02")
    assert raw.cmd("SLOWLOG", "LEN") == 0
    raw.cmd("CONFIG", "SET", "slowlog-log-slower-than", "10000")
    raw.cmd("DEBUG", "SLEEP", "0.02")
    assert raw.cmd("SLOWLOG", "LEN") == 1
    wrong = Error(b"ERR count should be greater than or equal to -1")
    assert raw.cmd("SLOWLOG", "GET", "x") == raw.cmd("SLOWLOG", "GET", "-2") == wrong
    assert raw.cmd("SLOWLOG", "GET", "1", "2").text.startswith(b"ERR")
    assert raw.cmd("SLOWLOG", "HELP")[0].startswith(b"SLOWLOG <subcommand>")


# --- DEBUG ---

NOT_ALLOWED = Error(
    b'ERR DEBUG command not allowed. If the enable-debug-command option is set to "local", you can '
    b"run it from a local connection, otherwise you need to set this option in the configuration "
    b"file, and then restart the server.")


def test_debug_is_off_by_default(start_server):
    server = start_server(debug=False)
    with server.raw() as conn, server.raw(unix=True) as local:
        for line in (["SLEEP", "0"], ["HELP"], ["FOO"]):
            assert conn.cmd("DEBUG", *line) == NOT_ALLOWED
            assert local.cmd("DEBUG", *line) == NOT_ALLOWED


def test_debug_local(start_server):
    server = start_server("--enable-debug-command", "local", debug=False)
    with server.raw() as conn, server.raw(unix=True) as local:
        assert conn.cmd("DEBUG", "SLEEP", "0") == b"OK"
        assert local.cmd("DEBUG", "SLEEP", "0") == b"OK"


@pytest.mark.parametrize("words", [["FOO"], ["SLEEP"], ["SLEEP", "0", "x"], ["DIGEST", "x"],
                                   ["OBJECT"], ["LOG"], ["SET-ACTIVE-EXPIRE"], ["HELP", "x"]])
def test_debug_errors(raw, words):
    text = "ERR unknown subcommand or wrong number of arguments for '%s'. Try DEBUG HELP."
    assert raw.cmd("DEBUG", *words) == Error((text % words[0]).encode())


def test_debug_sleep_stops_everybody(raw, connect):
    other = connect()
    other.cmd("PING")
    raw.send_cmd("DEBUG", "SLEEP", "0.3")
    time.sleep(0.05)
    start = time.monotonic()
    assert other.cmd("PING") == b"PONG"
    assert time.monotonic() - start > 0.1
    assert raw.read() == b"OK"


@pytest.mark.parametrize("value,encoding,length", [
    ("12", "int", 2), ("-12", "int", 2), ("1000", "int", 3), ("100000", "int", 5),
    ("12345678901", "int", 12), ("hello", "embstr", 6),
])
def test_debug_object(raw, value, encoding, length):
    raw.cmd("SET", "a", value)
    reply = raw.cmd("DEBUG", "OBJECT", "a")
    assert isinstance(reply, Status)
    match = re.fullmatch(r"Value at:0x[0-9a-f]+ refcount:\d+ encoding:(\w+) "
                         r"serializedlength:(\d+) lru:\d+ lru_seconds_idle:\d+", reply.decode())
    assert match and match.group(1) == encoding and int(match.group(2)) == length
    assert raw.cmd("DEBUG", "OBJECT", "none") == Error(b"ERR no such key")


@pytest.mark.kvik_only
def test_debug_check(raw):
    raw.cmd("SET", "k", "v", "PX", "100000")
    raw.cmd("HSET", "h", "f", "v")
    raw.cmd("HEXPIRE", "h", "100", "FIELDS", "1", "f")
    assert raw.cmd("DEBUG", "CHECK") == b"OK"
    assert b"CHECK" in raw.cmd("DEBUG", "HELP")
    assert isinstance(raw.cmd("DEBUG", "CHECK", "x"), Error)


def test_debug_digest(raw):
    empty = raw.cmd("DEBUG", "DIGEST")
    assert isinstance(empty, Status) and empty == b"0" * 40
    raw.cmd("MSET", "a", "1", "b", "2")
    raw.cmd("SET", "c", "3", "PXAT", "4102444800000")
    first = raw.cmd("DEBUG", "DIGEST")
    raw.cmd("FLUSHALL")
    raw.cmd("SET", "c", "3", "PXAT", "4102444800000")
    raw.cmd("SET", "b", "2")
    raw.cmd("SETRANGE", "a", "0", "1")
    assert raw.cmd("DEBUG", "DIGEST") == first != empty
    raw.cmd("SET", "a", "2")
    assert raw.cmd("DEBUG", "DIGEST") != first


def test_debug_digest_value(raw):
    raw.cmd("MSET", "a", "1", "b", "1", "c", "2")
    a, b, c, none = raw.cmd("DEBUG", "DIGEST-VALUE", "a", "b", "c", "none")
    assert a == b != c
    assert none == b"0" * 40
    assert raw.cmd("DEBUG", "DIGEST-VALUE") == []


def test_debug_log(server, raw):
    assert raw.cmd("DEBUG", "LOG", "a-message-to-find") == b"OK"
    assert "DEBUG LOG: a-message-to-find" in server.log()


@pytest.mark.kvik_only
def test_debug_stringmatch(raw):
    assert raw.cmd("DEBUG", "STRINGMATCH-LEN", "a*b", "axxb") == 1
    assert raw.cmd("DEBUG", "STRINGMATCH-LEN", "a*b", "axx") == 0
    start = time.monotonic()
    assert raw.cmd("DEBUG", "STRINGMATCH-LEN", "a*" * 50 + "b", "a" * 20000) == 0
    assert time.monotonic() - start < 5 * TIME_SCALE


# --- CHANGE-STREAM ---


def read_stream(conn):
    data = b""
    while True:
        part = conn.cmd("DEBUG", "CHANGE-STREAM", "READ")
        if not part:
            return parse_all(data)
        data += part


@pytest.mark.kvik_only
def test_change_stream_has_one_reader(raw):
    none = Error(b"ERR The change stream has no reader")
    assert raw.cmd("DEBUG", "CHANGE-STREAM", "READ") == none
    assert raw.cmd("DEBUG", "CHANGE-STREAM", "STOP") == none
    assert raw.cmd("DEBUG", "CHANGE-STREAM", "FOO") == SYNTAX
    assert raw.cmd("DEBUG", "CHANGE-STREAM", "START") == b"OK"
    assert raw.cmd("DEBUG", "CHANGE-STREAM", "START") == Error(
        b"ERR The change stream has a reader already")
    assert raw.cmd("DEBUG", "CHANGE-STREAM", "READ") == b""
    assert raw.cmd("DEBUG", "CHANGE-STREAM", "STOP") == b"OK"


@pytest.mark.kvik_only
def test_change_stream_applied_to_an_empty_server_gives_the_same_keyspace(raw, start_server):
    copy = start_server()
    assert raw.cmd("DEBUG", "CHANGE-STREAM", "START") == b"OK"
    for line in (["SET", "a", "1"], ["SET", "a2", "x" * 50000, "EX", 1000], ["SELECT", 3],
                 ["MSET", "b", "2", "c", "3"], ["EXPIRE", "b", 1000], ["RENAME", "c", "d"],
                 ["COPY", "b", "e", "DB", 5], ["MOVE", "d", 0], ["SELECT", 0], ["SWAPDB", 0, 9],
                 ["SET", "f", "4", "PX", 100000], ["PERSIST", "f"], ["INCR", "g"],
                 ["GETDEL", "g"], ["SELECT", 7], ["SET", "h", "1"], ["FLUSHDB"],
                 ["SET", "i", "1"], ["DEL", "i", "none"], ["UNLINK", "none"], ["SELECT", 0]):
        assert not isinstance(raw.cmd(*line), Error), line
    raw.cmd("MULTI")
    raw.cmd("APPEND", "a", "more")
    raw.cmd("INCRBY", "n", 5)
    raw.cmd("EXEC")
    lines = read_stream(raw)
    assert raw.cmd("DEBUG", "CHANGE-STREAM", "STOP") == b"OK"
    with copy.raw() as conn:
        for line in lines:
            assert not isinstance(conn.cmd(*line), Error), line
        assert conn.cmd("DEBUG", "DIGEST") == raw.cmd("DEBUG", "DIGEST") != b"0" * 40
    names = [line[0].upper() for line in lines]
    assert b"FLUSHDB" in names and b"SWAPDB" in names and b"UNLINK" not in names


@pytest.mark.kvik_only
def test_a_flush_of_nothing_is_in_the_stream(raw):
    assert raw.cmd("DEBUG", "CHANGE-STREAM", "START") == b"OK"
    raw.cmd("FLUSHALL")
    lines = read_stream(raw)
    raw.cmd("DEBUG", "CHANGE-STREAM", "STOP")
    assert [line for line in lines if line[0].upper() != b"SELECT"] == [[b"FLUSHALL"]]
