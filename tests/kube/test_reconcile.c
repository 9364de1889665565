/* test_reconcile.c - status, finalizer, slices and events as the writer makes them, on a real API
 * server with our CRDs. Calls go through the blocking test client, so that what is tested is what
 * the server takes. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include "model/selector.h"
#include "reconcile/writer.h"
#include "support/kube_server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEC 1000000000ull
#define PEERS "/apis/nixlet.dev/v1alpha1/namespaces/default/nixlpeers"
#define SLICES "/apis/nixlet.dev/v1alpha1/namespaces/default/nixlpeerslices"
#define EVENTS "/apis/events.k8s.io/v1/namespaces/default/events"

static struct {
    struct kube_server *server;
    struct nxl_world *world;
    struct nxl_writer *writer;
    struct nxl_writer_agents agents;
    uint64_t now_ns;
    unsigned calls, refused;
    int revoked;
} rig;

static void on_group(void *arg, const char *group)
{
    nxl_writer_group(rig.writer, group);
}
static void on_slice(void *arg, const char *group, uint32_t index)
{
    nxl_writer_slice(rig.writer, group, index);
}
static void on_note(void *arg, const char *group, enum nxl_world_note note, const char *text)
{
    nxl_writer_note(rig.writer, group,
                    note == NXL_NOTE_INVALIDATED ? "Invalidated" : "PeerNotFound",
                    note == NXL_NOTE_INVALIDATED ? NXL_EVENT_MERGE : NXL_EVENT_WARNING, text);
}
static void on_member(void *arg, const struct nxl_world_member *member)
{
}
static void on_text(void *arg, const char *text)
{
}
static void on_policy(void *arg, const struct nxl_world_policy *policy)
{
}
static void on_interest(void *arg, const char *node, const char *group)
{
}

static void api_call(void *arg, const struct nxl_writer_call *call, nxl_writer_answer_fn *fn,
                     void *fn_arg)
{
    char path[1024];
    struct kube_answer answer;
    json_t *json;

    snprintf(path, sizeof(path), "%s%s%s", call->path, call->query[0] != '\0' ? "?" : "",
             call->query);
    answer = kube_server_ask(rig.server, call->method, path, call->content_type, call->body);
    rig.calls++;
    if (answer.status < 200 || answer.status >= 300) {
        rig.refused++;
        print_message("%s %s: %ld %.600s\nwith %s\n", call->method, path, answer.status,
                      answer.text, call->body != NULL ? call->body : "");
    }
    json = json_loadb(answer.text, answer.size, 0, NULL);
    fn(fn_arg, (int)answer.status, json, 0, NULL);
    json_decref(json);
}
static int api_may_write(void *arg)
{
    return 1;
}
static void api_agents(void *arg, const char *group, struct nxl_writer_agents *ret)
{
    *ret = rig.agents;
}
static int api_revoked(void *arg, const char *group)
{
    return rig.revoked;
}
static void api_clock(void *arg, uint64_t *ret_now_ns, int64_t *ret_now_ms)
{
    *ret_now_ns = rig.now_ns;
    *ret_now_ms = 1796126400000 + (int64_t)(rig.now_ns / 1000000u);
}

static json_t *get(const char *path)
{
    struct kube_answer answer = kube_server_ask(rig.server, "GET", path, NULL, NULL);

    return answer.status == 200 ? json_loadb(answer.text, answer.size, 0, NULL) : NULL;
}

/* As the watch would: the object as the server has it. */
static void show(const char *name)
{
    char path[256], group[128];
    struct nxl_nixlpeer *peer;
    struct nxl_err err = {0};
    json_t *json;

    snprintf(path, sizeof(path), PEERS "/%s", name);
    snprintf(group, sizeof(group), "default/%s", name);
    json = get(path);
    assert_non_null(json);
    if (nxl_read_nixlpeer(json, &peer, &err) != NXL_OK)
        fail_msg("%s", err.text);
    nxl_world_put_nixlpeer(rig.world, peer, rig.now_ns);
    nxl_writer_seen(rig.writer, group, json);
    json_decref(json);
}

static void pass(uint64_t ns)
{
    uint64_t end_ns = rig.now_ns + ns;

    nxl_writer_run(rig.writer);
    for (;;) {
        uint64_t next_ns = nxl_writer_next_ns(rig.writer);

        if (next_ns > end_ns)
            break;
        rig.now_ns = next_ns > rig.now_ns ? next_ns : rig.now_ns + 1000000;
        nxl_writer_run(rig.writer);
    }
    rig.now_ns = end_ns;
}

static void settle(const char *name)
{
    for (int i = 0; i < 4; i++) {
        show(name);
        pass(10 * SEC);
    }
}

