/* test_metadata.c - how peers learn of each other: blobs, full and partial, by address, by name, by
 * label; what is damaged, old or foreign changes nothing; what is added or removed later is seen.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/near.h"

#define MIB (1u << 20)
#define FACT_NS 20000000000u

struct rig {
    struct cluster cluster;
    struct near a, b; /* at agent 0; at agent b_agent */
    int b_agent;
};

static struct rig *rig_make(void **state, int b_agent, int no_store, const char *backends,
                            const char *flag)
{
    struct rig *r = *state = calloc(1, sizeof(struct rig));

    r->b_agent = b_agent;
    r->cluster.secure = 1;
    r->cluster.backends = backends;
    r->cluster.extra[0] = flag;
    near_fix_address(&r->cluster, 0);
    near_fix_address(&r->cluster, 1);
    cluster_start(&r->cluster, 2, no_store);
    near_open(&r->cluster, 0, "a", 4 * MIB, &r->a);
    near_open(&r->cluster, b_agent, "b", 4 * MIB, &r->b);
    memset(r->b.memory, 'b', 4 * MIB);
    return r;
}

static int open_store(void **state)
{
    rig_make(state, 1, 0, NULL, NULL);
    return 0;
}

static int open_storeless(void **state)
{
    rig_make(state, 1, 1, NULL, NULL);
    return 0;
}

static int open_one_agent(void **state)
{
    rig_make(state, 0, 1, NULL, NULL);
    return 0;
}

static int open_slow(void **state)
{
    rig_make(state, 1, 1, "fault:shm,fault:ucx", "--backends.fault.delay=1500ms");
    return 0;
}

static int rig_down(void **state)
{
    struct rig *r = *state;

    near_close(&r->a);
    near_close(&r->b);
    cluster_stop(&r->cluster);
    free(r);
    return 0;
}

static uint64_t at(const void *pointer)
{
    return (uint64_t)(uintptr_t)pointer;
}

static void expect_read(struct rig *r, struct nxl_remote *remote, const void *there)
{
    memset(r->a.memory, 0, 4096);
    if (!near_moves(&r->a, NXL_READ, remote, at(there), 4096, FACT_NS))
        fail_msg("no read");
    assert_memory_equal(r->a.memory, there, 4096);
}

static void expect_not_found(struct rig *r, struct nxl_remote *remote, const void *there)
{
    struct nxl_err err = {0};
    enum nxl_code code = near_move(&r->a, NXL_READ, remote, 0, at(there), 4096, &err);
    char address[32];

    if (code != NXL_NOT_FOUND)
        fail_msg("%s: %s", nxl_code_name(code), err.text);
    snprintf(address, sizeof(address), "%llx", (unsigned long long)at(there));
    if (strstr(err.text, address) == NULL)
        fail_msg("'%s' does not name %s", err.text, address);
}

static void *blob_of(struct near *near, uint32_t flags, struct nxl_memreg *const *regs,
                     uint32_t count, size_t *ret_size)
{
    struct nxl_err err = {0};
    void *blob = NULL;

    if (nxl_metadata(near->peer, flags, regs, count, &blob, ret_size, &err) != NXL_OK)
        fail_msg("metadata: %s", err.text);
    return blob;
}

static struct nxl_remote *load(struct near *near, const void *blob, size_t size)
{
    struct nxl_remote *remote = NULL;
    struct nxl_err err = {0};

    if (nxl_load(near->peer, blob, size, &remote, &err) != NXL_OK)
        fail_msg("load: %s", err.text);
    return remote;
}

/* More regions of b. */
static void regions_add(struct near *near, unsigned char *memory, uint64_t len, uint32_t count,
                        struct nxl_memreg **ret)
{
    struct nxl_region *regions = calloc(count, sizeof(*regions));
    struct nxl_err err = {0};

    for (uint32_t i = 0; i < count; i++)
        regions[i] = (struct nxl_region){.addr = memory + i * len, .len = len};
    if (nxl_register(near->peer, regions, count, ret, &err) != NXL_OK)
        fail_msg("register: %s", err.text);
    free(regions);
}

static unsigned char *memory_new(uint64_t size, int fill)
{
    struct nxl_err err = {0};
    void *memory = NULL;

    assert_int_equal(nxl_alloc(size, 0, &memory, &err), NXL_OK);
    memset(memory, fill, size);
    return memory;
}

