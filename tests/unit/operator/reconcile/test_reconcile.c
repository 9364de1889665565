/* test_reconcile.c - objects in, records and policies out, agents heard, tokens checked: with a
 * stream server and an API server of our own that only write down. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include "reconcile/reconcile_internal.h"

static struct {
    char log[8192];
    struct nxl_writer_call call;
    char body[4096], query[512];
    nxl_writer_answer_fn *fn;
    void *fn_arg;
    int leader, synced;
    unsigned writes;
    enum nxl_code token_code;
    char token_node[64], token_why[128];
    unsigned tokens;
} seen;

static void note(const char *fmt, ...)
{
    size_t used = strlen(seen.log);
    va_list args;

    va_start(args, fmt);
    vsnprintf(seen.log + used, sizeof(seen.log) - used, fmt, args);
    va_end(args);
}

#define EXPECT(text)                                                                               \
    do {                                                                                           \
        assert_string_equal(seen.log, (text));                                                     \
        seen.log[0] = '\0';                                                                        \
    } while (0)

/* ---- the stream server -------------------------------------------------------------------------
 */

uint64_t nxl_push_member(struct nxl_push *push, const struct nxl_stream_member *member)
{
    note("%s %d %s %s\n", member->id, member->life, member->group, member->node);
    return 1;
}
uint64_t nxl_push_forget(struct nxl_push *push, const char *uid)
{
    note("forget %s\n", uid);
    return 1;
}
enum nxl_code nxl_push_policy(struct nxl_push *push, const struct nxl_stream_policy *policy,
                              uint64_t *ret_seq, struct nxl_err *err)
{
    note("policy %s %s gen %d lease %u", policy->group, policy->role, (int)policy->generation,
         policy->lease_s);
    for (uint32_t i = 0; i < policy->rule_count; i++)
        note(" %s:%d:%d", policy->rules[i].from, policy->rules[i].ops, policy->rules[i].memory);
    note("\n");
    *ret_seq = 1;
    return NXL_OK;
}
uint64_t nxl_push_policy_gone(struct nxl_push *push, const char *group)
{
    note("gone %s\n", group);
    return 1;
}
void nxl_push_interest(struct nxl_push *push, const char *node, const char *group)
{
}
int nxl_push_group(struct nxl_push *push, const char *group, struct nxl_push_group *ret)
{
    *ret = (struct nxl_push_group){.interested = 1, .synced = 1};
    return 1;
}
int nxl_push_each(struct nxl_push *push, int (*fn)(void *arg, const struct nxl_push_agent *agent),
                  void *arg)
{
    return 0;
}
void nxl_push_rv(struct nxl_push *push, const char *rv)
{
    note("rv %s\n", rv);
}
void nxl_push_synced(struct nxl_push *push)
{
    seen.synced = 1;
}
void nxl_push_token_checked(struct nxl_push *push, uint64_t ticket, enum nxl_code code,
                            const struct nxl_push_identity *identity, const char *why)
{
    assert_int_equal(ticket, 77);
    seen.tokens++;
    seen.token_code = code;
    snprintf(seen.token_node, sizeof(seen.token_node), "%s", identity ? identity->node : "");
    snprintf(seen.token_why, sizeof(seen.token_why), "%s", why);
}

/* ---- the API server
 * ------------------------------------------------------------------------------ */

enum nxl_code kube_side_open(struct nxl_reconcile *reconcile, struct kube_side **ret,
                             struct nxl_err *err)
{
    *ret = (struct kube_side *)&seen;
    return NXL_OK;
}
void kube_side_close(struct kube_side *side)
{
}
int kube_side_may_write(struct kube_side *side)
{
    return seen.leader;
}
void kube_side_call(struct kube_side *side, const struct nxl_writer_call *call, int write,
                    nxl_writer_answer_fn *fn, void *fn_arg)
{
    seen.writes += (unsigned)write;
    snprintf(seen.body, sizeof(seen.body), "%s", call->body != NULL ? call->body : "");
    snprintf(seen.query, sizeof(seen.query), "%s", call->query);
    seen.fn = fn;
    seen.fn_arg = fn_arg;
    if (write)
        fn(fn_arg, 404, NULL, 0, NULL); /* nothing is there: the key is done */
}

/* ---- the rig
 * ------------------------------------------------------------------------------------------ */

struct rig {
    struct nxl_loop *loop;
    struct nxl_metrics *metrics;
    struct nxl_settings *settings;
    struct nxl_reconcile *reconcile;
};

