/* test_read.c - objects as the API server sends them, and what is wrong with them by field. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include "model/selector.h"
#include "reconcile/read.h"

#include <string.h>

static json_t *parse(const char *text)
{
    json_error_t error;
    json_t *json = json_loads(text, 0, &error);

    if (json == NULL)
        fail_msg("test's own JSON: %s in %s", error.text, text);
    return json;
}

#define META                                                                                       \
    "\"metadata\":{\"namespace\":\"a\",\"name\":\"p\",\"uid\":\"u1\",\"resourceVersion\":\"7\","   \
    "\"generation\":3}"

static void a_pod_is_read_whole(void **state)
{
    json_t *json =
        parse("{\"metadata\":{\"namespace\":\"a\",\"name\":\"p\",\"uid\":\"u1\","
              "\"resourceVersion\":\"7\","
              "\"deletionTimestamp\":\"2026-12-01T12:00:00Z\",\"labels\":{\"app\":\"x\"},"
              "\"managedFields\":[{\"manager\":\"k\"}]},"
              "\"spec\":{\"nodeName\":\"n1\",\"containers\":[{\"name\":\"c\"}]},"
              "\"status\":{\"phase\":\"Running\",\"reason\":\"NodeLost\",\"containerStatuses\":["
              "{\"name\":\"c\",\"containerID\":\"containerd://abc\",\"restartCount\":2,"
              "\"state\":{\"running\":{\"startedAt\":\"x\"}}},"
              "{\"name\":\"d\",\"containerID\":\"cri-o://def\",\"restartCount\":9,"
              "\"state\":{\"waiting\":{\"reason\":\"CrashLoopBackOff\"}}},"
              "{\"name\":\"e\",\"state\":{\"waiting\":{\"reason\":\"ContainerCreating\"}}},"
              "{\"name\":\"f\",\"containerID\":\"docker://0\",\"state\":{\"terminated\":{}}}]}}");
    struct nxl_pod pod;
    struct nxl_err err = {0};

    assert_int_equal(nxl_read_pod(json, &pod, &err), NXL_OK);
    assert_string_equal(pod.ns, "a");
    assert_string_equal(pod.uid, "u1");
    assert_string_equal(pod.node, "n1");
    assert_string_equal(pod.reason, "NodeLost");
    assert_int_equal(pod.phase, NXL_PHASE_RUNNING);
    assert_int_equal(pod.deleting, 1);
    assert_int_equal(pod.label_count, 1);
    assert_int_equal(pod.container_count, 4);
    assert_string_equal(pod.containers[0].id, "abc");
    assert_int_equal(pod.containers[0].ended, 0);
    assert_int_equal(pod.containers[1].ended, 1); /* the id of the one before, in a crash loop */
    assert_string_equal(pod.containers[2].id, "");
    assert_int_equal(pod.containers[2].ended, 0);
    assert_int_equal(pod.containers[3].ended, 1);
    json_decref(json);
}

static void a_node_is_ready_or_not_or_out_of_service(void **state)
{
    static const struct {
        const char *status, *taints;
        int ready, out;
    } rows[] = {
        {"True", "", NXL_NODE_READY, 0},
        {"False", "", NXL_NODE_NOT_READY, 0},
        {"Unknown", "{\"key\":\"node.kubernetes.io/unreachable\"}", NXL_NODE_UNKNOWN, 0},
        {"True", "{\"key\":\"node.kubernetes.io/out-of-service\",\"effect\":\"NoExecute\"}",
         NXL_NODE_READY, 1},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char text[512];
        struct nxl_node node;
        struct nxl_err err = {0};
        json_t *json;

        snprintf(text, sizeof(text),
                 "{\"metadata\":{\"name\":\"n\",\"uid\":\"u\"},\"spec\":{\"taints\":[%s]},"
                 "\"status\":{\"conditions\":[{\"type\":\"MemoryPressure\",\"status\":\"False\"},"
                 "{\"type\":\"Ready\",\"status\":\"%s\"}]}}",
                 rows[i].taints, rows[i].status);
        json = parse(text);
        assert_int_equal(nxl_read_node(json, &node, &err), NXL_OK);
        assert_int_equal(node.ready, rows[i].ready);
        assert_int_equal(node.out_of_service, rows[i].out);
        json_decref(json);
    }
}

