/* wait.c - sleeping until the agent has something. Any thread; per session one thread at a time
 * sleeps on the descriptors, the others on a condition, and each wake-up is passed on to all. */
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "client/client.h"

#define SPIN_NS 20000ull

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static int spin(nxl_wait_fn *ready, const void *arg, uint64_t until_ns)
{
    do {
        for (int i = 0; i < 32; i++) {
            if (ready(arg))
                return 1;
            relax();
        }
    } while (nxl_client_now() < until_ns);
    return 0;
}

static int left_ms(uint64_t deadline_ns)
{
    uint64_t now = nxl_client_now();
    uint64_t left;

    if (deadline_ns == UINT64_MAX)
        return -1;
    if (now >= deadline_ns)
        return 0;
    left = (deadline_ns - now + 999999) / 1000000;
    return left > 3600000 ? 3600000 : (int)left;
}

/* Sleeps until something happened since `ended` was read, or the deadline. No lock held. */
static void lead(struct nxl_session *session, uint64_t ended, uint64_t deadline_ns)
{
    struct nxl_ring_header *header = session->ring.header;
    struct epoll_event events[3];
    uint64_t drained;
    int count;

    atomic_store(&session->sleeping, 1);
    atomic_store(&header->client_parked, 1);
    /* What ended before the word was set woke nobody. Compared with the count, not with what this
     * thread waits for, because others rely on this look too. */
    if (atomic_load(&header->ended) == ended &&
        !atomic_load_explicit(&session->gone, memory_order_acquire)) {
        count = epoll_wait(session->epoll, events, 3, left_ms(deadline_ns));
        for (int i = 0; i < count; i++) {
            if (events[i].data.fd == session->nudge)
                (void)!read(session->nudge, &drained, sizeof(drained));
            else if (events[i].data.fd == session->fd)
                nxl_session_lost(session);
        }
    }
    atomic_store(&session->sleeping, 0);
}

static void follow(struct nxl_session *session, uint64_t deadline_ns)
{
    struct timespec until;

    if (deadline_ns == UINT64_MAX) {
        pthread_cond_wait(&session->wait.turn, &session->wait.lock);
        return;
    }
    until.tv_sec = (time_t)(deadline_ns / 1000000000ull);
    until.tv_nsec = (long)(deadline_ns % 1000000000ull);
    pthread_cond_timedwait(&session->wait.turn, &session->wait.lock, &until);
}

enum nxl_code nxl_wait(struct nxl_session *session, nxl_wait_fn *ready, const void *arg,
                       uint64_t timeout_ns)
{
    uint64_t now = nxl_client_now();
    uint64_t deadline_ns = timeout_ns > UINT64_MAX - now ? UINT64_MAX : now + timeout_ns;
    enum nxl_code code = NXL_OK;

    if (ready(arg))
        return NXL_OK;
    if (timeout_ns == 0)
        return NXL_TIMEOUT;
    if (spin(ready, arg, now + SPIN_NS < deadline_ns ? now + SPIN_NS : deadline_ns))
        return NXL_OK;
    pthread_mutex_lock(&session->wait.lock);
    for (;;) {
        uint64_t ended = atomic_load(&session->ring.header->ended);

        if (ready(arg))
            break;
        if (nxl_client_now() >= deadline_ns) {
            code = NXL_TIMEOUT;
            break;
        }
        if (session->wait.led) {
            follow(session, deadline_ns);
            continue;
        }
        session->wait.led = 1;
        pthread_mutex_unlock(&session->wait.lock);
        lead(session, ended, deadline_ns);
        pthread_mutex_lock(&session->wait.lock);
        session->wait.led = 0;
        pthread_cond_broadcast(&session->wait.turn);
    }
    pthread_mutex_unlock(&session->wait.lock);
    return code;
}