static int open_rig(void **state)
{
    struct rig *rig = calloc(1, sizeof(*rig));
    struct nxl_err err = {0};

    memset(&seen, 0, sizeof(seen));
    assert_int_equal(nxl_loop_open(&rig->loop, &err), NXL_OK);
    rig->metrics = nxl_metrics_new();
    rig->settings = nxl_settings_new();
    nxl_reconcile_declare(rig->settings);
    assert_int_equal(nxl_reconcile_open(&(struct nxl_reconcile_options){.loop = rig->loop,
                                                                        .metrics = rig->metrics,
                                                                        .settings = rig->settings,
                                                                        .id = "operator-0"},
                                        &rig->reconcile, &err),
                     NXL_OK);
    assert_int_equal(nxl_reconcile_start(rig->reconcile, (struct nxl_push *)&seen, &err), NXL_OK);
    *state = rig;
    return 0;
}

static int close_rig(void **state)
{
    struct rig *rig = *state;

    nxl_reconcile_close(rig->reconcile);
    nxl_settings_free(rig->settings);
    nxl_loop_close(rig->loop);
    nxl_metrics_free(rig->metrics);
    free(rig);
    return 0;
}

static void feed(struct rig *rig, enum feed_kind kind, const char *name, const char *uid,
                 const char *text)
{
    struct feed_key key = {.ns = "a", .name = name, .uid = uid, .version = "1"};
    json_t *json = text != NULL ? json_loads(text, 0, NULL) : NULL;

    assert_true(text == NULL || json != NULL);
    feed_object(rig->reconcile, kind, text != NULL ? FEED_PUT : FEED_DROP, &key, json);
    json_decref(json);
}

static const char peer_text[] =
    "{\"metadata\":{\"namespace\":\"a\",\"name\":\"g\",\"uid\":\"ug\",\"resourceVersion\":\"5\","
    "\"generation\":2},\"spec\":{\"role\":\"Decode\",\"selector\":{\"matchLabels\":{\"app\":\"x\"}}"
    ","
    "\"memory\":[{\"kind\":\"VRAM\"}],\"liveness\":{\"leaseDurationSeconds\":9},"
    "\"allow\":[{\"from\":{\"peerName\":\"g\"},\"operations\":[\"Read\"],\"memory\":[\"VRAM\"]}]}}";
static const char pod_text[] =
    "{\"metadata\":{\"namespace\":\"a\",\"name\":\"p\",\"uid\":\"u1\",\"resourceVersion\":\"6\","
    "\"labels\":{\"app\":\"x\"}},\"spec\":{\"nodeName\":\"n1\"},\"status\":{\"phase\":\"Running\"}"
    "}";

static void all_synced(struct rig *rig)
{
    for (int kind = 0; kind < FEED_KINDS; kind++)
        feed_synced(rig->reconcile, (enum feed_kind)kind);
}

static void agents_hear_nothing_as_whole_before_all_is_read(void **state)
{
    struct rig *rig = *state;

    feed(rig, FEED_POD, "p", "u1", pod_text);
    feed(rig, FEED_NIXLPEER, "g", "ug", peer_text);
    EXPECT("u1 0 a/g n1\n");
    feed_synced(rig->reconcile, FEED_POD);
    feed_synced(rig->reconcile, FEED_NODE);
    feed_synced(rig->reconcile, FEED_NAMESPACE);
    assert_int_equal(seen.synced, 0);
    assert_int_equal(nxl_reconcile_synced(rig->reconcile), 0);
    feed_synced(rig->reconcile, FEED_NIXLPEER);
    assert_int_equal(seen.synced, 1);
    EXPECT("policy a/g Decode gen 2 lease 9 a/g:1:2\n");
    feed(rig, FEED_POD, "p", "u1", NULL);
    EXPECT("u1 2 a/g n1\n");
    feed(rig, FEED_NIXLPEER, "g", "ug", NULL);
    EXPECT("gone a/g\n");
}

static void a_malformed_object_is_counted_and_what_was_known_stays(void **state)
{
    struct rig *rig = *state;

    feed(rig, FEED_NIXLPEER, "g", "ug", peer_text);
    feed(rig, FEED_POD, "p", "u1", pod_text);
    all_synced(rig);
    seen.log[0] = '\0';
    feed(rig, FEED_POD, "p", "u1",
         "{\"metadata\":{\"namespace\":\"a\",\"name\":\"p\",\"uid\":\"u1\",\"resourceVersion\":"
         "\"9\"},"
         "\"spec\":{\"nodeName\":7}}");
    feed(rig, FEED_NIXLPEER, "g", "ug",
         "{\"metadata\":{\"namespace\":\"a\",\"name\":\"g\",\"uid\":\"ug\",\"resourceVersion\":"
         "\"9\"},"
         "\"spec\":{}}");
    EXPECT("");
    assert_int_equal(nxl_metric_value(rig->reconcile->metrics.refused[FEED_POD]), 1);
    assert_int_equal(nxl_metric_value(rig->reconcile->metrics.refused[FEED_NIXLPEER]), 1);
}

