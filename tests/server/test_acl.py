#!/usr/bin/python3
"""ACL: words of rules, what they permit, the log, files, and what a change does to connections.

Texts of denials are those of Redis 7.2 and later; the reference, 7.0, has others (`denied` takes
both). How command rules are printed differs as well: rules here are such that both print the same,
unless a test is Kvik's own."""
import hashlib
import threading
import time

import pytest

from process import ServerProblem, TIME_SCALE
from raw import Closed, Error, Set

NO_KEY = "no key"
NO_CHANNEL = "no channel"
WRONGPASS = "WRONGPASS invalid username-password pair or user is disabled."
TEXTS = {
    NO_KEY: (b"NOPERM No permissions to access a key",
             b"NOPERM this user has no permissions to access one of the keys used as arguments"),
    NO_CHANNEL: (b"NOPERM No permissions to access a channel",
                 b"NOPERM this user has no permissions to access one of the channels used as "
                 b"arguments"),
}


def sha(password):
    return hashlib.sha256(password.encode()).hexdigest()


def denied(reply, what, reference, user="u", prefix=""):
    """Whether a reply denies a command (its name), a key or a channel."""
    if what in TEXTS:
        text = TEXTS[what][reference]
    elif reference:
        text = b"NOPERM this user has no permissions to run the '%s' command" % what.encode()
    else:
        text = b"NOPERM User %s has no permissions to run the '%s' command" % (
            user.encode(), what.encode())
    return reply == Error(prefix.encode() + text)


def wait_until(condition, seconds=10):
    deadline = time.monotonic() + seconds * TIME_SCALE
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.005)


def is_closed(conn):
    """The server ends this connection (or has)."""
    try:
        while True:
            conn.read()
    except (Closed, ConnectionError, BrokenPipeError):
        return True


@pytest.fixture(autouse=True)
def clean(raw):
    """Only the default user, with all rights; nothing in the log."""
    yield
    for name in raw.cmd("ACL", "USERS"):
        if name != b"default":
            raw.cmd("ACL", "DELUSER", name)
    raw.cmd("ACL", "SETUSER", "default", "reset", "on", "nopass", "~*", "&*", "+@all")
    raw.cmd("CONFIG", "SET", "requirepass", "", "acllog-max-len", "128")
    raw.cmd("ACL", "LOG", "RESET")


@pytest.fixture
def login(connect, raw):
    """A further connection as user u, who has just got these rules."""
    def make(*rules, name="u", **options):
        assert raw.cmd("ACL", "SETUSER", name, "reset", "on", ">pw", *rules) == b"OK"
        conn = connect(**options)
        assert conn.cmd("AUTH", name, "pw") == b"OK"
        return conn
    return make


def shown(raw, name="u"):
    """Rules of a user as ACL LIST has them, without the flags that all have here."""
    for line in raw.cmd("ACL", "LIST"):
        if line.startswith(b"user %s " % name.encode()):
            return line.decode().split(" ", 2)[2].replace("sanitize-payload ", "")
    return None


# --- words ---

@pytest.mark.parametrize("words,want", [
    ([], "off resetchannels -@all"),
    (["on"], "on resetchannels -@all"),
    (["ON", "OFF"], "off resetchannels -@all"),
    (["nopass"], "off nopass resetchannels -@all"),
    (["nopass", "resetpass"], "off resetchannels -@all"),
    ([">a", ">b", ">a"], "off #%s #%s resetchannels -@all" % (sha("a"), sha("b"))),
    ([">a", ">b", "<a"], "off #%s resetchannels -@all" % sha("b")),
    ([">a", "#" + sha("c"), "!" + sha("a")], "off #%s resetchannels -@all" % sha("c")),
    (["nopass", ">a"], "off #%s resetchannels -@all" % sha("a")),
    ([">a", "nopass"], "off nopass resetchannels -@all"),
    ([">"], "off #%s resetchannels -@all" % sha("")),
    ([">with blank"], "off #%s resetchannels -@all" % sha("with blank")),
    (["~a", "~b*", "~a"], "off ~a ~b* resetchannels -@all"),
    (["%R~a", "%W~b", "%RW~c", "%wr~d"], "off %R~a %W~b ~c ~d resetchannels -@all"),
    (["%R~a", "%W~a"], "off ~a resetchannels -@all"),
    (["~*"], "off ~* resetchannels -@all"),
    (["allkeys", "resetkeys"], "off resetchannels -@all"),
    (["%R~*"], "off %R~* resetchannels -@all"),
    (["%RW~*"], "off ~* resetchannels -@all"),
    pytest.param(["~a", "%R~*", "%W~*"], "off ~* resetchannels -@all",
                 marks=pytest.mark.kvik_only),  # the reference shows what it does not read back
    (["&a", "&b*", "&a"], "off resetchannels &a &b* -@all"),
    (["&*"], "off &* -@all"),
    (["allchannels", "resetchannels", "&c"], "off resetchannels &c -@all"),
    (["+@all"], "off resetchannels +@all"),
    (["allcommands", "nocommands"], "off resetchannels -@all"),
    (["+get"], "off resetchannels -@all +get"),
    (["+GeT"], "off resetchannels -@all +get"),
    (["+@all", "-get"], "off resetchannels +@all -get"),
    (["+client|list"], "off resetchannels -@all +client|list"),
    (["+client|list", "+client"], "off resetchannels -@all +client"),
    (["+client", "-client|kill"], "off resetchannels -@all +client -client|kill"),
    (["+config|get"], "off resetchannels -@all +config|get"),
    (["+select|0", "+select|1", "+SELECT|1"], "off resetchannels -@all +select|0 +select|1"),
    (["+select|0", "+select"], "off resetchannels -@all +select"),
    (["+@read"], "off resetchannels -@all +@read"),
    (["+@all", "-@write"], "off resetchannels +@all -@write"),
    (["(+get ~a*)"], "off resetchannels -@all (~a* resetchannels -@all +get)"),
    (["(+get", "~a*", ")"], "off resetchannels -@all (~a* resetchannels -@all +get)"),
    (["(", "~a*", "&x", "+@all", "-get)"],
     "off resetchannels -@all (~a* resetchannels &x +@all -get)"),
    (["(~a)", "+set", "(~b)"],
     "off resetchannels -@all +set (~a resetchannels -@all) (~b resetchannels -@all)"),
    (["(~a)", "clearselectors"], "off resetchannels -@all"),
    (["(allkeys allchannels allcommands)"], "off resetchannels -@all (~* &* +@all)"),
    (["()"], "off resetchannels -@all (resetchannels -@all)"),
    (["on", ">a", "~a", "&b", "+get", "(~c)", "reset"], "off resetchannels -@all"),
    (["", "on"], "on resetchannels -@all"),
])
def test_words_give_rules(raw, words, want):
    assert raw.cmd("ACL", "SETUSER", "u", *words) == b"OK"
    assert shown(raw) == want
    # What is shown gives the same rules again.
    assert raw.cmd("ACL", "SETUSER", "v", *shown(raw).split()) == b"OK"
    assert shown(raw, "v") == want


UNKNOWN = "Unknown command or category name in ACL"
HASH = ("The password hash must be exactly 64 characters and contain only lowercase hexadecimal "
        "characters")
AFTER_KEYS = ("Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does "
              "not have any effect. Try 'resetkeys' to start with an empty list of patterns")
AFTER_CHANNELS = ("Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid "
                  "and does not have any effect. Try 'resetchannels' to start with an empty list of "
                  "channels")
NO_PASSWORD = "The password you are trying to remove from the user does not exist"


