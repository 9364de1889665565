/* world_rig.h - a world whose changes are written down as lines of text, one a change. */
#ifndef WORLD_RIG_H
#define WORLD_RIG_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include "model/selector.h"
#include "model/status.h"
#include "model/world.h"

#define SEC 1000000000ull

struct rig {
    struct nxl_world *world;
    uint64_t now_ns;
    char log[65536]; /* members, forgotten ones, policies */
    char notes[16384];
    unsigned members, groups, slices, interests;
    int quiet; /* counts only */
};

int rig_open(void **state);
int rig_close(void **state);
/* What was logged since the last call must be this. */
#define rig_expect(rig, text)                                                                      \
    do {                                                                                           \
        assert_string_equal((rig)->log, (text));                                                   \
        (rig)->log[0] = '\0';                                                                      \
    } while (0)
#define rig_noted(rig, text) assert_non_null(strstr((rig)->notes, (text)))

/* "ns/name uid node phase labels containers": labels "a=1,b=2", containers "c=id,d=id!" (! ended);
 * "-" for none. version counts up by itself. */
void rig_pod(struct rig *rig, const char *text);
void rig_pod_at(struct rig *rig, const char *text, const char *version, int deleting,
                const char *reason);
void rig_drop(struct rig *rig, const char *text); /* "ns/name uid" */
void rig_node(struct rig *rig, const char *name, int ready, int out_of_service, const char *labels);
void rig_space(struct rig *rig, const char *name, const char *labels);
/* A NixlPeer that takes pods with one label ("app=x"), to be changed before rig_put(). */
struct nxl_nixlpeer *rig_group(const char *ns, const char *name, enum nxl_role role,
                               const char *label);
void rig_put(struct rig *rig, struct nxl_nixlpeer *peer);
struct nxl_rule *rig_rule(struct nxl_nixlpeer *peer, const char *peer_name, unsigned ops);
struct nxl_selector *rig_selector(const char *label);
void rig_synced(struct rig *rig);
struct nxl_world_group rig_ask(struct rig *rig, const char *group);

#endif
