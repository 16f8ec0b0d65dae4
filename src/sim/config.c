#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "size.h"
#include "wrap.h"

static bool number(const char *text, uint64_t max, uint64_t *ret)
{
    char *end;
    if (*text < '0' || *text > '9')
        return false;
    unsigned long long value = strtoull(text, &end, 10);
    if (*end != '\0' || value > max)
        return false;
    *ret = value;
    return true;
}

static bool code_by_name(const char *name, CUresult *ret)
{
    static const struct {
        const char *name;
        CUresult code;
    } codes[] = {
#define RESULT(name, code, text) {#name, name},
#include "cuda_result.def"
#undef RESULT
    };
    for (unsigned i = 0; i < sizeof codes / sizeof *codes; i++) {
        if (strcmp(codes[i].name, name) == 0) {
            *ret = codes[i].code;
            return true;
        }
    }
    uint64_t value;
    if (!number(name, 999, &value) || value == 0)
        return false;
    *ret = (CUresult)value;
    return true;
}

/* NAME:N[+][:CODE] */
static bool parse_fault(char *text, struct sim_fault *ret)
{
    struct sim_fault fault = {.code = CUDA_ERROR_OUT_OF_MEMORY};
    char *count = strchr(text, ':');
    if (!count || count - text >= SIM_NAME_MAX)
        return false;
    *count++ = '\0';
    char *code = strchr(count, ':');
    if (code)
        *code++ = '\0';
    size_t length = strlen(count);
    if (length && count[length - 1] == '+') {
        fault.onward = true;
        count[length - 1] = '\0';
    }
    if (!number(count, UINT32_MAX, &fault.at) || fault.at == 0 || (code && !code_by_name(code, &fault.code)))
        return false;
    snprintf(fault.name, sizeof fault.name, "%s", text);
    *ret = fault;
    return true;
}

static bool parse_version(const char *text, int *ret)
{
    unsigned major, minor;
    int used = 0;
    if (sscanf(text, "%2u.%2u%n", &major, &minor, &used) != 2 || text[used] != '\0' || major < 11 || minor > 99)
        return false;
    *ret = (int)(major * 1000 + minor * 10);
    return true;
}

