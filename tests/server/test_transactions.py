#!/usr/bin/python3
"""MULTI, EXEC, DISCARD, WATCH, UNWATCH and RESET."""
import re
import time

import pytest

from process import TIME_SCALE
from raw import Error, encode

QUEUED = b"QUEUED"
EXECABORT = b"EXECABORT Transaction discarded because of previous errors."


def run(conn, *commands):
    """Runs commands as one transaction; gives the reply of EXEC."""
    assert conn.cmd("MULTI") == b"OK"
    for command in commands:
        assert conn.cmd(*command) == QUEUED
    return conn.cmd("EXEC")


# --- queueing ---


def test_commands_run_together_at_exec(raw, connect):
    other = connect()
    assert raw.cmd("MULTI") == b"OK"
    assert raw.cmd("SET", "a", "1") == QUEUED
    assert raw.cmd("INCR", "a") == QUEUED
    assert raw.cmd("GET", "none") == QUEUED
    assert other.cmd("EXISTS", "a") == 0
    assert raw.cmd("EXEC") == [b"OK", 2, None]
    assert other.cmd("GET", "a") == b"2"


def test_empty_transaction(raw):
    assert run(raw) == []


def test_whole_transaction_in_one_packet(raw):
    raw.send(encode("MULTI") + encode("SET", "a", "1") + encode("INCRBY", "a", 5) +
             encode("MGET", "a", "b") + encode("EXEC") + encode("GET", "a"))
    raw.expect(b"+OK\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n"
               b"*3\r\n+OK\r\n:6\r\n*2\r\n$1\r\n6\r\n$-1\r\n$1\r\n6\r\n")


def test_error_at_run_time_does_not_stop_the_rest(raw):
    reply = run(raw, ["SET", "a", "x"], ["INCR", "a"], ["SET", "b", "2"], ["INCRBY", "b", "y"],
                ["GET", "b"])
    not_integer = Error(b"ERR value is not an integer or out of range")
    assert reply == [b"OK", not_integer, b"OK", not_integer, b"2"]


@pytest.mark.parametrize("wrong", [["FOO", "a"], ["GET"], ["SET", "a"], ["CONFIG", "FOO"]])
def test_wrong_command_aborts_the_transaction(raw, wrong):
    raw.cmd("MULTI")
    assert raw.cmd("SET", "a", "1") == QUEUED
    assert isinstance(raw.cmd(*wrong), Error)
    assert raw.cmd("SET", "b", "1") == QUEUED
    assert raw.cmd("EXEC") == EXECABORT
    assert raw.cmd("EXISTS", "a", "b") == 0
    assert run(raw, ["SET", "a", "1"]) == [b"OK"]


@pytest.mark.parametrize("args, text", [
    (["EXEC"], b"ERR EXEC without MULTI"),
    (["DISCARD"], b"ERR DISCARD without MULTI"),
    (["EXEC", "x"], b"EXECABORT Transaction discarded because of: wrong number of arguments for "
                    b"'exec' command"),
    (["MULTI", "x"], b"ERR wrong number of arguments for 'multi' command"),
    (["WATCH"], b"ERR wrong number of arguments for 'watch' command"),
])
def test_errors_outside(raw, args, text):
    assert raw.cmd(*args) == text


def test_multi_does_not_nest(raw):
    raw.cmd("MULTI")
    raw.cmd("SET", "a", "1")
    assert raw.cmd("MULTI") == b"ERR MULTI calls can not be nested"
    assert isinstance(raw.cmd("EXEC"), (list, Error))


def test_nested_multi_leaves_the_transaction_usable(raw):
    """As the reference does, whichever way: the state after it is a clean one."""
    raw.cmd("MULTI")
    assert raw.cmd("MULTI") == b"ERR MULTI calls can not be nested"
    assert raw.cmd("SET", "a", "1") == QUEUED
    raw.cmd("EXEC")
    assert raw.cmd("EXEC") == b"ERR EXEC without MULTI"


def test_watch_inside_multi_is_refused(raw):
    raw.cmd("MULTI")
    assert raw.cmd("WATCH", "a") == b"ERR WATCH inside MULTI is not allowed"
    assert raw.cmd("SET", "b", "1") == QUEUED
    raw.cmd("EXEC")


