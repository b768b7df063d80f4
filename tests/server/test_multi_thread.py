#!/usr/bin/python3
"""Several workers: what several clients see at once must be what some order of commands explains.

These tests state single invariants under load; tests/linear checks whole histories.
"""
import random
import signal
import threading
import time

import pytest

from process import TIME_SCALE, Server
from raw import Closed, Error, encode

SECONDS = min(1.0 * TIME_SCALE, 2.5)  # of load in one test
NAMES = ["k%d" % number for number in range(12)]  # on many shards


@pytest.fixture(scope="module")
def server():
    running = Server(threads=4)
    yield running
    running.stop()


class Team:
    """Threads, each with a connection of its own, until told to stop. The first error counts."""

    def __init__(self, server):
        self.server = server
        self.stopping = threading.Event()
        self.errors = []
        self.threads = []
        self.counts = {}

    def add(self, work, name=None, copies=1):
        """work(conn) is called again and again."""
        for copy in range(copies):
            label = (name or work.__name__, copy)
            self.counts[label] = 0
            self.threads.append(threading.Thread(target=self.loop, args=(work, label)))

    def loop(self, work, label):
        try:
            with self.server.raw(timeout=30) as conn:
                while not self.stopping.is_set():
                    work(conn)
                    self.counts[label] += 1
        except BaseException as problem:  # shown by run()
            self.errors.append((label, problem))
            self.stopping.set()

    def run(self, seconds=SECONDS):
        for thread in self.threads:
            thread.start()
        self.stopping.wait(seconds)
        self.stopping.set()
        for thread in self.threads:
            thread.join(60 * TIME_SCALE)
            assert not thread.is_alive(), "a connection got no answer: deadlock?"
        assert not self.errors, self.errors

    def count(self, name):
        return sum(number for label, number in self.counts.items() if label[0] == name)


@pytest.fixture
def team(empty_server):
    return Team(empty_server)


def execute(conn, *commands):
    """One transaction in one packet; the reply of EXEC."""
    conn.send(encode("MULTI") + b"".join(encode(*command) for command in commands) + encode("EXEC"))
    assert conn.read() == b"OK"
    for command in commands:
        assert conn.read() == b"QUEUED", command
    return conn.read()


def test_connections_are_spread_over_workers(team, client):
    team.add(lambda conn: conn.cmd("INCR", "n"), "incr", copies=8)
    team.run()
    assert int(client.get("n")) == team.count("incr")


def test_pipelined_increments_of_shared_counters(team, client):
    def pipeline(conn):
        conn.send(b"".join(encode("INCR", name) for name in NAMES) * 10)
        for _ in range(10 * len(NAMES)):
            assert isinstance(conn.read(), int)

    team.add(pipeline, copies=6)
    team.run()
    assert {int(client.get(name)) for name in NAMES} == {10 * team.count("pipeline")}


def test_mset_is_seen_whole(team):
    dice = random.Random(1)

    def writer(conn):
        value = dice.randrange(1000000)
        pairs = [word for name in NAMES for word in (name, value)]
        assert conn.cmd("MSET", *pairs) == b"OK"

    def reader(conn):
        assert len(set(conn.cmd("MGET", *reversed(NAMES)))) == 1

    team.add(writer, copies=3)
    team.add(reader, copies=3)
    team.run()
    assert team.count("reader") > 10 and team.count("writer") > 10


def test_transaction_is_seen_whole(team):
    dice = random.Random(2)

    def writer(conn):
        value = dice.randrange(1000000)
        names = dice.sample(NAMES, len(NAMES))
        assert execute(conn, *[["SET", name, value] for name in names]) == [b"OK"] * len(names)

    def reader(conn):
        assert len(set(execute(conn, *[["GET", name] for name in NAMES]))) == 1

    def plain_reader(conn):
        assert len(set(conn.cmd("MGET", *NAMES))) == 1

    team.add(writer, copies=3)
    team.add(reader, copies=2)
    team.add(plain_reader, copies=2)
    team.run()


