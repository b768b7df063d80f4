/* The configuration: values and what they do.
 *
 * values[i] belongs to kv_directives[i] and is always parsed: at creation from the default, later
 * from a file, an argument or CONFIG SET. struct kv_options is derived from the values by
 * kv_config_fill, so there is one truth and no field can be forgotten: most fields are bound in the
 * table by offset, the few that are not plain copies are filled by hand in fill_special.
 *
 * CONFIG SET works in three steps: parse every pair into a staged value; do what may be refused
 * from outside (open files, entering a folder); then swap all values, which cannot fail, and derive
 * the options again. So it is all or nothing.
 *
 * Threads: one at a time, see the header. Workers read struct kv_options between their stop points
 * and never look in here.
 *
 * Rejected: a setter per directive with an undo (two code paths for each, one of them never run);
 * reference-counted snapshots of the options (CONFIG SET stops the world anyway).
 */
#include "admin/config_priv.h"

#include "admin/cores.h"
#include "base/log.h"
#include "engine/acl.h"
#include "engine/notify.h"
#include "persist/aof.h"
#include "persist/save.h"
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <sys/resource.h>
#include <syslog.h>
#include <unistd.h>

#define ARENA_BYTES 4096
#define FILES_BESIDE_CLIENTS 32

/* --- life cycle --- */

static void parse_initial(const struct kv_directive *d, struct kv_config_value *out)
{
    struct kv_arena arena;
    struct kv_reason reason;
    struct kv_slice word = kv_slice_cstr(d->initial);
    struct kv_words words = {&word, 1};
    kv_arena_init(&arena, ARENA_BYTES, KV_MEM_CONFIG);
    bool fine = kv_directive_parse(d, &arena, &words, NULL, out, &reason);
    kv_arena_release(&arena);
    if (!fine)
        kv_panic("default of directive %s: %s", d->name, reason.text);
}

struct kv_config *kv_config_create(void)
{
    struct kv_config *c = kv_mem_zalloc(sizeof(*c), KV_MEM_CONFIG);
    c->values = kv_mem_zalloc(kv_directive_count * sizeof(*c->values), KV_MEM_CONFIG);
    c->origins =
        kv_mem_zalloc(kv_directive_count * sizeof(struct kv_config_origin *), KV_MEM_CONFIG);
    for (uint32_t i = 0; i < kv_directive_count; i++)
        parse_initial(&kv_directives[i], &c->values[i]);
    return c;
}

void kv_config_destroy(struct kv_config *c)
{
    for (uint32_t i = 0; i < kv_directive_count; i++) {
        kv_config_value_release(&c->values[i]);
        if (c->origins[i] != NULL)
            kv_mem_free(c->origins[i], c->origins[i]->block_size, KV_MEM_CONFIG);
    }
    for (uint32_t i = 0; i < c->user_count; i++)
        kv_mem_free(c->users[i], c->users[i]->block_size, KV_MEM_CONFIG);
    kv_mem_free(c->users, c->user_capacity * sizeof(struct kv_config_origin *), KV_MEM_CONFIG);
    kv_mem_free(c->values, kv_directive_count * sizeof(*c->values), KV_MEM_CONFIG);
    kv_mem_free(c->origins, kv_directive_count * sizeof(struct kv_config_origin *), KV_MEM_CONFIG);
    kv_mem_free(c->bind_names, c->bind_names_size, KV_MEM_CONFIG);
    if (c->file != NULL)
        kv_mem_free(c->file, strlen(c->file) + 1, KV_MEM_CONFIG);
    kv_mem_free(c, sizeof(*c), KV_MEM_CONFIG);
}

void kv_config_take_value(struct kv_config *c, uint32_t index, struct kv_config_value *value)
{
    KV_ASSERT(index < kv_directive_count);
    kv_config_value_release(&c->values[index]);
    c->values[index] = *value;
    *value = (struct kv_config_value){0};
}

/* --- reading --- */

static uint32_t index_of(const char *name)
{
    int index = kv_directive_find(kv_slice_cstr(name));
    KV_ASSERT(index >= 0);
    return (uint32_t)index;
}

int64_t kv_config_number(const struct kv_config *c, const char *name)
{
    uint32_t index = index_of(name);
    KV_ASSERT(c->values[index].text == NULL);
    return c->values[index].number;
}

