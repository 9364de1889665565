/* message_fields.c - which fields each message has, in wire order. New fields go to the end of a
 * row: an older reader skips them. The first two of HELLO never change, so that versions can be
 * compared. */
#include "cluster/message_fields.h"

#define FIELD(member, form, max)                                                                   \
    {                                                                                              \
#member, NXL_FORM_##form, (max), offsetof(struct nxl_message, member)                      \
    }
#define TEXT(member, max) FIELD(member, TEXT, max)
#define WHO_ASKS                                                                                   \
    TEXT(from_ns, NXL_NAMESPACE_MAX), TEXT(from_name, NXL_NAME_MAX),                               \
        TEXT(from_incarnation, NXL_INCARNATION_MAX)
#define WHO_IS_MEANT                                                                               \
    TEXT(ns, NXL_NAMESPACE_MAX), TEXT(name, NXL_NAME_MAX), TEXT(incarnation, NXL_INCARNATION_MAX)

static const struct nxl_message_shape shapes[NXL_MESSAGE_TYPES] = {
    [NXL_MESSAGE_HELLO] = {"HELLO",
                           {FIELD(version_min, U16, 0), FIELD(version_max, U16, 0),
                            FIELD(flags, U32, 0), TEXT(cluster, NXL_NAMESPACE_MAX),
                            TEXT(node, NXL_NODE_MAX), TEXT(agent, NXL_INCARNATION_MAX),
                            TEXT(address, NXL_MESSAGE_ADDRESS_MAX),
                            TEXT(incarnation, NXL_INCARNATION_MAX), FIELD(sequence, U64, 0),
                            FIELD(backend_count, BACKENDS, NXL_BACKENDS_MAX)}},
    [NXL_MESSAGE_PING] = {"PING", {FIELD(sequence, U64, 0), FIELD(at_ns, U64, 0)}},
    [NXL_MESSAGE_PONG] = {"PONG", {FIELD(sequence, U64, 0), FIELD(at_ns, U64, 0)}},
    [NXL_MESSAGE_BYE] = {"BYE", {FIELD(code, U32, 0), TEXT(text, NXL_MESSAGE_TEXT_MAX)}},
    [NXL_MESSAGE_NOTICE] = {"NOTICE",
                            {FIELD(sequence, U64, 0), FIELD(flags, U32, 0), FIELD(transfer, U64, 0),
                             WHO_IS_MEANT, WHO_ASKS, FIELD(payload, VIEW, NXL_NOTICE_MAX)}},
    [NXL_MESSAGE_NOTICE_ACK] = {"NOTICE_ACK",
                                {FIELD(sequence, U64, 0), FIELD(flags, U32, 0), FIELD(code, U32, 0),
                                 TEXT(text, NXL_MESSAGE_TEXT_MAX)}},
    [NXL_MESSAGE_QUERY] = {"QUERY",
                           {FIELD(request, U64, 0), FIELD(flags, U32, 0), WHO_IS_MEANT, WHO_ASKS}},
    [NXL_MESSAGE_ANSWER] = {"ANSWER",
                            {FIELD(request, U64, 0), FIELD(flags, U32, 0), FIELD(code, U32, 0),
                             TEXT(text, NXL_MESSAGE_TEXT_MAX), WHO_IS_MEANT,
                             FIELD(revision, U64, 0), FIELD(life, U32, 0)}},
    [NXL_MESSAGE_REGIONS] = {"REGIONS",
                             {FIELD(request, U64, 0), FIELD(flags, U32, 0), FIELD(more, U32, 0),
                              TEXT(incarnation, NXL_INCARNATION_MAX), FIELD(revision, U64, 0),
                              FIELD(region_count, REGIONS, NXL_MESSAGE_REGIONS_MAX)}},
    [NXL_MESSAGE_REGION_GONE] = {"REGION_GONE",
                                 {FIELD(request, U64, 0), FIELD(sequence, U64, 0),
                                  FIELD(flags, U32, 0), FIELD(more, U32, 0),
                                  TEXT(incarnation, NXL_INCARNATION_MAX), FIELD(revision, U64, 0),
                                  FIELD(id_count, IDS, NXL_MESSAGE_REGIONS_MAX)}},
    [NXL_MESSAGE_FACT] = {"FACT",
                          {FIELD(sequence, U64, 0), FIELD(flags, U32, 0), FIELD(life, U32, 0),
                           TEXT(incarnation, NXL_INCARNATION_MAX),
                           TEXT(text, NXL_MESSAGE_TEXT_MAX)}},
    [NXL_MESSAGE_FACT_ACK] = {"FACT_ACK",
                              {FIELD(sequence, U64, 0), FIELD(at_ns, U64, 0), FIELD(flags, U32, 0),
                               FIELD(code, U32, 0)}},
    [NXL_MESSAGE_UNSUBSCRIBE] = {"UNSUBSCRIBE",
                                 {TEXT(incarnation, NXL_INCARNATION_MAX), FIELD(request, U64, 0),
                                  FIELD(flags, U32, 0)}},
    [NXL_MESSAGE_DIGEST] = {"DIGEST",
                            {FIELD(request, U64, 0), FIELD(flags, U32, 0),
                             TEXT(incarnation, NXL_INCARNATION_MAX), WHO_ASKS,
                             FIELD(payload, VIEW, NXL_MESSAGE_ROWS_MAX)}},
    [NXL_MESSAGE_DIGEST_ANSWER] = {"DIGEST_ANSWER",
                                   {FIELD(request, U64, 0), FIELD(flags, U32, 0),
                                    FIELD(code, U32, 0), TEXT(text, NXL_MESSAGE_TEXT_MAX),
                                    FIELD(sequence, U64, 0)}},
};

const struct nxl_message_shape *nxl_message_shape_of(uint16_t type)
{
    if (type >= NXL_MESSAGE_TYPES || shapes[type].name == NULL)
        return NULL;
    return &shapes[type];
}