static void make(const char *name, const char *spec_more)
{
    char body[1024];
    struct kube_answer answer;

    snprintf(body, sizeof(body),
             "{\"apiVersion\":\"nixlet.dev/v1alpha1\",\"kind\":\"NixlPeer\",\"metadata\":{\"name\":"
             "\"%s\"},\"spec\":{\"role\":\"Prefill\",\"selector\":{\"matchLabels\":{\"app\":\"%s\"}"
             "}%s}}",
             name, name, spec_more);
    answer = kube_server_ask(rig.server, "POST", PEERS, NULL, body);
    if (answer.status != 201)
        fail_msg("%ld %s", answer.status, answer.text);
}

static void pod(const char *app, unsigned number)
{
    static unsigned version = 1;
    char name[32], uid[32], at[16];
    struct nxl_pod pod = {.ns = "default",
                          .name = name,
                          .uid = uid,
                          .version = at,
                          .node = "n1",
                          .reason = "",
                          .phase = NXL_PHASE_RUNNING,
                          .label_count = 1,
                          .labels = {{"app", app}}};

    snprintf(name, sizeof(name), "%s-%u", app, number);
    snprintf(uid, sizeof(uid), "uid-%s-%u", app, number);
    snprintf(at, sizeof(at), "%u", version++);
    nxl_world_put_pod(rig.world, &pod, rig.now_ns);
}

static const char *condition(const json_t *object, const char *type, const char *key)
{
    const json_t *list = json_object_get(json_object_get(object, "status"), "conditions");

    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        const char *is = json_string_value(json_object_get(item, "type"));

        if (is != NULL && strcmp(is, type) == 0)
            return json_string_value(json_object_get(item, key));
    }
    return "";
}

static void the_server_takes_finalizer_and_status(void **state)
{
    json_t *json;

    make("one", "");
    settle("one");
    json = get(PEERS "/one");
    assert_string_equal(json_string_value(json_array_get(
                            json_object_get(json_object_get(json, "metadata"), "finalizers"), 0)),
                        "nixlet.dev/revoke");
    assert_string_equal(condition(json, "Ready", "status"), "True");
    assert_string_equal(condition(json, "Ready", "reason"), "NoMembers");
    json_decref(json);
    rig.agents = (struct nxl_writer_agents){.interested = 2, .synced = 1};
    pod("one", 1);
    settle("one");
    json = get(PEERS "/one");
    assert_string_equal(condition(json, "Ready", "status"), "False");
    assert_string_equal(condition(json, "Ready", "reason"), "AgentsLagging");
    json_decref(json);
    rig.agents.synced = 2;
    nxl_writer_group(rig.writer, "default/one");
    pass(10 * SEC);
    assert_int_equal(
        kube_server_kubectl(rig.server, "wait --for=condition=Ready --timeout=10s nxp/one").status,
        0);
    assert_non_null(strstr(kube_server_kubectl(rig.server, "get nxp one").text, "2/2"));
    assert_int_equal(rig.refused, 0);
}

/* A12: foreign fields and conditions survive our applies. */
static void what_others_wrote_survives_a_hundred_writes(void **state)
{
    struct kube_answer answer;
    json_t *json;

    answer = kube_server_ask(rig.server, "PATCH", PEERS "/one", "application/merge-patch+json",
                             "{\"metadata\":{\"annotations\":{\"theirs\":\"yes\"},\"finalizers\":["
                             "\"nixlet.dev/revoke\",\"example.com/theirs\"]}}");
    assert_int_equal(answer.status, 200);
    answer = kube_server_ask(
        rig.server, "PATCH", PEERS "/one/status?fieldManager=theirs",
        "application/apply-patch+yaml",
        "{\"apiVersion\":\"nixlet.dev/v1alpha1\",\"kind\":\"NixlPeer\",\"metadata\":{\"name\":"
        "\"one\"},\"status\":{\"conditions\":[{\"type\":\"Theirs\",\"status\":\"True\",\"reason\":"
        "\"R\",\"message\":\"m\",\"lastTransitionTime\":\"2026-12-01T12:00:00Z\"}]}}");
    if (answer.status != 200)
        fail_msg("%ld %s", answer.status, answer.text);
    for (unsigned i = 0; i < 100; i++) {
        show("one");
        pod("one", 2 + i);
        pass(10 * SEC);
    }
    json = get(PEERS "/one");
    assert_string_equal(condition(json, "Theirs", "reason"), "R");
    assert_string_equal(condition(json, "Accepted", "reason"), "Valid");
    assert_string_equal(
        json_string_value(json_object_get(
            json_object_get(json_object_get(json, "metadata"), "annotations"), "theirs")),
        "yes");
    assert_int_equal(
        json_array_size(json_object_get(json_object_get(json, "metadata"), "finalizers")), 2);
    json_decref(json);
    answer = kube_server_ask(rig.server, "PATCH", PEERS "/one", "application/merge-patch+json",
                             "{\"metadata\":{\"finalizers\":[\"nixlet.dev/revoke\"]}}");
    assert_int_equal(answer.status, 200);
    show("one");
    assert_int_equal(rig.refused, 0);
}

