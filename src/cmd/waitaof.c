/* WAITAOF: waits until the client's own writes are in the append-only log, on disk.
 *
 * What is waited for is the offset behind the client's last write (engine/commit.h), so a client
 * that has written nothing, or long ago, is answered at once. There are no replicas in this
 * version: who asks for some waits for the time and gets 0.
 *
 * With appendfsync everysec the answer comes with the sync of the second; with `no`, where nothing
 * else would sync, somebody who waits makes the log sync. Inside MULTI nothing waits. */
#include "cmd/functions.h"
#include "engine/call.h"
#include "engine/commit.h"

static bool timeout_ms(struct kv_call *call, int arg, int64_t *out)
{
    if (!kv_int_parse(call->argv[arg], out)) {
        kv_call_error(call, "ERR timeout is not an integer or out of range");
        return false;
    }
    if (*out < 0) {
        kv_call_error(call, "ERR timeout is negative");
        return false;
    }
    if (*out > INT64_MAX / 4) {
        kv_call_error(call, "ERR timeout is out of range");
        return false;
    }
    return true;
}

void kv_cmd_waitaof(struct kv_call *call)
{
    int64_t local, replicas, timeout;
    if (!kv_call_int(call, 1, &local))
        return;
    if (local < 0 || local > 1) {
        kv_call_error(call, "ERR value is out of range, value must between 0 and 1");
        return;
    }
    if (!kv_call_int_range(call, 2, 0, INT64_MAX, &replicas) || !timeout_ms(call, 3, &timeout))
        return;
    bool open = kv_commit_is_open(call->engine);
    if (local == 1 && !open) {
        kv_call_error(call, "ERR WAITAOF cannot be used when numlocal is set but appendonly is "
                            "disabled.");
        return;
    }
    bool reached = open && kv_commit_reached(call->client);
    bool waits = replicas > 0 || (local == 1 && !reached);
    if (waits && kv_call_wait_durable(call, replicas == 0, timeout))
        return;
    kv_reply_array(call->out, 2);
    kv_reply_int(call->out, reached);
    kv_reply_int(call->out, 0);
}
