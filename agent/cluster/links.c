/* links.c - the set of links of one agent: opening, looking up, remembering those that ended, and
 * freeing in the next turn. Called by the agent's start-up and by xfer. Loop thread. */
#include "cluster/link_internal.h"

#include "base/fd.h"
#include "base/loop.h"
#include "base/mem.h"
#include "cluster/identity.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- the next turn ------------------------------------------------------------------------ */

static void conn_free(struct conn *conn)
{
    nxl_bytes_fini(&conn->in);
    nxl_bytes_fini(&conn->out);
    free(conn);
}

static void link_free(struct nxl_link *link)
{
    notices_fini(link);
    nxl_bytes_fini(&link->backend_bytes);
    free(link);
}

void links_free_the_dead(struct nxl_links *links)
{
    struct conn *conn = NXL_TAKE(links->dead_conns);
    struct nxl_link *link = NXL_TAKE(links->dead_links);

    while (conn != NULL) {
        struct conn *next = conn->buried;

        conn_free(conn);
        conn = next;
    }
    while (link != NULL) {
        struct nxl_link *next = link->buried;

        link_free(link);
        link = next;
    }
}

void links_on_later(void *arg)
{
    struct nxl_links *links = arg;
    struct conn *next;

    for (struct conn *conn = links->conns; conn != NULL; conn = next) {
        if (!conn->dead && conn->broken)
            conn_fail(conn, LINK_FAIL_REFUSED, "%s", conn->why);
        else if (!conn->dead && conn->again)
            conn_read(conn);
        next = conn->next; /* the dead keep theirs until the end of this turn */
    }
    links_free_the_dead(links);
}

void links_later(struct nxl_links *links)
{
    nxl_timer_start(links->later, 0, 0);
}

void links_bury_conn(struct conn *conn)
{
    conn->buried = conn->links->dead_conns;
    conn->links->dead_conns = conn;
    links_later(conn->links);
}

void links_bury_link(struct nxl_link *link)
{
    struct nxl_links *links = link->links;

    if (link->hashed)
        HASH_DEL(links->by_agent, link);
    link->hashed = 0;
    if (link->prev != NULL)
        link->prev->next = link->next;
    else
        links->list = link->next;
    if (link->next != NULL)
        link->next->prev = link->prev;
    links->count--;
    link->buried = links->dead_links;
    links->dead_links = link;
    links_later(links);
}

void links_forget(struct nxl_link *link)
{
    link->over = 1;
    if (link->conn != NULL)
        nxl_metric_move(link->links->metrics.up, -1);
    link->conn = NULL; /* closed with all connections */
    link_dial_cancel(link);
    nxl_timer_close(NXL_TAKE(link->retry));
    nxl_timer_close(NXL_TAKE(link->beat));
    links_bury_link(link);
}

/* ---- links that ended --------------------------------------------------------------------- */

static struct link_ended *ended_find(const struct nxl_links *links, const char *agent)
{
    for (uint32_t i = 0; i < links->ended_count; i++) {
        if (strcmp(links->ended[i].agent, agent) == 0)
            return &links->ended[i];
    }
    return NULL;
}

int links_is_dead(const struct nxl_links *links, const char *agent)
{
    const struct link_ended *ended = ended_find(links, agent);

    return ended != NULL && ended->dead;
}

void links_remember_end(struct nxl_link *link, int dead)
{
    struct nxl_links *links = link->links;
    struct link_ended *ended = ended_find(links, link->agent);

    if (ended == NULL) {
        ended = &links->ended[links->ended_next];
        links->ended_next = (links->ended_next + 1) % LINK_ENDED_MAX; /* the oldest is forgotten */
        if (links->ended_count < LINK_ENDED_MAX)
            links->ended_count++;
        *ended = (struct link_ended){0};
        (void)nxl_copy_text(ended->agent, sizeof(ended->agent), link->agent); /* same size */
    }
    ended->dead |= dead;
    ended->last = link->notices.last;
    ended->seen = link->notices.seen;
}

/* ---- the set ------------------------------------------------------------------------------ */

