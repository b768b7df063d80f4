#!/usr/bin/python3
"""Measures hashes, lists, sets and sorted sets against the installed redis-server.

    datatypes.py [--rounds N] [--scale F] [--quick] [--json FILE] [row ...]

Part of `make bench`. Both servers run on one core, redis-benchmark on another; for each group of
rows both are filled once, then rounds alternate between them. Printed per row: the median over the
rounds of the servers' CPU microseconds per command (schedstat of all threads) and of their ratio in
the same round. Memory rows give used bytes per item, as INFO tells them before and after filling.
The last rows are the tests of a plain `redis-benchmark`, pipeline 16. README.md says how to read it.
"""
import argparse
import json
import platform
import statistics
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE))

from bench import Bench, cpu_name, cpu_ns  # noqa: E402
from raw import Error, encode  # noqa: E402

FIELDS = ("username john_doe email john@example.com password hashed_pwd_123 created_at 1709125200 "
          "updated_at 1709125200 first_name John last_name Doe phone_number +1234567890 "
          "address 123_Main_St city NewYork country USA postal_code 10001 company Acme_Corp "
          "job_title Engineer bio Loves_coding").split()
MEMBERS = [word for i in range(15) for word in (str((i * 37) % 100), "member%02d" % i)]
KEYS = 100_000
RANDOM = "__rand_int__"
LARGE = 1_000_000
SET_SIZE = 100_000


class Row:
    """`args` is a command line for redis-benchmark; `requests` the number a round."""

    def __init__(self, name, args, pipeline, requests, target, keys=KEYS):
        self.name, self.args, self.pipeline = name, args, pipeline
        self.requests, self.target, self.keys = requests, target, keys


def pipe(server, lines, batch=1000):
    """Sends many commands over one connection; errors end the run."""
    connection = server.raw(timeout=600)
    pending = []

    def flush():
        connection.send(b"".join(pending))
        for _ in pending:
            reply = connection.read()
            if isinstance(reply, Error):
                sys.exit("filling failed: %r" % reply)
        pending.clear()

    for line in lines:
        pending.append(encode(*line))
        if len(pending) == batch:
            flush()
    flush()


def key(i):
    return "key:%012d" % i


def hashes(count):
    return (["HSET", key(i), *FIELDS] for i in range(count))


def zsets(count):
    return (["ZADD", key(i), *MEMBERS] for i in range(count))


def chunks(name, words, total, step=500):
    """`name key word...` commands that add items 0 .. total - 1, `step` at a time."""
    for start in range(0, total, step):
        line = [name[0], name[1]]
        for i in range(start, min(total, start + step)):
            line += words(i)
        yield line


def large_zset(count):
    # Scores in an order that has nothing to do with the names.
    return chunks(("ZADD", "zset"),
                  lambda i: ["%d" % (i * 7919 % count), "mem:%012d" % i], count)


def large_hash(count):
    return chunks(("HSET", "hash"), lambda i: ["fld:%012d" % i, "val:%012d" % i], count)


def large_set(count):
    return chunks(("SADD", "set"), lambda i: ["mem:%012d" % i], count)


def large_list(count):
    return chunks(("RPUSH", "list"), lambda i: ["item:%027d" % i], count)


def two_sets(count):
    yield from chunks(("SADD", "int1"), lambda i: [str(i * 2)], count)
    yield from chunks(("SADD", "int2"), lambda i: [str(i * 3)], count)
    yield from chunks(("SADD", "str1"), lambda i: ["member:%d" % (i * 2)], count)
    yield from chunks(("SADD", "str2"), lambda i: ["member:%d" % (i * 3)], count)


def small_values(count):
    yield from (["RPUSH", "l100", *("item:%05d" % i for i in range(100))],)
    yield from chunks(("SADD", "set"), lambda i: ["element:%012d" % i], count)
    yield from hashes(count)


def small_zsets(count):
    return zsets(count)


