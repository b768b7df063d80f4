#!/usr/bin/python3
"""AUTH, HELLO, PING, ECHO, SELECT, QUIT, RESET."""
import pytest
import redis

from raw import Error, Status, encode

WRONGPASS = Error(b"WRONGPASS invalid username-password pair or user is disabled.")
NOAUTH = Error(b"NOAUTH Authentication required.")


@pytest.fixture
def locked(start_server):
    return start_server("--requirepass", "secret", password="secret")


# --- PING, ECHO, SELECT, QUIT ---


def test_ping_and_echo(raw):
    assert raw.cmd_bytes("PING") == b"+PONG\r\n"
    assert raw.cmd_bytes("PING", "a b") == b"$3\r\na b\r\n"
    assert raw.cmd_bytes("ECHO", b"\x00\r\n") == b"$3\r\n\x00\r\n\r\n"
    assert raw.cmd("PING", "a", "b") == Error(b"ERR wrong number of arguments for 'ping' command")
    assert raw.cmd("ECHO") == Error(b"ERR wrong number of arguments for 'echo' command")


def test_select(raw):
    raw.cmd("SET", "a", "0")
    assert raw.cmd("SELECT", "15") == b"OK"
    assert raw.cmd("GET", "a") is None
    raw.cmd("SET", "a", "15")
    assert raw.cmd("SELECT", "0") == b"OK"
    assert raw.cmd("GET", "a") == b"0"


@pytest.mark.parametrize("db,error", [
    ("16", b"ERR DB index is out of range"), ("-1", b"ERR DB index is out of range"),
    ("x", b"ERR value is not an integer or out of range"),
    ("99999999999999999999", b"ERR value is not an integer or out of range"),
])
def test_select_errors_change_nothing(raw, db, error):
    raw.cmd("SELECT", "2")
    raw.cmd("SET", "a", "2")
    assert raw.cmd("SELECT", db) == Error(error)
    assert raw.cmd("GET", "a") == b"2"


def test_select_in_a_pipeline_ends_at_the_right_database(raw):
    raw.send(encode("SELECT", 1) + encode("SET", "a", "1") + encode("SELECT", 2) +
             encode("SET", "a", "2") + encode("SELECT", 1) + encode("GET", "a") +
             encode("SELECT", 2) + encode("GET", "a"))
    assert [raw.read() for _ in range(8)] == [b"OK"] * 5 + [b"1", b"OK", b"2"]


def test_quit(raw):
    raw.send(encode("SET", "a", "1") + encode("QUIT") + encode("SET", "a", "2"))
    raw.expect(b"+OK\r\n+OK\r\n")
    raw.expect_closed()


def test_nothing_runs_after_quit(raw, connect):
    raw.send(encode("QUIT") + encode("SET", "a", "2"))
    raw.expect(b"+OK\r\n")
    raw.expect_closed()
    assert connect().cmd("EXISTS", "a") == 0


# --- HELLO ---


def test_hello_tells_about_the_server(raw, reference):
    info = raw.cmd("HELLO", "3")
    assert list(info) == [b"server", b"version", b"proto", b"id", b"mode", b"role", b"modules"]
    assert info[b"server"] == b"redis"
    assert info[b"proto"] == 3
    assert info[b"id"] == raw.cmd("CLIENT", "ID")
    assert (info[b"mode"], info[b"role"], info[b"modules"]) == (b"standalone", b"master", [])
    if not reference:
        assert info[b"version"] == b"8.0.0"


def test_hello_switches_the_protocol(raw):
    assert raw.cmd_bytes("GET", "none") == b"$-1\r\n"
    assert raw.cmd_bytes("HELLO", "3").startswith(b"%7\r\n")
    assert raw.cmd_bytes("GET", "none") == b"_\r\n"
    assert raw.cmd_bytes("HELLO").startswith(b"%7\r\n")
    assert raw.cmd_bytes("HELLO", "2").startswith(b"*14\r\n")
    assert raw.cmd_bytes("GET", "none") == b"$-1\r\n"


def test_hello_in_a_pipeline(raw):
    raw.send(encode("GET", "x") + encode("HELLO", "3") + encode("GET", "x") + encode("HELLO", "2") +
             encode("GET", "x"))
    assert raw.read_bytes() == b"$-1\r\n"
    assert raw.read_bytes().startswith(b"%7\r\n")
    assert raw.read_bytes() == b"_\r\n"
    assert raw.read_bytes().startswith(b"*14\r\n")
    assert raw.read_bytes() == b"$-1\r\n"


def test_hello_setname(raw):
    raw.cmd("HELLO", "2", "SETNAME", "worker-1")
    assert raw.cmd("CLIENT", "GETNAME") == b"worker-1"
    raw.cmd("HELLO", "3", "AUTH", "default", "any", "SETNAME", "worker-2")
    assert raw.cmd("CLIENT", "GETNAME") == b"worker-2"


