#include "analysis/role_rows.h"

json_t *sg_role_rows(const struct sg_roles *roles)
{
    json_t *rows = sg_json_array();
    enum sg_role order[SG_ROLE_COUNT];
    uint32_t count = sg_roles_order(roles, order);
    for (uint32_t i = 0; i < count; i++) {
        json_t *row = sg_json_object(NULL);
        sg_json_set_text(row, "role", sg_role_key(order[i]));
        SG_JSON_NUMBERS(row, {"bytes", roles->bytes[order[i]]});
        sg_json_add(rows, row);
    }
    return rows;
}
