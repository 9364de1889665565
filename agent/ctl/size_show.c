/* size_show.c - `nixletctl size`: options to a workload, the result as text or JSON. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "ctl/args.h"
#include "ctl/ctl.h"
#include "ctl/print.h"
#include "ctl/size.h"

struct size_options {
    const char *model, *dtype;
    int64_t layers, kv_heads, head_dim, latent, tokens, tp, block, requests;
};

/* ---- from options to a shape ---------------------------------------------------------------- */

static enum nxl_code model_take(const struct size_options *o, struct ctl_shape *ret,
                                struct nxl_err *err)
{
    const char *nearest = NULL;
    const struct ctl_shape *model = ctl_model_find(o->model, &nearest);

    if (model == NULL && nearest != NULL)
        return nxl_err_set(err, NXL_NOT_FOUND, 0, "model '%.60s' is not known; did you mean %s?",
                           o->model, nearest);
    if (model == NULL)
        return nxl_err_set(err, NXL_NOT_FOUND, 0,
                           "model '%.60s' is not known: `nixletctl size` lists those that are, "
                           "--layers, --kv-heads and --head-dim describe others",
                           o->model);
    *ret = *model;
    return NXL_OK;
}

/* Single numbers may change a model's shape: --model llama-3.1-70b --dtype fp8. */
static enum nxl_code shape_take(const struct size_options *o, struct ctl_shape *ret,
                                struct nxl_err *err)
{
    struct ctl_shape shape = {.name = "given", .element = 2};
    uint64_t element = o->dtype != NULL ? ctl_element_size(o->dtype) : 0;

    if (o->dtype != NULL && element == 0)
        return nxl_err_set(err, NXL_INVALID_PARAM, 0,
                           "--dtype '%.40s' is not bf16, fp16, fp8, int8 or fp32", o->dtype);
    if (o->model != NULL) {
        enum nxl_code code = model_take(o, &shape, err);

        if (code != NXL_OK)
            return code;
    } else if (o->layers == 0) {
        return nxl_err_set(err, NXL_INVALID_PARAM, 0, "--layers is missing (or --model)");
    }
    if (element != 0 && shape.parts[0] != 0)
        return nxl_err_set(err, NXL_INVALID_PARAM, 0, "--dtype: the parts of %s have fixed sizes",
                           shape.name);
    if (o->kv_heads > 0 || o->head_dim > 0) {
        shape.latent = o->latent > 0 ? (uint64_t)o->latent : 0; /* both: the check says so */
        shape.parts[0] = shape.parts[1] = 0;
    }
    if (o->latent > 0 && o->kv_heads == 0 && o->head_dim == 0)
        shape.kv_heads = shape.head_dim = shape.parts[0] = shape.parts[1] = 0;
    shape.layers = o->layers > 0 ? (uint64_t)o->layers : shape.layers;
    shape.kv_heads = o->kv_heads > 0 ? (uint64_t)o->kv_heads : shape.kv_heads;
    shape.head_dim = o->head_dim > 0 ? (uint64_t)o->head_dim : shape.head_dim;
    shape.latent = o->latent > 0 ? (uint64_t)o->latent : shape.latent;
    shape.element = element != 0 ? element : shape.element;
    *ret = shape;
    return NXL_OK;
}

/* ---- one answer ---------------------------------------------------------------------------- */

static json_t *layout_json(const struct ctl_layout *layout)
{
    json_t *bytes = json_array();

    for (uint64_t i = 0; i < layout->parts && i < 2; i++)
        (void)json_array_append_new(bytes, json_integer((json_int_t)layout->part_bytes[i]));
    return json_pack("{s:s, s:I, s:o, s:I, s:I, s:I}", "layout", layout->name,
                     "descriptors_per_block", (json_int_t)layout->parts, "descriptor_bytes", bytes,
                     "regions_per_rank", (json_int_t)layout->regions, "descriptors_per_rank",
                     (json_int_t)layout->descriptors, "index_bytes",
                     (json_int_t)layout->index_bytes);
}

