/* crd_schema.c - walks the schemas that the server has stored: every field is described and
 * bounded, and for each bound, enumeration and requirement an object that breaks just it is refused
 * there. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "kube/crd_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH_MAX 16u
#define ITEM "[0]" /* a step into an array; "k" is the key into a map */

struct walk {
    const char *plural;
    json_t *root;
    const char *steps[DEPTH_MAX];
    unsigned depth, tried, wrong;
};

/* ---- objects made from a schema ---------------------------------------------------------------
 */

static const char *text_of(const json_t *schema, const char *key)
{
    const char *text = json_string_value(json_object_get(schema, key));

    return text != NULL ? text : "";
}

static json_int_t bound(const json_t *schema, const char *key, json_int_t otherwise)
{
    const json_t *value = json_object_get(schema, key);

    return json_is_number(value) ? (json_int_t)json_number_value(value) : otherwise;
}

/* The smallest value that the schema takes, leaving CEL rules aside. */
static json_t *example(const json_t *schema)
{
    const char *type = text_of(schema, "type");
    const json_t *choice = json_array_get(json_object_get(schema, "enum"), 0);
    json_t *made = NULL;

    if (choice != NULL)
        return json_deep_copy(choice);
    if (strcmp(text_of(schema, "format"), "date-time") == 0)
        return json_string("2026-01-02T03:04:05Z");
    if (strcmp(type, "string") == 0)
        return json_string(strstr(text_of(schema, "pattern"), "A-Z") != NULL ? "UCX" : "1");
    if (strcmp(type, "integer") == 0)
        return json_integer(bound(schema, "minimum", 0));
    if (strcmp(type, "array") == 0) {
        made = json_array();
        if (bound(schema, "minItems", 0) > 0)
            (void)json_array_append_new(made, example(json_object_get(schema, "items")));
        return made;
    }
    made = json_object();
    for (size_t i = 0; i < json_array_size(json_object_get(schema, "required")); i++) {
        const char *name =
            json_string_value(json_array_get(json_object_get(schema, "required"), i));

        (void)json_object_set_new(
            made, name, example(json_object_get(json_object_get(schema, "properties"), name)));
    }
    return made;
}

static const json_t *child(const json_t *schema, const char *step)
{
    const json_t *properties = json_object_get(schema, "properties");

    if (strcmp(step, ITEM) == 0)
        return json_object_get(schema, "items");
    return properties != NULL ? json_object_get(properties, step)
                              : json_object_get(schema, "additionalProperties");
}

/* An example of schema with leaf (consumed) at the end of the steps. */
static json_t *build(const json_t *schema, const char *const *steps, unsigned depth, json_t *leaf)
{
    json_t *made, *below;

    if (depth == 0)
        return leaf;
    made = example(schema);
    below = build(child(schema, steps[0]), steps + 1, depth - 1, leaf);
    if (strcmp(steps[0], ITEM) == 0) {
        (void)json_array_clear(made);
        (void)json_array_append_new(made, below);
    } else {
        (void)json_object_set_new(made, steps[0], below);
    }
    return made;
}

static void path_of(const struct walk *walk, const char *more, char *ret, size_t size)
{
    size_t used = 0;

    ret[0] = '\0';
    for (unsigned i = 0; i < walk->depth; i++)
        used += (size_t)snprintf(ret + used, size - used, "%s%s",
                                 i == 0 || walk->steps[i][0] == '[' ? "" : ".", walk->steps[i]);
    if (more[0] != '\0')
        (void)snprintf(ret + used, size - used, "%s%s", used == 0 || more[0] == '[' ? "" : ".",
                       more);
}

/* ---- one bad object ---------------------------------------------------------------------------
 */

static json_t *deliver(struct walk *walk, json_t *object, long *ret_status)
{
    char path[256];

    if (walk->depth > 0 && strcmp(walk->steps[0], "status") == 0) {
        json_t *patch = json_pack("{s:O}", "status", json_object_get(object, "status"));

        json_decref(object);
        (void)snprintf(path, sizeof(path), "%s/stands/status?dryRun=All", CRD_PEERS);
        return crd_send("PATCH", path, "application/merge-patch+json", patch, ret_status);
    }
    (void)json_object_set_new(object, "apiVersion", json_string("nixlet.dev/v1alpha1"));
    (void)json_object_set_new(
        object, "kind",
        json_string(strcmp(walk->plural, "nixlpeers") == 0 ? "NixlPeer" : "NixlPeerSlice"));
    (void)json_object_set_new(object, "metadata", json_pack("{s:s}", "name", "bad"));
    (void)snprintf(path, sizeof(path), "/apis/nixlet.dev/v1alpha1/namespaces/default/%s?dryRun=All",
                   walk->plural);
    return crd_send("POST", path, NULL, object, ret_status);
}

