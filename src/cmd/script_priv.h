/* What the commands for scripts and those for functions share. Threads: within a command. */
#ifndef KV_CMD_SCRIPT_PRIV_H
#define KV_CMD_SCRIPT_PRIV_H

#include "engine/call.h"

/* SCRIPT KILL, FUNCTION KILL (`function`): does it and writes the reply. */
void kv_script_reply_kill(struct kv_call *call, bool function);

#endif
