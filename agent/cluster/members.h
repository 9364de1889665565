/* members.h - which pods belong to which groups, and who may do what with whose memory, as
 * operators said. Pure state with effects through ops; cluster/stream feeds it, xfer asks it. Loop
 * thread.
 *
 * Several operators (sources) may speak at once: facts are about incarnations, Dead wins for ever,
 * and of two live records the one with the newer resource version counts. */
#ifndef NXL_CLUSTER_MEMBERS_H
#define NXL_CLUSTER_MEMBERS_H

#include "stream/frame.h"

struct nxl_bytes;
struct nxl_members;

#define NXL_MEMBERS_SOURCES 8u /* operators heard at once */

/* Called from inside the feeding call, after the table holds the new state. */
struct nxl_members_ops {
    /* Everything under prefix (pod or container) is dead or draining; said once. */
    void (*on_life)(void *arg, const char *prefix, enum nxl_life life, const char *reason);
    void (*on_suspect)(void *arg, const char *prefix, int suspect, const char *reason);
    /* What nxl_members_allows() says of pairs with this group may have changed. NULL: of any. */
    void (*on_policy)(void *arg, const char *group);
    /* The time to drain is up: running transfers of it should end. */
    void (*on_drained)(void *arg, const char *prefix);
};

struct nxl_members_options {
    const char *node; /* ours */
    uint32_t max;     /* members kept; more are refused and counted */
    const struct nxl_members_ops *ops;
    void *arg;
};
struct nxl_members *nxl_members_new(const struct nxl_members_options *options);
void nxl_members_free(struct nxl_members *members);
/* Ops again, for whoever is built later than the table. */
void nxl_members_attach(struct nxl_members *members, const struct nxl_members_ops *ops, void *arg);

/* ---- fed by the stream --------------------------------------------------------------------- */

/* A whole table of one source: begin, put all of it, end. What end does not find in it is gone:
 * dead if its record is not newer than rv and the source still tells of its group, else forgotten.
 */
void nxl_members_begin(struct nxl_members *members, uint32_t source, const char *rv);
void nxl_members_end(struct nxl_members *members, uint32_t source);
/* NXL_STALE: at or under a tombstone, or older than what is known. NXL_LIMIT. Both leave the digest
 * as the source counts it. */
NXL_MUST_USE enum nxl_code nxl_members_put(struct nxl_members *members, uint32_t source,
                                           const struct nxl_stream_member *member,
                                           struct nxl_err *err);
NXL_MUST_USE enum nxl_code nxl_members_put_policy(struct nxl_members *members, uint32_t source,
                                                  const struct nxl_stream_policy *policy,
                                                  struct nxl_err *err);
uint64_t nxl_members_digest(const struct nxl_members *members, uint32_t source);
/* This operator is not dialled any more: what only it told stays, but it has no say in it. */
void nxl_members_leave(struct nxl_members *members, uint32_t source);
/* Ends drains whose time is up and drops tombstones older than 24 h. Call about once a second. */
void nxl_members_tick(struct nxl_members *members);

/* ---- asked by xfer ------------------------------------------------------------------------ */

struct nxl_member_view { /* lent until the next call that changes the table */
    const char *uid, *container, *group, *pod, *node, *reason, *revision, *topology;
    enum nxl_life life;
    int suspect;
};
/* 0: not known. */
int nxl_members_find(const struct nxl_members *members, const char *uid,
                     struct nxl_member_view *ret);
int nxl_members_spoken(const struct nxl_members *members); /* a snapshot was applied, once */

#define NXL_MEMBERS_KIND_ANY 0xffu /* any kind that is allowed will do */
/* May pod `from` do ops (NXL_STREAM_READ ..., all of them; 0: any of them) on memory of that kind
 * (enum nxl_mem_kind, or NXL_MEMBERS_KIND_ANY) of pod `to`, taking path (enum nxl_path_class; NONE:
 * not chosen yet)? Pods are UIDs, or incarnations that begin with one. Inside one pod everything is
 * allowed. NXL_OK; NXL_NOT_ALLOWED, NXL_PATH_REFUSED; NXL_AGAIN: no operator has spoken yet. err
 * says in a sentence what is missing. */
NXL_MUST_USE enum nxl_code nxl_members_allows(struct nxl_members *members, const char *from,
                                              const char *to, unsigned ops, unsigned kind,
                                              enum nxl_path_class path, struct nxl_err *err);
/* The same for what runs already: a draining pod may finish. Nothing is counted. */
enum nxl_code nxl_members_may_finish(struct nxl_members *members, const char *from, const char *to,
                                     unsigned ops, unsigned kind, struct nxl_err *err);
/* Any operation on that kind; nothing is counted. */
enum nxl_code nxl_members_kind_allowed(struct nxl_members *members, const char *from,
                                       const char *to, unsigned kind, struct nxl_err *err);
/* Kinds (1 << enum nxl_mem_kind) of `to` that some member on node may do anything with. */
unsigned nxl_members_node_kinds(struct nxl_members *members, const char *node, const char *to);
/* 1 if the topology or revision of both is the same; for a choice among several. */
int nxl_members_near(const struct nxl_members *members, const char *from, const char *to);

struct nxl_members_counts {
    uint32_t members, live, draining, suspect, groups, tombstones;
    uint64_t refused, observed; /* refusals; and what Observe would have refused */
};
void nxl_members_counts(const struct nxl_members *members, struct nxl_members_counts *ret);
void nxl_members_describe(const struct nxl_members *members, struct nxl_bytes *to); /* JSON */

#endif
