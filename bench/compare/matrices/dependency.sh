# Many writes in flight to the same new cluster: only the first allocates it
#
# COUNT (50000) and SIZE (1G) can be set in the environment.
set -e
image=[[dir]]/dependency.qcow2
rm -f "$image"
{{bin}} create -q -f qcow2 -o [[image: cluster_size=64k|cluster_size=2M|cluster_size=64k,extended_l2=on|cluster_size=2M,extended_l2=on]] "$image" "${SIZE:-1G}"
{{bin}} bench -w -t none -i {{aio: native|io_uring}} -c "${COUNT:-50000}" -d [[depth: 1|8|64]] -s 4k "$image"
