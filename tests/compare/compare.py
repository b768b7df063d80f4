#!/usr/bin/python3
"""Sends the same random commands to Kvik and to a reference and compares everything they answer.

Replies are compared byte for byte, except where differences.json says how a command is to be
compared instead (order of KEYS, times with a tolerance ...) or names an intended difference. At the
end of a sequence the content is compared: keys, values, encodings, times to live of all databases
used. A failing sequence is shrunk to a minimal one before it is shown.

Stand-alone: `compare.py [--seed N] [--rounds N] [--length N]` runs until a difference or the end.
"""
import argparse
import json
import random
import re
import socket
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "server"))
sys.path.insert(0, str(HERE))

from generate import Generator, load_table  # noqa: E402
from process import REFERENCE, Server  # noqa: E402
from raw import Closed, Error, Pairs, Set, encode, parse  # noqa: E402

DATABASES = (0, 1, 2, 3, 15)
# How a value of each type is read; sets and hashes in any order.
READ_VALUE = {
    b"string": ["GET"], b"list": ["LRANGE", "0", "-1"], b"set": ["SMEMBERS"], b"hash": ["HGETALL"],
    b"zset": ["ZRANGE", "0", "-1", "WITHSCORES"],
}

# Limits that make values change their encoding all the time; what a server does not know it refuses.
SMALL_LIMITS_ALWAYS = {
    "set-max-intset-entries": 5, "set-max-listpack-entries": 5, "set-max-listpack-value": 8,
    "hll-sparse-max-bytes": 60,
}
# And one row a way of sending.
SMALL_LIMITS = {
    (2, True): {"list-max-listpack-size": 3, "zset-max-listpack-entries": 4,
                "hash-max-listpack-entries": 3, "hash-max-listpack-value": 64},
    (3, True): {"list-max-listpack-size": -1, "zset-max-listpack-entries": 0,
                "hash-max-listpack-entries": 512, "hash-max-listpack-value": 512},
    (2, False): {"list-max-listpack-size": 1, "zset-max-listpack-entries": 128,
                 "hash-max-listpack-entries": 1, "hash-max-listpack-value": 512},
    (3, False): {"list-max-listpack-size": 128, "zset-max-listpack-entries": 8,
                 "hash-max-listpack-entries": 5, "hash-max-listpack-value": 12},
}
TIME_TOLERANCE = {"seconds": 3, "milliseconds": 3000}


class Differences:
    """What differences.json states."""

    def __init__(self, path=HERE / "differences.json"):
        data = json.loads(path.read_text())
        self.skip = {entry["command"] for entry in data["skip"]}
        self.how = {entry["command"]: entry["how"] for entry in data["compare"]}
        self.intended = [(re.compile(entry["command"], re.IGNORECASE | re.DOTALL),
                          re.compile(entry["kvik"].encode(), re.DOTALL),
                          re.compile(entry["reference"].encode(), re.DOTALL),
                          entry.get("diverges", False)) for entry in data["replies"]]
        self.entries = data

    def skipped(self, command_id):
        return command_id in self.skip or command_id.split("|")[0] in self.skip

    def is_intended(self, line, kvik, reference):
        """True when an entry names this line (words joined by blanks) and both replies. Raises
        Diverged when the content differs from here on."""
        text = b" ".join(line[:12]).decode("latin-1")
        for command, ours, theirs, diverges in self.intended:
            if command.search(text) and ours.search(kvik) and theirs.search(reference):
                if diverges:
                    raise Diverged
                return True
        return False


class Diverged(Exception):
    """An intended difference after which there is nothing to compare any more."""


class Difference(Exception):
    """Where two servers part."""


def show(data):
    return repr(data if len(data) < 400 else data[:300] + b"..." + data[-60:])


def sorted_reply(value):
    return sorted(value, key=repr) if isinstance(value, list) else value


