#!/usr/bin/python3
"""Functions: libraries and what they may do while they load, calls, lists, payloads, being busy; and
that they are saved, loaded and passed on to the log."""
import time

import pytest

from process import REFERENCE, TIME_SCALE, Server
from raw import Error

NAMES = (b"ERR Library names can only contain letters, numbers, or underscores(_) and must be at least "
         b"one character long")
BUSY = b"BUSY Redis is busy running a script. You can only call %s KILL or SHUTDOWN NOSAVE."
REGISTERING = b"ERR Error registering functions: "
NO_GLOBAL = b"ERR user_function:2: Script attempted to access nonexistent global variable '%s'"
READ_ONLY = b"ERR user_function:2: Attempt to modify a readonly table"
F = "redis.register_function('f', function() return 1 end)"


def library(body, name="l"):
    return "#!lua name=%s\n%s" % (name, body)


def one(name, function, body="return 1"):
    return library("redis.register_function('%s', function(keys, args) %s end)" % (function, body), name)


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


def names(conn):
    """Names of the libraries and of their functions."""
    return {entry[1]: sorted(f[1] for f in entry[5]) for entry in conn.cmd("FUNCTION", "LIST")}


@pytest.fixture(autouse=True)
def no_functions(server):
    with server.raw() as conn:
        conn.cmd("FUNCTION", "FLUSH")


# --- loading ---

def test_the_first_line_names_the_library(raw):
    for text, error in [
            ("return 1", b"ERR Missing library metadata"),
            ("#!lua name=l", b"ERR Invalid library metadata"),
            ("#!lua\n" + F, b"ERR Library name was not given"),
            ("#!\n" + F, b"ERR Library name was not given"),
            ("#!lua name=\n" + F, NAMES), ("#!lua name=l-1\n" + F, NAMES),
            ("#! lua name=l\n" + F, b"ERR Invalid metadata value given: lua"),
            ("#!lua name=l flags=no-writes\n" + F, b"ERR Invalid metadata value given: flags=no-writes"),
            ("#!lua name=l name=m\n" + F,
             b"ERR Invalid metadata value, name argument was given multiple times"),
            ("#!js name=l\n" + F, b"ERR Engine 'js' not found"),
            ("#!lua name=l\n", b"ERR No functions registered"),
            ("#!lua name=l\nreturn +",
             b"ERR Error compiling function: user_function:2: unexpected symbol near '+'"),
            ("#!lua name=l\n\x1bLua",
             b"ERR Error compiling function: user_function:2: unexpected symbol near 'char(27)'")]:
        assert raw.cmd("FUNCTION", "LOAD", text) == Error(error), text
    assert raw.cmd("FUNCTION", "LIST") == []
    for line in ("#!lua name=l", "#!LUA  name=l ", "#!lua NAME=l\r", '#!lua name="l"', "#!lua\tname='l'"):
        assert raw.cmd("FUNCTION", "LOAD", "REPLACE", line + "\n" + F) == b"l", line
    assert raw.cmd("FUNCTION", "LOAD", "FOO", library(F)) == Error(b"ERR Unknown option given: FOO")
    assert raw.cmd("FUNCTION", "LOAD", "replace", "REPLACE", library(F)) == b"l"


def test_what_a_library_may_register(raw):
    call = b" redis.register_function"
    for body, error in [
            ("()", b"ERR wrong number of arguments to" + call),
            ("('a', function() end, 1)", b"ERR wrong number of arguments to" + call),
            ("('a')", b"ERR calling redis.register_function with a single argument is only applicable to "
                      b"Lua table (representing named arguments)."),
            ("(nil, function() end)", b"ERR first argument to redis.register_function must be a string"),
            ("('a', 1)", b"ERR second argument to redis.register_function must be a function"),
            ("('a b', function() end)", NAMES), ("('', function() end)", NAMES),
            ("('a\\0b', function() end)", NAMES),
            ("{}", b"ERR redis.register_function must get a function name argument"),
            ("{function_name='a'}", b"ERR redis.register_function must get a callback argument"),
            ("{function_name={}}",
             b"ERR function_name argument given to redis.register_function must be a string"),
            ("{callback=1}",
             b"ERR callback argument given to redis.register_function must be a function"),
            ("{description={}}",
             b"ERR description argument given to redis.register_function must be a string"),
            ("{flags=1}", b"ERR flags argument to redis.register_function must be a table representing "
                          b"function flags"),
            ("{flags={'x'}}", b"ERR unknown flag given"), ("{flags={1}}", b"ERR unknown flag given"),
            ("{foo=1}", b"ERR unknown argument given to redis.register_function"),
            ("{'a'}", b"ERR unknown argument given to redis.register_function"),
            ("('a', function() end) redis.register_function('a', function() end)",
             b"ERR Function already exists in the library")]:
        got = raw.cmd("FUNCTION", "LOAD", library("redis.register_function" + body))
        assert got == Error(REGISTERING + error), body
    assert raw.cmd("FUNCTION", "LIST") == []
    flags = ["no-writes", "allow-oom", "allow-stale", "no-cluster", "allow-cross-slot-keys"]
    assert raw.cmd("FUNCTION", "LOAD", library(
        "redis.register_function(7, function() end) "
        "redis.register_function{FUNCTION_NAME='t', Callback=function() end, description='what it does', "
        "flags={'NO-WRITES', %s}}" % ", ".join("'%s'" % f for f in flags))) == b"l"
    (entry,) = raw.cmd("FUNCTION", "LIST")
    assert sorted(f[:4] for f in entry[5]) == \
        [[b"name", b"7", b"description", None], [b"name", b"t", b"description", b"what it does"]] or \
        sorted(f[1] for f in entry[5]) == [b"7", b"t"]
    (f,) = [f for f in entry[5] if f[1] == b"t"]
    assert sorted(f[5]) == sorted(flag.encode() for flag in flags)


