/* nxl_alloc() and registration: which file lies behind memory, all or nothing, one by one. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/alloc.h"
#include "rig.h"

static int setup(void **state)
{
    rig_setup_session(state);
    rig_peer(*state);
    return 0;
}

/* ---- nxl_alloc -------------------------------------------------------------------------- */

static void allocated_memory_is_zeroed_sealed_and_known(void **state)
{
    unsigned char *memory = NULL;
    uint64_t base, size;
    struct nxl_err err;
    int fd;

    assert_int_equal(nxl_alloc(10000, 0, (void **)&memory, &err), NXL_OK);
    assert_int_equal((uintptr_t)memory % 4096, 0);
    for (int i = 0; i < 10000; i++)
        assert_int_equal(memory[i], 0);
    assert_true(nxl_alloc_find((uintptr_t)memory + 12287, &fd, &base, &size));
    assert_int_equal(base, (uintptr_t)memory);
    assert_int_equal(size, 12288);
    assert_int_equal(fcntl(fd, F_GET_SEALS), F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    assert_int_equal(ftruncate(fd, 0), -1);
    close(fd);
    assert_false(nxl_alloc_find((uintptr_t)memory + 12288, &fd, &base, &size));
    assert_false(nxl_alloc_find((uintptr_t)memory - 1, &fd, &base, &size));
    nxl_free(memory);
    assert_false(nxl_alloc_find((uintptr_t)memory, &fd, &base, &size));
}

static void impossible_sizes_and_flags_are_refused(void **state)
{
    void *memory = NULL;
    struct nxl_err err;

    assert_int_equal(nxl_alloc(0, 0, &memory, &err), NXL_INVALID_PARAM);
    assert_int_equal(nxl_alloc(SIZE_MAX, 0, &memory, &err), NXL_INVALID_PARAM);
    assert_int_equal(nxl_alloc(1ull << 62, 0, &memory, &err), NXL_LIMIT);
    assert_int_equal(nxl_alloc(4096, 1u << 9, &memory, &err), NXL_INVALID_PARAM);
    assert_null(memory);
    nxl_free(NULL);
}

static void huge_pages_fall_back_unless_they_are_required(void **state)
{
    void *memory = NULL, *strict = NULL;
    struct nxl_err err;
    enum nxl_code code = nxl_alloc(1 << 20, NXL_ALLOC_HUGE_REQUIRE, &strict, &err);

    assert_true(code == NXL_OK || code == NXL_LIMIT); /* depends on vm.nr_hugepages */
    if (code == NXL_LIMIT)
        assert_non_null(strstr(err.text, "nr_hugepages"));
    else
        assert_int_equal((uintptr_t)strict % (2u << 20), 0);
    assert_int_equal(nxl_alloc(1 << 20, NXL_ALLOC_HUGE | NXL_ALLOC_POPULATE, &memory, &err),
                     NXL_OK);
    memset(memory, 1, 1 << 20);
    nxl_free(memory);
    nxl_free(strict);
}

static void many_allocations_are_all_found(void **state)
{
    void *memory[200];
    struct nxl_err err;
    uint64_t base, size;
    int fd;

    for (size_t i = 0; i < 200; i++)
        assert_int_equal(nxl_alloc(4096, 0, &memory[i], &err), NXL_OK);
    for (size_t i = 0; i < 200; i += 2)
        nxl_free(memory[i]);
    for (size_t i = 0; i < 200; i++) {
        assert_int_equal(nxl_alloc_find((uintptr_t)memory[i], &fd, &base, &size), i % 2);
        if (i % 2) {
            assert_int_equal(base, (uintptr_t)memory[i]);
            close(fd);
            nxl_free(memory[i]);
        }
    }
}

/* ---- which file ------------------------------------------------------------------------- */

static enum nxl_code register_one(struct rig *rig, void *addr, uint64_t len,
                                  struct nxl_memreg **ret)
{
    struct nxl_region region = {.addr = addr, .len = len};

    return nxl_register(rig->peer, &region, 1, ret, &rig->err);
}

static void *map_file(int fd, size_t size, int flags)
{
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, flags, fd, 0);

    assert_true(memory != MAP_FAILED);
    return memory;
}

