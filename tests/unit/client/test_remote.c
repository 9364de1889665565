/* Handles of other peers: one per incarnation, replaced as a whole, stale for ever. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "rig.h"

static void the_same_incarnation_is_the_same_handle(void **state)
{
    struct rig *rig = *state;
    struct nxl_remote *again = NULL, *found = NULL, *fetched = NULL;

    assert_string_equal(nxl_remote_name(rig->remote), "far");
    assert_string_equal(nxl_remote_incarnation(rig->remote), "far/1/0");
    assert_code(NXL_OK, rig, nxl_load(rig->peer, "far", 3, &again, &rig->err));
    assert_ptr_equal(again, rig->remote);
    assert_code(NXL_OK, rig, nxl_remote_find(rig->peer, "far", &found, &rig->err));
    assert_ptr_equal(found, rig->remote);
    assert_code(
        NXL_OK, rig,
        nxl_fetch_metadata(rig->peer, "far", NULL, "10.0.0.1:7741", 0, &fetched, &rig->err));
    assert_ptr_equal(fetched, rig->remote);
}

static void a_newer_incarnation_makes_the_older_one_stale(void **state)
{
    struct rig *rig = *state;
    struct nxl_transfer *transfer = rig_transfer(rig), *late = NULL;
    struct nxl_remote *newer = NULL;
    struct nxl_remote_state remote_state = {.size = sizeof(remote_state)};
    struct nxl_list *list = NULL;
    struct nxl_run run = {.addr = 1, .len = 1, .count = 1};

    fake_agent_renew(rig->agent);
    assert_code(NXL_OK, rig, nxl_load(rig->peer, "far", 3, &newer, &rig->err));
    assert_ptr_not_equal(newer, rig->remote);
    assert_string_equal(nxl_remote_incarnation(newer), "far/1/1");
    assert_string_equal(nxl_remote_incarnation(rig->remote), "far/1/0");
    assert_code(NXL_STALE, rig, nxl_transfer_post(transfer, &rig->err));
    assert_says(rig, "far/1/0");
    assert_code(NXL_STALE, rig,
                nxl_transfer_make(rig->peer, NXL_READ, rig->local, NULL, rig->far, NULL, 1, NULL,
                                  &late, &rig->err));
    assert_code(NXL_STALE, rig,
                nxl_list_prepare(rig->peer, rig->remote, NXL_MEM_DRAM, &run, 1, &list, &rig->err));
    assert_code(NXL_STALE, rig, nxl_connect(rig->peer, rig->remote, &rig->err));
    assert_code(NXL_STALE, rig, nxl_notify(rig->peer, rig->remote, "x", 1, &rig->err));
    assert_code(NXL_STALE, rig,
                nxl_transfer_create(rig->peer, NXL_READ, rig->remote, NXL_MEM_DRAM, &run, 1, &run,
                                    1, NULL, &late, &rig->err));
    assert_code(NXL_STALE, rig, nxl_remote_state(rig->peer, rig->remote, &remote_state, &rig->err));
    assert_code(NXL_OK, rig, nxl_remote_state(rig->peer, newer, &remote_state, &rig->err));
    assert_int_equal(remote_state.life, NXL_LIFE_LIVE);
    assert_int_equal(remote_state.regions, 3);
    assert_string_equal(remote_state.agent, "node-b");
}

static void an_invalidated_handle_may_still_stand_behind_a_list(void **state)
{
    struct rig *rig = *state;
    struct nxl_transfer *transfer = rig_transfer(rig);

    assert_code(NXL_OK, rig, nxl_invalidate(rig->peer, rig->remote, &rig->err));
    assert_int_equal(fake_agent_count(rig->agent, NXL_FRAME_INVALIDATE), 1);
    assert_code(NXL_STALE, rig, nxl_transfer_post(transfer, &rig->err)); /* no freed memory */
    assert_code(NXL_OK, rig, nxl_load(rig->peer, "far", 3, &rig->remote, &rig->err));
    assert_code(NXL_STALE, rig, nxl_transfer_post(transfer, &rig->err));
    assert_code(NXL_INVALID_PARAM, rig, nxl_invalidate(rig->peer, NULL, &rig->err));
}

static void an_agent_that_forgot_it_already_is_no_error(void **state)
{
    struct rig *rig = *state;

    fake_agent_refuse(rig->agent, NXL_FRAME_INVALIDATE, NXL_NOT_FOUND, "no such remote", 0, 1);
    assert_code(NXL_OK, rig, nxl_invalidate(rig->peer, rig->remote, &rig->err));
    assert_code(NXL_OK, rig, nxl_load(rig->peer, "far", 3, &rig->remote, &rig->err));
    fake_agent_refuse(rig->agent, NXL_FRAME_INVALIDATE, NXL_IO, "broken", 0, 1);
    assert_code(NXL_IO, rig, nxl_invalidate(rig->peer, rig->remote, &rig->err));
    assert_code(NXL_OK, rig, nxl_connect(rig->peer, rig->remote, &rig->err)); /* still there */
}

