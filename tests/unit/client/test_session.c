/* Opening a session, what a wrong agent gets told, fork, and the agent's second life. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rig.h"

static void the_client_knows_whom_it_talks_to(void **state)
{
    struct rig *rig = *state;
    struct nxl_client_info info = {.size = sizeof(info)};

    assert_int_equal(nxl_client_info(rig->client, &info), NXL_OK);
    assert_int_equal(info.session, 101);
    assert_string_equal(info.node, "node-a");
    assert_string_equal(info.ns, "default");
    assert_string_equal(info.backends, "shm ucx");
    assert_string_equal(info.agent_incarnation, "agent/1");
    assert_int_equal(info.reconnects, 0);
    assert_string_equal(nxl_version(), "0.1.0");
}

static void a_shorter_info_of_an_older_application_is_filled_as_far_as_it_goes(void **state)
{
    struct rig *rig = *state;
    struct nxl_client_info info;

    memset(&info, 0x7f, sizeof(info));
    info.size = 8; /* knows size and session only */
    assert_int_equal(nxl_client_info(rig->client, &info), NXL_OK);
    assert_int_equal(info.session, 101);
    assert_int_equal(info.node[0], 0x7f);
}

static void nothing_listening_is_no_agent_and_names_the_path(void **state)
{
    struct nxl_client_options options = {.size = sizeof(options),
                                         .socket_path = "/tmp/nowhere.sock"};
    struct nxl_client *client = NULL;
    struct nxl_err err;
    char longest[200];

    assert_int_equal(nxl_client_open(&options, &client, &err), NXL_NO_AGENT);
    assert_non_null(strstr(err.text, "/tmp/nowhere.sock"));
    assert_null(client);
    setenv("NIXLET_SOCKET", "/tmp/elsewhere.sock", 1);
    assert_int_equal(nxl_client_open(NULL, &client, &err), NXL_NO_AGENT);
    assert_non_null(strstr(err.text, "/tmp/elsewhere.sock"));
    memset(longest, 'x', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = '\0';
    options.socket_path = longest;
    assert_int_equal(nxl_client_open(&options, &client, &err), NXL_INVALID_PARAM);
    options.socket_path = NULL;
    options.slots = 70000;
    assert_int_equal(nxl_client_open(&options, &client, &err), NXL_INVALID_PARAM);
    assert_non_null(strstr(err.text, "slots"));
    nxl_client_close(NULL);
}

static unsigned open_fds(void)
{
    unsigned count = 0;

    for (int fd = 0; fd < 1024; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

/* Also: no descriptor is left behind, whatever went wrong. */
static void a_hello_that_is_wrong_is_refused(void **state)
{
    static const struct {
        enum fake_flaw flaw;
        enum nxl_code code;
        const char *word;
    } rows[] = {
        {FAKE_NO_FDS, NXL_MISMATCH, "descriptors"},
        {FAKE_UNSEALED, NXL_MISMATCH, "sealed"},
        {FAKE_BAD_MAGIC, NXL_MISMATCH, "magic"},
        {FAKE_BAD_VERSION, NXL_VERSION, "99"},
    };
    struct rig *rig = *state;
    struct nxl_client_options options = {.size = sizeof(options),
                                         .socket_path = fake_agent_path(rig->agent)};
    struct nxl_client *client = NULL;
    unsigned before;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        fake_agent_flaw(rig->agent, rows[i].flaw);
        assert_code(rows[i].code, rig, nxl_client_open(&options, &client, &rig->err));
        assert_says(rig, rows[i].word);
    }
    fake_agent_refuse(rig->agent, NXL_FRAME_HELLO, NXL_LIMIT, "256 sessions are open", 0, 2);
    assert_code(NXL_LIMIT, rig, nxl_client_open(&options, &client, &rig->err));
    assert_says(rig, "256 sessions");
    assert_null(client);
    before = open_fds();
    /* The same failure again opens nothing that stays; the agent's end may come and go. */
    assert_code(NXL_LIMIT, rig, nxl_client_open(&options, &client, &rig->err));
    assert_true(open_fds() <= before + 1);
}

static void calls_after_fork_are_refused_and_closing_is_harmless(void **state)
{
    struct rig *rig = *state;
    struct nxl_transfer *transfer = rig_transfer(rig);
    struct nxl_event event;
    struct nxl_err err;
    int status;
    pid_t child = fork();

    if (child == 0) {
        int good = nxl_client_check(rig->client, &err) == NXL_NOT_ALLOWED &&
                   nxl_transfer_post(transfer, &err) == NXL_NOT_ALLOWED &&
                   nxl_transfer_poll(transfer) == NXL_NOT_ALLOWED &&
                   nxl_transfer_release(transfer, &err) == NXL_NOT_ALLOWED &&
                   nxl_peer_next(rig->peer, &event) == NXL_NOT_ALLOWED &&
                   nxl_client_arm(rig->client) == NXL_NOT_ALLOWED &&
                   nxl_client_pending(rig->client) == 0 &&
                   nxl_peer_close(rig->peer, &err) == NXL_NOT_ALLOWED &&
                   strstr(err.text, "fork") != NULL;

        nxl_client_close(rig->client);
        _exit(good ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    /* The parent's session goes on as if nothing had been. */
    assert_code(NXL_OK, rig, nxl_client_check(rig->client, &rig->err));
    rig_end(rig, rig_post(rig, transfer), NXL_RING_DONE | NXL_RING_QUIET, NXL_OK);
    assert_int_equal(nxl_transfer_poll(transfer), NXL_OK);
}

/* ---- the agent's end and return --------------------------------------------------------- */

static void running_transfers_end_with_the_agent(void **state)
{
    struct rig *rig = *state;
    struct nxl_transfer *running = rig_transfer(rig), *done = rig_transfer(rig),
                        *never = rig_transfer(rig);
    struct nxl_err why;

    rig_end(rig, rig_post(rig, done), NXL_RING_DONE | NXL_RING_QUIET, NXL_OK);
    rig_post(rig, running);
    fake_agent_crash(rig->agent);
    assert_code(NXL_REMOTE_DISCONNECT, rig, nxl_transfer_wait(running, 10000000000ull, &rig->err));
    assert_int_equal(nxl_transfer_quiesced(running), 1); /* its process is gone */
    assert_int_equal(nxl_transfer_poll(done), NXL_OK);   /* an end stays an end */
    assert_int_equal(nxl_transfer_poll(never), NXL_NOT_POSTED);
    assert_code(NXL_NO_AGENT, rig, nxl_transfer_post(never, &rig->err));
    assert_code(NXL_NO_AGENT, rig, nxl_client_check(rig->client, &rig->err));
    assert_int_equal(nxl_transfer_explain(running, &why), NXL_OK);
    assert_int_equal(why.code, NXL_REMOTE_DISCONNECT);
    assert_non_null(strstr(why.text, "agent/1"));
    assert_code(NXL_OK, rig, nxl_transfer_release(running, &rig->err));
}

/* A caller that only polls makes no system call, and still learns of it. */
static void polling_alone_notices_that_the_agent_is_gone(void **state)
{
    struct rig *rig = *state;
    struct nxl_transfer *transfer = rig_transfer(rig);

    rig_post(rig, transfer);
    fake_agent_crash(rig->agent);
    while (nxl_transfer_poll(transfer) == NXL_IN_PROG) {
    }
    assert_int_equal(nxl_transfer_poll(transfer), NXL_REMOTE_DISCONNECT);
}

static void looking_for_notices_alone_notices_that_the_agent_is_gone(void **state)
{
    struct rig *rig = *state;
    struct nxl_event event;

    fake_agent_crash(rig->agent);
    while (nxl_peer_next(rig->peer, &event) == NXL_AGAIN) {
    }
    assert_int_equal(event.kind, NXL_EVENT_AGENT_GONE);
    assert_int_equal(event.code, NXL_NO_AGENT);
    assert_string_equal(event.incarnation, "agent/1");
    assert_int_equal(nxl_peer_next(rig->peer, &event), NXL_AGAIN); /* once */
}

static void an_agent_that_says_goaway_still_answers_until_it_closes(void **state)
{
    struct rig *rig = *state;

    fake_agent_goaway(rig->agent, "node drains");
    fake_agent_refuse(rig->agent, NXL_FRAME_CONNECT, NXL_BUSY, "not any more", 0, 1);
    assert_code(NXL_BUSY, rig, nxl_connect(rig->peer, rig->remote, &rig->err));
    assert_says(rig, "not any more");
    assert_code(NXL_OK, rig, nxl_connect(rig->peer, rig->remote, &rig->err));
}

static void a_new_agent_gets_peers_and_regions_again(void **state)
{
    struct rig *rig = *state;
    struct nxl_client_info info = {.size = sizeof(info)};
    struct nxl_region regions[3];
    struct nxl_memreg *regs[3];
    struct nxl_transfer *old = rig_transfer(rig), *fresh = NULL;
    const char *incarnation = nxl_peer_incarnation(rig->peer);
    char before[NXL_INCARNATION_MAX + 1];
    void *memory = NULL;
    int fd = nxl_client_fd(rig->client);

    strcpy(before, incarnation);
    assert_code(NXL_OK, rig, nxl_alloc(3 * RIG_PAGE, 0, &memory, &rig->err));
    for (int i = 0; i < 3; i++)
        regions[i] = (struct nxl_region){.addr = (char *)memory + i * RIG_PAGE, .len = RIG_PAGE};
    assert_code(NXL_OK, rig, nxl_register(rig->peer, regions, 3, regs, &rig->err));
    fake_agent_crash(rig->agent);
    fake_agent_restart(rig->agent);
    assert_code(NXL_OK, rig, nxl_client_check(rig->client, &rig->err));
    assert_int_equal(nxl_client_info(rig->client, &info), NXL_OK);
    assert_string_equal(info.agent_incarnation, "agent/2");
    assert_int_equal(info.reconnects, 1);
    assert_int_equal(nxl_client_fd(rig->client), fd); /* lent until close */
    assert_int_equal(fake_agent_regions(rig->agent), 3);
    assert_string_equal(before, incarnation); /* the text that was lent is still there */
    assert_string_not_equal(nxl_peer_incarnation(rig->peer), before);

    /* What spoke of the far side is stale; the own side comes back by itself. */
    assert_code(NXL_STALE, rig, nxl_transfer_post(old, &rig->err));
    assert_code(NXL_STALE, rig, nxl_connect(rig->peer, rig->remote, &rig->err));
    assert_code(NXL_STALE, rig,
                nxl_transfer_make(rig->peer, NXL_READ, rig->local, NULL, rig->far, NULL, 1, NULL,
                                  &fresh, &rig->err));
    assert_code(NXL_OK, rig, nxl_load(rig->peer, "far", 3, &rig->remote, &rig->err));
    nxl_list_free(rig->far);
    assert_code(NXL_OK, rig,
                nxl_list_prepare(rig->peer, rig->remote, NXL_MEM_DRAM,
                                 &(struct nxl_run){.addr = 1, .len = RIG_PAGE, .count = 1}, 1,
                                 &rig->far, &rig->err));
    assert_code(NXL_OK, rig,
                nxl_transfer_make(rig->peer, NXL_READ, rig->local, NULL, rig->far, NULL, 1, NULL,
                                  &fresh, &rig->err));
    rig_end(rig, rig_post(rig, fresh), NXL_RING_DONE | NXL_RING_QUIET, NXL_OK);
    assert_int_equal(nxl_transfer_poll(fresh), NXL_OK);
    assert_code(NXL_OK, rig, nxl_deregister(rig->peer, regs, 3, &rig->err));
    assert_int_equal(fake_agent_regions(rig->agent), 0);
    nxl_free(memory);
}

static void a_published_peer_is_published_again_and_a_withdrawn_one_is_not(void **state)
{
    struct rig *rig = *state;
    struct nxl_frame *frame = malloc(sizeof(*frame));

    assert_code(NXL_OK, rig, nxl_send_metadata(rig->peer, NULL, NULL, NULL, 0, 0, &rig->err));
    assert_int_equal(fake_agent_count(rig->agent, NXL_FRAME_SEND), 1);
    fake_agent_crash(rig->agent);
    fake_agent_restart(rig->agent);
    assert_code(NXL_OK, rig, nxl_client_check(rig->client, &rig->err));
    assert_int_equal(fake_agent_count(rig->agent, NXL_FRAME_SEND), 2);
    fake_agent_last(rig->agent, NXL_FRAME_SEND, frame);
    assert_string_equal(frame->label, "");
    assert_int_equal(frame->flags, 0);
    assert_code(NXL_OK, rig, nxl_withdraw_metadata(rig->peer, NULL, &rig->err));
    fake_agent_crash(rig->agent);
    fake_agent_restart(rig->agent);
    assert_code(NXL_OK, rig, nxl_client_check(rig->client, &rig->err));
    assert_int_equal(fake_agent_count(rig->agent, NXL_FRAME_SEND), 2);
    free(frame);
}

static void a_region_that_the_new_agent_refuses_is_reported(void **state)
{
    struct rig *rig = *state;
    struct nxl_region region = {.len = RIG_PAGE};
    struct nxl_memreg *reg;
    struct nxl_event event;

    assert_code(NXL_OK, rig, nxl_alloc(RIG_PAGE, 0, &region.addr, &rig->err));
    assert_code(NXL_OK, rig, nxl_register(rig->peer, &region, 1, &reg, &rig->err));
    fake_agent_crash(rig->agent);
    fake_agent_restart(rig->agent);
    fake_agent_refuse(rig->agent, NXL_FRAME_REGISTER, NXL_LIMIT, "no more regions", 0, 2);
    assert_code(NXL_OK, rig, nxl_client_check(rig->client, &rig->err));
    assert_int_equal(nxl_peer_next(rig->peer, &event), NXL_OK);
    assert_int_equal(event.kind, NXL_EVENT_AGENT_GONE);
    assert_int_equal(nxl_peer_next(rig->peer, &event), NXL_OK);
    assert_int_equal(event.kind, NXL_EVENT_REGION_LOST);
    assert_int_equal(event.code, NXL_LIMIT);
    assert_memory_equal(event.payload, "no more regions", 15);
    assert_code(NXL_OK, rig, nxl_deregister(rig->peer, &reg, 1, &rig->err));
    nxl_free(region.addr);
}

static void a_refused_peer_leaves_the_client_without_a_session_until_it_works(void **state)
{
    struct rig *rig = *state;

    fake_agent_crash(rig->agent);
    fake_agent_restart(rig->agent);
    fake_agent_refuse(rig->agent, NXL_FRAME_PEER_OPEN, NXL_NOT_ALLOWED, "'me' lives", 0, 1);
    assert_code(NXL_NOT_ALLOWED, rig, nxl_client_check(rig->client, &rig->err));
    assert_says(rig, "'me' lives");
    assert_code(NXL_OK, rig, nxl_client_check(rig->client, &rig->err));
}

static void ten_restarts_leave_no_descriptor_behind(void **state)
{
    struct rig *rig = *state;
    unsigned before = 0;

    for (int i = 0; i < 10; i++) {
        fake_agent_crash(rig->agent);
        fake_agent_restart(rig->agent);
        assert_code(NXL_OK, rig, nxl_client_check(rig->client, &rig->err));
        if (i == 4)
            before = open_fds();
    }
    /* The scripted agent keeps a few ends of old sessions; the client none. */
    assert_true(open_fds() <= before + 8);
}

static void without_reconnect_the_client_stays_without_an_agent(void **state)
{
    struct rig *rig = *state;
    struct nxl_client_options options = {.size = sizeof(options),
                                         .socket_path = fake_agent_path(rig->agent)};
    struct nxl_client *client = NULL;

    assert_code(NXL_OK, rig, nxl_client_open(&options, &client, &rig->err));
    fake_agent_crash(rig->agent);
    fake_agent_restart(rig->agent);
    assert_code(NXL_NO_AGENT, rig, nxl_client_check(client, &rig->err));
    assert_says(rig, "does not reconnect");
    nxl_client_close(client);
}

static void a_call_that_nobody_answers_times_out(void **state)
{
    struct rig *rig = *state;
    struct nxl_client_options options = {
        .size = sizeof(options), .socket_path = fake_agent_path(rig->agent), .call_timeout_ms = 50};
    struct nxl_client *client = NULL;
    struct nxl_peer *peer = NULL;

    assert_code(NXL_OK, rig, nxl_client_open(&options, &client, &rig->err));
    fake_agent_hold(rig->agent, NXL_FRAME_PEER_OPEN);
    assert_code(NXL_TIMEOUT, rig, nxl_peer_open(client, "slow", &peer, &rig->err));
    assert_says(rig, "PEER_OPEN");
    fake_agent_answer(rig->agent); /* too late: nobody waits for it */
    assert_code(NXL_OK, rig, nxl_peer_open(client, "quick", &peer, &rig->err));
    nxl_client_close(client);
}

/* The application sleeps in its own poll loop: the agent's end must wake it. */
static void the_lent_descriptor_wakes_when_the_agent_dies(void **state)
{
    struct rig *rig = *state;
    struct pollfd item = {.fd = nxl_client_fd(rig->client), .events = POLLIN};
    struct nxl_event event;

    while (nxl_client_arm(rig->client) == NXL_AGAIN) {
    }
    assert_int_equal(poll(&item, 1, 0), 0);
    fake_agent_crash(rig->agent);
    assert_int_equal(poll(&item, 1, 10000), 1);
    while (nxl_client_arm(rig->client) != NXL_AGAIN) {
    }
    assert_int_equal(nxl_peer_next(rig->peer, &event), NXL_OK);
    assert_int_equal(event.kind, NXL_EVENT_AGENT_GONE);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, rig_setup, rig_teardown)
#define TEST_BARE(name) cmocka_unit_test_setup_teardown(name, rig_setup_session, rig_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_BARE(the_client_knows_whom_it_talks_to),
        TEST_BARE(a_shorter_info_of_an_older_application_is_filled_as_far_as_it_goes),
        cmocka_unit_test(nothing_listening_is_no_agent_and_names_the_path),
        TEST_BARE(a_hello_that_is_wrong_is_refused),
        TEST(calls_after_fork_are_refused_and_closing_is_harmless),
        TEST(running_transfers_end_with_the_agent),
        TEST(polling_alone_notices_that_the_agent_is_gone),
        TEST(looking_for_notices_alone_notices_that_the_agent_is_gone),
        TEST(an_agent_that_says_goaway_still_answers_until_it_closes),
        TEST(a_new_agent_gets_peers_and_regions_again),
        TEST(a_published_peer_is_published_again_and_a_withdrawn_one_is_not),
        TEST(a_region_that_the_new_agent_refuses_is_reported),
        TEST(a_refused_peer_leaves_the_client_without_a_session_until_it_works),
        TEST(ten_restarts_leave_no_descriptor_behind),
        TEST_BARE(without_reconnect_the_client_stays_without_an_agent),
        TEST_BARE(a_call_that_nobody_answers_times_out),
        TEST(the_lent_descriptor_wakes_when_the_agent_dies),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
