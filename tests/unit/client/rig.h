/* rig.h - a client with one peer, one remote and two lists, connected to a scripted agent. */
#ifndef NXL_TESTS_CLIENT_RIG_H
#define NXL_TESTS_CLIENT_RIG_H

#include <nixlet.h>

#include "support/fake_agent.h"

#define RIG_PAGE 4096u
#define RIG_BLOCKS 16u

struct rig {
    struct fake_agent *agent;
    struct nxl_client *client;
    struct nxl_peer *peer;
    struct nxl_remote *remote;
    struct nxl_list *local, *far; /* RIG_BLOCKS descriptors of RIG_PAGE bytes each */
    struct nxl_err err;
};

int rig_setup(void **state);         /* everything */
int rig_setup_session(void **state); /* agent and client only */
int rig_setup_small(void **state);   /* everything, but 4 slots and an arena of 64 KiB */
int rig_teardown(void **state);

void rig_peer(struct rig *rig);  /* opens peer "me", loads remote "far" */
void rig_lists(struct rig *rig); /* prepares both lists */
struct nxl_transfer *rig_transfer(struct rig *rig);
/* The next entry of the submission ring; fails the test if there is none. */
struct nxl_ring_entry rig_take(struct rig *rig);
/* Posts and takes the post's entry. */
struct nxl_ring_entry rig_post(struct rig *rig, struct nxl_transfer *transfer);
void rig_end(struct rig *rig, struct nxl_ring_entry entry, unsigned state, enum nxl_code code);
void rig_event(struct rig *rig, uint32_t peer, uint32_t kind, const char *payload);
uint32_t rig_peer_id(struct rig *rig); /* as the agent gave it last */

#define assert_code(code, rig, expression)                                                         \
    do {                                                                                           \
        (rig)->err.text[0] = '\0';                                                                 \
        enum nxl_code got_ = (expression);                                                         \
        if (got_ != (code))                                                                        \
            fail_msg("%s: %s: %s", #expression, nxl_code_name(got_), (rig)->err.text);             \
    } while (0)
#define assert_says(rig, word)                                                                     \
    do {                                                                                           \
        if (!strstr((rig)->err.text, (word)))                                                      \
            fail_msg("'%s' is not in '%s'", (word), (rig)->err.text);                              \
    } while (0)

#endif
