/* link_internal.h - what the rooms of the link share: the set (links.c), one far agent (link.c),
 * one connection (link_conn.c), the handshake (link_hello.c), TLS (link_tls.c), notices
 * (link_notice.c). Loop thread only. Links and connections that ended stay readable until the
 * loop's next turn, so a callback may end anything; whoever loops looks at `over` and `dead` after
 * each callback. */
#ifndef NXL_CLUSTER_LINK_INTERNAL_H
#define NXL_CLUSTER_LINK_INTERNAL_H

#include "base/bytes.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/metric.h"
#include "cluster/link.h"
#include "cluster/trust.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <uthash.h>

#define LINK_OUT_MAX (8u << 20)      /* bytes waiting for a slow reader, then NXL_LIMIT */
#define LINK_OUT_PUMP (1u << 20)     /* notices are fed while fewer bytes wait */
#define LINK_READ_QUOTA (512u << 10) /* bytes per turn and connection */
#define LINK_CHUNK (64u << 10)
#define LINK_HELLO_MAX                                                                             \
    65535u /* the third byte of a first frame is 0, so it never looks like TLS                     \
            */
#define LINK_HALF_OPEN_MAX 256u /* accepted connections that have not said who they are */
#define LINK_BACKOFF_MIN (100 * NXL_MS)
#define LINK_ENDED_MAX 1024u
#define LINK_REFUSALS_MAX 1024u
#define LINK_TARGETS_MAX 4u

#define LINK_HELLO_INSECURE 1u /* flags of HELLO */
#define LINK_ACK_UP_TO 1u      /* flags of NOTICE_ACK: all up to sequence were taken */

struct ssl_st;
struct bio_method_st;

enum conn_state { CONN_CONNECTING, CONN_TLS, CONN_HELLO, CONN_UP };

/* Labels of nixlet_link_handshake_failures_total. */
enum link_failure {
    LINK_FAIL_CONNECT, /* refused, no route, name not found */
    LINK_FAIL_TIMEOUT,
    LINK_FAIL_TLS,
    LINK_FAIL_PLAINTEXT, /* one side speaks TLS, the other does not */
    LINK_FAIL_VERSION,
    LINK_FAIL_CLUSTER,
    LINK_FAIL_NODE,  /* certificate, node and agent do not belong together */
    LINK_FAIL_ENDED, /* an incarnation whose end is known, or ourselves */
    LINK_FAIL_LIMIT,
    LINK_FAIL_MALFORMED,
    LINK_FAIL_REFUSED, /* the far side refused or closed */
    LINK_FAILURES
};

struct conn {
    struct nxl_links *links;
    struct nxl_link *link; /* dialled: from the start; accepted: once up */
    struct conn *prev, *next, *buried;
    enum conn_state state;
    int outbound;
    int dead;   /* closed; memory goes in the next turn */
    int broken; /* a write failed; ended by links->later, not inside the caller's send */
    int paused; /* held notices fill the window: nothing is read */
    int corked; /* frames are being read: writes wait for the end of the batch */
    int again;  /* a pause ended: links->later reads on */
    int fd;
    struct nxl_watch *watch;
    struct nxl_timer *timer; /* connect_timeout until up */
    struct ssl_st *ssl;      /* NULL: plaintext */
    unsigned events;         /* what watch asks for */
    int read_wants_write;    /* TLS */
    unsigned char head[3];   /* the first bytes, to tell TLS from plaintext */
    unsigned head_size, head_used;
    struct nxl_bytes in, out;
    size_t in_pos, out_pos;
    char peer[96];                    /* socket address, for logs */
    char cert_node[NXL_NODE_MAX + 1]; /* proven by TLS, "" in plaintext */
    char why[NXL_ERR_TEXT_SIZE];      /* of broken */
};

struct link_frame { /* a notice frame: unacknowledged (ours) or held (theirs) */
    struct link_frame *next;
    uint64_t sequence, cookie;
    int sent;
    size_t size;
    unsigned char data[];
};

struct link_queue {
    struct link_frame *head, *tail;
    uint32_t count;
    size_t bytes;
};

struct link_refusal {
    uint64_t sequence;
    int32_t code;
};

