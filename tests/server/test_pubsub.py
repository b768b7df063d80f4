#!/usr/bin/python3
"""Channels: subscribing in both protocols, what a subscribed client may do, who gets what and in
which order over all workers, limits, and that nothing stays behind."""
import random
import threading
import time

import pytest

from process import TIME_SCALE
from raw import Closed, Error, Push, encode

CONTEXT = ("ERR Can't execute '%s': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are "
           "allowed in this context")


def wait_until(condition, seconds=10):
    deadline = time.monotonic() + seconds * TIME_SCALE
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.005)


@pytest.fixture(autouse=True)
def nobody_subscribed(raw):
    """The clients of the test before have been noticed to have gone."""
    wait_until(lambda: raw.cmd("CLIENT", "LIST", "TYPE", "pubsub") == b"")


def fields(conn):
    return dict(word.split("=", 1) for word in conn.cmd("CLIENT", "INFO").decode().split())


def info(conn, name):
    for line in conn.cmd("INFO", "everything").decode().splitlines():
        if line.startswith(name + ":"):
            return int(line.split(":")[1])
    raise AssertionError("INFO has no " + name)


def subscribe(conn, *names, word="SUBSCRIBE", before=0):
    conn.send_cmd(word, *names)
    for i, name in enumerate(names):
        assert conn.read() == [word.lower().encode(), name.encode(), before + i + 1]


def settle(conn):
    """Everything that was published before this call has been read on return (RESP2)."""
    mark = b"%016x" % random.getrandbits(64)
    conn.send_cmd("PING", mark)
    got = []
    while True:
        reply = conn.read()
        if reply == [b"pong", mark]:
            return got
        got.append(reply)


# --- one client ---

def test_confirmations_count_channels_and_patterns(raw):
    subscribe(raw, "a", "b")
    subscribe(raw, "p*", word="PSUBSCRIBE", before=2)
    raw.send_cmd("SUBSCRIBE", "a")
    assert raw.read() == [b"subscribe", b"a", 3]
    raw.send_cmd("SSUBSCRIBE", "s", "s")
    assert [raw.read(), raw.read()] == [[b"ssubscribe", b"s", 1]] * 2
    assert raw.cmd("UNSUBSCRIBE", "b") == [b"unsubscribe", b"b", 2]
    assert raw.cmd("UNSUBSCRIBE", "none") == [b"unsubscribe", b"none", 2]
    assert raw.cmd("SUNSUBSCRIBE") == [b"sunsubscribe", b"s", 0]
    assert raw.cmd("SUNSUBSCRIBE") == [b"sunsubscribe", None, 0]
    assert raw.cmd("UNSUBSCRIBE") == [b"unsubscribe", b"a", 1]
    assert raw.cmd("UNSUBSCRIBE") == [b"unsubscribe", None, 1]
    assert raw.cmd("PUNSUBSCRIBE") == [b"punsubscribe", b"p*", 0]
    assert raw.cmd("GET", "x") is None


def test_bytes_of_confirmations_and_messages(raw, connect):
    publisher = connect()
    raw.send_cmd("SUBSCRIBE", "a")
    raw.expect(b"*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n")
    raw.send_cmd("PSUBSCRIBE", "?")
    raw.expect(b"*3\r\n$10\r\npsubscribe\r\n$1\r\n?\r\n:2\r\n")
    raw.send_cmd("SSUBSCRIBE", "a")
    raw.expect(b"*3\r\n$10\r\nssubscribe\r\n$1\r\na\r\n:1\r\n")
    assert publisher.cmd("PUBLISH", "a", "hi\r\n") == 2
    raw.expect(b"*3\r\n$7\r\nmessage\r\n$1\r\na\r\n$4\r\nhi\r\n\r\n"
               b"*4\r\n$8\r\npmessage\r\n$1\r\n?\r\n$1\r\na\r\n$4\r\nhi\r\n\r\n")
    assert publisher.cmd("SPUBLISH", "a", "") == 1
    raw.expect(b"*3\r\n$8\r\nsmessage\r\n$1\r\na\r\n$0\r\n\r\n")
    raw.send_cmd("UNSUBSCRIBE", "z")
    raw.expect(b"*3\r\n$11\r\nunsubscribe\r\n$1\r\nz\r\n:2\r\n")


