/* dies.h - runs a function in a child and says which signal ended it; for what must stop the
 * program. Only from a test without threads. */
#ifndef NXL_TESTS_BASE_DIES_H
#define NXL_TESTS_BASE_DIES_H

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* 0: fn returned. */
static int dies_of(void (*fn)(const void *arg), const void *arg)
{
    int status = 0;
    pid_t child = fork();

    if (child < 0)
        return -1;
    if (child == 0) {
        struct rlimit no_core = {0, 0};
        int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

        (void)setrlimit(RLIMIT_CORE, &no_core);
        (void)dup2(null, STDERR_FILENO);
        fn(arg);
        _exit(0);
    }
    if (waitpid(child, &status, 0) != child)
        return -1;
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

#endif
