/* EVAL and EVALSHA: known scripts. The run of one is in run.c.
 *
 * Known scripts are records found by their digest in a table of pointers with open addressing,
 * whose size is a power of two and at least twice the number of records. A record has the text, and
 * a reference by which the interpreter keeps the compiled function. Those that EVAL brought are in
 * a list by last use, so that programs that build their scripts from values do not fill the memory.
 *
 * Rejected: to compile a script anew for each call (parsing costs ten times what a small script
 * does), and to forget the functions of scripts when memory is short (Lua's own limit bounds them).
 */
#include "base/sha1.h"
#include "engine/client.h"
#include "engine/engine.h"
#include "engine/monitor.h"
#include "proto/reply.h"
#include "script/lua_priv.h"
#include "script/script.h"
#include "script/shebang.h"
#include <stdio.h>

#define NO_SCRIPT "NOSCRIPT No matching script. Please use EVAL."

struct known {
    char digest[KV_SHA1_HEX];
    bool evictable; /* in the list below */
    uint32_t flags; /* enum kv_shebang_flags */
    int function;   /* reference in the interpreter */
    char *text;     /* owned; text_len + 1 bytes */
    size_t text_len;
    struct known *newer, *older; /* by last use */
};

struct scripts {
    struct kv_lua *lua;   /* NULL until it is needed */
    struct known **table; /* NULL: free slot */
    uint32_t capacity;    /* power of two, or 0 */
    uint32_t count;
    uint32_t evictable_count;
    struct known *newest, *oldest;
    uint64_t text_bytes;
    uint64_t evicted;
};

/* --- the state --- */

static void free_known(struct scripts *s)
{
    for (uint32_t i = 0; i < s->capacity; i++) {
        struct known *k = s->table[i];
        if (k == NULL)
            continue;
        kv_mem_free(k->text, k->text_len + 1, KV_MEM_SCRIPT);
        kv_mem_free(k, sizeof(*k), KV_MEM_SCRIPT);
    }
    kv_mem_free(s->table, s->capacity * sizeof(struct known *), KV_MEM_SCRIPT);
    s->table = NULL;
    s->capacity = s->count = s->evictable_count = 0;
    s->newest = s->oldest = NULL;
    s->text_bytes = 0;
}

static void destroy(void *scripts)
{
    struct scripts *s = scripts;
    free_known(s);
    if (s->lua != NULL)
        kv_lua_destroy(s->lua);
    kv_mem_free(s, sizeof(*s), KV_MEM_SCRIPT);
}

/* With an interpreter; NULL: out of memory. */
static struct scripts *scripts_of(struct kv_engine *e)
{
    struct scripts *s = kv_script_kept(e, KV_SCRIPT_OF_EVAL);
    if (KV_UNLIKELY(s == NULL)) {
        s = kv_mem_try_zalloc(sizeof(*s), KV_MEM_SCRIPT);
        if (s == NULL)
            return NULL;
        kv_script_keep(e, KV_SCRIPT_OF_EVAL, s, destroy);
    }
    if (KV_UNLIKELY(s->lua == NULL))
        s->lua = kv_lua_create();
    if (s->lua == NULL)
        return NULL;
    kv_lua_set_limit(s->lua, e);
    return s;
}

/* --- known scripts --- */

static uint32_t first_slot(const struct scripts *s, const char *digest)
{
    return (uint32_t)(kv_load_word(digest) * 0x9e3779b97f4a7c15ull >> 32) & (s->capacity - 1);
}

/* The slot of a digest, or the free one where it belongs. */
static uint32_t slot_of(const struct scripts *s, const char *digest)
{
    uint32_t i = first_slot(s, digest);
    while (s->table[i] != NULL && memcmp(s->table[i]->digest, digest, KV_SHA1_HEX) != 0)
        i = (i + 1) & (s->capacity - 1);
    return i;
}

static struct known *find(const struct scripts *s, const char *digest)
{
    return s->capacity == 0 ? NULL : s->table[slot_of(s, digest)];
}

static void unlink_known(struct scripts *s, struct known *k)
{
    if (k->newer != NULL)
        k->newer->older = k->older;
    else
        s->newest = k->older;
    if (k->older != NULL)
        k->older->newer = k->newer;
    else
        s->oldest = k->newer;
    s->evictable_count--;
}

static void link_newest(struct scripts *s, struct known *k)
{
    k->newer = NULL;
    k->older = s->newest;
    if (s->newest != NULL)
        s->newest->newer = k;
    else
        s->oldest = k;
    s->newest = k;
    s->evictable_count++;
}

