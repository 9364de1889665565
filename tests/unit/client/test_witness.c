/* test_witness.c - the sleeping thread: its lock tells of the process's end, and of nothing else.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/witness.h"
#include "wire/ring.h"

static struct nxl_ring_header *header_new(void)
{
    void *memory = mmap(NULL, sizeof(struct nxl_ring_header), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    assert_ptr_not_equal(memory, MAP_FAILED);
    return memory;
}

static uint32_t word(struct nxl_ring_header *header)
{
    uint32_t at = atomic_load(&header->witness_word);

    assert_in_range(at, 1, NXL_RING_WITNESS_SIZE / sizeof(uint32_t));
    return atomic_load(&((_Atomic uint32_t *)(void *)header->witness)[at - 1]);
}

static pid_t child_with_witness(struct nxl_ring_header *header)
{
    int ready[2];
    char byte;
    pid_t pid;

    assert_int_equal(pipe(ready), 0);
    pid = fork();
    if (pid == 0) {
        struct nxl_witness *witness = nxl_witness_start(header);

        if (witness != NULL && write(ready[1], "r", 1) == 1)
            for (;;)
                pause();
        _exit(1);
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    return pid;
}

static void the_lock_is_marked_when_its_process_is_killed(void **state)
{
    struct nxl_ring_header *header = header_new();
    pid_t pid = child_with_witness(header);

    assert_int_not_equal(word(header) & NXL_RING_WITNESS_TID, 0);
    assert_int_not_equal(word(header) & NXL_RING_WITNESS_TID, pid); /* a thread of its own */
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    assert_int_equal(word(header) & FUTEX_OWNER_DIED, FUTEX_OWNER_DIED);
    munmap(header, sizeof(*header));
}

static void a_stopped_witness_leaves_a_free_lock(void **state)
{
    struct nxl_ring_header *header = header_new();
    struct nxl_witness *witness = nxl_witness_start(header);

    assert_non_null(witness);
    assert_int_not_equal(word(header), 0);
    nxl_witness_stop(witness);
    assert_int_equal(word(header), 0);
    munmap(header, sizeof(*header));
}

static void a_forked_child_ends_its_copy_without_its_parents_thread(void **state)
{
    struct nxl_ring_header *header = header_new();
    struct nxl_witness *witness = nxl_witness_start(header);
    uint32_t before = word(header);
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        alarm(10); /* else it would hang here for ever */
        nxl_witness_stop(witness);
        _exit(0);
    }
    waitpid(pid, &status, 0);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_int_equal(word(header), before);
    nxl_witness_stop(witness);
    munmap(header, sizeof(*header));
}

static void signals_of_the_process_do_not_go_to_the_witness(void **state)
{
    struct nxl_ring_header *header = header_new();
    struct nxl_witness *witness = nxl_witness_start(header);
    sigset_t set, pending;

    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, NULL);
    kill(getpid(), SIGUSR1); /* would end us if another thread took it */
    (void)poll(NULL, 0, 50);
    sigpending(&pending);
    assert_true(sigismember(&pending, SIGUSR1));
    signal(SIGUSR1, SIG_IGN);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    nxl_witness_stop(witness);
    munmap(header, sizeof(*header));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_lock_is_marked_when_its_process_is_killed),
        cmocka_unit_test(a_stopped_witness_leaves_a_free_lock),
        cmocka_unit_test(a_forked_child_ends_its_copy_without_its_parents_thread),
        cmocka_unit_test(signals_of_the_process_do_not_go_to_the_witness),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
