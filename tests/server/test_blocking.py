#!/usr/bin/python3
"""Blocking commands on lists and sorted sets: who is served, when, with what; ends of waits."""
import random
import re
import threading
import time

import pytest

from process import TIME_SCALE
from raw import Closed, Error, encode

WAIT = 0.05 * TIME_SCALE  # long enough for a command to have blocked


def blocked(conn):
    for line in conn.cmd("INFO", "clients").splitlines():
        if line.startswith(b"blocked_clients:"):
            return int(line.split(b":")[1])
    raise AssertionError("no blocked_clients")


def wait_blocked(conn, count):
    """Until so many clients are blocked."""
    deadline = time.monotonic() + 20 * TIME_SCALE
    while blocked(conn) != count:
        assert time.monotonic() < deadline, "%d clients are blocked" % blocked(conn)
        time.sleep(0.002)


def sends(conn, control, count, *command):
    """Sends a command that blocks; returns when it does."""
    conn.send_cmd(*command)
    wait_blocked(control, count)


# --- what is there is taken at once ---


def test_does_not_block_when_something_is_there(raw):
    raw.cmd("RPUSH", "l", "a", "b", "c")
    assert raw.cmd("BLPOP", "none", "l", "0") == [b"l", b"a"]
    assert raw.cmd("BRPOP", "l", "none", "0") == [b"l", b"c"]
    assert raw.cmd("BLMOVE", "l", "m", "LEFT", "RIGHT", "0") == b"b"
    assert raw.cmd("BRPOPLPUSH", "m", "l", "0") == b"b"
    assert raw.cmd("BLMPOP", "0", "2", "none", "l", "LEFT", "COUNT", "5") == [b"l", [b"b"]]
    raw.cmd("ZADD", "z", "1", "a", "2", "b", "3", "c")
    assert raw.cmd("BZPOPMIN", "none", "z", "0") == [b"z", b"a", b"1"]
    assert raw.cmd("BZPOPMAX", "z", "0") == [b"z", b"c", b"3"]
    assert raw.cmd("BZMPOP", "0", "1", "z", "MAX") == [b"z", [[b"b", b"2"]]]
    assert raw.cmd("EXISTS", "l", "m", "z") == 0


def test_first_key_with_something_wins(raw):
    raw.cmd("RPUSH", "b", "1")
    raw.cmd("RPUSH", "c", "2")
    assert raw.cmd("BLPOP", "a", "b", "c", "0") == [b"b", b"1"]


@pytest.mark.parametrize("command", [
    ("BLPOP", "s", "0"), ("BRPOP", "none", "s", "0"), ("BLMOVE", "s", "d", "LEFT", "LEFT", "0"),
    ("BRPOPLPUSH", "s", "d", "0"), ("BLMPOP", "0", "1", "s", "LEFT"), ("BZPOPMIN", "s", "0"),
    ("BZPOPMAX", "s", "0"), ("BZMPOP", "0", "1", "s", "MIN")])
def test_wrong_type_is_an_error_at_once(raw, command):
    raw.cmd("SET", "s", "x")
    reply = raw.cmd(*command)
    assert isinstance(reply, Error) and reply.code == b"WRONGTYPE"


# --- errors ---


@pytest.mark.parametrize("timeout,text", [
    ("x", "ERR timeout is not a float or out of range"), ("", "ERR timeout is not a float or out of range"),
    ("nan", "ERR timeout is not a float or out of range"), ("-1", "ERR timeout is negative"),
    ("-0.5", "ERR timeout is negative")])
def test_timeouts_that_make_no_sense(raw, timeout, text):
    for command in (("BLPOP", "l", timeout), ("BLMOVE", "l", "m", "LEFT", "LEFT", timeout),
                    ("BZPOPMIN", "z", timeout), ("BLMPOP", timeout, "1", "l", "LEFT"),
                    ("BZMPOP", timeout, "1", "z", "MIN"), ("BRPOPLPUSH", "l", "m", timeout)):
        assert raw.cmd(*command) == Error(text.encode())