static void touch(struct scripts *s, struct known *k)
{
    if (!k->evictable || s->newest == k)
        return;
    unlink_known(s, k);
    link_newest(s, k);
}

/* Records behind the free slot that would not be found any more move up. */
static void close_gap(struct scripts *s, uint32_t gap)
{
    uint32_t mask = s->capacity - 1;
    for (uint32_t i = (gap + 1) & mask; s->table[i] != NULL; i = (i + 1) & mask) {
        uint32_t home = first_slot(s, s->table[i]->digest);
        if (((i - home) & mask) < ((i - gap) & mask))
            continue;
        s->table[gap] = s->table[i];
        s->table[i] = NULL;
        gap = i;
    }
}

static void forget(struct scripts *s, struct known *k)
{
    uint32_t slot = slot_of(s, k->digest);
    KV_ASSERT(s->table[slot] == k);
    if (k->evictable)
        unlink_known(s, k);
    kv_lua_unref(s->lua, k->function);
    s->table[slot] = NULL;
    close_gap(s, slot);
    s->count--;
    s->text_bytes -= kv_mem_block_size(k->text_len + 1) + kv_mem_block_size(sizeof(*k));
    kv_mem_free(k->text, k->text_len + 1, KV_MEM_SCRIPT);
    kv_mem_free(k, sizeof(*k), KV_MEM_SCRIPT);
}

static bool reserve(struct scripts *s)
{
    uint32_t capacity = s->capacity == 0 ? 64 : s->capacity * 2;
    if ((s->count + 1) * 2 <= s->capacity)
        return true;
    struct known **old = s->table;
    uint32_t old_capacity = s->capacity;
    struct known **table = kv_mem_try_zalloc(capacity * sizeof(*table), KV_MEM_SCRIPT);
    if (table == NULL)
        return false;
    s->table = table;
    s->capacity = capacity;
    for (uint32_t i = 0; i < old_capacity; i++)
        if (old[i] != NULL)
            s->table[slot_of(s, old[i]->digest)] = old[i];
    kv_mem_free(old, old_capacity * sizeof(*old), KV_MEM_SCRIPT);
    return true;
}

static struct known *make_known(const char *digest, struct kv_slice text)
{
    struct known *k = kv_mem_try_zalloc(sizeof(*k), KV_MEM_SCRIPT);
    char *copy = kv_mem_try_alloc(text.len + 1, KV_MEM_SCRIPT);
    if (k == NULL || copy == NULL) {
        if (k != NULL)
            kv_mem_free(k, sizeof(*k), KV_MEM_SCRIPT);
        kv_mem_free(copy, text.len + 1, KV_MEM_SCRIPT);
        return NULL;
    }
    memcpy(k->digest, digest, KV_SHA1_HEX);
    if (text.len > 0)
        memcpy(copy, text.ptr, text.len);
    copy[text.len] = '\0';
    k->text = copy;
    k->text_len = text.len;
    return k;
}

struct compiling {
    struct kv_slice code;
    int function; /* result */
};

static int compile_protected(lua_State *l)
{
    struct compiling *c = lua_touserdata(l, 1);
    if (kv_lua_load(l, c->code, "@user_script") != 0)
        return lua_error(l);
    c->function = luaL_ref(l, LUA_REGISTRYINDEX);
    return 0;
}

/* Makes a script known. NULL: the error is replied. */
static struct known *add(struct kv_call *call, struct scripts *s, const char *digest,
                         struct kv_slice text, bool evictable)
{
    char error[KV_SHEBANG_ERROR_MAX];
    struct kv_shebang shebang;
    if (!kv_shebang_read(text, &shebang, error)) {
        kv_call_error(call, error);
        return NULL;
    }
    struct known *k = make_known(digest, text);
    if (k == NULL || !reserve(s)) {
        if (k != NULL) {
            kv_mem_free(k->text, k->text_len + 1, KV_MEM_SCRIPT);
            kv_mem_free(k, sizeof(*k), KV_MEM_SCRIPT);
        }
        kv_call_no_memory(call);
        return NULL;
    }
    struct compiling c = {.code = shebang.code};
    lua_State *l = s->lua->main;
    if (lua_cpcall(l, compile_protected, &c) != 0) {
        const char *why = lua_tostring(l, -1);
        kv_call_errorf(call, "ERR Error compiling script (new function): %s",
                       why != NULL ? why : "?");
        lua_settop(l, 0);
        kv_mem_free(k->text, k->text_len + 1, KV_MEM_SCRIPT);
        kv_mem_free(k, sizeof(*k), KV_MEM_SCRIPT);
        return NULL;
    }
    k->function = c.function;
    k->flags = shebang.flags;
    k->evictable = evictable;
    s->table[slot_of(s, digest)] = k;
    s->count++;
    s->text_bytes += kv_mem_block_size(text.len + 1) + kv_mem_block_size(sizeof(*k));
    if (evictable) {
        link_newest(s, k);
        if (s->evictable_count > KV_SCRIPT_EVALS_MAX) {
            forget(s, s->oldest);
            s->evicted++;
        }
    }
    return k;
}

