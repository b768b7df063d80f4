#!/usr/bin/python3
"""COMMAND and its subcommands: shapes byte for byte, and agreement with the reference.

What both servers know is compared element by element; what Kvik takes from version 8 is listed
here with the reason.
"""
import pytest

from raw import Error, Set, Status

# Arity of version 8, where 7.0 demanded one argument more.
NEW_ARITY = {b"command|getkeys": -3, b"command|getkeysandflags": -3, b"zrank": -3,
             b"zrevrank": -3}
# Version 8 lets scripts call them, calls PFCOUNT a reader that may replicate, and says of some keys
# more exactly how they are used.
NEW_WITHOUT = {name: {b"noscript"} for name in (b"blmove", b"blpop", b"brpop", b"brpoplpush",
                                                b"bzpopmax", b"bzpopmin")}
NEW_WITH = {b"eval": {b"may_replicate"}, b"evalsha": {b"may_replicate"}, b"fcall": {b"may_replicate"},
            b"script|exists": {b"stale"}, b"script|flush": {b"stale"},
            b"pfcount": {b"may_replicate"}, b"publish": {b"may_replicate"},
            b"spublish": {b"may_replicate"},
            # It waits for another server, which a transaction and a script must not.
            b"migrate": {b"noscript", b"no_multi"}}
NEW_SPECS = {b"sinterstore", b"smismember"}
NO_COMMAND = Error(b"ERR Invalid command specified")
NO_KEYS = Error(b"ERR The command has no key arguments")
BAD_COUNT = Error(b"ERR Invalid number of arguments specified for command")
BAD_ARGUMENTS = Error(b"ERR Invalid arguments specified for command")

GET_INFO_2 = (b"*1\r\n*10\r\n$3\r\nget\r\n:2\r\n*2\r\n+readonly\r\n+fast\r\n:1\r\n:1\r\n:1\r\n"
              b"*3\r\n+@read\r\n+@string\r\n+@fast\r\n*0\r\n"
              b"*1\r\n*6\r\n$5\r\nflags\r\n*2\r\n+RO\r\n+access\r\n"
              b"$12\r\nbegin_search\r\n*4\r\n$4\r\ntype\r\n$5\r\nindex\r\n"
              b"$4\r\nspec\r\n*2\r\n$5\r\nindex\r\n:1\r\n"
              b"$9\r\nfind_keys\r\n*4\r\n$4\r\ntype\r\n$5\r\nrange\r\n"
              b"$4\r\nspec\r\n*6\r\n$7\r\nlastkey\r\n:0\r\n$7\r\nkeystep\r\n:1\r\n$5\r\nlimit\r\n:0\r\n"
              b"*0\r\n")
GET_INFO_3 = (b"*1\r\n*10\r\n$3\r\nget\r\n:2\r\n~2\r\n+readonly\r\n+fast\r\n:1\r\n:1\r\n:1\r\n"
              b"~3\r\n+@read\r\n+@string\r\n+@fast\r\n~0\r\n"
              b"~1\r\n%3\r\n$5\r\nflags\r\n~2\r\n+RO\r\n+access\r\n"
              b"$12\r\nbegin_search\r\n%2\r\n$4\r\ntype\r\n$5\r\nindex\r\n"
              b"$4\r\nspec\r\n%1\r\n$5\r\nindex\r\n:1\r\n"
              b"$9\r\nfind_keys\r\n%2\r\n$4\r\ntype\r\n$5\r\nrange\r\n"
              b"$4\r\nspec\r\n%3\r\n$7\r\nlastkey\r\n:0\r\n$7\r\nkeystep\r\n:1\r\n$5\r\nlimit\r\n:0\r\n"
              b"~0\r\n")


def by_name(infos):
    """Name to the ten elements, subcommands included."""
    table = {}
    for info in infos:
        table[info[0]] = info
        table.update(by_name(info[9] if not isinstance(info[9], Set) else []))
    return table


def key_specs(info):
    """The key specifications without their notes, which each server words itself."""
    return [{name: sorted(value) if isinstance(value, Set) else value
             for name, value in spec.items() if name != b"notes"} for spec in info[8]]


