/* environment.h - what others put around us: UCX_* variables and further copies of the library. */
#ifndef NXL_UCX_ENVIRONMENT_H
#define NXL_UCX_ENVIRONMENT_H

#include <stddef.h>

/* Number of different libucs files mapped into this process; their paths, cut to fit, in paths. */
unsigned ucx_environment_copies(char *paths, size_t size);
/* "UCX_TLS=tcp UCX_NET_DEVICES=eth0", cut to fit; returns how many there are. */
unsigned ucx_environment_variables(char *text, size_t size);
/* True if the node has an RDMA device. */
int ucx_environment_rdma(void);

#endif
