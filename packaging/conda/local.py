"""Builds and installs the conda package where no channel can be reached.
usage: local.py build RECIPE FOLDER      the package is printed
       local.py install PACKAGE PREFIX   into an environment, such as one made by venv

A channel of empty packages stands in for conda-forge: one for each name that the recipe requires. So the recipe is resolved, built and
installed as it is, and what those packages would have had is the machine's. An example: `jansson` of the stand-ins has no file. Meson finds the
machine's libjansson, and the tool needs libjansson4 where it is installed. rattler-build and rattler are from PyPI."""
import asyncio
import pathlib
import platform
import shutil
import sys
import tempfile

import rattler
import rattler_build

SUBDIR = str(rattler.Platform.current())


def make_channel(folder, requirements):
    """Python's version names the folder of modules. All others have one that satisfies any requirement."""
    for name in {requirement.split()[0] for requirement in requirements}:
        version = platform.python_version() if name == "python" else "99"
        rattler_build.assemble_package(name, version, SUBDIR, "machine_0", folder / SUBDIR, summary="a stand-in: the machine's own is used")
    asyncio.run(rattler.index.index_fs(folder))
    return folder.as_uri()


def build(recipe, folder):
    (variant,) = rattler_build.Stage0Recipe.from_file(recipe).render()
    requirements = variant.recipe.to_dict()["requirements"]
    channel = make_channel(folder / "channel", [*requirements["build"], *requirements["host"], *requirements["run"]])
    result = variant.run_build(output_dir=folder / "built", channels=[channel], no_build_id=True, no_include_recipe=True)
    print(*result.packages, sep="\n")


async def install(package, prefix, channel):
    records = await rattler.solve([channel], [rattler_build.Package.from_file(package).name], virtual_packages=rattler.VirtualPackage.detect())
    await rattler.install(records, prefix, show_progress=False)


if len(sys.argv) != 4 or sys.argv[1] not in ("build", "install"):
    sys.exit(__doc__)
with tempfile.TemporaryDirectory() as work:
    one, other = (pathlib.Path(argument).resolve() for argument in sys.argv[2:])
    if sys.argv[1] == "build":
        build(one, other)
    else:
        channel = pathlib.Path(work)
        (channel / SUBDIR).mkdir()
        shutil.copy(one, channel / SUBDIR)
        asyncio.run(install(one, other, make_channel(channel, rattler_build.Package.from_file(one).depends)))
