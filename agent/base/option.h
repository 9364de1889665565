/* option.h - settings by table. A module declares rows (struct nxl_option, nxl/backend.h); the rows
 * yield parsing, ranges, --help, the unknown-key hint and the reference page.
 * Order of force: table default < YAML file < environment (NIXLET_<SECTION>_<KEY>) < flag
 * (--section.key=value). Sections are dotted: "store.url"; backends have "backends.<name>.<key>".
 */
#ifndef NXL_BASE_OPTION_H
#define NXL_BASE_OPTION_H

#include <nxl/backend.h>

struct nxl_settings;

struct nxl_settings *nxl_settings_new(void);
void nxl_settings_free(struct nxl_settings *settings);
/* Declares a section; options end with key == NULL and must outlive settings. section "" is the
 * root. */
void nxl_settings_declare(struct nxl_settings *settings, const char *section,
                          const struct nxl_option *options);
/* What declare asserts, as an error: for tables that come from outside, i.e. a plug-in's. */
NXL_MUST_USE enum nxl_code nxl_options_check(const char *section, const struct nxl_option *options,
                                             struct nxl_err *err);
/* Every text is checked against its row. NXL_CONFIG: err names file, line, key, value, what is
 * allowed, and for an unknown key the nearest known one. Nothing is changed on error. */
NXL_MUST_USE enum nxl_code nxl_settings_load_yaml(struct nxl_settings *settings, const char *path,
                                                  struct nxl_err *err);
NXL_MUST_USE enum nxl_code nxl_settings_parse_yaml(struct nxl_settings *settings,
                                                   const char *origin, struct nxl_view text,
                                                   struct nxl_err *err);
NXL_MUST_USE enum nxl_code nxl_settings_load_env(struct nxl_settings *settings, char **env,
                                                 struct nxl_err *err);
NXL_MUST_USE enum nxl_code nxl_settings_set(struct nxl_settings *settings, const char *key,
                                            const char *value, const char *origin,
                                            struct nxl_err *err);
/* Begins behind argv[0]. Takes --a.b=c, "--a.b c" and --a.b for a switch; stops at the first word
 * that is not an option, or behind "--"; *ret_next is its index. */
NXL_MUST_USE enum nxl_code nxl_settings_load_args(struct nxl_settings *settings, int argc,
                                                  char **argv, int *ret_next, struct nxl_err *err);
const char *nxl_settings_text(const struct nxl_settings *settings,
                              const char *key); /* asserts a known key */
int64_t nxl_settings_number(const struct nxl_settings *settings,
                            const char *key); /* bytes, ns, 0/1 */
int nxl_settings_bool(const struct nxl_settings *settings, const char *key);
/* A backend's view of section "backends.<name>" for its open(). Given to free(). */
struct nxl_config *nxl_settings_config(const struct nxl_settings *settings, const char *section);
/* Help text (plain) or reference page (Markdown) of all declared sections. Given to free(). */
char *nxl_settings_help(const struct nxl_settings *settings, int markdown);

/* Pure helpers, also used by nixletctl. */
NXL_MUST_USE enum nxl_code nxl_parse_size(const char *text, int64_t *ret, struct nxl_err *err);
NXL_MUST_USE enum nxl_code nxl_parse_duration(const char *text, int64_t *ret_ns,
                                              struct nxl_err *err);
/* The candidate nearest to word by edit distance, NULL if none is near. */
const char *nxl_nearest(const char *word, const char *const *candidates, size_t count);

#endif
