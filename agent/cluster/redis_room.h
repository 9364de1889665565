/* redis_room.h - shared by redis.c (dialling), redis_io.c (adapter to the loop) and redis_command.c
 * (queue of outstanding commands). Nobody else includes it. */
#ifndef NXL_CLUSTER_REDIS_ROOM_H
#define NXL_CLUSTER_REDIS_ROOM_H

#include "cluster/redis.h"

#include <hiredis/async.h>
#include <hiredis/hiredis.h>
#include <sys/un.h>

#define NXL_REDIS_TEXT_(x) #x
#define NXL_REDIS_TEXT(x) NXL_REDIS_TEXT_(x)
#define NXL_REDIS_HIREDIS_VERSION                                                                  \
    NXL_REDIS_TEXT(HIREDIS_MAJOR)                                                                  \
    "." NXL_REDIS_TEXT(HIREDIS_MINOR) "." NXL_REDIS_TEXT(HIREDIS_PATCH)
#if HIREDIS_MAJOR >= 1 && defined(NXL_HAVE_HIREDIS_SSL)
#define NXL_REDIS_HAS_TLS 1
#else
#define NXL_REDIS_HAS_TLS 0
#endif
#define NXL_REDIS_PATH_MAX ((int)sizeof(((struct sockaddr_un *)0)->sun_path) - 1)
#define NXL_REDIS_OUTSTANDING_MAX 8192u

struct nxl_timer;
struct nxl_watch;
struct redis_resolve;

enum redis_phase { REDIS_IDLE, REDIS_RESOLVING, REDIS_CONNECTING, REDIS_GREETING, REDIS_UP };

/* One command on its way; answered in order. */
struct redis_command {
    struct redis_command *next;
    struct nxl_redis *redis;
    nxl_redis_reply_fn *fn;
    void *arg;
    uint64_t deadline_ns;
    int extended; /* started anew after this process had slept, once */
};

struct nxl_redis {
    struct nxl_redis_options options;
    char user[256], password_file[512], ca_file[512];
    enum redis_phase phase;
    int closed;  /* close() was called; freed when the last frame of ours has left the stack */
    int entered; /* depth of our frames on the stack */
    char why[256];
    enum nxl_code why_code;

    /* One dial. */
    redisAsyncContext *context;
    struct nxl_watch *watch;
    unsigned events;
    int connected;       /* hiredis reported the connection; settle() greets */
    char last_text[160]; /* hiredis's last words when it freed the context */
    struct redis_resolve *resolve;
    uint64_t dial_deadline_ns;
    unsigned dials, attempt; /* all; since it was last up */
    char moved_host[256];    /* one MOVED is followed: the next dial goes here */
    uint16_t moved_port;
    int following;  /* this dial follows a MOVED */
    char host[256]; /* whom this dial wants to reach; TLS checks it */
    void *tls;      /* SSL of this connection; hiredis owns it */

    struct redis_command *first, *last;
    uint32_t outstanding;
    struct nxl_timer *deadline_timer, *dial_timer;
    uint64_t timer_due_ns; /* when deadline_timer should come */
    uint64_t ups;
};

/* redis.c */
void nxl_redis_fail(struct nxl_redis *redis, enum nxl_code code, const char *why);
void nxl_redis_enter(struct nxl_redis *redis);
void nxl_redis_leave(struct nxl_redis *redis); /* redis may be gone afterwards */
void nxl_redis_settle(
    struct nxl_redis *redis); /* after hiredis ran: was it connected, did it die? */

/* redis_io.c */
int nxl_redis_pump(struct nxl_redis *redis); /* reads once if something is there; 1: it did */
NXL_MUST_USE enum nxl_code nxl_redis_attach(struct nxl_redis *redis, redisAsyncContext *context,
                                            struct nxl_err *err);
void nxl_redis_detach(
    struct nxl_redis *redis); /* frees the context; answers what hiredis still held */

/* redis_tls.c: after the connect, before the greeting. */
NXL_MUST_USE enum nxl_code nxl_redis_secure(struct nxl_redis *redis, struct nxl_err *err);
void nxl_redis_secure_failed(
    struct nxl_redis *redis); /* if the certificate was refused, says so in last_text */

/* redis_command.c */
NXL_MUST_USE enum nxl_code nxl_redis_push(struct nxl_redis *redis,
                                          const struct nxl_redis_words *words, uint64_t wait_ns,
                                          nxl_redis_reply_fn *fn, void *arg);
void nxl_redis_check_deadline(void *arg); /* timer */
void nxl_redis_answered(struct nxl_redis *redis, const struct redisReply *reply);
void nxl_redis_answer_all(struct nxl_redis *redis, enum nxl_code code, const char *why);

/* redis_greet.c: AUTH, SELECT, ROLE; ends in nxl_redis_greeted() or nxl_redis_fail(). */
void nxl_redis_greet(struct nxl_redis *redis);
void nxl_redis_greeted(struct nxl_redis *redis);
/* Looks at an error reply: READONLY, MOVED, LOADING and the like end the connection. 1: it did. */
int nxl_redis_wrong_server(struct nxl_redis *redis, const char *text);

#endif
