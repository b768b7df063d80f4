#!/usr/bin/python3
"""Trains a server that counts (`make pgo`): a fixed-seed mix of commands that is not the benchmark.

    train.py SERVER [--scale F]

Each run starts the server with one thread and with two, over TCP and the unix socket, and sends

    wide    every command of the table but a few (EXCLUDED), by tests/compare/generate.py: all
            options, mistakes of clients, transactions, RESP2 and RESP3
    deep    what applications do all day, by WEIGHTS: keys and values of many sizes, some keys much
            more often than others, pipelines from 1 to 200, from 12 connections at once
    rough   large values, requests in pieces, inline commands, broken protocol, cut connections

The benchmark's own load (key:000000000000, values of 32 bytes, redis-benchmark) is on purpose not
among it: a profile of the benchmark would only show that the benchmark can be learnt. After each
window of commands an ECHO of a unique word says that all were answered; replies are not read
otherwise (tests/compare and tests/server judge them). The server ends by SIGTERM and a normal
return from main, which is when counts are written; a fault in its log or a status that is not 0
fails the training.
"""
import argparse
import random
import select
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "server"), str(HERE.parent / "compare")]

from generate import Generator, load_table  # noqa: E402
from process import Server  # noqa: E402
from raw import Closed  # noqa: E402

SEED = 77003
CONNECTIONS = 12
WAIT_SECONDS = 30
# They end the connection or the server, silence replies, wait, or change what the rest relies on.
EXCLUDED = {"quit", "shutdown", "debug", "client|reply", "client|pause", "client|kill",
            "config|rewrite", "config|set", "command|docs"}
EXCLUDED_FLAGS = {"blocking", "pubsub"}

# (command, weight). Of a key space of 30,000 some are used far more often than others.
WEIGHTS = [
    ("get", 30), ("set", 16), ("set-ex", 4), ("setex", 2), ("setnx", 1), ("set-get", 1),
    ("mget", 5), ("mset", 4), ("msetnx", 0.3), ("getset", 1), ("getdel", 1), ("getex", 1),
    ("incr", 6), ("decr", 1), ("incrby", 3), ("incrbyfloat", 1), ("append", 2), ("strlen", 1),
    ("getrange", 1.5), ("setrange", 1.5), ("setbit", 1.5), ("getbit", 1.5), ("bitcount", 0.7),
    ("bitfield", 0.7), ("del", 4), ("unlink", 2), ("exists", 3), ("expire", 3), ("pexpire", 1),
    ("ttl", 2), ("pttl", 0.5), ("persist", 0.7), ("type", 0.7), ("touch", 0.5), ("rename", 0.3),
    ("copy", 0.3), ("scan", 0.2), ("dbsize", 0.1), ("ping", 1), ("echo", 0.5), ("select", 0.3),
    ("randomkey", 0.1), ("object", 0.2), ("multi", 1), ("wrong", 1.5), ("info", 0.02),
]
PIPELINES = [1, 1, 1, 2, 3, 5, 8, 12, 24, 40, 75, 200]
VALUE_SIZES = [1, 3, 8, 13, 20, 27, 41, 60, 75, 100, 150, 230, 333, 700, 1300, 3000, 9000]
VALUE_SIZE_WEIGHTS = [3, 5, 9, 9, 10, 9, 9, 8, 8, 8, 6, 5, 4, 3, 2, 1, 0.4]


def encode(words):
    parts = [b"*%d\r\n" % len(words)]
    parts += [b"$%d\r\n%s\r\n" % (len(word), word) for word in words]
    return b"".join(parts)