def test_resp3_pushes(raw, connect):
    publisher = connect()
    raw.hello3()
    raw.send_cmd("SUBSCRIBE", "a")
    raw.expect(b">3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n")
    publisher.cmd("PUBLISH", "a", "x")
    raw.expect(b">3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\nx\r\n")
    assert raw.cmd("PING") == b"PONG"
    assert raw.cmd("SET", "k", "v") == b"OK"
    raw.send_cmd("PUNSUBSCRIBE")
    raw.expect(b">3\r\n$12\r\npunsubscribe\r\n_\r\n:1\r\n")


def test_what_a_subscribed_client_may_send(raw):
    assert raw.cmd("PING") == b"PONG"
    for word, leave in (("SUBSCRIBE", "UNSUBSCRIBE"), ("PSUBSCRIBE", "PUNSUBSCRIBE"),
                        ("SSUBSCRIBE", "SUNSUBSCRIBE")):
        subscribe(raw, "c", word=word)
        assert raw.cmd("GET", "x") == Error(CONTEXT.replace("%s", "get").encode())
        assert raw.cmd("CLIENT", "INFO") == CONTEXT % "client|info"
        assert raw.cmd("HELLO", "3") == CONTEXT % "hello"
        assert raw.cmd("PUBLISH", "a", "b") == CONTEXT % "publish"
        assert raw.cmd("EXEC") == "EXECABORT Transaction discarded because of: " + (
            CONTEXT % "exec")[4:]
        assert raw.cmd("PING") == [b"pong", b""]
        assert raw.cmd("PING", "x") == [b"pong", b"x"]
        assert raw.cmd("PING", "x", "y") == "ERR wrong number of arguments for 'ping' command"
        assert raw.cmd("NOSUCH").code == b"ERR"
        assert raw.cmd(leave)[2] == 0
    subscribe(raw, "c")
    assert raw.cmd("RESET") == b"RESET"
    assert raw.cmd("PING") == b"PONG"
    subscribe(raw, "c")
    assert raw.cmd("QUIT") == b"OK"
    raw.expect_closed()


def test_a_pipeline_of_mixed_commands_keeps_its_order(raw):
    raw.send(encode("SET", "k", "1") + encode("SUBSCRIBE", "c") + encode("GET", "k") +
             encode("PING") + encode("UNSUBSCRIBE") + encode("GET", "k"))
    assert [raw.read() for _ in range(6)] == [
        b"OK", [b"subscribe", b"c", 1], Error((CONTEXT % "get").encode()), [b"pong", b""],
        [b"unsubscribe", b"c", 0], b"1"]


def test_wrong_forms(raw):
    for word in ("SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE", "PUBLISH", "SPUBLISH", "PUBSUB"):
        assert raw.cmd(word) == "ERR wrong number of arguments for '%s' command" % word.lower()
    assert raw.cmd("PUBSUB", "CHANNELS", "a", "b") == (
        "ERR unknown subcommand or wrong number of arguments for 'CHANNELS'. Try PUBSUB HELP.")
    assert raw.cmd("PUBSUB", "NUMPAT", "a") == (
        "ERR wrong number of arguments for 'pubsub|numpat' command")


