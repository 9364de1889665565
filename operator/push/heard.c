/* heard.c - what connected agents say: acknowledgements, digests, facts about their own node, and
 * requests for certificates. Nothing is believed about another node. Loop thread. */
#include "push/push_internal.h"

#include "base/mem.h"
#include "push/authority.h"

#include <string.h>

#define CERT_PAUSE_NS (10 * NXL_SEC)
#define SNAPSHOT_PAUSE_NS (2 * NXL_SEC)
#define SNAPSHOT_PAUSE_MAX_NS (60 * NXL_SEC)

static void on_ack(struct push_conn *conn, const struct nxl_stream_frame *frame)
{
    struct nxl_push *push = conn->push;
    const struct push_seq *entry = &push->history[frame->seq % PUSH_HISTORY];
    struct nxl_push_agent agent;
    uint64_t now = nxl_now_ns();

    if (frame->seq > conn->sent_seq || frame->seq <= conn->acked_seq)
        return; /* nothing that it was told, or said before */
    conn->acked_seq = frame->seq;
    if (entry->seq == frame->seq) {
        struct push_group *group =
            entry->group < push->group_room ? push->group_by_index[entry->group] : NULL;
        uint64_t took = now - entry->at_ns;

        nxl_metric_observe(push->metrics.latency, took / NXL_US);
        if (group != NULL && group->seq == frame->seq && took > group->slowest_ns)
            group->slowest_ns = took;
    }
    if (frame->purged > 0)
        nxl_metric_observe(push->metrics.fence, frame->us);
    if (push->ops->on_ack == NULL)
        return;
    push_conn_show(conn, &agent);
    push->ops->on_ack(push->arg, &agent, frame->seq, frame->purged, frame->us);
}

/* A wrong digest heals by a snapshot; if it does not, each further one waits longer. */
static void on_pong(struct push_conn *conn, const struct nxl_stream_frame *frame)
{
    uint64_t now = nxl_now_ns();

    if (conn->asked_ns == 0 || frame->at_ns != conn->asked_ns || conn->needs_snapshot)
        return;
    conn->asked_ns = 0;
    if (frame->digest == conn->asked_digest) {
        conn->snapshot_pause_ns = 0;
        return;
    }
    nxl_metric_add(conn->push->metrics.mismatches, 1);
    if (now - conn->snapshot_ns < conn->snapshot_pause_ns)
        return;
    conn->snapshot_pause_ns =
        conn->snapshot_pause_ns == 0 ? SNAPSHOT_PAUSE_NS : conn->snapshot_pause_ns * 2;
    if (conn->snapshot_pause_ns > SNAPSHOT_PAUSE_MAX_NS)
        conn->snapshot_pause_ns = SNAPSHOT_PAUSE_MAX_NS;
    nxl_warn("push", "event=\"digest differs, sending a snapshot\" node=%s agent=%s",
             nxl_quote(conn->node->name), nxl_quote(conn->agent));
    push_snapshot(conn);
}

/* ---- facts -------------------------------------------------------------------------------- */

static int facts_allowed(struct push_conn *conn, uint32_t count)
{
    uint64_t now = nxl_now_ns();

    if (now - conn->facts_ns >= NXL_SEC) {
        conn->facts_ns = now;
        conn->facts = 0;
    }
    conn->facts += count;
    return conn->facts <= conn->push->limits.facts;
}

static void refuse_fact(struct push_conn *conn, const char *id, const char *why)
{
    nxl_metric_add(conn->push->metrics.facts_refused, 1);
    if (nxl_log_gate_open(&conn->push->gate, 5))
        nxl_warn("push", "event=\"fact refused\" node=%s id=%s why=%s", nxl_quote(conn->node->name),
                 nxl_quote(id), nxl_quote(why));
}

static void on_local(struct push_conn *conn, const struct nxl_stream_frame *frame)
{
    struct nxl_push *push = conn->push;
    struct nxl_push_agent agent;

    push_conn_show(conn, &agent);
    for (uint32_t i = 0; i < frame->member_count && !conn->dead; i++) {
        const struct nxl_stream_member *fact = &frame->members[i];
        const struct push_record *record = push_record_find(push, fact->id);

        if (record == NULL)
            refuse_fact(conn, fact->id, "no such member is known");
        else if (record->node != conn->node)
            refuse_fact(conn, fact->id, "the pod is not on that node");
        else if (!facts_allowed(conn, 1))
            refuse_fact(conn, fact->id, "stream.facts_rate is reached");
        else if (push->ops->on_local != NULL)
            push->ops->on_local(push->arg, &agent, fact);
    }
    if (frame->pod_count > 0 && push->ops->on_pods != NULL && !conn->dead)
        push->ops->on_pods(push->arg, &agent, frame->pods, frame->pod_count);
}

static void on_suspect(struct push_conn *conn, const struct nxl_stream_frame *frame)
{
    struct nxl_push *push = conn->push;
    struct nxl_push_agent agent;

    if (!facts_allowed(conn, 1)) {
        refuse_fact(conn, frame->id, "stream.facts_rate is reached");
        return;
    }
    if (push->ops->on_suspect == NULL)
        return;
    push_conn_show(conn, &agent);
    push->ops->on_suspect(push->arg, &agent, frame->id, frame->node, frame->text);
}

static void on_cert(struct push_conn *conn, const struct nxl_stream_frame *frame)
{
    struct nxl_push *push = conn->push;
    struct nxl_stream_frame answer = {.type = NXL_STREAM_CERT};
    uint64_t now = nxl_now_ns();
    struct nxl_bytes cert = {0};

    if (conn->cert_ns != 0 && now - conn->cert_ns < CERT_PAUSE_NS) {
        refuse_fact(conn, "certificate", "it asks more than once in 10 s");
        return;
    }
    conn->cert_ns = now;
    push_sign(conn, frame->csr, &cert);
    if (cert.size > 0) {
        answer.cert = (const char *)cert.data;
        answer.bundle = nxl_authority_bundle(push->authority);
        push_conn_say(conn, &answer);
    }
    nxl_bytes_fini(&cert);
}

void push_on_frame(struct push_conn *conn, const struct nxl_stream_frame *frame)
{
    switch (frame->type) {
    case NXL_STREAM_PONG:
        on_pong(conn, frame);
        break;
    case NXL_STREAM_ACK:
        on_ack(conn, frame);
        break;
    case NXL_STREAM_LOCAL:
        on_local(conn, frame);
        break;
    case NXL_STREAM_SUSPECT:
        on_suspect(conn, frame);
        break;
    case NXL_STREAM_CERT:
        on_cert(conn, frame);
        break;
    case NXL_STREAM_GOAWAY:
        push_conn_fail(conn, PUSH_FAIL_TLS, "it said goodbye: %s", frame->text);
        break;
    case NXL_STREAM_NONE:
        break; /* a later version's */
    default:
        push_conn_refuse(conn, PUSH_FAIL_FRAME, NXL_MISMATCH,
                         "an agent does not send frames of that type");
        break;
    }
}
