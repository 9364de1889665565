/* link_rig.h - agents' link ends in one loop, a TCP proxy between them that can cut and swallow,
 * and certificates from deploy/certs.sh. */
#ifndef NXL_TESTS_LINK_RIG_H
#define NXL_TESTS_LINK_RIG_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/loop.h"
#include "base/mem.h"
#include "base/metric.h"
#include "base/option.h"
#include "cluster/link.h"

#define SIDE_NOTICES_MAX 4096
#define SETTINGS_END NULL

/* One agent: its links and what they told. */
struct side {
    struct nxl_loop *loop;
    struct nxl_settings *settings;
    struct nxl_metrics *metrics;
    struct nxl_links *links;
    char node[64], agent[128];
    struct nxl_message_backend backends[1];
    unsigned ups, downs, gones, suspects, recovers, messages;
    char why[NXL_ERR_TEXT_SIZE]; /* of the last down or gone */
    char gone_agent[128];
    struct nxl_link *up_link; /* of the last up */
    uint64_t last_request;    /* of the last message */
    enum nxl_code answer;     /* what on_notice returns */
    uint32_t answer_after;    /* on_notice returns NXL_AGAIN for this many calls first */
    uint64_t transfers[SIDE_NOTICES_MAX]; /* notices taken, in order */
    unsigned notices, offers;
    unsigned ends;
    int32_t ended[SIDE_NOTICES_MAX]; /* per cookie: 1 + -code, so 0 means: not ended */
    void (*on_message)(struct side *side, struct nxl_link *link, const struct nxl_message *message);
    void (*on_up)(struct side *side, struct nxl_link *link);
    void (*on_notice)(struct side *side, struct nxl_link *link);
};

/* Settings are key, value, ... SETTINGS_END; link.insecure=true, listen=127.0.0.1:0 and quick
 * timers are set first. */
void side_open(struct side *side, struct nxl_loop *loop, const char *node, const char *agent, ...);
/* Like side_open, but hands the error on; nothing is open then. */
enum nxl_code side_try_open(struct side *side, struct nxl_loop *loop, const char *node,
                            const char *agent, const char *const *settings, struct nxl_err *err);
void side_close(struct side *side);
int side_port(const struct side *side); /* the real one */
struct nxl_link *side_dial(struct side *side, const char *address, const char *agent);
struct nxl_link *side_link(const struct side *side, const struct side *other);
int side_is_up(const struct side *side, const struct side *other);
void side_notify(struct side *side, struct nxl_link *link,
                 uint64_t number); /* transfer and cookie = number */
int side_ended(const struct side *side, uint64_t number, enum nxl_code code);
int64_t side_metric(struct side *side, const char *name,
                    const char *labels); /* from the rendered text; -1: none */

/* Runs the loop until the expression is true; fails after 20 s with its text. */
#define WAIT(loop, expr)                                                                           \
    do {                                                                                           \
        uint64_t wait_end_ = nxl_now_ns() + 20 * NXL_SEC;                                          \
        int wait_done_;                                                                            \
        while (!(wait_done_ = !!(expr)) && nxl_now_ns() < wait_end_)                               \
            rig_turn(loop);                                                                        \
        if (!wait_done_)                                                                           \
            fail_msg("never came: %s", #expr);                                                     \
    } while (0)
void rig_turn(struct nxl_loop *loop);             /* what is ready, or 1 ms */
void rig_run(struct nxl_loop *loop, uint64_t ns); /* for proving that nothing happens */

struct proxy;
struct proxy *proxy_open(struct nxl_loop *loop);
void proxy_target(struct proxy *proxy, int port);
const char *proxy_address(const struct proxy *proxy); /* "127.0.0.1:port" */
void proxy_cut(struct proxy *proxy);                  /* ends what runs now */
void proxy_swallow(struct proxy *proxy, int on);      /* keeps connections, moves no byte */
void proxy_refuse(struct proxy *proxy, int on);       /* new connections end at once */
unsigned proxy_accepted(const struct proxy *proxy);
unsigned proxy_running(const struct proxy *proxy);
void proxy_close(struct proxy *proxy);

/* A fresh folder with authority and certificates; path is lent until the next call. */
void certs_make(char *folder, size_t room, const char *cluster, const char *days,
                ...); /* nodes..., NULL */
void certs_remove(const char *folder);

/* A blocking stranger on loopback with a 5 s limit, driven from the test while the loop runs in
 * turns. */
int raw_connect(int port);
int raw_listen(int *ret_port);
void raw_send(int fd, const void *data, size_t size);
/* One whole frame (body without size), running the loop meanwhile; 0: connection ended, -1: nothing
 * for 5 s. */
int raw_frame(struct nxl_loop *loop, int fd, struct nxl_bytes *body);
int raw_ended(struct nxl_loop *loop,
              int fd); /* 1 if the far side ends the connection within 5 s; drops bytes */
void raw_hello(struct nxl_bytes *to, unsigned min, unsigned max, const char *cluster,
               const char *node, const char *agent);

#endif
