/* doctor_network.c - interfaces, the address that others would be told, and the default ports. */
#include "ctl/doctor.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <nxl/ports.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"

#define TABLE_MAX (16u << 20) /* of /proc/net/tcp: some 100,000 sockets */

/* ---- interfaces ----------------------------------------------------------------------------- */

/* What an agent advertises by itself: the source address of packets to the outside. Sends nothing.
 */
static int outward(char *host, size_t room)
{
    const struct sockaddr_in far = {.sin_family = AF_INET,
                                    .sin_port = htons(NXL_PORT_LINK),
                                    .sin_addr.s_addr = htonl(0xc0000201u) /* 192.0.2.1 */};
    struct sockaddr_in own = {0};
    socklen_t size = sizeof(own);
    NXL_CLEANUP(nxl_closep) int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    return fd >= 0 && connect(fd, (const struct sockaddr *)&far, sizeof(far)) == 0 &&
           getsockname(fd, (struct sockaddr *)&own, &size) == 0 &&
           inet_ntop(AF_INET, &own.sin_addr, host, (socklen_t)room) != NULL;
}

static void interface_add(const struct ifaddrs *at, char *all, size_t room, const char *host,
                          char *chosen, size_t chosen_room)
{
    char address[INET6_ADDRSTRLEN] = "?", path[128];
    NXL_CLEANUP(nxl_freep) char *mtu = NULL;
    struct nxl_err err;
    size_t used = strlen(all);

    if (at->ifa_addr->sa_family == AF_INET)
        (void)inet_ntop(AF_INET,
                        &((const struct sockaddr_in *)(const void *)at->ifa_addr)->sin_addr,
                        address, sizeof(address));
    else
        (void)inet_ntop(AF_INET6,
                        &((const struct sockaddr_in6 *)(const void *)at->ifa_addr)->sin6_addr,
                        address, sizeof(address));
    (void)snprintf(path, sizeof(path), "/sys/class/net/%.64s/mtu", at->ifa_name);
    if (nxl_read_file(path, 32, &mtu, NULL, &err) == NXL_OK)
        mtu[strcspn(mtu, "\n")] = '\0';
    if (used + 1 < room)
        (void)snprintf(all + used, room - used, "%s%s %s (mtu %s)", used > 0 ? ", " : "",
                       at->ifa_name, address, mtu != NULL ? mtu : "?");
    if (strcmp(address, host) == 0)
        (void)nxl_copy_text(chosen, chosen_room, at->ifa_name);
}

static int is_usable(const struct ifaddrs *at)
{
    const struct sockaddr_in6 *six = (const void *)at->ifa_addr;

    if (at->ifa_addr == NULL || (at->ifa_flags & IFF_UP) == 0 ||
        (at->ifa_flags & IFF_LOOPBACK) != 0)
        return 0;
    if (at->ifa_addr->sa_family == AF_INET6)
        return !IN6_IS_ADDR_LINKLOCAL(&six->sin6_addr);
    return at->ifa_addr->sa_family == AF_INET;
}

static void look_interfaces(struct doctor *doctor)
{
    char all[256] = "", chosen[IF_NAMESIZE] = "", host[INET_ADDRSTRLEN] = "";
    int routed = outward(host, sizeof(host));
    struct ifaddrs *list = NULL;

    if (getifaddrs(&list) != 0) {
        doctor_say(doctor, DOCTOR_WARN, "interfaces", "set link.listen and link.advertise",
                   "they cannot be listed: %s", strerror(errno));
        return;
    }
    for (const struct ifaddrs *at = list; at != NULL; at = at->ifa_next) {
        if (is_usable(at))
            interface_add(at, all, sizeof(all), host, chosen, sizeof(chosen));
    }
    freeifaddrs(list);
    if (all[0] == '\0')
        doctor_say(doctor, DOCTOR_WARN, "interfaces",
                   "nothing to do for one node; else bring an interface up",
                   "none is up but loopback: only agents of this node can be reached");
    else if (!routed)
        doctor_say(doctor, DOCTOR_WARN, "interfaces",
                   "set link.advertise to the address that other nodes can reach",
                   "no route outwards, so the agent cannot tell which it is: %s", all);
    else
        doctor_say(doctor, DOCTOR_OK, "interfaces", NULL, "links would use %s%s%s; up: %s", host,
                   chosen[0] != '\0' ? " on " : "", chosen, all);
}

/* ---- ports ---------------------------------------------------------------------------------- */