@pytest.mark.parametrize("words,blamed,why", [
    (["foo"], "foo", "Syntax error"),
    (["+foo"], "+foo", UNKNOWN),
    (["-foo"], "-foo", UNKNOWN),
    (["+@foo"], "+@foo", UNKNOWN),
    (["+@"], "+@", UNKNOWN),
    (["+"], "+", UNKNOWN),
    (["+client|foo"], "+client|foo", UNKNOWN),
    (["-client|foo"], "-client|foo", UNKNOWN),
    (["-select|0"], "-select|0", UNKNOWN),
    (["+get|a|b"], "+get|a|b", UNKNOWN),
    (["+nosuch|a"], "+nosuch|a", UNKNOWN),
    (["+@all|x"], "+@all|x", UNKNOWN),
    (["+client|list|x"], "+client|list|x", "Allowing first-arg of a subcommand is not supported"),
    (["+get|"], "+get|", "Syntax error"),
    (["%X~a"], "%X~a", "Syntax error"),
    (["%RR~a"], "%RR~a", "Syntax error"),
    (["%~a"], "%~a", "Syntax error"),
    (["%"], "%", "Syntax error"),
    (["~a b"], "~a b", "Syntax error"),
    (["&a\tb"], "&a\tb", "Syntax error"),
    ([")"], ")", "Syntax error"),
    (["(foo)"], "(foo)", "Syntax error"),
    (["(on)"], "(on)", "Syntax error"),
    (["(>x)"], "(>x)", "Syntax error"),
    (["(reset)"], "(reset)", "Syntax error"),
    (["(+get", "(~a)"], "(+get (~a)", "Syntax error"),
    (["(+get +foo)"], "(+get +foo)", UNKNOWN),
    (["(~* ~a)"], "(~* ~a)", AFTER_KEYS),
    (["~*", "~a"], "~a", AFTER_KEYS),
    (["allkeys", "%R~a"], "%R~a", AFTER_KEYS),
    (["&*", "&a"], "&a", AFTER_CHANNELS),
    (["<nosuch"], "<nosuch", NO_PASSWORD),
    (["!" + sha("nosuch")], "!" + sha("nosuch"), NO_PASSWORD),
    (["#abcd"], "#abcd", HASH),
    (["#" + sha("a").upper()], "#" + sha("a").upper(), HASH),
    (["!abcd"], "!abcd", HASH),
])
def test_a_mistake_changes_nothing(raw, words, blamed, why):
    raw.cmd("ACL", "SETUSER", "u", ">a", "~x", "+get")
    before = shown(raw)
    reply = raw.cmd("ACL", "SETUSER", "u", "resetkeys", "resetchannels", "on", *words)
    assert reply == Error(("ERR Error in ACL SETUSER modifier '%s': %s" % (blamed, why)).encode())
    assert shown(raw) == before
    assert isinstance(raw.cmd("ACL", "SETUSER", "never", *words), Error)
    assert b"never" not in raw.cmd("ACL", "USERS")


@pytest.mark.kvik_only  # the reference takes them for empty patterns, or ends
@pytest.mark.parametrize("word", ["%R", "%RW", "%r"])
def test_a_permission_needs_a_pattern(raw, word):
    assert raw.cmd("ACL", "SETUSER", "u", word) == Error(
        b"ERR Error in ACL SETUSER modifier '%s': Syntax error" % word.encode())


@pytest.mark.kvik_only  # the reference shows "(~a) ...", which it does not read back
@pytest.mark.parametrize("word", ["(+get ~a))", "(~a) )", "(+select|x) +get)"])
def test_no_word_in_parentheses_closes_them(raw, word):
    assert raw.cmd("ACL", "SETUSER", "u", word) == Error(
        b"ERR Error in ACL SETUSER modifier '%s': Syntax error" % word.encode())


def test_unmatched_parenthesis(raw):
    for words, first in ((["(+get"], "(+get"), (["foo", "(+get"], "(+get"), (["on", "(+get ~a", "+set"], "(+get ~a"),
                         (["("], "(")):
        assert raw.cmd("ACL", "SETUSER", "u", *words) == Error(
            b"ERR Unmatched parenthesis in acl selector starting at '%s'." % first.encode())
    assert raw.cmd("ACL", "USERS") == [b"default"]


@pytest.mark.kvik_only  # 7.0 derives its words from what they allow
def test_command_rules_keep_their_order(raw):
    def rules(*words):
        assert raw.cmd("ACL", "SETUSER", "u", "reset", *words) == b"OK"
        text = shown(raw).replace("off resetchannels ", "")
        assert raw.cmd("ACL", "SETUSER", "v", "reset", *text.split()) == b"OK"
        assert shown(raw, "v") == shown(raw)
        return text

    assert rules("+get", "+@string", "-get", "+@read") == "-@all +@string -get +@read"
    assert rules("+@read", "-@string", "+@read") == "-@all -@string +@read"
    assert rules("+@all", "+get") == "+@all +get"
    assert rules("-client") == "-@all -client"
    assert rules("+client", "-client|list", "+client|list") == "-@all +client +client|list"
    assert rules("+select|0", "-@connection") == "-@all -@connection"
    assert rules("+select|0", "+select", "+select|1") == "-@all +select +select|1"
    assert rules("+@all", "-@write", "-@all", "+set") == "-@all +set"


def test_names_of_users(raw):
    bad = Error(b"ERR Usernames can't contain spaces or null characters")
    for name in (b"a b", b"a\tb", b"a\x00b", b" "):
        assert raw.cmd("ACL", "SETUSER", name) == bad
    for name in (b"", b"\xff", b"a,b", b"'q\"", b"(x)"):
        assert raw.cmd("ACL", "SETUSER", name) == b"OK"
    assert raw.cmd("ACL", "USERS") == sorted([b"", b"\xff", b"a,b", b"'q\"", b"(x)", b"default"])
    assert raw.cmd("ACL", "DELUSER", "", "nosuch", "", "(x)") == 2
    assert raw.cmd("ACL", "DELUSER", "a,b", "default") == Error(
        b"ERR The 'default' user cannot be removed")
    assert b"a,b" in raw.cmd("ACL", "USERS")


def test_getuser_in_both_protocols(raw, connect):
    raw.cmd("ACL", "SETUSER", "u", "on", "nopass", "sanitize-payload", "~a", "%R~b", "&c", "+get",
            "(~x +@all -set)", "(&y)")
    assert raw.cmd("ACL", "GETUSER", "nosuch") is None
    flat = raw.cmd("ACL", "GETUSER", "u")
    selectors = [[b"commands", b"+@all -set", b"keys", b"~x", b"channels", b""],
                 [b"commands", b"-@all", b"keys", b"", b"channels", b"&y"]]
    assert flat == [b"flags", [b"on", b"nopass", b"sanitize-payload"], b"passwords", [],
                    b"commands", b"-@all +get", b"keys", b"~a %R~b", b"channels", b"&c",
                    b"selectors", selectors]
    raw.cmd("ACL", "SETUSER", "u", "skip-sanitize-payload", ">p", "off", "clearselectors")
    other = connect()
    other.cmd("HELLO", "3")
    reply = other.cmd("ACL", "GETUSER", "u")
    assert reply[b"flags"] == Set([b"off", b"skip-sanitize-payload"])
    assert reply[b"passwords"] == [sha("p").encode()]
    assert reply[b"selectors"] == []
    assert other.cmd("ACL", "GETUSER", "nosuch") is None


def test_categories_agree_with_the_reference(raw, redis_server):
    with redis_server.raw() as other:
        names = other.cmd("ACL", "CAT")
        assert raw.cmd("ACL", "CAT") == names
        theirs_all = {name for category in names for name in other.cmd("ACL", "CAT", category)}
        ours_all = {name for category in names for name in raw.cmd("ACL", "CAT", category)}
        both = theirs_all & ours_all
        assert len(both) > 200
        for category in names:
            ours = set(raw.cmd("ACL", "CAT", category)) & both
            theirs = set(other.cmd("ACL", "CAT", category)) & both
            assert ours == theirs, category
    assert raw.cmd("ACL", "CAT", "STRING") == raw.cmd("ACL", "CAT", "string")
    assert raw.cmd("ACL", "CAT", "nosuch") == Error(b"ERR Unknown category 'nosuch'")


def test_wrong_forms(raw):
    for words in (["CAT", "a", "b"], ["GENPASS", "1", "2"], ["LOG", "1", "2"], ["LOG", "RESET", "1"]):
        assert raw.cmd("ACL", *words) == Error(
            b"ERR unknown subcommand or wrong number of arguments for '%s'. Try ACL HELP." %
            words[0].encode())
    assert raw.cmd("ACL", "nosuch") == Error(b"ERR unknown subcommand 'nosuch'. Try ACL HELP.")
    for words in (["WHOAMI", "x"], ["GETUSER"], ["SETUSER"], ["DELUSER"], ["LIST", "x"]):
        assert raw.cmd("ACL", *words) == Error(
            b"ERR wrong number of arguments for 'acl|%s' command" % words[0].lower().encode())
    assert raw.cmd("ACL") == Error(b"ERR wrong number of arguments for 'acl' command")
    assert raw.cmd("ACL", "LOG", "x") == Error(b"ERR value is not an integer or out of range")
    no_file = raw.cmd("ACL", "LOAD")
    assert b"is not configured to use an ACL file" in no_file.text
    assert raw.cmd("ACL", "SAVE") == no_file
    assert len(raw.cmd("ACL", "HELP")) > 10


