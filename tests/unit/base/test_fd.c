/* test_fd.c - owned descriptors, whole files, random bytes. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/fd.h"
#include "base/mem.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct folder {
    char path[64];
    char file[96];
};

static int folder_open(void **state)
{
    struct folder *folder = nxl_new0(sizeof(*folder));

    (void)nxl_copy_text(folder->path, sizeof(folder->path), "/tmp/nxl-fd-XXXXXX");
    if (!mkdtemp(folder->path))
        return -1;
    (void)snprintf(folder->file, sizeof(folder->file), "%s/file", folder->path);
    *state = folder;
    return 0;
}

static int folder_close(void **state)
{
    struct folder *folder = *state;

    (void)unlink(folder->file);
    if (rmdir(folder->path) != 0)
        return -1; /* something was left behind */
    free(folder);
    return 0;
}

static unsigned count_entries(const char *path)
{
    DIR *dir = opendir(path);
    unsigned count = 0;

    assert_non_null(dir);
    while (readdir(dir))
        count++;
    assert_int_equal(closedir(dir), 0);
    return count;
}

static void closing_twice_does_no_harm(void **state)
{
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC), copy = fd;

    errno = 77;
    nxl_closep(&fd);
    assert_int_equal(errno, 77);
    assert_int_equal(fd, -1);
    assert_int_equal(fcntl(copy, F_GETFD), -1);
    nxl_closep(&fd);
    assert_int_equal(fd, -1);
}

static void a_file_of_exactly_the_limit_is_read_and_one_byte_more_is_not(void **state)
{
    struct folder *folder = *state;
    struct nxl_err err = {0};
    char content[10000], *text = NULL;
    size_t size = 0;

    memset(content, 'k', sizeof(content));
    assert_int_equal(nxl_write_file(folder->file, content, sizeof(content), 0600, &err), NXL_OK);
    assert_int_equal(nxl_read_file(folder->file, sizeof(content), &text, &size, &err), NXL_OK);
    assert_int_equal(size, sizeof(content));
    assert_memory_equal(text, content, size);
    assert_int_equal(text[size], '\0');
    nxl_freep(&text);
    size = 77;
    assert_int_equal(nxl_read_file(folder->file, sizeof(content) - 1, &text, &size, &err),
                     NXL_LIMIT);
    assert_null(text);
    assert_int_equal(size, 77);
    assert_non_null(strstr(err.text, folder->file));
    assert_non_null(strstr(err.text, "9999 bytes"));
}

static void an_empty_file_and_one_without_a_size_are_read(void **state)
{
    struct folder *folder = *state;
    struct nxl_err err = {0};
    char *text = NULL;
    size_t size = 77;

    assert_int_equal(nxl_write_file(folder->file, "", 0, 0600, &err), NXL_OK);
    assert_int_equal(nxl_read_file(folder->file, 10, &text, &size, &err), NXL_OK);
    assert_int_equal(size, 0);
    assert_string_equal(text, "");
    nxl_freep(&text);
    assert_int_equal(nxl_read_file("/proc/self/status", 1 << 20, &text, NULL, &err), NXL_OK);
    assert_non_null(strstr(text, "Pid:"));
    nxl_freep(&text);
}

static void what_cannot_be_read_is_named_with_its_cause(void **state)
{
    struct folder *folder = *state;
    struct nxl_err err = {0};
    unsigned before = count_entries("/proc/self/fd");
    char *text = NULL;

    assert_int_equal(nxl_read_file(folder->file, 10, &text, NULL, &err), NXL_IO);
    assert_int_equal(err.os, ENOENT);
    assert_non_null(strstr(err.text, folder->file));
    assert_int_equal(nxl_read_file(folder->path, 10, &text, NULL, &err), NXL_IO);
    assert_int_equal(err.os, EISDIR);
    assert_null(text);
    assert_int_equal(count_entries("/proc/self/fd"), before);
}

static void a_fifo_in_place_of_a_file_does_not_hang(void **state)
{
    struct folder *folder = *state;
    struct nxl_err err = {0};
    char *text = NULL;

    assert_int_equal(mkfifo(folder->file, 0600), 0);
    assert_int_equal(nxl_read_file(folder->file, 10, &text, NULL, &err), NXL_OK);
    assert_string_equal(text, "");
    free(text);
}

static void writing_replaces_the_file_whole_with_the_mode_asked_for(void **state)
{
    struct folder *folder = *state;
    struct nxl_err err = {0};
    struct stat info;
    mode_t mask = umask(0077);
    char *text = NULL;

    assert_int_equal(nxl_write_file(folder->file, "a longer text", 13, 0600, &err), NXL_OK);
    assert_int_equal(nxl_write_file(folder->file, "short", 5, 0644, &err), NXL_OK);
    (void)umask(mask);
    assert_int_equal(nxl_read_file(folder->file, 100, &text, NULL, &err), NXL_OK);
    assert_string_equal(text, "short");
    free(text);
    assert_int_equal(stat(folder->file, &info), 0);
    assert_int_equal(info.st_mode & 07777, 0644);
    assert_int_equal(count_entries(folder->path), 3); /* ., .. and the file: nothing beside it */
}

static void a_write_that_fails_leaves_nothing_beside(void **state)
{
    struct folder *folder = *state;
    struct nxl_err err = {0};
    char missing[128];

    (void)snprintf(missing, sizeof(missing), "%s/none/file", folder->path);
    assert_int_equal(nxl_write_file(missing, "x", 1, 0600, &err), NXL_IO);
    assert_int_equal(err.os, ENOENT);
    assert_non_null(strstr(err.text, missing));
    /* A folder cannot be replaced by a file: the rename fails after the writing is done. */
    assert_int_equal(mkdir(folder->file, 0700), 0);
    assert_int_equal(nxl_write_file(folder->file, "x", 1, 0600, &err), NXL_IO);
    assert_int_equal(rmdir(folder->file), 0);
    assert_int_equal(count_entries(folder->path), 2);
}

static void random_bytes_fill_every_size_and_differ(void **state)
{
    unsigned char bytes[64] = {0}, seen = 0;

    for (unsigned round = 0; round < 64; round++) {
        nxl_random(bytes, 33);
        seen |= bytes[32];
    }
    assert_int_not_equal(seen, 0); /* 64 zeros in a row: not in our time */
    assert_int_equal(bytes[33], 0);
    assert_true(nxl_random_u64() != nxl_random_u64());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(closing_twice_does_no_harm),
        cmocka_unit_test_setup_teardown(
            a_file_of_exactly_the_limit_is_read_and_one_byte_more_is_not, folder_open,
            folder_close),
        cmocka_unit_test_setup_teardown(an_empty_file_and_one_without_a_size_are_read, folder_open,
                                        folder_close),
        cmocka_unit_test_setup_teardown(what_cannot_be_read_is_named_with_its_cause, folder_open,
                                        folder_close),
        cmocka_unit_test_setup_teardown(a_fifo_in_place_of_a_file_does_not_hang, folder_open,
                                        folder_close),
        cmocka_unit_test_setup_teardown(writing_replaces_the_file_whole_with_the_mode_asked_for,
                                        folder_open, folder_close),
        cmocka_unit_test_setup_teardown(a_write_that_fails_leaves_nothing_beside, folder_open,
                                        folder_close),
        cmocka_unit_test(random_bytes_fill_every_size_and_differ),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
