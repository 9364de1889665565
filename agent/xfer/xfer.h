/* xfer.h - the engine's door for the front: sessions, their peers, memory, lists, remotes,
 * transfers and notices. Loop thread only. Inputs are already copied out of shared memory and have
 * sane sizes; everything else (ids, ranges, indices, rights) is checked here.
 *
 * Callbacks run on the loop, sometimes from inside the call that causes them; they may not close
 * the session. */
#ifndef NXL_XFER_XFER_H
#define NXL_XFER_XFER_H

#include <nxl/err.h>
#include <nxl/types.h>

struct nxl_bytes;
struct nxl_directory;
struct nxl_hosts;
struct nxl_links;
struct nxl_loop;
struct nxl_metrics;
struct nxl_settings;
struct nxl_xfer;         /* the engine */
struct nxl_xfer_session; /* one client's state */

/* ---- to the front ------------------------------------------------------------------------ */

struct nxl_xfer_slot { /* what goes into a transfer slot */
    uint32_t generation;
    uint8_t state; /* enum nxl_ring_state */
    uint8_t quiet;
    uint8_t backend, path, protocol;
    const char *device; /* lent; NULL: none */
    int32_t code;
    uint64_t bytes, id, started_ns, ended_ns;
    uint32_t descriptors, pieces;
};
struct nxl_xfer_event { /* what goes into the notice ring; all lent for the call */
    uint32_t kind;      /* enum nxl_event_kind of nixlet.h, same numbers */
    uint32_t peer;      /* id of our peer */
    int32_t code;
    uint64_t transfer, at_ns;
    const char *name, *incarnation;
    struct nxl_view payload;
};
struct nxl_xfer_front {
    void (*slot)(void *front, uint32_t slot, const struct nxl_xfer_slot *update);
    /* NXL_OK: stored. NXL_AGAIN: the client does not read and its queue limit is reached; the
     * engine holds a remote notice back (call nxl_xfer_session_room() when there is room). Never
     * AGAIN when must != 0. */
    enum nxl_code (*event)(void *front, const struct nxl_xfer_event *event, int must);
};

/* ---- sessions and peers ------------------------------------------------------------------ */

struct nxl_xfer_owner {    /* who the client is; texts copied */
    const char *ns;        /* namespace of its socket */
    const char *pod;       /* pod UID, or "" outside Kubernetes (the node's name is used) */
    const char *container; /* container id, or "" (boot id) */
    int32_t pid;           /* for logs only; 0 unknown */
};
/* NXL_LIMIT. Borrows front until close returned. */
NXL_MUST_USE enum nxl_code
nxl_xfer_session_open(struct nxl_xfer *xfer, const struct nxl_xfer_owner *owner,
                      const struct nxl_xfer_front *front, void *front_arg, uint32_t *ret_number,
                      struct nxl_xfer_session **ret, struct nxl_err *err);
/* The client is gone: its incarnations are dead from here on (local peers are told before this
 * returns, linked agents and store right after), running transfers are cancelled, memory goes when
 * the last one is quiet. No callback comes any more. Takes session. at_ns: when it was noticed. */
void nxl_xfer_session_close(struct nxl_xfer_session *session, const char *reason, uint64_t at_ns);
void nxl_xfer_session_room(struct nxl_xfer_session *session);

NXL_MUST_USE enum nxl_code nxl_xfer_peer_open(struct nxl_xfer_session *session, const char *name,
                                              uint32_t *ret_id, char *ret_incarnation, size_t room,
                                              struct nxl_err *err);
NXL_MUST_USE enum nxl_code nxl_xfer_peer_close(struct nxl_xfer_session *session, uint32_t peer,
                                               struct nxl_err *err);

/* ---- memory ------------------------------------------------------------------------------- */

struct nxl_xfer_region {
    uint64_t addr, len, fd_offset;
    uint32_t kind, device;
    uint32_t fd_index;
};
/* All or none. Borrows fds (dups what it keeps). Refuses descriptors whose file could shrink under
 * us without a seal (memfd without F_SEAL_SHRINK), ranges outside the file, private kinds. */
NXL_MUST_USE enum nxl_code nxl_xfer_register(struct nxl_xfer_session *session, uint32_t peer,
                                             const struct nxl_xfer_region *regions, uint32_t count,
                                             const int *fds, uint32_t fd_count, uint64_t *ret_ids,
                                             struct nxl_err *err);
