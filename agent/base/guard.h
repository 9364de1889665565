/* guard.h - survives SIGBUS on mapped client memory. A client may truncate a file that we have
 * mapped; the handler then puts zero pages over the whole mapping and marks it lost, so the
 * touching thread goes on and the transfer fails with NXL_MEMORY_LOST instead of the agent dying.
 */
#ifndef NXL_BASE_GUARD_H
#define NXL_BASE_GUARD_H

#include <stddef.h>

void nxl_guard_install(void); /* once, before threads */
/* Watches [base, base + size); returns a slot or -1 if the table (65536) is full. Loop thread. */
int nxl_guard_add(void *base, size_t size);
int nxl_guard_lost(int slot);    /* any thread */
void nxl_guard_remove(int slot); /* before munmap */

#endif
