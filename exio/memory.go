package exio

import (
	"errors"
	"sync"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/mem"
)

// Memory is memory that handles move data from and to without copies: mapped, and registered with
// every domain that it was made for. Other memory works, too: it is registered for each operation,
// where that is possible, or copied by the provider. Safe for concurrent use. Close it after the
// handles that use it.
type Memory struct {
	source  mem.Source
	domains []fabric.Domain
	limit   *mem.Limit

	mu     sync.Mutex
	arenas []*mem.Arena
}

// NewMemory makes an empty one for domains. source is where the memory comes from, nil: it is
// anonymous; see peer.Providers.Memory. bytes bounds all of it.
func NewMemory(source mem.Source, bytes int64, domains ...fabric.Domain) (*Memory, error) {
	limit, err := mem.NewLimit(bytes)
	if err != nil {
		return nil, err
	}
	return &Memory{source: source, domains: domains, limit: limit}, nil
}

// Alloc returns n bytes of it, rounded up to pages, and zero. They live until Close or Free.
func (m *Memory) Alloc(n int) ([]byte, error) {
	a, err := mem.OpenArena(mem.ArenaOptions{
		Bytes: n, Source: m.source, Populate: mem.Wish, Lock: mem.No, Limit: m.limit,
	})
	if err != nil {
		return nil, err
	}
	for _, d := range m.domains {
		if err := a.Attach(d); err != nil {
			return nil, errors.Join(errs.Wrap("exio.Alloc", d.Caps().Provider, err), a.Close())
		}
	}
	all, err := a.Cut(n, 4096)
	if err != nil {
		return nil, errors.Join(err, a.Close())
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.arenas = append(m.arenas, a)
	return all, nil
}

// Free gives back what Alloc has returned. No operation uses it any more.
func (m *Memory) Free(b []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, a := range m.arenas {
		if fabric.OffsetIn(a.Bytes(), b) >= 0 {
			m.arenas = append(m.arenas[:i], m.arenas[i+1:]...)
			return a.Close()
		}
	}
	return errs.Newf(errs.Invalid, "exio.Free", "", "memory that was not allocated here")
}

// Close frees all of it.
func (m *Memory) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []error
	for _, a := range m.arenas {
		all = append(all, a.Close())
	}
	m.arenas = nil
	return errors.Join(all...)
}

// region is the registration of memory with a domain; nil: there is none. m may be nil.
func (m *Memory) region(d fabric.Domain, b []byte) fabric.Region {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, a := range m.arenas { // there are few
		if fabric.OffsetIn(a.Bytes(), b) >= 0 {
			return a.RegionOf(d)
		}
	}
	return nil
}
