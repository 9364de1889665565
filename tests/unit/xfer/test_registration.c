/* registration.c, regions_leave.c: what may be registered, what a descriptor finds, and that a
 * region that went leaves nothing behind. */
#include "rig.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define KIB 1024ull

struct memory { /* one client that knows itself */
    struct rig rig;
    struct client client;
    struct hand *hand;
    uint32_t self;
};

static int setup(void **state)
{
    struct memory *m = nxl_new0(sizeof(*m));
    struct nxl_xfer_remote_info info;
    struct nxl_err err = {0};

    rig_open(&m->rig, "hand", NULL);
    client_open_bare(&m->client, &m->rig, &m->rig.engines[0], "ns", "self");
    m->hand = hand_of(&m->rig, &m->rig.engines[0]);
    assert_int_equal(nxl_xfer_find(m->client.session, m->client.peer, "self", &info, &err), NXL_OK);
    m->self = info.remote;
    *state = m;
    return 0;
}

static int teardown(void **state)
{
    struct memory *m = *state;

    client_close(&m->client);
    rig_close(&m->rig);
    free(m);
    return 0;
}

static uint64_t add(struct memory *m, uint64_t at, uint64_t len)
{
    struct nxl_err err = {0};
    uint64_t id = 0;

    if (client_register(&m->client, at, len, &id, &err) != NXL_OK)
        fail_msg("register %llu: %s", (unsigned long long)at, err.text);
    return id;
}

static enum nxl_code drop(struct memory *m, const uint64_t *ids, uint32_t count)
{
    struct gone gone = {0};

    nxl_xfer_deregister(m->client.session, m->client.peer, ids, count, 0, gone_take, &gone);
    assert_int_equal(gone.count, 1);
    assert_int_equal(gone.done, gone.code == NXL_OK ? count : 0);
    return gone.code;
}

/* May a transfer name [at, at + len)? */
static enum nxl_code covers(struct memory *m, uint64_t at, uint64_t len, struct nxl_err *err)
{
    struct nxl_run run = {.addr = CLIENT_ADDR + at, .len = len, .count = 1};

    *err = (struct nxl_err){0};
    return nxl_xfer_check(m->client.session, m->client.peer, m->self, NXL_MEM_DRAM, &run, 1, err);
}

static void a_descriptor_must_lie_in_one_region_to_its_last_byte(void **state)
{
    static const struct {
        uint64_t at, len;
        enum nxl_code code;
    } rows[] = {
        {16 * KIB, 16 * KIB, NXL_OK},        /* a region, exactly */
        {16 * KIB, 1, NXL_OK},               /* its first byte */
        {32 * KIB - 1, 1, NXL_OK},           /* its last */
        {16 * KIB - 1, 2, NXL_NOT_FOUND},    /* one byte before */
        {32 * KIB, 16 * KIB, NXL_OK},        /* the neighbour */
        {32 * KIB - 1, 2, NXL_NOT_FOUND},    /* across both: two regions are not one */
        {48 * KIB - 1, 2, NXL_NOT_FOUND},    /* one byte behind */
        {48 * KIB, 1, NXL_NOT_FOUND},        /* behind the end */
        {16 * KIB, 0, NXL_OK},               /* nothing, at the start */
        {48 * KIB, 0, NXL_OK},               /* nothing, at the end */
        {48 * KIB + 1, 0, NXL_NOT_FOUND},    /* nothing, outside */
        {64 * KIB, 32 * KIB, NXL_OK},        /* the first of two that overlap */
        {80 * KIB, 32 * KIB, NXL_OK},        /* the second */
        {64 * KIB, 48 * KIB, NXL_NOT_FOUND}, /* both together */
        {200 * KIB, 50 * KIB, NXL_OK},       /* larger than the nested one, inside the outer */
        {210 * KIB, KIB, NXL_OK},            /* inside the nested one */
        {~0ull - CLIENT_ADDR, 2, NXL_INVALID_PARAM}, /* address plus length overflows */
    };
    struct memory *m = *state;
    struct nxl_err err;

    (void)add(m, 16 * KIB, 16 * KIB);
    (void)add(m, 32 * KIB, 16 * KIB);
    (void)add(m, 64 * KIB, 32 * KIB);
    (void)add(m, 80 * KIB, 32 * KIB);
    (void)add(m, 200 * KIB, 100 * KIB);
    (void)add(m, 208 * KIB, 8 * KIB);
    for (size_t i = 0; i < NXL_COUNT_OF(rows); i++) {
        if (covers(m, rows[i].at, rows[i].len, &err) != rows[i].code)
            fail_msg("row %zu: %s (%s)", i, nxl_code_name(err.code), err.text);
        if (rows[i].code != NXL_OK)
            assert_true(err.text[0] != '\0');
    }
    (void)covers(m, 49 * KIB, 16, &err); /* C-015: which region would be the nearest */
    assert_non_null(strstr(err.text, "nearest region"));
}

