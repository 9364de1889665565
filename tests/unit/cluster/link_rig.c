/* link_rig.c - agents' link ends, proxy, certificates and strangers for the link tests. */
#include "link_rig.h"

#include "cluster/link_internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <uv.h>

/* ---- the loop ----------------------------------------------------------------------------- */

static int turn_done(void *arg)
{
    return ++*(int *)arg > 1;
}

void rig_turn(struct nxl_loop *loop)
{
    int turns = 0;

    (void)nxl_loop_run_until(loop, turn_done, &turns, NXL_MS);
}

void rig_run(struct nxl_loop *loop, uint64_t ns)
{
    uint64_t end = nxl_now_ns() + ns;

    while (nxl_now_ns() < end)
        rig_turn(loop);
}

/* ---- one agent ---------------------------------------------------------------------------- */

static void on_up(void *arg, struct nxl_link *link)
{
    struct side *side = arg;

    side->ups++;
    side->up_link = link;
    if (side->on_up != NULL)
        side->on_up(side, link);
}

static void on_down(void *arg, struct nxl_link *link, const char *why)
{
    struct side *side = arg;

    side->downs++;
    assert_false(nxl_link_up(link));
    (void)nxl_copy_text(side->why, sizeof(side->why), why);
}

static void on_gone(void *arg, struct nxl_link *link, const char *why)
{
    struct side *side = arg;

    side->gones++;
    assert_false(nxl_link_up(link));
    if (side->up_link == link)
        side->up_link = NULL;
    (void)nxl_copy_text(side->gone_agent, sizeof(side->gone_agent), nxl_link_agent(link));
    (void)nxl_copy_text(side->why, sizeof(side->why), why);
}

static void on_suspect(void *arg, struct nxl_link *link, int suspect)
{
    struct side *side = arg;

    assert_int_equal(nxl_link_suspect(link), suspect);
    if (suspect)
        side->suspects++;
    else
        side->recovers++;
}

static void on_message(void *arg, struct nxl_link *link, const struct nxl_message *message)
{
    struct side *side = arg;

    side->messages++;
    side->last_request = message->request;
    if (side->on_message != NULL)
        side->on_message(side, link, message);
}

static enum nxl_code on_notice(void *arg, struct nxl_link *link, const struct nxl_message *notice)
{
    struct side *side = arg;
    enum nxl_code answer = side->answer;

    side->offers++;
    if (side->answer_after > 0) {
        side->answer_after--;
        answer = NXL_AGAIN;
    }
    if (answer == NXL_AGAIN)
        return answer;
    assert_true(side->notices < SIDE_NOTICES_MAX);
    side->transfers[side->notices++] = notice->transfer;
    if (side->on_notice != NULL)
        side->on_notice(side, link);
    return answer;
}

static void on_notice_end(void *arg, uint64_t cookie, enum nxl_code code, const char *why)
{
    struct side *side = arg;

    assert_non_null(why);
    assert_true(cookie < SIDE_NOTICES_MAX);
    assert_int_equal(side->ended[cookie], 0); /* once */
    side->ended[cookie] = 1 - (int32_t)code;
    side->ends++;
}

static const struct nxl_links_ops side_ops = {
    .on_up = on_up,
    .on_down = on_down,
    .on_gone = on_gone,
    .on_suspect = on_suspect,
    .on_message = on_message,
    .on_notice = on_notice,
    .on_notice_end = on_notice_end,
};

static void set(struct side *side, const char *key, const char *value)
{
    struct nxl_err err = {0};

    if (nxl_settings_set(side->settings, key, value, "test", &err) != NXL_OK)
        fail_msg("setting %s: %s", key, err.text);
}

enum nxl_code side_try_open(struct side *side, struct nxl_loop *loop, const char *node,
                            const char *agent, const char *const *settings, struct nxl_err *err)
{
    struct nxl_links_options options;
    enum nxl_code code;

    memset(side, 0, sizeof(*side));
    side->loop = loop;
    side->settings = nxl_settings_new();
    side->metrics = nxl_metrics_new();
    nxl_links_declare(side->settings);
    (void)nxl_copy_text(side->node, sizeof(side->node), node);
    (void)nxl_copy_text(side->agent, sizeof(side->agent), agent);
    set(side, "link.listen", "127.0.0.1:0");
    set(side, "link.insecure", "true");
    set(side, "link.ping", "50ms");
    set(side, "link.suspect_after", "10s");
    set(side, "link.connect_timeout", "2s");
    set(side, "link.backoff_max", "200ms");
    for (; settings[0] != NULL; settings += 2)
        set(side, settings[0], settings[1]);
    strcpy(side->backends[0].name, "ucx");
    side->backends[0].address = (struct nxl_view){side->agent, strlen(side->agent)};
    options = (struct nxl_links_options){
        .loop = loop,
        .metrics = side->metrics,
        .settings = side->settings,
        .cluster = "kl",
        .node = side->node,
        .agent = side->agent,
        .backends = side->backends,
        .backend_count = 1,
        .ops = &side_ops,
        .arg = side,
    };
    code = nxl_links_open(&options, &side->links, err);
    if (code != NXL_OK)
        side_close(side);
    return code;
}

