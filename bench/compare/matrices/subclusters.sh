# Small writes to an image with and without subclusters
#
# COUNT (100000) and SIZE (1G) can be set in the environment.
set -e
image=[[dir]]/subclusters.qcow2
rm -f "$image"
{{bin}} create -q -f qcow2 -o extended_l2=[[extended_l2: on|off]] "$image" "${SIZE:-1G}"
{{bin}} bench -w -t none -i {{aio: native|io_uring}} -c "${COUNT:-100000}" -d 8 [[request: -s 2K|-s 2K -o 512|-s 2560]] "$image"