@pytest.mark.parametrize("command,text", [
    (("BLMPOP", "0", "0", "l", "LEFT"), "ERR numkeys should be greater than 0"),
    (("BLMPOP", "0", "x", "l", "LEFT"), "ERR numkeys should be greater than 0"),
    (("BLMPOP", "0", "2", "l", "LEFT"), "ERR syntax error"),
    (("BLMPOP", "0", "1", "l", "UP"), "ERR syntax error"),
    (("BLMPOP", "0", "1", "l", "LEFT", "COUNT", "0"), "ERR count should be greater than 0"),
    (("BZMPOP", "0", "1", "z", "MIN", "COUNT", "0"), "ERR count should be greater than 0"),
    (("BZMPOP", "0", "1", "z", "MIN", "COUNT", "1", "COUNT", "2"), "ERR syntax error"),
    (("BLMOVE", "l", "m", "UP", "LEFT", "0"), "ERR syntax error")])
def test_arguments_that_make_no_sense(raw, command, text):
    assert raw.cmd(*command) == Error(text.encode())


# --- waiting ---


def test_a_push_serves_who_waits(raw, connect):
    waiter = connect()
    sends(waiter, raw, 1, "BLPOP", "l", "0")
    assert raw.cmd("RPUSH", "l", "a", "b") == 2
    assert waiter.read() == [b"l", b"a"]
    assert raw.cmd("LRANGE", "l", "0", "-1") == [b"b"]
    assert blocked(raw) == 0


@pytest.mark.kvik_only
def test_who_is_served_on_the_same_worker_waits_for_no_further_round(start_server):
    """The loops that an exchange takes: one for each message that comes in."""
    running = start_server(threads=1)
    with running.raw() as one, running.raw() as two:
        def loops():
            return int(re.search(rb"\nloops:(\d+)", one.cmd("INFO", "kvik")).group(1))

        before, exchanges = loops(), 400
        one.send_cmd("BLPOP", "one", "0")
        for _ in range(exchanges):
            two.send(encode("LPUSH", "one", "x") + encode("BLPOP", "two", "0"))
            assert one.read() == [b"one", b"x"] and two.read() == 1
            one.send(encode("LPUSH", "two", "y") + encode("BLPOP", "one", "0"))
            assert two.read() == [b"two", b"y"] and one.read() == 1
        two.send(encode("LPUSH", "one", "x"))
        assert one.read() == [b"one", b"x"]
        # Some are its periodic work's; a further one for each message would make it four.
        assert loops() - before < 3 * exchanges


def test_nobody_comes_between(raw, connect):
    """An element that was pushed for a waiter is never seen by others."""
    waiter = connect()
    sends(waiter, raw, 1, "BLPOP", "l", "0")
    raw.send_cmd("LPUSH", "l", "a")
    raw.send_cmd("LPOP", "l")
    assert raw.read() == 1 and raw.read() is None
    assert waiter.read() == [b"l", b"a"]


def test_first_come_first_served(raw, connect):
    waiters = [connect() for _ in range(6)]
    for i, conn in enumerate(waiters):
        sends(conn, raw, i + 1, "BLPOP", "other%d" % i, "l", "0")
    raw.cmd("RPUSH", "l", *range(4))
    for i, conn in enumerate(waiters[:4]):
        assert conn.read() == [b"l", b"%d" % i]
    assert blocked(raw) == 2
    raw.cmd("RPUSH", "other5", "x")
    assert waiters[5].read() == [b"other5", b"x"]
    raw.cmd("RPUSH", "l", "y")
    assert waiters[4].read() == [b"l", b"y"]


