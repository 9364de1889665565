/* test_ctl.c - nixletctl as a user runs it: against real agents, its output parsed. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xxhash.h>

#include "support/cluster.h"

#define MIB (1u << 20)
#define REGION (9 * MIB + 8)

struct rig {
    struct cluster cluster;
    struct cluster_peer far;
    char file[200], back[200], err_path[200];
    char out[1 << 20]; /* of the last run */
    int status;
};

/* ---- one run -------------------------------------------------------------------------------- */

static void file_take(const char *path, char *to, size_t room)
{
    FILE *file = fopen(path, "r");
    size_t got;

    assert_non_null(file);
    got = fread(to, 1, room - 1, file);
    to[got] = '\0';
    fclose(file);
}

/* Runs nixletctl ARGS... (NULL-terminated) at an agent; keeps standard output and the exit status.
 */
static void run_at(struct rig *r, int agent, const char *const *args)
{
    const char *argv[32] = {NXL_CTL_BIN};
    char socket[220], http[220], out_path[200];
    int n = 1, status;
    pid_t pid;

    snprintf(socket, sizeof(socket), "--socket=%s", r->cluster.agents[agent].socket);
    snprintf(http, sizeof(http), "--http=%s", r->cluster.agents[agent].http);
    snprintf(out_path, sizeof(out_path), "%s/ctl.out", r->cluster.dir);
    while (*args != NULL)
        argv[n++] = *args++;
    argv[n++] = socket;
    argv[n++] = http;
    argv[n] = NULL;
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        dup2(open(out_path, O_WRONLY | O_CREAT | O_TRUNC, 0600), 1);
        dup2(open(r->err_path, O_WRONLY | O_CREAT | O_TRUNC, 0600), 2);
        execv(argv[0], (char *const *)argv); /* exec changes nothing */
        _exit(127);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    r->status = WEXITSTATUS(status);
    file_take(out_path, r->out, sizeof(r->out));
}
#define RUN(r, agent, ...) run_at(r, agent, (const char *const[]){__VA_ARGS__, NULL})

static json_t *json_of(struct rig *r)
{
    json_error_t wrong;
    json_t *root = json_loads(r->out, JSON_REJECT_DUPLICATES, &wrong);

    if (!json_is_object(root)) {
        char said[2048];

        file_take(r->err_path, said, sizeof(said));
        fail_msg("status %d, no JSON object: %s: '%s'; standard error: '%s'", r->status, wrong.text,
                 r->out, said);
    }
    return root;
}

static json_t *done(struct rig *r)
{
    json_t *root = json_of(r);

    if (r->status != 0)
        fail_msg("status %d: %s", r->status, r->out);
    assert_null(json_object_get(root, "error"));
    return root;
}

static const char *text_at(const json_t *root, const char *key)
{
    const char *text = json_string_value(json_object_get(root, key));

    if (text == NULL)
        fail_msg("no '%s'", key);
    return text;
}

/* The error's text is lent until the next call. */
static const char *failed(struct rig *r, int status, const char *code)
{
    static char text[600];
    json_t *root = json_of(r), *error = json_object_get(root, "error");

    if (r->status != status || error == NULL || strcmp(text_at(error, "code"), code) != 0)
        fail_msg("status %d: %s", r->status, r->out);
    snprintf(text, sizeof(text), "%s", text_at(error, "text"));
    json_decref(root);
    return text;
}

/* ---- the cluster ---------------------------------------------------------------------------- */

static int rig_open(void **state)
{
    struct rig *r = calloc(1, sizeof(*r));

    r->cluster.secure = 1;
    cluster_start(&r->cluster, 2, 0);
    cluster_peer_start(&r->cluster, 1, "far", REGION, "fill", &r->far);
    snprintf(r->file, sizeof(r->file), "%s/file", r->cluster.dir);
    snprintf(r->back, sizeof(r->back), "%s/back", r->cluster.dir);
    snprintf(r->err_path, sizeof(r->err_path), "%s/ctl.err", r->cluster.dir);
    *state = r;
    return 0;
}

