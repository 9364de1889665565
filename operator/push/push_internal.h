/* push_internal.h - what the rooms of push share: the tables of nodes, groups and records, and
 * connections with their queues. Never included from outside operator/push. Loop thread. */
#ifndef NXL_PUSH_INTERNAL_H
#define NXL_PUSH_INTERNAL_H

#include <uthash.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/metric.h"
#include "push/server.h"
#include "stream/tls.h"

#define PUSH_FRAME_ROOM 60000u  /* bytes of records in one frame; the rest is for its head */
#define PUSH_FRAME_DEAD 512u    /* of dead ones */
#define PUSH_FRAME_RECORDS 100u /* members of one frame of changes */
#define PUSH_TICK_NS (50 * NXL_MS)
#define PUSH_NODE_CONNS_MAX 4u /* an upgrade has two agents on a node for a while */
#define PUSH_HISTORY 4096u     /* recent sequences, for latencies */

struct push_buffer { /* one frame, shared by every queue it lies in */
    uint32_t refs, size, records;
    uint64_t seq; /* 0: not to be acknowledged */
    unsigned char data[];
};

struct push_cell {    /* one group as seen from one node */
    uint32_t members; /* records of the group on that node */
    uint8_t asked, wants;
};

struct push_node {
    char name[NXL_NODE_MAX + 1];
    uint32_t index;
    uint32_t refs; /* records and connections */
    struct push_conn *conns;
    UT_hash_handle hh;
};

struct push_record {
    char uid[NXL_LABEL_MAX + 1];
    struct push_group *group;
    struct push_node *node; /* NULL: not on a node yet */
    char *text;
    size_t text_size;
    uint64_t hash;
    struct push_record *prev, *next; /* in the group */
    UT_hash_handle hh;
};

struct push_group {
    char name[NXL_STREAM_GROUP_MAX + 1];
    uint32_t index;
    struct push_record *records;
    uint32_t record_count;
    char *policy; /* text; NULL: none */
    size_t policy_size;
    uint64_t policy_hash, digest; /* digest: of the records */
    struct push_cell *cells;      /* by index of node */
    uint32_t cells_room;
    struct push_buffer **chunks; /* a snapshot's frames, made when first asked for */
    uint32_t chunk_count;
    int chunks_made;
    struct push_batch {     /* changes since the last flush */
        struct push_texts { /* one behind the other */
            struct nxl_bytes text;
            uint32_t *ends; /* of each */
            uint32_t count, room;
        } forgets, members;
        struct push_death {
            char *id, *reason;
        } * deaths;
        uint32_t death_count, death_room;
        int policy;
    } batch;
    int dirty; /* in push->dirty */
    struct push_group *next_dirty;
    uint64_t seq, changed_ns, slowest_ns;
    UT_hash_handle hh;
};

enum push_failure {
    PUSH_FAIL_TLS = 0, /* broken, closed, or not TLS */
    PUSH_FAIL_FRAME,   /* what it said makes no sense */
    PUSH_FAIL_TOKEN,
    PUSH_FAIL_VERSION,
    PUSH_FAIL_TIMEOUT,
    PUSH_FAIL_SLOW,
    PUSH_FAIL_LIMIT,
    PUSH_FAIL_REPLACED,
    PUSH_FAILURES
};

struct push_conn {
    struct nxl_push *push;
    struct nxl_tls *tls;
    enum { CONN_HANDSHAKE = 0, CONN_HELLO, CONN_TOKEN, CONN_LIVE } state;
    int dead;   /* closed; freed at the end of the turn */
    int told;   /* on_agent(up) was called */
    int synced; /* it got a snapshot */
    struct push_node *node;
    char agent[NXL_INCARNATION_MAX + 1], pod[NXL_LABEL_MAX + 1];
    struct nxl_bytes in;
    struct push_hello { /* kept while the token is checked */
        char node[NXL_NODE_MAX + 1], agent[NXL_INCARNATION_MAX + 1];
        char *csr;
        unsigned char token[32]; /* its digest */
        uint64_t ticket;
    } hello;
    struct push_buffer **queue; /* ring */
    uint32_t queue_room, queue_first, queue_count, queue_records;
    size_t queue_bytes, head_sent;
    uint8_t blocked;        /* the head has to be offered again as it is */
    uint8_t needs_snapshot; /* what waited was dropped */
    uint8_t resets;         /* since the queue was last empty */
    uint64_t queued_ns;     /* since when the queue is not empty */
    uint64_t *held;         /* bits: groups it was told of */
    uint32_t held_words;
    uint64_t sent_seq, acked_seq, floor_seq;
    uint64_t since_ns, heard_ns, ping_ns;
    uint64_t asked_ns, asked_digest; /* of the last ping */
    uint64_t snapshot_ns, snapshot_pause_ns;
    uint64_t facts_ns, cert_ns;
    uint32_t facts;
    int silent;
    struct push_conn *prev, *next; /* of all */
    struct push_conn *node_next;   /* of its node */
    struct push_conn *next_ready;  /* has something new to write */
    struct push_conn *next_dead;
    int ready;
    UT_hash_handle hh; /* by ticket, while the token is checked */
};

