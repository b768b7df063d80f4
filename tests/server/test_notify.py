#!/usr/bin/python3
"""Keyspace notifications: which events commands cause, their classes, forms, order and moment.

tests/compare/events.py compares the events of random commands; here stands what it cannot see: time,
eviction, other connections, and what the reference does not know.
"""
import random
import threading
import time

import pytest

from process import TIME_SCALE
from raw import Error, encode


class Listener:
    """A RESP2 connection that is subscribed to all events."""

    def __init__(self, conn, pattern="__key*@*__:*"):
        self.raw = conn
        assert conn.cmd("PSUBSCRIBE", pattern) == [b"psubscribe", pattern.encode(), 1]

    def messages(self):
        """All (channel, message) that were published before this call."""
        mark = b"%016x" % random.getrandbits(64)
        self.raw.send_cmd("PING", mark)
        got = []
        while True:
            reply = self.raw.read()
            if reply == [b"pong", mark]:
                return got
            assert reply[0] == b"pmessage"
            got.append((reply[2], reply[3]))

    def events(self):
        """The events and keys, from the one form or the other."""
        got = []
        for channel, message in self.messages():
            head, name = channel.split(b"__:", 1)
            pair = (message, name) if head.startswith(b"__keyspace@") else (name, message)
            got.append(b" ".join(pair).decode("latin-1"))
        return got

    def wait_for(self, count, seconds=20):
        """The next `count` events, as soon as they are there."""
        got = []
        deadline = time.monotonic() + seconds * TIME_SCALE
        while len(got) < count:
            assert time.monotonic() < deadline, "only %r" % got
            got += self.events()
            time.sleep(0.005)
        return got


@pytest.fixture
def classes(raw):
    """Chooses the classes, and none at the end."""
    def choose(text):
        assert raw.cmd("CONFIG", "SET", "notify-keyspace-events", text) == b"OK"
    yield choose
    raw.cmd("CONFIG", "SET", "notify-keyspace-events", "")


@pytest.fixture
def listener(connect):
    return Listener(connect())


def test_nothing_is_published_while_it_is_off(raw, listener, classes):
    raw.cmd("SET", "k", "v")
    for off in ("", "K", "E", "A", "g$lshzxetd"):
        classes(off)
        raw.cmd("SET", "k", "v")
        raw.cmd("DEL", "k")
    assert listener.messages() == []
    classes("KEA")
    raw.cmd("SET", "k", "v")
    classes("")
    raw.cmd("SET", "k", "v")
    assert len(listener.messages()) == 2


def test_the_two_forms(raw, listener, classes):
    raw.cmd("SELECT", 3)
    classes("K$")
    raw.cmd("SET", "a key", "v")
    assert listener.messages() == [(b"__keyspace@3__:a key", b"set")]
    classes("E$")
    raw.cmd("SET", "a key", "v")
    assert listener.messages() == [(b"__keyevent@3__:set", b"a key")]
    classes("KEA")
    raw.cmd("SET", "a key", "v")
    assert listener.messages() == [(b"__keyspace@3__:a key", b"set"),
                                   (b"__keyevent@3__:set", b"a key")]


@pytest.mark.parametrize("text, canonical", [
    ("KEA", "AKE"), ("AKE", "AKE"), ("zhsl$gK", "g$lshzK"), ("Eg$lshzxetd", "AE"), ("nmEK", "nKEm"),
    ("gA", "A"),
])
def test_the_classes_are_shown_in_order(raw, classes, text, canonical):
    classes(text)
    got = raw.cmd("CONFIG", "GET", "notify-keyspace-events")
    assert got == [b"notify-keyspace-events", canonical.encode()]


