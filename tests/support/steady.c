/* steady.c - two clients that do everything right and watch whether the agent does. */
#include "support/steady.h"

#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/near.h"

#define MOVED (256u << 10)
#define SIZE (1u << 20)
#define CALLS_EVERY 4u /* rounds */

struct work {
    struct steady_facts *facts;
    struct near from, to;
    struct nxl_remote *remote;
    struct nxl_transfer *out, *back;
    uint64_t began_ns;
};

static void fail(struct work *w, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    vsnprintf(w->facts->text, sizeof(w->facts->text), fmt, args);
    va_end(args);
    atomic_store(&w->facts->failed, 1);
    _exit(1);
}

static void begin(struct work *w)
{
    w->began_ns = cluster_now();
}

static void end(struct work *w, _Atomic uint64_t *worst, const char *what)
{
    uint64_t took_ns = cluster_now() - w->began_ns;

    if (took_ns > atomic_load(worst))
        atomic_store(worst, took_ns);
    if (took_ns > STEADY_DEADLINE_NS)
        fail(w, "%s took %llu ms", what, (unsigned long long)(took_ns / 1000000u));
}

static void run(struct work *w, struct nxl_transfer *transfer, const char *what)
{
    struct nxl_err err = {0}, why = {0};

    begin(w);
    if (nxl_transfer_post(transfer, &err) != NXL_OK)
        fail(w, "%s: post: %s", what, err.text);
    if (nxl_transfer_wait(transfer, STEADY_DEADLINE_NS, &err) != NXL_OK) {
        (void)nxl_transfer_explain(transfer, &why);
        fail(w, "%s: %s: %s", what, err.text, why.text);
    }
    end(w, &w->facts->worst_move_ns, what);
}

/* Others may send notices too; ours carries the round's number. */
static void notice_await(struct work *w, uint64_t round)
{
    struct nxl_event event;
    uint64_t got = 0;

    begin(w);
    do {
        if (!cluster_event(w->to.client, w->to.peer, NXL_EVENT_NOTICE, STEADY_DEADLINE_NS, &event))
            fail(w, "the notice of round %llu did not come", (unsigned long long)round);
        if (strcmp(event.name, "steady-from") != 0)
            continue;
        if (event.size != sizeof(got))
            fail(w, "a notice of %zu bytes", event.size);
        memcpy(&got, event.payload, sizeof(got));
        if (got != round)
            fail(w, "notice %llu in round %llu", (unsigned long long)got,
                 (unsigned long long)round);
    } while (got != round);
    end(w, &w->facts->worst_move_ns, "a notice");
}

static void bytes_check(struct work *w, const unsigned char *at, uint64_t round, const char *what)
{
    const uint64_t *words = (const uint64_t *)(const void *)at;

    for (uint64_t i = 0; i < MOVED / 8; i++) {
        if (words[i] != near_word(8 * i) + round)
            fail(w, "%s, round %llu: wrong bytes at %llu", what, (unsigned long long)round,
                 (unsigned long long)(8 * i));
    }
}

static void move(struct work *w, uint64_t round)
{
    uint64_t *words = (uint64_t *)(void *)w->from.memory;
    struct nxl_err err = {0};

    for (uint64_t i = 0; i < MOVED / 8; i++)
        words[i] = near_word(8 * i) + round;
    if (nxl_transfer_notice(w->out, &round, sizeof(round), 1, &err) != NXL_OK)
        fail(w, "notice: %s", err.text);
    run(w, w->out, "write");
    notice_await(w, round);
    bytes_check(w, w->to.memory, round, "write");
    run(w, w->back, "read");
    bytes_check(w, w->from.memory + MOVED, round, "read");
}

static void call(struct work *w)
{
    struct nxl_region region = {.len = 65536};
    struct nxl_run run = {.len = 4096, .stride = 4096, .count = 16};
    struct nxl_memreg *reg;
    struct nxl_list *list;
    struct nxl_err err = {0};

    if (nxl_alloc(region.len, 0, &region.addr, &err) != NXL_OK)
        fail(w, "allocate: %s", err.text);
    begin(w);
    if (nxl_register(w->from.peer, &region, 1, &reg, &err) != NXL_OK)
        fail(w, "register: %s", err.text);
    run.addr = (uint64_t)(uintptr_t)region.addr;
    if (nxl_list_prepare(w->from.peer, NULL, NXL_MEM_DRAM, &run, 1, &list, &err) != NXL_OK)
        fail(w, "prepare: %s", err.text);
    nxl_list_free(list);
    if (nxl_deregister(w->from.peer, &reg, 1, &err) != NXL_OK)
        fail(w, "deregister: %s", err.text);
    end(w, &w->facts->worst_call_ns, "register, prepare, deregister");
    nxl_free(region.addr);
}

static void work(struct steady_facts *facts, struct cluster *c, int agent)
{
    struct work w = {.facts = facts};
    uint64_t there;

    near_open(c, agent, "steady-from", SIZE, &w.from);
    near_open(c, agent, "steady-to", SIZE, &w.to);
    w.remote = near_fetch(&w.from, "steady-to");
    there = (uint64_t)(uintptr_t)w.to.memory;
    w.out = near_create(&w.from, NXL_WRITE, w.remote, 0, there, MOVED);
    w.back = near_create(&w.from, NXL_READ, w.remote, MOVED, there, MOVED);
    for (uint64_t round = 1; atomic_load(&facts->stop) == 0; round++) {
        move(&w, round);
        if (round % CALLS_EVERY == 0)
            call(&w);
        atomic_store(&facts->rounds, round);
    }
    near_release(w.out);
    near_release(w.back);
    near_close(&w.from);
    near_close(&w.to);
}

void steady_start(struct steady *steady, struct cluster *c, int agent)
{
    pid_t parent = getpid();
    const char *flaw;

    steady->facts = mmap(NULL, sizeof(*steady->facts), PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (steady->facts == MAP_FAILED)
        abort();
    steady->pid = fork();
    if (steady->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(1);
        work(steady->facts, c, agent);
        _exit(0);
    }
    flaw = steady_check(steady, CALLS_EVERY + 1);
    if (flaw != NULL) {
        fprintf(stderr, "the well-behaved clients: %s\n", flaw);
        abort();
    }
}

struct progress {
    struct steady *steady;
    uint64_t rounds;
};

static int progressed(void *arg)
{
    struct progress *progress = arg;
    struct steady *steady = progress->steady;

    return atomic_load(&steady->facts->failed) != 0 ||
           atomic_load(&steady->facts->rounds) >= progress->rounds ||
           waitpid(steady->pid, NULL, WNOHANG) != 0;
}

const char *steady_check(struct steady *steady, uint64_t count)
{
    struct steady_facts *facts = steady->facts;
    struct progress progress = {steady, atomic_load(&facts->rounds) + 1 + count};

    if (!cluster_until(progressed, &progress, (count + 1) * STEADY_DEADLINE_NS))
        return "they came to a standstill";
    if (atomic_load(&facts->failed) != 0)
        return facts->text;
    if (atomic_load(&facts->rounds) < progress.rounds)
        return "their process died";
    return NULL;
}

void steady_stop(struct steady *steady)
{
    if (steady->pid <= 0)
        return;
    atomic_store(&steady->facts->stop, 1);
    waitpid(steady->pid, NULL, 0); /* every step of it is bounded */
    munmap(steady->facts, sizeof(*steady->facts));
    steady->pid = 0;
}
