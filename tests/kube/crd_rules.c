/* crd_rules.c - every CEL rule of the CRDs with objects that it lets through and refuses. A rule
 * without a case fails the test, and so does a case without a rule. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "kube/crd_rig.h"

#include <stdio.h>
#include <string.h>

#define LONG_NAME "n234567890123456789012345678901234567890123456789012" /* 52 */

struct rule {
    const char *message; /* of the rule */
    const char *field;   /* where the server says it was broken */
    const char *accept, *refuse;
    const char *before;     /* the rule is about a change: from this */
    uint8_t slice, by_name; /* accept and refuse are names */
};

#define VRAM "VRAM needs a backend that can move it, such as UCX, CUDA or GDS"
#define OBJECT "Object memory needs one of the backends OBJ, AZURE_BLOB or INFINIA"
#define KINDS "an allow rule may name only memory kinds listed in spec.memory"
#define ONE_OF "set exactly one of peerName, peerSelector and role"
#define ACROSS "Write across namespaces is not available in v1alpha1"
#define QUANTITY "must be a positive quantity such as 64Gi"
#define VALUES "In and NotIn need values, Exists and DoesNotExist take none"
#define LIVENESS(body) "{'liveness':{" body "}}"
#define EXPRESSION(body) "{'selector':{'matchExpressions':[{'key':'k'," body "}]}}"
#define MEMORY(body) "{'memory':[{'kind':" body "}]}"
#define ALLOW(from, rest) "{'allow':[{'from':{" from "}," rest "}]}"
#define READ "'operations':['Read']"

