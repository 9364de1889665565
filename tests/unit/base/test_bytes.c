/* test_bytes.c - the growing buffer and the reader that never overruns. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/bytes.h"
#include "base/mem.h"
#include "unit/base/dies.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

static void numbers_lie_little_endian(void **state)
{
    static const unsigned char wanted[] = {0x01, 0x03, 0x02, 0x07, 0x06, 0x05, 0x04, 0x0f,
                                           0x0e, 0x0d, 0x0c, 0x0b, 0x0a, 0x09, 0x08};
    struct nxl_bytes bytes = {0};

    nxl_bytes_put_u8(&bytes, 0x01);
    nxl_bytes_put_u16(&bytes, 0x0203);
    nxl_bytes_put_u32(&bytes, 0x04050607);
    nxl_bytes_put_u64(&bytes, 0x08090a0b0c0d0e0full);
    assert_int_equal(bytes.size, sizeof(wanted));
    assert_memory_equal(bytes.data, wanted, sizeof(wanted));
    nxl_bytes_fini(&bytes);
    assert_null(bytes.data);
}

static void message_put(struct nxl_bytes *bytes)
{
    nxl_bytes_put_u8(bytes, 0xfe);
    nxl_bytes_put_u16(bytes, 0xfedc);
    nxl_bytes_put_u32(bytes, 0xfedcba98u);
    nxl_bytes_put_u64(bytes, 0xfedcba9876543210ull);
    nxl_bytes_put_text(bytes, "prefill-0");
    nxl_bytes_put_view(bytes, (struct nxl_view){"\0\1\2", 3});
}

static void what_was_put_is_read_again(void **state)
{
    struct nxl_bytes bytes = {0};
    struct nxl_reader reader;
    struct nxl_view view;
    char text[16];

    message_put(&bytes);
    reader = nxl_reader_of(bytes.data, bytes.size);
    assert_int_equal(nxl_reader_u8(&reader), 0xfe);
    assert_int_equal(nxl_reader_u16(&reader), 0xfedc);
    assert_int_equal(nxl_reader_u32(&reader), 0xfedcba98u);
    assert_true(nxl_reader_u64(&reader) == 0xfedcba9876543210ull);
    nxl_reader_text(&reader, text, sizeof(text));
    assert_string_equal(text, "prefill-0");
    view = nxl_reader_view(&reader);
    assert_int_equal(view.size, 3);
    assert_memory_equal(view.data, "\0\1\2", 3);
    assert_int_equal(nxl_reader_left(&reader), 0);
    assert_false(reader.bad);
    nxl_bytes_fini(&bytes);
}

/* Each prefix lies in memory of exactly its size, so that a sanitizer sees one byte too many. */
static void every_cut_of_a_message_turns_the_reader_bad(void **state)
{
    struct nxl_bytes bytes = {0};

    message_put(&bytes);
    for (size_t size = 0; size < bytes.size; size++) {
        unsigned char *cut = nxl_new0(size);
        struct nxl_reader reader = nxl_reader_of(cut, size);
        struct nxl_view view;
        char text[16];

        if (size > 0)
            memcpy(cut, bytes.data, size);
        (void)nxl_reader_u8(&reader);
        (void)nxl_reader_u16(&reader);
        (void)nxl_reader_u32(&reader);
        (void)nxl_reader_u64(&reader);
        nxl_reader_text(&reader, text, sizeof(text));
        view = nxl_reader_view(&reader);
        assert_true(reader.bad);
        assert_null(view.data);
        assert_int_equal(view.size, 0);
        assert_int_equal(nxl_reader_left(&reader), 0);
        free(cut);
    }
    nxl_bytes_fini(&bytes);
}

static void after_the_first_short_read_everything_is_zero(void **state)
{
    static const unsigned char data[] = {1, 2, 3, 4, 5, 6, 7};
    struct nxl_reader reader = nxl_reader_of(data, sizeof(data));

    assert_true(nxl_reader_u64(&reader) == 0);
    assert_true(reader.bad);
    assert_int_equal(nxl_reader_u8(&reader), 0); /* there are bytes, but no longer for us */
    assert_int_equal(nxl_reader_u16(&reader), 0);
    assert_int_equal(nxl_reader_u32(&reader), 0);
    assert_int_equal(nxl_reader_left(&reader), 0);
}