/* Takes regions out of use: no new transfer finds them. fn is called exactly once (maybe from
 * inside, not after the session closed) when linked agents that know them confirmed that nothing of
 * theirs moves any more, or after timeout_ns. done[k] is 1 where the region is gone for good. Those
 * that running transfers of this agent use stay untouched (NXL_BUSY); unconfirmed ones stay leaving
 * (NXL_BUSY) and may be asked for again. code and err tell of the first that stayed: NXL_BUSY,
 * NXL_NOT_FOUND, NXL_BACKEND (a backend did not let go: pinned until it does). */
typedef void nxl_xfer_deregistered_fn(void *arg, const uint8_t *done, uint32_t count,
                                      enum nxl_code code, const struct nxl_err *err);
void nxl_xfer_deregister(struct nxl_xfer_session *session, uint32_t peer, const uint64_t *ids,
                         uint32_t count, uint64_t timeout_ns, nxl_xfer_deregistered_fn *fn,
                         void *arg);

/* ---- lists -------------------------------------------------------------------------------- */

/* list 0: a new one; else appends to an unfinished one. remote 0: our side. more 0 seals it.
 * On error an unfinished list is gone. */
NXL_MUST_USE enum nxl_code nxl_xfer_list(struct nxl_xfer_session *session, uint32_t peer,
                                         uint32_t remote, uint32_t kind, uint32_t list,
                                         const struct nxl_run *runs, uint32_t count, int more,
                                         uint32_t *ret_list, uint64_t *ret_size,
                                         struct nxl_err *err);
NXL_MUST_USE enum nxl_code nxl_xfer_list_free(struct nxl_xfer_session *session, uint32_t list,
                                              struct nxl_err *err);

/* ---- metadata ----------------------------------------------------------------------------- */

#define NXL_XFER_MD_REGIONS 1u /* as NXL_MD_* of nixlet.h */
#define NXL_XFER_MD_ADDRESS 2u
NXL_MUST_USE enum nxl_code nxl_xfer_metadata(struct nxl_xfer_session *session, uint32_t peer,
                                             uint32_t flags, const uint64_t *ids, uint32_t count,
                                             struct nxl_bytes *to, struct nxl_err *err);
struct nxl_xfer_remote_info {
    uint32_t remote; /* id for this session and peer */
    const char *name, *incarnation;
    uint32_t life, suspect, same_agent;
    uint64_t regions;
    const char *agent; /* node name */
};
/* Called exactly once per accepted call (maybe from inside), not after the session closed. info is
 * NULL unless code is NXL_OK and the call yields a remote. */
typedef void nxl_xfer_reply_fn(void *arg, enum nxl_code code,
                               const struct nxl_xfer_remote_info *info, const struct nxl_err *err);
void nxl_xfer_load(struct nxl_xfer_session *session, uint32_t peer, struct nxl_view blob,
                   uint64_t timeout_ns, nxl_xfer_reply_fn *fn, void *arg);
/* address "": this agent, then the store; else the agent there. label "": the full record. */
void nxl_xfer_fetch(struct nxl_xfer_session *session, uint32_t peer, const char *name,
                    const char *label, const char *address, uint64_t timeout_ns,
                    nxl_xfer_reply_fn *fn, void *arg);
/* Publishes by name in the store, or tells the agent at address. */
void nxl_xfer_send(struct nxl_xfer_session *session, uint32_t peer, const char *label,
                   const char *address, uint32_t flags, const uint64_t *ids, uint32_t count,
                   nxl_xfer_reply_fn *fn, void *arg);
void nxl_xfer_withdraw(struct nxl_xfer_session *session, uint32_t peer, const char *address,
                       nxl_xfer_reply_fn *fn, void *arg);
void nxl_xfer_connect(struct nxl_xfer_session *session, uint32_t peer, uint32_t remote,
                      uint64_t timeout_ns, nxl_xfer_reply_fn *fn, void *arg);
NXL_MUST_USE enum nxl_code nxl_xfer_invalidate(struct nxl_xfer_session *session, uint32_t peer,
                                               uint32_t remote, struct nxl_err *err);
/* Current loaded incarnation by name (own name: loopback). Texts in *ret are lent until the next
 * call. */
NXL_MUST_USE enum nxl_code nxl_xfer_find(struct nxl_xfer_session *session, uint32_t peer,
                                         const char *name, struct nxl_xfer_remote_info *ret,
                                         struct nxl_err *err);
NXL_MUST_USE enum nxl_code nxl_xfer_state(struct nxl_xfer_session *session, uint32_t peer,
                                          uint32_t remote, struct nxl_xfer_remote_info *ret,
                                          struct nxl_err *err);
