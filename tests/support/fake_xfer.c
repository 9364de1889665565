/* fake_xfer.c - the recording engine of fake_xfer.h. */
#include "support/fake_xfer.h"
#include "base/assert.h"
#include "base/mem.h"
#include "wire/ring.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct nxl_xfer *fake_xfer_new(void)
{
    return nxl_new0(sizeof(struct nxl_xfer));
}

void fake_xfer_free(struct nxl_xfer *xfer)
{
    while (xfer->sessions) {
        struct nxl_xfer_session *session = xfer->sessions;

        NXL_ASSERT(session->closed);
        xfer->sessions = session->next;
        free(session);
    }
    free(xfer);
}

struct nxl_xfer_session *fake_xfer_session(struct nxl_xfer *xfer, uint32_t number)
{
    struct nxl_xfer_session *session = xfer->sessions;

    while (session && session->number != number)
        session = session->next;
    return session;
}

static enum nxl_code verdict(struct nxl_xfer_session *session, const char *what,
                             struct nxl_err *err)
{
    NXL_ASSERT(!session->closed);
    if (session->xfer->refuse == NXL_OK)
        return NXL_OK;
    return nxl_err_set(err, session->xfer->refuse, 7, "%s is refused by the test", what);
}

static uint32_t items(uint32_t count)
{
    return count < FAKE_ITEMS_MAX ? count : FAKE_ITEMS_MAX;
}

static void texts(struct nxl_xfer *xfer, const char *name, const char *label, const char *address)
{
    (void)nxl_copy_text(xfer->last.name, sizeof(xfer->last.name), name);
    (void)nxl_copy_text(xfer->last.label, sizeof(xfer->last.label), label);
    (void)nxl_copy_text(xfer->last.address, sizeof(xfer->last.address), address);
}

static void ids_keep(struct nxl_xfer *xfer, const uint64_t *ids, uint32_t count)
{
    xfer->last.count = count;
    if (count > 0)
        memcpy(xfer->last.ids, ids, items(count) * sizeof(ids[0]));
}

/* ---- sessions and peers ------------------------------------------------------------------ */

enum nxl_code nxl_xfer_session_open(struct nxl_xfer *xfer, const struct nxl_xfer_owner *owner,
                                    const struct nxl_xfer_front *front, void *front_arg,
                                    uint32_t *ret_number, struct nxl_xfer_session **ret,
                                    struct nxl_err *err)
{
    struct nxl_xfer_session *session;

    if (xfer->refuse != NXL_OK)
        return nxl_err_set(err, xfer->refuse, 0, "sessions are refused by the test");
    session = nxl_new0(sizeof(*session));
    session->xfer = xfer;
    session->number = ++xfer->opened;
    session->front = front;
    session->front_arg = front_arg;
    session->pid = owner->pid;
    (void)nxl_copy_text(session->ns, sizeof(session->ns), owner->ns);
    session->next = xfer->sessions;
    xfer->sessions = session;
    *ret_number = session->number;
    *ret = session;
    return NXL_OK;
}

void nxl_xfer_session_close(struct nxl_xfer_session *session, const char *reason, uint64_t at_ns)
{
    NXL_ASSERT(!session->closed);
    session->closed = 1;
    session->closed_ns = at_ns;
    session->xfer->closed++;
    (void)nxl_copy_text(session->reason, sizeof(session->reason), reason);
    for (uint32_t i = 0; i < session->xfer->call_count; i++)
        if (session->xfer->calls[i].session == session)
            session->xfer->calls[i].open = 0;
}

void nxl_xfer_session_room(struct nxl_xfer_session *session)
{
    NXL_ASSERT(!session->closed);
    session->xfer->room++;
}

enum nxl_code nxl_xfer_peer_open(struct nxl_xfer_session *session, const char *name,
                                 uint32_t *ret_id, char *ret_incarnation, size_t room,
                                 struct nxl_err *err)
{
    enum nxl_code code = verdict(session, "peer_open", err);

    if (code != NXL_OK)
        return code;
    texts(session->xfer, name, "", "");
    *ret_id = ++session->xfer->used.peer_open;
    (void)nxl_copy_text(ret_incarnation, room, "pod/container/1");
    return NXL_OK;
}