/* One KEY=VALUE (`value` NULL where there is no '='). */
static bool parse_setting(const char *key, char *value, struct sim_config *config)
{
    uint64_t n;
    if (!value && strcmp(key, "hazard") == 0)
        return config->hazard = true;
    if (!value && strcmp(key, "at-once") == 0)
        return config->at_once = true;
    if (!value) {
        bool *flag = strcmp(key, "no-vmm") == 0             ? &config->vmm
                     : strcmp(key, "no-posix-handles") == 0 ? &config->posix_handles
                     : strcmp(key, "no-p2p") == 0           ? &config->peers
                                                            : NULL;
        if (flag)
            *flag = false;
        return flag != NULL;
    }
    if (strcmp(key, "hazard") == 0 && strcmp(value, "all") == 0)
        return config->hazard = config->hazard_all = true;
    if (strcmp(key, "hazard_exit") == 0 && number(value, 255, &n) && n > 0) {
        config->hazard_exit = (int)n;
        return config->hazard = true;
    }
    if (strcmp(key, "schedule") == 0 && number(value, UINT64_MAX, &n)) {
        config->seed = n;
        return config->scheduled = true;
    }
    if (strcmp(key, "run_ahead") == 0 && number(value, INT32_MAX, &n)) {
        config->run_ahead = (int64_t)n;
        return config->scheduled = true;
    }
    if (strcmp(key, "count") == 0 && number(value, SIM_DEVICES_MAX, &n)) {
        config->devices = (int)n;
        return true;
    }
    if (strcmp(key, "depth") == 0 && number(value, 1u << 20, &n) && n > 0) {
        config->depth = (unsigned)n;
        return true;
    }
    if (strcmp(key, "drop_mb") == 0 && number(value, 1u << 20, &n)) {
        config->drop_bytes = n * SG_MIB;
        return true;
    }
    if (strcmp(key, "kernel_us") == 0 && number(value, 60u * 1000 * 1000, &n)) {
        config->kernel_ns = n * 1000;
        return true;
    }
    if (strcmp(key, "vmm_sync") == 0 && (strcmp(value, "never") == 0 || strcmp(value, "always") == 0)) {
        config->vmm_sync = *value == 'n' ? SIM_VMM_SYNC_NEVER : SIM_VMM_SYNC_ALWAYS;
        return true;
    }
    if (strcmp(key, "card") == 0 && *value && strlen(value) < sizeof config->card &&
        strspn(value, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == strlen(value)) {
        strcpy(config->card, value);
        return true;
    }
    if (strcmp(key, "driver") == 0)
        return parse_version(value, &config->driver);
    if (strcmp(key, "fail") == 0 && config->fault_count < SIM_FAULTS_MAX)
        return parse_fault(value, &config->faults[config->fault_count]) && ++config->fault_count;
    return false;
}

/* A copy for a message, which is one line whatever was given. */
static const char *show(const char *item, char shown[101])
{
    snprintf(shown, 101, "%.100s", item);
    for (char *at = shown; *at; at++)
        if ((unsigned char)*at < ' ' || *at == 0x7f)
            *at = '?';
    return shown;
}

const char *sim_config_parse(const char *spec, struct sim_config *ret)
{
    static _Thread_local char message[512];
    struct sim_config config = {.bytes = 24 * SG_GIB, .devices = 1, .driver = 13000, .vmm = true,
        .posix_handles = true, .peers = true, .vmm_sync = SIM_VMM_SYNC_NEVER, .depth = 1024,
        .run_ahead = -1, .drop_bytes = UINT64_MAX};
    char buffer[1024], shown[101];
    if (!spec)
        spec = "24GiB";
    if (strlen(spec) >= sizeof buffer) {
        snprintf(message, sizeof message, "SEGALLOC_SIM is longer than %zu characters", sizeof buffer - 1);
        return message;
    }
    strcpy(buffer, spec);
    char *rest = buffer;
    for (char *item; (item = strsep(&rest, ",")) != NULL;) {
        if (item == buffer) {
            if (!sg_size_parse(item, &config.bytes) || config.bytes < 2 * SG_MIB || config.bytes > 64 * SG_TIB) {
                snprintf(message, sizeof message,
                    "SEGALLOC_SIM: \"%s\" is no device size from 2MiB to 64TiB; write for example 24GiB,count=2",
                    show(item, shown));
                return message;
            }
            continue;
        }
        show(item, shown);
        char *value = strchr(item, '=');
        if (value)
            *value++ = '\0';
        if (!parse_setting(item, value, &config)) {
            snprintf(message, sizeof message,
                "SEGALLOC_SIM: cannot use \"%s\"; known are count=N (at most %d), driver=12.4, no-vmm, "
                "no-posix-handles, no-p2p, hazard[=all], hazard_exit=N, schedule=SEED, run_ahead=K, depth=N, "
                "at-once, drop_mb=N, kernel_us=N, card=NAME, vmm_sync=never|always, fail=NAME:N[+][:CODE]",
                shown, SIM_DEVICES_MAX);
            return message;
        }
    }
    config.bytes &= ~(2 * SG_MIB - 1);
    *ret = config;
    return NULL;
}

void sim_config_uuid(const struct sim_config *config, int ordinal, unsigned char ret[16])
{
    uint64_t hash = config->card[0] ? SG_FNV_BASIS : (uint64_t)getpid();
    for (const char *at = config->card; *at; at++)
        hash = sg_fnv(hash, (unsigned char)*at);
    memcpy(ret, "segsim", 6);
    memcpy(ret + 6, &hash, sizeof hash);
    ret[14] = 0;
    ret[15] = (unsigned char)ordinal;
}
