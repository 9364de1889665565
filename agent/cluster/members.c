/* members.c - the table of pods as operators tell it: one record a pod, Dead for ever, and for each
 * operator what it was last heard to say, so that its digest can be compared. Called by stream.
 * Loop thread. */
#include "cluster/members_internal.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#define TOMBSTONE_NS (24ull * 3600 * NXL_SEC)
#define TOMBS_MAX 65536u

struct nxl_members *nxl_members_new(const struct nxl_members_options *options)
{
    struct nxl_members *members = nxl_new0(sizeof(*members));

    (void)nxl_copy_text(members->node, sizeof(members->node), options->node);
    members->max = options->max;
    nxl_members_attach(members, options->ops, options->arg);
    return members;
}

void nxl_members_attach(struct nxl_members *members, const struct nxl_members_ops *ops, void *arg)
{
    static const struct nxl_members_ops none = {0};

    members->ops = ops != NULL ? ops : &none;
    members->arg = arg;
}

static void member_free(struct nxl_members *members, struct member *member)
{
    HASH_DEL(members->table, member);
    free(member->texts);
    free(member);
}

static void tomb_free(struct nxl_members *members, struct tomb *tomb)
{
    HASH_DEL(members->tombs, tomb);
    free(tomb);
}

void nxl_members_free(struct nxl_members *members)
{
    struct member *member, *next;
    struct group *group, *next_group;
    struct tomb *tomb, *next_tomb;

    if (members == NULL)
        return;
    HASH_ITER(hh, members->table, member, next)
    {
        member_free(members, member);
    }
    HASH_ITER(hh, members->groups, group, next_group)
    {
        members_group_free(members, group);
    }
    HASH_ITER(hh, members->tombs, tomb, next_tomb)
    {
        tomb_free(members, tomb);
    }
    free(members);
}

struct member *members_find(const struct nxl_members *members, const char *id)
{
    struct member *member;

    HASH_FIND(hh, members->table, id, nxl_stream_uid_size(id), member);
    return member;
}

/* ---- saying ------------------------------------------------------------------------------- */

static void say_life(struct nxl_members *members, const char *prefix, enum nxl_life life,
                     const char *reason)
{
    if (members->ops->on_life != NULL)
        members->ops->on_life(members->arg, prefix, life, reason);
}

static void say_suspect(struct nxl_members *members, const struct member *member,
                        const char *reason)
{
    if (members->ops->on_suspect != NULL)
        members->ops->on_suspect(members->arg, member->uid, member->suspect, reason);
}

/* ---- one record --------------------------------------------------------------------------- */

static const char *or_empty(const char *text)
{
    return text != NULL ? text : "";
}

static const char *pack(char **at, const char *text)
{
    size_t size = strlen(or_empty(text)) + 1;
    const char *packed = *at;

    memcpy(*at, or_empty(text), size);
    *at += size;
    return packed;
}

static void member_fill(struct member *member, const struct nxl_stream_member *from)
{
    const char *slash = strchr(from->id, '/');
    const char *const texts[] = {slash != NULL ? slash + 1 : "",
                                 from->group,
                                 from->pod,
                                 from->node,
                                 from->reason,
                                 from->version,
                                 from->revision,
                                 from->topology};
    const char **const to[] = {&member->container, &member->group,   &member->pod,
                               &member->node,      &member->reason,  &member->version,
                               &member->revision,  &member->topology};
    char *old = member->texts, *at;
    size_t size = 0;

    for (size_t i = 0; i < NXL_COUNT_OF(texts); i++)
        size += strlen(or_empty(texts[i])) + 1;
    member->texts = nxl_new0(size);
    at = member->texts;
    for (size_t i = 0; i < NXL_COUNT_OF(texts); i++)
        *to[i] = pack(&at, texts[i]);
    free(old); /* from may have pointed into it */
}

