/* redis_server.h - a private redis-server for tests: temporary folder, unix socket, a free loopback
 * port, nothing persisted; dies with the test. */
#ifndef NXL_TESTS_REDIS_SERVER_H
#define NXL_TESTS_REDIS_SERVER_H

#include <stdint.h>

struct redisReply;
struct redis_server;

int redis_server_available(void);                    /* 1 if redis-server is in PATH */
struct redis_server *redis_server_new(void);         /* folder, path and port, but no process yet */
void redis_server_free(struct redis_server *server); /* kills it and removes the folder */
void redis_server_start(
    struct redis_server *server); /* empty; returns when it answers; aborts after 10 s */
/* Before start: TLS instead of plain on the port; PEM files; clients need no certificate. */
void redis_server_tls(struct redis_server *server, const char *cert, const char *key);
void redis_server_kill(struct redis_server *server);
void redis_server_pause(struct redis_server *server); /* SIGSTOP */
void redis_server_resume(struct redis_server *server);
const char *redis_server_url(const struct redis_server *server); /* "unix:///..." */
const char *redis_server_folder(const struct redis_server *server);
uint16_t redis_server_port(const struct redis_server *server);
/* Blocking, as the administrator. Lent until the next call; aborts when the server does not answer.
 */
const struct redisReply *redis_server_ask(struct redis_server *server, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
const struct redisReply *redis_server_ask_argv(struct redis_server *server, int count,
                                               const char **words, const uint64_t *sizes);

#endif
