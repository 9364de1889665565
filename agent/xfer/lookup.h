/* lookup.h - a load or fetch under way; shared by lookup.c and hint.c. Loop thread. */
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

void xfer_lookup_record(struct xfer_lookup *lookup, const struct nxl_record *record);
const struct nxl_record *xfer_hint_find(struct nxl_xfer *xfer, const char *ns, const char *name);

#endif
