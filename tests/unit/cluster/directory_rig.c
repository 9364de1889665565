/* directory_rig.c - see directory_rig.h. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "directory_rig.h"

#include "base/bytes.h"
#include "base/log.h"
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int rig_skip_without_redis(void)
{
    if (redis_server_available())
        return 0;
    (void)printf("SKIP 1: redis-server is not in PATH; apt-get install redis-server\n");
    return 77;
}

int rig_setup_no_server(void **state)
{
    struct rig *rig = nxl_new0(sizeof(*rig));
    struct nxl_err err = {0};

    nxl_log_setup("test", NXL_LOG_ERROR, 2);
    rig->server = redis_server_new();
    if (nxl_loop_open(&rig->loop, &err) != NXL_OK)
        return -1;
    *state = rig;
    return 0;
}

int rig_setup(void **state)
{
    struct rig *rig;

    if (rig_setup_no_server(state) != 0)
        return -1;
    rig = *state;
    redis_server_start(rig->server);
    return 0;
}

int rig_teardown(void **state)
{
    struct rig *rig = *state;

    while (rig->agents != NULL)
        agent_close(rig->agents);
    nxl_loop_close(rig->loop);
    redis_server_free(rig->server);
    free(rig);
    return 0;
}

void rig_until(struct rig *rig, int (*done)(void *arg), void *arg)
{
    assert_true(nxl_loop_run_until(rig->loop, done, arg, 5 * NXL_SEC));
}

static int never(void *arg)
{
    (void)arg;
    return 0;
}

void rig_run_ms(struct rig *rig, uint64_t duration_ms)
{
    (void)nxl_loop_run_until(rig->loop, never, NULL, duration_ms * NXL_MS);
}

/* ---- what agents are told ---- */

static void on_record(void *arg, const struct nxl_record *record, int withdrawn)
{
    struct agent *agent = arg;
    uint32_t slot = (agent->records + agent->withdrawn) % RIG_EVENTS;

    (void)nxl_copy_text(agent->record[slot].name, sizeof(agent->record[slot].name), record->name);
    (void)nxl_copy_text(agent->record[slot].incarnation, sizeof(agent->record[slot].incarnation),
                        record->incarnation);
    agent->record[slot].withdrawn = withdrawn;
    if (withdrawn)
        agent->withdrawn++;
    else
        agent->records++;
}

static void on_fact(void *arg, const char *prefix, enum nxl_life life, const char *reason,
                    const char *witness)
{
    struct agent *agent = arg;
    uint32_t slot = agent->facts++ % RIG_EVENTS;

    (void)nxl_copy_text(agent->fact[slot].prefix, sizeof(agent->fact[slot].prefix), prefix);
    (void)nxl_copy_text(agent->fact[slot].reason, sizeof(agent->fact[slot].reason), reason);
    (void)nxl_copy_text(agent->fact[slot].witness, sizeof(agent->fact[slot].witness), witness);
    agent->fact[slot].life = life;
}

static void on_state(void *arg, int up, const char *what)
{
    struct agent *agent = arg;

    agent->up = up;
    if (strcmp(what, "wiped") == 0)
        agent->wiped++;
    else if (up)
        agent->ups++;
    if (!up)
        (void)nxl_copy_text(agent->why, sizeof(agent->why), what);
}

static void on_fenced(void *arg)
{
    struct agent *agent = arg;

    agent->fenced++;
    if (agent->close_when_fenced) {
        nxl_directory_close(agent->directory);
        agent->directory = NULL;
    }
}

static const struct nxl_directory_ops ops = {on_record, on_fact, on_state, on_fenced};

/* ---- agents ---- */

static void set(struct agent *agent, const char *key, const char *value)
{
    struct nxl_err err = {0};

    if (nxl_settings_set(agent->settings, key, value, "test", &err) != NXL_OK)
        fail_msg("%s", err.text);
}

struct agent *agent_new(struct rig *rig, const char *node, const char *life)
{
    struct agent *agent = nxl_new0(sizeof(*agent));

    agent->rig = rig;
    agent->next = rig->agents;
    rig->agents = agent;
    agent->settings = nxl_settings_new();
    agent->metrics = nxl_metrics_new();
    (void)nxl_copy_text(agent->node, sizeof(agent->node), node);
    (void)snprintf(agent->incarnation, sizeof(agent->incarnation), "%s/boot/%s", node, life);
    nxl_directory_declare(agent->settings);
    set(agent, "store.url", rig->url != NULL ? rig->url : redis_server_url(rig->server));
    set(agent, "store.user", rig->user != NULL ? rig->user : "");
    set(agent, "store.password_file", rig->password_file != NULL ? rig->password_file : "");
    set(agent, "store.heartbeat", "100ms");
    set(agent, "store.lease", "600ms");
    set(agent, "store.command_timeout", "200ms");
    set(agent, "store.backoff_max", "100ms");
    set(agent, "store.wait_poll", "50ms");
    return agent;
}

void agent_open(struct agent *agent)
{
    struct nxl_directory_options options = {.loop = agent->rig->loop,
                                            .metrics = agent->metrics,
                                            .settings = agent->settings,
                                            .trust = agent->rig->trust,
                                            .cluster = "test",
                                            .node = agent->node,
                                            .agent = agent->incarnation,
                                            .address = "127.0.0.1:7741",
                                            .ops = &ops,
                                            .arg = agent};
    struct nxl_err err = {0};

    if (nxl_directory_open(&options, &agent->directory, &err) != NXL_OK)
        fail_msg("%s", err.text);
}