def test_transfers_with_watch_keep_the_sum(team, client):
    client.mset({name: 100 for name in NAMES})
    dice = random.Random(3)
    failed = [0]

    def transfer(conn):
        source, target = dice.sample(NAMES, 2)
        conn.cmd("WATCH", source, target)
        have, there = [int(value) for value in conn.cmd("MGET", source, target)]
        amount = dice.randint(0, have)
        if execute(conn, ["SET", source, have - amount], ["SET", target, there + amount]) is None:
            failed[0] += 1

    def auditor(conn):
        assert sum(int(value) for value in conn.cmd("MGET", *NAMES)) == 100 * len(NAMES)

    team.add(transfer, copies=5)
    team.add(auditor, copies=2)
    team.run()
    assert team.count("transfer") > failed[0]


def test_renames_lose_nothing(team, client):
    for name in NAMES[:6]:
        client.set(name, "token-" + name)
    dice = random.Random(4)

    def rename(conn):
        source, target = dice.sample(NAMES, 2)
        conn.cmd("RENAMENX", source, target)

    def counter(conn):
        values = [value for value in conn.cmd("MGET", *NAMES) if value is not None]
        assert len(values) == 6 and len(set(values)) == 6
        assert conn.cmd("DBSIZE") == 6
        assert len(conn.cmd("KEYS", "k*")) == 6

    team.add(rename, copies=4)
    team.add(counter, copies=2)
    team.run()


def test_flush_is_seen_whole(team):
    pairs = [word for name in NAMES for word in (name, "1")]

    def fill(conn):
        conn.cmd("MSET", *pairs)

    def flush(conn):
        assert conn.cmd("FLUSHALL") == b"OK"
        time.sleep(0.001)

    def reader(conn):
        assert len(set(conn.cmd("MGET", *NAMES))) == 1
        assert conn.cmd("EXISTS", *NAMES) in (0, len(NAMES))
        assert conn.cmd("DBSIZE") in (0, len(NAMES))
        assert len(conn.cmd("KEYS", "*")) in (0, len(NAMES))

    team.add(fill, copies=2)
    team.add(flush)
    team.add(reader, copies=3)
    team.run()


def test_swapdb_is_seen_whole(team, client):
    client.mset({name: "zero" for name in NAMES})
    with team.server.raw() as conn:
        conn.cmd("SELECT", 1)
        conn.cmd("MSET", *[word for name in NAMES for word in (name, "one")])

    def swap(conn):
        assert conn.cmd("SWAPDB", 0, 1) == b"OK"

    def reader(conn):
        assert len(set(conn.cmd("MGET", *NAMES))) == 1

    def both(conn):
        reply = execute(conn, ["SELECT", 0], ["GET", "k1"], ["SELECT", 1], ["GET", "k1"])
        assert {reply[1], reply[3]} == {b"zero", b"one"}

    team.add(swap, copies=2)
    team.add(reader, copies=2)
    team.add(both, copies=2)
    team.run()


def test_own_writes_are_seen_in_order(team):
    """Commands of one connection take effect in the order sent, whatever others do."""
    def work(conn):
        name = "own:%d" % threading.get_ident()
        conn.send(encode("DEL", name) + encode("SET", name, 1) + encode("INCR", name) +
                  encode("RENAME", name, name + "x") + encode("INCR", name + "x") +
                  encode("KEYS", name + "*") + encode("MGET", name, name + "x") +
                  encode("DEL", name + "x") + encode("EXISTS", name, name + "x"))
        replies = [conn.read() for _ in range(9)]
        assert replies[1:] == [b"OK", 2, b"OK", 3, [(name + "x").encode()], [None, b"3"], 1, 0]

    def noise(conn):
        conn.cmd("MSET", *[word for name in NAMES for word in (name, "1")])

    team.add(work, copies=5)
    team.add(noise, copies=2)
    team.run()


def test_scan_finds_what_was_there_all_the_time(team, client):
    stable = {b"stable:%d" % number for number in range(500)}
    client.mset({name: 1 for name in stable})
    dice = random.Random(5)

    def churn(conn):
        names = ["churn:%d" % dice.randrange(3000) for _ in range(50)]
        conn.send(b"".join(encode("SET", name, 1) for name in names[:25]) + encode("DEL", *names[25:]))
        for _ in range(26):
            conn.read()

    def scanner(conn):
        found, cursor = set(), b"0"
        while True:
            cursor, names = conn.cmd("SCAN", cursor, "COUNT", 50)
            found.update(names)
            if cursor == b"0":
                break
        assert stable <= found
        assert all(name in stable or name.startswith(b"churn:") for name in found)

    team.add(churn, copies=3)
    team.add(scanner, copies=2)
    team.run()
    assert team.count("scanner") >= 2


