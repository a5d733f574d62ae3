package file

import (
	"context"
	"errors"
	"io/fs"

	"byre/block"
)

// fail makes the error of an operation from the system's.
func (f *File) fail(op string, off int64, err error) error {
	return failure(op, f.path, off, err)
}

func failure(op, path string, off int64, err error) error {
	if err == nil {
		return nil
	}
	var be *block.Error
	if errors.As(err, &be) {
		return err
	}
	var pe *fs.PathError // says the path a second time
	if errors.As(err, &pe) {
		err = pe.Err
	}
	return &block.Error{Kind: kindOf(err), Op: op, Path: path, Offset: off, Err: err}
}

// started is asked at the entry of every request: the context counts until the request is under way.
func (f *File) started(ctx context.Context, op string, off int64) error {
	if err := ctx.Err(); err != nil {
		return f.fail(op, off, err)
	}
	return nil
}
