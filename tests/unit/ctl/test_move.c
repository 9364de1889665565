/* test_move.c - which of a peer's regions is meant, and the file on this side. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ctl/move.h"

#define ROW(id, peer, life, address, length)                                                       \
    "{\"id\":" #id ",\"peer\":\"" peer "\",\"incarnation\":\"" life "\",\"address\":\"" address    \
    "\",\"length\":" #length "}"

static json_t *rows_of(const char *text)
{
    json_t *rows = json_loads(text, 0, NULL);

    assert_non_null(rows);
    return rows;
}

struct row {
    const char *rows;
    int64_t region;
    uint64_t address, length;
    enum nxl_code code;
    uint64_t want_address, want_length;
    const char *says;
};

static const char one[] = "[" ROW(7, "far", "n/b/2", "0x1000", 256) "]";
static const char many[] =
    "[" ROW(1, "near", "n/b/9", "0x1000", 999) "," ROW(7, "far", "n/b/2", "0x1000", 256) "," ROW(
        8, "far", "n/b/2", "0x8000", 4096) "," ROW(3, "far", "n/b/1", "0x9000", 64) "]";
static const char nested[] =
    "[" ROW(1, "far", "n/b/2", "0x1000", 64) "," ROW(2, "far", "n/b/2", "0x1000", 4096) "]";

static void the_region_is_found_by_id_by_address_or_because_there_is_one(void **state)
{
    static const struct row rows[] = {
        {one, -1, 0, 0, NXL_OK, 0x1000, 256, NULL},
        {one, -1, 0, 100, NXL_OK, 0x1000, 100, NULL},
        {one, 7, 0, 256, NXL_OK, 0x1000, 256, NULL},
        {one, -1, 0x1080, 0, NXL_OK, 0x1080, 128, NULL},
        {one, 7, 0x10ff, 1, NXL_OK, 0x10ff, 1, NULL},
        {many, 8, 0, 0, NXL_OK, 0x8000, 4096, NULL},
        {many, -1, 0x8800, 0, NXL_OK, 0x8800, 2048, NULL},
        {nested, -1, 0x1010, 0, NXL_OK, 0x1010, 4080, NULL},
        {one, -1, 0, 257, NXL_INVALID_PARAM, 0, 0, "257 bytes do not fit: region 7 has 256"},
        {one, -1, 0x1080, 129, NXL_INVALID_PARAM, 0, 0, "has 128 from 0x1080"},
        {one, -1, 0x1100, 0, NXL_NOT_FOUND, 0, 0,
         "0x1100 lies in no region of 'far'; it has 7 at 0x1000 (256 bytes)"},
        {one, -1, 0xfff, 0, NXL_NOT_FOUND, 0, 0, "lies in no region"},
        {one, 7, 0x2000, 0, NXL_INVALID_PARAM, 0, 0, "does not lie in region 7"},
        {one, 6, 0, 0, NXL_NOT_FOUND, 0, 0, "has no region 6; it has 7"},
        {many, -1, 0, 0, NXL_INVALID_PARAM, 0, 0, "has 2 regions; say which"},
        {many, 3, 0, 0, NXL_NOT_FOUND, 0, 0, "has no region 3"}, /* of an earlier life */
        {many, 1, 0, 0, NXL_NOT_FOUND, 0, 0, "has no region 1"}, /* of another peer */
        {"[]", -1, 0, 0, NXL_NOT_FOUND, 0, 0, "no region that this agent may see"},
        {"{}", -1, 0, 0, NXL_NOT_FOUND, 0, 0, "no region that this agent may see"},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        json_t *json = rows_of(rows[i].rows);
        struct move_where where = {1, 2};
        struct nxl_err err = {0};
        enum nxl_code code = move_where_pick(json, "far", "n/b/2", rows[i].region, rows[i].address,
                                             rows[i].length, &where, &err);

        json_decref(json);
        if (code != rows[i].code)
            fail_msg("row %zu: %d, not %d: %s", i, code, rows[i].code, err.text);
        assert_int_equal(where.address, code == NXL_OK ? rows[i].want_address : 1);
        assert_int_equal(where.length, code == NXL_OK ? rows[i].want_length : 2);
        if (rows[i].says != NULL && strstr(err.text, rows[i].says) == NULL)
            fail_msg("row %zu: '%s' does not say '%s'", i, err.text, rows[i].says);
    }
}

