#!/usr/bin/python3
"""Random scripts that make, convert and return values of every kind.

A script is one line of Lua: values as literals, nested a few deep, go through what a script can do
with them (cjson, cmsgpack, struct, bit, string, redis.call) and come back as a reply. The generator
keeps to what both servers define: no infinite numbers or NaN where an integer is made of them, no
zero bytes in status and error texts (differences.md), no table whose order would show.
"""
import json

EDGES = ["0", "1", "-1", "2", "255", "256", "-128", "65535", "2147483647", "-2147483648", "4294967295",
         "4294967296", "9007199254740991", "-9007199254740992", "9007199254740993", "1e15", "1e17",
         "123456789012345", "-4611686018427387904"]
FLOATS = ["0.1", "-0.5", "3.999", "-2.5", "1e-7", "1.5e300", "-1e-300", "100.25", "2^53+0.5", "1/3", "-0.0",
          "0.30000000000000004", "12345678.9"]
TEXTS = ["", "a", "hello", "12", "-7", "3.25", "1e3", "0x10", " 8 ", "nil", "x y", "\\0",
         "\\255\\254", "\\r\\n", "\\\\", "\\'", "\\195\\164", "{", "[1]", "a\\0b"]
FORMATS = ["%d", "%5d", "%-5d|", "%05d", "%x", "%X", "%o", "%g", "%.3f", "%e", "%10.4f", "%s", "%q",
           "%c", "%5s", "%.2s", "%i", "%u", "%+d", "%%"]
BITS = ["band", "bor", "bxor", "lshift", "rshift", "arshift", "rol", "ror"]
CODES = ["b", "B", "h", "H", "l", "L", "i1", "i2", "i4", "i8", "I1", "I2", "I4", "I8", "f", "d", "x",
         "c0", "c3", "s"]