def test_genpass(raw):
    one, two = raw.cmd("ACL", "GENPASS"), raw.cmd("ACL", "GENPASS")
    assert len(one) == 64 and one != two and set(one) <= set(b"0123456789abcdef")
    for bits, length in ((1, 1), (4, 1), (5, 2), (128, 32), (4096, 1024)):
        assert len(raw.cmd("ACL", "GENPASS", str(bits))) == length
    text = (b"ERR ACL GENPASS argument must be the number of bits for the output password, a "
            b"positive number up to 4096")
    for bits in ("0", "-1", "4097"):
        assert raw.cmd("ACL", "GENPASS", bits) == Error(text)
    assert raw.cmd("ACL", "GENPASS", "x") == Error(b"ERR value is not an integer or out of range")


# --- who somebody is ---

def test_auth_takes_the_password_of_a_user_who_is_on(raw, connect):
    raw.cmd("ACL", "SETUSER", "u", "on", ">one", ">two", "+@all", "-acl|setuser")
    conn = connect()
    assert conn.cmd("ACL", "WHOAMI") == b"default"
    for name, password in (("u", "three"), ("u", ""), ("U", "one"), ("nosuch", "one")):
        assert conn.cmd("AUTH", name, password) == Error(WRONGPASS.encode())
        assert conn.cmd("ACL", "WHOAMI") == b"default"
    assert conn.cmd("AUTH", "u", "one") == b"OK"
    assert conn.cmd("ACL", "WHOAMI") == b"u"
    assert conn.cmd("AUTH", "u", "two") == b"OK"
    assert conn.cmd("AUTH", "u", "wrong") == Error(WRONGPASS.encode())
    assert conn.cmd("ACL", "WHOAMI") == b"u"
    assert b"user=u " in conn.cmd("CLIENT", "INFO")
    assert conn.cmd("AUTH", "default", "anything") == b"OK"
    assert conn.cmd("ACL", "WHOAMI") == b"default"
    raw.cmd("ACL", "SETUSER", "u", "off")
    assert conn.cmd("AUTH", "u", "one") == Error(WRONGPASS.encode())
    raw.cmd("ACL", "SETUSER", "u", "on", "<one")
    assert conn.cmd("AUTH", "u", "one") == Error(WRONGPASS.encode())
    assert conn.cmd("HELLO", "3", "AUTH", "u", "wrong") == Error(WRONGPASS.encode())
    assert conn.cmd("HELLO", "2", "AUTH", "u", "two")[5] == 2
    assert conn.cmd("ACL", "WHOAMI") == b"u"
    assert conn.cmd("RESET") == b"RESET"
    assert conn.cmd("ACL", "WHOAMI") == b"default"


def test_off_keeps_connections(raw, login):
    conn = login("+@all")
    raw.cmd("ACL", "SETUSER", "u", "off")
    assert conn.cmd("PING") == b"PONG"
    assert conn.cmd("AUTH", "u", "pw") == Error(WRONGPASS.encode())


def test_requirepass_is_the_default_users_password(raw, connect):
    def default():
        return shown(raw, "default")

    early = connect()
    assert early.cmd("PING") == b"PONG"
    assert raw.cmd("CONFIG", "SET", "requirepass", "foo") == b"OK"
    assert default() == "on #%s ~* &* +@all" % sha("foo")
    assert early.cmd("PING") == b"PONG"
    late = connect()
    assert late.cmd("PING") == Error(b"NOAUTH Authentication required.")
    assert late.cmd("AUTH", "bar") == Error(WRONGPASS.encode())
    assert late.cmd("AUTH", "foo") == b"OK"
    raw.cmd("ACL", "SETUSER", "default", ">bar")
    other = connect()
    assert other.cmd("AUTH", "bar") == b"OK"
    assert raw.cmd("CONFIG", "GET", "requirepass") == [b"requirepass", b"foo"]
    assert raw.cmd("CONFIG", "SET", "requirepass", "baz") == b"OK"
    assert default() == "on #%s ~* &* +@all" % sha("baz")
    waiting = connect()
    assert waiting.cmd("PING") == Error(b"NOAUTH Authentication required.")
    assert raw.cmd("CONFIG", "SET", "requirepass", "") == b"OK"
    assert default() == "on nopass ~* &* +@all"
    assert waiting.cmd("PING") == b"PONG"
    assert raw.cmd("AUTH", "foo") == Error(
        b"ERR AUTH <password> called without any password configured for the default user. Are you "
        b"sure your configuration is correct?")
    # Who was let in only because nobody had to say who he is has to say it again.
    assert raw.cmd("CONFIG", "SET", "requirepass", "x") == b"OK"
    assert waiting.cmd("PING") == Error(b"NOAUTH Authentication required.")
    assert early.cmd("PING") == b"PONG"


def test_a_default_user_that_is_off(raw, connect):
    raw.cmd("ACL", "SETUSER", "admin", "on", "nopass", "+@all", "~*", "&*")
    raw.cmd("ACL", "SETUSER", "default", "off")
    conn = connect()
    assert conn.cmd("PING") == Error(b"NOAUTH Authentication required.")
    assert conn.cmd("AUTH", "default", "x") == Error(WRONGPASS.encode())
    assert conn.cmd("HELLO", "2").code == b"NOAUTH"
    assert conn.cmd("AUTH", "admin", "x") == b"OK"
    assert conn.cmd("PING") == b"PONG"
    assert raw.cmd("PING") == b"PONG"


def test_a_restricted_default_user(raw, connect, reference):
    raw.cmd("ACL", "SETUSER", "default", "-get")
    conn = connect()
    assert denied(conn.cmd("GET", "a"), "get", reference, "default")
    assert denied(raw.cmd("GET", "a"), "get", reference, "default")
    assert conn.cmd("SET", "a", "1") == b"OK"


# --- what is permitted ---

def test_commands_and_subcommands(login, reference):
    conn = login("+get", "+client|id", "+config", "-config|set", "+select|0", "~*")
    assert conn.cmd("GET", "a") is None
    assert denied(conn.cmd("SET", "a", "1"), "set", reference)
    assert isinstance(conn.cmd("CLIENT", "ID"), int)
    assert denied(conn.cmd("CLIENT", "LIST"), "client|list", reference)
    assert conn.cmd("CONFIG", "GET", "maxclients")[0] == b"maxclients"
    assert denied(conn.cmd("CONFIG", "SET", "maxclients", "9"), "config|set", reference)
    assert conn.cmd("SELECT", "0") == b"OK"
    assert denied(conn.cmd("SELECT", "1"), "select", reference)
    assert denied(conn.cmd("PING"), "ping", reference)
    # What is wrong with a line is told before whether it is permitted.
    assert conn.cmd("SET", "a").code == b"ERR"
    assert conn.cmd("NOSUCH").code == b"ERR"
    assert conn.cmd("CLIENT", "NOSUCH").code == b"ERR"
    assert conn.cmd("CLIENT").code == b"ERR"


def test_what_everybody_may(login, reference):
    conn = login("-@all")
    assert denied(conn.cmd("PING"), "ping", reference)
    assert conn.cmd("AUTH", "u", "pw") == b"OK"
    assert conn.cmd("HELLO", "2")[0] == b"server"
    assert conn.cmd("RESET") == b"RESET"
    assert conn.cmd("AUTH", "u", "pw") == b"OK"
    assert conn.cmd("QUIT") == b"OK"


