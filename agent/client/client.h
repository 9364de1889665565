/* client.h - the objects behind nixlet.h and their doors to each other. Only for agent/client.
 * Locks, outermost first: work (structure, reconnect), objects, event, then a session's locks. */
#ifndef NXL_CLIENT_CLIENT_H
#define NXL_CLIENT_CLIENT_H

#include <nixlet.h>

#include "client/backing.h"
#include "client/session.h"

struct nxl_event_node { /* one event on its way to the application */
    struct nxl_event_node *next;
    struct nxl_event event; /* points into data */
    size_t size;
    char data[];
};

struct nxl_text { /* an incarnation that was lent: kept until the peer goes */
    struct nxl_text *next;
    char text[NXL_INCARNATION_MAX + 1];
};

struct nxl_client {
    char *path;
    struct nxl_client_options options;     /* normalised; socket_path is NULL */
    uint32_t forks;                        /* forks of this process's line at open */
    int poll_fd;                           /* epoll set lent to the application */
    _Atomic(struct nxl_session *) session; /* current, never NULL after open */
    uint32_t reconnects;                   /* work */

    struct { /* work: structure; held over calls that build it */
        pthread_mutex_t lock;
        struct nxl_session *sessions; /* all ever, newest first */
        struct nxl_backing *backings;
    } work;

    struct { /* objects: who refers to whom; held shortly, never over a call */
        pthread_mutex_t lock;
        struct nxl_list *lists;
        struct nxl_transfer *transfers;
        struct nxl_peer *closed;                   /* peers closed but still referred to */
        struct nxl_transfer *graves, *graves_last; /* released handles, oldest first */
        uint32_t grave_count;
    } objects;

    struct { /* event.lock; peers change under work.lock too */
        pthread_mutex_t lock;
        struct nxl_peer *peers;
        uint64_t queued_bytes;
        uint64_t seen_ended, seen_head, seen_pushed; /* by the last nxl_client_arm() */
    } event;
    _Atomic uint64_t queued; /* events in peers' queues */
    _Atomic uint64_t pushed; /* events ever queued */
};

struct nxl_peer {
    struct nxl_client *client;
    struct nxl_peer *next;
    char name[NXL_NAME_MAX + 1];
    uint32_t refs; /* objects: the application, lists, transfers */
    int closed;
    int published; /* the full record is in the store: a new agent is asked to put it there again */
    uint32_t id;   /* at session; 0: none */
    struct nxl_session *session;
    struct nxl_text *incarnations; /* newest first */
    struct nxl_remote *remotes;
    struct nxl_memreg *regs;    /* all */
    struct nxl_memreg **lookup; /* by (addr, len, device) */
    size_t lookup_size, reg_count;
    struct { /* event.lock */
        struct nxl_event_node *first, *last, *lent;
    } queue;
    _Atomic uint32_t queued;
};

struct nxl_memreg {
    struct nxl_peer *peer;
    struct nxl_memreg *next, *prev;
    struct nxl_memreg *chain; /* of the lookup table */
    struct nxl_region region;
    struct nxl_backing *backing;
    uint64_t offset;
    uint64_t id; /* agent's; 0: lost at a reconnect */
};

struct nxl_remote {
    struct nxl_peer *peer;
    struct nxl_remote *next;
    struct nxl_session *session;
    uint32_t id;
    uint32_t refs;     /* objects: peer's table, lists, transfers */
    _Atomic int stale; /* invalidated, replaced by a newer incarnation, or of an old session */
    char name[NXL_NAME_MAX + 1];
    char incarnation[NXL_INCARNATION_MAX + 1];
};

struct nxl_list_part { /* a run and the index of its first piece */
    struct nxl_run run;
    uint64_t first;
};

struct nxl_list {
    struct nxl_client *client;
    struct nxl_list *next, *prev;
    struct nxl_peer *peer;
    struct nxl_remote *remote; /* NULL: the peer's own side */
    struct nxl_session *session;
    uint32_t id, kind;
    uint32_t refs; /* objects: the application, transfers */
    uint64_t size;
    uint64_t uniform_len; /* of every descriptor; 0: they differ */
    uint32_t part_count;
    struct nxl_list_part *parts;
};

/* A released handle answers NXL_INVALID_PARAM for as long as its memory is not used again, which
 * takes NXL_GRAVES further releases: a thread that polls too late meets no freed memory. */
#define NXL_RELEASED UINT64_MAX
#define NXL_GRAVES 1024u

struct nxl_transfer {
    struct nxl_client *client;
    struct nxl_transfer *next, *prev;
    struct nxl_peer *peer;
    struct nxl_session *session;
    const struct nxl_ring_slot *slot;
    struct nxl_list *local, *remote_list; /* NULL with runs */
    struct nxl_remote *remote;            /* whom it moves with */
    struct nxl_ring_entry entry;          /* submit.lock: what a post sends */
    uint64_t block, notice_block;         /* arena offset + 1; 0: none */
    uint64_t position;                    /* submit.lock: ring position behind the last entry */
    _Atomic uint64_t generation;          /* of the last post; 0: never posted; or NXL_RELEASED */
    uint64_t pairs;
    _Atomic uint64_t posted_ns;
};

