#!/usr/bin/python3
"""Servers that are killed while several connections write and read, and started again.

Writers count upwards, each on a key of its own; readers note the highest value that they have seen of
each; transfers move amounts between accounts in transactions; the log is rewritten all the time. After each kill the next start must
have, with `always`, every value that was acknowledged or read; with `everysec` every value that was
acknowledged more than a second before; and no account may have got what another has not lost.

A crash of the machine is one of the process, after which the last file loses what it had not been synced:
it is cut off anywhere behind what its journal says is durable, or has zeros there.

Test builds write down what they have synced (KVIK_FILE_SYNCS); there a crash of the machine cuts every
file of the log off behind that, whatever journal there is, and takes a file that was never synced whole.

Test builds do the same with writes that are cut short and with a sync that fails at some moment: from
then on nothing may be acknowledged, and what is read is not promised.

KVIK_CRASH_ROUNDS says how often (make soak: many times). SEED= repeats a run's random choices.
"""
import os
import random
import shutil
import signal
import struct
import tempfile
import threading
import time

import pytest

from process import TIME_SCALE, Server, kvik_binary
from raw import Closed, Error

pytestmark = pytest.mark.kvik_only

ROUNDS = int(os.environ.get("KVIK_CRASH_ROUNDS", "5"))
SANITIZED = TIME_SCALE >= 4  # where a round takes long
KILLS = 2 if SANITIZED and ROUNDS == 5 else ROUNDS
WRITERS = 4
ACCOUNTS = 8
PROMISED_S = 1.2 * TIME_SCALE
needs_faults = pytest.mark.skipif(
    not any(word in kvik_binary() for word in ("debug", "asan", "tsan", "coverage")),
    reason="this build injects no faults")


class Load:
    """Connections that work until the server is gone."""

    def __init__(self, server, seed, failing=False):
        self.failing = failing
        self.acknowledged = [[(0.0, 0)] for _ in range(WRITERS)]  # (time, value) in order
        self.read = [0] * WRITERS
        self.threads = [threading.Thread(target=self.until_gone, args=(server, run, n, seed))
                        for run, count in ((self.write, WRITERS), (self.look, 2),
                                           (self.transfer, 2), (self.rewrite, 1))
                        for n in range(count)]
        for thread in self.threads:
            thread.start()

    def until_gone(self, server, run, number, seed):
        rng = random.Random("%s %s %d" % (seed, run.__name__, number))
        try:
            with server.raw(timeout=30) as raw:
                while True:
                    run(raw, number, rng)
        except (OSError, Closed):
            pass

    def write(self, raw, number, rng):
        count = rng.choice((1, 1, 5, 50))
        for _ in range(count):
            raw.send_cmd("INCR", "counter:%d" % number)
        for _ in range(count):
            reply = raw.read()
            if isinstance(reply, Error):
                raise Closed(b"")
            self.acknowledged[number].append((time.monotonic(), reply))

    def look(self, raw, number, _rng):
        values = raw.cmd("MGET", *["counter:%d" % n for n in range(WRITERS)])
        if self.failing and isinstance(raw.cmd("SET", "look:%d" % number, "1"), Error):
            raise Closed(b"")
        for n, value in enumerate(values):
            self.read[n] = max(self.read[n], int(value or 0))

    def transfer(self, raw, _number, rng):
        source, target = rng.sample(range(ACCOUNTS), 2)
        amount = rng.randrange(1, 100)
        for words in (("MULTI",), ("DECRBY", "account:%d" % source, amount),
                      ("INCRBY", "account:%d" % target, amount), ("EXEC",)):
            raw.send_cmd(*words)
        for _ in range(4):
            raw.read()

    def rewrite(self, raw, _number, rng):
        raw.cmd("BGREWRITEAOF")
        time.sleep(rng.uniform(0, 0.1))

    def join(self):
        for thread in self.threads:
            thread.join(30 * TIME_SCALE)
            assert not thread.is_alive()


def kill(server):
    server.process.send_signal(signal.SIGKILL)
    server.process.wait()
    server.abandon()


def newest_record(folder):
    """(file's name, offset up to which the file alone is durable) as the journal has it, or None."""
    path = os.path.join(folder, "appendonlydir", "appendonly.aof.journal")
    if not os.path.exists(path):
        return None
    with open(path, "rb") as file:
        ring = file.read()
    newest = (0, 0, 0)
    identity = ring[16:24]
    for pos in range(4096, len(ring), 512):
        if ring[pos + 8:pos + 24] == b"KKVRECD1" + identity:
            number, seq, _offset, durable = struct.unpack_from("<4Q", ring, pos + 24)
            newest = max(newest, (number, seq, durable))
    return "appendonly.aof.%d.incr.aof" % newest[1], newest[2]


def lose_power(folder, rng):
    """Takes from the last file what was not synced. True: there was a journal to say what that is."""
    newest = newest_record(folder)
    if newest is None or newest[0] == "appendonly.aof.0.incr.aof":
        return False
    path = os.path.join(folder, "appendonlydir", newest[0])
    if not os.path.exists(path):
        return False
    size = os.path.getsize(path)
    keep = rng.randint(min(newest[1], size), size)
    os.truncate(path, keep)
    if keep > newest[1]:
        with open(path, "r+b") as file:
            file.seek(rng.randint(newest[1], keep - 1))
            file.write(b"\0" * rng.randint(0, keep - file.tell()))
    return True


