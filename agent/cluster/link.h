/* link.h - one authenticated connection to each other node agent: handshake, pings, typed messages,
 * and notices that arrive exactly once across reconnects. Loop thread.
 *
 * A link is known by the far agent's incarnation. Between two agents one connection lives: of two
 * that cross, the one dialled by the agent with the smaller node name stays. Messages keep their
 * order on a connection; only notices survive a reconnect. */
#ifndef NXL_CLUSTER_LINK_H
#define NXL_CLUSTER_LINK_H

#include "cluster/message.h"

struct nxl_loop;
struct nxl_metrics;
struct nxl_trust;
struct nxl_links; /* all links of this agent, and the listener */
struct nxl_link;  /* one far agent; lent until on_gone returned */

struct nxl_links_ops {
    /* Handshake done (again): the far agent's identity and backend addresses are known. */
    void (*on_up)(void *arg, struct nxl_link *link);
    /* The connection broke or is silent, or a dial failed (then maybe before the first up, and
     * again); it is dialled again. Nothing is dead because of that. */
    void (*on_down)(void *arg, struct nxl_link *link, const char *why);
    /* The far agent said goodbye, or another incarnation answered at its address: this one is over.
     * Also of a link whose agent was not known yet ("") and turned out to be linked already: asking
     * nxl_links_get() for the same address then gives that link; its notices moved there. */
    void (*on_gone)(void *arg, struct nxl_link *link, const char *why);
    /* Pings stay out for suspect_after (1) or came again (0). */
    void (*on_suspect)(void *arg, struct nxl_link *link, int suspect);
    /* A checked message; message is lent for the call. */
    void (*on_message)(void *arg, struct nxl_link *link, const struct nxl_message *message);
    /* A notice, once. NXL_OK: taken (acknowledged). NXL_AGAIN: hold, call nxl_links_resume() later.
     * Any other code: refused for good; the sender is told. */
    enum nxl_code (*on_notice)(void *arg, struct nxl_link *link, const struct nxl_message *notice);
    /* A notice we sent was taken (NXL_OK), refused, or can never arrive (REMOTE_DISCONNECT). Once.
     */
    void (*on_notice_end)(void *arg, uint64_t cookie, enum nxl_code code, const char *why);
};

struct nxl_links_options {
    struct nxl_loop *loop;
    struct nxl_metrics *metrics;
    const struct nxl_settings *settings; /* section "link", declared by nxl_links_declare() */
    const char *cluster, *node, *agent;  /* agent: our agent incarnation "node/boot/random" */
    /* Addresses of our backends, told in the handshake; borrowed until close. */
    const struct nxl_message_backend *backends;
    uint32_t backend_count;
    struct nxl_trust *trust; /* borrowed; NULL: opened from cert, key and ca unless insecure */
    const struct nxl_links_ops *ops;
    void *arg;
};

/* Options: listen (host:port, port 0 allowed; default 0.0.0.0:7741), advertise (host:port, default
 * derived), cert, key, ca (PEM paths), insecure (bool), ping (1s), suspect_after (3s),
 * connect_timeout (2s), backoff_max (5s), notices_max, notice_bytes_max, frame_max, links_max. */
struct nxl_settings;
void nxl_links_declare(struct nxl_settings *settings);
/* Listens. insecure without the far side's consent is refused at the handshake. */
NXL_MUST_USE enum nxl_code nxl_links_open(const struct nxl_links_options *options,
                                          struct nxl_links **ret, struct nxl_err *err);
/* Says goodbye; bounded by 200 ms. No callback runs any more, and all links are gone. Not from a
 * callback. */
void nxl_links_close(struct nxl_links *links);
const char *
nxl_links_address(const struct nxl_links *links); /* "host:port" others dial, real port */
/* Finds or dials. agent NULL or "": whoever answers at address (then ops->on_up tells who). Never
 * blocks; the link exists at once and is up later. NXL_LIMIT, NXL_INVALID_PARAM (address;
 * ourselves), NXL_REMOTE_DISCONNECT (agent is known to be over). */
NXL_MUST_USE enum nxl_code nxl_links_get(struct nxl_links *links, const char *address,
                                         const char *agent, struct nxl_link **ret,
                                         struct nxl_err *err);
struct nxl_link *nxl_links_find(struct nxl_links *links, const char *agent); /* NULL if none */
int nxl_links_each(struct nxl_links *links, int (*fn)(void *arg, struct nxl_link *link), void *arg);

int nxl_link_up(const struct nxl_link *link);
int nxl_link_suspect(const struct nxl_link *link);
const char *nxl_link_agent(const struct nxl_link *link); /* "" until first up */
const char *nxl_link_node(const struct nxl_link *link); /* from the certificate when there is one */
const char *nxl_link_address(const struct nxl_link *link);
const struct nxl_message_backend *nxl_link_backends(const struct nxl_link *link,
                                                    uint32_t *ret_count);
void *nxl_link_user(const struct nxl_link *link); /* xfer's */
void nxl_link_set_user(struct nxl_link *link, void *user);
/* NXL_UNREACHABLE while down (not queued). NXL_LIMIT: the far side reads too slowly. */
NXL_MUST_USE enum nxl_code nxl_link_send(struct nxl_link *link, const struct nxl_message *message,
                                         struct nxl_err *err);
/* Queues a notice (type NXL_MESSAGE_NOTICE), up or down; ends through on_notice_end. NXL_LIMIT. */
NXL_MUST_USE enum nxl_code nxl_link_notice(struct nxl_link *link, const struct nxl_message *notice,
                                           uint64_t cookie, struct nxl_err *err);
void nxl_links_resume(struct nxl_links *links); /* after on_notice said NXL_AGAIN */
/* Drops a link for good (its agent is dead by a trusted fact): its notices end. on_gone is called.
 */
void nxl_link_drop(struct nxl_link *link, const char *why);

#endif
