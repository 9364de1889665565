/* nixlet.h - the application's view of nixlet: peers, memory, lists, transfers, notices.
 *
 * libnixlet talks to the node agent through a Unix socket and one shared memory file. It has no
 * threads, loads no vendor library and installs no signal handler. Every call is safe from several
 * threads; one transfer handle is serialised inside. After fork() the child's copy is disabled:
 * every call answers NXL_NOT_ALLOWED, closing it is harmless to the parent.
 *
 * Calls marked [ring] cost no system call unless the agent sleeps; [read] are plain memory reads;
 * [socket] are a round trip to the agent and may block up to the client's call timeout.
 * Every fallible call returns an enum nxl_code and, if err is not NULL, a sentence.
 * Strict C11, valid C++. */
#ifndef NIXLET_H
#define NIXLET_H

#include <nxl/err.h>
#include <nxl/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define NIXLET_VERSION_MAJOR 0
#define NIXLET_VERSION_MINOR 1
#define NIXLET_VERSION_PATCH 0
NXL_EXPORT const char *nxl_version(void);

struct nxl_client;   /* one session with the agent */
struct nxl_peer;     /* a logical transfer agent of this process; has a name */
struct nxl_memreg;   /* a registered region */
struct nxl_list;     /* a prepared descriptor list */
struct nxl_transfer; /* a transfer; may be posted again */
struct nxl_remote;   /* a loaded remote peer: one incarnation of it */

/* ---- session ---------------------------------------------------------------------------- */

struct nxl_client_options {
    uint32_t size;            /* sizeof(struct nxl_client_options) */
    const char *socket_path;  /* NULL: $NIXLET_SOCKET, else /run/nixlet/agent.sock */
    uint32_t slots;           /* transfers that may exist at once; 0: 4096 */
    uint32_t call_timeout_ms; /* [socket] calls; 0: 10000 */
    uint64_t arena_bytes;     /* room for lists and payloads; 0: 32 MiB */
    uint64_t notice_bytes;    /* notice ring; 0: 4 MiB */
    /* 1: after the agent restarted, connect again, register everything again and publish again what
     * is in the store without a label, by itself (default when options are NULL or size is 0). Old
     * transfers end with REMOTE_DISCONNECT. */
    uint32_t reconnect;
    /* 1: no witness. By default a session has one thread that sleeps as long as the process lives
     * and runs nothing; by it the agent learns of a sudden death at once. Without it, or where the
     * kernel is older than 5.16, only when the kernel has taken the process's memory down (half a
     * second for each GiB of small pages). */
    uint32_t no_witness;
};

/* Gives *ret to nxl_client_close(). NXL_NO_AGENT: nothing listens; err says where it looked. */
NXL_EXPORT NXL_MUST_USE enum nxl_code nxl_client_open(const struct nxl_client_options *options,
                                                      struct nxl_client **ret, struct nxl_err *err);
/* Ends the session and frees everything that hangs on it. Accepts NULL. */
NXL_EXPORT void nxl_client_close(struct nxl_client *client);
/* A descriptor, lent until close: readable when a transfer ended, a notice or event came, or the
 * agent went away since nxl_client_arm(). Put it into any poll loop; do not read it. It is an epoll
 * set, so that its number stays the same when the agent restarts. */
NXL_EXPORT int nxl_client_fd(const struct nxl_client *client);
/* Tells the agent that this process is about to sleep on the fd. Returns NXL_AGAIN when something
 * came meanwhile (do not sleep; look), NXL_OK when armed. [read], one system call to drain the fd.
 */
NXL_EXPORT enum nxl_code nxl_client_arm(struct nxl_client *client);
/* Reconnects if the agent went away and came back (needs options.reconnect). Called by every
 * [socket] call by itself. NXL_NO_AGENT while there is none. */
NXL_EXPORT enum nxl_code nxl_client_check(struct nxl_client *client, struct nxl_err *err);

