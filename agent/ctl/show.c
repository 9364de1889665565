/* show.c - peers, regions, transfers, backends: what the agent says of itself, as a table or as it
 * came. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "ctl/args.h"
#include "ctl/ctl.h"
#include "ctl/http.h"
#include "ctl/print.h"

struct view {
    const char *name; /* subcommand, last part of the path, and member of the answer */
    const char *const *heads;
    void (*row)(struct ctl_table *table, const json_t *row);
    const char *const *owners; /* members that --peer compares */
};

/* ---- members that may be absent or of another type ----------------------------------------- */

static const char *text_of(const json_t *row, const char *key)
{
    const char *text = json_string_value(json_object_get(row, key));

    return text != NULL ? text : "-";
}

static void number_cell(struct ctl_table *table, const json_t *row, const char *key)
{
    const json_t *value = json_object_get(row, key);

    if (json_is_integer(value))
        ctl_table_cell(table, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    else
        ctl_table_cell(table, "-");
}

static void bytes_cell(struct ctl_table *table, const json_t *row, const char *key)
{
    const json_t *value = json_object_get(row, key);
    char text[32];

    if (json_is_integer(value) && json_integer_value(value) >= 0)
        ctl_table_cell(table, "%s",
                       ctl_bytes_text((uint64_t)json_integer_value(value), text, sizeof(text)));
    else
        ctl_table_cell(table, "-");
}

static int is_set(const json_t *row, const char *key)
{
    return json_is_true(json_object_get(row, key));
}

/* ---- rows ---------------------------------------------------------------------------------- */

static const char *const peer_heads[] = {"NAMESPACE", "NAME",     "WHERE",       "NODE",
                                         "LIFE",      ">REGIONS", "INCARNATION", NULL};
static const char *const peer_owners[] = {"name", "incarnation", NULL};

static void peer_row(struct ctl_table *table, const json_t *row)
{
    ctl_table_cell(table, "%s", text_of(row, "namespace"));
    ctl_table_cell(table, "%s", text_of(row, "name"));
    ctl_table_cell(table, "%s", is_set(row, "local") ? "here" : "remote");
    ctl_table_cell(table, "%s", text_of(row, "node"));
    ctl_table_cell(table, "%s%s", text_of(row, "life"), is_set(row, "suspect") ? " (suspect)" : "");
    number_cell(table, row, "regions");
    ctl_table_cell(table, "%s", text_of(row, "incarnation"));
}

static const char *const region_heads[] = {"PEER",    ">ID",    "ADDRESS",  ">LENGTH", "KIND",
                                           "REACHED", ">USERS", "BACKENDS", NULL};
static const char *const region_owners[] = {"peer", "incarnation", NULL};

static void region_row(struct ctl_table *table, const json_t *row)
{
    const json_t *backends = json_object_get(row, "backends"), *name;
    char names[256] = "";
    size_t i;

    json_array_foreach(backends, i, name)
    {
        size_t used = strlen(names);

        (void)snprintf(names + used, sizeof(names) - used, "%s%s", used > 0 ? " " : "",
                       json_is_string(name) ? json_string_value(name) : "?");
    }
    ctl_table_cell(table, "%s", text_of(row, "peer"));
    number_cell(table, row, "id");
    ctl_table_cell(table, "%s", text_of(row, "address"));
    bytes_cell(table, row, "length");
    ctl_table_cell(table, "%s", text_of(row, "kind"));
    ctl_table_cell(table, "%s%s", text_of(row, "rung"), is_set(row, "lost") ? " (lost)" : "");
    number_cell(table, row, "users");
    ctl_table_cell(table, "%s", names);
}

static const char *const transfer_heads[] = {">ID",     "STATE",    "OP",    "LOCAL",  "TARGET",
                                             "BACKEND", "PROTOCOL", "PATH",  ">BYTES", ">DESCR",
                                             ">PIECES", ">MS",      ">GB/S", "RESULT", NULL};
static const char *const transfer_owners[] = {"local", "target", NULL};

static void transfer_row(struct ctl_table *table, const json_t *row)
{
    const json_t *rate = json_object_get(row, "gb_per_s");
    const json_t *us = json_object_get(row, "duration_us");
    const char *why = text_of(row, "why"), *code = text_of(row, "code");
    int failed = strcmp(code, "-") != 0 && strcmp(code, nxl_code_word(NXL_OK)) != 0;

    if (us == NULL)
        us = json_object_get(row, "age_us");
    number_cell(table, row, "id");
    ctl_table_cell(table, "%s", text_of(row, "state"));
    ctl_table_cell(table, "%s", text_of(row, "op"));
    ctl_table_cell(table, "%s", text_of(row, "local"));
    ctl_table_cell(table, "%s", text_of(row, "target"));
    ctl_table_cell(table, "%s", text_of(row, "backend"));
    ctl_table_cell(table, "%s", text_of(row, "protocol"));
    ctl_table_cell(table, "%s", text_of(row, "path"));
    bytes_cell(table, row, "bytes");
    number_cell(table, row, "descriptors");
    number_cell(table, row, "pieces");
    if (json_is_integer(us))
        ctl_table_cell(table, "%.3f", (double)json_integer_value(us) / 1000.0);
    else
        ctl_table_cell(table, "-");
    if (json_is_number(rate))
        ctl_table_cell(table, "%.2f", json_number_value(rate));
    else
        ctl_table_cell(table, "-");
    ctl_table_cell(table, "%s%s%.300s", code, failed && why[0] != '\0' ? ": " : "",
                   failed ? why : "");
}

static const char *const backend_heads[] = {"NAME",    "STATE",    "REACHES", "BEST-PATH",
                                            "HONESTY", ">RUNNING", "ABOUT",   NULL};

static void backend_row(struct ctl_table *table, const json_t *row)
{
    int local = is_set(row, "local"), remote = is_set(row, "remote");

    ctl_table_cell(table, "%s", text_of(row, "name"));
    ctl_table_cell(table, "%s", text_of(row, "state"));
    ctl_table_cell(table, "%s%s%s", local ? "this agent" : "", local && remote ? ", " : "",
                   remote ? "other agents" : "");
    ctl_table_cell(table, "%s", text_of(row, "best_path"));
    ctl_table_cell(table, "%s", text_of(row, "honesty"));
    number_cell(table, row, "running");
    ctl_table_cell(table, "%s",
                   text_of(row, json_object_get(row, "why") != NULL ? "why" : "about"));
}

/* ---- the subcommands ----------------------------------------------------------------------- */

static const struct view views[] = {
    {"peers", peer_heads, peer_row, peer_owners},
    {"regions", region_heads, region_row, region_owners},
    {"transfers", transfer_heads, transfer_row, transfer_owners},
    {"backends", backend_heads, backend_row, NULL},
};

static const struct view *view_find(const char *name)
{
    const struct view *found = NULL;

    for (size_t i = 0; i < NXL_COUNT_OF(views); i++) {
        if (strcmp(views[i].name, name) == 0)
            found = &views[i];
    }
    NXL_ASSERT(found != NULL); /* main.c's table names only these */
    return found;
}

static int row_is_of(const struct view *view, const json_t *row, const char *peer)
{
    for (const char *const *key = view->owners; key != NULL && *key != NULL; key++) {
        if (strcmp(text_of(row, *key), peer) == 0)
            return 1;
    }
    return 0;
}

/* Takes the rows of others out of the answer. */
static void rows_keep(const struct view *view, json_t *rows, const char *peer)
{
    for (size_t i = json_array_size(rows); peer != NULL && i > 0; i--) {
        if (!row_is_of(view, json_array_get(rows, i - 1), peer))
            (void)json_array_remove(rows, i - 1); /* the index is right */
    }
}

static int table_print(const struct ctl *ctl, const struct view *view, const json_t *root)
{
    const json_t *rows = json_object_get(root, view->name), *row;
    struct ctl_table *table = ctl_table_new(view->heads);
    size_t i;

    json_array_foreach(rows, i, row) view->row(table, row);
    ctl_table_print(table);
    ctl_table_free(table);
    if (is_set(root, "truncated"))
        (void)fprintf(stderr, "nixletctl: there are more; the agent gives the first %zu\n",
                      json_array_size(rows));
    return ctl_flush(ctl);
}

int ctl_show_run(const struct ctl_command *self, struct ctl *ctl, int argc, char **argv)
{
    const struct view *view = view_find(self->name);
    const char *peer = NULL;
    const struct ctl_option options[] = {
        {"peer", CTL_TEXT, &peer, 0, 0, "NAME",
         "only rows of the peer with that name or incarnation"},
        {NULL, CTL_TEXT, NULL, 0, 0, NULL, NULL},
    };
    struct ctl_words words;
    struct nxl_err err = {0};
    json_t *root;
    char path[32];
    int code =
        ctl_args_read(ctl, self, view->owners != NULL ? options : NULL, argc, argv, 0, 0, &words);

    if (code >= 0)
        return code;
    (void)snprintf(path, sizeof(path), "/v1/%s", view->name);
    if (ctl_http_json(ctl->http, path, &root, &err) != NXL_OK)
        return ctl_fail(ctl, CTL_FAILED, &err);
    if (!json_is_array(json_object_get(root, view->name))) {
        json_decref(root);
        NXL_IGNORE(nxl_err_set(&err, NXL_MISMATCH, 0,
                               "GET %s: the answer has no list '%s'; is that a nixlet-agent?", path,
                               view->name)); /* said below */
        return ctl_fail(ctl, CTL_FAILED, &err);
    }
    rows_keep(view, json_object_get(root, view->name), peer);
    if (ctl->json)
        return ctl_json(ctl, root);
    code = table_print(ctl, view, root);
    json_decref(root);
    return code;
}
