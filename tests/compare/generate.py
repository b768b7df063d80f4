#!/usr/bin/python3
"""Makes random command lines from the command table (commands/*.json).

Every argument of a command is described there by type, token and whether it is optional; this file
walks that description. On top of it a line is sometimes spoiled on purpose: arguments dropped,
added, repeated, exchanged, options that exclude each other put side by side. Keys come from a small
pool, so that commands meet each other. Times to live are long or past, never short: nothing expires
while two servers are compared.
"""
import hashlib
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "persist"))

import rdb_bytes as rdb  # noqa: E402

COMMANDS = Path(__file__).resolve().parents[2] / "commands"

KEYS = [b"a", b"b", b"c", b"k1", b"k2", b"key with blank", b"\x00\xff\r\n", b"", b"{t}x",
        b"a-rather-long-key-" + b"x" * 60]

INTEGERS = [b"0", b"1", b"-1", b"2", b"7", b"10", b"63", b"64", b"100", b"255", b"256", b"-100",
            b"9999", b"10000", b"2147483647", b"2147483648", b"-2147483648", b"-2147483649",
            b"4294967295", b"4294967296", b"9223372036854775807", b"-9223372036854775808",
            b"9223372036854775806", b"9223372036854775808", b"-9223372036854775809",
            b"18446744073709551615", b"18446744073709551616", b"4611686018427387904"]
NOT_INTEGERS = [b"", b"x", b"1.0", b"01", b"+1", b" 1", b"1 ", b"-0", b"0x10", b"1e3", b"--1", b"-",
                b"1" * 40, b"nan", b"1\x00"]
DOUBLES = [b"0", b"1", b"-1", b"1.5", b"-1.5", b"0.1", b"0.2", b"3.0e3", b"1e-5", b"1e17", b"1e21",
           b"100000000000000000", b"0.000000000000000001", b"3.141592653589793238462643383279",
           b"-0", b"-0.0", b"5.0", b"5e0", b"1e308", b".5", b"5.", b"9007199254740993", b"1e-300",
           b"10.50", b"0x1p3", b"123456789.987654321", b"1e4000", b"1.1e1"]
NOT_DOUBLES = [b"", b"x", b"1..5", b"nan", b"inf", b"-inf", b" 1", b"1 ", b"1,5", b"1e99999",
               b"+inf", b"1.5\x00"]
VALUES = [b"", b"x", b"hello world", b"Hello", b"foobar", b"\x00\x01\x02\xff", b"\xff" * 5, b"0" * 30,
          b"v" * 43, b"v" * 44, b"v" * 45, b"v" * 64, b"12345678901234567890", b"-5", b"10000",
          b"10001", b"3.14", b"a\r\nb", b"long" * 80, b"big" * 6000, b" 12", b"12 "]
PATTERNS = [b"*", b"a*", b"?", b"[a-c]", b"[^a]", b"k[12]", b"k?", b"*x*", b"\\a", b"{t}*", b"[a",
            b"", b"**", b"*\xff*", b"[b-a]"]

# Times are far away from now on either side, and the same in every run of a seed.
SECONDS = [b"100", b"1000", b"86400", b"-1", b"0", b"-100", b"100000000", b"9223372036854775807",
           b"9223372036854775", b"9223372036854776", b"-9223372036854775808"]
MILLISECONDS = [b"100000", b"1000000", b"-1", b"0", b"-5", b"8640000000", b"9223372036854775807",
                b"-9223372036854775808"]
UNIX_SECONDS = [b"4102444800", b"4102444801", b"5000000000", b"1", b"1000000000", b"0", b"-1",
                b"9223372036854775807", b"9223372036854776"]
UNIX_MILLISECONDS = [b"4102444800000", b"4102444800001", b"5000000000000", b"1", b"1000000000000",
                     b"0", b"-1"]