def flood(conn):
    dice = threading.get_ident() % 97
    conn.send(b"".join(encode("SET", "f%d" % ((number * 7 + dice) % 2000), "v") for number in range(100)))
    for _ in range(100):
        assert conn.read() == b"OK"


def test_keys_among_a_flood_of_sets_answers(team):
    slowest = [0.0]

    def keys(conn):
        start = time.monotonic()
        assert isinstance(conn.cmd("KEYS", "f1*"), list)
        conn.cmd("DBSIZE")
        slowest[0] = max(slowest[0], time.monotonic() - start)
        time.sleep(0.01)

    team.add(flood, copies=6)
    team.add(keys)
    team.run(2 * SECONDS)
    assert team.count("keys") >= 5
    assert slowest[0] < 2.0 * TIME_SCALE


def test_flood_among_keys_goes_on(team):
    def keys(conn):
        conn.send(encode("KEYS", "f1*") * 5 + encode("DBSIZE"))
        for _ in range(6):
            conn.read()

    team.add(keys, copies=4)
    team.add(flood, copies=2)
    team.run(2 * SECONDS)
    assert team.count("flood") >= 4
    assert team.count("keys") >= 4


def test_exclusive_commands_of_every_kind_meet(team):
    """KEYS, DBSIZE, FLUSHDB, SWAPDB, CLIENT LIST, INFO, CONFIG and EXEC with them: no deadlock."""
    dice = random.Random(6)
    lines = [["KEYS", "*"], ["DBSIZE"], ["FLUSHDB"], ["SWAPDB", 2, 3], ["CLIENT", "LIST"], ["INFO"],
             ["CONFIG", "SET", "timeout", 0], ["CONFIG", "GET", "*"], ["RANDOMKEY"], ["SCAN", 0],
             ["MSET", "a", 1, "b", 2, "c", 3], ["DEBUG", "DIGEST"], ["SLOWLOG", "GET"],
             ["COPY", "a", "b", "REPLACE"], ["MOVE", "c", 3], ["CLIENT", "NO-EVICT", "on"],
             ["CONFIG", "RESETSTAT"], ["COMMAND", "COUNT"], ["MEMORY", "STATS"]]

    def work(conn):
        for _ in range(5):
            reply = conn.cmd(*dice.choice(lines))
            assert not isinstance(reply, Error) or reply.code == b"ERR", reply
        reply = execute(conn, *dice.sample(lines, 3))
        assert len(reply) == 3

    team.add(work, copies=8)
    team.add(flood, copies=2)
    team.run(2 * SECONDS)
    assert team.count("work") >= 16


def test_client_kill_reaches_every_worker(server, connect):
    killer = connect()
    victims = [connect() for _ in range(12)]
    ids = [victim.cmd("CLIENT", "ID") for victim in victims]
    assert len(set(ids)) == len(ids)
    for victim, number in zip(victims[:4], ids[:4]):
        assert killer.cmd("CLIENT", "KILL", "ID", number) == 1
        victim.expect_closed()
    assert killer.cmd("CLIENT", "KILL", "TYPE", "normal") == len(victims) - 4
    for victim in victims[4:]:
        victim.expect_closed()
    assert killer.cmd("PING") == b"PONG"
    rows = killer.cmd("CLIENT", "LIST").decode().splitlines()
    assert not any("id=%d " % number in row for number in ids for row in rows)


