/* Memory, slots and sessions that go while transfers run: nothing is freed or unmapped before it is
 * quiet, and what the client has let go is told to nobody. */
#include "rig.h"

#include <string.h>

static int setup(void **state)
{
    *state = bed_new("hand", NULL);
    return 0;
}

static void deregister(struct client *client, uint64_t id, uint64_t timeout_ns, struct gone *gone)
{
    *gone = (struct gone){0};
    nxl_xfer_deregister(client->session, client->peer, &id, 1, timeout_ns, gone_take, gone);
}

/* C-008: the client may not reuse what still moves; a release that breaks the rule pins it. */
static void a_release_while_it_runs_keeps_the_memory_until_it_is_quiet(void **state)
{
    struct bed *bed = *state;
    uint32_t post = bed_write(bed, 0);
    struct gone gone;

    nxl_xfer_release(bed->from.session, 0);
    assert_int_equal(bed->hand->cancels, 1);
    assert_true(client_ended(&bed->from, post, NXL_REMOTE_DISCONNECT, 0));
    deregister(&bed->from, bed->from.region, 0, &gone);
    assert_int_equal(gone.code, NXL_BUSY);
    assert_int_equal(gone.done, 0);
    assert_int_equal(bed->hand->mems, 2);
    hand_end(bed->hand, 0, NXL_CANCELED, 0);
    rig_turn(&bed->rig);
    deregister(&bed->from, bed->from.region, 0, &gone);
    assert_int_equal(gone.code, NXL_BUSY); /* it ended, and is not quiet */
    hand_quiet(bed->hand, 0);
    WAIT(&bed->rig, rig_metric(bed->engine, "nixlet_transfers_unquiet", "") == 0);
    deregister(&bed->from, bed->from.region, 0, &gone);
    assert_int_equal(gone.code, NXL_OK);
    assert_int_equal(gone.done, 1);
    assert_int_equal(bed->hand->mems, 1);
    assert_int_equal(client_end(&bed->from, post)->updates,
                     1); /* the slot is not its own any more */
}

static void a_released_slot_is_free_at_once(void **state)
{
    struct bed *bed = *state;
    uint32_t post;

    (void)bed_write(bed, 0);
    nxl_xfer_release(bed->from.session, 0);
    nxl_xfer_release(bed->from.session, 0); /* again: nothing */
    post = bed_write(bed, 0);
    hand_end(bed->hand, 0, NXL_OK, 1);
    rig_turn(&bed->rig);
    assert_null(client_end(&bed->from, post));
    hand_end(bed->hand, 1, NXL_OK, 1);
    WAIT(&bed->rig, client_ended(&bed->from, post, NXL_OK, 1));
}

static void both_sides_memory_is_busy_while_it_moves(void **state)
{
    struct bed *bed = *state;
    struct gone gone;
    uint32_t post = bed_write(bed, 0);

    deregister(&bed->to, bed->to.region, 0, &gone);
    assert_int_equal(gone.code, NXL_BUSY);
    assert_non_null(strstr(gone.text, "transfer"));
    hand_end(bed->hand, 0, NXL_OK, 0);
    WAIT(&bed->rig, client_ended(&bed->from, post, NXL_OK, 0));
    deregister(&bed->to, bed->to.region, 0, &gone);
    assert_int_equal(gone.code, NXL_BUSY);
    hand_quiet(bed->hand, 0);
    WAIT(&bed->rig, client_ended(&bed->from, post, NXL_OK, 1));
    deregister(&bed->to, bed->to.region, 0, &gone);
    assert_int_equal(gone.code, NXL_OK);
}

/* C-008, C-018: the process is gone in the middle; its pages stay until the backend lets go. */
static void a_session_that_ends_is_unmapped_only_when_quiet(void **state)
{
    struct bed *bed = *state;

    (void)bed_write(bed, 0);
    (void)bed_write(bed, 1);
    client_gone(&bed->from);
    assert_int_equal(bed->hand->cancels, 2);
    assert_int_equal(bed->hand->mems, 2);
    hand_end(bed->hand, 0, NXL_CANCELED, 1);
    hand_end(bed->hand, 1, NXL_OK, 0);
    rig_turn(&bed->rig);
    assert_int_equal(bed->hand->mems, 2);
    hand_quiet(bed->hand, 1);
    WAIT(&bed->rig, bed->hand->mems == 1);
    assert_int_equal(rig_metric(bed->engine, "nixlet_regions", ""), 1);
    assert_int_equal(rig_metric(bed->engine, "nixlet_regions_leaving", ""), 0);
    assert_int_equal(rig_metric(bed->engine, "nixlet_peers_local", ""), 1);
    assert_int_equal(rig_metric(bed->engine, "nixlet_transfers_running", ""), 0);
}

