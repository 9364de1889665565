/* test_crd.c - the CRDs on a real API server: they install clean, print, select and explain
 * themselves, take what the documents show, and can become stricter under objects that exist.
 * crd_rules.c and crd_schema.c hold what they refuse. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "kube/crd_rig.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CRDS "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/"
#define TABLE "application/json;as=Table;v=v1;g=meta.k8s.io"

static void create(const char *name, const char *patch)
{
    long status;
    json_t *answer =
        crd_send("POST", CRD_PEERS "?fieldValidation=Strict", NULL, crd_peer(name, patch), &status);

    if (status != 201)
        fail_msg("%s: %s", name, json_string_value(json_object_get(answer, "message")));
    json_decref(answer);
}

static void set_status(const char *name, const char *text)
{
    char path[256];
    long status;

    (void)snprintf(path, sizeof(path), "%s/%s/status", CRD_PEERS, name);
    json_decref(crd_send("PATCH", path, "application/merge-patch+json", crd_json(text), &status));
    assert_int_equal(status, 200);
}

static void test_the_crds_install_without_a_complaint(void **state)
{
    static const char *const names[] = {"nixlpeers", "nixlpeerslices"};

    for (size_t i = 0; i < 2; i++) {
        char path[256];
        long status;
        json_t *crd, *list, *one;
        size_t at;
        unsigned good = 0;

        (void)snprintf(path, sizeof(path), CRDS "%s.nixlet.dev", names[i]);
        crd = crd_send("GET", path, NULL, NULL, &status);
        assert_int_equal(status, 200);
        list = json_object_get(json_object_get(crd, "status"), "conditions");
        json_array_foreach(list, at, one)
        {
            const char *type = json_string_value(json_object_get(one, "type"));
            int is_true = strcmp(json_string_value(json_object_get(one, "status")), "True") == 0;

            if (strcmp(type, "Established") == 0 || strcmp(type, "NamesAccepted") == 0)
                good += (unsigned)is_true;
            else if (is_true)
                fail_msg("%s: condition %s: %s", names[i], type,
                         json_string_value(json_object_get(one, "message")));
        }
        assert_int_equal(good, 2);
        json_decref(crd);
    }
}

/* The cells of a row as text with spaces between. */
static void cells(const json_t *table, size_t row, char *ret, size_t size)
{
    const json_t *list =
        json_object_get(json_array_get(json_object_get(table, "rows"), row), "cells");
    size_t used = 0;

    ret[0] = '\0';
    for (size_t i = 0; i < json_array_size(list) && used < size; i++) {
        const json_t *cell = json_array_get(list, i);
        char number[32];

        (void)snprintf(number, sizeof(number), "%lld", (long long)json_integer_value(cell));
        used += (size_t)snprintf(ret + used, size - used, "%s%s", i == 0 ? "" : " ",
                                 json_is_string(cell)    ? json_string_value(cell)
                                 : json_is_integer(cell) ? number
                                                         : "-");
    }
}

static json_t *table_of(const char *path)
{
    struct kube_answer answer = kube_server_get(crd_server, path, TABLE);
    json_t *table;

    assert_int_equal(answer.status, 200);
    table = json_loadb(answer.text, answer.size, 0, NULL);
    assert_non_null(table);
    return table;
}

static void expect_columns(const json_t *table, const char *expected)
{
    char text[512] = "";
    size_t at, used = 0;
    json_t *column;

    json_array_foreach(json_object_get(table, "columnDefinitions"), at, column)
    {
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s%s", at == 0 ? "" : " ",
                                 json_string_value(json_object_get(column, "name")),
                                 json_integer_value(json_object_get(column, "priority")) != 0 ? "*"
                                                                                              : "");
    }
    assert_string_equal(text, expected);
}

