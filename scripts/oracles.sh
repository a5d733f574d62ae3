#!/bin/bash
# Makes sure that the real tools the tests compare with are there. As root on a Debian system the missing ones are
# installed; elsewhere the script names them. With CI set a missing one is an error: a green run there has compared.
set -euo pipefail

# program:package
want=(
  qemu-img:qemu-utils qemu-io:qemu-utils qemu-nbd:qemu-utils
  nbdkit:nbdkit nbdinfo:libnbd-bin fio:fio mkfs.xfs:xfsprogs mkfs.ext4:e2fsprogs
  strace:strace zstd:zstd gcc:gcc
)

missing() { # prints the packages of programs that are not on PATH
  local w
  for w in "${want[@]}"; do
    PATH="$PATH:/usr/sbin:/sbin" command -v "${w%%:*}" >/dev/null || echo "${w##*:}"
  done | sort -u
}

mapfile -t lack < <(missing)
if [ "${#lack[@]}" -gt 0 ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo "installing: ${lack[*]}"
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq
  # qemu-block-extra: the protocol drivers; libc6-dev: the race detector links with cgo
  apt-get install -y -qq --no-install-recommends "${lack[@]}" qemu-block-extra libc6-dev >/dev/null
  mapfile -t lack < <(missing)
fi
if [ "${#lack[@]}" -gt 0 ]; then
  echo "not installed: ${lack[*]}"
  if [ -n "${CI:-}" ]; then
    echo "CI compares with these; failing"
    exit 1
  fi
  echo "tests that need them will be skipped"
fi
