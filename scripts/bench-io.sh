#!/bin/bash
# Time of byre bench over the time of the best engine of qemu-img bench: the same file, runs that alternate, medians.
#   scripts/bench-io.sh BYRE DIR [CELL...]
# DIR is on the file system to measure (some 1.2 GiB are needed). ROUNDS (5) and SCALE (percent of the requests, 100)
# make it longer or shorter. ENGINE (auto) is byre's.
set -eu -o pipefail
byre=$1 dir=$2
shift 2
rounds=${ROUNDS:-5} scale=${SCALE:-100} engine=${ENGINE:-}
tmp=$(mktemp -d "$dir/bench-io.XXXXXX")
trap 'rm -rf "$tmp"' EXIT
full=$tmp/full.raw sparse=$tmp/sparse.raw

# cell: name | image | cache | requests | other arguments (both tools)
cells() {
  local w
  for d in 1 8 32 64; do
    local n=20000; [ $d = 1 ] && n=6000
    for w in "" -w; do echo "4k-$([ -n "$w" ] && echo write || echo read)-d$d|full|none|$n|-s 4096 -d $d $w"; done
  done
  for w in "" -w; do echo "64k-$([ -n "$w" ] && echo write || echo read)-d16|full|none|4000|-s 65536 -d 16 $w"; done
  echo "4k-sparse-stride64k-d64|sparse|none|8000|-s 4096 -S 65536 -d 64 -w"
  echo "4k-writethrough-d8|full|writethrough|1200|-s 4096 -d 8 -w"
}

seconds() { sed -n 's/^Run completed in \([0-9.]*\) seconds.*/\1/p'; }

prepare() {
  if [ "$1" = sparse ]; then
    rm -f "$sparse"
    truncate -s 512M "$sparse"
  elif [ ! -e "$full" ]; then
    qemu-img create -q -f raw -o preallocation=full "$full" 1G
    sync
  fi
}

run() { # tool... : seconds of one run
  prepare "$image"
  "$@" | seconds
}

median() { sort -n | awk '{a[NR]=$1} END {print NR%2 ? a[(NR+1)/2] : (a[NR/2]+a[NR/2+1])/2}'; }

printf '%-26s %10s %10s %10s %10s %8s %10s\n' cell byre threads native io_uring ratio IOPS
cells | while IFS='|' read -r name image cache n args; do
  if [ $# -gt 0 ]; then
    wanted=no
    for c in "$@"; do case $name in $c) wanted=yes ;; esac; done
    [ $wanted = yes ] || continue
  fi
  n=$((n * scale / 100))
  file=$tmp/$image.raw
  rm -f "$tmp"/t.*
  for _ in $(seq "$rounds"); do
    for tool in byre threads native io_uring; do
      case $tool in
        byre) cmd=("$byre" bench ${engine:+-i "$engine"}) ;;
        *) cmd=(qemu-img bench -i "$tool") ;;
      esac
      [ "$tool$cache" = nativewritethrough ] && continue
      run "${cmd[@]}" -f raw -t "$cache" -c "$n" $args "$file" >>"$tmp/t.$tool"
    done
  done
  m() { [ -e "$tmp/t.$1" ] && median <"$tmp/t.$1" || echo -; }
  echo "$name $(m byre) $(m threads) $(m native) $(m io_uring) $n" | awk '{
    best = $3; for (i = 4; i <= 5; i++) if ($i != "-" && $i < best) best = $i
    printf "%-26s %10s %10s %10s %10s %8.2f %10d\n", $1, $2, $3, $4, $5, $2 / best, $6 / $2 }'
done
