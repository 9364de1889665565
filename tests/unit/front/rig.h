/* rig.h - a front on a loop with a fake engine, and clients that speak its protocol by hand, all in
 * one thread. */
#ifndef NXL_TESTS_FRONT_RIG_H
#define NXL_TESTS_FRONT_RIG_H

#include "base/loop.h"
#include "base/metric.h"
#include "base/option.h"
#include "front/front.h"
#include "support/fake_xfer.h"
#include "wire/frame.h"
#include "wire/ring.h"

struct rig {
    struct nxl_loop *loop;
    struct nxl_metrics *metrics;
    struct nxl_settings *settings;
    struct nxl_xfer *xfer;
    struct nxl_front *front;
    struct nxl_poller *poller;
    uint32_t wakes; /* options.wake() calls */
    char folder[64], path[96];
};
/* pairs: "frames_per_turn", "2", ..., NULL. Opens nothing that rig_close() does not close. */
void rig_open(struct rig *rig, ...);
void rig_close(struct rig *rig);
void rig_front_close(struct rig *rig);
int rig_run(struct rig *rig, int (*done)(void *arg), void *arg); /* done(arg) within 10 s */
void rig_turns(struct rig *rig, unsigned turns);                 /* at least so many loop turns */
int64_t rig_metric(struct rig *rig, const char *name, const char *labels);
int fd_count(void); /* of this process */

struct raw { /* one client */
    struct rig *rig;
    int fd;
    uint32_t seq;
    struct nxl_frame *out, *in; /* in: the last frame that came */
    int fds[8];
    uint32_t fd_count;
    struct nxl_ring ring; /* after raw_welcome() */
    void *map;
    int file, doorbell, wake;
};
void raw_open(struct raw *raw, struct rig *rig); /* connects */
void raw_close(struct raw *raw);
struct nxl_frame *raw_frame(struct raw *raw, uint16_t type);      /* prepares raw->out */
int raw_send(struct raw *raw, const int *fds, uint32_t fd_count); /* raw->out; 0 or errno */
int raw_send_bytes(struct raw *raw, const void *data, size_t size);
int raw_recv(struct raw *raw); /* 1: a frame, 0: nothing now, -1: the socket has ended */
int raw_wait(struct raw *raw); /* turns the loop until a frame came or the socket ended */
enum nxl_code raw_ask(struct raw *raw, const int *fds,
                      uint32_t fd_count); /* out, then its answer */
void raw_hello_fill(struct raw *raw, uint32_t slots, uint64_t arena, uint64_t notices);
void raw_welcome(
    struct raw *raw); /* HELLO with 16 slots, 64 KiB arena, 4 KiB notices; maps the ring */
void raw_welcome_sized(struct raw *raw, uint32_t slots, uint64_t arena, uint64_t notices);
void raw_submit(struct raw *raw, const struct nxl_ring_entry *entry); /* and rings the doorbell */
int raw_ended(void *raw); /* for rig_run(): its socket has ended; frames before that are read */
uint64_t raw_word(struct raw *raw, uint32_t slot);

#endif