@pytest.mark.kvik_only  # the reference ends when it replaces such a library
def test_names_of_functions_are_equal_in_any_case(raw):
    two = "redis.register_function('f', function() end) redis.register_function('F', function() end)"
    assert raw.cmd("FUNCTION", "LOAD", library(two)) == \
        Error(REGISTERING + b"ERR Function already exists in the library")
    assert raw.cmd("FUNCTION", "LOAD", one("l", "f")) == b"l"
    assert raw.cmd("FUNCTION", "LOAD", one("L", "F")) == Error(b"ERR Function F already exists")
    assert raw.cmd("FCALL", "F", 0) == 1


def test_what_a_library_sees_while_it_loads(raw):
    for body in ("redis.call('ping')", "redis.pcall('ping')", "redis.setresp(3)", "redis.sha1hex('x')",
                 "redis.error_reply('x')", "redis.set_repl(3)", "redis.nosuch()", "pcall()", "error('x')",
                 "local t = KEYS", "local t = _G", "math.random()", "cjson.encode({})", "print(1)",
                 "setmetatable({}, {})", "loadstring('x = 1')()", "nosuch()"):
        name = body.replace("local t = ", "").replace("redis.", "")
        name = name.split("(")[0].split(".")[0].encode()
        got = raw.cmd("FUNCTION", "LOAD", library(body + " " + F))
        assert got == Error(REGISTERING + NO_GLOBAL % name), body
    for body in ("x = 1", "function f() end", "redis.foo = 1", "redis.log = nil"):
        assert raw.cmd("FUNCTION", "LOAD", library(body + " " + F)) == \
            Error(REGISTERING + READ_ONLY), body
    assert raw.cmd("FUNCTION", "LOAD", library("redis.log(1) " + F)) == \
        Error(REGISTERING + b"ERR redis.log() requires two arguments or more.")
    assert raw.cmd("FUNCTION", "LOAD", library("local x = 1 + nil " + F)) == \
        Error(REGISTERING + b"ERR user_function:2: attempt to perform arithmetic on a nil value")
    body = ("local up = ('x'):upper() local v, n = redis.REDIS_VERSION, redis.REDIS_VERSION_NUM "
            "redis.log(redis.LOG_DEBUG, 'a line') redis.register_function('f', function() return up end)")
    assert raw.cmd("FUNCTION", "LOAD", library(body)) == b"l"
    assert raw.cmd("FCALL", "f", 0) == b"X"


@pytest.mark.kvik_only
def test_the_api_has_its_other_name(raw):
    body = "server.register_function('f', function() return server.call('echo', 'x') end)"
    assert raw.cmd("FUNCTION", "LOAD", library(body)) == b"l"
    assert raw.cmd("FCALL", "f", 0) == b"x"


def test_loading_takes_half_a_second_at_most(raw):
    begin = time.monotonic()
    assert raw.cmd("FUNCTION", "LOAD", library("while true do end")) == \
        Error(REGISTERING + b"ERR FUNCTION LOAD timeout")
    assert 0.4 < time.monotonic() - begin < 5 * TIME_SCALE
    assert raw.cmd("FUNCTION", "LOAD", one("l", "f")) == b"l"
    assert raw.cmd("FCALL", "f", 0) == 1


def test_a_load_that_fails_changes_nothing(raw):
    assert raw.cmd("FUNCTION", "LOAD", one("l", "f", "return 'old'")) == b"l"
    assert raw.cmd("FUNCTION", "LOAD", one("other", "g")) == b"other"
    before = raw.cmd("FUNCTION", "DUMP")
    assert raw.cmd("FUNCTION", "LOAD", one("l", "x")) == Error(b"ERR Library 'l' already exists")
    assert raw.cmd("FUNCTION", "LOAD", one("m", "F".lower())) == Error(b"ERR Function f already exists")
    for body in ("redis.register_function('x', function() end) nosuch()", "+", "",
                 "redis.register_function('x', function() end) "
                 "redis.register_function('g', function() end)"):
        assert isinstance(raw.cmd("FUNCTION", "LOAD", "REPLACE", library(body)), Error), body
    assert names(raw) == {b"l": [b"f"], b"other": [b"g"]}
    assert raw.cmd("FCALL", "f", 0) == b"old"
    assert raw.cmd("FCALL", "x", 0) == Error(b"ERR Function not found")
    assert raw.cmd("FUNCTION", "DUMP") == before
    assert raw.cmd("FUNCTION", "LOAD", "REPLACE", one("l", "x", "return 'new'")) == b"l"
    assert raw.cmd("FCALL", "f", 0) == Error(b"ERR Function not found")
    assert raw.cmd("FCALL", "x", 0) == b"new"
    assert raw.cmd("FUNCTION", "LOAD", one("m", "f")) == b"m"


