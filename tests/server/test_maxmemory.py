#!/usr/bin/python3
"""maxmemory: the limit is kept within its bound, each policy prefers the right victims, what cannot
be kept is refused, and all of it is told (INFO, change stream, WATCH, log).

The bound: memory in use passes the limit by at most 64 KiB and one batch per worker. Tests allow
128 KiB per worker, and 64 KiB for connections.
"""
import random
import threading
import time

import pytest

from process import TIME_SCALE
from raw import Error
from test_change_stream import Pair

OOM = Error(b"OOM command not allowed when used memory > 'maxmemory'.")
KIB, MIB = 1024, 1024 * 1024
VALUE = "v" * 100
CHUNK = 50  # commands sent together
EVICTING = ["allkeys-lru", "allkeys-lfu", "allkeys-random", "volatile-lru", "volatile-lfu",
            "volatile-random", "volatile-ttl"]
NEW = [pytest.param(name, marks=pytest.mark.kvik_only) for name in ("allkeys-lrm", "volatile-lrm")]


def memory(conn):
    """Bytes that maxmemory is compared with."""
    info = fields(conn, "memory")
    return info["used_memory"] - info["mem_not_counted_for_evict"]


def fields(conn, section):
    result = {}
    for line in conn.cmd("INFO", section).decode().split("\r\n"):
        name, _, value = line.partition(":")
        result[name] = int(value) if value.isdigit() else value
    return result


def bound(server):
    return server.threads * 128 * KIB + 64 * KIB


def limit_to(conn, extra, **settings):
    """Allows `extra` bytes more than are in use now."""
    limit = memory(conn) + extra
    words = ["maxmemory", limit]
    for name, value in settings.items():
        words += [name.replace("_", "-"), value]
    assert conn.cmd("CONFIG", "SET", *words) == b"OK"
    return limit


def pipeline(conn, commands):
    """Sends in chunks; gives all replies."""
    replies = []
    for start in range(0, len(commands), CHUNK):
        chunk = commands[start:start + CHUNK]
        for command in chunk:
            conn.send_cmd(*command)
        replies += [conn.read() for _ in chunk]
    return replies


def fill(conn, names, value=VALUE, options=()):
    return pipeline(conn, [("SET", name, value, *options) for name in names])


def numbered(n, prefix="key"):
    return ["%s:%d" % (prefix, i) for i in range(n)]


def present(conn, names):
    return sum(pipeline(conn, [("EXISTS", name) for name in names]))


def wait_for(condition, seconds=10):
    deadline = time.monotonic() + seconds * TIME_SCALE
    while time.monotonic() < deadline:
        if condition():
            return
        time.sleep(0.02)
    raise AssertionError("it did not come about")


@pytest.fixture
def limited(start_server):
    """A server of its own and a connection to it."""
    server = start_server()
    conn = server.raw(timeout=30)
    yield server, conn
    conn.close()


# --- the limit ---

@pytest.mark.single
@pytest.mark.parametrize("policy", EVICTING + NEW)
def test_the_limit_is_kept(limited, policy):
    server, conn = limited
    limit = limit_to(conn, 2 * MIB, maxmemory_policy=policy)
    options = ("EX", 10000) if policy.startswith("volatile") else ()
    for part in range(12):
        replies = fill(conn, numbered(3000, "part%d" % part), options=options)
        assert set(replies) == {b"OK"}
        assert memory(conn) <= limit + bound(server)
    stats = fields(conn, "stats")
    keys = conn.cmd("DBSIZE")
    assert stats["evicted_keys"] > 0
    # What is not there any more was evicted (that goes on between the two commands).
    assert abs(36000 - keys - stats["evicted_keys"]) < 3000
    assert memory(conn) >= limit - MIB