/* C-004: of two that overlap, the one that stays goes on alone. */
static void an_overlapped_region_works_when_the_other_is_gone(void **state)
{
    struct memory *m = *state;
    struct nxl_err err;
    uint64_t first = add(m, 0, 64 * KIB), second = add(m, 32 * KIB, 64 * KIB);
    uint32_t post;

    assert_int_equal(drop(m, &first, 1), NXL_OK);
    assert_int_equal(covers(m, 0, KIB, &err), NXL_NOT_FOUND);
    m->client.base[40 * KIB] = 42;
    (void)client_prepare(&m->client, 0, NXL_WRITE, m->self, 40 * KIB, 80 * KIB, KIB);
    post = client_post(&m->client);
    hand_end(m->hand, 0, NXL_OK, 1);
    WAIT(&m->rig, client_ended(&m->client, post, NXL_OK, 1));
    assert_int_equal(m->client.base[80 * KIB], 42);
    assert_int_equal(drop(m, &second, 1), NXL_OK);
}

/* C-003 */
static void a_range_that_is_registered_twice_is_two_regions(void **state)
{
    struct memory *m = *state;
    struct nxl_err err;
    uint64_t first = add(m, 0, 64 * KIB), second = add(m, 0, 64 * KIB);

    assert_int_not_equal(first, second);
    assert_int_equal(drop(m, &first, 1), NXL_OK);
    assert_int_equal(covers(m, 0, 64 * KIB, &err), NXL_OK);
    assert_int_equal(drop(m, &first, 1), NXL_NOT_FOUND);
    assert_int_equal(drop(m, &second, 1), NXL_OK);
    assert_int_equal(drop(m, &second, 1), NXL_NOT_FOUND);
    assert_int_equal(covers(m, 0, 1, &err), NXL_NOT_FOUND);
    assert_int_equal(drop(m, NULL, 0), NXL_OK);
}

/* C-002: the seventh of ten is wrong. */
static void all_are_registered_or_none(void **state)
{
    struct memory *m = *state;
    struct nxl_xfer_region regions[10];
    uint64_t ids[10] = {0};
    struct nxl_err err = {0};

    for (uint32_t i = 0; i < 10; i++)
        regions[i] = (struct nxl_xfer_region){
            .addr = CLIENT_ADDR + i * 64 * KIB, .len = 64 * KIB, .fd_offset = i * 64 * KIB};
    regions[6].fd_offset = CLIENT_SIZE;
    assert_int_equal(nxl_xfer_register(m->client.session, m->client.peer, regions, 10,
                                       &m->client.fd, 1, ids, &err),
                     NXL_INVALID_PARAM);
    assert_non_null(strstr(err.text, "region 6"));
    assert_int_equal(ids[0], 0);
    assert_int_equal(m->hand->mems, 0);
    assert_int_equal(rig_metric(&m->rig.engines[0], "nixlet_regions", ""), 0);
    assert_int_equal(covers(m, 0, 1, &err), NXL_NOT_FOUND);
    regions[6].fd_offset = 6 * 64 * KIB;
    assert_int_equal(nxl_xfer_register(m->client.session, m->client.peer, regions, 10,
                                       &m->client.fd, 1, ids, &err),
                     NXL_OK);
    assert_int_equal(drop(m, ids, 10), NXL_OK);
    assert_int_equal(m->hand->mems, 0);
}

