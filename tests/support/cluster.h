/* cluster.h - real processes for integration tests: a private redis-server, node agents, peers.
 * Everything lives in one temporary folder and ends with cluster_stop(). Aborts the test with a
 * sentence when something does not come up within its deadline. */
#ifndef NXL_TESTS_CLUSTER_H
#define NXL_TESTS_CLUSTER_H

#include <stdint.h>
#include <sys/types.h>

#include <nixlet.h>

#define CLUSTER_AGENTS 4

struct cluster_agent {
    pid_t pid;
    char node[16], socket[160], http[160], log[160], address[64];
};
struct cluster {
    char dir[96], redis_socket[120], redis_log[120];
    pid_t redis;
    int secure;            /* TLS between agents */
    const char *backends;  /* default "shm,ucx" */
    const char *extra[24]; /* more agent flags, NULL-terminated */
    struct cluster_agent agents[CLUSTER_AGENTS];
};

/* Starts Redis (unless no_store) and `agents` agents. Zero *c first and set what differs. */
void cluster_start(struct cluster *c, int agents, int no_store);
void cluster_stop(struct cluster *c); /* SIGTERM; every process must end by itself within 10 s */
void cluster_redis_start(struct cluster *c);
void cluster_redis_kill(struct cluster *c);
void cluster_agent_start(struct cluster *c, int index);
void cluster_agent_kill(struct cluster *c, int index, int signum); /* and reaps */

/* A peer process (tests/integration/peer.c) at an agent; returns when it is registered and
 * published. */
struct cluster_peer {
    pid_t pid;
    int out; /* its standard output */
    uint64_t addr, size;
    char name[64];
};
void cluster_peer_start(struct cluster *c, int agent, const char *name, uint64_t size,
                        const char *mode, struct cluster_peer *ret);
void cluster_peer_kill(struct cluster_peer *peer, int signum); /* and reaps */

/* In-process client. */
struct nxl_client *cluster_client(struct cluster *c, int agent);
uint64_t cluster_now(void);
/* Runs fn(arg) until it gives 1 or the time is over; returns its last answer. Looks every 2 ms. */
int cluster_until(int (*fn)(void *arg), void *arg, uint64_t timeout_ns);
/* Waits for an event of that kind on a peer. 0: none came. */
int cluster_event(struct nxl_client *client, struct nxl_peer *peer, uint32_t kind,
                  uint64_t timeout_ns, struct nxl_event *ret);
/* HTTP GET on an agent's unix socket; body in to. Returns the status code, 0 if it did not answer.
 */
int cluster_http(struct cluster *c, int agent, const char *path, char *to, size_t room);
/* Value of a metric (name with labels as printed, or the sum over a bare name); -1 if absent. */
double cluster_metric(struct cluster *c, int agent, const char *name);
/* The last 2 KiB of an agent's log, for a failed test's sentence; lent until the next call. */
const char *cluster_log(struct cluster *c, int agent);
int cluster_fd_count(pid_t pid);
long cluster_rss_kib(pid_t pid);

#endif