@pytest.mark.single
@pytest.mark.parametrize("tenacity", [0, 10, 50, 100])
def test_the_limit_is_kept_with_any_tenacity(limited, tenacity):
    server, conn = limited
    limit = limit_to(conn, MIB, maxmemory_policy="allkeys-lru",
                     maxmemory_eviction_tenacity=tenacity)
    assert set(fill(conn, numbered(20000))) == {b"OK"}
    wait_for(lambda: memory(conn) <= limit + bound(server))


@pytest.mark.kvik_only
def test_large_values_make_room_for_themselves(limited):
    server, conn = limited
    limit = limit_to(conn, 8 * MIB, maxmemory_policy="allkeys-random",
                     maxmemory_eviction_tenacity=100)
    big = "b" * MIB
    for i in range(40):
        assert conn.cmd("SET", "big:%d" % i, big) == b"OK"
        assert memory(conn) <= limit + bound(server)
    assert conn.cmd("DBSIZE") < 9


@pytest.mark.kvik_only
@pytest.mark.parametrize("threads", [1, 4])
def test_concurrent_writers_never_pass_the_bound(start_server, threads):
    server = start_server(threads=threads)
    control = server.raw(timeout=30)
    limit = limit_to(control, 4 * MIB, maxmemory_policy="allkeys-lru")
    problems = []

    def write(number):
        try:
            with server.raw(timeout=60) as conn:
                for part in range(8):
                    replies = fill(conn, numbered(1500, "w%d:%d" % (number, part)))
                    problems.extend(reply for reply in replies if reply != b"OK")
        except Exception as problem:  # told by the main thread
            problems.append(problem)

    writers = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    highest = 0
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        highest = max(highest, memory(control))
    for writer in writers:
        writer.join()
    control.close()
    assert not problems
    # Each connection has a buffer for its replies.
    assert limit - MIB < highest <= limit + bound(server) + len(writers) * 32 * KIB


# --- refusing ---

def test_without_eviction_writes_are_refused_and_all_else_works(limited):
    server, conn = limited
    limit = limit_to(conn, MIB, maxmemory_policy="noeviction")
    replies = fill(conn, numbered(20000))
    assert set(replies) == {b"OK", OOM}
    first = replies.index(OOM)
    # Afterwards everything is refused, within the bound of what is counted late.
    assert set(replies[first + 2000:]) == {OOM}
    # Buffers that are given back must not make room for one more key.
    assert conn.cmd("CONFIG", "SET", "maxmemory", limit - 128 * KIB) == b"OK"
    assert conn.cmd("SET", "another", "v") == OOM
    assert conn.cmd("GET", "key:0") == VALUE.encode()
    assert conn.cmd("EXPIRE", "key:0", 1000) == 1
    assert conn.cmd("RENAME", "key:0", "key:zero") == b"OK"
    assert conn.cmd("DEL", "key:zero") == 1
    assert conn.cmd("PING") == b"PONG"
    assert conn.cmd("INCR", "counter") == OOM
    assert conn.cmd("MSET", "a", "1", "b", "2") == OOM
    info = fields(conn, "stats")
    assert info["evicted_keys"] == 0
    assert b"errorstat_OOM:count=" in conn.cmd("INFO", "errorstats")
    assert "rejected_calls=0" not in fields(conn, "commandstats")["cmdstat_set"]
    pipeline(conn, [("DEL", name) for name in numbered(3000)])
    wait_for(lambda: conn.cmd("SET", "another", "v") == b"OK")


def test_a_pipeline_at_the_limit_is_answered_in_order(limited):
    _, conn = limited
    fill(conn, ["a", "b"], "1")
    assert conn.cmd("CONFIG", "SET", "maxmemory", 1) == b"OK"
    replies = pipeline(conn, [("GET", "a"), ("SET", "a", "2"), ("GET", "a"), ("EXISTS", "b"),
                              ("SET", "b", "2"), ("APPEND", "b", "2"), ("GET", "b"), ("DEL", "b"),
                              ("SETNX", "b", "3"), ("PING",)])
    assert replies == [b"1", OOM, b"1", 1, OOM, OOM, b"1", 1, OOM, b"PONG"]
    assert conn.cmd("CONFIG", "SET", "maxmemory", 0) == b"OK"
    assert conn.cmd("SET", "a", "2") == b"OK"