def test_kill_of_busy_clients(team):
    """Clients are killed while they write; nobody else notices."""
    def victim(conn):
        with team.server.raw(timeout=30) as other:
            try:
                other.send(b"".join(encode("SET", name, "x" * 100) for name in NAMES) * 20)
                for _ in range(20 * len(NAMES)):
                    assert other.read() == b"OK"
            except (Closed, OSError):
                pass

    def killer(conn):
        conn.cmd("CLIENT", "SETNAME", "killer")
        for row in conn.cmd("CLIENT", "LIST").decode().splitlines():
            if "name=killer" not in row and "name=keep" not in row and random.random() < 0.5:
                conn.cmd("CLIENT", "KILL", "ID", row.split()[0].split("=")[1])
        time.sleep(0.005)

    def bystander(conn):
        conn.cmd("CLIENT", "SETNAME", "keep")
        assert conn.cmd("INCR", "counter") > 0

    for work, copies in ((victim, 4), (killer, 1), (bystander, 2)):
        team.add(work, copies=copies)
    try:
        team.run()
    except AssertionError:
        # The outer connections of `victim`, and `keep` before its first SETNAME, may be hit too.
        left = [item for item in team.errors if item[0][0] == "killer"]
        assert not left and all(isinstance(item[1], (Closed, OSError)) for item in team.errors), \
            team.errors


def test_pause_holds_all_workers(server, connect):
    conns = [connect() for _ in range(8)]
    for conn in conns:
        conn.cmd("PING")
    start = time.monotonic()
    assert conns[0].cmd("CLIENT", "PAUSE", 300, "WRITE") == b"OK"
    for conn in conns[1:]:
        conn.send_cmd("INCR", "n")
    assert connect().cmd("GET", "n") is None
    values = sorted(conn.read() for conn in conns[1:])
    assert time.monotonic() - start >= 0.29
    assert values == list(range(1, 8))
    conns[0].cmd("CLIENT", "PAUSE", 60000, "WRITE")
    conns[1].send_cmd("INCR", "n")
    conns[1].expect_silence(0.05)
    conns[0].cmd("CLIENT", "UNPAUSE")
    assert conns[1].read() == 8
    conns[0].cmd("CLIENT", "PAUSE", 200, "ALL")
    conns[1].send_cmd("GET", "n")
    conns[1].expect_silence(0.05)
    assert conns[1].read() == b"8"


def test_connections_come_and_go(team):
    def visitor(conn):
        with team.server.raw(timeout=30) as other:
            assert other.cmd("INCR", "visits") > 0
        assert conn.cmd("PING") == b"PONG"

    team.add(visitor, copies=6)
    team.run()


def test_statistics_are_exact_when_quiet(team, client):
    client.config_resetstat()
    team.add(lambda conn: conn.cmd("SET", "a", 1), "set", copies=5)
    team.run()
    stats = client.info("commandstats")
    assert stats["cmdstat_set"]["calls"] == team.count("set")


def test_watched_keys_of_many_clients(team):
    """Watches appear and go on every shard while keys change and databases are flushed."""
    dice = random.Random(8)

    def watcher(conn):
        conn.cmd("WATCH", *dice.sample(NAMES, 3))
        choice = dice.randrange(4)
        if choice == 0:
            conn.cmd("UNWATCH")
        elif choice == 1:
            conn.cmd("RESET")
        else:
            reply = execute(conn, ["INCR", dice.choice(NAMES)])
            assert reply is None or isinstance(reply[0], (int, Error))

    def changer(conn):
        conn.cmd("SET", dice.choice(NAMES), dice.randrange(100))

    def flusher(conn):
        conn.cmd(dice.choice(["FLUSHALL", "DBSIZE"]))
        time.sleep(0.01)

    team.add(watcher, copies=5)
    team.add(changer, copies=2)
    team.add(flusher)
    team.run()


def test_shutdown_under_load(start_server):
    """SIGTERM while clients write: the server ends cleanly and soon."""
    running = start_server(threads=4)
    stop = threading.Event()

    def load():
        try:
            with running.raw(timeout=30) as conn:
                while not stop.is_set():
                    flood(conn)
                    conn.cmd("KEYS", "f1*")
        except (Closed, OSError):
            pass

    threads = [threading.Thread(target=load) for _ in range(6)]
    for thread in threads:
        thread.start()
    time.sleep(0.3)
    running.process.send_signal(signal.SIGTERM)
    assert running.wait(10) == 0
    stop.set()
    for thread in threads:
        thread.join(30)
    running.stop()
