/* http.h - one listening socket served by libmicrohttpd on the loop, without threads. Inside
 * agent/status only. Loop thread. */
#ifndef NXL_STATUS_HTTP_H
#define NXL_STATUS_HTTP_H

#include "base/bytes.h"
#include <nxl/err.h>

struct nxl_loop;
struct status_http;

struct status_answer {
    unsigned status;  /* HTTP status */
    const char *type; /* static: media type */
    struct nxl_bytes body;
};
/* Fills *answer for a GET or HEAD of path; everything else was answered before. */
typedef void status_answer_fn(void *arg, const char *path, struct status_answer *answer);

struct status_http_options {
    struct nxl_loop *loop;
    int fd; /* listening; taken, whatever is returned */
    unsigned connections_max;
    size_t request_max; /* bytes of request line and headers, and of a body that nobody reads */
    status_answer_fn *fn;
    void *arg;
};
NXL_MUST_USE enum nxl_code status_http_open(const struct status_http_options *options,
                                            struct status_http **ret, struct nxl_err *err);
void status_http_close(struct status_http *http); /* accepts NULL; not from inside fn */

#endif
