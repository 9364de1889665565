/* backend.h - the contract between the agent and a transfer backend.
 * A plug-in is a shared object that exports nxl_backend_entry and nothing else; a static backend
 * offers the same table. Strict C11, valid C++.
 *
 * Words: takes (callee frees), borrows (must outlive), gives (caller frees), lends (valid until
 * ...). Threads: the agent calls every operation from its one loop thread. A backend may own
 * threads and calls the host's functions from any of them, or none and works in progress(). */
#ifndef NXL_BACKEND_H
#define NXL_BACKEND_H

#include <nxl/err.h>
#include <nxl/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define NXL_BACKEND_ABI_MAJOR 1u /* bump: meaning or layout changed; the agent refuses to load */
#define NXL_BACKEND_ABI_MINOR 1u /* bump: fields appended; older plug-ins still load */

struct nxl_backend_ops;
struct nxl_backend;        /* one opened instance; the backend's own type */
struct nxl_backend_mem;    /* a registered local region */
struct nxl_backend_conn;   /* a connection to one remote agent */
struct nxl_backend_remote; /* a remote region, imported through a connection */

/* One setting. Values travel as text; the agent checks type and range before open(). */
enum nxl_option_type {
    NXL_OPTION_BOOL,     /* "true"/"false" and NIXL's other words */
    NXL_OPTION_INT,      /* signed decimal within min..max */
    NXL_OPTION_SIZE,     /* bytes, with optional K/M/G/T or Ki/Mi/Gi/Ti */
    NXL_OPTION_DURATION, /* with ns/us/ms/s/m/h; bare numbers are refused */
    NXL_OPTION_TEXT,
    NXL_OPTION_ENUM, /* one of choices, separated by '|' */
};
struct nxl_option {
    const char *key;
    enum nxl_option_type type;
    const char *initial; /* default as text */
    int64_t min, max;    /* INT, SIZE (bytes), DURATION (ns); both 0: no range */
    const char *choices; /* ENUM */
    const char *help;    /* one line */
};
/* The checked settings of one instance. get() never returns NULL for a key of the option table. */
struct nxl_config {
    uint32_t size;
    const char *(*text)(const struct nxl_config *config, const char *key);
    int64_t (*number)(const struct nxl_config *config,
                      const char *key); /* BOOL INT SIZE DURATION */
};

/* The end of one operation. Lent during complete(). */
struct nxl_outcome {
    uint32_t size;
    int32_t code; /* NXL_OK, NXL_CANCELED, NXL_REMOTE_DISCONNECT, ... */
    uint64_t op_id;
    uint64_t bytes;     /* written or read for sure */
    uint32_t quiesced;  /* 1: no byte moves any more. 0: quiesced() follows, once */
    uint32_t untouched; /* 1: nothing was written at all, so another backend may try again */
    const char *device; /* static or interned text: "memory", "eth0"; may be NULL */
    int32_t path;       /* enum nxl_path_class that was really taken */
    int32_t os;         /* vendor status, 0 if none */
    char text[160];     /* why it failed, empty on success */
};

/* What the agent lends to a backend, valid until close() returns. Callable from any thread. */
struct nxl_host {
    uint32_t size;
    void (*complete)(struct nxl_host *host, const struct nxl_outcome *outcome);
    void (*quiesced)(struct nxl_host *host, uint64_t op_id); /* once, only if the outcome said 0 */
    void (*ready)(struct nxl_host *host); /* after NXL_AGAIN: submit may work again */
    /* The backend saw that the far agent behind conn is gone. The agent fails what runs on it. */
    void (*disconnected)(struct nxl_host *host, struct nxl_backend_conn *conn, const char *why);
    /* level: 0 error, 1 warning, 2 info, 3 debug */
    void (*log)(struct nxl_host *host, int level, const char *text);
    /* Since 1.1, for a backend that wraps another: the table and the settings of `name`. Only
     * inside open(); lends the settings until it returns, the table for ever. May be NULL. */
    enum nxl_code (*find)(struct nxl_host *host, const char *name,
                          const struct nxl_backend_ops **ret_ops,
                          const struct nxl_config **ret_config, struct nxl_err *err);
};

