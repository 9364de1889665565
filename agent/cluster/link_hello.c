/* link_hello.c - who is there: the handshake's checks, and which of two crossing connections stays.
 * The dialling side says HELLO first, the accepting one answers with its own or says BYE with the
 * reason. Called by link_conn.c. Loop thread. */
#include "cluster/link_internal.h"

#include "base/mem.h"
#include "cluster/identity.h"

#include <stdio.h>

static void fill_hello(const struct conn *conn, const struct nxl_link *link,
                       struct nxl_message *hello)
{
    const struct nxl_links *links = conn->links;

    *hello = (struct nxl_message){
        .type = NXL_MESSAGE_HELLO,
        .version_min = NXL_MESSAGE_VERSION_MIN,
        .version_max = NXL_MESSAGE_VERSION_MAX,
        .flags = links->trust == NULL ? LINK_HELLO_INSECURE : 0,
        .cluster = links->cluster,
        .node = links->node,
        .agent = links->agent,
        .address = links->address,
        .incarnation = link != NULL ? link->agent : "", /* whom sequence is said to */
        .sequence = link != NULL ? link->notices.seen : 0,
        .backend_count = links->backend_count,
    };
    for (uint32_t i = 0; i < links->backend_count; i++)
        hello->backends[i] = links->backends[i];
}

static enum nxl_code put_hello(struct conn *conn, const struct nxl_link *link, struct nxl_err *err)
{
    struct nxl_message hello;

    fill_hello(conn, link, &hello);
    return conn_put(conn, &hello, err);
}

enum nxl_code conn_send_hello(struct conn *conn, struct nxl_err *err)
{
    return put_hello(conn, conn->link, err);
}

/* Answers a refusal (an accepting side only) and ends the connection. */
static void refuse(struct conn *conn, enum nxl_code code, enum link_failure failure,
                   const char *why)
{
    const struct nxl_message bye = {.type = NXL_MESSAGE_BYE, .code = code, .text = why};
    struct nxl_err err;

    conn->corked = 0;
    if (!conn->outbound && conn_put(conn, &bye, &err) == NXL_OK)
        conn_flush(conn); /* what does not leave now never does; the far side sees the end anyway */
    conn_fail(conn, failure, "%s", why);
}

/* The versions stand first in a hello of any version, so they are read before anything else is. */
static int check_version(struct conn *conn, struct nxl_view body)
{
    struct nxl_reader reader = nxl_reader_of(body.data, body.size);
    char why[NXL_ERR_TEXT_SIZE];
    struct nxl_err err;
    uint16_t min, max;

    (void)nxl_reader_u16(&reader); /* the type */
    min = nxl_reader_u16(&reader);
    max = nxl_reader_u16(&reader);
    if (reader.bad || min > max) {
        conn_fail(conn, LINK_FAIL_MALFORMED,
                  "message HELLO: version range is cut off or upside down");
        return 0;
    }
    if (min <= NXL_MESSAGE_VERSION_MAX && max >= NXL_MESSAGE_VERSION_MIN)
        return 1;
    (void)snprintf(
        why, sizeof(why),
        "no common version: agent at %s speaks %u to %u, agent of node %s speaks %u to %u",
        conn->peer, min, max, conn->links->node, NXL_MESSAGE_VERSION_MIN, NXL_MESSAGE_VERSION_MAX);
    if (!conn->outbound)
        (void)put_hello(conn, NULL, &err); /* so that the far side sees both ranges too */
    refuse(conn, NXL_VERSION, LINK_FAIL_VERSION, why);
    return 0;
}