static void test_a_table_shows_what_people_look_for(void **state)
{
    json_t *table;
    char row[512];
    long status;

    create("shown", "{'role':'Decode','mode':'Observe'}");
    table = table_of(CRD_PEERS);
    expect_columns(table, "Name Role Mode Members Live Suspect Agents Ready Reason* Revision* Age");
    cells(table, 0, row, sizeof(row));
    assert_memory_equal(row, "shown Decode Observe - - - - - - - ", 35); /* and an age */
    json_decref(table);

    set_status("shown",
               "{'status':{'membershipRevision':17,"
               "'members':{'total':4,'live':3,'draining':0,'suspect':1,'pending':0},"
               "'agents':{'interested':2,'synced':2,'summary':'2/2'},'conditions':["
               "{'type':'Accepted','status':'True','reason':'Valid','message':'',"
               "'lastTransitionTime':'2026-01-02T03:04:05Z'},"
               "{'type':'Ready','status':'False','reason':'AgentsLagging','message':'one is late',"
               "'lastTransitionTime':'2026-01-02T03:04:05Z'}]}}");
    table = table_of(CRD_PEERS);
    cells(table, 0, row, sizeof(row));
    assert_memory_equal(row, "shown Decode Observe 4 3 1 2/2 False AgentsLagging 17 ", 53);
    json_decref(table);
    crd_delete(CRD_PEERS "/shown");

    json_decref(crd_send("POST", CRD_SLICES, NULL,
                         crd_slice("part", "{'count':1,'membershipRevision':5}"), &status));
    assert_int_equal(status, 201);
    table = table_of(CRD_SLICES);
    expect_columns(table, "Name Peer Index Members Revision* Age");
    cells(table, 0, row, sizeof(row));
    assert_memory_equal(row, "part a 0 1 5 ", 13);
    json_decref(table);
    crd_delete(CRD_SLICES "/part");
}

static void expect_selected(const char *plural, const char *selector, size_t expected)
{
    char path[256];
    long status;
    json_t *list;

    (void)snprintf(path, sizeof(path), "/apis/nixlet.dev/v1alpha1/%s?fieldSelector=%s", plural,
                   selector);
    list = crd_send("GET", path, NULL, NULL, &status);
    assert_int_equal(status, 200);
    assert_int_equal(json_array_size(json_object_get(list, "items")), expected);
    json_decref(list);
}

static void test_objects_are_found_by_role_mode_and_peer(void **state)
{
    long status;

    create("a", NULL);
    create("b", "{'mode':'Paused'}");
    create("c", "{'role':'Decode'}");
    expect_selected("nixlpeers", "spec.role%3DPrefill", 2);
    expect_selected("nixlpeers", "spec.role%21%3DPrefill", 1);
    expect_selected("nixlpeers", "spec.mode%3DPaused", 1);
    expect_selected("nixlpeers", "spec.role%3DPrefill,spec.mode%3DEnforce", 1);
    json_decref(
        crd_send("GET", CRD_PEERS "?fieldSelector=spec.containerName%3Dx", NULL, NULL, &status));
    assert_int_equal(status, 400); /* only what is declared can be selected */
    json_decref(crd_send("POST", CRD_SLICES, NULL, crd_slice("a-0", NULL), &status));
    json_decref(crd_send("POST", CRD_SLICES, NULL, crd_slice("b-0", "{'peerName':'b'}"), &status));
    expect_selected("nixlpeerslices", "peerName%3Db", 1);
    crd_delete(CRD_PEERS);
    crd_delete(CRD_SLICES);
    expect_selected("nixlpeers", "spec.role%3DPrefill", 0);
}

static void test_kubectl_knows_the_short_names_the_category_and_conditions(void **state)
{
    struct kube_answer answer;
    long status;

    create("a", NULL);
    json_decref(crd_send("POST", CRD_SLICES, NULL, crd_slice("a-0", NULL), &status));
    answer = kube_server_kubectl(crd_server, "get nixl -o name");
    assert_int_equal(answer.status, 0);
    assert_string_equal(answer.text, "nixlpeer.nixlet.dev/a\nnixlpeerslice.nixlet.dev/a-0\n");
    answer = kube_server_kubectl(crd_server, "get nxp,nxps -o name");
    assert_string_equal(answer.text, "nixlpeer.nixlet.dev/a\nnixlpeerslice.nixlet.dev/a-0\n");
    set_status("a", "{'status':{'conditions':[{'type':'Ready','status':'True','reason':"
                    "'AsExpected','message':'','lastTransitionTime':'2026-01-02T03:04:05Z'}]}}");
    answer = kube_server_kubectl(crd_server, "wait nxp/a --for=condition=Ready --timeout=20s");
    assert_int_equal(answer.status, 0);
    crd_delete(CRD_PEERS);
    crd_delete(CRD_SLICES);
}

/* What kubectl explain says of path and of all objects below it; returns how many it asked about.
 */
static unsigned explain(const json_t *schema, const char *path)
{
    const char *type = json_string_value(json_object_get(schema, "type"));
    struct kube_answer answer;
    const char *name;
    json_t *property;
    unsigned count = 1;

    if (strcmp(type, "array") == 0)
        schema = json_object_get(schema, "items");
    if (json_object_get(schema, "properties") == NULL)
        return 0;
    answer = kube_server_kubectl(crd_server, "explain %s", path);
    assert_int_equal(answer.status, 0);
    if (strstr(answer.text, "<empty>") != NULL || strstr(answer.text, "<no description>") != NULL ||
        strstr(answer.text, "DESCRIPTION:") == NULL)
        fail_msg("%s: %s", path, answer.text);
    json_object_foreach(json_object_get(schema, "properties"), name, property)
    {
        char below[256];

        (void)snprintf(below, sizeof(below), "%s.%s", path, name);
        count += explain(property, below);
    }
    return count;
}

