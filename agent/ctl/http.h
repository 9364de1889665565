/* http.h - GET from an agent: HTTP/1.0 over a unix socket or TCP, everything bounded. */
#ifndef NXL_CTL_HTTP_H
#define NXL_CTL_HTTP_H

#include <nxl/err.h>

#include <jansson.h>

#define CTL_HTTP_HEAD_MAX 16384u
#define CTL_HTTP_BODY_MAX (64u << 20)
#define CTL_HTTP_TIMEOUT_NS 10000000000ull

struct ctl_http_head {
    int status;  /* 200 to 599 */
    size_t body; /* offset of its first byte */
    size_t size; /* of the body */
};
/* Pure. data: what came so far; closed: nothing more will. NXL_AGAIN: more is needed, never when
 * closed. NXL_MISMATCH: not an answer that we asked for. NXL_LIMIT: too long. */
NXL_MUST_USE enum nxl_code ctl_http_parse(const char *data, size_t size, int closed,
                                          struct ctl_http_head *ret, struct nxl_err *err);

/* where: a path (it has a '/') or host:port. Gives *ret_body to free(), NUL-terminated. Any status
 * is NXL_OK. NXL_NO_AGENT: nobody listens there. */
NXL_MUST_USE enum nxl_code ctl_http_get(const char *where, const char *path, uint64_t timeout_ns,
                                        int *ret_status, char **ret_body, size_t *ret_size,
                                        struct nxl_err *err);
/* The JSON object behind path; another status than 200 is an error with the agent's own sentence.
 * Gives *ret to json_decref(). */
NXL_MUST_USE enum nxl_code ctl_http_json(const char *where, const char *path, json_t **ret,
                                         struct nxl_err *err);

#endif
