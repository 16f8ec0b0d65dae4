"""A call without the lock that it needs does not compile under clang (src/core/lock_roles.h).

Usage: wrong_locks.py SOURCE_ROOT

For each of the four locks: one function that takes it and calls, which compiles, and one that does not take it. A field
that a lock guards is held to that too."""
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(sys.argv.pop(1)).resolve()
CLANG = shutil.which("clang")
FOLDERS = ["src", "include"]

# The file that has the function, the argument of the lock's functions, what takes the lock, what gives it back, the call.
CALLS = {
    "lock": ("core/core.c", "struct sg_device *device", "sg_device_lock(device)", "sg_device_unlock(device)",
             "sg_pending_settle_locked(device)"),
    "grow": ("core/core.c", "struct sg_device *device", "sg_grow_lock(device)", "sg_grow_unlock(device)",
             "(void)sg_device_give_back_growing(device, 1)"),
    "asking": ("core/streams/fences.c", "struct sg_device *device", "sg_asking_lock(device)",
               "sg_asking_unlock(device)", "fences_query_asking(device)"),
    "setup": ("core/start.c", "struct sg_device *device", "sg_setup_lock(device->core)",
              "sg_setup_unlock(device->core)", "(void)choose_mode_in_setup(device)"),
    "lock, of a field": ("core/core.c", "struct sg_device *device", "sg_device_lock(device)", "sg_device_unlock(device)",
                         "device->accounts.usage.frees++"),
}


@unittest.skipIf(CLANG is None, "no clang")
class WrongLocks(unittest.TestCase):
    def errors(self, file, parameter, *statements):
        body = "".join(f"    {statement};\n" for statement in statements)
        text = f'#include "{file}"\nvoid sg_wrong({parameter});\nvoid sg_wrong({parameter})\n{{\n{body}}}\n'
        with tempfile.NamedTemporaryFile("w", suffix=".c") as unit:
            unit.write(text)
            unit.flush()
            return subprocess.run(
                [CLANG, "-std=c11", "-D_GNU_SOURCE", "-DNDEBUG", "-Wthread-safety", "-Werror", "-fsyntax-only",
                 *(f"-I{ROOT / folder}" for folder in FOLDERS), unit.name], stderr=subprocess.PIPE, text=True).stderr

    def test_with_lock(self):
        for role, (file, parameter, takes, gives, call) in CALLS.items():
            with self.subTest(lock=role):
                self.assertEqual(self.errors(file, parameter, takes, call, gives), "")

    def test_without_lock(self):
        for role, (file, parameter, _, _, call) in CALLS.items():
            with self.subTest(lock=role):
                self.assertRegex(self.errors(file, parameter, call),
                                 rf"requires holding lock 'sg_under_{role.split(',')[0]}'")

    def test_given_back_too_soon(self):
        for role, (file, parameter, takes, gives, call) in CALLS.items():
            with self.subTest(lock=role):
                self.assertRegex(self.errors(file, parameter, takes, gives, call), "requires holding lock")

    def test_kept(self):
        for role, (file, parameter, takes, _, call) in CALLS.items():
            with self.subTest(lock=role):
                self.assertRegex(self.errors(file, parameter, takes, call), "is still held at the end of function")


if __name__ == "__main__":
    unittest.main(verbosity=2)
