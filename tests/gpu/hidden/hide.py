#!/usr/bin/env python3
"""hide.py LIBCUDA: writes, to stdout, the C source of a libcuda.so.1 that is nothing but jumps into the simulator's LIBCUDA.
It exports the driver's names alone and answers cuGetProcAddress with its own functions, as a driver does."""
import subprocess
import sys

OWN = ("cuGetProcAddress", "cuGetProcAddress_v2", "cuInit", "cuStreamWaitEvent")
JUMP = ('__asm__(".text\\n.globl {name}\\n.type {name},@function\\n{name}:\\nendbr64\\n'
        'jmp *hidden_{name}(%rip)\\n.size {name},.-{name}\\n");\n')


def exported(library):
    listed = subprocess.run(["nm", "-D", "--defined-only", library], stdout=subprocess.PIPE, text=True, check=True).stdout
    names = (line.split()[-1].split("@")[0] for line in listed.splitlines() if line.split()[1] in "Tti")
    return sorted({name for name in names if name.startswith("cu")})


names = exported(sys.argv[1])
print('#include "hidden.h"\n')
for name in names:
    print(f"void *hidden_{name};")
    if name not in OWN:
        print(f'extern char {name}[] __attribute__((visibility("default")));\n' + JUMP.format(name=name), end="")
print("\nconst struct hidden_name hidden_names[] = {")
for name in names:
    print(f'    {{"{name}", &hidden_{name}, (void *){name}}},')
print("};\nconst unsigned hidden_count = sizeof hidden_names / sizeof *hidden_names;")
