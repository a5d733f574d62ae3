package image

import (
	"path/filepath"
	"runtime"
	"strings"

	"byre/block"
)

// protocolOf returns the word before a colon that stands in front of every slash, or "".
func protocolOf(name string) string {
	i := strings.IndexAny(name, ":/")
	if i < 0 || name[i] != ':' || isDriveLetter(name) {
		return ""
	}
	return name[:i]
}

func isDriveLetter(name string) bool {
	return runtime.GOOS == "windows" && len(name) >= 2 && name[1] == ':' &&
		('a' <= name[0]|0x20 && name[0]|0x20 <= 'z')
}

// isAbsolute tells whether a reference stands for itself, whatever file it was found in.
func isAbsolute(name string) bool {
	return protocolOf(name) != "" || strings.HasPrefix(name, "/") || filepath.IsAbs(name)
}

// combine resolves name as found in the file base: relative to the folder of base. The spelling is kept ("a/../b"
// stays), as listings show it.
func combine(base, name string) string {
	if isAbsolute(name) {
		return name
	}
	cut := strings.LastIndexByte(base, '/')
	if runtime.GOOS == "windows" {
		cut = strings.LastIndexAny(base, `/\`)
	}
	if p := protocolOf(base); p != "" {
		cut = max(cut, len(p))
	}
	return base[:cut+1] + name
}

// nameTree turns a name into the options of the protocol layer it stands for: {"driver", "filename"}, or for a "json:"
// name whatever it holds. top tells whether a bare name was given by the caller (true) or is to be taken as the path
// of a local file and nothing else (false).
func nameTree(name string, parse bool) (Tree, error) {
	if !parse {
		return Tree{"driver": "file", "filename": name}, nil
	}
	if rest, ok := strings.CutPrefix(name, "json:"); ok {
		return ParseJSON(rest)
	}
	switch p := protocolOf(name); p {
	case "":
		return Tree{"driver": "file", "filename": name}, nil
	case "file":
		path := strings.TrimPrefix(name, "file:")
		path = strings.TrimPrefix(path, "//") // file:///path is a URI
		return Tree{"driver": "file", "filename": path}, nil
	case "host_device", "host_cdrom":
		return Tree{"driver": p, "filename": name[len(p)+1:]}, nil
	case "null-co", "null-aio":
		return Tree{"driver": p}, nil
	case "blkdebug":
		config, img, ok := strings.Cut(name[len("blkdebug:"):], ":")
		if !ok {
			return nil, invalidf("%q: blkdebug:CONFIG:IMAGE wants a second colon", name)
		}
		t, err := nameTree(img, true)
		if err != nil {
			return nil, err
		}
		out := Tree{"driver": "blkdebug"}
		if config != "" {
			out["config"] = config
		}
		for k, v := range t {
			out["image."+k] = v
		}
		return out, nil
	default:
		return nil, protocolError(name, p)
	}
}

// foreignProtocols are those that other tools handle, so the error can say that the name was understood.
var foreignProtocols = map[string]string{
	"nbd": "NBD", "nbd+tcp": "NBD", "nbd+unix": "NBD", "nbds": "NBD", "nbds+tcp": "NBD", "nbds+unix": "NBD",
	"http": "HTTP", "https": "HTTPS", "ftp": "FTP", "ftps": "FTPS", "ssh": "SSH", "iscsi": "iSCSI", "rbd": "RBD",
	"nfs": "NFS", "gluster": "GlusterFS", "sheepdog": "Sheepdog", "nvme": "NVMe", "vxhs": "VxHS", "fat": "VVFAT",
	"blkverify": "blkverify", "s3": "S3",
}

func protocolError(name, p string) error {
	if known, ok := foreignProtocols[p]; ok {
		return &block.Error{Kind: block.KindUnsupported, Path: name, Offset: block.NoOffset,
			Msg: known + " storage is not supported"}
	}
	return &block.Error{Kind: block.KindInvalid, Path: name, Offset: block.NoOffset,
		Msg: "unknown protocol '" + p + "' (a file whose name has a colon is written ./" + name + " or file:" + name + ")"}
}
