# ./dev sources this file: gpu-bundle and gpu-test, for GPU nodes without a network
# (docs/gpu-nodes.md).
# shellcheck shell=sh disable=SC2154,SC2034

# The packages that a machine set up for GPU computing with Python usually lacks.
bundle_packages='meson-python pyproject-metadata packaging ipykernel comm
  jupyter_client jupyter_core pyzmq tornado traitlets matplotlib-inline nest-asyncio2 psutil
  ipython ipython_pygments_lexers Pygments asttokens executing pure_eval stack-data jedi parso
  prompt_toolkit wcwidth pexpect ptyprocess python-dateutil tzdata platformdirs
  typing_extensions nbclient nbformat fastjsonschema jsonschema jsonschema-specifications
  referencing rpds-py attrs anywidget ipywidgets jupyterlab_widgets widgetsnbextension psygnal
  pytest-xdist execnet'

gpu_bundle() {
  version='' nvcomp=''
  while [ $# -gt 0 ]; do
    case $1 in
      --python) version=${2:?--python needs a version, such as 3.12} && shift ;;
      --nvcomp) nvcomp=yes ;;
      *) die "gpu-bundle: unknown argument $1" ;;
    esac
    shift
  done
  set_up
  [ -n "$version" ] ||
    version=$("$venv/bin/python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  bundle=$root/.gpu-bundle
  rm -rf "$bundle"
  mkdir -p "$bundle"
  for package in $bundle_packages; do
    grep -i "^$package==" requirements-dev.txt || die "requirements-dev.txt does not pin $package"
  done >"$bundle/requirements.txt"
  if [ -n "$nvcomp" ]; then cat requirements-nvcomp.txt >>"$bundle/requirements.txt"; fi
  set -- --python-version "$version" --implementation cp --abi "cp$(printf %s "$version" | tr -d .)" \
    --abi abi3 --abi none
  for glibc in 34 31 28 27 24 17 12 5; do
    set -- "$@" --platform "manylinux_2_${glibc}_$(uname -m)"
  done
  set -- "$@" --platform "manylinux2014_$(uname -m)"
  say "downloading wheels for Python $version"
  quietly gpu-bundle "$venv/bin/python" -m pip download --no-input --no-deps \
    --only-binary=:all: "$@" -d "$bundle" -r "$bundle/requirements.txt"
  say "$(find "$bundle" -name '*.whl' | wc -l) wheels, $(du -sm "$bundle" | cut -f1) MiB in .gpu-bundle/"
}

# step NAME COMMAND...: run and time one stage of gpu-test. A failure ends the run or, with
# --keep-going, is remembered.
step() {
  name=$1
  shift
  began=$(date +%s)
  # The stage is a child process, so that its failure does not end the run by itself.
  if ("$@"); then
    outcome=ok
  else
    outcome=FAILED
    failed="$failed $name"
  fi
  say "$name: $outcome, $(($(date +%s) - began)) s"
  [ "$outcome" = ok ] || [ -n "$keep_going" ] || finish_gpu_test
}

finish_gpu_test() {
  say "gpu-test: logs in $out"
  cp "$logs"/gpu-*.log "$out" 2>/dev/null || true
  if [ -f "$out/counts.txt" ]; then cat "$out/counts.txt"; fi
  [ -z "$failed" ] || die "gpu-test FAILED:$failed"
  say 'gpu-test: passed'
  exit 0
}

gpu_site() {
  "$test_python" - "$root/.gpu-bundle" <<'END' >"$logs/gpu-wheels"
import importlib.metadata, pathlib, sys
for wheel in sorted(pathlib.Path(sys.argv[1]).glob("*.whl")):
    try:
        importlib.metadata.distribution(wheel.name.split("-")[0])
    except importlib.metadata.PackageNotFoundError:
        print(wheel)
END
  [ -s "$logs/gpu-wheels" ] || return 0
  # shellcheck disable=SC2046 # a list of files, without spaces: pip made the names
  quietly gpu-site "$test_python" -m pip install --no-index --no-deps --no-compile --no-input \
    --target "$site" $(cat "$logs/gpu-wheels")
}

gpu_answers() {
  "$test_python" -m gpufetch info &&
    "$test_python" -c 'import sys, gpufetch
sys.exit(not gpufetch.info()["default_device"].startswith("cuda"))'
}

# logged NAME COMMAND...: write the output to build-logs/NAME.log, and show its end on failure.
logged() {
  log=$logs/$1.log
  shift
  "$@" >"$log" 2>&1 || {
    tail -n 40 "$log"
    return 1
  }
}

gpu_counts() {
  "$test_python" tools/count_tests.py --gpu-required --meson "$build/meson-logs/testlog.json" \
    --pytest "$out/pytest.xml" >"$out/counts.txt"
}

