/* agent.c - far node agents: who is behind which link, how they come up, get lost and end. An agent
 * that is lost (somebody else answers at its address) is suspect, not dead: what it owes and what
 * is owed to it waits for it. Loop thread. */
#include "xfer/digest.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"

static struct xfer_agent *agent_new(struct nxl_xfer *xfer, const char *name)
{
    struct xfer_agent *agent = nxl_new0(sizeof(*agent));

    agent->xfer = xfer;
    (void)nxl_copy_text(agent->agent, sizeof(agent->agent), name);
    for (uint32_t i = 0; i < NXL_BACKENDS_MAX; i++)
        agent->backend_map[i] = -1;
    agent->next = xfer->agents;
    xfer->agents = agent;
    return agent;
}

struct xfer_agent *xfer_agent_of(struct nxl_xfer *xfer, struct nxl_link *link)
{
    struct xfer_agent *agent = nxl_link_user(link);
    const char *name = nxl_link_agent(link);

    if (agent != NULL)
        return agent;
    agent = name[0] != '\0' ? xfer_agent_find(xfer, name) : NULL;
    if (agent == NULL || agent->link != NULL)
        agent = agent_new(xfer, name);
    agent->link = link;
    nxl_link_set_user(link, agent);
    return agent;
}

struct xfer_agent *xfer_agent_find(struct nxl_xfer *xfer, const char *name)
{
    struct xfer_agent *agent = xfer->agents;

    while (agent != NULL && strcmp(agent->agent, name) != 0)
        agent = agent->next;
    return agent;
}

enum nxl_code xfer_agent_say(struct xfer_agent *agent, const struct nxl_message *message,
                             struct nxl_err *err)
{
    if (agent->link == NULL)
        return nxl_err_set(err, NXL_UNREACHABLE, 0, "where agent %s is now is not known",
                           agent->agent);
    return nxl_link_send(agent->link, message, err);
}

static void agent_free(struct xfer_agent *agent)
{
    struct nxl_xfer *xfer = agent->xfer;

    for (uint32_t i = 0; i < NXL_BACKENDS_MAX; i++) {
        xfer_far_forget_conn(agent, i);
        free((void *)agent->addresses[i].data);
    }
    xfer_fence_agent_gone(agent);
    while (agent->announcements != NULL) {
        struct xfer_announcement *a = agent->announcements;

        agent->announcements = a->next;
        free(a);
    }
    for (struct xfer_agent **at = &xfer->agents; *at != NULL; at = &(*at)->next) {
        if (*at == agent) {
            *at = agent->next;
            break;
        }
    }
    free(agent);
}

void xfer_agents_free(struct nxl_xfer *xfer)
{
    while (xfer->agents != NULL)
        agent_free(xfer->agents);
}

/* ---- up ----------------------------------------------------------------------------------- */

static void backends_take(struct xfer_agent *agent, struct nxl_link *link)
{
    struct nxl_xfer *xfer = agent->xfer;
    uint32_t count;
    const struct nxl_message_backend *backends = nxl_link_backends(link, &count);

    for (uint32_t k = 0; k < count && k < NXL_BACKENDS_MAX; k++) {
        struct nxl_instance *instance = nxl_hosts_find(xfer->hosts, backends[k].name);
        uint32_t index;
        void *copy;

        agent->backend_map[k] = -1;
        if (instance == NULL || (nxl_instance_caps(instance)->flags & NXL_CAP_REMOTE) == 0)
            continue;
        index = nxl_instance_index(instance);
        agent->backend_map[k] = (int32_t)index;
        if (agent->addresses[index].data != NULL)
            continue; /* the same agent incarnation: the same address */
        copy = nxl_new0(backends[k].address.size + 1);
        memcpy(copy, backends[k].address.data, backends[k].address.size);
        agent->addresses[index] = (struct nxl_view){copy, backends[k].address.size};
    }
}

/* Its peers are dead by the word of their own node, and nothing of theirs can move any more. */
static void agent_over(struct xfer_agent *agent, const char *why)
{
    struct nxl_xfer *xfer = agent->xfer;

    if (agent->agent[0] != '\0') {
        xfer_hints_of_agent_gone(xfer, agent->agent);
        xfer_far_agent_gone(agent, why);
    }
    xfer_subscriber_drop_agent(xfer, agent);
    agent_free(agent);
}

/* One agent serves a node: when another life of it comes up, the earlier one is over, wherever it
 * listened. */
static void earlier_lives_drop(struct xfer_agent *agent)
{
    static const char why[] = "another life of this node's agent came up";
    struct xfer_agent *other = agent->xfer->agents;

    while (other != NULL) {
        if (other == agent || other->node_name[0] == '\0' ||
            strcmp(other->node_name, agent->node_name) != 0 ||
            strcmp(other->agent, agent->agent) == 0) {
            other = other->next;
            continue;
        }
        if (other->link != NULL)
            nxl_link_drop(other->link, why);
        else
            agent_over(other, why);
        other = agent->xfer->agents; /* the list changed */
    }
}

