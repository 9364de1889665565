/* The issuing authority: what it signs is what agents accept from each other, and nothing else. */
#include "support/stream_rig.h"

#include <cmocka.h>

#include <openssl/ssl.h>
#include <string.h>

static struct nxl_authority *authority;
static struct nxl_err err;

static int setup(void **state)
{
    assert_int_equal(nxl_authority_make("prod", &authority, &err), NXL_OK);
    return 0;
}

static int teardown(void **state)
{
    nxl_authority_close(authority);
    return 0;
}

static struct nxl_view view_of(const struct nxl_bytes *bytes)
{
    return (struct nxl_view){bytes->data, bytes->size};
}

static struct nxl_view text_of(const char *text)
{
    return (struct nxl_view){text, strlen(text)};
}

/* An agent's trust with a certificate of `from`, asked for as `node`, signed for `signed_for`. */
static enum nxl_code issue(struct nxl_authority *from, const char *cluster, const char *node,
                           const char *signed_for, struct nxl_trust **ret)
{
    struct nxl_bytes csr = {0}, cert = {0};
    enum nxl_code code;

    assert_int_equal(nxl_trust_open_pending(cluster, node, ret, &err), NXL_OK);
    assert_false(nxl_trust_ready(*ret));
    assert_null(nxl_trust_ssl(*ret, 1));
    assert_int_equal(nxl_trust_request(*ret, &csr, &err), NXL_OK);
    csr.size--; /* its NUL */
    code = nxl_authority_sign(from, view_of(&csr), signed_for, "pod-uid", 3600, &cert, &err);
    if (code == NXL_OK)
        code = nxl_trust_take(*ret, view_of(&cert), text_of(nxl_authority_bundle(from)), &err);
    nxl_bytes_fini(&csr);
    nxl_bytes_fini(&cert);
    return code;
}

static int shake(struct nxl_trust *server, struct nxl_trust *client, char *node, size_t room)
{
    SSL *a = nxl_trust_ssl(server, 1), *b = nxl_trust_ssl(client, 0);
    BIO *to_a, *to_b;
    int done = 0;

    assert_int_equal(BIO_new_bio_pair(&to_a, 0, &to_b, 0), 1);
    SSL_set_bio(a, to_a, to_a);
    SSL_set_bio(b, to_b, to_b);
    for (int i = 0; i < 20 && done != 2; i++)
        done = (SSL_do_handshake(b) == 1) + (SSL_do_handshake(a) == 1);
    if (done == 2 && nxl_trust_peer(server, a, node, room, &err) != NXL_OK)
        done = 0;
    SSL_free(a);
    SSL_free(b);
    return done == 2;
}

static void two_agents_with_issued_certificates_accept_each_other(void **state)
{
    struct nxl_trust *one, *two;
    char node[64];

    assert_int_equal(issue(authority, "prod", "n1", "n1", &one), NXL_OK);
    assert_int_equal(issue(authority, "prod", "n2", "n2", &two), NXL_OK);
    assert_true(nxl_trust_ready(one));
    assert_in_range(nxl_trust_left_s(one), 3500, 3600);
    assert_true(shake(one, two, node, sizeof(node)));
    assert_string_equal(node, "n2");
    nxl_trust_close(one);
    nxl_trust_close(two);
}

static void facts_signed_with_an_issued_certificate_are_verified(void **state)
{
    struct nxl_trust *one, *two;
    struct nxl_bytes signature = {0};
    char node[64];

    assert_int_equal(issue(authority, "prod", "n1", "n1", &one), NXL_OK);
    assert_int_equal(issue(authority, "prod", "n2", "n2", &two), NXL_OK);
    assert_int_equal(nxl_trust_sign(one, text_of("x is dead"), &signature, &err), NXL_OK);
    assert_int_equal(
        nxl_trust_verify(two, text_of("x is dead"), view_of(&signature), node, sizeof(node), &err),
        NXL_OK);
    assert_string_equal(node, "n1");
    assert_int_equal(
        nxl_trust_verify(two, text_of("y is dead"), view_of(&signature), node, sizeof(node), &err),
        NXL_NOT_ALLOWED);
    nxl_bytes_fini(&signature);
    nxl_trust_close(one);
    nxl_trust_close(two);
}

