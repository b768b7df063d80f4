#!/usr/bin/python3
"""INFO: sections, the fields that monitoring tools read, and that their values are true."""
import os
import re
import time

import pytest

from process import TIME_SCALE
from raw import Verbatim

DEFAULT = [b"Server", b"Clients", b"Memory", b"Persistence", b"Stats", b"Replication", b"CPU",
           b"Modules", b"Errorstats", b"Cluster", b"Keyspace"]
# Fields that redis_exporter, RedisInsight, the Datadog and Netdata agents and redis-cli --stat read.
WANTED = """
redis_version redis_git_sha1 redis_mode os arch_bits process_id run_id tcp_port uptime_in_seconds
uptime_in_days hz lru_clock executable config_file gcc_version multiplexing_api redis_build_id
connected_clients blocked_clients maxclients client_recent_max_input_buffer tracking_clients
client_recent_max_output_buffer clients_in_timeout_table cluster_connections
used_memory used_memory_human used_memory_rss used_memory_rss_human used_memory_peak
used_memory_peak_human used_memory_peak_perc used_memory_overhead used_memory_startup
used_memory_dataset used_memory_dataset_perc used_memory_lua total_system_memory maxmemory
maxmemory_human maxmemory_policy mem_fragmentation_ratio mem_fragmentation_bytes mem_allocator
mem_clients_normal mem_clients_slaves mem_aof_buffer mem_replication_backlog
mem_not_counted_for_evict active_defrag_running lazyfree_pending_objects lazyfreed_objects
allocator_allocated allocator_active allocator_resident allocator_frag_ratio allocator_rss_ratio
rss_overhead_ratio number_of_cached_scripts number_of_functions used_memory_scripts
loading async_loading rdb_changes_since_last_save rdb_bgsave_in_progress rdb_last_save_time
rdb_last_bgsave_status rdb_last_bgsave_time_sec rdb_current_bgsave_time_sec rdb_last_cow_size
rdb_saves aof_enabled aof_rewrite_in_progress aof_rewrite_scheduled aof_last_rewrite_time_sec
aof_current_rewrite_time_sec aof_last_bgrewrite_status aof_last_write_status aof_last_cow_size
module_fork_in_progress
total_connections_received total_commands_processed instantaneous_ops_per_sec
total_net_input_bytes total_net_output_bytes instantaneous_input_kbps instantaneous_output_kbps
rejected_connections sync_full sync_partial_ok sync_partial_err expired_keys expired_stale_perc
evicted_keys evicted_clients keyspace_hits keyspace_misses pubsub_channels pubsub_patterns
latest_fork_usec migrate_cached_sockets slave_expires_tracked_keys active_defrag_hits
active_defrag_misses active_defrag_key_hits active_defrag_key_misses tracking_total_keys
total_error_replies unexpected_error_replies dump_payload_sanitizations
role connected_slaves master_failover_state master_replid master_replid2 master_repl_offset
second_repl_offset repl_backlog_active repl_backlog_size repl_backlog_first_byte_offset
repl_backlog_histlen
used_cpu_sys used_cpu_user used_cpu_sys_children used_cpu_user_children
used_cpu_sys_main_thread used_cpu_user_main_thread cluster_enabled
""".split()


def titles(text):
    return re.findall(rb"^# (\w+)\r$", text, re.MULTILINE)


def fields(conn, *sections):
    text = conn.cmd("INFO", *sections).decode()
    return dict(line.split(":", 1) for line in text.split("\r\n")
                if line and not line.startswith("#"))


def number(conn, name):
    return int(fields(conn, "everything")[name])