def test_what_follows_nested_calls_matches_the_reference(raw, redis_server):
    """MULTI and WATCH inside MULTI: are they fatal for the transaction?"""
    for wrong in (["MULTI"], ["WATCH", "a"], ["EXEC", "extra"], ["MULTI", "extra"],
                  ["DISCARD", "extra"], ["UNWATCH"], ["UNWATCH", "x"], ["RESET", "x"]):
        request = encode("FLUSHALL") + encode("MULTI") + encode("SET", "a", 1) + encode(*wrong) + \
            encode("EXEC") + encode("EXISTS", "a") + encode("EXEC")
        replies = []
        for conn in (raw, redis_server.raw()):
            conn.send(request)
            replies.append([conn.read_bytes() for _ in range(7)])
        assert replies[0] == replies[1], wrong


def test_commands_that_may_not_be_queued(raw, redis_server):
    commands = [["SHUTDOWN", "NOSAVE", "NOW", "x"], ["CLIENT", "REPLY", "OFF"], ["SELECT", "1"],
                ["CLIENT", "ID"], ["DEBUG", "SLEEP", "0"], ["HELLO", "2"],
                ["FLUSHALL"], ["KEYS", "*"], ["CONFIG", "GET", "maxclients"], ["SWAPDB", "0", "1"]]
    for command in commands:
        answers = []
        for conn in (raw, redis_server.raw()):
            conn.cmd("MULTI")
            answers.append(conn.cmd(*command))
            conn.cmd("DISCARD")
        assert answers[0] == answers[1], command


def test_discard_drops_everything(raw):
    raw.cmd("SET", "a", "1")
    raw.cmd("WATCH", "a")
    raw.cmd("MULTI")
    raw.cmd("SET", "a", "2")
    assert raw.cmd("DISCARD") == b"OK"
    assert raw.cmd("GET", "a") == b"1"
    assert raw.cmd("DISCARD") == b"ERR DISCARD without MULTI"
    raw.cmd("SET", "a", "3")  # the watch is gone too
    assert run(raw, ["GET", "a"]) == [b"3"]


def test_selected_database_inside_a_transaction(raw):
    assert run(raw, ["SET", "a", "zero"], ["SELECT", "2"], ["SET", "a", "two"], ["DBSIZE"],
               ["SELECT", "99"], ["GET", "a"]) == \
        [b"OK", b"OK", b"OK", 1, Error(b"ERR DB index is out of range"), b"two"]
    assert raw.cmd("GET", "a") == b"two"  # the selection stays
    raw.cmd("SELECT", "0")
    assert raw.cmd("GET", "a") == b"zero"


def test_every_kind_of_command_inside_a_transaction(raw):
    raw.cmd("MSET", "a", "1", "b", "2")
    reply = run(raw, ["PING"], ["ECHO", "x"], ["DBSIZE"], ["RENAME", "a", "c"], ["KEYS", "c*"],
                ["COPY", "c", "d"], ["MGET", "a", "b", "c", "d"], ["SWAPDB", "0", "1"],
                ["EXISTS", "b"], ["SWAPDB", "0", "1"], ["EXISTS", "b"], ["SCAN", "0", "COUNT", "9999"],
                ["MOVE", "b", "5"], ["FLUSHDB"], ["DBSIZE"], ["RANDOMKEY"], ["SET", "e", "1"],
                ["TYPE", "e"])
    scan = reply.pop(11)
    assert scan[0] == b"0" and sorted(scan[1]) == [b"b", b"c", b"d"]
    assert reply == [b"PONG", b"x", 2, b"OK", [b"c"], 1, [None, b"2", b"1", b"1"], b"OK", 0, b"OK",
                     1, 1, b"OK", 0, None, b"OK", b"string"]
    raw.cmd("SELECT", "5")
    assert raw.cmd("GET", "b") == b"2"


def test_time_stands_still_inside_a_transaction(raw):
    """A key does not expire between two commands of one EXEC."""
    raw.cmd("SET", "a", "1", "PX", "40")
    reply = run(raw, ["GET", "a"], ["DEBUG", "SLEEP", "0.1"], ["GET", "a"])
    assert reply in ([b"1", b"OK", b"1"], [b"1", b"OK", None])
    assert raw.cmd("GET", "a") is None


def test_large_arguments_in_the_queue(raw):
    data = bytes(range(256)) * 1024
    assert run(raw, ["SET", "a", data], ["APPEND", "a", data], ["GET", "a"], ["SET", "a", "x"],
               ["GET", "a"]) == [b"OK", 2 * len(data), data + data, b"OK", b"x"]


