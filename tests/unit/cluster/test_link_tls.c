/* test_link_tls.c - links over TLS: who is let in, who is not and is told why, and the same
 * notices. */
#include "link_rig.h"

#include "cluster/link_internal.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static char good[64], other[64]; /* folders */

static int make_certs(void **state)
{
    certs_make(good, sizeof(good), "kl", "30", "node-a", "node-b", NULL);
    certs_make(good, sizeof(good), "kl", "0", "node-late", NULL); /* expired */
    certs_make(good, sizeof(good), "xx", "30", "node-x",
               NULL); /* same authority, another cluster */
    certs_make(other, sizeof(other), "kl", "30", "node-b", NULL); /* another authority */
    return 0;
}

static int remove_certs(void **state)
{
    certs_remove(good);
    certs_remove(other);
    return 0;
}

struct rig {
    struct nxl_loop *loop;
    struct side a, b;
    struct proxy *to_a, *to_b;
};

static int rig_open(void **state)
{
    struct rig *rig = nxl_new0(sizeof(*rig));
    struct nxl_err err;

    assert_int_equal(nxl_loop_open(&rig->loop, &err), NXL_OK);
    *state = rig;
    return 0;
}

static int rig_close(void **state)
{
    struct rig *rig = *state;

    if (rig->a.links != NULL)
        side_close(&rig->a);
    if (rig->b.links != NULL)
        side_close(&rig->b);
    if (rig->to_a != NULL)
        proxy_close(rig->to_a);
    if (rig->to_b != NULL)
        proxy_close(rig->to_b);
    nxl_loop_close(rig->loop);
    free(rig);
    return 0;
}

static void open_tls(struct rig *rig, struct side *side, const char *folder, const char *node,
                     const char *agent, const char *advertise)
{
    char cert[128], key[128], ca[128];

    (void)snprintf(cert, sizeof(cert), "%s/%s.pem", folder, node);
    (void)snprintf(key, sizeof(key), "%s/%s.key", folder, node);
    (void)snprintf(ca, sizeof(ca), "%s/ca.pem", folder);
    side_open(side, rig->loop, node, agent, "link.insecure", "false", "link.cert", cert, "link.key",
              key, "link.ca", ca, "link.advertise", advertise, SETTINGS_END);
}

static void rig_pair(struct rig *rig)
{
    open_tls(rig, &rig->a, good, "node-a", "node-a/boot/1", "");
    open_tls(rig, &rig->b, good, "node-b", "node-b/boot/1", "");
}

static int both_up(struct rig *rig)
{
    return side_is_up(&rig->a, &rig->b) && side_is_up(&rig->b, &rig->a);
}

static void two_agents_come_up_and_know_each_other_by_certificate(void **state)
{
    struct rig *rig = *state;

    rig_pair(rig);
    (void)side_dial(&rig->a, nxl_links_address(rig->b.links), NULL);
    WAIT(rig->loop, both_up(rig));
    assert_string_equal(nxl_link_node(side_link(&rig->a, &rig->b)), "node-b");
    assert_string_equal(side_link(&rig->a, &rig->b)->conn->cert_node, "node-b");
    assert_string_equal(side_link(&rig->b, &rig->a)->conn->cert_node, "node-a");
    assert_string_equal(SSL_get_version(side_link(&rig->a, &rig->b)->conn->ssl), "TLSv1.3");
}

static void large_messages_pass_both_ways_at_once(void **state)
{
    static struct nxl_message_region regions[NXL_MESSAGE_REGIONS_MAX];
    static char key[2000];
    struct rig *rig = *state;
    struct nxl_message message = {
        .type = NXL_MESSAGE_REGIONS, .region_count = NXL_MESSAGE_REGIONS_MAX, .regions = regions};
    struct nxl_err err;

    for (uint32_t i = 0; i < NXL_MESSAGE_REGIONS_MAX; i++) {
        regions[i].key_count = 1;
        regions[i].keys[0].key = (struct nxl_view){key, sizeof(key)};
    }
    rig_pair(rig);
    (void)side_dial(&rig->a, nxl_links_address(rig->b.links), rig->b.agent);
    WAIT(rig->loop, both_up(rig));
    for (int i = 0; i < 6; i++) { /* 1 MB each, more than any socket buffer */
        assert_int_equal(nxl_link_send(side_link(&rig->a, &rig->b), &message, &err), NXL_OK);
        assert_int_equal(nxl_link_send(side_link(&rig->b, &rig->a), &message, &err), NXL_OK);
    }
    WAIT(rig->loop, rig->a.messages == 6 && rig->b.messages == 6);
    assert_int_equal(rig->a.downs + rig->b.downs, 0);
}

