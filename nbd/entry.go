package nbd

import (
	"context"
	"sync"
	"unicode/utf8"

	"github.com/sluice-storage/sluice/errs"
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

	// Open opens the export. It is called when a client has chosen the name and no other connection
	// has it open, never twice at the same time.
	Open func(ctx context.Context) (Export, error)
}

func (e Entry) validate() error {
	const op = "nbd.Entry"
	if e.Open == nil {
		return errs.Newf(errs.Invalid, op, e.Name, "without Open")
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
	now      NowReader
	instant  bool
	readOnly bool
	size     uint64

	description                    string
	minimum, preferred, maxPayload uint32

	// slots holds one token per call under way, which bounds the threads that wait for the device.
	slots chan struct{}
}

func newOpened(exp Export, entry Entry, cfg Config) (*opened, error) {
	o := &opened{
		exp: exp, readOnly: entry.ReadOnly, description: entry.Description,
		minimum: 1, preferred: 4096, maxPayload: uint32(cfg.MaxPayload),
		slots: make(chan struct{}, cfg.ExportRequests),
	}
	size := exp.Size()
	if size < 0 {
		return nil, errs.Newf(errs.Invalid, "nbd.Open", entry.Name, "size %d", size)
	}
	o.size = uint64(size)
	o.trimmer, _ = exp.(Trimmer)
	o.zeroer, _ = exp.(Zeroer)
	o.mapper, _ = exp.(Mapper)
	o.slicer, _ = exp.(Slicer)
	o.now, _ = exp.(NowReader)
	if i, ok := exp.(Instant); ok {
		o.instant = i.Instant()
	}
	if d, ok := exp.(Describer); ok && o.description == "" {
		if text := d.Description(); validText([]byte(text)) && utf8.ValidString(text) {
			o.description = text
		}
	}
	if s, ok := exp.(Sizer); ok {
		return o, o.takeSizes(s, entry.Name)
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
func (o *opened) flags(structured bool) uint16 {
	f := sendHasFlags | sendMultiConn | sendCache
	if structured {
		f |= sendDF
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
}

// acquire opens the export or joins those who have it open.
func (s *shared) acquire(ctx context.Context) (*opened, error) {
	for {
		s.mu.Lock()
		if s.open != nil {
			s.refs++
			o := s.open
			s.mu.Unlock()
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

func (s *shared) freeLocked() {
	close(s.busy)
	s.busy = nil
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
	if s.open == nil || s.refs > 0 || s.keep || s.busy != nil {
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
