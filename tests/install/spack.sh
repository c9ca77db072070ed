#!/bin/sh
# The commands of the recipes for Spack, in a root that has Debian's packages of what they depend on, and
# without Spack: spack.sh SDIST
#
# SPDX-License-Identifier: BSD-3-Clause
# shellcheck source=tests/install/roots.sh
. "$(dirname "$0")/roots.sh"

bare_root spack gcc libc6-dev pkg-config libhdf5-dev libjansson-dev libzmq3-dev libssl-dev ninja-build \
  python3 python3-venv python3-dev
give "$1" "$tree/tests/install/run_spack.py"
for name in gpufetch py-gpufetch; do
  cp "$tree/packaging/spack/$name/package.py" "$root/given/$name.py"
done
inside python3 -m venv /venv
inside /venv/bin/pip install -q 'pip>=23.1' meson meson-python numpy h5py ml_dtypes
# shellcheck disable=SC2016 # expanded in the root
inside sh -ec '
  mkdir /sources && tar -xf "$0" -C /sources --strip-components=1
  PATH=/venv/bin:$PATH
  python /given/run_spack.py /given/gpufetch.py /sources /opt/gpufetch
  pkg-config --with-path=/opt/gpufetch/lib/pkgconfig --modversion gpufetch gpufetch-serve
  test -e /opt/gpufetch/lib/hdf5/plugin/libh5z_gpufetch.so
  python /given/run_spack.py /given/py-gpufetch.py /sources /opt/py-gpufetch
  cd /
  export PYTHONPATH=$(echo /opt/py-gpufetch/lib/python3*/site-packages)
  python -m gpufetch info' "/given/$(basename "$1")"
