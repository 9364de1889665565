/* host.h - the opened backends: load, checked calls, and the one crossing where outcomes made by
 * any thread come back to the loop (completion.c). Loop thread unless said. */
#ifndef NXL_HOST_HOST_H
#define NXL_HOST_HOST_H

#include <nxl/backend.h>

struct nxl_loop;
struct nxl_metrics;
struct nxl_settings;
struct nxl_hosts;    /* all of them */
struct nxl_instance; /* one opened backend */

struct nxl_hosts_ops {
    /* Back-pressure is over: submit again what waited for this instance. */
    void (*ready)(void *arg, struct nxl_instance *instance);
    /* The far agent behind conn is gone, says the backend. */
    void (*disconnected)(void *arg, struct nxl_instance *instance, struct nxl_backend_conn *conn,
                         const char *why);
};
struct nxl_hosts_options {
    struct nxl_loop *loop;
    struct nxl_metrics *metrics;
    const struct nxl_settings
        *settings; /* sections backends.<name> are declared by nxl_hosts_declare() */
    const struct nxl_backend_ops *const *statics; /* NULL-terminated; may be NULL */
    const char *enabled; /* "shm,ucx" in order of preference; an instance may be "fault:shm" = fault
                            around shm */
    const char
        *plugin_dir; /* libnxl_backend_<name>.so are looked for here when not static; NULL: none */
    const struct nxl_hosts_ops *ops;
    void *arg;
};

/* Declares every known backend's options in settings (static ones, then plug-ins found). */
void nxl_hosts_declare(struct nxl_settings *settings, const struct nxl_backend_ops *const *statics,
                       const char *plugin_dir);
/* Opens what is enabled. A backend that refuses (library absent, ABI, caps not wired) is one log
 * line, a metric and a reason, never a failure of the whole. */
NXL_MUST_USE enum nxl_code nxl_hosts_open(const struct nxl_hosts_options *options,
                                          struct nxl_hosts **ret, struct nxl_err *err);
void nxl_hosts_close(struct nxl_hosts *hosts); /* blocks until all ops are complete and quiet */
uint32_t nxl_hosts_count(const struct nxl_hosts *hosts); /* <= NXL_BACKENDS_MAX */
struct nxl_instance *nxl_hosts_at(struct nxl_hosts *hosts, uint32_t index);
struct nxl_instance *nxl_hosts_find(struct nxl_hosts *hosts, const char *name);
/* Enabled but refused ones, for /v1/backends and doctor; NULL past the end. */
const char *nxl_hosts_refused(const struct nxl_hosts *hosts, uint32_t index,
                              const char **ret_reason);
/* Progresses backends and delivers outcomes; bounded; returns how much was done. Called by the
 * agent's poller in every turn until it parks; runs by itself (waker) when the loop sleeps. */
int nxl_hosts_poll(struct nxl_hosts *hosts);
/* The same for everybody else, such as a timer that looks before it judges: it does not count as
 * polling, so completions go on waking a loop that sleeps. */
int nxl_hosts_deliver(struct nxl_hosts *hosts);
/* Before the loop may sleep: from here on completions wake it. Returns 1 if something is due now.
 */
int nxl_hosts_park(struct nxl_hosts *hosts);

uint32_t nxl_instance_index(const struct nxl_instance *instance);
const char *nxl_instance_name(const struct nxl_instance *instance); /* "shm", "fault:shm" */
const struct nxl_backend_caps *nxl_instance_caps(const struct nxl_instance *instance);
const struct nxl_backend_ops *nxl_instance_ops(const struct nxl_instance *instance);
uint32_t nxl_instance_inflight(const struct nxl_instance *instance);

enum nxl_code nxl_instance_register(struct nxl_instance *instance, const struct nxl_memory *memory,
                                    struct nxl_backend_mem **ret, struct nxl_err *err);
enum nxl_code nxl_instance_deregister(struct nxl_instance *instance, struct nxl_backend_mem *mem,
                                      struct nxl_err *err);
enum nxl_code nxl_instance_address(struct nxl_instance *instance, struct nxl_view *ret,
                                   struct nxl_err *err);
enum nxl_code nxl_instance_connect(struct nxl_instance *instance, struct nxl_view address,
                                   struct nxl_backend_conn **ret, struct nxl_err *err);
void nxl_instance_disconnect(struct nxl_instance *instance, struct nxl_backend_conn *conn);
enum nxl_code nxl_instance_export(struct nxl_instance *instance, struct nxl_backend_mem *mem,
                                  void *buf, size_t *ret_size, struct nxl_err *err);
enum nxl_code nxl_instance_import(struct nxl_instance *instance, struct nxl_backend_conn *conn,
                                  struct nxl_view key, struct nxl_backend_remote **ret,
                                  struct nxl_err *err);
void nxl_instance_forget(struct nxl_instance *instance, struct nxl_backend_remote *remote);

typedef void
nxl_outcome_fn(void *arg,
               const struct nxl_outcome *outcome); /* exactly once per submit that was OK */
typedef void nxl_quiesced_fn(void *arg,
                             uint64_t op_id); /* exactly once, after, if the outcome said not yet */
/* Fills op->id and op->size. Lends op until on_outcome. The answer never comes from inside. */
NXL_MUST_USE enum nxl_code nxl_instance_submit(struct nxl_instance *instance, struct nxl_op *op,
                                               nxl_outcome_fn *on_outcome,
                                               nxl_quiesced_fn *on_quiesced, void *arg,
                                               struct nxl_err *err);
void nxl_instance_cancel(struct nxl_instance *instance,
                         uint64_t op_id); /* nothing if it has no cancel */

#endif
