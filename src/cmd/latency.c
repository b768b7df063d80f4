/* LATENCY: what took too long (DOCTOR, GRAPH, HISTORY, LATEST, RESET) and how long commands take
 * (HISTOGRAM).
 *
 * Samples and histograms are the engine's (engine/latency.h); here they become replies. HISTOGRAM
 * shows counts up to bounds that double from one microsecond on, each a little above a power of two
 * in nanoseconds, as Redis' clients know them (1, 2, 4, 8, 16, 33, 66 ...). Bounds to which nothing
 * was added are left out.
 *
 * GRAPH: a column a sample, the oldest left; four rows of three heights each; below, from top to
 * bottom, how long ago it was.
 *
 * Threads: any worker; what is read belongs to others and is copied first.
 */
#include "engine/latency.h"
#include "base/clock.h"
#include "cmd/functions.h"
#include "engine/call.h"
#include "engine/engine.h"
#include "mem/arena.h"
#include <stdarg.h>
#include <stdio.h>

#define GRAPH_COLUMNS 80
#define GRAPH_ROWS 4
#define ROW_HEIGHTS 3
#define AGE_DIGITS 8
#define FIRST_BOUND_NS 1024u
#define BOUNDS 20 /* up to about one second */

/* --- text --- */

/* A text of bounded length in the arena; what does not fit is cut. */
struct text {
    char *bytes;
    size_t len, capacity;
};

static bool text_begin(struct kv_call *call, struct text *t, size_t capacity)
{
    *t = (struct text){.bytes = kv_arena_try_alloc(call->arena, capacity), .capacity = capacity};
    if (t->bytes == NULL)
        kv_call_no_memory(call);
    return t->bytes != NULL;
}

static void KV_PRINTF(2, 3) text_add(struct text *t, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(t->bytes + t->len, t->capacity - t->len, fmt, args);
    va_end(args);
    if (n > 0)
        t->len = KV_MIN(t->len + (size_t)n, t->capacity - 1);
}

static void text_reply(struct kv_call *call, const struct text *t)
{
    kv_reply_verbatim(call->out, kv_slice(t->bytes, t->len), "txt");
}

/* --- series --- */

static bool find_series(struct kv_call *call, struct kv_slice name, struct kv_latency_series *s)
{
    for (int i = 0; i < KV_LATENCY_EVENTS; i++) {
        enum kv_latency_event event = (enum kv_latency_event)i;
        if (kv_slice_is(name, kv_latency_event_name(event)))
            return kv_engine_latency_series(call->engine, event, s);
    }
    return false;
}

void kv_cmd_latency_history(struct kv_call *call)
{
    struct kv_latency_series s;
    if (!find_series(call, call->argv[2], &s))
        s.count = 0;
    kv_reply_array(call->out, s.count);
    for (uint32_t i = 0; i < s.count; i++) {
        struct kv_latency_sample sample = kv_latency_sample(&s, i);
        kv_reply_array(call->out, 2);
        kv_reply_int(call->out, sample.time_s);
        kv_reply_int(call->out, sample.ms);
    }
}

void kv_cmd_latency_latest(struct kv_call *call)
{
    struct kv_latency_series s;
    size_t count = 0;
    struct kv_chunk *token = kv_out_deferred_begin(call->out);
    for (int i = 0; i < KV_LATENCY_EVENTS; i++) {
        enum kv_latency_event event = (enum kv_latency_event)i;
        if (!kv_engine_latency_series(call->engine, event, &s))
            continue;
        struct kv_latency_sample last = kv_latency_sample(&s, s.count - 1);
        kv_reply_array(call->out, 4);
        kv_reply_text(call->out, kv_latency_event_name(event));
        kv_reply_int(call->out, last.time_s);
        kv_reply_int(call->out, last.ms);
        kv_reply_int(call->out, s.max_ms);
        count++;
    }
    kv_reply_array_end(call->out, token, count);
}

static bool is_named(const struct kv_call *call, const char *event)
{
    for (int i = 2; i < call->argc; i++)
        if (kv_call_arg_is(call, i, event))
            return true;
    return call->argc == 2;
}

void kv_cmd_latency_reset(struct kv_call *call)
{
    int64_t count = 0;
    for (int i = 0; i < KV_LATENCY_EVENTS; i++) {
        enum kv_latency_event event = (enum kv_latency_event)i;
        if (is_named(call, kv_latency_event_name(event)))
            count += kv_engine_latency_reset(call->engine, event);
    }
    kv_reply_int(call->out, count);
}

/* --- GRAPH --- */

/* "12s", "3m", "4h", "9d". */
static void print_age(char out[AGE_DIGITS], int64_t seconds)
{
    seconds = KV_MAX(seconds, 0);
    if (seconds < 60)
        snprintf(out, AGE_DIGITS, "%ds", (int)seconds);
    else if (seconds < 3600)
        snprintf(out, AGE_DIGITS, "%dm", (int)(seconds / 60));
    else if (seconds < 86400)
        snprintf(out, AGE_DIGITS, "%dh", (int)(seconds / 3600));
    else
        snprintf(out, AGE_DIGITS, "%dd", (int)KV_MIN(seconds / 86400, 99999));
}

