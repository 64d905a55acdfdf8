// Package partner is the other process of a bench: it does what contenders ask for, and undoes it
// when they leave. Both processes are the same program, so that each side of a measurement stands
// in the same package.
//
// It knows no job but telling what its process has used: packages fabric, net and iod bring theirs,
// and package main gives the process its providers. Read partner.go first, then usage.go (what a
// measurement costs both processes).
package partner

import (
	"context"
	"encoding/json"
	"net"
	"sync"

	"github.com/sluice-storage/sluice/bench"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/hook/meter"
	"github.com/sluice-storage/sluice/mem"
)

// Info is where the other process can be reached.
type Info struct {
	Control string `json:"control"` // runs Serve
	Plain   string `json:"plain"`   // runs plain.Serve on TCP
	Unix    string `json:"unix"`    // runs plain.Serve on a unix socket
}

// Domain is an open provider, for one side of one contender.
type Domain struct {
	Domain fabric.Domain
	Source mem.Source // of memory that the provider reaches best; nil: anonymous memory
	Listen string     // an address of its own where the other process can reach it
}

// Opener opens a provider by its name. The caller closes the domain.
type Opener func(provider string) (Domain, error)

// Metered is an Opener that puts a meter before each provider.
func (open Opener) Metered(provider string) (Domain, error) {
	d, err := open(provider)
	if err == nil {
		d.Domain = meter.New(d.Domain)
	}
	return d, err
}

// Job is something that a process can be asked for, see On.
type Job func(s *Session, args json.RawMessage) (any, error)

// Jobs are those that a process knows, by name.
type Jobs map[string]Job

// On makes a Job of a function.
func On[Args, Reply any](do func(s *Session, args Args) (Reply, error)) Job {
	return func(s *Session, text json.RawMessage) (any, error) {
		var args Args
		if err := json.Unmarshal(text, &args); err != nil {
			return nil, errs.New(errs.Invalid, "bench peer", "", err)
		}
		return do(s, args)
	}
}

// Session is one contender's connection. What was opened for it lives as long.
type Session struct {
	Context context.Context // ends with the process
	Note    func(error)     // is called with failures that no contender waits for
	Held    any             // what a job has left for the next one of the same contender
	bench.Undo
}

// request and answer are a line of JSON each.
type request struct {
	Do   string          `json:"do"`
	Args json.RawMessage `json:"args"`
}

type answer struct {
	Reply any    `json:"reply,omitempty"`
	Error string `json:"error,omitempty"`
}

// Serve does what contenders ask for until ctx ends. note is called with what fails on the way. It
// returns when everything is undone.
func Serve(ctx context.Context, ln net.Listener, note func(error), known ...Jobs) {
	jobs := Jobs{doUsage: On(func(*Session, struct{}) (usage, error) { return ownUsage() })}
	for _, more := range known {
		for name, job := range more {
			jobs[name] = job
		}
	}
	defer context.AfterFunc(ctx, func() { _ = ln.Close() })()
	Accept(ln, func(conn net.Conn) error {
		defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
		s := &Session{Context: ctx, Note: note}
		defer func() {
			if err := s.Close(); err != nil {
				note(err)
			}
		}()
		dec, enc := json.NewDecoder(conn), json.NewEncoder(conn)
		for {
			var r request
			if err := dec.Decode(&r); err != nil {
				return err
			}
			if err := enc.Encode(jobs.do(s, r)); err != nil {
				return err
			}
		}
	})
}

func (j Jobs) do(s *Session, r request) (a answer) {
	job := j[r.Do]
	if job == nil {
		a.Error = "bench peer: there is no job " + r.Do
		return a
	}
	reply, err := job(s, r.Args)
	if err != nil {
		a.Error = err.Error()
		return a
	}
	a.Reply = reply
	return a
}

// Accept serves each connection on a goroutine of its own. It returns when the listener is closed
// and all of them have ended.
func Accept(ln net.Listener, serve func(net.Conn) error) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		wg.Go(func() {
			defer conn.Close()
			_ = serve(conn) // the client closes when it is through
		})
	}
}

// Conn is a connection to the other process.
type Conn struct {
	conn net.Conn
	dec  *json.Decoder
}

// Dial connects to a Serve.
func Dial(ctx context.Context, addr string) (*Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return &Conn{conn: conn, dec: json.NewDecoder(conn)}, nil
}

// Ask has the other process do something, and waits until it is ready.
func (c *Conn) Ask(do string, args, reply any) error {
	text, err := json.Marshal(args)
	if err != nil {
		return err
	}
	a := answer{Reply: reply}
	if err = json.NewEncoder(c.conn).Encode(request{do, text}); err == nil {
		err = c.dec.Decode(&a)
	}
	if err == nil && a.Error != "" {
		err = errs.Newf(errs.IO, "bench peer", do, "%s", a.Error)
	}
	return err
}

// Close ends the connection, and with it what was opened for it. c may be nil.
func (c *Conn) Close() error {
	if c == nil {
		return nil
	}
	return c.conn.Close()
}
