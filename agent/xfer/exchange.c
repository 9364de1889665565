/* exchange.c - what linked agents ask and tell: peers, region tables and their changes, deaths.
 * Everything a far agent says is believed only about its own peers. Loop thread. */
#include "xfer/digest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "xfer/policy.h"

/* ---- telling ------------------------------------------------------------------------------ */

struct key_store { /* key bytes of one message */
    unsigned char bytes[NXL_BACKENDS_MAX][NXL_BACKEND_KEY_MAX];
};

/* Keys in the order of our HELLO backends, which is that of our instances with an address. */
static void region_describe(struct nxl_xfer *xfer, const struct nxl_catalog_region *region,
                            struct key_store *store, struct nxl_message_region *to)
{
    uint8_t hello_index = 0;

    *to = (struct nxl_message_region){.id = region->id,
                                      .addr = region->addr,
                                      .len = region->len,
                                      .kind = region->kind,
                                      .device = region->device};
    for (uint32_t i = 0; i < nxl_hosts_count(xfer->hosts); i++) {
        struct nxl_instance *instance = nxl_hosts_at(xfer->hosts, i);
        struct nxl_message_key *key = &to->keys[to->key_count];
        size_t size = 0;
        struct nxl_err err;

        if ((nxl_instance_caps(instance)->flags & NXL_CAP_REMOTE) == 0)
            continue;
        if (region->mems[i] != NULL &&
            nxl_instance_export(instance, region->mems[i], store->bytes[i], &size, &err) ==
                NXL_OK) {
            key->backend = hello_index;
            key->key = (struct nxl_view){store->bytes[i], size};
            to->key_count++;
        }
        hello_index++;
    }
}

#define REGIONS_A_FRAME 256u

static void regions_send(struct xfer_agent *agent, struct xfer_peer *peer,
                         struct nxl_catalog_region *const *regions, uint32_t count,
                         uint32_t first_flags, uint32_t last_flags)
{
    struct nxl_xfer *xfer = peer->session->xfer;
    NXL_CLEANUP(nxl_freep)
    struct nxl_message_region *described = nxl_new0_array(REGIONS_A_FRAME, sizeof(*described));
    NXL_CLEANUP(nxl_freep)
    struct key_store *store = nxl_new0_array(REGIONS_A_FRAME, sizeof(*store));
    uint32_t at = 0;
    struct nxl_err err;

    do {
        uint32_t part = count - at < REGIONS_A_FRAME ? count - at : REGIONS_A_FRAME;
        struct nxl_message message = {.type = NXL_MESSAGE_REGIONS,
                                      .incarnation = peer->peer->incarnation,
                                      .revision = peer->peer->revision,
                                      .regions = described,
                                      .region_count = part};

        for (uint32_t i = 0; i < part; i++)
            region_describe(xfer, regions[at + i], &store[i], &described[i]);
        message.flags = (at == 0 ? first_flags : 0) | (at + part == count ? last_flags : 0);
        message.more = at + part < count;
        at += part;
        if (xfer_agent_say(agent, &message, &err) != NXL_OK) {
            nxl_debug(
                "exchange",
                "event=\"regions not sent, asked for again after a reconnect\" agent=%s why=%s",
                nxl_quote(agent->agent), nxl_quote(err.text));
            return;
        }
    } while (at < count);
}

/* Only the kinds that policy lets that agent know of. */
static void regions_send_some(struct xfer_peer *peer, const struct xfer_subscriber *to,
                              struct nxl_catalog_region *const *regions, uint32_t count,
                              uint32_t first_flags, uint32_t last_flags)
{
    NXL_CLEANUP(nxl_freep)
    struct nxl_catalog_region **some =
        nxl_new0_array(count + 1, sizeof(struct nxl_catalog_region *));
    uint32_t kept = 0;

    for (uint32_t i = 0; i < count; i++) {
        if (to->kinds & (1u << regions[i]->kind))
            some[kept++] = regions[i];
    }
    if (kept > 0 || last_flags != 0)
        regions_send(to->agent, peer, some, kept, first_flags, last_flags);
}

void xfer_tell_region_added(struct xfer_peer *peer, struct nxl_catalog_region *const *regions,
                            uint32_t count)
{
    for (struct xfer_subscriber *s = peer->subscribers; s != NULL; s = s->next)
        regions_send_some(peer, s, regions, count, 0, 0);
}

