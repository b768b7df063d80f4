/* Directives with a syntax of their own.
 *
 * Each parser takes the words behind the name and appends the canonical text, the form in which
 * CONFIG GET shows the value. `old` is the canonical text so far: save and client-output-buffer-
 * limit accumulate over several lines. Checks look at a value that its type has accepted.
 *
 * The canonical text of client-output-buffer-limit is always "normal H S T slave H S T pubsub H S
 * T", so reading it back needs no error handling.
 *
 * Pure, except kv_check_folder, which asks the file system.
 *
 * Rejected: keeping parsed structures for save points or event classes: a canonical text is what
 * GET, REWRITE and comparison need, and whoever uses the values reads it once.
 */
#include "admin/directive.h"

#include "base/number.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define TITLE_INVALID "template format is invalid or contains unknown variables"

static void append_words(const struct kv_words *words, int first, struct kv_text *out)
{
    for (int i = first; i < words->count; i++) {
        if (i > first)
            kv_text_append(out, KV_SLICE(" "));
        kv_text_append(out, words->items[i]);
    }
}

bool kv_parse_words(const struct kv_words *words, struct kv_slice old, struct kv_text *out,
                    struct kv_reason *reason)
{
    (void)old;
    (void)reason;
    append_words(words, 0, out);
    return true;
}

bool kv_parse_save(const struct kv_words *words, struct kv_slice old, struct kv_text *out,
                   struct kv_reason *reason)
{
    if (words->count == 0) /* save "": no save points, those given before included */
        return true;
    bool valid = words->count % 2 == 0;
    for (int i = 0; valid && i < words->count; i++) {
        int64_t number;
        valid = kv_int_parse(words->items[i], &number) && number >= (i % 2 == 0 ? 1 : 0);
    }
    if (!valid) {
        kv_reason_set(reason, "Invalid save parameters");
        return false;
    }
    kv_text_append(out, old);
    if (old.len > 0)
        kv_text_append(out, KV_SLICE(" "));
    append_words(words, 0, out);
    return true;
}

static int client_class(struct kv_slice word)
{
    if (kv_slice_is(word, "normal"))
        return KV_CLASS_NORMAL;
    if (kv_slice_is(word, "slave") || kv_slice_is(word, "replica"))
        return KV_CLASS_REPLICA;
    if (kv_slice_is(word, "pubsub"))
        return KV_CLASS_PUBSUB;
    return -1;
}

void kv_output_limits_read(struct kv_slice text, struct kv_output_limit out[KV_CLASS_COUNT])
{
    memset(out, 0, sizeof(*out) * KV_CLASS_COUNT);
    if (text.len == 0)
        return;
    KV_ASSERT(text.ptr[text.len] == '\0');
    unsigned long long v[9];
    int read = sscanf(text.ptr, "normal %llu %llu %llu slave %llu %llu %llu pubsub %llu %llu %llu",
                      &v[0], &v[1], &v[2], &v[3], &v[4], &v[5], &v[6], &v[7], &v[8]);
    KV_ASSERT(read == 9);
    for (int i = 0; i < KV_CLASS_COUNT; i++)
        out[i] = (struct kv_output_limit){v[i * 3], v[i * 3 + 1], v[i * 3 + 2]};
}