static void member_hash_set(struct nxl_members *members, struct member *member, uint32_t source,
                            uint64_t hash)
{
    members->sources[source].digest ^= member->hash[source] ^ hash;
    member->hash[source] = hash;
}

static int is_held(const uint64_t *hash)
{
    for (unsigned i = 0; i < NXL_MEMBERS_SOURCES; i++) {
        if (hash[i] != 0)
            return 1;
    }
    return 0;
}

static struct member *member_make(struct nxl_members *members, const char *id)
{
    struct member *member = nxl_new0(sizeof(*member));
    const struct nxl_stream_member nothing = {.id = id};

    memcpy(member->uid, id, nxl_stream_uid_size(id));
    member_fill(member, &nothing);
    HASH_ADD_STR(members->table, uid, member);
    return member;
}

/* A dead entry that nobody holds any more can be forgotten before a live one is refused. */
static int make_room(struct nxl_members *members)
{
    struct member *member, *next;

    if (HASH_COUNT(members->table) < members->max)
        return 1;
    HASH_ITER(hh, members->table, member, next)
    {
        if (member->life == NXL_LIFE_DEAD && !is_held(member->hash)) {
            member_free(members, member);
            return 1;
        }
    }
    return 0;
}

/* ---- death -------------------------------------------------------------------------------- */

static void bury(struct nxl_members *members, struct member *member, const char *reason)
{
    char uid[sizeof(member->uid)];

    if (member->life == NXL_LIFE_DEAD)
        return;
    member->life = NXL_LIFE_DEAD;
    member->suspect = 0;
    member->dead_ns = nxl_now_ns();
    memcpy(uid, member->uid, sizeof(uid));
    say_life(members, uid, NXL_LIFE_DEAD, reason);
}

static struct tomb *tomb_find(const struct nxl_members *members, const char *id)
{
    struct tomb *tomb;

    HASH_FIND_STR(members->tombs, id, tomb);
    return tomb;
}

static void bury_container(struct nxl_members *members, const char *id, const char *reason)
{
    struct tomb *tomb = tomb_find(members, id);

    if (tomb != NULL)
        return;
    if (HASH_COUNT(members->tombs) >= TOMBS_MAX)
        tomb_free(members, members->tombs);
    tomb = nxl_new0(sizeof(*tomb));
    (void)nxl_copy_text(tomb->id, sizeof(tomb->id), id);
    tomb->since_ns = nxl_now_ns();
    HASH_ADD_STR(members->tombs, id, tomb);
    say_life(members, tomb->id, NXL_LIFE_DEAD, reason);
}

static enum nxl_code put_dead(struct nxl_members *members, uint32_t source,
                              const struct nxl_stream_member *from, struct nxl_err *err)
{
    struct member *member = members_find(members, from->id);
    const char *reason = or_empty(from->reason)[0] != '\0' ? from->reason : "dead";

    if (strchr(from->id, '/') != NULL) {
        bury_container(members, from->id, reason);
        return NXL_OK;
    }
    if (member == NULL) {
        if (!make_room(members))
            return nxl_err_set(err, NXL_LIMIT, 0, "stream.members_max (%u) is reached",
                               members->max);
        member = member_make(members, from->id);
    }
    member_hash_set(members, member, source, 0);
    bury(members, member, reason);
    return NXL_OK;
}

static enum nxl_code put_forget(struct nxl_members *members, uint32_t source,
                                const struct nxl_stream_member *from)
{
    struct member *member = members_find(members, from->id);
    char group[NXL_STREAM_GROUP_MAX + 1];

    if (member == NULL)
        return NXL_OK;
    member_hash_set(members, member, source, 0);
    if (is_held(member->hash) || member->life == NXL_LIFE_DEAD)
        return NXL_OK;
    (void)nxl_copy_text(group, sizeof(group), member->group);
    member_free(members, member);
    members_say_policy(members, group);
    return NXL_OK;
}

