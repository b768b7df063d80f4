#!/usr/bin/python3
"""Client-side caching: who is told which keys have changed, when, and that nothing stays behind."""
import random
import socket
import threading
import time

import pytest

from process import TIME_SCALE
from raw import Closed, Error, Push, encode


def wait_until(condition, seconds=20):
    deadline = time.monotonic() + seconds * TIME_SCALE
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


def info(conn, name):
    for line in conn.cmd("INFO", "everything").decode().splitlines():
        if line.startswith(name + ":"):
            return int(line.split(":")[1])
    raise AssertionError("INFO has no " + name)


def fields(conn):
    return dict(word.split("=", 1) for word in conn.cmd("CLIENT", "INFO").decode().split())


def told(conn):
    """The keys of all invalidations that were sent before this call; None: forget everything."""
    mark = b"%016x" % random.getrandbits(64)
    conn.send_cmd("PING", mark)
    keys = []
    while True:
        reply = conn.read()
        if reply == mark or reply == [b"pong", mark]:
            return keys
        if isinstance(reply, Push):
            assert reply[0] == b"invalidate", reply
            keys += [None] if reply[1] is None else reply[1]
        else:
            assert reply[:2] == [b"message", b"__redis__:invalidate"], reply
            keys += [None] if reply[2] is None else reply[2]


@pytest.fixture(autouse=True)
def nobody_tracks(raw):
    """The clients of the test before have been noticed to have gone."""
    wait_until(lambda: info(raw, "tracking_clients") == 0)
    raw.cmd("FLUSHALL")


@pytest.fixture
def reader(connect):
    conn = connect()
    conn.hello3()
    return conn


def track(conn, *words):
    assert conn.cmd("CLIENT", "TRACKING", "ON", *words) == b"OK"


# --- by what was read ---

def test_the_bytes_of_an_invalidation(raw, reader):
    track(reader)
    assert reader.cmd("GET", "a key") is None
    raw.cmd("SET", "a key", "v")
    reader.expect(b">2\r\n$10\r\ninvalidate\r\n*1\r\n$5\r\na key\r\n")
    reader.cmd("GET", "")
    raw.cmd("APPEND", "", "x")
    reader.expect(b">2\r\n$10\r\ninvalidate\r\n*1\r\n$0\r\n\r\n")
    raw.cmd("FLUSHALL")
    reader.expect(b">2\r\n$10\r\ninvalidate\r\n_\r\n")


def test_a_key_is_told_once_until_it_is_read_again(raw, reader):
    track(reader)
    reader.cmd("GET", "k")
    for _ in range(3):
        raw.cmd("SET", "k", "v")
    assert told(reader) == [b"k"]
    assert reader.cmd("GET", "k") == b"v"
    raw.cmd("DEL", "k")
    assert told(reader) == [b"k"]
    raw.cmd("SET", "other", "v")
    assert told(reader) == []


def test_every_reading_command_and_every_change(raw, reader):
    track(reader)
    for fill, reading, change in [
            (("SET", "k", "v"), ("MGET", "x", "k"), ("EXPIRE", "k", 100)),
            (("HSET", "k", "f", 1), ("HGETALL", "k"), ("HDEL", "k", "f")),
            (("RPUSH", "k", "a", "b"), ("LRANGE", "k", 0, -1), ("LPOP", "k")),
            (("SADD", "k", "a", "b"), ("SISMEMBER", "k", "a"), ("SREM", "k", "b")),
            (("ZADD", "k", 1, "a"), ("ZSCORE", "k", "a"), ("ZINCRBY", "k", 1, "a")),
            (("SET", "k", "v"), ("STRLEN", "k"), ("RENAME", "k", "z")),
            (("SET", "z", "v"), ("EXISTS", "k"), ("RENAME", "z", "k")),
            (("SET", "k", "v"), ("TTL", "k"), ("COPY", "k", "z", "REPLACE")),
            (("SET", "z", "v"), ("TYPE", "k"), ("COPY", "z", "k", "REPLACE")),
            (("SADD", "{k}s", "a"), ("GET", "k"), ("SUNIONSTORE", "k", "{k}s")),
    ]:
        raw.cmd("FLUSHALL")
        told(reader)
        assert not isinstance(raw.cmd(*fill), Error)
        assert not isinstance(reader.cmd(*reading), Error), reading
        assert not isinstance(raw.cmd(*change), Error)
        keys = told(reader)
        assert keys == ([] if change[:2] == ("COPY", "k") else [b"k"]), (reading, change)


