/* memory.c - register, deregister, export and import. The calls come from the loop thread; the
 * table of regions is also read by the progress thread, for messages of others, under its lock. */
#include "ucx.h"

#include "status.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#define KEY_MAGIC 0x4b4c584eu
#define KEY_VERSION 1u
#define UNPIN_WAIT_NS (100 * 1000000l)

/* An exported key: this head, then UCX's rkey. Little endian. */
struct key_head {
    uint32_t magic;
    uint16_t version, rkey_size;
    uint64_t base, size, nonce;
    uint32_t slot, reserved;
    uint64_t checksum; /* of all before it and of the rkey: UCX itself trusts what it unpacks */
};
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "keys and messages travel as they lie in memory");
_Static_assert(sizeof(struct key_head) == 48, "no hidden padding in a key");

/* FNV-1a. */
uint64_t ucx_checksum(const void *data, size_t size, uint64_t seed)
{
    const uint8_t *bytes = data;
    uint64_t sum = seed ? seed : UINT64_C(0xcbf29ce484222325);

    for (size_t i = 0; i < size; i++)
        sum = (sum ^ bytes[i]) * UINT64_C(0x100000001b3);
    return sum;
}

/* Under regions.lock. */
static enum nxl_code region_list(struct nxl_backend *backend, struct nxl_backend_mem *mem,
                                 struct nxl_err *err)
{
    static const uint32_t first_room = 64;
    uint32_t slot = mem->slot;

    if (slot == UINT32_MAX) {
        uint32_t room = backend->regions.room ? backend->regions.room * 2 : first_room;
        struct nxl_backend_mem **slots =
            realloc(backend->regions.slots, room * sizeof(struct nxl_backend_mem *));

        if (slots == NULL)
            return nxl_err_set(err, NXL_LIMIT, 0, "no memory for the table of %u regions", room);
        for (uint32_t i = backend->regions.room; i < room; i++)
            slots[i] = NULL;
        slot = backend->regions.room;
        backend->regions.slots = slots;
        backend->regions.room = room;
    }
    mem->slot = slot;
    mem->listed = 1;
    backend->regions.slots[slot] = mem;
    backend->regions.next_free = slot + 1;
    return NXL_OK;
}

/* Under regions.lock. Amortised: searching resumes behind the last slot that was given out. */
static uint32_t slot_find(const struct nxl_backend *backend)
{
    for (uint32_t i = backend->regions.next_free; i < backend->regions.room; i++)
        if (backend->regions.slots[i] == NULL)
            return i;
    return UINT32_MAX;
}

static ucs_status_t mem_unmap(struct nxl_backend *backend, struct nxl_backend_mem *mem)
{
    return mem->memh != NULL ? backend->lib.ucp_mem_unmap(backend->context, mem->memh) : UCS_OK;
}

enum nxl_code ucx_register(struct nxl_backend *backend, const struct nxl_memory *memory,
                           struct nxl_backend_mem **ret, struct nxl_err *err)
{
    ucp_mem_map_params_t params = {
        .field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH,
        .address = memory->base,
        .length = memory->size,
    };
    struct nxl_backend_mem *mem;
    ucs_status_t status;
    enum nxl_code code;

    if (memory->kind != NXL_MEM_DRAM || memory->base == NULL || memory->size == 0)
        return nxl_err_set(err, NXL_NOT_SUPPORTED, 0, "ucx registers mapped DRAM only, not kind %d",
                           memory->kind);
    mem = calloc(1, sizeof(*mem));
    if (mem == NULL)
        return nxl_err_set(err, NXL_LIMIT, 0, "no memory for a region record");
    mem->base = memory->base;
    mem->size = memory->size;
    if (getrandom(&mem->nonce, sizeof(mem->nonce), 0) != sizeof(mem->nonce)) {
        free(mem);
        return nxl_err_set(err, NXL_IO, errno, "getrandom for a region's nonce");
    }
    /* Messages need no registration with UCX. */
    status = backend->settings.rma ? backend->lib.ucp_mem_map(backend->context, &params, &mem->memh)
                                   : UCS_OK;
    if (status != UCS_OK) {
        free(mem);
        return nxl_err_set(err, ucx_status_code(status), 0, "ucp_mem_map of %" PRIu64 " bytes: %s",
                           memory->size, backend->lib.ucs_status_string(status));
    }
    (void)pthread_mutex_lock(&backend->regions.lock);
    mem->slot = slot_find(backend);
    code = region_list(backend, mem, err);
    (void)pthread_mutex_unlock(&backend->regions.lock);
    if (code != NXL_OK) {
        (void)mem_unmap(backend, mem);
        free(mem);
        return code;
    }
    *ret = mem;
    return NXL_OK;
}