/* The character of a sample in a row; `height` is 0 to 11, row 0 the lowest. */
static char graph_char(uint32_t height, uint32_t row)
{
    uint32_t base = row * ROW_HEIGHTS;
    if (height < base)
        return ' ';
    return height >= base + ROW_HEIGHTS ? '|' : "_o#"[height - base];
}

static void draw_columns(struct text *t, const struct kv_latency_series *s, uint32_t from,
                         uint32_t to, uint32_t low, uint32_t high)
{
    int64_t now_s = kv_clock_wall_ms() / 1000;
    uint32_t top = GRAPH_ROWS * ROW_HEIGHTS - 1;
    for (uint32_t row = GRAPH_ROWS; row-- > 0;) {
        for (uint32_t i = from; i < to; i++) {
            uint64_t above = kv_latency_sample(s, i).ms - low;
            uint32_t height =
                high == low ? top : (uint32_t)KV_MIN(above * (top + 1) / (high - low), top);
            text_add(t, "%c", graph_char(height, row));
        }
        text_add(t, "\n");
    }
    text_add(t, "%*s\n", (int)(to - from), "");
    for (uint32_t line = 0; line < AGE_DIGITS - 1; line++) {
        bool any = false;
        size_t begun = t->len;
        for (uint32_t i = from; i < to; i++) {
            char age[AGE_DIGITS];
            print_age(age, now_s - kv_latency_sample(s, i).time_s);
            bool there = strlen(age) > line;
            text_add(t, "%c", there ? age[line] : ' ');
            any |= there;
        }
        if (!any) {
            t->len = begun;
            break;
        }
        text_add(t, "\n");
    }
}

void kv_cmd_latency_graph(struct kv_call *call)
{
    struct kv_latency_series s;
    struct text t;
    if (!find_series(call, call->argv[2], &s)) {
        kv_call_errorf(call, "ERR No samples available for event '%.*s'",
                       (int)KV_MIN(call->argv[2].len, 128), call->argv[2].ptr);
        return;
    }
    uint32_t low = UINT32_MAX, high = 0;
    for (uint32_t i = 0; i < s.count; i++) {
        low = KV_MIN(low, kv_latency_sample(&s, i).ms);
        high = KV_MAX(high, kv_latency_sample(&s, i).ms);
    }
    if (!text_begin(call, &t, 8192))
        return;
    text_add(&t, "%.*s - high %u ms, low %u ms (all time high %u ms)\n", (int)call->argv[2].len,
             call->argv[2].ptr, high, low, s.max_ms);
    text_add(&t, "%.*s\n", GRAPH_COLUMNS,
             "----------------------------------------------------------------------------------");
    for (uint32_t from = 0; from < s.count; from += GRAPH_COLUMNS)
        draw_columns(&t, &s, from, KV_MIN(from + GRAPH_COLUMNS, s.count), low, high);
    text_reply(call, &t);
}

/* --- DOCTOR --- */

static const char *advice(enum kv_latency_event event)
{
    switch (event) {
    case KV_LATENCY_COMMAND:
        return "Look at SLOWLOG GET for the commands. Commands over whole collections or the whole "
               "keyspace (KEYS, SMEMBERS, SORT, long ranges) have forms that take it in parts "
               "(SCAN and its family, ranges, LIMIT).";
    case KV_LATENCY_FAST_COMMAND:
        return "Fast commands that take long point to the machine: too few cores, swapping, or a "
               "hypervisor that takes the core away. INFO kvik tells how long locks were held.";
    case KV_LATENCY_EXPIRE:
        return "Very large values were due. A slice of expiry ends after 200 us but for the value "
               "that it is at.";
    case KV_LATENCY_EVICTION:
        return "Eviction freed large values or much at once. A larger maxmemory, or smaller "
               "values, help.";
    case KV_LATENCY_DEFRAG:
        return "A large value was moved in one piece. active-defrag-cycle-max lowers how often.";
    default:
        return "";
    }
}

static void describe(struct text *t, int number, enum kv_latency_event event,
                     const struct kv_latency_series *s)
{
    uint64_t sum = 0, deviation = 0;
    for (uint32_t i = 0; i < s->count; i++)
        sum += kv_latency_sample(s, i).ms;
    uint64_t mean = sum / s->count;
    for (uint32_t i = 0; i < s->count; i++) {
        uint64_t ms = kv_latency_sample(s, i).ms;
        deviation += ms > mean ? ms - mean : mean - ms;
    }
    double period =
        (double)(kv_latency_sample(s, s->count - 1).time_s - kv_latency_sample(s, 0).time_s);
    text_add(
        t,
        "%d. %s: %u latency spikes (average %llu ms, mean deviation %llu ms, period %.2f sec). "
        "Worst of all time: %u ms.\n   %s\n\n",
        number, kv_latency_event_name(event), s->count, (unsigned long long)mean,
        (unsigned long long)(deviation / s->count), s->count > 1 ? period / (s->count - 1) : 0,
        s->max_ms, advice(event));
}

