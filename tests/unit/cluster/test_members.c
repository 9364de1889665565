/* The table of members: facts in any order from several operators, and who may do what. Pure. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/mem.h"
#include "cluster/members.h"

#include <stdio.h>
#include <string.h>

static struct nxl_members *members;
static struct nxl_err err;
static char said[4096]; /* what the table told, one word a fact */
static uint64_t now;

static void say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void say(const char *fmt, ...)
{
    size_t used = strlen(said);
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(said + used, sizeof(said) - used, fmt, args);
    va_end(args);
}

static void on_life(void *arg, const char *prefix, enum nxl_life life, const char *reason)
{
    say("%s=%s(%s) ", prefix, life == NXL_LIFE_DEAD ? "dead" : "draining", reason);
}

static void on_suspect(void *arg, const char *prefix, int suspect, const char *reason)
{
    say("%s%s ", prefix, suspect ? "?" : "!");
}

static void on_policy(void *arg, const char *group)
{
    say("policy:%s ", group != NULL ? group : "*");
}

static void on_drained(void *arg, const char *prefix)
{
    say("%s=drained ", prefix);
}

static const struct nxl_members_ops ops = {
    .on_life = on_life, .on_suspect = on_suspect, .on_policy = on_policy, .on_drained = on_drained};

static uint64_t clock_of(void *arg)
{
    return now;
}

static int setup(void **state)
{
    const struct nxl_members_options options = {.node = "n1", .max = 100, .ops = &ops};

    now = 1000 * NXL_SEC;
    nxl_clock_replace(clock_of, NULL);
    members = nxl_members_new(&options);
    said[0] = '\0';
    return 0;
}

static int teardown(void **state)
{
    nxl_members_free(members);
    nxl_clock_replace(NULL, NULL);
    return 0;
}

static enum nxl_code put_full(uint32_t source, const struct nxl_stream_member *member)
{
    return nxl_members_put(members, source, member, &err);
}

static enum nxl_code put(uint32_t source, const char *id, const char *group, const char *version)
{
    const struct nxl_stream_member member = {
        .id = id, .group = group, .pod = id, .node = "n2", .version = version};

    return put_full(source, &member);
}

static enum nxl_code put_life(uint32_t source, const char *id, const char *group,
                              const char *version, enum nxl_life life, const char *reason)
{
    const struct nxl_stream_member member = {.id = id,
                                             .group = group,
                                             .pod = id,
                                             .node = "n2",
                                             .version = version,
                                             .life = (uint8_t)life,
                                             .reason = reason};

    return put_full(source, &member);
}

static void policy_of(uint32_t source, const struct nxl_stream_policy *from)
{
    struct nxl_stream_policy policy = *from;
    struct nxl_bytes text = {0};

    assert_int_equal(nxl_stream_policy_text(from, &text, &err), NXL_OK);
    policy.hash = nxl_stream_policy_hash((struct nxl_view){text.data, text.size});
    nxl_bytes_fini(&text);
    NXL_IGNORE(nxl_members_put_policy(members, source, &policy, &err)); /* STALE is no fault here */
}

/* A group whose members `from` may act on. */
static void policy(uint32_t source, const char *group, uint64_t generation, const char *from,
                   unsigned ops_allowed)
{
    const struct nxl_stream_rule rule = {.from = from, .ops = (uint8_t)ops_allowed};
    const struct nxl_stream_policy one = {.group = group,
                                          .generation = generation,
                                          .rules = &rule,
                                          .rule_count = from != NULL,
                                          .drain_s = 30};

    policy_of(source, &one);
}

static void snapshot(uint32_t source, const char *rv, const char *const *groups,
                     const char *const *pods)
{
    nxl_members_begin(members, source, rv);
    for (; *groups != NULL; groups++)
        policy(source, *groups, 1, NULL, 0);
    for (; *pods != NULL; pods += 3)
        (void)put(source, pods[0], pods[1], pods[2]);
    nxl_members_end(members, source);
}

