/* test_redis.c - dialling: by name, late, refused, with ACL and passwords, behind MOVED; and that
 * no password is ever logged. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "directory_rig.h"

#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "cluster/redis.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define PASSWORD "correct-horse-battery-staple"
#define WRONG_PASSWORD "tr0ub4dor-and-3"

/* ---- one connection without a directory ---- */

struct line {
    struct nxl_redis *redis;
    int ups, downs, answers, close_at_answer;
    enum nxl_code code;
    char text[256], why[256];
};

static void on_up(void *arg)
{
    ((struct line *)arg)->ups++;
}

static void on_down(void *arg, const char *why)
{
    struct line *line = arg;

    line->downs++;
    (void)nxl_copy_text(line->why, sizeof(line->why), why);
}

static const struct nxl_redis_ops line_ops = {on_up, on_down};

static void line_open(struct line *line, struct rig *rig, const char *url)
{
    struct nxl_redis_options options = {.loop = rig->loop,
                                        .purpose = "test",
                                        .user = "",
                                        .password_file = "",
                                        .ca_file = "",
                                        .command_timeout_ns = 200 * NXL_MS,
                                        .backoff_max_ns = 100 * NXL_MS,
                                        .ops = &line_ops,
                                        .arg = line};
    struct nxl_err err = {0};

    memset(line, 0, sizeof(*line));
    assert_int_equal(nxl_redis_url_parse(url, &options.url, &err), NXL_OK);
    assert_int_equal(nxl_redis_open(&options, &line->redis, &err), NXL_OK);
}

static int line_up(void *line)
{
    return nxl_redis_up(((struct line *)line)->redis);
}

static int line_was_down(void *line)
{
    return ((struct line *)line)->downs > 0;
}

static int line_answered(void *line)
{
    return ((struct line *)line)->answers > 0;
}

static void on_answer(void *arg, enum nxl_code code, const struct redisReply *reply,
                      const struct nxl_err *err)
{
    struct line *line = arg;

    line->answers++;
    line->code = code;
    (void)nxl_copy_text(line->text, sizeof(line->text),
                        code == NXL_OK && reply->str != NULL ? reply->str : err->text);
    if (line->close_at_answer) {
        nxl_redis_close(line->redis);
        line->redis = NULL;
    }
}

static enum nxl_code line_ask(struct line *line, const char *command, const char *argument)
{
    struct nxl_redis_words words = {0};

    nxl_redis_word(&words, command);
    if (argument != NULL)
        nxl_redis_word(&words, argument);
    return nxl_redis_send(line->redis, &words, 0, on_answer, line);
}

static void a_name_is_resolved_and_a_port_dialled(void **state)
{
    struct rig *rig = *state;
    static const char *const hosts[] = {"localhost", "127.0.0.1"};

    for (size_t i = 0; i < NXL_COUNT_OF(hosts); i++) {
        struct line line;
        char url[64];

        (void)snprintf(url, sizeof(url), "redis://%s:%u/3", hosts[i],
                       redis_server_port(rig->server));
        line_open(&line, rig, url);
        assert_int_equal(line_ask(&line, "PING", NULL),
                         NXL_UNREACHABLE); /* not up yet: no promise of an answer */
        rig_until(rig, line_up, &line);
        assert_int_equal(line_ask(&line, "PING", NULL), NXL_OK);
        assert_int_equal(line.answers, 0);
        rig_until(rig, line_answered, &line);
        assert_string_equal(line.text, "PONG");
        nxl_redis_close(line.redis);
    }
}

/* libuv and hiredis 0.14 together never report a refused connect; ours does, and tries again. */
static void a_refused_connect_is_noticed_and_tried_again(void **state)
{
    struct rig *rig = *state;
    struct line line;
    char url[64];

    (void)snprintf(url, sizeof(url), "redis://127.0.0.1:%u", redis_server_port(rig->server));
    line_open(&line, rig, url);
    rig_run_ms(rig, 50);
    assert_non_null(strstr(nxl_redis_why(line.redis), "refused"));
    redis_server_start(rig->server);
    rig_until(rig, line_up, &line);
    assert_int_equal(line.ups, 1);
    assert_int_equal(line.downs, 0);
    nxl_redis_close(line.redis);
}

static void a_name_without_an_address_is_said_so(void **state)
{
    struct rig *rig = *state;
    struct line line;

    line_open(&line, rig, "redis://no-such-host.invalid");
    rig_run_ms(rig, 400);
    assert_non_null(strstr(nxl_redis_why(line.redis), "resolve"));
    nxl_redis_close(line.redis); /* perhaps with a look-up still in the pool */
}

