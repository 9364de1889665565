/* fuzz_read.c - any JSON as any object of the API server. What is read keeps its bounds and may be
 * put into a world; a refusal names something. */
#include "base/assert.h"
#include "model/selector.h"
#include "model/world.h"
#include "reconcile/read.h"

#include <string.h>

#pragma GCC diagnostic ignored "-Wunused-parameter"
static void on_member(void *arg, const struct nxl_world_member *member)
{
    NXL_ASSERT(strlen(member->id) <= NXL_INCARNATION_MAX);
}
static void on_text(void *arg, const char *text)
{
}
static void on_policy(void *arg, const struct nxl_world_policy *policy)
{
    NXL_ASSERT(policy->rule_count <= NXL_RULE_FROM_MAX);
}
static void on_interest(void *arg, const char *node, const char *group)
{
}
static void on_slice(void *arg, const char *group, uint32_t index)
{
}
static void on_note(void *arg, const char *group, enum nxl_world_note note, const char *text)
{
}

static void as_pod(struct nxl_world *world, const json_t *json)
{
    static struct nxl_pod pod;
    struct nxl_err err = {0};

    if (nxl_read_pod(json, &pod, &err) != NXL_OK) {
        NXL_ASSERT(err.text[0] != '\0');
        return;
    }
    NXL_ASSERT(pod.label_count <= NXL_POD_LABELS_MAX);
    NXL_ASSERT(pod.container_count <= NXL_POD_CONTAINERS_MAX);
    nxl_world_put_pod(world, &pod, 1);
}

static void as_places(struct nxl_world *world, const json_t *json)
{
    static struct nxl_node node;
    static struct nxl_namespace space;
    struct nxl_err err = {0};

    if (nxl_read_node(json, &node, &err) == NXL_OK)
        nxl_world_put_node(world, &node, 2);
    if (nxl_read_namespace(json, &space, &err) == NXL_OK)
        nxl_world_put_namespace(world, &space, 3);
}

static void as_nixlpeer(struct nxl_world *world, const json_t *json)
{
    struct nxl_nixlpeer *peer = NULL;
    struct nxl_group_status status;
    struct nxl_err err = {0};

    nxl_read_status(json, &status);
    if (nxl_read_nixlpeer(json, &peer, &err) != NXL_OK) {
        NXL_ASSERT(peer == NULL && err.text[0] != '\0');
        return;
    }
    NXL_ASSERT(peer->spec.selector != NULL && nxl_selector_terms(peer->spec.selector) > 0);
    NXL_ASSERT(peer->spec.rule_count <= NXL_RULES_MAX);
    nxl_world_put_nixlpeer(world, peer, 4);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct nxl_world_ops ops = {on_member,   on_text, on_policy, on_text,
                                             on_interest, on_text, on_slice,  on_note};
    struct nxl_world *world;
    json_t *json = json_loadb((const char *)data, size, JSON_DECODE_ANY, NULL);

    if (json == NULL)
        return 0;
    world = nxl_world_new(&(struct nxl_world_options){.ops = &ops});
    nxl_world_synced(world, 1);
    for (size_t i = 0; i < (json_is_array(json) ? json_array_size(json) : 1) && i < 16; i++) {
        const json_t *item = json_is_array(json) ? json_array_get(json, i) : json;

        as_nixlpeer(world, item);
        as_pod(world, item);
        as_places(world, item);
    }
    nxl_world_tick(world, 10000000000ull);
    nxl_world_free(world);
    json_decref(json);
    return 0;
}
