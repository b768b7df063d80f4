#!/usr/bin/python3
"""String commands: replies, error texts, encodings and lifetimes.

`SCRIPT` is sent line by line to the server under test and to the reference; every reply must be the
same bytes. What the reference does not know, or answers as releases before 8 did, is stated below.
"""
import random
import shlex
import time

import pytest

WRONG_TYPE = b"WRONGTYPE Operation against a key holding the wrong kind of value"
NOT_INTEGER = b"ERR value is not an integer or out of range"
NOT_FLOAT = b"ERR value is not a valid float"
SYNTAX = b"ERR syntax error"
OVERFLOW = b"ERR increment or decrement would overflow"
TOO_LONG = b"ERR string exceeds maximum allowed size (proto-max-bulk-len)"

SCRIPT = r"""
rpush list 1
set k v
set k v ex 0
set k v px -1
set k v ex 9223372036854775807
set k v px 9223372036854775807
set k v exat -1
set k v exat 9223372036854775807
set k v ex abc
set k v ex
set k v nx xx
set k v xx nx
set k v nx nx
set k v ex 10 px 10
set k v keepttl ex 1
set k v ex 100 ex 200
ttl k
set k v keepttl keepttl
ttl k
set k w keepttl
ttl k
get k
set k v persist
ttl k
set k v
ttl k
set k v badword
set k v get
set k v get get
set k x nx get
set k y xx get
set missing y xx
set missing y xx get
exists missing
set fresh y nx get
get fresh
set fresh z EX 100 XX GET
ttl fresh
set list v get
set list v nx get
set list v get ex 0
set list v nx ex a
set list v nx
type list
set k v exat 1
exists k
set k v
set k v pxat 1
exists k
set gone v pxat 1
exists gone
setex k 0 v
setex k -1 v
setex k abc v
setex k 9223372036854775807 v
psetex k -1 v
psetex k 9223372036854775807 v
setex k 100 v
ttl k
psetex k 100000 w
ttl k
get k
setex k 1.5 v
setnx k x
setnx list x
setnx new1 x
getset k z
ttl k
getset list z
getset new2 z
get new2
getdel k
getdel k
getdel list
getex new2
getex new2 ex 100
ttl new2
getex new2 persist
ttl new2
getex new2 persist persist
getex new2 ex 0
getex new2 px abc
getex new2 persist ex 1
getex new2 ex 10 px 10
getex new2 exat 4102444800
expiretime new2
getex new2 pxat 4102444800123
pexpiretime new2
getex new2 keepttl
getex nokey ex 0
getex nokey badopt
getex list ex 0
getex list bad
getex new2 pxat 1
exists new2
append a1 12
object encoding a1
append a1 3
object encoding a1
get a1
append a2 abc
object encoding a2
append a2 ''
object encoding a2
append list x
append a1
set n 10
append n 5
get n
strlen n
strlen nokey
strlen list
set s 'hello world'
getrange s 0 -1
getrange s -3 -1
getrange s 5 2
getrange s -1 -5
getrange s -100 -101
getrange s -101 -100
getrange s 0 -100
getrange s 1 -100
getrange s -100 -100
getrange s -9223372036854775808 -9223372036854775808
getrange s 0 100
getrange s -100 3
getrange s 3 3
getrange s 100 200
getrange s a 1
getrange s 1 b
getrange s -9223372036854775808 9223372036854775807
getrange nokey 0 1
getrange list 0 1
getrange list a 1
getrange n 1 2
substr s 0 3
setrange s 6 redis
get s
setrange s 20 !
get s
setrange s -1 a
setrange s abc a
setrange s 536870912 a
setrange s 536870911 ''
setrange nokey 0 ''
exists nokey
setrange nokey 536870912 ''
setrange nokey 9223372036854775807 abc
setrange list 0 ''
setrange list 0 x
setrange list -1 x
setrange r1 3 12
object encoding r1
get r1
set n 12345
setrange n 2 x
get n
object encoding n
mset a
mset a 1 b
mset a 1 b 2 a 3
mget a b nokey list a
mset list x
type list
del list
rpush list 1
msetnx a 1 b
msetnx a 9 z1 2
exists z1
msetnx z1 1 z1 2
get z1
msetnx list 1
mget
set n 10
incr n
decr n
incrby n 5
decrby n 3
get n
incr s
incr list
incrby n a
incrby list a
incrby list 1
incrby n 1.5
incrby n 9223372036854775808
incrby n 9223372036854775807
decrby n -9223372036854775808
decrby n 9223372036854775807
set n 9223372036854775806
incr n
incr n
get n
set n -9223372036854775807
decr n
decr n
get n
set n ' 1'
incr n
set n 01
incr n
set n -0
incr n
set n 5 ex 100
incr n
ttl n
object encoding n
append n 0
incr n
object encoding n
incr c1
decr c2
incrby c3 -5
decrby c4 5
set f 10.5
incrbyfloat f 0.1
incrbyfloat f -5
incrbyfloat f 5.0e3
incrbyfloat f abc
incrbyfloat f inf
incrbyfloat f -inf
incrbyfloat f nan
incrbyfloat list x
incrbyfloat list 1
incrbyfloat s 1
incrbyfloat s x
set f 3.0
incrbyfloat f 1.000000000000000005
get f
set f 1 ex 100
incrbyfloat f 1.5
ttl f
set f 0.1
incrbyfloat f 0.2
incrbyfloat newf 1e5
incrbyfloat newf -1e5
incrbyfloat newf 1e21
object encoding newf
set f 1
incrbyfloat f 2
object encoding f
incr f
object encoding f
incrbyfloat newf 1e-17
set l1 ohmytext
set l2 mynewtext
lcs l1 l2
lcs l1 l2 len
lcs l1 l2 idx
lcs l1 l2 idx withmatchlen
lcs l1 l2 idx minmatchlen 4
lcs l1 l2 idx minmatchlen 4 withmatchlen
lcs l1 l2 idx minmatchlen -1
lcs l1 l2 idx minmatchlen 0
lcs l1 l2 len idx
lcs l1 l2 minmatchlen 2 len
lcs l1 l2 withmatchlen
lcs l1 l2 minmatchlen
lcs l1 l2 minmatchlen a
lcs l1 l2 foo
lcs l1 nokey
lcs l1 nokey len
lcs l1 nokey idx
lcs nokey nokey2 idx
lcs l1 l1 idx
lcs l1 list
lcs list l1 foo
lcs l1
lcs c3 c4
set e '' ex 100
append e x
ttl e
get e
set big 0123456789012345678901234567890123456789abcd
object encoding big
set big 0123456789012345678901234567890123456789abcde
object encoding big
set big 9223372036854775808
object encoding big
set big -9223372036854775808
object encoding big
get
set k
getex
setrange s 1
"""


