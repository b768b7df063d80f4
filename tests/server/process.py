#!/usr/bin/python3
"""Starts and judges server processes for tests: Kvik by default, redis-server as reference.

A server gets a folder of its own, a free port on 127.0.0.1 and a unix socket. Its standard output
and error go to files in that folder, sanitizer reports likewise. stop() ends it with SIGTERM and
raises ServerProblem when the exit status is not 0 or when log or sanitizer reports show a fault: a
test must not pass while the server complains.

Environment: KVIK_SERVER (binary), KVIK_THREADS (default 1), KVIK_TIME_SCALE (default 1; multiplies
waits, for slow variants), KVIK_ARGS (further arguments of every Kvik server), KVIK_KEEP=1 (folders
stay).
"""
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from raw import Closed, Error, Raw

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = "/usr/bin/redis-server"
TIME_SCALE = float(os.environ.get("KVIK_TIME_SCALE", "1"))

FAULTS = re.compile(
    r"BUG REPORT|crashed by signal|crash report|[Aa]ssertion.*failed|=== .*BUG|"
    r"ERROR: (Address|Leak|Memory)Sanitizer|WARNING: (Thread|Memory)Sanitizer|"
    r"SUMMARY: \w*Sanitizer|runtime error:|\bpanic\b", re.IGNORECASE)


class ServerProblem(Exception):
    """A server did not start, did not end well, or reported a fault."""


def kvik_binary():
    """The server under test."""
    path = os.environ.get("KVIK_SERVER", str(ROOT / "build" / "release" / "kvik-server"))
    return os.path.abspath(path)  # servers run in folders of their own


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def sanitizer_environment(folder):
    """The environment with every sanitizer told to write its reports into `folder`."""
    env = dict(os.environ)
    defaults = {
        "ASAN_OPTIONS": "abort_on_error=0:exitcode=99",
        "TSAN_OPTIONS": "halt_on_error=0:exitcode=66:second_deadlock_stack=1",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "LSAN_OPTIONS": "",
    }
    for name, options in defaults.items():
        parts = [options, env.get(name, ""), "log_path=%s/sanitizer" % folder]
        env[name] = ":".join(part for part in parts if part)
    return env


class Server:
    """One running server process."""

    def __init__(self, *args, binary=None, conf=None, threads=None, debug=True, wait=True,
                 password=None, bind="127.0.0.1"):
        """`args` are command line arguments, as "--name", "value". `conf` is the text of a
        configuration file. `password` is what the start-up check authenticates with."""
        self.binary = binary or kvik_binary()
        self.is_redis = os.path.basename(os.path.realpath(self.binary)).startswith("redis")
        self.args = [str(arg) for arg in args]
        self.conf = conf
        self.threads = threads or int(os.environ.get("KVIK_THREADS", "1"))
        self.debug = debug
        self.password = password
        self.bind = bind
        self.dir = Path(tempfile.mkdtemp(prefix="kvik-test-"))
        self.unix_path = str(self.dir / "kvik.sock")
        self.process = None
        self.port = None
        self.judged = False
        for attempt in range(4):
            self.port = free_port()
            self.launch()
            if not wait:
                return
            try:
                self.wait_ready()
                return
            except ServerProblem:
                taken = re.search(r"already in use|listen|bind", self.log(), re.IGNORECASE)
                if attempt == 3 or "--port" in self.args or not taken:
                    self.abandon()
                    raise

    def command_line(self):
        line = [self.binary]
        if self.conf is not None:
            path = self.dir / "kvik.conf"
            path.write_text(self.conf)
            line.append(str(path))
        defaults = {"--port": str(self.port), "--bind": self.bind, "--save": "",
                    "--unixsocket": self.unix_path, "--dir": str(self.dir)}
        if self.debug:
            defaults["--enable-debug-command"] = "yes"
        if not self.is_redis:
            defaults["--threads"] = str(self.threads)
            given = os.environ.get("KVIK_ARGS", "").split()
            defaults.update(zip(given[::2], given[1::2]))
        if "--port" in self.args:
            self.port = int(self.args[self.args.index("--port") + 1])
        for name, value in defaults.items():
            if name not in self.args and value is not None:
                line += [name] + (value.split() if name == "--bind" else [value])
        return line + self.args

    def launch(self):
        with open(self.dir / "stdout", "ab") as out, open(self.dir / "stderr", "ab") as err:
            self.process = subprocess.Popen(self.command_line(), stdout=out, stderr=err,
                                            stdin=subprocess.DEVNULL, cwd=self.dir,
                                            env=sanitizer_environment(self.dir))

    def wait_ready(self):
        deadline = time.monotonic() + 15 * TIME_SCALE
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise ServerProblem("server ended at start with status %s\n%s"
                                    % (self.process.returncode, self.log()))
            if self.answers():
                return
            time.sleep(0.005)
        raise ServerProblem("server does not answer\n%s" % self.log())

    def answers(self):
        try:
            with self.raw(timeout=5 * TIME_SCALE) as raw:
                if self.password is not None:
                    raw.cmd("AUTH", self.password)
                reply = raw.cmd("PING")
                return reply == b"PONG" or (isinstance(reply, Error) and reply.code != b"LOADING")
        except (OSError, Closed):
            return False

    @property
    def pid(self):
        return self.process.pid

    def raw(self, timeout=10.0, unix=False):
        """A new raw connection."""
        if unix or self.port == 0:
            return Raw(path=self.unix_path, timeout=timeout * TIME_SCALE)
        return Raw(port=self.port, timeout=timeout * TIME_SCALE)

    def redis(self, **options):
        """A new redis-py client (replies are bytes)."""
        import redis
        options.setdefault("socket_timeout", 30 * TIME_SCALE)
        return redis.Redis(port=self.port, **options)

    def alive(self):
        return self.process.poll() is None

    def log(self):
        """Everything the server wrote, sanitizer reports included."""
        texts = []
        for path in sorted(self.dir.iterdir()):
            if path.name in ("stdout", "stderr") or path.name.startswith("sanitizer") \
                    or path.suffix == ".log":
                texts.append(path.read_text(errors="replace"))
        return "".join(texts)

    def faults(self):
        """Lines of the log that show a fault of the server."""
        return [line for line in self.log().splitlines() if FAULTS.search(line)]

    def wait(self, seconds=15):
        """Waits for the process to end by itself; gives its exit status."""
        try:
            return self.process.wait(seconds * TIME_SCALE)
        except subprocess.TimeoutExpired:
            raise ServerProblem("server does not end\n%s" % self.log()[-4000:]) from None

    def abandon(self):
        """Ends the process without judging it, and removes its folder."""
        self.judged = True
        if self.alive():
            self.process.kill()
        self.process.wait()
        if os.environ.get("KVIK_KEEP") != "1":
            shutil.rmtree(self.dir, ignore_errors=True)

    def stop(self, status=0, faults_allowed=False):
        """Ends the server with SIGTERM and judges it."""
        if self.judged:
            return
        try:
            if self.alive():
                self.process.send_signal(signal.SIGTERM)
            got = self.wait()
            if status is not None and got != status:
                raise ServerProblem("exit status %s, want %s\n%s"
                                    % (got, status, self.log()[-8000:]))
            if not faults_allowed and self.faults():
                raise ServerProblem("faults reported:\n%s" % self.log()[-8000:])
        finally:
            self.abandon()
