#!/usr/bin/python3
"""Scripts: what they may do and what they answer, as redis-server answers; that they are atomic on
all cores; limits of time and memory; what they leave behind."""
import hashlib
import itertools
import random
import threading
import time
from pathlib import Path

import pytest

from process import TIME_SCALE
from raw import Error, encode

BUSY = "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE."
KILLED = "ERR Script killed by user with SCRIPT KILL..."
SCRIPTS = (Path(__file__).parent / "scripts.txt").read_text().split("\n----\n")


def sha1(text):
    return hashlib.sha1(text.encode()).hexdigest()


def wait_until(condition, seconds=20):
    deadline = time.monotonic() + seconds * TIME_SCALE
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.005)


def info(conn, name):
    for line in conn.cmd("INFO", "everything").decode().splitlines():
        if line.startswith(name + ":"):
            return int(line.split(":")[1])
    raise AssertionError("INFO has no " + name)


def failed(text, script, line=1):
    """The error reply of a script."""
    return "%s script: %s, on @user_script:%d." % (text, sha1(script), line)


# --- replies ---

@pytest.mark.kvik_only
def test_scripts_answer_as_redis_does(server, redis_server):
    """The file has scripts of all kinds: errors, conversions, the sandbox, libraries, flags. Each runs
    on both servers in both protocols, and the replies are the same bytes."""
    pairs = [(server.raw(), redis_server.raw()) for _ in (2, 3)]
    for conn in pairs[1]:
        conn.hello3()
    for ours, theirs in pairs[:1]:
        for conn in (ours, theirs):
            conn.cmd("FLUSHALL")
            conn.cmd("SCRIPT", "FLUSH")
            conn.cmd("LPUSH", "k", "1")
            conn.cmd("ZADD", "z", "1.5", "a")
    for script in SCRIPTS:
        script = script.strip("\n")
        for ours, theirs in pairs:
            for conn in (ours, theirs):
                conn.send_cmd("EVAL", script, "0")
            assert ours.read_bytes() == theirs.read_bytes(), script
    for ours, theirs in pairs:
        ours.close()
        theirs.close()


def test_keys_and_arguments_are_handed_over(raw):
    script = "return {KEYS[1], KEYS[2], ARGV[1], ARGV[2], #KEYS, #ARGV}"
    assert raw.cmd("EVAL", script, "2", "a", "b", "c", b"\x00\xff\r\n") == \
        [b"a", b"b", b"c", b"\x00\xff\r\n", 2, 2]
    assert raw.cmd("EVAL", "return {#KEYS, #ARGV}", "0") == [0, 0]
    assert raw.cmd("EVAL", "return #ARGV", "0", *["x"] * 5000) == 5000


def test_wrong_numbers_of_keys_are_refused(raw):
    assert raw.cmd("EVAL", "return 1", "x") == Error(
        b"ERR value is not an integer or out of range")
    assert raw.cmd("EVAL", "return 1", "2", "a") == Error(
        b"ERR Number of keys can't be greater than number of args")
    assert raw.cmd("EVAL", "return 1", "-1") == Error(b"ERR Number of keys can't be negative")
    assert raw.cmd("EVALSHA", "g" * 40, "-1") == Error(b"ERR Number of keys can't be negative")


def test_a_script_is_known_by_its_digest(raw):
    script = "return ARGV[1]"
    missing = Error(b"NOSCRIPT No matching script. Please use EVAL.")
    raw.cmd("SCRIPT", "FLUSH")
    assert raw.cmd("EVALSHA", sha1(script), "0", "x") == missing
    assert raw.cmd("SCRIPT", "EXISTS", sha1(script), "x") == [0, 0]
    assert raw.cmd("SCRIPT", "LOAD", script) == sha1(script).encode()
    assert raw.cmd("EVALSHA", sha1(script), "0", "x") == b"x"
    assert raw.cmd("EVALSHA", sha1(script).upper(), "0", "y") == b"y"
    assert raw.cmd("SCRIPT", "EXISTS", "x", sha1(script), sha1(script).upper()) == [0, 1, 1]
    assert raw.cmd("SCRIPT", "FLUSH", "ASYNC") == b"OK"
    assert raw.cmd("EVALSHA", sha1(script), "0", "x") == missing
    assert raw.cmd("EVALSHA", "short", "0") == missing
    assert raw.cmd("EVAL", script, "0", "z") == b"z"
    assert raw.cmd("EVALSHA", sha1(script), "0", "x") == b"x"
    for words in (["X"], ["ASYNC", "x"]):
        assert raw.cmd("SCRIPT", "FLUSH", *words) == Error(
            b"ERR SCRIPT FLUSH only support SYNC|ASYNC option")
    assert raw.cmd("SCRIPT", "FLUSH", "SYNC") == b"OK"
    assert raw.cmd("SCRIPT", "KILL") == Error(b"NOTBUSY No scripts in execution right now.")