# --- calls ---

def test_keys_and_arguments_are_parameters(raw):
    raw.cmd("FUNCTION", "LOAD", one("l", "f", "return {#keys, #args, keys[1], args[1]}"))
    assert raw.cmd("FCALL", "f", 1, "k", b"\x00\xff") == [1, 1, b"k", b"\x00\xff"]
    assert raw.cmd("FCALL", "F", 0, "a", "b") == [0, 2]
    assert raw.cmd("FCALL", "f", "x") == Error(b"ERR Bad number of keys provided")
    assert raw.cmd("FCALL", "f", "99999999999999999999") == Error(b"ERR Bad number of keys provided")
    assert raw.cmd("FCALL", "f", "-1") == Error(b"ERR Number of keys can't be negative")
    assert raw.cmd("FCALL", "f", "2", "a") == \
        Error(b"ERR Number of keys can't be greater than number of args")
    assert raw.cmd("FCALL", "nosuch", "x") == Error(b"ERR Function not found")
    assert raw.cmd("COMMAND", "GETKEYS", "FCALL", "f", "2", "a", "b", "c") == [b"a", b"b"]


def test_what_a_library_keeps_stays(raw):
    raw.cmd("FUNCTION", "LOAD", library(
        "local n = 0 redis.register_function('f', function() n = n + 1 return n end)"))
    assert [raw.cmd("FCALL", "f", 0) for _ in range(3)] == [1, 2, 3]
    assert raw.cmd("SCRIPT", "FLUSH") == b"OK"
    assert raw.cmd("FCALL", "f", 0) == 4


def test_errors_of_functions_name_them(raw):
    raw.cmd("SET", "k", "v")
    for body, error in [
            ("error('boom')", b"ERR user_function:2: boom script: f, on @user_function:2."),
            ("error({err='MY boom'})", b"MY boom script: f, on @user_function:2."),
            ("return redis.call('incr', keys[1])",
             b"ERR value is not an integer or out of range script: f, on @user_function:2."),
            ("return redis.error_reply('MY x')", b"MY x"),
            ("return redis.call('fcall', 'f', 0)",
             b"ERR This Redis command is not allowed from script script: f, on @user_function:2."),
            ("return redis.call('function', 'list')",
             b"ERR This Redis command is not allowed from script script: f, on @user_function:2."),
            ("x = 1", READ_ONLY + b" script: f, on @user_function:2."),
            ("return KEYS", NO_GLOBAL % b"KEYS" + b" script: f, on @user_function:2."),
            ("redis.register_function('g', function() end)",
             b"ERR user_function:2: attempt to call field 'register_function' (a nil value) script: f, on "
             b"@user_function:2.")]:
        assert raw.cmd("FUNCTION", "LOAD", "REPLACE", one("l", "f", body)) == b"l"
        assert raw.cmd("FCALL", "F", 1, "k") == Error(error), body
    assert raw.cmd("FUNCTION", "LOAD", "REPLACE", library(
        "local r = redis.register_function redis.register_function('f', function() r('g', r) end)")) == b"l"
    assert raw.cmd("FCALL", "f", 0).text.startswith(
        b"ERR redis.register_function can only be called on FUNCTION LOAD command script: f")
    assert raw.cmd("EVAL", "return type(redis.register_function)", 0) == b"nil"
    assert raw.cmd("EVAL", "return redis.call('fcall', 'f', 0)", 0).text.startswith(
        b"ERR This Redis command is not allowed from script")


def test_functions_that_only_read(raw):
    raw.cmd("SET", "k", "v")
    raw.cmd("FUNCTION", "LOAD", library(
        "redis.register_function{function_name='r', flags={'no-writes'}, callback=function(k) "
        "return redis.call('get', k[1]) end} "
        "redis.register_function{function_name='rw', flags={'no-writes'}, callback=function(k) "
        "return redis.call('set', k[1], 1) end} "
        "redis.register_function('w', function(k) return redis.call('get', k[1]) end)"))
    refused = b"ERR Write commands are not allowed from read-only scripts. script: rw, on @user_function:2."
    for call in ("FCALL", "FCALL_RO"):
        assert raw.cmd(call, "r", 1, "k") == b"v"
        assert raw.cmd(call, "rw", 1, "k") == Error(refused)
    assert raw.cmd("FCALL", "w", 1, "k") == b"v"
    assert raw.cmd("FCALL_RO", "w", 1, "k") == \
        Error(b"ERR Can not execute a script with write flag using *_ro command.")
    assert raw.cmd("GET", "k") == b"v"


