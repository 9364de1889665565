/* test_log.c - one line per event, quoting, levels, the gate. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <regex.h>
#include <string.h>
#include <unistd.h>

struct sink {
    int ends[2];
    char text[16384];
};

static int sink_setup(void **state)
{
    static struct sink sink;

    sink = (struct sink){0};
    *state = &sink;
    if (pipe2(sink.ends, O_CLOEXEC | O_NONBLOCK) != 0)
        return -1;
    nxl_log_setup("nixlet-test", NXL_LOG_INFO, sink.ends[1]);
    return 0;
}

static int sink_teardown(void **state)
{
    struct sink *sink = *state;

    nxl_log_setup("nixlet-test", NXL_LOG_INFO, STDERR_FILENO);
    close(sink->ends[0]);
    close(sink->ends[1]);
    return 0;
}

/* What was logged since the last look. */
static const char *sink_read(struct sink *sink)
{
    ssize_t got = read(sink->ends[0], sink->text, sizeof(sink->text) - 1);

    sink->text[got > 0 ? got : 0] = '\0';
    return sink->text;
}

static int matches(const char *text, const char *pattern)
{
    regex_t regex;
    int result;

    assert_int_equal(regcomp(&regex, pattern, REG_EXTENDED | REG_NOSUB), 0);
    result = regexec(&regex, text, 0, NULL, 0) == 0;
    regfree(&regex);
    return result;
}

#define HEAD "^time=20[0-9]{2}-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9]\\.[0-9]{3}Z "

static void a_line_carries_time_level_program_and_subject(void **state)
{
    struct sink *sink = *state;

    nxl_info("link", "event=\"peer is here\" peer=%s", nxl_quote("default/decode-0"));
    assert_true(matches(sink_read(sink),
                        HEAD "level=info program=nixlet-test subject=link "
                             "event=\"peer is here\" peer=\"default/decode-0\"\n$"));
    nxl_error("x", "a=1");
    assert_true(matches(sink_read(sink), HEAD "level=error program=nixlet-test subject=x a=1\n$"));
}

static void a_text_that_is_no_key_and_value_becomes_msg(void **state)
{
    struct sink *sink = *state;

    nxl_warn("link", "peer %s is gone", "a\"b");
    assert_non_null(strstr(sink_read(sink), " subject=link msg=\"peer a\\\"b is gone\"\n"));
}

static int evaluations;

static int evaluated(void)
{
    return ++evaluations;
}

static void a_line_above_the_limit_costs_nothing(void **state)
{
    struct sink *sink = *state;

    evaluations = 0;
    nxl_debug("x", "n=%d", evaluated());
    assert_int_equal(evaluations, 0);
    assert_string_equal(sink_read(sink), "");
    nxl_log_limit = NXL_LOG_TRACE;
    nxl_trace("x", "n=%d", evaluated());
    assert_int_equal(evaluations, 1);
    assert_non_null(strstr(sink_read(sink), "level=trace"));
}

/* What a stranger sends must not look like a second event, even where somebody forgot to quote. */
static void a_line_break_inside_cannot_forge_a_line(void **state)
{
    struct sink *sink = *state;
    const char *text;

    nxl_info("x", "peer=%s", "a\nlevel=error forged=1\x1b[31m\r");
    text = sink_read(sink);
    assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
    assert_null(strchr(text, '\x1b'));
    assert_null(strchr(text, '\r'));
}

