package pebblekv

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-storage/sluice/errs"
)

// Why there is a high-water mark.
//
// Pebble takes a record of a log or of the manifest that does not verify for the end of the file,
// because after a power cut that is what an end looks like. A flipped bit in the middle therefore
// drops everything behind it, in silence. Its newer log format writes into each record how far the
// log was synced before; that cannot vouch for the last batch, and it would be untrue here, since
// the guard leaves syncs out.
//
// So the guard itself keeps a record, in a file of its own, of how far each file that grows by
// appending reaches, and of the CRC-32C of all its bytes up to there. Two points are kept for each
// file:
//
//	synced   what a sync of the file covered. The record is written after that sync has returned,
//	         so it never claims more than the disk has.
//	written  what was handed to the kernel. It counts only while the same mount of the same boot is
//	         there: then the kernel has not lost it. It protects commits that did not ask for the
//	         disk, when only the process has died.
//
// Open compares before pebble sees the directory, and refuses what does not match: nothing has been
// changed by then, and salvage can still read everything.
//
// What it costs: one small write to the kernel for each write of the log, and no flush of the disk
// on the way of a commit. The record reaches the disk at once when files come and go and with every
// change of the manifest, which are rare, and within flushEvery otherwise. What is left unprotected
// is therefore: a power cut, and damage to what was synced within flushEvery before it.
//
// Tables need no mark: each of their blocks has a checksum, and the manifest names all of them.

