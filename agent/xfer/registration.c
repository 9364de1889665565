/* registration.c - maps a client's files once and registers ranges of them on every backend that
 * takes them, or on none. Loop thread. */
#include "xfer/registration.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/guard.h"
#include "base/log.h"
#include "base/mem.h"

#ifndef F_GET_SEALS
#define F_GET_SEALS 1034
#endif
#ifndef F_SEAL_SHRINK
#define F_SEAL_SHRINK 0x0002
#endif

static int is_memfd(int fd)
{
    char path[64], target[64];
    ssize_t size;

    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    size = readlink(path, target, sizeof(target) - 1);
    if (size < 0)
        return 0;
    target[size] = '\0';
    return strncmp(target, "/memfd:", 7) == 0;
}

/* A memfd can promise not to shrink, so it must. Other shared files cannot; for them the guard
 * turns a truncation into NXL_MEMORY_LOST. */
static enum nxl_code file_check(int fd, uint32_t fd_index, struct stat *ret_st, struct nxl_err *err)
{
    int flags = fcntl(fd, F_GETFL);

    if (flags < 0 || fstat(fd, ret_st) != 0)
        return nxl_err_set(err, NXL_INVALID_PARAM, errno, "descriptor %u of the call", fd_index);
    if (!S_ISREG(ret_st->st_mode))
        return nxl_err_set(err, NXL_INVALID_PARAM, 0, "descriptor %u is not a memory file",
                           fd_index);
    if ((flags & O_ACCMODE) != O_RDWR)
        return nxl_err_set(err, NXL_NOT_ALLOWED, 0,
                           "descriptor %u is not open for reading and writing", fd_index);
    if (is_memfd(fd)) {
        int seals = fcntl(fd, F_GET_SEALS);

        if (seals < 0 || (seals & F_SEAL_SHRINK) == 0)
            return nxl_err_set(
                err, NXL_NOT_ALLOWED, 0,
                "descriptor %u is a memfd without F_SEAL_SHRINK: it could be cut off under a "
                "running "
                "transfer; seal it (nxl_alloc does) or create it with MFD_ALLOW_SEALING",
                fd_index);
    }
    return NXL_OK;
}

static struct xfer_mapping *mapping_find(struct nxl_xfer_session *session,
                                         const struct xfer_file *file)
{
    struct xfer_mapping *mapping;

    HASH_FIND(hh, session->mappings, file, sizeof(*file), mapping);
    return mapping;
}

static void mapping_make_current(struct nxl_xfer_session *session, struct xfer_mapping *mapping)
{
    struct xfer_mapping *before = mapping_find(session, &mapping->file);

    if (before != NULL) {
        HASH_DEL(session->mappings, before);
        before->current = 0;
    }
    HASH_ADD(hh, session->mappings, file, sizeof(mapping->file), mapping);
    mapping->current = 1;
}

static enum nxl_code mapping_open(struct nxl_xfer_session *session, int fd, const struct stat *st,
                                  struct xfer_mapping **ret, struct nxl_err *err)
{
    const struct xfer_limits *limits = &session->xfer->limits;
    struct xfer_mapping *mapping;

