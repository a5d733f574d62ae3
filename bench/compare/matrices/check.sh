# Consistency check of images with much metadata
#
# SIZE (64, in GiB) can be set in the environment.
set -e
image='[[dir]]/[[image: 64K clusters|4K clusters|subclusters]].qcow2'
if [ ! -e "$image" ]; then
    rm -f "$image.new"
    case '[[image]]' in
        64K*) options=cluster_size=64k size=$((${SIZE:-64} * 4)) ;;
        4K*)  options=cluster_size=4k size=$((${SIZE:-64} / 4)) ;;
        *)    options=cluster_size=64k,extended_l2=on size=$((${SIZE:-64} * 4)) ;;
    esac
    {{bin}} create -q -f qcow2 -o $options,preallocation=metadata "$image.new" ${size}G
    mv "$image.new" "$image"
fi
TIMEFORMAT='Run completed in %3R seconds.'
time {{bin}} check -q "$image"