static int rig_close(void **state)
{
    struct rig *r = *state;

    cluster_peer_kill(&r->far, SIGKILL);
    cluster_stop(&r->cluster);
    free(r);
    return 0;
}

static unsigned char *file_bytes(const char *path, size_t *ret_size)
{
    struct stat st;
    int fd = open(path, O_RDONLY);
    unsigned char *data;

    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &st), 0);
    data = malloc((size_t)st.st_size + 1);
    assert_int_equal(read(fd, data, (size_t)st.st_size), st.st_size);
    close(fd);
    *ret_size = (size_t)st.st_size;
    return data;
}

static void digest_text(const void *data, size_t size, char *to, size_t room)
{
    snprintf(to, room, "xxh64:%016llx", (unsigned long long)XXH64(data, size, 0));
}

/* Nothing but what the test made lies beside the files. */
static int part_files(const struct rig *r)
{
    char command[300];
    int status;

    snprintf(command, sizeof(command), "ls %s/*.part >/dev/null 2>&1", r->cluster.dir);
    status = system(command);
    return status == 0;
}

/* ---- get and put ---------------------------------------------------------------------------- */

static void get_brings_the_whole_region_of_a_peer_at_another_agent(void **state)
{
    struct rig *r = *state;
    char digest[40];
    unsigned char *data;
    json_t *root;
    size_t size;

    RUN(r, 0, "get", "--json", "--peer", "far", "--chunk=1Mi", r->file);
    root = done(r);
    data = file_bytes(r->file, &size);
    assert_int_equal(size, REGION);
    for (size_t i = 0; i < size / 8; i++)
        assert_true(((uint64_t *)(void *)data)[i] == i * 0x9e3779b97f4a7c15u);
    digest_text(data, size, digest, sizeof(digest));
    assert_string_equal(text_at(root, "digest"), digest);
    assert_int_equal(json_integer_value(json_object_get(root, "bytes")), REGION);
    assert_int_equal(json_integer_value(json_object_get(root, "transfers")), 10);
    assert_string_equal(text_at(root, "backend"), "ucx");
    assert_string_not_equal(text_at(root, "path"), "none");
    assert_string_not_equal(text_at(root, "path"), "one-copy");
    assert_true(json_real_value(json_object_get(root, "gb_per_s")) > 0);
    assert_false(part_files(r));
    free(data);
    json_decref(root);
}