def test_replies_in_both_protocols(raw):
    raw.cmd("HSET", "h", "f", "v")
    raw.cmd("FUNCTION", "LOAD", one("l", "f", "redis.setresp(3) return redis.call('hgetall', keys[1])"))
    assert raw.cmd("FCALL", "f", 1, "h") == [b"f", b"v"]
    raw.hello3()
    assert raw.cmd("FCALL", "f", 1, "h") == {b"f": b"v"}
    (entry,) = raw.cmd("FUNCTION", "LIST", "WITHCODE")
    assert entry[b"library_name"] == b"l" and entry[b"library_code"].startswith(b"#!lua name=l\n")
    assert raw.cmd("FUNCTION", "STATS") == {
        b"running_script": None,
        b"engines": {b"LUA": {b"libraries_count": 1, b"functions_count": 1}}}


def test_functions_in_transactions(raw, connect):
    raw.cmd("MULTI")
    raw.cmd("FUNCTION", "LOAD", one("l", "f", "return redis.call('incr', keys[1])"))
    raw.cmd("FCALL", "f", 1, "n")
    raw.cmd("FCALL", "f", 1, "n")
    raw.cmd("FUNCTION", "DELETE", "l")
    assert raw.cmd("EXEC") == [b"l", 1, 2, b"OK"]
    assert raw.cmd("FUNCTION", "LOAD", one("l", "f", "return redis.call('incr', keys[1])")) == b"l"
    other = connect()
    raw.cmd("WATCH", "n")
    assert other.cmd("FCALL", "f", 1, "n") == 3
    raw.cmd("MULTI")
    raw.cmd("PING")
    assert raw.cmd("EXEC") is None


def test_functions_without_memory(raw):
    raw.cmd("SET", "k", "v")
    raw.cmd("FUNCTION", "LOAD", library(
        "redis.register_function('w', function(k) return redis.call('set', k[1], 1) end) "
        "redis.register_function{function_name='r', flags={'no-writes'}, "
        "callback=function(k) return redis.call('get', k[1]) end} "
        "redis.register_function{function_name='o', flags={'allow-oom'}, "
        "callback=function(k) return redis.call('set', k[1], 1) end}"))
    refused = Error(b"OOM command not allowed when used memory > 'maxmemory'.")
    raw.cmd("CONFIG", "SET", "maxmemory", 1)
    try:
        assert raw.cmd("FCALL", "w", 1, "k") == refused
        assert raw.cmd("FCALL_RO", "w", 1, "k") == refused
        assert raw.cmd("FCALL", "r", 1, "k") == b"v"
        assert raw.cmd("FCALL_RO", "o", 1, "k") == \
            Error(b"ERR Can not execute a script with write flag using *_ro command.")
        assert raw.cmd("FCALL", "o", 1, "k") == b"OK"
        assert raw.cmd("FUNCTION", "LOAD", one("m", "g")) == refused
        payload = raw.cmd("FUNCTION", "DUMP")
        assert raw.cmd("FUNCTION", "RESTORE", payload, "FLUSH") == refused
        assert raw.cmd("FUNCTION", "DELETE", "l") == b"OK"
    finally:
        raw.cmd("CONFIG", "SET", "maxmemory", 0)


def test_what_users_may_call(raw, connect):
    raw.cmd("FUNCTION", "LOAD", library(
        "redis.register_function('s', function(k) return redis.call('set', k[1], 1) end) "
        "redis.register_function('g', function(k) return redis.call('get', 'b') end)"))
    raw.cmd("ACL", "SETUSER", "caller", "on", "nopass", "+fcall", "+get", "~a*")
    try:
        conn = connect()
        assert conn.cmd("AUTH", "caller", "x") == b"OK"
        assert conn.cmd("FCALL", "s", 1, "a").text == \
            b"ERR The user executing the script can't run this command or subcommand script: s, on " \
            b"@user_function:2."
        assert conn.cmd("FCALL", "g", 1, "a").text.startswith(
            b"ERR The user executing the script can't access at least one of the keys")
        assert conn.cmd("FCALL", "s", 1, "b").code == b"NOPERM"
        assert conn.cmd("FUNCTION", "LIST").code == b"NOPERM"
        assert conn.cmd("FCALL_RO", "g", 0).code == b"NOPERM"
    finally:
        raw.cmd("ACL", "DELUSER", "caller")


def test_monitors_see_the_call_and_what_it_runs(raw, connect):
    raw.cmd("FUNCTION", "LOAD", one("l", "f", "return redis.call('set', keys[1], 'v')"))
    monitor = connect()
    assert monitor.cmd("MONITOR") == b"OK"
    assert raw.cmd("FCALL", "f", 1, "k") == b"OK"
    first, second = monitor.read(), monitor.read()
    assert first.endswith(b'"FCALL" "f" "1" "k"'), first
    assert second.endswith(b'lua] "set" "k" "v"'), second


# --- looking and removing ---