def test_input_that_was_sent_meanwhile_runs_afterwards(raw, connect):
    waiter = connect()
    sends(waiter, raw, 1, "BLPOP", "l", "0")
    waiter.send_cmd("PING")
    waiter.send_cmd("ECHO", "x" * 100_000)
    raw.cmd("RPUSH", "l", "a")
    assert waiter.read() == [b"l", b"a"]
    assert waiter.read() == b"PONG"
    assert waiter.read() == b"x" * 100_000


def test_another_type_does_not_serve(raw, connect):
    waiter = connect()
    sends(waiter, raw, 1, "BLPOP", "k", "0")
    raw.cmd("SET", "k", "string")
    raw.cmd("DEL", "k")
    raw.cmd("ZADD", "k", "1", "m")
    raw.cmd("DEL", "k")
    assert blocked(raw) == 1
    raw.cmd("RPUSH", "k", "v")
    assert waiter.read() == [b"k", b"v"]


def test_lists_and_sorted_sets_wait_for_one_key(raw, connect):
    popper, zpopper = connect(), connect()
    sends(popper, raw, 1, "BLPOP", "k", "0")
    sends(zpopper, raw, 2, "BZPOPMIN", "k", "0")
    raw.cmd("ZADD", "k", "1.5", "m")
    assert zpopper.read() == [b"k", b"m", b"1.5"]
    raw.cmd("RPUSH", "k", "v")
    assert popper.read() == [b"k", b"v"]


def test_databases_are_apart(raw, connect):
    waiter = connect()
    waiter.cmd("SELECT", "1")
    sends(waiter, raw, 1, "BLPOP", "l", "0")
    raw.cmd("RPUSH", "l", "wrong")
    assert blocked(raw) == 1
    raw.cmd("SELECT", "1")
    raw.cmd("RPUSH", "l", "right")
    assert waiter.read() == [b"l", b"right"]


@pytest.mark.parametrize("bring", [
    lambda c: c.cmd("RENAME", "from", "l"),
    lambda c: c.cmd("COPY", "from", "l"),
    lambda c: (c.cmd("SELECT", "1"), c.cmd("RPUSH", "l", "v"), c.cmd("MOVE", "l", "0"),
               c.cmd("SELECT", "0")),
    lambda c: (c.cmd("SELECT", "1"), c.cmd("RPUSH", "l", "v"), c.cmd("SELECT", "0"),
               c.cmd("SWAPDB", "0", "1")),
    lambda c: (c.cmd("MULTI"), c.cmd("RPUSH", "l", "v"), c.cmd("EXEC")),
    lambda c: c.cmd("LMOVE", "from", "l", "LEFT", "RIGHT"),
    lambda c: c.cmd("SORT", "from", "ALPHA", "STORE", "l"),
], ids=["rename", "copy", "move", "swapdb", "exec", "lmove", "sort"])
def test_keys_that_come_in_other_ways(raw, connect, bring):
    raw.cmd("RPUSH", "from", "v")
    waiter = connect()
    sends(waiter, raw, 1, "BLPOP", "l", "0")
    bring(raw)
    assert waiter.read() == [b"l", b"v"]


def test_a_transaction_serves_at_its_end(raw, connect):
    waiter = connect()
    sends(waiter, raw, 1, "BLPOP", "l", "0")
    raw.cmd("MULTI")
    raw.cmd("RPUSH", "l", "a")
    raw.cmd("DEL", "l")
    raw.cmd("EXEC")
    assert blocked(raw) == 1
    raw.cmd("MULTI")
    raw.cmd("RPUSH", "l", "b")
    raw.cmd("LPUSH", "l", "c")
    raw.cmd("EXEC")
    assert waiter.read() == [b"l", b"c"]


def test_nothing_blocks_inside_a_transaction(raw):
    raw.cmd("MULTI")
    for command in (("BLPOP", "l", "0"), ("BLMOVE", "l", "m", "LEFT", "LEFT", "0"),
                    ("BZPOPMIN", "z", "0"), ("BLMPOP", "0", "1", "l", "LEFT"),
                    ("BRPOPLPUSH", "l", "m", "0"), ("BZMPOP", "0", "1", "z", "MIN")):
        assert raw.cmd(*command) == b"QUEUED"
    assert raw.cmd("EXEC") == [None] * 6


