/* server.h - the stream server: agents dial it, prove their node by a token, get a snapshot and
 * then every change that concerns them, and acknowledge. Fed with records and policies by
 * reconcile, which never waits for an agent. Loop thread.
 *
 * A record is serialised once per change and shared by all connections. A connection that reads too
 * slowly is set back to a snapshot and, if that does not help, ended; it slows nobody else. */
#ifndef NXL_PUSH_SERVER_H
#define NXL_PUSH_SERVER_H

#include "stream/frame.h"

struct nxl_authority;
struct nxl_bytes;
struct nxl_loop;
struct nxl_metrics;
struct nxl_push;
struct nxl_settings;

struct nxl_push_identity { /* whom a token names; texts are copied */
    const char *node;      /* "": the token is bound to no node, and is refused */
    const char *pod;       /* UID of the agent's pod, "" if the token does not say */
};

struct nxl_push_agent { /* one connected agent; lent for the call */
    const char *node, *agent, *pod, *address;
    uint64_t sent_seq, acked_seq; /* of what concerned it */
    uint64_t since_ns, heard_ns;
    uint32_t waiting; /* frames not yet taken by its socket */
    int silent, resumed;
};

struct nxl_push_ops {
    /* May the agent of node know the members and the policy of group ("ns/nixlpeer")? Pure; the
     * answer is kept until nxl_push_interest(). A record of a pod on its own node always is sent.
     */
    int (*interested)(void *arg, const char *node, const char *group);
    /* Checks a bearer token; end with nxl_push_token_checked(), at once or later, once. The result
     * is kept for stream.token_cache; token is lent. */
    void (*check_token)(void *arg, uint64_t ticket, const char *token);
    /* An agent said hello (up 1) or its connection ended (up 0). May be NULL, like all below. */
    void (*on_agent)(void *arg, const struct nxl_push_agent *agent, int up);
    /* No byte of it for stream.silent_after (1), or bytes again (0). Time that this process itself
     * slept through is not counted. */
    void (*on_silent)(void *arg, const struct nxl_push_agent *agent, int silent);
    /* It applied everything up to seq; purged incarnations, in us of its time. */
    void (*on_ack)(void *arg, const struct nxl_push_agent *agent, uint64_t seq, uint32_t purged,
                   uint64_t us);
    /* A fact about a pod on its own node; others are refused and counted. id: pod, container or
     * session prefix. */
    void (*on_local)(void *arg, const struct nxl_push_agent *agent,
                     const struct nxl_stream_member *fact);
    /* Pods that have a socket on its node, all of them. */
    void (*on_pods)(void *arg, const struct nxl_push_agent *agent, const char *const *uids,
                    uint32_t count);
    /* It could not reach id, or node. */
    void (*on_suspect)(void *arg, const struct nxl_push_agent *agent, const char *id,
                       const char *node, const char *evidence);
};

struct nxl_push_options {
    struct nxl_loop *loop;
    struct nxl_metrics *metrics;
    const struct nxl_settings *settings; /* section "stream" */
    const char *cluster;                 /* agents of another are refused */
    const char *id;                      /* name of this replica, told in WELCOME */
    struct nxl_authority *authority; /* borrowed; signs agents' requests. NULL: none are signed */
    const struct nxl_push_ops *ops;
    void *arg;
};

/* Options: listen (0.0.0.0:7743), cert, key (PEM files, read again when they change; empty: the
 * authority makes a certificate), names (for that one), ping, silent_after, hello_timeout,
 * agents_max, handshakes_max, queue_records, queue_bytes, queue_age, token_cache, facts_rate. */
void nxl_push_declare(struct nxl_settings *settings);
NXL_MUST_USE enum nxl_code nxl_push_open(const struct nxl_push_options *options,
                                         struct nxl_push **ret, struct nxl_err *err);
/* Says GOAWAY, gives the sockets what they take, closes. No callback runs any more. Not from one.
 */
void nxl_push_close(struct nxl_push *push);                /* accepts NULL */
const char *nxl_push_address(const struct nxl_push *push); /* "host:port", real port */
int nxl_push_ready(
    const struct nxl_push *push); /* the port is open and nxl_push_synced() was said */

/* ---- what is true, fed by reconcile ------------------------------------------------------- */

/* Until then hellos wait, so that no agent takes a half-read cache for the whole. */
void nxl_push_synced(struct nxl_push *push);
/* All caches reflect at least this resource version. */
void nxl_push_rv(struct nxl_push *push, const char *rv);
/* A member is there, or is other than before; copied. life DEAD: told to everybody who knew it,
 * then forgotten; an id with a container ("<uid>/<container>") then ends that one and leaves the
 * member. Changes of one loop turn travel together, in several frames if they are many.
 * Returns the smallest sequence that this one may carry; nxl_push_group() tells who is up to date.
 */
uint64_t nxl_push_member(struct nxl_push *push, const struct nxl_stream_member *member);
/* The pod left its group but lives. */
uint64_t nxl_push_forget(struct nxl_push *push, const char *uid);
/* NXL_LIMIT: too long for one frame; the old one stays. */
NXL_MUST_USE enum nxl_code nxl_push_policy(struct nxl_push *push,
                                           const struct nxl_stream_policy *policy,
                                           uint64_t *ret_seq, struct nxl_err *err);
uint64_t nxl_push_policy_gone(struct nxl_push *push, const char *group);
/* ops->interested may answer otherwise now, for this node and group; NULL: any. Who gains or loses
 * a group is set to a new snapshot. */
void nxl_push_interest(struct nxl_push *push, const char *node, const char *group);
void nxl_push_flush(struct nxl_push *push); /* now instead of at the end of the turn */
void nxl_push_token_checked(struct nxl_push *push, uint64_t ticket, enum nxl_code code,
                            const struct nxl_push_identity *identity, const char *why);

/* ---- what is known of the agents, for status and people ----------------------------------- */

struct nxl_push_group {
    uint32_t interested, synced; /* connected agents; of those, up to date with the group */
    uint64_t seq;                /* of the group's last change */
    uint64_t changed_ns;         /* when it was said; the monotonic clock */
    uint64_t slowest_ns;         /* from saying to the last acknowledgement so far */
};
/* 0 if the group is not known. */
int nxl_push_group(struct nxl_push *push, const char *group, struct nxl_push_group *ret);
uint32_t nxl_push_agent_count(const struct nxl_push *push);
int nxl_push_each(struct nxl_push *push, int (*fn)(void *arg, const struct nxl_push_agent *agent),
                  void *arg);
/* JSON for people: agents with node, sequence, acknowledgement, silence. */
void nxl_push_describe(struct nxl_push *push, struct nxl_bytes *to);

#endif