def test_sections(raw):
    got = titles(raw.cmd("INFO"))
    assert [title for title in got if title != b"Kvik"] == DEFAULT
    assert titles(raw.cmd("INFO", "default")) == got
    everything = titles(raw.cmd("INFO", "all"))
    assert set(everything) - {b"Kvik_memory"} == set(got) | {b"Commandstats", b"Latencystats"}
    assert titles(raw.cmd("INFO", "everything")) == everything
    assert titles(raw.cmd("INFO", "SERVER", "cpu")) == [b"Server", b"CPU"]
    assert titles(raw.cmd("INFO", "cpu", "server", "cpu")) == [b"Server", b"CPU"]
    assert set(titles(raw.cmd("INFO", "default", "commandstats"))) == set(got) | {b"Commandstats"}
    assert raw.cmd("INFO", "nosuch") == b""
    assert everything[-1] == b"Keyspace"


def test_form(raw):
    text = raw.cmd("INFO", "everything")
    assert b"\n" not in text.replace(b"\r\n", b"")
    for line in text.split(b"\r\n"):
        assert line == b"" or re.match(rb"# \w+$|[\w|.-]+:", line), line
    assert b"\r\n\r\n# Clients\r\n" in text
    assert not isinstance(raw.cmd("INFO"), Verbatim)
    raw.cmd("HELLO", "3")
    reply = raw.cmd("INFO", "server")
    assert isinstance(reply, Verbatim) and reply.format == b"txt"


def test_fields_that_tools_read(raw):
    have = fields(raw, "everything")
    assert [name for name in WANTED if name not in have] == []


def test_no_field_occurs_twice(raw):
    text = raw.cmd("INFO", "everything")
    names = re.findall(rb"^([^#:\r\n]+):", text, re.MULTILINE)
    assert sorted(names) == sorted(set(names))


@pytest.mark.kvik_only
def test_facts_of_the_process(server, raw):
    have = fields(raw, "server")
    assert have["redis_version"] == "8.0.0"
    assert have["kvik_version"] == "0.1.0"
    assert int(have["process_id"]) == server.pid
    assert int(have["tcp_port"]) == server.port
    assert re.fullmatch("[0-9a-f]{40}", have["run_id"])
    assert have["executable"] == os.path.realpath(server.binary)
    assert abs(int(have["server_time_usec"]) / 1e6 - time.time()) < 5
    assert have["listener0"] == "name=tcp,bind=127.0.0.1,port=%d" % server.port
    assert have["listener1"] == "name=unix,bind=%s" % server.unix_path
    other = fields(raw, "replication")
    assert re.fullmatch("[0-9a-f]{40}", other["master_replid"])
    assert other["role"] == "master" and other["connected_slaves"] == "0"


def test_clients_are_counted(server, raw):
    deadline = time.monotonic() + 5 * TIME_SCALE
    while number(raw, "connected_clients") != 1:  # those of other tests may still be going
        assert time.monotonic() < deadline
        time.sleep(0.01)
    before = 1
    received = number(raw, "total_connections_received")
    more = [server.raw() for _ in range(7)]
    for conn in more:
        conn.cmd("PING")
    assert number(raw, "connected_clients") == before + 7
    assert number(raw, "total_connections_received") == received + 7
    more[0].cmd("WATCH", "a")
    more[1].cmd("WATCH", "a", "b")
    if "watching_clients" in fields(raw, "clients"):
        assert number(raw, "watching_clients") == 2
    for conn in more:
        conn.close()
    deadline = time.monotonic() + 5 * TIME_SCALE
    while number(raw, "connected_clients") != before:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_commands_hits_and_errors_are_counted(raw):
    raw.cmd("CONFIG", "RESETSTAT")
    raw.cmd("SET", "a", "1")
    for _ in range(3):
        raw.cmd("GET", "a")
    for _ in range(2):
        raw.cmd("GET", "missing")
    raw.cmd("NOSUCH")
    raw.cmd("GET")
    raw.cmd("INCR", "a")
    raw.cmd("SET", "text", "x")
    raw.cmd("INCR", "text")
    have = fields(raw, "everything")
    assert int(have["keyspace_hits"]) == 3
    assert int(have["keyspace_misses"]) == 2
    assert int(have["total_error_replies"]) == 3
    assert have["errorstat_ERR"] == "count=3"
    assert re.fullmatch(r"calls=5,usec=\d+,usec_per_call=\d+\.\d\d,rejected_calls=1,failed_calls=0",
                        have["cmdstat_get"])
    assert ",failed_calls=1" in have["cmdstat_incr"]
    assert "cmdstat_config|resetstat" in have
    assert "cmdstat_append" not in have
    assert int(have["total_net_input_bytes"]) > 0