@pytest.mark.kvik_only
def test_the_text_of_a_script_is_shown(raw):
    digest = raw.cmd("SCRIPT", "LOAD", "return 77")
    assert raw.cmd("SCRIPT", "SHOW", digest) == b"return 77"
    assert raw.cmd("SCRIPT", "SHOW", "0" * 40) == Error(
        b"NOSCRIPT No matching script. Please use EVAL.")


@pytest.mark.kvik_only
def test_scripts_of_eval_are_forgotten_when_there_are_many(raw):
    raw.cmd("SCRIPT", "FLUSH")
    kept = raw.cmd("SCRIPT", "LOAD", "return 'kept'")
    evicted = info(raw, "evicted_scripts")
    used = "return 'used'"
    raw.cmd("EVAL", used, "0")
    for i in range(700):
        assert raw.cmd("EVAL", "return %d" % i, "0") == i
        assert raw.cmd("EVALSHA", sha1(used), "0") == b"used"
    assert raw.cmd("SCRIPT", "EXISTS", kept, sha1("return 0"), sha1("return 699")) == [1, 0, 1]
    assert info(raw, "number_of_cached_scripts") == 501
    assert info(raw, "evicted_scripts") - evicted == 201
    raw.cmd("SCRIPT", "FLUSH")
    assert info(raw, "used_memory_scripts") == 0


def test_a_database_that_a_script_selects_is_left_with_it(raw):
    raw.cmd("EVAL", "redis.call('select', 5) redis.call('set', 'a', 'five')", "0")
    assert raw.cmd("GET", "a") is None
    raw.cmd("SELECT", "5")
    assert raw.cmd("GET", "a") == b"five"


def test_the_protocol_that_a_script_sets_ends_with_it(raw):
    raw.cmd("HSET", "h", "f", "v")
    kind = "return type(redis.call('hgetall', 'h').map)"
    assert raw.cmd("EVAL", "redis.setresp(3) " + kind, "0") == b"table"
    assert raw.cmd("EVAL", kind, "0") == b"nil"


def test_reading_scripts_write_nothing(raw):
    write = "return redis.call('set', KEYS[1], '1')"
    text = "ERR Write commands are not allowed from read-only scripts."
    assert raw.cmd("EVAL_RO", write, "1", "a") == Error(failed(text, write).encode())
    assert raw.cmd("SET", "a", "x") == b"OK"
    assert raw.cmd("EVAL_RO", "return redis.call('get', KEYS[1])", "1", "a") == b"x"
    digest = raw.cmd("SCRIPT", "LOAD", write)
    assert raw.cmd("EVALSHA_RO", digest, "1", "a") == Error(failed(text, write).encode())
    assert raw.cmd("EVALSHA", digest, "1", "a") == b"OK"


def test_large_replies_go_both_ways(raw):
    raw.cmd("SET", "big", b"v" * 300000)
    assert raw.cmd("EVAL", "return redis.call('get', KEYS[1])", "1", "big") == b"v" * 300000
    raw.cmd("RPUSH", "l", *["item-%d" % i for i in range(20000)])
    assert raw.cmd("EVAL", "return #redis.call('lrange', KEYS[1], 0, -1)", "1", "l") == 20000
    got = raw.cmd("EVAL", "return redis.call('lrange', KEYS[1], 0, -1)", "1", "l")
    assert got == [b"item-%d" % i for i in range(20000)]


def test_many_commands_in_one_script(raw):
    script = "for i = 1, 30000 do redis.call('incr', KEYS[1]) end return redis.call('get', KEYS[1])"
    assert raw.cmd("EVAL", script, "1", "n") == b"30000"


# --- together with other commands ---

def test_scripts_in_a_transaction(raw):
    raw.cmd("MULTI")
    raw.cmd("SET", "a", "1")
    raw.cmd("EVAL", "return redis.call('incr', KEYS[1])", "1", "a")
    raw.cmd("EVAL", "return redis.call('incr', 'b')", "0")
    raw.cmd("EVAL", "error('x')", "0")
    raw.cmd("GET", "a")
    got = raw.cmd("EXEC")
    assert got[:3] == [b"OK", 2, 1] and got[4] == b"2"
    assert got[3] == Error(failed("ERR user_script:1: x", "error('x')").encode())


def test_a_script_touches_watched_keys(raw, connect):
    other = connect()
    raw.cmd("SET", "a", "1")
    raw.cmd("WATCH", "a")
    other.cmd("EVAL", "redis.call('set', 'a', '2')", "0")
    raw.cmd("MULTI")
    raw.cmd("PING")
    assert raw.cmd("EXEC") is None


def test_who_waits_is_served_after_the_script(raw, connect):
    waiters = [connect() for _ in range(3)]
    for waiter in waiters:
        waiter.send_cmd("BLPOP", "q", "0")
        wait_until(lambda: info(raw, "blocked_clients") == waiters.index(waiter) + 1)
    script = ("redis.call('rpush', 'q', 'a', 'b') redis.call('lpop', 'q') "
              "redis.call('rpush', 'q', 'c', 'd') return redis.call('llen', 'q')")
    assert raw.cmd("EVAL", script, "0") == 3
    assert [w.read() for w in waiters] == [[b"q", b"b"], [b"q", b"c"], [b"q", b"d"]]


