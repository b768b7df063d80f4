#!/usr/bin/python3
"""The sequential model: what one command answers and changes when nothing else runs.

A state is a tuple (values, watches, dirty): the values of KEYS in order (bytes of a string, a tuple
of bytes for a list, or None for a missing key), for each client the frozenset of key indexes it watches, and the frozenset of clients
whose watched keys have changed. States are hashable, so that the checker can remember them.

A step is a tuple (name, arguments...); "EXEC" has the queued steps as its arguments; "SCRIPT" is in
scripts.py. apply() gives (reply, new state); replies are in the form that raw.py parses, errors as Error.

A command that blocks takes effect once, when it is served, or, when its time is over, at some moment
at which nothing was there. Which of its keys serves it depends on which became ready first, so
apply() is told the reply that was recorded and says whether it can be.
"""
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "server"))

from raw import Error  # noqa: E402

KEYS = (b"a", b"b", b"c", b"d", b"e", b"f")
INDEX = {key: index for index, key in enumerate(KEYS)}

NOT_INTEGER = Error(b"ERR value is not an integer or out of range")
OVERFLOW = Error(b"ERR increment or decrement would overflow")
NO_KEY = Error(b"ERR no such key")
WRONG_TYPE = Error(b"WRONGTYPE Operation against a key holding the wrong kind of value")
CANONICAL = re.compile(rb"^(0|-?[1-9][0-9]{0,18})$")
LIMIT = 1 << 63


def initial(clients):
    return ((None,) * len(KEYS), (frozenset(),) * clients, frozenset())


class Change:
    """Values while a step runs, and the keys that it touched in the sense of WATCH."""

    def __init__(self, values):
        self.values = list(values)
        self.touched = set()

    def get(self, key):
        return self.values[INDEX[key]]

    def put(self, key, value):
        self.values[INDEX[key]] = value
        self.touched.add(INDEX[key])

    def drop(self, key):
        if self.get(key) is None:
            return 0
        self.put(key, None)
        return 1


class WrongType(Exception):
    """A step met a value of another type: it answers WRONG_TYPE and changes nothing."""


def text_at(change, key):
    value = change.get(key)
    if isinstance(value, tuple):
        raise WrongType
    return value


def list_at(change, key):
    value = change.get(key)
    if isinstance(value, bytes):
        raise WrongType
    return value or ()


def step_set(change, key, value):
    change.put(key, value)
    return b"OK"


def step_get(change, key):
    return text_at(change, key)


def step_getset(change, key, value):
    old = text_at(change, key)
    change.put(key, value)
    return old


def step_getdel(change, key):
    old = text_at(change, key)
    change.drop(key)
    return old


def step_setnx(change, key, value):
    if change.get(key) is not None:
        return 0
    change.put(key, value)
    return 1


def step_incr(change, key):
    text = text_at(change, key)
    text = b"0" if text is None else text
    if not CANONICAL.match(text) or not -LIMIT <= int(text) < LIMIT:
        return NOT_INTEGER
    number = int(text) + 1
    if number >= LIMIT:
        return OVERFLOW
    change.put(key, b"%d" % number)
    return number


def step_append(change, key, tail):
    change.put(key, (text_at(change, key) or b"") + tail)
    return len(change.get(key))


def step_strlen(change, key):
    return len(text_at(change, key) or b"")


def step_mset(change, *pairs):
    for key, value in zip(pairs[0::2], pairs[1::2]):
        change.put(key, value)
    return b"OK"


def step_msetnx(change, *pairs):
    if any(change.get(key) is not None for key in pairs[0::2]):
        return 0
    step_mset(change, *pairs)
    return 1


def step_mget(change, *keys):
    return [None if isinstance(change.get(key), tuple) else change.get(key) for key in keys]


def step_del(change, *keys):
    return sum(change.drop(key) for key in keys)


def step_exists(change, *keys):
    return sum(change.get(key) is not None for key in keys)


def step_expire(change, key, _seconds):
    """Only with a time in the past: the key is gone."""
    return change.drop(key)


def step_rename(change, source, target):
    value = change.get(source)
    if value is None:
        return NO_KEY
    change.put(target, value)
    change.put(source, None)
    return b"OK"


def step_renamenx(change, source, target):
    if change.get(source) is None:
        return NO_KEY
    if change.get(target) is not None:
        return 0
    step_rename(change, source, target)
    return 1


def step_copy(change, source, target, *replace):
    value = change.get(source)
    if value is None or (change.get(target) is not None and not replace):
        return 0
    change.put(target, value)
    return 1


def step_flushall(change):
    for key in KEYS:
        change.drop(key)
    return b"OK"


