/* kube_server.c - starts, pauses, kills and questions the parts of a private control plane. What
 * each part is told stands in tests/kube/component.sh; keys come from tests/kube/pki.sh. Test
 * thread. */
#include "support/kube_server.h"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define FLAGS_MAX 16u
#define FILES_MAX 32u
#define BODY_MAX (64u << 20)

struct part {
    pid_t pid;
    uint16_t port;
    char url[64];
    char *flags[FLAGS_MAX];
    unsigned flag_count;
};

struct kube_server {
    char folder[64], bin[4096], etcd_b[96];
    uint16_t peer_port;
    int managed;
    long patience_ms;
    struct part parts[KUBE_PARTS];
    CURL *curl;
    char *body;
    size_t size, room;
    char *files[FILES_MAX];
    unsigned file_count;
};

static const char *const scripts[KUBE_PARTS] = {"etcd", "apiserver", "apiserver", "manager",
                                                "scheduler"};
static const char *const logs[KUBE_PARTS] = {"etcd", "apiserver", "apiserver-b", "manager",
                                             "scheduler"};

static void give_up(const char *what)
{
    (void)fprintf(stderr, "kube_server: %s: %s\n", what, strerror(errno));
    abort();
}

static uint64_t now_ms(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* The folder with the binaries; 0 if there is none. Asked once, it starts processes. */
static int binaries(char *ret, size_t size)
{
    const char *told = getenv("NXL_KUBE_BIN");
    FILE *pipe;
    int found;

    if (told != NULL) {
        (void)snprintf(ret, size, "%s", told);
        return told[0] != '\0';
    }
    pipe = popen("'" NXL_SOURCE_DIR "/tests/kube/build.sh' --where kube etcd 2>/dev/null", "re");
    if (pipe == NULL)
        give_up("ask build.sh");
    found = fgets(ret, (int)size, pipe) != NULL;
    ret[strcspn(ret, "\n")] = '\0';
    return pclose(pipe) == 0 && found;
}

const char *kube_server_missing(void)
{
    static char why[256], folder[4096];
    char file[4200];

    if (binaries(folder, sizeof(folder))) {
        (void)snprintf(file, sizeof(file), "%s/kube-apiserver", folder);
        if (access(file, X_OK) == 0)
            return NULL;
    }
    (void)snprintf(why, sizeof(why), "%s",
                   getenv("NXL_KUBE_WHY") != NULL
                       ? getenv("NXL_KUBE_WHY")
                       : "there is no kube-apiserver; tests/kube/build.sh makes one");
    return why;
}

/* ---- folder, keys, ports ----------------------------------------------------------------------
 */

static void free_ports(uint16_t *ret, unsigned count)
{
    int fds[8];

    for (unsigned i = 0; i < count; i++) { /* all held until all are known, so that they differ */
        struct sockaddr_in address = {.sin_family = AF_INET,
                                      .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t size = sizeof(address);

        fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fds[i] < 0 || bind(fds[i], (struct sockaddr *)&address, sizeof(address)) != 0 ||
            getsockname(fds[i], (struct sockaddr *)&address, &size) != 0)
            give_up("find a free port");
        ret[i] = ntohs(address.sin_port);
    }
    for (unsigned i = 0; i < count; i++)
        (void)close(fds[i]);
}

const char *kube_server_file(struct kube_server *server, const char *name)
{
    char path[512];

    (void)snprintf(path, sizeof(path), "%s/%s", server->folder, name);
    for (unsigned i = 0; i < server->file_count; i++)
        if (strcmp(server->files[i], path) == 0)
            return server->files[i];
    if (server->file_count == FILES_MAX)
        give_up("too many file names");
    server->files[server->file_count] = strdup(path);
    if (server->files[server->file_count] == NULL)
        give_up("allocate");
    return server->files[server->file_count++];
}

static void write_ports(struct kube_server *server)
{
    FILE *file = fopen(kube_server_file(server, "ports"), "we");

    if (file == NULL ||
        fprintf(file, "ADDRESS=127.0.0.1\nPORT=%u\nETCD_PORT=%u\nPEER_PORT=%u\nBIN='%s'\n",
                server->parts[KUBE_APISERVER].port, server->parts[KUBE_ETCD].port,
                server->peer_port, server->bin) < 0 ||
        fclose(file) != 0)
        give_up("write the ports");
}

static size_t keep(char *bytes, size_t one, size_t count, void *arg)
{
    struct kube_server *server = arg;
    size_t size = one * count;

    if (server->size + size + 1 > server->room) {
        size_t room = (server->size + size + 1) * 2;
        char *body = room > BODY_MAX ? NULL : realloc(server->body, room);

        if (body == NULL)
            return 0;
        server->body = body;
        server->room = room;
    }
    memcpy(server->body + server->size, bytes, size);
    server->size += size;
    server->body[server->size] = '\0';
    return size;
}

struct kube_server *kube_server_new(void)
{
    struct kube_server *server = calloc(1, sizeof(*server));
    char command[256];
    uint16_t ports[4];

    if (server == NULL)
        give_up("allocate");
    if (!binaries(server->bin, sizeof(server->bin)))
        give_up("the binaries are missing");
    (void)strcpy(server->folder, "/tmp/nixlet-kube-XXXXXX");
    if (mkdtemp(server->folder) == NULL)
        give_up("make a folder");
    free_ports(ports, 4);
    server->parts[KUBE_ETCD].port = ports[0];
    server->parts[KUBE_APISERVER].port = ports[1];
    server->parts[KUBE_APISERVER_B].port = ports[2];
    server->peer_port = ports[3];
    for (int i = 0; i <= KUBE_APISERVER_B; i++)
        (void)snprintf(server->parts[i].url, sizeof(server->parts[i].url), "%s://127.0.0.1:%u",
                       i == KUBE_ETCD ? "http" : "https", server->parts[i].port);
    write_ports(server);
    (void)snprintf(command, sizeof(command), "'" NXL_SOURCE_DIR "/tests/kube/pki.sh' %s/pki %s",
                   server->folder, server->parts[KUBE_APISERVER].url);
    if (system(command) != 0)
        give_up("pki.sh");
    server->curl = curl_easy_init();
    server->patience_ms = 30000;
    server->room = 4096;
    server->body = calloc(1, server->room);
    if (server->curl == NULL || server->body == NULL)
        give_up("curl");
    return server;
}

void kube_server_free(struct kube_server *server)
{
    char command[128];

    if (server == NULL)
        return;
    for (int i = KUBE_PARTS - 1; i >= 0; i--) {
        kube_server_kill(server, (enum kube_part)i);
        for (unsigned j = 0; j < server->parts[i].flag_count; j++)
            free(server->parts[i].flags[j]);
    }
    if (getenv("NIXLET_TEST_KEEP") == NULL) {
        (void)snprintf(command, sizeof(command), "rm -rf '%s'", server->folder);
        if (system(command) != 0)
            (void)fprintf(stderr, "kube_server: %s stays behind\n", server->folder);
    }
    for (unsigned i = 0; i < server->file_count; i++)
        free(server->files[i]);
    curl_easy_cleanup(server->curl);
    free(server->body);
    free(server);
}

void kube_server_flag(struct kube_server *server, enum kube_part part, const char *flag)
{
    struct part *self = &server->parts[part];

    if (self->flag_count == FLAGS_MAX)
        give_up("too many flags");
    self->flags[self->flag_count] = strdup(flag);
    if (self->flags[self->flag_count++] == NULL)
        give_up("allocate");
}

void kube_server_managed(struct kube_server *server)
{
    server->managed = 1;
}

void kube_server_etcd_b(struct kube_server *server, const char *url)
{
    (void)snprintf(server->etcd_b, sizeof(server->etcd_b), "%s", url);
}

/* ---- processes --------------------------------------------------------------------------------
 */

static void become(const struct kube_server *server, enum kube_part part)
{
    const struct part *self = &server->parts[part];
    const char *words[FLAGS_MAX + 10] = {NXL_SOURCE_DIR "/tests/kube/component.sh", scripts[part],
                                         server->folder};
    char log[128], port[16], etcd[112], audit[128];
    unsigned count = 3;
    int in = open("/dev/null", O_RDONLY), out;

    (void)snprintf(log, sizeof(log), "%s/%s.log", server->folder, logs[part]);
    out = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (in < 0 || out < 0 || dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0)
        _exit(126);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (part == KUBE_APISERVER_B) {
        (void)snprintf(port, sizeof(port), "PORT=%u", self->port);
        (void)snprintf(audit, sizeof(audit), "AUDIT=%s/audit-b.log", server->folder);
        words[count++] = port;
        words[count++] = audit;
        if (server->etcd_b[0] != '\0') {
            (void)snprintf(etcd, sizeof(etcd), "ETCD=%s", server->etcd_b);
            words[count++] = etcd;
        }
    }
    /* Without the controller-manager nobody makes the service accounts that the plug-in asks for.
     */
    if ((part == KUBE_APISERVER || part == KUBE_APISERVER_B) && !server->managed)
        words[count++] = "--disable-admission-plugins=ServiceAccount";
    for (unsigned i = 0; i < self->flag_count; i++)
        words[count++] = self->flags[i];
    (void)execv(words[0], (char *const *)words);
    _exit(127);
}

void kube_server_spawn(struct kube_server *server, enum kube_part part)
{
    struct part *self = &server->parts[part];

    if (self->pid > 0)
        give_up("the part runs already");
    self->pid = fork();
    if (self->pid < 0)
        give_up("fork");
    if (self->pid == 0)
        become(server, part);
}

static int gone(struct part *self)
{
    if (self->pid > 0 && waitpid(self->pid, NULL, WNOHANG) == self->pid)
        self->pid = 0;
    return self->pid == 0;
}

static void show_log(struct kube_server *server, enum kube_part part)
{
    char command[256];

    (void)snprintf(command, sizeof(command), "tail -n 15 %s/%s.log >&2", server->folder,
                   logs[part]);
    if (system(command) != 0)
        (void)fprintf(stderr, "kube_server: no log\n");
}

static void await_part(struct kube_server *server, enum kube_part part)
{
    uint64_t deadline = now_ms() + 90000;

    while (part == KUBE_MANAGER
               ? kube_server_ask(server, "GET",
                                 "/api/v1/namespaces/default/serviceaccounts/default", NULL, NULL)
                         .status != 200
               : !kube_server_ready(server, part)) {
        if (gone(&server->parts[part]) || now_ms() > deadline) {
            show_log(server, part);
            show_log(server, KUBE_ETCD);
            errno = ETIMEDOUT;
            give_up(logs[part]);
        }
        (void)poll(NULL, 0, 20);
    }
}

void kube_server_start(struct kube_server *server, enum kube_part part)
{
    kube_server_spawn(server, part);
    if (part != KUBE_ETCD && part != KUBE_SCHEDULER)
        await_part(server, part);
}

void kube_server_up(struct kube_server *server)
{
    kube_server_start(server, KUBE_ETCD);
    kube_server_start(server, KUBE_APISERVER);
}

void kube_server_kill(struct kube_server *server, enum kube_part part)
{
    struct part *self = &server->parts[part];

    if (self->pid <= 0)
        return;
    (void)kill(self->pid, SIGKILL);
    (void)waitpid(self->pid, NULL, 0);
    self->pid = 0;
}

void kube_server_end(struct kube_server *server, enum kube_part part)
{
    struct part *self = &server->parts[part];

    if (self->pid <= 0)
        return;
    (void)kill(self->pid, SIGTERM);
    (void)waitpid(self->pid, NULL, 0);
    self->pid = 0;
}

void kube_server_pause(struct kube_server *server, enum kube_part part)
{
    (void)kill(server->parts[part].pid, SIGSTOP);
}

void kube_server_resume(struct kube_server *server, enum kube_part part)
{
    (void)kill(server->parts[part].pid, SIGCONT);
}

pid_t kube_server_pid(const struct kube_server *server, enum kube_part part)
{
    return server->parts[part].pid;
}

uint16_t kube_server_port(const struct kube_server *server, enum kube_part part)
{
    return server->parts[part].port;
}

const char *kube_server_url(const struct kube_server *server, enum kube_part part)
{
    return server->parts[part].url;
}

/* ---- questions --------------------------------------------------------------------------------
 */

static struct kube_answer ask(struct kube_server *server, const char *url, const char *path,
                              const char *method, const char *header, const char *body)
{
    struct kube_answer answer = {0};
    struct curl_slist *headers = header != NULL ? curl_slist_append(NULL, header) : NULL;
    char whole[2048];
    CURL *curl = server->curl;
    CURLcode code;

    server->size = 0;
    server->body[0] = '\0';
    (void)snprintf(whole, sizeof(whole), "%s%s", url, path);
    curl_easy_reset(curl); /* keeps the connection */
    (void)curl_easy_setopt(curl, CURLOPT_URL, whole);
    (void)curl_easy_setopt(curl, CURLOPT_CAINFO, kube_server_file(server, "pki/ca.crt"));
    (void)curl_easy_setopt(curl, CURLOPT_SSLCERT, kube_server_file(server, "pki/admin.crt"));
    (void)curl_easy_setopt(curl, CURLOPT_SSLKEY, kube_server_file(server, "pki/admin.key"));
    (void)curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, server->patience_ms);
    (void)curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    (void)curl_easy_setopt(curl, CURLOPT_PROXY, "");
    (void)curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, method);
    (void)curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    if (body != NULL) {
        (void)curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body);
        (void)curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)strlen(body));
    }
    (void)curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, keep);
    (void)curl_easy_setopt(curl, CURLOPT_WRITEDATA, server);
    code = curl_easy_perform(curl);
    if (code == CURLE_OK)
        (void)curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &answer.status);
    curl_slist_free_all(headers);
    answer.text = server->body;
    answer.size = server->size;
    return answer;
}

