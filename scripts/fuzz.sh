#!/bin/bash
# fuzz.sh TIME PATTERN: runs every fuzz target of the packages for TIME each, one after another.
set -euo pipefail
time=$1 pattern=$2
go=${GO:-go}
$go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' "$pattern" | while read -r pkg; do
  [ -n "$pkg" ] || continue
  targets=$($go test -list '^Fuzz' "$pkg" | grep '^Fuzz' || true)
  for t in $targets; do
    echo "== $pkg $t"
    $go test -run '^$' -fuzz "^$t\$" -fuzztime "$time" -fuzzminimizetime 10x "$pkg"
  done
done
