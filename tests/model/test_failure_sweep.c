/* The failure sweep over all commands: each runs with its first, second, third ... try allocation
 * failing, until one run meets no failure. After a failure the reply is an error and the keyspace,
 * the connection, the change stream and the used memory are what they were; or the command did
 * without that memory, and then reply and keyspace are those of an undisturbed run.
 *
 * A row of the table below is one run: lines that prepare the keyspace, and the line under the
 * sweep. A command of the table that no row runs fails the test. Where memory cannot be made to
 * fail (release), every row runs once. Each test runs with one worker and with two, where locks are
 * real. Time stands still. */
#include "admin/config.h"
#include "cmd/table.h"
#include "engine/hotkeys.h"
#include "engine/script.h"
#include "library.h"
#include "unit.h"

#define NOW_MS 1700000000000
#define RUNS_MAX 1000 /* of one row */

enum sweep_flags {
    SWEEP_ERROR = 1,    /* the undisturbed reply is an error */
    SWEEP_SILENT = 2,   /* there is no reply */
    SWEEP_VOLATILE = 4, /* the reply differs from run to run */
    SWEEP_PARTIAL = 8,  /* a failure may leave some keys set, as the command is documented */
    SWEEP_TX = 64,      /* a failure may change the transaction, not the keyspace */
    SWEEP_CUT = 16,     /* the line arrives in two pieces, so that it is collected in a partial */
    SWEEP_CONFIG = 32,  /* configuration and statistics may change their memory */
    SWEEP_SHAPE = 128,  /* a failure may change how a list is cut into nodes, and so its memory */
};

struct sweep {
    const char *setup; /* lines separated by '|', or NULL; "fill N" makes keys fill:0 ... */
    const char *line;  /* words separated by spaces; "@N" is a word of N bytes, "^hex" of these */
    uint32_t flags;
};

/* Libraries: "l" with a function that writes, "l" with one that reads, one that does not load; and
 * a payload with "m". */
#define LIB_WRITES                                                                                 \
    "^23216c7561206e616d653d6c0a72656469732e72656769737465725f66756e6374696f6e2827662"             \
    "72c66756e6374696f6e286b2c61292072657475726e2072656469732e63616c6c2827736574272c6"             \
    "b5b315d2c615b315d2920656e6429"
#define LIB_READS                                                                                  \
    "^23216c7561206e616d653d6c0a72656469732e72656769737465725f66756e6374696f6e7b66756"             \
    "e6374696f6e5f6e616d653d2767272c6465736372697074696f6e3d2764272c666c6167733d7b276"             \
    "e6f2d777269746573277d2c63616c6c6261636b3d66756e6374696f6e286b292072657475726e207"             \
    "2656469732e63616c6c2827676574272c6b5b315d2920656e647d"
#define LIB_BROKEN                                                                                 \
    "^23216c7561206e616d653d6c0a72656469732e72656769737465725f66756e6374696f6e2827662"             \
    "72c66756e6374696f6e282920656e6429206e6f737563682829"
#define LIB_PAYLOAD                                                                                \
    "^f5c34059405e1f23216c7561206e616d653d6d0a72656469732e72656769737465725f66756e630"             \
    "874696f6e282768272ce0000c0a6b2c61292072657475726e200640301063616c6c2827736574272"             \
    "c6b5b315d2c612004052920656e64290a004bc94b57f6b6341d"

