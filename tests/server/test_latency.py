"""LATENCY, INFO latencystats, and the logs of remarkable commands."""
import re
import time

import pytest

from raw import Error

HELD = 0.03  # seconds that DEBUG SLEEP holds its worker


@pytest.fixture
def watched(start_server):
    server = start_server()
    control = server.raw(timeout=30)
    assert control.cmd("CONFIG", "SET", "latency-monitor-threshold", "10") == b"OK"
    yield server, control
    control.close()


def pairs(flat):
    return dict(zip(flat[::2], flat[1::2]))


def sleep(control, seconds=HELD):
    assert control.cmd("DEBUG", "SLEEP", "%.3f" % seconds) == b"OK"


def test_nothing_is_kept_when_it_is_off(raw):
    assert raw.cmd("CONFIG", "GET", "latency-monitor-threshold") == [b"latency-monitor-threshold",
                                                                    b"0"]
    sleep(raw)
    assert raw.cmd("LATENCY", "LATEST") == []
    assert raw.cmd("LATENCY", "RESET") == 0
    assert raw.cmd("LATENCY", "HISTORY", "command") == []


def test_a_slow_command_is_a_sample(watched):
    _server, control = watched
    before = int(time.time()) - 1
    sleep(control)
    [(name, when, last, most)] = control.cmd("LATENCY", "LATEST")
    assert name == b"command"
    assert before <= when <= int(time.time()) + 1
    assert 30 <= last <= most
    assert control.cmd("LATENCY", "HISTORY", "command") == [[when, last]]
    assert control.cmd("LATENCY", "HISTORY", "COMMAND") == [[when, last]]
    assert control.cmd("LATENCY", "HISTORY", "nosuch") == []


def test_one_sample_a_second_is_the_longest(watched):
    _server, control = watched
    for seconds in (0.02, 0.1, 0.02):
        sleep(control, seconds)
    history = control.cmd("LATENCY", "HISTORY", "command")
    times = [when for when, _ms in history]
    assert times == sorted(set(times))
    # Whole milliseconds by another clock than the one that ends the sleep.
    assert max(ms for _when, ms in history) >= 99
    assert control.cmd("LATENCY", "LATEST")[0][3] == max(ms for _when, ms in history)


def test_reset(watched):
    _server, control = watched
    sleep(control)
    assert control.cmd("LATENCY", "RESET", "nosuch") == 0
    assert len(control.cmd("LATENCY", "LATEST")) == 1
    assert control.cmd("LATENCY", "RESET", "nosuch", "command") == 1
    assert control.cmd("LATENCY", "LATEST") == []
    sleep(control)
    assert control.cmd("LATENCY", "RESET") == 1


def test_graph(watched):
    _server, control = watched
    reply = control.cmd("LATENCY", "GRAPH", "command")
    assert reply == Error(b"ERR No samples available for event 'command'")
    sleep(control)
    lines = control.cmd("LATENCY", "GRAPH", "command").decode().splitlines()
    assert re.fullmatch(r"command - high \d+ ms, low \d+ ms \(all time high \d+ ms\)", lines[0])
    assert lines[1] == "-" * 80
    assert any(set(line) & set("_o#|") for line in lines[2:6])
    assert "s" in lines[-1]


def test_doctor(watched):
    _server, control = watched
    assert b"Nothing took 10 ms" in control.cmd("LATENCY", "DOCTOR")
    sleep(control)
    report = control.cmd("LATENCY", "DOCTOR")
    assert b"1. command: 1 latency spikes" in report
    assert control.cmd("CONFIG", "SET", "latency-monitor-threshold", "0") == b"OK"
    assert control.cmd("LATENCY", "RESET") == 1
    assert b"off" in control.cmd("LATENCY", "DOCTOR")