void kube_server_patience(struct kube_server *server, long ms)
{
    server->patience_ms = ms;
}

struct kube_answer kube_server_ask(struct kube_server *server, const char *method, const char *path,
                                   const char *type, const char *body)
{
    char header[128];

    (void)snprintf(header, sizeof(header), "Content-Type: %s",
                   type != NULL ? type : "application/json");
    return ask(server, server->parts[KUBE_APISERVER].url, path, method, header, body);
}

struct kube_answer kube_server_get(struct kube_server *server, const char *path, const char *accept)
{
    char header[256];

    (void)snprintf(header, sizeof(header), "Accept: %s", accept);
    return ask(server, server->parts[KUBE_APISERVER].url, path, "GET", header, NULL);
}

int kube_server_ready(struct kube_server *server, enum kube_part part)
{
    return ask(server, server->parts[part].url, "/readyz", "GET", NULL, NULL).status == 200;
}

int kube_server_until(struct kube_server *server, const char *path, long status, int seconds)
{
    uint64_t deadline = now_ms() + (uint64_t)seconds * 1000;

    while (kube_server_ask(server, "GET", path, NULL, NULL).status != status) {
        if (now_ms() > deadline)
            return 0;
        (void)poll(NULL, 0, 20);
    }
    return 1;
}

