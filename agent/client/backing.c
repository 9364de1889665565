/* backing.c - from an address to an open file: our own allocations, then /proc/self/maps and
 * /proc/self/fd. Called with the client's work lock. */
#include "client/backing.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "client/alloc.h"

struct mapping {
    uint64_t start, end, offset, ino;
    uint64_t dev;
    int shared;
    char *path; /* owned; NULL: none */
};

struct nxl_backing_scan {
    struct nxl_backing **list;
    struct mapping *maps; /* sorted, as the kernel prints them */
    size_t count, room;
    int read; /* maps were read */
};

struct nxl_backing_scan *nxl_backing_scan_new(struct nxl_backing **list)
{
    struct nxl_backing_scan *scan = calloc(1, sizeof(*scan));

    if (scan)
        scan->list = list;
    return scan;
}

void nxl_backing_scan_free(struct nxl_backing_scan *scan)
{
    if (!scan)
        return;
    for (size_t i = 0; i < scan->count; i++)
        free(scan->maps[i].path);
    free(scan->maps);
    free(scan);
}

/* ---- files ------------------------------------------------------------------------------ */

void nxl_backing_ref(struct nxl_backing *backing)
{
    backing->refs++;
}

void nxl_backing_unref(struct nxl_backing **list, struct nxl_backing *backing)
{
    if (!backing || --backing->refs > 0)
        return;
    while (*list && *list != backing)
        list = &(*list)->next;
    if (*list)
        *list = backing->next;
    close(backing->fd);
    free(backing);
}

static struct nxl_backing *backing_known(struct nxl_backing *list, uint64_t dev, uint64_t ino)
{
    while (list && (list->dev != dev || list->ino != ino))
        list = list->next;
    return list;
}

/* Takes fd, also on failure. */
static enum nxl_code backing_add(struct nxl_backing_scan *scan, int fd, struct nxl_backing **ret,
                                 struct nxl_err *err)
{
    struct nxl_backing *backing;
    struct stat st;

    if (fstat(fd, &st) != 0) {
        enum nxl_code code = nxl_err_set(err, NXL_IO, errno, "look at the memory's file");

        close(fd);
        return code;
    }
    backing = backing_known(*scan->list, st.st_dev, st.st_ino);
    if (backing) {
        close(fd);
    } else {
        backing = calloc(1, sizeof(*backing));
        if (!backing) {
            close(fd);
            return nxl_err_set(err, NXL_LIMIT, ENOMEM, "remember the memory's file");
        }
        backing->dev = st.st_dev;
        backing->ino = st.st_ino;
        backing->fd = fd;
        backing->next = *scan->list;
        *scan->list = backing;
    }
    backing->refs++;
    *ret = backing;
    return NXL_OK;
}

/* A memfd whose owner may shrink it would take pages away under the agent's feet. */
static enum nxl_code seal_memfd(int fd, struct nxl_err *err)
{
    int seals = fcntl(fd, F_GET_SEALS);

    if (seals < 0 || seals & F_SEAL_SHRINK)
        return NXL_OK;
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0)
        return NXL_OK;
    return nxl_err_set(
        err, NXL_NOT_ALLOWED, errno,
        "its memfd has no F_SEAL_SHRINK and the seal cannot be added: create it with "
        "MFD_ALLOW_SEALING, or use nxl_alloc()");
}

/* ---- mappings --------------------------------------------------------------------------- */

static int mapping_parse(const char *line, struct mapping *ret)
{
    unsigned major_no, minor_no;
    char perms[8];
    int used = 0;
    size_t size;

    memset(ret, 0, sizeof(*ret));
    if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %7s %" SCNx64 " %x:%x %" SCNu64 " %n", &ret->start,
               &ret->end, perms, &ret->offset, &major_no, &minor_no, &ret->ino, &used) < 7)
        return 0;
    ret->dev = makedev(major_no, minor_no);
    ret->shared = perms[3] == 's';
    size = strcspn(line + used, "\n");
    if (ret->shared && size > 0)
        ret->path = strndup(line + used, size);
    return 1;
}

