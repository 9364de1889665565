/* exchange.c, far.c, agent.c: what a far agent says, and how far it is believed: only about peers
 * that live there. */
#include "far.h"

#include <stdio.h>
#include <string.h>

struct town { /* our agent with one client, and a far agent with one peer */
    struct rig rig;
    struct engine *engine;
    struct client client;
    struct far far;
    struct hand *hand;
    uint32_t remote;
};

static struct town *town_new(const char *key, const char *value)
{
    struct town *town = nxl_new0(sizeof(*town));

    rig_open(&town->rig, "hand", key, value, NULL);
    town->engine = &town->rig.engines[0];
    client_open(&town->client, &town->rig, town->engine, "ns", "near");
    far_open(&town->far, town->rig.loop, "node-b", "node-b/agent/1", NULL);
    town->hand = hand_of(&town->rig, town->engine);
    return town;
}

static int setup(void **state)
{
    struct town *town = town_new(NULL, NULL);

    town->remote = far_load(&town->far, &town->client);
    *state = town;
    return 0;
}

static int teardown(void **state)
{
    struct town *town = *state;

    client_close(&town->client);
    far_close(&town->far);
    rig_close(&town->rig);
    free(town);
    return 0;
}

static uint32_t far_write(struct town *town)
{
    (void)client_prepare(&town->client, 0, NXL_WRITE, town->remote, 0, 0, 4096);
    return client_post(&town->client);
}

static int64_t refused(const struct town *town)
{
    return rig_metric(town->engine, "agent_errors_total", "status=\"not_allowed\"");
}

/* Messages keep their order: when this one is answered, those before it were looked at. */
static void flush(struct town *town, struct far *far)
{
    static uint64_t sequence = 1000;

    far_fact(far, "node-z/boot/nobody", ++sequence);
    WAIT(&town->rig, far_acked(far, sequence));
}

static void a_load_asks_the_agent_that_the_blob_names(void **state)
{
    struct town *town = *state;
    uint32_t post;

    assert_int_equal(town->far.queries, 1);
    assert_string_equal(town->far.from_ns, "ns");
    post = far_write(town);
    assert_int_equal(town->hand->submits, 1);
    assert_non_null(town->hand->ops[0]->conn);
    hand_end(town->hand, 0, NXL_IO, 1);
    WAIT(&town->rig, client_ended(&town->client, post, NXL_IO, 1));
}

static void a_refusal_or_silence_of_the_agent_ends_the_load(void **state)
{
    static const struct {
        enum nxl_code answer, code;
        const char *word;
    } rows[] = {
        {NXL_NOT_ALLOWED, NXL_NOT_ALLOWED, "node-b"},
        {NXL_NOT_FOUND, NXL_NOT_FOUND, "does not want"},
        {NXL_AGAIN, NXL_TIMEOUT, "did not answer"},
    };

    for (size_t i = 0; i < NXL_COUNT_OF(rows); i++) {
        struct town *town = town_new(NULL, NULL);
        struct nxl_bytes blob = {0};
        struct reply reply = {0};

        town->far.answer = rows[i].answer;
        far_blob(&town->far, &blob);
        nxl_xfer_load(town->client.session, town->client.peer,
                      (struct nxl_view){blob.data, blob.size}, 10 * NXL_SEC, reply_take, &reply);
        WAIT(&town->rig, town->far.queries == 1);
        if (rows[i].answer == NXL_AGAIN)
            rig_skip(&town->rig, 11 * NXL_SEC);
        WAIT(&town->rig, reply.count == 1);
        assert_int_equal(reply.code, rows[i].code);
        assert_non_null(strstr(reply.text, rows[i].word));
        assert_int_equal(rig_metric(town->engine, "nixlet_peers_remote", ""), 0);
        nxl_bytes_fini(&blob);
        assert_int_equal(teardown(&(void *){town}), 0);
    }
}

/* C-027: the death of its own peer. Confirmed only when nothing of ours moves any more. */
static void a_death_is_confirmed_when_the_last_transfer_is_quiet(void **state)
{
    struct town *town = *state;
    uint32_t post = far_write(town);

    far_fact(&town->far, FAR_PEER, 7);
    WAIT(&town->rig, client_ended(&town->client, post, NXL_REMOTE_DISCONNECT, 0));
    assert_int_equal(client_events(&town->client, XFER_EVENT_PEER_DOWN), 1);
    assert_string_equal(client_event(&town->client, XFER_EVENT_PEER_DOWN)->incarnation, FAR_PEER);
    assert_true(client_ended(&town->client, far_write(town), NXL_REPOST_ACTIVE, 1));
    flush(town, &town->far);
    assert_int_equal(far_acked(&town->far, 7), 0);
    hand_end(town->hand, 0, NXL_CANCELED, 1);
    WAIT(&town->rig, client_ended(&town->client, post, NXL_REMOTE_DISCONNECT, 1));
    WAIT(&town->rig, far_acked(&town->far, 7));
    assert_true(client_ended(&town->client, far_write(town), NXL_STALE, 1));
    assert_int_equal(town->hand->remotes, 0); /* no key of the dead is kept */
    far_fact(&town->far, FAR_PEER, 8);        /* said twice, late */
    WAIT(&town->rig, far_acked(&town->far, 8));
    assert_int_equal(client_events(&town->client, XFER_EVENT_PEER_DOWN), 1);
}