/* --- commands --- */

static bool read_digest(struct kv_slice text, char digest[KV_SHA1_HEX])
{
    if (text.len != KV_SHA1_HEX)
        return false;
    for (size_t i = 0; i < KV_SHA1_HEX; i++)
        digest[i] =
            text.ptr[i] >= 'A' && text.ptr[i] <= 'Z' ? (char)(text.ptr[i] + 32) : text.ptr[i];
    return true;
}

void kv_script_eval(struct kv_call *call, bool by_digest, bool read_only)
{
    char digest[KV_SHA1_HEX];
    int key_count;
    uint32_t flags;
    struct kv_slice text = call->argv[1];
    if (KV_UNLIKELY(kv_monitor_active(call->worker))) /* before what it runs, also when it fails */
        kv_monitor_show(call->client, call->cmd, call->argv, call->argc);
    if (by_digest && !read_digest(text, digest)) {
        kv_call_error(call, NO_SCRIPT);
        return;
    }
    if (!kv_lua_key_count(call, "ERR value is not an integer or out of range", &key_count))
        return;
    if (!by_digest)
        kv_sha1_hex(text.ptr, text.len, digest);
    struct scripts *s = scripts_of(call->engine);
    if (s == NULL) {
        kv_call_no_memory(call);
        return;
    }
    struct known *k = find(s, digest);
    if (k == NULL && by_digest) {
        kv_call_error(call, NO_SCRIPT);
        return;
    }
    if (k == NULL && (k = add(call, s, digest, text, true)) == NULL)
        return;
    touch(s, k);
    if (!kv_lua_judge_flags(call, k->flags, read_only, &flags))
        return;
    struct kv_lua_task task = {
        .function = k->function,
        .name = kv_slice(k->digest, KV_SHA1_HEX),
        .key_count = key_count,
        .flags = flags,
    };
    kv_lua_run(call, s->lua, &task);
}

bool kv_script_load(struct kv_call *call, struct kv_slice text, char digest[40])
{
    struct scripts *s = scripts_of(call->engine);
    if (s == NULL) {
        kv_call_no_memory(call);
        return false;
    }
    kv_sha1_hex(text.ptr, text.len, digest);
    struct known *k = find(s, digest);
    if (k == NULL)
        k = add(call, s, digest, text, false);
    else if (k->evictable) {
        unlink_known(s, k);
        k->evictable = false;
    }
    return k != NULL;
}

bool kv_script_find(struct kv_engine *e, struct kv_slice name, struct kv_slice *text)
{
    char digest[KV_SHA1_HEX];
    const struct scripts *s = kv_script_kept(e, KV_SCRIPT_OF_EVAL);
    if (s == NULL || !read_digest(name, digest))
        return false;
    const struct known *k = find(s, digest);
    if (k != NULL)
        *text = kv_slice(k->text, k->text_len);
    return k != NULL;
}

void kv_script_flush(struct kv_engine *e, bool async)
{
    struct scripts *s = kv_script_kept(e, KV_SCRIPT_OF_EVAL);
    if (s == NULL)
        return;
    struct kv_lua *lua = s->lua;
    free_known(s);
    s->lua = NULL;
    if (lua != NULL)
        kv_lua_drop(e, lua, async);
}

void kv_script_figures_read(const struct kv_engine *e, struct kv_script_figures *out)
{
    const struct scripts *s = kv_script_kept(e, KV_SCRIPT_OF_EVAL);
    *out = (struct kv_script_figures){0};
    if (s == NULL)
        return;
    out->scripts = s->count;
    out->evicted = s->evicted;
    out->vm_bytes = s->lua != NULL ? s->lua->used_bytes : 0;
    out->cache_bytes = s->text_bytes + s->capacity * sizeof(struct known *);
}