KEY_CASES = [
    ("GET ro", 1), ("GET wo", 0), ("GET rw", 1), ("GET no", 0),
    ("SET ro x", 0), ("SET wo x", 1), ("SET wo x GET", 0), ("SET rw x GET", 1),
    ("GETSET wo x", 0), ("GETDEL ro", 0), ("GETDEL rw", 1), ("APPEND wo x", 1), ("APPEND ro x", 0),
    ("STRLEN wo", 1), ("STRLEN ro", 1), ("STRLEN no", 0), ("EXISTS wo ro rw", 1),
    ("EXISTS wo no", 0), ("TYPE wo", 1), ("TTL ro", 1), ("TTL wo", 0), ("EXPIRE wo 100", 1),
    ("EXPIRE ro 100", 0), ("PERSIST ro", 0), ("DEL wo", 1), ("DEL ro", 0), ("UNLINK wo rw", 1),
    ("TOUCH wo", 1), ("COPY ro wo", 1), ("COPY wo ro", 0), ("COPY rw rw2", 1), ("RENAME ro wo", 0),
    ("MSET wo 1 rw 2", 1), ("MSET wo 1 ro 2", 0), ("MGET ro rw", 1), ("MGET ro wo", 0),
    ("INCR wo", 0), ("INCR rw", 1), ("SETRANGE wo 0 x", 1), ("GETRANGE wo 0 1", 0),
    ("BITOP NOT wo ro", 1), ("BITOP NOT ro wo", 0), ("BITFIELD ro GET u8 0", 1),
    ("BITFIELD ro SET u8 0 1", 0), ("BITFIELD wo SET u8 0 1", 0), ("BITFIELD_RO ro GET u8 0", 1),
    ("LPUSH wo-l a", 1), ("LPUSH ro-l a", 0), ("LPOP wo-l", 0), ("LPOP rw-l", 1), ("LLEN wo-l", 1),
    ("LRANGE wo-l 0 1", 0), ("LMOVE ro-l wo-l LEFT LEFT", 0), ("LMOVE rw-l wo-l LEFT LEFT", 1),
    ("LMPOP 2 rw-l rw-m LEFT", 1), ("LMPOP 2 rw-l ro-m LEFT", 0), ("LMPOP x rw-l LEFT", 1),
    ("SADD wo-s a", 1), ("SREM wo-s a", 1), ("SISMEMBER wo-s a", 1), ("SMEMBERS wo-s", 0), ("SCARD wo-s", 1),
    ("SINTERSTORE wo-s ro-s rw-s", 1), ("SINTERSTORE ro-s rw-s", 0), ("SINTERCARD 2 ro-s rw-s", 1),
    ("SINTERCARD 2 ro-s wo-s", 0), ("HSET wo-h f v", 1), ("HGET wo-h f", 0), ("HLEN wo-h", 1),
    ("ZADD wo-z 1 a", 1), ("ZADD ro-z 1 a", 0), ("ZSCORE wo-z a", 0), ("ZCARD wo-z", 1),
    ("ZUNIONSTORE wo-z 2 ro-z rw-z", 1), ("ZUNIONSTORE wo-z 2 ro-z wo-y", 0),
    ("ZRANGESTORE wo-z ro-z 0 1", 1), ("SORT ro-l STORE wo-l", 1), ("SORT ro-l STORE ro-m", 0),
    ("SORT wo-l", 0), ("SORT ro-l LIMIT 0 1 ALPHA STORE wo-l STORE ro-l", 0),
    ("GEOADD wo-g 1 1 a", 1), ("GEOSEARCHSTORE wo-g ro-g FROMLONLAT 1 1 BYRADIUS 1 m", 1),
    ("PFADD wo-p a", 1), ("PFCOUNT wo-p", 0), ("PFMERGE rw-p ro-p", 1), ("OBJECT ENCODING wo", 1),
    ("OBJECT ENCODING no", 0), ("DUMP wo", 0), ("DUMP ro", 1), ("WATCH ro", 1), ("WATCH wo", 1),
    ("WATCH no", 0), ("KEYS *", 1), ("DBSIZE", 1), ("SCAN 0", 1), ("BLPOP rw-l ro-l 1", 0),
    ("MEMORY USAGE ro", 1), ("MEMORY USAGE no", 0), ("XADD wo-x * f v", 1), ("XLEN no", 0),
]


def test_keys_by_what_a_command_does_with_them(raw, login, reference):
    """By DRYRUN and by the command itself, and both must agree with what is expected."""
    conn = login("+@all", "%R~ro*", "%W~wo*", "~rw*")
    known = {name for category in raw.cmd("ACL", "CAT")
             for name in raw.cmd("ACL", "CAT", category)}
    for line, allowed in KEY_CASES:
        words = line.split()
        if words[0].lower().encode() not in known and words[0] not in ("OBJECT", "MEMORY"):
            continue
        dry = raw.cmd("ACL", "DRYRUN", "u", *words)
        reply = conn.cmd(*words)
        assert (dry == b"OK") == bool(allowed), (line, dry)
        assert (isinstance(reply, Error) and reply.code == b"NOPERM") != bool(allowed), (line, reply)
        if not allowed:
            assert denied(reply, NO_KEY, reference), line


def test_many_keys(login, reference):
    conn = login("+@all", "~k:*", "~*:suffix", "~[a-c]?")
    keys = ["k:%d" % i for i in range(100)] + ["x:suffix", "az"]
    assert conn.cmd("MSET", *[word for key in keys for word in (key, "1")]) == b"OK"
    assert conn.cmd("EXISTS", *keys) == len(keys)
    for bad in ("dz", "K:1", "x:suffi", ""):
        assert denied(conn.cmd("EXISTS", *keys, bad), NO_KEY, reference)


def test_selectors_do_not_mix(login, raw, reference):
    conn = login("+get", "~g", "(+set ~s)", "(+mset +del ~m* &c)", "(+publish &c)")
    for line, allowed in (("GET g", 1), ("SET s 1", 1), ("MSET m1 1 m2 2", 1), ("DEL m1", 1)):
        assert not isinstance(conn.cmd(*line.split()), Error), line
    assert conn.cmd("PUBLISH", "c", "x") == 0
    for line in ("GET s", "SET g 1", "MSET m1 1 s 2", "DEL s", "GET m1"):
        assert denied(conn.cmd(*line.split()), NO_KEY, reference), line
    assert denied(conn.cmd("PUBLISH", "d", "x"), NO_CHANNEL, reference)
    assert denied(conn.cmd("APPEND", "g", "x"), "append", reference)


def test_a_selector_may_allow_everything(login):
    conn = login("(allcommands allkeys allchannels)")
    assert conn.cmd("SET", "a", "1") == b"OK"
    assert conn.cmd("PUBLISH", "a", "1") == 0


def test_channels(login, reference):
    conn = login("+@all", "&news:*", "&one")
    assert conn.cmd("PUBLISH", "news:a", "x") == 0
    assert conn.cmd("SPUBLISH", "one", "x") == 0
    assert denied(conn.cmd("PUBLISH", "other", "x"), NO_CHANNEL, reference)
    assert denied(conn.cmd("SPUBLISH", "other", "x"), NO_CHANNEL, reference)
    assert denied(conn.cmd("SUBSCRIBE", "one", "other"), NO_CHANNEL, reference)
    assert denied(conn.cmd("SSUBSCRIBE", "other"), NO_CHANNEL, reference)
    # A pattern must be one of the user's own, literally.
    assert denied(conn.cmd("PSUBSCRIBE", "news:a"), NO_CHANNEL, reference)
    assert denied(conn.cmd("PSUBSCRIBE", "*"), NO_CHANNEL, reference)
    assert conn.cmd("PSUBSCRIBE", "news:*") == [b"psubscribe", b"news:*", 1]
    assert conn.cmd("SUBSCRIBE", "news:b") == [b"subscribe", b"news:b", 2]
    assert conn.cmd("SSUBSCRIBE", "one") == [b"ssubscribe", b"one", 1]
    assert conn.cmd("UNSUBSCRIBE", "other") == [b"unsubscribe", b"other", 2]


def test_patterns_of_sort_need_all_keys(login, raw):
    conn = login("+@all", "~l")
    raw.cmd("RPUSH", "l", "1", "2")
    for option, words in (("BY", ["BY", "w_*"]), ("GET", ["GET", "v_*"]), ("GET", ["GET", "#"]),
                          ("BY", ["BY", "w_*", "GET", "v_*"])):
        for name in ("SORT", "SORT_RO"):
            assert conn.cmd(name, "l", *words) == Error(
                b"ERR %s option of SORT denied due to insufficient ACL permissions." %
                option.encode())
    assert conn.cmd("SORT", "l", "BY", "nosort") == [b"1", b"2"]
    assert conn.cmd("SORT", "l", "DESC") == [b"2", b"1"]
    for rules in (["%W~*"], ["(+get ~*)"]):
        raw.cmd("ACL", "SETUSER", "u", *rules)
        assert conn.cmd("SORT", "l", "BY", "w_*").code == b"ERR"
    raw.cmd("ACL", "SETUSER", "u", "(+sort %R~*)")
    assert len(conn.cmd("SORT", "l", "BY", "w_*", "GET", "#")) == 2
    assert conn.cmd("SORT_RO", "l", "BY", "w_*").code == b"ERR"
    raw.cmd("ACL", "SETUSER", "u", "clearselectors", "~*")
    assert len(conn.cmd("SORT_RO", "l", "BY", "w_*", "GET", "#")) == 2