def lines(script):
    return [shlex.split(line) for line in script.strip().splitlines()]


def make_list(conn):
    """Makes the key `list` of another type; False when the server has no such type."""
    return conn.cmd("RPUSH", "list", "x") == 1


def without_lists(conn, script):
    """The script, less the lines that need a key of another type where there is none."""
    if make_list(conn):
        conn.cmd("DEL", "list")
        return script
    return [line for line in script if "list" not in line]


def compare(server, other, script):
    """Sends the lines to both; all replies must be the same bytes."""
    different = []
    with server.raw() as ours, other.raw() as theirs:
        theirs.cmd("FLUSHALL")
        for line in without_lists(ours, script):
            got, want = ours.cmd_bytes(*line), theirs.cmd_bytes(*line)
            if got != want:
                different.append((line, got, want))
    assert not different, "\n".join("%s\n   got  %r\n   want %r" % item for item in different[:20])


def test_replies_are_those_of_the_reference(empty_server, redis_server):
    compare(empty_server, redis_server, lines(SCRIPT))


def test_replies_in_resp3_are_those_of_the_reference(empty_server, redis_server):
    with empty_server.raw() as ours, redis_server.raw() as theirs:
        theirs.cmd("FLUSHALL")
        ours.hello3()
        theirs.hello3()
        for line in without_lists(ours, lines(SCRIPT)):
            assert ours.cmd_bytes(*line) == theirs.cmd_bytes(*line), line


