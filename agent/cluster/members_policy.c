/* members_policy.c - who may do what with whose memory: rules, kinds, revisions, topology, paths
 * and life of both ends. Asked by xfer for every query and plan. Loop thread. */
#include "cluster/members_internal.h"

#include "base/bytes.h"
#include "base/log.h"
#include "base/mem.h"

#include <stdio.h>
#include <string.h>

#define ALL_KINDS ((1u << NXL_MEM_KINDS) - 1u)
#define ALL_OPS (NXL_STREAM_READ | NXL_STREAM_WRITE | NXL_STREAM_NOTIFY)

struct question {
    const struct member *from, *to;
    const struct group *from_group, *to_group;
    unsigned ops, kinds;
    enum nxl_path_class path;
    int observed; /* Observe let it through */
};

static const char *op_name(unsigned op)
{
    return op == NXL_STREAM_READ ? "Read" : op == NXL_STREAM_WRITE ? "Write" : "Notify";
}

static const char *kind_name(unsigned kinds)
{
    static const char *const names[NXL_MEM_KINDS] = {"DRAM", "VRAM", "Block", "Object", "File"};

    for (unsigned i = 0; i < NXL_MEM_KINDS; i++) {
        if (kinds == 1u << i)
            return names[i];
    }
    return "any";
}

static int rule_fits(const struct question *q, unsigned op)
{
    const struct nxl_stream_policy *policy = &q->to_group->policy;
    unsigned exposed = policy->memory != 0 ? policy->memory : ALL_KINDS;

    for (uint32_t i = 0; i < policy->rule_count; i++) {
        const struct nxl_stream_rule *rule = &policy->rules[i];
        unsigned kinds = (rule->memory != 0 ? rule->memory : ALL_KINDS) & exposed;

        /* Who may only notify touches no memory. */
        if ((rule->ops & op) != 0 && (op == NXL_STREAM_NOTIFY || (kinds & q->kinds) != 0) &&
            strcmp(rule->from, q->from->group) == 0)
            return 1;
    }
    return 0;
}

static enum nxl_code check_rules(const struct question *q, struct nxl_err *err)
{
    int any = 0;

    for (unsigned op = 1; op <= NXL_STREAM_NOTIFY; op <<= 1) {
        int fits = (q->ops == 0 || (q->ops & op) != 0) && rule_fits(q, op);

        any |= fits;
        if (!fits && (q->ops & op) != 0)
            return nxl_err_set(err, NXL_NOT_ALLOWED, 0,
                               "NixlPeer %s has no rule that lets %s do %s on %s memory",
                               q->to->group, q->from->group, op_name(op), kind_name(q->kinds));
    }
    if (!any)
        return nxl_err_set(err, NXL_NOT_ALLOWED, 0, "NixlPeer %s has no rule for %s", q->to->group,
                           q->from->group);
    return NXL_OK;
}

static enum nxl_code check_pairing(const struct question *q, struct nxl_err *err)
{
    const struct nxl_stream_policy *to = &q->to_group->policy;
    const struct nxl_stream_policy *from = q->from_group != NULL ? &q->from_group->policy : to;

    if ((to->revision == NXL_STREAM_STRICT || from->revision == NXL_STREAM_STRICT) &&
        strcmp(q->from->revision, q->to->revision) != 0)
        return nxl_err_set(err, NXL_NOT_ALLOWED, 0,
                           "compatibility is Strict: revision %s of %s may not meet %s of %s",
                           nxl_quote(q->from->revision), q->from->pod, nxl_quote(q->to->revision),
                           q->to->pod);
    if ((to->topology == NXL_STREAM_STRICT || from->topology == NXL_STREAM_STRICT) &&
        strcmp(q->from->topology, q->to->topology) != 0)
        return nxl_err_set(
            err, NXL_NOT_ALLOWED, 0, "topology is Required: %s of %s is not %s of %s",
            nxl_quote(q->from->topology), q->from->pod, nxl_quote(q->to->topology), q->to->pod);
    return NXL_OK;
}

