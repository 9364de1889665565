/* tell.c - changes of the model, as records and policies for agents and as work for the writer. */
#include "reconcile/reconcile_internal.h"

static void on_member(void *arg, const struct nxl_world_member *member)
{
    struct nxl_reconcile *reconcile = arg;

    if (reconcile->push == NULL)
        return;
    nxl_push_member(reconcile->push, &(struct nxl_stream_member){.id = member->id,
                                                                 .group = member->group,
                                                                 .pod = member->pod,
                                                                 .node = member->node,
                                                                 .reason = member->reason,
                                                                 .version = member->version,
                                                                 .revision = member->revision,
                                                                 .topology = member->topology,
                                                                 .life = member->life,
                                                                 .suspect = member->suspect});
}

static void on_forget(void *arg, const char *uid)
{
    struct nxl_reconcile *reconcile = arg;

    if (reconcile->push != NULL)
        nxl_push_forget(reconcile->push, uid);
}

_Static_assert(NXL_STREAM_PATH_SHARED == NXL_WAY_SHARED &&
                   NXL_STREAM_PATH_STORAGE == NXL_WAY_STORAGE,
               "paths have the same bits on the stream");
_Static_assert(NXL_STREAM_READ == NXL_MAY_READ && NXL_STREAM_NOTIFY == NXL_MAY_NOTIFY,
               "operations have the same bits on the stream");
_Static_assert((int)NXL_STREAM_STRICT == (int)NXL_PAIR_STRICT &&
                   (int)NXL_STREAM_PAUSED == (int)NXL_MODE_PAUSED,
               "pairings and modes have the same numbers on the stream");

static void on_policy(void *arg, const struct nxl_world_policy *policy)
{
    struct nxl_reconcile *reconcile = arg;
    const struct nxl_nixlpeer *peer = policy->peer;
    struct nxl_stream_rule rules[NXL_RULE_FROM_MAX];
    struct nxl_err err = {0};
    uint64_t seq;
    struct nxl_stream_policy out = {
        .group = policy->group,
        .generation = (uint64_t)peer->generation,
        .role = nxl_role_name(peer->spec.role),
        .mode = peer->spec.mode,
        .memory = peer->spec.memory,
        .backend_count = policy->backend_count,
        .paths = peer->spec.ways,
        .rules = rules,
        .rule_count = policy->rule_count,
        .heartbeat_s = peer->spec.heartbeat_s,
        .lease_s = peer->spec.lease_s,
        .purge_s = peer->spec.purge_s,
        .loss_after_s = peer->spec.loss_after_s,
        .drain_s = peer->spec.drain_s,
        .lapse_purges = peer->spec.lapse_purges,
        .loss_quarantines = peer->spec.loss_quarantines,
        .drain_purges = peer->spec.drain_purges,
        .revision = peer->spec.revision_pairing,
        .topology = peer->spec.topology_pairing,
        .inflight_max = peer->spec.inflight_max,
        .registered_max = peer->spec.registered_max,
    };

    if (reconcile->push == NULL)
        return;
    memcpy(out.memory_max, peer->spec.memory_max, sizeof(out.memory_max));
    for (uint32_t i = 0; i < policy->backend_count; i++) {
        out.backends[i].name = policy->backends[i].name;
        out.backends[i].required = policy->backends[i].required;
    }
    for (uint32_t i = 0; i < policy->rule_count; i++)
        rules[i] = (struct nxl_stream_rule){.from = policy->rules[i].from,
                                            .ops = policy->rules[i].ops,
                                            .memory = policy->rules[i].memory};
    if (nxl_push_policy(reconcile->push, &out, &seq, &err) == NXL_OK)
        return;
    /* The old one would go on: nobody is let in by what could not be told. */
    nxl_warn("reconcile", "event=policy_too_long group=%s error=%s", nxl_quote(policy->group),
             nxl_quote(err.text));
    nxl_push_policy_gone(reconcile->push, policy->group);
}

static void on_policy_gone(void *arg, const char *group)
{
    struct nxl_reconcile *reconcile = arg;

    if (reconcile->push != NULL)
        nxl_push_policy_gone(reconcile->push, group);
}

static void on_interest(void *arg, const char *node, const char *group)
{
    struct nxl_reconcile *reconcile = arg;

    if (reconcile->push != NULL)
        nxl_push_interest(reconcile->push, node, group);
}

static void on_group(void *arg, const char *group)
{
    struct nxl_reconcile *reconcile = arg;

    nxl_writer_group(reconcile->writer, group);
    reconcile_soon(reconcile);
}

static void on_slice(void *arg, const char *group, uint32_t index)
{
    struct nxl_reconcile *reconcile = arg;

    nxl_writer_slice(reconcile->writer, group, index);
}

static void on_note(void *arg, const char *group, enum nxl_world_note note, const char *text)
{
    static const struct {
        const char *reason;
        unsigned flags;
    } rows[NXL_NOTES] = {
        [NXL_NOTE_OVERLAP] = {"SelectorOverlap", NXL_EVENT_WARNING},
        [NXL_NOTE_UNKNOWN_BACKEND] = {"UnknownBackend", NXL_EVENT_WARNING},
        [NXL_NOTE_PEER_NOT_FOUND] = {"PeerNotFound", NXL_EVENT_WARNING},
        [NXL_NOTE_INVALIDATED] = {"Invalidated", NXL_EVENT_MERGE},
        [NXL_NOTE_FROZEN] = {"MassLapseFrozen", NXL_EVENT_WARNING | NXL_EVENT_MERGE},
        [NXL_NOTE_THAWED] = {"MassLapseThawed", NXL_EVENT_MERGE},
        [NXL_NOTE_STORE_LOST] = {"RedisUnavailable", NXL_EVENT_WARNING},
        [NXL_NOTE_RULES_CUT] = {"TooManyPeers", NXL_EVENT_WARNING},
        [NXL_NOTE_PURGED] = {"SessionsPurged", NXL_EVENT_WARNING | NXL_EVENT_MERGE},
    };
    struct nxl_reconcile *reconcile = arg;

    nxl_debug("reconcile", "event=note group=%s reason=%s text=%s", nxl_quote(group),
              rows[note].reason, nxl_quote(text));
    nxl_writer_note(reconcile->writer, group, rows[note].reason, rows[note].flags, text);
}

const struct nxl_world_ops tell_ops = {
    .on_member = on_member,
    .on_forget = on_forget,
    .on_policy = on_policy,
    .on_policy_gone = on_policy_gone,
    .on_interest = on_interest,
    .on_group = on_group,
    .on_slice = on_slice,
    .on_note = on_note,
};
