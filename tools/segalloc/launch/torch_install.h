/* Which PyTorch a command line would run. */
#ifndef SG_LAUNCH_TORCH_INSTALL_H
#define SG_LAUNCH_TORCH_INSTALL_H

#include "install_paths.h"

struct sg_wheel {
    char libraries[SG_PLACE_BYTES]; /* the folder of libtorch_cuda.so */
    char site[SG_PLACE_BYTES];      /* the folder that torch lies in, where other packages are */
};

/* Looks for the first Python interpreter among the words of the command (`python`, a script of one, or behind words
   such as env and timeout; a shell's script is taken to mean python3) and asks it where its torch lies. False when
   there is no interpreter, or it has no torch built for CUDA. Runs the interpreter, without the library and without the
   torch. */
bool sg_wheel_find(char *const *command, struct sg_wheel *ret);

/* True if the command may run another PyTorch than the one that was `found`, or one at all. For example, a shell's
   script activates an environment, or a tool written in Python starts the interpreter of another. */
bool sg_wheel_may_be_another(char *const *command, bool found);

/* The version of one of the vendor's packages that this PyTorch was built for, as its metadata requires it: `package`
   is the name without the CUDA version that it ends with, "nvidia-cudnn-cu"; "9.10.2.21". False where it names none. */
bool sg_wheel_requires(const struct sg_wheel *wheel, const char *package, char ret[32]);

/* Its own version, "2.5.1". False where its metadata isn't there. */
bool sg_wheel_version(const struct sg_wheel *wheel, char ret[32]);

#endif
