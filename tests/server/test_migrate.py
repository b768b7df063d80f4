#!/usr/bin/python3
"""MIGRATE: options and error texts, what arrives, and what happens to keys that others use while
they are on their way. The target is the reference, another Kvik, or a script (Target) that answers
when a test lets it."""
import os
import random
import socket
import sys
import threading
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "persist"))

from content import value_of  # noqa: E402
from process import REFERENCE, TIME_SCALE, Server, free_port  # noqa: E402
from raw import Error  # noqa: E402

HOST = "127.0.0.1"
WAIT_MS = int(20000 * TIME_SCALE)
TOLD = b"ERR Target instance replied with error: "
READING = b"IOERR error or timeout reading to target instance"
WRITING = b"IOERR error or timeout writing to target instance"
CONNECTING = b"IOERR error or timeout connecting to the client"


def until(condition, what="it"):
    deadline = time.monotonic() + 20 * TIME_SCALE
    while not condition():
        assert time.monotonic() < deadline, "%s did not happen" % what
        time.sleep(0.005)


class Target:
    """A server that notes every command and answers when it may. `answer` gets a command and gives
    the bytes of the reply; None: none, now or later."""

    def __init__(self, answer=lambda words: b"+OK\r\n"):
        self.commands = []
        self.connections = []
        self.answer = answer
        self.gate = threading.Event()
        self.gate.set()
        self.ending = False
        self.sock = socket.create_server((HOST, 0))
        self.sock.settimeout(0.05)
        self.port = self.sock.getsockname()[1]
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.ending = True
        self.gate.set()
        self.thread.join()
        self.sock.close()
        for connection in self.connections:
            connection.close()

    def run(self):
        while not self.ending:
            try:
                connection, _ = self.sock.accept()
            except socket.timeout:
                continue
            self.connections.append(connection)
            try:
                self.serve(connection)
            except OSError:
                pass

    def serve(self, connection):
        connection.settimeout(0.05)
        data = b""
        while not self.ending:
            try:
                more = connection.recv(65536)
            except socket.timeout:
                continue
            if not more:
                return
            data += more
            while (found := self.parse(data)) is not None:
                words, data = found
                self.commands.append(words)
                while not self.gate.wait(0.05) and not self.ending:
                    pass
                reply = self.answer(words)
                if reply is not None:
                    connection.sendall(reply)

    @staticmethod
    def parse(data):
        """The first command and the bytes behind it, or None."""
        end = data.find(b"\r\n")
        if end < 0:
            return None
        words, at = [], end + 2
        for _ in range(int(data[1:end])):
            end = data.find(b"\r\n", at)
            if end < 0:
                return None
            size = int(data[at + 1:end])
            word = data[end + 2:end + 2 + size]
            at = end + 2 + size + 2
            if len(data) < at:
                return None
            words.append(word)
        return words, data[at:]

    def count(self, name):
        return sum(words[0] == name for words in self.commands)


@pytest.fixture
def target(redis_server):
    """Another server: the reference for Kvik, and for the reference one more of it."""
    return redis_server


@pytest.fixture
def there(target):
    with target.raw() as conn:
        assert conn.cmd("FLUSHALL") == b"OK"
        yield conn
        conn.cmd("CONFIG", "SET", "requirepass", "")


def migrate(conn, target, key, *options, db=0, timeout=WAIT_MS):
    return conn.cmd("MIGRATE", HOST, target.port, key, db, timeout, *options)


# --- what is moved ---

def test_a_key_goes_from_here_to_there(raw, target, there):
    raw.cmd("SET", "k", "value")
    assert migrate(raw, target, "k") == b"OK"
    assert raw.cmd("EXISTS", "k") == 0
    assert there.cmd("GET", "k") == b"value"
    assert there.cmd("PTTL", "k") == -1


def test_copy_leaves_it_here(raw, target, there):
    raw.cmd("SET", "k", "value")
    assert migrate(raw, target, "k", "copy") == b"OK"
    assert raw.cmd("GET", "k") == b"value"
    assert there.cmd("GET", "k") == b"value"