def test_pipelines_stop_at_nothing(login, raw):
    """Commands of a pipeline are permitted one by one, in any mixture and in their order."""
    conn = login("+@all", "-append", "~ok*")
    lines, wants = [], []
    for i in range(200):
        kind = i % 7
        if kind == 3:
            lines.append(("SET", "no%d" % i, "x"))
        elif kind == 5:
            lines.append(("APPEND", "ok", "x"))
        elif kind == 6:
            lines.append(("GET", "ok%d" % (i - 6)))
        else:
            lines.append(("SET", "ok%d" % i, "v%d" % i))
        wants.append(kind)
    for line in lines:
        conn.send_cmd(*line)
    for i, kind in enumerate(wants):
        reply = conn.read()
        if kind in (3, 5):
            assert isinstance(reply, Error) and reply.code == b"NOPERM", (i, reply)
        elif kind == 6:
            assert reply == b"v%d" % (i - 6)
        else:
            assert reply == b"OK"
    assert raw.cmd("KEYS", "no*") == []
    assert raw.cmd("EXISTS", "ok") == 0


# --- transactions ---

def test_transactions_are_checked_when_queued_and_when_run(login, raw, reference):
    conn = login("+@all", "-get", "~a", "&c")
    assert conn.cmd("MULTI") == b"OK"
    assert denied(conn.cmd("GET", "a"), "get", reference)
    assert conn.cmd("EXEC") == Error(
        b"EXECABORT Transaction discarded because of previous errors.")
    assert conn.cmd("MULTI") == b"OK"
    for line in ("SET a 1", "STRLEN a", "INCR a", "PUBLISH c x", "PING"):
        assert conn.cmd(*line.split()) == b"QUEUED"
    raw.cmd("ACL", "SETUSER", "u", "-strlen", "resetkeys", "%W~a", "resetchannels")
    text = (b"NOPERM ACLs rules changed between the moment the transaction was accumulated and the "
            b"EXEC call. This command is no longer allowed for the following reason: ")
    assert conn.cmd("EXEC") == [
        b"OK", Error(text + b"no permission to execute the command or subcommand"),
        Error(text + b"no permission to touch the specified keys"),
        Error(text + b"no permission to access one of the channels used as arguments"), b"PONG"]
    assert raw.cmd("GET", "a") == b"1"


def test_exec_itself_may_be_denied(login, raw, reference):
    conn = login("+@all", "~*")
    assert conn.cmd("MULTI") == b"OK"
    assert conn.cmd("SET", "a", "1") == b"QUEUED"
    raw.cmd("ACL", "SETUSER", "u", "-exec")
    assert denied(conn.cmd("EXEC"), "exec", reference,
                  prefix="EXECABORT Transaction discarded because of: ")
    assert conn.cmd("DISCARD") == Error(b"ERR DISCARD without MULTI")
    assert raw.cmd("EXISTS", "a") == 0


def test_a_transaction_that_changes_its_own_user(login, raw):
    conn = login("+@all", "~*")
    for line in ("MULTI", "SET a 1", "ACL SETUSER u -set", "SET a 2", "GET a"):
        conn.cmd(*line.split())
    replies = conn.cmd("EXEC")
    assert replies[0] == b"OK" and replies[1] == b"OK" and replies[3] == b"1"
    assert replies[2].code == b"NOPERM"


@pytest.mark.kvik_only  # the reference runs the rest with the default user's rights
def test_a_transaction_that_loses_its_user(login, raw):
    conn = login("+@all", "~*")
    for line in ("MULTI", "SET a 1", "ACL DELUSER u", "SET a 2", "ACL SETUSER u on nopass +@all",
                 "AUTH default x", "SET a 3"):
        conn.cmd(*line.split())
    no = Error(b"NOAUTH Authentication required.")
    assert conn.cmd("EXEC") == [b"OK", 1, no, no, b"OK", b"OK"]
    assert is_closed(conn)
    assert raw.cmd("GET", "a") == b"3"
    assert raw.cmd("ACL", "USERS") == [b"default"]


# --- changes and connections ---

def test_deleting_a_user_closes_its_connections(login, raw, connect):
    conn, second = login("+@all", "~*"), connect()
    second.cmd("AUTH", "u", "pw")
    blocked = connect()
    blocked.cmd("AUTH", "u", "pw")
    blocked.send_cmd("BLPOP", "l", "0")
    subscribed = connect()
    subscribed.cmd("AUTH", "u", "pw")
    raw.cmd("ACL", "SETUSER", "u", "&*")
    subscribed.cmd("SUBSCRIBE", "c")
    bystander = connect()
    assert raw.cmd("ACL", "DELUSER", "u") == 1
    for each in (conn, second, blocked, subscribed):
        assert is_closed(each)
    assert bystander.cmd("PING") == b"PONG"
    assert raw.cmd("PUBLISH", "c", "x") == 0
    assert raw.cmd("ACL", "GETUSER", "u") is None


def test_deleting_oneself_is_answered(login):
    conn = login("+@all")
    assert conn.cmd("ACL", "DELUSER", "u") == 1
    assert is_closed(conn)


def test_lost_channels_close_subscribers(raw, connect):
    raw.cmd("ACL", "SETUSER", "u", "on", "nopass", "+@all", "allchannels")
    conns = []
    for words in (["SUBSCRIBE", "a", "b1"], ["PSUBSCRIBE", "a*"], ["SSUBSCRIBE", "b2"],
                  ["SUBSCRIBE", "x"], ["PSUBSCRIBE", "b*"], ["SSUBSCRIBE", "x"]):
        conn = connect()
        conn.cmd("AUTH", "u", "x")
        conn.cmd(*words)
        conns.append(conn)
    idle = connect()
    idle.cmd("AUTH", "u", "x")
    raw.cmd("ACL", "SETUSER", "u", "resetchannels", "&a", "&b*")
    for i in (1, 3, 5):
        assert is_closed(conns[i])
    wait_until(lambda: raw.cmd("PUBLISH", "x", "m") == 0)
    assert raw.cmd("PUBLISH", "a", "m") == 1
    assert raw.cmd("PUBLISH", "b1", "m") == 2
    assert raw.cmd("SPUBLISH", "b2", "m") == 1
    assert idle.cmd("PING") == b"PONG"


def block(raw, conn, *words):
    """Sends a command that blocks; it has when this returns."""
    conn.send_cmd(*words)
    line = b" cmd=%s " % words[0].lower().encode()
    wait_until(lambda: any(line in x and b" flags=b " in x
                           for x in raw.cmd("CLIENT", "LIST").splitlines()))


@pytest.mark.kvik_only  # the reference looks at the rules before it blocks, and never again
def test_blocked_commands_end_with_their_right(login, raw):
    conn = login("+@all", "~*")
    block(raw, conn, "BLPOP", "l", "0")
    raw.cmd("ACL", "SETUSER", "u", "+get", "-set", "&x")
    assert raw.cmd("RPUSH", "l", "v") == 1
    assert conn.read() == [b"l", b"v"]
    for words, rules, what, blamed in (
            ("BLPOP l 0", "-blpop", "blpop", b"blpop"),
            ("BLMOVE l to LEFT LEFT 0", "resetkeys ~l", NO_KEY, b"to"),
            ("BLMPOP 0 2 k l LEFT", "resetkeys ~k", NO_KEY, b"l"),
            ("BLPOP %s l 0" % " ".join("k%d" % i for i in range(50)), "resetkeys ~k*", NO_KEY, b"l")):
        raw.cmd("ACL", "SETUSER", "u", "reset", "on", "+@all", "~*")
        block(raw, conn, *words.split())
        raw.cmd("ACL", "LOG", "RESET")
        # Nothing comes between the change and what would serve.
        for line in (["MULTI"], ["ACL", "SETUSER", "u", *rules.split()], ["RPUSH", "l", "v"]):
            raw.cmd(*line)
        assert raw.cmd("EXEC") == [b"OK", 1]
        assert denied(conn.read(), what, False)
        assert raw.cmd("LPOP", "l") == b"v"
        assert [e[b"object"] for e in entries(raw)] == [blamed]
        assert conn.cmd("CLIENT", "ID") > 0


@pytest.mark.kvik_only  # the reference closes it later, and serves it until then
def test_who_loses_his_user_is_not_served(login, raw):
    conn = login("+@all", "~*")
    block(raw, conn, "BLPOP", "l", "0")
    for line in ("MULTI", "ACL DELUSER u", "RPUSH l v"):
        raw.cmd(*line.split())
    assert raw.cmd("EXEC") == [1, 1]
    assert is_closed(conn)
    assert raw.cmd("LPOP", "l") == b"v"


def test_client_list_and_kill_by_user(login, raw):
    conn = login("+@all")
    assert raw.cmd("CLIENT", "KILL", "USER", "nosuch") == Error(b"ERR No such user 'nosuch'")
    assert raw.cmd("CLIENT", "KILL", "USER", "u") == 1
    assert is_closed(conn)


