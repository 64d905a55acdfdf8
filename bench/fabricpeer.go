package bench

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/wire"
)

// peerEnds is how many endpoints a peer serves at once: one measures at a time, and a case holds a
// few more open.
const peerEnds = 64

// ServeFabric is the other side of bench fabric on one provider. It accepts endpoints, does for
// each what the dialler's hello asks for, and returns when the listener is closed and everybody has
// left. note is told of endpoints that ended otherwise than by their dialler.
func ServeFabric(ctx context.Context, d fabric.Domain, ln fabric.Listener, note func(error)) {
	var wg sync.WaitGroup
	defer wg.Wait()
	places := make(chan struct{}, peerEnds)
	for {
		var e *end
		ep, err := ln.Accept(ctx, func(p fabric.Peer) (fabric.EndpointConfig, error) {
			select {
			case places <- struct{}{}:
			default:
				return fabric.EndpointConfig{}, errs.Newf(errs.Again, "bench peer", "", "too many")
			}
			r, err := roleOf(p.Features)
			if err == nil {
				e, err = newEnd(d, r, max(wire.HeaderBytes+r.size, grantBytes))
			}
			if err != nil {
				<-places
				return fabric.EndpointConfig{}, err
			}
			return e.config(), nil
		})
		if err == nil {
			wg.Go(func() {
				err := e.serve(ep, d.Caps().MaxInline)
				if kind := errs.KindOf(err); kind != errs.Disconnected && kind != errs.Closed {
					note(err)
				}
				_ = e.close()
				<-places
			})
			continue
		}
		if e != nil {
			_ = e.close() // nobody has used it
			<-places
		}
		if errs.KindOf(err) == errs.Closed || ctx.Err() != nil {
			return
		}
	}
}

// serve runs until the endpoint ends.
func (e *end) serve(ep fabric.Endpoint, inline int) error {
	if err := e.start(ep); err != nil {
		return err
	}
	switch e.role.mode {
	case modeEcho:
		return e.serveEcho(inline)
	case modeSink:
		return e.serveSink(inline)
	case modeHeader:
		return e.serveHeader(inline)
	}
	return e.serveMemory(inline)
}

func (e *end) serveEcho(inline int) error {
	for {
		count, length, _, err := e.awaitMessages()
		if err != nil {
			return err
		}
		for range count {
			if err := e.send(length, 0, inline); err != nil {
				return err
			}
		}
	}
}

func (e *end) serveSink(inline int) error {
	for taken := 0; ; {
		count, _, _, err := e.awaitMessages()
		if err != nil {
			return err
		}
		for taken += count; taken >= sinkBatch; taken -= sinkBatch {
			if err := e.send(1, sinkBatch, inline); err != nil {
				return err
			}
		}
	}
}

func (e *end) serveMemory(inline int) error {
	rem, err := e.arena.Region().Grant(e.ep, 0, e.role.size, fabric.RemoteRead|fabric.RemoteWrite)
	if err != nil {
		return err
	}
	putRemote(e.data, rem)
	if err := e.send(grantBytes, 0, inline); err != nil {
		return err
	}
	for {
		if _, err := e.await(); err != nil {
			return err
		}
	}
}

// ServeCPU tells every client the processor time of this process whenever it sends a byte:
// nanoseconds in 8 bytes, big-endian. It returns when the listener is closed.
func ServeCPU(ln net.Listener) {
	accept(ln, func(conn net.Conn) error {
		var b [8]byte
		for {
			if _, err := io.ReadFull(conn, b[:1]); err != nil {
				return err
			}
			used, err := OwnCPU()
			if err != nil {
				return err
			}
			binary.BigEndian.PutUint64(b[:], uint64(used))
			if _, err := conn.Write(b[:]); err != nil {
				return err
			}
		}
	})
}

// OwnCPU is the Meter of this process.
func OwnCPU() (time.Duration, error) {
	var u unix.Rusage
	err := unix.Getrusage(unix.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), err
}

// PeerMeter is the Meter of the process that runs ServeCPU at addr.
func PeerMeter(addr string) Meter {
	return func() (time.Duration, error) {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			return 0, err
		}
		defer conn.Close()
		var b [8]byte
		if _, err := conn.Write(b[:1]); err != nil {
			return 0, err
		}
		_, err = io.ReadFull(conn, b[:])
		return time.Duration(binary.BigEndian.Uint64(b[:])), err
	}
}