def random_line(rng):
    key = rng.choice("abc")
    value = rng.choice(["", "1", "7", "-3", "x", "hello", "9223372036854775807", "y" * 60,
                        "z" * 2000, "12" * 10000, "3.25", "abcabc"])
    number = str(rng.choice([0, 1, -1, 3, 44, 1024, 20000, -5, 2 ** 63 - 1, -2 ** 63]))
    small = str(rng.choice([0, 1, 5, 43, 44, 1000, 1023, 16384, 30000, -1]))
    return rng.choice([
        ["set", key, value], ["set", key, value, "ex", "1000"], ["set", key, value, "keepttl"],
        ["set", key, value, "get"], ["set", key, value, "nx"], ["set", key, value, "xx", "get"],
        ["get", key], ["getset", key, value], ["getdel", key], ["getex", key, "ex", "500"],
        ["getex", key, "persist"], ["append", key, value], ["strlen", key],
        ["setrange", key, small, value], ["getrange", key, small, small], ["incr", key],
        ["getrange", key, "-70", "-7"],
        ["incrby", key, number], ["decrby", key, number], ["mset", key, value, "a", "1"],
        ["msetnx", key, value, "d", "1"], ["mget", "a", "b", "c", "d"], ["setnx", key, value],
        ["del", key], ["ttl", key], ["strlen", key], ["lcs", key, "a", "len"],
    ])


def test_random_sequences_agree_with_the_reference(empty_server, redis_server):
    seed = random.randrange(2 ** 32)
    print("SEED=%d" % seed)
    rng = random.Random(seed)
    with empty_server.raw() as ours, redis_server.raw() as theirs:
        theirs.cmd("FLUSHALL")
        for _ in range(3000):
            line = random_line(rng)
            if line[0] == "lcs" and max(ours.cmd("STRLEN", line[1]), ours.cmd("STRLEN", "a")) > 3000:
                continue
            assert ours.cmd_bytes(*line) == theirs.cmd_bytes(*line), line
            assert ours.cmd_bytes("object", "encoding", line[1]) == \
                theirs.cmd_bytes("object", "encoding", line[1]), line


def test_lcs_agrees_with_the_reference_on_random_strings(empty_server, redis_server):
    rng = random.Random(7)
    with empty_server.raw() as ours, redis_server.raw() as theirs:
        for _ in range(300):
            texts = ["".join(rng.choice("abc") for _ in range(rng.randrange(60))) for _ in "12"]
            for conn in (ours, theirs):
                conn.cmd("MSET", "l1", texts[0], "l2", texts[1])
            for words in ([], ["LEN"], ["IDX", "WITHMATCHLEN"], ["IDX", "MINMATCHLEN", "2"]):
                line = ["LCS", "l1", "l2"] + words
                assert ours.cmd_bytes(*line) == theirs.cmd_bytes(*line), (texts, words)


def test_a_string_never_passes_the_limit(start_server):
    server = start_server("--proto-max-bulk-len", "1mb")
    with server.raw() as raw:
        assert raw.cmd("SETRANGE", "k", 1048575, "x") == 1048576
        assert raw.cmd("APPEND", "k", "y") == TOO_LONG
        assert raw.cmd("SETRANGE", "k", 1048575, "xy") == TOO_LONG
        assert raw.cmd("SETRANGE", "new", 1048576, "x") == TOO_LONG
        assert raw.cmd("STRLEN", "k") == 1048576
        assert raw.cmd("EXISTS", "new") == 0
        assert raw.cmd("MSET", "a", "a" * 600, "b", "b" * 600) == b"OK"
        assert raw.cmd("LCS", "a", "b") == \
            b"ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len"


