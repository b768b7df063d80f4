#!/usr/bin/python3
"""What SIGTERM and SIGINT do: shutdown-on-sigterm, shutdown-on-sigint."""
import signal
import time

import pytest

from process import TIME_SCALE

DIRECTIVE = {signal.SIGTERM: "shutdown-on-sigterm", signal.SIGINT: "shutdown-on-sigint"}
BOTH = pytest.mark.parametrize("number", list(DIRECTIVE), ids=lambda number: number.name)


def end(server, number):
    server.process.send_signal(number)
    assert server.wait() == 0
    return (server.dir / "dump.rdb").exists()


@BOTH
@pytest.mark.parametrize("wish, points, saved", [
    ("default", "", False),
    ("default", "3600 1000", True),
    ("save", "", True),
    ("save now force", "", True),
    ("nosave", "3600 1000", False),
    ("nosave now force", "3600 1000", False),
    ("now", "3600 1000", True),
    ("force now", "", False),
])
def test_whether_a_signal_saves(start_server, number, wish, points, saved):
    server = start_server("--save", points, conf="%s %s\n" % (DIRECTIVE[number], wish))
    with server.raw() as conn:
        shown = conn.cmd("CONFIG", "GET", DIRECTIVE[number])[1].decode()
        assert sorted(shown.split()) == sorted(wish.split())
        conn.cmd("SET", "k", "v")
    assert end(server, number) == saved


@BOTH
def test_a_directive_is_for_its_own_signal(start_server, number):
    other = signal.SIGINT if number == signal.SIGTERM else signal.SIGTERM
    server = start_server("--" + DIRECTIVE[other], "save")
    with server.raw() as conn:
        conn.cmd("SET", "k", "v")
    assert not end(server, number)


@BOTH
def test_a_change_has_its_effect_at_once(start_server, number):
    for _ in range(3):
        server = start_server("--hz", "1")
        with server.raw() as conn:
            conn.cmd("SET", "k", "v")
            assert conn.cmd("CONFIG", "SET", DIRECTIVE[number], "save") == b"OK"
            assert end(server, number)


@BOTH
def test_who_cannot_save_goes_on_unless_forced(start_server, number):
    server = start_server("--save", "3600 1000")
    (server.dir / "dump.rdb").mkdir()
    with server.raw() as conn:
        conn.cmd("SET", "k", "v")
        for _ in range(2):  # a second signal, after a refusal, is a new one
            before = server.log().count("Errors trying to shut down the server")
            server.process.send_signal(number)
            deadline = time.monotonic() + 20 * TIME_SCALE
            while server.log().count("Errors trying to shut down the server") == before:
                assert time.monotonic() < deadline
                time.sleep(0.01)
            assert conn.cmd("GET", "k") == b"v"
        assert conn.cmd("CONFIG", "SET", DIRECTIVE[number], "force") == b"OK"
        server.process.send_signal(number)
        assert server.wait() == 0


def test_what_the_directives_take(raw):
    failed = b"ERR CONFIG SET failed (possibly related to argument '%s') - %s"
    for name in DIRECTIVE.values():
        assert raw.cmd("CONFIG", "GET", name)[1] == b"default"
        assert raw.cmd("CONFIG", "SET", name, "save nosave").text == failed % (
            name.encode(), b"shutdown options SAVE and NOSAVE can't be used simultaneously")
        assert raw.cmd("CONFIG", "SET", name, "soon").text == failed % (
            name.encode(), b"argument(s) must be one of the following: default, save, nosave, now, "
                           b"force")
        assert raw.cmd("CONFIG", "SET", name, "NOSAVE FORCE") == b"OK"
        assert raw.cmd("CONFIG", "GET", name)[1] == b"nosave force"
        assert raw.cmd("CONFIG", "SET", name, "default") == b"OK"
    assert raw.cmd("CONFIG", "GET", "shutdown-timeout")[1] == b"10"
    assert raw.cmd("CONFIG", "SET", "shutdown-timeout", 0) == b"OK"
    assert raw.cmd("CONFIG", "SET", "shutdown-timeout", -1).text.startswith(b"ERR CONFIG SET failed")
    assert raw.cmd("CONFIG", "SET", "shutdown-timeout", 10) == b"OK"
