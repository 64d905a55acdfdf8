package transfer

import (
	"context"
	"errors"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/exio"
)

// Local is a transfer whose both ends are here: two files, or a file and a cluster. It goes through
// a pair of sockets, so that it is the same as any other: blocks with sums, a partial file, going
// on where an earlier attempt was cut. from and to stay the caller's; nil: memory.
func Local(ctx context.Context, r Request, from Original, to Copy) (result Result, err error) {
	o := r.Options.WithDefaults()
	size := r.Size
	if from != nil {
		size = from.Size()
	}
	if err := o.Check(size); err != nil {
		return result, err
	}
	memory, err := exio.NewMemory(nil, 2*int64(depthMax)*spanMax)
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, memory.Close()) }()
	controls, err := pair()
	if err != nil {
		return result, err
	}
	data, err := pair()
	if err != nil {
		return result, errors.Join(err, controls[0].Close(), controls[1].Close())
	}
	var ends [2]*moving
	for i := range ends {
		c := newControl(controls[i])
		defer c.close()
		defer data[i].Close()
		buffers, err := newBuffers(memory, o)
		if err != nil {
			return result, err
		}
		ends[i] = newMoving(c, data[i], o, size, buffers, nil)
	}
	if r.Tell != nil {
		ends[0].tell = r.Tell
	}
	var h exio.Handle
	if from != nil {
		h = exio.NewFile(kept{from}, exio.FileOptions{Name: r.Name, Depth: min(o.Depth, 16)})
	}
	failed := make(chan error, 1)
	go func() {
		_, err := ends[1].sink(ctx, to)
		failed <- err
	}()
	result, err = ends[0].source(ctx, h)
	if sunk := <-failed; sunk != nil {
		err = sunk // what the source says is that the sink has failed, or why that failed
		var remote *remoteError
		if errors.As(sunk, &remote) {
			err = remote.err
		}
	}
	return result, errors.Join(err, closeFile(h))
}

// pair is two handles that are connected.
func pair() (ends [2]exio.Handle, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return ends, err
	}
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "pair")
		nc, failed := net.FileConn(f)
		_ = f.Close() // the connection has its own
		if failed == nil {
			ends[i], failed = exio.NewSocket(nc, exio.Options{})
		}
		err = errors.Join(err, failed)
	}
	return ends, err
}
