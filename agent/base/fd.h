/* fd.h - owned descriptors and small file reads. Everything is CLOEXEC from birth. */
#ifndef NXL_BASE_FD_H
#define NXL_BASE_FD_H

#include <nxl/err.h>

void nxl_closep(int *fd); /* for NXL_CLEANUP; closes if >= 0 and sets -1 */
/* Reads a small file whole (limit_bytes at most), NUL-terminated. Gives *ret to free(). */
NXL_MUST_USE enum nxl_code nxl_read_file(const char *path, size_t limit_bytes, char **ret,
                                         size_t *ret_size, struct nxl_err *err);
/* Writes atomically through a temporary file beside it. */
NXL_MUST_USE enum nxl_code nxl_write_file(const char *path, const void *data, size_t size,
                                          unsigned mode, struct nxl_err *err);
void nxl_random(void *to, size_t size); /* getrandom; aborts if the kernel has none */
uint64_t nxl_random_u64(void);

#endif