NXL_MUST_USE enum nxl_code nxl_xfer_check(struct nxl_xfer_session *session, uint32_t peer,
                                          uint32_t remote, uint32_t kind,
                                          const struct nxl_run *runs, uint32_t count,
                                          struct nxl_err *err);

/* ---- transfers ---------------------------------------------------------------------------- */

struct nxl_xfer_post {
    uint32_t slot, generation, peer;
    uint8_t op;       /* enum nxl_op_kind */
    uint8_t min_path; /* enum nxl_path_class */
    uint8_t backend;  /* 0 any, else 1 + instance index */
    uint8_t no_merge, reuse, has_notice;
    uint8_t verify;                             /* compare digests of both sides before it ends */
    uint32_t local_list, remote_list;           /* by index; or */
    uint32_t remote;                            /* with runs */
    const uint32_t *local_index, *remote_index; /* NULL: all in order */
    const struct nxl_run *local_runs, *remote_runs; /* set: one-call form */
    uint32_t count, remote_count;                   /* pairs, or runs of each side */
    struct nxl_view notice;
    uint64_t timeout_ns;
};
/* Arrays are borrowed for the call. A refusal is reported through front->slot like any other end,
 * so that every post ends exactly once. reuse: plan of the slot's last post is kept if still good;
 * then arrays may be NULL (nxl_xfer_reusable() tells whether they are needed). */
void nxl_xfer_post(struct nxl_xfer_session *session, const struct nxl_xfer_post *post);
int nxl_xfer_reusable(const struct nxl_xfer_session *session, uint32_t slot);
void nxl_xfer_cancel(struct nxl_xfer_session *session, uint32_t slot, uint32_t generation);
void nxl_xfer_release(struct nxl_xfer_session *session, uint32_t slot);
/* Failures come as an NXL_EVENT_NOTICE_LOST event. */
void nxl_xfer_notify(struct nxl_xfer_session *session, uint32_t peer, uint32_t remote,
                     struct nxl_view payload);
/* The sentence of the last failure of that slot. NXL_NOT_FOUND when there is none. */
NXL_MUST_USE enum nxl_code nxl_xfer_explain(struct nxl_xfer_session *session, uint32_t slot,
                                            struct nxl_err *ret);

/* ---- the engine itself (node.c, status) ----------------------------------------------------- */

struct nxl_xfer_options {
    struct nxl_loop *loop;
    struct nxl_metrics *metrics;
    const struct nxl_settings *settings; /* sections "limits" and "access", nxl_xfer_declare() */
    const char *cluster, *node, *agent;  /* borrowed */
};
void nxl_xfer_declare(struct nxl_settings *settings);
NXL_MUST_USE enum nxl_code nxl_xfer_open(const struct nxl_xfer_options *options,
                                         struct nxl_xfer **ret, struct nxl_err *err);
/* Wiring, once, before the first session: the engine is the callee of hosts, links and directory.
 */
void nxl_xfer_attach(struct nxl_xfer *xfer, struct nxl_hosts *hosts, struct nxl_links *links,
                     struct nxl_directory *directory);
/* fn runs when the store says that this agent's lease lapsed while it was frozen. */
void nxl_xfer_on_fenced(struct nxl_xfer *xfer, void (*fn)(void *arg), void *arg);
/* All sessions must be closed. Waits (runs the hosts) until every operation is quiet. */
void nxl_xfer_close(struct nxl_xfer *xfer);
/* The callback tables to give to the others, with xfer as arg. */
struct nxl_hosts_ops;
struct nxl_links_ops;
struct nxl_directory_ops;
struct nxl_members;
struct nxl_members_ops;
struct nxl_stream;
struct nxl_stream_ops;
/* From here on operators say who may reach whom; all NULL: access.policy alone does. */
void nxl_xfer_attach_operators(struct nxl_xfer *xfer, struct nxl_members *members,
                               struct nxl_stream *stream);
extern const struct nxl_hosts_ops nxl_xfer_hosts_ops;
extern const struct nxl_links_ops nxl_xfer_links_ops;
extern const struct nxl_directory_ops nxl_xfer_directory_ops;
extern const struct nxl_members_ops nxl_xfer_members_ops;
extern const struct nxl_stream_ops nxl_xfer_stream_ops;
/* JSON for people: what is "peers", "regions", "transfers" or "backends". */
void nxl_xfer_describe(struct nxl_xfer *xfer, const char *what, struct nxl_bytes *to);

#endif
