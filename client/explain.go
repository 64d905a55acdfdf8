package client

import (
	"fmt"
	"strings"

	"github.com/sluice-storage/sluice/layout"
	"github.com/sluice-storage/sluice/mem"
)

// Explanation tells how a Transfer was carried out.
type Explanation struct {
	// Small: the file's bytes are with the metadata service. No I/O server was asked.
	Small bool `json:"small,omitempty"`

	Requests int             `json:"requests"` // to all servers
	Servers  []ServerRequest `json:"servers"`
}

// ServerRequest is what one I/O server was asked.
type ServerRequest struct {
	Server       uint32 `json:"server"`
	Requests     int    `json:"requests"`
	Bytes        int64  `json:"bytes"`
	FilePieces   int64  `json:"file_pieces"`   // of the stripe object
	MemoryPieces int64  `json:"memory_pieces"` // of this process
	Windows      int    `json:"windows"`       // areas of memory that the server was given rights to
	Description  int    `json:"description"`   // bytes that both sides take in the messages
	Provider     string `json:"provider,omitempty"`
	Gathered     int    `json:"gathered"` // requests whose pieces were moved one by one,
	Packed       int    `json:"packed"`   // and through a buffer
	Why          string `json:"why"`      // of the last request
}

// String is one line a server.
func (e *Explanation) String() string {
	if e.Small {
		return "a small file: its bytes are with the metadata service\n"
	}
	var b strings.Builder
	for i := range e.Servers {
		s := &e.Servers[i]
		how := mem.Gather
		if s.Packed > s.Gathered {
			how = mem.Pack
		}
		by := ""
		if s.Provider != "" {
			by = " by " + s.Provider
		}
		fmt.Fprintf(&b, "I/O server %d: %d requests%s, %d bytes, %d pieces of the file, "+
			"%d of memory in %d windows, described in %d bytes; %s: %s\n", s.Server, s.Requests, by,
			s.Bytes, s.FilePieces, s.MemoryPieces, s.Windows, s.Description, how, s.Why)
	}
	return b.String()
}

func (e *Explanation) small() {
	if e != nil {
		*e = Explanation{Small: true}
	}
}

// watch has requests note how they are moved.
func (e *Explanation) watch(shares []share) {
	if e == nil {
		return
	}
	for i := range shares {
		for k := range shares[i].requests {
			r := &shares[i].requests[k]
			r.memory.Moved = &r.moved
		}
	}
}

// tell adds up what was done.
func (e *Explanation) tell(l *layout.Layout, shares []share) {
	if e == nil {
		return
	}
	*e = Explanation{}
	for i := range shares {
		s := ServerRequest{Server: l.Servers[shares[i].stripe]}
		for k := range shares[i].requests {
			s.add(&shares[i].requests[k])
		}
		e.Servers = append(e.Servers, s)
		e.Requests += s.Requests
	}
}

func (s *ServerRequest) add(r *request) {
	s.Requests++
	s.Bytes += r.object.Len()
	s.FilePieces += r.object.Pieces()
	s.MemoryPieces += r.memory.Access.Pieces()
	s.Windows += len(r.memory.Windows)
	s.Description += r.object.WireBytes() + r.memory.DescriptionBytes()
	if r.moved.Method == mem.Pack {
		s.Packed++
	} else {
		s.Gathered++
	}
	s.Provider, s.Why = r.moved.Provider, r.moved.Why
}
