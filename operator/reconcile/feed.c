/* feed.c - one object of a watch into the model. A malformed one is counted and refused; what was
 * known of it before stays. */
#include "reconcile/reconcile_internal.h"

static const char *const names[FEED_KINDS] = {"nixlpeers", "pods", "nodes", "namespaces"};

const char *feed_name(enum feed_kind kind)
{
    return names[kind];
}

static enum nxl_code put(struct nxl_reconcile *reconcile, enum feed_kind kind, const json_t *object,
                         uint64_t now_ns, struct nxl_err *err)
{
    union {
        struct nxl_pod pod;
        struct nxl_node node;
        struct nxl_namespace space;
    } got;
    struct nxl_nixlpeer *peer = NULL;
    enum nxl_code code;

    switch (kind) {
    case FEED_POD:
        code = nxl_read_pod(object, &got.pod, err);
        if (code == NXL_OK)
            nxl_world_put_pod(reconcile->world, &got.pod, now_ns);
        return code;
    case FEED_NODE:
        code = nxl_read_node(object, &got.node, err);
        if (code == NXL_OK)
            nxl_world_put_node(reconcile->world, &got.node, now_ns);
        return code;
    case FEED_NAMESPACE:
        code = nxl_read_namespace(object, &got.space, err);
        if (code == NXL_OK)
            nxl_world_put_namespace(reconcile->world, &got.space, now_ns);
        return code;
    default:
        code = nxl_read_nixlpeer(object, &peer, err);
        if (code == NXL_OK)
            nxl_world_put_nixlpeer(reconcile->world, peer, now_ns);
        return code;
    }
}

static void drop(struct nxl_reconcile *reconcile, enum feed_kind kind, const struct feed_key *key,
                 uint64_t now_ns)
{
    switch (kind) {
    case FEED_POD:
        nxl_world_drop_pod(reconcile->world, key->ns, key->name, key->uid, now_ns);
        break;
    case FEED_NODE:
        nxl_world_drop_node(reconcile->world, key->name, key->uid, now_ns);
        break;
    case FEED_NAMESPACE:
        nxl_world_drop_namespace(reconcile->world, key->name, now_ns);
        break;
    default:
        nxl_world_drop_nixlpeer(reconcile->world, key->ns, key->name, key->uid, now_ns);
    }
}

void feed_object(struct nxl_reconcile *reconcile, enum feed_kind kind, enum feed_change change,
                 const struct feed_key *key, const json_t *object)
{
    uint64_t now_ns = nxl_now_ns();
    struct nxl_err err = {0};
    char group[NXL_STREAM_GROUP_MAX + 1];

    nxl_metric_add(reconcile->metrics.objects[kind], 1);
    if (change == FEED_DROP) {
        drop(reconcile, kind, key, now_ns);
    } else if (put(reconcile, kind, object, now_ns, &err) != NXL_OK) {
        nxl_metric_add(reconcile->metrics.refused[kind], 1);
        if (nxl_log_gate_open(&reconcile->gate, 5))
            nxl_warn("reconcile", "event=object_refused kind=%s namespace=%s name=%s error=%s",
                     names[kind], nxl_quote(key->ns), nxl_quote(key->name), nxl_quote(err.text));
        return;
    }
    if (kind == FEED_NIXLPEER && change == FEED_PUT &&
        snprintf(group, sizeof(group), "%s/%s", key->ns, key->name) < (int)sizeof(group))
        nxl_writer_seen(reconcile->writer, group, object);
    reconcile_soon(reconcile);
}

/* Agents are told the oldest of the four: so far all caches are true. */
void feed_version(struct nxl_reconcile *reconcile, enum feed_kind kind, const char *version)
{
    const char *oldest = reconcile->versions[0];

    if (nxl_copy_text(reconcile->versions[kind], sizeof(reconcile->versions[kind]), version) != 0)
        reconcile->versions[kind][0] = '\0';
    for (int i = 1; i < FEED_KINDS; i++)
        if (nxl_stream_version_order(reconcile->versions[i], oldest) < 0)
            oldest = reconcile->versions[i];
    if (oldest[0] != '\0' && reconcile->push != NULL)
        nxl_push_rv(reconcile->push, oldest);
}

void feed_synced(struct nxl_reconcile *reconcile, enum feed_kind kind)
{
    reconcile->synced_kinds[kind] = 1;
    for (int i = 0; i < FEED_KINDS; i++)
        if (!reconcile->synced_kinds[i])
            return;
    if (reconcile->synced)
        return;
    reconcile->synced = 1;
    nxl_world_synced(reconcile->world, nxl_now_ns());
    if (reconcile->push != NULL)
        nxl_push_synced(reconcile->push);
    nxl_info("reconcile", "event=synced");
    reconcile_soon(reconcile);
}
