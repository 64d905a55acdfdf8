package nbd

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf8"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/gate"
	"github.com/sluice-storage/sluice/internal/invariant"
)

// Entry is one name that the server offers.
type Entry struct {
	// Name is what clients ask for, at most 4096 bytes of UTF-8. The empty name is the default
	// export; without an entry of that name the first entry is the default.
	Name string

	// Description is shown by NBD_OPT_LIST and NBD_OPT_INFO. If empty, the export's own (Describer)
	// is shown once it is open.
	Description string

	// ReadOnly refuses every change.
	ReadOnly bool

	// Keep leaves the export open when its last connection ends, until Shutdown. Memory exports
	// need it, or their content ends with the last connection.
	Keep bool

	// Key tells versions of an entry apart: Server.SetEntries leaves an entry alone whose name and
	// key stay the same. Default empty: it is always another one.
	Key string

	// Contexts are the names of metadata contexts that clients can select besides base:allocation. The
	// export's Contexter has them when it is open; of those that it has not the state is 0.
	Contexts []string

	// Allow are the names of clients that may use the export, as TLS.Names gives them: they must
	// prove who they are. Default nil: whoever can connect.
	Allow []string

	// TLSOnly keeps those out who have not started TLS, where TLS.Selective leaves it to them. An
	// entry with Allow is so anyhow.
	TLSOnly bool

	// Open opens the export. It is called when a client has chosen the name and no other connection
	// has it open, never twice at the same time.
	Open func(ctx context.Context) (Export, error)
}

func (e Entry) validate() error {
	const op = "nbd.Entry"
	if e.Open == nil {
		return errs.Newf(errs.Invalid, op, e.Name, "without Open")
	}
	if len(e.Contexts) > contextsMax-1 {
		return errs.Newf(errs.Invalid, op, e.Name, "%d metadata contexts, at most %d",
			len(e.Contexts), contextsMax-1)
	}
	for _, name := range e.Contexts {
		if !strings.Contains(name, ":") || !validText([]byte(name)) || name == metaBase {
			return errs.Newf(errs.Invalid, op, e.Name, "metadata context %q", name)
		}
	}
	for _, s := range []string{e.Name, e.Description} {
		if !validText([]byte(s)) || !utf8.ValidString(s) {
			return errs.Newf(errs.Invalid, op, e.Name,
				"name and description are UTF-8 without NUL of at most %d bytes", stringMax)
		}
	}
	return nil
}

// opened is an open export with its extras asked for once.
type opened struct {
	exp      Export
	trimmer  Trimmer
	zeroer   Zeroer
	mapper   Mapper
	slicer   Slicer
	streamer Streamer
	starver  Starver
	now      NowReader
	cacher   Cacher
	contexts [contextsMax + 1]func(context.Context, int64, int64, int, []Status) ([]Status, error)
	instant  bool
	readOnly bool
	anywhere bool          // requests need not be aligned to the minimum
	size     atomic.Uint64 // as clients that come now are told; it may have grown for them
	ender    Ender
	batcher  Batcher

	description                    string
	minimum, preferred, maxPayload uint32

	// slots bounds the calls under way, and with it the threads that wait for the device. Connections
	// that wait for one take turns, however many requests each has.
	slots *gate.Gate
}

func newOpened(exp Export, entry Entry, cfg Config) (*opened, error) {
	o := &opened{
		exp: exp, readOnly: entry.ReadOnly, description: entry.Description,
		minimum: 1, preferred: 4096, maxPayload: uint32(cfg.MaxPayload),
		slots: gate.New(gate.Options{Name: "export", Count: cfg.ExportRequests, Turns: true}),
	}
	size := exp.Size()
	if size < 0 {
		return nil, errs.Newf(errs.Invalid, "nbd.Open", entry.Name, "size %d", size)
	}
	o.size.Store(uint64(size))
	extras := ExtrasOf(exp)
	o.trimmer, o.zeroer, o.mapper = extras.Trimmer, extras.Zeroer, extras.Mapper
	o.slicer, o.now = extras.Slicer, extras.NowReader
	o.streamer, o.starver = extras.Streamer, extras.Starver
	o.ender, o.batcher = extras.Ender, extras.Batcher
	o.instant = extras.Instant != nil && extras.Instant.Instant()
	o.anywhere = extras.Unaligner != nil && extras.Unaligner.Unaligned()
	o.readOnly = o.readOnly || extras.Fixed != nil && extras.Fixed.ReadOnly()
	o.cacher = extras.Cacher
	o.takeContexts(extras.Contexter, entry)
	if d := extras.Describer; d != nil && o.description == "" {
		if text := d.Description(); validText([]byte(text)) && utf8.ValidString(text) {
			o.description = text
		}
	}
	if extras.Sizer != nil {
		return o, o.takeSizes(extras.Sizer, entry.Name)
	}
	return o, nil
}

// takeSizes checks the export's block sizes against the protocol's rules.
func (o *opened) takeSizes(s Sizer, name string) error {
	lo, pref, hi := s.BlockSizes()
	if lo == 0 || lo&(lo-1) != 0 || lo > 64<<10 || pref < lo || pref&(pref-1) != 0 || hi%lo != 0 {
		return errs.Newf(errs.Invalid, "nbd.Open", name, "block sizes %d, %d, %d", lo, pref, hi)
	}
	o.minimum, o.preferred = lo, pref
	if hi != 0 && hi < o.maxPayload {
		o.maxPayload = hi
	}
	return nil
}

