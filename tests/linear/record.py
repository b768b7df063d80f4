#!/usr/bin/python3
"""Records a history: bursts of random commands from several connections over few keys.

One thread serves all connections, so that many commands are under way at once without Python's
lock in between: whichever connection has all its replies gets its next burst. The clock is read
before a burst is sent and after its last reply is there; that is earlier and later than needed,
which can hide an anomaly but never invents one.
"""
import select
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "server"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from checker import Operation  # noqa: E402
from model import KEYS  # noqa: E402
from raw import Incomplete, encode, parse_at  # noqa: E402
from scripts import HOWS, Lines  # noqa: E402


class Steps:
    """Random steps. Values are unique, so that each read tells which write it saw."""

    MIXES = {
        "points": "SET GET INCR APPEND GETSET DEL EXISTS SETNX GETDEL STRLEN",
        "pairs": "MSET MGET RENAME COPY RENAMENX MSETNX GET SET DEL INCR",
        "whole": "SET GET INCR MSET MGET DEL RENAME FLUSHALL DBSIZE KEYS EXISTS",
        "exec": "SET GET INCR MGET WATCH WATCH EXEC EXEC EXEC DEL RENAME UNWATCH EXPIRE",
        "lists": "RPUSH LPUSH LPOP RPOP LMOVE LLEN LRANGE BLPOP BRPOP BLMOVE RENAME DEL",
        "queues": "RPUSH RPUSH RPUSH LPUSH BLPOP BLPOP BRPOP BLMOVE BLMOVE LLEN EXEC EXEC WATCH SET",
        "scripts": "SCRIPT SCRIPT SCRIPT SCRIPT SET GET INCR MGET MSET DEL RENAME EXEC WATCH EXISTS",
        "script-queues": "SCRIPT SCRIPT SCRIPT RPUSH LPUSH BLPOP BLPOP BRPOP BLMOVE LLEN EXEC SET",
        "script-whole": "SCRIPT SCRIPT SET GET INCR MSET DEL FLUSHALL DBSIZE KEYS EXEC WATCH",
        "all": "SET GET INCR MSET MGET DEL UNLINK RENAME RENAMENX COPY EXISTS APPEND GETSET EXPIRE "
               "WATCH EXEC EXEC FLUSHALL DBSIZE KEYS MSETNX SETNX GETDEL STRLEN",
    }

    def __init__(self, dice, mix, keys):
        self.dice = dice
        self.names = self.MIXES[mix].split()
        self.inner = [name for name in self.names if name not in ("WATCH", "UNWATCH", "EXEC")]
        self.plain = [name for name in self.inner if name != "SCRIPT"]
        self.timeout = b"0.01"
        self.keys = KEYS[:keys]
        self.number = 0

    def value(self):
        self.number += 1
        return b"%d" % (1000 * self.number)

    def step(self, name=None):
        dice = self.dice
        name = name or dice.choice(self.names)
        two = dice.sample(self.keys, 2)
        some = dice.sample(self.keys, dice.randint(1, min(3, len(self.keys))))
        if name == "EXEC":
            return (name,) + tuple(self.step(dice.choice(self.inner))
                                   for _ in range(dice.randint(1, 3)))
        if name == "SCRIPT":
            return (name, dice.choice(HOWS)) + self.script(two)
        if name in ("SET", "GETSET", "SETNX"):
            return (name, two[0], self.value())
        if name in ("RPUSH", "LPUSH"):
            return (name, two[0]) + tuple(self.value() for _ in range(dice.randint(1, 2)))
        if name in ("BLPOP", "BRPOP"):
            return (name,) + tuple(some) + (self.timeout,)
        if name in ("LMOVE", "BLMOVE"):
            ends = (dice.choice([b"LEFT", b"RIGHT"]), dice.choice([b"LEFT", b"RIGHT"]))
            return (name,) + tuple(two) + ends + ((self.timeout,) if name == "BLMOVE" else ())
        if name == "LRANGE":
            return (name, two[0], b"0", b"-1")
        if name in ("MSET", "MSETNX"):
            return (name,) + tuple(word for key in some for word in (key, self.value()))
        if name in ("MGET", "DEL", "UNLINK", "EXISTS", "WATCH"):
            return (name,) + tuple(some)
        if name in ("RENAME", "RENAMENX"):
            return (name,) + tuple(two)
        if name == "COPY":
            return (name,) + tuple(two) + ((b"REPLACE",) if dice.random() < 0.7 else ())
        extra = {"APPEND": (b"7",), "EXPIRE": (b"-1",)}
        if name in ("FLUSHALL", "DBSIZE", "UNWATCH"):
            return (name,)
        return (name, b"*") if name == "KEYS" else (name, two[0]) + extra.get(name, ())

    def script(self, two):
        """Name and payload of a script."""
        dice = self.dice
        name = dice.choice([b"RUN", b"RUN", b"RUN", b"SWAP", b"TRANSFER"])
        if name != b"RUN":
            return (name,) + tuple(two)
        return (name,) + tuple(self.step(dice.choice(self.plain))
                               for _ in range(dice.randint(1, 4)))


