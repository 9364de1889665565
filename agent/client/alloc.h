/* alloc.h - what nxl_alloc() handed out, by address. Any thread. */
#ifndef NXL_CLIENT_ALLOC_H
#define NXL_CLIENT_ALLOC_H

#include <nxl/err.h>

/* The allocation that addr lies in: descriptor (dup'd, caller closes) and mapping. 0: none. */
int nxl_alloc_find(uint64_t addr, int *ret_fd, uint64_t *ret_base, uint64_t *ret_size);

#endif
