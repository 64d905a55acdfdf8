package store

import (
	"encoding/binary"

	"github.com/sluice-storage/sluice/capability"
	"github.com/sluice-storage/sluice/errs"
)

// Memory that is gone.
//
// A server that keeps its objects in memory has lost all of them when it starts again. What it had
// must then be an error for whoever reads it, or writes a part of it, and not zeroes; files that
// are made later, or cut to nothing, are as good as ever. The server itself cannot tell which of
// its objects are missing. So:
//
// Each start of such a server has a number, its life, which comes with every Join. When it changes,
// the service counts a loss, durably, and writes down with the server which loss was its last. Each
// file keeps how many losses there had been when it was made or last cut to nothing. Its objects at
// a server are lost if that is less than the server's last loss.
//
// Capabilities carry the life that the objects belong to, or capability.Lost. A server of lives
// refuses those that are lost (errs.IO), and those of another life (errs.Stale: the client asks the
// service again, which knows better as soon as the server has joined). So neither an old capability
// nor a service that has not heard of the restart makes zeroes of what is lost.
//
// A file that is made between the death of a server and its next Join counts as lost there, too:
// nobody knows which life its first write met.

// lose counts a loss, of the server rec.
func (t *txn) lose(rec *server) error {
	value, err := t.read([]byte(keyLosses))
	if err != nil {
		return err
	}
	var n uint64
	if value != nil {
		if n, err = parseLosses(value); err != nil {
			return err
		}
	}
	rec.Lost = n + 1
	t.put([]byte(keyLosses), binary.BigEndian.AppendUint64(nil, rec.Lost))
	t.kv.Sync = true
	return nil
}

func parseLosses(value []byte) (uint64, error) {
	if len(value) != 8 {
		return 0, errs.Newf(errs.Corrupt, "meta.losses", "", "%s has %d bytes", keyLosses, len(value))
	}
	return binary.BigEndian.Uint64(value), nil
}

// loadLosses reads how many there were.
func (s *Store) loadLosses(t *txn) error {
	value, err := t.read([]byte(keyLosses))
	if err != nil || value == nil {
		return err
	}
	n, err := parseLosses(value)
	s.losses.Store(n)
	return err
}

// welcome makes a Join that was written down count.
func (s *Store) welcome(rec *server) {
	if moved := s.servers.set(&joined{server: *rec, heard: s.steady()}); moved && s.opt.OnMove != nil {
		s.opt.OnMove(rec.ID, rec.Addr)
	}
	if s.backlogs.has(rec.ID) {
		wake(s.removed)
	}
	for {
		n := s.losses.Load()
		if rec.Lost <= n {
			return
		}
		if s.losses.CompareAndSwap(n, rec.Lost) {
			s.opt.Log.Error("an I/O server has lost its memory; reading what it had is an error",
				"server", rec.ID, "losses", rec.Lost)
			return
		}
	}
}

// life is what a capability says of a server for a file that keeps losses.
func (x *servers) life(id uint32, losses uint64) uint32 {
	x.mu.Lock()
	defer x.mu.Unlock()
	s := x.byID[id]
	switch {
	case s == nil:
		return 0
	case s.Lost > losses:
		return capability.Lost
	}
	return s.Life
}
