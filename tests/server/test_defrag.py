#!/usr/bin/python3
"""activedefrag: blocks move while commands run, content stays, INFO tells, CONFIG SET switches.

Slabs are made thin first: many keys, of which one in ten stays. Thresholds are set as low as they
go, so that any waste is enough.
"""
import random
import threading
import time

import pytest

from process import TIME_SCALE

EAGER = ["--active-defrag-ignore-bytes", "1", "--active-defrag-threshold-lower", "0",
         "--active-defrag-threshold-upper", "1", "--active-defrag-cycle-max", "50"]

pytestmark = pytest.mark.kvik_only


def info(conn):
    lines = conn.cmd("INFO", "everything").decode().splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)


def wait_for(conn, condition, seconds=20):
    """INFO as soon as condition(INFO) holds."""
    deadline = time.monotonic() + seconds * TIME_SCALE
    while True:
        fields = info(conn)
        if condition(fields):
            return fields
        assert time.monotonic() < deadline, fields
        time.sleep(0.02)


def value_of(key):
    """100 bytes, or a block of its own for every 50th key."""
    return (b"%d:" % key) + b"v" * (2500 if key % 50 == 0 else 100)


def fill_and_thin_out(server, keys=30000):
    """Keys 0, 10, 20.. stay; every third of them has a time to live."""
    client = server.redis()
    with client.pipeline(transaction=False) as pipe:
        for start in range(0, keys, 1000):
            for key in range(start, start + 1000):
                pipe.set("key:%d" % key, value_of(key), ex=100000 if key % 3 == 0 else None)
            pipe.execute()
        for start in range(0, keys, 1000):
            for key in range(start, start + 1000):
                if key % 10 != 0:
                    pipe.delete("key:%d" % key)
            pipe.execute()
    client.close()


def test_it_is_off_unless_asked_for(start_server):
    server = start_server(*EAGER)
    fill_and_thin_out(server, 5000)
    with server.raw() as conn:
        assert conn.cmd("CONFIG", "GET", "activedefrag") == [b"activedefrag", b"no"]
        time.sleep(0.3)
        fields = info(conn)
        for name in ("active_defrag_running", "active_defrag_hits", "active_defrag_misses",
                     "active_defrag_key_hits", "active_defrag_key_misses",
                     "total_active_defrag_time", "current_active_defrag_time"):
            assert fields[name] == "0", name


def test_blocks_move_and_content_stays(start_server):
    server = start_server(*EAGER)
    fill_and_thin_out(server)
    with server.raw() as conn:
        assert conn.cmd("DBSIZE") == 3000
        digest = conn.cmd("DEBUG", "DIGEST")
        dataset = info(conn)["used_memory_dataset"]
        assert conn.cmd("CONFIG", "SET", "activedefrag", "yes") == b"OK"
        fields = wait_for(conn, lambda f: int(f["active_defrag_hits"]) > 100 and
                          f["active_defrag_running"] == "0")
        assert int(fields["active_defrag_key_hits"]) > 100
        # Only walks that have ended are counted whole; at least one has.
        assert (int(fields["active_defrag_key_hits"]) +
                int(fields["active_defrag_key_misses"])) >= 3000
        assert conn.cmd("DEBUG", "DIGEST") == digest
        assert conn.cmd("DBSIZE") == 3000
        assert info(conn)["used_memory_dataset"] == dataset
        for key in range(0, 30000, 10):
            assert conn.cmd("GET", "key:%d" % key) == value_of(key)
            assert (conn.cmd("TTL", "key:%d" % key) > 0) == (key % 3 == 0)


def test_it_can_be_switched_off_and_on(start_server):
    server = start_server(*EAGER)
    with server.raw() as conn:
        for _ in range(3):
            fill_and_thin_out(server)  # the round before may have found all that there was
            assert conn.cmd("CONFIG", "SET", "activedefrag", "yes") == b"OK"
            wait_for(conn, lambda f: int(f["active_defrag_hits"]) +
                     int(f["active_defrag_misses"]) > 0)
            assert conn.cmd("CONFIG", "SET", "activedefrag", "no") == b"OK"
            stopped = wait_for(conn, lambda f: f["active_defrag_running"] == "0" and
                               f["current_active_defrag_time"] == "0")
            time.sleep(0.25)
            later = info(conn)
            for name in ("active_defrag_hits", "active_defrag_misses", "total_active_defrag_time"):
                assert later[name] == stopped[name]
            assert conn.cmd("CONFIG", "RESETSTAT") == b"OK"
            assert info(conn)["active_defrag_hits"] == "0"


