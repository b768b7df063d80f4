#!/usr/bin/python3
"""The append-only log: what is written comes back, whatever happens to the server or the disk.

Write errors come from a limit of the file size that is set on the running server; failing syncs from
faults that only test builds have (KVIK_FILE_FAULTS).
"""
import os
import resource
import shutil
import signal
import tempfile
import time
from pathlib import Path

import pytest

from process import REFERENCE, TIME_SCALE, Server, ServerProblem, kvik_binary
from raw import Closed, Error, encode

pytestmark = pytest.mark.kvik_only

INCR = "appendonly.aof.1.incr.aof"
MANIFEST = "appendonly.aof.manifest"
SET_A = b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\n1\r\n"
SET_B = b"*3\r\n$3\r\nSET\r\n$1\r\nb\r\n$2\r\n22\r\n"
MULTI, EXEC = b"*1\r\n$5\r\nMULTI\r\n", b"*1\r\n$4\r\nEXEC\r\n"
MISCONF = b"MISCONF Errors writing to the AOF file: "


@pytest.fixture
def folder():
    path = Path(tempfile.mkdtemp(prefix="kvik-aof-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def start(start_server, folder):
    """Starts a server with a log in `folder`."""
    def begin(*args, **options):
        return start_server("--dir", folder, "--appendonly", "yes", *args, **options)
    return begin


def has_faults():
    """True when the server can be made to see failing system calls."""
    return any(word in kvik_binary() for word in ("debug", "asan", "tsan"))


needs_faults = pytest.mark.skipif(not has_faults(), reason="this build injects no faults")


def write_log(folder, content, manifest=b"file appendonly.aof.1.incr.aof seq 1 type i\n"):
    log = folder / "appendonlydir"
    shutil.rmtree(log, ignore_errors=True)
    log.mkdir()
    (log / MANIFEST).write_bytes(manifest)
    if content is not None:
        (log / INCR).write_bytes(content)
    return log / INCR


def kill(server):
    server.process.send_signal(signal.SIGKILL)
    server.process.wait()
    server.abandon()


def refusal(start_server, folder, *args):
    """What a server that refuses to load says."""
    with pytest.raises(ServerProblem) as problem:
        Server("--dir", folder, "--appendonly", "yes", *args)
    text = str(problem.value)
    assert "ended at start with status 1" in text
    return text


def wait_until(condition, seconds=10):
    deadline = time.monotonic() + seconds * TIME_SCALE
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def info(connection):
    text = connection.cmd("INFO", "persistence").decode()
    return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)


def digest(server):
    with server.raw() as raw:
        return raw.cmd("DEBUG", "DIGEST")


def journal_of(folder):
    return folder / "appendonlydir" / "appendonly.aof.journal"


def use_journal(raw):
    """Writes until groups are synced in the journal."""
    deadline = time.monotonic() + 10 * TIME_SCALE
    while info(raw)["aof_journal_in_use"] != "1":
        assert time.monotonic() < deadline, "no journal is used"
        raw.cmd("SET", "until", "journal")


def fill(raw):
    """Writes of many kinds in two databases."""
    raw.cmd("SET", "text", "value")
    raw.cmd("SET", "due", "x", "PX", "10000000")
    raw.cmd("INCRBYFLOAT", "float", "1.5")
    raw.cmd("APPEND", "text", b"\x00\r\n\xff")
    raw.cmd("HSET", "hash", "f", "1", "g", "2")
    raw.cmd("HINCRBYFLOAT", "hash", "f", "0.25")
    raw.cmd("RPUSH", "list", *range(300))
    raw.cmd("SADD", "set", *range(200))
    raw.cmd("SPOP", "set", "20")
    raw.cmd("ZADD", "zset", "1", "a", "2.5", "b")
    raw.cmd("MULTI")
    raw.cmd("SET", "tx", "1")
    raw.cmd("SELECT", "3")
    raw.cmd("SET", "tx3", "2")
    raw.cmd("EXEC")
    raw.cmd("SET", "large", b"x" * 300000)
    raw.cmd("SETBIT", "bits", "1000", "1")
    raw.cmd("DEL", "bits")
    raw.cmd("SELECT", "0")


@pytest.mark.parametrize("fsync", ["everysec", "always", "no"])
def test_what_was_written_comes_back(start, folder, fsync):
    server = start("--appendfsync", fsync)
    with server.raw() as raw:
        fill(raw)
        before = raw.cmd("DEBUG", "DIGEST")
    server.stop()
    assert (folder / "appendonlydir" / MANIFEST).read_bytes() == \
        b"file appendonly.aof.1.incr.aof seq 1 type i\n"
    server = start()
    assert digest(server) == before
    with server.raw() as raw:
        assert 9000000 < raw.cmd("PTTL", "due") <= 10000000
        raw.cmd("SET", "more", "1")
        before = raw.cmd("DEBUG", "DIGEST")
    kill_after_write(server)
    server = start()
    assert digest(server) == before


def kill_after_write(server):
    """Kills the server once everything is given to the system."""
    with server.raw() as raw:
        wait_until(lambda: info(raw)["aof_buffer_length"] == "0")
        time.sleep(0.05)
    kill(server)


def test_redis_loads_what_is_written(start, folder):
    server = start("--aof-timestamp-enabled", "yes")
    with server.raw() as raw:
        fill(raw)
        raw.cmd("SET", "again", "1")
        before = raw.cmd("DEBUG", "DIGEST")
    server.stop()
    redis = Server("--dir", folder, "--appendonly", "yes", binary=REFERENCE)
    try:
        with redis.raw() as raw:
            assert raw.cmd("GET", "text") == b"value\x00\r\n\xff"
            assert raw.cmd("LRANGE", "list", 0, -1) == [b"%d" % n for n in range(300)]
            assert raw.cmd("SCARD", "set") == 180
            assert raw.cmd("HGET", "hash", "f") == b"1.25"
            raw.cmd("SELECT", "3")
            assert raw.cmd("GET", "tx3") == b"2"
            assert raw.cmd("SET", "redis", "was here") == b"OK"
            raw.cmd("DEL", "redis")
    finally:
        redis.stop()
    server = start()
    assert digest(server) == before


@pytest.mark.parametrize("preamble", ["yes", "no"])
def test_what_redis_wrote_is_loaded(start, folder, preamble):
    redis = Server("--dir", folder, "--appendonly", "yes", "--aof-use-rdb-preamble", preamble,
                   "--aof-timestamp-enabled", "yes", binary=REFERENCE)
    try:
        with redis.raw() as raw:
            fill(raw)
            raw.cmd("BGREWRITEAOF")
            wait_until(lambda: info(raw)["aof_rewrite_in_progress"] == "0")
            raw.cmd("SET", "later", "1")
            members = sorted(raw.cmd("SMEMBERS", "set"))
    finally:
        redis.stop()
    server = start()
    with server.raw() as raw:
        assert raw.cmd("GET", "later") == b"1"
        assert raw.cmd("GET", "text") == b"value\x00\r\n\xff"
        assert sorted(raw.cmd("SMEMBERS", "set")) == members
        assert raw.cmd("ZRANGE", "zset", 0, -1, "WITHSCORES") == [b"a", b"1", b"b", b"2.5"]
        assert raw.cmd("LLEN", "list") == 300
        assert raw.cmd("PTTL", "due") > 9000000
        raw.cmd("SELECT", "3")
        assert raw.cmd("STRLEN", "large") == 300000


def test_a_base_of_redis_that_is_cut_is_refused(start_server, start, folder):
    redis = Server("--dir", folder, "--appendonly", "yes", binary=REFERENCE)
    with redis.raw() as raw:
        fill(raw)
        raw.cmd("SELECT", "3")
        raw.cmd("SET", "soon", "1", "PX", "300")
        raw.cmd("BGREWRITEAOF")
        wait_until(lambda: info(raw)["aof_rewrite_in_progress"] == "0")
        # A due key of the base that a later command keeps alive.
        raw.cmd("SELECT", "3")
        raw.cmd("PERSIST", "soon")
    redis.stop()
    time.sleep(0.4)
    server = start()
    with server.raw() as raw:
        raw.cmd("SELECT", "3")
        assert raw.cmd("GET", "soon") == b"1"
        assert raw.cmd("SCARD", "set") == 0
    server.stop()
    base = folder / "appendonlydir" / "appendonly.aof.2.base.rdb"
    whole = base.read_bytes()
    for size in (7, len(whole) // 2, len(whole) - 1):
        base.write_bytes(whole[:size])
        assert "Error reading the RDB preamble of the AOF file" in refusal(start_server, folder)


def test_an_old_log_of_one_file_is_taken_up(start, folder):
    (folder / "appendonly.aof").write_bytes(SET_A + SET_B)
    server = start()
    with server.raw() as raw:
        assert raw.cmd("MGET", "a", "b") == [b"1", b"22"]
        raw.cmd("SET", "c", "3")
    server.stop()
    assert not (folder / "appendonly.aof").exists()
    assert (folder / "appendonlydir" / "appendonly.aof").read_bytes() == SET_A + SET_B
    assert (folder / "appendonlydir" / MANIFEST).read_bytes() == \
        b"file appendonly.aof seq 1 type b\nfile appendonly.aof.1.incr.aof seq 1 type i\n"
    server = start()
    with server.raw() as raw:
        assert raw.cmd("MGET", "a", "b", "c") == [b"1", b"22", b"3"]


def test_an_old_log_whose_move_was_cut_short_is_taken_up(start, folder):
    write_log(folder, None, b"file appendonly.aof seq 1 type b\n")
    (folder / "appendonly.aof").write_bytes(SET_A)
    with start().raw() as raw:
        assert raw.cmd("GET", "a") == b"1"


def test_history_files_are_removed(start, folder):
    write_log(folder, SET_A, b"file old.incr.aof seq 1 type h\n"
                             b"file appendonly.aof.1.incr.aof seq 1 type i\n")
    (folder / "appendonlydir" / "old.incr.aof").write_bytes(b"whatever")
    with start().raw() as raw:
        assert raw.cmd("GET", "a") == b"1"
    assert sorted(p.name for p in (folder / "appendonlydir").iterdir()) == [INCR, MANIFEST]
    assert (folder / "appendonlydir" / MANIFEST).read_bytes() == \
        b"file appendonly.aof.1.incr.aof seq 1 type i\n"


@pytest.mark.single
def test_a_tail_cut_at_any_byte_is_repaired(start, folder):
    whole = SET_A + SET_B
    for size in range(len(whole) + 1):
        path = write_log(folder, whole[:size])
        server = start(threads=1)
        good = len(whole) if size == len(whole) else len(SET_A) if size >= len(SET_A) else 0
        with server.raw() as raw:
            assert raw.cmd("DBSIZE") == (0 if good == 0 else 1 if good == len(SET_A) else 2)
        if good != size:
            assert "Truncating the AOF %s at offset %d" % (INCR, good) in server.log()
        server.stop()
        assert path.stat().st_size == good


def test_a_transaction_without_its_end_is_taken_back(start, folder):
    path = write_log(folder, SET_A + MULTI + SET_B)
    server = start()
    with server.raw() as raw:
        assert raw.cmd("MGET", "a", "b") == [b"1", None]
    assert "Revert incomplete MULTI/EXEC transaction in AOF file " + INCR in server.log()
    assert path.stat().st_size == len(SET_A)
    server.stop()
    path = write_log(folder, MULTI + SET_B + EXEC)
    with start().raw() as raw:
        assert raw.cmd("GET", "b") == b"22"


def test_a_cut_tail_is_refused_where_that_is_wanted(start_server, folder):
    path = write_log(folder, SET_A + SET_B[:-3])
    text = refusal(start_server, folder, "--aof-load-truncated", "no")
    assert "Unexpected end of file reading the append only file %s" % INCR in text
    assert "at offset %d" % len(SET_A) in text
    assert path.stat().st_size == len(SET_A + SET_B) - 3


def test_only_the_last_file_may_be_cut(start_server, folder):
    write_log(folder, SET_A[:-1], b"file appendonly.aof.1.incr.aof seq 1 type i\n"
                                  b"file appendonly.aof.2.incr.aof seq 2 type i\n")
    (folder / "appendonlydir" / "appendonly.aof.2.incr.aof").write_bytes(SET_B)
    assert "The truncated file is not the last one" in refusal(start_server, folder)


def test_a_file_that_only_empty_ones_follow_may_be_cut(start, folder):
    """The next file of a rewrite is named before the log goes on in it."""
    write_log(folder, SET_A + SET_B[:-1], b"file appendonly.aof.1.incr.aof seq 1 type i\n"
                                          b"file appendonly.aof.2.incr.aof seq 2 type i\n")
    (folder / "appendonlydir" / "appendonly.aof.2.incr.aof").write_bytes(b"")
    server = start()
    with server.raw() as raw:
        assert raw.cmd("DBSIZE") == 1
        raw.cmd("SET", "c", "1")
        before = raw.cmd("DEBUG", "DIGEST")
    kill_after_write(server)
    assert digest(start()) == before


@pytest.mark.parametrize("content, said", [
    (SET_A + b"hello\r\n", "At offset 27: no command begins here"),
    (SET_A + b"*0\r\n", "At offset 27: a command has too few"),
    (b"*1\r\n:3\r\n", "At offset 0: an argument does not begin with $"),
    (b"*1\r\n$3\r\nabcd\r\n", "At offset 0: an argument is longer"),
    (b"*1\r\n$-1\r\n", "At offset 0: an argument has no possible length"),
    (b"*x\r\n", "At offset 0: a count or length is no number"),
    (b"*1\n", "At offset 0: a line does not end with CR LF"),
])
def test_what_is_no_command_is_refused(start_server, folder, content, said):
    write_log(folder, content)
    text = refusal(start_server, folder)
    assert "Bad file format reading the append only file " + INCR in text
    assert said in text


def test_a_bad_tail_that_is_short_enough_is_cut_off(start, folder):
    path = write_log(folder, SET_A + b"garbage\r\n")
    server = start("--aof-load-corrupt-tail-max-size", "9")
    with server.raw() as raw:
        assert raw.cmd("GET", "a") == b"1"
    assert path.stat().st_size == len(SET_A)


def test_unknown_commands_and_databases_are_refused(start_server, folder):
    write_log(folder, SET_A + b"*1\r\n$5\r\nHELLX\r\n")
    assert "Unknown command 'HELLX' reading the append only file " + INCR in \
        refusal(start_server, folder)
    write_log(folder, b"*2\r\n$6\r\nSELECT\r\n$2\r\n99\r\n" + SET_A)
    assert "selects database 99" in refusal(start_server, folder)


@pytest.mark.parametrize("manifest, said", [
    (b"", "Found an empty AOF manifest"),
    (b"file a seq 1 type x\n", "Unknown AOF file type"),
    (b"file ../a seq 1 type i\n", "File can't be a path, just a filename"),
    (b"file none.incr.aof seq 1 type i\n", "Unable to obtain the AOF file none.incr.aof length"),
])
def test_a_manifest_that_is_none_is_refused(start_server, folder, manifest, said):
    write_log(folder, SET_A, manifest)
    assert said in refusal(start_server, folder)


def test_a_length_that_lies_costs_no_memory(start, folder):
    write_log(folder, SET_A + b"*1\r\n$1000000000\r\nabc")
    server = start()
    with server.raw() as raw:
        assert raw.cmd("GET", "a") == b"1"
        memory = dict(line.split(":", 1) for line in
                      raw.cmd("INFO", "memory").decode().splitlines() if ":" in line)
        assert int(memory["used_memory_peak"]) < 200 << 20


def test_annotations_tell_the_time(start, folder):
    begin = int(time.time())
    server = start("--aof-timestamp-enabled", "yes")
    with server.raw() as raw:
        for _ in range(3):
            raw.cmd("SET", "a", "1")
            time.sleep(0.7)
    server.stop()
    lines = [line for line in (folder / "appendonlydir" / INCR).read_bytes().split(b"\r\n")
             if line.startswith(b"#TS:")]
    times = [int(line[4:]) for line in lines]
    assert len(times) >= 2 and times == sorted(set(times))
    assert begin <= times[0] and times[-1] <= time.time()
    with start().raw() as raw:
        assert raw.cmd("GET", "a") == b"1"


def test_a_command_larger_than_the_ring_is_logged(start):
    server = start("--stream-ring-size", "65536", "--appendfsync", "always")
    with server.raw() as raw:
        assert raw.cmd("SET", "large", b"x" * 1000000) == b"OK"
        assert raw.cmd("MSET", *[b"y" * 1000] * 400) == b"OK"
        before = raw.cmd("DEBUG", "DIGEST")
    kill(server)
    assert digest(start("--stream-ring-size", "65536")) == before


def test_pipelines_through_a_small_ring_keep_their_order(start):
    server = start("--stream-ring-size", "65536", "--appendfsync", "always")
    with server.raw(timeout=60) as raw:
        count = 20000
        raw.send(b"".join(b"*3\r\n$6\r\nAPPEND\r\n$1\r\nk\r\n$6\r\n%06d\r\n" % n
                          for n in range(count)))
        for n in range(count):
            assert raw.read() == 6 * (n + 1)
    kill(server)
    with start().raw() as raw:
        assert raw.cmd("GET", "k") == b"".join(b"%06d" % n for n in range(count))


def test_switched_off_at_run_time_the_log_is_complete(start, folder):
    server = start("--appendfsync", "always")
    with server.raw() as raw:
        fill(raw)
        before = raw.cmd("DEBUG", "DIGEST")
        assert raw.cmd("CONFIG", "SET", "appendonly", "no") == b"OK"
        assert info(raw)["aof_enabled"] == "0"
        raw.cmd("SET", "not", "logged")
    kill(server)
    assert digest(start()) == before


def test_options_change_while_the_server_runs(start):
    server = start("--appendfsync", "everysec")
    with server.raw() as raw:
        for fsync in ("always", "no", "always", "everysec"):
            assert raw.cmd("CONFIG", "SET", "appendfsync", fsync) == b"OK"
            assert raw.cmd("CONFIG", "GET", "appendfsync") == [b"appendfsync", fsync.encode()]
            assert raw.cmd("INCR", "n") > 0
        assert raw.cmd("CONFIG", "SET", "appendfsync", "sometimes").text.endswith(
            b"argument(s) must be one of the following: everysec, always, no")
        assert raw.cmd("CONFIG", "SET", "appendfilename", "x").code == b"ERR"


def test_info_tells_sizes(start, folder):
    server = start()
    with server.raw() as raw:
        fields = info(raw)
        assert fields["aof_enabled"] == "1"
        assert fields["aof_last_write_status"] == "ok"
        assert fields["aof_current_size"] == "0"
        raw.cmd("SET", "a", "1")
        wait_until(lambda: info(raw)["aof_current_size"] == "50")
        assert (folder / "appendonlydir" / INCR).stat().st_size == 50
    server.stop()
    with start().raw() as raw:
        assert info(raw)["aof_base_size"] == "50"


@pytest.mark.parametrize("switches", [["no"], ["no", "yes"], ["no", "yes", "no"]])
def test_a_transaction_that_writes_switches_the_log(start, switches):
    lines = [("MULTI",), ("INCR", "n")]
    for value in switches:
        lines += [("CONFIG", "SET", "appendonly", value), ("INCR", "n")]
    lines.append(("EXEC",))
    server = start()
    with server.raw() as raw:
        raw.send(b"".join(encode(*line) for line in lines))
        *_, replies = [raw.read() for _ in lines]
        count = len(switches) + 1
        assert replies[::2] == list(range(1, count + 1)) and set(replies[1::2]) == {b"OK"}
        assert raw.cmd("INCR", "n") == count + 1
        if switches[-1] == "no":
            assert raw.cmd("CONFIG", "SET", "appendonly", "yes") == b"OK"
        wait_until(lambda: info(raw)["aof_base_size"] != "0" and
                   info(raw)["aof_rewrite_in_progress"] == "0")
        assert raw.cmd("INCR", "n") == count + 2
    server.stop()
    with start().raw() as raw:
        assert raw.cmd("GET", "n") == b"%d" % (count + 2)


# --- waiting ---

def test_waitaof_arguments(start, server):
    with start().raw() as raw:
        assert raw.cmd("WAITAOF", "2", "0", "0").text == \
            b"ERR value is out of range, value must between 0 and 1"
        assert raw.cmd("WAITAOF", "-1", "0", "0").code == b"ERR"
        assert raw.cmd("WAITAOF", "1", "-1", "0").text == \
            b"ERR value is out of range, must be positive"
        assert raw.cmd("WAITAOF", "1", "0", "-1").text == b"ERR timeout is negative"
        assert raw.cmd("WAITAOF", "1", "0", "x").text == \
            b"ERR timeout is not an integer or out of range"
        assert raw.cmd("WAITAOF", "1", "0", "0") == [1, 0]
        assert raw.cmd("WAITAOF", "0", "0", "0") == [1, 0]
        assert raw.cmd("WAITAOF", "1", "1", "20") == [1, 0]
    with server.raw() as raw:
        assert raw.cmd("WAITAOF", "1", "0", "0").text == \
            b"ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled."
        assert raw.cmd("WAITAOF", "0", "0", "0") == [0, 0]


@pytest.mark.parametrize("fsync", ["everysec", "always", "no"])
def test_waitaof_waits_for_the_disk(start, fsync):
    with start("--appendfsync", fsync).raw() as raw:
        for n in range(3):
            raw.cmd("SET", "a", n)
            assert raw.cmd("WAITAOF", "1", "0", "0") == [1, 0]
        raw.send_cmd("SET", "a", "1")
        raw.send_cmd("WAITAOF", "1", "0", "5000")
        raw.send_cmd("GET", "a")
        assert [raw.read() for _ in range(3)] == [b"OK", [1, 0], b"1"]


def test_waitaof_times_out_and_is_unblocked(start):
    server = start()
    with server.raw() as raw, server.raw() as other:
        raw.cmd("SET", "a", "1")
        begin = time.monotonic()
        assert raw.cmd("WAITAOF", "1", "1", "100")[1] == 0
        assert time.monotonic() - begin >= 0.1
        raw.cmd("SET", "a", "1")
        number = raw.cmd("CLIENT", "ID")
        for how, want in ((b"ERROR", b"UNBLOCKED"), (b"TIMEOUT", None)):
            raw.send_cmd("WAITAOF", "0", "1", "0")
            wait_until(lambda: other.cmd("CLIENT", "UNBLOCK", number, how) == 1)
            reply = raw.read()
            assert reply.code == want if want else reply[1] == 0
        assert other.cmd("CLIENT", "UNBLOCK", number) == 0
        raw.cmd("MULTI")
        raw.cmd("SET", "a", "2")
        raw.cmd("WAITAOF", "1", "0", "0")
        assert raw.cmd("EXEC") == [b"OK", [0, 0]]
        raw.send_cmd("WAITAOF", "0", "1", "0")
    with server.raw() as raw:
        assert raw.cmd("PING") == b"PONG"


# --- errors ---

def limit_files(server, size):
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def test_a_full_disk_refuses_writes_until_it_is_not(start, folder):
    server = start("--appendfsync", "everysec")
    with server.raw() as raw:
        raw.cmd("SET", "a", "1")
        wait_until(lambda: info(raw)["aof_current_size"] != "0")
        limit_files(server, 100)
        assert raw.cmd("SET", "b", b"x" * 200) == b"OK"
        wait_until(lambda: info(raw)["aof_last_write_status"] == "err")
        assert raw.cmd("SET", "c", "1").text == MISCONF + os.strerror(27).encode()
        assert raw.cmd("PING").text == MISCONF + os.strerror(27).encode()
        assert raw.cmd("GET", "b") == b"x" * 200
        assert raw.cmd("MULTI") == b"OK"
        assert raw.cmd("SET", "c", "1").code == b"MISCONF"
        assert raw.cmd("EXEC").code == b"EXECABORT"
        assert (folder / "appendonlydir" / INCR).stat().st_size == 50
        limit_files(server, resource.RLIM_INFINITY)
        wait_until(lambda: info(raw)["aof_last_write_status"] == "ok")
        assert raw.cmd("SET", "c", "1") == b"OK"
        before = raw.cmd("DEBUG", "DIGEST")
        assert "AOF write error looks solved" in server.log()
    kill_after_write(server)
    assert digest(start()) == before


def test_with_always_a_full_disk_acknowledges_nothing(start):
    server = start("--appendfsync", "always")
    with server.raw() as raw, server.raw() as other:
        assert raw.cmd("SET", "a", "1") == b"OK"
        limit_files(server, 60)
        with pytest.raises(Closed):
            raw.cmd("SET", "b", b"x" * 200)
        assert other.cmd("SET", "c", "1").text == MISCONF + os.strerror(27).encode()
        assert other.cmd("GET", "a") == b"1"
        assert info(other)["aof_last_write_status"] == "err"
        limit_files(server, resource.RLIM_INFINITY)
        assert other.cmd("SET", "c", "1").code == b"MISCONF"
    kill(server)
    with start().raw() as raw:
        assert raw.cmd("MGET", "a", "b", "c") == [b"1", None, None]


def test_a_fresh_base_ends_the_refusal(start):
    server = start("--appendfsync", "always")
    with server.raw() as raw, server.raw() as other:
        fill(other)
        other.cmd("SELECT", "0")
        size = int(info(other)["aof_current_size"])
        limit_files(server, size + 10)
        with pytest.raises(Closed):
            raw.cmd("SET", "lost", b"x" * 200)
        assert other.cmd("SET", "c", "1").code == b"MISCONF"
        before = other.cmd("DEBUG", "DIGEST")
        limit_files(server, resource.RLIM_INFINITY)
        wait_until(lambda: info(other)["aof_last_write_status"] == "ok", 30)
        assert other.cmd("DEBUG", "DIGEST") == before
        assert other.cmd("SET", "c", "1") == b"OK"
        before = other.cmd("DEBUG", "DIGEST")
    kill(server)
    assert digest(start()) == before


def test_switched_on_and_off_while_it_is_rewritten(start_server, folder):
    server = start_server("--dir", folder, "--appendfsync", "always")
    with server.raw() as raw:
        for n in range(3000):
            raw.send_cmd("HSET", "hash:%d" % (n % 500), "field:%d" % n, "value" * 10)
        for n in range(3000):
            raw.read()
        for n in range(30):
            assert raw.cmd("CONFIG", "SET", "appendonly", "yes" if n % 2 == 0 else "no") == b"OK"
            if n % 4 == 0:
                time.sleep(0.02 * (n % 5))
            raw.cmd("BGREWRITEAOF")
            assert raw.cmd("INCR", "n") == n + 1
        assert raw.cmd("CONFIG", "SET", "appendonly", "yes") == b"OK"
        wait_until(lambda: info(raw)["aof_base_size"] != "0" and
                   info(raw)["aof_rewrite_in_progress"] == "0", 30)
        assert raw.cmd("INCR", "n") == 31
        before = raw.cmd("DEBUG", "DIGEST")
    kill(server)
    assert digest(start_server("--dir", folder, "--appendonly", "yes")) == before


@needs_faults
@pytest.mark.parametrize("fsync", ["always", "everysec"])
def test_a_failed_sync_is_never_taken_for_done(start, monkeypatch, fsync):
    monkeypatch.setenv("KVIK_FILE_FAULTS", "sync:5:1:5")
    server = start("--appendfsync", fsync)
    monkeypatch.delenv("KVIK_FILE_FAULTS")
    with server.raw() as raw, server.raw() as other:
        def failed():
            try:
                raw.cmd("INCR", "n")
            except Closed:
                pass
            return info(other)["aof_last_write_status"] == "err"
        try:
            wait_until(failed)
        except AssertionError:
            pass  # a fresh base was there before anybody looked
        wait_until(lambda: "Can't fsync the append only file: Input/output error" in server.log())
        wait_until(lambda: info(other)["aof_last_write_status"] == "ok", 30)
        assert other.cmd("SET", "c", "1") == b"OK"
        before = other.cmd("DEBUG", "DIGEST")
    if fsync == "everysec":
        kill_after_write(server)
    else:
        kill(server)
    assert digest(start()) == before


@needs_faults
def test_nobody_sees_what_is_not_synced(start, monkeypatch):
    monkeypatch.setenv("KVIK_FILE_FAULTS", "sync:4:1000000:-200")
    server = start("--appendfsync", "always")
    monkeypatch.delenv("KVIK_FILE_FAULTS")
    with server.raw() as writer, server.raw() as reader:
        def slow(connection, *words):
            begin = time.monotonic()
            reply = connection.cmd(*words)
            assert time.monotonic() - begin >= 0.1
            return reply
        assert reader.cmd("GET", "a") is None
        writer.cmd("SET", "a", "0")
        for n in range(3):
            time.sleep(0.4)  # the log is idle: it writes at once, and then syncs
            writer.send_cmd("SET", "a", n)
            time.sleep(0.05)
            assert slow(reader, "GET", "a") == b"%d" % n
            assert writer.read() == b"OK"
        begin = time.monotonic()
        assert reader.cmd("GET", "a") == b"2"
        assert time.monotonic() - begin < 0.1


@pytest.fixture
def slow_disk(start, monkeypatch):
    """A server each of whose syncs takes 200 ms."""
    monkeypatch.setenv("KVIK_FILE_FAULTS", "sync:4:1000000:-200")
    server = start("--appendfsync", "always")
    monkeypatch.delenv("KVIK_FILE_FAULTS")
    with server.raw() as raw:
        raw.cmd("SET", "big", b"x" * 400000)
        raw.cmd("WAITAOF", "1", "0", "0")
    return server


@needs_faults
def test_much_output_is_held_while_waitaof_gives_up(slow_disk):
    with slow_disk.raw() as raw:
        lines = [("SET", "a", "1"), ("GET", "big"), ("WAITAOF", "1", "0", "20"), ("GET", "a"),
                 ("GET", "big"), ("PING",)]
        raw.send(b"".join(encode(*line) for line in lines))
        want = [b"OK", b"x" * 400000, [0, 0], b"1", b"x" * 400000, b"PONG"]
        assert [raw.read() for _ in lines] == want


@needs_faults
def test_much_output_is_held_while_writes_are_paused(slow_disk):
    with slow_disk.raw() as blocked, slow_disk.raw() as raw:
        blocked.send(encode("BLPOP", "q", "0") + encode("SET", "a", "1") + encode("PING"))
        wait_until(lambda: b"blocked_clients:1" in raw.cmd("INFO", "clients"))
        lines = [("MULTI",), ("RPUSH", "q", b"x" * 400000), ("CLIENT", "PAUSE", "60000", "WRITE"),
                 ("EXEC",)]
        raw.send(b"".join(encode(*line) for line in lines))
        assert [raw.read() for _ in lines] == [b"OK", b"QUEUED", b"QUEUED", [1, b"OK"]]
        assert blocked.read() == [b"q", b"x" * 400000]
        assert raw.cmd("GET", "a") is None
        assert raw.cmd("CLIENT", "UNPAUSE") == b"OK"
        assert [blocked.read(), blocked.read()] == [b"OK", b"PONG"]
        assert raw.cmd("GET", "a") == b"1"


@needs_faults
def test_short_writes_are_gone_on_with(start, monkeypatch):
    monkeypatch.setenv("KVIK_FILE_FAULTS", "write:2:1000000:0")
    server = start("--appendfsync", "always")
    monkeypatch.delenv("KVIK_FILE_FAULTS")
    with server.raw() as raw:
        fill(raw)
        before = raw.cmd("DEBUG", "DIGEST")
    kill(server)
    assert digest(start()) == before


def test_a_folder_that_cannot_be_written_is_told(start_server, folder):
    (folder / "appendonlydir").write_bytes(b"no folder")
    text = refusal(start_server, folder)
    assert "Can't open" in text or "Can't read the AOF manifest" in text


# --- the journal of appendfsync always ---

def test_always_has_a_journal_while_it_lasts(start, folder):
    server = start("--appendfsync", "everysec")
    with server.raw() as raw:
        raw.cmd("SET", "a", "1")
        assert not journal_of(folder).exists() and info(raw)["aof_journal_in_use"] == "0"
        for _ in range(2):
            raw.cmd("CONFIG", "SET", "appendfsync", "always")
            use_journal(raw)
            assert journal_of(folder).exists()
            raw.cmd("CONFIG", "SET", "appendfsync", "everysec")
            wait_until(lambda: not journal_of(folder).exists())
            assert info(raw)["aof_journal_in_use"] == "0"
        raw.cmd("CONFIG", "SET", "appendfsync", "always")
        use_journal(raw)
        raw.cmd("CONFIG", "SET", "appendonly", "no")
        assert not journal_of(folder).exists()
        raw.cmd("CONFIG", "SET", "appendonly", "yes")
        use_journal(raw)
    server.stop()
    assert sorted(p.suffix for p in (folder / "appendonlydir").iterdir()) == \
        [".aof", ".manifest", ".rdb"]


def test_what_the_file_lost_in_a_crash_of_the_machine_comes_back(start, folder):
    server = start("--appendfsync", "always", "--aof-timestamp-enabled", "yes")
    with server.raw() as raw:
        use_journal(raw)
        raw.cmd("BGREWRITEAOF")
        wait_until(lambda: info(raw)["aof_rewrite_in_progress"] == "0")
        use_journal(raw)
        fill(raw)
        want = raw.cmd("DEBUG", "DIGEST")
    kill(server)
    path = folder / "appendonlydir" / "appendonly.aof.2.incr.aof"
    whole = path.read_bytes()
    assert len(whole) > 300000
    for content in (b"", whole[:1000], whole[:-3], whole[:100] + bytes(100000) + whole[100100:]):
        saved = journal_of(folder).read_bytes()
        path.write_bytes(content)
        server = start("--appendfsync", "everysec")
        assert digest(server) == want
        assert "bytes, which were written back from the journal" in server.log()
        server.stop()
        assert path.read_bytes() == whole and not journal_of(folder).exists()
        journal_of(folder).write_bytes(saved)
    (folder / "appendonlydir" / "appendonly.aof.journal.tmp").write_bytes(b"left over")
    server = start("--appendfsync", "always")
    assert digest(server) == want and "written back" not in server.log()
    server.stop()
    assert not list((folder / "appendonlydir").glob("*journal*"))


def test_a_journal_of_another_file_is_refused(start_server, start, folder):
    server = start("--appendfsync", "always")
    with server.raw() as raw:
        use_journal(raw)
        raw.cmd("SET", "a", "1")
    kill(server)
    path = folder / "appendonlydir" / INCR
    whole = path.read_bytes()
    path.write_bytes(whole[:-6] + b"2" + whole[-5:])
    text = refusal(start_server, folder)
    assert "can't be applied to %s: the file has been written to since" % INCR in text
    assert path.read_bytes() == whole[:-6] + b"2" + whole[-5:]
    journal_of(folder).unlink()
    start().stop()
    path.write_bytes(whole)


def test_where_no_journal_can_be_made_the_log_is_synced(start, folder):
    (folder / "appendonlydir" / "appendonly.aof.journal.tmp").mkdir(parents=True)
    server = start("--appendfsync", "always")
    with server.raw() as raw:
        for number in range(20):
            assert raw.cmd("SET", "a", number) == b"OK"
        wait_until(lambda: "Can't make the journal" in server.log())
        assert info(raw)["aof_journal_in_use"] == "0"
        assert info(raw)["aof_last_write_status"] == "ok"
        want = raw.cmd("DEBUG", "DIGEST")
    kill(server)
    assert not journal_of(folder).exists()
    server = start()
    assert digest(server) == want


@needs_faults
def test_a_journal_that_fails_ends_what_waits_until_a_fresh_base(start, folder, monkeypatch):
    """Syncs 100 ... fail: the journal's, long after it was made."""
    monkeypatch.setenv("KVIK_FILE_FAULTS", "sync:100:1:5")
    server = start("--appendfsync", "always")
    monkeypatch.delenv("KVIK_FILE_FAULTS")
    acknowledged = 0
    with pytest.raises(Closed):
        with server.raw() as raw:
            for number in range(1, 1000):
                assert raw.cmd("SET", "a", number) == b"OK"
                acknowledged = number
    assert 20 < acknowledged < 100
    with server.raw() as raw:
        wait_until(lambda: not isinstance(raw.cmd("SET", "b", "1"), Error), 20)
        use_journal(raw)
        want = raw.cmd("DEBUG", "DIGEST")
    kill(server)
    server = start()
    assert digest(server) == want
