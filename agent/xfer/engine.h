/* engine.h - what the rooms of xfer share among themselves: the engine's state and their doors to
 * each other. Never included from outside agent/xfer. Loop thread. */
#ifndef NXL_XFER_ENGINE_H
#define NXL_XFER_ENGINE_H

#include <uthash.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/metric.h"
#include "catalog/list.h"
#include "catalog/peer.h"
#include "catalog/region.h"
#include "cluster/directory.h"
#include "cluster/link.h"
#include "host/host.h"
#include "plan/plan.h"
#include "xfer/xfer.h"

struct xfer_peer;
struct xfer_remote;
struct xfer_request;
struct xfer_agent;
struct xfer_fence;
struct xfer_digest;
struct xfer_lookup;
struct nxl_members;
struct nxl_stream;

/* ---- limits, counters ------------------------------------------------------------------- */

struct xfer_limits { /* section "limits" */
    uint32_t sessions, peers, regions, files, files_total, lists, remotes, hints;
    uint64_t descriptors;      /* of one list or transfer */
    uint64_t list_descriptors; /* of one session's lists, in runs */
    uint64_t registered_bytes; /* of one session */
    uint64_t transfers;        /* running, of one session */
    uint64_t transfer_bytes;   /* running, of one session */
    uint64_t transfer_timeout_ns, cancel_timeout_ns, fence_timeout_ns;
    uint32_t held_notices, digests;
};

struct xfer_metrics {
    struct nxl_metric *transfers[2], *bytes_tx, *bytes_rx, *last_tx, *last_rx;
    struct nxl_metric *registered, *deregistered, *registered_last, *deregistered_last;
    struct nxl_metric *xfer_time_total, *xfer_time, *xfer_time_hist;
    struct nxl_metric *post_time_total, *post_time, *post_time_hist;
    struct nxl_metric *notices_sent, *notices_received, *notices_lost;
    struct nxl_metric *inflight, *inflight_bytes, *peers_local, *peers_remote, *regions,
        *regions_leaving;
    struct nxl_metric *digest_bytes, *digests_wrong;
    struct nxl_metric *descriptors, *pieces, *fence_us, *down_local_us, *unquiet, *waiting;
};

/* ---- objects ----------------------------------------------------------------------------- */

struct xfer_mapping { /* one file of a client, mapped once */
    struct xfer_file {
        uint64_t dev, ino;
    } file;
    unsigned char *base;
    uint64_t size;
    int guard;
    int doubtful; /* somebody may still write through it: its addresses stay valid for ever */
    int current;  /* in session->mappings: a file that grew or was cut off is mapped anew */
    uint32_t refs;
    UT_hash_handle hh;
};

struct nxl_xfer_session {
    struct nxl_xfer *xfer;
    uint32_t number;
    char ns[NXL_NAMESPACE_MAX + 1];
    char prefix[NXL_INCARNATION_MAX + 1]; /* "pod/container/session" stem of its incarnations */
    const struct nxl_xfer_front *front;
    void *front_arg;
    int32_t pid;
    int closed;
    uint32_t next_peer, next_list, next_remote;
    struct xfer_peer *peers;            /* hash by id */
    struct xfer_list *lists;            /* hash by id */
    struct xfer_remote *remotes;        /* hash by id */
    struct xfer_request *requests;      /* hash by slot */
    struct xfer_mapping *mappings;      /* hash by file; also of peers that are going */
    struct xfer_held *held, **held_end; /* notices from this agent's peers that wait for room */
    uint32_t held_count;
    uint64_t held_bytes;
    uint32_t region_count, unfinished; /* requests and regions that outlive a close */
    uint32_t mapping_count;
    uint64_t mapped_bytes; /* whole files, whatever of them is registered */
    uint64_t registered_bytes, list_runs, running, running_bytes;
    UT_hash_handle hh;
};

