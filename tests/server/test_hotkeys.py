#!/usr/bin/python3
"""HOTKEYS: what START takes, what is counted with which key, what GET shows, when it ends."""
import random
import threading
import time

import pytest

from process import TIME_SCALE
from raw import Error, encode

pytestmark = pytest.mark.kvik_only

TRACKED = Error(b"ERR hot keys are being tracked already")
NOT_TRACKED = Error(b"ERR hot keys are not being tracked")
STOP_FIRST = Error(b"ERR hot keys are being tracked: HOTKEYS STOP comes first")
BAD_METRICS = Error(b"ERR METRICS takes a number, and so many of CPU and NET, each once")
BAD_COUNT = Error(b"ERR COUNT must be an integer from 1 to 64")
BAD_DURATION = Error(b"ERR DURATION must be an integer from 0 to 1000000000")
BAD_SAMPLE = Error(b"ERR SAMPLE must be an integer from 1 to 2147483647")
NO_SLOTS = Error(b"ERR SLOTS is for clusters, and this server is not in one")
SYNTAX = Error(b"ERR syntax error")

ALWAYS = [b"tracking-active", b"sample-ratio", b"selected-slots", b"all-commands-all-slots-us",
          b"net-bytes-all-commands-all-slots", b"collection-start-time-unix-ms",
          b"collection-duration-ms"]
OF_CPU = [b"total-cpu-time-user-ms", b"total-cpu-time-sys-ms"]
OF_NET = [b"total-net-bytes"]
BUSY_S = 0.2  # seconds that a script works


@pytest.fixture(autouse=True)
def forgotten(empty_server):
    yield
    if empty_server.alive():
        with empty_server.raw() as conn:
            conn.cmd("HOTKEYS", "STOP")
            assert conn.cmd("HOTKEYS", "RESET") == b"OK"


@pytest.fixture
def control(connect):
    return connect()


def pairs(flat):
    assert len(flat) % 2 == 0
    names = flat[::2]
    assert len(set(names)) == len(names)
    return dict(zip(names, flat[1::2]))


def report(conn):
    [fields] = conn.cmd("HOTKEYS", "GET")
    return fields if isinstance(fields, dict) else pairs(fields)


def by_net(conn):
    return pairs(report(conn)[b"by-net-bytes"])


def by_cpu(conn):
    return pairs(report(conn)[b"by-cpu-time-us"])


def start(conn, *words):
    assert conn.cmd("HOTKEYS", "START", *(words or ("METRICS", 2, "CPU", "NET"))) == b"OK"


def cost(reply, *words):
    """Bytes of a command and its reply."""
    return len(encode(*words)) + len(reply)


def wait_until(condition, seconds=20):
    deadline = time.monotonic() + seconds * TIME_SCALE
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


# --- sessions ---

def test_life_of_a_session(raw):
    assert raw.cmd("HOTKEYS", "GET") is None
    assert raw.cmd("HOTKEYS", "STOP") == NOT_TRACKED
    assert raw.cmd("HOTKEYS", "RESET") == b"OK"
    start(raw)
    assert raw.cmd("HOTKEYS", "START", "METRICS", 1, "CPU") == TRACKED
    assert raw.cmd("HOTKEYS", "RESET") == STOP_FIRST
    raw.cmd("SET", "k", "v")
    assert report(raw)[b"tracking-active"] == 1
    assert raw.cmd("HOTKEYS", "STOP") == b"OK"
    assert raw.cmd("HOTKEYS", "STOP") == NOT_TRACKED
    kept = report(raw)
    assert kept[b"tracking-active"] == 0
    assert kept[b"by-net-bytes"] == [b"k", cost(b"+OK\r\n", "SET", "k", "v")]
    raw.cmd("SET", "k", "v")
    time.sleep(0.01)
    assert report(raw) == kept
    start(raw, "METRICS", 1, "NET")
    assert report(raw)[b"by-net-bytes"] == []
    assert raw.cmd("HOTKEYS", "STOP") == b"OK"
    assert raw.cmd("HOTKEYS", "RESET") == b"OK"
    assert raw.cmd("HOTKEYS", "GET") is None


def test_replies_without_a_session_byte_by_byte(raw):
    raw.send_cmd("HOTKEYS", "GET")
    assert raw.read_bytes() == b"$-1\r\n"
    raw.cmd("HELLO", 3)
    raw.send_cmd("HOTKEYS", "GET")
    assert raw.read_bytes() == b"_\r\n"


