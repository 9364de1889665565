/* witness.c - the sleeping thread of a session. It runs no code of the application and takes no
 * signal; only nxl_witness_start() and nxl_witness_stop() meet it. */
#include "client/witness.h"

#include <limits.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "wire/ring.h"

#define STACK_SIZE (64u << 10) /* sanitizers need more than the minimum */

_Static_assert(sizeof(pthread_mutex_t) <= NXL_RING_WITNESS_SIZE, "the lock fits into the header");

struct nxl_witness {
    struct nxl_ring_header *header;
    pthread_t thread;
    sem_t ready, stop;
    pid_t process;
};

/* Where the thread's id lies in a lock that it holds: that word is what the kernel writes. Found by
 * looking, so that no C library's layout is written down here. */
static uint32_t word_find(const struct nxl_ring_header *header)
{
    const uint32_t *words = (const uint32_t *)(const void *)header->witness;
    uint32_t self = (uint32_t)syscall(SYS_gettid), at = 0, found = 0;

    /* The owner field may hold the id too; the lock word is the one that comes first. */
    for (at = 0; at < sizeof(pthread_mutex_t) / sizeof(*words) && found == 0; at++)
        if ((words[at] & NXL_RING_WITNESS_TID) == self)
            found = at + 1;
    return found;
}

static int lock_make(pthread_mutex_t *lock)
{
    pthread_mutexattr_t attr;
    int failed;

    if (pthread_mutexattr_init(&attr) != 0)
        return 0;
    failed = pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED) != 0 ||
             pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST) != 0 ||
             pthread_mutex_init(lock, &attr) != 0;
    (void)pthread_mutexattr_destroy(&attr);
    return !failed;
}

static void *witness_main(void *arg)
{
    struct nxl_witness *witness = arg;
    struct nxl_ring_header *header = witness->header;
    pthread_mutex_t *lock = (pthread_mutex_t *)(void *)header->witness;
    int held = lock_make(lock) && pthread_mutex_lock(lock) == 0;

    if (held)
        atomic_store_explicit(&header->witness_word, word_find(header), memory_order_release);
    (void)sem_post(&witness->ready);
    while (sem_wait(&witness->stop) != 0)
        continue; /* interrupted, by a debugger at most */
    if (held)
        (void)pthread_mutex_unlock(lock);
    return NULL;
}

static int thread_start(struct nxl_witness *witness)
{
    pthread_attr_t attr;
    sigset_t all, before;
    int failed;

    if (pthread_attr_init(&attr) != 0)
        return 0;
    (void)pthread_attr_setstacksize(&attr, STACK_SIZE + PTHREAD_STACK_MIN);
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all,
                          &before); /* inherited: signals are the application's */
    failed = pthread_create(&witness->thread, &attr, witness_main, witness);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    (void)pthread_attr_destroy(&attr);
    if (failed)
        return 0;
    (void)pthread_setname_np(witness->thread, "nixlet-witness");
    return 1;
}

struct nxl_witness *nxl_witness_start(struct nxl_ring_header *header)
{
    struct nxl_witness *witness = calloc(1, sizeof(*witness));

    if (!witness)
        return NULL;
    witness->header = header;
    witness->process = getpid();
    if (sem_init(&witness->ready, 0, 0) != 0 || sem_init(&witness->stop, 0, 0) != 0 ||
        !thread_start(witness)) {
        free(witness);
        return NULL;
    }
    while (sem_wait(&witness->ready) != 0)
        continue;
    return witness;
}

void nxl_witness_stop(struct nxl_witness *witness)
{
    if (!witness)
        return;
    if (witness->process == getpid()) {
        (void)sem_post(&witness->stop);
        (void)pthread_join(witness->thread, NULL);
    }
    (void)sem_destroy(&witness->ready);
    (void)sem_destroy(&witness->stop);
    free(witness);
}
