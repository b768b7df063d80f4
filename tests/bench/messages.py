#!/usr/bin/python3
"""Measures messages, transactions, waiting, scripts, tracking and eviction against redis-server.

    messages.py [--rounds N] [--scale F] [--quick] [--json FILE] [row ...]

As datatypes.py: both servers on one core, the load on another, each row on a fresh pair of servers
that take turns. Printed per row: the median over the rounds of the servers' CPU microseconds per
command and of their ratio in the same round, with the target. What a command is, each row says;
README.md says how to read the result.
"""
import argparse
import json
import os
import platform
import selectors
import subprocess
import sys
import threading
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from bench import cpu_name, cpu_ns  # noqa: E402
from datatypes import TypeBench, pipe  # noqa: E402
from process import REFERENCE, Server  # noqa: E402
from raw import encode  # noqa: E402

KEYS = 100_000
RANDOM = "__rand_int__"
SUBSCRIBERS = 1000
MESSAGE = "x" * 32
SCRIPT = "return redis.call('SET', KEYS[1], ARGV[1])"
LIBRARY = """#!lua name=bench
redis.register_function('put', function(keys, args) return redis.call('SET', keys[1], args[1]) end)"""
FULL_BYTES = 64_000_000
FULL_KEYS = 10_000_000  # more than fit in FULL_BYTES
LIMIT_SECONDS = 60
TAIL_BYTES = 64


class Ears:
    """Connections whose bytes are counted by a thread on the load's core."""

    def __init__(self, server, core, count):
        self.conns = [server.raw(timeout=LIMIT_SECONDS) for _ in range(count)]
        self.core = core
        self.heard = 0
        self.tail = b""  # the last bytes that came
        self.wanted = threading.Condition()
        self.stopping = False
        self.thread = None

    def listen(self):
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        os.sched_setaffinity(0, {self.core})
        with selectors.DefaultSelector() as selector:
            for conn in self.conns:
                selector.register(conn.sock, selectors.EVENT_READ)
            while not self.stopping:
                data = b""
                got = 0
                for ready, _ in selector.select(0.1):
                    data = ready.fileobj.recv(1 << 16)
                    got += len(data)
                with self.wanted:
                    self.heard += got
                    self.tail = (self.tail + data)[-TAIL_BYTES:]
                    self.wanted.notify()

    def wait(self, condition):
        with self.wanted:
            if not self.wanted.wait_for(condition, LIMIT_SECONDS):
                sys.exit("something did not come; the last of %d bytes: %r" % (
                    self.heard, self.tail))

    def stop(self):
        self.stopping = True
        if self.thread is not None:
            self.thread.join()
        for conn in self.conns:
            conn.close()


class Row:
    """One line of the table; subclasses say what is done before, and in a round."""

    options = ()

    def __init__(self, name, requests, target):
        self.name, self.requests, self.target = name, requests, target

    def prepare(self, bench, server):
        """Fills a server; what it gives is given to the rounds and stopped at the end."""
        fill(server, bench.scaled(KEYS))

    def load(self, bench, server, helper, requests):
        raise NotImplementedError

    def before(self, bench, server, helper):
        """What a round needs and does not count."""


class Benchmark(Row):
    """redis-benchmark's pipeline of one command line."""

    def __init__(self, name, requests, target, pipeline, *words):
        super().__init__(name, requests, target)
        self.pipeline, self.words = pipeline, words

    def keys(self, bench):
        """How many the random ones are taken of."""
        return bench.scaled(KEYS)

    def load(self, bench, server, helper, requests):
        bench.pinned("redis-benchmark", "-p", server.port, "-c", min(50, requests), "-P",
                     self.pipeline, "-n", requests, "-r", self.keys(bench), "-q",
                     *self.words)


class Publish(Row):
    """A command is a PUBLISH, with all that it sends."""

    channel = "news"

    def prepare(self, bench, server):
        ears = Ears(server, bench.load_core, SUBSCRIBERS)
        for conn in ears.conns:
            conn.cmd("SUBSCRIBE", self.channel)
        ears.listen()
        return ears

    def load(self, bench, server, helper, requests):
        message = encode("message", self.channel, MESSAGE)
        heard = helper.heard + len(message) * SUBSCRIBERS * requests
        bench.pinned("redis-benchmark", "-p", server.port, "-c", 1, "-n", requests, "-q",
                     "PUBLISH", self.channel, MESSAGE)
        helper.wait(lambda: helper.heard >= heard)


class Exchange(Row):
    """A command is a turn of exchange.c."""

    def __init__(self, name, requests, target, replies, *lines):
        super().__init__(name, requests, target)
        self.reply_bytes, self.lines = len(replies), lines

    def load(self, bench, server, helper, requests):
        bench.pinned(bench.exchange, server.port, 50, max(requests, 50), bench.scaled(KEYS),
                     self.reply_bytes, *self.lines)


class Script(Benchmark):
    """A command is an EVALSHA."""

    def prepare(self, bench, server):
        super().prepare(bench, server)
        with server.raw() as conn:
            digest = conn.cmd("SCRIPT", "LOAD", SCRIPT).decode()
        self.words = ("EVALSHA", digest, "1", "key:" + RANDOM, MESSAGE)


class Function(Benchmark):
    """A command is an FCALL of what Script runs."""

    def prepare(self, bench, server):
        super().prepare(bench, server)
        with server.raw() as conn:
            assert conn.cmd("FUNCTION", "LOAD", LIBRARY) == b"bench"
        self.words = ("FCALL", "put", "1", "key:" + RANDOM, MESSAGE)


