#!/usr/bin/python3
"""Attribution: every byte has an owner, the figures add up, and they add up to resident memory."""
import random
import re
import time

import pytest

from process import TIME_SCALE
from raw import encode

pytestmark = pytest.mark.kvik_only

TYPES = ("string", "list", "set", "zset", "hash", "stream")
# What explains resident memory.
PARTS = ("total.allocated", "caches", "slabs.free", "slabs.unused", "metadata", "large.overhead",
         "image")


def stats(conn):
    """MEMORY STATS as a dict, maps in it as dicts, doubles as floats."""
    def value(item):
        if isinstance(item, list):
            return pairs(item)
        return float(item) if isinstance(item, bytes) else item

    def pairs(items):
        names = [name.decode() for name in items[0::2]]
        assert len(set(names)) == len(names)
        return {name: value(item) for name, item in zip(names, items[1::2])}

    return pairs(conn.cmd("MEMORY", "STATS"))


def info(conn, section):
    text = conn.cmd("INFO", section).decode()
    return dict(line.split(":", 1) for line in text.split("\r\n")
                if line and not line.startswith("#"))


def words(text):
    """a=1,b=2 as a dict of numbers."""
    return {name: int(value) for name, value in (word.split("=") for word in text.split(","))}


def resident_bytes(server):
    with open("/proc/%d/statm" % server.pid) as file:
        return int(file.read().split()[1]) * 4096


def own_slabs(conn):
    """False in sanitizer builds, which leave all blocks to the C library."""
    return info(conn, "memory")["mem_allocator"] != "libc"


def wait_until(condition, seconds=5):
    deadline = time.monotonic() + seconds * TIME_SCALE
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


def group(have, prefix):
    return {name[len(prefix):]: value for name, value in have.items() if name.startswith(prefix)}


# --- sums ---


def check_sums(have):
    owner, keyspace = group(have, "owner."), group(have, "keyspace.")
    databases = group(have, "db.").values()
    databases = [db for db in databases if isinstance(db, dict)]
    assert sum(owner.values()) == have["total.allocated"]
    assert have["slabs.used"] + have["large.used"] == have["total.allocated"]
    dataset = sum(owner[name] for name in ("entry", "value", "table", "expiry"))
    assert dataset == have["dataset.bytes"]
    assert have["overhead.total"] == have["total.allocated"] - dataset
    placed = sum(keyspace[name] for name in TYPES)
    assert placed + keyspace["detached"] == owner["entry"] + owner["value"]
    for name in TYPES:
        assert sum(db[name] for db in databases) == keyspace[name]
    assert sum(db["slack"] for db in databases) == keyspace["slack"]
    assert sum(db["overhead.hashtable.main"] for db in databases) <= owner["table"]
    assert sum(db["overhead.hashtable.expires"] for db in databases) <= owner["expiry"]
    assert sum(have[name] for name in PARTS) == have["accounted"]


def fill_a_little(conn):
    for number in range(500):
        conn.cmd("SELECT", number % 3)
        conn.cmd("SET", "k%d" % number, "v" * (number * 7 % 1500))
    conn.cmd("SET", "large", b"x" * 70000, "EX", 1000)
    conn.cmd("APPEND", "large", "tail")
    conn.cmd("SELECT", 0)


def test_figures_add_up(raw):
    check_sums(stats(raw))
    fill_a_little(raw)
    have = stats(raw)
    check_sums(have)
    assert have["keyspace.string"] > 500 * 100 and have["keyspace.detached"] == 0
    assert set(group(have, "db.")) - {"dict.rehashing.count"} == {"0", "1", "2"}
    raw.cmd("SWAPDB", 0, 2)
    after = stats(raw)
    check_sums(after)
    for name in TYPES + ("slack",):
        assert after["db.0"][name] == have["db.2"][name]
        assert after["db.2"][name] == have["db.0"][name]
    raw.cmd("FLUSHDB", "SYNC")
    after = stats(raw)
    check_sums(after)
    assert "db.0" not in after
    assert after["db.1"] == have["db.1"]


