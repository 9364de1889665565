/* move_file.c - a file as shared memory: the agent maps the same pages, so no byte is copied here.
 */
#include "ctl/move.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/fd.h"
#include "base/guard.h"
#include "base/mem.h"

#define DIGEST_STEP (1u << 20)

static enum nxl_code file_map(struct move_file *file, struct nxl_err *err)
{
    void *base;

    if (file->size > SIZE_MAX / 2)
        return nxl_err_set(err, NXL_LIMIT, 0, "'%.200s' is too long to be mapped", file->path);
    base = mmap(NULL, (size_t)file->size, PROT_READ | PROT_WRITE, MAP_SHARED, file->fd, 0);
    if (base == MAP_FAILED)
        return nxl_err_set(err, NXL_IO, errno,
                           "map '%.200s' as shared memory: some file systems cannot, put it on "
                           "another one",
                           file->path);
    file->base = base;
    nxl_guard_install();
    file->guard = nxl_guard_add(base, (size_t)file->size);
    if (file->guard < 0)
        return nxl_err_set(err, NXL_LIMIT, 0, "watch the mapping of '%.200s'", file->path);
    return NXL_OK;
}

enum nxl_code move_file_open(const char *path, struct move_file *file, struct nxl_err *err)
{
    struct stat st;

    file->path = nxl_strdup(path);
    file->fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (file->fd < 0)
        return nxl_err_set(err, NXL_IO, errno,
                           "open '%.200s' for reading and writing (registered memory must be both)",
                           path);
    if (fstat(file->fd, &st) != 0)
        return nxl_err_set(err, NXL_IO, errno, "look at '%.200s'", path);
    if (!S_ISREG(st.st_mode))
        return nxl_err_set(err, NXL_INVALID_PARAM, 0,
                           "'%.200s' is no regular file: only those can be mapped", path);
    if (st.st_size == 0)
        return nxl_err_set(err, NXL_INVALID_PARAM, 0, "'%.200s' is empty: nothing to put", path);
    file->size = (uint64_t)st.st_size;
    return file_map(file, err);
}

enum nxl_code move_file_create(const char *path, uint64_t size, struct move_file *file,
                               struct nxl_err *err)
{
    struct stat st;
    int error;

    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
        return nxl_err_set(err, NXL_INVALID_PARAM, 0, "'%.200s' exists and is no regular file",
                           path);
    file->path = nxl_strdup(path);
    file->beside = nxl_format("%s.%016llx.part", path, (unsigned long long)nxl_random_u64());
    file->fd = open(file->beside, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (file->fd < 0) {
        nxl_freep(&file->beside); /* nothing to remove */
        return nxl_err_set(err, NXL_IO, errno, "create a file beside '%.200s'", path);
    }
    file->size = size;
    /* Room now: a full disk would else be found by whoever touches the page. */
    error = size > INT64_MAX ? EFBIG : posix_fallocate(file->fd, 0, (off_t)size);
    if (error != 0)
        return nxl_err_set(err, NXL_IO, error, "make room for %llu bytes at '%.200s'",
                           (unsigned long long)size, path);
    return file_map(file, err);
}

enum nxl_code move_file_digest(struct move_file *file, uint64_t size, uint64_t *ret,
                               struct nxl_err *err)
{
    XXH64_state_t *state = XXH64_createState();
    uint64_t digest;

    if (state == NULL)
        return nxl_err_set(err, NXL_LIMIT, ENOMEM, "compute the digest");
    (void)XXH64_reset(state, 0); /* fails for NULL only */
    for (uint64_t at = 0; at < size && !nxl_guard_lost(file->guard); at += DIGEST_STEP) {
        uint64_t step = size - at < DIGEST_STEP ? size - at : DIGEST_STEP;

        (void)XXH64_update(state, file->base + at, (size_t)step); /* fails for NULL only */
    }
    digest = XXH64_digest(state);
    (void)XXH64_freeState(state);
    if (nxl_guard_lost(file->guard))
        return nxl_err_set(err, NXL_MEMORY_LOST, 0, "'%.200s' was made shorter meanwhile",
                           file->path);
    *ret = digest;
    return NXL_OK;
}

enum nxl_code move_file_keep(struct move_file *file, struct nxl_err *err)
{
    struct stat st;
    mode_t mask = umask(0), mode;

    (void)umask(mask);
    mode = stat(file->path, &st) == 0 ? st.st_mode & 0777 : 0666 & ~mask;
    if (fchmod(file->fd, mode) != 0)
        return nxl_err_set(err, NXL_IO, errno, "set the mode of '%.200s'", file->path);
    if (rename(file->beside, file->path) != 0)
        return nxl_err_set(err, NXL_IO, errno, "rename '%.200s' to its final name", file->beside);
    nxl_freep(&file->beside);
    return NXL_OK;
}

void move_file_fini(struct move_file *file)
{
    if (file->base != NULL) {
        if (file->guard >= 0)
            nxl_guard_remove(file->guard);
        (void)munmap(file->base, (size_t)file->size); /* ours: cannot fail */
    }
    nxl_closep(&file->fd);
    if (file->beside != NULL)
        (void)unlink(file->beside); /* best effort: the error that led here is the one to report */
    free(file->beside);
    free(file->path);
    *file = (struct move_file){.fd = -1, .guard = -1};
}
