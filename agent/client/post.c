/* post.c - the life of a transfer: post, poll, wait, cancel, notices, report. Polling is lock-free:
 * it compares the slot's word with the generation of the last post. Any thread. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/client.h"

/* ---- reading ---------------------------------------------------------------------------- */

/* The slot's word if it speaks of the last post, else 0. */
static uint64_t word_of(const struct nxl_transfer *transfer, uint64_t generation)
{
    uint64_t word = atomic_load_explicit(&transfer->slot->word, memory_order_acquire);

    return word >> 8 == generation ? word : 0;
}

static int word_ended(uint64_t word)
{
    unsigned state = word & NXL_RING_STATE_MASK;

    return state == NXL_RING_DONE || state == NXL_RING_FAILED || state == NXL_RING_CANCELLED;
}

static enum nxl_code word_code(const struct nxl_transfer *transfer, uint64_t word)
{
    int32_t code = transfer->slot->code;

    if ((word & NXL_RING_STATE_MASK) == NXL_RING_DONE)
        return NXL_OK;
    /* A failure without a proper code must not look like success or like work in progress. */
    return code < 0 ? (enum nxl_code)code : NXL_UNKNOWN;
}

enum nxl_code nxl_transfer_state(const struct nxl_transfer *transfer)
{
    uint64_t generation = atomic_load_explicit(&transfer->generation, memory_order_acquire);
    uint64_t word;

    if (generation == 0)
        return NXL_NOT_POSTED;
    if (generation == NXL_RELEASED)
        return NXL_INVALID_PARAM;
    word = word_of(transfer, generation);
    if (word_ended(word))
        return word_code(transfer, word);
    if (!atomic_load_explicit(&transfer->session->gone, memory_order_acquire))
        return NXL_IN_PROG;
    word = word_of(transfer, generation); /* the agent's last word may have come before its end */
    return word_ended(word) ? word_code(transfer, word) : NXL_REMOTE_DISCONNECT;
}

int nxl_transfer_quiet(const struct nxl_transfer *transfer)
{
    uint64_t generation = atomic_load_explicit(&transfer->generation, memory_order_acquire);
    uint64_t word;

    if (generation == 0 || generation == NXL_RELEASED)
        return 1;
    word = word_of(transfer, generation);
    if (word_ended(word) && word & NXL_RING_QUIET)
        return 1;
    /* Without the process that moved them, no byte moves any more. */
    return atomic_load_explicit(&transfer->session->gone, memory_order_acquire) != 0;
}

enum nxl_code nxl_transfer_poll(const struct nxl_transfer *transfer)
{
    enum nxl_code code;

    if (!transfer)
        return NXL_INVALID_PARAM;
    if (nxl_client_forked(transfer->client, NULL))
        return NXL_NOT_ALLOWED;
    code = nxl_transfer_state(transfer);
    if (code == NXL_IN_PROG)
        nxl_session_glance(transfer->session);
    return code;
}

int nxl_transfer_quiesced(const struct nxl_transfer *transfer)
{
    int quiet;

    if (!transfer || nxl_client_forked(transfer->client, NULL))
        return 0;
    quiet = nxl_transfer_quiet(transfer);
    if (!quiet)
        nxl_session_glance(transfer->session);
    return quiet;
}

/* ---- post and cancel -------------------------------------------------------------------- */

static enum nxl_code transfer_usable(struct nxl_transfer *transfer, struct nxl_err *err)
{
    if (!transfer)
        return nxl_err_set(err, NXL_INVALID_PARAM, 0, "transfer is NULL");
    if (nxl_client_forked(transfer->client, err))
        return NXL_NOT_ALLOWED;
    return NXL_OK;
}

/* submit.lock held: nobody releases it now. */
static enum nxl_code session_usable(const struct nxl_transfer *transfer, struct nxl_err *err)
{
    if (atomic_load_explicit(&transfer->generation, memory_order_relaxed) == NXL_RELEASED)
        return nxl_err_set(err, NXL_INVALID_PARAM, 0, "post: the transfer was released");
    if (!atomic_load_explicit(&transfer->session->gone, memory_order_acquire))
        return NXL_OK;
    if (atomic_load(&transfer->client->session) == transfer->session)
        return nxl_err_set(err, NXL_NO_AGENT, 0, "post: the agent went away");
    return nxl_err_set(err, NXL_STALE, 0,
                       "post: the transfer was made before the agent restarted: make it again");
}