static void a_killed_server_answers_everything_outstanding_once(void **state)
{
    struct rig *rig = *state;
    struct line line;

    line_open(&line, rig, redis_server_url(rig->server));
    rig_until(rig, line_up, &line);
    redis_server_pause(rig->server);
    for (int i = 0; i < 5; i++)
        assert_int_equal(line_ask(&line, "PING", NULL), NXL_OK);
    redis_server_kill(rig->server);
    rig_until(rig, line_was_down, &line);
    assert_int_equal(line.answers, 5);
    assert_int_equal(line.code, NXL_UNREACHABLE);
    nxl_redis_close(line.redis);
}

static void a_command_has_a_deadline(void **state)
{
    struct rig *rig = *state;
    struct line line;
    uint64_t start;

    line_open(&line, rig, redis_server_url(rig->server));
    rig_until(rig, line_up, &line);
    redis_server_pause(rig->server);
    start = nxl_now_ns();
    assert_int_equal(line_ask(&line, "PING", NULL), NXL_OK);
    rig_until(rig, line_answered, &line);
    assert_in_range(nxl_now_ns() - start, 190 * NXL_MS, 400 * NXL_MS);
    assert_int_equal(line.code, NXL_TIMEOUT);
    assert_int_equal(line.downs, 1);
    redis_server_resume(rig->server);
    rig_until(rig, line_up, &line);
    nxl_redis_close(line.redis);
}

/* C-012: this process was busy for longer than the deadline; the answer lay in the socket all the
 * time. */
static void an_answer_that_is_there_counts_before_its_deadline(void **state)
{
    struct rig *rig = *state;
    struct line line;
    uint64_t until;

    line_open(&line, rig, redis_server_url(rig->server));
    rig_until(rig, line_up, &line);
    redis_server_pause(rig->server);
    assert_int_equal(line_ask(&line, "PING", NULL), NXL_OK);
    rig_run_ms(rig, 30); /* it is written, and not answered */
    redis_server_resume(rig->server);
    until = nxl_now_ns() + 300 * NXL_MS;
    while (nxl_now_ns() < until)
        continue;
    rig_until(rig, line_answered, &line);
    assert_int_equal(line.code, NXL_OK);
    assert_int_equal(line.downs, 0);
    nxl_redis_close(line.redis);
}

/* The same, but the question had not even left when this process fell asleep. */
static void what_this_process_slept_through_is_not_counted(void **state)
{
    struct rig *rig = *state;
    struct line line;
    uint64_t until;

    line_open(&line, rig, redis_server_url(rig->server));
    rig_until(rig, line_up, &line);
    assert_int_equal(line_ask(&line, "PING", NULL), NXL_OK);
    until = nxl_now_ns() + 300 * NXL_MS;
    while (nxl_now_ns() < until)
        continue;
    rig_until(rig, line_answered, &line);
    assert_int_equal(line.code, NXL_OK);
    assert_int_equal(line.downs, 0);
    nxl_redis_close(line.redis);
}

static void a_connection_may_be_closed_inside_an_answer(void **state)
{
    struct rig *rig = *state;
    struct line line;

    line_open(&line, rig, redis_server_url(rig->server));
    rig_until(rig, line_up, &line);
    line.close_at_answer = 1;
    assert_int_equal(line_ask(&line, "PING", NULL), NXL_OK);
    rig_until(rig, line_answered, &line);
    assert_null(line.redis);
    assert_int_equal(line.downs, 0);
}

static void an_error_answer_is_the_commands_and_not_the_connections(void **state)
{
    struct rig *rig = *state;
    struct line line;

    line_open(&line, rig, redis_server_url(rig->server));
    rig_until(rig, line_up, &line);
    assert_int_equal(line_ask(&line, "GET", NULL), NXL_OK);
    rig_until(rig, line_answered, &line);
    assert_int_equal(line.code, NXL_BACKEND);
    assert_non_null(strstr(line.text, "wrong number"));
    assert_true(nxl_redis_up(line.redis));
    nxl_redis_close(line.redis);
}

/* ---- MOVED ---- */

/* Answers every command, however many come in one piece, with one line. */
static pid_t spawn_answerer(const char *answer, uint16_t *ret_port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    pid_t pid;

    assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(listen(listener, 8), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &size), 0);
    *ret_port = ntohs(address.sin_port);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;) {
            char text[4096];
            int fd = accept(listener, NULL, NULL);

            while (recv(fd, text, sizeof(text), 0) > 0)
                (void)send(fd, answer, strlen(answer), MSG_NOSIGNAL);
            (void)close(fd);
        }
    }
    (void)close(listener);
    return pid;
}