@pytest.fixture
def raw3(connect):
    connection = connect()
    connection.cmd("HELLO", "3")
    return connection


@pytest.fixture
def reference3(redis_server):
    with redis_server.raw() as connection:
        connection.cmd("HELLO", "3")
        yield connection


def test_info_has_ten_elements_in_both_protocols(raw, raw3):
    raw.send_cmd("COMMAND", "INFO", "GeT")
    assert raw.read_bytes() == GET_INFO_2
    raw3.send_cmd("COMMAND", "INFO", "GeT")
    assert raw3.read_bytes() == GET_INFO_3


def test_info_of_unknown_names_is_null(raw, raw3):
    line = ("COMMAND", "INFO", "nosuch", "client|nosuch", "get|x", "client|", "|", "")
    raw.send_cmd(*line)
    assert raw.read_bytes() == b"*6\r\n" + b"$-1\r\n" * 6
    raw3.send_cmd(*line)
    assert raw3.read_bytes() == b"*6\r\n" + b"_\r\n" * 6


@pytest.mark.kvik_only
def test_info_agrees_with_the_reference(raw3, reference3):
    ours, theirs = by_name(raw3.cmd("COMMAND")), by_name(reference3.cmd("COMMAND"))
    shared = sorted(set(ours) & set(theirs))
    assert len(shared) > 100
    for name in shared:
        mine, other = ours[name], theirs[name]
        assert len(mine) == len(other) == 10, name
        assert mine[1] == NEW_ARITY.get(name, other[1]), name
        flags = set(other[2]) - NEW_WITHOUT.get(name, set()) | NEW_WITH.get(name, set())
        assert set(mine[2]) == flags, name
        assert mine[3:6] == other[3:6], name
        assert sorted(mine[6]) == sorted(other[6]), name
        if name not in NEW_SPECS:
            assert key_specs(mine) == key_specs(other), name
        for position in (2, 6, 7, 8):
            assert isinstance(mine[position], Set), name
        assert all(isinstance(word, Status) for word in mine[2] + mine[6]), name


def test_every_form_of_info_says_the_same(raw):
    everything = raw.cmd("COMMAND")
    assert raw.cmd("COMMAND", "INFO") == everything
    names = [info[0] for info in everything]
    assert raw.cmd("COMMAND", "COUNT") == len(names)
    assert raw.cmd("COMMAND", "INFO", *names) == everything
    subs = {info[0]: info for command in everything for info in command[9]}
    assert raw.cmd("COMMAND", "INFO", *subs) == list(subs.values())


def test_list_and_its_filters(raw, redis_server):
    listed = raw.cmd("COMMAND", "LIST")
    assert sorted(listed) == sorted(by_name_2(raw.cmd("COMMAND")))
    assert raw.cmd("COMMAND", "LIST", "FILTERBY", "MODULE", "any") == []
    assert raw.cmd("COMMAND", "LIST", "filterby", "aclcat", "nosuch") == []
    assert raw.cmd("COMMAND", "LIST", "filterby", "aclcat", "@string") == []
    for pattern in ("*", "GET*", "client*k*", "?et", "config|*", "xy*", ""):
        got = raw.cmd("COMMAND", "LIST", "FILTERBY", "PATTERN", pattern)
        with redis_server.raw() as other:
            want = set(other.cmd("COMMAND", "LIST", "FILTERBY", "PATTERN", pattern))
            known = set(other.cmd("COMMAND", "LIST"))
        assert set(got) & known == want & set(listed), pattern
    for category in ("transaction", "FAST", "dangerous", "bitmap"):
        got = raw.cmd("COMMAND", "LIST", "FILTERBY", "ACLCAT", category)
        with redis_server.raw() as other:
            want = set(other.cmd("COMMAND", "LIST", "FILTERBY", "ACLCAT", category))
        assert set(got) & known == want & set(listed), category


