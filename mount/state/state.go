// Package state is what a mount must remember over the death of the process that serves it: which
// files programs have open, which of them had data that was nowhere but in that process, or not
// synced, where appends were about to be written, which threads were asked to look again, how the
// kernel was greeted, and a journal of names that are told later. It lies in memory that the
// process shares with its keeper (a memfd), so that it costs a few stores where it changes.
//
// One process at a time writes it, and may be killed between any two stores: every record has a
// word that is stored last when it becomes valid, and first when it ceases to be. Whoever reads it
// believes nothing: numbers are checked, and records that make no sense are left out.
//
// It does not know FUSE, nor files: those who use it say what the numbers mean.
//
// Read state.go (the layout), then handles.go, marks.go, lives.go and threads.go.
package state

import (
	"crypto/rand"
	"os"
	"sync"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/journal"
	"golang.org/x/sys/unix"
)

// The memory, in words of 8 bytes in the host's order unless bytes are said. The file has its full
// length from the beginning; pages that nobody has touched take no memory.
//
//	0      magic
//	8      session        of the process that serves, at the metadata service; 0: none yet
//	16     handle         the lowest number that no open file has ever had
//	24     believed       until when the kernel may believe what it was told; CLOCK_MONOTONIC, ns
//	32     greeted        1: the kernel has the answer to its greeting
//	40     overflow       1: there were more marks than there is room for
//	48     slots          of handles that were ever used
//	56     appended       records of appends that were ever made
//	64     secret         16 bytes: what names of requests are made from
//	128    before         8 words: sessions whose files were not all opened again; 0: none
//	256    name           a length of 2 bytes, and the name of the client
//	1024   greeting       a length of 2 bytes, and the kernel's first request
//	2048   answer         likewise
//	3072   threads        threadsMax words: see threads.go
//	4096   lives          livesMax x | server | verifier |: see lives.go
//	...    appends        appendsMax x | request | inode | offset | bytes |
//	...    marks          marksMax x | inode |
//	...    handles        handlesMax x 8 words: see handles.go
//	...    journal        JournalBytes: see internal/journal
const (
	magic = 0x53_4c_4d_4e_54_30_30_34

	atSession  = 8
	atHandle   = 16
	atBelieved = 24
	atGreeted  = 32
	atOverflow = 40
	atSlots    = 48
	atAppended = 56
	atSecret   = 64
	atBefore   = 128
	atName     = 256
	atGreeting = 1024
	atAnswer   = 2048
	atThreads  = 3072
	atLives    = 4096

	secretBytes = 16
	beforeMax   = 8
	nameMax     = 255
	greetingMax = 1000

	threadsMax  = 128
	lifeBytes   = 16
	livesMax    = 4 << 10
	appendBytes = 32
	appendsMax  = 8 << 10
	markBytes   = 8
	marksMax    = 64 << 10
	handleBytes = 64
	handlesMax  = 1 << 20

	atAppends = atLives + livesMax*lifeBytes
	atMarks   = atAppends + appendsMax*appendBytes
	atHandles = atMarks + marksMax*markBytes
	atJournal = atHandles + handlesMax*handleBytes
	totalSize = atJournal + JournalBytes
)

// JournalBytes is the room for the journal of who uses the table. What is never used takes no
// memory.
const JournalBytes = 24 << 20

// Table is the memory, mapped. Safe for concurrent use by one process.
type Table struct {
	mem []byte

	mu       sync.Mutex
	free     []int          // slots of handles below used
	used     int            // slots
	reserved uint64         // numbers of handles below it are noted down as given away
	marked   map[uint64]int // where the mark of an inode is
	gaps     []int          // places of marks below marks
	marks    int            // places that were ever used
	appended uint64
	lives    map[uint32]int // where the record of a server is
}

// Create makes the memory of a new mount, of which name is the client's.
func Create(name string) (*os.File, error) {
	if len(name) > nameMax {
		return nil, errs.Newf(errs.Invalid, "state.Create", "", "a name of %d bytes", len(name))
	}
	fd, err := unix.MemfdCreate("sluice-mount", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, errs.Wrap("state.Create", "", err)
	}
	f := os.NewFile(uintptr(fd), "sluice-mount")
	if err := f.Truncate(totalSize); err != nil {
		_ = f.Close()
		return nil, errs.Wrap("state.Create", "", err)
	}
	t, err := mapFile(f)
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	defer t.Close()
	rand.Read(t.mem[atSecret : atSecret+secretBytes])
	t.putBytes(atName, []byte(name))
	t.word(atHandle).Store(1)
	t.word(0).Store(magic)
	return f, nil
}

// Open maps the memory of a mount. f stays the caller's.
func Open(f *os.File) (*Table, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, errs.Wrap("state.Open", "", err)
	}
	if info.Size() != totalSize {
		return nil, errs.Newf(errs.Version, "state.Open", "", "%d bytes, not %d: written by another "+
			"version; unmount, and mount again", info.Size(), totalSize)
	}
	t, err := mapFile(f)
	if err != nil {
		return nil, err
	}
	if err := t.load(); err != nil {
		t.Close()
		return nil, err
	}
	return t, nil
}

