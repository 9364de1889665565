/* test_stream.c - real agents, a real stream server, real clients: certificates come over the
 * stream, policy is enforced by the target's agent, and an operator's Dead is fenced and
 * acknowledged. Outside Kubernetes the first part of an incarnation is the node, so the "pods" here
 * are node0 and node1. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/near.h"

#define MIB (1u << 20)
#define SOON_NS 10000000000u
#define READ_WRITE_NOTIFY 7

struct rig {
    struct cluster cluster;
    pid_t server;
    FILE *to, *from;
    char address[64], folder[96], answer[512];
    char flags[8][256];
    struct cluster_peer victim; /* at agent 0 */
    struct near near;           /* at agent 1 */
    struct nxl_remote *remote;
};

/* ---- the operator ------------------------------------------------------------------------- */

static void server_start(struct rig *r)
{
    int in[2], out[2];

    assert_int_equal(pipe2(in, O_CLOEXEC), 0);
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    r->server = fork();
    if (r->server == 0) {
        char log[160];
        int fd;

        (void)snprintf(log, sizeof(log), "%s/operator.log", r->cluster.dir);
        fd = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        (void)dup2(in[0], 0);
        (void)dup2(out[1], 1);
        (void)dup2(fd, 2);
        (void)execl(NXL_STREAM_SERVER_BIN, NXL_STREAM_SERVER_BIN, (char *)NULL);
        _exit(127);
    }
    (void)close(in[0]);
    (void)close(out[1]);
    r->to = fdopen(in[1], "w");
    r->from = fdopen(out[0], "r");
    if (fgets(r->answer, sizeof(r->answer), r->from) == NULL ||
        sscanf(r->answer, "ready %63s %95s", r->address, r->folder) != 2)
        fail_msg("the stream server did not come up");
}

static void server_end(struct rig *r, int signum)
{
    if (r->server <= 0)
        return;
    if (signum != 0)
        (void)kill(r->server, signum);
    (void)fclose(r->to); /* the end of its input ends it too */
    (void)fclose(r->from);
    (void)waitpid(r->server, NULL, 0);
    r->server = 0;
}

static void say(struct rig *r, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    (void)vfprintf(r->to, fmt, args);
    va_end(args);
    (void)fputc('\n', r->to);
    (void)fflush(r->to);
    if (fgets(r->answer, sizeof(r->answer), r->from) == NULL)
        fail_msg("the stream server ended");
}

static unsigned stat_of(struct rig *r, const char *name)
{
    const char *at;

    say(r, "stats");
    at = strstr(r->answer, name);
    return at == NULL ? 0 : (unsigned)strtoul(at + strlen(name), NULL, 10);
}

/* ---- agents ------------------------------------------------------------------------------- */

static void agent_start(struct rig *r, int index)
{
    char token[160];
    FILE *file;
    int n = 0;

    (void)snprintf(token, sizeof(token), "%s/token%d", r->cluster.dir, index);
    file = fopen(token, "we");
    assert_non_null(file);
    (void)fprintf(file, "node:node%d:pod-%d\n", index, index);
    (void)fclose(file);
    (void)snprintf(r->flags[n++], sizeof(r->flags[0]), "--link.insecure=false");
    (void)snprintf(r->flags[n++], sizeof(r->flags[0]), "--stream.operators=%s", r->address);
    (void)snprintf(r->flags[n++], sizeof(r->flags[0]), "--stream.ca_file=%s/ca.pem", r->folder);
    (void)snprintf(r->flags[n++], sizeof(r->flags[0]), "--stream.token_file=%s", token);
    (void)snprintf(r->flags[n++], sizeof(r->flags[0]), "--stream.redial_jitter=200ms");
    for (int i = 0; i < n; i++)
        r->cluster.extra[i] = r->flags[i];
    r->cluster.extra[n] = NULL;
    cluster_agent_start(&r->cluster, index);
}

