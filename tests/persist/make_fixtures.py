#!/usr/bin/python3
"""Makes tests/persist/fixtures: files of redis-server with every type and encoding that it writes,
each beside a JSON file with what it holds.

    /usr/bin/python3 tests/persist/make_fixtures.py

They are committed, since the server of the next distribution will write other forms. Forms that no
installed server writes are made by hand in tests/server/test_rdb_file.py.
"""
import json
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "server"))
sys.path.insert(0, str(HERE))

from content import content, to_json  # noqa: E402
from process import REFERENCE, Server  # noqa: E402

FAR = 4102444800000  # 2100: never due while the tests live


def small(conn):
    conn.cmd("SET", "text", "a text that is long enough to be compressed " * 4)
    conn.cmd("SET", "embstr", "short")
    conn.cmd("SET", "empty", "")
    for number in (0, 12, -129, 32768, -2147483648, 2147483648, -9223372036854775808):
        conn.cmd("SET", "int:%d" % number, number)
    conn.cmd("SET", b"binary\x00\xff", bytes(range(256)))
    conn.cmd("SET", "due", "v", "PXAT", FAR)
    conn.cmd("RPUSH", "list", "a", "12", "-5000", "x" * 100, "", "123456789012")
    conn.cmd("SADD", "intset", 1, -70000, 1 << 40)
    conn.cmd("SADD", "set", "a", "12", "x" * 100)
    conn.cmd("HSET", "hash", "f", "1", "g", "text", "7", "x" * 60)
    conn.cmd("ZADD", "zset", 1, "a", "-1.5", "b", "inf", "c", "-inf", "d", "0.1", "e", "1e17", "f",
             "1", "a2")
    conn.cmd("PEXPIREAT", "hash", FAR + 1)
    conn.cmd("SELECT", 3)
    conn.cmd("SET", "other", "database")
    conn.cmd("XADD", "stream", "1-1", "field", "value", "n", "5")
    conn.cmd("XADD", "stream", "2-1", "field", "value")
    conn.cmd("XGROUP", "CREATE", "stream", "group", "0")
    conn.cmd("XREADGROUP", "GROUP", "group", "consumer", "COUNT", 1, "STREAMS", "stream", ">")


def large(conn):
    conn.cmd("RPUSH", "list", *["item %d" % i + "x" * (i % 90) for i in range(1000)])
    conn.cmd("RPUSH", "list:big", "a" * 10000, "b", bytes(i * 7 % 256 for i in range(20000)))
    conn.cmd("SADD", "set", *["member %d" % i for i in range(400)])
    conn.cmd("SADD", "set:int", *range(-300, 400))
    conn.cmd("HSET", "hash", *["field %d" % i for i in range(1200)])
    conn.cmd("HSET", "hash:long", "f", "x" * 200, "y" * 200, "1")
    conn.cmd("ZADD", "zset", *[word for i in range(300) for word in (i * 0.7 - 50, "name %d" % i)])
    conn.cmd("ZADD", "zset:long", 1, "x" * 100, 2, "y")


def functions(conn):
    conn.cmd("FUNCTION", "LOAD", "#!lua name=lib\nredis.register_function('f', function() return 1 end)")
    conn.cmd("SET", "k", "v")


FIXTURES = {
    "small": (small, ["--rdbcompression", "no"]),
    "small-lzf": (small, ["--rdbcompression", "yes"]),
    "large": (large, []),
    "large-plain": (large, ["--rdbcompression", "no", "--rdbchecksum", "no"]),
    "lru": (small, ["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"]),
    "lfu": (small, ["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lfu"]),
    "functions": (functions, []),
    "empty": (lambda conn: None, []),
}


def main():
    target = HERE / "fixtures"
    target.mkdir(exist_ok=True)
    for name, (fill, args) in FIXTURES.items():
        server = Server(*args, binary=REFERENCE)
        with server.raw() as conn:
            fill(conn)
            conn.cmd("SELECT", 0)
            assert conn.cmd("SAVE") == b"OK"
            held = json.dumps(to_json(content(conn)), indent=1, sort_keys=True)
            folder = conn.cmd("CONFIG", "GET", "dir")[1].decode()
            shutil.copy(Path(folder) / "dump.rdb", target / (name + ".rdb"))
            (target / (name + ".json")).write_text(held + "\n")
        server.stop()
        print(name, (target / (name + ".rdb")).stat().st_size)


if __name__ == "__main__":
    main()
