#!/usr/bin/python3
"""Bitmap commands: replies, error texts and encodings, compared with the reference line by line and
by random sequences; what is newer than the reference is stated here."""
import random
import shlex

import pytest

WRONG_TYPE = b"WRONGTYPE Operation against a key holding the wrong kind of value"
NOT_INTEGER = b"ERR value is not an integer or out of range"
SYNTAX = b"ERR syntax error"

SCRIPT = r"""
rpush list 1
set s 'hello world'
set n 10
setbit s a 1
setbit s -1 1
setbit s 4294967296 1
setbit s 18446744073709551615 1
setbit s 1 2
setbit s 1 a
setbit s 1 -1
setbit list a 1
setbit list 1 a
setbit list 1 1
setbit b1 7 1
setbit b1 7 0
setbit b1 100 1
strlen b1
object encoding b1
setbit b2 0 0
strlen b2
setbit n 6 1
get n
object encoding n
getbit list a
getbit list 1
getbit s 4294967296
getbit s -1
getbit s 3
getbit s 4294967295
getbit nokey 1
set n 10
getbit n 3
getbit n 15
object encoding n
bitcount s
bitcount s 0 -1
bitcount s 0
bitcount s 0 a
bitcount s a 0
bitcount s 0 1 foo
bitcount s 0 1 bit 3
bitcount s 0 -1 bit
bitcount s -2 -5
bitcount s -5 -2
bitcount s -100 -50
bitcount s 5 30 bit
bitcount s 5 5 bit
bitcount s 1 6 BIT
bitcount s 1 1 byte
bitcount s 100 200
bitcount s 0 9223372036854775807
bitcount s -9223372036854775808 9223372036854775807 bit
bitcount nokey
bitcount list
bitcount n
bitpos s 2
bitpos s a
bitpos s 1
bitpos s 0
bitpos s 1 a
bitpos s 1 0 a
bitpos s 1 0 -1 foo
bitpos s 1 0 -1 bit
bitpos s 0 2 3 bit
bitpos s 1 4 4 bit
bitpos s 1 -1
bitpos s 1 2 -2
bitpos nokey 0
bitpos nokey 1
bitpos nokey 0 1 2
bitpos s 1 0 -1 bit x
bitpos list 1
bitpos list 2
bitpos s 1 100
bitpos s 0 100
bitpos s 0 2 1
setrange ones 0 "\xff"
setbit ones 0 1
bitpos ones 0
bitpos ones 0 0
bitpos ones 0 0 -1
bitpos n 1
bitop foo d s
bitop not d s n
bitop not d s
bitop and d s n
get d
object encoding d
bitop or d s n
get d
bitop xor d s n
get d
object encoding d
bitop and d list
bitop and d s list
bitop and d s nokey
get d
bitop or d s nokey
get d
bitop not d nokey
exists d
bitop or d nokey nokey2
bitop or list s
type list
del list
rpush list 1
set d x ex 100
bitop or d n
ttl d
bitop or s s n
get s
bitop xor s s s
strlen s
bitop or d n n
object encoding d
bitop and x
set s 'hello world'
bitfield s
bitfield s get
bitfield s get u8
bitfield s get u64 0
bitfield s get i64 0
bitfield s get i65 0
bitfield s get u0 0
bitfield s get x8 0
bitfield s get u 0
bitfield s get '' 0
bitfield s get u08 0
bitfield s get U8 0
bitfield s get u8 a
bitfield s get u8 -1
bitfield s get u8 #1
bitfield s get u5 #3
bitfield s get u8 #-1
bitfield s get u8 #
bitfield s get u8 #a
bitfield s get u8 4294967295
bitfield s get u8 4294967296
bitfield s get u8 #536870911
bitfield s get u8 #536870912
bitfield s get u63 84
bitfield s get i64 1000
bitfield s set u8 0 a
bitfield s set u8 0
bitfield s set u8 0 300 get u8 0
bitfield s set i8 8 -1 get i8 8 get u8 8
bitfield s set u8 #4 -1 get u8 #4
bitfield s overflow
bitfield s overflow foo
bitfield s overflow foo get
bitfield s overflow fail incrby u8 0 300
bitfield s overflow sat incrby i8 0 300 incrby i8 0 -500
bitfield s overflow SAT set u4 0 -1 set i4 4 -100 set u4 8 100
bitfield s overflow fail set u4 0 16 set i4 4 -9 set i4 4 -8
bitfield s overflow sat incrby u4 0 -100 overflow wrap incrby u4 0 -1
bitfield s incrby u8 0 300 foo
bitfield s GET u8 0 SET u8 0 1 INCRBY u8 0 1
bitfield_ro s set u8 0 1
bitfield_ro s incrby u8 0 1 get u8 0
bitfield_ro s get u8 0
bitfield_ro s overflow fail
bitfield_ro list get u8 0
bitfield list get u8 0
bitfield list set u8 0 1
bitfield list get u8
bitfield nk get u8 100
exists nk
bitfield nk set u8 100 0
strlen nk
object encoding nk
bitfield nk2 overflow fail incrby u2 0 10
exists nk2
strlen nk2
bitfield nk3
bitfield nk3 overflow sat
exists nk3
bitfield nk3 set u63 0 -1
bitfield nk3 incrby i64 0 9223372036854775807 incrby i64 0 1
bitfield nk3 set i64 0 9223372036854775807 incrby i64 0 1
bitfield nk3 overflow sat set i64 0 9223372036854775807 incrby i64 0 1
bitfield nk3 overflow fail incrby i64 0 1
bitfield nk3 set i64 0 -9223372036854775808 overflow sat incrby i64 0 -1 overflow wrap incrby i64 0 -1
bitfield nk3 set i64 3 -1 get i64 3 get u63 3 incrby i64 3 1
bitfield nk3 set i1 0 -1 get i1 0 get u1 0 incrby i1 0 1 incrby i1 0 1
set n 12
bitfield n get u8 0
object encoding n
bitfield n incrby u8 0 1
get n
object encoding n
set t x ex 100
setbit t 20 1
bitfield t set u8 40 1
ttl t
setbit
getbit s
bitcount
bitpos s
bitop
bitfield
"""


