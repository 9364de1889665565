/* remote.c - other peers: metadata out and in, handles of incarnations. Calls that ask somebody far
 * away give the work lock up while they wait, so that one slow peer holds nobody else up. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/client.h"

enum nxl_code nxl_remote_usable(const struct nxl_remote *remote, const struct nxl_peer *peer,
                                const struct nxl_session *session, struct nxl_err *err)
{
    if (!remote)
        return nxl_err_set(err, NXL_INVALID_PARAM, 0, "remote is NULL");
    if (remote->peer != peer)
        return nxl_err_set(err, NXL_INVALID_PARAM, 0,
                           "remote '%s' was loaded by another peer than '%s'", remote->name,
                           peer->name);
    if (atomic_load(&remote->stale) || remote->session != session)
        return nxl_err_set(err, NXL_STALE, 0,
                           "remote '%s' is incarnation '%s', which was replaced or came from an "
                           "earlier session: load or fetch it again",
                           remote->name, remote->incarnation);
    return NXL_OK;
}

void nxl_remote_unref(struct nxl_remote *remote)
{
    if (remote && --remote->refs == 0)
        free(remote);
}

void nxl_remote_clear(struct nxl_peer *peer)
{
    while (peer->remotes) {
        struct nxl_remote *remote = peer->remotes;

        peer->remotes = remote->next;
        atomic_store(&remote->stale, 1);
        nxl_remote_unref(remote);
    }
}

/* The handle for what the agent answered: the same one for the same incarnation. work held. */
static enum nxl_code remote_intern(struct nxl_peer *peer, struct nxl_session *session,
                                   const struct nxl_frame *frame, struct nxl_remote **ret,
                                   struct nxl_err *err)
{
    struct nxl_remote *remote;

    for (remote = peer->remotes; remote; remote = remote->next) {
        if (atomic_load(&remote->stale) || remote->session != session ||
            strcmp(remote->incarnation, frame->incarnation) != 0)
            continue;
        if (remote->id == frame->remote) {
            *ret = remote;
            return NXL_OK;
        }
    }
    remote = calloc(1, sizeof(*remote));
    if (!remote)
        return nxl_err_set(err, NXL_LIMIT, ENOMEM, "load remote '%s'", frame->name);
    remote->peer = peer;
    remote->session = session;
    remote->id = frame->remote;
    remote->refs = 1;
    memcpy(remote->name, frame->name, sizeof(remote->name));
    memcpy(remote->incarnation, frame->incarnation, sizeof(remote->incarnation));
    pthread_mutex_lock(&peer->client->objects.lock);
    for (struct nxl_remote *old = peer->remotes; old; old = old->next)
        if (strcmp(old->name, remote->name) == 0)
            atomic_store(&old->stale, 1);
    remote->next = peer->remotes;
    peer->remotes = remote;
    pthread_mutex_unlock(&peer->client->objects.lock);
    *ret = remote;
    return NXL_OK;
}

/* ---- calls ------------------------------------------------------------------------------ */

/* One call on behalf of a peer, between begin and end. */
struct errand {
    struct nxl_peer *peer;
    struct nxl_session *session;
    struct nxl_call *call;
    uint32_t peer_id;
};

static enum nxl_code errand_begin(struct errand *errand, struct nxl_peer *peer, uint16_t type,
                                  struct nxl_err *err)
{
    enum nxl_code code = nxl_peer_usable(peer, err);

    if (code != NXL_OK)
        return code;
    errand->peer = peer;
    code = nxl_client_enter(peer->client, &errand->session, err);
    if (code != NXL_OK)
        return code;
    errand->call = nxl_call_new(errand->session, type);
    if (!errand->call) {
        nxl_client_leave(peer->client);
        return nxl_err_set(err, NXL_LIMIT, ENOMEM, "call the agent");
    }
    nxl_session_ref(errand->session);
    errand->call->frame.peer = peer->id;
    return NXL_OK;
}

/* Gives the work lock up, asks, takes it again. NXL_NO_AGENT if the session changed meanwhile. */
static enum nxl_code errand_run(struct errand *errand, uint64_t more_ms, struct nxl_err *err)
{
    struct nxl_client *client = errand->peer->client;
    enum nxl_code code;

