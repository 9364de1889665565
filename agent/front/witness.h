/* witness.h - learns of a client's death before the kernel takes down its memory: a thread sleeps
 * on the robust locks that clients hold in their ring headers (wire/ring.h). The process handle
 * says the same later, in a large process by seconds. Loop thread; one sleeping thread for 127
 * clients.
 *
 * The words are the clients' to scribble on. Whatever a client does with its own, at most it ends
 * its own session or loses the early warning. */
#ifndef NXL_FRONT_WITNESS_H
#define NXL_FRONT_WITNESS_H

#include <stdatomic.h>
#include <stdint.h>

struct front_watched; /* one word */
struct front_witness;
struct nxl_loop;

/* NULL when this kernel or sandbox has no futex_waitv (Linux 5.16). */
struct front_witness *front_witness_open(struct nxl_loop *loop);
void front_witness_close(struct front_witness *witness); /* accepts NULL; nothing may be watched */

/* fn runs once, on the loop, after the thread that holds the lock died with its process, also if it
 * did so before. NULL: the word is not that of a held lock. Borrows word until forget. */
struct front_watched *front_witness_watch(struct front_witness *witness, _Atomic uint32_t *word,
                                          void (*fn)(void *arg), void *arg);
void front_witness_forget(struct front_watched *watched); /* accepts NULL; also inside fn */

#endif