static int check_identity(struct conn *conn, const struct nxl_message *hello)
{
    const struct nxl_links *links = conn->links;
    char why[NXL_ERR_TEXT_SIZE];

    if (strcmp(hello->cluster, links->cluster) != 0) {
        (void)snprintf(why, sizeof(why),
                       "agent of cluster %s, and this agent belongs to cluster '%s'",
                       nxl_quote(hello->cluster), links->cluster);
        refuse(conn, NXL_NOT_ALLOWED, LINK_FAIL_CLUSTER, why);
        return 0;
    }
    if (links->trust != NULL && strcmp(hello->node, conn->cert_node) != 0) {
        (void)snprintf(why, sizeof(why), "hello says node %s and its certificate says '%s'",
                       nxl_quote(hello->node), conn->cert_node);
        refuse(conn, NXL_NOT_ALLOWED, LINK_FAIL_NODE, why);
        return 0;
    }
    if (!nxl_identity_is_label(hello->node, NXL_NODE_MAX) ||
        !nxl_identity_is_agent_of(hello->agent, hello->node) ||
        !nxl_identity_is_address(hello->address)) {
        (void)snprintf(
            why, sizeof(why),
            "hello names node %s, agent %s, address %s: that is not node, node/..., host:port",
            nxl_quote(hello->node), nxl_quote(hello->agent), nxl_quote(hello->address));
        refuse(conn, NXL_NOT_ALLOWED, LINK_FAIL_NODE, why);
        return 0;
    }
    if (links->trust == NULL && (hello->flags & LINK_HELLO_INSECURE) == 0) {
        refuse(conn, NXL_NOT_ALLOWED, LINK_FAIL_PLAINTEXT,
               "hello came in plaintext without consent (link.insecure)");
        return 0;
    }
    return 1;
}

/* Incarnations that cannot have a link with us. */
static int check_life(struct conn *conn, const struct nxl_message *hello)
{
    struct nxl_links *links = conn->links;
    char why[NXL_ERR_TEXT_SIZE];
    struct nxl_err err;

    if (strcmp(hello->agent, links->agent) == 0) {
        (void)snprintf(why, sizeof(why), "%s is an address of this agent itself",
                       conn->link != NULL ? conn->link->address : hello->address);
        if (conn->link == NULL) {
            (void)put_hello(conn, NULL, &err); /* so that our dialling end sees whom it reached */
            refuse(conn, NXL_INVALID_PARAM, LINK_FAIL_ENDED, why);
            return 0;
        }
        nxl_metric_add(links->metrics.failures[LINK_FAIL_ENDED], 1);
        link_end(conn->link, 0, NULL, why);
        return 0;
    }
    if (links_is_dead(links, hello->agent)) {
        (void)snprintf(why, sizeof(why), "agent incarnation %s has ended: it may not come again",
                       hello->agent);
        refuse(conn, NXL_STALE, LINK_FAIL_ENDED, why);
        return 0;
    }
    return 1;
}

/* A dead process's successor answers at its address: the old incarnation cannot be there any more.
 * One that is still up is left alone: its own connection will tell. */
static void end_predecessors(const struct conn *conn, const struct nxl_message *hello)
{
    struct nxl_links *links = conn->links;
    struct nxl_link *next;

    for (struct nxl_link *link = links->list; link != NULL; link = next) {
        next = link->next; /* stays readable, whatever a callback ends */
        if (link->over || link == conn->link || link->agent[0] == '\0' ||
            strcmp(link->agent, hello->agent) == 0 || strcmp(link->node, hello->node) != 0 ||
            strcmp(link->told, hello->address) != 0)
            continue;
        if (link->conn != NULL) {
            link_ping(link);
            continue;
        }
        {
            char why[NXL_ERR_TEXT_SIZE];

            (void)snprintf(why, sizeof(why), "agent %s answers at %s instead", hello->agent,
                           hello->address);
            link_end(link, 1, NULL, why);
        }
    }
}

/* We are dialling the very address that an agent unknown so far says it has, and it comes from
 * there: this is whom the dial asked for, so one link serves both. NULL if there is no such dial.
 */
static struct nxl_link *find_awaited(const struct conn *conn, const struct nxl_message *hello)
{
    for (struct nxl_link *link = conn->links->list; link != NULL; link = link->next) {
        if (link->agent[0] == '\0' && strcmp(link->address, hello->address) == 0 &&
            link_dial_leads_to(link, conn->fd))
            return link;
    }
    return NULL;
}

/* The link that an accepted or a dialled connection belongs to, or NULL if it was refused. */
static struct nxl_link *choose_link(struct conn *conn, const struct nxl_message *hello)
{
    struct nxl_links *links = conn->links;
    struct nxl_link *dialled = conn->link;
    struct nxl_link *link = nxl_links_find(links, hello->agent);
    char address[sizeof(dialled->address)];
    char why[NXL_ERR_TEXT_SIZE];

