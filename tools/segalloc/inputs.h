/* The configuration as the tools see it. */
#ifndef SG_INPUTS_H
#define SG_INPUTS_H

#include "conf.h"

/* Reads the configuration of this environment, as the library would, then `text` ("K:V,…", may be NULL) on top. What is
   wrong goes to stderr, a line each. Returns how many such lines there were. */
unsigned sg_tool_conf(const char *verb, const char *text, struct sg_conf *ret);

/* The configuration of this environment without a word about what is wrong with it. */
void sg_tool_conf_quietly(struct sg_conf *ret);

/* Applies `text` as --conf to *conf. What is wrong goes to stderr, a line each. Returns how many such lines there
   were. */
unsigned sg_tool_conf_apply(const char *verb, const char *text, struct sg_conf *conf);

#endif