/* submit.lock held. */
static enum nxl_code post_allowed(const struct nxl_transfer *transfer, struct nxl_err *err)
{
    enum nxl_code code = session_usable(transfer, err);

    if (code != NXL_OK)
        return code;
    if (nxl_transfer_state(transfer) == NXL_IN_PROG)
        return nxl_err_set(err, NXL_REPOST_ACTIVE, 0, "post: the transfer is still running");
    if (!nxl_transfer_quiet(transfer))
        return nxl_err_set(err, NXL_REPOST_ACTIVE, 0,
                           "post: the transfer ended, but its buffers are not quiet yet");
    if (transfer->peer->closed)
        return nxl_err_set(err, NXL_INVALID_PARAM, 0, "post: peer '%s' is closed",
                           transfer->peer->name);
    if (transfer->remote && atomic_load(&transfer->remote->stale))
        return nxl_err_set(err, NXL_STALE, 0,
                           "post: remote '%s' (incarnation '%s') was invalidated or replaced",
                           transfer->remote->name, transfer->remote->incarnation);
    return NXL_OK;
}

enum nxl_code nxl_transfer_post(struct nxl_transfer *transfer, struct nxl_err *err)
{
    struct nxl_session *session;
    uint64_t before;
    enum nxl_code code = transfer_usable(transfer, err);

    if (code != NXL_OK)
        return code;
    session = transfer->session;
    pthread_mutex_lock(&session->submit.lock);
    code = post_allowed(transfer, err);
    if (code == NXL_OK) {
        uint32_t generation = ++session->submit.posts[transfer->entry.slot];

        before = atomic_load(&transfer->generation);
        transfer->entry.generation = generation;
        if (before != 0)
            transfer->entry.flags |= NXL_RING_REUSE;
        atomic_store_explicit(&transfer->posted_ns, nxl_client_now(), memory_order_relaxed);
        atomic_store_explicit(&transfer->generation, generation, memory_order_release);
        code = nxl_submit_entry(session, &transfer->entry, err);
        if (code == NXL_OK) {
            transfer->position = session->ring.submit_pos;
        } else {
            atomic_store_explicit(&transfer->generation, before, memory_order_release);
            session->submit.posts[transfer->entry.slot]--;
        }
    }
    pthread_mutex_unlock(&session->submit.lock);
    return code;
}

enum nxl_code nxl_transfer_cancel(struct nxl_transfer *transfer, struct nxl_err *err)
{
    struct nxl_session *session;
    enum nxl_code code = transfer_usable(transfer, err);

    if (code != NXL_OK)
        return code;
    session = transfer->session;
    pthread_mutex_lock(&session->submit.lock);
    code = nxl_transfer_state(transfer);
    if (code == NXL_IN_PROG) {
        struct nxl_ring_entry entry = {.kind = NXL_RING_CANCEL,
                                       .slot = transfer->entry.slot,
                                       .generation = transfer->entry.generation,
                                       .peer = transfer->entry.peer};

        code = nxl_submit_entry(session, &entry, err);
        if (code == NXL_NO_AGENT)
            code = NXL_OK; /* it has ended by that */
    } else if (code == NXL_NOT_POSTED) {
        nxl_err_set(err, code, 0, "cancel: the transfer was never posted");
    } else if (atomic_load(&transfer->generation) == NXL_RELEASED) {
        code = nxl_err_set(err, NXL_INVALID_PARAM, 0, "cancel: the transfer was released");
    } else {
        code = NXL_OK;
    }
    pthread_mutex_unlock(&session->submit.lock);
    return code;
}

/* ---- notices ---------------------------------------------------------------------------- */

static enum nxl_code notice_check(const void *data, size_t size, struct nxl_err *err)
{
    if (size > NXL_NOTICE_MAX)
        return nxl_err_set(err, NXL_LIMIT, 0, "a notice of %zu bytes is larger than %u", size,
                           NXL_NOTICE_MAX);
    if (!data && size > 0)
        return nxl_err_set(err, NXL_INVALID_PARAM, 0, "a notice of %zu bytes at address NULL",
                           size);
    return NXL_OK;
}

