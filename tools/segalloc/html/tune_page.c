#include "tune_page.h"

#include <errno.h>
#include <stdlib.h>

#include "page_lists.h"
#include "tune_text.h"

int sg_tune_page_write(FILE *out, const struct sg_tune_search *search)
{
    char *json = NULL;
    size_t bytes = 0;
    FILE *data = open_memstream(&json, &bytes);
    if (!data)
        return -ENOMEM;
    json_t *page = sg_json_object("segalloc.tune-page/1");
    sg_json_set_text(page, "version", SEGALLOC_VERSION);
    sg_json_set(page, "tune", sg_tune_json(search, -1));
    sg_json_write(data, page);
    int status = fclose(data) == 0 ? 0 : -ENOMEM;
    if (!status) {
        fputs((const char *)tune_before, out);
        sg_html_write_escaped(out, json, bytes);
        fputs((const char *)tune_after, out);
    }
    free(json);
    return status;
}