void side_open(struct side *side, struct nxl_loop *loop, const char *node, const char *agent, ...)
{
    const char *settings[32] = {0};
    struct nxl_err err = {0};
    va_list args;

    va_start(args, agent);
    for (int i = 0; i < 30; i++) {
        settings[i] = va_arg(args, const char *);
        if (settings[i] == NULL)
            break;
    }
    va_end(args);
    if (side_try_open(side, loop, node, agent, settings, &err) != NXL_OK)
        fail_msg("open side %s: %s", node, err.text);
}

void side_close(struct side *side)
{
    nxl_links_close(side->links);
    nxl_settings_free(side->settings);
    nxl_metrics_free(side->metrics);
    side->links = NULL;
    side->settings = NULL;
    side->metrics = NULL;
}

int side_port(const struct side *side)
{
    struct sockaddr_in bound;
    socklen_t size = sizeof(bound);

    assert_int_equal(getsockname(side->links->listen_fd, (void *)&bound, &size), 0);
    return ntohs(bound.sin_port);
}

struct nxl_link *side_dial(struct side *side, const char *address, const char *agent)
{
    struct nxl_link *link = NULL;
    struct nxl_err err = {0};

    if (nxl_links_get(side->links, address, agent, &link, &err) != NXL_OK)
        fail_msg("dial %s: %s", address, err.text);
    return link;
}

struct nxl_link *side_link(const struct side *side, const struct side *other)
{
    return nxl_links_find(side->links, other->agent);
}

int side_is_up(const struct side *side, const struct side *other)
{
    struct nxl_link *link = side_link(side, other);

    return link != NULL && nxl_link_up(link);
}

void side_notify(struct side *side, struct nxl_link *link, uint64_t number)
{
    const struct nxl_message notice = {.type = NXL_MESSAGE_NOTICE,
                                       .transfer = number,
                                       .incarnation = "x/y/z",
                                       .from_ns = "n",
                                       .from_name = "m",
                                       .from_incarnation = "f/g/h",
                                       .payload = {"payload", 7}};
    struct nxl_err err = {0};

    if (nxl_link_notice(link, &notice, number, &err) != NXL_OK)
        fail_msg("notice %llu: %s", (unsigned long long)number, err.text);
}

int side_ended(const struct side *side, uint64_t number, enum nxl_code code)
{
    return side->ended[number] == 1 - (int32_t)code;
}

int64_t side_metric(struct side *side, const char *name, const char *labels)
{
    struct nxl_bytes text = {0};
    char want[200];
    int64_t value = -1;
    char *at;

    nxl_metrics_render(side->metrics, &text);
    nxl_bytes_put_u8(&text, 0);
    if (labels[0] != '\0')
        (void)snprintf(want, sizeof(want), "\n%s{%s} ", name, labels);
    else
        (void)snprintf(want, sizeof(want), "\n%s ", name);
    at = strstr((char *)text.data, want);
    if (at != NULL)
        value = strtoll(at + strlen(want), NULL, 10);
    nxl_bytes_fini(&text);
    return value;
}

/* ---- proxy -------------------------------------------------------------------------------- */

struct pipe_end {
    struct pair *pair;
    struct pipe_end *other;
    int fd;
    struct nxl_watch *watch;
    struct nxl_bytes out; /* for this fd */
    int connecting;
};

struct pair {
    struct proxy *proxy;
    struct pair *next;
    struct pipe_end ends[2];
    int dead;
};

struct proxy {
    struct nxl_loop *loop;
    int fd, port, target, swallow, refuse;
    struct nxl_watch *watch;
    struct pair *pairs;
    unsigned accepted;
    char address[32];
};

