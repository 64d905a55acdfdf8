package logstore

import (
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/stripe/device"
	"github.com/sluice-storage/sluice/stripe/stripetest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	runVictim() // does not return in a child of TestKill and TestPower
	goleak.VerifyTestMain(m)
}

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// rig is a store whose devices can be opened again.
type rig struct {
	*Store
	opt  Options
	open func() []device.Device
}

func newRig(t testing.TB, opt Options, open func() []device.Device) *rig {
	t.Helper()
	opt.Logger = quiet()
	opt.Devices = open()
	if _, err := Create(opt); err != nil {
		t.Fatal(err)
	}
	s, err := Open(opt)
	if err != nil {
		t.Fatal(err)
	}
	return &rig{s, opt, open}
}

func (r *rig) reopen(t testing.TB) *rig {
	t.Helper()
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	opt := r.opt
	opt.Devices = r.open()
	s, err := Open(opt)
	if err != nil {
		t.Fatal(err)
	}
	return &rig{s, opt, r.open}
}

// memoryDevices makes devices whose content stays.
func memoryDevices(n int, size int64) func() []device.Device {
	var list []device.Device
	for i := range n {
		list = append(list, device.NewMemory(fmt.Sprint("memory ", i), size))
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

func engine(opt Options, devices func(t testing.TB) func() []device.Device) stripetest.Config {
	return stripetest.Config{
		Open: func(t testing.TB) stripe.Engine { return newRig(t, opt, devices(t)) },
		Reopen: func(t testing.TB, e stripe.Engine) stripe.Engine {
			t.Helper()
			return e.(*rig).reopen(t)
		},
	}
}

func TestEngine(t *testing.T) {
	small := Options{LogBytes: 1 << 20, PendingBytes: 1 << 20, IndexBytes: 64 << 10}
	for _, c := range []struct {
		name    string
		opt     Options
		devices func(t testing.TB) func() []device.Device
	}{
		{"memory", small, func(testing.TB) func() []device.Device {
			return memoryDevices(1, 32<<20)
		}},
		{"three members in memory", small, func(testing.TB) func() []device.Device {
			return memoryDevices(3, 16<<20)
		}},
		{"file", Options{LogBytes: 4 << 20, PendingBytes: 2 << 20},
			func(t testing.TB) func() []device.Device { return fileDevices(t, 1, 64<<20, false) }},
		{"two files, plain calls", Options{LogBytes: 4 << 20, PendingBytes: 2 << 20},
			func(t testing.TB) func() []device.Device { return fileDevices(t, 2, 32<<20, true) }},
	} {
		t.Run(c.name, func(t *testing.T) { stripetest.Run(t, engine(c.opt, c.devices)) })
	}
}
