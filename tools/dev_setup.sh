# ./dev sources this file: system packages, the Python environment, builds, and running tests. It uses
# say, die, quietly and the variables that ./dev sets.
# shellcheck shell=sh disable=SC2154

# --- What the system must have -------------------------------------------------------------------

# python_works PYTHON: is it 3.11 or newer, and has it headers and virtual environments?
python_works() {
  "$1" -c 'import os, sys, sysconfig, venv, ensurepip
header = os.path.join(sysconfig.get_path("include"), "Python.h")
sys.exit(sys.version_info < (3, 11) or not os.path.exists(header))' >/dev/null 2>&1
}

find_python() {
  for candidate in ${PYTHON:-python3 /usr/bin/python3 python3.13 python3.12 python3.11}; do
    if python_works "$candidate"; then
      python=$candidate
      return 0
    fi
  done
  return 1
}

# compiles COMPILER EXTENSION [FLAGS]: can the compiler build and link a program? COMPILER may be of
# several words, as "ccache gcc".
compiles() {
  compiler=$1 extension=$2
  shift 2
  directory=$(mktemp -d)
  printf '#include <stdio.h>\nint main(void) { return puts("") < 0; }\n' >"$directory/a.$extension"
  status=0
  # shellcheck disable=SC2086
  $compiler "$@" -o "$directory/a" "$directory/a.$extension" >/dev/null 2>&1 || status=1
  rm -rf "$directory"
  return "$status"
}

fuzzer_compiles() {
  directory=$(mktemp -d)
  printf 'int LLVMFuzzerTestOneInput(const char *p, long n) { return !p && n; }\n' >"$directory/a.c"
  status=0
  clang -fsanitize=fuzzer,address -o "$directory/a" "$directory/a.c" >/dev/null 2>&1 || status=1
  rm -rf "$directory"
  return "$status"
}

# missing_packages [fuzz|wheel]: print the Debian names of the packages that this system lacks.
missing_packages() {
  compiles "${CC:-cc}" c || printf 'gcc libc6-dev '
  compiles "${CXX:-c++}" cc || printf 'g++ '
  command -v pkg-config >/dev/null || printf 'pkg-config '
  command -v cmake >/dev/null || printf 'cmake '
  pkg-config --exists hdf5 2>/dev/null || printf 'libhdf5-dev '
  pkg-config --exists libzmq 2>/dev/null || printf 'libzmq3-dev '
  pkg-config --exists 'jansson >= 2.11' 2>/dev/null || printf 'libjansson-dev '
  pkg-config --exists 'libcrypto >= 3' 2>/dev/null || printf 'libssl-dev '
  { command -v h5dump && command -v h5ls; } >/dev/null || printf 'hdf5-tools '
  find_python || printf 'python3 python3-venv python3-dev '
  if [ "${1:-}" = fuzz ]; then
    fuzzer_compiles || printf 'clang '
  fi
  if [ "${1:-}" = wheel ]; then
    command -v dpkg-source >/dev/null || printf 'dpkg-dev '
    command -v autoreconf >/dev/null || printf 'autoconf '
    command -v automake >/dev/null || printf 'automake '
    command -v libtoolize >/dev/null || printf 'libtool '
    command -v make >/dev/null || printf 'make '
    command -v perl >/dev/null || printf 'perl '
    [ -e /usr/share/keyrings/debian-archive-keyring.gpg ] || printf 'debian-archive-keyring '
  fi
}

is_debian_like() {
  # shellcheck disable=SC1091 # the file exists where it is read
  command -v apt-get >/dev/null && [ -r /etc/os-release ] &&
    case "$(. /etc/os-release && printf '%s' "$ID")" in
      debian | ubuntu) true ;;
      *) false ;;
    esac
}

as_root() {
  if [ "$(id -u)" -eq 0 ]; then
    "$@"
  elif [ -t 0 ] && [ -z "${CI:-}" ]; then
    sudo "$@" # may ask for a password
  else
    sudo -n "$@"
  fi
}

need_by_hand() {
  cat >&2 <<END
dev: install these, then run this again (names as in Debian):
  $1
That is: a C and a C++ compiler, pkg-config, CMake, the HDF5 headers (1.10.3 or newer), h5dump and h5ls,
libzmq 4.3, jansson 2.11 and OpenSSL's libcrypto 3 or newer with headers,
Python 3.11 or newer with venv and headers; for ./dev fuzz also clang with libFuzzer.
END
  exit 2
}

system_packages() {
  missing=$(missing_packages "${1:-}")
  if [ -n "$missing" ]; then
    with_apt install_missing "${1:-}" || exit
  fi
  find_python
}

