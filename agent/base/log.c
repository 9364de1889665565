/* log.c - formats one line per event and writes it with one write(2). Any thread; no lock, because
 * the kernel keeps short writes to one descriptor apart. */
#include "base/log.h"
#include "base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LOG_LINE_SIZE 4096u
#define QUOTE_RING 8u
#define QUOTE_SIZE 512u

static const char *const level_words[] = {"error", "warn", "info", "debug", "trace"};

enum nxl_log_level nxl_log_limit = NXL_LOG_INFO;
static const char *log_program = "nixlet";
static int log_fd = STDERR_FILENO;

void nxl_log_setup(const char *program, enum nxl_log_level limit, int fd)
{
    log_program = program;
    log_fd = fd;
    nxl_log_limit = limit;
}

int nxl_log_level_of(const char *word)
{
    for (size_t i = 0; i < sizeof(level_words) / sizeof(level_words[0]); i++) {
        if (strcmp(word, level_words[i]) == 0)
            return (int)i;
    }
    return -1;
}

/* Length of the valid UTF-8 character at text, 0 if there is none. */
static size_t utf8_length(const unsigned char *text)
{
    size_t more = text[0] >= 0xf0 ? 3 : text[0] >= 0xe0 ? 2 : 1;

    if (text[0] < 0xc2 || text[0] > 0xf4)
        return 0;
    for (size_t i = 1; i <= more; i++) {
        if ((text[i] & 0xc0) != 0x80)
            return 0; /* also stops at the NUL */
    }
    if ((text[0] == 0xe0 && text[1] < 0xa0) || (text[0] == 0xed && text[1] > 0x9f) ||
        (text[0] == 0xf0 && text[1] < 0x90) || (text[0] == 0xf4 && text[1] > 0x8f))
        return 0; /* overlong, surrogate, beyond the last plane */
    return more + 1;
}

/* Writes the quoted form of one character to to (at most 4 bytes); returns how many were read. */
static size_t quote_char(const unsigned char *text, char to[8])
{
    static const char hex[] = "0123456789abcdef";
    size_t length = utf8_length(text);

    memset(to, 0, 8);
    if (length > 0) {
        memcpy(to, text, length);
        return length;
    }
    if (text[0] == '"' || text[0] == '\\') {
        to[0] = '\\';
        to[1] = (char)text[0];
    } else if (text[0] == '\n' || text[0] == '\t' || text[0] == '\r') {
        to[0] = '\\';
        to[1] = text[0] == '\n' ? 'n' : text[0] == '\t' ? 't' : 'r';
    } else if (text[0] < 0x20 || text[0] >= 0x7f) {
        to[0] = '\\';
        to[1] = 'x';
        to[2] = hex[text[0] >> 4];
        to[3] = hex[text[0] & 15];
    } else {
        to[0] = (char)text[0];
    }
    return 1;
}

static void quote_into(char *to, size_t size, const char *text)
{
    size_t used = 0;
    char one[8];

    to[used++] = '"';
    while (*text != '\0') {
        size_t length;

        text += quote_char((const unsigned char *)text, one);
        length = strlen(one);
        if (used + length + sizeof("...\"") > size) {
            memcpy(to + used, "...", 3);
            used += 3;
            break;
        }
        memcpy(to + used, one, length);
        used += length;
    }
    to[used++] = '"';
    to[used] = '\0';
}

const char *nxl_quote(const char *text)
{
    static _Thread_local char ring[QUOTE_RING][QUOTE_SIZE];
    static _Thread_local unsigned next;
    char *to = ring[next++ % QUOTE_RING];

    if (!text)
        return "null";
    quote_into(to, QUOTE_SIZE, text);
    return to;
}

static size_t line_head(char *line, size_t size, enum nxl_log_level level, const char *subject)
{
    uint64_t now_ms = nxl_unix_ms();
    time_t seconds = (time_t)(now_ms / 1000u);
    struct tm tm;
    int length;

    (void)gmtime_r(&seconds, &tm); /* fails only beyond year 2^31 */
    length = snprintf(
        line, size, "time=%04d-%02d-%02dT%02d:%02d:%02d.%03uZ level=%s program=%s subject=%s ",
        tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec,
        (unsigned)(now_ms % 1000u), level_words[level], log_program, subject);
    if (length < 0)
        return 0;
    return (size_t)length < size ? (size_t)length : size - 1;
}

/* A text that is not key=value becomes the value of msg. */
static int is_key_value(const char *text)
{
    size_t key = strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789_.");

    return key > 0 && text[key] == '=';
}

/* A line has no line break inside: what a stranger sends must not look like two events. */
static void flatten(char *text)
{
    for (; *text != '\0'; text++) {
        if ((unsigned char)*text < 0x20 || *text == 0x7f)
            *text = ' ';
    }
}

void nxl_log_write(enum nxl_log_level level, const char *subject, const char *fmt, ...)
{
    char line[LOG_LINE_SIZE], text[LOG_LINE_SIZE];
    static const char cut[] = " cut=1";
    int saved = errno, length;
    size_t used, room;
    va_list args;

    va_start(args, fmt);
    length = vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    if (length < 0)
        text[0] = '\0';
    flatten(text);
    used = line_head(line, sizeof(line) / 4, level, subject);
    room = sizeof(line) - used - sizeof(cut) - 1;
    if (is_key_value(text)) {
        size_t size = strlen(text);
        int cut_off = size > room || (size_t)length >= sizeof(text);

        size = size > room ? room : size;
        memcpy(line + used, text, size);
        used += size;
        if (cut_off) {
            memcpy(line + used, cut, sizeof(cut) - 1);
            used += sizeof(cut) - 1;
        }
    } else {
        memcpy(line + used, "msg=", 4);
        quote_into(line + used + 4, room - 4, text);
        used += strlen(line + used);
    }
    line[used++] = '\n';
    /* A full or closed sink loses the line: a log never blocks or ends the program. */
    while (write(log_fd, line, used) < 0 && errno == EINTR)
        ;
    errno = saved;
}

int nxl_log_gate_open(struct nxl_log_gate *gate, uint32_t burst)
{
    uint64_t now_ns = nxl_now_ns() + 1; /* 0 is a gate that was never used */

    if (gate->window_ns == 0 || now_ns - gate->window_ns >= NXL_SEC) {
        uint32_t dropped = gate->dropped;

        *gate = (struct nxl_log_gate){.window_ns = now_ns};
        if (dropped > 0)
            nxl_warn("log", "event=\"similar lines left out\" count=%u", dropped);
    }
    if (gate->used < burst) {
        gate->used++;
        return 1;
    }
    gate->dropped++;
    return 0;
}
