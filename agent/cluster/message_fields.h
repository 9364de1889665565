/* message_fields.h - the one table from which encoder and decoder read which fields a message has
 * and how they lie on the wire. Private to message*.c. */
#ifndef NXL_CLUSTER_MESSAGE_FIELDS_H
#define NXL_CLUSTER_MESSAGE_FIELDS_H

#include "cluster/message.h"

#define NXL_MESSAGE_FIELDS_MAX 14u
#define NXL_MESSAGE_TEXT_MAX 1023u /* reasons: an nxl_err text fits */
#define NXL_MESSAGE_ADDRESS_MAX 299u
#define NXL_MESSAGE_BACKEND_ADDRESS_MAX 4096u
#define NXL_MESSAGE_KEY_MAX 4096u
#define NXL_MESSAGE_ROWS_MAX (256u << 10) /* 8,192 rows */

enum nxl_message_form {
    NXL_FORM_NONE = 0, /* ends a row */
    NXL_FORM_U16,
    NXL_FORM_U32, /* and int32_t */
    NXL_FORM_U64,
    NXL_FORM_TEXT,     /* u16 length + bytes, `max` at most */
    NXL_FORM_VIEW,     /* u32 length + bytes, `max` at most */
    NXL_FORM_BACKENDS, /* u8 count; text name, view address */
    NXL_FORM_REGIONS, /* u32 count; u64 id addr len, u32 kind device, u8 key count; u8 backend, view
                         key */
    NXL_FORM_IDS,     /* u32 count; u64 */
};

struct nxl_message_field {
    const char *name;
    enum nxl_message_form form;
    uint32_t max;
    size_t offset; /* in struct nxl_message */
};

struct nxl_message_shape {
    const char *name;
    struct nxl_message_field fields[NXL_MESSAGE_FIELDS_MAX + 1];
};

/* NULL for a type that does not exist. */
const struct nxl_message_shape *nxl_message_shape_of(uint16_t type);

#endif