class Mix:
    """Makes the commands of the deep phase."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.names = [name for name, _ in WEIGHTS]
        self.weights = [weight for _, weight in WEIGHTS]
        self.bytes = self.random.randbytes(1 << 16)

    def key(self, kind=b"user"):
        """Half of the uses meet a sixteenth of the keys."""
        number = self.random.randrange(30_000)
        if self.random.random() < 0.5:
            number //= 16
        return b"%s:%d:%s" % (kind, number, (b"name", b"session-state", b"n")[number % 3])

    def value(self):
        size = self.random.choices(VALUE_SIZES, VALUE_SIZE_WEIGHTS)[0]
        size += self.random.randrange(size // 8 + 1)
        if size < 12 and self.random.random() < 0.4:
            return b"%d" % self.random.randrange(10 ** size)
        start = self.random.randrange(len(self.bytes) - size)
        return self.bytes[start:start + size]

    def number(self, low, high):
        return b"%d" % self.random.randint(low, high)

    def commands(self, count):
        """`count` commands, as lists of words; a transaction counts as one."""
        lines = []
        for name in self.random.choices(self.names, self.weights, k=count):
            lines += self.command(name)
        return lines

    def command(self, name):
        make = getattr(self, "make_" + name.replace("-", "_"), None)
        if make is not None:
            return make()
        word = name.upper().encode()
        if name in ("incr", "decr"):
            return [[word, self.key(b"count")]]
        if name in ("incrby", "incrbyfloat"):
            kind = b"count" if name == "incrby" else b"sum"
            amount = self.number(-500, 500) + (b"" if name == "incrby" else b".25")
            return [[word, self.key(kind), amount]]
        if name in ("del", "unlink", "exists", "touch"):
            return [[word] + [self.key() for _ in range(self.random.choice((1, 1, 1, 2, 5)))]]
        if name in ("set", "setnx", "append", "getset"):
            return [[word, self.key(b"log" if name == "append" else b"user"), self.value()]]
        if name in ("dbsize", "ping", "randomkey"):
            return [[word]]
        return [[word, self.key()]]

    def make_set_ex(self):
        return [[b"SET", self.key(), self.value(), b"EX", self.number(1, 9000)]]

    def make_set_get(self):
        return [[b"SET", self.key(), self.value(), self.random.choice((b"NX", b"XX")), b"GET"]]

    def make_setex(self):
        return [[b"SETEX", self.key(), self.number(100, 9000), self.value()]]

    def make_mget(self):
        count = self.random.choice((2, 5, 10, 30, 120))
        return [[b"MGET"] + [self.key() for _ in range(count)]]

    def make_mset(self):
        count = self.random.choice((2, 4, 10, 25))
        return [[b"MSET"] + [word for _ in range(count) for word in (self.key(), self.value())]]

    def make_msetnx(self):
        return [[b"MSETNX", self.key(b"new"), self.value(), self.key(b"new"), self.value()]]

    def make_getex(self):
        return [[b"GETEX", self.key(), b"EX", self.number(10, 9000)]]

    def make_getrange(self):
        return [[b"GETRANGE", self.key(), self.number(0, 20), self.number(-5, 60)]]

    def make_setrange(self):
        return [[b"SETRANGE", self.key(b"log"), self.number(0, 900), self.value()]]

    def make_setbit(self):
        return [[b"SETBIT", self.key(b"bits"), self.number(0, 4000), self.number(0, 1)]]

    def make_getbit(self):
        return [[b"GETBIT", self.key(b"bits"), self.number(0, 4000)]]

    def make_bitcount(self):
        return [[b"BITCOUNT", self.key(b"bits")]]

    def make_bitfield(self):
        return [[b"BITFIELD", self.key(b"bits"), b"INCRBY", b"u8", self.number(0, 99), b"1"]]

    def make_expire(self):
        return [[b"EXPIRE", self.key(), self.number(1, 5000)]]

    def make_pexpire(self):
        return [[b"PEXPIRE", self.key(), self.number(1, 3_000_000)]]

    def make_rename(self):
        return [[b"RENAME", self.key(), self.key()]]

    def make_copy(self):
        return [[b"COPY", self.key(), self.key(), b"REPLACE"]]

    def make_scan(self):
        return [[b"SCAN", b"0", b"COUNT", self.number(5, 60)]]

    def make_echo(self):
        return [[b"ECHO", self.value()]]

    def make_select(self):
        return [[b"SELECT", b"1"], [b"SET", self.key(), self.value()], [b"SELECT", b"0"]]

    def make_object(self):
        return [[b"OBJECT", b"ENCODING", self.key()]]

    def make_multi(self):
        inner = [line for name in ("get", "set", "incr", "del") for line in self.command(name)]
        watch = [[b"WATCH", self.key()]] if self.random.random() < 0.3 else []
        return watch + [[b"MULTI"]] + inner + [[b"EXEC"]]

    def make_info(self):
        return [[b"INFO"]]

    def make_wrong(self):
        return [self.random.choice((
            [b"GET"], [b"SET", self.key()], [b"NOSUCHCOMMAND", self.key()],
            [b"INCR", self.key(b"log")], [b"SET", self.key(), b"v", b"EX", b"-1"],
            [b"EXPIRE", self.key(), b"soon"], [b"EXEC"], [b"GETRANGE", self.key(), b"a", b"b"]))]


class Trainer:
    def __init__(self, binary, scale, threads):
        self.threads, self.scale = threads, scale
        self.server = Server("--maxclients", "200", binary=binary, threads=threads, debug=False)
        self.token = 0
        self.sent = {}  # command id: how often
        self.count = 0
        table = load_table()
        self.commands = [command for command in table if command.id not in EXCLUDED
                         and not {flag.lower() for flag in command.flags} & EXCLUDED_FLAGS]

    def connect(self, number):
        return self.server.raw(timeout=WAIT_SECONDS, unix=number % 4 == 3)

    # --- windows ---

    def exchange(self, connections, windows):
        """Sends each connection its bytes and waits until all have answered everything."""
        waiting = {}
        for connection, data in zip(connections, windows):
            self.token += 1
            word = b"~end-%d~" % self.token
            end = b"$%d\r\n%s\r\n" % (len(word), word)
            waiting[connection.sock] = [memoryview(data + encode([b"ECHO", word])), b"", end]
        deadline = time.monotonic() + WAIT_SECONDS
        for sock in waiting:
            sock.setblocking(False)
        while waiting:
            writers = [sock for sock, state in waiting.items() if state[0]]
            readable, writable, _ = select.select(list(waiting), writers, [], 1)
            for sock in writable:
                state = waiting[sock]
                state[0] = state[0][sock.send(state[0][:65536]):]
            for sock in readable:
                got = sock.recv(1 << 18)
                if not got:
                    sys.exit("train: the server closed a connection\n" + self.server.log())
                state = waiting[sock]
                state[1] = (state[1] + got)[-64:]
                if state[1].endswith(state[2]):
                    del waiting[sock]
                    sock.settimeout(WAIT_SECONDS)
            if time.monotonic() > deadline:
                sys.exit("train: no answer within %d seconds" % WAIT_SECONDS)

    # --- phases ---

    def wide(self, lines):
        generator = Generator(random.Random(SEED + self.threads), self.commands)
        connections = [self.connect(number) for number in range(4)]
        while lines > 0:
            windows = []
            for number in range(len(connections)):
                sequence = generator.sequence(100)
                for name, _ in sequence:
                    self.sent[name] = self.sent.get(name, 0) + 1
                head = [[b"HELLO", b"3"]] if number % 2 else []
                # RESET drops a transaction that was left open; then ECHO is answered at once.
                words = head + [line for _, line in sequence] + [[b"RESET"]]
                windows.append(b"".join(encode(line) for line in words))
                lines -= len(words)
                self.count += len(words)
            self.exchange(connections, windows)
        for connection in connections:
            connection.close()

    def deep(self, rounds):
        mix = Mix(SEED + self.threads)
        connections = [self.connect(number) for number in range(CONNECTIONS)]
        filling = [[b"MSET"] + [word for key in range(start, start + 50)
                                for word in (b"user:%d:%s" % (key, b"n"), mix.value())]
                   for start in range(0, 30_000, 50)]
        self.exchange(connections[:1], [b"".join(encode(line) for line in filling)])
        for _ in range(rounds):
            windows = []
            for _ in connections:
                lines = mix.commands(mix.random.choice(PIPELINES))
                self.count += len(lines) + 1
                windows.append(b"".join(encode(line) for line in lines))
            self.exchange(connections, windows)
        for connection in connections:
            connection.close()

    def rough(self):
        """Pieces, inline commands, large values, broken protocol."""
        mix = Mix(SEED + 100)
        connection = self.connect(0)
        for _ in range(60):
            data = b"".join(encode(line) for line in mix.commands(5))
            place = 0
            while place < len(data):
                size = mix.random.randrange(1, 400)
                connection.send(data[place:place + size])
                place += size
            self.exchange([connection], [b"PING\r\nSET inline 'a b'\r\nGET inline\r\n"])
        for size in (16_000, 17_000, 40_000, 90_000, 300_000, 2_000_000):
            lines = [[b"SET", b"large:%d" % size, b"v" * size], [b"GET", b"large:%d" % size],
                     [b"APPEND", b"large:%d" % size, b"tail"], [b"STRLEN", b"large:%d" % size]]
            self.exchange([connection], [b"".join(encode(line) for line in lines)])
        connection.close()
        for junk in (b"*1\r\n$-5\r\n", b"*99999999999\r\n", b"*1\r\n#3\r\n", b"GET 'a\r\n",
                     b"*2\r\n$3\r\nGET\r\n$100\r\nshort"):
            connection = self.connect(0)
            connection.send(junk)
            if junk.endswith(b"\n"):
                try:
                    while True:
                        connection.read()
                except Closed:
                    pass
            connection.close()

    def run(self):
        begun = time.monotonic()
        self.wide(int(30_000 * self.scale))
        self.deep(int(700 * self.scale))
        self.rough()
        missing = sorted({command.id for command in self.commands} - set(self.sent))
        self.server.stop()
        print("train: %d commands with %d threads in %.0f s" % (
            self.count, self.threads, time.monotonic() - begun), flush=True)
        if missing and self.scale >= 1:
            sys.exit("train: never sent: " + " ".join(missing))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("server")
    parser.add_argument("--scale", type=float, default=1.0, help="factor on the number of commands")
    options = parser.parse_args()
    for threads in (1, 2):
        Trainer(str(Path(options.server).resolve()), options.scale, threads).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