static void test_kubectl_explains_every_field(void **state)
{
    json_t *peers = crd_schema("nixlpeers"), *slices = crd_schema("nixlpeerslices");

    assert_true(explain(peers, "nixlpeers") >= 20);
    assert_int_equal(explain(slices, "nixlpeerslices"), 2);
    json_decref(peers);
    json_decref(slices);
}

static void test_defaults_are_filled_in(void **state)
{
    long status;
    json_t *peer = crd_send("POST", CRD_PEERS "?dryRun=All", NULL,
                            crd_peer("a", "{'backends':[{'name':'UCX'}],'liveness':{"
                                          "'leaseDurationSeconds':9},'topology':{'labelKey':'z'},"
                                          "'compatibility':{'revisionLabelKey':'r'}}"),
                            &status);
    json_t *expected = crd_json(
        "{'role':'Prefill','selector':{'matchLabels':{'app':'x'}},'mode':'Enforce',"
        "'backends':[{'name':'UCX','requirement':'Preferred'}],'liveness':{"
        "'heartbeatIntervalSeconds':1,'leaseDurationSeconds':9,'onLapse':'Quarantine',"
        "'massLapsePercent':30,'controlPlaneLoss':{'action':'Continue','afterSeconds':30}},"
        "'drain':{'onTermination':'Drain','timeoutSeconds':30},"
        "'compatibility':{'revisionLabelKey':'r','policy':'Strict'},"
        "'topology':{'labelKey':'z','enforcement':'Preferred'}}");

    assert_int_equal(status, 201);
    assert_true(json_equal(json_object_get(peer, "spec"), expected));
    json_decref(peer);
    json_decref(expected);
}

static void test_a_user_cannot_write_status_and_the_operator_not_spec(void **state)
{
    json_t *peer = crd_peer("a", NULL), *answer;
    long status;

    (void)json_object_set_new(peer, "status", crd_json("{'membershipRevision':9}"));
    answer = crd_send("POST", CRD_PEERS, NULL, peer, &status);
    assert_int_equal(status, 201);
    assert_null(json_object_get(answer, "status"));
    json_decref(answer);
    answer =
        crd_send("PATCH", CRD_PEERS "/a/status", "application/merge-patch+json",
                 crd_json("{'spec':{'mode':'Paused'},'status':{'membershipRevision':9}}"), &status);
    assert_int_equal(status, 200);
    assert_string_equal(json_string_value(json_object_get(json_object_get(answer, "spec"), "mode")),
                        "Enforce");
    assert_int_equal(
        json_integer_value(json_object_get(json_object_get(answer, "metadata"), "generation")), 1);
    json_decref(answer);
    crd_delete(CRD_PEERS "/a");
}

/* ---- a rule that comes later ------------------------------------------------------------------
 */

static void put_crd(json_t *crd)
{
    long status;
    json_t *now = crd_send("GET", CRDS "nixlpeers.nixlet.dev", NULL, NULL, &status);

    (void)json_object_set(json_object_get(crd, "metadata"), "resourceVersion",
                          json_object_get(json_object_get(now, "metadata"), "resourceVersion"));
    json_decref(now);
    json_decref(crd_send("PUT", CRDS "nixlpeers.nixlet.dev", NULL, json_incref(crd), &status));
    assert_int_equal(status, 200);
}

/* A changed CRD is served a moment later: until then the server answers by the old one. */
static void until_tried(const char *patch, long expected)
{
    long status = 0;

    for (int i = 0; i < 600 && status != expected; i++) {
        json_decref(
            crd_send("POST", CRD_PEERS "?dryRun=All", NULL, crd_peer("try", patch), &status));
        if (status != expected)
            (void)poll(NULL, 0, 50);
    }
    assert_int_equal(status, expected);
}