@pytest.mark.kvik_only
def test_the_newest_classes(raw, classes):
    for letters in ("AKEo", "AKEc", "AKEmoc", "AnKEmoc", "$KEc"):
        classes(letters)
        assert raw.cmd("CONFIG", "GET", "notify-keyspace-events")[1] == letters.encode()
    assert raw.cmd("CONFIG", "SET", "notify-keyspace-events", "KEAQ") == Error(
        b"ERR CONFIG SET failed (possibly related to argument 'notify-keyspace-events') - "
        b"Invalid event class character. Use 'Ag$lshzxeKEtmdnoc'.")


CLASSES_OF_COMMANDS = [
    ("g", [("DEL", "s")], ["del s"]),
    ("g", [("RENAME", "s", "t")], ["rename_from s", "rename_to t"]),
    ("g", [("COPY", "s", "t")], ["copy_to t"]),
    ("g", [("EXPIRE", "s", 100), ("PERSIST", "s")], ["expire s", "persist s"]),
    ("g", [("EXPIRE", "s", -1)], ["del s"]),
    ("g", [("MOVE", "s", 1)], ["move_from s", "move_to s"]),
    ("$", [("APPEND", "s", "x"), ("INCR", "n"), ("SETRANGE", "s", 2, "y")],
     ["append s", "incrby n", "setrange s"]),
    ("$", [("MSET", "s", 1, "t", 2)], ["set s", "set t"]),
    ("g$", [("SETEX", "s", 100, "v")], ["set s", "expire s"]),
    ("l", [("LPUSH", "l", "x"), ("RPOPLPUSH", "l", "m"), ("LTRIM", "l", 0, 0)],
     ["lpush l", "lpush m", "rpop l", "ltrim l"]),
    ("gl", [("DEL", "m"), ("LPOP", "l"), ("LPOP", "l")], ["lpop l", "lpop l", "del l"]),
    ("s", [("SADD", "set", "b"), ("SREM", "set", "b"), ("SPOP", "set")],
     ["sadd set", "srem set", "spop set"]),
    ("s", [("SUNIONSTORE", "t", "set")], ["sunionstore t"]),
    ("h", [("HSET", "h", "f", 1), ("HINCRBY", "h", "f", 1), ("HDEL", "h", "f")],
     ["hset h", "hincrby h", "hdel h"]),
    ("z", [("ZADD", "z", 2, "b"), ("ZINCRBY", "z", 1, "b"), ("ZPOPMAX", "z")],
     ["zadd z", "zincr z", "zpopmax z"]),
    ("n", [("SET", "s", "x"), ("SET", "t", "x"), ("HSET", "u", "f", 1)], ["new t", "new u"]),
    ("m", [("GET", "none"), ("MGET", "s", "no", "nil"), ("HGET", "none", "f"), ("EXISTS", "none"),
           ("TYPE", "none"), ("TTL", "none"), ("OBJECT", "ENCODING", "none"), ("DEL", "none"),
           ("APPEND", "none", "")],
     ["keymiss none", "keymiss no", "keymiss nil", "keymiss none", "keymiss none",
      "keymiss none", "keymiss none"]),
]


@pytest.mark.parametrize("letters, lines, want", CLASSES_OF_COMMANDS)
def test_a_class_selects_its_events(raw, listener, classes, letters, lines, want):
    raw.cmd("SET", "s", "v")
    raw.cmd("RPUSH", "l", "a", "b")
    raw.cmd("SADD", "set", "a")
    raw.cmd("ZADD", "z", 1, "a")
    classes("E" + letters)
    for line in lines:
        assert not isinstance(raw.cmd(*line), Error), line
    assert listener.events() == want
    classes("K" + "".join(set("g$lshzxemn") - set(letters)))
    raw.cmd("FLUSHALL")
    raw.cmd("SET", "s", "v")
    raw.cmd("RPUSH", "l", "a", "b")
    raw.cmd("SADD", "set", "a")
    raw.cmd("ZADD", "z", 1, "a")
    listener.events()
    for line in lines:
        raw.cmd(*line)
    assert not set(want) & set(listener.events())