struct kube_answer kube_server_kubectl(struct kube_server *server, const char *format, ...)
{
    struct kube_answer answer = {0};
    char words[4096], command[12288], bytes[4096];
    va_list args;
    FILE *pipe;
    size_t count;
    int status;

    va_start(args, format);
    (void)vsnprintf(words, sizeof(words), format, args);
    va_end(args);
    (void)snprintf(command, sizeof(command),
                   "KUBECONFIG=%s/pki/admin.kubeconfig HOME=%s '%s/kubectl' %s 2>&1",
                   server->folder, server->folder, server->bin, words);
    server->size = 0;
    server->body[0] = '\0';
    pipe = popen(command, "re");
    if (pipe == NULL)
        give_up("kubectl");
    while ((count = fread(bytes, 1, sizeof(bytes), pipe)) > 0)
        (void)keep(bytes, 1, count, server);
    status = pclose(pipe);
    answer.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
    answer.text = server->body;
    answer.size = server->size;
    return answer;
}

static void apply_crd(struct kube_server *server, const char *file, const char *name)
{
    char path[256], *text = NULL;
    size_t size = 0, room = 0;
    FILE *from;
    struct kube_answer answer;

    (void)snprintf(path, sizeof(path), NXL_SOURCE_DIR "/crds/%s", file);
    from = fopen(path, "re");
    if (from == NULL)
        give_up(path);
    do {
        room += 65536;
        text = realloc(text, room + 1);
        if (text == NULL)
            give_up("allocate");
        size += fread(text + size, 1, room - size, from);
    } while (size == room);
    text[size] = '\0';
    (void)fclose(from);
    (void)snprintf(path, sizeof(path),
                   "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/%s.nixlet.dev"
                   "?fieldManager=tests&fieldValidation=Strict",
                   name);
    answer = kube_server_ask(server, "PATCH", path, "application/apply-patch+yaml", text);
    free(text);
    if (answer.status != 200 && answer.status != 201) {
        (void)fprintf(stderr, "%s\n", answer.text);
        errno = EPROTO;
        give_up(file);
    }
    (void)snprintf(path, sizeof(path), "/apis/nixlet.dev/v1alpha1/%s", name);
    if (!kube_server_until(server, path, 200, 30))
        give_up("the API server does not serve the CRD");
}

void kube_server_crds(struct kube_server *server)
{
    apply_crd(server, "nixlpeers.yaml", "nixlpeers");
    apply_crd(server, "nixlpeerslices.yaml", "nixlpeerslices");
}