def test_lists_show_libraries(raw):
    for name, function in (("la", "fa"), ("lb", "fb"), ("x", "fx")):
        assert raw.cmd("FUNCTION", "LOAD", one(name, function)) == name.encode()
    assert names(raw) == {b"la": [b"fa"], b"lb": [b"fb"], b"x": [b"fx"]}
    assert sorted(e[1] for e in raw.cmd("FUNCTION", "LIST", "LIBRARYNAME", "L?")) == [b"la", b"lb"]
    (entry,) = raw.cmd("FUNCTION", "LIST", "withcode", "libraryname", "x")
    assert entry == [b"library_name", b"x", b"engine", b"LUA", b"functions",
                     [[b"name", b"fx", b"description", None, b"flags", []]],
                     b"library_code", one("x", "fx").encode()]
    assert raw.cmd("FUNCTION", "LIST", "LIBRARYNAME", "y*") == []
    for words, error in [(["LIBRARYNAME"], b"ERR library name argument was not given"),
                         (["FOO"], b"ERR Unknown argument FOO"),
                         (["WITHCODE", "WITHCODE"], b"ERR Unknown argument WITHCODE"),
                         (["LIBRARYNAME", "a", "LIBRARYNAME", "b"], b"ERR Unknown argument LIBRARYNAME")]:
        assert raw.cmd("FUNCTION", "LIST", *words) == Error(error)
    assert raw.cmd("FUNCTION", "STATS") == [
        b"running_script", None, b"engines", [b"LUA", [b"libraries_count", 3, b"functions_count", 3]]]
    assert raw.cmd("FUNCTION", "DELETE", "y") == Error(b"ERR Library not found")
    assert raw.cmd("FUNCTION", "DELETE", "la") == b"OK"
    assert raw.cmd("FCALL", "fa", 0) == Error(b"ERR Function not found")
    assert raw.cmd("FCALL", "fb", 0) == 1
    assert raw.cmd("FLUSHALL") == b"OK"
    assert names(raw) == {b"lb": [b"fb"], b"x": [b"fx"]}
    assert raw.cmd("FUNCTION", "FLUSH", "FOO") == \
        Error(b"ERR FUNCTION FLUSH only supports SYNC|ASYNC option")
    assert raw.cmd("FUNCTION", "FLUSH", "ASYNC") == b"OK"
    assert raw.cmd("FUNCTION", "FLUSH", "SYNC") == b"OK"
    assert raw.cmd("FUNCTION", "LIST") == []
    assert raw.cmd("FUNCTION", "KILL") == Error(b"NOTBUSY No scripts in execution right now.")


def test_many_libraries(raw):
    for i in range(200):
        assert raw.cmd("FUNCTION", "LOAD", one("l%d" % i, "f%d" % i, "return %d" % i)) == b"l%d" % i
    assert [raw.cmd("FCALL", "f%d" % i, 0) for i in range(200)] == list(range(200))
    payload = raw.cmd("FUNCTION", "DUMP")
    for i in range(0, 200, 3):
        assert raw.cmd("FUNCTION", "DELETE", "l%d" % i) == b"OK"
    for i in range(200):
        wanted = Error(b"ERR Function not found") if i % 3 == 0 else i
        assert raw.cmd("FCALL", "F%d" % i, 0) == wanted
    assert raw.cmd("FUNCTION", "RESTORE", payload, "REPLACE") == b"OK"
    assert [raw.cmd("FCALL", "f%d" % i, 0) for i in range(200)] == list(range(200))
    assert (info(raw, "number_of_libraries"), info(raw, "number_of_functions")) == (200, 200)


def test_changes_of_functions_are_to_be_saved(raw):
    before = info(raw, "rdb_changes_since_last_save")
    raw.cmd("FUNCTION", "LOAD", one("l", "f"))
    raw.cmd("FUNCTION", "RESTORE", raw.cmd("FUNCTION", "DUMP"), "REPLACE")
    raw.cmd("FUNCTION", "DELETE", "l")
    raw.cmd("FUNCTION", "FLUSH")
    assert info(raw, "rdb_changes_since_last_save") >= before + 4


def test_figures_go_back_to_nothing(raw):
    raw.cmd("FUNCTION", "LOAD", one("l", "f"))
    assert info(raw, "number_of_libraries") == 1 and info(raw, "used_memory_functions") > 0
    raw.cmd("FUNCTION", "FLUSH")
    assert info(raw, "number_of_libraries") == 0 and info(raw, "number_of_functions") == 0


@pytest.mark.kvik_only
def test_nothing_is_left_behind_a_flush(raw):
    def figures():
        stats = raw.cmd("MEMORY", "STATS")
        stats = dict(zip(stats[::2], stats[1::2]))
        return (info(raw, "used_memory_functions"), info(raw, "used_memory_vm_functions"),
                stats[b"functions.caches"])
    for way in ("SYNC", "ASYNC"):
        raw.cmd("FUNCTION", "LOAD", library("local t = {} for i = 1, 10000 do t[i] = i end " + F))
        code, vm, cached = figures()
        assert code == cached > 0 and vm > 100000
        raw.cmd("FUNCTION", "FLUSH", way)
        assert figures() == (0, 0, 0)