static const struct sweep sweeps[] = {
    /* strings */
    {NULL, "SET a 1", 0},
    {NULL, "SET a @30", 0},
    {NULL, "SET a @990", 0},
    {NULL, "SET a @1100", 0},
    {NULL, "SET a @40000", 0},
    {NULL, "SET a @40000", SWEEP_CUT},
    {"SET a @2000 EX 10", "SET a @40000 KEEPTTL", SWEEP_CUT},
    {NULL, "SET a @30 EX 10", 0},
    {"SET a 1", "SET a @3000 PX 100000 GET", 0},
    {"SET a @3000", "SET a 5 KEEPTTL GET", 0},
    {"SET a @30 EX 5", "SET a @900 XX", 0},
    {"SET a x", "SET a @50 IFEQ x", 0},
    {"SET a x", "SET a y NX", 0},
    {"fill 200", "SET a @20 PXAT 1700000900000", 0},
    {"SET a @20", "GET a", 0},
    {"SET a @40000", "GET a", 0},
    {"SET a @990", "GETEX a EX 100", 0},
    {"SET a @990 EX 100", "GETEX a PERSIST", 0},
    {"SET a @990", "GETDEL a", 0},
    {"SET a @990", "GETSET a @3000", 0},
    {NULL, "GETSET a 1", 0},
    {NULL, "SETEX a 10 @20", 0},
    {"SET a @2000", "PSETEX a 10000 @5000", 0},
    {NULL, "SETNX a @3000", 0},
    {"SET a @10", "APPEND a @40", 0},
    {"SET a 12", "APPEND a 34", 0},
    {"SET a @1000 EX 9", "APPEND a @3000", 0},
    {NULL, "APPEND a @3000", 0},
    {"SET a @4000", "APPEND a @50000", 0},
    {"SET a @10", "SETRANGE a 5 xyz", 0},
    {"SET a 77", "SETRANGE a 3000 xyz", 0},
    {NULL, "SETRANGE a 900 @900", 0},
    {"SET a @3000", "GETRANGE a 1 2000", 0},
    {"SET a @3000", "SUBSTR a 1 -1", 0},
    {"SET a @3000", "STRLEN a", 0},
    {NULL, "MSET a 1 b @2000 c @20 d @5000", SWEEP_PARTIAL},
    {"SET a @900 EX 5|SET b @20", "MSET a 1 b @2000", SWEEP_PARTIAL},
    {NULL, "MSETNX a 1 b @2000 c @20", 0},
    {NULL, "MSETEX 2 a @30 b @2000 EX 100", SWEEP_PARTIAL},
    {"SET a 1|SET c @2000", "MGET a b c", 0},
    {"SET a 5", "INCR a", 0},
    {NULL, "INCR a", 0},
    {NULL, "DECR a", 0},
    {"SET a 5 EX 9", "INCRBY a 100000", 0},
    {"SET a 5", "DECRBY a 100000", 0},
    {"SET a 5", "INCRBYFLOAT a 1.25", 0},
    {NULL, "INCRBYFLOAT a 1.25", 0},
    {"SET a 5", "INCREX a BYINT 10 EX 100", 0},
    {NULL, "INCREX a BYFLOAT 2.5", 0},
    {"SET a x", "DELEX a IFEQ x", 0},
    {"SET a x", "DELIFEQ a x", 0},
    {"SET a @3000", "DIGEST a", 0},
    {"SET a @900|SET b @300", "LCS a b", 0},
    {"SET a @200|SET b @300", "LCS a b IDX MINMATCHLEN 2 WITHMATCHLEN", 0},
    {"SET a @200|SET b @300", "LCS a b LEN", 0},
    /* bitmaps */
    {"SET a 1", "SETBIT a 7 1", 0},
    {NULL, "SETBIT a 20000 1", 0},
    {"SET a @990 EX 9", "SETBIT a 9000 1", 0},
    {"SET a @990", "GETBIT a 900", 0},
    {"SET a @990", "BITCOUNT a 1 -1 BIT", 0},
    {"SET a @990", "BITPOS a 0 5 -1", 0},
    {"SET a @990|SET b @500|SET c 5", "BITOP AND d a b c", 0},
    {"SET a @990|SET d @9", "BITOP NOT d a", 0},
    {"SET d @9000", "BITOP OR d a b", 0},
    {"SET a @990|SET b @500", "BITOP DIFF d a b", 0},
    {"SET a @30", "BITFIELD a SET u8 0 255 GET u8 0 OVERFLOW SAT INCRBY i5 3000 20", 0},
    {NULL, "BITFIELD a SET u8 #2000 255", 0},
    {"SET a @30", "BITFIELD_RO a GET u8 0 GET i64 9", 0},
    /* lists: packed, becoming large, large, becoming packed */
    {NULL, "LPUSH l a", 0},
    {NULL, "RPUSH l @30 5 @900", 0},
    {NULL, "RPUSH l @9000 b", 0},
    {"RPUSH l @990", "LPUSH l a b @300", 0},
    {"RPUSH l @5000", "RPUSH l @3500 x", 0},
    {"RPUSH l @9000 b c", "LPUSH l @5000 @5000 @9000", SWEEP_SHAPE},
    {"RPUSH l @9000 @100", "RPUSH l @500 @900 @900 @900 @9000", SWEEP_SHAPE},
    {"RPUSH l a", "LPUSHX l b @3000", 0},
    {"RPUSH l @9000 b", "RPUSHX l b @3000", SWEEP_SHAPE},
    {"RPUSH l a b @30 @900", "LPOP l", 0},
    {"RPUSH l a @30 @900", "LPOP l 2", 0},
    {"RPUSH l @9000 a b c", "RPOP l", 0},
    {"RPUSH l a b @9000", "RPOP l", 0},
    {"RPUSH l a b", "RPOP l 5", 0},
    {"RPUSH l a b @900", "LLEN l", 0},
    {"RPUSH l a b @900", "LINDEX l -1", 0},
    {"RPUSH l a 77 @900 @9000", "LRANGE l 0 -1", 0},
    {"RPUSH l a @900 b", "LSET l 1 c", 0},
    {"RPUSH l a b", "LSET l 1 @9000", 0},
    {"RPUSH l a @9000 b", "LSET l 1 c", SWEEP_SHAPE},
    {"RPUSH l a b @9000 c", "LSET l 0 @8150", SWEEP_SHAPE},
    {"RPUSH l a @900 b", "LINSERT l BEFORE b @200", 0},
    {"RPUSH l a @900 b", "LINSERT l AFTER a @9000", 0},
    {"RPUSH l @9000 a b c", "LINSERT l AFTER a @8100", SWEEP_SHAPE},
    {"RPUSH l a b a @300 a", "LREM l 2 a", 0},
    {"RPUSH l a b a @9000 a", "LREM l 0 a", 0},
    {"RPUSH l a b @300 c @900", "LTRIM l 1 3", 0},
    {"RPUSH l a b @300 c @900", "LTRIM l 1 -1", 0},
    {"RPUSH l a b @9000 c @900", "LTRIM l 0 1", 0},
    {"RPUSH l a b a", "LPOS l a COUNT 0", 0},
    {"RPUSH l a @500 b|RPUSH m @700", "LMOVE l m LEFT RIGHT", 0},
    {"RPUSH l @500|RPUSH m @9000", "LMOVE l m LEFT LEFT", SWEEP_SHAPE},
    {"RPUSH l a @9000|RPUSH m b", "LMOVE l m RIGHT LEFT", 0},
    {"RPUSH l a b @30", "LMOVE l l LEFT RIGHT", 0},
    {"RPUSH l a b @30", "RPOPLPUSH l m", 0},
    {"RPUSH l a b @9000", "RPOPLPUSH l l", SWEEP_SHAPE},
    {"RPUSH l a b @30 c", "LMOVEM l m LEFT LEFT COUNT 3 OBO", 0},
    {"RPUSH l a b @9000 c", "LMOVEM l l LEFT LEFT EXACTLY 2 OBO", SWEEP_SHAPE},
    {"RPUSH l a b @900", "LMPOP 2 nothing l LEFT COUNT 2", 0},
    {"RPUSH l 3 1 2|SET w_1 5|SET d @50", "SORT l BY w_* GET # GET d STORE m", 0},
    {"RPUSH l 3 1 2|SET m @50", "SORT l LIMIT 0 2 STORE m", 0},
    {"SADD s 3 a b @30", "SORT s ALPHA DESC STORE s", 0},
    {"RPUSH l 3 1 2.5 x 77", "SORT_RO l ALPHA GET x*->y", 0},
    {"RPUSH l 3 1 2.5", "SORT_RO l DESC", 0},
    /* places */
    {NULL, "GEOADD g 13.4 52.5 a 2.35 48.85 @40 -0.13 51.5 77", 0},
    {"GEOADD g 1 1 a 2 2 b", "GEOADD g XX CH 3 3 a 4 4 c", 0},
    {"GEOADD g 1 1 a 2 2 @100", "GEOPOS g a b", 0},
    {"GEOADD g 1 1 7 2 2 b", "GEOSEARCH g FROMMEMBER b BYRADIUS 900 km ASC WITHDIST", 0},
    {"GEOADD g 1 1 7 2 2 b 1 2 c", "GEOSEARCH g FROMMEMBER b BYBOX 900 900 km COUNT 1", 0},
    {"GEOADD g 1 1 7 2 2 b", "GEOSEARCH g BYPOLYGON 3 0 0 9 0 0 9 WITHCOORD", 0},
    {"GEOADD g 1 1 7 2 2 b|SET d @50", "GEOSEARCHSTORE d g FROMLONLAT 1 1 BYRADIUS 900 km", 0},
    {"GEOADD g 1 1 7 2 2 @100", "GEOSEARCHSTORE g g FROMLONLAT 1 1 BYRADIUS 1 km STOREDIST", 0},
    {"GEOADD g 1 1 7 2 2 b", "GEORADIUS g 1 1 900 km STORE d", 0},
    {"GEOADD g 1 1 7 2 2 b", "GEORADIUSBYMEMBER g b 900 km STOREDIST g", 0},
    {"GEOADD g 1 1 7 2 2 b", "GEODIST g 7 b km", 0},
    {"GEOADD g 1 1 7 2 2 @100", "GEOHASH g 7 b", 0},
    {"GEOADD g 1 1 7 2 2 b", "GEORADIUS_RO g 1 1 900 km WITHHASH", 0},
    {"GEOADD g 1 1 7 2 2 b", "GEORADIUSBYMEMBER_RO g b 900 km DESC COUNT 1", 0},
    /* sorted sets: packed, becoming large, large */
    {NULL, "ZADD z 1 a", 0},
    {NULL, "ZADD z 3 a 1.5 b -inf c 1e17 @40", 0},
    {NULL, "ZADD z 1 a 2 a 3 b", 0},
    {NULL, "ZADD z 1 @100 2 b", 0},
    {"ZADD z 1 a 2 b", "ZADD z 1 a 2 b", 0},
    {"ZADD z 1 a 2 b", "ZADD z 5 a 2 b 7 c 1 @60", 0},
    {"ZADD z 1 a 2 b", "ZADD z 5.25 a", 0},
    {"ZADD z 1 a 2 b", "ZADD z 3 @60", 0},
    {"ZADD z 1 a 2 b", "ZADD z 5 a 3 @100", 0},
    {"ZADD z 1 a 2 @100", "ZADD z 5 a 3 @90 4 c 9 a", 0},
    {"ZADD z 1 a 2 @100", "ZADD z 3 c", 0},
    {"ZADD z 1 a 2 b", "ZADD z XX CH 9 a 1 c", 0},
    {"ZADD z 1 a 2 b", "ZADD z INCR 3 b", 0},
    {"ZADD z 1 a", "ZINCRBY z 2.5 a", 0},
    {NULL, "ZINCRBY z 2.5 a", 0},
    {"ZADD z 1 a 2 @100", "ZINCRBY z 2.5 a", 0},
    {"ZADD z 1 a 2 b 3 @60", "ZREM z a c b", 0},
    {"ZADD z 1 a 2 b 3 @60", "ZREM z @60", 0},
    {"ZADD z 1 a 2 @100", "ZREM z a b", 0},
    {"ZADD z 1 a", "ZREM z a b", 0},
    {"ZADD z 1 a 2 b", "ZCARD z", 0},
    {"ZADD z 1.5 a 2 b", "ZSCORE z a", 0},
    {"ZADD z 1.5 a 2 b", "ZMSCORE z a c b", 0},
    {"ZADD z 1 a 2 b", "ZRANK z b WITHSCORE", 0},
    {"ZADD z 1 a 2 @100", "ZREVRANK z a", 0},
    {"ZADD z 1 a 2 b", "ZCOUNT z (1 5", 0},
    {"ZADD z 1 a 1 b", "ZLEXCOUNT z [a (b", 0},
    {"ZADD z 1 a 2 7 3.5 c", "ZRANGE z 0 -1 WITHSCORES", 0},
    {"ZADD z 1 a 2 @100", "ZREVRANGE z 0 -1 WITHSCORES", 0},
    {"ZADD z 1 a 2 b", "ZRANGEBYSCORE z -inf @300 LIMIT 0 1", SWEEP_ERROR},
    {"ZADD z 1 a 2 b", "ZREVRANGEBYSCORE z 5 (1", 0},
    {"ZADD z 1 a 1 b", "ZRANGEBYLEX z [a +", 0},
    {"ZADD z 1 a 1 b", "ZREVRANGEBYLEX z + [a", 0},
    {"ZADD z 1 a 2 7 3.5 c", "ZRANGESTORE d z 0 1", 0},
    {"ZADD z 1 a 2 @100", "ZRANGESTORE z z 0 0", 0},
    {"ZADD z 1 a 2 @100 3 c|SET d @20", "ZRANGESTORE d z 0 1", 0},
    {"ZADD z 1 a 2 b 3 @60", "ZREMRANGEBYRANK z 0 1", 0},
    {"ZADD z 1 a 2 b 3 @100", "ZREMRANGEBYSCORE z 2 3", 0},
    {"ZADD z 1 a 1 b", "ZREMRANGEBYLEX z - +", 0},
    {"ZADD z 1 a 2 b 3 @60", "ZPOPMIN z 2", 0},
    {"ZADD z 1 a 2 b 3 @60", "ZPOPMAX z", 0},
    {"ZADD z 1 a 2 @100", "ZPOPMIN z 5", 0},
    {"ZADD z 1 a 2 b 3 @60", "ZMPOP 2 nothing z MAX COUNT 1", 0},
    {"ZADD z 1 a 2 b 3 c", "ZRANDMEMBER z 2 WITHSCORES", SWEEP_VOLATILE},
    {"ZADD z 1 a 2 b 3 @100", "ZRANDMEMBER z -5", SWEEP_VOLATILE},
    {"ZADD z 1 a 2.5 7", "ZSCAN z 0 COUNT 100", 0},
    {"ZADD z 1 a 2 @100", "ZSCAN z 0 COUNT 100", SWEEP_VOLATILE},
    {"ZADD y 1 a 2 5|ZADD z 3 a 4 c|SADD s a 5 6", "ZUNION 3 y z s WITHSCORES", 0},
    {"ZADD y 1 a 2 5|ZADD z 3 a 4 5|SADD s a 5 6", "ZINTER 3 y z s WEIGHTS 1 2 3", 0},
    {"ZADD y 1 a 2 5|ZADD z 3 a 4 c", "ZDIFF 2 y z", 0},
    {"ZADD y 1 a 2 5|ZADD z 3 a 4 c", "ZUNIONSTORE y 2 y z AGGREGATE COUNT", 0},
    {"ZADD y 1 a 2 @100|ZADD z 3 a 4 c", "ZUNIONSTORE d 2 y z", 0},
    {"ZADD y 1 a 2 5|ZADD z 3 a 4 c|SET d 1", "ZINTERSTORE d 2 y z", 0},
    {"ZADD y 1 a 2 5|ZADD z 3 a 4 c", "ZDIFFSTORE y 2 y z", 0},
    {"ZADD y 1 a 2 5|ZADD z 3 a 4 c", "ZINTERCARD 2 y z LIMIT 5", 0},
    {"ZADD z 1 a 2 b", "ZEXPIRE z 100 MEMBERS 1 a", 0},
    {"ZADD z 1 a 2 @100", "ZPEXPIRE z 100000 NX MEMBERS 1 a", 0},
    {"ZADD z 1 a 2 b|ZEXPIRE z 100 MEMBERS 1 a", "ZEXPIREAT z 1700009999 MEMBERS 1 b", 0},
    {"ZADD z 1 a 2 b", "ZPEXPIREAT z 1 MEMBERS 1 b", 0},
    {"ZADD z 1 a 2 b|ZEXPIRE z 100 MEMBERS 1 a", "ZADD z 4 a 3 c", 0},
    {"ZADD z 1 a 2 b|ZEXPIRE z 100 MEMBERS 1 a", "ZADD z 4 a 3 @100", 0},
    {"ZADD z 1 a 2 b|ZEXPIRE z 100 MEMBERS 1 a", "ZTTL z MEMBERS 2 a b", 0},
    {"ZADD z 1 a 2 b|ZEXPIRE z 100 MEMBERS 1 a", "ZPTTL z MEMBERS 1 a", 0},
    {"ZADD z 1 a 2 b|ZEXPIRE z 100 MEMBERS 1 a", "ZEXPIRETIME z MEMBERS 1 a", 0},
    {"ZADD z 1 a 2 b|ZEXPIRE z 100 MEMBERS 1 a", "ZPEXPIRETIME z MEMBERS 1 a", 0},
    {"ZADD z 1 a 2 b|ZEXPIRE z 100 MEMBERS 1 a", "ZPERSIST z MEMBERS 2 a b", 0},
    {"ZADD z 1 a 2 @100|ZEXPIRE z 100 MEMBERS 1 a", "ZPERSIST z MEMBERS 1 a", 0},
    /* keys */
    {"SET a 1|SET b @2000|SET c @20 EX 9", "DEL a b c nothing", 0},
    {"SET a 1|SET b @2000|SET c @20 EX 9", "UNLINK a b c nothing", 0},
    {"SET a 1", "EXISTS a a b", 0},
    {"SET a 1|SET b 1", "TOUCH a b c", 0},
    {"SET a 1", "TYPE a", 0},
    {"SET a @990", "EXPIRE a 100", 0},
    {"SET a @990", "PEXPIRE a 100000 NX", 0},
    {"SET a @40 EX 10", "EXPIREAT a 1700009999 GT", 0},
    {"SET a 1", "PEXPIREAT a 1700009999000", 0},
    {"SET a @990", "EXPIRE a -1", 0},
    {"SET a @990 EX 100", "PERSIST a", 0},
    {"SET a 1 EX 100", "TTL a", 0},
    {"SET a 1 EX 100", "PTTL a", 0},
    {"SET a 1 EX 100", "EXPIRETIME a", 0},
    {"SET a 1 EX 100", "PEXPIRETIME a", 0},
    {"SET a @900 EX 100", "RENAME a a-much-longer-name-than-before", 0},
    {"SET a @2000|SET b 1 EX 9", "RENAME a b", 0},
    {"SET a @20", "RENAMENX a b", 0},
    {"SET a @900 EX 100", "COPY a b", 0},
    {"SET a @2000 EX 100", "COPY a b DB 3", 0},
    {"SET a 12|SET b @9000", "COPY a b REPLACE", 0},
    {"SET a @900 EX 100", "MOVE a 2", 0},
    {"fill 50", "KEYS fill:1*", 0},
    {"fill 300", "SCAN 0 COUNT 200", SWEEP_VOLATILE},
    {"fill 50", "SCAN 0 MATCH *3 TYPE string COUNT 1000", SWEEP_VOLATILE},
    {"fill 5", "RANDOMKEY", SWEEP_VOLATILE},
    {"SET a 1", "OBJECT ENCODING a", 0},
    {"SET a 1", "OBJECT FREQ a", SWEEP_ERROR},
    {"SET a 1", "OBJECT IDLETIME a", 0},
    {"SET a 1", "OBJECT REFCOUNT a", 0},
    {NULL, "OBJECT HELP", 0},
    /* databases and the server */
    {"fill 20", "DBSIZE", 0},
    {"fill 20", "FLUSHDB", 0},
    {"fill 20|SELECT 2|SET a 1|SELECT 0", "FLUSHALL SYNC", 0},
    {"fill 20|SELECT 2|SET a 1|SELECT 0", "FLUSHALL ASYNC", SWEEP_CONFIG},
    {"SET a 1|SELECT 1|SET b 2|SELECT 0", "SWAPDB 0 1", 0},
    {NULL, "TIME", 0},
    {NULL, "LOLWUT VERSION 6 9 9", SWEEP_VOLATILE},
    {NULL, "SHUTDOWN NOSAVE", SWEEP_SILENT},
    {NULL, "INFO", SWEEP_VOLATILE},
    {NULL, "INFO everything", SWEEP_VOLATILE},
    {NULL, "CONFIG GET *", 0},
    {NULL, "CONFIG HELP", 0},
    {NULL, "CONFIG SET hz 50 maxclients 100", SWEEP_CONFIG},
    {NULL, "CONFIG SET nonsense 1", SWEEP_CONFIG | SWEEP_ERROR},
    {NULL, "CONFIG REWRITE", SWEEP_CONFIG | SWEEP_ERROR},
    {NULL, "CONFIG RESETSTAT", SWEEP_CONFIG},
    {NULL, "COMMAND", 0},
    {NULL, "COMMAND COUNT", 0},
    {NULL, "COMMAND DOCS get set", 0},
    {NULL, "COMMAND DOCS", 0},
    {NULL, "COMMAND GETKEYS MSET a 1 b 2", 0},
    {NULL, "COMMAND GETKEYSANDFLAGS MSET a 1 b 2", 0},
    {NULL, "COMMAND HELP", 0},
    {NULL, "COMMAND INFO get nosuch client|list", 0},
    {NULL, "COMMAND LIST", 0},
    {NULL, "COMMAND LIST FILTERBY PATTERN g*", 0},
    {"SET a @2000", "MEMORY USAGE a SAMPLES 5", 0},
    {"SET a @2000", "MEMORY STATS", SWEEP_VOLATILE},
    {NULL, "MEMORY DOCTOR", SWEEP_VOLATILE},
    {NULL, "MEMORY HELP", 0},
    {NULL, "MEMORY MALLOC-STATS", SWEEP_VOLATILE},
    {NULL, "MEMORY PURGE", 0},
    {NULL, "SLOWLOG GET 10", 0},
    {NULL, "SLOWLOG LEN", 0},
    {NULL, "SLOWLOG RESET", 0},
    {NULL, "SLOWLOG HELP", 0},
    /* users: a row leaves none behind, but for those that the row before has replaced */
    {NULL, "ACL WHOAMI", 0},
    {NULL, "ACL CAT", 0},
    {NULL, "ACL CAT string", 0},
    {NULL, "ACL GENPASS 100", SWEEP_VOLATILE},
    {NULL, "ACL HELP", 0},
    {NULL, "ACL LOAD", SWEEP_ERROR},
    {NULL, "ACL SAVE", SWEEP_ERROR},
    {"ACL SETUSER u reset", "ACL SETUSER u on >pw ~a* %R~b &c +get +@read +select|0 (~x +@all)",
     SWEEP_CONFIG},
    {"ACL SETUSER u reset", "ACL SETUSER u ~a ~b ~c ~d ~@300 (~a ~b +get ( ~c )", SWEEP_ERROR},
    {"ACL SETUSER u reset", "ACL SETUSER u ( ~a ~@300 +get )", SWEEP_CONFIG},
    {"ACL SETUSER u reset ~k &c +get -get +client (+set ~s)", "ACL SETUSER u +@all", SWEEP_CONFIG},
    {NULL, "ACL SETUSER default >pw nopass", SWEEP_CONFIG},
    {"ACL SETUSER u reset >pw ~k &c +get +client (+set ~s)", "ACL GETUSER u", 0},
    {"ACL SETUSER u reset >pw ~k &c +get +client (+set ~s)", "ACL LIST", 0},
    {"ACL SETUSER u reset +@all ~k*", "ACL USERS", 0},
    {"ACL SETUSER u reset +@all ~k*", "ACL DRYRUN u MSET k1 1 k2 2", 0},
    {"ACL SETUSER u reset +@all ~k*",
     "ACL DRYRUN u EXISTS k1 k2 k3 k4 k5 k6 k7 k8 k9 k10 k11 k12 k13 k14 k15 k16 k17 k18", 0},
    {"ACL SETUSER u reset +@all ~k*", "ACL DRYRUN u GET x", 0},
    {"ACL SETUSER u reset on nopass +@all ~k*|AUTH u x",
     "EXISTS k1 k2 k3 k4 k5 k6 k7 k8 k9 k10 k11 k12 k13 k14 k15 k16 k17 k18", 0},
    {"ACL SETUSER u reset on nopass +@all ~k* &*|AUTH u x", "SET k1 @3000", 0},
    {NULL, "AUTH nobody wrong", SWEEP_ERROR | SWEEP_CONFIG},
    {"ACL LOG RESET", "ACL LOG", 0},
    {"ACL LOG RESET", "ACL LOG RESET", 0},
    {"ACL SETUSER u", "ACL DELUSER u v", 0},
    {NULL, "COMMANDLOG GET 10 slow", 0},
    {NULL, "COMMANDLOG LEN large-reply", 0},
    {NULL, "COMMANDLOG RESET large-request", 0},
    {NULL, "COMMANDLOG HELP", 0},
    {"SET a @2000", "DEBUG OBJECT a", SWEEP_VOLATILE},
    {"SET a @2000", "DEBUG DIGEST", 0},
    {"SET a @2000", "DEBUG DIGEST-VALUE a b", 0},
    {NULL, "DEBUG SLEEP 0", 0},
    /* channels */
    {NULL, "SUBSCRIBE a @900 a b", 0},
    {"SUBSCRIBE a", "SUBSCRIBE b", 0},
    {NULL, "PSUBSCRIBE a* @30", 0},
    {NULL, "SSUBSCRIBE s @3000", 0},
    {"SUBSCRIBE a b", "UNSUBSCRIBE", 0},
    {"PSUBSCRIBE a* b", "PUNSUBSCRIBE b c", 0},
    {"SSUBSCRIBE a b", "SUNSUBSCRIBE c", 0},
    {"HELLO 3|SUBSCRIBE a|PSUBSCRIBE ?", "PUBLISH a @30", 0},
    {"HELLO 3|SUBSCRIBE a|PSUBSCRIBE ?", "PUBLISH a @20000", 0},
    {"HELLO 3|SSUBSCRIBE a", "SPUBLISH a @2000", 0},
    {"HELLO 3|SUBSCRIBE a b", "PUBSUB CHANNELS *", 0},
    {NULL, "PUBSUB NUMPAT", 0},
    {NULL, "PUBSUB NUMSUB a b", 0},
    {NULL, "PUBSUB SHARDCHANNELS", 0},
    {NULL, "PUBSUB SHARDNUMSUB a", 0},
    {NULL, "PUBSUB HELP", 0},
    /* scripts */
    {NULL, "SCRIPT LOAD return(1)", 0},
    {NULL, "EVAL return(ARGV[1]) 1 a @30", 0},
    {NULL, "EVAL return(redis.call('set',KEYS[1],ARGV[1])) 1 a @3000", SWEEP_PARTIAL},
    {"SET a 5", "EVAL_RO return{redis.call('get',KEYS[1]),{1,{2}},'x',false} 1 a", 0},
    {"RPUSH l a b @900 @9000", "EVAL return(redis.call('lrange',KEYS[1],0,-1)) 1 l", 0},
    {"HELLO 3|HSET h f @300", "EVAL redis.setresp(3);return(redis.call('hgetall',KEYS[1])) 1 h", 0},
    {"SET a 5", "EVAL return(cjson.encode({1,2,{a=3}})) 0", 0},
    {NULL, "EVAL return(cmsgpack.unpack(cmsgpack.pack({1,{a=ARGV[1]}}))) 0 @300", 0},
    {NULL, "EVAL return{struct.unpack('>I2sc3',struct.pack('>I2sc3',7,ARGV[1],'abc'))} 0 @300", 0},
    {"SCRIPT LOAD return(redis.call('incr',KEYS[1]))",
     "EVALSHA a79a73d4efb6d4d8861290b54f6770d6422c2144 1 a", SWEEP_PARTIAL},
    {"SCRIPT LOAD return(redis.call('incr',KEYS[1]))",
     "EVALSHA_RO a79a73d4efb6d4d8861290b54f6770d6422c2144 1 a", SWEEP_ERROR},
    {NULL, "EVAL return{err='x'} 0", SWEEP_ERROR},
    {NULL, "EVAL error('x') 0", SWEEP_ERROR},
    {NULL, "EVAL return+ 0", SWEEP_ERROR},
    {NULL, "SCRIPT EXISTS a @40", 0},
    {NULL, "SCRIPT SHOW @40", SWEEP_ERROR},
    {NULL, "SCRIPT KILL", SWEEP_ERROR},
    {NULL, "SCRIPT HELP", 0},
    {NULL, "SCRIPT FLUSH SYNC", 0},
    /* functions */
    {"FUNCTION FLUSH", "FUNCTION LOAD " LIB_WRITES, 0},
    {"FUNCTION FLUSH|FUNCTION LOAD " LIB_WRITES, "FUNCTION LOAD REPLACE " LIB_READS, 0},
    {"FUNCTION FLUSH", "FUNCTION LOAD " LIB_BROKEN, SWEEP_ERROR},
    {"FUNCTION FLUSH|FUNCTION LOAD " LIB_WRITES, "FCALL f 1 a @3000", SWEEP_PARTIAL},
    {"FUNCTION FLUSH|SET a 5|FUNCTION LOAD " LIB_READS, "FCALL_RO G 1 a", 0},
    {"FUNCTION FLUSH|FUNCTION LOAD " LIB_WRITES, "FCALL f 0", SWEEP_ERROR},
    {"FUNCTION FLUSH|FUNCTION LOAD " LIB_WRITES, "FUNCTION LIST LIBRARYNAME * WITHCODE", 0},
    {"FUNCTION FLUSH|FUNCTION LOAD " LIB_WRITES, "FUNCTION DUMP", 0},
    {"FUNCTION FLUSH", "FUNCTION RESTORE " LIB_PAYLOAD " FLUSH", 0},
    {"FUNCTION FLUSH|FUNCTION LOAD " LIB_READS, "FUNCTION RESTORE " LIB_PAYLOAD " REPLACE", 0},
    {"FUNCTION FLUSH|FUNCTION LOAD " LIB_WRITES, "FUNCTION DELETE l", 0},
    {"FUNCTION FLUSH|FUNCTION LOAD " LIB_WRITES, "FUNCTION FLUSH SYNC", 0},
    {NULL, "FUNCTION KILL", SWEEP_ERROR},
    {NULL, "FUNCTION STATS", 0},
    {NULL, "FUNCTION HELP", 0},
    /* connection */
    {NULL, "AUTH default whatever", 0},
    {NULL, "AUTH whatever", SWEEP_ERROR},
    {NULL, "HELLO 3 SETNAME me", SWEEP_VOLATILE},
    {NULL, "PING", 0},
    {NULL, "PING @3000", 0},
    {NULL, "PING @40000", SWEEP_CUT},
    {NULL, "ECHO @9000", 0},
    {NULL, "ECHO @30", SWEEP_CUT},
    {NULL, "SELECT 3", 0},
    {NULL, "QUIT", 0},
    {"MULTI|SET a 1", "RESET", 0},
    {NULL, "CLIENT GETNAME", 0},
    {NULL, "CLIENT HELP", 0},
    {NULL, "CLIENT ID", SWEEP_VOLATILE},
    {"CLIENT SETNAME me", "CLIENT INFO", SWEEP_VOLATILE},
    {"CLIENT SETNAME me", "CLIENT LIST", SWEEP_VOLATILE},
    {NULL, "CLIENT LIST ID 1 2 3", SWEEP_VOLATILE},
    {NULL, "CLIENT KILL ID 999999 LADDR 1.2.3.4:5 SKIPME yes", 0},
    {NULL, "CLIENT NO-EVICT on", 0},
    {NULL, "CLIENT NO-TOUCH on", 0},
    {"HELLO 3", "CLIENT TRACKING ON", 0},
    {"HELLO 3|CLIENT TRACKING ON BCAST PREFIX d", "CLIENT TRACKING ON BCAST PREFIX a PREFIX bcd",
     0},
    {NULL, "CLIENT TRACKING OFF", 0},
    {"HELLO 3|CLIENT TRACKING ON OPTIN", "CLIENT CACHING YES", 0},
    {"CLIENT TRACKING ON BCAST PREFIX a", "CLIENT TRACKINGINFO", 0},
    {NULL, "CLIENT GETREDIR", 0},
    {NULL, "MONITOR", 0},
    {NULL, "CLIENT PAUSE 0", 0},
    {NULL, "CLIENT REPLY ON", 0},
    {NULL, "CLIENT REPLY OFF", SWEEP_SILENT},
    {NULL, "CLIENT SETINFO LIB-NAME @30", 0},
    {NULL, "CLIENT SETNAME @300", 0},
    {NULL, "CLIENT UNPAUSE", 0},
    {NULL, "CLIENT UNBLOCK 1 ERROR", SWEEP_CONFIG},
    {"SET a @50", "DUMP a", SWEEP_VOLATILE},
    {"RPUSH a x @9000", "DUMP a", SWEEP_VOLATILE},
    {NULL, "RESTORE a 0 ^000378797a0a00324bbf22eca7dbd6", 0},
    {"SET a @2000",
     "RESTORE a 100000 ^12010210100000000300816102816202816302ff0a00c818b90c9533529e REPLACE", 0},
    /* hashes */
    {NULL, "HSET h a 1 b @30 c 3", 0},
    {"HSET h a 1 b @30", "HSET h a 2 c @50", 0},
    {"HSET h a 1 b @30", "HSET h a @100", 0},
    {"HSET h a 1", "HSET h @100 1 b 2", 0},
    {"HSET h @100 1", "HSET h a 1 @100 @300 c 3", SWEEP_PARTIAL},
    {NULL, "HMSET h a 1 b @70", 0},
    {"HSET h a 1", "HSETNX h b @70", 0},
    {"HSET h @100 1", "HSETNX h b @70", 0},
    {"HSET h a 1 b @30", "HGET h a", 0},
    {"HSET h a 1 b @30", "HMGET h a c b", 0},
    {"HSET h a 1 b @30", "HGETALL h", 0},
    {"HSET h a 1 b @30", "HKEYS h", 0},
    {"HSET h a 1 @90 @30", "HVALS h", SWEEP_VOLATILE},
    {"HSET h a 1 b @30", "HLEN h", 0},
    {"HSET h a 1 b @30", "HSTRLEN h b", 0},
    {"HSET h a 1 b @30", "HEXISTS h b", 0},
    {"HSET h a 1 b @900", "HDEL h b", 0},
    {"HSET h @100 1 b @30", "HDEL h b @100", 0},
    {"HSET h a 1", "HINCRBY h a 100000000", 0},
    {"HSET h a 1 @90 2", "HINCRBY h b 5", 0},
    {"HSET h a 1.5", "HINCRBYFLOAT h a 0.123456789", 0},
    {"HSET h a 1 b 2 c 3", "HRANDFIELD h 2 WITHVALUES", SWEEP_VOLATILE},
    {"HSET h a 1 b 2 @90 3", "HRANDFIELD h -5", SWEEP_VOLATILE},
    {"HSET h a 1 b 2 c 3", "HSCAN h 0 COUNT 10", 0},
    {"HSET h a 1 b @30", "HEXPIRE h 100 FIELDS 2 a b", 0},
    {"HSET h a 1 @90 2", "HPEXPIRE h 100000 FIELDS 2 a @90", SWEEP_PARTIAL},
    {"HSET h a 1 b 2", "HEXPIREAT h 1 FIELDS 1 a", 0},
    {"HSET h a 1 b 2", "HPEXPIREAT h 1700000900000 NX FIELDS 1 a", 0},
    {"HSET h a 1|HEXPIRE h 100 FIELDS 1 a", "HPERSIST h FIELDS 1 a", 0},
    {"HSET h a 1|HEXPIRE h 100 FIELDS 1 a", "HTTL h FIELDS 1 a", 0},
    {"HSET h a 1|HEXPIRE h 100 FIELDS 1 a", "HPTTL h FIELDS 2 a b", 0},
    {"HSET h a 1|HEXPIRE h 100 FIELDS 1 a", "HEXPIRETIME h FIELDS 1 a", 0},
    {"HSET h a 1|HEXPIRE h 100 FIELDS 1 a", "HPEXPIRETIME h FIELDS 1 a", 0},
    {"HSET h a 1 b 2", "HGETEX h EX 100 FIELDS 2 a b", 0},
    {"HSET h a 1 b 2", "HGETDEL h FIELDS 1 a", 0},
    {"HSET h a 1 b 2", "HSETEX h EX 100 FIELDS 2 a @40 c 3", 0},
    {NULL, "HSETEX h FNX EX 100 FIELDS 2 a @40 c 3", 0},
    {"HSETEX h EX 100 FIELDS 2 a 1 b 2", "HSETEX h KEEPTTL FIELDS 3 b @50 a @9 c @40", 0},
    {"HSETEX h EX 100 FIELDS 2 a 1 b @60", "HSETEX h PX 50 FIELDS 1 b @100", 0},
    {"HSET h a 1 b @60 c @60 d 4", "HDEL h d b none c", 0},
    {"HSET h a 1 b @60 c @60 d 4", "HGETEX h PXAT 1 FIELDS 3 c b c", 0},
    {"HSET h a 1 b 2 c @70", "HGETEX h PERSIST FIELDS 2 a c", 0},
    {"HSETEX h EX 100 FIELDS 2 a 1 b @70", "HGETDEL h FIELDS 2 a b", 0},
    {"HSETEX h EX 100 FIELDS 2 a 1 b 2", "HINCRBYFLOAT h a 0.123456789", 0},
    /* sets */
    {NULL, "SADD s 1 2 3", 0},
    {"SADD s 1 2", "SADD s a @30", 0},
    {"SADD s a", "SADD s @100 b", 0},
    {"SADD s @100", "SADD s a b", SWEEP_PARTIAL},
    {"SADD s 1 2 3", "SREM s 2", 0},
    {"SADD s a b @100", "SREM s a @100", 0},
    {"SADD s a b", "SISMEMBER s a", 0},
    {"SADD s a b", "SMISMEMBER s a c", 0},
    {"SADD s a b", "SCARD s", 0},
    {"SADD s a b 3", "SMEMBERS s", 0},
    {"SADD s a", "SPOP s", 0},
    {"SADD s @100", "SPOP s 2", 0},
    {"SADD s a b c", "SRANDMEMBER s 2", SWEEP_VOLATILE},
    {"SADD s a b @100|SADD t a", "SMOVE s t b", 0},
    {"SADD s a b @100|SADD t a b", "SINTER s t", SWEEP_VOLATILE},
    {"SADD s a b @100|SADD t a b", "SINTERSTORE u s t", 0},
    {"SADD s a b|SADD t a b", "SINTERCARD 2 s t", 0},
    {"SADD s 1 2|SADD t 2 3", "SUNION s t", SWEEP_VOLATILE},
    {"SADD s 1 2|SADD t a", "SUNIONSTORE u s t", 0},
    {"SADD s 1 2|SADD t a", "SUNIONCARD 2 s t", 0},
    {"SADD s 1 2|SADD t 2", "SDIFF s t", SWEEP_VOLATILE},
    {"SADD s 1 2|SADD t 2", "SDIFFSTORE u s t", 0},
    {"SADD s 1 2|SADD t 2", "SDIFFCARD 2 s t", 0},
    {"SADD s a b c", "SSCAN s 0", 0},
    {"SADD s a b", "SEXPIRE s 100 MEMBERS 2 a b", SWEEP_SHAPE | SWEEP_PARTIAL},
    {"SADD s 1 2", "SPEXPIRE s 100000 MEMBERS 1 1", SWEEP_SHAPE},
    {"SADD s a @100", "SEXPIREAT s 1 MEMBERS 1 a", 0},
    {"SADD s a @100", "SPEXPIREAT s 1700000900000 MEMBERS 1 a", 0},
    {"SADD s a|SEXPIRE s 100 MEMBERS 1 a", "SPERSIST s MEMBERS 1 a", 0},
    {"SADD s a|SEXPIRE s 100 MEMBERS 1 a", "STTL s MEMBERS 1 a", 0},
    {"SADD s a|SEXPIRE s 100 MEMBERS 1 a", "SPTTL s MEMBERS 1 a", 0},
    {"SADD s a|SEXPIRE s 100 MEMBERS 1 a", "SEXPIRETIME s MEMBERS 1 a", 0},
    {"SADD s a|SEXPIRE s 100 MEMBERS 1 a", "SPEXPIRETIME s MEMBERS 1 a", 0},
    /* HyperLogLog */
    {NULL, "PFADD p a b c", 0},
    {"PFADD p a b c", "PFADD p d e f", 0},
    {"PFADD p a b c", "PFCOUNT p", 0},
    {"PFADD p a|PFADD q b", "PFCOUNT p q", 0},
    {"PFADD p a|PFADD q b", "PFMERGE p q", 0},
    {"PFADD p a", "PFDEBUG ENCODING p", 0},
    {NULL, "PFSELFTEST", 0},
    {NULL, "RESTORE-ASKING a 0 ^000378797a0a00324bbf22eca7dbd6", 0},
    /* without who saves */
    {NULL, "SAVE", SWEEP_ERROR},
    {NULL, "BGSAVE", SWEEP_ERROR},
    {NULL, "BGREWRITEAOF", SWEEP_ERROR},
    {NULL, "LASTSAVE", SWEEP_ERROR},
    {NULL, "WAITAOF 0 0 0", 0},
    {NULL, "MIGRATE 127.0.0.1 1 a 0 100", 0},
    {"SET a 1", "MIGRATE 127.0.0.1 1 a 0 x", SWEEP_ERROR},
    /* places */
    {NULL, "GEOADD g 13.36 38.11 a 15.08 37.50 b", 0},
    {"GEOADD g 13.36 38.11 a", "GEOPOS g a x", 0},
    {"GEOADD g 13.36 38.11 a 15.08 37.50 b", "GEODIST g a b km", 0},
    {"GEOADD g 13.36 38.11 a", "GEOHASH g a", 0},
    {"GEOADD g 13.36 38.11 a 15.08 37.50 b",
     "GEOSEARCH g FROMLONLAT 15 37 BYRADIUS 200 km ASC WITHCOORD WITHDIST", 0},
    {"GEOADD g 13.36 38.11 a 15.08 37.50 b",
     "GEOSEARCHSTORE h g FROMMEMBER a BYBOX 400 400 km ASC COUNT 1", 0},
    {"GEOADD g 13.36 38.11 a 15.08 37.50 b", "GEORADIUS g 15 37 200 km WITHDIST STORE h",
     SWEEP_ERROR},
    {"GEOADD g 13.36 38.11 a 15.08 37.50 b", "GEORADIUS g 15 37 200 km STORE h", 0},
    {"GEOADD g 13.36 38.11 a 15.08 37.50 b", "GEORADIUS_RO g 15 37 200 km", 0},
    {"GEOADD g 13.36 38.11 a 15.08 37.50 b", "GEORADIUSBYMEMBER g a 200 km ASC", 0},
    {"GEOADD g 13.36 38.11 a 15.08 37.50 b", "GEORADIUSBYMEMBER_RO g a 200 km", 0},
    /* what would block finds something */
    {"RPUSH a 1 2 3", "BLPOP b a 0", 0},
    {"RPUSH a 1 2 3", "BRPOP b a 0", 0},
    {"RPUSH a 1 2 3", "BLMPOP 0 2 b a LEFT COUNT 2", 0},
    {"RPUSH a 1 2 3", "BLMOVE a b LEFT RIGHT 0", 0},
    {"RPUSH a 1 2 3|RPUSH b 1", "BRPOPLPUSH a b 0", 0},
    {"RPUSH a 1 2 3", "BLMOVEM a b LEFT RIGHT 0 COUNT 2 BULK", 0},
    {"ZADD a 1 x 2 y", "BZPOPMIN b a 0", 0},
    {"ZADD a 1 x 2 y", "BZPOPMAX b a 0", 0},
    {"ZADD a 1 x 2 y", "BZMPOP 0 2 b a MAX COUNT 2", 0},
    /* transactions */
    {NULL, "MULTI", 0},
    {NULL, "EXEC", SWEEP_ERROR},
    {"MULTI", "SET a @20", SWEEP_TX},
    {"MULTI|SET a 1|SET a 2|SET a 3|SET a 4|SET a 5|SET a 6|SET a 7|SET a 8", "SET a @3000",
     SWEEP_TX},
    {"MULTI|SET a 1|INCR a", "EXEC", SWEEP_TX},
    {"MULTI|SET a @2000|MGET a b c d|MSET b 1 c @2000|DEL a b|COPY c d|APPEND d @4000", "EXEC",
     SWEEP_TX},
    {"WATCH a b|MULTI|SET a @2000|SCAN 0|DBSIZE", "EXEC", SWEEP_TX},
    {"WATCH a b|SET a 1|MULTI|SET a @2000", "EXEC", SWEEP_TX},
    {"MULTI|SET a 1", "DISCARD", 0},
    {NULL, "WATCH a b c d e f g", SWEEP_TX},
    {"WATCH a b c d", "WATCH e", SWEEP_TX},
    {"WATCH a b c d", "UNWATCH", 0},
    /* The threshold is for these rows: others would note their slow commands. */
    {"CONFIG SET latency-monitor-threshold 1|DEBUG SLEEP 0.002", "LATENCY DOCTOR", SWEEP_VOLATILE},
    {"DEBUG SLEEP 0.002", "LATENCY GRAPH command", SWEEP_VOLATILE},
    {NULL, "LATENCY HISTOGRAM set get", SWEEP_VOLATILE},
    {"DEBUG SLEEP 0.002", "LATENCY HISTORY command", SWEEP_VOLATILE},
    {"DEBUG SLEEP 0.002", "LATENCY LATEST", SWEEP_VOLATILE},
    {NULL, "LATENCY RESET command", SWEEP_VOLATILE},
    {"CONFIG SET latency-monitor-threshold 0", "LATENCY HELP", 0},
    /* hot keys: what is refused is counted nevertheless */
    {NULL, "HOTKEYS HELP", 0},
    {NULL, "HOTKEYS GET", 0},
    {NULL, "HOTKEYS START METRICS 2 CPU NET COUNT 3", 0},
    {"HOTKEYS START METRICS 1 NET|SET a 1|HOTKEYS STOP", "HOTKEYS START METRICS 2 CPU NET", 0},
    {"HOTKEYS START METRICS 2 CPU NET|MGET a b c", "HOTKEYS GET", SWEEP_VOLATILE},
    {"HOTKEYS START METRICS 2 CPU NET|MGET a b c|HOTKEYS STOP", "HOTKEYS GET", SWEEP_VOLATILE},
    {"HOTKEYS START METRICS 2 CPU NET|MGET a b c", "HOTKEYS STOP", 0},
    {"HOTKEYS START METRICS 2 CPU NET|MGET a b c|HOTKEYS STOP", "HOTKEYS RESET", 0},
    {"HOTKEYS START METRICS 2 CPU NET", "SET a @2000", SWEEP_CONFIG},
    {"HOTKEYS START METRICS 2 CPU NET|SET a 1", "MGET a b c d", SWEEP_CONFIG},
    /* last, since from here on a new connection would have to authenticate */
    {NULL, "CONFIG SET requirepass @300", SWEEP_CONFIG},
};

