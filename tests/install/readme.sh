#!/bin/sh
# What README and CONTRIBUTING begin with, in a root that has nothing but the tree and Debian's required
# packages: ./dev demo, and of ./dev test the portion that its arguments name: readme.sh [ARGUMENTS]
#
# SPDX-License-Identifier: BSD-3-Clause
# shellcheck source=tests/install/roots.sh
. "$(dirname "$0")/roots.sh"

[ $# -gt 0 ] || set -- -k test_fetch
bare_root readme
mkdir "$root/gpufetch"
git -C "$tree" archive HEAD | tar -x -C "$root/gpufetch"
inside /gpufetch/dev demo
inside /gpufetch/dev test "$@"