static void a_certificate_of_another_authority_is_refused(void **state)
{
    struct nxl_authority *other;
    struct nxl_trust *one, *two;
    char node[64];

    assert_int_equal(nxl_authority_make("prod", &other, &err), NXL_OK);
    assert_int_equal(issue(authority, "prod", "n1", "n1", &one), NXL_OK);
    assert_int_equal(issue(other, "prod", "n2", "n2", &two), NXL_OK);
    assert_false(shake(one, two, node, sizeof(node)));
    nxl_trust_close(one);
    nxl_trust_close(two);
    nxl_authority_close(other);
}

/* The node comes from the checked token, not from the request: an agent cannot ask for another's.
 */
static void the_request_has_no_say_in_the_name(void **state)
{
    struct nxl_trust *trust;

    assert_int_equal(issue(authority, "prod", "n1", "n2", &trust), NXL_MISMATCH);
    assert_non_null(strstr(err.text, "of node 'n2'"));
    assert_false(nxl_trust_ready(trust));
    nxl_trust_close(trust);
    assert_int_equal(issue(authority, "test", "n1", "n1", &trust),
                     NXL_MISMATCH); /* other cluster */
    nxl_trust_close(trust);
}

static void a_certificate_for_another_key_is_refused_and_the_old_one_stays(void **state)
{
    struct nxl_trust *one, *two;
    struct nxl_bytes csr = {0}, cert = {0};

    assert_int_equal(issue(authority, "prod", "n1", "n1", &one), NXL_OK);
    assert_int_equal(nxl_trust_open_pending("prod", "n1", &two, &err), NXL_OK);
    assert_int_equal(nxl_trust_request(two, &csr, &err), NXL_OK);
    assert_int_equal(nxl_authority_sign(authority, view_of(&csr), "n1", "", 60, &cert, &err),
                     NXL_OK);
    assert_int_equal(
        nxl_trust_take(one, view_of(&cert), text_of(nxl_authority_bundle(authority)), &err),
        NXL_MISMATCH);
    assert_in_range(nxl_trust_left_s(one), 3500, 3600);
    assert_int_equal(nxl_trust_take(one, text_of("nonsense"), text_of("nonsense"), &err),
                     NXL_MISMATCH);
    nxl_bytes_fini(&csr);
    nxl_bytes_fini(&cert);
    nxl_trust_close(one);
    nxl_trust_close(two);
}

static void requests_that_prove_nothing_are_not_signed(void **state)
{
    struct nxl_trust *trust;
    struct nxl_bytes csr = {0}, cert = {0};
    char *middle;

    assert_int_equal(nxl_trust_open_pending("prod", "n1", &trust, &err), NXL_OK);
    assert_int_equal(nxl_trust_request(trust, &csr, &err), NXL_OK);
    assert_int_equal(nxl_authority_sign(authority, text_of("x"), "n1", "", 60, &cert, &err),
                     NXL_INVALID_PARAM);
    assert_int_equal(nxl_authority_sign(authority, view_of(&csr), "", "", 60, &cert, &err),
                     NXL_INVALID_PARAM);
    middle = (char *)csr.data + csr.size / 2; /* a request that somebody has touched */
    *middle = *middle == 'A' ? 'B' : 'A';
    assert_int_equal(nxl_authority_sign(authority, view_of(&csr), "n1", "", 60, &cert, &err),
                     NXL_INVALID_PARAM);
    assert_int_equal(cert.size, 0);
    nxl_bytes_fini(&csr);
    nxl_trust_close(trust);
}

static void what_was_kept_is_the_same_authority_again(void **state)
{
    struct nxl_bytes cert = {0}, key = {0};
    struct nxl_authority *again;
    struct nxl_trust *one, *two;
    unsigned char a[80], b[80], c[80];
    char node[64];

    assert_int_equal(nxl_authority_pem(authority, &cert, &key, &err), NXL_OK);
    assert_int_equal(nxl_authority_open("prod", view_of(&cert), view_of(&key), &again, &err),
                     NXL_OK);
    assert_string_equal(nxl_authority_bundle(again), nxl_authority_bundle(authority));
    assert_int_equal(issue(authority, "prod", "n1", "n1", &one), NXL_OK);
    assert_int_equal(issue(again, "prod", "n2", "n2", &two), NXL_OK);
    assert_true(shake(one, two, node, sizeof(node)));
    assert_int_equal(nxl_authority_secret(authority, "tickets", a, sizeof(a), &err), NXL_OK);
    assert_int_equal(nxl_authority_secret(again, "tickets", b, sizeof(b), &err), NXL_OK);
    assert_int_equal(nxl_authority_secret(again, "other", c, sizeof(c), &err), NXL_OK);
    assert_memory_equal(a, b, sizeof(a));
    assert_memory_not_equal(a, c, sizeof(a));
    nxl_trust_close(one);
    nxl_trust_close(two);
    nxl_authority_close(again);
    nxl_bytes_fini(&cert);
    nxl_bytes_fini(&key);
}

