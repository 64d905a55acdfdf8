package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/layout"
)

// file copies one file.
func (c *copier) file(ctx context.Context, src tree, n node, from, to string) error {
	there, err := c.dst.stat(ctx, to)
	isThere := err == nil
	switch {
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return err
	case isThere && there.mode.IsDir():
		return refuse(to+" is a directory, and "+from+" is none",
			"Remove it first, or choose another destination")
	case isThere && src == c.dst && there.ino == n.ino && there.dev == n.dev:
		return refuse(from+" and "+to+" are the same file", "Choose another destination")
	case isThere && c.leaves(&n, &there):
		c.count(func(s *copySum) { s.Skipped++ })
		c.progress.add(n.size)
		return nil
	case c.opts.dry:
		c.plan("copy", from, to)
		c.progress.add(n.size)
		return nil
	}
	target := to
	if c.opts.atomic {
		target = path.Join(path.Dir(to), "."+path.Base(to)+partSuffix)
	}
	if err := c.contents(ctx, src, &n, from, target); err != nil {
		if c.begun(ctx, target) {
			c.count(func(s *copySum) { s.Unfinished = append(s.Unfinished, target) })
		}
		return err
	}
	if target != to {
		if err := c.dst.rename(ctx, target, to); err != nil {
			return err
		}
	}
	c.count(func(s *copySum) { s.Files++ })
	c.tell(from, to)
	return nil
}

// begun tells whether there is something at a destination after a failure.
func (c *copier) begun(ctx context.Context, target string) bool {
	_, err := c.dst.lstat(context.WithoutCancel(ctx), target)
	return err == nil
}

// leaves tells whether what is at the destination stays as it is.
func (c *copier) leaves(n, there *node) bool {
	switch {
	case c.opts.noClobber:
		return true
	case c.opts.update && !n.mtime.After(there.mtime):
		return true
	}
	return c.opts.resume && there.size == n.size && there.mtime.Equal(n.mtime)
}

// contents copies data and attributes to target, and verifies them.
func (c *copier) contents(ctx context.Context, src tree, n *node, from, target string) error {
	in, err := src.open(ctx, from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := c.create(ctx, target, n.mode.Perm())
	if err != nil {
		return err
	}
	c.keepLayout(ctx, src, from, target)
	t := &transfer{in: in, out: out, size: n.size, sparse: c.opts.sparse, sum: c.opts.verify,
		moved: c.progress.add}
	if c.opts.resume {
		t.keep, err = out.length()
	}
	if err == nil {
		err = t.run(ctx)
	}
	if err == nil && (c.opts.sync || c.opts.verify) {
		err = out.Sync()
	}
	err = errors.Join(err, out.Close())
	if err == nil {
		err = c.keepAll(ctx, src, n, from, target)
	}
	if err == nil && c.opts.verify {
		err = c.verify(ctx, t, target)
	}
	c.count(func(s *copySum) {
		s.Bytes += t.written.Load()
		s.KeptBytes += t.kept.Load()
		s.HoleBytes += t.holes.Load()
		if t.kept.Load() > 0 {
			s.Resumed++
		}
	})
	return err
}

// keepLayout has a copy on a cluster striped as its original, before anything is written to it.
// Where that cannot be done it is noted with the other attributes later.
func (c *copier) keepLayout(ctx context.Context, src tree, from, target string) {
	if _, ok := c.dst.(clusterTree); !ok || !c.opts.keepXattrs || !c.opts.policy.IsZero() {
		return
	}
	all, _ := src.xattrs(ctx, from)
	for _, x := range all {
		if x.Name == layout.AttrAll {
			_ = c.dst.setXattr(ctx, target, x)
		}
	}
}

// create opens the destination. With -f one that cannot be opened is taken away.
func (c *copier) create(ctx context.Context, target string, perm fs.FileMode) (sink, error) {
	if c.opts.keepOwner && c.opts.keepMode {
		perm &= 0o700 // nobody else may look before it is the right one's
	}
	out, err := c.dst.create(ctx, target, perm, c.opts.resume)
	if err == nil || !c.opts.force || errors.Is(err, os.ErrNotExist) {
		return out, err
	}
	if rerr := c.dst.remove(ctx, target); rerr != nil {
		return nil, err
	}
	return c.dst.create(ctx, target, perm, c.opts.resume)
}

func (c *copier) verify(ctx context.Context, t *transfer, target string) error {
	back, err := c.dst.reopen(ctx, target)
	if err != nil {
		return err
	}
	defer back.Close()
	if err := t.verify(ctx, back); err != nil {
		return fmt.Errorf("verifying %s: %w", target, err)
	}
	c.count(func(s *copySum) { s.Verified++ })
	return nil
}

// keepDir gives a directory its attributes, after all that is in it.
func (c *copier) keepDir(ctx context.Context, d *laterDir) error {
	if c.opts.dry || ctx.Err() != nil {
		return nil
	}
	if err := c.keepAll(ctx, d.src, &d.node, d.from, d.to); err != nil {
		return err
	}
	if perm := d.node.mode.Perm() &^ umask(); d.made && !c.opts.keepMode && perm&0o700 != 0o700 {
		return c.dst.chmod(ctx, d.to, perm) // it was made writable to be filled
	}
	return nil
}

// keepAll gives a copy the attributes of the original that are asked for. Times come last: all else
// would change them.
func (c *copier) keepAll(ctx context.Context, src tree, n *node, from, to string) error {
	if c.opts.keepXattrs {
		if err := c.keepXattrs(ctx, src, from, to); err != nil {
			return err
		}
	}
	mode := n.mode & (fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky)
	if c.opts.keepOwner {
		err := c.dst.chown(ctx, to, n.uid, n.gid)
		if notMine(err) { // as with cp(1), only root keeps owners; but then not their privileges
			err, mode = nil, mode&^(fs.ModeSetuid|fs.ModeSetgid)
		}
		if err != nil {
			return err
		}
	}
	if c.opts.keepMode && n.mode&fs.ModeSymlink == 0 {
		if err := c.dst.chmod(ctx, to, mode); err != nil {
			return err
		}
	}
	if c.opts.keepTime {
		return c.dst.chtimes(ctx, to, n.atime, n.mtime)
	}
	return nil
}

// notMine tells whether something is refused because only its owner, or root, may do it.
func notMine(err error) bool {
	return os.Geteuid() != 0 && (errors.Is(err, fs.ErrPermission) || errs.KindOf(err) == errs.Perm)
}

// keepXattrs copies extended attributes. With -a those that the other side does not take are left
// out.
func (c *copier) keepXattrs(ctx context.Context, src tree, from, to string) error {
	all, err := src.xattrs(ctx, from)
	if err != nil {
		return err
	}
	for _, x := range all {
		if x.Name == "security.selinux" { // the label of a place, not of what lies there
			continue
		}
		if x.Name == layout.AttrAll && !c.opts.policy.IsZero() { // the command says something else
			continue
		}
		err := c.dst.setXattr(ctx, to, x)
		if err != nil && !(c.opts.lenient && unwanted(err)) {
			return fmt.Errorf("%s: %w", x.Name, err)
		}
	}
	return nil
}

// unwanted tells whether a file system does not have such an attribute, or not for this user.
func unwanted(err error) bool {
	switch errs.KindOf(err) {
	case errs.Unsupported, errs.Perm, errs.Access, errs.Invalid:
		return true
	}
	return errors.Is(err, unix.ENOTSUP) || errors.Is(err, fs.ErrPermission)
}
