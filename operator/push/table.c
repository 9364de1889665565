/* table.c - what is true: nodes, groups, records and policies, each record as text made once. Fed
 * by reconcile; changes wait in their group for the next flush. Loop thread. */
#include "push/push_internal.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* ---- nodes -------------------------------------------------------------------------------- */

static void cells_grow(struct push_group *group, uint32_t room)
{
    if (room <= group->cells_room)
        return;
    room = room < 64 ? 64 : room + room / 2;
    group->cells = nxl_resize(group->cells, room, sizeof(*group->cells));
    memset(group->cells + group->cells_room, 0, (room - group->cells_room) * sizeof(*group->cells));
    group->cells_room = room;
}

static struct push_cell *cell_of(struct push_group *group, const struct push_node *node)
{
    cells_grow(group, node->index + 1);
    return &group->cells[node->index];
}

struct push_node *push_node_get(struct nxl_push *push, const char *name)
{
    struct push_node *node;
    uint32_t index = 0;

    HASH_FIND_STR(push->nodes, name, node);
    if (node != NULL) {
        node->refs++;
        return node;
    }
    while (index < push->node_room && push->node_by_index[index] != NULL)
        index++;
    if (index == push->node_room) {
        uint32_t room = push->node_room == 0 ? 64 : push->node_room * 2;

        push->node_by_index = nxl_resize(push->node_by_index, room, sizeof(struct push_node *));
        memset(push->node_by_index + push->node_room, 0,
               (room - push->node_room) * sizeof(struct push_node *));
        push->node_room = room;
    }
    node = nxl_new0(sizeof(*node));
    (void)nxl_copy_text(node->name, sizeof(node->name), name);
    node->index = index;
    node->refs = 1;
    push->node_by_index[index] = node;
    HASH_ADD_STR(push->nodes, name, node);
    return node;
}

void push_node_put(struct nxl_push *push, struct push_node *node)
{
    struct push_group *group, *next;

    if (node == NULL || --node->refs > 0)
        return;
    HASH_ITER(hh, push->groups, group, next)
    {
        if (node->index < group->cells_room) /* the next node of that index asks anew */
            memset(&group->cells[node->index], 0, sizeof(*group->cells));
    }
    push->node_by_index[node->index] = NULL;
    HASH_DEL(push->nodes, node);
    free(node);
}

int push_wants(struct nxl_push *push, struct push_group *group, struct push_node *node)
{
    struct push_cell *cell = cell_of(group, node);

    if (!cell->asked) {
        cell->asked = 1;
        cell->wants = push->ops->interested == NULL ||
                      push->ops->interested(push->arg, node->name, group->name) != 0;
    }
    return cell->wants || cell->members > 0;
}

void nxl_push_interest(struct nxl_push *push, const char *node, const char *name)
{
    struct push_group *group, *next;
    struct push_node *found = NULL;

    if (node != NULL) {
        HASH_FIND_STR(push->nodes, node, found);
        if (found == NULL)
            return;
    }
    HASH_ITER(hh, push->groups, group, next)
    {
        if (name != NULL && strcmp(name, group->name) != 0)
            continue;
        for (uint32_t i = 0; i < group->cells_room; i++) {
            if (found == NULL || found->index == i)
                group->cells[i].asked = 0;
        }
    }
    push->interest_dirty = 1;
    push_flush_later(push);
}

/* ---- groups ------------------------------------------------------------------------------- */

struct push_group *push_group_find(struct nxl_push *push, const char *name)
{
    struct push_group *group;

    HASH_FIND_STR(push->groups, name, group);
    return group;
}

static struct push_group *group_get(struct nxl_push *push, const char *name)
{
    struct push_group *group = push_group_find(push, name);
    uint32_t index = 0;

    if (group != NULL)
        return group;
    while (index < push->group_room && push->group_by_index[index] != NULL)
        index++;
    if (index == push->group_room) {
        uint32_t room = push->group_room == 0 ? 64 : push->group_room * 2;

        push->group_by_index = nxl_resize(push->group_by_index, room, sizeof(struct push_group *));
        memset(push->group_by_index + push->group_room, 0,
               (room - push->group_room) * sizeof(struct push_group *));
        push->group_room = room;
    }
    group = nxl_new0(sizeof(*group));
    (void)nxl_copy_text(group->name, sizeof(group->name), name);
    group->index = index;
    push->group_by_index[index] = group;
    HASH_ADD_STR(push->groups, name, group);
    push->interest_dirty = 1; /* who wants it is not known yet */
    return group;
}

static void texts_clear(struct push_texts *texts)
{
    nxl_bytes_fini(&texts->text);
    free(texts->ends);
}