static void what_was_put_is_what_comes_back(void **state)
{
    struct rig *r = *state;
    unsigned char *data = malloc(3 * MIB + 5), *back;
    char digest[40], address[32];
    json_t *root;
    size_t size;
    int fd;

    for (size_t i = 0; i < 3 * MIB + 5; i++)
        data[i] = (unsigned char)(i * 131 + i / 509);
    fd = open(r->file, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_int_equal(write(fd, data, 3 * MIB + 5), 3 * MIB + 5);
    close(fd);
    digest_text(data, 3 * MIB + 5, digest, sizeof(digest));
    snprintf(address, sizeof(address), "0x%llx", (unsigned long long)r->far.addr + 4096);

    RUN(r, 0, "put", "--peer=far", "--address", address, "--json", r->file);
    root = done(r);
    assert_string_equal(text_at(root, "digest"), digest);
    assert_string_equal(text_at(root, "address"), address);
    assert_string_equal(text_at(root, "op"), "put");
    json_decref(root);

    RUN(r, 0, "get", "--peer=far", "--address", address, "--length=3145733", "--json", r->back);
    root = done(r);
    assert_string_equal(text_at(root, "digest"), digest);
    json_decref(root);
    back = file_bytes(r->back, &size);
    assert_int_equal(size, 3 * MIB + 5);
    assert_memory_equal(back, data, size);
    free(back);

    /* Around it nothing changed: the word before and the one behind. */
    RUN(r, 1, "get", "--peer=far", "--json", r->back);
    root = done(r);
    assert_string_equal(text_at(root, "path"), "one-copy"); /* the same agent */
    json_decref(root);
    back = file_bytes(r->back, &size);
    assert_true(((uint64_t *)(void *)back)[511] == 511 * 0x9e3779b97f4a7c15u);
    assert_true(((uint64_t *)(void *)back)[(4096 + 3 * MIB + 8) / 8] ==
                (4096 + 3 * MIB + 8) / 8 * 0x9e3779b97f4a7c15u);
    free(back);
    free(data);
}

static void the_text_form_names_digest_path_and_speed(void **state)
{
    struct rig *r = *state;

    RUN(r, 0, "get", "--peer=far", "--length=1Mi", "--progress", r->file);
    assert_int_equal(r->status, 0);
    assert_non_null(strstr(r->out, "get 1 MiB from far at 0x"));
    assert_non_null(strstr(r->out, "digest   xxh64:"));
    assert_non_null(strstr(r->out, " by ucx"));
    assert_non_null(strstr(r->out, "GB/s"));
}

static void a_peer_is_found_by_its_agents_address_without_the_store(void **state)
{
    struct rig *r = *state;
    char log[65536], at[80], *begin;
    json_t *root;

    file_take(r->cluster.agents[1].log, log, sizeof(log));
    begin = strstr(log, "subject=link event=listening");
    assert_non_null(begin);
    begin = strstr(begin, "address=");
    assert_int_equal(sscanf(begin, "address=%79s", at), 1);
    cluster_redis_kill(&r->cluster);
    RUN(r, 0, "get", "--peer=far", "--at", at, "--length=64Ki", "--json", r->file);
    root = done(r);
    assert_int_equal(json_integer_value(json_object_get(root, "bytes")), 65536);
    json_decref(root);
}

static void what_cannot_be_done_is_refused_and_leaves_no_file(void **state)
{
    struct rig *r = *state;
    struct cluster_peer second;
    char past[32];

    RUN(r, 0, "get", "--peer=nobody", "--timeout=300ms", "--json", r->file);
    assert_int_equal(r->status, 1);
    assert_non_null(strstr(r->out, "nobody"));
    snprintf(past, sizeof(past), "%llx", (unsigned long long)r->far.addr + REGION - 10);
    RUN(r, 0, "get", "--peer=far", "--address", past, "--length=4Ki", "--json", r->file);
    assert_non_null(strstr(failed(r, 1, "not_found"), past));
    RUN(r, 0, "get", "--peer=far", "--region=999999", "--json", r->file);
    assert_non_null(strstr(failed(r, 1, "not_found"), "has no region 999999"));
    RUN(r, 0, "get", "--peer=far", "--length=1Gi", "--json", r->file);
    assert_non_null(strstr(failed(r, 2, "invalid_param"), "do not fit"));
    RUN(r, 0, "put", "--peer=far", "--json", "/nonexistent/file");
    assert_non_null(strstr(failed(r, 1, "io"), "/nonexistent/file"));
    assert_int_equal(access(r->file, F_OK), -1);
    assert_false(part_files(r));

    /* A dead one is not taken for alive. */
    cluster_peer_start(&r->cluster, 1, "second", MIB, "fill", &second);
    RUN(r, 0, "get", "--peer=second", "--json", r->file);
    json_decref(done(r));
    cluster_peer_kill(&second, SIGKILL);
    RUN(r, 0, "get", "--peer=second", "--timeout=2s", "--json", r->back);
    assert_int_equal(r->status, 1);
    assert_int_equal(access(r->back, F_OK), -1);
}

static int client_is_there(void *arg)
{
    struct rig *r = arg;

    return part_files(r);
}

/* Ctrl-C in the middle: what was FILE is FILE, nothing lies beside it. */
static void a_signal_ends_a_get_and_leaves_nothing(void **state)
{
    struct rig *r = *state;
    char socket[220], http[220];
    const char *argv[] = {NXL_CTL_BIN, "get",  "--peer=far", "--json", "--chunk=4096",
                          r->file,     socket, http,         NULL};
    int status, out[2];
    char text[4096] = "";
    json_t *root;
    pid_t pid;

    snprintf(socket, sizeof(socket), "--socket=%s", r->cluster.agents[0].socket);
    snprintf(http, sizeof(http), "--http=%s", r->cluster.agents[0].http);
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        dup2(out[1], 1);
        execv(argv[0], (char *const *)argv);
        _exit(127);
    }
    close(out[1]);
    assert_true(cluster_until(client_is_there, r,
                              10000000000u)); /* the file is made: signals are listened for */
    kill(pid, SIGINT);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(read(out[0], text, sizeof(text) - 1) > 0);
    close(out[0]);
    assert_true(WIFEXITED(status));
    root = json_loads(text, 0, NULL);
    assert_non_null(root);
    assert_false(part_files(r));
    if (WEXITSTATUS(status) == 0) { /* it was faster */
        assert_int_equal(access(r->file, F_OK), 0);
    } else {
        assert_int_equal(WEXITSTATUS(status), 1);
        assert_string_equal(text_at(json_object_get(root, "error"), "code"), "canceled");
        assert_int_equal(access(r->file, F_OK), -1);
    }
    json_decref(root);
}

