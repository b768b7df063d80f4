/* Steps of the start and of the end, called by main.c in the order given here. Main thread. */
#ifndef KV_SERVER_START_H
#define KV_SERVER_START_H

#include "admin/config.h"

/* Opens /dev/null for standard input, output and error where they are closed, so that no socket
 * gets their numbers. Before anything is opened. */
void kv_start_std_descriptors(void);

/* Answers --version and --help; true when that was all (exit status 0). */
bool kv_start_answer(int argc, char *const *argv);

/* Loads the configuration from arguments; on failure prints the reason to standard error. */
enum kv_err kv_start_configure(struct kv_config *c, int argc, char *const *argv) KV_MUST_CHECK;

/* Makes the users that the configuration names; on failure prints and logs the reason. */
enum kv_err kv_start_users(struct kv_config *c, struct kv_engine *e) KV_MUST_CHECK;

/* Sends the log where the options say. Prints the reason on failure. */
enum kv_err kv_start_log(const struct kv_options *o) KV_MUST_CHECK;

/* Forks into the background: the caller is the child afterwards, without terminal. */
void kv_start_daemonize(void);

/* Raises the limit of open files, or lowers maxclients with a warning. KV_ERR_LIMIT: not even one
 * client fits; the reason is logged. */
enum kv_err kv_start_open_files(struct kv_config *c) KV_MUST_CHECK;

/* Writes the pid file when there is one to write; a failure is only logged. Returns its path, ""
 * without one. */
const char *kv_start_pidfile(const struct kv_options *o);

/* Tells the supervisor (systemd, upstart) that the server is ready, if there is one. */
void kv_start_notify(const struct kv_config *c);

/* Logs what an administrator must know about options that have no effect here. */
void kv_start_warn(const struct kv_options *o);

#endif
