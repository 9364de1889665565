/* test_random.c - a long random run of the world must end where a new world, shown only the last
 * state, ends: same records at agents, same counts, same policies. And a dead UID is never told
 * alive again. */
#include "world_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UIDS 4000
#define NAMES 40
#define NODES 6
#define GROUPS 5

struct told { /* as an agent that hears everything holds it */
    char text[160];
    int dead;
};

struct agent {
    struct told pods[UIDS];
    char policies[GROUPS][512];
    unsigned revived;
};

struct state { /* what the API server holds */
    struct {
        unsigned uid; /* 0: no such pod */
        unsigned label, node, phase, deleting, container, version;
    } pods[NAMES];
    struct {
        int exists;
        unsigned role, label, allow, generation, mode;
    } groups[GROUPS];
    struct {
        int exists, ready, out;
    } nodes[NODES];
};

static unsigned long long seed = 88172645463325252ull;

static unsigned roll(unsigned below)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (unsigned)(seed >> 20) % below;
}

static void on_member(void *arg, const struct nxl_world_member *member)
{
    struct agent *agent = arg;
    unsigned uid = (unsigned)atoi(member->id + 1);
    struct told *told = &agent->pods[uid];

    if (strchr(member->id, '/') != NULL && member->life == NXL_LIFE_DEAD)
        return; /* a container */
    agent->revived += told->dead && member->life != NXL_LIFE_DEAD;
    if (member->life == NXL_LIFE_DEAD) {
        told->dead = 1;
        told->text[0] = '\0';
    } else {
        snprintf(told->text, sizeof(told->text), "%s %s %s %d %d", member->id, member->group,
                 member->node, member->life, member->suspect);
    }
}
static void on_forget(void *arg, const char *uid)
{
    ((struct agent *)arg)->pods[atoi(uid + 1)].text[0] = '\0';
}
static void on_policy(void *arg, const struct nxl_world_policy *policy)
{
    char *to = ((struct agent *)arg)->policies[policy->group[3] - '0'];

    to[0] = '\0';
    for (uint32_t i = 0; i < policy->rule_count; i++)
        snprintf(to + strlen(to), 512 - strlen(to), "%s:%d ", policy->rules[i].from,
                 policy->rules[i].ops);
    strcat(to, ".");
}
static void on_policy_gone(void *arg, const char *group)
{
    ((struct agent *)arg)->policies[group[3] - '0'][0] = '\0';
}
static void on_interest(void *arg, const char *node, const char *group)
{
}
static void on_group(void *arg, const char *group)
{
}
static void on_slice(void *arg, const char *group, uint32_t index)
{
}
static void on_note(void *arg, const char *group, enum nxl_world_note note, const char *text)
{
}

static struct nxl_world *new_world(struct agent *agent)
{
    static const struct nxl_world_ops ops = {on_member,   on_forget, on_policy, on_policy_gone,
                                             on_interest, on_group,  on_slice,  on_note};

    return nxl_world_new(&(struct nxl_world_options){.ops = &ops, .arg = agent});
}

/* ---- shown to a world -------------------------------------------------------------------------
 */

static void show_pod(struct nxl_world *world, const struct state *s, unsigned i, uint64_t now_ns)
{
    char name[16], uid[16], node[16], version[16], label[16], id[24];
    struct nxl_pod pod = {.ns = "a", .name = name, .uid = uid, .version = version, .reason = ""};

    snprintf(name, sizeof(name), "p%u", i);
    snprintf(uid, sizeof(uid), "u%u", s->pods[i].uid);
    snprintf(node, sizeof(node), "n%u", s->pods[i].node);
    snprintf(version, sizeof(version), "%u", s->pods[i].version);
    snprintf(label, sizeof(label), "l%u", s->pods[i].label);
    snprintf(id, sizeof(id), "c%u", s->pods[i].container);
    pod.node = node;
    pod.phase = (uint8_t)s->pods[i].phase;
    pod.deleting = (uint8_t)s->pods[i].deleting;
    pod.labels[0] = (struct nxl_label){"app", label};
    pod.label_count = 1;
    pod.containers[0] = (struct nxl_container){.name = "c", .id = id};
    pod.container_count = 1;
    nxl_world_put_pod(world, &pod, now_ns);
}

static void show_node(struct nxl_world *world, const struct state *s, unsigned i, uint64_t now_ns)
{
    char name[16];
    struct nxl_node node = {.name = name,
                            .uid = name,
                            .version = "1",
                            .ready = (uint8_t)s->nodes[i].ready,
                            .out_of_service = (uint8_t)s->nodes[i].out};

    snprintf(name, sizeof(name), "n%u", i);
    nxl_world_put_node(world, &node, now_ns);
}

static void show_group(struct nxl_world *world, const struct state *s, unsigned i, uint64_t now_ns)
{
    char name[16], label[16], text[32];
    struct nxl_nixlpeer *peer;

    snprintf(name, sizeof(name), "g%u", i);
    snprintf(label, sizeof(label), "app=l%u", s->groups[i].label);
    peer = rig_group("a", name, NXL_ROLE_PREFILL + s->groups[i].role, label);
    snprintf(text, sizeof(text), "uid%u-%d", i, s->groups[i].exists);
    peer->uid = nxl_nixlpeer_keep(peer, text);
    peer->generation = s->groups[i].generation;
    peer->spec.mode = (uint8_t)s->groups[i].mode;
    snprintf(name, sizeof(name), "g%u", s->groups[i].allow);
    rig_rule(peer, name, NXL_MAY_READ);
    nxl_world_put_nixlpeer(world, peer, now_ns);
}