# --- BLMOVE ---


def test_blmove_moves_when_something_comes(raw, connect):
    waiter = connect()
    sends(waiter, raw, 1, "BLMOVE", "src", "dst", "RIGHT", "LEFT", "0")
    raw.cmd("RPUSH", "src", "a", "b")
    assert waiter.read() == b"b"
    assert raw.cmd("LRANGE", "dst", "0", "-1") == [b"b"]
    assert raw.cmd("LRANGE", "src", "0", "-1") == [b"a"]


def test_a_chain_of_moves_runs_in_one_step(raw, connect):
    last, movers = connect(), [connect() for _ in range(5)]
    sends(last, raw, 1, "BLPOP", "k5", "0")
    for i, conn in enumerate(movers):
        sends(conn, raw, i + 2, "BLMOVE", "k%d" % i, "k%d" % (i + 1), "LEFT", "RIGHT", "0")
    raw.cmd("RPUSH", "k0", "x")
    for conn in movers:
        assert conn.read() == b"x"
    assert last.read() == [b"k5", b"x"]
    assert raw.cmd("EXISTS", *("k%d" % i for i in range(6))) == 0


def test_a_circle_of_moves_ends(raw, connect):
    one, other = connect(), connect()
    sends(one, raw, 1, "BRPOPLPUSH", "a", "b", "0")
    sends(other, raw, 2, "BRPOPLPUSH", "b", "a", "0")
    raw.cmd("RPUSH", "a", "x")
    assert one.read() == b"x" and other.read() == b"x"
    assert raw.cmd("LRANGE", "a", "0", "-1") == [b"x"]


def test_who_waits_behind_a_move_is_served_too(raw, connect):
    mover, popper = connect(), connect()
    sends(mover, raw, 1, "BLMOVE", "src", "dst", "LEFT", "LEFT", "0")
    sends(popper, raw, 2, "BLPOP", "src", "0")
    raw.cmd("RPUSH", "src", "a", "b")
    assert mover.read() == b"a"
    assert popper.read() == [b"src", b"b"]


def test_destination_of_another_type(raw, connect):
    waiter = connect()
    sends(waiter, raw, 1, "BLMOVE", "src", "dst", "LEFT", "LEFT", "0")
    raw.cmd("SET", "dst", "string")
    raw.cmd("RPUSH", "src", "a")
    reply = waiter.read()
    assert isinstance(reply, Error) and reply.code == b"WRONGTYPE"
    assert raw.cmd("LRANGE", "src", "0", "-1") == [b"a"]


# --- ends of waits ---


@pytest.mark.parametrize("command", [
    ("BLPOP", "l", "0.05"), ("BRPOP", "l", "m", "0.05"), ("BLMOVE", "l", "m", "LEFT", "LEFT", "0.05"),
    ("BRPOPLPUSH", "l", "m", "0.05"), ("BLMPOP", "0.05", "1", "l", "LEFT"),
    ("BZPOPMIN", "z", "0.05"), ("BZMPOP", "0.05", "1", "z", "MIN")])
def test_a_timeout_ends_a_wait(raw, command):
    start = time.monotonic()
    raw.send_cmd(*command)
    assert raw.read_exact(5) == b"*-1\r\n"
    assert time.monotonic() - start >= 0.05
    raw.cmd("HELLO", "3")
    raw.send_cmd(*command)
    assert raw.read_exact(3) == b"_\r\n"
    raw.cmd("HELLO", "2")


def test_timeouts_end_in_their_order(raw, connect):
    waiters = [(t, connect()) for t in (0.20, 0.05, 0.15, 0.10, 0.25)]
    for t, conn in waiters:
        conn.send_cmd("BLPOP", "l", t * TIME_SCALE)
    ended = []
    for t, conn in sorted(waiters, key=lambda pair: pair[0]):
        assert conn.read() is None
        ended.append(time.monotonic())
    assert ended == sorted(ended)
    assert blocked(raw) == 0


