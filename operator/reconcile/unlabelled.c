/* unlabelled.c - pods that have a socket at an agent but that no watch shows, since they lack the
 * label: without a word the group would just stay empty. The pods of that node are asked for, at
 * most once a minute, and the groups that would have them get an event. */
#include "reconcile/reconcile_internal.h"

#define ASK_EVERY_NS (60 * NXL_SEC)
#define ASKS_MAX 16u /* nodes asked for at once */
#define UIDS_MAX 64u

struct unlabelled_ask {
    struct nxl_reconcile *reconcile; /* NULL: nobody waits any more */
    struct unlabelled_ask *next;
    const struct nxl_pod *pod; /* while its groups are looked for */
    uint32_t count;
    char uids[UIDS_MAX][NXL_UID_MAX + 1];
};

static void tell_group(void *arg, const char *group)
{
    const struct unlabelled_ask *ask = arg;
    char text[512];

    nxl_metric_add(ask->reconcile->metrics.unlabelled, 1);
    snprintf(
        text, sizeof(text),
        "pod %s has a socket on node %s and fits the selector, but lacks the label \"%s\", so it "
        "is no member",
        ask->pod->name, ask->pod->node,
        nxl_settings_text(ask->reconcile->options.settings, "reconcile.pod_selector"));
    nxl_writer_note(ask->reconcile->writer, group, "UnlabelledPod",
                    NXL_EVENT_WARNING | NXL_EVENT_MERGE, text);
}

static int was_named(const struct unlabelled_ask *ask, const char *uid)
{
    for (uint32_t i = 0; i < ask->count; i++)
        if (strcmp(ask->uids[i], uid) == 0)
            return 1;
    return 0;
}

static void answered(void *arg, int status, const json_t *answer, uint64_t after_ns,
                     const struct nxl_err *err)
{
    struct unlabelled_ask *ask = arg;
    const json_t *items = json_object_get(answer, "items");
    struct nxl_pod pod;
    struct nxl_err own = {0};

    (void)after_ns;
    (void)err; /* asked again in a minute */
    if (ask->reconcile == NULL) {
        free(ask);
        return;
    }
    for (struct unlabelled_ask **at = &ask->reconcile->asks; *at != NULL; at = &(*at)->next)
        if (*at == ask) {
            *at = ask->next;
            break;
        }
    ask->reconcile->ask_count--;
    for (size_t i = 0; status == 200 && i < json_array_size(items); i++) {
        if (nxl_read_pod(json_array_get(items, i), &pod, &own) != NXL_OK ||
            !was_named(ask, pod.uid) || nxl_world_knows(ask->reconcile->world, pod.uid))
            continue;
        ask->pod = &pod;
        nxl_world_would_match(ask->reconcile->world, &pod, tell_group, ask);
    }
    reconcile_soon(ask->reconcile);
    free(ask);
}

/* Nodes share places by hash: two of one place wait for each other. */
static int may_ask(struct nxl_reconcile *reconcile, const char *node, uint64_t now_ns)
{
    uint32_t hash = 2166136261u;

    for (const char *at = node; *at != '\0'; at++)
        hash = (hash ^ (unsigned char)*at) * 16777619u;
    hash %= NXL_COUNT_OF(reconcile->asked_ns);
    if (reconcile->asked_ns[hash] != 0 && now_ns - reconcile->asked_ns[hash] < ASK_EVERY_NS)
        return 0;
    reconcile->asked_ns[hash] = now_ns;
    return 1;
}

void unlabelled_pods(struct nxl_reconcile *reconcile, const char *node, const char *const *uids,
                     uint32_t count)
{
    uint64_t now_ns = nxl_now_ns();
    struct unlabelled_ask *ask;
    char query[512];

    if (!reconcile->synced || reconcile->ask_count == ASKS_MAX ||
        strspn(node, "abcdefghijklmnopqrstuvwxyz0123456789.-") != strlen(node))
        return;
    ask = nxl_new0(sizeof(*ask));
    for (uint32_t i = 0; i < count && ask->count < UIDS_MAX; i++)
        if (!nxl_world_knows(reconcile->world, uids[i]) &&
            nxl_copy_text(ask->uids[ask->count], sizeof(ask->uids[0]), uids[i]) == 0)
            ask->count++;
    /* A label put on a second ago is on its way: the next report shows it. */
    if (ask->count == 0 || !may_ask(reconcile, node, now_ns)) {
        free(ask);
        return;
    }
    ask->reconcile = reconcile;
    ask->next = reconcile->asks;
    reconcile->asks = ask;
    reconcile->ask_count++;
    snprintf(query, sizeof(query), "fieldSelector=spec.nodeName%%3D%s&limit=500", node);
    kube_side_call(
        reconcile->kube,
        &(struct nxl_writer_call){.method = "GET", .path = "/api/v1/pods", .query = query}, 0,
        answered, ask);
}

void asks_drop(struct nxl_reconcile *reconcile)
{
    for (struct unlabelled_ask *ask = reconcile->asks; ask != NULL; ask = ask->next)
        ask->reconcile = NULL;
    reconcile->asks = NULL;
}