/* ---- steps
 * ---------------------------------------------------------------------------------------- */

static unsigned next_uid = 1, next_version = 1;

static void step_pod(struct nxl_world *world, struct state *s, uint64_t now_ns)
{
    unsigned i = roll(NAMES), uid = s->pods[i].uid, what = roll(10);
    char text[16];

    if (what == 0 && uid != 0) {
        snprintf(text, sizeof(text), "u%u", uid);
        s->pods[i].uid = 0;
        nxl_world_drop_pod(world, "a", "p", text, now_ns);
        return;
    }
    if (uid == 0 || what == 1) { /* made, or made again behind our back */
        if (next_uid == UIDS)
            return;
        s->pods[i].uid = next_uid++;
        s->pods[i].phase = NXL_PHASE_RUNNING;
        s->pods[i].node = roll(NODES);
        s->pods[i].label = roll(4);
        s->pods[i].deleting = 0;
    } else if (what == 2) {
        s->pods[i].label = roll(4);
    } else if (what == 3) {
        s->pods[i].deleting = 1;
    } else if (what == 4) {
        s->pods[i].phase = NXL_PHASE_FAILED;
    } else {
        s->pods[i].container = roll(5);
    }
    s->pods[i].version = next_version++;
    show_pod(world, s, i, now_ns);
}

static void step_group(struct nxl_world *world, struct state *s, uint64_t now_ns)
{
    unsigned i = roll(GROUPS);
    char name[16], uid[32];

    if (s->groups[i].exists > 0 && roll(6) == 0) {
        snprintf(name, sizeof(name), "g%u", i);
        snprintf(uid, sizeof(uid), "uid%u-%d", i, s->groups[i].exists);
        s->groups[i].exists = -s->groups[i].exists;
        nxl_world_drop_nixlpeer(world, "a", name, uid, now_ns);
        return;
    }
    if (s->groups[i].exists <= 0) {
        s->groups[i].exists = 1 - s->groups[i].exists;
        s->groups[i].role = roll(2);
    }
    s->groups[i].label = roll(4);
    s->groups[i].allow = roll(GROUPS);
    s->groups[i].mode = roll(2); /* Paused depends on history, by design */
    s->groups[i].generation++;
    show_group(world, s, i, now_ns);
}

static void step_node(struct nxl_world *world, struct state *s, uint64_t now_ns)
{
    unsigned i = roll(NODES);

    s->nodes[i].exists = 1;
    s->nodes[i].ready = (int)roll(3);
    show_node(world, s, i, now_ns);
}

static void same_worlds(struct nxl_world *a, struct nxl_world *b, const struct agent *first,
                        const struct agent *second, const struct state *s)
{
    for (unsigned i = 0; i < NAMES; i++)
        if (s->pods[i].uid != 0)
            assert_string_equal(first->pods[s->pods[i].uid].text,
                                second->pods[s->pods[i].uid].text);
    for (unsigned uid = 0; uid < UIDS; uid++)
        assert_string_equal(first->pods[uid].text, second->pods[uid].text);
    for (unsigned i = 0; i < GROUPS; i++) {
        char key[16];
        struct nxl_world_group x = {0}, y = {0};

        snprintf(key, sizeof(key), "a/g%u", i);
        assert_string_equal(first->policies[i], second->policies[i]);
        assert_int_equal(nxl_world_group(a, key, &x), nxl_world_group(b, key, &y));
        if (s->groups[i].exists <= 0)
            continue;
        assert_int_equal(x.total, y.total);
        assert_int_equal(x.live, y.live);
        assert_int_equal(x.draining, y.draining);
        assert_int_equal(x.suspect, y.suspect);
        assert_int_equal(x.pending, y.pending);
        assert_int_equal(x.total, x.live + x.draining + x.suspect + x.pending);
        assert_int_equal(x.barred, y.barred);
        assert_int_equal(x.nodes, y.nodes);
        assert_string_equal(x.refusal, y.refusal);
    }
}

static void a_long_run_ends_where_a_new_world_ends(void **state)
{
    static struct agent first, second;
    static struct state s;
    struct nxl_world *world = new_world(&first);
    uint64_t now_ns = 1000 * SEC;

    nxl_world_synced(world, now_ns);
    for (unsigned i = 0; i < 60000; i++) {
        unsigned what = roll(20);

        now_ns += 1000;
        if (what == 0)
            step_group(world, &s, now_ns);
        else if (what == 1)
            step_node(world, &s, now_ns);
        else
            step_pod(world, &s, now_ns);
        if (what == 2)
            nxl_world_tick(world, now_ns);
        if (i % 2000 == 1999) {
            struct nxl_world *fresh = new_world(&second);

            memset(&second, 0, sizeof(second));
            for (unsigned k = 0; k < NODES; k++)
                if (s.nodes[k].exists)
                    show_node(fresh, &s, k, now_ns);
            for (unsigned k = 0; k < GROUPS; k++)
                if (s.groups[k].exists > 0)
                    show_group(fresh, &s, k, now_ns);
            for (unsigned k = 0; k < NAMES; k++)
                if (s.pods[k].uid != 0)
                    show_pod(fresh, &s, k, now_ns);
            nxl_world_synced(fresh, now_ns);
            same_worlds(world, fresh, &first, &second, &s);
            nxl_world_free(fresh);
        }
    }
    assert_int_equal(first.revived, 0);
    assert_true(next_uid > 1000);
    nxl_world_free(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_long_run_ends_where_a_new_world_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
