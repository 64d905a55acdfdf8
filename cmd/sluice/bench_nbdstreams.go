package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	benchnbd "github.com/sluice-storage/sluice/bench/nbd"
	"github.com/sluice-storage/sluice/bench/process"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/nbd"
	"github.com/sluice-storage/sluice/nbd/diskexport"
	"github.com/sluice-storage/sluice/stripe/device"
)

// The scene of streams: a set of members each of which is as slow as a disk, behind sockets that
// are as slow as a network; the members together are as fast as a socket. Two cores have the time
// to move that much from disks and through sockets at once, as hosts with faster disks and networks
// have.
const (
	streamMembers = 4
	streamRate    = 800 << 20 // bytes a second, of the members together and of a socket
	streamUnit    = 64 << 10

	aideMembers = "members"
)

// streams reads throttled members in one of the ways of package relay.
func (s *nbdSite) streams(way string) benchnbd.Starter {
	return benchnbd.Starter{Name: way,
		Start: func(ctx context.Context, at benchnbd.Place) (*benchnbd.Server, error) {
			var paths []string
			for i := range streamMembers {
				path := filepath.Join(at.Dir, fmt.Sprintf("member%d", i+1))
				if err := os.WriteFile(path, nil, 0o600); err != nil {
					return nil, err
				}
				if err := os.Truncate(path, at.Bytes/streamMembers); err != nil {
					return nil, err
				}
				paths = append(paths, path)
			}
			if f, err := os.OpenFile(paths[0], os.O_RDONLY|syscall.O_DIRECT, 0); err != nil {
				return nil, errs.New(errs.Unsupported, "bench nbd", paths[0], err)
			} else if err := f.Close(); err != nil {
				return nil, err
			}
			return s.startMembers(ctx, at, fmt.Sprintf("name=%s,members=%s,unit=%d,mode=direct,streams=%s",
				benchnbd.ExportName, strings.Join(paths, ":"), streamUnit, way))
		}}
}

// startMembers starts a child that serves throttled members over paced sockets.
func (s *nbdSite) startMembers(ctx context.Context, at benchnbd.Place, export string) (
	*benchnbd.Server, error) {
	told := filepath.Join(at.Dir, "addr")
	d, err := process.Start(filepath.Join(at.Dir, "log"), nil, s.self, benchnbd.AideCommand,
		aideMembers, told, export)
	if err != nil {
		return nil, err
	}
	var addr string
	err = d.Await(ctx, "throttled members", func() bool {
		text, err := os.ReadFile(told)
		addr = strings.TrimSpace(string(text))
		return err == nil && strings.HasSuffix(string(text), "\n")
	})
	if err != nil {
		return nil, errors.Join(err, d.Stop())
	}
	return &benchnbd.Server{URI: "nbd://" + addr + "/" + benchnbd.ExportName, Pids: []int{d.Pid()},
		Close: d.Stop}, nil
}

// serveMembers is that child.
func serveMembers(ctx context.Context, told, export string) (err error) {
	spec, err := parseExport(export)
	if err != nil {
		return err
	}
	h := diskexport.New(diskexport.Options{Cache: boundDisks(diskCacheUsual),
		Wrap: func(_ int, d device.Device) device.Device {
			return device.Throttled(d, device.ThrottleOptions{BytesPerSecond: streamRate / streamMembers})
		}})
	defer func() { err = errors.Join(err, h.Close()) }()
	planDisks(h, []exportSpec{spec})
	server, err := nbd.NewServer(boundNBD(), spec.entry(backends{disks: h}, newLogger()))
	if err != nil {
		return err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	if err := writeFile(told, []byte(ln.Addr().String()+"\n"), 0o600); err != nil {
		return errors.Join(err, ln.Close())
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(pacedListener{ln}) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return errors.Join(server.Shutdown(limited), <-served)
}

// pacedListener has the kernel send no faster than streamRate on each connection.
type pacedListener struct{ net.Listener }

func (l pacedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err == nil {
		failed := raw.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MAX_PACING_RATE, streamRate)
		})
		err = errors.Join(err, failed)
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}