/* A frame holds so many ids; each part is confirmed, and said again, by itself. */
void xfer_tell_agent_regions_gone(struct xfer_peer *peer, struct xfer_agent *agent,
                                  const uint64_t *ids, uint32_t count, struct xfer_fence *fence)
{
    for (uint32_t at = 0; at < count; at += NXL_MESSAGE_REGIONS_MAX) {
        uint32_t part = count - at < NXL_MESSAGE_REGIONS_MAX ? count - at : NXL_MESSAGE_REGIONS_MAX;
        uint64_t sequence = ++peer->session->xfer->next_sequence;
        struct nxl_message message = {.type = NXL_MESSAGE_REGION_GONE,
                                      .incarnation = peer->peer->incarnation,
                                      .revision = sequence,
                                      .sequence = sequence,
                                      .ids = ids + at,
                                      .id_count = part};
        struct nxl_err err;

        xfer_fence_await(fence, agent, sequence, 0, peer->peer->incarnation, ids + at, part);
        NXL_IGNORE(xfer_agent_say(agent, &message, &err)); /* said again after a reconnect */
    }
}

void xfer_tell_regions_gone(struct xfer_peer *peer, const uint64_t *ids, uint32_t count,
                            struct xfer_fence *fence)
{
    for (struct xfer_subscriber *s = peer->subscribers; s != NULL; s = s->next)
        xfer_tell_agent_regions_gone(peer, s->agent, ids, count, fence);
}

static int subscribed(const struct xfer_peer *peer, const struct xfer_agent *agent)
{
    const struct xfer_subscriber *s = peer->subscribers;

    while (s != NULL && s->agent != agent)
        s = s->next;
    return s != NULL;
}

void xfer_tell_dead(struct nxl_xfer *xfer, struct xfer_peer *peer, const char *reason,
                    struct xfer_fence *fence)
{
    for (struct xfer_agent *agent = xfer->agents; agent != NULL; agent = agent->next) {
        struct nxl_message message = {.type = NXL_MESSAGE_FACT,
                                      .incarnation = peer->peer->incarnation,
                                      .life = NXL_LIFE_DEAD,
                                      .text = reason,
                                      .sequence = ++xfer->next_sequence};
        struct nxl_err err;

        if (subscribed(peer, agent))
            xfer_fence_await(fence, agent, message.sequence, 1, peer->peer->incarnation, NULL, 0);
        NXL_IGNORE(xfer_agent_say(agent, &message, &err));
    }
    while (peer->subscribers != NULL) {
        struct xfer_subscriber *s = peer->subscribers;

        peer->subscribers = s->next;
        free(s);
    }
}

enum nxl_code xfer_announce_later(struct nxl_xfer *xfer, struct xfer_peer *peer,
                                  struct xfer_agent *agent, enum nxl_code what)
{
    struct xfer_announcement *a = agent->announcements;

    (void)xfer;
    while (a != NULL && strcmp(a->incarnation, peer->peer->incarnation) != 0)
        a = a->next;
    if (a != NULL) { /* the last word counts; asking again and again grows nothing */
        a->code = what;
        return NXL_OK;
    }
    a = nxl_new0(sizeof(*a));
    a->code = what;
    (void)nxl_copy_text(a->incarnation, sizeof(a->incarnation), peer->peer->incarnation);
    a->next = agent->announcements;
    agent->announcements = a;
    return NXL_OK;
}

void xfer_announcements_send(struct xfer_agent *agent)
{
    while (agent->announcements != NULL) {
        struct xfer_announcement *a = agent->announcements;
        struct nxl_catalog_peer *peer =
            nxl_catalog_by_incarnation(agent->xfer->catalog, a->incarnation);
        struct nxl_message answer = {.type = NXL_MESSAGE_ANSWER, .code = a->code};
        struct nxl_err err;

        agent->announcements = a->next;
        if (peer != NULL && peer->life != NXL_LIFE_DEAD) {
            answer.ns = peer->ns;
            answer.name = peer->name;
            answer.incarnation = peer->incarnation;
            answer.revision = peer->revision;
            NXL_IGNORE(xfer_agent_say(agent, &answer, &err));
        }
        free(a);
    }
}

