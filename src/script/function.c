/* All libraries, and the functions in them.
 *
 * They form a set: a list of libraries by name, and an index of functions, which is a table of
 * pointers with open addressing whose size is a power of two and at least twice their number. A set
 * never changes. Whoever adds or removes libraries makes the next set beside it, and what may fail
 * comes before the two are exchanged: code that does not load, names that are taken, memory. So a
 * change is whole or has not been, RESTORE of many libraries too, and what is replaced serves until
 * then. A change costs time in the number of all functions, which calls never do.
 *
 * Rejected: one interpreter with EVAL, which SCRIPT FLUSH frees while libraries stay; an
 * interpreter for each library, since an empty one has 40 KiB.
 */
#include "script/function.h"
#include "base/glob.h"
#include "engine/client.h"
#include "engine/engine.h"
#include "engine/monitor.h"
#include "proto/reply.h"
#include "script/library_priv.h"
#include "script/shebang.h"
#include <stdio.h>
#include <string.h>

#define SHOWN 100 /* bytes of a name that an error repeats */

struct set {
    struct kv_library **libraries; /* by name */
    uint32_t count, room;          /* libraries, and how many the list has room for */
    struct kv_function **index;    /* NULL: free slot */
    uint32_t capacity;             /* of the index: a power of two, or 0 */
    uint32_t function_count;
};

struct functions {
    struct kv_lua *lua; /* NULL until it is needed */
    struct set set;
};

/* --- sets --- */

static void free_set(struct set *s)
{
    kv_mem_free(s->libraries, s->room * sizeof(struct kv_library *), KV_MEM_SCRIPT);
    kv_mem_free(s->index, s->capacity * sizeof(struct kv_function *), KV_MEM_SCRIPT);
    *s = (struct set){0};
}