def test_writing_is_not_reading(raw, reader):
    track(reader)
    reader.cmd("SET", "k", "v")
    reader.cmd("GETSET", "k", "w")
    raw.cmd("SET", "k", "x")
    assert told(reader) == []


def test_the_database_does_not_matter(raw, reader):
    track(reader)
    reader.cmd("SELECT", 3)
    reader.cmd("GET", "k")
    raw.cmd("SET", "k", "v")
    assert told(reader) == [b"k"]


def test_batches_and_transactions(raw, reader):
    track(reader)
    keys = [b"k%d" % i for i in range(100)]
    reader.send(b"".join(encode("GET", key) for key in keys))
    for _ in keys:
        assert reader.read() is None
    reader.send(encode("MULTI") + encode("GET", "tx") + encode("EXEC"))
    assert [reader.read() for _ in range(3)][2] == [None]
    raw.send(b"".join(encode("SET", key, "v") for key in keys) + encode("SET", "tx", "v"))
    for _ in range(101):
        raw.read()
    assert sorted(told(reader)) == sorted(keys + [b"tx"])


def test_what_a_script_reads(raw, reader):
    track(reader)
    reader.cmd("EVAL", "return redis.call('get', KEYS[1])", 1, "k")
    raw.cmd("SET", "k", "v")
    assert told(reader) == [b"k"]


def test_keys_that_a_script_declares_and_does_not_read(raw, reader):
    track(reader)
    for command in ("EVAL", "EVAL_RO"):
        assert reader.cmd(command, "return 1", 1, "k") == 1
    raw.cmd("SET", "k", "v")
    assert told(reader) == []


def test_own_changes_are_told_behind_their_replies(raw, reader):
    track(reader)
    reader.cmd("GET", "k")
    reader.send_cmd("SET", "k", "v")
    reader.expect(b"+OK\r\n>2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n")
    reader.send(encode("GET", "k") + encode("SET", "k", "w") + encode("GET", "k") +
                encode("SET", "k", "x"))
    for value in b"vw":
        reader.expect(b"$1\r\n%c\r\n+OK\r\n>2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n" % value)
    reader.cmd("CLIENT", "TRACKING", "OFF")
    track(reader, "NOLOOP")
    reader.cmd("GET", "k")
    reader.cmd("SET", "k", "w")
    assert told(reader) == []
    reader.cmd("GET", "k")
    raw.cmd("SET", "k", "x")
    assert told(reader) == [b"k"]


def test_expiry_and_eviction(start_server):
    server = start_server("--maxmemory-policy", "allkeys-random")
    with server.raw() as conn, server.raw() as reader:
        reader.hello3()
        track(reader)
        conn.cmd("SET", "k", "v", "PX", 50)
        reader.cmd("GET", "k")
        keys = []
        wait_until(lambda: keys.extend(told(reader)) or b"k" in keys)
        conn.cmd("SET", "k", "x" * 100000)
        reader.cmd("GET", "k")
        used = info(conn, "used_memory")
        conn.cmd("CONFIG", "SET", "maxmemory", used + 1000000)
        for i in range(400):
            conn.cmd("SET", "f%d" % i, "x" * 20000)
            if conn.cmd("EXISTS", "k") == 0:
                break
        assert conn.cmd("EXISTS", "k") == 0
        assert told(reader) == [b"k"]


