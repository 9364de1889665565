/* lookup.h - a load or fetch under way; shared by lookup.c, lookup_events.c and hint.c. Loop
 * thread.
 */
#ifndef NXL_XFER_LOOKUP_H
#define NXL_XFER_LOOKUP_H

#include "xfer/remote.h"

struct xfer_lookup {
    struct nxl_xfer *xfer;
    struct xfer_peer *peer;
    enum {
        LOOKUP_STORE = 0, /* until a local peer, a hint or a record appears */
        LOOKUP_LINK,      /* until the agent's link is up */
        LOOKUP_ANSWER,    /* until the agent answers `request` */
        LOOKUP_RETRY,     /* the agent does not know the name yet */
        LOOKUP_SYNC,      /* until the region table is whole */
        LOOKUP_POLICY,    /* until an operator has told who may reach whom */
    } state;
    struct xfer_agent *agent;
    uint64_t request, ticket, deadline_ns, asked_ns;
    struct nxl_record *record; /* what was loaded, for partial views; NULL: by name alone */
    char ns[NXL_NAMESPACE_MAX + 1], name[NXL_NAME_MAX + 1], label[NXL_LABEL_MAX + 1];
    char incarnation[NXL_INCARNATION_MAX + 1], address[300];
    nxl_xfer_reply_fn *fn;
    void *arg;
    struct xfer_lookup *next, **link_at;
};

/* lookup.c, for lookup_events.c */
void xfer_lookup_free(struct xfer_lookup *lookup);
void xfer_lookup_finish(struct xfer_lookup *lookup, enum nxl_code code,
                        struct nxl_catalog_peer *target, struct nxl_err *err);
void xfer_lookup_fail(struct xfer_lookup *lookup, enum nxl_code code, struct nxl_err *err);
void xfer_lookup_far(struct xfer_lookup *lookup, struct xfer_agent *agent, const char *ns,
                     const char *name, const char *incarnation);
void xfer_lookup_ask(struct xfer_lookup *lookup);
int xfer_fetch_here(struct xfer_lookup *lookup);

void xfer_lookup_record(struct xfer_lookup *lookup, const struct nxl_record *record);
const struct nxl_record *xfer_hint_find(struct nxl_xfer *xfer, const char *ns, const char *name);

#endif
