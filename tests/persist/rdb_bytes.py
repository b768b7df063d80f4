#!/usr/bin/python3
"""Writes RDB bytes by hand: forms that no installed server writes any more, and damaged ones.

Numbers, strings and containers return bytes; `payload` and `rdb_file` put the checksum behind them.
Written from the description of the format, independently of src/persist.
"""
import struct

POLYNOMIAL = 0x95AC9329AC4BC9B5


def _table():
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (POLYNOMIAL if byte & 1 else 0)
        table.append(byte)
    return table


TABLE = _table()


def crc64(data, crc=0):
    for byte in data:
        crc = TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc


# --- lengths and strings ---

def length(number):
    if number < 1 << 6:
        return bytes([number])
    if number < 1 << 14:
        return bytes([0x40 | number >> 8, number & 0xFF])
    if number < 1 << 32:
        return b"\x80" + struct.pack(">I", number)
    return b"\x81" + struct.pack(">Q", number)


def string(text):
    return length(len(text)) + text


def int_string(number, width):
    """A string in binary: width 1, 2 or 4."""
    form = {1: (0xC0, "<b"), 2: (0xC1, "<h"), 4: (0xC2, "<i")}[width]
    return bytes([form[0]]) + struct.pack(form[1], number)


def lzf_literals(text):
    """LZF that compresses nothing: runs of up to 32 literal bytes."""
    packed = b"".join(bytes([len(text[i:i + 32]) - 1]) + text[i:i + 32]
                      for i in range(0, len(text), 32))
    return b"\xc3" + length(len(packed)) + length(len(text)) + packed


def lzf_run(byte, count):
    """`count` (3 to 265) times the same byte: one literal and one reference to it."""
    more = count - 1 - 2
    packed = b"\x00" + bytes([byte])
    packed += bytes([more << 5, 0]) if more < 7 else bytes([7 << 5, more - 7, 0])
    return b"\xc3" + length(len(packed)) + length(count) + packed


# --- containers ---

def _is_int(text):
    if not 0 < len(text) < 21 or not text.lstrip(b"-").isdigit():
        return False
    number = int(text)
    return str(number).encode() == text and -1 << 63 <= number < 1 << 63


def _back_length(size):
    parts = [size & 0x7F]
    size >>= 7
    while size:
        parts.append(size & 0x7F | 0x80)
        size >>= 7
    parts.reverse()
    return bytes(part if i == 0 else part | 0x80 for i, part in enumerate(parts))


def listpack_item(text, wide=False):
    """`wide`: in a longer form than necessary, which readers have to take as well."""
    if _is_int(text) and not wide:
        number = int(text)
        if 0 <= number <= 127:
            body = bytes([number])
        elif -4096 <= number <= 4095:
            body = bytes([0xC0 | number >> 8 & 0x1F, number & 0xFF])
        elif -1 << 15 <= number < 1 << 15:
            body = b"\xf1" + struct.pack("<h", number)
        elif -1 << 23 <= number < 1 << 23:
            body = b"\xf2" + struct.pack("<i", number)[:3]
        elif -1 << 31 <= number < 1 << 31:
            body = b"\xf3" + struct.pack("<i", number)
        else:
            body = b"\xf4" + struct.pack("<q", number)
    elif _is_int(text):
        body = b"\xf4" + struct.pack("<q", int(text))
    elif len(text) < 64 and not wide:
        body = bytes([0x80 | len(text)]) + text
    elif len(text) < 4096 and not wide:
        body = bytes([0xE0 | len(text) >> 8, len(text) & 0xFF]) + text
    else:
        body = b"\xf0" + struct.pack("<I", len(text)) + text
    return body + _back_length(len(body))


def listpack(items, wide=False, count=None):
    body = b"".join(listpack_item(item, wide) for item in items)
    count = min(len(items), 65535) if count is None else count
    return struct.pack("<IH", 6 + len(body) + 1, count) + body + b"\xff"


def ziplist(items, count=None):
    body, last, before = b"", 10, 0
    for item in items:
        last = 10 + len(body)
        one = bytes([before]) if before < 254 else b"\xfe" + struct.pack("<I", before)
        if _is_int(item):
            number = int(item)
            if 0 <= number <= 12:
                one += bytes([0xF1 + number])
            elif -128 <= number < 128:
                one += b"\xfe" + struct.pack("<b", number)
            elif -1 << 15 <= number < 1 << 15:
                one += b"\xc0" + struct.pack("<h", number)
            elif -1 << 23 <= number < 1 << 23:
                one += b"\xf0" + struct.pack("<i", number)[:3]
            elif -1 << 31 <= number < 1 << 31:
                one += b"\xd0" + struct.pack("<i", number)
            else:
                one += b"\xe0" + struct.pack("<q", number)
        elif len(item) < 64:
            one += bytes([len(item)]) + item
        elif len(item) < 1 << 14:
            one += bytes([0x40 | len(item) >> 8, len(item) & 0xFF]) + item
        else:
            one += b"\x80" + struct.pack(">I", len(item)) + item
        body += one
        before = len(one)
    count = min(len(items), 65535) if count is None else count
    return struct.pack("<IIH", 10 + len(body) + 1, last, count) + body + b"\xff"


def zipmap(pairs, unused=0):
    def size(text):
        return bytes([len(text)]) if len(text) < 254 else b"\xfe" + struct.pack("<I", len(text))

    body = b""
    for field, value in pairs:
        body += size(field) + field + size(value) + bytes([unused]) + value + b"?" * unused
    return bytes([min(len(pairs), 254)]) + body + b"\xff"


def intset(numbers):
    numbers = sorted(numbers)
    widths = [2 if -1 << 15 <= n < 1 << 15 else 4 if -1 << 31 <= n < 1 << 31 else 8 for n in numbers]
    width = max(widths, default=2)
    body = b"".join(struct.pack({2: "<h", 4: "<i", 8: "<q"}[width], n) for n in numbers)
    return struct.pack("<II", width, len(numbers)) + body


# --- whole values ---

def score_text(score):
    if score in (float("inf"), float("-inf")):
        return b"\xfe" if score > 0 else b"\xff"
    text = repr(score).encode()
    return bytes([len(text)]) + text


def payload(form, value, version=10, crc=None):
    data = bytes([form]) + value + struct.pack("<H", version)
    return data + struct.pack("<Q", crc64(data) if crc is None else crc)


def rdb_file(body, version=10, magic=b"REDIS", crc=None):
    """A file of these bytes, which lie between the head and the mark of the end."""
    digits = 4 if magic == b"REDIS" else 3
    data = magic + b"%0*d" % (digits, version) + body + b"\xff"
    if version < 5 and magic == b"REDIS":
        return data
    return data + struct.pack("<Q", crc64(data) if crc is None else crc)