static struct kv_engine *engine;
static struct kv_worker *worker;
static struct kv_client *client;
static struct kv_config *config;
static struct kv_stream_reader *reader;
static struct library_bytes request, reply, expected;
static uint8_t covered[1024];
static uint64_t failures; /* allocations that were made to fail */

/* --- what must be the same after a failure --- */

struct state {
    uint8_t digest[20];
    int64_t used[KV_MEM_OWNER_COUNT];
    uint64_t watched;
    uint32_t flags, db;
    uint8_t resp;
    int queued, watches;
    struct kv_library_counts functions;
};

static void digest_of(uint8_t out[20])
{
    struct kv_store_stats stats = {0};
    struct kv_view view = {.store = kv_engine_store(engine), .stats = &stats, .now_ms = NOW_MS};
    kv_store_digest(&view, out);
    kv_store_check(kv_engine_store(engine));
}

static struct state state_now(void)
{
    struct state s = {.watched = kv_store_watched_keys(kv_engine_store(engine)),
                      .flags = client->flags,
                      .db = client->db,
                      .resp = client->resp,
                      .queued = kv_client_multi_length(client),
                      .watches = kv_client_watch_count(client),
                      .functions = kv_library_counts(engine)};
    digest_of(s.digest);
    for (int owner = 0; owner < KV_MEM_OWNER_COUNT; owner++)
        s.used[owner] = kv_mem_used((enum kv_mem_owner)owner);
    /* Free chunks of the worker's pool are nobody's. */
    s.used[KV_MEM_CLIENT_OUTPUT] -=
        (int64_t)worker->chunks.count * (int64_t)kv_mem_block_size(KV_CHUNK_BYTES);
    return s;
}

