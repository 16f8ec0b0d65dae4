/* The texts and the groups that a page refers to by number, each written once. Hostile traces have many and long ones: both
   are bounded, and what comes after the bound has the number 0, which the page shows as "(others)". */
#ifndef SG_HTML_PAGE_LISTS_H
#define SG_HTML_PAGE_LISTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "idmap.h"

/* JSON values, separated by commas, as they were added. */
struct sg_html_list {
    struct sg_idmap known;  /* hash or key -> number, from 1 */
    char *json;
    size_t bytes, most;     /* most: bytes */
    FILE *out;              /* of json */
    uint32_t count;
    char **text;            /* of a list of texts, to compare */
    uint32_t room;
};

/* False: no host memory. */
bool sg_html_list_init(struct sg_html_list *list, size_t most);
void sg_html_list_free(struct sg_html_list *list); /* of zeros too */

/* Number of the text, from 1; 0: "" or beyond the bound. */
uint32_t sg_html_text(struct sg_html_list *list, const char *text);

/* Number of what has this key, or 0: it is to be written to list->out, after which sg_html_added() gives it its number. */
uint32_t sg_html_find(const struct sg_html_list *list, uint64_t key);
bool sg_html_has_room(struct sg_html_list *list);
uint32_t sg_html_added(struct sg_html_list *list, uint64_t key);

/* Within a script element no "<" may stand as it is. */
void sg_html_write_escaped(FILE *out, const char *text, size_t bytes);

#endif
