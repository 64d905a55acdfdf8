package mem

import (
	"bytes"
	"errors"
	"math"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/sluice-storage/sluice/errs"
	"golang.org/x/sys/unix"
)

func openArena(t testing.TB, opts ArenaOptions) *Arena {
	t.Helper()
	a, err := OpenArena(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	return a
}

// resident counts the pages of the arena that are in memory.
func resident(t *testing.T, a *Arena) int {
	t.Helper()
	vec := make([]byte, len(a.mem)/unix.Getpagesize())
	if err := mincore(a.mem, vec); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, v := range vec {
		n += int(v & 1)
	}
	return n
}

func TestPopulatedPagesAreThere(t *testing.T) {
	a := openArena(t, ArenaOptions{Bytes: 1 << 20, Huge: No, Lock: No})
	all := len(a.mem) / unix.Getpagesize()
	if s := a.Stats(); !s.Populated || s.Locked || s.Pages != PagesSmall || s.Source != "anonymous" {
		t.Fatalf("%+v", s)
	}
	if n := resident(t, a); n != all {
		t.Fatalf("%d of %d pages are present", n, all)
	}
	lazy, err := NewArena(1<<20, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer lazy.Close()
	if n := resident(t, lazy); n != 0 || lazy.Stats().Populated {
		t.Fatalf("%d pages came untouched", n)
	}
}

// TestChildrenDoNotInherit looks for the flag that keeps a fork from copying the mapping.
func TestChildrenDoNotInherit(t *testing.T) {
	for _, huge := range []Want{Wish, No} {
		a := openArena(t, ArenaOptions{Bytes: 4 << 20, Huge: huge, Lock: No})
		text, err := os.ReadFile("/proc/self/smaps")
		if err != nil {
			t.Fatal(err)
		}
		inside, flags := false, ""
		for line := range strings.Lines(string(text)) {
			if from, to, ok := mapping(line); ok {
				at := uint64(addrOf(a.mem))
				inside = from <= at && at < to
			}
			if rest, ok := strings.CutPrefix(line, "VmFlags:"); ok && inside {
				flags = rest
			}
		}
		if !strings.Contains(flags, " dc") {
			t.Errorf("huge %d: flags %q", huge, flags)
		}
	}
}

func TestHugePages(t *testing.T) {
	const want = 5<<20 + 1
	a := openArena(t, ArenaOptions{Bytes: want, Lock: No})
	s := a.Stats()
	switch s.Pages {
	case PagesHuge:
		if s.Bytes != 6<<20 || s.HugeBytes != s.Bytes {
			t.Fatalf("%+v", s)
		}
	case PagesAdvised:
		if addrOf(a.mem)%hugeBytes != 0 || s.Bytes != roundUp(want, unix.Getpagesize()) {
			t.Fatalf("%+v at %x", s, addrOf(a.mem))
		}
		fallthrough
	default:
		if len(s.Notes) == 0 {
			t.Fatalf("nothing tells why there are no reserved huge pages: %+v", s)
		}
	}
	t.Logf("%+v", s)
	for i := range a.mem {
		a.mem[i] = byte(i)
	}
	_, err := OpenArena(ArenaOptions{Bytes: 1 << 50, Huge: Must, Populate: No, Lock: No})
	if !errors.Is(err, errs.NoMemory) || !strings.Contains(err.Error(), "vm.nr_hugepages") {
		t.Fatalf("more huge pages than there are: %v", err)
	}
}

// TestLockWithoutAllowance takes the right to lock away from one thread and the allowance from the
// process. The thread ends with the test.
func TestLockWithoutAllowance(t *testing.T) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked: the thread is of no use to others
		var was unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &was); err != nil {
			t.Error(err)
			return
		}
		low := unix.Rlimit{Cur: 64 << 10, Max: was.Max}
		if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &low); err != nil {
			t.Error(err)
			return
		}
		defer unix.Setrlimit(unix.RLIMIT_MEMLOCK, &was)
		if err := dropLockCapability(); err != nil {
			t.Error(err)
			return
		}
		_, err := OpenArena(ArenaOptions{Bytes: 1 << 20, Lock: Must})
		if !errors.Is(err, errs.NoMemory) || !strings.Contains(err.Error(), "ulimit -l") ||
			!strings.Contains(err.Error(), "LimitMEMLOCK") {
			t.Errorf("locking that must be: %v", err)
		}
		a, err := OpenArena(ArenaOptions{Bytes: 1 << 20})
		if err != nil {
			t.Error(err)
			return
		}
		defer a.Close()
		s := a.Stats()
		if s.Locked || len(s.Notes) != 1 || !strings.Contains(s.Notes[0], "allowance 65536 bytes") {
			t.Errorf("locking that was wished for: %+v", s)
		}
	}()
	<-done
}