#define LIST(...) ((const char *const[]){__VA_ARGS__ __VA_OPT__(, ) NULL})

static int lives(const char *uid)
{
    struct nxl_member_view view;

    return nxl_members_find(members, uid, &view) && view.life != NXL_LIFE_DEAD;
}

static void heard(const char *what)
{
    if (strcmp(said, what) != 0)
        fail_msg("heard \"%s\", not \"%s\"", said, what);
    said[0] = '\0';
}

/* ---- life --------------------------------------------------------------------------------- */

static void dead_is_said_once_and_for_ever(void **state)
{
    assert_int_equal(put(0, "u1", "a/g", "10"), NXL_OK);
    heard("");
    assert_int_equal(put_life(0, "u1", "", "", NXL_LIFE_DEAD, "deleted"), NXL_OK);
    heard("u1=dead(deleted) ");
    assert_int_equal(put_life(1, "u1", "", "", NXL_LIFE_DEAD, "again"), NXL_OK);
    assert_int_equal(put(0, "u1", "a/g", "99"), NXL_STALE); /* remove wins over add, however new */
    assert_false(lives("u1"));
    assert_int_equal(put_life(0, "u2", "", "", NXL_LIFE_DEAD, "unheard of"), NXL_OK);
    heard("u2=dead(unheard of) ");
    assert_int_equal(put(1, "u2", "a/g", "1"), NXL_STALE); /* late, out of order */
    assert_false(lives("u2"));
    heard("");
}

static void draining_never_goes_back_and_ends_at_its_deadline(void **state)
{
    policy(0, "a/g", 1, NULL, 0);
    (void)put(0, "u1", "a/g", "10");
    said[0] = '\0';
    (void)put_life(0, "u1", "a/g", "11", NXL_LIFE_DRAINING, "deleting");
    heard("u1=draining(deleting) ");
    assert_int_equal(put(0, "u1", "a/g", "12"), NXL_OK);
    heard("");
    now += 29 * NXL_SEC;
    nxl_members_tick(members);
    heard("");
    now += NXL_SEC;
    nxl_members_tick(members);
    nxl_members_tick(members);
    heard("u1=drained ");
    (void)put_life(0, "u1", "", "", NXL_LIFE_DEAD, "gone");
    heard("u1=dead(gone) ");
}

static void suspicion_comes_and_goes(void **state)
{
    struct nxl_stream_member member = {
        .id = "u1", .group = "a/g", .node = "n2", .version = "10", .suspect = 1};

    (void)put_full(0, &member);
    heard("u1? ");
    (void)put_full(0, &member);
    heard("");
    member.suspect = 0;
    member.version = "11";
    (void)put_full(0, &member);
    heard("u1! ");
}

static void a_new_container_buries_the_old_one_and_only_that(void **state)
{
    (void)put(0, "u1/c1", "a/g", "10");
    (void)put(0, "u1/c2", "a/g", "11");
    heard("u1/c1=dead(container restarted) ");
    assert_true(lives("u1"));
    assert_int_equal(put(0, "u1/c1", "a/g", "12"), NXL_STALE); /* a stale operator still says c1 */
    assert_int_equal(put_life(0, "u1/c1", "", "", NXL_LIFE_DEAD, "restarted"), NXL_OK);
    heard("");
    assert_int_equal(put_life(0, "u1/c2", "", "", NXL_LIFE_DEAD, "crashed"), NXL_OK);
    heard("u1/c2=dead(crashed) ");
    assert_true(lives("u1"));
}

static void an_older_record_changes_nothing_but_the_digest_of_its_teller(void **state)
{
    struct nxl_member_view view;
    uint64_t digest;

    (void)put(0, "u1", "a/g", "20");
    (void)put(1, "u1", "a/old", "9");
    assert_true(nxl_members_find(members, "u1", &view));
    assert_string_equal(view.group, "a/g");
    digest = nxl_members_digest(members, 1);
    assert_true(digest != 0 && digest != nxl_members_digest(members, 0));
    (void)put(1, "u1", "a/g", "20");
    assert_true(nxl_members_digest(members, 1) == nxl_members_digest(members, 0));
}

