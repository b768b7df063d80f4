/* What the files of DEBUG share. */
#ifndef KV_CMD_DEBUG_PRIV_H
#define KV_CMD_DEBUG_PRIV_H

#include "engine/call.h"

/* DEBUG RELOAD [MERGE] [NOFLUSH] [NOSAVE]. In KV_MODE_STOP. */
void kv_debug_reload(struct kv_call *call);

#endif