/* Workers keep their arenas and stream buffers; scripts that are known stay so, with what their
 * interpreter has not collected yet; a time index may keep nodes that it took for a
 * record which had to go again. */
static void assert_memory_same(const struct state *a, const struct state *b, const char *what)
{
    for (int owner = 0; owner < KV_MEM_OWNER_COUNT; owner++) {
        int64_t grown = b->used[owner] - a->used[owner];
        if (owner == KV_MEM_ARENA || owner == KV_MEM_STREAM || owner == KV_MEM_SCRIPT)
            continue;
        if (owner == KV_MEM_EXPIRY)
            ck_assert_msg(grown >= 0 && grown <= 3 * 512, "%s: %lld bytes", what, (long long)grown);
        else
            ck_assert_msg(grown == 0, "%s: %s grew by %lld bytes", what,
                          kv_mem_owner_name((enum kv_mem_owner)owner), (long long)grown);
    }
}

static void assert_same(const struct state *a, const struct state *b, const char *what)
{
    ck_assert_msg(memcmp(a->digest, b->digest, sizeof(a->digest)) == 0, "%s: keyspace changed",
                  what);
    ck_assert_msg(a->watched == b->watched && a->watches == b->watches, "%s: watches", what);
    ck_assert_msg(a->flags == b->flags, "%s: flags %x to %x", what, a->flags, b->flags);
    ck_assert_msg(a->db == b->db && a->resp == b->resp, "%s: connection", what);
    ck_assert_msg(a->queued == b->queued, "%s: queue", what);
    ck_assert_msg(a->functions.libraries == b->functions.libraries &&
                      a->functions.functions == b->functions.functions,
                  "%s: functions", what);
    assert_memory_same(a, b, what);
}

