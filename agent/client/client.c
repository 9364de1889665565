/* client.c - opens, reconnects and closes the application's end. Any thread. */
#include "client/client.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define SOCKET_DEFAULT "/run/nixlet/agent.sock"
#define STRINGIZE(x) #x
#define VERSION_TEXT(a, b, c) STRINGIZE(a) "." STRINGIZE(b) "." STRINGIZE(c)

const char *nxl_version(void)
{
    return VERSION_TEXT(NIXLET_VERSION_MAJOR, NIXLET_VERSION_MINOR, NIXLET_VERSION_PATCH);
}

/* ---- fork ------------------------------------------------------------------------------- */

static _Atomic uint32_t forks; /* how many forks lie between the first process and this one */
static pthread_once_t forks_once = PTHREAD_ONCE_INIT;

static void fork_in_child(void)
{
    atomic_fetch_add_explicit(&forks, 1, memory_order_relaxed);
}

static void forks_watch(void)
{
    (void)pthread_atfork(NULL, NULL, fork_in_child);
}

int nxl_client_forked(const struct nxl_client *client, struct nxl_err *err)
{
    if (client->forks == atomic_load_explicit(&forks, memory_order_relaxed))
        return 0;
    nxl_err_set(err, NXL_NOT_ALLOWED, 0,
                "this client was opened before fork(): the child has to open its own");
    return 1;
}

/* ---- options ---------------------------------------------------------------------------- */

static enum nxl_code options_read(const struct nxl_client_options *options,
                                  struct nxl_client_options *ret, struct nxl_err *err)
{
    size_t size = options ? options->size : 0;

    memset(ret, 0, sizeof(*ret));
    if (size > 0)
        memcpy(ret, options, size < sizeof(*ret) ? size : sizeof(*ret));
    else
        ret->reconnect = 1;
    ret->size = sizeof(*ret);
    if (ret->slots == 0)
        ret->slots = 4096;
    if (ret->call_timeout_ms == 0)
        ret->call_timeout_ms = 10000;
    if (ret->arena_bytes == 0)
        ret->arena_bytes = 32u << 20;
    if (ret->notice_bytes == 0)
        ret->notice_bytes = 4u << 20;
    if (ret->slots > NXL_RING_SLOTS_MAX)
        return nxl_err_set(err, NXL_INVALID_PARAM, 0,
                           "options.slots is %u, at most %u are possible", ret->slots,
                           NXL_RING_SLOTS_MAX);
    return NXL_OK;
}

static const char *socket_path(const struct nxl_client_options *options)
{
    const char *path = options->socket_path;

    if (!path || !*path)
        path = getenv("NIXLET_SOCKET");
    return path && *path ? path : SOCKET_DEFAULT;
}

uint64_t nxl_client_timeout(const struct nxl_client *client)
{
    return client->options.call_timeout_ms;
}

struct nxl_session *nxl_client_pin(struct nxl_client *client)
{
    struct nxl_session *session;

    pthread_mutex_lock(&client->objects.lock);
    session = atomic_load(&client->session);
    nxl_session_ref(session);
    pthread_mutex_unlock(&client->objects.lock);
    return session;
}

/* ---- sessions --------------------------------------------------------------------------- */

/* Makes a session the current one. work held. */
static enum nxl_code session_publish(struct nxl_client *client, struct nxl_session *session,
                                     struct nxl_err *err)
{
    struct nxl_session *old = atomic_load(&client->session);
    struct epoll_event wake = {.events = EPOLLIN}, end = {.events = EPOLLRDHUP};
    uint64_t one = 1;
    int failed;

