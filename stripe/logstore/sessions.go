package logstore

import (
	"encoding/binary"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/crc32c"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/stripe/device"
	"github.com/sluice-storage/sluice/wire"
)

// The sessions of a store: who wrote what last.
//
//	0        8     12   16
//	|session |slot |seq |
//
// There are four areas: two for superblocks with even sequences, two for odd ones, so that what the
// present superblock names is not touched while the next one is made. Both of a pair hold the same.
const (
	sessionBytes = 16
	sessionsMax  = 2 * stripe.SessionsMax
)

func sessionsOff(seq uint64, copy int) int64 {
	return sessionsAt + (int64(seq%2)*2+int64(copy))*sessionsBytes
}

// writeSessions writes them for a superblock and notes in it how many there are.
func (m *member) writeSessions(s *super) error {
	n := 0
	m.sessions.Each(func(key stripe.SessionSlot, seq uint32) {
		if n < sessionsMax {
			m.needSessions(n + 1)
			p := m.sessionBuf[n*sessionBytes:]
			binary.LittleEndian.PutUint64(p, key.Session)
			binary.LittleEndian.PutUint32(p[8:], uint32(key.Slot))
			binary.LittleEndian.PutUint32(p[12:], seq)
			n++
		}
	})
	b := m.sessionBuf
	s.sessions = uint32(n)
	s.sessionsCRC = crc32c.Sum(b[:n*sessionBytes])
	if n == 0 {
		return nil
	}
	// What they know must be in the log before it is on the disk.
	if _, _, err := m.barrier(true); err != nil {
		return err
	}
	size := (n*sessionBytes + blockBytes - 1) / blockBytes * blockBytes
	for i := range 2 {
		if err := m.writeStable(sessionsOff(s.seq, i), b[:size]); err != nil {
			return err
		}
	}
	return nil
}

// needSessions makes the buffer large enough for n sessions.
func (m *member) needSessions(n int) {
	const all = sessionsMax * sessionBytes
	switch {
	case len(m.sessionBuf) >= n*sessionBytes:
	case len(m.sessionBuf) == 0 && n*sessionBytes <= blockBytes:
		m.sessionBuf = alignedBytes(blockBytes)
	default:
		m.sessionBuf = append(alignedBytes(all)[:0], m.sessionBuf...)[:all]
	}
}

// loadSessions reads one of the copies and tells whether it verifies.
func (m *member) loadSessions(copy int) error {
	n := int(m.super.sessions) * sessionBytes
	if n == 0 {
		return nil
	}
	m.needSessions(int(m.super.sessions))
	size := (n + blockBytes - 1) / blockBytes * blockBytes
	op := device.Op{Kind: device.Read, Off: sessionsOff(m.super.seq, copy),
		Bufs: [][]byte{m.sessionBuf[:size]}}
	if err := device.One(m.dev, &op); err != nil {
		return err
	}
	if crc32c.Sum(m.sessionBuf[:n]) != m.super.sessionsCRC {
		return errs.Newf(errs.Corrupt, "", "", "copy %d of the list of sessions does not verify", copy)
	}
	return nil
}

// readSessions loads them, from the second copy where the first one is damaged. Without them a
// request that was applied could be applied again: that is for people to decide.
func (m *member) readSessions() error {
	err := m.loadSessions(0)
	if err != nil {
		err = m.loadSessions(1)
	}
	if err != nil && m.opt.salvage {
		m.opt.log.Error("who wrote last is lost: requests may be applied twice", "device",
			m.dev.Name(), "cause", err)
		return nil
	}
	if err != nil {
		return errs.Newf(errs.Corrupt, "logstore.Open", m.dev.Name(), "%w: restore the store from a "+
			"copy, or salvage it, after which requests may be applied twice", err)
	}
	n := int(m.super.sessions) * sessionBytes
	for p := m.sessionBuf[:n]; len(p) > 0; p = p[sessionBytes:] {
		le := binary.LittleEndian
		m.sessions.Note(wire.Stamp{Session: le.Uint64(p), Slot: le.Uint16(p[8:]),
			Seq: le.Uint32(p[12:])})
	}
	return nil
}
