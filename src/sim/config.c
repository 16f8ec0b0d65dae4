#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/size.h"
#include "base/wrap.h"

enum { HOST_GRANULE = 2 * 1024 * 1024 }; /* of pages in the host's memory, unless another is set */

static bool config_number(const char *text, uint64_t max, uint64_t *ret)
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

static bool config_number_between(const char *text, uint64_t least, uint64_t most, uint64_t *ret)
{
    uint64_t value;
    if (!config_number(text, most, &value) || value < least)
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
#include "driver/cuda_result.def"
#undef RESULT
    };
    for (unsigned i = 0; i < sizeof codes / sizeof *codes; i++) {
        if (strcmp(codes[i].name, name) == 0) {
            *ret = codes[i].code;
            return true;
        }
    }
    uint64_t value;
    if (!config_number(name, 999, &value) || value == 0)
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
    if (!config_number(count, UINT32_MAX, &fault.at) || fault.at == 0 || (code && !code_by_name(code, &fault.code)))
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

/* Values that take more than setting.def says; NULL where there is no '='. */
static bool parse_hazard(const char *value, struct sim_config *config)
{
    if (value && strcmp(value, "all") != 0)
        return false;
    config->hazard_all = config->hazard_all || value;
    return config->hazard = true;
}

static bool parse_hazard_exit(const char *value, struct sim_config *config)
{
    uint64_t n;
    if (!value || !config_number(value, 255, &n) || n == 0)
        return false;
    config->hazard_exit = (int)n;
    return config->hazard = true;
}

static bool parse_schedule(const char *value, struct sim_config *config)
{
    return value && config_number(value, UINT64_MAX, &config->seed) && (config->scheduled = true);
}

static bool parse_run_ahead(const char *value, struct sim_config *config)
{
    uint64_t n;
    if (!value || !config_number(value, INT32_MAX, &n))
        return false;
    config->run_ahead = (int64_t)n;
    return config->scheduled = true;
}

static bool parse_vmm_sync(const char *value, struct sim_config *config)
{
    if (!value || (strcmp(value, "never") != 0 && strcmp(value, "always") != 0))
        return false;
    config->vmm_sync = *value == 'n' ? SIM_VMM_SYNC_NEVER : SIM_VMM_SYNC_ALWAYS;
    return true;
}

static bool parse_aliases_apart(const char *value, struct sim_config *config)
{
    uint64_t device = 0;
    if (value && !config_number(value, SIM_DEVICES_MAX - 1, &device))
        return false;
    config->aliases_apart |= value ? UINT32_C(1) << device : UINT32_MAX;
    return true;
}

static bool parse_fabric(const char *value, struct sim_config *config)
{
    config->fabric = value ? SIM_FABRIC_REFUSED : SIM_FABRIC_GRANTED;
    return !value || strcmp(value, "refused") == 0;
}

static bool parse_mappings(const char *value, struct sim_config *config)
{
    char text[2 * SIM_NAME_MAX];
    CUresult code = config->mappings_code;
    if (!value || strlen(value) >= sizeof text)
        return false;
    strcpy(text, value);
    char *name = strchr(text, ':');
    if (name)
        *name++ = '\0';
    if ((name && !code_by_name(name, &code)) || !config_number_between(text, 1, UINT32_MAX, &config->mappings))
        return false;
    config->mappings_code = code;
    return true;
}

/* off, or SIZE[:GRANULE]; a granule is one of the device's or several. */
static bool parse_host_pages(const char *value, struct sim_config *config)
{
    char text[SIM_NAME_MAX];
    if (!value || strlen(value) >= sizeof text)
        return false;
    strcpy(text, value);
    char *granule = strchr(text, ':');
    if (granule)
        *granule++ = '\0';
    config->host_pages = strcmp(text, "off") != 0;
    if (!config->host_pages)
        return !granule;
    return sg_size_parse(text, &config->host_bytes) &&
           (!granule || (sg_size_parse(granule, &config->host_granule) && config->host_granule &&
                            config->host_granule % HOST_GRANULE == 0));
}

