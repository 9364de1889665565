/* guard.c - SIGBUS on guarded mappings becomes zero pages and a mark. The handler runs on whatever
 * thread touched the memory and takes no lock; adding and removing is the loop thread's.
 *
 * A slot's word is generation << 2 | state. The handler claims a slot by compare-and-swap on the
 * whole word before it maps anything, so a slot that was removed (or removed and given out again)
 * meanwhile is never acted upon; remove waits for a claim that is under way. */
#include "base/guard.h"
#include "base/assert.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define GUARD_SLOTS 65536
#define STATE_FREE 0u
#define STATE_LIVE 1u
#define STATE_CLAIMED 2u /* a handler is mapping zero pages */
#define STATE_LOST 3u
#define STATE_MASK 3u
#define GENERATION_ONE 4u

struct guard_slot {
    _Atomic uint64_t word;
    _Atomic uintptr_t base;
    _Atomic size_t size;
};

static struct guard_slot slots[GUARD_SLOTS];
static _Atomic int slot_limit; /* slots beyond were never used */

/* Loop thread only. */
static int free_slots[GUARD_SLOTS];
static int free_count;

static struct sigaction previous;
static size_t page_size;
static int installed;

/* The bare system call: mmap() itself is not promised to be safe inside a handler, and sanitizers
 * wrap it. */
static int zero_pages_put(uintptr_t base, size_t size)
{
    long at = syscall(SYS_mmap, base, size, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0L);

    return (uintptr_t)at == base ? 0 : -1;
}

/* 1 if the touching instruction may be tried again. */
static int slot_rescue(struct guard_slot *slot, uintptr_t addr)
{
    uint64_t word = atomic_load(&slot->word);
    uintptr_t base = atomic_load(&slot->base);
    size_t size = atomic_load(&slot->size);

    if ((word & STATE_MASK) == STATE_FREE || addr < base || addr - base >= size)
        return 0;
    if ((word & STATE_MASK) != STATE_LIVE)
        return 1; /* another thread's handler has done it or is about to */
    if (!atomic_compare_exchange_strong(&slot->word, &word,
                                        (word & ~(uint64_t)STATE_MASK) | STATE_CLAIMED))
        return 1; /* lost the race: look again by touching again */
    if (zero_pages_put(base, size) < 0) {
        atomic_store(&slot->word, word);
        return 0;
    }
    atomic_store(&slot->word, (word & ~(uint64_t)STATE_MASK) | STATE_LOST);
    return 1;
}

static void chain_to_previous(int signum, siginfo_t *info, void *context)
{
    if (previous.sa_flags & SA_SIGINFO) {
        previous.sa_sigaction(signum, info, context);
        return;
    }
    if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
        previous.sa_handler(signum);
        return;
    }
    /* Back to the default: the instruction runs again and the kernel ends us with a core. A signal
     * sent by kill() does not come again by itself. */
    (void)signal(SIGBUS, SIG_DFL);
    if (info->si_code <= 0)
        (void)raise(signum);
}

static void guard_on_sigbus(int signum, siginfo_t *info, void *context)
{
    int saved = errno;

    if (info->si_code > 0) { /* from the kernel: si_addr means something */
        int limit = atomic_load(&slot_limit);

        for (int i = 0; i < limit; i++) {
            if (slot_rescue(&slots[i], (uintptr_t)info->si_addr)) {
                errno = saved;
                return;
            }
        }
    }
    chain_to_previous(signum, info, context);
    errno = saved;
}

void nxl_guard_install(void)
{
    struct sigaction action = {.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART};

    if (installed)
        return; /* chaining to ourselves would never end */
    page_size = (size_t)sysconf(_SC_PAGESIZE);
    action.sa_sigaction = guard_on_sigbus;
    (void)sigemptyset(&action.sa_mask);
    NXL_ASSERT(sigaction(SIGBUS, &action, &previous) == 0);
    installed = 1;
}

int nxl_guard_add(void *base, size_t size)
{
    struct guard_slot *slot;
    uint64_t word;
    int index;

    NXL_ASSERT(installed && size > 0 && (uintptr_t)base % page_size == 0);
    if (free_count > 0)
        index = free_slots[--free_count];
    else if (atomic_load(&slot_limit) < GUARD_SLOTS)
        index = atomic_load(&slot_limit);
    else
        return -1;
    slot = &slots[index];
    word = atomic_load(&slot->word);
    NXL_ASSERT((word & STATE_MASK) == STATE_FREE);
    atomic_store(&slot->base, (uintptr_t)base);
    atomic_store(&slot->size, (size + page_size - 1) / page_size * page_size);
    atomic_store(&slot->word, word + GENERATION_ONE + STATE_LIVE);
    if (index == atomic_load(&slot_limit))
        atomic_store(&slot_limit, index + 1);
    return index;
}

int nxl_guard_lost(int slot)
{
    uint64_t state;

    if (slot < 0)
        return 0;
    NXL_ASSERT(slot < GUARD_SLOTS);
    state = atomic_load(&slots[slot].word) & STATE_MASK;
    return state == STATE_CLAIMED || state == STATE_LOST;
}

void nxl_guard_remove(int slot)
{
    uint64_t word;

    if (slot < 0)
        return;
    NXL_ASSERT(slot < GUARD_SLOTS);
    word = atomic_load(&slots[slot].word);
    for (;;) {
        NXL_ASSERT((word & STATE_MASK) != STATE_FREE);
        if ((word & STATE_MASK) == STATE_CLAIMED) {
            (void)sched_yield(); /* one mmap() away */
            word = atomic_load(&slots[slot].word);
        } else if (atomic_compare_exchange_weak(&slots[slot].word, &word,
                                                word & ~(uint64_t)STATE_MASK)) {
            break;
        }
    }
    free_slots[free_count++] = slot;
}
