/* move_run.c - moves the bytes chunk by chunk: post, wait, look for signals, say how far it is. */
#include "ctl/move.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "ctl/ctl.h"
#include "ctl/print.h"

#define LOOK_NS (100 * NXL_MS) /* between two looks at the signal and the progress */
#define PROGRESS_AFTER_NS NXL_SEC
#define QUIET_NS (10 * NXL_SEC) /* how long an ended chunk may take to be quiet */

static volatile sig_atomic_t told_to_end;

static void on_signal(int signum)
{
    (void)signum;
    told_to_end = 1;
}

void move_signals_listen(void)
{
    struct sigaction action = {.sa_handler = on_signal}; /* no SA_RESTART: waits end */

    (void)sigaction(SIGINT, &action, NULL); /* cannot fail for these */
    (void)sigaction(SIGTERM, &action, NULL);
}

/* ---- progress ------------------------------------------------------------------------------- */

struct progress {
    int on, tty, shown;
    uint64_t begun_ns, said_ns;
};

static struct progress progress_begin(const struct ctl *ctl)
{
    struct progress p = {.tty = isatty(STDERR_FILENO), .begun_ns = nxl_now_ns()};

    p.on = p.tty || ctl->progress;
    return p;
}

static void progress_say(struct progress *p, uint64_t done, uint64_t all)
{
    uint64_t now = nxl_now_ns(), since = now - p->begun_ns;
    char have[32], want[32];

    if (!p->on || since < PROGRESS_AFTER_NS || now - p->said_ns < (p->tty ? LOOK_NS : NXL_SEC))
        return;
    p->said_ns = now;
    p->shown = 1;
    (void)fprintf(stderr, "%s%3u %%  %s of %s  %.2f GB/s%s", p->tty ? "\r" : "",
                  (unsigned)((double)done * 100.0 / (double)all),
                  ctl_bytes_text(done, have, sizeof(have)), ctl_bytes_text(all, want, sizeof(want)),
                  (double)done / (double)since, p->tty ? "\033[K" : "\n");
}

static void progress_end(const struct progress *p)
{
    if (p->shown && p->tty)
        (void)fputs("\r\033[K", stderr);
}

/* ---- one chunk ------------------------------------------------------------------------------ */

/* The transfer will not be waited for any longer. */
static enum nxl_code chunk_abandon(struct nxl_transfer *transfer, enum nxl_code why,
                                   struct nxl_err *err)
{
    struct nxl_err ignored = {0};

    NXL_IGNORE(nxl_transfer_cancel(transfer, &ignored));         /* it may have ended by itself */
    NXL_IGNORE(nxl_transfer_wait(transfer, QUIET_NS, &ignored)); /* quiet is what counts */
    if (nxl_transfer_wait_quiesced(transfer, QUIET_NS, &ignored) != NXL_OK)
        return nxl_err_wrap(err, why, "buffers still in doubt after %llu s",
                            (unsigned long long)(QUIET_NS / NXL_SEC));
    return why;
}

static enum nxl_code chunk_wait(const struct move_run *run, struct nxl_transfer *transfer,
                                struct progress *progress, uint64_t done, struct nxl_err *err)
{
    for (;;) {
        uint64_t now = nxl_now_ns();
        enum nxl_code code = nxl_transfer_wait(transfer, LOOK_NS, err);

        if (code == NXL_OK)
            return NXL_OK;
        if (nxl_transfer_poll(transfer) != NXL_IN_PROG) {
            struct nxl_err why = {0};

            code = nxl_transfer_poll(transfer);
            if (code == NXL_OK)
                return NXL_OK;
            if (nxl_transfer_explain(transfer, &why) == NXL_OK && why.text[0] != '\0')
                *err = why;
            return chunk_abandon(transfer, code, err);
        }
        if (told_to_end)
            return chunk_abandon(transfer, nxl_err_set(err, NXL_CANCELED, 0, "stopped by a signal"),
                                 err);
        if (now >= run->deadline_ns)
            return chunk_abandon(
                transfer,
                nxl_err_set(err, NXL_TIMEOUT, 0, "not done in time; --timeout gives it more"), err);
        progress_say(progress, done, run->where.length);
    }
}

static void result_add(struct move_result *to, const struct nxl_transfer_report *report)
{
    int first = to->transfers == 0;

    to->transfers++;
    to->bytes += report->bytes;
    to->descriptors += report->descriptors;
    to->pieces += report->pieces;
    if (!first && report->path >= to->path)
        return;
    to->path = report->path; /* the slowest one: a fast first chunk must not hide it */
    to->protocol = report->protocol;
    memcpy(to->backend, report->backend, sizeof(to->backend));
    memcpy(to->device, report->device, sizeof(to->device));
}

static enum nxl_code chunk_move(const struct move_run *run, uint64_t at, uint64_t size,
                                struct progress *progress, struct move_result *result,
                                struct nxl_err *err)
{
    struct nxl_run here = {.addr = (uint64_t)(uintptr_t)run->local + at, .len = size, .count = 1};
    struct nxl_run there = {.addr = run->where.address + at, .len = size, .count = 1};
    struct nxl_transfer_report report = {.size = sizeof(report)};
    struct nxl_transfer *transfer;
    struct nxl_err ignored = {0};
    enum nxl_code code = nxl_transfer_create(run->peer, run->op, run->remote, NXL_MEM_DRAM, &here,
                                             1, &there, 1, NULL, &transfer, err);

    if (code != NXL_OK)
        return code;
    code = nxl_transfer_post(transfer, err);
    if (code == NXL_OK)
        code = chunk_wait(run, transfer, progress, at, err);
    if (code == NXL_OK) {
        code = nxl_transfer_wait_quiesced(transfer, QUIET_NS, err);
        if (nxl_transfer_report(transfer, &report) == NXL_OK)
            result_add(result, &report);
    }
    NXL_IGNORE(nxl_transfer_release(transfer, &ignored)); /* closing the session frees the rest */
    return code;
}

enum nxl_code move_chunks(const struct move_run *run, struct move_result *ret, struct nxl_err *err)
{
    struct progress progress = progress_begin(run->ctl);
    struct move_result result = {0};
    enum nxl_code code = NXL_OK;

    for (uint64_t at = 0; at < run->where.length && code == NXL_OK;) {
        uint64_t left = run->where.length - at, size = left < run->chunk ? left : run->chunk;

        code = chunk_move(run, at, size, &progress, &result, err);
        at += size;
        if (code == NXL_OK)
            progress_say(&progress, at, run->where.length);
    }
    progress_end(&progress);
    if (code != NXL_OK)
        return nxl_err_wrap(err, code, "after %llu of %llu bytes", (unsigned long long)result.bytes,
                            (unsigned long long)run->where.length);
    result.ns = nxl_now_ns() - progress.begun_ns;
    *ret = result;
    return NXL_OK;
}
