"""Gets NVIDIA's user-mode drivers from Debian's non-free component into a folder of their own.

Nothing is installed, and apt's own files are left alone: its lists, cache and settings for this are in that folder too."""
import pathlib
import re
import shutil
import subprocess

# By the first number of NVIDIA's version: the package, and the suite of Debian that has it.
PACKAGES = {
    "470": ("libcuda1", "bullseye"),
    "525": ("libnvidia-tesla-cuda1", "bookworm"),
    "535": ("libcuda1", "bookworm"),
    "550": ("libcuda1", "trixie"),
    "555": ("libcuda1", "experimental"),
}
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"


class CannotBeHad(Exception):
    pass


def _output(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise CannotBeHad((done.stderr.strip().splitlines() or [f"{command[0]} failed"])[-1])
    return done.stdout


def _mirror():
    """Where the machine's own packages come from."""
    if not shutil.which("apt-get") or not pathlib.Path(KEYRING).exists():
        raise CannotBeHad("this is no Debian")
    for line in _output("apt-get", "indextargets", "--format", "$(ORIGIN) $(RELEASE) $(REPO_URI)", "Created-By: Packages").splitlines():
        origin, release, uri = line.split(" ", 2)
        if origin == "Debian" and not re.search(r"-(security|updates|backports)", release):
            return uri
    raise CannotBeHad("apt knows no mirror of Debian's: apt-get update")


class Apt:
    """apt with settings of its own."""

    def __init__(self, folder):
        for name in ("lists/partial", "cache/archives/partial", "empty"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / "status").touch()
        suites = sorted({suite for _, suite in PACKAGES.values()})
        mirror = _mirror()
        (folder / "sources").write_text("".join(
            f"deb [arch=amd64 signed-by={KEYRING}] {mirror} {suite} non-free\n" for suite in suites))
        settings = {"Dir::Etc::sourcelist": "sources", "Dir::Etc::sourceparts": "empty", "Dir::Etc::preferencesparts": "empty",
                    "Dir::State::lists": "lists", "Dir::State::status": "status", "Dir::Cache": "cache"}
        self.options = [f"-o{key}={folder / name}" for key, name in settings.items()]
        self.options += ["-oAPT::Sandbox::User=", "-oAcquire::Retries=1", "-oAcquire::http::Timeout=20"]

    def get(self, *words, cwd=None):
        done = subprocess.run(["apt-get", *self.options, *words], capture_output=True, text=True, cwd=cwd)
        return done.returncode == 0, (done.stderr.strip().splitlines() or [""])[-1]


def _library(place):
    found = sorted(path for path in place.rglob("libcuda.so.1") if path.exists())
    return found[0].resolve() if found else None


def version_of(library):
    return library.name.rpartition("libcuda.so.")[2]


def get(folder, say=print):
    """{driver: the path of its library}. What is there already is not fetched again; what can't be had is said."""
    folder = pathlib.Path(folder).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    found, apt = {}, None
    for driver, (package, suite) in PACKAGES.items():
        place = folder / driver
        if not place.exists():
            if not apt:
                apt = Apt(folder / "apt")
                apt.get("update")  # a suite that is gone is said where its package is missed
            fresh = folder / (driver + ".new")
            shutil.rmtree(fresh, ignore_errors=True)
            fresh.mkdir()
            well, said = apt.get("download", f"{package}/{suite}", cwd=fresh)
            files = list(fresh.glob("*.deb"))
            if not well or not files:
                say(f"no driver {driver}: {package} of {suite}: {said}")
                shutil.rmtree(fresh)
                continue
            _output("dpkg-deb", "-x", str(files[0]), str(fresh / "root"))
            files[0].unlink()
            fresh.rename(place)
        library = _library(place)
        if library:
            found[driver] = library
    return found
