/* reply.c - the far side of a message: checks keys and ranges, copies, answers. Everything happens
 * in the arrival callback, so no endpoint of a peer is kept. Progress thread. */
#include "ucx.h"

#include <stdlib.h>
#include <string.h>

/* An answer under way, with the regions that it still reads. */
struct ucx_reply {
    struct ucx_reply *next;  /* free list */
    struct ucx_reply *older; /* all there are */
    struct nxl_backend *backend;
    struct ucx_message head;
    uint32_t count;
    struct nxl_backend_mem *mems[UCX_SEGMENTS_MAX];
    ucp_dt_iov_t iov[UCX_SEGMENTS_MAX];
};

static struct ucx_reply *reply_take(struct nxl_backend *backend)
{
    struct ucx_reply *reply = backend->own.free_replies;

    if (reply != NULL) {
        backend->own.free_replies = reply->next;
    } else {
        if (backend->own.replies >= UCX_REPLIES_MAX)
            return NULL;
        reply = calloc(1, sizeof(*reply));
        if (reply == NULL)
            return NULL;
        backend->own.replies++;
        reply->backend = backend;
        reply->older = backend->own.all_replies;
        backend->own.all_replies = reply;
    }
    reply->count = 0;
    return reply;
}

static void reply_give(struct ucx_reply *reply)
{
    struct nxl_backend *backend = reply->backend;

    if (reply->count > 0) {
        (void)pthread_mutex_lock(&backend->regions.lock);
        for (uint32_t i = 0; i < reply->count; i++)
            if (--reply->mems[i]->pins == 0)
                (void)pthread_cond_broadcast(&backend->regions.unpinned);
        (void)pthread_mutex_unlock(&backend->regions.lock);
    }
    reply->next = backend->own.free_replies;
    backend->own.free_replies = reply;
}

void ucx_replies_free(struct nxl_backend *backend)
{
    while (backend->own.all_replies != NULL) {
        struct ucx_reply *reply = backend->own.all_replies;

        backend->own.all_replies = reply->older;
        free(reply);
    }
}

static void reply_on_sent(void *request, ucs_status_t status, void *user_data)
{
    struct ucx_reply *reply = user_data;

    (void)status; /* who asked has its own error and its own deadline */
    reply->backend->lib.ucp_request_free(request);
    reply_give(reply);
}

/* Under regions.lock. The nonce proves that the sender was given this key. */
static struct nxl_backend_mem *segment_region(struct nxl_backend *backend,
                                              const struct ucx_segment *segment,
                                              enum nxl_code *ret_code)
{
    struct nxl_backend_mem *mem =
        segment->slot < backend->regions.room ? backend->regions.slots[segment->slot] : NULL;

    if (mem == NULL || mem->nonce != segment->nonce) {
        *ret_code = NXL_STALE;
        return NULL;
    }
    if (segment->offset > mem->size || segment->len > mem->size - segment->offset) {
        *ret_code = NXL_INVALID_PARAM;
        return NULL;
    }
    return mem;
}

/* All ranges are checked before the first byte is written. The lock is held while copying, so a
 * region that is being deregistered is not touched after that call has returned. */
static enum nxl_code write_serve(struct nxl_backend *backend, const struct ucx_message *head,
                                 const struct ucx_segment *segments, const uint8_t *data,
                                 size_t length)
{
    struct nxl_backend_mem *mems[UCX_SEGMENTS_MAX];
    enum nxl_code code = NXL_OK;
    size_t total = 0;

    for (uint32_t i = 0; i < head->count; i++)
        total += segments[i].len;
    if (total != length)
        return NXL_MISMATCH;
    (void)pthread_mutex_lock(&backend->regions.lock);
    for (uint32_t i = 0; i < head->count && code == NXL_OK; i++)
        mems[i] = segment_region(backend, &segments[i], &code);
    for (uint32_t i = 0; i < head->count && code == NXL_OK; i++) {
        memcpy(mems[i]->base + segments[i].offset, data, segments[i].len);
        data += segments[i].len;
    }
    (void)pthread_mutex_unlock(&backend->regions.lock);
    return code;
}

/* Pins what the answer reads: it may leave only later. */
static enum nxl_code read_serve(struct nxl_backend *backend, const struct ucx_message *head,
                                const struct ucx_segment *segments, struct ucx_reply *reply)
{
    enum nxl_code code = NXL_OK;
    uint64_t total = 0;

    (void)pthread_mutex_lock(&backend->regions.lock);
    for (uint32_t i = 0; i < head->count && code == NXL_OK; i++) {
        struct nxl_backend_mem *mem = segment_region(backend, &segments[i], &code);

        if (mem == NULL)
            break;
        mem->pins++;
        reply->mems[reply->count] = mem;
        reply->iov[reply->count++] =
            (ucp_dt_iov_t){.buffer = mem->base + segments[i].offset, .length = segments[i].len};
        total += segments[i].len;
        if (total > UCX_MESSAGE_MAX)
            code = NXL_LIMIT;
    }
    (void)pthread_mutex_unlock(&backend->regions.lock);
    return code;
}

static ucs_status_ptr_t reply_post(struct ucx_reply *reply, ucp_ep_h ep)
{
    const void *buffer = NULL;
    size_t count = 0;
    ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                        UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_DATATYPE,
        .flags = UCP_AM_SEND_FLAG_EAGER,
        .cb = {.send = reply_on_sent},
        .datatype = ucp_dt_make_contig(1),
        .user_data = reply,
    };

    if (reply->head.code == NXL_OK && reply->count == 1) {
        buffer = reply->iov[0].buffer;
        count = reply->iov[0].length;
    } else if (reply->head.code == NXL_OK && reply->count > 1) {
        param.datatype = UCP_DATATYPE_IOV;
        buffer = reply->iov;
        count = reply->count;
    }
    return reply->backend->lib.ucp_am_send_nbx(ep, UCX_MESSAGE_ID, &reply->head,
                                               sizeof(reply->head), buffer, count, &param);
}

void ucx_reply_serve(struct nxl_backend *backend, const struct ucx_message *head,
                     const struct ucx_segment *segments, const void *data, size_t length,
                     ucp_ep_h ep)
{
    struct ucx_reply *reply = reply_take(backend);
    enum nxl_code code;

    if (reply == NULL)
        return; /* a flood: who sent it keeps more outstanding than its window allows */
    if (head->kind == UCX_MESSAGE_WRITE)
        code = write_serve(backend, head, segments, data, length);
    else
        code = read_serve(backend, head, segments, reply);
    reply->head = *head;
    reply->head.kind = head->kind == UCX_MESSAGE_WRITE ? UCX_MESSAGE_DONE : UCX_MESSAGE_DATA;
    reply->head.count = 0;
    reply->head.code = code;
    if (!UCS_PTR_IS_PTR(reply_post(reply, ep)))
        reply_give(reply);
}