/* ---- whole tables ------------------------------------------------------------------------- */

static void what_a_table_lacks_is_dead(void **state)
{
    snapshot(0, "20", LIST("a/g"), LIST("u1", "a/g", "10", "u2", "a/g", "11"));
    said[0] = '\0';
    snapshot(0, "30", LIST("a/g"), LIST("u2", "a/g", "11"));
    assert_non_null(strstr(said, "u1=dead(gone from the operator's table) "));
    assert_false(lives("u1"));
    assert_true(lives("u2"));
}

/* A replica behind a stale API server must not kill what it has not heard of yet. */
static void what_is_newer_than_the_table_is_not_judged_by_it(void **state)
{
    snapshot(0, "20", LIST("a/g"), LIST("u1", "a/g", "10", "u9", "a/g", "19"));
    said[0] = '\0';
    snapshot(1, "15", LIST("a/g"), LIST("u1", "a/g", "10"));
    snapshot(0, "15", LIST("a/g"), LIST("u1", "a/g", "10")); /* even its own, set back */
    assert_null(strstr(said, "dead"));
    assert_true(lives("u9"));
}

static void a_group_that_concerns_us_no_more_is_forgotten_not_dead(void **state)
{
    struct nxl_member_view view;

    snapshot(0, "20", LIST("a/g", "a/h"), LIST("u1", "a/g", "10", "u2", "a/h", "11"));
    said[0] = '\0';
    snapshot(0, "30", LIST("a/h"), LIST("u2", "a/h", "11"));
    assert_null(strstr(said, "dead"));
    assert_false(nxl_members_find(members, "u1", &view));
    (void)put(0, "u1", "a/g", "10"); /* and may come back alive */
    assert_true(lives("u1"));
}

static void a_table_of_one_operator_does_not_judge_what_another_tells(void **state)
{
    snapshot(0, "20", LIST("a/g"), LIST("u1", "a/g", "10"));
    snapshot(1, "30", LIST("a/g"), LIST("u2", "a/g", "25"));
    assert_true(lives("u1") && lives("u2"));
    nxl_members_leave(members, 0);
    assert_true(lives("u1")); /* nobody says that it died */
    said[0] = '\0';
    snapshot(1, "40", LIST("a/g"), LIST("u2", "a/g", "25"));
    assert_non_null(strstr(said, "u1=dead")); /* and the one that is left does not know it */
}

/* An etcd that was restored from a backup: versions go back, the dead stay dead. */
static void versions_that_go_back_are_taken_anew_without_reviving_the_dead(void **state)
{
    struct nxl_member_view view;

    snapshot(0, "100", LIST("a/g"), LIST("u1", "a/g", "90", "u2", "a/g", "95"));
    (void)put_life(0, "u2", "", "", NXL_LIFE_DEAD, "deleted");
    nxl_members_begin(members, 0, "50");
    policy(0, "a/g", 1, NULL, 0);
    assert_int_equal(put(0, "u1", "a/other", "40"), NXL_OK);
    assert_int_equal(put(0, "u2", "a/g", "41"), NXL_STALE);
    nxl_members_end(members, 0);
    assert_true(nxl_members_find(members, "u1", &view));
    assert_string_equal(view.group, "a/other");
    assert_false(lives("u2"));
}

static void digests_are_the_same_in_any_order_and_after_a_table(void **state)
{
    uint64_t before;

    policy(0, "a/g", 1, NULL, 0);
    (void)put(0, "u1", "a/g", "10");
    (void)put(0, "u2", "a/g", "11");
    policy(1, "a/g", 1, NULL, 0);
    (void)put(1, "u2", "a/g", "11");
    (void)put(1, "u1", "a/g", "10");
    before = nxl_members_digest(members, 0);
    assert_true(before == nxl_members_digest(members, 1));
    (void)put(0, "u3", "a/g", "12");
    assert_true(before != nxl_members_digest(members, 0));
    (void)put_life(0, "u3", "", "", NXL_LIFE_DEAD, "x");
    assert_true(before == nxl_members_digest(members, 0));
    snapshot(0, "20", LIST(), LIST());
    assert_true(nxl_members_digest(members, 0) == 0);
}

