#!/usr/bin/python3
"""Tries the memory layer as another program meets it: header, archives, example, installation.

    check.py BUILD_FOLDER        after `make lib lib-examples`; prints `ok ...` and `not ok ...`

Programs are compiled with -std=c17 -Wall -Wextra -pedantic -Werror against kvmem.h alone, never
against src/. Those that should abort (a wrong size, a wrong owner in the debug library) are judged
by what they say last.
"""
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FLAGS = ["-std=c17", "-Wall", "-Wextra", "-pedantic", "-Werror", "-pthread"]
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}

ALL_CALLS = """
#include "kvmem.h"
#include "kvmem.h"
int main(void)
{
    size_t usable = 0;
    struct kv_arena arena;
    kv_mem_init();
    int64_t before = kv_mem_used_total();
    void *a = kv_mem_alloc(100, KV_MEM_OTHER), *z = kv_mem_zalloc(5000, KV_MEM_VALUE);
    void *t = kv_mem_try_alloc_usable(3, KV_MEM_OTHER, &usable);
    void *h = kv_mem_alloc_aligned(100, 256, KV_MEM_OTHER);
    if (t == NULL || usable != kv_mem_block_size(3) || ((char *)z)[4999] != 0)
        return 2;
    if (kv_mem_try_alloc((size_t)-1, KV_MEM_OTHER) != NULL)
        return 3;
    a = kv_mem_realloc(a, 100, 70000, KV_MEM_OTHER);
    kv_mem_reattribute(a, 70000, KV_MEM_OTHER, KV_MEM_VALUE);
    if (kv_mem_used(KV_MEM_VALUE) < 75000)
        return 4;
    kv_mem_publish();
    kv_mem_free(a, 70000, KV_MEM_VALUE);
    kv_mem_free(z, 5000, KV_MEM_VALUE);
    kv_mem_free(t, 3, KV_MEM_OTHER);
    kv_mem_free_aligned(h, 100, 256, KV_MEM_OTHER);
    kv_arena_init(&arena, 4096, KV_MEM_ARENA);
    for (int i = 0; i < 1000; i++)
        *(int *)kv_arena_alloc(&arena, sizeof(int)) = i;
    kv_arena_release(&arena);
    kv_mem_trim();
    kv_mem_sample();
    return kv_mem_used_total() == before ? 0 : 5;
}
"""
# malloc must stay the C library's: a block of it is freed by free, and kvmem takes no notice.
OTHER_MALLOC = """
#include "kvmem.h"
#include <malloc.h>
#include <stdlib.h>
int main(void)
{
    kv_mem_init();
    int64_t before = kv_mem_used_total();
    void *volatile block = malloc(1000);
    if (block == NULL || malloc_usable_size(block) < 1000 || kv_mem_used_total() != before)
        return 2;
    free(block);
    return mallinfo2().arena > 0 ? 0 : 3;
}
"""
LIE = """
#include "kvmem.h"
int main(void)
{
    kv_mem_init();
    void *block = kv_mem_alloc(100, KV_MEM_VALUE);
    kv_mem_free(block, %s, %s);
    return 0;
}
"""


