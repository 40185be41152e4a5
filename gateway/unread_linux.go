package gateway

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// unread returns how many of the bytes written to w its peer has not read; ok is false when w does not
// tell.
func unread(w io.Writer) (n int64, ok bool) {
	f, isFile := w.(*os.File)
	if !isFile {
		return 0, false
	}
	info, err := f.Stat()
	if err != nil {
		return 0, false
	}
	var request uint
	switch {
	case info.Mode()&os.ModeNamedPipe != 0:
		request = unix.TIOCINQ // FIONREAD: of a pipe, at either end
	case info.Mode()&os.ModeSocket != 0:
		request = unix.SIOCOUTQ
	default:
		return 0, false
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return 0, false
	}
	err = raw.Control(func(fd uintptr) {
		left, failed := unix.IoctlGetInt(int(fd), request)
		n, ok = int64(left), failed == nil
	})
	return n, ok && err == nil
}