/* Memory as the agent has it mapped. */
struct nxl_memory {
    int32_t kind; /* enum nxl_mem_kind */
    uint32_t device;
    void *base;    /* agent's own mapping; NULL for kinds that have none */
    uint64_t size; /* bytes */
    int32_t fd;    /* lent for the call; -1 if none */
    uint32_t reserved;
    uint64_t fd_offset;
};

/* One strided run of pieces, the same on both sides. Offsets count from the start of the region.
 * A merged, contiguous piece has count 1. */
struct nxl_piece {
    uint32_t local;  /* index into op->locals */
    uint32_t remote; /* index into op->remotes */
    uint64_t local_offset, remote_offset;
    uint64_t len; /* bytes of one row */
    uint64_t local_stride, remote_stride;
    uint32_t count; /* rows, >= 1 */
    uint32_t reserved;
};

struct nxl_op {
    uint32_t size;
    int32_t kind;                  /* enum nxl_op_kind */
    uint64_t id;                   /* chosen by the agent, never reused */
    struct nxl_backend_conn *conn; /* NULL: both sides are local regions of this backend */
    struct nxl_backend_mem *const *locals;
    /* conn != NULL: imported regions. conn == NULL: struct nxl_backend_mem of the other client. */
    struct nxl_backend_remote *const *remotes;
    struct nxl_backend_mem *const *peers; /* used instead of remotes when conn == NULL */
    const struct nxl_piece *pieces;
    uint32_t local_count, remote_count, piece_count;
    uint32_t reserved;
    uint64_t bytes; /* sum over pieces */
    uint64_t
        deadline_ns; /* CLOCK_MONOTONIC, 0: none. The agent enforces it too; a hint to give up */
};

#define NXL_CAP_LOCAL (1u << 0)   /* moves between two regions of the same agent (conn == NULL) */
#define NXL_CAP_REMOTE (1u << 1)  /* needs address, connect, disconnect, export_key, import_key */
#define NXL_CAP_CANCEL (1u << 2)  /* needs cancel */
#define NXL_CAP_STRIDED (1u << 3) /* takes pieces with count > 1; else the agent splits them */

/* Capabilities are a promise: they are compared with the wired operations at load. */
struct nxl_backend_caps {
    uint32_t size;
    uint32_t flags;         /* NXL_CAP_* */
    uint32_t mem_kinds;     /* bit (1 << enum nxl_mem_kind) */
    uint32_t pieces_max;    /* per op, 0: no limit */
    uint64_t piece_len_max; /* bytes, 0: no limit */
    int32_t path;           /* best enum nxl_path_class it can take */
    uint32_t honesty;       /* enum nxl_honesty */
    /* Cost model for the planner, in ns: op + pieces * piece + bytes * 1000 / kb (see plan/cost.h)
     */
    uint64_t op_ns, piece_ns, kib_ns;
};
enum nxl_honesty {
    NXL_HONESTY_REAL = 0,
    NXL_HONESTY_DEVICE = 1,
    NXL_HONESTY_PROTOCOL = 2,
    NXL_HONESTY_STUB = 3,
    NXL_HONESTY_COMPILED = 4,
};

#define NXL_BACKEND_KEY_MAX 512      /* bytes of an exported region key */
#define NXL_BACKEND_ADDRESS_MAX 4096 /* bytes of a connection address */

struct nxl_backend_ops {
    uint32_t size; /* sizeof(struct nxl_backend_ops) as the plug-in saw it */
    uint16_t abi_major, abi_minor;
    const char *name;                 /* static, equals the folder name */
    const char *about;                /* one line: what it is, which library */
    const struct nxl_option *options; /* ends with key == NULL; may be NULL */