def test_long_queue(raw):
    count = 20000
    raw.send(encode("MULTI") + b"".join(encode("INCR", "n") for _ in range(count)))
    raw.expect(b"+OK\r\n" + b"+QUEUED\r\n" * count)
    info = raw.cmd("CLIENT", "INFO")
    assert info == QUEUED
    assert raw.cmd("EXEC")[:count] == list(range(1, count + 1))


def info_field(conn, section, name):
    found = re.search(rb"^%s:(\d+)\r$" % name, conn.cmd("INFO", section), re.MULTILINE)
    return int(found.group(1))


@pytest.mark.kvik_only
def test_queue_memory_is_counted_and_given_back(raw, connect):
    other = connect()
    # Connections of earlier tests must be gone, with what they held.
    deadline = time.monotonic() + 5 * TIME_SCALE
    while info_field(raw, "clients", b"connected_clients") != 2:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    before = info_field(raw, "memory", b"used_memory")
    other.send(encode("MULTI") + b"".join(encode("SET", "k%d" % n, "x" * 1000) for n in range(3000)))
    other.expect(b"+OK\r\n" + b"+QUEUED\r\n" * 3000)
    held = info_field(raw, "memory", b"used_memory") - before
    assert 3_000_000 < held < 12_000_000
    line = [line for line in raw.cmd("CLIENT", "LIST").decode().splitlines() if " multi=3000 " in line]
    assert len(line) == 1
    assert int(re.search(r"multi-mem=(\d+)", line[0]).group(1)) > 3_000_000
    assert other.cmd("DISCARD") == b"OK"
    assert info_field(raw, "memory", b"used_memory") - before < 1_000_000


def test_client_list_shows_the_state(raw, connect):
    other = connect()
    other.cmd("CLIENT", "SETNAME", "tx")

    def field(name):
        for line in raw.cmd("CLIENT", "LIST").decode().splitlines():
            if " name=tx " in line:
                return re.search(r"(?: |^)%s=(\S*)" % name, line).group(1)
        raise AssertionError("no such client")

    assert field("multi") == "-1" and "x" not in field("flags")
    other.cmd("MULTI")
    assert field("multi") == "0" and "x" in field("flags")
    other.cmd("GET", "a")
    other.cmd("GET", "b")
    assert field("multi") == "2"
    other.cmd("EXEC")
    assert field("multi") == "-1"


# --- WATCH ---

CHANGES = {
    "set": [["SET", "k", "new"]],
    "set of the same value": [["SET", "k", "old"]],
    "append": [["APPEND", "k", "x"]],
    "setrange": [["SETRANGE", "k", "1", "x"]],
    "setbit": [["SETBIT", "k", "0", "1"]],
    "delete": [["DEL", "k"]],
    "unlink": [["UNLINK", "k"]],
    "delete and create": [["DEL", "k"], ["SET", "k", "old"]],
    "expire": [["EXPIRE", "k", "100"]],
    "pexpireat": [["PEXPIREAT", "k", "99999999999999"]],
    "expire in the past": [["EXPIRE", "k", "-1"]],
    "getset": [["GETSET", "k", "old"]],
    "getdel": [["GETDEL", "k"]],
    "getex": [["GETEX", "k", "EX", "100"]],
    "rename away": [["RENAME", "k", "other"]],
    "rename over": [["SET", "other", "x"], ["RENAME", "other", "k"]],
    "copy over": [["SET", "other", "x"], ["COPY", "other", "k", "REPLACE"]],
    "move": [["MOVE", "k", "1"]],
    "flushdb": [["FLUSHDB"]],
    "flushall": [["FLUSHALL"]],
    "flushall async": [["FLUSHALL", "ASYNC"]],
    "swapdb": [["SWAPDB", "0", "1"]],
    "swapdb the other way": [["SWAPDB", "1", "0"]],
    "mset": [["MSET", "a", "1", "k", "2"]],
    "transaction": [["MULTI"], ["SET", "k", "x"], ["EXEC"]],
    "there and back": [["SET", "k", "x"], ["SET", "k", "old"]],
    "bitop": [["BITOP", "NOT", "k", "k"]],
    "bitfield": [["BITFIELD", "k", "SET", "u8", "0", "7"]],
}
NO_CHANGES = {
    "get": [["GET", "k"]],
    "set nx": [["SET", "k", "x", "NX"]],
    "setnx": [["SETNX", "k", "x"]],
    "set xx of another": [["SET", "none", "x", "XX"]],
    "persist without ttl": [["PERSIST", "k"]],
    "expire xx without ttl": [["EXPIRE", "k", "100", "XX"]],
    "delete of another": [["SET", "j", "1"], ["DEL", "j"]],
    "flush of another database": [["SELECT", "5"], ["FLUSHDB"]],
    "swapdb of others": [["SWAPDB", "3", "4"]],
    "failing incr": [["INCR", "k"]],
    "msetnx": [["MSETNX", "a", "1", "k", "2"]],
    "rename of another": [["SET", "j", "1"], ["RENAME", "j", "i"]],
    "renamenx onto it": [["SET", "j", "1"], ["RENAMENX", "j", "k"]],
    "copy onto it": [["SET", "j", "1"], ["COPY", "j", "k"]],
    "copy of it": [["COPY", "k", "j"]],
    "same name elsewhere": [["SELECT", "1"], ["SET", "k", "1"]],
    "empty append": [["SETRANGE", "k", "0", ""]],
    "setbit to what it is": [["SETBIT", "k", "1", "1"]],
    "touch": [["TOUCH", "k"]],
    "getex without option": [["GETEX", "k"]],
    "discarded": [["MULTI"], ["SET", "k", "x"], ["DISCARD"]],
}


