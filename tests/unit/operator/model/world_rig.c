/* world_rig.c - see world_rig.h. */
#include "world_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static unsigned version = 100;

static void put(char *to, size_t size, const char *fmt, ...)
{
    size_t used = strlen(to);
    va_list args;

    va_start(args, fmt);
    vsnprintf(to + used, size - used, fmt, args);
    va_end(args);
}

static void on_member(void *arg, const struct nxl_world_member *member)
{
    static const char *const lives[] = {"live", "draining", "dead"};
    struct rig *rig = arg;

    rig->members++;
    if (rig->quiet)
        return;
    put(rig->log, sizeof(rig->log), "%s %s%s%s%s in %s on %s", lives[member->life], member->id,
        member->suspect ? " suspect" : "", member->reason[0] ? " " : "", member->reason,
        member->group, member->node);
    if (member->revision[0] != '\0')
        put(rig->log, sizeof(rig->log), " rev %s", member->revision);
    if (member->topology[0] != '\0')
        put(rig->log, sizeof(rig->log), " zone %s", member->topology);
    put(rig->log, sizeof(rig->log), "\n");
}

static void on_forget(void *arg, const char *uid)
{
    struct rig *rig = arg;

    put(rig->log, sizeof(rig->log), "forget %s\n", uid);
}

static void on_policy(void *arg, const struct nxl_world_policy *policy)
{
    struct rig *rig = arg;

    if (rig->quiet)
        return;
    put(rig->log, sizeof(rig->log), "policy %s", policy->group);
    for (uint32_t i = 0; i < policy->backend_count; i++)
        put(rig->log, sizeof(rig->log), " +%s", policy->backends[i].name);
    for (uint32_t i = 0; i < policy->rule_count; i++)
        put(rig->log, sizeof(rig->log), " %s:%s%s%s", policy->rules[i].from,
            policy->rules[i].ops & NXL_MAY_READ ? "R" : "",
            policy->rules[i].ops & NXL_MAY_WRITE ? "W" : "",
            policy->rules[i].ops & NXL_MAY_NOTIFY ? "N" : "");
    put(rig->log, sizeof(rig->log), "\n");
}

static void on_policy_gone(void *arg, const char *group)
{
    struct rig *rig = arg;

    put(rig->log, sizeof(rig->log), "gone %s\n", group);
}

static void on_interest(void *arg, const char *node, const char *group)
{
    struct rig *rig = arg;

    (void)node;
    (void)group;
    rig->interests++;
}

static void on_group(void *arg, const char *group)
{
    struct rig *rig = arg;

    (void)group;
    rig->groups++;
}

static void on_slice(void *arg, const char *group, uint32_t index)
{
    struct rig *rig = arg;

    (void)group;
    (void)index;
    rig->slices++;
}

static void on_note(void *arg, const char *group, enum nxl_world_note note, const char *text)
{
    struct rig *rig = arg;

    if (!rig->quiet)
        put(rig->notes, sizeof(rig->notes), "%s %d %s\n", group, (int)note, text);
}

int rig_open(void **state)
{
    static const struct nxl_world_ops ops = {on_member,   on_forget, on_policy, on_policy_gone,
                                             on_interest, on_group,  on_slice,  on_note};
    struct rig *rig = calloc(1, sizeof(*rig));

    rig->world = nxl_world_new(&(struct nxl_world_options){.ops = &ops, .arg = rig});
    rig->now_ns = 1000 * SEC;
    *state = rig;
    return 0;
}

int rig_close(void **state)
{
    struct rig *rig = *state;

    nxl_world_free(rig->world);
    free(rig);
    return 0;
}

/* Cuts text in place at commas and '='. */
static uint32_t cut_pairs(char *text, struct nxl_label *to)
{
    uint32_t count = 0;
    char *rest = text, *item;

    if (strcmp(text, "-") == 0)
        return 0;
    while ((item = strsep(&rest, ",")) != NULL) {
        to[count].key = strsep(&item, "=");
        to[count++].value = item != NULL ? item : "";
    }
    return count;
}

static int phase_of(const char *word)
{
    return *word == 'P'   ? NXL_PHASE_PENDING
           : *word == 'R' ? NXL_PHASE_RUNNING
           : *word == 'F' ? NXL_PHASE_FAILED
                          : NXL_PHASE_SUCCEEDED;
}

