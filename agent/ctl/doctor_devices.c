/* doctor_devices.c - RDMA devices and GPUs, as /sys and the driver's library name them. */
#include "ctl/doctor.h"

#include <dirent.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"

static void text_add(char *text, size_t room, const char *more)
{
    size_t used = strlen(text);

    if (used + 1 < room)
        (void)snprintf(text + used, room - used, "%s%s", used > 0 ? ", " : "", more);
}

/* First line of a small file; "?" if it cannot be read. */
static void line_read(const char *path, char *to, size_t room)
{
    NXL_CLEANUP(nxl_freep) char *text = NULL;
    struct nxl_err err;

    if (nxl_read_file(path, 4096, &text, NULL, &err) != NXL_OK) {
        (void)nxl_copy_text(to, room, "?");
        return;
    }
    text[strcspn(text, "\n")] = '\0';
    (void)nxl_copy_text(to, room, text); /* cut if long */
}

/* "mlx5_0 (ACTIVE, 400 Gb/sec, InfiniBand)"; 1 if its first port is active. */
static int rdma_describe(const char *device, char *to, size_t room)
{
    char path[400], state[40], rate[60], layer[40];
    const char *word;

    (void)snprintf(path, sizeof(path), "/sys/class/infiniband/%.200s/ports/1/state", device);
    line_read(path, state, sizeof(state));
    (void)snprintf(path, sizeof(path), "/sys/class/infiniband/%.200s/ports/1/rate", device);
    line_read(path, rate, sizeof(rate));
    (void)snprintf(path, sizeof(path), "/sys/class/infiniband/%.200s/ports/1/link_layer", device);
    line_read(path, layer, sizeof(layer));
    word = strchr(state, ':') != NULL ? strchr(state, ':') + 1 : state;
    word += strspn(word, " ");
    (void)snprintf(to, room, "%.60s (%s, %s, %s)", device, word, rate, layer);
    return strcmp(word, "ACTIVE") == 0;
}

static unsigned verbs_openable(unsigned *ret_all)
{
    DIR *dir = opendir("/dev/infiniband");
    const struct dirent *entry;
    unsigned usable = 0;
    char path[300];

    *ret_all = 0;
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        if (strncmp(entry->d_name, "uverbs", 6) != 0)
            continue;
        (void)snprintf(path, sizeof(path), "/dev/infiniband/%s", entry->d_name);
        (*ret_all)++;
        usable += access(path, R_OK | W_OK) == 0;
    }
    if (dir != NULL)
        (void)closedir(dir);
    return usable;
}

static void look_rdma(struct doctor *doctor)
{
    DIR *dir = opendir("/sys/class/infiniband");
    const struct dirent *entry;
    unsigned count = 0, active = 0, nodes, usable = verbs_openable(&nodes);
    char all[320] = "", one[240];

    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        if (entry->d_name[0] == '.')
            continue;
        count++;
        active += rdma_describe(entry->d_name, one, sizeof(one)) != 0;
        text_add(all, sizeof(all), one);
    }
    if (dir != NULL)
        (void)closedir(dir);
    doctor->rdma = count > 0;
    if (count == 0)
        doctor_say(doctor, DOCTOR_NO, "rdma", "nothing to do: UCX uses TCP and shared memory",
                   "no device in /sys/class/infiniband");
    else if (usable == 0)
        doctor_say(doctor, DOCTOR_WARN, "rdma",
                   "give the agent /dev/infiniband/uverbs* (device plug-in, or a host path)",
                   "%s, but none of %u verbs nodes can be opened", all, nodes);
    else if (active == 0)
        doctor_say(doctor, DOCTOR_WARN, "rdma", "look at cables, subnet manager and `ip link`",
                   "no port is active: %s", all);
    else
        doctor_say(doctor, DOCTOR_OK, "rdma", NULL, "%s", all);
}

static unsigned gpu_nodes(void)
{
    DIR *dir = opendir("/dev");
    const struct dirent *entry;
    unsigned count = 0;

    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        const char *rest = entry->d_name + 6;

        count += strncmp(entry->d_name, "nvidia", 6) == 0 && rest[0] != '\0' &&
                 strspn(rest, "0123456789") == strlen(rest);
    }
    if (dir != NULL)
        (void)closedir(dir);
    return count;
}

/* The driver's library is asked for its version only: no context, no device is touched. */
static void look_gpu(struct doctor *doctor)
{
    unsigned nodes = gpu_nodes();
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), *found = NULL;
    int (*version_get)(int *) = NULL;
    int version = 0;

    if (library != NULL)
        found = dlsym(library, "cuDriverGetVersion");
    memcpy(&version_get, &found, sizeof(found)); /* ISO C has no cast for it */
    if (version_get != NULL && version_get(&version) != 0)
        version = 0;
    if (nodes > 0 && version > 0)
        doctor_say(
            doctor, DOCTOR_OK, "gpu", NULL,
            "%u NVIDIA device%s, driver for CUDA %d.%d (this version moves host memory only)",
            nodes, nodes == 1 ? "" : "s", version / 1000, version % 1000 / 10);
    else if (nodes > 0)
        doctor_say(doctor, DOCTOR_WARN, "gpu",
                   "let the container runtime put the driver's libraries into the agent's image",
                   "%u NVIDIA device%s, but libcuda.so.1 does not work here", nodes,
                   nodes == 1 ? "" : "s");
    else
        doctor_say(doctor, DOCTOR_NO, "gpu", "nothing to do: this version moves host memory only",
                   "no /dev/nvidia*, %s",
                   library != NULL ? "libcuda.so.1 is there" : "no libcuda.so.1");
    if (library != NULL)
        (void)dlclose(library); /* never initialised */
}

void doctor_devices(struct doctor *doctor)
{
    look_rdma(doctor);
    look_gpu(doctor);
}