@pytest.mark.parametrize("size", [16383, 16384, 16385, 100000, 3000000])
def test_large_values_come_back_as_they_were(client, size):
    value = random.Random(size).randbytes(size)
    assert client.set("k", value)
    assert client.get("k") == value
    assert client.getset("k", value[::-1]) == value
    assert client.append("k", b"!") == size + 1
    assert client.get("k") == value[::-1] + b"!"
    assert client.getrange("k", 1, -2) == value[::-1][1:]
    assert client.mset({"a": value, "b": value, "c": b"x"})
    assert client.mget("a", "b", "c", "k") == [value, value, b"x", value[::-1] + b"!"]
    assert client.setrange("a", 5, b"changed") == size
    assert client.get("a") == value[:5] + b"changed" + value[12:]
    assert client.get("b") == value
    assert client.getdel("b") == value
    assert client.exists("b") == 0


def test_a_value_on_its_way_is_not_changed_by_later_commands(raw):
    value = b"a" * 2000000
    assert raw.cmd("SET", "k", value) == b"OK"
    for _ in range(5):
        raw.send_cmd("GET", "k")
        raw.send_cmd("SETRANGE", "k", 0, "zzz")
        raw.send_cmd("APPEND", "k", "tail")
        raw.send_cmd("SET", "k", value)
    for _ in range(5):
        assert raw.read() == value
        assert raw.read() == len(value)
        assert raw.read() == len(value) + 4
        assert raw.read() == b"OK"


def test_duplicate_keys_of_mset_take_the_last_value(raw):
    big, other = b"b" * 50000, b"o" * 40000
    assert raw.cmd("MSET", "k", big, "k", other, "k", "end") == b"OK"
    assert raw.cmd("GET", "k") == b"end"
    assert raw.cmd("MSET", "k", "x", "k", big) == b"OK"
    assert raw.cmd("GET", "k") == big
    assert raw.cmd("MSETNX", "n", big, "n", "1") == 1
    assert raw.cmd("GET", "n") == b"1"


def test_long_key_lists(client):
    pairs = {b"key:%d" % i: b"value:%d" % i for i in range(1000)}
    assert client.mset(pairs)
    keys = list(pairs) + [b"none:%d" % i for i in range(50)]
    random.Random(3).shuffle(keys)
    assert client.mget(keys) == [pairs.get(key) for key in keys]
    assert client.execute_command("MSETNX", *[x for i in range(40) for x in ("n%d" % i, i)]) == 1
    assert client.execute_command("MSETNX", *[x for i in range(39, 60) for x in ("n%d" % i, i)]) == 0
    assert client.exists("n40") == 0


def test_lifetimes_end(raw):
    assert raw.cmd("SET", "a", "1", "PX", "60") == b"OK"
    assert raw.cmd("PSETEX", "b", "60", "1") == b"OK"
    assert raw.cmd("SET", "c", "1") == b"OK"
    assert raw.cmd("GETEX", "c", "PX", "60") == b"1"
    assert raw.cmd("MGET", "a", "b", "c") == [b"1", b"1", b"1"]
    time.sleep(0.12)
    assert raw.cmd("MGET", "a", "b", "c") == [None, None, None]
    assert raw.cmd("SETNX", "a", "2") == 1
    assert raw.cmd("TTL", "a") == -1


# --- newer than the reference ---


@pytest.mark.kvik_only
def test_times_beyond_the_largest_are_invalid(raw):
    for line in (["SET", "k", "v", "PXAT", 2 ** 63 - 1], ["SET", "k", "v", "EXAT", 2 ** 53],
                 ["SETEX", "k", 2 ** 50, "v"], ["PSETEX", "k", 2 ** 60, "v"]):
        name = line[0].lower().encode()
        assert raw.cmd(*line) == b"ERR invalid expire time in '%s' command" % name
    assert raw.cmd("EXISTS", "k") == 0


