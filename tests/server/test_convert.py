#!/usr/bin/python3
"""kvik-check --to-rdb and --to-aof: the content stays, nothing is overwritten, what cannot be read
whole is not converted."""
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

FIXTURES = Path(__file__).resolve().parents[1] / "persist" / "fixtures"
sys.path.insert(0, str(FIXTURES.parent))

import rdb_bytes as rdb  # noqa: E402
from content import content, to_json  # noqa: E402
from make_fixtures import FAR, FIXTURES as MADE, large  # noqa: E402
from process import REFERENCE, Server, kvik_binary, sanitizer_environment  # noqa: E402

pytestmark = pytest.mark.kvik_only

SET_A = b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\n1\r\n"
LOG = "appendonlydir"


@pytest.fixture
def folder():
    path = Path(tempfile.mkdtemp(prefix="kvik-convert-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


def check(folder, *args):
    """Exit status and output."""
    done = subprocess.run(["kvik-check"] + [str(arg) for arg in args], executable=kvik_binary(),
                          cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, env=sanitizer_environment(folder), timeout=120,
                          check=False)
    assert not list(folder.glob("sanitizer*"))
    return done.returncode, done.stdout.decode()


def convert(folder, *args):
    before = set(folder.iterdir())
    status, text = check(folder, *args)
    assert status == 0, text
    # The result, and nothing else.
    assert {path.name for path in set(folder.iterdir()) - before} == {args[1]}
    status, checked = check(folder, args[1])
    assert status == 0, checked
    return text


class Loaded:
    """A server that has loaded what lies in a folder."""

    def __init__(self, folder, binary=None, rdb_name=None, args=()):
        args = list(args) + ["--dir", str(folder)]
        args += ["--dbfilename", rdb_name] if rdb_name else ["--appendonly", "yes"]
        self.server = Server(*args, binary=binary or kvik_binary())

    def __enter__(self):
        self.conn = self.server.raw()
        return self.conn

    def __exit__(self, *_):
        self.conn.close()
        self.server.stop()


def flat(everything):
    """For comparison with JSON."""
    return json.loads(json.dumps(to_json(everything)))


@pytest.mark.parametrize("name", sorted(path.stem for path in FIXTURES.glob("*.rdb")))
def test_a_file_becomes_a_log_and_a_file_again(folder, name):
    shutil.copy(FIXTURES / (name + ".rdb"), folder / "dump.rdb")
    wanted = json.loads((FIXTURES / (name + ".json")).read_text())
    convert(folder, "--to-aof", LOG, "dump.rdb")
    convert(folder, "--to-rdb", "again.rdb", LOG)
    # What a DUMP of a stream looks like depends on rdbcompression.
    with Loaded(folder, REFERENCE, args=MADE[name][1]) as conn:
        assert flat(content(conn)) == wanted
        functions = conn.cmd("FUNCTION", "LIST", "WITHCODE")
        assert bool(functions) == (name == "functions")
    with Loaded(folder, REFERENCE, rdb_name="again.rdb", args=MADE[name][1]) as conn:
        assert flat(content(conn)) == wanted
        assert conn.cmd("FUNCTION", "LIST", "WITHCODE") == functions


def fill(conn):
    large(conn)
    conn.cmd("SET", "due", "v", "PXAT", FAR)
    conn.cmd("SET", "gone", "v")
    conn.cmd("DEL", "gone")
    conn.cmd("MULTI")
    conn.cmd("INCR", "counter")
    conn.cmd("APPEND", "text", "some text" * 20)
    conn.cmd("EXEC")
    conn.cmd("SELECT", 5)
    conn.cmd("SET", "other", "database")
    conn.cmd("SPOP", "nothing")
    conn.cmd("SELECT", 0)


@pytest.mark.parametrize("writer", [REFERENCE, None], ids=["of redis-server", "ours"])
@pytest.mark.parametrize("preamble", ["yes", "no"])
def test_a_log_becomes_a_file(folder, writer, preamble):
    server = Server("--dir", folder, "--appendonly", "yes", "--aof-use-rdb-preamble", preamble,
                    "--appendfsync", "always", binary=writer or kvik_binary())
    with server.raw() as conn:
        fill(conn)
        if writer is None:
            conn.cmd("HPEXPIREAT", "hash", FAR, "FIELDS", 1, "field 0")
            conn.cmd("SPEXPIREAT", "set", FAR, "MEMBERS", 1, "member 3")
        wanted = content(conn)
        dues = [conn.cmd("HPEXPIRETIME", "hash", "FIELDS", 1, "field 0"),
                conn.cmd("SPEXPIRETIME", "set", "MEMBERS", 1, "member 3")]
    server.stop()
    text = convert(folder, "--to-rdb", "dump.rdb", LOG)
    assert "dump.rdb: %d keys written" % sum(map(len, wanted.values())) in text
    with Loaded(folder, writer, rdb_name="dump.rdb") as conn:
        assert content(conn) == wanted
        if writer is None:
            assert [conn.cmd("HPEXPIRETIME", "hash", "FIELDS", 1, "field 0"),
                    conn.cmd("SPEXPIRETIME", "set", "MEMBERS", 1, "member 3")] == dues == \
                [[FAR], [FAR]]
    # Its manifest and its files can be named, too, and one file is as good as another.
    convert(folder, "--to-rdb", "same.rdb", LOG + "/appendonly.aof.manifest")
    convert(folder, "--to-aof", "new log", "same.rdb")
    shutil.rmtree(folder / LOG)
    (folder / "new log").rename(folder / LOG)
    with Loaded(folder, writer) as conn:
        assert content(conn) == wanted
        # The log is gone on with.
        conn.cmd("SET", "later", 1)
    with Loaded(folder, writer) as conn:
        assert conn.cmd("GET", "later") == b"1"


def test_what_is_due_is_not_dropped(folder):
    entries = b"\xfc" + (1000).to_bytes(8, "little") + b"\x00" + rdb.string(b"due") + \
        rdb.string(b"v")
    (folder / "old.rdb").write_bytes(b"REDIS0009\xfe\x00" + entries + b"\xff" + bytes(8))
    assert "1 keys written" in convert(folder, "--to-aof", LOG, "old.rdb")
    assert "1 keys written" in convert(folder, "--to-rdb", "new.rdb", LOG)
    (folder / "one.aof").write_bytes(SET_A + b"*3\r\n$9\r\nPEXPIREAT\r\n$1\r\na\r\n$4\r\n1000\r\n")
    assert "1 keys written" in convert(folder, "--to-rdb", "two.rdb", "one.aof")


def small_file(folder, name):
    shutil.copy(FIXTURES / "small.rdb", folder / name)


@pytest.mark.parametrize("args", [("--to-rdb", "there", "small.rdb"),
                                  ("--to-aof", "there", "small.rdb"),
                                  ("--to-rdb", "small.rdb", "small.rdb"),
                                  ("--to-aof", "folder", "small.rdb"),
                                  ("--to-rdb", "folder", "small.rdb"),
                                  ("--to-rdb", "link", "small.rdb"),
                                  ("--to-rdb", "none/x", "small.rdb"),
                                  ("--to-aof", "none/x", "small.rdb")])
def test_nothing_is_overwritten(folder, args):
    small_file(folder, "small.rdb")
    (folder / "there").write_bytes(b"mine")
    (folder / "folder").mkdir()
    (folder / "link").symlink_to("nowhere")
    names = sorted(path.name for path in folder.iterdir())
    status, text = check(folder, *args)
    assert status == 1
    assert "Nothing was written." in text
    assert sorted(path.name for path in folder.iterdir()) == names
    assert (folder / "there").read_bytes() == b"mine"
    assert (folder / "small.rdb").read_bytes() == (FIXTURES / "small.rdb").read_bytes()


def damaged(folder):
    """Names of sources that cannot be read whole, and what is said of them."""
    data = (FIXTURES / "small.rdb").read_bytes()
    (folder / "cut.rdb").write_bytes(data[:-20])
    (folder / "wrong.rdb").write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    (folder / "cut.aof").write_bytes(SET_A * 3 + SET_A[:-4])
    (folder / "multi.aof").write_bytes(SET_A + b"*1\r\n$5\r\nMULTI\r\n" + SET_A)
    (folder / "garbage.aof").write_bytes(SET_A + b"garbage")
    (folder / "unknown.aof").write_bytes(SET_A + b"*1\r\n$9\r\nNOTHINGOF\r\n")
    (folder / "empty").mkdir()
    for name, files in (("lacking", ()), ("two", ("a", "b"))):
        (folder / name).mkdir()
        for log in files or ("x",):
            (folder / name / (log + ".manifest")).write_bytes(
                b"file x.1.incr.aof seq 1 type i\n")
    return ["cut.rdb", "wrong.rdb", "cut.aof", "multi.aof", "garbage.aof", "unknown.aof", "empty",
            "lacking", "two", "nowhere"]


def test_what_is_not_whole_is_not_converted(folder):
    sources = damaged(folder)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    for source in sources:
        for form in ("--to-rdb", "--to-aof"):
            status, text = check(folder, form, "new", source)
            assert status == 1, (source, text)
            assert "Nothing was written." in text
            assert source.split(".")[0] in text
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_the_words_of_the_line(folder):
    assert check(folder, "--help")[0] == 0
    assert "--to-rdb" in check(folder, "--help")[1]
    for args in (["--to-rdb"], ["--to-rdb", "x"], ["--to-aof", "a", "b", "c"],
                 ["--fix", "--to-rdb", "a", "b"]):
        status, text = check(folder, *args)
        assert status == 2, text
        assert text.startswith("Usage: ")
    assert not list(folder.iterdir())