def test_transactions_at_the_limit(limited):
    server, conn = limited
    control = server.raw()
    abort = Error(b"EXECABORT Transaction discarded because of: OOM command not allowed when used "
                  b"memory > 'maxmemory'.")
    earlier = Error(b"EXECABORT Transaction discarded because of previous errors.")

    def limit(size):
        assert control.cmd("CONFIG", "SET", "maxmemory", size) == b"OK"

    # What needs memory was queued before.
    assert conn.cmd("MULTI") == b"OK"
    assert conn.cmd("SET", "k", "v") == b"QUEUED"
    limit(1)
    assert conn.cmd("EXEC") == abort
    # Queueing needs memory, whatever the command does.
    assert conn.cmd("MULTI") == b"OK"
    assert conn.cmd("GET", "k") == OOM
    assert conn.cmd("PING") == OOM
    assert conn.cmd("EXEC") == earlier
    assert conn.cmd("MULTI") == b"OK"
    assert conn.cmd("SET", "k", "v") == OOM
    assert conn.cmd("DISCARD") == b"OK"
    # A queue that needs none runs.
    limit(0)
    assert conn.cmd("MULTI") == b"OK"
    assert conn.cmd("GET", "k") == b"QUEUED"
    limit(1)
    assert conn.cmd("EXEC") == [None]
    assert conn.cmd("WATCH", "k") == b"OK"
    control.close()


def test_volatile_policies_refuse_when_nothing_is_volatile(limited):
    server, conn = limited
    fill(conn, numbered(3000))
    limit = limit_to(conn, 300 * KIB, maxmemory_policy="volatile-lru")
    replies = fill(conn, numbered(6000, "more"))
    assert OOM in replies and fields(conn, "stats")["evicted_keys"] == 0
    limit -= 128 * KIB
    assert conn.cmd("CONFIG", "SET", "maxmemory", limit) == b"OK"
    assert conn.cmd("SET", "another", "v") == OOM
    assert set(pipeline(conn, [("EXPIRE", name, 10000) for name in numbered(2000)])) == {1}
    assert conn.cmd("SET", "another", "v") == b"OK"
    evicted = fields(conn, "stats")["evicted_keys"]
    assert 0 < evicted <= 2000
    assert present(conn, numbered(3000)[2000:]) == 1000
    assert memory(conn) <= limit + bound(server)


def test_an_empty_keyspace_above_the_limit_refuses(limited):
    _, conn = limited
    conn.cmd("CONFIG", "SET", "maxmemory", 1, "maxmemory-policy", "allkeys-lru")
    assert conn.cmd("SET", "k", "v") == OOM
    assert conn.cmd("DBSIZE") == 0


# --- choosing ---

# So many that what the lag of the figure costs in addition is little: 64 KiB a worker.
KEYS = 12000

def evict_share(conn, keys, share, options=()):
    """Limits memory to what `keys` keys take and adds until about `share` of them must be gone."""
    limit_to(conn, 0)
    assert set(fill(conn, numbered(int(keys * share), "new"), options=options)) == {b"OK"}


def test_lru_keeps_what_was_read(limited):
    _, conn = limited
    conn.cmd("CONFIG", "SET", "maxmemory", 1 << 40, "maxmemory-policy", "allkeys-lru",
             "maxmemory-samples", 10)
    names = numbered(KEYS)
    fill(conn, names)
    time.sleep(2.1)
    pipeline(conn, [("GET", name) for name in names[::2]])
    evict_share(conn, KEYS, 0.2)
    assert present(conn, names[::2]) >= KEYS // 2 - KEYS // 200
    assert present(conn, names[1::2]) < KEYS * 0.43


