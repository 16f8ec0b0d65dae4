/* The user's configuration for one kind of card under one driver: a file of options that `segalloc selftest --apply` writes.

   For example, HOME=/home/ada and a driver for CUDA 13.0 that calls its device "NVIDIA H100 80GB HBM3". The file is
   /home/ada/.config/segalloc/NVIDIA-H100-80GB-HBM3-13.0.conf. With the line "alias:off" in it, no page of that card has two
   addresses under that driver. SEGALLOC_CONF=alias:on wins over it.

   Why the driver stands in the name: what a test found holds for that driver. Another one is to be tested again. */
#ifndef SG_CONF_CARD_H
#define SG_CONF_CARD_H

#include "config/conf_read.h"

/* Writes the name of a card under a driver, "NVIDIA-H100-80GB-HBM3-13.0", truncated to `size` bytes with the NUL. `version` is
   cuDriverGetVersion's, 13000 for 13.0. Other characters of the card's name than letters, digits and points become a dash. */
char *sg_conf_card_name(const char *card, int version, char *buffer, size_t size);

/* Writes the path of that file. `config_home` is XDG_CONFIG_HOME and `home` HOME, as getenv() returns them. False: neither is an
   absolute path, or the whole is too long. */
bool sg_conf_card_path(const char *config_home, const char *home, const char *card, int version, char ret[SG_PATH_BYTES]);

/* Applies the file at `path` to settings that sg_conf_load() has made. An option that SEGALLOC_CONF_FILE or SEGALLOC_CONF has set stays;
   one of /etc/segalloc.conf or of PyTorch's variable gives way. A file that is missing is none. Returns the number of bad parts. */
unsigned sg_conf_apply_card(struct sg_conf *conf, const char *path, sg_conf_warn_fn *warn, void *user);

#endif
