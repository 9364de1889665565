/* session.h - one connection with an agent: socket, ring, and what lies in the ring.
 * A session never comes back to life: after the agent left, the client opens another one. Its
 * struct lives until the client closes, so that a lock-free reader never meets freed memory. */
#ifndef NXL_CLIENT_SESSION_H
#define NXL_CLIENT_SESSION_H

#include <pthread.h>
#include <stdatomic.h>

#include "client/arena.h"
#include "client/witness.h"
#include "wire/frame.h"
#include "wire/ring.h"

struct nxl_client;

struct nxl_call {          /* one frame on its way, and the room for its answer */
    struct nxl_call *next; /* waiting, or spare */
    uint32_t seq;
    int done;
    enum nxl_code code; /* of the answer's arrival, not the answer's own */
    struct nxl_frame frame;
    unsigned char packet[NXL_FRAME_MAX];
};

struct nxl_later {     /* a block of the arena that the agent may still read */
    uint64_t position; /* free once the agent's tail reached it */
    uint64_t offset;
};

struct nxl_session {
    struct nxl_client *client;
    struct nxl_session *next;
    int fd, doorbell, wake; /* owned; wake and doorbell -1 once retired */
    int epoll, nudge;       /* what a waiting thread sleeps on */
    uint32_t number;
    char incarnation[NXL_INCARNATION_MAX + 1]; /* of the agent */
    char node[NXL_NODE_MAX + 1];
    char ns[NXL_NAMESPACE_MAX + 1];
    char backends[256];
    void *base;                  /* the ring's mapping */
    struct nxl_witness *witness; /* NULL: none */
    uint64_t base_size;
    struct nxl_ring ring; /* submit_pos: ring_lock; notice_pos: the client's event_lock */

    _Atomic uint32_t gone; /* 1: the socket ended; nothing in the ring changes any more */
    _Atomic uint32_t told; /* 1: nxl_session_lost() is through; only now may it be retired */
    _Atomic uint32_t refs; /* the client while current, calls, transfers */
    _Atomic uint32_t glances;
    _Atomic uint64_t glanced_ns;
    _Atomic uint32_t sleeping; /* a waiting thread may be asleep on epoll */

    struct { /* under lock: frames on the socket */
        pthread_mutex_t lock;
        pthread_cond_t answered;
        struct nxl_call *waiting, *spare;
        uint32_t spares;
        uint32_t seq;
        int reading; /* one thread reads for all */
        unsigned char *packet;
        char reason[160]; /* GOAWAY's text */
    } channel;

    struct { /* under lock: the only producer of the submission ring, and its arena */
        pthread_mutex_t lock;
        struct nxl_arena arena;
        uint32_t *posts; /* by slot: posts ever */
        uint32_t *free_slots;
        uint32_t free_count;
        struct nxl_later *later; /* in order of position */
        size_t later_first, later_count, later_room;
        uint32_t *dead_lists; /* agent's ids, to be given back with the next call */
        uint32_t *dead_peers; /* the peers of those lists */
        size_t dead_count, dead_room;
    } submit;

    struct { /* under lock: threads that wait for transfers */
        pthread_mutex_t lock;
        pthread_cond_t turn;
        int led;
    } wait;
};

/* ---- session.c */
/* Connects, says hello, maps the ring. Not published yet. Gives *ret to nxl_session_free(). */
NXL_MUST_USE enum nxl_code nxl_session_open(struct nxl_client *client, struct nxl_session **ret,
                                            struct nxl_err *err);
void nxl_session_ref(struct nxl_session *session);
void nxl_session_unref(struct nxl_session *session); /* the last one gives the ring's memory back */
void nxl_session_free(struct nxl_session *session);  /* client is closing; accepts NULL */
/* Looks at the socket: 1 if it ended. One system call. */
int nxl_session_probe(struct nxl_session *session);
/* 1 at most every 10 ms: time to probe. For callers that come often. */
int nxl_session_probe_due(struct nxl_session *session);
/* The socket ended. Once: marks it, tells peers, wakes whoever waits. Any thread, no lock held. */
void nxl_session_lost(struct nxl_session *session);
/* For callers that only read memory in a loop: looks at the socket about every 10 ms. */
void nxl_session_glance(struct nxl_session *session);

/* ---- channel.c */
/* NULL: no memory. The frame is zeroed. Gives to nxl_call_free(). */
struct nxl_call *nxl_call_new(struct nxl_session *session, uint16_t type);
void nxl_call_free(struct nxl_session *session, struct nxl_call *call);
/* Sends call->frame with descriptors, waits for the answer and puts it into call->frame. An answer
 * with a negative code becomes err. NXL_NO_AGENT: the agent left. NXL_TIMEOUT: no answer. */
NXL_MUST_USE enum nxl_code nxl_call_run(struct nxl_session *session, struct nxl_call *call,
                                        const int *fds, uint32_t fd_count, uint64_t timeout_ms,
                                        struct nxl_err *err);
/* The two halves, used by hello: descriptors come with the answer. *ret_size 0: the end. */
NXL_MUST_USE enum nxl_code nxl_packet_send(int fd, const void *data, size_t size, const int *fds,
                                           uint32_t fd_count, uint64_t deadline_ns,
                                           struct nxl_err *err);
NXL_MUST_USE enum nxl_code nxl_packet_receive(int fd, void *data, size_t size, size_t *ret_size,
                                              int *ret_fds, uint32_t fd_room,
                                              uint32_t *ret_fd_count, uint64_t deadline_ns,
                                              struct nxl_err *err);
uint64_t nxl_client_now(void); /* CLOCK_MONOTONIC, ns */

/* ---- submit.c: all with submit.lock held, but nxl_submit_list_dead() */
/* Puts an entry into the ring and rings the doorbell if the agent sleeps. Waits a bounded time for
 * room. NXL_LIMIT: the agent takes nothing. NXL_NO_AGENT. */
NXL_MUST_USE enum nxl_code nxl_submit_entry(struct nxl_session *session,
                                            const struct nxl_ring_entry *entry,
                                            struct nxl_err *err);
/* *ret: offset of a block in the arena. NXL_LIMIT: full; err names the option. */
NXL_MUST_USE enum nxl_code nxl_submit_block(struct nxl_session *session, uint64_t size,
                                            uint64_t *ret, struct nxl_err *err);
/* Frees a block when the agent has taken everything submitted up to now. */
void nxl_submit_block_later(struct nxl_session *session, uint64_t offset, uint64_t position);
NXL_MUST_USE enum nxl_code nxl_submit_slot(struct nxl_session *session, uint32_t *ret,
                                           struct nxl_err *err);
void nxl_submit_list_dead(struct nxl_session *session, uint32_t peer, uint32_t list);
/* Tells the agent about dead lists. No lock held. */
void nxl_submit_flush_lists(struct nxl_session *session, size_t at_least);

/* ---- wait.c */
typedef int nxl_wait_fn(const void *arg); /* 1: what was waited for is there; plain memory reads */
/* NXL_OK: ready. NXL_TIMEOUT. Ends too when the session does, if ready() then says so. */
enum nxl_code nxl_wait(struct nxl_session *session, nxl_wait_fn *ready, const void *arg,
                       uint64_t timeout_ns);

#endif
