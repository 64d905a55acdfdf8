package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/sluice-storage/sluice/layout"
)

// partSuffix is what the name of an unfinished copy ends in with --atomic.
const partSuffix = ".sluice-part"

type copyOptions struct {
	recursive, sync, quiet, verbose, asJSON bool
	workers                                 int
	way                                     way           // on the cluster
	policy                                  layout.Policy // of new files there

	follow, noFollow              bool // symbolic links: all, none; else those named without -r
	keepMode, keepOwner, keepTime bool
	keepLinks, keepXattrs         bool
	lenient                       bool // what cannot be kept is left out: -a
	specials                      bool // fifos, sockets and devices are made
	noClobber, update, force      bool
	resume, verify, atomic, dry   bool
	sparse                        string // auto, always, never
}

// copyFailure is what could not be copied, as --json shows it.
type copyFailure struct {
	Path  string `json:"path"`
	Error string `json:"error"`
}

// planned is what --dry-run would do.
type planned struct {
	Action string `json:"action"`
	From   string `json:"from"`
	To     string `json:"to"`
}

// copySum is what was copied, as --json shows it.
type copySum struct {
	Files       int64         `json:"files"`
	Directories int64         `json:"directories"` // that were made
	Links       int64         `json:"links"`       // hard and symbolic ones
	Specials    int64         `json:"specials"`    // fifos, sockets, devices
	Skipped     int64         `json:"skipped"`     // files that were left as they are
	Resumed     int64         `json:"resumed"`     // files of which something was there
	Verified    int64         `json:"verified"`
	Bytes       int64         `json:"bytes"`      // that were written
	KeptBytes   int64         `json:"kept_bytes"` // that were compared and equal
	HoleBytes   int64         `json:"hole_bytes"` // that were left out
	Unfinished  []string      `json:"unfinished"` // destinations that are incomplete
	Failed      []copyFailure `json:"failed"`
	Interrupted bool          `json:"interrupted"`
	DryRun      bool          `json:"dry_run"`
	Plan        []planned     `json:"plan,omitempty"`
	Seconds     float64       `json:"seconds"`
}

// copier copies files, several at once. Directories are made in order by whoever walks; what must
// come after all files, second names and attributes of directories, is done by finish.
type copier struct {
	dst      tree
	opts     copyOptions
	progress progress
	tell     func(from, to string)        // each file, with -v
	complain func(path string, err error) // each failure, at once
	began    time.Time

	jobs    chan func()
	working sync.WaitGroup // the workers
	pending sync.WaitGroup // the jobs

	dirs   []laterDir        // from the top down
	links  []laterLink       //
	first  map[fileID]string // where files with several names were copied to
	inside map[fileID]bool   // directories that this copy has made: they are not copied

	mu     sync.Mutex
	sum    copySum
	failed map[string]bool // destinations
}

// fileID is which file something is, whatever its name.
type fileID struct {
	in       tree
	dev, ino uint64
}

type laterDir struct {
	src      tree
	node     node
	from, to string
	made     bool
}

type laterLink struct{ from, first, to string }

func newCopier(dst tree, opts copyOptions, p progress) *copier {
	c := &copier{dst: dst, opts: opts, progress: p, jobs: make(chan func()), began: time.Now(),
		tell: func(string, string) {}, complain: func(string, error) {},
		first: map[fileID]string{}, inside: map[fileID]bool{}, failed: map[string]bool{}}
	c.sum.Failed, c.sum.Unfinished, c.sum.DryRun = []copyFailure{}, []string{}, opts.dry
	for range opts.workers {
		c.working.Go(func() {
			for job := range c.jobs {
				job()
				c.pending.Done()
			}
		})
	}
	return c
}

