/* Saving on demand: SAVE, BGSAVE, LASTSAVE, BGREWRITEAOF.
 *
 * SAVE holds the whole keyspace until the file is written; BGSAVE holds it for the moment at which
 * the snapshot begins (persist/save.h). Without who saves (library use) all of them say so.
 *
 * Threads: SAVE and BGSAVE alone, LASTSAVE stopped: they read what worker 0's periodic work writes.
 */
#include "persist/save.h"
#include "cmd/functions.h"
#include "engine/call.h"
#include "engine/engine.h"
#include "persist/rewrite.h"

#define GOES_ON "ERR Background save already in progress"
#define REWRITE_GOES_ON                                                                            \
    "ERR Another child process is active (AOF?): can't BGSAVE right now. Use BGSAVE SCHEDULE in "  \
    "order to schedule a BGSAVE whenever possible."

static struct kv_saver *saver_of(struct kv_call *call)
{
    struct kv_saver *s = kv_engine_options(call->engine)->saver;
    if (s == NULL)
        kv_call_error(call, "ERR this instance does not save");
    return s;
}

void kv_cmd_save(struct kv_call *call)
{
    struct kv_saver *s = saver_of(call);
    if (s == NULL)
        return;
    enum kv_err err = kv_saver_save(s, &call->view);
    if (err == KV_OK)
        kv_reply_ok(call->out);
    else
        kv_call_error(call, err == KV_ERR_AGAIN ? GOES_ON : "ERR");
}

static void cancel(struct kv_call *call, struct kv_saver *s)
{
    if (kv_saver_cancel(s))
        kv_reply_status(call->out, "Background saving cancelled");
    else
        kv_call_error(call, "ERR Background saving is currently not in progress or scheduled");
}

/* BGSAVE [SCHEDULE | CANCEL] */
void kv_cmd_bgsave(struct kv_call *call)
{
    struct kv_saver *s = saver_of(call);
    bool schedule = call->argc == 2 && kv_call_arg_is(call, 1, "schedule");
    bool scheduled;
    if (s == NULL)
        return;
    if (call->argc == 2 && kv_call_arg_is(call, 1, "cancel")) {
        cancel(call, s);
        return;
    }
    if (call->argc > 1 && !schedule) {
        kv_call_syntax_error(call);
        return;
    }
    enum kv_err err = kv_saver_start_file(s, schedule, &scheduled);
    if (err == KV_ERR_AGAIN)
        kv_call_error(call, kv_saver_saves_file(s) ? GOES_ON : REWRITE_GOES_ON);
    else if (err != KV_OK)
        kv_call_failed(call, err);
    else
        kv_reply_status(call->out,
                        scheduled ? "Background saving scheduled" : "Background saving started");
}

void kv_cmd_bgrewriteaof(struct kv_call *call)
{
    struct kv_rewriter *r = kv_engine_options(call->engine)->rewriter;
    switch (r == NULL ? KV_REWRITE_NO_LOG : kv_rewriter_start(r)) {
    case KV_REWRITE_STARTED:
        kv_reply_status(call->out, "Background append only file rewriting started");
        return;
    case KV_REWRITE_SCHEDULED:
        kv_reply_status(call->out, "Background append only file rewriting scheduled");
        return;
    case KV_REWRITE_GOES_ON:
        kv_call_error(call, "ERR Background append only file rewriting already in progress");
        return;
    case KV_REWRITE_NO_LOG:
        kv_call_error(call, "ERR There is no append only file to rewrite: appendonly is 'no'");
        return;
    }
}

void kv_cmd_lastsave(struct kv_call *call)
{
    struct kv_saver *s = saver_of(call);
    if (s != NULL)
        kv_reply_int(call->out, kv_saver_last_save(s));
}
