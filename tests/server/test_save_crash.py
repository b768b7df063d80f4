#!/usr/bin/python3
"""Servers that are killed while they save: the file is the old one or the new one, never anything else.

Writers move amounts between keys and between the members of one large sorted set, and count in every
transaction; a saving follows the other. After each kill the next server must load the file, the sums must
be whole, and the count must be at least what it was when the last saving that was seen to end began.

KVIK_CRASH_ROUNDS says how often (make soak: many times). SEED= repeats a run's random choices.
"""
import os
import random
import shutil
import signal
import tempfile
import threading
import time

import pytest

from process import TIME_SCALE, Server
from raw import Closed, Error

pytestmark = pytest.mark.kvik_only

ROUNDS = int(os.environ.get("KVIK_CRASH_ROUNDS", "6"))
ACCOUNTS = 500
MEMBERS = 4000
START = 1000


def info(conn, name):
    for line in conn.cmd("INFO", "persistence").splitlines():
        if line.startswith(name.encode() + b":"):
            return line.split(b":", 1)[1].decode()
    raise AssertionError("no " + name)


def fill(conn):
    for i in range(ACCOUNTS):
        conn.send_cmd("SET", "account:%d" % i, START)
    for i in range(ACCOUNTS):
        conn.read()
    for i in range(0, MEMBERS, 500):
        conn.cmd("ZADD", "ledger", *[word for n in range(i, i + 500)
                                     for word in (START, "member:%d:%s" % (n, "m" * 20))])


class Load:
    def __init__(self, server, seed):
        self.counted = self.saved_count = 0
        self.threads = [threading.Thread(target=self.until_gone, args=(server, run, seed + n))
                        for n, run in enumerate((self.transfer, self.transfer, self.save))]
        for thread in self.threads:
            thread.start()

    def until_gone(self, server, run, seed):
        rng = random.Random(seed)
        try:
            with server.raw(timeout=30) as conn:
                while True:
                    run(conn, rng)
        except (OSError, Closed):
            pass

    def transfer(self, conn, rng):
        words = []
        for _ in range(10):
            one, other = rng.sample(range(ACCOUNTS), 2)
            amount = rng.randrange(1, 50)
            member = "member:%d:" + "m" * 20
            words += [("MULTI",), ("DECRBY", "account:%d" % one, amount),
                      ("INCRBY", "account:%d" % other, amount),
                      ("ZINCRBY", "ledger", -amount, member % one),
                      ("ZINCRBY", "ledger", amount, member % (MEMBERS - 1 - other)),
                      ("SET", "noise:%d" % rng.randrange(300), "x" * rng.randrange(5000)),
                      ("INCR", "count"), ("EXEC",)]
        for word in words:
            conn.send_cmd(*word)
        for _ in words:
            reply = conn.read()
            assert not isinstance(reply, Error), reply
        self.counted = max(self.counted, reply[-1])

    def save(self, conn, rng):
        before, saves = self.counted, int(info(conn, "rdb_saves"))
        if isinstance(conn.cmd(rng.choice(("BGSAVE", "BGSAVE", "SAVE"))), Error):
            return
        while int(info(conn, "rdb_saves")) == saves and info(conn, "rdb_bgsave_in_progress") != "0":
            time.sleep(rng.uniform(0, 0.01))
        if int(info(conn, "rdb_saves")) > saves:
            self.saved_count = max(self.saved_count, before)

    def join(self):
        for thread in self.threads:
            thread.join(30 * TIME_SCALE)
            assert not thread.is_alive()


def check(server, least):
    with server.raw() as conn:
        accounts = conn.cmd("MGET", *["account:%d" % i for i in range(ACCOUNTS)])
        assert sum(map(int, accounts)) == ACCOUNTS * START
        flat = conn.cmd("ZRANGE", "ledger", 0, -1, "WITHSCORES")
        assert len(flat) == 2 * MEMBERS and sum(map(int, flat[1::2])) == MEMBERS * START
        count = int(conn.cmd("GET", "count") or 0)
        assert count >= least
        return count


@pytest.mark.timeout(60 + 10 * ROUNDS)
def test_a_kill_leaves_a_whole_file():
    seed = int(os.environ.get("SEED") or random.randrange(1 << 30))
    print("SEED=%d" % seed)
    rng = random.Random(seed)
    folder = tempfile.mkdtemp(prefix="kvik-crash-")
    server = None
    try:
        server = Server("--dir", folder)
        with server.raw() as conn:
            fill(conn)
            assert conn.cmd("SAVE") == b"OK"
        least = 0
        for number in range(ROUNDS):
            load = Load(server, seed + 10 * number)
            time.sleep(rng.uniform(0.05, 0.5) * TIME_SCALE)
            server.process.send_signal(signal.SIGKILL)
            server.process.wait()
            server.abandon()
            load.join()
            server = Server("--dir", folder)
            least = check(server, max(least, load.saved_count))
        server.stop()
    finally:
        if server is not None:
            server.abandon()
        shutil.rmtree(folder, ignore_errors=True)
