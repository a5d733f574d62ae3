# Conversion of half a gigabyte of files between formats
#
# SIZE (512M of the files below FILES, /usr) can be set in the environment.
set -e
cd [[dir]]
if [ ! -e source.raw ]; then
    { tar -C "${FILES:-/usr}" -cf - . 2> /dev/null \|\| true; } \| head -c "${SIZE:-512M}" > new.raw
    truncate -s 2G new.raw
    {{bin}} convert -q -f raw -O qcow2 new.raw source.qcow2
    {{bin}} convert -q -c -f raw -O qcow2 new.raw compressed.qcow2
    mv new.raw source.raw
    sync
fi
rm -f target
TIMEFORMAT='Run completed in %3R seconds.'
case '[[way: raw to qcow2|qcow2 to raw|qcow2 to qcow2|qcow2 to compressed|compressed to raw]]' in
    "raw to qcow2")        time {{bin}} convert -f raw -O qcow2 source.raw target ;;
    "qcow2 to raw")        time {{bin}} convert -f qcow2 -O raw source.qcow2 target ;;
    "qcow2 to qcow2")      time {{bin}} convert -f qcow2 -O qcow2 source.qcow2 target ;;
    "qcow2 to compressed") time {{bin}} convert -c -f qcow2 -O qcow2 source.qcow2 target ;;
    "compressed to raw")   time {{bin}} convert -f qcow2 -O raw compressed.qcow2 target ;;
esac
rm -f target