struct xfer_peer { /* a peer of one of our clients */
    uint32_t id;
    struct nxl_xfer_session *session;
    struct nxl_catalog_peer *peer;
    struct xfer_subscriber { /* far agents that know our regions */
        struct xfer_agent *agent;
        unsigned kinds; /* 1 << enum nxl_mem_kind: what policy lets it know of */
        struct xfer_subscriber *next;
    } * subscribers;
    int published;      /* a record of it is in the store */
    int closed, fenced; /* closed: out of the session's index; freed when nothing of it is left */
    uint32_t users;     /* jobs that hold the memory */
    struct nxl_catalog_region **leaving; /* out of the table, not yet gone */
    uint32_t leaving_count, leaving_room;
    UT_hash_handle hh;
};

struct xfer_list {
    uint32_t id;
    struct nxl_catalog_list *list;
    struct xfer_peer *peer; /* whose call made it; NULL when that is closed */
    uint32_t remote;        /* 0: our side */
    int sealed;
    uint32_t
        users; /* requests being planned never overlap a call; kept for clarity: always 0 outside */
    UT_hash_handle hh;
};

struct xfer_remote { /* one of our peers knows one incarnation */
    uint32_t id;
    struct xfer_peer *peer;
    struct nxl_catalog_peer *target; /* referenced */
    int restricted;                  /* partial metadata: only allowed[] */
    uint64_t *allowed;               /* sorted region ids */
    uint32_t allowed_count, allowed_room;
    int fresh; /* made by this lookup, nothing granted yet */
    UT_hash_handle hh;
};

/* An acknowledgement we owe a far agent, or an operator: sent when the last region it speaks of is
 * quiet here. */
struct xfer_debt {
    struct nxl_xfer *xfer;
    char agent[NXL_INCARNATION_MAX + 1];
    uint64_t sequence, since_ns; /* to_operator: sequence is the stream's ticket */
    uint32_t remaining, purged;
    int to_operator;
};

struct xfer_far { /* owner of a remote catalog peer */
    struct nxl_catalog_peer *peer;
    struct xfer_agent *agent;            /* NULL once that is over */
    char from_ns[NXL_NAMESPACE_MAX + 1]; /* the namespace its agent let in, */
    char from[NXL_INCARNATION_MAX + 1];  /* asked for this one of our peers */
    uint32_t loaders;                    /* xfer_remote objects on it */
    int synced;                          /* its region table is whole */
    int denied;      /* policy forbade it when last looked at: asked for anew when it does not */
    uintptr_t round; /* of full sets; what a full set did not name is gone */
    struct xfer_leaving {
        struct nxl_catalog_region *region;
        struct xfer_debt *debt; /* may be NULL */
    } * leaving;
    uint32_t leaving_count, leaving_room;
};

struct xfer_agent { /* a far node agent; user of its link */
    struct nxl_xfer *xfer;
    struct nxl_link *link; /* NULL: not to be found now */
    int lost; /* somebody else answers at its address: suspect until it comes up elsewhere */
    char agent[NXL_INCARNATION_MAX + 1], node_name[NXL_NODE_MAX + 1];
    struct nxl_backend_conn *conns[NXL_BACKENDS_MAX]; /* by our instance index */
    struct nxl_view addresses[NXL_BACKENDS_MAX];      /* owned; by our instance index */
    int32_t backend_map[NXL_BACKENDS_MAX];            /* far HELLO index -> our instance, -1 none */
    uint64_t failed_ns[NXL_BACKENDS_MAX];             /* last disconnect */
    struct xfer_await { /* messages that it has to confirm; sent again after a reconnect */
        uint64_t sequence;
        struct xfer_fence *fence;
        int is_fact;
        char incarnation[NXL_INCARNATION_MAX + 1];
        uint64_t *ids;
        uint32_t id_count;
        struct xfer_await *next;
    } * awaits;
    struct xfer_announcement { /* records of our peers to be told when the link is up */
        enum nxl_code code;
        char incarnation[NXL_INCARNATION_MAX + 1];
        struct xfer_announcement *next;
    } * announcements;
    struct xfer_agent *next;
};