struct nxl_client_info {
    uint32_t size; /* set by the caller */
    uint32_t session;
    char agent_incarnation[NXL_INCARNATION_MAX + 1];
    char node[NXL_NODE_MAX + 1];
    char ns[NXL_NAMESPACE_MAX + 1]; /* namespace this socket belongs to */
    char backends[256];             /* "shm ucx" */
    uint32_t reconnects;
};
NXL_EXPORT enum nxl_code nxl_client_info(struct nxl_client *client, struct nxl_client_info *ret);

/* ---- memory ----------------------------------------------------------------------------- */

#define NXL_ALLOC_HUGE (1u << 0) /* 2 MiB pages; falls back to small ones unless _REQUIRE */
#define NXL_ALLOC_HUGE_REQUIRE (1u << 1)
#define NXL_ALLOC_POPULATE (1u << 2) /* touch all pages now */

/* Zeroed memory behind a sealed memfd, which an agent can map without copying. Page aligned.
 * Gives *ret to nxl_free(). No session needed. */
NXL_EXPORT NXL_MUST_USE enum nxl_code nxl_alloc(size_t size, uint32_t flags, void **ret,
                                                struct nxl_err *err);
NXL_EXPORT void nxl_free(void *ptr); /* accepts NULL; only pointers from nxl_alloc */

/* ---- peers ------------------------------------------------------------------------------ */

/* Names are 1..255 bytes of printable ASCII without '/' and space; unique among the live peers of
 * the namespace on this node: a second one with the same name replaces nothing and is refused
 * with NXL_NOT_ALLOWED while the first lives. [socket] Gives *ret to nxl_peer_close(). */
NXL_EXPORT NXL_MUST_USE enum nxl_code nxl_peer_open(struct nxl_client *client, const char *name,
                                                    struct nxl_peer **ret, struct nxl_err *err);
/* Ends this incarnation: withdraws its record, tells others it is dead. [socket] */
NXL_EXPORT enum nxl_code nxl_peer_close(struct nxl_peer *peer, struct nxl_err *err);
NXL_EXPORT const char *nxl_peer_name(const struct nxl_peer *peer);
NXL_EXPORT const char *nxl_peer_incarnation(const struct nxl_peer *peer);

struct nxl_region {
    void *addr;
    uint64_t len;
    uint32_t kind; /* enum nxl_mem_kind; NXL_MEM_DRAM in this version */
    uint32_t device;
};

/* Registers all regions or none. Memory must be shared: from nxl_alloc() or any MAP_SHARED mapping
 * of a file this process still has open or can open; private memory is NXL_NOT_SUPPORTED. The same
 * range may be registered again: each registration counts. [socket]
 * Writes count handles to ret; each is given to nxl_deregister(). */
NXL_EXPORT NXL_MUST_USE enum nxl_code nxl_register(struct nxl_peer *peer,
                                                   const struct nxl_region *regions, uint32_t count,
                                                   struct nxl_memreg **ret, struct nxl_err *err);
/* Takes the handles that it could deregister and sets them to NULL; those in use by a running or
 * unquiesced transfer stay and make the call return NXL_BUSY, naming the first. count 0 is fine. */
NXL_EXPORT enum nxl_code nxl_deregister(struct nxl_peer *peer, struct nxl_memreg **regs,
                                        uint32_t count, struct nxl_err *err);
/* As nxl_deregister() by exact (addr, len, device): takes one registration of that range. */
NXL_EXPORT enum nxl_code nxl_deregister_range(struct nxl_peer *peer,
                                              const struct nxl_region *region, struct nxl_err *err);

/* ---- remote peers and metadata ---------------------------------------------------------- */

#define NXL_MD_REGIONS                                                                             \
    (1u << 0)                    /* partial: the regions named; peers see no others of this blob   \
                                  */
#define NXL_MD_ADDRESS (1u << 1) /* partial: where and who */

/* The blob that says who and where this peer is. flags 0: everything, now and later (the blob
 * refers to the live region table). With flags: a partial one. Gives *ret_blob to free(). [socket]
 */