# --- payloads ---

def test_payloads_are_restored(raw):
    empty = raw.cmd("FUNCTION", "DUMP")
    assert empty == b"\n\x00]\x9b\\@\x0f\x7f\xa2\xda"
    raw.cmd("FUNCTION", "LOAD", one("la", "fa", "return 'old'"))
    raw.cmd("FUNCTION", "LOAD", one("lb", "fb"))
    payload = raw.cmd("FUNCTION", "DUMP")
    for policy in ([], ["APPEND"]):
        got = raw.cmd("FUNCTION", "RESTORE", payload, *policy)
        assert got in (Error(b"ERR Library la already exists"), Error(b"ERR Library lb already exists"))
    raw.cmd("FUNCTION", "DELETE", "lb")
    raw.cmd("FUNCTION", "LOAD", "REPLACE", one("la", "fa", "return 'new'"))
    assert raw.cmd("FUNCTION", "RESTORE", payload) == Error(b"ERR Library la already exists")
    assert names(raw) == {b"la": [b"fa"]}
    assert raw.cmd("FUNCTION", "RESTORE", payload, "replace") == b"OK"
    assert raw.cmd("FCALL", "fa", 0) == b"old"
    assert names(raw) == {b"la": [b"fa"], b"lb": [b"fb"]}
    raw.cmd("FUNCTION", "FLUSH")
    raw.cmd("FUNCTION", "LOAD", one("x", "fb"))
    for policy in ("APPEND", "REPLACE"):
        assert raw.cmd("FUNCTION", "RESTORE", payload, policy) == Error(b"ERR Function fb already exists")
        assert names(raw) == {b"x": [b"fb"]}
    assert raw.cmd("FUNCTION", "RESTORE", payload, "FLUSH") == b"OK"
    assert names(raw) == {b"la": [b"fa"], b"lb": [b"fb"]}
    assert raw.cmd("FUNCTION", "RESTORE", empty, "FLUSH") == b"OK"
    assert raw.cmd("FUNCTION", "LIST") == []
    wrong = Error(b"ERR DUMP payload version or checksum are wrong")
    for bad in (b"", b"abc", payload[:-1], payload[:-1] + bytes([payload[-1] ^ 1]), payload[1:]):
        assert raw.cmd("FUNCTION", "RESTORE", bad) == wrong
    raw.cmd("SET", "k", "v")
    assert raw.cmd("FUNCTION", "RESTORE", raw.cmd("DUMP", "k")) == \
        Error(b"ERR given type is not a function")
    assert raw.cmd("FUNCTION", "RESTORE", payload, "FOO") == Error(
        b"ERR Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE.")
    assert raw.cmd("FUNCTION", "LIST") == []


@pytest.mark.kvik_only
def test_payloads_travel_to_redis_and_back(raw, redis_server):
    long = "-- " + "a long comment " * 100 + "\n" + F
    raw.cmd("FUNCTION", "LOAD", library(long, "la"))
    raw.cmd("FUNCTION", "LOAD", one("lb", "fb"))
    with redis_server.raw() as other:
        try:
            for compress in ("no", "yes"):
                raw.cmd("CONFIG", "SET", "rdbcompression", compress)
                assert other.cmd("FUNCTION", "RESTORE", raw.cmd("FUNCTION", "DUMP"), "FLUSH") == b"OK"
                assert names(other) == names(raw)
            payload = other.cmd("FUNCTION", "DUMP")
            before = sorted(map(str, raw.cmd("FUNCTION", "LIST", "WITHCODE")))
            assert raw.cmd("FUNCTION", "RESTORE", payload, "FLUSH") == b"OK"
            assert sorted(map(str, raw.cmd("FUNCTION", "LIST", "WITHCODE"))) == before
        finally:
            other.cmd("FUNCTION", "FLUSH")


# --- being busy ---

class Running:
    """A command that runs on a connection of its own."""

    def __init__(self, server, *words):
        self.conn = server.raw(timeout=30 * TIME_SCALE)
        self.conn.send_cmd(*words)

    def result(self):
        reply = self.conn.read()
        self.conn.close()
        return reply


@pytest.fixture(scope="module")
def impatient():
    started = Server("--busy-reply-threshold", "50", "--enable-debug-command", "yes")
    yield started
    started.stop()


def wait_busy(conn, kind):
    wait_until(lambda: conn.cmd("DBSIZE") == Error(BUSY % kind))


LOOPS = library("redis.register_function('loop', function() while true do end end) "
                "redis.register_function('catch', function() while true do pcall(function() "
                "while true do end end) end end) "
                "redis.register_function('write', function(k, a) redis.call('set', 'go', 1) "
                "while redis.call('time')[1] < a[1] do end return redis.call('incr', 'go') end)")