def step_dbsize(change):
    return sum(value is not None for value in change.values)


def step_keys(change, _pattern):
    return sorted(key for key, value in zip(KEYS, change.values) if value is not None)


# --- lists ---


def put_list(change, key, items):
    change.put(key, items or None)


def step_rpush(change, key, *items):
    put_list(change, key, list_at(change, key) + items)
    return len(change.get(key))


def step_lpush(change, key, *items):
    put_list(change, key, items[::-1] + list_at(change, key))
    return len(change.get(key))


def step_lpop(change, key):
    items = list_at(change, key)
    if not items:
        return None
    put_list(change, key, items[1:])
    return items[0]


def step_rpop(change, key):
    items = list_at(change, key)
    if not items:
        return None
    put_list(change, key, items[:-1])
    return items[-1]


def step_llen(change, key):
    return len(list_at(change, key))


def step_lrange(change, key, _first, _last):
    return list(list_at(change, key))


def step_lmove(change, source, target, from_end, to_end):
    items = list_at(change, source)
    if not items:
        return None
    list_at(change, target)
    item = items[0] if from_end == b"LEFT" else items[-1]
    put_list(change, source, items[1:] if from_end == b"LEFT" else items[:-1])
    rest = list_at(change, target)
    put_list(change, target, (item,) + rest if to_end == b"LEFT" else rest + (item,))
    return item


def pop_from(change, keys, pop, recorded):
    """BLPOP and BRPOP: what was recorded if it can be, else what the first key gives."""
    if isinstance(recorded, list) and list_at(change, recorded[0]):
        return [recorded[0], pop(change, recorded[0])]
    for key in keys:
        if list_at(change, key):
            return [key, pop(change, key)]
    return None


def step_blpop(change, *words, recorded=None):
    return pop_from(change, words[:-1], step_lpop, recorded)


def step_brpop(change, *words, recorded=None):
    return pop_from(change, words[:-1], step_rpop, recorded)


def step_blmove(change, source, target, from_end, to_end, _timeout):
    return step_lmove(change, source, target, from_end, to_end)


BLOCKING = {"BLPOP", "BRPOP"}
STEPS = {
    "RPUSH": step_rpush, "LPUSH": step_lpush, "LPOP": step_lpop, "RPOP": step_rpop,
    "LLEN": step_llen, "LRANGE": step_lrange, "LMOVE": step_lmove, "BLPOP": step_blpop,
    "BRPOP": step_brpop, "BLMOVE": step_blmove,
    "SET": step_set, "GET": step_get, "GETSET": step_getset, "GETDEL": step_getdel,
    "SETNX": step_setnx, "INCR": step_incr, "APPEND": step_append, "STRLEN": step_strlen,
    "MSET": step_mset, "MSETNX": step_msetnx, "MGET": step_mget, "DEL": step_del,
    "UNLINK": step_del, "EXISTS": step_exists, "EXPIRE": step_expire, "RENAME": step_rename,
    "RENAMENX": step_renamenx, "COPY": step_copy, "FLUSHALL": step_flushall,
    "DBSIZE": step_dbsize, "KEYS": step_keys,
}


def mark_dirty(state, change):
    """The state after a change: clients that watch what was touched become dirty."""
    values, watches, dirty = state
    if change.touched:
        hit = {client for client, keys in enumerate(watches) if keys & change.touched}
        dirty = dirty | hit
    return (tuple(change.values), watches, dirty)


def forget(state, client):
    """The client watches nothing any more."""
    values, watches, dirty = state
    watches = watches[:client] + (frozenset(),) + watches[client + 1:]
    return (values, watches, dirty - {client})


def run(change, step, recorded=None):
    """The reply of a step other than those of transactions."""
    more = {"recorded": recorded} if step[0] in BLOCKING else {}
    try:
        return STEPS[step[0]](change, *step[1:], **more)
    except WrongType:
        return WRONG_TYPE


def apply_exec(state, client, steps):
    if client in state[2]:
        return None, forget(state, client)
    state = forget(state, client)
    change = Change(state[0])
    reply = [run(change, step) for step in steps]
    return reply, mark_dirty(state, change)


def apply(state, client, step, recorded=None):
    name = step[0]
    if name == "EXEC":
        return apply_exec(state, client, step[1:])
    if name == "WATCH":
        values, watches, dirty = state
        keys = watches[client] | {INDEX[key] for key in step[1:]}
        return b"OK", (values, watches[:client] + (keys,) + watches[client + 1:], dirty)
    if name == "UNWATCH":
        return b"OK", forget(state, client)
    change = Change(state[0])
    reply = run(change, step, recorded)
    return reply, mark_dirty(state, change)
