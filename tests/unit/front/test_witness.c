/* test_witness.c - deaths told through robust locks in shared memory: real processes, and words
 * that somebody plays with. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/loop.h"
#include "front/witness.h"

#define MANY 130 /* more than one thread sleeps on */
#define FACT_NS (10 * NXL_SEC)
#define QUIET_NS (100 * NXL_MS)

struct rig {
    struct nxl_loop *loop;
    struct front_witness *witness;
    pthread_mutex_t *locks; /* shared with the children */
    struct client {
        pid_t pid;
        int out; /* closed by the parent: unlock and go on */
        int told;
        struct front_watched *watched;
    } clients[MANY];
};

static int rig_up(void **state)
{
    struct rig *r = calloc(1, sizeof(*r));
    struct nxl_err err;

    assert_int_equal(nxl_loop_open(&r->loop, &err), NXL_OK);
    r->witness = front_witness_open(r->loop);
    r->locks = mmap(NULL, MANY * sizeof(*r->locks), PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(r->locks, MAP_FAILED);
    *state = r;
    return 0;
}

static int rig_down(void **state)
{
    struct rig *r = *state;

    for (int i = 0; i < MANY; i++) {
        front_witness_forget(r->clients[i].watched);
        if (r->clients[i].pid > 0) {
            kill(r->clients[i].pid, SIGKILL);
            waitpid(r->clients[i].pid, NULL, 0);
            close(r->clients[i].out);
        }
    }
    front_witness_close(r->witness);
    nxl_loop_close(r->loop);
    munmap(r->locks, MANY * sizeof(*r->locks));
    free(r);
    return 0;
}

static _Atomic uint32_t *word(struct rig *r, int i)
{
    return (_Atomic uint32_t *)(void *)&r->locks[i]; /* glibc keeps it first */
}

static void child_main(pthread_mutex_t *lock, int in, int ready)
{
    char byte = 'r';

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (pthread_mutex_lock(lock) != 0 || write(ready, &byte, 1) != 1)
        _exit(1);
    (void)!read(in, &byte, 1);
    (void)pthread_mutex_unlock(lock);
    for (;;)
        pause();
}

static void told(void *arg)
{
    ((struct client *)arg)->told++;
}

/* A process that holds lock i until it dies, or until its pipe is closed. */
static void client_start(struct rig *r, int i)
{
    pthread_mutexattr_t attr;
    int in[2], ready[2];
    char byte;

    pthread_mutexattr_init(&attr);
    pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
    assert_int_equal(pthread_mutex_init(&r->locks[i], &attr), 0);
    assert_int_equal(pipe(in), 0);
    assert_int_equal(pipe(ready), 0);
    r->clients[i].pid = fork();
    if (r->clients[i].pid == 0) {
        close(in[1]);
        for (int k = 0; k < i; k++)
            close(r->clients[k].out);
        child_main(&r->locks[i], in[0], ready[1]);
    }
    close(in[0]);
    close(ready[1]);
    r->clients[i].out = in[1];
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    assert_int_equal(atomic_load(word(r, i)) & FUTEX_TID_MASK, (uint32_t)r->clients[i].pid);
    r->clients[i].watched = front_witness_watch(r->witness, word(r, i), told, &r->clients[i]);
    assert_non_null(r->clients[i].watched);
}

static int is_told(void *arg)
{
    return ((const struct client *)arg)->told > 0;
}

static int never(void *arg)
{
    return 0;
}

static void a_killed_process_is_told_once(void **state)
{
    struct rig *r = *state;

    client_start(r, 0);
    client_start(r, 1);
    (void)nxl_loop_run_until(r->loop, never, NULL, QUIET_NS);
    assert_int_equal(r->clients[0].told, 0);
    kill(r->clients[0].pid, SIGKILL);
    assert_true(nxl_loop_run_until(r->loop, is_told, &r->clients[0], FACT_NS));
    (void)nxl_loop_run_until(r->loop, never, NULL, QUIET_NS);
    assert_int_equal(r->clients[0].told, 1);
    assert_int_equal(r->clients[1].told, 0);
}

static void a_process_that_was_dead_before_the_watch_is_told(void **state)
{
    struct rig *r = *state;

    client_start(r, 0);
    front_witness_forget(r->clients[0].watched);
    kill(r->clients[0].pid, SIGKILL);
    waitpid(r->clients[0].pid, NULL, 0);
    close(r->clients[0].out);
    r->clients[0].pid = 0;
    r->clients[0].watched = front_witness_watch(r->witness, word(r, 0), told, &r->clients[0]);
    assert_non_null(r->clients[0].watched);
    assert_true(nxl_loop_run_until(r->loop, is_told, &r->clients[0], FACT_NS));
}

static void who_unlocks_is_not_dead_and_is_watched_no_more(void **state)
{
    struct rig *r = *state;

    client_start(r, 0);
    client_start(r, 1);
    close(r->clients[0].out);
    (void)nxl_loop_run_until(r->loop, never, NULL, QUIET_NS);
    r->clients[0].out = open("/dev/null", 0);
    assert_int_equal(atomic_load(word(r, 0)) & FUTEX_TID_MASK, 0);
    kill(r->clients[0].pid, SIGKILL);
    (void)nxl_loop_run_until(r->loop, never, NULL, QUIET_NS);
    assert_int_equal(r->clients[0].told, 0);
    kill(r->clients[1].pid, SIGKILL);
    assert_true(nxl_loop_run_until(r->loop, is_told, &r->clients[1], FACT_NS));
}

static void more_than_one_thread_can_sleep_on_are_all_told(void **state)
{
    struct rig *r = *state;

    for (int i = 0; i < MANY; i++)
        client_start(r, i);
    for (int i = 0; i < MANY; i++)
        kill(r->clients[i].pid, SIGKILL);
    for (int i = 0; i < MANY; i++)
        assert_true(nxl_loop_run_until(r->loop, is_told, &r->clients[i], FACT_NS));
    for (int i = 0; i < MANY; i++)
        assert_int_equal(r->clients[i].told, 1);
}

struct player {
    _Atomic uint32_t *word;
    _Atomic int stop;
};

static void *player_main(void *arg)
{
    struct player *p = arg;

    while (!atomic_load(&p->stop)) {
        atomic_fetch_xor(p->word, FUTEX_WAITERS);
        (void)syscall(SYS_futex, p->word, FUTEX_WAKE, 1, NULL, NULL, 0);
    }
    return NULL;
}

static void a_client_that_plays_with_its_word_hides_nobody_elses_death(void **state)
{
    struct rig *r = *state;
    struct player player = {0};
    pthread_t thread;

    client_start(r, 0);
    client_start(r, 1);
    player.word = word(r, 0);
    assert_int_equal(pthread_create(&thread, NULL, player_main, &player), 0);
    (void)nxl_loop_run_until(r->loop, never, NULL, 3 * QUIET_NS); /* beyond its false alarms */
    kill(r->clients[1].pid, SIGKILL);
    assert_true(nxl_loop_run_until(r->loop, is_told, &r->clients[1], FACT_NS));
    atomic_store(&player.stop, 1);
    pthread_join(thread, NULL);
    assert_int_equal(r->clients[0].told, 0);
}

static void a_word_that_is_no_lock_is_not_watched(void **state)
{
    struct rig *r = *state;

    memset(r->locks, 0, sizeof(*r->locks));
    assert_null(front_witness_watch(r->witness, word(r, 0), told, r));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_killed_process_is_told_once, rig_up, rig_down),
        cmocka_unit_test_setup_teardown(a_process_that_was_dead_before_the_watch_is_told, rig_up,
                                        rig_down),
        cmocka_unit_test_setup_teardown(who_unlocks_is_not_dead_and_is_watched_no_more, rig_up,
                                        rig_down),
        cmocka_unit_test_setup_teardown(more_than_one_thread_can_sleep_on_are_all_told, rig_up,
                                        rig_down),
        cmocka_unit_test_setup_teardown(a_client_that_plays_with_its_word_hides_nobody_elses_death,
                                        rig_up, rig_down),
        cmocka_unit_test_setup_teardown(a_word_that_is_no_lock_is_not_watched, rig_up, rig_down),
    };

    if (syscall(SYS_futex_waitv, NULL, 0, 0, NULL, 0) == -1 && errno == ENOSYS) {
        printf("SKIP: this kernel has no futex_waitv (Linux 5.16)\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