/* Something to be done when every far agent that matters has confirmed, or time is up. */
typedef void xfer_fence_fn(void *arg, int complete);

struct xfer_part { /* one backend operation of a request */
    struct xfer_request *request;
    struct nxl_op op;
    enum {
        XFER_PART_NEW,
        XFER_PART_WAITING,
        XFER_PART_SUBMITTED,
        XFER_PART_ENDED,
        XFER_PART_QUIET
    } state;
    struct xfer_part *next_waiting;
};

struct xfer_request {
    struct nxl_xfer *xfer;
    struct nxl_xfer_session *session; /* NULL once the session closed */
    uint32_t slot, generation;
    uint64_t id;
    enum nxl_op_kind op;
    struct xfer_peer *peer;                  /* NULL once closed */
    struct nxl_catalog_peer *local, *target; /* referenced while busy or planned */
    struct nxl_plan *plan;
    uint64_t plan_epoch;
    struct nxl_backend_mem **mems, **peers;
    struct nxl_backend_remote **remotes;
    struct xfer_part *parts;
    uint32_t part_count, parts_submitted, parts_ended, parts_quiet;
    enum { XFER_IDLE, XFER_RUNNING, XFER_ENDED } state;
    int quiet, holds;    /* holds: regions are marked used */
    int verify, reading; /* by digest; reading: its memory is being summed */
    struct xfer_digest *digest;
    int cancel_asked, touched;
    enum nxl_code code, cancel_code;
    char *text; /* why it failed */
    int32_t os;
    uint64_t bytes, started_ns, ended_ns, deadline_ns, cancel_deadline_ns;
    uint32_t path;
    char device[32];
    void *notice;
    size_t notice_size;
    int has_notice, notice_kept; /* kept over reposts, as NIXL does */
    int released;                /* the client let go (or its session closed): freed when quiet */
    int in_timed;
    struct xfer_request *prev_timed, *next_timed;
    struct xfer_request *prev_all, *next_all;
    UT_hash_handle hh;
};

struct xfer_held {
    struct xfer_held *next;
    uint32_t peer;
    uint64_t transfer, at_ns;
    char name[NXL_NAME_MAX + 1], incarnation[NXL_INCARNATION_MAX + 1];
    size_t size;
    unsigned char payload[];
};

struct nxl_xfer {
    struct nxl_loop *loop;
    struct nxl_metrics *registry;
    char cluster[NXL_NAMESPACE_MAX + 1], node[NXL_NODE_MAX + 1], agent[NXL_INCARNATION_MAX + 1];
    char boot[64], life[24]; /* this agent's random part of session names */
    enum { XFER_ACCESS_NAMESPACE, XFER_ACCESS_ALL, XFER_ACCESS_NONE } access;
    struct xfer_limits limits;
    struct xfer_metrics metrics;
    struct nxl_catalog *catalog;
    struct nxl_hosts *hosts;
    struct nxl_links *links;
    struct nxl_directory *directory;
    struct nxl_members *members;       /* what operators allow; NULL: access decides */
    struct nxl_stream *stream;         /* NULL: no operator */
    struct xfer_debt *operator_debt;   /* of the word that is being applied */
    struct nxl_xfer_session *sessions; /* hash by number */
    uint32_t next_session;
    uint32_t mapping_count; /* of all sessions */
    uint64_t next_region, next_transfer, next_sequence, next_query;
    uint64_t epoch; /* moves whenever a plan made earlier may be wrong */
    struct xfer_agent *agents;
    struct xfer_lookup *lookups; /* loads, fetches and connects under way */
    struct xfer_hint *hints;     /* records that agents sent us */
    uint32_t hint_count;
    struct xfer_fence *fences;
    struct xfer_debt *debt; /* open while a fact is applied: what it makes leave counts on it */
    struct xfer_request *all, *timed; /* list heads */
    struct {
        struct xfer_part *head, *tail;
    } waiting[NXL_BACKENDS_MAX];
    struct xfer_digest *digests; /* finished transfers being checked */
    uint32_t summing;            /* sums on the pool */
    struct xfer_notice *notices; /* hash by cookie: sent to far agents, not yet ended */
    uint64_t next_cookie;
    struct nxl_log_gate lost_gate;
    void (*fenced)(void *arg); /* node: this agent must start a new life */
    void *fenced_arg;
    struct xfer_path { /* series that were counted in before */
        uint32_t instance, path, op;
        char device[32];
        struct nxl_metric *metric;
    } paths[32];
    uint32_t path_count;
    struct nxl_timer *tick;
    int ticking;
    int closing;
    struct xfer_report { /* last ended transfers, for people */
        uint64_t id, bytes, started_ns, ended_ns;
        int32_t code;
        uint32_t descriptors, pieces, path, protocol, op;
        char backend[24], device[32], local[NXL_NAME_MAX + 1], target[NXL_NAME_MAX + 1], text[160];
    } reports[256];
    uint64_t report_count;
};

