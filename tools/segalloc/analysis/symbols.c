#include "analysis/symbols.h"

#ifndef SG_HAVE_DW

bool sg_symbols_line(const char *module, uint64_t offset, char text[SG_SITE_TEXT])
{
    (void)module;
    (void)offset;
    (void)text;
    return false;
}

#else

#include <elfutils/libdwfl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct file {
    char *path;
    Dwfl_Module *module; /* NULL: it can't be read */
    struct file *next;
};
static struct file *files;

static const Dwfl_Callbacks callbacks = {
    .find_elf = dwfl_build_id_find_elf,
    .find_debuginfo = dwfl_standard_find_debuginfo,
    .section_address = dwfl_offline_section_address,
};

static Dwfl_Module *open_module(const char *path)
{
    Dwfl *dwfl = dwfl_begin(&callbacks);
    if (!dwfl)
        return NULL;
    dwfl_report_begin(dwfl);
    Dwfl_Module *module = dwfl_report_offline(dwfl, "", path, -1);
    dwfl_report_end(dwfl, NULL, NULL);
    if (!module)
        dwfl_end(dwfl);
    return module;
}

static Dwfl_Module *module_of(const char *path)
{
    struct file *file = files;
    while (file && strcmp(file->path, path) != 0)
        file = file->next;
    if (file)
        return file->module;
    if (!(file = malloc(sizeof *file)))
        return NULL;
    *file = (struct file){.path = strdup(path), .next = files};
    if (!file->path) {
        free(file);
        return NULL;
    }
    file->module = open_module(path);
    files = file;
    return file->module;
}

bool sg_symbols_line(const char *path, uint64_t offset, char text[SG_SITE_TEXT])
{
    GElf_Addr bias;
    Dwfl_Module *module = *path == '/' ? module_of(path) : NULL;
    if (!module || !dwfl_module_getelf(module, &bias))
        return false;
    int line = 0;
    GElf_Addr call = bias + offset - 1;
    const char *function = dwfl_module_addrname(module, call);
    Dwfl_Line *found = dwfl_module_getsrc(module, call);
    const char *source = found ? dwfl_lineinfo(found, NULL, &line, NULL, NULL, NULL) : NULL;
    const char *slash = strrchr(source ? source : path, '/');
    if (!source && !function)
        return false;
    if (source)
        sg_site_format(source, (uint32_t)line, function ? function : "", text, SG_SITE_TEXT);
    else
        snprintf(text, SG_SITE_TEXT, "%s in %s", slash ? slash + 1 : path, function);
    return true;
}

#endif
