#include "diff/comparison.h"

#include "json.h"

static const char *const side_keys[] = {"a", "b"};

/* Place, phase and size of a row; the size is null for all sizes together. */
static json_t *diff_json_row(const char *site, const char *phase, unsigned size_class)
{
    json_t *row = sg_json_object(NULL);
    sg_json_set_text(row, "site", site);
    sg_json_set_text(row, "phase", phase);
    if (size_class == SG_ANY_SIZE)
        sg_json_set(row, "size_class", json_null());
    else
        sg_json_set(row, "size_class", sg_json_number(sg_live_class_from(size_class)));
    return row;
}

static json_t *json_moved(const struct sg_comparison *comparison)
{
    json_t *moved = sg_json_object(NULL), *rows = sg_json_array();
    for (int i = 0; i < 2; i++) {
        const struct sg_moves *moves = &comparison->moves[i];
        json_t *side = comparison->knows_moves[i] ? sg_json_object(NULL) : json_null();
        if (comparison->knows_moves[i])
            SG_JSON_NUMBERS(side, {"pages", moves->pages}, {"bytes", moves->bytes},
                {"diverged_request", moves->diverged});
        sg_json_set(moved, side_keys[i], side);
    }
    for (size_t i = 0; i < comparison->moved_count; i++) {
        const struct sg_moved_row *row = &comparison->moved[i];
        json_t *item = diff_json_row(row->site, row->phase, row->size_class);
        SG_JSON_NUMBERS(item, {"a_requests", row->requests[0]}, {"b_requests", row->requests[1]},
            {"a_pages", row->pages[0]}, {"b_pages", row->pages[1]}, {"a_bytes", row->bytes[0]},
            {"b_bytes", row->bytes[1]});
        sg_json_add(rows, item);
    }
    sg_json_set(moved, "rows", rows);
    return moved;
}

void sg_comparison_print_json(char **paths, const struct sg_comparison *comparison)
{
    const struct sg_groups *side = comparison->side;
    json_t *result = sg_json_object("segalloc.diff/1"), *rows = sg_json_array();
    for (int i = 0; i < 2; i++) {
        json_t *run = sg_json_object(NULL);
        sg_json_set_text(run, "trace", paths[i]);
        SG_JSON_NUMBERS(run, {"bytes", side[i].bytes});
        sg_json_set_flag(run, "failed", side[i].moment.failed);
        sg_json_set(result, side_keys[i], run);
    }
    sg_json_set_signed(result, "difference_bytes", (int64_t)(side[1].bytes - side[0].bytes));
    for (size_t i = 0; i < comparison->count; i++) {
        const struct sg_compared_row *row = &comparison->row[i];
        json_t *item = diff_json_row(row->site, row->phase, row->size_class);
        SG_JSON_NUMBERS(item, {"a_bytes", row->bytes[0]}, {"b_bytes", row->bytes[1]}, {"a_blocks", row->blocks[0]},
            {"b_blocks", row->blocks[1]});
        sg_json_set_signed(item, "difference_bytes", (int64_t)(row->bytes[1] - row->bytes[0]));
        sg_json_add(rows, item);
    }
    sg_json_set(result, "rows", rows);
    sg_json_set(result, "moved", json_moved(comparison));
    sg_json_print(result);
}