def test_what_is_in_the_way_stays_unless_replaced(raw, target, there):
    raw.cmd("SET", "k", "new")
    there.cmd("SET", "k", "old")
    busy = TOLD + b"BUSYKEY Target key name already exists."
    assert migrate(raw, target, "k").text == busy
    assert (raw.cmd("GET", "k"), there.cmd("GET", "k")) == (b"new", b"old")
    assert migrate(raw, target, "k", "REPLACE") == b"OK"
    assert (raw.cmd("GET", "k"), there.cmd("GET", "k")) == (None, b"new")


def test_the_time_to_live_goes_with_it(raw, target, there):
    raw.cmd("SET", "k", "value", "PX", 1000000)
    assert migrate(raw, target, "k", db=5) == b"OK"
    there.cmd("SELECT", 5)
    assert 900000 < there.cmd("PTTL", "k") <= 1000000
    there.cmd("SELECT", 0)
    assert there.cmd("EXISTS", "k") == 0


@pytest.mark.single
def test_every_type_arrives_as_it_was(raw, target, there):
    rng = random.Random(os.environ.get("SEED", "7"))
    words = ["%x" % rng.randrange(1 << 40) for _ in range(700)]
    big = "".join(rng.choice("abcdefgh") for _ in range(3 << 20))
    raw.cmd("SET", "string", "some text " * 9)
    raw.cmd("SET", "int", -77)
    raw.cmd("SET", "big", big)
    for kind, command in (("list", "RPUSH"), ("set", "SADD")):
        raw.cmd(command, kind, "a", 1, "b", 2)
        raw.cmd(command, "big " + kind, *words)
    for kind, command in (("hash", "HSET"), ("zset", "ZADD")):
        pairs = [str(word) for i, name in enumerate(words)
                 for word in ((name, i) if kind == "hash" else (i * 0.5, name))]
        raw.cmd(command, kind, *pairs[:8])
        raw.cmd(command, "big " + kind, *pairs)
    names = sorted(raw.cmd("KEYS", "*"))
    before = [value_of(raw, name) for name in names]
    assert len(names) == 11
    assert migrate(raw, target, "", "KEYS", *names) == b"OK"
    assert raw.cmd("DBSIZE") == 0
    assert [value_of(there, name) for name in names] == before
    # and back again
    with target.raw() as conn:
        assert conn.cmd("MIGRATE", HOST, raw.sock.getpeername()[1], "", 0, WAIT_MS, "KEYS",
                        *names) == b"OK"
    assert there.cmd("DBSIZE") == 0
    assert [value_of(raw, name) for name in names] == before


def test_a_thousand_keys_in_one_command(raw, target, there):
    names = ["key:%d" % i for i in range(1000)]
    raw.cmd("MSET", *[word for name in names for word in (name, "value of " + name)])
    asked = names + ["missing"]
    random.Random(3).shuffle(asked)
    assert migrate(raw, target, "", "REPLACE", "KEYS", *asked) == b"OK"
    assert raw.cmd("DBSIZE") == 0
    assert there.cmd("MGET", *names) == [b"value of %s" % name.encode() for name in names]


def test_the_empty_string_is_a_key_without_keys(raw, target, there):
    raw.cmd("SET", "", "empty")
    assert migrate(raw, target, "") == b"OK"
    assert there.cmd("GET", "") == b"empty"


def test_a_key_that_is_named_twice(raw, target, there):
    raw.cmd("MSET", "a", 1, "b", 2)
    assert migrate(raw, target, "", "REPLACE", "KEYS", "a", "b", "a") == b"OK"
    assert raw.cmd("MGET", "a", "b") == [None, None]
    assert there.cmd("MGET", "a", "b") == [b"1", b"2"]


def test_keys_that_do_not_exist_and_due_ones(raw, target, there):
    assert migrate(raw, target, "missing") == b"NOKEY"
    assert migrate(raw, target, "", "KEYS", "missing", "too") == b"NOKEY"
    assert migrate(raw, target, "", "KEYS") == b"NOKEY"
    assert raw.cmd("MIGRATE", "no such host", "x", "missing", 0, 100) == b"NOKEY"
    raw.cmd("SET", "due", 1, "PX", 1)
    until(lambda: raw.cmd("EXISTS", "due") == 0)
    assert migrate(raw, target, "due") == b"NOKEY"
    assert there.cmd("DBSIZE") == 0


