#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Proves the README on a bare machine: a minimal Debian 12 tree, `git clone` of the committed state of this repository, one
# ./dev command. Prints how long the clone and the command took.
#
# usage: scripts/clean_debian.sh demo|test|COMMAND... [--keep]      as root (debootstrap, mounts in a private namespace)
# TESSERA_CLEAN_CCACHE=DIR lends the tree a compiler cache: what is installed is proved all the same, the time is not a cold
# one. The base tree is made once under ${TESSERA_CLEAN_TREE:-/tmp/debian}; each run works on a copy of it. The package mirrors
# are the ones that this machine's apt and pip use.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
for part in common setup; do . "scripts/$part.sh"; done

keep="" arguments=()
for argument in "$@"; do
  if [ "$argument" = --keep ]; then keep=1; else arguments+=("$argument"); fi
done
[ ${#arguments[@]} != 0 ] || die "usage: scripts/clean_debian.sh demo|test [--keep]"
[ "$(id -u)" = 0 ] || die "a clean tree needs root: debootstrap makes device nodes and this script mounts /proc"
have debootstrap || setup clean

place=${TESSERA_CLEAN_TREE:-/tmp/debian}
base=$place/base
tree=$place/run-$$

# Where apt on this machine finds Debian itself: deb822 files or one-line sources.
mirror() {
  local file
  for file in /etc/apt/sources.list.d/*.sources /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
    [ -r "$file" ] || continue
    awk '/^URIs:/ {for (i = 2; i <= NF; i++) print $i}
         /^deb / {for (i = 2; i <= NF; i++) if ($i ~ /^(https?|file):/) print $i}' "$file"
  done | grep -E '/debian/?$' | head -n 1
}

uri=$(mirror)
[ -n "$uri" ] || die "found no Debian mirror in /etc/apt" "Add one to /etc/apt/sources.list"

if [ ! -f "$base/.complete" ]; then
  say "making a minimal Debian 12 tree in $base"
  rm -rf "$base"
  mkdir -p "$base"
  with_log "$place/debootstrap.log" debootstrap --variant=minbase --include=ca-certificates,git bookworm "$base" "$uri" || {
    tail -n 20 "$place/debootstrap.log" >&2
    die "debootstrap failed; the whole log is $place/debootstrap.log"
  }
  touch "$base/.complete"
fi

cleanup() {
  [ -n "$keep" ] || rm -rf --one-file-system "$tree"
}
trap cleanup EXIT
say "copying it to $tree"
cp -a --reflink=auto "$base" "$tree"
# Only Debian's own archives, with security updates where this machine has them.
rm -f "$tree"/etc/apt/sources.list
for file in /etc/apt/sources.list.d/debian.sources /etc/apt/sources.list; do
  [ ! -s "$file" ] || cp "$file" "$tree/etc/apt/${file#/etc/apt/}"
done
[ -s "$tree/etc/apt/sources.list" ] || [ -s "$tree/etc/apt/sources.list.d/debian.sources" ] ||
  echo "deb $uri bookworm main" >"$tree/etc/apt/sources.list"
cp -L /etc/resolv.conf /etc/hosts "$tree/etc/"
# PyPI as this machine's pip reaches it: its settings, and the certificates that they rest on.
[ ! -f /etc/pip.conf ] || cp -L /etc/pip.conf "$tree/etc/"
cp -L /etc/ssl/certs/ca-certificates.crt "$tree/etc/ssl/certs/"
mapfile -t pip_settings < <(env | grep '^PIP_' || true)

mkdir -p "$tree/source"
cat >"$tree/root/prove.sh" <<'INNER'
set -euo pipefail
start=$SECONDS
cd /root
git -c safe.directory='*' clone --quiet file:///source tessera
cd tessera
echo "clone: $((SECONDS - start)) s, commit $(git log -1 --format=%h)"
start=$SECONDS status=0
./dev "$@" || status=$?
echo "./dev $*: exit status $status after $((SECONDS - start)) s"
exit $status
INNER

say "git clone + ./dev ${arguments[*]} in the clean tree"
git_directory=$(git rev-parse --show-toplevel)
# The mounts live in a namespace of their own and end with it.
unshare --mount --pid --fork bash -euc '
  tree=$1 repository=$2 settings=$3
  shift 3 # then as many settings of pip
  pip=("${@:1:settings}")
  shift "$settings"
  mount --make-rprivate /
  mount --bind "$repository" "$tree/source"
  mount -o remount,ro,bind "$tree/source"
  mount -t proc proc "$tree/proc"
  mount -t sysfs -o ro sys "$tree/sys" 2>/dev/null || true
  mount -t tmpfs tmpfs "$tree/dev"
  for node in null zero full random urandom tty; do
    touch "$tree/dev/$node"
    mount --bind "/dev/$node" "$tree/dev/$node"
  done
  mkdir -p "$tree/dev/shm" "$tree/dev/pts"
  mount -t tmpfs -o mode=1777 tmpfs "$tree/dev/shm"
  mount -t devpts -o newinstance,ptmxmode=0666,mode=0620 devpts "$tree/dev/pts" # terminals, as every machine has them
  ln -s pts/ptmx "$tree/dev/ptmx"
  if [ -n "${TESSERA_CLEAN_CCACHE:-}" ]; then
    mkdir -p "$tree/root/.cache/ccache"
    mount --bind "$TESSERA_CLEAN_CCACHE" "$tree/root/.cache/ccache"
  fi
  ln -s /proc/self/fd "$tree/dev/fd"
  ln -s /proc/self/fd/1 "$tree/dev/stdout"
  ln -s /proc/self/fd/2 "$tree/dev/stderr"
  exec chroot "$tree" /usr/bin/env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 \
    "${pip[@]}" bash /root/prove.sh "$@"' prove "$tree" "$git_directory" "${#pip_settings[@]}" "${pip_settings[@]}" "${arguments[@]}" </dev/null
