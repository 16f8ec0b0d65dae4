#!/bin/sh
# usage: runtimes.sh FOLDER. Gets NVIDIA's CUDA runtimes from PyPI into FOLDER and prints their paths, one a line; what is
# there already is not fetched again. For
#   meson configure BUILD -Dnvidia_runtimes="$(runtimes.sh FOLDER | paste -sd,)"
set -eu
folder=${1:?usage: runtimes.sh FOLDER}
for package in nvidia-cuda-runtime-cu12==12.4.127 nvidia-cuda-runtime-cu12==12.8.90 nvidia-cuda-runtime==13.0.96 \
    nvidia-cuda-runtime==13.5.37; do
    place=$folder/${package##*==}
    if ! [ -d "$place" ]; then
        rm -rf "$place.new"
        python3 -m pip --quiet --disable-pip-version-check --retries 1 --timeout 20 install --no-deps \
            --only-binary=:all: --target "$place.new" "$package" >&2
        mv "$place.new" "$place"
    fi
    find "$place" -name 'libcudart.so.*'
done
