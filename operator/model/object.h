/* object.h - the parts of Kubernetes objects that the model uses: plain, trimmed, bounded. Filled
 * by reconcile/read_*; texts are lent for the call unless said otherwise. Pure, any thread. */
#ifndef NXL_MODEL_OBJECT_H
#define NXL_MODEL_OBJECT_H

#include <nxl/err.h>
#include <nxl/types.h>

struct nxl_selector;

#define NXL_POD_LABELS_MAX 128u
#define NXL_POD_CONTAINERS_MAX 64u
#define NXL_RULES_MAX 32u      /* of one NixlPeer, as declared */
#define NXL_RULE_FROM_MAX 256u /* groups that all rules of one NixlPeer resolve to */
#define NXL_UID_MAX 63u
#define NXL_CONTAINER_ID_MAX 79u

struct nxl_label {
    const char *key, *value;
};

enum nxl_phase {
    NXL_PHASE_PENDING = 0,
    NXL_PHASE_RUNNING,
    NXL_PHASE_SUCCEEDED,
    NXL_PHASE_FAILED,
    NXL_PHASE_UNKNOWN
};

struct nxl_container {
    const char *name;
    const char *id; /* without "containerd://"; "" before it was started */
    uint32_t restarts;
    uint8_t ended; /* the process of id has ended */
};

struct nxl_pod {
    const char *ns, *name, *uid, *version, *node, *reason; /* reason: status.reason, "Evicted" */
    uint8_t phase;                                         /* enum nxl_phase */
    uint8_t deleting;                                      /* deletionTimestamp is set */
    uint32_t label_count, container_count;
    struct nxl_label labels[NXL_POD_LABELS_MAX];
    struct nxl_container containers[NXL_POD_CONTAINERS_MAX];
};

enum nxl_node_ready { NXL_NODE_READY = 0, NXL_NODE_NOT_READY, NXL_NODE_UNKNOWN };

struct nxl_node {
    const char *name, *uid, *version;
    uint8_t ready;          /* enum nxl_node_ready */
    uint8_t out_of_service; /* taint node.kubernetes.io/out-of-service */
    uint32_t label_count;
    struct nxl_label labels[NXL_POD_LABELS_MAX];
};

struct nxl_namespace {
    const char *name, *uid, *version;
    uint32_t label_count;
    struct nxl_label labels[NXL_POD_LABELS_MAX];
};

enum nxl_role {
    NXL_ROLE_NONE = 0,
    NXL_ROLE_PREFILL,
    NXL_ROLE_DECODE,
    NXL_ROLE_ENCODE,
    NXL_ROLE_AGGREGATED,
    NXL_ROLE_STORAGE,
    NXL_ROLE_CUSTOM
};
enum nxl_mode { NXL_MODE_ENFORCE = 0, NXL_MODE_OBSERVE, NXL_MODE_PAUSED };
enum nxl_pairing { NXL_PAIR_ANY = 0, NXL_PAIR_PREFER, NXL_PAIR_STRICT };
#define NXL_MAY_READ 1u
#define NXL_MAY_WRITE 2u
#define NXL_MAY_NOTIFY 4u
#define NXL_WAY_SHARED 1u /* allowedPaths, in the order of the schema */
#define NXL_WAY_CUDA_IPC 2u
#define NXL_WAY_NVLINK 4u
#define NXL_WAY_RDMA 8u
#define NXL_WAY_TCP 16u
#define NXL_WAY_STAGED 32u
#define NXL_WAY_STORAGE 64u

const char *nxl_role_name(int role); /* "Prefill"; "" for none */
int nxl_role_of(const char *name);   /* NXL_ROLE_NONE if there is no such */

struct nxl_rule {                /* one entry of spec.allow; owned by its nxl_nixlpeer */
    const char *peer_name;       /* or */
    struct nxl_selector *peers;  /* labels of NixlPeers, or */
    uint8_t role;                /* enum nxl_role; exactly one of the three */
    struct nxl_selector *spaces; /* NULL: this namespace only */
    uint8_t ops, memory;         /* NXL_MAY_...; 1 << enum nxl_mem_kind, 0: all of the group */
};

struct nxl_backend_wish {
    const char *name;
    uint8_t required;
};

/* A NixlPeer, owned: everything it points to lives in it until nxl_nixlpeer_free(). */
struct nxl_nixlpeer {
    const char *ns, *name, *uid, *version;
    int64_t generation;
    uint8_t deleting;  /* deletionTimestamp is set */
    uint8_t finalizer; /* nixlet.dev/revoke is on it */
    int64_t revision;  /* status.membershipRevision that it carries, 0 if none */
    uint32_t label_count;
    struct nxl_label labels[NXL_POD_LABELS_MAX];
    struct {
        struct nxl_selector *selector;
        const char *container; /* "" : whichever connects */
        uint8_t role, mode;
        uint8_t memory;                     /* 1 << enum nxl_mem_kind */
        uint64_t memory_max[NXL_MEM_KINDS]; /* bytes a pod; 0: no limit */
        struct nxl_backend_wish backends[NXL_BACKENDS_MAX];
        uint32_t backend_count;
        uint32_t ways; /* NXL_WAY_...; 0: all */
        struct nxl_rule rules[NXL_RULES_MAX];
        uint32_t rule_count;
        uint32_t heartbeat_s, lease_s, purge_s, mass_percent, loss_after_s, drain_s;
        uint8_t lapse_purges, loss_quarantines, drain_purges;
        uint8_t revision_pairing, topology_pairing; /* enum nxl_pairing; STRICT is Required */
        const char *revision_key, *topology_key;    /* label keys, "" : none */
        uint64_t inflight_max, registered_max;
    } spec;
    struct nxl_nixlpeer_text *texts; /* what the texts lie in */
};

/* With the defaults of the schema, texts "". */
struct nxl_nixlpeer *nxl_nixlpeer_new(void);
void nxl_nixlpeer_free(struct nxl_nixlpeer *peer); /* accepts NULL */
/* Copies text into peer; lent until nxl_nixlpeer_free(). */
const char *nxl_nixlpeer_keep(struct nxl_nixlpeer *peer, const char *text);

/* "64Gi", "1.5k", "3e9": *ret in bytes, rounded up. 0 if it is no positive quantity, or too large
 * for 63 bits. */
int nxl_quantity_of(const char *text, uint64_t *ret);

#endif
