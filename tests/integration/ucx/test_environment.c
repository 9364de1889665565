/* test_environment.c - no library, a second copy of it, foreign variables. Each runs in a process
 * of its own, executed again, since UCX can be loaded only once. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "integration/ucx/test_ucx.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static int check(int holds, const char *what, const char *text)
{
    if (!holds)
        fprintf(stderr, "%s: %s\n", what, text);
    return holds ? 0 : 1;
}

static int absent_main(void)
{
    static const char *const settings[] = {"library=libucp-absent.so.0", NULL};
    struct nxl_err err = {0};
    struct ucx_rig *rig = ucx_rig_open(settings, &err);

    return check(rig == NULL, "open", "should have been refused") ||
           check(err.code == NXL_NOT_SUPPORTED, "code", nxl_code_word(err.code)) ||
           check(strstr(err.text, "libucp-absent.so.0") != NULL, "names the library", err.text) ||
           check(strstr(err.text, "libucx0") != NULL, "names the package", err.text);
}

/* C-042: variables that another party has put into the pod. */
static int foreign_main(void)
{
    static const char *const settings[] = {"tls=tcp", NULL};
    struct nxl_err err = {0};
    struct ucx_rig *rig;
    int wrong;

    setenv("UCX_TLS", "posix", 1);
    setenv("UCX_NET_DEVICES", "lo", 1);
    rig = ucx_rig_open(settings, &err);
    if (rig == NULL)
        return check(0, "open", err.text);
    wrong = check(strstr(rig->log, "UCX_TLS=posix") != NULL, "log", rig->log) ||
            check(strstr(rig->log, "UCX_NET_DEVICES=lo") != NULL, "log", rig->log);
    ucx_rig_close(rig);
    return wrong;
}

static int file_copy(const char *from, const char *to)
{
    int in = open(from, O_RDONLY | O_CLOEXEC),
        out = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0700);
    struct stat stat;
    int copied = in >= 0 && out >= 0 && fstat(in, &stat) == 0 &&
                 sendfile(out, in, NULL, (size_t)stat.st_size) == stat.st_size;

    close(in);
    close(out);
    return copied;
}

/* C-055: NIXL's wheels bring a renamed copy. */
static int second_main(const char *folder)
{
    struct nxl_err err = {0};
    char path[256];
    void *handle;

    snprintf(path, sizeof(path), "%s/libucs-copy.so.0", folder);
    if (!file_copy("/usr/lib/x86_64-linux-gnu/libucs.so.0", path)) {
        fprintf(stderr, "no libucs.so.0 to copy\n");
        return 77;
    }
    handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    unlink(path);
    if (handle == NULL)
        return check(0, "dlopen", dlerror());
    return check(ucx_rig_open(NULL, &err) == NULL, "open", "should have been refused") ||
           check(err.code == NXL_NOT_SUPPORTED, "code", nxl_code_word(err.code)) ||
           check(strstr(err.text, "libucs-copy") != NULL, "names the copy", err.text);
}

static void mine(int signo)
{
    (void)signo;
}

/* UCX takes signals when it is loaded; the agent's handlers must be there afterwards. */
static int signals_main(void)
{
    static const int signals[] = {SIGSEGV, SIGBUS, SIGHUP, SIGFPE};
    struct sigaction action = {.sa_handler = mine}, now;
    struct nxl_err err = {0};
    struct ucx_rig *rig;
    int wrong = 0;

    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
        sigaction(signals[i], &action, NULL);
    rig = ucx_rig_open(NULL, &err);
    if (rig == NULL)
        return check(0, "open", err.text);
    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
        sigaction(signals[i], NULL, &now);
        wrong |= check(now.sa_handler == mine, "handler", strsignal(signals[i]));
    }
    ucx_rig_close(rig);
    return wrong;
}

static int refused_main(void)
{
    static const char *const settings[] = {"tls=tcp", "device_list=nosuchdevice0", NULL};
    struct nxl_err err = {0};
    struct ucx_rig *rig = ucx_rig_open(settings, &err);

    return check(rig == NULL, "open", "should have been refused") ||
           check(strstr(err.text, "nosuchdevice0") != NULL, "names the device", err.text);
}

int environment_main(const char *what, const char *arg)
{
    if (strcmp(what, "absent") == 0)
        return absent_main();
    if (strcmp(what, "foreign") == 0)
        return foreign_main();
    if (strcmp(what, "second") == 0)
        return second_main(arg);
    if (strcmp(what, "signals") == 0)
        return signals_main();
    return refused_main();
}

static void again_as(const char *what)
{
    char folder[] = "/tmp/nxl-ucx-XXXXXX";
    int status = -1;
    pid_t pid;

    assert_non_null(mkdtemp(folder));
    pid = fork();
    if (pid == 0) {
        execl("/proc/self/exe", "test_ucx", what, folder, (char *)NULL);
        _exit(127);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    rmdir(folder);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77)
        skip();
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void an_absent_library_is_named_with_its_package(void **state)
{
    (void)state;
    again_as("environment-absent");
}

static void foreign_variables_are_reported(void **state)
{
    (void)state;
    again_as("environment-foreign");
}

static void a_second_copy_is_refused(void **state)
{
    (void)state;
    again_as("environment-second");
}

static void signal_handlers_stay_the_agents(void **state)
{
    (void)state;
    again_as("environment-signals");
}

static void an_unknown_device_is_refused(void **state)
{
    (void)state;
    again_as("environment-refused");
}

int environment_run(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_absent_library_is_named_with_its_package),
        cmocka_unit_test(foreign_variables_are_reported),
        cmocka_unit_test(a_second_copy_is_refused),
        cmocka_unit_test(signal_handlers_stay_the_agents),
        cmocka_unit_test(an_unknown_device_is_refused),
    };

    return cmocka_run_group_tests_name("ucx: its surroundings", tests, NULL, NULL);
}
