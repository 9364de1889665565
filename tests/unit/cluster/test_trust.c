/* test_trust.c - certificates from deploy/certs.sh: what is refused at open, TLS between two ends
 * in memory, and signatures over facts. */
#include "link_rig.h"

#include "cluster/trust.h"

#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <string.h>

static char good[64], other[64], expired[64], foreign[64]; /* folders */

static int make_certs(void **state)
{
    certs_make(good, sizeof(good), "kl", "30", "node-a", "node-b", NULL);
    certs_make(other, sizeof(other), "kl", "30", "node-a",
               NULL); /* same names, another authority */
    certs_make(foreign, sizeof(foreign), "xx", "30", "node-a", NULL);
    certs_make(expired, sizeof(expired), "kl", "30", "node-z", NULL);
    certs_make(expired, sizeof(expired), "kl", "0", "node-a", NULL);
    return 0;
}

static int remove_certs(void **state)
{
    certs_remove(good);
    certs_remove(other);
    certs_remove(foreign);
    certs_remove(expired);
    return 0;
}

static const char *in(const char *folder, const char *file)
{
    static char paths[32][192];
    static unsigned next;
    char *path = paths[next++ % 32];

    (void)snprintf(path, sizeof(paths[0]), "%s/%s", folder, file);
    return path;
}

static struct nxl_trust *open_good(const char *node)
{
    struct nxl_trust *trust = NULL;
    struct nxl_err err = {0};
    char cert[80], key[80];

    (void)snprintf(cert, sizeof(cert), "%s.pem", node);
    (void)snprintf(key, sizeof(key), "%s.key", node);
    if (nxl_trust_open(in(good, cert), in(good, key), in(good, "ca.pem"), "kl", node, &trust,
                       &err) != NXL_OK)
        fail_msg("open: %s", err.text);
    return trust;
}

static void what_does_not_fit_is_refused_with_file_and_reason(void **state)
{
    const struct {
        const char *cert, *key, *ca, *cluster, *node, *word;
    } rows[] = {
        {in(good, "none.pem"), in(good, "node-a.key"), in(good, "ca.pem"), "kl", "node-a",
         "none.pem"},
        {in(good, "node-a.key"), in(good, "node-a.key"), in(good, "ca.pem"), "kl", "node-a",
         "certificate file"},
        {in(good, "node-a.pem"), in(good, "node-a.pem"), in(good, "ca.pem"), "kl", "node-a",
         "key file"},
        {in(good, "node-a.pem"), in(good, "node-b.key"), in(good, "ca.pem"), "kl", "node-a",
         "does not belong"},
        {in(good, "node-a.pem"), in(good, "node-a.key"), in(other, "ca.pem"), "kl", "node-a",
         "authority file"},
        {in(good, "node-a.pem"), in(good, "node-a.key"), in(good, "none"), "kl", "node-a",
         "authority file"},
        {in(expired, "node-a.pem"), in(expired, "node-a.key"), in(expired, "ca.pem"), "kl",
         "node-a", "expired"},
        {in(foreign, "node-a.pem"), in(foreign, "node-a.key"), in(foreign, "ca.pem"), "kl",
         "node-a", "nixlet://kl/"},
        {in(good, "node-a.pem"), in(good, "node-a.key"), in(good, "ca.pem"), "kl", "node-b",
         "of node 'node-a'"},
    };

    for (size_t i = 0; i < NXL_COUNT_OF(rows); i++) {
        struct nxl_trust *trust = (void *)1;
        struct nxl_err err = {0};

        assert_int_equal(nxl_trust_open(rows[i].cert, rows[i].key, rows[i].ca, rows[i].cluster,
                                        rows[i].node, &trust, &err),
                         NXL_CONFIG);
        if (strstr(err.text, rows[i].word) == NULL)
            fail_msg("row %zu: '%s' is not in '%s'", i, rows[i].word, err.text);
        assert_ptr_equal(trust, (void *)1);
    }
}

/* ---- TLS in memory ------------------------------------------------------------------------ */

