package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/exio"
	"github.com/sluice-storage/sluice/meta"
	xfer "github.com/sluice-storage/sluice/transfer"
)

// transferEnd is a source or a destination as the user wrote it.
type transferEnd struct {
	text    string
	service string // HOST:PORT; empty: here
	cluster bool
	memory  bool
	size    int64 // of memory; -1: not told
	path    string
}

// parseEnd reads one.
func parseEnd(text string) (e transferEnd, err error) {
	e = transferEnd{text: text, size: -1, path: text}
	if strings.HasPrefix(text, scheme) {
		e.cluster = true
		return e, nil
	}
	for _, mark := range []string{":/", ":mem:"} {
		at, rest, ok := strings.Cut(text, mark)
		_, port, _ := cutLast(at, ":")
		if _, err := strconv.ParseUint(port, 10, 16); !ok || err != nil {
			continue
		}
		e.service, e.path = at, strings.TrimPrefix(mark, ":")+rest
		break
	}
	if rest, ok := strings.CutPrefix(e.path, "mem:"); ok {
		e.memory, e.path = true, ""
		if rest != "" {
			if e.size, err = parseSize(rest); err != nil {
				return e, err
			}
		}
	}
	switch {
	case e.memory:
	case text == "":
		return e, refuse("a name is empty", "See: sluice help transfer")
	case strings.HasSuffix(e.path, "/"):
		return e, refuse(text+" is no file", "Name the file, not its folder")
	case e.service == "" && endsInPort(text):
		return e, refuse(text+" names no file at that service",
			"Write HOST:PORT:/PATH, with a port up to 65535; for a file of this host of that name ./"+text)
	}
	return e, nil
}

// endsInPort tells whether a name looks like a service whose path was forgotten, or is wrong.
func endsInPort(text string) bool {
	host, port, ok := cutLast(strings.TrimSuffix(text, ":"), ":")
	if at, rest, found := strings.Cut(text, ":/"); found && rest != "" {
		host, port, ok = cutLast(at, ":")
	}
	return ok && host != "" && !strings.Contains(host, "/") && port != "" &&
		strings.Trim(port, "0123456789") == ""
}

func cutLast(s, sep string) (before, after string, ok bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// parsePieces reads NxSIZE@STRIDE.
func parsePieces(text string) (s xfer.Shape, err error) {
	bad := refuse("--pieces "+text, fmt.Sprintf("Write NxSIZE@STRIDE, like 16x64K@1M: at most %d "+
		"pieces and 16M in all, STRIDE at least SIZE", exio.MaxPieces))
	count, rest, ok := strings.Cut(text, "x")
	size, stride, apart := strings.Cut(rest, "@")
	if !apart {
		stride = size
	}
	n, err := strconv.Atoi(count)
	if !ok || err != nil {
		return s, bad
	}
	bytes, err := parseSize(size)
	if err != nil {
		return s, bad
	}
	step, err := parseSize(stride)
	if err != nil || bytes > xfer.BlockMax || step > 1<<30 {
		return s, bad
	}
	s = xfer.Shape{Count: n, Bytes: int(bytes), Stride: int(step)}
	if s == (xfer.Shape{}) || s.Check() != nil {
		return s, bad
	}
	return s, nil
}

// transferStore is where an end that is here has its file, and its name there. done is called when
// the transfer is over.
func (f *transferFlags) transferStore(ctx context.Context, e *transferEnd) (
	store xfer.Store, name string, done func(), err error) {

	if !e.cluster {
		abs, err := filepath.Abs(e.path)
		if err != nil {
			return nil, "", nil, err
		}
		folder, err := xfer.OpenFolder(filepath.Dir(abs))
		if err != nil {
			return nil, "", nil, err
		}
		return folder, filepath.Base(abs), func() { _ = folder.Close() }, nil
	}
	p, err := f.parse(e.text)
	if err != nil {
		return nil, "", nil, err
	}
	conn, err := dialBy(ctx, p.base, &f.by, client.Options{WaitMax: toolMax})
	if err != nil {
		return nil, "", nil, err
	}
	return clusterStore{conn.fs}, p.path, conn.close, nil
}

// clusterStore is a cluster as a transfer sees it.
type clusterStore struct{ fs *client.FS }

type clusterOriginal struct {
	*clusterFile
	size int64
	mode os.FileMode
}

func (o clusterOriginal) Size() int64       { return o.size }
func (o clusterOriginal) Mode() os.FileMode { return o.mode }

// Open implements xfer.Store.
func (s clusterStore) Open(ctx context.Context, name string) (xfer.Original, error) {
	a, err := s.fs.Stat(ctx, name)
	if err == nil && a.Type != meta.Regular {
		err = errs.Newf(errs.Invalid, "transfer", name, "it is no regular file")
	}
	if err != nil {
		return nil, err
	}
	f, err := s.fs.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	return clusterOriginal{newClusterFile(ctx, f), f.Size(), client.FileMode(&a).Perm()}, nil
}

// clusterCopy is a copy on its way into a cluster.
type clusterCopy struct {
	*clusterFile
	fs       *client.FS
	at, part string
	how      xfer.Creation
	found    int64
}

// Create implements xfer.Store.
func (s clusterStore) Create(ctx context.Context, name string, how xfer.Creation) (
	xfer.Copy, error) {

	a, err := s.fs.Lstat(ctx, name)
	switch {
	case err == nil && a.Type == meta.Directory:
		return nil, errs.New(errs.IsDir, "transfer", name, nil)
	case err == nil && !how.Overwrite:
		return nil, errs.Newf(errs.Exists, "transfer", name, "it is there already")
	case err != nil && errs.KindOf(err) != errs.NotFound:
		return nil, err
	}
	part := path.Join(path.Dir(name), "."+path.Base(name)+xfer.PartSuffix)
	flags := os.O_CREATE | os.O_RDWR
	if how.Restart {
		flags |= os.O_TRUNC
	}
	f, err := s.fs.OpenFile(ctx, part, flags, 0o600)
	if err != nil {
		return nil, hintMissingParent(err)
	}
	c := &clusterCopy{newClusterFile(ctx, f), s.fs, name, part, how, min(f.Size(), how.Size)}
	if f.Size() > how.Size {
		if err := f.Truncate(ctx, how.Size); err != nil {
			return nil, errors.Join(err, c.Close())
		}
	}
	return c, nil
}

// Found implements xfer.Copy.
func (c *clusterCopy) Found() int64 { return c.found }

// Complete implements xfer.Copy.
func (c *clusterCopy) Complete(ctx context.Context, check func(io.ReaderAt) error) error {
	if c.f.Size() != c.how.Size {
		if err := c.f.Truncate(ctx, c.how.Size); err != nil {
			return err
		}
	}
	if err := c.f.Sync(ctx); err != nil {
		return err
	}
	if check != nil {
		c.f.SetHow(client.How{Mode: client.Direct})
		if err := check(c.clusterFile); err != nil {
			return err
		}
	}
	if err := c.fs.Chmod(ctx, c.part, c.how.Mode|0o400); err != nil {
		return err
	}
	if c.how.Overwrite {
		return c.fs.Rename(ctx, c.part, c.at)
	}
	if err := c.fs.Link(ctx, c.part, c.at); err != nil {
		return err
	}
	return c.fs.Remove(ctx, c.part)
}
