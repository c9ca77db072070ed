#!/bin/sh
# The reader's wheel in a root that has Python, and h5py by pip: reader.sh WHEEL FILE LIST
#
# FILE has every dtype and mode of the codec, LIST what is in it (use_package.py).
#
# SPDX-License-Identifier: BSD-3-Clause
# shellcheck source=tests/install/roots.sh
. "$(dirname "$0")/roots.sh"

bare_root reader python3 python3-venv
give "$@" "$tree/tests/install/use_package.py"
inside python3 -m venv /venv
inside /venv/bin/pip install -q --only-binary :all: "/given/$(basename "$1")" h5py
inside /venv/bin/python /given/use_package.py hdf5_gpufetch "/given/$(basename "$2")" "/given/$(basename "$3")"
inside /venv/bin/hdf5-gpufetch ls "/given/$(basename "$2")"
