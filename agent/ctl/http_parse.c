/* http_parse.c - reads an HTTP/1 answer that may be cut, hostile or of something else. Pure. */
#include "ctl/http.h"

#include <stdint.h>
#include <string.h>
#include <strings.h>

#define NO_LENGTH SIZE_MAX

static enum nxl_code refuse(struct nxl_err *err, const char *what)
{
    return nxl_err_set(err, NXL_MISMATCH, 0, "the answer is no HTTP that was asked for: %s", what);
}

/* "HTTP/1.1 200 OK" */
static enum nxl_code status_parse(const char *line, size_t size, int *ret, struct nxl_err *err)
{
    int status;

    if (size < 12 || memcmp(line, "HTTP/1.", 7) != 0 || (line[7] != '0' && line[7] != '1') ||
        line[8] != ' ' || (size > 12 && line[12] != ' '))
        return refuse(err, "its first line does not begin with HTTP/1.0 or HTTP/1.1 and a status");
    status = 0;
    for (int i = 9; i < 12; i++) {
        if (line[i] < '0' || line[i] > '9')
            return refuse(err, "its status is no number");
        status = status * 10 + (line[i] - '0');
    }
    if (status < 200 || status > 599)
        return refuse(err, "its status is not between 200 and 599");
    *ret = status;
    return NXL_OK;
}

static enum nxl_code length_parse(const char *text, size_t size, size_t *length,
                                  struct nxl_err *err)
{
    size_t value = 0;

    if (size == 0)
        return refuse(err, "Content-Length is empty");
    for (size_t i = 0; i < size; i++) {
        if (text[i] < '0' || text[i] > '9')
            return refuse(err, "Content-Length is no number");
        value = value * 10 + (size_t)(text[i] - '0');
        if (value > CTL_HTTP_BODY_MAX)
            return nxl_err_set(err, NXL_LIMIT, 0, "the answer announces more than %u bytes",
                               CTL_HTTP_BODY_MAX);
    }
    if (*length != NO_LENGTH && *length != value)
        return refuse(err, "it has two different Content-Length");
    *length = value;
    return NXL_OK;
}

static int name_is(const char *line, size_t size, const char *name)
{
    return size == strlen(name) && strncasecmp(line, name, size) == 0;
}

static enum nxl_code header_parse(const char *line, size_t size, size_t *length,
                                  struct nxl_err *err)
{
    const char *colon = memchr(line, ':', size);
    const char *value, *end = line + size;
    size_t name;

    if (colon == NULL || colon == line || line[0] == ' ' || line[0] == '\t')
        return refuse(err, "a header line has no name");
    name = (size_t)(colon - line);
    if (line[name - 1] == ' ' || line[name - 1] == '\t')
        return refuse(err, "a space stands before the colon of a header");
    value = colon + 1;
    while (value < end && (*value == ' ' || *value == '\t'))
        value++;
    while (end > value && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    if (name_is(line, name, "transfer-encoding"))
        return refuse(err, "it is sent in chunks, which HTTP/1.0 has not");
    if (name_is(line, name, "content-encoding"))
        return refuse(err, "it is compressed");
    if (name_is(line, name, "content-length"))
        return length_parse(value, (size_t)(end - value), length, err);
    return NXL_OK;
}

/* head: the lines, each with its CRLF, without the empty one. */
static enum nxl_code head_parse(const char *head, size_t size, int *ret_status, size_t *ret_length,
                                struct nxl_err *err)
{
    size_t at = 0, length = NO_LENGTH;
    int status = 0;

    if (memchr(head, '\0', size) != NULL)
        return refuse(err, "a NUL byte stands in its head");
    while (at < size) {
        const char *line = head + at;
        const char *end = memchr(line, '\n', size - at);
        size_t line_size;
        enum nxl_code code;

        if (end == NULL || end == line || end[-1] != '\r')
            return refuse(err, "a line of its head does not end with CR and LF");
        line_size = (size_t)(end - line) - 1;
        if (memchr(line, '\r', line_size) != NULL)
            return refuse(err, "a CR stands within a line of its head");
        code = at == 0 ? status_parse(line, line_size, &status, err)
                       : header_parse(line, line_size, &length, err);
        if (code != NXL_OK)
            return code;
        at += line_size + 2;
    }
    *ret_status = status;
    *ret_length = length;
    return NXL_OK;
}

/* What can be told before the head is whole: that it will never be one. */
static enum nxl_code head_wait(const char *data, size_t size, int closed, struct nxl_err *err)
{
    static const char begin[] = "HTTP/1.";
    size_t known = size < sizeof(begin) - 1 ? size : sizeof(begin) - 1;

    if (memcmp(data, begin, known) != 0)
        return refuse(err, "it does not begin with HTTP/1");
    if (size >= CTL_HTTP_HEAD_MAX)
        return nxl_err_set(err, NXL_LIMIT, 0, "the head of the answer is longer than %u bytes",
                           CTL_HTTP_HEAD_MAX);
    if (closed)
        return nxl_err_set(err, NXL_MISMATCH, 0,
                           "the connection was closed after %zu bytes, before the head was whole",
                           size);
    return NXL_AGAIN;
}

enum nxl_code ctl_http_parse(const char *data, size_t size, int closed, struct ctl_http_head *ret,
                             struct nxl_err *err)
{
    size_t window = size < CTL_HTTP_HEAD_MAX ? size : CTL_HTTP_HEAD_MAX;
    const char *end = window > 0 ? memmem(data, window, "\r\n\r\n", 4) : NULL;
    struct ctl_http_head head = {0};
    size_t length, came;
    enum nxl_code code;

    if (size == 0)
        return closed ? refuse(err, "the connection was closed without a byte") : NXL_AGAIN;
    if (end == NULL)
        return head_wait(data, size, closed, err);
    code = head_parse(data, (size_t)(end - data) + 2, &head.status, &length, err);
    if (code != NXL_OK)
        return code;
    head.body = (size_t)(end - data) + 4;
    came = size - head.body;
    if (came > CTL_HTTP_BODY_MAX)
        return nxl_err_set(err, NXL_LIMIT, 0, "the answer is longer than %u bytes",
                           CTL_HTTP_BODY_MAX);
    if (length == NO_LENGTH) { /* until the end of the connection */
        if (!closed)
            return NXL_AGAIN;
        length = came;
    }
    if (came > length)
        return refuse(err, "it is longer than its Content-Length");
    if (came < length && !closed)
        return NXL_AGAIN;
    if (came < length)
        return nxl_err_set(err, NXL_MISMATCH, 0,
                           "the connection was closed after %zu of the %zu bytes announced", came,
                           length);
    head.size = length;
    *ret = head;
    return NXL_OK;
}
