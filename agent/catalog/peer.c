/* peer.c - every incarnation this agent knows: indexes, life, memory. Called by xfer and cluster on
 * the loop thread. A life only moves right; the dead stay known (dead.c). */
#include "catalog/peer.h"

#include <stdlib.h>
#include <string.h>
#include <uthash.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/mem.h"
#include "catalog/dead.h"
#include "catalog/region.h"

#define NAME_KEY_SIZE (NXL_NAMESPACE_MAX + 1 + NXL_NAME_MAX)

struct entry;

struct name { /* the lives under one name that are not dead, newest first; goes with the last one */
    struct entry *newest;
    UT_hash_handle hh;
    size_t size;
    char key[NAME_KEY_SIZE]; /* "ns" NUL "name" */
};

struct entry {
    struct nxl_catalog_peer peer; /* first: entry_of() */
    struct name *name;            /* NULL once dead or removed */
    struct entry *older, *newer;  /* under that name */
    struct entry *prev, *next;    /* in order of addition */
    uint64_t number;              /* of that order */
    int removed, linked;
    UT_hash_handle hh; /* by incarnation */
};

struct nxl_catalog {
    nxl_catalog_life_fn *on_life;
    void *arg;
    struct entry *entries; /* hash by incarnation */
    struct name *names;
    struct entry *first, *last;
    struct nxl_dead *dead;
    uint64_t next_number;
    uint32_t counts[2]; /* by local */
    uint32_t walks;     /* under way: what is removed stays linked until the last one ends */
    int to_sweep;
};

static struct entry *entry_of(struct nxl_catalog_peer *peer)
{
    return nxl_container_of(peer, struct entry, peer);
}

/* ---- names ------------------------------------------------------------------------------- */

static size_t name_key(const char *ns, const char *name, char *key)
{
    size_t ns_size = strnlen(ns, NXL_NAMESPACE_MAX), name_size = strnlen(name, NXL_NAME_MAX);

    memcpy(key, ns, ns_size);
    key[ns_size] = '\0';
    memcpy(key + ns_size + 1, name, name_size);
    return ns_size + 1 + name_size;
}

static struct name *name_find(struct nxl_catalog *catalog, const char *ns, const char *text)
{
    char key[NAME_KEY_SIZE];
    size_t size = name_key(ns, text, key);
    struct name *name;

    HASH_FIND(hh, catalog->names, key, size, name);
    return name;
}

static void name_enter(struct nxl_catalog *catalog, struct entry *entry)
{
    struct name *name = name_find(catalog, entry->peer.ns, entry->peer.name);

    if (name == NULL) {
        name = nxl_new0(sizeof(*name));
        name->size = name_key(entry->peer.ns, entry->peer.name, name->key);
        HASH_ADD_KEYPTR(hh, catalog->names, name->key, name->size, name);
    }
    entry->name = name;
    entry->older = name->newest;
    if (name->newest != NULL)
        name->newest->newer = entry;
    name->newest = entry;
}

static void name_leave(struct nxl_catalog *catalog, struct entry *entry)
{
    struct name *name = entry->name;

    if (name == NULL)
        return;
    if (entry->newer != NULL)
        entry->newer->older = entry->older;
    else
        name->newest = entry->older;
    if (entry->older != NULL)
        entry->older->newer = entry->newer;
    entry->name = NULL;
    entry->older = entry->newer = NULL;
    if (name->newest == NULL) {
        HASH_DEL(catalog->names, name);
        free(name);
    }
}

/* ---- entries ------------------------------------------------------------------------------- */

static void entry_unlink(struct nxl_catalog *catalog, struct entry *entry)
{
    *(entry->prev != NULL ? &entry->prev->next : &catalog->first) = entry->next;
    *(entry->next != NULL ? &entry->next->prev : &catalog->last) = entry->prev;
    entry->prev = entry->next = NULL;
    entry->linked = 0;
}