NXL_EXPORT NXL_MUST_USE enum nxl_code nxl_metadata(struct nxl_peer *peer, uint32_t flags,
                                                   struct nxl_memreg *const *regs,
                                                   uint32_t reg_count, void **ret_blob,
                                                   size_t *ret_size, struct nxl_err *err);
/* Loads a blob: contacts the agent it names, or finds the peer on this one. Loading the same again
 * returns the same handle; a newer incarnation replaces the older atomically and makes handles of
 * the older answer NXL_STALE. A damaged blob is NXL_MISMATCH and changes nothing. [socket] The
 * handle is lent until nxl_invalidate() or the peer's close. */
NXL_EXPORT NXL_MUST_USE enum nxl_code nxl_load(struct nxl_peer *peer, const void *blob, size_t size,
                                               struct nxl_remote **ret, struct nxl_err *err);
/* Publishes this peer by name in the store (label NULL or "": the full record) or, with
 * address "host:port" of a node agent, sends it there. [socket] */
NXL_EXPORT NXL_MUST_USE enum nxl_code nxl_send_metadata(struct nxl_peer *peer, const char *label,
                                                        const char *address,
                                                        struct nxl_memreg *const *regs,
                                                        uint32_t reg_count, uint32_t flags,
                                                        struct nxl_err *err);
/* Finds a peer by name: on this agent, through the store, or by asking the agent at address. Waits
 * up to timeout_ms for one that is not there yet. Waiters do not block each other. [socket] */
NXL_EXPORT NXL_MUST_USE enum nxl_code
nxl_fetch_metadata(struct nxl_peer *peer, const char *name, const char *label, const char *address,
                   uint32_t timeout_ms, struct nxl_remote **ret, struct nxl_err *err);
/* Withdraws what nxl_send_metadata() published. Regions and running transfers stay. [socket] */
NXL_EXPORT enum nxl_code nxl_withdraw_metadata(struct nxl_peer *peer, const char *address,
                                               struct nxl_err *err);
/* Forgets a remote peer. Running transfers with it end with NXL_REMOTE_DISCONNECT. Takes remote. */
NXL_EXPORT enum nxl_code nxl_invalidate(struct nxl_peer *peer, struct nxl_remote *remote,
                                        struct nxl_err *err);
/* Looks up a loaded remote by name (current incarnation). NXL_NOT_FOUND if none. Own name: itself.
 */
NXL_EXPORT enum nxl_code nxl_remote_find(struct nxl_peer *peer, const char *name,
                                         struct nxl_remote **ret, struct nxl_err *err);
/* NXL_OK if every descriptor lies in a region of the remote that this peer may use. [socket] */
NXL_EXPORT enum nxl_code nxl_remote_check(struct nxl_peer *peer, struct nxl_remote *remote,
                                          uint32_t kind, const struct nxl_run *runs, uint32_t count,
                                          struct nxl_err *err);
/* Connects ahead of the first transfer. [socket] */
NXL_EXPORT enum nxl_code nxl_connect(struct nxl_peer *peer, struct nxl_remote *remote,
                                     struct nxl_err *err);
NXL_EXPORT const char *nxl_remote_name(const struct nxl_remote *remote);
NXL_EXPORT const char *nxl_remote_incarnation(const struct nxl_remote *remote);

struct nxl_remote_state {
    uint32_t size; /* set by the caller */
    uint32_t life; /* enum nxl_life */
    uint32_t suspect;
    uint32_t same_agent;
    uint64_t regions; /* known now */
    char agent[NXL_NODE_MAX + 1];
};
NXL_EXPORT enum nxl_code nxl_remote_state(struct nxl_peer *peer, struct nxl_remote *remote,
                                          struct nxl_remote_state *ret,
                                          struct nxl_err *err); /* [socket] */

/* ---- lists ------------------------------------------------------------------------------ */

