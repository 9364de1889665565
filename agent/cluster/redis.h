/* redis.h - one asynchronous connection to the store: resolves at every dial, authenticates, checks
 * that it reached a primary, has a deadline on every command, and dials again by itself. Loop
 * thread. hiredis does the protocol; the adapter to the loop, the deadlines and the reconnect are
 * ours. */
#ifndef NXL_CLUSTER_REDIS_H
#define NXL_CLUSTER_REDIS_H

#include <nxl/err.h>
#include <nxl/types.h>

struct nxl_loop;
struct nxl_redis;
struct redisReply;

enum nxl_redis_kind { NXL_REDIS_NONE, NXL_REDIS_TCP, NXL_REDIS_TLS, NXL_REDIS_UNIX };

/* A parsed store.url. Holds no secret: a URL with a user or password in it is refused. */
struct nxl_redis_url {
    enum nxl_redis_kind kind;
    char host[256]; /* name, IPv4 or IPv6 without brackets; UNIX: the path */
    uint16_t port;
    uint32_t db;
};
/* Pure. NXL_CONFIG: err says what is wrong. NXL_NOT_SUPPORTED: this build's hiredis cannot do it.
 */
NXL_MUST_USE enum nxl_code nxl_redis_url_parse(const char *text, struct nxl_redis_url *ret,
                                               struct nxl_err *err);

struct nxl_redis_ops {
    /* Dialled, authenticated, a primary: commands may be sent. */
    void (*on_up)(void *arg);
    /* It was up and is not any more. Every outstanding command has been answered before. Dialling
     * goes on. */
    void (*on_down)(void *arg, const char *why);
};

struct nxl_redis_options {
    struct nxl_loop *loop;
    struct nxl_redis_url url;
    const char *purpose;       /* static, for logs: "store", "store-follow" */
    const char *user;          /* "": the default user */
    const char *password_file; /* "": none; read again at every dial; borrowed */
    const char *ca_file;       /* TLS; "": the system's */
    uint64_t command_timeout_ns, backoff_max_ns;
    const struct nxl_redis_ops *ops;
    void *arg;
};

/* Starts dialling; nothing is called back before the loop turns. Gives *ret to nxl_redis_close().
 */
NXL_MUST_USE enum nxl_code nxl_redis_open(const struct nxl_redis_options *options,
                                          struct nxl_redis **ret, struct nxl_err *err);
/* Answers what is outstanding with NXL_CANCELED; on_down is not called. Accepts NULL. Allowed
 * inside the connection's own callbacks. */
void nxl_redis_close(struct nxl_redis *redis);
int nxl_redis_up(const struct nxl_redis *redis);
uint64_t nxl_redis_reconnects(const struct nxl_redis *redis);
const char *nxl_redis_why(const struct nxl_redis *redis); /* why it is not up; "" if it is */

/* The words of one command; numbers are kept inside. Asserts that they fit. */
struct nxl_redis_words {
    uint32_t count, number_count;
    struct nxl_view list[40];
    char numbers[16][24];
};
void nxl_redis_word(struct nxl_redis_words *words, const char *text); /* borrows text until sent */
void nxl_redis_word_view(struct nxl_redis_words *words, struct nxl_view view);
void nxl_redis_word_number(struct nxl_redis_words *words, uint64_t number);

/* Called exactly once per accepted command, never from inside nxl_redis_send(). NXL_OK: reply is
 * set and is no error. NXL_BACKEND: the server answered with an error. Other codes: there is no
 * answer, so the command may or may not have been done. reply is lent for the call. */
typedef void nxl_redis_reply_fn(void *arg, enum nxl_code code, const struct redisReply *reply,
                                const struct nxl_err *err);
/* Words are copied. wait_ns: how long the server may hold the answer on purpose (BLOCK); else 0.
 * NXL_UNREACHABLE: not up, fn is not called. */
NXL_MUST_USE enum nxl_code nxl_redis_send(struct nxl_redis *redis,
                                          const struct nxl_redis_words *words, uint64_t wait_ns,
                                          nxl_redis_reply_fn *fn, void *arg);
/* Gives the connection up and dials again, as after a fault. */
void nxl_redis_drop(struct nxl_redis *redis, const char *why);
/* Blocks until everything outstanding is answered (inside a reply: written) or the deadline passed:
 * for the end of a program only. */
void nxl_redis_flush(struct nxl_redis *redis, uint64_t deadline_ns);

#endif