/* ---- blobs ------------------------------------------------------------------------------------
 */

static void a_blob_alone_is_enough_without_a_store(void **state)
{
    struct rig *r = *state;
    struct nxl_remote *remote = near_load(&r->a, &r->b), *again;

    expect_read(r, remote, r->b.memory + MIB);
    again = near_load(&r->a, &r->b);
    assert_ptr_equal(again, remote); /* the same life: the same handle */
    assert_int_equal(nxl_remote_find(r->a.peer, "b", &again, NULL), NXL_OK);
    assert_ptr_equal(again, remote);
}

static void a_damaged_blob_is_refused_whole_and_changes_nothing(void **state)
{
    struct rig *r = *state; /* C-029 */
    struct nxl_remote *good = near_load(&r->a, &r->b), *none = NULL;
    struct nxl_err err = {0};
    size_t size;
    unsigned char *blob = blob_of(&r->b, 0, NULL, 0, &size), *longer = malloc(size + 1);

    expect_read(r, good, r->b.memory);
    for (size_t cut = 0; cut < size; cut++)
        assert_int_equal(nxl_load(r->a.peer, blob, cut, &none, &err), NXL_MISMATCH);
    for (size_t i = 0; i < size; i++) {
        blob[i] ^= (unsigned char)(1u << (i % 8));
        err.text[0] = '\0';
        assert_int_equal(nxl_load(r->a.peer, blob, size, &none, &err), NXL_MISMATCH);
        assert_true(strlen(err.text) > 20); /* a sentence */
        blob[i] ^= (unsigned char)(1u << (i % 8));
    }
    memcpy(longer, blob, size);
    longer[size] = 0;
    assert_int_equal(nxl_load(r->a.peer, longer, size + 1, &none, &err), NXL_MISMATCH);
    assert_null(none);
    expect_read(r, good, r->b.memory + MIB);
    assert_ptr_equal(load(&r->a, blob, size), good);
    free(longer);
    free(blob);
}

static void a_blob_of_an_older_life_is_refused_and_the_new_one_stays(void **state)
{
    struct rig *r = *state;
    struct near witness;
    struct nxl_remote *old = near_load(&r->a, &r->b), *fresh, *none = NULL;
    struct nxl_err err = {0};
    size_t size;
    void *blob = blob_of(&r->b, 0, NULL, 0, &size);
    enum nxl_code code;

    expect_read(r, old, r->b.memory);
    assert_int_equal(nxl_peer_close(r->b.peer, &err), NXL_OK); /* and again under the same name */
    assert_int_equal(nxl_peer_open(r->b.client, "b", &r->b.peer, &err), NXL_OK);
    regions_add(&r->b, r->b.memory, r->b.size, 1, &r->b.reg);
    fresh = near_load(&r->a, &r->b);
    assert_string_not_equal(nxl_remote_incarnation(fresh), nxl_remote_incarnation(old));
    code = nxl_load(r->a.peer, blob, size, &none, &err);
    if (code != NXL_STALE)
        fail_msg("an older life, known before: %s %s", nxl_code_name(code), err.text);
    /* One that never knew the older life asks its agent. */
    near_open(&r->cluster, 0, "witness", 0, &witness);
    code = nxl_load(witness.peer, blob, size, &none, &err);
    if (code != NXL_STALE && code != NXL_NOT_FOUND)
        fail_msg("an older life, never known: %s %s", nxl_code_name(code), err.text);
    near_close(&witness);
    assert_int_equal(near_move(&r->a, NXL_READ, old, 0, at(r->b.memory), 4096, &err), NXL_STALE);
    expect_read(r, fresh, r->b.memory);
    free(blob);
}

static void a_blob_of_another_cluster_is_refused(void **state)
{
    struct rig *r = *state;
    struct nxl_remote *good, *none = NULL;
    struct near foreign;
    struct nxl_err err = {0};
    size_t size;
    void *blob;
    enum nxl_code code;

    good = near_load(&r->a, &r->b);
    near_fix_address(&r->cluster, 2);
    r->cluster.extra[0] = "--agent.cluster=other";
    r->cluster.extra[1] = "--link.insecure=true";
    r->cluster.secure = 0;
    cluster_agent_start(&r->cluster, 2);
    near_open(&r->cluster, 2, "b", MIB, &foreign);
    blob = blob_of(&foreign, 0, NULL, 0, &size);
    code = nxl_load(r->a.peer, blob, size, &none, &err);
    assert_int_equal(code, NXL_MISMATCH);
    assert_non_null(strstr(err.text, "other"));
    assert_non_null(strstr(err.text, "test"));
    code =
        nxl_fetch_metadata(r->a.peer, "b", NULL, r->cluster.agents[2].address, 1500, &none, &err);
    if (code == NXL_OK)
        fail_msg("another cluster's agent was taken as one of ours");
    expect_read(r, good, r->b.memory);
    near_close(&foreign);
    free(blob);
}

