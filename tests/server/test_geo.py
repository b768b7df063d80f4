#!/usr/bin/python3
"""Places: replies, digits, order and error texts beside the reference, polygons, stored searches.

`SCRIPT` is sent line by line to the server under test and to the reference, and every reply must be
the same bytes; so must those of random searches over random places, the poles and the date line
included. What the reference does not know is stated below.
"""
import os
import random
import shlex

import pytest

from raw import Error
from test_list import assert_dataset, dataset

SEED = int(os.environ.get("SEED", random.randrange(1 << 30)))
LATITUDE_MAX = 85.05112878

SCRIPT = r"""
geoadd k 13.361389 38.115556 Palermo 15.087269 37.502669 Catania
geoadd k 13.361389 38.115556 Palermo
geoadd k ch 13.361389 38.115556 Palermo 15.1 37.5 Catania
geoadd k nx ch 1 2 Palermo 15.087269 37.502669 new
geoadd k xx ch 15.087269 37.502669 Catania 1 1 nosuch
geoadd k nx xx 1 2 a
geoadd k nx nx ch ch 1 2 Palermo
geoadd k
geoadd k nx
geoadd k nx ch xx
geoadd k 1 2
geoadd k nx 1 2
geoadd k nx ch 1 2
geoadd k 1 2 a 3
geoadd k gt 1 2 a
geoadd k incr 1 2 a
geoadd k 181 2 a
geoadd k 180.0000001 2 a
geoadd k 1 85.0511288 a
geoadd k -200.123456789 -99999.5 a
geoadd k x 2 a
geoadd k 1 x a
geoadd k nan 1 a
geoadd k inf -inf a
geoadd k 1e300 -1e300 a
geoadd k 1e999 1 a
geoadd k "" 1 a
geoadd k " 1" 1 a
geoadd k 1 2 a 1 86 b
geoadd k 0x10 1e1 hex
geoadd k 180 85.05112878 northeast -180 -85.05112878 southwest 180 0 east -180 0 west
geoadd k 1 2 twice 3 4 twice
zrange k 0 -1 withscores
geopos k Palermo Catania nosuch hex northeast southwest east west twice
geohash k Palermo Catania nosuch hex northeast southwest east west twice
geopos k
geohash k
geopos nokey
geopos nokey a b
geohash nokey a b
geodist k Palermo Catania
geodist k Palermo Catania M
geodist k Palermo Catania km
geodist k Palermo Catania fT
geodist k Palermo Catania mi
geodist k Palermo Palermo mi
geodist k Palermo Catania yd
geodist k Palermo nosuch yd
geodist k Palermo nosuch
geodist k nosuch Palermo
geodist k Palermo Catania km 3
geodist nokey Palermo Catania
geodist nokey Palermo Catania yd
geodist k northeast southwest
geodist k east west
set s x
geoadd s 1 2 a
geoadd s 1 99 a
geoadd s nx xx 1 2 a
geopos s
geopos s a
geohash s a
geodist s a b
geodist s a b yd
geodist s a b m m
georadius s 15 99 200 km
georadius s 15 9 200 yd
georadius_ro s 15 9 200 km
georadiusbymember s a 200 km
georadiusbymember_ro s a 200 km
geosearch s fromlonlat 1 99 byradius 3 km
geosearchstore s s fromlonlat 1 99 byradius 3 km
geosearchstore d s fromlonlat 1 9 byradius 3 km
georadius k 15 37 200 km
georadius k 15 37 200 km asc
georadius k 15 37 200 km desc
georadius k 15 37 200 km asc desc
georadius k 15 37 200 km withdist
georadius k 15 37 200 km withcoord
georadius k 15 37 200 km withhash
georadius k 15 37 200 km withcoord withdist withhash asc
georadius k 15 37 200 km withdist withdist asc
georadius k 15 37 200 yd
georadius k 15 37 -1 km
georadius k 15 37 -1 yd
georadius k 15 37 x km
georadius k 15 37 nan km
georadius k 15 37 1e999 km
georadius k 15 37 inf km asc
georadius k 15 37 0 km
georadius k 15 x 200 km
georadius k 15 99 200 km
georadius k 15 99 200
georadius k 15 37 200 km count
georadius k 15 37 200 km count 0
georadius k 15 37 200 km count -1
georadius k 15 37 200 km count x
georadius k 15 37 200 km count 9223372036854775807
georadius k 15 37 200 km count 9223372036854775808
georadius k 15 37 200 km count 1
georadius k 15 37 200 km count 1 desc
georadius k 15 37 200 km count 1 any
georadius k 15 37 200 km any count 2 asc
georadius k 15 37 200 km any
georadius k 15 37 200 km any store d withdist
georadius k 15 37 200 km any store d
georadius k 15 37 200 km foo
georadius nokey 15 37 200 km foo
georadius nokey 15 37 200 km any
georadius nokey 15 37 200 km count 0
georadius nokey 15 99 200 km
georadius nokey 15 37 -1 yd
georadius nokey 15 37 1 yd
georadius nokey 15 37 1 km
georadius k 15 37 200 km byradius 3 km
georadius k 15 37 200 km frommember Palermo
georadius k 15 37 200 km store
georadius k 15 37 200 km storedist
georadius k 15 37 200 km withdist store d
georadius k 15 37 200 km withhash storedist d
georadius k 15 37 200 km store d
zrange d 0 -1 withscores
georadius k 15 37 200 km storedist d count 2
zcard d
georadius k 15 37 200 km storedist d store e
zrange e 0 -1 withscores
georadius k 15 37 200 km store a storedist b
exists a b
georadius k 15 37 200 km store a store b
exists a b
del a b
georadius k 15 37 200 km store store asc
georadius k 15 37 200 km storedist store store e
georadius k 15 37 200 km store storedist
exists store storedist
georadius k 15 37 200 km store k
zrange k 0 -1 withscores
geoadd k 13.361389 38.115556 Palermo 15.087269 37.502669 Catania 180 0 east
set t x
georadius k -100 -37 1 km store t
exists t
set t x
georadius nokey 15 37 200 km storedist t
exists t
georadius_ro k 15 37 200 km store x
georadius_ro k 15 37 200 km storedist x
georadius_ro k 15 37 200 km asc withdist
georadiusbymember k nosuch 200 km
georadiusbymember k nosuch 200 yd foo
georadiusbymember k Palermo 200 yd foo
georadiusbymember k Palermo -1 yd foo
georadiusbymember k Palermo 200 km desc
georadiusbymember k Palermo 0 km
georadiusbymember k Palermo 200 km store d
georadiusbymember nokey nosuch 200 km
georadiusbymember nokey nosuch x yd
georadiusbymember nokey nosuch x yd foo
georadiusbymember nokey nosuch x yd store d
exists d
georadiusbymember_ro k Palermo 200 km asc
georadiusbymember_ro k Palermo 200 km storedist x
geosearch k frommember Palermo byradius 200 km
geosearch k frommember Palermo bybox 200 300 km
geosearch k byradius 200 km frommember Palermo
geosearch k asc byradius 200 km withdist frommember Palermo
geosearch k frommember Palermo frommember Catania byradius 1 km
geosearch k fromlonlat 1 2 fromlonlat 15.087269 37.502669 byradius 1 km
geosearch k byradius 200 km byradius 1 km frommember Palermo
geosearch k bybox 200 200 km bybox 1 1 km frommember Palermo
geosearch k frommember Palermo fromlonlat 1 2 byradius 200 km
geosearch k fromlonlat 1 2 frommember Palermo byradius 200 km
geosearch k frommember Palermo byradius 200 km bybox 1 1 km
geosearch k frommember Palermo bybox 1 1 km byradius 200 km
geosearch k frommember Palermo byradius 200 km storedist
geosearch k frommember Palermo byradius 200 km store x
geosearch k frommember nosuch byradius -200 km
geosearch k byradius -200 km frommember nosuch
geosearch nokey frommember nosuch byradius 200 km
geosearch nokey frommember nosuch byradius -200 km
geosearch nokey frommember nosuch byradius 200
geosearch nokey frommember nosuch asc desc withdist
geosearch nokey byradius 200 km asc desc asc
geosearch nokey fromlonlat 1 99 byradius 200 km
geosearch k frommember Palermo byradius 200
geosearch k frommember Palermo bybox 200 200
geosearch k frommember Palermo bybox 200 200 yd
geosearch k frommember Palermo bybox -200 200 yd
geosearch k frommember Palermo bybox 200 -200 km
geosearch k frommember Palermo bybox x 200 km
geosearch k frommember Palermo bybox 200 x km
geosearch k frommember Palermo bybox x x yd
geosearch k frommember Palermo bybox nan 200 km
geosearch k frommember Palermo bybox 0 0 km
geosearch k frommember Palermo bybox inf inf km asc
geosearch k frommember Palermo bybox 1e300 0 km asc
geosearch k frommember Palermo asc asc asc asc
GeoSearch k frommember Palermo asc asc asc asc
GeoSearch k asc asc asc asc asc asc
geosearch k fromlonlat 200 99 byradius 3 km
geosearch k fromlonlat x 99 byradius 3 km
geosearch k fromlonlat 1 2 byradius 3 km any
geosearch k fromlonlat 1 2 byradius 3 km count 1 count 0
geosearch k fromlonlat 15 37 byradius 30000 km count 1 count 2
geosearchstore d k fromlonlat 15 37 byradius 300 km
zrange d 0 -1 withscores
geosearchstore d k fromlonlat 15 37 byradius 300 km storedist
zcard d
geosearchstore d k fromlonlat 15 37 byradius 300 km count 1 desc
zrange d 0 -1
geosearchstore d k fromlonlat 15 37 byradius 300 km withdist
geosearchstore d k fromlonlat 15 37 withdist byradius 300 km foo
geosearchstore d k fromlonlat 15 37 bybox 300 300 km store x
geosearchstore d k fromlonlat 15 37 asc asc asc
GEOsearchSTORE d k bybox 300 300 km asc asc
geosearchstore d nokey fromlonlat 15 37 bybox 300 300 km count 0
geosearchstore d nokey fromlonlat 15 37 bybox 300 300 km any
geosearchstore d nokey frommember x bybox 300 300 km
exists d
geosearchstore s k frommember Palermo bybox 300 300 km
type s
geosearchstore k k frommember Palermo byradius 300 km storedist
zcard k
zadd z 1.5 fraction -5 negative 1e300 big -1e300 small inf inf -inf minus 4503599627370496 beyond
geopos z fraction negative big small inf minus beyond
geohash z fraction negative big small inf minus beyond
geodist z fraction negative
geodist z fraction big
geodist z minus beyond
geosearch z frommember inf byradius 3 km withhash
geosearch z frommember minus byradius 3 km withhash
geosearch z frommember big byradius 30000 km withdist withhash withcoord
"""