static void notices_arrive_exactly_once_over_cuts(void **state)
{
    struct rig *rig = *state;
    unsigned sent = 0;

    rig->to_a = proxy_open(rig->loop);
    rig->to_b = proxy_open(rig->loop);
    open_tls(rig, &rig->a, good, "node-a", "node-a/boot/1", proxy_address(rig->to_a));
    open_tls(rig, &rig->b, good, "node-b", "node-b/boot/1", proxy_address(rig->to_b));
    proxy_target(rig->to_a, side_port(&rig->a));
    proxy_target(rig->to_b, side_port(&rig->b));
    (void)side_dial(&rig->a, proxy_address(rig->to_b), rig->b.agent);
    WAIT(rig->loop, both_up(rig));
    for (int cut = 0; cut < 30; cut++) {
        for (int i = 0; i < 10; i++) {
            side_notify(&rig->a, side_link(&rig->a, &rig->b), sent);
            side_notify(&rig->b, side_link(&rig->b, &rig->a), sent++);
            rig_turn(rig->loop);
        }
        proxy_cut(rig->to_a);
        proxy_cut(rig->to_b);
        if (cut % 3 == 0)
            WAIT(rig->loop, both_up(rig));
    }
    WAIT(rig->loop, rig->a.ends == sent && rig->b.ends == sent);
    assert_int_equal(rig->a.notices, sent);
    assert_int_equal(rig->b.notices, sent);
    for (unsigned i = 0; i < sent; i++)
        assert_true(rig->a.transfers[i] == i && rig->b.transfers[i] == i &&
                    side_ended(&rig->a, i, NXL_OK));
}

/* ---- who is not let in -------------------------------------------------------------------- */

static void agents_of_two_authorities_refuse_each_other(void **state)
{
    struct rig *rig = *state;

    open_tls(rig, &rig->a, good, "node-a", "node-a/boot/1", "");
    open_tls(rig, &rig->b, other, "node-b", "node-b/boot/1", "");
    (void)side_dial(&rig->a, nxl_links_address(rig->b.links), rig->b.agent);
    WAIT(rig->loop, rig->a.downs >= 2);
    assert_non_null(strstr(rig->a.why, "certificate"));
    assert_int_equal(rig->a.ups + rig->b.ups, 0);
    assert_true(side_metric(&rig->a, "nixlet_link_handshake_failures_total", "reason=\"tls\"") >=
                2);
    assert_true(side_metric(&rig->b, "nixlet_link_handshake_failures_total", "reason=\"tls\"") >=
                1);
}

static void plaintext_against_tls_is_refused_on_both_sides_by_name(void **state)
{
    struct rig *rig = *state;

    for (int plain_dials = 0; plain_dials < 2; plain_dials++) {
        struct side *plain = &rig->b, *tls = &rig->a;
        struct side *dialler = plain_dials ? plain : tls;

        open_tls(rig, tls, good, "node-a", "node-a/boot/1", "");
        side_open(plain, rig->loop, "node-b", "node-b/boot/1", SETTINGS_END);
        (void)side_dial(dialler, nxl_links_address(plain_dials ? tls->links : plain->links), NULL);
        WAIT(rig->loop, dialler->downs >= 2);
        assert_int_equal(plain->ups + tls->ups, 0);
        if (plain_dials) {
            assert_non_null(strstr(plain->why, "TLS only"));
            assert_true(side_metric(tls, "nixlet_link_handshake_failures_total",
                                    "reason=\"plaintext\"") >= 1);
        } else {
            assert_true(side_metric(plain, "nixlet_link_handshake_failures_total",
                                    "reason=\"plaintext\"") >= 1);
        }
        side_close(plain);
        side_close(tls);
    }
}

/* A blocking TLS stranger would wait for the loop that waits for it, so its socket does not block.
 */
struct stranger {
    SSL *ssl;
    int fd;
};

static struct stranger stranger_open(struct rig *rig, const char *folder, const char *node)
{
    struct stranger stranger;
    SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
    uint64_t end = nxl_now_ns() + 5 * NXL_SEC;
    char cert[128], key[128];
    int on = 1;

    (void)snprintf(cert, sizeof(cert), "%s/%s.pem", folder, node);
    (void)snprintf(key, sizeof(key), "%s/%s.key", folder, node);
    if (folder[0] != '\0') {
        assert_int_equal(SSL_CTX_use_certificate_file(ctx, cert, SSL_FILETYPE_PEM), 1);
        assert_int_equal(SSL_CTX_use_PrivateKey_file(ctx, key, SSL_FILETYPE_PEM), 1);
    }
    stranger.fd = raw_connect(side_port(&rig->a));
    assert_int_equal(ioctl(stranger.fd, FIONBIO, &on), 0);
    stranger.ssl = SSL_new(ctx);
    SSL_CTX_free(ctx);
    assert_int_equal(SSL_set_fd(stranger.ssl, stranger.fd), 1);
    while (SSL_connect(stranger.ssl) != 1 && nxl_now_ns() < end)
        rig_turn(rig->loop);
    return stranger;
}

