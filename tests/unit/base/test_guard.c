/* test_guard.c - a client that truncates a mapped file ends its transfer, not the agent. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/guard.h"
#include "unit/base/dies.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#define PAGES 8u

static size_t page;
static struct sigaction guarding;

/* cmocka puts its own handler in place around every test. */
static void guard_again(void)
{
    assert_int_equal(sigaction(SIGBUS, &guarding, NULL), 0);
}

struct mapping {
    int fd;
    unsigned char *base;
    size_t size;
};

static struct mapping mapping_open(void)
{
    struct mapping mapping = {.fd = memfd_create("client", MFD_CLOEXEC), .size = PAGES * page};

    guard_again();
    assert_true(mapping.fd >= 0);
    assert_int_equal(ftruncate(mapping.fd, (off_t)mapping.size), 0);
    mapping.base = mmap(NULL, mapping.size, PROT_READ | PROT_WRITE, MAP_SHARED, mapping.fd, 0);
    assert_ptr_not_equal(mapping.base, MAP_FAILED);
    memset(mapping.base, 0x5a, mapping.size);
    return mapping;
}

static void mapping_close(struct mapping *mapping)
{
    assert_int_equal(munmap(mapping->base, mapping->size), 0);
    close(mapping->fd);
}

static unsigned char touch(const struct mapping *mapping, size_t at)
{
    return *(volatile unsigned char *)(mapping->base + at);
}

static void memory_taken_away_reads_as_zero_and_is_marked(void **state)
{
    struct mapping mapping = mapping_open(), other = mapping_open();
    int slot = nxl_guard_add(mapping.base, mapping.size),
        second = nxl_guard_add(other.base, other.size);

    assert_true(slot >= 0 && second >= 0 && slot != second);
    assert_int_equal(touch(&mapping, 3 * page), 0x5a);
    assert_int_equal(nxl_guard_lost(slot), 0);
    assert_int_equal(ftruncate(mapping.fd, 0), 0);
    assert_int_equal(touch(&mapping, 3 * page), 0);
    assert_int_equal(nxl_guard_lost(slot), 1);
    mapping.base[mapping.size - 1] = 1; /* the whole mapping was replaced */
    assert_int_equal(touch(&mapping, mapping.size - 1), 1);
    assert_int_equal(touch(&other, 3 * page), 0x5a);
    assert_int_equal(nxl_guard_lost(second), 0);
    nxl_guard_remove(slot);
    nxl_guard_remove(second);
    mapping_close(&mapping);
    mapping_close(&other);
}

static void a_copy_across_the_cut_ends(void **state)
{
    struct mapping mapping = mapping_open();
    int slot = nxl_guard_add(mapping.base, mapping.size);
    unsigned char to[4096] = {0};

    assert_int_equal(ftruncate(mapping.fd, (off_t)(2 * page)), 0);
    memcpy(to, mapping.base + 2 * page - 100, sizeof(to));
    assert_int_equal(nxl_guard_lost(slot), 1);
    assert_int_equal(to[sizeof(to) - 1], 0);
    nxl_guard_remove(slot);
    mapping_close(&mapping);
}

static void a_size_that_is_no_multiple_of_a_page_covers_its_last_page(void **state)
{
    struct mapping mapping = mapping_open();
    int slot = nxl_guard_add(mapping.base, mapping.size - page + 1);

    assert_int_equal(ftruncate(mapping.fd, 0), 0);
    assert_int_equal(touch(&mapping, mapping.size - 1), 0);
    assert_int_equal(nxl_guard_lost(slot), 1);
    nxl_guard_remove(slot);
    mapping_close(&mapping);
}

static void touch_after_remove(const void *arg)
{
    const struct mapping *mapping = arg;

    nxl_guard_remove(nxl_guard_add(mapping->base, mapping->size));
    (void)touch(mapping, 0);
}

static void touch_unguarded(const void *arg)
{
    (void)touch(arg, 0);
}

static void send_to_self(const void *arg)
{
    (void)raise(SIGBUS);
}

/* Signals of others keep their meaning. In a child, with the default action behind ours. */
static void what_is_not_guarded_still_ends_the_program(void **state)
{
    struct mapping mapping = mapping_open();

    assert_int_equal(ftruncate(mapping.fd, 0), 0);
    assert_int_equal(dies_of(touch_after_remove, &mapping), SIGBUS);
    assert_int_equal(dies_of(touch_unguarded, &mapping), SIGBUS);
    assert_int_equal(dies_of(send_to_self, NULL), SIGBUS);
    mapping_close(&mapping);
}