DIGESTS = {
    b"": b"2d06800538d394c2",
    b"Hello world": b"b6acb9d84a38ff74",
    b"v8lf0c11xh8ymlqztfd3eeq16kfn4sspw7fqmnuuq3k3t75em5wdizgcdw7uc26nnf961u2jkfzkjytls2kwlj7626sd":
        b"00006c38adf31777",
}


@pytest.mark.kvik_only
def test_digest(raw):
    for value, digest in DIGESTS.items():
        raw.cmd("SET", "k", value)
        assert raw.cmd("DIGEST", "k") == digest
    raw.cmd("SET", "n", "12345")
    raw.cmd("APPEND", "t", "123")
    raw.cmd("APPEND", "t", "45")
    assert raw.cmd("DIGEST", "n") == raw.cmd("DIGEST", "t")
    assert raw.cmd("DIGEST", "missing") is None
    if make_list(raw):
        assert raw.cmd("DIGEST", "list") == WRONG_TYPE


@pytest.mark.kvik_only
def test_set_on_equality(raw):
    assert raw.cmd("SET", "k", "v", "IFEQ", "v") is None
    assert raw.cmd("EXISTS", "k") == 0
    assert raw.cmd("SET", "k", "v", "IFNE", "v") == b"OK"
    assert raw.cmd("SET", "k", "w", "IFNE", "v") is None
    assert raw.cmd("SET", "k", "w", "IFEQ", "x") is None
    assert raw.cmd("SET", "k", "w", "IFEQ", "v", "EX", "100") == b"OK"
    assert raw.cmd("TTL", "k") == 100
    assert raw.cmd("SET", "k", "x", "IFEQ", "no", "GET") == b"w"
    assert raw.cmd("SET", "k", "x", "IFEQ", "w", "GET", "KEEPTTL") == b"w"
    assert raw.cmd("TTL", "k") == 100
    assert raw.cmd("SET", "none", "x", "IFEQ", "w", "GET") is None
    assert raw.cmd("EXISTS", "none") == 0
    raw.cmd("SET", "n", "10")
    assert raw.cmd("SET", "n", "11", "IFEQ", "10") == b"OK"
    if make_list(raw):
        assert raw.cmd("SET", "list", "v", "IFEQ", "x") == WRONG_TYPE
        assert raw.cmd("SET", "list", "v", "IFNE", "x") == WRONG_TYPE
    for words in (["IFEQ"], ["IFEQ", "a", "NX"], ["XX", "IFNE", "a"], ["IFEQ", "a", "IFNE", "b"],
                  ["IFDEQ", "0" * 16, "IFEQ", "b"]):
        assert raw.cmd("SET", "k", "v", *words) == SYNTAX


@pytest.mark.kvik_only
def test_set_on_digest(raw):
    raw.cmd("SET", "k", "Hello world")
    digest = b"b6acb9d84a38ff74"
    assert raw.cmd("SET", "k", "v", "IFDNE", digest) is None
    assert raw.cmd("SET", "k", "v", "IFDEQ", b"0" * 16) is None
    assert raw.cmd("SET", "k", "v", "IFDEQ", digest[:15]) == \
        b"ERR must be exactly 16 hexadecimal characters"
    assert raw.cmd("SET", "k", "Hello world", "IFDEQ", digest.upper()) == b"OK"
    assert raw.cmd("SET", "k", "other", "IFDEQ", digest) == b"OK"
    assert raw.cmd("SET", "k", "more", "IFDNE", digest) == b"OK"
    assert raw.cmd("SET", "none", "v", "IFDEQ", digest) is None
    assert raw.cmd("SET", "none", "v", "IFDNE", digest) == b"OK"


