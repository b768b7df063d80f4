#!/usr/bin/python3
"""CLIENT: identity, LIST and INFO, KILL and its filters, REPLY, PAUSE."""
import threading
import time

import pytest

from process import TIME_SCALE
from raw import Closed, Error, Verbatim, encode

SYNTAX = Error(b"ERR syntax error")
FIELDS_7 = ("id addr laddr fd name age idle flags db sub psub ssub multi qbuf qbuf-free argv-mem "
            "multi-mem rbs rbp obl oll omem tot-mem events cmd user redir resp").split()
FIELDS_8 = ("id addr laddr fd name age idle flags db sub psub ssub multi watch qbuf qbuf-free "
            "argv-mem multi-mem rbs rbp obl oll omem tot-mem events cmd user redir resp lib-name "
            "lib-ver io-thread tot-net-in tot-net-out tot-cmds").split()


def fields(line):
    return dict(word.split("=", 1) for word in line.strip().decode().split(" "))


def listed(conn, *options):
    """CLIENT LIST as a list of dicts."""
    return [fields(line) for line in conn.cmd("CLIENT", "LIST", *options).splitlines()]


def ids(conn, *options):
    return {int(line["id"]) for line in listed(conn, *options)}


def is_closed(conn):
    try:
        conn.send_cmd("PING")
        conn.read()
        return False
    except (Closed, BrokenPipeError, ConnectionResetError):
        return True


# --- identity ---


def test_ids_ascend_and_are_never_reused(connect):
    first = connect()
    first_id = first.cmd("CLIENT", "ID")
    second = connect()
    second_id = second.cmd("CLIENT", "ID")
    second.close()
    assert first_id < second_id < connect().cmd("CLIENT", "ID")
    assert first.cmd("CLIENT", "ID") == first_id


def test_names(raw):
    assert raw.cmd("CLIENT", "GETNAME") is None
    assert raw.cmd("CLIENT", "SETNAME", "worker-1") == b"OK"
    assert raw.cmd("CLIENT", "GETNAME") == b"worker-1"
    for bad in ["a b", "a\n", "\x7f", "é", "a\tb"]:
        assert raw.cmd("CLIENT", "SETNAME", bad) == Error(
            b"ERR Client names cannot contain spaces, newlines or special characters.")
    assert raw.cmd("CLIENT", "GETNAME") == b"worker-1"
    assert raw.cmd("CLIENT", "SETNAME", "") == b"OK"
    assert raw.cmd("CLIENT", "GETNAME") is None


@pytest.mark.kvik_only  # since 7.2
def test_setinfo(raw):
    assert raw.cmd("CLIENT", "SETINFO", "LIB-NAME", "lib") == b"OK"
    assert raw.cmd("CLIENT", "SETINFO", "lib-ver", "1.2.3") == b"OK"
    info = fields(raw.cmd("CLIENT", "INFO"))
    assert (info["lib-name"], info["lib-ver"]) == ("lib", "1.2.3")
    assert raw.cmd("CLIENT", "SETINFO", "lib-name", "a b") == Error(
        b"ERR lib-name cannot contain spaces, newlines or special characters.")
    assert raw.cmd("CLIENT", "SETINFO", "foo", "x") == Error(b"ERR Unrecognized option 'foo'")
    assert raw.cmd("CLIENT", "SETINFO", "lib-name", "") == b"OK"
    assert fields(raw.cmd("CLIENT", "INFO"))["lib-name"] == ""


def test_unknown_subcommand_and_help(raw):
    assert raw.cmd("CLIENT", "FOO") == Error(b"ERR unknown subcommand 'FOO'. Try CLIENT HELP.")
    assert raw.cmd("CLIENT") == Error(b"ERR wrong number of arguments for 'client' command")
    assert raw.cmd("CLIENT", "HELP")[0].startswith(b"CLIENT <subcommand>")


# --- LIST and INFO ---


