#!/bin/sh
# gpufetch's sdist, built by pip in a root that has the packages of docs/c-programs.md: sdist.sh SDIST FILE LIST
#
# FILE has every dtype and mode of the codec, LIST what is in it (use_package.py).
#
# SPDX-License-Identifier: BSD-3-Clause
# shellcheck source=tests/install/roots.sh
. "$(dirname "$0")/roots.sh"

# shellcheck disable=SC2016 # the backquotes are those of the page
packages=$(sed -n 's/.*`apt install \([^`]*\)`.*/\1/p' "$tree/docs/c-programs.md")
[ -n "$packages" ] || die 'docs/c-programs.md names no packages to install'
# shellcheck disable=SC2086 # a list of words
bare_root sdist python3 python3-venv python3-dev libc6-dev $packages
give "$@" "$tree/tests/install/use_package.py"
inside python3 -m venv /venv
inside /venv/bin/pip install -q "/given/$(basename "$1")"
inside /venv/bin/python /given/use_package.py gpufetch "/given/$(basename "$2")" "/given/$(basename "$3")"