GROUPS = [
    (hashes, KEYS, [
        Row("hset15-p50", ["HSET", "key:" + RANDOM, *FIELDS], 50, 500_000, 0.20),
        Row("hset15-p10", ["HSET", "key:" + RANDOM, *FIELDS], 10, 300_000, 0.32),
        Row("hset15-p1", ["HSET", "key:" + RANDOM, *FIELDS], 1, 100_000, 0.70),
        Row("hgetall15-p50", ["HGETALL", "key:" + RANDOM], 50, 500_000, 0.50),
        Row("hget15-p50", ["HGET", "key:" + RANDOM, "company"], 50, 1_000_000, 0.50),
    ]),
    (small_zsets, KEYS, [
        Row("zadd15-p50", ["ZADD", "key:" + RANDOM, *MEMBERS], 50, 500_000, 0.18),
        Row("zadd15-p10", ["ZADD", "key:" + RANDOM, *MEMBERS], 10, 300_000, 0.32),
        Row("zadd15-p1", ["ZADD", "key:" + RANDOM, *MEMBERS], 1, 100_000, 0.65),
        Row("zrange15-p50", ["ZRANGE", "key:" + RANDOM, "0", "-1"], 50, 500_000, 0.50),
        Row("zscore15-p50", ["ZSCORE", "key:" + RANDOM, "member07"], 50, 1_000_000, 0.50),
    ]),
    (small_values, KEYS, [
        Row("lpush-p50", ["LPUSH", "mylist", "item:" + RANDOM], 50, 1_000_000, 0.50),
        Row("lpop-p50", ["LPOP", "mylist"], 50, 1_000_000, 0.50),
        Row("sadd-p50", ["SADD", "set", "element:" + RANDOM], 50, 1_000_000, 0.50),
        Row("sismember-p50", ["SISMEMBER", "set", "element:" + RANDOM], 50, 1_000_000, 0.50),
        Row("lrange100-p50", ["LRANGE", "l100", "0", "-1"], 50, 100_000, 0.50),
    ]),
    (large_zset, LARGE, [
        Row("zadd-1m-p50", ["ZADD", "zset", RANDOM, "mem:" + RANDOM], 50, 300_000, 0.50, LARGE),
        Row("zrank-1m-p50", ["ZRANK", "zset", "mem:" + RANDOM], 50, 300_000, 0.50, LARGE),
        Row("zrangebyscore-1m-p50",
            ["ZRANGEBYSCORE", "zset", RANDOM, "+inf", "LIMIT", "0", "10"], 50, 200_000, 0.50, LARGE),
    ]),
    (large_hash, LARGE, [
        Row("hset-1m-p50", ["HSET", "hash", "fld:" + RANDOM, "val:" + RANDOM], 50, 500_000, 0.50,
            LARGE),
        Row("hget-1m-p50", ["HGET", "hash", "fld:" + RANDOM], 50, 500_000, 0.50, LARGE),
    ]),
    (two_sets, SET_SIZE, [
        Row("sinter-int", ["SINTER", "int1", "int2"], 1, 30, 0.50),
        Row("sinter-str", ["SINTER", "str1", "str2"], 1, 30, 0.50),
    ]),
]

MEMORY = [
    ("hashes of 15 fields", "memory-hashes", hashes, 200_000, 1.00),
    ("sorted sets of 15 members", "memory-zsets", zsets, 200_000, 1.00),
    ("sorted set of 1M members", "memory-zset", large_zset, LARGE, 0.60),
    ("hash of 1M fields", "memory-hash", large_hash, LARGE, 1.00),
    ("set of 1M members", "memory-set", large_set, LARGE, 1.00),
    ("list of 1M x 32 bytes", "memory-list", large_list, LARGE, 1.00),
]
PLAIN = ("ping_inline,ping_mbulk,set,get,incr,lpush,rpush,lpop,rpop,sadd,hset,spop,zadd,zpopmin,"
         "lrange,mset").split(",")


