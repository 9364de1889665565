/* listen.c - the port, and the certificate shown on it: from files that are read again when they
 * change, or made by the authority. Loop thread. */
#include "push/push_internal.h"

#include "base/fd.h"
#include "base/loop.h"
#include "base/mem.h"
#include "push/authority.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ACCEPTS_A_TURN 64
#define PEM_FILE_MAX (256u << 10)
#define FILES_EVERY_NS (2 * NXL_SEC)
#define MADE_LIFE_S (7u * NXL_AUTHORITY_DAY_S)
#define MADE_EVERY_NS (24ull * 3600 * NXL_SEC)

/* ---- certificate -------------------------------------------------------------------------- */

static uint64_t stamp_of(const char *path)
{
    struct stat info;

    if (stat(path, &info) != 0)
        return 0;
    return (uint64_t)info.st_ino * 1000003u + (uint64_t)info.st_mtim.tv_sec * NXL_SEC +
           (uint64_t)info.st_mtim.tv_nsec;
}

static enum nxl_code context_of(struct nxl_push *push, struct nxl_view cert, struct nxl_view key,
                                struct nxl_err *err)
{
    unsigned char secret[NXL_TLS_SECRET];
    struct nxl_tls_context *context;
    enum nxl_code code = NXL_OK;

    if (push->authority != NULL)
        code = nxl_authority_secret(push->authority, "stream tickets", secret, sizeof(secret), err);
    if (code == NXL_OK)
        code = nxl_tls_server(cert, key, push->authority != NULL ? secret : NULL, &context, err);
    OPENSSL_cleanse(secret, sizeof(secret));
    if (code != NXL_OK)
        return code;
    nxl_tls_context_unref(push->context);
    push->context = context;
    return NXL_OK;
}

static enum nxl_code context_from_files(struct nxl_push *push, struct nxl_err *err)
{
    uint64_t stamps[2] = {stamp_of(push->limits.cert), stamp_of(push->limits.key)};
    char *cert = NULL, *key = NULL;
    size_t cert_size = 0, key_size = 0;
    enum nxl_code code = nxl_read_file(push->limits.cert, PEM_FILE_MAX, &cert, &cert_size, err);

    if (code == NXL_OK)
        code = nxl_read_file(push->limits.key, PEM_FILE_MAX, &key, &key_size, err);
    if (code == NXL_OK)
        code = context_of(push, (struct nxl_view){cert, cert_size},
                          (struct nxl_view){key, key_size}, err);
    if (key != NULL)
        OPENSSL_cleanse(key, key_size);
    free(key);
    free(cert);
    if (code != NXL_OK)
        return nxl_err_wrap(err, code, "stream.cert, stream.key");
    memcpy(push->cert_stamp, stamps, sizeof(stamps));
    return NXL_OK;
}

static enum nxl_code context_made(struct nxl_push *push, struct nxl_err *err)
{
    struct nxl_bytes cert = {0}, key = {0};
    enum nxl_code code;

    if (push->authority == NULL)
        return nxl_err_set(err, NXL_CONFIG, 0,
                           "stream.cert and stream.key are not set, and there is no authority "
                           "that could make a certificate");
    code = nxl_authority_serve(push->authority, push->limits.names, MADE_LIFE_S, &cert, &key, err);
    if (code == NXL_OK)
        code = context_of(push, (struct nxl_view){cert.data, cert.size},
                          (struct nxl_view){key.data, key.size}, err);
    if (key.data != NULL)
        OPENSSL_cleanse(key.data, key.size);
    nxl_bytes_fini(&cert);
    nxl_bytes_fini(&key);
    push->cert_made_ns = nxl_now_ns();
    return code;
}

enum nxl_code push_context_load(struct nxl_push *push, struct nxl_err *err)
{
    push->cert_checked_ns = nxl_now_ns();
    return push->limits.cert[0] != '\0' ? context_from_files(push, err) : context_made(push, err);
}

