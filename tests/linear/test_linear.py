#!/usr/bin/python3
"""Histories recorded from many connections are linearizable, and the checker can tell when not.

SEED=n sets the first seed; KVIK_LINEAR_HISTORIES=n the number of histories per mix (default 40).
"""
import os
import random
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE.parent / "server"))

import model  # noqa: E402
from checker import Operation, Undecided, check, parts  # noqa: E402
from process import TIME_SCALE, Server  # noqa: E402
from record import Steps, record  # noqa: E402

SEED = int(os.environ.get("SEED", "1"))
HISTORIES = int(os.environ.get("KVIK_LINEAR_HISTORIES", "40"))


@pytest.fixture(scope="module", params=[1, 4])
def server(request):
    running = Server(threads=request.param)
    yield running
    running.stop()


@pytest.mark.timeout(240 * TIME_SCALE)
@pytest.mark.parametrize("clients, burst", [(3, 1), (4, 4), (6, 2)])
@pytest.mark.parametrize("mix", list(Steps.MIXES))
def test_histories_are_linearizable(server, mix, clients, burst):
    undecided = 0
    for seed in range(SEED, SEED + HISTORIES):
        dice = random.Random("%s %d" % (mix, seed))
        history = record(server, dice, mix, clients=clients, burst=burst, bursts=24 // burst // 2,
                         keys=dice.randint(2, 5))
        try:
            result = check(history)
        except Undecided:
            undecided += 1
            continue
        assert result, "SEED=%d mix %s: %s" % (seed, mix, result)
    assert undecided <= HISTORIES // 10


# --- the checker itself ---


def build(*clients):
    """A history from (step, reply, invoke, response) rows, one list a client."""
    return [[Operation(number, *row) for row in rows] for number, rows in enumerate(clients)]


SET_X = (("SET", b"a", b"1"), b"OK", 0, 10)


