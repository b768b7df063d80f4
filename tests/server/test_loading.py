#!/usr/bin/python3
"""Loading at the start, while the server answers: what it refuses, what it tells, how it ends, and
that everything is there afterwards. Loading is held up by key-load-delay, never by the clock."""
import json
import os
import pty
import random
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from process import REFERENCE, TIME_SCALE, free_port, kvik_binary
from raw import Closed, Error

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "persist"))

import rdb_bytes as rdb  # noqa: E402
from content import content, to_json  # noqa: E402

FIXTURES = Path(__file__).resolve().parents[1] / "persist" / "fixtures"
LOADING = Error(b"LOADING Redis is loading the dataset in memory")
SLOW = "50000"  # microseconds a key: a file of 1,000 keys would take 50 seconds
KEYS = 1000


def wait_for(condition, what, seconds=30):
    deadline = time.monotonic() + seconds * TIME_SCALE
    while time.monotonic() < deadline:
        result = condition()
        if result:
            return result
        time.sleep(0.005)
    raise AssertionError("waited in vain for " + what)


@pytest.fixture
def folder():
    path = Path(tempfile.mkdtemp(prefix="kvik-loading-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


def strings(count, db=0):
    """Records of a file: `count` small strings."""
    return b"".join([b"\xfe", rdb.length(db)] +
                    [b"\0" + rdb.string(b"key:%d" % i) + rdb.string(b"value:%d" % i)
                     for i in range(count)])


def connected(server):
    """A connection to a server that may not listen yet."""
    def attempt():
        assert server.alive(), server.log()
        try:
            return server.raw(timeout=30)
        except OSError:
            return None
    return wait_for(attempt, "a server that listens")


def begin(start_server, folder, *args, delay=SLOW, **options):
    """A server that is loading, and a connection to it."""
    args = ("--dir", folder, "--key-load-delay", delay) + args
    server = start_server(*args, *reference_args(), wait=False, **options)
    return server, connected(server)


def reference_args():
    """What makes the reference look at its connections while so little is loaded."""
    if os.path.basename(os.path.realpath(kvik_binary())).startswith("redis"):
        return ("--loading-process-events-interval-bytes", "1024")
    return ()


def finish(conn):
    """Lets loading come to its end."""
    assert conn.cmd("CONFIG", "SET", "key-load-delay", "0") == b"OK"
    wait_for(lambda: conn.cmd("PING") == b"PONG", "the end of loading", 60)


def persistence(conn):
    lines = conn.cmd("INFO", "persistence").decode().splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)


@pytest.fixture
def slow(start_server, folder):
    (folder / "dump.rdb").write_bytes(rdb.rdb_file(strings(KEYS)))
    server, conn = begin(start_server, folder)
    yield server, conn
    conn.close()


# --- what is answered ---

def test_commands_without_the_flag_are_refused(slow):
    _, conn = slow
    for line in ("PING", "GET key:1", "SET a b", "DBSIZE", "KEYS *", "SCAN 0", "FLUSHALL", "SAVE",
                 "BGSAVE", "BGREWRITEAOF", "TYPE key:1", "BLPOP a 0", "MEMORY USAGE key:1",
                 "OBJECT ENCODING key:1", "RANDOMKEY", "SWAPDB 0 1"):
        assert conn.cmd(*line.split()) == LOADING, line
    finish(conn)
    assert conn.cmd("GET", "key:1") == b"value:1"
    assert conn.cmd("DBSIZE") == KEYS


def test_commands_with_the_flag_are_answered(slow):
    _, conn = slow
    assert conn.cmd("ECHO", "a") == b"a"
    assert conn.cmd("SELECT", "1") == b"OK"
    assert conn.cmd("SELECT", "0") == b"OK"
    assert conn.cmd("CLIENT", "SETNAME", "me") == b"OK"
    assert conn.cmd("CLIENT", "GETNAME") == b"me"
    assert conn.cmd("HELLO", "3")[b"proto"] == 3
    assert conn.cmd("HELLO", "2")[:2] == [b"server", b"redis"]
    assert conn.cmd("CONFIG", "GET", "databases") == [b"databases", b"16"]
    assert conn.cmd("CONFIG", "SET", "hash-max-listpack-entries", "77") == b"OK"
    assert isinstance(conn.cmd("LASTSAVE"), int)
    assert conn.cmd("PUBLISH", "channel", "text") == 0
    assert isinstance(conn.cmd("COMMAND", "COUNT"), int)
    assert conn.cmd("SLOWLOG", "LEN") >= 0
    assert len(conn.cmd("TIME")) == 2
    finish(conn)


def test_faults_of_a_command_come_first(slow):
    _, conn = slow
    assert conn.cmd("NOSUCH") == Error(b"ERR unknown command 'NOSUCH', with args beginning with: ")
    assert conn.cmd("GET") == Error(b"ERR wrong number of arguments for 'get' command")
    assert conn.cmd("CONFIG", "SET", "maxmemory", "1") == b"OK"
    assert conn.cmd("SET", "a", "b") == LOADING  # nothing is evicted, nothing out of memory
    assert conn.cmd("CONFIG", "SET", "maxmemory", "0") == b"OK"
    assert conn.cmd("SUBSCRIBE", "x") == [b"subscribe", b"x", 1]
    assert conn.cmd("GET", "a").text.startswith(b"ERR Can't execute 'get': only ")
    assert conn.cmd("UNSUBSCRIBE", "x") == [b"unsubscribe", b"x", 0]
    finish(conn)
    assert conn.cmd("DBSIZE") == KEYS


def test_transactions(slow):
    _, conn = slow
    assert conn.cmd("MULTI") == b"OK"
    assert conn.cmd("GET", "a") == LOADING
    assert conn.cmd("EXEC") == Error(b"EXECABORT Transaction discarded because of previous errors.")
    assert conn.cmd("MULTI") == b"OK"
    assert conn.cmd("ECHO", "a") == b"QUEUED"
    assert conn.cmd("EXEC") == [b"a"]
    assert conn.cmd("WATCH", "key:1", "nothing") == b"OK"
    finish(conn)
    assert conn.cmd("MULTI") == b"OK"
    assert conn.cmd("GET", "key:1") == b"QUEUED"
    assert conn.cmd("EXEC") == [b"value:1"]


def test_refusals_keep_their_place_in_a_pipeline(slow):
    _, conn = slow
    conn.send(b"GET key:1\r\nECHO a\r\nSET a b\r\nGET key:2\r\nECHO b\r\n")
    refused = b"-LOADING Redis is loading the dataset in memory\r\n"
    conn.expect(refused + b"$1\r\na\r\n" + refused * 2 + b"$1\r\nb\r\n")
    finish(conn)
    assert conn.cmd("EXISTS", "a") == 0


def test_the_log_is_not_switched_on_meanwhile(slow):
    _, conn = slow
    assert conn.cmd("CONFIG", "SET", "appendonly", "yes") == LOADING
    assert conn.cmd("CONFIG", "GET", "appendonly") == [b"appendonly", b"no"]
    finish(conn)


@pytest.mark.kvik_only  # the reference serves what is half loaded here, and saves it
def test_debug_shows_nothing_half_loaded(slow):
    _, conn = slow
    for line in ("OBJECT key:1", "DIGEST", "DIGEST-VALUE key:1", "RELOAD", "CHECK",
                 "CHANGE-STREAM 1"):
        assert conn.cmd("DEBUG", *line.split()) == LOADING, line
    assert conn.cmd("DEBUG", "SLEEP", "0") == b"OK"
    finish(conn)
    assert conn.cmd("DEBUG", "CHECK") == b"OK"


def test_info_tells_how_far_it_is(slow):
    server, conn = slow
    size = (Path(server.args[1]) / "dump.rdb").stat().st_size
    info = persistence(conn)
    assert info["loading"] == "1" and info["async_loading"] == "0"
    assert int(info["loading_total_bytes"]) == size
    assert abs(int(info["loading_start_time"]) - time.time()) < 60 * TIME_SCALE
    assert 0 <= int(info["loading_loaded_bytes"]) <= size
    assert re.fullmatch(r"\d+\.\d\d", info["loading_loaded_perc"])
    assert "loading_rdb_used_mem" in info and "loading_eta_seconds" in info
    assert conn.cmd("CONFIG", "SET", "key-load-delay", "1000") == b"OK"
    wait_for(lambda: int(persistence(conn).get("loading_loaded_bytes", size)) >= 4096, "progress")
    finish(conn)
    info = persistence(conn)
    assert info["loading"] == "0" and "loading_total_bytes" not in info
    assert info["rdb_changes_since_last_save"] == "0"
    assert info["rdb_last_load_keys_loaded"] == str(KEYS)


# --- the end ---

@pytest.mark.parametrize("how", ["SHUTDOWN", "SHUTDOWN SAVE", "SHUTDOWN NOSAVE", "SIGTERM"])
def test_a_server_that_loads_ends_at_once_and_writes_nothing(start_server, folder, how):
    before = rdb.rdb_file(strings(KEYS))
    (folder / "dump.rdb").write_bytes(before)
    server, conn = begin(start_server, folder, "--save", "1 1")
    assert conn.cmd("PING") == LOADING
    if how == "SIGTERM":
        server.process.send_signal(signal.SIGTERM)
    else:
        with pytest.raises((Closed, ConnectionError)):
            conn.cmd(*how.split())
    assert server.wait(20) == 0
    assert (folder / "dump.rdb").read_bytes() == before
    assert [path.name for path in folder.iterdir()] == ["dump.rdb"]


@pytest.mark.kvik_only
def test_the_end_may_come_at_any_moment(start_server, folder):
    """While the reader is ahead of the workers, waits for them, or has come to the end."""
    (folder / "dump.rdb").write_bytes(rdb.rdb_file(strings(200000), crc=0))
    args = ("--dir", folder, "--save", "")
    begun = time.monotonic()
    start_server(*args).stop()
    whole = time.monotonic() - begun
    ends = max(5, int(20 / TIME_SCALE))
    for i in range(ends):
        server = start_server(*args, wait=False)
        time.sleep(whole * (i + 1) / ends)
        server.process.send_signal(signal.SIGTERM)
        assert server.wait(20 * TIME_SCALE) == 0


@pytest.mark.kvik_only
def test_a_server_that_loads_its_log_ends_at_once_and_writes_nothing(start_server, folder):
    files = write_log(folder, strings(10), commands(KEYS))
    server, conn = begin(start_server, folder, "--appendonly", "yes")
    wait_for(lambda: int(persistence(conn)["loading_loaded_bytes"]) > files["base"], "the incr file")
    server.process.send_signal(signal.SIGTERM)
    assert server.wait(20) == 0
    assert {path.name: path.stat().st_size for path in (folder / "appendonlydir").iterdir()} == \
        files["sizes"]


@pytest.mark.kvik_only
def test_a_pipe_is_read_as_it_comes(start_server, folder):
    os.mkfifo(folder / "dump.rdb")
    feed = os.open(folder / "dump.rdb", os.O_RDWR)
    data = rdb.rdb_file(strings(KEYS))
    os.write(feed, data[:5000])
    server, conn = begin(start_server, folder, delay="0")
    assert conn.cmd("PING") == LOADING
    assert persistence(conn)["loading"] == "1"
    os.write(feed, data[5000:])
    wait_for(lambda: conn.cmd("PING") == b"PONG", "the end of loading")
    os.close(feed)
    assert conn.cmd("DBSIZE") == KEYS
    (folder / "dump.rdb").unlink()


@pytest.mark.kvik_only
def test_a_pipe_that_stays_silent_does_not_keep_the_server(start_server, folder):
    os.mkfifo(folder / "dump.rdb")
    feed = os.open(folder / "dump.rdb", os.O_RDWR)
    server, conn = begin(start_server, folder, delay="0")
    assert conn.cmd("PING") == LOADING
    server.process.send_signal(signal.SIGTERM)
    assert server.wait(20) == 0
    os.close(feed)


# --- what is loaded ---

def some_records(generate, count):
    """Values of all types, small and, now and then, longer than what is handed over at once."""
    out = [b"\xfe\x00"]
    for i in range(count):
        key = b"%d:%d" % (generate.randrange(1000), i)
        n = generate.choice((1, 3, 30, 300)) if i % 50 else 30000
        words = [b"%d-%d" % (j, generate.randrange(10**6)) for j in range(n)]
        kind = generate.randrange(6)
        if generate.random() < 0.2:
            out.append(b"\xfc" + (4102444800000).to_bytes(8, "little"))
        if kind == 0:
            out.append(b"\0" + rdb.string(key) + rdb.string(b"".join(words)))
        elif kind == 1:
            out.append(b"\x01" + rdb.string(key) + rdb.length(n) + b"".join(map(rdb.string, words)))
        elif kind == 2:
            out.append(b"\x02" + rdb.string(key) + rdb.length(n) + b"".join(map(rdb.string, words)))
        elif kind == 3:
            out.append(b"\x04" + rdb.string(key) + rdb.length(n) +
                       b"".join(rdb.string(w) + rdb.string(w[:3]) for w in words))
        elif kind == 4:  # a stream, which is kept as it is
            nodes = [words[at:at + 100] for at in range(0, n, 100)]
            out.append(b"\x0f" + rdb.string(key) + rdb.length(len(nodes)) +
                       b"".join(rdb.string(b"%016d" % at) + rdb.string(rdb.listpack(node))
                                for at, node in enumerate(nodes)) +
                       b"".join(map(rdb.length, (n, 5, 6, 0))))
        else:
            out.append(b"\x05" + rdb.string(key) + rdb.length(n) + b"".join(
                rdb.string(w) + struct.pack("<d", generate.randrange(100)) for w in words))
    # A module's data about the file: of module 7, a number and a long string.
    out.append(b"\xf7" + b"".join(map(rdb.length, (7, 2, 1, 5))) + rdb.string(b"m" * 400_000) +
               rdb.length(0))
    return out


@pytest.mark.kvik_only
@pytest.mark.parametrize("name", sorted(path.stem for path in FIXTURES.glob("*.rdb")))
def test_files_of_the_reference(start_server, folder, name):
    shutil.copy(FIXTURES / (name + ".rdb"), folder / "dump.rdb")
    with start_server("--dir", folder).raw() as conn:
        assert to_json(content(conn)) == json.loads((FIXTURES / (name + ".json")).read_text())
        assert conn.cmd("DEBUG", "CHECK") == b"OK"


@pytest.mark.kvik_only
def test_all_workers_load_what_one_loads(start_server, folder):
    """Beside the loader that runs on one thread, in DEBUG RELOAD."""
    seed = int(os.environ.get("SEED", random.randrange(10**6)))
    print("SEED=%d" % seed)
    data = rdb.rdb_file(b"".join(some_records(random.Random(seed), 600)) + strings(3000, db=3))
    (folder / "dump.rdb").write_bytes(data)
    with start_server("--dir", folder).raw(timeout=60) as conn:
        digest = conn.cmd("DEBUG", "DIGEST")
        assert persistence(conn)["rdb_last_load_keys_loaded"] == "3600"
        assert conn.cmd("DEBUG", "CHECK") == b"OK"
        (folder / "dump.rdb").write_bytes(data)
        assert conn.cmd("DEBUG", "RELOAD", "NOSAVE") == b"OK"
        assert conn.cmd("DEBUG", "DIGEST") == digest


@pytest.mark.kvik_only
@pytest.mark.parametrize("log", ["no", "yes"])
def test_a_long_value_that_is_kept_as_it_is(start_server, folder, log):
    """Saved and rewritten by Kvik itself, and loaded again."""
    nodes = b"".join(rdb.string(b"%016d" % i) + rdb.string(rdb.listpack([b"x" * 4000] * 10))
                     for i in range(20))
    value = rdb.length(20) + nodes + b"".join(map(rdb.length, (200, 5, 6, 0)))
    server = start_server("--dir", folder, "--appendonly", log)
    with server.raw(timeout=60) as conn:
        assert conn.cmd("RESTORE", "s", 0, rdb.payload(15, value)) == b"OK"
        conn.cmd("SET", "behind", "1")
        assert conn.cmd("BGREWRITEAOF" if log == "yes" else "SAVE")
        wait_for(lambda: persistence(conn)["aof_rewrite_in_progress"] == "0", "the rewrite")
        digest = conn.cmd("DEBUG", "DIGEST")
    server.stop()
    with start_server("--dir", folder, "--appendonly", log).raw(timeout=60) as conn:
        assert conn.cmd("DEBUG", "DIGEST") == digest
        assert conn.cmd("TYPE", "s") == b"stream"


@pytest.mark.kvik_only
def test_keys_that_are_loaded_are_not_new(start_server, folder):
    (folder / "dump.rdb").write_bytes(rdb.rdb_file(strings(2000)))
    server, conn = begin(start_server, folder, "--notify-keyspace-events", "KEAn")
    conn.cmd("SUBSCRIBE", "__keyevent@0__:new")
    with server.raw(timeout=60) as other:
        other.cmd("CONFIG", "SET", "key-load-delay", "0")
        wait_for(lambda: other.cmd("PING") == b"PONG", "the end of loading")
        other.cmd("SET", "made", "1")
    assert conn.read() == [b"message", b"__keyevent@0__:new", b"made"]


def fault_at_start(start_server, folder):
    server = start_server("--dir", folder, wait=False)
    assert server.wait(60) == 1, server.log()
    server.judged = True
    assert "Ready to accept" not in server.log()
    return re.search(r"Can't load 'dump.rdb': (.*) \(offset (\d+)\)", server.log()).groups()


@pytest.mark.single
@pytest.mark.kvik_only
def test_the_first_fault_is_told(start_server, folder, empty_server, raw):
    """The same fault and offset as one thread finds, wherever the damage is."""
    seed = int(os.environ.get("SEED", random.randrange(10**6)))
    print("SEED=%d" % seed)
    generate = random.Random(seed)
    records = some_records(generate, 101)
    for _ in range(12):
        body = bytearray(b"".join(records))
        for _ in range(generate.choice((1, 3))):
            at = generate.randrange(len(body))
            body[at] = generate.randrange(256)
        if generate.random() < 0.2:
            del body[generate.randrange(len(body)):]
        data = rdb.rdb_file(bytes(body))
        (empty_server.dir / "dump.rdb").write_bytes(data)
        raw.cmd("DEBUG", "RELOAD", "NOSAVE")
        line = [line for line in empty_server.log().splitlines()
                if "failed at offset" in line or "Loaded dump.rdb" in line][-1]
        (folder / "dump.rdb").write_bytes(data)
        if "Loaded" in line:
            server = start_server("--dir", folder)
            server.stop()
            continue
        want = re.search(r"failed at offset (\d+): (.*)$", line).groups()
        assert fault_at_start(start_server, folder) == (want[1], want[0])


@pytest.mark.kvik_only
@pytest.mark.parametrize("long", [False, True])
def test_a_key_that_comes_twice_is_a_fault(start_server, folder, long):
    again = b"\0" + rdb.string(b"key:7") + rdb.string(b"x" * (400000 if long else 1))
    head = len(rdb.rdb_file(strings(KEYS))) - 9
    (folder / "dump.rdb").write_bytes(rdb.rdb_file(strings(KEYS) + again))
    assert fault_at_start(start_server, folder) == ("a key comes twice", str(head + 7))


@pytest.mark.kvik_only
@pytest.mark.parametrize("what", ["damaged", "of no known form", "cut off", "empty"])
def test_a_key_that_comes_twice_is_told_before_what_its_value_has(start_server, folder, what):
    """Values that are too long to be handed over, or seem to be damaged, are read before the key is
    looked for."""
    item = rdb.string(b"x" * 300)
    nothing = rdb.length(2) + rdb.string(rdb.listpack([]))
    form, value = {"damaged": (2, rdb.length(2000) + item * 2000),
                   "of no known form": (0x63, item),
                   "cut off": (0, rdb.length(10**6) + item),
                   "empty": (18, rdb.length(40000) + nothing * 40000)}[what]
    again = bytes([form]) + rdb.string(b"key:7") + value
    head = len(rdb.rdb_file(strings(KEYS))) - 9
    (folder / "dump.rdb").write_bytes(rdb.rdb_file(strings(KEYS) + again, crc=0))
    assert fault_at_start(start_server, folder) == ("a key comes twice", str(head + 7))


def metadata(length):
    """Of a module, for the next key: a string of this length."""
    return b"\xf3" + rdb.length(1) + b"abcd" + rdb.length(5) + rdb.string(b"m" * length) + b"\0"


@pytest.mark.kvik_only
def test_what_is_told_of_a_key_may_be_longer_than_a_block(start_server, folder):
    block = 256 << 10
    due = b"\xfc" + struct.pack("<q", 1)
    later = b"\xfc" + struct.pack("<q", 4102444800000)
    told = [metadata(300000), metadata(100000) * 4, later + metadata(block), due + metadata(300000),
            metadata(300000) + due, *[metadata(block - by) for by in range(0, 40, 3)],
            b"\xf8\x01" * 200000, metadata(600000) + b"\xf8\x01\xf9\x07", later]
    records = strings(KEYS) + b"".join(
        before + b"\0" + rdb.string(b"told:%d" % i) + rdb.string(b"%d" % i)
        for i, before in enumerate(told))
    (folder / "dump.rdb").write_bytes(rdb.rdb_file(records, crc=0))
    server = start_server("--dir", folder)
    with server.raw(timeout=60) as conn:
        assert conn.cmd("DBSIZE") == KEYS + len(told) - 2
        for i, before in enumerate(told):
            assert conn.cmd("GET", "told:%d" % i) == (None if due in before else b"%d" % i)
            assert conn.cmd("PEXPIRETIME", "told:%d" % i) == (
                -2 if due in before else 4102444800000 if later in before else -1)


@pytest.mark.kvik_only
@pytest.mark.parametrize("then, fault", [
    (b"\xfe\1", (1, "what is told of a key is not followed by one")),
    (b"\x63" + rdb.string(b"k"), (3, "value type 99 is not known"))], ids=["database", "key"])
def test_a_fault_behind_something_long_that_is_told_of_a_key(start_server, folder, then, fault):
    told = strings(KEYS) + metadata(300000) + b"\xf8\1"
    (folder / "dump.rdb").write_bytes(rdb.rdb_file(told + then, crc=0))
    head = len(rdb.rdb_file(told, crc=0)) - 9
    assert fault_at_start(start_server, folder) == (fault[1], str(head + fault[0]))


def lengths_around_a_block():
    """Values of the lengths at which a record just fits into what is read at once, or does not."""
    block = 256 << 10
    around = [block + by for by in range(-40, 20, 3)]
    return [100, *around, block // 2, block // 2 - 20, 1, block // 3, 2 * block, 2 * block - 9, 3]


@pytest.mark.kvik_only
@pytest.mark.parametrize("pipe", [False, True])
def test_records_of_any_length(start_server, folder, pipe):
    values = [bytes([65 + i % 26]) * length for i, length in enumerate(lengths_around_a_block())]
    due = b"\xfc" + struct.pack("<q", 1)  # long ago
    later = b"\xfc" + struct.pack("<q", 4102444800000)
    records = b"\xfe\0"
    for i, value in enumerate(values):
        records += later + b"\0" + rdb.string(b"long:%d" % i) + rdb.string(value)
        records += due + b"\0" + rdb.string(b"due:%d" % i) + rdb.string(value[:i * 7000])
        records += b"\0" + rdb.string(b"short:%d" % i) + rdb.string(b"%d" % i)
    data = rdb.rdb_file(records, crc=0)
    if pipe:
        os.mkfifo(folder / "dump.rdb")
        feed = threading.Thread(target=(folder / "dump.rdb").write_bytes, args=(data,))
        feed.start()
    else:
        (folder / "dump.rdb").write_bytes(data)
    server = start_server("--dir", folder, "--save", "")
    if pipe:
        feed.join()
        (folder / "dump.rdb").unlink()
    with server.raw(timeout=60) as conn:
        assert conn.cmd("DBSIZE") == 2 * len(values)
        assert persistence(conn)["rdb_last_load_keys_expired"] == str(len(values))
        for i, value in enumerate(values):
            assert conn.cmd("GET", "long:%d" % i) == value
            assert conn.cmd("PEXPIRETIME", "long:%d" % i) == 4102444800000
            assert conn.cmd("GET", "short:%d" % i) == b"%d" % i


def text_around_a_block(generate):
    """Mostly short; else so long that the record ends near a block's end, or is longer than one."""
    block = 256 << 10
    length = generate.choice((1, 3, 70, 300, generate.randrange(40000), block // 3,
                              block + generate.randrange(-60, 60)))
    text = generate.choice((b"a", b"bc", b"1")) * length
    return rdb.lzf_literals(text) if generate.random() < 0.2 else rdb.string(text)


def told_of_a_key(generate):
    """Due times, idle times, counters; and whether the key is due."""
    told, due = b"", False
    for _ in range(generate.choice((0, 0, 1, 2))):
        kind = generate.randrange(4)
        due = kind == 0 or due and kind > 1
        told += (b"\xfc" + struct.pack("<q", 1), b"\xfd" + struct.pack("<i", 2000000000),
                 b"\xf8" + rdb.length(generate.randrange(10**5)), b"\xf9\x07")[kind]
    return told, due


def records_around_blocks(generate, count):
    """Keys of several databases, with notes between them, and how many of them are not due."""
    out, live = b"", 0
    for i in range(count):
        if i == 0 or generate.random() < 0.1:
            out += b"\xfe" + rdb.length(generate.randrange(4)) + b"\xfb" + rdb.length(i) + b"\0"
        if generate.random() < 0.1:
            out += b"\xfa" + rdb.string(b"note") + text_around_a_block(generate)
        told, due = told_of_a_key(generate)
        live += not due
        key = rdb.string(b"%d:" % i + b"k" * generate.choice((0, 5, 70, 300000)))
        words = [b"%d-%d" % (j, generate.randrange(1000)) for j in range(generate.choice((1, 200)))]
        form, value = generate.choice((
            (0, text_around_a_block(generate)), (0, rdb.int_string(i, 4)),
            (1, rdb.length(3) + b"".join(text_around_a_block(generate) for _ in range(3))),
            (2, rdb.length(len(words)) + b"".join(map(rdb.string, words))),
            (4, rdb.length(1) + rdb.string(b"field") + text_around_a_block(generate)),
            (16, rdb.lzf_literals(rdb.listpack([w for word in words for w in (word, b"1")]))),
            (18, rdb.length(2) + b"\1" + text_around_a_block(generate) +
             b"\2" + rdb.string(rdb.listpack(words)))))
        out += told + bytes([form]) + (rdb.int_string(10**6 + i, 4) if i % 9 == 0 else key) + value
    return out, live


@pytest.mark.kvik_only
def test_files_and_pipes_are_loaded_alike_and_as_the_reference_does(start_server, folder):
    seed = int(os.environ.get("SEED", random.randrange(10**6)))
    print("SEED=%d" % seed)
    records, live = records_around_blocks(random.Random(seed), 80)
    data = rdb.rdb_file(records, crc=0)
    found = []
    for binary, threads, pipe in ((REFERENCE, 1, False), (None, 1, False), (None, 2, True),
                                  (None, 4, False), (None, 4, True)):
        path = folder / "dump.rdb"
        feed = threading.Thread(target=path.write_bytes, args=(data,))
        if pipe:
            os.mkfifo(path)
            feed.start()
        else:
            path.write_bytes(data)
        server = start_server("--dir", folder, binary=binary, threads=threads)
        if pipe:
            feed.join()
        with server.raw(timeout=60) as conn:
            assert persistence(conn)["rdb_last_load_keys_loaded"] == str(live)
            found.append(content(conn))
            assert binary or conn.cmd("DEBUG", "CHECK") == b"OK"
        server.stop()
        path.unlink()
    assert all(one == found[0] for one in found)


@pytest.mark.kvik_only
def test_memory_for_loading_is_bounded(start_server, folder):
    """A long value is built from the file, not from a copy of its bytes beside it."""
    count = 32
    value = bytes(random.Random(1).randbytes(1 << 20))
    items = b"".join(rdb.string(b"%d" % i + value) for i in range(count))
    (folder / "dump.rdb").write_bytes(
        rdb.rdb_file(b"\xfe\0\x02" + rdb.string(b"set") + rdb.length(count) + items,
                     crc=0))
    server = start_server("--dir", folder)
    with server.raw(timeout=60) as conn:
        assert conn.cmd("SCARD", "set") == count
        lines = conn.cmd("INFO", "memory").decode().splitlines()
        info = dict(line.split(":", 1) for line in lines if ":" in line)
        assert int(info["used_memory_peak"]) < 1.4 * count * len(value)


# --- the log ---

def command(*words):
    words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words)


def commands(count):
    return command("SELECT", 0) + b"".join(
        command("RPUSH", "list:%d" % (i % 10), i) for i in range(count))


def write_log(folder, base, incr):
    path = folder / "appendonlydir"
    path.mkdir()
    (path / "appendonly.aof.1.base.rdb").write_bytes(rdb.rdb_file(base))
    (path / "appendonly.aof.1.incr.aof").write_bytes(incr)
    (path / "appendonly.aof.manifest").write_bytes(
        b"file appendonly.aof.1.base.rdb seq 1 type b\n"
        b"file appendonly.aof.1.incr.aof seq 1 type i\n")
    sizes = {one.name: one.stat().st_size for one in path.iterdir()}
    return {"sizes": sizes, "base": sizes["appendonly.aof.1.base.rdb"],
            "total": sum(sizes.values()) - sizes["appendonly.aof.manifest"]}


@pytest.mark.kvik_only
def test_a_log_is_loaded_while_the_server_answers(start_server, folder):
    files = write_log(folder, strings(50), commands(KEYS))
    server, conn = begin(start_server, folder, "--appendonly", "yes")
    assert conn.cmd("GET", "key:1") == LOADING
    info = persistence(conn)
    assert info["loading"] == "1" and int(info["loading_total_bytes"]) == files["total"]
    wait_for(lambda: int(persistence(conn)["loading_loaded_bytes"]) > files["base"], "the incr file")
    assert conn.cmd("GET", "key:1") == LOADING
    assert conn.cmd("CLIENT", "LIST").count(b"id=") == 1  # who loads is no client
    finish(conn)
    assert conn.cmd("DBSIZE") == 60
    assert [conn.cmd("LRANGE", "list:3", "0", "-1")] == [[b"%d" % i for i in range(3, KEYS, 10)]]
    assert conn.cmd("SET", "new", "1") == b"OK"
    server.stop()
    with start_server("--dir", folder, "--appendonly", "yes").raw() as again:
        assert again.cmd("DBSIZE") == 61


@pytest.mark.kvik_only
def test_exclusive_commands_come_between_those_of_the_log(start_server, folder):
    """INFO and CONFIG SET take the keyspace for themselves again and again."""
    count = 20000
    write_log(folder, strings(KEYS), commands(count) + command("MULTI") +
              command("INCR", "n") * 500 + command("EXEC"))
    server, conn = begin(start_server, folder, "--appendonly", "yes", delay="0")
    over = threading.Event()

    def disturb(number):
        with server.raw(timeout=60) as other:
            while not over.is_set():
                other.cmd("CONFIG", "SET", "timeout", str(1000 + number))
                other.cmd("INFO")
                other.cmd("WATCH", "list:1", "key:1")
                other.cmd("UNWATCH")
    disturbers = [threading.Thread(target=disturb, args=(i,)) for i in range(3)]
    for one in disturbers:
        one.start()
    try:
        wait_for(lambda: conn.cmd("PING") == b"PONG", "the end of loading", 60)
    finally:
        over.set()
        for one in disturbers:
            one.join()
    assert conn.cmd("GET", "n") == b"500"
    assert [conn.cmd("LLEN", "list:%d" % i) for i in range(10)] == [count // 10] * 10
    assert conn.cmd("LRANGE", "list:3", "-2", "-1") == [b"%d" % (count - 17), b"%d" % (count - 7)]
    assert "answered by an error" not in server.log()
    assert conn.cmd("DEBUG", "CHECK") == b"OK"


@pytest.mark.kvik_only
def test_disturbed_loading_of_a_file_puts_everything(start_server, folder):
    (folder / "dump.rdb").write_bytes(rdb.rdb_file(strings(30000)))
    server, conn = begin(start_server, folder, delay="0")
    while conn.cmd("PING") == LOADING:
        conn.cmd("CONFIG", "SET", "set-max-intset-entries", str(random.randrange(1000)))
        conn.cmd("INFO", "keyspace")
    assert conn.cmd("DBSIZE") == 30000
    assert conn.cmd("DEBUG", "CHECK") == b"OK"


@pytest.mark.kvik_only
def test_what_is_due_in_a_base_is_judged_at_the_end(start_server, folder):
    due = b"\xfc" + (1000).to_bytes(8, "little")
    base = b"\xfe\0" + b"".join(due + b"\0" + rdb.string(name) + rdb.string(b"v")
                                for name in (b"kept", b"gone"))
    write_log(folder, base + strings(20)[2:], commands(50) + command("PERSIST", "kept"))
    _, conn = begin(start_server, folder, "--appendonly", "yes", delay="10000")
    wait_for(lambda: b"db0:" in conn.cmd("INFO", "keyspace"), "first keys")
    assert conn.cmd("WATCH", "kept", "gone") == b"OK"  # looking must not remove them
    finish(conn)
    assert conn.cmd("GET", "kept") == b"v"
    assert conn.cmd("EXISTS", "gone") == 0


@pytest.mark.kvik_only
def test_a_pause_of_clients_does_not_hold_up_the_log(start_server, folder):
    write_log(folder, strings(10), commands(KEYS))
    _, conn = begin(start_server, folder, "--appendonly", "yes")
    assert conn.cmd("CLIENT", "PAUSE", str(10**7), "WRITE") == b"OK"
    finish(conn)
    assert conn.cmd("DBSIZE") == 20


# --- what the operator sees ---

@pytest.mark.kvik_only
def test_a_terminal_gets_a_bar(folder):
    (folder / "dump.rdb").write_bytes(rdb.rdb_file(strings(KEYS)))
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [kvik_binary(), "--port", str(free_port()), "--bind", "127.0.0.1", "--dir", str(folder), "--save", "",
         "--threads", "1", "--key-load-delay", "2000"],
        stdout=theirs, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    os.close(theirs)
    seen = b""
    try:
        deadline = time.monotonic() + 60 * TIME_SCALE
        while b"Ready to accept connections tcp" not in seen and time.monotonic() < deadline:
            if select.select([ours], [], [], 1)[0]:
                seen += os.read(ours, 65536)
    finally:
        process.terminate()
        process.wait()
        os.close(ours)
    bars = re.findall(rb"\r\[([#.]{40})\] +(\d+) % of 0 MB, \d+ s left", seen)
    assert len(bars) >= 2 and int(bars[0][1]) < int(bars[-1][1])
    assert b"DB loaded from disk" in seen


def test_no_terminal_no_bar(slow):
    server, conn = slow
    finish(conn)
    assert "[#" not in server.log() and "[." not in server.log()
