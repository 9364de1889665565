/* list.c - prepared descriptor lists: sent to the agent once, kept here as geometry so that a
 * transfer can be checked without asking, and so that a local list survives the agent. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/client.h"

#define PART_RUNS 65536u /* of one frame: what the agent works through in one go */
#define PART_RUNS_LEAST 64u

/* A block for as many of count runs as the arena has room for. */
static enum nxl_code part_block(struct nxl_session *session, uint32_t *count, uint64_t *ret,
                                struct nxl_err *err)
{
    enum nxl_code code;

    if (*count > PART_RUNS)
        *count = PART_RUNS;
    pthread_mutex_lock(&session->submit.lock);
    while (*count > PART_RUNS_LEAST &&
           nxl_arena_take(&session->submit.arena, *count * sizeof(struct nxl_run), ret) != NXL_OK)
        *count = *count / 2 > PART_RUNS_LEAST ? *count / 2 : PART_RUNS_LEAST;
    code = *count > PART_RUNS_LEAST
               ? NXL_OK
               : nxl_submit_block(session, *count * sizeof(struct nxl_run), ret, err);
    pthread_mutex_unlock(&session->submit.lock);
    return code;
}

/* One part; the frame's fields are set anew, because the last answer lies in it. */
static enum nxl_code part_send(struct nxl_session *session, struct nxl_call *call,
                               const struct nxl_list_part *parts, uint32_t part, int more,
                               uint64_t offset, struct nxl_err *err)
{
    struct nxl_run *runs = (struct nxl_run *)(void *)(session->ring.arena + offset);
    enum nxl_code code;

    for (uint32_t i = 0; i < part; i++)
        runs[i] = parts[i].run;
    call->frame.count = part;
    call->frame.arena_offset = offset;
    call->frame.more = (uint32_t)more;
    code = nxl_call_run(session, call, NULL, 0, nxl_client_timeout(session->client), err);
    if (code == NXL_TIMEOUT)
        return code; /* the agent may still read the block: it stays taken */
    pthread_mutex_lock(&session->submit.lock);
    nxl_arena_give(&session->submit.arena, offset);
    pthread_mutex_unlock(&session->submit.lock);
    return code;
}

enum nxl_code nxl_list_send(struct nxl_session *session, struct nxl_call *call,
                            const struct nxl_list_part *parts, uint32_t count, struct nxl_err *err)
{
    uint32_t peer = call->frame.peer, remote = call->frame.remote, kind = call->frame.kind;
    uint32_t list = 0, done = 0;
    uint16_t type = call->frame.type;
    enum nxl_code code = NXL_OK;

    while (done < count && code == NXL_OK) {
        uint32_t part = count - done;
        uint64_t offset;

        memset(&call->frame, 0, offsetof(struct nxl_frame, blob));
        call->frame.type = type;
        call->frame.peer = peer;
        call->frame.remote = remote;
        call->frame.kind = kind;
        call->frame.list = list;
        code = part_block(session, &part, &offset, err);
        if (code == NXL_OK)
            code = part_send(session, call, parts + done, part, done + part < count, offset, err);
        if (code == NXL_OK)
            list = call->frame.list;
        done += part;
    }
    call->frame.list = list; /* also of a list that failed half way */
    return code;
}

/* Sends the whole list; *ret_id the agent's id. A part that fails takes the others along. */
static enum nxl_code list_present(struct nxl_session *session, struct nxl_call *call,
                                  uint32_t peer_id, uint32_t remote_id, uint32_t kind,
                                  const struct nxl_list_part *parts, uint32_t count,
                                  uint32_t *ret_id, struct nxl_err *err)
{
    enum nxl_code code;

    call->frame.peer = peer_id;
    call->frame.remote = remote_id;
    call->frame.kind = kind;
    code = nxl_list_send(session, call, parts, count, err);
    if (code == NXL_OK)
        *ret_id = call->frame.list;
    else if (call->frame.list != 0 && code != NXL_NO_AGENT)
        nxl_submit_list_dead(session, peer_id, call->frame.list);
    return code;
}

void nxl_list_unref(struct nxl_list *list)
{
    struct nxl_client *client;

    if (!list || --list->refs > 0)
        return;
    client = list->client;
    if (list->prev)
        list->prev->next = list->next;
    else
        client->objects.lists = list->next;
    if (list->next)
        list->next->prev = list->prev;
    if (list->session == atomic_load(&client->session) && !atomic_load(&list->session->gone))
        nxl_submit_list_dead(list->session, list->peer->id, list->id);
    nxl_remote_unref(list->remote);
    nxl_peer_unref(list->peer);
    free(list->parts);
    free(list);
}

