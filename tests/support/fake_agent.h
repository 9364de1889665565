/* fake_agent.h - the far end of the local socket for tests of the client: answers control frames on
 * a thread, keeps what it was told, and leaves the rings to the test, which plays the agent there.
 */
#ifndef NXL_TESTS_FAKE_AGENT_H
#define NXL_TESTS_FAKE_AGENT_H

#include <nxl/types.h>

#include "wire/frame.h"
#include "wire/ring.h"

struct fake_agent;

struct fake_agent *fake_agent_start(void); /* listens on a fresh path */
void fake_agent_stop(struct fake_agent *agent);
const char *fake_agent_path(const struct fake_agent *agent);
/* The process dies: every socket closes, nothing listens. */
void fake_agent_crash(struct fake_agent *agent);
/* Another life of it listens on the same path, under a new incarnation. */
void fake_agent_restart(struct fake_agent *agent);
/* Says GOAWAY to every session, without closing. */
void fake_agent_goaway(struct fake_agent *agent, const char *text);

/* The next frames of a type are answered with code and text; times 0: none any more. */
void fake_agent_refuse(struct fake_agent *agent, uint16_t type, enum nxl_code code,
                       const char *text, unsigned skip, unsigned times);
/* The next frame of a type is kept back and answered by fake_agent_answer(). */
void fake_agent_hold(struct fake_agent *agent, uint16_t type);
void fake_agent_wait_held(struct fake_agent *agent); /* until it came */
void fake_agent_answer(struct fake_agent *agent);
/* The next HELLO is answered wrongly. */
enum fake_flaw { FAKE_SOUND, FAKE_NO_FDS, FAKE_UNSEALED, FAKE_BAD_MAGIC, FAKE_BAD_VERSION };
void fake_agent_flaw(struct fake_agent *agent, enum fake_flaw flaw);
/* The incarnation that LOAD, FETCH and FIND of a name answer from now on is a new one. */
void fake_agent_renew(struct fake_agent *agent);

unsigned fake_agent_count(struct fake_agent *agent, uint16_t type); /* frames that came */
/* The last request of a type (head, scalars, texts, arrays), copied. */
void fake_agent_last(struct fake_agent *agent, uint16_t type, struct nxl_frame *ret);
unsigned fake_agent_last_fds(struct fake_agent *agent);  /* that came with the last REGISTER */
unsigned fake_agent_regions(struct fake_agent *agent);   /* registered now, in this life */
uint64_t fake_agent_list_runs(struct fake_agent *agent); /* runs that LIST and CHECK brought */
struct nxl_run fake_agent_run(struct fake_agent *agent, uint64_t index);

/* The agent's side of the newest session's ring. */
struct nxl_ring *fake_agent_ring(struct fake_agent *agent);
/* Ends a post: state with or without NXL_RING_QUIET. Wakes the client if it is parked. */
void fake_agent_end(struct fake_agent *agent, uint32_t slot, uint32_t generation, unsigned state,
                    enum nxl_code code);
void fake_agent_event(struct fake_agent *agent, const struct nxl_ring_event *event);
int fake_agent_rang(struct fake_agent *agent);       /* takes the doorbell: 1 if it rang */
unsigned fake_agent_wakes(struct fake_agent *agent); /* wake-ups sent in this life */

#endif
