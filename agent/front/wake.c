/* wake.c - signals an eventfd that a stranger holds too. Loop thread.
 *
 * Both sides share one open file. The stranger may clear O_NONBLOCK and fill the counter, and
 * write() would then wait for it for ever; no check before the write closes that gap. The end of an
 * asynchronous read adds to the counter as well and never waits, so an empty read is what we do. */
#include "front/wake.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"

#include <errno.h>
#include <linux/aio_abi.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define EVENTS 64u /* ends that may pile up before they are thrown away */

struct front_wake {
    aio_context_t aio; /* 0: this kernel or sandbox has none */
    int empty;         /* a file of no bytes */
    char byte;
};

struct front_wake *front_wake_open(void)
{
    struct front_wake *wake = nxl_new0(sizeof(*wake));

    wake->empty = memfd_create("nixlet-wake", MFD_CLOEXEC);
    if (wake->empty < 0 || syscall(SYS_io_setup, EVENTS, &wake->aio) < 0) {
        wake->aio = 0;
        nxl_warn("front",
                 "event=no-aio error=%s effect=\"a hostile client could make its wake-up block; "
                 "allow io_setup and io_submit, or raise fs.aio-max-nr\"",
                 nxl_quote(strerror(errno)));
    }
    return wake;
}

void front_wake_close(struct front_wake *wake)
{
    if (!wake)
        return;
    if (wake->aio)
        (void)syscall(SYS_io_destroy, wake->aio); /* our own context: cannot fail */
    nxl_closep(&wake->empty);
    free(wake);
}

static int wake_submit(struct front_wake *wake, int eventfd)
{
    struct iocb request = {
        .aio_lio_opcode = IOCB_CMD_PREAD,
        .aio_fildes = (uint32_t)wake->empty,
        .aio_buf = (uint64_t)(uintptr_t)&wake->byte,
        .aio_nbytes = sizeof(wake->byte),
        .aio_flags = IOCB_FLAG_RESFD,
        .aio_resfd = (uint32_t)eventfd,
    };
    struct iocb *requests[1] = {&request};

    return syscall(SYS_io_submit, wake->aio, 1L, requests) == 1;
}

int front_wake_signal(struct front_wake *wake, int eventfd)
{
    static const uint64_t one = 1;
    struct io_event events[EVENTS];
    struct timespec now = {0};

    if (!wake->aio)
        return write(eventfd, &one, sizeof(one)) == sizeof(one);
    if (wake_submit(wake, eventfd))
        return 1;
    if (errno != EAGAIN)
        return 0;
    /* Nobody is interested in how the reads ended. */
    (void)syscall(SYS_io_getevents, wake->aio, 0L, (long)EVENTS, events, &now);
    return wake_submit(wake, eventfd);
}
