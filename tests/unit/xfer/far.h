/* far.h - a far agent that says what the test wants: only a link end, without an engine. */
#ifndef NXL_TESTS_XFER_FAR_H
#define NXL_TESTS_XFER_FAR_H

#include "rig.h"

#define FAR_PEER "node-b/boot/s-1.1" /* the peer it answers for */
#define FAR_REGION 70u               /* its regions have this id and those that follow */

struct far {
    struct nxl_settings *settings;
    struct nxl_metrics *metrics;
    struct nxl_links *links;
    struct nxl_link *link; /* the last that came up; NULL when it is down */
    char node[32], agent[64];
    struct nxl_message_backend backend;
    uint32_t regions;     /* of FAR_PEER */
    enum nxl_code answer; /* to questions about it; NXL_AGAIN: none */
    enum nxl_code taken;  /* answer to notices */
    uint32_t queries, unsubscribes, notices, facts, hints;
    uint64_t acked[64]; /* sequences that were confirmed */
    uint32_t acks;
    char fact[NXL_INCARNATION_MAX + 1];
    char from_ns[64], notice[64];
    enum nxl_code digest_codes[8];
    char digest_text[128];
    uint32_t digests;
};
/* It listens on a free port, or on the given one. */
void far_open(struct far *far, struct nxl_loop *loop, const char *node, const char *agent,
              const char *listen);
void far_close(struct far *far); /* with a goodbye */
/* The metadata of FAR_PEER, as this agent would give it. */
void far_blob(const struct far *far, struct nxl_bytes *to);
void far_say(struct far *far, const struct nxl_message *message);
void far_fact(struct far *far, const char *incarnation, uint64_t sequence); /* it is dead */
void far_tell_regions(struct far *far, const char *incarnation, uint32_t count, uint32_t flags);
int far_acked(const struct far *far, uint64_t sequence);
/* client loads FAR_PEER; returns the remote's id. */
uint32_t far_load(struct far *far, struct client *client);

#endif