class Tracking(Benchmark):
    """A command is a SET. Before each round a client that tracks keys has read all of them."""

    round = 0

    def prepare(self, bench, server):
        super().prepare(bench, server)
        ears = Ears(server, bench.load_core, 1)
        conn = ears.conns[0]
        conn.hello3()
        assert conn.cmd("CLIENT", "TRACKING", "ON") == b"OK"
        ears.listen()
        return ears

    def before(self, bench, server, helper):
        count = bench.scaled(KEYS)
        for start in range(0, count, 1000):
            names = [key(i) for i in range(start, min(start + 1000, count))]
            helper.conns[0].send(encode("MGET", *names))
        self.round += 1
        mark = "all were read %d" % self.round
        helper.conns[0].send(encode("ECHO", mark))
        helper.wait(lambda: helper.tail.endswith(mark.encode() + b"\r\n"))


class Full(Benchmark):
    """A command is a SET, nearly each of which evicts another key."""

    options = ("--maxmemory", FULL_BYTES, "--maxmemory-policy", "allkeys-lru")

    def keys(self, bench):
        return FULL_KEYS

    def prepare(self, bench, server):
        with server.raw() as conn:
            count = 0
            while not int(info(conn, "evicted_keys")):
                pipe(server, (["SET", key(i), "x" * 100] for i in range(count, count + 20_000)))
                count += 20_000


def info(conn, name):
    for line in conn.cmd("INFO", "stats").split(b"\r\n"):
        if line.startswith(name.encode() + b":"):
            return line.split(b":")[1]
    raise ValueError("no %s in INFO" % name)


def key(i):
    return "key:%012d" % i


def fill(server, count):
    pipe(server, (["SET", key(i), MESSAGE] for i in range(count)))


QUEUED = "+OK\r\n" + "+QUEUED\r\n" * 10 + "*10\r\n" + "+OK\r\n" * 10
POPPED = ":1\r\n" + "*2\r\n$5\r\nq:000\r\n$1\r\nx\r\n"

ROWS = [
    Publish("publish-1000", 2_000, 1.00),
    Exchange("multi-exec-10", 100_000, 1.00, QUEUED, "MULTI",
             *["SET key:{random} " + MESSAGE] * 10, "EXEC"),
    Exchange("blpop-lpush", 200_000, 1.00, POPPED, "LPUSH q:{peer} x", "BLPOP q:{self} 0"),
    Script("evalsha-p1", 200_000, 1.00, 1),
    Script("evalsha-p50", 1_000_000, 0.60, 50),
    Function("fcall-p1", 200_000, 1.00, 1),
    Function("fcall-p50", 1_000_000, 0.60, 50),
    Tracking("set-tracked-p1", 200_000, 1.00, 1, "SET", "key:" + RANDOM, MESSAGE),
    Full("set-full-p1", 200_000, 1.00, 1, "SET", "key:" + RANDOM, "x" * 100),
]


class MessageBench(TypeBench):
    def __init__(self, options):
        super().__init__(options)
        self.exchange = str(HERE.parents[1] / "build" / "release" / "bench" / "exchange")
        if not os.path.exists(self.exchange):
            sys.exit("make V=release bench-programs builds %s" % self.exchange)
        self.helpers = {}

    def start_with(self, which, row):
        server = Server("--maxclients", "2000", *row.options,
                        binary=REFERENCE if which == "redis" else None, threads=1, debug=False)
        subprocess.run(["taskset", "-a", "-c", "-p", str(self.server_core), str(server.pid)],
                       check=True, stdout=subprocess.DEVNULL)
        return server

    def run_row(self, server, row):
        """CPU microseconds per command of one round on one server."""
        requests = max(50, self.scaled(row.requests))
        helper = self.helpers[server.pid]
        row.before(self, server, helper)
        before = cpu_ns(server.pid)
        row.load(self, server, helper, requests)
        return (cpu_ns(server.pid) - before) / 1000 / requests

    def speed(self, selected):
        print("\n%-22s %10s %10s %8s %8s" % ("workload", "Kvik us", "Redis us", "ratio", "target"))
        for row in ROWS:
            if row.name not in selected:
                continue
            servers = {which: self.start_with(which, row) for which in ("kvik", "redis")}
            for server in servers.values():
                self.helpers[server.pid] = row.prepare(self, server)
            self.rounds_of(servers, row)
            for server in servers.values():
                helper = self.helpers.pop(server.pid)
                if helper is not None:
                    helper.stop()
                server.stop()

    def run(self, selected):
        print("%s, Linux %s, server on core %d, load on core %d, %d rounds, scale %g" % (
            cpu_name(), platform.release(), self.server_core, self.load_core, self.options.rounds,
            self.options.scale))
        self.speed(selected)
        if self.options.json:
            Path(self.options.json).write_text(json.dumps(self.results, indent=1) + "\n")


def main():
    names = [row.name for row in ROWS]
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0],
                                     epilog="rows: " + " ".join(names))
    parser.add_argument("rows", nargs="*", help="all when none is named; a prefix selects many")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0,
                        help="factor on the numbers of keys and requests")
    parser.add_argument("--quick", action="store_true", help="2 rounds at a twentieth of the size")
    parser.add_argument("--json", help="write all rounds to this file")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.scale = 2, 0.05
    selected = [name for name in names
                if not options.rows or any(name.startswith(row) for row in options.rows)]
    if not selected:
        parser.error("no such row; there are: " + " ".join(names))
    MessageBench(options).run(selected)


if __name__ == "__main__":
    main()