static int wrote(void *arg)
{
    return seen.writes > 0;
}

static void only_the_leader_writes(void **state)
{
    struct rig *rig = *state;

    feed(rig, FEED_NIXLPEER, "g", "ug", peer_text);
    all_synced(rig);
    nxl_loop_run_until(rig->loop, wrote, NULL, 300 * NXL_MS);
    assert_int_equal(seen.writes, 0);
    seen.leader = 1;
    nxl_reconcile_lead(rig->reconcile, 1);
    assert_int_equal(nxl_loop_run_until(rig->loop, wrote, NULL, 5 * NXL_SEC), 1);
}

/* ---- tokens
 * -------------------------------------------------------------------------------------------- */

static const struct {
    int status;
    const char *answer;
    enum nxl_code code;
    const char *why;
} reviews[] = {
#define USER(name, node)                                                                           \
    "{\"status\":{\"authenticated\":true,\"audiences\":[\"nixlet-operator\"],\"user\":{"           \
    "\"username\":\"" name "\",\"extra\":{\"authentication.kubernetes.io/node-name\":[" node "],"  \
    "\"authentication.kubernetes.io/pod-uid\":[\"pu\"]}}}}"
    {201, USER("system:serviceaccount:nixlet-system:nixlet-agent", "\"n1\""), NXL_OK, ""},
    {201, USER("system:serviceaccount:tenant:nixlet-agent", "\"n1\""), NXL_NOT_ALLOWED, "account"},
    {201, USER("system:serviceaccount:nixlet-system:nixlet-agent2", "\"n1\""), NXL_NOT_ALLOWED,
     "account"},
    {201, USER("nixlet-system/nixlet-agent", "\"n1\""), NXL_NOT_ALLOWED, "account"},
    {201, USER("system:serviceaccount:nixlet-system:nixlet-agent", ""), NXL_NOT_ALLOWED, "no node"},
    {201, "{\"status\":{\"authenticated\":false}}", NXL_NOT_ALLOWED, "does not know"},
    {201, "{\"status\":{\"authenticated\":\"true\"}}", NXL_NOT_ALLOWED, "does not know"},
    {201, "{}", NXL_NOT_ALLOWED, "does not know"},
    {201,
     "{\"status\":{\"authenticated\":true,\"audiences\":[\"https://kubernetes.default\"],\"user\":{"
     "\"username\":\"system:serviceaccount:nixlet-system:nixlet-agent\"}}}",
     NXL_NOT_ALLOWED, "audience"},
    {503, "{}", NXL_AGAIN, "try again"},
    {0, "{}", NXL_AGAIN, "try again"},
};

static void a_token_names_an_agent_and_its_node_or_is_refused(void **state)
{
    struct rig *rig = *state;

    for (size_t i = 0; i < sizeof(reviews) / sizeof(reviews[0]); i++) {
        json_t *answer = json_loads(reviews[i].answer, 0, NULL);

        nxl_reconcile_push_ops()->check_token(rig->reconcile, 77, "secret.token");
        assert_non_null(strstr(seen.body, "\"token\":\"secret.token\""));
        assert_non_null(strstr(seen.body, "\"audiences\":[\"nixlet-operator\"]"));
        assert_int_equal(seen.tokens, i);
        seen.fn(seen.fn_arg, reviews[i].status, answer, 0, NULL);
        assert_int_equal(seen.tokens, i + 1);
        if (seen.token_code != reviews[i].code || strstr(seen.token_why, reviews[i].why) == NULL)
            fail_msg("row %zu: %d %s", i, seen.token_code, seen.token_why);
        if (reviews[i].code == NXL_OK)
            assert_string_equal(seen.token_node, "n1");
        json_decref(answer);
    }
    /* Bytes that are no text never reach the API server. */
    seen.fn = NULL;
    nxl_reconcile_push_ops()->check_token(rig->reconcile, 77, "\xff\xfe");
    assert_null(seen.fn);
    assert_int_equal(seen.token_code, NXL_NOT_ALLOWED);
    /* An answer after the end is for nobody. */
    nxl_reconcile_push_ops()->check_token(rig->reconcile, 77, "late");
    checks_drop(rig->reconcile);
    seen.fn(seen.fn_arg, 201, NULL, 0, NULL);
}

