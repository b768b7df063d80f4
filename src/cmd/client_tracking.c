/* Client-side caching: CLIENT TRACKING, CACHING, TRACKINGINFO and GETREDIR.
 *
 * Here arguments are read and judged; what tracking is and does stands in engine/tracking.h.
 * TRACKING runs in KV_MODE_STOP: a target is looked for among the clients of all workers, and the
 * store's hooks are installed with the first tracker.
 *
 * Errors and their order are those of redis-server 7.0.15. A client may have 1,024 prefixes, since
 * each new one is compared with all others.
 */
#include "base/number.h"
#include "cmd/functions.h"
#include "cmd/helper.h"
#include "engine/call.h"
#include "engine/client.h"
#include "engine/engine.h"
#include "engine/tracking.h"

#define SWITCH_MODE                                                                                \
    "before disabling tracking for this client, and then re-enabling it with a different mode."

struct options {
    struct kv_tracking_request request;
    struct kv_slice *prefixes; /* in the arena */
    bool redirects;
};

struct search {
    uint64_t id;
    struct kv_client *found;
};

static void search_visit(struct kv_client *c, void *arg)
{
    struct search *s = arg;
    if (c->id == s->id && !(c->flags & KV_CLIENT_CLOSE_NOW))
        s->found = c;
}

static struct kv_client *find_client(struct kv_call *call, uint64_t id)
{
    struct search s = {.id = id};
    kv_engine_each_client(call->engine, search_visit, &s);
    return s.found;
}

/* REDIRECT id; false with the error replied. */
static bool read_redirect(struct kv_call *call, int arg, struct options *o)
{
    int64_t id;
    if (o->redirects) {
        kv_call_error(call, "ERR A client can only redirect to a single other client");
        return false;
    }
    if (!kv_call_int(call, arg, &id))
        return false;
    if (id <= 0 || find_client(call, (uint64_t)id) == NULL) {
        kv_call_error(call, "ERR The client ID you want redirect to does not exist");
        return false;
    }
    o->redirects = true;
    o->request.redirect = (uint64_t)id;
    return true;
}

static uint32_t flag_of(struct kv_slice word)
{
    static const struct {
        const char *word;
        uint32_t flag;
    } words[] = {
        {"bcast", KV_TRACKING_BCAST},
        {"optin", KV_TRACKING_OPTIN},
        {"optout", KV_TRACKING_OPTOUT},
        {"noloop", KV_TRACKING_NOLOOP},
    };
    for (size_t i = 0; i < KV_ARRAY_LEN(words); i++)
        if (kv_slice_is(word, words[i].word))
            return words[i].flag;
    return 0;
}

/* What follows ON or OFF; false with the error replied. */
static bool read_options(struct kv_call *call, struct options *o)
{
    o->prefixes = kv_arena_try_alloc(call->arena, (size_t)call->argc * sizeof(struct kv_slice));
    if (o->prefixes == NULL) {
        kv_call_no_memory(call);
        return false;
    }
    for (int i = 3; i < call->argc; i++) {
        uint32_t flag = flag_of(call->argv[i]);
        bool more = i + 1 < call->argc;
        if (flag != 0) {
            o->request.flags |= flag;
        } else if (kv_call_arg_is(call, i, "redirect") && more) {
            if (!read_redirect(call, ++i, o))
                return false;
        } else if (kv_call_arg_is(call, i, "prefix") && more) {
            o->prefixes[o->request.prefix_count++] = call->argv[++i];
        } else {
            kv_call_syntax_error(call);
            return false;
        }
    }
    return true;
}

/* Whether the options go together, and with what the client does already. */
static bool options_agree(struct kv_call *call, const struct options *o)
{
    const uint32_t choices = KV_TRACKING_OPTIN | KV_TRACKING_OPTOUT;
    uint32_t flags = o->request.flags, old = kv_tracking_flags(call->client);
    bool on = old & KV_TRACKING_ON;
    const char *error = NULL;
    if (!(flags & KV_TRACKING_BCAST) && o->request.prefix_count != 0)
        error = "ERR PREFIX option requires BCAST mode to be enabled";
    else if (on && (flags ^ old) & KV_TRACKING_BCAST)
        error = "ERR You can't switch BCAST mode on/off " SWITCH_MODE;
    else if (flags & KV_TRACKING_BCAST && flags & choices)
        error = "ERR OPTIN and OPTOUT are not compatible with BCAST";
    else if ((flags & choices) == choices)
        error = "ERR You can't specify both OPTIN mode and OPTOUT mode";
    else if ((flags & KV_TRACKING_OPTIN && old & KV_TRACKING_OPTOUT) ||
             (flags & KV_TRACKING_OPTOUT && old & KV_TRACKING_OPTIN))
        error = "ERR You can't switch OPTIN/OPTOUT mode " SWITCH_MODE;
    if (error != NULL)
        kv_call_error(call, error);
    return error == NULL;
}

static bool overlap(struct kv_slice a, struct kv_slice b)
{
    size_t len = KV_MIN(a.len, b.len);
    return len == 0 || memcmp(a.ptr, b.ptr, len) == 0;
}

static bool refuse_overlap(struct kv_call *call, struct kv_slice a, const char *which,
                           struct kv_slice b)
{
    kv_call_errorf(call,
                   "ERR Prefix '%.*s' overlaps with %s prefix '%.*s'. Prefixes for a single client "
                   "must not overlap.",
                   KV_CMD_QUOTE(a), which, KV_CMD_QUOTE(b));
    return false;
}