/* The object with leaf (consumed) at the place of the walk is refused at this field for this. */
static void refused(struct walk *walk, json_t *leaf, const char *more, const char *because)
{
    json_t *object = build(walk->root, walk->steps, walk->depth, leaf), *answer;
    char field[512];
    long status;

    path_of(walk, more, field, sizeof(field));
    answer = deliver(walk, object, &status);
    walk->tried++;
    if (!crd_refused_for(answer, field, because)) {
        char *text = json_dumps(answer, JSON_ENCODE_ANY);

        print_error("%s at %s: expected \"%s\", got %ld %.600s\n", walk->plural, field, because,
                    status, text);
        free(text);
        walk->wrong++;
    }
    json_decref(answer);
}

static json_t *copies(const json_t *item, json_int_t count)
{
    json_t *list = json_array();

    while (count-- > 0)
        (void)json_array_append_new(list, json_deep_copy(item));
    return list;
}

static json_t *long_text(json_int_t size)
{
    char *bytes = malloc((size_t)size + 1);
    json_t *text;

    if (bytes == NULL)
        abort();
    memset(bytes, 'a', (size_t)size);
    bytes[size] = '\0';
    text = json_string(bytes);
    free(bytes);
    return text;
}

static void break_text(struct walk *walk, const json_t *schema)
{
    json_int_t most = bound(schema, "maxLength", -1);

    if (json_object_get(schema, "enum") != NULL)
        refused(walk, json_string("Nonsense"), "", "Unsupported value");
    if (most >= 0)
        refused(walk, long_text(most + 1), "", "Too long");
    if (bound(schema, "minLength", 0) > 0)
        refused(walk, json_string(""), "", "should be at least");
    if (json_object_get(schema, "pattern") != NULL)
        refused(walk, json_string("!!"), "", "should match");
    if (strcmp(text_of(schema, "format"), "date-time") == 0)
        refused(walk, json_string("yesterday"), "", "must be of type date-time");
}

static void break_list(struct walk *walk, const json_t *schema)
{
    const char *kind = text_of(schema, "x-kubernetes-list-type");
    json_t *item = example(json_object_get(schema, "items"));

    refused(walk, copies(item, bound(schema, "maxItems", 0) + 1), "", "Too many");
    if (bound(schema, "minItems", 0) > 0)
        refused(walk, json_array(), "", "should have at least");
    if (strcmp(kind, "set") == 0 || strcmp(kind, "map") == 0)
        refused(walk, copies(item, 2), "[1]", "Duplicate value");
    json_decref(item);
}

static void break_object(struct walk *walk, const json_t *schema)
{
    const json_t *required = json_object_get(schema, "required");
    json_int_t most = bound(schema, "maxProperties", -1);

    for (size_t i = 0; i < json_array_size(required); i++) {
        const char *name = json_string_value(json_array_get(required, i));
        json_t *object = example(schema);

        (void)json_object_del(object, name);
        refused(walk, object, name, "Required value");
    }
    if (most >= 0) {
        json_t *map = json_object();

        for (json_int_t i = 0; i <= most; i++) {
            char key[24];

            (void)snprintf(key, sizeof(key), "k%lld", (long long)i);
            (void)json_object_set_new(map, key, json_string("v"));
        }
        refused(walk, map, "", "Too many");
    }
}

static void break_it(struct walk *walk, const json_t *schema)
{
    const char *type = text_of(schema, "type");
    json_t *other = strcmp(type, "string") == 0 ? json_integer(7) : json_string("text");

    refused(walk, other, "", "must be of type");
    if (strcmp(type, "string") == 0)
        break_text(walk, schema);
    if (strcmp(type, "array") == 0)
        break_list(walk, schema);
    if (strcmp(type, "object") == 0)
        break_object(walk, schema);
    if (strcmp(type, "integer") == 0) {
        refused(walk, json_integer(bound(schema, "minimum", 0) - 1), "",
                "should be greater than or equal to");
        refused(walk, json_integer(bound(schema, "maximum", 0) + 1), "",
                "should be less than or equal to");
    }
}

/* ---- the walk ---------------------------------------------------------------------------------
 */

typedef void visit(struct walk *walk, const json_t *schema);