enum nxl_code nxl_transfer_notice(struct nxl_transfer *transfer, const void *data, size_t size,
                                  int present, struct nxl_err *err)
{
    struct nxl_session *session;
    uint64_t offset = 0;
    enum nxl_code code = transfer_usable(transfer, err);

    if (code == NXL_OK)
        code = notice_check(data, size, err);
    if (code != NXL_OK)
        return code;
    session = transfer->session;
    pthread_mutex_lock(&session->submit.lock);
    code = session_usable(transfer, err);
    if (code == NXL_OK && nxl_transfer_state(transfer) == NXL_IN_PROG)
        code = nxl_err_set(err, NXL_REPOST_ACTIVE, 0,
                           "set notice: the transfer is running with the one it has");
    if (code == NXL_OK && present && size > 0)
        code = nxl_submit_block(session, size, &offset, err);
    if (code == NXL_OK) {
        if (transfer->notice_block)
            nxl_submit_block_later(session, transfer->notice_block - 1, transfer->position);
        transfer->notice_block = present && size > 0 ? offset + 1 : 0;
        if (transfer->notice_block)
            memcpy(session->ring.arena + offset, data, size);
        transfer->entry.notice_offset = offset;
        transfer->entry.notice_size = present ? (uint32_t)size : 0;
        transfer->entry.flags &= (uint8_t)~NXL_RING_NOTICE;
        if (present)
            transfer->entry.flags |= NXL_RING_NOTICE;
    }
    pthread_mutex_unlock(&session->submit.lock);
    return code;
}

enum nxl_code nxl_notify(struct nxl_peer *peer, struct nxl_remote *remote, const void *data,
                         size_t size, struct nxl_err *err)
{
    struct nxl_ring_entry entry = {.kind = NXL_RING_NOTIFY, .flags = NXL_RING_NOTICE};
    struct nxl_session *session;
    uint64_t offset = 0;
    enum nxl_code code = nxl_peer_usable(peer, err);

    if (code == NXL_OK)
        code = notice_check(data, size, err);
    if (code != NXL_OK)
        return code;
    session = nxl_client_pin(peer->client);
    code = nxl_remote_usable(remote, peer, session, err);
    if (code == NXL_OK) {
        pthread_mutex_lock(&session->submit.lock);
        if (size > 0)
            code = nxl_submit_block(session, size, &offset, err);
        if (code == NXL_OK) {
            if (size > 0)
                memcpy(session->ring.arena + offset, data, size);
            entry.peer = peer->id;
            entry.remote = remote->id;
            entry.notice_offset = offset;
            entry.notice_size = (uint32_t)size;
            code = nxl_submit_entry(session, &entry, err);
            if (size > 0) /* at once if the entry never went in */
                nxl_submit_block_later(session, offset,
                                       code == NXL_OK ? session->ring.submit_pos : 0);
        }
        pthread_mutex_unlock(&session->submit.lock);
    }
    nxl_session_unref(session);
    return code == NXL_OK ? code : nxl_err_wrap(err, code, "notify");
}

/* ---- waiting ---------------------------------------------------------------------------- */

static int has_ended(const void *arg)
{
    return nxl_transfer_state(arg) != NXL_IN_PROG;
}

static int is_quiet(const void *arg)
{
    return nxl_transfer_quiet(arg);
}

static enum nxl_code explain_timeout(struct nxl_err *err, const char *what, uint64_t timeout_ns)
{
    return nxl_err_set(err, NXL_TIMEOUT, 0, "the transfer %s after %" PRIu64 " us", what,
                       timeout_ns / 1000);
}

enum nxl_code nxl_transfer_wait(struct nxl_transfer *transfer, uint64_t timeout_ns,
                                struct nxl_err *err)
{
    enum nxl_code code = transfer_usable(transfer, err);

    if (code != NXL_OK)
        return code;
    if (nxl_wait(transfer->session, has_ended, transfer, timeout_ns) == NXL_TIMEOUT)
        return explain_timeout(err, "still runs", timeout_ns);
    code = nxl_transfer_state(transfer);
    if (code != NXL_OK)
        nxl_err_set(err, code, 0, "the transfer ended: %s", nxl_code_text(code));
    return code;
}

enum nxl_code nxl_transfer_wait_quiesced(struct nxl_transfer *transfer, uint64_t timeout_ns,
                                         struct nxl_err *err)
{
    enum nxl_code code = transfer_usable(transfer, err);

