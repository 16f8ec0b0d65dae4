"""`pip install tools/python` makes the fields of segalloc.stats() from the library's table, as the build does."""
import os
import subprocess
import sys

from setuptools import setup
from setuptools.command.build_py import build_py

HERE = os.path.dirname(os.path.abspath(__file__))


class Build(build_py):
    def run(self):
        super().run()
        subprocess.check_call([sys.executable, os.path.join(HERE, "fields.py"),
                               os.path.join(HERE, "..", "..", "src", "base", "stats.def"),
                               os.path.join(self.build_lib, "segalloc", "_fields.py"), self.distribution.get_version()])


setup(cmdclass={"build_py": Build})