int agent_is_up(void *arg)
{
    return ((struct agent *)arg)->up;
}

int agent_is_down(void *arg)
{
    return !((struct agent *)arg)->up;
}

struct agent *agent_start(struct rig *rig, const char *node, const char *life)
{
    struct agent *agent = agent_new(rig, node, life);

    agent_open(agent);
    rig_until(rig, agent_is_up, agent);
    return agent;
}

void agent_close(struct agent *agent)
{
    struct agent **place = &agent->rig->agents;

    while (*place != agent)
        place = &(*place)->next;
    *place = agent->next;
    nxl_directory_close(agent->directory);
    nxl_settings_free(agent->settings);
    nxl_metrics_free(agent->metrics);
    free(agent);
}

void rig_record(struct nxl_record *record, const char *node, const char *agent, const char *name,
                const char *incarnation, uint64_t revision)
{
    memset(record, 0, sizeof(*record));
    record->flags = NXL_RECORD_ADDRESS | NXL_RECORD_FULL;
    (void)nxl_copy_text(record->ns, sizeof(record->ns), "default");
    (void)nxl_copy_text(record->name, sizeof(record->name), name);
    (void)nxl_copy_text(record->incarnation, sizeof(record->incarnation), incarnation);
    (void)nxl_copy_text(record->cluster, sizeof(record->cluster), "test");
    (void)nxl_copy_text(record->agent, sizeof(record->agent), agent);
    (void)nxl_copy_text(record->node, sizeof(record->node), node);
    (void)nxl_copy_text(record->address, sizeof(record->address), "127.0.0.1:7741");
    record->revision = revision;
}

void agent_publish(struct agent *agent, const char *name, const char *incarnation,
                   uint64_t revision, const char *label)
{
    static struct nxl_record record;
    struct nxl_err err = {0};

    rig_record(&record, agent->node, agent->incarnation, name, incarnation, revision);
    if (nxl_directory_publish(agent->directory, &record, label, &err) != NXL_OK)
        fail_msg("%s", err.text);
}

static void on_found(void *arg, enum nxl_code code, const struct nxl_record *record,
                     const struct nxl_err *err)
{
    struct answer *answer = arg;

    answer->calls++;
    answer->code = code;
    answer->at_ns = nxl_now_ns();
    if (record != NULL) {
        (void)nxl_copy_text(answer->incarnation, sizeof(answer->incarnation), record->incarnation);
        (void)nxl_copy_text(answer->address, sizeof(answer->address), record->address);
        answer->revision = record->revision;
    }
    (void)nxl_copy_text(answer->text, sizeof(answer->text), err->text);
}

uint64_t agent_lookup(struct agent *agent, const char *name, const char *label, uint64_t wait_ms,
                      struct answer *answer)
{
    struct nxl_err err = {0};
    uint64_t ticket = 0;

    memset(answer, 0, sizeof(*answer));
    if (nxl_directory_lookup(agent->directory, "default", name, label,
                             wait_ms > 0 ? nxl_now_ns() + wait_ms * NXL_MS : 0, on_found, answer,
                             &ticket, &err) != NXL_OK)
        fail_msg("%s", err.text);
    assert_int_equal(answer->calls, 0); /* never from inside */
    return ticket;
}

int answer_came(void *arg)
{
    return ((struct answer *)arg)->calls > 0;
}

int agent_metric(struct agent *agent, const char *name)
{
    NXL_CLEANUP(nxl_bytes_fini) struct nxl_bytes text = {0};
    char line[160];
    const char *at;

    nxl_bytes_put_u8(&text, '\n');
    nxl_metrics_render(agent->metrics, &text);
    nxl_bytes_put_u8(&text, '\0');
    (void)snprintf(line, sizeof(line), "\n%s ", name);
    at = strstr((const char *)text.data, line);
    if (at == NULL)
        fail_msg("no metric %s", name);
    return (int)strtol(at + strlen(line), NULL, 10);
}

/* ---- the server's side ---- */

int rig_exists(struct rig *rig, const char *key)
{
    return redis_server_ask(rig->server, "EXISTS %s", key)->integer == 1;
}

int rig_has_record(struct rig *rig, const char *node, const char *field)
{
    return redis_server_ask(rig->server, "HEXISTS " KEY("peers:%s") " %s", node, field)->integer ==
           1;
}

void rig_name_holder(struct rig *rig, const char *name, char *to, size_t room)
{
    const struct redisReply *reply =
        redis_server_ask(rig->server, "HGET " KEY("name:default/%s") " incarnation", name);

    (void)nxl_copy_text(to, room, reply->type == REDIS_REPLY_STRING ? reply->str : "(nobody)");
}

struct question {
    struct rig *rig;
    const char *node, *what;
    int there;
};

static int record_is(void *arg)
{
    const struct question *question = arg;

    return rig_has_record(question->rig, question->node, question->what) == question->there;
}

static int key_is(void *arg)
{
    const struct question *question = arg;

    return rig_exists(question->rig, question->what) == question->there;
}

void rig_until_record(struct rig *rig, const char *node, const char *field, int there)
{
    struct question question = {rig, node, field, there};

    rig_until(rig, record_is, &question);
}

void rig_until_key(struct rig *rig, const char *key, int there)
{
    struct question question = {rig, NULL, key, there};

    rig_until(rig, key_is, &question);
}
