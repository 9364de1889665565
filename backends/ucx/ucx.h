/* ucx.h - the state of the UCX backend and the doors between its rooms.
 * One progress thread owns the worker, connections, imported keys, operations and requests; the
 * loop thread hands it commands. Only mapping and packing keys (context level, the context is
 * shared) and the table of regions are used by both, the latter under its lock. */
#ifndef NXL_UCX_UCX_H
#define NXL_UCX_UCX_H

#include "library.h"

#include <nxl/backend.h>

#include <pthread.h>
#include <stdatomic.h>

#define UCX_SEGMENTS_MAX 32u           /* rows packed into one message */
#define UCX_MESSAGE_MAX (240u * 1024u) /* data of one message: one fragment of TCP_TX_SEG_SIZE */
#define UCX_TURN_BYTES (256u * 1024u)  /* an operation's share before the next one's turn */
#define UCX_TURN_ROWS 64u
#define UCX_REQUESTS_MAX 256u              /* outstanding per connection */
#define UCX_ABANDON_NS UINT64_C(500000000) /* for a closed endpoint's requests to come back */
#define UCX_REPLIES_MAX 4096u              /* unfinished answers to others; more are dropped */

enum ucx_command_kind {
    UCX_COMMAND_CONNECT,
    UCX_COMMAND_DISCONNECT,
    UCX_COMMAND_IMPORT,
    UCX_COMMAND_FORGET,
    UCX_COMMAND_SUBMIT,
    UCX_COMMAND_CANCEL,
    UCX_COMMAND_STOP,
};
/* Part of what it speaks of, so that handing over never allocates. */
struct ucx_command {
    struct ucx_command *next;
    enum ucx_command_kind kind;
};
struct ucx_cancel {
    struct ucx_command command;
    uint64_t op_id;
};

/* Intrusive ring; a head points to itself when empty. */
struct ucx_link {
    struct ucx_link *next, *prev;
};

struct ucx_settings {
    char *tls, *device_list, *engine_config;
    int64_t spin_ns, keepalive_ns, drain_ns, init_ns, connect_ns;
    uint64_t window_bytes, chunk_bytes;
    uint32_t depth;
    int rma; /* put and get are possible at all; else UCX does not even listen for them */
    enum { UCX_PROTOCOL_AUTO, UCX_PROTOCOL_RMA, UCX_PROTOCOL_MESSAGE } protocol;
};

enum ucx_start_phase { UCX_STARTING, UCX_READY, UCX_START_FAILED, UCX_ABANDONED };

struct nxl_backend_mem {
    uint8_t *base;
    uint64_t size, nonce; /* the nonce in a message proves that the sender was given the key */
    ucp_mem_h memh;
    uint32_t slot, pins; /* regions.lock: unfinished answers that still read it */
    int listed;          /* regions.lock */
};

struct nxl_backend_remote {
    struct ucx_command import, forget;
    struct nxl_backend_conn *conn;
    struct ucx_link link; /* conn->remotes; progress thread */
    ucp_rkey_h rkey;      /* progress thread; NULL where messages are used */
    ucs_status_t status;  /* of the unpacking */
    uint64_t base, size, nonce;
    uint32_t slot;
    uint32_t rkey_size;
    uint8_t rkey_bytes[];
};

enum ucx_conn_state {
    UCX_CONN_NEW, /* the command is under way */
    UCX_CONN_OPEN,
    UCX_CONN_CLOSING, /* failed or disconnected; the endpoint is closing */
    UCX_CONN_CLOSED,
};

