#!/usr/bin/python3
"""Savings whose disk fails: the error is told, the server goes on, what was there stays, nothing is left over.

Test builds fail each step of SAVE, BGSAVE and BGREWRITEAOF in turn (DEBUG FILE-FAULTS); all builds
have a limit of file sizes, names that cannot be replaced and folders that are gone.
"""
import math
import os
import re
import resource
import signal
import time

import pytest

from process import REFERENCE, TIME_SCALE, kvik_binary
from raw import Closed, Error

MISCONF = (b"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to "
           b"disk. Commands that may modify the data set are disabled, because this instance is "
           b"configured to report errors during writes if RDB snapshotting fails "
           b"(stop-writes-on-bgsave-error option). Please check the Redis logs for details about the "
           b"RDB error.")

kvik_only = pytest.mark.kvik_only
needs_faults = pytest.mark.skipif(
    not any(word in kvik_binary() for word in ("debug", "asan", "tsan", "coverage")),
    reason="this build injects no faults")


def info(conn, name):
    for line in conn.cmd("INFO", "persistence").splitlines():
        if line.startswith(name.encode() + b":"):
            return line.split(b":", 1)[1].decode()
    raise AssertionError("no " + name)


def wait_until(condition, seconds=30):
    deadline = time.monotonic() + seconds * TIME_SCALE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def send_all(conn, commands):
    for command in commands:
        conn.send_cmd(*command)
    return [conn.read() for _ in commands]


def saved(conn):
    return info(conn, "rdb_bgsave_in_progress") == "0"


def fill(conn, keys=400):
    send_all(conn, [("SET", "k%d" % n, "x" * 200) for n in range(keys)])
    send_all(conn, [("RPUSH", "l", *range(3000)), ("HSET", "h", "f", "v"), ("ZADD", "z", 1, "m")])


def save_somehow(conn, command):
    reply = conn.cmd(command)
    wait_until(lambda: saved(conn))
    return reply


def left_over(folder):
    return [name for name in os.listdir(folder) if name.endswith((".temp", ".tmp")) or "temp-" in name]


# --- refusals ---

def test_writes_are_refused_after_a_saving_that_failed(start_server, tmp_path):
    """Also against the reference: which commands, in which words, until when."""
    server = start_server("--dir", str(tmp_path), "--save", "3600 1000000",
                          "--enable-protected-configs", "yes")
    conn = server.raw()
    fill(conn)
    (tmp_path / "busy.rdb").mkdir()
    (tmp_path / "busy.rdb" / "x").write_text("x")

    def fail():
        assert conn.cmd("CONFIG", "SET", "dbfilename", "busy.rdb") == b"OK"
        assert save_somehow(conn, "BGSAVE") == b"Background saving started"
        wait_until(lambda: info(conn, "rdb_last_bgsave_status") == "err")
        assert conn.cmd("CONFIG", "SET", "dbfilename", "dump.rdb") == b"OK"

    fail()
    assert not left_over(tmp_path)
    for command in (("SET", "k0", "y"), ("DEL", "none"), ("EXPIRE", "k0", 10), ("FLUSHALL",),
                    ("LPUSH", "l", 1), ("PING",)):
        assert conn.cmd(*command).text == MISCONF
    assert conn.cmd("GET", "k0") == b"x" * 200 and conn.cmd("ECHO", "a") == b"a"
    assert send_all(conn, [("MULTI",), ("GET", "k0"), ("EXEC",)])[2] == [b"x" * 200]
    replies = send_all(conn, [("MULTI",), ("SET", "k0", "y"), ("EXEC",)])
    assert replies[1].text == MISCONF and replies[2].code == b"EXECABORT"
    # Each of these ends it at once.
    assert conn.cmd("CONFIG", "SET", "stop-writes-on-bgsave-error", "no") == b"OK"
    assert conn.cmd("SET", "k0", "x" * 200) == b"OK"
    assert conn.cmd("CONFIG", "SET", "stop-writes-on-bgsave-error", "yes") == b"OK"
    assert conn.cmd("SET", "k0", "y").text == MISCONF
    assert conn.cmd("CONFIG", "SET", "save", "") == b"OK"
    assert conn.cmd("SET", "k0", "x" * 200) == b"OK"
    assert conn.cmd("CONFIG", "SET", "save", "3600 1000000") == b"OK"
    assert conn.cmd("SET", "k0", "y").text == MISCONF
    assert conn.cmd("SAVE") == b"OK"
    assert conn.cmd("SET", "k0", "x" * 200) == b"OK"
    assert info(conn, "rdb_last_bgsave_status") == "ok"
    fail()
    assert save_somehow(conn, "BGSAVE") == b"Background saving started"
    wait_until(lambda: conn.cmd("SET", "k0", "x" * 200) == b"OK")
    # SAVE in the foreground tells its caller, and nobody else.
    assert conn.cmd("CONFIG", "SET", "dbfilename", "busy.rdb") == b"OK"
    assert conn.cmd("SAVE") == Error(b"ERR")
    assert info(conn, "rdb_last_bgsave_status") == "ok"
    assert conn.cmd("SET", "k0", "x" * 200) == b"OK"
    assert conn.cmd("SHUTDOWN") == Error(b"ERR Errors trying to SHUTDOWN. Check logs.")
    assert conn.cmd("PING") == b"PONG"
    assert conn.cmd("CONFIG", "SET", "dbfilename", "dump.rdb") == b"OK"
    assert not left_over(tmp_path)


