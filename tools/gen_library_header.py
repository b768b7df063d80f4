#!/usr/bin/python3
"""Joins the headers of the memory layer into one public header: kvmem.h (`make lib`).

    tools/gen_library_header.py OUTPUT

Starts from mem/mem.h and mem/arena.h and puts every "folder/file.h" that they include in the place
of its first inclusion. The inner guards' tests go, their macros stay (inline.h asks for mem.h's);
inclusions of the C library that depend on nothing are gathered at the top. Nothing is written when
the file would not change, so that what depends on it is not built again.
"""
import re
import sys
from pathlib import Path

SOURCES = Path(__file__).resolve().parents[1] / "src"
ROOTS = ["mem/mem.h", "mem/arena.h"]
INCLUDE = re.compile(r'^\s*#\s*include\s+(?:"(?P<own>[^"]+)"|<(?P<system>[^>]+)>)')

OPENING = """\
/* kvmem: the memory layer of Kvik as a library. Version {version}.
 *
 * Made from src/ by tools/gen_library_header.py: do not edit. Link libkvmem.a and -pthread; with
 * -DKV_DEBUG in all files, libkvmem-debug.a instead. docs/mem-library.md is the introduction.
 *
 * Copyright of the Kvik authors; BSD 3-Clause licence.
 */
#ifndef KVMEM_H
#define KVMEM_H

#ifdef KV_MEM_SYSTEM
#error "the library has no such build"
#endif
"""


class Joiner:
    def __init__(self):
        self.seen = set()
        self.system = set()  # unconditional, hoisted
        self.body = []

    def add(self, name):
        if name in self.seen:
            return
        self.seen.add(name)
        lines = (SOURCES / name).read_text().rstrip("\n").split("\n")
        guard = "KV_" + re.sub(r"[^A-Z0-9]", "_", name.upper())
        try:
            opened = lines.index("#ifndef " + guard)
        except ValueError:
            sys.exit("%s: no guard %s" % (name, guard))
        if lines[opened + 1] != "#define " + guard or lines[-1] != "#endif":
            sys.exit("%s: the guard does not enclose the file" % name)
        del lines[-1], lines[opened]
        self.body.append("\n/* ===== %s ===== */" % name)
        depth = 0
        for line in lines:
            depth += self.nesting(line)
            match = INCLUDE.match(line)
            if match and match["own"]:
                if depth:
                    sys.exit("%s: %s within #if" % (name, line))
                self.add_inner(match["own"], name)
            elif match and not depth:
                self.system.add(match["system"])
            else:
                self.body.append(line)

    def add_inner(self, own, by):
        if own not in self.seen:
            self.add(own)
            self.body.append("\n/* ===== %s, continued ===== */" % by)

    @staticmethod
    def nesting(line):
        if re.match(r"^\s*#\s*if", line):
            return 1
        return -1 if re.match(r"^\s*#\s*endif", line) else 0

    def text(self):
        version = re.search(r'#define KV_VERSION "([^"]+)"',
                            (SOURCES / "base/version.h").read_text())
        includes = ["#include <%s>" % name for name in sorted(self.system)]
        parts = [OPENING.format(version=version.group(1) if version else "unknown"),
                 "\n".join(includes), "\n".join(self.body), "\n#endif\n"]
        # What was taken out leaves several empty lines behind.
        return re.sub(r"\n{3,}", "\n\n", "\n".join(parts))


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    joiner = Joiner()
    for name in ROOTS:
        joiner.add(name)
    output, text = Path(sys.argv[1]), joiner.text()
    if not output.exists() or output.read_text() != text:
        output.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
