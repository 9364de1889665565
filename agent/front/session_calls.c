/* session_calls.c - requests whose answer xfer gives later: a small record leads the answer back to
 * its seq, and goes when the session ends. Loop thread. */
#include "front/session.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

#include <stdlib.h>

/* NULL: refused and answered. */
static struct front_call *call_open(struct front_session *session, const struct nxl_frame *in)
{
    struct nxl_err err = {0};
    struct front_call *call;

    if (session->call_count >= session->front->limits.calls_max) {
        enum nxl_code code = nxl_err_set(
            &err, NXL_LIMIT, 0, "%u calls of this session wait for an answer (socket.calls_max)",
            session->call_count);

        front_refuse(session, in->type, in->seq, code, &err);
        return NULL;
    }
    call = nxl_new0(sizeof(*call));
    call->session = session;
    call->seq = in->seq;
    call->type = in->type;
    call->next = session->calls;
    if (session->calls)
        session->calls->prev = call;
    session->calls = call;
    session->call_count++;
    return call;
}

static struct front_call call_take(struct front_call *call)
{
    struct front_call copy = *call;

    if (call->prev)
        call->prev->next = call->next;
    else
        call->session->calls = call->next;
    if (call->next)
        call->next->prev = call->prev;
    call->session->call_count--;
    free(call);
    return copy;
}

void front_calls_drop(struct front_session *session)
{
    while (session->calls)
        (void)call_take(session->calls);
}

void front_remote_answer(struct front_session *session, uint16_t type, uint32_t seq,
                         const struct nxl_xfer_remote_info *info)
{
    struct nxl_frame *out = front_reply(session, type, seq);

    if (info) {
        out->remote = info->remote;
        /* Both were checked when they came in; a cut text would only shorten a display. */
        (void)nxl_copy_text(out->name, sizeof(out->name), info->name ? info->name : "");
        (void)nxl_copy_text(out->incarnation, sizeof(out->incarnation),
                            info->incarnation ? info->incarnation : "");
    }
    front_reply_send(session);
}

static void call_on_answer(void *arg, enum nxl_code code, const struct nxl_xfer_remote_info *info,
                           const struct nxl_err *err)
{
    struct front_call call = call_take(arg);
    struct nxl_err none = {0};

    if (code == NXL_OK)
        front_remote_answer(call.session, call.type, call.seq, info);
    else
        front_refuse(call.session, call.type, call.seq, code, err ? err : &none);
}

static void call_on_deregistered(void *arg, const uint8_t *done, uint32_t count, enum nxl_code code,
                                 const struct nxl_err *err)
{
    (void)done; /* one answer for all: on an error the client asks for each by itself */
    (void)count;
    call_on_answer(arg, code, NULL, err);
}

static uint64_t call_timeout(const struct front_session *session, const struct nxl_frame *in)
{
    return in->timeout_ms ? in->timeout_ms * NXL_MS : session->front->limits.call_timeout_ns;
}

void front_load_take(struct front_session *session, const struct nxl_frame *in)
{
    struct front_call *call = call_open(session, in);

    if (call)
        nxl_xfer_load(session->xfer, in->peer, (struct nxl_view){in->blob, in->blob_size},
                      call_timeout(session, in), call_on_answer, call);
}

void front_send_take(struct front_session *session, const struct nxl_frame *in)
{
    struct front_call *call = call_open(session, in);

    if (call)
        nxl_xfer_send(session->xfer, in->peer, in->label, in->address, in->flags, in->ids,
                      in->count, call_on_answer, call);
}

void front_fetch_take(struct front_session *session, const struct nxl_frame *in)
{
    struct nxl_err err = {0};
    struct front_call *call;

    if (!nxl_name_valid(in->name)) {
        enum nxl_code code = nxl_err_set(&err, NXL_INVALID_PARAM, 0, "peer name %s cannot exist",
                                         nxl_quote(in->name));

        front_refuse(session, in->type, in->seq, code, &err);
        return;
    }
    call = call_open(session, in);
    if (call) /* 0: what is not there now is not waited for */
        nxl_xfer_fetch(session->xfer, in->peer, in->name, in->label, in->address,
                       in->timeout_ms * NXL_MS, call_on_answer, call);
}

void front_withdraw_take(struct front_session *session, const struct nxl_frame *in)
{
    struct front_call *call = call_open(session, in);

    if (call)
        nxl_xfer_withdraw(session->xfer, in->peer, in->address, call_on_answer, call);
}

void front_connect_take(struct front_session *session, const struct nxl_frame *in)
{
    struct front_call *call = call_open(session, in);

    if (call)
        nxl_xfer_connect(session->xfer, in->peer, in->remote, call_timeout(session, in),
                         call_on_answer, call);
}

void front_deregister_take(struct front_session *session, const struct nxl_frame *in)
{
    struct front_call *call = call_open(session, in);

    if (call)
        nxl_xfer_deregister(session->xfer, in->peer, in->ids, in->count, call_timeout(session, in),
                            call_on_deregistered, call);
}
