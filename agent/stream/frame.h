/* frame.h - what an operator and its agents say to each other: u32 little-endian length and one
 * JSON object, at most 64 KiB. Decoded form and the pure codec for it; used by operator/push and
 * agent/cluster. Unknown keys are skipped, so that fields can be added; any thread. */
#ifndef NXL_STREAM_FRAME_H
#define NXL_STREAM_FRAME_H

#include <nxl/err.h>
#include <nxl/types.h>

struct json_t;
struct nxl_bytes;

#define NXL_STREAM_VERSION_MIN 1u
#define NXL_STREAM_VERSION_MAX 1u
#define NXL_STREAM_FRAME_MAX 65536u     /* of the JSON text */
#define NXL_STREAM_HEAD 4u              /* bytes of the length before it */
#define NXL_STREAM_RECORDS_MAX 512u     /* members of one frame, */
#define NXL_STREAM_DEAD_MAX 2048u       /* and dead ones named by id alone */
#define NXL_STREAM_POLICIES_MAX 64u     /* policies of one frame */
#define NXL_STREAM_RULES_MAX 256u       /* rules of one policy, resolved */
#define NXL_STREAM_GROUP_MAX 128u       /* bytes of "namespace/nixlpeer" */
#define NXL_STREAM_TEXT_MAX 512u        /* reasons, revision and topology values, refusals */
#define NXL_STREAM_VERSION_TEXT_MAX 32u /* resource versions, digests, epochs */
#define NXL_STREAM_TOKEN_MAX 16384u
#define NXL_STREAM_PEM_MAX 32768u

enum nxl_stream_type {
    NXL_STREAM_NONE = 0,
    NXL_STREAM_HELLO,    /* version_min/max, node, agent, cluster, token, seq, epoch, csr */
    NXL_STREAM_WELCOME,  /* version, operator, epoch, ping_ms, cert, bundle */
    NXL_STREAM_REFUSE,   /* code, text */
    NXL_STREAM_SNAPSHOT, /* part; begin: seq, rv, digest; peers: members, policies; end: seq */
    NXL_STREAM_DELTA,    /* seq, rv, members; many dead travel as a list of ids by reason */
    NXL_STREAM_POLICY,   /* seq, policies */
    NXL_STREAM_PING,     /* seq, rv, digest, at_ns */
    NXL_STREAM_PONG,     /* at_ns, digest, seq: last applied */
    NXL_STREAM_ACK,      /* seq, purged, us */
    NXL_STREAM_LOCAL,    /* members: id, state, reason of own pods; pods: uids with a socket here */
    NXL_STREAM_SUSPECT,  /* id or node, text: evidence */
    NXL_STREAM_GOAWAY,   /* text, after_ms */
    NXL_STREAM_CERT,     /* csr; or cert, bundle */
    NXL_STREAM_TYPES
};

enum nxl_stream_part { NXL_STREAM_BEGIN = 0, NXL_STREAM_PEERS, NXL_STREAM_END };

/* One pod of a group. id is "<podUID>" or "<podUID>/<containerID>"; the key is the pod UID. Dead of
 * "<uid>/<container>" is one container's, dead of "<uid>" is the pod's. NULL texts read as "". */
struct nxl_stream_member {
    const char *id, *group, *pod, *node, *reason;
    const char *version;  /* resource version of the pod when this was true */
    const char *revision; /* value of the group's revision label */
    const char *topology; /* value of the group's topology label */
    uint8_t life;         /* enum nxl_life */
    uint8_t suspect;
    uint8_t forget; /* no fact about life: this agent need not know it any more */
};

#define NXL_STREAM_READ 1u
#define NXL_STREAM_WRITE 2u
#define NXL_STREAM_NOTIFY 4u

#define NXL_STREAM_PATH_SHARED 1u /* SharedMemory */
#define NXL_STREAM_PATH_CUDA_IPC 2u
#define NXL_STREAM_PATH_NVLINK 4u
#define NXL_STREAM_PATH_RDMA 8u
#define NXL_STREAM_PATH_TCP 16u
#define NXL_STREAM_PATH_STAGED 32u
#define NXL_STREAM_PATH_STORAGE 64u

enum nxl_stream_mode { NXL_STREAM_ENFORCE = 0, NXL_STREAM_OBSERVE, NXL_STREAM_PAUSED };
enum nxl_stream_pair { NXL_STREAM_ANY = 0, NXL_STREAM_PREFER, NXL_STREAM_STRICT };

struct nxl_stream_rule {
    const char *from; /* a group; the operator resolves selectors and roles to groups */
    uint8_t ops;      /* NXL_STREAM_READ ... */
    uint8_t memory;   /* 1 << enum nxl_mem_kind; 0: every kind of the group */
};