/* ---- answering ---------------------------------------------------------------------------- */

static int region_collect(void *arg, struct nxl_catalog_region *region)
{
    struct nxl_catalog_region ***at = arg;

    *(*at)++ = region;
    return 0;
}

static void subscribe(struct xfer_agent *agent, struct xfer_peer *peer, unsigned kinds)
{
    uint32_t count = nxl_region_table_count(peer->peer->regions);
    NXL_CLEANUP(nxl_freep)
    struct nxl_catalog_region **all =
        nxl_new0_array(count + 1, sizeof(struct nxl_catalog_region *));
    struct nxl_catalog_region **at = all;
    struct xfer_subscriber *s = peer->subscribers;

    while (s != NULL && s->agent != agent)
        s = s->next;
    if (s == NULL) {
        s = nxl_new0(sizeof(*s));
        s->agent = agent;
        s->next = peer->subscribers;
        peer->subscribers = s;
    }
    s->kinds |= kinds; /* of all its clients that asked */
    nxl_region_table_each(peer->peer->regions, region_collect, &at);
    regions_send_some(peer, s, all, count, 1, 2);
}

void xfer_unsubscribe(struct xfer_peer *peer, const struct xfer_agent *agent)
{
    for (struct xfer_subscriber **at = &peer->subscribers; *at != NULL; at = &(*at)->next) {
        struct xfer_subscriber *s = *at;

        if (s->agent != agent)
            continue;
        *at = s->next;
        free(s);
        return;
    }
}

static struct xfer_peer *own_peer(struct nxl_xfer *xfer, const struct nxl_message *message)
{
    struct nxl_catalog_peer *peer =
        message->incarnation[0] != '\0'
            ? nxl_catalog_by_incarnation(xfer->catalog, message->incarnation)
            : nxl_catalog_current(xfer->catalog, message->ns, message->name);

    return peer != NULL && peer->local && peer->life != NXL_LIFE_DEAD ? peer->owner : NULL;
}

static void on_query(struct xfer_agent *agent, const struct nxl_message *query)
{
    struct nxl_xfer *xfer = agent->xfer;
    struct xfer_peer *peer = own_peer(xfer, query);
    const struct xfer_end from = {query->from_ns, query->from_incarnation};
    struct nxl_message answer = {.type = NXL_MESSAGE_ANSWER,
                                 .request = query->request,
                                 .ns = query->ns,
                                 .name = query->name,
                                 .incarnation = query->incarnation};
    struct nxl_err err = {0}, said;

    if (peer == NULL)
        answer.code = nxl_err_set(&err, NXL_NOT_FOUND, 0, "no such peer lives here");
    else
        answer.code =
            xfer_policy_asked(xfer, agent, from, xfer_end_of(peer->peer), 0, XFER_ANY_KIND, &err);
    if (answer.code == NXL_OK) {
        answer.ns = peer->peer->ns;
        answer.name = peer->peer->name;
        answer.incarnation = peer->peer->incarnation;
        answer.revision = peer->peer->revision;
    }
    err.text[255] = '\0'; /* a frame's text is no longer */
    answer.text = err.text;
    if (xfer_agent_say(agent, &answer, &said) == NXL_OK && answer.code == NXL_OK &&
        (query->flags & 1))
        subscribe(agent, peer, xfer_policy_kinds(xfer, from, xfer_end_of(peer->peer)));
}

/* Refused now, and maybe not later: policy.c asks again. */
static void far_answered(struct xfer_agent *agent, const struct nxl_message *answer)
{
    struct nxl_catalog_peer *peer =
        answer->incarnation[0] != '\0'
            ? nxl_catalog_by_incarnation(agent->xfer->catalog, answer->incarnation)
            : NULL;
    struct xfer_far *far = peer != NULL && !peer->local ? peer->owner : NULL;

    if (far != NULL && far->agent == agent)
        far->denied = answer->code == NXL_NOT_ALLOWED || answer->code == NXL_BUSY;
}