// finish waits for what is under way, does what had to wait for it, and returns what was done.
func (c *copier) finish(ctx context.Context) *copySum {
	c.pending.Wait()
	close(c.jobs)
	c.working.Wait()
	for _, l := range c.links {
		if err := c.hardLink(ctx, l); err != nil {
			c.fail(l.from, err)
		}
	}
	for i := len(c.dirs) - 1; i >= 0; i-- {
		d := &c.dirs[i]
		if err := c.keepDir(ctx, d); err != nil {
			c.fail(d.from, err)
		}
	}
	c.progress.end()
	c.sum.Interrupted = ctx.Err() != nil
	c.sum.Seconds = time.Since(c.began).Seconds()
	return &c.sum
}

func (c *copier) count(fn func(s *copySum)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fn(&c.sum)
}

// fail notes what could not be copied. That somebody has interrupted is told once, by the caller.
func (c *copier) fail(from string, err error) {
	if errors.Is(err, context.Canceled) {
		return
	}
	c.count(func(s *copySum) { s.Failed = append(s.Failed, copyFailure{from, err.Error()}) })
	c.complain(from, err)
}

// copy begins to copy what lies at from to to. Failures are noted.
func (c *copier) copy(ctx context.Context, src tree, from, to string) {
	look := src.stat
	if c.opts.noFollow || c.opts.recursive && !c.opts.follow {
		look = src.lstat
	}
	n, err := look(ctx, from)
	switch {
	case err != nil:
	case n.mode.IsDir() && !c.opts.recursive:
		err = refuse(from+" is a directory", "Add -r to copy it with all it holds")
	case n.mode.IsDir() && src == c.dst && within(from, to, src == tree(hostTree{})):
		err = refuse("cannot copy "+from+" into itself, "+to, "Choose another destination")
	}
	if err != nil {
		c.fail(from, err)
		return
	}
	c.node(ctx, src, n, from, to)
}

// within tells whether to lies in from, as far as their names tell.
func within(from, to string, host bool) bool {
	if host {
		from, to = absolute(from), absolute(to)
	}
	return from == "/" || to == from || strings.HasPrefix(to, from+"/")
}

func (c *copier) node(ctx context.Context, src tree, n node, from, to string) {
	if ctx.Err() != nil {
		return
	}
	if n.mode&fs.ModeSymlink != 0 && c.opts.follow {
		to, err := src.stat(ctx, from)
		if err != nil {
			c.fail(from, err)
			return
		}
		n = to
	}
	var err error
	switch {
	case n.mode.IsDir():
		err = c.dir(ctx, src, n, from, to)
	case n.links > 1 && c.opts.keepLinks && c.seen(src, &n, from, to):
	case n.mode.IsRegular():
		c.progress.expect(n.size)
		c.pending.Add(1)
		c.jobs <- func() {
			if err := c.file(ctx, src, n, from, to); err != nil {
				c.spoiled(to, from, err)
			}
		}
	case n.mode&fs.ModeSymlink != 0:
		err = c.symlink(ctx, src, &n, from, to)
	case c.opts.specials:
		err = c.special(ctx, src, &n, from, to)
	default:
		err = refuse(from+" is neither file, directory nor symbolic link",
			"Add -a to make fifos, sockets and devices, too")
	}
	if err != nil {
		c.spoiled(to, from, err)
	}
}

// spoiled notes a destination that did not become what it should.
func (c *copier) spoiled(to, from string, err error) {
	c.mu.Lock()
	c.failed[to] = true
	c.mu.Unlock()
	c.fail(from, err)
}

// seen tells whether a file was copied already under another name: then this one becomes a link.
func (c *copier) seen(src tree, n *node, from, to string) bool {
	id := fileID{src, n.dev, n.ino}
	first, ok := c.first[id]
	if !ok {
		c.first[id] = to
		return false
	}
	c.links = append(c.links, laterLink{from, first, to})
	return true
}