static json_t *size_json(const struct ctl_workload *w, const struct ctl_size *s)
{
    json_t *layouts = json_array(), *root;

    for (unsigned i = 0; i < s->layout_count; i++)
        (void)json_array_append_new(layouts, layout_json(&s->layouts[i]));
    root = json_pack(
        "{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o}", "model",
        w->shape->name, "layers", (json_int_t)w->shape->layers, "tokens", (json_int_t)w->tokens,
        "tp", (json_int_t)w->tp, "block", (json_int_t)w->block, "requests", (json_int_t)w->requests,
        "bytes_per_token_layer", (json_int_t)s->token_layer, "bytes_per_token",
        (json_int_t)s->token, "bytes_per_layer", (json_int_t)s->layer, "bytes_per_request",
        (json_int_t)s->request, "replicas", (json_int_t)s->replicas, "rank_bytes_per_request",
        (json_int_t)s->rank_request, "rank_bytes", (json_int_t)s->rank_all, "bytes_all_ranks",
        (json_int_t)s->total, "blocks_per_request", (json_int_t)s->blocks, "layouts", layouts);
    if (w->shape->note != NULL)
        (void)json_object_set_new(root, "note", json_string(w->shape->note)); /* aborts never */
    return root;
}

static void line(const char *what, uint64_t bytes, const char *how)
{
    char text[32];

    printf("%-28s %12s  %" PRIu64 " B%s%s\n", what, ctl_bytes_text(bytes, text, sizeof(text)),
           bytes, how[0] != '\0' ? "  " : "", how);
}

static void layouts_print(const struct ctl_size *s)
{
    static const char *const heads[] = {"LAYOUT",       ">DESCRIPTOR", ">REGIONS",
                                        ">DESCRIPTORS", ">INDICES",    NULL};
    struct ctl_table *table = ctl_table_new(heads);
    char one[32], two[32];

    for (unsigned i = 0; i < s->layout_count; i++) {
        const struct ctl_layout *l = &s->layouts[i];

        ctl_table_cell(table, "%s", l->name);
        ctl_bytes_text(l->part_bytes[0], one, sizeof(one));
        ctl_bytes_text(l->part_bytes[1], two, sizeof(two));
        if (l->parts == 2 && l->part_bytes[0] != l->part_bytes[1])
            ctl_table_cell(table, "%s + %s", one, two);
        else
            ctl_table_cell(table, "%s", one);
        ctl_table_cell(table, "%" PRIu64, l->regions);
        ctl_table_cell(table, "%" PRIu64, l->descriptors);
        ctl_table_cell(table, "%s", ctl_bytes_text(l->index_bytes, one, sizeof(one)));
    }
    ctl_table_print(table);
    ctl_table_free(table);
}

static void size_print(const struct ctl_workload *w, const struct ctl_size *s)
{
    const struct ctl_shape *m = w->shape;
    char how[96] = "";

    printf("%s: %" PRIu64 " layers", m->name, m->layers);
    if (m->kv_heads > 0)
        printf(", %" PRIu64 " KV heads x %" PRIu64 ", %" PRIu64 " B an element", m->kv_heads,
               m->head_dim, m->element);
    else if (m->latent > 0)
        printf(", latent of %" PRIu64 ", %" PRIu64 " B an element", m->latent, m->element);
    printf("\n%s%s%" PRIu64 " tokens, tp %" PRIu64 ", blocks of %" PRIu64 " tokens, %" PRIu64
           " request%s\n\n",
           m->note != NULL ? m->note : "", m->note != NULL ? "\n" : "", w->tokens, w->tp, w->block,
           w->requests, w->requests == 1 ? "" : "s");
    line("per token and layer", s->token_layer, "");
    line("per token", s->token, "");
    line("per layer of a request", s->layer, "");
    line("per request", s->request, "");
    if (s->replicas > 1)
        (void)snprintf(how, sizeof(how), "(%" PRIu64 " ranks hold the same bytes)", s->replicas);
    line("per request and rank", s->rank_request, how);
    if (w->requests > 1)
        line("all requests, one rank", s->rank_all, "");
    if (w->requests > 1 || w->tp > 1)
        line("all requests, all ranks", s->total, "");
    printf("\nper request and rank, before merging (%" PRIu64 " blocks):\n", s->blocks);
    layouts_print(s);
}

/* ---- all models ---------------------------------------------------------------------------- */