def test_what_arrived_before_an_error_has_moved(raw, target, there):
    raw.cmd("MSET", "a", 1, "b", 2, "c", 3)
    there.cmd("MSET", "b", "old")
    reply = migrate(raw, target, "", "KEYS", "a", "b", "c")
    assert reply.text == TOLD + b"BUSYKEY Target key name already exists."
    assert raw.cmd("MGET", "a", "b", "c") == [None, b"2", None]
    assert there.cmd("MGET", "a", "b", "c") == [b"1", b"old", b"3"]


# --- errors ---

@pytest.mark.parametrize("words, text", [
    (("k", 0, 1000, "foo"), b"ERR syntax error"),
    (("missing", 0, 1000, "foo"), b"ERR syntax error"),
    (("k", 0, 1000, "auth"), b"ERR syntax error"),
    (("k", 0, 1000, "auth2", "x"), b"ERR syntax error"),
    (("k", "x", 1000), b"ERR value is not an integer or out of range"),
    (("k", 0, "x"), b"ERR value is not an integer or out of range"),
    (("k", 0, 1000, "keys", "a"), b"ERR When using MIGRATE KEYS option, the key argument must be "
                                  b"set to the empty string"),
    (("k", 0, 1000, "keys"), b"ERR When using MIGRATE KEYS option, the key argument must be set "
                             b"to the empty string"),
])
def test_wrong_lines(raw, target, words, text):
    raw.cmd("SET", "k", 1)
    assert raw.cmd("MIGRATE", HOST, target.port, *words).text == text
    assert raw.cmd("GET", "k") == b"1"


def test_nobody_at_the_target(raw):
    raw.cmd("SET", "k", 1)
    assert raw.cmd("MIGRATE", HOST, free_port(), "k", 0, WAIT_MS).text == WRITING
    assert raw.cmd("MIGRATE", "no.such.host.invalid", 6379, "k", 0, WAIT_MS).text == CONNECTING
    assert raw.cmd("MIGRATE", "", 6379, "k", 0, WAIT_MS).text == CONNECTING
    assert raw.cmd("MIGRATE", HOST, -1, "k", 0, WAIT_MS).text == CONNECTING
    assert raw.cmd("GET", "k") == b"1"


def test_a_target_that_never_answers(raw):
    raw.cmd("SET", "k", 1)
    with Target(lambda words: None) as silent:
        assert raw.cmd("MIGRATE", HOST, silent.port, "k", 0, 200).text == READING
        assert silent.commands[0] == [b"SELECT", b"0"]
    assert raw.cmd("GET", "k") == b"1"


def test_a_target_that_needs_a_password(raw, target, there):
    raw.cmd("SET", "k", 1)
    unset = migrate(raw, target, "k", "AUTH", "x").text
    assert unset.startswith(TOLD + b"ERR AUTH <password> called without any password configured")
    # On a connection of its own each time: the reference keeps one, which would be let in still.
    there.cmd("CONFIG", "SET", "requirepass", "secret")
    assert migrate(raw, target, "k", "AUTH", "x").text.startswith(TOLD + b"WRONGPASS ")
    assert migrate(raw, target, "k", "AUTH2", "default", "x").text.startswith(TOLD + b"WRONGPASS ")
    assert raw.cmd("GET", "k") == b"1"
    assert migrate(raw, target, "k", "REPLACE", "AUTH", "secret") == b"OK"
    raw.cmd("SET", "k", 2)
    assert migrate(raw, target, "k", "AUTH2", "default", "secret", "REPLACE") == b"OK"
    assert there.cmd("GET", "k") == b"2"


def test_a_target_that_is_full(raw, target, there):
    raw.cmd("SET", "k", "v" * 100)
    there.cmd("CONFIG", "SET", "maxmemory", 1)
    try:
        assert migrate(raw, target, "k").text.startswith(TOLD + b"OOM command not allowed")
    finally:
        there.cmd("CONFIG", "SET", "maxmemory", 0)
    assert raw.cmd("STRLEN", "k") == 100