static void rows_that_make_no_sense_are_no_regions(void **state)
{
    static const char *const texts[] = {
        "[1, null, [], \"x\", {}]",
        "[" ROW(7, "far", "n/b/2", "0xzz", 256) "]",
        "[" ROW(7, "far", "n/b/2", "", 256) "]",
        "[" ROW(7, "far", "n/b/2", "0x1000", 0) "]",
        "[" ROW(7, "far", "n/b/2", "0x1000", -5) "]",
        "[" ROW(7, "far", "n/b/2", "0x1000", 2.5) "]",
        "[" ROW(7, "far", "n/b/2", "0xffffffffffffffff", 256) "]", /* end past all memory */
        ("[{\"id\":7,\"peer\":\"far\",\"incarnation\":\"n/b/2\","
         "\"address\":\"0x10\",\"length\":5,\"lost\":true}]"),
        "[{\"id\":7,\"peer\":5,\"address\":\"0x10\",\"length\":5}]",
        "[{\"id\":\"7\",\"peer\":\"far\",\"address\":\"0x10\",\"length\":5}]",
    };

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        json_t *json = rows_of(texts[i]);
        struct move_where where;
        struct nxl_err err = {0};

        assert_int_equal(move_where_pick(json, "far", "n/b/2", -1, 0, 0, &where, &err),
                         NXL_NOT_FOUND);
        json_decref(json);
    }
}

static void a_long_list_of_regions_is_cut_with_dots(void **state)
{
    json_t *json = json_array();
    struct move_where where;
    struct nxl_err err = {0};

    for (int i = 0; i < 50; i++)
        json_array_append_new(json, json_pack("{s:i, s:s, s:s, s:i}", "id", i, "peer", "far",
                                              "address", "0x7fffffff0000", "length", 4096));
    assert_int_equal(move_where_pick(json, "far", "x", -1, 0, 0, &where, &err), NXL_INVALID_PARAM);
    assert_non_null(strstr(err.text, "has 50 regions"));
    assert_non_null(strstr(err.text, "..."));
    json_decref(json);
}

/* ---- files ---------------------------------------------------------------------------------- */

struct rig {
    char dir[64], path[96];
};

static int rig_open(void **state)
{
    struct rig *rig = calloc(1, sizeof(*rig));

    snprintf(rig->dir, sizeof(rig->dir), "/tmp/nxl-move.XXXXXX");
    if (mkdtemp(rig->dir) == NULL)
        return -1;
    snprintf(rig->path, sizeof(rig->path), "%s/file", rig->dir);
    *state = rig;
    return 0;
}

static int rig_close(void **state)
{
    struct rig *rig = *state;
    int left;

    unlink(rig->path);
    left = rmdir(rig->dir); /* fails if anything was left behind */
    free(rig);
    return left;
}

static void write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void a_file_that_is_not_kept_leaves_what_was_there(void **state)
{
    struct rig *rig = *state;
    struct move_file file = {.fd = -1, .guard = -1};
    struct nxl_err err = {0};
    char text[16] = "";
    int fd;

    write_text(rig->path, "before");
    assert_int_equal(move_file_create(rig->path, 10000, &file, &err), NXL_OK);
    memset(file.base, 'x', 10000);
    move_file_fini(&file);
    fd = open(rig->path, O_RDONLY);
    assert_int_equal(read(fd, text, sizeof(text)), 6);
    assert_string_equal(text, "before");
    close(fd);
}

