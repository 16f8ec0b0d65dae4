/* Binds what glibc moved between libraries, and so gave a new version node, to the node that every glibc since 2.17
   has.

   Why. A preload that needs a newer node than the machine's glibc has kills every program it is loaded into.

   For example, built with glibc 2.38 a call of dlopen would need dlopen@GLIBC_2.34. On a machine with 2.31 the loader
   would say "version GLIBC_2.34 not found", of every command. With this header it needs dlopen@GLIBC_2.2.5. */
#ifndef SG_GLIBC_SYMVER_H
#define SG_GLIBC_SYMVER_H

#if defined(__x86_64__)
__asm__(".symver dlopen, dlopen@GLIBC_2.2.5");
__asm__(".symver dlvsym, dlvsym@GLIBC_2.2.5");
__asm__(".symver dladdr, dladdr@GLIBC_2.2.5");
__asm__(".symver dladdr1, dladdr1@GLIBC_2.3.3");
__asm__(".symver dlinfo, dlinfo@GLIBC_2.3.3");
#define SG_GLIBC_OLDEST "GLIBC_2.2.5"
#elif defined(__aarch64__)
__asm__(".symver dlopen, dlopen@GLIBC_2.17");
__asm__(".symver dlvsym, dlvsym@GLIBC_2.17");
__asm__(".symver dladdr, dladdr@GLIBC_2.17");
__asm__(".symver dladdr1, dladdr1@GLIBC_2.17");
__asm__(".symver dlinfo, dlinfo@GLIBC_2.17");
#define SG_GLIBC_OLDEST "GLIBC_2.17"
#else
#error "only x86-64 and arm64"
#endif

#endif
