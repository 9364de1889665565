/* stream_rig.h - an operator's stream server with a token check that reads its answer from the
 * token, and agents' stream clients with their tables; real TLS on loopback. For unit tests, the
 * stream's bench and the integration tests. */
#ifndef NXL_TESTS_STREAM_RIG_H
#define NXL_TESTS_STREAM_RIG_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/loop.h"
#include "base/mem.h"
#include "base/metric.h"
#include "base/option.h"
#include "cluster/members.h"
#include "cluster/stream.h"
#include "cluster/trust.h"
#include "push/authority.h"
#include "push/server.h"

#define RIG_END ((const char *)NULL)

/* Tokens: "node:<name>" or "node:<name>:<pod>" is good; "unbound" names no node; all else is bad.
 */
struct stream_rig {
    struct nxl_loop *loop;
    struct nxl_settings *settings;
    struct nxl_metrics *metrics;
    struct nxl_authority *authority;
    struct nxl_push *push;
    char folder[64];          /* ca.pem, and the clients' tokens */
    const char *uninterested; /* "node group" that interested() denies; NULL: none */
    int hold_tokens;          /* answers wait for stream_rig_answer() */
    int fail_tokens;          /* the API server cannot be asked */
    uint64_t held[64];
    char held_token[64][128];
    unsigned held_count;
    unsigned checks, acks, ups, downs, silents, heards, locals, pods, suspects;
    uint64_t acked_seq, acked_us;
    uint32_t acked_purged, purged; /* of the last; and in all */
    char last[256];                /* of the last fact, pod list or suspicion */
};

/* Settings are key, value, ... RIG_END; listen is 127.0.0.1:0. other: its authority is shared. */
void stream_rig_open(struct stream_rig *rig, struct nxl_loop *loop, const struct stream_rig *other,
                     ...);
void stream_rig_close(struct stream_rig *rig);
/* The same authority and port, a new server. */
void stream_rig_restart(struct stream_rig *rig);
void stream_rig_stop(struct stream_rig *rig); /* the server alone */
void stream_rig_answer(struct stream_rig *rig);
uint64_t stream_rig_put(struct stream_rig *rig, const char *id, const char *group, const char *node,
                        const char *version);
uint64_t stream_rig_dead(struct stream_rig *rig, const char *id, const char *reason);
/* A policy that lets `from` (NULL: nobody) do ops. */
void stream_rig_policy(struct stream_rig *rig, const char *group, uint64_t generation,
                       const char *from, unsigned ops);
int64_t stream_rig_metric(struct nxl_metrics *metrics, const char *name, const char *labels);

struct stream_client {
    struct nxl_loop *loop;
    struct nxl_settings *settings;
    struct nxl_metrics *metrics;
    struct nxl_members *members;
    struct nxl_stream *stream;
    struct nxl_trust *trust;
    char node[128], agent[160], token[128];
    unsigned deaths, drains, drained, suspects, clears, policies, states;
    char dead[160], reason[160]; /* of the last death */
    uint64_t dead_ns;
    int hold_fences;
    uint64_t fences[64];
    unsigned fence_count;
    void (*on_death)(struct stream_client *client, const char *prefix);
    void *user;
};
/* token NULL: "node:<node>". operators NULL: the rig's address. Its members and trust (pending, if
 * with_trust) are made here. metrics NULL: its own. */
void stream_client_open(struct stream_client *client, struct nxl_loop *loop,
                        const struct stream_rig *rig, const char *node, const char *token,
                        const char *operators, struct nxl_metrics *metrics, int with_trust, ...);
void stream_client_close(struct stream_client *client);

/* Runs the loop until the expression is true; fails after 20 s with its text. */
#define STREAM_WAIT(on_loop, expr)                                                                 \
    do {                                                                                           \
        uint64_t wait_end_ = nxl_now_ns() + 20 * NXL_SEC;                                          \
        int wait_done_;                                                                            \
        while (!(wait_done_ = !!(expr)) && nxl_now_ns() < wait_end_)                               \
            stream_turn(on_loop);                                                                  \
        if (!wait_done_)                                                                           \
            fail_msg("never came: %s", #expr);                                                     \
    } while (0)
void stream_turn(struct nxl_loop *loop);             /* what is ready, or 1 ms */
void stream_run(struct nxl_loop *loop, uint64_t ns); /* for proving that nothing happens */

#endif
