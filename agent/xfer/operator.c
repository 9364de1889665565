/* operator.c - what operators say, done: the dead are fenced before it is acknowledged, a zombie of
 * our own node with them; suspicion is passed on; and what happens here is told. Loop thread. */
#include "xfer/policy.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "cluster/stream.h"
#include "xfer/events.h"
#include "xfer/request.h"

void nxl_xfer_attach_operators(struct nxl_xfer *xfer, struct nxl_members *members,
                               struct nxl_stream *stream)
{
    xfer->members = members;
    xfer->stream = stream;
}

/* ---- life --------------------------------------------------------------------------------- */

/* A pod is gone for Kubernetes while its process still runs here: its peers end like those of a
 * client that left. */
static uint32_t zombies_end(struct nxl_xfer *xfer, const char *prefix, const char *reason)
{
    struct nxl_xfer_session *session, *next_session;
    uint32_t ended = 0;

    HASH_ITER(hh, xfer->sessions, session, next_session)
    {
        struct xfer_peer *peer, *next;

        HASH_ITER(hh, session->peers, peer, next)
        {
            if (!nxl_incarnation_covers(prefix, peer->peer->incarnation))
                continue;
            nxl_warn("life", "event=\"zombie fenced\" peer=%s reason=%s",
                     nxl_quote(xfer_show(peer->peer)), nxl_quote(reason));
            xfer_peer_end(peer, reason);
            ended++;
        }
    }
    return ended;
}

static void on_dead(struct nxl_xfer *xfer, const char *prefix, const char *reason)
{
    if (xfer->operator_debt == NULL)
        xfer->operator_debt = xfer_debt_owe_operator(xfer);
    xfer->operator_debt->purged += zombies_end(xfer, prefix, reason);
    xfer->debt = xfer->operator_debt; /* what leaves now counts on it */
    xfer->operator_debt->purged +=
        nxl_catalog_set_life(xfer->catalog, prefix, NXL_LIFE_DEAD, reason);
    xfer->debt = NULL;
}

static void on_life(void *arg, const char *prefix, enum nxl_life life, const char *reason)
{
    struct nxl_xfer *xfer = arg;

    nxl_debug("life", "event=fact prefix=%s life=%d witness=operator", nxl_quote(prefix),
              (int)life);
    if (life == NXL_LIFE_DEAD) {
        on_dead(xfer, prefix, reason);
        return;
    }
    xfer->epoch++; /* kept plans are checked anew: a draining pod takes no new transfers */
    (void)nxl_catalog_set_life(xfer->catalog, prefix, life, reason);
}

static void on_fence(void *arg, uint64_t ticket)
{
    struct nxl_xfer *xfer = arg;

    if (xfer->operator_debt == NULL) {
        nxl_stream_fenced(xfer->stream, ticket, 0);
        return;
    }
    xfer->operator_debt->sequence = ticket;
    xfer_debt_paid(NXL_TAKE(xfer->operator_debt));
}

static void say_suspect(void *arg, struct nxl_catalog_peer *peer)
{
    unsigned char flag = (unsigned char)peer->suspect;

    xfer_event_loaders(arg, peer, XFER_EVENT_PEER_SUSPECT, 0, (struct nxl_view){&flag, 1});
}

static void on_suspect(void *arg, const char *prefix, int suspect, const char *reason)
{
    struct nxl_xfer *xfer = arg;

    nxl_info("life", "event=%s prefix=%s reason=%s witness=operator",
             suspect ? "suspect" : "cleared", nxl_quote(prefix), nxl_quote(reason));
    (void)nxl_catalog_set_suspect(xfer->catalog, prefix, suspect, say_suspect, xfer);
}

static void on_policy(void *arg, const char *group)
{
    (void)group;
    xfer_policy_changed(arg);
}

static void on_drained(void *arg, const char *prefix)
{
    struct nxl_xfer *xfer = arg;
    struct xfer_request *request = xfer->all, *next;

    for (; request != NULL; request = next) {
        next = request->next_all;
        if (request->state == XFER_RUNNING && request->target != NULL && request->local != NULL &&
            (nxl_incarnation_covers(prefix, request->target->incarnation) ||
             nxl_incarnation_covers(prefix, request->local->incarnation)))
            xfer_request_stop(request, NXL_REMOTE_DISCONNECT, "the pod's time to drain is up");
    }
}

const struct nxl_members_ops nxl_xfer_members_ops = {
    .on_life = on_life, .on_suspect = on_suspect, .on_policy = on_policy, .on_drained = on_drained};
static void on_second(void *arg)
{
    xfer_policy_review(arg);
}

const struct nxl_stream_ops nxl_xfer_stream_ops = {.on_fence = on_fence, .on_second = on_second};

/* ---- told to operators -------------------------------------------------------------------- */

void xfer_operators_tell(struct nxl_xfer *xfer, const char *incarnation, const char *reason)
{
    if (xfer->stream != NULL)
        nxl_stream_tell(xfer->stream, incarnation, NXL_LIFE_DEAD, reason);
}

void xfer_operators_tell_pods(struct nxl_xfer *xfer)
{
    struct nxl_xfer_session *session, *next;
    char(*uids)[NXL_LABEL_MAX + 1];
    const char **list;
    uint32_t count = 0;

    if (xfer->stream == NULL)
        return;
    uids = nxl_new0_array(HASH_COUNT(xfer->sessions) + 1, sizeof(*uids));
    list = nxl_new0_array(HASH_COUNT(xfer->sessions) + 1, sizeof(*list));
    HASH_ITER(hh, xfer->sessions, session, next)
    {
        size_t size = nxl_stream_uid_size(session->prefix);
        uint32_t i = 0;

        memcpy(uids[count], session->prefix, size < NXL_LABEL_MAX ? size : NXL_LABEL_MAX);
        while (strcmp(uids[i], uids[count]) != 0)
            i++;
        if (i < count) { /* two clients of one pod */
            memset(uids[count], 0, sizeof(*uids));
            continue;
        }
        list[count] = uids[count];
        count++;
    }
    nxl_stream_pods(xfer->stream, list, count);
    free(list);
    free(uids);
}

void xfer_operators_tell_suspect(struct nxl_xfer *xfer, const char *agent)
{
    char node[NXL_NODE_MAX + 1];

    if (xfer->stream == NULL || nxl_copy_text(node, sizeof(node), agent) != 0)
        return;
    node[nxl_stream_uid_size(node)] = '\0'; /* "node/agent/..." */
    nxl_stream_tell_suspect(xfer->stream, "", node, "its agent does not answer on the link");
}