void links_name_link(struct nxl_link *link, const char *agent)
{
    struct nxl_links *links = link->links;
    const struct link_ended *former = ended_find(links, agent);

    (void)nxl_copy_text(link->agent, sizeof(link->agent), agent); /* checked by the callers */
    HASH_ADD_STR(links->by_agent, agent, link);
    link->hashed = 1;
    if (former == NULL)
        return;
    link->notices.seen = former->seen; /* the far agent counts on from there too */
    notices_renumber(link, former->last);
}

struct nxl_link *links_new_link(struct nxl_links *links, const char *address, const char *agent)
{
    struct nxl_link *link = nxl_new0(sizeof(*link));

    link->links = links;
    (void)nxl_copy_text(link->address, sizeof(link->address), address); /* checked by the callers */
    link->next = links->list;
    if (link->next != NULL)
        link->next->prev = link;
    links->list = link;
    links->count++;
    if (agent[0] != '\0')
        links_name_link(link, agent);
    return link;
}

struct nxl_link *nxl_links_find(struct nxl_links *links, const char *agent)
{
    struct nxl_link *link;

    HASH_FIND_STR(links->by_agent, agent, link);
    return link;
}

int nxl_links_each(struct nxl_links *links, int (*fn)(void *arg, struct nxl_link *link), void *arg)
{
    struct nxl_link *next;

    for (struct nxl_link *link = links->list; link != NULL; link = next) {
        int stop = link->over ? 0 : fn(arg, link);

        if (stop != 0)
            return stop;
        next = link->next; /* those that ended keep theirs until the next turn */
    }
    return 0;
}

static struct nxl_link *find_by_address(struct nxl_links *links, const char *address)
{
    for (struct nxl_link *link = links->list; link != NULL; link = link->next) {
        if (strcmp(link->address, address) == 0 || strcmp(link->told, address) == 0)
            return link;
    }
    return NULL;
}

enum nxl_code nxl_links_get(struct nxl_links *links, const char *address, const char *agent,
                            struct nxl_link **ret, struct nxl_err *err)
{
    struct nxl_link *link = NULL;
    int known = agent != NULL && agent[0] != '\0';

    if (known && !nxl_identity_is_incarnation(agent))
        return nxl_err_set(err, NXL_INVALID_PARAM, 0,
                           "link: agent %s is not of the form node/boot/random", nxl_quote(agent));
    if (known && strcmp(agent, links->agent) == 0)
        return nxl_err_set(err, NXL_INVALID_PARAM, 0, "link: '%s' is this agent itself", agent);
    if (known && links_is_dead(links, agent))
        return nxl_err_set(err, NXL_REMOTE_DISCONNECT, 0, "link: agent '%s' is gone for good",
                           agent);
    if (known)
        link = nxl_links_find(links, agent);
    if (link == NULL) {
        if (address == NULL || !nxl_identity_is_address(address) ||
            strlen(address) >= sizeof(link->address))
            return nxl_err_set(err, NXL_INVALID_PARAM, 0,
                               "link: address %s is not of the form host:port",
                               nxl_quote(address != NULL ? address : ""));
        if (!known && strcmp(address, links->address) == 0)
            return nxl_err_set(err, NXL_INVALID_PARAM, 0,
                               "link: '%s' is an address of this agent itself", address);
        if (!known)
            link = find_by_address(links, address);
    }
    if (link == NULL) {
        if (links->count >= links->links_max)
            return nxl_err_set(err, NXL_LIMIT, 0,
                               "link: there are %u links already (link.links_max)", links->count);
        link = links_new_link(links, address, known ? agent : "");
        link_start(link);
    }
    *ret = link;
    return NXL_OK;
}

const char *nxl_links_address(const struct nxl_links *links)
{
    return links->address;
}

void nxl_links_resume(struct nxl_links *links)
{
    struct nxl_link *next;

    for (struct nxl_link *link = links->list; link != NULL; link = next) {
        if (!link->over && link->notices.held.head != NULL)
            notices_resume(link);
        next = link->next;
    }
}