static void a_line_too_long_is_cut_and_says_so(void **state)
{
    struct sink *sink = *state;
    char text[6000];
    const char *line;

    memset(text, 'y', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    nxl_info("x", "a=%s", text);
    line = sink_read(sink);
    assert_true(strlen(line) <= 4096); /* what a pipe takes in one piece */
    assert_string_equal(line + strlen(line) - 7, " cut=1\n");
    nxl_info("x", "%s", text);
    line = sink_read(sink);
    assert_true(strlen(line) <= 4096);
    assert_string_equal(line + strlen(line) - 5, "...\"\n");
}

static void logging_keeps_errno_and_survives_a_closed_sink(void **state)
{
    errno = 77;
    nxl_info("x", "a=1");
    assert_int_equal(errno, 77);
    nxl_log_setup("nixlet-test", NXL_LOG_INFO, -1);
    nxl_info("x", "a=1");
    assert_int_equal(errno, 77);
}

static void texts_from_outside_are_quoted(void **state)
{
    static const struct {
        const char *text, *quoted;
    } rows[] = {
        {"", "\"\""},
        {"plain", "\"plain\""},
        {"two words", "\"two words\""},
        {"a\"b\\c", "\"a\\\"b\\\\c\""},
        {"a\nb\tc\rd", "\"a\\nb\\tc\\rd\""},
        {"\x01\x7f", "\"\\x01\\x7f\""},
        {"gr\xc3\xbc\xc3\x9f", "\"gr\xc3\xbc\xc3\x9f\""}, /* two bytes */
        {"\xe2\x82\xac", "\"\xe2\x82\xac\""},             /* three */
        {"\xf0\x9f\x98\x80", "\"\xf0\x9f\x98\x80\""},     /* four */
        {"\xff\xfe", "\"\\xff\\xfe\""},                   /* no character at all */
        {"\xc3", "\"\\xc3\""},                            /* cut short */
        {"\xe2\x82", "\"\\xe2\\x82\""},
        {"\xc0\xaf", "\"\\xc0\\xaf\""}, /* overlong */
        {"\xe0\x80\xaf", "\"\\xe0\\x80\\xaf\""},
        {"\xed\xa0\x80", "\"\\xed\\xa0\\x80\""},          /* surrogate */
        {"\xf4\x90\x80\x80", "\"\\xf4\\x90\\x80\\x80\""}, /* beyond the last plane */
    };

    for (size_t i = 0; i < NXL_COUNT_OF(rows); i++)
        assert_string_equal(nxl_quote(rows[i].text), rows[i].quoted);
    assert_string_equal(nxl_quote(NULL), "null");
}

static void eight_quotes_live_side_by_side(void **state)
{
    const char *quotes[8];

    for (int i = 0; i < 8; i++) {
        char text[2] = {(char)('a' + i), '\0'};

        quotes[i] = nxl_quote(text);
    }
    for (int i = 0; i < 8; i++)
        assert_int_equal(quotes[i][1], 'a' + i);
}

static void a_quote_never_outgrows_its_buffer(void **state)
{
    for (size_t length = 90; length < 600; length++) {
        char text[600];
        const char *quoted;

        memset(text, '\x01', length); /* grows fourfold */
        text[length] = '\0';
        quoted = nxl_quote(text);
        assert_true(strlen(quoted) < 512);
        assert_int_equal(quoted[strlen(quoted) - 1], '"');
        if (length > 130)
            assert_string_equal(quoted + strlen(quoted) - 4, "...\"");
    }
}

static void levels_are_found_by_word(void **state)
{
    assert_int_equal(nxl_log_level_of("error"), NXL_LOG_ERROR);
    assert_int_equal(nxl_log_level_of("warn"), NXL_LOG_WARN);
    assert_int_equal(nxl_log_level_of("info"), NXL_LOG_INFO);
    assert_int_equal(nxl_log_level_of("debug"), NXL_LOG_DEBUG);
    assert_int_equal(nxl_log_level_of("trace"), NXL_LOG_TRACE);
    assert_int_equal(nxl_log_level_of("INFO"), -1);
    assert_int_equal(nxl_log_level_of(""), -1);
}

static uint64_t now_of(void *arg)
{
    return *(const uint64_t *)arg;
}

/* A peer that fails a thousand times a second fills no disk, and the count is not lost. */
static void the_gate_lets_a_burst_through_and_counts_the_rest(void **state)
{
    struct sink *sink = *state;
    struct nxl_log_gate gate = {0};
    uint64_t now_ns = 0; /* the very first instant must work too */
    unsigned passed = 0;

    nxl_clock_replace(now_of, &now_ns);
    for (unsigned i = 0; i < 1000; i++)
        passed += (unsigned)nxl_log_gate_open(&gate, 5);
    assert_int_equal(passed, 5);
    assert_string_equal(sink_read(sink), "");
    now_ns += NXL_SEC + 1;
    assert_int_equal(nxl_log_gate_open(&gate, 5), 1);
    assert_non_null(strstr(sink_read(sink), "count=995\n"));
    now_ns += NXL_SEC + 1;
    assert_int_equal(nxl_log_gate_open(&gate, 5), 1);
    assert_string_equal(sink_read(sink), ""); /* nothing was left out this time */
    nxl_clock_replace(NULL, NULL);
}

#define SINK_TEST(name) cmocka_unit_test_setup_teardown(name, sink_setup, sink_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        SINK_TEST(a_line_carries_time_level_program_and_subject),
        SINK_TEST(a_text_that_is_no_key_and_value_becomes_msg),
        SINK_TEST(a_line_above_the_limit_costs_nothing),
        SINK_TEST(a_line_break_inside_cannot_forge_a_line),
        SINK_TEST(a_line_too_long_is_cut_and_says_so),
        SINK_TEST(logging_keeps_errno_and_survives_a_closed_sink),
        cmocka_unit_test(texts_from_outside_are_quoted),
        cmocka_unit_test(eight_quotes_live_side_by_side),
        cmocka_unit_test(a_quote_never_outgrows_its_buffer),
        cmocka_unit_test(levels_are_found_by_word),
        SINK_TEST(the_gate_lets_a_burst_through_and_counts_the_rest),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