static void a_blob_stays_small_with_ten_thousand_regions(void **state)
{
    enum { COUNT = 10000 };
    struct rig *r = *state;
    static struct nxl_memreg *regs[COUNT];
    unsigned char *memory = memory_new((uint64_t)COUNT * 4096, 'm');
    size_t before, after;
    struct nxl_remote *remote;

    free(blob_of(&r->b, 0, NULL, 0, &before));
    regions_add(&r->b, memory, 4096, COUNT, regs);
    free(blob_of(&r->b, 0, NULL, 0, &after));
    assert_true(before < 1024);
    assert_true(after <= before + 16);
    remote = near_load(&r->a, &r->b);
    assert_int_equal(near_state(&r->a, remote).regions, COUNT + 1);
    expect_read(r, remote, memory + (uint64_t)(COUNT - 1) * 4096);
    near_close(&r->b);
    nxl_free(memory);
}

/* ---- partial ----------------------------------------------------------------------------------
 */

static void regions_that_were_not_sent_are_not_found_until_the_next_partial_load(void **state)
{
    struct rig *r = *state; /* what NIXL's partial_md example does */
    unsigned char *memory = memory_new(3 * MIB, 'p');
    struct nxl_memreg *regs[3];
    struct nxl_remote *remote;
    struct nxl_err err = {0};
    size_t first_size, second_size, address_size;
    void *first, *second, *address;

    regions_add(&r->b, memory, MIB, 3, regs);
    address = blob_of(&r->b, NXL_MD_ADDRESS, NULL, 0, &address_size);
    first = blob_of(&r->b, NXL_MD_ADDRESS | NXL_MD_REGIONS, &regs[0], 1, &first_size);
    second = blob_of(&r->b, NXL_MD_REGIONS, &regs[1], 1, &second_size);
    /* Regions without where they are: refused, unless the agent knows that life by itself. */
    if (r->b_agent == 1)
        assert_int_equal(nxl_load(r->a.peer, second, second_size, &remote, &err), NXL_NOT_FOUND);
    remote = load(&r->a, address, address_size);
    expect_not_found(r, remote, memory);
    assert_ptr_equal(load(&r->a, first, first_size), remote);
    expect_read(r, remote, memory);
    expect_not_found(r, remote, memory + MIB);
    expect_not_found(r, remote, r->b.memory);
    assert_ptr_equal(load(&r->a, second, second_size), remote);
    expect_read(r, remote, memory + MIB);
    expect_read(r, remote, memory); /* additive */
    expect_not_found(r, remote, memory + 2 * MIB);
    assert_ptr_equal(near_load(&r->a, &r->b), remote); /* the full blob lifts it */
    expect_read(r, remote, memory + 2 * MIB);
    free(first);
    free(second);
    free(address);
    near_close(&r->b);
    nxl_free(memory);
}

static void labels_in_the_store_name_parts_of_a_peer(void **state)
{
    struct rig *r = *state;
    unsigned char *memory = memory_new(2 * MIB, 'l');
    struct nxl_memreg *regs[2];
    struct nxl_remote *remote = NULL, *same = NULL, *none = NULL;
    struct nxl_err err = {0};

    regions_add(&r->b, memory, MIB, 2, regs);
    assert_int_equal(nxl_send_metadata(r->b.peer, "even", NULL, &regs[0], 1,
                                       NXL_MD_ADDRESS | NXL_MD_REGIONS, &err),
                     NXL_OK);
    assert_int_equal(nxl_send_metadata(r->b.peer, "odd", NULL, &regs[1], 1,
                                       NXL_MD_ADDRESS | NXL_MD_REGIONS, &err),
                     NXL_OK);
    assert_int_equal(nxl_fetch_metadata(r->a.peer, "b", "even", NULL, 10000, &remote, &err),
                     NXL_OK);
    expect_read(r, remote, memory);
    expect_not_found(r, remote, memory + MIB);
    assert_int_equal(nxl_fetch_metadata(r->a.peer, "b", "odd", NULL, 10000, &same, &err), NXL_OK);
    assert_ptr_equal(same, remote);
    expect_read(r, remote, memory + MIB);
    assert_int_equal(nxl_fetch_metadata(r->a.peer, "b", "never", NULL, 300, &none, &err),
                     NXL_NOT_FOUND);
    assert_int_equal(nxl_fetch_metadata(r->a.peer, "b", NULL, NULL, 300, &none, &err),
                     NXL_NOT_FOUND); /* no full record there */
    near_close(&r->b);
    nxl_free(memory);
}

