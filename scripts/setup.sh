# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154,SC2016
# Packages. Each ./dev command names the groups it needs; only what is missing is installed, and it says what.

# Names of a group's packages on this distribution.
packages_of() { # group
  case $1 in
    build)
      echo g++ cmake ninja-build ccache lld pkg-config git ca-certificates libtbb-dev libdnnl-dev libtomlplusplus-dev \
        nlohmann-json3-dev zlib1g-dev libutf8proc-dev \
        llvm-19-dev libclang-19-dev libclang-cpp19-dev libpython3-dev
      if [ "$distribution" = ubuntu ]; then # untested
        echo libboost-dev libboost-program-options-dev libboost-filesystem-dev
      else # Debian 12's default Boost is 1.74; 1.81 is beside it
        echo libboost1.81-dev libboost-program-options1.81-dev libboost-filesystem1.81-dev
      fi ;;
    test) echo catch2 python3 python3-venv ;;
    demo) echo python3 python3-venv ;;
    format) echo clang-format git ;;
    fuzz) echo clang-19 libclang-rt-19-dev ;;  # an older Clang lacks the std::source_location of libstdc++
    coverage) echo gcovr ;;
    clean) echo debootstrap ;;
    *) die "unknown package group '$1'" ;;
  esac
}

detect_distribution() {
  distribution=other
  [ -r /etc/os-release ] || return 0
  # shellcheck disable=SC1091
  distribution=$(. /etc/os-release && echo "${ID:-other} ${VERSION_ID:-}")
  case $distribution in
    "debian 12") distribution=debian ;;
    "ubuntu 24.04")
      warn "Ubuntu 24.04: the package names are known but this is untested"
      distribution=ubuntu ;;
    *) distribution=other ;;
  esac
}

is_installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

# setup GROUP...: installs what the groups need and this machine lacks.
setup() {
  local group package missing=() root=()
  [ -z "${TESSERA_NO_SETUP:-}" ] || return 0
  detect_distribution
  if [ "$distribution" = other ]; then
    have cmake && have ninja || die "this is neither Debian 12 nor Ubuntu 24.04, so ./dev cannot install what it needs" \
      "Install by hand a C++20 compiler, cmake 3.25, ninja, Boost 1.74 or newer, oneTBB, oneDNN, toml++, nlohmann-json, zlib" \
      "and Catch2; then set TESSERA_NO_SETUP=1."
    return 0
  fi
  for group in "$@"; do
    for package in $(packages_of "$group"); do
      is_installed "$package" || missing+=("$package")
    done
  done
  [ ${#missing[@]} != 0 ] || return 0

  if [ "$(id -u)" != 0 ]; then
    have sudo || die "these packages are missing and neither root nor sudo is at hand: ${missing[*]}" \
      "As root: apt-get install --no-install-recommends ${missing[*]}"
    root=(sudo)
  fi
  say "installing with apt-get: ${missing[*]}"
  local log=build/logs/apt.log start=$SECONDS
  if ! { with_log "$log" "${root[@]}" apt-get update &&
    with_log "$log" "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}"; }; then
    tail -n 20 "$log" >&2
    die "apt-get failed; the whole log is $log"
  fi
  note "installed in $(duration $((SECONDS - start)))"
}
