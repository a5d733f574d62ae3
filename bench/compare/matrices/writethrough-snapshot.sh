# Durable 4K writes, one in each 64K, to images of different kinds, the first time and again
#
# snapshot: an image with preallocated metadata and an internal snapshot, so that every cluster is copied on its first
# write. COUNT (300) can be set in the environment.
set -e
image=[[dir]]/writethrough.img
rm -f "$image"
kind='[[image: raw|qcow2|lazy|metadata|snapshot|snapshot, lazy]]'
case "$kind" in
    raw)              {{bin}} create -q -f raw "$image" 1G ;;
    qcow2)            {{bin}} create -q -f qcow2 "$image" 1G ;;
    lazy)             {{bin}} create -q -f qcow2 -o lazy_refcounts=on "$image" 1G ;;
    metadata)         {{bin}} create -q -f qcow2 -o preallocation=metadata "$image" 1G ;;
    snapshot)         {{bin}} create -q -f qcow2 -o preallocation=metadata "$image" 1G ;;
    "snapshot, lazy") {{bin}} create -q -f qcow2 -o preallocation=metadata,lazy_refcounts=on "$image" 1G ;;
esac
if [ "${kind%%,*}" = snapshot ]; then {{bin}} snapshot -c s "$image"; fi
run() { {{bin}} bench -w -t writethrough -c "${COUNT:-300}" -d [[depth: 1|16]] -s 4k -S 64k -f "$([ "$kind" = raw ] && echo raw \|\| echo qcow2)" "$image"; }
if [ '[[pass: first|again]]' = again ]; then run > /dev/null; fi
run