/* ---- client.c */
/* 1 and err set if this is a forked child of the process that opened the client. */
int nxl_client_forked(const struct nxl_client *client, struct nxl_err *err);
/* Every [socket] call begins here: work.lock is held on NXL_OK, and *ret is the current, living
 * session (after a reconnect if need be). */
NXL_MUST_USE enum nxl_code nxl_client_enter(struct nxl_client *client, struct nxl_session **ret,
                                            struct nxl_err *err);
void nxl_client_leave(struct nxl_client *client);
/* The same for calls that may take long: the lock is given up, the session is referred to. After
 * the call, nxl_client_resume() takes the lock again and says if the session is still current. */
NXL_MUST_USE enum nxl_code nxl_client_pause(struct nxl_client *client, struct nxl_session **ret,
                                            struct nxl_err *err);
int nxl_client_resume(struct nxl_client *client, struct nxl_session *session);
/* The current session with a ref, without a look at the socket. */
struct nxl_session *nxl_client_pin(struct nxl_client *client);
uint64_t nxl_client_timeout(const struct nxl_client *client); /* ms, of one call */

/* ---- peer.c */
NXL_MUST_USE enum nxl_code nxl_peer_usable(struct nxl_peer *peer, struct nxl_err *err);
void nxl_peer_unref(struct nxl_peer *peer); /* objects held */
/* Presents the peer and its regions to a new session. work held. */
NXL_MUST_USE enum nxl_code nxl_peer_revive(struct nxl_peer *peer, struct nxl_session *session,
                                           struct nxl_err *err);

/* ---- memory.c: work held */
void nxl_memory_revive(struct nxl_peer *peer, struct nxl_session *session);
void nxl_memory_clear(struct nxl_peer *peer);

/* ---- remote.c */
/* NXL_OK if the handle may be used at this session. */
NXL_MUST_USE enum nxl_code nxl_remote_usable(const struct nxl_remote *remote,
                                             const struct nxl_peer *peer,
                                             const struct nxl_session *session,
                                             struct nxl_err *err);
void nxl_remote_unref(struct nxl_remote *remote); /* objects held; accepts NULL */
void nxl_remote_clear(struct nxl_peer *peer);     /* objects held: the peer's table goes */

/* ---- runs.c: pure */
/* Joins neighbours into runs; checks each. Gives *ret_parts to free(). */
NXL_MUST_USE enum nxl_code nxl_runs_compress(const struct nxl_run *runs, uint32_t count,
                                             const char *side, struct nxl_list_part **ret_parts,
                                             uint32_t *ret_count, uint64_t *ret_size,
                                             uint64_t *ret_uniform_len, struct nxl_err *err);
uint64_t nxl_runs_len(const struct nxl_list_part *parts, uint32_t count, uint64_t index,
                      uint32_t *hint);
/* Index of the first pair whose lengths differ; UINT64_MAX: none. Both have the same size. */
uint64_t nxl_runs_differ(const struct nxl_list_part *a, uint32_t a_count,
                         const struct nxl_list_part *b, uint32_t b_count);

/* ---- list.c */
void nxl_list_unref(struct nxl_list *list); /* objects held; accepts NULL */
/* Prepares a local list again at a new session; NXL_STALE for a remote one. work held. */
NXL_MUST_USE enum nxl_code nxl_list_revive(struct nxl_list *list, struct nxl_session *session,
                                           struct nxl_err *err);
/* Copies runs into the arena part by part and sends a frame for each: LIST and CHECK. */
NXL_MUST_USE enum nxl_code nxl_list_send(struct nxl_session *session, struct nxl_call *call,
                                         const struct nxl_list_part *parts, uint32_t count,
                                         struct nxl_err *err);

/* ---- transfer.c */
void nxl_transfer_drop(struct nxl_transfer *transfer); /* objects held: to the graves, silently */
/* What a poll says, and whether the buffers are quiet; plain memory reads. */
enum nxl_code nxl_transfer_state(const struct nxl_transfer *transfer);
int nxl_transfer_quiet(const struct nxl_transfer *transfer);

/* ---- event.c */
/* Moves records from the ring into the peers' queues. event.lock held. */
void nxl_event_drain(struct nxl_client *client, struct nxl_session *session);
/* An event of our own. event.lock held. No memory: the event is lost. */
void nxl_event_push(struct nxl_peer *peer, const struct nxl_ring_event *event);
void nxl_event_clear(struct nxl_peer *peer); /* event.lock held */

#endif
