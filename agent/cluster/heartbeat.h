/* heartbeat.h - this agent's lease in the store: one script per interval renews node:<node> and
 * tells the store's time and epoch. Finds out when we were fenced. Used by the directory. Loop
 * thread.
 *
 * Losing the store is never fencing. We are fenced only when the store answers and either another
 * agent holds our node, or our key lapsed because this process did not run for a lease (SIGSTOP, a
 * frozen machine). */
#ifndef NXL_CLUSTER_HEARTBEAT_H
#define NXL_CLUSTER_HEARTBEAT_H

#include <nxl/err.h>
#include <nxl/types.h>

struct nxl_heartbeat;
struct nxl_loop;
struct nxl_redis;

struct nxl_beat {
    char epoch[40];
    uint64_t store_us; /* the server's TIME */
    uint64_t round_trip_ns;
    uint64_t records; /* fields in peers:<node> */
    int renewed;      /* 0: our key was not there (first time, lapsed, wiped) */
};

struct nxl_heartbeat_ops {
    void (*on_beat)(void *arg, const struct nxl_beat *beat);
    void (*on_missed)(void *arg, const char *why);
    void (*on_fenced)(void *arg, const char *why); /* once; no beat is sent any more */
};

struct nxl_heartbeat_options {
    struct nxl_loop *loop;
    struct nxl_redis *redis;
    const char *node_key, *peers_key, *epoch_key, *agent, *address; /* borrowed */
    uint64_t interval_ns, lease_ns;
    const struct nxl_heartbeat_ops *ops;
    void *arg;
};

struct nxl_heartbeat *nxl_heartbeat_open(const struct nxl_heartbeat_options *options);
void nxl_heartbeat_close(
    struct nxl_heartbeat *heartbeat); /* accepts NULL; also inside its callbacks */
/* Beats at once unless one is outstanding: after a reconnect, or when the store misses something.
 */
void nxl_heartbeat_now(struct nxl_heartbeat *heartbeat);
/* The next beat empties peers:<node> first: what it holds and what we published drifted apart. */
void nxl_heartbeat_reset_records(struct nxl_heartbeat *heartbeat);
/* 1 while the local deadline of the lease has not passed since the last answered beat was sent. */
int nxl_heartbeat_leased(const struct nxl_heartbeat *heartbeat);
uint64_t nxl_heartbeat_last_ns(const struct nxl_heartbeat *heartbeat); /* 0: never */
uint64_t nxl_heartbeat_count(const struct nxl_heartbeat *heartbeat, uint64_t *ret_missed);

#endif