    if (code != NXL_OK)
        return code;
    if (nxl_wait(transfer->session, is_quiet, transfer, timeout_ns) == NXL_TIMEOUT)
        return explain_timeout(err, "is not quiet", timeout_ns);
    return NXL_OK;
}

/* ---- what happened ---------------------------------------------------------------------- */

enum nxl_code nxl_transfer_explain(struct nxl_transfer *transfer, struct nxl_err *ret)
{
    struct nxl_err why = {0};
    struct nxl_session *session;
    struct nxl_call *call;
    enum nxl_code state, code = transfer_usable(transfer, ret);

    if (code != NXL_OK)
        return code;
    if (!ret)
        return NXL_INVALID_PARAM;
    session = transfer->session;
    state = nxl_transfer_state(transfer);
    nxl_err_set(&why, state, 0, "%s", nxl_code_text(state));
    if (atomic_load(&session->gone) && state == NXL_REMOTE_DISCONNECT) {
        nxl_err_set(&why, state, 0, "the node agent '%s' went away while the transfer ran",
                    session->incarnation);
    } else if (state < 0 && state != NXL_NOT_POSTED && !atomic_load(&session->gone)) {
        call = nxl_call_new(session, NXL_FRAME_EXPLAIN);
        if (!call)
            return nxl_err_set(ret, NXL_LIMIT, 0, "explain: no memory");
        call->frame.peer = transfer->entry.peer;
        call->frame.slot = transfer->entry.slot;
        call->frame.generation = transfer->entry.generation;
        code = nxl_call_run(session, call, NULL, 0, nxl_client_timeout(transfer->client), ret);
        if (code == NXL_OK && call->frame.text[0]) {
            nxl_err_set(&why, state, 0, "%s", call->frame.text);
            why.os = call->frame.os;
        }
        nxl_call_free(session, call);
    }
    if (code == NXL_OK)
        *ret = why;
    return code;
}

/* The index-th word of the agent's list of backends, 1 being the first. */
static void backend_name(const char *list, unsigned index, char *to, size_t room)
{
    for (unsigned at = 1; *list && index > 0; at++) {
        size_t word = strcspn(list, " ");

        if (at == index && word < room) {
            memcpy(to, list, word);
            to[word] = '\0';
            return;
        }
        list += word;
        list += strspn(list, " ");
    }
}

enum nxl_code nxl_transfer_report(const struct nxl_transfer *transfer,
                                  struct nxl_transfer_report *ret)
{
    struct nxl_transfer_report report = {0};
    const struct nxl_session *session;
    uint64_t word;

    if (!transfer || !ret)
        return NXL_INVALID_PARAM;
    if (nxl_client_forked(transfer->client, NULL))
        return NXL_NOT_ALLOWED;
    session = transfer->session;
    report.size = ret->size;
    report.code = nxl_transfer_state(transfer);
    report.posted_ns = atomic_load_explicit(&transfer->posted_ns, memory_order_relaxed);
    report.descriptors = (uint32_t)transfer->pairs;
    word = word_of(transfer, atomic_load_explicit(&transfer->generation, memory_order_acquire));
    if (word != 0) {
        const struct nxl_ring_slot *slot = transfer->slot;

        report.id = slot->id;
        report.bytes = slot->bytes;
        report.started_ns = slot->started_ns;
        report.ended_ns = slot->ended_ns;
        report.pieces = slot->pieces;
        report.path = slot->path;
        report.protocol = slot->protocol;
        backend_name(session->backends, slot->backend, report.backend, sizeof(report.backend));
        if (slot->device < NXL_RING_DEVICES) {
            memcpy(report.device, session->ring.header->devices[slot->device],
                   sizeof(report.device) - 1);
        }
    }
    memcpy(ret, &report, ret->size < sizeof(report) ? ret->size : sizeof(report));
    return NXL_OK;
}

const char *nxl_path_name(uint32_t path)
{
    static const char *const names[] = {"none", "tcp", "staged", "rdma", "shared", "one-copy"};

    return path < sizeof(names) / sizeof(names[0]) ? names[path] : "unknown";
}

const char *nxl_protocol_name(uint32_t protocol)
{
    static const char *const names[] = {"none", "direct", "staged", "local"};

    return protocol < sizeof(names) / sizeof(names[0]) ? names[protocol] : "unknown";
}