@pytest.mark.kvik_only
def test_without_the_database_nothing_is_sent(raw):
    # redis-server sends values together with SELECT, so that they would end in database 0.
    raw.cmd("SET", "k", 1)
    refusal = b"-ERR DB index is out of range\r\n"
    with Target(lambda words: refusal if words[0] == b"SELECT" else b"+OK\r\n") as fake:
        assert migrate(raw, fake, "k", "AUTH", "x", db=99).text == TOLD + refusal[1:-2]
        assert fake.commands == [[b"AUTH", b"x"], [b"SELECT", b"99"]]
    assert raw.cmd("GET", "k") == b"1"


@pytest.mark.kvik_only
def test_a_target_that_goes_away_or_talks_nonsense(raw):
    raw.cmd("SET", "k", 1)
    with Target(lambda words: b"$2\r\nhi\r\n") as fake:
        assert migrate(raw, fake, "k").text == READING
    with Target() as fake:
        def leave(words):
            if words[0] == b"RESTORE":
                fake.connections[-1].shutdown(socket.SHUT_RDWR)
                return None
            return b"+OK\r\n"
        fake.answer = leave
        assert migrate(raw, fake, "k").text == READING
    with Target(lambda words: b"-ERR %s\r\n" % (b"x" * 5000)) as fake:
        assert migrate(raw, fake, "k").text.startswith(TOLD + b"ERR xxx")
    assert raw.cmd("GET", "k") == b"1"


def test_the_keys_of_a_line(raw):
    line = ["MIGRATE", "host", 1]
    keys = ["COMMAND", "GETKEYS"] + line
    assert raw.cmd(*keys, "k", 0, 1) == [b"k"]
    assert raw.cmd(*keys, "", 0, 1, "KEYS", "a", "b") == [b"a", b"b"]
    assert raw.cmd(*keys, "", 0, 1, "COPY", "AUTH", "x", "keys", "a", "b") == [b"a", b"b"]
    assert raw.cmd(*keys, "k", 0, 1, "KEYS", "a").text == b"ERR Invalid arguments specified for " \
                                                          b"command"
    info = raw.cmd("COMMAND", "INFO", "migrate")[0]
    assert info[1] == -6 and info[3:6] == [3, 3, 1]


@pytest.mark.kvik_only
def test_a_password_is_no_keyword(raw):
    keys = ["COMMAND", "GETKEYS", "MIGRATE", "host", 1]
    assert raw.cmd(*keys, "k", 0, 1, "AUTH", "KEYS") == [b"k"]
    assert raw.cmd(*keys, "", 0, 1, "AUTH2", "keys", "keys", "KEYS", "a") == [b"a"]


@pytest.mark.kvik_only
def test_not_in_a_transaction(raw):
    raw.cmd("MULTI")
    assert raw.cmd("MIGRATE", HOST, 1, "k", 0, 1).text == \
        b"ERR Command not allowed inside a transaction"
    assert raw.cmd("EXEC").text.startswith(b"EXECABORT")


# --- what others do meanwhile ---

def let_select_through(fake):
    """SELECT is answered; what comes then waits for the gate."""
    def hold(words):
        if words[0] == b"SELECT":
            fake.gate.clear()
        return b"+OK\r\n"
    fake.answer = hold


@pytest.fixture
def held(raw):
    """A target that holds the values of "k" and "also", and has not answered."""
    raw.cmd("MSET", "k", "old", "also", "one", "free", 1)
    with Target() as fake:
        let_select_through(fake)
        raw.send_cmd("MIGRATE", HOST, fake.port, "", 0, WAIT_MS, "KEYS", "k", "also")
        until(lambda: fake.count(b"RESTORE") >= 1, "RESTORE")
        yield fake


