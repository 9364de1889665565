/* rig.h - node agents without front and store, all on one loop: real engines over real hosts,
 * backends and links. Clients are fronts that keep what they are told and check that it is told
 * once. One thread, besides those of the backends. */
#ifndef NXL_TESTS_XFER_RIG_H
#define NXL_TESTS_XFER_RIG_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/loop.h"
#include "base/mem.h"
#include "base/metric.h"
#include "base/option.h"
#include "cluster/link.h"
#include "host/host.h"
#include "wire/ring.h"
#include "xfer/events.h"
#include "xfer/xfer.h"

struct nxl_directory;

#define RIG_ENGINES 2
#define CLIENT_ADDR 0x7000000000ull /* a name: nobody may dereference it */
#define CLIENT_SIZE (1u << 20)

struct engine { /* one node agent */
    struct nxl_metrics *metrics;
    struct nxl_settings *settings;
    struct nxl_hosts *hosts;
    struct nxl_links *links;
    struct nxl_directory *directory;
    struct nxl_xfer *xfer;
    char node[32], agent[64];
    struct nxl_message_backend addresses[NXL_BACKENDS_MAX];
};

struct rig {
    struct nxl_loop *loop;
    struct engine engines[RIG_ENGINES];
    uint32_t count;
};
/* The first agent, node-a. Settings are key, value, ..., NULL. */
void rig_open(struct rig *rig, const char *backends, ...);
void rig_open_list(struct rig *rig, const char *backends, va_list settings);
/* One more; returns it. */
struct engine *rig_join(struct rig *rig, const char *node, const char *backends, ...);
/* Ends in the order of the node; all clients must be closed. */
void rig_close(struct rig *rig);
/* Says goodbye to the other agents and ends. */
void rig_engine_close(struct rig *rig, struct engine *engine);
void rig_turn(struct rig *rig);              /* delivers, then what is ready or at most 10 ms */
void rig_skip(struct rig *rig, uint64_t ns); /* the clock of all agents jumps ahead */
int64_t rig_metric(struct engine *engine, const char *name, const char *labels); /* -1: none */

