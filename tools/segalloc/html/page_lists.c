#include "html/page_lists.h"

#include <stdlib.h>
#include <string.h>

#include "json.h"
#include "trace_file.h"

bool sg_html_list_init(struct sg_html_list *list, size_t most)
{
    *list = (struct sg_html_list){.most = most};
    if (!sg_idmap_init(&list->known))
        return false;
    list->out = open_memstream(&list->json, &list->bytes);
    return list->out != NULL;
}

void sg_html_list_free(struct sg_html_list *list)
{
    if (list->out)
        fclose(list->out);
    for (uint32_t i = 0; i < list->count && list->text; i++)
        free(list->text[i]);
    free(list->text);
    free(list->json);
    sg_idmap_fini(&list->known);
    *list = (struct sg_html_list){0};
}

bool sg_html_has_room(struct sg_html_list *list)
{
    return fflush(list->out) == 0 && list->bytes < list->most;
}

uint32_t sg_html_find(const struct sg_html_list *list, uint64_t key)
{
    return (uint32_t)sg_idmap_get(&list->known, key);
}

uint32_t sg_html_added(struct sg_html_list *list, uint64_t key)
{
    (void)sg_idmap_put(&list->known, key, ++list->count);
    return list->count;
}

static bool list_keep_text(struct sg_html_list *list, const char *text)
{
    if (list->count == list->room) {
        uint32_t room = list->room ? 2 * list->room : 256;
        char **larger = realloc(list->text, room * sizeof *larger);
        if (!larger)
            return false;
        list->text = larger;
        list->room = room;
    }
    list->text[list->count] = strdup(text);
    return list->text[list->count] != NULL;
}

uint32_t sg_html_text(struct sg_html_list *list, const char *text)
{
    uint64_t key = *text ? sg_name_hash(text) : 0;
    uint32_t number = *text ? sg_html_find(list, key) : 0;
    if (!*text || (number && strcmp(list->text[number - 1], text) == 0))
        return number;
    if (!sg_html_has_room(list) || !list_keep_text(list, text))
        return 0;
    if (list->count)
        putc(',', list->out);
    sg_json_write(list->out, sg_json_text(text));
    return sg_html_added(list, key);
}

void sg_html_write_escaped(FILE *out, const char *text, size_t bytes)
{
    for (size_t i = 0, begin = 0; i <= bytes; i++) {
        if (i < bytes && text[i] != '<')
            continue;
        fwrite(text + begin, 1, i - begin, out);
        if (i < bytes)
            fputs("\\u003c", out);
        begin = i + 1;
    }
}