unsigned doctor_listeners(const char *table, unsigned port, unsigned long long *ret_inode)
{
    unsigned count = 0;

    for (const char *line = strchr(table, '\n'); line != NULL; line = strchr(line, '\n')) {
        unsigned local = 0, state = 0;
        unsigned long long inode = 0;

        line++;
        /* sl local remote st tx:rx tr:when retrnsmt uid timeout inode */
        if (sscanf(line,
                   " %*u: %*[0-9A-Fa-f]:%x %*[0-9A-Fa-f]:%*x %x %*x:%*x %*x:%*x %*x %*u %*u %llu",
                   &local, &state, &inode) != 3)
            continue;
        if (state != 0x0A || local != port)
            continue;
        if (count++ == 0)
            *ret_inode = inode;
    }
    return count;
}

static int owns_socket(const char *pid, const char *link_wanted)
{
    char path[600], link[64];
    const struct dirent *entry;
    int found = 0;
    DIR *dir;

    (void)snprintf(path, sizeof(path), "/proc/%.20s/fd", pid);
    dir = opendir(path);
    while (dir != NULL && !found && (entry = readdir(dir)) != NULL) {
        ssize_t size;

        (void)snprintf(path, sizeof(path), "/proc/%.20s/fd/%s", pid, entry->d_name);
        size = readlink(path, link, sizeof(link) - 1);
        link[size > 0 ? size : 0] = '\0';
        found = strcmp(link, link_wanted) == 0;
    }
    if (dir != NULL)
        (void)closedir(dir);
    return found;
}

/* "nixlet-agent (pid 7)"; 0: nobody that this user may look at. */
static int owner_find(unsigned long long inode, char *to, size_t room)
{
    DIR *dir = opendir("/proc");
    const struct dirent *entry;
    char wanted[48], path[64];
    int found = 0;

    (void)snprintf(wanted, sizeof(wanted), "socket:[%llu]", inode);
    while (dir != NULL && !found && (entry = readdir(dir)) != NULL) {
        NXL_CLEANUP(nxl_freep) char *name = NULL;
        struct nxl_err err;

        if (strspn(entry->d_name, "0123456789") != strlen(entry->d_name) ||
            !owns_socket(entry->d_name, wanted))
            continue;
        found = 1;
        (void)snprintf(path, sizeof(path), "/proc/%.20s/comm", entry->d_name);
        if (nxl_read_file(path, 256, &name, NULL, &err) == NXL_OK)
            name[strcspn(name, "\n")] = '\0';
        (void)snprintf(to, room, "%s (pid %s)", name != NULL ? name : "?", entry->d_name);
    }
    if (dir != NULL)
        (void)closedir(dir);
    return found;
}

/* -1: neither table can be read. */
static int listeners_now(unsigned port, unsigned long long *ret_inode)
{
    static const char *const paths[] = {"/proc/net/tcp", "/proc/net/tcp6"};
    int count = -1;

    for (size_t i = 0; i < NXL_COUNT_OF(paths); i++) {
        NXL_CLEANUP(nxl_freep) char *table = NULL;
        struct nxl_err err;
        unsigned more;

        if (nxl_read_file(paths[i], TABLE_MAX, &table, NULL, &err) != NXL_OK)
            continue;
        count = count < 0 ? 0 : count;
        more = doctor_listeners(table, port, ret_inode);
        count += (int)more;
        if (more > 0)
            break;
    }
    return count;
}

static void look_port(struct doctor *doctor, const char *name, unsigned port, const char *program,
                      const char *about)
{
    unsigned long long inode = 0;
    int count = listeners_now(port, &inode);
    char owner[300];

    if (count < 0) {
        doctor_say(doctor, DOCTOR_WARN, name, "mount /proc", "%u: /proc/net/tcp cannot be read",
                   port);
    } else if (count == 0) {
        doctor_say(doctor, DOCTOR_OK, name, NULL, "%u is free: %s", port, about);
    } else if (!owner_find(inode, owner, sizeof(owner))) {
        doctor_say(doctor, DOCTOR_WARN, name,
                   "run doctor as root to see whose it is; every port can be moved in the settings",
                   "%u is in use by a process that this user may not look at", port);
    } else if (strncmp(owner, program, strlen(program)) == 0) {
        doctor_say(doctor, DOCTOR_OK, name, NULL, "%u is served by %s: %s", port, owner, about);
    } else {
        doctor_say(doctor, DOCTOR_WARN, name,
                   "end that process, or move the port in the settings (0 takes any)",
                   "%u is in use by %s, wanted for %s of %s", port, owner, about, program);
    }
}

void doctor_network(struct doctor *doctor)
{
    look_interfaces(doctor);
#define LOOK(name, number, program, setting, about)                                                \
    look_port(doctor, "port " #number, number, program, about);
    NXL_PORTS(LOOK)
#undef LOOK
}