static const struct rule rules[] = {
    {.message = "name must be at most 52 characters",
     .field = "<nil>",
     .accept = LONG_NAME,
     .refuse = LONG_NAME "3",
     .by_name = 1},
    {.message = "selector must not be empty",
     .field = "spec.selector",
     .accept =
         "{'selector':{'matchLabels':null,'matchExpressions':[{'key':'k','operator':'Exists'}]}}",
     .refuse = "{'selector':{'matchLabels':null}}"},
    {.message = "selector must not be empty",
     .field = "spec.selector",
     .accept = "{'selector':{'matchLabels':{'a':''}}}",
     .refuse = "{'selector':{'matchLabels':{'app':null},'matchExpressions':[]}}"},
    {.message = VALUES,
     .field = "spec.selector.matchExpressions[0]",
     .accept = EXPRESSION("'operator':'In','values':['a','b']"),
     .refuse = EXPRESSION("'operator':'In'")},
    {.message = VALUES,
     .field = "spec.selector.matchExpressions[0]",
     .accept = EXPRESSION("'operator':'NotIn','values':['']"),
     .refuse = EXPRESSION("'operator':'NotIn','values':[]")},
    {.message = VALUES,
     .field = "spec.selector.matchExpressions[0]",
     .accept = EXPRESSION("'operator':'DoesNotExist','values':[]"),
     .refuse = EXPRESSION("'operator':'Exists','values':['a']")},
    {.message = VALUES,
     .field = "spec.allow[0].from.peerSelector.matchExpressions[0]",
     .accept = ALLOW("'peerSelector':{'matchExpressions':[{'key':'k','operator':'Exists'}]}", READ),
     .refuse = ALLOW("'peerSelector':{'matchExpressions':[{'key':'k','operator':'In'}]}", READ)},
    {.message = VALUES,
     .field = "spec.allow[0].from.namespaceSelector.matchExpressions[0]",
     .accept = ALLOW("'role':'Decode','namespaceSelector':{'matchExpressions':"
                     "[{'key':'k','operator':'Exists'}]}",
                     READ),
     .refuse = ALLOW("'role':'Decode','namespaceSelector':{'matchExpressions':"
                     "[{'key':'k','operator':'DoesNotExist','values':['a']}]}",
                     READ)},
    {.message = "role is immutable",
     .field = "spec.role",
     .before = "{'role':'Prefill'}",
     .accept = "{'role':'Prefill','mode':'Observe'}",
     .refuse = "{'role':'Decode'}"},
    {.message = VRAM,
     .field = "spec",
     .accept = "{'memory':[{'kind':'VRAM'}],'backends':[{'name':'UCX'}]}",
     .refuse = MEMORY("'VRAM'")},
    {.message = VRAM,
     .field = "spec",
     .accept = "{'memory':[{'kind':'DRAM'},{'kind':'VRAM'}],'backends':[{'name':'TCP'},{'name':'"
               "GDS_MT'}]}",
     .refuse = "{'memory':[{'kind':'DRAM'},{'kind':'VRAM'}],'backends':[{'name':'TCP'},{'name':'"
               "POSIX'}]}"},
    {.message = OBJECT,
     .field = "spec",
     .accept = "{'memory':[{'kind':'Object'}],'backends':[{'name':'OBJ'}]}",
     .refuse = "{'memory':[{'kind':'Object'}],'backends':[{'name':'UCX'}]}"},
    {.message = KINDS,
     .field = "spec",
     .accept = "{'memory':[{'kind':'DRAM'}],'allow':[{'from':{'role':'Decode'}," READ
               ",'memory':['DRAM']}]}",
     .refuse = "{'memory':[{'kind':'DRAM'}],'allow':[{'from':{'role':'Decode'}," READ
               ",'memory':['DRAM','File']}]}"},
    {.message = KINDS,
     .field = "spec",
     .accept = ALLOW("'role':'Decode'", READ),
     .refuse = ALLOW("'role':'Decode'", READ ",'memory':['DRAM']")},
    {.message = "a backend may be listed only once",
     .field = "spec",
     .accept = "{'backends':[{'name':'UCX'},{'name':'TCP'}]}",
     .refuse = "{'backends':[{'name':'UCX'},{'name':'TCP'},{'name':'UCX'}]}"},
    {.message = QUANTITY,
     .field = "spec.memory[0].maxBytesPerPod",
     .accept = MEMORY("'DRAM','maxBytesPerPod':'64Gi'"),
     .refuse = MEMORY("'DRAM','maxBytesPerPod':'64 Gi'")},
    {.message = QUANTITY,
     .field = "spec.memory[0].maxBytesPerPod",
     .accept = MEMORY("'DRAM','maxBytesPerPod':'1'"),
     .refuse = MEMORY("'DRAM','maxBytesPerPod':'-1Gi'")},
    {.message = QUANTITY,
     .field = "spec.limits.maxInFlightBytes",
     .accept = "{'limits':{'maxInFlightBytes':'1.5G'}}",
     .refuse = "{'limits':{'maxInFlightBytes':'0'}}"},
    {.message = QUANTITY,
     .field = "spec.limits.maxRegisteredBytes",
     .accept = "{'limits':{'maxRegisteredBytes':'3e9'}}",
     .refuse = "{'limits':{'maxRegisteredBytes':'much'}}"},
    {.message = ONE_OF,
     .field = "spec.allow[0].from",
     .accept = ALLOW("'peerName':'a'", READ),
     .refuse = ALLOW("'namespaceSelector':{}", READ)},
    {.message = ONE_OF,
     .field = "spec.allow[0].from",
     .accept = ALLOW("'peerSelector':{}", READ),
     .refuse = ALLOW("'peerName':'a','role':'Decode'", READ)},
    {.message = ONE_OF,
     .field = "spec.allow[0].from",
     .accept = ALLOW("'role':'Decode'", READ),
     .refuse = ALLOW("'peerName':'a','peerSelector':{},'role':'Decode'", READ)},
    {.message = ACROSS,
     .field = "spec.allow[0]",
     .accept = ALLOW("'role':'Decode','namespaceSelector':{}", "'operations':['Read','Notify']"),
     .refuse = ALLOW("'role':'Decode','namespaceSelector':{}", "'operations':['Read','Write']")},
    {.message = "leaseDurationSeconds must be at least three heartbeats",
     .field = "spec.liveness",
     .accept = LIVENESS("'heartbeatIntervalSeconds':2,'leaseDurationSeconds':6"),
     .refuse = LIVENESS("'heartbeatIntervalSeconds':2,'leaseDurationSeconds':5")},
    {.message = "leaseDurationSeconds must be at least three heartbeats",
     .field = "spec.liveness",
     .accept = LIVENESS(""),
     .refuse = LIVENESS("'heartbeatIntervalSeconds':2")},
    {.message = "purgeAfterSeconds must not be shorter than the lease",
     .field = "spec.liveness",
     .accept = LIVENESS("'leaseDurationSeconds':30,'purgeAfterSeconds':30"),
     .refuse = LIVENESS("'leaseDurationSeconds':30,'purgeAfterSeconds':29")},
    {.message = "onLapse Purge needs purgeAfterSeconds",
     .field = "spec.liveness",
     .accept = LIVENESS("'onLapse':'Purge','purgeAfterSeconds':60"),
     .refuse = LIVENESS("'onLapse':'Purge'")},
    {.message = "peerName is immutable",
     .field = "peerName",
     .slice = 1,
     .before = "{}",
     .accept = "{'membershipRevision':7}",
     .refuse = "{'peerName':'b'}"},
    {.message = "index is immutable",
     .field = "index",
     .slice = 1,
     .before = "{}",
     .accept = "{'members':[]}",
     .refuse = "{'index':1}"},
    {.message = "count must be the number of members",
     .field = "<nil>",
     .slice = 1,
     .accept = "{'count':1}",
     .refuse = "{'count':2}"},
};
#define RULES (sizeof(rules) / sizeof(rules[0]))