struct link_notices {
    struct link_queue unacked;
    struct link_frame *unsent; /* first of unacked that this connection has not carried */
    uint64_t last;             /* sequence given last */
    uint64_t seen;             /* highest sequence of theirs that was taken or refused */
    struct link_queue held;
    int ack_due, busy;
    struct link_refusal *refusals; /* ring, so that a lost refusal can be said again */
    uint32_t refusal_count, refusal_next;
};

struct nxl_link {
    struct nxl_links *links;
    struct nxl_link *prev, *next, *buried;
    UT_hash_handle hh;
    char agent[NXL_INCARNATION_MAX + 1]; /* "" while anonymous */
    char node[NXL_NODE_MAX + 1];
    char address[300]; /* what we dial */
    char told[300];    /* what the far agent says others should dial */
    struct nxl_message_backend backends[NXL_BACKENDS_MAX];
    uint32_t backend_count;
    struct nxl_bytes backend_bytes;
    void *user;
    int over, hashed;
    int told_up; /* what ops heard last */
    int ever_up, suspect;
    struct conn *conn;   /* up */
    struct conn *trying; /* dialled, not up yet */
    struct link_resolve *resolve;
    struct sockaddr_storage targets[LINK_TARGETS_MAX];
    uint32_t target_count, target_next;
    struct nxl_timer *retry, *beat;
    uint64_t backoff_ns, last_rx_ns, next_ping_ns, ping_sequence, beat_due_ns;
    char last_why[NXL_ERR_TEXT_SIZE]; /* of the last failed dial: the same is not logged twice */
    struct link_notices notices;
};

struct link_resolve; /* a name look-up on its way; outlives the link if it must */

struct link_ended { /* incarnations whose link is over; their counters, should they come again */
    char agent[NXL_INCARNATION_MAX + 1];
    uint64_t last, seen;
    int dead;
};

struct link_metrics {
    struct nxl_metric *up, *reconnects, *frames_in, *frames_out, *bytes_in, *bytes_out;
    struct nxl_metric *unacked, *resends, *held, *malformed, *suspects, *rtt;
    struct nxl_metric *failures[LINK_FAILURES];
};

struct nxl_links {
    struct nxl_loop *loop;
    const struct nxl_message_backend *backends;
    uint32_t backend_count;
    const struct nxl_links_ops *ops;
    void *arg;
    char cluster[NXL_NAMESPACE_MAX + 1], node[NXL_NODE_MAX + 1], agent[NXL_INCARNATION_MAX + 1];
    char address[300];
    struct nxl_trust *trust; /* NULL: insecure */
    int trust_lent;          /* not ours to close */
    struct bio_method_st *bio_method;
    uint64_t ping_ns, suspect_ns, connect_ns, backoff_max_ns;
    uint32_t notices_max, links_max;
    size_t notice_bytes_max, frame_max;
    int listen_fd;
    struct nxl_watch *listen_watch;
    struct nxl_timer *listen_retry; /* after EMFILE */
    struct nxl_link *list;
    struct nxl_link *by_agent;
    uint32_t count;
    struct conn *conns;
    uint32_t half_open;
    struct nxl_message_decoder *decoder;        /* for on_message */
    struct nxl_message_decoder *notice_decoder; /* apart: resume may run inside on_message */
    struct nxl_timer *later; /* next turn: broken connections, unread rest, the dead */
    struct nxl_link *dead_links;
    struct conn *dead_conns;
    struct link_ended *ended;
    uint32_t ended_count, ended_next;
    struct link_metrics metrics;
    struct nxl_log_gate gate;
    unsigned char chunk[LINK_CHUNK];
};

/* links_open.c */
void links_accept_resume(struct nxl_links *links); /* fewer connections are half open */

/* links.c */
void links_later(struct nxl_links *links);
void links_on_later(void *arg);
void links_free_the_dead(struct nxl_links *links);
void links_forget(struct nxl_link *link); /* at close: over without a callback */
void links_bury_conn(struct conn *conn);
void links_bury_link(struct nxl_link *link);
struct nxl_link *links_new_link(struct nxl_links *links, const char *address, const char *agent);
void links_name_link(struct nxl_link *link,
                     const char *agent); /* sets agent; restores counters of a former link */
void links_remember_end(struct nxl_link *link, int dead);
int links_is_dead(const struct nxl_links *links, const char *agent);

