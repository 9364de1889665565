/* What a client can grow has a limit of its own, and the refusal names the setting. */
#include "rig.h"

#include "cluster/record.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct
try {
    struct bed *bed;
    struct nxl_err err;
};
/* Grows by one; the first `fits` go well, the next is refused. */
typedef enum nxl_code grow_fn(struct try *try, uint32_t k);

static const struct nxl_xfer_front deaf; /* a session that is never told anything */

static struct nxl_xfer_session *sessions[8];
static uint32_t session_count;

static enum nxl_code grow_sessions(struct try *try, uint32_t k)
{
    struct nxl_xfer_owner owner = {.ns = "ns", .pod = "", .container = ""};
    uint32_t number;
    enum nxl_code code = nxl_xfer_session_open(try->bed->engine->xfer, &owner, &deaf, NULL, &number,
                                               &sessions[session_count], &try->err);

    session_count += code == NXL_OK;
    return code;
}

static void session_drop(void)
{
    nxl_xfer_session_close(sessions[--session_count], "test", nxl_now_ns());
}

static enum nxl_code grow_peers(struct try *try, uint32_t k)
{
    char name[16], incarnation[NXL_INCARNATION_MAX + 1];
    uint32_t peer;

    (void)snprintf(name, sizeof(name), "more-%u", k);
    return nxl_xfer_peer_open(try->bed->from.session, name, &peer, incarnation, sizeof(incarnation),
                              &try->err);
}

static enum nxl_code grow_regions(struct try *try, uint32_t k)
{
    uint64_t id;

    return client_register(&try->bed->from, k * 4096, 4096, &id, &try->err);
}

static enum nxl_code grow_files(struct try *try, uint32_t k)
{
    struct nxl_xfer_region region = {.addr = 4096 + k * 8192, .len = 4096};
    int fd = memfd_create("more", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    uint64_t id;
    enum nxl_code code;

    assert_int_equal(ftruncate(fd, 4096), 0);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    code = nxl_xfer_register(try->bed->from.session, try->bed->from.peer, &region, 1, &fd, 1, &id,
                             &try->err);
    close(fd);
    return code;
}

static enum nxl_code grow_lists(struct try *try, uint32_t k)
{
    struct nxl_run run = {.addr = CLIENT_ADDR, .len = 64, .count = 1};
    uint32_t list;
    uint64_t size;

    return nxl_xfer_list(try->bed->from.session, try->bed->from.peer, 0, NXL_MEM_DRAM, 0, &run, 1,
                         0, &list, &size, &try->err);
}

static enum nxl_code grow_remotes(struct try *try, uint32_t k)
{
    struct client other;
    struct nxl_bytes blob = {0};
    struct reply reply;
    char name[16];

    (void)snprintf(name, sizeof(name), "other-%u", k);
    client_open_bare(&other, &try->bed->rig, try->bed->engine, "ns", name);
    client_blob(&other, 0, NULL, 0, &blob);
    client_load_blob(&try->bed->from, (struct nxl_view){blob.data, blob.size}, &reply);
    nxl_bytes_fini(&blob);
    client_close(&other); /* the handle on it stays until it is invalidated */
    (void)nxl_copy_text(try->err.text, sizeof(try->err.text), reply.text);
    return reply.code;
}

static enum nxl_code post(struct try *try, uint32_t k, uint64_t len, uint32_t count)
{
    struct bed *bed = try->bed;
    uint32_t generation;