/* ---- life --------------------------------------------------------------------------------- */

static void drain(struct nxl_members *members, struct member *member)
{
    const struct group *group = members_group(members, member->group);
    uint32_t seconds = group != NULL ? group->policy.drain_s : 0;

    member->life = NXL_LIFE_DRAINING;
    if (group != NULL && group->policy.drain_purges)
        seconds = 0;
    member->drain_ns = nxl_now_ns() + seconds * NXL_SEC;
}

/* The table holds the new record; now what it means is said. */
static void update_effects(struct nxl_members *members, struct member *member,
                           const struct nxl_stream_member *from, int fresh)
{
    int drains = from->life == NXL_LIFE_DRAINING && member->life == NXL_LIFE_LIVE;
    int suspect = member->suspect != from->suspect;
    char uid[sizeof(member->uid)];

    memcpy(uid, member->uid, sizeof(uid));
    member->suspect = from->suspect;
    if (drains)
        drain(members, member);
    if (suspect && (!fresh || from->suspect))
        say_suspect(members, member, or_empty(from->reason));
    if (drains)
        say_life(members, uid, NXL_LIFE_DRAINING, or_empty(from->reason));
}

static void update(struct nxl_members *members, struct member *member,
                   const struct nxl_stream_member *from, int fresh)
{
    const char *slash = strchr(from->id, '/');
    char dead[NXL_INCARNATION_MAX + 1] = "";
    char group[NXL_STREAM_GROUP_MAX + 1] = "";
    int moved = !fresh && (strcmp(member->group, or_empty(from->group)) != 0 ||
                           strcmp(member->revision, or_empty(from->revision)) != 0 ||
                           strcmp(member->topology, or_empty(from->topology)) != 0);

    if (moved)
        (void)nxl_copy_text(group, sizeof(group), member->group);
    if (member->container[0] != '\0' && slash != NULL &&
        strcmp(slash + 1, member->container) != 0 &&
        strlen(member->uid) + strlen(member->container) + 2 <= sizeof(dead)) {
        strcpy(dead, member->uid);
        strcat(dead, "/");
        strcat(dead, member->container);
    }
    member_fill(member, from);
    update_effects(members, member, from, fresh);
    if (dead[0] != '\0')
        bury_container(members, dead, "container restarted");
    if (moved) {
        members_say_policy(members, group);
        members_say_policy(members, from->group);
    }
}

enum nxl_code nxl_members_put(struct nxl_members *members, uint32_t source,
                              const struct nxl_stream_member *from, struct nxl_err *err)
{
    struct member *member;
    uint64_t hash;

    NXL_ASSERT(source < NXL_MEMBERS_SOURCES);
    if (nxl_stream_uid_size(from->id) > NXL_LABEL_MAX)
        return nxl_err_set(err, NXL_MISMATCH, 0, "a pod UID has more than %d bytes", NXL_LABEL_MAX);
    if (from->life == NXL_LIFE_DEAD)
        return put_dead(members, source, from, err);
    if (from->forget)
        return put_forget(members, source, from);
    hash = nxl_stream_member_hash(from);
    member = members_find(members, from->id);
    if (member == NULL) {
        if (!make_room(members))
            return nxl_err_set(err, NXL_LIMIT, 0, "stream.members_max (%u) is reached",
                               members->max);
        member = member_make(members, from->id);
        member->seen |= (uint8_t)(1u << source);
        member_hash_set(members, member, source, hash);
        update(members, member, from, 1);
        return NXL_OK;
    }
    member->seen |= (uint8_t)(1u << source);
    member_hash_set(members, member, source, hash);
    if (member->life == NXL_LIFE_DEAD || tomb_find(members, from->id) != NULL)
        return nxl_err_set(err, NXL_STALE, 0, "%s is dead", from->id);
    if (!members->sources[source].regressed &&
        nxl_stream_version_order(or_empty(from->version), member->version) < 0)
        return nxl_err_set(err, NXL_STALE, 0, "%s: a newer record is known", from->id);
    update(members, member, from, 0);
    return NXL_OK;
}

