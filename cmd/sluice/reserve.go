package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"os"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

// reserved is servers.json: the ids of a host's I/O servers, as the metadata service has given them
// to it. What is asked for is written down before it is asked, so that whoever dies in between
// hears the same answer later.
type reserved struct {
	Format int      `json:"format"` // 1
	IDs    []uint32 `json:"ids"`

	Request []byte `json:"request,omitempty"` // the id of a request that was not answered
	Count   int    `json:"count,omitempty"`   // how many it asks for
}

func (c *cluster) reservedFile() string { return c.path("servers.json") }

// reserveServers has the metadata service give this host ids for n I/O servers: those that it has
// got before, and as many more as are missing. It can be repeated.
func (c *cluster) reserveServers(ctx context.Context, of meta.ServerKeys, n int) (
	[]uint32, error) {
	var r reserved
	text, err := os.ReadFile(c.reservedFile())
	switch {
	case errors.Is(err, os.ErrNotExist):
		r.Format = 1
	case err != nil:
		return nil, err
	default:
		if err := json.Unmarshal(text, &r); err != nil || r.Format != 1 {
			return nil, errs.Newf(errs.Corrupt, "servers", c.reservedFile(), "format %d: %v", r.Format, err)
		}
	}
	for len(r.IDs) < n {
		if len(r.Request) != 16 {
			r.Request, r.Count = make([]byte, 16), min(n-len(r.IDs), meta.ReserveMax)
			rand.Read(r.Request)
			if err := c.writeReserved(&r); err != nil {
				return nil, err
			}
		}
		ids, err := of.ReserveServers(ctx, meta.Caller{ReqID: [16]byte(r.Request)}, c.hostName(),
			r.Count)
		if err != nil {
			return nil, err
		}
		r.IDs, r.Request, r.Count = append(r.IDs, ids...), nil, 0
		if err := c.writeReserved(&r); err != nil {
			return nil, err
		}
	}
	return r.IDs[:n], nil
}

func (c *cluster) writeReserved(r *reserved) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return writeFile(c.reservedFile(), append(text, '\n'), 0o644)
}