static void tombstones_go_after_a_day_and_not_before(void **state)
{
    struct nxl_members_counts counts;

    (void)put_life(0, "u1", "", "", NXL_LIFE_DEAD, "x");
    (void)put_life(0, "u2/c", "", "", NXL_LIFE_DEAD, "x");
    now += 24ull * 3600 * NXL_SEC - NXL_SEC;
    nxl_members_tick(members);
    assert_int_equal(put(0, "u1", "a/g", "10"), NXL_STALE);
    nxl_members_counts(members, &counts);
    assert_int_equal(counts.tombstones, 2);
    (void)put_life(0, "u1", "", "", NXL_LIFE_DEAD, "x"); /* it is told no more */
    now += 2 * NXL_SEC;
    nxl_members_tick(members);
    nxl_members_counts(members, &counts);
    assert_int_equal(counts.tombstones, 0);
}

static void beyond_the_limit_the_living_are_refused_and_the_forgotten_dead_make_room(void **state)
{
    char uid[16];

    for (int i = 0; i < 100; i++) {
        (void)snprintf(uid, sizeof(uid), "u%d", i);
        assert_int_equal(put(0, uid, "a/g", "10"), NXL_OK);
    }
    assert_int_equal(put(0, "more", "a/g", "10"), NXL_LIMIT);
    assert_int_equal(put(0, "u5", "a/g", "11"), NXL_OK); /* known ones change */
    (void)put_life(0, "u7", "", "", NXL_LIFE_DEAD, "x");
    assert_int_equal(put(0, "more", "a/g", "10"), NXL_OK);
}

/* ---- policy ------------------------------------------------------------------------------- */

static const struct nxl_stream_rule rules[] = {
    {.from = "a/decode", .ops = NXL_STREAM_READ, .memory = 1 << NXL_MEM_VRAM},
    {.from = "a/decode", .ops = NXL_STREAM_NOTIFY},
    {.from = "a/admin", .ops = NXL_STREAM_READ | NXL_STREAM_WRITE},
};
static struct nxl_stream_policy prefill = {.group = "a/prefill",
                                           .generation = 3,
                                           .rules = rules,
                                           .rule_count = 3,
                                           .memory = 1 << NXL_MEM_VRAM | 1 << NXL_MEM_DRAM};

static void pods_put(void)
{
    const struct nxl_stream_member pods[] = {
        {.id = "p",
         .group = "a/prefill",
         .pod = "prefill-0",
         .node = "n1",
         .version = "1",
         .revision = "v1",
         .topology = "zone-a"},
        {.id = "d",
         .group = "a/decode",
         .pod = "decode-0",
         .node = "n2",
         .version = "1",
         .revision = "v1",
         .topology = "zone-b"},
        {.id = "old",
         .group = "a/decode",
         .pod = "decode-1",
         .node = "n2",
         .version = "1",
         .revision = "v0",
         .topology = "zone-a"},
        {.id = "adm", .group = "a/admin", .pod = "admin-0", .node = "n3", .version = "1"},
    };

    for (size_t i = 0; i < NXL_COUNT_OF(pods); i++)
        (void)put_full(0, &pods[i]);
}

static void table_full(const struct nxl_stream_policy *target)
{
    nxl_members_begin(members, 0, "9");
    policy_of(0, target);
    policy(0, "a/decode", 1, NULL, 0);
    policy(0, "a/admin", 1, NULL, 0);
    pods_put();
    nxl_members_end(members, 0);
}