/* Turns until the expression is true; fails after 20 s with its text. */
#define WAIT(rig, expr)                                                                            \
    do {                                                                                           \
        uint64_t wait_end_ = nxl_now_ns() + 20 * NXL_SEC;                                          \
        int wait_done_;                                                                            \
        while (!(wait_done_ = !!(expr)) && nxl_now_ns() < wait_end_)                               \
            rig_turn(rig);                                                                         \
        if (!wait_done_)                                                                           \
            fail_msg("never came: %s", #expr);                                                     \
    } while (0)

/* ---- a client ------------------------------------------------------------------------------ */

struct end { /* of one post */
    uint32_t slot;
    struct nxl_xfer_slot last;
    uint32_t updates; /* 1; 2 when it became quiet only later */
    uint32_t events;  /* that were there when it ended */
};
struct seen {
    uint32_t kind, peer;
    int32_t code;
    uint64_t transfer;
    char name[64], incarnation[NXL_INCARNATION_MAX + 1], text[512];
    size_t size;
    unsigned char byte; /* of the client's memory at watch_at, when it came */
    uint32_t ends;      /* that were there when it came */
};
struct client {
    struct rig *rig;
    struct engine *engine;
    struct nxl_xfer_session *session;
    uint32_t number, peer;
    char name[64], ns[64], incarnation[NXL_INCARNATION_MAX + 1];
    int fd;
    unsigned char *base; /* its own mapping of its memory */
    uint64_t region;
    struct end *ends;
    struct seen *seen;
    uint32_t end_count, seen_count;
    uint32_t generation; /* of its last post */
    int full;            /* its notice ring has no room */
    uint64_t watch_at;
    struct nxl_xfer_post post;
    struct nxl_run local, remote;
};
/* A session with one peer and CLIENT_SIZE bytes registered at CLIENT_ADDR. */
void client_open(struct client *client, struct rig *rig, struct engine *engine, const char *ns,
                 const char *name);
void client_open_bare(struct client *client, struct rig *rig, struct engine *engine, const char *ns,
                      const char *name);  /* nothing registered */
void client_close(struct client *client); /* ends its session, too, if that still runs */
void client_gone(struct client *client);  /* its process died: no callback may come any more */
enum nxl_code client_register(struct client *client, uint64_t at, uint64_t len, uint64_t *ret_id,
                              struct nxl_err *err);
/* Fills client->post with one descriptor in one-call form; the test may alter it. */
struct nxl_xfer_post *client_prepare(struct client *client, uint32_t slot, enum nxl_op_kind op,
                                     uint32_t remote, uint64_t local_at, uint64_t remote_at,
                                     uint64_t len);
uint32_t client_post(struct client *client); /* posts it under a new generation, returns that */
/* NULL while it has not ended. */
const struct end *client_end(const struct client *client, uint32_t generation);
int client_ended(const struct client *client, uint32_t generation, enum nxl_code code, int quiet);
uint32_t client_events(const struct client *client, uint32_t kind);          /* how many came */
const struct seen *client_event(const struct client *client, uint32_t kind); /* the last */

struct reply {
    uint32_t count; /* asserted to stay below 2 */
    enum nxl_code code;
    uint32_t remote, life, suspect, same_agent;
    uint64_t regions;
    char name[64], incarnation[NXL_INCARNATION_MAX + 1], text[NXL_ERR_TEXT_SIZE];
};
void reply_take(void *arg, enum nxl_code code, const struct nxl_xfer_remote_info *info,
                const struct nxl_err *err);
/* Loads the other's full metadata; returns the remote's id. */
uint32_t client_load(struct client *client, struct client *other);
void client_blob(struct client *client, uint32_t flags, const uint64_t *ids, uint32_t count,
                 struct nxl_bytes *to);
/* Loads a blob and waits for the answer. */
void client_load_blob(struct client *client, struct nxl_view blob, struct reply *reply);

struct gone {
    uint32_t count, done, regions;
    enum nxl_code code;
    char text[NXL_ERR_TEXT_SIZE];
};
void gone_take(void *arg, const uint8_t *done, uint32_t count, enum nxl_code code,
               const struct nxl_err *err);

/* ---- the hand: a backend whose operations end when the test says so -------------------------- */

/* Moves the bytes when an operation ends well; local, and between engines of one rig. */
extern const struct nxl_backend_ops hand_ops;
struct hand { /* one opened instance */
    struct nxl_host *host;
    const struct nxl_op *ops[64];
    uint64_t ids[64];
    uint32_t submits, cancels, mems, conns, remotes, disconnects;
    enum nxl_code submit_code, register_code, deregister_code, import_code;
    struct nxl_backend_conn *last_conn;
};
/* Of an engine whose backends have it, as those of all engines before it do; else NULL. */
struct hand *hand_of(struct rig *rig, const struct engine *engine);
void hand_end(struct hand *hand, uint32_t index, int code, int quiet);
void hand_end_all(struct hand *hand); /* as cancelled and quiet */
/* Where it would read or write at the other side. */
unsigned char *hand_far_memory(struct hand *hand, uint32_t index);
void hand_quiet(struct hand *hand, uint32_t index);

/* ---- the usual bed: two clients of one agent, the first has loaded the second --------------- */

struct bed {
    struct rig rig;
    struct engine *engine;
    struct client from, to;
    uint32_t remote;
    struct hand *hand; /* NULL without that backend */
};
struct bed *bed_new(const char *backends, ...); /* settings as in rig_open() */
void bed_free(struct bed *bed);
int bed_teardown(void **state);
/* 4 KiB from the start of `from` to the second 4 KiB of `to`. */
uint32_t bed_write(struct bed *bed, uint32_t slot);

#endif
