/* members_internal.h - shared by members.c (the table), members_policy.c (who may) and
 * members_show.c. */
#ifndef NXL_CLUSTER_MEMBERS_INTERNAL_H
#define NXL_CLUSTER_MEMBERS_INTERNAL_H

#include "cluster/members.h"

#include <uthash.h>

struct member { /* one pod; a dead one stays as its own tombstone */
    char uid[NXL_LABEL_MAX + 1];
    char *texts; /* what the pointers lie in */
    const char *container, *group, *pod, *node, *reason, *version, *revision, *topology;
    enum nxl_life life;
    uint8_t suspect;
    uint8_t seen;    /* by source: told since begin */
    uint8_t drained; /* on_drained was said */
    uint64_t drain_ns;
    uint64_t dead_ns;
    uint64_t hash[NXL_MEMBERS_SOURCES]; /* of the record as that source tells it; 0: it does not */
    UT_hash_handle hh;
};

struct group {
    char name[NXL_STREAM_GROUP_MAX + 1];
    char *texts;
    struct nxl_stream_policy policy; /* its rules and texts are owned */
    struct nxl_stream_rule *rules;
    uint8_t seen;
    uint64_t hash[NXL_MEMBERS_SOURCES];
    UT_hash_handle hh;
};

struct tomb { /* a dead container, of a pod that goes on */
    char id[NXL_INCARNATION_MAX + 1];
    uint64_t since_ns;
    UT_hash_handle hh;
};

struct nxl_members {
    char node[NXL_NODE_MAX + 1];
    uint32_t max;
    const struct nxl_members_ops *ops;
    void *arg;
    struct member *table; /* in order of addition */
    struct group *groups;
    struct tomb *tombs; /* oldest first */
    int spoken;
    struct members_source {
        uint64_t digest;
        char rv[NXL_STREAM_VERSION_TEXT_MAX + 1];
        int regressed; /* its versions went back: in this table, order says nothing */
    } sources[NXL_MEMBERS_SOURCES];
    uint64_t refused, observed;
};

struct member *members_find(const struct nxl_members *members, const char *id);
struct group *members_group(const struct nxl_members *members, const char *name);

/* members_groups.c */
void members_group_free(struct nxl_members *members, struct group *group);
/* What a full table of source did not name. */
void members_groups_end(struct nxl_members *members, uint32_t source);
void members_say_policy(struct nxl_members *members, const char *group);

#endif