@pytest.mark.kvik_only  # the reference has no such filter of LIST
def test_client_list_of_a_user(login, raw):
    conn = login("+@all")
    lines = raw.cmd("CLIENT", "LIST", "USER", "u").splitlines()
    assert len(lines) == 1 and b" user=u " in lines[0]
    assert len(raw.cmd("CLIENT", "LIST", "NOT-USER", "u").splitlines()) >= 1
    assert conn.cmd("PING") == b"PONG"


def test_rules_change_under_load(raw, connect):
    """Whatever happens meanwhile, a command is answered by the rules before or after a change;
    after it, by the new ones."""
    raw.cmd("ACL", "SETUSER", "u", "on", "nopass", "+@all", "~*")
    stop = threading.Event()
    problems = []
    seen = {"OK": 0, "NOPERM": 0}

    def work(conn):
        conn.cmd("AUTH", "u", "x")
        try:
            while not stop.is_set():
                for i in range(20):
                    conn.send_cmd("SET", "k%d" % i, "v")
                for i in range(20):
                    reply = conn.read()
                    if reply == b"OK":
                        seen["OK"] += 1
                    elif getattr(reply, "code", None) == b"NOPERM":
                        seen["NOPERM"] += 1
                    else:
                        problems.append(reply)
        except Exception as problem:
            problems.append(problem)

    threads = [threading.Thread(target=work, args=(connect(),)) for _ in range(4)]
    idle = connect()
    idle.cmd("AUTH", "u", "x")
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 30 * TIME_SCALE
    changes = 0
    while changes < 60 or 0 in seen.values():
        assert time.monotonic() < deadline and problems == [], (problems, seen)
        words, permitted = [(["-set"], False), (["+set"], True), (["resetkeys", "~k1*"], False),
                            (["allkeys"], True)][changes % 4]
        assert raw.cmd("ACL", "SETUSER", "u", *words) == b"OK"
        reply = idle.cmd("SET", "k2", "v")
        assert reply == b"OK" if permitted else reply.code == b"NOPERM", (words, reply)
        assert raw.cmd("ACL", "SETUSER", "other%d" % (changes % 3), "on", "~x%d" % changes) == b"OK"
        changes += 1
    stop.set()
    for thread in threads:
        thread.join(30 * TIME_SCALE)
    assert problems == []


@pytest.mark.kvik_only  # the reference has one thread
def test_users_go_under_load(tmp_path, start_server):
    """Connections of all threads lose their user again and again, by DELUSER and by LOAD, in the
    middle of what they do; each is answered right until it is closed, and none is left."""
    rules = "on nopass +@all ~*"
    path = users_file(tmp_path, "user default on nopass ~* &* +@all\nuser u off\n")
    server = start_server("--aclfile", str(path), threads=4)
    stop = threading.Event()
    problems = []
    rounds, ends = [0] * 6, [0] * 6

    def session(conn, number):
        reply = conn.cmd("AUTH", "u", "x")
        if reply != b"OK":
            assert reply == Error(WRONGPASS.encode()), reply
            return
        while True:
            for i in range(20):
                conn.send_cmd("SET", "k%d" % i, "v")
            conn.send_cmd("MULTI")
            conn.send_cmd("INCR", "n")
            conn.send_cmd("EXEC")
            conn.send_cmd("BLPOP", "l%d" % number, "0.001" if number % 2 else "0")
            want = [b"OK"] * 21 + [b"QUEUED"]
            assert [conn.read() for _ in want] == want
            assert isinstance(conn.read()[0], int)
            rounds[number] += 1
            assert conn.read() is None

    def work(number):
        while not stop.is_set() and problems == []:
            try:
                with server.raw() as conn:
                    session(conn, number)
            except (Closed, ConnectionError):
                ends[number] += 1
            except Exception as problem:
                problems.append(problem)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(ends))]
    for thread in threads:
        thread.start()
    with server.raw() as admin:
        for i in range(40):
            before = list(rounds)
            assert admin.cmd("ACL", "SETUSER", "u", *rules.split()) == b"OK"
            wait_until(lambda: problems or all(new > old for new, old in zip(rounds, before)))
            if i % 2 == 0:
                assert admin.cmd("ACL", "DELUSER", "u") == 1
            else:
                assert admin.cmd("ACL", "LOAD") == b"OK"  # whose user u is off
        stop.set()
        for thread in threads:
            thread.join(30 * TIME_SCALE)
        assert problems == [] and min(ends) >= 20
        wait_until(lambda: len(admin.cmd("CLIENT", "LIST").splitlines()) == 1)


# --- DRYRUN ---

def test_dryrun(raw, reference):
    raw.cmd("ACL", "SETUSER", "u", "+get", "+mset", "+auth", "+subscribe", "+psubscribe", "~a*",
            "&x", "(+mset ~a* ~b*)")
    subject = "This user" if reference else "User u"

    def dry(*words):
        return raw.cmd("ACL", "DRYRUN", "u", *words)

    def no(text):
        return ("%s has no permissions to %s" % (subject, text)).encode()

    assert dry("GET", "ab") == b"OK"
    assert dry("GET", "b") == no("access the 'b' key")
    assert dry("SET", "a", "1") == no("run the 'set' command")
    assert dry("MSET", "a", "1", "b", "2") == b"OK"
    assert dry("MSET", "a", "1", "b", "2", "c", "3") == no("access the 'c' key")
    assert dry("SUBSCRIBE", "x", "y") == no("access the 'y' channel")
    assert dry("PSUBSCRIBE", "x*") == no("access the 'x*' channel")
    assert dry("CLIENT", "LIST") == no("run the 'client|list' command")
    assert dry("AUTH", "x") == b"OK"
    assert dry("QUIT") == b"OK"
    assert dry("NOSUCH") == Error(b"ERR Command 'NOSUCH' not found")
    assert dry("CLIENT", "NOSUCH") == Error(b"ERR Command 'CLIENT' not found")
    assert dry("GET") == Error(b"ERR wrong number of arguments for 'get' command")
    assert dry("CLIENT") == Error(b"ERR wrong number of arguments for 'client' command")
    assert raw.cmd("ACL", "DRYRUN", "nosuch", "PING") == Error(b"ERR User 'nosuch' not found")
    assert raw.cmd("ACL", "DRYRUN", "default", "FLUSHALL") == b"OK"
    assert raw.cmd("ACL", "LOG") == []


# --- the log ---

def entries(raw, *words):
    return [dict(zip(entry[::2], entry[1::2])) for entry in raw.cmd("ACL", "LOG", *words)]


def test_log_tells_what_was_denied(login, raw, connect):
    conn = login("+@all", "-get", "~a", "&c")
    conn.cmd("CLIENT", "SETNAME", "bob")
    conn.cmd("GET", "x")
    conn.cmd("SET", "b", "1")
    conn.cmd("PUBLISH", "d", "x")
    conn.cmd("MULTI")
    conn.cmd("SET", "b", "1")
    conn.cmd("DISCARD")
    conn.cmd("AUTH", "u", "wrong")
    connect().cmd("HELLO", "2", "AUTH", "nobody", "x")
    log = entries(raw)
    assert [(e[b"reason"], e[b"context"], e[b"object"], e[b"username"]) for e in log] == [
        (b"auth", b"toplevel", b"HELLO", b"nobody"),
        (b"auth", b"toplevel", b"AUTH", b"u"),
        (b"key", b"multi", b"b", b"u"),
        (b"channel", b"toplevel", b"d", b"u"),
        (b"key", b"toplevel", b"b", b"u"),
        (b"command", b"toplevel", b"get", b"u"),
    ]
    for e in log:
        assert e[b"count"] == 1
        assert 0 <= float(e[b"age-seconds"]) < 60 * TIME_SCALE
    assert b" name=bob " in log[-1][b"client-info"] and b" user=u " in log[-1][b"client-info"]
    assert b" cmd=get " in log[-1][b"client-info"]
    assert len(entries(raw, "2")) == 2
    assert entries(raw, "0") == [] and entries(raw, "-1") == []
    assert raw.cmd("ACL", "LOG", "ReSet") == b"OK"
    assert raw.cmd("ACL", "LOG") == []


def test_log_counts_equal_denials(login, raw):
    conn = login("+@all", "-get", "~a")
    for line in ("GET x", "GET y", "SET b 1", "GET x", "SET c 1"):
        conn.cmd(*line.split())
    log = entries(raw)
    assert [(e[b"object"], e[b"count"]) for e in log] == [(b"c", 1), (b"get", 3), (b"b", 1)]