const char *kv_config_text(const struct kv_config *c, const char *name)
{
    uint32_t index = index_of(name);
    KV_ASSERT(c->values[index].text != NULL);
    return c->values[index].text;
}

bool kv_config_given(const struct kv_config *c, const char *name)
{
    return c->origins[index_of(name)] != NULL;
}

const char *kv_config_file_path(const struct kv_config *c)
{
    return c->file == NULL ? "" : c->file;
}

void kv_config_print(const struct kv_config *c, uint32_t index, struct kv_text *out)
{
    KV_ASSERT(index < kv_directive_count);
    kv_directive_print(&kv_directives[index], &c->values[index], out);
}

/* --- options --- */

static void fill_field(const struct kv_directive *d, const struct kv_config_value *v, char *field)
{
    if (d->type == KV_DIR_TEXT || d->flags & KV_DIR_ENUM_TEXT) {
        const char *text = d->type == KV_DIR_TEXT ? v->text : d->names[v->number];
        KV_ASSERT(d->width == sizeof(text));
        memcpy(field, &text, sizeof(text));
    } else if (d->width == sizeof(bool)) {
        bool flag = v->number != 0;
        memcpy(field, &flag, sizeof(flag));
    } else if (d->width == sizeof(uint32_t)) {
        KV_ASSERT(v->number >= 0);
        uint32_t number = (uint32_t)KV_MIN(v->number, (int64_t)UINT32_MAX);
        memcpy(field, &number, sizeof(number));
    } else {
        KV_ASSERT(d->width == sizeof(v->number));
        memcpy(field, &v->number, sizeof(v->number));
    }
}

static void fill_bind(struct kv_config *c, struct kv_options *o)
{
    const char *text = kv_config_text(c, "bind");
    size_t size = strlen(text) + 1;
    kv_mem_free(c->bind_names, c->bind_names_size, KV_MEM_CONFIG);
    c->bind_names = kv_mem_strdup(text, size - 1, KV_MEM_CONFIG);
    c->bind_names_size = size;
    o->bind_count = 0;
    char *save = NULL;
    for (char *name = strtok_r(c->bind_names, " ", &save); name != NULL;
         name = strtok_r(NULL, " ", &save)) {
        KV_ASSERT(o->bind_count < KV_BIND_MAX);
        o->bind[o->bind_count++] = name;
    }
}

static uint32_t thread_count(struct kv_config *c)
{
    const char *text = kv_config_text(c, "threads");
    if (strcmp(text, "auto") != 0) {
        int64_t count = 0;
        bool fine = kv_int_parse(kv_slice_cstr(text), &count);
        KV_ASSERT(fine && count >= 1 && count <= KV_THREADS_MAX);
        return (uint32_t)count;
    }
    if (c->cores == 0)
        c->cores = kv_cores_available();
    return KV_MIN(c->cores, (uint32_t)KV_THREADS_MAX);
}

static void fill_save_points(struct kv_config *c, struct kv_options *o)
{
    const char *text = kv_config_text(c, "save");
    long long seconds;
    unsigned long long changes;
    int read;
    o->save_point_count = 0;
    while (o->save_point_count < KV_SAVE_POINTS_MAX &&
           sscanf(text, "%lld %llu%n", &seconds, &changes, &read) == 2) {
        o->save_points[o->save_point_count++] = (struct kv_save_point){seconds, changes};
        text += read;
    }
}

static void fill_special(struct kv_config *c, struct kv_options *o)
{
    static const uint32_t facility_codes[] = {LOG_USER,   LOG_LOCAL0, LOG_LOCAL1,
                                              LOG_LOCAL2, LOG_LOCAL3, LOG_LOCAL4,
                                              LOG_LOCAL5, LOG_LOCAL6, LOG_LOCAL7};
    const struct kv_directive *policy = &kv_directives[index_of("maxmemory-policy")];
    o->threads = thread_count(c);
    o->syslog_facility = facility_codes[kv_config_number(c, "syslog-facility")];
    o->maxmemory_policy_lfu =
        strstr(policy->names[kv_config_number(c, "maxmemory-policy")], "lfu") != NULL;
    kv_output_limits_read(kv_slice_cstr(kv_config_text(c, "client-output-buffer-limit")),
                          o->output_limit);
    fill_save_points(c, o);
    o->notify_classes = 0;
    for (const char *p = kv_config_text(c, "notify-keyspace-events"); *p != '\0'; p++)
        o->notify_classes |= kv_notify_class(*p);
}

