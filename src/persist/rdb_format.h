/* Numbers of the RDB format, as files of Redis 1 to 8 and Valkey 7 to 9 and DUMP payloads use them.
 * docs/persistence.md describes the format and which version brought what. */
#ifndef KV_PERSIST_RDB_FORMAT_H
#define KV_PERSIST_RDB_FORMAT_H

/* What a value's type byte says. */
enum kv_rdb_type {
    KV_RDB_STRING = 0,
    KV_RDB_LIST = 1,
    KV_RDB_SET = 2,
    KV_RDB_ZSET_TEXT = 3, /* scores as text */
    KV_RDB_HASH = 4,
    KV_RDB_ZSET = 5, /* scores as doubles */
    KV_RDB_MODULE_OLD = 6,
    KV_RDB_MODULE = 7,
    KV_RDB_HASH_ZIPMAP = 9,
    KV_RDB_LIST_ZIPLIST = 10,
    KV_RDB_SET_INTSET = 11,
    KV_RDB_ZSET_ZIPLIST = 12,
    KV_RDB_HASH_ZIPLIST = 13,
    KV_RDB_LIST_QUICKLIST = 14, /* nodes that are ziplists */
    KV_RDB_STREAM = 15,
    KV_RDB_HASH_LISTPACK = 16,
    KV_RDB_ZSET_LISTPACK = 17,
    KV_RDB_LIST_QUICKLIST_2 = 18, /* nodes that are listpacks or single items */
    KV_RDB_STREAM_2 = 19,
    KV_RDB_SET_LISTPACK = 20,
    KV_RDB_STREAM_3 = 21,
    KV_RDB_HASH_DUE_EARLY = 22,          /* candidates of Redis 7.4: absolute times */
    KV_RDB_HASH_DUE_VALKEY = 22,         /* Valkey 9: another form of the same number */
    KV_RDB_HASH_LISTPACK_DUE_EARLY = 23, /* candidates of Redis 7.4 */
    KV_RDB_HASH_DUE = 24,                /* times relative to the first */
    KV_RDB_HASH_LISTPACK_DUE = 25,
    KV_RDB_STREAM_4 = 26,
    KV_RDB_STREAM_5 = 27,
    KV_RDB_ARRAY = 28,
    /* Ours, far from what others number upwards: only for members with due times, which no other
     * server has. Redis and Valkey refuse the number. */
    KV_RDB_SET_DUE = 176,
    KV_RDB_ZSET_DUE = 177,
};

/* What stands in the place of a type byte and is none. */
enum kv_rdb_opcode {
    KV_RDB_OP_KEY_META = 243,    /* Redis 8.6; in Valkey's files SLOT_IMPORT */
    KV_RDB_OP_SLOT_IMPORT = 243, /* Valkey 9 */
    KV_RDB_OP_SLOT_INFO = 244,
    KV_RDB_OP_FUNCTION2 = 245,
    KV_RDB_OP_FUNCTION = 246, /* candidates of Redis 7 */
    KV_RDB_OP_MODULE_AUX = 247,
    KV_RDB_OP_IDLE = 248,
    KV_RDB_OP_FREQ = 249,
    KV_RDB_OP_AUX = 250,
    KV_RDB_OP_RESIZEDB = 251,
    KV_RDB_OP_EXPIRETIME_MS = 252,
    KV_RDB_OP_EXPIRETIME = 253,
    KV_RDB_OP_SELECTDB = 254,
    KV_RDB_OP_EOF = 255,
};

/* A length's first two bits, and the strings that are announced in the place of a length. */
enum kv_rdb_len_form {
    KV_RDB_LEN_6 = 0,
    KV_RDB_LEN_14 = 1,
    KV_RDB_LEN_WIDE = 2, /* 0x80: 32 bits, 0x81: 64 bits, big-endian */
    KV_RDB_LEN_SPECIAL = 3,
};

enum kv_rdb_special {
    KV_RDB_SPECIAL_INT8 = 0,
    KV_RDB_SPECIAL_INT16 = 1,
    KV_RDB_SPECIAL_INT32 = 2,
    KV_RDB_SPECIAL_LZF = 3,
};

/* A node of KV_RDB_LIST_QUICKLIST_2. */
enum kv_rdb_container {
    KV_RDB_CONTAINER_PLAIN = 1,
    KV_RDB_CONTAINER_PACKED = 2,
};

/* What comes before each part of a module's value. */
enum kv_rdb_module_opcode {
    KV_RDB_MODULE_EOF = 0,
    KV_RDB_MODULE_SINT = 1,
    KV_RDB_MODULE_UINT = 2,
    KV_RDB_MODULE_FLOAT = 3,
    KV_RDB_MODULE_DOUBLE = 4,
    KV_RDB_MODULE_STRING = 5,
};

#define KV_RDB_VERSION_MIN 10 /* what we write: loaded by Redis 7.0 and newer, and by Valkey */
#define KV_RDB_VERSION_MAX 14 /* Redis 8.8 */
#define KV_RDB_VERSION_DUE 12 /* Redis 7.4: fields of hashes with due times */
#define KV_RDB_VALKEY_MIN 80  /* Valkey 9; its files begin with VALKEY instead of REDIS0 */
#define KV_RDB_VALKEY_MAX 80

#endif
