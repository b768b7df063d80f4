#!/usr/bin/python3
"""Fixtures of the server tests.

    server         the module's server (threads from KVIK_THREADS); judged at the module's end
    start_server   factory start_server("--maxclients", "3", conf=None, threads=None, ...) for tests
                   with options of their own; each is judged at the end of the test
    client         redis-py on `server`, database empty, replies as bytes
    raw            raw connection to `server`, database empty
    connect        factory for further raw connections to `server`, closed after the test
    redis_server   redis-server 7.0.15 as the reference, one a session

`--reference` runs the same tests against the reference. Tests marked `kvik_only` are skipped then:
they state what differs on purpose or what the reference does not know. Test timeouts are multiplied
by KVIK_TIME_SCALE.
"""
import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from process import REFERENCE, TIME_SCALE, Server, kvik_binary  # noqa: E402

TEST_TIMEOUT_S = 60


def pytest_addoption(parser):
    parser.addoption("--reference", action="store_true",
                     help="run against %s instead of Kvik" % REFERENCE)


def pytest_configure(config):
    config.addinivalue_line("markers", "kvik_only: not for the reference server")
    config.addinivalue_line("markers", "single: long, and nothing in it is of several threads")
    if config.getoption("--reference", default=False):
        os.environ["KVIK_SERVER"] = REFERENCE


def pytest_collection_modifyitems(items):
    reference = is_reference()
    for item in items:
        marker = item.get_closest_marker("timeout")
        seconds = marker.args[0] if marker and marker.args else TEST_TIMEOUT_S
        item.add_marker(pytest.mark.timeout(seconds * TIME_SCALE), append=False)
        if reference and item.get_closest_marker("kvik_only"):
            item.add_marker(pytest.mark.skip(reason="states something that is Kvik's own"))


def is_reference():
    return os.path.basename(os.path.realpath(kvik_binary())).startswith("redis")


@pytest.fixture(scope="session")
def reference():
    """True when the server under test is the reference itself."""
    return is_reference()


@pytest.fixture(scope="module")
def server():
    running = Server()
    yield running
    running.stop()


@pytest.fixture
def start_server():
    started = []

    def start(*args, **options):
        running = Server(*args, **options)
        started.append(running)
        return running

    yield start
    problems = []
    for running in started:
        try:
            running.stop()
        except Exception as problem:  # all servers are ended before the first problem is told
            problems.append(problem)
    if problems:
        raise problems[0]


@pytest.fixture(scope="session")
def redis_server():
    running = Server(binary=REFERENCE)
    yield running
    running.stop()


@pytest.fixture
def empty_server(server):
    """The module's server without any key, in the state that a fresh one has."""
    with server.raw() as conn:
        assert conn.cmd("FLUSHALL") == b"OK"
    yield server
    assert server.alive(), "the server ended during the test:\n%s" % server.log()[-8000:]


@pytest.fixture
def client(empty_server):
    connection = empty_server.redis()
    yield connection
    connection.close()
    connection.connection_pool.disconnect()


@pytest.fixture
def connect(empty_server):
    opened = []

    def open_one(**options):
        connection = empty_server.raw(**options)
        opened.append(connection)
        return connection

    yield open_one
    for connection in opened:
        connection.close()


@pytest.fixture
def raw(connect):
    return connect()
