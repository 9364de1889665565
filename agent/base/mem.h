/* mem.h - aborting small allocations and the clean-up idioms. Sizes that a client chooses are
 * checked against a limit by the caller first. */
#ifndef NXL_BASE_MEM_H
#define NXL_BASE_MEM_H

#include <stddef.h>

#define NXL_CLEANUP(fn) __attribute__((cleanup(fn)))
/* Moves a pointer out of a variable and disarms its clean-up. */
#define NXL_TAKE(var)                                                                              \
    __extension__({                                                                                \
        __typeof__(var) nxl_taken_ = (var);                                                        \
        (var) = NULL;                                                                              \
        nxl_taken_;                                                                                \
    })
#define nxl_container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))
#define NXL_COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* Zeroed; aborts when there is none. Given to free(). */
void *nxl_new0(size_t size);
void *nxl_new0_array(size_t count, size_t size); /* checks overflow */
void *nxl_resize(void *ptr, size_t count, size_t size);
char *nxl_strdup(const char *text);
char *nxl_format(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void nxl_freep(void *pointer_to_pointer); /* for NXL_CLEANUP */
/* Copies with truncation, always terminates; returns 0 if it fitted, -1 if not. */
int nxl_copy_text(char *to, size_t size, const char *from);

#endif
