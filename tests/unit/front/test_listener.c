/* The socket file: replaced when dead, refused when alive, never anything else's. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "rig.h"
#include "base/mem.h"
#include "front/listener.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static void nobody(void *arg, int fd)
{
    (void)arg;
    close(fd);
}

static void no_wake(void *arg)
{
    (void)arg;
}

static enum nxl_code listen_at(struct rig *rig, const char *path, struct front_listener **ret,
                               struct nxl_err *err)
{
    struct front_listener_options options = {
        .loop = rig->loop, .path = path, .mode = 0640, .backlog = 4, .fn = nobody};

    return front_listener_open(&options, ret, err);
}

static int foreign_socket(const char *path, int type, int live)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);

    strcpy(addr.sun_path, path);
    assert_int_equal(bind(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
    if (live)
        assert_int_equal(listen(fd, 4), 0);
    return fd;
}

static void path_in(const struct rig *rig, char *to, size_t size, const char *name)
{
    assert_true(snprintf(to, size, "%s/%s", rig->folder, name) < (int)size);
}

static void unlink_lock(const char *path)
{
    char lock[160];

    (void)snprintf(lock, sizeof(lock), "%s.lock", path);
    assert_int_equal(unlink(lock), 0);
}

static void a_socket_file_left_by_a_dead_agent_is_replaced(void **state)
{
    struct front_listener *listener = NULL;
    struct nxl_err err = {0};
    struct rig rig;
    struct stat st;
    char path[120];

    (void)state;
    rig_open(&rig, NULL);
    path_in(&rig, path, sizeof(path), "stale.sock");
    close(foreign_socket(path, SOCK_SEQPACKET, 1));
    assert_int_equal(access(path, F_OK), 0);
    assert_int_equal(listen_at(&rig, path, &listener, &err), NXL_OK);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0640);
    front_listener_close(listener);
    assert_int_equal(access(path, F_OK), -1);
    unlink_lock(path);
    rig_close(&rig);
}

static void a_live_agent_keeps_its_socket(void **state)
{
    struct nxl_front_options options;
    struct nxl_front *second = NULL;
    struct nxl_err err = {0};
    struct rig rig;
    struct raw raw;

    (void)state;
    rig_open(&rig, NULL);
    options = (struct nxl_front_options){.loop = rig.loop,
                                         .metrics = rig.metrics,
                                         .settings = rig.settings,
                                         .xfer = rig.xfer,
                                         .node = "n",
                                         .agent = "a",
                                         .backends = "",
                                         .wake = no_wake};
    assert_int_equal(nxl_front_open(&options, &second, &err), NXL_BUSY);
    assert_non_null(strstr(err.text, rig.path));
    assert_null(second);
    raw_open(&raw, &rig);
    raw_welcome(&raw);
    raw_close(&raw);
    rig_close(&rig);
}

static void a_live_stranger_of_any_socket_type_keeps_its_file(void **state)
{
    static const int types[] = {SOCK_SEQPACKET, SOCK_STREAM};
    struct front_listener *listener = NULL;
    struct rig rig;
    char path[120];

    (void)state;
    rig_open(&rig, NULL);
    path_in(&rig, path, sizeof(path), "live.sock");
    for (size_t i = 0; i < NXL_COUNT_OF(types); i++) {
        int fd = foreign_socket(path, types[i], 1);
        struct nxl_err err = {0};

        assert_int_equal(listen_at(&rig, path, &listener, &err), NXL_BUSY);
        assert_int_equal(access(path, F_OK), 0);
        close(fd);
        unlink(path);
    }
    unlink_lock(path);
    rig_close(&rig);
}

static void a_file_that_is_no_socket_is_left_alone(void **state)
{
    struct front_listener *listener = NULL;
    struct nxl_err err = {0};
    struct rig rig;
    char path[120];

    (void)state;
    rig_open(&rig, NULL);
    path_in(&rig, path, sizeof(path), "precious");
    close(open(path, O_CREAT | O_WRONLY, 0600));
    assert_int_equal(listen_at(&rig, path, &listener, &err), NXL_CONFIG);
    assert_non_null(strstr(err.text, "remove it or set socket.path"));
    assert_int_equal(unlink(path), 0);
    unlink_lock(path);
    rig_close(&rig);
}

/* Somebody replaced our file while we ran: it is not ours to remove any more. */
static void closing_removes_only_the_own_file(void **state)
{
    struct front_listener *listener = NULL;
    struct nxl_err err = {0};
    struct rig rig;
    char path[120];
    int fd;

    (void)state;
    rig_open(&rig, NULL);
    path_in(&rig, path, sizeof(path), "swapped.sock");
    assert_int_equal(listen_at(&rig, path, &listener, &err), NXL_OK);
    assert_int_equal(unlink(path), 0);
    fd = foreign_socket(path, SOCK_SEQPACKET, 1);
    front_listener_close(listener);
    assert_int_equal(access(path, F_OK), 0);
    close(fd);
    unlink(path);
    unlink_lock(path);
    rig_close(&rig);
}