def by_name_2(infos):
    """As by_name in RESP2, where a set of no subcommands is an empty array."""
    names = []
    for info in infos:
        names.append(info[0])
        names += [sub[0] for sub in info[9]]
    return names


@pytest.mark.parametrize("arguments", [
    ["x"], ["FILTERBY"], ["FILTERBY", "PATTERN"], ["FILTERBY", "NOSUCH", "x"],
    ["FILTERBY", "PATTERN", "a", "b"], ["FILTERBY", "PATTERN", "a", "FILTERBY", "PATTERN", "b"],
])
def test_list_refuses_other_words(raw, arguments):
    assert raw.cmd("COMMAND", "LIST", *arguments) == Error(b"ERR syntax error")


@pytest.mark.parametrize("line, keys", [
    ("get k", [b"k"]),
    ("GET", BAD_COUNT),
    ("get a b", BAD_COUNT),
    ("mset a 1 b 2", [b"a", b"b"]),
    ("mset a 1 b", [b"a", b"b"]),
    ("mset a", BAD_COUNT),
    ("msetex 2 a 1 b 2 EX 10", [b"a", b"b"]),
    ("msetex 3 a 1 b 2", BAD_ARGUMENTS),
    ("msetex 0 a 1", BAD_ARGUMENTS),
    ("msetex -1 a 1", BAD_ARGUMENTS),
    ("msetex x a 1", BAD_ARGUMENTS),
    ("msetex 9223372036854775807 a 1", BAD_ARGUMENTS),
    ("bitop and d a b", [b"d", b"a", b"b"]),
    ("del a b c", [b"a", b"b", b"c"]),
    ("lcs a b LEN", [b"a", b"b"]),
    ("object encoding k", [b"k"]),
    ("object encoding", BAD_COUNT),
    ("object nosuch k", NO_COMMAND),
    ("object", NO_KEYS),
    ("memory usage k SAMPLES 0", [b"k"]),
    ("client nosuch", NO_COMMAND),
    ("client list", NO_KEYS),
    ("command nosuch", NO_COMMAND),
    ("ping", NO_KEYS),
    ("scan 0", NO_KEYS),
    ("nosuch k", NO_COMMAND),
    ("nosuch", NO_COMMAND),
])
@pytest.mark.kvik_only
def test_getkeys(raw, line, keys):
    assert raw.cmd("COMMAND", "GETKEYS", *line.split()) == keys


@pytest.mark.parametrize("line, keys", [
    ("get k", [("k", "RO access")]),
    ("set k v", [("k", "OW update")]),
    ("set k v GET", [("k", "RW access update")]),
    ("set k v EX 10 get", [("k", "RW access update")]),
    ("set k get", [("k", "OW update")]),
    ("bitfield k", [("k", "RO access")]),
    ("bitfield k GET u8 0", [("k", "RO access")]),
    ("bitfield k GET u8 0 SET u8 0 1", [("k", "RW access update")]),
    ("bitfield k nosuch", [("k", "RW access update")]),
    ("bitop and d a", [("d", "OW update"), ("a", "RO access")]),
    ("copy a b", [("a", "RO access"), ("b", "OW update")]),
    ("rename a b", [("a", "RW access delete"), ("b", "OW update")]),
])
def test_getkeysandflags_agrees_with_the_reference(raw, redis_server, line, keys):
    want = [[key.encode(), [flag.encode() for flag in flags.split()]] for key, flags in keys]
    assert raw.cmd("COMMAND", "GETKEYSANDFLAGS", *line.split()) == want
    with redis_server.raw() as other:
        assert other.cmd("COMMAND", "GETKEYSANDFLAGS", *line.split()) == want


@pytest.mark.kvik_only
def test_getkeysandflags_of_newer_commands(raw):
    for line, flags in (("set k v IFEQ x", [b"RW", b"access", b"update"]),
                        ("delex k", [b"RM", b"delete"]),
                        ("delex k IFEQ x", [b"RW", b"access", b"delete"]),
                        ("msetex 1 k v", [b"OW", b"update"])):
        assert raw.cmd("COMMAND", "GETKEYSANDFLAGS", *line.split()) == [[b"k", flags]]


