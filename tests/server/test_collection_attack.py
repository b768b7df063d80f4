#!/usr/bin/python3
"""Random commands of all families against tiny thresholds and short times to live, while clients
block and vanish, databases are flushed and exchanged and options change. Afterwards the keyspace
agrees with itself (DEBUG CHECK), nobody waits beside what could serve him, and no byte is left.
"""
import random
import socket
import struct
import sys
import threading
import time
from pathlib import Path

import pytest

from process import TIME_SCALE, Server
from raw import Closed, Error, encode

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "compare"))

import generate  # noqa: E402

pytestmark = pytest.mark.kvik_only

SECONDS = min(2.0 * TIME_SCALE, 4.0)  # of load in one test
KEYS = [b"k%d" % i for i in range(15)]
LEFT_OUT = {"debug", "shutdown", "client|pause", "client|reply", "config|set", "config|rewrite",
            "client|kill", "client|no-evict", "flushall", "flushdb", "quit", "swapdb", "exec", "multi",
            "discard", "watch", "waitaof", "reset"}
LIMITS = {
    b"hash-max-listpack-entries": [0, 2, 4, 512], b"hash-max-listpack-value": [1, 8, 64],
    b"set-max-intset-entries": [0, 2, 4, 512], b"set-max-listpack-entries": [0, 2, 4, 128],
    b"set-max-listpack-value": [1, 8, 64], b"zset-max-listpack-entries": [0, 2, 4, 128],
    b"zset-max-listpack-value": [1, 8, 64], b"list-max-listpack-size": [1, 2, 3, -1, -2],
    b"hll-sparse-max-bytes": [0, 100, 3000],
}
SHORT_SECONDS = [b"1", b"2", b"0", b"-1", b"100"]
SHORT_MILLISECONDS = [b"1", b"5", b"20", b"100", b"0", b"-1"]
# Answered with as many replies as they name channels, and while they last the rest is refused.
LISTENING = {"subscribe", "psubscribe", "ssubscribe", "unsubscribe", "punsubscribe", "sunsubscribe"}
BLOCKING = {"blpop", "brpop", "blmove", "brpoplpush", "blmpop", "blmovem", "bzpopmin", "bzpopmax",
            "bzmpop"}


