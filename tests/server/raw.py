#!/usr/bin/python3
"""A connection that sees bytes: RESP2 and RESP3 without a client library in between.

`Raw.read_bytes()` gives one reply exactly as it came, `Raw.read()` gives it parsed. Parsed forms:

    +text        Status (a bytes subclass)        :1      int
    -text        Error (has .text, compares)      $..     bytes, $-1 *-1 _ None
    *..          list                             %..     dict (Pairs when a key cannot be hashed)
    ~..          Set (a list subclass)            >..     Push (a list subclass)
    ,1.5         float                            #t      bool
    (123         BigNumber (an int subclass)      =..     Verbatim (bytes subclass, has .format)
    |..          kept in Raw.attributes, not returned
"""
import socket
import time


class Status(bytes):
    """A simple string."""


class Verbatim(bytes):
    """A verbatim string; .format is its three-letter type."""
    format = b"txt"


class BigNumber(int):
    """A big number of RESP3."""


class Set(list):
    """A set reply, in the order of arrival."""


class Push(list):
    """An out-of-band message of RESP3."""


class Pairs(list):
    """A map reply whose keys are not all hashable: a list of pairs."""


class Error:
    """An error reply. Compares with other errors and with bytes or str texts."""

    def __init__(self, text):
        self.text = text

    @property
    def code(self):
        return self.text.split(b" ", 1)[0]

    def __eq__(self, other):
        if isinstance(other, Error):
            return self.text == other.text
        if isinstance(other, str):
            other = other.encode()
        return self.text == other

    def __hash__(self):
        return hash(self.text)

    def __repr__(self):
        return "Error(%r)" % self.text


class Incomplete(Exception):
    """The buffer ends before the reply does."""


class Closed(Exception):
    """The server closed the connection before the reply was complete."""

    def __init__(self, rest=b""):
        super().__init__("connection closed, unparsed bytes: %r" % bytes(rest[:200]))
        self.rest = bytes(rest)


def line_at(buf, pos):
    end = buf.find(b"\r\n", pos)
    if end < 0:
        raise Incomplete
    return bytes(buf[pos:end]), end + 2


def bulk_at(buf, pos, length):
    end = pos + length
    if len(buf) < end + 2:
        raise Incomplete
    if buf[end:end + 2] != b"\r\n":
        raise ValueError("bulk reply without CRLF at its end")
    return bytes(buf[pos:end]), end + 2


def items_at(buf, pos, count, attributes):
    items = []
    for _ in range(count):
        item, pos = parse_at(buf, pos, attributes)
        items.append(item)
    return items, pos


def pairs_at(buf, pos, count, attributes):
    items, pos = items_at(buf, pos, 2 * count, attributes)
    pairs = Pairs(zip(items[0::2], items[1::2]))
    try:
        return dict(pairs), pos
    except TypeError:
        return pairs, pos


def parse_aggregate(kind, rest, buf, pos, attributes):
    count = int(rest)
    if kind == b"*" and count == -1:
        return None, pos
    if kind == b"%":
        return pairs_at(buf, pos, count, attributes)
    items, pos = items_at(buf, pos, count, attributes)
    return {b"*": list, b"~": Set, b">": Push}[kind](items), pos


def parse_bulk(kind, rest, buf, pos):
    length = int(rest)
    if length == -1:
        return None, pos
    data, pos = bulk_at(buf, pos, length)
    if kind == b"$":
        return data, pos
    text = Verbatim(data[4:])
    text.format = data[:3]
    return text, pos


def parse_at(buf, pos=0, attributes=None):
    """Parses one reply of `buf` at `pos`: (value, position after it). Raises Incomplete."""
    rest, pos = line_at(buf, pos)
    kind, rest = rest[:1], rest[1:]
    if kind == b"|":
        pairs, pos = pairs_at(buf, pos, int(rest), attributes)
        if attributes is not None:
            attributes.append(pairs)
        return parse_at(buf, pos, attributes)
    if kind in (b"*", b"~", b">", b"%"):
        return parse_aggregate(kind, rest, buf, pos, attributes)
    if kind in (b"$", b"="):
        return parse_bulk(kind, rest, buf, pos)
    simple = {
        b"+": Status,
        b"-": Error,
        b":": int,
        b",": float,
        b"(": BigNumber,
        b"#": lambda text: {b"t": True, b"f": False}[text],
        b"_": lambda text: None,
    }
    if kind not in simple:
        raise ValueError("not a reply: %r" % bytes(buf[max(0, pos - 40):pos + 40]))
    return simple[kind](rest), pos