@kvik_only
def test_a_disk_that_is_full_leaves_the_old_file(start_server, tmp_path):
    server = start_server("--dir", str(tmp_path), "--save", "3600 1000000")
    conn = server.raw()
    fill(conn)
    assert conn.cmd("SAVE") == b"OK"
    before = (tmp_path / "dump.rdb").read_bytes()
    send_all(conn, [("SET", "more:%d" % n, os.urandom(500)) for n in range(500)])
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (50_000, resource.RLIM_INFINITY))
    for command, reply in (("SAVE", Error(b"ERR")), ("BGSAVE", b"Background saving started")):
        assert save_somehow(conn, command) == reply
        assert (tmp_path / "dump.rdb").read_bytes() == before
        assert not left_over(tmp_path)
        assert conn.cmd("GET", "h").code == b"WRONGTYPE" and conn.cmd("HGET", "h", "f") == b"v"
    assert info(conn, "rdb_last_bgsave_status") == "err"
    assert "failed: " + os.strerror(27) in server.log()
    assert conn.cmd("SET", "a", "1").text == MISCONF
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE,
                     (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert save_somehow(conn, "BGSAVE") == b"Background saving started"
    assert conn.cmd("SET", "a", "1") == b"OK"
    digest = conn.cmd("DEBUG", "DIGEST")
    assert conn.cmd("DEBUG", "RELOAD") == b"OK" and conn.cmd("DEBUG", "DIGEST") == digest


@kvik_only
def test_a_folder_that_is_gone_is_told(start_server, tmp_path):
    (tmp_path / "data").mkdir()
    server = start_server("--dir", str(tmp_path / "data"), "--save", "3600 1000000")
    conn = server.raw()
    fill(conn)
    (tmp_path / "data").rmdir()
    assert conn.cmd("SAVE") == Error(b"ERR")
    save_somehow(conn, "BGSAVE")
    assert info(conn, "rdb_last_bgsave_status") == "err"
    assert conn.cmd("SET", "a", "1").text == MISCONF
    assert conn.cmd("GET", "k1") == b"x" * 200
    conn.send_cmd("SHUTDOWN", "NOSAVE")
    assert server.wait() == 0


# --- every step ---

@kvik_only
@needs_faults
@pytest.mark.parametrize("command", ["SAVE", "BGSAVE"])
def test_every_step_of_a_saving_may_fail(start_server, tmp_path, command):
    server = start_server("--dir", str(tmp_path), "--save", "3600 1000000")
    conn = server.raw()
    fill(conn)
    assert conn.cmd("SAVE") == b"OK"
    failures = 0
    for kind in ("open", "write", "sync", "rename"):
        for first in range(1, 4):
            assert conn.cmd("SET", "n", "%s %d" % (kind, first)) == b"OK"
            before = (tmp_path / "dump.rdb").read_bytes()
            assert conn.cmd("DEBUG", "FILE-FAULTS", "%s:%d:1:28" % (kind, first)) == b"OK"
            reply = save_somehow(conn, command)
            assert conn.cmd("DEBUG", "FILE-FAULTS", kind + ":1:0:0") == b"OK"
            if command == "SAVE":
                failed = reply == Error(b"ERR")
            else:
                failed = info(conn, "rdb_last_bgsave_status") == "err"
                assert (conn.cmd("SET", "n", "x") != b"OK") == failed
            after = (tmp_path / "dump.rdb").read_bytes()
            # The last step syncs the folder: the new name is there, and may be gone after a crash.
            if failed and (kind, first) != ("sync", 2):
                assert after == before
            else:
                assert after != before
            failures += failed
            assert not left_over(tmp_path)
            assert conn.cmd("SAVE") == b"OK"
    assert failures == 5
    # Short writes are gone on with.
    assert conn.cmd("DEBUG", "FILE-FAULTS", "write:1:1000000:0") == b"OK"
    save_somehow(conn, command)
    digest = conn.cmd("DEBUG", "DIGEST")
    assert conn.cmd("DEBUG", "RELOAD", "NOSAVE") == b"OK"
    assert conn.cmd("DEBUG", "DIGEST") == digest


def files_of_log(folder):
    """(what the manifest names, what is there besides)"""
    text = (folder / "appendonly.aof.manifest").read_text() if folder.exists() and \
        (folder / "appendonly.aof.manifest").exists() else ""
    named = set(re.findall(r"^file (\S+)", text, re.MULTILINE))
    known = named | {"appendonly.aof.manifest", "appendonly.aof.journal"}
    there = set(os.listdir(folder)) if folder.exists() else set()
    return named, there - known


def rewrite_with_fault(conn, begin, plan):
    """Whether the rewrite failed; afterwards nothing fails any more."""
    before = int(info(conn, "aof_rewrites"))
    assert conn.cmd("DEBUG", "FILE-FAULTS", plan) == b"OK"
    if isinstance(conn.cmd(*begin), Error):
        # The log that is switched on could not be read: nothing has begun.
        assert begin[0] == "CONFIG" and plan.startswith("open")
        assert conn.cmd("DEBUG", "FILE-FAULTS", "open:1:0:0") == b"OK"
        assert conn.cmd(*begin) == b"OK"
    wait_until(lambda: int(info(conn, "aof_rewrites")) > before and
               info(conn, "aof_rewrite_in_progress") == "0")
    failed = info(conn, "aof_last_bgrewrite_status") == "err"
    assert conn.cmd("DEBUG", "FILE-FAULTS", plan.split(":")[0] + ":1:0:0") == b"OK"
    return failed


def write_again(server):
    """A write that is accepted, sooner or later."""
    def accepted():
        try:
            with server.raw() as conn:
                return not isinstance(conn.cmd("INCR", "n"), Error)
        except Closed:
            return False
    wait_until(accepted)


STEPS = [(kind, number) for kind, end in (("open", 6), ("write", 4), ("sync", 10), ("rename", 5))
         for number in range(1, end)]


@kvik_only
@needs_faults
@pytest.mark.timeout(120)
@pytest.mark.parametrize("begin", ["BGREWRITEAOF", "CONFIG"])
def test_every_step_of_a_rewrite_may_fail(start_server, tmp_path, begin):
    """BGREWRITEAOF of a whole log, and the fresh base of one that is switched on. Whatever fails, a
    server that is killed afterwards has lost nothing, and each server finds what the one before
    it has left."""
    on, failures = begin == "BGREWRITEAOF", 0
    arguments = ("--dir", str(tmp_path), "--appendonly", "yes", "--appendfsync", "no")
    log = tmp_path / "appendonlydir"
    server = start_server(*arguments)
    with server.raw() as conn:
        fill(conn, 100)
    # The first base is tried again after a pause that grows: half of the steps are enough.
    for kind, number in STEPS if on else STEPS[1::2]:
        plan = "%s:%d:1:28" % (kind, number)
        with server.raw() as conn:
            if on:
                wait_until(lambda: conn.cmd("WAITAOF", 1, 0, 1000)[0] == 1)
            else:
                assert conn.cmd("CONFIG", "SET", "appendonly", "no") == b"OK"
            failures += rewrite_with_fault(
                conn, ("BGREWRITEAOF",) if on else ("CONFIG", "SET", "appendonly", "yes"), plan)
        assert not files_of_log(log)[1], plan
        write_again(server)
        with server.raw() as conn:
            wait_until(lambda: on or info(conn, "aof_base_size") != "0")
            wait_until(lambda: info(conn, "aof_rewrite_in_progress") == "0")
            wait_until(lambda: conn.cmd("INCR", "n") and conn.cmd("WAITAOF", 1, 0, 1000)[0] == 1)
            digest = conn.cmd("DEBUG", "DIGEST")
        server.process.send_signal(signal.SIGKILL)
        server.process.wait()
        server.abandon()
        server = start_server(*arguments)
        with server.raw() as conn:
            assert conn.cmd("DEBUG", "DIGEST") == digest, plan
        assert not files_of_log(log)[1], plan
    assert failures > (10 if on else 3)


# --- what comes between ---

def test_a_flush_of_everything_is_no_failure(start_server, tmp_path):
    """Also against the reference: a saving that FLUSHALL ended must not refuse writes, and what
    was deleted is not in the file any more."""
    server = start_server("--dir", str(tmp_path), "--save", "3600 1000000")
    conn = server.raw()
    for n in range(0, 60_000 if TIME_SCALE < 4 else 20_000, 2000):
        send_all(conn, [("SET", "key:%d" % (n + i), "x" * 100) for i in range(2000)])
    assert conn.cmd("SAVE") == b"OK"
    size = (tmp_path / "dump.rdb").stat().st_size
    replies = send_all(conn, [("BGSAVE",), ("FLUSHALL",), ("SET", "after", "1")])
    assert replies == [b"Background saving started", b"OK", b"OK"]

    def accepted_and_small():
        assert conn.cmd("SET", "after", "1") == b"OK"
        return (tmp_path / "dump.rdb").stat().st_size < size // 100
    wait_until(accepted_and_small)
    wait_until(lambda: saved(conn))
    assert info(conn, "rdb_last_bgsave_status") == "ok"
    assert not left_over(tmp_path)


@kvik_only
@pytest.mark.parametrize("spoil", [("SWAPDB", 0, 1), ("FLUSHDB",)])
def test_a_saving_that_an_exchange_ended_is_begun_anew(start_server, tmp_path, spoil):
    server = start_server("--dir", str(tmp_path), "--save", "3600 1000000")
    conn, other = server.raw(), server.raw()
    other.cmd("SELECT", 1)
    other.cmd("SET", "kept", "1")
    for n in range(0, 20_000, 2000):
        send_all(conn, [("SET", "key:%d" % (n + i), "x" * 100) for i in range(2000)])
    replies = send_all(conn, [("MULTI",), ("BGSAVE",), spoil, ("EXEC",), ("SET", "after", "1")])
    assert replies[3] == [b"Background saving started", b"OK"] and replies[4] == b"OK"
    wait_until(lambda: info(conn, "rdb_saves") == "1")
    assert info(conn, "rdb_last_bgsave_status") == "ok"
    digest = conn.cmd("DEBUG", "DIGEST")
    assert conn.cmd("DEBUG", "RELOAD", "NOSAVE") == b"OK"
    assert conn.cmd("DEBUG", "DIGEST") == digest


@kvik_only
def test_a_rewrite_that_a_flush_ended_is_begun_anew(start_server, tmp_path):
    args = ("--dir", str(tmp_path), "--appendonly", "yes")
    server = start_server(*args)
    conn = server.raw()
    for n in range(0, 20_000, 2000):
        send_all(conn, [("SET", "key:%d" % (n + i), "x" * 100) for i in range(2000)])
    wait_until(lambda: conn.cmd("WAITAOF", 1, 0, 1000)[0] == 1)
    conn.cmd("BGREWRITEAOF")
    for _ in range(20):
        assert conn.cmd("FLUSHALL") == b"OK"
        assert conn.cmd("SET", "after", "1") == b"OK"
    wait_until(lambda: info(conn, "aof_rewrite_in_progress") == "0" and
               info(conn, "aof_rewrite_scheduled") == "0")
    assert info(conn, "aof_last_bgrewrite_status") == "ok"
    assert info(conn, "aof_rewrites_consecutive_failures") == "0"
    assert len(list((tmp_path / "appendonlydir").glob("appendonly.aof.*.base.rdb"))) == 1
    digest = conn.cmd("DEBUG", "DIGEST")
    server.stop()
    assert start_server(*args).raw().cmd("DEBUG", "DIGEST") == digest


@pytest.mark.parametrize("n", range(3))
def test_the_folder_changes_while_a_saving_goes_on(start_server, tmp_path, n):
    """Also against the reference: the file is in the folder of the moment."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    server = start_server("--dir", str(tmp_path / "one"), "--enable-protected-configs", "yes")
    conn = server.raw()
    for i in range(0, 20_000 * n, 2000):
        send_all(conn, [("SET", "key:%d" % (i + j), "x" * 100) for j in range(2000)])
    conn.cmd("SET", "a", "1")
    replies = send_all(conn, [("BGSAVE",), ("CONFIG", "SET", "dir", str(tmp_path / "two")),
                              ("CONFIG", "SET", "dbfilename", "other.rdb")])
    assert replies == [b"Background saving started", b"OK", b"OK"]
    wait_until(lambda: saved(conn))
    assert info(conn, "rdb_last_bgsave_status") == "ok"
    assert (tmp_path / "one" / "dump.rdb").exists()
    assert not os.listdir(tmp_path / "two")
    assert not left_over(tmp_path / "one")
    assert conn.cmd("SAVE") == b"OK"
    assert (tmp_path / "two" / "other.rdb").exists()


@kvik_only
def test_saving_and_rewriting_at_once(start_server, tmp_path):
    """A rewrite that the disk makes slow: SAVE goes its own way, BGSAVE waits where it was told to."""
    server = start_server("--dir", str(tmp_path), "--appendonly", "yes", "--save", "3600 1000000",
                          "--snapshot-memory-limit", "1mb")
    conn = server.raw()
    for n in range(0, 60_000 if TIME_SCALE < 4 else 20_000, 2000):
        send_all(conn, [("HSET", "big:%d" % (i % 3), "f%d" % (n + i), "x" * 100)
                        for i in range(2000)])
    digest = conn.cmd("DEBUG", "DIGEST")
    replies = send_all(conn, [("BGREWRITEAOF",), ("BGSAVE", "SCHEDULE"), ("BGREWRITEAOF",), ("SAVE",)])
    assert replies[0] == b"Background append only file rewriting started"
    # What the second one meets depends on how far the first has come.
    assert replies[1] in (b"Background saving scheduled", b"Background saving started")
    assert replies[3] == b"OK" or (replies[1] == b"Background saving started" and
                                   replies[3].text == b"ERR Background save already in progress")
    wait_until(lambda: info(conn, "aof_rewrite_in_progress") == "0" and
               info(conn, "aof_rewrite_scheduled") == "0" and int(info(conn, "rdb_saves")) >= 1 and
               saved(conn))
    assert info(conn, "aof_last_bgrewrite_status") == "ok"
    assert conn.cmd("DEBUG", "RELOAD", "NOSAVE") == b"OK"
    assert conn.cmd("DEBUG", "DIGEST") == digest
    server.stop()
    again = start_server("--dir", str(tmp_path), "--appendonly", "yes")
    assert again.raw().cmd("DEBUG", "DIGEST") == digest


@kvik_only
def test_a_scheduled_rewrite_goes_with_the_log(start_server, tmp_path):
    server = start_server("--dir", str(tmp_path), "--appendonly", "yes")
    conn = server.raw()
    for n in range(0, 20_000, 2000):
        send_all(conn, [("SET", "key:%d" % (n + i), "x" * 100) for i in range(2000)])
    replies = send_all(conn, [("MULTI",), ("BGSAVE",), ("BGREWRITEAOF",),
                              ("INFO", "persistence"), ("EXEC",),
                              ("CONFIG", "SET", "appendonly", "no")])
    assert replies[4][1] == b"Background append only file rewriting scheduled"
    assert b"aof_rewrite_scheduled:1\r\n" in replies[4][2]
    assert replies[5] == b"OK"
    wait_until(lambda: saved(conn) and info(conn, "aof_rewrite_scheduled") == "0")
    assert info(conn, "aof_rewrites") == "0"


@kvik_only
def test_a_signal_does_not_wait_for_a_rewrite(start_server, tmp_path):
    server = start_server("--dir", str(tmp_path), "--appendonly", "yes", "--save", "3600 1000000")
    conn = server.raw()
    for n in range(0, 40_000 if TIME_SCALE < 4 else 10_000, 2000):
        send_all(conn, [("SET", "key:%d" % (n + i), os.urandom(100)) for i in range(2000)])
    digest = conn.cmd("DEBUG", "DIGEST")
    conn.cmd("BGREWRITEAOF")
    server.process.send_signal(signal.SIGTERM)
    assert server.wait() == 0
    assert not left_over(tmp_path) and not left_over(tmp_path / "appendonlydir")
    for more in (("--appendonly", "yes"), ("--appendonly", "no")):
        again = start_server("--dir", str(tmp_path), *more)
        assert again.raw().cmd("DEBUG", "DIGEST") == digest
        again.stop()


@kvik_only
@pytest.mark.parametrize("command", ["BGSAVE", "BGREWRITEAOF"])
def test_who_flushes_all_the_time_is_not_outrun(start_server, tmp_path, command):
    """A snapshot that each flush makes worthless is begun anew after pauses that grow from one second."""
    server = start_server("--dir", str(tmp_path), "--save", "", "--appendfsync", "no", "--appendonly",
                          "yes" if command == "BGREWRITEAOF" else "no")
    conn = server.raw()
    for n in range(0, 60_000, 2000):
        send_all(conn, [("SET", "key:%d" % (n + i), "x" * 100) for i in range(2000)])
    conn.cmd("SELECT", 1)
    begun = time.monotonic()
    assert not isinstance(conn.cmd(command), Error)
    while time.monotonic() - begun < 2.5:
        send_all(conn, [("FLUSHDB",)] * 20)
    attempts = server.log().count("' started")
    seconds = time.monotonic() - begun
    assert 2 <= attempts <= 1 + math.ceil(math.log2(seconds + 1))
    wait_until(lambda: info(conn, "rdb_saves") == "1" if command == "BGSAVE" else
               info(conn, "aof_rewrite_in_progress") == "0" == info(conn, "aof_rewrite_scheduled"))


def test_a_folder_that_nobody_may_write_to(start_server, tmp_path):
    """/sys is one for root, too."""
    server = start_server("--dir", str(tmp_path), "--save", "3600 1000000",
                          "--enable-protected-configs", "yes")
    conn = server.raw()
    assert conn.cmd("SET", "k", "1") == b"OK"
    assert conn.cmd("SAVE") == b"OK"
    before = (tmp_path / "dump.rdb").read_bytes()
    assert conn.cmd("CONFIG", "SET", "dir", "/sys") == b"OK"
    assert isinstance(conn.cmd("SAVE"), Error)
    conn.cmd("BGSAVE")
    wait_until(lambda: info(conn, "rdb_last_bgsave_status") == "err")
    denied = conn.cmd("SET", "k", "2")
    assert denied.text.startswith(b"MISCONF")
    assert conn.cmd("GET", "k") == b"1"
    assert conn.cmd("CONFIG", "SET", "stop-writes-on-bgsave-error", "no") == b"OK"
    assert conn.cmd("SET", "k", "2") == b"OK"
    assert conn.cmd("CONFIG", "SET", "stop-writes-on-bgsave-error", "yes") == b"OK"
    assert conn.cmd("SET", "k", "3").text == denied.text
    assert "Permission denied" in server.log()
    assert conn.cmd("CONFIG", "SET", "dir", str(tmp_path)) == b"OK"
    assert (tmp_path / "dump.rdb").read_bytes() == before
    assert not left_over(tmp_path)
    assert conn.cmd("SAVE") == b"OK"
    assert conn.cmd("SET", "k", "3") == b"OK"


def test_a_log_in_a_folder_that_nobody_may_write_to(start_server):
    server = start_server("--enable-protected-configs", "yes", "--save", "")
    conn = server.raw()
    assert conn.cmd("SET", "k", "1") == b"OK"
    folder = conn.cmd("CONFIG", "GET", "dir")[1]
    assert conn.cmd("CONFIG", "SET", "dir", "/sys") == b"OK"
    assert conn.cmd("CONFIG", "SET", "appendonly", "yes").text == \
        b"ERR CONFIG SET failed (possibly related to argument 'appendonly') - Unable to turn on AOF. " \
        b"Check server logs."
    assert "Can't open or create append-only dir appendonlydir: " in server.log()
    assert conn.cmd("CONFIG", "GET", "appendonly") == [b"appendonly", b"no"]
    assert conn.cmd("CONFIG", "SET", "dir", folder) == b"OK"
    assert conn.cmd("CONFIG", "SET", "appendonly", "yes") == b"OK"
    assert conn.cmd("SET", "k", "2") == b"OK"
    wait_until(lambda: info(conn, "aof_rewrite_in_progress") == "0")
    assert info(conn, "aof_last_bgrewrite_status") == "ok"
