#include "analysis/symbols.h"

#ifndef SG_HAVE_DW

bool sg_symbols_line(const char *module, uint64_t offset, char text[SG_SITE_TEXT])
{
    (void)module;
    (void)offset;
    (void)text;
    return false;
}

bool sg_symbols_is_wrapper(const char *module, uint64_t offset)
{
    (void)module;
    (void)offset;
    return false;
}

#else

#include <dlfcn.h>
#include <dwarf.h>
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

/* Headers that wrap calls of CUDA or of memory in templates and inline functions: a line in them is nobody's own. */
static bool is_wrapper(const char *source)
{
    static const char *const parts[] = {"cuda_runtime.h", "cuda_runtime_api.h", "/cuda/include/", "/thrust/", "/cub/", "/cuda/std/",
        "/libcudacxx/", "/include/c++/", "/rmm/include/", "/include/rmm/"};
    const char *found = NULL;
    for (size_t i = 0; i < sizeof parts / sizeof *parts && !found; i++)
        found = strstr(source, parts[i]);
    return found || (strstr(source, "/cuda-") && strstr(source, "/include/"));
}

struct place {
    char source[4096];
    int line;
    const char *function; /* mangled, or plain; NULL: not known. Valid as long as the module is open */
};

/* From an inlined function of such a header to where it was called, and so on outwards. */
static void leave_wrappers(Dwfl_Module *module, GElf_Addr address, struct place *place)
{
    Dwarf_Addr bias;
    Dwarf_Die *unit = dwfl_module_addrdie(module, address, &bias), *innermost = NULL, *scope = NULL;
    Dwarf_Files *files_of = NULL;
    Dwarf_Attribute attribute;
    int scopes = unit ? dwarf_getscopes(unit, address - bias, &innermost) : 0;
    scopes = scopes > 0 ? dwarf_getscopes_die(innermost, &scope) : 0; /* those around the inlined copy, not around its source */
    if (unit && dwarf_getsrcfiles(unit, &files_of, NULL) != 0)
        files_of = NULL;
    for (int i = 0; files_of && i < scopes && is_wrapper(place->source); i++) {
        Dwarf_Word file, line;
        if (dwarf_tag(&scope[i]) != DW_TAG_inlined_subroutine ||
            dwarf_formudata(dwarf_attr(&scope[i], DW_AT_call_file, &attribute), &file) != 0 ||
            dwarf_formudata(dwarf_attr(&scope[i], DW_AT_call_line, &attribute), &line) != 0)
            continue;
        const char *source = dwarf_filesrc(files_of, file, NULL, NULL);
        if (!source)
            break;
        snprintf(place->source, sizeof place->source, "%s", source);
        place->line = (int)line;
        for (int k = i + 1; k < scopes; k++) { /* the function that it was called in */
            int tag = dwarf_tag(&scope[k]);
            if (tag != DW_TAG_inlined_subroutine && tag != DW_TAG_subprogram)
                continue;
            Dwarf_Attribute *name = dwarf_attr_integrate(&scope[k], DW_AT_linkage_name, &attribute);
            const char *linkage = name ? dwarf_formstring(name) : NULL;
            place->function = linkage ? linkage : dwarf_diename(&scope[k]);
            break;
        }
    }
    free(scope);
    free(innermost);
}

static bool symbols_find_place(const char *path, uint64_t offset, struct place *ret)
{
    GElf_Addr bias;
    Dwfl_Module *module = *path == '/' ? module_of(path) : NULL;
    if (!module || !dwfl_module_getelf(module, &bias))
        return false;
    GElf_Addr call = bias + offset - 1;
    Dwfl_Line *found = dwfl_module_getsrc(module, call);
    *ret = (struct place){.function = dwfl_module_addrname(module, call)};
    const char *source = found ? dwfl_lineinfo(found, NULL, &ret->line, NULL, NULL, NULL) : NULL;
    snprintf(ret->source, sizeof ret->source, "%s", source ? source : "");
    if (source && is_wrapper(source))
        leave_wrappers(module, call, ret);
    return source || ret->function;
}

/* Where the machine has no runtime of C++, nor has it programs in C++. */
static void plain_name(const char *name, char *ret, size_t size)
{
    static sg_site_demangle_fn *demangle;
    static bool sought;
    if (!sought) {
        void *runtime = dlopen("libstdc++.so.6", RTLD_LAZY | RTLD_LOCAL);
        sought = true;
        if (runtime)
            *(void **)&demangle = dlsym(runtime, "__cxa_demangle");
    }
    sg_site_plain_name(demangle, name, ret, size);
}

bool sg_symbols_is_wrapper(const char *path, uint64_t offset)
{
    struct place place;
    return symbols_find_place(path, offset, &place) && is_wrapper(place.source);
}

bool sg_symbols_line(const char *path, uint64_t offset, char text[SG_SITE_TEXT])
{
    struct place place;
    char name[SG_SITE_TEXT] = "";
    if (!symbols_find_place(path, offset, &place))
        return false;
    if (place.function)
        plain_name(place.function, name, sizeof name);
    const char *slash = strrchr(path, '/');
    if (*place.source)
        sg_site_format(place.source, (uint32_t)place.line, name, text, SG_SITE_TEXT);
    else
        snprintf(text, SG_SITE_TEXT, "%.100s in %.200s", slash ? slash + 1 : path, name);
    return true;
}

#endif