static void end_want(struct pipe_end *end)
{
    unsigned events = 0;

    if (end->pair->proxy->swallow) {
        nxl_watch_change(end->watch, 0);
        return;
    }
    if (end->connecting || end->out.size > 0)
        events |= NXL_WATCH_WRITE;
    if (!end->connecting && end->other->out.size < (1 << 20))
        events |= NXL_WATCH_READ;
    nxl_watch_change(end->watch, events);
}

static void pair_end(struct pair *pair)
{
    if (pair->dead)
        return;
    pair->dead = 1;
    for (int i = 0; i < 2; i++) {
        nxl_watch_close(pair->ends[i].watch);
        (void)close(pair->ends[i].fd);
        nxl_bytes_fini(&pair->ends[i].out);
    }
}

static void proxy_sweep(struct proxy *proxy, int all)
{
    struct pair **at = &proxy->pairs;

    while (*at != NULL) {
        struct pair *pair = *at;

        if (!all && !pair->dead) {
            at = &pair->next;
            continue;
        }
        *at = pair->next;
        pair_end(pair);
        free(pair);
    }
}

static void end_on_event(void *arg, int fd, unsigned events)
{
    static unsigned char chunk[65536];
    struct pipe_end *end = arg;
    struct pair *pair = end->pair;

    if (pair->dead)
        return;
    if (events & NXL_WATCH_ERROR) {
        pair_end(pair);
        return;
    }
    end->connecting = 0;
    if (events & NXL_WATCH_READ) {
        ssize_t got = recv(fd, chunk, sizeof(chunk), 0);

        if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) {
            pair_end(pair);
            return;
        }
        if (got > 0)
            nxl_bytes_put(&end->other->out, chunk, (size_t)got);
    }
    if (end->out.size > 0) {
        ssize_t sent = send(fd, end->out.data, end->out.size, MSG_NOSIGNAL);

        if (sent < 0 && errno != EAGAIN && errno != EINTR) {
            pair_end(pair);
            return;
        }
        if (sent > 0)
            nxl_bytes_drop(&end->out, (size_t)sent);
    }
    end_want(end);
    if (!end->other->connecting)
        end_want(end->other);
}

static void proxy_on_accept(void *arg, int fd, unsigned events)
{
    struct proxy *proxy = arg;
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct pair *pair;
    struct nxl_err err;
    int client = accept4(fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

    if (client < 0)
        return;
    proxy_sweep(proxy, 0);
    proxy->accepted++;
    if (proxy->refuse) {
        (void)close(client);
        return;
    }
    pair = nxl_new0(sizeof(*pair));
    pair->proxy = proxy;
    pair->ends[0].fd = client;
    pair->ends[1].fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    pair->ends[1].connecting = 1;
    to.sin_port = htons((uint16_t)proxy->target);
    (void)connect(pair->ends[1].fd, (void *)&to, sizeof(to));
    for (int i = 0; i < 2; i++) {
        pair->ends[i].pair = pair;
        pair->ends[i].other = &pair->ends[1 - i];
        assert_int_equal(nxl_watch_open(proxy->loop, pair->ends[i].fd,
                                        i == 0 ? NXL_WATCH_READ : NXL_WATCH_WRITE, end_on_event,
                                        &pair->ends[i], &pair->ends[i].watch, &err),
                         NXL_OK);
    }
    end_want(&pair->ends[0]);
    end_want(&pair->ends[1]);
    pair->next = proxy->pairs;
    proxy->pairs = pair;
}

struct proxy *proxy_open(struct nxl_loop *loop)
{
    struct proxy *proxy = nxl_new0(sizeof(*proxy));
    struct nxl_err err;

    proxy->loop = loop;
    proxy->fd = raw_listen(&proxy->port);
    (void)snprintf(proxy->address, sizeof(proxy->address), "127.0.0.1:%d", proxy->port);
    assert_int_equal(nxl_watch_open(loop, proxy->fd, NXL_WATCH_READ, proxy_on_accept, proxy,
                                    &proxy->watch, &err),
                     NXL_OK);
    return proxy;
}

void proxy_target(struct proxy *proxy, int port)
{
    proxy->target = port;
}

const char *proxy_address(const struct proxy *proxy)
{
    return proxy->address;
}

void proxy_cut(struct proxy *proxy)
{
    proxy_sweep(proxy, 1);
}

void proxy_swallow(struct proxy *proxy, int on)
{
    proxy->swallow = on;
    proxy_sweep(proxy, 0);
    for (struct pair *pair = proxy->pairs; pair != NULL; pair = pair->next) {
        end_want(&pair->ends[0]);
        end_want(&pair->ends[1]);
    }
}

void proxy_refuse(struct proxy *proxy, int on)
{
    proxy->refuse = on;
}

unsigned proxy_accepted(const struct proxy *proxy)
{
    return proxy->accepted;
}

unsigned proxy_running(const struct proxy *proxy)
{
    unsigned count = 0;

    for (const struct pair *pair = proxy->pairs; pair != NULL; pair = pair->next)
        count += !pair->dead;
    return count;
}

void proxy_close(struct proxy *proxy)
{
    proxy_sweep(proxy, 1);
    nxl_watch_close(proxy->watch);
    (void)close(proxy->fd);
    free(proxy);
}

/* ---- certificates ------------------------------------------------------------------------- */

void certs_make(char *folder, size_t room, const char *cluster, const char *days, ...)
{
    char *argv[16] = {(char *)NXL_CERTS, folder, (char *)cluster};
    va_list args;
    int status;
    pid_t pid;

    if (folder[0] == '\0') {
        (void)nxl_copy_text(folder, room, "/tmp/nxl-certs-XXXXXX");
        assert_non_null(mkdtemp(folder));
    }
    va_start(args, days);
    for (int i = 3; i < 15; i++) {
        argv[i] = va_arg(args, char *);
        if (argv[i] == NULL)
            break;
    }
    va_end(args);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)setenv("DAYS", days, 1);
        (void)execv(argv[0], argv);
        _exit(127);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static int remove_one(const char *path, const struct stat *info, int flag, struct FTW *ftw)
{
    return remove(path);
}

void certs_remove(const char *folder)
{
    if (folder[0] != '\0')
        (void)nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* ---- strangers ---------------------------------------------------------------------------- */

int raw_connect(int port)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                             .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (void *)&to, sizeof(to)), 0); /* the listen backlog takes it */
    return fd;
}

