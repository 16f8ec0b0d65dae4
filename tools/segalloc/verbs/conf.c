/* segalloc conf: the configuration as a program under the library would have it. */
#include "tool.h"

#include "ascii.h"
#include "conf.h"
#include "config/conf_card.h"
#include "effective_conf.h"
#include "json.h"
#include "launch/machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CLI_VERB "conf"
#define CLI_ROWS "verbs/conf.def"
#include "cli/rows.h"

/* Options that are taken from a pasted line of PyTorch's, and decide nothing here. */
static const char *const without_effect[] = {
#define TORCH_KEY(name, values) #name,
#include "torch_keys.def"
};

static bool help_without_effect(const char *name)
{
    for (unsigned i = 0; i < sizeof without_effect / sizeof *without_effect; i++)
        if (strcmp(name, without_effect[i]) == 0) {
            printf("%s: an option of PyTorch's that does not say where device memory goes.\n"
                   "    It is accepted, and has no effect on segalloc.\n", name);
            return true;
        }
    return false;
}

/* Prints the help of all options, or of one. */
static int help_options(const char *verb, const char *name)
{
    const char *names[SG_OPTION_COUNT], *between = "";
    char values[160];
    for (unsigned i = 0; i < SG_OPTION_COUNT; i++) {
        const struct sg_option_info *info = sg_option_info(i);
        names[i] = info->name;
        if (name && strcmp(name, info->name) != 0)
            continue;
        printf("%s%s:%s\n    %s.\n    Takes %s.%s\n", between, info->name, info->def, info->text,
               sg_option_values(NULL, i, values, sizeof values), info->torch ? " PyTorch has this option too." : "");
        between = "\n";
    }
    if (!name) {
        puts("\nAccepted too, without effect on segalloc, are PyTorch's");
        for (unsigned i = 0; i < sizeof without_effect / sizeof *without_effect; i++)
            printf("    %s\n", without_effect[i]);
    }
    if (*between || help_without_effect(name))
        return SG_EXIT_OK;
    const char *nearest = sg_ascii_nearest(name, names, SG_OPTION_COUNT);
    return sg_tool_usage(verb, "there is no option \"%s\"%s%s%s", name, nearest ? "; did you mean " : "",
                         nearest ? nearest : "", nearest ? "?" : "");
}

static void conf_print_text(const struct sg_conf *conf)
{
    char value[SG_PATH_BYTES];
    int name_width = 0, value_width = 0;
    for (unsigned i = 0; i < SG_OPTION_COUNT; i++) {
        int name = (int)strlen(sg_option_info(i)->name);
        int length = (int)strlen(sg_conf_format(conf, i, value, sizeof value));
        name_width = name > name_width ? name : name_width;
        value_width = length > value_width && length <= 32 ? length : value_width;
    }
    for (unsigned i = 0; i < SG_OPTION_COUNT; i++) {
        sg_conf_format(conf, i, value, sizeof value);
        printf("%-*s  %-*s  %s\n", name_width, sg_option_info(i)->name, value_width, *value ? value : "-",
               sg_conf_source_name(conf->source[i]));
    }
}

static void print_json(const struct sg_conf *conf)
{
    char value[SG_PATH_BYTES];
    json_t *result = sg_json_object("segalloc.conf/1"), *options = sg_json_object(NULL);
    for (unsigned i = 0; i < SG_OPTION_COUNT; i++) {
        json_t *option = sg_json_object(NULL);
        sg_json_set_text(option, "value", sg_conf_format(conf, i, value, sizeof value));
        sg_json_set_text(option, "default", sg_option_info(i)->def);
        sg_json_set_text(option, "source", sg_conf_source_name(conf->source[i]));
        sg_json_set(options, sg_option_info(i)->name, option);
    }
    sg_json_set(result, "options", options);
    sg_json_print(result);
}

/* Options for the first card of this machine, if the user has any for some card: only then is the driver asked. */
static unsigned conf_of_card(const char *verb, struct sg_conf *conf)
{
    struct sg_probe probe = {0};
    char path[SG_PATH_BYTES];
    if (!sg_conf_card_path(getenv("XDG_CONFIG_HOME"), getenv("HOME"), "", 0, path))
        return 0;
    *strrchr(path, '/') = '\0';
    if (access(path, X_OK) != 0 || !sg_probe_driver(NULL, &probe) || !probe.devices)
        return 0;
    return sg_tool_conf_card(verb, probe.device[0].name, probe.version, conf);
}

int sg_verb_conf(int argc, char **argv)
{
    struct sg_cli cli;
    bool json = false, options = false;
    if (!sg_cli_begin(&cli, &cli_verb, argc, argv))
        return SG_EXIT_OK;
    for (int option; (option = sg_cli_next(&cli)) >= 0;) {
        switch ((enum option_of_verb)option) {
        case OPTION_json:
            json = true;
            break;
        case OPTION_help_options:
            options = true;
            break;
        }
    }
    if (cli.status)
        return cli.status;
    if (argc - optind > 1)
        return sg_tool_usage(argv[0], "one list of options is enough, \"%s\" is left over", argv[optind + 1]);
    if (options)
        return help_options(argv[0], argv[optind]);
    struct sg_conf conf;
    unsigned bad = sg_tool_conf(argv[0], argv[optind], &conf);
    bad += conf_of_card(argv[0], &conf);
    if (json)
        print_json(&conf);
    else
        conf_print_text(&conf);
    return bad ? SG_EXIT_ERROR : SG_EXIT_OK;
}