static void texts_are_refused_when_too_long_or_with_a_nul(void **state)
{
    static const struct {
        const char *bytes;
        size_t size, room;
        int bad;
        const char *text;
    } rows[] = {
        {"\x00\x00", 2, 1, 0, ""},
        {"\x03\x00"
         "abc",
         5, 4, 0, "abc"},
        {"\x03\x00"
         "abc",
         5, 3, 1, ""},
        {"\x03\x00"
         "a\0c",
         5, 16, 1, ""},
        {"\xff\xff"
         "abc",
         5, 16, 1, ""},
        {"\x01", 1, 16, 1, ""},
    };

    for (size_t i = 0; i < NXL_COUNT_OF(rows); i++) {
        struct nxl_reader reader = nxl_reader_of(rows[i].bytes, rows[i].size);
        char text[16];

        memset(text, '#', sizeof(text));
        nxl_reader_text(&reader, text, rows[i].room);
        assert_int_equal(reader.bad, rows[i].bad);
        assert_string_equal(text, rows[i].text);
    }
}

static void a_view_longer_than_what_is_left_is_refused(void **state)
{
    static const char huge[] = "\xff\xff\xff\xff"
                               "abcd";
    struct nxl_reader reader = nxl_reader_of(huge, 8);
    struct nxl_view view = nxl_reader_view(&reader);

    assert_true(reader.bad);
    assert_null(view.data);
}

static void nothing_can_be_read_from_nothing(void **state)
{
    struct nxl_reader reader = nxl_reader_of(NULL, 0);

    assert_int_equal(nxl_reader_left(&reader), 0);
    assert_false(reader.bad);
    assert_int_equal(nxl_reader_u8(&reader), 0);
    assert_true(reader.bad);
}

static void growing_keeps_what_is_there(void **state)
{
    struct nxl_bytes bytes = {0};

    for (uint32_t i = 0; i < 10000; i++)
        nxl_bytes_put_u32(&bytes, i);
    assert_int_equal(bytes.size, 40000);
    assert_true(bytes.room >= bytes.size);
    for (uint32_t i = 0; i < 10000; i++) {
        struct nxl_reader reader = nxl_reader_of(bytes.data + i * 4, 4);

        assert_int_equal(nxl_reader_u32(&reader), i);
    }
    nxl_bytes_fini(&bytes);
}

static void room_asked_for_can_be_filled_by_hand(void **state)
{
    struct nxl_bytes bytes = {0};
    char *end;

    nxl_bytes_put(&bytes, "ab", 2);
    end = nxl_bytes_grow(&bytes, 1000);
    memset(end, 'c', 1000);
    bytes.size += 1000;
    assert_int_equal(bytes.data[1], 'b');
    assert_int_equal(bytes.data[2], 'c');
    nxl_bytes_clear(&bytes);
    assert_int_equal(bytes.size, 0);
    nxl_bytes_fini(&bytes);
}

static void dropping_from_the_front_moves_the_rest(void **state)
{
    struct nxl_bytes bytes = {0};

    nxl_bytes_put(&bytes, "abcdef", 6);
    nxl_bytes_drop(&bytes, 0);
    nxl_bytes_drop(&bytes, 4);
    assert_int_equal(bytes.size, 2);
    assert_memory_equal(bytes.data, "ef", 2);
    nxl_bytes_drop(&bytes, 2);
    assert_int_equal(bytes.size, 0);
    nxl_bytes_fini(&bytes);
}

static void drop_too_much(const void *arg)
{
    struct nxl_bytes bytes = {0};

    nxl_bytes_put(&bytes, "a", 1);
    nxl_bytes_drop(&bytes, 2);
}

static void dropping_more_than_there_is_stops_the_program(void **state)
{
    assert_int_equal(dies_of(drop_too_much, NULL), SIGABRT);
}

static void printing_grows_across_every_size(void **state)
{
    for (size_t length = 0; length < 200; length++) {
        struct nxl_bytes bytes = {0};
        char text[201] = {0};

        memset(text, 'x', length);
        nxl_bytes_printf(&bytes, "<%s>", text);
        nxl_bytes_printf(&bytes, "%d", 42);
        assert_int_equal(bytes.size, length + 4);
        assert_int_equal(bytes.data[0], '<');
        assert_memory_equal(bytes.data + 1, text, length);
        assert_memory_equal(bytes.data + 1 + length, ">42", 3);
        nxl_bytes_fini(&bytes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_lie_little_endian),
        cmocka_unit_test(what_was_put_is_read_again),
        cmocka_unit_test(every_cut_of_a_message_turns_the_reader_bad),
        cmocka_unit_test(after_the_first_short_read_everything_is_zero),
        cmocka_unit_test(texts_are_refused_when_too_long_or_with_a_nul),
        cmocka_unit_test(a_view_longer_than_what_is_left_is_refused),
        cmocka_unit_test(nothing_can_be_read_from_nothing),
        cmocka_unit_test(growing_keeps_what_is_there),
        cmocka_unit_test(room_asked_for_can_be_filled_by_hand),
        cmocka_unit_test(dropping_from_the_front_moves_the_rest),
        cmocka_unit_test(dropping_more_than_there_is_stops_the_program),
        cmocka_unit_test(printing_grows_across_every_size),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
