/* fake_xfer.h - an engine without an engine: every symbol of xfer.h that the front uses, recording
 * what came and answering what the test says. Loop thread. */
#ifndef NXL_TESTS_FAKE_XFER_H
#define NXL_TESTS_FAKE_XFER_H

#include "base/bytes.h"
#include "xfer/xfer.h"

#define FAKE_CALLS_MAX 4096u
#define FAKE_ITEMS_MAX 64u

struct nxl_xfer_session {
    struct nxl_xfer *xfer;
    struct nxl_xfer_session *next;
    uint32_t number;
    const struct nxl_xfer_front *front;
    void *front_arg;
    int32_t pid;
    char ns[NXL_NAMESPACE_MAX + 1];
    int closed;
    char reason[256];
    uint64_t closed_ns;
};

struct fake_call { /* asynchronous and not answered yet */
    struct nxl_xfer_session *session;
    nxl_xfer_reply_fn *fn;
    nxl_xfer_deregistered_fn *deregistered;
    void *arg;
    uint32_t count;
    int open;
};

struct nxl_xfer {
    struct nxl_xfer_session *sessions; /* newest first; closed ones stay until the end */
    uint32_t opened, closed, room;
    enum nxl_code refuse; /* the next synchronous calls end like this, if not NXL_OK */
    struct fake_call calls[FAKE_CALLS_MAX];
    uint32_t call_count;
    int answer_now;   /* asynchronous calls are answered from inside */
    int finish_posts; /* posts run and end with success from inside */
    int reusable;
    uint32_t blob_size; /* of nxl_xfer_metadata() */
    struct {            /* how often which door was used */
        uint32_t peer_open, peer_close, reg, deregister, list, list_free, metadata, load, fetch,
            send, withdraw, connect, invalidate, find, state, check, post, cancel, release, notify,
            explain;
    } used;
    struct { /* arguments of the last call, whatever it was */
        uint32_t peer, remote, list, kind, flags, count, fd_count, slot, generation;
        int more;
        uint64_t timeout_ns;
        char name[NXL_NAME_MAX + 1], label[NXL_LABEL_MAX + 1], address[512];
        uint64_t ids[FAKE_ITEMS_MAX];
        struct nxl_run runs[FAKE_ITEMS_MAX];
        struct nxl_xfer_region regions[FAKE_ITEMS_MAX];
        char file[64]; /* what the first descriptor of a register held */
        size_t blob_size;
        unsigned char blob_first;
    } last;
    struct { /* the last post, copied out */
        struct nxl_xfer_post post;
        uint32_t local_index[FAKE_ITEMS_MAX], remote_index[FAKE_ITEMS_MAX];
        struct nxl_run local_runs[FAKE_ITEMS_MAX], remote_runs[FAKE_ITEMS_MAX];
        char notice[256];
    } posted;
};

struct nxl_xfer *fake_xfer_new(void);
void fake_xfer_free(struct nxl_xfer *xfer);
struct nxl_xfer_session *fake_xfer_session(struct nxl_xfer *xfer, uint32_t number);
/* Answers the index-th asynchronous call; info may be NULL. */
void fake_xfer_answer(struct nxl_xfer *xfer, uint32_t index, enum nxl_code code,
                      const struct nxl_xfer_remote_info *info);

#endif