def lines(script):
    return [shlex.split(line) for line in script.strip().splitlines()]


@pytest.fixture(params=["packed", "large"])
def entries(request):
    """A limit that keeps all sorted sets of a test packed, or makes them large."""
    return 5000 if request.param == "packed" else 0


@pytest.fixture
def conns(empty_server, redis_server, entries):
    """The server under test and the reference, both empty."""
    with empty_server.raw() as ours, redis_server.raw() as theirs:
        for conn in (ours, theirs):
            conn.cmd("FLUSHALL")
            conn.cmd("CONFIG", "SET", "zset-max-listpack-entries", entries)
        yield ours, theirs
        for conn in (ours, theirs):
            conn.cmd("CONFIG", "SET", "zset-max-listpack-entries", 128)


@pytest.fixture
def places(raw, entries):
    """The connection, with the limit set."""
    raw.cmd("CONFIG", "SET", "zset-max-listpack-entries", entries)
    yield raw
    raw.cmd("CONFIG", "SET", "zset-max-listpack-entries", 128)


def same(conns, *line):
    replies = [conn.cmd_bytes(*line) for conn in conns]
    assert replies[0] == replies[1], (SEED, line, replies)


@pytest.mark.parametrize("protocol", [2, 3])
def test_replies_are_those_of_the_reference(conns, protocol):
    for conn in conns:
        conn.cmd("HELLO", protocol)
    for line in lines(SCRIPT):
        same(conns, *line)