void push_batch_clear(struct push_batch *batch)
{
    texts_clear(&batch->forgets);
    texts_clear(&batch->members);
    for (uint32_t i = 0; i < batch->death_count; i++) {
        free(batch->deaths[i].id);
        free(batch->deaths[i].reason);
    }
    free(batch->deaths);
    memset(batch, 0, sizeof(*batch));
}

static void group_free(struct nxl_push *push, struct push_group *group)
{
    push->group_by_index[group->index] = NULL;
    HASH_DEL(push->groups, group);
    push_chunks_drop(group);
    push_batch_clear(&group->batch);
    free(group->policy);
    free(group->cells);
    free(group);
}

void push_group_settle(struct nxl_push *push, struct push_group *group)
{
    if (group->records != NULL || group->policy != NULL || group->dirty)
        return;
    for (struct push_conn *conn = push->conns; conn != NULL; conn = conn->next)
        push_hold(conn, group->index, 0);
    group_free(push, group);
}

/* ---- batches ------------------------------------------------------------------------------ */

static void group_dirty(struct nxl_push *push, struct push_group *group)
{
    push_chunks_drop(group);
    if (!group->dirty) {
        group->dirty = 1;
        group->next_dirty = push->dirty;
        push->dirty = group;
    }
    push_flush_later(push);
}

static void texts_put(struct push_texts *to, const void *text, size_t size)
{
    if (to->count == to->room) {
        to->room = to->room == 0 ? 16 : to->room * 2;
        to->ends = nxl_resize(to->ends, to->room, sizeof(*to->ends));
    }
    nxl_bytes_put(&to->text, text, size);
    to->ends[to->count++] = (uint32_t)to->text.size;
}

/* Nobody listens yet: the snapshot will say it all. */
static int is_heard(const struct nxl_push *push)
{
    return push->synced && push->live_count > 0;
}

static void batch_member(struct nxl_push *push, struct push_group *group, const void *text,
                         size_t size)
{
    if (is_heard(push))
        texts_put(&group->batch.members, text, size);
    group_dirty(push, group);
    if (group->batch.members.text.size > (4u << 20))
        nxl_push_flush(push);
}

static void batch_death(struct nxl_push *push, struct push_group *group, const char *id,
                        const char *reason)
{
    struct push_batch *batch = &group->batch;

    if (is_heard(push)) {
        if (batch->death_count == batch->death_room) {
            batch->death_room = batch->death_room == 0 ? 16 : batch->death_room * 2;
            batch->deaths = nxl_resize(batch->deaths, batch->death_room, sizeof(*batch->deaths));
        }
        batch->deaths[batch->death_count++] = (struct push_death){
            .id = nxl_strdup(id), .reason = nxl_strdup(reason != NULL ? reason : "")};
    }
    group_dirty(push, group);
}

static void batch_forget(struct nxl_push *push, struct push_group *group, const char *uid)
{
    const struct nxl_stream_member item = {.id = uid, .forget = 1};
    struct nxl_bytes text = {0};

    if (is_heard(push)) {
        nxl_stream_member_text(&item, &text);
        texts_put(&group->batch.forgets, text.data, text.size);
        nxl_bytes_fini(&text);
    }
    group_dirty(push, group);
}

/* ---- records ------------------------------------------------------------------------------ */

struct push_record *push_record_find(struct nxl_push *push, const char *id)
{
    struct push_record *record;

    HASH_FIND(hh, push->records, id, nxl_stream_uid_size(id), record);
    return record;
}

static void record_unlink(struct nxl_push *push, struct push_record *record)
{
    struct push_group *group = record->group;

    if (record->prev != NULL)
        record->prev->next = record->next;
    else
        group->records = record->next;
    if (record->next != NULL)
        record->next->prev = record->prev;
    group->record_count--;
    group->digest ^= record->hash;
    if (record->node != NULL && --cell_of(group, record->node)->members == 0)
        push->interest_dirty = 1;
    push_node_put(push, record->node);
    record->node = NULL;
    record->group = NULL;
    record->prev = record->next = NULL;
}

static void record_link(struct nxl_push *push, struct push_record *record, struct push_group *group,
                        const char *node)
{
    record->group = group;
    record->next = group->records;
    if (record->next != NULL)
        record->next->prev = record;
    group->records = record;
    group->record_count++;
    group->digest ^= record->hash;
    if (node == NULL || node[0] == '\0')
        return;
    record->node = push_node_get(push, node);
    if (cell_of(group, record->node)->members++ == 0)
        push->interest_dirty = 1;
}

static void record_free(struct nxl_push *push, struct push_record *record)
{
    record_unlink(push, record);
    HASH_DEL(push->records, record);
    nxl_metric_move(push->metrics.records, -1);
    free(record->text);
    free(record);
}

static struct push_record *record_new(struct nxl_push *push, const char *id)
{
    struct push_record *record = nxl_new0(sizeof(*record));

