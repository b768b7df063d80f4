/* The table of all commands (generated: src/cmd/table.c from commands/). Constant: any thread. */
#ifndef KV_CMD_TABLE_H
#define KV_CMD_TABLE_H

#include "engine/command.h"

#define KV_COMMAND_ACL_CATEGORY_COUNT 21

/* To be handed to kv_engine_create. */
extern const struct kv_command_table kv_command_table;

/* Names of the permission categories without '@'; bit i of kv_command.acl_categories is name i. */
extern const char *const kv_command_acl_categories[KV_COMMAND_ACL_CATEGORY_COUNT];

#endif