static void what_is_no_authority_is_refused(void **state)
{
    struct nxl_bytes cert = {0}, key = {0}, leaf = {0}, leaf_key = {0};
    struct nxl_authority *other, *bad;
    struct nxl_bytes other_cert = {0}, other_key = {0};

    assert_int_equal(nxl_authority_make("prod", &other, &err), NXL_OK);
    assert_int_equal(nxl_authority_pem(authority, &cert, &key, &err), NXL_OK);
    assert_int_equal(nxl_authority_pem(other, &other_cert, &other_key, &err), NXL_OK);
    assert_int_equal(nxl_authority_serve(authority, "a,10.0.0.1", 60, &leaf, &leaf_key, &err),
                     NXL_OK);
    assert_int_equal(nxl_authority_open("prod", text_of("x"), view_of(&key), &bad, &err),
                     NXL_CONFIG);
    assert_int_equal(nxl_authority_open("prod", view_of(&cert), text_of("x"), &bad, &err),
                     NXL_CONFIG);
    assert_int_equal(nxl_authority_open("prod", view_of(&cert), view_of(&other_key), &bad, &err),
                     NXL_CONFIG);
    assert_non_null(strstr(err.text, "does not belong"));
    assert_int_equal(nxl_authority_open("prod", view_of(&leaf), view_of(&leaf_key), &bad, &err),
                     NXL_CONFIG);
    assert_non_null(strstr(err.text, "none of an authority"));
    nxl_authority_close(other);
    nxl_bytes_fini(&cert);
    nxl_bytes_fini(&key);
    nxl_bytes_fini(&leaf);
    nxl_bytes_fini(&leaf_key);
    nxl_bytes_fini(&other_cert);
    nxl_bytes_fini(&other_key);
}

/* A rotation: the new authority signs, the old one's certificates are still believed. */
static void a_bundle_carries_the_authority_before(void **state)
{
    struct nxl_bytes cert = {0}, key = {0}, old = {0}, old_key = {0};
    struct nxl_authority *next, *both;
    struct nxl_trust *one, *two;
    char node[64];

    assert_int_equal(nxl_authority_make("prod", &next, &err), NXL_OK);
    assert_int_equal(nxl_authority_pem(next, &cert, &key, &err), NXL_OK);
    assert_int_equal(nxl_authority_pem(authority, &old, &old_key, &err), NXL_OK);
    nxl_bytes_put(&cert, old.data, old.size);
    assert_int_equal(nxl_authority_open("prod", view_of(&cert), view_of(&key), &both, &err),
                     NXL_OK);
    assert_int_equal(issue(both, "prod", "n1", "n1", &one), NXL_OK);
    assert_int_equal(issue(authority, "prod", "n2", "n2", &two), NXL_OK);
    assert_false(shake(one, two, node, sizeof(node))); /* two has not got the new bundle yet */
    nxl_trust_close(two);
    assert_int_equal(issue(both, "prod", "n2", "n2", &two), NXL_OK);
    assert_true(shake(one, two, node, sizeof(node)));
    nxl_trust_close(one);
    nxl_trust_close(two);
    nxl_authority_close(next);
    nxl_authority_close(both);
    nxl_bytes_fini(&cert);
    nxl_bytes_fini(&key);
    nxl_bytes_fini(&old);
    nxl_bytes_fini(&old_key);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_agents_with_issued_certificates_accept_each_other),
        cmocka_unit_test(facts_signed_with_an_issued_certificate_are_verified),
        cmocka_unit_test(a_certificate_of_another_authority_is_refused),
        cmocka_unit_test(the_request_has_no_say_in_the_name),
        cmocka_unit_test(a_certificate_for_another_key_is_refused_and_the_old_one_stays),
        cmocka_unit_test(requests_that_prove_nothing_are_not_signed),
        cmocka_unit_test(what_was_kept_is_the_same_authority_again),
        cmocka_unit_test(what_is_no_authority_is_refused),
        cmocka_unit_test(a_bundle_carries_the_authority_before),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
