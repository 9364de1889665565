/* world.h - what is true in the cluster, and what follows from it: who is a member of which group,
 * alive or not, under which policy, and which nodes must know. Facts go in, changes come out
 * through ops, from inside the call that caused them. Pure: no I/O, time is an argument
 * (monotonic). One thread.
 *
 * A pod's change costs the groups of its namespace, a group's change the pods of its namespace, a
 * node's change its own pods. Everything about death is said of a UID or a prefix below it; a UID
 * once dead stays dead whatever a late or stale event says. */
#ifndef NXL_MODEL_WORLD_H
#define NXL_MODEL_WORLD_H

#include "model/object.h"

#define NXL_SLICE_MEMBERS 100u

struct nxl_world;

/* What agents are to know of one pod. Lent for the call. The key is the UID that id begins with.
 * DEAD of "uid/container" or "uid/container/session" ends only that; the pod goes on. */
struct nxl_world_member {
    const char *id, *group, *pod, *node, *reason, *version, *revision, *topology;
    uint8_t life; /* enum nxl_life */
    uint8_t suspect;
};

struct nxl_world_rule { /* resolved; one row for each group that may act */
    const char *from;
    uint8_t ops, memory;
};

struct nxl_world_policy {
    const char *group;
    const struct nxl_nixlpeer *peer;                    /* the declaration */
    struct nxl_backend_wish backends[NXL_BACKENDS_MAX]; /* the known ones of it */
    uint32_t backend_count;
    const struct nxl_world_rule *rules;
    uint32_t rule_count;
};

enum nxl_world_note { /* what people are told, as an event of the group */
                      NXL_NOTE_OVERLAP = 0,
                      NXL_NOTE_UNKNOWN_BACKEND,
                      NXL_NOTE_PEER_NOT_FOUND,
                      NXL_NOTE_INVALIDATED,
                      NXL_NOTE_FROZEN,
                      NXL_NOTE_THAWED,
                      NXL_NOTE_STORE_LOST,
                      NXL_NOTE_RULES_CUT, /* more groups match the rules than one policy carries */
                      NXL_NOTE_PURGED,    /* onLapse: Purge has ended sessions */
                      NXL_NOTES
};

struct nxl_world_ops { /* none may call back into the world, except the questions below */
    void (*on_member)(void *arg, const struct nxl_world_member *member);
    void (*on_forget)(void *arg, const char *uid); /* lives, but is in no group any more */
    void (*on_policy)(void *arg, const struct nxl_world_policy *policy);
    void (*on_policy_gone)(void *arg, const char *group);
    /* Which nodes need which groups is to be asked again; node or group NULL: any. */
    void (*on_interest)(void *arg, const char *node, const char *group);
    void (*on_group)(void *arg, const char *group);                 /* status may differ */
    void (*on_slice)(void *arg, const char *group, uint32_t index); /* members of it differ */
    void (*on_note)(void *arg, const char *group, enum nxl_world_note note, const char *text);
};

struct nxl_world_options {
    const struct nxl_world_ops *ops;
    void *arg;
    const char *const *backends; /* names that exist beside the built-in list; may be NULL */
    uint32_t backend_count;
};

struct nxl_world *nxl_world_new(const struct nxl_world_options *options);
void nxl_world_free(struct nxl_world *world); /* accepts NULL; says nothing */

/* ---- facts of the API server --------------------------------------------------------------- */

/* A stale event (older version of the same UID, or a UID that is dead) changes nothing. The same
 * name with another UID: the old one is dead first. */
void nxl_world_put_pod(struct nxl_world *world, const struct nxl_pod *pod, uint64_t now_ns);
/* DELETED. An unknown UID is remembered as dead all the same. */
void nxl_world_drop_pod(struct nxl_world *world, const char *ns, const char *name, const char *uid,
                        uint64_t now_ns);
void nxl_world_put_node(struct nxl_world *world, const struct nxl_node *node, uint64_t now_ns);
/* The node object is gone, so its pods are dead. Nodes must therefore be watched without a selector
 * whose labels can be taken off a living node. */
void nxl_world_drop_node(struct nxl_world *world, const char *name, const char *uid,
                         uint64_t now_ns);
void nxl_world_put_namespace(struct nxl_world *world, const struct nxl_namespace *space,
                             uint64_t now_ns);