/* A damaged blob changes nothing. */
static void a_blob_that_the_agent_refuses_leaves_the_old_handle_alone(void **state)
{
    struct rig *rig = *state;
    struct nxl_remote *remote = NULL;
    char *large = calloc(1, NXL_FRAME_BLOB_MAX + 1);

    fake_agent_refuse(rig->agent, NXL_FRAME_LOAD, NXL_MISMATCH, "blob: checksum is wrong", 0, 1);
    assert_code(NXL_MISMATCH, rig, nxl_load(rig->peer, "fxr", 3, &remote, &rig->err));
    assert_says(rig, "checksum");
    assert_null(remote);
    assert_code(NXL_MISMATCH, rig, nxl_load(rig->peer, "", 0, &remote, &rig->err));
    assert_code(NXL_MISMATCH, rig, nxl_load(rig->peer, NULL, 3, &remote, &rig->err));
    assert_code(NXL_MISMATCH, rig,
                nxl_load(rig->peer, large, NXL_FRAME_BLOB_MAX + 1, &remote, &rig->err));
    assert_code(NXL_OK, rig, nxl_connect(rig->peer, rig->remote, &rig->err));
    free(large);
}

static void metadata_names_the_regions_asked_for(void **state)
{
    struct rig *rig = *state;
    struct nxl_frame *frame = malloc(sizeof(*frame));
    struct nxl_region region = {.len = RIG_PAGE};
    struct nxl_memreg *reg, *none = NULL;
    struct nxl_peer *other = NULL;
    void *blob = NULL;
    size_t size = 0;

    assert_code(NXL_OK, rig, nxl_alloc(RIG_PAGE, 0, &region.addr, &rig->err));
    assert_code(NXL_OK, rig, nxl_register(rig->peer, &region, 1, &reg, &rig->err));
    assert_code(NXL_OK, rig,
                nxl_metadata(rig->peer, NXL_MD_REGIONS, &reg, 1, &blob, &size, &rig->err));
    assert_int_equal(size, 4);
    assert_memory_equal(blob, "blob", 4);
    free(blob);
    fake_agent_last(rig->agent, NXL_FRAME_METADATA, frame);
    assert_int_equal(frame->flags, NXL_MD_REGIONS);
    assert_int_equal(frame->count, 1);
    assert_code(
        NXL_OK, rig,
        nxl_send_metadata(rig->peer, "part", "[::1]:7741", &reg, 1, NXL_MD_REGIONS, &rig->err));
    fake_agent_last(rig->agent, NXL_FRAME_SEND, frame);
    assert_string_equal(frame->label, "part");
    assert_string_equal(frame->address, "[::1]:7741");
    assert_int_equal(frame->count, 1);
    assert_code(NXL_OK, rig, nxl_withdraw_metadata(rig->peer, NULL, &rig->err));
    assert_code(NXL_INVALID_PARAM, rig,
                nxl_metadata(rig->peer, 0, &none, 1, &blob, &size, &rig->err));
    assert_code(NXL_OK, rig, nxl_peer_open(rig->client, "other", &other, &rig->err));
    assert_code(NXL_INVALID_PARAM, rig, nxl_metadata(other, 0, &reg, 1, &blob, &size, &rig->err));
    assert_says(rig, "regs[0]");
    nxl_free(region.addr);
    free(frame);
}

static void names_and_texts_are_checked_before_they_are_sent(void **state)
{
    static const char *const bad[] = {"", "a b", "a/b", "\t", NULL};
    struct rig *rig = *state;
    struct nxl_peer *peer = NULL;
    struct nxl_remote *remote = NULL;
    char longest[400];

    for (size_t i = 0; i < 5; i++) {
        assert_code(NXL_INVALID_PARAM, rig, nxl_peer_open(rig->client, bad[i], &peer, &rig->err));
        assert_code(NXL_INVALID_PARAM, rig, nxl_remote_find(rig->peer, bad[i], &remote, &rig->err));
        assert_code(NXL_INVALID_PARAM, rig,
                    nxl_fetch_metadata(rig->peer, bad[i], NULL, NULL, 0, &remote, &rig->err));
    }
    memset(longest, 'x', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = '\0';
    assert_code(NXL_INVALID_PARAM, rig,
                nxl_fetch_metadata(rig->peer, "a", longest, NULL, 0, &remote, &rig->err));
    assert_says(rig, "label");
    assert_code(NXL_INVALID_PARAM, rig,
                nxl_send_metadata(rig->peer, NULL, longest, NULL, 0, 0, &rig->err));
    assert_says(rig, "address");
    assert_int_equal(fake_agent_count(rig->agent, NXL_FRAME_FETCH), 0);
}

static void descriptors_of_a_remote_are_checked_by_the_agent(void **state)
{
    struct rig *rig = *state;
    const struct nxl_run runs[] = {{.addr = 0x90000, .len = 8, .stride = 16, .count = 4}};
    uint64_t before = fake_agent_list_runs(rig->agent);

    assert_code(NXL_OK, rig,
                nxl_remote_check(rig->peer, rig->remote, NXL_MEM_DRAM, runs, 1, &rig->err));
    assert_int_equal(fake_agent_list_runs(rig->agent), before + 1);
    fake_agent_refuse(rig->agent, NXL_FRAME_CHECK, NXL_NOT_FOUND, "descriptor 3 lies nowhere", 0,
                      1);
    assert_code(NXL_NOT_FOUND, rig,
                nxl_remote_check(rig->peer, rig->remote, NXL_MEM_DRAM, runs, 1, &rig->err));
    assert_says(rig, "descriptor 3");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, rig_setup, rig_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_same_incarnation_is_the_same_handle),
        TEST(a_newer_incarnation_makes_the_older_one_stale),
        TEST(an_invalidated_handle_may_still_stand_behind_a_list),
        TEST(an_agent_that_forgot_it_already_is_no_error),
        TEST(a_blob_that_the_agent_refuses_leaves_the_old_handle_alone),
        TEST(metadata_names_the_regions_asked_for),
        TEST(names_and_texts_are_checked_before_they_are_sent),
        TEST(descriptors_of_a_remote_are_checked_by_the_agent),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