@pytest.mark.kvik_only
def test_delex_and_delifeq(raw):
    raw.cmd("MSET", "a", "1", "b", "Hello world", "c", "x")
    assert raw.cmd("DELEX", "a", "IFEQ", "2") == 0
    assert raw.cmd("DELEX", "a", "IFNE", "1") == 0
    assert raw.cmd("DELEX", "a", "ifeq", "1") == 1
    assert raw.cmd("DELEX", "a", "IFEQ", "1") == 0
    assert raw.cmd("DELEX", "b", "IFDNE", "b6acb9d84a38ff74") == 0
    assert raw.cmd("DELEX", "b", "IFDEQ", "B6ACB9D84A38FF74") == 1
    assert raw.cmd("DELEX", "c", "IFDEQ", "12") == b"ERR must be exactly 16 hexadecimal characters"
    if make_list(raw):
        assert raw.cmd("DELEX", "list", "IFEQ", "x") == WRONG_TYPE
        assert raw.cmd("DELIFEQ", "list", "x") == WRONG_TYPE
        assert raw.cmd("DELEX", "list") == 1
    assert raw.cmd("DELEX", "c", "IFEQ") == b"ERR wrong number of arguments for 'delex' command"
    assert raw.cmd("DELEX", "c", "NOPE", "x") == \
        b"ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE"
    assert raw.cmd("DELIFEQ", "c", "y") == 0
    assert raw.cmd("DELIFEQ", "c", "x") == 1
    assert raw.cmd("DELIFEQ", "c", "x") == 0


@pytest.mark.kvik_only
def test_msetex(raw):
    assert raw.cmd("MSETEX", 2, "a", "1", "b", "2") == 1
    assert raw.cmd("MGET", "a", "b") == [b"1", b"2"]
    assert raw.cmd("MSETEX", 2, "a", "3", "c", "4", "NX") == 0
    assert raw.cmd("MSETEX", 2, "a", "3", "c", "4", "XX", "EX", "100") == 0
    assert raw.cmd("MGET", "a", "c") == [b"1", None]
    assert raw.cmd("MSETEX", 2, "a", "3", "b", "4", "EX", "100", "XX") == 1
    assert [raw.cmd("TTL", k) for k in "ab"] == [100, 100]
    assert raw.cmd("MSETEX", 1, "a", "5", "KEEPTTL") == 1
    assert raw.cmd("TTL", "a") == 100
    assert raw.cmd("MSETEX", 1, "a", "5") == 1
    assert raw.cmd("TTL", "a") == -1
    assert raw.cmd("MSETEX", 2, "x", "5", "y", "6", "NX", "PXAT", "4102444800123") == 1
    assert [raw.cmd("PEXPIRETIME", k) for k in "xy"] == [4102444800123] * 2
    assert raw.cmd("MSETEX", 2, "x", "5", "nope", "6", "EXAT", "1") == 1
    assert raw.cmd("EXISTS", "x", "nope") == 0


@pytest.mark.kvik_only
def test_msetex_refuses(raw):
    for count in ("0", "-1", "abc", "2147483648", ""):
        assert raw.cmd("MSETEX", count, "a", "1") == b"ERR invalid numkeys value"
    assert raw.cmd("MSETEX", 2, "a", "1") == b"ERR wrong number of key-value pairs"
    assert raw.cmd("MSETEX", 2147483647, "a", "1") == b"ERR wrong number of key-value pairs"
    assert raw.cmd("MSETEX", 2, "a", "1", "b") == b"ERR wrong number of key-value pairs"
    for words in (["b"], ["NX", "XX"], ["EX"], ["EX", "1", "PX", "1"], ["KEEPTTL", "EX", "1"], ["GET"],
                  ["PERSIST"], ["IFEQ", "1"]):
        assert raw.cmd("MSETEX", 1, "a", "1", *words) == SYNTAX
    assert raw.cmd("MSETEX", 1, "a", "1", "EX", "0") == b"ERR invalid expire time in 'msetex' command"
    assert raw.cmd("MSETEX", 1, "a", "1", "PX", "x") == NOT_INTEGER
    assert raw.cmd("EXISTS", "a") == 0


