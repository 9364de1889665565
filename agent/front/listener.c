/* listener.c - the socket file: claims its path, replaces what a dead agent left there, accepts a
 * bounded number of clients per turn. Loop thread. */
#include "front/listener.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define ACCEPTS_PER_TURN 16u
#define PAUSE_NS (100 * NXL_MS) /* when the agent has no descriptors left */

struct front_listener {
    int fd;
    int lock; /* held for as long as we live: two agents that start at once cannot both win */
    struct sockaddr_un addr;
    int bound;
    dev_t dev; /* of the bound file: another agent's must not be removed */
    ino_t ino;
    struct nxl_watch *watch;
    struct nxl_timer *pause;
    struct nxl_log_gate gate;
    front_accepted_fn *fn;
    void *arg;
};

void front_listener_close(struct front_listener *listener)
{
    struct stat st;

    if (!listener)
        return;
    nxl_watch_close(listener->watch);
    nxl_timer_close(listener->pause);
    nxl_closep(&listener->fd);
    if (listener->bound && lstat(listener->addr.sun_path, &st) == 0 && st.st_dev == listener->dev &&
        st.st_ino == listener->ino)
        (void)unlink(
            listener->addr.sun_path); /* a file left behind is replaced at the next start */
    nxl_closep(&listener->lock);
    free(listener);
}

static void listener_closep(struct front_listener **listener)
{
    front_listener_close(*listener);
}

static void listener_on_pause_over(void *arg)
{
    struct front_listener *listener = arg;

    nxl_watch_change(listener->watch, NXL_WATCH_READ);
}

/* The backlog keeps clients waiting; without a pause the watch would spin. */
static void listener_out_of_fds(struct front_listener *listener, int os)
{
    if (nxl_log_gate_open(&listener->gate, 1))
        nxl_error("front",
                  "event=accept-failed path=%s error=%s hint=\"raise the limit of open files\"",
                  nxl_quote(listener->addr.sun_path), nxl_quote(strerror(os)));
    nxl_watch_change(listener->watch, 0);
    nxl_timer_start(listener->pause, PAUSE_NS, 0);
}

static void listener_on_client(void *arg, int fd, unsigned events)
{
    struct front_listener *listener = arg;

    (void)events;
    for (unsigned left = ACCEPTS_PER_TURN; left > 0; left--) {
        int client = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

        if (client >= 0) {
            listener->fn(listener->arg, client);
            continue;
        }
        if (errno == EINTR || errno == ECONNABORTED)
            continue;
        if (errno != EAGAIN)
            listener_out_of_fds(listener, errno);
        return;
    }
}

static enum nxl_code listener_lock(struct front_listener *listener, struct nxl_err *err)
{
    NXL_CLEANUP(nxl_freep) char *path = nxl_format("%s.lock", listener->addr.sun_path);

    listener->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (listener->lock < 0)
        return nxl_err_set(err, NXL_IO, errno, "open '%s'", path);
    if (flock(listener->lock, LOCK_EX | LOCK_NB) < 0)
        return nxl_err_set(err, errno == EWOULDBLOCK ? NXL_BUSY : NXL_IO, errno,
                           "lock '%s': another agent serves this socket", path);
    return NXL_OK;
}

/* Asks whether anybody accepts at the path; only a refused connect proves that nobody does. */
static enum nxl_code listener_clear_path(struct front_listener *listener, struct nxl_err *err)
{
    const char *path = listener->addr.sun_path;
    NXL_CLEANUP(nxl_closep)
    int probe = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct stat st;

    if (lstat(path, &st) < 0)
        return errno == ENOENT ? NXL_OK : nxl_err_set(err, NXL_IO, errno, "look at '%s'", path);
    if (!S_ISSOCK(st.st_mode))
        return nxl_err_set(err, NXL_CONFIG, 0,
                           "'%s' is there and no socket: remove it or set socket.path", path);
    if (probe < 0)
        return nxl_err_set(err, NXL_IO, errno, "open a socket");
    if (connect(probe, (struct sockaddr *)&listener->addr, sizeof(listener->addr)) == 0 ||
        errno != ECONNREFUSED)
        return nxl_err_set(err, NXL_BUSY, 0, "another program serves '%s'", path);
    if (unlink(path) < 0 && errno != ENOENT)
        return nxl_err_set(err, NXL_IO, errno, "remove the dead socket '%s'", path);
    nxl_info("front", "event=stale-socket-replaced path=%s", nxl_quote(path));
    return NXL_OK;
}

/* The folder that holds the socket is made if its own parent is there. */
static void listener_make_folder(const struct front_listener *listener)
{
    NXL_CLEANUP(nxl_freep) char *folder = nxl_strdup(listener->addr.sun_path);
    char *slash = strrchr(folder, '/');

    if (!slash || slash == folder)
        return;
    *slash = '\0';
    (void)mkdir(folder, 0755); /* what fails here fails again at bind(), with a better sentence */
}

static enum nxl_code listener_bind(struct front_listener *listener, unsigned mode, int backlog,
                                   struct nxl_err *err)
{
    const char *path = listener->addr.sun_path;
    struct stat st;

    listener->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (listener->fd < 0)
        return nxl_err_set(err, NXL_IO, errno, "open a socket");
    if (bind(listener->fd, (struct sockaddr *)&listener->addr, sizeof(listener->addr)) < 0)
        return nxl_err_set(err, NXL_IO, errno, "bind '%s'", path);
    if (lstat(path, &st) < 0)
        return nxl_err_set(err, NXL_IO, errno, "look at '%s'", path);
    listener->dev = st.st_dev;
    listener->ino = st.st_ino;
    listener->bound = 1;
    /* Before listen(): nobody gets in with the permissions that umask left. */
    if (chmod(path, (mode_t)mode) < 0)
        return nxl_err_set(err, NXL_IO, errno, "set the mode of '%s' to %04o", path, mode);
    if (listen(listener->fd, backlog) < 0)
        return nxl_err_set(err, NXL_IO, errno, "listen on '%s'", path);
    return NXL_OK;
}

enum nxl_code front_listener_open(const struct front_listener_options *options,
                                  struct front_listener **ret, struct nxl_err *err)
{
    NXL_CLEANUP(listener_closep) struct front_listener *listener = nxl_new0(sizeof(*listener));
    enum nxl_code code;

    listener->fd = listener->lock = -1;
    listener->fn = options->fn;
    listener->arg = options->arg;
    listener->addr.sun_family = AF_UNIX;
    if (options->path[0] == '\0' ||
        nxl_copy_text(listener->addr.sun_path, sizeof(listener->addr.sun_path), options->path) < 0)
        return nxl_err_set(err, NXL_CONFIG, 0, "socket.path '%s' must have 1 to %zu bytes",
                           options->path, sizeof(listener->addr.sun_path) - 1);
    listener_make_folder(listener);
    code = listener_lock(listener, err);
    if (code == NXL_OK)
        code = listener_clear_path(listener, err);
    if (code == NXL_OK)
        code = listener_bind(listener, options->mode, options->backlog, err);
    if (code == NXL_OK)
        code = nxl_watch_open(options->loop, listener->fd, NXL_WATCH_READ, listener_on_client,
                              listener, &listener->watch, err);
    if (code != NXL_OK)
        return code;
    listener->pause = nxl_timer_open(options->loop, listener_on_pause_over, listener);
    *ret = NXL_TAKE(listener);
    return NXL_OK;
}