static void entry_free(struct entry *entry)
{
    nxl_region_table_free(entry->peer.regions);
    free(entry);
}

static void walk_begin(struct nxl_catalog *catalog)
{
    catalog->walks++;
}

static void walk_end(struct nxl_catalog *catalog)
{
    if (--catalog->walks > 0 || !catalog->to_sweep)
        return;
    catalog->to_sweep = 0;
    for (struct entry *entry = catalog->first, *next; entry != NULL; entry = next) {
        next = entry->next;
        if (!entry->removed)
            continue;
        entry_unlink(catalog, entry);
        if (entry->peer.refs == 0)
            entry_free(entry);
    }
}

struct nxl_catalog *nxl_catalog_new(nxl_catalog_life_fn *on_life, void *arg)
{
    struct nxl_catalog *catalog = nxl_new0(sizeof(*catalog));

    catalog->on_life = on_life;
    catalog->arg = arg;
    catalog->dead = nxl_dead_new(NXL_DEAD_MAX);
    return catalog;
}

static int region_first(void *arg, struct nxl_catalog_region *region)
{
    *(struct nxl_catalog_region **)arg = region;
    return 1;
}

/* At the very end regions that never became quiet may be left; they belong to others. */
static void regions_let_go(struct nxl_region_table *table)
{
    struct nxl_catalog_region *region;

    while (nxl_region_table_each(table, region_first, &region) != 0)
        nxl_region_table_remove(table, region);
}

void nxl_catalog_free(struct nxl_catalog *catalog)
{
    if (catalog == NULL)
        return;
    NXL_ASSERT(catalog->walks == 0);
    while (catalog->first != NULL) {
        struct entry *entry = catalog->first;

        regions_let_go(entry->peer.regions);
        entry->peer.refs = 0; /* nobody asks any more */
        nxl_catalog_remove(catalog, &entry->peer);
    }
    nxl_dead_free(catalog->dead);
    free(catalog);
}

static enum nxl_code add_check(struct nxl_catalog *catalog, const char *ns, const char *name,
                               const char *incarnation, struct nxl_err *err)
{
    if (strnlen(ns, NXL_NAMESPACE_MAX + 1) > NXL_NAMESPACE_MAX)
        return nxl_err_set(err, NXL_INVALID_PARAM, 0,
                           "a namespace has at most %d bytes, this one is '%.80s...'",
                           NXL_NAMESPACE_MAX, ns);
    if (name[0] == '\0' || strnlen(name, NXL_NAME_MAX + 1) > NXL_NAME_MAX)
        return nxl_err_set(err, NXL_INVALID_PARAM, 0,
                           "a peer name has 1 to %d bytes, this one is '%.80s%s'", NXL_NAME_MAX,
                           name, name[0] == '\0' ? "" : "...");
    if (!nxl_incarnation_valid(incarnation))
        return nxl_err_set(err, NXL_INVALID_PARAM, 0,
                           "incarnation '%.160s' of peer %s/%.80s is not one to three components "
                           "of letters, digits "
                           "and '._-', at most %d bytes",
                           incarnation, ns, name, NXL_INCARNATION_MAX);
    if (nxl_catalog_is_dead(catalog, incarnation))
        return nxl_err_set(err, NXL_STALE, 0, "incarnation %s of peer %s/%.80s is dead",
                           incarnation, ns, name);
    return NXL_OK;
}

static struct entry *entry_new(struct nxl_catalog *catalog, const char *ns, const char *name,
                               const char *incarnation, int local)
{
    struct entry *entry = nxl_new0(sizeof(*entry));
    struct nxl_catalog_peer *peer = &entry->peer;

    (void)nxl_copy_text(peer->ns, sizeof(peer->ns), ns);
    (void)nxl_copy_text(peer->name, sizeof(peer->name), name);
    (void)nxl_copy_text(peer->incarnation, sizeof(peer->incarnation), incarnation);
    peer->local = local != 0;
    peer->since_ns = nxl_now_ns();
    peer->regions = nxl_region_table_new();
    entry->number = catalog->next_number++;
    entry->prev = catalog->last;
    *(catalog->last != NULL ? &catalog->last->next : &catalog->first) = entry;
    catalog->last = entry;
    entry->linked = 1;
    HASH_ADD_KEYPTR(hh, catalog->entries, peer->incarnation, strlen(peer->incarnation), entry);
    name_enter(catalog, entry);
    catalog->counts[peer->local]++;
    return entry;
}