/* Prepares descriptors for use by index. remote NULL: this peer's side; its own remote handle
 * (nxl_remote_find with the own name): loopback. A run of count n stands for n indices. Every
 * descriptor must lie in one region; the error names index, address, length and the nearest region.
 * [socket] Gives *ret to nxl_list_free(). */
NXL_EXPORT NXL_MUST_USE enum nxl_code nxl_list_prepare(struct nxl_peer *peer,
                                                       struct nxl_remote *remote, uint32_t kind,
                                                       const struct nxl_run *runs, uint32_t count,
                                                       struct nxl_list **ret, struct nxl_err *err);
NXL_EXPORT uint64_t nxl_list_size(const struct nxl_list *list); /* descriptors, runs expanded */
NXL_EXPORT void
nxl_list_free(struct nxl_list *list); /* accepts NULL; transfers keep what they need */

/* ---- transfers -------------------------------------------------------------------------- */

struct nxl_transfer_options {
    uint32_t size;       /* sizeof */
    uint32_t min_path;   /* enum nxl_path_class; refuse slower ones with NXL_PATH_REFUSED; 0: any */
    uint64_t timeout_ns; /* per post; 0: the agent's default (none unless configured) */
    const char *backend; /* only this one; NULL: the planner chooses */
    uint32_t no_merge;   /* 1: keep descriptors apart (for measuring) */
    uint32_t verify; /* 1: both sides' bytes are summed and compared before it ends; NXL_DIGEST if
                        they differ */
};

/* Makes a transfer from prepared lists: pair k moves local[local_index[k]] and
 * remote[remote_index[k]]. NULL indices: 0..count-1. Lengths of a pair must agree. [ring: no I/O]
 * Borrows nothing after return. Gives *ret to nxl_transfer_release(). */
NXL_EXPORT NXL_MUST_USE enum nxl_code nxl_transfer_make(
    struct nxl_peer *peer, enum nxl_op_kind op, struct nxl_list *local, const uint32_t *local_index,
    struct nxl_list *remote, const uint32_t *remote_index, uint32_t count,
    const struct nxl_transfer_options *options, struct nxl_transfer **ret, struct nxl_err *err);
/* One call from two descriptor lists. Errors that only the agent can see come with the post. */
NXL_EXPORT NXL_MUST_USE enum nxl_code
nxl_transfer_create(struct nxl_peer *peer, enum nxl_op_kind op, struct nxl_remote *remote,
                    uint32_t kind, const struct nxl_run *local, uint32_t local_count,
                    const struct nxl_run *remote_runs, uint32_t remote_count,
                    const struct nxl_transfer_options *options, struct nxl_transfer **ret,
                    struct nxl_err *err);

/* Sets the notice that the target sees after the data. data NULL with size 0: none. Copied. */
NXL_EXPORT enum nxl_code nxl_transfer_notice(struct nxl_transfer *transfer, const void *data,
                                             size_t size, int present, struct nxl_err *err);
/* Starts it, also again after an end. NXL_REPOST_ACTIVE while it runs. [ring] */
NXL_EXPORT NXL_MUST_USE enum nxl_code nxl_transfer_post(struct nxl_transfer *transfer,
                                                        struct nxl_err *err);
/* IN_PROG, OK, NOT_POSTED, or why it failed; sticky until the next post. [read] */
NXL_EXPORT enum nxl_code nxl_transfer_poll(const struct nxl_transfer *transfer);
/* Waits until it ended: spins shortly, then sleeps. NXL_TIMEOUT: it still runs. timeout_ns 0 polls.
 */
NXL_EXPORT enum nxl_code nxl_transfer_wait(struct nxl_transfer *transfer, uint64_t timeout_ns,
                                           struct nxl_err *err);
/* 1 if no byte of its buffers moves any more: before the first post, or ended and quiet. [read] */
NXL_EXPORT int nxl_transfer_quiesced(const struct nxl_transfer *transfer);
NXL_EXPORT enum nxl_code nxl_transfer_wait_quiesced(struct nxl_transfer *transfer,
                                                    uint64_t timeout_ns, struct nxl_err *err);
