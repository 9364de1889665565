/* object.c - a NixlPeer's storage, the names of roles, and Kubernetes quantities. */
#include "model/object.h"

#include "model/room.h"
#include "model/selector.h"

struct nxl_nixlpeer_text {
    struct nxl_nixlpeer_text *next;
    char text[];
};

static const char *const role_names[] = {
    [NXL_ROLE_NONE] = "",
    [NXL_ROLE_PREFILL] = "Prefill",
    [NXL_ROLE_DECODE] = "Decode",
    [NXL_ROLE_ENCODE] = "Encode",
    [NXL_ROLE_AGGREGATED] = "Aggregated",
    [NXL_ROLE_STORAGE] = "Storage",
    [NXL_ROLE_CUSTOM] = "Custom",
};

const char *nxl_role_name(int role)
{
    return role >= NXL_ROLE_NONE && role <= NXL_ROLE_CUSTOM ? role_names[role] : "";
}

int nxl_role_of(const char *name)
{
    for (int role = NXL_ROLE_PREFILL; role <= NXL_ROLE_CUSTOM; role++)
        if (strcmp(role_names[role], name) == 0)
            return role;
    return NXL_ROLE_NONE;
}

struct nxl_nixlpeer *nxl_nixlpeer_new(void)
{
    struct nxl_nixlpeer *peer = room_new(sizeof(*peer));

    peer->ns = peer->name = peer->uid = peer->version = "";
    peer->spec.container = peer->spec.revision_key = peer->spec.topology_key = "";
    peer->spec.heartbeat_s = 1;
    peer->spec.lease_s = 4;
    peer->spec.mass_percent = 30;
    peer->spec.loss_after_s = 30;
    peer->spec.drain_s = 30;
    return peer;
}

void nxl_nixlpeer_free(struct nxl_nixlpeer *peer)
{
    if (peer == NULL)
        return;
    nxl_selector_free(peer->spec.selector);
    for (uint32_t i = 0; i < NXL_RULES_MAX; i++) {
        nxl_selector_free(peer->spec.rules[i].peers);
        nxl_selector_free(peer->spec.rules[i].spaces);
    }
    while (peer->texts != NULL) {
        struct nxl_nixlpeer_text *next = peer->texts->next;

        free(peer->texts);
        peer->texts = next;
    }
    free(peer);
}

const char *nxl_nixlpeer_keep(struct nxl_nixlpeer *peer, const char *text)
{
    size_t size = strlen(text) + 1;
    struct nxl_nixlpeer_text *kept = room_new(sizeof(*kept) + size);

    memcpy(kept->text, text, size);
    kept->next = peer->texts;
    peer->texts = kept;
    return kept->text;
}

/* The power of ten or two behind a quantity's number; 0 if the suffix is none. */
static int suffix_scale(const char *suffix, unsigned *ret_base, int *ret_power)
{
    static const char *const binary[] = {"Ki", "Mi", "Gi", "Ti", "Pi", "Ei"};
    static const char decimal[] = "kMGTPE";
    const char *found;
    char *end;
    long power;

    *ret_base = 10;
    *ret_power = 0;
    if (*suffix == '\0')
        return 1;
    for (int i = 0; i < 6; i++)
        if (strcmp(suffix, binary[i]) == 0) {
            *ret_base = 2;
            *ret_power = 10 * (i + 1);
            return 1;
        }
    if (suffix[1] == '\0') {
        found = strchr(decimal, suffix[0]);
        if (found != NULL)
            *ret_power = 3 * (int)(found - decimal + 1);
        else if (strchr("mun", suffix[0]) != NULL)
            *ret_power = suffix[0] == 'm' ? -3 : suffix[0] == 'u' ? -6 : -9;
        else
            return 0;
        return 1;
    }
    if (suffix[0] != 'e' && suffix[0] != 'E')
        return 0;
    if (suffix[1] != '-' && suffix[1] != '+' && (suffix[1] < '0' || suffix[1] > '9'))
        return 0;
    power = strtol(suffix + 1, &end, 10);
    if (end == suffix + 1 || *end != '\0' || power < -40 || power > 40)
        return 0;
    *ret_power = (int)power;
    return 1;
}

int nxl_quantity_of(const char *text, uint64_t *ret)
{
    __extension__ unsigned __int128 value = 0;
    __extension__ const unsigned __int128 limit = INT64_MAX;
    unsigned base;
    int power, fraction = 0, digits = 0, point = 0, rest = 0;

    if (*text == '+')
        text++;
    for (; (*text >= '0' && *text <= '9') || (*text == '.' && !point); text++) {
        if (*text == '.') {
            point = 1;
            continue;
        }
        digits++;
        if (value > limit * 1000000000u) /* no room for the digit, and no need of it */
            return 0;
        value = value * 10 + (unsigned)(*text - '0');
        fraction += point;
    }
    if (digits == 0 || digits > 30 || !suffix_scale(text, &base, &power))
        return 0;
    for (int i = 0; i < power; i++) {
        value *= base;
        if (value > limit * 1000000000000000000u)
            return 0;
    }
    fraction += power < 0 ? -power : 0;
    for (int i = 0; i < fraction; i++) {
        rest |= value % 10 != 0;
        value /= 10;
    }
    value += (unsigned)rest;
    if (value == 0 || value > limit)
        return 0;
    *ret = (uint64_t)value;
    return 1;
}
