/* loop.h - thin layer over libuv. One thread runs it; nxl_waker_wake() is the one call that other
 * threads may make. One turn: due timers, then pollers while any is active, then ready descriptors,
 * then wakers. Closing any object is safe inside its own callback and frees it later. */
#ifndef NXL_BASE_LOOP_H
#define NXL_BASE_LOOP_H

#include <nxl/err.h>
#include <stdint.h>

struct nxl_loop;
struct nxl_watch; /* a descriptor */
struct nxl_timer;
struct nxl_waker;  /* wake-up from other threads */
struct nxl_poller; /* busy polling while active */
struct uv_loop_s;

NXL_MUST_USE enum nxl_code nxl_loop_open(struct nxl_loop **ret, struct nxl_err *err);
void nxl_loop_close(struct nxl_loop *loop); /* after run; everything opened on it must be closed */
void nxl_loop_run(struct nxl_loop *loop);   /* until nxl_loop_stop() */
void nxl_loop_stop(struct nxl_loop *loop);
/* Tests: runs turns until done(arg) is true or the deadline passes. Returns done(arg). */
int nxl_loop_run_until(struct nxl_loop *loop, int (*done)(void *arg), void *arg,
                       uint64_t timeout_ns);
struct uv_loop_s *nxl_loop_uv(struct nxl_loop *loop);

#define NXL_WATCH_READ 1u
#define NXL_WATCH_WRITE 2u
#define NXL_WATCH_ERROR                                                                            \
    4u /* reported, never asked for: libuv stops the watch; do one recv, close */
typedef void nxl_watch_fn(void *arg, int fd, unsigned events);
/* Borrows fd: close it after nxl_watch_close() returned. */
NXL_MUST_USE enum nxl_code nxl_watch_open(struct nxl_loop *loop, int fd, unsigned events,
                                          nxl_watch_fn *fn, void *arg, struct nxl_watch **ret,
                                          struct nxl_err *err);
void nxl_watch_change(struct nxl_watch *watch, unsigned events); /* 0 pauses */
void nxl_watch_close(struct nxl_watch *watch);                   /* accepts NULL */

typedef void nxl_timer_fn(void *arg);
struct nxl_timer *nxl_timer_open(struct nxl_loop *loop, nxl_timer_fn *fn, void *arg);
void nxl_timer_start(struct nxl_timer *timer, uint64_t delay_ns,
                     uint64_t repeat_ns); /* rounded up to ms */
void nxl_timer_stop(struct nxl_timer *timer);
void nxl_timer_close(struct nxl_timer *timer); /* accepts NULL */

struct nxl_waker *nxl_waker_open(struct nxl_loop *loop, nxl_timer_fn *fn, void *arg);
void nxl_waker_wake(struct nxl_waker *waker); /* any thread; wakes are merged */
void nxl_waker_close(struct nxl_waker *waker);

/* While any poller is active the loop does not sleep. fn returns 1 if it found work. A poller that
 * finds none for idle_ns is deactivated after on_idle ran (on_idle may return 1 to stay active). */
typedef int nxl_poll_fn(void *arg);
struct nxl_poller *nxl_poller_open(struct nxl_loop *loop, nxl_poll_fn *fn, nxl_poll_fn *on_idle,
                                   void *arg, uint64_t idle_ns);
void nxl_poller_activate(struct nxl_poller *poller);
/* Inside its callback: without work in this turn it goes idle now, not after idle_ns. */
void nxl_poller_rest(struct nxl_poller *poller);
int nxl_poller_active(const struct nxl_poller *poller);
void nxl_poller_close(struct nxl_poller *poller);

/* signum arrives on the loop. */
struct nxl_signal;
struct nxl_signal *nxl_signal_open(struct nxl_loop *loop, int signum, nxl_timer_fn *fn, void *arg);
void nxl_signal_close(struct nxl_signal *signal);

#endif
