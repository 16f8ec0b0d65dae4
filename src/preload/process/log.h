/* Lines on standard error. */
#ifndef SG_LOG_H
#define SG_LOG_H

/* One line to stderr, "segalloc: LINE", written at once. errno stays as it was. */
void sg_log_line(const char *line);

#endif
