/* HOTKEYS: START, STOP, GET, RESET, HELP.
 *
 * What is counted, and how exactly, is the engine's (engine/hotkeys.h). Options of START may come
 * in any order, each once. GET answers with an array of one element, since clients that ask all
 * nodes of a cluster put the elements of their replies together: pairs of field and value, a map in
 * RESP3. Fields of a metric are there when it was asked for. Lists of keys are flat, key and cost
 * by turns, in both protocols. Slots are all of them, as one range: this server is no cluster,
 * hence SLOTS is an error.
 *
 * Threads: all but HELP run in KV_MODE_STOP.
 */
#include "engine/hotkeys.h"
#include "base/assert.h"
#include "base/number.h"
#include "cmd/functions.h"
#include "engine/call.h"
#include <limits.h>

#define COUNT_DEFAULT 10
#define LAST_SLOT 16383

static_assert(KV_HOTKEYS_COUNT_MAX == 64, "the texts below say so");
static_assert(KV_HOTKEYS_SECONDS_MAX == 1000000000, "likewise");

/* --- START --- */

enum option { OPTION_METRICS, OPTION_COUNT, OPTION_DURATION, OPTION_SAMPLE, OPTION_NONE };

static enum option option_of(const struct kv_call *call, int arg)
{
    static const char *const names[] = {"metrics", "count", "duration", "sample"};
    int i = 0;
    while (i < OPTION_NONE && !kv_call_arg_is(call, arg, names[i]))
        i++;
    return (enum option)i;
}

/* METRICS count [CPU] [NET]: moves *arg behind it. False after an error reply. */
static bool take_metrics(struct kv_call *call, int *arg, struct kv_hotkeys_options *o)
{
    int64_t count = 0, found = 0;
    bool valid = *arg + 1 < call->argc && kv_int_parse(call->argv[*arg + 1], &count);
    for (*arg += 2; *arg < call->argc; ++*arg, found++) {
        bool is_cpu = kv_call_arg_is(call, *arg, "cpu");
        if (!is_cpu && !kv_call_arg_is(call, *arg, "net"))
            break;
        enum kv_hotkeys_metric metric = is_cpu ? KV_HOTKEYS_CPU : KV_HOTKEYS_NET;
        valid &= !o->wanted[metric];
        o->wanted[metric] = true;
    }
    if (valid && found > 0 && found == count)
        return true;
    kv_call_error(call, "ERR METRICS takes a number, and so many of CPU and NET, each once");
    return false;
}

/* An option and its number, likewise. */
static bool take_number(struct kv_call *call, int *arg, enum option option, int64_t least,
                        int64_t most, uint32_t *out)
{
    static const char *const errors[] = {
        [OPTION_COUNT] = "ERR COUNT must be an integer from 1 to 64",
        [OPTION_DURATION] = "ERR DURATION must be an integer from 0 to 1000000000",
        [OPTION_SAMPLE] = "ERR SAMPLE must be an integer from 1 to 2147483647",
    };
    int64_t number;
    if (*arg + 1 >= call->argc) {
        kv_call_syntax_error(call);
        return false;
    }
    if (!kv_int_parse(call->argv[*arg + 1], &number) || number < least || number > most) {
        kv_call_error(call, errors[option]);
        return false;
    }
    *out = (uint32_t)number;
    *arg += 2;
    return true;
}

static bool take_option(struct kv_call *call, int *arg, enum option option,
                        struct kv_hotkeys_options *o)
{
    switch (option) {
    case OPTION_METRICS:
        return take_metrics(call, arg, o);
    case OPTION_COUNT:
        return take_number(call, arg, option, 1, KV_HOTKEYS_COUNT_MAX, &o->count);
    case OPTION_DURATION:
        return take_number(call, arg, option, 0, KV_HOTKEYS_SECONDS_MAX, &o->duration_s);
    case OPTION_SAMPLE:
        return take_number(call, arg, option, 1, INT_MAX, &o->ratio);
    case OPTION_NONE:
        break;
    }
    if (kv_call_arg_is(call, *arg, "slots"))
        kv_call_error(call, "ERR SLOTS is for clusters, and this server is not in one");
    else
        kv_call_syntax_error(call);
    return false;
}

void kv_cmd_hotkeys_start(struct kv_call *call)
{
    struct kv_hotkeys_options o = {.count = COUNT_DEFAULT, .ratio = 1};
    uint32_t seen = 0;
    for (int arg = 2; arg < call->argc;) {
        enum option option = option_of(call, arg);
        if (option != OPTION_NONE && seen & 1u << option) {
            kv_call_syntax_error(call);
            return;
        }
        seen |= 1u << option;
        if (!take_option(call, &arg, option, &o))
            return;
    }
    if ((seen & 1u << OPTION_METRICS) == 0)
        kv_call_error(call, "ERR HOTKEYS START needs METRICS");
    else if (kv_hotkeys_active(call->engine))
        kv_call_error(call, "ERR hot keys are being tracked already");
    else if (kv_hotkeys_start(call->worker, &o) != KV_OK)
        kv_call_no_memory(call);
    else
        kv_reply_ok(call->out);
}