bool kv_parse_output_limit(const struct kv_words *words, struct kv_slice old, struct kv_text *out,
                           struct kv_reason *reason)
{
    if (words->count % 4 != 0) {
        kv_reason_set(reason, "Wrong number of arguments in buffer limit configuration.");
        return false;
    }
    struct kv_output_limit limits[KV_CLASS_COUNT];
    kv_output_limits_read(old, limits);
    for (int i = 0; i < words->count; i += 4) {
        int class = client_class(words->items[i]);
        if (class < 0) {
            kv_reason_set(reason, "Invalid client class specified in buffer limit configuration.");
            return false;
        }
        int64_t hard, soft, seconds;
        if (!kv_memory_parse(words->items[i + 1], &hard) || hard < 0 ||
            !kv_memory_parse(words->items[i + 2], &soft) || soft < 0 ||
            !kv_int_parse(words->items[i + 3], &seconds) || seconds < 0) {
            kv_reason_set(reason, "Error in hard, soft or soft_seconds setting in buffer limit "
                                  "configuration.");
            return false;
        }
        limits[class] = (struct kv_output_limit){(uint64_t)hard, (uint64_t)soft, (uint64_t)seconds};
    }
    static const char *const class_names[KV_CLASS_COUNT] = {"normal", "slave", "pubsub"};
    for (int i = 0; i < KV_CLASS_COUNT; i++)
        kv_text_printf(out, "%s%s %llu %llu %llu", i == 0 ? "" : " ", class_names[i],
                       (unsigned long long)limits[i].hard_bytes,
                       (unsigned long long)limits[i].soft_bytes,
                       (unsigned long long)limits[i].soft_seconds);
    return true;
}

/* notify-keyspace-events. A stands for the classes that `A` covers; the canonical order is the one
 * in which Redis prints them. */
bool kv_parse_events(const struct kv_words *words, struct kv_slice old, struct kv_text *out,
                     struct kv_reason *reason)
{
    static const char known[] = "Ag$lshzxeKEtmdnoc";
    static const char covered[] = "g$lshzxetd";
    static const char order[] = "g$lshzxetdnKEmoc";
    (void)old;
    bool set[128] = {false};
    for (int w = 0; w < words->count; w++) {
        struct kv_slice word = words->items[w];
        for (size_t i = 0; i < word.len; i++) {
            if (word.ptr[i] == '\0' || strchr(known, word.ptr[i]) == NULL) {
                kv_reason_set(reason, "Invalid event class character. Use '%s'.", known);
                return false;
            }
            set[(unsigned char)word.ptr[i]] = true;
        }
    }
    bool all = true;
    for (const char *c = covered; *c != '\0'; c++)
        all = all && (set['A'] || set[(unsigned char)*c]);
    if (all)
        kv_text_append(out, KV_SLICE("A"));
    for (const char *c = order; *c != '\0'; c++)
        if (set[(unsigned char)*c] && !(all && strchr(covered, *c) != NULL))
            kv_text_append(out, kv_slice(c, 1));
    return true;
}

bool kv_parse_oom_values(const struct kv_words *words, struct kv_slice old, struct kv_text *out,
                         struct kv_reason *reason)
{
    (void)old;
    if (words->count != 3) {
        kv_reason_set(reason, "wrong number of arguments");
        return false;
    }
    for (int i = 0; i < words->count; i++) {
        int64_t value;
        if (!kv_int_parse(words->items[i], &value) || value < -2000 || value > 2000) {
            kv_reason_set(reason, "Invalid oom-score-adj-values, elements must be between -2000 "
                                  "and 2000.");
            return false;
        }
    }
    append_words(words, 0, out);
    return true;
}

bool kv_parse_percentiles(const struct kv_words *words, struct kv_slice old, struct kv_text *out,
                          struct kv_reason *reason)
{
    static const char name[] = "latency-tracking-info-percentiles";
    (void)old;
    for (int i = 0; i < words->count; i++) {
        double value;
        if (!kv_double_parse(words->items[i], &value)) {
            kv_reason_set(reason, "Invalid %s parameters", name);
            return false;
        }
        if (value < 0 || value > 100) {
            kv_reason_set(reason, "%s parameters should sit between [0.0,100.0]", name);
            return false;
        }
        char text[KV_DOUBLE_TEXT_MAX];
        kv_double_print(value, text);
        kv_text_printf(out, "%s%s", i == 0 ? "" : " ", text);
    }
    return true;
}

bool kv_parse_bind(const struct kv_words *words, struct kv_slice old, struct kv_text *out,
                   struct kv_reason *reason)
{
    (void)old;
    if (words->count > KV_BIND_MAX) {
        kv_reason_set(reason, "Too many bind addresses specified.");
        return false;
    }
    append_words(words, 0, out);
    return true;
}

