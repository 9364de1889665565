/* hello.c - who is there: version, cluster, token, and the node that the token is bound to; then
 * WELCOME with a certificate, and the first snapshot. Loop thread. */
#include "push/push_internal.h"

#include "base/mem.h"
#include "push/authority.h"

#include <openssl/sha.h>
#include <stdlib.h>
#include <string.h>

#define TOKENS_MAX 16384u
#define REFUSED_NS (5 * NXL_SEC) /* the same bad token is not asked about again so soon */

/* ---- tokens ------------------------------------------------------------------------------- */

static void token_free(struct nxl_push *push, struct push_token *token)
{
    HASH_DEL(push->tokens, token);
    free(token);
}

void push_tokens_fini(struct nxl_push *push)
{
    while (push->tokens != NULL)
        token_free(push, push->tokens);
}

static struct push_token *token_find(struct nxl_push *push, const unsigned char *digest)
{
    struct push_token *token;

    HASH_FIND(hh, push->tokens, digest, sizeof(token->digest), token);
    if (token != NULL && nxl_now_ns() >= token->until_ns) {
        token_free(push, token);
        return NULL;
    }
    return token;
}

static struct push_token *token_keep(struct nxl_push *push, const unsigned char *digest)
{
    struct push_token *token = token_find(push, digest);

    if (token != NULL)
        token_free(push, token);
    if (HASH_COUNT(push->tokens) >= TOKENS_MAX)
        token_free(push, push->tokens); /* the oldest */
    token = nxl_new0(sizeof(*token));
    memcpy(token->digest, digest, sizeof(token->digest));
    HASH_ADD(hh, push->tokens, digest, sizeof(token->digest), token);
    return token;
}

/* ---- certificates ------------------------------------------------------------------------- */

void push_sign(struct push_conn *conn, const char *csr, struct nxl_bytes *to)
{
    struct nxl_push *push = conn->push;
    struct nxl_err err;

    if (push->authority == NULL || csr[0] == '\0')
        return;
    if (nxl_authority_sign(push->authority, (struct nxl_view){csr, strlen(csr)}, conn->node->name,
                           conn->pod, NXL_AUTHORITY_DAY_S, to, &err) != NXL_OK) {
        nxl_warn("push", "event=\"request not signed\" node=%s why=%s", nxl_quote(conn->node->name),
                 nxl_quote(err.text));
        nxl_bytes_clear(to);
        return;
    }
    nxl_bytes_put(to, "", 1);
    nxl_metric_add(push->metrics.issued, 1);
}

/* ---- welcome ------------------------------------------------------------------------------ */

static int is_replaced(const struct push_conn *conn, const struct push_conn *other)
{
    return strcmp(conn->agent, other->agent) == 0;
}

/* One connection of one agent; several agents only as long as an upgrade takes. */
static int node_takes(struct push_conn *conn)
{
    struct push_conn *other = conn->node->conns, *next;
    uint32_t count = 0;

    for (; other != NULL; other = next) {
        next = other->node_next;
        if (is_replaced(conn, other))
            push_conn_fail(other, PUSH_FAIL_REPLACED, "its agent has connected anew");
        else
            count++;
    }
    return count < PUSH_NODE_CONNS_MAX;
}

static void welcome(struct push_conn *conn)
{
    struct nxl_push *push = conn->push;
    struct nxl_stream_frame frame = {.type = NXL_STREAM_WELCOME,
                                     .version = NXL_STREAM_VERSION_MAX,
                                     .operator_id = push->id,
                                     .epoch = push->epoch,
                                     .ping_ms = (uint32_t)(push->limits.ping_ns / NXL_MS)};
    struct nxl_bytes cert = {0};
    struct nxl_push_agent agent;

    push_sign(conn, conn->hello.csr != NULL ? conn->hello.csr : "", &cert);
    if (cert.size > 0) {
        frame.cert = (const char *)cert.data;
        frame.bundle = nxl_authority_bundle(push->authority);
    }
    push_conn_say(conn, &frame);
    nxl_bytes_fini(&cert);
    free(conn->hello.csr);
    conn->hello.csr = NULL;
    /* Spread, so that the pings of a herd do not come as one. */
    conn->ping_ns = nxl_now_ns() + push->limits.ping_ns * (push->next_ticket++ % 16) / 16;
    if (push->synced)
        push_snapshot(conn);
    conn->told = 1;
    nxl_info("push", "event=\"agent here\" node=%s agent=%s peer=%s", nxl_quote(conn->node->name),
             nxl_quote(conn->agent), nxl_quote(nxl_tls_peer(conn->tls)));
    if (push->ops->on_agent == NULL)
        return;
    push_conn_show(conn, &agent);
    push->ops->on_agent(push->arg, &agent, 1);
}