def shape(value):
    """The type of a reply, errors with their text."""
    if isinstance(value, Error):
        return value
    if isinstance(value, (list, dict, Set, Pairs)):
        return "aggregate"
    return "null" if value is None else type(value).__name__


def unordered(kind, value):
    """The members of a set, or the fields of a hash with their values."""
    if not isinstance(value, list):
        return value
    return sorted(zip(value[::2], value[1::2])) if kind == b"hash" else sorted(value)


def scores_agree(kvik, reference):
    """Equal, where texts of the same double are: 0.1 and 0.10000000000000001."""
    if isinstance(kvik, list) and isinstance(reference, list):
        return len(kvik) == len(reference) and all(map(scores_agree, kvik, reference))
    if type(kvik) is bytes and type(reference) is bytes and kvik != reference:
        try:
            return float(kvik) == float(reference)
        except ValueError:
            return False
    return kvik == reference and type(kvik) is type(reference)


def times_agree(kvik, reference, tolerance):
    if not isinstance(kvik, int) or not isinstance(reference, int):
        return kvik == reference
    if kvik < 0 or reference < 0:
        return kvik == reference
    return abs(kvik - reference) <= tolerance


def values_agree(how, kvik, reference):
    if how == "unordered":
        return type(kvik) is type(reference) and sorted_reply(kvik) == sorted_reply(reference)
    if how == "length":  # the same type and as many elements
        return shape(kvik) == shape(reference) and (
            not isinstance(kvik, list) or len(kvik) == len(reference))
    if how in TIME_TOLERANCE:
        return times_agree(kvik, reference, TIME_TOLERANCE[how])
    if how == "scores":
        return scores_agree(kvik, reference)
    if how == "shape":
        return shape(kvik) == shape(reference)
    if how == "kind":  # an error or not
        return isinstance(kvik, Error) == isinstance(reference, Error)
    return kvik == reference and type(kvik) is type(reference)


class Queue:
    """Follows MULTI and EXEC, to know which commands the reply of EXEC belongs to."""

    def __init__(self):
        self.open = False
        self.lines = []

    def follow(self, command_id, line, reply):
        """The queued lines when this is a successful EXEC, else None."""
        if reply == b"+QUEUED\r\n":
            self.lines.append((command_id, line))
            return None
        done = self.lines
        name = line[0].upper()
        if name in (b"MULTI", b"EXEC", b"DISCARD", b"RESET") and reply[:1] != b"-":
            self.lines = []
        elif name == b"EXEC":
            self.lines = []
        return done if name == b"EXEC" and reply[:1] == b"*" else None