def test_a_busy_function_is_killed(impatient):
    with impatient.raw() as conn:
        conn.cmd("FUNCTION", "LOAD", "REPLACE", LOOPS)
        for name in ("loop", "catch"):
            running = Running(impatient, "FCALL", name, "1", "k", "x")
            wait_busy(conn, b"FUNCTION")
            stats = conn.cmd("FUNCTION", "STATS")
            assert stats[:1] + stats[2:] == [b"running_script", b"engines", [
                b"LUA", [b"libraries_count", 1, b"functions_count", 3]]]
            shown = dict(zip(stats[1][::2], stats[1][1::2]))
            assert shown[b"name"] == name.encode()
            assert shown[b"command"] == [b"FCALL", name.encode(), b"1", b"k", b"x"]
            assert 50 <= shown[b"duration_ms"] < 60000
            assert conn.cmd("SCRIPT", "KILL") == Error(BUSY % b"FUNCTION")
            for line in ("FUNCTION LIST", "FCALL loop 0", "EVAL x 0", "FUNCTION FLUSH"):
                assert conn.cmd(*line.split()) == Error(BUSY % b"FUNCTION"), line
            assert conn.cmd("FUNCTION", "KILL") == b"OK"
            assert running.result().text.startswith(
                b"ERR Script killed by user with SCRIPT KILL... script: " + name.encode())
            assert conn.cmd("FUNCTION", "STATS")[1] is None


def test_a_function_that_has_written_is_not_killed(impatient):
    with impatient.raw() as conn:
        conn.cmd("FUNCTION", "LOAD", "REPLACE", LOOPS)
        until = int(conn.cmd("TIME")[0]) + 2 + TIME_SCALE
        running = Running(impatient, "FCALL", "write", "0", str(until))
        wait_busy(conn, b"FUNCTION")
        assert conn.cmd("FUNCTION", "KILL").code == b"UNKILLABLE"
        assert running.result() == 2


def test_a_busy_script_is_no_function(impatient):
    with impatient.raw() as conn:
        running = Running(impatient, "EVAL", "while true do end", "0")
        wait_busy(conn, b"SCRIPT")
        assert conn.cmd("FUNCTION", "KILL") == Error(BUSY % b"SCRIPT")
        assert conn.cmd("FUNCTION", "STATS") == Error(BUSY % b"SCRIPT")
        assert conn.cmd("SCRIPT", "KILL") == b"OK"
        assert isinstance(running.result(), Error)


# --- cores ---

@pytest.mark.kvik_only
def test_calls_are_atomic_on_all_cores(start_server):
    """Functions with declared keys, with others, plain commands and loads, from many connections."""
    server = start_server(threads=4)
    conns = [server.raw() for _ in range(8)]
    declared = one("l%d", "f%d", "redis.call('incr', keys[1]) return redis.call('incr', keys[2])")
    free = one("u%d", "g%d", "redis.call('incr', args[1]) return redis.call('incr', args[2])")
    for n in range(4):
        conns[0].cmd("FUNCTION", "LOAD", declared % (n, n))
        conns[0].cmd("FUNCTION", "LOAD", free % (n, n))
    for round_ in range(100):
        for i, conn in enumerate(conns):
            conn.send_cmd("FCALL", "f%d" % (i % 4), 2, "a", "b")
            conn.send_cmd("FCALL", "g%d" % (round_ % 4), 0, "a", "b")
            conn.send_cmd("INCR", "c%d" % i)
            conn.send_cmd("MGET", "a", "b")
            if round_ % 10 == i:
                conn.send_cmd("FUNCTION", "LOAD", "REPLACE", declared % (i % 4, i % 4))
        for i, conn in enumerate(conns):
            replies = [conn.read() for _ in range(4 + (round_ % 10 == i))]
            assert not [r for r in replies if isinstance(r, Error)], replies
            assert replies[3][0] == replies[3][1]
    assert conns[0].cmd("MGET", "a", "b") == [b"1600", b"1600"]
    for conn in conns:
        conn.close()


# --- files and logs ---

@pytest.mark.kvik_only
def test_files_hold_functions(start_server, tmp_path):
    server = start_server("--dir", tmp_path)
    with server.raw() as conn:
        conn.cmd("FUNCTION", "LOAD", one("l", "f", "return redis.call('incr', keys[1])"))
        conn.cmd("SET", "k", "v")
        before = conn.cmd("FUNCTION", "LIST", "WITHCODE")
        assert conn.cmd("DEBUG", "RELOAD") == b"OK"
        assert conn.cmd("FUNCTION", "LIST", "WITHCODE") == before
        assert conn.cmd("FCALL", "f", 1, "n") == 1
        assert conn.cmd("FUNCTION", "LOAD", one("m", "g")) == b"m"
        assert conn.cmd("DEBUG", "RELOAD", "NOSAVE", "NOFLUSH", "MERGE") == b"OK"
        assert names(conn) == {b"l": [b"f"], b"m": [b"g"]}
        conn.cmd("FUNCTION", "DELETE", "m")
        assert conn.cmd("BGSAVE") == b"Background saving started"
        conn.cmd("FUNCTION", "FLUSH")
        wait_until(lambda: info(conn, "rdb_bgsave_in_progress") == 0)
    server.stop()
    again = start_server("--dir", tmp_path)
    with again.raw() as conn:
        assert conn.cmd("FUNCTION", "LIST", "WITHCODE") == before
        assert conn.cmd("FCALL", "f", 1, "n") == 2
        assert conn.cmd("SAVE") == b"OK"
    again.stop()
    redis = Server("--dir", tmp_path, binary=REFERENCE)
    with redis.raw() as conn:
        assert conn.cmd("FUNCTION", "LIST", "WITHCODE") == before
        assert conn.cmd("FCALL", "f", 1, "n") == 3
        conn.cmd("FUNCTION", "LOAD", one("redis", "of_redis"))
        assert conn.cmd("SAVE") == b"OK"
    redis.stop()
    with start_server("--dir", tmp_path).raw() as conn:
        assert names(conn) == {b"l": [b"f"], b"redis": [b"of_redis"]}