static enum nxl_code check_path(const struct question *q, struct nxl_err *err)
{
    static const struct {
        uint32_t bit;
        const char *name;
    } paths[] = {
        [NXL_PATH_TCP] = {NXL_STREAM_PATH_TCP, "TCP"},
        [NXL_PATH_STAGED] = {NXL_STREAM_PATH_STAGED, "Staged"},
        [NXL_PATH_RDMA] = {NXL_STREAM_PATH_RDMA, "RDMA"},
        [NXL_PATH_SHARED] = {NXL_STREAM_PATH_SHARED, "SharedMemory"},
        [NXL_PATH_ONE_COPY] = {NXL_STREAM_PATH_SHARED, "SharedMemory"},
    };
    const struct group *ends[] = {q->to_group, q->from_group};

    if (q->path == NXL_PATH_NONE || (size_t)q->path >= NXL_COUNT_OF(paths))
        return NXL_OK;
    for (size_t i = 0; i < NXL_COUNT_OF(ends); i++) {
        if (ends[i] != NULL && ends[i]->policy.paths != 0 &&
            (ends[i]->policy.paths & paths[q->path].bit) == 0)
            return nxl_err_set(err, NXL_PATH_REFUSED, 0,
                               "allowedPaths of NixlPeer %s does not have %s", ends[i]->name,
                               paths[q->path].name);
    }
    return NXL_OK;
}

static enum nxl_code check_life(const struct member *member, const char *id, int finishing,
                                struct nxl_err *err)
{
    if (member == NULL)
        return nxl_err_set(err, NXL_NOT_ALLOWED, 0,
                           "pod %.*s belongs to no NixlPeer that an operator told this agent of",
                           (int)nxl_stream_uid_size(id), id);
    if (member->life == NXL_LIFE_DEAD)
        return nxl_err_set(err, NXL_STALE, 0, "pod %s is dead", member->uid);
    if (member->life == NXL_LIFE_DRAINING && !finishing)
        return nxl_err_set(err, NXL_NOT_ALLOWED, 0,
                           "pod %s (%s) is draining and takes no new transfers", member->pod,
                           member->uid);
    return NXL_OK;
}

static enum nxl_code check_policy(struct nxl_members *members, struct question *q,
                                  struct nxl_err *err)
{
    enum nxl_code code;

    q->to_group = members_group(members, q->to->group);
    q->from_group = members_group(members, q->from->group);
    if (q->to_group == NULL || q->to_group->policy.gone)
        return nxl_err_set(err, NXL_NOT_ALLOWED, 0,
                           "NixlPeer %s is gone, so nothing of it is allowed", q->to->group);
    code = check_rules(q, err);
    if (code == NXL_OK)
        code = check_pairing(q, err);
    if (code == NXL_OK)
        code = check_path(q, err);
    if (code == NXL_OK || q->to_group->policy.mode != NXL_STREAM_OBSERVE)
        return code;
    q->observed = 1; /* reported, not refused */
    return NXL_OK;
}

static int same_pod(const char *from, const char *to)
{
    size_t size = nxl_stream_uid_size(from);

    return size > 0 && size == nxl_stream_uid_size(to) && memcmp(from, to, size) == 0;
}

static enum nxl_code check(struct nxl_members *members, const char *from, const char *to,
                           unsigned ops, unsigned kind, enum nxl_path_class path, int finishing,
                           int *ret_observed, struct nxl_err *err)
{
    struct question q = {.ops = ops & ALL_OPS, .path = path};
    enum nxl_code code;

    q.kinds = kind < NXL_MEM_KINDS ? 1u << kind : ALL_KINDS;
    if (same_pod(from, to))
        return NXL_OK;
    if (!members->spoken)
        return nxl_err_set(err, NXL_AGAIN, 0, "no operator has told this agent its policy yet");
    q.from = members_find(members, from);
    q.to = members_find(members, to);
    code = check_life(q.to, to, finishing, err);
    if (code == NXL_OK)
        code = check_life(q.from, from, finishing, err);
    if (code == NXL_OK)
        code = check_policy(members, &q, err);
    if (ret_observed != NULL)
        *ret_observed = q.observed;
    return code;
}

enum nxl_code nxl_members_allows(struct nxl_members *members, const char *from, const char *to,
                                 unsigned ops, unsigned kind, enum nxl_path_class path,
                                 struct nxl_err *err)
{
    int observed = 0;
    enum nxl_code code = check(members, from, to, ops, kind, path, 0, &observed, err);

