/* agent.c, digest.c: a far agent that says goodbye is over and its peers with it; one that only
 * cannot be found is lost, which kills nobody; and what agents ask of us has a limit. */
#include "far.h"

#include "base/log.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define FAR_AGENT "node-b/agent/1"

/* A far agent in a process of its own, so that it can vanish without a word. */
struct other_process {
    pid_t pid;
    char address[64];
};

static int never(void *arg)
{
    return 0;
}

static void other_process_run(int to)
{
    struct nxl_loop *loop;
    struct nxl_err err = {0};
    struct far far;
    const char *address;

    nxl_log_limit = NXL_LOG_ERROR;
    if (nxl_loop_open(&loop, &err) != NXL_OK)
        _exit(1);
    far_open(&far, loop, "node-b", FAR_AGENT, NULL);
    address = nxl_links_address(far.links);
    if (write(to, address, strlen(address) + 1) < 0)
        _exit(1);
    (void)nxl_loop_run_until(loop, never, NULL, 60 * NXL_SEC);
    _exit(0);
}

static void other_process_start(struct other_process *other)
{
    int ends[2];
    size_t got = 0;

    assert_int_equal(pipe(ends), 0);
    other->pid = fork();
    assert_true(other->pid >= 0);
    if (other->pid == 0)
        other_process_run(ends[1]);
    close(ends[1]);
    while (got == 0 || other->address[got - 1] != '\0') {
        ssize_t more = read(ends[0], other->address + got, sizeof(other->address) - got);

        assert_true(more > 0);
        got += (size_t)more;
    }
    close(ends[0]);
}

static void other_process_kill(struct other_process *other)
{
    assert_int_equal(kill(other->pid, SIGKILL), 0);
    assert_int_equal(waitpid(other->pid, NULL, 0), other->pid);
}

/* The peer of an agent at that address. */
static uint32_t load_at(struct client *client, const char *address)
{
    struct reply reply = {0};

    nxl_xfer_fetch(client->session, client->peer, "far", "", address, 10 * NXL_SEC, reply_take,
                   &reply);
    WAIT(client->rig, reply.count == 1);
    if (reply.code != NXL_OK)
        fail_msg("fetch at %s: %s", address, reply.text);
    return reply.remote;
}

static struct nxl_xfer_remote_info state_of(struct client *client, uint32_t remote)
{
    struct nxl_xfer_remote_info info;
    struct nxl_err err = {0};

    assert_int_equal(nxl_xfer_state(client->session, client->peer, remote, &info, &err), NXL_OK);
    return info;
}

/* Design: silence is not death. C-023, C-026 */
static void an_agent_that_is_lost_is_suspect_and_comes_back(void **state)
{
    struct other_process process = {0};
    struct far stranger, back, next;
    struct rig rig;
    struct client client;
    struct nxl_link *link;
    struct nxl_err err = {0};
    uint32_t remote, post;

    other_process_start(&process);
    rig_open(&rig, "hand", NULL);
    client_open(&client, &rig, &rig.engines[0], "ns", "near");
    remote = load_at(&client, process.address);
    other_process_kill(&process);
    /* At its address somebody else answers: where it is now is not known. */
    far_open(&stranger, rig.loop, "node-c", "node-c/agent/1", process.address);
    WAIT(&rig, client_events(&client, XFER_EVENT_PEER_SUSPECT) == 1);
    assert_int_equal(client_event(&client, XFER_EVENT_PEER_SUSPECT)->text[0], 1);
    assert_int_equal(state_of(&client, remote).life, NXL_LIFE_LIVE);
    assert_int_equal(state_of(&client, remote).suspect, 1);
    assert_int_equal(client_events(&client, XFER_EVENT_PEER_DOWN), 0);
    /* The same agent is up elsewhere: all as before. */
    far_open(&back, rig.loop, "node-b", FAR_AGENT, NULL);
    assert_int_equal(
        nxl_links_get(back.links, nxl_links_address(rig.engines[0].links), "", &link, &err),
        NXL_OK);
    WAIT(&rig, client_events(&client, XFER_EVENT_PEER_SUSPECT) == 2);
    assert_int_equal(state_of(&client, remote).suspect, 0);
    WAIT(&rig, back.queries >= 1); /* asked again for what it has */
    (void)client_prepare(&client, 0, NXL_WRITE, remote, 0, 0, 64);
    post = client_post(&client);
    assert_null(client_end(&client, post));
    /* Another life of that node's agent: the first is over, and its peers with it. */
    far_open(&next, rig.loop, "node-b", "node-b/agent/2", NULL);
    assert_int_equal(
        nxl_links_get(next.links, nxl_links_address(rig.engines[0].links), "", &link, &err),
        NXL_OK);
    WAIT(&rig, client_events(&client, XFER_EVENT_PEER_DOWN) == 1);
    assert_int_equal(client_end(&client, post)->last.code, NXL_REMOTE_DISCONNECT);
    WAIT(&rig, client_end(&client, post)->last.quiet);
    assert_true(client_ended(&client, client_post(&client), NXL_STALE, 1));
    client_close(&client);
    far_close(&stranger);
    far_close(&back);
    far_close(&next);
    rig_close(&rig);
}

