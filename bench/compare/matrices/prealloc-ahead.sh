# Sequential writes to a growing image, with and without extending the host file ahead of them
#
# COUNT (20000) can be set in the environment.
set -e
image=[[dir]]/prealloc-ahead.qcow2
rm -f "$image"
{{bin}} create -q -f qcow2 "$image" 16G
file=file.driver=file,file.filename=$image
case "$({{bin}} --version) {{ahead: off|on}}" in
    *byre*off) file=$file,file.grow-ahead=off ;;
    *byre*)    ;;
    *on)       file=file.driver=preallocate,file.file.driver=file,file.file.filename=$image ;;
esac
{{bin}} bench -w -t none -i native -c "${COUNT:-20000}" -d 64 [[request: -s 16k|-s 64k -o 4k]] --image-opts driver=qcow2,$file