// flags are the transmission flags; the same for every connection with the same negotiation.
func (o *opened) flags(st negotiated) uint16 {
	f := sendHasFlags | sendMultiConn | sendCache
	if st.structured {
		f |= sendDF
	}
	if st.extended && st.contexts != 0 {
		f |= sendStatusLoad
	}
	if o.readOnly {
		return f | sendReadOnly // no flush: it would promise something about writes of others
	}
	f |= sendFlush | sendFUA | sendWriteZeroes | sendFastZero
	if o.trimmer != nil {
		f |= sendTrim
	}
	return f
}

// shared is an entry with its export, open while connections use it.
type shared struct {
	entry Entry
	cfg   Config

	mu   sync.Mutex
	open *opened       // nil while closed
	refs int           // connections that use open
	busy chan struct{} // not nil while one goroutine opens or closes; closed when it is through
	keep bool

	after   <-chan struct{}    // closed when what this entry replaces is closed; nil: nothing
	users   map[*conn]struct{} // in transmission
	gone    counters           // of connections that ended
	retired bool               // no longer offered
	closed  chan struct{}      // closed when it is retired and not open any more
}

func newShared(e Entry, cfg Config) *shared {
	return &shared{entry: e, cfg: cfg, keep: e.Keep, users: make(map[*conn]struct{}),
		closed: make(chan struct{})}
}

// acquire opens the export or joins those who have it open.
func (s *shared) acquire(ctx context.Context) (*opened, error) {
	if err := s.awaitPrior(ctx); err != nil {
		return nil, err
	}
	for {
		s.mu.Lock()
		if s.retired {
			s.mu.Unlock()
			return nil, errs.New(errs.Shutdown, "nbd.Open", s.entry.Name, nil)
		}
		if s.open != nil && s.open.ended() {
			if err := s.endedAndUnlock(); err != nil {
				return nil, err
			}
			continue
		}
		if s.open != nil {
			s.refs++
			o := s.open
			s.mu.Unlock()
			o.grow()
			return o, nil
		}
		if s.busy == nil {
			s.busy = make(chan struct{})
			s.mu.Unlock()
			return s.openNow(ctx)
		}
		busy := s.busy
		s.mu.Unlock()
		select {
		case <-busy:
		case <-ctx.Done():
			return nil, errs.Wrap("nbd.Open", s.entry.Name, ctx.Err())
		}
	}
}

// endedAndUnlock closes an export that has ended by itself, so that it can be opened anew, unless
// somebody still uses it.
func (s *shared) endedAndUnlock() error {
	if s.refs > 0 {
		s.mu.Unlock()
		return errs.Newf(errs.Shutdown, "nbd.Open", s.entry.Name,
			"it was given up, and has clients that have not left yet")
	}
	_ = s.closeUnusedAndUnlock() // whoever gave it up was told
	return nil
}

// ended tells whether the export has ended by itself.
func (o *opened) ended() bool { return o.ender != nil && o.ender.Ended() }

// grow takes over the size of an export that has become larger.
func (o *opened) grow() {
	if size := o.exp.Size(); size > 0 && uint64(size) > o.size.Load() {
		o.size.Store(uint64(size))
	}
}

// openNow runs with busy held by the caller, and frees it whatever Open does.
func (s *shared) openNow(ctx context.Context) (o *opened, err error) {
	defer func() {
		s.mu.Lock()
		if o != nil {
			s.open, s.refs = o, 1
		}
		s.freeLocked()
		s.mu.Unlock()
	}()
	exp, err := s.entry.Open(ctx)
	if err != nil {
		return nil, errs.Wrap("nbd.Open", s.entry.Name, err)
	}
	opened, err := newOpened(exp, s.entry, s.cfg)
	if err != nil {
		_ = exp.Close() // the reason to refuse it is what the caller needs to know
		return nil, err
	}
	return opened, nil
}

// freeLocked ends a turn of opening or closing.
func (s *shared) freeLocked() {
	close(s.busy)
	s.busy = nil
	s.checkClosedLocked()
}

// release ends one connection's use.
func (s *shared) release() error {
	s.mu.Lock()
	s.refs--
	invariant.Check(s.refs >= 0, "export %q released too often", s.entry.Name)
	return s.closeUnusedAndUnlock()
}

// letGo makes the entry close with its last use from now on, and closes it if it has none.
func (s *shared) letGo() error {
	s.mu.Lock()
	s.keep = false
	return s.closeUnusedAndUnlock()
}

func (s *shared) closeUnusedAndUnlock() error {
	if s.open == nil || s.refs > 0 || s.busy != nil || s.keep && !s.open.ended() {
		s.checkClosedLocked()
		s.mu.Unlock()
		return nil
	}
	o := s.open
	s.open = nil
	s.busy = make(chan struct{})
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.freeLocked()
		s.mu.Unlock()
	}()
	return errs.Wrap("nbd.Close", s.entry.Name, o.exp.Close())
}