    nxl_client_leave(client);
    code = nxl_call_run(errand->session, errand->call, NULL, 0,
                        nxl_client_timeout(client) + more_ms, err);
    pthread_mutex_lock(&client->work.lock);
    if (code == NXL_OK && atomic_load(&client->session) != errand->session)
        code = nxl_err_set(err, NXL_NO_AGENT, 0, "the agent restarted during the call");
    return code;
}

static void errand_end(struct errand *errand)
{
    struct nxl_client *client = errand->peer->client;

    nxl_call_free(errand->session, errand->call);
    nxl_session_unref(errand->session);
    nxl_client_leave(client);
}

/* Runs and ends an errand whose answer carries nothing. */
static enum nxl_code errand_finish(struct errand *errand, struct nxl_err *err)
{
    enum nxl_code code = errand_run(errand, 0, err);

    errand_end(errand);
    return code;
}

static enum nxl_code text_fits(char *to, size_t room, const char *text, const char *what,
                               struct nxl_err *err)
{
    size_t size = text ? strlen(text) : 0;

    if (size >= room)
        return nxl_err_set(err, NXL_INVALID_PARAM, 0, "%s '%.64s...' is longer than %zu bytes",
                           what, text, room - 1);
    if (text)
        memcpy(to, text, size + 1);
    return NXL_OK;
}

static enum nxl_code frame_regs(struct nxl_frame *frame, const struct nxl_peer *peer,
                                struct nxl_memreg *const *regs, uint32_t count, struct nxl_err *err)
{
    if (count > NXL_FRAME_REGIONS_MAX)
        return nxl_err_set(err, NXL_LIMIT, 0, "%u regions named, at most %u can be in one blob",
                           count, NXL_FRAME_REGIONS_MAX);
    for (uint32_t i = 0; i < count; i++) {
        if (!regs || !regs[i] || regs[i]->peer != peer)
            return nxl_err_set(err, NXL_INVALID_PARAM, 0,
                               "regs[%u] is not a registered region of peer '%s'", i, peer->name);
        frame->ids[i] = regs[i]->id;
    }
    frame->count = count;
    return NXL_OK;
}

/* ---- metadata --------------------------------------------------------------------------- */

enum nxl_code nxl_metadata(struct nxl_peer *peer, uint32_t flags, struct nxl_memreg *const *regs,
                           uint32_t reg_count, void **ret_blob, size_t *ret_size,
                           struct nxl_err *err)
{
    struct errand errand;
    enum nxl_code code = errand_begin(&errand, peer, NXL_FRAME_METADATA, err);
    void *blob = NULL;

    if (code != NXL_OK)
        return code;
    errand.call->frame.flags = flags;
    code = frame_regs(&errand.call->frame, peer, regs, reg_count, err);
    if (code == NXL_OK)
        code = errand_run(&errand, 0, err);
    if (code == NXL_OK) {
        size_t size = errand.call->frame.blob_size;

        blob = malloc(size ? size : 1);
        if (blob) {
            memcpy(blob, errand.call->frame.blob, size);
            *ret_size = size;
            *ret_blob = blob;
        } else {
            code = nxl_err_set(err, NXL_LIMIT, ENOMEM, "copy metadata");
        }
    }
    errand_end(&errand);
    return code == NXL_OK ? code : nxl_err_wrap(err, code, "metadata of peer '%s'", peer->name);
}

enum nxl_code nxl_load(struct nxl_peer *peer, const void *blob, size_t size,
                       struct nxl_remote **ret, struct nxl_err *err)
{
    struct errand errand;
    enum nxl_code code;

    if (!blob || size == 0 || size > NXL_FRAME_BLOB_MAX)
        return nxl_err_set(err, NXL_MISMATCH, 0, "load: %zu bytes cannot be a metadata blob", size);
    code = errand_begin(&errand, peer, NXL_FRAME_LOAD, err);
    if (code != NXL_OK)
        return code;
    errand.call->frame.blob_size = (uint32_t)size;
    memcpy(errand.call->frame.blob, blob, size);
    code = errand_run(&errand, 0, err);
    if (code == NXL_OK)
        code = remote_intern(peer, errand.session, &errand.call->frame, ret, err);
    errand_end(&errand);
    return code == NXL_OK ? code : nxl_err_wrap(err, code, "load metadata into '%s'", peer->name);
}