    members->observed += observed;
    if (code != NXL_OK)
        members->refused++;
    return code;
}

enum nxl_code nxl_members_may_finish(struct nxl_members *members, const char *from, const char *to,
                                     unsigned ops, unsigned kind, struct nxl_err *err)
{
    return check(members, from, to, ops, kind, NXL_PATH_NONE, 1, NULL, err);
}

enum nxl_code nxl_members_kind_allowed(struct nxl_members *members, const char *from,
                                       const char *to, unsigned kind, struct nxl_err *err)
{
    return check(members, from, to, NXL_STREAM_READ, kind, NXL_PATH_NONE, 0, NULL, err) == NXL_OK
               ? NXL_OK
               : check(members, from, to, NXL_STREAM_WRITE, kind, NXL_PATH_NONE, 0, NULL, err);
}

static unsigned kinds_of(struct nxl_members *members, const char *from, const char *to)
{
    unsigned kinds = 0;
    struct nxl_err err;

    for (unsigned kind = 0; kind < NXL_MEM_KINDS; kind++) {
        if (nxl_members_may_finish(members, from, to, NXL_STREAM_READ, kind, &err) == NXL_OK ||
            nxl_members_may_finish(members, from, to, NXL_STREAM_WRITE, kind, &err) == NXL_OK)
            kinds |= 1u << kind;
    }
    return kinds;
}

unsigned nxl_members_node_kinds(struct nxl_members *members, const char *node, const char *to)
{
    struct member *member, *next;
    unsigned kinds = 0;

    HASH_ITER(hh, members->table, member, next)
    {
        if (member->life != NXL_LIFE_DEAD && strcmp(member->node, node) == 0)
            kinds |= kinds_of(members, member->uid, to);
    }
    return kinds;
}

int nxl_members_near(const struct nxl_members *members, const char *from, const char *to)
{
    const struct member *one = members_find(members, from), *other = members_find(members, to);

    return one != NULL && other != NULL && strcmp(one->topology, other->topology) == 0 &&
           strcmp(one->revision, other->revision) == 0;
}

/* ---- for people --------------------------------------------------------------------------- */

int nxl_members_find(const struct nxl_members *members, const char *uid,
                     struct nxl_member_view *ret)
{
    const struct member *member = members_find(members, uid);

    if (member == NULL)
        return 0;
    *ret = (struct nxl_member_view){.uid = member->uid,
                                    .container = member->container,
                                    .group = member->group,
                                    .pod = member->pod,
                                    .node = member->node,
                                    .reason = member->reason,
                                    .revision = member->revision,
                                    .topology = member->topology,
                                    .life = member->life,
                                    .suspect = member->suspect};
    return 1;
}

void nxl_members_counts(const struct nxl_members *members, struct nxl_members_counts *ret)
{
    const struct member *member, *next;

    memset(ret, 0, sizeof(*ret));
    HASH_ITER(hh, members->table, member, next)
    {
        ret->members += member->life != NXL_LIFE_DEAD;
        ret->live += member->life == NXL_LIFE_LIVE;
        ret->draining += member->life == NXL_LIFE_DRAINING;
        ret->suspect += member->suspect;
        ret->tombstones += member->life == NXL_LIFE_DEAD;
    }
    ret->groups = HASH_COUNT(members->groups);
    ret->tombstones += HASH_COUNT(members->tombs);
    ret->refused = members->refused;
    ret->observed = members->observed;
}

/* Texts of Kubernetes names need no escape; the others are shown as quoted in the log. */
void nxl_members_describe(const struct nxl_members *members, struct nxl_bytes *to)
{
    static const char *const lives[] = {"live", "draining", "dead"};
    const struct member *member, *next;
    const char *comma = "";

    nxl_bytes_printf(to, "[");
    HASH_ITER(hh, members->table, member, next)
    {
        nxl_bytes_printf(to,
                         "%s{\"uid\":\"%s\",\"container\":\"%s\",\"group\":\"%s\",\"pod\":\"%s\","
                         "\"node\":\"%s\",\"life\":\"%s\",\"suspect\":%s}",
                         comma, member->uid, member->container, member->group, member->pod,
                         member->node, lives[member->life], member->suspect ? "true" : "false");
        comma = ",";
    }
    nxl_bytes_printf(to, "]");
}
