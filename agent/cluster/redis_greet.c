/* redis_greet.c - the first words on a connection: AUTH, SELECT, ROLE; and the error answers that
 * say we speak to the wrong server. Loop thread. Never logs a secret, nor an answer to AUTH (some
 * servers repeat the arguments in it). */
#include "cluster/redis_room.h"

#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define PASSWORD_LIMIT 4096u

static void on_auth(void *arg, enum nxl_code code, const struct redisReply *reply,
                    const struct nxl_err *err)
{
    struct nxl_redis *redis = arg;
    char why[160];
    size_t word;

    (void)err;
    if (code != NXL_BACKEND)
        return;
    word = strcspn(reply->str, " ");
    (void)snprintf(
        why, sizeof(why),
        "greet: the server refuses user '%.60s' (%.*s); check store.user and store.password_file",
        redis->user[0] != '\0' ? redis->user : "default", word < 20 ? (int)word : 20, reply->str);
    nxl_redis_fail(redis, NXL_NOT_ALLOWED, why);
}

static void on_select(void *arg, enum nxl_code code, const struct redisReply *reply,
                      const struct nxl_err *err)
{
    struct nxl_redis *redis = arg;
    char why[200];

    (void)reply;
    if (code != NXL_BACKEND || redis->phase != REDIS_GREETING)
        return;
    (void)snprintf(why, sizeof(why), "greet: select database %u: %.120s", redis->options.url.db,
                   err->text);
    nxl_redis_fail(redis, NXL_UNREACHABLE, why);
}

static void on_role(void *arg, enum nxl_code code, const struct redisReply *reply,
                    const struct nxl_err *err)
{
    struct nxl_redis *redis = arg;
    char why[200];

    if (redis->phase != REDIS_GREETING || (code != NXL_OK && code != NXL_BACKEND))
        return;
    /* A server that hides ROLE from us is judged by its READONLY answers instead. */
    if (code == NXL_BACKEND && strncmp(reply->str, "NOPERM", 6) == 0) {
        nxl_redis_greeted(redis);
        return;
    }
    if (code == NXL_BACKEND) {
        (void)nxl_redis_wrong_server(redis, reply->str); /* notes where a MOVED leads */
        (void)snprintf(why, sizeof(why), "greet: %.160s", err->text);
        nxl_redis_fail(redis, NXL_UNREACHABLE, why);
        return;
    }
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements < 1 ||
        reply->element[0]->type != REDIS_REPLY_STRING) {
        nxl_redis_fail(redis, NXL_MISMATCH,
                       "greet: the answer to ROLE is no role; is this a Redis server?");
        return;
    }
    if (strcmp(reply->element[0]->str, "master") != 0) {
        (void)snprintf(why, sizeof(why), "greet: the server is a %.20s, not the primary",
                       reply->element[0]->str);
        nxl_redis_fail(redis, NXL_UNREACHABLE, why);
        return;
    }
    nxl_redis_greeted(redis);
}

/* The file is read again at every dial, so that a rotated password needs no restart. */
static enum nxl_code send_auth(struct nxl_redis *redis, struct nxl_err *err)
{
    struct nxl_redis_words words = {0};
    char *password = NULL;
    size_t size = 0, room;
    enum nxl_code code;

    if (redis->password_file[0] == '\0')
        return NXL_OK;
    code = nxl_read_file(redis->password_file, PASSWORD_LIMIT, &password, &size, err);
    if (code != NXL_OK)
        return nxl_err_wrap(err, code, "greet: read store.password_file");
    room = size;
    while (size > 0 && (password[size - 1] == '\n' || password[size - 1] == '\r'))
        size--;
    nxl_redis_word(&words, "AUTH");
    if (redis->user[0] != '\0')
        nxl_redis_word(&words, redis->user);
    nxl_redis_word_view(&words, (struct nxl_view){password, size});
    code = size == 0 ? nxl_err_set(err, NXL_CONFIG, 0, "greet: store.password_file '%s' is empty",
                                   redis->password_file)
                     : nxl_redis_push(redis, &words, 0, on_auth, redis);
    explicit_bzero(password, room);
    free(password);
    return code;
}

void nxl_redis_greet(struct nxl_redis *redis)
{
    struct nxl_redis_words select = {0}, role = {0};
    struct nxl_err err = {.text = "greet: the connection broke"};
    enum nxl_code code = send_auth(redis, &err);

    if (code == NXL_OK && redis->options.url.db != 0) {
        nxl_redis_word(&select, "SELECT");
        nxl_redis_word_number(&select, redis->options.url.db);
        code = nxl_redis_push(redis, &select, 0, on_select, redis);
    }
    if (code == NXL_OK) {
        nxl_redis_word(&role, "ROLE");
        code = nxl_redis_push(redis, &role, 0, on_role, redis);
    }
    if (code != NXL_OK)
        nxl_redis_fail(redis, code, err.text);
}

/* "MOVED 3999 10.0.0.7:6379": in Redis Cluster all our keys lie on one slot, so one hop is enough.
 */
static void note_moved(struct nxl_redis *redis, const char *text)
{
    const char *target = strrchr(text, ' ');
    const char *colon = target != NULL ? strrchr(target, ':') : NULL;
    size_t size;
    long port;

    if (redis->following || colon == NULL)
        return;
    target++;
    size = (size_t)(colon - target);
    port = strtol(colon + 1, NULL, 10);
    if (size >= sizeof(redis->moved_host) || port < 1 || port > 65535)
        return;
    if (size > 0)
        (void)snprintf(redis->moved_host, sizeof(redis->moved_host), "%.*s", (int)size, target);
    else
        (void)nxl_copy_text(redis->moved_host, sizeof(redis->moved_host), redis->options.url.host);
    redis->moved_port = (uint16_t)port;
}

int nxl_redis_wrong_server(struct nxl_redis *redis, const char *text)
{
    static const char *const firsts[] = {"MOVED ",      "ASK ",   "LOADING",   "MASTERDOWN",
                                         "CLUSTERDOWN", "NOAUTH", "UNBLOCKED", "NOREPLICAS"};

    if (strncmp(text, "MOVED ", 6) == 0)
        note_moved(redis, text);
    /* Inside a script the word stands in the middle of the answer. */
    if (strstr(text, "READONLY ") != NULL)
        return 1;
    for (size_t i = 0; i < NXL_COUNT_OF(firsts); i++)
        if (strncmp(text, firsts[i], strlen(firsts[i])) == 0)
            return 1;
    return 0;
}