# Offsets that would allocate hundreds of megabytes are left out; those beyond the limit are in.
OFFSETS = [b"0", b"1", b"2", b"5", b"7", b"8", b"9", b"31", b"44", b"63", b"64", b"100", b"299", b"-1",
           b"4294967296", b"9223372036854775807", b"-9223372036854775808"]

# Pools for arguments by their names; what is not named here goes by type.
BY_NAME = {
    "seconds": SECONDS,
    "milliseconds": MILLISECONDS,
    "unix-time-seconds": UNIX_SECONDS,
    "unix-time-milliseconds": UNIX_MILLISECONDS,
    "offset": OFFSETS,
    "db": [b"0", b"0", b"1", b"2", b"3", b"15", b"16", b"-1", b"4294967296"],
    "destination-db": [b"0", b"1", b"2", b"3", b"15", b"16", b"-1"],
    "index1": [b"0", b"1", b"2", b"16", b"-1"],
    "index2": [b"0", b"1", b"2", b"16", b"-1"],
    "protover": [b"2", b"3", b"3", b"4", b"1"],
    "bit": [b"0", b"1", b"2", b"-1"],
    "encoding": [b"u1", b"i1", b"u8", b"i8", b"u4", b"i5", b"u16", b"i16", b"u32", b"i32", b"u63",
                 b"i64", b"u64", b"i65", b"u0", b"x8", b"i"],
    "count": [b"0", b"1", b"2", b"3", b"5", b"10", b"100", b"-1", b"-2", b"-5", b"-100",
              b"9223372036854775807", b"9223372036854775808", b"-9223372036854775808"],
    "cursor": [b"0"],
    "field": [b"f", b"g", b"h", b"field", b"1", b"2", b"-7", b"007", b"", b"f" * 64, b"f" * 65],
    "type": [b"string", b"STRING", b"list", b"hash", b"nosuchtype"],
    # Seconds that a command may block: nobody comes to push meanwhile.
    "timeout": [b"0.001", b"0.01", b"0.02", b"-1", b"-0.5", b"x", b"", b"nan", b"1e-3"],
    "parameter": [b"maxclients", b"timeout", b"proto-max-bulk-len", b"nosuchparameter",
                  b"databases"],
    "clientname": [b"me", b"you", b"", b"a b", b"x\n", b"name-1"],
    "connection-name": [b"me", b"", b"a b", b"name-1"],
    "username": [b"default", b"nobody", b""],
    "password": [b"", b"secret"],
    "section": [b"server", b"keyspace", b"nosuchsection", b"all"],
    "ifdeq-digest": [b"0123456789abcdef", b"0", b"x"],
    "ifdne-digest": [b"0123456789abcdef", b"0", b"x"],
}
NEGATIVE_OK = {"start", "end", "stop", "index", "rank", "count"}

# Members, elements and fields come from a small pool, so that they are found again; a few are long.
MEMBERS = [b"a", b"b", b"c", b"d", b"1", b"2", b"3", b"-7", b"70000", b"05", b"", b"x y", b"1.5",
           b"9223372036854775807", b"m" * 63, b"m" * 64, b"m" * 65, b"\xff\x00", b"e" * 5000]
for name in ("element", "pivot", "member", "field"):
    BY_NAME[name] = MEMBERS
BY_NAME["by-pattern"] = [b"nosort", b"*", b"k*", b"a*", b"k*->1", b"*->a", b"x"]
BY_NAME["get-pattern"] = [b"#", b"#", b"*", b"k*", b"k*->1", b"*->a", b"*->", b"x"]