void kv_config_fill(struct kv_config *c, struct kv_options *o)
{
    for (uint32_t i = 0; i < kv_directive_count; i++)
        if (kv_directives[i].width != 0)
            fill_field(&kv_directives[i], &c->values[i], (char *)o + kv_directives[i].offset);
    fill_special(c, o);
    /* bind cannot change while the engine runs, and it keeps pointers to the names. */
    if (c->engine == NULL)
        fill_bind(c, o);
    o->config = c;
}

/* --- refusing --- */

static bool is_refused(const struct kv_directive *d, const struct kv_config_value *v)
{
    if (d->kind != KV_DIR_REFUSED)
        return false;
    struct kv_config_value initial = {0};
    parse_initial(d, &initial);
    bool same = kv_config_value_same(d, v, &initial);
    kv_config_value_release(&initial);
    return !same;
}

enum kv_err kv_config_finish(struct kv_config *c, struct kv_text *message)
{
    for (uint32_t i = 0; i < kv_directive_count; i++) {
        const struct kv_directive *d = &kv_directives[i];
        if (!is_refused(d, &c->values[i]))
            continue;
        struct kv_reason reason;
        kv_directive_refusal(d, &reason);
        const struct kv_config_origin *o = c->origins[i];
        KV_ASSERT(o != NULL);
        kv_config_message(message, o->arguments, o->text, o->line_number, kv_slice_cstr(o->line),
                          reason.text);
        return KV_ERR_DENIED;
    }
    return KV_OK;
}

/* --- the world outside --- */

uint32_t kv_config_reserved_files(const struct kv_config *c)
{
    /* Beyond what one worker needs, two descriptors for the loop of each further one. */
    return FILES_BESIDE_CLIENTS + 2 * (thread_count((struct kv_config *)c) - 1);
}

bool kv_config_raise_file_limit(const struct kv_config *c, uint64_t maxclients, uint64_t *limit)
{
    uint64_t need = maxclients + kv_config_reserved_files(c);
    struct rlimit r;
    *limit = 1024;
    if (getrlimit(RLIMIT_NOFILE, &r) != 0)
        return false;
    if (r.rlim_cur < need) {
        struct rlimit wanted = {need, KV_MAX(r.rlim_max, (rlim_t)need)};
        struct rlimit possible = {KV_MIN(r.rlim_max, (rlim_t)need), r.rlim_max};
        if (setrlimit(RLIMIT_NOFILE, &wanted) == 0)
            r.rlim_cur = need;
        else if (setrlimit(RLIMIT_NOFILE, &possible) == 0)
            r.rlim_cur = possible.rlim_cur;
    }
    *limit = r.rlim_cur;
    return r.rlim_cur >= need;
}

void kv_config_lower_maxclients(struct kv_config *c, uint32_t maxclients)
{
    KV_ASSERT(maxclients >= 1);
    c->values[index_of("maxclients")].number = maxclients;
}

static enum kv_err keep_folder_name(struct kv_config *c)
{
    char path[PATH_MAX];
    if (getcwd(path, sizeof(path)) == NULL)
        return KV_ERR_IO;
    size_t len = strlen(path);
    struct kv_config_value value = {0, kv_mem_strdup(path, len, KV_MEM_CONFIG), len};
    kv_config_take_value(c, index_of("dir"), &value);
    return KV_OK;
}

enum kv_err kv_config_enter_folder(struct kv_config *c)
{
    const char *dir = kv_config_text(c, "dir");
    if (dir[0] != '\0' && chdir(dir) != 0)
        return KV_ERR_IO;
    return keep_folder_name(c);
}

/* --- CONFIG SET --- */

void kv_config_attach(struct kv_config *c, struct kv_engine *e)
{
    KV_ASSERT(c->engine == NULL);
    c->engine = e;
    kv_engine_options(e)->config = c;
}

struct kv_config *kv_config_of(struct kv_engine *e)
{
    return kv_engine_options(e)->config;
}

