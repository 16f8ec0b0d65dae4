"""Compares the simulated driver, or the library over it, with what NVIDIA's drivers have answered.

Usage: test_answers.py ASK SIMULATOR_FOLDER DRIVER [LIBRARY]

SIMULATOR_FOLDER has the simulated libcuda.so.1; DRIVER is one of the recorded ones. Equal must be every answer to a name,
a version and flags, every result without a device, and every text of an error, but for what listed.txt has with a reason.
With LIBRARY preloaded, exactly the functions that it exports are its own besides."""
import os
import sys

import answers


def main():
    ask, folder, driver, *library = sys.argv[1:]
    wanted = answers.recorded()[driver]
    environment = dict(os.environ, LD_LIBRARY_PATH=folder, SEGALLOC_SIM=f"1GiB,count=0,driver={answers.DRIVERS[driver]}")
    if library:
        environment["LD_PRELOAD"] = library[0]
    listed = answers.Listed()
    wrong, known = [], 0
    for kind in answers.KINDS:
        found = answers.ask([ask], kind, answers.questions(kind, wanted[kind]), environment)
        for difference in answers.compare(driver, kind, wanted[kind], found):
            if listed.reason("simulator", difference):
                known += 1
            else:
                wrong.append(f"{kind} of {difference.what}: {difference.found}, but {difference.expected} by NVIDIA's driver {driver}")
        if library and kind == "names":
            hooks = answers.hooked("nm", library[0])
            wrong += [f"whose function is {symbol}? {line}" for symbol, line in sorted(answers.handed_out(found, hooks))]
    wrong += [f"listed.txt has a row that explains nothing: {row}" for row in listed.unused("simulator", answers.KINDS, [driver])]
    print(f"driver {driver}: {sum(len(lines) for lines in wanted.values())} lines, {known} differ as listed, {len(wrong)} wrong")
    print(*wrong[:40], sep="\n")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