@pytest.mark.parametrize("words, names", [
    (("METRICS", 1, "CPU"), ALWAYS + OF_CPU + [b"by-cpu-time-us"]),
    (("METRICS", 1, "NET"), ALWAYS + OF_NET + [b"by-net-bytes"]),
    (("metrics", 2, "net", "cpu"),
     ALWAYS + OF_CPU + OF_NET + [b"by-cpu-time-us", b"by-net-bytes"])])
@pytest.mark.parametrize("protocol", [2, 3])
def test_fields(connect, control, words, names, protocol):
    conn = connect()
    conn.cmd("HELLO", protocol)
    before = time.time() * 1000
    start(conn, *words)
    control.cmd("SET", "k", "v")
    control.cmd("GET", "k")
    [fields] = conn.cmd("HOTKEYS", "GET")
    assert isinstance(fields, dict) == (protocol == 3)
    assert list(fields if protocol == 3 else fields[::2]) == names
    got = report(conn)
    assert got[b"tracking-active"] == 1 and got[b"sample-ratio"] == 1
    assert got[b"selected-slots"] == [[0, 16383]]
    assert before - 1 <= got[b"collection-start-time-unix-ms"] <= time.time() * 1000
    assert 0 <= got[b"collection-duration-ms"] <= 10000 * TIME_SCALE
    for name in names:
        if name.startswith(b"by-"):
            assert isinstance(got[name], list) and got[name][0] == b"k"
            assert all(isinstance(value, int) for value in got[name][1::2])
        elif name != b"selected-slots":
            assert isinstance(got[name], int) and got[name] >= 0


@pytest.mark.parametrize("words, error", [
    ((), Error(b"ERR HOTKEYS START needs METRICS")),
    (("COUNT", 10), Error(b"ERR HOTKEYS START needs METRICS")),
    (("METRICS",), BAD_METRICS),
    (("METRICS", 0), BAD_METRICS),
    (("METRICS", 1), BAD_METRICS),
    (("METRICS", "CPU"), BAD_METRICS),
    (("METRICS", "x", "CPU"), BAD_METRICS),
    (("METRICS", 2, "CPU"), BAD_METRICS),
    (("METRICS", 1, "CPU", "NET"), BAD_METRICS),
    (("METRICS", 2, "CPU", "CPU"), BAD_METRICS),
    (("METRICS", 3, "CPU", "NET", "CPU"), BAD_METRICS),
    (("METRICS", -1, "CPU"), BAD_METRICS),
    (("METRICS", 1, "MEM"), BAD_METRICS),
    (("METRICS", 1, "CPU", "MEM"), SYNTAX),
    (("METRICS", 1, "CPU", "METRICS", 1, "NET"), SYNTAX),
    (("METRICS", 1, "CPU", "COUNT"), SYNTAX),
    (("METRICS", 1, "CPU", "COUNT", 0), BAD_COUNT),
    (("METRICS", 1, "CPU", "COUNT", 65), BAD_COUNT),
    (("METRICS", 1, "CPU", "COUNT", -1), BAD_COUNT),
    (("METRICS", 1, "CPU", "COUNT", "many"), BAD_COUNT),
    (("METRICS", 1, "CPU", "COUNT", 5, "COUNT", 5), SYNTAX),
    (("METRICS", 1, "CPU", "DURATION"), SYNTAX),
    (("METRICS", 1, "CPU", "DURATION", -1), BAD_DURATION),
    (("METRICS", 1, "CPU", "DURATION", 1000000001), BAD_DURATION),
    (("METRICS", 1, "CPU", "DURATION", 2 ** 63), BAD_DURATION),
    (("METRICS", 1, "CPU", "DURATION", "1.5"), BAD_DURATION),
    (("METRICS", 1, "CPU", "SAMPLE"), SYNTAX),
    (("METRICS", 1, "CPU", "SAMPLE", 0), BAD_SAMPLE),
    (("METRICS", 1, "CPU", "SAMPLE", 2 ** 31), BAD_SAMPLE),
    (("METRICS", 1, "CPU", "SAMPLE", ""), BAD_SAMPLE),
    (("METRICS", 1, "CPU", "SLOTS", 1, 0), NO_SLOTS),
    (("METRICS", 1, "CPU", "SLOTS"), NO_SLOTS),
    (("SLOTS", 1, 0, "METRICS", 1, "CPU"), NO_SLOTS),
    (("METRICS", 1, "CPU", ""), SYNTAX)])
