/* link.c - one far agent: up, down, suspect, gone; pings; dialling again. Called by the connection
 * rooms below and by xfer above. Loop thread. */
#include "cluster/link_internal.h"

#include "base/assert.h"
#include "base/fd.h"
#include "base/loop.h"
#include "base/mem.h"
#include "cluster/identity.h"

#include <stdio.h>

/* ---- dialling again ----------------------------------------------------------------------- */

static int we_are_smaller(const struct nxl_link *link)
{
    return nxl_identity_order(link->links->node, link->links->agent, link->node, link->agent) < 0;
}

static void link_on_retry(void *arg)
{
    link_dial(arg);
}

static void link_dial_after(struct nxl_link *link, uint64_t delay_ns)
{
    if (link->retry == NULL)
        link->retry = nxl_timer_open(link->links->loop, link_on_retry, link);
    nxl_timer_start(link->retry, delay_ns, 0);
}

static void link_retry(struct nxl_link *link)
{
    uint64_t half = link->backoff_ns / 2;

    link_dial_after(link, half + nxl_random_u64() % (half + 1));
    link->backoff_ns *= 2;
    if (link->backoff_ns > link->links->backoff_max_ns)
        link->backoff_ns = link->links->backoff_max_ns;
}

/* Both sides dial again after a cut; the one whose connection would stay begins, so few cross. */
static uint64_t first_backoff(const struct nxl_link *link)
{
    if (!link->ever_up)
        return LINK_BACKOFF_MIN;
    return we_are_smaller(link) ? LINK_BACKOFF_MIN / 2 : 2 * LINK_BACKOFF_MIN;
}

void link_start(struct nxl_link *link)
{
    link->backoff_ns = first_backoff(link);
    link_dial_after(link, 0);
}

static void tell_down(struct nxl_link *link, const char *why)
{
    struct nxl_links *links = link->links;

    link->told_up = 0;
    links->ops->on_down(links->arg, link, why);
}

void link_dial_failed(struct nxl_link *link, const char *why)
{
    if (link->over)
        return;
    if (strcmp(why, link->last_why) != 0) {
        (void)nxl_copy_text(link->last_why, sizeof(link->last_why), why);
        nxl_warn("link", "event=dial_failed address=%s agent=%s why=%s next=\"dial again\"",
                 link->address, nxl_quote(link->agent), nxl_quote(why));
    }
    if (link->conn != NULL || link_dial_next(link))
        return;
    tell_down(link, why);
    if (!link->over && link->conn == NULL)
        link_retry(link);
}

void link_lost(struct nxl_link *link, const char *why, int quiet)
{
    struct nxl_links *links = link->links;

    link->conn = NULL;
    nxl_metric_move(links->metrics.up, -1);
    notices_detach(link);
    if (!quiet) {
        nxl_info("link", "event=down agent=%s address=%s why=%s next=\"dial again\"", link->agent,
                 link->address, nxl_quote(why));
        tell_down(link, why);
    }
    if (link->over || link->conn != NULL || link->trying != NULL || link->resolve != NULL)
        return;
    link->backoff_ns = first_backoff(link);
    link_retry(link);
}

/* ---- pings and suspicion ------------------------------------------------------------------ */

void link_heard(struct nxl_link *link)
{
    link->last_rx_ns = nxl_now_ns();
}

void link_ping(struct nxl_link *link)
{
    struct nxl_message ping = {.type = NXL_MESSAGE_PING};
    struct nxl_err err;

    link->next_ping_ns = nxl_now_ns() + link->links->ping_ns;
    if (link->conn == NULL || conn_backlog(link->conn) >= LINK_OUT_MAX)
        return; /* whatever waits there proves as much as a ping would */
    ping.sequence = ++link->ping_sequence;
    ping.at_ns = nxl_now_ns();
    (void)conn_put(link->conn, &ping, &err); /* two numbers always fit a frame */
}

void link_pong(struct nxl_link *link, const struct nxl_message *pong)
{
    uint64_t now = nxl_now_ns();

    if (pong->at_ns <= now && pong->sequence <= link->ping_sequence)
        nxl_metric_observe(link->links->metrics.rtt, (now - pong->at_ns) / NXL_US);
}

static int is_silent(const struct nxl_link *link, uint64_t now)
{
    return link->ever_up && !link->suspect && now >= link->last_rx_ns + link->links->suspect_ns;
}

