package ioshell

import (
	"context"
	"fmt"
	"io"
)

func writeTo(w io.Writer, format string, args ...any) { fmt.Fprintf(w, format, args...) }

func (s *Shell) help(_ context.Context, inv *invocation) error {
	if len(inv.args) == 0 {
		for i := range commands {
			s.printf("%s\n", commands[i].oneLine())
		}
		s.printf("\nUse 'help commandname' for extended help.\n")
		return nil
	}
	c := findCommand(inv.args[0])
	if c == nil {
		s.printf("command %s not found\n", inv.args[0])
		return errFailed
	}
	line := *c
	line.name = inv.args[0]
	s.printf("%s\n%s", line.oneLine(), c.help)
	return nil
}

const helpRead = `
 Reads len bytes from off.

 Example:
 'read -v 512 1k' - shows one kilobyte from byte 512 on

 -b   from the machine state behind the disk instead of the disk
 -C   statistics as comma separated values: bytes,ops,time,bytes/s,ops/s
 -l   with -P: compare only that many bytes
 -p   accepted, without effect
 -P   the byte that every byte read must equal
 -q   no statistics
 -s   with -P: compare from that byte of the buffer on
 -v   show the bytes

`

const helpReadv = `
 Reads from off into one buffer for each len.

 Example:
 'readv -v 512 1k 1k' - shows two kilobytes from byte 512 on

 -C   statistics as comma separated values
 -P   the byte that every byte read must equal
 -q   no statistics
 -v   show the bytes

`

const helpWrite = `
 Writes len bytes at off, filled with 0xcd unless told otherwise.

 Example:
 'write -P 7 512 1k' - writes one kilobyte of sevens at byte 512

 -b   to the machine state behind the disk instead of the disk
 -c   store the cluster compressed
 -C   statistics as comma separated values
 -f   durable when it returns (forced unit access)
 -n   with -z: quickly or not at all
 -p   accepted, without effect
 -P   the byte to fill with
 -q   no statistics
 -s   fill with the contents of a file, repeated
 -u   with -z: space may be given back
 -z   write zeroes without a buffer

`

const helpWritev = `
 Writes at off from one buffer for each len.

 Example:
 'writev 512 1k 1k' - writes two kilobytes at byte 512

 -C   statistics as comma separated values
 -f   durable when it returns
 -P   the byte to fill with
 -q   no statistics

`

const helpAIORead = `
 Starts a read from off into one buffer for each len, and returns. It counts as done when started: a failure or a
 wrong pattern is printed, but does not fail the command. 'aio_flush' waits for all of them.

 -C   statistics as comma separated values
 -i   count a request as invalid instead of sending it
 -P   the byte that every byte read must equal
 -q   no statistics
 -v   show the bytes

`

const helpAIOWrite = `
 Starts a write at off from one buffer for each len, and returns. It counts as done when started. 'aio_flush' waits
 for all of them.

 -C   statistics as comma separated values
 -f   durable when it completes
 -i   count a request as invalid instead of sending it
 -P   the byte to fill with
 -q   no statistics
 -u   with -z: space may be given back
 -z   write zeroes without a buffer

`

const helpDiscard = `
 Tells the image that len bytes from off are no longer needed.

 Example:
 'discard 512 1k' - gives up one kilobyte from byte 512 on

 -C   statistics as comma separated values
 -q   no statistics

`

const helpOpen = `
 Opens a file for the commands that follow.

 Example:
 'open -n -o driver=raw disk.img' - opens it as raw, read-write, past the page cache

 -r   read-only
 -s   changes go to a temporary file and are lost
 -C   copy on read
 -n   past the page cache, short for -t none
 -U   do not mind other users of the file
 -k   kernel AIO, short for -i native
 -i   threads, native or io_uring
 -t   cache mode
 -d   discard mode: ignore or unmap
 -o   options of the driver: name=value,...
`

const helpReopen = `
 Changes how the open image is open.

 Example:
 'reopen -o lazy-refcounts=on' - refcounts of a qcow2 image are written late from now on

 -r   read-only
 -w   read-write
 -c   another cache mode
 -o   other options of the driver

`

const helpSigraise = `
 Raises the signal of that number in this process.

 Example:
 'sigraise 15' - SIGTERM

`
