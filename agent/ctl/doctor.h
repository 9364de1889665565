/* doctor.h - the looks that `nixletctl doctor` takes at a node. Inside agent/ctl only. None changes
 * anything on it. */
#ifndef NXL_CTL_DOCTOR_H
#define NXL_CTL_DOCTOR_H

#include <nxl/err.h>
#include <stdio.h>

struct ctl;

enum doctor_level { DOCTOR_OK, DOCTOR_WARN, DOCTOR_NO };

#define DOCTOR_CHECKS_MAX 64
struct doctor {
    const struct ctl *ctl;
    unsigned count;
    int missing; /* of what an agent cannot do without */
    int rdma;    /* a device is there: pinned memory matters */
    struct doctor_check {
        const char *name; /* static */
        enum doctor_level level;
        int needed;
        char found[400];
        const char *todo; /* static; NULL: nothing */
    } checks[DOCTOR_CHECKS_MAX];
};

/* todo: what to do, a literal; NULL when there is nothing. */
void doctor_say(struct doctor *doctor, enum doctor_level level, const char *name, const char *todo,
                const char *fmt, ...) NXL_PRINTF(5, 6);
/* The same for what an agent cannot do without. */
void doctor_need(struct doctor *doctor, enum doctor_level level, const char *name, const char *todo,
                 const char *fmt, ...) NXL_PRINTF(5, 6);

void doctor_kernel(struct doctor *doctor);  /* memfd, pidfd, SO_PEERPIDFD, process_vm, io_uring */
void doctor_limits(struct doctor *doctor);  /* memlock, open files, huge pages */
void doctor_devices(struct doctor *doctor); /* RDMA, GPU */
void doctor_network(struct doctor *doctor); /* interfaces, ports */
void doctor_ucx(struct doctor *doctor);     /* last of the process's own: loads libucp */
void doctor_agent(struct doctor *doctor);   /* socket, HTTP */

/* Who listens on a TCP port, from text as in /proc/net/tcp and tcp6. Returns how many sockets, the
 * first's inode in *ret_inode. Pure. */
unsigned doctor_listeners(const char *table, unsigned port, unsigned long long *ret_inode);
/* Names in "resource" lines of what ucp_context_print_info() writes: "tcp/eth0 posix/memory". Pure.
 */
void doctor_ucx_resources(const char *text, char *to, size_t room);

#endif