def test_replies_are_those_of_the_reference(empty_server, redis_server):
    different = []
    with empty_server.raw() as ours, redis_server.raw() as theirs:
        theirs.cmd("FLUSHALL")
        lists = ours.cmd("RPUSH", "list", "1") == 1
        ours.cmd("DEL", "list")
        for text in SCRIPT.strip().splitlines():
            line = shlex.split(text)
            if "list" in line and not lists:
                continue  # there is no other type
            got, want = ours.cmd_bytes(*line), theirs.cmd_bytes(*line)
            if got != want:
                different.append((line, got, want))
    assert not different, "\n".join("%s\n   got  %r\n   want %r" % item for item in different[:20])


def random_field(rng):
    kind = rng.choice(["u", "i"])
    width = rng.randint(1, 63 if kind == "u" else 64)
    offset = rng.choice(["%d", "#%d"]) % rng.choice([0, 1, 3, 8, 13, 64, 100])
    operation = rng.choice(["get", "set", "incrby"])
    words = ["overflow", rng.choice(["wrap", "sat", "fail"])] if rng.random() < 0.4 else []
    words += [operation, "%s%d" % (kind, width), offset]
    if operation != "get":
        words.append(rng.choice(["0", "1", "-1", "100", "-100", str(rng.getrandbits(62)),
                                 str(-rng.getrandbits(62)), str(2 ** 63 - 1), str(-2 ** 63)]))
    return words


def random_line(rng):
    key = rng.choice("abcd")
    number = rng.choice([0, 1, 7, 8, 9, 40, 63, 64, 65, 500, -1, -3, -9, -64, -1000])
    other = rng.choice([0, 1, 7, 8, 9, 40, 63, 64, 65, 500, -1, -3, -9, -64, -1000])
    unit = rng.choice([[], ["bit"], ["byte"]])
    return rng.choice([
        ["set", key, rng.choice(["", "12", "foobar", "\x7f" * 30, "y" * 5000])],
        ["setbit", key, rng.choice([0, 5, 77, 1000, 70000]), rng.choice([0, 1])],
        ["setbit", key, rng.choice([0, 5, 77, 1000]), rng.choice([0, 1])],
        ["getbit", key, abs(number)],
        ["bitcount", key, number, other] + unit,
        ["bitcount", key],
        ["bitpos", key, rng.choice([0, 1]), number, other] + unit,
        ["bitpos", key, rng.choice([0, 1]), number],
        ["bitpos", key, rng.choice([0, 1])],
        ["bitop", rng.choice(["and", "or", "xor"]), key] + rng.choices("abcde", k=rng.randint(1, 4)),
        ["bitop", "not", key, rng.choice("abcde")],
        ["bitfield", key] + sum((random_field(rng) for _ in range(rng.randint(1, 4))), []),
        ["bitfield", key] + sum((random_field(rng) for _ in range(rng.randint(1, 4))), []),
        ["get", key],
        ["del", key],
    ])


