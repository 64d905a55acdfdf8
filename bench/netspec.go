package bench

import (
	"context"
	"encoding/json"
	"net"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	gauge "github.com/sluice-storage/sluice/fabric/hook/meter"
	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/mem"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/msg/tune"
)

// NetDomain is an open provider, for one side of one contender of bench net.
type NetDomain struct {
	Domain fabric.Domain
	Source mem.Source // of memory that the provider reaches best; nil: anonymous memory
	Listen string     // an address of its own where the other process can reach it
}

// NetOpener opens a provider by its name. Whoever asked closes the domain.
type NetOpener func(provider string) (NetDomain, error)

// What a contender can have the other process do.
const (
	doStats  = "stats"  // tell what the process has used so far
	doServe  = "serve"  // serve package msg
	doTune   = "tune"   // serve package msg for tune.Measure
	doFabric = "fabric" // serve the fabric alone, see ServeFabric
	doCopy   = "copy"   // copy into shared memory, see netcopy.go
	doFar    = "far"    // be the far side of package mover
	doLadder = "ladder" // serve package msg on all providers
)

// spec is what a contender asks of the other process: a line of JSON over a connection. What was
// opened for it lives as long as the connection.
type spec struct {
	Do       string       `json:"do"`
	Provider string       `json:"provider,omitempty"`
	Also     []string     `json:"also,omitempty"`     // ladder: further providers, best first
	Progress msg.Progress `json:"progress,omitempty"` // of the node
	Asleep   bool         `json:"asleep,omitempty"`   // queues sleep at once
	Metered  bool         `json:"metered,omitempty"`  // a meter stands before the provider
	Wide     bool         `json:"wide,omitempty"`     // every protocol carries what it can
	Touch    bool         `json:"touch,omitempty"`    // handlers look at what they took
	Workers  int          `json:"workers,omitempty"`  // handlers at once; 0: as many as there are
	Bytes    int          `json:"bytes,omitempty"`    // of the largest request or reply
	Walk     bool         `json:"walk,omitempty"`     // what is given is taken from BulkRange bytes
	Path     string       `json:"path,omitempty"`     // copy: where the memory is
	Addr     string       `json:"addr,omitempty"`     // far: where the near side listens
	Shape    shape        `json:"shape"`              // far: of what is moved
	Iod      *IodSpec     `json:"iod,omitempty"`      // iod: the server
}

// answer is what comes back.
type answer struct {
	Addr  string `json:"addr,omitempty"`
	Error string `json:"error,omitempty"`
	Usage usage  `json:"usage"`

	Site   siteInfo    `json:"site"`             // iod
	Counts []iod.Count `json:"counts,omitempty"` // iod-counts
}

// usage is what a process has used since it began.
type usage struct {
	CPU    time.Duration `json:"cpu"`
	Copied uint64        `json:"copied"` // bytes, by package mem
	Allocs uint64        `json:"allocs"`
}

// control is a connection to the other process.
type control struct {
	conn net.Conn
	dec  *json.Decoder
}

func dialControl(ctx context.Context, addr string) (*control, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return &control{conn: conn, dec: json.NewDecoder(conn)}, nil
}

// ask has the other process do something, and waits until it is ready.
func (c *control) ask(s spec) (answer, error) {
	var a answer
	err := json.NewEncoder(c.conn).Encode(s)
	if err == nil {
		err = c.dec.Decode(&a)
	}
	if err == nil && a.Error != "" {
		err = errs.Newf(errs.IO, "bench peer", s.Do, "%s", a.Error)
	}
	return a, err
}

func (c *control) close() error {
	if c == nil {
		return nil
	}
	return c.conn.Close()
}

// open opens the provider of a spec, with what the spec puts before it.
func (s *spec) open(opener NetOpener) (NetDomain, error) {
	d, err := opener(s.Provider)
	if err != nil {
		return d, err
	}
	if s.Metered {
		d.Domain = gauge.New(d.Domain)
	}
	if s.Asleep {
		d.Domain = drowsy{d.Domain}
	}
	return d, nil
}

// drowsy is a domain whose queues never poll before they sleep.
type drowsy struct{ fabric.Domain }

// NewCQ implements fabric.Domain.
func (d drowsy) NewCQ(opts fabric.CQOptions) (fabric.CQ, error) {
	opts.Spin = -1
	return d.Domain.NewCQ(opts)
}

// Limits of nodes that carry what they can by each protocol. Eager slots are as many as there are
// requests under way.
const (
	wideInline = 64 << 10
	wideEager  = 256 << 10
	wideMemory = 64 << 20
)

// The protocols of request and reply data.
const (
	Inline     = "inline"
	Eager      = "eager"
	Rendezvous = "rendezvous"
)

// options are those of a node for a spec. protocol is the one that carries all data; "": as the
// limits that a node has by itself say.
func (s *spec) options(d NetDomain, protocol string) msg.Options {
	o := msg.Options{Domain: d.Domain, Progress: s.Progress}
	if s.Do == doTune {
		return tune.Node(o)
	}
	if s.Wide {
		o.InlineMax, o.EagerMax = wideInline, wideEager
		o.EagerSlots, o.Memory = netDepth, wideMemory
	}
	switch protocol {
	case Eager:
		o.InlineMax = 1
	case Rendezvous:
		o.InlineMax, o.EagerMax = 1, -1
	}
	return o
}