def test_line_of_a_fresh_connection(raw, reference):
    raw.cmd("CLIENT", "SETNAME", "me")
    raw.cmd("SELECT", "3")
    line = raw.cmd("CLIENT", "INFO")
    assert line.endswith(b"\n") and line.count(b"\n") == 1
    info = fields(line)
    assert list(info) == (FIELDS_7 if reference else FIELDS_8)
    host, port = raw.sock.getsockname()
    assert info["addr"] == "%s:%d" % (host, port)
    assert info["laddr"] == "%s:%d" % raw.sock.getpeername()
    expected = {"name": "me", "flags": "N", "db": "3", "sub": "0", "psub": "0", "ssub": "0",
                "multi": "-1", "events": "r", "cmd": "client|info", "user": "default",
                "redir": "-1", "resp": "2"}
    assert {name: info[name] for name in expected} == expected
    assert int(info["id"]) == raw.cmd("CLIENT", "ID")
    assert int(info["age"]) <= 1 and int(info["idle"]) <= 1


def test_verbatim_in_resp3(raw):
    raw.hello3()
    for sub in ("INFO", "LIST"):
        text = raw.cmd("CLIENT", sub)
        assert isinstance(text, Verbatim) and text.format == b"txt"
    assert fields(raw.cmd("CLIENT", "INFO"))["resp"] == "3"


def test_unix_socket_in_the_list(server, raw):
    with server.raw(unix=True) as local:
        info = fields(local.cmd("CLIENT", "INFO"))
        assert info["addr"] == info["laddr"] == server.unix_path + ":0"
        assert info["flags"] == "U"
        assert ids(raw, "ID", info["id"]) == {int(info["id"])}


def test_flags_and_counts_of_a_transaction(raw, connect, reference):
    other = connect()
    other.cmd("WATCH", "a", "b")
    other.cmd("MULTI")
    other.cmd("GET", "a")
    line = [line for line in listed(raw) if line["id"] == str(ids_of(other, raw))][0]
    assert line["flags"] == "x" and line["multi"] == "1"
    if not reference:
        assert line["watch"] == "2"
    assert int(line["multi-mem"]) > 0


def ids_of(conn, raw):
    """The id of a connection in MULTI, which cannot ask for it itself."""
    address = "%s:%d" % conn.sock.getsockname()
    return [int(line["id"]) for line in listed(raw) if line["addr"] == address][0]


@pytest.mark.kvik_only
def test_traffic_counts(raw):
    before = fields(raw.cmd("CLIENT", "INFO"))
    raw.cmd("SET", "a", "x" * 100)
    after = fields(raw.cmd("CLIENT", "INFO"))
    assert int(after["tot-cmds"]) == int(before["tot-cmds"]) + 2
    sent = len(encode("SET", "a", "x" * 100)) + len(encode("CLIENT", "INFO"))
    assert int(after["tot-net-in"]) - int(before["tot-net-in"]) == sent
    assert int(after["tot-net-out"]) > int(before["tot-net-out"])


@pytest.mark.timeout(30)
def test_idle_and_age(raw, connect):
    other = connect()
    other_id = other.cmd("CLIENT", "ID")
    time.sleep(2.1)
    line = listed(raw, "ID", other_id)[0]
    assert int(line["age"]) >= 2 and int(line["idle"]) >= 2
    other.cmd("PING")
    line = listed(raw, "ID", other_id)[0]
    assert int(line["age"]) >= 2 and int(line["idle"]) <= 1


def test_list_filters_of_redis_7(raw, connect):
    own, others = raw.cmd("CLIENT", "ID"), {connect().cmd("CLIENT", "ID") for _ in range(5)}
    assert ids(raw) >= others | {own}
    assert ids(raw, "TYPE", "NORMAL") >= others | {own}
    assert ids(raw, "TYPE", "pubsub") == ids(raw, "type", "replica") == set()
    assert ids(raw, "ID", *others) == others
    assert ids(raw, "ID", 999999, own) == {own}