/* C-017: a list that another thread freed is a clean error; C-005: so is a stale one. */
static void a_list_whose_region_is_gone_is_stale_for_ever(void **state)
{
    struct bed *bed = *state;
    struct nxl_run run = {.addr = CLIENT_ADDR, .len = 64, .count = 1};
    struct nxl_err err = {0};
    uint32_t local, remote, post;
    uint64_t size, again;
    struct gone gone;

    assert_int_equal(
        nxl_xfer_list(bed->from.session, bed->from.peer, 0, 0, 0, &run, 1, 0, &local, &size, &err),
        NXL_OK);
    assert_int_equal(nxl_xfer_list(bed->from.session, bed->from.peer, bed->remote, 0, 0, &run, 1, 0,
                                   &remote, &size, &err),
                     NXL_OK);
    /* One more region changes nothing for it. */
    assert_int_equal(client_register(&bed->to, 0, 4096, &again, &err), NXL_OK);
    bed->from.post = (struct nxl_xfer_post){.peer = bed->from.peer,
                                            .op = NXL_WRITE,
                                            .local_list = local,
                                            .remote_list = remote,
                                            .count = 1};
    post = client_post(&bed->from);
    assert_null(client_end(&bed->from, post));
    hand_end(bed->hand, 0, NXL_OK, 1);
    WAIT(&bed->rig, client_ended(&bed->from, post, NXL_OK, 1));
    deregister(&bed->to, bed->to.region, 0, &gone);
    assert_int_equal(gone.code, NXL_OK);
    post = client_post(&bed->from);
    assert_true(client_ended(&bed->from, post, NXL_STALE, 1));
    assert_int_equal(client_register(&bed->to, 0, CLIENT_SIZE, &bed->to.region, &err), NXL_OK);
    post = client_post(&bed->from);
    assert_true(client_ended(&bed->from, post, NXL_STALE, 1));
    assert_int_equal(nxl_xfer_list_free(bed->from.session, local, &err), NXL_OK);
    post = client_post(&bed->from);
    assert_true(client_ended(&bed->from, post, NXL_NOT_FOUND, 1));
    assert_int_equal(nxl_xfer_list_free(bed->from.session, local, &err), NXL_NOT_FOUND);
}

/* C-001: a backend that does not let go: the page stays, the count and the log say so. */
static void a_backend_that_does_not_let_go_is_counted(void **state)
{
    struct bed *bed = *state;
    struct gone gone;

    bed->hand->deregister_code = NXL_BACKEND;
    deregister(&bed->to, bed->to.region, 0, &gone);
    assert_int_equal(gone.count, 1);
    assert_int_equal(rig_metric(bed->engine, "agent_errors_total", "status=\"backend\""), 1);
    bed->hand->deregister_code = NXL_OK;
}

/* Of several, those that are free go and the one in use stays, with its id in the sentence. */
static void of_several_regions_only_those_in_use_stay(void **state)
{
    struct bed *bed = *state;
    uint64_t ids[3] = {bed->to.region, 0, 987654};
    struct nxl_err err = {0};
    struct gone gone = {0};

    assert_int_equal(client_register(&bed->to, 8192, 4096, &ids[1], &err), NXL_OK);
    (void)client_prepare(&bed->from, 0, NXL_WRITE, bed->remote, 0, 8192, 64);
    (void)client_post(&bed->from);
    nxl_xfer_deregister(bed->to.session, bed->to.peer, ids, 3, 0, gone_take, &gone);
    assert_int_equal(gone.count, 1);
    assert_int_equal(gone.regions, 3);
    assert_int_equal(gone.done, 1); /* the large one; the small one is what the post found */
    assert_int_equal(gone.code, NXL_BUSY);
}

static void a_peer_that_closes_ends_its_transfers_and_frees_its_name(void **state)
{
    struct bed *bed = *state;
    char incarnation[NXL_INCARNATION_MAX + 1];
    struct nxl_err err = {0};
    uint32_t post = bed_write(bed, 0), again, peer;

    assert_int_equal(
        nxl_xfer_peer_open(bed->to.session, "to", &peer, incarnation, sizeof(incarnation), &err),
        NXL_NOT_ALLOWED);
    assert_int_equal(nxl_xfer_peer_close(bed->to.session, bed->to.peer, &err), NXL_OK);
    assert_true(client_ended(&bed->from, post, NXL_REMOTE_DISCONNECT, 0));
    assert_int_equal(
        nxl_xfer_peer_open(bed->to.session, "to", &again, incarnation, sizeof(incarnation), &err),
        NXL_OK);
    assert_string_not_equal(incarnation, bed->to.incarnation); /* never used again */
    assert_int_equal(bed->hand->mems, 2);
    hand_end(bed->hand, 0, NXL_CANCELED, 1);
    WAIT(&bed->rig, client_ended(&bed->from, post, NXL_REMOTE_DISCONNECT, 1));
    assert_int_equal(bed->hand->mems, 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, bed_teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_release_while_it_runs_keeps_the_memory_until_it_is_quiet),
        TEST(a_released_slot_is_free_at_once),
        TEST(both_sides_memory_is_busy_while_it_moves),
        TEST(a_session_that_ends_is_unmapped_only_when_quiet),
        TEST(a_list_whose_region_is_gone_is_stale_for_ever),
        TEST(a_backend_that_does_not_let_go_is_counted),
        TEST(of_several_regions_only_those_in_use_stay),
        TEST(a_peer_that_closes_ends_its_transfers_and_frees_its_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