enum nxl_code nxl_send_metadata(struct nxl_peer *peer, const char *label, const char *address,
                                struct nxl_memreg *const *regs, uint32_t reg_count, uint32_t flags,
                                struct nxl_err *err)
{
    struct errand errand;
    struct nxl_frame *frame;
    enum nxl_code code = errand_begin(&errand, peer, NXL_FRAME_SEND, err);

    if (code != NXL_OK)
        return code;
    frame = &errand.call->frame;
    frame->flags = flags;
    code = text_fits(frame->label, sizeof(frame->label), label, "label", err);
    if (code == NXL_OK)
        code = text_fits(frame->address, sizeof(frame->address), address, "address", err);
    if (code == NXL_OK)
        code = frame_regs(frame, peer, regs, reg_count, err);
    if (code == NXL_OK)
        code = errand_run(&errand, 0, err);
    if (code == NXL_OK && flags == 0 && (!label || !*label) && (!address || !*address))
        peer->published = 1;
    errand_end(&errand);
    return code == NXL_OK ? code : nxl_err_wrap(err, code, "send metadata of '%s'", peer->name);
}

enum nxl_code nxl_fetch_metadata(struct nxl_peer *peer, const char *name, const char *label,
                                 const char *address, uint32_t timeout_ms, struct nxl_remote **ret,
                                 struct nxl_err *err)
{
    struct errand errand;
    struct nxl_frame *frame;
    enum nxl_code code;

    if (!name || !nxl_name_valid(name))
        return nxl_err_set(err, NXL_INVALID_PARAM, 0, "fetch: '%.64s' is not a peer name",
                           name ? name : "(NULL)");
    code = errand_begin(&errand, peer, NXL_FRAME_FETCH, err);
    if (code != NXL_OK)
        return code;
    frame = &errand.call->frame;
    strcpy(frame->name, name);
    frame->timeout_ms = timeout_ms;
    code = text_fits(frame->label, sizeof(frame->label), label, "label", err);
    if (code == NXL_OK)
        code = text_fits(frame->address, sizeof(frame->address), address, "address", err);
    if (code == NXL_OK)
        code = errand_run(&errand, timeout_ms, err);
    if (code == NXL_OK)
        code = remote_intern(peer, errand.session, frame, ret, err);
    errand_end(&errand);
    return code == NXL_OK ? code : nxl_err_wrap(err, code, "fetch peer '%s'", name);
}

enum nxl_code nxl_withdraw_metadata(struct nxl_peer *peer, const char *address, struct nxl_err *err)
{
    struct errand errand;
    enum nxl_code code = errand_begin(&errand, peer, NXL_FRAME_WITHDRAW, err);

    if (code != NXL_OK)
        return code;
    code = text_fits(errand.call->frame.address, sizeof(errand.call->frame.address), address,
                     "address", err);
    if (code == NXL_OK)
        code = errand_run(&errand, 0, err);
    if (code == NXL_OK && (!address || !*address))
        peer->published = 0;
    errand_end(&errand);
    return code;
}

/* ---- handles ---------------------------------------------------------------------------- */

static void remote_forget(struct nxl_peer *peer, struct nxl_remote *remote)
{
    struct nxl_remote **at = &peer->remotes;

    pthread_mutex_lock(&peer->client->objects.lock);
    while (*at && *at != remote)
        at = &(*at)->next;
    atomic_store(&remote->stale, 1);
    if (*at) {
        *at = remote->next;
        nxl_remote_unref(remote);
    }
    pthread_mutex_unlock(&peer->client->objects.lock);
}

enum nxl_code nxl_invalidate(struct nxl_peer *peer, struct nxl_remote *remote, struct nxl_err *err)
{
    struct nxl_session *session;
    enum nxl_code code = nxl_peer_usable(peer, err);

    if (code != NXL_OK)
        return code;
    if (!remote || remote->peer != peer)
        return nxl_err_set(err, NXL_INVALID_PARAM, 0, "invalidate: not a remote of peer '%s'",
                           peer->name);
    pthread_mutex_lock(&peer->client->work.lock);
    session = atomic_load(&peer->client->session);
    /* An earlier session's remotes went with it: nothing to say then. */
    if (remote->session == session && !atomic_load(&session->gone)) {
        struct nxl_call *call = nxl_call_new(session, NXL_FRAME_INVALIDATE);

        if (call) {
            call->frame.peer = peer->id;
            call->frame.remote = remote->id;
            code = nxl_call_run(session, call, NULL, 0, nxl_client_timeout(peer->client), err);
            nxl_call_free(session, call);
        }
        if (code == NXL_NO_AGENT || code == NXL_NOT_FOUND || code == NXL_STALE)
            code = NXL_OK;
    }
    if (code == NXL_OK)
        remote_forget(peer, remote);
    else
        nxl_err_wrap(err, code, "invalidate remote '%s'", remote->name);
    pthread_mutex_unlock(&peer->client->work.lock);
    return code;
}

