/* fd.c - owned descriptors, small whole files, random bytes. Any thread; may block on the disk. */
#include "base/fd.h"
#include "base/assert.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_CHUNK 4096u

void nxl_closep(int *fd)
{
    int saved = errno;

    if (*fd >= 0)
        (void)close(*fd); /* Linux releases the descriptor whatever close() says */
    *fd = -1;
    errno = saved;
}

/* Sizes are not trusted: files under /proc and /sys say 0. */
static enum nxl_code read_whole(int fd, const char *path, size_t limit_bytes, char **ret,
                                size_t *ret_size, struct nxl_err *err)
{
    NXL_CLEANUP(nxl_freep) char *data = NULL;
    size_t size = 0, room = 0;

    for (;;) {
        ssize_t got;

        if (room - size < FILE_CHUNK) {
            room = room ? room * 2 : 2 * FILE_CHUNK;
            data = nxl_resize(data, room, 1);
        }
        got = read(fd, data + size, room - size - 1);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return nxl_err_set(err, NXL_IO, errno, "read '%s'", path);
        if (got == 0)
            break;
        size += (size_t)got;
        if (size > limit_bytes)
            return nxl_err_set(err, NXL_LIMIT, 0, "read '%s': longer than the limit of %zu bytes",
                               path, limit_bytes);
    }
    data[size] = '\0';
    *ret = NXL_TAKE(data);
    if (ret_size)
        *ret_size = size;
    return NXL_OK;
}

enum nxl_code nxl_read_file(const char *path, size_t limit_bytes, char **ret, size_t *ret_size,
                            struct nxl_err *err)
{
    /* Not blocking: a fifo put in place of a file must not hang the caller. */
    NXL_CLEANUP(nxl_closep) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);

    if (fd < 0)
        return nxl_err_set(err, NXL_IO, errno, "open '%s'", path);
    return read_whole(fd, path, limit_bytes, ret, ret_size, err);
}

static enum nxl_code write_whole(int fd, const char *path, const void *data, size_t size,
                                 unsigned mode, struct nxl_err *err)
{
    const char *at = data;

    if (fchmod(fd, (mode_t)mode) < 0)
        return nxl_err_set(err, NXL_IO, errno, "set mode %o of '%s'", mode, path);
    while (size > 0) {
        ssize_t put = write(fd, at, size);

        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return nxl_err_set(err, NXL_IO, errno, "write '%s'", path);
        at += put;
        size -= (size_t)put;
    }
    if (fsync(fd) < 0 && errno != EINVAL) /* some file systems have no fsync */
        return nxl_err_set(err, NXL_IO, errno, "flush '%s'", path);
    return NXL_OK;
}

enum nxl_code nxl_write_file(const char *path, const void *data, size_t size, unsigned mode,
                             struct nxl_err *err)
{
    NXL_CLEANUP(nxl_freep)
    char *beside = nxl_format("%s.%016llx.tmp", path, (unsigned long long)nxl_random_u64());
    NXL_CLEANUP(nxl_closep)
    int fd = open(beside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    enum nxl_code code;

    if (fd < 0)
        return nxl_err_set(err, NXL_IO, errno, "create '%s'", beside);
    code = write_whole(fd, beside, data, size, mode, err);
    if (code == NXL_OK && rename(beside, path) < 0)
        code = nxl_err_set(err, NXL_IO, errno, "rename '%s' to '%s'", beside, path);
    if (code != NXL_OK)
        (void)unlink(beside); /* best effort: the error above is the one to report */
    return code;
}

void nxl_random(void *to, size_t size)
{
    unsigned char *at = to;

    while (size > 0) {
        ssize_t got = getrandom(at, size, 0);

        if (got < 0 && errno == EINTR)
            continue;
        NXL_ASSERT(got > 0);
        at += got;
        size -= (size_t)got;
    }
}

uint64_t nxl_random_u64(void)
{
    uint64_t value;

    nxl_random(&value, sizeof(value));
    return value;
}