# Pools for arguments of single commands, which win over all others.
BY_COMMAND = {
    # What is popped is random unless everything is; and what is drawn must fit into memory.
    "spop": {"count": [b"1000", b"100", b"0", b"-1", b"x"]},
    "srandmember": {"count": [b"0", b"1", b"-1", b"3", b"-3", b"100", b"-20", b"x", b"1.5",
                              b"9223372036854775807", b"-9223372036854775808"]},
}
SCRIPTS = [b"return redis.call('set', KEYS[1], ARGV[1])", b"return redis.call('get', KEYS[1])",
           b"return {KEYS[1], ARGV[1], #KEYS, #ARGV}", b"return redis.pcall('incr', KEYS[1])",
           b"local n = 0 for i, k in ipairs(KEYS) do n = n + redis.call('exists', k) end return n",
           b"return redis.call('lpush', KEYS[1], unpack(ARGV))", b"return redis.call('type', KEYS[1])",
           b"redis.call('select', 3) return redis.call('append', KEYS[1], ARGV[1] or '')",
           b"redis.setresp(3) return redis.pcall('hgetall', KEYS[1])",
           b"return {err = ARGV[1]}", b"return {ok = ARGV[1]}", b"return tonumber(ARGV[1])",
           b"return cjson.encode(ARGV)", b"error(ARGV[1])", b"error({err = ARGV[1] or 'MY x'})", b"x = 1",
           b"return redis.call(unpack(ARGV))", b"return redis.pcall(unpack(ARGV))", b"return nosuch",
           b"#!lua flags=no-writes\nreturn redis.call('del', KEYS[1])", b"return 1 +",
           b"#!lua flags=x\nreturn 1", b"return {1, 2.7, true, false, {KEYS, nil, 3}}", b"",
           b"return {double = 3.25}", b"return {map = {a = 1}}", b"redis.setresp(3) return {true}"]
for name in ("eval", "eval_ro", "script|load"):
    BY_COMMAND[name] = {"script": SCRIPTS}
for name in ("evalsha", "evalsha_ro", "script|exists"):
    BY_COMMAND[name] = {"sha1": [hashlib.sha1(s).hexdigest().encode() for s in SCRIPTS] + [b"x", b""]}
# A payload with the library lb and its function fb.
PAYLOAD = bytes.fromhex(
    "f5404d23216c7561206e616d653d6c620a72656469732e72656769737465725f66756e6374696f6e28276662"
    "272c2066756e6374696f6e28292072657475726e2027726573746f7265642720656e64290a003ca9fc049549"
    "97e9")
# Libraries whose functions have one name each, in one case: the reference ends otherwise.
LIBRARIES = [b"#!lua name=%s\nredis.register_function('%s', function(keys, args) %s end)" % line for line in (
    (b"la", b"fa", b"return redis.call('set', keys[1], args[1])"), (b"lb", b"fb", b"return {keys, args}"),
    (b"la", b"fb", b"return redis.call(unpack(args))"), (b"lb", b"fa", b"x = 1"), (b"l-c", b"fc", b""),
    (b"lc", b"f c", b""), (b"lc", b"fc", b"return redis.pcall('incr', keys[1])"), (b"lc", b"fc", b"return +"))]
LIBRARIES += [
    b"#!lua name=ld\nredis.register_function{function_name='fd', flags={'no-writes'}, description='d', "
    b"callback=function(keys) return redis.call('get', keys[1]) end}",
    b"#!lua name=ld\nredis.register_function('fd')", b"#!lua name=ld\nredis.call('ping')", b"#!lua\n", b"x",
    b"#!lua name=ld\n", b"#!lua name=ld x=y\n", b"#!js name=ld\n", b""]
BY_COMMAND["function|load"] = {"function-code": LIBRARIES}
BY_COMMAND["function|delete"] = {"library-name": [b"la", b"lb", b"lc", b"LA", b""]}
BY_COMMAND["function|list"] = {"library-name-pattern": [b"*", b"l?", b"LA", b"x*", b""]}
BY_COMMAND["function|restore"] = {"serialized-value": [
    b"\n\x00]\x9b\\@\x0f\x7f\xa2\xda", b"\n\x00]\x9b\\@\x0f\x7f\xa2\xdb", b"", b"x", PAYLOAD]}