@pytest.mark.parametrize("change", CHANGES)
def test_watch_sees_the_change(raw, connect, change):
    other = connect()
    raw.cmd("SET", "k", "old")
    assert raw.cmd("WATCH", "k") == b"OK"
    for command in CHANGES[change]:
        assert not isinstance(other.cmd(*command), Error)
    assert run(raw, ["PING"]) is None
    assert run(raw, ["PING"]) == [b"PONG"]  # the watch is over


@pytest.mark.parametrize("change", NO_CHANGES)
def test_watch_does_not_see_what_changes_nothing(raw, connect, change):
    other = connect()
    raw.cmd("SET", "k", "old")
    raw.cmd("WATCH", "k")
    for command in NO_CHANGES[change]:
        other.cmd(*command)
    assert run(raw, ["PING"]) == [b"PONG"]


@pytest.mark.parametrize("commands, dirty", [
    ([["SET", "k", "1"]], True),
    ([["SETRANGE", "k", "0", ""]], False),
    ([["RENAME", "k", "j"]], False),
    ([["DEL", "k"]], False),
    ([["SET", "k", "1"], ["DEL", "k"]], True),
    ([["FLUSHALL"]], False),
    ([["SWAPDB", "0", "1"]], False),
    ([["SELECT", "1"], ["SET", "k", "1"], ["SWAPDB", "0", "1"]], True),
    ([["SET", "j", "1"], ["RENAME", "j", "k"]], True),
    ([["SELECT", "1"], ["SET", "k", "1"], ["MOVE", "k", "0"]], True),
    ([["EXPIRE", "k", "1"]], False),
])
def test_watch_of_a_missing_key(raw, connect, commands, dirty):
    other = connect()
    raw.cmd("WATCH", "k")
    for command in commands:
        other.cmd(*command)
    assert run(raw, ["PING"]) == (None if dirty else [b"PONG"])


def test_own_change_counts(raw):
    raw.cmd("WATCH", "k")
    raw.cmd("SET", "k", "1")
    assert run(raw, ["PING"]) is None


def test_change_before_watch_does_not_count(raw, connect):
    connect().cmd("SET", "k", "1")
    raw.cmd("WATCH", "k")
    assert run(raw, ["GET", "k"]) == [b"1"]


def test_watch_of_several_keys(raw, connect):
    other = connect()
    raw.cmd("WATCH", "a", "b", "a", "c")
    raw.cmd("WATCH", "d", "b")
    other.cmd("SET", "e", "1")
    assert run(raw, ["PING"]) == [b"PONG"]
    raw.cmd("WATCH", "a", "b")
    raw.cmd("WATCH", "c")
    other.cmd("SET", "b", "1")
    assert run(raw, ["PING"]) is None


def test_watch_again_does_not_forget(raw, connect):
    raw.cmd("WATCH", "a")
    connect().cmd("SET", "a", "1")
    raw.cmd("WATCH", "a")
    assert run(raw, ["PING"]) is None


def test_unwatch_forgets(raw, connect):
    raw.cmd("WATCH", "a")
    connect().cmd("SET", "a", "1")
    assert raw.cmd("UNWATCH") == b"OK"
    assert run(raw, ["PING"]) == [b"PONG"]