def test_errors_of_start(raw, words, error):
    assert raw.cmd("HOTKEYS", "START", *words) == error
    assert raw.cmd("HOTKEYS", "GET") is None


@pytest.mark.parametrize("words", [
    ("METRICS", 1, "CPU", "COUNT", 1), ("METRICS", 1, "CPU", "COUNT", 64),
    ("METRICS", 1, "CPU", "DURATION", 0), ("METRICS", 1, "CPU", "DURATION", 1000000000),
    ("METRICS", 1, "CPU", "SAMPLE", 1), ("METRICS", 1, "CPU", "SAMPLE", 2 ** 31 - 1),
    ("sample", 3, "duration", 7, "count", 2, "metrics", 2, "cpu", "net")])
def test_bounds_of_start(raw, words):
    start(raw, *words)
    raw.cmd("SET", "k", "v")
    assert report(raw)[b"tracking-active"] == 1


def test_other_errors(raw):
    for name in ("GET", "STOP", "RESET", "HELP"):
        assert raw.cmd("HOTKEYS", name, "x") == \
            Error(b"ERR wrong number of arguments for 'hotkeys|%s' command" % name.lower().encode())
    assert raw.cmd("HOTKEYS") == Error(b"ERR wrong number of arguments for 'hotkeys' command")
    assert raw.cmd("HOTKEYS", "NOSUCH").code == b"ERR"
    assert raw.cmd("EVAL", "return redis.call('hotkeys', 'get')", 0).code == b"ERR"
    assert raw.cmd("HOTKEYS", "HELP")[0].startswith(b"HOTKEYS <subcommand>")
    assert raw.cmd("COMMAND", "GETKEYS", "HOTKEYS", "GET") == \
        Error(b"ERR The command has no key arguments")


def test_who_may(raw, connect):
    for category in (b"admin", b"dangerous", b"slow"):
        names = raw.cmd("ACL", "CAT", category)
        assert {b"hotkeys|start", b"hotkeys|stop", b"hotkeys|get", b"hotkeys|reset"} <= set(names)
    raw.cmd("ACL", "SETUSER", "plain", "on", "nopass", "~*", "+@all", "-@admin")
    conn = connect()
    conn.cmd("AUTH", "plain", "x")
    for words in (("START", "METRICS", 1, "CPU"), ("GET",), ("STOP",), ("RESET",)):
        assert conn.cmd("HOTKEYS", *words).code == b"NOPERM"
    assert isinstance(conn.cmd("HOTKEYS", "HELP"), list)
    raw.cmd("ACL", "DELUSER", "plain")


# --- what is counted with which key ---

def test_bytes_are_exact(raw, control):
    lines = [(b"+OK\r\n", "SET", "a", "x" * 100), (b"$100\r\n" + b"x" * 100 + b"\r\n", "GET", "a"),
             (b"$-1\r\n", "GET", "nosuch"), (b":1\r\n", "SADD", "s", "m"),
             (b"-WRONGTYPE Operation against a key holding the wrong kind of value\r\n",
              "GET", "s"), (b"+PONG\r\n", "PING"), (b"+OK\r\n", "SELECT", 1),
             (b"$-1\r\n", "GET", "a"), (b"+OK\r\n", "SELECT", 0)]
    start(control, "METRICS", 1, "NET")
    for reply, *words in lines:
        raw.send_cmd(*words)
        assert raw.read_bytes() == reply
    assert control.cmd("HOTKEYS", "STOP") == b"OK"
    want = {}
    for reply, *words in lines:
        if words[0] not in ("PING", "SELECT"):
            key = words[1].encode()
            want[key] = want.get(key, 0) + cost(reply, *words)
    got = report(control)
    assert pairs(got[b"by-net-bytes"]) == want
    assert got[b"by-net-bytes"][1::2] == sorted(want.values(), reverse=True)
    total = sum(cost(reply, *words) for reply, *words in lines)
    assert got[b"total-net-bytes"] == got[b"net-bytes-all-commands-all-slots"] == total


