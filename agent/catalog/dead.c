/* dead.c - a bounded set of dead prefixes in order of arrival. Called by peer.c, loop thread. */
#include "catalog/dead.h"

#include <stdlib.h>
#include <string.h>
#include <uthash.h>

#include "base/mem.h"

struct grave {
    struct grave *newer;
    UT_hash_handle hh;
    char prefix[];
};

struct nxl_dead {
    struct grave *graves; /* hash by prefix */
    struct grave *oldest, *newest;
    uint32_t max;
};

struct nxl_dead *nxl_dead_new(uint32_t max)
{
    struct nxl_dead *dead = nxl_new0(sizeof(*dead));

    dead->max = max;
    return dead;
}

static void oldest_drop(struct nxl_dead *dead)
{
    struct grave *grave = dead->oldest;

    dead->oldest = grave->newer;
    if (dead->oldest == NULL)
        dead->newest = NULL;
    HASH_DEL(dead->graves, grave);
    free(grave);
}

void nxl_dead_free(struct nxl_dead *dead)
{
    if (dead == NULL)
        return;
    while (dead->oldest != NULL)
        oldest_drop(dead);
    free(dead);
}

void nxl_dead_add(struct nxl_dead *dead, const char *prefix)
{
    size_t size = strlen(prefix);
    struct grave *grave;

    if (nxl_dead_covers(dead, prefix))
        return;
    if (HASH_COUNT(dead->graves) >= dead->max)
        oldest_drop(dead);
    grave = nxl_new0(sizeof(*grave) + size + 1);
    memcpy(grave->prefix, prefix, size + 1);
    HASH_ADD(hh, dead->graves, prefix, size, grave);
    if (dead->newest != NULL)
        dead->newest->newer = grave;
    else
        dead->oldest = grave;
    dead->newest = grave;
}

int nxl_dead_covers(const struct nxl_dead *dead, const char *incarnation)
{
    const char *end = incarnation;

    do { /* every prefix that ends at a component: at most three */
        struct grave *grave;

        end = strchrnul(end, '/');
        HASH_FIND(hh, dead->graves, incarnation, (size_t)(end - incarnation), grave);
        if (grave != NULL)
            return 1;
    } while (*end++ != '\0');
    return 0;
}