def test_lfu_keeps_what_is_read_often(limited):
    _, conn = limited
    conn.cmd("CONFIG", "SET", "maxmemory", 1 << 40, "maxmemory-policy", "allkeys-lfu",
             "maxmemory-samples", 10, "lfu-log-factor", 0)
    names = numbered(KEYS)
    fill(conn, names)
    for _ in range(5):
        pipeline(conn, [("GET", name) for name in names[::2]])
    evict_share(conn, KEYS, 0.2)
    assert present(conn, names[::2]) >= KEYS // 2 - KEYS // 200
    assert present(conn, names[1::2]) < KEYS * 0.46


@pytest.mark.kvik_only
def test_lrm_keeps_what_was_written(limited):
    _, conn = limited
    conn.cmd("CONFIG", "SET", "maxmemory", 1 << 40, "maxmemory-policy", "allkeys-lrm",
             "maxmemory-samples", 10)
    names = numbered(KEYS)
    fill(conn, names)
    time.sleep(0.5)
    pipeline(conn, [("SETRANGE", name, 1, "w") for name in names[::2]])
    time.sleep(0.5)
    pipeline(conn, [("GET", name) for name in names[1::2]])
    evict_share(conn, KEYS, 0.2)
    assert present(conn, names[::2]) >= KEYS // 2 - KEYS // 200
    assert present(conn, names[1::2]) < KEYS * 0.43


