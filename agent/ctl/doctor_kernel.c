/* doctor_kernel.c - what the kernel lets this user do, each tried once and undone. */
#include "ctl/doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* Linux 6.5 */
#endif
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_io_uring_setup
#define SYS_io_uring_setup 425
#endif
#define IO_URING_PARAMS_SIZE 120

static void look_memfd(struct doctor *doctor)
{
    static const char todo[] = "allow memfd_create and fcntl(F_ADD_SEALS) in the seccomp profile; "
                               "Linux 3.17 or later has them";
    NXL_CLEANUP(nxl_closep) int fd = memfd_create("nixletctl", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd < 0) {
        doctor_need(doctor, DOCTOR_NO, "memfd", todo,
                    "no shared memory for clients: memfd_create: %s", strerror(errno));
    } else if (ftruncate(fd, 4096) != 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) != 0) {
        doctor_need(doctor, DOCTOR_NO, "memfd", todo, "a memfd cannot be sealed: %s",
                    strerror(errno));
    } else if (ftruncate(fd, 0) == 0) {
        doctor_need(doctor, DOCTOR_NO, "memfd", todo,
                    "F_SEAL_SHRINK was accepted but does not hold");
    } else {
        doctor_need(doctor, DOCTOR_OK, "memfd", NULL, "memory files can be made and sealed");
    }
}

static void look_pidfd(struct doctor *doctor)
{
    NXL_CLEANUP(nxl_closep) int fd = (int)syscall(SYS_pidfd_open, getpid(), 0);

    if (fd < 0)
        doctor_need(doctor, DOCTOR_NO, "pidfd",
                    "use Linux 5.3 or later and allow pidfd_open in the seccomp profile",
                    "the death of a client is not seen in time: pidfd_open: %s", strerror(errno));
    else
        doctor_need(doctor, DOCTOR_OK, "pidfd", NULL, "the death of a client is seen at once");
}

static void look_peerpidfd(struct doctor *doctor)
{
    int pair[2], peer = -1, status;
    socklen_t size = sizeof(peer);

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
        doctor_need(doctor, DOCTOR_NO, "unix-seqpacket",
                    "allow AF_UNIX sockets in the seccomp profile",
                    "clients cannot connect: socketpair: %s", strerror(errno));
        return;
    }
    status = getsockopt(pair[0], SOL_SOCKET, SO_PEERPIDFD, &peer, &size);
    if (status == 0)
        doctor_say(doctor, DOCTOR_OK, "peer-pidfd", NULL,
                   "a client is known by a handle that no other process can take over");
    else
        doctor_say(
            doctor, DOCTOR_WARN, "peer-pidfd", "Linux 6.5 or later closes that gap",
            "a client is known by its process number, which could be given away again while it "
            "connects: SO_PEERPIDFD: %s",
            strerror(errno));
    nxl_closep(&peer);
    nxl_closep(&pair[0]);
    nxl_closep(&pair[1]);
}

/* A child reads its parent: what an agent would need, since its clients are not its children. */
static int child_reads_parent(const uint64_t *word)
{
    pid_t parent = getpid(), pid = fork();
    int status = 0;

    if (pid == 0) {
        uint64_t copy = 0;
        struct iovec to = {&copy, sizeof(copy)}, from = {(void *)(uintptr_t)word, sizeof(*word)};
        ssize_t got;

        (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* best effort: it ends by itself */
        got = (ssize_t)syscall(SYS_process_vm_readv, parent, &to, 1ul, &from, 1ul, 0ul);
        _exit(got == (ssize_t)sizeof(copy) && copy == *word ? 0 : got < 0 ? errno & 0xff : EIO);
    }
    if (pid < 0)
        return errno;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    return WIFEXITED(status) ? WEXITSTATUS(status) : EINTR;
}

static void look_process_vm(struct doctor *doctor)
{
    static const uint64_t word = 0x6e69786c65746374u;
    NXL_CLEANUP(nxl_freep) char *scope = NULL;
    struct nxl_err err;
    int error = child_reads_parent(&word);

    if (nxl_read_file("/proc/sys/kernel/yama/ptrace_scope", 16, &scope, NULL, &err) == NXL_OK)
        scope[strcspn(scope, "\n")] = '\0';
    if (error == 0)
        doctor_say(doctor, DOCTOR_OK, "process-vm", NULL,
                   "process_vm_readv reaches other processes of this user (this version does not "
                   "need it: memory is shared by descriptor)");
    else
        doctor_say(doctor, DOCTOR_NO, "process-vm",
                   "nothing to do in this version; later kinds of memory would want CAP_SYS_PTRACE",
                   "process_vm_readv does not reach other processes: %s, ptrace_scope %s",
                   strerror(error), scope != NULL ? scope : "not there");
}

static void look_io_uring(struct doctor *doctor)
{
    unsigned char params[IO_URING_PARAMS_SIZE] = {0};
    NXL_CLEANUP(nxl_freep) char *disabled = NULL;
    struct nxl_err err;
    NXL_CLEANUP(nxl_closep) int fd = (int)syscall(SYS_io_uring_setup, 4u, params);
    int error = errno;

    if (fd >= 0) {
        doctor_say(doctor, DOCTOR_OK, "io-uring", NULL,
                   "rings can be made (no backend of this version needs them)");
        return;
    }
    if (nxl_read_file("/proc/sys/kernel/io_uring_disabled", 16, &disabled, NULL, &err) == NXL_OK)
        disabled[strcspn(disabled, "\n")] = '\0';
    doctor_say(doctor, DOCTOR_NO, "io-uring",
               "nothing to do in this version; to allow it: sysctl kernel.io_uring_disabled=0 and "
               "the seccomp profile of the pod",
               "%s, kernel.io_uring_disabled is %s",
               error == ENOSYS ? "this kernel has none, or seccomp hides it" : strerror(error),
               disabled != NULL ? disabled : "not there");
}

void doctor_kernel(struct doctor *doctor)
{
    struct utsname name;

    if (uname(&name) == 0)
        doctor_say(doctor, DOCTOR_OK, "kernel", NULL, "%s %s on %s", name.sysname, name.release,
                   name.machine);
    look_memfd(doctor);
    look_pidfd(doctor);
    look_peerpidfd(doctor);
    look_process_vm(doctor);
    look_io_uring(doctor);
}
