# ./dev sources this file: the wheels of hdf5-gpufetch, and what tests of them need; and the viewer's
# decoder, by the same compilers. It uses say, quietly and the variables that ./dev sets, and functions
# of dev_setup.sh.
# shellcheck shell=sh disable=SC2154

reader_venv=$root/.venv-reader

# The compilers are in an environment of their own, with the version that pyproject.toml names.
reader_compilers() {
  compilers=$(sed -n 's/^requires = .*"\(ziglang==[^"]*\)".*/\1/p' python/reader/pyproject.toml)
  want="$compilers $("$python" -c 'import sys; print(sys.version)')"
  if [ "$(cat "$reader_venv/dev-stamp" 2>/dev/null)" != "$want" ]; then
    say "installing $compilers into .venv-reader"
    quietly venv-reader "$python" -m venv --clear "$reader_venv"
    quietly pip-reader "$reader_venv/bin/python" -m pip install --no-input --no-compile "$compilers"
    printf '%s\n' "$want" >"$reader_venv/dev-stamp"
  fi
  # What is compiled once is kept, zig's own C libraries above all.
  export ZIG_GLOBAL_CACHE_DIR="$reader_venv/cache" ZIG_LOCAL_CACHE_DIR="$reader_venv/cache"
  export GPUFETCH_ZIGLANG="$reader_venv/bin/python"
}

decoder() {
  find_python || system_packages
  reader_compilers
  "$GPUFETCH_ZIGLANG" tools/build_decoder.py "$@"
}

reader_wheels() {
  find_python || system_packages
  reader_compilers
  "$reader_venv/bin/python" python/reader/build_reader.py --out dist "$@"
}

# What ./dev test --install needs: the wheels of every platform, programs of Python that read HDF5,
# HDF5 libraries of other platforms, and what runs those here.
reader_environments() {
  reader_compilers
  say 'building the wheels of hdf5-gpufetch'
  rm -rf "$reader_venv/wheels"
  quietly reader-wheels "$reader_venv/bin/python" python/reader/build_reader.py \
    --out "$reader_venv/wheels"
  export GPUFETCH_READER_WHEELS="$reader_venv/wheels"
  want="$(checksum tests/install/*.txt) $("$python" -c 'import sys; print(sys.version)')"
  if [ "$(cat "$reader_venv/install-stamp" 2>/dev/null)" != "$want" ]; then
    say 'installing readers of HDF5, and libraries of other platforms, into .venv-reader'
    quietly venv-site "$python" -m venv --clear "$reader_venv/site"
    quietly pip-site "$reader_venv/site/bin/python" -m pip install --no-input --no-compile \
      --only-binary :all: -r tests/install/readers.txt
    rm -rf "$reader_venv/hdf5" "$reader_venv/arm64"
    foreign_hdf5
    (foreign_programs) ||
      say 'some of qemu-user, Wine, musl, ncdump, R, Octave and GDAL are missing: their tests are skipped'
    printf '%s\n' "$want" >"$reader_venv/install-stamp"
  fi
}

foreign_hdf5() {
  grep -v '^#' tests/install/reader-hdf5.txt | while read -r name version platform of_python; do
    folder=$reader_venv/hdf5/$name/$version
    mkdir -p "$folder"
    quietly pip-foreign "$reader_venv/bin/python" -m pip download --no-input --no-deps \
      --only-binary :all: --platform "$platform" --python-version "$of_python" -d "$folder" \
      "h5py==$version"
    quietly unzip-foreign "$reader_venv/bin/python" -m zipfile -e "$folder"/*.whl "$folder"
  done
}

foreign_programs() {
  is_debian_like || return 1
  missing=''
  command -v qemu-aarch64 >/dev/null || missing="$missing qemu-user"
  [ -e /lib/ld-musl-x86_64.so.1 ] || missing="$missing musl"
  command -v ncdump >/dev/null || missing="$missing netcdf-bin"
  command -v gdalmdiminfo >/dev/null || missing="$missing gdal-bin"
  command -v octave-cli >/dev/null || missing="$missing octave"
  { command -v Rscript && Rscript -e 'library(hdf5r)'; } >/dev/null 2>&1 ||
    missing="$missing r-cran-hdf5r"
  { command -v wine64 || [ -e /usr/lib/wine/wine64 ]; } >/dev/null || missing="$missing wine64"
  if [ -n "$missing" ]; then
    say "missing system packages, installing with apt-get:$missing"
    quietly apt-update as_root apt-get update -q
    # shellcheck disable=SC2086 # a list of words
    quietly apt-foreign as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y \
      --no-install-recommends $missing
  fi
  quietly apt-arm64 arm64_packages hdf5-tools musl
}

# Unpack packages of arm64, and all that they depend on, into .venv-reader/arm64/files. apt keeps what
# it knows of them there, and checks their signatures with this system's keys.
arm64_packages() {
  base=$reader_venv/arm64
  mkdir -p "$base/state/lists/partial" "$base/cache/archives/partial" "$base/files"
  : >"$base/state/status"
  for step in update 'install -y --no-install-recommends --download-only'; do
    [ "$step" = update ] || step="$step $*"
    # shellcheck disable=SC2086 # a list of words
    apt-get -q -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State="$base/state" \
      -o Dir::State::status="$base/state/status" -o Dir::Cache="$base/cache" $step || return 1
  done
  for package in "$base"/cache/archives/*.deb; do
    dpkg-deb -x "$package" "$base/files" || return 1
  done
}
