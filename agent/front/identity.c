/* identity.c - peer credentials and pidfd of a connected socket. Called once per accepted client.
 */
#include "front/identity.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* Linux 6.5 */
#endif
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

/* The socket's own handle cannot name another process. Older kernels only know the number, which
 * may have been given away again if the client died meanwhile; its socket then tells us. */
static int peer_pidfd(int fd, int32_t pid)
{
    int pidfd = -1;
    socklen_t size = sizeof(pidfd);

    if (getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &size) == 0)
        return pidfd;
    if (errno != ENOPROTOOPT && errno != ENODATA)
        return -1;
    if (pid <= 0) {
        errno = ENOSYS;
        return -1;
    }
    return (int)syscall(SYS_pidfd_open, pid, 0);
}

enum nxl_code front_identity_of(int fd, struct front_identity *ret, struct nxl_err *err)
{
    struct ucred cred = {0};
    socklen_t size = sizeof(cred);
    int pidfd;

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &size) < 0)
        return nxl_err_set(err, NXL_IO, errno, "read the credentials of a client");
    pidfd = peer_pidfd(fd, cred.pid);
    if (pidfd < 0 && (errno == ESRCH || errno == EINVAL))
        return nxl_err_set(err, NXL_REMOTE_DISCONNECT, 0, "client process %d is gone already",
                           cred.pid);
    if (pidfd < 0 && (errno == EMFILE || errno == ENFILE))
        return nxl_err_set(err, NXL_IO, errno, "watch the life of client process %d", cred.pid);
    *ret = (struct front_identity){
        .pid = cred.pid,
        .uid = cred.uid,
        .gid = cred.gid,
        .pidfd = pidfd < 0 ? -1 : pidfd,
    };
    return NXL_OK;
}