def test_histogram_counts_calls(raw):
    assert raw.cmd("CONFIG", "RESETSTAT") == b"OK"
    for _ in range(20):
        raw.cmd("SET", "k", "v")
    sleep(raw)
    reply = pairs(raw.cmd("LATENCY", "HISTOGRAM", "set", "DEBUG", "get", "nosuch"))
    assert set(reply) == {b"set", b"debug"}
    of_set, of_debug = pairs(reply[b"set"]), pairs(reply[b"debug"])
    assert of_set[b"calls"] == 20
    bounds = of_set[b"histogram_usec"][::2]
    counts = of_set[b"histogram_usec"][1::2]
    assert bounds == sorted(set(bounds)) and counts == sorted(set(counts))
    assert counts[-1] == 20
    assert of_debug[b"calls"] == 1
    assert of_debug[b"histogram_usec"][0] >= 30000


def test_histogram_of_subcommands(raw):
    raw.cmd("CONFIG", "RESETSTAT")
    raw.cmd("CONFIG", "GET", "port")
    raw.cmd("CLIENT", "ID")
    assert b"config|get" in raw.cmd("LATENCY", "HISTOGRAM", "config")
    assert raw.cmd("LATENCY", "HISTOGRAM", "client|id")[0] == b"client|id"
    assert raw.cmd("LATENCY", "HISTOGRAM", "client|nosuch") == []
    names = raw.cmd("LATENCY", "HISTOGRAM")[::2]
    assert b"config|get" in names and b"client|id" in names


def test_histogram_as_map(raw):
    raw.cmd("HELLO", "3")
    raw.cmd("CONFIG", "RESETSTAT")
    raw.cmd("GET", "k")
    reply = raw.cmd("LATENCY", "HISTOGRAM", "get")
    assert reply[b"get"][b"calls"] == 1
    assert sum(reply[b"get"][b"histogram_usec"].values()) == 1


def test_tracking_can_be_off(raw):
    assert raw.cmd("CONFIG", "SET", "latency-tracking", "no") == b"OK"
    raw.cmd("PING")  # the round that ran CONFIG still counted
    raw.cmd("CONFIG", "RESETSTAT")
    raw.cmd("GET", "k")
    assert raw.cmd("LATENCY", "HISTOGRAM", "get") == []
    assert b"usec" not in raw.cmd("INFO", "latencystats")
    assert raw.cmd("CONFIG", "SET", "latency-tracking", "yes") == b"OK"


def test_percentiles_in_info(raw):
    raw.cmd("CONFIG", "SET", "latency-tracking-info-percentiles", "0 50 99.5 100")
    raw.cmd("CONFIG", "RESETSTAT")
    for _ in range(10):
        raw.cmd("GET", "k")
    raw.cmd("SET", "k")  # wrong arity: never ran
    text = raw.cmd("INFO", "latencystats").decode()
    match = re.search(r"latency_percentiles_usec_get:p0=(.*),p50=(.*),p99.5=(.*),p100=(.*)\r\n", text)
    values = [float(v) for v in match.groups()]
    assert values == sorted(values) and values[0] > 0
    assert "usec_set:" not in text


@pytest.mark.parametrize("words, text", [
    (("HISTORY",), b"ERR wrong number of arguments for 'latency|history' command"),
    (("LATEST", "x"), b"ERR wrong number of arguments for 'latency|latest' command"),
    (("GRAPH",), b"ERR wrong number of arguments for 'latency|graph' command"),
    (("NOSUCH",), b"ERR unknown subcommand 'NOSUCH'. Try LATENCY HELP."),
])
def test_latency_errors(raw, words, text):
    assert raw.cmd("LATENCY", *words) == Error(text)


# --- logs ---


def log(conn, kind):
    return conn.cmd("COMMANDLOG", "GET", "-1", kind)


