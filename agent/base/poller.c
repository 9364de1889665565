/* poller.c - busy polling inside the loop, from one libuv idle handle per loop. Loop thread. */
#include "base/loop_inner.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/mem.h"

#include <stdlib.h>

/* One turn polls this often before descriptors get their look; a round that found work costs more,
 * so that busy pollers do not starve the rest. */
#define ROUNDS_PER_TURN 32u
#define WORK_COST 4u
#define TURN_NS (1 * NXL_MS) /* a turn that took longer begins no further round */

struct nxl_poller {
    struct nxl_loop *loop;
    struct nxl_poller *next;
    nxl_poll_fn *fn, *on_idle;
    void *arg;
    uint64_t idle_ns, last_work_ns;
    unsigned activations; /* tells whether a callback activated it again */
    int active, worked, rest, closed;
};

static void poller_deactivate(struct nxl_poller *poller)
{
    struct nxl_loop *loop = poller->loop;

    if (!poller->active)
        return;
    poller->active = 0;
    if (--loop->active_pollers == 0)
        (void)uv_idle_stop(&loop->spin); /* always 0 */
}

/* Callbacks may close any poller while the list is walked: the memory goes when the walk is over.
 */
static void pollers_sweep(struct nxl_loop *loop)
{
    struct nxl_poller **link = &loop->pollers;

    while (*link) {
        struct nxl_poller *poller = *link;

        if (!poller->closed) {
            link = &poller->next;
            continue;
        }
        *link = poller->next;
        free(poller);
    }
}

static int pollers_round(struct nxl_loop *loop)
{
    int worked = 0;

    for (struct nxl_poller *poller = loop->pollers; poller; poller = poller->next) {
        if (poller->active && poller->fn(poller->arg)) {
            poller->worked = 1;
            worked = 1;
        }
    }
    return worked;
}

static void poller_judge(struct nxl_poller *poller, uint64_t now_ns)
{
    unsigned activations = poller->activations;
    int rest = poller->rest;

    poller->rest = 0;
    if (poller->worked) {
        poller->worked = 0;
        poller->last_work_ns = now_ns;
        if (!rest)
            return;
    }
    if (!rest && now_ns - poller->last_work_ns < poller->idle_ns)
        return;
    if (poller->on_idle && poller->on_idle(poller->arg)) {
        poller->last_work_ns = now_ns;
        return;
    }
    if (poller->activations == activations)
        poller_deactivate(poller);
}

static void cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void spin_on_turn(uv_idle_t *idle)
{
    struct nxl_loop *loop = nxl_container_of(idle, struct nxl_loop, spin);
    uint64_t now_ns = nxl_now_ns(), until_ns = now_ns + TURN_NS;

    loop->spinning = 1;
    for (unsigned spent = 0;
         spent < ROUNDS_PER_TURN && loop->active_pollers > 0 && !loop->stopped;) {
        if (pollers_round(loop)) {
            spent += WORK_COST;
            if (nxl_now_ns() >= until_ns)
                break;
        } else {
            spent++;
            cpu_relax();
        }
    }
    now_ns = nxl_now_ns();
    for (struct nxl_poller *poller = loop->pollers; poller; poller = poller->next) {
        if (poller->active)
            poller_judge(poller, now_ns);
    }
    loop->spinning = 0;
    pollers_sweep(loop);
}

struct nxl_poller *nxl_poller_open(struct nxl_loop *loop, nxl_poll_fn *fn, nxl_poll_fn *on_idle,
                                   void *arg, uint64_t idle_ns)
{
    struct nxl_poller *poller = nxl_new0(sizeof(*poller));

    poller->loop = loop;
    poller->fn = fn;
    poller->on_idle = on_idle;
    poller->arg = arg;
    poller->idle_ns = idle_ns;
    poller->next = loop->pollers;
    loop->pollers = poller;
    return poller;
}

void nxl_poller_rest(struct nxl_poller *poller)
{
    poller->rest = 1;
}

void nxl_poller_activate(struct nxl_poller *poller)
{
    struct nxl_loop *loop = poller->loop;

    NXL_ASSERT(!poller->closed);
    poller->activations++;
    poller->last_work_ns = nxl_now_ns();
    if (poller->active)
        return;
    poller->active = 1;
    if (loop->active_pollers++ == 0)
        NXL_ASSERT(uv_idle_start(&loop->spin, spin_on_turn) == 0);
}

int nxl_poller_active(const struct nxl_poller *poller)
{
    return poller->active;
}

void nxl_poller_close(struct nxl_poller *poller)
{
    struct nxl_loop *loop;

    if (!poller)
        return;
    loop = poller->loop;
    poller_deactivate(poller);
    poller->closed = 1;
    if (!loop->spinning)
        pollers_sweep(loop);
}
