/* http.c - one request, one connection, one deadline for all of it. */
#include "ctl/http.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/mem.h"

#define READ_SIZE 65536u
#define SOCKET_FLAGS (SOCK_CLOEXEC | SOCK_NONBLOCK)

static enum nxl_code wait_for(int fd, short events, uint64_t deadline_ns, struct nxl_err *err)
{
    struct pollfd poll_fd = {.fd = fd, .events = events};

    for (;;) {
        uint64_t now = nxl_now_ns();
        int ready;

        if (now >= deadline_ns)
            return nxl_err_set(err, NXL_TIMEOUT, 0, "no answer in time");
        ready = poll(&poll_fd, 1, (int)((deadline_ns - now) / NXL_MS) + 1);
        if (ready > 0)
            return NXL_OK;
        if (ready < 0 && errno != EINTR)
            return nxl_err_set(err, NXL_IO, errno, "wait for the answer");
    }
}

/* Takes nothing of fd. */
static enum nxl_code dial(int fd, const struct sockaddr *to, socklen_t size, uint64_t deadline_ns,
                          struct nxl_err *err)
{
    int error = 0;
    socklen_t error_size = sizeof(error);
    enum nxl_code code;

    if (connect(fd, to, size) == 0)
        return NXL_OK;
    if (errno == EINPROGRESS) {
        code = wait_for(fd, POLLOUT, deadline_ns, err);
        if (code != NXL_OK)
            return code;
        if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &error_size) == 0 && error == 0)
            return NXL_OK;
        errno = error;
    }
    if (errno == ECONNREFUSED || errno == ENOENT)
        return nxl_err_set(err, NXL_NO_AGENT, 0,
                           "%s: is nixlet-agent running on this node, and is this the value of its "
                           "http.socket or http.listen? --http says where else to look",
                           strerror(errno));
    return nxl_err_set(err, NXL_IO, errno, "connect");
}

static enum nxl_code unix_dial(const char *path, uint64_t deadline_ns, int *ret,
                               struct nxl_err *err)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    NXL_CLEANUP(nxl_closep) int fd = -1;
    enum nxl_code code;

    if (nxl_copy_text(to.sun_path, sizeof(to.sun_path), path) != 0)
        return nxl_err_set(err, NXL_INVALID_PARAM, 0, "the path is longer than %zu bytes",
                           sizeof(to.sun_path) - 1);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCKET_FLAGS, 0);
    if (fd < 0)
        return nxl_err_set(err, NXL_IO, errno, "open a socket");
    code = dial(fd, (const struct sockaddr *)&to, sizeof(to), deadline_ns, err);
    if (code != NXL_OK)
        return code;
    *ret = fd;
    fd = -1; /* moved out */
    return NXL_OK;
}

static enum nxl_code address_split(const char *where, char *host, size_t room,
                                   const char **ret_port, struct nxl_err *err)
{
    const char *colon = strrchr(where, ':');
    size_t size = colon != NULL ? (size_t)(colon - where) : 0;

    if (colon == NULL || colon[1] == '\0' || strspn(colon + 1, "0123456789") != strlen(colon + 1) ||
        strlen(colon + 1) > 5 || size >= room)
        return nxl_err_set(err, NXL_INVALID_PARAM, 0,
                           "it is neither a path (with a '/') nor host:port");
    if (size >= 2 && where[0] == '[' && where[size - 1] == ']') {
        where++;
        size -= 2;
    }
    memcpy(host, where, size);
    host[size] = '\0';
    *ret_port = colon + 1;
    return NXL_OK;
}

static enum nxl_code tcp_dial(const char *where, uint64_t deadline_ns, int *ret,
                              struct nxl_err *err)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    char host[256];
    const char *port;
    enum nxl_code code = address_split(where, host, sizeof(host), &port, err);
    int status;

    if (code != NXL_OK)
        return code;
    status = getaddrinfo(host[0] != '\0' ? host : NULL, port, &hints, &found);
    if (status != 0)
        return nxl_err_set(err, NXL_NOT_FOUND, 0, "host '%.200s' is not known: %s", host,
                           gai_strerror(status));
    for (const struct addrinfo *at = found; at != NULL; at = at->ai_next) {
        NXL_CLEANUP(nxl_closep) int fd = socket(at->ai_family, SOCK_STREAM | SOCKET_FLAGS, 0);

        code = fd < 0 ? nxl_err_set(err, NXL_IO, errno, "open a socket")
                      : dial(fd, at->ai_addr, at->ai_addrlen, deadline_ns, err);
        if (code == NXL_OK) {
            *ret = fd;
            fd = -1; /* moved out */
            break;
        }
    }
    freeaddrinfo(found);
    return code;
}

