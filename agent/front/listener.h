/* listener.h - owns the path of the client socket and accepts connections on it. Loop thread. */
#ifndef NXL_FRONT_LISTENER_H
#define NXL_FRONT_LISTENER_H

#include <nxl/err.h>

struct nxl_loop;
struct front_listener;

typedef void front_accepted_fn(void *arg, int fd); /* takes fd: CLOEXEC, non-blocking */
struct front_listener_options {
    struct nxl_loop *loop;
    const char *path; /* borrowed for the call */
    unsigned mode;    /* permissions of the socket file */
    int backlog;
    front_accepted_fn *fn;
    void *arg;
};
/* NXL_BUSY: somebody listens there. NXL_CONFIG: the path cannot be a socket. A socket file that
 * nobody listens on is replaced; any other file is left alone. */
NXL_MUST_USE enum nxl_code front_listener_open(const struct front_listener_options *options,
                                               struct front_listener **ret, struct nxl_err *err);
void front_listener_close(
    struct front_listener *listener); /* removes the file if it is still ours */

#endif