/* ---- looking -------------------------------------------------------------------------------- */

static void every_command_gives_one_json_object(void **state)
{
    static const char *const names[] = {"peers", "regions", "transfers", "backends"};
    static const char *const heads[] = {"INCARNATION\n", "ADDRESS", "RESULT\n", "BEST-PATH"};
    struct rig *r = *state;
    json_t *root, *row;

    RUN(r, 0, "get", "--peer=far", "--length=64Ki", "--json", r->file);
    json_decref(done(r));
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        RUN(r, 0, names[i], "--json");
        root = done(r);
        assert_string_equal(text_at(root, "node"), "node0");
        if (!json_is_array(json_object_get(root, names[i])) ||
            (i >= 2 && json_array_size(json_object_get(root, names[i])) == 0))
            fail_msg("%s: %s", names[i], r->out);
        json_decref(root);
        RUN(r, 0, names[i]); /* and a table with a head */
        assert_int_equal(r->status, 0);
        assert_non_null(strstr(r->out, heads[i]));
    }
    RUN(r, 1, "regions", "--json", "--peer=far");
    root = done(r);
    row = json_array_get(json_object_get(root, "regions"), 0);
    assert_int_equal(json_array_size(json_object_get(root, "regions")), 1);
    assert_int_equal(json_integer_value(json_object_get(row, "length")), REGION);
    assert_string_not_equal(text_at(row, "incarnation"), "");
    json_decref(root);
    RUN(r, 1, "regions", "--json", "--peer=nobody");
    root = done(r);
    assert_int_equal(json_array_size(json_object_get(root, "regions")), 0);
    json_decref(root);
    RUN(r, 0, "transfers", "--json");
    root = done(r);
    row = json_array_get(json_object_get(root, "transfers"), 0);
    assert_string_equal(text_at(row, "target"), "far");
    assert_string_equal(text_at(row, "code"), "success");
    json_decref(root);
    RUN(r, 0, "version", "--json");
    json_decref(done(r));
    RUN(r, 0, "size", "--json", "--model=llama-3-70b", "--tp=8");
    root = done(r);
    assert_int_equal(json_integer_value(json_object_get(root, "rank_bytes_per_request")),
                     160 * MIB);
    json_decref(root);
    RUN(r, 0, "size", "--json");
    root = done(r);
    assert_true(json_array_size(json_object_get(root, "models")) >= 12);
    json_decref(root);
}

static const json_t *check_find(const json_t *root, const char *name)
{
    const json_t *row;
    size_t i;

    json_array_foreach(json_object_get(root, "checks"), i, row)
    {
        if (strcmp(text_at(row, "name"), name) == 0)
            return row;
    }
    fail_msg("doctor says nothing of '%s'", name);
    return NULL;
}