static int knows_both(void *arg)
{
    struct rig *r = arg;
    char body[4096];

    for (int i = 0; i < 2; i++) {
        if (cluster_http(&r->cluster, i, "/v1/members", body, sizeof(body)) != 200 ||
            strstr(body, "\"node0\"") == NULL || strstr(body, "\"node1\"") == NULL)
            return 0;
    }
    return 1;
}

static int rig_up(void **state)
{
    struct rig *r = *state = calloc(1, sizeof(*r));

    cluster_start(&r->cluster, 0, 0);
    server_start(r);
    say(r, "policy ns/source 1 ns/reader 1"); /* Read alone */
    say(r, "policy ns/reader 1 - 0");
    say(r, "put node0 ns/source node0 10");
    say(r, "put node1 ns/reader node1 11");
    say(r, "synced");
    agent_start(r, 0);
    agent_start(r, 1);
    if (!cluster_until(knows_both, r, SOON_NS))
        fail_msg("agents do not know the members: %s", cluster_log(&r->cluster, 0));
    cluster_peer_start(&r->cluster, 0, "victim", 8 * MIB, "fill", &r->victim);
    near_open(&r->cluster, 1, "reader", 8 * MIB, &r->near);
    r->remote = near_fetch(&r->near, "victim");
    return 0;
}

/* Agents and clients are up before the operator has read its caches. */
static int early_up(void **state)
{
    struct rig *r = *state = calloc(1, sizeof(*r));

    cluster_start(&r->cluster, 0, 0);
    server_start(r);
    say(r, "policy ns/source 1 ns/reader 1");
    say(r, "policy ns/reader 1 - 0");
    say(r, "put node0 ns/source node0 10");
    say(r, "put node1 ns/reader node1 11");
    agent_start(r, 0);
    agent_start(r, 1);
    cluster_peer_start(&r->cluster, 0, "victim", 8 * MIB, "fill", &r->victim);
    near_open(&r->cluster, 1, "reader", 8 * MIB, &r->near);
    return 0;
}

static int rig_down(void **state)
{
    struct rig *r = *state;
    char command[128];

    near_close(&r->near);
    if (r->victim.pid > 0)
        cluster_peer_kill(&r->victim, SIGKILL);
    cluster_stop(&r->cluster);
    server_end(r, 0);
    (void)snprintf(command, sizeof(command), "rm -rf %s", r->folder); /* it may have been killed */
    assert_int_equal(system(command), 0);
    free(r);
    return 0;
}

static enum nxl_code move(struct rig *r, enum nxl_op_kind op, struct nxl_err *err)
{
    return near_move(&r->near, op, r->remote, 0, r->victim.addr, 65536, err);
}

static int may_read(void *arg)
{
    struct nxl_err err;

    return move(arg, NXL_READ, &err) == NXL_OK;
}

static int may_not_read(void *arg)
{
    struct nxl_err err;

    return move(arg, NXL_READ, &err) == NXL_NOT_ALLOWED;
}

/* ---- tests -------------------------------------------------------------------------------- */

static void what_the_rule_allows_works_and_nothing_else(void **state)
{
    struct rig *r = *state;
    struct nxl_err err = {0};

    if (move(r, NXL_READ, &err) != NXL_OK) /* over TLS with the operator's certificates */
        fail_msg("read: %s", err.text);
    assert_true(*(uint64_t *)(void *)r->near.memory == near_word(0));
    assert_int_equal(move(r, NXL_WRITE, &err), NXL_NOT_ALLOWED);
    if (strstr(err.text, "ns/source has no rule that lets ns/reader do Write") == NULL)
        fail_msg("the refusal says: %s", err.text);
}