static void facts_count_only_for_the_agents_own_node(void **state)
{
    struct rig *rig = *state;
    const struct nxl_push_ops *ops = nxl_reconcile_push_ops();
    struct nxl_push_agent agent = {.node = "n2"};
    struct nxl_stream_member fact = {.id = "u1", .life = NXL_LIFE_DEAD, .reason = "exit"};

    feed(rig, FEED_NIXLPEER, "g", "ug", peer_text);
    feed(rig, FEED_POD, "p", "u1", pod_text);
    all_synced(rig);
    assert_int_equal(ops->interested(rig->reconcile, "n1", "a/g"), 1);
    assert_int_equal(ops->interested(rig->reconcile, "n2", "a/g"), 0);
    seen.log[0] = '\0';
    ops->on_local(rig->reconcile, &agent, &fact);
    EXPECT("");
    assert_int_equal(nxl_metric_value(rig->reconcile->metrics.locals_refused), 1);
    ops->on_suspect(rig->reconcile, &agent, "u1", NULL, "timeout"); /* counted, nobody is judged */
    EXPECT("");
    agent.node = "n1";
    ops->on_silent(rig->reconcile, &agent, 1);
    EXPECT("u1 0 a/g n1\n");
    ops->on_agent(rig->reconcile, &agent, 1);
    EXPECT("u1 0 a/g n1\n");
    ops->on_local(rig->reconcile, &agent, &fact);
    EXPECT("u1 2 a/g n1\n");
}

static void a_pod_without_the_label_is_asked_for_and_its_group_hears(void **state)
{
    struct rig *rig = *state;
    const struct nxl_push_ops *ops = nxl_reconcile_push_ops();
    struct nxl_push_agent agent = {.node = "n1"};
    const char *known[] = {"u1"}, *both[] = {"u1", "u7"};
    char list[1024], item[512];
    json_t *answer;

    feed(rig, FEED_NIXLPEER, "g", "ug", peer_text);
    feed(rig, FEED_POD, "p", "u1", pod_text);
    all_synced(rig);
    seen.leader = 1;
    seen.fn = NULL;
    ops->on_pods(rig->reconcile, &agent, known, 1);
    assert_null(seen.fn);
    ops->on_pods(rig->reconcile, &agent, both, 2);
    assert_non_null(seen.fn);
    assert_string_equal(seen.query, "fieldSelector=spec.nodeName%3Dn1&limit=500");
    snprintf(item, sizeof(item), "%s", pod_text);
    memcpy(strstr(item, "\"u1\""), "\"u7\"", 4);
    snprintf(list, sizeof(list), "{\"items\":[%s,7,%s]}", pod_text, item);
    answer = json_loads(list, 0, NULL);
    assert_non_null(answer);
    seen.fn(seen.fn_arg, 200, answer, 0, NULL);
    json_decref(answer);
    assert_int_equal(nxl_metric_value(rig->reconcile->metrics.unlabelled), 1);
    seen.fn = NULL; /* not again within a minute */
    ops->on_pods(rig->reconcile, &agent, both, 2);
    assert_null(seen.fn);
    agent.node = "n2&x=y"; /* no name of a node goes into a query */
    ops->on_pods(rig->reconcile, &agent, both, 2);
    assert_null(seen.fn);
}

static void agents_are_told_the_oldest_version_of_all_caches(void **state)
{
    struct rig *rig = *state;

    feed_version(rig->reconcile, FEED_NIXLPEER, "100");
    feed_version(rig->reconcile, FEED_POD, "2000");
    feed_version(rig->reconcile, FEED_NODE, "300");
    EXPECT("");
    feed_version(rig->reconcile, FEED_NAMESPACE, "99");
    EXPECT("rv 99\n");
    feed_version(rig->reconcile, FEED_NAMESPACE, "1000");
    EXPECT("rv 100\n");
}

static void people_can_look_at_it(void **state)
{
    struct rig *rig = *state;
    struct nxl_bytes text = {0};
    json_t *json;

    feed(rig, FEED_NIXLPEER, "g", "ug", peer_text);
    all_synced(rig);
    nxl_reconcile_describe(rig->reconcile, &text);
    json = json_loadb((const char *)text.data, text.size, 0, NULL);
    assert_non_null(json);
    assert_int_equal(json_array_size(json_object_get(json, "groups")), 1);
    json_decref(json);
    nxl_bytes_clear(&text);
    nxl_metrics_render(rig->metrics, &text);
    nxl_bytes_put(&text, "", 1);
    assert_non_null(strstr((const char *)text.data, "nixlet_operator_groups 1"));
    nxl_bytes_fini(&text);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, open_rig, close_rig)
    const struct CMUnitTest tests[] = {
        T(agents_hear_nothing_as_whole_before_all_is_read),
        T(a_malformed_object_is_counted_and_what_was_known_stays),
        T(only_the_leader_writes),
        T(a_token_names_an_agent_and_its_node_or_is_refused),
        T(facts_count_only_for_the_agents_own_node),
        T(a_pod_without_the_label_is_asked_for_and_its_group_hears),
        T(agents_are_told_the_oldest_version_of_all_caches),
        T(people_can_look_at_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
