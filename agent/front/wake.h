/* wake.h - signals an eventfd that a stranger holds too, without ever waiting. Loop thread. */
#ifndef NXL_FRONT_WAKE_H
#define NXL_FRONT_WAKE_H

struct front_wake;

struct front_wake *front_wake_open(void);
void front_wake_close(struct front_wake *wake); /* accepts NULL */
/* Adds 1 to the eventfd; a full counter stays full. 1: done. */
int front_wake_signal(struct front_wake *wake, int eventfd);

#endif