struct nxl_backend_conn {
    struct ucx_command connect, disconnect;
    struct nxl_backend *backend;
    struct ucx_link link; /* backend->progress.conns */
    struct {
        atomic_int failed;    /* progress thread writes, submit() reads */
        pthread_mutex_t told; /* disconnected() is never called after disconnect() returned */
        int released;         /* under told: the agent gave the connection back */
    } shared;
    struct { /* progress thread only */
        enum ucx_conn_state state;
        ucp_ep_h ep;
        ucs_status_t error; /* from the callback; acted upon outside of it */
        enum nxl_path_class path;
        const char *device; /* interned */
        int by_message;     /* the agents' own protocol instead of put and get */
        int wired;          /* the far agent has answered once */
        uint64_t wire_due_ns;
        uint64_t abandon_ns; /* closed, but UCX keeps requests: given up at this time */
        int gone;            /* the DISCONNECT command has been seen */
        uint64_t token;      /* random; an answer must carry it */
        struct ucx_link ops, issue, remotes;
        uint64_t outstanding_bytes;
        uint32_t outstanding;
    } own;
    size_t address_size;
    uint8_t address[];
};

struct ucx_cursor {
    uint32_t piece, row;
    uint64_t done; /* bytes of this row */
};

/* One operation, from submit() until it is quiesced. Progress thread. */
struct ucx_op {
    struct ucx_command command;
    const struct nxl_op *op; /* lent until complete(); NULL afterwards */
    struct nxl_backend_conn *conn;
    struct ucx_link link, issue, dirty;
    struct ucx_cursor cursor;
    uint64_t id, total, issued, sure; /* bytes */
    uint64_t deadline_ns, drain_ns;
    uint32_t in_flight;
    int32_t kind;
    int started, all_issued, flushing, flushed, ended;
    ucs_status_t status;    /* first failure */
    enum nxl_code far_code; /* why the far agent refused a message */
};

/* A piece of memory on both sides, short enough for one request. */
struct ucx_slice {
    struct nxl_backend_mem *mem;
    struct nxl_backend_remote *remote;
    uint8_t *local;
    uint64_t offset; /* from the start of the remote region */
    uint64_t len;
};

#define UCX_MESSAGE_ID 78u /* of ucp_worker_set_am_recv_handler */
#define UCX_MESSAGE_MAGIC 0x4d4c584eu
#define UCX_MESSAGE_VERSION 1u
enum ucx_message_kind {
    UCX_MESSAGE_WRITE = 1, /* segments, then their bytes */
    UCX_MESSAGE_READ = 2,  /* segments */
    UCX_MESSAGE_DONE = 3,  /* answer to WRITE: copied, or why not */
    UCX_MESSAGE_DATA = 4,  /* answer to READ: the bytes, or why not */
};
struct ucx_message {
    uint32_t magic;
    uint8_t version, kind;
    uint16_t count;          /* segments */
    uint64_t token, request; /* repeated by the answer */
    int32_t code;            /* enum nxl_code, answers only */
    uint32_t reserved;
};
struct ucx_segment {
    uint64_t nonce, offset;
    uint32_t slot, len;
};

enum ucx_request_kind {
    UCX_REQUEST_RMA,
    UCX_REQUEST_FLUSH,
    UCX_REQUEST_WRITE,
    UCX_REQUEST_READ,
    UCX_REQUEST_PING
};

/* One request to UCX or one message of ours with its answer. Progress thread. */
struct ucx_request {
    struct nxl_backend *backend;
    struct ucx_request *next; /* free list */
    struct ucx_op *op;        /* NULL: nobody waits for it any more */
    struct nxl_backend_conn *conn;
    uint32_t index, generation;
    enum ucx_request_kind kind;
    int busy, sent, answered;
    int orphan; /* given up: UCX may still point at it, nobody counts it */
    ucs_status_t status;
    uint64_t len;
    uint32_t count;
    struct {
        struct ucx_message head;
        struct ucx_segment segments[UCX_SEGMENTS_MAX];
    } message;
    ucp_dt_iov_t iov[UCX_SEGMENTS_MAX];
};

