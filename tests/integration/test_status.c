/* test_status.c - what an agent tells people about its transfers: paths, counters, failures. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/near.h"

#define MIB (1u << 20)
#define BODY (1u << 20)
#define THREADS 4
#define MOVES 25

struct rig {
    struct cluster cluster;
    struct near owner, near[2]; /* at agent 0; at agent 0 and 1 */
    struct nxl_remote *remote[2];
    char *body;
};

static int rig_make(void **state, const char *backends, const char *flag)
{
    struct rig *r = *state = calloc(1, sizeof(*r));

    r->cluster.secure = 1;
    r->cluster.backends = backends;
    r->cluster.extra[0] = flag;
    r->body = calloc(1, BODY);
    cluster_start(&r->cluster, 2, 0);
    near_open(&r->cluster, 0, "owner", 8 * MIB, &r->owner);
    for (int i = 0; i < 2; i++) {
        near_open(&r->cluster, i, i == 0 ? "near0" : "near1", 8 * MIB, &r->near[i]);
        r->remote[i] = near_load(&r->near[i], &r->owner);
    }
    return 0;
}

static int open_plain(void **state)
{
    return rig_make(state, NULL, NULL);
}

static int open_failing(void **state)
{
    return rig_make(state, "fault:shm,fault:ucx", "--backends.fault.fail_every=1");
}

static int rig_down(void **state)
{
    struct rig *r = *state;

    near_close(&r->near[0]);
    near_close(&r->near[1]);
    near_close(&r->owner);
    cluster_stop(&r->cluster);
    free(r->body);
    free(r);
    return 0;
}

static void move(struct rig *r, int i, enum nxl_op_kind op, uint64_t len)
{
    struct nxl_err err = {0};

    if (near_move(&r->near[i], op, r->remote[i], 0, (uint64_t)(uintptr_t)r->owner.memory, len,
                  &err) != NXL_OK)
        fail_msg("near%d: %s", i, err.text);
}

static json_t *get_json(struct rig *r, int agent, const char *path)
{
    json_error_t error;
    json_t *json;

    assert_int_equal(cluster_http(&r->cluster, agent, path, r->body, BODY), 200);
    json = json_loads(r->body, 0, &error);
    if (json == NULL)
        fail_msg("%s: %s", path, error.text);
    return json;
}

/* C-107: the path, device, bytes and time of each transfer, without a switch to turn it on. */
static void every_transfer_says_which_path_its_bytes_took(void **state)
{
    static const char *const backends[] = {"shm", "ucx"};
    struct rig *r = *state;

    for (int i = 0; i < 2; i++) {
        json_t *json, *row;
        size_t index, seen = 0;

        for (uint64_t k = 1; k <= 10; k++)
            move(r, i, k % 2 == 0 ? NXL_READ : NXL_WRITE, k * 65536);
        json = get_json(r, i, "/v1/transfers");
        json_array_foreach(json_object_get(json, "transfers"), index, row)
        {
            const char *device = json_string_value(json_object_get(row, "device"));

            assert_string_equal(json_string_value(json_object_get(row, "backend")), backends[i]);
            assert_string_not_equal(json_string_value(json_object_get(row, "path")), "none");
            assert_true(i == 0 || (device != NULL && device[0] != '\0'));
            assert_int_equal(json_integer_value(json_object_get(row, "bytes")) % 65536, 0);
            assert_non_null(json_object_get(row, "duration_us"));
            assert_true(json_number_value(json_object_get(row, "gb_per_s")) > 0);
            seen++;
        }
        assert_int_equal(seen, 10);
        json_decref(json);
        assert_true(cluster_metric(&r->cluster, i, "nixlet_path_bytes_total") == 55.0 * 65536);
    }
}

struct mover {
    struct rig *rig;
    struct near near;
    struct nxl_remote *remote;
    int index;
};

static void *mover_main(void *arg)
{
    struct mover *m = arg;
    struct nxl_err err;

    for (int k = 0; k < MOVES; k++)
        if (near_move(&m->near, NXL_READ, m->remote, 0, (uint64_t)(uintptr_t)m->rig->owner.memory,
                      MIB, &err) != NXL_OK)
            return arg;
    return NULL;
}

