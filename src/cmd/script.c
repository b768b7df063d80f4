/* EVAL, EVAL_RO, EVALSHA, EVALSHA_RO and SCRIPT. All of the work is done in script/; here are the
 * arguments and the replies.
 *
 * SCRIPT LOAD, FLUSH, EXISTS and SHOW run alone, since they use what only the holder of the token
 * may touch, and none of them is called often. SCRIPT KILL needs nothing: it must get through while
 * a script holds everything.
 */
#include "script/script.h"
#include "cmd/functions.h"
#include "cmd/helper.h"
#include "cmd/script_priv.h"
#include "engine/engine.h"
#include "engine/script.h"

void kv_cmd_eval(struct kv_call *call)
{
    kv_script_eval(call, false, false);
}

void kv_cmd_eval_ro(struct kv_call *call)
{
    kv_script_eval(call, false, true);
}

void kv_cmd_evalsha(struct kv_call *call)
{
    kv_script_eval(call, true, false);
}

void kv_cmd_evalsha_ro(struct kv_call *call)
{
    kv_script_eval(call, true, true);
}

void kv_cmd_script_load(struct kv_call *call)
{
    char digest[40];
    if (kv_script_load(call, call->argv[2], digest))
        kv_reply_bulk(call->out, digest, sizeof(digest));
}

void kv_cmd_script_exists(struct kv_call *call)
{
    struct kv_slice text;
    kv_reply_array(call->out, (size_t)call->argc - 2);
    for (int i = 2; i < call->argc; i++)
        kv_reply_int(call->out, kv_script_find(call->engine, call->argv[i], &text));
}

void kv_cmd_script_show(struct kv_call *call)
{
    struct kv_slice text;
    if (kv_script_find(call->engine, call->argv[2], &text))
        kv_reply_slice(call->out, text);
    else
        kv_call_error(call, "NOSCRIPT No matching script. Please use EVAL.");
}

void kv_cmd_script_flush(struct kv_call *call)
{
    bool async = kv_engine_options(call->engine)->lazyfree_user_flush;
    if (call->argc == 3 && kv_call_arg_is(call, 2, "async")) {
        async = true;
    } else if (call->argc == 3 && kv_call_arg_is(call, 2, "sync")) {
        async = false;
    } else if (call->argc != 2) {
        kv_call_error(call, "ERR SCRIPT FLUSH only support SYNC|ASYNC option");
        return;
    }
    kv_script_flush(call->engine, async);
    kv_reply_ok(call->out);
}

void kv_script_reply_kill(struct kv_call *call, bool function)
{
    switch (kv_script_kill(call->engine, function)) {
    case KV_SCRIPT_KILLED:
        kv_reply_ok(call->out);
        break;
    case KV_SCRIPT_NOTHING:
        kv_call_error(call, "NOTBUSY No scripts in execution right now.");
        break;
    case KV_SCRIPT_WRITTEN:
        kv_call_error(call, "UNKILLABLE Sorry the script already executed write commands against "
                            "the dataset. You can either wait the script termination or kill the "
                            "server in a hard way using the SHUTDOWN NOSAVE command.");
        break;
    case KV_SCRIPT_OF_OTHER:
        kv_call_error(call, kv_script_busy_text(call->engine));
        break;
    }
}

void kv_cmd_script_kill(struct kv_call *call)
{
    kv_script_reply_kill(call, false);
}

void kv_cmd_script_help(struct kv_call *call)
{
    static const char *const lines[] = {
        "EXISTS <sha1> [<sha1> ...]",
        "    Which of these scripts the server knows: 1 or 0 for each.",
        "FLUSH [ASYNC|SYNC]",
        "    Forget all scripts. ASYNC frees them in the background; without a word",
        "    lazyfree-lazy-user-flush decides.",
        "KILL",
        "    End the script that runs, if it has not written yet.",
        "LOAD <script>",
        "    Make a script known, without running it.",
        "SHOW <sha1>",
        "    The text of a script that the server knows.",
        NULL,
    };
    kv_call_help(call, lines);
}