class Checker:
    def __init__(self, build):
        self.library = Path(build).resolve() / "lib"
        self.build = Path(build).resolve()
        self.failed = 0
        self.folder = tempfile.TemporaryDirectory(prefix="kvik-kvmem-")

    def report(self, good, text, detail=""):
        print("%s %s" % ("ok" if good else "not ok", text), flush=True)
        if not good:
            self.failed += 1
            print("\n".join("    " + line for line in detail.splitlines()[-20:]), flush=True)

    def program(self, name, source, *flags, debug=False, library=None):
        """Compiles; (path or None, messages)."""
        library = library or self.library
        folder = Path(self.folder.name)
        (folder / (name + ".c")).write_text(source)
        archive = library / ("libkvmem-debug.a" if debug else "libkvmem.a")
        installed = library.parent / "include"
        include = installed if installed.exists() else library
        done = subprocess.run(
            ["gcc", *FLAGS, *(["-DKV_DEBUG"] if debug else []), *flags, "-I" + str(include),
             str(folder / (name + ".c")), str(archive), "-o", str(folder / name)],
            capture_output=True, text=True)
        return (folder / name if done.returncode == 0 else None), done.stderr

    def runs(self, text, name, source, *flags, **options):
        path, messages = self.program(name, source, *flags, **options)
        if path is None:
            return self.report(False, text, messages)
        done = subprocess.run([str(path)], capture_output=True, text=True, timeout=60)
        return self.report(done.returncode == 0, text,
                           "status %s\n%s%s" % (done.returncode, done.stdout, done.stderr))

    def aborts(self, text, name, source, *words):
        """The program must end by SIGABRT and name all the words."""
        path, messages = self.program(name, source, debug=True)
        if path is None:
            return self.report(False, text, messages)
        done = subprocess.run([str(path)], capture_output=True, text=True, timeout=60)
        said = done.stdout + done.stderr
        return self.report(done.returncode == -6 and all(word in said for word in words), text,
                           "status %s\n%s" % (done.returncode, said))

    def does_not_link(self, text, name, debug_program, debug_library):
        path, messages = self.program(name, ALL_CALLS,
                                      "-DKV_DEBUG" if debug_program else "-UKV_DEBUG",
                                      debug=debug_library)
        return self.report(path is None and "undefined reference" in messages, text, messages)

    # --- checks ---

    def header(self):
        for compiler in ("gcc", "clang"):
            for define in ([], ["-DKV_DEBUG"]):
                try:
                    done = subprocess.run(
                        [compiler, *FLAGS, *define, "-O2", "-I" + str(self.library), "-x", "c",
                         "-fsyntax-only", "-"], input='#include "kvmem.h"\nint only_this;\n',
                        capture_output=True, text=True)
                except FileNotFoundError:
                    print("# no %s here" % compiler)
                    continue
                self.report(done.returncode == 0, "kvmem.h compiles alone: %s" % " ".join(
                    [compiler, *define]), done.stderr)
        text = (self.library / "kvmem.h").read_text()
        inner = re.findall(r'^\s*#\s*include\s+".*', text, re.MULTILINE)
        self.report(not inner, "kvmem.h includes no file of ours", "\n".join(inner))

    def archives(self):
        for name in ("libkvmem.a", "libkvmem-debug.a"):
            listing = subprocess.run(["nm", "-A", str(self.library / name)], capture_output=True,
                                     text=True).stdout
            defined, undefined = set(), set()
            for line in listing.splitlines():
                kind, symbol = line.split()[-2:]
                if kind == "U":
                    undefined.add(symbol)
                elif kind.isupper():
                    defined.add(symbol)
            strange = [symbol for symbol in defined if not symbol.startswith("kv_")]
            self.report(not strange, "%s defines kv_ symbols only" % name, " ".join(strange))
            missing = [s for s in undefined - defined if s.startswith(("kv_", "XXH", "je_"))
                       or s.endswith("allocx") or s == "mallctl"]
            self.report(not missing, "%s needs the C library alone" % name, " ".join(missing))

    def programs(self):
        for debug in (False, True):
            kind = "debug" if debug else "release"
            self.runs("every kind of call works (%s)" % kind, "calls", ALL_CALLS, "-O2",
                      debug=debug)
            self.runs("malloc stays the C library's (%s)" % kind, "malloc",
                      OTHER_MALLOC, "-D_GNU_SOURCE", debug=debug)
        self.aborts("a wrong size aborts, with owner and both numbers", "size",
                    LIE % ("200", "KV_MEM_VALUE"), "value", "100", "200")
        self.aborts("a wrong owner aborts, with both names", "owner",
                    LIE % ("100", "KV_MEM_TABLE"), "value", "table")

        self.does_not_link("a debug program does not link with the release library", "mixed1", True,
                           False)
        self.does_not_link("a release program does not link with the debug library", "mixed2",
                           False, True)

    def example(self):
        for name in ("orders", "orders-debug"):
            done = subprocess.run([str(self.library / "examples" / name), "20000"], timeout=120,
                                  capture_output=True, text=True)
            lines = done.stdout.splitlines()
            good = done.returncode == 0 and "40000 orders consumed, 0 bytes left" in done.stdout \
                and any("producer-0" in line for line in lines)
            self.report(good, "example %s runs" % name, done.stdout + done.stderr)

    def installed(self):
        place = Path(self.folder.name) / "place"
        done = subprocess.run(
            ["make", "--no-print-directory", "BUILD=" + str(self.build), "DESTDIR=" + str(place),
             "PREFIX=/usr", "install-lib"], cwd=ROOT, capture_output=True, text=True,
            env=ENVIRONMENT)
        self.report(done.returncode == 0, "make install-lib", done.stdout + done.stderr)
        if done.returncode == 0:
            self.runs("a program finds the installed library", "installed", ALL_CALLS, "-O2",
                      library=place / "usr" / "lib")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    checker = Checker(sys.argv[1])
    checker.header()
    checker.archives()
    checker.programs()
    checker.example()
    checker.installed()
    return 1 if checker.failed else 0


if __name__ == "__main__":
    sys.exit(main())