def test_keyspace_lines(raw):
    assert b"db0:" not in raw.cmd("INFO", "keyspace")
    raw.cmd("SET", "a", "1")
    raw.cmd("SET", "b", "1", "PX", "100000")
    raw.cmd("SET", "c", "1", "PX", "200000")
    raw.cmd("SELECT", "3")
    raw.cmd("SET", "x", "1")
    have = fields(raw, "keyspace")
    found = re.fullmatch(r"keys=3,expires=2,avg_ttl=(\d+)(,subexpiry=0)?", have["db0"])
    assert found
    assert 0 <= int(found.group(1)) <= 200000
    assert have["db3"].startswith("keys=1,expires=0,avg_ttl=0")
    raw.cmd("SELECT", "0")


@pytest.mark.kvik_only
def test_average_time_to_live(raw):
    raw.cmd("SET", "b", "1", "PX", "100000")
    raw.cmd("SET", "c", "1", "PX", "200000")
    average = int(re.search(rb"avg_ttl=(\d+)", raw.cmd("INFO", "keyspace")).group(1))
    assert 140000 < average <= 150000


def test_changes_are_counted(raw):
    before = number(raw, "rdb_changes_since_last_save")
    raw.cmd("MSET", "a", "1", "b", "2", "c", "3")
    raw.cmd("DEL", "a", "b")
    assert number(raw, "rdb_changes_since_last_save") == before + 5


@pytest.mark.kvik_only
def test_memory_follows_the_data(raw):
    start = fields(raw, "memory")
    for i in range(2000):
        raw.send_cmd("SET", "key:%d" % i, "x" * 200)
    for _ in range(2000):
        raw.read()
    full = fields(raw, "memory")
    grown = int(full["used_memory_dataset"]) - int(start["used_memory_dataset"])
    assert 2000 * 200 < grown < 2000 * 400
    assert int(full["used_memory"]) >= int(full["used_memory_dataset"])
    assert int(full["used_memory"]) == (int(full["used_memory_overhead"])
                                        + int(full["used_memory_dataset"]))
    assert int(full["used_memory_peak"]) >= int(full["used_memory"])
    raw.cmd("FLUSHALL", "SYNC")
    assert fields(raw, "memory")["used_memory_dataset"] == start["used_memory_dataset"]


@pytest.mark.kvik_only
def test_expiry_is_counted(raw):
    before = number(raw, "expired_keys")
    for i in range(10):
        raw.cmd("SET", "e%d" % i, "1", "PX", "20")
    deadline = time.monotonic() + 5 * TIME_SCALE
    while number(raw, "expired_keys") != before + 10:
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.kvik_only
def test_own_section(start_server):
    server = start_server(threads=2)
    with server.raw() as conn:
        conn.send(b"*1\r\n$4\r\nPING\r\n" * 50 + b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\nb\r\n" * 200)
        for _ in range(250):
            conn.read()
        have = fields(conn, "kvik")
        assert have["threads"] == "2"
        assert int(have["shards"]) >= 128
        assert int(have["batches"]) > 0
        assert int(have["batch_commands"]) >= int(have["batches"])
        for name in ("lock_spins", "lock_parks", "gate_parks", "gate_closes", "world_stops",
                     "hold_us_max", "slice_us_max"):
            assert int(have[name]) >= 0


def test_redis_py_reads_it(client):
    client.set("a", 1)
    info = client.info("all")
    assert info["redis_version"].count(".") == 2
    assert info["db0"]["keys"] == 1
    assert info["cmdstat_set"]["calls"] >= 1
    assert isinstance(info["used_memory"], int)