# --- random searches ---

def longitude(rng):
    return rng.choice([lambda: rng.uniform(-180, 180), lambda: rng.uniform(-180, 180),
                       lambda: rng.choice([180, -180, 179.9999, -179.9999, 0, 90, -90]),
                       lambda: 180 - rng.random() ** 3 * 5, lambda: rng.random() ** 3 * 5 - 180,
                       lambda: rng.uniform(2, 2.5)])()


def latitude(rng):
    return rng.choice([lambda: rng.uniform(-LATITUDE_MAX, LATITUDE_MAX),
                       lambda: rng.choice([LATITUDE_MAX, -LATITUDE_MAX, 85, -85, 0, 66, -80]),
                       lambda: LATITUDE_MAX - rng.random() ** 3 * 5,
                       lambda: rng.random() ** 3 * 5 - LATITUDE_MAX, lambda: rng.uniform(48, 48.5)])()


def random_search(rng, count):
    reach = rng.choice([0, rng.uniform(0, 100), 10 ** rng.uniform(0, 7.6), 10 ** rng.uniform(3, 7.6)])
    unit, metres = rng.choice([("m", 1), ("km", 1000), ("ft", .3048), ("mi", 1609.34)])
    center = rng.choice([["FROMMEMBER", "m%d" % rng.randrange(count)],
                         ["FROMLONLAT", repr(longitude(rng)), repr(latitude(rng))]])
    shape = rng.choice([["BYRADIUS", repr(reach / metres), unit],
                        ["BYBOX", repr(reach / metres * rng.uniform(0, 3)),
                         repr(reach / metres * rng.uniform(0, 3)), unit]])
    order = rng.choice([[], [], ["ASC"], ["DESC"]])
    limit = rng.choice([[], [], ["COUNT", rng.choice([1, 3, 10])],
                        ["COUNT", rng.choice([1, 3, 10]), "ANY"]])
    return center + shape + order + limit, unit