@pytest.mark.kvik_only  # the reference writes its own messages before the reply, even within EXEC's
def test_own_messages_follow_the_reply(raw):
    raw.hello3()
    assert raw.cmd("SUBSCRIBE", "a") == [b"subscribe", b"a", 1]
    raw.send(encode("PUBLISH", "a", "1") + encode("PUBLISH", "a", "2"))
    assert [raw.read() for _ in range(4)] == [
        1, Push([b"message", b"a", b"1"]), 1, Push([b"message", b"a", b"2"])]
    for line in (("MULTI",), ("PUBLISH", "a", "3"), ("PING",), ("SUBSCRIBE", "b"),
                 ("PUBLISH", "b", "4"), ("EXEC",)):
        raw.send_cmd(*line)
    assert [raw.read() for _ in range(5)] == [b"OK"] + [b"QUEUED"] * 4
    assert raw.read() == [1, b"PONG", [b"subscribe", b"b", 2], 1]
    assert raw.read() == [b"message", b"a", b"3"]
    assert raw.read() == [b"message", b"b", b"4"]


def test_subscribing_in_a_transaction(raw):
    for line in (("MULTI",), ("SUBSCRIBE", "a", "b"), ("GET", "x"), ("SSUBSCRIBE", "a"),
                 ("PSUBSCRIBE", "a"), ("EXEC",)):
        raw.send_cmd(*line)
    assert [raw.read() for _ in range(5)] == [b"OK"] + [b"QUEUED"] * 4
    raw.expect(b"*4\r\n*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n*3\r\n$9\r\nsubscribe\r\n"
               b"$1\r\nb\r\n:2\r\n$-1\r\n"
               b"-ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client\r\n"
               b"*3\r\n$10\r\npsubscribe\r\n$1\r\na\r\n:3\r\n")
    assert raw.cmd("GET", "x") == CONTEXT % "get"


def test_client_reply_does_not_mute_messages(raw, connect):
    publisher = connect()
    raw.send_cmd("CLIENT", "REPLY", "OFF")
    raw.send_cmd("SUBSCRIBE", "a")
    raw.expect(b"*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n")
    assert publisher.cmd("PUBLISH", "a", "x") == 1
    assert raw.read() == [b"message", b"a", b"x"]
    raw.send_cmd("GET", "x")
    raw.send_cmd("UNSUBSCRIBE")
    assert raw.read() == [b"unsubscribe", b"a", 0]
    raw.send_cmd("PING")
    assert raw.cmd("CLIENT", "REPLY", "ON") == b"OK"
    raw.send_cmd("CLIENT", "REPLY", "SKIP")
    assert raw.cmd("SUBSCRIBE", "b") == [b"subscribe", b"b", 1]
    assert raw.cmd("PING") == [b"pong", b""]


# --- what others see ---

def test_pubsub_tells(raw, connect):
    for conn, names in ((connect(), ("news.a", "news.b")), (connect(), ("news.a",))):
        subscribe(conn, *names)
        subscribe(conn, "n*", word="PSUBSCRIBE", before=len(names))
        subscribe(conn, "shard", word="SSUBSCRIBE")
    assert sorted(raw.cmd("PUBSUB", "CHANNELS")) == [b"news.a", b"news.b"]
    assert raw.cmd("PUBSUB", "CHANNELS", "*b") == [b"news.b"]
    assert raw.cmd("PUBSUB", "NUMSUB", "news.a", "n*", "news.b") == [
        b"news.a", 2, b"n*", 0, b"news.b", 1]
    assert raw.cmd("PUBSUB", "NUMSUB") == []
    assert raw.cmd("PUBSUB", "NUMPAT") == 1
    assert raw.cmd("PUBSUB", "SHARDCHANNELS") == [b"shard"]
    assert raw.cmd("PUBSUB", "SHARDCHANNELS", "x*") == []
    assert raw.cmd("PUBSUB", "SHARDNUMSUB", "shard", "news.a") == [b"shard", 2, b"news.a", 0]
    for name, value in (("pubsub_channels", 2), ("pubsub_patterns", 1),
                        ("pubsubshard_channels", 1)):
        assert info(raw, name) == value
    assert raw.cmd("PUBLISH", "news.a", "x") == 4