enum nxl_code nxl_xfer_peer_close(struct nxl_xfer_session *session, uint32_t peer,
                                  struct nxl_err *err)
{
    session->xfer->used.peer_close++;
    session->xfer->last.peer = peer;
    return verdict(session, "peer_close", err);
}

/* ---- memory ------------------------------------------------------------------------------ */

enum nxl_code nxl_xfer_register(struct nxl_xfer_session *session, uint32_t peer,
                                const struct nxl_xfer_region *regions, uint32_t count,
                                const int *fds, uint32_t fd_count, uint64_t *ret_ids,
                                struct nxl_err *err)
{
    struct nxl_xfer *xfer = session->xfer;
    enum nxl_code code = verdict(session, "register", err);

    xfer->used.reg++;
    xfer->last.peer = peer;
    xfer->last.count = count;
    xfer->last.fd_count = fd_count;
    memcpy(xfer->last.regions, regions, items(count) * sizeof(regions[0]));
    memset(xfer->last.file, 0, sizeof(xfer->last.file));
    if (fd_count > 0 && pread(fds[0], xfer->last.file, sizeof(xfer->last.file) - 1, 0) < 0)
        return nxl_err_set(err, NXL_IO, 0, "the descriptor cannot be read");
    if (code != NXL_OK)
        return code;
    for (uint32_t i = 0; i < count; i++)
        ret_ids[i] = 100 + i;
    return NXL_OK;
}

static void later(struct nxl_xfer_session *session, nxl_xfer_reply_fn *fn,
                  nxl_xfer_deregistered_fn *deregistered, void *arg, uint32_t count)
{
    struct nxl_xfer *xfer = session->xfer;

    NXL_ASSERT(!session->closed && xfer->call_count < FAKE_CALLS_MAX);
    xfer->calls[xfer->call_count++] = (struct fake_call){.session = session,
                                                         .fn = fn,
                                                         .deregistered = deregistered,
                                                         .arg = arg,
                                                         .count = count,
                                                         .open = 1};
    if (xfer->answer_now)
        fake_xfer_answer(xfer, xfer->call_count - 1, NXL_OK, NULL);
}

void fake_xfer_answer(struct nxl_xfer *xfer, uint32_t index, enum nxl_code code,
                      const struct nxl_xfer_remote_info *info)
{
    struct fake_call *call = &xfer->calls[index];
    struct nxl_err err = {0};
    uint8_t done[FAKE_ITEMS_MAX] = {0};

    NXL_ASSERT(index < xfer->call_count && call->open);
    call->open = 0;
    if (code != NXL_OK)
        (void)nxl_err_set(&err, code, 0, "the call failed, says the test");
    if (call->deregistered)
        call->deregistered(call->arg, done, call->count, code, code == NXL_OK ? NULL : &err);
    else
        call->fn(call->arg, code, info, code == NXL_OK ? NULL : &err);
}

void nxl_xfer_deregister(struct nxl_xfer_session *session, uint32_t peer,
                         const uint64_t *region_ids, uint32_t count, uint64_t timeout_ns,
                         nxl_xfer_deregistered_fn *fn, void *arg)
{
    session->xfer->used.deregister++;
    session->xfer->last.peer = peer;
    session->xfer->last.timeout_ns = timeout_ns;
    ids_keep(session->xfer, region_ids, count);
    later(session, NULL, fn, arg, count);
}

/* ---- lists ------------------------------------------------------------------------------- */

static void runs_keep(struct nxl_xfer *xfer, const struct nxl_run *runs, uint32_t count)
{
    xfer->last.count = count;
    memcpy(xfer->last.runs, runs, items(count) * sizeof(runs[0]));
}

enum nxl_code nxl_xfer_list(struct nxl_xfer_session *session, uint32_t peer, uint32_t remote,
                            uint32_t kind, uint32_t list, const struct nxl_run *runs,
                            uint32_t count, int more, uint32_t *ret_list, uint64_t *ret_size,
                            struct nxl_err *err)
{
    struct nxl_xfer *xfer = session->xfer;
    enum nxl_code code = verdict(session, "list", err);

    xfer->used.list++;
    xfer->last.peer = peer;
    xfer->last.remote = remote;
    xfer->last.kind = kind;
    xfer->last.list = list;
    xfer->last.more = more;
    runs_keep(xfer, runs, count);
    if (code != NXL_OK)
        return code;
    *ret_list = list ? list : 5;
    *ret_size = count;
    return NXL_OK;
}