WRITES = [[["SET", "k", "new"]], [["DEL", "k"]], [["MSET", "free", 2, "k", 3]], [["FLUSHALL"]],
          [["RENAME", "k", "elsewhere"]], [["SWAPDB", 0, 1]], [["PEXPIRE", "k", -1]],
          [["COPY", "free", "k", "REPLACE"]], [["MOVE", "also", 3]], [["GETDEL", "k"]],
          [["BITOP", "NOT", "k", "free"]], [["SORT", "none", "STORE", "also"]],
          [["MULTI"], ["GET", "free"], ["APPEND", "also", 3], ["EXEC"]],
          [["MULTI"], ["FLUSHDB"], ["EXEC"]],
          [["MIGRATE", HOST, 1, "k", 0, 1000]]]


@pytest.mark.kvik_only
@pytest.mark.parametrize("lines", WRITES, ids=lambda lines: lines[-1 if len(lines) == 1 else 1][0])
def test_a_write_meanwhile_waits_until_the_key_has_gone(raw, connect, held, lines):
    other, third = connect(), connect()
    for line in lines[:-1]:
        other.cmd(*line)
    other.send_cmd(*lines[-1])
    until(lambda: b"blocked_clients:2" in third.cmd("INFO", "clients"), "the wait")
    assert third.cmd("MGET", "k", "also") == [b"old", b"one"]
    held.gate.set()
    assert raw.read() == b"OK"
    reply = other.read()
    nothing = {"DEL": 0, "PEXPIRE": 0, "GETDEL": None, "MIGRATE": b"NOKEY", "MOVE": 0, "SORT": 0}
    if lines[0][0] == "RENAME":
        assert reply.text == b"ERR no such key"
    elif lines[0][0] in nothing:
        assert reply == nothing[lines[0][0]]
    else:
        assert not isinstance(reply, Error)
    # Nothing was sent twice, and nothing of the write went along.
    assert [words[1] for words in held.commands if words[0] == b"RESTORE"] == [b"k", b"also"]


@pytest.mark.kvik_only
def test_other_keys_are_written_meanwhile(raw, connect, held):
    other = connect()
    assert other.cmd("INCR", "free") == 2
    assert other.cmd("MSET", *[word for i in range(500) for word in ("f%d" % i, i)]) == b"OK"
    pipeline = b"".join(b"*2\r\n$4\r\nINCR\r\n$4\r\nfree\r\n" for _ in range(100))
    other.sock.sendall(pipeline)
    assert [other.read() for _ in range(100)] == list(range(3, 103))
    other.cmd("MULTI")
    other.cmd("GET", "k")
    other.cmd("INCR", "free")
    assert other.cmd("EXEC") == [b"old", 103]
    assert other.cmd("GETRANGE", "k", 0, 1) == b"ol"
    assert other.cmd("DBSIZE") == 503
    held.gate.set()
    assert raw.read() == b"OK"


@pytest.mark.kvik_only
def test_who_waits_has_his_pause_beside(raw, connect, held):
    """CLIENT PAUSE and a held key: each ends its own wait."""
    other, third, fourth = connect(), connect(), connect()
    third.cmd("CLIENT", "PAUSE", 600000, "WRITE")
    other.send_cmd("SET", "free", "paused")
    fourth.send_cmd("SET", "k", "held")
    until(lambda: b"blocked_clients:3" in third.cmd("INFO", "clients"), "the wait")
    third.cmd("CLIENT", "UNPAUSE")
    assert other.read() == b"OK"
    assert third.cmd("GET", "k") == b"old"
    held.gate.set()
    assert raw.read() == b"OK"
    assert fourth.read() == b"OK"
    assert third.cmd("GET", "k") == b"held"


@pytest.mark.kvik_only
def test_a_served_client_writes_no_held_key(raw, connect):
    raw.cmd("RPUSH", "k", "a")
    waiter, other = connect(), connect()
    waiter.send_cmd("BLMOVE", "source", "k", "LEFT", "RIGHT", 0)
    until(lambda: b"blocked_clients:1" in other.cmd("INFO", "clients"), "the wait")
    with Target() as fake:
        let_select_through(fake)
        raw.send_cmd("MIGRATE", HOST, fake.port, "k", 0, WAIT_MS)
        until(lambda: fake.count(b"RESTORE") == 1, "RESTORE")
        assert other.cmd("RPUSH", "source", "b") == 1
        assert other.cmd("LRANGE", "k", 0, -1) == [b"a"]
        fake.gate.set()
        assert raw.read() == b"OK"
        assert waiter.read() == b"b"
        assert fake.count(b"RESTORE") == 1
    assert other.cmd("LRANGE", "k", 0, -1) == [b"b"]