func dropLockCapability() error {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&head, &data[0]); err != nil {
		return err
	}
	data[0].Effective &^= 1 << unix.CAP_IPC_LOCK
	return unix.Capset(&head, &data[0])
}

func TestLock(t *testing.T) {
	// 16 KiB are within the allowance of every ordinary user.
	a := openArena(t, ArenaOptions{Bytes: 16 << 10, Lock: Must, Populate: No})
	if s := a.Stats(); !s.Locked || !s.Populated {
		t.Fatalf("%+v", s)
	}
}

func TestLimitCountsWhatIsMapped(t *testing.T) {
	limit, err := NewLimit(10 * 4096)
	if err != nil {
		t.Fatal(err)
	}
	plain := ArenaOptions{Bytes: 5*4096 - 1, Huge: No, Lock: No, Limit: limit}
	first := openArena(t, plain)
	second := openArena(t, plain)
	plain.Bytes = 1
	if _, err := OpenArena(plain); !errors.Is(err, errs.NoMemory) || !errors.Is(err, errLimit) {
		t.Fatalf("one page too many: %v", err)
	}
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
	plain.Source = &heapSource{fail: errs.IO}
	if _, err := OpenArena(plain); err == nil {
		t.Fatal("a failing source")
	}
	if now, high := limit.Used(); now != 5*4096 || high != 10*4096 {
		t.Fatalf("%d used, %d at most", now, high)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if now, _ := limit.Used(); now != 0 {
		t.Fatalf("%d used after all", now)
	}
	if _, err := NewLimit(0); !errors.Is(err, errs.Invalid) {
		t.Fatal(err)
	}
}

type mapFunc func(size int) (mem []byte, free func() error, err error)

// funcSource is a Source that maps by a function.
type funcSource struct {
	name string
	fn   mapFunc
}

func (s funcSource) Name() string { return s.name }

func (s funcSource) Map(size int) ([]byte, func() error, error) { return s.fn(size) }

func TestSourceOfAnotherKind(t *testing.T) {
	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	src := funcSource{"file", func(size int) ([]byte, func() error, error) {
		if err := file.Truncate(int64(size)); err != nil {
			return nil, nil, err
		}
		mem, err := unix.Mmap(int(file.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE,
			unix.MAP_SHARED)
		return mem, func() error { return unix.Munmap(mem) }, err
	}}
	a := openArena(t, ArenaOptions{Bytes: 10000, Source: src})
	if s := a.Stats(); s.Source != "file" || s.Pages != PagesSource || s.Bytes != 12288 {
		t.Fatalf("%+v", s)
	}
	copy(a.Bytes(), "shared")
	got := make([]byte, 6)
	if _, err := file.ReadAt(got, 0); err != nil || string(got) != "shared" {
		t.Fatalf("%q, %v", got, err)
	}
	_, err = OpenArena(ArenaOptions{Bytes: 4 << 20, Source: src, Huge: Must})
	if !errors.Is(err, errs.Invalid) {
		t.Fatalf("huge pages of a source: %v", err)
	}
	freed := 0
	for name, fn := range map[string]mapFunc{
		"short": func(size int) ([]byte, func() error, error) {
			return make([]byte, size-1), func() error { freed++; return nil }, nil
		},
		"crooked": func(size int) ([]byte, func() error, error) {
			return make([]byte, size+1)[1:], func() error { freed++; return nil }, nil
		},
		"without an end": func(size int) ([]byte, func() error, error) {
			return make([]byte, size), nil, nil
		},
	} {
		_, err := OpenArena(ArenaOptions{Bytes: 8192, Source: funcSource{name, fn}})
		if !errors.Is(err, errs.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if freed != 2 {
		t.Errorf("%d of 2 freed", freed)
	}
}

func TestArenaOfSeveralDomains(t *testing.T) {
	a := openArena(t, ArenaOptions{Bytes: 8192, Lock: No})
	one, two := &recordDomain{}, &recordDomain{}
	for _, d := range []*recordDomain{one, two} {
		if a.RegionOf(d) != nil {
			t.Fatal("a region before Attach")
		}
		if err := a.Attach(d); err != nil {
			t.Fatal(err)
		}
	}
	if a.Region() != a.RegionOf(one) || a.RegionOf(one) == a.RegionOf(two) {
		t.Fatal("regions are mixed up")
	}
	p, err := NewPool(a, 4096, 1)
	if err != nil {
		t.Fatal(err)
	}
	b := p.TryTake()
	if s := b.SgeOf(two, 1, 2); s.Reg != a.RegionOf(two) || len(s.Buf) != 2 {
		t.Fatal("not the region of that domain")
	}
	b.Return()
	if err := a.Close(); err != nil || one.open+two.open != 0 {
		t.Fatalf("%v; %d regions are open", err, one.open+two.open)
	}
	if err := a.Attach(one); !errors.Is(err, errs.Closed) {
		t.Fatalf("Attach after Close: %v", err)
	}
}

func TestArenaOptions(t *testing.T) {
	for _, opts := range []ArenaOptions{
		{}, {Bytes: -1}, {Bytes: math.MaxInt}, {Bytes: 1, Lock: 3}, {Bytes: 4096, Huge: Must},
	} {
		if _, err := OpenArena(opts); !errors.Is(err, errs.Invalid) {
			t.Errorf("%+v: %v", opts, err)
		}
	}
}

const smaps = `7f0000000000-7f0000400000 rw-p 00000000 00:00 0
Size:               4096 kB
AnonHugePages:      2048 kB
VmFlags: rd wr
7f0000400000-7f0000600000 rw-p 00000000 00:00 0 [anon: Go: heap]
AnonHugePages:      1024 kB
`

func TestAnonHuge(t *testing.T) {
	for _, tc := range []struct {
		lo, hi uint64
		want   uint64
	}{
		{0x7f0000000000, 0x7f0000400000, 2 << 20},
		{0x7f0000100000, 0x7f0000400001, 3 << 20},
		{0x7f0000600000, 0x7f0000700000, 0},
	} {
		got, err := anonHuge(strings.NewReader(smaps), tc.lo, tc.hi)
		if err != nil || got != tc.want {
			t.Errorf("%x-%x: %d, %v; want %d", tc.lo, tc.hi, got, err, tc.want)
		}
	}
	if _, err := anonHuge(strings.NewReader("0-f \nAnonHugePages: x kB\n"), 0, 1); err == nil {
		t.Error("no number, no error")
	}
}

func FuzzAnonHuge(f *testing.F) {
	f.Add([]byte(smaps), uint64(0x7f0000000000), uint64(4<<20))
	f.Add([]byte("0-ffffffffffffffff \nAnonHugePages: 99999999999 kB\n"), uint64(0), uint64(1))
	f.Fuzz(func(t *testing.T, text []byte, lo, n uint64) {
		got, err := anonHuge(bytes.NewReader(text), lo, lo+n)
		if err == nil && got%1024 != 0 {
			t.Fatalf("%d bytes are no kilobytes", got)
		}
	})
}