def same_search(conns, search, extra):
    """Equal bytes; where COUNT cuts places that are equally far, equal distances."""
    line = ["GEOSEARCH", "k"] + search + extra
    replies = [conn.cmd_bytes(*line) for conn in conns]
    if replies[0] != replies[1] and "COUNT" in search and "ANY" not in search:
        found = [conn.cmd("GEOSEARCH", "k", *search, "WITHDIST") for conn in conns]
        replies = [[distance for _, distance in reply] for reply in found]
        assert len(set(replies[0])) < len(replies[0]) or len(replies[0]) == search[-1], (SEED, line)
    assert replies[0] == replies[1], (SEED, line, replies)


@pytest.mark.parametrize("count", [5, 100, 1000])
def test_random_searches_find_what_the_reference_finds(conns, count):
    rng = random.Random(SEED)
    for _ in range(4):
        for conn in conns:
            conn.cmd("FLUSHALL")
        line = ["GEOADD", "k"]
        for number in range(count):
            line += [repr(longitude(rng)), repr(latitude(rng)), "m%d" % number]
        same(conns, *line)
        names = line[4::3]
        same(conns, "GEOPOS", "k", *names)
        same(conns, "GEOHASH", "k", *names)
        for _ in range(120):
            search, unit = random_search(rng, count)
            same_search(conns, search, [word for word in ("WITHCOORD", "WITHDIST", "WITHHASH")
                                        if rng.random() < 0.4])
            same(conns, "GEODIST", "k", rng.choice(names), rng.choice(names), unit)


# --- without the reference ---

def test_count_gives_the_nearest_of_all(places):
    rng = random.Random(SEED)
    places.cmd("GEOADD", "k", *[word for number in range(2000) for word in (
        repr(rng.gauss(10, 5)), repr(rng.gauss(50, 3)), "m%d" % number)])
    line = ["GEOSEARCH", "k", "FROMLONLAT", "10", "50", "BYRADIUS", "1000", "km"]
    for order in ("ASC", "DESC"):
        all_of_them = places.cmd(*line, order, "WITHDIST")
        distances = [float(distance) for _, distance in all_of_them]
        assert distances == sorted(distances, reverse=order == "DESC") and len(distances) > 1000
        for count in (1, 2, 15, 16, 17, 100, 999, 5000):
            assert places.cmd(*line, order, "COUNT", count, "WITHDIST") == all_of_them[:count]
        found = places.cmd(*line, order, "COUNT", 10, "ANY", "WITHDIST")
        assert len(found) == 10 and all(one in all_of_them for one in found)