static void only_what_a_rule_says_is_allowed(void **state)
{
    static const struct {
        const char *from, *to;
        unsigned ops, kind;
        enum nxl_code code;
        const char *says;
    } rows[] = {
        {"d", "p", NXL_STREAM_READ, NXL_MEM_VRAM, NXL_OK, NULL},
        {"d/c/s", "p/c/s", NXL_STREAM_READ, NXL_MEM_VRAM, NXL_OK, NULL},
        {"d", "p", NXL_STREAM_READ, NXL_MEM_DRAM, NXL_NOT_ALLOWED, "do Read on DRAM"},
        {"d", "p", NXL_STREAM_WRITE, NXL_MEM_VRAM, NXL_NOT_ALLOWED, "do Write on VRAM"},
        {"d", "p", NXL_STREAM_NOTIFY, NXL_MEMBERS_KIND_ANY, NXL_OK, NULL},
        {"d", "p", NXL_STREAM_READ | NXL_STREAM_NOTIFY, NXL_MEM_VRAM, NXL_OK, NULL},
        {"d", "p", NXL_STREAM_READ | NXL_STREAM_WRITE, NXL_MEM_VRAM, NXL_NOT_ALLOWED, "Write"},
        {"d", "p", 0, NXL_MEMBERS_KIND_ANY, NXL_OK, NULL},
        {"adm", "p", NXL_STREAM_WRITE, NXL_MEM_DRAM, NXL_OK, NULL},
        {"adm", "p", NXL_STREAM_WRITE, NXL_MEM_FILE, NXL_NOT_ALLOWED, "File"}, /* not exposed */
        {"adm", "p", NXL_STREAM_NOTIFY, NXL_MEMBERS_KIND_ANY, NXL_NOT_ALLOWED, "Notify"},
        {"p", "d", NXL_STREAM_READ, NXL_MEM_VRAM, NXL_NOT_ALLOWED, "a/decode has no rule"},
        {"p", "p", NXL_STREAM_WRITE, NXL_MEM_FILE, NXL_OK, NULL}, /* inside one pod */
        {"stranger", "p", NXL_STREAM_READ, NXL_MEM_VRAM, NXL_NOT_ALLOWED, "belongs to no NixlPeer"},
        {"d", "stranger", 0, NXL_MEMBERS_KIND_ANY, NXL_NOT_ALLOWED, "pod stranger"},
        {"stranger", "stranger", NXL_STREAM_READ, NXL_MEM_DRAM, NXL_OK, NULL},
        {"dd", "p", NXL_STREAM_READ, NXL_MEM_VRAM, NXL_NOT_ALLOWED, "pod dd"}, /* no prefix of it */
        {"", "p", NXL_STREAM_READ, NXL_MEM_VRAM, NXL_NOT_ALLOWED, "belongs to no"},
        {"", "", NXL_STREAM_READ, NXL_MEM_VRAM, NXL_NOT_ALLOWED, "belongs to no"},
    };

    table_full(&prefill);
    for (size_t i = 0; i < NXL_COUNT_OF(rows); i++) {
        enum nxl_code code = nxl_members_allows(members, rows[i].from, rows[i].to, rows[i].ops,
                                                rows[i].kind, NXL_PATH_NONE, &err);

        if (code != rows[i].code)
            fail_msg("row %zu: %s", i, code == NXL_OK ? "allowed" : err.text);
        if (rows[i].says != NULL && strstr(err.text, rows[i].says) == NULL)
            fail_msg("row %zu says: %s", i, err.text);
    }
}

static void before_an_operator_has_spoken_it_is_too_early_to_tell(void **state)
{
    policy_of(0, &prefill);
    pods_put();
    assert_int_equal(
        nxl_members_allows(members, "d", "p", NXL_STREAM_READ, NXL_MEM_VRAM, NXL_PATH_NONE, &err),
        NXL_AGAIN);
    nxl_members_begin(members, 0, "9");
    assert_int_equal(nxl_members_spoken(members), 0); /* half a table is none */
    nxl_members_end(members, 0);
    assert_int_equal(nxl_members_spoken(members), 1);
}

static enum nxl_code reads(const char *from, enum nxl_path_class path)
{
    return nxl_members_allows(members, from, "p", NXL_STREAM_READ, NXL_MEM_VRAM, path, &err);
}

