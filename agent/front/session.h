/* session.h - what the rooms of front share: the front's state, one client's session, and the doors
 * between the rooms. Never included from outside agent/front. Loop thread.
 *
 * A session may not be closed from inside a call into xfer or a callback of it: whoever finds a
 * reason dooms it, and the watch, poll turn or reaper that is outermost closes it. */
#ifndef NXL_FRONT_SESSION_H
#define NXL_FRONT_SESSION_H

#include "base/bytes.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/metric.h"
#include "front/front.h"
#include "front/identity.h"
#include "front/listener.h"
#include "front/wake.h"
#include "front/witness.h"
#include "wire/frame.h"
#include "wire/ring.h"
#include "xfer/xfer.h"

/* What one client may cost the others before they get their turn; one entry or frame is always
 * served, however long it takes. */
#define FRONT_TURN_NS (2 * NXL_MS)
#define FRONT_REFUSALS 8u /* posts that the front itself refused: sentences kept per session */

struct front_limits { /* section "socket" */
    uint32_t frames_per_turn, entries_per_turn, slots_max, clients_max, calls_max;
    uint64_t arena_max, notice_max, notice_queue_max, reply_queue_max, copy_max;
    uint64_t hello_timeout_ns, call_timeout_ns;
};

struct front_metrics {
    struct nxl_metric *sessions, *frames[NXL_FRAME_TYPES], *entries[NXL_RING_NOTIFY + 1];
    struct nxl_metric *notice_queue, *doorbells, *wakeups;
};

enum front_end {                     /* why a session ended: metric label */
                 FRONT_END_EXITED,   /* its process is dead */
                 FRONT_END_CLOSED,   /* it closed the socket */
                 FRONT_END_VIOLATED, /* it broke the protocol */
                 FRONT_END_SLOW,     /* it does not read, or never said HELLO */
                 FRONT_END_FAILED,   /* we could not serve it */
                 FRONT_END_LEAVING,  /* the agent goes */
};

struct front_call { /* an asynchronous call into xfer whose answer is open */
    struct front_session *session;
    struct front_call *prev, *next;
    uint32_t seq;
    uint16_t type;
};

struct front_reply { /* an encoded frame that the socket had no room for */
    struct front_reply *next;
    size_t size;
    unsigned char data[];
};

struct front_notice { /* an event that the notice ring had no room for */
    struct front_notice *next;
    size_t cost;
    struct nxl_ring_event event; /* its views point behind this struct */
    unsigned char data[];
};

struct front_session {
    struct nxl_front *front;
    struct front_session *prev, *next; /* of all */
    struct front_session *prev_awake, *next_awake;
    int fd;
    struct front_identity identity;
    struct nxl_watch *socket_watch, *pid_watch, *bell_watch;
    struct front_watched *watched; /* NULL: not yet, or none */
    uint64_t opened_ns;

    struct nxl_xfer_session *xfer; /* NULL before HELLO */
    uint32_t number;
    char program[64];
    struct nxl_ring ring;
    void *map; /* NULL before HELLO */
    int doorbell, wake;
    int awake;
    uint32_t device_count;
    char devices[NXL_RING_DEVICES][32]; /* our copy of header->devices */

    int catching;         /* a frame waits in the socket until the ring is served so far */
    uint64_t catch_up_to; /* its submit_head when that frame was first seen */

    int doomed;
    enum front_end end;
    enum nxl_code end_code;
    uint64_t doomed_ns;
    char reason[256];

    struct {
        struct front_reply *head, **tail;
        size_t bytes;
    } replies;
    struct {
        struct front_notice *head, **tail;
        uint64_t bytes;
        int refused; /* xfer was told AGAIN and waits for room */
    } notices;
    struct front_call *calls;
    uint32_t call_count;
    struct front_refusal {
        uint32_t slot, generation;
        enum nxl_code code; /* NXL_OK: unused */
        char text[160];
    } refusals[FRONT_REFUSALS];
    uint32_t next_refusal;
};

