/* cluster.c - starts, watches and ends the real processes of integration tests. */
#include "support/cluster.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define UP_NS 20000000000u

uint64_t cluster_now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void die(const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    vfprintf(stderr, fmt, args);
    va_end(args);
    fputc('\n', stderr);
    abort();
}

int cluster_until(int (*fn)(void *arg), void *arg, uint64_t timeout_ns)
{
    uint64_t deadline = cluster_now() + timeout_ns;

    for (;;) {
        if (fn(arg))
            return 1;
        if (cluster_now() >= deadline)
            return 0;
        (void)poll(NULL, 0, 2); /* the fact lives in another process */
    }
}

/* The child dies with the test. out_fd >= 0 becomes its standard output; log its standard error. */
static pid_t spawn(const char *const argv[], const char *log, int out_fd)
{
    pid_t parent = getpid(), pid = fork();

    if (pid < 0)
        die("fork: %s", strerror(errno));
    if (pid == 0) {
        int fd = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);

        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(126);
        dup2(fd, 2);
        dup2(out_fd >= 0 ? out_fd : fd, 1);
        execvp(argv[0], (char *const *)argv); /* exec changes nothing */
        _exit(127);
    }
    return pid;
}

static void log_tail(const char *path)
{
    FILE *file = fopen(path, "r");
    char line[1024];

    fprintf(stderr, "--- %s\n", path);
    while (file != NULL && fgets(line, sizeof(line), file) != NULL)
        fputs(line, stderr);
    if (file != NULL)
        fclose(file);
}

static int connects(void *arg)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    int type = strstr(arg, "agent.sock") != NULL ? SOCK_SEQPACKET : SOCK_STREAM;
    int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0), ok;

    snprintf(un.sun_path, sizeof(un.sun_path), "%.107s", (const char *)arg);
    ok = connect(fd, (struct sockaddr *)&un, sizeof(un)) == 0;
    close(fd);
    return ok;
}

void cluster_redis_start(struct cluster *c)
{
    const char *argv[] = {
        "redis-server", "--port", "0",           "--unixsocket", c->redis_socket, "--save", "",
        "--appendonly", "no",     "--daemonize", "no",           "--dir",         c->dir,   NULL};

    c->redis = spawn(argv, c->redis_log, -1);
    if (!cluster_until(connects, c->redis_socket, UP_NS)) {
        log_tail(c->redis_log);
        die("redis-server did not come up");
    }
}

static void reap(pid_t *pid, int signum, const char *what, const char *log)
{
    uint64_t deadline = cluster_now() + UP_NS;
    int status = 0;

    if (*pid <= 0)
        return;
    kill(*pid, signum);
    while (waitpid(*pid, &status, WNOHANG) == 0) {
        if (cluster_now() >= deadline) {
            log_tail(log);
            kill(*pid, SIGKILL);
            die("%s (pid %d) did not end on signal %d", what, (int)*pid, signum);
        }
        (void)poll(NULL, 0, 2);
    }
    *pid = 0;
    if (signum == SIGTERM && !(WIFEXITED(status) && WEXITSTATUS(status) == 0)) {
        log_tail(log);
        die("%s ended with wait status 0x%x on SIGTERM", what, status);
    }
}

void cluster_redis_kill(struct cluster *c)
{
    if (c->redis > 0) {
        int status;

        kill(c->redis, SIGKILL);
        waitpid(c->redis, &status, 0);
        c->redis = 0;
    }
}

static void certs_make(struct cluster *c)
{
    char command[400];

    snprintf(command, sizeof(command),
             "%s/deploy/certs.sh %s/pki test node0 node1 node2 node3 >%s/certs.log 2>&1",
             NXL_SOURCE_DIR, c->dir, c->dir);
    if (system(command) != 0)
        die("deploy/certs.sh failed, see %s/certs.log", c->dir);
}

