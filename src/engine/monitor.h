/* MONITOR: clients that are shown every command, of all workers.
 *
 * Each worker has a list of its monitors. A command makes one line, which is posted to every worker
 * that has some, under the command's locks: all see the commands on a key in their order, and
 * whoever has seen a reply finds its line delivered (delivery.h). MONITOR itself stops the world,
 * so that no worker runs a command behind its reply without knowing of it.
 *
 * While nobody monitors this costs nothing: the worker's late_ticks, from which on a command is
 * remarkable, is 0 while somebody does.
 *
 * A line is what redis-server 7.0.15 sends: +<seconds>.<microseconds> [<db> <address>] "word" ...
 * with passwords hidden. Commands for administrators are not shown.
 *
 * Failure: a line for which there is no memory reaches nobody.
 */
#ifndef KV_ENGINE_MONITOR_H
#define KV_ENGINE_MONITOR_H

#include "base/slice.h"
#include <stdbool.h>

struct kv_client;
struct kv_command;
struct kv_payload;
struct kv_worker;

/* The client is shown commands from now on. KV_MODE_STOP. */
void kv_monitor_join(struct kv_client *c);

/* And no more (RESET, its end). Nothing when it was not. Its worker. */
void kv_monitor_leave(struct kv_client *c);

/* --- for engine/ --- */

/* Somebody monitors. */
bool kv_monitor_active(const struct kv_worker *w);

/* A client has run a command, or is about to run a script (flag `skip_monitor`: the script's line
 * comes before those of its commands, and also when it does not begin). Its locks are held. */
void kv_monitor_show(struct kv_client *c, const struct kv_command *cmd, const struct kv_slice *argv,
                     int argc);

/* A delivery of the worker's has come. */
void kv_monitor_deliver(struct kv_worker *w, struct kv_payload *payload);

#endif