# Errors of API calls are not reported, because tests provoke them (an example is running out of memory).
sanitizer_options='--error-exitcode 99 --report-api-errors no --target-processes all'

# memcheck over the C tests and the Python tests that use the GPU, without those under a timer, whose
# signals end the sanitizer's own processes.
gpu_memcheck() {
  wrapper="compute-sanitizer --tool memcheck $sanitizer_options --log-file $out/memcheck-%p.txt"
  uninterrupted=$(meson test -C "$build" --no-rebuild --list --no-suite cpu --no-suite host |
    sed -n 's/.*://; /_interrupted$/!p' | sort -u)
  # shellcheck disable=SC2086 # lists of words
  logged gpu-memcheck-c meson test -C "$build" --no-rebuild --timeout-multiplier 5 --print-errorlogs \
    --logbase memcheck --wrapper "$wrapper" --no-suite cpu --no-suite host $uninterrupted || return 1
  # shellcheck disable=SC2086 # a list of words
  logged gpu-memcheck-python env GPUFETCH_STRESS_SECONDS=5 timeout 1800 $wrapper "$test_python" \
    -m pytest -q -k "$gpu_python_subset"
}
# Kernels of the frameworks are not checked.
gpu_python_subset='(gpu or cuda) and not frameworks and not benchmarks'

# racecheck over the C tests whose kernels use shared memory, which is all that it looks at, and slowly:
# each test is a process of its own, beside others.
gpu_racecheck() {
  for program in codec_batch copy layout many reduce; do
    GPUFETCH_TEST_LIST=1 "$build/tests/c/test_$program" | sed -n "s/^# \(.* on cuda\)\$/$program \1/p"
  done >"$out/racecheck-tests.txt"
  [ -s "$out/racecheck-tests.txt" ] || return 1
  # shellcheck disable=SC2016 # $0 and the others are those of the inner shell
  racecheck_one='program=$3 options=$2 directory=$1; shift 3
    log=$directory/racecheck-$program-$(printf %s "$*" | tr " " _).txt
    # shellcheck disable=SC2086
    GPUFETCH_TEST_NAME="$*" compute-sanitizer --tool racecheck $options --log-file "$log" \
      "$0/tests/c/test_$program" </dev/null || { echo "$program: $* gave $?: $log"; exit 1; }'
  logged gpu-racecheck xargs -P "$(nproc)" -L 1 \
    sh -c "$racecheck_one" "$build" "$out" "$sanitizer_options" <"$out/racecheck-tests.txt"
}

gpu_tests() {
  step 'C tests' logged gpu-c-tests c_tests "$build"
  # shellcheck disable=SC2046 # a list of words
  step 'Python tests' logged gpu-pytest python_tests $(side_by_side 8) -p no:benchmark -q -rf \
    --junit-xml="$out/pytest.xml"
  step 'no test skipped for want of a GPU' gpu_counts
  step simulation logged gpu-simulation "$GPUFETCH_GRAY_SCOTT" --n 64 --steps 200 --every 100 \
    --output "$out/gray_scott"
  step 'notebook of the frameworks' logged gpu-notebook env MPLBACKEND=Agg "$test_python" \
    tools/run_notebook.py notebooks/frameworks.ipynb "$out"
}

gpu_test() {
  keep_going='' sanitizers='' tests=yes failed=''
  build=$root/build-gpu
  out=$build-report # no part of the build directory, which a change of options removes
  while [ $# -gt 0 ]; do
    case $1 in
      --keep-going) keep_going=yes ;;
      --sanitize) sanitizers='memcheck racecheck' ;;
      --sanitize=memcheck | --sanitize=racecheck) sanitizers=${1#*=} tests='' ;;
      --out) out=${2:?--out needs a directory} && shift ;;
      *) die "gpu-test: unknown argument $1" ;;
    esac
    shift
  done
  test_python=${PYTHON:-python3}
  pip_python=$test_python
  site=$build-site
  mkdir -p "$out" "$logs"
  out=$(cd "$out" && pwd)
  rm -f "$logs"/gpu-* "$out/counts.txt" "$out/pytest.xml"
  find_nvcc
  PYTHONPATH=$build/site:$site${PYTHONPATH:+:$PYTHONPATH}
  PATH=$site/bin:$PATH
  PIP_NO_INDEX=1
  export PYTHONPATH PATH PIP_NO_INDEX
  use_build "$build"

  architecture=$(gpu_architecture)
  step 'wheels from .gpu-bundle' gpu_site
  step build compile "$build" "$cuda" ${architecture:+-Dgpu_architectures="$architecture"}
  step install install_package "$build" "$build/site"
  step 'gpufetch info' gpu_answers
  if [ -n "$tests" ]; then gpu_tests; fi
  for tool in $sanitizers; do
    step "compute-sanitizer $tool" "gpu_$tool"
  done
  finish_gpu_test
}