def test_places_equally_far_keep_their_order(places):
    places.cmd("GEOADD", "k", *[word for number in range(100) for word in (
        "10", "50", "m%02d" % number)])
    names = [b"m%02d" % number for number in range(100)]
    line = ["GEOSEARCH", "k", "FROMLONLAT", "10", "50", "BYRADIUS", "1", "km"]
    for tail in ([], ["ASC"], ["DESC"]):
        assert places.cmd(*line, *tail) == names
        assert places.cmd(*line, *tail, "COUNT", 7) == names[:7]


def test_names_that_are_numbers(places):
    places.cmd("GEOADD", "k", 10, 50, 12345, 11, 50, -7, 12, 50, "x")
    line = ["FROMMEMBER", "12345", "BYRADIUS", "500", "km"]
    assert places.cmd("GEOSEARCH", "k", *line, "ASC") == [b"12345", b"-7", b"x"]
    assert places.cmd("GEOSEARCHSTORE", "k", "k", *line, "COUNT", 2) == 2
    assert places.cmd("ZRANGE", "k", 0, -1) == [b"12345", b"-7"]


def test_nothing_is_left_behind(places):
    before = dataset(places)
    places.cmd("GEOADD", "k", *[word for number in range(300) for word in (
        number / 10, number / 10, "member:%d" % number)])
    for key in ("d", "k"):
        assert places.cmd("GEOSEARCHSTORE", key, "k", "FROMLONLAT", 15, 15, "BYRADIUS", 900, "km") > 50
    assert places.cmd("GEORADIUS", "k", 15, 15, 500, "km", "STOREDIST", "d") > 50
    places.cmd("DEL", "k", "d")
    assert_dataset(places, before)


@pytest.mark.kvik_only
def test_the_last_key_to_store_is_the_one_that_is_told(raw):
    line = ["GEORADIUS", "k", "1", "2", "3", "km"]
    for tail, keys in ((["STORE", "a", "STORE", "b"], [b"k", b"b"]),
                       (["STOREDIST", "a", "STORE", "b"], [b"k", b"b", b"a"]),
                       (["STORE", "STORE", "ASC"], [b"k", b"STORE"]),
                       (["STOREDIST", "STORE", "STORE", "x"], [b"k", b"x", b"STORE"]),
                       (["STORE"], [b"k"]), ([], [b"k"])):
        assert raw.cmd("COMMAND", "GETKEYS", *line, *tail) == keys
        member = ["GEORADIUSBYMEMBER", "k", "1", "3", "km"]
        assert raw.cmd("COMMAND", "GETKEYS", *member, *tail) == keys


# --- polygons ---

SQUARE = ["10", "50", "12", "50", "12", "52", "10", "52"]


@pytest.mark.kvik_only
def test_a_polygon_holds_what_lies_between_its_vertices(places):
    places.cmd("GEOADD", "k", 11, 51, "middle", 9, 51, "west", 13, 51, "east", 11, 53, "north", 11, 49,
               "south", 10.5, 50.2, "corner")
    line = ["GEOSEARCH", "k", "BYPOLYGON", "4"] + SQUARE
    assert sorted(places.cmd(*line)) == [b"corner", b"middle"]
    assert places.cmd(*line, "ASC") == [b"middle", b"corner"]
    assert places.cmd(*line, "DESC", "COUNT", 1) == [b"corner"]
    (name, distance, score, (east, north)), _ = places.cmd(
        *line, "ASC", "WITHDIST", "WITHHASH", "WITHCOORD")
    assert name == b"middle" and float(distance) < 1
    assert score == int(places.cmd("ZSCORE", "k", "middle"))
    assert abs(float(east) - 11) < 1e-5 and abs(float(north) - 51) < 1e-5
    triangle = ["BYPOLYGON", "3", "10", "50", "12", "50", "10", "51.5"]
    assert places.cmd("GEOSEARCHSTORE", "d", "k", *triangle) == 1
    assert places.cmd("ZSCORE", "d", "corner") == places.cmd("ZSCORE", "k", "corner")
    assert places.cmd("GEOSEARCHSTORE", "d", "k", *triangle, "STOREDIST") == 1
    assert 0 < float(places.cmd("ZSCORE", "d", "corner")) < 100000
    assert places.cmd("GEOSEARCH", "nokey", *triangle) == []


