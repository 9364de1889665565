/* digest.h - the optional check of a finished transfer: both sides' bytes are summed where they lie
 * (XXH3, on the pool) and compared; a difference ends it as NXL_DIGEST. Sums of far memory are told
 * by the agent where it is registered, over the link. Inside agent/xfer. Loop thread. */
#ifndef NXL_XFER_DIGEST_H
#define NXL_XFER_DIGEST_H

#include "xfer/engine.h"

#define XFER_DIGEST_PIECES 8192u /* compared at once; one question to a far agent */

struct xfer_digest; /* the check of one request */

/* All parts ended well. The request ends from here, later: OK, NXL_DIGEST, or as it is stopped. */
void xfer_digest_begin(struct xfer_request *request);
/* The request ends: its check is dropped. What is still read keeps the request from being quiet. */
void xfer_digest_over(struct xfer_request *request);

/* Links. own: the peer of ours that is asked about, NULL if there is none. */
void xfer_digest_asked(struct xfer_agent *agent, struct xfer_peer *own,
                       const struct nxl_message *question);
void xfer_digest_answered(struct xfer_agent *agent, const struct nxl_message *answer);
void xfer_digests_ask_again(struct xfer_agent *agent); /* its link is up again */

/* digest_sum.c: a sum over rows of mapped memory, and rows on the wire. */
struct digest_row {
    const unsigned char *base; /* of the first row */
    uint64_t len, stride;
    uint32_t count;
};
struct digest_sum {
    struct nxl_xfer *xfer;
    struct digest_row *rows; /* taken */
    uint32_t row_count;
    uint64_t value;
    void (*done)(struct digest_sum *sum); /* on the loop */
};
/* The memory must stay mapped until done ran; counts in xfer->summing. */
void digest_sum_start(struct digest_sum *sum);
void digest_sum_fini(struct digest_sum *sum);

#endif
