#!/usr/bin/python3
"""EXPIRE and its kin, TTL and its kin, PERSIST; when keys go."""
import time

import pytest

from process import TIME_SCALE
from raw import Error

INVALID = "ERR invalid expire time in '%s' command"
NX_ERROR = Error(b"ERR NX and XX, GT or LT options at the same time are not compatible")
GT_LT_ERROR = Error(b"ERR GT and LT options at the same time are not compatible")


def server_ms(conn):
    seconds, micros = conn.cmd("TIME")
    return int(seconds) * 1000 + int(micros) // 1000


@pytest.fixture
def passive(raw):
    """A connection to the server with background expiry switched off."""
    assert raw.cmd("DEBUG", "SET-ACTIVE-EXPIRE", "0") == b"OK"
    yield raw
    raw.cmd("DEBUG", "SET-ACTIVE-EXPIRE", "1")


# --- setting and reading ---


def test_expire_and_the_four_readings(raw):
    raw.cmd("SET", "a", "1")
    now = server_ms(raw)
    assert raw.cmd("EXPIRE", "a", 100) == 1
    assert raw.cmd("TTL", "a") == 100
    assert 99000 < raw.cmd("PTTL", "a") <= 100000
    at = raw.cmd("PEXPIRETIME", "a")
    assert now + 100000 <= at <= server_ms(raw) + 100000
    assert abs(raw.cmd("EXPIRETIME", "a") - at / 1000) <= 0.5


def test_absolute_forms(raw):
    raw.cmd("SET", "a", "1")
    at = server_ms(raw) // 1000 + 500
    assert raw.cmd("EXPIREAT", "a", at) == 1
    assert raw.cmd("EXPIRETIME", "a") == at
    assert raw.cmd("PEXPIREAT", "a", at * 1000 + 7) == 1
    assert raw.cmd("PEXPIRETIME", "a") == at * 1000 + 7
    assert raw.cmd("PEXPIRE", "a", 5000) == 1
    assert 4000 < raw.cmd("PTTL", "a") <= 5000


def test_ttl_rounds_to_the_nearest_second(raw):
    raw.cmd("SET", "a", "1")
    raw.cmd("PEXPIRE", "a", 10900)
    assert raw.cmd("TTL", "a") == 11
    raw.cmd("PEXPIREAT", "a", 4102444800499)
    assert raw.cmd("EXPIRETIME", "a") == 4102444800
    raw.cmd("PEXPIREAT", "a", 4102444800500)
    assert raw.cmd("EXPIRETIME", "a") == 4102444801


@pytest.mark.parametrize("command", ["TTL", "PTTL", "EXPIRETIME", "PEXPIRETIME"])
def test_readings_without_expiry_or_key(raw, command):
    assert raw.cmd(command, "a") == -2
    raw.cmd("SET", "a", "1")
    assert raw.cmd(command, "a") == -1


@pytest.mark.parametrize("command", ["EXPIRE", "PEXPIRE", "EXPIREAT", "PEXPIREAT"])
def test_no_key(raw, command):
    assert raw.cmd(command, "none", "100") == 0
    assert raw.cmd("EXISTS", "none") == 0


def test_persist(raw):
    assert raw.cmd("PERSIST", "a") == 0
    raw.cmd("SET", "a", "1")
    assert raw.cmd("PERSIST", "a") == 0
    raw.cmd("EXPIRE", "a", 100)
    assert raw.cmd("PERSIST", "a") == 1
    assert raw.cmd("TTL", "a") == -1
    assert raw.cmd("GET", "a") == b"1"


@pytest.mark.parametrize("size", [0, 3, 44, 200, 1100, 50000])
def test_values_of_every_size_keep_through_expire_and_persist(raw, size):
    value = b"v" * size
    raw.cmd("SET", "a", value)
    for _ in range(3):
        assert raw.cmd("EXPIRE", "a", 100) == 1
        assert raw.cmd("GET", "a") == value
        assert raw.cmd("PERSIST", "a") == 1
        assert raw.cmd("GET", "a") == value


# --- conditions ---


@pytest.mark.parametrize("before,options,seconds,changed", [
    (None, ["NX"], 100, 1), (200, ["NX"], 100, 0),
    (None, ["XX"], 100, 0), (200, ["XX"], 100, 1),
    (None, ["GT"], 100, 0), (200, ["GT"], 100, 0), (200, ["GT"], 300, 1),
    (None, ["LT"], 100, 1), (200, ["LT"], 100, 1), (200, ["LT"], 300, 0),
    (None, ["XX", "LT"], 100, 0), (200, ["xx", "lt"], 100, 1), (200, ["XX", "GT"], 300, 1),
    (None, ["XX", "GT"], 300, 0), (200, ["XX", "XX"], 100, 1), (200, ["GT", "GT"], 300, 1),
])
def test_conditions(raw, before, options, seconds, changed):
    raw.cmd("SET", "a", "1")
    if before:
        raw.cmd("EXPIRE", "a", before)
    assert raw.cmd("EXPIRE", "a", seconds, *options) == changed
    ttl = raw.cmd("TTL", "a")
    assert ttl == (seconds if changed else before if before else -1)