struct nxl_front {
    struct nxl_front_options options;
    struct front_limits limits;
    struct front_metrics metrics;
    char ns[NXL_NAMESPACE_MAX + 1];
    struct front_listener *listener;
    struct front_wake *wake;
    struct front_witness *witness;          /* NULL: this kernel has none */
    struct front_session *sessions, *awake; /* list heads */
    uint32_t connected, helloed;
    int fd_limit; /* a client whose descriptor has this number or more is turned away */
    struct nxl_log_gate gate;
    struct nxl_timer *reaper; /* closes what was doomed from inside a callback */
    struct nxl_timer *retry;  /* queued notices: the client frees room without a sound */
    uint64_t retry_ns;
    int retrying;
    struct nxl_timer *greeter; /* ends clients that never say HELLO */
    int greeting;
    struct nxl_frame *in, *out; /* 80 KiB each: the request being served, the answer being made */
    unsigned char *packet;      /* NXL_FRAME_MAX */
    struct nxl_bytes copy;      /* what the entry or frame being served points to in the arena */
};

/* session.c. Takes fd. */
void front_session_open(struct nxl_front *front, int fd);
void front_session_close(struct front_session *session); /* it must be doomed */
/* Marks it for the end; the first reason stays. Safe everywhere. */
void front_session_doom(struct front_session *session, enum front_end end, enum nxl_code code,
                        const char *fmt, ...) NXL_PRINTF(4, 5);
/* Watches the lock that the client holds, once it says where it lies. */
void front_session_witness(struct front_session *session);
void front_session_settle(struct front_session *session);  /* closes it if doomed */
void front_session_wake_up(struct front_session *session); /* its ring is polled from now on */
void front_session_park(struct front_session *session);    /* no longer polled */

/* session_hello.c: the ring, WELCOME. */
void front_hello_take(struct front_session *session, const struct nxl_frame *in);
void front_hello_undo(struct front_session *session); /* unmaps and closes what HELLO made */

/* session_frames.c. Borrows packet and fds for the call. */
void front_frame_take(struct front_session *session, struct nxl_view packet, const int *fds,
                      uint32_t fd_count);
/* session_calls.c: calls that are answered later. */
void front_load_take(struct front_session *session, const struct nxl_frame *in);
void front_send_take(struct front_session *session, const struct nxl_frame *in);
void front_fetch_take(struct front_session *session, const struct nxl_frame *in);
void front_withdraw_take(struct front_session *session, const struct nxl_frame *in);
void front_connect_take(struct front_session *session, const struct nxl_frame *in);
void front_deregister_take(struct front_session *session, const struct nxl_frame *in);
void front_calls_drop(struct front_session *session);
/* The answer that names a remote; info may be NULL. */
void front_remote_answer(struct front_session *session, uint16_t type, uint32_t seq,
                         const struct nxl_xfer_remote_info *info);

/* session_replies.c. front_reply() prepares the front's one answer frame; send encodes it. */
struct nxl_frame *front_reply(struct front_session *session, uint16_t type, uint32_t seq);
void front_reply_send(struct front_session *session);
void front_reply_send_fds(struct front_session *session, const int *fds, uint32_t fd_count);
void front_refuse(struct front_session *session, uint16_t type, uint32_t seq, enum nxl_code code,
                  const struct nxl_err *err);
void front_refusal_count(struct front_session *session, enum nxl_code code); /* the metric */
void front_replies_flush(struct front_session *session);
void front_goaway(struct front_session *session, enum nxl_code code, const char *text);
void front_replies_drop(struct front_session *session);

/* session_ring.c. Serves up to the turn's share of entries; returns how many. */
uint32_t front_ring_serve(struct front_session *session);
/* Before a frame is served: what the client submitted before it comes first. 1: it has. 0: that
 * takes longer than until_ns; ask again in the next turn. */
int front_ring_catch_up(struct front_session *session, uint64_t until_ns);
/* The client is gone: notices that it sent still go out, the rest means nothing any more. */
void front_ring_last_words(struct front_session *session);
/* Copies count runs at offset of the arena into front->copy. NULL: err tells. */
const struct nxl_run *front_runs_copy(struct front_session *session, uint64_t offset,
                                      uint32_t count, enum nxl_code *ret_code, struct nxl_err *err);
const struct front_refusal *front_refusal_find(const struct front_session *session, uint32_t slot,
                                               uint32_t generation);
void front_copy_trim(struct nxl_front *front);

/* session_notices.c: slots, events and wake-ups towards the client. */
extern const struct nxl_xfer_front front_xfer_ops; /* arg: struct front_session */
void front_slot_write(struct front_session *session, uint32_t slot,
                      const struct nxl_xfer_slot *update);
void front_notices_flush(struct front_session *session); /* retries what is queued */
void front_notices_drop(struct front_session *session);
void front_notices_on_retry(void *front);
void front_kick(struct front_session *session);       /* wakes the client if it is parked */
void front_wake_write(struct front_session *session); /* wakes it whatever it says */

#endif