def test_getkeys_of_a_long_line(raw):
    keys = [b"key:%d" % number for number in range(5000)]
    assert raw.cmd("COMMAND", "GETKEYS", "DEL", *keys) == keys


def test_docs_of_one_command(raw3):
    docs = raw3.cmd("COMMAND", "DOCS", "mset", "nosuch", "client|kill", "client|nosuch")
    assert sorted(docs) == [b"client|kill", b"mset"]
    mset = docs[b"mset"]
    assert [*mset][:4] == [b"summary", b"since", b"group", b"complexity"]
    assert mset[b"since"] == b"1.0.1" and mset[b"group"] == b"string"
    block = mset[b"arguments"][0]
    assert block[b"type"] == b"block" and block[b"flags"] == [b"multiple"]
    assert [inner[b"name"] for inner in block[b"arguments"]] == [b"key", b"value"]
    assert block[b"arguments"][0][b"key_spec_index"] == 0
    assert raw3.cmd("COMMAND", "DOCS", "nosuch") == {}


def argument_shape(arguments):
    """Types and tokens of an argument tree."""
    return [(argument[b"type"], argument.get(b"token"), argument.get(b"key_spec_index"),
             sorted(argument.get(b"flags", [])), argument_shape(argument.get(b"arguments", [])))
            for argument in arguments]


# Arguments of these differ on purpose: options of version 8, or a more exact description.
NEWER_ARGUMENTS = {b"set", b"bitop", b"client|list", b"client|kill", b"lcs", b"hscan", b"pfmerge",
                   b"zincrby", b"zinter", b"zinterstore", b"zrank", b"zrevrank", b"zunion",
                   b"zunionstore", b"bgsave", b"migrate",
                   b"geohash", b"geopos", b"georadius",
                   b"georadiusbymember", b"geosearch", b"geosearchstore"}


@pytest.mark.kvik_only
def test_docs_agree_with_the_reference(raw3, reference3):
    ours, theirs = raw3.cmd("COMMAND", "DOCS"), reference3.cmd("COMMAND", "DOCS")
    assert len(ours) == raw3.cmd("COMMAND", "COUNT")
    for table in (ours, theirs):
        for docs in list(table.values()):
            table.update(docs.get(b"subcommands", {}))
    shared = set(ours) & set(theirs)
    assert len(shared) > 100
    for name in sorted(shared):
        mine, other = ours[name], theirs[name]
        assert mine[b"group"] == other[b"group"], name
        assert mine[b"since"] == other[b"since"], name
        if name not in NEWER_ARGUMENTS:
            assert argument_shape(mine.get(b"arguments", [])) == \
                argument_shape(other.get(b"arguments", [])), name


def test_docs_are_the_same_in_both_protocols(raw, raw3):
    def flat(value):
        if isinstance(value, dict):
            return [part for pair in value.items() for part in (flat(pair[0]), flat(pair[1]))]
        return [flat(part) for part in value] if isinstance(value, list) else value

    assert raw.cmd("COMMAND", "DOCS") == flat(raw3.cmd("COMMAND", "DOCS"))


def test_help_and_unknown_subcommands(raw):
    lines = raw.cmd("COMMAND", "HELP")
    assert all(isinstance(line, Status) for line in lines)
    assert lines[0] == b"COMMAND <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"
    assert lines[-2] == b"HELP" and lines[-1].startswith(b"    Print")
    assert raw.cmd("COMMAND", "NOSUCH") == \
        Error(b"ERR unknown subcommand 'NOSUCH'. Try COMMAND HELP.")
    assert raw.cmd("COMMAND", "HELP", "x") == \
        Error(b"ERR wrong number of arguments for 'command|help' command")
    assert raw.cmd("COMMAND", "COUNT", "x") == \
        Error(b"ERR wrong number of arguments for 'command|count' command")
    assert raw.cmd("COMMAND", "GETKEYS") == \
        Error(b"ERR wrong number of arguments for 'command|getkeys' command")
