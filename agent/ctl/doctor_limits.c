/* doctor_limits.c - locked memory, open files, huge pages. */
#include "ctl/doctor.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/fd.h"
#include "base/mem.h"
#include "ctl/print.h"

#define FILES_WANTED 4096u
#define CAP_IPC_LOCK_BIT 14

static const char *limit_text(rlim_t limit, char *to, size_t room)
{
    if (limit == RLIM_INFINITY)
        return "unlimited";
    return ctl_bytes_text((uint64_t)limit, to, room);
}

/* CAP_IPC_LOCK makes RLIMIT_MEMLOCK mean nothing. */
static int may_lock_anything(void)
{
    NXL_CLEANUP(nxl_freep) char *status = NULL;
    struct nxl_err err;
    const char *line;

    if (nxl_read_file("/proc/self/status", 65536, &status, NULL, &err) != NXL_OK)
        return 0;
    line = strstr(status, "\nCapEff:");
    return line != NULL && (strtoull(line + 8, NULL, 16) >> CAP_IPC_LOCK_BIT & 1) != 0;
}

static void look_memlock(struct doctor *doctor)
{
    struct rlimit limit;
    char text[32];

    if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0) {
        doctor_say(doctor, DOCTOR_WARN, "memlock", "ask `ulimit -l`",
                   "the limit cannot be read: %s", strerror(errno));
        return;
    }
    if (limit.rlim_cur == RLIM_INFINITY || may_lock_anything())
        doctor_say(doctor, DOCTOR_OK, "memlock", NULL, "memory may be pinned without limit (%s%s)",
                   limit_text(limit.rlim_cur, text, sizeof(text)),
                   limit.rlim_cur == RLIM_INFINITY ? "" : ", with CAP_IPC_LOCK");
    else if (!doctor->rdma)
        doctor_say(doctor, DOCTOR_OK, "memlock", NULL,
                   "%s may be pinned: little, and enough where no RDMA device is",
                   limit_text(limit.rlim_cur, text, sizeof(text)));
    else
        doctor_say(doctor, DOCTOR_WARN, "memlock",
                   "start the agent with unlimited locked memory (`ulimit -l unlimited`, "
                   "LimitMEMLOCK=infinity, or CAP_IPC_LOCK for the container)",
                   "%s may be pinned: registering memory with the RDMA device will fail",
                   limit_text(limit.rlim_cur, text, sizeof(text)));
}

static void look_files(struct doctor *doctor)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return;
    if (limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= FILES_WANTED)
        doctor_say(doctor, DOCTOR_OK, "open-files", NULL, "%" PRIu64 " files may be open",
                   (uint64_t)limit.rlim_cur);
    else
        doctor_say(doctor, DOCTOR_WARN, "open-files", "`ulimit -n 65536` or LimitNOFILE=65536",
                   "only %" PRIu64
                   " files may be open: each client, link and shared file takes some",
                   (uint64_t)limit.rlim_cur);
}

/* -1: there is no such size. */
static long pages(const char *size, const char *what)
{
    NXL_CLEANUP(nxl_freep) char *text = NULL;
    struct nxl_err err;
    char path[128];

    (void)snprintf(path, sizeof(path), "/sys/kernel/mm/hugepages/hugepages-%s/%s_hugepages", size,
                   what);
    if (nxl_read_file(path, 64, &text, NULL, &err) != NXL_OK)
        return -1;
    return strtol(text, NULL, 10);
}

static void look_huge(struct doctor *doctor)
{
    long two_all = pages("2048kB", "nr"), two_free = pages("2048kB", "free");
    long one_all = pages("1048576kB", "nr"), one_free = pages("1048576kB", "free");
    char one[64] = "no 1 GiB pages";

    if (one_all > 0)
        (void)snprintf(one, sizeof(one), "%ld of %ld 1 GiB pages", one_free, one_all);
    if (two_all > 0 && two_free > 0)
        doctor_say(doctor, DOCTOR_OK, "huge-pages", NULL, "free: %ld of %ld 2 MiB pages, %s",
                   two_free, two_all, one);
    else
        doctor_say(doctor, DOCTOR_WARN, "huge-pages",
                   "to have 1 GiB of them: echo 512 > /proc/sys/vm/nr_hugepages",
                   "free: %s 2 MiB pages, %s; nxl_alloc() takes small pages then",
                   two_all > 0 ? "none of the" : "no", one);
}

void doctor_limits(struct doctor *doctor)
{
    look_memlock(doctor);
    look_files(doctor);
    look_huge(doctor);
}
