/* alloc.c - nxl_alloc(): memory behind sealed memfds that an agent can map. Any thread. */
#include "client/alloc.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <nixlet.h>

#define HUGE_PAGE (2u << 20)
#ifndef MFD_HUGE_2MB
#define MFD_HUGE_2MB (21u << 26)
#endif

struct allocation {
    uint64_t base, size;
    int fd;
};

/* Sorted by base. */
static struct {
    pthread_mutex_t lock;
    struct allocation *items;
    size_t count, room;
} table = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Index of the first allocation whose base is larger than addr. Lock held. */
static size_t table_after(uint64_t addr)
{
    size_t low = 0, high = table.count;

    while (low < high) {
        size_t middle = (low + high) / 2;

        if (table.items[middle].base <= addr)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static int table_add(struct allocation item)
{
    size_t at;

    pthread_mutex_lock(&table.lock);
    if (table.count == table.room) {
        size_t room = table.room ? table.room * 2 : 64;
        struct allocation *items = realloc(table.items, room * sizeof(*items));

        if (!items) {
            pthread_mutex_unlock(&table.lock);
            return 0;
        }
        table.items = items;
        table.room = room;
    }
    at = table_after(item.base);
    memmove(&table.items[at + 1], &table.items[at], (table.count - at) * sizeof(item));
    table.items[at] = item;
    table.count++;
    pthread_mutex_unlock(&table.lock);
    return 1;
}

int nxl_alloc_find(uint64_t addr, int *ret_fd, uint64_t *ret_base, uint64_t *ret_size)
{
    int fd = -1;
    size_t at;

    pthread_mutex_lock(&table.lock);
    at = table_after(addr);
    if (at > 0 && addr - table.items[at - 1].base < table.items[at - 1].size) {
        fd = fcntl(table.items[at - 1].fd, F_DUPFD_CLOEXEC, 3);
        *ret_base = table.items[at - 1].base;
        *ret_size = table.items[at - 1].size;
    }
    pthread_mutex_unlock(&table.lock);
    if (fd < 0)
        return 0;
    *ret_fd = fd;
    return 1;
}

/* One try with or without huge pages. On failure *ret_step says which step failed, errno why. */
static int allocate(size_t size, int huge, int populate, struct allocation *ret,
                    const char **ret_step)
{
    struct allocation item = {.size = size, .fd = -1};
    unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
    void *base;
    int saved;

    *ret_step = "create memfd";
    item.fd = memfd_create("nixlet", huge ? flags | MFD_HUGETLB | MFD_HUGE_2MB : flags);
    if (item.fd < 0)
        return 0;
    *ret_step = "size memfd";
    if (ftruncate(item.fd, (off_t)size) != 0)
        goto fail;
    *ret_step = "seal memfd";
    if (fcntl(item.fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
        goto fail;
    *ret_step = "map memfd";
    base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | (populate ? MAP_POPULATE : 0),
                item.fd, 0);
    if (base == MAP_FAILED)
        goto fail;
    item.base = (uint64_t)(uintptr_t)base;
    *ret = item;
    return 1;
fail:
    saved = errno;
    close(item.fd);
    errno = saved;
    return 0;
}

enum nxl_code nxl_alloc(size_t size, uint32_t flags, void **ret, struct nxl_err *err)
{
    int huge = (flags & (NXL_ALLOC_HUGE | NXL_ALLOC_HUGE_REQUIRE)) != 0;
    int populate = (flags & NXL_ALLOC_POPULATE) != 0;
    size_t page = huge ? HUGE_PAGE : (size_t)sysconf(_SC_PAGESIZE);
    struct allocation item = {.fd = -1};
    const char *step = "";
    int done;

    if (size == 0 || size > SIZE_MAX / 2 - page)
        return nxl_err_set(err, NXL_INVALID_PARAM, 0,
                           "nxl_alloc: a size of %zu bytes is not possible", size);
    if (flags & ~(NXL_ALLOC_HUGE | NXL_ALLOC_HUGE_REQUIRE | NXL_ALLOC_POPULATE))
        return nxl_err_set(err, NXL_INVALID_PARAM, 0, "nxl_alloc: flags %#x are unknown", flags);
    done = allocate((size + page - 1) & ~(page - 1), huge, populate, &item, &step);
    if (!done && huge && !(flags & NXL_ALLOC_HUGE_REQUIRE)) {
        page = (size_t)sysconf(_SC_PAGESIZE);
        done = allocate((size + page - 1) & ~(page - 1), 0, populate, &item, &step);
    }
    if (!done)
        return nxl_err_set(err, NXL_LIMIT, errno, "nxl_alloc of %zu bytes%s: %s", size,
                           huge ? " in huge pages (see vm.nr_hugepages)" : "", step);
    if (!table_add(item)) {
        munmap((void *)(uintptr_t)item.base, item.size);
        close(item.fd);
        return nxl_err_set(err, NXL_LIMIT, ENOMEM, "nxl_alloc of %zu bytes", size);
    }
    *ret = (void *)(uintptr_t)item.base;
    return NXL_OK;
}

void nxl_free(void *ptr)
{
    struct allocation item = {.fd = -1};
    size_t at;

    if (!ptr)
        return;
    pthread_mutex_lock(&table.lock);
    at = table_after((uint64_t)(uintptr_t)ptr);
    if (at > 0 && table.items[at - 1].base == (uint64_t)(uintptr_t)ptr) {
        item = table.items[at - 1];
        table.count--;
        memmove(&table.items[at - 1], &table.items[at], (table.count - at + 1) * sizeof(item));
    }
    if (table.count == 0) {
        free(table.items);
        table.items = NULL;
        table.room = 0;
    }
    pthread_mutex_unlock(&table.lock);
    if (item.fd < 0)
        return; /* not ours: leave it alone */
    munmap(ptr, item.size);
    close(item.fd);
}
