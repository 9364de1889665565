/* region_tree.c - AVL tree augmented by the greatest end of each subtree. Called by region.c; pure
 * pointer work, loop thread. The depth is at most 1.44 log2(n), so recursion is bounded. */
#include "catalog/region_tree.h"

static int three_way(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

static int space_order(const struct nxl_region_node *node, uint32_t kind, uint32_t device)
{
    int order = three_way(node->kind, kind);

    return order != 0 ? order : three_way(node->device, device);
}

/* Equal starts are ordered long to short, then old to new: read from the right, the first one that
 * covers a range is the best one at its address. */
static int node_order(const struct nxl_region_node *a, const struct nxl_region_node *b)
{
    int order = space_order(a, b->kind, b->device);

    if (order == 0)
        order = three_way(a->addr, b->addr);
    if (order == 0)
        order = three_way(b->end, a->end);
    return order != 0 ? order : three_way(a->id, b->id);
}

static int height_of(const struct nxl_region_node *node)
{
    return node != NULL ? node->height : 0;
}

static void node_update(struct nxl_region_node *node)
{
    int left = height_of(node->left), right = height_of(node->right);

    node->height = 1 + (left > right ? left : right);
    node->reach = node->end;
    if (node->left != NULL && node->left->reach > node->reach)
        node->reach = node->left->reach;
    if (node->right != NULL && node->right->reach > node->reach)
        node->reach = node->right->reach;
}

static struct nxl_region_node *rotate_right(struct nxl_region_node *node)
{
    struct nxl_region_node *top = node->left;

    node->left = top->right;
    top->right = node;
    node_update(node);
    node_update(top);
    return top;
}

static struct nxl_region_node *rotate_left(struct nxl_region_node *node)
{
    struct nxl_region_node *top = node->right;

    node->right = top->left;
    top->left = node;
    node_update(node);
    node_update(top);
    return top;
}

static struct nxl_region_node *node_balance(struct nxl_region_node *node)
{
    int lean = height_of(node->left) - height_of(node->right);

    if (lean > 1) {
        if (height_of(node->left->left) < height_of(node->left->right))
            node->left = rotate_left(node->left);
        return rotate_right(node);
    }
    if (lean < -1) {
        if (height_of(node->right->right) < height_of(node->right->left))
            node->right = rotate_right(node->right);
        return rotate_left(node);
    }
    node_update(node);
    return node;
}

struct nxl_region_node *nxl_region_tree_insert(struct nxl_region_node *root,
                                               struct nxl_region_node *node)
{
    if (root == NULL) {
        node->left = node->right = NULL;
        node_update(node);
        return node;
    }
    if (node_order(node, root) < 0)
        root->left = nxl_region_tree_insert(root->left, node);
    else
        root->right = nxl_region_tree_insert(root->right, node);
    return node_balance(root);
}

static struct nxl_region_node *first_take(struct nxl_region_node *root,
                                          struct nxl_region_node **ret_first)
{
    if (root->left == NULL) {
        *ret_first = root;
        return root->right;
    }
    root->left = first_take(root->left, ret_first);
    return node_balance(root);
}

struct nxl_region_node *nxl_region_tree_remove(struct nxl_region_node *root,
                                               const struct nxl_region_node *node)
{
    struct nxl_region_node *next;

    if (root == NULL)
        return NULL;
    if (root != node) {
        if (node_order(node, root) < 0)
            root->left = nxl_region_tree_remove(root->left, node);
        else
            root->right = nxl_region_tree_remove(root->right, node);
        return node_balance(root);
    }
    if (root->left == NULL)
        return root->right;
    if (root->right == NULL)
        return root->left;
    root->right = first_take(root->right, &next);
    next->left = root->left;
    next->right = root->right;
    return node_balance(next);
}

/* ---- cover ------------------------------------------------------------------------------- */

struct cover {
    const struct nxl_region_query *query;
    struct nxl_region_node *best;
    uint64_t best_len;
    uint64_t low; /* a region that starts lower is longer than the best */
    uint32_t looks;
};

static void cover_offer(struct cover *cover, struct nxl_region_node *node)
{
    const struct nxl_region_query *query = cover->query;
    uint64_t len = node->end - node->addr;

    if (node->addr > query->addr || node->end < query->end || node->addr < cover->low)
        return;
    if (cover->best != NULL &&
        (len > cover->best_len || (len == cover->best_len && node->id < cover->best->id)))
        return;
    if (query->accept != NULL && !query->accept(query->accept_arg, node->region))
        return;
    if (cover->best == NULL)
        cover->looks = 0;
    cover->best = node;
    cover->best_len = len;
    cover->low = query->end > len ? query->end - len : 0;
}

/* From high addresses to low ones, so that the bound tightens early. Without a filter the first
 * find takes O(log n); the looks bound the search for a better one, and for one that the filter
 * takes. */
static void cover_visit(struct cover *cover, struct nxl_region_node *node)
{
    int order;

    if (node == NULL || node->reach < cover->query->end ||
        cover->looks++ > (cover->best != NULL ? NXL_REGION_LOOKS : NXL_REGION_LOOKS_FILTERED))
        return;
    order = space_order(node, cover->query->kind, cover->query->device);
    if (order == 0 && node->addr < cover->low)
        order = -1;
    else if (order == 0 && node->addr > cover->query->addr)
        order = 1;
    if (order <= 0)
        cover_visit(cover, node->right);
    if (order == 0 && (cover->best == NULL || node->addr < cover->best->addr))
        cover_offer(cover, node); /* at the best one's own address the rest is longer or older */
    if (order > 0 || (order == 0 && node->addr >= cover->low))
        cover_visit(cover, node->left);
}

struct nxl_region_node *nxl_region_tree_cover(struct nxl_region_node *root,
                                              const struct nxl_region_query *query)
{
    struct cover cover = {.query = query};

    cover_visit(&cover, root);
    return cover.best;
}

/* ---- the other questions ------------------------------------------------------------------- */

struct nxl_region_node *nxl_region_tree_floor(struct nxl_region_node *root,
                                              const struct nxl_region_query *query)
{
    struct nxl_region_node *found = NULL;

    while (root != NULL) {
        int order = space_order(root, query->kind, query->device);

        if (order < 0 || (order == 0 && root->addr <= query->addr)) {
            found = root;
            root = root->right;
        } else {
            root = root->left;
        }
    }
    return found != NULL && space_order(found, query->kind, query->device) == 0 ? found : NULL;
}

struct nxl_region_node *nxl_region_tree_exact(struct nxl_region_node *root,
                                              const struct nxl_region_query *query)
{
    struct nxl_region_node key = {.addr = query->addr,
                                  .end = query->end,
                                  .kind = query->kind,
                                  .device = query->device,
                                  .id = UINT64_MAX};
    struct nxl_region_node *found = NULL;

    while (root != NULL) {
        if (node_order(root, &key) <= 0) {
            found = root;
            root = root->right;
        } else {
            root = root->left;
        }
    }
    if (found == NULL || space_order(found, query->kind, query->device) != 0 ||
        found->addr != query->addr || found->end != query->end)
        return NULL;
    return found;
}

int nxl_region_tree_overlaps(const struct nxl_region_node *node,
                             const struct nxl_region_query *query)
{
    int order;

    if (node == NULL || node->reach <= query->addr)
        return 0;
    order = space_order(node, query->kind, query->device);
    if (order == 0 && node->addr < query->end) {
        if (node->end > query->addr)
            return 1;
    } else if (order == 0) {
        order = 1; /* it starts too high: so does all to its right */
    }
    if (order >= 0 && nxl_region_tree_overlaps(node->left, query))
        return 1;
    return order <= 0 && nxl_region_tree_overlaps(node->right, query);
}

static void below_visit(const struct nxl_region_node *node, const struct nxl_region_query *query,
                        const struct nxl_region_node **best)
{
    int order;

    if (node == NULL || (*best != NULL && node->reach <= (*best)->end))
        return;
    order = space_order(node, query->kind, query->device);
    if (order == 0 && node->addr > query->addr)
        order = 1;
    if (order <= 0)
        below_visit(node->right, query, best);
    if (order == 0 && (*best == NULL || node->end > (*best)->end))
        *best = node;
    if (order >= 0)
        below_visit(node->left, query, best);
}

const struct nxl_region_node *nxl_region_tree_below(const struct nxl_region_node *root,
                                                    const struct nxl_region_query *query)
{
    const struct nxl_region_node *best = NULL;

    below_visit(root, query, &best);
    return best;
}

const struct nxl_region_node *nxl_region_tree_above(const struct nxl_region_node *root,
                                                    const struct nxl_region_query *query)
{
    const struct nxl_region_node *found = NULL;

    while (root != NULL) {
        int order = space_order(root, query->kind, query->device);

        if (order > 0 || (order == 0 && root->addr > query->addr)) {
            found = root;
            root = root->left;
        } else {
            root = root->right;
        }
    }
    return found != NULL && space_order(found, query->kind, query->device) == 0 ? found : NULL;
}

int nxl_region_tree_each(struct nxl_region_node *root, nxl_region_each_fn *fn, void *arg)
{
    int stop;

    if (root == NULL)
        return 0;
    stop = nxl_region_tree_each(root->left, fn, arg);
    if (stop == 0)
        stop = fn(arg, root->region);
    return stop != 0 ? stop : nxl_region_tree_each(root->right, fn, arg);
}