class TypeBench(Bench):
    def run_row(self, server, row):
        """CPU microseconds per command of one round on one server."""
        requests = self.scaled(row.requests)
        before = cpu_ns(server.pid)
        self.pinned("redis-benchmark", "-p", server.port, "-c", min(50, requests), "-P",
                    row.pipeline, "-n", requests, "-r", row.keys, "-q", *row.args)
        return (cpu_ns(server.pid) - before) / 1000 / requests

    def rounds_of(self, servers, row):
        figures = {"kvik": [], "redis": []}
        for number in range(self.options.rounds + 1):
            order = ("kvik", "redis") if number % 2 == 0 else ("redis", "kvik")
            for which in order:
                used_us = self.run_row(servers[which], row)
                if number > 0:  # the first warms up
                    figures[which].append(used_us)
        ratio = statistics.median(a / b for a, b in zip(figures["kvik"], figures["redis"]))
        self.results.append({"workload": row.name, "target": row.target, "ratio": ratio, **figures})
        print("%-22s %10.3f %10.3f %8.3f %8.2f %s" % (
            row.name, statistics.median(figures["kvik"]), statistics.median(figures["redis"]), ratio,
            row.target, "reached" if ratio <= row.target else "MISSED"), flush=True)

    def speed(self, selected):
        print("\n%-22s %10s %10s %8s %8s" % ("workload", "Kvik us", "Redis us", "ratio", "target"))
        for fill, count, rows in GROUPS:
            rows = [row for row in rows if row.name in selected]
            if not rows:
                continue
            servers = {which: self.start(which) for which in ("kvik", "redis")}
            for server in servers.values():
                pipe(server, fill(self.scaled(count)))
            for row in rows:
                self.rounds_of(servers, row)
            for server in servers.values():
                server.stop()

    def used_bytes(self, server):
        return int(server.redis().info("memory")["used_memory"])

    def memory(self, selected):
        rows = [row for row in MEMORY if row[1] in selected]
        if rows:
            print("\n%-28s %12s %12s %8s %8s" % ("memory, used bytes", "Kvik", "Redis", "ratio",
                                                 "target"))
        for text, name, fill, count, target in rows:
            used = {}
            for which in ("kvik", "redis"):
                server = self.start(which)
                before = self.used_bytes(server)
                pipe(server, fill(self.scaled(count)))
                used[which] = self.used_bytes(server) - before
                server.stop()
            ratio = used["kvik"] / used["redis"]
            self.results.append({"workload": name, "target": target, "ratio": ratio, **used})
            print("%-28s %12d %12d %8.3f %8.2f %s" % (
                text, used["kvik"], used["redis"], ratio, target,
                "reached" if ratio <= target else "MISSED"), flush=True)

    def plain(self, selected):
        """The tests of redis-benchmark itself; none is to be slower."""
        tests = [test for test in PLAIN if "plain-" + test in selected]
        if not tests:
            return
        print("\n%-22s %10s %10s %8s" % ("redis-benchmark -P 16", "Kvik us", "Redis us", "ratio"))
        servers = {which: self.start(which) for which in ("kvik", "redis")}
        requests = self.scaled(200_000)
        for test in tests:
            figures = {"kvik": [], "redis": []}
            for number in range(self.options.rounds):
                for which in ("kvik", "redis") if number % 2 else ("redis", "kvik"):
                    before = cpu_ns(servers[which].pid)
                    self.pinned("redis-benchmark", "-p", servers[which].port, "-P", 16, "-n",
                                requests, "-r", KEYS, "-q", "-t", test)
                    figures[which].append((cpu_ns(servers[which].pid) - before) / 1000 / requests)
            ratio = statistics.median(a / b for a, b in zip(figures["kvik"], figures["redis"]))
            self.results.append({"workload": "plain-" + test, "target": 1.0, "ratio": ratio})
            print("%-22s %10.3f %10.3f %8.3f %s" % (
                test, statistics.median(figures["kvik"]), statistics.median(figures["redis"]), ratio,
                "" if ratio <= 1 else "MISSED"), flush=True)
        for server in servers.values():
            server.stop()

    def run(self, selected):
        print("%s, Linux %s, server on core %d, load on core %d, %d rounds, scale %g" % (
            cpu_name(), platform.release(), self.server_core, self.load_core, self.options.rounds,
            self.options.scale))
        self.speed(selected)
        self.memory(selected)
        self.plain(selected)
        if self.options.json:
            Path(self.options.json).write_text(json.dumps(self.results, indent=1) + "\n")


def main():
    names = [row.name for _, _, rows in GROUPS for row in rows]
    names += [row[1] for row in MEMORY] + ["plain-" + test for test in PLAIN]
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0],
                                     epilog="rows: " + " ".join(names))
    parser.add_argument("rows", nargs="*", help="all when none is named; a prefix selects many")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0,
                        help="factor on the numbers of items and requests")
    parser.add_argument("--quick", action="store_true", help="2 rounds at a twentieth of the size")
    parser.add_argument("--json", help="write all rounds to this file")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.scale = 2, 0.05
    selected = [name for name in names
                if not options.rows or any(name.startswith(row) for row in options.rows)]
    if not selected:
        parser.error("no such row; there are: " + " ".join(names))
    TypeBench(options).run(selected)


if __name__ == "__main__":
    main()