static void on_up(void *arg, struct nxl_link *link)
{
    struct nxl_xfer *xfer = arg;
    struct xfer_agent *agent = xfer_agent_of(xfer, link);

    (void)nxl_copy_text(agent->agent, sizeof(agent->agent), nxl_link_agent(link));
    (void)nxl_copy_text(agent->node_name, sizeof(agent->node_name), nxl_link_node(link));
    backends_take(agent, link);
    earlier_lives_drop(agent);
    if (agent->lost) {
        agent->lost = 0;
        xfer_suspect(xfer, agent->agent, 0);
    }
    xfer_fence_resend(agent);
    xfer_announcements_send(agent);
    xfer_lookups_link_up(agent);
    xfer_digests_ask_again(agent);
    xfer_far_requery(agent);
    /* The first use should not pay for the wiring. */
    for (uint32_t i = 0; i < nxl_hosts_count(xfer->hosts); i++) {
        struct nxl_err err;

        if (agent->addresses[i].data != NULL)
            (void)xfer_agent_conn(agent, nxl_hosts_at(xfer->hosts, i), &err);
    }
}

/* Nothing is dead because of that, and the link says it in the log. */
static void on_down(void *arg, struct nxl_link *link, const char *why)
{
    (void)arg;
    (void)link;
    (void)why;
}

/* ---- gone --------------------------------------------------------------------------------- */

void xfer_subscriber_drop_agent(struct nxl_xfer *xfer, struct xfer_agent *agent)
{
    struct nxl_xfer_session *session, *next_session;

    HASH_ITER(hh, xfer->sessions, session, next_session)
    {
        struct xfer_peer *peer, *next;

        HASH_ITER(hh, session->peers, peer, next)
        {
            xfer_unsubscribe(peer, agent);
        }
    }
}

struct heir_scan {
    struct nxl_link *gone, *found;
};

static int heir_is(void *arg, struct nxl_link *link)
{
    struct heir_scan *scan = arg;

    if (link == scan->gone || nxl_link_agent(link)[0] == '\0' ||
        strcmp(nxl_link_address(link), nxl_link_address(scan->gone)) != 0)
        return 0;
    scan->found = link;
    return 1;
}

/* A link by address alone led to an agent that is linked already: what waited for it waits there.
 */
static int heir_takes(struct xfer_agent *agent, struct nxl_link *link)
{
    struct nxl_xfer *xfer = agent->xfer;
    struct heir_scan scan = {link, NULL};
    struct xfer_agent *heir;
    struct xfer_announcement **end;

    (void)nxl_links_each(xfer->links, heir_is, &scan);
    if (scan.found == NULL)
        return 0;
    heir = xfer_agent_of(xfer, scan.found);
    for (end = &heir->announcements; *end != NULL;)
        end = &(*end)->next;
    *end = NXL_TAKE(agent->announcements);
    xfer_lookups_move(agent, heir);
    if (nxl_link_up(heir->link)) {
        xfer_announcements_send(heir);
        xfer_lookups_link_up(heir);
    }
    return 1;
}

/* Gone for good, or only not to be found where it was? The links know the dead. */
static int agent_is_dead(const struct xfer_agent *agent)
{
    struct nxl_link *link;
    struct nxl_err err;

    return nxl_links_get(agent->xfer->links, "", agent->agent, &link, &err) ==
           NXL_REMOTE_DISCONNECT;
}

static void agent_lost(struct xfer_agent *agent)
{
    agent->lost = 1;
    agent->xfer->epoch++;                                /* kept plans may name its connections */
    xfer_hints_of_agent_gone(agent->xfer, agent->agent); /* they name the old address */
    xfer_suspect(agent->xfer, agent->agent, 1);
}

static void on_gone(void *arg, struct nxl_link *link, const char *why)
{
    struct xfer_agent *agent = nxl_link_user(link);

    (void)arg;
    if (agent == NULL)
        return;
    if (agent->agent[0] == '\0' && heir_takes(agent, link))
        why = "";
    agent->link = NULL;
    nxl_link_set_user(link, NULL);
    xfer_lookups_link_gone(agent, why);
    for (uint32_t i = 0; i < NXL_BACKENDS_MAX; i++)
        xfer_far_forget_conn(agent, i); /* while its peers still name it: their keys go with it */
    if (agent->agent[0] == '\0' || agent_is_dead(agent))
        agent_over(agent, why);
    else
        agent_lost(agent);
}

static void on_suspect(void *arg, struct nxl_link *link, int suspect)
{
    xfer_suspect(arg, nxl_link_agent(link), suspect);
}

const struct nxl_links_ops nxl_xfer_links_ops = {
    .on_up = on_up,
    .on_down = on_down,
    .on_gone = on_gone,
    .on_suspect = on_suspect,
    .on_message = xfer_on_message,
    .on_notice = xfer_on_notice,
    .on_notice_end = xfer_on_notice_end,
};