/* C-108: counters that rate() turns into wall-clock throughput, whoever moved the bytes. */
static void clients_in_parallel_add_up_in_one_counter(void **state)
{
    struct rig *r = *state;
    struct mover movers[THREADS];
    pthread_t threads[THREADS];
    void *failed;

    for (int i = 0; i < THREADS; i++) {
        char name[16];

        snprintf(name, sizeof(name), "mover%d", i);
        movers[i] = (struct mover){.rig = r, .index = i};
        near_open(&r->cluster, 0, name, MIB, &movers[i].near);
        movers[i].remote = near_load(&movers[i].near, &r->owner);
    }
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, mover_main, &movers[i]), 0);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], &failed);
        assert_null(failed);
        near_close(&movers[i].near);
    }
    assert_true(cluster_metric(&r->cluster, 0, "agent_rx_bytes_total") ==
                (double)THREADS * MOVES * MIB);
    assert_true(cluster_metric(&r->cluster, 0, "agent_rx_requests_num_total") == THREADS * MOVES);
    assert_true(cluster_metric(&r->cluster, 0, "agent_xfer_time_us_count") == THREADS * MOVES);
}

/* The family that a sample line belongs to has a type and one line that says what it is. */
static void expect_described(const char *body, const char *line)
{
    size_t size = strcspn(line, "{ ");
    char name[128], want[160];

    assert_true(size < sizeof(name));
    memcpy(name, line, size);
    name[size] = '\0';
    snprintf(want, sizeof(want), "# HELP %s ", name);
    for (const char *const *end = (const char *const[]){"_bucket", "_sum", "_count", NULL};
         strstr(body, want) == NULL && *end != NULL; end++) {
        size_t cut = strlen(*end);

        if (size > cut && strcmp(name + size - cut, *end) == 0)
            snprintf(want, sizeof(want), "# HELP %.*s ", (int)(size - cut), name);
    }
    if (strstr(body, want) == NULL)
        fail_msg("metric %s has no line of help", name);
    assert_true(strchr(strstr(body, want) + strlen(want), '\n') >
                strstr(body, want) + strlen(want));
}

static void every_metric_has_a_type_and_a_line_that_says_what_it_is(void **state)
{
    struct rig *r = *state; /* C-108 */
    unsigned samples = 0;
    char *copy;

    move(r, 0, NXL_READ, MIB);
    assert_int_equal(cluster_http(&r->cluster, 0, "/metrics", r->body, BODY), 200);
    copy = strdup(r->body);
    for (char *line = strtok(copy, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        if (line[0] == '#') {
            char kind[16] = "", name[128] = "";

            if (sscanf(line, "# TYPE %127s %15s", name, kind) == 2 && strcmp(kind, "counter") == 0)
                assert_string_equal(name + strlen(name) - strlen("_total"), "_total");
            continue;
        }
        expect_described(r->body, line);
        samples++;
    }
    assert_true(samples > 50);
    free(copy);
}

/* C-109: one line, with everything that whoever searches needs. */
static void a_failure_is_one_line_with_all_that_is_known(void **state)
{
    static const char *const words[] = {
        " id=",         " op=read", "near1",       "owner",  "backend=fault",
        "code=backend", "bytes=",   "elapsed_us=", "quiet=", "why="};
    struct rig *r = *state;
    struct nxl_err err = {0};
    const char *line, *end;
    char text[1024];

    assert_int_equal(near_move(&r->near[1], NXL_READ, r->remote[1], 0,
                               (uint64_t)(uintptr_t)r->owner.memory, 4096, &err),
                     NXL_BACKEND);
    line = strstr(cluster_log(&r->cluster, 1), "event=failed");
    assert_non_null(line);
    end = strchr(line, '\n');
    assert_non_null(end);
    snprintf(text, sizeof(text), "%.*s", (int)(end - line), line);
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (strstr(text, words[i]) == NULL)
            fail_msg("the line has no '%s': %s", words[i], text);
    assert_null(strstr(end, "event=failed")); /* once */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_transfer_says_which_path_its_bytes_took, open_plain,
                                        rig_down),
        cmocka_unit_test_setup_teardown(clients_in_parallel_add_up_in_one_counter, open_plain,
                                        rig_down),
        cmocka_unit_test_setup_teardown(every_metric_has_a_type_and_a_line_that_says_what_it_is,
                                        open_plain, rig_down),
        cmocka_unit_test_setup_teardown(a_failure_is_one_line_with_all_that_is_known, open_failing,
                                        rig_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
