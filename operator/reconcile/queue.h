/* queue.h - keys of objects that want work: one key is there once, is worked on once at a time, and
 * comes again if it was added meanwhile; failures wait longer and longer. Time is an argument
 * (monotonic). One thread. */
#ifndef NXL_RECONCILE_QUEUE_H
#define NXL_RECONCILE_QUEUE_H

#include <nxl/err.h>

struct nxl_queue;

#define NXL_QUEUE_KEY_MAX 191u

struct nxl_queue_options {
    uint64_t backoff_min_ns, backoff_max_ns; /* doubles from one to the other; 0: 5 ms, 1000 s */
    uint32_t keys_max;                       /* 0: 100000 */
};

struct nxl_queue *nxl_queue_new(const struct nxl_queue_options *options);
void nxl_queue_free(struct nxl_queue *queue); /* accepts NULL */

/* Wants work now. A key that waits for later comes forward, except one that waits out a failure
 * (nxl_queue_retry): that keeps its time. 0: too long or too many keys, refused. */
int nxl_queue_add(struct nxl_queue *queue, const char *key, uint64_t now_ns);
/* Wants work at at_ns, or earlier if it already waits for an earlier time. */
int nxl_queue_add_at(struct nxl_queue *queue, const char *key, uint64_t at_ns);
/* The next key that is due, oldest first; it is in work until nxl_queue_done(). NULL: none. Lent
 * until done. */
const char *nxl_queue_take(struct nxl_queue *queue, uint64_t now_ns);
/* The work on key ended well: its failures are forgotten. Added meanwhile: it is due again. */
void nxl_queue_done(struct nxl_queue *queue, const char *key, uint64_t now_ns);
/* The work failed: it comes again after its back-off, or not before not_before_ns. Returns when. */
uint64_t nxl_queue_retry(struct nxl_queue *queue, const char *key, uint64_t now_ns,
                         uint64_t not_before_ns);
void nxl_queue_forget(struct nxl_queue *queue, const char *key); /* unless it is in work */

/* When the next key is due; UINT64_MAX if none waits. */
uint64_t nxl_queue_next_ns(const struct nxl_queue *queue);
uint32_t nxl_queue_depth(const struct nxl_queue *queue);   /* waiting, due or not */
uint32_t nxl_queue_in_work(const struct nxl_queue *queue); /* taken and not done */
uint32_t nxl_queue_failures(const struct nxl_queue *queue, const char *key);

#endif