    if (session->mapping_count >= limits->files)
        return nxl_err_set(
            err, NXL_LIMIT, 0,
            "%u memory files of this session are mapped, limits.files allows no more",
            session->mapping_count);
    if (session->xfer->mapping_count >= limits->files_total)
        return nxl_err_set(
            err, NXL_LIMIT, 0,
            "%u memory files of all sessions are mapped, limits.files_total allows no more",
            session->xfer->mapping_count);
    if ((uint64_t)st->st_size > limits->registered_bytes - session->mapped_bytes)
        return nxl_err_set(err, NXL_LIMIT, 0,
                           "a memory file of %llu bytes, more than limits.registered allows",
                           (unsigned long long)st->st_size);
    mapping = nxl_new0(sizeof(*mapping));
    mapping->file = (struct xfer_file){.dev = st->st_dev, .ino = st->st_ino};
    mapping->size = (uint64_t)st->st_size;
    mapping->base = mmap(NULL, mapping->size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (mapping->base == MAP_FAILED) {
        int os = errno;

        free(mapping);
        return nxl_err_set(err, NXL_IO, os, "map a memory file of %llu bytes",
                           (unsigned long long)st->st_size);
    }
    mapping->guard = nxl_guard_add(mapping->base, mapping->size);
    if (mapping->guard < 0) { /* unguarded, a truncated file would end this process */
        (void)munmap(mapping->base, mapping->size);
        free(mapping);
        return nxl_err_set(err, NXL_LIMIT, 0,
                           "this agent has mapped as many memory files as it can watch");
    }
    session->mapping_count++;
    session->xfer->mapping_count++;
    session->mapped_bytes += mapping->size;
    mapping_make_current(session, mapping);
    *ret = mapping;
    return NXL_OK;
}

/* A file that grew since it was mapped gets a second mapping; the old one lives as long as used. */
static enum nxl_code mapping_get(struct nxl_xfer_session *session, int fd, uint32_t fd_index,
                                 uint64_t need, struct xfer_mapping **ret, struct nxl_err *err)
{
    struct stat st;
    struct xfer_file file;
    struct xfer_mapping *mapping;
    enum nxl_code code = file_check(fd, fd_index, &st, err);

    if (code != NXL_OK)
        return code;
    if (need > (uint64_t)st.st_size)
        return nxl_err_set(err, NXL_INVALID_PARAM, 0,
                           "the range ends at byte %llu of a file that has %llu",
                           (unsigned long long)need, (unsigned long long)st.st_size);
    file = (struct xfer_file){.dev = st.st_dev, .ino = st.st_ino};
    mapping = mapping_find(session, &file);
    if (mapping != NULL && mapping->size >= need && !nxl_guard_lost(mapping->guard)) {
        *ret = mapping;
        return NXL_OK;
    }
    return mapping_open(session, fd, &st, ret, err);
}

void xfer_mapping_unref(struct nxl_xfer_session *session, struct xfer_mapping *mapping)
{
    if (--mapping->refs > 0)
        return;
    if (mapping->current)
        HASH_DEL(session->mappings, mapping);
    session->mapping_count--;
    session->xfer->mapping_count--;
    session->mapped_bytes -= mapping->size;
    nxl_guard_remove(mapping->guard);
    if (!mapping->doubtful) {
        munmap(mapping->base, mapping->size);
    } else if (mmap(mapping->base, mapping->size, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED) {
        nxl_warn("memory", "event=\"could not replace a doubtful mapping\" bytes=%llu",
                 (unsigned long long)mapping->size);
    }
    free(mapping);
}

static enum nxl_code region_check(struct nxl_xfer_session *session, const struct nxl_xfer_region *r,
                                  uint32_t index, uint32_t fd_count, struct nxl_err *err)
{
    const struct xfer_limits *limits = &session->xfer->limits;

    if (r->kind != NXL_MEM_DRAM)
        return nxl_err_set(err, NXL_NOT_SUPPORTED, 0,
                           "region %u: memory kind %u; this agent registers DRAM (0)", index,
                           r->kind);
    if (r->len == 0)
        return nxl_err_set(err, NXL_INVALID_PARAM, 0, "region %u at 0x%llx has no length", index,
                           (unsigned long long)r->addr);
    if (r->addr + r->len < r->addr || r->fd_offset + r->len < r->fd_offset)
        return nxl_err_set(err, NXL_INVALID_PARAM, 0,
                           "region %u: address 0x%llx plus length %llu overflows", index,
                           (unsigned long long)r->addr, (unsigned long long)r->len);
    if (r->fd_index >= fd_count)
        return nxl_err_set(err, NXL_INVALID_PARAM, 0, "region %u names descriptor %u of %u", index,
                           r->fd_index, fd_count);
    if (session->region_count >= limits->regions) {
        return nxl_err_set(err, NXL_LIMIT, 0,
                           "region %u: this session has %u regions, limits.regions allows no more",
                           index, session->region_count);
    }
    if (r->len > limits->registered_bytes - session->registered_bytes)
        return nxl_err_set(err, NXL_LIMIT, 0,
                           "region %u: %llu bytes more than limits.registered allows", index,
                           (unsigned long long)r->len);
    return NXL_OK;
}

void xfer_region_backends_close(struct nxl_xfer *xfer, struct nxl_catalog_region *region)
{
    for (uint32_t i = nxl_hosts_count(xfer->hosts); i-- > 0;) {
        struct nxl_instance *instance = nxl_hosts_at(xfer->hosts, i);
        struct nxl_err err = {0};

        if (region->mems[i] == NULL)
            continue;
        if (nxl_instance_deregister(instance, region->mems[i], &err) != NXL_OK) {
            /* The backend keeps its pin; the mapping must stay valid for it. */
            nxl_error(
                "memory", "event=\"backend did not let a region go\" backend=%s region=%llu why=%s",
                nxl_instance_name(instance), (unsigned long long)region->id, nxl_quote(err.text));
            xfer_count_error(xfer, NXL_BACKEND);
            ((struct xfer_mapping *)region->mapping)->doubtful = 1;
        }
        region->mems[i] = NULL;
    }
}

/* Best effort over backends, but at least one must take it. */
static enum nxl_code region_backends_open(struct nxl_xfer *xfer, struct nxl_catalog_region *region,
                                          int fd, struct nxl_err *err)
{
    struct xfer_mapping *mapping = region->mapping;
    struct nxl_memory memory = {.kind = (int32_t)region->kind,
                                .device = region->device,
                                .base = region->base,
                                .size = region->len,
                                .fd = fd,
                                .fd_offset = (uint64_t)(region->base - mapping->base)};
    uint32_t taken = 0, tried = 0;
    struct nxl_err why = {0};

    for (uint32_t i = 0; i < nxl_hosts_count(xfer->hosts); i++) {
        struct nxl_instance *instance = nxl_hosts_at(xfer->hosts, i);

        if ((nxl_instance_caps(instance)->mem_kinds & (1u << region->kind)) == 0)
            continue;
        tried++;
        if (nxl_instance_register(instance, &memory, &region->mems[i], &why) == NXL_OK) {
            taken++;
            continue;
        }
        nxl_warn(
            "memory",
            "event=\"backend refused a region, ignoring it there\" backend=%s bytes=%llu why=%s",
            nxl_instance_name(instance), (unsigned long long)region->len, nxl_quote(why.text));
    }
    if (taken > 0)
        return NXL_OK;
    if (tried == 0)
        return nxl_err_set(err, NXL_NOT_SUPPORTED, 0, "no enabled backend takes memory kind %u",
                           region->kind);
    return nxl_err_set(err, NXL_BACKEND, why.os, "no backend took the region: %s", why.text);
}

static enum nxl_code region_open(struct xfer_peer *peer, const struct nxl_xfer_region *r, int fd,
                                 struct nxl_catalog_region **ret, struct nxl_err *err)
{
    struct nxl_xfer_session *session = peer->session;
    struct nxl_xfer *xfer = session->xfer;
    struct xfer_mapping *mapping;
    struct nxl_catalog_region *region;
    enum nxl_code code =
        mapping_get(session, fd, r->fd_index, r->fd_offset + r->len, &mapping, err);

    if (code != NXL_OK)
        return code;
    mapping->refs++;
    region = nxl_catalog_region_new(peer->peer, ++xfer->next_region, r->addr, r->len, r->kind,
                                    r->device);
    region->mapping = mapping;
    region->base = mapping->base + r->fd_offset;
    code = region_backends_open(xfer, region, fd, err);
    if (code == NXL_OK)
        code = nxl_region_table_add(peer->peer->regions, region, err);
    if (code != NXL_OK) {
        xfer_region_backends_close(xfer, region);
        nxl_catalog_region_free(region);
        xfer_mapping_unref(session, mapping);
        return code;
    }
    session->region_count++;
    session->registered_bytes += r->len;
    nxl_metric_move(xfer->metrics.regions, 1);
    *ret = region;
    return NXL_OK;
}

static void region_undo(struct xfer_peer *peer, struct nxl_catalog_region *region)
{
    nxl_region_table_remove(peer->peer->regions, region);
    xfer_region_finish(peer->session->xfer, region);
}

enum nxl_code nxl_xfer_register(struct nxl_xfer_session *session, uint32_t peer_id,
                                const struct nxl_xfer_region *regions, uint32_t count,
                                const int *fds, uint32_t fd_count, uint64_t *ret_ids,
                                struct nxl_err *err)
{
    struct nxl_xfer *xfer = session->xfer;
    struct xfer_peer *peer = xfer_peer_find(session, peer_id, err);
    NXL_CLEANUP(nxl_freep) struct nxl_catalog_region **made = NULL;
    uint64_t bytes = 0;

    if (peer == NULL)
        return NXL_NOT_FOUND;
    made = nxl_new0_array(count + 1, sizeof(struct nxl_catalog_region *));
    for (uint32_t i = 0; i < count; i++) {
        enum nxl_code code = region_check(session, &regions[i], i, fd_count, err);

        if (code == NXL_OK) {
            code = region_open(peer, &regions[i], fds[regions[i].fd_index], &made[i], err);
            if (code != NXL_OK)
                code = nxl_err_wrap(err, code, "region %u at 0x%llx, %llu bytes", i,
                                    (unsigned long long)regions[i].addr,
                                    (unsigned long long)regions[i].len);
        }
        if (code != NXL_OK) { /* all or none (C-002) */
            while (i-- > 0)
                region_undo(peer, made[i]);
            xfer_count_error(xfer, code);
            return code;
        }
        bytes += regions[i].len;
    }
    for (uint32_t i = 0; i < count; i++)
        ret_ids[i] = made[i]->id;
    peer->peer->revision = ++xfer->next_sequence;
    xfer_tell_region_added(peer, made, count);
    nxl_metric_add(xfer->metrics.registered, bytes);
    nxl_metric_set(xfer->metrics.registered_last, (int64_t)bytes);
    return NXL_OK;
}