    memcpy(record->uid, id, nxl_stream_uid_size(id));
    HASH_ADD_STR(push->records, uid, record);
    nxl_metric_move(push->metrics.records, 1);
    return record;
}

static void member_dead(struct nxl_push *push, const struct nxl_stream_member *member)
{
    struct push_record *record = push_record_find(push, member->id);

    if (record == NULL || strlen(member->id) > NXL_INCARNATION_MAX)
        return; /* nobody was told of it */
    batch_death(push, record->group, member->id, member->reason);
    if (strchr(member->id, '/') == NULL)
        record_free(push, record);
}

static void member_live(struct nxl_push *push, const struct nxl_stream_member *member)
{
    struct push_record *record = push_record_find(push, member->id);
    struct push_group *group = group_get(push, member->group);
    struct nxl_bytes text = {0};

    nxl_stream_member_text(member, &text);
    if (record != NULL && record->text_size == text.size &&
        memcmp(record->text, text.data, text.size) == 0) {
        nxl_bytes_fini(&text);
        return;
    }
    if (record == NULL) {
        record = record_new(push, member->id);
    } else {
        struct push_group *old = record->group;

        record_unlink(push, record);
        if (old != group)
            batch_forget(push, old, record->uid);
    }
    free(record->text);
    record->text = (char *)text.data; /* taken over */
    record->text_size = text.size;
    record->hash = nxl_stream_member_hash(member);
    record_link(push, record, group, member->node);
    batch_member(push, group, record->text, record->text_size);
}

uint64_t nxl_push_member(struct nxl_push *push, const struct nxl_stream_member *member)
{
    size_t uid = nxl_stream_uid_size(member->id);

    if (uid == 0 || uid > NXL_LABEL_MAX) {
        nxl_warn("push", "event=\"record refused\" why=\"no pod UID\" id=%s",
                 nxl_quote(member->id));
        return push->seq + 1;
    }
    nxl_metric_add(push->metrics.changes, 1);
    if (member->life == NXL_LIFE_DEAD)
        member_dead(push, member);
    else if (member->forget)
        (void)nxl_push_forget(push, member->id);
    else
        member_live(push, member);
    return push->seq + 1;
}

uint64_t nxl_push_forget(struct nxl_push *push, const char *uid)
{
    struct push_record *record = push_record_find(push, uid);

    if (record == NULL)
        return push->seq + 1;
    batch_forget(push, record->group, record->uid);
    record_free(push, record);
    return push->seq + 1;
}

/* ---- policies ----------------------------------------------------------------------------- */

enum nxl_code nxl_push_policy(struct nxl_push *push, const struct nxl_stream_policy *policy,
                              uint64_t *ret_seq, struct nxl_err *err)
{
    struct nxl_bytes text = {0};
    struct push_group *group;
    enum nxl_code code;

    if (policy->gone) {
        *ret_seq = nxl_push_policy_gone(push, policy->group);
        return NXL_OK;
    }
    code = nxl_stream_policy_text(policy, &text, err);
    if (code != NXL_OK) {
        nxl_bytes_fini(&text);
        return code;
    }
    group = group_get(push, policy->group);
    if (group->policy != NULL && group->policy_size == text.size &&
        memcmp(group->policy, text.data, text.size) == 0) {
        nxl_bytes_fini(&text);
        *ret_seq = group->seq;
        return NXL_OK;
    }
    free(group->policy);
    group->policy = (char *)text.data; /* taken over */
    group->policy_size = text.size;
    group->policy_hash = nxl_stream_policy_hash((struct nxl_view){text.data, text.size});
    group->batch.policy = 1;
    nxl_metric_add(push->metrics.changes, 1);
    group_dirty(push, group);
    *ret_seq = push->seq + 1;
    return NXL_OK;
}

uint64_t nxl_push_policy_gone(struct nxl_push *push, const char *name)
{
    struct push_group *group = push_group_find(push, name);

    if (group == NULL || group->policy == NULL)
        return push->seq + 1;
    free(group->policy);
    group->policy = NULL;
    group->policy_size = 0;
    group->policy_hash = 0;
    group->batch.policy = 1;
    nxl_metric_add(push->metrics.changes, 1);
    group_dirty(push, group);
    return push->seq + 1;
}

void push_table_fini(struct nxl_push *push)
{
    struct push_record *record, *next_record;
    struct push_group *group, *next_group;
    struct push_node *node, *next_node;

    HASH_ITER(hh, push->records, record, next_record)
    {
        record_free(push, record);
    }
    HASH_ITER(hh, push->groups, group, next_group)
    {
        group_free(push, group);
    }
    HASH_ITER(hh, push->nodes, node, next_node)
    {
        HASH_DEL(push->nodes, node);
        free(node);
    }
    free(push->node_by_index);
    free(push->group_by_index);
}
