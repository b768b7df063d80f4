#!/usr/bin/python3
"""Large values in snapshots: what a file holds is what a value was at the moment, however it changes
while it is saved."""
import random
import time

import pytest

from process import REFERENCE, TIME_SCALE, Server
from raw import Error

pytestmark = pytest.mark.kvik_only


def info(conn, name):
    for line in conn.cmd("INFO", "persistence").splitlines():
        if line.startswith(name.encode() + b":"):
            return line.split(b":", 1)[1]
    raise AssertionError("no " + name)


def wait_saved(conn, saves):
    deadline = time.monotonic() + 30 * TIME_SCALE
    while info(conn, "rdb_bgsave_in_progress") != b"0" or int(info(conn, "rdb_saves")) < saves:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def send_all(conn, commands):
    for command in commands:
        conn.send_cmd(*command)
    return [conn.read() for _ in commands]


def save_and_change(conn, commands, saves):
    """Begins a saving and changes values before anything of them can have been saved, in one
    packet. Returns the digest of the moment."""
    replies = send_all(conn, [("MULTI",), ("DEBUG", "DIGEST"), ("BGSAVE",), ("EXEC",)] + commands)
    assert not [reply for reply in replies if isinstance(reply, Error)]
    wait_saved(conn, saves)
    return replies[3][0]


def digest_of_file(start_server, folder):
    server = start_server("--dir", str(folder))
    digest = server.raw().cmd("DEBUG", "DIGEST")
    server.stop()
    return digest


def assert_memory_returned(conn):
    assert info(conn, "snapshot_buffer_bytes") == b"0"
    stats = conn.cmd("MEMORY", "STATS")
    pairs = dict(zip(stats[::2], stats[1::2]))
    assert pairs.get(b"snapshot", 0) == 0


def test_large_strings(start_server, tmp_path):
    server = start_server("--dir", str(tmp_path))
    conn = server.raw()
    rng = random.Random(1)
    texts = [rng.randbytes(300_000), b"compressible " * 30_000, rng.randbytes(70_000)]
    changes = [("APPEND", "s%d", "more"), ("SETRANGE", "s%d", 1000, "within"), ("SET", "s%d", "x"),
               ("SETBIT", "s%d", 5, 1), ("DEL", "s%d"), ("RENAME", "s%d", "t%d"),
               ("SET", "s%d", b"y" * 300_000), ("EXPIRE", "s%d", 1000), ("GETDEL", "s%d")]
    for i in range(3 * len(changes)):
        conn.cmd("SET", "s%d" % i, texts[i % 3], *(("EX", 5000) if i % 2 else ()))
    moved = []
    for i in range(3 * len(changes)):
        change = changes[i // 3]
        moved.append([word % i if isinstance(word, str) and "%d" in word else word
                      for word in change])
    digest = save_and_change(conn, moved, 1)
    assert digest_of_file(start_server, tmp_path) == digest
    assert_memory_returned(conn)
    other = Server("--dir", str(tmp_path), binary=REFERENCE)
    try:
        for i in range(3 * len(changes)):
            assert other.raw().cmd("GET", "s%d" % i) == texts[i % 3]
    finally:
        other.stop()