static void connect_in_memory(SSL *server, SSL *client)
{
    BIO *to_server = BIO_new(BIO_s_mem()), *to_client = BIO_new(BIO_s_mem());

    assert_int_equal(BIO_up_ref(to_server), 1);
    assert_int_equal(BIO_up_ref(to_client), 1);
    BIO_set_mem_eof_return(to_server, -1);
    BIO_set_mem_eof_return(to_client, -1);
    SSL_set_bio(server, to_server, to_client);
    SSL_set_bio(client, to_client, to_server);
}

/* 1 if both ends are through; TLS 1.3 clients hear of a refusal only at their first read. */
static int shake(SSL *server, SSL *client)
{
    int done_server = 0, done_client = 0;

    for (int turn = 0; turn < 10 && !(done_server && done_client); turn++) {
        done_client = done_client || SSL_do_handshake(client) == 1;
        done_server = done_server || SSL_do_handshake(server) == 1;
    }
    return done_server && done_client;
}

static void both_ends_learn_the_node_of_the_other(void **state)
{
    struct nxl_trust *a = open_good("node-a"), *b = open_good("node-b");
    SSL *server = nxl_trust_ssl(a, 1), *client = nxl_trust_ssl(b, 0);
    char node[64];
    struct nxl_err err;

    connect_in_memory(server, client);
    assert_true(shake(server, client));
    assert_string_equal(SSL_get_version(client), "TLSv1.3");
    assert_int_equal(nxl_trust_peer(a, server, node, sizeof(node), &err), NXL_OK);
    assert_string_equal(node, "node-b");
    assert_int_equal(nxl_trust_peer(b, client, node, sizeof(node), &err), NXL_OK);
    assert_string_equal(node, "node-a");
    assert_int_equal(nxl_trust_peer(b, client, node, 3, &err), NXL_NOT_ALLOWED);
    SSL_free(server);
    SSL_free(client);
    nxl_trust_close(a);
    nxl_trust_close(b);
}

/* A stranger's end: no certificate at all when folder is NULL. */
static SSL *stranger(const char *folder, const char *node, int version)
{
    SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
    char cert[80], key[80];
    SSL *ssl;

    (void)snprintf(cert, sizeof(cert), "%s.pem", node);
    (void)snprintf(key, sizeof(key), "%s.key", node);
    if (folder != NULL) {
        assert_int_equal(SSL_CTX_use_certificate_file(ctx, in(folder, cert), SSL_FILETYPE_PEM), 1);
        assert_int_equal(SSL_CTX_use_PrivateKey_file(ctx, in(folder, key), SSL_FILETYPE_PEM), 1);
    }
    assert_int_equal(SSL_CTX_set_max_proto_version(ctx, version), 1);
    ssl = SSL_new(ctx);
    SSL_CTX_free(ctx);
    SSL_set_connect_state(ssl);
    return ssl;
}

static void strangers_do_not_get_through_the_handshake(void **state)
{
    const struct {
        const char *folder, *node;
        int version;
        int through;
    } rows[] = {
        {good, "node-b", TLS1_3_VERSION, 1}, /* so the table can fail */
        {good, "node-b", TLS1_2_VERSION, 0},  {NULL, "", TLS1_3_VERSION, 0},
        {other, "node-a", TLS1_3_VERSION, 0}, {good, "node-late", TLS1_3_VERSION, 0}, /* expired */
    };
    struct nxl_trust *a = open_good("node-a");

    certs_make(good, sizeof(good), "kl", "0", "node-late", NULL);
    for (size_t i = 0; i < NXL_COUNT_OF(rows); i++) {
        SSL *server = nxl_trust_ssl(a, 1),
            *client = stranger(rows[i].folder, rows[i].node, rows[i].version);

        connect_in_memory(server, client);
        assert_int_equal(shake(server, client), rows[i].through);
        SSL_free(server);
        SSL_free(client);
    }
    nxl_trust_close(a);
}

/* Same authority, right name, another cluster: TLS is content, we are not. */
static void a_certificate_of_another_cluster_is_no_peer(void **state)
{
    struct nxl_trust *a = open_good("node-a");
    SSL *server = nxl_trust_ssl(a, 1), *client;
    char node[64] = "unchanged";
    struct nxl_err err;

    certs_make(good, sizeof(good), "xx", "30", "node-x", NULL);
    client = stranger(good, "node-x", TLS1_3_VERSION);
    connect_in_memory(server, client);
    assert_true(shake(server, client));
    assert_int_equal(nxl_trust_peer(a, server, node, sizeof(node), &err), NXL_NOT_ALLOWED);
    assert_non_null(strstr(err.text, "nixlet://xx/node/node-x"));
    assert_string_equal(node, "unchanged");
    SSL_free(server);
    SSL_free(client);
    nxl_trust_close(a);
}