static void test_an_object_older_than_a_rule_can_still_be_edited_elsewhere(void **state)
{
    static const char old[] =
        "{'liveness':{'leaseDurationSeconds':4,'heartbeatIntervalSeconds':3}}";
    long status;
    json_t *strict = crd_send("GET", CRDS "nixlpeers.nixlet.dev", NULL, NULL, &status);
    json_t *lax = json_deep_copy(strict), *at, *answer;

    at = json_array_get(json_object_get(json_object_get(lax, "spec"), "versions"), 0);
    at = json_object_get(json_object_get(at, "schema"), "openAPIV3Schema");
    at = json_object_get(json_object_get(at, "properties"), "spec");
    at = json_object_get(json_object_get(at, "properties"), "liveness");
    assert_int_equal(json_object_del(at, "x-kubernetes-validations"), 0);
    put_crd(lax);
    until_tried(old, 201);
    create("old", old);
    put_crd(strict);
    until_tried(old, 422);

    answer =
        crd_send("PATCH", CRD_PEERS "/old", "application/merge-patch+json",
                 crd_json("{'metadata':{'labels':{'a':'b'}},'spec':{'mode':'Observe'}}"), &status);
    assert_int_equal(status, 200);
    json_decref(answer);
    answer = crd_send("PATCH", CRD_PEERS "/old", "application/merge-patch+json",
                      crd_json("{'spec':{'liveness':{'leaseDurationSeconds':5}}}"), &status);
    assert_true(crd_refused_for(answer, "spec.liveness",
                                "leaseDurationSeconds must be at least three heartbeats"));
    json_decref(answer);
    crd_delete(CRD_PEERS "/old");
    json_decref(strict);
    json_decref(lax);
}

static void test_the_documented_pair_of_groups_is_accepted(void **state)
{
    create("llama70b-prefill",
           "{'role':'Prefill','selector':{'matchLabels':{'app':'llama70b','tier':'prefill'}},"
           "'containerName':'vllm','memory':[{'kind':'VRAM','maxBytesPerPod':'600Gi'},"
           "{'kind':'DRAM','maxBytesPerPod':'64Gi'}],'backends':[{'name':'UCX','requirement':"
           "'Preferred','parameters':[{'name':'num_workers','value':'2'}]},{'name':'TCP'}],"
           "'allowedPaths':['RDMA','SharedMemory'],'allow':[{'from':{'peerName':"
           "'llama70b-decode'},'operations':['Read','Notify'],'memory':['VRAM','DRAM']}],"
           "'compatibility':{'revisionLabelKey':'nixlet.dev/revision'},'topology':{'labelKey':"
           "'topology.kubernetes.io/zone','enforcement':'Preferred'},"
           "'drain':{'onTermination':'Drain','timeoutSeconds':60},"
           "'limits':{'maxInFlightBytes':'8Gi','maxRegisteredBytes':'700Gi'}}");
    create("llama70b-decode",
           "{'role':'Decode','selector':{'matchLabels':{'app':'llama70b','tier':'decode'}},"
           "'containerName':'vllm','memory':[{'kind':'VRAM','maxBytesPerPod':'600Gi'}],"
           "'backends':[{'name':'UCX'},{'name':'TCP'}],'allow':[{'from':{'peerSelector':{"
           "'matchLabels':{'model':'llama70b'}},'namespaceSelector':{'matchExpressions':["
           "{'key':'team','operator':'In','values':['a']}]}},'operations':['Notify'],"
           "'memory':['VRAM']}],'liveness':{'heartbeatIntervalSeconds':1,"
           "'leaseDurationSeconds':4,'onLapse':'Purge','purgeAfterSeconds':60}}");
    crd_delete(CRD_PEERS);
}

static int start(void **state)
{
    crd_server = kube_server_new();
    kube_server_up(crd_server);
    kube_server_crds(crd_server);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_crds_install_without_a_complaint),
        cmocka_unit_test(test_a_table_shows_what_people_look_for),
        cmocka_unit_test(test_objects_are_found_by_role_mode_and_peer),
        cmocka_unit_test(test_kubectl_knows_the_short_names_the_category_and_conditions),
        cmocka_unit_test(test_kubectl_explains_every_field),
        cmocka_unit_test(test_defaults_are_filled_in),
        cmocka_unit_test(test_a_user_cannot_write_status_and_the_operator_not_spec),
        cmocka_unit_test(test_the_documented_pair_of_groups_is_accepted),
        cmocka_unit_test(test_an_object_older_than_a_rule_can_still_be_edited_elsewhere),
    };
    int failed;

    if (kube_server_missing() != NULL) {
        (void)printf("SKIP: %s\n", kube_server_missing());
        return 77;
    }
    failed = cmocka_run_group_tests_name("crd", tests, start, NULL);
    if (crd_server != NULL) /* after setup's failure there is nothing to ask */
        failed += crd_run_rules() + crd_run_schema();
    kube_server_free(crd_server);
    return failed != 0;
}