static void strict_revisions_never_meet(void **state)
{
    struct nxl_stream_policy strict = prefill;

    table_full(&prefill);
    assert_int_equal(reads("old", NXL_PATH_NONE), NXL_OK);
    strict.revision = NXL_STREAM_PREFER;
    strict.generation++;
    policy_of(0, &strict);
    assert_int_equal(reads("old", NXL_PATH_NONE), NXL_OK);
    strict.revision = NXL_STREAM_STRICT;
    strict.generation++;
    policy_of(0, &strict);
    assert_int_equal(reads("d", NXL_PATH_NONE), NXL_OK);
    assert_int_equal(reads("old", NXL_PATH_NONE), NXL_NOT_ALLOWED);
    assert_non_null(strstr(err.text, "compatibility is Strict"));
}

static void a_required_topology_keeps_transfers_inside_it(void **state)
{
    struct nxl_stream_policy near = prefill;

    near.topology = NXL_STREAM_STRICT;
    table_full(&near);
    assert_int_equal(reads("old", NXL_PATH_NONE), NXL_OK); /* zone-a, as the target */
    assert_int_equal(reads("d", NXL_PATH_NONE), NXL_NOT_ALLOWED);
    assert_non_null(strstr(err.text, "topology is Required"));
    assert_false(nxl_members_near(members, "d", "p"));
}

static void a_path_that_is_not_listed_is_refused(void **state)
{
    struct nxl_stream_policy fast = prefill;

    fast.paths = NXL_STREAM_PATH_RDMA | NXL_STREAM_PATH_SHARED;
    table_full(&fast);
    assert_int_equal(reads("d", NXL_PATH_RDMA), NXL_OK);
    assert_int_equal(reads("d", NXL_PATH_ONE_COPY), NXL_OK);
    assert_int_equal(reads("d", NXL_PATH_TCP), NXL_PATH_REFUSED);
    assert_int_equal(reads("d", NXL_PATH_STAGED), NXL_PATH_REFUSED);
    assert_non_null(strstr(err.text, "allowedPaths of NixlPeer a/prefill does not have Staged"));
    assert_int_equal(reads("d", NXL_PATH_NONE), NXL_OK); /* not chosen yet */
}

static void observe_reports_and_refuses_nothing(void **state)
{
    struct nxl_stream_policy watch = prefill;
    struct nxl_members_counts counts;

    watch.mode = NXL_STREAM_OBSERVE;
    table_full(&watch);
    assert_int_equal(
        nxl_members_allows(members, "d", "p", NXL_STREAM_WRITE, NXL_MEM_DRAM, NXL_PATH_NONE, &err),
        NXL_OK);
    nxl_members_counts(members, &counts);
    assert_int_equal(counts.observed, 1);
    assert_int_equal(counts.refused, 0);
    (void)nxl_members_node_kinds(members, "n2", "p"); /* nobody asked to do anything */
    nxl_members_counts(members, &counts);
    assert_int_equal(counts.observed, 1);
}

static void draining_refuses_the_new_and_lets_the_running_finish(void **state)
{
    table_full(&prefill);
    (void)put_life(0, "p", "a/prefill", "2", NXL_LIFE_DRAINING, "deleting");
    assert_int_equal(reads("d", NXL_PATH_NONE), NXL_NOT_ALLOWED);
    assert_non_null(strstr(err.text, "draining"));
    assert_int_equal(nxl_members_may_finish(members, "d", "p", NXL_STREAM_READ, NXL_MEM_VRAM, &err),
                     NXL_OK);
    assert_int_equal(
        nxl_members_may_finish(members, "d", "p", NXL_STREAM_WRITE, NXL_MEM_VRAM, &err),
        NXL_NOT_ALLOWED);
    (void)put_life(0, "p", "", "", NXL_LIFE_DEAD, "gone");
    assert_int_equal(reads("d", NXL_PATH_NONE), NXL_STALE);
}