/* ---- doors between the rooms -------------------------------------------------------------- */

/* engine.c */
void xfer_tick_needed(struct nxl_xfer *xfer); /* starts the 5 ms tick until nothing is timed */
void xfer_count_error(struct nxl_xfer *xfer, enum nxl_code code);

/* session.c */
/* The incarnation dies: fenced here, then told. */
void xfer_peer_end(struct xfer_peer *peer, const char *reason);
struct xfer_peer *xfer_peer_find(struct nxl_xfer_session *session, uint32_t id,
                                 struct nxl_err *err);
struct xfer_remote *xfer_remote_of(struct nxl_xfer_session *session, uint32_t peer, uint32_t remote,
                                   struct nxl_err *err);
/* Frees a closed peer, then its closed session, once nothing of it is left. */
void xfer_peer_settle(struct xfer_peer *peer);
void xfer_session_settle(struct nxl_xfer_session *session);
const char *
xfer_show(const struct nxl_catalog_peer *peer); /* "ns/name (incarnation)"; thread-local ring */

/* registration.c */
void xfer_region_used(struct nxl_catalog_region *region);
void xfer_region_unused(struct nxl_xfer *xfer,
                        struct nxl_catalog_region *region); /* finishes a leaving one */
/* Takes every region of a closing peer out; they go when quiet and confirmed. The caller lets far
 * agents be awaited on the fence that comes back, then arms it. */
struct xfer_fence *xfer_regions_leave_all(struct xfer_peer *peer);
void xfer_region_finish(struct nxl_xfer *xfer,
                        struct nxl_catalog_region *region); /* after its fence */
int xfer_region_lost(struct nxl_catalog_region *region);    /* its file was truncated under us */

/* request.c */
void xfer_request_end(struct xfer_request *request, enum nxl_code code, int32_t os,
                      const char *text);
void xfer_request_settle(struct xfer_request *request); /* quiet? then free or hand back */
void xfer_requests_of_peer_dead(struct nxl_xfer *xfer, struct nxl_catalog_peer *peer,
                                const char *why);
void xfer_requests_tick(struct nxl_xfer *xfer, uint64_t now_ns);
void xfer_request_stop(struct xfer_request *request, enum nxl_code code,
                       const char *why); /* cancel, timeout, death */
void xfer_session_requests_close(struct nxl_xfer_session *session);

/* dispatch.c */
enum nxl_code xfer_dispatch(struct xfer_request *request, struct nxl_err *err);
void xfer_dispatch_unwait(struct xfer_request *request); /* parts that were never submitted */
void xfer_on_ready(void *arg, struct nxl_instance *instance);
/* The connection goes: what waits for it will not be submitted. */
void xfer_dispatch_conn_gone(struct nxl_xfer *xfer, uint32_t instance,
                             const struct nxl_backend_conn *conn);
