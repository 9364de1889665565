/* doctor_agent.c - is there an agent, and does it answer where a client looks? */
#include "ctl/doctor.h"

#include <jansson.h>
#include <nixlet.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "ctl/ctl.h"
#include "ctl/http.h"

static void look_socket(struct doctor *doctor)
{
    struct nxl_client_options options = {.size = sizeof(options),
                                         .socket_path = doctor->ctl->socket,
                                         .slots = 16,
                                         .arena_bytes = 1 << 20,
                                         .notice_bytes = 1 << 16,
                                         .call_timeout_ms = 5000};
    struct nxl_client_info info = {.size = sizeof(info)};
    struct nxl_client *client = NULL;
    struct nxl_err err = {0};

    if (nxl_client_open(&options, &client, &err) != NXL_OK)
        doctor_say(doctor, DOCTOR_WARN, "agent-socket",
                   "start nixlet-agent, or say where it listens: --socket PATH, $NIXLET_SOCKET",
                   "%s", err.text);
    else if (nxl_client_info(client, &info) != NXL_OK)
        doctor_say(doctor, DOCTOR_WARN, "agent-socket", "look at the agent's log",
                   "the agent says nothing of itself");
    else
        doctor_say(doctor, info.backends[0] != '\0' ? DOCTOR_OK : DOCTOR_WARN, "agent-socket",
                   "see `nixletctl backends` for the reasons",
                   "node %s, agent %s, namespace %s, backends: %s", info.node,
                   info.agent_incarnation, info.ns,
                   info.backends[0] != '\0' ? info.backends : "none");
    nxl_client_close(client);
}

static void look_http(struct doctor *doctor)
{
    NXL_CLEANUP(nxl_freep) char *body = NULL;
    struct nxl_err err = {0};
    size_t size;
    int status;
    enum nxl_code code = ctl_http_get(doctor->ctl->http, "/readyz", CTL_HTTP_TIMEOUT_NS, &status,
                                      &body, &size, &err);

    if (code != NXL_OK) {
        doctor_say(
            doctor, DOCTOR_WARN, "agent-http",
            "start nixlet-agent, or say where it answers: --http PATH or host:port, $NIXLET_HTTP",
            "%s", err.text);
        return;
    }
    body[strcspn(body, "\r\n")] = '\0';
    if (status == 200)
        doctor_say(doctor, DOCTOR_OK, "agent-http", NULL, "%s answers: %.100s", doctor->ctl->http,
                   body);
    else
        doctor_say(doctor, DOCTOR_WARN, "agent-http", "look at the agent's log",
                   "%s answers %d: %.200s", doctor->ctl->http, status, body);
}

void doctor_agent(struct doctor *doctor)
{
    look_socket(doctor);
    look_http(doctor);
}
