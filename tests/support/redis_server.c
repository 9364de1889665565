/* redis_server.c - starts, pauses, kills and questions a private redis-server. Test thread. */
#include "support/redis_server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <hiredis/hiredis.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct redis_server {
    char folder[64], path[96], url[128];
    char cert[128], key[128];
    uint16_t port;
    pid_t pid;
    redisContext *admin;
    redisReply *reply;
};

static void give_up(const char *what)
{
    (void)fprintf(stderr, "redis_server: %s: %s\n", what, strerror(errno));
    abort();
}

int redis_server_available(void)
{
    const char *path = getenv("PATH");
    char copy[4096], *save = NULL;

    if (path == NULL || strlen(path) >= sizeof(copy))
        return 0;
    (void)strcpy(copy, path);
    for (char *folder = strtok_r(copy, ":", &save); folder != NULL;
         folder = strtok_r(NULL, ":", &save)) {
        char file[4200];

        (void)snprintf(file, sizeof(file), "%s/redis-server", folder);
        if (access(file, X_OK) == 0)
            return 1;
    }
    return 0;
}

static uint16_t free_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) != 0 ||
        getsockname(fd, (struct sockaddr *)&address, &size) != 0)
        give_up("find a free port");
    (void)close(fd);
    return ntohs(address.sin_port);
}

struct redis_server *redis_server_new(void)
{
    struct redis_server *server = calloc(1, sizeof(*server));

    if (server == NULL)
        give_up("allocate");
    (void)strcpy(server->folder, "/tmp/nixlet-redis-XXXXXX");
    if (mkdtemp(server->folder) == NULL)
        give_up("make a folder");
    (void)snprintf(server->path, sizeof(server->path), "%s/redis.sock", server->folder);
    (void)snprintf(server->url, sizeof(server->url), "unix://%s", server->path);
    server->port = free_port();
    return server;
}

void redis_server_tls(struct redis_server *server, const char *cert, const char *key)
{
    (void)snprintf(server->cert, sizeof(server->cert), "%s", cert);
    (void)snprintf(server->key, sizeof(server->key), "%s", key);
}

static void run_server(const struct redis_server *server)
{
    char port[8], log[96];
    int null = open("/dev/null", O_RDWR), tls = server->cert[0] != '\0';
    const char *words[40] = {
        "redis-server", "--bind", "127.0.0.1", "--unixsocket", server->path, "--save", "",
        "--appendonly", "no",     "--dir",     server->folder, "--logfile",  log};
    const char *secure[] = {"--port",
                            "0",
                            "--tls-auth-clients",
                            "no",
                            "--tls-cert-file",
                            server->cert,
                            "--tls-key-file",
                            server->key,
                            "--tls-ca-cert-file",
                            server->cert};
    unsigned count = 13;

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)snprintf(port, sizeof(port), "%u", server->port);
    (void)snprintf(log, sizeof(log), "%s/redis.log", server->folder);
    (void)dup2(null, 0);
    (void)dup2(null, 1);
    words[count++] = tls ? "--tls-port" : "--port";
    words[count++] = port;
    for (unsigned i = 0; tls && i < sizeof(secure) / sizeof(secure[0]); i++)
        words[count++] = secure[i];
    (void)execvp("redis-server", (char *const *)words);
    _exit(127);
}

static uint64_t now_ms(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* Tries until the server answers: what is waited for is the answer, not the time. */
static redisContext *connect_admin(const struct redis_server *server)
{
    uint64_t deadline = now_ms() + 10000;
    struct timeval limit = {.tv_sec = 5};

    while (now_ms() < deadline) {
        redisContext *context = redisConnectUnixWithTimeout(server->path, limit);
        redisReply *reply = NULL;

        if (context != NULL && context->err == 0 && redisSetTimeout(context, limit) == REDIS_OK)
            reply = redisCommand(context, "PING");
        if (reply != NULL && reply->type == REDIS_REPLY_STATUS) {
            freeReplyObject(reply);
            (void)fcntl(context->fd, F_SETFD, FD_CLOEXEC);
            return context;
        }
        freeReplyObject(reply);
        redisFree(context);
        (void)poll(NULL, 0, 2);
    }
    give_up("redis-server did not answer within 10 s");
    return NULL;
}

void redis_server_start(struct redis_server *server)
{
    (void)unlink(server->path);
    server->pid = fork();
    if (server->pid < 0)
        give_up("fork");
    if (server->pid == 0)
        run_server(server);
    server->admin = connect_admin(server);
}

void redis_server_kill(struct redis_server *server)
{
    if (server->pid <= 0)
        return;
    (void)kill(server->pid, SIGKILL);
    (void)waitpid(server->pid, NULL, 0);
    server->pid = 0;
    freeReplyObject(server->reply);
    server->reply = NULL;
    redisFree(server->admin);
    server->admin = NULL;
}

void redis_server_free(struct redis_server *server)
{
    char command[128];

    if (server == NULL)
        return;
    redis_server_kill(server);
    (void)snprintf(command, sizeof(command), "rm -rf '%s'", server->folder);
    if (system(command) != 0)
        (void)fprintf(stderr, "redis_server: %s stays behind\n", server->folder);
    free(server);
}

void redis_server_pause(struct redis_server *server)
{
    (void)kill(server->pid, SIGSTOP);
}

void redis_server_resume(struct redis_server *server)
{
    (void)kill(server->pid, SIGCONT);
}

const char *redis_server_url(const struct redis_server *server)
{
    return server->url;
}

const char *redis_server_folder(const struct redis_server *server)
{
    return server->folder;
}

uint16_t redis_server_port(const struct redis_server *server)
{
    return server->port;
}

const struct redisReply *redis_server_ask(struct redis_server *server, const char *format, ...)
{
    va_list args;

    freeReplyObject(server->reply);
    va_start(args, format);
    server->reply = redisvCommand(server->admin, format, args);
    va_end(args);
    if (server->reply == NULL)
        give_up("the server does not answer");
    return server->reply;
}

const struct redisReply *redis_server_ask_argv(struct redis_server *server, int count,
                                               const char **words, const uint64_t *sizes)
{
    freeReplyObject(server->reply);
    server->reply = redisCommandArgv(server->admin, count, words, (const size_t *)sizes);
    if (server->reply == NULL)
        give_up("the server does not answer");
    return server->reply;
}
