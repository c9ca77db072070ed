# The scripts beside this file source it: bare roots of Debian 12, and commands in them. Needs root,
# debootstrap and a network; apt-get and debootstrap check signatures. The roots stay in
# build-roots/, which may be deleted.
# shellcheck shell=sh

set -eu
tree=$(cd "$(dirname "$0")/../.." && pwd)
roots=$tree/build-roots
certificates=/etc/ssl/certs/ca-certificates.crt # of this machine, for pip

die() {
  printf '%s: %s\n' "$(basename "$0")" "$*" >&2
  exit 1
}

# bare_root NAME PACKAGES...: a fresh root that has these packages beside those that Debian calls
# required. Sets root to its folder.
bare_root() {
  root=$roots/$1
  shift
  [ "$(id -u)" -eq 0 ] || die 'needs root, for debootstrap and chroot'
  command -v debootstrap >/dev/null || die 'debootstrap is missing: apt-get install debootstrap'
  if [ ! -e "$roots/debian12-complete" ]; then
    rm -rf "$roots/debian12"
    mkdir -p "$roots"
    debootstrap --force-check-gpg --variant=minbase bookworm "$roots/debian12" \
      http://deb.debian.org/debian >"$roots/debootstrap.log" 2>&1 ||
      die "debootstrap failed: $roots/debootstrap.log"
    touch "$roots/debian12-complete"
  fi
  rm -rf "$root"
  cp -a --reflink=auto "$roots/debian12" "$root"
  cp /etc/resolv.conf "$root/etc/resolv.conf"
  mkdir -p "$root/dev/shm" "$root/given"
  [ ! -e "$certificates" ] || cp "$certificates" "$root/given/certificates.pem"
  inside apt-get update -q
  [ $# -eq 0 ] || inside apt-get install -q -y --no-install-recommends "$@"
}

# inside COMMAND...: run it in the root, as root, with mounts and processes of its own, and of this
# machine's environment only what pip needs.
inside() {
  set -- PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 \
    DEBIAN_FRONTEND=noninteractive PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore \
    PIP_NO_INPUT=1 "$@"
  [ ! -e "$root/given/certificates.pem" ] || set -- PIP_CERT=/given/certificates.pem "$@"
  # shellcheck disable=SC2016 # expanded by the inner shell
  unshare --mount --pid --fork --kill-child sh -c '
    mount -t proc proc "$0/proc"
    mount -t tmpfs tmpfs "$0/dev/shm"
    exec chroot "$0" /usr/bin/env -i "$@"' "$root" "$@"
}

# give FILES...: copy them into the root's folder /given.
give() { cp "$@" "$root/given/"; }