void nxl_world_drop_namespace(struct nxl_world *world, const char *name, uint64_t now_ns);
void nxl_world_put_nixlpeer(struct nxl_world *world, struct nxl_nixlpeer *peer /* takes */,
                            uint64_t now_ns);
void nxl_world_drop_nixlpeer(struct nxl_world *world, const char *ns, const char *name,
                             const char *uid, uint64_t now_ns);
/* The server's versions went back (restored from a backup): objects held are no newer than what
 * comes now. The dead stay dead. */
void nxl_world_restored(struct nxl_world *world);
/* The first read of all kinds is complete: Paused groups freeze, dangling names are reported. */
void nxl_world_synced(struct nxl_world *world, uint64_t now_ns);

/* ---- facts of agents and of the store ------------------------------------------------------ */

/* The stream to the agent of node: bytes come (0) or none for the silent time (1). */
void nxl_world_silent(struct nxl_world *world, const char *node, int silent, uint64_t now_ns);
/* The heartbeat of node in the store has moved. Nodes that never had one are not judged by it. */
void nxl_world_heartbeat(struct nxl_world *world, const char *node, uint64_t now_ns);
/* The store answers (1) or not (0); again 1 with fresh when it was wiped or failed over. Nobody is
 * judged by heartbeats without it, nor for two leases afterwards. */
void nxl_world_store(struct nxl_world *world, int up, int fresh, uint64_t now_ns);
/* The agent of node says: this incarnation ("uid/container/session") is there (NXL_LIFE_LIVE) or is
 * over (DEAD; any prefix). 0 if the pod is not on that node or not known: nothing changed. */
int nxl_world_local(struct nxl_world *world, const char *node, const char *id, int life,
                    const char *reason, uint64_t now_ns);
/* Judges silence: call once a second or oftener. A gap of more than 5 s is our own sleep, and then
 * nobody is judged for it. */
void nxl_world_tick(struct nxl_world *world, uint64_t now_ns);

/* ---- questions ------------------------------------------------------------------------------ */

/* Does the agent of node need group: a member of it, of a group that it lets in, or of one that
 * lets it in runs there? */
int nxl_world_interested(struct nxl_world *world, const char *node, const char *group);

/* Is the pod known, or known to be dead? */
int nxl_world_knows(struct nxl_world *world, const char *uid);
/* Groups whose selector takes such a pod, whether the world has it or not. */
void nxl_world_would_match(struct nxl_world *world, const struct nxl_pod *pod,
                           void (*fn)(void *arg, const char *group), void *arg);

struct nxl_world_group { /* lent until the next change */
    const struct nxl_nixlpeer *peer;
    /* total = live + draining + suspect + pending; draining before suspect before pending. */
    uint32_t total, live, draining, suspect, pending;
    int64_t revision; /* +1 for each change of membership */
    uint32_t slices;
    uint32_t nodes;  /* that need this group, whether their agent is connected or not */
    uint32_t barred; /* pods that two groups of different roles match */
    const char
        *refusal;      /* Accepted is False: UnknownBackend, PeerNotFound, SelectorOverlap; or "" */
    const char *field; /* and which field, why: a sentence; "" */
    int frozen, store_down;
    uint32_t lapsed, tracked; /* nodes with a heartbeat, and those too old for this group */
    uint64_t dead_ns;         /* last invalidation; 0: none */
    uint32_t dead_count;
    const char *dead_reason;
};
int nxl_world_group(struct nxl_world *world, const char *group, struct nxl_world_group *ret);
void nxl_world_each_group(struct nxl_world *world, void (*fn)(void *arg, const char *group),
                          void *arg);

struct nxl_world_seat { /* one member in a slice */
    const char *pod, *uid, *node, *revision;
    uint8_t life, suspect, pending;
};
/* Members of slice index, at most NXL_SLICE_MEMBERS; returns how many. */
uint32_t nxl_world_slice(struct nxl_world *world, const char *group, uint32_t index,
                         struct nxl_world_seat ret[NXL_SLICE_MEMBERS]);

struct nxl_world_size {
    uint32_t pods, nodes, groups, spaces, texts, tombs;
    uint64_t bytes; /* held, by our own count */
};
void nxl_world_size(const struct nxl_world *world, struct nxl_world_size *ret);

#endif
