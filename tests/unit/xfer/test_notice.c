/* notice.c: a notice is seen once, after the data of its transfer, or its loss is told to the
 * sender. */
#include "far.h"

#include <string.h>

static int setup(void **state)
{
    *state = bed_new("hand", NULL);
    return 0;
}

static uint32_t write_with(struct bed *bed, const char *text)
{
    struct nxl_xfer_post *post = client_prepare(&bed->from, 0, NXL_WRITE, bed->remote, 0, 0, 4096);

    post->has_notice = 1;
    post->notice = (struct nxl_view){text, strlen(text)};
    return client_post(&bed->from);
}

static void a_notice_comes_once_after_the_data_of_its_transfer(void **state)
{
    struct bed *bed = *state;
    const struct seen *seen;
    uint32_t post;

    memset(bed->from.base, 8, 4096);
    bed->to.watch_at = 4095;
    post = write_with(bed, "blocks 0-7");
    rig_turn(&bed->rig);
    assert_int_equal(bed->to.seen_count, 0);
    hand_end(bed->hand, 0, NXL_OK, 1);
    WAIT(&bed->rig, client_ended(&bed->from, post, NXL_OK, 1));
    assert_int_equal(bed->to.seen_count, 1);
    seen = client_event(&bed->to, XFER_EVENT_NOTICE);
    assert_int_equal(seen->byte, 8); /* the last byte was there when it came */
    assert_string_equal(seen->text, "blocks 0-7");
    assert_string_equal(seen->incarnation, bed->from.incarnation);
    assert_int_equal(seen->peer, bed->to.peer);
    assert_int_equal(seen->transfer, client_end(&bed->from, post)->last.id);
}

/* C-019, the sender's half: no data, no notice; it knows by the end of its transfer. */
static void a_transfer_that_fails_or_is_cancelled_sends_no_notice(void **state)
{
    struct bed *bed = *state;
    uint32_t post = write_with(bed, "never");

    hand_end(bed->hand, 0, NXL_IO, 1);
    WAIT(&bed->rig, client_ended(&bed->from, post, NXL_IO, 1));
    post = write_with(bed, "never");
    nxl_xfer_cancel(bed->from.session, 0, post);
    hand_end(bed->hand, 1, NXL_CANCELED, 1);
    WAIT(&bed->rig, client_ended(&bed->from, post, NXL_CANCELED, 1));
    assert_int_equal(bed->to.seen_count, 0);
    assert_int_equal(rig_metric(bed->engine, "nixlet_notices_sent_total", ""), 0);
}

static void a_transfer_in_parts_sends_one_notice_at_the_end_of_all(void **state)
{
    struct bed *bed = *state;
    struct nxl_run local[6], remote[6];
    struct nxl_xfer_post *post = client_prepare(&bed->from, 0, NXL_WRITE, bed->remote, 0, 0, 64);

    for (uint32_t i = 0; i < 6; i++) {
        local[i] = (struct nxl_run){.addr = CLIENT_ADDR + i * i * 4096, .len = 64, .count = 1};
        remote[i] = (struct nxl_run){.addr = CLIENT_ADDR + i * 8192, .len = 64, .count = 1};
    }
    post->local_runs = local;
    post->remote_runs = remote;
    post->count = post->remote_count = 6;
    post->has_notice = 1; /* and an empty one is one, too */
    (void)client_post(&bed->from);
    assert_int_equal(bed->hand->submits, 2);
    hand_end(bed->hand, 1, NXL_OK, 1);
    rig_turn(&bed->rig);
    assert_int_equal(bed->to.seen_count, 0);
    hand_end(bed->hand, 0, NXL_OK, 1);
    WAIT(&bed->rig, bed->to.seen_count == 1);
    assert_int_equal(bed->to.seen[0].size, 0);
}

