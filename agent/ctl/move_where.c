/* move_where.c - which bytes of the peer are meant: from the options, or from the agent's own list
 * of regions. */
#include "ctl/move.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/ctl.h"
#include "ctl/http.h"

struct row {
    int64_t id;
    uint64_t address, length;
};

/* 1 if the row is well-formed and of that incarnation. */
static int row_read(const json_t *json, const char *peer, const char *incarnation, struct row *ret)
{
    const char *name = json_string_value(json_object_get(json, "peer"));
    const char *life = json_string_value(json_object_get(json, "incarnation"));
    const char *address = json_string_value(json_object_get(json, "address"));
    const json_t *length = json_object_get(json, "length"), *id = json_object_get(json, "id");
    char *end;

    if (name == NULL || strcmp(name, peer) != 0 || address == NULL || !json_is_integer(length) ||
        !json_is_integer(id) || json_integer_value(length) <= 0)
        return 0;
    if (life != NULL && incarnation != NULL && strcmp(life, incarnation) != 0)
        return 0; /* another life under the same name */
    if (json_is_true(json_object_get(json, "lost")))
        return 0;
    *ret =
        (struct row){.id = json_integer_value(id), .length = (uint64_t)json_integer_value(length)};
    ret->address = strtoull(address, &end, 16);
    return *end == '\0' && end != address && ret->address <= UINT64_MAX - ret->length;
}

/* "7 at 0x7f.. (64 bytes), 8 at ..." */
static void list_add(char *text, size_t room, const struct row *row)
{
    size_t used = strlen(text);

    if (used + 80 < room)
        (void)snprintf(text + used, room - used, "%s%lld at 0x%llx (%llu bytes)",
                       used > 0 ? ", " : "", (long long)row->id, (unsigned long long)row->address,
                       (unsigned long long)row->length);
    else if (used + 6 < room && (used < 3 || strcmp(text + used - 3, "...") != 0))
        (void)snprintf(text + used, room - used, ", ...");
}

static int row_matches(const struct row *row, int64_t region, uint64_t address)
{
    if (region >= 0)
        return row->id == region;
    if (address != 0)
        return address >= row->address && address - row->address < row->length;
    return 1;
}

static enum nxl_code none(const char *peer, int64_t region, uint64_t address, const char *all,
                          struct nxl_err *err)
{
    if (all[0] == '\0')
        return nxl_err_set(err, NXL_NOT_FOUND, 0,
                           "peer '%.100s' has no region that this agent may see", peer);
    if (region >= 0)
        return nxl_err_set(err, NXL_NOT_FOUND, 0, "peer '%.100s' has no region %lld; it has %s",
                           peer, (long long)region, all);
    return nxl_err_set(err, NXL_NOT_FOUND, 0, "0x%llx lies in no region of '%.100s'; it has %s",
                       (unsigned long long)address, peer, all);
}

enum nxl_code move_where_pick(const json_t *rows, const char *peer, const char *incarnation,
                              int64_t region, uint64_t address, uint64_t length,
                              struct move_where *ret, struct nxl_err *err)
{
    struct row row, found = {0};
    unsigned matches = 0;
    char all[240] = "";
    uint64_t offset, room;
    const json_t *json;
    size_t i;

    json_array_foreach(rows, i, json)
    {
        if (!row_read(json, peer, incarnation, &row))
            continue;
        list_add(all, sizeof(all), &row);
        if (!row_matches(&row, region, address))
            continue;
        matches++;
        if (matches == 1 ||
            row.length > found.length) /* nested ones: the one that reaches farther */
            found = row;
    }
    if (matches == 0)
        return none(peer, region, address, all, err);
    if (matches > 1 && region < 0 && address == 0)
        return nxl_err_set(err, NXL_INVALID_PARAM, 0,
                           "peer '%.100s' has %u regions; say which with --region or --address: %s",
                           peer, matches, all);
    offset = address != 0 && address >= found.address ? address - found.address : 0;
    if (address != 0 && (address < found.address || offset >= found.length))
        return nxl_err_set(err, NXL_INVALID_PARAM, 0,
                           "--address 0x%llx does not lie in region %lld; there are %s",
                           (unsigned long long)address, (long long)found.id, all);
    room = found.length - offset;
    if (length > room)
        return nxl_err_set(err, NXL_INVALID_PARAM, 0,
                           "%llu bytes do not fit: region %lld has %llu from 0x%llx on",
                           (unsigned long long)length, (long long)found.id,
                           (unsigned long long)room, (unsigned long long)(found.address + offset));
    *ret = (struct move_where){found.address + offset, length > 0 ? length : room};
    return NXL_OK;
}

enum nxl_code move_where_find(const struct ctl *ctl, const struct move_options *options,
                              const char *incarnation, uint64_t length, struct move_where *ret,
                              struct nxl_err *err)
{
    json_t *root;
    enum nxl_code code;

    if (options->address != 0 && length > 0 && options->region < 0) {
        if (length > UINT64_MAX - options->address)
            return nxl_err_set(err, NXL_INVALID_PARAM, 0,
                               "--address 0x%llx plus %llu bytes is past the end of all memory",
                               (unsigned long long)options->address, (unsigned long long)length);
        *ret = (struct move_where){options->address, length};
        return NXL_OK;
    }
    code = ctl_http_json(ctl->http, "/v1/regions", &root, err);
    if (code != NXL_OK)
        return nxl_err_wrap(err, code,
                            "look up the regions of '%.60s' (--address and --length "
                            "make that unnecessary)",
                            options->peer);
    code = move_where_pick(json_object_get(root, "regions"), options->peer, incarnation,
                           options->region, options->address, length, ret, err);
    json_decref(root);
    return code;
}