static void a_dead_incarnation_cannot_be_loaded_again(void **state)
{
    struct town *town = *state;
    struct nxl_bytes blob = {0};
    struct reply reply;

    far_fact(&town->far, FAR_PEER, 7);
    WAIT(&town->rig, far_acked(&town->far, 7));
    far_blob(&town->far, &blob);
    client_load_blob(&town->client, (struct nxl_view){blob.data, blob.size}, &reply);
    assert_int_equal(reply.code, NXL_STALE);
    nxl_bytes_fini(&blob);
}

/* Neither about our own peers, nor about our node, nor about another agent's. */
static void an_agent_is_not_believed_about_peers_that_live_elsewhere(void **state)
{
    struct town *town = *state;
    struct far liar;
    struct nxl_link *link;
    struct nxl_err err = {0};
    struct nxl_xfer_remote_info info;
    uint32_t post;
    static const uint64_t ids[] = {FAR_REGION};
    struct nxl_message gone = {.type = NXL_MESSAGE_REGION_GONE,
                               .incarnation = FAR_PEER,
                               .revision = 60,
                               .sequence = 60,
                               .ids = ids,
                               .id_count = 1};

    far_open(&liar, town->rig.loop, "node-c", "node-c/agent/1", NULL);
    assert_int_equal(
        nxl_links_get(liar.links, nxl_links_address(town->engine->links), "", &link, &err), NXL_OK);
    WAIT(&town->rig, liar.link != NULL);
    far_fact(&liar, FAR_PEER, 50);
    far_fact(&liar, town->client.incarnation, 51);
    far_fact(&liar, "node-b/boot", 53); /* a prefix of the other's peers */
    far_fact(&liar, "..//", 54);
    far_say(&liar, &gone);
    far_tell_regions(&liar, FAR_PEER, 0, 3);
    flush(town, &liar);
    assert_int_equal(refused(town), 3); /* 53 is of nobody we know: confirmed, not believed */
    assert_int_equal(far_acked(&liar, 50), 0);
    assert_int_equal(far_acked(&liar, 51), 0);
    assert_int_equal(town->client.seen_count, 0);
    assert_int_equal(
        nxl_xfer_state(town->client.session, town->client.peer, town->remote, &info, &err), NXL_OK);
    assert_int_equal(info.life, NXL_LIFE_LIVE);
    assert_int_equal(info.regions, 1);
    post = far_write(town);
    assert_null(client_end(&town->client, post)); /* it runs */
    far_close(&liar);
}

/* What it says of its own node is believed although the peer is not known here yet. */
static void a_death_may_be_told_before_the_peer_is_known(void **state)
{
    struct town *town = town_new(NULL, NULL);
    struct nxl_bytes blob = {0};
    struct nxl_link *link;
    struct nxl_err err = {0};
    struct reply reply;

    assert_int_equal(
        nxl_links_get(town->far.links, nxl_links_address(town->engine->links), "", &link, &err),
        NXL_OK);
    WAIT(&town->rig, town->far.link != NULL);
    far_fact(&town->far, FAR_PEER, 7);
    WAIT(&town->rig, far_acked(&town->far, 7));
    far_blob(&town->far, &blob);
    client_load_blob(&town->client, (struct nxl_view){blob.data, blob.size}, &reply);
    assert_int_equal(reply.code, NXL_STALE); /* remove wins over add (C-041) */
    nxl_bytes_fini(&blob);
    assert_int_equal(teardown(&(void *){town}), 0);
}

/* C-016: a region more is seen without asking, one less fails only posts to it. */
static void regions_come_and_go_while_a_transfer_runs(void **state)
{
    struct town *town = *state;
    static const uint64_t ids[] = {FAR_REGION};
    struct nxl_message gone = {.type = NXL_MESSAGE_REGION_GONE,
                               .incarnation = FAR_PEER,
                               .revision = 9,
                               .sequence = 9,
                               .ids = ids,
                               .id_count = 1};
    uint32_t first = far_write(town), second, third;

    far_tell_regions(&town->far, FAR_PEER, 2, 0);
    flush(town, &town->far);
    (void)client_prepare(&town->client, 1, NXL_READ, town->remote, 8192, CLIENT_SIZE, 64);
    second = client_post(&town->client);
    assert_null(client_end(&town->client, second));
    far_say(&town->far, &gone);
    flush(town, &town->far);
    assert_int_equal(far_acked(&town->far, 9), 0); /* the first still writes there */
    assert_null(client_end(&town->client, first));
    (void)client_prepare(&town->client, 2, NXL_READ, town->remote, 8192, 0, 64);
    third = client_post(&town->client);
    assert_true(client_ended(&town->client, third, NXL_NOT_FOUND, 1));
    hand_end(town->hand, 0, NXL_IO, 1);
    WAIT(&town->rig, far_acked(&town->far, 9));
    assert_true(client_ended(&town->client, first, NXL_IO, 1));
    assert_null(client_end(&town->client, second));
}