    /* The event lock keeps nxl_client_arm() away from descriptors that are about to close, the
     * objects lock nxl_client_pin() away from a session that is about to lose its last ref. */
    pthread_mutex_lock(&client->event.lock);
    failed = epoll_ctl(client->poll_fd, EPOLL_CTL_ADD, session->wake, &wake) != 0 ||
             epoll_ctl(client->poll_fd, EPOLL_CTL_ADD, session->fd, &end) != 0;
    if (!failed) {
        if (old) {
            /* By hand, because a forked child may keep the descriptors' other ends open. */
            (void)epoll_ctl(client->poll_fd, EPOLL_CTL_DEL, old->wake, NULL);
            (void)epoll_ctl(client->poll_fd, EPOLL_CTL_DEL, old->fd, NULL);
            (void)!write(session->wake, &one, sizeof(one)); /* the application shall look */
        }
        client->event.seen_ended = client->event.seen_head = 0;
        atomic_store(&client->session, session);
    }
    pthread_mutex_unlock(&client->event.lock);
    if (failed)
        return nxl_err_set(err, NXL_LIMIT, errno, "watch the agent's descriptors");
    pthread_mutex_lock(&client->objects.lock); /* whoever read the old one has its ref by now */
    pthread_mutex_unlock(&client->objects.lock);
    if (old) {
        while (!atomic_load(&old->told))
            sched_yield(); /* another thread is about to finish telling */
        nxl_session_unref(old);
    }
    return NXL_OK;
}

static void session_discard(struct nxl_session *session)
{
    atomic_store(&session->gone, 1);
    atomic_store(&session->told, 1);
    nxl_session_unref(session);
}

static enum nxl_code reconnect(struct nxl_client *client, struct nxl_err *err)
{
    struct nxl_session *session;
    enum nxl_code code;

    if (!client->options.reconnect)
        return nxl_err_set(err, NXL_NO_AGENT, 0,
                           "the agent at '%s' went away, and this client does not reconnect",
                           client->path);
    code = nxl_session_open(client, &session, err);
    if (code != NXL_OK)
        return nxl_err_wrap(err, code, "reconnect after the agent went away");
    session->next = client->work.sessions;
    client->work.sessions = session;
    for (struct nxl_peer *peer = client->event.peers; peer && code == NXL_OK; peer = peer->next)
        code = nxl_peer_revive(peer, session, err);
    if (code == NXL_OK)
        code = session_publish(client, session, err);
    if (code != NXL_OK) {
        session_discard(session);
        return nxl_err_wrap(err, code, "reconnect after the agent went away");
    }
    client->reconnects++;
    return NXL_OK;
}

enum nxl_code nxl_client_enter(struct nxl_client *client, struct nxl_session **ret,
                               struct nxl_err *err)
{
    struct nxl_session *session;
    enum nxl_code code = NXL_OK;

    if (!client)
        return nxl_err_set(err, NXL_INVALID_PARAM, 0, "client is NULL");
    if (nxl_client_forked(client, err))
        return NXL_NOT_ALLOWED;
    pthread_mutex_lock(&client->work.lock);
    session = atomic_load(&client->session);
    if (!atomic_load(&session->gone) && nxl_session_probe(session))
        nxl_session_lost(session);
    if (atomic_load(&session->gone))
        code = reconnect(client, err);
    if (code != NXL_OK) {
        pthread_mutex_unlock(&client->work.lock);
        return code;
    }
    session = atomic_load(&client->session);
    nxl_submit_flush_lists(session, 1);
    *ret = session;
    return NXL_OK;
}

void nxl_client_leave(struct nxl_client *client)
{
    pthread_mutex_unlock(&client->work.lock);
}

enum nxl_code nxl_client_pause(struct nxl_client *client, struct nxl_session **ret,
                               struct nxl_err *err)
{
    enum nxl_code code = nxl_client_enter(client, ret, err);

    if (code != NXL_OK)
        return code;
    nxl_session_ref(*ret);
    pthread_mutex_unlock(&client->work.lock);
    return NXL_OK;
}

int nxl_client_resume(struct nxl_client *client, struct nxl_session *session)
{
    int current;

    pthread_mutex_lock(&client->work.lock);
    current = atomic_load(&client->session) == session;
    nxl_session_unref(session);
    return current;
}

/* ---- the application's calls ------------------------------------------------------------ */