@pytest.mark.kvik_only
def test_a_member_that_is_due_is_nobodys_own_change(raw, connect):
    """Reading meets it and removes it; who wants to hear nothing of his own changes hears of it."""
    raw.cmd("DEBUG", "SET-ACTIVE-EXPIRE", 0)
    try:
        for mode in ((), ("BCAST",)):
            reader = connect()
            reader.hello3()
            track(reader, "NOLOOP", *mode)
            for fill, expire, read in [
                    (("HSET", "h", "f", "v", "g", "w"), ("HPEXPIRE", "h", 20, "FIELDS", 1, "f"),
                     ("HSET", "h", "x", "y")),
                    (("SADD", "s", "f"), ("SPEXPIRE", "s", 20, "MEMBERS", 1, "f"),
                     ("SREM", "s", "z")),
                    (("ZADD", "z", 1, "f"), ("ZPEXPIRE", "z", 20, "MEMBERS", 1, "f"),
                     ("ZREM", "z", "q")),
            ]:
                raw.cmd("FLUSHALL")
                assert raw.cmd(*fill) > 0
                assert raw.cmd(*expire) == [1]
                told(reader)
                reader.cmd("EXISTS", fill[1])
                time.sleep(0.03)
                assert not isinstance(reader.cmd(*read), Error)
                assert fill[1].encode() in told(reader), (mode, fill[1])
            reader.close()
    finally:
        raw.cmd("DEBUG", "SET-ACTIVE-EXPIRE", 1)


# --- options ---

def test_opting_in_and_out(raw, reader):
    track(reader, "OPTIN")
    reader.cmd("GET", "a")
    assert reader.cmd("CLIENT", "CACHING", "YES") == b"OK"
    reader.cmd("GET", "b")
    reader.cmd("GET", "c")
    reader.cmd("CLIENT", "CACHING", "YES")
    reader.send(encode("MULTI") + encode("GET", "d") + encode("GET", "e") + encode("EXEC") +
                encode("GET", "f"))
    for _ in range(5):
        reader.read()
    raw.cmd("MSET", *[word for key in "abcdef" for word in (key, "v")])
    assert sorted(told(reader)) == [b"b", b"d", b"e"]
    reader.cmd("CLIENT", "TRACKING", "OFF")
    track(reader, "OPTOUT")
    reader.cmd("GET", "a")
    assert reader.cmd("CLIENT", "CACHING", "NO") == b"OK"
    reader.cmd("GET", "b")
    reader.cmd("GET", "c")
    raw.cmd("MSET", *[word for key in "abc" for word in (key, "w")])
    assert sorted(told(reader)) == [b"a", b"c"]


@pytest.mark.parametrize("refused", [
    [("GET",)],
    [("NOSUCH", "x")],
    [("CLIENT", "NOSUCH")],
    [("MULTI",), ("NOSUCH",), ("EXEC",)],
    [("MULTI",), ("NOSUCH",), ("DISCARD",)],
])
def test_caching_ends_with_a_command_that_is_refused(raw, reader, refused):
    track(reader, "OPTOUT")
    reader.cmd("CLIENT", "CACHING", "NO")
    for line in refused:
        reader.cmd(*line)
    reader.cmd("GET", "k")
    raw.cmd("SET", "k", "v")
    assert told(reader) == [b"k"]


def test_caching_goes_on_behind_a_refused_client_subcommand(raw, reader):
    track(reader, "OPTIN")
    reader.cmd("CLIENT", "CACHING", "YES")
    assert isinstance(reader.cmd("CLIENT", "CACHING"), Error)
    reader.cmd("GET", "k")
    raw.cmd("SET", "k", "v")
    assert told(reader) == [b"k"]


