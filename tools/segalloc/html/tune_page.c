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
    fputs("{\"schema\":\"segalloc.tune-page/1\",\"version\":\"" SEGALLOC_VERSION "\",\"tune\":", data);
    sg_tune_write_json(data, search, -1);
    putc('}', data);
    int status = fclose(data) == 0 ? 0 : -ENOMEM;
    if (!status) {
        fputs((const char *)tune_before, out);
        sg_html_write_escaped(out, json, bytes);
        fputs((const char *)tune_after, out);
    }
    free(json);
    return status;
}