@pytest.mark.parametrize("history, good", [
    # a read during a write may see either, and then not go back
    (build([SET_X], [(("GET", b"a"), None, 1, 2), (("GET", b"a"), b"1", 3, 4)]), True),
    (build([SET_X], [(("GET", b"a"), b"1", 1, 2), (("GET", b"a"), None, 3, 4)]), False),
    # a read after the write must see it
    (build([SET_X], [(("GET", b"a"), None, 11, 12)]), False),
    # a lost update
    (build([(("INCR", b"a"), 1, 0, 5)], [(("INCR", b"a"), 1, 0, 5)]), False),
    (build([(("INCR", b"a"), 1, 0, 5)], [(("INCR", b"a"), 2, 0, 5)]), True),
    # a torn MSET
    (build([(("MSET", b"a", b"1", b"b", b"1"), b"OK", 0, 9)],
           [(("MGET", b"a", b"b"), [b"1", None], 1, 2)]), False),
    # two reads in one transaction that see half of another
    (build([(("EXEC", ("SET", b"a", b"1"), ("SET", b"b", b"1")), [b"OK", b"OK"], 0, 9)],
           [(("EXEC", ("GET", b"b"), ("GET", b"a")), [b"1", None], 0, 9)]), False),
    # pipelined commands of one client keep their order although their times are the same
    (build([(("SET", b"a", b"1"), b"OK", 0, 9), (("GET", b"a"), b"1", 0, 9)]), True),
    (build([(("GET", b"a"), b"1", 0, 9), (("SET", b"a", b"1"), b"OK", 0, 9)]), False),
    # a watched key changed in between: EXEC must fail, and only then
    (build([(("WATCH", b"a"), b"OK", 0, 1), (("EXEC", ("SET", b"b", b"1")), [b"OK"], 6, 7)],
           [(("SET", b"a", b"1"), b"OK", 2, 5)]), False),
    (build([(("WATCH", b"a"), b"OK", 0, 1), (("EXEC", ("SET", b"b", b"1")), None, 6, 7)],
           [(("SET", b"a", b"1"), b"OK", 2, 5)]), True),
    (build([(("WATCH", b"a"), b"OK", 0, 1), (("EXEC", ("SET", b"b", b"1")), None, 6, 7)]), False),
    (build([(("WATCH", b"a"), b"OK", 0, 1), (("EXEC", ("GET", b"a")), [None], 6, 7)],
           [(("DEL", b"a"), 0, 2, 5)]), True),
    # a rename seen half-way: both names, or none
    (build([(("SET", b"a", b"1"), b"OK", 0, 1), (("RENAME", b"a", b"b"), b"OK", 2, 9)],
           [(("EXISTS", b"a", b"b"), 2, 3, 4)]), False),
    (build([(("SET", b"a", b"1"), b"OK", 0, 1), (("RENAME", b"a", b"b"), b"OK", 2, 9)],
           [(("EXISTS", b"a", b"b"), 0, 3, 4)]), False),
    # the count of keys belongs to some moment
    (build([(("MSET", b"a", b"1", b"b", b"2"), b"OK", 0, 9)], [(("DBSIZE",), 1, 1, 2)]), False),
    (build([(("MSET", b"a", b"1", b"b", b"2"), b"OK", 0, 9)], [(("KEYS", b"*"), [], 1, 2)],
           [(("DBSIZE",), 2, 1, 2)]), True),
    # a blocking pop takes what was pushed while it waited, and nobody else does
    (build([(("BLPOP", b"a", b"0"), [b"a", b"1"], 0, 9)], [(("RPUSH", b"a", b"1"), 1, 3, 4)]), True),
    (build([(("BLPOP", b"a", b"0"), [b"a", b"1"], 0, 9)],
           [(("RPUSH", b"a", b"1"), 1, 3, 4), (("LPOP", b"a"), b"1", 5, 6)]), False),
    # it cannot take what came after it had ended, nor miss what was there all the time
    (build([(("BLPOP", b"a", b"0"), [b"a", b"1"], 0, 2)], [(("RPUSH", b"a", b"1"), 1, 3, 4)]), False),
    (build([(("RPUSH", b"a", b"1"), 1, 0, 1)], [(("BLPOP", b"a", b"0"), None, 2, 9)]), False),
    (build([(("RPUSH", b"a", b"1"), 1, 3, 4)], [(("BLPOP", b"a", b"0"), None, 2, 9)]), True),
    # a move is one step
    (build([(("RPUSH", b"a", b"1"), 1, 0, 1), (("BLMOVE", b"a", b"b", b"LEFT", b"LEFT", b"0"), b"1", 2, 9)],
           [(("EXEC", ("LLEN", b"a"), ("LLEN", b"b")), [0, 0], 3, 4)]), False),
    # an order across keys that nobody can explain
    (build([(("SET", b"a", b"1"), b"OK", 0, 9), (("GET", b"b"), None, 10, 11)],
           [(("SET", b"b", b"1"), b"OK", 0, 9), (("GET", b"a"), None, 10, 11)]), False),
    # a script is one step: nobody sees half of it, whether it declares its keys or not
    (build([(("SCRIPT", b"declared", b"RUN", ("SET", b"a", b"1"), ("SET", b"b", b"1")),
             [b"OK", b"OK"], 0, 9)],
           [(("MGET", b"a", b"b"), [b"1", None], 1, 2)]), False),
    (build([(("SCRIPT", b"none", b"RUN", ("SET", b"a", b"1"), ("SET", b"b", b"1")),
             [b"OK", b"OK"], 0, 9)],
           [(("MGET", b"a", b"b"), [b"1", b"1"], 1, 2)]), True),
    (build([(("SET", b"a", b"1"), b"OK", 0, 1), (("SCRIPT", b"first", b"SWAP", b"a", b"b"),
                                                [b"1", None], 2, 9)],
           [(("EXISTS", b"a", b"b"), 0, 3, 4)]), False),
    # who waits is not served inside of a script
    (build([(("BLPOP", b"a", b"0"), [b"a", b"1"], 0, 9)],
           [(("SCRIPT", b"none", b"RUN", ("RPUSH", b"a", b"1"), ("LLEN", b"a")), [1, 0], 3, 4)]),
     False),
    (build([(("BLPOP", b"a", b"0"), [b"a", b"1"], 0, 9)],
           [(("SCRIPT", b"none", b"RUN", ("RPUSH", b"a", b"1"), ("LLEN", b"a")), [1, 1], 3, 4)]),
     True),
    # a script that changes what is watched makes EXEC fail
    (build([(("WATCH", b"a"), b"OK", 0, 1), (("EXEC", ("SET", b"b", b"1")), [b"OK"], 6, 7)],
           [(("SCRIPT", b"none", b"RUN", ("SET", b"a", b"1")), [b"OK"], 2, 5)]), False),
    # a command without reply may have happened or not
    (build([(("SET", b"a", b"1"), None, 0, None)], [(("GET", b"a"), b"1", 5, 6)]), True),
    (build([(("SET", b"a", b"1"), None, 0, None)], [(("GET", b"a"), None, 5, 6)]), True),
])
def test_checker_decides_known_cases(history, good):
    assert bool(check(history)) is good