for name in ("fcall", "fcall_ro"):
    BY_COMMAND[name] = {"function": [b"fa", b"fb", b"fc", b"fd", b"FA", b"fe", b""]}
# Users other than that of the connection, with rules that both servers print alike: commands only
# as all or in parentheses, where nothing comes before them.
BY_COMMAND["acl|setuser"] = {
    "username": [b"u1", b"u2", b"u3", b"a b", b"\xff"],
    "rule": [b"on", b"OFF", b"nopass", b"resetpass", b"reset", b">pw", b"<pw", b">", b"<nosuch",
             b"#" + b"0a" * 32, b"!" + b"0a" * 32, b"#abc", b"~a*", b"~b", b"%R~c*", b"%W~k1", b"%RW~k2",
             b"%X~a", b"~*", b"allkeys", b"resetkeys", b"&a*", b"&b", b"&*", b"allchannels",
             b"resetchannels", b"+@all", b"-@all", b"allcommands", b"nocommands", b"+@nosuch",
             b"-nosuch", b"+client|nosuch", b"+client|list|x", b"+get|a|b", b"(+get ~a*)",
             b"(+set +mset %W~*)", b"(+@all -acl &x)", b"(+select|0)", b"(on)", b"(~* ~a)", b"(+get",
             b")", b"clearselectors", b"sanitize-payload", b"skip-sanitize-payload", b"foo", b""],
}
for name in ("acl|getuser", "acl|deluser", "acl|dryrun"):
    BY_COMMAND[name] = {"username": [b"u1", b"u2", b"u3", b"default", b"nosuch"]}
BY_COMMAND["acl|cat"] = {"category": [b"nosuch", b"", b"@read"]}
BY_COMMAND["acl|genpass"] = {"bits": [b"1", b"0", b"4096", b"4097", b"-1", b"x"]}
BY_COMMAND["hrandfield"] = BY_COMMAND["zrandmember"] = BY_COMMAND["srandmember"]
# Optional arguments that are not left out.
ALWAYS = {("spop", "count"), ("geosearch", "from"), ("geosearchstore", "from")}
BY_NAME["limit"] = [b"0", b"1", b"2", b"100", b"-1", b"x"]

# Values of all types as DUMP writes them, in old forms that both servers know, and damaged ones.
PAYLOADS = [rdb.payload(0, rdb.string(b"restored")), rdb.payload(0, rdb.int_string(-700, 2), 9),
            rdb.payload(1, rdb.length(3) + rdb.string(b"a") + rdb.string(b"70000") + rdb.string(b"")),
            rdb.payload(2, rdb.length(2) + rdb.string(b"a") + rdb.string(b"1")),
            rdb.payload(3, rdb.length(1) + rdb.string(b"a") + b"\x031.5"),
            rdb.payload(4, rdb.length(2) + b"".join(map(rdb.string, [b"f", b"1", b"g", b"x" * 20]))),
            rdb.payload(10, rdb.string(rdb.ziplist([b"%d" % i for i in range(0, 90000, 9973)]))),
            rdb.payload(11, rdb.string(rdb.intset(range(-3, 3)))),
            rdb.payload(11, rdb.string(rdb.intset([1, 70000, 1 << 40]))),
            rdb.payload(12, rdb.string(rdb.ziplist([b"a", b"1", b"b", b"1.5", b"c", b"2"]))),
            rdb.payload(13, rdb.string(rdb.ziplist([b"f", b"1", b"g", b"v"]))),
            rdb.payload(16, rdb.string(rdb.listpack([b"f", b"1", b"g", b"v", b"h", b"-7"]))),
            rdb.payload(17, rdb.string(rdb.listpack([b"a", b"1", b"b", b"2"]))),
            rdb.payload(18, b"\x02\x02" + rdb.string(rdb.listpack([b"a", b"1"])) + b"\x01" +
                        rdb.string(b"plain" * 30)),
            rdb.payload(0, rdb.string(b"sum"), crc=1), rdb.payload(0, rdb.string(b"no sum"), crc=0),
            rdb.payload(0, rdb.string(b"version"), 99), rdb.payload(8, b"\x00"),
            rdb.payload(1, rdb.length(0)), b"", b"short"]