static void slices_hold_the_members_and_belong_to_their_peer(void **state)
{
    json_t *json;

    for (unsigned i = 0; i < 150; i++)
        pod("one", i);
    settle("one");
    json = get(SLICES "/one-1");
    assert_non_null(json);
    assert_int_equal(json_array_size(json_object_get(json, "members")), 50);
    assert_string_equal(
        json_string_value(json_object_get(
            json_array_get(json_object_get(json_object_get(json, "metadata"), "ownerReferences"),
                           0),
            "name")),
        "one");
    json_decref(json);
    for (unsigned i = 0; i < 60; i++) {
        char uid[32];

        snprintf(uid, sizeof(uid), "uid-one-%u", i);
        nxl_world_drop_pod(rig.world, "default", "p", uid, rig.now_ns);
    }
    settle("one");
    assert_null(get(SLICES "/one-1"));
    json = get(SLICES "/one-0");
    assert_int_equal(json_array_size(json_object_get(json, "members")), 90);
    json_decref(json);
    assert_int_equal(rig.refused, 0);
}

static unsigned events_of(const char *reason, json_int_t *ret_series)
{
    json_t *list = get(EVENTS);
    json_t *items = json_object_get(list, "items");
    unsigned count = 0;

    for (size_t i = 0; i < json_array_size(items); i++) {
        json_t *item = json_array_get(items, i);

        if (strcmp(json_string_value(json_object_get(item, "reason")), reason) != 0)
            continue;
        count++;
        *ret_series = json_integer_value(json_object_get(json_object_get(item, "series"), "count"));
    }
    json_decref(list);
    return count;
}

static void events_are_one_object_with_a_series(void **state)
{
    json_int_t series = 0;

    pass(60 * SEC);
    assert_int_equal(events_of("Invalidated", &series), 1);
    assert_int_equal(series, 60);
    make("dangling", ",\"allow\":[{\"from\":{\"peerName\":\"nobody\"},\"operations\":[\"Read\"]}]");
    settle("dangling");
    assert_int_equal(events_of("PeerNotFound", &series), 1);
    assert_non_null(strstr(kube_server_kubectl(rig.server, "describe nxp dangling").text,
                           "spec.allow[0].from.peerName"));
    assert_int_equal(rig.refused, 0);
}

static void a_deleted_peer_goes_when_it_is_revoked_and_is_not_made_again(void **state)
{
    struct kube_answer answer = kube_server_ask(rig.server, "DELETE", PEERS "/one", NULL, NULL);
    unsigned calls;
    json_t *json;

    assert_int_equal(answer.status, 200);
    show("one");
    pass(5 * SEC);
    json = get(PEERS "/one");
    assert_non_null(json);
    json_decref(json);
    rig.revoked = 1;
    pass(5 * SEC);
    assert_null(get(PEERS "/one"));
    calls = rig.calls;
    nxl_writer_group(rig.writer, "default/one"); /* the watch has not said it yet */
    nxl_writer_slice(rig.writer, "default/one", 0);
    pass(60 * SEC);
    assert_null(get(PEERS "/one"));
    assert_true(rig.calls - calls <= 2); /* asked once, not again and again */
}

static int open_all(void **state)
{
    static const struct nxl_world_ops ops = {on_member,   on_text,  on_policy, on_text,
                                             on_interest, on_group, on_slice,  on_note};
    static const struct nxl_writer_api api = {api_call, api_may_write, api_agents, api_revoked,
                                              api_clock};

    rig.server = kube_server_new();
    kube_server_up(rig.server);
    kube_server_crds(rig.server);
    rig.now_ns = 1000 * SEC;
    rig.world = nxl_world_new(&(struct nxl_world_options){.ops = &ops});
    rig.writer = nxl_writer_new(&(struct nxl_writer_options){.world = rig.world,
                                                             .api = &api,
                                                             .instance = "operator-0",
                                                             .status_interval_ns = 5 * SEC,
                                                             .revoke_timeout_ns = 60 * SEC,
                                                             .writes_rate = 2,
                                                             .slices = 1});
    nxl_world_synced(rig.world, rig.now_ns);
    return 0;
}

static int close_all(void **state)
{
    nxl_writer_free(rig.writer);
    nxl_world_free(rig.world);
    kube_server_free(rig.server);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_server_takes_finalizer_and_status),
        cmocka_unit_test(what_others_wrote_survives_a_hundred_writes),
        cmocka_unit_test(slices_hold_the_members_and_belong_to_their_peer),
        cmocka_unit_test(events_are_one_object_with_a_series),
        cmocka_unit_test(a_deleted_peer_goes_when_it_is_revoked_and_is_not_made_again),
    };
    const char *missing = kube_server_missing();

    if (missing != NULL) {
        print_message("SKIP: %s\n", missing);
        return 77;
    }
    return cmocka_run_group_tests(tests, open_all, close_all);
}