def test_ttl_takes_the_soonest(limited):
    _, conn = limited
    conn.cmd("CONFIG", "SET", "maxmemory", 1 << 40, "maxmemory-policy", "volatile-ttl",
             "maxmemory-samples", 10)
    order = list(range(KEYS))
    random.Random(5).shuffle(order)
    pipeline(conn, [("SET", "key:%d" % i, VALUE, "EX", 10000 + i) for i in order])
    names = numbered(KEYS)
    evict_share(conn, KEYS, 0.2, ("EX", 100000))
    assert present(conn, names[KEYS // 2:]) >= KEYS // 2 - KEYS // 200
    assert present(conn, names[:KEYS // 10]) < KEYS * 0.075


def test_random_spares_nobody(limited):
    _, conn = limited
    conn.cmd("CONFIG", "SET", "maxmemory", 1 << 40, "maxmemory-policy", "allkeys-random")
    names = numbered(KEYS)
    fill(conn, names)
    evict_share(conn, KEYS, 0.3)
    for start in range(0, KEYS, 3000):
        assert 1800 < present(conn, names[start:start + 3000]) < 2850


@pytest.mark.parametrize("policy", ["volatile-lru", "volatile-lfu", "volatile-random",
                                    "volatile-ttl"] + NEW[1:])
def test_volatile_policies_spare_the_others(limited, policy):
    _, conn = limited
    conn.cmd("CONFIG", "SET", "maxmemory", 1 << 40, "maxmemory-policy", policy)
    fill(conn, numbered(2000, "stays"))
    fill(conn, numbered(2000), options=("EX", 10000))
    evict_share(conn, 2000, 0.5, ("EX", 10000))
    assert present(conn, numbered(2000, "stays")) == 2000
    assert fields(conn, "stats")["evicted_keys"] > 100


def test_all_databases_are_victims(limited):
    _, conn = limited
    conn.cmd("CONFIG", "SET", "maxmemory", 1 << 40, "maxmemory-policy", "allkeys-random")
    for db in (0, 3, 9):
        conn.cmd("SELECT", db)
        fill(conn, numbered(1500))
    evict_share(conn, 4500, 0.3)
    for db in (0, 3):
        conn.cmd("SELECT", db)
        assert present(conn, numbered(1500)) < 1450


# --- access clocks ---

def test_counters_of_lfu(limited):
    _, conn = limited
    conn.cmd("CONFIG", "SET", "maxmemory", 1 << 40, "maxmemory-policy", "allkeys-lfu",
             "lfu-log-factor", 0)
    assert conn.cmd("SET", "k", "a text") == b"OK"
    assert conn.cmd("OBJECT", "FREQ", "k") == 5
    for command, used in [(("GET", "k"), 1), (("TTL", "k"), 0), (("TYPE", "k"), 0),
                          (("STRLEN", "k"), 1), (("APPEND", "k", "x"), 1), (("EXISTS", "k"), 0),
                          (("SET", "k", "12"), 1), (("INCR", "k"), 1), (("TOUCH", "k"), 1),
                          (("MGET", "k", "k"), 2), (("OBJECT", "ENCODING", "k"), 0)]:
        before = conn.cmd("OBJECT", "FREQ", "k")
        conn.cmd(*command)
        assert conn.cmd("OBJECT", "FREQ", "k") == before + used, command
    assert conn.cmd("COPY", "k", "copy") == 1
    assert conn.cmd("OBJECT", "FREQ", "copy") == 5
    pipeline(conn, [("GET", "k")] * 300)
    assert conn.cmd("OBJECT", "FREQ", "k") == 255
    assert conn.cmd("OBJECT", "IDLETIME", "k").text.startswith(b"ERR An LFU maxmemory policy is")


@pytest.mark.kvik_only
@pytest.mark.parametrize("policy", ["allkeys-lfu", "allkeys-lru"])
def test_no_touch_leaves_the_clock_alone(limited, policy):
    _, conn = limited
    conn.cmd("CONFIG", "SET", "maxmemory-policy", policy, "lfu-log-factor", 0)
    question = ("OBJECT", "FREQ" if policy == "allkeys-lfu" else "IDLETIME", "k")
    assert conn.cmd("SET", "k", "v") == b"OK"
    time.sleep(1.2)
    before = conn.cmd(*question)
    assert before >= 1
    assert conn.cmd("CLIENT", "NO-TOUCH", "ON") == b"OK"
    assert conn.cmd("GET", "k") == b"v"
    assert conn.cmd(*question) >= before
    assert conn.cmd("CLIENT", "NO-TOUCH", "OFF") == b"OK"
    assert conn.cmd("GET", "k") == b"v"
    after = conn.cmd(*question)
    assert after == before + 1 if policy == "allkeys-lfu" else after <= 1 * TIME_SCALE


@pytest.mark.kvik_only
def test_a_change_of_policy_does_not_make_old_keys_hot(limited):
    _, conn = limited
    assert conn.cmd("SET", "k", "v") == b"OK"
    conn.cmd("CONFIG", "SET", "maxmemory-policy", "allkeys-lfu", "lfu-log-factor", 0)
    assert conn.cmd("OBJECT", "FREQ", "k") == 5
    pipeline(conn, [("GET", "k")] * 100)
    conn.cmd("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    assert conn.cmd("OBJECT", "IDLETIME", "k") <= 120
    conn.cmd("GET", "k")
    assert conn.cmd("OBJECT", "IDLETIME", "k") <= 1 * TIME_SCALE
    conn.cmd("CONFIG", "SET", "maxmemory-policy", "allkeys-lfu")
    assert conn.cmd("OBJECT", "FREQ", "k") == 5


@pytest.mark.kvik_only
def test_idle_time_under_lrm_is_that_of_the_last_change(limited):
    _, conn = limited
    conn.cmd("CONFIG", "SET", "maxmemory-policy", "volatile-lrm")
    conn.cmd("SET", "k", "1")
    time.sleep(1.2)
    conn.cmd("GET", "k")
    assert conn.cmd("OBJECT", "IDLETIME", "k") >= 1
    conn.cmd("INCR", "k")
    assert conn.cmd("OBJECT", "IDLETIME", "k") <= 1 * TIME_SCALE


# --- telling ---

def test_a_lower_limit_evicts_without_commands(limited):
    server, conn = limited
    conn.cmd("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    fill(conn, numbered(20000))
    limit = memory(conn) - 2 * MIB
    assert conn.cmd("CONFIG", "SET", "maxmemory", limit) == b"OK"
    wait_for(lambda: memory(conn) <= limit + bound(server))
    assert "the new maxmemory value set via CONFIG SET (%d) is smaller than the current memory " \
           "usage" % limit in server.log()
    info = fields(conn, "memory")
    assert info["maxmemory"] == limit
    assert info["maxmemory_human"][-1] in "KM"
    assert info["maxmemory_policy"] == "allkeys-lru"


def test_times_above_the_limit_are_counted(limited):
    _, conn = limited
    assert fields(conn, "stats")["total_eviction_exceeded_time"] == 0
    conn.cmd("CONFIG", "SET", "maxmemory", 1)
    assert conn.cmd("SET", "k", "v") == OOM
    time.sleep(0.05)
    stats = fields(conn, "stats")
    assert stats["current_eviction_exceeded_time"] >= 40
    assert stats["total_eviction_exceeded_time"] >= 40
    conn.cmd("CONFIG", "SET", "maxmemory", 1 << 40)
    conn.cmd("SET", "k", "v")
    wait_for(lambda: fields(conn, "stats")["current_eviction_exceeded_time"] == 0)
    assert fields(conn, "stats")["total_eviction_exceeded_time"] >= 40
    conn.cmd("CONFIG", "RESETSTAT")
    assert fields(conn, "stats")["total_eviction_exceeded_time"] == 0


def test_a_watched_key_that_is_evicted_fails_the_transaction(limited):
    server, conn = limited
    fill(conn, numbered(200))
    other = server.raw()
    assert other.cmd("WATCH", *numbered(200)) == b"OK"
    conn.cmd("CONFIG", "SET", "maxmemory", 1, "maxmemory-policy", "allkeys-lru")
    wait_for(lambda: conn.cmd("DBSIZE") == 0)
    conn.cmd("CONFIG", "SET", "maxmemory", 0)
    assert other.cmd("MULTI") == b"OK"
    assert other.cmd("PING") == b"QUEUED"
    assert other.cmd("EXEC") is None
    other.close()


@pytest.mark.kvik_only
@pytest.mark.parametrize("lazy, name", [("no", b"DEL"), ("yes", b"UNLINK")])
def test_the_change_stream_says_what_was_evicted(start_server, lazy, name):
    first, second = start_server("--lazyfree-lazy-eviction", lazy), start_server()
    pair = Pair(first, second)
    conn = first.raw(timeout=30)
    # What is read of the stream goes through a reply, which takes its part of the room.
    limit_to(conn, 3 * MIB, maxmemory_policy="allkeys-random")
    for part in range(12):
        assert set(fill(conn, numbered(3000, "p%d" % part))) == {b"OK"}
        pair.read()
    assert conn.cmd("CONFIG", "SET", "maxmemory", 0) == b"OK"
    evicted = fields(conn, "stats")["evicted_keys"]
    commands = pair.finish()
    assert evicted > 1000
    assert sum(command[0] == name for command in commands) == evicted


@pytest.mark.kvik_only
def test_large_victims_are_freed_in_the_background(start_server):
    server = start_server("--lazyfree-lazy-eviction", "yes", "--maxmemory-policy", "allkeys-random")
    with server.raw(timeout=30) as conn:
        limit = limit_to(conn, 4 * MIB)
        for i in range(100):
            assert conn.cmd("SET", "big:%d" % i, "b" * 200000) == b"OK"
        wait_for(lambda: fields(conn, "memory")["lazyfree_pending_objects"] == 0)
        info = fields(conn, "memory")
        assert info["lazyfreed_objects"] >= 50
        assert memory(conn) <= limit + bound(server)