/* ---- on a running connection ------------------------------------------------------------------
 */

static void regions_come_and_go_on_a_running_connection(void **state)
{
    struct rig *r = *state; /* C-016; every transfer takes 1.5 s here, C-014 */
    unsigned char *memory = memory_new(MIB, 'n');
    struct nxl_remote *remote = near_load(&r->a, &r->b);
    struct nxl_transfer *running = near_create(&r->a, NXL_READ, remote, MIB, at(r->b.memory), MIB),
                        *on_new;
    struct nxl_memreg *reg;
    struct nxl_err err = {0};

    assert_int_equal(nxl_transfer_post(running, &err), NXL_OK);
    regions_add(&r->b, memory, MIB, 1, &reg);
    expect_read(r, remote, memory); /* the same handle, no new metadata */
    on_new = near_create(&r->a, NXL_READ, remote, 2 * MIB, at(memory), MIB);
    assert_int_equal(nxl_transfer_post(on_new, &err), NXL_OK);
    (void)near_state(&r->a,
                     remote); /* a call comes after the posts before it: the agent has it now */
    assert_int_equal(nxl_transfer_poll(on_new), NXL_IN_PROG);
    if (nxl_deregister(r->b.peer, &reg, 1, &err) != NXL_OK)
        fail_msg("deregister under a far reader: %s", err.text);
    /* The far reader was waited for; only new posts to that region fail. */
    assert_int_equal(nxl_transfer_wait(on_new, FACT_NS, &err), NXL_OK);
    assert_int_equal(r->a.memory[2 * MIB], 'n');
    expect_not_found(r, remote, memory);
    assert_int_equal(near_run(on_new), NXL_NOT_FOUND); /* a kept plan is not used again */
    assert_int_equal(nxl_transfer_wait(running, FACT_NS, &err), NXL_OK);
    assert_int_equal(r->a.memory[MIB], 'b');
    expect_read(r, remote, r->b.memory);
    near_release(running);
    near_release(on_new);
    nxl_free(memory);
}

static void invalidate_ends_running_transfers_and_a_new_load_works(void **state)
{
    struct rig *r = *state;
    struct nxl_remote *remote = near_load(&r->a, &r->b), *none = NULL;
    struct nxl_transfer *running = near_create(&r->a, NXL_WRITE, remote, 0, at(r->b.memory), MIB);
    struct nxl_err err = {0};

    assert_int_equal(nxl_transfer_post(running, &err), NXL_OK);
    assert_int_equal(nxl_transfer_poll(running), NXL_IN_PROG);
    assert_int_equal(nxl_invalidate(r->a.peer, remote, &err), NXL_OK);
    assert_int_equal(nxl_transfer_wait(running, FACT_NS, &err), NXL_REMOTE_DISCONNECT);
    assert_int_equal(nxl_transfer_wait_quiesced(running, FACT_NS, &err), NXL_OK);
    assert_int_equal(nxl_transfer_post(running, &err), NXL_STALE);
    near_release(running);
    assert_int_equal(nxl_remote_find(r->a.peer, "b", &none, &err), NXL_NOT_FOUND);
    assert_int_equal(near_count(&r->a, NXL_EVENT_PEER_DOWN, 100000000u), 0); /* nobody died */
    remote = near_load(&r->a, &r->b);
    expect_read(r, remote, r->b.memory + 2 * MIB);
}

/* ---- by name and by address -------------------------------------------------------------------
 */

