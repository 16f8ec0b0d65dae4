#!/bin/sh
# usage: headers.sh [13|12] [FOLDER]. Gets NVIDIA's CUDA headers of that major from PyPI into FOLDER (default: a folder
# of the user's cache) and prints the include path; what is there already is not fetched again. For
#   meson configure BUILD -Dnvidia_headers="$(headers.sh 13)"
set -eu
major=${1:-13}
case $major in
13) packages="nvidia-cuda-runtime==13.0.96 nvidia-cuda-crt==13.0.88" ;;
12) packages="nvidia-cuda-runtime-cu12==12.9.79 nvidia-cuda-nvcc-cu12==12.9.86" ;; # the latter for crt/
*)
    echo "usage: headers.sh [13|12] [FOLDER]" >&2
    exit 2
    ;;
esac
cache=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}
folder=${2:-$cache/segalloc/cuda-headers}/$major
include=$folder/include
if [ -f "$include/cuda_runtime.h" ] && [ -f "$include/crt/host_config.h" ]; then
    echo "$include"
    exit 0
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck disable=SC2086
if ! python3 -m pip --quiet --disable-pip-version-check --retries 1 --timeout 20 download --no-deps \
    --only-binary=:all: -d "$work" $packages >&2; then
    echo "headers.sh: no CUDA $major headers: 'pip download $packages' failed; with headers of your own set" \
        "-Dnvidia_headers=FOLDER" >&2
    exit 1
fi
python3 - "$work" "$work/include" <<'END'
import glob, os, sys, zipfile
source, target = sys.argv[1:]
for wheel in glob.glob(os.path.join(source, "*.whl")):
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            inside = name.partition("/include/")[2]
            if not inside or name.endswith("/") or inside.startswith(("cccl/", "nv/", "thrust/", "cub/", "cuda/")):
                continue
            path = os.path.normpath(os.path.join(target, inside))
            if not path.startswith(target + os.sep):
                continue
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.write(archive.read(name))
END
mkdir -p "$folder"
rm -rf "$include"
mv "$work/include" "$include"
echo "$include"