func mapFile(f *os.File) (*Table, error) {
	mem, err := unix.Mmap(int(f.Fd()), 0, totalSize, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_SHARED|unix.MAP_NORESERVE)
	if err != nil {
		return nil, errs.Wrap("state.Open", "", err)
	}
	return &Table{mem: mem, marked: map[uint64]int{}}, nil
}

// load checks what is there and finds out what is free.
func (t *Table) load() error {
	if t.word(0).Load() != magic {
		return errs.Newf(errs.Version, "state.Open", "",
			"written by another version; unmount, and mount again")
	}
	t.used = int(min(t.word(atSlots).Load(), handlesMax))
	t.reserved = max(t.word(atHandle).Load(), 1)
	t.appended = t.word(atAppended).Load()
	t.loadLives()
	for i := range t.used {
		if t.handleWord(i, wordNumber).Load() == 0 {
			t.free = append(t.free, i)
		}
	}
	for i := range marksMax {
		if ino := t.mark(i).Load(); ino != 0 {
			for len(t.gaps)+len(t.marked) < i {
				t.gaps = append(t.gaps, len(t.gaps)+len(t.marked))
			}
			if _, twice := t.marked[ino]; twice {
				t.mark(i).Store(0)
				t.gaps = append(t.gaps, i)
			} else {
				t.marked[ino] = i
			}
			t.marks = i + 1
		}
	}
	return nil
}

// Journal is the journal, for use until Close. One process at a time opens it, when the one before
// it is dead. fresh: it was of another version, and is empty now; who hands over leaves nothing
// there.
func (t *Table) Journal() (j *journal.Journal, fresh bool, err error) {
	mem := t.mem[atJournal : atJournal+JournalBytes]
	if j, err = journal.Open(mem); errs.KindOf(err) == errs.Version {
		j, err = journal.Reset(mem)
		return j, true, err
	}
	return j, false, err
}

// Close unmaps the memory. What it says stays.
func (t *Table) Close() { _ = unix.Munmap(t.mem) }

// Name is the name of the client.
func (t *Table) Name() string { return string(t.getBytes(atName, nameMax)) }

// Secret is what names of requests are made from.
func (t *Table) Secret() (s [secretBytes]byte) {
	copy(s[:], t.mem[atSecret:])
	return s
}

// Greeting is the kernel's first request; empty: it has not been heard.
func (t *Table) Greeting() []byte { return t.getBytes(atGreeting, greetingMax) }

// SetGreeting notes the kernel's first request.
func (t *Table) SetGreeting(b []byte) error { return t.setBytes(atGreeting, b) }

// Answer is the answer to it that was chosen; empty: none was.
func (t *Table) Answer() []byte { return t.getBytes(atAnswer, greetingMax) }

// SetAnswer notes the answer, before the kernel has it.
func (t *Table) SetAnswer(b []byte) error { return t.setBytes(atAnswer, b) }

// Greeted tells whether the kernel has the answer.
func (t *Table) Greeted() bool { return t.word(atGreeted).Load() != 0 }

// SetGreeted notes that it has.
func (t *Table) SetGreeted() { t.word(atGreeted).Store(1) }

// Believed is until when the kernel may believe what it was told, in nanoseconds of
// CLOCK_MONOTONIC.
func (t *Table) Believed() int64 { return int64(t.word(atBelieved).Load()) }

// SetBelieved notes that.
func (t *Table) SetBelieved(until int64) { t.word(atBelieved).Store(uint64(until)) }

// Sessions are those that a process which begins to serve has to succeed, oldest first.
func (t *Table) Sessions() (list []uint64) {
	for i := range beforeMax {
		if id := t.word(atBefore + 8*i).Load(); id != 0 {
			list = append(list, id)
		}
	}
	if id := t.word(atSession).Load(); id != 0 {
		list = append(list, id)
	}
	return list
}

// BeginSession notes the session of a process that begins to serve. Those before it are kept until
// EndBefore.
func (t *Table) BeginSession(id uint64) {
	list := t.Sessions()
	if len(list) > beforeMax { // its files were opened by a later one, as far as they could be
		list = list[len(list)-beforeMax:]
	}
	// The last one is there twice for a moment, and never missing.
	for i := range beforeMax {
		if i < len(list) {
			t.word(atBefore + 8*i).Store(list[i])
		}
	}
	t.word(atSession).Store(id)
}

// SetSession notes a session that has taken the place of one that was lost.
func (t *Table) SetSession(id uint64) { t.word(atSession).Store(id) }

// EndBefore notes that there is nothing left to be taken from earlier sessions.
func (t *Table) EndBefore() {
	for i := range beforeMax {
		t.word(atBefore + 8*i).Store(0)
	}
}

// setBytes notes a few bytes. The length is stored last.
func (t *Table) setBytes(at int, b []byte) error {
	if len(b) > greetingMax {
		return errs.Newf(errs.TooBig, "state", "", "%d bytes", len(b))
	}
	t.putBytes(at, b)
	return nil
}

func (t *Table) putBytes(at int, b []byte) {
	t.mem[at], t.mem[at+1] = 0, 0
	copy(t.mem[at+2:], b)
	t.mem[at+1] = byte(len(b) >> 8)
	t.mem[at] = byte(len(b))
}

func (t *Table) getBytes(at, most int) []byte {
	n := int(t.mem[at]) | int(t.mem[at+1])<<8
	if n > most {
		return nil
	}
	return append([]byte(nil), t.mem[at+2:at+2+n]...)
}