def test_prefixes(raw, reader):
    track(reader, "BCAST", "PREFIX", "user:", "PREFIX", "object:x")
    raw.cmd("SET", "user:1", "v", "EX", 100)
    raw.cmd("SET", "user", "v")
    raw.cmd("SET", "object:y", "v")
    raw.cmd("HSET", "object:x", "f", "v")
    assert sorted(told(reader)) == [b"object:x", b"user:1"]
    reader.cmd("SET", "user:2", "v")
    assert told(reader) == [b"user:2"]
    track(reader, "BCAST", "PREFIX", "z")
    raw.cmd("SET", "zebra", "v")
    raw.cmd("DEL", "user:1")
    assert sorted(told(reader)) == [b"user:1", b"zebra"]
    assert info(raw, "tracking_total_prefixes") == 3
    reader.cmd("CLIENT", "TRACKING", "OFF")
    assert info(raw, "tracking_total_prefixes") == 0
    track(reader, "BCAST", "NOLOOP")
    reader.cmd("SET", "mine", "v")
    raw.cmd("SET", "anything", "v")
    assert told(reader) == [b"anything"]


@pytest.mark.kvik_only
def test_every_change_is_told_by_prefix_at_once(raw, reader, connect):
    """The reference collects the changes of a round."""
    track(reader, "BCAST")
    waiting = connect()
    waiting.send_cmd("BLPOP", "l", 0)
    wait_until(lambda: info(raw, "blocked_clients") == 1)
    raw.send(encode("LPUSH", "l", 1) + encode("LPUSH", "l", 2) + encode("LPUSH", "l", 3))
    assert [raw.read() for _ in range(3)] == [1, 1, 2]
    assert waiting.read() == [b"l", b"1"]
    assert told(reader) == [b"l"] * 4  # the second is the waiter's
    raw.send(encode("MULTI") + encode("SET", "k", "v") + encode("SET", "k", "w", "EX", 100) +
             encode("EXEC"))
    for _ in range(4):
        raw.read()
    assert told(reader) == [b"k"] * 2


def test_statistics_have_no_say_in_who_is_told(raw, reader):
    track(reader, "BCAST")
    for value in range(3):
        raw.cmd("CONFIG", "RESETSTAT")
        raw.cmd("SET", "k", value)
        assert told(reader) == [b"k"], value


ERRORS = [
    ("TRACKING x", "ERR syntax error"),
    ("TRACKING ON x", "ERR syntax error"),
    ("TRACKING ON REDIRECT", "ERR syntax error"),
    ("TRACKING ON REDIRECT x", "ERR value is not an integer or out of range"),
    ("TRACKING ON REDIRECT 999999999", "ERR The client ID you want redirect to does not exist"),
    ("TRACKING ON REDIRECT 0", "ERR The client ID you want redirect to does not exist"),
    ("TRACKING ON PREFIX a", "ERR PREFIX option requires BCAST mode to be enabled"),
    ("TRACKING ON OPTIN OPTOUT", "ERR You can't specify both OPTIN mode and OPTOUT mode"),
    ("TRACKING ON BCAST OPTIN", "ERR OPTIN and OPTOUT are not compatible with BCAST"),
    ("TRACKING ON BCAST PREFIX ab PREFIX a", "ERR Prefix 'ab' overlaps with another provided prefix "
     "'a'. Prefixes for a single client must not overlap."),
    ("CACHING YES", "ERR CLIENT CACHING can be called only when the client is in tracking mode with "
     "OPTIN or OPTOUT mode enabled"),
    ("TRACKING ON OPTIN", None),
    ("CACHING NO", "ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode."),
    ("CACHING x", "ERR syntax error"),
    ("TRACKING ON OPTOUT", "ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for "
     "this client, and then re-enabling it with a different mode."),
    ("TRACKING ON BCAST", "ERR You can't switch BCAST mode on/off before disabling tracking for this "
     "client, and then re-enabling it with a different mode."),
    ("TRACKING OFF", None),
    ("TRACKING ON BCAST PREFIX foo PREFIX bar", None),
    ("TRACKING ON BCAST PREFIX foobar", "ERR Prefix 'foobar' overlaps with an existing prefix 'foo'. "
     "Prefixes for a single client must not overlap."),
    ("CACHING YES", "ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode."),
    ("TRACKING OFF PREFIX x OPTIN OPTOUT", None),
]


def test_errors(raw):
    for words, error in ERRORS:
        got = raw.cmd("CLIENT", *words.split())
        assert got == (b"OK" if error is None else Error(error.encode())), words