enum nxl_code nxl_xfer_list_free(struct nxl_xfer_session *session, uint32_t list,
                                 struct nxl_err *err)
{
    session->xfer->used.list_free++;
    session->xfer->last.list = list;
    return verdict(session, "list_free", err);
}

enum nxl_code nxl_xfer_check(struct nxl_xfer_session *session, uint32_t peer, uint32_t remote,
                             uint32_t kind, const struct nxl_run *runs, uint32_t count,
                             struct nxl_err *err)
{
    struct nxl_xfer *xfer = session->xfer;

    xfer->used.check++;
    xfer->last.peer = peer;
    xfer->last.remote = remote;
    xfer->last.kind = kind;
    runs_keep(xfer, runs, count);
    return verdict(session, "check", err);
}

/* ---- metadata ---------------------------------------------------------------------------- */

enum nxl_code nxl_xfer_metadata(struct nxl_xfer_session *session, uint32_t peer, uint32_t flags,
                                const uint64_t *region_ids, uint32_t count, struct nxl_bytes *to,
                                struct nxl_err *err)
{
    struct nxl_xfer *xfer = session->xfer;

    xfer->used.metadata++;
    xfer->last.peer = peer;
    xfer->last.flags = flags;
    ids_keep(xfer, region_ids, count);
    for (uint32_t i = 0; i < xfer->blob_size; i++)
        nxl_bytes_put_u8(to, 'b');
    return verdict(session, "metadata", err);
}

void nxl_xfer_load(struct nxl_xfer_session *session, uint32_t peer, struct nxl_view blob,
                   uint64_t timeout_ns, nxl_xfer_reply_fn *fn, void *arg)
{
    struct nxl_xfer *xfer = session->xfer;

    xfer->used.load++;
    xfer->last.peer = peer;
    xfer->last.timeout_ns = timeout_ns;
    xfer->last.blob_size = blob.size;
    xfer->last.blob_first = blob.size ? *(const unsigned char *)blob.data : 0;
    later(session, fn, NULL, arg, 0);
}

void nxl_xfer_fetch(struct nxl_xfer_session *session, uint32_t peer, const char *name,
                    const char *label, const char *address, uint64_t timeout_ns,
                    nxl_xfer_reply_fn *fn, void *arg)
{
    session->xfer->used.fetch++;
    session->xfer->last.peer = peer;
    session->xfer->last.timeout_ns = timeout_ns;
    texts(session->xfer, name, label, address);
    later(session, fn, NULL, arg, 0);
}

void nxl_xfer_send(struct nxl_xfer_session *session, uint32_t peer, const char *label,
                   const char *address, uint32_t flags, const uint64_t *region_ids, uint32_t count,
                   nxl_xfer_reply_fn *fn, void *arg)
{
    session->xfer->used.send++;
    session->xfer->last.peer = peer;
    session->xfer->last.flags = flags;
    ids_keep(session->xfer, region_ids, count);
    texts(session->xfer, "", label, address);
    later(session, fn, NULL, arg, 0);
}

void nxl_xfer_withdraw(struct nxl_xfer_session *session, uint32_t peer, const char *address,
                       nxl_xfer_reply_fn *fn, void *arg)
{
    session->xfer->used.withdraw++;
    session->xfer->last.peer = peer;
    texts(session->xfer, "", "", address);
    later(session, fn, NULL, arg, 0);
}

void nxl_xfer_connect(struct nxl_xfer_session *session, uint32_t peer, uint32_t remote,
                      uint64_t timeout_ns, nxl_xfer_reply_fn *fn, void *arg)
{
    session->xfer->used.connect++;
    session->xfer->last.peer = peer;
    session->xfer->last.remote = remote;
    session->xfer->last.timeout_ns = timeout_ns;
    later(session, fn, NULL, arg, 0);
}

enum nxl_code nxl_xfer_invalidate(struct nxl_xfer_session *session, uint32_t peer, uint32_t remote,
                                  struct nxl_err *err)
{
    session->xfer->used.invalidate++;
    session->xfer->last.peer = peer;
    session->xfer->last.remote = remote;
    return verdict(session, "invalidate", err);
}