static void doctor_says_of_everything_whether_why_and_what_to_do(void **state)
{
    static const char *const names[] = {
        "memfd",      "pidfd",     "peer-pidfd",   "process-vm", "io-uring",      "memlock",
        "huge-pages", "gpu",       "rdma",         "interfaces", "port 7741",     "port 7742",
        "port 7743",  "port 7744", "agent-socket", "agent-http", "ucx-variables", "ucx"};
    struct rig *r = *state;
    const json_t *row;
    json_t *root;
    size_t i;

    RUN(r, 0, "doctor", "--json");
    root = done(r);
    assert_true(json_is_true(json_object_get(root, "ok")));
    for (i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        assert_int_not_equal(text_at(check_find(root, names[i]), "found")[0], '\0');
    json_array_foreach(json_object_get(root, "checks"), i, row)
    {
        if (strcmp(text_at(row, "level"), "ok") != 0)
            assert_int_not_equal(text_at(row, "todo")[0], '\0');
    }
    row = check_find(root, "agent-socket");
    assert_string_equal(text_at(row, "level"), "ok");
    assert_non_null(strstr(text_at(row, "found"), "node0"));
    assert_string_equal(text_at(check_find(root, "agent-http"), "level"), "ok");
    json_decref(root);

    setenv("UCX_NXL_FOREIGN", "secret", 1);
    RUN(r, 0, "doctor");
    unsetenv("UCX_NXL_FOREIGN");
    assert_int_equal(r->status, 0);
    assert_non_null(strstr(r->out, "UCX_NXL_FOREIGN"));
    assert_null(strstr(r->out, "secret"));
    assert_non_null(strstr(r->out, "an agent can work here"));

    cluster_agent_kill(&r->cluster, 0, SIGTERM); /* no agent is no reason to fail */
    RUN(r, 0, "doctor", "--json");
    root = done(r);
    assert_string_equal(text_at(check_find(root, "agent-socket"), "level"), "warn");
    assert_string_equal(text_at(check_find(root, "agent-http"), "level"), "warn");
    json_decref(root);
    RUN(r, 0, "peers", "--json");
    assert_non_null(strstr(failed(r, 1, "no_agent"), "is nixlet-agent running"));
    RUN(r, 0, "get", "--peer=far", "--json", r->file);
    failed(r, 1, "no_agent");
}

static void wrong_usage_is_two_and_teaches(void **state)
{
    struct rig *r = *state;

    RUN(r, 0, "pears", "--json");
    assert_non_null(strstr(failed(r, 2, "invalid_param"), "did you mean 'peers'"));
    RUN(r, 0, "peers", "--jsn", "--json");
    assert_non_null(strstr(failed(r, 2, "invalid_param"), "--json"));
    RUN(r, 0, "peers", "more", "--json");
    failed(r, 2, "invalid_param");
    RUN(r, 0, "get", "--json", "file");
    assert_non_null(strstr(failed(r, 2, "invalid_param"), "--peer NAME is missing"));
    RUN(r, 0, "get", "--json", "--peer=far");
    assert_non_null(strstr(failed(r, 2, "invalid_param"), "usage:"));
    RUN(r, 0, "size", "--json", "--model=lama-3.1-70b");
    assert_non_null(strstr(failed(r, 2, "not_found"), "did you mean llama-3.1-70b"));
    RUN(r, 0, "--json");
    failed(r, 2, "invalid_param");
    RUN(r, 0, "put", "--help");
    assert_int_equal(r->status, 0);
    assert_non_null(strstr(r->out, "--region ID"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, rig_open, rig_close)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        TEST(get_brings_the_whole_region_of_a_peer_at_another_agent),
        TEST(what_was_put_is_what_comes_back),
        TEST(the_text_form_names_digest_path_and_speed),
        TEST(a_peer_is_found_by_its_agents_address_without_the_store),
        TEST(what_cannot_be_done_is_refused_and_leaves_no_file),
        TEST(a_signal_ends_a_get_and_leaves_nothing),
        TEST(every_command_gives_one_json_object),
        TEST(doctor_says_of_everything_whether_why_and_what_to_do),
        TEST(wrong_usage_is_two_and_teaches),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