def test_info_shows_the_same(raw):
    fill_a_little(raw)
    have, shown = stats(raw), info(raw, "kvik_memory")
    for name in [name for name in have if name.startswith(("owner.", "keyspace.", "slabs."))]:
        if name.startswith(("owner.client", "owner.other", "owner.config", "owner.slowlog",
                            "slabs.")):
            # The reply that is being made moves these, and where it takes long, the slow log.
            assert name.replace(".", "_") in shown
        else:
            assert int(shown[name.replace(".", "_")]) == have[name], name
    for db in range(3):
        line = words(shown["memory_db%d" % db])
        assert {name: line[name] for name in TYPES + ("slack",)} == \
            {name: have["db.%d" % db][name] for name in TYPES + ("slack",)}
        assert line["tables"] == have["db.%d" % db]["overhead.hashtable.main"]
        assert line["expiry"] == have["db.%d" % db]["overhead.hashtable.expires"]
    assert not [name for name in info(raw, "default") if name.startswith("owner_")]


def test_usage_is_what_a_key_adds(raw):
    """MEMORY USAGE of the keys of a database is its line in STATS, whatever was done to them."""
    sizes = (0, 1, 44, 45, 300, 990, 1100, 5000, 16384, 40000)
    for number, size in enumerate(sizes):
        raw.cmd("SET", "k%d" % number, "v" * size)
        raw.cmd("SET", "e%d" % number, "v" * size, "PX", 1000000)
        raw.cmd("APPEND", "a%d" % number, "v" * size)
        raw.cmd("APPEND", "a%d" % number, "tail")
        raw.cmd("SETRANGE", "r%d" % number, size, "tail")
        raw.cmd("RENAME", "r%d" % number, "renamed:%d" % number)
        raw.cmd("COPY", "k%d" % number, "c%d" % number)
        raw.cmd("PERSIST", "e%d" % (number // 2))
        keys = raw.cmd("KEYS", "*")
        usage = sum(raw.cmd("MEMORY", "USAGE", key) for key in keys)
        assert stats(raw)["db.0"]["string"] == usage


def test_slack_is_what_blocks_hold_too_much(raw):
    """Large strings of one length have the same slack each; one byte more takes one from it."""
    for number in range(10):
        raw.cmd("SET", "k%d" % number, "v" * 33000)
    ten = stats(raw)["keyspace.slack"]
    assert ten > 0
    raw.cmd("SETRANGE", "k0", 33000, "x")
    assert stats(raw)["keyspace.slack"] == ten - 1
    raw.cmd("DEL", *["k%d" % number for number in range(10)])
    assert stats(raw)["keyspace.slack"] == 0


def test_dataset_is_that_of_info(raw):
    fill_a_little(raw)
    have, shown = stats(raw), info(raw, "memory")
    assert int(shown["used_memory_dataset"]) == have["dataset.bytes"]
    assert int(shown["used_memory_startup"]) == have["startup.allocated"]
    assert int(shown["used_memory_rss"]) > 0
    allocated, active = int(shown["allocator_allocated"]), int(shown["allocator_active"])
    assert int(shown["allocator_frag_bytes"]) == active - allocated
    assert float(shown["allocator_frag_ratio"]) == pytest.approx(active / allocated, abs=0.011)
    # Both allocators: what is in use cannot be more than what they have given out.
    assert allocated >= int(shown["used_memory"]) - 65536


def test_a_reply_in_flight_belongs_to_its_client(start_server):
    """A large value that a client has yet to read is no data any more once its key is gone."""
    server = start_server()
    with server.raw() as conn, server.raw() as slow:
        start = stats(conn)
        conn.cmd("SET", "large", b"x" * 300000)
        held = conn.cmd("MEMORY", "USAGE", "large")
        slow.send(encode("GET", "large") * 100)
        # The socket is full; what is left refers to the value.
        full = rb"oll=[1-9].* cmd=get .*tot-cmds=100"
        wait_until(lambda: re.search(full, conn.cmd("CLIENT", "LIST")))
        have = stats(conn)
        check_sums(have)
        assert have["keyspace.string"] == held
        conn.cmd("FLUSHALL", "SYNC")
        after = stats(conn)
        check_sums(after)
        assert after["dataset.bytes"] == start["dataset.bytes"]
        assert after["keyspace.detached"] == 0
        assert after["owner.client_output"] >= have["owner.client_output"] + 300000
        assert [len(slow.read()) for _ in range(100)] == [300000] * 100
        wait_until(lambda: stats(conn)["owner.client_output"]
                   <= after["owner.client_output"] - 300000)


# --- thread caches, PURGE, DOCTOR ---


def caches(conn):
    lines = group(info(conn, "kvik_memory"), "cache_")
    return {name: words(value) for name, value in lines.items()}


def test_each_worker_shows_its_cache(start_server):
    server = start_server(threads=2)
    with server.raw() as conn:
        if not own_slabs(conn):
            pytest.skip("no thread caches in this build")
        # A thread shows when it has taken its first block: connections come to all of them.
        def both_show():
            with server.raw() as other:
                other.cmd("SET", "k", "v")
            return {"worker-0", "worker-1"} <= set(caches(conn))

        wait_until(both_show)
        before = caches(conn)
        # Keys that come and go: each takes a block and gives it back.
        conn.send(b"".join(encode("SET", "k%d" % i, "v" * 40) for i in range(2000)))
        assert [conn.read() for _ in range(2000)] == [b"OK"] * 2000
        conn.cmd("FLUSHALL", "SYNC")
        after = caches(conn)
        assert sum(line["hits"] for line in after.values()) >= \
            sum(line["hits"] for line in before.values()) + 2000
        for line in after.values():
            assert 0 <= line["depth_bytes"] <= line["limit_bytes"] <= 4 << 20
        for name, value in group(stats(conn), "cache.").items():
            assert set(value) == {"depth.bytes", "limit.bytes", "hits", "refills", "flushes"}
            assert name in after
        rows = conn.cmd("MEMORY", "MALLOC-STATS").decode().split("\n")
        rows = [row.split() for row in rows if row.startswith("worker-")]
        assert sum(int(row[1]) * int(row[2]) for row in rows) > 0
        assert max(int(row[3]) for row in rows) > 0


def test_purge_empties_the_caches_of_all_workers(start_server):
    server = start_server(threads=4)
    conns = [server.raw() for _ in range(8)]
    try:
        if not own_slabs(conns[0]):
            pytest.skip("no thread caches in this build")
        for number, conn in enumerate(conns):
            for i in range(300):
                conn.cmd("SET", "k%d:%d" % (number, i), "v" * (i * 3 % 900))
        for number, conn in enumerate(conns):
            conn.cmd("DEL", *["k%d:%d" % (number, i) for i in range(300)])
        assert conns[0].cmd("MEMORY", "PURGE") == b"OK"
        # A cache fills by a batch as soon as its thread takes a block; reading INFO takes some.
        wait_until(lambda: sum(line["depth_bytes"] for line in caches(conns[0]).values())
                   < 256 << 10)
        wait_until(lambda: stats(conns[0])["slabs.free"] < 1 << 20)
    finally:
        for conn in conns:
            conn.close()


def test_doctor_has_nothing_to_say_about_little(raw):
    if not own_slabs(raw):
        pytest.skip("a sanitizer's own memory is not little")
    assert b"too little to judge" in raw.cmd("MEMORY", "DOCTOR")


def test_doctor_finds_what_is_unusual(start_server):
    server = start_server(threads=1)
    with server.raw() as conn:
        # 100 large values of just over a step: a fifth of each block is empty.
        for number in range(100):
            conn.cmd("SET", "k%d" % number, b"x" * (262144 - 24 + 1))
        text = conn.cmd("MEMORY", "DOCTOR").decode()
        assert "Slack inside blocks" not in text and "Peak" not in text
        for number in range(100):
            conn.cmd("SET", "k%d" % number, b"x" * 140000)
            conn.cmd("APPEND", "k%d" % number, b"x" * 30000)
        text = conn.cmd("MEMORY", "DOCTOR").decode()
        assert "Slack inside blocks" in text
        time.sleep(0.3)  # the peak is sampled
        conn.cmd("DEL", *["k%d" % number for number in range(80)])
        text = conn.cmd("MEMORY", "DOCTOR").decode()
        assert "Peak" in text


# --- resident memory ---


# Ranges of sizes and how often they are drawn.
MIXED = (((10, 200), (200, 1500), (1500, 20000), (20000, 100000)), (90, 7, 2.5, 0.5))
SMALL = (((10, 100), (100, 1000)), (20, 80))


class Filler:
    """Strings in several databases, every third with a time to live."""
    DATABASES = 4

    def __init__(self, server, sizes, seed):
        self.rng, self.sizes = random.Random(seed), sizes
        self.blob = self.rng.randbytes(1 << 18)
        self.conns = [server.raw(timeout=60) for _ in range(self.DATABASES)]
        for db, conn in enumerate(self.conns):
            conn.cmd("SELECT", db)
        self.keys = [[] for _ in range(self.DATABASES)]
        self.batches = 0

    def value(self):
        low, high = self.rng.choices(*self.sizes)[0]
        size, start = self.rng.randint(low, high), self.rng.randrange(1 << 17)
        return self.blob[start:start + size]

    def batch(self):
        """A hundred keys; returns the bytes of their values."""
        self.batches += 1
        db = self.batches % self.DATABASES
        names = ["key:%d:%d" % (self.batches, i) for i in range(100)]
        values = [self.value() for _ in names]
        self.keys[db] += names
        if self.batches % 3:
            pairs = [item for pair in zip(names, values) for item in pair]
            assert self.conns[db].cmd("MSET", *pairs) == b"OK"
        else:
            self.conns[db].send(b"".join(encode("SET", name, value, "EX", 100000)
                                         for name, value in zip(names, values)))
            for _ in names:
                assert self.conns[db].read() == b"OK"
        return sum(len(value) for value in values)

    def fill(self, size):
        while size > 0:
            size -= self.batch()

    def delete(self, share):
        for db, conn in enumerate(self.conns):
            self.rng.shuffle(self.keys[db])
            kept = int(len(self.keys[db]) * (1 - share))
            gone, self.keys[db] = self.keys[db][kept:], self.keys[db][:kept]
            for start in range(0, len(gone), 500):
                conn.cmd("DEL", *gone[start:start + 500])

    def close(self):
        for conn in self.conns:
            conn.close()


@pytest.mark.single
@pytest.mark.timeout(240)
@pytest.mark.parametrize("sizes", [SMALL, MIXED], ids=["small", "mixed"])
def test_figures_add_up_to_resident_memory(start_server, sizes):
    """With 256 MB of data: within 3 %."""
    server = start_server(debug=False)
    filler = Filler(server, sizes, seed=1)
    conn = filler.conns[0]
    try:
        if not own_slabs(conn) or TIME_SCALE > 1:
            pytest.skip("an instrumented build")

        def compare(when, share):
            have = stats(conn)
            check_sums(have)
            resident = resident_bytes(server)
            print("%-14s resident %d, explained %+.2f %%"
                  % (when, resident, 100 * (have["accounted"] / resident - 1)))
            assert abs(have["accounted"] - resident) <= share * resident
            return have

        filler.fill(256 << 20)
        assert compare("filled", 0.03)["total.allocated"] > 256 << 20
        filler.delete(0.1)
        compare("10 % deleted", 0.03)
        filler.fill(100 << 20)
        compare("filled again", 0.03)
        filler.delete(0.2)
        compare("20 % deleted", 0.03)
        conn.cmd("FLUSHALL", "SYNC")
        assert compare("flushed", 0.10)["dataset.bytes"] == 0
    finally:
        filler.close()