def test_a_client_that_vanishes_takes_nothing(raw, connect):
    waiter, second = connect(), connect()
    sends(waiter, raw, 1, "BLPOP", "l", "0")
    sends(second, raw, 2, "BLPOP", "l", "0")
    waiter.close()
    wait_blocked(raw, 1)
    raw.cmd("RPUSH", "l", "a")
    assert second.read() == [b"l", b"a"]


def test_who_vanishes_after_it_was_held_up_is_noticed(raw, connect):
    """Clients that wait for the gate, send more, and are blocked by the time they are gone."""
    for first in range(0, 60000, 5000):
        raw.cmd("MSET", *[word for i in range(first, first + 5000) for word in (b"k%d" % i, b"v")])
    scanner = connect()
    for _ in range(10):
        clients = [connect() for _ in range(8)]
        scanner.send(encode("KEYS", "nothing*") * 5)
        for client in clients:
            client.send_cmd("BLPOP", "l", "0")
            client.send_cmd("PING")
        time.sleep(0.001)
        for client in clients:
            client.send_cmd("PING")
        for _ in range(5):
            assert scanner.read() == []
        for client in clients:
            client.close()
    wait_blocked(raw, 0)


def test_client_unblock(raw, connect):
    waiter = connect()
    ident = waiter.cmd("CLIENT", "ID")
    assert raw.cmd("CLIENT", "UNBLOCK", ident) == 0
    sends(waiter, raw, 1, "BLPOP", "l", "0")
    assert raw.cmd("CLIENT", "UNBLOCK", ident) == 1
    assert waiter.read() is None
    sends(waiter, raw, 1, "BLMOVE", "l", "m", "LEFT", "LEFT", "0")
    assert raw.cmd("CLIENT", "UNBLOCK", ident, "ERROR") == 1
    assert waiter.read() == Error(b"UNBLOCKED client unblocked via CLIENT UNBLOCK")
    sends(waiter, raw, 1, "BZPOPMIN", "z", "0")
    assert raw.cmd("CLIENT", "UNBLOCK", ident, "TIMEOUT") == 1
    assert waiter.read() is None
    assert raw.cmd("CLIENT", "UNBLOCK", ident, "NONE") == \
        Error(b"ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR")
    assert raw.cmd("CLIENT", "UNBLOCK", "999999") == 0
    assert waiter.cmd("PING") == b"PONG"


def test_client_kill_ends_a_wait(raw, connect):
    waiter = connect()
    ident = waiter.cmd("CLIENT", "ID")
    sends(waiter, raw, 1, "BLPOP", "l", "0")
    assert raw.cmd("CLIENT", "KILL", "ID", ident) == 1
    with pytest.raises((Closed, ConnectionError)):
        waiter.read()
    wait_blocked(raw, 0)


def test_who_is_killed_takes_nothing(raw, connect):
    """What is pushed right behind the kill stays, on whatever worker the victim is."""
    for i in range(40):
        waiter = connect()
        ident = waiter.cmd("CLIENT", "ID")
        sends(waiter, raw, 1, "BLPOP", "l", "0")
        raw.send_cmd("CLIENT", "KILL", "ID", ident)
        raw.send_cmd("RPUSH", "l", i)
        assert raw.read() == 1 and raw.read() == 1
        wait_blocked(raw, 0)
        assert raw.cmd("LRANGE", "l", 0, -1) == [b"%d" % i]
        raw.cmd("DEL", "l")


def test_shown_as_blocked(raw, connect):
    waiter = connect()
    ident = waiter.cmd("CLIENT", "ID")
    sends(waiter, raw, 1, "BLPOP", "l", "m", "100")
    line = raw.cmd("CLIENT", "LIST", "ID", ident)
    assert b"flags=b " in line and b"cmd=blpop " in line
    info = raw.cmd("INFO", "clients")
    assert b"clients_in_timeout_table:1\r\n" in info
    assert b"blocked_clients:1\r\n" in info