int raw_listen(int *ret_port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(at);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (void *)&at, sizeof(at)), 0);
    assert_int_equal(listen(fd, 64), 0);
    assert_int_equal(getsockname(fd, (void *)&at, &size), 0);
    *ret_port = ntohs(at.sin_port);
    return fd;
}

void raw_send(int fd, const void *data, size_t size)
{
    (void)!send(fd, data, size,
                MSG_NOSIGNAL); /* the far side may have ended it already: that is the point */
}

/* 1: a byte or more can be read or the end is there. */
static int raw_ready(struct nxl_loop *loop, int fd)
{
    uint64_t end = nxl_now_ns() + 5 * NXL_SEC;

    while (nxl_now_ns() < end) {
        struct pollfd poll_fd = {.fd = fd, .events = POLLIN};

        if (poll(&poll_fd, 1, 0) > 0)
            return 1;
        rig_turn(loop);
    }
    return 0;
}

static int raw_exactly(struct nxl_loop *loop, int fd, void *to, size_t size)
{
    for (size_t have = 0; have < size;) {
        ssize_t got;

        if (!raw_ready(loop, fd))
            return -1;
        got = recv(fd, (char *)to + have, size - have, MSG_DONTWAIT);
        if (got <= 0)
            return 0;
        have += (size_t)got;
    }
    return 1;
}

int raw_frame(struct nxl_loop *loop, int fd, struct nxl_bytes *body)
{
    uint32_t size;
    int result = raw_exactly(loop, fd, &size, sizeof(size));

    nxl_bytes_clear(body);
    if (result <= 0)
        return result;
    assert_true(size <= NXL_MESSAGE_FRAME_MAX);
    result = raw_exactly(loop, fd, nxl_bytes_grow(body, size), size);
    if (result > 0)
        body->size = size;
    return result;
}

int raw_ended(struct nxl_loop *loop, int fd)
{
    char rest[4096];

    while (raw_ready(loop, fd)) {
        if (recv(fd, rest, sizeof(rest), MSG_DONTWAIT) <= 0)
            return 1;
    }
    return 0;
}

void raw_hello(struct nxl_bytes *to, unsigned min, unsigned max, const char *cluster,
               const char *node, const char *agent)
{
    const struct nxl_message hello = {.type = NXL_MESSAGE_HELLO,
                                      .version_min = (uint16_t)min,
                                      .version_max = (uint16_t)max,
                                      .flags = LINK_HELLO_INSECURE,
                                      .cluster = cluster,
                                      .node = node,
                                      .agent = agent,
                                      .address = "127.0.0.1:1"};
    struct nxl_err err;

    assert_int_equal(nxl_message_encode(&hello, to, &err), NXL_OK);
}