def last_syncs(path):
    """{inode: (durable bytes, when the sync began)} as the server wrote it down."""
    found = {}
    for line in open(path):
        inode, size, ns = map(int, line.split())
        found[inode] = (size, ns / 1e9)
    return found


def lose_all_power(folder, syncs, rng):
    """Takes from every file of the log what was not synced. Returns when the last sync of commands
    began."""
    last = 0.0
    log = os.path.join(folder, "appendonlydir")
    for name in os.listdir(log):
        path = os.path.join(log, name)
        size = os.path.getsize(path)
        synced, began = syncs.get(os.stat(path).st_ino, (0, 0.0))
        if name.endswith(".incr.aof"):
            last = max(last, began)
        if synced >= size or name.endswith(".journal"):
            continue
        os.truncate(path, rng.randint(synced, size))
    return last


def check(server, load, killed, fsync, promised_s=PROMISED_S):
    with server.raw() as raw:
        values = [int(value or 0) for value in
                  raw.cmd("MGET", *["counter:%d" % n for n in range(WRITERS)])]
        accounts = [int(value or 0) for value in
                    raw.cmd("MGET", *["account:%d" % n for n in range(ACCOUNTS)])]
    assert sum(accounts) == 0
    for n, value in enumerate(values):
        if fsync == "always":
            promised = max(load.acknowledged[n][-1][1], load.read[n])
        else:
            promised = max(v for t, v in load.acknowledged[n] if t <= max(killed - promised_s, 0))
        assert value >= promised, "counter:%d has %d, promised was %d" % (n, value, promised)


def rounds_of(fsync, rounds, faults=None, power=False, syncs=False):
    """Kills and starts servers on one folder. faults(rng): what the server's system calls do. power: the
    machine crashes with them, syncs: likewise by what the server has synced. Returns how often the
    crash took something."""
    used = 0
    seed = os.environ.get("SEED") or str(random.randrange(1 << 32))
    print("SEED=%s" % seed)
    rng = random.Random(seed)
    folder = tempfile.mkdtemp(prefix="kvik-crash-")
    arguments = ("--dir", folder, "--appendonly", "yes", "--appendfsync", fsync,
                 "--stream-ring-size", rng.choice(("64kb", "1mb", "16mb")))
    notes = os.path.join(folder, "syncs")
    if syncs:
        os.environ["KVIK_FILE_SYNCS"] = notes
    server = None
    try:
        for number in range(rounds):
            if faults is not None:
                os.environ["KVIK_FILE_FAULTS"] = faults(rng)
            try:
                server = Server(*arguments)
            finally:
                os.environ.pop("KVIK_FILE_FAULTS", None)
            load = Load(server, "%s %d" % (seed, number), faults is not None)
            time.sleep(rng.uniform(0.02, 1.6 if fsync == "everysec" and not syncs else 0.6) *
                       TIME_SCALE)
            killed = time.monotonic()
            kill(server)
            load.join()
            used += power and lose_power(folder, rng)
            promised_s = PROMISED_S
            if syncs:
                # What was written when the last sync began; the disk may be as slow as it likes.
                killed = lose_all_power(folder, last_syncs(notes), rng)
                promised_s = 0.3 * TIME_SCALE
                used += killed > 0
            server = Server(*arguments)
            check(server, load, killed, fsync, promised_s)
            server.stop()
    finally:
        os.environ.pop("KVIK_FILE_SYNCS", None)
        if server is not None:
            server.abandon()
        shutil.rmtree(folder, ignore_errors=True)
    return used


@pytest.mark.timeout(60 + 10 * ROUNDS)
@pytest.mark.parametrize("fsync", ["always", "everysec"])
def test_nothing_promised_is_missing_after_a_kill(fsync):
    rounds_of(fsync, KILLS)


@pytest.mark.timeout(60 + 10 * ROUNDS)
def test_nothing_acknowledged_is_missing_after_a_crash_of_the_machine():
    assert rounds_of("always", ROUNDS, power=True) > 0


@needs_faults
@pytest.mark.timeout(60 + 10 * ROUNDS)
@pytest.mark.parametrize("fsync", ["always", "everysec", "no"])
def test_a_crash_of_the_machine_takes_what_was_not_synced(fsync):
    assert rounds_of(fsync, max(ROUNDS * 3 // 5, 1), syncs=True) > 0


@needs_faults
@pytest.mark.timeout(60 + 10 * ROUNDS)
@pytest.mark.parametrize("fault", ["short writes", "failing sync", "failing write"])
def test_nothing_promised_is_missing_when_the_disk_fails_too(fault):
    rounds_of("always", KILLS, lambda rng: {
        "short writes": "write:%d:1000000:0" % rng.randrange(2, 20),
        "failing sync": "sync:%d:1:5" % rng.randrange(8, 200),
        "failing write": "write:%d:1:28" % rng.randrange(3, 200),
    }[fault])