def test_watched_keys_do_not_change(start_server):
    server = start_server(*EAGER)
    fill_and_thin_out(server)
    with server.raw() as watcher, server.raw() as conn:
        for key in range(0, 3000, 10):
            assert watcher.cmd("WATCH", "key:%d" % key) == b"OK"
        assert conn.cmd("CONFIG", "SET", "activedefrag", "yes") == b"OK"
        wait_for(conn, lambda f: int(f["active_defrag_hits"]) > 100 and
                 f["active_defrag_running"] == "0")
        assert watcher.cmd("MULTI") == b"OK"
        assert watcher.cmd("GET", "key:10") == b"QUEUED"
        assert watcher.cmd("EXEC") == [value_of(10)]


class Writer(threading.Thread):
    """Changes keys of its own at random and knows what they must hold."""

    def __init__(self, server, number):
        super().__init__()
        self.client = server.redis()
        self.number = number
        self.model = {}
        self.problem = None
        self.ended = threading.Event()

    def run(self):
        try:
            rng = random.Random(self.number)
            while not self.ended.is_set():
                self.step(rng)
        except Exception as problem:  # told by the test
            self.problem = problem

    def step(self, rng):
        keys = [b"w%d:%d" % (self.number, rng.randrange(3000)) for _ in range(50)]
        asked = []
        with self.client.pipeline(transaction=False) as pipe:
            for key in keys:
                what = rng.randrange(6)
                if what < 2:
                    value = bytes([97 + rng.randrange(26)]) * rng.choice([5, 60, 300, 1500, 20000])
                    pipe.set(key, value)
                    self.model[key] = value
                    asked.append(True)
                elif what == 2:
                    pipe.delete(key)
                    asked.append(int(self.model.pop(key, None) is not None))
                elif what == 3:
                    pipe.append(key, b"tail")
                    self.model[key] = self.model.get(key, b"") + b"tail"
                    asked.append(len(self.model[key]))
                else:
                    pipe.get(key)
                    asked.append(self.model.get(key))
            assert pipe.execute() == asked

    def check(self):
        for key, value in self.model.items():
            assert self.client.get(key) == value
        self.client.close()


def test_commands_and_moves_at_once(start_server):
    server = start_server(*EAGER, "--activedefrag", "yes")
    writers = [Writer(server, number) for number in range(3)]
    for writer in writers:
        writer.start()
    try:
        with server.raw() as conn:
            for _ in range(3):
                fill_and_thin_out(server, 10000)
                seen = int(info(conn)["active_defrag_hits"])
                wait_for(conn, lambda f: int(f["active_defrag_hits"]) > seen or
                         any(w.problem for w in writers), 40)
    finally:
        for writer in writers:
            writer.ended.set()
        for writer in writers:
            writer.join()
    for writer in writers:
        assert writer.problem is None
        writer.check()


def test_flushes_and_swaps_meanwhile(start_server):
    server = start_server(*EAGER, "--activedefrag", "yes", "--active-defrag-cycle-max", "90")
    with server.raw() as conn:
        for round_number in range(4):
            fill_and_thin_out(server, 10000)
            wait_for(conn, lambda f: f["active_defrag_running"] != "0" or
                     int(f["active_defrag_hits"]) > 0)
            if round_number % 2 == 0:
                assert conn.cmd("SWAPDB", "0", "1") == b"OK"
            else:
                assert conn.cmd("FLUSHALL", "SYNC") == b"OK"
        assert conn.cmd("FLUSHALL", "SYNC") == b"OK"
        fields = info(conn)
        assert fields["used_memory_dataset"] == "0"