enum nxl_code nxl_catalog_add(struct nxl_catalog *catalog, const char *ns, const char *name,
                              const char *incarnation, int local, struct nxl_catalog_peer **ret,
                              struct nxl_err *err)
{
    enum nxl_code code = add_check(catalog, ns, name, incarnation, err);
    struct nxl_catalog_peer *known;

    if (code != NXL_OK)
        return code;
    known = nxl_catalog_by_incarnation(catalog, incarnation);
    if (known == NULL) {
        *ret = &entry_new(catalog, ns, name, incarnation, local)->peer;
        return NXL_OK;
    }
    if (strcmp(known->ns, ns) != 0 || strcmp(known->name, name) != 0)
        return nxl_err_set(err, NXL_NOT_ALLOWED, 0,
                           "incarnation %s is peer %s/%.80s, it cannot be %s/%.80s too",
                           incarnation, known->ns, known->name, ns, name);
    if (local && !known->local)
        return nxl_err_set(err, NXL_NOT_ALLOWED, 0,
                           "incarnation %s of peer %s/%.80s lives at agent '%s', not here",
                           incarnation, ns, name, known->agent);
    *ret = known;
    return NXL_OK;
}

struct nxl_catalog_peer *nxl_catalog_current(struct nxl_catalog *catalog, const char *ns,
                                             const char *name)
{
    struct name *found;

    if (strnlen(ns, NXL_NAMESPACE_MAX + 1) > NXL_NAMESPACE_MAX ||
        strnlen(name, NXL_NAME_MAX + 1) > NXL_NAME_MAX)
        return NULL;
    found = name_find(catalog, ns, name);
    return found != NULL ? &found->newest->peer : NULL;
}

struct nxl_catalog_peer *nxl_catalog_by_incarnation(struct nxl_catalog *catalog,
                                                    const char *incarnation)
{
    struct entry *entry;

    HASH_FIND(hh, catalog->entries, incarnation, strlen(incarnation), entry);
    return entry != NULL ? &entry->peer : NULL;
}

void nxl_catalog_ref(struct nxl_catalog_peer *peer)
{
    NXL_ASSERT(peer->refs < UINT32_MAX);
    peer->refs++;
}

void nxl_catalog_unref(struct nxl_catalog *catalog, struct nxl_catalog_peer *peer)
{
    (void)catalog;
    if (peer == NULL)
        return;
    NXL_ASSERT(peer->refs > 0);
    /* Still linked: a walk is on it, and frees it at its end. */
    if (--peer->refs == 0 && entry_of(peer)->removed && !entry_of(peer)->linked)
        entry_free(entry_of(peer));
}

void nxl_catalog_remove(struct nxl_catalog *catalog, struct nxl_catalog_peer *peer)
{
    struct entry *entry = entry_of(peer);

    if (entry->removed)
        return;
    HASH_DEL(catalog->entries, entry);
    name_leave(catalog, entry);
    catalog->counts[peer->local]--;
    entry->removed = 1;
    if (catalog->walks > 0) {
        catalog->to_sweep = 1;
        return;
    }
    entry_unlink(catalog, entry);
    if (peer->refs == 0)
        entry_free(entry);
}

/* ---- facts --------------------------------------------------------------------------------- */

int nxl_catalog_is_dead(struct nxl_catalog *catalog, const char *incarnation)
{
    const struct nxl_catalog_peer *peer;

    if (nxl_dead_covers(catalog->dead, incarnation))
        return 1;
    peer = nxl_catalog_by_incarnation(catalog,
                                      incarnation); /* its prefix may be forgotten, it is not */
    return peer != NULL && peer->life == NXL_LIFE_DEAD;
}

