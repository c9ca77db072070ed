#!/bin/sh
# Tests of what the extra jupyter is for, in an environment with exactly the lower bounds of pyproject.toml
# and the oldest Python that is supported or, where there is none, this one: lower_bounds.sh WHEEL FOLDER
#
# FOLDER is made for the environment.
#
# SPDX-License-Identifier: BSD-3-Clause
set -eu
tree=$(cd "$(dirname "$0")/../.." && pwd)
python=$(command -v python3.11 || command -v python3)
wheel=$1 folder=$2

"$python" -m venv --clear "$folder"
"$python" "$tree/tests/install/lower_bounds.py" "$tree/pyproject.toml" jupyter >"$folder/bounds.txt"
cat "$folder/bounds.txt"
"$folder/bin/python" -m pip install -q --no-input --no-compile --only-binary :all: -r "$folder/bounds.txt" \
  "$wheel" 'pytest>=8' hypothesis nbclient nbformat ipympl jupyter_console
"$folder/bin/python" -m pip check
cd "$tree"
# Old releases warn of what newer ones of their own needs will no longer have.
"$folder/bin/python" -m pytest -q -p no:cacheprovider -W ignore::DeprecationWarning \
  tests/python/test_magic.py tests/python/test_display.py tests/python/test_viewer.py \
  tests/python/test_plot.py tests/python/test_plot_norms.py tests/python/test_comm_kernel.py \
  tests/python/test_connect.py tests/python/test_lazy.py tests/python/test_hdf5_read.py
