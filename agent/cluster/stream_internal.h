/* stream_internal.h - shared by the rooms of the operator stream's client: stream.c (options,
 * start, time), stream_dial.c (names to addresses to sockets), stream_conn.c (bytes),
 * stream_apply.c (frames). */
#ifndef NXL_CLUSTER_STREAM_INTERNAL_H
#define NXL_CLUSTER_STREAM_INTERNAL_H

#include "base/bytes.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/metric.h"
#include "cluster/members.h"
#include "cluster/stream.h"
#include "stream/tls.h"

#include <sys/socket.h>

#define STREAM_HOSTS_MAX 8u
#define STREAM_OUT_MAX (1u << 20) /* bytes that wait for one operator; then facts are dropped */
#define STREAM_FENCES_MAX 65536u  /* frames not yet fenced; then the connection starts over */

struct stream_fence { /* one applied frame whose acknowledgement is owed */
    uint64_t ticket, seq, at_ns, took_ns;
    uint32_t purged;
    int done;
};

struct stream_end { /* one address of an operator */
    struct nxl_stream *stream;
    struct stream_host *host;
    uint32_t source; /* in the table of members */
    struct sockaddr_storage address;
    char text[64];
    enum { END_WAIT = 0, END_CONNECT, END_HELLO, END_LIVE } state;
    int stale;  /* the name does not lead here any more */
    int synced; /* a whole snapshot of this connection was applied */
    int grace;  /* silent once; maybe it was us who slept */
    struct nxl_tls *tls;
    struct nxl_tls_ticket ticket;
    struct nxl_timer *timer;
    struct nxl_bytes in, out;
    uint32_t failures; /* in a row */
    uint64_t refused_ns, heard_ns, up_ns, cert_asked_ns;
    uint32_t ping_ms;
    char operator_id[NXL_NODE_MAX + 1];
    char epoch[NXL_STREAM_VERSION_TEXT_MAX + 1];
    char rv[NXL_STREAM_VERSION_TEXT_MAX + 1];
    uint64_t seq;                /* last applied */
    struct stream_fence *fences; /* ring, in order of seq */
    uint32_t fence_first, fence_count, fence_room;
    char why[160]; /* of the last end */
};

struct stream_host { /* one configured operator */
    char name[256];
    int port, numeric;
    struct stream_resolve *resolve; /* under way */
    uint64_t next_ns;
};

struct stream_metrics {
    struct nxl_metric *up, *frames, *snapshots, *failures, *refused, *dropped, *acked, *stale;
    struct nxl_metric *members, *draining, *suspect, *groups, *denied, *observed, *regressed;
    struct nxl_metric *apply_us;
};

struct nxl_stream {
    struct nxl_loop *loop;
    const struct nxl_stream_ops *ops;
    void *arg;
    struct nxl_members *members;
    struct nxl_trust *trust;
    char cluster[NXL_NAMESPACE_MAX + 1], node[NXL_NODE_MAX + 1], agent[NXL_INCARNATION_MAX + 1];
    const char *token_file, *ca_file, *server_name; /* the settings' */
    uint64_t jitter_ns, redial_max_ns, resolve_ns, connect_ns, silent_ns, renew_ns;
    struct stream_host hosts[STREAM_HOSTS_MAX];
    uint32_t host_count;
    struct stream_end *ends[NXL_MEMBERS_SOURCES];
    struct nxl_tls_context *context;
    uint64_t ca_stamp;
    struct nxl_timer *tick, *ack_later;
    int ack_asked;
    uint64_t next_ticket;
    uint32_t up;
    uint64_t heard_ns;
    int closing;
    char **pods; /* the latest list */
    uint32_t pod_count;
    struct stream_metrics metrics;
    struct nxl_log_gate gate;
};

/* stream_dial.c */
void stream_resolve(struct nxl_stream *stream, struct stream_host *host);
void stream_resolve_cancel(struct stream_host *host);
void stream_dial(struct stream_end *end);
void stream_redial(struct stream_end *end); /* after a while */
void stream_end_free(struct stream_end *end);

/* stream_conn.c */
enum nxl_code stream_connect(struct stream_end *end, int fd, struct nxl_err *err);
void stream_say(struct stream_end *end, const struct nxl_stream_frame *frame);
/* The connection ended, or is ended: dialled again. refused: the operator does not want us. */
void stream_fail(struct stream_end *end, int refused, const char *fmt, ...) NXL_PRINTF(3, 4);
void stream_hang_up(struct stream_end *end); /* closes without a word */
void stream_on_timer(void *arg);
void stream_ask_certificate(struct stream_end *end);

/* stream_apply.c */
void stream_on_frame(struct stream_end *end, const struct nxl_stream_frame *frame);
void stream_say_pods(struct stream_end *end);
void stream_on_ack_later(void *arg);

/* stream.c */
void stream_count_up(struct nxl_stream *stream);

#endif
