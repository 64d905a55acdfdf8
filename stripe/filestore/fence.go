package filestore

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/stripe"
)

// The file of fences is a header and records, appended and synced one by one:
//
//	header:  0        4         8            24     28
//	         |magic   |version  |store id    |crc   |
//	record:  0        8         12    16
//	         |file    |min gen  |crc  |
//
// Big-endian; a checksum covers what stands before it in its header or record. A bad record
// at the very end was being written when the host went down and was never acknowledged; a bad
// one before others is damage. Later records of a file replace earlier ones; when most are
// replaced the file is written anew.
const (
	fencesName        = "fences"
	fencesMagic       = 0x534c4645 // "SLFE"
	fencesVersion     = 1
	fencesHeaderBytes = 28
	fenceBytes        = 16
	fencesSlack       = 256 // records beyond the live ones before the file is written anew
)

type fences struct {
	dir     string
	storeID [16]byte
	step    func(call, path string) error

	f       *os.File // guarded by Store.fenceMu
	records int      // in the file; guarded by Store.fenceMu

	mu     sync.RWMutex
	minGen map[uint64]uint32
}

// loadFences reads the file, drops a torn end, and makes the file when there is none.
func loadFences(dir, storeID string, step func(call, path string) error) (*fences, error) {
	x := &fences{dir: dir, step: step, minGen: map[uint64]uint32{}}
	id, err := hex.DecodeString(storeID)
	if err != nil {
		return nil, errs.New(errs.Corrupt, "filestore.Fences", dir, err)
	}
	copy(x.storeID[:], id)
	raw, err := os.ReadFile(x.path())
	if errors.Is(err, fs.ErrNotExist) {
		return x, x.rewrite()
	}
	if err != nil {
		return nil, err
	}
	valid, err := decodeFences(raw, x.storeID, x.minGen)
	if err != nil {
		return nil, errs.Wrap("filestore.Fences", x.path(), err)
	}
	x.records = (valid - fencesHeaderBytes) / fenceBytes
	if valid < len(raw) || x.records > len(x.minGen)+fencesSlack {
		return x, x.rewrite()
	}
	return x, x.open()
}

// decodeFences fills minGen and returns how many bytes are whole.
func decodeFences(raw []byte, storeID [16]byte, minGen map[uint64]uint32) (int, error) {
	be := binary.BigEndian
	if len(raw) < fencesHeaderBytes || be.Uint32(raw) != fencesMagic ||
		be.Uint32(raw[24:]) != checksum(raw[:24]) {
		return 0, errs.Newf(errs.Corrupt, "", "", "the header of the fences is damaged")
	}
	if v := be.Uint32(raw[4:]); v != fencesVersion {
		return 0, errs.Newf(errs.Version, "", "",
			"fences have format %d, this build knows %d: use a newer build", v, fencesVersion)
	}
	if !bytes.Equal(raw[8:24], storeID[:]) {
		return 0, errs.Newf(errs.Corrupt, "", "", "the fences belong to another store")
	}
	at := fencesHeaderBytes
	for ; at+fenceBytes <= len(raw); at += fenceBytes {
		r := raw[at : at+fenceBytes]
		if be.Uint32(r[12:]) != checksum(r[:12]) {
			if len(raw)-at > fenceBytes {
				return 0, errs.Newf(errs.Corrupt, "", "", "the fence at byte %d is damaged", at)
			}
			break
		}
		file, gen := be.Uint64(r), be.Uint32(r[8:])
		minGen[file] = max(minGen[file], gen)
	}
	return at, nil
}

func appendFence(b []byte, file uint64, gen uint32) []byte {
	start := len(b)
	b = binary.BigEndian.AppendUint64(b, file)
	b = binary.BigEndian.AppendUint32(b, gen)
	return binary.BigEndian.AppendUint32(b, checksum(b[start:]))
}

func (x *fences) path() string { return filepath.Join(x.dir, fencesName) }

// rewrite replaces the file by one with the live fences only.
func (x *fences) rewrite() error {
	b := binary.BigEndian.AppendUint32(nil, fencesMagic)
	b = binary.BigEndian.AppendUint32(b, fencesVersion)
	b = append(b, x.storeID[:]...)
	b = binary.BigEndian.AppendUint32(b, checksum(b))
	for file, gen := range x.minGen { // only SetMinGeneration changes it, and that is who calls
		b = appendFence(b, file, gen)
	}
	if err := x.step("replace", x.path()); err != nil {
		return err
	}
	if err := replaceFile(x.dir, fencesName, b); err != nil {
		return err
	}
	x.records = len(x.minGen)
	return x.open()
}

func (x *fences) open() error {
	f, err := os.OpenFile(x.path(), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	if x.f != nil {
		x.f.Close() // its records are in the new file
	}
	x.f = f
	return nil
}

func (x *fences) close() error {
	if x.f == nil {
		return nil
	}
	return x.f.Close()
}

// append makes one fence stable.
func (x *fences) append(file uint64, gen uint32) error {
	err := x.step("append", x.path())
	if err == nil {
		_, err = x.f.Write(appendFence(nil, file, gen))
	}
	if err == nil {
		err = x.step("fdatasync", x.path())
	}
	if err == nil {
		err = x.f.Sync()
	}
	x.records++
	return err
}

func (x *fences) check(op string, id stripe.ObjectID) error {
	return stripe.CheckFence(op, id, x.minimum(id.File))
}

func (x *fences) minimum(file uint64) uint32 {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.minGen[file]
}

// SetMinGeneration implements stripe.Fencer: the fence is stable first, then it holds, then
// requests that were admitted before it have ended.
func (s *Store) SetMinGeneration(ctx context.Context, file uint64, gen uint32) error {
	const op = "filestore.SetMinGeneration"
	if err := ctx.Err(); err != nil {
		return errs.Wrap(op, "", err)
	}
	if err := s.begin(op); err != nil {
		return err
	}
	defer s.end()
	if err := s.writable(op); err != nil {
		return err
	}
	s.fenceMu.Lock()
	defer s.fenceMu.Unlock()
	x := s.fences
	if gen <= x.minimum(file) {
		return nil
	}
	if err := x.append(file, gen); err != nil {
		return s.fail("SetMinGeneration", x.path(), err)
	}
	x.mu.Lock()
	x.minGen[file] = gen
	x.mu.Unlock()
	s.drain(file, gen)
	if x.records > 2*len(x.minGen)+fencesSlack {
		if err := x.rewrite(); err != nil {
			return s.fail("SetMinGeneration", x.path(), err)
		}
	}
	return nil
}

// drain waits for the requests under way on older generations of the file.
func (s *Store) drain(file uint64, gen uint32) {
	old := s.table.pick(func(o *object) bool { return o.id.File == file && o.id.Gen < gen })
	for _, o := range old {
		o.mu.Lock()
		//lint:ignore SA2001 whoever held it shared was admitted before the fence
		o.mu.Unlock()
		s.table.release(o)
	}
}