BY_COMMAND["restore"] = BY_COMMAND["restore-asking"] = {
    "serialized-value": PAYLOADS, "ttl": [b"0", b"0", b"0", b"0", b"100000", b"-1", b"x"],
    "frequency": [b"0", b"255", b"256", b"-1", b"x"],
}

# Scores repeat, so that names decide the order; bounds of ranges have several forms.
SCORES = [b"0", b"1", b"1", b"2", b"2", b"3", b"-1", b"1.5", b"-2.25", b"0.1", b"1e3", b"1e17",
          b"-0", b"inf", b"-inf", b"+inf", b"123456789", b"9007199254740993", b"1e-300", b"0x10"]
SCORE_BOUNDS = [b"-inf", b"+inf", b"inf", b"0", b"1", b"(1", b"2", b"(2", b"(-1", b"1.5", b"(inf",
                b"-5", b"1e17", b"", b"(", b"nan", b"x", b" 1", b"((1", b"1e999"]
NAME_BOUNDS = [b"-", b"+", b"[a", b"(a", b"[b", b"(b", b"[c", b"(d", b"[", b"(", b"[1", b"(70000",
               b"[\xff", b"a", b"", b"--", b"+inf"]
RANGE_BOUNDS = [b"0", b"1", b"2", b"-1", b"-2", b"-1", b"0", b"100", b"-100"] + \
    SCORE_BOUNDS[:10] + NAME_BOUNDS[:8]
# Pools for a name with one type of argument only.
BY_NAME_AND_TYPE = {
    ("score", "double"): SCORES,
    ("min", "double"): SCORE_BOUNDS, ("max", "double"): SCORE_BOUNDS,
    ("min", "string"): NAME_BOUNDS, ("max", "string"): NAME_BOUNDS,
    ("start", "string"): RANGE_BOUNDS, ("stop", "string"): RANGE_BOUNDS,
    ("weight", "double"): [b"1", b"2", b"-1", b"0.5", b"0", b"inf", b"nan"],
}

# Places: a few near each other, the corners of the map, the date line, and what is beyond them.
BY_NAME["longitude"] = [b"13.361389", b"15.087269", b"13.4", b"13.361390", b"0", b"-0.5", b"179.99",
                        b"-179.99", b"180", b"-180", b"90", b"180.0001", b"x"]
BY_NAME["latitude"] = [b"38.115556", b"37.502669", b"38.2", b"38.115557", b"0", b"-0.5", b"66.5",
                       b"-80.1", b"85.05112878", b"-85.05112878", b"85.06"]
LENGTHS = [b"0", b"0.5", b"1", b"100", b"150.25", b"500", b"1000", b"200000", b"4e6", b"20100", b"1e300",
           b"inf", b"-1", b"x", b"nan"]
for name in ("radius", "width", "height"):
    BY_NAME_AND_TYPE[name, "double"] = LENGTHS
for name in ("member1", "member2"):
    BY_NAME[name] = MEMBERS

# Keys that commands of a type use most of the time, so that they find their own type.
FAMILIES = ["string", "list", "set", "hash", "sorted-set"]


def version(text):
    return tuple(int(part) for part in text.split("."))


class Command:
    """One entry of the command table that can be called: name words, arity and arguments."""

    def __init__(self, data):
        self.words = [word for word in (data.get("container"), data["name"]) if word]
        self.id = "|".join(self.words).lower()
        self.since = version(data["since"])
        self.arity = data["arity"]
        self.flags = set(data.get("flags", []))
        self.keyed = data.get("mode") == "keys"
        self.group = data["group"]
        self.arguments = data.get("arguments", [])


