#!/usr/bin/python3
"""kvik-check: what is whole is told so, the first fault is named with its offset, --fix cuts off."""
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from process import REFERENCE, Server, kvik_binary, sanitizer_environment

pytestmark = pytest.mark.kvik_only

SET_A = b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\n1\r\n"
MULTI, EXEC = b"*1\r\n$5\r\nMULTI\r\n", b"*1\r\n$4\r\nEXEC\r\n"
LINE = b"file appendonly.aof.%d.incr.aof seq %d type i\n"


@pytest.fixture
def folder():
    path = Path(tempfile.mkdtemp(prefix="kvik-check-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


def check(folder, *args, answer=b""):
    """Exit status and output."""
    done = subprocess.run(["kvik-check"] + [str(arg) for arg in args], executable=kvik_binary(),
                          input=answer, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          env=sanitizer_environment(folder), timeout=60, check=False)
    assert not list(folder.glob("sanitizer*"))
    return done.returncode, done.stdout.decode()


def write_log(folder, *contents):
    (folder / "appendonly.aof.manifest").write_bytes(
        b"".join(LINE % (n, n) for n in range(1, len(contents) + 1)))
    for n, content in enumerate(contents, 1):
        (folder / ("appendonly.aof.%d.incr.aof" % n)).write_bytes(content)


def test_a_whole_log_is_told_so(folder):
    write_log(folder, SET_A * 3, b"#TS:123\r\n" + MULTI + SET_A + EXEC)
    for what in (folder, folder / "appendonly.aof.manifest"):
        status, text = check(folder, what)
        assert status == 0
        assert "appendonly.aof.1.incr.aof: 81 bytes, 3 commands" in text
        assert "3 commands, last time annotation 123" in text
        assert "All files are in order." in text


@pytest.mark.parametrize("tail, offset, said", [
    (b"*3\r\n$3\r\nSE", 27, "the file ends within a command"),
    (b"garbage", 27, "no command begins here"),
    (MULTI + SET_A, 27, "the file ends within a transaction"),
    (EXEC, 27, "EXEC without MULTI"),
    (MULTI + MULTI, 42, "MULTI within a transaction"),
])
def test_the_first_fault_is_named(folder, tail, offset, said):
    write_log(folder, SET_A + tail)
    status, text = check(folder, folder)
    assert status == 1
    assert "FAULT at offset %d: %s" % (offset, said) in text


def test_fix_cuts_off_after_asking(folder):
    write_log(folder, SET_A + b"*3\r\n$3\r\nSE")
    path = folder / "appendonly.aof.1.incr.aof"
    status, text = check(folder, "--fix", folder, answer=b"n\n")
    assert status == 1 and "Nothing was changed." in text
    assert path.stat().st_size == 37
    status, text = check(folder, "--fix", folder, answer=b"y\n")
    assert status == 0 and "Successfully truncated." in text
    assert path.read_bytes() == SET_A
    assert check(folder, folder)[0] == 0


def test_only_the_end_of_a_log_is_cut_off(folder):
    write_log(folder, SET_A[:-2], SET_A)
    status, text = check(folder, "--fix", "--yes", folder)
    assert status == 1 and "Only the last file of a log can be cut off." in text
    assert (folder / "appendonly.aof.1.incr.aof").stat().st_size == 25


def test_fix_writes_back_what_the_journal_has(folder):
    log = folder / "appendonlydir"
    server = Server("--dir", folder, "--appendonly", "yes", "--appendfsync", "always")
    with server.raw() as raw:
        while b"aof_journal_in_use:1" not in raw.cmd("INFO", "persistence"):
            raw.cmd("SET", "a", "1")
        for _ in range(3):
            raw.cmd("SET", "a", "1")
    server.process.kill()
    server.process.wait()
    server.abandon()
    path = log / "appendonly.aof.1.incr.aof"
    whole = path.read_bytes()
    status, text = check(folder, log)
    assert status == 0 and "appendonly.aof.journal: the log lacks nothing of it" in text
    path.write_bytes(whole[:-len(SET_A) - 5])
    status, text = check(folder, log)
    assert status == 1
    assert "FAULT: appendonly.aof.1.incr.aof lacks %d bytes that it has" % (len(SET_A) + 5) in text
    status, text = check(folder, "--fix", log, answer=b"n\n")
    assert status == 1 and "Nothing was changed." in text
    status, text = check(folder, "--fix", log, answer=b"y\n")
    assert status == 0 and "Successfully written back." in text
    assert path.read_bytes() == whole
    assert not (log / "appendonly.aof.journal").exists()
    assert check(folder, log)[0] == 0


def test_data_of_redis_is_looked_through(folder):
    redis = Server("--dir", folder, "--appendonly", "yes", "--dbfilename", "x.rdb", binary=REFERENCE)
    try:
        with redis.raw() as raw:
            for n in range(100):
                raw.cmd("HSET", "hash:%d" % n, "field", "value")
            raw.cmd("BGREWRITEAOF")
            raw.cmd("SAVE")
    finally:
        redis.stop()
    status, text = check(folder, folder / "x.rdb", folder / "appendonlydir")
    assert status == 0, text
    assert text.count("100 keys in the RDB format") >= 1
    whole = (folder / "x.rdb").read_bytes()
    for size in (0, 5, 9, 100, len(whole) - 1):
        (folder / "x.rdb").write_bytes(whole[:size])
        status, text = check(folder, folder / "x.rdb")
        assert (status == 1 and "FAULT at offset" in text) or size == 0
    broken = bytearray(whole)
    broken[len(whole) // 2] ^= 0x55
    (folder / "x.rdb").write_bytes(broken)
    assert check(folder, folder / "x.rdb")[0] == 1


def test_what_cannot_be_checked_is_told(folder):
    assert check(folder)[0] == 2
    assert check(folder, "--nosuch", folder)[0] == 2
    assert check(folder, folder)[0] == 1
    assert check(folder, folder / "nosuch")[0] == 1
    write_log(folder, SET_A)
    (folder / "appendonly.aof.manifest").write_bytes(b"file x seq 1 type z\n")
    status, text = check(folder, folder)
    assert status == 1 and "FAULT in line 1: Unknown AOF file type" in text