static void a_nixlpeer_is_read_whole(void **state)
{
    json_t *json = parse(
        "{\"metadata\":{\"namespace\":\"a\",\"name\":\"p\",\"uid\":\"u1\",\"resourceVersion\":"
        "\"7\","
        "\"generation\":3,\"finalizers\":[\"x/y\",\"nixlet.dev/revoke\"],\"labels\":{\"m\":\"l\"}},"
        "\"spec\":{\"selector\":{\"matchLabels\":{\"app\":\"x\"},\"matchExpressions\":["
        "{\"key\":\"tier\",\"operator\":\"In\",\"values\":[\"p\",\"q\"]},"
        "{\"key\":\"old\",\"operator\":\"DoesNotExist\"}]},"
        "\"containerName\":\"vllm\",\"role\":\"Decode\",\"mode\":\"Observe\","
        "\"memory\":[{\"kind\":\"VRAM\",\"maxBytesPerPod\":\"600Gi\"},{\"kind\":\"File\"}],"
        "\"backends\":[{\"name\":\"UCX\",\"requirement\":\"Required\"},{\"name\":\"TCP\"}],"
        "\"allowedPaths\":[\"RDMA\",\"Storage\"],"
        "\"allow\":[{\"from\":{\"peerName\":\"q\"},\"operations\":[\"Read\",\"Notify\"],"
        "\"memory\":[\"VRAM\"]},"
        "{\"from\":{\"peerSelector\":{},\"namespaceSelector\":{\"matchLabels\":{\"k\":\"v\"}}},"
        "\"operations\":[\"Read\"]},{\"from\":{\"role\":\"Storage\"},\"operations\":[\"Write\"]}],"
        "\"liveness\":{\"heartbeatIntervalSeconds\":2,\"leaseDurationSeconds\":8,"
        "\"onLapse\":\"Purge\",\"purgeAfterSeconds\":60,\"massLapsePercent\":40,"
        "\"controlPlaneLoss\":{\"action\":\"Quarantine\",\"afterSeconds\":99}},"
        "\"drain\":{\"onTermination\":\"Purge\",\"timeoutSeconds\":0},"
        "\"compatibility\":{\"revisionLabelKey\":\"rev\"},"
        "\"topology\":{\"labelKey\":\"zone\",\"enforcement\":\"Required\"},"
        "\"limits\":{\"maxInFlightBytes\":\"1Gi\",\"maxRegisteredBytes\":\"2Gi\"}},"
        "\"status\":{\"membershipRevision\":41}}");
    struct nxl_nixlpeer *peer = NULL;
    struct nxl_err err = {0};

    if (nxl_read_nixlpeer(json, &peer, &err) != NXL_OK)
        fail_msg("%s", err.text);
    json_decref(json); /* it owns its texts */
    assert_string_equal(peer->name, "p");
    assert_int_equal(peer->generation, 3);
    assert_int_equal(peer->finalizer, 1);
    assert_int_equal(peer->deleting, 0);
    assert_int_equal(peer->revision, 41);
    assert_int_equal(nxl_selector_terms(peer->spec.selector), 3);
    assert_string_equal(peer->spec.container, "vllm");
    assert_int_equal(peer->spec.role, NXL_ROLE_DECODE);
    assert_int_equal(peer->spec.mode, NXL_MODE_OBSERVE);
    assert_int_equal(peer->spec.memory, 1u << NXL_MEM_VRAM | 1u << NXL_MEM_FILE);
    assert_int_equal(peer->spec.memory_max[NXL_MEM_VRAM], 600ull << 30);
    assert_int_equal(peer->spec.backend_count, 2);
    assert_int_equal(peer->spec.backends[0].required, 1);
    assert_int_equal(peer->spec.backends[1].required, 0);
    assert_int_equal(peer->spec.ways, NXL_WAY_RDMA | NXL_WAY_STORAGE);
    assert_int_equal(peer->spec.rule_count, 3);
    assert_string_equal(peer->spec.rules[0].peer_name, "q");
    assert_int_equal(peer->spec.rules[0].ops, NXL_MAY_READ | NXL_MAY_NOTIFY);
    assert_int_equal(peer->spec.rules[0].memory, 1u << NXL_MEM_VRAM);
    assert_int_equal(nxl_selector_terms(peer->spec.rules[1].peers), 0);
    assert_int_equal(nxl_selector_terms(peer->spec.rules[1].spaces), 1);
    assert_int_equal(peer->spec.rules[2].role, NXL_ROLE_STORAGE);
    assert_int_equal(peer->spec.heartbeat_s, 2);
    assert_int_equal(peer->spec.lease_s, 8);
    assert_int_equal(peer->spec.lapse_purges, 1);
    assert_int_equal(peer->spec.purge_s, 60);
    assert_int_equal(peer->spec.mass_percent, 40);
    assert_int_equal(peer->spec.loss_quarantines, 1);
    assert_int_equal(peer->spec.loss_after_s, 99);
    assert_int_equal(peer->spec.drain_purges, 1);
    assert_int_equal(peer->spec.drain_s, 0);
    assert_string_equal(peer->spec.revision_key, "rev");
    assert_int_equal(peer->spec.revision_pairing, NXL_PAIR_STRICT);
    assert_int_equal(peer->spec.topology_pairing, NXL_PAIR_STRICT);
    assert_int_equal(peer->spec.inflight_max, 1ull << 30);
    nxl_nixlpeer_free(peer);
}