static void a_kept_file_has_the_bytes_the_size_and_the_old_mode(void **state)
{
    struct rig *rig = *state;
    struct move_file file = {.fd = -1, .guard = -1};
    struct nxl_err err = {0};
    uint64_t first, second;
    struct stat st;

    write_text(rig->path, "before");
    assert_int_equal(chmod(rig->path, 0640), 0);
    assert_int_equal(move_file_create(rig->path, 3000000, &file, &err), NXL_OK);
    for (int i = 0; i < 3000000; i++)
        file.base[i] = (unsigned char)(i * 7);
    assert_int_equal(move_file_digest(&file, 3000000, &first, &err), NXL_OK);
    assert_int_equal(move_file_keep(&file, &err), NXL_OK);
    move_file_fini(&file);
    assert_int_equal(stat(rig->path, &st), 0);
    assert_int_equal(st.st_size, 3000000);
    assert_int_equal(st.st_mode & 0777, 0640);
    assert_int_equal(move_file_open(rig->path, &file, &err), NXL_OK);
    assert_int_equal(move_file_digest(&file, file.size, &second, &err), NXL_OK);
    assert_true(first == second);
    assert_int_equal(move_file_digest(&file, 2999999, &second, &err), NXL_OK);
    assert_true(first != second);
    move_file_fini(&file);
}

static void the_digest_is_the_published_xxh64(void **state)
{
    struct rig *rig = *state;
    struct move_file file = {.fd = -1, .guard = -1};
    struct nxl_err err = {0};
    uint64_t digest;

    write_text(rig->path, "abc");
    assert_int_equal(move_file_open(rig->path, &file, &err), NXL_OK);
    assert_int_equal(move_file_digest(&file, 3, &digest, &err), NXL_OK);
    assert_true(digest == 0x44bc2cf5ad770999u); /* XXH64("abc", 0) */
    move_file_fini(&file);
}

static void what_cannot_be_mapped_is_refused_with_the_reason(void **state)
{
    struct rig *rig = *state;
    struct move_file file = {.fd = -1, .guard = -1};
    struct nxl_err err = {0};

    assert_int_equal(move_file_open(rig->path, &file, &err), NXL_IO);
    assert_non_null(strstr(err.text, rig->path));
    move_file_fini(&file);
    write_text(rig->path, "");
    assert_int_equal(move_file_open(rig->path, &file, &err), NXL_INVALID_PARAM);
    assert_non_null(strstr(err.text, "empty"));
    move_file_fini(&file);
    assert_int_equal(move_file_create(rig->dir, 10, &file, &err), NXL_INVALID_PARAM);
    move_file_fini(&file);
    assert_int_equal(move_file_create("/nonexistent/x", 10, &file, &err), NXL_IO);
    move_file_fini(&file);
    assert_int_equal(move_file_create(rig->path, UINT64_MAX, &file, &err), NXL_IO);
    move_file_fini(&file);
    assert_int_equal(move_file_open("/dev/null", &file, &err), NXL_INVALID_PARAM);
    move_file_fini(&file);
}

static void a_file_cut_meanwhile_is_an_error_and_no_crash(void **state)
{
    struct rig *rig = *state;
    struct move_file file = {.fd = -1, .guard = -1};
    struct nxl_err err = {0};
    uint64_t digest;

    assert_int_equal(move_file_create(rig->path, 1 << 20, &file, &err), NXL_OK);
    assert_int_equal(ftruncate(file.fd, 0), 0);
    assert_int_equal(move_file_digest(&file, 1 << 20, &digest, &err), NXL_MEMORY_LOST);
    move_file_fini(&file);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        /* First: the guard is installed once, and cmocka puts back its own SIGBUS handler
           afterwards. */
        cmocka_unit_test_setup_teardown(a_file_cut_meanwhile_is_an_error_and_no_crash, rig_open,
                                        rig_close),
        cmocka_unit_test(the_region_is_found_by_id_by_address_or_because_there_is_one),
        cmocka_unit_test(rows_that_make_no_sense_are_no_regions),
        cmocka_unit_test(a_long_list_of_regions_is_cut_with_dots),
        cmocka_unit_test_setup_teardown(a_file_that_is_not_kept_leaves_what_was_there, rig_open,
                                        rig_close),
        cmocka_unit_test_setup_teardown(a_kept_file_has_the_bytes_the_size_and_the_old_mode,
                                        rig_open, rig_close),
        cmocka_unit_test_setup_teardown(the_digest_is_the_published_xxh64, rig_open, rig_close),
        cmocka_unit_test_setup_teardown(what_cannot_be_mapped_is_refused_with_the_reason, rig_open,
                                        rig_close),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