@pytest.mark.kvik_only
def test_what_expires_meanwhile_has_moved(raw, connect):
    other = connect()
    raw.cmd("SET", "k", 1, "PX", 300)
    with Target() as fake:
        let_select_through(fake)
        raw.send_cmd("MIGRATE", HOST, fake.port, "k", 0, WAIT_MS)
        until(lambda: other.cmd("EXISTS", "k") == 0, "expiry")
        fake.gate.set()
        assert raw.read() in (b"OK", b"NOKEY")


@pytest.mark.kvik_only
def test_a_field_that_expires_meanwhile_is_sent_once_more(raw, connect):
    other = connect()
    raw.cmd("HSET", "k", "f", 1, "g", 2)
    with Target() as fake:
        let_select_through(fake)
        raw.cmd("HPEXPIRE", "k", 500, "FIELDS", 1, "f")
        raw.send_cmd("MIGRATE", HOST, fake.port, "k", 0, WAIT_MS)
        until(lambda: fake.count(b"RESTORE") == 1, "RESTORE")
        until(lambda: other.cmd("HLEN", "k") == 1, "expiry")
        fake.answer = lambda words: b"+OK\r\n"
        fake.gate.set()
        assert raw.read() == b"OK"
        restores = [words for words in fake.commands if words[0] == b"RESTORE"]
    # What was sent first is replaced, though nobody asked for REPLACE.
    if len(restores) == 2:
        assert [words[4:] for words in restores] == [[], [b"REPLACE"]]
    raw.cmd("RESTORE", "back", 0, restores[-1][3])
    assert raw.cmd("HGETALL", "back") == [b"g", b"2"]


@pytest.mark.kvik_only
def test_two_migrations_of_a_key_at_once(raw, connect):
    """Over and over in one packet of two clients' lines: one moves it, the other finds it gone."""
    conns = [connect(), connect()]
    with Target() as fake:
        for i in range(50):
            raw.cmd("SET", "k", i)
            for conn in conns:
                conn.send_cmd("MIGRATE", HOST, fake.port, "k", 0, WAIT_MS)
            assert sorted(conn.read() for conn in conns) == [b"NOKEY", b"OK"]
        assert fake.count(b"RESTORE") == 50


@pytest.mark.kvik_only
def test_a_copy_is_of_one_moment(raw, connect):
    other = connect()
    raw.cmd("SET", "k", "old")
    with Target() as fake:
        let_select_through(fake)
        raw.send_cmd("MIGRATE", HOST, fake.port, "k", 0, WAIT_MS, "COPY")
        until(lambda: fake.count(b"RESTORE") == 1, "RESTORE")
        other.cmd("SET", "k", "new")
        fake.gate.set()
        assert raw.read() == b"OK"
        assert fake.count(b"RESTORE") == 1
    assert raw.cmd("GET", "k") == b"new"


@pytest.mark.kvik_only
def test_others_go_on_while_a_target_is_silent(raw, connect):
    other = connect()
    raw.cmd("MSET", "k", 1, "x", 1)
    with Target(lambda words: None) as fake:
        raw.send_cmd("MIGRATE", HOST, fake.port, "k", 0, WAIT_MS)
        until(lambda: fake.commands, "SELECT")
        assert other.cmd("GET", "k") == b"1"
        assert other.cmd("INCR", "x") == 2
        assert other.cmd("DBSIZE") == 2
        assert b"blocked_clients:1" in other.cmd("INFO", "clients")
        # It is not unblocked, and several more may wait at the same time.
        number = [line for line in other.cmd("CLIENT", "LIST").split(b"\n")
                  if b"cmd=migrate" in line][0].split()[0][3:]
        assert other.cmd("CLIENT", "UNBLOCK", number) == 0
        assert other.cmd("CLIENT", "UNBLOCK", number, "ERROR") == 0
        fake.ending = True
    assert raw.read().text == READING


