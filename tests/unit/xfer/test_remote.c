/* remote.c, lookup.c, hint.c: metadata out and in, fetch by name, invalidate, and what peers of
 * another agent are for their loaders. */
#include "rig.h"

#include "cluster/record.h"

#include <string.h>

static int setup(void **state)
{
    *state = bed_new("hand", NULL);
    return 0;
}

static enum nxl_code find(struct client *client, const char *name, struct nxl_xfer_remote_info *ret)
{
    struct nxl_err err = {0};

    return nxl_xfer_find(client->session, client->peer, name, ret, &err);
}

static void fetch(struct client *client, const char *name, const char *address, uint64_t timeout_ns,
                  struct reply *reply)
{
    *reply = (struct reply){0};
    nxl_xfer_fetch(client->session, client->peer, name, "", address, timeout_ns, reply_take, reply);
}

/* C-017: to itself, and to nobody. */
static void a_peer_finds_itself_by_its_name_and_moves_bytes(void **state)
{
    struct bed *bed = *state;
    struct nxl_xfer_remote_info info;
    uint32_t post;

    assert_int_equal(find(&bed->from, "from", &info), NXL_OK);
    assert_string_equal(info.incarnation, bed->from.incarnation);
    assert_int_equal(info.same_agent, 1);
    bed->from.base[3] = 33;
    (void)client_prepare(&bed->from, 0, NXL_READ, info.remote, 9000, 0, 64);
    post = client_post(&bed->from);
    hand_end(bed->hand, 0, NXL_OK, 1);
    WAIT(&bed->rig, client_ended(&bed->from, post, NXL_OK, 1));
    assert_int_equal(bed->from.base[9003], 33);
    assert_int_equal(find(&bed->from, "nobody", &info), NXL_NOT_FOUND);
    assert_int_equal(find(&bed->from, "other/from", &info), NXL_NOT_FOUND);
}

static void a_second_load_gives_the_same_handle(void **state)
{
    struct bed *bed = *state;
    struct nxl_xfer_remote_info info;

    assert_int_equal(client_load(&bed->from, &bed->to), bed->remote);
    assert_int_equal(find(&bed->from, "to", &info), NXL_OK);
    assert_int_equal(info.remote, bed->remote);
    assert_int_equal(info.regions, 1);
}

/* C-029: whatever is wrong with a blob, nothing changes. */
static void a_damaged_blob_is_refused_and_changes_nothing(void **state)
{
    struct bed *bed = *state;
    struct nxl_xfer_remote_info info;
    struct nxl_bytes blob = {0};
    struct reply reply;

    client_blob(&bed->to, 0, NULL, 0, &blob);
    for (size_t i = 0; i < blob.size; i += 3) {
        blob.data[i] ^= 0x41;
        client_load_blob(&bed->from, (struct nxl_view){blob.data, blob.size}, &reply);
        blob.data[i] ^= 0x41;
        if (reply.code != NXL_MISMATCH)
            fail_msg("byte %zu: %s", i, nxl_code_name(reply.code));
    }
    for (size_t size = 0; size < blob.size; size += 7) {
        client_load_blob(&bed->from, (struct nxl_view){blob.data, size}, &reply);
        assert_int_equal(reply.code, NXL_MISMATCH);
    }
    assert_int_equal(find(&bed->from, "to", &info), NXL_OK);
    assert_int_equal(info.remote, bed->remote);
    nxl_bytes_fini(&blob);
}

static void change_and_load(struct bed *bed, void (*change)(struct nxl_record *record),
                            enum nxl_code code, const char *word)
{
    struct nxl_record *record = nxl_new0(sizeof(*record));
    struct nxl_bytes blob = {0};
    struct nxl_err err = {0};
    struct reply reply;

    client_blob(&bed->to, 0, NULL, 0, &blob);
    assert_int_equal(nxl_record_decode((struct nxl_view){blob.data, blob.size}, record, &err),
                     NXL_OK);
    change(record);
    nxl_bytes_clear(&blob);
    assert_int_equal(nxl_record_encode(record, &blob, &err), NXL_OK);
    client_load_blob(&bed->from, (struct nxl_view){blob.data, blob.size}, &reply);
    if (reply.code != code || strstr(reply.text, word) == NULL)
        fail_msg("%s: %s", nxl_code_name(reply.code), reply.text);
    nxl_bytes_fini(&blob);
    free(record);
}

static void other_cluster(struct nxl_record *record)
{
    strcpy(record->cluster, "elsewhere");
}

static void other_namespace(struct nxl_record *record)
{
    strcpy(record->ns, "secret");
}

static void not_here(struct nxl_record *record)
{
    strcat(record->incarnation, "9");
}

static void no_address(struct nxl_record *record)
{
    strcat(record->incarnation, "9");
    record->flags = 0;
    record->region_count = 1;
    record->regions[0] = (struct nxl_record_region){.id = 1, .addr = 1, .len = 1};
}

