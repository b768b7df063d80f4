#!/usr/bin/python3
"""Arguments, configuration files, log lines, pid file, background, signals, crash report."""
import os
import re
import resource
import signal
import socket
import subprocess
import time

import pytest

from process import ROOT, TIME_SCALE, free_port, kvik_binary, sanitizer_environment

pytestmark = pytest.mark.kvik_only


@pytest.fixture
def run(tmp_path):
    """Runs the server to its end; gives status, output and error text."""

    def run_it(*args, stdin=b"", limits=None):
        done = subprocess.run([kvik_binary(), *map(str, args)], input=stdin, cwd=tmp_path,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              timeout=20 * TIME_SCALE, preexec_fn=limits,
                              env=sanitizer_environment(tmp_path))
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    return run_it


def wait_until(condition, seconds=10):
    deadline = time.monotonic() + seconds * TIME_SCALE
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


def sanitized():
    return "asan" in kvik_binary() or "tsan" in kvik_binary()


# --- arguments ---

@pytest.mark.parametrize("option", ["-v", "--version"])
def test_version(run, option):
    status, out, err = run(option)
    assert status == 0 and err == ""
    assert re.fullmatch(r"Kvik server v=\d+\.\d+\.\d+ redis=8\.0\.0 malloc=\S+ bits=64\n", out)


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help(run, option):
    status, out, _ = run(option)
    assert status == 0
    assert out.startswith("Usage: kvik-server")


def test_a_bad_line_is_named(run, tmp_path):
    (tmp_path / "x.conf").write_text("# comment\n\nmaxclients 0\n")
    status, _, err = run("x.conf", "--port", free_port())
    assert status == 1
    assert err == ("\n*** FATAL CONFIG FILE ERROR (Kvik 0.1.0) ***\n"
                   "Reading the configuration file, at line 3 of x.conf\n"
                   ">>> 'maxclients 0'\n"
                   "argument must be between 1 and 4294967295 inclusive\n")


@pytest.mark.parametrize("args, expected", [
    (["--nosuch", "1"], "Bad directive or wrong number of arguments"),
    (["--timeout"], "wrong number of arguments"),
    (["--timeout", "abc"], "at option 1\n>>> 'timeout \"abc\"'\nargument couldn't be parsed"),
    (["-x"], "Bad directive"),
    (["--port", "70000"], "argument must be between 0 and 65535 inclusive"),
    (["--replicaof", "127.0.0.1", "6379"], "'replicaof' is not supported"),
    (["--min-replicas-to-write", "1"], "'min-replicas-to-write' is not supported"),
    (["--user", "alice", "foo"], "Error in user declaration 'alice': foo: Syntax error"),
    (["--tls-port", "1"], "'tls-port' is not supported"),
    (["--rename-command", "GET", "x"], "'rename-command' is not supported"),
    (["--loadmodule", "/x.so"], "'loadmodule' is not supported"),
    (["--cluster-enabled", "yes"], "'cluster-enabled' is not supported"),
    (["--logfile", "/nonexistent/x.log"], "Can't open the log file: No such file or directory"),
    (["--dir", "/nonexistent"], "No such file or directory"),
    (["missing.conf"], "Can't open the configuration file 'missing.conf'"),
])
def test_what_does_not_start(run, args, expected):
    if args[0] != "missing.conf":
        args = args + ["--unixsocket", "x.sock"]
        if args[0] != "--port":
            args += ["--port", "0"]
    status, _, err = run(*args)
    assert status == 1
    assert "FATAL CONFIG FILE ERROR" in err and expected in err


def test_nothing_to_listen_on(run):
    status, out, _ = run("--port", "0")
    assert status == 1
    assert "Configured to not listen anywhere, exiting." in out


def test_a_busy_port(run):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        status, out, _ = run("--port", port, "--bind", "127.0.0.1")
    assert status == 1
    assert "Failed listening on port %d (tcp), aborting." % port in out


def test_off_values_start(start_server):
    server = start_server("--appendonly", "no", "--maxmemory", "0", "--replicaof", "no", "one",
                          "--tls-port", "0", "--aclfile", "", "--cluster-enabled", "no",
                          "--notify-keyspace-events", "KEA", "--io-threads", "4",
                          "--appendfsync", "always", "--hash-max-ziplist-entries", "7",
                          "--list-max-ziplist-entries", "1")
    with server.raw() as conn:
        assert conn.cmd("CONFIG", "GET", "io-threads") == [b"io-threads", b"4"]


