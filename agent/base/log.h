/* log.h - one line per event, key=value, lower case. Any thread. The level is checked before
 * arguments are evaluated. External strings go through %q-like quoting: nxl_quote(). */
#ifndef NXL_BASE_LOG_H
#define NXL_BASE_LOG_H

#include <nxl/err.h>

enum nxl_log_level { NXL_LOG_ERROR = 0, NXL_LOG_WARN, NXL_LOG_INFO, NXL_LOG_DEBUG, NXL_LOG_TRACE };

extern enum nxl_log_level nxl_log_limit; /* lines above it are dropped */
void nxl_log_setup(const char *program, enum nxl_log_level limit, int fd);
int nxl_log_level_of(const char *word); /* -1 if unknown */
void nxl_log_write(enum nxl_log_level level, const char *subject, const char *fmt, ...)
    NXL_PRINTF(3, 4);
/* Quotes and escapes text into a thread-local ring of buffers (8 deep, 512 bytes each). */
const char *nxl_quote(const char *text);

#define NXL_LOG(level, subject, ...)                                                               \
    do {                                                                                           \
        if ((level) <= nxl_log_limit)                                                              \
            nxl_log_write((level), (subject), __VA_ARGS__);                                        \
    } while (0)
#define nxl_error(subject, ...) NXL_LOG(NXL_LOG_ERROR, subject, __VA_ARGS__)
#define nxl_warn(subject, ...) NXL_LOG(NXL_LOG_WARN, subject, __VA_ARGS__)
#define nxl_info(subject, ...) NXL_LOG(NXL_LOG_INFO, subject, __VA_ARGS__)
#define nxl_debug(subject, ...) NXL_LOG(NXL_LOG_DEBUG, subject, __VA_ARGS__)
#define nxl_trace(subject, ...) NXL_LOG(NXL_LOG_TRACE, subject, __VA_ARGS__)

/* For causes a stranger can repeat: at most `burst` lines per second and site, then a count. */
struct nxl_log_gate {
    uint64_t window_ns;
    uint32_t used, dropped;
};
int nxl_log_gate_open(struct nxl_log_gate *gate, uint32_t burst); /* loop thread */

#endif