void rig_pod_at(struct rig *rig, const char *text, const char *at, int deleting, const char *reason)
{
    char copy[1024], none[] = "-", *rest = copy;
    char *words[6] = {none, none, none, none, none, none};
    struct nxl_label containers[8];
    struct nxl_pod pod = {.version = at, .deleting = (uint8_t)deleting, .reason = reason};

    snprintf(copy, sizeof(copy), "%s", text);
    for (int i = 0; i < 6 && rest != NULL; i++)
        words[i] = strsep(&rest, " ");
    pod.ns = strsep(&words[0], "/");
    pod.name = words[0];
    pod.uid = words[1];
    pod.node = strcmp(words[2], "-") == 0 ? "" : words[2];
    pod.phase = (uint8_t)phase_of(words[3]);
    pod.label_count = cut_pairs(words[4], pod.labels);
    pod.container_count = cut_pairs(words[5], containers);
    for (uint32_t i = 0; i < pod.container_count; i++) {
        char *end = strchr(containers[i].value, '!');

        if (end != NULL)
            *end = '\0';
        pod.containers[i] = (struct nxl_container){
            .name = containers[i].key, .id = containers[i].value, .ended = end != NULL};
    }
    nxl_world_put_pod(rig->world, &pod, rig->now_ns);
}

void rig_pod(struct rig *rig, const char *text)
{
    char at[16];

    snprintf(at, sizeof(at), "%u", version++);
    rig_pod_at(rig, text, at, 0, "");
}

void rig_drop(struct rig *rig, const char *text)
{
    char copy[256], *uid = copy, *name, *ns;

    snprintf(copy, sizeof(copy), "%s", text);
    name = strsep(&uid, " ");
    ns = strsep(&name, "/");
    nxl_world_drop_pod(rig->world, ns, name, uid, rig->now_ns);
}

void rig_node(struct rig *rig, const char *name, int ready, int out_of_service, const char *labels)
{
    char copy[256], uid[64];
    struct nxl_node node = {.name = name,
                            .uid = uid,
                            .version = "1",
                            .ready = (uint8_t)ready,
                            .out_of_service = (uint8_t)out_of_service};

    snprintf(copy, sizeof(copy), "%s", labels);
    snprintf(uid, sizeof(uid), "uid-%s", name);
    node.label_count = cut_pairs(copy, node.labels);
    nxl_world_put_node(rig->world, &node, rig->now_ns);
}

void rig_space(struct rig *rig, const char *name, const char *labels)
{
    char copy[256];
    struct nxl_namespace space = {.name = name, .uid = "s", .version = "1"};

    snprintf(copy, sizeof(copy), "%s", labels);
    space.label_count = cut_pairs(copy, space.labels);
    nxl_world_put_namespace(rig->world, &space, rig->now_ns);
}

struct nxl_selector *rig_selector(const char *label)
{
    struct nxl_selector *selector = nxl_selector_new();
    char copy[128], *value = copy;
    const char *key;

    snprintf(copy, sizeof(copy), "%s", label);
    key = strsep(&value, "=");
    assert_int_equal(nxl_selector_add(selector, key, NXL_IN, (const char *const *)&value, 1), 0);
    return selector;
}

struct nxl_nixlpeer *rig_group(const char *ns, const char *name, enum nxl_role role,
                               const char *label)
{
    struct nxl_nixlpeer *peer = nxl_nixlpeer_new();
    char text[128];

    peer->ns = nxl_nixlpeer_keep(peer, ns);
    peer->name = nxl_nixlpeer_keep(peer, name);
    snprintf(text, sizeof(text), "uid-%s-%s", ns, name);
    peer->uid = nxl_nixlpeer_keep(peer, text);
    snprintf(text, sizeof(text), "%u", version++);
    peer->version = nxl_nixlpeer_keep(peer, text);
    peer->generation = 1;
    peer->spec.selector = rig_selector(label);
    peer->spec.role = (uint8_t)role;
    return peer;
}

void rig_put(struct rig *rig, struct nxl_nixlpeer *peer)
{
    nxl_world_put_nixlpeer(rig->world, peer, rig->now_ns);
}

struct nxl_rule *rig_rule(struct nxl_nixlpeer *peer, const char *peer_name, unsigned ops)
{
    struct nxl_rule *rule = &peer->spec.rules[peer->spec.rule_count++];

    rule->peer_name = peer_name != NULL ? nxl_nixlpeer_keep(peer, peer_name) : NULL;
    rule->ops = (uint8_t)ops;
    return rule;
}

void rig_synced(struct rig *rig)
{
    nxl_world_synced(rig->world, rig->now_ns);
    nxl_world_tick(rig->world, rig->now_ns);
}

struct nxl_world_group rig_ask(struct rig *rig, const char *group)
{
    struct nxl_world_group answer = {0};

    assert_int_equal(nxl_world_group(rig->world, group, &answer), 1);
    return answer;
}