static int models_show(const struct ctl *ctl, struct ctl_workload *w)
{
    static const char *const heads[] = {"MODEL",    ">LAYERS",   ">B/TOKEN/LAYER", ">PER-TOKEN",
                                        ">REQUEST", ">PER-RANK", ">DESCRIPTORS",   NULL};
    struct ctl_table *table = ctl_table_new(heads);
    json_t *rows = json_array();
    int code;

    for (size_t i = 0; (w->shape = ctl_model_at(i)) != NULL; i++) {
        struct ctl_size s;
        char text[32];
        struct nxl_err err = {0};

        if (ctl_size_compute(w, &s, &err) != NXL_OK)
            continue; /* this tp does not fit that model */
        (void)json_array_append_new(rows, size_json(w, &s));
        ctl_table_cell(table, "%s", w->shape->name);
        ctl_table_cell(table, "%" PRIu64, w->shape->layers);
        ctl_table_cell(table, "%" PRIu64, s.token_layer);
        ctl_table_cell(table, "%s", ctl_bytes_text(s.token, text, sizeof(text)));
        ctl_table_cell(table, "%s", ctl_bytes_text(s.request, text, sizeof(text)));
        ctl_table_cell(table, "%s", ctl_bytes_text(s.rank_request, text, sizeof(text)));
        ctl_table_cell(table, "%" PRIu64, s.layouts[0].descriptors);
    }
    if (ctl->json) {
        code = ctl_json(ctl, json_pack("{s:O}", "models", rows));
    } else {
        printf("%" PRIu64 " tokens, tp %" PRIu64 ", blocks of %" PRIu64
               " tokens; --model NAME shows one in full\n\n",
               w->tokens, w->tp, w->block);
        ctl_table_print(table);
        code = ctl_flush(ctl);
    }
    json_decref(rows);
    ctl_table_free(table);
    return code;
}

int ctl_size_run(const struct ctl_command *self, struct ctl *ctl, int argc, char **argv)
{
    struct size_options o = {.tokens = 4096, .tp = 1, .block = 16, .requests = 1};
    const struct ctl_option options[] = {
        {"model", CTL_TEXT, &o.model, 0, 0, "NAME", "a known model; without one all are listed"},
        {"layers", CTL_COUNT, &o.layers, 1, 65536, "N", "layers that have a KV cache"},
        {"kv-heads", CTL_COUNT, &o.kv_heads, 1, 65536, "N", "KV heads, not attention heads"},
        {"head-dim", CTL_COUNT, &o.head_dim, 1, 1 << 20, "N", "elements of one head"},
        {"latent", CTL_COUNT, &o.latent, 1, 1 << 20, "N",
         "elements of an MLA latent, rope included"},
        {"dtype", CTL_TEXT, &o.dtype, 0, 0, "TYPE", "bf16 (default), fp16, fp8, int8, fp32"},
        {"tokens", CTL_COUNT, &o.tokens, 1, 1ll << 40, "N", "tokens of a request (default 4096)"},
        {"tp", CTL_COUNT, &o.tp, 1, 65536, "N", "ranks that share the heads (default 1)"},
        {"block", CTL_COUNT, &o.block, 1, 1 << 30, "N", "tokens of a block (default 16)"},
        {"requests", CTL_COUNT, &o.requests, 1, 1ll << 40, "N", "requests at once (default 1)"},
        {NULL, CTL_TEXT, NULL, 0, 0, NULL, NULL},
    };
    struct ctl_words words;
    struct ctl_shape shape;
    struct ctl_workload w;
    struct ctl_size size;
    struct nxl_err err = {0};
    int code = ctl_args_read(ctl, self, options, argc, argv, 0, 0, &words);

    if (code >= 0)
        return code;
    w = (struct ctl_workload){NULL, (uint64_t)o.tokens, (uint64_t)o.tp, (uint64_t)o.block,
                              (uint64_t)o.requests};
    if (o.model == NULL && o.layers == 0 && o.kv_heads == 0 && o.head_dim == 0 && o.latent == 0 &&
        o.dtype == NULL)
        return models_show(ctl, &w);
    w.shape = &shape;
    if (shape_take(&o, &shape, &err) != NXL_OK || ctl_size_compute(&w, &size, &err) != NXL_OK) {
        NXL_IGNORE(nxl_err_wrap(&err, err.code, "size")); /* returns the code */
        return ctl_fail(ctl, CTL_USAGE, &err);
    }
    if (ctl->json)
        return ctl_json(ctl, size_json(&w, &size));
    size_print(&w, &size);
    return ctl_flush(ctl);
}