struct nxl_backend_conn *xfer_agent_conn(struct xfer_agent *agent, struct nxl_instance *instance,
                                         struct nxl_err *err);

/* fence.c */
struct xfer_fence *xfer_fence_open(struct nxl_xfer *xfer, uint64_t timeout_ns, xfer_fence_fn *fn,
                                   void *arg);
/* The agent must confirm sequence; what was said is kept to be said again. ids may be NULL, and are
 * at most NXL_MESSAGE_REGIONS_MAX: one await is one message. */
void xfer_fence_await(struct xfer_fence *fence, struct xfer_agent *agent, uint64_t sequence,
                      int is_fact, const char *incarnation, const uint64_t *ids, uint32_t id_count);
void xfer_fence_arm(struct xfer_fence *fence);  /* from here on fn may run, maybe at once */
void xfer_fence_drop(struct xfer_fence *fence); /* fn will not run */
void xfer_fence_confirmed(struct xfer_agent *agent, uint64_t sequence);
void xfer_fence_agent_gone(struct xfer_agent *agent);
void xfer_fence_resend(struct xfer_agent *agent);
void xfer_fences_tick(struct nxl_xfer *xfer, uint64_t now_ns);

/* remote.c */
void xfer_remote_drop(struct xfer_remote *remote);
struct xfer_remote *xfer_remote_make(struct xfer_peer *peer, struct nxl_catalog_peer *target,
                                     struct nxl_err *err);
int xfer_remote_accepts(void *remote, const struct nxl_catalog_region *region);
int xfer_access_allowed(const struct nxl_xfer *xfer, const char *from_ns, const char *to_ns);
void xfer_remote_info(const struct xfer_remote *remote, struct nxl_xfer_remote_info *ret);

/* lookup.c */
void xfer_lookups_tick(struct nxl_xfer *xfer, uint64_t now_ns);
void xfer_lookups_of_peer(struct xfer_peer *peer);              /* they end as cancelled */
void xfer_lookups_of_session(struct nxl_xfer_session *session); /* drops them silently */
int xfer_lookups_want(struct nxl_xfer *xfer,
                      const struct nxl_catalog_peer *peer); /* one of them is for it */
void xfer_lookups_link_up(struct xfer_agent *agent);
void xfer_lookups_link_gone(struct xfer_agent *agent, const char *why);
void xfer_lookups_move(struct xfer_agent *from, struct xfer_agent *to); /* they ask again there */
void xfer_lookups_answer(struct xfer_agent *agent, const struct nxl_message *message);
void xfer_lookups_synced(struct xfer_far *far);
void xfer_lookups_local(struct nxl_xfer *xfer); /* a local peer or hint appeared */
void xfer_hint_put(struct nxl_xfer *xfer, struct xfer_agent *agent,
                   const struct nxl_message *message);
void xfer_hints_of_agent_gone(struct nxl_xfer *xfer, const char *agent);
void xfer_hints_free(struct nxl_xfer *xfer);

/* far.c: remote peers and their regions */
enum nxl_code xfer_far_open(struct nxl_xfer *xfer, struct xfer_agent *agent, const char *ns,
                            const char *name, const char *incarnation, struct xfer_far **ret,
                            struct nxl_err *err);
/* Asks its agent for it, subscribed to changes; returns the request's number, 0 if the link is
 * down. */
uint64_t xfer_far_query(struct xfer_far *far, const char *from_ns, const char *from);
void xfer_far_requery(struct xfer_agent *agent); /* after a reconnect: everything of that agent */
void xfer_far_regions(struct xfer_agent *agent, const struct nxl_message *message);
void xfer_far_region_gone(struct xfer_agent *agent, const struct nxl_message *message);
void xfer_far_region_quiet(struct nxl_xfer *xfer, struct nxl_catalog_region *region);
/* Forgets a peer that nobody here has loaded, asks for, or still moves bytes with. */
void xfer_far_settle(struct nxl_xfer *xfer, struct nxl_catalog_peer *peer);
void xfer_far_loader_gone(struct nxl_xfer *xfer, struct nxl_catalog_peer *peer);
void xfer_far_agent_gone(struct xfer_agent *agent,
                         const char *why); /* its peers are dead with it */