def test_expired_when_met_and_when_not(raw, listener, classes):
    classes("Ex")
    raw.cmd("SET", "met", "v", "PX", 1)
    time.sleep(0.01)
    raw.cmd("GET", "met")
    assert listener.wait_for(1) == ["expired met"]
    raw.cmd("PSETEX", "due", 1, "v")
    assert listener.wait_for(1) == ["expired due"]


def test_evicted(start_server):
    server = start_server("--maxmemory-policy", "allkeys-random", "--notify-keyspace-events", "Ee")
    with server.raw() as conn, server.raw() as other:
        listener = Listener(other)
        used = int(conn.cmd("INFO", "memory").split(b"used_memory:")[1].split(b"\r\n")[0])
        conn.cmd("CONFIG", "SET", "maxmemory", used + 3000000)
        for i in range(400):
            conn.send(encode("SET", "k%d" % i, b"x" * 20000))
        for i in range(400):
            conn.read()
        events = listener.wait_for(1)
        evicted = int(conn.cmd("INFO", "stats").split(b"evicted_keys:")[1].split(b"\r\n")[0])
        events += listener.events()
        assert len(events) >= evicted > 0
        assert {event.split()[0] for event in events} == {"evicted"}


def test_a_transaction_and_who_is_served(raw, connect, listener, classes):
    classes("EA")
    waiting = connect()
    waiting.send_cmd("BLPOP", "l", 0)
    deadline = time.monotonic() + 10 * TIME_SCALE
    while b"blocked_clients:1" not in raw.cmd("INFO", "clients"):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    raw.send(encode("MULTI") + encode("SET", "a", 1) + encode("LPUSH", "l", "x") +
             encode("DEL", "a") + encode("EXEC"))
    assert [raw.read() for _ in range(5)][4] == [b"OK", 1, 1]
    assert waiting.read() == [b"l", b"x"]
    assert listener.events() == ["set a", "lpush l", "del a", "lpop l", "del l"]


@pytest.mark.kvik_only
def test_loading_makes_no_new_keys(start_server):
    server = start_server("--notify-keyspace-events", "KEAmn")
    with server.raw() as conn, server.raw() as other:
        for i in range(20):
            conn.cmd("SET", "k%d" % i, "v")
        listener = Listener(other)
        assert conn.cmd("DEBUG", "RELOAD") == b"OK"
        assert listener.messages() == []
        assert conn.cmd("DBSIZE") == 20


def test_long_and_binary_keys(raw, listener, classes):
    classes("KE$")
    for key in (b"", b"\x00\r\n\xff", b"k" * 470, b"k" * 475, b"k" * 100000):
        raw.cmd("SET", key, "v")
        assert listener.messages() == [(b"__keyspace@0__:" + key, b"set"),
                                       (b"__keyevent@0__:set", key)]


def test_who_has_seen_the_reply_finds_the_event(raw, connect, classes):
    """Writers on all workers; each asks a subscriber of its own after every reply."""
    classes("K$")
    failures = []

    def write(number):
        writer, listener = connect(), Listener(connect(), "__keyspace@0__:w%d*" % number)
        try:
            for i in range(60):
                key = "w%d:%d" % (number, i)
                assert writer.cmd("SET", key, i) == b"OK"
                assert listener.events() == ["set " + key]
        except AssertionError as problem:
            failures.append(problem)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_all_see_the_events_of_a_key_in_one_order(raw, connect, classes):
    classes("KA")
    listeners = [Listener(connect()) for _ in range(4)]
    writers = [connect() for _ in range(4)]
    lines = [("SET", "k", 1), ("APPEND", "k", "x"), ("DEL", "k"), ("EXPIRE", "k", 100)]
    for _ in range(25):
        for writer, line in zip(writers, lines):
            writer.send(encode(*line) * 4)
    for writer in writers:
        for _ in range(100):
            writer.read()
    seen = [listener.events() for listener in listeners]
    assert seen[0].count("set k") == 100
    assert all(events == seen[0] for events in seen)