# with_apt COMMAND...: one at a time, since ./dev may run beside itself and apt-get does not wait.
with_apt() (
  mkdir -p "$logs"
  exec 9>"$logs/apt.lock"
  if command -v flock >/dev/null; then flock 9; fi
  "$@"
)

# install_missing [fuzz|wheel]: what is still missing.
install_missing() {
  missing=$(missing_packages "${1:-}")
  if [ -n "$missing" ]; then
    is_debian_like || need_by_hand "$missing"
    [ "$(id -u)" -eq 0 ] || command -v sudo >/dev/null || need_by_hand "$missing"
    say "missing system packages, installing with apt-get: $missing"
    quietly apt-update as_root apt-get update -q
    # shellcheck disable=SC2086 # a list of words
    quietly apt-install as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y $missing
    if [ "${1:-}" = fuzz ] && ! fuzzer_compiles; then
      runtime=libclang-rt-$(clang -dumpversion | cut -d. -f1)-dev
      quietly apt-install as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y "$runtime"
    fi
    missing=$(missing_packages "${1:-}")
    [ -z "$missing" ] || need_by_hand "$missing"
  fi
}

find_nvcc() {
  if ! command -v nvcc >/dev/null && [ -x /usr/local/cuda/bin/nvcc ]; then
    PATH=$PATH:/usr/local/cuda/bin
  fi
  if command -v nvcc >/dev/null; then
    cuda=-Dcuda=enabled
  else
    cuda=-Dcuda=disabled
    say "no nvcc on this machine: building without the CUDA backend"
  fi
}

# --- Python environment and builds ---------------------------------------------------------------

checksum() { cat "$@" | sha256sum | cut -c1-32; }

# Python compiles what it imports. If pip compiled everything, that would take longer than installing.
pip_install() {
  "$venv/bin/python" -m pip install --no-input --no-compile "$@"
}

install_all_packages() {
  quietly pip pip_install -r requirements-dev.txt
  printf '%s\n' "$1" >"$venv/dev-stamp"
}

# python_environment [behind]: with `behind`, the process $installing installs what a build does not need.
python_environment() {
  installing=''
  want="$(checksum requirements-dev.txt) $("$python" -c 'import sys; print(sys.version)')"
  if [ ! -x "$venv/bin/python" ] || [ "$(cat "$venv/dev-stamp" 2>/dev/null)" != "$want" ]; then
    say "installing the pinned Python packages into .venv"
    python_works "$venv/bin/python" || quietly venv "$python" -m venv --clear "$venv"
    # shellcheck disable=SC2046 # a list of words
    quietly pip-build pip_install $(sed -n -e '/^# Build/,/^$/{/^[^#]/p;}' -e '/^numpy=/p' requirements-dev.txt)
    if [ "${1:-}" = behind ]; then
      install_all_packages "$want" &
      installing=$!
    else
      install_all_packages "$want"
    fi
  fi
  PATH=$venv/bin:$PATH
  export PATH
}

set_up() {
  system_packages "${1:-}"
  find_nvcc
  python_environment
}

# compile DIRECTORY OPTIONS...: build everything there is, for C and Python.
compile() {
  directory=$1
  shift
  name=$(basename "$directory")
  set -- -Dpython=enabled -Dtests=true -Dexamples=true "$@"
  if [ "$(cat "$directory/dev-options" 2>/dev/null)" != "$*" ]; then
    rm -rf "$directory"
    quietly "$name-setup" meson setup "$directory" "$@"
    printf '%s\n' "$*" >"$directory/dev-options"
  fi
  quietly "$name" meson compile -C "$directory"
}

# install_package DIRECTORY WHERE: install the Python package that compile built in DIRECTORY. WHERE is
# .venv or, for a package with other build options, a folder for PYTHONPATH.
install_package() {
  directory=$1 where=$2
  name=$(basename "$directory")
  options=$(cat "$directory/dev-options")
  want="$(find meson.build meson.options pyproject.toml src hdf5_filter python jupyter -type f \
    ! -path '*/__pycache__/*' | LC_ALL=C sort | xargs sha256sum | checksum -) $options"
  [ "$(cat "$where/gpufetch-stamp" 2>/dev/null)" != "$want" ] || return 0
  set -- --no-deps --no-build-isolation --no-input "-Cbuild-dir=$directory"
  for option in $options; do
    set -- "$@" "-Csetup-args=$option"
  done
  if [ "$where" != "$venv" ]; then
    rm -rf "$where"
    set -- "$@" --target "$where"
  fi
  quietly "$name-install" "${pip_python:-$venv/bin/python}" -m pip install "$@" .
  printf '%s\n' "$want" >"$where/gpufetch-stamp"
}