static void our_memory_is_sent_with_its_place_in_the_file(void **state)
{
    struct rig *rig = *state;
    struct nxl_frame *frame = malloc(sizeof(*frame));
    struct nxl_region regions[2];
    struct nxl_memreg *regs[2];
    char *memory = NULL;

    assert_code(NXL_OK, rig, nxl_alloc(5 * RIG_PAGE, 0, (void **)&memory, &rig->err));
    regions[0] = (struct nxl_region){.addr = memory, .len = RIG_PAGE};
    regions[1] = (struct nxl_region){.addr = memory + 3 * RIG_PAGE + 5, .len = RIG_PAGE};
    assert_code(NXL_OK, rig, nxl_register(rig->peer, regions, 2, regs, &rig->err));
    fake_agent_last(rig->agent, NXL_FRAME_REGISTER, frame);
    assert_int_equal(frame->count, 2);
    assert_int_equal(frame->regions[0].fd_offset, 0);
    assert_int_equal(frame->regions[1].addr, (uintptr_t)memory + 3 * RIG_PAGE + 5);
    assert_int_equal(frame->regions[1].fd_offset, 3 * RIG_PAGE + 5);
    assert_int_equal(frame->regions[1].fd_index, 0);
    assert_int_equal(fake_agent_last_fds(rig->agent), 1); /* one file, one descriptor */
    nxl_free(memory);
    free(frame);
}