@pytest.mark.kvik_only
def test_overwritten_and_type_changed(raw, listener, classes):
    classes("EAoc")
    for line, want in [
            (("SET", "k", "1"), ["set k"]),
            (("SET", "k", "2"), ["overwritten k", "set k"]),
            (("INCR", "k"), ["incrby k"]),
            (("INCRBYFLOAT", "k", "1"), ["incrbyfloat k"]),
            (("INCREX", "k"), ["incrby k"]),
            (("APPEND", "k", "x"), ["append k"]),
            (("RPUSH", "l", "b", "a"), ["rpush l"]),
            (("SORT", "l", "ALPHA", "STORE", "k"), ["overwritten k", "type_changed k", "sortstore k"]),
            (("SADD", "s", "m"), ["sadd s"]),
            (("SUNIONSTORE", "k", "s"), ["overwritten k", "type_changed k", "sunionstore k"]),
            (("SUNIONSTORE", "k", "s"), ["overwritten k", "sunionstore k"]),
            (("ZUNIONSTORE", "k", "1", "s"), ["overwritten k", "type_changed k", "zunionstore k"]),
            (("ZUNIONSTORE", "k", "1", "k"), ["overwritten k", "zunionstore k"]),
            (("MSET", "k", "v", "new", "w"), ["overwritten k", "type_changed k", "set k", "set new"]),
            (("BITOP", "NOT", "new", "k"), ["overwritten new", "set new"]),
            (("COPY", "l", "k", "REPLACE"), ["overwritten k", "type_changed k", "copy_to k"]),
            (("RENAME", "new", "k"),
             ["overwritten k", "type_changed k", "rename_from new", "rename_to k"]),
            (("SETEX", "s", "100", "v"),
             ["overwritten s", "type_changed s", "set s", "expire s"]),
    ]:
        assert not isinstance(raw.cmd(*line), Error), line
        assert listener.events() == want, line
    payload = raw.cmd("DUMP", "l")
    raw.cmd("RESTORE", "k", "0", payload, "REPLACE")
    assert listener.events() == ["overwritten k", "type_changed k", "restore k"]
    raw.cmd("SET", "big", "x" * 20000)
    raw.cmd("SET", "big", "x" * 20000)
    assert listener.events() == ["set big", "overwritten big", "set big"]
    assert raw.cmd("RESTORE", "gone", 1000, payload, "ABSTTL") == b"OK"
    assert listener.events() == []


@pytest.mark.kvik_only
def test_members_with_a_time_to_live(raw, listener, classes):
    classes("Eghsz")
    raw.cmd("HSET", "h", "f", 1, "g", 2)
    raw.cmd("HPEXPIRE", "h", 1, "FIELDS", 1, "f")
    assert listener.wait_for(3) == ["hset h", "hexpire h", "hexpired h"]
    raw.cmd("HPEXPIRE", "h", 1, "FIELDS", 1, "g")
    assert listener.wait_for(3) == ["hexpire h", "hexpired h", "del h"]
    raw.cmd("SADD", "s", "a", "b")
    raw.cmd("SPEXPIRE", "s", 1, "MEMBERS", 1, "a")
    assert listener.wait_for(3) == ["sadd s", "sexpire s", "sexpired s"]
    raw.cmd("ZADD", "z", 1, "a", 2, "b")
    raw.cmd("ZPEXPIRE", "z", 1, "MEMBERS", 1, "a")
    assert listener.wait_for(3) == ["zadd z", "zexpire z", "zexpired z"]
    raw.cmd("HSET", "h", "f", 1)
    raw.cmd("HEXPIRE", "h", 100, "FIELDS", 1, "f")
    raw.cmd("HPERSIST", "h", "FIELDS", 1, "f")
    assert listener.wait_for(3) == ["hset h", "hexpire h", "hpersist h"]