static void a_slot_is_used_again_without_its_past(void **state)
{
    int first = -1;

    for (unsigned round = 0; round < 100; round++) {
        struct mapping mapping = mapping_open();
        int slot = nxl_guard_add(mapping.base, mapping.size);

        if (round == 0)
            first = slot;
        assert_int_equal(slot, first);
        assert_int_equal(nxl_guard_lost(slot), 0);
        assert_int_equal(ftruncate(mapping.fd, 0), 0);
        (void)touch(&mapping, 0);
        assert_int_equal(nxl_guard_lost(slot), 1);
        nxl_guard_remove(slot);
        mapping_close(&mapping);
    }
    nxl_guard_remove(-1);
    assert_int_equal(nxl_guard_lost(-1), 0);
}

static int slots[65536];

static void a_full_table_refuses_and_recovers(void **state)
{
    struct mapping mapping = mapping_open();
    size_t count = 0;

    /* Addresses nobody touches: only their numbers matter. */
    for (; count < 65536; count++) {
        slots[count] = nxl_guard_add((void *)((count + 1) << 20), page);
        if (slots[count] < 0)
            break;
    }
    assert_int_equal(count, 65536);
    assert_int_equal(nxl_guard_add(mapping.base, mapping.size), -1);
    nxl_guard_remove(slots[777]);
    slots[777] = nxl_guard_add(mapping.base, mapping.size);
    assert_true(slots[777] >= 0);
    assert_int_equal(ftruncate(mapping.fd, 0), 0);
    (void)touch(&mapping, 0);
    assert_int_equal(nxl_guard_lost(slots[777]), 1);
    for (size_t i = 0; i < 65536; i++)
        nxl_guard_remove(slots[i]);
    mapping_close(&mapping);
}

#define THREADS 3u
#define RACES 200u

struct race {
    struct mapping mapping;
    pthread_barrier_t start, end;
    atomic_uint zeros;
};

static void *race_reader(void *arg)
{
    struct race *race = arg;

    for (unsigned round = 0; round < RACES; round++) {
        (void)pthread_barrier_wait(&race->start);
        for (unsigned i = 0; i < PAGES; i++) {
            if (touch(&race->mapping, i * page) == 0)
                atomic_fetch_add(&race->zeros, 1);
        }
        (void)pthread_barrier_wait(&race->end);
    }
    return NULL;
}

/* Every thread's handler runs at once on one slot; all go on, and the slot is clean for its next
 * owner. */
static void threads_that_touch_together_all_survive(void **state)
{
    struct race race = {0};
    pthread_t threads[THREADS];

    assert_int_equal(pthread_barrier_init(&race.start, NULL, THREADS + 1), 0);
    assert_int_equal(pthread_barrier_init(&race.end, NULL, THREADS + 1), 0);
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, race_reader, &race), 0);
    for (unsigned round = 0; round < RACES; round++) {
        int slot;

        race.mapping = mapping_open();
        slot = nxl_guard_add(race.mapping.base, race.mapping.size);
        if (round % 2 == 0)
            assert_int_equal(ftruncate(race.mapping.fd, 0), 0);
        (void)pthread_barrier_wait(&race.start);
        if (round % 2 == 1) /* in the middle of their reading */
            assert_int_equal(ftruncate(race.mapping.fd, 0), 0);
        (void)pthread_barrier_wait(&race.end);
        if (round % 2 == 0)
            assert_int_equal(nxl_guard_lost(slot), 1);
        nxl_guard_remove(slot);
        mapping_close(&race.mapping);
    }
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_true(atomic_load(&race.zeros) >= RACES / 2 * THREADS * PAGES);
    pthread_barrier_destroy(&race.start);
    pthread_barrier_destroy(&race.end);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_taken_away_reads_as_zero_and_is_marked),
        cmocka_unit_test(a_copy_across_the_cut_ends),
        cmocka_unit_test(a_size_that_is_no_multiple_of_a_page_covers_its_last_page),
        cmocka_unit_test(what_is_not_guarded_still_ends_the_program),
        cmocka_unit_test(a_slot_is_used_again_without_its_past),
        cmocka_unit_test(threads_that_touch_together_all_survive),
        cmocka_unit_test(a_full_table_refuses_and_recovers),
    };

    page = (size_t)sysconf(_SC_PAGESIZE);
    /* A sanitizer's own handler would turn the signal into a report: ours stands on the default. */
    (void)signal(SIGBUS, SIG_DFL);
    nxl_guard_install();
    nxl_guard_install(); /* must not chain to itself */
    (void)sigaction(SIGBUS, NULL, &guarding);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