static void link_suspect(struct nxl_link *link)
{
    struct nxl_links *links = link->links;
    unsigned long long ms = (nxl_now_ns() - link->last_rx_ns) / NXL_MS;

    link->suspect = 1;
    nxl_metric_add(links->metrics.suspects, 1);
    nxl_warn("link",
             "event=suspect agent=%s address=%s silent_ms=%llu note=\"not dead because of that\"",
             link->agent, link->address, ms);
    links->ops->on_suspect(links->arg, link, 1);
    if (!link->over && link->conn != NULL)
        conn_fail(link->conn, LINK_FAIL_TIMEOUT,
                  "nothing was heard for %llu ms (link.suspect_after)", ms);
}

static void beat_rearm(struct nxl_link *link, uint64_t now)
{
    uint64_t next = UINT64_MAX;

    if (link->conn != NULL)
        next = link->next_ping_ns;
    if (link->ever_up && !link->suspect && link->last_rx_ns + link->links->suspect_ns < next)
        next = link->last_rx_ns + link->links->suspect_ns;
    link->beat_due_ns = next > now ? next : now;
    if (next != UINT64_MAX)
        nxl_timer_start(link->beat, link->beat_due_ns - now, 0);
}

/* What this process slept through (stopped, starved, a blocked loop) is not the far side's silence.
 */
static void forgive_own_stop(struct nxl_link *link, uint64_t now)
{
    uint64_t late = now > link->beat_due_ns ? now - link->beat_due_ns : 0;

    if (late < link->links->ping_ns / 2)
        return;
    link->last_rx_ns += late;
    if (link->last_rx_ns > now)
        link->last_rx_ns = now;
}

static void link_on_beat(void *arg)
{
    struct nxl_link *link = arg;
    uint64_t now = nxl_now_ns();

    forgive_own_stop(link, now);
    if (link->conn != NULL && now >= link->next_ping_ns)
        link_ping(link);
    if (link->conn != NULL && link->conn->paused)
        link->last_rx_ns = now; /* it is we who do not listen */
    if (is_silent(link, now) && link->conn != NULL)
        conn_read(link->conn); /* what lies in the socket counts: timers run before descriptors are
                                  read */
    if (!link->over && is_silent(link, now))
        link_suspect(link);
    if (!link->over)
        beat_rearm(link, now);
}

/* ---- up ----------------------------------------------------------------------------------- */

static void keep_hello(struct nxl_link *link, const struct nxl_message *hello)
{
    (void)nxl_copy_text(link->node, sizeof(link->node), hello->node);    /* the decoder knows */
    (void)nxl_copy_text(link->told, sizeof(link->told), hello->address); /* the same limits */
    if (link->address[0] == '\0')
        (void)nxl_copy_text(link->address, sizeof(link->address), hello->address);
    nxl_bytes_clear(&link->backend_bytes);
    link->backend_count = hello->backend_count;
    for (uint32_t i = 0; i < hello->backend_count; i++)
        nxl_bytes_put(&link->backend_bytes, hello->backends[i].address.data,
                      hello->backends[i].address.size);
    for (size_t at = 0, i = 0; i < hello->backend_count; i++) { /* the bytes move no more */
        link->backends[i] = hello->backends[i];
        link->backends[i].address.data =
            link->backend_bytes.data != NULL ? link->backend_bytes.data + at : NULL;
        at += hello->backends[i].address.size;
    }
}

/* Makes conn the one connection. What else is there or on its way ends without a word to ops. */
static void take_conn(struct nxl_link *link, struct conn *conn)
{
    struct conn *old = link->conn;

    if (conn->state != CONN_UP && !conn->outbound) {
        link->links->half_open--;
        links_accept_resume(link->links);
    }
    conn->state = CONN_UP;
    conn->link = link;
    nxl_timer_stop(conn->timer);
    if (link->trying == conn)
        link->trying = NULL;
    link->conn = conn;
    if (old != NULL) {
        notices_detach(link);
        conn_refuse(old, NXL_BUSY, "another connection between these agents stays");
    } else {
        nxl_metric_move(link->links->metrics.up, 1);
    }
    /* A dial of ours that said its hello may be the one that the far side keeps. */
    if (link->trying == NULL || link->trying->state < CONN_HELLO || !we_are_smaller(link))
        link_dial_cancel(link);
    if (link->retry != NULL)
        nxl_timer_stop(link->retry);
}