static void one_moved_is_followed(void **state)
{
    struct rig *rig = *state;
    char answer[64], url[64];
    struct line line;
    uint16_t port;
    pid_t pid;

    (void)snprintf(answer, sizeof(answer), "-MOVED 3999 127.0.0.1:%u\r\n",
                   redis_server_port(rig->server));
    pid = spawn_answerer(answer, &port);
    (void)snprintf(url, sizeof(url), "redis://127.0.0.1:%u", port);
    line_open(&line, rig, url);
    rig_until(rig, line_up, &line);
    assert_int_equal(line_ask(&line, "PING", NULL), NXL_OK);
    rig_until(rig, line_answered, &line);
    assert_string_equal(line.text, "PONG");
    nxl_redis_close(line.redis);
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, NULL, 0);
}

/* Two servers that send each other's clients round in circles: backed off, not spun. */
static void a_circle_of_moved_is_backed_off(void **state)
{
    struct rig *rig = *state;
    char answer[64], url[64];
    struct line line;
    uint16_t port, other;
    pid_t pid = spawn_answerer("-MOVED 1 127.0.0.1:1\r\n", &other), second;

    (void)snprintf(answer, sizeof(answer), "-MOVED 1 127.0.0.1:%u\r\n", other);
    second = spawn_answerer(answer, &port);
    (void)snprintf(url, sizeof(url), "redis://127.0.0.1:%u", port);
    line_open(&line, rig, url);
    rig_run_ms(rig, 300);
    assert_false(nxl_redis_up(line.redis));
    assert_non_null(strstr(nxl_redis_why(line.redis), "MOVED"));
    nxl_redis_close(line.redis);
    (void)kill(pid, SIGKILL);
    (void)kill(second, SIGKILL);
    (void)waitpid(pid, NULL, 0);
    (void)waitpid(second, NULL, 0);
}

static void a_server_that_speaks_something_else_is_left(void **state)
{
    struct rig *rig = *state;
    char url[64];
    struct line line;
    uint16_t port;
    pid_t pid = spawn_answerer("HTTP/1.1 400 Bad Request\r\n\r\n", &port);

    (void)snprintf(url, sizeof(url), "redis://127.0.0.1:%u", port);
    line_open(&line, rig, url);
    rig_run_ms(rig, 300);
    assert_false(nxl_redis_up(line.redis));
    assert_non_null(strstr(nxl_redis_why(line.redis), "rotocol"));
    nxl_redis_close(line.redis);
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, NULL, 0);
}

/* ---- ACL, passwords, logs ---- */

static void write_password(struct rig *rig, const char *password, char *to, size_t room)
{
    struct nxl_err err = {0};
    char text[128];

    (void)snprintf(text, sizeof(text), "%s\n", password);
    (void)snprintf(to, room, "%s/password", redis_server_folder(rig->server));
    assert_int_equal(nxl_write_file(to, text, strlen(text), 0600, &err), NXL_OK);
}

/* Makes the user that deploy/redis-acl.sh describes, word by word, and closes the default one. */
static void install_acl(struct rig *rig, const char *file)
{
    char command[512], rule[1024], *words[64], *save = NULL;
    int count = 0;
    FILE *script;

    (void)snprintf(command, sizeof(command),
                   "'%s/redis-acl.sh' --setuser --cluster test --password-file '%s'", NXL_DEPLOY,
                   file);
    script = popen(command, "r");
    assert_non_null(script);
    assert_non_null(fgets(rule, sizeof(rule), script));
    assert_int_equal(pclose(script), 0);
    assert_null(strstr(rule, PASSWORD));
    for (char *word = strtok_r(rule, " \n", &save); word != NULL;
         word = strtok_r(NULL, " \n", &save))
        words[count++] = word;
    assert_true(count > 10 && count < 64);
    {
        uint64_t sizes[64];

        for (int i = 0; i < count; i++)
            sizes[i] = strlen(words[i]);
        assert_int_equal(
            redis_server_ask_argv(rig->server, count, (const char **)words, sizes)->type,
            REDIS_REPLY_STATUS);
    }
    (void)redis_server_ask(rig->server, "ACL SETUSER default off");
}

static int open_log(void)
{
    int fd = memfd_create("log", MFD_CLOEXEC);

    assert_true(fd >= 0);
    nxl_log_setup("test", NXL_LOG_TRACE, fd);
    return fd;
}

static char *take_log(int fd)
{
    off_t size = lseek(fd, 0, SEEK_END);
    char *text = calloc(1, (size_t)size + 1);

    assert_int_equal(pread(fd, text, (size_t)size, 0), size);
    (void)close(fd);
    nxl_log_setup("test", NXL_LOG_ERROR, 2);
    return text;
}