def test_large_replies(raw, control):
    """Replies by reference, and of many chunks."""
    raw.cmd("SET", "large", b"x" * 300000)
    raw.cmd("RPUSH", "list", *[b"y" * 1000] * 100)
    start(control, "METRICS", 1, "NET")
    size = {}
    for words in (("GET", "large"), ("LRANGE", "list", 0, -1)):
        raw.send_cmd(*words)
        size[words[1].encode()] = cost(raw.read_bytes(), *words)
    assert by_net(control) == size


def test_pipelines(raw, control):
    """Batches: each command counts with its own key."""
    start(control, "METRICS", 2, "CPU", "NET", "COUNT", 64)
    for _ in range(5):
        raw.send(b"".join(encode("SET", "k%d" % i, i) for i in range(60)))
        assert [raw.read() for _ in range(60)] == [b"OK"] * 60
    assert by_net(control) == \
        {b"k%d" % i: 5 * cost(b"+OK\r\n", "SET", "k%d" % i, i) for i in range(60)}
    got = report(control)
    assert set(pairs(got[b"by-cpu-time-us"])) == {b"k%d" % i for i in range(60)}
    assert sum(got[b"by-cpu-time-us"][1::2]) <= got[b"all-commands-all-slots-us"]


def test_several_keys_share(raw, control):
    start(control, "METRICS", 1, "NET")
    raw.send_cmd("MSET", "a", 1, "b", 2, "c", 3)
    size = cost(raw.read_bytes(), "MSET", "a", 1, "b", 2, "c", 3)
    assert by_net(control) == {b"a": size // 3 + size % 3, b"b": size // 3, b"c": size // 3}
    raw.send_cmd("MGET", "d", "d")
    size = cost(raw.read_bytes(), "MGET", "d", "d")
    assert by_net(control)[b"d"] == size


def test_keys_that_are_none(raw, control):
    """Channels, patterns, scripts' texts."""
    start(control)
    raw.cmd("PUBLISH", "channel", "m")
    raw.cmd("SPUBLISH", "channel", "m")
    raw.cmd("KEYS", "pattern")
    raw.cmd("EVAL", "return 1", 0)
    got = report(control)
    assert got[b"by-net-bytes"] == got[b"by-cpu-time-us"] == []
    assert got[b"total-net-bytes"] > 0


@pytest.mark.parametrize("key", [b"", b"\x00", b"a\x00b\r\n", bytes(range(256)), b"\xff" * 4096])
def test_binary_keys(raw, control, key):
    start(control)
    raw.cmd("SET", key, "v")
    assert list(by_net(control)) == list(by_cpu(control)) == [key]


def test_huge_keys_count_in_totals_alone(raw, control):
    start(control)
    raw.cmd("SET", b"h" * 4097, "v")
    raw.cmd("SET", b"h" * 1000000, "v")
    raw.cmd("SET", "k", "v")
    got = report(control)
    assert got[b"by-net-bytes"][::2] == got[b"by-cpu-time-us"][::2] == [b"k"]
    assert got[b"total-net-bytes"] > 1004097


def test_transactions(raw, control):
    start(control, "METRICS", 1, "NET")
    raw.cmd("MULTI")
    raw.cmd("SET", "a", "x" * 50)
    raw.cmd("GET", "a")
    raw.cmd("GET", "b")
    assert raw.cmd("EXEC") == [b"OK", b"x" * 50, None]
    got = report(control)
    keys = {b"a": cost(b"+OK\r\n", "SET", "a", "x" * 50) +
            cost(b"$50\r\n\r\n" + b"x" * 50, "GET", "a"), b"b": cost(b"$-1\r\n", "GET", "b")}
    assert pairs(got[b"by-net-bytes"]) == keys
    assert got[b"total-net-bytes"] == \
        sum(keys.values()) + cost(b"+OK\r\n", "MULTI") + len(encode("EXEC"))


def test_start_and_stop_in_a_transaction(raw):
    raw.cmd("MULTI")
    raw.cmd("SET", "before", 1)
    raw.cmd("HOTKEYS", "START", "METRICS", 1, "NET")
    raw.cmd("SET", "k", 1)
    raw.cmd("HOTKEYS", "STOP")
    raw.cmd("SET", "after", 1)
    raw.cmd("HOTKEYS", "GET")
    *replies, [fields] = raw.cmd("EXEC")
    assert replies == [b"OK"] * 5
    got = pairs(fields)
    assert got[b"by-net-bytes"] == [b"k", cost(b"+OK\r\n", "SET", "k", 1)]
    assert got[b"net-bytes-all-commands-all-slots"] == got[b"by-net-bytes"][1]


def test_commands_of_scripts(raw, control):
    """Time counts with the keys of the commands, once; bytes with those of the script."""
    raw.cmd("RPUSH", "inner", *range(20000))
    script = "for i = 1, ARGV[1] do redis.call('lrange', KEYS[1], 0, -1) end return 7"
    count = 1
    while True:  # as many as take about BUSY_S
        begin = time.monotonic()
        assert raw.cmd("EVAL", script, 1, "inner", count) == 7
        if time.monotonic() - begin > BUSY_S / 2:
            break
        count *= 2
    words = ("EVAL", script.replace("KEYS[1]", "'inner'"), 1, "outer", count)
    start(control)
    raw.send_cmd(*words)
    assert raw.read_bytes() == b":7\r\n"
    assert control.cmd("HOTKEYS", "STOP") == b"OK"
    got = report(control)
    assert pairs(got[b"by-net-bytes"]) == {b"outer": cost(b":7\r\n", *words)}
    cpu = pairs(got[b"by-cpu-time-us"])
    assert set(cpu) == {b"inner", b"outer"}
    assert cpu[b"inner"] >= 1000
    total = got[b"all-commands-all-slots-us"]
    assert total - 2 <= sum(cpu.values()) <= total
    # Were the commands' time in the script's as well, there would be more than has passed.
    assert total <= (got[b"collection-duration-ms"] + 1) * 1000


def test_time_of_a_script_itself(raw, control):
    start(control)
    raw.cmd("EVAL", "local n = 0 for i = 1, 1e7 do n = n + i end redis.call('get', 'inner') "
            "return 1", 1, "outer")
    cpu = by_cpu(control)
    assert set(cpu) == {b"outer", b"inner"}
    assert cpu[b"outer"] > 5000


def test_scripts_in_transactions(raw, control):
    start(control)
    raw.cmd("MULTI")
    raw.cmd("EVAL", "return redis.call('set', KEYS[1], 'x')", 1, "k")
    raw.cmd("SET", "other", 1)
    assert raw.cmd("EXEC") == [b"OK", b"OK"]
    got = report(control)
    assert set(got[b"by-cpu-time-us"][::2]) == set(got[b"by-net-bytes"][::2]) == {b"k", b"other"}
    assert sum(got[b"by-cpu-time-us"][1::2]) <= got[b"all-commands-all-slots-us"]


def test_muted_replies(raw, control):
    value = "x" * 1000
    raw.cmd("SET", "a", value)
    start(control, "METRICS", 1, "NET")
    raw.send_cmd("CLIENT", "REPLY", "SKIP")
    raw.send_cmd("GET", "a")
    assert raw.cmd("GET", "nosuch") is None
    asked = len(encode("GET", "a"))
    assert by_net(control)[b"a"] == asked
    raw.send_cmd("CLIENT", "REPLY", "OFF")
    raw.send_cmd("GET", "a")
    raw.send_cmd("MULTI")
    raw.send_cmd("GET", "a")
    raw.send_cmd("EXEC")
    raw.send_cmd("CLIENT", "REPLY", "ON")
    assert raw.read() == b"OK"
    assert by_net(control)[b"a"] == 3 * asked
    assert raw.cmd("GET", "a") == value.encode()
    assert by_net(control)[b"a"] == 4 * asked + 1000 + len(b"$1000\r\n\r\n")


def test_blocking_commands(raw, connect, control):
    waiting = connect()
    start(control)
    waiting.send_cmd("BLPOP", "q", 0)
    wait_until(lambda: b"q" in by_net(control))
    assert by_net(control) == {b"q": len(encode("BLPOP", "q", 0))}
    raw.cmd("RPUSH", "q", "x")
    assert waiting.read() == [b"q", b"x"]
    assert by_net(control)[b"q"] == len(encode("BLPOP", "q", 0)) + cost(b":1\r\n", "RPUSH", "q", "x")


def test_slow_key_leads(raw, control):
    raw.cmd("SADD", "slow", *range(5000))
    for attempt in range(5):  # a thread may lose its core within a fast command
        start(control)
        for i in range(50):
            raw.cmd("SMEMBERS", "slow")
            raw.cmd("SET", "fast%d" % i, "v")
        got = report(control)
        assert got[b"by-net-bytes"][0] == b"slow"
        assert len(got[b"by-cpu-time-us"]) == len(got[b"by-net-bytes"]) == 20
        assert control.cmd("HOTKEYS", "STOP") == b"OK"
        if got[b"by-cpu-time-us"][0] == b"slow" and \
                got[b"by-cpu-time-us"][1] > 0.5 * got[b"all-commands-all-slots-us"]:
            return
    assert False, got


def test_processor_time(raw, control):
    start(control, "METRICS", 1, "CPU")
    raw.cmd("EVAL", "for i = 1, 3e6 do end", 0)
    assert control.cmd("HOTKEYS", "STOP") == b"OK"
    got = report(control)
    used = got[b"total-cpu-time-user-ms"] + got[b"total-cpu-time-sys-ms"]
    assert used > 0
    raw.cmd("EVAL", "for i = 1, 3e6 do end", 0)
    assert report(control) == got


def test_logs_keep_their_limits(raw, control):
    """Every command is looked at, but what is logged is not more than before."""
    for log in ("slow", "large-request", "large-reply"):
        control.cmd("COMMANDLOG", "RESET", log)
    control.cmd("CONFIG", "SET", "slowlog-log-slower-than", 10000000)
    start(control)
    for i in range(100):
        raw.cmd("SET", "k%d" % i, "v")
    assert [control.cmd("COMMANDLOG", "LEN", log)
            for log in ("slow", "large-request", "large-reply")] == [0, 0, 0]
    control.cmd("CONFIG", "SET", "slowlog-log-slower-than", 10000)


def test_a_monitor_beside(raw, connect, control):
    """Both make all commands remarkable; the end of one leaves the other."""
    monitor = connect()
    assert monitor.cmd("MONITOR") == b"OK"
    start(control, "METRICS", 1, "NET")
    raw.cmd("SET", "k", 1)
    assert b'"SET" "k" "1"' in monitor.read()
    assert control.cmd("HOTKEYS", "STOP") == b"OK"
    raw.cmd("SET", "k", 2)
    assert b'"SET" "k" "2"' in monitor.read()
    start(control, "METRICS", 1, "NET")
    monitor.close()
    wait_until(lambda: b"cmd=monitor" not in control.cmd("CLIENT", "LIST"))
    time.sleep(0.2)  # workers take their limits anew
    raw.cmd("SET", "k", 3)
    assert by_net(control) == {b"k": cost(b"+OK\r\n", "SET", "k", 3)}


# --- sampling, duration ---

def test_sample(raw, control):
    start(control, "METRICS", 2, "CPU", "NET", "SAMPLE", 10)
    size = cost(b"$-1\r\n", "GET", "k")
    for _ in range(100):
        raw.send(encode("GET", "k") * 50)
        assert [raw.read() for _ in range(50)] == [None] * 50
    assert control.cmd("HOTKEYS", "STOP") == b"OK"
    got = report(control)
    assert got[b"sample-ratio"] == 10
    assert got[b"total-net-bytes"] == 5000 * size
    sampled = got[b"by-net-bytes"][1]
    assert sampled % size == 0
    assert 350 <= sampled // size <= 650  # 500, and seven deviations
    assert got[b"by-cpu-time-us"][1] <= got[b"all-commands-all-slots-us"]


def test_duration(raw, control):
    seconds = 1 if TIME_SCALE == 1 else 3
    start(control, "METRICS", 2, "CPU", "NET", "DURATION", seconds)
    raw.cmd("SET", "k", "v")
    assert report(control)[b"tracking-active"] == 1
    assert control.cmd("HOTKEYS", "RESET") == STOP_FIRST
    time.sleep(seconds + 0.05)
    raw.cmd("SET", "late", "v")
    assert control.cmd("HOTKEYS", "STOP") == NOT_TRACKED
    got = report(control)
    assert got[b"tracking-active"] == 0
    assert 1000 * seconds - 1 <= got[b"collection-duration-ms"] <= 1000 * seconds
    assert got[b"by-net-bytes"][::2] == got[b"by-cpu-time-us"][::2] == [b"k"]
    time.sleep(0.01)
    assert report(control) == got
    start(control)
    assert report(control)[b"by-net-bytes"] == []
    assert control.cmd("HOTKEYS", "STOP") == b"OK"


def test_duration_under_load(control, connect):
    """Workers that are busy when the end comes."""
    with Load(connect, 3) as load:
        start(control, "METRICS", 1, "NET", "DURATION", 1, "COUNT", 64)
        time.sleep(1.2)
        got = report(control)
        assert got[b"tracking-active"] == 0
        ran = load.count()
        wait_until(lambda: load.count() > ran + 100)
        assert report(control) == got
        assert got[b"total-net-bytes"] > 0


# --- load ---

class Load:
    """Connections that send pipelines: a tenth of all commands is for the key `hot`."""

    def __init__(self, connect, connections, keys=5000):
        self.connections = [connect(timeout=60) for _ in range(connections)]
        self.counts = [0] * connections
        self.hot = [0] * connections
        self.keys = keys
        self.problems = []
        self.over = threading.Event()
        self.threads = [threading.Thread(target=self.run, args=(i,)) for i in range(connections)]

    def run(self, number):
        conn, draw = self.connections[number], random.Random(number)
        try:
            while not self.over.is_set():
                keys = ["hot" if draw.random() < 0.1 else "k%d" % draw.randrange(self.keys)
                        for _ in range(50)]
                conn.send(b"".join(encode("SET", key, "v") if draw.random() < 0.5
                                   else encode("MGET", key) for key in keys))
                for _ in keys:
                    assert not isinstance(conn.read(), Error)
                self.counts[number] += len(keys)
                self.hot[number] += keys.count("hot")
        except Exception as problem:  # told by the main thread
            self.problems.append(problem)

    def count(self):
        assert not self.problems, self.problems
        return sum(self.counts)

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_exc):
        self.over.set()
        for thread in self.threads:
            thread.join()
        assert not self.problems, self.problems


