#!/usr/bin/python3
"""Sends the same random commands to Kvik and to a reference and compares the keyspace events.

Both servers have notifications of all classes that the reference knows, and a client that is
subscribed to all of them. After each command, what that client got must be the same on both: the
events, their keys and databases, and their order. When a due key is found is each server's own:
`expired` is left out. What differs on purpose stands under "events" in
differences.json, by command line: the events of such a line are not compared.
"""
import random
import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from compare import (DATABASES, REFERENCE, SMALL_LIMITS, SMALL_LIMITS_ALWAYS,  # noqa: E402
                     Comparison, Difference, Differences, Diverged, Queue, Server, check_seed,
                     known_commands, reference_version)
from generate import load_table  # noqa: E402

PATTERN = "__key*@*__:*"
CLASSES = "KEAn"


class Subscriber:
    """A connection that is subscribed to all events of a server."""

    def __init__(self, server):
        self.raw = server.raw()
        self.raw.cmd("CONFIG", "SET", "notify-keyspace-events", CLASSES)
        self.raw.cmd("PSUBSCRIBE", PATTERN)
        self.count = 0

    def events(self):
        """What has come since the last call."""
        self.count += 1
        mark = b"mark %d" % self.count
        self.raw.send_cmd("PING", mark)
        got = []
        while True:
            message = self.raw.read()
            if message == [b"pong", mark]:
                return got
            if b"expired" not in (message[3], message[2].split(b":", 1)[1]):
                got.append((message[2], message[3]))

    def close(self):
        self.raw.close()


class EventComparison(Comparison):
    """Compares replies, content and, after every command, the events."""

    def run(self, sequence, resp=2, pipelined=False):
        with self.kvik.raw() as ours, self.reference.raw() as theirs:
            for conn in (ours, theirs):
                conn.cmd("FLUSHALL")
                for name, value in {**SMALL_LIMITS_ALWAYS, **SMALL_LIMITS[resp, False]}.items():
                    conn.cmd("CONFIG", "SET", name, value)
                conn.cmd("HELLO", resp)
            subscribers = Subscriber(self.kvik), Subscriber(self.reference)
            try:
                self.compare_events(ours, theirs, subscribers, sequence)
            except Diverged:
                return
            finally:
                for subscriber in subscribers:
                    subscriber.close()

    def compare_events(self, ours, theirs, subscribers, sequence):
        queue = Queue()
        for command_id, line in sequence:
            ours.send_cmd(*line)
            theirs.send_cmd(*line)
            replies = [self.reply(conn, line) for conn in (ours, theirs)]
            lines = [line] + [queued for _, queued in queue.lines]
            self.compare_replies(command_id, line, replies[0], replies[1], queue)
            events = [subscriber.events() for subscriber in subscribers]
            if events[0] != events[1] and not any(map(self.events_differ, lines)):
                raise Difference("events of %r (%s)\n  Kvik      %r\n  reference %r"
                                 % (lines, replies[0][:60], *events))

    def events_differ(self, line):
        text = b" ".join(line[:12]).decode("latin-1")
        return any(re.search(entry["command"], text, re.IGNORECASE | re.DOTALL)
                   for entry in self.differences.entries["events"])


def event_commands(table, reference, differences):
    """Those that can be compared so."""
    return [command for command in known_commands(table, reference, differences)
            if command.keyed or command.id in ("multi", "exec", "discard", "select", "flushall",
                                               "flushdb", "swapdb")]


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    first = int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(1 << 30)
    kvik, reference = Server(), Server(binary=REFERENCE)
    differences = Differences()
    comparison = EventComparison(kvik, reference, differences)
    commands = event_commands(load_table(), reference, differences)
    failures = 0
    for seed in range(first, first + rounds):
        report = check_seed(comparison, commands, reference_version(reference), seed, 2 + seed % 2,
                            False)
        if report:
            print(report)
            failures += 1
    print("%d commands, %d rounds from seed %d, %d differences"
          % (len(commands), rounds, first, failures))
    kvik.stop()
    reference.stop()
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