void kv_cmd_latency_doctor(struct kv_call *call)
{
    const struct kv_options *o = kv_engine_options(call->engine);
    struct kv_latency_series s;
    struct text t;
    int number = 0;
    if (!text_begin(call, &t, 8192))
        return;
    for (int i = 0; i < KV_LATENCY_EVENTS; i++) {
        if (!kv_engine_latency_series(call->engine, (enum kv_latency_event)i, &s))
            continue;
        if (number++ == 0)
            text_add(&t, "These events took longer than they should:\n\n");
        describe(&t, number, (enum kv_latency_event)i, &s);
    }
    if (number == 0 && o->latency_monitor_threshold_ms == 0)
        text_add(&t, "The latency monitor is off. CONFIG SET latency-monitor-threshold "
                     "<milliseconds> switches it on.");
    else if (number == 0)
        text_add(&t, "Nothing took %llu ms or longer since the monitor was switched on or reset.",
                 (unsigned long long)o->latency_monitor_threshold_ms);
    else if (o->command_log[KV_COMMAND_LOG_SLOW].limit < 0 ||
             (uint64_t)o->command_log[KV_COMMAND_LOG_SLOW].limit / 1000 >
                 o->latency_monitor_threshold_ms)
        text_add(&t,
                 "The slow log misses what the monitor sees: CONFIG SET "
                 "slowlog-log-slower-than %llu makes it tell the commands.\n",
                 (unsigned long long)o->latency_monitor_threshold_ms * 1000);
    text_reply(call, &t);
}

/* --- HISTOGRAM --- */

static bool reply_histogram(struct kv_call *call, const struct kv_command *cmd,
                            struct kv_latency_sum *sum)
{
    uint64_t shown = 0;
    size_t pairs = 0;
    if (!kv_engine_latency(call->engine, cmd->id, sum))
        return false;
    kv_reply_text(call->out, cmd->full_name);
    kv_reply_map(call->out, 2);
    kv_reply_text(call->out, "calls");
    kv_reply_int(call->out, (int64_t)sum->total);
    kv_reply_text(call->out, "histogram_usec");
    struct kv_chunk *token = kv_out_deferred_begin(call->out);
    for (uint32_t i = 0; i <= BOUNDS && shown < sum->total; i++) {
        uint64_t ns = (uint64_t)FIRST_BOUND_NS << i;
        ns += ns / 128 - 1;
        uint64_t count = i == BOUNDS ? sum->total : kv_latency_below(sum, ns);
        if (count == shown)
            continue;
        kv_reply_int(call->out, (int64_t)(ns / 1000));
        kv_reply_int(call->out, (int64_t)count);
        shown = count;
        pairs++;
    }
    kv_reply_map_end(call->out, token, pairs);
    return true;
}

/* A command, or all subcommands of a container. */
static size_t reply_family(struct kv_call *call, const struct kv_command *cmd,
                           struct kv_latency_sum *sum)
{
    size_t count = reply_histogram(call, cmd, sum);
    for (uint32_t i = 0; i < cmd->sub_count; i++)
        count += reply_histogram(call, &cmd->subs[i], sum);
    return count;
}

void kv_cmd_latency_histogram(struct kv_call *call)
{
    const struct kv_command_table *table = kv_engine_commands(call->engine);
    struct kv_latency_sum *sum = kv_arena_try_alloc(call->arena, sizeof(*sum));
    size_t count = 0;
    if (sum == NULL) {
        kv_call_no_memory(call);
        return;
    }
    struct kv_chunk *token = kv_out_deferred_begin(call->out);
    if (call->argc == 2) {
        for (uint32_t i = 0; i < table->command_count; i++)
            count += reply_family(call, &table->commands[i], sum);
    }
    for (int i = 2; i < call->argc; i++) {
        const struct kv_command *cmd = kv_engine_command_or_sub(call->engine, call->argv[i]);
        if (cmd != NULL)
            count += reply_family(call, cmd, sum);
    }
    kv_reply_map_end(call->out, token, count);
}

void kv_cmd_latency_help(struct kv_call *call)
{
    static const char *const lines[] = {
        "DOCTOR",
        "    A report in words of what took too long.",
        "GRAPH <event>",
        "    The samples of an event, drawn with characters.",
        "HISTOGRAM [<command> ...]",
        "    How many calls took at most 1, 2, 4, 8 ... microseconds, of the commands or of all.",
        "HISTORY <event>",
        "    The samples of an event: Unix time and milliseconds.",
        "LATEST",
        "    Of each event: name, Unix time and milliseconds of the last sample, longest of all.",
        "RESET [<event> ...]",
        "    Forget the samples of the events, or of all.",
        NULL,
    };
    kv_call_help(call, lines);
}