/* SYMBOL:NS[+NS] */
static bool parse_cost(const char *value, struct sim_config *config)
{
    enum { NS_MOST = 1000000000 };
    char text[2 * SIM_NAME_MAX];
    struct sim_cost cost = {.handle_ns = 0};
    if (!value || strlen(value) >= sizeof text || config->cost_count == SIM_COSTS_MAX)
        return false;
    strcpy(text, value);
    char *call = strchr(text, ':'), *handle = call ? strchr(call, '+') : NULL;
    if (!call || call == text || call - text >= SIM_NAME_MAX)
        return false;
    *call++ = '\0';
    if (handle)
        *handle++ = '\0';
    if (!config_number(call, NS_MOST, &cost.call_ns) || (handle && !config_number(handle, NS_MOST, &cost.handle_ns)))
        return false;
    strcpy(cost.symbol, text);
    config->costs[config->cost_count++] = cost;
    return true;
}

static bool parse_card(const char *value, struct sim_config *config)
{
    if (!value || !*value || strlen(value) >= sizeof config->card ||
        strspn(value, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") != strlen(value))
        return false;
    strcpy(config->card, value);
    return true;
}

/* A folder's name from the root on. */
static bool parse_folder(const char *value, char ret[SIM_NAME_MAX])
{
    if (!value || *value != '/' || strlen(value) >= SIM_NAME_MAX)
        return false;
    strcpy(ret, value);
    return true;
}

static bool parse_peaks(const char *value, struct sim_config *config)
{
    return parse_folder(value, config->peaks);
}

static bool parse_host(const char *value, struct sim_config *config)
{
    return parse_folder(value, config->host);
}

/* The card's name and attributes only: the memory is as the size says. */
static bool parse_model(const char *value, struct sim_config *config)
{
    config->model = value ? sim_model_named(value) : NULL;
    return config->model != NULL;
}

/* Its memory too, unless a size was given before it. */
static bool parse_device(const char *value, struct sim_config *config)
{
    config->model = value ? sim_model_named(value) : NULL;
    config->keeps = config->model != NULL;
    if (config->model && !config->bytes)
        config->bytes = config->model->bytes;
    return config->model && config->bytes >= 2 * config->model->kept;
}

static bool parse_driver(const char *value, struct sim_config *config)
{
    return value && parse_version(value, &config->driver);
}

static bool parse_fail(const char *value, struct sim_config *config)
{
    char text[2 * SIM_NAME_MAX];
    if (!value || strlen(value) >= sizeof text || config->fault_count == SIM_FAULTS_MAX)
        return false;
    strcpy(text, value);
    return parse_fault(text, &config->faults[config->fault_count]) && ++config->fault_count;
}

/* One KEY=VALUE (`value` NULL where there is no '='). */
static bool parse_setting(const char *key, const char *value, struct sim_config *config)
{
    uint64_t n;
#define FLAG(name, field, is, form) \
    if (strcmp(key, name) == 0) {   \
        config->field = is;         \
        return !value;              \
    }
#define NUMBER(name, field, least, most, unit, form)                  \
    if (strcmp(key, name) == 0) {                                     \
        if (!value || !config_number_between(value, least, most, &n)) \
            return false;                                             \
        config->field = (__typeof__(config->field))(n * (unit));      \
        return true;                                                  \
    }
#define OTHER(name, parse, form) \
    if (strcmp(key, name) == 0)  \
        return parse(value, config);
#include "setting.def"
    return false;
}

/* A copy for a message, which is one line whatever was given. */
static const char *config_show_item(const char *item, char shown[101])
{
    snprintf(shown, 101, "%.100s", item);
    for (char *at = shown; *at; at++)
        if ((unsigned char)*at < ' ' || *at == 0x7f)
            *at = '?';
    return shown;
}

/* Each mapping on each device that has access takes a handle of the one client that UVM is to the resource manager, for
   all processes. Source: RS_UNIQUE_HANDLE_RANGE (rs_client.h), dupMemory() (nv_gpu_ops.c) and uvm_map_external.c of
   NVIDIA's open kernel modules 535 to 595. */
enum { MAPPINGS = 0x80000 };

static const char known[] =
#define FLAG(name, field, is, form) ", " form
#define NUMBER(name, field, least, most, unit, form) ", " form
#define OTHER(name, parse, form) ", " form
#include "setting.def"
    ;

const char *sim_config_parse(const char *spec, struct sim_config *ret)
{
    static _Thread_local char message[1024];
    struct sim_config config = {.devices = 1,
        .driver = 13000,
        .vmm = true,
        .posix_handles = true,
        .rdma = true,
        .ipc = true,
        .peers = true,
        .host_pages = true,
        .host_bytes = UINT64_MAX,
        .host_granule = HOST_GRANULE,
        .vmm_sync = SIM_VMM_SYNC_NEVER,
        .depth = 1024,
        .run_ahead = -1,
        .drop_bytes = UINT64_MAX,
        .compute_bytes = UINT64_MAX,
        .mappings = MAPPINGS,
        .mappings_code = CUDA_ERROR_OUT_OF_MEMORY};
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
        if (item == buffer && strncmp(item, "device=", 7) != 0) {
            if (!sg_size_parse(item, &config.bytes) || config.bytes < 2 * SG_MIB || config.bytes > 64 * SG_TIB) {
                snprintf(message, sizeof message,
                    "SEGALLOC_SIM: \"%s\" is no device size from 2MiB to 64TiB; write for example 24GiB,count=2",
                    config_show_item(item, shown));
                return message;
            }
            continue;
        }
        config_show_item(item, shown);
        char *value = strchr(item, '=');
        if (value)
            *value++ = '\0';
        if (!parse_setting(item, value, &config)) {
            snprintf(message, sizeof message,
                "SEGALLOC_SIM: cannot use \"%s\"; known are a size%s", shown, known);
            return message;
        }
    }
    config.bytes &= ~(2 * SG_MIB - 1);
    *ret = config;
    return NULL;
}

const char *sim_config_device_name(const struct sim_config *config)
{
    return config->model ? config->model->name : "segalloc simulated GPU";
}

void sim_config_card_path(const char *card, char ret[SIM_CARD_PATH])
{
    snprintf(ret, SIM_CARD_PATH, "/dev/shm/segalloc-sim-%u-%s", (unsigned)geteuid(), card);
}

void sim_config_uuid(const struct sim_config *config, int index, unsigned char ret[16])
{
    uint64_t device = sg_fnv(SG_FNV_BASIS, (unsigned char)index);
    uint64_t hash = config->card[0] ? SG_FNV_BASIS : (uint64_t)getpid();
    for (const char *at = config->card; *at; at++)
        hash = sg_fnv(hash, (unsigned char)*at);
    memcpy(ret, &device, sizeof device);
    memcpy(ret + sizeof device, &hash, sizeof hash);
}

int sim_config_index(const unsigned char uuid[16])
{
    static const struct sim_config config;
    for (int i = 0; i < SIM_DEVICES_MAX; i++) {
        unsigned char own[16];
        sim_config_uuid(&config, i, own);
        if (memcmp(own, uuid, sizeof own / 2) == 0)
            return i;
    }
    return -1;
}

void sim_config_uuid_text(const struct sim_config *config, int index, char ret[SIM_UUID_TEXT])
{
    unsigned char id[16];
    sim_config_uuid(config, index, id);
    int length = snprintf(ret, SIM_UUID_TEXT, "GPU-");
    for (int i = 0; i < 16; i++)
        length += snprintf(ret + length, SIM_UUID_TEXT - (size_t)length,
            i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", id[i]);
}