static void what_cannot_be_mapped_safely_is_refused_with_the_reason(void **state)
{
    struct memory *m = *state;
    struct nxl_xfer_region good = {.addr = CLIENT_ADDR, .len = 4096};
    struct {
        struct nxl_xfer_region region;
        enum nxl_code code;
        const char *word;
    } rows[] = {
        {good, NXL_NOT_SUPPORTED, "kind"},        {good, NXL_INVALID_PARAM, "no length"},
        {good, NXL_INVALID_PARAM, "overflow"},    {good, NXL_INVALID_PARAM, "overflow"},
        {good, NXL_INVALID_PARAM, "names"},       {good, NXL_INVALID_PARAM, "ends at byte"},
        {good, NXL_NOT_ALLOWED, "SEAL"},          {good, NXL_NOT_ALLOWED, "reading and writing"},
        {good, NXL_INVALID_PARAM, "memory file"},
    };
    int fds[4] = {m->client.fd, memfd_create("bare", MFD_CLOEXEC),
                  open("/proc/self/exe", O_RDONLY | O_CLOEXEC),
                  open("/dev/null", O_RDWR | O_CLOEXEC)};
    uint64_t id;

    assert_int_equal(ftruncate(fds[1], 8192), 0);
    rows[0].region.kind = NXL_MEM_VRAM;
    rows[1].region.len = 0;
    rows[2].region.addr = ~0ull - 100;
    rows[3].region.fd_offset = ~0ull - 100;
    rows[4].region.fd_index = 4;
    rows[5].region.fd_offset = CLIENT_SIZE - 4095;
    rows[6].region.fd_index = 1;
    rows[7].region.fd_index = 2;
    rows[8].region.fd_index = 3;
    for (size_t i = 0; i < NXL_COUNT_OF(rows); i++) {
        struct nxl_err err = {0};

        if (nxl_xfer_register(m->client.session, m->client.peer, &rows[i].region, 1, fds, 4, &id,
                              &err) != rows[i].code)
            fail_msg("row %zu: %s", i, err.text);
        if (strstr(err.text, rows[i].word) == NULL || strstr(err.text, "0") == NULL)
            fail_msg("row %zu does not say '%s': %s", i, rows[i].word, err.text);
    }
    assert_int_equal(m->hand->mems, 0);
    for (int i = 1; i < 4; i++)
        close(fds[i]);
}

static void a_backend_that_takes_no_memory_leaves_none_registered(void **state)
{
    struct memory *m = *state;
    struct nxl_err err = {0};
    uint64_t id;

    m->hand->register_code = NXL_LIMIT;
    assert_int_equal(client_register(&m->client, 0, 4096, &id, &err), NXL_BACKEND);
    assert_non_null(strstr(err.text, "takes no memory"));
    assert_int_equal(rig_metric(&m->rig.engines[0], "nixlet_regions", ""), 0);
    m->hand->register_code = NXL_OK;
    (void)add(m, 0, 4096);
}

/* A file that grows after it was mapped is mapped anew; what was registered before goes on. */
static void a_file_that_grew_can_be_registered_further(void **state)
{
    struct memory *m = *state;
    struct nxl_err err;
    struct nxl_xfer_region more = {
        .addr = CLIENT_ADDR + CLIENT_SIZE, .len = 4096, .fd_offset = CLIENT_SIZE};
    uint64_t first = add(m, 0, CLIENT_SIZE), second;
    unsigned char last = 0;
    uint32_t post;

    assert_int_equal(ftruncate(m->client.fd, CLIENT_SIZE + 4096), 0);
    assert_int_equal(nxl_xfer_register(m->client.session, m->client.peer, &more, 1, &m->client.fd,
                                       1, &second, &err),
                     NXL_OK);
    assert_int_equal(covers(m, 0, CLIENT_SIZE, &err), NXL_OK);
    assert_int_equal(covers(m, CLIENT_SIZE, 4096, &err), NXL_OK);
    memset(m->client.base, 21, 4096);
    (void)client_prepare(&m->client, 0, NXL_WRITE, m->self, 0, CLIENT_SIZE, 4096);
    post = client_post(&m->client);
    hand_end(m->hand, 0, NXL_OK, 1);
    WAIT(&m->rig, client_ended(&m->client, post, NXL_OK, 1));
    assert_int_equal(pread(m->client.fd, &last, 1, CLIENT_SIZE + 4095), 1);
    assert_int_equal(last, 21);
    assert_int_equal(drop(m, &first, 1), NXL_OK);
    assert_int_equal(covers(m, CLIENT_SIZE, 4096, &err), NXL_OK);
    assert_int_equal(drop(m, &second, 1), NXL_OK);
}