@pytest.mark.kvik_only
def test_nothing_blocks_in_a_script(raw):
    for words in ("'blpop', 'none', '0'", "'brpop', 'none', '0'", "'bzpopmin', 'none', '0'",
                  "'blmove', 'none', 'n2', 'left', 'left', '0'", "'blmpop', '0', '1', 'none', 'left'"):
        assert raw.cmd("EVAL", "return redis.call(%s)" % words, "0") is None


@pytest.mark.parametrize("declared", [True, False])
def test_scripts_are_atomic_on_all_cores(raw, connect, declared):
    """Transfers between accounts by scripts, beside transfers by MULTI, while others add them up."""
    names = ["acc:%d" % i for i in range(8)]
    raw.cmd("MSET", *[word for name in names for word in (name, "100")])
    transfer = ("local a, b = KEYS[1] or ARGV[1], KEYS[2] or ARGV[2] "
                "if tonumber(redis.call('get', a)) < 10 then return 0 end "
                "redis.call('decrby', a, 10) redis.call('incrby', b, 10) return 1")
    rounds = 150
    wrong = []

    def move(conn, seed):
        for i in range(rounds):
            a, b = names[(seed + i) % 8], names[(seed * 3 + i * 5 + 1) % 8]
            count = "2" if declared else "0"
            got = conn.cmd("EVAL", transfer, count, a, b)
            if got not in (0, 1):
                wrong.append(got)

    def add_up(conn):
        for _ in range(rounds):
            total = sum(int(x) for x in conn.cmd("MGET", *names))
            if total != 800:
                wrong.append(total)

    def plain(conn, seed):
        for i in range(rounds * 3):
            conn.cmd("INCR", "other:%d" % (i % 16))
            conn.cmd("MULTI")
            conn.cmd("DECRBY", names[seed % 8], "1")
            conn.cmd("INCRBY", names[(seed + i) % 8], "1")
            conn.cmd("EXEC")

    threads = [threading.Thread(target=move, args=(connect(), i)) for i in range(4)]
    threads += [threading.Thread(target=add_up, args=(connect(),)) for _ in range(2)]
    threads += [threading.Thread(target=plain, args=(connect(), i)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert sum(int(x) for x in raw.cmd("MGET", *names)) == 800


def test_undeclared_keys_meet_exclusive_commands(raw, connect):
    """Upgrading scripts beside commands that wait for the gate: nobody is left behind."""
    script = ("for i = 1, 20 do redis.call('incr', 'k' .. (i * ARGV[1]) % 50) end "
              "return redis.call('dbsize')")
    texts = [script + " -- %d" % i for i in range(40)]

    def run(conn, seed):
        for i, text in enumerate(texts):
            assert conn.cmd("EVAL", text, "1", "declared:%d" % i, str(seed + 1)) > 0

    def exclusive(conn):
        for _ in range(60):
            conn.cmd("DBSIZE")
            conn.cmd("KEYS", "nothing*")
            conn.cmd("CONFIG", "GET", "maxclients")

    threads = [threading.Thread(target=run, args=(connect(), i)) for i in range(3)]
    threads += [threading.Thread(target=exclusive, args=(connect(),)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    total = sum(int(raw.cmd("GET", key)) for key in raw.cmd("KEYS", "k*"))
    assert total == 3 * 40 * 20


@pytest.mark.kvik_only
@pytest.mark.timeout(120)
def test_scripts_that_become_alone_beside_parked_commands(start_server):
    """Pipelines that are parked at the gate, scripts of new texts that close and open it, and commands
    that need it: the latter always come to their end."""
    server = start_server(threads=2)
    done = threading.Event()

    def pipelines(seed):
        r = random.Random(seed)
        with server.raw(timeout=60) as conn:
            while not done.is_set():
                keys = [["k%d" % r.randrange(10**6) for _ in range(r.choice((1, 10)))] for _ in range(200)]
                conn.send(b"".join(encode("MSET", *sum(([k, "v"] for k in some), [])) for some in keys))
                for _ in keys:
                    assert conn.read() == b"OK"

    def scripts(seed):
        r = random.Random(seed)
        with server.raw(timeout=60) as conn:
            for i in itertools.count():
                if done.is_set():
                    break
                text = "return redis.call('set', 'u%d', 'x') -- %d %d" % (r.randrange(10**6), seed, i)
                assert conn.cmd("EVAL", text, 0) == b"OK"

    threads = [threading.Thread(target=pipelines, args=(i,)) for i in range(4)]
    threads += [threading.Thread(target=scripts, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    try:
        with server.raw(timeout=20 * TIME_SCALE) as conn, server.raw(timeout=20 * TIME_SCALE) as other:
            conns = (conn, other)
            for one in conns:
                one.send_cmd("DBSIZE")
            for _ in range(150 if TIME_SCALE >= 4 else 800):
                for one in conns:
                    assert one.read() >= 0
                    one.send_cmd("DBSIZE")
    finally:
        done.set()
        for thread in threads:
            thread.join()


@pytest.mark.kvik_only
def test_what_a_script_needs_of_all_workers(raw):
    """Commands that stop the others, called by a script with and without declared keys."""
    for keys in (["0"], ["1", "a"]):
        assert raw.cmd("EVAL", "return #redis.call('info', 'clients') > 0", *keys) == 1
        assert raw.cmd("EVAL", "redis.call('flushall') return redis.call('dbsize')", *keys) == 0
        assert raw.cmd("EVAL", "redis.call('set', 'x', 1) return redis.call('randomkey')",
                       *keys) == b"x"


# --- persistence ---

@pytest.mark.kvik_only
def test_effects_go_to_the_log_as_one_transaction(start_server):
    server = start_server("--appendonly", "yes", "--appendfsync", "always")
    with server.raw() as raw:
        raw.cmd("EVAL", "redis.call('set', KEYS[1], '1') redis.call('get', 'x') "
                        "redis.call('incr', KEYS[1]) redis.call('sadd', 's', 'm')", "1", "a")
        raw.cmd("EVAL", "redis.call('get', 'a')", "0")
        raw.cmd("EVAL", "redis.call('select', 3) redis.call('set', 'b', '1')", "0")
        raw.cmd("MULTI")
        raw.cmd("SET", "c", "1")
        raw.cmd("EVAL", "redis.call('incr', 'c')", "0")
        raw.cmd("EXEC")
    log = b"".join(p.read_bytes() for p in sorted((server.dir / "appendonlydir").iterdir())
                   if p.suffix == ".aof" and ".incr." in p.name)
    words = [w for w in log.split(b"\r\n") if w and w[:1] not in b"*$"]
    assert words == [b"SELECT", b"0", b"MULTI", b"set", b"a", b"1", b"incr", b"a", b"sadd", b"s",
                     b"m", b"EXEC", b"SELECT", b"3", b"MULTI", b"set", b"b", b"1", b"EXEC",
                     b"SELECT", b"0", b"MULTI", b"SET", b"c", b"1", b"incr", b"c", b"EXEC"]


@pytest.mark.kvik_only
def test_a_script_that_writes_more_than_the_ring_holds(start_server):
    server = start_server("--appendonly", "yes")
    with server.raw() as raw:
        script = "local v = string.rep('x', 60000) for i = 1, 1000 do redis.call('set', 'k' .. i, v) end"
        for keys in (["0"], ["1", "k1"]):
            assert raw.cmd("EVAL", script, *keys) is None
        assert raw.cmd("DBSIZE") == 1000
    server.process.terminate()
    assert server.wait() == 0
    server.launch()
    server.wait_ready()
    with server.raw() as raw:
        assert raw.cmd("DBSIZE") == 1000
        assert raw.cmd("STRLEN", "k1000") == 60000


# --- limits ---

class Running:
    """A script that runs on a connection of its own."""

    def __init__(self, server, script, *words):
        self.conn = server.raw()
        self.conn.send_cmd("EVAL", script, *(words or ("0",)))

    def result(self):
        reply = self.conn.read()
        self.conn.close()
        return reply


def wait_busy(conn):
    """A command that needs everything is refused once the script is busy."""
    wait_until(lambda: conn.cmd("DBSIZE") == Error(BUSY.encode()))


@pytest.fixture(scope="module")
def impatient():
    from process import Server
    server = Server("--busy-reply-threshold", "50", "--enable-debug-command", "yes")
    yield server
    server.stop()


def test_a_busy_script_is_killed(impatient):
    loops = ["while true do end",
             "while true do pcall(function() while true do end end) end",
             "while true do xpcall(function() while true do end end, function() while true do end end)"
             " end",
             "while true do coroutine.resume(coroutine.create(function() while true do end end)) end",
             "local function chain(n) return coroutine.create(function() while n == 0 do end "
             "while true do coroutine.resume(chain(n - 1)) end end) end coroutine.resume(chain(3))",
             "while true do redis.call('lrange', 'long', 0, -1) end",
             "while true do redis.pcall('lrange', 'long', 0, -1) end",
             "while true do redis.call('get', 'x') end",
             "while true do redis.pcall('nosuch') end",
             "while true do pcall(redis.call, 'incr') end"]
    with impatient.raw() as conn:
        conn.cmd("RPUSH", "long", *["item-%d" % i for i in range(50000)])
        for loop in loops:
            running = Running(impatient, loop)
            wait_busy(conn)
            assert conn.cmd("SCRIPT", "KILL") == b"OK"
            got = running.result()
            assert got.text.decode().startswith(KILLED) or \
                got.text.decode().startswith("ERR error in error handling"), got
            assert conn.cmd("PING") == b"PONG"
            assert conn.cmd("EVAL", "return 1", "0") == 1
        conn.cmd("DEL", "long")


def test_what_is_answered_while_a_script_is_busy(impatient):
    with impatient.raw() as conn, impatient.raw() as other:
        running = Running(impatient, "while true do end")
        wait_busy(conn)
        for line in ("INFO", "CONFIG GET x", "SCRIPT EXISTS x", "EVAL return_1 0", "SHUTDOWN",
                     "DBSIZE", "FLUSHALL"):
            assert conn.cmd(*line.split()) == Error(BUSY.encode()), line
        assert conn.cmd("NOSUCH").code == b"ERR"
        assert conn.cmd("GET").text == b"ERR wrong number of arguments for 'get' command"
        assert isinstance(conn.cmd("HELLO", "2"), list)
        assert conn.cmd("MULTI") == b"OK"
        conn.cmd("DBSIZE")
        assert conn.cmd("EXEC").text == b"EXECABORT Transaction discarded because of: " + \
            BUSY.encode()
        assert conn.cmd("RESET") == b"RESET"
        # A connection that comes now, one in the middle of a pipeline, one that goes.
        with impatient.raw() as late:
            assert late.cmd("DBSIZE") == Error(BUSY.encode())
        other.send_cmd("DBSIZE")
        other.send_cmd("MULTI")
        other.send_cmd("DISCARD")
        assert other.read() == Error(BUSY.encode())
        assert other.read() == b"OK" and other.read() == b"OK"
        assert conn.cmd("SCRIPT", "KILL") == b"OK"
        assert running.result().text.decode().startswith(KILLED)
        assert other.cmd("SET", "a", "b") == b"OK"
        assert conn.cmd("GET", "a") == b"b"


def test_a_script_that_has_written_is_not_killed(impatient):
    script = ("redis.call('set', 'go', '1') local n = 0 "
              "while tonumber(redis.call('time')[1]) < tonumber(ARGV[1]) do n = n + 1 end "
              "return redis.call('incr', 'go')")
    with impatient.raw() as conn:
        now = int(conn.cmd("TIME")[0])
        running = Running(impatient, script, "0", str(now + 2 + TIME_SCALE))
        wait_busy(conn)
        assert conn.cmd("SCRIPT", "KILL").code == b"UNKILLABLE"
        assert running.result() == 2
        assert conn.cmd("GET", "go") == b"2"


def test_a_forced_shutdown_ends_a_script_that_has_written(start_server):
    server = start_server("--busy-reply-threshold", "50")
    with server.raw() as conn:
        Running(server, "redis.call('set', 'a', '1') while true do end")
        wait_busy(conn)
        assert conn.cmd("SCRIPT", "KILL").code == b"UNKILLABLE"
        conn.send_cmd("SHUTDOWN", "NOSAVE")
        wait_until(lambda: not server.alive())


def test_a_shutdown_that_is_refused_ends_no_script(impatient):
    script = ("redis.call('set', 'go', '1') while redis.call('time')[1] < ARGV[1] do end "
              "return redis.call('incr', 'go')")
    with impatient.raw() as conn:
        running = Running(impatient, script, "0", str(int(conn.cmd("TIME")[0]) + 2 + TIME_SCALE))
        wait_busy(conn)
        for words in (["NOSAVE", "SAVE"], ["NOSAVE", "x"], ["NOSAVE", "ABORT"]):
            assert isinstance(conn.cmd("SHUTDOWN", *words), Error)
        assert conn.cmd("MULTI") == b"OK"
        assert conn.cmd("SHUTDOWN", "NOSAVE") == Error(
            b"ERR Command not allowed inside a transaction")
        assert running.result() == 2
        assert conn.cmd("DISCARD") == b"OK"


def test_a_transaction_is_queued_beside_a_busy_script(impatient):
    with impatient.raw() as conn, impatient.raw() as other:
        running = Running(impatient, "while true do end")
        wait_busy(conn)
        assert other.cmd("MULTI") == b"OK"
        assert other.cmd("UNWATCH") == b"QUEUED"
        assert other.cmd("SCRIPT", "KILL") == b"QUEUED"
        assert conn.cmd("DBSIZE") == Error(BUSY.encode())
        assert conn.cmd("SCRIPT", "KILL") == b"OK"
        assert running.result().text.decode().startswith(KILLED)
        assert other.cmd("EXEC") == [b"OK", Error(b"NOTBUSY No scripts in execution right now.")]


@pytest.mark.kvik_only
@pytest.mark.parametrize("script", [
    "local t = {} for i = 1, 100 do t[i] = t end return cmsgpack.pack(t)",
    "local t = {} for i = 1, 60 do t = {t, t} end return cjson.encode(t)",
])
def test_a_library_that_does_not_end_is_killed(start_server, script):
    server = start_server("--busy-reply-threshold", "50", "--script-memory-limit", "4gb", threads=1)
    with server.raw() as conn:
        running = Running(server, script)
        wait_busy(conn)
        assert conn.cmd("SCRIPT", "KILL") == b"OK"
        assert running.result().text.decode().startswith(KILLED)


@pytest.mark.kvik_only
def test_a_key_that_is_due_is_watched_beside_a_busy_script(start_server):
    server = start_server("--busy-reply-threshold", "50", "--appendonly", "yes", threads=1)
    with server.raw() as conn:
        conn.cmd("SET", "k", "v", "PX", "400")
        due = time.monotonic() + 0.45
        running = Running(server, "while true do end")
        wait_busy(conn)
        wait_until(lambda: time.monotonic() > due)
        assert conn.cmd("WATCH", "k") == b"OK"
        assert conn.cmd("SCRIPT", "KILL") == b"OK"
        assert running.result().text.decode().startswith(KILLED)
        wait_until(lambda: conn.cmd("DBSIZE") == 0)
        assert conn.cmd("GET", "k") is None


@pytest.mark.kvik_only
def test_messages_to_the_client_of_a_busy_script(start_server):
    """Replies that it has and messages that come meanwhile: all are sent, in their order, when the
    script has ended, with an error."""
    server = start_server("--busy-reply-threshold", "50", threads=4)
    with server.raw() as reader:
        conns = [server.raw() for _ in range(8)]
        reader.hello3()
        reader.cmd("SUBSCRIBE", "ch")
        echo = encode("ECHO", "y" * 100) * 20
        reader.send(echo + encode("EVAL", "while true do end", 0) + encode("PING"))
        wait_busy(conns[0])
        sent = 0
        for _ in range(20):
            for conn in conns:
                sent += conn.cmd("PUBLISH", "ch", "m%d" % sent) == 1
                assert conn.cmd("DBSIZE") == Error(BUSY.encode())
        assert sent > 0
        assert conns[0].cmd("SCRIPT", "KILL") == b"OK"
        assert [reader.read() for _ in range(20)] == [b"y" * 100] * 20
        assert reader.read().text.decode().startswith(KILLED)
        got = [reader.read() for _ in range(sent + 1)]
        assert [m[2] for m in got if isinstance(m, list)] == [b"m%d" % i for i in range(sent)]
        assert got.count(b"PONG") == 1
        assert reader.cmd("PING") == b"PONG"
        for conn in conns:
            conn.close()


@pytest.mark.kvik_only
def test_messages_to_the_client_of_a_busy_script_are_bounded(start_server):
    server = start_server("--busy-reply-threshold", "50", "--client-output-buffer-limit",
                          "pubsub 1mb 0 0", threads=4)
    with server.raw() as reader:
        conns = [server.raw() for _ in range(8)]
        reader.hello3()
        reader.cmd("SUBSCRIBE", "ch")
        reader.send_cmd("EVAL", "while true do end", 0)
        wait_busy(conns[0])

        def closed():
            for conn in conns:
                conn.cmd("PUBLISH", "ch", "m" * 100000)
            return "passing the output buffer limits" in server.log()

        wait_until(closed)
        assert conns[0].cmd("SCRIPT", "KILL") == b"OK"
        wait_until(lambda: conns[0].cmd("DBSIZE") == 0)
        wait_until(lambda: info(conns[0], "connected_clients") == len(conns))
        for conn in conns:
            conn.close()


@pytest.mark.kvik_only
def test_the_client_of_a_busy_script_keeps_its_words(start_server):
    """Others pass maxmemory-clients meanwhile, and the script's client is the largest."""
    server = start_server("--busy-reply-threshold", "50", "--maxmemory-clients", "400000", threads=1)
    with server.raw() as conn, server.raw() as largest:
        conn.cmd("CLIENT", "NO-EVICT", "ON")
        script = "local n while not n or redis.call('time')[1] < ARGV[1] do n = #ARGV[2] end return n"
        end = str(int(conn.cmd("TIME")[0]) + 3 + TIME_SCALE)
        largest.send_cmd("EVAL", script, 0, end, "z" * 250000)
        wait_busy(conn)
        others = [server.raw() for _ in range(4)]
        for other in others:
            other.send(encode("SET", "q", "w" * 200000)[:-1000])
            for _ in range(20):
                assert conn.cmd("DBSIZE") == Error(BUSY.encode())
        assert largest.read() == 250000
        assert largest.cmd("PING") == b"PONG"
        wait_until(lambda: info(conn, "evicted_clients") >= 1)
        for other in others:
            other.close()


@pytest.mark.kvik_only
def test_plain_commands_go_on_beside_a_busy_script(start_server):
    server = start_server("--busy-reply-threshold", "50", threads=4)
    with server.raw() as conn:
        running = Running(server, "redis.call('get', KEYS[1]) while true do end", "1", "mine")
        wait_busy(conn)
        conns = [server.raw() for _ in range(12)]
        answers = [c.cmd("SET", "key:%d" % i, "x") for i, c in enumerate(conns)]
        # Those of the script's own worker are refused, and keys on the shard of the script's.
        assert answers.count(b"OK") >= 6, answers
        assert all(a in (b"OK", Error(BUSY.encode())) for a in answers)
        for c in conns:
            assert c.cmd("GET", "mine") == Error(BUSY.encode())
            c.close()
        assert conn.cmd("SCRIPT", "KILL") == b"OK"
        assert running.result().text.decode().startswith(KILLED)
        assert conn.cmd("GET", "mine") is None


@pytest.mark.kvik_only
def test_memory_of_scripts_is_bounded(start_server):
    server = start_server("--script-memory-limit", "16mb")
    with server.raw() as raw:
        for script in ("local t = {} for i = 1, 1e9 do t[i] = {i} end",
                       "local s = 'x' while true do s = s .. s end",
                       "return string.rep('x', 2^30)",
                       "local t = {} for i = 1, 1e9 do t[i] = tostring(i):rep(50) end",
                       "local t = {} for i = 1, 1e9 do pcall(function() t[#t + 1] = {} end) "
                       "if #t > 10 and i > 2e6 then error('enough') end end"):
            got = raw.cmd("EVAL", script, "0")
            assert got.text.startswith(b"ERR not enough memory") or b"enough" in got.text, got
            assert raw.cmd("EVAL", "return redis.call('incr', 'n')", "0") > 0
        raw.cmd("SET", "big", b"x" * (12 << 20))
        got = raw.cmd("EVAL", "local a = redis.call('get', 'big') return redis.call('get', 'big')..a",
                      "0")
        assert got.text.startswith(b"ERR not enough memory")
        assert raw.cmd("EVAL", "return redis.call('strlen', 'big')", "0") == 12 << 20
        raw.cmd("SCRIPT", "FLUSH")
        assert info(raw, "used_memory_scripts") == 0
        assert raw.cmd("CONFIG", "SET", "script-memory-limit", "0") == b"OK"
        assert len(raw.cmd("EVAL", "return redis.call('get', 'big')..'x'", "0")) == (12 << 20) + 1


def test_recursion_ends(raw):
    for script in ("local function f() return 1 + f() end return f()",
                   "local t = {} for i = 1, 100000 do t = {t} end return 1",
                   "local t = {} for i = 1, 190 do t = setmetatable({}, {__index = t}) end return t.x",
                   "local f f = function() return pcall(f) end return type(f())",
                   "local s = string.rep('(', 250) return loadstring(s .. '1')",
                   "local f f = function(n) return coroutine.wrap(f)(n + 1) end return f(1)"):
        raw.cmd("EVAL", script, "0")
        assert raw.cmd("PING") == b"PONG"


@pytest.mark.kvik_only
def test_a_reply_that_contains_itself_has_an_end(raw):
    raw.send_cmd("EVAL", "local t = {} t[1] = t return t", "0")
    raw.send_cmd("PING")
    seen = b""
    while not seen.endswith(b"+PONG\r\n"):
        seen += raw.sock.recv(65536)
    assert seen.count(b"*1\r\n") > 1000
    assert seen.endswith(b"-ERR reached lua stack limit\r\n+PONG\r\n")


@pytest.mark.kvik_only
def test_a_reply_that_contains_itself_twice_has_an_end(raw):
    for script in ("local t = {} t[1] = t t[2] = t return t",
                   "local t = {} t.map = {a = t, b = t} return t",
                   "local s, t = string.rep('x', 1000000), {} for i = 1, 1000 do t[i] = s end return t"):
        assert raw.cmd("EVAL", script, "0") == Error(
            b"ERR reply is too large script: " + sha1(script).encode())
    assert raw.cmd("EVAL", "local t = {'x'} for i = 1, 1000 do t[i + 1] = {t[1], t[1]} end return #t",
                   "0") == 1001
    many = "local t, r = {}, {} for i = 1, 1000 do t[i] = i end for i = 1, 300 do r[i] = t end return r"
    assert raw.cmd("EVAL", many, "0") == [list(range(1, 1001))] * 300


@pytest.mark.kvik_only
def test_patterns_are_bounded(raw):
    script = "return string.find(string.rep('a', 50000), string.rep('a?', 40000))"
    assert raw.cmd("EVAL", script, "0") == Error(
        failed("ERR user_script:1: pattern too complex", script).encode())


def test_out_of_memory_is_judged_by_what_a_script_does(start_server):
    server = start_server()
    oom = "OOM command not allowed when used memory > 'maxmemory'."
    with server.raw() as raw:
        raw.cmd("SET", "x", "1")
        raw.cmd("CONFIG", "SET", "maxmemory", "1")
        write = "return redis.call('set', 'x', '2')"
        assert raw.cmd("EVAL", write, "0") == Error(failed(oom, write).encode())
        assert raw.cmd("EVAL", "return redis.call('get', 'x')", "0") == b"1"
        for text, expected in (("#!lua\nreturn redis.call('get', 'x')", Error(oom.encode())),
                               ("#!lua flags=no-writes\nreturn redis.call('get', 'x')", b"1"),
                               ("#!lua flags=allow-oom\n" + write, b"OK"),
                               ("redis.call('del', 'x') " + write, b"OK")):
            assert raw.cmd("EVAL", text, "0") == expected, text
        raw.cmd("CONFIG", "SET", "maxmemory", "0")


def test_out_of_memory_concerns_scripts_in_a_transaction(start_server):
    server = start_server()
    oom = Error(b"OOM command not allowed when used memory > 'maxmemory'.")
    write = "return redis.pcall('set', KEYS[1], 'x')"
    with server.raw() as raw, server.raw() as other:
        raw.cmd("MULTI")
        for key in "ab":
            assert raw.cmd("EVAL", write, 1, key) == b"QUEUED"
        other.cmd("CONFIG", "SET", "maxmemory", "1")
        assert raw.cmd("EXEC") == [oom, oom]
        other.cmd("CONFIG", "SET", "maxmemory", "0")
        assert raw.cmd("DBSIZE") == 0
        raw.cmd("MULTI")
        raw.cmd("EVAL", write, 1, "a")
        assert raw.cmd("EXEC") == [b"OK"]
        assert raw.cmd("EVAL", write, 1, "b") == b"OK"


# --- statistics ---

def test_commands_of_scripts_are_counted(raw):
    raw.cmd("CONFIG", "RESETSTAT")
    raw.cmd("EVAL", "for i = 1, 5 do redis.call('set', 'a', i) end redis.pcall('incr', 'a', 'b')", "0")
    stats = raw.cmd("INFO", "commandstats").decode()
    assert "cmdstat_set:calls=5," in stats
    assert "cmdstat_eval:calls=1," in stats


def test_a_slow_script_is_one_entry_of_the_slow_log(raw):
    raw.cmd("CONFIG", "SET", "slowlog-log-slower-than", "0")
    raw.cmd("SLOWLOG", "RESET")
    script = "local n = 0 for i = 1, 100000 do n = n + 1 end return n"
    raw.cmd("EVAL", script, "0")
    entries = [e for e in raw.cmd("SLOWLOG", "GET", "10") if e[3][0] == b"EVAL"]
    raw.cmd("CONFIG", "SET", "slowlog-log-slower-than", "10000")
    assert len(entries) == 1 and entries[0][3] == [b"EVAL", script.encode(), b"0"]


@pytest.mark.kvik_only
def test_large_commands_of_scripts_are_logged(raw):
    script = "redis.call('mset', 'a', string.rep('v', 200000), 'b', 'c') return redis.call('get', 'b')"
    raw.cmd("CONFIG", "SET", "commandlog-request-larger-than", "100000")
    raw.cmd("COMMANDLOG", "RESET", "large-request")
    assert raw.cmd("EVAL", script, "0") == b"c"
    entries = raw.cmd("COMMANDLOG", "GET", "-1", "large-request")
    raw.cmd("CONFIG", "SET", "commandlog-request-larger-than", "1048576")
    assert [e[3][0] for e in entries] == [b"mset"]


# --- permissions ---

DENIED = "ERR The user executing the script can't %s"


@pytest.fixture
def bob(raw, connect):
    """A connection whose user may run scripts, read a* and publish to c*."""
    assert raw.cmd("ACL", "SETUSER", "bob", "reset", "on", ">pw", "~a*", "resetchannels", "&c*", "+eval",
            "+get", "+mget", "+publish", "+acl|whoami") == b"OK"
    conn = connect()
    assert conn.cmd("AUTH", "bob", "pw") == b"OK"
    yield conn
    raw.cmd("ACL", "DELUSER", "bob")


@pytest.mark.parametrize("call,text", [
    ("'set', 'a', '1'", "run this command or subcommand"),
    ("'get', 'b'", "access at least one of the keys mentioned in the command arguments"),
    ("'mget', 'a', 'b'", "access at least one of the keys mentioned in the command arguments"),
    ("'publish', 'd', 'x'", "publish to the channel mentioned in the command"),
])
def test_a_script_may_do_what_its_user_may(raw, bob, call, text):
    denied = (DENIED % text).encode()
    assert bob.cmd("EVAL", "return redis.pcall(%s)" % call, 0) == Error(denied)
    assert denied in bob.cmd("EVAL", "return redis.call(%s)" % call, 0).text
    assert bob.cmd("EVAL", "return redis.pcall('get', 'a')", 0) is None
    assert bob.cmd("EVAL", "return redis.pcall('publish', 'c1', 'x')", 0) == 0
    entry = raw.cmd("ACL", "LOG", 1)[0]
    assert entry[entry.index(b"context") + 1] == b"lua"
    assert raw.cmd("EVAL", "return redis.pcall(%s)" % call, 0) != Error(denied)
    raw.cmd("DEL", "a")


@pytest.mark.parametrize("words,allowed", [
    ("'get'", 1), ("'get', 'a'", 1), ("'get', 'b'", None), ("'mget', 'a', 'b'", None),
    ("'acl', 'whoami'", 1), ("'acl', 'users'", None), ("'set', 'a', 1", None),
    ("'publish', 'c', 'x'", 1), ("'publish', 'd', 'x'", None),
])
def test_a_script_can_ask_what_it_may_do(raw, bob, words, allowed):
    script = "return redis.acl_check_cmd(%s)" % words
    assert bob.cmd("EVAL", script, 0) == allowed
    assert raw.cmd("EVAL", script, 0) == 1