def test_log_is_bounded(login, raw):
    conn = login("+@all", "~a")
    raw.cmd("CONFIG", "SET", "acllog-max-len", "5")
    for i in range(20):
        conn.cmd("SET", "k%d" % i, "1")
    assert [e[b"object"] for e in entries(raw, "100")] == [b"k%d" % i for i in range(19, 14, -1)]
    raw.cmd("CONFIG", "SET", "acllog-max-len", "128")
    for i in range(20):
        conn.cmd("SET", "k%d" % i, "1")
    assert len(entries(raw)) == 10 and len(entries(raw, "100")) >= 20


@pytest.mark.kvik_only  # the reference shortens it with the next denial, and not for 0
def test_log_is_shortened_with_its_limit(login, raw):
    conn = login("+@all", "~a")
    for limit in ("5", "2", "0"):
        for i in range(10):
            conn.cmd("SET", "k%d" % i, "1")
        assert raw.cmd("CONFIG", "SET", "acllog-max-len", limit) == b"OK"
        assert len(entries(raw, "100")) == int(limit)
    conn.cmd("SET", "k", "1")
    assert entries(raw) == []


@pytest.mark.kvik_only  # fields of 7.2 and later
def test_log_has_ids_and_times(login, raw, connect):
    conn = login("+@all", "-get", "~a")
    before = time.time() * 1000
    conn.cmd("GET", "x")
    conn.cmd("SET", "b", "1")
    conn.cmd("GET", "x")
    newest, older = entries(raw)
    assert newest[b"object"] == b"get" and newest[b"count"] == 2
    assert newest[b"entry-id"] + 1 == older[b"entry-id"]
    for e in (newest, older):
        assert before - 1000 <= e[b"timestamp-created"] <= e[b"timestamp-last-updated"]
    other = connect()
    other.cmd("HELLO", "3")
    entry = other.cmd("ACL", "LOG")[0]
    assert isinstance(entry, dict) and isinstance(entry[b"age-seconds"], float)


@pytest.mark.kvik_only  # long keys are kept whole by the reference
def test_log_cuts_what_clients_choose(login, raw):
    conn = login("+@all", "~a")
    conn.cmd("SET", "k" * 100000, "1")
    assert entries(raw)[0][b"object"] == b"k" * 1024


@pytest.mark.kvik_only  # INFO of 7.2 and later
def test_info_counts_denials(login, raw):
    def counts():
        lines = raw.cmd("INFO", "stats").decode().split("\r\n")
        return [int(dict(line.split(":") for line in lines if ":" in line)["acl_access_denied_" + x])
                for x in ("auth", "cmd", "key", "channel")]

    raw.cmd("CONFIG", "RESETSTAT")
    assert counts() == [0, 0, 0, 0]
    conn = login("+@all", "-get", "~a")
    for line in ("GET a", "GET a", "SET b 1", "PUBLISH c x", "AUTH u x", "SET a 1"):
        conn.cmd(*line.split())
    assert counts() == [1, 2, 1, 1]


def test_passwords_are_not_in_the_slow_log(raw, connect):
    raw.cmd("ACL", "SETUSER", "u", "on", ">hushhush", "+@all")
    raw.cmd("CONFIG", "SET", "slowlog-log-slower-than", "0")
    raw.cmd("SLOWLOG", "RESET")
    conn = connect()
    for line in ("AUTH u hushhush", "AUTH hushhush", "HELLO 2 SETNAME n AUTH u hushhush",
                 "ACL SETUSER u >hushhush2", "ACL SETUSER u <hushhush2",
                 "CONFIG SET requirepass hushhush", "CONFIG SET maxclients 1000 masterauth hushhush"):
        conn.cmd(*line.split())
    raw.cmd("CONFIG", "SET", "requirepass", "", "masterauth", "")
    shown_lines = [entry[3] for entry in raw.cmd("SLOWLOG", "GET", "-1")]
    raw.cmd("CONFIG", "SET", "slowlog-log-slower-than", "-1")
    assert not any(b"hushhush" in word for line in shown_lines for word in line)
    hidden = b"(redacted)"
    for line in ([b"AUTH", hidden, hidden], [b"AUTH", hidden],
                 [b"HELLO", b"2", b"SETNAME", b"n", b"AUTH", hidden, hidden],
                 [b"ACL", b"SETUSER", hidden, hidden],
                 [b"CONFIG", b"SET", b"requirepass", hidden],
                 [b"CONFIG", b"SET", b"maxclients", b"1000", b"masterauth", hidden]):
        assert line in shown_lines


@pytest.mark.kvik_only  # the reference shows those of lines that it refuses
def test_only_passwords_are_left_out_of_the_slow_log(raw, connect):
    migrate = "MIGRATE 127.0.0.1 1 "
    raw.cmd("CONFIG", "SET", "slowlog-log-slower-than", "0")
    conn = connect()
    for line in ("HELLO 2 SETNAME auth AUTH * *", "HELLO 2 AUTH * * SETNAME auth",
                 "HELLO 2 nonsense AUTH * *", migrate + "k 0 10 COPY AUTH * REPLACE",
                 migrate + "k 0 10 AUTH2 * *", migrate + "auth auth2 10 AUTH * KEYS auth k"):
        raw.cmd("SLOWLOG", "RESET")
        conn.cmd(*line.replace("*", "auth").split())
        shown_lines = [b" ".join(entry[3]).decode() for entry in raw.cmd("SLOWLOG", "GET")]
        assert line.replace("*", "(redacted)") in shown_lines
    raw.cmd("CONFIG", "SET", "slowlog-log-slower-than", "-1")


# --- acl-pubsub-default ---

def test_acl_pubsub_default(raw):
    raw.cmd("CONFIG", "SET", "acl-pubsub-default", "allchannels")
    raw.cmd("ACL", "SETUSER", "u", "(+get)")
    assert shown(raw) == "off &* -@all (&* -@all +get)"
    raw.cmd("ACL", "SETUSER", "u", "resetchannels", "reset")
    assert shown(raw) == "off &* -@all"
    raw.cmd("CONFIG", "SET", "acl-pubsub-default", "resetchannels")
    raw.cmd("ACL", "SETUSER", "u", "reset")
    assert shown(raw) == "off resetchannels -@all"


# --- files ---

def rewritten(server):
    return (server.dir / "kvik.conf").read_text()


def users_file(tmp_path, text):
    path = tmp_path / "users.acl"
    path.write_text(text)
    return path


def shown_by(server, password=None):
    with server.raw() as conn:
        if password is not None:
            assert conn.cmd("AUTH", password) == b"OK"
        return [line.decode() for line in conn.cmd("ACL", "LIST")]


def test_users_file(tmp_path, start_server):
    path = users_file(tmp_path, "user default on nopass ~* &* +@all\n\n"
                                " user alice   on >pw ~a* +get (+set ~b) \r\nuser bob\n")
    server = start_server("--aclfile", str(path))
    want = ["user alice on #%s ~a* resetchannels -@all +get (~b resetchannels -@all +set)" % sha("pw"),
            "user bob off resetchannels -@all", "user default on nopass ~* &* +@all"]
    assert shown_by(server) == want
    with server.raw() as conn:
        assert conn.cmd("CONFIG", "GET", "aclfile") == [b"aclfile", str(path).encode()]
        assert conn.cmd("ACL", "SETUSER", "carl", "on", "~*", "+client|list") == b"OK"
        assert conn.cmd("ACL", "DELUSER", "bob") == 1
        assert conn.cmd("ACL", "SAVE") == b"OK"
        want[1] = "user carl on ~* resetchannels -@all +client|list"
        assert path.read_text().splitlines() == want
        conn.cmd("ACL", "DELUSER", "carl")
        assert conn.cmd("ACL", "LOAD") == b"OK"
        assert shown_by(server) == want
        path.write_text("user dora on\n")
        assert conn.cmd("ACL", "LOAD") == b"OK"
        assert shown_by(server) == ["user default on nopass ~* &* +@all",
                                    "user dora on resetchannels -@all"]


WARNING = ("WARNING: ACL errors detected, no change to the previously active ACL rules was "
           "performed")