class Comparison:
    """One connection to each server, and the way to compare what they say."""

    def __init__(self, kvik, reference, differences):
        self.kvik, self.reference, self.differences = kvik, reference, differences

    def run(self, sequence, resp=2, pipelined=True):
        """Raises Difference when the servers part anywhere in the sequence."""
        self.sorts = any(name in ("sort", "sort_ro") for name, _ in sequence)
        with self.kvik.raw() as ours, self.reference.raw() as theirs:
            for conn in (ours, theirs):
                conn.cmd("FLUSHALL")
                for name, value in {**SMALL_LIMITS_ALWAYS, **SMALL_LIMITS[resp, pipelined]}.items():
                    conn.cmd("CONFIG", "SET", name, value)
                conn.cmd("HELLO", resp)
            try:
                self.send_sequence(ours, theirs, sequence, pipelined)
            except Diverged:
                return
            for conn in (ours, theirs):
                conn.cmd("RESET")
            self.compare_content(ours, theirs)

    def send_sequence(self, ours, theirs, sequence, pipelined):
        queue = Queue()
        if pipelined:
            request = b"".join(encode(*line) for _, line in sequence)
            ours.send(request)
            theirs.send(request)
        for command_id, line in sequence:
            if not pipelined:
                ours.send_cmd(*line)
                theirs.send_cmd(*line)
            replies = [self.reply(conn, line) for conn in (ours, theirs)]
            self.compare_replies(command_id, line, replies[0], replies[1], queue)

    def reply(self, conn, line):
        try:
            return conn.read_bytes()
        except (Closed, socket.timeout, ValueError) as problem:
            raise Difference("no reply to %r: %s" % (line, problem)) from problem

    def compare_replies(self, command_id, line, kvik, reference, queue):
        queued = queue.follow(command_id, line, kvik)
        if kvik == reference:
            return
        if self.differences.is_intended(line, kvik, reference):
            return
        if queued is not None and kvik[:1] == reference[:1] == b"*":
            self.compare_exec(queued, kvik, reference)
            return
        if b"+QUEUED\r\n" not in (kvik, reference):
            how = self.differences.how.get(command_id)
            if how is not None and values_agree(how, parse(kvik), parse(reference)):
                return
        raise Difference("%r\n  Kvik      %s\n  reference %s" % (line, show(kvik), show(reference)))

    def compare_exec(self, queued, kvik, reference):
        ours, theirs = parse(kvik), parse(reference)
        if ours is None or theirs is None or len(ours) != len(theirs) or len(ours) != len(queued):
            raise Difference("EXEC of %r\n  Kvik      %s\n  reference %s"
                             % (queued, show(kvik), show(reference)))
        for (command_id, line), mine, other in zip(queued, ours, theirs):
            if values_agree(self.differences.how.get(command_id), mine, other):
                continue
            texts = [b"-%s\r\n" % value.text if isinstance(value, Error) else repr(value).encode()
                     for value in (mine, other)]
            if not self.differences.is_intended(line, *texts):
                raise Difference("inside EXEC: %r\n  Kvik      %r\n  reference %r"
                                 % (line, mine, other))

    def compare_content(self, ours, theirs):
        for database in DATABASES:
            keys = []
            for conn in (ours, theirs):
                conn.cmd("SELECT", database)
                keys.append(sorted(conn.cmd("KEYS", "*")))
            self.equal("keys of database %d" % database, *keys)
            self.compare_size(ours, theirs)
            for key in keys[0]:
                self.compare_key(ours, theirs, key)

    def compare_size(self, ours, theirs):
        """A server may count due keys until its expiry has found them: give it a moment."""
        deadline = time.monotonic() + 2
        while ours.cmd("DBSIZE") != theirs.cmd("DBSIZE") and time.monotonic() < deadline:
            time.sleep(0.02)
        self.equal("DBSIZE", ours.cmd("DBSIZE"), theirs.cmd("DBSIZE"))

    def compare_key(self, ours, theirs, key):
        kind = theirs.cmd("TYPE", key)
        read = READ_VALUE[kind]
        for words in (["TYPE", key], ["OBJECT", "ENCODING", key], [read[0], key] + read[1:],
                      ["PTTL", key]):
            mine, other = ours.cmd(*words), theirs.cmd(*words)
            if kind in (b"set", b"hash") and words[0] == read[0]:
                mine, other = unordered(kind, mine), unordered(kind, other)
            how = {"PTTL": "milliseconds", "ZRANGE": "scores"}.get(words[0])
            # Encodings of hashes and sorted sets are the reference's own: nothing is intended there.
            # But SORT makes a skiplist of a sorted set that it reads.
            exact = kind in (b"hash", b"zset") and words[0] == "OBJECT"
            if exact and self.sorts and (mine, other) == (b"listpack", b"skiplist"):
                continue
            if not values_agree(how, mine, other) and (exact or not self.differences.is_intended(
                    [word.encode() if isinstance(word, str) else word for word in words],
                    repr(mine).encode(), repr(other).encode())):
                self.equal("content: %r" % words, mine, other)

    def equal(self, what, kvik, reference):
        if kvik != reference:
            raise Difference("%s\n  Kvik      %s\n  reference %s"
                             % (what, show(repr(kvik).encode()), show(repr(reference).encode())))

    def problem(self, sequence, resp, pipelined):
        """The difference as text, or None."""
        try:
            self.run([(name, patience(line)) for name, line in sequence], resp, pipelined)
        except Difference as difference:
            return str(difference)
        return None

    def shrink(self, sequence, resp, pipelined, budget=400):
        """A shorter sequence that still shows a difference."""
        step = max(1, len(sequence) // 2)
        while budget > 0:
            start = 0
            while start < len(sequence) and budget > 0:
                shorter = sequence[:start] + sequence[start + step:]
                budget -= 1
                if shorter and self.problem(shorter, resp, pipelined):
                    sequence = shorter
                else:
                    start += step
            if step == 1:
                break
            step //= 2
        return sequence


# Where blocking commands have their time.
TIMEOUT_PLACES = {b"blpop": -1, b"brpop": -1, b"bzpopmin": -1, b"bzpopmax": -1, b"blmove": 5,
                  b"blmovem": 5, b"brpoplpush": 3, b"blmpop": 1, b"bzmpop": 1}


def patience(line):
    """The line with a short time in the place of one that would block for long, or for ever."""
    place = TIMEOUT_PLACES.get(line[0].lower()) if line else None
    if place is None or not 1 < len(line) > place:
        return line
    try:
        text = line[place].decode().lower()
        seconds = float.fromhex(text) if "x" in text else float(text)
    except (UnicodeDecodeError, ValueError, OverflowError):
        return line
    if seconds != 0 and (seconds < 0.05 or seconds > 1e15 or seconds != seconds):
        return line
    line = list(line)
    line[place] = b"0.01"
    return line


def known_commands(table, reference, differences):
    """The commands to compare: those that the reference has and that are not skipped."""
    with reference.raw() as conn:
        theirs = {name.decode() for name in conn.cmd("COMMAND", "LIST")}
        for name in list(theirs):
            for row in conn.cmd("COMMAND", "INFO", name):
                if row and len(row) > 9:
                    theirs.update(sub[0].decode() for sub in row[9])
    return [command for command in table
            if command.id in theirs and not differences.skipped(command.id)]


def reference_version(reference):
    with reference.raw() as conn:
        found = re.search(rb"redis_version:(\d+)\.(\d+)\.(\d+)", conn.cmd("INFO", "server"))
    return tuple(int(part) for part in found.groups())


def check_seed(comparison, commands, newest, seed, resp, pipelined, length=150):
    """None, or the report of a difference with the shortest sequence that shows it."""
    generator = Generator(random.Random(seed), commands, newest)
    sequence = generator.sequence(length)
    problem = comparison.problem(sequence, resp, pipelined)
    if problem is None:
        return None
    short = comparison.shrink(sequence, resp, pipelined)
    final = comparison.problem(short, resp, pipelined) or problem
    lines = "\n".join("    %s" % " ".join(show(word)[1:] for word in line) for _, line in short)
    return "seed %s, RESP%d, %s:\n%s\n  after the commands\n%s" % (
        seed, resp, "pipelined" if pipelined else "one by one", final, lines)


def main():
    options = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--rounds", type=int, default=50)
    options.add_argument("--length", type=int, default=150)
    options.add_argument("--groups", help="only commands of these groups, separated by commas")
    options.add_argument("--all", action="store_true", help="go on after a difference")
    options = options.parse_args()
    kvik, reference = Server(), Server(binary=REFERENCE)
    differences = Differences()
    commands = known_commands(load_table(), reference, differences)
    if options.groups:
        commands = [command for command in commands if command.group in options.groups.split(",")]
    comparison = Comparison(kvik, reference, differences)
    failures = 0
    for seed in range(options.seed, options.seed + options.rounds):
        report = check_seed(comparison, commands, reference_version(reference), seed,
                            2 + seed % 2, seed % 4 < 2, options.length)
        if report:
            print(report)
            failures += 1
            if not options.all:
                break
    print("%d commands, %d rounds, %d differences" % (len(commands), options.rounds, failures))
    kvik.stop()
    reference.stop()
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
