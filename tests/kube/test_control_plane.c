/* test_control_plane.c - the control plane that other tests stand on: what its parts do when they
 * are killed, stopped, or two, and what the audit log tells. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "kube/crd_rig.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char *whole_file(const char *path)
{
    FILE *file = fopen(path, "re");
    char *text = NULL;
    size_t size = 0;

    if (file == NULL || getdelim(&text, &size, '\0', file) < 0)
        fail_msg("cannot read %s", path);
    (void)fclose(file);
    return text;
}

static void create(const char *name)
{
    long status;

    json_decref(crd_send("POST", CRD_PEERS, NULL, crd_peer(name, NULL), &status));
    assert_int_equal(status, 201);
}

static void test_objects_outlive_the_death_of_both_servers(void **state)
{
    create("kept");
    kube_server_kill(crd_server, KUBE_APISERVER);
    assert_int_equal(kube_server_ask(crd_server, "GET", "/readyz", NULL, NULL).status, 0);
    kube_server_kill(crd_server, KUBE_ETCD);
    assert_int_equal(kube_server_pid(crd_server, KUBE_ETCD), 0);
    kube_server_up(crd_server);
    assert_true(kube_server_until(crd_server, CRD_PEERS "/kept", 200, 30));
}

static void test_a_stopped_server_is_silent_and_then_goes_on(void **state)
{
    static const enum kube_part parts[] = {KUBE_ETCD, KUBE_APISERVER};

    for (size_t i = 0; i < 2; i++) {
        long status;

        kube_server_pause(crd_server, parts[i]);
        kube_server_patience(crd_server, 1000);
        json_decref(crd_send("POST", CRD_PEERS, NULL, crd_peer("late", NULL), &status));
        assert_int_equal(status, 0);
        kube_server_patience(crd_server, 30000);
        kube_server_resume(crd_server, parts[i]);
        assert_true(kube_server_until(crd_server, CRD_PEERS "/kept", 200, 30));
        crd_delete(CRD_PEERS "/late"); /* it may have come through after all */
    }
}

static void test_a_second_api_server_serves_the_same_store(void **state)
{
    struct kube_answer answer;

    kube_server_start(crd_server, KUBE_APISERVER_B);
    assert_true(kube_server_port(crd_server, KUBE_APISERVER_B) !=
                kube_server_port(crd_server, KUBE_APISERVER));
    answer = kube_server_kubectl(crd_server, "--server %s get nxp kept -o name",
                                 kube_server_url(crd_server, KUBE_APISERVER_B));
    assert_int_equal(answer.status, 0);
    assert_string_equal(answer.text, "nixlpeer.nixlet.dev/kept\n");
    kube_server_end(crd_server, KUBE_APISERVER_B);
}

static void test_the_audit_log_names_who_did_what(void **state)
{
    char *text = whole_file(kube_server_file(crd_server, "audit.log"));
    char *line = strstr(text, "\"verb\":\"create\",\"user\":{\"username\":\"admin\"");

    assert_non_null(line);
    assert_non_null(
        strstr(line, "\"resource\":\"nixlpeers\",\"namespace\":\"default\",\"name\":\"kept\""));
    assert_null(strstr(text, "\"username\":\"system:apiserver\""));
    free(text);
}

static void test_a_bearer_token_of_the_folder_opens_everything(void **state)
{
    char *token = whole_file(kube_server_file(crd_server, "pki/admin.token"));
    struct kube_answer answer = kube_server_kubectl(
        crd_server,
        "--kubeconfig /dev/null --server %s --certificate-authority %s --token %s get nxp -o name",
        kube_server_url(crd_server, KUBE_APISERVER), kube_server_file(crd_server, "pki/ca.crt"),
        token);

    assert_int_equal(answer.status, 0);
    assert_string_equal(answer.text, "nixlpeer.nixlet.dev/kept\n");
    answer = kube_server_kubectl(
        crd_server,
        "--kubeconfig /dev/null --server %s --certificate-authority %s --token x%s get nxp",
        kube_server_url(crd_server, KUBE_APISERVER), kube_server_file(crd_server, "pki/ca.crt"),
        token);
    assert_int_not_equal(answer.status, 0);
    free(token);
}

/* With the controller-manager what an object owns goes with it. */
static void test_slices_go_with_the_group_that_owns_them(void **state)
{
    long status;
    json_t *peer, *slice = crd_slice("kept-0", "{'peerName':'kept'}");

    kube_server_start(crd_server, KUBE_MANAGER);
    peer = crd_send("GET", CRD_PEERS "/kept", NULL, NULL, &status);
    (void)json_object_set_new(json_object_get(slice, "metadata"), "ownerReferences",
                              json_pack("[{s:s,s:s,s:s,s:O}]", "apiVersion", "nixlet.dev/v1alpha1",
                                        "kind", "NixlPeer", "name", "kept", "uid",
                                        json_object_get(json_object_get(peer, "metadata"), "uid")));
    json_decref(peer);
    json_decref(crd_send("POST", CRD_SLICES, NULL, slice, &status));
    assert_int_equal(status, 201);
    crd_delete(CRD_PEERS "/kept");
    assert_true(kube_server_until(crd_server, CRD_SLICES "/kept-0", 404, 60));
}

static int start(void **state)
{
    crd_server = kube_server_new();
    kube_server_managed(crd_server);
    kube_server_flag(crd_server, KUBE_MANAGER, "--concurrent-gc-syncs=2");
    kube_server_up(crd_server);
    kube_server_crds(crd_server);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_objects_outlive_the_death_of_both_servers),
        cmocka_unit_test(test_a_stopped_server_is_silent_and_then_goes_on),
        cmocka_unit_test(test_a_second_api_server_serves_the_same_store),
        cmocka_unit_test(test_the_audit_log_names_who_did_what),
        cmocka_unit_test(test_a_bearer_token_of_the_folder_opens_everything),
        cmocka_unit_test(test_slices_go_with_the_group_that_owns_them),
    };
    int failed;

    if (kube_server_missing() != NULL) {
        (void)printf("SKIP: %s\n", kube_server_missing());
        return 77;
    }
    failed = cmocka_run_group_tests_name("control plane", tests, start, NULL);
    kube_server_free(crd_server);
    return failed != 0;
}