static void an_invalidated_peer_is_said_goodbye_to_when_quiet(void **state)
{
    struct town *town = *state;
    struct nxl_err err = {0};
    uint32_t post = far_write(town);

    assert_int_equal(
        nxl_xfer_invalidate(town->client.session, town->client.peer, town->remote, &err), NXL_OK);
    assert_true(client_ended(&town->client, post, NXL_REMOTE_DISCONNECT, 0));
    flush(town, &town->far);
    assert_int_equal(town->far.unsubscribes, 0);
    hand_end(town->hand, 0, NXL_CANCELED, 1);
    WAIT(&town->rig, town->far.unsubscribes == 1);
    assert_true(client_ended(&town->client, post, NXL_REMOTE_DISCONNECT, 1));
    assert_int_equal(rig_metric(town->engine, "nixlet_peers_remote", ""), 0);
    assert_true(client_ended(&town->client, far_write(town), NXL_NOT_FOUND, 1));
    town->remote = far_load(&town->far, &town->client); /* and it can come back */
    assert_null(client_end(&town->client, far_write(town)));
}

static void a_key_that_cannot_be_read_fails_the_post_alone(void **state)
{
    struct town *town = *state;
    uint32_t post;

    town->hand->import_code = NXL_MISMATCH;
    post = far_write(town);
    assert_true(client_ended(&town->client, post, NXL_MISMATCH, 1));
    town->hand->import_code = NXL_OK;
    assert_null(client_end(&town->client, far_write(town)));
}

/* C-023, C-024: after its connection broke, the next post makes a new one. */
static void a_backend_that_lost_the_agent_is_connected_again(void **state)
{
    struct town *town = *state;
    uint32_t post = far_write(town);

    town->hand->host->disconnected(town->hand->host, town->hand->last_conn, "the cable");
    WAIT(&town->rig, client_ended(&town->client, post, NXL_REMOTE_DISCONNECT, 1));
    assert_int_equal(town->hand->conns, 0);
    assert_int_equal(town->hand->remotes, 0);
    assert_int_equal(client_events(&town->client, XFER_EVENT_PEER_DOWN), 0); /* nobody died */
    post = far_write(town);
    assert_null(client_end(&town->client, post));
    assert_int_equal(town->hand->conns, 1);
}

/* limits.hints: what agents send unasked is bounded, too. */
static void records_that_agents_send_are_kept_up_to_their_limit(void **state)
{
    struct town *town = town_new("limits.hints", "2");
    struct nxl_message hint = {
        .type = NXL_MESSAGE_ANSWER, .ns = "ns", .revision = 1, .incarnation = FAR_PEER};
    struct reply known = {0}, unknown = {0};
    char name[16];
    struct nxl_link *link;
    struct nxl_err err = {0};

    assert_int_equal(
        nxl_links_get(town->far.links, nxl_links_address(town->engine->links), "", &link, &err),
        NXL_OK);
    WAIT(&town->rig, town->far.link != NULL);
    for (int i = 0; i < 4; i++) {
        (void)snprintf(name, sizeof(name), i == 0 ? "far" : "far-%d", i);
        hint.name = name;
        far_say(&town->far, &hint);
    }
    flush(town, &town->far);
    assert_int_equal(rig_metric(town->engine, "agent_errors_total", "status=\"limit\""), 2);
    nxl_xfer_fetch(town->client.session, town->client.peer, "far", "", "", NXL_SEC, reply_take,
                   &known);
    WAIT(&town->rig, known.count == 1);
    assert_int_equal(known.code, NXL_OK);
    nxl_xfer_fetch(town->client.session, town->client.peer, "far-3", "", "", NXL_SEC, reply_take,
                   &unknown);
    rig_skip(&town->rig, 3 * NXL_SEC);
    WAIT(&town->rig, unknown.count == 1);
    assert_int_equal(unknown.code, NXL_NOT_FOUND);
    assert_int_equal(teardown(&(void *){town}), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_load_asks_the_agent_that_the_blob_names),
        cmocka_unit_test(a_refusal_or_silence_of_the_agent_ends_the_load),
        TEST(a_death_is_confirmed_when_the_last_transfer_is_quiet),
        TEST(a_dead_incarnation_cannot_be_loaded_again),
        TEST(an_agent_is_not_believed_about_peers_that_live_elsewhere),
        cmocka_unit_test(a_death_may_be_told_before_the_peer_is_known),
        TEST(regions_come_and_go_while_a_transfer_runs),
        TEST(an_invalidated_peer_is_said_goodbye_to_when_quiet),
        TEST(a_key_that_cannot_be_read_fails_the_post_alone),
        TEST(a_backend_that_lost_the_agent_is_connected_again),
        cmocka_unit_test(records_that_agents_send_are_kept_up_to_their_limit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