static uint32_t lines_of(const char *path)
{
    FILE *file = fopen(path, "re");
    uint32_t count = 0;

    assert_non_null(file);
    for (int c; (c = fgetc(file)) != EOF;)
        count += c == '\n';
    assert_int_equal(fclose(file), 0);
    return count;
}

static uint32_t fds_open(void)
{
    DIR *folder = opendir("/proc/self/fd");
    uint32_t count = 0;

    assert_non_null(folder);
    while (readdir(folder) != NULL)
        count++;
    assert_int_equal(closedir(folder), 0);
    return count;
}

static void ten_thousand_regions_of_one_file_are_one_mapping(void **state)
{
    enum { MANY = 10000 };
    struct memory *m = *state;
    struct nxl_xfer_region *regions = nxl_new0_array(MANY, sizeof(*regions));
    uint64_t *ids = nxl_new0_array(MANY, sizeof(*ids));
    uint32_t maps = lines_of("/proc/self/maps"), fds = fds_open();
    struct nxl_err err = {0};

    for (uint64_t i = 0; i < MANY; i++)
        regions[i] = (struct nxl_xfer_region){
            .addr = CLIENT_ADDR + i * 104, .len = 100, .fd_offset = i * 104};
    assert_int_equal(nxl_xfer_register(m->client.session, m->client.peer, regions, MANY,
                                       &m->client.fd, 1, ids, &err),
                     NXL_OK);
    assert_int_equal(m->hand->mems, MANY);
    assert_true(lines_of("/proc/self/maps") <= maps + 64); /* the heap may grow in pieces */
    assert_int_equal(fds_open(), fds);
    for (uint64_t i = 0; i < MANY; i++) {
        if (covers(m, i * 104, 100, &err) != NXL_OK)
            fail_msg("region %llu: %s", (unsigned long long)i, err.text);
        assert_int_equal(covers(m, i * 104 + 1, 100, &err), NXL_NOT_FOUND);
    }
    assert_int_equal(drop(m, ids, MANY), NXL_OK);
    assert_int_equal(m->hand->mems, 0);
    assert_int_equal(rig_metric(&m->rig.engines[0], "nixlet_regions_leaving", ""), 0);
    free(regions);
    free(ids);
}

/* Counted, not timed: after every round all is as after the first. */
static void two_hundred_rounds_leave_nothing_behind(void **state)
{
    enum { EACH = 64 };
    struct memory *m = *state;
    struct nxl_err err;
    uint64_t ids[EACH];
    uint32_t maps = 0, fds = 0;

    for (int round = 0; round < 200; round++) {
        for (uint32_t i = 0; i < EACH; i++)
            ids[i] = add(m, i * 16 * KIB, 16 * KIB);
        assert_int_equal(m->hand->mems, EACH);
        assert_int_equal(rig_metric(&m->rig.engines[0], "nixlet_regions", ""), EACH);
        assert_int_equal(drop(m, ids, EACH), NXL_OK);
        assert_int_equal(m->hand->mems, 0);
        assert_int_equal(rig_metric(&m->rig.engines[0], "nixlet_regions", ""), 0);
        assert_int_equal(covers(m, 0, 1, &err), NXL_NOT_FOUND);
        if (round == 20) {
            maps = lines_of("/proc/self/maps");
            fds = fds_open();
        }
    }
    assert_int_equal(fds_open(), fds);
    assert_true(lines_of("/proc/self/maps") <= maps + 8);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_descriptor_must_lie_in_one_region_to_its_last_byte),
        TEST(an_overlapped_region_works_when_the_other_is_gone),
        TEST(a_range_that_is_registered_twice_is_two_regions),
        TEST(all_are_registered_or_none),
        TEST(what_cannot_be_mapped_safely_is_refused_with_the_reason),
        TEST(a_backend_that_takes_no_memory_leaves_none_registered),
        TEST(a_file_that_grew_can_be_registered_further),
        TEST(ten_thousand_regions_of_one_file_are_one_mapping),
        TEST(two_hundred_rounds_leave_nothing_behind),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