/* Takes the region out of others' reach and waits shortly for answers that still read it. */
static uint32_t region_unlist(struct nxl_backend *backend, struct nxl_backend_mem *mem)
{
    struct timespec until;
    uint32_t pins;

    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += UNPIN_WAIT_NS;
    until.tv_sec += until.tv_nsec / 1000000000l;
    until.tv_nsec %= 1000000000l;
    (void)pthread_mutex_lock(&backend->regions.lock);
    if (mem->listed) {
        mem->listed = 0;
        backend->regions.slots[mem->slot] = NULL;
        if (mem->slot < backend->regions.next_free)
            backend->regions.next_free = mem->slot;
    }
    while (mem->pins > 0 &&
           pthread_cond_timedwait(&backend->regions.unpinned, &backend->regions.lock, &until) == 0)
        continue;
    pins = mem->pins;
    (void)pthread_mutex_unlock(&backend->regions.lock);
    return pins;
}

enum nxl_code ucx_deregister(struct nxl_backend *backend, struct nxl_backend_mem *mem,
                             struct nxl_err *err)
{
    uint32_t pins = region_unlist(backend, mem);
    ucs_status_t status;

    if (pins > 0)
        return nxl_err_set(err, NXL_BUSY, 0,
                           "%u reads of far agents still take bytes from this region; try again",
                           pins);
    status = mem_unmap(backend, mem);
    if (status != UCS_OK)
        return nxl_err_set(err, ucx_status_code(status), 0, "ucp_mem_unmap: %s",
                           backend->lib.ucs_status_string(status));
    free(mem);
    return NXL_OK;
}

void ucx_regions_free(struct nxl_backend *backend)
{
    for (uint32_t i = 0; i < backend->regions.room; i++) {
        struct nxl_backend_mem *mem = backend->regions.slots[i];

        if (mem == NULL)
            continue;
        (void)mem_unmap(backend, mem);
        free(mem);
    }
    free(backend->regions.slots);
    backend->regions.slots = NULL;
    backend->regions.room = 0;
}

static uint64_t key_checksum(const struct key_head *head, const void *rkey)
{
    return ucx_checksum(rkey, head->rkey_size,
                        ucx_checksum(head, offsetof(struct key_head, checksum), 0));
}

enum nxl_code ucx_export(struct nxl_backend *backend, struct nxl_backend_mem *mem, void *buf,
                         size_t *ret_size, struct nxl_err *err)
{
    struct key_head head = {.magic = KEY_MAGIC, .version = KEY_VERSION};
    void *rkey = NULL;
    size_t rkey_size = 0;
    ucs_status_t status = UCS_OK;

    if (mem->memh != NULL)
        status = backend->lib.ucp_rkey_pack(backend->context, mem->memh, &rkey, &rkey_size);
    if (status != UCS_OK)
        return nxl_err_set(err, ucx_status_code(status), 0, "ucp_rkey_pack: %s",
                           backend->lib.ucs_status_string(status));
    if (sizeof(head) + rkey_size > NXL_BACKEND_KEY_MAX) {
        backend->lib.ucp_rkey_buffer_release(rkey);
        return nxl_err_set(err, NXL_LIMIT, 0,
                           "UCX's key has %zu bytes, at most %zu fit; name fewer devices in "
                           "backends.ucx.device_list",
                           rkey_size, NXL_BACKEND_KEY_MAX - sizeof(head));
    }
    head.rkey_size = (uint16_t)rkey_size;
    head.base = (uint64_t)(uintptr_t)mem->base;
    head.size = mem->size;
    head.nonce = mem->nonce;
    head.slot = mem->slot;
    head.checksum = key_checksum(&head, rkey);
    memcpy(buf, &head, sizeof(head));
    if (rkey != NULL) {
        memcpy((uint8_t *)buf + sizeof(head), rkey, rkey_size);
        backend->lib.ucp_rkey_buffer_release(rkey);
    }
    *ret_size = sizeof(head) + rkey_size;
    return NXL_OK;
}