@pytest.mark.parametrize("args,error", [
    (["FOO"], SYNTAX), (["TYPE"], SYNTAX), (["ID"], SYNTAX), (["FOO", "x"], SYNTAX),
    (["TYPE", "foo"], Error(b"ERR Unknown client type 'foo'")),
    (["ID", "x"], Error(b"ERR Invalid client ID")),
    (["ID", "1", "x"], Error(b"ERR Invalid client ID")),
])
def test_list_errors(raw, args, error):
    assert raw.cmd("CLIENT", "LIST", *args) == error


@pytest.mark.kvik_only
def test_list_filters_beyond_redis_7(raw, connect):
    own = raw.cmd("CLIENT", "ID")
    other = connect()
    other_id = other.cmd("CLIENT", "ID")
    other.cmd("CLIENT", "SETNAME", "find-me")
    other.cmd("CLIENT", "SETINFO", "LIB-NAME", "lib")
    other.cmd("CLIENT", "SETINFO", "LIB-VER", "9")
    other.cmd("SELECT", "7")
    other.cmd("CLIENT", "NO-TOUCH", "ON")
    address = "%s:%d" % other.sock.getsockname()
    for words in (["NAME", "find-me"], ["LIB-NAME", "lib"], ["LIB-VER", "9"], ["DB", "7"],
                  ["FLAGS", "T"], ["ADDR", address], ["ID", other_id, own, "DB", "7"],
                  ["NOT-DB", "0"], ["TYPE", "normal", "NOT-ID", own, "NAME", "find-me"],
                  ["name", "find-me", "skipme", "yes"]):
        assert ids(raw, *words) == {other_id}, words
    assert {own, other_id} <= ids(raw, "IP", "127.0.0.1", "USER", "default")
    assert {own, other_id} <= ids(raw, "LADDR", "%s:%d" % raw.sock.getpeername())
    assert own not in ids(raw, "SKIPME", "YES")
    assert ids(raw, "NOT-TYPE", "normal") == ids(raw, "USER", "nobody") == set()
    assert ids(raw, "MAXAGE", 10000) == ids(raw, "IDLE", 10000) == set()
    assert raw.cmd("CLIENT", "LIST", "IDLE", "x") == Error(
        b"ERR idle is not an integer or out of range")


# --- KILL ---


def test_kill_by_address(raw, connect):
    victim = connect()
    victim.cmd("PING")
    assert raw.cmd("CLIENT", "KILL", "%s:%d" % victim.sock.getsockname()) == b"OK"
    victim.expect_closed()
    assert raw.cmd("CLIENT", "KILL", "1.2.3.4:5") == Error(b"ERR No such client")


def test_kill_itself_answers_first(connect):
    victim = connect()
    assert victim.cmd("CLIENT", "KILL", "%s:%d" % victim.sock.getsockname()) == b"OK"
    victim.expect_closed()
    victim = connect()
    own = victim.cmd("CLIENT", "ID")
    assert victim.cmd("CLIENT", "KILL", "ID", own) == 0
    victim.send(encode("CLIENT", "KILL", "ID", own, "SKIPME", "no") + encode("SET", "a", "1"))
    assert victim.read() == 1
    victim.expect_closed()
    assert connect().cmd("EXISTS", "a") == 0