# Print the compute capability of the first GPU without the dot; nothing where there is no GPU.
gpu_architecture() {
  nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1 | tr -d .
}

# gpu_options: options for meson, so that nvcc takes the least time: to build for this machine's GPU
# alone, or, where there is none, for one architecture and without optimization, since nothing of it runs.
gpu_options() {
  architecture=$(gpu_architecture)
  printf '%s -Dgpu_architectures=%s ' "$cuda" "${architecture:-90}"
  [ -n "$architecture" ] || printf '%s' -Dgpu_fast_compile=true
}

# In CI, warnings are errors in this build, so that lint needs no build of its own.
everyday_build() {
  system_packages
  find_nvcc
  python_environment behind
  say "building in ${build##*/}/"
  # shellcheck disable=SC2046 # a list of words
  compile "$build" $(gpu_options) ${CI:+-Dwerror=true}
  [ -z "$installing" ] || wait "$installing" || die 'the Python packages could not be installed'
  use_build "$build"
}

# use_build DIRECTORY: tell the tests where the compiled programs are.
use_build() {
  export GPUFETCH_BUILD_DIR="$1" GPUFETCH_GRAY_SCOTT="$1/examples/gray_scott"
}

# c_tests DIRECTORY: the results are in DIRECTORY/meson-logs/testlog.json. Those of suite waits, which hardly
# use a processor, run beside the others.
c_tests() {
  directory=$1 results=$1/meson-logs status=0
  rm -f "$results"/testlog*.json
  set -- meson test -C "$directory" --no-rebuild --print-errorlogs
  "$@" --suite waits --logbase testlog-waits --num-processes 4 >"$results/waits.log" 2>&1 &
  waits=$!
  "$@" --no-suite waits --num-processes "$(side_count)" || status=$?
  wait "$waits" || {
    status=$?
    cat "$results/waits.log"
  }
  cat "$results/testlog-waits.json" >>"$results/testlog.json"
  return "$status"
}

python_tests() { "${test_python:-$venv/bin/python}" -m pytest "$@"; }

# How many tests run at a time. More than there are processors, tests that measure time fail.
side_count() { nproc; }

# side_by_side [MOST]: arguments for pytest that run test files side by side, at most MOST (4) at a
# time, in the order in which tests/python/conftest.py has them.
side_by_side() {
  count=$(side_count)
  [ "$count" -le "${1:-4}" ] || count=${1:-4}
  printf '%s' "-n$count --dist=loadfile --no-loadscope-reorder"
}

# --- The documentation -------------------------------------------------------------------------

docs_venv=$root/.venv-docs

docs_environment() {
  want="$(checksum requirements-docs.txt) $("$python" -c 'import sys; print(sys.version)')"
  if [ "$(cat "$docs_venv/dev-stamp" 2>/dev/null)" != "$want" ]; then
    say "installing MkDocs into .venv-docs"
    quietly venv-docs "$python" -m venv --clear "$docs_venv"
    quietly pip-docs "$docs_venv/bin/python" -m pip install --no-input --no-compile \
      -r requirements-docs.txt
    printf '%s\n' "$want" >"$docs_venv/dev-stamp"
  fi
}

# --- The frameworks ------------------------------------------------------------------------------

framework_venv=$root/.venv-frameworks

# CPU builds of the frameworks have an environment of their own: they are large, and require certain
# versions of packages that .venv has, too. What pip finds as torch may be a build for GPUs with
# gigabytes of libraries. So pip is asked for the CPU build by its name, and at torch's own index where
# the usual one has no such build.
framework_environment() {
  want="$(checksum requirements-frameworks.txt) $("$python" -c 'import sys; print(sys.version)')"
  if [ "$(cat "$framework_venv/dev-stamp" 2>/dev/null)" != "$want" ]; then
    say "installing CPU builds of the frameworks into .venv-frameworks (minutes, 3 GB)"
    quietly venv-frameworks "$python" -m venv --clear "$framework_venv"
    torch=$(grep '^torch==' requirements-frameworks.txt)
    set -- "$framework_venv/bin/python" -m pip install --no-input --no-compile
    "$@" "$torch+cpu" >"$logs/pip-torch.log" 2>&1 ||
      quietly pip-torch "$@" --index-url https://download.pytorch.org/whl/cpu "$torch"
    quietly pip-frameworks "$@" -r requirements-frameworks.txt
    printf '%s\n' "$want" >"$framework_venv/dev-stamp"
  fi
}