static void accept_agent(struct push_conn *conn, const char *node, const char *pod)
{
    struct nxl_push *push = conn->push;

    if (node[0] == '\0') {
        push_conn_refuse(conn, PUSH_FAIL_TOKEN, NXL_NOT_ALLOWED,
                         "the token is bound to no node; mount a projected token into the pod");
        return;
    }
    if (strcmp(node, conn->hello.node) != 0) {
        push_conn_refuse(conn, PUSH_FAIL_TOKEN, NXL_NOT_ALLOWED,
                         "the token is of node %s, and the hello says %s", nxl_quote(node),
                         nxl_quote(conn->hello.node));
        return;
    }
    if (push->live_count >= push->limits.agents) {
        push_conn_refuse(conn, PUSH_FAIL_LIMIT, NXL_LIMIT, "stream.agents_max (%u) is reached",
                         push->limits.agents);
        return;
    }
    conn->node = push_node_get(push, node);
    (void)nxl_copy_text(conn->agent, sizeof(conn->agent), conn->hello.agent);
    (void)nxl_copy_text(conn->pod, sizeof(conn->pod), pod);
    if (!node_takes(conn)) {
        push_conn_refuse(conn, PUSH_FAIL_LIMIT, NXL_LIMIT, "node %s has %u agents already", node,
                         PUSH_NODE_CONNS_MAX);
        return;
    }
    conn->node_next = conn->node->conns;
    conn->node->conns = conn;
    conn->state = CONN_LIVE;
    conn->since_ns = nxl_now_ns();
    push->live_count++;
    nxl_metric_set(push->metrics.agents, push->live_count);
    push_accept_resume(push);
    welcome(conn);
}

static void token_apply(struct push_conn *conn, const struct push_token *token)
{
    if (token->code == NXL_OK)
        accept_agent(conn, token->node, token->pod);
    else
        push_conn_refuse(conn, PUSH_FAIL_TOKEN, token->code, "token: %s", token->why);
}

void push_hello_drop(struct push_conn *conn)
{
    if (conn->hello.ticket == 0)
        return;
    HASH_DEL(conn->push->tickets, conn);
    conn->hello.ticket = 0;
}

void nxl_push_token_checked(struct nxl_push *push, uint64_t ticket, enum nxl_code code,
                            const struct nxl_push_identity *identity, const char *why)
{
    struct push_conn *conn;
    struct push_token *token;

    HASH_FIND(hh, push->tickets, &ticket, sizeof(ticket), conn);
    if (conn == NULL)
        return; /* it has gone meanwhile */
    push_hello_drop(conn);
    token = token_keep(push, conn->hello.token);
    token->code = code;
    token->until_ns = nxl_now_ns() + (code == NXL_OK ? push->limits.token_ns : REFUSED_NS);
    (void)nxl_copy_text(token->why, sizeof(token->why), why != NULL ? why : "");
    if (code == NXL_OK) {
        (void)nxl_copy_text(token->node, sizeof(token->node), identity->node);
        (void)nxl_copy_text(token->pod, sizeof(token->pod),
                            identity->pod != NULL ? identity->pod : "");
    } else if (nxl_code_retryable(code)) {
        token->until_ns = 0; /* the API server could not be asked: nothing is known of the token */
    }
    token_apply(conn, token);
}

static void token_ask(struct push_conn *conn, const char *text)
{
    struct nxl_push *push = conn->push;
    struct push_token *token;

    (void)SHA256((const unsigned char *)text, strlen(text), conn->hello.token);
    token = token_find(push, conn->hello.token);
    if (token != NULL) {
        token_apply(conn, token);
        return;
    }
    nxl_metric_add(push->metrics.tokens, 1);
    conn->state = CONN_TOKEN;
    conn->hello.ticket = ++push->next_ticket;
    HASH_ADD(hh, push->tickets, hello.ticket, sizeof(conn->hello.ticket), conn);
    push->ops->check_token(push->arg, conn->hello.ticket, text);
}

/* ---- hello -------------------------------------------------------------------------------- */

static int is_name(const char *text)
{
    return text[0] != '\0' &&
           strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_") ==
               strlen(text);
}

void push_on_hello(struct push_conn *conn, const struct nxl_stream_frame *frame)
{
    struct nxl_push *push = conn->push;

    if (frame->version_min > NXL_STREAM_VERSION_MAX ||
        frame->version_max < NXL_STREAM_VERSION_MIN) {
        push_conn_refuse(conn, PUSH_FAIL_VERSION, NXL_VERSION,
                         "the agent speaks stream versions %u to %u, this operator %u to %u",
                         frame->version_min, frame->version_max, NXL_STREAM_VERSION_MIN,
                         NXL_STREAM_VERSION_MAX);
        return;
    }
    if (strcmp(frame->cluster, push->cluster) != 0) {
        push_conn_refuse(conn, PUSH_FAIL_TOKEN, NXL_NOT_ALLOWED,
                         "the agent is of cluster %s, this operator of %s",
                         nxl_quote(frame->cluster), nxl_quote(push->cluster));
        return;
    }
    if (!is_name(frame->node) || frame->agent[0] == '\0') {
        push_conn_refuse(conn, PUSH_FAIL_FRAME, NXL_MISMATCH,
                         "stream frame HELLO: fields 'node' and 'agent' do not name an agent");
        return;
    }
    (void)nxl_copy_text(conn->hello.node, sizeof(conn->hello.node), frame->node);
    (void)nxl_copy_text(conn->hello.agent, sizeof(conn->hello.agent), frame->agent);
    if (frame->csr[0] != '\0')
        conn->hello.csr = nxl_strdup(frame->csr);
    token_ask(conn, frame->token);
}