static void defaults_are_those_of_the_schema(void **state)
{
    json_t *json = parse("{" META ",\"spec\":{\"selector\":{\"matchLabels\":{\"a\":\"b\"}},"
                         "\"role\":\"Prefill\"}}");
    struct nxl_nixlpeer *peer = NULL;
    struct nxl_err err = {0};

    assert_int_equal(nxl_read_nixlpeer(json, &peer, &err), NXL_OK);
    assert_int_equal(peer->spec.heartbeat_s, 1);
    assert_int_equal(peer->spec.lease_s, 4);
    assert_int_equal(peer->spec.mass_percent, 30);
    assert_int_equal(peer->spec.drain_s, 30);
    assert_int_equal(peer->spec.mode, NXL_MODE_ENFORCE);
    nxl_nixlpeer_free(peer);
    json_decref(json);
}

#define SPEC(more)                                                                                 \
    "{" META ",\"spec\":{\"selector\":{\"matchLabels\":{\"a\":\"b\"}},\"role\":\"Prefill\"" more   \
    "}}"

/* Each names its field. */
static const struct {
    const char *json, *field;
} bad_peers[] = {
    {"[]", "no JSON object"},
    {"{}", "metadata is missing"},
    {"{\"metadata\":7}", "metadata is a number"},
    {"{\"metadata\":{\"name\":\"p\",\"namespace\":\"a\"}}", "metadata.uid"},
    {"{\"metadata\":{\"uid\":\"p\",\"namespace\":\"a\"}}", "metadata.name"},
    {"{\"metadata\":{\"uid\":\"u/1\",\"name\":\"p\",\"namespace\":\"a\"}}", "slash"},
    {"{\"metadata\":{\"uid\":\"u\",\"name\":\"p\"},\"spec\":{}}", "metadata.namespace"},
    {"{\"metadata\":{\"uid\":\"u\",\"name\":\"p\",\"namespace\":\"a\",\"labels\":{\"x\":7}}}",
     "metadata.labels"},
    {"{" META "}", "spec is missing"},
    {"{" META ",\"spec\":\"x\"}", "spec is a text"},
    {"{" META ",\"spec\":{\"role\":\"Prefill\"}}", "spec.selector"},
    {"{" META ",\"spec\":{\"role\":\"Prefill\",\"selector\":{}}}", "spec.selector"},
    {"{" META ",\"spec\":{\"selector\":{\"matchLabels\":{\"a\":\"b\"}}}}", "spec.role"},
    {SPEC(",\"mode\":\"Off\""), "spec.mode"},
    {SPEC(",\"memory\":{}"), "spec.memory is an object"},
    {SPEC(",\"memory\":[{\"kind\":\"RAM\"}]"), "spec.memory[0].kind"},
    {SPEC(",\"memory\":[{}]"), "spec.memory[0].kind"},
    {SPEC(",\"memory\":[7]"), "spec.memory[0].kind"},
    {SPEC(",\"memory\":[{\"kind\":\"DRAM\",\"maxBytesPerPod\":\"-1\"}]"),
     "spec.memory[0].maxBytesPerPod"},
    {SPEC(",\"backends\":[{\"name\":\"UCX\"},{}]"), "spec.backends[1].name"},
    {SPEC(",\"allowedPaths\":[\"Teleport\"]"), "spec.allowedPaths[0]"},
    {SPEC(",\"allow\":[{\"operations\":[\"Read\"]}]"), "spec.allow[0].from"},
    {SPEC(",\"allow\":[{\"from\":{\"peerName\":\"p\",\"role\":\"Decode\"},\"operations\":[\"Read\"]"
          "}]"),
     "spec.allow[0].from: set exactly one"},
    {SPEC(",\"allow\":[{\"from\":{\"peerName\":\"p\"}}]"), "spec.allow[0].operations"},
    {SPEC(",\"allow\":[{\"from\":{\"peerName\":\"p\"},\"operations\":[\"Fly\"]}]"),
     "spec.allow[0].operations[0]"},
    {SPEC(",\"allow\":[{\"from\":{\"peerSelector\":{\"matchExpressions\":[{\"key\":\"a\","
          "\"operator\":\"Gt\",\"values\":[\"1\"]}]}},\"operations\":[\"Read\"]}]"),
     "spec.allow[0].from.peerSelector.matchExpressions[0].operator"},
    {SPEC(",\"allow\":[{\"from\":{\"peerSelector\":{\"matchExpressions\":[{\"key\":\"a\","
          "\"operator\":\"In\"}]}},\"operations\":[\"Read\"]}]"),
     "spec.allow[0].from.peerSelector.matchExpressions[0]"},
    {SPEC(",\"liveness\":{\"leaseDurationSeconds\":1}"), "spec.liveness.leaseDurationSeconds"},
    {SPEC(",\"liveness\":{\"leaseDurationSeconds\":4.5}"), "spec.liveness.leaseDurationSeconds"},
    {SPEC(",\"liveness\":{\"onLapse\":\"Purge\"}"), "spec.liveness.purgeAfterSeconds"},
    {SPEC(",\"drain\":{\"timeoutSeconds\":999999}"), "spec.drain.timeoutSeconds"},
    {SPEC(",\"limits\":{\"maxInFlightBytes\":\"much\"}"), "spec.limits.maxInFlightBytes"},
    {SPEC(",\"compatibility\":{\"policy\":\"Loose\"}"), "spec.compatibility.policy"},
};