static enum nxl_code key_check(struct nxl_view key, struct key_head *ret_head, struct nxl_err *err)
{
    struct key_head head;

    if (key.size < sizeof(head))
        return nxl_err_set(err, NXL_MISMATCH, 0,
                           "a ucx key of %zu bytes is shorter than its head of %zu", key.size,
                           sizeof(head));
    memcpy(&head, key.data, sizeof(head));
    if (head.magic != KEY_MAGIC)
        return nxl_err_set(err, NXL_MISMATCH, 0, "not a ucx key: magic 0x%08x", head.magic);
    if (head.version != KEY_VERSION)
        return nxl_err_set(err, NXL_MISMATCH, 0, "ucx key of version %u; this agent reads %u",
                           head.version, KEY_VERSION);
    if (key.size != sizeof(head) + head.rkey_size)
        return nxl_err_set(err, NXL_MISMATCH, 0, "a ucx key of %zu bytes should have %zu", key.size,
                           sizeof(head) + head.rkey_size);
    if (head.checksum != key_checksum(&head, (const uint8_t *)key.data + sizeof(head)))
        return nxl_err_set(err, NXL_MISMATCH, 0, "a ucx key is damaged: its checksum is wrong");
    if (head.size == 0 || head.base + head.size < head.base)
        return nxl_err_set(err, NXL_MISMATCH, 0, "a ucx key names an impossible range");
    *ret_head = head;
    return NXL_OK;
}

enum nxl_code ucx_import(struct nxl_backend *backend, struct nxl_backend_conn *conn,
                         struct nxl_view key, struct nxl_backend_remote **ret, struct nxl_err *err)
{
    struct nxl_backend_remote *remote;
    struct key_head head;
    enum nxl_code code = key_check(key, &head, err);

    if (code != NXL_OK)
        return code;
    remote = calloc(1, sizeof(*remote) + head.rkey_size);
    if (remote == NULL)
        return nxl_err_set(err, NXL_LIMIT, 0, "no memory for an imported key");
    remote->conn = conn;
    remote->base = head.base;
    remote->size = head.size;
    remote->nonce = head.nonce;
    remote->slot = head.slot;
    remote->rkey_size = head.rkey_size;
    memcpy(remote->rkey_bytes, (const uint8_t *)key.data + sizeof(head), head.rkey_size);
    ucx_link_init(&remote->link);
    /* Unpacking touches the endpoint, which belongs to the progress thread; commands keep their
     * order, so it is done before the first operation that names this key. */
    ucx_command_push(backend, &remote->import, UCX_COMMAND_IMPORT);
    *ret = remote;
    return NXL_OK;
}

void ucx_forget(struct nxl_backend *backend, struct nxl_backend_remote *remote)
{
    ucx_command_push(backend, &remote->forget, UCX_COMMAND_FORGET);
}

/* Never on a closing endpoint: unpacking there has crashed UCX. */
void ucx_remote_unpack(struct nxl_backend_remote *remote)
{
    struct nxl_backend_conn *conn = remote->conn;

    ucx_link_append(&conn->own.remotes, &remote->link);
    remote->status = UCS_ERR_NOT_CONNECTED;
    if (conn->own.state != UCX_CONN_OPEN || conn->own.error != UCS_OK)
        return;
    remote->status = UCS_OK;
    if (!conn->own.by_message && remote->rkey_size == 0)
        remote->status = UCS_ERR_UNSUPPORTED; /* the far agent takes messages only */
    else if (!conn->own.by_message)
        remote->status =
            conn->backend->lib.ucp_ep_rkey_unpack(conn->own.ep, remote->rkey_bytes, &remote->rkey);
}

void ucx_remote_free(struct nxl_backend_remote *remote)
{
    ucx_link_remove(&remote->link);
    if (remote->rkey != NULL)
        remote->conn->backend->lib.ucp_rkey_destroy(remote->rkey);
    free(remote);
}