def test_arguments_override_the_file(start_server):
    server = start_server("--timeout", "9", conf="timeout 5\nhz 20\n")
    with server.raw() as conn:
        assert conn.cmd("CONFIG", "GET", "timeout") == [b"timeout", b"9"]
        assert conn.cmd("CONFIG", "GET", "hz") == [b"hz", b"20"]
        info = conn.cmd("INFO", "server")
        assert b"config_file:%s\r\n" % bytes(server.dir / "kvik.conf") in info


def test_includes_and_quotes(start_server, tmp_path):
    (tmp_path / "a.conf").write_text("hz 33\n")
    conf = ("include %s/*.conf\nrequirepass \"p\\x41 \\\"q\\\"\"\n"
            "client-output-buffer-limit normal 1mb 2mb 60\n" % tmp_path)
    server = start_server(conf=conf, password='pA "q"')
    with server.raw() as conn:
        assert conn.cmd("AUTH", 'pA "q"') == b"OK"
        assert conn.cmd("CONFIG", "GET", "hz") == [b"hz", b"33"]


def test_standard_input(tmp_path):
    path = tmp_path / "s.sock"
    process = subprocess.Popen([kvik_binary(), "-", "--save", "", "--hz", "30"],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=tmp_path,
                               env=sanitizer_environment(tmp_path))
    process.stdin.write(b"port 0\nunixsocket %s\nhz 20\ntimeout 5\n" % bytes(path))
    process.stdin.close()
    try:
        wait_until(path.exists)
        import redis
        client = redis.Redis(unix_socket_path=str(path))

        def answers():
            try:
                return client.ping()
            except redis.ConnectionError:  # the file is there before the socket listens
                return False

        wait_until(answers)
        assert client.config_get("hz", "timeout") == {"hz": "30", "timeout": "5"}
        client.close()
    finally:
        process.terminate()
        out = process.stdout.read()
        assert process.wait(15 * TIME_SCALE) == 0
    assert b"bye bye" in out


def test_the_example_shows_the_defaults(start_server):
    example = (ROOT / "kvik.conf").read_text()
    values = []
    for conf in (None, example):
        server = start_server("--port", "0", "--threads", "auto", "--dir", "/tmp", conf=conf,
                              debug=False)
        with server.raw() as conn:
            flat = conn.cmd("CONFIG", "GET", "*")
        values.append(dict(zip(flat[0::2], flat[1::2])))
        del values[-1][b"unixsocket"]
    assert values[0] == values[1]


# --- log ---

def test_log_lines_of_a_life(start_server):
    server = start_server("--port", free_port())
    pid = server.pid
    server.process.terminate()
    assert server.wait() == 0
    log = server.log()
    order = ["oO0OoO0OoO0Oo Kvik is starting oO0OoO0OoO0Oo", "pid=%d" % pid, "Configuration loaded",
             "port=%d" % server.port, "Server initialized", "Ready to accept connections tcp",
             "Received SIGTERM scheduling shutdown...", "User requested shutdown...",
             "Kvik is now ready to exit, bye bye..."]
    at = 0
    for text in order:
        found = log.find(text, at)
        assert found >= 0, "%s is not in its place:\n%s" % (text, log)
        at = found
    assert re.search(r"^%d:M \d\d \w{3} \d{4} \d\d:\d\d:\d\d\.\d{3} \* Server init" % pid, log,
                     re.MULTILINE)


def test_log_file_and_level(start_server):
    server = start_server("--logfile", "kvik.log", "--loglevel", "warning")
    text = (server.dir / "kvik.log").read_text()
    assert "Server initialized" not in text
    with server.raw() as conn:
        assert conn.cmd("CONFIG", "SET", "loglevel", "notice") == b"OK"
    server.process.terminate()
    assert server.wait() == 0
    assert "bye bye" in (server.dir / "kvik.log").read_text()


# --- pid file, background, limits ---

def test_pid_file_comes_and_goes(start_server):
    server = start_server("--pidfile", "kvik.pid")
    path = server.dir / "kvik.pid"
    wait_until(path.exists)
    wait_until(lambda: path.read_text().strip() == str(server.pid))
    server.process.terminate()
    assert server.wait() == 0
    assert not path.exists()