static void wrong_settings_are_refused_by_name(void **state)
{
    static const struct {
        const char *key, *value, *word;
    } rows[] = {
        {"socket.mode", "rw", "socket.mode 'rw'"},
        {"socket.mode", "", "socket.mode ''"},
        {"socket.mode", "1777", "socket.mode '1777'"},
        {"socket.mode", "0668", "socket.mode '0668'"},
        {"socket.namespace", "Team_A", "socket.namespace 'Team_A'"},
        {"socket.path", "", "socket.path ''"},
        {"socket.path",
         "/tmp/0123456789012345678901234567890123456789012345678901234567890123456789"
         "0123456789012345678901234567890123456789",
         "1 to 107 bytes"},
    };
    struct rig rig;

    (void)state;
    rig_open(&rig, NULL);
    for (size_t i = 0; i < NXL_COUNT_OF(rows); i++) {
        struct nxl_settings *settings = nxl_settings_new();
        struct nxl_front *front = NULL;
        struct nxl_err err = {0};
        struct nxl_front_options options = {.loop = rig.loop,
                                            .metrics = rig.metrics,
                                            .settings = settings,
                                            .xfer = rig.xfer,
                                            .node = "n",
                                            .agent = "a",
                                            .backends = "",
                                            .wake = no_wake};

        nxl_front_declare(settings);
        assert_int_equal(
            nxl_settings_set(settings, "socket.path", "/tmp/nxl-unused.sock", "test", &err),
            NXL_OK);
        assert_int_equal(nxl_settings_set(settings, rows[i].key, rows[i].value, "test", &err),
                         NXL_OK);
        assert_int_equal(nxl_front_open(&options, &front, &err), NXL_CONFIG);
        assert_non_null(strstr(err.text, rows[i].word));
        nxl_settings_free(settings);
    }
    rig_close(&rig);
}

static void the_folder_of_the_socket_is_made(void **state)
{
    struct front_listener *listener = NULL;
    struct nxl_err err = {0};
    struct rig rig;
    char path[120], folder[120];

    (void)state;
    rig_open(&rig, NULL);
    path_in(&rig, folder, sizeof(folder), "new");
    path_in(&rig, path, sizeof(path), "new/agent.sock");
    assert_int_equal(listen_at(&rig, path, &listener, &err), NXL_OK);
    front_listener_close(listener);
    unlink_lock(path);
    assert_int_equal(rmdir(folder), 0);
    path_in(&rig, path, sizeof(path), "no/such/agent.sock");
    assert_int_equal(listen_at(&rig, path, &listener, &err), NXL_IO);
    assert_non_null(strstr(err.text, "no/such"));
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_socket_file_left_by_a_dead_agent_is_replaced),
        cmocka_unit_test(a_live_agent_keeps_its_socket),
        cmocka_unit_test(a_live_stranger_of_any_socket_type_keeps_its_file),
        cmocka_unit_test(a_file_that_is_no_socket_is_left_alone),
        cmocka_unit_test(closing_removes_only_the_own_file),
        cmocka_unit_test(wrong_settings_are_refused_by_name),
        cmocka_unit_test(the_folder_of_the_socket_is_made),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
