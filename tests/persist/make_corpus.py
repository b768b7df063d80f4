#!/usr/bin/python3
"""Makes the first corpora of the fuzz targets `rdb` and `restore`: each form once, and the fixtures.

    /usr/bin/python3 tests/persist/make_corpus.py
"""
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "server"))
sys.path.insert(0, str(HERE))

import rdb_bytes as rdb  # noqa: E402
import test_dump  # noqa: E402

CORPUS = HERE.parent / "fuzz" / "corpus"


def main():
    for target in ("rdb", "restore"):
        (CORPUS / target).mkdir(parents=True, exist_ok=True)
    body = b"\xfe\x00"
    forms = [(name, form, value) for name, (form, value, _) in test_dump.OLD_FORMS.items()]
    forms += [(name, form, value) for name, (form, _, value, _) in test_dump.NEW_FORMS.items()]
    forms += [("set due", 176, b"\x01" + rdb.string(b"m") + b"\x00" * 8),
              ("zset due", 177, b"\x01" + rdb.string(b"m") + b"\x00" * 16),
              ("module", 7, rdb.length(1 << 40) + b"\x05\x01x\x02\x05\x04dddddddd\x03ffff\x00"),
              ("stream", 19, b"\x01" + rdb.string(b"i" * 16) + rdb.string(b"lp") + b"\x01" * 8 +
               b"\x01" + rdb.string(b"g") + b"\x01\x01\x01" + b"\x01" + b"p" * 24 + b"\x01" +
               b"\x01" + rdb.string(b"c") + b"t" * 8 + b"\x01" + b"p" * 16)]
    for name, form, value in forms:
        choice = 2 if name == "hash of Valkey" else 0
        (CORPUS / "restore" / name.replace(" ", "-")).write_bytes(bytes([choice, form]) + value)
        if choice == 0 and len(value) < 2000:
            body += bytes([form]) + rdb.string(name.encode()) + value
    (CORPUS / "rdb" / "forms").write_bytes(b"\x00" + rdb.rdb_file(body, 12, crc=0))
    (CORPUS / "rdb" / "forms-large").write_bytes(b"\x03" + rdb.rdb_file(body, 12, crc=0))
    for name in ("small", "small-lzf", "lru", "lfu", "functions", "empty"):
        data = (HERE / "fixtures" / (name + ".rdb")).read_bytes()
        (CORPUS / "rdb" / name).write_bytes(b"\x02" + data[:-8] + b"\x00" * 8)


if __name__ == "__main__":
    main()