static json_t *object_of(const struct rule *rule, const char *patch)
{
    if (rule->by_name)
        return crd_peer(patch, NULL);
    return rule->slice ? crd_slice("case", patch) : crd_peer("case", patch);
}

/* An object that stands, changed by a PUT that is only tried out. */
static json_t *change(const struct rule *rule, const char *patch, long *ret_status)
{
    const char *folder = rule->slice ? CRD_SLICES : CRD_PEERS;
    json_t *before, *after = object_of(rule, patch);
    char path[256];
    long status;

    before = crd_send("POST", folder, NULL, object_of(rule, rule->before), &status);
    assert_int_equal(status, 201);
    (void)json_object_set(json_object_get(after, "metadata"), "resourceVersion",
                          json_object_get(json_object_get(before, "metadata"), "resourceVersion"));
    json_decref(before);
    (void)snprintf(path, sizeof(path), "%s/case?dryRun=All", folder);
    after = crd_send("PUT", path, NULL, after, ret_status);
    *strchr(path, '?') = '\0';
    crd_delete(path);
    return after;
}

static json_t *try_out(const struct rule *rule, const char *patch, long *ret_status)
{
    if (rule->before != NULL)
        return change(rule, patch, ret_status);
    return crd_send("POST",
                    rule->slice ? CRD_SLICES "?dryRun=All&fieldValidation=Strict"
                                : CRD_PEERS "?dryRun=All&fieldValidation=Strict",
                    NULL, object_of(rule, patch), ret_status);
}

static void show(const struct rule *rule, const char *patch, const json_t *answer)
{
    char *text = json_dumps(answer, JSON_ENCODE_ANY);

    print_error("%s\n  with %s\n  answer %s\n", rule->message, patch, text);
    free(text);
}

static void test_each_rule_lets_the_good_through_and_names_itself_to_the_bad(void **state)
{
    unsigned wrong = 0;

    for (size_t i = 0; i < RULES; i++) {
        const struct rule *rule = &rules[i];
        long status = 0;
        json_t *answer = try_out(rule, rule->accept, &status);

        if (status != 200 && status != 201) {
            show(rule, rule->accept, answer);
            wrong++;
        }
        json_decref(answer);
        answer = try_out(rule, rule->refuse, &status);
        /* its own message, where it belongs, and no other rule's */
        if (!crd_refused_for(answer, rule->field, rule->message) ||
            json_array_size(json_object_get(json_object_get(answer, "details"), "causes")) != 1) {
            show(rule, rule->refuse, answer);
            wrong++;
        }
        json_decref(answer);
    }
    assert_int_equal(wrong, 0);
}

/* Marks the cases of each rule that the schema has; returns how many rules have none. */
static unsigned match_rules(const json_t *schema, uint8_t *used)
{
    const json_t *list = json_object_get(schema, "x-kubernetes-validations");
    unsigned missing = 0;
    const char *key;
    json_t *value;

    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *message =
            json_string_value(json_object_get(json_array_get(list, i), "message"));
        int found = 0;

        assert_non_null(message);
        for (size_t j = 0; j < RULES; j++)
            if (strcmp(rules[j].message, message) == 0)
                found = used[j] = 1;
        if (!found) {
            print_error("no case for the rule: %s\n", message);
            missing++;
        }
    }
    json_object_foreach((json_t *)(uintptr_t)schema, key, value)
    {
        if (strcmp(key, "properties") == 0) {
            const char *name;
            json_t *property;

            json_object_foreach(value, name, property) missing += match_rules(property, used);
        } else if (strcmp(key, "items") == 0 || strcmp(key, "additionalProperties") == 0) {
            missing += match_rules(value, used);
        }
    }
    return missing;
}

static void test_each_rule_of_the_schemas_has_a_case(void **state)
{
    uint8_t used[RULES] = {0};
    json_t *peers = crd_schema("nixlpeers"), *slices = crd_schema("nixlpeerslices");

    assert_int_equal(match_rules(peers, used) + match_rules(slices, used), 0);
    for (size_t i = 0; i < RULES; i++)
        if (!used[i])
            fail_msg("no rule says: %s", rules[i].message);
    json_decref(peers);
    json_decref(slices);
}

int crd_run_rules(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_rule_lets_the_good_through_and_names_itself_to_the_bad),
        cmocka_unit_test(test_each_rule_of_the_schemas_has_a_case),
    };

    return cmocka_run_group_tests_name("rules", tests, NULL, NULL);
}
