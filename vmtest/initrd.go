package vmtest

import (
	"context"
	"crypto/sha256"
	"debug/elf"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sluice-storage/sluice/errs"
)

//go:embed init.sh
var initScript []byte

// bootModules are what it takes to reach the host's root file system and the agent's port, and to
// see the wires. Everything else is loaded with modprobe once the guest is up.
func bootModules() []string {
	return []string{"virtio_pci", "virtio_console", "virtio_rng", "virtio_net", "9pnet_virtio",
		"9p", "overlay"}
}

// agentPackage is built for the guest.
const agentPackage = "github.com/sluice-storage/sluice/vmtest/agent"

// initrdKeep is how long an initrd that was replaced stays, for those who start guests with it
// right now.
const initrdKeep = time.Hour

// prepareInitrd makes the initrd unless the same one is there. The caller holds the lock.
func prepareInitrd(ctx context.Context, cache string, k kernel) (string, error) {
	var a archive
	for _, dir := range []string{"bin", "proc", "sys", "dev", "modules"} {
		a.folder(dir)
	}
	a.char("dev/console", 5, 1)
	a.file("init", 0o755, initScript)
	busybox, err := staticBusybox()
	if err != nil {
		return "", err
	}
	agent, err := buildAgent(ctx, cache)
	if err != nil {
		return "", err
	}
	files, err := moduleFiles(ctx, k)
	if err != nil {
		return "", err
	}
	if err := addFile(&a, "bin/busybox", busybox); err != nil {
		return "", err
	}
	if err := addFile(&a, "agent", agent); err != nil {
		return "", err
	}
	for i, file := range files { // numbered, because they are loaded in this order
		name := fmt.Sprintf("modules/%03d-%s", i, filepath.Base(file))
		if err := addFile(&a, name, file); err != nil {
			return "", err
		}
	}
	return keepInitrd(cache, a.end())
}

// staticBusybox finds busybox. One that needs libraries would not run: there are none so early.
func staticBusybox() (string, error) {
	path, err := lookPath("busybox")
	if err != nil {
		return "", err
	}
	f, err := elf.Open(path)
	if err != nil {
		return "", errs.New(errs.Unsupported, "vmtest.initrd", path, err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return "", errs.Newf(errs.Unsupported, "vmtest.initrd", path,
				"it is not linked statically (Debian: package busybox-static)")
		}
	}
	return path, nil
}

func addFile(a *archive, name, path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return errs.Wrap("vmtest.initrd", path, err)
	}
	a.file(name, 0o755, data)
	return nil
}

// keepInitrd writes the archive under the name that its content gives it, and removes old ones.
func keepInitrd(cache string, data []byte) (string, error) {
	path := filepath.Join(cache, fmt.Sprintf("initrd-%x", sha256.Sum256(data))[:len("initrd-")+16])
	now := time.Now()
	if err := os.Chtimes(path, now, now); err != nil {
		temp := filepath.Join(cache, "initrd.part")
		if err := os.WriteFile(temp, data, 0o644); err != nil {
			return "", errs.Wrap("vmtest.initrd", temp, err)
		}
		if err := os.Rename(temp, path); err != nil {
			return "", errs.Wrap("vmtest.initrd", path, err)
		}
	}
	all, err := filepath.Glob(filepath.Join(cache, "initrd-*"))
	if err != nil {
		return "", errs.Wrap("vmtest.initrd", cache, err)
	}
	for _, other := range all {
		if info, err := os.Stat(other); err == nil && now.Sub(info.ModTime()) > initrdKeep {
			_ = os.Remove(other) // it is only in the way
		}
	}
	return path, nil
}

// buildAgent builds the guest's end of the channel from the same tree as the test, statically. The
// build cache makes this quick, and no guest of a test ever runs an agent that is older than its
// host. Where the current folder is in no such tree, the agent of the last time is good enough: it
// tells its version.
func buildAgent(ctx context.Context, cache string) (string, error) {
	path := filepath.Join(cache, "agent")
	if _, outside := output(ctx, "", "go", "list", "-find", agentPackage); outside != nil {
		if _, err := os.Stat(path); err == nil && ctx.Err() == nil {
			return path, nil
		}
		return "", errs.Newf(errs.Invalid, "vmtest.initrd", "agent",
			"run this in a folder of its source tree, for the first time at least: %w", outside)
	}
	_, err := output(ctx, "", "go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w",
		"-o", path, agentPackage)
	return path, err
}

// moduleFiles finds the files of bootModules and of what they need, in loading order.
func moduleFiles(ctx context.Context, k kernel) ([]string, error) {
	var files []string
	seen := map[string]bool{}
	for _, module := range bootModules() {
		lines, err := output(ctx, "", "modprobe", "-d", k.root, "-S", k.version,
			"--show-depends", module)
		if err != nil {
			return nil, err
		}
		for _, file := range insmodFiles(string(lines)) {
			if !seen[file] {
				seen[file] = true
				files = append(files, file)
			}
		}
	}
	return files, nil
}

// insmodFiles reads lines like "insmod PATH" and passes over "builtin NAME".
func insmodFiles(lines string) []string {
	var files []string
	for line := range strings.Lines(lines) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "insmod" {
			files = append(files, fields[1])
		}
	}
	return files
}