/* Asks for an early end; the end still comes once: CANCELED, or OK when it was faster. Twice is a
 * no-op. [ring] */
NXL_EXPORT enum nxl_code nxl_transfer_cancel(struct nxl_transfer *transfer, struct nxl_err *err);
/* Frees the handle. NXL_BUSY while it runs or is not quiet (cancel it first): nothing changes. */
NXL_EXPORT NXL_MUST_USE enum nxl_code nxl_transfer_release(struct nxl_transfer *transfer,
                                                           struct nxl_err *err);
/* Explains the last failure of the transfer: index, address, peer, stage. [socket] */
NXL_EXPORT enum nxl_code nxl_transfer_explain(struct nxl_transfer *transfer, struct nxl_err *ret);

struct nxl_transfer_report {
    uint32_t size; /* set by the caller */
    int32_t code;
    uint64_t id;    /* as in logs, metrics and /v1/transfers */
    uint64_t bytes; /* moved for sure */
    uint64_t posted_ns, started_ns,
        ended_ns;         /* CLOCK_MONOTONIC; agent took it up, agent saw its end */
    uint32_t descriptors; /* as given */
    uint32_t pieces;      /* after merging */
    uint32_t path;        /* enum nxl_path_class */
    uint32_t protocol;    /* enum nxl_protocol */
    char backend[NXL_BACKEND_NAME_MAX + 1];
    char device[32];
};
NXL_EXPORT enum nxl_code nxl_transfer_report(const struct nxl_transfer *transfer,
                                             struct nxl_transfer_report *ret); /* [read] */
NXL_EXPORT const char *nxl_path_name(uint32_t path);         /* "one-copy", "tcp", ... */
NXL_EXPORT const char *nxl_protocol_name(uint32_t protocol); /* "local", "direct", ... */

/* ---- notices and events ----------------------------------------------------------------- */

/* A notice of its own. Delivered exactly once or reported as failed in the agent's log and metrics;
 * no order against transfers. Own name: to oneself. [ring] */
NXL_EXPORT NXL_MUST_USE enum nxl_code nxl_notify(struct nxl_peer *peer, struct nxl_remote *remote,
                                                 const void *data, size_t size,
                                                 struct nxl_err *err);

enum nxl_event_kind {
    NXL_EVENT_NOTICE = 1,    /* payload from remote; after the data of transfer, if that is not 0 */
    NXL_EVENT_PEER_DOWN = 2, /* this incarnation of remote is dead; its transfers have ended */
    NXL_EVENT_PEER_SUSPECT = 3, /* silent; payload[0] 1 or 0: suspected or cleared */
    NXL_EVENT_PEER_NEW = 4,     /* a new incarnation of a loaded peer is known; load or fetch it */
    NXL_EVENT_AGENT_GONE = 5, /* the agent went away; regions are registered again on its return */
    NXL_EVENT_NOTICE_LOST =
        6, /* a notice this peer sent could not be delivered; payload: the reason */
    NXL_EVENT_REGION_LOST = 7, /* the memory behind one of our regions was taken away */
};

struct nxl_event {
    uint32_t kind;     /* enum nxl_event_kind */
    int32_t code;      /* PEER_DOWN: why, as a code */
    uint64_t transfer; /* sender's transfer id, 0 if none */
    uint64_t at_ns;    /* CLOCK_MONOTONIC of the agent when it happened or came in */
    const char *name;  /* remote peer's name; lent until the next call on this peer */
    const char *incarnation;
    const void *payload; /* lent until the next call on this peer */
    size_t size;
};
/* Takes the next event of this peer. NXL_AGAIN: none. [read] */
NXL_EXPORT enum nxl_code nxl_peer_next(struct nxl_peer *peer, struct nxl_event *ret);
/* 1 if nxl_peer_next() of some peer of this client may give something. [read] */
NXL_EXPORT int nxl_client_pending(const struct nxl_client *client);

#ifdef __cplusplus
}
#endif
#endif
