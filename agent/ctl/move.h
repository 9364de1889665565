/* move.h - the rooms of get and put: the file, the far region, the chunks. Inside agent/ctl only.
 */
#ifndef NXL_CTL_MOVE_H
#define NXL_CTL_MOVE_H

#include <jansson.h>
#include <nixlet.h>

struct ctl;

struct move_options {
    enum nxl_op_kind op;
    const char *peer, *file, *at;
    uint64_t address; /* 0: not given */
    int64_t length;   /* 0: not given */
    int64_t region;   /* -1: not given */
    int64_t chunk, timeout_ns;
};

/* ---- the file (move_file.c) ---------------------------------------------------------------- */

struct move_file {
    unsigned char *base;
    uint64_t size;
    int fd, guard; /* guard: slot of base/guard */
    char *path;    /* as given */
    char *beside;  /* get: where the bytes lie until they are whole */
};

/* For put: an existing file, mapped whole. Fini with move_file_fini() whatever happens. */
NXL_MUST_USE enum nxl_code move_file_open(const char *path, struct move_file *file,
                                          struct nxl_err *err);
/* For get: a new file of that size beside path; path itself changes only in move_file_keep(). */
NXL_MUST_USE enum nxl_code move_file_create(const char *path, uint64_t size, struct move_file *file,
                                            struct nxl_err *err);
/* XXH64 of its first size bytes. NXL_MEMORY_LOST: somebody cut the file. */
NXL_MUST_USE enum nxl_code move_file_digest(struct move_file *file, uint64_t size, uint64_t *ret,
                                            struct nxl_err *err);
NXL_MUST_USE enum nxl_code move_file_keep(struct move_file *file, struct nxl_err *err);
/* Unmaps, closes, and removes what was not kept. Zeroed with fd -1 is fine. */
void move_file_fini(struct move_file *file);

/* ---- the far region (move_where.c) ---------------------------------------------------------- */

struct move_where {
    uint64_t address, length;
};

/* rows: the agent's "regions". Picks by id, by address, or the only one of the peer. length 0: as
 * far as it goes. Pure. NXL_NOT_FOUND, NXL_INVALID_PARAM: err lists what there is. */
NXL_MUST_USE enum nxl_code move_where_pick(const json_t *rows, const char *peer,
                                           const char *incarnation, int64_t region,
                                           uint64_t address, uint64_t length,
                                           struct move_where *ret, struct nxl_err *err);
/* Asks the agent only if the options do not say it all. */
NXL_MUST_USE enum nxl_code move_where_find(const struct ctl *ctl,
                                           const struct move_options *options,
                                           const char *incarnation, uint64_t length,
                                           struct move_where *ret, struct nxl_err *err);

/* ---- the chunks (move_run.c) ---------------------------------------------------------------- */

struct move_result {
    uint64_t bytes, ns; /* ns: from the first post to the last end */
    uint64_t transfers, descriptors, pieces;
    uint32_t path, protocol; /* of the slowest path that a chunk took */
    char backend[NXL_BACKEND_NAME_MAX + 1], device[32];
};

struct move_run {
    const struct ctl *ctl;
    struct nxl_peer *peer;
    struct nxl_remote *remote;
    enum nxl_op_kind op;
    unsigned char *local;
    struct move_where where;
    uint64_t chunk, deadline_ns;
};

/* One chunk after the other. NXL_CANCELED: SIGINT or SIGTERM came. Every buffer is quiet when it
 * returns, or err says that one is not. */
NXL_MUST_USE enum nxl_code move_chunks(const struct move_run *run, struct move_result *ret,
                                       struct nxl_err *err);
void move_signals_listen(void); /* SIGINT and SIGTERM end the work instead of the process */

#endif