@pytest.mark.kvik_only
@pytest.mark.parametrize("how", ["kill", "hang up"])
def test_without_its_client_it_comes_to_its_end(raw, connect, how):
    other = connect()
    raw.cmd("SET", "k", 1)
    with Target() as fake:
        let_select_through(fake)
        raw.send_cmd("MIGRATE", HOST, fake.port, "k", 0, WAIT_MS)
        until(lambda: fake.count(b"RESTORE") == 1, "RESTORE")
        if how == "kill":
            address = "%s:%d" % raw.sock.getsockname()
            assert other.cmd("CLIENT", "KILL", address) == b"OK"
        else:
            raw.close()
        until(lambda: b"cmd=migrate" not in other.cmd("CLIENT", "LIST"), "the end")
        assert other.cmd("GET", "k") == b"1"
        fake.gate.set()
        until(lambda: other.cmd("EXISTS", "k") == 0, "the move")


@pytest.mark.kvik_only
def test_a_pause_holds_up_the_deletion(raw, connect):
    other = connect()
    raw.cmd("SET", "k", 1)
    with Target() as fake:
        let_select_through(fake)
        raw.send_cmd("MIGRATE", HOST, fake.port, "k", 0, WAIT_MS)
        until(lambda: fake.count(b"RESTORE") == 1, "RESTORE")
        other.cmd("CLIENT", "PAUSE", 600000, "WRITE")
        fake.gate.set()
        # Two rounds of an answer for somebody else: a deletion would have come.
        for _ in range(50):
            assert other.cmd("GET", "k") == b"1"
            time.sleep(0.005)
        other.cmd("CLIENT", "UNPAUSE")
        assert raw.read() == b"OK"
    assert other.cmd("EXISTS", "k") == 0


@pytest.mark.kvik_only
def test_a_server_ends_while_a_migration_is_out(start_server):
    server = start_server()
    with server.raw() as conn, Target(lambda words: None) as fake:
        conn.cmd("SET", "k", 1)
        conn.send_cmd("MIGRATE", HOST, fake.port, "k", 0, WAIT_MS)
        until(lambda: fake.commands, "SELECT")
        started = time.monotonic()
        server.stop()
        assert time.monotonic() - started < WAIT_MS / 2000


@pytest.mark.kvik_only
def test_more_migrations_than_threads(raw, connect, target, there):
    connections = [connect() for _ in range(20)]
    for i in range(len(connections)):
        raw.cmd("SET", "k%d" % i, i)
    for i, conn in enumerate(connections):
        conn.send_cmd("MIGRATE", HOST, target.port, "k%d" % i, 0, WAIT_MS)
    assert [conn.read() for conn in connections] == [b"OK"] * len(connections)
    assert raw.cmd("DBSIZE") == 0
    assert there.cmd("DBSIZE") == len(connections)


@pytest.mark.kvik_only
def test_a_reply_that_nobody_wants(raw, target, there):
    raw.cmd("SET", "k", 1)
    raw.send_cmd("CLIENT", "REPLY", "SKIP")
    raw.send_cmd("MIGRATE", HOST, target.port, "k", 0, WAIT_MS)
    assert raw.cmd("GET", "k") is None
    assert there.cmd("GET", "k") == b"1"


# --- Kvik to Kvik, log and memory ---

@pytest.mark.kvik_only
def test_members_keep_their_time_to_live_between_two_of_us(raw, start_server):
    second = start_server()
    raw.cmd("SADD", "s", "a", "b")
    raw.cmd("SEXPIRE", "s", 1000, "MEMBERS", 1, "a")
    raw.cmd("HSET", "h", "f", 1, "g", 2)
    raw.cmd("HEXPIRE", "h", 1000, "FIELDS", 1, "f")
    assert migrate(raw, second, "", "KEYS", "s", "h") == b"OK"
    with second.raw() as conn:
        assert 0 < conn.cmd("STTL", "s", "MEMBERS", 1, "a")[0] <= 1000
        assert conn.cmd("HTTL", "h", "FIELDS", 2, "f", "g")[1] == -1
    raw.cmd("SET", "big", "x" * (2 << 20), "PX", 500000)
    assert migrate(raw, second, "big") == b"OK"
    with second.raw() as conn:
        assert conn.cmd("STRLEN", "big") == 2 << 20
        assert 400000 < conn.cmd("PTTL", "big") <= 500000


