/* Roles as JSON: [{"role": "activation", "bytes": 120881220}, …]. */
#ifndef SG_ROLE_ROWS_H
#define SG_ROLE_ROWS_H

#include "analysis/roles.h"
#include "json.h"

/* Those that have bytes, the largest first; empty where roles are not known. */
json_t *sg_role_rows(const struct sg_roles *roles);

#endif
