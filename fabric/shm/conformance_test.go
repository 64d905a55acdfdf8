package shm

import (
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/fabrictest"
)

// addresses are fresh ones in a directory that is short enough for a socket's name.
func addresses(t testing.TB) func() string {
	t.Helper()
	dir, err := os.MkdirTemp("", "shm")
	fatal(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	var n atomic.Int64
	return func() string {
		return scheme + filepath.Join(dir, strconv.FormatInt(n.Add(1), 10))
	}
}

func fatal(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// config opens domains whose memory is in no arena: everything goes through the rings.
func config(opts Options) fabrictest.Config {
	open := func(t testing.TB, opts Options) (fabric.Domain, func() string) {
		d, err := Open(opts)
		fatal(t, err)
		return d, addresses(t)
	}
	return fabrictest.Config{
		Open: func(t testing.TB) (fabric.Domain, func() string) { return open(t, opts) },
		OpenTokens: func(t testing.TB, tokens *fabric.Tokens) (fabric.Domain, func() string) {
			with := opts
			with.Tokens = tokens
			return open(t, with)
		},
	}
}

// adopting makes what the suite registers arena memory, in place: with AnyMemory false the suite
// uses mapped memory.
type adopting struct {
	*domain
	arenas *Arenas
}

func (a adopting) Register(mem []byte) (fabric.Region, error) {
	if one, _ := a.arenas.find(mem); one == nil && len(mem) >= os.Getpagesize() {
		if err := a.arenas.adopt(mem); err != nil {
			return nil, err
		}
	}
	return a.domain.Register(mem)
}

// adopt puts a memory file where mem is. The file's life is the domain's; the mapping is the
// suite's.
func (a *Arenas) adopt(mem []byte) error {
	page := os.Getpagesize()

	fd, copied, err := newMemfd("adopted", (len(mem)+page-1)/page*page, false)
	if err != nil {
		return err
	}
	if err := mapOver(mem, fd); err != nil {
		return err
	}
	if err := unix.Munmap(copied); err != nil {
		return err
	}
	a.add(&arena{
		fd: fd, mem: mem, size: len(copied), lent: a.lent, from: address(mem),
		eps: map[*endpoint]uint32{},
	})
	return nil
}

// direct opens domains whose memory is in arenas that both sides open to each other, so that both
// directions are direct.
func direct(opts Options) fabrictest.Config {
	return inArenas(opts, func(opts *Options) *Arenas {
		opts.Arenas = NewArenas()
		return opts.Arenas
	})
}

// lent opens domains that lend all of their memory to each other.
func lent(opts Options) fabrictest.Config {
	return inArenas(opts, func(opts *Options) *Arenas {
		opts.Lent = NewLent()
		return opts.Lent
	})
}

func inArenas(opts Options, arenas func(*Options) *Arenas) fabrictest.Config {
	open := func(t testing.TB, opts Options) (fabric.Domain, func() string) {
		all := arenas(&opts)
		opts.mutual, opts.arenaOnly = true, true
		d, err := open(opts)
		fatal(t, err)
		t.Cleanup(func() {
			for _, one := range all.list {
				_ = unix.Close(one.fd)
			}
		})
		return adopting{d, all}, addresses(t)
	}
	return fabrictest.Config{
		Open: func(t testing.TB) (fabric.Domain, func() string) { return open(t, opts) },
		OpenTokens: func(t testing.TB, tokens *fabric.Tokens) (fabric.Domain, func() string) {
			with := opts
			with.Tokens = tokens
			return open(t, with)
		},
	}
}

func TestConformance(t *testing.T) {
	endless := func(c fabrictest.Config) fabrictest.Config {
		c.Endless = true
		return c
	}
	for name, cfg := range map[string]fabrictest.Config{
		"rings":                    endless(config(Options{})),
		"small rings":              config(Options{Ring: ringMin}),
		"woken through the socket": endless(config(Options{Sleepers: -1})),
		"direct":                   direct(Options{}),
		"direct, few grants":       endless(direct(Options{Grants: 3, Ring: ringMin})),
		"lent":                     endless(lent(Options{})),
		"lent, small rings":        lent(Options{Ring: ringMin}),
	} {
		t.Run(name, func(t *testing.T) { fabrictest.Run(t, cfg) })
	}
}