/* link.c */
void link_start(struct nxl_link *link); /* dials in the next turn */
/* The connection is checked and chosen: it becomes the link's. Calls on_up. */
void link_attach(struct nxl_link *link, struct conn *conn, const struct nxl_message *hello);
void link_lost(struct nxl_link *link, const char *why, int quiet); /* its up connection ended */
void link_dial_failed(struct nxl_link *link, const char *why);
void link_heard(struct nxl_link *link);
void link_ping(struct nxl_link *link);
void link_pong(struct nxl_link *link, const struct nxl_message *pong);
/* Over for good. heir: takes what waits to be sent; NULL: it ends with REMOTE_DISCONNECT. */
void link_end(struct nxl_link *link, int dead, struct nxl_link *heir, const char *why);

/* link_dial.c: link.c calls */
void link_dial(struct nxl_link *link);     /* looks the name up again, then connects */
int link_dial_next(struct nxl_link *link); /* 1: another address of the same name is tried */
void link_dial_cancel(struct nxl_link *link);
/* 1 if the far end of a connected socket has the IP address that this link dials. For link_hello.c.
 */
int link_dial_leads_to(struct nxl_link *link, int fd);

/* link_conn.c, link_io.c (bytes), link_frame.c (frames) */
struct conn *conn_new(struct nxl_links *links, int fd, int outbound, const struct sockaddr *peer);
enum nxl_code conn_watch(struct conn *conn, unsigned events, struct nxl_err *err);
void conn_close(struct conn *conn); /* no callback; NULL is fine */
/* Ends a connection because of a failure; tells the link, logs, counts. */
void conn_fail(struct conn *conn, enum link_failure failure, const char *fmt, ...) NXL_PRINTF(3, 4);
/* Says why in a last message (code NXL_BUSY: another connection stays), then closes. No callback.
 */
void conn_refuse(struct conn *conn, enum nxl_code code, const char *why);
enum nxl_code conn_put(struct conn *conn, const struct nxl_message *message, struct nxl_err *err);
void conn_put_frame(struct conn *conn, const void *frame, size_t size);
void conn_flush(struct conn *conn);
size_t conn_backlog(const struct conn *conn);
void conn_want(struct conn *conn); /* asks the loop for what is to be done */
/* 1: the first bytes are of the kind that we speak. 0: more must come. -1: the connection has
 * ended. */
int conn_sniff(struct conn *conn);
void conn_read(struct conn *conn);    /* what the socket holds now; may end the connection */
void conn_unpause(struct conn *conn); /* goes on with frames that were left */
void conn_process(struct conn *conn); /* frames that lie in conn->in */

/* link_tls.c: io returns bytes, 0 to wait, -1 with conn->why set. */
enum nxl_code conn_tls_start(struct conn *conn, struct nxl_err *err);
/* 1 done, 0 wait, -1 failed (conn->why). */
int conn_tls_handshake(struct conn *conn);
long conn_tls_read(struct conn *conn, void *to, size_t room);
long conn_tls_write(struct conn *conn, const void *data, size_t size);
void conn_tls_close(struct conn *conn);
struct bio_method_st *conn_tls_method(void); /* given to BIO_meth_free() */
/* Raw socket, with the same results; the first bytes come from conn->head. */
long conn_recv(struct conn *conn, void *to, size_t room);
long conn_send(struct conn *conn, const void *data, size_t size);

/* link_hello.c */
enum nxl_code conn_send_hello(struct conn *conn, struct nxl_err *err);
void conn_on_hello(struct conn *conn, struct nxl_view body);

/* link_notice.c */
void notices_attach(struct nxl_link *link, uint64_t far_seen); /* a new connection is up */
void notices_detach(struct nxl_link *link);
void notices_pump(struct nxl_link *link);
void notices_on_notice(struct nxl_link *link, const struct nxl_message *notice,
                       struct nxl_view body);
void notices_on_ack(struct nxl_link *link, const struct nxl_message *ack);
void notices_flush_acks(struct nxl_link *link);
void notices_resume(struct nxl_link *link);
void notices_end_all(struct nxl_link *link, const char *why);
void notices_renumber(struct nxl_link *link, uint64_t last); /* nothing was sent yet */
void notices_move(struct nxl_link *from, struct nxl_link *to);
void notices_fini(struct nxl_link *link);

#endif