def test_what_a_client_is_told_of_itself(raw, connect):
    other = connect()
    target = other.cmd("CLIENT", "ID")

    def shown():
        return raw.cmd("CLIENT", "TRACKINGINFO")

    assert shown() == [b"flags", [b"off"], b"redirect", -1, b"prefixes", []]
    assert raw.cmd("CLIENT", "GETREDIR") == -1
    assert (fields(raw)["redir"], fields(raw)["flags"]) == ("-1", "N")
    track(raw)
    assert shown() == [b"flags", [b"on"], b"redirect", 0, b"prefixes", []]
    assert (fields(raw)["redir"], fields(raw)["flags"]) == ("0", "t")
    track(raw, "REDIRECT", target, "NOLOOP")
    assert shown() == [b"flags", [b"on", b"noloop"], b"redirect", target, b"prefixes", []]
    assert raw.cmd("CLIENT", "GETREDIR") == target
    raw.cmd("CLIENT", "TRACKING", "OFF")
    track(raw, "OPTIN")
    raw.cmd("CLIENT", "CACHING", "YES")
    assert shown()[1] == [b"on", b"optin", b"caching-yes"]
    raw.cmd("PING")
    assert shown()[1] == [b"on", b"optin"]
    raw.cmd("CLIENT", "TRACKING", "OFF")
    track(raw, "BCAST", "PREFIX", "z", "PREFIX", "b", "PREFIX", "bb"[:0] + "a")
    assert shown() == [b"flags", [b"on", b"bcast"], b"redirect", 0, b"prefixes", [b"a", b"b", b"z"]]
    assert fields(raw)["flags"] == "tB"
    assert info(other, "tracking_clients") == 1
    assert raw.cmd("RESET") == b"RESET"
    assert shown()[1] == [b"off"]
    assert info(other, "tracking_clients") == 0


# --- redirection ---

def test_redirection_to_a_subscriber(raw, connect):
    reader, target = connect(), connect()
    track(reader, "REDIRECT", target.cmd("CLIENT", "ID"))
    reader.cmd("GET", "k")
    raw.cmd("SET", "k", "v")
    target.cmd("SUBSCRIBE", "__redis__:invalidate")
    assert told(target) == []
    reader.cmd("GET", "k")
    raw.cmd("SET", "k", "v")
    target.expect(b"*3\r\n$7\r\nmessage\r\n$20\r\n__redis__:invalidate\r\n*1\r\n$1\r\nk\r\n")
    assert told(reader) == []


def test_redirection_of_several_readers(raw, connect):
    target = connect()
    target.hello3()
    number = target.cmd("CLIENT", "ID")
    readers = [connect() for _ in range(5)]
    for i, reader in enumerate(readers):
        track(reader, "REDIRECT", number)
        reader.cmd("GET", "k%d" % i)
    raw.cmd("MSET", *[word for i in range(5) for word in ("k%d" % i, "v")])
    assert told(target) == [b"k%d" % i for i in range(5)]


@pytest.mark.kvik_only
def test_forget_everything_in_resp2(raw, connect):
    """The reference answers RESP3's null here."""
    reader, target = connect(), connect()
    track(reader, "REDIRECT", target.cmd("CLIENT", "ID"))
    target.cmd("SUBSCRIBE", "__redis__:invalidate")
    raw.cmd("FLUSHALL")
    target.expect(b"*3\r\n$7\r\nmessage\r\n$20\r\n__redis__:invalidate\r\n*-1\r\n")


@pytest.mark.kvik_only
def test_swapping_databases_forgets_everything(raw, reader):
    track(reader)
    reader.cmd("GET", "k")
    raw.cmd("SWAPDB", 0, 1)
    assert told(reader) == [None]


