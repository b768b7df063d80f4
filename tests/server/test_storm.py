#!/usr/bin/python3
"""Connection storms: thousands that come with every state a connection can have and go in every way.

Afterwards the server holds no byte of them: what MEMORY STATS says of connections is what it was.
"""
import random
import re
import socket
import struct
import time

import pytest

from process import TIME_SCALE
from raw import Closed, encode

pytestmark = pytest.mark.kvik_only

OWNERS = [b"owner.client", b"owner.client_input", b"owner.watch", b"owner.stream", b"owner.snapshot",
          b"clients.normal", b"dataset.bytes"]
POOL = 16 * 16384  # of output, which each worker keeps for the next clients
CONNECTIONS = 100  # at a time
ROUNDS = 20


def stats(conn):
    flat = conn.cmd("MEMORY", "STATS")
    return dict(zip(flat[::2], flat[1::2]))


def held(conn):
    """What connections hold, and the data."""
    found = stats(conn)
    return {owner: found[owner] for owner in OWNERS}


def spare_output(conn):
    workers = int(re.search(rb"\nthreads:(\d+)", conn.cmd("INFO", "kvik")).group(1))
    return stats(conn)[b"owner.client_output"] <= workers * POOL


def until_alone(conn):
    """Until the others are gone, and what they watched, which goes with the next rounds."""
    deadline = time.monotonic() + 30 * TIME_SCALE
    while len(conn.cmd("CLIENT", "LIST").splitlines()) != 1 or stats(conn)[b"owner.watch"] != 0:
        assert time.monotonic() < deadline, conn.cmd("CLIENT", "LIST")
        time.sleep(0.01)


# --- what a connection may be in the middle of ---


def names(dice, count):
    return [b"name:%d" % dice.randrange(1000) for _ in range(count)]


STATES = {
    "nothing": lambda dice: b"",
    "half a command": lambda dice: b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$%d\r\nxx" % dice.choice([9, 100000]),
    "half a line": lambda dice: b"GET " + b"x" * dice.randrange(5000),
    "rubbish": lambda dice: dice.choice([b"*9999999\r\n", b"$\r\n", b"*1\r\n$-5\r\n", b"\0\1\2"]),
    "replies unread": lambda dice: encode("GET", "big") * dice.randrange(1, 30),
    "many commands": lambda dice: encode("PING") * dice.randrange(3000),
    "a transaction": lambda dice: encode("MULTI") + encode("GET", "big") * dice.randrange(50),
    "watched keys": lambda dice: encode("WATCH", *names(dice, 40)) + encode("MULTI"),
    "channels": lambda dice: encode("SUBSCRIBE", *names(dice, 200)) + encode("PSUBSCRIBE", *names(dice, 20)) +
    encode("SSUBSCRIBE", *names(dice, 20)),
    "tracking": lambda dice: encode("HELLO", "3") + encode("CLIENT", "TRACKING", "ON") +
    encode("MGET", *names(dice, 100)),
    "tracking by prefix": lambda dice: encode("HELLO", "3") +
    encode("CLIENT", "TRACKING", "ON", "BCAST", "PREFIX", "name:", "PREFIX", "other"),
    "monitoring": lambda dice: encode("MONITOR"),
    "waiting": lambda dice: encode("BLPOP", *names(dice, 20), "0") + encode("GET", "big"),
    "waiting for a while": lambda dice: encode("BZPOPMIN", *names(dice, 3), "100"),
    "a name": lambda dice: encode("CLIENT", "SETNAME", "n" * 500) + encode("CLIENT", "SETINFO", "LIB-NAME", "l"),
    "a wrong password": lambda dice: encode("AUTH", "nobody", "x" * dice.randrange(1000)),
    "silence": lambda dice: encode("CLIENT", "REPLY", "OFF") + encode("GET", "big") * 5,
    "scripts": lambda dice: encode("EVAL", "return redis.call('GET','big')", "0") * dice.randrange(8),
    "publishing": lambda dice: encode("PUBLISH", names(dice, 1)[0], "m" * 3000) * 5,
    "an end": lambda dice: encode("GET", "big") * 3 + encode("QUIT"),
    "a reset": lambda dice: encode("MULTI") + encode("PING") + encode("RESET") + encode("PING"),
}


# --- how it goes ---


def go(conn, dice):
    how = dice.randrange(5)
    try:
        if how == 0:
            conn.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        elif how == 1:
            conn.sock.shutdown(socket.SHUT_WR)
        elif how == 2:
            conn.sock.settimeout(0.02)
            conn.fill()
    except (OSError, Closed):
        pass
    conn.close()


def storm(server, dice):
    crowd = []
    for _ in range(CONNECTIONS):
        conn = server.raw(timeout=10)
        crowd.append(conn)
        try:
            for state in dice.sample(list(STATES), dice.randint(1, 3)):
                conn.sock.settimeout(0.05)
                conn.send(STATES[state](dice))
        except OSError:  # closed for rubbish, or full: it reads nothing
            pass
    dice.shuffle(crowd)
    for conn in crowd:
        go(conn, dice)


@pytest.mark.timeout(120 * TIME_SCALE)
def test_nothing_stays_of_connections(start_server):
    server = start_server("--client-output-buffer-limit", "normal 2mb 0 0")
    dice = random.Random(5)
    with server.raw(timeout=60) as control:
        control.cmd("SET", "big", b"b" * 60000)
        storm(server, dice)  # what is made once, as tables of channels
        until_alone(control)
        before = held(control)
        for _ in range(ROUNDS):
            storm(server, dice)
        until_alone(control)
        assert control.cmd("PUBSUB", "NUMPAT") == 0 and control.cmd("PUBSUB", "CHANNELS") == []
        assert held(control) == before
        assert spare_output(control)
