#!/bin/bash
# Makes, with the real tools on PATH, the images whose listings stand in the files beside this one, in the current folder.
set -eu
quiet() { "$@" >/dev/null; }

quiet qemu-img create -f qcow2 v3.qcow2 64M
quiet qemu-io -f qcow2 -c 'write -P 1 0 128k' -c 'write -P 2 1M 5k' -c 'write -z 2M 256k' -c 'write -z -u 3M 64k' \
  -c 'write -c -P 3 4M 64k' -c 'write -c -P 4 4160k 64k' -c 'discard 64k 64k' v3.qcow2

quiet qemu-img create -f qcow2 -o compat=0.10 v2.qcow2 1M
quiet qemu-io -f qcow2 -c 'write -P 1 0 64k' v2.qcow2

quiet qemu-img create -f qcow2 -o extended_l2=on,lazy_refcounts=on,refcount_bits=8,cluster_size=128k,compression_type=zstd opts.qcow2 10M
quiet qemu-io -f qcow2 -c 'write -P 1 4k 4k' -c 'write -z 16k 8k' -c 'write -c -P 5 1M 128k' opts.qcow2

# A chain of three.
head -c 3145728 /dev/zero | tr '\0' U >base.raw
quiet qemu-img create -f qcow2 -b base.raw -F raw mid.qcow2 4M
quiet qemu-io -f qcow2 -c 'write -P 7 1M 64k' mid.qcow2
quiet qemu-img create -f qcow2 -b mid.qcow2 -F qcow2 top.qcow2
quiet qemu-io -f qcow2 -c 'write -P 8 0 64k' -c 'write -z 2M 64k' top.qcow2

quiet qemu-img create -f qcow2 -o data_file=ext.data,data_file_raw=on ext.qcow2 1M
quiet qemu-io -f qcow2 -c 'write -P 9 64k 64k' ext.qcow2

quiet qemu-img create -f qcow2 snap.qcow2 8M
quiet qemu-io -f qcow2 -c 'write -P 1 0 64k' snap.qcow2
qemu-img snapshot -c first snap.qcow2
qemu-img snapshot -c 'second one' snap.qcow2

quiet qemu-img create -f qcow2 bitmap.qcow2 1M
qemu-img bitmap --add bitmap.qcow2 b0
qemu-img bitmap --add --disable -g 32k bitmap.qcow2 b1

quiet qemu-img create -f raw plain.raw 1M
quiet qemu-io -f raw -c 'write -P 1 0 4k' plain.raw
head -c 1000 base.raw >odd.raw
