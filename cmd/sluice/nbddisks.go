package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/nbd"
	"github.com/sluice-storage/sluice/nbd/diskexport"
	"github.com/sluice-storage/sluice/relay"
	"github.com/sluice-storage/sluice/unifier"
)

// Exports of files, disks and members: what their keys mean, and what they stand on.

// onDisk tells whether the export is a file, a disk or a set of them.
func (s *exportSpec) onDisk() bool {
	return s.source == "file" || s.source == "disk" || s.source == "members"
}

func (s *exportSpec) setPath(v string) error {
	s.disk.Paths = []string{v}
	return nil
}

// setMembers reads a list. A colon in a path is written twice.
func (s *exportSpec) setMembers(v string) error {
	if s.disk.Paths = splitDoubled(v, ":"); len(s.disk.Paths) < 2 {
		return fmt.Errorf("members=%s is one path; name several, with colons between them", v)
	}
	return nil
}

func (s *exportSpec) setUnit(v string) (err error) {
	s.disk.Unit, err = parseSize(v)
	return err
}

func (s *exportSpec) setInit(v string) (err error) {
	s.disk.Init, err = parseSize(v)
	return err
}

func (s *exportSpec) setStreams(v string) error {
	for _, way := range []relay.Streams{relay.Plain, relay.Single, relay.Multiple} {
		if way.String() == v {
			s.disk.Streams = way
			return nil
		}
	}
	return fmt.Errorf("streams=%s: choose of plain, single, multiple", v)
}

// settleDisk checks what keys of a disk mean together.
func (s *exportSpec) settleDisk() (err error) {
	if s.mode != "" {
		if s.disk.Mode, err = diskexport.ParseMode(s.mode); err != nil {
			return fmt.Errorf("mode=%s: choose of %s", s.mode, strings.Join(diskexport.Modes(), ", "))
		}
	}
	s.disk.ReadOnly = s.readOnly
	switch {
	case s.source != "members" && (s.disk.Unit != 0 || s.disk.Init != 0):
		return fmt.Errorf("unit and init are of members")
	case s.disk.Unit != 0 && s.disk.Init != 0:
		return fmt.Errorf("unit and init: give one of them")
	case s.disk.Init != 0 && s.readOnly:
		return fmt.Errorf("init writes to the members, which ro forbids")
	case s.disk.Streams != 0 && s.disk.Mode != diskexport.Direct &&
		s.disk.Mode != diskexport.CachedWrites:
		return fmt.Errorf("streams are of modes that read directly: direct and cached-writes")
	}
	return nil
}

// openDisk opens an export, with advice where somebody else has the disk.
func openDisk(ctx context.Context, h *diskexport.Host, s diskexport.Spec) (nbd.Export, error) {
	e, err := h.Open(ctx, s)
	switch {
	case err == nil:
		return e, nil
	case errs.KindOf(err) == errs.Busy && !s.ReadOnly:
		return nil, hint(err, "Stop who has it, or write ro where that one only reads")
	case errs.KindOf(err) == errs.Corrupt && len(s.Paths) > 1 && s.Init == 0:
		return nil, hint(err, "Write init=64K to make a set of blank members, or unit=SIZE if they "+
			"hold nothing but data")
	}
	return nil, err
}

// newDisks makes what files, disks and members stand on.
func newDisks(cache string) (*diskexport.Host, error) {
	bytes, err := parseSize(cache)
	if err != nil || bytes < diskCacheLeast {
		return nil, refuse(fmt.Sprintf("--cache %s is no size of at least 8M", cache),
			"Write a size like 256M")
	}
	return diskexport.New(diskexport.Options{Cache: boundDisks(bytes)}), nil
}

// planDisks tells which exports there are, so that each disk is opened for all of them.
func planDisks(h *diskexport.Host, specs []exportSpec) {
	var disks []diskexport.Spec
	for i := range specs {
		if specs[i].onDisk() {
			disks = append(disks, specs[i].disk)
		}
	}
	h.Plan(disks...)
}

func closeDisks(h *diskexport.Host, log *slog.Logger) {
	if err := h.Close(); err != nil {
		log.Error("the cache of disks did not close", "err", err)
	}
}

// The memory of cached and direct exports together: what it usually is, and what a few requests
// need.
const (
	diskCacheUsual = 256 * usualRequest
	diskCacheLeast = 8 << 20
)

// boundDisks divides it: an eighth for direct reads, an eighth for writes that are not on disk. It
// is taken when the first such export is opened.
func boundDisks(bytes int64) unifier.Config {
	return unifier.Config{MemoryBytes: bytes, DirtyBytes: bytes / 8}
}