/* --- requests --- */

/* "^00ff" is a word of the bytes 00 and ff. */
static void add_bytes(const char *digits, size_t len)
{
    char header[32];
    library_append(&request, header, (size_t)sprintf(header, "$%zu\r\n", len / 2));
    for (size_t i = 0; i < len; i += 2) {
        char pair[3] = {digits[i], digits[i + 1], '\0'};
        char byte = (char)strtoul(pair, NULL, 16);
        library_append(&request, &byte, 1);
    }
    library_append(&request, "\r\n", 2);
}

static void add_word(const char *word, size_t len)
{
    char header[32];
    if (len > 1 && word[0] == '^') {
        add_bytes(word + 1, len - 1);
        return;
    }
    size_t size = len;
    bool made = len > 1 && word[0] == '@' && word[1] >= '0' && word[1] <= '9';
    if (made)
        size = strtoul(word + 1, NULL, 10);
    library_append(&request, header, (size_t)sprintf(header, "$%zu\r\n", size));
    if (!made)
        library_append(&request, word, len);
    for (size_t i = 0; made && i < size; i++)
        library_append(&request, "abcdefg" + i % 7, 1);
    library_append(&request, "\r\n", 2);
}

/* Puts [line, line + len) into `request`. */
static void compose(const char *line, size_t len)
{
    char header[32];
    const char *end = line + len;
    int argc = 1;
    for (const char *p = line; p < end; p++)
        argc += *p == ' ';
    library_clear(&request);
    library_append(&request, header, (size_t)sprintf(header, "*%d\r\n", argc));
    for (const char *p = line; p < end;) {
        const char *space = memchr(p, ' ', (size_t)(end - p));
        const char *word_end = space != NULL ? space : end;
        add_word(p, (size_t)(word_end - p));
        p = word_end + (space != NULL);
    }
}

