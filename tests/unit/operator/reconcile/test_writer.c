/* test_writer.c - what is written and when, against an API of our own that only keeps calls. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include "model/selector.h"
#include "reconcile/writer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEC 1000000000ull
#define CALLS_MAX 512

struct made {
    char method[8], path[256], type[48];
    json_t *body;
    nxl_writer_answer_fn *fn;
    void *arg;
    int answered;
};

struct rig {
    struct nxl_world *world;
    struct nxl_writer *writer;
    struct made calls[CALLS_MAX];
    unsigned count, taken;
    uint64_t now_ns;
    int leader, revoked, hold; /* hold: no answer by itself */
    struct nxl_writer_agents agents;
    unsigned version;
    int finalizer;
    int64_t generation;
};

/* ---- the world's changes go to the writer, as in tell.c ----------------------------------------
 */

static void on_group(void *arg, const char *group)
{
    struct rig *rig = arg;

    nxl_writer_group(rig->writer, group);
}
static void on_slice(void *arg, const char *group, uint32_t index)
{
    struct rig *rig = arg;

    nxl_writer_slice(rig->writer, group, index);
}
static void on_note(void *arg, const char *group, enum nxl_world_note note, const char *text)
{
    struct rig *rig = arg;

    nxl_writer_note(rig->writer, group, note == NXL_NOTE_INVALIDATED ? "Invalidated" : "Other",
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

/* ---- the API
 * -------------------------------------------------------------------------------------- */

static void answer(struct rig *rig, unsigned index, int status, uint64_t after_ns)
{
    struct made *made = &rig->calls[index];
    char version[16];
    json_t *json;

    assert_int_equal(made->answered, 0);
    made->answered = 1;
    snprintf(version, sizeof(version), "%u", ++rig->version);
    json = json_pack("{s:{s:s}}", "metadata", "resourceVersion", version);
    made->fn(made->arg, status, json, after_ns, NULL);
    json_decref(json);
}

static void api_call(void *arg, const struct nxl_writer_call *call, nxl_writer_answer_fn *fn,
                     void *fn_arg)
{
    struct rig *rig = arg;
    struct made *made = &rig->calls[rig->count];

    assert_true(rig->count < CALLS_MAX);
    assert_int_equal(rig->leader, 1);
    snprintf(made->method, sizeof(made->method), "%s", call->method);
    snprintf(made->path, sizeof(made->path), "%s", call->path);
    snprintf(made->type, sizeof(made->type), "%s", call->content_type ? call->content_type : "");
    made->body = call->body != NULL ? json_loads(call->body, 0, NULL) : NULL;
    made->fn = fn;
    made->arg = fn_arg;
    rig->count++;
    if (!rig->hold)
        answer(rig, rig->count - 1, 200, 0);
}
static int api_may_write(void *arg)
{
    return ((struct rig *)arg)->leader;
}
static void api_agents(void *arg, const char *group, struct nxl_writer_agents *ret)
{
    *ret = ((struct rig *)arg)->agents;
}
static int api_revoked(void *arg, const char *group)
{
    return ((struct rig *)arg)->revoked;
}
static void api_clock(void *arg, uint64_t *ret_now_ns, int64_t *ret_now_ms)
{
    struct rig *rig = arg;

    *ret_now_ns = rig->now_ns;
    *ret_now_ms = 1796126400000 + (int64_t)(rig->now_ns / 1000000u);
}

static int open_rig(void **state)
{
    static const struct nxl_world_ops ops = {on_member,   on_text,  on_policy, on_text,
                                             on_interest, on_group, on_slice,  on_note};
    static const struct nxl_writer_api api = {api_call, api_may_write, api_agents, api_revoked,
                                              api_clock};
    struct rig *rig = calloc(1, sizeof(*rig));

    rig->now_ns = 1000 * SEC;
    rig->leader = 1;
    rig->version = 1000;
    rig->generation = 1;
    rig->agents = (struct nxl_writer_agents){.interested = 2, .synced = 2};
    rig->world = nxl_world_new(&(struct nxl_world_options){.ops = &ops, .arg = rig});
    rig->writer = nxl_writer_new(&(struct nxl_writer_options){.world = rig->world,
                                                              .api = &api,
                                                              .arg = rig,
                                                              .instance = "operator-0",
                                                              .status_interval_ns = 5 * SEC,
                                                              .revoke_timeout_ns = 60 * SEC,
                                                              .writes_rate = 2,
                                                              .slices = 1});
    nxl_world_synced(rig->world, rig->now_ns);
    *state = rig;
    return 0;
}

static int close_rig(void **state)
{
    struct rig *rig = *state;

    if (rig->writer != NULL)
        nxl_writer_free(rig->writer);
    nxl_world_free(rig->world);
    for (unsigned i = 0; i < rig->count; i++)
        json_decref(rig->calls[i].body);
    free(rig);
    return 0;
}

/* The watch shows the object as it is now. */
static void show(struct rig *rig, int deleting)
{
    char version[16];
    json_t *json;
    struct nxl_nixlpeer *peer;
    struct nxl_err err = {0};

    snprintf(version, sizeof(version), "%u", rig->version);
    json = json_pack("{s:{s:s, s:s, s:s, s:s, s:I, s:[s]}, s:{s:s, s:{s:{s:s}}}}", "metadata",
                     "namespace", "a", "name", "g", "uid", "u1", "resourceVersion", version,
                     "generation", (json_int_t)rig->generation, "finalizers",
                     rig->finalizer ? NXL_FINALIZER : "other/one", "spec", "role", "Prefill",
                     "selector", "matchLabels", "app", "x");
    if (deleting)
        json_object_set_new(json_object_get(json, "metadata"), "deletionTimestamp",
                            json_string("2026-12-01T12:00:00Z"));
    assert_int_equal(nxl_read_nixlpeer(json, &peer, &err), NXL_OK);
    nxl_world_put_nixlpeer(rig->world, peer, rig->now_ns);
    nxl_writer_seen(rig->writer, "a/g", json);
    json_decref(json);
}

static void pod(struct rig *rig, unsigned number)
{
    char name[16], uid[16], version[16];
    struct nxl_pod pod = {.ns = "a",
                          .name = name,
                          .uid = uid,
                          .version = version,
                          .node = "n1",
                          .reason = "",
                          .phase = NXL_PHASE_RUNNING,
                          .label_count = 1,
                          .labels = {{"app", "x"}}};

    snprintf(name, sizeof(name), "p%u", number);
    snprintf(uid, sizeof(uid), "uid%u", number);
    snprintf(version, sizeof(version), "%u", ++rig->version);
    nxl_world_put_pod(rig->world, &pod, rig->now_ns);
}

static void drop(struct rig *rig, unsigned number)
{
    char uid[16];

    snprintf(uid, sizeof(uid), "uid%u", number);
    nxl_world_drop_pod(rig->world, "a", "p", uid, rig->now_ns);
}

/* Time passes; the writer runs as its timer would. */
static void pass(struct rig *rig, uint64_t ns)
{
    uint64_t end_ns = rig->now_ns + ns;

    nxl_writer_run(rig->writer);
    for (;;) {
        uint64_t next_ns = nxl_writer_next_ns(rig->writer);

        if (next_ns > end_ns)
            break;
        rig->now_ns = next_ns > rig->now_ns ? next_ns : rig->now_ns + 1000000;
        nxl_writer_run(rig->writer);
    }
    rig->now_ns = end_ns;
}

static unsigned calls_to(struct rig *rig, const char *method, const char *part)
{
    unsigned count = 0;

    for (unsigned i = rig->taken; i < rig->count; i++)
        count +=
            strcmp(rig->calls[i].method, method) == 0 && strstr(rig->calls[i].path, part) != NULL;
    return count;
}

static struct made *last_to(struct rig *rig, const char *part)
{
    for (unsigned i = rig->count; i > 0; i--)
        if (strstr(rig->calls[i - 1].path, part) != NULL)
            return &rig->calls[i - 1];
    fail_msg("no call to %s", part);
    return NULL;
}

static void settled(struct rig *rig)
{
    show(rig, 0);
    pass(rig, SEC);
    rig->finalizer = 1;
    show(rig, 0);
    pass(rig, 10 * SEC);
    show(rig, 0);
    pass(rig, 10 * SEC);
    rig->taken = rig->count;
}

static const char *condition(const struct made *made, const char *type)
{
    json_t *list = json_object_get(json_object_get(made->body, "status"), "conditions");

    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *item = json_array_get(list, i);

        if (strcmp(json_string_value(json_object_get(item, "type")), type) == 0)
            return json_string_value(json_object_get(item, "reason"));
    }
    return "";
}

static void finalizer_first_then_the_status_each_applied_as_ours(void **state)
{
    struct rig *rig = *state;
    struct made *made;

    show(rig, 0);
    pass(rig, SEC);
    assert_int_equal(rig->count, 1);
    made = &rig->calls[0];
    assert_string_equal(made->method, "PATCH");
    assert_string_equal(made->type, "application/apply-patch+yaml");
    assert_string_equal(made->path, "/apis/nixlet.dev/v1alpha1/namespaces/a/nixlpeers/g");
    assert_string_equal(
        json_string_value(json_object_get(json_object_get(made->body, "metadata"), "uid")), "u1");
    assert_null(json_object_get(made->body, "spec"));
    /* Until the watch shows our own write, nothing more is done. */
    pass(rig, 5 * SEC);
    assert_int_equal(rig->count, 1);
    rig->finalizer = 1;
    show(rig, 0);
    pass(rig, SEC);
    assert_int_equal(rig->count, 2);
    made = &rig->calls[1];
    assert_string_equal(made->path, "/apis/nixlet.dev/v1alpha1/namespaces/a/nixlpeers/g/status");
    assert_string_equal(condition(made, "Accepted"), "Valid");
    assert_string_equal(condition(made, "Ready"), "NoMembers");
    show(rig, 0);
    pass(rig, 60 * SEC);
    assert_int_equal(rig->count, 2); /* nothing changed: no write */
}

static void a_thousand_touches_are_few_writes_and_the_last_state_wins(void **state)
{
    struct rig *rig = *state;
    json_t *status;

    settled(rig);
    for (unsigned i = 0; i < 1000; i++) {
        pod(rig, i % 50);
        if (i % 10 == 0)
            nxl_writer_run(rig->writer);
        rig->now_ns += SEC / 1000;
    }
    pass(rig, 30 * SEC);
    show(rig, 0);
    pass(rig, 30 * SEC);
    assert_true(calls_to(rig, "PATCH", "/status") >= 1);
    assert_true(calls_to(rig, "PATCH", "/status") <= 4);
    status = json_object_get(last_to(rig, "/status")->body, "status");
    assert_int_equal(
        json_integer_value(json_object_get(json_object_get(status, "members"), "live")), 50);
    assert_true(calls_to(rig, "PATCH", "nixlpeerslices/g-0") <= 12);
    assert_int_equal(
        json_array_size(json_object_get(last_to(rig, "nixlpeerslices")->body, "members")), 50);
}

/* B9: 1,000 purges in 10 s are at most 20 event writes, and a series that counts them. */
static void a_thousand_deaths_in_ten_seconds_are_few_events(void **state)
{
    struct rig *rig = *state;
    struct made *made;

    settled(rig);
    for (unsigned i = 0; i < 1000; i++)
        pod(rig, i);
    pass(rig, 60 * SEC);
    rig->taken = rig->count;
    for (unsigned i = 0; i < 1000; i++) {
        drop(rig, i);
        pass(rig, SEC / 100);
    }
    pass(rig, 60 * SEC);
    assert_int_equal(calls_to(rig, "POST", "/events"), 1);
    assert_true(calls_to(rig, "POST", "/events") + calls_to(rig, "PATCH", "/events/") <= 20);
    made = last_to(rig, "/events/");
    assert_string_equal(made->type, "application/merge-patch+json");
    assert_int_equal(
        json_integer_value(json_object_get(json_object_get(made->body, "series"), "count")), 1000);
    assert_null(json_object_get(made->body, "note")); /* the server does not let it change */
    /* And all slices are gone. */
    assert_true(calls_to(rig, "DELETE", "nixlpeerslices/") >= 10);
    /* Writes stay within what is allowed: a burst of ten and two a second. */
    assert_true(rig->count - rig->taken <= 10 + 2 * 70);
}

static void without_the_lease_nothing_is_written_and_with_it_all_is(void **state)
{
    struct rig *rig = *state;

    rig->leader = 0;
    show(rig, 0);
    pod(rig, 1);
    drop(rig, 1);
    pass(rig, 60 * SEC);
    assert_int_equal(rig->count, 0);
    rig->leader = 1;
    nxl_writer_lead(rig->writer);
    pass(rig, SEC);
    assert_true(rig->count > 0);
}

static void the_lease_lost_between_queue_and_call_stops_the_call(void **state)
{
    struct rig *rig = *state;
    unsigned count;

    settled(rig);
    pod(rig, 1);
    count = rig->count;
    rig->leader = 0; /* api_call asserts that nobody calls then */
    pass(rig, 60 * SEC);
    assert_int_equal(rig->count, count);
}

static void a_server_that_asks_to_wait_is_left_alone(void **state)
{
    struct rig *rig = *state;

    rig->hold = 1;
    show(rig, 0);
    pass(rig, SEC);
    assert_int_equal(rig->count, 1);
    answer(rig, 0, 429, 20 * SEC);
    pass(rig, 19 * SEC);
    assert_int_equal(rig->count, 1);
    pass(rig, 2 * SEC);
    assert_int_equal(rig->count, 2);
    /* No answer at all: back-off grows. */
    answer(rig, 1, 0, 0);
    pass(rig, SEC);
    assert_int_equal(rig->count, 3);
    answer(rig, 2, 503, 0);
    pass(rig, SEC);
    assert_int_equal(rig->count, 4);
    answer(rig, 3, 200, 0);
}

static void an_object_gone_meanwhile_is_not_made_again(void **state)
{
    struct rig *rig = *state;

    settled(rig);
    rig->hold = 1;
    rig->agents.synced = 1;
    pod(rig, 1);
    pass(rig, 10 * SEC);
    assert_true(rig->count > rig->taken);
    for (unsigned i = rig->taken; i < rig->count; i++)
        if (!rig->calls[i].answered)
            answer(rig, i, 404, 0);
    nxl_world_drop_nixlpeer(rig->world, "a", "g", "u1", rig->now_ns);
    rig->taken = rig->count;
    pass(rig, 60 * SEC);
    assert_int_equal(rig->count, rig->taken);
}

static void a_revoked_group_goes_when_agents_have_heard_of_it(void **state)
{
    struct rig *rig = *state;
    struct made *made;

    settled(rig);
    show(rig, 1);
    pass(rig, 2 * SEC);
    assert_int_equal(rig->count, rig->taken); /* they have not */
    rig->revoked = 1;
    pass(rig, SEC);
    assert_int_equal(rig->count, rig->taken + 1);
    made = &rig->calls[rig->count - 1];
    assert_string_equal(made->path, "/apis/nixlet.dev/v1alpha1/namespaces/a/nixlpeers/g");
    assert_null(json_object_get(json_object_get(made->body, "metadata"), "finalizers"));
}

static void a_group_whose_agents_are_gone_goes_after_the_timeout(void **state)
{
    struct rig *rig = *state;

    settled(rig);
    show(rig, 1);
    pass(rig, 59 * SEC);
    assert_int_equal(rig->count, rig->taken);
    pass(rig, 3 * SEC);
    assert_int_equal(calls_to(rig, "PATCH", "nixlpeers/g"), 1);
    assert_int_equal(calls_to(rig, "POST", "/events"), 1);
    assert_string_equal(json_string_value(json_object_get(last_to(rig, "/events")->body, "reason")),
                        "RevokeTimedOut");
}

static void an_urgent_change_does_not_wait_for_the_interval(void **state)
{
    struct rig *rig = *state;

    settled(rig);
    pod(rig, 1); /* NoMembers to AllAgentsSynced */
    pass(rig, SEC / 100);
    assert_int_equal(calls_to(rig, "PATCH", "/status"), 1);
    show(rig, 0);
    rig->taken = rig->count;
    pod(rig, 2); /* a count only */
    pass(rig, 4 * SEC);
    assert_int_equal(calls_to(rig, "PATCH", "/status"), 0);
    pass(rig, 2 * SEC);
    assert_int_equal(calls_to(rig, "PATCH", "/status"), 1);
    show(rig, 0);
    rig->taken = rig->count;
    rig->generation = 2; /* the spec was edited: observedGeneration follows within a second */
    rig->version++;
    show(rig, 0);
    pass(rig, SEC);
    assert_int_equal(calls_to(rig, "PATCH", "/status"), 1);
    assert_int_equal(
        json_integer_value(json_object_get(json_object_get(last_to(rig, "/status")->body, "status"),
                                           "observedGeneration")),
        2);
}

static void an_answer_after_the_end_is_harmless(void **state)
{
    struct rig *rig = *state;

    rig->hold = 1;
    show(rig, 0);
    pass(rig, SEC);
    assert_int_equal(rig->count, 1);
    nxl_writer_free(rig->writer);
    rig->writer = NULL;
    answer(rig, 0, 200, 0);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, open_rig, close_rig)
    const struct CMUnitTest tests[] = {
        T(finalizer_first_then_the_status_each_applied_as_ours),
        T(a_thousand_touches_are_few_writes_and_the_last_state_wins),
        T(a_thousand_deaths_in_ten_seconds_are_few_events),
        T(without_the_lease_nothing_is_written_and_with_it_all_is),
        T(the_lease_lost_between_queue_and_call_stops_the_call),
        T(a_server_that_asks_to_wait_is_left_alone),
        T(an_object_gone_meanwhile_is_not_made_again),
        T(a_revoked_group_goes_when_agents_have_heard_of_it),
        T(a_group_whose_agents_are_gone_goes_after_the_timeout),
        T(an_urgent_change_does_not_wait_for_the_interval),
        T(an_answer_after_the_end_is_harmless),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
