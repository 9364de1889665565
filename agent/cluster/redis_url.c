/* redis_url.c - store.url to its parts. Pure; called when the directory opens. */
#include "cluster/redis_room.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static enum nxl_code parse_db(const char *text, uint32_t *ret, struct nxl_err *err)
{
    char *end;
    unsigned long value;

    if (text[0] < '0' || text[0] > '9')
        return nxl_err_set(err, NXL_CONFIG, 0,
                           "database '%s' is not a number; write redis://host:port/0", text);
    errno = 0;
    value = strtoul(text, &end, 10);
    if (errno != 0 || *end != '\0' || value > 65535)
        return nxl_err_set(err, NXL_CONFIG, 0, "database '%s' is not a number from 0 to 65535",
                           text);
    *ret = (uint32_t)value;
    return NXL_OK;
}

static enum nxl_code parse_port(const char *text, size_t size, uint16_t *ret, struct nxl_err *err)
{
    unsigned long value = 0;

    for (size_t i = 0; i < size && value <= 65535; i++) {
        if (text[i] < '0' || text[i] > '9')
            return nxl_err_set(err, NXL_CONFIG, 0, "port '%.*s' is not a number", (int)size, text);
        value = value * 10 + (unsigned long)(text[i] - '0');
    }
    if (size == 0 || value == 0 || value > 65535)
        return nxl_err_set(err, NXL_CONFIG, 0, "port '%.*s' is not a number from 1 to 65535",
                           (int)size, text);
    *ret = (uint16_t)value;
    return NXL_OK;
}

/* host[:port] or [v6][:port] in [text, text + size). */
static enum nxl_code parse_host(const char *text, size_t size, struct nxl_redis_url *url,
                                struct nxl_err *err)
{
    const char *host = text, *rest;
    size_t host_size;

    if (size > 0 && text[0] == '[') {
        const char *end = memchr(text, ']', size);

        if (end == NULL)
            return nxl_err_set(err, NXL_CONFIG, 0,
                               "the '[' of an IPv6 address is not closed by ']'");
        host = text + 1;
        host_size = (size_t)(end - host);
        rest = end + 1;
    } else {
        const char *colon = memchr(text, ':', size);

        if (colon != NULL && memchr(colon + 1, ':', size - (size_t)(colon + 1 - text)) != NULL)
            return nxl_err_set(err, NXL_CONFIG, 0,
                               "an IPv6 address stands in brackets: redis://[::1]:6379");
        host_size = colon != NULL ? (size_t)(colon - text) : size;
        rest = text + host_size;
    }
    if (host_size == 0)
        return nxl_err_set(err, NXL_CONFIG, 0, "the host is missing");
    if (host_size >= sizeof(url->host))
        return nxl_err_set(err, NXL_CONFIG, 0, "the host is longer than %zu bytes",
                           sizeof(url->host) - 1);
    memcpy(url->host, host, host_size);
    url->host[host_size] = '\0';
    url->port = 6379;
    if (rest == text + size)
        return NXL_OK;
    if (*rest != ':')
        return nxl_err_set(err, NXL_CONFIG, 0, "after the host comes ':' and a port, not '%c'",
                           *rest);
    return parse_port(rest + 1, (size_t)(text + size - rest - 1), &url->port, err);
}

static enum nxl_code parse_tcp(const char *rest, struct nxl_redis_url *url, struct nxl_err *err)
{
    const char *slash = strchr(rest, '/');
    size_t size = slash != NULL ? (size_t)(slash - rest) : strlen(rest);
    enum nxl_code code;

    /* Settings show up in process lists, status pages and logs, so they never hold a secret. */
    if (memchr(rest, '@', size) != NULL)
        return nxl_err_set(
            err, NXL_CONFIG, 0,
            "a user or password does not belong in it; use store.user and store.password_file");
    code = parse_host(rest, size, url, err);
    if (code != NXL_OK)
        return code;
    if (slash == NULL || slash[1] == '\0')
        return NXL_OK;
    return parse_db(slash + 1, &url->db, err);
}

static enum nxl_code parse_unix(const char *rest, struct nxl_redis_url *url, struct nxl_err *err)
{
    const char *query = strchr(rest, '?');
    size_t size = query != NULL ? (size_t)(query - rest) : strlen(rest);

    if (size == 0 || rest[0] != '/')
        return nxl_err_set(err, NXL_CONFIG, 0,
                           "a socket path is absolute: unix:///run/redis/redis.sock");
    if (size > NXL_REDIS_PATH_MAX)
        return nxl_err_set(err, NXL_CONFIG, 0,
                           "the socket path has %zu bytes; the system allows %d", size,
                           NXL_REDIS_PATH_MAX);
    memcpy(url->host, rest, size);
    url->host[size] = '\0';
    if (query == NULL)
        return NXL_OK;
    if (strncmp(query, "?db=", 4) != 0)
        return nxl_err_set(err, NXL_CONFIG, 0,
                           "after the socket path only '?db=<number>' may follow");
    return parse_db(query + 4, &url->db, err);
}

static enum nxl_code parse_scheme(const char *text, struct nxl_redis_url *url, struct nxl_err *err)
{
    if (strcmp(text, "none") == 0 || text[0] == '\0') {
        url->kind = NXL_REDIS_NONE;
        return NXL_OK;
    }
    if (strncmp(text, "redis://", 8) == 0) {
        url->kind = NXL_REDIS_TCP;
        return parse_tcp(text + 8, url, err);
    }
    if (strncmp(text, "unix://", 7) == 0) {
        url->kind = NXL_REDIS_UNIX;
        return parse_unix(text + 7, url, err);
    }
    if (strncmp(text, "rediss://", 9) == 0) {
        if (!NXL_REDIS_HAS_TLS)
            return nxl_err_set(
                err, NXL_NOT_SUPPORTED, 0,
                "TLS to the store needs hiredis 1.0 with hiredis_ssl; this build has hiredis %s: "
                "use redis:// or unix://, or a build on Debian 13",
                NXL_REDIS_HIREDIS_VERSION);
        url->kind = NXL_REDIS_TLS;
        return parse_tcp(text + 9, url, err);
    }
    if (strncmp(text, "redis+sentinel://", 17) == 0)
        return nxl_err_set(
            err, NXL_NOT_SUPPORTED, 0,
            "Sentinel is not part of this build (hiredis %s): name the primary's Service with "
            "redis://, it is resolved and its role is checked at every dial",
            NXL_REDIS_HIREDIS_VERSION);
    return nxl_err_set(err, NXL_CONFIG, 0,
                       "it begins with redis://, rediss:// or unix://, or is 'none'");
}

enum nxl_code nxl_redis_url_parse(const char *text, struct nxl_redis_url *ret, struct nxl_err *err)
{
    struct nxl_redis_url url = {0};
    enum nxl_code code = parse_scheme(text, &url, err);

    if (code != NXL_OK) {
        /* What stands before an '@' may be a secret, so such a text is not repeated. */
        const char *at = strrchr(text, '@');

        return nxl_err_wrap(err, code, "store.url '%s%.200s'", at != NULL ? "..." : "",
                            at != NULL ? at : text);
    }
    *ret = url;
    return NXL_OK;
}