/* C-017: without a transfer, to oneself too; to nobody it is lost by name. */
static void a_notice_without_a_transfer_comes_once(void **state)
{
    struct bed *bed = *state;
    struct nxl_xfer_remote_info self;
    struct nxl_err err = {0};

    nxl_xfer_notify(bed->from.session, bed->from.peer, bed->remote, (struct nxl_view){"hi", 2});
    assert_int_equal(client_events(&bed->to, XFER_EVENT_NOTICE), 1);
    assert_int_equal(client_event(&bed->to, XFER_EVENT_NOTICE)->transfer, 0);
    assert_int_equal(nxl_xfer_find(bed->from.session, bed->from.peer, "from", &self, &err), NXL_OK);
    nxl_xfer_notify(bed->from.session, bed->from.peer, self.remote, (struct nxl_view){"me", 2});
    assert_int_equal(client_events(&bed->from, XFER_EVENT_NOTICE), 1);
    nxl_xfer_notify(bed->from.session, bed->from.peer, 4711, (struct nxl_view){"??", 2});
    assert_int_equal(client_events(&bed->from, XFER_EVENT_NOTICE_LOST), 1);
    assert_int_equal(client_event(&bed->from, XFER_EVENT_NOTICE_LOST)->code, NXL_NOT_FOUND);
    assert_int_equal(rig_metric(bed->engine, "nixlet_notices_lost_total", ""), 1);
}

static void a_notice_to_the_dead_is_lost_as_stale(void **state)
{
    struct bed *bed = *state;

    client_gone(&bed->to);
    nxl_xfer_notify(bed->from.session, bed->from.peer, bed->remote, (struct nxl_view){"x", 1});
    assert_int_equal(client_event(&bed->from, XFER_EVENT_NOTICE_LOST)->code, NXL_STALE);
    assert_string_equal(client_event(&bed->from, XFER_EVENT_NOTICE_LOST)->incarnation,
                        bed->to.incarnation);
}

static void a_notice_that_is_too_long_is_refused(void **state)
{
    struct bed *bed = *state;
    char *text = nxl_new0(NXL_NOTICE_MAX + 1);
    struct nxl_xfer_post *post = client_prepare(&bed->from, 0, NXL_WRITE, bed->remote, 0, 0, 64);

    nxl_xfer_notify(bed->from.session, bed->from.peer, bed->remote,
                    (struct nxl_view){text, NXL_NOTICE_MAX + 1});
    assert_int_equal(client_event(&bed->from, XFER_EVENT_NOTICE_LOST)->code, NXL_LIMIT);
    nxl_xfer_notify(bed->from.session, bed->from.peer, bed->remote,
                    (struct nxl_view){text, NXL_NOTICE_MAX});
    assert_int_equal(client_event(&bed->to, XFER_EVENT_NOTICE)->size, NXL_NOTICE_MAX);
    post->has_notice = 1;
    post->notice = (struct nxl_view){text, NXL_NOTICE_MAX + 1};
    assert_true(client_ended(&bed->from, client_post(&bed->from), NXL_LIMIT, 1));
    assert_int_equal(bed->hand->submits, 0); /* nothing moved */
    free(text);
}

static void a_slow_reader_gets_all_in_order_when_it_has_room(void **state)
{
    struct bed *bed = *state;
    char digit;

    bed->to.full = 1;
    for (digit = '0'; digit < '8'; digit++)
        nxl_xfer_notify(bed->from.session, bed->from.peer, bed->remote,
                        (struct nxl_view){&digit, 1});
    assert_int_equal(bed->to.seen_count, 0);
    bed->to.full = 0;
    nxl_xfer_notify(bed->from.session, bed->from.peer, bed->remote, (struct nxl_view){"8", 1});
    assert_int_equal(bed->to.seen_count, 0); /* behind those that wait */
    nxl_xfer_session_room(bed->to.session);
    assert_int_equal(bed->to.seen_count, 9);
    for (uint32_t i = 0; i < 9; i++)
        assert_int_equal(bed->to.seen[i].text[0], '0' + i);
    assert_int_equal(client_events(&bed->from, XFER_EVENT_NOTICE_LOST), 0);
}

/* ---- to a far agent ----------------------------------------------------------------------------
 */