static void a_peer_is_fetched_by_the_address_of_its_agent(void **state)
{
    struct rig *r = *state;
    struct nxl_remote *remote = NULL, *none = NULL;
    struct nxl_err err = {0};
    uint64_t start;

    assert_int_equal(nxl_fetch_metadata(r->a.peer, "nobody", NULL, r->cluster.agents[1].address,
                                        300, &none, &err),
                     NXL_NOT_FOUND);
    if (nxl_fetch_metadata(r->a.peer, "b", NULL, r->cluster.agents[1].address, 10000, &remote,
                           &err) != NXL_OK)
        fail_msg("%s", err.text);
    expect_read(r, remote, r->b.memory);
    start = cluster_now();
    near_fix_address(&r->cluster, 3); /* nobody listens there */
    assert_int_equal(
        nxl_fetch_metadata(r->a.peer, "b", NULL, r->cluster.agents[3].address, 500, &none, &err),
        NXL_UNREACHABLE);
    assert_non_null(strstr(err.text, r->cluster.agents[3].address));
    assert_true(cluster_now() - start < 5000000000u);
    assert_int_equal(nxl_fetch_metadata(r->a.peer, "b", NULL, "no address", 500, &none, &err),
                     NXL_INVALID_PARAM);
}

static void what_was_sent_to_an_agent_is_found_there_by_name_until_it_is_withdrawn(void **state)
{
    struct rig *r = *state;
    const char *address = r->cluster.agents[0].address;
    struct nxl_remote *remote = NULL;
    struct near late;
    struct nxl_err err = {0};
    enum nxl_code code;

    assert_int_equal(nxl_send_metadata(r->b.peer, NULL, address, NULL, 0, 0, &err), NXL_OK);
    if (nxl_fetch_metadata(r->a.peer, "b", NULL, NULL, 10000, &remote, &err) != NXL_OK)
        fail_msg("%s", err.text);
    expect_read(r, remote, r->b.memory);
    assert_int_equal(nxl_withdraw_metadata(r->b.peer, address, &err), NXL_OK);
    near_open(&r->cluster, 0, "late", 0, &late);
    for (uint64_t end = cluster_now() + FACT_NS;;) { /* the withdrawal is under way */
        struct nxl_remote *none = NULL;

        code = nxl_fetch_metadata(late.peer, "b", NULL, NULL, 50, &none, &err);
        if (code != NXL_OK || cluster_now() >= end)
            break;
        assert_int_equal(nxl_invalidate(late.peer, none, &err), NXL_OK);
    }
    assert_int_equal(code, NXL_NOT_FOUND);
    expect_read(r, remote, r->b.memory); /* who knows it goes on */
    near_close(&late);
}

static void a_withdrawn_record_is_not_found_any_more_and_those_who_know_the_peer_go_on(void **state)
{
    struct rig *r = *state;
    struct nxl_remote *remote;
    struct near late;
    struct nxl_err err = {0};
    enum nxl_code code;

    assert_int_equal(nxl_send_metadata(r->b.peer, NULL, NULL, NULL, 0, 0, &err), NXL_OK);
    remote = near_fetch(&r->a, "b");
    assert_int_equal(nxl_withdraw_metadata(r->b.peer, NULL, &err), NXL_OK);
    near_open(&r->cluster, 0, "late", 0, &late);
    for (uint64_t end = cluster_now() + FACT_NS;;) {
        struct nxl_remote *none = NULL;

        code = nxl_fetch_metadata(late.peer, "b", NULL, NULL, 300, &none, &err);
        if (code != NXL_OK || cluster_now() >= end)
            break;
        assert_int_equal(nxl_invalidate(late.peer, none, &err), NXL_OK);
    }
    assert_int_equal(code, NXL_NOT_FOUND);
    assert_int_equal(near_count(&r->a, NXL_EVENT_PEER_DOWN, 300000000u), 0);
    expect_read(r, remote, r->b.memory);
    assert_int_equal(nxl_send_metadata(r->b.peer, NULL, NULL, NULL, 0, 0, &err),
                     NXL_OK); /* and back */
    assert_int_equal(nxl_fetch_metadata(late.peer, "b", NULL, NULL, 10000, &remote, &err), NXL_OK);
    near_close(&late);
}

struct waiter {
    pthread_t thread;
    struct near near;
    struct nxl_remote *remote;
    struct nxl_err err;
    enum nxl_code code;
};