static void a_shared_mapping_of_the_application_is_found(void **state)
{
    struct rig *rig = *state;
    struct nxl_memreg *reg;
    int fd = memfd_create("app", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    void *memory;

    assert_int_equal(ftruncate(fd, 8 * RIG_PAGE), 0);
    memory = map_file(fd, 8 * RIG_PAGE, MAP_SHARED);
    assert_code(NXL_OK, rig, register_one(rig, (char *)memory + RIG_PAGE, 2 * RIG_PAGE, &reg));
    assert_true(fcntl(fd, F_GET_SEALS) & F_SEAL_SHRINK); /* added by the library */
    assert_code(NXL_OK, rig, nxl_deregister(rig->peer, &reg, 1, &rig->err));
    munmap(memory, 8 * RIG_PAGE);
    close(fd);
}

static void a_memfd_that_cannot_be_sealed_is_not_allowed(void **state)
{
    struct rig *rig = *state;
    struct nxl_memreg *reg = NULL;
    int fd = memfd_create("unsealable", MFD_CLOEXEC);
    void *memory;

    assert_int_equal(ftruncate(fd, RIG_PAGE), 0);
    memory = map_file(fd, RIG_PAGE, MAP_SHARED);
    assert_code(NXL_NOT_ALLOWED, rig, register_one(rig, memory, RIG_PAGE, &reg));
    assert_says(rig, "F_SEAL_SHRINK");
    assert_says(rig, "register region 0");
    munmap(memory, RIG_PAGE);
    close(fd);
}

static void a_file_that_was_closed_is_opened_again_by_name(void **state)
{
    struct rig *rig = *state;
    struct nxl_memreg *reg;
    char path[] = "/tmp/nixlet-file-XXXXXX";
    int fd = mkstemp(path);
    void *memory;

    assert_int_equal(ftruncate(fd, 2 * RIG_PAGE), 0);
    memory = map_file(fd, 2 * RIG_PAGE, MAP_SHARED);
    close(fd);
    assert_code(NXL_OK, rig, register_one(rig, memory, 2 * RIG_PAGE, &reg));
    assert_code(NXL_OK, rig, nxl_deregister(rig->peer, &reg, 1, &rig->err));
    /* Another file under the same name is not that memory. */
    unlink(path);
    fd = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    assert_int_equal(ftruncate(fd, 2 * RIG_PAGE), 0);
    close(fd);
    reg = NULL;
    if (access("/proc/self/map_files", R_OK | X_OK) != 0 || geteuid() != 0) {
        assert_code(NXL_NOT_SUPPORTED, rig, register_one(rig, memory, 2 * RIG_PAGE, &reg));
        assert_says(rig, "keep the descriptor open");
    }
    unlink(path);
    munmap(memory, 2 * RIG_PAGE);
}

static void private_memory_is_refused_with_what_to_do(void **state)
{
    struct rig *rig = *state;
    struct nxl_memreg *reg = NULL;
    void *memory = mmap(NULL, RIG_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    assert_code(NXL_NOT_SUPPORTED, rig, register_one(rig, memory, RIG_PAGE, &reg));
    assert_says(rig, "nxl_alloc()");
    assert_says(rig, "MAP_SHARED");
    munmap(memory, RIG_PAGE);
    assert_null(reg);
}

static void ranges_that_are_not_one_mapping_are_refused(void **state)
{
    struct rig *rig = *state;
    struct nxl_memreg *reg = NULL;
    int fd = memfd_create("two", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    char *memory;

    assert_int_equal(ftruncate(fd, 4 * RIG_PAGE), 0);
    memory = map_file(fd, 4 * RIG_PAGE, MAP_SHARED);
    assert_int_equal(munmap(memory + 2 * RIG_PAGE, RIG_PAGE), 0);
    assert_code(NXL_OK, rig, register_one(rig, memory, 2 * RIG_PAGE, &reg));
    assert_code(NXL_INVALID_PARAM, rig, register_one(rig, memory, 3 * RIG_PAGE, &reg));
    assert_says(rig, "first 8192 bytes");
    assert_code(NXL_INVALID_PARAM, rig, register_one(rig, memory + 2 * RIG_PAGE, 1, &reg));
    assert_says(rig, "nothing is mapped");
    munmap(memory, 4 * RIG_PAGE);
    close(fd);
}

static void memory_past_the_end_of_its_file_is_refused(void **state)
{
    struct rig *rig = *state;
    struct nxl_memreg *reg = NULL;
    char path[] = "/tmp/nixlet-file-XXXXXX";
    int fd = mkstemp(path);
    void *memory;

    assert_int_equal(ftruncate(fd, 100), 0);
    memory = map_file(fd, RIG_PAGE, MAP_SHARED);
    assert_code(NXL_INVALID_PARAM, rig, register_one(rig, memory, 101, &reg));
    assert_says(rig, "past the file's end");
    assert_code(NXL_OK, rig, register_one(rig, memory, 100, &reg));
    unlink(path);
    munmap(memory, RIG_PAGE);
    close(fd);
}

static void arguments_that_cannot_be_right_never_reach_the_agent(void **state)
{
    struct rig *rig = *state;
    struct nxl_region region = {.addr = (void *)16, .len = 0};
    struct nxl_memreg *reg = NULL;
    unsigned before = fake_agent_count(rig->agent, NXL_FRAME_REGISTER);

    assert_code(NXL_INVALID_PARAM, rig, nxl_register(rig->peer, &region, 1, &reg, &rig->err));
    assert_says(rig, "length is 0");
    region.len = UINT64_MAX;
    assert_code(NXL_INVALID_PARAM, rig, nxl_register(rig->peer, &region, 1, &reg, &rig->err));
    assert_says(rig, "overflows");
    region.addr = NULL;
    assert_code(NXL_INVALID_PARAM, rig, nxl_register(rig->peer, &region, 1, &reg, &rig->err));
    region.kind = NXL_MEM_VRAM;
    assert_code(NXL_NOT_SUPPORTED, rig, nxl_register(rig->peer, &region, 1, &reg, &rig->err));
    assert_code(NXL_OK, rig, nxl_register(rig->peer, NULL, 0, NULL, &rig->err));
    assert_code(NXL_OK, rig, nxl_deregister(rig->peer, NULL, 0, &rig->err)); /* C-003 */
    assert_int_equal(fake_agent_count(rig->agent, NXL_FRAME_REGISTER), before);
}

/* ---- many ------------------------------------------------------------------------------- */

/* C-002: the seventh of ten is wrong; nothing stays registered. */
static void one_wrong_region_registers_none(void **state)
{
    struct rig *rig = *state;
    struct nxl_region regions[10];
    struct nxl_memreg *regs[10] = {0};
    char *memory = NULL;

    assert_code(NXL_OK, rig, nxl_alloc(10 * RIG_PAGE, 0, (void **)&memory, &rig->err));
    for (int i = 0; i < 10; i++)
        regions[i] = (struct nxl_region){.addr = memory + i * RIG_PAGE, .len = RIG_PAGE};
    regions[6].addr = (void *)4096;
    assert_code(NXL_INVALID_PARAM, rig, nxl_register(rig->peer, regions, 10, regs, &rig->err));
    assert_says(rig, "register region 6");
    assert_null(regs[0]);
    assert_int_equal(fake_agent_regions(rig->agent), 0);
    nxl_free(memory);
}

/* C-002: the agent refuses the third frame; the first two are taken back. */
static void a_refused_frame_takes_the_earlier_ones_back(void **state)
{
    struct rig *rig = *state;
    const uint32_t count = 2500;
    struct nxl_region *regions = calloc(count, sizeof(*regions));
    struct nxl_memreg **regs = calloc(count, sizeof(*regs));
    char *memory = NULL;

    assert_code(NXL_OK, rig, nxl_alloc(count * 64, 0, (void **)&memory, &rig->err));
    for (uint32_t i = 0; i < count; i++)
        regions[i] = (struct nxl_region){.addr = memory + i * 64, .len = 64};
    fake_agent_refuse(rig->agent, NXL_FRAME_REGISTER, NXL_LIMIT, "limits.regions", 2, 1);
    assert_code(NXL_LIMIT, rig, nxl_register(rig->peer, regions, count, regs, &rig->err));
    assert_says(rig, "limits.regions");
    assert_null(regs[0]);
    assert_int_equal(fake_agent_regions(rig->agent), 0);
    assert_code(NXL_OK, rig, nxl_register(rig->peer, regions, count, regs, &rig->err));
    assert_int_equal(fake_agent_regions(rig->agent), count);
    assert_code(NXL_OK, rig, nxl_deregister(rig->peer, regs, count, &rig->err));
    assert_int_equal(fake_agent_regions(rig->agent), 0);
    nxl_free(memory);
    free(regions);
    free(regs);
}

static void more_files_than_one_frame_carries_go_in_several(void **state)
{
    struct rig *rig = *state;
    struct nxl_region regions[150];
    struct nxl_memreg *regs[150];

    for (int i = 0; i < 150; i++) {
        regions[i] = (struct nxl_region){.len = RIG_PAGE};
        assert_code(NXL_OK, rig, nxl_alloc(RIG_PAGE, 0, &regions[i].addr, &rig->err));
    }
    assert_code(NXL_OK, rig, nxl_register(rig->peer, regions, 150, regs, &rig->err));
    assert_int_equal(fake_agent_count(rig->agent, NXL_FRAME_REGISTER), 3);
    assert_int_equal(fake_agent_last_fds(rig->agent), 150 - 2 * 64);
    assert_int_equal(fake_agent_regions(rig->agent), 150);
    for (int i = 0; i < 150; i++)
        nxl_free(regions[i].addr);
}

/* C-003: the same range counts twice. */
static void the_same_range_is_taken_back_once_per_registration(void **state)
{
    struct rig *rig = *state;
    struct nxl_region region = {.len = RIG_PAGE}, other;
    struct nxl_memreg *regs[2];

    assert_code(NXL_OK, rig, nxl_alloc(RIG_PAGE, 0, &region.addr, &rig->err));
    assert_code(NXL_OK, rig, nxl_register(rig->peer, &region, 1, &regs[0], &rig->err));
    assert_code(NXL_OK, rig, nxl_register(rig->peer, &region, 1, &regs[1], &rig->err));
    assert_ptr_not_equal(regs[0], regs[1]);
    assert_code(NXL_OK, rig, nxl_deregister_range(rig->peer, &region, &rig->err));
    assert_int_equal(fake_agent_regions(rig->agent), 1);
    other = region;
    other.len--;
    assert_code(NXL_NOT_FOUND, rig, nxl_deregister_range(rig->peer, &other, &rig->err));
    assert_code(NXL_OK, rig, nxl_deregister_range(rig->peer, &region, &rig->err));
    assert_code(NXL_NOT_FOUND, rig, nxl_deregister_range(rig->peer, &region, &rig->err));
    assert_says(rig, "exactly address");
    nxl_free(region.addr);
}

/* C-001: one of three stays; the call says which, the others are gone. */
static void a_busy_region_stays_and_is_named(void **state)
{
    struct rig *rig = *state;
    struct nxl_region regions[3];
    struct nxl_memreg *regs[3];
    char *memory = NULL;
    char address[40];

    assert_code(NXL_OK, rig, nxl_alloc(3 * RIG_PAGE, 0, (void **)&memory, &rig->err));
    for (int i = 0; i < 3; i++)
        regions[i] = (struct nxl_region){.addr = memory + i * RIG_PAGE, .len = RIG_PAGE};
    assert_code(NXL_OK, rig, nxl_register(rig->peer, regions, 3, regs, &rig->err));
    /* The frame with all three is refused, then the first of the single ones. */
    fake_agent_refuse(rig->agent, NXL_FRAME_DEREGISTER, NXL_BUSY, "transfer 4 runs", 0, 2);
    assert_code(NXL_BUSY, rig, nxl_deregister(rig->peer, regs, 3, &rig->err));
    snprintf(address, sizeof(address), "%p", regions[0].addr);
    assert_says(rig, address);
    assert_says(rig, "transfer 4 runs");
    assert_non_null(regs[0]);
    assert_null(regs[1]);
    assert_null(regs[2]);
    assert_int_equal(fake_agent_regions(rig->agent), 1);
    assert_code(NXL_OK, rig, nxl_deregister(rig->peer, regs, 3, &rig->err));
    assert_int_equal(fake_agent_regions(rig->agent), 0);
    nxl_free(memory);
}

static void handles_of_another_peer_are_refused(void **state)
{
    struct rig *rig = *state;
    struct nxl_region region = {.len = RIG_PAGE};
    struct nxl_memreg *reg;
    struct nxl_peer *other = NULL;

    assert_code(NXL_OK, rig, nxl_peer_open(rig->client, "other", &other, &rig->err));
    assert_code(NXL_OK, rig, nxl_alloc(RIG_PAGE, 0, &region.addr, &rig->err));
    assert_code(NXL_OK, rig, nxl_register(rig->peer, &region, 1, &reg, &rig->err));
    assert_code(NXL_INVALID_PARAM, rig, nxl_deregister(other, &reg, 1, &rig->err));
    assert_non_null(reg);
    assert_code(NXL_OK, rig, nxl_deregister(rig->peer, &reg, 1, &rig->err));
    assert_null(reg);
    nxl_free(region.addr);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, rig_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(allocated_memory_is_zeroed_sealed_and_known),
        cmocka_unit_test(impossible_sizes_and_flags_are_refused),
        cmocka_unit_test(huge_pages_fall_back_unless_they_are_required),
        cmocka_unit_test(many_allocations_are_all_found),
        TEST(our_memory_is_sent_with_its_place_in_the_file),
        TEST(a_shared_mapping_of_the_application_is_found),
        TEST(a_memfd_that_cannot_be_sealed_is_not_allowed),
        TEST(a_file_that_was_closed_is_opened_again_by_name),
        TEST(private_memory_is_refused_with_what_to_do),
        TEST(ranges_that_are_not_one_mapping_are_refused),
        TEST(memory_past_the_end_of_its_file_is_refused),
        TEST(arguments_that_cannot_be_right_never_reach_the_agent),
        TEST(one_wrong_region_registers_none),
        TEST(a_refused_frame_takes_the_earlier_ones_back),
        TEST(more_files_than_one_frame_carries_go_in_several),
        TEST(the_same_range_is_taken_back_once_per_registration),
        TEST(a_busy_region_stays_and_is_named),
        TEST(handles_of_another_peer_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