void cluster_agent_start(struct cluster *c, int index)
{
    struct cluster_agent *a = &c->agents[index];
    char flags[16][256];
    const char *argv[40];
    int n = 0, f = 0;

    snprintf(a->node, sizeof(a->node), "node%d", index);
    snprintf(a->socket, sizeof(a->socket), "%s/%d-agent.sock", c->dir, index);
    snprintf(a->http, sizeof(a->http), "%s/%d-http.sock", c->dir, index);
    snprintf(a->log, sizeof(a->log), "%s/agent%d.log", c->dir, index);
    argv[n++] = NXL_AGENT_BIN;
#define FLAG(...) (snprintf(flags[f], sizeof(flags[f]), __VA_ARGS__), argv[n++] = flags[f++])
    FLAG("--agent.node=%s", a->node);
    FLAG("--agent.cluster=test");
    FLAG("--agent.backends=%s", c->backends != NULL ? c->backends : "shm,ucx");
    FLAG("--socket.path=%s", a->socket);
    FLAG("--http.socket=%s", a->http);
    FLAG("--http.listen=");
    FLAG("--link.listen=127.0.0.1:%s", a->address[0] != '\0' ? strrchr(a->address, ':') + 1 : "0");
    FLAG("--store.url=%s%s", c->redis_socket[0] != '\0' ? "unix://" : "none", c->redis_socket);
    if (c->secure) {
        FLAG("--link.cert=%s/pki/node%d.pem", c->dir, index);
        FLAG("--link.key=%s/pki/node%d.key", c->dir, index);
        FLAG("--link.ca=%s/pki/ca.pem", c->dir);
    } else {
        FLAG("--link.insecure=true");
    }
#undef FLAG
    for (int i = 0; c->extra[i] != NULL; i++)
        argv[n++] = c->extra[i];
    argv[n] = NULL;
    a->pid = spawn(argv, a->log, -1);
    if (!cluster_until(connects, a->socket, UP_NS)) {
        log_tail(a->log);
        die("agent %d did not come up", index);
    }
}

void cluster_agent_kill(struct cluster *c, int index, int signum)
{
    reap(&c->agents[index].pid, signum, "nixlet-agent", c->agents[index].log);
}

void cluster_start(struct cluster *c, int agents, int no_store)
{
    const char *tmp = getenv("TMPDIR");

    snprintf(c->dir, sizeof(c->dir), "%.60s/nxl-test.XXXXXX", tmp != NULL ? tmp : "/tmp");
    if (mkdtemp(c->dir) == NULL)
        die("mkdtemp %s: %s", c->dir, strerror(errno));
    if (!no_store) {
        snprintf(c->redis_socket, sizeof(c->redis_socket), "%s/redis.sock", c->dir);
        snprintf(c->redis_log, sizeof(c->redis_log), "%s/redis.log", c->dir);
        cluster_redis_start(c);
    }
    if (c->secure)
        certs_make(c);
    for (int i = 0; i < agents; i++)
        cluster_agent_start(c, i);
}

void cluster_stop(struct cluster *c)
{
    char command[160];

    for (int i = 0; i < CLUSTER_AGENTS; i++)
        cluster_agent_kill(c, i, SIGTERM);
    cluster_redis_kill(c);
    if (getenv("NIXLET_TEST_KEEP") != NULL) {
        fprintf(stderr, "kept %s\n", c->dir);
        return;
    }
    snprintf(command, sizeof(command), "rm -rf %s", c->dir);
    if (system(command) != 0)
        fprintf(stderr, "could not remove %s\n", c->dir);
}

/* ---- peers ---------------------------------------------------------------------------------- */

void cluster_peer_start(struct cluster *c, int agent, const char *name, uint64_t size,
                        const char *mode, struct cluster_peer *ret)
{
    char size_text[32], line[256] = "", log[160];
    const char *argv[] = {NXL_PEER_BIN, c->agents[agent].socket, name, size_text, mode, NULL};
    unsigned long long addr;
    size_t used = 0;
    int out[2];
    struct pollfd fd;

    snprintf(size_text, sizeof(size_text), "%llu", (unsigned long long)size);
    snprintf(log, sizeof(log), "%s/peers.log", c->dir);
    if (pipe2(out, O_CLOEXEC) != 0)
        die("pipe: %s", strerror(errno));
    ret->pid = spawn(argv, log, out[1]);
    close(out[1]);
    ret->out = out[0];
    ret->size = size;
    snprintf(ret->name, sizeof(ret->name), "%s", name);
    fd = (struct pollfd){.fd = out[0], .events = POLLIN};
    while (strchr(line, '\n') == NULL && used < sizeof(line) - 1) {
        ssize_t got = 0;

        if (poll(&fd, 1, 20000) <= 0 ||
            (got = read(out[0], line + used, sizeof(line) - 1 - used)) <= 0) {
            log_tail(log);
            log_tail(c->agents[agent].log);
            die("peer %s did not come up", name);
        }
        used += (size_t)got;
    }
    if (sscanf(line, "ready %llx", &addr) != 1)
        die("peer %s said: %s", name, line);
    ret->addr = addr;
}