static struct kv_library *find_library(const struct set *s, struct kv_slice name)
{
    uint32_t low = 0, high = s->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        int order = kv_slice_compare(s->libraries[middle]->name, name);
        if (order == 0)
            return s->libraries[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

/* The slot of a name, or the free one where it belongs. */
static struct kv_function **slot_of(const struct set *s, struct kv_slice name, uint32_t hash)
{
    uint32_t i = hash & (s->capacity - 1);
    while (s->index[i] != NULL &&
           (s->index[i]->hash != hash || !kv_function_names_equal(s->index[i]->name, name)))
        i = (i + 1) & (s->capacity - 1);
    return &s->index[i];
}

static const struct kv_function *find_function(const struct set *s, struct kv_slice name)
{
    return s->capacity == 0 ? NULL : *slot_of(s, name, kv_function_hash(name));
}

static bool reserve(struct set *s, uint32_t libraries, uint32_t functions)
{
    uint32_t capacity = 8;
    while (capacity < functions * 2)
        capacity *= 2;
    s->libraries = kv_mem_try_alloc(libraries * sizeof(struct kv_library *), KV_MEM_SCRIPT);
    s->room = s->libraries != NULL ? libraries : 0;
    s->index = kv_mem_try_zalloc(capacity * sizeof(struct kv_function *), KV_MEM_SCRIPT);
    s->capacity = s->index != NULL ? capacity : 0;
    return s->room > 0 && s->capacity > 0;
}

/* Into a set with room. False: a function's name is taken, which is the error. */
static bool put(struct set *s, struct kv_library *lib, char error[KV_LIBRARY_ERROR_MAX])
{
    uint32_t at = s->count;
    for (struct kv_function *f = lib->first; f != NULL; f = f->next) {
        struct kv_function **slot = slot_of(s, f->name, f->hash);
        if (*slot != NULL) {
            snprintf(error, KV_LIBRARY_ERROR_MAX, "ERR Function %.*s already exists",
                     (int)KV_MIN(f->name.len, (size_t)SHOWN), f->name.ptr);
            return false;
        }
        *slot = f;
    }
    while (at > 0 && kv_slice_compare(s->libraries[at - 1]->name, lib->name) > 0) {
        s->libraries[at] = s->libraries[at - 1];
        at--;
    }
    KV_ASSERT(s->count < s->room);
    s->libraries[at] = lib;
    s->count++;
    s->function_count += lib->function_count;
    return true;
}

static const struct kv_library *find_added(const struct kv_library *added, struct kv_slice name)
{
    while (added != NULL && !kv_slice_equal(added->name, name))
        added = added->next;
    return added;
}

/* Makes the set of the old one, but for libraries whose names are among the added ones, and of
 * these. False: why not, in `error`, and there is no new set. */
static bool build(struct set *next, const struct set *old, struct kv_library *added,
                  char error[KV_LIBRARY_ERROR_MAX])
{
    uint32_t libraries = old->count, functions = old->function_count;
    bool fine = true;
    for (const struct kv_library *lib = added; lib != NULL; lib = lib->next) {
        libraries++;
        functions += lib->function_count;
    }
    *next = (struct set){0};
    if (libraries == 0)
        return true;
    if (!reserve(next, libraries, functions)) {
        snprintf(error, KV_LIBRARY_ERROR_MAX, KV_LUA_NO_MEMORY);
        fine = false;
    }
    for (uint32_t i = 0; i < old->count && fine; i++)
        if (find_added(added, old->libraries[i]->name) == NULL)
            fine = put(next, old->libraries[i], error);
    for (struct kv_library *lib = added; lib != NULL && fine; lib = lib->next)
        fine = put(next, lib, error);
    if (!fine)
        free_set(next);
    return fine;
}

/* The next set takes the place of the old one; what is not in it goes. */
static void exchange(struct kv_engine *e, struct functions *f, struct set *next)
{
    struct set old = f->set;
    f->set = *next;
    for (uint32_t i = 0; i < old.count; i++)
        if (find_library(next, old.libraries[i]->name) != old.libraries[i])
            kv_library_destroy(old.libraries[i], f->lua);
    free_set(&old);
    kv_library_note_counts(e, (struct kv_library_counts){next->count, next->function_count});
}

/* --- the state --- */

static void free_libraries(struct functions *f)
{
    for (uint32_t i = 0; i < f->set.count; i++)
        kv_library_destroy(f->set.libraries[i], NULL);
    free_set(&f->set);
}

static void destroy(void *functions)
{
    struct functions *f = functions;
    free_libraries(f);
    if (f->lua != NULL)
        kv_lua_destroy(f->lua);
    kv_mem_free(f, sizeof(*f), KV_MEM_SCRIPT);
}

static struct functions *kept(const struct kv_engine *e)
{
    return kv_script_kept(e, KV_SCRIPT_OF_FUNCTIONS);
}

/* With an interpreter; NULL: out of memory. */
static struct functions *functions_of(struct kv_engine *e)
{
    struct functions *f = kept(e);
    if (f == NULL) {
        f = kv_mem_try_zalloc(sizeof(*f), KV_MEM_SCRIPT);
        if (f == NULL)
            return NULL;
        kv_script_keep(e, KV_SCRIPT_OF_FUNCTIONS, f, destroy);
    }
    if (f->lua == NULL)
        f->lua = kv_lua_create_for_functions();
    if (f->lua == NULL)
        return NULL;
    kv_lua_set_limit(f->lua, e);
    return f;
}

/* --- changes --- */

static bool no_memory(char error[KV_LIBRARY_ERROR_MAX])
{
    snprintf(error, KV_LIBRARY_ERROR_MAX, KV_LUA_NO_MEMORY);
    return false;
}

static bool name_is_taken(struct kv_slice name, const char *format,
                          char error[KV_LIBRARY_ERROR_MAX])
{
    int len = (int)KV_MIN(name.len, (size_t)SHOWN);
    snprintf(error, KV_LIBRARY_ERROR_MAX, "ERR Library %s%.*s%s already exists", format, len,
             name.ptr, format);
    return false;
}

static bool add_one(struct kv_engine *e, struct kv_slice text, bool replace, bool limited,
                    struct kv_slice *name, char error[KV_LIBRARY_ERROR_MAX])
{
    struct kv_slice code;
    struct set next;
    struct functions *f = functions_of(e);
    if (f == NULL)
        return no_memory(error);
    if (!kv_library_read_head(text, name, &code, error))
        return false;
    if (!replace && find_library(&f->set, *name) != NULL)
        return name_is_taken(*name, "'", error);
    struct kv_library *lib = kv_library_create(f->lua, text, *name, code, limited, error);
    if (lib == NULL)
        return false;
    if (!build(&next, &f->set, lib, error)) {
        kv_library_destroy(lib, f->lua);
        return false;
    }
    exchange(e, f, &next);
    return true;
}

bool kv_function_load(struct kv_call *call, struct kv_slice code, bool replace)
{
    char error[KV_LIBRARY_ERROR_MAX];
    struct kv_slice name;
    bool limited = !(call->client->flags & KV_CLIENT_APPLY);
    if (!add_one(call->engine, code, replace, limited, &name, error)) {
        kv_call_error(call, error);
        return false;
    }
    kv_reply_slice(call->out, name);
    return true;
}

static void destroy_added(struct kv_library *added, struct kv_lua *lua)
{
    while (added != NULL) {
        struct kv_library *next = added->next;
        kv_library_destroy(added, lua);
        added = next;
    }
}

/* Makes the libraries of all codes. False: why not, in `error`; those before it are in `added`. */
static bool create_all(struct functions *f, const struct kv_slice *codes, uint32_t count,
                       bool limited, struct kv_library **added, char error[KV_LIBRARY_ERROR_MAX])
{
    struct kv_slice name, code;
    struct kv_library **last = added;
    for (uint32_t i = 0; i < count; i++) {
        if (!kv_library_read_head(codes[i], &name, &code, error))
            return false;
        if (find_added(*added, name) != NULL)
            return name_is_taken(name, "'", error);
        *last = kv_library_create(f->lua, codes[i], name, code, limited, error);
        if (*last == NULL)
            return false;
        last = &(*last)->next;
    }
    return true;
}

static bool add_all(struct kv_engine *e, const struct kv_slice *codes, uint32_t count,
                    enum kv_function_policy policy, bool limited, char error[KV_LIBRARY_ERROR_MAX])
{
    const struct set none = {0};
    struct kv_library *added = NULL;
    struct set next;
    struct functions *f = functions_of(e);
    if (f == NULL)
        return no_memory(error);
    bool fine = create_all(f, codes, count, limited, &added, error);
    if (policy == KV_FUNCTION_APPEND)
        for (const struct kv_library *lib = added; lib != NULL && fine; lib = lib->next)
            if (find_library(&f->set, lib->name) != NULL)
                fine = name_is_taken(lib->name, "", error);
    fine = fine && build(&next, policy == KV_FUNCTION_FLUSH ? &none : &f->set, added, error);
    if (fine)
        exchange(e, f, &next);
    else
        destroy_added(added, f->lua);
    return fine;
}

bool kv_function_restore(struct kv_call *call, const struct kv_slice *codes, uint32_t count,
                         enum kv_function_policy policy)
{
    char error[KV_LIBRARY_ERROR_MAX];
    bool limited = !(call->client->flags & KV_CLIENT_APPLY);
    if (add_all(call->engine, codes, count, policy, limited, error))
        return true;
    kv_call_error(call, error);
    return false;
}

/* The set without one of its libraries. */
static bool build_without(struct set *next, const struct set *old, const struct kv_library *gone,
                          char error[KV_LIBRARY_ERROR_MAX])
{
    *next = (struct set){0};
    if (old->count == 1)
        return true;
    if (!reserve(next, old->count - 1, old->function_count - gone->function_count)) {
        free_set(next);
        return no_memory(error);
    }
    for (uint32_t i = 0; i < old->count; i++) {
        bool fine = old->libraries[i] == gone || put(next, old->libraries[i], error);
        KV_ASSERT(fine);
    }
    return true;
}

bool kv_function_delete(struct kv_call *call, struct kv_slice name)
{
    char error[KV_LIBRARY_ERROR_MAX];
    struct functions *f = kept(call->engine);
    struct set next;
    struct kv_library *lib = f != NULL ? find_library(&f->set, name) : NULL;
    if (lib == NULL) {
        kv_call_error(call, "ERR Library not found");
        return false;
    }
    if (!build_without(&next, &f->set, lib, error)) {
        kv_call_error(call, error);
        return false;
    }
    exchange(call->engine, f, &next);
    return true;
}

void kv_function_flush(struct kv_engine *e, bool async)
{
    struct functions *f = kept(e);
    if (f == NULL)
        return;
    free_libraries(f);
    kv_library_note_counts(e, (struct kv_library_counts){0});
    if (f->lua != NULL)
        kv_lua_drop(e, f->lua, async);
    f->lua = NULL;
}

/* --- looking --- */

static void reply_flags(struct kv_out *out, uint32_t flags)
{
    const char *name;
    kv_reply_set(out, (size_t)__builtin_popcount(flags));
    for (uint32_t i = 0; (name = kv_shebang_flag_name(i)) != NULL; i++)
        if (flags & 1u << i)
            kv_reply_text(out, name);
}

static void reply_library(struct kv_out *out, const struct kv_library *lib, bool with_code)
{
    kv_reply_map(out, with_code ? 4 : 3);
    kv_reply_text(out, "library_name");
    kv_reply_slice(out, lib->name);
    kv_reply_text(out, "engine");
    kv_reply_text(out, "LUA");
    kv_reply_text(out, "functions");
    kv_reply_array(out, lib->function_count);
    for (const struct kv_function *f = lib->first; f != NULL; f = f->next) {
        kv_reply_map(out, 3);
        kv_reply_text(out, "name");
        kv_reply_slice(out, f->name);
        kv_reply_text(out, "description");
        if (f->description.ptr != NULL)
            kv_reply_slice(out, f->description);
        else
            kv_reply_null(out);
        kv_reply_text(out, "flags");
        reply_flags(out, f->flags);
    }
    if (!with_code)
        return;
    kv_reply_text(out, "library_code");
    kv_reply_slice(out, lib->code);
}

void kv_function_list(struct kv_call *call, const struct kv_slice *pattern, bool with_code)
{
    const struct functions *f = kept(call->engine);
    struct kv_chunk *token = kv_out_deferred_begin(call->out);
    size_t count = 0;
    for (uint32_t i = 0; f != NULL && i < f->set.count; i++) {
        const struct kv_library *lib = f->set.libraries[i];
        if (pattern != NULL && !kv_glob_match(*pattern, lib->name, true))
            continue;
        reply_library(call->out, lib, with_code);
        count++;
    }
    kv_reply_array_end(call->out, token, count);
}

void kv_function_figures_read(const struct kv_engine *e, struct kv_function_figures *out)
{
    const struct functions *f = kept(e);
    *out = (struct kv_function_figures){0};
    if (f == NULL)
        return;
    const struct set *s = &f->set;
    out->libraries = s->count;
    out->functions = s->function_count;
    out->vm_bytes = f->lua != NULL ? f->lua->used_bytes : 0;
    out->cache_bytes =
        s->room * sizeof(struct kv_library *) + s->capacity * sizeof(struct kv_function *);
    for (uint32_t i = 0; i < s->count; i++)
        out->cache_bytes += kv_library_bytes(s->libraries[i]);
}

/* --- calling --- */

void kv_function_call(struct kv_call *call, bool read_only)
{
    struct functions *f = kept(call->engine);
    struct kv_lua_task task = {0};
    if (KV_UNLIKELY(kv_monitor_active(call->worker))) /* before what it runs, also when it fails */
        kv_monitor_show(call->client, call->cmd, call->argv, call->argc);
    const struct kv_function *fn = f != NULL ? find_function(&f->set, call->argv[1]) : NULL;
    if (fn == NULL) {
        kv_call_error(call, "ERR Function not found");
        return;
    }
    if (!kv_lua_key_count(call, "ERR Bad number of keys provided", &task.key_count) ||
        !kv_lua_judge_flags(call, fn->flags, read_only, &task.flags))
        return;
    task.function = fn->callback;
    task.name = fn->name;
    task.flags |= KV_SCRIPT_IS_FUNCTION;
    kv_lua_set_limit(f->lua, call->engine);
    kv_lua_run(call, f->lua, &task);
}

/* --- for whoever saves and loads --- */

static bool load(struct kv_engine *e, struct kv_slice code, bool replace,
                 char error[KV_LIBRARY_ERROR_MAX])
{
    struct kv_slice name;
    return add_one(e, code, replace, false, &name, error);
}

static bool each(struct kv_engine *e, bool (*fn)(void *arg, struct kv_slice code), void *arg)
{
    const struct functions *f = kept(e);
    for (uint32_t i = 0; f != NULL && i < f->set.count; i++)
        if (!fn(arg, f->set.libraries[i]->code))
            return false;
    return true;
}

static void clear(struct kv_engine *e)
{
    kv_function_flush(e, false);
}

const struct kv_library_ops kv_function_library_ops = {.load = load, .each = each, .clear = clear};
