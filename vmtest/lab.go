// Package vmtest is a lab of virtual machines for tests that need a real kernel with what the host
// lacks: RDMA over Soft-RoCE, block devices, modules, a host that dies, a cable that is pulled.
// Guests run a stock Debian kernel under QEMU's software emulation, so that neither hardware
// virtualization nor a prepared image is needed: the host's own root file system, read-only with a
// RAM overlay on top, is the guest's. A program built on the host runs in the guest as it is.
//
//	lab := vmtest.Need(t)                                // skips where no guest can run
//	wire := lab.NewWire(vmtest.WireOptions{})
//	a := lab.StartFor(t, vmtest.GuestConfig{Name: "a", Wires: []*vmtest.Wire{wire}})
//	res, err := a.Run(ctx, "ip -br addr")                // as many commands as you like
//	wire.Cut(ctx); wire.Mend(ctx); a.Kill()
//
// Everything has a time limit, guests end with the process that started them, and no port of the
// host is used. Emulation is for function and ratios; absolute speed in a guest says nothing.
//
// Read guest.go first (a guest's life), then run.go (commands) and wire.go (networks); lab.go,
// kernel.go and initrd.go prepare what guests boot from; docs/ops/vmlab.md is for people.
package vmtest

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/sluice-storage/sluice/errs"
)

// Options say how the lab is set up.
type Options struct {
	// Cache is the folder for the kernel and the initrd, which are made once and kept; several
	// processes may share it. It takes about 500 MB. Default: $SLUICE_VMTEST_CACHE, or else
	// sluice-vmtest in the user's cache folder.
	Cache string

	// PrepareLimit bounds download, unpacking and building together. Default 10 minutes.
	PrepareLimit time.Duration
}

func (o Options) withDefaults() (Options, error) {
	if o.Cache == "" {
		o.Cache = os.Getenv("SLUICE_VMTEST_CACHE")
	}
	if o.Cache == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return o, errs.New(errs.Invalid, "vmtest.Open", "", err)
		}
		o.Cache = filepath.Join(user, "sluice-vmtest")
	}
	if o.PrepareLimit == 0 {
		o.PrepareLimit = 10 * time.Minute
	}
	return o, nil
}

func (o Options) validate() error {
	if !filepath.IsAbs(o.Cache) {
		return errs.Newf(errs.Invalid, "vmtest.Open", o.Cache, "the cache folder is not absolute")
	}
	if strings.ContainsAny(o.Cache, " \t\n\"") { // it travels on the kernel's command line
		return errs.Newf(errs.Invalid, "vmtest.Open", o.Cache, "the cache folder's name has spaces")
	}
	if o.PrepareLimit < 0 {
		return errs.Newf(errs.Invalid, "vmtest.Open", "", "PrepareLimit is negative")
	}
	return nil
}

// Lab is what guests boot from. It holds no process and needs no Close; it is safe for concurrent
// use.
type Lab struct {
	kernel  string // the bzImage
	initrd  string
	modules string // the folder that the guest sees as /lib/modules
	wires   atomic.Int32
}

// Open prepares the lab, or finds it prepared. An error of kind errs.Unsupported says that this
// machine lacks something; Need turns it into a skipped test.
func Open(ctx context.Context, o Options) (*Lab, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := o.validate(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, o.PrepareLimit)
	defer cancel()
	if err := checkTools(ctx); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(o.Cache, 0o755); err != nil {
		return nil, errs.Wrap("vmtest.Open", o.Cache, err)
	}
	sweep(os.TempDir(), scratchAge)
	unlock, err := lockFolder(ctx, o.Cache)
	if err != nil {
		return nil, err
	}
	defer unlock()
	k, err := prepareKernel(ctx, o.Cache)
	if err != nil {
		return nil, err
	}
	initrd, err := prepareInitrd(ctx, o.Cache, k)
	if err != nil {
		return nil, err
	}
	return &Lab{kernel: k.image, initrd: initrd, modules: k.modules}, nil
}

// lockFolder keeps other processes from preparing the same folder. The kernel lets go of the lock
// when the process ends, however it ends.
func lockFolder(ctx context.Context, dir string) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, errs.Wrap("vmtest.lock", dir, err)
	}
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if err != syscall.EWOULDBLOCK && err != syscall.EINTR {
			f.Close()
			return nil, errs.Wrap("vmtest.lock", dir, err)
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, errs.Wrap("vmtest.lock", dir, ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}