@pytest.mark.kvik_only
def test_a_file_whose_library_does_not_load_is_refused(start_server, tmp_path):
    redis = Server("--dir", tmp_path, binary=REFERENCE)
    with redis.raw() as conn:
        conn.cmd("FUNCTION", "LOAD", one("l", "f"))
        conn.cmd("SAVE")
    redis.stop()
    data = (tmp_path / "dump.rdb").read_bytes()
    (tmp_path / "dump.rdb").unlink()
    server = start_server("--dir", tmp_path)
    with server.raw() as conn:
        conn.cmd("CONFIG", "SET", "rdbchecksum", "no")
        broken = data[:-8].replace(b"redis.", b"wrong.") + b"\x00" * 8
        assert broken != data
        (tmp_path / "dump.rdb").write_bytes(broken)
        assert conn.cmd("DEBUG", "RELOAD", "NOSAVE").code == b"ERR"
    assert "Failed creating the library" in server.log()
    second = Server("--dir", tmp_path, "--rdbchecksum", "no", wait=False)
    assert second.wait() == 1
    assert "Failed creating the library: ERR Error registering functions" in second.log()
    assert "Fatal error loading the DB" in second.log()
    second.abandon()


@pytest.mark.kvik_only
@pytest.mark.parametrize("preamble", ["yes", "no"])
@pytest.mark.parametrize("threads", [1, 4])
def test_logs_hold_functions(start_server, tmp_path, preamble, threads):
    args = ("--dir", tmp_path, "--appendonly", "yes", "--aof-use-rdb-preamble", preamble)
    server = start_server(*args, threads=threads)

    def restart():
        nonlocal server
        server.stop()
        server = start_server(*args, threads=threads)
        return server.raw()

    with server.raw() as conn:
        conn.cmd("FUNCTION", "LOAD", one("a", "fa", "return redis.call('incr', keys[1])"))
        conn.cmd("FUNCTION", "LOAD", one("b", "fb"))
        payload = conn.cmd("FUNCTION", "DUMP")
        conn.cmd("FUNCTION", "DELETE", "b")
        conn.cmd("FUNCTION", "LOAD", "REPLACE", one("a", "f2", "return redis.call('incr', keys[1])"))
        conn.cmd("FCALL", "f2", 1, "n")
        large = library("-- " + "x" * 3000000 + "\n" + F, "large")
        assert conn.cmd("FUNCTION", "LOAD", large) == b"large"
        assert isinstance(conn.cmd("FUNCTION", "LOAD", one("a", "x")), Error)
    with restart() as conn:
        log = (tmp_path / "appendonlydir" / "appendonly.aof.1.incr.aof").read_bytes()
        assert b"FCALL" not in log and log.count(b"LOAD") == 4
        assert names(conn) == {b"a": [b"f2"], b"large": [b"f"]}
        conn.cmd("FUNCTION", "DELETE", "large")
        assert conn.cmd("FCALL", "f2", 1, "n") == 2
        conn.cmd("BGREWRITEAOF")
        base = "*.base." + ("rdb" if preamble == "yes" else "aof")
        wait_until(lambda: list((tmp_path / "appendonlydir").glob(base)) and
                   info(conn, "aof_rewrite_in_progress") == 0)
        conn.cmd("FUNCTION", "LOAD", one("c", "fc"))
    with restart() as conn:
        assert names(conn) == {b"a": [b"f2"], b"c": [b"fc"]}
        assert conn.cmd("FUNCTION", "RESTORE", payload, "FLUSH") == b"OK"
    with restart() as conn:
        assert names(conn) == {b"a": [b"fa"], b"b": [b"fb"]}
        assert conn.cmd("FUNCTION", "FLUSH") == b"OK"
        assert conn.cmd("FUNCTION", "LOAD", one("d", "fd")) == b"d"
    with restart() as conn:
        assert names(conn) == {b"d": [b"fd"]}
        assert conn.cmd("GET", "n") == b"2"
    server.stop()
    if preamble == "no":
        redis = Server(*args, binary=REFERENCE)
        with redis.raw() as conn:
            assert names(conn) == {b"d": [b"fd"]}
        redis.stop()
