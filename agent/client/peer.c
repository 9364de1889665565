/* peer.c - the application's own peers: open, close, and their second life at a new agent. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/client.h"

enum nxl_code nxl_peer_usable(struct nxl_peer *peer, struct nxl_err *err)
{
    if (!peer)
        return nxl_err_set(err, NXL_INVALID_PARAM, 0, "peer is NULL");
    if (nxl_client_forked(peer->client, err))
        return NXL_NOT_ALLOWED;
    if (peer->closed)
        return nxl_err_set(err, NXL_INVALID_PARAM, 0, "peer '%s' is closed", peer->name);
    return NXL_OK;
}

static void list_remove(struct nxl_peer **list, struct nxl_peer *peer)
{
    while (*list && *list != peer)
        list = &(*list)->next;
    if (*list)
        *list = peer->next;
}

void nxl_peer_unref(struct nxl_peer *peer)
{
    struct nxl_client *client = peer->client;

    if (--peer->refs > 0)
        return;
    list_remove(&client->event.peers, peer); /* only when the whole client closes */
    list_remove(&client->objects.closed, peer);
    nxl_event_clear(peer);
    nxl_remote_clear(peer);
    nxl_memory_clear(peer);
    while (peer->incarnations) {
        struct nxl_text *text = peer->incarnations;

        peer->incarnations = text->next;
        free(text);
    }
    free(peer->lookup);
    free(peer);
}

/* Tells the agent about the peer and takes its id and incarnation. */
static enum nxl_code peer_present(struct nxl_peer *peer, struct nxl_session *session,
                                  struct nxl_err *err)
{
    struct nxl_call *call = nxl_call_new(session, NXL_FRAME_PEER_OPEN);
    struct nxl_text *text = calloc(1, sizeof(*text));
    enum nxl_code code;

    if (!call || !text) {
        nxl_call_free(session, call);
        free(text);
        return nxl_err_set(err, NXL_LIMIT, ENOMEM, "open peer '%s'", peer->name);
    }
    strcpy(call->frame.name, peer->name);
    code = nxl_call_run(session, call, NULL, 0, nxl_client_timeout(peer->client), err);
    if (code == NXL_OK) {
        memcpy(text->text, call->frame.incarnation, sizeof(text->text));
        text->next = peer->incarnations;
        peer->incarnations = text;
        pthread_mutex_lock(&peer->client->event.lock);
        peer->id = call->frame.peer;
        peer->session = session;
        pthread_mutex_unlock(&peer->client->event.lock);
    } else {
        nxl_err_wrap(err, code, "open peer '%s'", peer->name);
        free(text);
    }
    nxl_call_free(session, call);
    return code;
}

/* The record went with the agent. If this fails, others do not find the peer by name until the
 * application publishes again; nothing else of the reconnect depends on it. */
static void publish_again(struct nxl_peer *peer, struct nxl_session *session)
{
    struct nxl_call *call = peer->published ? nxl_call_new(session, NXL_FRAME_SEND) : NULL;
    struct nxl_err err;

    if (!call)
        return;
    call->frame.peer = peer->id;
    NXL_IGNORE(nxl_call_run(session, call, NULL, 0, nxl_client_timeout(peer->client), &err));
    nxl_call_free(session, call);
}

enum nxl_code nxl_peer_revive(struct nxl_peer *peer, struct nxl_session *session,
                              struct nxl_err *err)
{
    enum nxl_code code = peer_present(peer, session, err);

    if (code != NXL_OK)
        return code;
    pthread_mutex_lock(&peer->client->objects.lock);
    for (struct nxl_remote *remote = peer->remotes; remote; remote = remote->next)
        atomic_store(&remote->stale, 1);
    pthread_mutex_unlock(&peer->client->objects.lock);
    nxl_memory_revive(peer, session);
    publish_again(peer, session);
    return NXL_OK;
}

enum nxl_code nxl_peer_open(struct nxl_client *client, const char *name, struct nxl_peer **ret,
                            struct nxl_err *err)
{
    struct nxl_session *session;
    struct nxl_peer *peer;
    enum nxl_code code;

    if (!name || !nxl_name_valid(name))
        return nxl_err_set(
            err, NXL_INVALID_PARAM, 0,
            "peer name '%.64s' is not 1 to %d printable ASCII characters without '/' "
            "and space",
            name ? name : "(NULL)", NXL_NAME_MAX);
    code = nxl_client_enter(client, &session, err);
    if (code != NXL_OK)
        return nxl_err_wrap(err, code, "open peer '%s'", name);
    peer = calloc(1, sizeof(*peer));
    if (!peer) {
        nxl_client_leave(client);
        return nxl_err_set(err, NXL_LIMIT, ENOMEM, "open peer '%s'", name);
    }
    peer->client = client;
    peer->refs = 1;
    strcpy(peer->name, name);
    code = peer_present(peer, session, err);
    if (code == NXL_OK) {
        pthread_mutex_lock(&client->event.lock);
        peer->next = client->event.peers;
        client->event.peers = peer;
        pthread_mutex_unlock(&client->event.lock);
        *ret = peer;
    } else {
        free(peer);
    }
    nxl_client_leave(client);
    return code;
}

/* Takes the peer out of what the agent and the events know. work held. */
static void peer_detach(struct nxl_peer *peer)
{
    struct nxl_client *client = peer->client;

    pthread_mutex_lock(&client->objects.lock);
    pthread_mutex_lock(&client->event.lock);
    list_remove(&client->event.peers, peer);
    nxl_event_clear(peer);
    pthread_mutex_unlock(&client->event.lock);
    peer->closed = 1;
    nxl_memory_clear(peer);
    nxl_remote_clear(peer);
    peer->next = client->objects.closed;
    client->objects.closed = peer;
    nxl_peer_unref(peer);
    pthread_mutex_unlock(&client->objects.lock);
}

enum nxl_code nxl_peer_close(struct nxl_peer *peer, struct nxl_err *err)
{
    struct nxl_client *client;
    struct nxl_session *session;
    enum nxl_code code = nxl_peer_usable(peer, err);

    if (code != NXL_OK)
        return code;
    client = peer->client;
    pthread_mutex_lock(&client->work.lock);
    session = atomic_load(&client->session);
    /* Without that session the incarnation has ended anyway: no reconnect just to say so. */
    if (peer->session == session && !atomic_load(&session->gone)) {
        struct nxl_call *call = nxl_call_new(session, NXL_FRAME_PEER_CLOSE);

        if (call) {
            call->frame.peer = peer->id;
            code = nxl_call_run(session, call, NULL, 0, nxl_client_timeout(client), err);
            nxl_call_free(session, call);
        }
        if (code == NXL_NO_AGENT)
            code = NXL_OK;
        if (code != NXL_OK)
            nxl_err_wrap(err, code, "close peer '%s'", peer->name);
    }
    peer_detach(peer);
    pthread_mutex_unlock(&client->work.lock);
    return code;
}

const char *nxl_peer_name(const struct nxl_peer *peer)
{
    return peer->name;
}

const char *nxl_peer_incarnation(const struct nxl_peer *peer)
{
    return peer->incarnations->text;
}