enum nxl_code nxl_remote_find(struct nxl_peer *peer, const char *name, struct nxl_remote **ret,
                              struct nxl_err *err)
{
    struct errand errand;
    enum nxl_code code;

    if (!name || !nxl_name_valid(name))
        return nxl_err_set(err, NXL_INVALID_PARAM, 0, "find: '%.64s' is not a peer name",
                           name ? name : "(NULL)");
    code = errand_begin(&errand, peer, NXL_FRAME_FIND, err);
    if (code != NXL_OK)
        return code;
    strcpy(errand.call->frame.name, name);
    code = errand_run(&errand, 0, err);
    if (code == NXL_OK)
        code = remote_intern(peer, errand.session, &errand.call->frame, ret, err);
    errand_end(&errand);
    return code == NXL_OK ? code : nxl_err_wrap(err, code, "find remote '%s'", name);
}

/* Begins an errand about a remote that may be used. */
static enum nxl_code errand_about(struct errand *errand, struct nxl_peer *peer,
                                  struct nxl_remote *remote, uint16_t type, struct nxl_err *err)
{
    enum nxl_code code = errand_begin(errand, peer, type, err);

    if (code != NXL_OK)
        return code;
    code = nxl_remote_usable(remote, peer, errand->session, err);
    if (code != NXL_OK) {
        errand_end(errand);
        return code;
    }
    errand->call->frame.remote = remote->id;
    return NXL_OK;
}

enum nxl_code nxl_connect(struct nxl_peer *peer, struct nxl_remote *remote, struct nxl_err *err)
{
    struct errand errand;
    enum nxl_code code = errand_about(&errand, peer, remote, NXL_FRAME_CONNECT, err);

    return code == NXL_OK ? errand_finish(&errand, err) : code;
}

enum nxl_code nxl_remote_check(struct nxl_peer *peer, struct nxl_remote *remote, uint32_t kind,
                               const struct nxl_run *runs, uint32_t count, struct nxl_err *err)
{
    struct nxl_list_part *parts;
    struct errand errand;
    uint32_t part_count;
    uint64_t size, len;
    enum nxl_code code =
        nxl_runs_compress(runs, count, "check", &parts, &part_count, &size, &len, err);

    if (code != NXL_OK)
        return code;
    code = errand_about(&errand, peer, remote, NXL_FRAME_CHECK, err);
    if (code == NXL_OK) {
        errand.call->frame.kind = kind;
        nxl_client_leave(peer->client);
        code = nxl_list_send(errand.session, errand.call, parts, part_count, err);
        pthread_mutex_lock(&peer->client->work.lock);
        errand_end(&errand);
    }
    free(parts);
    return code;
}

enum nxl_code nxl_remote_state(struct nxl_peer *peer, struct nxl_remote *remote,
                               struct nxl_remote_state *ret, struct nxl_err *err)
{
    struct nxl_remote_state state = {0};
    struct errand errand;
    enum nxl_code code;

    if (!ret)
        return nxl_err_set(err, NXL_INVALID_PARAM, 0, "remote_state: ret is NULL");
    code = errand_about(&errand, peer, remote, NXL_FRAME_STATE, err);
    if (code != NXL_OK)
        return code;
    code = errand_run(&errand, 0, err);
    if (code == NXL_OK) {
        state.size = ret->size;
        state.life = errand.call->frame.state.life;
        state.suspect = errand.call->frame.state.suspect;
        state.same_agent = errand.call->frame.state.same_agent;
        state.regions = errand.call->frame.state.regions;
        memcpy(state.agent, errand.call->frame.state.agent, sizeof(state.agent));
        memcpy(ret, &state, ret->size < sizeof(state) ? ret->size : sizeof(state));
    }
    errand_end(&errand);
    return code;
}

const char *nxl_remote_name(const struct nxl_remote *remote)
{
    return remote->name;
}

const char *nxl_remote_incarnation(const struct nxl_remote *remote)
{
    return remote->incarnation;
}