class Hostile(generate.Generator):
    """Command lines with times that come soon."""

    def line(self, command):
        """Not the one line that a server answers with billions of members, as it was asked to."""
        while True:
            line = super().line(command)
            if not (command.id.endswith(("randmember", "randfield")) and
                    any(word[:1] == b"-" and len(word) > 5 for word in line)):
                return line

    def scalar(self, kind, name):
        now = int(time.time() * 1000)
        if name == "seconds":
            return self.random.choice(SHORT_SECONDS)
        if name == "milliseconds":
            return self.random.choice(SHORT_MILLISECONDS)
        if name == "unix-time-milliseconds":
            return b"%d" % (now + self.random.choice([1, 10, 50, 200, -5]))
        if name == "unix-time-seconds":
            return b"%d" % (now // 1000 + self.random.choice([0, 1, 2, -5]))
        if name == "timeout":
            return self.random.choice([b"0.001", b"0.01", b"0.05", b"0.2", b"0", b"-1"])
        return super().scalar(kind, name)


def reset(conn):
    """Ends the connection with RST instead of FIN."""
    conn.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    conn.close()


def number(conn, section, name):
    text = bytes(conn.cmd("INFO", section))
    return int(text.split(name.encode() + b":")[1].split(b"\r")[0])


class Load:
    """Threads that trouble one server until the time is over; the first problem counts."""

    def __init__(self, server):
        self.server = server
        self.stopping = threading.Event()
        self.problems = []
        table = [c for c in generate.load_table() if c.id not in LEFT_OUT]
        self.plain = [c for c in table if c.id not in BLOCKING | LISTENING]
        self.listening = [c for c in table if c.id in LISTENING]
        self.blocking = [c for c in table if c.id in BLOCKING]
        assert len(self.blocking) == len(BLOCKING) and len(self.listening) == len(LISTENING)

    def run(self, seconds, stream=False):
        threads = [threading.Thread(target=self.guarded, args=(self.commands, n)) for n in range(4)]
        threads += [threading.Thread(target=self.guarded, args=(self.waits, n)) for n in range(2)]
        threads += [threading.Thread(target=self.guarded, args=(self.listens, 0))]
        for thread in threads:
            thread.start()
        with self.server.raw() as control:
            ends = time.monotonic() + seconds
            while time.monotonic() < ends and not self.stopping.is_set():
                time.sleep(0.05)
                if stream:
                    while control.cmd("DEBUG", "CHANGE-STREAM", "READ") != b"":
                        pass
                assert control.cmd("DEBUG", "CHECK") == b"OK"
        self.stopping.set()
        for thread in threads:
            thread.join(30 * TIME_SCALE)
        if self.problems:
            raise self.problems[0]

    def guarded(self, function, number):
        try:
            function(number)
        except Exception as problem:  # shown by run()
            self.problems.append(problem)
            self.stopping.set()

    def batch(self, number, dice, lines):
        roll = dice.random()
        if number == 0 and roll < 0.05:
            return [[b"FLUSHALL", dice.choice([b"ASYNC", b"SYNC"])]]
        if number == 1 and roll < 0.1:
            return [[b"SWAPDB", b"0", b"1"]]
        if number == 2 and roll < 0.3:
            name = dice.choice(list(LIMITS))
            return [[b"CONFIG", b"SET", name, b"%d" % dice.choice(LIMITS[name])]]
        batch = [lines.line(lines.command()) for _ in range(dice.choice([1, 1, 4, 20, 40]))]
        if dice.random() < 0.2:
            blocked = Hostile(dice, self.blocking, keys=KEYS)
            batch.append(blocked.line(blocked.command()))
            batch = [[b"WATCH", dice.choice(KEYS)], [b"MULTI"]] + batch + \
                [[dice.choice([b"EXEC", b"EXEC", b"DISCARD"])]]
        return [[b"SELECT", b"%d" % dice.choice([0, 0, 1])]] + batch

    def commands(self, number):
        dice = random.Random("commands %d" % number)
        lines = Hostile(dice, self.plain, keys=KEYS)
        conn = self.server.raw(timeout=30)
        while not self.stopping.is_set():
            batch = self.batch(number, dice, lines)
            try:
                conn.send(b"".join(encode(*line) for line in batch))
                if dice.random() < 0.01:
                    reset(conn)
                    conn = self.server.raw(timeout=30)
                    continue
                for _ in batch:
                    conn.read()
            except (Closed, ConnectionError):
                assert self.server.alive(), self.server.log()[-8000:]
                conn = self.server.raw(timeout=30)
        conn.close()

    def waits(self, number):
        dice = random.Random("waits %d" % number)
        lines = Hostile(dice, self.blocking, keys=KEYS)
        while not self.stopping.is_set():
            conns = [self.server.raw() for _ in range(5)]
            ids = [conn.cmd("CLIENT", "ID") for conn in conns]
            for conn in conns:
                conn.send(b"".join(encode(*lines.line(lines.command()))
                                   for _ in range(dice.choice([1, 1, 3]))))
            time.sleep(dice.random() * 0.02)
            with self.server.raw() as control:
                for identity in ids:
                    if dice.random() < 0.2:
                        control.cmd("CLIENT", "UNBLOCK", identity, dice.choice(["ERROR", "TIMEOUT"]))
                    elif dice.random() < 0.1:
                        control.cmd("CLIENT", "KILL", "ID", identity)
            for conn in conns:
                (reset if dice.random() < 0.4 else type(conn).close)(conn)


    def listens(self, number):
        """Subscribers that hardly read and vanish."""
        dice = random.Random("listens %d" % number)
        lines = Hostile(dice, self.listening + self.plain[:5], keys=KEYS)
        while not self.stopping.is_set():
            conns = [self.server.raw() for _ in range(5)]
            for conn in conns:
                if dice.random() < 0.5:
                    conn.hello3()
                conn.send(b"".join(encode(*lines.line(lines.command()))
                                   for _ in range(dice.choice([1, 3, 20]))))
            time.sleep(dice.random() * 0.05)
            for conn in conns:
                (reset if dice.random() < 0.4 else type(conn).close)(conn)


def assert_nothing_left(control, start):
    control.cmd("FLUSHALL", "SYNC")
    wanted = {("clients", "blocked_clients"): 0, ("clients", "total_blocking_keys"): 0,
              ("clients", "pubsub_clients"): 0, ("memory", "used_memory_dataset"): start}
    deadline = time.monotonic() + 10 * TIME_SCALE
    while True:
        found = {where: number(control, *where) for where in wanted}
        if found == wanted:
            break
        assert time.monotonic() < deadline, (found, bytes(control.cmd("CLIENT", "LIST")))
        time.sleep(0.02)
    assert control.cmd("DEBUG", "CHECK") == b"OK"


@pytest.mark.timeout(120)
@pytest.mark.parametrize("options", [
    (), ("--maxmemory", "6mb", "--maxmemory-policy", "allkeys-lru"),
    ("--activedefrag", "yes", "--active-defrag-ignore-bytes", "1"),
], ids=["plain", "evicting", "moving"])
def test_everything_at_once(start_server, options):
    server = start_server("--proto-max-bulk-len", "1048576", *options)
    control = server.raw()
    control.cmd("FLUSHALL")
    start = number(control, "memory", "used_memory_dataset")
    Load(server).run(SECONDS)
    assert_nothing_left(control, start)


@pytest.mark.timeout(120)
def test_everything_into_a_change_stream(start_server):
    server = start_server("--proto-max-bulk-len", "1048576", threads=4)
    control = server.raw()
    control.cmd("FLUSHALL")
    start = number(control, "memory", "used_memory_dataset")
    assert control.cmd("DEBUG", "CHANGE-STREAM", "START") == b"OK"
    Load(server).run(SECONDS, stream=True)
    assert control.cmd("DEBUG", "CHANGE-STREAM", "STOP") == b"OK"
    assert_nothing_left(control, start)


# --- nobody waits beside a full key ---


WAITS = [("BLPOP", True), ("BRPOP", True), ("BZPOPMIN", False), ("BZPOPMAX", False)]


class Waiters:
    """Connections that wait for several keys each, for ever."""

    def __init__(self, server, dice, count):
        self.dice = dice
        self.conns = [server.raw(timeout=30) for _ in range(count)]
        self.wants = [None] * count

    def wait_again(self):
        for i, conn in enumerate(self.conns):
            if self.wants[i] is None:
                command, lists = self.dice.choice(WAITS)
                keys = self.dice.sample(range(6), self.dice.choice([1, 2, 3]))
                names = [b"%s%d" % (b"l" if lists else b"z", key) for key in keys]
                conn.send_cmd(command, *names, "0")
                self.wants[i] = names

    def take_replies(self):
        for i, conn in enumerate(self.conns):
            if self.wants[i] is None:
                continue
            conn.sock.setblocking(False)
            try:
                conn.buf += conn.sock.recv(1 << 16)
            except BlockingIOError:
                pass
            conn.sock.settimeout(conn.timeout)
            if conn.buf:
                assert conn.read()[0] in self.wants[i]
                self.wants[i] = None

    def close(self):
        for conn in self.conns:
            conn.close()


def push(dice):
    key = dice.randrange(6)
    roll = dice.random()
    if roll < 0.35:
        return [[b"RPUSH", b"l%d" % key, b"x"]]
    if roll < 0.5:
        return [[b"LMOVE", b"l%d" % key, b"l%d" % dice.randrange(6), b"LEFT", b"RIGHT"]]
    if roll < 0.6:
        return [[b"LPUSH", b"other", b"y"], [b"RENAME", b"other", b"l%d" % key]]
    if roll < 0.7:
        return [[b"DEL", b"z%d" % key, b"l%d" % dice.randrange(6)]]
    name = b"z%d" % key
    if roll < 0.85:
        # The member may be due when somebody is served with it.
        return [[b"MULTI"], [b"ZADD", name, b"1", b"m"],
                [b"ZPEXPIRE", name, b"1", b"MEMBERS", b"1", b"m"], [b"DEBUG", b"SLEEP", b"0.002"],
                [b"ZPTTL", b"none", b"MEMBERS", b"1", b"m"], [b"EXEC"]]
    return [[b"ZADD", name, b"%d" % dice.randrange(5), b"n%d" % dice.randrange(3)]]


def run_pushes(server, seed, problems):
    dice = random.Random(seed)
    try:
        with server.raw(timeout=30) as conn:
            for _ in range(60):
                batch = push(dice)
                conn.send(b"".join(encode(*line) for line in batch))
                for _ in batch:
                    conn.read()
    except Exception as problem:  # shown by the test
        problems.append(problem)


@pytest.mark.timeout(120)
def test_nobody_waits_beside_a_full_key(start_server):
    server = start_server(threads=4)
    dice = random.Random(5)
    waiters = Waiters(server, dice, 12)
    control = server.raw()
    problems = []
    for round_number in range(8):
        waiters.wait_again()
        threads = [threading.Thread(target=run_pushes, args=(server, "%d %d" % (round_number, n),
                                                             problems)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not problems
        deadline = time.monotonic() + 5 * TIME_SCALE
        while True:
            # What is still underway comes within moments.
            time.sleep(0.02)
            waiters.take_replies()
            beside = [name for names in waiters.wants if names is not None for name in names
                      if control.cmd("EXISTS", name) == 1]
            if not beside:
                break
            assert time.monotonic() < deadline, "somebody waits beside %s" % beside
    waiters.close()


@pytest.mark.timeout(120)
def test_reload_during_a_save(start_server):
    """The saving must not end well without the keys that were gone for a moment."""
    server = start_server(threads=4)
    control = server.raw(timeout=60)
    count = 100000
    for first in range(0, count, 1000):
        control.cmd("MSET", *[word for i in range(first, first + 1000) for word in ("k%d" % i, "v")])
    control.cmd("SAVE")
    control.send(encode("BGSAVE") + encode("DEBUG", "RELOAD"))
    assert not isinstance(control.read(), Error)
    assert control.read() == b"OK"
    deadline = time.monotonic() + 30 * TIME_SCALE
    while number(control, "persistence", "rdb_bgsave_in_progress") != 0:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert control.cmd("DEBUG", "RELOAD", "NOSAVE") == b"OK"
    assert control.cmd("DBSIZE") == count
