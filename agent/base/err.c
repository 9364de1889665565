/* err.c - sets and wraps errors and names result codes. Linked into agent, client and plug-ins;
 * any thread. */
#include <nxl/err.h>

#include <stdio.h>
#include <string.h>

/* What did not fit ends in "...", never in half a UTF-8 character, so that it stays valid JSON. */
static void text_cut(char *text, size_t size)
{
    size_t end = size - 4;

    while (end > 0 && ((unsigned char)text[end] & 0xc0) == 0x80)
        end--;
    memcpy(text + end, "...", 4);
}

static void text_append(char *text, size_t size, const char *more)
{
    size_t used = strlen(text), length = strlen(more);

    if (used + length < size) {
        memcpy(text + used, more, length + 1);
        return;
    }
    memcpy(text + used, more, size - 1 - used);
    text[size - 1] = '\0';
    text_cut(text, size);
}

static void text_format(char *text, size_t size, const char *fmt, va_list args)
{
    int length = vsnprintf(text, size, fmt, args);

    if (length < 0)
        text[0] = '\0';
    else if ((size_t)length >= size)
        text_cut(text, size);
}

/* Both build the text aside: an argument may be the text of the very slot. */
enum nxl_code nxl_err_set(struct nxl_err *err, enum nxl_code code, int os, const char *fmt, ...)
{
    char text[NXL_ERR_TEXT_SIZE], room[128];
    va_list args;

    if (!err)
        return code;
    va_start(args, fmt);
    text_format(text, sizeof(text), fmt, args);
    va_end(args);
    if (os > 0) {
        text_append(text, sizeof(text), ": ");
        text_append(text, sizeof(text), strerror_r(os, room, sizeof(room)));
    }
    err->code = code;
    err->os = os;
    memcpy(err->text, text, strlen(text) + 1);
    return code;
}

enum nxl_code nxl_err_wrap(struct nxl_err *err, enum nxl_code code, const char *fmt, ...)
{
    char text[NXL_ERR_TEXT_SIZE];
    va_list args;

    if (!err)
        return code;
    va_start(args, fmt);
    text_format(text, sizeof(text), fmt, args);
    va_end(args);
    text_append(text, sizeof(text), ": ");
    text_append(text, sizeof(text), err->text[0] ? err->text : nxl_code_text(code));
    err->code = code;
    memcpy(err->text, text, strlen(text) + 1);
    return code;
}

const char *nxl_code_name(int code)
{
    switch (code) {
#define CODE_CASE(name, number, word, retry, text)                                                 \
    case number:                                                                                   \
        return (number) < 0 ? "NXL_ERR_" #name : "NXL_" #name;
        NXL_CODES(CODE_CASE)
#undef CODE_CASE
    default:
        return "NXL_ERR_UNKNOWN";
    }
}

const char *nxl_code_word(int code)
{
    switch (code) {
#define CODE_CASE(name, number, word, retry, text)                                                 \
    case number:                                                                                   \
        return word;
        NXL_CODES(CODE_CASE)
#undef CODE_CASE
    default:
        return "unknown";
    }
}

const char *nxl_code_text(int code)
{
    switch (code) {
#define CODE_CASE(name, number, word, retry, text)                                                 \
    case number:                                                                                   \
        return text;
        NXL_CODES(CODE_CASE)
#undef CODE_CASE
    default:
        return "a code that this build does not know";
    }
}

int nxl_code_retryable(int code)
{
    switch (code) {
#define CODE_CASE(name, number, word, retry, text)                                                 \
    case number:                                                                                   \
        return retry;
        NXL_CODES(CODE_CASE)
#undef CODE_CASE
    default:
        return 0;
    }
}