static void a_bad_nixlpeer_is_refused_with_its_field(void **state)
{
    for (size_t i = 0; i < sizeof(bad_peers) / sizeof(bad_peers[0]); i++) {
        json_t *json = parse(bad_peers[i].json);
        struct nxl_nixlpeer *peer = NULL;
        struct nxl_err err = {0};

        if (nxl_read_nixlpeer(json, &peer, &err) != NXL_MISMATCH || peer != NULL ||
            strstr(err.text, bad_peers[i].field) == NULL)
            fail_msg("row %zu, %s: \"%s\" does not name %s", i, bad_peers[i].json, err.text,
                     bad_peers[i].field);
        json_decref(json);
    }
}

static const struct {
    const char *json, *field;
} bad_pods[] = {
    {"null", "no JSON object"},
    {"{\"metadata\":{\"uid\":\"u\",\"name\":\"p\"}}", "metadata.namespace"},
    {"{" META ",\"spec\":{\"nodeName\":[]}}", "spec.nodeName is a list"},
    {"{" META ",\"status\":{\"phase\":\"Flying\"}}", "status.phase"},
    {"{" META ",\"status\":{\"containerStatuses\":[7]}}", "status.containerStatuses[0]"},
    {"{" META ",\"status\":{\"containerStatuses\":[{\"name\":\"\"}]}}",
     "status.containerStatuses[0].name"},
    {"{" META ",\"status\":{\"containerStatuses\":[{\"name\":\"c\",\"containerID\":\"x://a/b\"}]}}",
     "status.containerStatuses[0].containerID"},
    {"{" META ",\"status\":{\"containerStatuses\":[{\"name\":\"c\",\"restartCount\":-1}]}}",
     "status.containerStatuses[0].restartCount"},
    {"{" META ",\"status\":{\"containerStatuses\":[{\"name\":\"c\",\"state\":\"up\"}]}}",
     "status.containerStatuses[0].state"},
};