static void info_fill(struct nxl_xfer_remote_info *ret)
{
    *ret = (struct nxl_xfer_remote_info){
        .remote = 9,
        .name = "decode",
        .incarnation = "pod/container/2",
        .life = NXL_LIFE_DRAINING,
        .suspect = 1,
        .same_agent = 1,
        .regions = 80,
        .agent = "node-b",
    };
}

enum nxl_code nxl_xfer_find(struct nxl_xfer_session *session, uint32_t peer, const char *name,
                            struct nxl_xfer_remote_info *ret, struct nxl_err *err)
{
    enum nxl_code code = verdict(session, "find", err);

    session->xfer->used.find++;
    session->xfer->last.peer = peer;
    texts(session->xfer, name, "", "");
    if (code == NXL_OK)
        info_fill(ret);
    return code;
}

enum nxl_code nxl_xfer_state(struct nxl_xfer_session *session, uint32_t peer, uint32_t remote,
                             struct nxl_xfer_remote_info *ret, struct nxl_err *err)
{
    enum nxl_code code = verdict(session, "state", err);

    session->xfer->used.state++;
    session->xfer->last.peer = peer;
    session->xfer->last.remote = remote;
    if (code == NXL_OK)
        info_fill(ret);
    return code;
}

/* ---- transfers --------------------------------------------------------------------------- */

static void post_keep(struct nxl_xfer *xfer, const struct nxl_xfer_post *post)
{
    size_t local = items(post->count),
           remote = items(post->remote_runs ? post->remote_count : post->count);

    memset(&xfer->posted, 0, sizeof(xfer->posted));
    xfer->posted.post = *post;
    if (post->local_index)
        memcpy(xfer->posted.local_index, post->local_index, local * sizeof(uint32_t));
    if (post->remote_index)
        memcpy(xfer->posted.remote_index, post->remote_index, remote * sizeof(uint32_t));
    if (post->local_runs)
        memcpy(xfer->posted.local_runs, post->local_runs, local * sizeof(struct nxl_run));
    if (post->remote_runs)
        memcpy(xfer->posted.remote_runs, post->remote_runs, remote * sizeof(struct nxl_run));
    if (post->notice.size > 0 && post->notice.size < sizeof(xfer->posted.notice))
        memcpy(xfer->posted.notice, post->notice.data, post->notice.size);
}

void nxl_xfer_post(struct nxl_xfer_session *session, const struct nxl_xfer_post *post)
{
    struct nxl_xfer_slot slot = {.generation = post->generation, .state = NXL_RING_RUNNING};

    NXL_ASSERT(!session->closed);
    session->xfer->used.post++;
    post_keep(session->xfer, post);
    if (!session->xfer->finish_posts)
        return;
    session->front->slot(session->front_arg, post->slot, &slot);
    slot.state = NXL_RING_DONE;
    slot.quiet = 1;
    slot.device = "memory";
    slot.bytes = post->count;
    session->front->slot(session->front_arg, post->slot, &slot);
}

int nxl_xfer_reusable(const struct nxl_xfer_session *session, uint32_t slot)
{
    (void)slot;
    return session->xfer->reusable;
}

void nxl_xfer_cancel(struct nxl_xfer_session *session, uint32_t slot, uint32_t generation)
{
    session->xfer->used.cancel++;
    session->xfer->last.slot = slot;
    session->xfer->last.generation = generation;
}

void nxl_xfer_release(struct nxl_xfer_session *session, uint32_t slot)
{
    session->xfer->used.release++;
    session->xfer->last.slot = slot;
}

void nxl_xfer_notify(struct nxl_xfer_session *session, uint32_t peer, uint32_t remote,
                     struct nxl_view payload)
{
    struct nxl_xfer *xfer = session->xfer;

    xfer->used.notify++;
    xfer->last.peer = peer;
    xfer->last.remote = remote;
    xfer->last.blob_size = payload.size;
    xfer->last.blob_first = payload.size ? *(const unsigned char *)payload.data : 0;
}

enum nxl_code nxl_xfer_explain(struct nxl_xfer_session *session, uint32_t slot, struct nxl_err *ret)
{
    session->xfer->used.explain++;
    session->xfer->last.slot = slot;
    if (session->xfer->refuse != NXL_OK)
        return nxl_err_set(ret, NXL_NOT_FOUND, 0, "slot %u has not failed", slot);
    (void)nxl_err_set(ret, NXL_BACKEND, 5, "slot %u: the far side went away", slot);
    return NXL_OK;
}