static void each(struct walk *walk, const json_t *schema, visit *fn)
{
    static const char *const inner[][2] = {{"items", ITEM}, {"additionalProperties", "k"}};
    const char *name;
    json_t *property;

    assert_true(walk->depth < DEPTH_MAX - 1);
    if (walk->depth > 0)
        fn(walk, schema);
    walk->depth++;
    json_object_foreach(json_object_get(schema, "properties"), name, property)
    {
        int typed = walk->depth > 1 || (strcmp(name, "apiVersion") != 0 &&
                                        strcmp(name, "kind") != 0 && strcmp(name, "metadata") != 0);

        walk->steps[walk->depth - 1] = name;
        if (typed) /* those three are Kubernetes' own */
            each(walk, property, fn);
    }
    for (size_t i = 0; i < 2; i++) {
        walk->steps[walk->depth - 1] = inner[i][1];
        if (json_object_get(schema, inner[i][0]) != NULL)
            each(walk, json_object_get(schema, inner[i][0]), fn);
    }
    walk->depth--;
}

static struct walk walk_all(const char *plural, visit *fn)
{
    struct walk walk = {.plural = plural, .root = crd_schema(plural)};

    each(&walk, walk.root, fn);
    json_decref(walk.root);
    assert_true(walk.tried > 20);
    return walk;
}

static void demand(struct walk *walk, int holds, const char *what)
{
    char field[512];

    walk->tried++;
    if (holds)
        return;
    path_of(walk, "", field, sizeof(field));
    print_error("%s: %s has no %s\n", walk->plural, field, what);
    walk->wrong++;
}

static void described_and_bounded(struct walk *walk, const json_t *schema)
{
    const char *type = text_of(schema, "type");
    const char *step = walk->steps[walk->depth - 1];

    demand(walk, type[0] != '\0', "type");
    if (strcmp(step, ITEM) != 0 && strcmp(step, "k") != 0) /* the list's own text says it */
        demand(walk, strlen(text_of(schema, "description")) >= 5, "description");
    if (strcmp(type, "string") == 0)
        demand(walk,
               json_object_get(schema, "maxLength") != NULL ||
                   json_object_get(schema, "enum") != NULL ||
                   strcmp(text_of(schema, "format"), "date-time") == 0,
               "longest text");
    if (strcmp(type, "integer") == 0)
        demand(walk,
               json_object_get(schema, "minimum") != NULL &&
                   json_object_get(schema, "maximum") != NULL,
               "least and most");
    if (strcmp(type, "array") == 0) {
        demand(walk, json_object_get(schema, "maxItems") != NULL, "most items");
        demand(walk, text_of(schema, "x-kubernetes-list-type")[0] != '\0', "kind of list");
    }
    if (json_object_get(schema, "additionalProperties") != NULL)
        demand(walk, json_object_get(schema, "maxProperties") != NULL, "most properties");
}

static void test_every_field_is_described_and_bounded(void **state)
{
    assert_int_equal(walk_all("nixlpeers", described_and_bounded).wrong, 0);
    assert_int_equal(walk_all("nixlpeerslices", described_and_bounded).wrong, 0);
}

static void test_an_object_that_breaks_one_bound_is_refused_at_that_field(void **state)
{
    long status;
    struct walk peers, slices;

    json_decref(crd_send("POST", CRD_PEERS, NULL, crd_peer("stands", NULL), &status));
    assert_int_equal(status, 201);
    peers = walk_all("nixlpeers", break_it);
    slices = walk_all("nixlpeerslices", break_it);
    crd_delete(CRD_PEERS "/stands");
    print_message("%u bad objects\n", peers.tried + slices.tried);
    assert_int_equal(peers.wrong + slices.wrong, 0);
    assert_true(peers.tried + slices.tried >= 200);
}

static void test_unknown_fields_are_refused_by_strict_clients(void **state)
{
    static const char *const bad[][2] = {
        {"{'selectors':{}}", "unknown field \"spec.selectors\""},
        {"{'allow':[{'from':{'role':'Decode','peer':'a'},'operations':['Read']}]}",
         "unknown field \"spec.allow[0].from.peer\""},
        {"{'liveness':{'leaseSeconds':4}}", "unknown field \"spec.liveness.leaseSeconds\""},
    };

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        long status;
        json_t *answer = crd_send("POST", CRD_PEERS "?dryRun=All&fieldValidation=Strict", NULL,
                                  crd_peer("strict", bad[i][0]), &status);

        assert_int_equal(status, 400);
        assert_non_null(strstr(text_of(answer, "message"), bad[i][1]));
        json_decref(answer);
    }
}

int crd_run_schema(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_field_is_described_and_bounded),
        cmocka_unit_test(test_an_object_that_breaks_one_bound_is_refused_at_that_field),
        cmocka_unit_test(test_unknown_fields_are_refused_by_strict_clients),
    };

    return cmocka_run_group_tests_name("schema", tests, NULL, NULL);
}