static void send_line(const char *line, size_t len)
{
    compose(line, len);
    library_clear(&reply);
    kv_client_feed(client, request.bytes, request.len);
    library_take(client, &reply);
}

static void fill(unsigned long count)
{
    char line[64];
    for (unsigned long i = 0; i < count; i++)
        send_line(line, (size_t)sprintf(line, "SET fill:%lu @%lu", i, i % 50));
}

static void prepare(const char *setup)
{
    for (const char *p = setup; p != NULL && *p != '\0';) {
        size_t len = strcspn(p, "|");
        if (strncmp(p, "fill ", 5) == 0) {
            fill(strtoul(p + 5, NULL, 10));
        } else {
            send_line(p, len);
            ck_assert_msg(reply.len > 0 && reply.bytes[0] != '-', "%.*s: %s", (int)len, p,
                          reply.bytes);
        }
        p += len + (p[len] == '|');
    }
}

static void note_covered(const char *line)
{
    const char *space = strchr(line, ' ');
    size_t len = space != NULL ? (size_t)(space - line) : strlen(line);
    const struct kv_command *cmd = kv_engine_command(engine, kv_slice(line, len));
    ck_assert_msg(cmd != NULL, "no such command: %s", line);
    if (cmd->sub_count > 0 && space != NULL) {
        const struct kv_command *sub =
            kv_command_sub(cmd, kv_slice(space + 1, strcspn(space + 1, " ")));
        cmd = sub != NULL ? sub : cmd;
    }
    covered[cmd->id] = 1;
}

