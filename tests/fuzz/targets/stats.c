/* A statistics file, which is also what a program keeps in /dev/shm (live:True), through the report. */
#include "reader/stats_read.h"

#include "report/findings.h"
#include "report/report.h"
#include "target.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    return freopen("/dev/null", "w", stdout) ? 0 : 1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sg_stats_file file;
    struct sg_findings findings;
    char path[FUZZ_PATH], error[SG_FINDINGS_ERROR];
    fuzz_file(data, size, path);
    if (sg_stats_file_read(path, &file, error) == 0) {
        FUZZ_EXPECT(file.conf && file.command && file.count <= SG_STATS_DEVICES);
        sg_stats_file_free(&file);
    } else {
        FUZZ_EXPECT(*error && !strchr(error, '\n'));
    }
    if (sg_stats_file_detect(path) && sg_findings_read(path, /* cards */ true, &findings, error) == 0) {
        const struct sg_findings *all[] = {&findings, &findings};
        sg_report_text(&findings, /* all */ true);
        sg_json_print(sg_report_json(&findings, false));
        sg_report_table(all, 2);
        sg_findings_free(&findings);
    }
    return 0;
}