def test_client_list_shows_subscriptions(raw, connect):
    subscriber = connect()
    subscriber.hello3()
    for word, count in (("SUBSCRIBE", 3), ("PSUBSCRIBE", 2), ("SSUBSCRIBE", 1)):
        subscriber.send_cmd(word, *("c%d" % i for i in range(count)))
        for _ in range(count):
            subscriber.read()
    shown = fields(subscriber)
    assert (shown["sub"], shown["psub"], shown["ssub"], shown["flags"]) == ("3", "2", "1", "P")
    assert len(raw.cmd("CLIENT", "LIST", "TYPE", "pubsub").splitlines()) == 1
    assert len(raw.cmd("CLIENT", "LIST", "TYPE", "normal").splitlines()) == 1
    assert raw.cmd("CLIENT", "KILL", "TYPE", "pubsub") == 1
    subscriber.expect_closed()
    wait_until(lambda: raw.cmd("PUBSUB", "NUMPAT") == 0)
    assert raw.cmd("PUBSUB", "CHANNELS") == []


def test_the_end_of_a_client_ends_its_subscriptions(raw, connect):
    conns = [connect() for _ in range(8)]
    for conn in conns:
        subscribe(conn, "c", "d")
        subscribe(conn, "*", word="PSUBSCRIBE", before=2)
    assert raw.cmd("PUBLISH", "c", "x") == 16
    for conn in conns[:4]:
        conn.close()
    conns[4].cmd("RESET")
    wait_until(lambda: raw.cmd("PUBSUB", "NUMSUB", "c") == [b"c", 3])
    assert raw.cmd("PUBLISH", "d", "x") == 6
    for conn in conns[5:]:
        conn.close()
    wait_until(lambda: raw.cmd("PUBSUB", "CHANNELS") == [])
    assert raw.cmd("PUBSUB", "NUMPAT") == 0


def test_patterns(raw, connect):
    subscriber = connect()
    patterns = ["h?llo", "h*", "h[ae]llo", "\\*", "x", ""]
    subscribe(subscriber, *patterns, word="PSUBSCRIBE")
    for channel, fitting in (("hello", 3), ("hillo", 2), ("*", 1), ("xy", 0), ("", 1)):
        assert raw.cmd("PUBLISH", channel, "m") == fitting
        got = settle(subscriber)
        assert sorted(m[1] for m in got) == sorted(
            p.encode() for p in patterns if m_fits(p, channel))
        assert all(m[0] == b"pmessage" and m[2:] == [channel.encode(), b"m"] for m in got)


def m_fits(pattern, channel):
    return channel in {"h?llo": ("hello", "hillo"), "h*": ("hello", "hillo"), "h[ae]llo": ("hello",),
                       "\\*": ("*",), "x": ("x",), "": ("",)}[pattern]


