# One write to each cluster of a fresh image: at its front, in its middle, across two, a whole one
#
# SIZE (1024, in MiB) can be set in the environment.
set -e
image=[[dir]]/write-request.qcow2
case '[[place: 4K at the front of 1M|4K in the middle of 1M|1M across two of 1M|64K whole]]' in
    *front*)  cluster=1024 bytes=4K offset=0 ;;
    *middle*) cluster=1024 bytes=4K offset=512K ;;
    *across*) cluster=1024 bytes=1M offset=4K ;;
    *whole*)  cluster=64 bytes=64K offset=0 ;;
esac
rm -f "$image"
{{bin}} create -q -f qcow2 -o cluster_size=${cluster}K "$image" "${SIZE:-1024}M"
{{bin}} bench -w -t none -i {{aio: native|io_uring}} -c $((${SIZE:-1024} * 1024 / cluster - 1)) -s $bytes -o $offset -S ${cluster}K "$image"
