/* policy.h - who may reach whose memory: by the operators' word where there is one, else by the
 * setting access.policy. Asked by every room that lets something through. Loop thread. */
#ifndef NXL_XFER_POLICY_H
#define NXL_XFER_POLICY_H

#include "cluster/members.h"
#include "xfer/engine.h"

struct xfer_end { /* one side of a question; texts are lent */
    const char *ns, *incarnation;
};

#define XFER_ANY_KIND NXL_MEMBERS_KIND_ANY
/* May `from` do ops (NXL_STREAM_READ ...; 0: any) on memory of that kind of `to`, by path? Negative
 * codes only; err has the sentence. */
enum nxl_code xfer_policy(struct nxl_xfer *xfer, struct xfer_end from, struct xfer_end to,
                          unsigned ops, unsigned kind, enum nxl_path_class path,
                          struct nxl_err *err);
/* The same, asked by a far agent for one of its clients: which must live on its node. */
enum nxl_code xfer_policy_asked(struct nxl_xfer *xfer, const struct xfer_agent *agent,
                                struct xfer_end from, struct xfer_end to, unsigned ops,
                                unsigned kind, struct nxl_err *err);
/* 1 if operators say that the pod of that incarnation, or prefix, is on node. */
int xfer_policy_is_on(const struct nxl_xfer *xfer, const char *incarnation, const char *node);
/* Kinds (1 << enum nxl_mem_kind) of to's memory that a client at `from` may do anything with. */
unsigned xfer_policy_kinds(struct nxl_xfer *xfer, struct xfer_end from, struct xfer_end to);
/* Two of our clients that policy cannot tell apart. */
int xfer_policy_same(const struct nxl_xfer *xfer, struct xfer_end one, struct xfer_end other);
/* A region of target was not found: because policy took it away? Then code and err say that. */
enum nxl_code xfer_policy_explain(struct nxl_xfer *xfer, const struct nxl_catalog_peer *from,
                                  const struct nxl_catalog_peer *target, unsigned kind,
                                  enum nxl_code code, struct nxl_err *err);
/* What is allowed may have changed: running transfers that are not any more end, and far agents are
 * told that regions are gone for them. */
void xfer_policy_changed(struct nxl_xfer *xfer);
void xfer_policy_review(struct nxl_xfer *xfer); /* asks again for what was refused; once a second */

static inline struct xfer_end xfer_end_of(const struct nxl_catalog_peer *peer)
{
    return (struct xfer_end){peer->ns, peer->incarnation};
}

#endif
