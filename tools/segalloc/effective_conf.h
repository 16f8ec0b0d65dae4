/* The configuration as the tools see it. */
#ifndef SG_EFFECTIVE_CONF_H
#define SG_EFFECTIVE_CONF_H

#include "conf.h"

/* Reads the configuration of this environment, as the library would, then `text` ("K:V,…", may be NULL) on top. Each
   mistake is a line on stderr. Returns how many lines there were. */
unsigned sg_tool_conf(const char *verb, const char *text, struct sg_conf *ret);

/* The configuration of this environment without a word about what is wrong with it. */
void sg_tool_conf_quietly(struct sg_conf *ret);

/* Applies the user's file for a card under a driver, as the library does (config/conf_card.h). A bad part is a line on
   stderr, and the result is how many there were. `verb` NULL: no lines. */
unsigned sg_tool_conf_card(const char *verb, const char *card, int driver, struct sg_conf *conf);

/* The value of --conf after `text` (NULL: nothing) and then `more` were given: both, so that the last value of a key
   wins. Where host memory is out, `more` alone. The caller never frees it: it lasts as long as the command line. */
const char *sg_tool_conf_join(const char *text, const char *more);

/* Applies `text` as --conf to *conf. Each mistake is a line on stderr. Returns how many lines there were. */
unsigned sg_tool_conf_apply(const char *verb, const char *text, struct sg_conf *conf);

/* The same for a command that does nothing when anything is wrong. */
unsigned sg_tool_conf_check(const char *verb, const char *text, struct sg_conf *conf);

#endif
