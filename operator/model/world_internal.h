/* world_internal.h - the world's things and how they hang together; inside model/world*.c only. */
#ifndef NXL_MODEL_WORLD_INTERNAL_H
#define NXL_MODEL_WORLD_INTERNAL_H

#include "model/room.h"
#include "model/selector.h"
#include "model/text.h"
#include "model/world.h"

#include <uthash.h>

#define SEATS_MAX 8u        /* groups that one pod may be in */
#define SESSIONS_MAX 64u    /* of one pod, known at a time */
#define TOMBS_MAX 65536u    /* UIDs remembered as dead after their objects are gone */
#define NODES_SILENT_MIN 2u /* one silent node is no mass */
#define SLEPT_NS 5000000000ull
#define SECOND_NS 1000000000ull
#define VERSION_MAX 32u

enum seat_class {
    SEAT_NONE = 0,
    SEAT_LIVE,
    SEAT_DRAINING,
    SEAT_SUSPECT,
    SEAT_PENDING,
    SEAT_CLASSES
};

struct container {
    const char *name; /* shared text */
    char *id;         /* "" : not started yet */
    uint32_t restarts;
    uint8_t ended;
};

struct session {
    struct session *next;
    char id[]; /* the whole prefix */
};

struct pod {
    UT_hash_handle by_uid;
    UT_hash_handle by_name; /* in space->pods */
    struct space *space;
    struct node *node;       /* NULL: not scheduled */
    struct pod *prev, *next; /* on the node */
    struct pod *drain_prev, *drain_next;
    struct label_set labels;
    struct container *containers;
    struct seat *seats; /* in the order of group keys */
    struct session *sessions;
    uint64_t told_hash, drain_ns; /* drain_ns: since when; 0: not draining */
    const char *reason;           /* static or shared text: of life */
    char version[VERSION_MAX];
    uint8_t container_count, session_count, phase, life;
    uint8_t told; /* agents have a record of it */
    char *uid;    /* behind name */
    char name[];
};

struct seat {          /* a pod in a group */
    struct seat *next; /* of the pod */
    struct pod *pod;
    struct group *group;
    uint32_t index;       /* in group->members or group->barred */
    uint8_t barred, kind; /* kind: enum seat_class, as counted */
};

struct stay { /* pods of one group on one node */
    struct group *group;
    uint32_t count;
    uint8_t lapsed; /* heartbeat too old for this group */
    uint8_t purged; /* and onLapse: Purge was done for this silence */
};

struct node {
    UT_hash_handle hh;
    struct pod *pods;
    struct stay *stays;
    struct label_set labels;
    uint64_t heard_ns; /* last heartbeat; 0: never had one */
    uint32_t stay_count, stay_room;
    uint8_t known; /* the object exists */
    uint8_t ready, out_of_service, silent;
    char uid[NXL_UID_MAX + 1];
    char name[];
};

struct space {
    UT_hash_handle hh;
    struct pod *pods;     /* hash by name */
    struct group *groups; /* in the order of their keys */
    struct label_set labels;
    uint8_t known;
    char name[];
};

struct edge {
    struct group *from;
    uint8_t ops, memory;
};

struct group {
    UT_hash_handle hh;  /* by key */
    struct group *next; /* in space->groups */
    struct space *space;
    struct nxl_nixlpeer *peer;
    struct seat **members, **barred;
    uint32_t member_count, member_room, barred_count, barred_room;
    uint32_t counts[SEAT_CLASSES];
    struct edge *edges;
    uint32_t edge_count;
    int64_t revision;
    uint8_t frozen, programmed, cut;
    uint32_t lapsed, tracked;
    uint64_t dead_ns;
    uint32_t dead_count;
    const char *dead_reason; /* shared text */
    const char *refusal;     /* static */
    char field[256];
    char dangling[192]; /* the first rule that names nobody, "" : none */
    char key[];
};

struct tomb {
    UT_hash_handle hh;
    uint64_t hash;
};

struct nxl_world {
    struct nxl_world_ops ops;
    void *arg;
    char **backends;
    uint32_t backend_count;
    struct texts *texts;
    struct pod *pods; /* by UID */
    struct pod *draining;
    struct node *nodes;
    struct space *spaces;
    struct group *groups;
    struct tomb *tombs;
    uint64_t tick_ns, store_ns; /* store_ns: since when it answers, or was wiped */
    uint8_t synced, store_up, store_fresh;
    uint8_t doubt; /* store lost or its state is new */
};

/* world.c */
struct space *world_space(struct nxl_world *world, const char *name); /* finds or makes */
struct node *world_node(struct nxl_world *world, const char *name);
struct group *world_find_group(struct nxl_world *world, const char *key);
void world_spare_space(struct nxl_world *world, struct space *space); /* frees an unused one */
void world_spare_node(struct nxl_world *world, struct node *node);
int world_buried(struct nxl_world *world, const char *uid);
void world_bury(struct nxl_world *world, const char *uid);
int version_order(const char *a, const char *b); /* as numbers of any length */

/* world_pod.c */
void pod_die(struct nxl_world *world, struct pod *pod, const char *reason, uint64_t now_ns);
void pod_part_dies(struct nxl_world *world, struct pod *pod, const char *id, const char *reason,
                   uint64_t now_ns);
void pod_forget_sessions(struct pod *pod, const char *prefix); /* NULL: all */
void pod_free(struct nxl_world *world, struct pod *pod);

/* world_member.c */
void pod_match(struct nxl_world *world, struct pod *pod); /* which groups it is in */
void pod_tell(struct nxl_world *world, struct pod *pod);  /* agents and counts */
void pod_leave(struct nxl_world *world, struct pod *pod); /* all its groups, untold */
void pod_move(struct nxl_world *world, struct pod *pod, struct node *node);
int pod_suspect(const struct nxl_world *world, const struct pod *pod, const struct group *group,
                const char **ret_reason);
struct seat *pod_main_seat(const struct pod *pod); /* whose policy counts; NULL: none */

/* world_group.c */
void group_note(struct nxl_world *world, struct group *group, enum nxl_world_note note,
                const char *fmt, ...) NXL_PRINTF(4, 5);
void group_dead(struct nxl_world *world, struct group *group, const struct pod *pod,
                const char *reason, uint64_t now_ns);
void group_changed(struct nxl_world *world, struct group *group);
void group_judge(struct nxl_world *world, struct group *group); /* Accepted or not */

/* world_policy.c */
void world_resolve(struct nxl_world *world); /* who may act on whom; tells what differs */
void group_tell_policy(struct nxl_world *world, struct group *group);
int group_lets_in(const struct group *group, const struct group *from);

/* world_judge.c */
int node_lapsed(const struct nxl_world *world, const struct node *node, const struct group *group,
                uint64_t now_ns);

#endif
