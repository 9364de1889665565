/* witness.c - sleeps on robust locks of clients. Each group has a thread; what it shares with the
 * loop is under its lock. A group's word `kick` is slept on too, and moved whenever the set
 * changes. */
#include "front/witness.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/mem.h"
#include "wire/ring.h"

#ifndef SYS_futex_waitv
#define SYS_futex_waitv 449
#endif
#define WORD_SHARED 2u           /* 32 bits, shared between processes */
#define WORD_PRIVATE (2u | 128u) /* FUTEX_PRIVATE_FLAG */
#define GROUP_SIZE 127u          /* the kernel takes 128 words; one is ours */
#define FALSE_ALARMS_MAX 64u     /* then a word is watched no more */

struct waitv { /* struct futex_waitv: Debian 12's headers have it, older ones do not */
    uint64_t val, uaddr;
    uint32_t flags, reserved;
};

struct front_watched {
    struct group *group;
    _Atomic uint32_t *word;
    uint32_t tid;
    void (*fn)(void *arg);
    void *arg;
    unsigned alarms;
    enum { WATCHED_LIVE, WATCHED_DEAD, WATCHED_GIVEN_UP, WATCHED_TOLD } state; /* group lock */
};

struct group {
    struct front_witness *witness;
    struct group *next;
    pthread_t thread;
    pthread_mutex_t lock;
    struct front_watched *members[GROUP_SIZE]; /* lock */
    uint32_t count;                            /* lock */
    int over;                                  /* lock */
    _Atomic uint32_t kick;
};

struct front_witness {
    struct nxl_loop *loop;
    struct nxl_waker *waker;
    struct group *groups;
};

/* ---- the sleeping thread -----------------------------------------------------------------------
 */

/* The kernel wakes a sleeper only if the lock says that there is one. */
static int member_arm(struct front_watched *watched, uint32_t *ret_value)
{
    uint32_t value = atomic_load(watched->word);

    if ((value & FUTEX_OWNER_DIED) != 0) {
        watched->state = WATCHED_DEAD;
        return 0;
    }
    if ((value & FUTEX_TID_MASK) != watched->tid || watched->alarms > FALSE_ALARMS_MAX ||
        ((value & FUTEX_WAITERS) == 0 &&
         !atomic_compare_exchange_strong(watched->word, &value, value | FUTEX_WAITERS))) {
        watched->state = WATCHED_GIVEN_UP; /* unlocked, or no honest lock */
        return 0;
    }
    *ret_value = value | FUTEX_WAITERS;
    return 1;
}

/* Fills what to sleep on; 0: the group is over. */
static uint32_t group_arm(struct group *group, struct waitv *words, struct front_watched **who)
{
    uint32_t count = 0;
    int dead = 0;

    (void)pthread_mutex_lock(&group->lock);
    if (!group->over)
        words[count++] = (struct waitv){.val = atomic_load(&group->kick),
                                        .uaddr = (uintptr_t)&group->kick,
                                        .flags = WORD_PRIVATE};
    for (uint32_t i = 0; i < group->count && count > 0; i++) {
        struct front_watched *watched = group->members[i];
        uint32_t value;

        if (watched->state == WATCHED_LIVE && member_arm(watched, &value)) {
            who[count] = watched;
            words[count++] = (struct waitv){
                .val = value, .uaddr = (uintptr_t)watched->word, .flags = WORD_SHARED};
        }
        dead |= watched->state == WATCHED_DEAD;
    }
    (void)pthread_mutex_unlock(&group->lock);
    if (dead)
        nxl_waker_wake(group->witness->waker);
    return count;
}

/* Something moved, but the set did not: whose word it was is counted, unless it has died. */
static void alarms_count(struct group *group, const struct waitv *words,
                         struct front_watched *const *who, uint32_t count, long woken)
{
    (void)pthread_mutex_lock(&group->lock);
    for (uint32_t i = 0; i < group->count; i++) {
        struct front_watched *member =
            group->members[i]; /* one that is gone meanwhile is not touched */

        for (uint32_t k = 1; k < count; k++) {
            if (who[k] == member && (woken == (long)k || atomic_load(member->word) != words[k].val))
                member->alarms++;
        }
    }
    (void)pthread_mutex_unlock(&group->lock);
}

/* For a millisecond only the group's own word is slept on. */
static void kick_wait(struct waitv *words)
{
    struct timespec until;

    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    (void)syscall(SYS_futex_waitv, words, 1, 0, &until, CLOCK_MONOTONIC);
}

static void *group_main(void *arg)
{
    struct group *group = arg;
    struct front_watched *who[GROUP_SIZE + 1] = {NULL};
    struct waitv words[GROUP_SIZE + 1];
    uint32_t count;
    int alarmed = 0;

    while ((count = group_arm(group, words, who)) > 0) {
        long woken;

        if (alarmed) /* a client that plays with its word costs no more than a look per ms */
            kick_wait(words);
        woken = syscall(SYS_futex_waitv, words, count, 0, NULL, 0);
        alarmed = woken != 0 && atomic_load(&group->kick) == words[0].val;
        if (alarmed)
            alarms_count(group, words, who, count, woken);
    }
    return NULL;
}