struct change {
    struct nxl_catalog *catalog;
    const char *prefix, *reason;
    enum nxl_life life;
    int suspect;
    void (*on_change)(void *arg, struct nxl_catalog_peer *peer);
    void *arg;
    uint32_t changed;
};

static int life_change(void *arg, struct nxl_catalog_peer *peer)
{
    struct change *change = arg;
    enum nxl_life from = peer->life;

    if (from >= change->life || !nxl_incarnation_covers(change->prefix, peer->incarnation))
        return 0;
    peer->life = change->life;
    peer->since_ns = nxl_now_ns();
    if (change->life == NXL_LIFE_DEAD)
        name_leave(change->catalog, entry_of(peer));
    change->changed++;
    if (change->catalog->on_life != NULL)
        change->catalog->on_life(change->catalog->arg, peer, from, change->reason);
    return 0;
}

static int suspect_change(void *arg, struct nxl_catalog_peer *peer)
{
    struct change *change = arg;

    if (peer->life == NXL_LIFE_DEAD || peer->suspect == change->suspect ||
        !nxl_incarnation_covers(change->prefix, peer->incarnation))
        return 0;
    peer->suspect = change->suspect;
    change->changed++;
    if (change->on_change != NULL)
        change->on_change(change->arg, peer);
    return 0;
}

/* A whole incarnation is found by its hash, a shorter prefix by looking at all. */
static void change_apply(struct change *change, int (*fn)(void *arg, struct nxl_catalog_peer *peer))
{
    const char *slash = strchr(change->prefix, '/');
    struct nxl_catalog_peer *peer;

    if (slash == NULL || strchr(slash + 1, '/') == NULL) {
        (void)nxl_catalog_each(change->catalog, fn, change);
        return;
    }
    walk_begin(change->catalog);
    peer = nxl_catalog_by_incarnation(change->catalog, change->prefix);
    if (peer != NULL)
        (void)fn(change, peer);
    walk_end(change->catalog);
}

uint32_t nxl_catalog_set_life(struct nxl_catalog *catalog, const char *prefix, enum nxl_life life,
                              const char *reason)
{
    struct change change = {.catalog = catalog, .prefix = prefix, .life = life, .reason = reason};

    if (!nxl_incarnation_valid(prefix))
        return 0;
    /* First the memory, then the callbacks: whoever adds it again from inside of one is refused. */
    if (life == NXL_LIFE_DEAD)
        nxl_dead_add(catalog->dead, prefix);
    change_apply(&change, life_change);
    return change.changed;
}

uint32_t nxl_catalog_set_suspect(struct nxl_catalog *catalog, const char *prefix, int suspect,
                                 void (*on_change)(void *arg, struct nxl_catalog_peer *peer),
                                 void *arg)
{
    struct change change = {.catalog = catalog,
                            .prefix = prefix,
                            .suspect = suspect != 0,
                            .on_change = on_change,
                            .arg = arg};

    if (!nxl_incarnation_valid(prefix))
        return 0;
    change_apply(&change, suspect_change);
    return change.changed;
}

int nxl_catalog_each(struct nxl_catalog *catalog,
                     int (*fn)(void *arg, struct nxl_catalog_peer *peer), void *arg)
{
    uint64_t end = catalog->next_number; /* what fn adds is not visited, so this ends */
    int stop = 0;

    walk_begin(catalog);
    for (struct entry *entry = catalog->first; entry != NULL && entry->number < end && stop == 0;
         entry = entry->next) {
        if (!entry->removed)
            stop = fn(arg, &entry->peer);
    }
    walk_end(catalog);
    return stop;
}

uint32_t nxl_catalog_count(const struct nxl_catalog *catalog, int local)
{
    return catalog->counts[local != 0];
}