// The file has two slots, written in turn, so that one is always whole. All numbers are big-endian.
//
//	0      8        12     16   24        40
//	|magic |version |count |seq |mount id |count x mark |crc32c u32 of everything before |
//
//	0     4       12      20         24       32
//	|kind |number |synced |synced crc |written |written crc |
const (
	marksName    = "WATERMARK"
	marksMagic   = "sluicewm"
	marksVersion = 1
	slotBytes    = 4096
	slots        = 2
	headBytes    = 40
	markBytes    = 36

	// marksMax is what fits into a slot. Pebble keeps at most 13 logs that are in use (it stops at
	// 12 full memtables) and 13 to be used again, two manifests and two files of options.
	marksMax = (slotBytes - headBytes - 4) / markBytes

	// flushEvery is how long the record of a sync may stay with the kernel.
	flushEvery = time.Second
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Kinds of files that have marks. The values are stored.
const (
	kindLog = iota + 1
	kindManifest
	kindOptions
)

// appended names a file that has a mark.
type appended struct {
	kind   uint32
	number uint64
}

// parseAppended tells what a file is by its name; false if it has no mark.
func parseAppended(name string) (a appended, ok bool) {
	var digits string
	switch {
	case strings.HasSuffix(name, ".log"):
		a.kind, digits = kindLog, strings.TrimSuffix(name, ".log")
	case strings.HasPrefix(name, "MANIFEST-"):
		a.kind, digits = kindManifest, strings.TrimPrefix(name, "MANIFEST-")
	case strings.HasPrefix(name, "OPTIONS-"):
		a.kind, digits = kindOptions, strings.TrimPrefix(name, "OPTIONS-")
	default:
		return a, false
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	a.number = n
	return a, err == nil
}

// String is the file's name.
func (a appended) String() string {
	switch a.kind {
	case kindManifest:
		return fmt.Sprintf("MANIFEST-%06d", a.number)
	case kindOptions:
		return fmt.Sprintf("OPTIONS-%06d", a.number)
	}
	return fmt.Sprintf("%06d.log", a.number)
}

// point is a length of a file, and the sum of that many bytes.
type point struct {
	length uint64
	sum    uint32
}

// mark is how far a file reaches.
type mark struct{ synced, written point }

// watermark keeps the marks of a directory. Safe for concurrent use once it is open.
type watermark struct {
	later func() // called flushEvery after something was left to be flushed

	flushing sync.Mutex // held over a sync and by close; before mu

	mu     sync.Mutex
	file   vfs.File // nil: closed
	seq    uint64
	mount  mountID
	marks  map[appended]mark
	slot   []byte // what was written last: its memory is used again
	behind bool   // the file has what the disk may not have
	timer  *time.Timer
}

// mountID names one mount of one boot. The zero value means unknown: then written never counts.
type mountID [16]byte

// encodeLocked draws a slot. It is valid until the next call.
func (w *watermark) encodeLocked() []byte {
	if w.slot == nil {
		w.slot = make([]byte, 0, slotBytes)
	}
	b := append(w.slot[:0], marksMagic...)
	b = binary.BigEndian.AppendUint32(b, marksVersion)
	b = binary.BigEndian.AppendUint32(b, uint32(len(w.marks)))
	b = binary.BigEndian.AppendUint64(b, w.seq)
	b = append(b, w.mount[:]...)
	for a, m := range w.marks {
		b = binary.BigEndian.AppendUint32(b, a.kind)
		b = binary.BigEndian.AppendUint64(b, a.number)
		for _, p := range []point{m.synced, m.written} {
			b = binary.BigEndian.AppendUint64(b, p.length)
			b = binary.BigEndian.AppendUint32(b, p.sum)
		}
	}
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// decodeSlot reads a slot; false if it does not verify.
func decodeSlot(b []byte) (seq uint64, mount mountID, marks map[appended]mark, ok bool) {
	if len(b) < headBytes+4 || string(b[:8]) != marksMagic {
		return
	}
	count := binary.BigEndian.Uint32(b[12:])
	if binary.BigEndian.Uint32(b[8:]) != marksVersion || count > marksMax {
		return
	}
	end := headBytes + int(count)*markBytes
	if len(b) < end+4 || binary.BigEndian.Uint32(b[end:]) != crc32.Checksum(b[:end], castagnoli) {
		return
	}
	marks = make(map[appended]mark, count)
	for rest := b[headBytes:end]; len(rest) > 0; rest = rest[markBytes:] {
		at := func(i int) point {
			return point{binary.BigEndian.Uint64(rest[i:]), binary.BigEndian.Uint32(rest[i+8:])}
		}
		a := appended{binary.BigEndian.Uint32(rest), binary.BigEndian.Uint64(rest[4:])}
		marks[a] = mark{synced: at(12), written: at(24)}
	}
	copy(mount[:], b[24:headBytes])
	return binary.BigEndian.Uint64(b[16:]), mount, marks, true
}

// load finds the latest slot of a directory that verifies. torn tells that the other one does not,
// which is what a power cut leaves at worst. There is no error if there is no file.
func (w *watermark) load(fs vfs.FS, dir string) (found, torn bool, err error) {
	data, err := readFile(fs, fs.PathJoin(dir, marksName), slots*slotBytes)
	if errs.KindOf(err) == errs.NotFound {
		return false, false, nil
	}
	if err != nil {
		return false, false, err
	}
	good := 0
	for i := 0; i < len(data); i += slotBytes {
		seq, mount, marks, ok := decodeSlot(data[i:min(i+slotBytes, len(data))])
		if !ok {
			continue
		}
		good++
		if !found || seq > w.seq {
			w.seq, w.mount, w.marks, found = seq, mount, marks, true
		}
	}
	if !found {
		return false, true, damaged(fs, dir, marksName, 0,
			"neither copy of the record of the logs' ends verifies")
	}
	return true, good < slots, nil
}

// open makes the file if it is fresh, and takes it over with the marks that were found in it.
func (w *watermark) open(fs vfs.FS, dir string, fresh bool, mount mountID) error {
	name := fs.PathJoin(dir, marksName)
	if w.marks == nil {
		w.marks = map[appended]mark{}
	}
	for a, m := range w.marks {
		if w.mount != mount {
			m.written = m.synced // what the kernel of another boot had is no claim any more
			w.marks[a] = m
		}
	}
	w.mount = mount
	if fresh {
		if err := w.makeFile(fs, dir, name); err != nil {
			return err
		}
	}
	f, err := fs.OpenReadWrite(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	w.file = f
	return w.settle(func() {})
}

// close flushes and closes the file.
func (w *watermark) close() error {
	if w.file == nil {
		return nil
	}
	err := w.flush()
	w.flushing.Lock()
	defer w.flushing.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer != nil {
		w.timer.Stop()
	}
	if e := w.file.Close(); err == nil {
		err = e
	}
	w.file = nil
	return err
}

// makeFile makes both slots, whole, under another name first: a crash leaves all of it or nothing.
func (w *watermark) makeFile(fs vfs.FS, dir, name string) error {
	f, err := fs.Create(name+".new", vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	for range slots {
		w.seq++
		slot := make([]byte, slotBytes)
		copy(slot, w.encodeLocked())
		if _, err = f.Write(slot); err != nil {
			break
		}
	}
	if err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = fs.Rename(name+".new", name)
	}
	if err != nil {
		return err
	}
	d, err := fs.OpenDir(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if e := d.Close(); err == nil {
		err = e
	}
	return err
}

// writeLocked hands the marks to the kernel.
func (w *watermark) writeLocked() error {
	switch {
	case w.file == nil:
		return errs.New(errs.Closed, "pebblekv", marksName, nil)
	case len(w.marks) > marksMax:
		return errs.Newf(errs.IO, "pebblekv", marksName, "%d files with marks, at most %d",
			len(w.marks), marksMax)
	}
	w.seq++
	if !w.behind && w.later != nil {
		w.timer = time.AfterFunc(flushEvery, w.later)
	}
	w.behind = true
	_, err := w.file.WriteAt(w.encodeLocked(), int64(w.seq%slots)*slotBytes)
	return err
}

// settle makes a change, writes both slots and waits for the disk: after it no older slot claims
// what is no longer true, whichever of the two is damaged later.
func (w *watermark) settle(change func()) error {
	w.mu.Lock()
	change()
	err := w.writeLocked()
	if err == nil {
		err = w.writeLocked()
	}
	w.mu.Unlock()
	if err != nil {
		return err
	}
	return w.flush()
}

// flush brings the marks to the disk, if they are not there. Marks may move meanwhile: those who
// move them must not wait for a disk.
func (w *watermark) flush() error {
	w.flushing.Lock()
	defer w.flushing.Unlock()
	w.mu.Lock()
	f, behind := w.file, w.behind
	w.behind = false
	if w.timer != nil {
		w.timer.Stop()
	}
	w.mu.Unlock()
	if f == nil || !behind {
		return nil
	}
	return f.SyncData()
}

// begin gives a file a mark before it is made, and takes from's away, which becomes that file.
func (w *watermark) begin(name, from string) error {
	a, ok := parseAppended(name)
	if !ok {
		return nil
	}
	return w.settle(func() {
		if old, ok := parseAppended(from); ok {
			delete(w.marks, old)
		}
		w.marks[a] = mark{}
	})
}

// forget takes a file's mark away before the file is removed.
func (w *watermark) forget(name string) error {
	a, ok := parseAppended(name)
	if !ok {
		return nil
	}
	w.mu.Lock()
	_, ok = w.marks[a]
	w.mu.Unlock()
	if !ok {
		return nil
	}
	return w.settle(func() { delete(w.marks, a) })
}

// set moves a file's mark. It does not wait for the disk, unless the file is no log: those are
// synced rarely.
func (w *watermark) set(name string, m mark) error {
	a, ok := parseAppended(name)
	if !ok {
		return nil
	}
	w.mu.Lock()
	old := w.marks[a]
	if old == m {
		w.mu.Unlock()
		return nil
	}
	w.marks[a] = m
	err := w.writeLocked()
	w.mu.Unlock()
	if err != nil || a.kind == kindLog || old.synced == m.synced {
		return err
	}
	return w.flush()
}

// verify compares the files of a directory with their marks. All that differs is reported, in the
// order of the files.
func (w *watermark) verify(fs vfs.FS, dir string, mount mountID, report func(error)) {
	all := make([]appended, 0, len(w.marks))
	for a := range w.marks {
		all = append(all, a)
	}
	slices.SortFunc(all, func(a, b appended) int {
		if a.kind != b.kind {
			return int(a.kind) - int(b.kind)
		}
		return int(int64(a.number) - int64(b.number))
	})
	same := w.mount == mount && mount != (mountID{})
	for _, a := range all {
		m := w.marks[a]
		points := []point{m.synced}
		if same && m.written.length > m.synced.length {
			points = append(points, m.written)
		}
		for i, p := range points {
			if err := verifyPoint(fs, dir, a, p, i == 0); err != nil {
				report(err)
				break
			}
		}
	}
}

// verifyPoint compares the beginning of a file with one point of its mark.
func verifyPoint(fs vfs.FS, dir string, a appended, p point, synced bool) error {
	if p.length == 0 {
		return nil
	}
	how := "synced"
	if !synced {
		how = "written"
	}
	data, err := readFile(fs, fs.PathJoin(dir, a.String()), p.length)
	switch {
	case errs.KindOf(err) == errs.NotFound && a.kind != kindLog:
		// A power cut may take it until its directory is synced, which for a log is before its first
		// byte. Pebble notices when it needs the file.
		return nil
	case errs.KindOf(err) == errs.NotFound:
		return damaged(fs, dir, a.String(), 0, "the file is missing; %d bytes of it were %s",
			p.length, how)
	case err != nil:
		return errs.Wrap(opOpen, fs.PathJoin(dir, a.String()), err)
	case uint64(len(data)) < p.length:
		return damaged(fs, dir, a.String(), int64(len(data)), "the file ends there; %d bytes of it "+
			"were %s", p.length, how)
	case crc32.Checksum(data, castagnoli) == p.sum:
		return nil
	}
	at := int64(0)
	if a.kind != kindOptions {
		at = firstBad(data, a)
	}
	return damaged(fs, dir, a.String(), at, "the first %d bytes were %s and are not what they were",
		p.length, how)
}

// damaged is the error of a file that is not what it was.
func damaged(fs vfs.FS, dir, name string, at int64, format string, args ...any) error {
	return &Damage{File: fs.PathJoin(dir, name), Offset: at, What: fmt.Sprintf(format, args...)}
}

// Damage is a place of a store that is not what was written there. Its kind is errs.Corrupt.
type Damage struct {
	File   string
	Offset int64 // where the damaged record begins, as far as that can be known
	What   string
}

func (d *Damage) Error() string {
	return fmt.Sprintf("%s is damaged at byte %d: %s", d.File, d.Offset, d.What)
}

// Unwrap gives the kind.
func (d *Damage) Unwrap() error { return errs.Corrupt }