def load_table(folder=COMMANDS):
    """All commands and subcommands, containers themselves left out, sorted by name."""
    data = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    containers = {entry["container"] for entry in data if "container" in entry}
    return [Command(entry) for entry in data
            if "container" in entry or entry["name"] not in containers]


class Generator:
    """Command lines for one seed. Options younger than `newest` are left out."""

    def __init__(self, random, commands, newest=(999,), keys=KEYS):
        self.random = random
        self.newest = newest
        self.keys = keys
        self.family = None
        self.current = None
        self.commands = commands
        self.weights = [8 if command.keyed else 1 for command in commands]
        for index, command in enumerate(commands):
            if command.id in ("set", "get", "append", "bitfield", "setrange", "incrbyfloat",
                              "geoadd"):
                self.weights[index] = 20
            if command.id in ("flushall", "flushdb", "reset", "hello"):
                self.weights[index] = 0.5

    def command(self):
        return self.random.choices(self.commands, self.weights)[0]

    def line(self, command):
        """One command line, mostly valid."""
        self.current = command.id
        words = [self.spelled(word) for word in command.words]
        arguments = self.arguments(command)
        roll = self.random.random()
        if roll < 0.10:
            self.spoil(arguments)
        return [word.encode() for word in words] + arguments

    def spelled(self, word):
        return self.random.choice([word, word, word.lower(), word.title()])

    def spoil(self, arguments):
        kind = self.random.randrange(4)
        place = self.random.randrange(len(arguments) + 1)
        if kind == 0 and arguments:
            del arguments[self.random.randrange(len(arguments))]
        elif kind == 1:
            arguments.insert(place, self.random.choice(VALUES + INTEGERS + KEYS))
        elif kind == 2 and len(arguments) > 1:
            other = self.random.randrange(len(arguments))
            place = self.random.randrange(len(arguments))
            arguments[place], arguments[other] = arguments[other], arguments[place]
        elif arguments:
            arguments.append(self.random.choice(arguments))

    def arguments(self, command):
        if command.id in ("command|getkeys", "command|getkeysandflags"):
            return self.line(self.command())
        if command.id == "acl|dryrun":
            user = self.scalar("string", "username")
            return [user] + self.line(self.command())
        family = "sorted-set" if command.group == "geo" else command.group
        self.family = FAMILIES.index(family) if family in FAMILIES else None
        groups = []
        for spec in command.arguments:
            optional = spec.get("optional", False)
            groups.append((optional, self.argument(spec)))
        self.count_keys(command, groups)
        fixed = [words for optional, words in groups if not optional]
        if fixed and groups[-1][0] and self.random.random() < 0.3:
            self.shuffle_tail(groups)
        return [word for _, words in groups for word in words]

    def count_keys(self, command, groups):
        """A number of keys that the line states is mostly true."""
        for index, spec in enumerate(command.arguments):
            if spec["name"] == "numkeys" and self.random.random() < 0.93:
                count = len(groups[index + 1][1])
                groups[index] = (False, [b"%d" % count])
                self.count_weights(command, groups, count)

    def count_weights(self, command, groups, count):
        """Every key has a weight, or none has."""
        for index, spec in enumerate(command.arguments):
            if spec["name"] == "weight" and groups[index][1]:
                weights = [self.scalar("double", "weight") for _ in range(count)]
                groups[index] = (True, [groups[index][1][0]] + weights)

    def shuffle_tail(self, groups):
        """Options after the last required argument may come in any order."""
        start = max(index for index, group in enumerate(groups) if not group[0]) + 1
        tail = groups[start:]
        self.random.shuffle(tail)
        groups[start:] = tail

    def argument(self, spec):
        if self.left_out(spec):
            return []
        count = self.random.choice([1, 1, 2, 3, 6]) if spec.get("multiple") else 1
        words = []
        for number in range(count):
            if "token" in spec and spec["type"] != "pure-token" and \
                    (number == 0 or spec.get("multiple_token")):
                words.append(self.token(spec["token"]))
            words += self.value(spec)
        return words

    def left_out(self, spec):
        if version(spec.get("since", "0")) > self.newest:
            return True
        if (self.current, spec["name"]) in ALWAYS:
            return False
        return spec.get("optional", False) and self.random.random() < 0.6

    def token(self, text):
        return self.random.choice([text, text, text.lower()]).encode()

    def value(self, spec):
        kind = spec["type"]
        if kind == "pure-token":
            return [self.token(spec["token"])]
        if kind == "oneof":
            return self.one_of(spec["arguments"])
        if kind == "block":
            return [word for inner in spec["arguments"] for word in self.argument(inner)]
        return [self.scalar(kind, spec["name"])]

    def one_of(self, alternatives):
        known = [spec for spec in alternatives if version(spec.get("since", "0")) <= self.newest]
        if not known:
            return []
        words = self.argument(dict(self.random.choice(known), optional=False))
        if self.random.random() < 0.06:
            words += self.argument(dict(self.random.choice(known), optional=False))
        return words

    def scalar(self, kind, name):
        choice = self.random.choice
        roll = self.random.random()
        if kind == "key":
            if self.family is not None and roll < 0.75:
                return choice(self.keys[self.family::len(FAMILIES)])
            return choice(self.keys)
        own = BY_COMMAND.get(self.current, {}).get(name)
        if own is not None:
            return choice(own)
        if (name, kind) in BY_NAME_AND_TYPE and roll < 0.97:
            return choice(BY_NAME_AND_TYPE[name, kind])
        if name in BY_NAME and roll < 0.94:
            word = choice(BY_NAME[name])
            if name == "offset" and self.random.random() < 0.15:
                word = b"#" + choice([b"0", b"1", b"2", b"9", b"-1", b"x"])
            return word
        if kind == "integer":
            return self.integer(name, roll)
        if kind == "unix-time":
            return choice(UNIX_SECONDS if roll < 0.97 else NOT_INTEGERS)
        if kind == "double":
            return choice(DOUBLES if roll < 0.9 else NOT_DOUBLES)
        if kind == "pattern":
            return choice(PATTERNS)
        return self.text(roll)

    def integer(self, name, roll):
        if name in BY_NAME or roll > 0.93:
            return self.random.choice(NOT_INTEGERS)
        if name in NEGATIVE_OK and roll < 0.7:
            return b"%d" % self.random.randint(-60, 60)
        if roll < 0.35:
            return b"%d" % self.random.randint(-20, 200)
        return self.random.choice(INTEGERS)

    def text(self, roll):
        if roll < 0.3:
            return self.random.choice(INTEGERS)
        if roll < 0.4:
            return self.random.choice(DOUBLES)
        if roll < 0.45:
            return bytes(self.random.randrange(256) for _ in range(self.random.randrange(70)))
        return self.random.choice(VALUES)

    def sequence(self, length):
        """A list of (command id or None, line). Transactions are part of it."""
        lines = []
        while len(lines) < length:
            if self.random.random() < 0.05:
                self.transaction(lines)
            elif self.random.random() < 0.01:
                lines.append((None, [self.random.choice([b"NOSUCH", b"", b"GETT", b"config"]), b"x"]))
            else:
                self.append(lines)
        return lines

    def append(self, lines):
        command = self.command()
        lines.append((command.id, self.line(command)))

    def transaction(self, lines):
        if self.random.random() < 0.3:
            lines.append(("watch", [b"WATCH", self.random.choice(self.keys)]))
        lines.append(("multi", [b"MULTI"]))
        for _ in range(self.random.randrange(8)):
            self.append(lines)
        lines.append(("exec", [b"EXEC"]) if self.random.random() < 0.9
                     else ("discard", [b"DISCARD"]))
