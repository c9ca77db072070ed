# ./dev sources this file: the wheel and the sdist of gpufetch, and the scripts of tests/install, which
# try them in bare roots. It uses say, die, quietly and the variables that ./dev sets, and functions of
# dev_setup.sh and dev_reader.sh.
# shellcheck shell=sh disable=SC2154

wheel_venv=$root/.venv-wheel
wheel_build=$root/build-wheel
wheel_libraries=$root/build-wheel-libraries

wheel_environment() {
  want="$(checksum requirements-wheel.txt) $("$python" -c 'import sys; print(sys.version)')"
  if [ "$(cat "$wheel_venv/dev-stamp" 2>/dev/null)" != "$want" ]; then
    say 'installing what checks wheels into .venv-wheel'
    quietly venv-wheel "$python" -m venv --clear "$wheel_venv"
    quietly pip-wheel "$wheel_venv/bin/python" -m pip install --no-input --no-compile \
      -r requirements-wheel.txt
    printf '%s\n' "$want" >"$wheel_venv/dev-stamp"
  fi
}

# The libraries within the wheel, compiled as it is: once, until the script or the compilers change.
wheel_dependencies() {
  want="$compilers $(checksum tools/wheel_libraries.py)"
  if [ "$(cat "$wheel_libraries/dev-stamp" 2>/dev/null)" != "$want" ]; then
    say 'building libsodium, libzmq, jansson and libcrypto (minutes)'
    quietly wheel-libraries "$GPUFETCH_ZIGLANG" tools/wheel_libraries.py "$wheel_libraries"
    printf '%s\n' "$want" >"$wheel_libraries/dev-stamp"
  fi
}

# For Meson: zig compiles C and links, so that no symbol is newer than glibc 2.28. Of the system it takes
# headers that zig has none of, of Python above all. nvcc keeps its own host compiler.
wheel_native_file() {
  cat >"$wheel_libraries/native.ini" <<END
[binaries]
c = ['$GPUFETCH_ZIGLANG', '-m', 'ziglang', 'cc', '-target', 'x86_64-linux-gnu.2.28']

[built-in options]
c_args = ['-idirafter', '/usr/include']
c_link_args = ['-Wl,-s']
END
}

# wheel [--gpu-architectures LIST] [--out DIRECTORY]
wheel() {
  architectures='' out=dist
  while [ $# -gt 0 ]; do
    case $1 in
      --gpu-architectures) architectures=${2:?--gpu-architectures needs a list, such as 80,90} && shift ;;
      --out) out=${2:?--out needs a directory} && shift ;;
      *) die "wheel: unknown argument $1" ;;
    esac
    shift
  done
  [ "$(uname -m)" = x86_64 ] || die 'wheel: for x86-64, on x86-64'
  set_up wheel
  reader_compilers
  wheel_environment
  wheel_dependencies
  wheel_native_file
  # Meson and pip give the same bytes for the same time.
  SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null || echo 1700000000)
  PKG_CONFIG_PATH=$wheel_libraries/lib/pkgconfig
  export SOURCE_DATE_EPOCH PKG_CONFIG_PATH
  set -- "--native-file=$wheel_libraries/native.ini" "$cuda" -Dprefer_static=true -Dhdf5=enabled \
    -Djansson=enabled -Dserve=enabled ${architectures:+"-Dgpu_architectures=$architectures"}
  if [ "$(cat "$wheel_build/dev-options" 2>/dev/null)" != "$*" ]; then
    rm -rf "$wheel_build"
    mkdir -p "$wheel_build"
    printf '%s\n' "$*" >"$wheel_build/dev-options"
  fi
  for option in "$@"; do
    shift
    set -- "$@" "-Csetup-args=$option"
  done
  say 'building the wheel in build-wheel/'
  rm -rf "$wheel_build/raw"
  quietly wheel "$venv/bin/python" -m pip wheel --no-deps --no-build-isolation --no-input \
    "-Cbuild-dir=$wheel_build" "$@" -w "$wheel_build/raw" .
  toolkit=''
  [ "$cuda" = -Dcuda=disabled ] ||
    toolkit=$(nvcc --version | sed -n 's/.*, V\([0-9.]*\)$/\1/p')
  "$wheel_venv/bin/python" tools/finish_wheel.py "$wheel_build"/raw/*.whl "$out" \
    --libraries "$wheel_libraries" --zig "${compilers#*==}" ${toolkit:+--cuda "$toolkit"}
}

# sdist [DIRECTORY]: what is committed, and nothing else.
sdist() {
  set_up
  git diff --quiet HEAD || say 'sdist: what is not committed is left out'
  quietly sdist "$venv/bin/python" -c 'import sys, mesonpy; mesonpy.build_sdist(sys.argv[1])' "${1:-dist}"
  say "$(ls "${1:-dist}"/gpufetch-*.tar.gz)"
}

# What the scripts of tests/install need beside what reader_environments makes.
install_environments() {
  export GPUFETCH_WHEELS="$wheel_venv/wheels"
  rm -rf "$GPUFETCH_WHEELS"
  mkdir -p "$GPUFETCH_WHEELS"
  architecture=$(gpu_architecture)
  # In child processes: what these export is for them.
  (wheel --gpu-architectures "${architecture:-90}" --out "$GPUFETCH_WHEELS")
  (sdist "$GPUFETCH_WHEELS")
  command -v debootstrap >/dev/null || {
    is_debian_like || die 'debootstrap is missing'
    with_apt install_debootstrap
  }
}

install_debootstrap() {
  say 'missing system packages, installing with apt-get: debootstrap'
  quietly apt-update as_root apt-get update -q
  quietly apt-debootstrap as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y debootstrap
}

# install_tests ARGUMENTS: each script takes minutes, which no test that hangs is to be taken for.
install_tests() {
  "$venv/bin/python" -m pytest tests/python/test_install.py -o faulthandler_timeout=0 "$@"
}