/* --- one run --- */

static void end_hotkeys(void)
{
    if (kv_hotkeys_active(engine))
        kv_hotkeys_stop(worker);
    kv_hotkeys_release(engine);
}

/* An empty keyspace, a fresh connection, prepared. */
static void renew(const struct sweep *s)
{
    end_hotkeys();
    kv_client_destroy(client);
    kv_worker_poll(worker, 0);
    library_background_wait(engine);
    library_flush(engine);
    client = kv_client_create_virtual(worker);
    client->flags |= KV_CLIENT_AUTHENTICATED;
    prepare(s->setup);
}

static size_t drain_stream(void)
{
    static char bytes[1 << 16];
    size_t sum = 0, n;
    while ((n = kv_stream_read(reader, bytes, sizeof(bytes))) > 0)
        sum += n;
    ck_assert(!kv_stream_lapsed(reader));
    return sum;
}

/* Runs the line with try allocation n failing (0: none); tells how many there were. */
static uint64_t run(const struct sweep *s, uint64_t n)
{
    compose(s->line, strlen(s->line));
    library_clear(&reply);
    size_t cut = s->flags & SWEEP_CUT ? request.len - 5 : request.len;
    kv_mem_fail_try(n);
    kv_client_feed(client, request.bytes, cut);
    if (cut < request.len)
        kv_client_feed(client, request.bytes + cut, request.len - cut);
    uint64_t tries = kv_mem_fail_try(0);
    library_take(client, &reply);
    ck_assert_uint_eq(atomic_load(&engine->stream.promised), 0);
    ck_assert_uint_eq(atomic_load(&worker->inside), 0);
    ck_assert(!worker->locks.held);
    if (!(client->flags & KV_CLIENT_MULTI) && s->flags & SWEEP_SILENT)
        client->flags &= ~(uint32_t)KV_CLIENT_REPLY_OFF;
    return tries;
}

static void check_reference(const struct sweep *s)
{
    if (s->flags & SWEEP_SILENT)
        ck_assert_msg(reply.len == 0, "%s: %s", s->line, reply.bytes);
    else
        ck_assert_msg(reply.len > 0 && (reply.bytes[0] == '-') == ((s->flags & SWEEP_ERROR) != 0),
                      "%s: %s", s->line, reply.bytes);
}

static bool same_as_reference(const struct sweep *s, const uint8_t digest[20])
{
    uint8_t now[20];
    digest_of(now);
    if (memcmp(now, digest, sizeof(now)) != 0)
        return false;
    if (s->flags & SWEEP_VOLATILE)
        return reply.len > 0 && reply.bytes[0] == expected.bytes[0];
    return reply.len == expected.len &&
           (reply.len == 0 || memcmp(reply.bytes, expected.bytes, reply.len) == 0);
}