/* Sends a hello and reads the first frame's type and text; 0: ended without one. */
static unsigned stranger_ask(struct rig *rig, struct stranger *stranger, const char *cluster,
                             const char *node, const char *agent, char *text, size_t room)
{
    struct nxl_message_decoder *decoder = nxl_message_decoder_new();
    struct nxl_bytes hello = {0};
    unsigned char got[4096];
    size_t have = 0;
    unsigned type = 0;
    uint64_t end = nxl_now_ns() + 5 * NXL_SEC;

    raw_hello(&hello, 1, 1, cluster, node, agent);
    (void)SSL_write(stranger->ssl, hello.data, (int)hello.size);
    while (nxl_now_ns() < end) {
        int size = SSL_read(stranger->ssl, got + have, (int)(sizeof(got) - have));
        struct nxl_message message;
        struct nxl_err err;
        uint32_t frame;

        if (size <= 0 && SSL_get_error(stranger->ssl, size) != SSL_ERROR_WANT_READ)
            break;
        if (size <= 0) {
            rig_turn(rig->loop);
            continue;
        }
        have += (size_t)size;
        memcpy(&frame, got, sizeof(frame));
        if (have < 4 || have < 4 + (size_t)frame)
            continue;
        assert_int_equal(
            nxl_message_decode(decoder, (struct nxl_view){got + 4, frame}, &message, &err), NXL_OK);
        type = message.type;
        (void)nxl_copy_text(text, room, message.text);
        break;
    }
    nxl_bytes_fini(&hello);
    nxl_message_decoder_free(decoder);
    SSL_free(stranger->ssl);
    (void)close(stranger->fd);
    return type;
}

static void strangers_are_refused_and_told_why(void **state)
{
    static const struct {
        const char *folder, *cert_node, *cluster, *node, *agent;
        unsigned type; /* of the answer; 0: TLS ended it */
        const char *word;
    } rows[] = {
        {good, "node-b", "kl", "node-b", "node-b/boot/9", NXL_MESSAGE_HELLO,
         ""},                                                      /* so the table can fail */
        {"", "", "kl", "node-b", "node-b/boot/9", 0, ""},          /* no certificate */
        {other, "node-b", "kl", "node-b", "node-b/boot/9", 0, ""}, /* another authority */
        {good, "node-late", "kl", "node-late", "node-late/boot/9", 0, ""}, /* expired */
        {good, "node-x", "kl", "node-x", "node-x/boot/9", 0,
         ""}, /* certificate of another cluster */
        {good, "node-b", "xx", "node-b", "node-b/boot/9", NXL_MESSAGE_BYE, "cluster"},
        {good, "node-b", "kl", "node-c", "node-c/boot/9", NXL_MESSAGE_BYE,
         "certificate says 'node-b'"},
        {good, "node-b", "kl", "node-b", "node-a/boot/9", NXL_MESSAGE_BYE,
         "node/..."}, /* another node's incarnation */
    };
    struct rig *rig = *state;

    open_tls(rig, &rig->a, good, "node-a", "node-a/boot/1", "");
    for (size_t i = 0; i < NXL_COUNT_OF(rows); i++) {
        struct stranger stranger = stranger_open(rig, rows[i].folder, rows[i].cert_node);
        char text[NXL_ERR_TEXT_SIZE] = "";
        unsigned type = stranger_ask(rig, &stranger, rows[i].cluster, rows[i].node, rows[i].agent,
                                     text, sizeof(text));

        if (type != rows[i].type || strstr(text, rows[i].word) == NULL)
            fail_msg("row %zu: type %u, text '%s'", i, type, text);
    }
    assert_int_equal(rig->a.ups, 1); /* the first row's */
    assert_int_equal(side_metric(&rig->a, "nixlet_link_handshake_failures_total", "reason=\"tls\""),
                     3);
    assert_int_equal(
        side_metric(&rig->a, "nixlet_link_handshake_failures_total", "reason=\"node\""), 3);
    assert_int_equal(
        side_metric(&rig->a, "nixlet_link_handshake_failures_total", "reason=\"cluster\""), 1);
}

#define T(name) cmocka_unit_test_setup_teardown(name, rig_open, rig_close)
int main(void)
{
    const struct CMUnitTest tests[] = {
        T(two_agents_come_up_and_know_each_other_by_certificate),
        T(large_messages_pass_both_ways_at_once),
        T(notices_arrive_exactly_once_over_cuts),
        T(agents_of_two_authorities_refuse_each_other),
        T(plaintext_against_tls_is_refused_on_both_sides_by_name),
        T(strangers_are_refused_and_told_why),
    };

    return cmocka_run_group_tests(tests, make_certs, remove_certs);
}