    if (link == dialled && link != NULL)
        return link;
    if (dialled == NULL && link == NULL) {
        link = find_awaited(conn, hello);
        if (link != NULL)
            links_name_link(link, hello->agent);
    }
    if (dialled == NULL) {
        if (link == NULL && links->count >= links->links_max) {
            (void)snprintf(why, sizeof(why), "this agent has %u links already (link.links_max)",
                           links->count);
            refuse(conn, NXL_LIMIT, LINK_FAIL_LIMIT, why);
            return NULL;
        }
        return link != NULL ? link : links_new_link(links, hello->address, hello->agent);
    }
    if (link == NULL && dialled->agent[0] == '\0') {
        links_name_link(dialled, hello->agent);
        return dialled;
    }
    /* The connection moves over from the link that dialled it, which is over. */
    (void)nxl_copy_text(address, sizeof(address), dialled->address); /* same size */
    dialled->trying = NULL;
    conn->link = NULL;
    if (link == NULL)
        link = links_new_link(links, address, hello->agent);
    if (dialled->conn !=
        NULL) { /* it came up the other way meanwhile: only the address was somebody else's */
        (void)nxl_copy_text(dialled->address, sizeof(dialled->address), dialled->told);
    } else if (dialled->agent[0] == '\0') {
        (void)nxl_copy_text(link->address, sizeof(link->address), address);
        (void)snprintf(why, sizeof(why), "the agent at %s is linked already as %s", address,
                       hello->agent);
        link_end(dialled, 0, link, why);
    } else {
        int same_node = strcmp(dialled->node, hello->node) == 0 ||
                        nxl_identity_is_agent_of(dialled->agent, hello->node);

        (void)snprintf(why, sizeof(why), "agent %s answers at %s instead", hello->agent, address);
        link_end(dialled, same_node, NULL, why);
    }
    return link->over ? NULL : link; /* on_gone may have dropped it */
}

/* Of two connections between the same two agents the one dialled by the smaller stays; of two that
 * the same side dialled, the later one: nobody dials while it has one. */
static int is_winner(const struct nxl_link *link, const struct conn *conn,
                     const struct nxl_message *hello)
{
    const struct nxl_links *links = conn->links;
    int we_are_smaller =
        nxl_identity_order(links->node, links->agent, hello->node, hello->agent) < 0;

    if (link->conn == NULL || link->conn->outbound == conn->outbound)
        return 1;
    return conn->outbound == we_are_smaller;
}

void conn_on_hello(struct conn *conn, struct nxl_view body)
{
    struct nxl_links *links = conn->links;
    struct nxl_link *link;
    struct nxl_message hello;
    struct nxl_err err;

    if (!check_version(conn, body))
        return;
    if (nxl_message_decode(links->decoder, body, &hello, &err) != NXL_OK) {
        conn_fail(conn, LINK_FAIL_MALFORMED, "%s", err.text);
        return;
    }
    if (!check_identity(conn, &hello) || !check_life(conn, &hello))
        return;
    end_predecessors(conn, &hello);
    if (conn->dead)
        return;
    link = choose_link(conn, &hello);
    if (link == NULL) {
        conn_close(conn); /* does nothing when the refusal did it */
        return;
    }
    if (!conn->outbound && put_hello(conn, link, &err) != NXL_OK) {
        conn_fail(conn, LINK_FAIL_MALFORMED, "%s", err.text);
        return;
    }
    if (!is_winner(link, conn, &hello)) {
        nxl_debug("link", "event=crossing agent=%s kept=%s", hello.agent,
                  link->conn->outbound ? "ours" : "theirs");
        if (link->trying == conn)
            link->trying = NULL;
        conn_refuse(conn, NXL_BUSY, "another connection between these agents stays");
        link_ping(link); /* should the one that stays be broken, this finds it out */
        return;
    }
    if (strcmp(hello.incarnation, links->agent) != 0)
        hello.sequence = 0; /* said to somebody else */
    link_attach(link, conn, &hello);
}
