/* INFO: sections as text. admin/info.c composes them; this is the reply.
 *
 * The command runs while all workers stand, because the sections read clients of every worker. The
 * text is composed outside the output so that its length is known, and copied once.
 *
 * Threads: KV_MODE_STOP.
 */
#include "admin/info.h"
#include "cmd/functions.h"
#include "engine/call.h"

void kv_cmd_info(struct kv_call *call)
{
    struct kv_text text;
    KV_ASSERT(call->argc >= 1);
    kv_text_init(&text);
    kv_info_write(call->engine, call->argv + 1, call->argc - 1, &text);
    if (text.failed)
        kv_call_no_memory(call);
    else
        kv_reply_verbatim(call->out, kv_text_slice(&text), "txt");
    kv_text_release(&text);
}