def test_background(tmp_path, run):
    status, _, err = run("--daemonize", "yes", "--port", "0", "--unixsocket", tmp_path / "d.sock",
                         "--pidfile", tmp_path / "d.pid", "--logfile", tmp_path / "d.log",
                         "--dir", tmp_path, "--save", "")
    assert status == 0 and err == ""
    wait_until((tmp_path / "d.sock").exists)
    wait_until(lambda: (tmp_path / "d.pid").exists() and (tmp_path / "d.pid").read_text().strip())
    pid = int((tmp_path / "d.pid").read_text())
    assert os.getsid(pid) == pid
    os.kill(pid, signal.SIGTERM)
    wait_until(lambda: not (tmp_path / "d.pid").exists())
    wait_until(lambda: "bye bye" in (tmp_path / "d.log").read_text())


def test_too_few_files_lower_maxclients(start_server):
    server = start_server("--maxclients", "4000000000", threads=1)
    log = server.log()
    if "You requested maxclients" not in log:
        pytest.skip("this machine has no bound on open files")
    assert "You requested maxclients of 4000000000 requiring at least 4000000032" in log
    found = re.search(r"Current maximum open files is (\d+)\. maxclients has been reduced to (\d+)",
                      log)
    assert found and int(found.group(1)) - int(found.group(2)) == 32
    with server.raw() as conn:
        assert conn.cmd("CONFIG", "GET", "maxclients")[1] == found.group(2).encode()
        reply = conn.cmd("CONFIG", "SET", "maxclients", "4000000000")
        assert reply.text.endswith(b"number of clients, try with " + found.group(2).encode())


def test_hopelessly_few_files(run):
    def limit():
        resource.setrlimit(resource.RLIMIT_NOFILE, (24, 24))
    # More than the kernel allows anybody, so that privileges do not matter.
    status, out, _ = run("--port", "0", "--unixsocket", "f.sock", "--threads", "1",
                         "--maxclients", "4000000000", limits=limit)
    assert status == 1
    assert "Your current 'ulimit -n' of 24 is not enough for the server to start" in out


def test_ready_message_for_systemd(tmp_path):
    path = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        notify.bind(str(path))
        notify.settimeout(10 * TIME_SCALE)
        env = sanitizer_environment(tmp_path)
        env["NOTIFY_SOCKET"] = str(path)
        process = subprocess.Popen([kvik_binary(), "--port", "0", "--unixsocket", "n.sock",
                                    "--supervised", "systemd", "--save", ""], cwd=tmp_path,
                                   stdout=subprocess.DEVNULL, env=env)
        try:
            assert notify.recv(1000).startswith(b"READY=1\n")
        finally:
            process.terminate()
            assert process.wait(15 * TIME_SCALE) == 0


# --- signals ---

@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("threads", [1, 4])
def test_an_orderly_end(start_server, number, threads):
    server = start_server(threads=threads)
    conns = [server.raw() for _ in range(5)]
    for i, conn in enumerate(conns):
        assert conn.cmd("SET", "key:%d" % i, "x" * 1000) == b"OK"
    server.process.send_signal(number)
    assert server.wait() == 0
    for conn in conns:
        conn.close()
    assert "Received %s scheduling shutdown..." % number.name in server.log()
    assert not os.path.exists(server.unix_path)


def test_harmless_signals_are_ignored(start_server):
    server = start_server()
    for number in (signal.SIGHUP, signal.SIGPIPE):
        server.process.send_signal(number)
    with server.raw() as conn:
        assert conn.cmd("PING") == b"PONG"


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT, signal.SIGFPE])
def test_crash_report(start_server, number):
    if sanitized():
        pytest.skip("sanitizers report by themselves")
    server = start_server("--logfile", "kvik.log")
    server.process.send_signal(number)
    assert server.wait() == -number
    log = server.log()
    for text in ["=== KVIK BUG REPORT START", "crashed by signal: %d (%s)" % (number, number.name),
                 "Sent by process: %d" % os.getpid(), "------ STACK TRACE ------", "kvik-server",
                 "------ REGISTERS ------", "RIP:", "kvik_version:", "process_id:%d" % server.pid,
                 "=== KVIK BUG REPORT END"]:
        assert text in log, log
    server.abandon()


def test_a_crash_report_can_be_switched_off(start_server):
    if sanitized():
        pytest.skip("sanitizers report by themselves")
    server = start_server("--crash-log-enabled", "no")
    server.process.send_signal(signal.SIGSEGV)
    assert server.wait() == -signal.SIGSEGV
    assert "BUG REPORT" not in server.log()
    server.abandon()
