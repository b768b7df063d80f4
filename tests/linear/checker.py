#!/usr/bin/python3
"""Decides whether a history of concurrent operations is linearizable.

A history is a list, one item a client, of that client's operations in program order. The search is
that of Wing and Gong with Lowe's memory: extend an order of operations by the next one of some
client, if no operation that is still outside ended before it began; apply it to the model; go on
only if the model gives the recorded reply; never visit the same (positions, state) twice.

The history is first cut into parts that no key connects (a command on the whole keyspace connects
everything), each of which is decided alone: linearizability is local.
"""
from collections import namedtuple

import model
import scripts  # noqa: F401: adds its step to the model

# invoke and response in any unit of one clock; response is None when the reply never came
Operation = namedtuple("Operation", "client step reply invoke response")

WHOLE = {"FLUSHALL", "DBSIZE", "KEYS"}


class Undecided(Exception):
    """The search took more visits than allowed."""


class Result:
    """Outcome of a check: true when linearizable."""

    def __init__(self, good, visits, positions=None, history=None):
        self.good, self.visits, self.positions, self.history = good, visits, positions, history

    def __bool__(self):
        return self.good

    def __str__(self):
        if self.good:
            return "linearizable, %d visits" % self.visits
        lines = ["not linearizable; %d visits; the longest order ends before:" % self.visits]
        for client, position in enumerate(self.positions):
            for mark, place in (("  done", position - 1), ("  next", position)):
                if 0 <= place < len(self.history[client]):
                    lines.append("%s %r" % (mark, self.history[client][place]))
        return "\n".join(lines)


def keys_of(step):
    """Key indexes that a step touches; None for the whole keyspace."""
    if step[0] in WHOLE:
        return None
    found = {model.INDEX[word] for word in step[1:] if word in model.INDEX}
    for inner in step[1:]:
        if isinstance(inner, tuple):  # of EXEC, or of a script
            keys = keys_of(inner)
            if keys is None:
                return None
            found |= keys
    return found


def parts(history):
    """Splits a history into independent ones by connected keys."""
    group = list(range(len(model.KEYS)))

    def root(index):
        while group[index] != index:
            index = group[index]
        return index

    for operations in history:
        watched = set()
        for operation in operations:
            keys = keys_of(operation.step)
            if keys is None:
                return [history]
            if operation.step[0] == "WATCH":
                watched |= keys
            elif operation.step[0] in ("EXEC", "UNWATCH"):
                keys, watched = keys | watched, set()
            first = min(keys, default=0)
            for key in keys:
                group[root(key)] = root(first)
    return split(history, root)


def split(history, root):
    found = {}
    for client, operations in enumerate(history):
        last = 0
        for operation in operations:
            keys = keys_of(operation.step)
            last = root(min(keys)) if keys else last  # EXEC and UNWATCH follow their WATCH
            part = found.setdefault(last, [[] for _ in history])
            part[client].append(operation)
    return list(found.values())


class Search:
    """Depth-first search over orders, with an explicit stack."""

    def __init__(self, history, start, limit):
        self.history, self.limit = history, limit
        self.ends = tuple(len(operations) for operations in history)
        self.seen = set()
        self.visits = 0
        self.deepest = (0,) * len(history)
        self.stack = [((0,) * len(history), start)]

    def run(self):
        while self.stack:
            positions, state = self.stack.pop()
            if self.finished(positions):
                return Result(True, self.visits)
            if (positions, state) in self.seen:
                continue
            self.seen.add((positions, state))
            self.visits += 1
            if self.visits > self.limit:
                raise Undecided("more than %d visits" % self.limit)
            if sum(positions) > sum(self.deepest):
                self.deepest = positions
            self.extend(positions, state)
        return Result(False, self.visits, self.deepest, self.history)

    def finished(self, positions):
        """All operations that have a reply are placed."""
        return all(position == end or self.history[client][position].response is None
                   for client, (position, end) in enumerate(zip(positions, self.ends)))

    def extend(self, positions, state):
        heads = [(client, self.history[client][position])
                 for client, position in enumerate(positions) if position < self.ends[client]]
        barrier = min((head.response for _, head in heads if head.response is not None),
                      default=float("inf"))
        for client, head in heads:
            if head.invoke > barrier:
                continue
            reply, after = model.apply(state, head.client, head.step, head.reply)
            if head.response is None or reply == head.reply:
                following = positions[:client] + (positions[client] + 1,) + positions[client + 1:]
                self.stack.append((following, after))


def check(history, limit=400000):
    """Result of the whole history. Raises Undecided after `limit` visits in one part."""
    visits = 0
    for part in parts(history):
        result = Search(part, model.initial(len(history)), limit).run()
        visits += result.visits
        if not result:
            return result
    return Result(True, visits)