static void client_free(struct nxl_client *client)
{
    struct nxl_session *current = atomic_load(&client->session);

    if (current)
        atomic_store(&current->gone, 1); /* nothing below shall want to tell the agent anything */
    while (client->objects.transfers)
        nxl_transfer_drop(client->objects.transfers);
    while (client->objects.graves) {
        struct nxl_transfer *grave = client->objects.graves;

        client->objects.graves = grave->next;
        free(grave);
    }
    while (client->objects.lists) {
        client->objects.lists->refs = 1;
        nxl_list_unref(client->objects.lists);
    }
    while (client->event.peers) {
        client->event.peers->refs = 1;
        nxl_peer_unref(client->event.peers);
    }
    while (client->objects.closed) {
        client->objects.closed->refs = 1;
        nxl_peer_unref(client->objects.closed);
    }
    while (client->work.sessions) {
        struct nxl_session *session = client->work.sessions;

        client->work.sessions = session->next;
        nxl_session_free(session);
    }
    if (client->poll_fd >= 0)
        close(client->poll_fd);
    pthread_mutex_destroy(&client->work.lock);
    pthread_mutex_destroy(&client->event.lock);
    pthread_mutex_destroy(&client->objects.lock);
    free(client->path);
    free(client);
}

enum nxl_code nxl_client_open(const struct nxl_client_options *options, struct nxl_client **ret,
                              struct nxl_err *err)
{
    struct nxl_client_options normal;
    struct nxl_client *client;
    struct nxl_session *session;
    enum nxl_code code = options_read(options, &normal, err);

    if (code != NXL_OK)
        return code;
    pthread_once(&forks_once, forks_watch);
    client = calloc(1, sizeof(*client));
    if (!client)
        return nxl_err_set(err, NXL_LIMIT, ENOMEM, "open a client");
    client->forks = atomic_load(&forks);
    client->path = strdup(socket_path(&normal));
    client->options = normal;
    client->options.socket_path = NULL;
    client->poll_fd = epoll_create1(EPOLL_CLOEXEC);
    pthread_mutex_init(&client->work.lock, NULL);
    pthread_mutex_init(&client->event.lock, NULL);
    pthread_mutex_init(&client->objects.lock, NULL);
    if (!client->path || client->poll_fd < 0) {
        code = nxl_err_set(err, NXL_LIMIT, errno, "open a client");
        client_free(client);
        return code;
    }
    code = nxl_session_open(client, &session, err);
    if (code == NXL_OK) {
        client->work.sessions = session;
        code = session_publish(client, session, err);
    }
    if (code != NXL_OK) {
        client_free(client);
        return code;
    }
    *ret = client;
    return NXL_OK;
}

/* No lock is taken: nobody else may use the client any more, and in a forked child a lock may be
 * held by a thread that does not exist there. */
void nxl_client_close(struct nxl_client *client)
{
    if (client)
        client_free(client);
}

int nxl_client_fd(const struct nxl_client *client)
{
    return client->poll_fd;
}

enum nxl_code nxl_client_check(struct nxl_client *client, struct nxl_err *err)
{
    struct nxl_session *session;
    enum nxl_code code = nxl_client_enter(client, &session, err);

    if (code == NXL_OK)
        nxl_client_leave(client);
    return code;
}

enum nxl_code nxl_client_info(struct nxl_client *client, struct nxl_client_info *ret)
{
    struct nxl_client_info info = {0};
    struct nxl_session *session;

    if (!client || !ret)
        return NXL_INVALID_PARAM;
    if (nxl_client_forked(client, NULL))
        return NXL_NOT_ALLOWED;
    pthread_mutex_lock(&client->work.lock);
    session = atomic_load(&client->session);
    info.session = session->number;
    memcpy(info.agent_incarnation, session->incarnation, sizeof(info.agent_incarnation));
    memcpy(info.node, session->node, sizeof(info.node));
    memcpy(info.ns, session->ns, sizeof(info.ns));
    memcpy(info.backends, session->backends, sizeof(info.backends));
    info.reconnects = client->reconnects;
    pthread_mutex_unlock(&client->work.lock);
    info.size = ret->size;
    memcpy(ret, &info, ret->size < sizeof(info) ? ret->size : sizeof(info));
    return NXL_OK;
}