@pytest.mark.kvik_only
def test_blocking_keys_are_counted(raw, connect):
    waiter = connect()
    sends(waiter, raw, 1, "BLPOP", "l", "m", "l", "100")
    info = raw.cmd("INFO", "clients")
    assert b"total_blocking_keys:2\r\n" in info and b"total_watched_keys:0\r\n" in info


def test_watch_and_wait_on_one_key(raw, connect):
    waiter, watcher = connect(), connect()
    watcher.cmd("WATCH", "l")
    sends(waiter, raw, 1, "BLPOP", "l", "0")
    raw.cmd("RPUSH", "l", "a")
    assert waiter.read() == [b"l", b"a"]
    watcher.cmd("MULTI")
    watcher.cmd("PING")
    assert watcher.cmd("EXEC") is None


def test_pop_counts_and_ends(raw, connect):
    waiter = connect()
    sends(waiter, raw, 1, "BLMPOP", "0", "2", "a", "b", "RIGHT", "COUNT", "2")
    raw.cmd("RPUSH", "b", "1", "2", "3")
    assert waiter.read() == [b"b", [b"3", b"2"]]
    sends(waiter, raw, 1, "BZMPOP", "0", "2", "y", "z", "MAX", "COUNT", "2")
    raw.cmd("ZADD", "z", "1", "a", "2", "b", "3", "c")
    assert waiter.read() == [b"z", [[b"c", b"3"], [b"b", b"2"]]]


def test_reply_off_while_waiting(raw, connect):
    waiter = connect()
    waiter.send_cmd("CLIENT", "REPLY", "OFF")
    sends(waiter, raw, 1, "BLPOP", "l", "0")
    raw.cmd("RPUSH", "l", "a")
    wait_blocked(raw, 0)
    waiter.send_cmd("CLIENT", "REPLY", "ON")
    assert waiter.read() == b"OK"
    assert raw.cmd("EXISTS", "l") == 0


# --- many at once ---


def test_nothing_is_lost_or_doubled(raw, connect):
    """Producers and consumers on several keys: every element is popped exactly once."""
    per_producer, producers, consumers = 300, 3, 4
    total = per_producer * producers
    got, errors = [], []
    lock = threading.Lock()

    def produce(number):
        conn = connect()
        rng = random.Random(number)
        for i in range(per_producer):
            conn.cmd("RPUSH", "q%d" % rng.randrange(4), "%d:%d" % (number, i))

    def consume(number):
        conn = connect()
        rng = random.Random(100 + number)
        while True:
            keys = ["q%d" % k for k in rng.sample(range(4), rng.randrange(1, 5))]
            kind = rng.randrange(3)
            if kind == 0:
                reply = conn.cmd("BLPOP", *keys, "stop%d" % number, "5")
                item = None if reply is None else reply[1]
            elif kind == 1:
                reply = conn.cmd("BLMPOP", "5", len(keys) + 1, *keys, "stop%d" % number, "LEFT")
                item = None if reply is None else reply[1][0]
            else:
                item = conn.cmd("BLMOVE", keys[0], "moved%d" % number, "LEFT", "RIGHT", "0.01")
            if item is None:
                continue
            if item == b"stop":
                return
            with lock:
                got.append(item)

    def guarded(function, number):
        try:
            function(number)
        except Exception as problem:  # shown by the assertion below
            errors.append(problem)

    threads = [threading.Thread(target=guarded, args=(produce, n)) for n in range(producers)]
    threads += [threading.Thread(target=guarded, args=(consume, n)) for n in range(consumers)]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 40 * TIME_SCALE
    while len(got) < total and not errors and time.monotonic() < deadline:
        time.sleep(0.01)
    for n in range(consumers):
        raw.cmd("RPUSH", "stop%d" % n, "stop")
    for thread in threads:
        thread.join(20 * TIME_SCALE)
    assert not errors
    assert len(got) == total and len(set(got)) == total