struct push_token { /* a checked token, by digest */
    unsigned char digest[32];
    char node[NXL_NODE_MAX + 1], pod[NXL_LABEL_MAX + 1];
    enum nxl_code code;
    char why[160];
    uint64_t until_ns;
    UT_hash_handle hh;
};

struct push_metrics {
    struct nxl_metric *agents, *waiting, *frames, *bytes, *snapshots, *resets, *mismatches;
    struct nxl_metric *failures[PUSH_FAILURES], *accepted, *resumed, *tokens, *facts_refused;
    struct nxl_metric *latency, *fence, *issued, *silent, *records, *changes;
};

struct nxl_push {
    struct nxl_loop *loop;
    const struct nxl_push_ops *ops;
    void *arg;
    struct nxl_authority *authority;
    char cluster[NXL_NAMESPACE_MAX + 1], id[NXL_NODE_MAX + 1], epoch[20], address[300];
    struct {
        uint64_t ping_ns, silent_ns, hello_ns, queue_age_ns, token_ns;
        uint32_t agents, handshakes, queue_records, facts;
        size_t queue_bytes;
        const char *cert, *key, *names;
    } limits;
    int listen_fd;
    struct nxl_watch *listen_watch;
    struct nxl_timer *tick, *flush_later, *accept_later;
    struct nxl_tls_context *context;
    uint64_t cert_stamp[2], cert_checked_ns, cert_made_ns;
    struct push_conn *conns, *dead, *ready;
    uint32_t conn_count, live_count; /* conn_count: all that are not dead */
    struct push_conn *tickets;
    uint64_t next_ticket;
    struct push_token *tokens; /* oldest first */
    struct push_node *nodes, **node_by_index;
    uint32_t node_room;
    struct push_group *groups, **group_by_index, *dirty;
    uint32_t group_room;
    struct push_record *records;
    uint64_t seq;
    char rv[NXL_STREAM_VERSION_TEXT_MAX + 1];
    int synced, closing, flush_asked, interest_dirty;
    uint64_t ticked_ns, flushed_ns, flush_took_ns;
    struct push_seq { /* recent changes */
        uint64_t seq, at_ns;
        uint32_t group;
    } history[PUSH_HISTORY];
    struct push_metrics metrics;
    struct nxl_log_gate gate;
};

/* table.c */
struct push_node *push_node_get(struct nxl_push *push, const char *name); /* counts 1 */
void push_node_put(struct nxl_push *push, struct push_node *node);
struct push_group *push_group_find(struct nxl_push *push, const char *name);
struct push_record *push_record_find(struct nxl_push *push, const char *id);
void push_group_settle(struct nxl_push *push, struct push_group *group); /* frees what is empty */
int push_wants(struct nxl_push *push, struct push_group *group, struct push_node *node);
void push_table_fini(struct nxl_push *push);
void push_batch_clear(struct push_batch *batch);

/* fanout.c */
void push_flush_later(struct nxl_push *push);
void push_snapshot(struct push_conn *conn); /* queues one */
uint64_t push_digest(const struct push_conn *conn);
void push_chunks_drop(struct push_group *group);
void push_interest_apply(struct push_conn *conn);

/* conn.c */
struct push_buffer *push_buffer_new(const void *data, size_t size, uint64_t seq, uint32_t records);
void push_buffer_unref(struct push_buffer *buffer);
struct push_conn *push_conn_new(struct nxl_push *push, int fd, struct nxl_err *err);
void push_conn_queue(struct push_conn *conn, struct push_buffer *buffer); /* keeps a reference */
void push_conn_say(struct push_conn *conn, const struct nxl_stream_frame *frame);
void push_conn_pump(struct push_conn *conn);
void push_conn_pump_ready(struct nxl_push *push);
void push_conn_fail(struct push_conn *conn, enum push_failure failure, const char *fmt, ...)
    NXL_PRINTF(3, 4);
/* Tells why, then ends it. */
void push_conn_refuse(struct push_conn *conn, enum push_failure failure, enum nxl_code code,
                      const char *fmt, ...) NXL_PRINTF(4, 5);
void push_conn_tick(struct push_conn *conn, uint64_t now_ns);
void push_conns_free_dead(struct nxl_push *push);
void push_conn_show(const struct push_conn *conn, struct nxl_push_agent *ret);
static inline int push_held(const struct push_conn *conn, uint32_t group)
{
    return group / 64 < conn->held_words && (conn->held[group / 64] >> (group % 64) & 1) != 0;
}
void push_hold(struct push_conn *conn, uint32_t group, int hold);

/* hello.c */
void push_on_hello(struct push_conn *conn, const struct nxl_stream_frame *frame);
void push_hello_drop(struct push_conn *conn); /* its token is of no interest any more */
void push_tokens_fini(struct nxl_push *push);
void push_sign(struct push_conn *conn, const char *csr, struct nxl_bytes *to);

/* heard.c */
void push_on_frame(struct push_conn *conn, const struct nxl_stream_frame *frame);

/* listen.c */
enum nxl_code push_listen(struct nxl_push *push, const char *address, struct nxl_err *err);
void push_accept_resume(struct nxl_push *push);
enum nxl_code push_context_load(struct nxl_push *push, struct nxl_err *err);
void push_context_check(struct nxl_push *push, uint64_t now_ns);

#endif