@pytest.mark.kvik_only
def test_no_acknowledged_write_is_lost(start_server):
    """Lists go to and fro between two servers while writers push to them, wherever they are: at the
    end their lengths are those that the replies promised."""
    servers = [start_server(), start_server()]
    names = ["list:%d" % i for i in range(4)]
    added = {name: 0 for name in names}
    ending = threading.Event()
    lock = threading.Lock()

    def add(seed):
        rng = random.Random(seed)
        conns = [server.raw(timeout=60) for server in servers]
        while not ending.is_set():
            name, conn = rng.choice(names), rng.choice(conns)
            if conn.cmd("LPUSHX", name, "x") > 0:
                with lock:
                    added[name] += 1
        for conn in conns:
            conn.close()

    with servers[0].raw() as conn:
        for name in names:
            conn.cmd("RPUSH", name, "first")
    threads = [threading.Thread(target=add, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    conns = [server.raw(timeout=60) for server in servers]
    for i in range(12):
        reply = migrate(conns[i % 2], servers[1 - i % 2], "", "KEYS", *names)
        assert reply == b"OK", reply
    ending.set()
    for thread in threads:
        thread.join()
    assert conns[1].cmd("EXISTS", *names) == 0
    assert {name: conns[0].cmd("LLEN", name) - 1 for name in names} == added
    for conn in conns:
        conn.close()


@pytest.mark.kvik_only
def test_the_log_has_the_deletions(start_server, target, there):
    server = start_server("--appendonly", "yes", "--appendfsync", "always")
    with server.raw() as conn:
        conn.cmd("MSET", "a", 1, "b", 2, "c", 3)
        assert migrate(conn, target, "", "KEYS", "a", "c", "d") == b"OK"
    text = b"".join(path.read_bytes() for path in sorted((server.dir / "appendonlydir").iterdir())
                    if path.name.endswith(".incr.aof"))
    assert b"$3\r\nDEL\r\n$1\r\na\r\n" in text
    assert b"$3\r\nDEL\r\n$1\r\nc\r\n" in text
    assert b"MIGRATE" not in text


@pytest.mark.kvik_only
def test_watchers_and_subscribers_hear_of_it(raw, connect, target, there):
    watcher = connect()
    raw.cmd("SET", "k", 1)
    watcher.cmd("WATCH", "k")
    watcher.cmd("MULTI")
    watcher.cmd("PING")
    assert migrate(raw, target, "k") == b"OK"
    assert watcher.cmd("EXEC") is None


@pytest.mark.kvik_only
def test_memory_is_given_back(raw, target, there):
    def used():
        return {line.split(b":")[0]: int(line.split(b":")[1])
                for line in raw.cmd("INFO", "kvik_memory").split(b"\r\n")
                if line.startswith((b"memory_owner_client:", b"memory_owner_watch:"))}

    def round_trip():
        raw.cmd("MSET", *["k%d" % (i // 2) if i % 2 == 0 else "v" * 300 for i in range(200)])
        assert migrate(raw, target, "", "REPLACE", "KEYS", *["k%d" % i for i in range(100)]) == b"OK"
        assert migrate(raw, target, "nothing") == b"NOKEY"
        raw.cmd("SET", "k0", 1)
        assert isinstance(migrate(raw, target, "k0"), Error)
        raw.cmd("DEL", "k0")

    round_trip()
    raw.cmd("MEMORY", "PURGE")
    until(lambda: raw.cmd("DBSIZE") == 0)
    before = used()
    for _ in range(5):
        round_trip()
    until(lambda: used() == before, "giving back: %r, %r" % (before, used()))
