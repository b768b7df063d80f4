#!/usr/bin/python3
"""Scripts as steps of a history: their texts, what the model says of them, and their lines.

A step is ("SCRIPT", how, name, payload...). `how` is what the line tells of keys: b"declared" all,
b"first" one of them, b"none". With b"-sha" behind it the script is run by its digest, which load()
has made known; with b"-new" the text is one that the server has never seen, so that it cannot know
what its last run touched. A script is one step: model.run() applies all of it to one change.

    RUN       payload: steps, run one after the other; the reply is the list of theirs
    SWAP      payload: two keys; strings or missing; their values change places
    TRANSFER  payload: two keys; all elements of the first list go to the end of the second
"""
import hashlib

import model

HOWS = [keys + form for keys in (b"declared", b"first", b"none") for form in (b"", b"-sha", b"-new")]

TEXTS = {
    b"RUN": b"""
local replies, at = {}, 1
while at <= #ARGV do
  local count = tonumber(ARGV[at])
  replies[#replies + 1] = redis.pcall(unpack(ARGV, at + 1, at + count))
  at = at + count + 1
end
return replies""",
    b"SWAP": b"""
local keys = {unpack(KEYS)}
for _, key in ipairs(ARGV) do keys[#keys + 1] = key end
local values = {}
for i, key in ipairs(keys) do
  values[i] = redis.pcall('GET', key)
  if type(values[i]) == 'table' then return values[i] end
end
for i, key in ipairs(keys) do
  local value = values[3 - i]
  if value then redis.call('SET', key, value) else redis.call('DEL', key) end
end
return values""",
    b"TRANSFER": b"""
local keys = {unpack(KEYS)}
for _, key in ipairs(ARGV) do keys[#keys + 1] = key end
for _, key in ipairs(keys) do
  local length = redis.pcall('LLEN', key)
  if type(length) == 'table' then return length end
end
local count = 0
while true do
  local item = redis.call('LPOP', keys[1])
  if not item then return count end
  redis.call('RPUSH', keys[2], item)
  count = count + 1
end""",
}


# --- the model ---


def script_run(change, *steps):
    return [model.run(change, step) for step in steps]


def script_swap(change, one, two):
    values = [model.text_at(change, one), model.text_at(change, two)]
    for key, value in ((one, values[1]), (two, values[0])):
        if value is None:
            change.drop(key)
        else:
            change.put(key, value)
    return values


def script_transfer(change, source, target):
    items, rest = model.list_at(change, source), model.list_at(change, target)
    if items:
        model.put_list(change, source, ())
        model.put_list(change, target, rest + items)
    return len(items)


BODIES = {b"RUN": script_run, b"SWAP": script_swap, b"TRANSFER": script_transfer}


def step_script(change, _how, name, *payload):
    return BODIES[name](change, *payload)


model.STEPS["SCRIPT"] = step_script


# --- lines ---


class Lines:
    """Command lines of script steps. Texts that must be new are numbered."""

    def __init__(self):
        self.number = 0

    def text(self, how, name):
        """Each way to declare keys has texts of its own: the server remembers what they touched."""
        mark = how.replace(b"-sha", b"")
        if how.endswith(b"-new"):
            self.number += 1
            mark += b" %d %d" % (id(self), self.number)
        return b"-- " + mark + TEXTS[name]

    def line(self, step):
        _, how, name, *payload = step
        if name == b"RUN":
            keys = sorted({word for inner in payload for word in inner[1:] if word in model.INDEX})
            words = [word for inner in payload for word in (b"%d" % len(inner), *inner)]
            keys = keys if how.startswith(b"declared") else keys[:how.startswith(b"first")]
        else:
            count = 2 if how.startswith(b"declared") else int(how.startswith(b"first"))
            keys, words = payload[:count], payload[count:]
        text = self.text(how, name)
        if how.endswith(b"-sha"):
            return ("EVALSHA", hashlib.sha1(text).hexdigest(), len(keys), *keys, *words)
        return ("EVAL", text, len(keys), *keys, *words)

    def load(self, conn):
        """Makes the scripts known that are run by their digests."""
        for how in HOWS:
            for name in TEXTS if how.endswith(b"-sha") else ():
                text = self.text(how, name)
                digest = hashlib.sha1(text).hexdigest().encode()
                assert conn.cmd("SCRIPT", "LOAD", text) == digest