@pytest.mark.parametrize("size", [0, 1, 1000, 1023, 1024, 20000, 300000])
def test_messages_of_all_sizes(raw, connect, size):
    two, three = connect(), connect()
    three.hello3()
    subscribe(two, "c")
    three.cmd("SUBSCRIBE", "c")
    message = bytes(random.Random(size).randrange(256) for _ in range(min(size, 5000)))
    message = (message * (size // 5000 + 1))[:size]
    for _ in range(3):
        assert raw.cmd("PUBLISH", "c", message) == 2
    for _ in range(3):
        assert two.read() == [b"message", b"c", message]
        assert three.read() == Push([b"message", b"c", message])


def test_many_channels_of_one_client(raw, connect):
    conn = connect()
    names = ["channel:%d" % i for i in range(5000)]
    subscribe(conn, *names)
    assert raw.cmd("PUBLISH", names[4321], "x") == 1
    assert settle(conn) == [[b"message", b"channel:4321", b"x"]]
    assert info(raw, "pubsub_channels") == 5000
    conn.send_cmd("UNSUBSCRIBE", *names[:2500])
    for i in range(2500):
        assert conn.read()[2] == 4999 - i
    conn.send_cmd("UNSUBSCRIBE")
    assert sorted(conn.read()[1] for _ in range(2500)) == sorted(n.encode() for n in names[2500:])
    assert info(raw, "pubsub_channels") == 0


# --- order ---

def test_who_has_the_reply_finds_the_message(raw, connect):
    """The subscriber's next answer comes after every message whose PUBLISH was answered."""
    subscribers = [connect() for _ in range(6)]
    for conn in subscribers:
        subscribe(conn, "c")
    for i in range(200):
        assert raw.cmd("PUBLISH", "c", i) == 6
        assert settle(subscribers[i % 6])[-1] == [b"message", b"c", b"%d" % i]


def test_all_subscribers_see_one_order(server, connect):
    """Several publishers and subscribers on all workers: each channel has one order, in which the
    messages of each publisher keep theirs; patterns see the same."""
    rounds, publishers, channels = 150, 4, 2
    plain = [connect() for _ in range(5)]
    pattern = [connect() for _ in range(3)]
    for conn in plain:
        subscribe(conn, *("c%d" % i for i in range(channels)))
    for conn in pattern:
        subscribe(conn, "c*", word="PSUBSCRIBE")

    def publish(index):
        with server.raw() as conn:
            for start in range(0, rounds, 10):
                conn.send(b"".join(
                    encode("PUBLISH", "c%d" % (i % channels), "%d:%d" % (index, i))
                    for i in range(start, start + 10)))
                assert [conn.read() for _ in range(10)] == [len(plain) + len(pattern)] * 10

    threads = [threading.Thread(target=publish, args=(i,)) for i in range(publishers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seen = [[m[-2:] for m in settle(conn)] for conn in plain + pattern]
    for channel in (b"c%d" % i for i in range(channels)):
        orders = [[text for name, text in got if name == channel] for got in seen]
        assert len(orders[0]) == rounds * publishers // channels
        assert all(order == orders[0] for order in orders)
        for index in range(publishers):
            own = [int(text.split(b":")[1]) for text in orders[0]
                   if text.startswith(b"%d:" % index)]
            assert own == sorted(own)


def test_subscribing_is_exact(server, connect):
    """While others publish numbers, a client comes and goes: between its confirmations it gets a
    run of numbers without a gap, and afterwards nothing."""
    stop = threading.Event()

    def publish():
        with server.raw() as conn:
            number = 0
            while not stop.is_set():
                conn.send(b"".join(encode("PUBLISH", "n", number + i) for i in range(20)))
                for _ in range(20):
                    conn.read()
                number += 20

    thread = threading.Thread(target=publish)
    thread.start()
    other, conn = connect(), connect()
    subscribe(other, "n")  # so that the worker has messages of the channel anyway
    try:
        for _ in range(100):
            conn.send(encode("SUBSCRIBE", "n") + encode("PING") + encode("UNSUBSCRIBE") +
                      encode("PING"))
            assert conn.read() == [b"subscribe", b"n", 1]
            numbers = []
            while (reply := conn.read()) != [b"unsubscribe", b"n", 0]:
                if reply != [b"pong", b""]:
                    numbers.append(int(reply[2]))
            assert numbers == list(range(numbers[0], numbers[0] + len(numbers))) if numbers else True
            assert conn.read() == b"PONG"
    finally:
        stop.set()
        thread.join()
    numbers = [int(m[2]) for m in settle(other)]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))


# --- limits ---

@pytest.mark.kvik_only  # the statistic is newer than the reference
@pytest.mark.parametrize("limit", ["pubsub 200000 0 0", "pubsub 0 100000 1"])
def test_a_slow_subscriber_is_cut_off(start_server, limit):
    server = start_server("--client-output-buffer-limit", *limit.split())
    slow, fast = server.raw(), server.raw()
    subscribe(slow, "c")
    subscribe(fast, "c")
    with server.raw() as conn:
        message = b"x" * 50000
        deadline = time.monotonic() + 20 * TIME_SCALE
        while conn.cmd("PUBSUB", "NUMSUB", "c")[1] == 2:
            assert time.monotonic() < deadline, "the slow one stays"
            conn.cmd("PUBLISH", "c", message)
            assert fast.read()[2] == message
        assert info(conn, "client_output_buffer_limit_disconnections") == 1
        fast_left = conn.cmd("PUBLISH", "c", "last")
        assert fast_left == 1 and fast.read()[2] == b"last"
    slow.close()
    fast.close()


@pytest.mark.kvik_only  # the reference counts client memory in another way
def test_what_slow_subscribers_hold_is_counted(start_server):
    server = start_server()
    with server.raw() as conn:
        slow = [server.raw() for _ in range(4)]
        for one in slow:
            subscribe(one, "c")
        before = info(conn, "mem_clients_normal")
        for _ in range(100):
            conn.cmd("PUBLISH", "c", b"x" * 100000)
        lines = conn.cmd("CLIENT", "LIST", "TYPE", "pubsub").decode().splitlines()
        total = sum(int(dict(w.split("=", 1) for w in line.split())["tot-mem"]) for line in lines)
        assert total > 4 * 1000000
        assert info(conn, "mem_clients_normal") >= before + total // 2
        for one in slow:
            one.close()
        wait_until(lambda: info(conn, "pubsub_channels") == 0)
        wait_until(lambda: info(conn, "mem_clients_normal") < before + 100000)


@pytest.mark.kvik_only
def test_a_client_with_too_many_channels_is_disconnected(start_server):
    server = start_server("--maxmemory-clients", "3mb")
    with server.raw() as conn, server.raw() as greedy:
        try:
            for start in range(0, 100000, 1000):
                greedy.send_cmd("SUBSCRIBE", *("c%d" % i for i in range(start, start + 1000)))
                for _ in range(1000):
                    greedy.read()
            raise AssertionError("it was never disconnected")
        except (Closed, ConnectionError):
            pass
        wait_until(lambda: info(conn, "pubsub_channels") == 0)
        assert info(conn, "evicted_clients") == 1


@pytest.mark.kvik_only
def test_subscribers_are_never_idle(start_server):
    server = start_server("--timeout", "1")
    with server.raw() as idle, server.raw() as subscriber:
        subscribe(subscriber, "c")
        idle.read_to_end()
        conn = server.raw()
        assert conn.cmd("PUBLISH", "c", "x") == 1
        assert subscriber.read() == [b"message", b"c", b"x"]
        conn.close()


@pytest.mark.kvik_only
def test_resetting_statistics_forgets_no_subscriber(raw, connect):
    listener = connect()
    listener.cmd("SUBSCRIBE", "news")
    assert raw.cmd("CONFIG", "RESETSTAT") == b"OK"
    assert info(raw, "pubsub_clients") == 1
    listener.cmd("UNSUBSCRIBE", "news")
    assert info(raw, "pubsub_clients") == 0


@pytest.mark.kvik_only
def test_nothing_stays_behind(start_server):
    """Clients that come, subscribe to all kinds, get messages and go in all ways leave no byte."""
    server = start_server()
    with server.raw() as conn:

        def visit(count):
            conns = [server.raw() for _ in range(count)]
            for i, one in enumerate(conns):
                subscribe(one, *("c%d" % (j % 7) for j in range(i % 5, i % 5 + 3)))
                subscribe(one, "c*", "x%d" % i, word="PSUBSCRIBE", before=3)
                subscribe(one, "s%d" % (i % 3), word="SSUBSCRIBE")
            for i in range(20):
                conn.cmd("PUBLISH", "c%d" % (i % 7), b"m" * (i * i * 10))
            for i, one in enumerate(conns):
                if i % 3 == 0:
                    one.cmd("PING")
                elif i % 3 == 1:
                    one.send_cmd("RESET")
                one.close()
            wait_until(lambda: info(conn, "connected_clients") == 1)
            return {name: info(conn, name) for name in (
                "mem_clients_normal", "pubsub_channels", "pubsub_patterns", "pubsubshard_channels",
                "pubsub_clients")}

        first = visit(30)
        assert first["pubsub_channels"] == first["pubsub_patterns"] == 0
        assert first["pubsub_clients"] == 0
        assert visit(60)["mem_clients_normal"] == first["mem_clients_normal"]
