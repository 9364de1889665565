/* stream_server.c - an operator's stream server as a process of its own, for tests/integration/
 * test_stream.c: built from operator/push, with a token check that reads its answer from the token.
 * Prints "ready ADDRESS FOLDER", then answers each line of its standard input with one line:
 *   put ID GROUP NODE VERSION | draining ID GROUP NODE VERSION | dead ID REASON
 *   policy GROUP GENERATION FROM OPS | gone GROUP | synced | stats
 * stats: "agents N acks N purged N us N locals N last ..." */
#include "support/stream_rig.h"

#include "base/log.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

static struct nxl_loop *loop;
static struct stream_rig rig;
static char line[1024];
static size_t line_size;

static void put(const char *const *word, int draining)
{
    const struct nxl_stream_member member = {.id = word[1],
                                             .group = word[2],
                                             .pod = word[1],
                                             .node = word[3],
                                             .version = word[4],
                                             .life = draining ? NXL_LIFE_DRAINING : NXL_LIFE_LIVE};

    (void)nxl_push_member(rig.push, &member);
}

static void obey(char *text)
{
    const char *word[6] = {"", "", "", "", "", ""};
    char *save = NULL;
    int count = 0;

    for (char *one = strtok_r(text, " ", &save); one != NULL && count < 6;
         one = strtok_r(NULL, " ", &save))
        word[count++] = one;
    if (strcmp(word[0], "put") == 0 || strcmp(word[0], "draining") == 0)
        put(word, word[0][0] == 'd');
    else if (strcmp(word[0], "dead") == 0)
        (void)stream_rig_dead(&rig, word[1], word[2]);
    else if (strcmp(word[0], "policy") == 0)
        stream_rig_policy(&rig, word[1], strtoull(word[2], NULL, 10),
                          strcmp(word[3], "-") == 0 ? NULL : word[3],
                          (unsigned)strtoul(word[4], NULL, 10));
    else if (strcmp(word[0], "gone") == 0)
        (void)nxl_push_policy_gone(rig.push, word[1]);
    else if (strcmp(word[0], "synced") == 0)
        nxl_push_synced(rig.push);
    printf("agents %u acks %u purged %u us %llu locals %u last %s\n",
           nxl_push_agent_count(rig.push), rig.acks, rig.purged, (unsigned long long)rig.acked_us,
           rig.locals, rig.last);
    (void)fflush(stdout);
}

static void on_input(void *arg, int fd, unsigned events)
{
    ssize_t got = read(fd, line + line_size, sizeof(line) - 1 - line_size);
    char *end;

    (void)arg;
    (void)events;
    if (got <= 0) {
        nxl_loop_stop(loop);
        return;
    }
    line_size += (size_t)got;
    line[line_size] = '\0';
    while ((end = strchr(line, '\n')) != NULL) {
        *end = '\0';
        obey(line);
        line_size -= (size_t)(end + 1 - line);
        memmove(line, end + 1, line_size + 1);
    }
}

int main(void)
{
    struct nxl_watch *input;
    struct nxl_err err;

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)signal(SIGPIPE, SIG_IGN);
    nxl_log_setup("stream-server", NXL_LOG_INFO, STDERR_FILENO);
    if (nxl_loop_open(&loop, &err) != NXL_OK)
        return 1;
    stream_rig_open(&rig, loop, NULL, "stream.ping", "100ms", RIG_END);
    nxl_push_rv(rig.push, "1000");
    if (nxl_watch_open(loop, STDIN_FILENO, NXL_WATCH_READ, on_input, NULL, &input, &err) != NXL_OK)
        return 1;
    printf("ready %s %s\n", nxl_push_address(rig.push), rig.folder);
    (void)fflush(stdout);
    nxl_loop_run(loop);
    nxl_watch_close(input);
    stream_rig_close(&rig);
    nxl_loop_close(loop);
    return 0;
}