def test_kill_by_filters(raw, connect):
    conns = [connect() for _ in range(4)]
    numbers = [conn.cmd("CLIENT", "ID") for conn in conns]
    assert raw.cmd("CLIENT", "KILL", "ID", numbers[0]) == 1
    assert raw.cmd("CLIENT", "KILL", "ID", numbers[0]) == 0
    address = "%s:%d" % conns[1].sock.getsockname()
    assert raw.cmd("CLIENT", "KILL", "ADDR", address, "ID", numbers[2]) == 0
    assert raw.cmd("CLIENT", "KILL", "ADDR", address, "TYPE", "normal") == 1
    assert raw.cmd("CLIENT", "KILL", "TYPE", "master") == 0
    assert raw.cmd("CLIENT", "KILL", "LADDR", "1.2.3.4:5") == 0
    assert [is_closed(conn) for conn in conns] == [True, True, False, False]
    assert raw.cmd("CLIENT", "KILL", "USER", "default", "ID", numbers[2], "SKIPME", "yes") == 1
    assert raw.cmd("CLIENT", "KILL", "TYPE", "normal") >= 1
    assert is_closed(conns[3])
    assert raw.cmd("PING") == b"PONG"


@pytest.mark.kvik_only  # since 7.4
def test_kill_max_age_and_several_ids(raw, connect):
    conns = [connect() for _ in range(3)]
    numbers = [conn.cmd("CLIENT", "ID") for conn in conns]
    assert raw.cmd("CLIENT", "KILL", "MAXAGE", 10000) == 0
    assert raw.cmd("CLIENT", "KILL", "ID", numbers[0], numbers[1], "SKIPME", "yes") == 2
    assert [is_closed(conn) for conn in conns] == [True, True, False]
    time.sleep(1.1)
    assert raw.cmd("CLIENT", "KILL", "MAXAGE", 1, "ID", numbers[2]) == 1
    assert raw.cmd("CLIENT", "KILL", "MAXAGE", "x") == Error(
        b"ERR maxage is not an integer or out of range")
    assert raw.cmd("CLIENT", "KILL", "MAXAGE", 0) == Error(b"ERR maxage should be greater than 0")


@pytest.mark.parametrize("args,error", [
    (["ID", "x"], Error(b"ERR client-id should be greater than 0")),
    (["ID", "0"], Error(b"ERR client-id should be greater than 0")),
    (["ID", "-1"], Error(b"ERR client-id should be greater than 0")),
    (["TYPE", "foo"], Error(b"ERR Unknown client type 'foo'")),
    (["USER", "nobody"], Error(b"ERR No such user 'nobody'")),
    (["SKIPME", "foo"], SYNTAX),
    (["SKIPME", "yes", "FOO", "x"], SYNTAX),
    (["ID", "1", "SKIPME"], SYNTAX),
    (["FOO", "x"], SYNTAX),
])
def test_kill_errors(raw, connect, args, error):
    other = connect()
    assert raw.cmd("CLIENT", "KILL", *args) == error
    assert other.cmd("PING") == b"PONG"


def test_kill_drops_what_the_victim_had_queued(raw, connect):
    victim = connect()
    victim.cmd("MULTI")
    victim.cmd("SET", "a", "1")
    raw.cmd("CLIENT", "KILL", "ADDR", "%s:%d" % victim.sock.getsockname())
    victim.expect_closed()
    assert raw.cmd("EXISTS", "a") == 0


# --- REPLY ---


def test_reply_skip(raw):
    raw.send(encode("CLIENT", "REPLY", "SKIP") + encode("SET", "a", "1") + encode("GET", "a"))
    raw.expect(b"$1\r\n1\r\n")


def test_reply_off_and_on(raw):
    raw.send(encode("CLIENT", "REPLY", "OFF") + encode("SET", "a", "1") + encode("FOO") +
             encode("CLIENT", "REPLY", "SKIP") + encode("GET", "a") +
             encode("CLIENT", "REPLY", "ON") + encode("GET", "a"))
    raw.expect(b"+OK\r\n$1\r\n1\r\n")


def test_reply_errors(raw):
    assert raw.cmd("CLIENT", "REPLY", "FOO") == SYNTAX
    assert raw.cmd("CLIENT", "REPLY", "ON") == b"OK"


# --- NO-EVICT, NO-TOUCH ---


