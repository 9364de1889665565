/* work.h - long computation off the loop: libuv's pool of threads. For what may take milliseconds
 * and touches no state of the loop; never for what waits. */
#ifndef NXL_BASE_WORK_H
#define NXL_BASE_WORK_H

struct nxl_loop;

/* work runs on some thread of the pool, then done on the loop, never from inside this call. Borrows
 * arg until done returned. Aborts when there is no memory. The loop must turn until done ran. */
void nxl_work_start(struct nxl_loop *loop, void (*work)(void *arg), void (*done)(void *arg),
                    void *arg);

#endif