/* Judges a run in which allocation n failed. */
static void check_failure(const struct sweep *s, uint64_t n, const struct state *before,
                          const uint8_t digest[20])
{
    char what[256];
    snprintf(what, sizeof(what), "%s%s%s, failure %llu, reply %.60s",
             s->setup != NULL ? s->setup : "", s->setup != NULL ? " then " : "", s->line,
             (unsigned long long)n, reply.len > 0 ? reply.bytes : "(none)");
    bool refused = reply.len > 0 && reply.bytes[0] == '-' && !(s->flags & SWEEP_ERROR);
    bool closed = (client->flags & KV_CLIENT_CLOSE_AFTER) != 0;
    size_t written = drain_stream();
    if (!refused && same_as_reference(s, digest))
        return;
    if (s->flags & (SWEEP_PARTIAL | SWEEP_TX)) {
        struct state now = state_now();
        ck_assert_msg(reply.len > 0 && strstr(reply.bytes, "memory") != NULL, "%s: no error", what);
        bool changed = memcmp(now.digest, before->digest, sizeof(now.digest)) != 0;
        /* The replies of EXEC are an array: those of its commands that failed changed nothing. */
        ck_assert_msg(!changed || s->flags & SWEEP_PARTIAL || reply.bytes[0] == '*',
                      "%s: keyspace changed", what);
        ck_assert_msg(changed == (written > 0), "%s: %zu bytes in the stream", what, written);
        return;
    }
    if (s->flags & SWEEP_ERROR)
        refused = reply.len > 0 && reply.bytes[0] == '-';
    ck_assert_msg(refused, "%s: neither an error nor a success", what);
    ck_assert_msg(strstr(reply.bytes, "memory") != NULL, "%s: another error", what);
    ck_assert_msg(written == 0, "%s: %zu bytes in the stream", what, written);
    struct state after = state_now();
    if (closed) /* a request that cannot be collected ends its connection */
        after.flags = before->flags;
    if (s->flags & (SWEEP_CONFIG | SWEEP_SHAPE))
        memcpy(after.used, before->used, sizeof(after.used));
    assert_same(before, &after, what);
}

static void sweep(const struct sweep *s)
{
    uint8_t digest[20];
    renew(s);
    note_covered(s->line);
    run(s, 0);
    check_reference(s);
    digest_of(digest);
    library_clear(&expected);
    library_append(&expected, reply.bytes, reply.len);
    for (uint64_t n = 1; n < RUNS_MAX; n++) {
        renew(s);
        drain_stream();
        struct state before = state_now();
        uint64_t tries = run(s, n);
        if (tries < n) {
            ck_assert_msg(same_as_reference(s, digest),
                          "%s: differs when nothing failed: %.80s instead of %.80s", s->line,
                          reply.len > 0 ? reply.bytes : "(none)",
                          expected.len > 0 ? expected.bytes : "(none)");
            return;
        }
        failures++;
        check_failure(s, n, &before, digest);
    }
    ck_abort_msg("%s: more than %d allocations", s->line, RUNS_MAX);
}

/* --- the tests --- */

static const uint32_t thread_counts[] = {1, 2};
static const char config_text[] = "enable-debug-command yes\n"
                                  "slowlog-log-slower-than -1\n";

static void start(uint32_t threads)
{
    struct kv_options options;
    struct kv_text message;
    kv_text_init(&message);
    kv_options_default(&options);
    config = kv_config_create();
    ck_assert_msg(kv_config_load_text(config, kv_slice_cstr(config_text), "sweep", &message) ==
                      KV_OK,
                  "%s", kv_text_cstr(&message));
    kv_text_release(&message);
    kv_config_fill(config, &options);
    options.threads = threads;
    options.stream_ring_bytes = 4 << 20;
    kv_clock_set_fake_ms(NOW_MS);
    kv_log_set_level(KV_LOG_NOTHING);
    engine = kv_engine_create(&options, &kv_command_table);
    kv_config_attach(config, engine);
    reader = kv_stream_open(engine);
    worker = kv_engine_worker(engine, 0);
    kv_worker_attach(worker);
    client = kv_client_create_virtual(worker);
}

static void stop(void)
{
    kv_client_destroy(client);
    library_background_wait(engine);
    library_flush(engine);
    ck_assert_int_eq(kv_mem_used_dataset(), 0);
    ck_assert_int_eq(kv_mem_used(KV_MEM_WATCH), 0);
    ck_assert_int_eq(kv_mem_used(KV_MEM_CLIENT), 0);
    ck_assert_int_eq(kv_mem_used(KV_MEM_CLIENT_INPUT), 0);
    kv_stream_close(reader);
    kv_worker_detach(worker);
    kv_engine_destroy(engine);
    kv_config_destroy(config);
    library_release(&request);
    library_release(&reply);
    library_release(&expected);
}

static void assert_covered(const struct kv_command *list, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (list[i].fn != NULL)
            ck_assert_msg(covered[list[i].id], "no row runs %s", list[i].full_name);
        assert_covered(list[i].subs, list[i].sub_count);
    }
}

START_TEST(every_command_survives_every_failure)
{
    start(thread_counts[_i]);
    ck_assert_uint_le(kv_command_table.id_count, KV_ARRAY_LEN(covered));
    for (size_t i = 0; i < KV_ARRAY_LEN(sweeps); i++)
        sweep(&sweeps[i]);
    assert_covered(kv_command_table.commands, kv_command_table.command_count);
    printf("%llu failures with %u workers\n", (unsigned long long)failures, thread_counts[_i]);
#ifdef KV_DEBUG
    ck_assert_uint_gt(failures, KV_ARRAY_LEN(sweeps));
#else
    ck_assert_uint_eq(failures, 0);
#endif
    stop();
}
END_TEST

/* MIGRATE replies when its thread has come back from a port where nobody listens; what fails may be
 * the command, or the turn in which it takes the values. */
START_TEST(a_migration_survives_every_failure)
{
    static const struct sweep s = {"SET a @3000|RPUSH b 1 2 3|HSET c f @900|SET d 5 EX 100",
                                   "MIGRATE 127.0.0.1 1  0 100000 AUTH2 user password KEYS a b c d",
                                   0};
    int refusals = 0;
    start(thread_counts[_i]);
    for (uint64_t n = 0; n < RUNS_MAX; n++) {
        renew(&s);
        drain_stream();
        struct state before = state_now();
        compose(s.line, strlen(s.line));
        library_clear(&reply);
        kv_mem_fail_try(n);
        kv_client_feed(client, request.bytes, request.len);
        while (kv_out_pending(&client->out) == 0)
            kv_worker_poll(worker, 1);
        uint64_t tries = kv_mem_fail_try(0);
        library_take(client, &reply);
        kv_worker_poll(worker, 0);
        bool failed = n > 0 && n <= tries;
        bool refused = strstr(reply.bytes, "-OOM ") != NULL;
        refusals += refused;
        /* Without memory for compressing, values go as they are. */
        ck_assert_msg(refused ? failed : strstr(reply.bytes, "-IOERR ") != NULL, "failure %llu: %s",
                      (unsigned long long)n, reply.bytes);
        ck_assert_uint_eq(drain_stream(), 0);
        struct state after = state_now();
        if (n > 0) /* in the first run the thread began */
            assert_same(&before, &after, reply.bytes);
        if (n > 0 && !failed) {
#ifdef KV_DEBUG
            ck_assert_int_gt(refusals, 10);
#endif
            break;
        }
    }
    stop();
}
END_TEST

/* In one keyspace, so that tables, segments and indexes grow on the way. */
START_TEST(a_growing_keyspace_survives_every_failure)
{
    static const char *const forms[] = {"SET g%d @%d PX %d", "APPEND g%d @%d",
                                        "SETRANGE g%d %d x%d", "SET g%d @%d", "PEXPIRE g%d 9%d%d"};
    start(thread_counts[_i]);
    for (int i = 0; i < UNIT_ROUNDS(1200); i++) {
        char line[128];
        int len = snprintf(line, sizeof(line), forms[i % 5], i / 2 + i % 3, i * 37 % 400,
                           1000 + i * 7919 % 5000);
        for (uint64_t n = 1;; n++) {
            struct state before = state_now();
            kv_mem_fail_try(n);
            send_line(line, (size_t)len);
            if (kv_mem_fail_try(0) < n)
                break;
            failures++;
            if (reply.bytes[0] == '-') {
                struct state after = state_now();
                assert_same(&before, &after, line);
            }
        }
        ck_assert_msg(reply.bytes[0] != '-', "%s: %s", line, reply.bytes);
        drain_stream();
    }
    stop();
}
END_TEST

int main(void)
{
    struct unit u;
    kv_mem_init();
    kv_clock_init();
    unit_begin(&u, "failure sweep");
    tcase_add_loop_test(u.tcase, every_command_survives_every_failure, 0,
                        (int)KV_ARRAY_LEN(thread_counts));
    tcase_add_loop_test(u.tcase, a_migration_survives_every_failure, 0,
                        (int)KV_ARRAY_LEN(thread_counts));
    tcase_add_loop_test(u.tcase, a_growing_keyspace_survives_every_failure, 0,
                        (int)KV_ARRAY_LEN(thread_counts));
    return unit_run(&u);
}