@pytest.mark.parametrize("threads", [1, 4])
def test_a_hot_key_among_thousands(start_server, threads):
    server = start_server(threads=threads)
    with server.raw() as control:
        start(control, "METRICS", 2, "CPU", "NET", "COUNT", 64)
        with Load(server.raw, 4) as load:
            wait_until(lambda: load.count() > 20000, 40)
        assert control.cmd("HOTKEYS", "STOP") == b"OK"
        got = report(control)
        net = pairs(got[b"by-net-bytes"])
        total = got[b"total-net-bytes"]
        assert got[b"by-net-bytes"][0] == b"hot"
        assert b"hot" in got[b"by-cpu-time-us"][::2]
        # Of request and reply; 32 where it is not there yet.
        least, most = sum(load.hot) * 32, sum(load.hot) * 34
        assert least - total // 512 <= net[b"hot"] <= most + total // 512
        assert sum(net.values()) <= total
        assert sum(got[b"by-cpu-time-us"][1::2]) <= got[b"all-commands-all-slots-us"]


def test_sessions_beside_load(control, connect):
    with Load(connect, 3, keys=300) as load:
        for round_number in range(20):
            start(control, "METRICS", 2, "CPU", "NET", "COUNT", 1 + round_number * 2)
            ran = load.count()
            wait_until(lambda: load.count() > ran + 1500)
            got = report(control)
            assert b"hot" in got[b"by-net-bytes"][::2]
            assert len(got[b"by-net-bytes"]) <= 2 + 4 * round_number
            assert control.cmd("HOTKEYS", "STOP") == b"OK"
            if round_number % 3:
                assert control.cmd("HOTKEYS", "RESET") == b"OK"


# --- memory ---

def test_memory_comes_back_to_the_byte(start_server):
    server = start_server("--slowlog-log-slower-than", "-1")
    with server.raw() as control, server.raw() as conn:
        def used():
            return pairs(control.cmd("MEMORY", "STATS"))[b"owner.slowlog"]

        before = used()
        for words in (("METRICS", 1, "CPU"), ("METRICS", 2, "CPU", "NET", "COUNT", 64)):
            start(control, *words)
            begun = used()
            assert begun > before
            for i in range(3000):
                conn.send_cmd("GET", b"%d" % i * (1 + i % 400))
            for i in range(3000):
                assert conn.read() is None
            assert used() > begun + 1000
            assert control.cmd("HOTKEYS", "STOP") == b"OK"
        assert control.cmd("HOTKEYS", "RESET") == b"OK"
        assert used() == before


def test_the_server_ends_while_it_counts(start_server):
    server = start_server()
    with server.raw() as conn:
        start(conn)
        conn.cmd("SET", "k", "v")
    server.stop()