static enum nxl_code scan_read(struct nxl_backing_scan *scan, struct nxl_err *err)
{
    FILE *file;
    char *line = NULL;
    size_t line_room = 0;
    enum nxl_code code = NXL_OK;

    if (scan->read)
        return NXL_OK;
    file = fopen("/proc/self/maps", "re");
    if (!file)
        return nxl_err_set(err, NXL_IO, errno, "read /proc/self/maps to find the memory's file");
    while (code == NXL_OK && getline(&line, &line_room, file) > 0) {
        struct mapping mapping;

        if (!mapping_parse(line, &mapping))
            continue;
        if (scan->count == scan->room) {
            size_t room = scan->room ? scan->room * 2 : 256;
            struct mapping *maps = realloc(scan->maps, room * sizeof(*maps));

            if (!maps) {
                free(mapping.path);
                code = nxl_err_set(err, NXL_LIMIT, ENOMEM, "read /proc/self/maps");
                break;
            }
            scan->maps = maps;
            scan->room = room;
        }
        scan->maps[scan->count++] = mapping;
    }
    free(line);
    fclose(file);
    scan->read = code == NXL_OK;
    return code;
}

static const struct mapping *scan_mapping(const struct nxl_backing_scan *scan, uint64_t addr)
{
    size_t low = 0, high = scan->count;

    while (low < high) {
        size_t middle = (low + high) / 2;

        if (scan->maps[middle].end <= addr)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == scan->count || addr < scan->maps[low].start)
        return NULL;
    return &scan->maps[low];
}

/* 1 if this is the mapping's file: same inode, and same device or (file systems that print another
 * device in maps) same name. */
static int file_is(const struct stat *st, const char *link, const struct mapping *mapping)
{
    char path[4096];
    ssize_t size;

    if (st->st_ino != mapping->ino)
        return 0;
    if (st->st_dev == mapping->dev)
        return 1;
    size = readlink(link, path, sizeof(path) - 1);
    if (size < 0 || !mapping->path)
        return 0;
    path[size] = '\0';
    return strcmp(path, mapping->path) == 0;
}

/* 1 if our own descriptor is the mapping's file, open for reading and writing. */
static int fd_is(int fd, const struct mapping *mapping)
{
    char link[32];
    struct stat st;

    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    return (fcntl(fd, F_GETFL) & (O_ACCMODE | O_PATH)) == O_RDWR && fstat(fd, &st) == 0 &&
           file_is(&st, link, mapping);
}

/* A descriptor of our own for the file behind the application's descriptor number; -1: it is
 * another file. The application may close it at any time, so it is looked at by name, and what we
 * then hold is checked again. */
static int take_open(const char *number, const struct mapping *mapping)
{
    char link[64];
    struct stat st;
    int fd;

    snprintf(link, sizeof(link), "/proc/self/fd/%.20s", number);
    if (stat(link, &st) != 0 || !file_is(&st, link, mapping))
        return -1;
    fd = open(link, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) /* no right to open it, but it may be open with that right */
        fd = fcntl(atoi(number), F_DUPFD_CLOEXEC, 3);
    if (fd < 0 || fd_is(fd, mapping))
        return fd;
    close(fd);
    return -1;
}

/* A descriptor for the mapping's file, found among those that this process has open; -1: none. */
static int find_open(const struct mapping *mapping)
{
    DIR *dir = opendir("/proc/self/fd");
    struct dirent *entry;
    int found = -1;

    if (!dir)
        return -1;
    while (found < 0 && (entry = readdir(dir)) != NULL)
        if (entry->d_name[0] != '.')
            found = take_open(entry->d_name, mapping);
    closedir(dir);
    return found;
}