struct staged {
    uint32_t index;
    struct kv_config_value value;
};

static bool may_change(const struct kv_config *c, const struct kv_directive *d, bool local,
                       struct kv_reason *reason)
{
    if (d->flags & KV_DIR_IMMUTABLE) {
        kv_reason_set(reason, "can't set immutable config");
        return false;
    }
    int64_t enabled = kv_config_number(c, "enable-protected-configs"); /* no, yes, local */
    if (d->flags & KV_DIR_PROTECTED && enabled != 1 && !(enabled == 2 && local)) {
        kv_reason_set(reason, "can't set protected config");
        return false;
    }
    return true;
}

/* Names first: whatever is wrong with a name is told before anything about a value. */
static bool stage_names(const struct kv_config *c, const struct kv_slice *pairs, int count,
                        bool local, struct staged *staged, struct kv_config_failure *failure)
{
    for (int i = 0; i < count; i++) {
        struct kv_slice name = pairs[i * 2];
        failure->name = name;
        int index = kv_directive_find(name);
        if (index < 0) {
            failure->unknown = true;
            return false;
        }
        staged[i].index = (uint32_t)index;
        if (!may_change(c, &kv_directives[index], local, &failure->reason))
            return false;
        for (int j = 0; j < i; j++) {
            const struct kv_slice *other = &pairs[j * 2];
            if (other->len == name.len && strncasecmp(other->ptr, name.ptr, name.len) == 0) {
                kv_reason_set(&failure->reason, "duplicate parameter");
                return false;
            }
        }
    }
    return true;
}

static bool stage_values(const struct kv_config *c, struct kv_arena *arena,
                         const struct kv_slice *pairs, int count, struct staged *staged,
                         struct kv_config_failure *failure)
{
    for (int i = 0; i < count; i++) {
        const struct kv_directive *d = &kv_directives[staged[i].index];
        const struct kv_config_value *old = &c->values[staged[i].index];
        if (strcmp(d->name, "save") == 0)
            old = NULL; /* set anew, not added to */
        struct kv_words words = {(struct kv_slice *)&pairs[i * 2 + 1], 1};
        failure->name = pairs[i * 2];
        if (!kv_directive_parse(d, arena, &words, old, &staged[i].value, &failure->reason))
            return false;
        if (is_refused(d, &staged[i].value)) {
            kv_directive_refusal(d, &failure->reason);
            return false;
        }
    }
    return true;
}

/* Begins or ends the append-only log. */
static bool switch_log(const struct kv_config *c, bool on)
{
    struct kv_aof *log = c->engine == NULL ? NULL : kv_aof_of(c->engine);
    if (log == NULL || on == kv_engine_options(c->engine)->appendonly)
        return true;
    if (on)
        return kv_aof_start_empty(log) == KV_OK;
    kv_aof_stop(log);
    return true;
}

/* The default user's rules with a new password; NULL without an error: they stay. */
static bool stage_password(const struct kv_config *c, const struct kv_slice *pairs, int count,
                           struct staged *staged, struct kv_acl_rules **rules,
                           struct kv_config_failure *failure)
{
    *rules = NULL;
    for (int i = 0; c->engine != NULL && i < count; i++) {
        if (staged[i].index != index_of("requirepass"))
            continue;
        *rules = kv_acl_password_rules(c->engine,
                                       kv_slice(staged[i].value.text, staged[i].value.text_len));
        if (*rules != NULL)
            continue;
        failure->name = pairs[i * 2];
        kv_reason_set(&failure->reason, "out of memory");
        return false;
    }
    return true;
}

