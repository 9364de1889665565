/* far.c - the far side: this program executed again (UCX must not come up in a forked child), with
 * a memfd that both sides map, so that the test sees what really arrived. */
#include "integration/ucx/ucx_rig.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

struct hello {
    uint32_t address_size, key_size;
    unsigned char address[NXL_BACKEND_ADDRESS_MAX], key[NXL_BACKEND_KEY_MAX];
};

int far_main(int argc, char **argv)
{
    int socket = atoi(argv[2]), fd = atoi(argv[3]);
    uint64_t size = strtoull(argv[4], NULL, 10);
    struct nxl_memory memory = {.kind = NXL_MEM_DRAM, .size = size, .fd = fd};
    struct nxl_backend_mem *mem = NULL;
    struct nxl_view address;
    struct nxl_err err = {0};
    struct ucx_rig *rig;
    struct hello hello;
    size_t key_size = 0;
    char byte;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    memory.base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    rig = ucx_rig_open((const char *const *)&argv[5], &err);
    if (rig == NULL || memory.base == MAP_FAILED) {
        fprintf(stderr, "far side: %s\n", err.text);
        return 1;
    }
    memset(&hello, 0, sizeof(hello));
    if (nxl_backend_ucx_ops.register_mem(rig->backend, &memory, &mem, &err) != NXL_OK ||
        nxl_backend_ucx_ops.export_key(rig->backend, mem, hello.key, &key_size, &err) != NXL_OK ||
        nxl_backend_ucx_ops.address(rig->backend, &address, &err) != NXL_OK) {
        fprintf(stderr, "far side: %s\n", err.text);
        return 1;
    }
    hello.key_size = (uint32_t)key_size;
    hello.address_size = (uint32_t)address.size;
    memcpy(hello.address, address.data, address.size);
    if (write(socket, &hello, sizeof(hello)) != sizeof(hello))
        return 1;
    if (read(socket, &byte, 1) < 0) /* until the test closes its end */
        return 1;
    if (nxl_backend_ucx_ops.deregister_mem(rig->backend, mem, &err) != NXL_OK)
        return 1;
    ucx_rig_close(rig);
    munmap(memory.base, size);
    (void)argc;
    return 0;
}

static void far_exec(int socket, int fd, uint64_t size, const char *const *settings)
{
    char texts[3][32];
    const char *argv[32] = {"/proc/self/exe", "far", texts[0], texts[1], texts[2]};
    size_t count = 5;

    snprintf(texts[0], sizeof(texts[0]), "%d", socket);
    snprintf(texts[1], sizeof(texts[1]), "%d", fd);
    snprintf(texts[2], sizeof(texts[2]), "%llu", (unsigned long long)size);
    for (; settings != NULL && *settings != NULL && count < 31; settings++)
        argv[count++] = *settings;
    execv("/proc/self/exe", (char *const *)argv);
    _exit(127);
}

int far_spawn(struct far *far, uint64_t size, const char *const *settings)
{
    struct pollfd readable = {.events = POLLIN};
    struct hello hello;
    int pair[2];

    memset(far, 0, sizeof(*far));
    far->size = size;
    far->fd = memfd_create("far", 0);
    if (far->fd < 0 || ftruncate(far->fd, (off_t)size) != 0 ||
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
        return 0;
    far->base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, far->fd, 0);
    far->socket = pair[0];
    far->pid = fork();
    if (far->pid == 0) {
        int socket = dup(pair[1]);

        far_exec(socket, far->fd, size, settings);
    }
    close(pair[1]);
    readable.fd = far->socket;
    if (poll(&readable, 1, 20000) != 1 ||
        read(far->socket, &hello, sizeof(hello)) != sizeof(hello)) {
        far_close(far);
        return 0;
    }
    far->address_size = hello.address_size;
    far->key_size = hello.key_size;
    memcpy(far->address, hello.address, hello.address_size);
    memcpy(far->key, hello.key, hello.key_size);
    return 1;
}

/* Reaped at once: behind shared memory UCX looks for the process, and a zombie is one. */
void far_kill(struct far *far)
{
    int status;

    kill(far->pid, SIGKILL);
    waitpid(far->pid, &status, 0);
    far->pid = 0;
}

void far_close(struct far *far)
{
    int status = 0;

    if (far->socket > 0)
        close(far->socket);
    for (int tries = 0; far->pid > 0 && tries < 500 && waitpid(far->pid, &status, WNOHANG) == 0;
         tries++) {
        if (tries == 400)
            kill(far->pid, SIGKILL);
        poll(NULL, 0, 10);
    }
    if (far->pid > 0 && WIFSIGNALED(status))
        fprintf(stderr, "far side ended by signal %d\n", WTERMSIG(status));
    munmap(far->base, far->size);
    close(far->fd);
    memset(far, 0, sizeof(*far));
}