/* ---- whole tables ------------------------------------------------------------------------- */

void nxl_members_begin(struct nxl_members *members, uint32_t source, const char *rv)
{
    uint8_t keep = (uint8_t) ~(1u << source);
    struct member *member, *next;
    struct group *group, *next_group;

    NXL_ASSERT(source < NXL_MEMBERS_SOURCES);
    members->sources[source].regressed =
        nxl_stream_version_order(rv, members->sources[source].rv) < 0;
    (void)nxl_copy_text(members->sources[source].rv, sizeof(members->sources[source].rv), rv);
    HASH_ITER(hh, members->table, member, next)
    {
        member->seen &= keep;
    }
    HASH_ITER(hh, members->groups, group, next_group)
    {
        group->seen &= keep;
    }
}

/* Not in the source's whole table. Newer than the table, it may simply not be in it yet. */
static void missed(struct nxl_members *members, struct member *member, uint32_t source)
{
    const struct group *group = members_group(members, member->group);
    const char *rv = members->sources[source].rv;

    member_hash_set(members, member, source, 0);
    if (member->life == NXL_LIFE_DEAD || nxl_stream_version_order(member->version, rv) > 0)
        return;
    if (group != NULL && group->hash[source] != 0)
        bury(members, member, "gone from the operator's table");
    else if (!is_held(member->hash))
        member_free(members,
                    member); /* its group does not concern us any more: nothing is allowed */
}

void nxl_members_end(struct nxl_members *members, uint32_t source)
{
    struct member *member, *next;
    uint8_t bit = (uint8_t)(1u << source);

    NXL_ASSERT(source < NXL_MEMBERS_SOURCES);
    members->spoken = 1;
    members->sources[source].regressed = 0;
    members_groups_end(members, source);
    HASH_ITER(hh, members->table, member, next)
    {
        if ((member->seen & bit) == 0 && (member->hash[source] != 0 || !is_held(member->hash)))
            missed(members, member, source);
    }
    members_say_policy(members, NULL);
}

void nxl_members_leave(struct nxl_members *members, uint32_t source)
{
    struct member *member, *next;
    struct group *group, *next_group;

    NXL_ASSERT(source < NXL_MEMBERS_SOURCES);
    HASH_ITER(hh, members->table, member, next)
    {
        member->hash[source] = 0;
    }
    HASH_ITER(hh, members->groups, group, next_group)
    {
        group->hash[source] = 0;
    }
    members->sources[source].digest = 0;
}

uint64_t nxl_members_digest(const struct nxl_members *members, uint32_t source)
{
    NXL_ASSERT(source < NXL_MEMBERS_SOURCES);
    return members->sources[source].digest;
}

/* ---- time --------------------------------------------------------------------------------- */

void nxl_members_tick(struct nxl_members *members)
{
    uint64_t now = nxl_now_ns();
    struct member *member, *next;

    HASH_ITER(hh, members->table, member, next)
    {
        if (member->life == NXL_LIFE_DEAD && !is_held(member->hash) &&
            now - member->dead_ns >= TOMBSTONE_NS) {
            member_free(members, member);
        } else if (member->life == NXL_LIFE_DRAINING && !member->drained &&
                   now >= member->drain_ns) {
            char uid[sizeof(member->uid)];

            member->drained = 1;
            memcpy(uid, member->uid, sizeof(uid));
            if (members->ops->on_drained != NULL)
                members->ops->on_drained(members->arg, uid);
        }
    }
    while (members->tombs != NULL && now - members->tombs->since_ns >= TOMBSTONE_NS)
        tomb_free(members, members->tombs);
}

int nxl_members_spoken(const struct nxl_members *members)
{
    return members->spoken;
}
