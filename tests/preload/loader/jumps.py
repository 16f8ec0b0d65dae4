"""jumps.py NM LIBRARY OUT: writes the source of a libcuda.so.1 that exports what LIBRARY exports, each a jump into LIBRARY,
which it loads from the path in INNER_DRIVER. loader.h, which it includes, has the rest."""
import subprocess
import sys

nm, library, out = sys.argv[1:]
lines = subprocess.run([nm, '-D', '--defined-only', library], capture_output=True, text=True, check=True).stdout.splitlines()
names = [name.split('@')[0] for _, kind, name in (line.split() for line in lines) if kind in 'TtWi' and name.startswith('cu')]
assert 'cuMemAlloc_v2' in names
own = {'cuGetProcAddress', 'cuGetProcAddress_v2', 'cuDriverGetVersion'}
with open(out, 'w') as file:
    file.write(f'enum {{ COUNT = {len(names)} }};\n')
    for name in sorted(own):
        file.write(f'enum {{ AT_{name} = {names.index(name)} }};\n')
    file.write('#include "loader.h"\n')
    file.write('static const char *const names[COUNT] = {' + ', '.join(f'"{name}"' for name in names) + '};\n')
    for at, name in enumerate(names):
        if name not in own:
            file.write(f'JUMP({name}, {at})\n')