def to_wire(step, scripts):
    """The bytes of a step, and how many replies they have."""
    inner = step[1:] if step[0] == "EXEC" else (step,)
    lines = [scripts.line(one) if one[0] == "SCRIPT" else one for one in inner]
    if step[0] == "EXEC":
        lines = [("MULTI",), *lines, ("EXEC",)]
    return b"".join(encode(*line) for line in lines), len(lines)


def order_of_keys(step, reply):
    """KEYS has no order: sort its part of the reply."""
    if step[0] == "KEYS":
        return sorted(reply)
    if step[0] == "EXEC" and reply is not None:
        return [order_of_keys(inner, item) for inner, item in zip(step[1:], reply)]
    if step[:1] + step[2:3] == ("SCRIPT", b"RUN"):
        return [order_of_keys(inner, item) for inner, item in zip(step[3:], reply)]
    return reply


class Client:
    """One connection with a burst under way."""

    def __init__(self, number, conn, scripts):
        self.number, self.conn, self.scripts = number, conn, scripts
        self.operations = []
        self.burst = []
        self.invoke = 0
        self.left = 0

    def send(self, steps):
        wires = [to_wire(step, self.scripts) for step in steps]
        self.burst = list(zip(steps, [count for _, count in wires]))
        self.left = sum(count for _, count in wires)
        data = b"".join(wire for wire, _ in wires)
        self.invoke = time.monotonic_ns()
        self.conn.send(data)

    def receive(self):
        """Takes what has come; True when the burst is answered."""
        self.conn.fill()
        replies, position = [], 0
        try:
            while len(replies) < self.left:
                reply, position = parse_at(self.conn.buf, position)
                replies.append(reply)
        except Incomplete:
            return False
        response = time.monotonic_ns()
        assert position == len(self.conn.buf)
        self.conn.buf.clear()
        for step, count in self.burst:
            reply = order_of_keys(step, replies[count - 1])
            del replies[:count]
            self.operations.append(Operation(self.number, step, reply, self.invoke, response))
        return True


def record(server, dice, mix="all", clients=4, bursts=6, burst=4, keys=4):
    """A history on an empty server: one list of operations a client."""
    scripts = Lines()
    with server.raw() as conn:
        assert conn.cmd("FLUSHALL") == b"OK"
        scripts.load(conn)
    steps = Steps(dice, mix, keys)
    team = [Client(number, server.raw(timeout=30), scripts) for number in range(clients)]
    plan = [[[steps.step() for _ in range(dice.randint(1, burst))] for _ in range(bursts)]
            for _ in team]
    by_socket = {client.conn.sock: client for client in team}
    for client in team:
        client.send(plan[client.number].pop())
    busy = set(by_socket)
    while busy:
        ready, _, _ = select.select(list(busy), [], [], 30)
        assert ready, "no answer for 30 seconds"
        for sock in ready:
            client = by_socket[sock]
            if not client.receive():
                continue
            if plan[client.number]:
                client.send(plan[client.number].pop())
            else:
                busy.discard(sock)
    for client in team:
        client.conn.close()
    return [client.operations for client in team]
