/* directory.h - this agent's part in the store (Redis): lease and heartbeat, our records, others'
 * records, life facts. Loop thread. Everything is asynchronous with a deadline; losing the store
 * loses nothing: we publish again when it is back, also after a wipe (epoch). With store.url "none"
 * every call answers NXL_NOT_SUPPORTED and nothing else changes. */
#ifndef NXL_CLUSTER_DIRECTORY_H
#define NXL_CLUSTER_DIRECTORY_H

#include "cluster/record.h"

struct nxl_loop;
struct nxl_metrics;
struct nxl_settings;
struct nxl_trust;
struct nxl_directory;

struct nxl_directory_ops {
    /* A record was added or updated (withdrawn 0) or withdrawn (1) by another agent. Hint, may
     * repeat. */
    void (*on_record)(void *arg, const struct nxl_record *record, int withdrawn);
    /* A life fact from the `dead` stream whose signature and right to speak were checked. */
    void (*on_fact)(void *arg, const char *prefix, enum nxl_life life, const char *reason,
                    const char *witness);
    /* Up, down, wiped: for status and logs. up: 1/0. */
    void (*on_state)(void *arg, int up, const char *what);
    /* Our own lease had lapsed while we were stopped (SIGSTOP, C-037): the agent must take a new
     * incarnation. */
    void (*on_fenced)(void *arg);
};

struct nxl_directory_options {
    struct nxl_loop *loop;
    struct nxl_metrics *metrics;
    const struct nxl_settings *settings; /* section "store", declared by nxl_directory_declare() */
    struct nxl_trust *trust; /* signs and checks facts; NULL: insecure, facts unsigned */
    const char *cluster, *node, *agent, *address;
    const struct nxl_directory_ops *ops;
    void *arg;
};

/* Options: url ("none", "redis://host:port[/db]", "unix:///path", "rediss://" and
 * "redis+sentinel://" where hiredis has them), user, password_file, heartbeat (1s), lease (5s, at
 * least 3 heartbeats), command_timeout (1s), backoff_max (1s), stream_max (10000), wait_poll
 * (250ms). */
void nxl_directory_declare(struct nxl_settings *settings);
NXL_MUST_USE enum nxl_code
nxl_directory_open(const struct nxl_directory_options *options, struct nxl_directory **ret,
                   struct nxl_err *err); /* does not wait for the store */
void nxl_directory_close(
    struct nxl_directory *directory); /* withdraws our records, bounded by 200 ms */
/* Puts or replaces our record (kept and re-published until withdrawn). label "": the peer's record;
 * else a labelled (partial) one. Sent in the next pipeline at once. */
NXL_MUST_USE enum nxl_code nxl_directory_publish(struct nxl_directory *directory,
                                                 const struct nxl_record *record, const char *label,
                                                 struct nxl_err *err);
/* Takes back all labels of an incarnation. */
void nxl_directory_withdraw(struct nxl_directory *directory, const char *incarnation);
/* Looks a name up; waits until deadline_ns for one that is not there yet (woken by `changes`).
 * Calls fn exactly once, never from inside: NXL_OK with record; NXL_NOT_FOUND or NXL_TIMEOUT;
 * NXL_UNREACHABLE: store down all the time. */
typedef void nxl_directory_found_fn(void *arg, enum nxl_code code, const struct nxl_record *record,
                                    const struct nxl_err *err);
NXL_MUST_USE enum nxl_code nxl_directory_lookup(struct nxl_directory *directory, const char *ns,
                                                const char *name, const char *label,
                                                uint64_t deadline_ns, nxl_directory_found_fn *fn,
                                                void *arg, uint64_t *ret_ticket,
                                                struct nxl_err *err);
void nxl_directory_forget(struct nxl_directory *directory,
                          uint64_t ticket); /* cancels; fn is not called */
/* Tells the `dead` stream (signed). Fire and keep: sent when the store is back, for one lease at
 * most. */
void nxl_directory_fact(struct nxl_directory *directory, const char *prefix, enum nxl_life life,
                        const char *reason);

struct nxl_directory_status {
    int enabled, up;
    char url[256]; /* without secrets */
    char epoch[40];
    uint64_t last_heartbeat_ns, heartbeats, failures, reconnects;
    uint32_t published;
};
void nxl_directory_status(const struct nxl_directory *directory, struct nxl_directory_status *ret);

#endif
