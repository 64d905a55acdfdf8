package transfer

import (
	"context"
	"errors"
	"net"

	"github.com/sluice-storage/sluice/bench/partner"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/exio"
)

const doRead = "transfer-read" // listen, and read whatever comes

// farArgs are what is read, and by which driver.
type farArgs struct {
	Driver string `json:"driver"`
	Shape  shape  `json:"shape"`
}

// Jobs are what the other process does for this package, with the providers that open knows.
func Jobs(open partner.Opener) partner.Jobs {
	return partner.Jobs{
		doRead: partner.On(func(s *partner.Session, a farArgs) (string, error) {
			return far(s, &a, open)
		}),
	}
}

// far listens for one connection, reads from it until it ends, and returns where it listens.
func far(s *partner.Session, a *farArgs, open partner.Opener) (string, error) {
	n := a.Shape
	if n.Pieces < 1 || n.Pieces > exio.MaxPieces || n.Bytes < 1 || n.Stride < n.Bytes ||
		n.Pieces*n.Stride*depth > memoryMax/2 {
		return "", errs.Newf(errs.Invalid, "bench peer", doRead, "%+v", n)
	}
	var addr string
	var memory *exio.Memory
	var accept func(context.Context) (exio.Handle, error)
	var err error
	if a.Driver == Socket {
		addr, memory, accept, err = listenPlain(s)
	} else {
		addr, memory, accept, err = listen(s, a.Driver, open)
	}
	if err != nil {
		return "", err
	}
	over := make(chan struct{})
	ctx, cancel := context.WithCancel(s.Context)
	go func() {
		defer close(over)
		h, err := accept(ctx)
		if err == nil {
			err = errors.Join(readAll(ctx, h, memory, n), h.Close())
		}
		if kind := errs.KindOf(err); kind != errs.Disconnected && kind != errs.Closed &&
			kind != errs.Canceled {
			s.Note(err)
		}
	}()
	s.Later(func() error { cancel(); <-over; return nil })
	return addr, nil
}

// listen is for a provider.
func listen(s *partner.Session, driver string, open partner.Opener) (string, *exio.Memory,
	func(context.Context) (exio.Handle, error), error) {

	d, err := open(driver)
	if err != nil {
		return "", nil, nil, err
	}
	s.Later(d.Domain.Close)
	memory, err := exio.NewMemory(nil, memoryMax, d.Domain)
	if err != nil {
		return "", nil, nil, err
	}
	s.Later(memory.Close)
	ln, err := d.Domain.Connector().Listen(d.Listen)
	if err != nil {
		return "", nil, nil, err
	}
	s.Later(ln.Close)
	link := exio.Link{Domain: d.Domain, Memory: memory}
	return ln.Addr().String(), memory, func(ctx context.Context) (exio.Handle, error) {
		return link.Accept(ctx, ln, nil)
	}, nil
}

// listenPlain is for plain sockets.
func listenPlain(s *partner.Session) (string, *exio.Memory,
	func(context.Context) (exio.Handle, error), error) {

	memory, err := exio.NewMemory(nil, memoryMax)
	if err != nil {
		return "", nil, nil, err
	}
	s.Later(memory.Close)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, nil, err
	}
	s.Later(ln.Close)
	return ln.Addr().String(), memory, func(ctx context.Context) (exio.Handle, error) {
		stop := context.AfterFunc(ctx, func() { _ = ln.Close() })
		defer stop()
		nc, err := ln.Accept()
		if err != nil {
			return nil, errs.New(errs.Closed, "bench peer", doRead, err)
		}
		return exio.NewSocket(nc, exio.Options{})
	}, nil
}

// readAll keeps reads posted until the connection ends.
func readAll(ctx context.Context, h exio.Handle, memory *exio.Memory, n shape) error {
	done := make(chan exio.Event, depth)
	for range depth {
		parent, pieces, err := n.cut(memory)
		if err != nil {
			return err
		}
		op := &exio.Op{Tag: exio.AnyTag, Pieces: pieces, Parent: parent,
			Done: func(ev exio.Event) { done <- ev }}
		if err := h.Read(op); err != nil {
			return err
		}
	}
	for {
		select {
		case ev := <-done:
			if ev.Err != nil {
				return ev.Err
			}
			if err := h.Read(ev.Op); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