@pytest.mark.parametrize("text,want", [
    ("usr x on\n", "{p}:1 should start with user keyword followed by the username. "),
    ("user\n", "{p}:1 should start with user keyword followed by the username. "),
    ("# comment\n", "{p}:1 should start with user keyword followed by the username. "),
    ("User x\n", "{p}:1 should start with user keyword followed by the username. "),
    ("user x on foo +bar\nuser y zzz\nuser x on\n",
     "{p}:1: Syntax error. {p}:1: Error in applying operation '+bar': " + UNKNOWN +
     ". {p}:2: Syntax error. WARNING: Duplicate user 'x' found on line 3. "),
    ("user a on \"~a b\"\n", "{p}:1: Syntax error. "),
    ("user a +foo +foo\nuser b #aa <x +get|x|y ~* ~a &* &b\nuser c &* &b\n",
     "{p}:1: Error in applying operation '+foo': " + UNKNOWN +
     ". {p}:1: Error in applying operation '+foo': " + UNKNOWN + ". {p}:2: " + HASH +
     ". {p}:2: Error in applying operation '+get|x|y': " + UNKNOWN + ". {p}:3: " +
     AFTER_CHANNELS + ". "),
    ("user a (+foo ~* ~a)\n\nuser b (~* ~b)\n",
     "{p}:1: Error in applying operation '(+foo ~* ~a)': " + UNKNOWN + ". {p}:3: " + AFTER_KEYS +
     ". "),
    ("user a\ton\n", "'{p}:1: username 'a\ton' contains invalid characters. "),
])
def test_a_users_file_with_mistakes_changes_nothing(tmp_path, start_server, text, want):
    path = users_file(tmp_path, "user alice on\n")
    server = start_server("--aclfile", str(path))
    before = shown_by(server)
    path.write_text(text)
    with server.raw() as conn:
        want = "ERR " + want.replace("{p}", str(path)) + WARNING
        assert conn.cmd("ACL", "LOAD") == Error(want.encode())
    assert shown_by(server) == before


@pytest.mark.kvik_only  # the reference ends
def test_a_users_file_with_an_open_parenthesis(tmp_path, start_server):
    path = users_file(tmp_path, "")
    server = start_server("--aclfile", str(path))
    path.write_text("user x on (+get\nuser y\n")
    with server.raw() as conn:
        assert conn.cmd("ACL", "LOAD") == Error(
            ("ERR %s:1: Unmatched parenthesis in acl selector starting at '(+get'. %s" %
             (path, WARNING)).encode())
    assert shown_by(server) == ["user default on nopass ~* &* +@all"]


def test_a_users_file_that_is_gone(tmp_path, start_server):
    path = users_file(tmp_path, "user alice on\n")
    server = start_server("--aclfile", str(path))
    path.unlink()
    with server.raw() as conn:
        assert conn.cmd("ACL", "LOAD") == Error(
            ("ERR Error loading ACLs, opening file '%s': No such file or directory" % path).encode())
        path.mkdir()
        assert conn.cmd("ACL", "SAVE") == Error(
            b"ERR There was an error trying to save the ACLs. Please check the server logs for more "
            b"information")
        path.rmdir()
        assert conn.cmd("ACL", "SAVE") == b"OK"
    assert path.read_text() == ("user alice on resetchannels -@all\n"
                                "user default on nopass ~* &* +@all\n")


def test_load_closes_connections_of_users_that_are_gone_or_changed(tmp_path, start_server,
                                                                   reference):
    rules = "on nopass +@all ~* &*"
    path = users_file(tmp_path, "".join("user %s %s\n" % (name, rules) for name in "abc"))
    server = start_server("--aclfile", str(path))
    conns = {}
    for name in ("a", "b", "c", "default"):
        conns[name] = server.raw()
        conns[name].cmd("AUTH", name, "x")
    path.write_text("user a %s\nuser b %s -get\nuser d on\nuser default %s -get\n" %
                    (rules, rules, rules))
    assert conns["default"].cmd("ACL", "LOAD") == b"OK"
    assert is_closed(conns["b"]) and is_closed(conns["c"])
    assert denied(conns["default"].cmd("GET", "x"), "get", reference, "default")
    if not reference:  # which closes all but the default user's
        assert conns["a"].cmd("GET", "x") is None
    path.write_text("user a off\n")
    if not reference:
        assert conns["a"].cmd("ACL", "LOAD") == b"OK"
        assert is_closed(conns["a"])
        assert conns["default"].cmd("GET", "x") is None
    for conn in conns.values():
        conn.close()


def fails_to_start(start_server, *args, conf=None):
    with pytest.raises(ServerProblem) as caught:
        start_server(*args, conf=conf)
    return str(caught.value)


@pytest.mark.kvik_only  # messages of the start are each server's own
@pytest.mark.parametrize("lines,want", [
    ("user alice on zz\n", "Error in user declaration 'alice': zz: Syntax error"),
    ("user\n", "Bad directive or wrong number of arguments"),
    ("user alice +foo\n", "'alice': +foo: Unknown command or category name in ACL"),
    ("user alice on (+get\n", "'alice': (+get: Syntax error"),
    ("user alice on\nuser alice off\n", "Duplicate user found"),
    ("user default on\nuser default off\n", "Duplicate user found"),
    ("user \"a b\" on\n", "Spaces not allowed in ACL usernames"),
    ("user alice on\naclfile /nonexistent/users.acl\n", "not both"),
    ("aclfile /nonexistent/users.acl\n",
     "opening file '/nonexistent/users.acl': No such file or directory"),
])
def test_wrong_users_prevent_the_start(start_server, lines, want):
    assert want in fails_to_start(start_server, conf=lines)


def test_users_in_the_configuration(start_server):
    server = start_server(conf="acl-pubsub-default resetchannels\nuser alice on >pw ~a* +get\n"
                               "user bob reset\n")
    assert shown_by(server) == [
        "user alice on #%s ~a* resetchannels -@all +get" % sha("pw"),
        "user bob off sanitize-payload resetchannels -@all",
        "user default on nopass ~* &* +@all"]


def test_a_user_line_about_the_default_user_is_all_of_it(start_server):
    server = start_server(conf="requirepass foo\nuser default on >bar +@all ~*\n", password="bar")
    assert [line.replace("sanitize-payload ", "") for line in shown_by(server, password="bar")] == [
        "user default on #%s ~* resetchannels +@all" % sha("bar")]


def test_rewrite_keeps_users(start_server, reference):
    server = start_server(conf="# people\nuser alice on (+get ~a) (+set ~b)\n# hi\nuser bob off\n")
    with server.raw() as conn:
        assert conn.cmd("ACL", "SETUSER", "carl", "on", "+get", "~q\"uote") == b"OK"
        assert conn.cmd("ACL", "DELUSER", "bob") == 1
        assert conn.cmd("ACL", "SETUSER", "default", "-debug") == b"OK"
        before = conn.cmd("ACL", "LIST")
        assert conn.cmd("CONFIG", "REWRITE") == b"OK"
    text = rewritten(server)
    assert "# people\n" in text and "# hi\n" in text
    assert text.count("user alice ") == 1 and "user bob" not in text
    assert text.count("user default ") == 1
    if reference:  # which writes a quote that it cannot read
        return
    assert "user alice on (+get ~a) (+set ~b)\n" in text  # it says what is: it stays
    again = start_server(conf=text)
    with again.raw() as conn:
        assert conn.cmd("ACL", "LIST") == before
        assert conn.cmd("CONFIG", "REWRITE") == b"OK"
    assert [line for line in rewritten(again).splitlines() if "user" in line] == \
        [line for line in text.splitlines() if "user" in line]


@pytest.mark.kvik_only  # the reference writes the default user always
def test_rewrite_without_users_adds_none(start_server):
    server = start_server("--requirepass", "x", conf="maxclients 100\n", password="x")
    with server.raw() as conn:
        assert conn.cmd("AUTH", "x") == b"OK"
        assert conn.cmd("CONFIG", "REWRITE") == b"OK"
    assert "user " not in rewritten(server)


def test_rewrite_leaves_users_to_their_file(tmp_path, start_server):
    path = users_file(tmp_path, "user alice on\n")
    server = start_server(conf="aclfile %s\n" % path)
    with server.raw() as conn:
        assert conn.cmd("CONFIG", "REWRITE") == b"OK"
    assert "user alice" not in rewritten(server)


# --- no memory stays behind ---

@pytest.mark.kvik_only
def test_nothing_stays_behind(raw, connect):
    def cycle():
        names = ["user%d" % i for i in range(50)]
        for name in names:
            raw.cmd("ACL", "SETUSER", name, "on", ">pw", "~%s*" % name, "&x", "+@read", "(+set ~*)")
        for name in names:
            raw.cmd("ACL", "SETUSER", name, "+@all", "~another:*", "(~y)", "clearselectors")
        assert raw.cmd("ACL", "DELUSER", *names) == len(names)

    def owner(name):
        lines = raw.cmd("INFO", "kvik_memory").decode().split("\r\n")
        return int(dict(line.split(":") for line in lines if ":" in line)[name])

    names = [line.split(":")[0] for line in raw.cmd("INFO", "kvik_memory").decode().split("\r\n")
             if "config" in line]
    cycle()
    before = [owner(name) for name in names]
    for _ in range(3):
        cycle()
    assert names and [owner(name) for name in names] == before