def test_a_target_that_has_gone(raw, reader, connect):
    target = connect()
    number = target.cmd("CLIENT", "ID")
    track(reader, "REDIRECT", number)
    reader.cmd("GET", "k")
    target.close()
    wait_until(lambda: b"id=%d " % number not in raw.cmd("CLIENT", "LIST"))
    raw.cmd("SET", "k", "v")
    reader.expect(b">2\r\n$21\r\ntracking-redir-broken\r\n:%d\r\n" % number)
    assert b"broken_redirect" in reader.cmd("CLIENT", "TRACKINGINFO")[b"flags"]
    assert fields(reader)["flags"] == "tR"
    track(reader)
    reader.cmd("GET", "k")
    raw.cmd("SET", "k", "v")
    assert told(reader) == [b"k"]


# --- order ---

@pytest.mark.timeout(120 * TIME_SCALE)
def test_a_cache_is_never_stale(connect):
    """Writers on all workers. A reader that has seen a writer's reply and was told nothing may trust
    what it has cached."""
    stop, failures = threading.Event(), []
    keys = ["key:%d" % i for i in range(8)]
    pairs = [(connect(), connect()) for _ in range(4)]
    for _, cacher in pairs:
        cacher.hello3()
        track(cacher)

    def work(number, writer, cacher):
        rng = random.Random(number)
        cache = {}
        try:
            for i in range(250):
                key = rng.choice(keys)
                if rng.random() < 0.4:
                    writer.cmd("SET", key, "%d-%d" % (number, i))
                    # From here on this write is in nobody's cache unseen, its own reader's included.
                    for gone in told(cacher):
                        cache.pop(gone.decode(), None)
                    if key in cache:
                        failures.append("%s was cached over a write" % key)
                elif key not in cache:
                    cacher.send_cmd("GET", key)
                    reply = cacher.read()
                    while isinstance(reply, Push):
                        for gone in reply[1]:
                            cache.pop(gone.decode(), None)
                        reply = cacher.read()
                    cache[key] = reply
        except (AssertionError, OSError, Closed) as problem:
            failures.append(repr(problem))
        stop.set()

    threads = [threading.Thread(target=work, args=(i, *pair)) for i, pair in enumerate(pairs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


# --- limits, storms, and what stays ---

def test_the_table_is_bounded(raw, reader):
    raw.cmd("CONFIG", "SET", "tracking-table-max-keys", 100)
    try:
        track(reader)
        keys = {b"k%d" % i for i in range(1000)}
        reader.send(b"".join(encode("GET", key) for key in keys))
        gone, replies = [], 0
        while replies < 1000:
            reply = reader.read()
            if isinstance(reply, Push):
                gone += reply[1]
            else:
                replies += 1
        wait_until(lambda: gone.extend(told(reader)) or info(raw, "tracking_total_keys") <= 100)
        assert len(gone) == len(set(gone)) >= 900
        left = keys - set(gone)
        assert info(raw, "tracking_total_keys") == info(raw, "tracking_total_items") == len(left)
        for key in keys:
            raw.cmd("SET", key, "v")
        assert set(told(reader)) == left
        assert info(raw, "tracking_total_keys") == 0
    finally:
        raw.cmd("CONFIG", "SET", "tracking-table-max-keys", 1000000)


@pytest.mark.kvik_only
def test_lowering_the_limit_and_too_many_prefixes(raw, reader):
    track(reader)
    for i in range(50):
        reader.cmd("GET", "k%d" % i)
    raw.cmd("CONFIG", "SET", "tracking-table-max-keys", 10)
    wait_until(lambda: info(raw, "tracking_total_keys") == 10)
    assert len(told(reader)) == 40
    raw.cmd("CONFIG", "SET", "tracking-table-max-keys", 1000000)
    reader.cmd("CLIENT", "TRACKING", "OFF")
    words = [word for i in range(1025) for word in ("PREFIX", "%d:" % i)]
    assert reader.cmd("CLIENT", "TRACKING", "ON", "BCAST", *words) == Error(
        b"ERR A client can have at most 1024 prefixes")
    track(reader, "BCAST", *words[:2048])
    assert info(raw, "tracking_total_prefixes") == 1024
    raw.cmd("SET", "1023:x", "v")
    assert told(reader) == [b"1023:x"]


@pytest.mark.kvik_only
@pytest.mark.timeout(240 * TIME_SCALE)
def test_clients_that_vanish_leave_nothing(start_server):
    server = start_server()
    with server.raw(timeout=60) as conn:
        def settled():
            return (info(conn, "tracking_clients"), info(conn, "tracking_total_keys"),
                    info(conn, "tracking_total_prefixes"), info(conn, "connected_clients"))

        def bytes_of(name):
            words = conn.cmd("MEMORY", "STATS")
            return dict(zip(words[::2], words[1::2]))[name]

        def storm(rounds, connections):
            for number in range(rounds):
                conns = [server.raw() for _ in range(connections)]
                for i, client in enumerate(conns):
                    client.send(encode("HELLO", 3) + encode("CLIENT", "TRACKING", "ON", *(
                        ("BCAST", "PREFIX", "p%d:" % (i % 7)) if i % 3 == 0 else ())) +
                        encode("GET", "busy") + encode("GET", "own:%d:%d" % (number, i)))
                for i, client in enumerate(conns):
                    if i % 2 == 0:
                        for _ in range(4):
                            client.read()
                    if i % 5 == 0:
                        client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                                               b"\x01\0\0\0\0\0\0\0")
                    client.close()
                conn.cmd("SET", "p%d:x" % (number % 7), "v")

        storm(2, 50)
        wait_until(lambda: settled() == (0, 0, 0, 1), 60)
        conn.cmd("FLUSHALL")
        before = conn.cmd("MEMORY", "STATS")
        before = dict(zip(before[::2], before[1::2]))
        storm(int(10 // TIME_SCALE) + 2, 100)
        wait_until(lambda: settled() == (0, 0, 0, 1), 60)
        conn.cmd("FLUSHALL")
        assert info(conn, "tracking_total_items") == 0
        assert bytes_of(b"clients.normal") == before[b"clients.normal"]


@pytest.mark.kvik_only
@pytest.mark.timeout(240 * TIME_SCALE)
def test_a_client_that_has_read_very_much_and_dies(start_server):
    server = start_server()
    count = int(100000 // TIME_SCALE)
    with server.raw(timeout=60) as conn:
        conn.cmd("GET", "warm")
        used = info(conn, "used_memory")
        with server.raw(timeout=60) as reader, server.raw() as stays:
            reader.hello3()
            stays.hello3()
            track(reader)
            track(stays)
            stays.cmd("GET", "key:1")
            for start in range(0, count, 1000):
                reader.send(b"".join(encode("GET", "key:%d" % i)
                                     for i in range(start, start + 1000)))
                for _ in range(1000):
                    assert reader.read() is None
            assert info(conn, "tracking_total_keys") >= count
            reader.close()
            wait_until(lambda: info(conn, "tracking_total_keys") == 1, 60)
            assert info(conn, "tracking_total_items") == 1
            conn.cmd("SET", "key:1", "v")
            assert told(stays) == [b"key:1"]
        conn.cmd("FLUSHALL")
        wait_until(lambda: info(conn, "tracking_clients") == 0)
        wait_until(lambda: info(conn, "used_memory") < used + 400000, 60)


@pytest.mark.kvik_only
def test_a_target_that_never_reads_is_cut_off(start_server):
    server = start_server("--client-output-buffer-limit", "pubsub", "1mb", "0", "0")
    with server.raw() as conn, server.raw() as target:
        number = target.cmd("CLIENT", "ID")
        target.cmd("SUBSCRIBE", "__redis__:invalidate")
        conn.cmd("CLIENT", "TRACKING", "ON", "BCAST", "REDIRECT", number)
        long_key = b"k" * 60000
        for i in range(400):
            conn.cmd("SET", long_key + b"%d" % i, "")
            if b"id=%d " % number not in conn.cmd("CLIENT", "LIST"):
                break
        assert b"id=%d " % number not in conn.cmd("CLIENT", "LIST")