static int all_came(void *arg)
{
    struct agent *agent = arg;

    return agent->facts >= 1 && agent->withdrawn >= 1;
}

/* Everything the directory does works with exactly that user, and the server refused nothing. */
static void the_acl_user_can_do_all_that_is_needed(void **state)
{
    struct rig *rig = *state;
    char file[128], *log;
    struct agent *one, *two;
    struct answer answer;
    int fd = open_log();

    write_password(rig, PASSWORD, file, sizeof(file));
    install_acl(rig, file);
    rig->user = "nixlet";
    rig->password_file = file;
    one = agent_start(rig, "n1", "a");
    two = agent_start(rig, "n2", "b");
    agent_publish(one, "p", "n1/boot/1", 1, "");
    agent_publish(one, "q", "n1/boot/2", 1, "part");
    (void)agent_lookup(two, "p", "", 2000, &answer);
    rig_until(rig, answer_came, &answer);
    assert_int_equal(answer.code, NXL_OK);
    rig_run_ms(rig, 2 * RIG_LEASE_MS); /* renewals, a walk */
    nxl_directory_fact(one->directory, "n1/boot/2", NXL_LIFE_DEAD, "exited");
    nxl_directory_withdraw(one->directory, "n1/boot/2");
    rig_until(rig, all_came, two);
    (void)redis_server_ask(rig->server, "FLUSHALL");
    rig_until_record(rig, "n1", "n1/boot/1", 1);
    agent_close(one);
    agent_close(two);
    assert_false(rig_exists(rig, KEY("node:n1")));
    log = take_log(fd);
    assert_null(strstr(log, "event=refused"));
    assert_null(strstr(log, PASSWORD));
    assert_non_null(strstr(log, "event=up"));
    free(log);
}

static void the_acl_user_can_do_nothing_else(void **state)
{
    static const char *const refused[] = {
        "SET other:key 1",
        "GET other:key",
        "HGETALL nixlet:{prod}:peers:n1",
        "FLUSHALL",
        "FLUSHDB",
        "KEYS *",
        "CONFIG GET *",
        "ACL LIST",
        "SHUTDOWN NOSAVE",
        "SUBSCRIBE x",
        "PUBLISH x y",
        "SCRIPT FLUSH",
        "CLIENT LIST",
        "REPLICAOF NO ONE",
        "MONITOR",
        "RENAME nixlet:{test}:a nixlet:{test}:b",
        "EVAL return(redis.call('GET','other:key')) 0",
        "EVAL return(redis.call('FLUSHALL')) 0",
        "EVAL return(redis.call('SET','nixlet:{prod}:epoch','x')) 0"};
    struct rig *rig = *state;
    struct timeval limit = {.tv_sec = 5};
    char file[128];
    redisContext *user;
    redisReply *reply;

    write_password(rig, PASSWORD, file, sizeof(file));
    install_acl(rig, file);
    (void)redis_server_ask(rig->server, "SET other:key secret");
    user = redisConnectUnixWithTimeout(redis_server_url(rig->server) + strlen("unix://"), limit);
    assert_int_equal(user->err, 0);
    reply = redisCommand(user, "AUTH nixlet %s", PASSWORD);
    assert_int_equal(reply->type, REDIS_REPLY_STATUS);
    freeReplyObject(reply);
    for (size_t i = 0; i < NXL_COUNT_OF(refused); i++) {
        reply = redisCommand(user, refused[i]);
        assert_non_null(reply);
        if (reply->type != REDIS_REPLY_ERROR ||
            (strstr(reply->str, "NOPERM") == NULL && strstr(reply->str, "can't access") == NULL &&
             strstr(reply->str, "can't run") == NULL))
            fail_msg("'%s' was not refused for want of permission: %s", refused[i], reply->str);
        freeReplyObject(reply);
    }
    reply = redisCommand(user, "HGETALL nixlet:{test}:peers:n1");
    assert_int_equal(reply->type, REDIS_REPLY_ARRAY);
    freeReplyObject(reply);
    redisFree(user);
}

static int why_is_credentials(void *arg)
{
    return strstr(nxl_redis_why(((struct line *)arg)->redis), "WRONGPASS") != NULL;
}

/* A wrong password is said, not shown; a corrected file is read at the next dial, without a
 * restart. */