static void a_bad_pod_is_refused_with_its_field(void **state)
{
    for (size_t i = 0; i < sizeof(bad_pods) / sizeof(bad_pods[0]); i++) {
        json_t *json = parse(strcmp(bad_pods[i].json, "null") == 0 ? "[]" : bad_pods[i].json);
        struct nxl_pod pod;
        struct nxl_err err = {0};

        if (nxl_read_pod(json, &pod, &err) != NXL_MISMATCH ||
            strstr(err.text, bad_pods[i].field) == NULL)
            fail_msg("row %zu: \"%s\" does not name %s", i, err.text, bad_pods[i].field);
        json_decref(json);
    }
}

static void more_than_the_bounds_is_refused(void **state)
{
    json_t *json = parse("{" META "}");
    json_t *labels = json_object(), *list = json_array();
    struct nxl_pod pod;
    struct nxl_err err = {0};
    char key[16];

    for (int i = 0; i < 200; i++) {
        snprintf(key, sizeof(key), "k%d", i);
        json_object_set_new(labels, key, json_string("v"));
        json_array_append_new(list, json_pack("{s:s}", "name", key));
    }
    json_object_set_new(json_object_get(json, "metadata"), "labels", labels);
    assert_int_equal(nxl_read_pod(json, &pod, &err), NXL_MISMATCH);
    assert_non_null(strstr(err.text, "metadata.labels has 200 entries"));
    json_object_del(json_object_get(json, "metadata"), "labels");
    json_object_set_new(json, "status", json_pack("{s:o}", "containerStatuses", list));
    assert_int_equal(nxl_read_pod(json, &pod, &err), NXL_MISMATCH);
    assert_non_null(strstr(err.text, "status.containerStatuses has 200 entries"));
    json_decref(json);
}

static void times_go_both_ways(void **state)
{
    char text[NXL_TIME_SIZE];

    assert_string_equal(nxl_time_text(1796126400123, 0, text), "2026-12-01T12:00:00Z");
    assert_int_equal(nxl_time_of(text), 1796126400000);
    assert_string_equal(nxl_time_text(1796126400123, 1, text), "2026-12-01T12:00:00.123000Z");
    assert_int_equal(nxl_time_of(text), 1796126400123);
    assert_int_equal(nxl_time_of("yesterday"), -1);
    assert_int_equal(nxl_time_of("2026-12-01T12:00:00+01:00"), -1);
}

static void an_earlier_status_gives_its_transition_times(void **state)
{
    json_t *json =
        parse("{\"status\":{\"observedGeneration\":2,\"membershipRevision\":9,"
              "\"members\":{\"total\":3,\"live\":-5,\"suspect\":\"x\"},"
              "\"lastInvalidation\":{\"time\":\"2026-12-01T12:00:00Z\",\"reason\":\"deleted\","
              "\"count\":4},"
              "\"conditions\":[7,{\"type\":\"Ready\",\"status\":\"True\",\"reason\":\"NoMembers\","
              "\"message\":\"m\",\"lastTransitionTime\":\"2026-12-01T12:00:00Z\","
              "\"observedGeneration\":2},"
              "{\"type\":\"Theirs\",\"status\":\"True\",\"reason\":\"R\","
              "\"lastTransitionTime\":\"2026-12-01T12:00:00Z\"}]}}");
    struct nxl_group_status status;

    nxl_read_status(json, &status);
    assert_int_equal(status.revision, 9);
    assert_int_equal(status.total, 3);
    assert_int_equal(status.live, 0);
    assert_int_equal(status.dead_ms, 1796126400000);
    assert_string_equal(status.dead_reason, "deleted");
    assert_string_equal(status.conditions[NXL_CONDITION_READY].reason, "NoMembers");
    assert_int_equal(status.conditions[NXL_CONDITION_READY].since_ms, 1796126400000);
    assert_null(status.conditions[NXL_CONDITION_ACCEPTED].reason);
    json_decref(json);
    json = parse("{}");
    nxl_read_status(json, &status);
    assert_int_equal(status.revision, 0);
    json_decref(json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pod_is_read_whole),
        cmocka_unit_test(a_node_is_ready_or_not_or_out_of_service),
        cmocka_unit_test(a_nixlpeer_is_read_whole),
        cmocka_unit_test(defaults_are_those_of_the_schema),
        cmocka_unit_test(a_bad_nixlpeer_is_refused_with_its_field),
        cmocka_unit_test(a_bad_pod_is_refused_with_its_field),
        cmocka_unit_test(more_than_the_bounds_is_refused),
        cmocka_unit_test(times_go_both_ways),
        cmocka_unit_test(an_earlier_status_gives_its_transition_times),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