/* By name, then through map_files, which needs a privilege but also finds nameless memory. */
static int reopen(const struct mapping *mapping)
{
    char link[80];
    int fd = -1;

    if (mapping->path && mapping->path[0] == '/')
        fd = open(mapping->path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd >= 0 && fd_is(fd, mapping))
        return fd;
    if (fd >= 0)
        close(fd);
    snprintf(link, sizeof(link), "/proc/self/map_files/%" PRIx64 "-%" PRIx64, mapping->start,
             mapping->end);
    fd = open(link, O_RDWR | O_CLOEXEC);
    if (fd >= 0 && fd_is(fd, mapping))
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

static enum nxl_code mapping_open(struct nxl_backing_scan *scan, const struct mapping *mapping,
                                  struct nxl_backing **ret, struct nxl_err *err)
{
    struct nxl_backing *known = backing_known(*scan->list, mapping->dev, mapping->ino);
    enum nxl_code code;
    int fd;

    if (known) {
        known->refs++;
        *ret = known;
        return NXL_OK;
    }
    fd = find_open(mapping);
    if (fd < 0)
        fd = reopen(mapping);
    if (fd < 0)
        return nxl_err_set(
            err, NXL_NOT_SUPPORTED, 0,
            "its file '%s' is neither open for reading and writing in this process "
            "nor can it be opened again: keep the descriptor open, or use nxl_alloc()",
            mapping->path ? mapping->path : "");
    if (mapping->path && strncmp(mapping->path, "/memfd:", 7) == 0) {
        code = seal_memfd(fd, err);
        if (code != NXL_OK) {
            close(fd);
            return code;
        }
    }
    return backing_add(scan, fd, ret, err);
}

static enum nxl_code check_end(struct nxl_backing_scan *scan, struct nxl_backing *backing,
                               uint64_t offset, uint64_t len, struct nxl_err *err)
{
    struct stat st;

    if (fstat(backing->fd, &st) == 0 &&
        (!S_ISREG(st.st_mode) || offset + len <= (uint64_t)st.st_size))
        return NXL_OK;
    nxl_backing_unref(scan->list, backing);
    return nxl_err_set(err, NXL_INVALID_PARAM, 0,
                       "it ends %" PRIu64 " bytes into its file, past the file's end",
                       offset + len);
}

static enum nxl_code find_mapped(struct nxl_backing_scan *scan, uint64_t addr, uint64_t len,
                                 struct nxl_backing **ret, uint64_t *ret_offset,
                                 struct nxl_err *err)
{
    const struct mapping *mapping;
    struct nxl_backing *backing;
    enum nxl_code code;

    code = scan_read(scan, err);
    if (code != NXL_OK)
        return code;
    mapping = scan_mapping(scan, addr);
    if (!mapping)
        return nxl_err_set(err, NXL_INVALID_PARAM, 0, "nothing is mapped there");
    if (!mapping->shared)
        return nxl_err_set(err, NXL_NOT_SUPPORTED, 0,
                           "it is private memory, which the agent cannot map: allocate it with "
                           "nxl_alloc(), or map a file or memfd with MAP_SHARED");
    if (len > mapping->end - addr)
        return nxl_err_set(err, NXL_INVALID_PARAM, 0,
                           "only its first %" PRIu64 " bytes lie in one mapping: register each "
                           "mapping by itself",
                           mapping->end - addr);
    code = mapping_open(scan, mapping, &backing, err);
    if (code != NXL_OK)
        return code;
    code = check_end(scan, backing, mapping->offset + (addr - mapping->start), len, err);
    if (code != NXL_OK)
        return code;
    *ret_offset = mapping->offset + (addr - mapping->start);
    *ret = backing;
    return NXL_OK;
}

enum nxl_code nxl_backing_find(struct nxl_backing_scan *scan, uint64_t addr, uint64_t len,
                               struct nxl_backing **ret, uint64_t *ret_offset, struct nxl_err *err)
{
    uint64_t base, size;
    enum nxl_code code;
    int fd;

    if (!nxl_alloc_find(addr, &fd, &base, &size))
        return find_mapped(scan, addr, len, ret, ret_offset, err);
    if (len > size - (addr - base)) {
        close(fd);
        return nxl_err_set(err, NXL_INVALID_PARAM, 0,
                           "only its first %" PRIu64 " bytes lie in that nxl_alloc() block",
                           size - (addr - base));
    }
    code = backing_add(scan, fd, ret, err);
    if (code == NXL_OK)
        *ret_offset = addr - base;
    return code;
}
