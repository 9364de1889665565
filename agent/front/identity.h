/* identity.h - who sits at the other end of a connected socket, and a handle on its life. */
#ifndef NXL_FRONT_IDENTITY_H
#define NXL_FRONT_IDENTITY_H

#include <nxl/err.h>

struct front_identity {
    int32_t pid; /* of the process that connected; 0: it lives in a pid namespace we cannot see */
    uint32_t uid, gid;
    int pidfd; /* readable once the process is dead; -1: this kernel or sandbox gives none */
};

/* NXL_REMOTE_DISCONNECT: the process is dead already. Gives ret->pidfd. */
NXL_MUST_USE enum nxl_code front_identity_of(int fd, struct front_identity *ret,
                                             struct nxl_err *err);

#endif
