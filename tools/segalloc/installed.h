/* Files that stand beside this program where it is installed: the library, manual pages, completions. */
#ifndef SG_INSTALLED_H
#define SG_INSTALLED_H

/* Prints the path for LD_PRELOAD. An exit status. */
int sg_installed_preload(void);

/* Shows a page of the manual, by man where there is one: of a verb ("run"), or by its own name ("segalloc.conf"); NULL:
   the first. An exit status after a line on stderr, or not at all. */
int sg_installed_man(const char *page);

/* Prints the completion for a shell: bash, zsh or fish. An exit status. */
int sg_installed_completion(const char *shell);

#endif
