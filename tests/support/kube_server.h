/* kube_server.h - a private Kubernetes control plane for tests: etcd, kube-apiserver and, if
 * wanted, a second API server, controller-manager and scheduler, on loopback with free ports in a
 * temporary folder. Every part can be stopped, killed and started by itself; all die with the test.
 */
#ifndef NXL_TESTS_KUBE_SERVER_H
#define NXL_TESTS_KUBE_SERVER_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum kube_part {
    KUBE_ETCD = 0,
    KUBE_APISERVER,
    KUBE_APISERVER_B, /* on the same etcd, through kube_server_etcd_b() if set */
    KUBE_MANAGER,
    KUBE_SCHEDULER,
    KUBE_PARTS
};

struct kube_server;

/* NULL if the binaries are there, else why not: print "SKIP: why" and end with 77. */
const char *kube_server_missing(void);
struct kube_server *kube_server_new(void);         /* folder, keys and ports, but no process yet */
void kube_server_free(struct kube_server *server); /* kills all and removes the folder */
/* Before the start of part: one more flag, such as "--watch-cache=false". */
void kube_server_flag(struct kube_server *server, enum kube_part part, const char *flag);
/* Before the first start: pods need their service account, as in a cluster. KUBE_MANAGER makes
 * them, so start it too. */
void kube_server_managed(struct kube_server *server);
/* etcd and the API server, and returns when it is ready; aborts after 90 s. */
void kube_server_up(struct kube_server *server);
/* Our CRDs, and returns when objects of them are served. */
void kube_server_crds(struct kube_server *server);

/* One part. start returns when an API server is ready, when the manager has made the service
 * account "default"; for etcd and the scheduler at once. Data and ports stay over a kill and a
 * start. */
void kube_server_start(struct kube_server *server, enum kube_part part);
void kube_server_spawn(struct kube_server *server, enum kube_part part); /* without waiting */
void kube_server_kill(struct kube_server *server, enum kube_part part);  /* SIGKILL, and reaps */
void kube_server_end(struct kube_server *server, enum kube_part part);   /* SIGTERM, and reaps */
void kube_server_pause(struct kube_server *server, enum kube_part part); /* SIGSTOP */
void kube_server_resume(struct kube_server *server, enum kube_part part);
pid_t kube_server_pid(const struct kube_server *server, enum kube_part part); /* 0: not running */
int kube_server_ready(struct kube_server *server, enum kube_part part); /* asks /readyz once */
/* Where the second API server finds etcd, such as a fault proxy; before its start. */
void kube_server_etcd_b(struct kube_server *server, const char *url);

/* Of KUBE_ETCD (http) and the API servers (https). */
uint16_t kube_server_port(const struct kube_server *server, enum kube_part part);
const char *kube_server_url(const struct kube_server *server, enum kube_part part);
/* A file in the folder: "pki/ca.crt", "pki/sa.key", "pki/admin.kubeconfig", "pki/admin.token" (of
 * system:masters), "audit.log", "audit-b.log", "apiserver.log". Lent until the server is freed. */
const char *kube_server_file(struct kube_server *server, const char *name);

struct kube_answer {
    long status;      /* HTTP, or 0 when nobody answered */
    const char *text; /* body, ends with 0; lent until the next call */
    size_t size;
};
/* One blocking request as system:masters to the first API server. body NULL: none. type NULL:
 * application/json. */
struct kube_answer kube_server_ask(struct kube_server *server, const char *method, const char *path,
                                   const char *type, const char *body);
/* The same with an Accept header. */
struct kube_answer kube_server_get(struct kube_server *server, const char *path,
                                   const char *accept);
/* How long a request may last before its status is 0; 30 s at first. */
void kube_server_patience(struct kube_server *server, long ms);
/* kubectl with these words; returns its exit status, text is what it wrote to both outputs. */
struct kube_answer kube_server_kubectl(struct kube_server *server, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Asks path until the answer has this status, at most seconds long. 1 if so. */
int kube_server_until(struct kube_server *server, const char *path, long status, int seconds);

#endif