    /* Required. Borrows host and config (config only for the call). Gives *ret to close().
     * NXL_NOT_SUPPORTED: the vendor library or device is absent; err says which. May block shortly.
     */
    enum nxl_code (*open)(struct nxl_host *host, const struct nxl_config *config,
                          struct nxl_backend **ret, struct nxl_err *err);
    /* Required. Shutdown only, may block: returns when every op is complete and quiesced.
     * Also frees regions, connections and keys that are still there. Accepts NULL and half-opened.
     */
    void (*close)(struct nxl_backend *backend);
    /* Required. Fills *ret (its size is set by the caller). */
    void (*query)(struct nxl_backend *backend, struct nxl_backend_caps *ret);

    /* Required. All or nothing. The mapping is borrowed until deregister(). Gives *ret. */
    enum nxl_code (*register_mem)(struct nxl_backend *backend, const struct nxl_memory *memory,
                                  struct nxl_backend_mem **ret, struct nxl_err *err);
    /* Required. Called when no op uses it. May fail: then it stays pinned and the agent says so. */
    enum nxl_code (*deregister_mem)(struct nxl_backend *backend, struct nxl_backend_mem *mem,
                                    struct nxl_err *err);

    /* Required. Never blocks. NXL_OK promises exactly one complete(), never from inside this call;
     * any other code promises none and changes nothing. NXL_AGAIN is back-pressure: ready()
     * follows. Lends op (with its arrays) until complete(), its memory until quiesced. */
    enum nxl_code (*submit)(struct nxl_backend *backend, const struct nxl_op *op,
                            struct nxl_err *err);
    /* NXL_CAP_CANCEL. Asks for an early end; the one complete() still comes, later. */
    void (*cancel)(struct nxl_backend *backend, uint64_t op_id);
    /* Optional. Loop thread; does a bounded amount of work; returns how many ops it advanced.
     * May call complete(). The agent calls it after submits and while it spins. Who works only here
     * and returns 0 with ops in flight calls ready() from a thread when there is work again. */
    int (*progress)(struct nxl_backend *backend);

    /* NXL_CAP_REMOTE. Where others reach this instance; lent until close(). */
    enum nxl_code (*address)(struct nxl_backend *backend, struct nxl_view *ret,
                             struct nxl_err *err);
    /* NXL_CAP_REMOTE. Never blocks; wiring up may go on behind. address is borrowed for the call.
     */
    enum nxl_code (*connect)(struct nxl_backend *backend, struct nxl_view address,
                             struct nxl_backend_conn **ret, struct nxl_err *err);
    /* NXL_CAP_REMOTE. Takes conn and all that was imported through it. Running ops on it complete
     * with NXL_REMOTE_DISCONNECT. Never blocks; tearing down may go on behind. */
    void (*disconnect)(struct nxl_backend *backend, struct nxl_backend_conn *conn);
    /* NXL_CAP_REMOTE. Writes at most NXL_BACKEND_KEY_MAX bytes to buf, their number to *ret_size.
     */
    enum nxl_code (*export_key)(struct nxl_backend *backend, struct nxl_backend_mem *mem, void *buf,
                                size_t *ret_size, struct nxl_err *err);
    /* NXL_CAP_REMOTE. A damaged key is NXL_MISMATCH. Freed by forget() or with its conn. */
    enum nxl_code (*import_key)(struct nxl_backend *backend, struct nxl_backend_conn *conn,
                                struct nxl_view key, struct nxl_backend_remote **ret,
                                struct nxl_err *err);
    /* NXL_CAP_REMOTE. Called when no op uses it. */
    void (*forget)(struct nxl_backend *backend, struct nxl_backend_remote *remote);
};

#define NXL_BACKEND_HAS(ops, member)                                                               \
    ((ops)->size >= offsetof(struct nxl_backend_ops, member) + sizeof((ops)->member) &&            \
     (ops)->member != NULL)

/* The one exported symbol of a plug-in. Returns static data. */
typedef const struct nxl_backend_ops *nxl_backend_entry_fn(void);

#ifdef __cplusplus
}
#endif
#endif
