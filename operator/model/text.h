/* text.h - texts that many objects share, kept once and counted. Inside model. */
#ifndef NXL_MODEL_TEXT_H
#define NXL_MODEL_TEXT_H

#include "model/object.h"

struct texts; /* a table */

struct texts *texts_new(void);
void texts_free(struct texts *texts); /* and all that it holds */
const char *text_take(struct texts *texts, const char *text);
void text_drop(struct texts *texts, const char *taken); /* accepts NULL */
uint32_t texts_count(const struct texts *texts);
uint64_t texts_bytes(const struct texts *texts);

struct label_set { /* shared texts */
    struct nxl_label *items;
    uint32_t count;
};
void labels_take(struct texts *texts, struct label_set *to, const struct nxl_label *labels,
                 uint32_t count);
void labels_drop(struct texts *texts, struct label_set *set);
int labels_same(const struct label_set *set, const struct nxl_label *labels, uint32_t count);
const char *labels_value(const struct label_set *set, const char *key); /* "" if absent */

#endif