def test_watch_belongs_to_its_database(raw, connect):
    other = connect()
    raw.cmd("SELECT", "1")
    raw.cmd("WATCH", "k")
    raw.cmd("SELECT", "0")
    other.cmd("SET", "k", "1")
    assert run(raw, ["PING"]) == [b"PONG"]
    raw.cmd("SELECT", "1")
    raw.cmd("WATCH", "k")
    raw.cmd("SELECT", "0")
    other.cmd("SELECT", "1")
    other.cmd("SET", "k", "1")
    assert run(raw, ["PING"]) is None


def test_key_that_expires_while_watched_fails_exec(raw):
    raw.cmd("SET", "k", "1", "PX", "20")
    raw.cmd("WATCH", "k")
    time.sleep(0.1 * TIME_SCALE)
    assert run(raw, ["PING"]) is None


def test_key_that_expires_while_watched_without_active_expiry(raw, connect):
    other = connect()
    other.cmd("DEBUG", "SET-ACTIVE-EXPIRE", "0")
    try:
        raw.cmd("SET", "k", "1", "PX", "20")
        raw.cmd("WATCH", "k")
        time.sleep(0.1 * TIME_SCALE)
        assert run(raw, ["PING"]) is None
        raw.cmd("SET", "k", "1", "PX", "20")
        time.sleep(0.1 * TIME_SCALE)
        raw.cmd("WATCH", "k")  # already gone: nothing changes any more
        other.cmd("GET", "k")
        assert run(raw, ["PING"]) == [b"PONG"]
    finally:
        other.cmd("DEBUG", "SET-ACTIVE-EXPIRE", "1")


def test_expired_key_is_not_there_for_the_watcher(raw):
    """A key that was already due at WATCH counts as missing, however it is removed later."""
    raw.cmd("SET", "k", "1", "PX", "10")
    time.sleep(0.05 * TIME_SCALE)
    raw.cmd("WATCH", "k")
    time.sleep(0.2 * TIME_SCALE)
    assert run(raw, ["EXISTS", "k"]) == [0]


def test_execabort_wins_over_a_failed_watch(raw, connect):
    raw.cmd("WATCH", "k")
    connect().cmd("SET", "k", "1")
    raw.cmd("MULTI")
    raw.cmd("FOO")
    assert raw.cmd("EXEC") == EXECABORT
    assert run(raw, ["PING"]) == [b"PONG"]


def test_failed_exec_forgets_all_watches(raw, connect):
    other = connect()
    raw.cmd("WATCH", "a", "b")
    other.cmd("SET", "a", "1")
    assert run(raw, ["PING"]) is None
    other.cmd("SET", "b", "1")
    assert run(raw, ["PING"]) == [b"PONG"]


def test_watcher_that_leaves_harms_nobody(raw, connect):
    for _ in range(20):
        watcher = connect()
        watcher.cmd("WATCH", "a", "b", "c")
        watcher.cmd("MULTI")
        watcher.cmd("SET", "a", "1")
        watcher.close()
    raw.cmd("SET", "a", "2")
    assert raw.cmd("GET", "a") == b"2"


def test_optimistic_increment_loses_nothing(connect):
    """The classic read-modify-write with WATCH from several connections."""
    conns = [connect() for _ in range(4)]
    done = [0] * len(conns)
    target = 50
    while min(done) < target:
        values = []
        for conn in conns:
            conn.cmd("WATCH", "n")
            values.append(int(conn.cmd("GET", "n") or 0))
        for index, conn in enumerate(conns):
            if run(conn, ["SET", "n", values[index] + 1]) is not None:
                done[index] += 1
        conns.append(conns.pop(0))
        done.append(done.pop(0))
    assert int(conns[0].cmd("GET", "n")) == sum(done)


# --- RESET ---


def test_reset_ends_everything(raw, connect):
    raw.hello3()
    raw.cmd("CLIENT", "SETNAME", "me")
    raw.cmd("SELECT", "3")
    raw.cmd("WATCH", "k")
    raw.cmd("MULTI")
    raw.cmd("SET", "k", "1")
    raw.send_cmd("RESET")
    raw.expect(b"+RESET\r\n")
    raw.send_cmd("GET", "k")
    raw.expect(b"$-1\r\n")  # RESP2 again, and the queue is gone
    assert b" db=0 " in raw.cmd("CLIENT", "INFO")
    assert raw.cmd("CLIENT", "GETNAME") is None
    assert raw.cmd("EXEC") == b"ERR EXEC without MULTI"
    connect().cmd("SET", "k", "1")
    assert run(raw, ["PING"]) == [b"PONG"]