def test_a_key_of_another_type_that_expires_hides_nothing(raw, connect):
    """Its end is no change that could serve, and must not be taken for one that was looked at."""
    waiting = connect()
    waiting.send_cmd("BLPOP", "k", "0")
    wait_blocked(raw, 1)
    for bring in (["SET", "k", "v", "PX", "5"], ["PSETEX", "k", "5", "v"]):
        raw.cmd(*bring)
        time.sleep(0.05 * TIME_SCALE)
        assert raw.cmd("EXISTS", "k") == 0
    assert raw.cmd("RPUSH", "k", "x") == 1
    assert waiting.read() == [b"k", b"x"]


def test_a_key_named_twice_counts_once(raw, connect):
    waiting = connect()
    waiting.send_cmd("BLPOP", "k", "j", "k", "k", "0")
    wait_blocked(raw, 1)
    assert b"total_blocking_keys:2\r\n" in raw.cmd("INFO", "clients")
    raw.cmd("MULTI")
    for key in ("j", "k", "j", "k"):
        raw.cmd("RPUSH", key, "x-" + key)
    assert raw.cmd("EXEC") == [1, 1, 2, 2]
    assert waiting.read() == [b"j", b"x-j"]
    assert raw.cmd("LLEN", "j") == 1 and raw.cmd("LLEN", "k") == 2


@pytest.mark.single
@pytest.mark.timeout(120)
def test_very_many_keys(raw, connect):
    """What each key costs does not depend on their number."""
    keys = ["key-%d" % i for i in range(100000)]
    waiting = connect(timeout=60)
    started = time.monotonic()
    waiting.send_cmd("BLPOP", *keys, "0")
    wait_blocked(raw, 1)
    raw.timeout = 60 * TIME_SCALE
    raw.sock.settimeout(raw.timeout)
    raw.cmd("MSET", *[word for key in keys for word in (key, "v")])
    raw.cmd("DEL", *keys)
    raw.cmd("RPUSH", keys[-1], "x")
    assert waiting.read() == [keys[-1].encode(), b"x"]
    assert time.monotonic() - started < 3 * TIME_SCALE


@pytest.mark.kvik_only
@pytest.mark.timeout(120)
def test_thousands_that_vanish_leave_no_byte(start_server):
    server = start_server("--maxclients", "4000")
    control = server.raw()
    stats = lambda: dict(zip(*[iter(control.cmd("MEMORY", "STATS"))] * 2))  # noqa: E731
    warm = [server.raw() for _ in range(50)]
    for conn in warm:
        conn.send_cmd("BLPOP", "a", "b", "0")
    wait_blocked(control, 50)
    for conn in warm:
        conn.close()
    wait_blocked(control, 0)
    dataset = int(control.cmd("INFO", "memory").split(b"used_memory_dataset:")[1].split(b"\r")[0])
    many = []
    for i in range(2000):
        conn = server.raw()
        conn.send_cmd("BLPOP", "k%d" % (i % 100), "j%d" % i, "common", "1000")
        many.append(conn)
    wait_blocked(control, 2000)
    for conn in many:
        conn.close()
    wait_blocked(control, 0)
    deadline = time.monotonic() + 10 * TIME_SCALE
    while True:
        info = control.cmd("INFO", "clients")
        if b"connected_clients:1\r\n" in info and b"total_blocking_keys:0\r\n" in info:
            break
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert int(control.cmd("INFO", "memory").split(b"used_memory_dataset:")[1].split(b"\r")[0]) \
        == dataset
    assert stats()[b"clients.normal"] < 64 * 1024
    control.cmd("RPUSH", "common", "x")
    assert control.cmd("LLEN", "common") == 1