static void a_sound_blob_of_the_wrong_peer_is_refused_with_the_reason(void **state)
{
    struct bed *bed = *state;

    change_and_load(bed, other_cluster, NXL_MISMATCH, "elsewhere");
    change_and_load(bed, other_namespace, NXL_NOT_ALLOWED, "secret");
    change_and_load(bed, not_here, NXL_STALE, "any more");
    change_and_load(bed, no_address, NXL_NOT_FOUND, "address");
    assert_int_equal(client_load(&bed->from, &bed->to), bed->remote);
}

/* What was not named cannot be reached. */
static void a_partial_blob_opens_only_what_it_names(void **state)
{
    struct bed *bed = *state;
    struct client third;
    struct nxl_err err = {0};
    struct nxl_bytes blob = {0};
    struct reply reply;
    uint64_t ids[2];
    uint32_t post;

    client_open_bare(&third, &bed->rig, bed->engine, "ns", "third");
    assert_int_equal(client_register(&third, 0, 4096, &ids[0], &err), NXL_OK);
    assert_int_equal(client_register(&third, 8192, 4096, &ids[1], &err), NXL_OK);
    client_blob(&third, NXL_XFER_MD_ADDRESS | NXL_XFER_MD_REGIONS, &ids[0], 1, &blob);
    client_load_blob(&bed->from, (struct nxl_view){blob.data, blob.size}, &reply);
    assert_int_equal(reply.code, NXL_OK);
    assert_int_equal(reply.regions, 1);
    (void)client_prepare(&bed->from, 0, NXL_READ, reply.remote, 0, 8192, 64);
    post = client_post(&bed->from);
    assert_true(client_ended(&bed->from, post, NXL_NOT_FOUND, 1));
    nxl_bytes_clear(&blob); /* the second adds to the first, without an address */
    client_blob(&third, NXL_XFER_MD_REGIONS, &ids[1], 1, &blob);
    client_load_blob(&bed->from, (struct nxl_view){blob.data, blob.size}, &reply);
    assert_int_equal(reply.code, NXL_OK);
    assert_int_equal(reply.regions, 2);
    post = client_post(&bed->from);
    assert_null(client_end(&bed->from, post));
    assert_int_equal(nxl_xfer_metadata(third.session, third.peer, NXL_XFER_MD_REGIONS,
                                       &bed->to.region, 1, &blob, &err),
                     NXL_NOT_FOUND); /* somebody else's region */
    nxl_bytes_fini(&blob);
    client_close(&third);
}

/* C-035: each call has its own deadline, and one that appears wakes all that wait for it. */
static void a_fetch_waits_for_a_peer_that_is_not_there_yet(void **state)
{
    struct bed *bed = *state;
    struct reply soon, late, never;
    struct client third;

    fetch(&bed->from, "third", "", 2 * NXL_SEC, &soon);
    fetch(&bed->to, "third", "", 60 * NXL_SEC, &late);
    fetch(&bed->from, "nobody", "", 60 * NXL_SEC, &never);
    for (int i = 0; i < 5; i++)
        rig_turn(&bed->rig);
    assert_int_equal(soon.count + late.count + never.count, 0);
    rig_skip(&bed->rig, 5 * NXL_SEC);
    WAIT(&bed->rig, soon.count == 1);
    assert_int_equal(soon.code, NXL_NOT_FOUND);
    fetch(&bed->from, "third", "", 60 * NXL_SEC, &soon);
    client_open(&third, &bed->rig, bed->engine, "ns", "third");
    WAIT(&bed->rig, soon.count == 1 && late.count == 1);
    assert_int_equal(soon.code, NXL_OK);
    assert_int_equal(late.code, NXL_OK);
    assert_string_equal(late.incarnation, third.incarnation);
    assert_int_equal(never.count, 0);
    rig_skip(&bed->rig, 61 * NXL_SEC);
    WAIT(&bed->rig, never.count == 1);
    client_close(&third);
}

static void a_fetch_whose_peer_closes_is_cancelled_and_of_a_session_it_is_silent(void **state)
{
    struct bed *bed = *state;
    struct reply closed, gone;
    struct nxl_err err = {0};

    fetch(&bed->from, "nobody", "", 60 * NXL_SEC, &closed);
    fetch(&bed->to, "nobody", "", 60 * NXL_SEC, &gone);
    assert_int_equal(nxl_xfer_peer_close(bed->from.session, bed->from.peer, &err), NXL_OK);
    assert_int_equal(closed.code, NXL_CANCELED);
    client_gone(&bed->to);
    rig_skip(&bed->rig, 120 * NXL_SEC);
    for (int i = 0; i < 5; i++)
        rig_turn(&bed->rig);
    assert_int_equal(gone.count, 0);
}

