#!/bin/bash
# demo.sh BYRE: the main job on real input. Makes a compressed qcow2 of a real file tree (the Go source tree), converts
# it to raw with a progress line, compares the two, and lists the image. Everything is done by BYRE itself.
set -euo pipefail
byre=$(realpath "$1")
dir=$(mktemp -d "${TMPDIR:-/tmp}/byre-demo.XXXXXX")
trap 'rm -rf "$dir"' EXIT
tree=${TREE:-$("${GO:-go}" env GOROOT)/src}

echo "== a tar of $tree"
tar -C "$(dirname "$tree")" -cf "$dir/tree.tar" "$(basename "$tree")"
ls -l "$dir/tree.tar" | awk '{print $5 " bytes"}'

run() { echo; echo "\$ byre $*" | sed "s#$dir/##g"; "$byre" "$@"; }

run convert -p -c -f raw -O qcow2 "$dir/tree.tar" "$dir/tree.qcow2"
run convert -p -f qcow2 -O raw "$dir/tree.qcow2" "$dir/tree.raw"
run compare -p -f qcow2 -F raw "$dir/tree.qcow2" "$dir/tree.raw"
run info "$dir/tree.qcow2" | sed "s#$dir/##g"
# Compressed data has no place of its own to list, so the human form of map refuses such images, as the real one does.
run map --output=json "$dir/tree.qcow2" | sed -n '1,8p'
echo "…"
run check "$dir/tree.qcow2"
cmp -n "$(stat -c %s "$dir/tree.tar")" "$dir/tree.tar" "$dir/tree.raw"
echo; echo "the raw copy holds the tar, byte for byte"
