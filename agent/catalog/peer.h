/* peer.h - every incarnation this agent knows: its own clients' peers and remote ones.
 * Loop thread. Life only moves right; Dead is remembered, so that a late record of a dead
 * incarnation is refused ("remove wins over add"). */
#ifndef NXL_CATALOG_PEER_H
#define NXL_CATALOG_PEER_H

#include <nxl/err.h>
#include <nxl/types.h>

struct nxl_catalog;
struct nxl_region_table;

struct nxl_catalog_peer {
    char ns[NXL_NAMESPACE_MAX + 1];
    char name[NXL_NAME_MAX + 1];
    char incarnation[NXL_INCARNATION_MAX + 1]; /* "pod/container/session" */
    char agent[NXL_INCARNATION_MAX + 1];       /* incarnation of the node agent it lives at */
    char node[NXL_NODE_MAX + 1];
    char address[300]; /* of that agent's link, "host:port"; empty for ours */
    int local;         /* its client is on this agent */
    enum nxl_life life;
    int suspect;
    uint64_t revision; /* of its region table; remote: as far as we know it */
    struct nxl_region_table *regions;
    void *owner;   /* local: xfer's peer. remote: xfer's remote state */
    uint32_t refs; /* users that keep the memory; catalog.c frees at 0 once removed */
    uint64_t since_ns;
};

typedef void nxl_catalog_life_fn(void *arg, struct nxl_catalog_peer *peer, enum nxl_life from,
                                 const char *reason);

/* on_life runs after a peer's life changed, before the call that changed it returns. */
struct nxl_catalog *nxl_catalog_new(nxl_catalog_life_fn *on_life, void *arg);
void nxl_catalog_free(struct nxl_catalog *catalog);

/* Adds an incarnation. NXL_STALE: it is dead already. NXL_NOT_ALLOWED: the incarnation is known
 * under another name. Known already: returns that one. *ret is lent: ref it to keep it beyond a
 * removal. */
NXL_MUST_USE enum nxl_code nxl_catalog_add(struct nxl_catalog *catalog, const char *ns,
                                           const char *name, const char *incarnation, int local,
                                           struct nxl_catalog_peer **ret, struct nxl_err *err);
/* The newest incarnation added under a name that is not dead; NULL if none. */
struct nxl_catalog_peer *nxl_catalog_current(struct nxl_catalog *catalog, const char *ns,
                                             const char *name);
struct nxl_catalog_peer *nxl_catalog_by_incarnation(struct nxl_catalog *catalog,
                                                    const char *incarnation);
void nxl_catalog_ref(struct nxl_catalog_peer *peer);
void nxl_catalog_unref(struct nxl_catalog *catalog, struct nxl_catalog_peer *peer);
/* Takes the peer out of the indexes; memory goes with the last ref. Its table must be empty by
 * then. */
void nxl_catalog_remove(struct nxl_catalog *catalog, struct nxl_catalog_peer *peer);

/* 1 if prefix names whole leading components of incarnation ("a/b" of "a/b/c", not of "a/bc"). */
int nxl_incarnation_covers(const char *prefix, const char *incarnation);
int nxl_incarnation_valid(const char *text); /* 1..3 components of [A-Za-z0-9._-]+ */
/* Applies a fact to every incarnation under prefix and remembers Dead (65,536 prefixes, oldest
 * forgotten first). Never moves left; saying it again is nothing. Returns how many changed. */
uint32_t nxl_catalog_set_life(struct nxl_catalog *catalog, const char *prefix, enum nxl_life life,
                              const char *reason);
/* Suspicion is reversible; returns how many changed. on_life is not called; see on_suspect. */
uint32_t nxl_catalog_set_suspect(struct nxl_catalog *catalog, const char *prefix, int suspect,
                                 void (*on_change)(void *arg, struct nxl_catalog_peer *peer),
                                 void *arg);
int nxl_catalog_is_dead(struct nxl_catalog *catalog, const char *incarnation);
/* Order of addition. fn may remove the peer it is given. Stops on non-zero and returns it. */
int nxl_catalog_each(struct nxl_catalog *catalog,
                     int (*fn)(void *arg, struct nxl_catalog_peer *peer), void *arg);
uint32_t nxl_catalog_count(const struct nxl_catalog *catalog, int local);

#endif
