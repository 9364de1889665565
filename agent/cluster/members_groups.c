/* members_groups.c - the policies of groups as operators tell them. Of several operators the newer
 * generation counts; that a group is gone counts at once. Called by stream. Loop thread. */
#include "cluster/members_internal.h"

#include "base/assert.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#define GROUPS_MAX 4096u

struct group *members_group(const struct nxl_members *members, const char *name)
{
    struct group *group;

    HASH_FIND_STR(members->groups, name, group);
    return group;
}

static void group_clear(struct group *group)
{
    free(group->texts);
    free(group->rules);
    group->texts = NULL;
    group->rules = NULL;
    group->policy = (struct nxl_stream_policy){.gone = 1};
}

void members_group_free(struct nxl_members *members, struct group *group)
{
    HASH_DEL(members->groups, group);
    group_clear(group);
    free(group);
}

void members_say_policy(struct nxl_members *members, const char *group)
{
    if (members->ops->on_policy != NULL)
        members->ops->on_policy(members->arg, group);
}

static size_t size_of(const char *text)
{
    return text != NULL ? strlen(text) + 1 : 1;
}

static const char *pack(char **at, const char *text)
{
    const char *packed = *at;
    size_t size = size_of(text);

    if (text != NULL)
        memcpy(*at, text, size);
    *at += size;
    return packed;
}

static void group_fill(struct group *group, const struct nxl_stream_policy *from)
{
    size_t size = size_of(from->role);
    char *at;

    group_clear(group);
    for (uint32_t i = 0; i < from->rule_count; i++)
        size += size_of(from->rules[i].from);
    for (uint32_t i = 0; i < from->backend_count; i++)
        size += size_of(from->backends[i].name);
    group->texts = nxl_new0(size);
    group->rules = nxl_new0_array(from->rule_count + 1, sizeof(*group->rules));
    at = group->texts;
    group->policy = *from;
    group->policy.group = group->name;
    group->policy.role = pack(&at, from->role);
    group->policy.rules = group->rules;
    for (uint32_t i = 0; i < from->rule_count; i++) {
        group->rules[i] = from->rules[i];
        group->rules[i].from = pack(&at, from->rules[i].from);
    }
    for (uint32_t i = 0; i < from->backend_count; i++)
        group->policy.backends[i].name = pack(&at, from->backends[i].name);
}

static void group_hash_set(struct nxl_members *members, struct group *group, uint32_t source,
                           uint64_t hash)
{
    members->sources[source].digest ^= group->hash[source] ^ hash;
    group->hash[source] = hash;
}

static int is_held(const struct group *group)
{
    for (unsigned i = 0; i < NXL_MEMBERS_SOURCES; i++) {
        if (group->hash[i] != 0)
            return 1;
    }
    return 0;
}

static void put_gone(struct nxl_members *members, uint32_t source, const char *name)
{
    struct group *group = members_group(members, name);

    if (group == NULL)
        return;
    group_hash_set(members, group, source, 0);
    group_clear(group);
    if (!is_held(group))
        members_group_free(members, group);
    members_say_policy(members, name);
}

enum nxl_code nxl_members_put_policy(struct nxl_members *members, uint32_t source,
                                     const struct nxl_stream_policy *from, struct nxl_err *err)
{
    struct group *group = members_group(members, from->group);
    int older;

    NXL_ASSERT(source < NXL_MEMBERS_SOURCES);
    if (from->gone) {
        put_gone(members, source, from->group);
        return NXL_OK;
    }
    if (group == NULL) {
        if (HASH_COUNT(members->groups) >= GROUPS_MAX)
            return nxl_err_set(err, NXL_LIMIT, 0, "%u groups are known, and no more are kept",
                               GROUPS_MAX);
        group = nxl_new0(sizeof(*group));
        (void)nxl_copy_text(group->name, sizeof(group->name), from->group);
        group_clear(group);
        HASH_ADD_STR(members->groups, name, group);
    }
    group->seen |= (uint8_t)(1u << source);
    group_hash_set(members, group, source, from->hash);
    older = !group->policy.gone && from->generation < group->policy.generation;
    if (older)
        return nxl_err_set(err, NXL_STALE, 0, "policy of %s: a newer generation is known",
                           from->group);
    group_fill(group, from);
    members_say_policy(members, group->name);
    return NXL_OK;
}

void members_groups_end(struct nxl_members *members, uint32_t source)
{
    struct group *group, *next;
    uint8_t bit = (uint8_t)(1u << source);

    HASH_ITER(hh, members->groups, group, next)
    {
        if ((group->seen & bit) != 0 || (group->hash[source] == 0 && is_held(group)))
            continue;
        group_hash_set(members, group, source, 0);
        if (!is_held(group))
            members_group_free(members, group);
    }
}
