/* listen.c - opens the sockets that status serves. At start and end only. */
#include "status/listen.h"
#include "base/fd.h"
#include "base/mem.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG 64
#define SOCKET_FLAGS (SOCK_CLOEXEC | SOCK_NONBLOCK)

/* ---- unix -------------------------------------------------------------------------------- */

static enum nxl_code unix_clear_path(const struct sockaddr_un *addr, struct nxl_err *err)
{
    NXL_CLEANUP(nxl_closep) int probe = socket(AF_UNIX, SOCK_STREAM | SOCKET_FLAGS, 0);
    struct stat st;

    if (lstat(addr->sun_path, &st) < 0)
        return errno == ENOENT ? NXL_OK
                               : nxl_err_set(err, NXL_IO, errno, "look at '%s'", addr->sun_path);
    if (!S_ISSOCK(st.st_mode))
        return nxl_err_set(err, NXL_CONFIG, 0,
                           "'%s' is there and no socket: remove it or set http.socket",
                           addr->sun_path);
    if (probe < 0)
        return nxl_err_set(err, NXL_IO, errno, "open a socket");
    if (connect(probe, (const struct sockaddr *)addr, sizeof(*addr)) == 0 || errno != ECONNREFUSED)
        return nxl_err_set(err, NXL_BUSY, 0, "another program serves '%s': set http.socket",
                           addr->sun_path);
    if (unlink(addr->sun_path) < 0 && errno != ENOENT)
        return nxl_err_set(err, NXL_IO, errno, "remove the dead socket '%s'", addr->sun_path);
    return NXL_OK;
}

static void unix_make_folder(const char *path)
{
    NXL_CLEANUP(nxl_freep) char *folder = nxl_strdup(path);
    char *slash = strrchr(folder, '/');

    if (!slash || slash == folder)
        return;
    *slash = '\0';
    (void)mkdir(folder, 0755); /* what fails here fails again at bind(), with a better sentence */
}

enum nxl_code status_listen_unix(const char *path, int *ret, struct nxl_err *err)
{
    NXL_CLEANUP(nxl_closep) int fd = socket(AF_UNIX, SOCK_STREAM | SOCKET_FLAGS, 0);
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    enum nxl_code code;

    if (fd < 0)
        return nxl_err_set(err, NXL_IO, errno, "open a socket");
    if (nxl_copy_text(addr.sun_path, sizeof(addr.sun_path), path) < 0)
        return nxl_err_set(err, NXL_CONFIG, 0, "http.socket '%s' is longer than %zu bytes", path,
                           sizeof(addr.sun_path) - 1);
    unix_make_folder(path);
    code = unix_clear_path(&addr, err);
    if (code != NXL_OK)
        return code;
    if (bind(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0)
        return nxl_err_set(err, NXL_IO, errno, "bind '%s'", path);
    if (chmod(path, 0660) < 0 || listen(fd, BACKLOG) < 0) {
        code = nxl_err_set(err, NXL_IO, errno, "listen on '%s'", path);
        (void)unlink(path); /* just made; a file left behind is replaced at the next start */
        return code;
    }
    *ret = fd;
    fd = -1; /* moved out */
    return NXL_OK;
}

void status_unlink_unix(const char *path)
{
    struct sockaddr_un probe = {.sun_family = AF_UNIX};
    NXL_CLEANUP(nxl_closep) int other = socket(AF_UNIX, SOCK_STREAM | SOCKET_FLAGS, 0);

    if (nxl_copy_text(probe.sun_path, sizeof(probe.sun_path), path) < 0 || other < 0)
        return;
    if (connect(other, (struct sockaddr *)&probe, sizeof(probe)) < 0 && errno == ECONNREFUSED)
        (void)unlink(path);
}

/* ---- TCP --------------------------------------------------------------------------------- */

struct endpoint {
    char host[256];
    const char *port;
};

static enum nxl_code endpoint_parse(const char *text, struct endpoint *ret, struct nxl_err *err)
{
    const char *colon = strrchr(text, ':');
    const char *host = text;
    size_t size = colon ? (size_t)(colon - text) : 0;
    char *end = NULL;
    unsigned long port;

