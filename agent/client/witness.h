/* witness.h - a thread that does nothing but live as long as its process. It holds a robust lock in
 * the session's shared file: when the process dies, the kernel tells the agent through that lock
 * before it takes down the process's memory, which for a large cache takes seconds. */
#ifndef NXL_CLIENT_WITNESS_H
#define NXL_CLIENT_WITNESS_H

struct nxl_ring_header;
struct nxl_witness;

/* NULL if there can be none (no thread, no robust locks): the agent then learns of the end from the
 * process handle, after the memory is gone. Waits until the thread holds the lock. */
struct nxl_witness *nxl_witness_start(struct nxl_ring_header *header);
/* Ends the thread; header may be unmapped afterwards. Accepts NULL. In a forked child, which has no
 * such thread, only memory is freed. */
void nxl_witness_stop(struct nxl_witness *witness);

#endif