def test_gt_and_lt_want_a_difference(raw):
    raw.cmd("SET", "a", "1")
    raw.cmd("PEXPIREAT", "a", 4102444800000)
    assert raw.cmd("PEXPIREAT", "a", 4102444800000, "GT") == 0
    assert raw.cmd("PEXPIREAT", "a", 4102444800000, "LT") == 0
    assert raw.cmd("PEXPIREAT", "a", 4102444800001, "GT") == 1
    assert raw.cmd("PEXPIREAT", "a", 4102444800000, "LT") == 1


@pytest.mark.parametrize("options,error", [
    (["NX", "XX"], NX_ERROR),
    (["NX", "GT"], NX_ERROR),
    (["LT", "NX"], NX_ERROR),
    (["GT", "LT"], GT_LT_ERROR),
    (["XX", "GT", "LT"], GT_LT_ERROR),
    (["FOO"], Error(b"ERR Unsupported option FOO")),
    (["NX", "foo"], Error(b"ERR Unsupported option foo")),
    (["NX", "XX", "foo"], Error(b"ERR Unsupported option foo")),
])
@pytest.mark.parametrize("key", ["a", "none"])
def test_option_errors(raw, key, options, error):
    raw.cmd("SET", "a", "1")
    assert raw.cmd("EXPIRE", key, 100, *options) == error
    assert raw.cmd("EXPIRE", key, "x", *options) == error
    assert raw.cmd("TTL", "a") == -1


# --- numbers ---


@pytest.mark.parametrize("key", ["a", "none"])
@pytest.mark.parametrize("number", ["x", "", "1.5", " 1", "9223372036854775808"])
def test_no_number(raw, key, number):
    raw.cmd("SET", "a", "1")
    assert raw.cmd("EXPIRE", key, number) == Error(
        b"ERR value is not an integer or out of range")


@pytest.mark.parametrize("key", ["a", "none"])
@pytest.mark.parametrize("command,number", [
    ("expire", 9223372036854775807), ("expire", 9223372036854776), ("expire", 9223372036854775),
    ("expire", -9223372036854775808), ("expireat", 9223372036854776),
    ("pexpire", 9223372036854775807),
])
def test_time_out_of_range(raw, key, command, number):
    raw.cmd("SET", "a", "1")
    assert raw.cmd(command, key, number) == Error((INVALID % command).encode())
    assert raw.cmd("TTL", "a") == -1


@pytest.mark.kvik_only  # the reference takes times up to 2^63 ms
def test_latest_time(raw):
    raw.cmd("SET", "a", "1")
    assert raw.cmd("PEXPIREAT", "a", 1 << 47) == 1
    assert raw.cmd("PEXPIRETIME", "a") == 1 << 47
    assert raw.cmd("PEXPIREAT", "a", (1 << 47) + 1) == Error((INVALID % "pexpireat").encode())
    assert raw.cmd("PEXPIRETIME", "a") == 1 << 47


# --- the past ---


@pytest.mark.parametrize("line", [
    ["EXPIRE", "a", 0], ["EXPIRE", "a", -1], ["PEXPIRE", "a", -100], ["EXPIREAT", "a", 1],
    ["PEXPIREAT", "a", 0], ["PEXPIREAT", "a", -9223372036854775808],
    ["EXPIRE", "a", -99999999999999], ["EXPIRE", "a", -1, "LT"],
])
def test_time_in_the_past_deletes(raw, line):
    raw.cmd("SET", "a", "1")
    assert raw.cmd(*line) == 1
    assert raw.cmd("EXISTS", "a") == 0
    assert raw.cmd("DBSIZE") == 0


def test_condition_protects_from_the_past(raw):
    raw.cmd("SET", "a", "1")
    assert raw.cmd("EXPIRE", "a", -1, "GT") == 0
    assert raw.cmd("EXPIRE", "a", -1, "XX") == 0
    assert raw.cmd("EXISTS", "a") == 1


# --- when keys go ---


def test_never_visible_once_due(passive):
    passive.cmd("SET", "a", "1")
    at = server_ms(passive) + 30
    passive.cmd("PEXPIREAT", "a", at)
    deadline = time.monotonic() + 10 * TIME_SCALE
    while True:
        before = server_ms(passive)
        found = passive.cmd("GET", "a")
        after = server_ms(passive)
        if found is None:
            assert after >= at
            break
        assert before <= at
        assert time.monotonic() < deadline
    assert passive.cmd("EXISTS", "a") == 0
    assert passive.cmd("TTL", "a") == -2
    assert passive.cmd("TYPE", "a") == b"none"