    if (!colon || size >= sizeof(ret->host))
        return nxl_err_set(err, NXL_CONFIG, 0,
                           "http.listen '%s' must be host:port, such as 127.0.0.1:7742", text);
    port = strtoul(colon + 1, &end, 10);
    if (colon[1] < '0' || colon[1] > '9' || *end != '\0' || port > 65535)
        return nxl_err_set(err, NXL_CONFIG, 0, "http.listen '%s': port '%s' must be 0 to 65535",
                           text, colon + 1);
    if (size >= 2 && host[0] == '[' && host[size - 1] == ']') {
        host++;
        size -= 2;
    }
    memcpy(ret->host, host, size);
    ret->host[size] = '\0';
    ret->port = colon + 1;
    return NXL_OK;
}

static int is_loopback(const struct sockaddr_storage *addr)
{
    if (addr->ss_family == AF_INET) {
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)addr;

        return ntohl(v4->sin_addr.s_addr) >> 24 == 127;
    }
    return addr->ss_family == AF_INET6 &&
           IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)addr)->sin6_addr);
}

static void address_write(const struct sockaddr_storage *addr, socklen_t size, char *to,
                          size_t room)
{
    char host[INET6_ADDRSTRLEN + 1] = "?", port[8] = "0";

    (void)getnameinfo((const struct sockaddr *)addr, size, host, sizeof(host), port, sizeof(port),
                      NI_NUMERICHOST | NI_NUMERICSERV); /* numeric: cannot fail with this room */
    (void)snprintf(to, room, addr->ss_family == AF_INET6 ? "[%s]:%s" : "%s:%s", host, port);
}

static enum nxl_code tcp_open(const struct addrinfo *info, const char *text, int *ret,
                              struct nxl_err *err)
{
    NXL_CLEANUP(nxl_closep) int fd = socket(info->ai_family, SOCK_STREAM | SOCKET_FLAGS, 0);
    const int on = 1;

    if (fd < 0)
        return nxl_err_set(err, NXL_IO, errno, "open a socket for http.listen '%s'", text);
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0)
        return nxl_err_set(err, NXL_IO, errno, "prepare the socket for http.listen '%s'", text);
    if (bind(fd, info->ai_addr, info->ai_addrlen) < 0 || listen(fd, BACKLOG) < 0)
        return nxl_err_set(err, errno == EADDRINUSE ? NXL_BUSY : NXL_IO, errno,
                           "listen on http.listen '%s'", text);
    *ret = fd;
    fd = -1; /* moved out */
    return NXL_OK;
}

enum nxl_code status_listen_tcp(const char *text, int *ret, int *ret_loopback, char *ret_address,
                                size_t size, struct nxl_err *err)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct sockaddr_storage addr = {0};
    socklen_t addr_size = sizeof(addr);
    struct addrinfo *found = NULL;
    struct endpoint endpoint;
    enum nxl_code code = endpoint_parse(text, &endpoint, err);
    int status, fd = -1;

    if (code != NXL_OK)
        return code;
    status = getaddrinfo(endpoint.host[0] ? endpoint.host : NULL, endpoint.port, &hints, &found);
    if (status != 0)
        return nxl_err_set(err, NXL_CONFIG, 0, "http.listen '%s': host '%s' is not known: %s", text,
                           endpoint.host, gai_strerror(status));
    code = tcp_open(found, text, &fd, err);
    freeaddrinfo(found);
    if (code != NXL_OK)
        return code;
    if (getsockname(fd, (struct sockaddr *)&addr, &addr_size) < 0) {
        code = nxl_err_set(err, NXL_IO, errno, "ask for the port of http.listen '%s'", text);
        nxl_closep(&fd);
        return code;
    }
    *ret_loopback = is_loopback(&addr);
    address_write(&addr, addr_size, ret_address, size);
    *ret = fd;
    return NXL_OK;
}