struct nxl_backend {
    struct nxl_host *host;
    struct ucx_library lib;
    struct ucx_settings settings;
    pthread_t thread;
    int event_fd;
    struct {
        _Atomic(struct ucx_command *) head; /* newest first */
        atomic_int parked;                  /* the thread sleeps or is about to */
        atomic_uint ops;                    /* submitted and not yet freed */
        atomic_int starved;                 /* somebody was told NXL_AGAIN */
    } shared;
    struct {
        pthread_mutex_t lock;
        pthread_cond_t changed;
        enum ucx_start_phase phase;
        struct nxl_err err;
    } start;
    /* Written before UCX_READY, constant afterwards. */
    ucp_context_h context;
    uint8_t *address;
    size_t address_size;
    struct {
        pthread_mutex_t lock;
        pthread_cond_t unpinned;
        struct nxl_backend_mem **slots;
        uint32_t room, next_free; /* no free slot lies before next_free */
    } regions;
    struct { /* progress thread only */
        ucp_worker_h worker;
        int efd;
        struct ucx_link conns, dirty;
        struct ucx_request **requests;
        struct ucx_request *free_requests;
        struct ucx_reply *free_replies, *all_replies;
        uint32_t requests_room, requests_count, replies;
        int conn_failed, stop;
        uint64_t next_deadline_ns;
        uint64_t worked_ns; /* when UCX last had something to do */
        struct ucx_name *names;
        struct ucx_command stop_command;
    } own;
};

/* option.c */
extern const struct nxl_option ucx_options[];
NXL_MUST_USE enum nxl_code ucx_settings_read(struct ucx_settings *settings,
                                             const struct nxl_config *config, struct nxl_err *err);
void ucx_settings_fini(struct ucx_settings *settings);
NXL_MUST_USE enum nxl_code ucx_settings_apply(struct nxl_backend *backend, ucp_config_t *config,
                                              struct nxl_err *err);

/* start.c: the first and last steps of the progress thread. */
NXL_MUST_USE enum nxl_code ucx_start(struct nxl_backend *backend, struct nxl_err *err);
void ucx_finish(struct nxl_backend *backend);
void ucx_backend_free(struct nxl_backend *backend); /* ucx.c */
/* log.c */
void ucx_log(struct nxl_backend *backend, int level, const char *fmt, ...) NXL_PRINTF(3, 4);
void ucx_log_listen(struct nxl_backend *backend);
void ucx_log_leave(struct nxl_backend *backend);

/* progress.c */
void *ucx_progress_main(void *backend);
void ucx_command_push(struct nxl_backend *backend, struct ucx_command *command,
                      enum ucx_command_kind kind);
uint64_t ucx_now_ns(void);

/* memory.c */
enum nxl_code ucx_register(struct nxl_backend *backend, const struct nxl_memory *memory,
                           struct nxl_backend_mem **ret, struct nxl_err *err);
enum nxl_code ucx_deregister(struct nxl_backend *backend, struct nxl_backend_mem *mem,
                             struct nxl_err *err);
enum nxl_code ucx_export(struct nxl_backend *backend, struct nxl_backend_mem *mem, void *buf,
                         size_t *ret_size, struct nxl_err *err);
enum nxl_code ucx_import(struct nxl_backend *backend, struct nxl_backend_conn *conn,
                         struct nxl_view key, struct nxl_backend_remote **ret, struct nxl_err *err);
void ucx_forget(struct nxl_backend *backend, struct nxl_backend_remote *remote);
uint64_t ucx_checksum(const void *data, size_t size, uint64_t seed);
void ucx_regions_free(struct nxl_backend *backend);
/* Progress thread. */
void ucx_remote_unpack(struct nxl_backend_remote *remote);
void ucx_remote_free(struct nxl_backend_remote *remote);

/* endpoint.c */
enum nxl_code ucx_address(struct nxl_backend *backend, struct nxl_view *ret, struct nxl_err *err);
enum nxl_code ucx_address_pack(struct nxl_backend *backend, const void *address, size_t size,
                               struct nxl_err *err);