void cluster_peer_kill(struct cluster_peer *peer, int signum)
{
    int status;

    if (peer->pid <= 0)
        return;
    kill(peer->pid, signum);
    waitpid(peer->pid, &status, 0);
    close(peer->out);
    peer->pid = 0;
}

struct nxl_client *cluster_client(struct cluster *c, int agent)
{
    struct nxl_client_options options = {
        .size = sizeof(options), .socket_path = c->agents[agent].socket, .reconnect = 1};
    struct nxl_client *client;
    struct nxl_err err = {0};

    if (nxl_client_open(&options, &client, &err) != NXL_OK)
        die("connect to agent %d: %s", agent, err.text);
    return client;
}

int cluster_event(struct nxl_client *client, struct nxl_peer *peer, uint32_t kind,
                  uint64_t timeout_ns, struct nxl_event *ret)
{
    uint64_t deadline = cluster_now() + timeout_ns;

    for (;;) {
        struct pollfd fd = {.fd = nxl_client_fd(client), .events = POLLIN};
        uint64_t now;

        while (nxl_peer_next(peer, ret) == NXL_OK) {
            if (ret->kind == kind)
                return 1;
        }
        now = cluster_now();
        if (now >= deadline)
            return 0;
        if (nxl_client_arm(client) == NXL_OK)
            (void)poll(&fd, 1, (int)((deadline - now) / 1000000u) + 1);
    }
}

/* ---- looking into an agent ------------------------------------------------------------------ */

int cluster_http(struct cluster *c, int agent, const char *path, char *to, size_t room)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), status = 0;
    char *body;
    size_t used = 0;
    ssize_t got;

    snprintf(un.sun_path, sizeof(un.sun_path), "%.107s", c->agents[agent].http);
    to[0] = '\0';
    if (connect(fd, (struct sockaddr *)&un, sizeof(un)) == 0) {
        dprintf(fd, "GET %s HTTP/1.0\r\nHost: localhost\r\n\r\n", path);
        while (used < room - 1 && (got = read(fd, to + used, room - 1 - used)) > 0)
            used += (size_t)got;
        to[used] = '\0';
    }
    close(fd);
    (void)sscanf(to, "HTTP/%*s %d", &status);
    body = strstr(to, "\r\n\r\n");
    if (body != NULL)
        memmove(to, body + 4, strlen(body + 4) + 1);
    return status;
}

double cluster_metric(struct cluster *c, int agent, const char *name)
{
    size_t room = 1 << 20, length = strlen(name);
    char *text = malloc(room);
    double sum = 0, found = 0;

    if (text == NULL || cluster_http(c, agent, "/metrics", text, room) != 200)
        die("agent %d gives no metrics", agent);
    for (char *line = text; line != NULL && *line != '\0'; line = strchr(line, '\n')) {
        char *space;

        line += *line == '\n';
        if (strncmp(line, name, length) != 0 || (line[length] != ' ' && line[length] != '{'))
            continue;
        space = strchr(line, '}');
        sum += atof(space != NULL && strchr(line, '\n') != NULL && space < strchr(line, '\n')
                        ? space + 1
                        : line + length);
        found = 1;
    }
    free(text);
    return found != 0 ? sum : -1;
}

int cluster_fd_count(pid_t pid)
{
    char path[64];
    DIR *dir;
    int count = 0;

    snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
    dir = opendir(path);
    while (dir != NULL && readdir(dir) != NULL)
        count++;
    if (dir != NULL)
        closedir(dir);
    return count - 2;
}

long cluster_rss_kib(pid_t pid)
{
    char path[64], line[256];
    long kib = -1;
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    file = fopen(path, "r");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        if (sscanf(line, "VmRSS: %ld", &kib) == 1)
            break;
    }
    if (file != NULL)
        fclose(file);
    return kib;
}

const char *cluster_log(struct cluster *c, int agent)
{
    static char text[2049];
    FILE *file = fopen(c->agents[agent].log, "r");
    size_t size = 0;

    if (file != NULL) {
        (void)fseek(file, 0, SEEK_END);
        (void)fseek(file, ftell(file) > 2048 ? -2048 : -ftell(file), SEEK_END);
        size = fread(text, 1, sizeof(text) - 1, file);
        fclose(file);
    }
    text[size] = '\0';
    return text;
}
