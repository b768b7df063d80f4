#!/usr/bin/python3
"""What goes over the wire, byte for byte: requests in both forms, split and broken ones, limits.

Every expectation also holds for the reference (`--reference`), but for the tests marked kvik_only.
"""
import socket
import time

import pytest

from process import TIME_SCALE, free_port
from raw import Closed, Error, Raw, Verbatim, encode

PONG = b"+PONG\r\n"
BIG_SIZES = [16 * 1024 - 1, 16 * 1024, 16 * 1024 + 1, 32 * 1024, 64 * 1024, 1 << 20, 5 << 20]


def protocol_error(text):
    return b"-ERR Protocol error: " + text + b"\r\n"


def pattern(size):
    """`size` bytes in which every 251-byte window differs in phase, CR and LF included."""
    return (bytes(range(251)) * (size // 251 + 1))[:size]


# --- inline commands ---


@pytest.mark.parametrize("line, reply", [
    (b"PING\r\n", PONG),
    (b"PING\n", PONG),
    (b"ping\r\n", PONG),
    (b"  PING  \r\n", PONG),
    (b"\r\nPING\r\n", PONG),
    (b"\n\n   \r\n\t\r\nPING\r\n", PONG),
    (b"ECHO a\r\n", b"$1\r\na\r\n"),
    (b"ECHO\ta\r\n", b"$1\r\na\r\n"),
    (b'ECHO "a b"\r\n', b"$3\r\na b\r\n"),
    (b"ECHO 'a b'\r\n", b"$3\r\na b\r\n"),
    (b'ECHO ""\r\n', b"$0\r\n\r\n"),
    (b"ECHO ''\r\n", b"$0\r\n\r\n"),
    (b'ECHO "\\n\\r\\t\\b\\a\\\\\\"\\q"\r\n', b'$8\r\n\n\r\t\b\a\\"q\r\n'),
    (b'ECHO "\\x00\\xff\\x4A"\r\n', b"$3\r\n\x00\xffJ\r\n"),
    (b'ECHO "\\xzz"\r\n', b"$3\r\nxzz\r\n"),
    (b"ECHO 'it\\'s \\n'\r\n", b"$7\r\nit's \\n\r\n"),
    (b'"PING"\r\n', PONG),
    (b"ECHO a\\b\r\n", b"$3\r\na\\b\r\n"),
    (b"PING \x80\xff\r\n", b"$2\r\n\x80\xff\r\n"),
])
def test_inline_command_is_split_into_arguments(raw, line, reply):
    raw.send(line)
    raw.expect(reply)
    raw.send(b"PING\r\n")
    raw.expect(PONG)


@pytest.mark.parametrize("line", [
    b'ECHO "a\r\n', b"ECHO 'a\r\n", b'ECHO "a"b\r\n', b"ECHO 'a'b\r\n", b'"\r\n', b"'\r\n",
    b'ECHO "a\\"\r\n', b'PING "a""b"\r\n',
])
def test_unbalanced_quotes_close_the_connection(raw, line):
    raw.send(b"PING\r\n" + line + b"PING\r\n")
    raw.expect(PONG)
    raw.expect(protocol_error(b"unbalanced quotes in request"))
    raw.expect_closed()


def test_inline_line_that_never_ends_is_refused(raw):
    raw.send(b"A" * (64 * 1024 + 2))
    raw.expect(protocol_error(b"too big inline request"))
    raw.expect_closed()


def test_long_inline_command_below_the_limit_works(raw):
    text = b"x" * 60000
    raw.send(b"ECHO " + text + b"\r\n")
    raw.expect(b"$60000\r\n" + text + b"\r\n")


def test_inline_and_array_requests_mix_in_one_pipeline(raw):
    raw.send(b"SET k v\r\n" + encode("GET", "k") + b"GET k\r\n*0\r\n" + encode("DEL", "k"))
    raw.expect(b"+OK\r\n$1\r\nv\r\n$1\r\nv\r\n:1\r\n")


def test_request_of_a_web_browser_is_cut_off(connect):
    for request in (b"POST / HTTP/1.1\r\nHost: localhost\r\n\r\nPING\r\n",
                    b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\nPING\r\n"):
        conn = connect()
        conn.send(request)
        assert b"PONG" not in conn.read_to_end()


# --- arrays: lengths ---


@pytest.mark.parametrize("empty", [b"*0\r\n", b"*-1\r\n", b"*-10\r\n", b"*0\r\n*0\r\n*-1\r\n"])
def test_empty_request_has_no_reply(raw, empty):
    raw.send(empty)
    raw.expect_silence(0.05)
    raw.send(empty + b"PING\r\n" + empty + encode("PING"))
    raw.expect(PONG + PONG)


@pytest.mark.parametrize("request_bytes, text", [
    (b"*x\r\n", b"invalid multibulk length"),
    (b"*\r\n", b"invalid multibulk length"),
    (b"*1x\r\n", b"invalid multibulk length"),
    (b"* 1\r\n", b"invalid multibulk length"),
    (b"*+1\r\n", b"invalid multibulk length"),
    (b"*01\r\n", b"invalid multibulk length"),
    (b"*2147483648\r\n", b"invalid multibulk length"),
    (b"*9223372036854775807\r\n", b"invalid multibulk length"),
    (b"*9223372036854775808\r\n", b"invalid multibulk length"),
    (b"*1\r\nPING\r\n", b"expected '$', got 'P'"),
    (b"*1\r\n:4\r\n", b"expected '$', got ':'"),
    (b"*1\r\n*1\r\n", b"expected '$', got '*'"),
    (b"*2\r\n$4\r\nPING\r\n\r\n\r\n", b"expected '$', got '\x0d'".replace(b"\x0d", b" ")),
    (b"*1\r\n$\r\n", b"invalid bulk length"),
    (b"*1\r\n$x\r\n", b"invalid bulk length"),
    (b"*1\r\n$-1\r\n", b"invalid bulk length"),
    (b"*1\r\n$4x\r\nPING\r\n", b"invalid bulk length"),
    (b"*1\r\n$ 4\r\nPING\r\n", b"invalid bulk length"),
    (b"*1\r\n$+4\r\nPING\r\n", b"invalid bulk length"),
    (b"*1\r\n$536870913\r\n", b"invalid bulk length"),
    (b"*1\r\n$9223372036854775808\r\n", b"invalid bulk length"),
    (b"*2\r\n$4\r\nECHO\r\n$x\r\n", b"invalid bulk length"),
])
def test_bad_length_is_told_and_closes_the_connection(raw, request_bytes, text):
    raw.send(encode("SET", "before", "1") + request_bytes)
    raw.expect(b"+OK\r\n" + protocol_error(text))
    raw.expect_closed()


def test_nothing_after_a_protocol_error_is_executed(raw, connect):
    raw.send(b"*x\r\n" + encode("SET", "after", "1"))
    raw.expect(protocol_error(b"invalid multibulk length"))
    raw.expect_closed()
    assert connect().cmd("EXISTS", "after") == 0


@pytest.mark.parametrize("start, text", [
    (b"*", b"too big mbulk count string"),
    (b"*1\r\n$", b"too big bulk count string"),
])
def test_length_line_that_never_ends_is_refused(raw, start, text):
    raw.send(start + b"1" * (64 * 1024 + 10))
    raw.expect(protocol_error(text))
    raw.expect_closed()


def test_bulk_limit_is_configurable(start_server):
    server = start_server("--proto-max-bulk-len", "1mb")
    with server.raw() as conn:
        data = pattern(1 << 20)
        assert conn.cmd("SET", "k", data) == b"OK"
        assert conn.cmd("GET", "k") == data
        conn.send(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1048577\r\n")
        conn.expect(protocol_error(b"invalid bulk length"))
        conn.expect_closed()
    with server.raw() as conn:
        assert conn.cmd("APPEND", "k", "x") == \
            b"ERR string exceeds maximum allowed size (proto-max-bulk-len)"
        assert conn.cmd("SETRANGE", "k", 1 << 20, "x") == \
            b"ERR string exceeds maximum allowed size (proto-max-bulk-len)"
        assert conn.cmd("STRLEN", "k") == 1 << 20


# --- arguments ---


def test_any_byte_may_be_in_keys_and_values(raw):
    every = bytes(range(256))
    assert raw.cmd("SET", every, every[::-1]) == b"OK"
    assert raw.cmd("SET", b"", b"") == b"OK"
    assert raw.cmd("SET", b"\x00", b"\x00\x00") == b"OK"
    assert raw.cmd("GET", every) == every[::-1]
    assert raw.cmd("GET", b"") == b""
    assert raw.cmd("GET", b"\x00") == b"\x00\x00"
    assert raw.cmd("EXISTS", b"\x00\x00") == 0
    assert sorted(raw.cmd("KEYS", "*")) == sorted([every, b"", b"\x00"])


@pytest.mark.parametrize("size", BIG_SIZES)
def test_large_value_comes_back_whole(raw, size):
    data = pattern(size)
    assert raw.cmd("SET", "big", data) == b"OK"
    assert raw.cmd_bytes("GET", "big") == b"$%d\r\n%s\r\n" % (size, data)
    assert raw.cmd("STRLEN", "big") == size
    assert raw.cmd("SET", "big", b"small") == b"OK"
    assert raw.cmd("GET", "big") == b"small"


@pytest.mark.parametrize("size", BIG_SIZES)
def test_large_arguments_in_any_place(raw, size):
    data = pattern(size)
    raw.send(encode("MSET", "a", data, data, "b") + encode("MGET", "a", data) +
             encode("ECHO", data) + encode("APPEND", "a", data) + encode("STRLEN", "a") +
             encode("DEL", "a", data))
    bulk = b"$%d\r\n%s\r\n" % (size, data)
    raw.expect(b"+OK\r\n*2\r\n" + bulk + b"$1\r\nb\r\n" + bulk +
               b":%d\r\n:%d\r\n:2\r\n" % (2 * size, 2 * size))


def test_large_value_is_overwritten_while_it_is_being_sent(connect):
    """Twelve clients ask for a value and do not read; it changes; each gets what was there."""
    data = pattern(3 << 20)
    writer = connect()
    assert writer.cmd("SET", "big", data) == b"OK"
    readers = [connect() for _ in range(12)]
    for reader in readers:
        reader.send_cmd("GET", "big")
    for reader in readers:  # the first bytes are there, so the command has run
        reader.expect(b"$%d\r\n" % len(data))
    assert writer.cmd("SETRANGE", "big", 0, b"X" * 100) == len(data)
    assert writer.cmd("APPEND", "big", b"Y") == len(data) + 1
    assert writer.cmd("SETBIT", "big", 8 * len(data) - 1, 1) in (0, 1)
    assert writer.cmd("DEL", "big") == 1
    for reader in readers:
        reader.expect(data + b"\r\n")


def test_many_arguments(raw):
    keys = [b"key:%d" % number for number in range(20000)]
    pairs = [item for key in keys for item in (key, b"v" + key)]
    assert raw.cmd("MSET", *pairs) == b"OK"
    assert raw.cmd("DBSIZE") == len(keys)
    assert raw.cmd("MGET", *keys) == [b"v" + key for key in keys]
    assert raw.cmd("EXISTS", *keys, *keys) == 2 * len(keys)
    assert raw.cmd("DEL", *keys) == len(keys)


# --- splitting and pipelining ---

STREAM = (encode("SET", "k", "v\r\n1") + b"ECHO \"a \\x41\"\r\n" + encode("GET", "k") +
          b"*0\r\n" + encode("MGET", "k", "none", "k") + b"\r\n" + encode("FOO", "a") +
          encode("APPEND", "k", "x" * 20) + encode("STRLEN", "k") + b"PING\n")
STREAM_REPLY = (b"+OK\r\n$3\r\na A\r\n$4\r\nv\r\n1\r\n*3\r\n$4\r\nv\r\n1\r\n$-1\r\n$4\r\nv\r\n1\r\n"
                b"-ERR unknown command 'FOO', with args beginning with: 'a' \r\n"
                b":24\r\n:24\r\n+PONG\r\n")


def test_requests_may_be_cut_anywhere(raw):
    for cut in range(1, len(STREAM)):
        raw.send(STREAM[:cut])
        time.sleep(0.0005)
        raw.send(STREAM[cut:])
        raw.expect(STREAM_REPLY)


def test_requests_may_come_byte_by_byte(raw):
    for position in range(len(STREAM)):
        raw.send(STREAM[position:position + 1])
        time.sleep(0.0002)
    raw.expect(STREAM_REPLY)


@pytest.mark.parametrize("size", [16 * 1024 - 1, 16 * 1024, 40000])
def test_large_requests_may_be_cut_anywhere(raw, size):
    data = pattern(size)
    request = encode("SET", "k", data) + encode("GET", "k") + encode("MSET", "a", data, "b", data) \
        + encode("MGET", "b", "a") + encode("DEL", "k", "a", "b")
    bulk = b"$%d\r\n%s\r\n" % (size, data)
    reply = b"+OK\r\n" + bulk + b"+OK\r\n*2\r\n" + bulk + bulk + b":3\r\n"
    ends = [0, 30, size + 20, size + 40, size + 60, 2 * size + 70, 3 * size + 80, len(request)]
    cuts = sorted({max(1, min(len(request) - 1, end + off)) for end in ends
                   for off in list(range(-6, 60, 7)) + [100, 5000]})
    for cut in cuts:
        raw.send(request[:cut])
        time.sleep(0.0005)
        raw.send(request[cut:])
        raw.expect(reply)


def test_pipeline_of_ten_thousand(raw):
    count = 10000
    raw.send(b"".join(encode("INCR", "counter") for _ in range(count)))
    raw.expect(b"".join(b":%d\r\n" % number for number in range(1, count + 1)))
    raw.send(b"".join(encode("SET", "k%d" % (n % 700), "v%d" % n) + encode("GET", "k%d" % (n % 700))
                      for n in range(count)))
    raw.expect(b"".join(b"+OK\r\n$%d\r\nv%d\r\n" % (len(str(n)) + 1, n) for n in range(count)))


def test_pipeline_keeps_order_across_every_kind_of_command(raw):
    """Plain keyed commands run in batches; what ends a batch must not overtake anything."""
    raw.send(encode("SET", "a", 1) + encode("INCR", "a") + encode("SELECT", 1) + encode("GET", "a") +
             encode("SET", "a", "other") + encode("DBSIZE") + encode("SELECT", 0) +
             encode("GET", "a") + encode("MULTI") + encode("INCR", "a") + encode("GET", "a") +
             encode("EXEC") + encode("KEYS", "*") + encode("FLUSHALL") + encode("GET", "a") +
             encode("DBSIZE") + encode("PING") + encode("INCR", "a") + encode("DEL", "a"))
    raw.expect(b"+OK\r\n:2\r\n+OK\r\n$-1\r\n+OK\r\n:1\r\n+OK\r\n$1\r\n2\r\n+OK\r\n+QUEUED\r\n"
               b"+QUEUED\r\n*2\r\n:3\r\n$1\r\n3\r\n*1\r\n$1\r\na\r\n+OK\r\n$-1\r\n:0\r\n+PONG\r\n"
               b":1\r\n:1\r\n")


def test_reply_of_a_client_that_stops_sending_is_delivered(raw):
    raw.send(encode("SET", "k", "v") + encode("GET", "k"))
    raw.sock.shutdown(socket.SHUT_WR)
    assert raw.read_to_end() == b"+OK\r\n$1\r\nv\r\n"


def test_slow_reader_gets_everything(raw):
    data = pattern(300000)
    raw.cmd("SET", "k", data)
    raw.send(b"".join(encode("GET", "k") for _ in range(60)))
    time.sleep(0.2)
    for _ in range(60):
        raw.expect(b"$300000\r\n" + data + b"\r\n")


def test_disconnect_in_the_middle_of_a_request(server, connect):
    pieces = (b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$5\r\nab", b"*2\r\n$3\r\nGET\r\n$100000\r\nxx", b"*1",
              b"SET k", b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$400000\r\n" + b"x" * 200000)
    for piece in pieces:
        conn = connect()
        conn.send(piece)
        conn.close()
    assert connect().cmd("EXISTS", "k") == 0


# --- error texts of the dispatcher ---


@pytest.mark.parametrize("args, text", [
    (["foo"], b"ERR unknown command 'foo', with args beginning with: "),
    (["foo", "a", "b"], b"ERR unknown command 'foo', with args beginning with: 'a' 'b' "),
    (["FoO", "a"], b"ERR unknown command 'FoO', with args beginning with: 'a' "),
    (["f\r\no", "a\r\nb"], b"ERR unknown command 'f  o', with args beginning with: 'a  b' "),
    (["x" * 200], b"ERR unknown command '" + b"x" * 128 + b"', with args beginning with: "),
    (["foo", "a" * 200, "b"],
     b"ERR unknown command 'foo', with args beginning with: '" + b"a" * 128 + b"' "),
    (["foo"] + ["arg"] * 40,
     b"ERR unknown command 'foo', with args beginning with: " + b"'arg' " * 21 + b"'ar' "),
    ([""], b"ERR unknown command '', with args beginning with: "),
    (["get"], b"ERR wrong number of arguments for 'get' command"),
    (["GET", "a", "b"], b"ERR wrong number of arguments for 'get' command"),
    (["ping", "a", "b"], b"ERR wrong number of arguments for 'ping' command"),
    (["MSET", "a"], b"ERR wrong number of arguments for 'mset' command"),
    (["MSET", "a", "b", "c"], b"ERR wrong number of arguments for 'mset' command"),
    (["CONFIG"], b"ERR wrong number of arguments for 'config' command"),
    (["CONFIG", "foo"], b"ERR unknown subcommand 'foo'. Try CONFIG HELP."),
    (["config", "FOO", "x"], b"ERR unknown subcommand 'FOO'. Try CONFIG HELP."),
    (["CONFIG", "GET"], b"ERR wrong number of arguments for 'config|get' command"),
    (["OBJECT", "x" * 200],
     b"ERR unknown subcommand '" + b"x" * 128 + b"'. Try OBJECT HELP."),
    (["SELECT", "16"], b"ERR DB index is out of range"),
    (["SELECT", "-1"], b"ERR DB index is out of range"),
    (["SELECT", "x"], b"ERR value is not an integer or out of range"),
    (["AUTH", "x"], b"ERR AUTH <password> called without any password configured for the default "
                    b"user. Are you sure your configuration is correct?"),
    (["AUTH", "nobody", "x"], b"WRONGPASS invalid username-password pair or user is disabled."),
    (["AUTH", "a", "b", "c"], b"ERR syntax error"),
])
def test_error_text(raw, args, text):
    assert raw.cmd_bytes(*args) == b"-" + text + b"\r\n"


def test_quit_answers_and_closes(raw, connect):
    raw.send(encode("SET", "a", 1) + encode("QUIT") + encode("SET", "b", 1))
    raw.expect(b"+OK\r\n+OK\r\n")
    raw.expect_closed()
    assert connect().cmd("EXISTS", "a", "b") == 1


def test_reply_can_be_switched_off(raw):
    raw.send(encode("CLIENT", "REPLY", "OFF") + encode("SET", "a", 1) + encode("GET", "a") +
             encode("FOO") + encode("CLIENT", "REPLY", "ON") + encode("PING"))
    raw.expect(b"+OK\r\n" + PONG)
    raw.send(encode("CLIENT", "REPLY", "SKIP") + encode("INCR", "a") + encode("GET", "a"))
    raw.expect(b"$1\r\n2\r\n")
    assert raw.cmd_bytes("CLIENT", "REPLY", "x") == b"-ERR syntax error\r\n"


# --- HELLO and RESP3 ---

HELLO_FIELDS = [b"server", b"version", b"proto", b"id", b"mode", b"role", b"modules"]


def test_hello_tells_about_the_server(raw):
    reply = raw.cmd("HELLO")
    assert reply[0::2] == HELLO_FIELDS
    assert reply[reply.index(b"proto") + 1] == 2
    assert reply[reply.index(b"server") + 1] == b"redis"
    three = raw.cmd("HELLO", "3")
    assert list(three) == HELLO_FIELDS
    assert three[b"proto"] == 3 and three[b"mode"] == b"standalone" and three[b"role"] == b"master"
    assert three[b"modules"] == [] and isinstance(three[b"id"], int)
    assert raw.cmd("HELLO")[b"proto"] == 3
    assert isinstance(raw.cmd("HELLO", "2"), list)


@pytest.mark.parametrize("args, text", [
    (["4"], b"NOPROTO unsupported protocol version"),
    (["1"], b"NOPROTO unsupported protocol version"),
    (["x"], b"ERR Protocol version is not an integer or out of range"),
    (["3", "foo"], b"ERR Syntax error in HELLO option 'foo'"),
    (["3", "AUTH", "default"], b"ERR Syntax error in HELLO option 'AUTH'"),
    (["3", "SETNAME"], b"ERR Syntax error in HELLO option 'SETNAME'"),
    (["3", "AUTH", "nobody", "x"],
     b"WRONGPASS invalid username-password pair or user is disabled."),
    (["3", "SETNAME", "a b"],
     b"ERR Client names cannot contain spaces, newlines or special characters."),
])
def test_hello_errors_change_nothing(raw, args, text):
    assert raw.cmd("HELLO", *args) == text
    raw.send_cmd("GET", "none")
    raw.expect(b"$-1\r\n")
    assert raw.cmd("CLIENT", "GETNAME") is None


def test_hello_sets_the_name(raw):
    assert raw.cmd("HELLO", "3", "AUTH", "default", "", "SETNAME", "me")[b"proto"] == 3
    assert raw.cmd("CLIENT", "GETNAME") == b"me"


def test_resp3_has_its_own_types(raw):
    raw.hello3()
    raw.cmd("MSET", "a", "ohmytext", "b", "mynewtext")
    assert raw.cmd_bytes("GET", "none") == b"_\r\n"
    assert raw.cmd_bytes("MGET", "a", "none") == b"*2\r\n$8\r\nohmytext\r\n_\r\n"
    assert raw.cmd_bytes("CONFIG", "GET", "maxclients") == \
        b"%1\r\n$10\r\nmaxclients\r\n$5\r\n10000\r\n"
    assert raw.cmd_bytes("LCS", "a", "b", "IDX", "MINMATCHLEN", "4") == \
        b"%2\r\n$7\r\nmatches\r\n*1\r\n*2\r\n*2\r\n:4\r\n:7\r\n*2\r\n:5\r\n:8\r\n$3\r\nlen\r\n:6\r\n"
    assert isinstance(raw.cmd("INFO", "server"), Verbatim)
    assert isinstance(raw.cmd("CLIENT", "LIST"), Verbatim)
    assert raw.cmd_bytes("MULTI") == b"+OK\r\n"
    assert raw.cmd_bytes("GET", "none") == b"+QUEUED\r\n"
    assert raw.cmd_bytes("EXEC") == b"*1\r\n_\r\n"


def test_watch_that_failed_answers_null_of_the_protocol(connect):
    for hello, null in ((2, b"*-1\r\n"), (3, b"_\r\n")):
        conn, other = connect(), connect()
        conn.cmd("HELLO", hello)
        assert conn.cmd("WATCH", "k") == b"OK"
        other.cmd("INCR", "k")
        conn.cmd("MULTI")
        conn.cmd("GET", "k")
        assert conn.cmd_bytes("EXEC") == null


# --- authentication ---


def test_without_password_only_a_few_commands_work(start_server):
    server = start_server("--requirepass", "secret", password="secret")
    with server.raw() as conn:
        for args in (["GET", "a"], ["PING"], ["MULTI"], ["CONFIG", "GET", "*"],
                     ["CLIENT", "ID"]):
            assert conn.cmd_bytes(*args) == b"-NOAUTH Authentication required.\r\n"
        assert conn.cmd("EXEC") == b"EXECABORT Transaction discarded because of: " \
                                   b"NOAUTH Authentication required."
        assert conn.cmd("foo") == b"ERR unknown command 'foo', with args beginning with: "
        assert conn.cmd("GET") == b"ERR wrong number of arguments for 'get' command"
        text = conn.cmd("HELLO", "3").text
        assert text.startswith(b"NOAUTH HELLO must be called with the client already authenticated")
        assert text.endswith(b"select the RESP protocol version at the same time")
        assert conn.cmd("AUTH", "wrong") == \
            b"WRONGPASS invalid username-password pair or user is disabled."
        assert conn.cmd("AUTH", "default", "wrong").code == b"WRONGPASS"
        assert conn.cmd("GET", "a").code == b"NOAUTH"
        assert conn.cmd("AUTH", "default", "secret") == b"OK"
        assert conn.cmd("GET", "a") is None
        assert conn.cmd("RESET") == b"RESET"
        assert conn.cmd("GET", "a").code == b"NOAUTH"
    with server.raw() as conn:
        assert conn.cmd("HELLO", "3", "AUTH", "default", "secret")[b"proto"] == 3
        assert conn.cmd("PING") == b"PONG"
        assert conn.cmd("CONFIG", "SET", "requirepass", "") == b"OK"
    with server.raw() as conn:
        assert conn.cmd("PING") == b"PONG"


@pytest.mark.parametrize("request_bytes, text", [
    (b"*11\r\n", b"unauthenticated multibulk length"),
    (b"*2\r\n$4\r\nPING\r\n$16385\r\n", b"unauthenticated bulk length"),
])
def test_strangers_may_not_announce_much(start_server, request_bytes, text):
    server = start_server("--requirepass", "secret", password="secret")
    with server.raw() as conn:
        conn.send(request_bytes)
        conn.expect(protocol_error(text))
        conn.expect_closed()
    with server.raw() as conn:
        conn.send(b"*10\r\n" + b"$4\r\nPING\r\n" * 10)
        conn.expect(b"-NOAUTH Authentication required.\r\n")
    with server.raw() as conn:
        conn.cmd("AUTH", "secret")
        assert conn.cmd("ECHO", "x" * 20000) == b"x" * 20000


# --- ways in ---


def test_unix_socket_works(server):
    with server.raw(unix=True) as conn:
        assert conn.cmd("PING") == b"PONG"
        info = conn.cmd("CLIENT", "LIST").decode()
        mine = [line for line in info.splitlines() if "cmd=client|list" in line]
        assert len(mine) == 1 and server.unix_path in mine[0]


def test_unix_socket_alone_and_its_permission(start_server):
    server = start_server("--port", "0", "--unixsocketperm", "700")
    import os
    import stat
    assert stat.S_IMODE(os.stat(server.unix_path).st_mode) == 0o700
    with server.raw(unix=True) as conn:
        assert conn.cmd("PING") == b"PONG"


def ipv6_works():
    try:
        with socket.socket(socket.AF_INET6) as sock:
            sock.bind(("::1", 0))
        return True
    except OSError:
        return False


@pytest.mark.skipif(not ipv6_works(), reason="no IPv6 loopback")
def test_ipv6_works(start_server):
    server = start_server(bind="127.0.0.1 ::1")
    with Raw(port=server.port, host="::1") as conn:
        assert conn.cmd("PING") == b"PONG"
        assert b"addr=[::1]:" in conn.cmd("CLIENT", "INFO")
    with Raw(port=server.port) as conn:
        assert b"addr=127.0.0.1:" in conn.cmd("CLIENT", "INFO")


def outside_address():
    """An address of this machine that is not loopback, or None."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.connect(("192.0.2.1", 9))
            address = sock.getsockname()[0]
        return None if address.startswith("127.") else address
    except OSError:
        return None


@pytest.mark.skipif(outside_address() is None, reason="only loopback here")
def test_protected_mode_refuses_strangers(start_server):
    server = start_server(bind="0.0.0.0")
    with Raw(port=server.port, host=outside_address()) as conn:
        got = conn.read_to_end()
        assert got.startswith(b"-DENIED ") and b" protected mode" in got, got
        assert got.endswith(b"\r\n") and got.count(b"\n") == 1
    with server.raw() as conn:
        assert conn.cmd("CONFIG", "SET", "protected-mode", "no") == b"OK"
    with Raw(port=server.port, host=outside_address()) as conn:
        assert conn.cmd("PING") == b"PONG"


def test_client_list_names_every_connection(raw, connect):
    other = connect()
    other.cmd("CLIENT", "SETNAME", "other")
    other.cmd("SELECT", "3")
    lines = raw.cmd("CLIENT", "LIST").decode().splitlines()
    assert len(lines) >= 2
    row = [line for line in lines if " name=other " in line][0]
    assert " db=3 " in row and " cmd=select " in row
    port = other.sock.getsockname()[1]
    assert " addr=127.0.0.1:%d " % port in row


# --- limits ---


def test_maxclients_refuses_the_next(start_server):
    server = start_server("--maxclients", "4")
    time.sleep(0.1)  # the connection that waited for the start is gone
    conns = [server.raw() for _ in range(4)]
    time.sleep(0.05)
    for conn in conns:
        assert conn.cmd("PING") == b"PONG"
    with server.raw() as extra:
        extra.expect(b"-ERR max number of clients reached\r\n")
        extra.expect_closed()
    conns.pop().close()
    deadline = time.monotonic() + 5 * TIME_SCALE
    while True:  # the server notices the hang-up a moment later
        with server.raw() as extra:
            try:
                if extra.cmd("PING") == b"PONG":
                    break
            except (OSError, Closed):
                pass
        assert time.monotonic() < deadline
    for conn in conns:
        assert conn.cmd("PING") == b"PONG"
        conn.close()


def test_idle_connections_are_closed_after_the_timeout(start_server):
    server = start_server("--timeout", "1")
    with server.raw() as idle, server.raw() as busy:
        idle.cmd("PING")
        for _ in range(12):
            time.sleep(0.2)
            assert busy.cmd("PING") == b"PONG"
        idle.expect_closed()


def test_query_buffer_limit_closes_the_connection(start_server):
    server = start_server("--client-query-buffer-limit", "1mb")
    with server.raw() as conn:
        head = b"*2\r\n$4\r\nECHO\r\n$5000000\r\n"
        try:
            conn.send(head + b"x" * 4000000)
            time.sleep(0.1)
            conn.send(b"x" * 1000000 + b"\r\n")
        except OSError:
            pass
        try:
            assert conn.read_to_end() == b""
        except OSError:
            pass
    with server.raw() as conn:
        assert conn.cmd("ECHO", b"x" * 900000) == b"x" * 900000


def test_many_commands_beyond_the_query_buffer_limit_are_fine(start_server):
    """The limit is for what cannot be executed, not for a long pipeline."""
    server = start_server("--client-query-buffer-limit", "1mb")
    with server.raw() as conn:
        for _ in range(40):
            conn.send(encode("SET", "k", b"x" * 1000) * 100)
            conn.expect(b"+OK\r\n" * 100)


def test_output_limit_closes_the_connection(start_server, reference):
    server = start_server("--client-output-buffer-limit", "normal 4mb 0 0")
    with server.raw() as conn, server.raw() as greedy:
        assert conn.cmd("SET", "k", b"x" * 400000) == b"OK"
        try:
            for _ in range(40):
                greedy.send(encode("GET", "k") * 5)
                time.sleep(0.01)
        except OSError:
            pass
        try:
            rest = greedy.read_to_end()
        except OSError:
            rest = b""
        assert len(rest) < 200 * 400000
        deadline = time.monotonic() + 5 * TIME_SCALE
        while len(conn.cmd("CLIENT", "LIST").splitlines()) > 1:
            assert time.monotonic() < deadline
        info = conn.cmd("INFO", "stats").decode()
        if not reference:  # counted since version 8.0
            assert "client_output_buffer_limit_disconnections:1\r\n" in info
    with server.raw() as conn:
        assert len(conn.cmd("GET", "k")) == 400000


def test_soft_output_limit_closes_after_its_seconds(start_server):
    server = start_server("--client-output-buffer-limit", "normal 0 100kb 1")
    with server.raw() as conn, server.raw() as greedy:
        assert conn.cmd("SET", "k", b"x" * 1000000) == b"OK"
        greedy.send(encode("GET", "k") * 20)
        deadline = time.monotonic() + 10 * TIME_SCALE
        while len(conn.cmd("CLIENT", "LIST").splitlines()) > 1:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_large_reply_within_limits_arrives(raw):
    raw.cmd("SET", "k", b"x" * 1000)
    raw.send(encode("MGET", *["k"] * 20000))
    reply = raw.read()
    assert len(reply) == 20000 and set(reply) == {b"x" * 1000}


def resident_bytes(pid):
    with open("/proc/%d/statm" % pid) as file:
        return int(file.read().split()[1]) * 4096


def test_announcing_much_and_sending_little_costs_little(server, connect):
    before = resident_bytes(server.pid)
    for _ in range(30):
        connect().send(b"*1000000\r\n$4\r\nMGET\r\n")
        connect().send(b"*2\r\n$4\r\nECHO\r\n$500000000\r\nx")
    assert connect().cmd("PING") == b"PONG"
    time.sleep(0.1)
    # A sanitizer keeps freed blocks and its own records: only the order of magnitude counts there.
    bound = (64 if TIME_SCALE == 1 else 512) * 1024 * 1024
    assert resident_bytes(server.pid) - before < bound


def test_free_port_is_refused_when_taken(start_server, reference):
    """A second server on the same port ends with an error, and the first goes on."""
    first = start_server()
    second = start_server("--port", str(first.port), wait=False)
    assert second.wait() == 1
    second.abandon()
    with first.raw() as conn:
        assert conn.cmd("PING") == b"PONG"
    assert free_port() != first.port


def test_errors_compare_by_text():
    assert Error(b"ERR x") == "ERR x" and Error(b"ERR x") != b"ERR y"