static void a_rule_that_comes_and_goes_is_followed_by_the_running_agents(void **state)
{
    struct rig *r = *state;
    struct nxl_err err = {0};

    say(r, "policy ns/source 2 ns/reader %d", READ_WRITE_NOTIFY);
    for (int i = 0; i < 500 && move(r, NXL_WRITE, &err) != NXL_OK; i++)
        (void)usleep(2000); /* the fact lives in other processes */
    assert_int_equal(move(r, NXL_WRITE, &err), NXL_OK);
    say(r, "policy ns/source 3 - 0");
    assert_true(cluster_until(may_not_read, r, SOON_NS));
    say(r, "gone ns/source");
    assert_true(cluster_until(may_not_read, r, SOON_NS));
    say(r, "policy ns/source 4 ns/reader 1");
    assert_true(cluster_until(may_read, r, SOON_NS)); /* by the handle that was there before */
    assert_int_equal(near_count(&r->near, NXL_EVENT_PEER_DOWN, 100000000u), 0); /* nobody is dead */
}

static void a_draining_pod_takes_no_new_transfer(void **state)
{
    struct rig *r = *state;
    struct nxl_err err = {0};

    say(r, "draining node0 ns/source node0 20");
    assert_true(cluster_until(may_not_read, r, SOON_NS));
    (void)move(r, NXL_READ, &err);
    assert_non_null(strstr(err.text, "draining"));
}

static int has_purged(void *arg)
{
    return stat_of(arg, "purged ") >= 1;
}

static void a_dead_pod_is_fenced_told_and_acknowledged(void **state)
{
    struct rig *r = *state;
    struct nxl_event event;
    struct nxl_err err = {0};

    say(r, "dead node0 deleted");
    assert_true(cluster_event(r->near.client, r->near.peer, NXL_EVENT_PEER_DOWN, SOON_NS, &event));
    assert_true(cluster_until(has_purged, r, SOON_NS));
    assert_int_equal(move(r, NXL_READ, &err), NXL_STALE);
    /* The zombie's own agent let go of it too, though its process still runs. */
    assert_int_equal(cluster_metric(&r->cluster, 0, "nixlet_peers_local"), 0);
    assert_int_equal(kill(r->victim.pid, 0), 0);
}

static void a_client_that_is_early_waits_for_the_operators_word(void **state)
{
    struct rig *r = *state;
    struct nxl_err err = {0};

    assert_int_equal(nxl_fetch_metadata(r->near.peer, "victim", NULL, NULL, 300, &r->remote, &err),
                     NXL_BUSY);
    assert_non_null(strstr(err.text, "no operator"));
    say(r, "synced");
    r->remote = near_fetch(&r->near, "victim");
    if (move(r, NXL_READ, &err) != NXL_OK)
        fail_msg("read: %s", err.text);
}

static int has_locals(void *arg)
{
    return stat_of(arg, "locals ") >= 1;
}

static void a_killed_client_is_told_to_the_operator(void **state)
{
    struct rig *r = *state;

    cluster_peer_kill(&r->victim, SIGKILL);
    assert_true(cluster_until(has_locals, r, SOON_NS));
    assert_non_null(strstr(r->answer, "last node0 node0/"));
}

/* design 2.6: the control plane is not in the data path. */
static void without_its_operator_everything_known_goes_on(void **state)
{
    struct rig *r = *state;
    struct nxl_err err = {0};

    server_end(r, SIGKILL);
    for (int i = 0; i < 20; i++) {
        if (move(r, NXL_READ, &err) != NXL_OK)
            fail_msg("read without an operator: %s", err.text);
        (void)usleep(20000);
    }
    assert_true(cluster_until(may_read, r, SOON_NS));
    assert_int_equal(move(r, NXL_WRITE, &err), NXL_NOT_ALLOWED);
    assert_int_equal(near_count(&r->near, NXL_EVENT_PEER_DOWN, 100000000u), 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, rig_up, rig_down)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_client_that_is_early_waits_for_the_operators_word,
                                        early_up, rig_down),
        TEST(what_the_rule_allows_works_and_nothing_else),
        TEST(a_rule_that_comes_and_goes_is_followed_by_the_running_agents),
        TEST(a_draining_pod_takes_no_new_transfer),
        TEST(a_dead_pod_is_fenced_told_and_acknowledged),
        TEST(a_killed_client_is_told_to_the_operator),
        TEST(without_its_operator_everything_known_goes_on),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