func (c *copier) hardLink(ctx context.Context, l laterLink) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case c.opts.dry:
		c.plan("link", l.from, l.to)
		return nil
	case c.failed[l.first]:
		return fmt.Errorf("its other name %s was not copied", l.first)
	}
	if there, err := c.dst.lstat(ctx, l.to); err == nil {
		if first, err := c.dst.lstat(ctx, l.first); err == nil && first.ino == there.ino &&
			first.dev == there.dev {
			return nil
		}
	}
	err := c.replacing(ctx, l.to, func() error { return c.dst.link(ctx, l.first, l.to) })
	if err == nil {
		c.count(func(s *copySum) { s.Links++ })
		c.tell(l.from, l.to)
	}
	return err
}

// replacing makes a name, and if it is taken, by anything but a directory, takes that away first.
func (c *copier) replacing(ctx context.Context, to string, make func() error) error {
	err := make()
	if !errors.Is(err, os.ErrExist) {
		return err
	}
	if c.opts.noClobber {
		c.count(func(s *copySum) { s.Skipped++ })
		return nil
	}
	if rerr := c.dst.remove(ctx, to); rerr != nil {
		return rerr
	}
	return make()
}

func (c *copier) symlink(ctx context.Context, src tree, n *node, from, to string) error {
	target, err := src.readlink(ctx, from)
	if err != nil {
		return err
	}
	if c.opts.dry {
		c.plan("symlink", from, to)
		return nil
	}
	there, err := c.dst.readlink(ctx, to)
	if err != nil || there != target {
		err = c.replacing(ctx, to, func() error { return c.dst.symlink(ctx, target, to) })
	}
	if err == nil {
		err = c.keepAll(ctx, src, n, from, to)
	}
	if err == nil {
		c.count(func(s *copySum) { s.Links++ })
		c.tell(from, to)
	}
	return err
}

func (c *copier) special(ctx context.Context, src tree, n *node, from, to string) error {
	if c.opts.dry {
		c.plan("mknod", from, to)
		return nil
	}
	err := c.replacing(ctx, to, func() error { return c.dst.mknod(ctx, to, n) })
	if err == nil {
		err = c.keepAll(ctx, src, n, from, to)
	}
	if err == nil {
		c.count(func(s *copySum) { s.Specials++ })
		c.tell(from, to)
	}
	return err
}

func (c *copier) dir(ctx context.Context, src tree, n node, from, to string) error {
	if c.inside[fileID{src, n.dev, n.ino}] {
		return refuse(from+" is the copy itself", "Choose a destination outside of the source")
	}
	made, err := c.makeDir(ctx, from, to, n.mode.Perm()|0o700)
	if err != nil {
		return err
	}
	entries, err := src.list(ctx, from)
	if err != nil {
		return err
	}
	c.dirs = append(c.dirs, laterDir{src: src, node: n, from: from, to: to, made: made})
	for _, e := range entries {
		c.node(ctx, src, e, path.Join(from, e.name), path.Join(to, e.name))
	}
	return nil
}

// makeDir makes a directory; one that is there is fine.
func (c *copier) makeDir(ctx context.Context, from, to string, perm fs.FileMode) (bool, error) {
	there, err := c.dst.stat(ctx, to)
	switch {
	case err == nil && there.mode.IsDir():
		return false, nil
	case err == nil:
		return false, refuse(to+" is no directory, and "+from+" is one",
			"Remove it first, or choose another destination")
	case !errors.Is(err, os.ErrNotExist):
		return false, err
	}
	if c.opts.dry {
		c.plan("mkdir", from, to)
		return true, nil
	}
	if err := c.dst.mkdir(ctx, to, perm); err != nil {
		return false, err
	}
	c.count(func(s *copySum) { s.Directories++ })
	c.tell(from, to)
	if n, err := c.dst.lstat(ctx, to); err == nil {
		c.inside[fileID{c.dst, n.dev, n.ino}] = true
	}
	return true, nil
}

func (c *copier) plan(action, from, to string) {
	c.count(func(s *copySum) { s.Plan = append(s.Plan, planned{action, from, to}) })
}