static bool prefixes_fit(struct kv_call *call, const struct options *o)
{
    const struct kv_tracking_client *tc = call->client->tracking;
    uint32_t have = tc != NULL ? tc->prefix_count : 0, count = o->request.prefix_count;
    if ((uint64_t)have + count > KV_TRACKING_PREFIXES_MAX) {
        kv_call_errorf(call, "ERR A client can have at most %d prefixes", KV_TRACKING_PREFIXES_MAX);
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        struct kv_slice name = o->prefixes[i];
        for (uint32_t j = 0; j < have; j++) {
            struct kv_slice old = kv_tracking_prefix_name(tc->prefixes[j]);
            if (overlap(name, old))
                return refuse_overlap(call, name, "an existing", old);
        }
        for (uint32_t j = i + 1; j < count; j++)
            if (overlap(name, o->prefixes[j]))
                return refuse_overlap(call, name, "another provided", o->prefixes[j]);
    }
    return true;
}

static void begin(struct kv_call *call, struct options *o)
{
    struct kv_client *c = call->client;
    static const struct kv_slice everything = {"", 0};
    if (!options_agree(call, o) || !prefixes_fit(call, o))
        return;
    o->request.prefixes = o->prefixes;
    bool bcast = o->request.flags & KV_TRACKING_BCAST;
    if (bcast && o->request.prefix_count == 0 &&
        (c->tracking == NULL || c->tracking->prefix_count == 0)) {
        o->request.prefixes = &everything;
        o->request.prefix_count = 1;
    }
    struct kv_client *target = o->redirects ? find_client(call, o->request.redirect) : NULL;
    enum kv_err err = kv_tracking_begin(c, &o->request, target);
    if (err != KV_OK)
        kv_call_failed(call, err);
    else
        kv_reply_ok(call->out);
}

/* CLIENT TRACKING ON | OFF [REDIRECT id] [PREFIX p ...] [BCAST] [OPTIN] [OPTOUT] [NOLOOP] */
void kv_cmd_client_tracking(struct kv_call *call)
{
    struct options o = {0};
    if (!read_options(call, &o))
        return;
    if (kv_call_arg_is(call, 2, "on")) {
        begin(call, &o);
    } else if (kv_call_arg_is(call, 2, "off")) {
        kv_tracking_off(call->client);
        kv_reply_ok(call->out);
    } else {
        kv_call_syntax_error(call);
    }
}

/* CLIENT CACHING YES | NO */
void kv_cmd_client_caching(struct kv_call *call)
{
    uint32_t flags = kv_tracking_flags(call->client);
    bool yes = kv_call_arg_is(call, 2, "yes");
    if (!(flags & KV_TRACKING_ON))
        kv_call_error(call, "ERR CLIENT CACHING can be called only when the client is in tracking "
                            "mode with OPTIN or OPTOUT mode enabled");
    else if (!yes && !kv_call_arg_is(call, 2, "no"))
        kv_call_syntax_error(call);
    else if (yes && !(flags & KV_TRACKING_OPTIN))
        kv_call_error(call, "ERR CLIENT CACHING YES is only valid when tracking is enabled in "
                            "OPTIN mode.");
    else if (!yes && !(flags & KV_TRACKING_OPTOUT))
        kv_call_error(call, "ERR CLIENT CACHING NO is only valid when tracking is enabled in "
                            "OPTOUT mode.");
    else {
        kv_tracking_set_caching(call->client);
        kv_reply_ok(call->out);
    }
}

static int64_t redirection(const struct kv_client *c)
{
    return kv_tracking_flags(c) & KV_TRACKING_ON ? (int64_t)c->tracking->redirect : -1;
}

void kv_cmd_client_getredir(struct kv_call *call)
{
    kv_reply_int(call->out, redirection(call->client));
}

void kv_cmd_client_trackinginfo(struct kv_call *call)
{
    const struct kv_client *c = call->client;
    uint32_t flags = kv_tracking_flags(c);
    bool optin = flags & KV_TRACKING_OPTIN, caching = flags & KV_TRACKING_CACHING;
    const char *words[8];
    size_t count = 0;
    words[count++] = flags & KV_TRACKING_ON ? "on" : "off";
    if (flags & KV_TRACKING_BCAST)
        words[count++] = "bcast";
    if (optin)
        words[count++] = "optin";
    if (optin && caching)
        words[count++] = "caching-yes";
    if (flags & KV_TRACKING_OPTOUT)
        words[count++] = "optout";
    if (flags & KV_TRACKING_OPTOUT && caching)
        words[count++] = "caching-no";
    if (flags & KV_TRACKING_NOLOOP)
        words[count++] = "noloop";
    if (flags & KV_TRACKING_BROKEN)
        words[count++] = "broken_redirect";
    kv_reply_map(call->out, 3);
    kv_reply_text(call->out, "flags");
    kv_reply_set(call->out, count);
    for (size_t i = 0; i < count; i++)
        kv_reply_text(call->out, words[i]);
    kv_reply_text(call->out, "redirect");
    kv_reply_int(call->out, redirection(c));
    kv_reply_text(call->out, "prefixes");
    uint32_t prefixes = flags & KV_TRACKING_ON ? c->tracking->prefix_count : 0;
    kv_reply_array(call->out, prefixes);
    for (uint32_t i = 0; i < prefixes; i++)
        kv_reply_slice(call->out, kv_tracking_prefix_name(c->tracking->prefixes[i]));
}