static enum nxl_code request_send(int fd, const char *path, uint64_t deadline_ns,
                                  struct nxl_err *err)
{
    NXL_CLEANUP(nxl_freep)
    char *text = nxl_format("GET %s HTTP/1.0\r\nHost: localhost\r\nAccept: */*\r\n"
                            "User-Agent: nixletctl/" NIXLET_VERSION "\r\n\r\n",
                            path);
    size_t size = strlen(text), sent = 0;

    while (sent < size) {
        ssize_t put = send(fd, text + sent, size - sent, MSG_NOSIGNAL);
        enum nxl_code code;

        if (put >= 0) {
            sent += (size_t)put;
            continue;
        }
        if (errno == EINTR)
            continue;
        if (errno != EAGAIN)
            return nxl_err_set(err, NXL_IO, errno, "send the request");
        code = wait_for(fd, POLLOUT, deadline_ns, err);
        if (code != NXL_OK)
            return code;
    }
    return NXL_OK;
}

static enum nxl_code answer_read(int fd, uint64_t deadline_ns, struct nxl_bytes *to,
                                 struct ctl_http_head *ret, struct nxl_err *err)
{
    for (;;) {
        ssize_t got = recv(fd, nxl_bytes_grow(to, READ_SIZE), READ_SIZE, 0);
        enum nxl_code code;

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && errno == EAGAIN) {
            code = wait_for(fd, POLLIN, deadline_ns, err);
            if (code != NXL_OK)
                return code;
            continue;
        }
        if (got < 0)
            return nxl_err_set(err, NXL_IO, errno, "read the answer");
        to->size += (size_t)got;
        code = ctl_http_parse((const char *)to->data, to->size, got == 0, ret, err);
        if (code != NXL_AGAIN)
            return code;
        if (nxl_now_ns() >= deadline_ns) /* a sender of single bytes */
            return nxl_err_set(err, NXL_TIMEOUT, 0, "the answer was not whole in time");
    }
}

enum nxl_code ctl_http_get(const char *where, const char *path, uint64_t timeout_ns,
                           int *ret_status, char **ret_body, size_t *ret_size, struct nxl_err *err)
{
    uint64_t deadline_ns = nxl_now_ns() + timeout_ns;
    NXL_CLEANUP(nxl_bytes_fini) struct nxl_bytes bytes = {0};
    NXL_CLEANUP(nxl_closep) int fd = -1;
    struct ctl_http_head head = {0};
    char *body;
    enum nxl_code code = strchr(where, '/') != NULL ? unix_dial(where, deadline_ns, &fd, err)
                                                    : tcp_dial(where, deadline_ns, &fd, err);

    if (code == NXL_OK)
        code = request_send(fd, path, deadline_ns, err);
    if (code == NXL_OK)
        code = answer_read(fd, deadline_ns, &bytes, &head, err);
    if (code != NXL_OK)
        return nxl_err_wrap(err, code, "GET %s from '%.120s'", path, where);
    body = nxl_new0(head.size + 1);
    memcpy(body, bytes.data + head.body, head.size);
    *ret_status = head.status;
    *ret_body = body;
    *ret_size = head.size;
    return NXL_OK;
}

/* The agent's own sentence: {"error": ..., "text": ...}. */
static enum nxl_code status_refuse(int status, const char *body, size_t size, struct nxl_err *err)
{
    json_t *root = json_loadb(body, size, 0, NULL);
    const char *text = json_string_value(json_object_get(root, "text"));
    enum nxl_code code = status == 404   ? NXL_NOT_FOUND
                         : status == 403 ? NXL_NOT_ALLOWED
                         : status == 503 ? NXL_BUSY
                                         : NXL_UNKNOWN;

    code = nxl_err_set(err, code, 0, "the agent answers %d%s%.300s", status,
                       text != NULL ? ": " : "", text != NULL ? text : "");
    json_decref(root);
    return code;
}

enum nxl_code ctl_http_json(const char *where, const char *path, json_t **ret, struct nxl_err *err)
{
    NXL_CLEANUP(nxl_freep) char *body = NULL;
    json_error_t where_wrong;
    json_t *root;
    size_t size;
    int status;
    enum nxl_code code = ctl_http_get(where, path, CTL_HTTP_TIMEOUT_NS, &status, &body, &size, err);

    if (code != NXL_OK)
        return code;
    if (status != 200) {
        code = status_refuse(status, body, size, err);
        return nxl_err_wrap(err, code, "GET %s from '%.120s'", path, where);
    }
    root = json_loadb(body, size, JSON_REJECT_DUPLICATES, &where_wrong);
    if (root == NULL || !json_is_object(root)) {
        code = nxl_err_set(err, NXL_MISMATCH, 0, "the answer is no JSON object: line %d, %.100s",
                           root == NULL ? where_wrong.line : 1,
                           root == NULL ? where_wrong.text : "another JSON value");
        json_decref(root);
        return nxl_err_wrap(err, code, "GET %s from '%.120s'", path, where);
    }
    *ret = root;
    return NXL_OK;
}
