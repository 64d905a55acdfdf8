package logstore

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/stripe/device"
	"github.com/sluice-storage/sluice/stripe/device/devicetest"
	"github.com/sluice-storage/sluice/stripe/stripetest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	runVictim() // does not return in a child of TestKill and TestPower
	goleak.VerifyTestMain(m)
}

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// rig is a store that can be opened again.
type rig struct {
	*Store
	open func(t testing.TB) *Store
}

func (r *rig) reopen(t testing.TB) *rig {
	t.Helper()
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	return &rig{r.open(t), r.open}
}

// crash opens it again as after the death of the process.
func (r *rig) crash(t testing.TB) *rig {
	t.Helper()
	r.Abandon()
	return &rig{r.open(t), r.open}
}

// newRig makes a store on devices.
func newRig(t testing.TB, opt Options, devices func() []device.Device) *rig {
	t.Helper()
	opt.Logger = quiet()
	opt.Devices = devices()
	if _, err := Create(opt); err != nil {
		t.Fatal(err)
	}
	closeAll(opt.Devices)
	open := func(t testing.TB) *Store {
		t.Helper()
		opt.Devices = devices()
		s, err := Open(opt)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	return &rig{open(t), open}
}

// newPathRig makes one at paths.
func newPathRig(t testing.TB, p PathOptions) *rig {
	t.Helper()
	p.Logger = quiet()
	if _, err := Init(p); err != nil {
		t.Fatal(err)
	}
	open := func(t testing.TB) *Store {
		t.Helper()
		s, err := OpenPaths(p)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	return &rig{open(t), open}
}

// memoryDevices makes devices whose content stays, each below what wrap makes of it.
func memoryDevices(n int, size int64,
	wrap func(device.Device) device.Device) func() []device.Device {
	var list []device.Device
	for i := range n {
		name := fmt.Sprint("memory ", i)
		if wrap == nil {
			list = append(list, device.NewMemory(name, size))
		} else {
			list = append(list, wrap(devicetest.NewOverlay(name, make([]byte, size))))
		}
	}
	return func() []device.Device { return list }
}

func fileDevices(t testing.TB, n int, size int64, plain bool) func() []device.Device {
	dir := t.TempDir()
	return func() []device.Device {
		var list []device.Device
		for i := range n {
			f, err := device.OpenFile(device.FileOptions{Path: filepath.Join(dir, fmt.Sprint(i)),
				Bytes: size, Plain: plain})
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, f)
		}
		return list
	}
}

// blockDevice makes a loop device, or says why it cannot.
func blockDevice(t testing.TB, size int64) (path, reason string) {
	t.Helper()
	losetup, err := exec.LookPath("losetup")
	if err != nil || os.Getuid() != 0 {
		return "", "a block device needs root and losetup"
	}
	image := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, size); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(losetup, "--find", "--show", image).CombinedOutput()
	if err != nil {
		return "", fmt.Sprintf("no loop device here: %s", out)
	}
	path = strings.TrimSpace(string(out))
	t.Cleanup(func() { _ = exec.Command(losetup, "--detach", path).Run() })
	return path, ""
}

// engineCase is one kind of members that the engine is tested on.
type engineCase struct {
	name  string
	seeds int
	open  func(t testing.TB, bytes int64) *rig
}

func (c *engineCase) config() stripetest.Config {
	return stripetest.Config{
		Seeds:     c.seeds,
		Open:      func(t testing.TB) stripe.Engine { return c.open(t, 20<<20) },
		OpenSmall: func(t testing.TB) stripe.Engine { return c.open(t, 8<<20) },
		Reopen: func(t testing.TB, e stripe.Engine) stripe.Engine {
			t.Helper()
			return e.(*rig).reopen(t)
		},
		Crash: func(t testing.TB, e stripe.Engine) stripe.Engine {
			t.Helper()
			return e.(*rig).crash(t)
		},
	}
}

// onMemory is a case on n members in memory below a wrapper.
func onMemory(name string, n int, wrap func(device.Device) device.Device) engineCase {
	small := Options{LogBytes: 1 << 20, PendingBytes: 1 << 20, IndexBytes: 64 << 10}
	return engineCase{name, 2, func(t testing.TB, bytes int64) *rig {
		return newRig(t, small, memoryDevices(n, bytes/int64(n)+2<<20, wrap))
	}}
}

// onPaths is a case on folders, and on block devices if disks are given.
func onPaths(name string, plain bool, folders int, disks *diskShelf) engineCase {
	return engineCase{name, 1, func(t testing.TB, bytes int64) *rig {
		p := PathOptions{LogBytes: 1 << 20, PendingBytes: 1 << 20, Plain: plain,
			Bytes: bytes/int64(max(folders, 1)) + 2<<20, Force: true}
		for range folders {
			p.Paths = append(p.Paths, filepath.Join(t.TempDir(), "store"))
		}
		if disks != nil {
			p.Paths = append(p.Paths, disks.take(t, bytes))
		}
		return newPathRig(t, p)
	}}
}

// diskShelf keeps block devices for the next case: to make one takes long.
type diskShelf struct {
	all  testing.TB // whose end is the end of the devices
	mu   sync.Mutex
	free map[int64][]string // by size
}

func (d *diskShelf) take(t testing.TB, size int64) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	list := d.free[size]
	if len(list) == 0 {
		path, reason := blockDevice(d.all, size+2<<20)
		if reason != "" {
			t.Skip(reason)
		}
		list = append(list, path)
	}
	path := list[len(list)-1]
	d.free[size] = list[:len(list)-1]
	t.Cleanup(func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.free[size] = append(d.free[size], path)
	})
	return path
}

func TestEngine(t *testing.T) {
	disks := &diskShelf{all: t, free: map[int64][]string{}}
	for _, c := range []engineCase{
		onMemory("memory", 1, nil),
		onMemory("three members in memory", 3, nil),
		onMemory("a recording device", 1, func(d device.Device) device.Device {
			return devicetest.NewRecorder("recorder", d.(*devicetest.Overlay))
		}),
		onMemory("a slow device", 1, func(d device.Device) device.Device {
			var n atomic.Int64
			return &devicetest.Throttle{Device: d, Delay: func([]*device.Op) time.Duration {
				if n.Add(1)%64 == 0 {
					return 50 * time.Microsecond
				}
				return 0
			}}
		}),
		onMemory("a device that could fail", 2, func(d device.Device) device.Device {
			f := &devicetest.Fault{Device: d}
			f.Fail(func(*device.Op) error { return nil })
			return f
		}),
		onPaths("a folder", false, 1, nil),
		onPaths("two folders, plain calls", true, 2, nil),
		onPaths("a block device", false, 0, disks),
		onPaths("a folder and a block device", false, 1, disks),
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			stripetest.Run(t, c.config())
		})
	}
}