void link_attach(struct nxl_link *link, struct conn *conn, const struct nxl_message *hello)
{
    struct nxl_links *links = link->links;
    uint64_t now = nxl_now_ns();

    keep_hello(link, hello);
    take_conn(link, conn);
    if (link->ever_up)
        nxl_metric_add(links->metrics.reconnects, 1);
    link->last_why[0] = '\0';
    link->last_rx_ns = now;
    link->next_ping_ns = now + links->ping_ns;
    link->ever_up = 1;
    if (link->beat == NULL)
        link->beat = nxl_timer_open(links->loop, link_on_beat, link);
    nxl_info("link", "event=up agent=%s node=%s peer=%s dialled_by=%s tls=%d", link->agent,
             link->node, conn->peer, conn->outbound ? "us" : "them", conn->ssl != NULL);
    if (link->suspect) {
        link->suspect = 0;
        links->ops->on_suspect(links->arg, link, 0);
    }
    if (link->over || link->conn != conn)
        return;
    beat_rearm(link, now);
    link->told_up = 1;
    links->ops->on_up(links->arg, link);
    if (!link->over && link->conn == conn)
        notices_attach(link, hello->sequence);
}

/* ---- the end ------------------------------------------------------------------------------ */

void link_end(struct nxl_link *link, int dead, struct nxl_link *heir, const char *why)
{
    struct nxl_links *links = link->links;
    struct conn *conn = link->conn;
    char text[NXL_ERR_TEXT_SIZE]; /* why may lie in what is freed below */

    if (link->over)
        return;
    (void)nxl_copy_text(text, sizeof(text), why);
    link->over = 1;
    link->conn = NULL;
    nxl_info("link", "event=gone agent=%s address=%s why=%s", nxl_quote(link->agent), link->address,
             nxl_quote(text));
    if (conn != NULL) {
        nxl_metric_move(links->metrics.up, -1);
        notices_detach(link);
        conn_refuse(conn, NXL_STALE, text);
    }
    link_dial_cancel(link);
    nxl_timer_close(NXL_TAKE(link->retry));
    nxl_timer_close(NXL_TAKE(link->beat));
    if (link->agent[0] != '\0')
        links_remember_end(link, dead);
    links_bury_link(link); /* freed in the next turn */
    if (heir != NULL)
        notices_move(link, heir);
    else
        notices_end_all(link, text);
    links->ops->on_gone(links->arg, link, text);
}

void nxl_link_drop(struct nxl_link *link, const char *why)
{
    link_end(link, 1, NULL, why);
}

/* ---- for xfer ----------------------------------------------------------------------------- */

int nxl_link_up(const struct nxl_link *link)
{
    return link->conn != NULL && !link->conn->broken;
}

int nxl_link_suspect(const struct nxl_link *link)
{
    return link->suspect;
}

const char *nxl_link_agent(const struct nxl_link *link)
{
    return link->agent;
}

const char *nxl_link_node(const struct nxl_link *link)
{
    return link->node;
}

const char *nxl_link_address(const struct nxl_link *link)
{
    return link->address;
}

const struct nxl_message_backend *nxl_link_backends(const struct nxl_link *link,
                                                    uint32_t *ret_count)
{
    *ret_count = link->backend_count;
    return link->backends;
}

void *nxl_link_user(const struct nxl_link *link)
{
    return link->user;
}

void nxl_link_set_user(struct nxl_link *link, void *user)
{
    link->user = user;
}

enum nxl_code nxl_link_send(struct nxl_link *link, const struct nxl_message *message,
                            struct nxl_err *err)
{
    if (message->type <= NXL_MESSAGE_NOTICE_ACK || message->type >= NXL_MESSAGE_TYPES)
        return nxl_err_set(err, NXL_INVALID_PARAM, 0, "send: message type %u is not for callers",
                           message->type);
    if (link->over || !nxl_link_up(link))
        return nxl_err_set(err, NXL_UNREACHABLE, 0, "link to agent '%s' at %s is down: %s",
                           link->agent, link->address,
                           link->over ? "it is over" : "it is being dialled again");
    if (conn_backlog(link->conn) >= LINK_OUT_MAX)
        return nxl_err_set(err, NXL_LIMIT, 0,
                           "link to agent '%s': %zu bytes wait already: it reads too slowly",
                           link->agent, conn_backlog(link->conn));
    return conn_put(link->conn, message, err);
}