/* ---- the loop ----------------------------------------------------------------------------------
 */

static struct front_watched *dead_take(struct front_witness *witness)
{
    struct front_watched *found = NULL;

    for (struct group *group = witness->groups; group != NULL && found == NULL;
         group = group->next) {
        (void)pthread_mutex_lock(&group->lock);
        for (uint32_t i = 0; i < group->count && found == NULL; i++) {
            group->members[i]->alarms = 0; /* somebody's death wakes all */
            if (group->members[i]->state == WATCHED_DEAD)
                found = group->members[i];
        }
        if (found != NULL)
            found->state = WATCHED_TOLD;
        (void)pthread_mutex_unlock(&group->lock);
    }
    return found;
}

static void witness_on_wake(void *arg)
{
    struct front_watched *watched;

    while ((watched = dead_take(arg)) != NULL)
        watched->fn(watched->arg);
}

static void group_kick(struct group *group)
{
    atomic_fetch_add(&group->kick, 1);
    (void)syscall(SYS_futex, &group->kick, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1, NULL, NULL, 0);
}

static struct group *group_open(struct front_witness *witness)
{
    struct group *group = nxl_new0(sizeof(*group));
    sigset_t all, before;
    int failed;

    group->witness = witness;
    (void)pthread_mutex_init(&group->lock, NULL);
    (void)sigfillset(&all);
    (void)sigdelset(&all, SIGBUS); /* base/guard */
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    failed = pthread_create(&group->thread, NULL, group_main, group);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed) {
        nxl_warn("front",
                 "event=\"no thread to watch clients with\" effect=\"their end is seen later\"");
        free(group);
        return NULL;
    }
    (void)pthread_setname_np(group->thread, "nxl-witness");
    group->next = witness->groups;
    witness->groups = group;
    return group;
}

struct front_witness *front_witness_open(struct nxl_loop *loop)
{
    struct front_witness *witness;

    /* With nothing to wait for a kernel that knows the call says EINVAL. */
    if (syscall(SYS_futex_waitv, NULL, 0, 0, NULL, 0) == -1 && errno != EINVAL) {
        nxl_info("front", "event=\"no futex_waitv\" effect=\"the end of a client with much memory "
                          "is seen late\"");
        return NULL;
    }
    witness = nxl_new0(sizeof(*witness));
    witness->loop = loop;
    witness->waker = nxl_waker_open(loop, witness_on_wake, witness);
    return witness;
}

void front_witness_close(struct front_witness *witness)
{
    if (witness == NULL)
        return;
    while (witness->groups != NULL) {
        struct group *group = witness->groups;

        NXL_ASSERT(group->count == 0);
        witness->groups = group->next;
        (void)pthread_mutex_lock(&group->lock);
        group->over = 1;
        (void)pthread_mutex_unlock(&group->lock);
        group_kick(group);
        (void)pthread_join(group->thread, NULL);
        (void)pthread_mutex_destroy(&group->lock);
        free(group);
    }
    nxl_waker_close(witness->waker);
    free(witness);
}

struct front_watched *front_witness_watch(struct front_witness *witness, _Atomic uint32_t *word,
                                          void (*fn)(void *arg), void *arg)
{
    uint32_t value = atomic_load(word);
    struct front_watched *watched;
    struct group *group;

    if (witness == NULL || (value & (FUTEX_TID_MASK | FUTEX_OWNER_DIED)) == 0)
        return NULL;
    for (group = witness->groups; group != NULL && group->count == GROUP_SIZE; group = group->next)
        continue;
    if (group == NULL && (group = group_open(witness)) == NULL)
        return NULL;
    watched = nxl_new0(sizeof(*watched));
    *watched = (struct front_watched){.group = group,
                                      .word = word,
                                      .tid = value & FUTEX_TID_MASK,
                                      .fn = fn,
                                      .arg = arg,
                                      .state = (value & FUTEX_OWNER_DIED) != 0 ? WATCHED_DEAD
                                                                               : WATCHED_LIVE};
    (void)pthread_mutex_lock(&group->lock);
    group->members[group->count++] = watched;
    (void)pthread_mutex_unlock(&group->lock);
    group_kick(group);
    return watched;
}

void front_witness_forget(struct front_watched *watched)
{
    struct group *group;

    if (watched == NULL)
        return;
    group = watched->group;
    (void)pthread_mutex_lock(&group->lock);
    for (uint32_t i = 0; i < group->count; i++) {
        if (group->members[i] == watched) {
            group->members[i] = group->members[--group->count];
            break;
        }
    }
    (void)pthread_mutex_unlock(&group->lock);
    group_kick(group); /* it may sleep on that word: it looks again without it */
    free(watched);
}
