#!/usr/bin/python3
"""The content of a server as plain values that can be compared and written as JSON."""


def flat_pairs(reply):
    if isinstance(reply, dict):
        return sorted(reply.items())
    return sorted(zip(reply[0::2], reply[1::2]))


def value_of(conn, key):
    """[type, value] of a key in a form that does not depend on encodings."""
    kind = conn.cmd("TYPE", key).decode()
    if kind == "string":
        return [kind, conn.cmd("GET", key)]
    if kind == "list":
        return [kind, conn.cmd("LRANGE", key, 0, -1)]
    if kind == "set":
        return [kind, sorted(conn.cmd("SMEMBERS", key))]
    if kind == "hash":
        return [kind, [list(pair) for pair in flat_pairs(conn.cmd("HGETALL", key))]]
    if kind == "zset":
        got = conn.cmd("ZRANGE", key, 0, -1, "WITHSCORES")
        return [kind, [[name, float(score)] for name, score in zip(got[0::2], got[1::2])]]
    return [kind, conn.cmd("DUMP", key)]


def databases(conn):
    found = []
    for line in conn.cmd("INFO", "keyspace").split(b"\r\n"):
        if line.startswith(b"db"):
            found.append(int(line[2:line.index(b":")]))
    return found


def content(conn):
    """{database: {key: [type, value, expiry]}} of everything that a server has."""
    everything = {}
    for db in databases(conn):
        conn.cmd("SELECT", db)
        everything[db] = {key: value_of(conn, key) + [conn.cmd("PEXPIRETIME", key)]
                          for key in conn.cmd("KEYS", "*")}
    conn.cmd("SELECT", 0)
    return everything


def to_json(everything):
    """Bytes become text of the same code points; keys of objects are text."""
    if isinstance(everything, dict):
        return {to_json(key) if isinstance(key, bytes) else str(key): to_json(value)
                for key, value in everything.items()}
    if isinstance(everything, (list, tuple)):
        return [to_json(value) for value in everything]
    if isinstance(everything, bytes):
        return everything.decode("latin-1")
    if isinstance(everything, float):
        return repr(everything)
    return everything