def parse(data):
    """Parses `data`, which must be exactly one reply."""
    value, end = parse_at(data)
    if end != len(data):
        raise ValueError("bytes after the reply: %r" % data[end:end + 80])
    return value


def parse_all(data):
    """Parses `data`, a whole number of replies or commands, into a list."""
    values, pos = [], 0
    while pos < len(data):
        value, pos = parse_at(data, pos)
        values.append(value)
    return values


def to_bytes(arg):
    if isinstance(arg, bytes):
        return arg
    if isinstance(arg, (bytearray, memoryview)):
        return bytes(arg)
    if isinstance(arg, float):
        return repr(arg).encode()
    return str(arg).encode("utf-8", "surrogateescape")


def encode(*args):
    """One command as a RESP array of bulk strings."""
    parts = [b"*%d\r\n" % len(args)]
    for arg in args:
        data = to_bytes(arg)
        parts.append(b"$%d\r\n%s\r\n" % (len(data), data))
    return b"".join(parts)


class Raw:
    """A blocking connection. Every wait ends after `timeout` seconds with socket.timeout."""

    def __init__(self, port=None, path=None, host="127.0.0.1", timeout=10.0):
        if path is not None:
            self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.sock.settimeout(timeout)
            self.sock.connect(str(path))
        else:
            self.sock = socket.create_connection((host, port), timeout=timeout)
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.timeout = timeout
        self.buf = bytearray()
        self.attributes = []

    def __enter__(self):
        return self

    def __exit__(self, *_exc):
        self.close()

    def close(self):
        self.sock.close()

    def send(self, data):
        self.sock.sendall(data)

    def send_cmd(self, *args):
        self.send(encode(*args))

    def fill(self, deadline=None):
        """Receives more bytes into the buffer; raises Closed at the end of the stream."""
        if deadline is not None:
            self.sock.settimeout(max(0.001, deadline - time.monotonic()))
        try:
            data = self.sock.recv(1 << 18)
        except ConnectionResetError:
            data = b""
        finally:
            self.sock.settimeout(self.timeout)
        if not data:
            raise Closed(self.buf)
        self.buf += data

    def read_one(self):
        while True:
            try:
                attributes = []
                value, end = parse_at(self.buf, 0, attributes)
                break
            except Incomplete:
                self.fill()
        self.attributes = attributes
        data = bytes(self.buf[:end])
        del self.buf[:end]
        return value, data

    def read(self):
        """The next reply, parsed."""
        return self.read_one()[0]

    def read_bytes(self):
        """The next reply, exactly as it came."""
        return self.read_one()[1]

    def read_exact(self, count):
        """Exactly `count` bytes, whatever they are."""
        while len(self.buf) < count:
            self.fill()
        data = bytes(self.buf[:count])
        del self.buf[:count]
        return data

    def read_to_end(self):
        """All bytes until the server closes the connection."""
        try:
            while True:
                self.fill()
        except Closed:
            data = bytes(self.buf)
            self.buf.clear()
            return data

    def cmd(self, *args):
        """Sends a command and gives its reply, parsed."""
        self.send_cmd(*args)
        return self.read()

    def cmd_bytes(self, *args):
        """Sends a command and gives its reply, exactly as it came."""
        self.send_cmd(*args)
        return self.read_bytes()

    def expect(self, data):
        """Asserts that the next bytes are exactly `data`."""
        try:
            got = self.read_exact(len(data))
        except (Closed, socket.timeout) as problem:
            raise AssertionError("want %r, have %r and then %s"
                                 % (data[:300], bytes(self.buf[:300]), problem)) from problem
        assert got == data, "want %r, got %r" % (data[:300], (got + bytes(self.buf))[:300])

    def expect_closed(self):
        """Asserts that the server closes the connection and sends nothing more."""
        rest = self.read_to_end()
        assert rest == b"", "bytes before the end of the connection: %r" % rest[:300]

    def expect_silence(self, seconds=0.1):
        """Asserts that nothing arrives for a while (and that the connection stays open)."""
        if not self.buf:
            try:
                self.fill(time.monotonic() + seconds)
            except socket.timeout:
                return
            except Closed:
                raise AssertionError("the connection was closed") from None
        raise AssertionError("unexpected bytes: %r" % bytes(self.buf[:300]))

    def hello3(self):
        """Switches to RESP3; gives the server's answer."""
        return self.cmd("HELLO", "3")