static void a_namespace_that_is_not_let_in_learns_no_peer(void **state)
{
    struct bed *bed = *state;
    struct client stranger;
    struct reply reply;
    struct nxl_bytes blob = {0};

    client_open(&stranger, &bed->rig, bed->engine, "other", "stranger");
    client_blob(&bed->to, 0, NULL, 0, &blob);
    client_load_blob(&stranger, (struct nxl_view){blob.data, blob.size}, &reply);
    assert_int_equal(reply.code, NXL_NOT_ALLOWED);
    fetch(&stranger, "ns/to", "", NXL_SEC, &reply);
    WAIT(&bed->rig, reply.count == 1);
    assert_int_equal(reply.code, NXL_NOT_ALLOWED);
    nxl_bytes_fini(&blob);
    client_close(&stranger);
}

static void an_invalidated_remote_is_gone_for_its_loader_alone(void **state)
{
    struct bed *bed = *state;
    struct client third;
    struct nxl_xfer_remote_info info;
    struct nxl_err err = {0};
    uint32_t theirs, post, other;

    client_open(&third, &bed->rig, bed->engine, "ns", "third");
    theirs = client_load(&third, &bed->to);
    post = bed_write(bed, 0);
    (void)client_prepare(&third, 0, NXL_WRITE, theirs, 0, 0, 64);
    other = client_post(&third);
    assert_int_equal(nxl_xfer_invalidate(bed->from.session, bed->from.peer, bed->remote, &err),
                     NXL_OK);
    assert_true(client_ended(&bed->from, post, NXL_REMOTE_DISCONNECT, 0));
    assert_null(client_end(&third, other));
    assert_int_equal(nxl_xfer_invalidate(bed->from.session, bed->from.peer, bed->remote, &err),
                     NXL_NOT_FOUND);
    assert_int_equal(nxl_xfer_state(bed->from.session, bed->from.peer, bed->remote, &info, &err),
                     NXL_NOT_FOUND);
    hand_end(bed->hand, 0, NXL_CANCELED, 1);
    WAIT(&bed->rig, client_ended(&bed->from, post, NXL_REMOTE_DISCONNECT, 1));
    assert_int_not_equal(client_load(&bed->from, &bed->to), bed->remote); /* a new handle */
    client_close(&third);
}

/* ---- two agents --------------------------------------------------------------------------------
 */

static void a_peer_of_another_agent_is_loaded_and_fetched_by_address(void **state)
{
    struct rig rig;
    struct engine *far;
    struct client near, other;
    struct reply reply;
    uint32_t remote, post;
    struct nxl_xfer_remote_info info;
    struct nxl_err err = {0};
    uint64_t id;

    rig_open(&rig, "hand", NULL);
    far = rig_join(&rig, "node-b", "hand", NULL);
    client_open(&near, &rig, &rig.engines[0], "ns", "near");
    client_open(&other, &rig, far, "ns", "other");
    remote = client_load(&near, &other);
    fetch(&near, "other", nxl_links_address(far->links), 10 * NXL_SEC, &reply);
    WAIT(&rig, reply.count == 1);
    assert_int_equal(reply.code, NXL_OK);
    assert_int_equal(reply.remote, remote);
    assert_int_equal(reply.same_agent, 0);
    memset(near.base, 77, 4096);
    (void)client_prepare(&near, 0, NXL_WRITE, remote, 0, 512, 4096);
    post = client_post(&near);
    hand_end(hand_of(&rig, &rig.engines[0]), 0, NXL_OK, 1);
    WAIT(&rig, client_ended(&near, post, NXL_OK, 1));
    assert_int_equal(client_end(&near, post)->last.protocol, NXL_PROTOCOL_DIRECT);
    assert_memory_equal(other.base + 512, near.base, 4096);
    assert_int_equal(other.base[511], 0);
    fetch(&near, "missing", nxl_links_address(far->links), 300 * NXL_MS, &reply);
    WAIT(&rig, reply.count == 1);
    assert_int_equal(reply.code, NXL_NOT_FOUND);
    /* C-016: what it registers later is seen without another load. */
    assert_int_equal(client_register(&other, 0, 4096, &id, &err), NXL_OK);
    WAIT(&rig, nxl_xfer_state(near.session, near.peer, remote, &info, &err) == NXL_OK &&
                   info.regions == 2);
    client_close(&near);
    client_close(&other);
    rig_close(&rig);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, bed_teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_peer_finds_itself_by_its_name_and_moves_bytes),
        TEST(a_second_load_gives_the_same_handle),
        TEST(a_damaged_blob_is_refused_and_changes_nothing),
        TEST(a_sound_blob_of_the_wrong_peer_is_refused_with_the_reason),
        TEST(a_partial_blob_opens_only_what_it_names),
        TEST(a_fetch_waits_for_a_peer_that_is_not_there_yet),
        TEST(a_fetch_whose_peer_closes_is_cancelled_and_of_a_session_it_is_silent),
        TEST(a_namespace_that_is_not_let_in_learns_no_peer),
        TEST(an_invalidated_remote_is_gone_for_its_loader_alone),
        cmocka_unit_test(a_peer_of_another_agent_is_loaded_and_fetched_by_address),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