@pytest.mark.kvik_only
def test_increx_counts(raw):
    assert raw.cmd("INCREX", "k") == [1, 1]
    assert raw.cmd("INCREX", "k", "BYINT", "-3") == [-2, -3]
    assert raw.cmd("OBJECT", "ENCODING", "k") == b"int"
    assert raw.cmd("INCREX", "k", "BYINT", "5", "UBOUND", "2") == [-2, 0]
    assert raw.cmd("INCREX", "k", "BYINT", "5", "UBOUND", "2", "SATURATE") == [2, 4]
    assert raw.cmd("INCREX", "k", "BYINT", "-50", "LBOUND", "-7", "SATURATE") == [-7, -9]
    assert raw.cmd("INCREX", "k", "BYINT", str(-2 ** 63)) == [-7, 0]
    assert raw.cmd("INCREX", "k", "BYINT", str(-2 ** 63), "SATURATE") == [-2 ** 63, -2 ** 63 + 7]
    assert raw.cmd("INCREX", "k", "LBOUND", "5", "SATURATE") == OVERFLOW
    assert raw.cmd("GET", "k") == b"%d" % -2 ** 63
    assert raw.cmd("INCREX", "missing", "UBOUND", "0") == [0, 0]
    assert raw.cmd("EXISTS", "missing") == 0
    raw.cmd("SET", "far", "100")
    assert raw.cmd("INCREX", "far", "UBOUND", "10") == [100, 0]
    assert raw.cmd("INCREX", "far", "UBOUND", "10", "SATURATE") == [10, -90]
    raw.cmd("SET", "far", "100")
    assert raw.cmd("INCREX", "far", "BYINT", "-95", "UBOUND", "10") == [5, -95]


@pytest.mark.kvik_only
def test_increx_with_floats(raw):
    raw.cmd("SET", "k", "1.5")
    assert raw.cmd_bytes("INCREX", "k", "BYFLOAT", "0.25") == \
        b"*2\r\n$4\r\n1.75\r\n$4\r\n0.25\r\n"
    assert raw.cmd("INCREX", "k", "BYFLOAT", "10", "UBOUND", "2.5") == [b"1.75", b"0"]
    assert raw.cmd("INCREX", "k", "BYFLOAT", "10", "UBOUND", "2.5", "SATURATE") == [b"2.5", b"0.75"]
    assert raw.cmd("INCREX", "k", "BYINT", "1") == NOT_INTEGER
    assert raw.cmd("INCREX", "k", "BYFLOAT", "inf") == b"ERR increment would produce NaN or Infinity"
    assert raw.cmd("INCREX", "k", "BYFLOAT", "nan") == NOT_FLOAT
    assert raw.cmd("INCREX", "k", "BYFLOAT", "1", "LBOUND", "x") == NOT_FLOAT
    assert raw.cmd("INCREX", "k", "UBOUND", "1.5") == NOT_INTEGER
    raw.cmd("SET", "k", "3")
    raw.hello3()
    assert raw.cmd_bytes("INCREX", "k", "BYFLOAT", "0.5") == b"*2\r\n,3.5\r\n,0.5\r\n"
    assert raw.cmd_bytes("INCREX", "n", "BYINT", "2") == b"*2\r\n:2\r\n:2\r\n"


