/* directory_rig.h - a private Redis and some agents' directories on one loop, for the directory's
 * tests. Include after cmocka.h. */
#ifndef NXL_TESTS_DIRECTORY_RIG_H
#define NXL_TESTS_DIRECTORY_RIG_H

#include "base/clock.h"
#include "base/loop.h"
#include "base/metric.h"
#include "base/option.h"
#include "cluster/directory.h"
#include "support/redis_server.h"

#include <hiredis/hiredis.h>

#define RIG_HEARTBEAT_MS 100u
#define RIG_LEASE_MS 600u
#define RIG_EVENTS 256u

struct rig {
    struct redis_server *server;
    struct nxl_loop *loop;
    struct nxl_trust *trust; /* given to agents opened afterwards */
    const char *url;         /* NULL: the server's socket */
    const char *user, *password_file;
    struct agent *agents; /* all of them; what a failed test left is closed at teardown */
};

/* One agent, and what it was told. */
struct agent {
    struct rig *rig;
    struct agent *next;
    struct nxl_settings *settings;
    struct nxl_metrics *metrics;
    struct nxl_directory *directory;
    char node[64], incarnation[128];
    int up, ups, wiped, fenced;
    int close_when_fenced; /* closes the directory inside on_fenced */
    char why[512];
    uint32_t records, withdrawn, facts;
    struct {
        char name[64], incarnation[128];
        int withdrawn;
    } record[RIG_EVENTS]; /* the last ones, as a ring */
    struct {
        char prefix[160], reason[160], witness[160];
        enum nxl_life life;
    } fact[RIG_EVENTS];
};

struct answer {
    int calls;
    enum nxl_code code;
    char incarnation[NXL_INCARNATION_MAX + 1], address[300], text[512];
    uint64_t revision, at_ns;
};

int rig_setup(void **state);           /* with a running server */
int rig_setup_no_server(void **state); /* server object only */
int rig_teardown(void **state);
int rig_skip_without_redis(void); /* prints why and returns 77, or 0 */

/* Fails the test unless done(arg) holds within 5 s. */
void rig_until(struct rig *rig, int (*done)(void *arg), void *arg);
void rig_run_ms(struct rig *rig, uint64_t duration_ms); /* lets that much time pass */

struct agent *agent_new(struct rig *rig, const char *node, const char *life); /* not opened */
void agent_open(struct agent *agent);
struct agent *agent_start(struct rig *rig, const char *node, const char *life); /* opened and up */
void agent_close(struct agent *agent);
int agent_is_up(void *agent);
int agent_is_down(void *agent);
void agent_publish(struct agent *agent, const char *name, const char *incarnation,
                   uint64_t revision, const char *label);
uint64_t agent_lookup(struct agent *agent, const char *name, const char *label, uint64_t wait_ms,
                      struct answer *answer);
int answer_came(void *answer);
int agent_metric(struct agent *agent, const char *name); /* one without labels */

void rig_record(struct nxl_record *record, const char *node, const char *agent, const char *name,
                const char *incarnation, uint64_t revision);
/* Questions to the server. */
int rig_exists(struct rig *rig, const char *key);
int rig_has_record(struct rig *rig, const char *node, const char *field);
void rig_name_holder(struct rig *rig, const char *name, char *to, size_t room);
/* Waits for it, with the loop turning. */
void rig_until_record(struct rig *rig, const char *node, const char *field, int there);
void rig_until_key(struct rig *rig, const char *key, int there);

#define KEY(rest) "nixlet:{test}:" rest

#endif