/* The one that is shown stays if the new one is no good; connections keep theirs. */
void push_context_check(struct nxl_push *push, uint64_t now_ns)
{
    struct nxl_err err;
    int due;

    if (now_ns - push->cert_checked_ns < FILES_EVERY_NS)
        return;
    push->cert_checked_ns = now_ns;
    if (push->limits.cert[0] != '\0')
        due = stamp_of(push->limits.cert) != push->cert_stamp[0] ||
              stamp_of(push->limits.key) != push->cert_stamp[1];
    else
        due = now_ns - push->cert_made_ns > MADE_EVERY_NS;
    if (!due)
        return;
    if (push_context_load(push, &err) == NXL_OK)
        nxl_info("push", "event=\"certificate loaded anew\"");
    else if (nxl_log_gate_open(&push->gate, 5))
        nxl_warn("push", "event=\"new certificate refused, the old one stays\" why=%s",
                 nxl_quote(err.text));
}

/* ---- port --------------------------------------------------------------------------------- */

static int is_full(const struct nxl_push *push)
{
    return push->conn_count - push->live_count >= push->limits.handshakes;
}

static void on_accept(void *arg, int fd, unsigned events)
{
    struct nxl_push *push = arg;
    struct nxl_err err;

    (void)events;
    for (int left = ACCEPTS_A_TURN; left > 0; left--) {
        int client;

        if (is_full(push)) { /* strangers wait in the backlog until some are known */
            nxl_watch_change(push->listen_watch, 0);
            return;
        }
        client = accept4(fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (client >= 0) {
            if (push_conn_new(push, client, &err) == NULL && nxl_log_gate_open(&push->gate, 5))
                nxl_warn("push", "event=\"connection not taken\" why=%s", nxl_quote(err.text));
            continue;
        }
        if (errno == EAGAIN || errno == EWOULDBLOCK)
            return;
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            if (nxl_log_gate_open(&push->gate, 5))
                nxl_warn("push", "event=\"accept failed\" why=%s", nxl_quote(strerror(errno)));
            nxl_watch_change(push->listen_watch, 0);
            nxl_timer_start(push->accept_later, 100 * NXL_MS, 0);
            return;
        }
    }
}

void push_accept_resume(struct nxl_push *push)
{
    if (push->listen_watch != NULL && !push->closing && !is_full(push))
        nxl_watch_change(push->listen_watch, NXL_WATCH_READ);
}

static int split_address(const char *text, char *host, size_t room, const char **ret_port)
{
    const char *colon = strrchr(text, ':');
    size_t size;

    if (colon == NULL || colon == text)
        return -1;
    size = (size_t)(colon - text);
    if (text[0] == '[' && text[size - 1] == ']') {
        text++;
        size -= 2;
    }
    if (size == 0 || size >= room)
        return -1;
    memcpy(host, text, size);
    host[size] = '\0';
    *ret_port = colon + 1;
    return 0;
}

/* Start-up may block on a name, the loop may not. */
enum nxl_code push_listen(struct nxl_push *push, const char *address, struct nxl_err *err)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *found = NULL;
    struct sockaddr_storage bound;
    socklen_t size = sizeof(bound);
    const char *port = "";
    char host[256];
    int on = 1, status;

    if (split_address(address, host, sizeof(host), &port) != 0)
        return nxl_err_set(err, NXL_CONFIG, 0, "stream.listen: %s is not of the form host:port",
                           nxl_quote(address));
    status = getaddrinfo(host, port, &hints, &found);
    if (status != 0)
        return nxl_err_set(err, NXL_CONFIG, 0, "stream.listen: %s: %s", nxl_quote(address),
                           gai_strerror(status));
    push->listen_fd = socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (push->listen_fd >= 0)
        (void)setsockopt(push->listen_fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    status = push->listen_fd < 0 || bind(push->listen_fd, found->ai_addr, found->ai_addrlen) != 0 ||
             listen(push->listen_fd, 4096) != 0 ||
             getsockname(push->listen_fd, (void *)&bound, &size) != 0;
    freeaddrinfo(found);
    if (status != 0)
        return nxl_err_set(err, NXL_IO, errno, "stream.listen: listen on %s", nxl_quote(address));
    (void)snprintf(push->address, sizeof(push->address), "%s%s%s:%u",
                   strchr(host, ':') != NULL ? "[" : "", host, strchr(host, ':') != NULL ? "]" : "",
                   ntohs(bound.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&bound)->sin6_port
                                                     : ((struct sockaddr_in *)&bound)->sin_port));
    return nxl_watch_open(push->loop, push->listen_fd, NXL_WATCH_READ, on_accept, push,
                          &push->listen_watch, err);
}
