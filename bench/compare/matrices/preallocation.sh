# 4K writes, one in each 64K, into fresh images that were preallocated in different ways
#
# A new cluster of an image without preallocation must be zeroed around the write; "without zero-range" makes that a
# write of zeros. falloc leaves the first write to each extent to the file system; full only overwrites.
# COUNT (8192), DEPTH (64) and SIZE (512M) can be set in the environment.
{{!exclude preallocation=metadata, format=raw}}
{{!exclude preallocation=off without zero-range, format=raw}}
set -e
image=[[dir]]/preallocation.img
way='[[preallocation: off|off without zero-range|metadata|falloc|full]]'
rm -f "$image"
{{bin}} create -q -f [[format: qcow2|raw]] -o preallocation="${way%% *}" "$image" "${SIZE:-512M}"
dd if=/dev/null of="$image" oflag=nocache conv=notrunc,fdatasync count=0 status=none
name="driver=[[format]],file.driver=file,file.filename=$image"
if [ "$way" = "off without zero-range" ]; then
    name="driver=qcow2,file.driver=blkdebug,file.image.driver=file,file.image.filename=$image"
    name="$name,file.inject-error.0.event=none,file.inject-error.0.iotype=write-zeroes,file.inject-error.0.errno=95"
fi
{{bin}} bench -w -t none -i {{aio: threads|native|io_uring}} -c "${COUNT:-8192}" -d "${DEPTH:-64}" -s 4096 -S 65536 --image-opts "$name"