def simulate(dice, mix, clients=4, count=48):
    """A history that is linearizable by construction: steps applied one by one at the moments 100,
    200 ..., each inside an interval that ends before the next one of its client begins."""
    steps = Steps(dice, mix, 4)
    state = model.initial(clients)
    done = [[] for _ in range(clients)]
    for number in range(count):
        client = dice.randrange(clients)
        step = steps.step()
        reply, state = model.apply(state, client, step)
        done[client].append((step, reply, 100 * (number + 1)))
    history = []
    for client, rows in enumerate(done):
        cuts = [0] + [dice.randint(before[2] + 1, after[2] - 1)
                      for before, after in zip(rows, rows[1:])] + [100 * (count + 2)]
        history.append([Operation(client, step, reply, dice.randint(cuts[index] + 1, moment),
                                  dice.randint(moment, cuts[index + 1]))
                        for index, (step, reply, moment) in enumerate(rows)])
    return history


def corrupt(history, dice):
    """The history with one reply that no order can give, or None."""
    places = [(client, index) for client, operations in enumerate(history)
              for index, operation in enumerate(operations)
              if isinstance(operation.reply, int) or (isinstance(operation.reply, bytes)
                                                      and operation.reply != b"OK")]
    if not places:
        return None
    client, index = dice.choice(places)
    operation = history[client][index]
    wrong = operation.reply + 500 if isinstance(operation.reply, int) else operation.reply + b"9"
    spoiled = [list(operations) for operations in history]
    spoiled[client][index] = operation._replace(reply=wrong)
    return spoiled


@pytest.mark.parametrize("mix", list(Steps.MIXES))
def test_checker_accepts_what_the_model_made_and_rejects_corruption(mix):
    corrupted = 0
    for seed in range(SEED, SEED + 30):
        dice = random.Random("%s %d" % (mix, seed))
        history = simulate(dice, mix)
        assert check(history)
        spoiled = corrupt(history, dice)
        if spoiled is not None:
            corrupted += 1
            assert not check(spoiled)
    assert corrupted > 20


def test_recorded_history_with_one_reply_exchanged_is_rejected(server):
    dice = random.Random(SEED)
    for _ in range(5):
        history = record(server, dice, "all", clients=4, burst=3, bursts=6)
        spoiled = corrupt(history, dice)
        if spoiled is not None:
            assert not check(spoiled)


def test_independent_keys_are_checked_apart():
    history = build([(("SET", b"a", b"1"), b"OK", 0, 1), (("SET", b"b", b"1"), b"OK", 2, 3)],
                    [(("MGET", b"c", b"d"), [None, None], 0, 1)])
    assert len(parts(history)) == 3
    history[1].append(Operation(1, ("DBSIZE",), 2, 4, 5))
    assert len(parts(history)) == 1
