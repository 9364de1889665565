/* err.h - the one list of result codes and the caller-owned error slot.
 * Shared by applications, agent, operator and backends. Strict C11, valid C++. */
#ifndef NXL_ERR_H
#define NXL_ERR_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define NXL_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define NXL_MUST_USE __attribute__((warn_unused_result))
#define NXL_EXPORT __attribute__((visibility("default")))
#else
#define NXL_PRINTF(fmt, args)
#define NXL_MUST_USE
#define NXL_EXPORT
#endif

/* Drops a result on purpose; say why beside it. */
#define NXL_IGNORE(expr)                                                                           \
    do {                                                                                           \
        if ((expr) != 0) {                                                                         \
        }                                                                                          \
    } while (0)

#ifdef __cplusplus
extern "C" {
#endif

/* X(name, number, NIXL's or our short word, retryable, one sentence).
 * 1 to -12 carry the numbers and meanings of NIXL's nixl_status_t; from -32 on they are ours. */
#define NXL_CODES(X)                                                                               \
    X(AGAIN, 2, "again", 1, "busy now; the same call may succeed later")                           \
    X(IN_PROG, 1, "in_progress", 0, "the transfer is running")                                     \
    X(OK, 0, "success", 0, "success")                                                              \
    X(NOT_POSTED, -1, "not_posted", 0, "the transfer was never posted")                            \
    X(INVALID_PARAM, -2, "invalid_param", 0, "an argument is wrong")                               \
    X(BACKEND, -3, "backend", 1, "the backend failed")                                             \
    X(NOT_FOUND, -4, "not_found", 0, "no such peer, region, list or record")                       \
    X(MISMATCH, -5, "mismatch", 0, "data is damaged or of another version")                        \
    X(NOT_ALLOWED, -6, "not_allowed", 0, "policy or state forbids it")                             \
    X(REPOST_ACTIVE, -7, "repost_active", 1, "the transfer is still running")                      \
    X(UNKNOWN, -8, "unknown", 0, "an internal error")                                              \
    X(NOT_SUPPORTED, -9, "not_supported", 0, "this build, node or backend cannot do it")           \
    X(REMOTE_DISCONNECT, -10, "remote_disconnect", 1, "the peer or its agent is gone")             \
    X(CANCELED, -11, "canceled", 0, "cancelled on request")                                        \
    X(NO_TELEMETRY, -12, "no_telemetry", 0, "telemetry is off")                                    \
    X(STALE, -32, "stale", 0, "the handle belongs to an earlier life of the peer")                 \
    X(LIMIT, -33, "limit", 1, "a limit of the agent or session is reached")                        \
    X(TIMEOUT, -34, "timeout", 1, "the deadline passed")                                           \
    X(BUSY, -35, "busy", 1, "still in use; wait until it is quiet")                                \
    X(NO_AGENT, -36, "no_agent", 1, "no agent answers on the socket")                              \
    X(VERSION, -37, "version", 0, "the two sides speak no common version")                         \
    X(PATH_REFUSED, -38, "path_refused", 0, "policy refuses the only path there is")               \
    X(DIGEST, -39, "digest", 1, "the bytes that arrived are not the bytes that were sent")         \
    X(IO, -40, "io", 1, "an operating system call failed")                                         \
    X(CONFIG, -41, "config", 0, "a setting is wrong")                                              \
    X(MEMORY_LOST, -42, "memory_lost", 0, "the memory behind a region was taken away")             \
    X(UNREACHABLE, -43, "unreachable", 1, "no route to the peer's agent")

enum nxl_code {
#define NXL_CODE_ENUM(name, number, word, retry, text) NXL_##name = number,
    NXL_CODES(NXL_CODE_ENUM)
#undef NXL_CODE_ENUM
};

#define NXL_ERR_TEXT_SIZE 504

/* Lives on the caller's stack; owns nothing, so no path can leak it. */
struct nxl_err {
    int32_t code;                 /* same value the call returned */
    int32_t os;                   /* errno or transport status, 0 if none */
    char text[NXL_ERR_TEXT_SIZE]; /* outermost step first: "register: map fd: Cannot allocate
                                     memory" */
};

/* Both accept err == NULL and return code, so that `return nxl_err_set(...)` reads well.
 * With os != 0 and positive, strerror(os) is appended. */
NXL_EXPORT enum nxl_code nxl_err_set(struct nxl_err *err, enum nxl_code code, int os,
                                     const char *fmt, ...) NXL_PRINTF(4, 5);
/* Puts "what: " in front of the text that is there; keeps os. */
NXL_EXPORT enum nxl_code nxl_err_wrap(struct nxl_err *err, enum nxl_code code, const char *fmt, ...)
    NXL_PRINTF(3, 4);

NXL_EXPORT const char *nxl_code_name(int code); /* "NXL_ERR_NOT_FOUND"; never NULL */
NXL_EXPORT const char *nxl_code_word(int code); /* "not_found": metric label, JSON; never NULL */
NXL_EXPORT const char *nxl_code_text(int code); /* the sentence above; never NULL */
NXL_EXPORT int nxl_code_retryable(int code);    /* 1 if the same call may succeed later */

#ifdef __cplusplus
}
#endif
#endif
