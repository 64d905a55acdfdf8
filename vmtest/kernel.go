package vmtest

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/sluice-storage/sluice/errs"
)

// The cache folder:
//
//	lock              held while something below is made
//	kernel/           the unpacked package, renamed into place when it is complete
//	kernel/boot/vmlinuz-VERSION
//	kernel/boot/vmlinux   the same, unpacked
//	kernel/lib/modules/VERSION/
//	initrd-HASH       named by what went into it
type kernel struct {
	image   string // boot/vmlinux, or boot/vmlinuz-VERSION where that cannot be made
	root    string // the unpacked package
	modules string // lib/modules in it
	version string // as uname -r will say it in the guest
}

// prepareKernel downloads the kernel package unless it is in the cache. The caller holds the lock.
// A newer kernel is not looked for: tests stay comparable until somebody empties the cache.
func prepareKernel(ctx context.Context, cache string) (kernel, error) {
	root := filepath.Join(cache, "kernel")
	if _, err := os.Stat(root); err == nil {
		return finishKernel(ctx, root)
	}
	if err := lookAll(packageTools()); err != nil {
		return kernel{}, err
	}
	if err := removeAll(filepath.Join(cache, "unpack-*")); err != nil { // of those who were killed
		return kernel{}, err
	}
	work, err := os.MkdirTemp(cache, "unpack-")
	if err != nil {
		return kernel{}, errs.Wrap("vmtest.kernel", cache, err)
	}
	defer os.RemoveAll(work)
	tree, err := unpackKernel(ctx, work)
	if err != nil {
		return kernel{}, err
	}
	k, err := openKernel(tree)
	if err != nil {
		return kernel{}, err
	}
	if _, err := output(ctx, "", "depmod", "-b", tree, k.version); err != nil {
		return kernel{}, err
	}
	if err := os.Rename(tree, root); err != nil {
		return kernel{}, errs.Wrap("vmtest.kernel", root, err)
	}
	return finishKernel(ctx, root)
}

// finishKernel makes the kernel quick to boot. It may be done again, and goes on where it was left.
func finishKernel(ctx context.Context, root string) (kernel, error) {
	k, err := openKernel(root)
	if err != nil {
		return kernel{}, err
	}
	unpacked := filepath.Join(root, "boot", "vmlinux")
	if _, err := os.Stat(unpacked); err == nil {
		k.image = unpacked
		return k, nil
	}
	if err := stripModules(filepath.Join(k.modules, k.version)); err != nil {
		return kernel{}, err
	}
	k.image, err = unpackImage(ctx, k.image, unpacked)
	return k, err
}

func removeAll(pattern string) error {
	old, err := filepath.Glob(pattern)
	if err != nil {
		return errs.New(errs.Invalid, "vmtest", pattern, err)
	}
	for _, path := range old {
		if err := os.RemoveAll(path); err != nil {
			return errs.Wrap("vmtest", path, err)
		}
	}
	return nil
}

// unpackKernel has the package manager download the kernel that Debian's meta package stands for,
// which needs no root. A machine without a network, or without Debian's lists, cannot do it; that
// is Unsupported, not a failure of the lab.
func unpackKernel(ctx context.Context, work string) (tree string, err error) {
	lines, err := output(ctx, work, "apt-cache", "depends", "linux-image-amd64")
	if err != nil {
		return "", errs.New(errs.Unsupported, "vmtest.kernel", "", err)
	}
	name := kernelPackage(lines)
	if name == "" {
		return "", errs.Newf(errs.Unsupported, "vmtest.kernel", "linux-image-amd64",
			"the package lists name no kernel: apt-get update")
	}
	if _, err := output(ctx, work, "apt-get", "download", "-q", name); err != nil {
		return "", errs.New(errs.Unsupported, "vmtest.kernel", name, err)
	}
	debs, err := filepath.Glob(filepath.Join(work, "*.deb"))
	if err != nil || len(debs) != 1 {
		return "", errs.Newf(errs.IO, "vmtest.kernel", name, "downloaded %d packages", len(debs))
	}
	tree = filepath.Join(work, "tree")
	if _, err := output(ctx, work, "dpkg", "-x", debs[0], tree); err != nil {
		return "", err
	}
	// Later releases put modules below usr/lib, where the tools find them through /lib only.
	lib, usr := filepath.Join(tree, "lib"), filepath.Join(tree, "usr", "lib", "modules")
	if _, err := os.Stat(usr); err == nil {
		if err := os.Symlink("usr/lib", lib); err != nil && !os.IsExist(err) {
			return "", errs.Wrap("vmtest.kernel", lib, err)
		}
	}
	return tree, nil
}

// kernelPackage finds "  Depends: linux-image-VERSION" in what apt-cache prints.
func kernelPackage(lines []byte) string {
	for line := range bytes.Lines(lines) {
		fields := strings.Fields(string(line))
		if len(fields) == 2 && fields[0] == "Depends:" &&
			strings.HasPrefix(fields[1], "linux-image-") {
			return fields[1]
		}
	}
	return ""
}

func openKernel(root string) (kernel, error) {
	images, err := filepath.Glob(filepath.Join(root, "boot", "vmlinuz-*"))
	if err != nil || len(images) != 1 {
		return kernel{}, errs.Newf(errs.Corrupt, "vmtest.kernel", root,
			"%d kernels in it, not one: remove the folder", len(images))
	}
	return kernel{
		image:   images[0],
		root:    root,
		modules: filepath.Join(root, "lib", "modules"),
		version: strings.TrimPrefix(filepath.Base(images[0]), "vmlinuz-"),
	}, nil
}