bool kv_parse_replicaof(const struct kv_words *words, struct kv_slice old, struct kv_text *out,
                        struct kv_reason *reason)
{
    (void)old;
    if (words->count == 0)
        return true;
    if (words->count != 2) {
        kv_reason_set(reason, "wrong number of arguments");
        return false;
    }
    if (kv_slice_is(words->items[0], "no") && kv_slice_is(words->items[1], "one"))
        return true;
    int64_t port;
    if (!kv_int_parse(words->items[1], &port) || port < 0 || port > 65535) {
        kv_reason_set(reason, "Invalid master port");
        return false;
    }
    append_words(words, 0, out);
    return true;
}

bool kv_parse_threads(const struct kv_words *words, struct kv_slice old, struct kv_text *out,
                      struct kv_reason *reason)
{
    (void)old;
    int64_t count;
    if (words->count == 1 && kv_slice_is(words->items[0], "auto")) {
        kv_text_append(out, KV_SLICE("auto"));
        return true;
    }
    if (words->count != 1 || !kv_int_parse(words->items[0], &count) || count < 1 ||
        count > KV_THREADS_MAX) {
        kv_reason_set(reason, "argument must be 'auto' or between 1 and %d inclusive",
                      KV_THREADS_MAX);
        return false;
    }
    kv_text_printf(out, "%lld", (long long)count);
    return true;
}

bool kv_check_power_of_two(struct kv_config_value *v, struct kv_reason *reason)
{
    KV_ASSERT(v->number >= 0);
    if ((v->number & (v->number - 1)) == 0)
        return true;
    kv_reason_set(reason, "argument must be a power of two");
    return false;
}

bool kv_check_folder(struct kv_config_value *v, struct kv_reason *reason)
{
    struct stat st;
    int error = 0;
    KV_ASSERT(v->text != NULL);
    if (v->text_len == 0)
        return true;
    if (stat(v->text, &st) != 0)
        error = errno;
    else if (!S_ISDIR(st.st_mode))
        error = ENOTDIR;
    else if (access(v->text, X_OK) != 0)
        error = errno;
    if (error != 0)
        kv_reason_set(reason, "%s", strerror(error));
    return error == 0;
}

bool kv_check_file_name(struct kv_config_value *v, struct kv_reason *reason)
{
    KV_ASSERT(v->text != NULL);
    if (v->text_len > 0 && strchr(v->text, '/') == NULL)
        return true;
    kv_reason_set(reason, "argument can't be a path, just a filename");
    return false;
}

bool kv_check_title(struct kv_config_value *v, struct kv_reason *reason)
{
    static const char *const known[] = {"title",       "listen-addr", "server-mode", "port",
                                        "config-file", "tls-port",    "unixsocket"};
    if (v->text_len == 0) {
        kv_reason_set(reason, TITLE_INVALID);
        return false;
    }
    for (const char *open = strchr(v->text, '{'); open != NULL; open = strchr(open + 1, '{')) {
        const char *close = strchr(open, '}');
        size_t len = close == NULL ? 0 : (size_t)(close - open - 1);
        bool found = false;
        for (size_t i = 0; i < KV_ARRAY_LEN(known); i++)
            found = found || (strlen(known[i]) == len && memcmp(open + 1, known[i], len) == 0);
        if (!found) {
            kv_reason_set(reason, TITLE_INVALID);
            return false;
        }
    }
    return true;
}

/* Bits of shutdown-on-*, enum kv_shutdown_on. */
bool kv_check_shutdown(struct kv_config_value *v, struct kv_reason *reason)
{
    if (v->number & KV_SHUTDOWN_SAVE && v->number & KV_SHUTDOWN_NOSAVE) {
        kv_reason_set(reason, "shutdown options SAVE and NOSAVE can't be used simultaneously");
        return false;
    }
    return true;
}

bool kv_check_hz(struct kv_config_value *v, struct kv_reason *reason)
{
    (void)reason;
    v->number = KV_MAX(1, KV_MIN(v->number, 500));
    return true;
}
