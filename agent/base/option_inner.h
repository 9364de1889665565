/* option_inner.h - the settings' shape, shared by the option_*.c files only. */
#ifndef NXL_BASE_OPTION_INNER_H
#define NXL_BASE_OPTION_INNER_H

#include "base/option.h"

#include <uthash.h>

#define OPTION_KEY_MAX 255u    /* bytes of a full key */
#define OPTION_VALUE_MAX 4095u /* bytes of a value */
#define OPTION_FILE_MAX (1u << 20)

/* Who has set a value. A source never overrides a stronger one, in whatever order they are read. */
enum option_rank { RANK_DEFAULT, RANK_FILE, RANK_ENV, RANK_FLAG };

struct setting {
    const struct nxl_option *row;
    char *key; /* full: "store.url" */
    char *env; /* "NIXLET_STORE_URL" */
    char *text;
    int64_t number;
    enum option_rank rank;
    UT_hash_handle hh;
};

struct nxl_settings {
    struct setting *by_key; /* hash; walking it gives the order of declaration */
    char **sections;
    size_t section_count;
};

/* Values that were checked and wait for the last of their source to be right. */
struct change {
    struct setting *setting;
    char *text;
    int64_t number;
    unsigned line; /* 0: not from a file */
};
struct changes {
    struct change *items;
    size_t count;
};

struct setting *nxl_option_find(const struct nxl_settings *settings, const char *key);
/* where says who wants it and ends up in front of an error: "agent.yaml:12", "flag --a.b". */
NXL_MUST_USE enum nxl_code nxl_changes_add(struct nxl_settings *settings, struct changes *changes,
                                           const char *key, const char *text, unsigned line,
                                           const char *where, struct nxl_err *err);
void nxl_changes_apply(struct changes *changes, enum option_rank rank);
void nxl_changes_fini(struct changes *changes);

/* Checks text against its row. Gives *ret_text (canonical) to free(). err says what is wrong with
 * the value and what is allowed, not which setting it is. */
NXL_MUST_USE enum nxl_code nxl_option_check(const struct nxl_option *row, const char *text,
                                            char **ret_text, int64_t *ret_number,
                                            struct nxl_err *err);
int nxl_option_bool_word(const char *text); /* 0, 1, or -1: no such word */
/* "1 to 65535", "a, b or c", "" where anything goes. */
void nxl_option_allowed(const struct nxl_option *row, char *to, size_t size);
const char *nxl_option_type_word(const struct nxl_option *row);
/* The key that somebody who wrote key may have meant, or NULL. */
const char *nxl_option_nearest(const struct nxl_settings *settings, const char *key);

#endif