@pytest.mark.parametrize("line,reply", [
    (["DEL", "a"], 0), (["EXISTS", "a"], 0), (["TOUCH", "a"], 0), (["TTL", "a"], -2),
    (["PERSIST", "a"], 0), (["EXPIRE", "a", "100"], 0), (["MOVE", "a", "1"], 0),
    (["COPY", "a", "b"], 0), (["OBJECT", "ENCODING", "a"], None), (["KEYS", "*"], []),
    (["RANDOMKEY"], None), (["SCAN", "0", "COUNT", "1000"], [b"0", []]), (["GET", "a"], None),
    (["RENAME", "a", "b"], Error(b"ERR no such key")),
    (["APPEND", "a", "x"], 1), (["STRLEN", "a"], 0),
])
def test_due_key_is_absent_for_every_command(passive, line, reply):
    passive.cmd("SET", "a", "old", "PX", 1)
    time.sleep(0.005)
    assert passive.cmd(*line) == reply


def test_due_keys_are_removed_in_the_background(raw):
    for start in range(0, 1000, 100):
        raw.cmd("MULTI")
        for i in range(start, start + 100):
            raw.cmd("SET", "k%d" % i, "v", "PX", 50)
        raw.cmd("EXEC")
    deadline = time.monotonic() + 5 * TIME_SCALE
    while raw.cmd("DBSIZE") and time.monotonic() < deadline:
        time.sleep(0.01)
    assert raw.cmd("DBSIZE") == 0


@pytest.mark.kvik_only  # the reference leaves a part of due keys behind for longer
def test_due_keys_are_removed_at_once(raw):
    raw.cmd("MULTI")
    for i in range(2000):
        raw.cmd("SET", "k%d" % i, "v", "PX", 300)
    raw.cmd("EXEC")
    time.sleep(0.3 + 0.2 * TIME_SCALE)
    assert raw.cmd("DBSIZE") == 0


def test_expiry_of_another_database(raw):
    raw.cmd("SELECT", "5")
    raw.cmd("SET", "a", "1", "PX", 20)
    raw.cmd("SELECT", "0")
    raw.cmd("SET", "a", "1")
    time.sleep(0.05)
    assert raw.cmd("GET", "a") == b"1"
    raw.cmd("SELECT", "5")
    assert raw.cmd("GET", "a") is None


def test_refreshed_ttl_holds(raw):
    raw.cmd("SET", "a", "1", "PX", 30)
    for _ in range(200):
        raw.cmd("PEXPIRE", "a", 100000)
    time.sleep(0.06)
    assert raw.cmd("GET", "a") == b"1"


# --- the change stream ---


@pytest.fixture
def stream(raw, connect):
    """A function that gives the commands written to the change stream since its last call."""
    from raw import parse_all
    reader = connect()
    assert reader.cmd("DEBUG", "CHANGE-STREAM", "START") == b"OK"

    def read():
        data = b""
        while True:
            part = reader.cmd("DEBUG", "CHANGE-STREAM", "READ")
            if not part:
                return [line for line in parse_all(data) if line[0].upper() != b"SELECT"]
            data += part

    yield read
    assert reader.cmd("DEBUG", "CHANGE-STREAM", "STOP") == b"OK"


@pytest.mark.kvik_only
@pytest.mark.parametrize("line", [["EXPIRE", "a", 100], ["PEXPIRE", "a", 100000],
                                  ["EXPIREAT", "a", 4102444800], ["PEXPIREAT", "a", 4102444800000]])
def test_stream_carries_the_moment(raw, stream, line):
    raw.cmd("SET", "a", "1")
    stream()
    raw.cmd(*line)
    at = raw.cmd("PEXPIRETIME", "a")
    assert stream() == [[b"PEXPIREAT", b"a", b"%d" % at]]


@pytest.mark.kvik_only
def test_stream_of_deletion_and_of_nothing(raw, stream):
    raw.cmd("SET", "a", "1")
    stream()
    raw.cmd("EXPIRE", "a", 100, "XX")
    raw.cmd("EXPIRE", "none", 100)
    raw.cmd("PERSIST", "a")
    assert stream() == []
    raw.cmd("EXPIRE", "a", -5)
    assert stream() == [[b"DEL", b"a"]]


@pytest.mark.kvik_only
def test_stream_of_expiry(passive, stream):
    passive.cmd("SET", "a", "1", "PX", 1)
    time.sleep(0.01)
    stream()
    passive.cmd("GET", "a")
    lines = stream()
    assert len(lines) == 1
    assert lines[0][0].upper() in (b"DEL", b"UNLINK") and lines[0][1] == b"a"