/* --- STOP, RESET --- */

void kv_cmd_hotkeys_stop(struct kv_call *call)
{
    if (!kv_hotkeys_active(call->engine)) {
        kv_call_error(call, "ERR hot keys are not being tracked");
        return;
    }
    kv_hotkeys_stop(call->worker);
    kv_reply_ok(call->out);
}

void kv_cmd_hotkeys_reset(struct kv_call *call)
{
    if (kv_hotkeys_active(call->engine)) {
        kv_call_error(call, "ERR hot keys are being tracked: HOTKEYS STOP comes first");
        return;
    }
    kv_hotkeys_release(call->engine);
    kv_reply_ok(call->out);
}

/* --- GET --- */

struct top {
    struct kv_hotkeys_item *items;
    uint32_t count;
};

static void reply_field(struct kv_out *out, const char *name, uint64_t value)
{
    kv_reply_text(out, name);
    kv_reply_int(out, (int64_t)value);
}

static void reply_top(struct kv_out *out, const char *name, const struct top *top, uint64_t unit)
{
    kv_reply_text(out, name);
    kv_reply_array(out, (size_t)top->count * 2);
    for (uint32_t i = 0; i < top->count; i++) {
        kv_reply_slice(out, top->items[i].key);
        kv_reply_int(out, (int64_t)(top->items[i].cost / unit));
    }
}

static void reply_report(struct kv_out *out, const struct kv_hotkeys_report *r,
                         const struct top tops[KV_HOTKEYS_METRICS])
{
    bool cpu = r->options.wanted[KV_HOTKEYS_CPU], net = r->options.wanted[KV_HOTKEYS_NET];
    kv_reply_array(out, 1);
    kv_reply_map(out, 7 + (cpu ? 3 : 0) + (net ? 2 : 0));
    reply_field(out, "tracking-active", r->active);
    reply_field(out, "sample-ratio", r->options.ratio);
    kv_reply_text(out, "selected-slots");
    kv_reply_array(out, 1);
    kv_reply_array(out, 2);
    kv_reply_int(out, 0);
    kv_reply_int(out, LAST_SLOT);
    reply_field(out, "all-commands-all-slots-us", r->commands_us);
    reply_field(out, "net-bytes-all-commands-all-slots", r->commands_bytes);
    reply_field(out, "collection-start-time-unix-ms", (uint64_t)r->start_ms);
    reply_field(out, "collection-duration-ms", r->duration_ms);
    if (cpu) {
        reply_field(out, "total-cpu-time-user-ms", r->user_ms);
        reply_field(out, "total-cpu-time-sys-ms", r->sys_ms);
    }
    if (net)
        reply_field(out, "total-net-bytes", r->commands_bytes);
    if (cpu)
        reply_top(out, "by-cpu-time-us", &tops[KV_HOTKEYS_CPU], 1000);
    if (net)
        reply_top(out, "by-net-bytes", &tops[KV_HOTKEYS_NET], 1);
}

void kv_cmd_hotkeys_get(struct kv_call *call)
{
    struct kv_hotkeys_report report;
    struct top tops[KV_HOTKEYS_METRICS] = {{NULL, 0}};
    if (!kv_hotkeys_report(call->engine, &report)) {
        kv_reply_null(call->out);
        return;
    }
    for (int i = 0; i < KV_HOTKEYS_METRICS; i++) {
        if (report.options.wanted[i] &&
            kv_hotkeys_top(call->engine, (enum kv_hotkeys_metric)i, call->arena, &tops[i].items,
                           &tops[i].count) != KV_OK) {
            kv_call_no_memory(call);
            return;
        }
    }
    reply_report(call->out, &report, tops);
}

void kv_cmd_hotkeys_help(struct kv_call *call)
{
    static const char *const lines[] = {
        "GET",
        "    What was counted since START: totals, and the dearest keys of each metric.",
        "RESET",
        "    Release what was counted. Not while it goes on.",
        "START METRICS <count> [CPU] [NET] [COUNT <k>] [DURATION <seconds>] [SAMPLE <ratio>]",
        "    Count what keys cost: time (CPU), bytes of requests and replies (NET), or both.",
        "    COUNT: so many keys are shown, 1 to 64 (default 10).",
        "    DURATION: stop after so many seconds (default 0: not by itself).",
        "    SAMPLE: look at one command in so many (default 1: at all).",
        "STOP",
        "    Stop counting. What was counted stays.",
        NULL,
    };
    kv_call_help(call, lines);
}