def inside(vertices, place):
    odd = False
    for (x1, y1), (x2, y2) in zip(vertices, vertices[1:] + vertices[:1]):
        if (x1 > place[0]) != (x2 > place[0]):
            odd ^= y1 + (place[0] - x1) / (x2 - x1) * (y2 - y1) <= place[1]
    return odd


@pytest.mark.kvik_only
def test_random_polygons_beside_a_model(places):
    rng = random.Random(SEED)
    line = ["GEOADD", "k"]
    for number in range(1500):
        line += [repr(longitude(rng)), repr(latitude(rng)), "m%d" % number]
    assert places.cmd(*line) == 1500
    stored = {name: (float(x), float(y)) for name, (x, y) in zip(
        line[4::3], places.cmd("GEOPOS", "k", *line[4::3]))}
    for _ in range(150):
        size, middle = 10 ** rng.uniform(-1, 2.3), (longitude(rng), latitude(rng))
        vertices = [(max(-180, min(180, rng.gauss(middle[0], size))),
                     max(-LATITUDE_MAX, min(LATITUDE_MAX, rng.gauss(middle[1], size))))
                    for _ in range(rng.randint(3, 12))]
        found = places.cmd("GEOSEARCH", "k", "BYPOLYGON", len(vertices),
                           *[repr(number) for vertex in vertices for number in vertex])
        expected = [name.encode() for name, place in stored.items() if inside(vertices, place)]
        assert sorted(found) == sorted(expected), (SEED, vertices)


@pytest.mark.kvik_only
@pytest.mark.parametrize("words, error", [
    (["BYPOLYGON", "2", "1", "1", "2", "2"], "ERR BYPOLYGON needs at least 3 vertices"),
    (["BYPOLYGON", "-9223372036854775808", "1", "1", "2", "2"],
     "ERR BYPOLYGON needs at least 3 vertices"),
    (["BYPOLYGON", "x", "1", "1", "2", "2"], "ERR value is not an integer or out of range"),
    (["BYPOLYGON", "4", "1", "1", "2", "2", "3", "3"], "ERR syntax error"),
    (["BYPOLYGON", "9223372036854775807", "1", "1", "2", "2"], "ERR syntax error"),
    (["BYPOLYGON", "3", "1", "1", "2", "2", "3", "3", "4"], "ERR syntax error"),
    (["BYPOLYGON", "3", "1", "1", "2", "x", "3", "3"], "ERR value is not a valid float"),
    (["BYPOLYGON", "3", "1", "1", "2", "86", "3", "3"],
     "ERR invalid longitude,latitude pair 2.000000,86.000000"),
    (["FROMMEMBER", "a", "BYPOLYGON", "4"] + SQUARE, "ERR syntax error"),
    (["BYPOLYGON", "4"] + SQUARE + ["FROMLONLAT", "1", "2"], "ERR syntax error"),
    (["BYPOLYGON", "4"] + SQUARE + ["BYRADIUS", "1", "km"], "ERR syntax error"),
    (["BYPOLYGON", "4"] + SQUARE + ["BYBOX", "1", "1", "km"], "ERR syntax error"),
    (["BYRADIUS", "1", "km", "BYPOLYGON", "4"] + SQUARE, "ERR syntax error"),
    (["BYPOLYGON", "4"] + SQUARE + ["ANY"], "ERR the ANY argument requires COUNT argument"),
])
def test_what_is_no_polygon(raw, words, error):
    raw.cmd("GEOADD", "k", 11, 51, "a")
    assert raw.cmd("GEOSEARCH", "k", *words) == Error(error.encode())
    raw.cmd("SET", "d", "x")
    assert raw.cmd("GEOSEARCHSTORE", "d", "k", *words) == Error(error.encode())
    assert raw.cmd("GET", "d") == b"x"