/* What the system may refuse. Entering the folder comes last, since it is not taken back. */
static bool stage_effects(const struct kv_config *c, const struct kv_slice *pairs, int count,
                          struct staged *staged, struct kv_config_failure *failure)
{
    for (int i = 0; i < count; i++) {
        uint64_t limit;
        if (staged[i].index != index_of("maxclients") ||
            kv_config_raise_file_limit(c, (uint64_t)staged[i].value.number, &limit))
            continue;
        uint64_t reserved = kv_config_reserved_files(c);
        failure->name = pairs[i * 2];
        kv_reason_set(&failure->reason,
                      "The operating system is not able to handle the specified number of "
                      "clients, try with %llu",
                      (unsigned long long)(limit > reserved ? limit - reserved : 0));
        return false;
    }
    for (int i = 0; i < count; i++) {
        if (staged[i].index != index_of("dir") || staged[i].value.text_len == 0)
            continue;
        if (chdir(staged[i].value.text) != 0) {
            failure->name = pairs[i * 2];
            kv_reason_set(&failure->reason, "%s", strerror(errno));
            return false;
        }
    }
    for (int i = 0; i < count; i++) {
        if (staged[i].index != index_of("appendonly") || switch_log(c, staged[i].value.number != 0))
            continue;
        failure->name = pairs[i * 2];
        kv_reason_set(&failure->reason, "Unable to turn on AOF. Check server logs.");
        (void)!chdir(kv_config_text(c, "dir"));
        return false;
    }
    return true;
}

static void warn_of_memory(const struct kv_options *o)
{
    int64_t used = kv_mem_used_total() - kv_mem_used(KV_MEM_STREAM);
    if (o->maxmemory == 0 || used <= 0 || (uint64_t)used <= o->maxmemory)
        return;
    kv_log(KV_LOG_WARNING,
           "WARNING: the new maxmemory value set via CONFIG SET (%llu) is smaller than the current "
           "memory usage (%lld). This will result in key eviction and/or the inability to accept "
           "new write commands depending on the maxmemory-policy.",
           (unsigned long long)o->maxmemory, (long long)used);
}

static void commit(struct kv_config *c, struct staged *staged, int count,
                   struct kv_acl_rules **rules)
{
    bool folder = false, logs = false, memory = false;
    for (int i = 0; i < count; i++) {
        kv_config_take_value(c, staged[i].index, &staged[i].value);
        folder = folder || staged[i].index == index_of("dir");
        logs = logs || strstr(kv_directives[staged[i].index].name, "-max-len") != NULL;
        memory = memory || staged[i].index == index_of("maxmemory");
    }
    if (folder && keep_folder_name(c) != KV_OK)
        kv_log(KV_LOG_WARNING, "Can't tell the name of the working folder: %s", strerror(errno));
    if (c->engine == NULL)
        return;
    struct kv_options *o = kv_engine_options(c->engine);
    kv_config_fill(c, o);
    kv_engine_apply_options(c->engine);
    if (*rules != NULL) {
        /* That user exists, so this takes no memory. */
        enum kv_err err = kv_acl_set_user_take(c->engine, KV_SLICE("default"), rules, NULL);
        KV_ASSERT(err == KV_OK);
    }
    if (o->aof != NULL)
        kv_aof_apply(o->aof);
    if (o->saver != NULL)
        kv_saver_apply(o->saver);
    kv_log_set_level((enum kv_log_level)o->loglevel);
    if (memory)
        warn_of_memory(o);
    if (logs) {
        kv_engine_command_log_trim(c->engine);
        kv_acl_log_trim(c->engine);
    }
}

enum kv_err kv_config_set(struct kv_config *c, const struct kv_slice *pairs, int count, bool local,
                          struct kv_config_failure *failure)
{
    KV_ASSERT(count > 0);
    *failure = (struct kv_config_failure){.name = pairs[0]};
    struct kv_arena arena;
    kv_arena_init(&arena, ARENA_BYTES, KV_MEM_CONFIG);
    struct staged *staged = kv_arena_try_alloc(&arena, (size_t)count * sizeof(*staged));
    bool fine = staged != NULL;
    if (fine) {
        memset(staged, 0, (size_t)count * sizeof(*staged));
        struct kv_acl_rules *rules = NULL;
        fine = stage_names(c, pairs, count, local, staged, failure) &&
               stage_values(c, &arena, pairs, count, staged, failure) &&
               stage_password(c, pairs, count, staged, &rules, failure) &&
               stage_effects(c, pairs, count, staged, failure);
        if (fine)
            commit(c, staged, count, &rules);
        kv_acl_rules_release(rules);
        for (int i = 0; i < count; i++)
            kv_config_value_release(&staged[i].value);
    } else {
        kv_reason_set(&failure->reason, "out of memory");
    }
    kv_arena_release(&arena);
    return fine ? KV_OK : KV_ERR_DENIED;
}