static void on_answer(struct xfer_agent *agent, const struct nxl_message *answer)
{
    if (answer->request == 0) {
        xfer_hint_put(agent->xfer, agent, answer);
        return;
    }
    /* The agent of that incarnation does not know it any more: it is over, whatever was missed. */
    if (answer->code == NXL_NOT_FOUND && answer->incarnation[0] != '\0') {
        struct nxl_catalog_peer *peer =
            nxl_catalog_by_incarnation(agent->xfer->catalog, answer->incarnation);

        struct xfer_far *far = peer != NULL && !peer->local ? peer->owner : NULL;

        /* What nobody loaded is forgotten anyway, and must not fill the memory of the dead. */
        if (far != NULL && far->agent == agent && far->loaders > 0)
            (void)nxl_catalog_set_life(agent->xfer->catalog, answer->incarnation, NXL_LIFE_DEAD,
                                       "its agent does not know it any more");
    }
    far_answered(agent, answer);
    xfer_lookups_answer(agent, answer);
}

/* Only the agent of the node where an incarnation lives may say that it died; of our own node
 * nobody but we. */
static int may_speak_of(const struct xfer_agent *agent, const char *prefix)
{
    const char *node = agent->node_name;
    struct nxl_catalog_peer *peer = nxl_catalog_by_incarnation(agent->xfer->catalog, prefix);

    if (peer != NULL)
        return !peer->local && strcmp(peer->agent, agent->agent) == 0;
    if (xfer_policy_is_on(agent->xfer, prefix, node) && strcmp(node, agent->xfer->node) != 0)
        return 1;
    return node[0] != '\0' && strcmp(node, agent->xfer->node) != 0 &&
           nxl_incarnation_covers(node, prefix);
}

static int is_unknown(const struct nxl_xfer *xfer, const char *prefix)
{
    return nxl_catalog_by_incarnation(xfer->catalog, prefix) == NULL;
}

static void on_fact(struct xfer_agent *agent, const struct nxl_message *fact)
{
    struct nxl_xfer *xfer = agent->xfer;
    int right = nxl_incarnation_valid(fact->incarnation) && fact->life <= NXL_LIFE_DEAD;

    if (right && !may_speak_of(agent, fact->incarnation) && is_unknown(xfer, fact->incarnation)) {
        /* Not to be believed, but nothing here touches it either: that much can be confirmed. */
        xfer_debt_paid(xfer_debt_open(agent, fact->sequence));
        return;
    }
    if (!right || !may_speak_of(agent, fact->incarnation)) {
        nxl_warn("life",
                 "event=\"fact refused\" why=\"not that agent's peer\" agent=%s incarnation=%s",
                 nxl_quote(agent->agent), nxl_quote(fact->incarnation));
        xfer_count_error(xfer, NXL_NOT_ALLOWED);
        return;
    }
    xfer->debt = xfer_debt_open(agent, fact->sequence);
    (void)nxl_catalog_set_life(xfer->catalog, fact->incarnation, (enum nxl_life)fact->life,
                               fact->text);
    xfer_debt_paid(NXL_TAKE(xfer->debt));
}

void xfer_on_message(void *arg, struct nxl_link *link, const struct nxl_message *message)
{
    struct xfer_agent *agent = xfer_agent_of(arg, link);

    switch (message->type) {
    case NXL_MESSAGE_QUERY:
        on_query(agent, message);
        break;
    case NXL_MESSAGE_ANSWER:
        on_answer(agent, message);
        break;
    case NXL_MESSAGE_REGIONS:
        xfer_far_regions(agent, message);
        break;
    case NXL_MESSAGE_REGION_GONE:
        xfer_far_region_gone(agent, message);
        break;
    case NXL_MESSAGE_FACT:
        on_fact(agent, message);
        break;
    case NXL_MESSAGE_FACT_ACK:
        xfer_fence_confirmed(agent, message->sequence);
        break;
    case NXL_MESSAGE_DIGEST:
        xfer_digest_asked(agent, own_peer(arg, message), message);
        break;
    case NXL_MESSAGE_DIGEST_ANSWER:
        xfer_digest_answered(agent, message);
        break;
    case NXL_MESSAGE_UNSUBSCRIBE: {
        struct xfer_peer *peer = own_peer(arg, message);

        if (peer != NULL)
            xfer_unsubscribe(peer, agent);
        break;
    }
    default:
        break; /* a later minor version's; the link keeps its own types */
    }
}
