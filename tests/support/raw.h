/* raw.h - a client that speaks the local protocol by hand, so that it can also speak it wrongly.
 * Nothing here is a promise kept: whoever uses it may send any bytes, scribble over the ring and
 * go away at any moment. Waiting is bounded; a step of the test's own that fails aborts it. */
#ifndef NXL_TESTS_RAW_H
#define NXL_TESTS_RAW_H

#include "support/cluster.h"
#include "wire/frame.h"
#include "wire/ring.h"

#define RAW_GONE (-1000) /* the agent closed the socket: raw->goaway holds what it said */
#define RAW_MUTE (-1001) /* no answer within the deadline */

struct raw {
    int fd, file, doorbell, wake; /* -1: none */
    uint32_t seq, peer;
    struct nxl_frame *out, *in; /* the request being made; the last frame that came */
    char goaway[NXL_ERR_TEXT_SIZE];
    void *map;
    struct nxl_ring ring;
    unsigned char packet[NXL_FRAME_MAX];
};

void raw_connect(struct raw *raw, struct cluster *c, int agent);
/* HELLO; maps the ring. The code of the answer. */
int raw_hello(struct raw *raw, uint32_t slots, uint64_t arena, uint64_t notices);
/* Connects, says HELLO (64 slots, 1 MiB arena, 4 KiB notices) and opens a peer of that name. */
void raw_open(struct raw *raw, struct cluster *c, int agent, const char *name);
void raw_close(struct raw *raw); /* without a word; accepts what is closed */

/* Prepares raw->out with this session's peer. */
struct nxl_frame *raw_frame(struct raw *raw, uint16_t type);
/* Sends raw->out; the code of its answer, which is in raw->in (text: why not), or RAW_*. */
int raw_call(struct raw *raw, const int *fds, uint32_t fd_count);
/* Sends raw->out and does not wait: 0 or errno. */
int raw_send(struct raw *raw, const int *fds, uint32_t fd_count);
int raw_send_bytes(struct raw *raw, const void *data, size_t size, const int *fds,
                   uint32_t fd_count);
/* Encodes raw->out into raw->packet for those who want to spoil it; its size. */
size_t raw_encode(struct raw *raw);
/* Reads one frame. 1: it is in raw->in, 0: none within timeout_ms, -1: the socket has ended. */
int raw_recv(struct raw *raw, int timeout_ms);
/* 1 if the agent ends the session within timeout_ms; what it said is in raw->goaway. */
int raw_ended(struct raw *raw, int timeout_ms);
/* 1 if the session still answers: an EXPLAIN of slot 0 comes back. */
int raw_alive(struct raw *raw);

/* One region at addr over the file's first size bytes: the code; *ret_id may be NULL. */
int raw_register(struct raw *raw, int file, uint64_t addr, uint64_t size, uint64_t *ret_id);
/* Name, through this agent: the remote's id, or 0. */
uint32_t raw_find(struct raw *raw, const char *name);
/* A list of one run over remote (0: own memory); the code, *ret the list. */
int raw_list(struct raw *raw, uint32_t remote, struct nxl_run run, uint32_t *ret);
/* A memfd of that size, sealed against shrinking if sealed is 1. */
int raw_memfd(uint64_t size, int sealed);

/* Into the submission ring, as a client does; rings the doorbell whether or not it must. Blocks at
 * most 30 s on a full ring; 0: it stayed full. */
int raw_submit(struct raw *raw, const struct nxl_ring_entry *entry);
void raw_ring_bell(struct raw *raw);
/* A post of one descriptor in the one-call form; runs lie in the arena at 64 * slot. */
int raw_post(struct raw *raw, uint32_t slot, uint32_t generation, uint32_t remote,
             const struct nxl_run *local, const struct nxl_run *far, unsigned flags);
/* The slot's state of that generation once it has ended, 0 if it does not in time; the code. */
int raw_slot_wait(struct raw *raw, uint32_t slot, uint32_t generation, int *ret_code);
/* Why the post of that slot failed. */
const char *raw_explain(struct raw *raw, uint32_t slot, uint32_t generation);

uint64_t raw_random(uint64_t *seed);
void raw_random_fill(uint64_t *seed, void *to, size_t size);

#endif