def test_random_sequences_agree_with_the_reference(empty_server, redis_server):
    seed = random.randrange(2 ** 32)
    print("SEED=%d" % seed)
    rng = random.Random(seed)
    with empty_server.raw() as ours, redis_server.raw() as theirs:
        theirs.cmd("FLUSHALL")
        for _ in range(4000):
            line = random_line(rng)
            assert ours.cmd_bytes(*line) == theirs.cmd_bytes(*line), line
            key = line[2] if line[0] == "bitop" else line[1]
            for check in (["get", key], ["object", "encoding", key]):
                assert ours.cmd_bytes(*check) == theirs.cmd_bytes(*check), (line, check)


def bits_of(data, count):
    return [data[i // 8] >> (7 - i % 8) & 1 if i // 8 < len(data) else 0 for i in range(count)]


def model(operation, sources):
    """The result of BITOP, bit by bit."""
    size = max(len(source) for source in sources)
    columns = list(zip(*(bits_of(source, size * 8) for source in sources)))
    rule = {
        "AND": lambda bits: all(bits),
        "OR": lambda bits: any(bits),
        "XOR": lambda bits: sum(bits) % 2 == 1,
        "DIFF": lambda bits: bits[0] and not any(bits[1:]),
        "DIFF1": lambda bits: not bits[0] and any(bits[1:]),
        "ANDOR": lambda bits: bits[0] and any(bits[1:]),
        "ONE": lambda bits: sum(bits) == 1,
    }[operation]
    out = bytearray(size)
    for i, bits in enumerate(columns):
        out[i // 8] |= (0x80 >> i % 8) if rule(bits) else 0
    return bytes(out)


@pytest.mark.kvik_only
@pytest.mark.parametrize("operation", ["AND", "OR", "XOR", "DIFF", "DIFF1", "ANDOR", "ONE"])
def test_bitop_against_a_model(client, operation):
    rng = random.Random(operation)
    for sizes in ([1, 1], [8, 16], [0, 9, 3], [17, 4, 30, 8], [5000, 4096, 12], [20000, 17000]):
        sources = [rng.randbytes(size) for size in sizes]
        for i, source in enumerate(sources):
            client.delete("s%d" % i)
            if source:
                client.set("s%d" % i, source)
        names = ["s%d" % i for i in range(len(sources))]
        want = model(operation, sources)
        assert client.execute_command("BITOP", operation, "dest", *names) == len(want)
        assert client.get("dest") == want
        assert client.execute_command("BITOP", operation, "s0", *names) == len(want)
        assert client.get("s0") == want


@pytest.mark.kvik_only
def test_newer_operations_refuse_a_single_source(raw):
    raw.cmd("SET", "s", "x")
    for name in ("DIFF", "DIFF1", "ANDOR"):
        assert raw.cmd("BITOP", name, "d", "s") == \
            b"ERR BITOP %s must be called with at least two source keys." % name.encode()
    assert raw.cmd("BITOP", "ONE", "d", "s") == 1
    assert raw.cmd("GET", "d") == b"x"


@pytest.mark.kvik_only
def test_ranges_are_checked_before_the_key(raw):
    assert raw.cmd("BITCOUNT", "none", "a", "b") == NOT_INTEGER
    assert raw.cmd("BITCOUNT", "none", "1") == SYNTAX
    assert raw.cmd("BITCOUNT", "none", "0", "1", "foo") == SYNTAX
    assert raw.cmd("BITPOS", "none", "0", "a") == NOT_INTEGER
    assert raw.cmd("BITPOS", "none", "0", "1", "2", "foo") == SYNTAX
    if raw.cmd("RPUSH", "list", "x") == 1:  # else there is no other type
        assert raw.cmd("BITCOUNT", "list", "0", "a") == NOT_INTEGER
        assert raw.cmd("BITCOUNT", "list", "0", "1") == WRONG_TYPE


def test_offsets_end_at_the_limit_of_strings(start_server):
    server = start_server("--proto-max-bulk-len", "1mb")
    refused = b"ERR bit offset is not an integer or out of range"
    with server.raw() as raw:
        assert raw.cmd("SETBIT", "k", 8 * 1048576 - 1, 1) == 0
        assert raw.cmd("STRLEN", "k") == 1048576
        assert raw.cmd("SETBIT", "k", 8 * 1048576, 1) == refused
        assert raw.cmd("GETBIT", "k", 8 * 1048576) == refused
        assert raw.cmd("BITFIELD", "k", "GET", "u8", "#1048575") == [1]
        assert raw.cmd("BITFIELD", "k", "GET", "u8", "#1048576") == refused
        assert raw.cmd("BITCOUNT", "k") == 1
        assert raw.cmd("BITPOS", "k", 1) == 8 * 1048576 - 1
        assert raw.cmd("BITOP", "NOT", "n", "k") == 1048576
        assert raw.cmd("BITCOUNT", "n") == 8 * 1048576 - 1
        assert raw.cmd("BITPOS", "n", 0) == 8 * 1048576 - 1