static void a_rotated_password_needs_no_restart_and_none_is_ever_logged(void **state)
{
    struct rig *rig = *state;
    struct nxl_redis_options options = {.loop = rig->loop,
                                        .purpose = "test",
                                        .user = "nixlet",
                                        .ca_file = "",
                                        .command_timeout_ns = 200 * NXL_MS,
                                        .backoff_max_ns = 50 * NXL_MS,
                                        .ops = &line_ops};
    struct line line = {0};
    struct nxl_err err = {0};
    char file[128], *log;
    int fd;

    write_password(rig, PASSWORD, file, sizeof(file));
    install_acl(rig, file);
    write_password(rig, WRONG_PASSWORD, file, sizeof(file));
    fd = open_log();
    options.arg = &line;
    options.password_file = file;
    assert_int_equal(nxl_redis_url_parse(redis_server_url(rig->server), &options.url, &err),
                     NXL_OK);
    assert_int_equal(nxl_redis_open(&options, &line.redis, &err), NXL_OK);
    rig_until(rig, why_is_credentials, &line);
    assert_int_equal(unlink(file), 0);
    rig_run_ms(rig, 100);
    assert_non_null(strstr(nxl_redis_why(line.redis), "password_file"));
    write_password(rig, PASSWORD, file, sizeof(file));
    rig_until(rig, line_up, &line);
    nxl_redis_close(line.redis);
    log = take_log(fd);
    assert_null(strstr(log, WRONG_PASSWORD));
    assert_null(strstr(log, PASSWORD));
    assert_non_null(strstr(log, "WRONGPASS"));
    free(log);
}

/* A proxy that repeats what it was sent. */
static void an_answer_to_auth_is_never_logged_whole(void **state)
{
    struct rig *rig = *state;
    struct nxl_redis_options options = {.loop = rig->loop,
                                        .purpose = "test",
                                        .user = "",
                                        .ca_file = "",
                                        .command_timeout_ns = 200 * NXL_MS,
                                        .backoff_max_ns = 50 * NXL_MS,
                                        .ops = &line_ops};
    struct line line = {0};
    struct nxl_err err = {0};
    char file[128], url[64], *log;
    uint16_t port;
    pid_t pid = spawn_answerer(
        "-ERR unknown command 'AUTH', with args beginning with: '" PASSWORD "'\r\n", &port);
    int fd = open_log();

    write_password(rig, PASSWORD, file, sizeof(file));
    (void)snprintf(url, sizeof(url), "redis://127.0.0.1:%u", port);
    options.arg = &line;
    options.password_file = file;
    assert_int_equal(nxl_redis_url_parse(url, &options.url, &err), NXL_OK);
    assert_int_equal(nxl_redis_open(&options, &line.redis, &err), NXL_OK);
    rig_run_ms(rig, 200);
    assert_non_null(strstr(nxl_redis_why(line.redis), "refuses user"));
    nxl_redis_close(line.redis);
    log = take_log(fd);
    assert_non_null(strstr(log, "refuses user"));
    assert_null(strstr(log, PASSWORD));
    free(log);
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, NULL, 0);
}

int main(void)
{
#define WITH_SERVER(test) cmocka_unit_test_setup_teardown(test, rig_setup, rig_teardown)
#define WITHOUT_SERVER(test)                                                                       \
    cmocka_unit_test_setup_teardown(test, rig_setup_no_server, rig_teardown)
    const struct CMUnitTest tests[] = {
        WITH_SERVER(a_name_is_resolved_and_a_port_dialled),
        WITHOUT_SERVER(a_refused_connect_is_noticed_and_tried_again),
        WITHOUT_SERVER(a_name_without_an_address_is_said_so),
        WITH_SERVER(a_killed_server_answers_everything_outstanding_once),
        WITH_SERVER(a_command_has_a_deadline),
        WITH_SERVER(an_answer_that_is_there_counts_before_its_deadline),
        WITH_SERVER(what_this_process_slept_through_is_not_counted),
        WITH_SERVER(a_connection_may_be_closed_inside_an_answer),
        WITH_SERVER(an_error_answer_is_the_commands_and_not_the_connections),
        WITH_SERVER(one_moved_is_followed),
        WITHOUT_SERVER(a_circle_of_moved_is_backed_off),
        WITHOUT_SERVER(a_server_that_speaks_something_else_is_left),
        WITH_SERVER(the_acl_user_can_do_all_that_is_needed),
        WITH_SERVER(the_acl_user_can_do_nothing_else),
        WITH_SERVER(a_rotated_password_needs_no_restart_and_none_is_ever_logged),
        WITHOUT_SERVER(an_answer_to_auth_is_never_logged_whole),
    };
    int skip = rig_skip_without_redis();

    return skip != 0 ? skip : cmocka_run_group_tests(tests, NULL, NULL);
}