class Scripts:
    def __init__(self, dice):
        self.dice = dice

    # --- values ---

    def text(self):
        return "'%s'" % self.dice.choice(TEXTS)

    def clean_text(self):
        return "'%s'" % self.dice.choice([text for text in TEXTS if "\\0" not in text])

    def integer(self):
        if self.dice.random() < 0.5:
            return "(%s)" % self.dice.choice(EDGES)
        return "(%d)" % self.dice.randint(-1000, 1000)

    def number(self):
        return self.integer() if self.dice.random() < 0.6 else "(%s)" % self.dice.choice(FLOATS)

    def scalar(self):
        return self.dice.choice([self.text, self.number, self.integer, lambda: "true",
                                 lambda: "false"])()

    def array(self, item, most=4):
        return "{%s}" % ",".join(item() for _ in range(self.dice.randint(0, most)))

    def value(self, depth=3):
        """What a reply can be made of."""
        kind = self.dice.random()
        if depth == 0 or kind < 0.45:
            return self.scalar()
        if kind < 0.75:
            return self.array(lambda: "nil" if self.dice.random() < 0.05 else self.value(depth - 1))
        if kind < 0.82:
            return "{ok=%s}" % self.clean_text()
        if kind < 0.86:
            return "{err=%s}" % self.clean_text()
        if kind < 0.89:
            return "{double=%s}" % self.number()
        if kind < 0.92:
            return "{map={[%s]=%s}}" % (self.scalar(), self.value(depth - 1))
        if kind < 0.95:
            return "{set={[%s]=true}}" % self.scalar()
        if kind < 0.97:
            return "{big_number='%d'}" % self.dice.randint(-10 ** 30, 10 ** 30)
        return "{verbatim_string={format='txt',string=%s}}" % self.text()

    def tree(self, depth=3):
        """What cjson and cmsgpack take: arrays, and tables of one field."""
        kind = self.dice.random()
        if depth == 0 or kind < 0.5:
            return self.dice.choice([self.scalar, lambda: "cjson.null"])() if depth < 3 else self.scalar()
        if kind < 0.8:
            return self.array(lambda: self.tree(depth - 1))
        return "{[%s]=%s}" % (self.dice.choice([self.clean_text(), "'f'", "3", "(-1)"]),
                              self.tree(depth - 1))

    def json(self, depth=3):
        dice = self.dice
        kind = dice.random()
        if depth == 0 or kind < 0.4:
            return dice.choice([None, True, False, 0, -1, 1.5, 1e20, 12345678901, "", "a",
                                "\u00e4\n\"", "x" * 20, "\u0000"])
        if kind < 0.75:
            return [self.json(depth - 1) for _ in range(dice.randint(0, 4))]
        return {dice.choice(["a", "", "1", "\u00e4"]): self.json(depth - 1)}

    def json_text(self):
        text = json.dumps(self.json(), ensure_ascii=self.dice.random() < 0.5,
                          separators=self.dice.choice([(",", ":"), (" , ", " : ")]))
        if self.dice.random() < 0.2:  # spoiled
            at = self.dice.randrange(len(text) + 1)
            text = text[:at] + self.dice.choice(["", "]", "{", ",", "1", "\"", "\\", "tru"]) + text[at + 1:]
        return "'%s'" % text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")

    # --- scripts ---

    def returned(self):
        return "return " + self.value()

    def encoded(self):
        return "return cjson.encode(%s)" % self.tree()

    def decoded(self):
        return "return cjson.decode(%s)" % self.json_text()

    def around(self):
        return "return cjson.encode(cjson.decode(%s))" % self.json_text()

    def packed(self):
        return "return cmsgpack.pack(%s)" % ",".join(
            self.tree().replace("cjson.null", "nil") for _ in range(self.dice.randint(1, 3)))

    def unpacked(self):
        return "return {cmsgpack.unpack(cmsgpack.pack(%s))}" % ",".join(
            self.tree().replace("cjson.null", "nil") for _ in range(self.dice.randint(1, 3)))

    def garbage_unpacked(self):
        data = "".join("\\%d" % self.dice.randrange(256) for _ in range(self.dice.randint(1, 8)))
        return "return {cmsgpack.unpack('%s')}" % data

    def structured(self):
        dice = self.dice
        parts, values = [dice.choice(["", "<", ">", "=", "!4", "!2<"])], []
        for _ in range(dice.randint(1, 4)):
            code = dice.choice(CODES)
            parts.append(code)
            if code != "x":
                values.append(self.text() if code[0] in "cs" else
                              str(dice.randint(0, 100)) if code not in "fd" else "-1.5")
        form = "".join(parts)
        pack = "struct.pack('%s'%s)" % (form, "".join("," + value for value in values))
        at = "" if "c0" in form else dice.choice(["", ",1", ",2", ",9", ",40"])
        return dice.choice(["return " + pack, "return {struct.unpack('%s', %s%s)}" % (form, pack, at),
                            "return struct.size('%s')" % form.replace("c0", "").replace("s", "")])

    def bits(self):
        name = self.dice.choice(BITS)
        call = "bit.%s(%s,%s)" % (name, self.integer(), self.dice.randint(0, 40))
        return self.dice.choice(["return " + call, "return bit.tohex(%s)" % call,
                                 "return {bit.tobit(%s),bit.bnot(%s),bit.bswap(%s)}" % (
                                     self.integer(), self.integer(), self.integer())])

    def formatted(self):
        dice = self.dice
        form = dice.choice(FORMATS)
        if form == "%%":
            return "return string.format('%%')"
        if form[-1] in "sq":
            value = self.text()
        elif form[-1] in "gfe":
            value = self.number()
        else:
            unsigned = form[-1] in "cxXou"
            value = "(%d)" % (dice.randint(0, 255) if unsigned else dice.randint(-9999, 9999))
        return "return string.format('%s',%s)" % (form, value)

    def turned(self):
        base = self.dice.choice([2, 8, 10, 16, 36])
        parts = ["tostring(%s)" % self.number(), "type(%s)" % self.scalar(),
                 "tostring(tonumber(%s))" % self.text(),
                 "tostring(tonumber(%s,%d))" % (self.clean_text(), base), "#%s" % self.text()]
        return "return {%s}" % ",".join(parts)

    def called(self):
        """Arguments and replies of commands."""
        dice = self.dice
        value = self.dice.choice([self.text, self.number, self.integer])
        calls = [lambda: "redis.call('ECHO',%s)" % value(),
                 lambda: "redis.call('SET','s',%s) and redis.call('GET','s')" % value(),
                 lambda: "redis.pcall('INCRBY','n',%s)" % value(),
                 lambda: "redis.pcall('LPUSH','l',%s,%s)" % (value(), value()),
                 lambda: "redis.call('LRANGE','l',0,-1)",
                 lambda: "redis.pcall('HSET','h','f',%s)" % value(),
                 lambda: "redis.call('HGETALL','h')",
                 lambda: "redis.pcall('ZADD','z',%s,'m')" % value(),
                 lambda: "redis.call('ZSCORE','z','m')",
                 lambda: "redis.call('GET','none')",
                 lambda: "redis.call('SMEMBERS','none')",
                 lambda: "redis.pcall(%s)" % self.scalar(),
                 lambda: "redis.pcall('ECHO',%s)" % dice.choice(["nil", "true", "{}", "print"]),
                 lambda: "redis.status_reply(%s)" % self.clean_text(),
                 lambda: "redis.error_reply(%s)" % self.clean_text(),
                 lambda: "redis.sha1hex(%s)" % value()]
        protocol = "redis.setresp(3); " if dice.random() < 0.4 else ""
        if dice.random() < 0.3:
            call = dice.choice(calls)()
            return protocol + "local r = %s; return {type(r), " \
                "type(r) == 'table' and (r.err or r.ok or #r) or r}" % call
        count = dice.randint(1, 3)
        return protocol + "return {%s}" % ",".join(dice.choice(calls)() for _ in range(count))

    def script(self):
        dice = self.dice
        kinds = [self.returned, self.returned, self.encoded, self.decoded, self.around, self.packed,
                 self.unpacked, self.garbage_unpacked, self.structured, self.bits, self.formatted,
                 self.turned, self.called, self.called, self.called]
        return dice.choice(kinds)()