@pytest.mark.kvik_only
def test_slow_log_has_two_names(raw):
    raw.cmd("SLOWLOG", "RESET")
    raw.cmd("CONFIG", "SET", "commandlog-execution-slower-than", "20000")
    assert raw.cmd("CONFIG", "GET", "slowlog-log-slower-than")[1] == b"20000"
    sleep(raw)
    assert raw.cmd("SLOWLOG", "LEN") == raw.cmd("COMMANDLOG", "LEN", "slow") == 1
    assert log(raw, "SLOW") == raw.cmd("SLOWLOG", "GET")
    assert raw.cmd("COMMANDLOG", "RESET", "slow") == b"OK"
    assert raw.cmd("SLOWLOG", "LEN") == 0


@pytest.mark.kvik_only
@pytest.mark.parametrize("size", [100, 5000, 20000, 300000])
def test_large_requests(raw, size):
    """Small ones, those in the read buffer and those that come in parts."""
    raw.cmd("CONFIG", "SET", "commandlog-request-larger-than", str(size))
    raw.cmd("PING")
    raw.cmd("COMMANDLOG", "RESET", "large-request")
    assert raw.cmd("SET", "k", b"x" * (size - 5)) == b"OK"  # 1 less, with SET and k
    assert log(raw, "large-request") == []
    assert raw.cmd("SET", "k", b"x" * (size - 4)) == b"OK"
    [entry] = log(raw, "large-request")
    assert entry[2] == size and entry[3][:2] == [b"SET", b"k"]
    assert raw.cmd("MSET", "a", b"x" * size, "b", b"y" * size, "c", "z") == b"OK"
    assert log(raw, "large-request")[0][2] == 4 + 2 * size + 4
    assert raw.cmd("CONFIG", "SET", "commandlog-request-larger-than", "1048576") == b"OK"


@pytest.mark.kvik_only
@pytest.mark.parametrize("size", [100, 5000, 20000, 300000])
def test_large_replies(raw, size):
    raw.cmd("CONFIG", "SET", "commandlog-reply-larger-than", str(size))
    raw.cmd("SET", "k", b"x" * (size - 30))
    raw.cmd("SET", "l", b"x" * size)
    raw.cmd("COMMANDLOG", "RESET", "large-reply")
    raw.cmd("GET", "k")
    assert log(raw, "large-reply") == []
    raw.cmd("GET", "l")
    [entry] = log(raw, "large-reply")
    assert entry[2] == len(b"$%d\r\n" % size) + size + 2
    assert entry[3] == [b"GET", b"l"]
    assert raw.cmd("CONFIG", "SET", "commandlog-reply-larger-than", "1048576") == b"OK"


@pytest.mark.kvik_only
def test_logs_are_bounded_and_can_be_off(raw):
    raw.cmd("CONFIG", "SET", "commandlog-request-larger-than", "0",
            "commandlog-large-request-max-len", "3")
    for i in range(10):
        raw.cmd("SET", "k", str(i))
    assert raw.cmd("COMMANDLOG", "LEN", "large-request") == 3
    raw.cmd("CONFIG", "SET", "commandlog-large-request-max-len", "1")
    assert raw.cmd("COMMANDLOG", "LEN", "large-request") == 1
    raw.cmd("CONFIG", "SET", "commandlog-request-larger-than", "-1",
            "commandlog-large-request-max-len", "128")
    raw.cmd("COMMANDLOG", "RESET", "large-request")
    raw.cmd("PING")
    raw.cmd("SET", "k", b"x" * 3000000)
    assert raw.cmd("COMMANDLOG", "LEN", "large-request") == 0
    raw.cmd("CONFIG", "SET", "commandlog-request-larger-than", "1048576")


@pytest.mark.kvik_only
@pytest.mark.parametrize("words, text", [
    (("GET", "x", "slow"), b"ERR count should be greater than or equal to -1"),
    (("GET", "-2", "slow"), b"ERR count should be greater than or equal to -1"),
    (("LEN", "fast"), b"ERR type should be one of the following: slow, large-request, large-reply"),
    (("GET", "1"), b"ERR wrong number of arguments for 'commandlog|get' command"),
])
def test_commandlog_errors(raw, words, text):
    assert raw.cmd("COMMANDLOG", *words) == Error(text)