/* One NixlPeer: who may act on its members' memory, and how they live. */
struct nxl_stream_policy {
    const char *group;
    uint64_t generation;
    int gone; /* deleted: nothing of it is allowed any more */
    const char *role;
    uint8_t mode;                       /* enum nxl_stream_mode */
    uint8_t memory;                     /* 1 << enum nxl_mem_kind */
    uint64_t memory_max[NXL_MEM_KINDS]; /* bytes a pod; 0: no limit */
    struct nxl_stream_backend {
        const char *name;
        uint8_t required;
    } backends[8];
    uint32_t backend_count;
    uint32_t paths; /* NXL_STREAM_PATH_...; 0: all */
    const struct nxl_stream_rule *rules;
    uint32_t rule_count;
    uint32_t heartbeat_s, lease_s, purge_s, loss_after_s, drain_s;
    uint8_t lapse_purges;                  /* onLapse: Purge */
    uint8_t loss_quarantines;              /* controlPlaneLoss.action: Quarantine */
    uint8_t drain_purges;                  /* drain.onTermination: Purge */
    uint8_t revision;                      /* enum nxl_stream_pair */
    uint8_t topology;                      /* enum nxl_stream_pair; STRICT is Required */
    uint64_t inflight_max, registered_max; /* of the group; 0: no limit */
    uint64_t hash;                         /* decoding only: of the text, for the digest */
};

struct nxl_stream_frame {
    uint8_t type; /* enum nxl_stream_type */
    uint8_t part; /* enum nxl_stream_part */
    int32_t code;
    uint32_t version_min, version_max, version, ping_ms, after_ms, purged;
    uint64_t seq, at_ns, us, digest;
    const char *node, *agent, *cluster, *token, *epoch, *csr, *operator_id, *cert, *bundle;
    const char *rv, *text, *id;
    const struct nxl_stream_member *members;
    const struct nxl_stream_policy *policies;
    const char *const *pods;
    uint32_t member_count, policy_count, pod_count;
    /* Decoding: what the texts and arrays lie in. */
    struct json_t *json;
    void *room;
};

/* body is the JSON text without the length. Texts are never NULL afterwards. NXL_MISMATCH: err
 * names type and field. Give to nxl_stream_frame_fini(), also after an error (then nothing is
 * held). */
NXL_MUST_USE enum nxl_code nxl_stream_decode(struct nxl_view body, struct nxl_stream_frame *ret,
                                             struct nxl_err *err);
void nxl_stream_frame_fini(struct nxl_stream_frame *frame);
/* Appends length and text. NXL_LIMIT: longer than NXL_STREAM_FRAME_MAX; nothing is appended then.
 */
NXL_MUST_USE enum nxl_code nxl_stream_encode(const struct nxl_stream_frame *frame,
                                             struct nxl_bytes *to, struct nxl_err *err);
/* The next whole frame in data: 1 and its text, 0 if more must come, -1 if its length is wrong. */
int nxl_stream_split(struct nxl_view data, struct nxl_view *ret_body, size_t *ret_used);

/* For a sender of many: records are turned into text once and put into frames as they are. */
void nxl_stream_member_text(const struct nxl_stream_member *member, struct nxl_bytes *to);
/* An item of \"dead\": what so many ids died of. */
void nxl_stream_dead_text(const char *reason, const char *const *ids, uint32_t count,
                          struct nxl_bytes *to);
NXL_MUST_USE enum nxl_code nxl_stream_policy_text(const struct nxl_stream_policy *policy,
                                                  struct nxl_bytes *to, struct nxl_err *err);
/* Opens a frame around such texts: nxl_bytes_put() them comma-separated in between. Returns where
 * it began. kind is "SNAPSHOT", "DELTA" or "POLICY"; list is "peers", "policies" or "dead". */
size_t nxl_stream_open_list(struct nxl_bytes *to, const char *kind, uint64_t seq, const char *rv,
                            const char *list);
void nxl_stream_close_list(struct nxl_bytes *to, size_t began);

/* The digest of a table is the xor of these over all its live records and policies, in any order.
 */
uint64_t nxl_stream_member_hash(const struct nxl_stream_member *member);
uint64_t nxl_stream_policy_hash(struct nxl_view text); /* of what nxl_stream_policy_text() made */

/* Resource versions of one server compare as numbers of any length: <0, 0, >0. "" is the smallest.
 */
int nxl_stream_version_order(const char *a, const char *b);
/* Length of the pod UID that an id begins with. */
size_t nxl_stream_uid_size(const char *id);

#endif