@pytest.mark.kvik_only
def test_increx_lifetimes(raw):
    assert raw.cmd("INCREX", "k", "EX", "100", "ENX") == [1, 1]
    assert raw.cmd("INCREX", "k", "EX", "500", "ENX") == [2, 1]
    assert raw.cmd("TTL", "k") == 100
    assert raw.cmd("INCREX", "k") == [3, 1]
    assert raw.cmd("TTL", "k") == 100
    assert raw.cmd("INCREX", "k", "UBOUND", "3", "EX", "900") == [3, 0]
    assert raw.cmd("TTL", "k") == 100
    assert raw.cmd("INCREX", "k", "EX", "500") == [4, 1]
    assert raw.cmd("TTL", "k") == 500
    assert raw.cmd("INCREX", "k", "PERSIST") == [5, 1]
    assert raw.cmd("TTL", "k") == -1
    assert raw.cmd("INCREX", "k", "PXAT", "4102444800123") == [6, 1]
    assert raw.cmd("PEXPIRETIME", "k") == 4102444800123
    assert raw.cmd("INCREX", "k", "EXAT", "1") == [7, 1]
    assert raw.cmd("EXISTS", "k") == 0


@pytest.mark.kvik_only
def test_increx_refuses(raw):
    raw.cmd("SET", "text", "abc")
    if make_list(raw):
        assert raw.cmd("INCREX", "list") == WRONG_TYPE
    assert raw.cmd("INCREX", "text") == NOT_INTEGER
    assert raw.cmd("INCREX", "text", "BYFLOAT", "1") == NOT_FLOAT
    for words in (["BYINT"], ["BYINT", "1", "BYFLOAT", "1"], ["BYFLOAT", "1", "BYINT", "1"],
                  ["PERSIST", "EX", "1"], ["PERSIST", "ENX"], ["EX", "1", "PX", "1"], ["FOO"],
                  ["LBOUND"], ["KEEPTTL"], ["GET"]):
        assert raw.cmd("INCREX", "k", *words) == SYNTAX, words
    assert raw.cmd("INCREX", "k", "ENX") == b"ERR ENX flag requires an expiration"
    assert raw.cmd("INCREX", "k", "EX", "0") == b"ERR invalid expire time in 'increx' command"
    assert raw.cmd("INCREX", "k", "LBOUND", "2", "UBOUND", "1") == \
        b"ERR LBOUND can't be greater than UBOUND"
    assert raw.cmd("EXISTS", "k") == 0


@pytest.mark.kvik_only
def test_writes_are_watched(connect):
    """What changes a key aborts a transaction that watches it; what does not, does not."""
    one, two = connect(), connect()
    changing = [["SET", "k", "1"], ["APPEND", "k", "2"], ["SETRANGE", "k", "0", "9"], ["INCR", "k"],
                ["INCRBYFLOAT", "k", "1.5"], ["GETSET", "k", "5"], ["GETEX", "k", "EX", "100"],
                ["GETEX", "k", "PERSIST"], ["MSET", "k", "1"], ["MSETEX", "1", "k", "1"],
                ["INCREX", "k"], ["SETBIT", "k", "7", "1"], ["BITFIELD", "k", "SET", "u8", "0", "1"],
                ["BITOP", "NOT", "k", "k"], ["GETDEL", "k"], ["SETNX", "k", "1"], ["DELEX", "k"],
                ["MSETNX", "k", "1"], ["DELIFEQ", "k", "1"]]
    idle = [["GET", "k"], ["GETEX", "k"], ["SETNX", "k", "1"], ["SET", "k", "1", "NX"],
            ["SETRANGE", "k", "0", ""], ["INCREX", "k", "UBOUND", "-100"], ["DELEX", "k", "IFEQ", "0"],
            ["MSETNX", "k", "1"], ["SETBIT", "k", "0", "0"], ["BITFIELD", "k", "GET", "u8", "0"],
            ["MSETEX", "1", "k", "1", "NX"], ["SET", "k", "1", "IFEQ", "x"], ["GETEX", "k", "PERSIST"]]
    two.cmd("SET", "k", "7")
    for line, aborted in [(line, True) for line in changing] + [(line, False) for line in idle]:
        if not aborted:
            two.cmd("SET", "k", "7")
        one.cmd("WATCH", "k")
        two.cmd(*line)
        one.cmd("MULTI")
        one.cmd("PING")
        assert (one.cmd("EXEC") is None) == aborted, line