static void an_agent_that_is_killed_and_stays_away_kills_nobody(void **state)
{
    struct other_process process = {0};
    struct rig rig;
    struct client client;
    uint32_t remote;

    other_process_start(&process);
    rig_open(&rig, "hand", "link.ping", "100ms", "link.suspect_after", "300ms", NULL);
    client_open(&client, &rig, &rig.engines[0], "ns", "near");
    remote = load_at(&client, process.address);
    other_process_kill(&process);
    WAIT(&rig, client_events(&client, XFER_EVENT_PEER_SUSPECT) == 1);
    rig_skip(&rig, 3600 * NXL_SEC);
    for (int i = 0; i < 30; i++)
        rig_turn(&rig);
    assert_int_equal(client_events(&client, XFER_EVENT_PEER_DOWN), 0);
    assert_int_equal(state_of(&client, remote).life, NXL_LIFE_LIVE);
    client_close(&client);
    rig_close(&rig);
}

/* C-021: a goodbye is a fact about everybody who lived there. */
static void an_agent_that_says_goodbye_takes_its_peers_with_it(void **state)
{
    struct rig rig;
    struct far far;
    struct client client;
    uint32_t remote, post;

    rig_open(&rig, "hand", NULL);
    client_open(&client, &rig, &rig.engines[0], "ns", "near");
    far_open(&far, rig.loop, "node-b", FAR_AGENT, NULL);
    remote = far_load(&far, &client);
    (void)client_prepare(&client, 0, NXL_WRITE, remote, 0, 0, 64);
    post = client_post(&client);
    far_close(&far);
    WAIT(&rig, client_end(&client, post) != NULL);
    assert_int_equal(client_end(&client, post)->last.code, NXL_REMOTE_DISCONNECT);
    WAIT(&rig, client_end(&client, post)->last.quiet);
    WAIT(&rig, client_events(&client, XFER_EVENT_PEER_DOWN) == 1);
    assert_int_equal(state_of(&client, remote).life, NXL_LIFE_DEAD);
    assert_true(client_ended(&client, client_post(&client), NXL_STALE, 1));
    assert_int_equal(hand_of(&rig, &rig.engines[0])->conns, 0);
    assert_int_equal(hand_of(&rig, &rig.engines[0])->remotes, 0);
    client_close(&client);
    rig_close(&rig);
}

/* limits.digests: many questions at once, from an agent that may ask. */
static void digests_for_far_agents_are_summed_up_to_their_limit(void **state)
{
    enum { MANY = 8 };
    struct rig rig;
    struct far far;
    struct client client;
    struct nxl_bytes rows = {0};
    struct nxl_message question = {.type = NXL_MESSAGE_DIGEST,
                                   .from_ns = "ns",
                                   .from_name = "far",
                                   .from_incarnation = FAR_PEER};
    uint32_t fine = 0, refused = 0;

    rig_open(&rig, "hand", "limits.digests", "2", NULL);
    client_open(&client, &rig, &rig.engines[0], "ns", "near");
    far_open(&far, rig.loop, "node-b", FAR_AGENT, NULL);
    (void)far_load(&far, &client);
    nxl_bytes_put_u64(&rows, CLIENT_ADDR);
    nxl_bytes_put_u64(&rows, CLIENT_SIZE);
    nxl_bytes_put_u64(&rows, 0);
    nxl_bytes_put_u32(&rows, 1);
    nxl_bytes_put_u32(&rows, 0);
    question.incarnation = client.incarnation;
    question.payload = (struct nxl_view){rows.data, rows.size};
    for (uint32_t i = 0; i < MANY; i++) {
        question.request = i + 1;
        far_say(&far, &question);
    }
    WAIT(&rig, far.digests == MANY); /* each question has one answer */
    for (uint32_t i = 0; i < MANY; i++) {
        fine += far.digest_codes[i] == NXL_OK;
        refused += far.digest_codes[i] == NXL_LIMIT;
    }
    assert_int_equal(fine + refused, MANY);
    assert_true(fine >= 2);
    assert_true(refused >= 1);
    assert_non_null(strstr(far.digest_text, "limits.digests"));
    nxl_bytes_fini(&rows);
    client_close(&client);
    far_close(&far);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_agent_that_is_lost_is_suspect_and_comes_back),
        cmocka_unit_test(an_agent_that_is_killed_and_stays_away_kills_nobody),
        cmocka_unit_test(an_agent_that_says_goodbye_takes_its_peers_with_it),
        cmocka_unit_test(digests_for_far_agents_are_summed_up_to_their_limit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