static void *waiter_main(void *arg)
{
    struct waiter *w = arg;

    w->code = nxl_fetch_metadata(w->near.peer, "late", NULL, NULL, 30000, &w->remote, &w->err);
    return NULL;
}

static int all_wait(void *arg)
{
    struct rig *r = arg;

    return cluster_metric(&r->cluster, 0, "nixlet_store_lookups") == 2 &&
           cluster_metric(&r->cluster, 1, "nixlet_store_lookups") == 1;
}

static void waiters_for_a_late_publisher_all_wake_and_block_nobody(void **state)
{
    struct rig *r = *state; /* C-035 */
    struct waiter w[3] = {0};
    struct nxl_remote *none = NULL, *b;
    struct near late;
    struct nxl_err err = {0};
    uint64_t start;

    assert_int_equal(nxl_send_metadata(r->b.peer, NULL, NULL, NULL, 0, 0, &err), NXL_OK);
    for (int i = 0; i < 3; i++) {
        near_open(&r->cluster, i / 2, i == 0 ? "w0" : i == 1 ? "w1" : "w2", 0, &w[i].near);
        assert_int_equal(pthread_create(&w[i].thread, NULL, waiter_main, &w[i]), 0);
    }
    assert_true(cluster_until(all_wait, r, FACT_NS));
    start = cluster_now(); /* others, and the waiters' own clients, get their answers meanwhile */
    b = near_fetch(&w[0].near, "b");
    assert_non_null(b);
    assert_int_equal(nxl_fetch_metadata(r->a.peer, "nobody", NULL, NULL, 200, &none, &err),
                     NXL_NOT_FOUND);
    assert_true(cluster_now() - start >= 200000000u &&
                cluster_now() - start < 10000000000u); /* its own deadline */
    near_open(&r->cluster, 1, "late", MIB, &late);
    assert_int_equal(nxl_send_metadata(late.peer, NULL, NULL, NULL, 0, 0, &err), NXL_OK);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pthread_join(w[i].thread, NULL), 0);
        if (w[i].code != NXL_OK)
            fail_msg("waiter %d: %s: %s", i, nxl_code_name(w[i].code), w[i].err.text);
        assert_string_equal(nxl_remote_incarnation(w[i].remote), nxl_peer_incarnation(late.peer));
        near_close(&w[i].near);
    }
    near_close(&late);
}

#define TEST(name, open) cmocka_unit_test_setup_teardown(name, open, rig_down)

int main(void)
{
    static const struct CMUnitTest one[] = {
        TEST(a_blob_alone_is_enough_without_a_store, open_one_agent),
        TEST(a_damaged_blob_is_refused_whole_and_changes_nothing, open_one_agent),
        TEST(a_blob_of_an_older_life_is_refused_and_the_new_one_stays, open_one_agent),
        TEST(a_blob_stays_small_with_ten_thousand_regions, open_one_agent),
        TEST(regions_that_were_not_sent_are_not_found_until_the_next_partial_load, open_one_agent),
    };
    static const struct CMUnitTest two[] = {
        TEST(a_blob_alone_is_enough_without_a_store, open_storeless),
        TEST(a_damaged_blob_is_refused_whole_and_changes_nothing, open_storeless),
        TEST(a_blob_of_an_older_life_is_refused_and_the_new_one_stays, open_storeless),
        TEST(a_blob_of_another_cluster_is_refused, open_store),
        TEST(a_blob_stays_small_with_ten_thousand_regions, open_storeless),
        TEST(regions_that_were_not_sent_are_not_found_until_the_next_partial_load, open_storeless),
        TEST(labels_in_the_store_name_parts_of_a_peer, open_store),
        TEST(regions_come_and_go_on_a_running_connection, open_slow),
        TEST(invalidate_ends_running_transfers_and_a_new_load_works, open_slow),
        TEST(a_peer_is_fetched_by_the_address_of_its_agent, open_storeless),
        TEST(what_was_sent_to_an_agent_is_found_there_by_name_until_it_is_withdrawn,
             open_storeless),
        TEST(a_withdrawn_record_is_not_found_any_more_and_those_who_know_the_peer_go_on,
             open_store),
        TEST(waiters_for_a_late_publisher_all_wake_and_block_nobody, open_store),
    };

    return cmocka_run_group_tests_name("at one agent", one, NULL, NULL) +
           cmocka_run_group_tests_name("at two agents over TLS", two, NULL, NULL);
}