static void a_group_that_is_gone_allows_nothing_at_once(void **state)
{
    struct nxl_stream_policy gone = {.group = "a/prefill", .gone = 1};

    table_full(&prefill);
    policy_of(1, &prefill); /* another operator has it still */
    said[0] = '\0';
    policy_of(0, &gone);
    heard("policy:a/prefill ");
    assert_int_equal(reads("d", NXL_PATH_NONE), NXL_NOT_ALLOWED);
    assert_non_null(strstr(err.text, "a/prefill is gone"));
    policy_of(1, &prefill); /* made again */
    assert_int_equal(reads("d", NXL_PATH_NONE), NXL_OK);
}

static void of_two_operators_the_newer_generation_counts(void **state)
{
    table_full(&prefill);
    policy(1, "a/prefill", 9, NULL, 0);
    assert_int_equal(reads("d", NXL_PATH_NONE), NXL_NOT_ALLOWED);
    policy_of(0, &prefill); /* generation 3, told late */
    assert_int_equal(reads("d", NXL_PATH_NONE), NXL_NOT_ALLOWED);
}

static void a_node_may_know_the_kinds_that_its_members_may_touch(void **state)
{
    table_full(&prefill);
    assert_int_equal(nxl_members_node_kinds(members, "n2", "p"), 1 << NXL_MEM_VRAM);
    assert_int_equal(nxl_members_node_kinds(members, "n3", "p"),
                     1 << NXL_MEM_VRAM | 1 << NXL_MEM_DRAM);
    assert_int_equal(nxl_members_node_kinds(members, "n9", "p"), 0);
    (void)put_life(0, "adm", "", "", NXL_LIFE_DEAD, "x");
    assert_int_equal(nxl_members_node_kinds(members, "n3", "p"), 0);
}

static void a_change_of_group_or_revision_is_told_of_both_groups(void **state)
{
    struct nxl_stream_member moved = {.id = "d",
                                      .group = "a/admin",
                                      .pod = "decode-0",
                                      .node = "n2",
                                      .version = "2",
                                      .revision = "v1",
                                      .topology = "zone-b"};

    table_full(&prefill);
    said[0] = '\0';
    (void)put_full(0, &moved);
    heard("policy:a/decode policy:a/admin ");
    moved.version = "3";
    (void)put_full(0, &moved); /* only newer: nothing to review */
    heard("");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(dead_is_said_once_and_for_ever),
        TEST(draining_never_goes_back_and_ends_at_its_deadline),
        TEST(suspicion_comes_and_goes),
        TEST(a_new_container_buries_the_old_one_and_only_that),
        TEST(an_older_record_changes_nothing_but_the_digest_of_its_teller),
        TEST(what_a_table_lacks_is_dead),
        TEST(what_is_newer_than_the_table_is_not_judged_by_it),
        TEST(a_group_that_concerns_us_no_more_is_forgotten_not_dead),
        TEST(a_table_of_one_operator_does_not_judge_what_another_tells),
        TEST(versions_that_go_back_are_taken_anew_without_reviving_the_dead),
        TEST(digests_are_the_same_in_any_order_and_after_a_table),
        TEST(tombstones_go_after_a_day_and_not_before),
        TEST(beyond_the_limit_the_living_are_refused_and_the_forgotten_dead_make_room),
        TEST(only_what_a_rule_says_is_allowed),
        TEST(before_an_operator_has_spoken_it_is_too_early_to_tell),
        TEST(strict_revisions_never_meet),
        TEST(a_required_topology_keeps_transfers_inside_it),
        TEST(a_path_that_is_not_listed_is_refused),
        TEST(observe_reports_and_refuses_nothing),
        TEST(draining_refuses_the_new_and_lets_the_running_finish),
        TEST(a_group_that_is_gone_allows_nothing_at_once),
        TEST(of_two_operators_the_newer_generation_counts),
        TEST(a_node_may_know_the_kinds_that_its_members_may_touch),
        TEST(a_change_of_group_or_revision_is_told_of_both_groups),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