static void a_notice_to_a_far_peer_comes_once_after_the_data(void **state)
{
    struct rig rig;
    struct client near, other;
    struct nxl_xfer_post *post;
    uint32_t remote, generation;

    rig_open(&rig, "hand", NULL);
    client_open(&other, &rig, rig_join(&rig, "node-b", "hand", NULL), "ns", "other");
    client_open(&near, &rig, &rig.engines[0], "ns", "near");
    remote = client_load(&near, &other);
    memset(near.base, 6, 64);
    other.watch_at = 1000 + 63;
    post = client_prepare(&near, 0, NXL_WRITE, remote, 0, 1000, 64);
    post->has_notice = 1;
    post->notice = (struct nxl_view){"done", 4};
    generation = client_post(&near);
    hand_end(hand_of(&rig, &rig.engines[0]), 0, NXL_OK, 1);
    WAIT(&rig, other.seen_count == 1);
    assert_true(client_ended(&near, generation, NXL_OK, 1));
    assert_int_equal(other.seen[0].byte, 6);
    assert_string_equal(other.seen[0].text, "done");
    assert_string_equal(other.seen[0].incarnation, near.incarnation);
    other.full = 1; /* it does not read: the far agent keeps it for it */
    nxl_xfer_notify(near.session, near.peer, remote, (struct nxl_view){"more", 4});
    for (int i = 0; i < 10; i++)
        rig_turn(&rig);
    other.full = 0;
    nxl_xfer_session_room(other.session);
    WAIT(&rig, other.seen_count == 2);
    assert_int_equal(client_events(&near, XFER_EVENT_NOTICE_LOST), 0);
    client_close(&near);
    client_close(&other);
    rig_close(&rig);
}

/* A far agent that refuses it, and one that speaks for peers that do not live there. */
static void a_far_agent_may_refuse_a_notice_and_may_not_forge_one(void **state)
{
    struct rig rig;
    struct client near;
    struct far far;
    struct nxl_err err = {0};
    uint32_t remote;
    struct nxl_message forged = {
        .type = NXL_MESSAGE_NOTICE, .from_ns = "ns", .from_name = "near", .payload = {"!", 1}};
    struct nxl_message honest = {.type = NXL_MESSAGE_NOTICE,
                                 .from_ns = "ns",
                                 .from_name = "far",
                                 .from_incarnation = FAR_PEER,
                                 .payload = {"ok", 2}};

    rig_open(&rig, "hand", NULL);
    client_open(&near, &rig, &rig.engines[0], "ns", "near");
    far_open(&far, rig.loop, "node-b", "node-b/agent/1", NULL);
    remote = far_load(&far, &near);
    far.taken = NXL_STALE;
    nxl_xfer_notify(near.session, near.peer, remote, (struct nxl_view){"a", 1});
    WAIT(&rig, client_events(&near, XFER_EVENT_NOTICE_LOST) == 1);
    assert_int_equal(client_event(&near, XFER_EVENT_NOTICE_LOST)->code, NXL_STALE);
    far.taken = NXL_OK;
    nxl_xfer_notify(near.session, near.peer, remote, (struct nxl_view){"b", 1});
    WAIT(&rig, far.notices == 1);
    assert_int_equal(far.notice[0], 'b');
    forged.incarnation = honest.incarnation = near.incarnation;
    forged.from_incarnation = near.incarnation; /* as one of ours */
    assert_int_equal(nxl_link_notice(far.link, &forged, 1, &err), NXL_OK);
    forged.from_incarnation = "node-c/boot/s-1.1"; /* as one of another node */
    assert_int_equal(nxl_link_notice(far.link, &forged, 2, &err), NXL_OK);
    forged.from_incarnation = FAR_PEER; /* under another name than it has */
    assert_int_equal(nxl_link_notice(far.link, &forged, 3, &err), NXL_OK);
    assert_int_equal(nxl_link_notice(far.link, &honest, 4, &err), NXL_OK);
    WAIT(&rig, client_events(&near, XFER_EVENT_NOTICE) == 1);
    assert_string_equal(client_event(&near, XFER_EVENT_NOTICE)->text, "ok");
    client_close(&near);
    far_close(&far);
    rig_close(&rig);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, bed_teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_notice_comes_once_after_the_data_of_its_transfer),
        TEST(a_transfer_that_fails_or_is_cancelled_sends_no_notice),
        TEST(a_transfer_in_parts_sends_one_notice_at_the_end_of_all),
        TEST(a_notice_without_a_transfer_comes_once),
        TEST(a_notice_to_the_dead_is_lost_as_stale),
        TEST(a_notice_that_is_too_long_is_refused),
        TEST(a_slow_reader_gets_all_in_order_when_it_has_room),
        cmocka_unit_test(a_notice_to_a_far_peer_comes_once_after_the_data),
        cmocka_unit_test(a_far_agent_may_refuse_a_notice_and_may_not_forge_one),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