# framework_tests ARGUMENTS...: run the tests that use the frameworks, with the package as built.
framework_tests() {
  install_package "$build" "$build/site-frameworks"
  # shellcheck disable=SC2046 # a list of words
  PYTHONPATH=$build/site-frameworks "$framework_venv/bin/python" -m pytest $(side_by_side) \
    tests/python/frameworks tests/python/test_dlpack_exchange.py tests/python/test_tree.py \
    'tests/python/test_pages.py::test_examples_of_a_page_run[frameworks.md]' \
    'tests/python/test_notebook.py::test_a_notebook_runs_alone_and_twice_in_one_kernel[frameworks.ipynb]' \
    'tests/python/test_notebook.py::test_a_notebook_runs_alone_and_twice_in_one_kernel[segmentation.ipynb]' \
    tests/python/test_notebook.py::test_cells_that_need_more_than_there_is_say_so_and_all_others_run \
    tests/python/test_convert.py "$@"
}

# --- Other HDF5 ----------------------------------------------------------------------------------

# Environments without gpufetch, one for each list in tests/hdf5: there the plugin has to do without
# the package. Only wheels are installed, because the libhdf5 that they bundle is what counts. The one
# for the suites of h5py and hdf5plugin runs them without gpufetch and with it.
hdf5_environments() {
  export GPUFETCH_HDF5_ENVIRONMENTS="$root/.venv-hdf5"
  for list in tests/hdf5/*.txt tests/hdf5/suites/*.txt; do
    name=$(basename "$list" .txt)
    environment=$GPUFETCH_HDF5_ENVIRONMENTS/$name
    want="$(checksum "$list") $("$python" -c 'import sys; print(sys.version)')"
    [ "$(cat "$environment/dev-stamp" 2>/dev/null)" != "$want" ] || continue
    say "installing the packages of $list into .venv-hdf5/$name"
    quietly "venv-$name" "$python" -m venv --clear "$environment"
    quietly "pip-$name" "$environment/bin/python" -m pip install --no-input --no-compile \
      --only-binary :all: -r "$list"
    printf '%s\n' "$want" >"$environment/dev-stamp"
  done
}

# --- JupyterLab ----------------------------------------------------------------------------------

# JupyterLab has an environment of its own; beside it lies an older ipykernel, for a kernel that finds it
# first. The page is opened by Chromium, which Debian has; where Chromium cannot be installed, as on
# Ubuntu without snaps, the tests of pages are skipped.
jupyterlab_environment() {
  export GPUFETCH_JUPYTERLAB="$root/.venv-jupyterlab"
  list=tests/jupyterlab/requirements.txt older=tests/jupyterlab/ipykernel6.txt
  want="$(checksum "$list" "$older") $("$python" -c 'import sys; print(sys.version)')"
  if [ "$(cat "$GPUFETCH_JUPYTERLAB/dev-stamp" 2>/dev/null)" != "$want" ]; then
    say "installing the packages of $list into .venv-jupyterlab"
    quietly venv-jupyterlab "$python" -m venv --clear "$GPUFETCH_JUPYTERLAB"
    quietly pip-jupyterlab "$GPUFETCH_JUPYTERLAB/bin/python" -m pip install --no-input --no-compile \
      -r "$list"
    quietly pip-ipykernel6 "$GPUFETCH_JUPYTERLAB/bin/python" -m pip install --no-input --no-compile \
      --no-deps --target "$GPUFETCH_JUPYTERLAB/ipykernel6" -r "$older"
    printf '%s\n' "$want" >"$GPUFETCH_JUPYTERLAB/dev-stamp"
  fi
  if { ! command -v chromium || ! command -v chromedriver; } >/dev/null && [ -r /etc/debian_version ] &&
    grep -q '^ID=debian' /etc/os-release; then
    say 'missing system packages, installing with apt-get: chromium chromium-driver'
    with_apt install_chromium || say 'no Chromium: the tests of pages are skipped'
  fi
}

install_chromium() {
  quietly apt-update as_root apt-get update -q
  quietly apt-chromium as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y \
    --no-install-recommends chromium chromium-driver
}

# say_frameworks PYTHON: say which frameworks that Python has, without importing them.
say_frameworks() {
  "$1" - <<'END'
import importlib.metadata as metadata

names = {
    "PyTorch": ["torch"],
    "TensorFlow": ["tensorflow", "tensorflow-cpu"],
    "JAX": ["jax"],
    "CuPy": ["cupy", "cupy-cuda12x", "cupy-cuda13x"],
    "Numba": ["numba-cuda", "numba"],
}
found = {}
for label, distributions in names.items():
    for name in distributions:
        try:
            found.setdefault(label, metadata.version(name))
        except metadata.PackageNotFoundError:
            pass
installed = ", ".join(f"{label} {version}" for label, version in found.items()) or "none"
absent = ", ".join(label for label in names if label not in found) or "none"
print(f"dev: frameworks installed: {installed}; not installed: {absent}")
END
}