enum nxl_code ucx_connect(struct nxl_backend *backend, struct nxl_view address,
                          struct nxl_backend_conn **ret, struct nxl_err *err);
void ucx_disconnect(struct nxl_backend *backend, struct nxl_backend_conn *conn);
/* Progress thread. */
void ucx_conn_open(struct nxl_backend_conn *conn);
void ucx_conn_fail(struct nxl_backend_conn *conn, ucs_status_t status, const char *why);
void ucx_conn_release(struct nxl_backend_conn *conn);
void ucx_conns_check(struct nxl_backend *backend);

/* lanes.c: which transport an endpoint really uses. Progress thread. */
void ucx_lanes_read(struct nxl_backend_conn *conn);
void ucx_lanes_free(struct nxl_backend *backend);

/* transfer.c */
enum nxl_code ucx_submit(struct nxl_backend *backend, const struct nxl_op *op, struct nxl_err *err);
void ucx_cancel(struct nxl_backend *backend, uint64_t op_id);
/* Progress thread. */
void ucx_op_start(struct ucx_op *op);
void ucx_op_cancel(struct nxl_backend *backend, uint64_t op_id);
void ucx_op_end(struct ucx_op *op, enum nxl_code code, ucs_status_t status, const char *why);
void ucx_op_touch(struct ucx_op *op);   /* something of it has changed */
void ucx_op_advance(struct ucx_op *op); /* may free it */
int ucx_op_slice(struct ucx_op *op, uint64_t max, struct ucx_slice *ret);
unsigned ucx_ops_issue(struct nxl_backend *backend);
unsigned ucx_ops_settle(struct nxl_backend *backend);
void ucx_ops_deadlines(struct nxl_backend *backend, uint64_t now_ns);

/* request.c: records. Progress thread. */
struct ucx_request *ucx_request_take(struct nxl_backend_conn *conn, struct ucx_op *op,
                                     enum ucx_request_kind kind);
int ucx_request_answers(const struct ucx_request *request);
void ucx_request_return(struct ucx_request *request); /* not posted */
/* Counts a post just made; 0 if UCX refused it: the operation has got the status then. */
int ucx_request_posted(struct ucx_request *request, ucs_status_ptr_t posted);
void ucx_request_on_sent(void *handle, ucs_status_t status, void *user_data);
void ucx_request_check(struct ucx_request *request);
void ucx_requests_drop(struct nxl_backend_conn *conn);
void ucx_requests_abandon(struct nxl_backend_conn *conn);
void ucx_requests_free(struct nxl_backend *backend);

/* rma.c and message.c: one turn of an operation. */
void ucx_rma_issue(struct ucx_op *op);
int ucx_rma_flush(struct ucx_op *op);
void ucx_message_issue(struct ucx_op *op);
void ucx_message_ping(struct nxl_backend_conn *conn);
ucs_status_t ucx_message_on_arrival(void *arg, const void *header, size_t header_length, void *data,
                                    size_t length, const ucp_am_recv_param_t *param);
/* reply.c: the far side of a message. */
void ucx_reply_serve(struct nxl_backend *backend, const struct ucx_message *head,
                     const struct ucx_segment *segments, const void *data, size_t length,
                     ucp_ep_h ep);
void ucx_replies_free(struct nxl_backend *backend);

static inline void ucx_link_init(struct ucx_link *head)
{
    head->next = head->prev = head;
}
static inline int ucx_link_empty(const struct ucx_link *head)
{
    return head->next == head;
}
static inline void ucx_link_append(struct ucx_link *head, struct ucx_link *item)
{
    item->prev = head->prev;
    item->next = head;
    head->prev->next = item;
    head->prev = item;
}
/* Leaves the item alone in its own ring, so removing twice is harmless. */
static inline void ucx_link_remove(struct ucx_link *item)
{
    item->prev->next = item->next;
    item->next->prev = item->prev;
    ucx_link_init(item);
}
#define UCX_OF(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

#endif