@pytest.mark.parametrize("args,error", [
    (["4"], b"NOPROTO unsupported protocol version"),
    (["1"], b"NOPROTO unsupported protocol version"),
    (["x"], b"ERR Protocol version is not an integer or out of range"),
    (["99999999999999999999"], b"ERR Protocol version is not an integer or out of range"),
    (["3", "FOO"], b"ERR Syntax error in HELLO option 'FOO'"),
    (["3", "AUTH"], b"ERR Syntax error in HELLO option 'AUTH'"),
    (["3", "AUTH", "a"], b"ERR Syntax error in HELLO option 'AUTH'"),
    (["3", "SETNAME"], b"ERR Syntax error in HELLO option 'SETNAME'"),
    (["3", "SETNAME", "a b"],
     b"ERR Client names cannot contain spaces, newlines or special characters."),
    (["3", "AUTH", "nobody", "x"], WRONGPASS.text),
])
def test_hello_errors_change_nothing(raw, args, error):
    assert raw.cmd("HELLO", *args) == Error(error)
    assert raw.cmd_bytes("CLIENT", "GETNAME") == b"$-1\r\n"


@pytest.mark.kvik_only  # the reference sets the name first
def test_hello_with_wrong_password_sets_no_name(raw):
    assert raw.cmd("HELLO", "3", "SETNAME", "ok", "AUTH", "nobody", "x") == WRONGPASS
    assert raw.cmd_bytes("CLIENT", "GETNAME") == b"$-1\r\n"


# --- AUTH ---


def test_auth_without_password_configured(raw):
    assert raw.cmd("AUTH", "x") == Error(
        b"ERR AUTH <password> called without any password configured for the default user. Are "
        b"you sure your configuration is correct?")
    assert raw.cmd("AUTH", "default", "anything") == b"OK"
    assert raw.cmd("AUTH", "nobody", "x") == WRONGPASS
    assert raw.cmd("AUTH", "a", "b", "c") == Error(b"ERR syntax error")
    assert raw.cmd("PING") == b"PONG"


def test_auth(locked):
    with locked.raw() as conn:
        assert conn.cmd("GET", "a") == NOAUTH
        assert conn.cmd("PING") == NOAUTH
        for wrong in ["", "s", "secre", "secrets", "SECRET", "secretsecret", b"secret\x00"]:
            assert conn.cmd("AUTH", wrong) == WRONGPASS
        assert conn.cmd("AUTH", "nobody", "secret") == WRONGPASS
        assert conn.cmd("GET", "a") == NOAUTH
        assert conn.cmd("AUTH", "secret") == b"OK"
        assert conn.cmd("GET", "a") is None
        assert conn.cmd("AUTH", "wrong") == WRONGPASS
        assert conn.cmd("GET", "a") is None
    with locked.raw() as conn:
        assert conn.cmd("AUTH", "default", "secret") == b"OK"
        assert conn.cmd("SET", "a", "1") == b"OK"


def test_hello_and_auth(locked):
    with locked.raw() as conn:
        refused = conn.cmd("HELLO", "3")
        assert refused.text.startswith(b"NOAUTH HELLO must be called with the client already "
                                       b"authenticated")
        assert conn.cmd("HELLO", "3", "AUTH", "default", "wrong") == WRONGPASS
        assert conn.cmd("HELLO", "3", "SETNAME", "x", "AUTH", "default", "secret")[b"proto"] == 3
        assert conn.cmd("CLIENT", "GETNAME") == b"x"
        assert conn.cmd("HELLO", "2")[4:6] == [b"proto", 2]


def test_quit_and_reset_without_authentication(locked):
    with locked.raw() as conn:
        assert conn.cmd_bytes("RESET") == b"+RESET\r\n"
        assert conn.cmd("QUIT") == b"OK"
        conn.expect_closed()


def test_a_pipeline_behind_auth(locked):
    with locked.raw() as conn:
        conn.send(encode("SET", "a", "1") + encode("AUTH", "secret") + encode("SET", "a", "2") +
                  encode("GET", "a"))
        assert [conn.read() for _ in range(4)] == [NOAUTH, b"OK", b"OK", b"2"]


def test_redis_py_with_password(locked):
    with pytest.raises(redis.exceptions.AuthenticationError):
        redis.Redis(port=locked.port).ping()
    assert redis.Redis(port=locked.port, password="secret").ping()


# --- RESET ---


def test_reset(raw):
    raw.cmd("HELLO", "3", "SETNAME", "x")
    raw.cmd("SELECT", "3")
    raw.cmd("WATCH", "a")
    raw.cmd("MULTI")
    reply = raw.cmd("RESET")
    assert reply == b"RESET" and isinstance(reply, Status)
    assert raw.cmd_bytes("GET", "none") == b"$-1\r\n"
    assert raw.cmd("CLIENT", "GETNAME") is None
    assert b" db=0 " in raw.cmd("CLIENT", "INFO")
    assert raw.cmd("EXEC") == Error(b"ERR EXEC without MULTI")


def test_reset_takes_the_authentication_back(locked):
    with locked.raw() as conn:
        conn.cmd("AUTH", "secret")
        assert conn.cmd("RESET") == b"RESET"
        assert conn.cmd("GET", "a") == NOAUTH


def test_reset_switches_replies_on(raw):
    raw.send(encode("CLIENT", "REPLY", "OFF") + encode("SET", "a", "1") + encode("RESET") +
             encode("GET", "a"))
    raw.expect(b"+RESET\r\n$1\r\n1\r\n")
