package meta

import (
	"github.com/sluice-storage/sluice/identity"
	"github.com/sluice-storage/sluice/wire"
)

// The smallest items, for lists.
const (
	stateBytes  = 1 + 2*8
	hostBytes   = 4 + 2*8 + 4 + 1 + 1 + stateBytes
	clientBytes = 8 + 4 + 1 + 4 + 2*4 + 4 + 2*8
)

var (
	argHost = one(func(a *Args) *Host { return &a.Host },
		func(e *wire.Enc, h *Host) { encHost(e, h) },
		func(d *wire.Dec, h *Host) { decHost(d, h) })
	resHosts = many(func(r *Result) *[]Host { return &r.Hosts }, HostsMax, hostBytes,
		func(e *wire.Enc, h *Host) {
			encHost(e, h)
			encState(e, h.State, h.Since, h.LastSeen)
		},
		func(d *wire.Dec, h *Host) {
			decHost(d, h)
			decState(d, &h.State, &h.Since, &h.LastSeen)
		})
	resClients = many(func(r *Result) *[]Client { return &r.Clients }, ClientPageMax, clientBytes,
		encClient, decClient)
)

// encState is the service's own view of a server or host: |state u8 |since i64 |seen i64 |.
func encState(e *wire.Enc, s State, since, seen int64) {
	e.U8(uint8(s))
	e.I64(since)
	e.I64(seen)
}

func decState(d *wire.Dec, s *State, since, seen *int64) {
	if *s = State(d.U8()); d.Err() == nil && !s.Valid() {
		d.Fail("an unknown state")
	}
	*since, *seen = d.I64(), d.I64()
}

// encHost: |name |incarnation u64 |start u64 |version |roles u8 |leaving u8 |.
func encHost(e *wire.Enc, h *Host) {
	e.String(h.Name)
	e.U64(h.Incarnation)
	e.U64(h.Start)
	e.String(h.Version)
	e.U8(uint8(h.Roles))
	e.Bool(h.Leaving)
}

func decHost(d *wire.Dec, h *Host) {
	h.Name = d.String(identity.NameMax)
	h.Incarnation = d.U64()
	h.Start = d.U64()
	h.Version = d.String(VersionMax)
	h.Roles = identity.Roles(d.U8())
	h.Leaving = d.Bool()
}

// Append adds the bytes of a host as the store keeps them: as on the wire, and the state.
func (h *Host) Append(e *wire.Enc) {
	encHost(e, h)
	encState(e, h.State, h.Since, h.LastSeen)
}

// Decode is the reverse of Append.
func (h *Host) Decode(d *wire.Dec) {
	decHost(d, h)
	decState(d, &h.State, &h.Since, &h.LastSeen)
}

// encAbout: |there u8 |version |mount |, the rest only if it is there.
func encAbout(e *wire.Enc, a **About) {
	e.Bool(*a != nil)
	if *a != nil {
		e.String((*a).Version)
		e.String((*a).Mount)
	}
}

func decAbout(d *wire.Dec, a **About) {
	if *a = nil; d.Bool() {
		*a = &About{Version: d.String(VersionMax), Mount: d.String(MountMax)}
	}
}

// encClient: |session u64 |name |peer kind u8 |peer name |version |mount |open u32 |since i64 |
// |seen i64 |.
func encClient(e *wire.Enc, c *Client) {
	e.U64(c.Session)
	e.String(c.Name)
	encKind(e, &c.Peer.Kind)
	e.String(c.Peer.Name)
	e.String(c.About.Version)
	e.String(c.About.Mount)
	e.U32(uint32(c.Open))
	e.I64(c.Since)
	e.I64(c.LastSeen)
}

func decClient(d *wire.Dec, c *Client) {
	c.Session = d.U64()
	c.Name = d.String(clientMax)
	decKind(d, &c.Peer.Kind)
	c.Peer.Name = d.String(identity.NameMax)
	c.About.Version = d.String(VersionMax)
	c.About.Mount = d.String(MountMax)
	c.Open = int(d.U32())
	c.Since = d.I64()
	c.LastSeen = d.I64()
}