def test_no_evict(raw):
    assert raw.cmd("CLIENT", "NO-EVICT", "ON") == b"OK"
    assert fields(raw.cmd("CLIENT", "INFO"))["flags"] == "e"
    assert raw.cmd("CLIENT", "NO-EVICT", "off") == b"OK"
    assert fields(raw.cmd("CLIENT", "INFO"))["flags"] == "N"
    assert raw.cmd("CLIENT", "NO-EVICT", "foo") == SYNTAX


@pytest.mark.kvik_only  # since 7.2
@pytest.mark.timeout(30)
def test_no_touch(raw, connect):
    quiet = connect()
    raw.cmd("SET", "a", "1")
    assert quiet.cmd("CLIENT", "NO-TOUCH", "ON") == b"OK"
    assert fields(quiet.cmd("CLIENT", "INFO"))["flags"] == "T"
    time.sleep(2.1)
    assert quiet.cmd("GET", "a") == b"1"
    assert quiet.cmd("OBJECT", "IDLETIME", "a") >= 1
    assert quiet.cmd("CLIENT", "NO-TOUCH", "OFF") == b"OK"
    assert quiet.cmd("GET", "a") == b"1"
    assert quiet.cmd("OBJECT", "IDLETIME", "a") <= 1


# --- PAUSE ---


def timed(conn, *args):
    start = time.monotonic()
    reply = conn.cmd(*args)
    return reply, time.monotonic() - start


def test_pause_holds_writes_back(raw, connect):
    other = connect()
    raw.cmd("SET", "a", "0")
    assert raw.cmd("CLIENT", "PAUSE", 300, "WRITE") == b"OK"
    assert other.cmd("GET", "a") == b"0"
    reply, seconds = timed(other, "SET", "a", "1")
    assert reply == b"OK" and seconds > 0.2
    assert raw.cmd("GET", "a") == b"1"


def test_pause_holds_all_back(raw, connect):
    other = connect()
    other.cmd("PING")
    assert raw.cmd("CLIENT", "PAUSE", 300) == b"OK"
    reply, seconds = timed(other, "GET", "a")
    assert reply is None and seconds > 0.2


def test_unpause_lets_go(raw, connect):
    waiting = connect()
    waiting.cmd("PING")
    assert raw.cmd("CLIENT", "PAUSE", 60000, "WRITE") == b"OK"
    done = []
    thread = threading.Thread(target=lambda: done.append(timed(waiting, "SET", "a", "1")))
    thread.start()
    time.sleep(0.2)
    assert not done
    assert raw.cmd("CLIENT", "UNPAUSE") == b"OK"
    thread.join(10 * TIME_SCALE)
    assert done and done[0][0] == b"OK"


def test_pause_keeps_the_order_of_a_pipeline(raw, connect):
    other = connect()
    other.cmd("PING")
    raw.cmd("CLIENT", "PAUSE", 200, "WRITE")
    other.send(encode("GET", "a") + encode("SET", "a", "1") + encode("GET", "a"))
    assert [other.read() for _ in range(3)] == [None, b"OK", b"1"]


@pytest.mark.parametrize("args,error", [
    (["x"], b"ERR timeout is not an integer or out of range"),
    (["99999999999999999999"], b"ERR timeout is not an integer or out of range"),
    (["-1"], b"ERR timeout is negative"),
    (["1", "FOO"], b"ERR CLIENT PAUSE mode must be WRITE or ALL"),
])
def test_pause_errors(raw, args, error):
    assert raw.cmd("CLIENT", "PAUSE", *args) == Error(error)
    assert raw.cmd("SET", "a", "1") == b"OK"


@pytest.mark.kvik_only  # the reference overflows
def test_pause_beyond_the_end_of_time(raw):
    assert raw.cmd("CLIENT", "PAUSE", "9223372036854775807") == Error(
        b"ERR timeout is out of range")
    assert raw.cmd("SET", "a", "1") == b"OK"