enum nxl_code nxl_list_revive(struct nxl_list *list, struct nxl_session *session,
                              struct nxl_err *err)
{
    struct nxl_call *call;
    enum nxl_code code;
    uint32_t id;

    if (list->session == session)
        return NXL_OK;
    if (list->remote)
        return nxl_err_set(err, NXL_STALE, 0,
                           "the list of remote '%s' was prepared before the agent restarted: load "
                           "the remote again and prepare a new list",
                           list->remote->name);
    call = nxl_call_new(session, NXL_FRAME_LIST);
    if (!call)
        return nxl_err_set(err, NXL_LIMIT, ENOMEM, "prepare a list again");
    code = list_present(session, call, list->peer->id, 0, list->kind, list->parts, list->part_count,
                        &id, err);
    nxl_call_free(session, call);
    if (code != NXL_OK)
        return nxl_err_wrap(err, code, "prepare a list of '%s' again", list->peer->name);
    pthread_mutex_lock(&list->client->objects.lock);
    list->id = id;
    list->session = session;
    pthread_mutex_unlock(&list->client->objects.lock);
    return NXL_OK;
}

/* Puts a finished list among the client's. */
static void list_adopt(struct nxl_list *list, struct nxl_peer *peer, struct nxl_remote *remote)
{
    struct nxl_client *client = peer->client;

    list->client = client;
    list->peer = peer;
    list->remote = remote;
    list->refs = 1;
    pthread_mutex_lock(&client->objects.lock);
    peer->refs++;
    if (remote)
        remote->refs++;
    list->next = client->objects.lists;
    if (list->next)
        list->next->prev = list;
    client->objects.lists = list;
    pthread_mutex_unlock(&client->objects.lock);
}

enum nxl_code nxl_list_prepare(struct nxl_peer *peer, struct nxl_remote *remote, uint32_t kind,
                               const struct nxl_run *runs, uint32_t count, struct nxl_list **ret,
                               struct nxl_err *err)
{
    struct nxl_session *session;
    struct nxl_list *list;
    struct nxl_call *call = NULL;
    uint32_t peer_id, remote_id = 0;
    enum nxl_code code = nxl_peer_usable(peer, err);

    if (code != NXL_OK)
        return code;
    if (kind != NXL_MEM_DRAM)
        return nxl_err_set(err, NXL_NOT_SUPPORTED, 0,
                           "memory kind %u has no lists in this version, only DRAM (0)", kind);
    list = calloc(1, sizeof(*list));
    if (!list)
        return nxl_err_set(err, NXL_LIMIT, ENOMEM, "prepare a list");
    code = nxl_runs_compress(runs, count, "prepare list", &list->parts, &list->part_count,
                             &list->size, &list->uniform_len, err);
    if (code == NXL_OK)
        code = nxl_client_pause(peer->client, &session, err);
    if (code != NXL_OK) {
        free(list->parts);
        free(list);
        return code;
    }
    peer_id = peer->id;
    if (remote) {
        code = nxl_remote_usable(remote, peer, session, err);
        remote_id = code == NXL_OK ? remote->id : 0;
    }
    if (code == NXL_OK && !(call = nxl_call_new(session, NXL_FRAME_LIST)))
        code = nxl_err_set(err, NXL_LIMIT, ENOMEM, "prepare a list");
    if (code == NXL_OK)
        code = list_present(session, call, peer_id, remote_id, kind, list->parts, list->part_count,
                            &list->id, err);
    nxl_call_free(session, call);
    list->session = session;
    list->kind = kind;
    if (!nxl_client_resume(peer->client, session) && code == NXL_OK)
        code = nxl_err_set(err, NXL_NO_AGENT, 0, "the agent restarted during the call");
    if (code == NXL_OK) {
        list_adopt(list, peer, remote);
        *ret = list;
    } else {
        nxl_err_wrap(err, code, "prepare a list of %s '%s'", remote ? "remote" : "peer",
                     remote ? remote->name : peer->name);
        free(list->parts);
        free(list);
    }
    nxl_client_leave(peer->client);
    return code;
}

uint64_t nxl_list_size(const struct nxl_list *list)
{
    return list ? list->size : 0;
}

void nxl_list_free(struct nxl_list *list)
{
    struct nxl_client *client;
    struct nxl_session *session;

    if (!list || nxl_client_forked(list->client, NULL))
        return;
    client = list->client;
    pthread_mutex_lock(&client->objects.lock);
    nxl_list_unref(list);
    session = atomic_load(&client->session);
    nxl_session_ref(session);
    pthread_mutex_unlock(&client->objects.lock);
    nxl_submit_flush_lists(session, 16); /* the rest goes with the next call */
    nxl_session_unref(session);
}