struct xfer_debt *xfer_debt_open(struct xfer_agent *agent,
                                 uint64_t sequence); /* counts 1 for its opener */
struct xfer_debt *xfer_debt_owe_operator(struct nxl_xfer *xfer);
void xfer_debt_paid(struct xfer_debt *debt); /* accepts NULL */
void xfer_far_dead(struct nxl_xfer *xfer,
                   struct nxl_catalog_peer *peer); /* regions go; later the peer */
void xfer_far_forget_conn(struct xfer_agent *agent, uint32_t instance);

/* agent.c: far agents and their links */
struct xfer_agent *xfer_agent_of(struct nxl_xfer *xfer, struct nxl_link *link);
struct xfer_agent *xfer_agent_find(struct nxl_xfer *xfer, const char *agent);
/* NXL_UNREACHABLE while there is no link, or it is down. */
enum nxl_code xfer_agent_say(struct xfer_agent *agent, const struct nxl_message *message,
                             struct nxl_err *err);
void xfer_subscriber_drop_agent(struct nxl_xfer *xfer, struct xfer_agent *agent);
void xfer_agents_free(struct nxl_xfer *xfer);

/* exchange.c: what linked agents say and ask */
void xfer_on_message(void *arg, struct nxl_link *link, const struct nxl_message *message);
void xfer_announcements_send(struct xfer_agent *agent);
void xfer_unsubscribe(struct xfer_peer *peer, const struct xfer_agent *agent);
void xfer_tell_region_added(struct xfer_peer *peer, struct nxl_catalog_region *const *regions,
                            uint32_t count);
void xfer_tell_regions_gone(struct xfer_peer *peer, const uint64_t *ids, uint32_t count,
                            struct xfer_fence *fence);
/* Regions are gone for one agent alone. */
void xfer_tell_agent_regions_gone(struct xfer_peer *peer, struct xfer_agent *agent,
                                  const uint64_t *ids, uint32_t count, struct xfer_fence *fence);
void xfer_tell_dead(struct nxl_xfer *xfer, struct xfer_peer *peer, const char *reason,
                    struct xfer_fence *fence);
enum nxl_code xfer_announce_later(struct nxl_xfer *xfer, struct xfer_peer *peer,
                                  struct xfer_agent *agent, enum nxl_code what);

/* operator.c: nothing where there is none */
void xfer_operators_tell(struct nxl_xfer *xfer, const char *incarnation, const char *reason);
void xfer_operators_tell_pods(struct nxl_xfer *xfer);
void xfer_operators_tell_suspect(struct nxl_xfer *xfer, const char *agent);

/* life.c */
void xfer_on_life(void *arg, struct nxl_catalog_peer *peer, enum nxl_life from, const char *reason);
void xfer_suspect(struct nxl_xfer *xfer, const char *agent, int suspect);
void xfer_event_loaders(struct nxl_xfer *xfer, struct nxl_catalog_peer *peer, uint32_t kind,
                        int32_t code, struct nxl_view payload);

/* notice.c */
void xfer_notice_send(struct nxl_xfer *xfer, struct xfer_peer *from,
                      struct nxl_catalog_peer *target, uint64_t transfer, struct nxl_view payload);
enum nxl_code xfer_on_notice(void *arg, struct nxl_link *link, const struct nxl_message *notice);
void xfer_on_notice_end(void *arg, uint64_t cookie, enum nxl_code code, const char *why);
void xfer_notices_free(struct nxl_xfer *xfer);
void xfer_held_flush(struct nxl_xfer_session *session);

#endif