    (void)client_prepare(&bed->from, k, NXL_WRITE, bed->remote, 0, 0, len);
    bed->from.local.count = bed->from.remote.count = count;
    bed->from.local.stride = bed->from.remote.stride = len;
    generation = client_post(&bed->from);
    if (client_end(&bed->from, generation) == NULL)
        return NXL_OK; /* it runs */
    assert_int_equal(nxl_xfer_explain(bed->from.session, k, &try->err), NXL_OK);
    return (enum nxl_code)client_end(&bed->from, generation)->last.code;
}

static enum nxl_code grow_transfers(struct try *try, uint32_t k)
{
    return post(try, k, 64, 1);
}

static enum nxl_code grow_transfer_bytes(struct try *try, uint32_t k)
{
    return post(try, k, 4096, 1);
}

static enum nxl_code grow_descriptors(struct try *try, uint32_t k)
{
    return post(try, k, 64, k + 1);
}

/* Room for `fits` beside what the bed itself has: two sessions with a peer, a file of 1 MiB, a
 * region and a remote each. */
static const struct {
    const char *setting, *value;
    grow_fn *grow;
    uint32_t fits;
} rows[] = {
    {"limits.sessions", "5", grow_sessions, 3},
    {"limits.peers", "4", grow_peers, 3},
    {"limits.regions", "4", grow_regions, 3},
    {"limits.files", "4", grow_files, 3},
    {"limits.files_total", "5", grow_files, 3},
    {"limits.registered", "1060864", grow_regions, 3}, /* 1 MiB and three pages */
    {"limits.lists", "3", grow_lists, 3},
    {"limits.list_runs", "3", grow_lists, 3},
    {"limits.remotes", "4", grow_remotes, 3},
    {"limits.transfers", "3", grow_transfers, 3},
    {"limits.transfer_bytes", "12Ki", grow_transfer_bytes, 3},
    {"limits.descriptors", "3", grow_descriptors, 3},
};

static void every_limit_is_refused_by_its_name_and_hurts_nobody_else(void **state)
{
    for (size_t i = 0; i < NXL_COUNT_OF(rows); i++) {
        struct try try = {.bed = bed_new("hand", rows[i].setting, rows[i].value, NULL)};
        uint32_t at = 0;

        for (; at < rows[i].fits; at++)
            if (rows[i].grow(&try, at) != NXL_OK)
                fail_msg("%s: %u of %u fit: %s", rows[i].setting, at, rows[i].fits, try.err.text);
        if (rows[i].grow(&try, at) != NXL_LIMIT)
            fail_msg("%s: one too many is not refused", rows[i].setting);
        if (strstr(try.err.text, rows[i].setting) == NULL)
            fail_msg("%s is not named: %s", rows[i].setting, try.err.text);
        if (session_count > 0) { /* room for one again */
            session_drop();
            assert_int_equal(grow_sessions(&try, at), NXL_OK);
        }
        while (session_count > 0)
            session_drop();
        bed_free(try.bed);
    }
}

static void a_transfer_that_ends_makes_room(void **state)
{
    struct try try = {.bed = bed_new("hand", "limits.transfers", "1", NULL)};

    assert_int_equal(grow_transfers(&try, 0), NXL_OK);
    assert_int_equal(grow_transfers(&try, 1), NXL_LIMIT);
    hand_end(try.bed->hand, 0, NXL_OK, 1);
    WAIT(&try.bed->rig, try.bed->from.end_count == 2);
    assert_int_equal(grow_transfers(&try, 1), NXL_OK);
    bed_free(try.bed);
}

/* The limit is of each session: a greedy one does not use up the others'. */
static void one_sessions_limit_is_not_anothers(void **state)
{
    struct try try = {.bed = bed_new("hand", "limits.transfers", "1", "limits.lists", "1", NULL)};
    struct bed *bed = try.bed;
    uint32_t back = client_load(&bed->to, &bed->from), generation;

    assert_int_equal(grow_lists(&try, 0), NXL_OK);
    assert_int_equal(grow_lists(&try, 1), NXL_LIMIT);
    assert_int_equal(grow_transfers(&try, 0), NXL_OK);
    assert_int_equal(grow_transfers(&try, 1), NXL_LIMIT);
    (void)client_prepare(&bed->to, 0, NXL_READ, back, 0, 0, 64);
    generation = client_post(&bed->to);
    assert_null(client_end(&bed->to, generation));
    bed_free(bed);
}

/* Partial metadata beyond the limit is refused whole, and loads nobody. */
static void a_partial_view_has_the_limit_of_regions_and_fails_whole(void **state)
{
    struct bed *bed = bed_new("hand", "limits.regions", "2", NULL);
    struct client third;
    struct nxl_bytes blob = {0};
    struct nxl_xfer_remote_info info;
    struct nxl_err err = {0};
    struct nxl_record *record;
    struct reply reply;

    client_open(&third, &bed->rig, bed->engine, "ns", "third");
    client_blob(&third, NXL_XFER_MD_ADDRESS | NXL_XFER_MD_REGIONS, &third.region, 1, &blob);
    record = nxl_new0(sizeof(*record));
    assert_int_equal(nxl_record_decode((struct nxl_view){blob.data, blob.size}, record, &err),
                     NXL_OK);
    for (uint32_t i = 1; i < 3; i++) {
        record->regions[i] = record->regions[0];
        record->regions[i].id += i;
    }
    record->region_count = 3;
    nxl_bytes_clear(&blob);
    assert_int_equal(nxl_record_encode(record, &blob, &err), NXL_OK);
    client_load_blob(&bed->from, (struct nxl_view){blob.data, blob.size}, &reply);
    assert_int_equal(reply.code, NXL_LIMIT);
    assert_non_null(strstr(reply.text, "limits.regions"));
    assert_int_equal(nxl_xfer_find(bed->from.session, bed->from.peer, "third", &info, &err),
                     NXL_NOT_FOUND);
    free(record);
    nxl_bytes_fini(&blob);
    client_close(&third);
    bed_free(bed);
}

/* limits.held_notices: a receiver that does not read; the sender is told which limit it was. */
static void notices_nobody_reads_are_lost_by_the_name_of_the_limit(void **state)
{
    struct bed *bed = bed_new("hand", "limits.held_notices", "3", NULL);

    bed->to.full = 1;
    for (int i = 0; i < 5; i++)
        nxl_xfer_notify(bed->from.session, bed->from.peer, bed->remote, (struct nxl_view){"x", 1});
    assert_int_equal(client_events(&bed->to, XFER_EVENT_NOTICE), 0);
    assert_int_equal(client_events(&bed->from, XFER_EVENT_NOTICE_LOST), 2);
    assert_int_equal(client_event(&bed->from, XFER_EVENT_NOTICE_LOST)->code, NXL_LIMIT);
    assert_non_null(
        strstr(client_event(&bed->from, XFER_EVENT_NOTICE_LOST)->text, "limits.held_notices"));
    bed->to.full = 0;
    nxl_xfer_session_room(bed->to.session);
    assert_int_equal(client_events(&bed->to, XFER_EVENT_NOTICE), 3);
    bed_free(bed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_limit_is_refused_by_its_name_and_hurts_nobody_else),
        cmocka_unit_test(a_transfer_that_ends_makes_room),
        cmocka_unit_test(one_sessions_limit_is_not_anothers),
        cmocka_unit_test(a_partial_view_has_the_limit_of_regions_and_fails_whole),
        cmocka_unit_test(notices_nobody_reads_are_lost_by_the_name_of_the_limit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