/* ---- signatures --------------------------------------------------------------------------- */

static void a_signature_tells_who_signed(void **state)
{
    struct nxl_trust *a = open_good("node-a"), *b = open_good("node-b");
    const struct nxl_view text = {"dead u/c/1", 10};
    struct nxl_bytes blob = {0};
    char node[64];
    struct nxl_err err;

    assert_int_equal(nxl_trust_sign(a, text, &blob, &err), NXL_OK);
    assert_int_equal(nxl_trust_verify(b, text, (struct nxl_view){blob.data, blob.size}, node,
                                      sizeof(node), &err),
                     NXL_OK);
    assert_string_equal(node, "node-a");
    nxl_bytes_fini(&blob);
    nxl_trust_close(a);
    nxl_trust_close(b);
}

static void every_change_of_text_or_signature_is_refused(void **state)
{
    struct nxl_trust *a = open_good("node-a");
    char text[] = "dead u/c/1";
    const struct nxl_view view = {text, sizeof(text) - 1};
    struct nxl_bytes blob = {0};
    char node[64] = "unchanged";
    struct nxl_err err;

    assert_int_equal(nxl_trust_sign(a, view, &blob, &err), NXL_OK);
    for (size_t i = 0; i < view.size; i++) {
        text[i] ^= 1;
        assert_int_equal(nxl_trust_verify(a, view, (struct nxl_view){blob.data, blob.size}, node,
                                          sizeof(node), &err),
                         NXL_NOT_ALLOWED);
        text[i] ^= 1;
    }
    for (size_t i = 0; i < blob.size; i++) {
        blob.data[i] ^= 1;
        assert_int_not_equal(nxl_trust_verify(a, view, (struct nxl_view){blob.data, blob.size},
                                              node, sizeof(node), &err),
                             NXL_OK);
        blob.data[i] ^= 1;
        assert_int_not_equal(
            nxl_trust_verify(a, view, (struct nxl_view){blob.data, i}, node, sizeof(node), &err),
            NXL_OK);
    }
    assert_string_equal(node, "unchanged");
    assert_int_equal(nxl_trust_verify(a, view, (struct nxl_view){blob.data, blob.size}, node,
                                      sizeof(node), &err),
                     NXL_OK);
    nxl_bytes_fini(&blob);
    nxl_trust_close(a);
}

static void a_signature_of_another_authority_is_refused(void **state)
{
    struct nxl_trust *a = open_good("node-a"), *stranger_trust = NULL;
    const struct nxl_view text = {"dead u/c/1", 10};
    struct nxl_bytes blob = {0};
    char node[64];
    struct nxl_err err;

    assert_int_equal(nxl_trust_open(in(other, "node-a.pem"), in(other, "node-a.key"),
                                    in(other, "ca.pem"), "kl", "node-a", &stranger_trust, &err),
                     NXL_OK);
    assert_int_equal(nxl_trust_sign(stranger_trust, text, &blob, &err), NXL_OK);
    assert_int_equal(nxl_trust_verify(a, text, (struct nxl_view){blob.data, blob.size}, node,
                                      sizeof(node), &err),
                     NXL_NOT_ALLOWED);
    nxl_bytes_fini(&blob);
    nxl_trust_close(a);
    nxl_trust_close(stranger_trust);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_does_not_fit_is_refused_with_file_and_reason),
        cmocka_unit_test(both_ends_learn_the_node_of_the_other),
        cmocka_unit_test(strangers_do_not_get_through_the_handshake),
        cmocka_unit_test(a_certificate_of_another_cluster_is_no_peer),
        cmocka_unit_test(a_signature_tells_who_signed),
        cmocka_unit_test(every_change_of_text_or_signature_is_refused),
        cmocka_unit_test(a_signature_of_another_authority_is_refused),
    };

    return cmocka_run_group_tests(tests, make_certs, remove_certs);
}
