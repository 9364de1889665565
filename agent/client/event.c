/* event.c - notices and events: from the ring into one queue per peer, and from there to the
 * application. Any thread. Also nxl_client_arm(), which must know what the application has seen. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/client.h"

/* What peers may have queued in this process before records are left in the ring, in rings. */
#define QUEUE_RINGS 16u

static const char *node_text(struct nxl_event_node *node, size_t *at, struct nxl_view view)
{
    char *to = node->data + *at;

    if (view.size > 0)
        memcpy(to, view.data, view.size);
    to[view.size] = '\0';
    *at += view.size + 1;
    return to;
}

void nxl_event_push(struct nxl_peer *peer, const struct nxl_ring_event *event)
{
    struct nxl_client *client = peer->client;
    size_t size = event->name.size + event->incarnation.size + event->payload.size + 16;
    struct nxl_event_node *node = malloc(sizeof(*node) + size);
    size_t at;

    if (!node)
        return;
    node->next = NULL;
    node->size = sizeof(*node) + size;
    /* The payload first: it keeps the alignment of the data. */
    at = 0;
    node->event.payload = node_text(node, &at, event->payload);
    node->event.size = event->payload.size;
    node->event.name = node_text(node, &at, event->name);
    node->event.incarnation = node_text(node, &at, event->incarnation);
    node->event.kind = event->kind;
    node->event.code = event->code;
    node->event.transfer = event->transfer;
    node->event.at_ns = event->at_ns;
    if (peer->queue.last)
        peer->queue.last->next = node;
    else
        peer->queue.first = node;
    peer->queue.last = node;
    client->event.queued_bytes += node->size;
    atomic_fetch_add(&peer->queued, 1);
    atomic_fetch_add(&client->queued, 1);
    atomic_fetch_add(&client->pushed, 1);
}

void nxl_event_drain(struct nxl_client *client, struct nxl_session *session)
{
    struct nxl_ring_event event;

    while (client->event.queued_bytes < QUEUE_RINGS * session->ring.notice_bytes &&
           nxl_ring_notice_peek(&session->ring, &event) == NXL_OK) {
        struct nxl_peer *peer = client->event.peers;

        while (peer && (peer->session != session || peer->id != event.peer))
            peer = peer->next;
        if (peer)
            nxl_event_push(peer, &event);
        nxl_ring_notice_done(&session->ring);
    }
}

void nxl_event_clear(struct nxl_peer *peer)
{
    struct nxl_client *client = peer->client;

    free(peer->queue.lent);
    peer->queue.lent = NULL;
    while (peer->queue.first) {
        struct nxl_event_node *node = peer->queue.first;

        peer->queue.first = node->next;
        client->event.queued_bytes -= node->size;
        atomic_fetch_sub(&client->queued, 1);
        free(node);
    }
    peer->queue.last = NULL;
    atomic_store(&peer->queued, 0);
}

static enum nxl_code take_next(struct nxl_peer *peer, struct nxl_event *ret)
{
    struct nxl_client *client = peer->client;
    struct nxl_event_node *node;

    nxl_event_drain(client, atomic_load(&client->session));
    free(peer->queue.lent);
    peer->queue.lent = NULL;
    node = peer->queue.first;
    if (!node)
        return NXL_AGAIN;
    peer->queue.first = node->next;
    if (!node->next)
        peer->queue.last = NULL;
    client->event.queued_bytes -= node->size;
    atomic_fetch_sub(&peer->queued, 1);
    atomic_fetch_sub(&client->queued, 1);
    peer->queue.lent = node;
    *ret = node->event;
    return NXL_OK;
}

enum nxl_code nxl_peer_next(struct nxl_peer *peer, struct nxl_event *ret)
{
    struct nxl_client *client;
    struct nxl_session *session;
    enum nxl_code code;

    if (!peer || !ret)
        return NXL_INVALID_PARAM;
    client = peer->client;
    if (nxl_client_forked(client, NULL))
        return NXL_NOT_ALLOWED;
    session = atomic_load_explicit(&client->session, memory_order_acquire);
    if (atomic_load_explicit(&peer->queued, memory_order_acquire) == 0 &&
        !nxl_ring_notice_pending(&session->ring)) {
        nxl_session_glance(session);
        return NXL_AGAIN;
    }
    pthread_mutex_lock(&client->event.lock);
    code = take_next(peer, ret);
    pthread_mutex_unlock(&client->event.lock);
    return code;
}

int nxl_client_pending(const struct nxl_client *client)
{
    struct nxl_session *session;

    if (!client || nxl_client_forked(client, NULL))
        return 0;
    session = atomic_load_explicit(&client->session, memory_order_acquire);
    if (atomic_load_explicit(&client->queued, memory_order_acquire) > 0 ||
        nxl_ring_notice_pending(&session->ring))
        return 1;
    nxl_session_glance(session);
    return 0;
}

/* 1 if something came since the last look; remembers what is there now. event.lock held. */
static int news(struct nxl_client *client, struct nxl_session *session)
{
    uint64_t ended = atomic_load(&session->ring.header->ended);
    uint64_t head = atomic_load(&session->ring.header->notice_head);
    uint64_t pushed = atomic_load(&client->pushed);
    int found = ended != client->event.seen_ended || head != client->event.seen_head ||
                pushed != client->event.seen_pushed;

    client->event.seen_ended = ended;
    client->event.seen_head = head;
    client->event.seen_pushed = pushed;
    return found;
}

enum nxl_code nxl_client_arm(struct nxl_client *client)
{
    struct nxl_session *session;
    uint64_t count = 0, one = 1;
    int found, ended = 0;

    if (!client)
        return NXL_INVALID_PARAM;
    if (nxl_client_forked(client, NULL))
        return NXL_NOT_ALLOWED;
    pthread_mutex_lock(&client->event.lock);
    session = atomic_load(&client->session);
    if (read(session->wake, &count, sizeof(count)) > 0) {
        /* A sleeping thread of ours may have been about to see what was just taken away. */
        if (atomic_load(&session->sleeping))
            (void)!write(session->nudge, &one, sizeof(one));
    } else {
        /* Whoever arms and sleeps in turns finds the socket's end in its poll loop again and again,
         * and here once it is time. */
        ended = !atomic_load(&session->gone) && nxl_session_probe_due(session) &&
                nxl_session_probe(session);
    }
    atomic_store(&session->ring.header->client_parked, 1);
    found = news(client, session);
    pthread_mutex_unlock(&client->event.lock);
    if (ended) {
        nxl_session_lost(session); /* pushes an event, so the next look finds it */
        return NXL_AGAIN;
    }
    return found ? NXL_AGAIN : NXL_OK;
}
