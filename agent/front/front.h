/* front.h - the local socket: accepts clients, decodes their frames and ring entries, and writes
 * slots, notices and replies back. Loop thread. */
#ifndef NXL_FRONT_FRONT_H
#define NXL_FRONT_FRONT_H

#include <nxl/err.h>

struct nxl_loop;
struct nxl_metrics;
struct nxl_settings;
struct nxl_xfer;
struct nxl_front;

struct nxl_front_options {
    struct nxl_loop *loop;
    struct nxl_metrics *metrics;
    const struct nxl_settings *settings; /* section "socket", nxl_front_declare() */
    struct nxl_xfer *xfer;
    const char *node, *agent; /* told in WELCOME; borrowed */
    const char *backends;     /* "shm ucx": instance order */
    void (*wake)(void *arg);  /* a doorbell rang: make the agent's poller active */
    void (*turn)(void *arg);  /* then, from the outermost call: poll once, at once; NULL: later */
    void *arg;
};
/* Options: path (/run/nixlet/agent.sock), mode (0666 as text), namespace (default), backlog,
 * frames_per_turn (64), entries_per_turn (256), slots_max, arena_max, notice_max, notice_queue_max
 * (bytes kept for a client that does not read). */
void nxl_front_declare(struct nxl_settings *settings);
/* Replaces a dead socket file; refuses a live one with NXL_BUSY. */
NXL_MUST_USE enum nxl_code nxl_front_open(const struct nxl_front_options *options,
                                          struct nxl_front **ret, struct nxl_err *err);
void nxl_front_close(struct nxl_front *front); /* GOAWAY to all, then closes */
/* Serves the rings of sessions that are awake; bounded; returns how many entries were taken. */
int nxl_front_poll(struct nxl_front *front);
/* 1 if a client that is awake submits from the core that this thread runs on: spinning would keep
 * it from going on. */
int nxl_front_same_core(const struct nxl_front *front);
/* Parks all rings. Returns 1 if something came meanwhile (keep polling). */
int nxl_front_park(struct nxl_front *front);
uint32_t nxl_front_sessions(const struct nxl_front *front);

#endif
