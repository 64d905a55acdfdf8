package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric/tcp"
	"github.com/sluice-storage/sluice/join"
	"github.com/sluice-storage/sluice/peer"
	xfer "github.com/sluice-storage/sluice/transfer"
)

// runTransfer copies one file.
func runTransfer(cmd *cobra.Command, f *transferFlags, src, dst string) error {
	from, err := parseEnd(src)
	if err != nil {
		return err
	}
	to, err := parseEnd(dst)
	if err != nil {
		return err
	}
	switch {
	case from.service != "" && to.service != "":
		return refuse("both sides are at services", "Run sluice transfer at one of them")
	case from.memory && from.size < 0:
		return refuse(src+": how much?", "Write mem:SIZE, like mem:1G")
	case from.memory && !to.memory && to.service == "":
		return refuse("memory goes nowhere in particular", "Write mem: or HOST:PORT:mem: behind it")
	case to.memory && to.size >= 0:
		return refuse(dst+": as much arrives as is sent", "Write mem: without a size")
	}
	opts, err := f.options()
	if err != nil {
		return err
	}
	bar := newProgress(cmd, f.quiet || f.asJSON)
	sum := &transferSum{From: src, To: dst, Block: opts.Block}
	req := xfer.Request{Driver: f.asked(), Options: opts, Tell: bar.add}
	begin := time.Now()
	switch {
	case to.service != "":
		err = f.put(cmd.Context(), &from, &to, req, bar, sum)
	case from.service != "":
		err = f.get(cmd.Context(), &from, &to, req, bar, sum)
	default:
		err = f.copyHere(cmd.Context(), &from, &to, req, bar, sum)
	}
	sum.Seconds = time.Since(begin).Seconds()
	bar.end()
	if err != nil {
		return f.explainTransfer(err, &from, &to)
	}
	sum.Rate = float64(sum.Moved) / sum.Seconds
	return sum.print(cmd, f)
}

// reachService connects to a service.
func (f *transferFlags) reachService(ctx context.Context, addr string) (*xfer.Client, func(),
	error) {

	bytes, err := parseSize(f.memory)
	if err != nil {
		return nil, nil, err
	}
	providers, err := openClient(&f.by, scheme+"//"+addr, nil)
	if err != nil {
		return nil, nil, err
	}
	c, err := xfer.Dial(ctx, providers, addr, bytes)
	if err != nil {
		closeLogged(providers, nil)
		switch errs.KindOf(err) {
		case errs.Disconnected, errs.TimedOut, errs.IO:
			err = hint(err, "Does sluice transfer --listen %s run there?", addr)
		}
		return nil, nil, err
	}
	return c, func() {
		_ = c.Close() // what it was for is over
		closeLogged(providers, nil)
	}, nil
}

// original opens a source that is here; nil for memory.
func (f *transferFlags) original(ctx context.Context, e *transferEnd) (
	o xfer.Original, size int64, done func(), err error) {

	if e.memory {
		return nil, e.size, func() {}, nil
	}
	store, name, leave, err := f.transferStore(ctx, e)
	if err != nil {
		return nil, 0, nil, err
	}
	if o, err = store.Open(ctx, name); err != nil {
		leave()
		return nil, 0, nil, err
	}
	return o, o.Size(), func() { _ = o.Close(); leave() }, nil
}

func (f *transferFlags) creation(mode os.FileMode) xfer.Creation {
	return xfer.Creation{Mode: mode, Overwrite: f.overwrite, Restart: f.restart}
}

func (f *transferFlags) put(ctx context.Context, from, to *transferEnd, req xfer.Request,
	bar progress, sum *transferSum) error {

	o, size, done, err := f.original(ctx, from)
	if err != nil {
		return err
	}
	defer done()
	c, hangUp, err := f.reachService(ctx, to.service)
	if err != nil {
		return err
	}
	defer hangUp()
	bar.expect(size)
	req.Name, req.Memory, req.Size = to.path, to.memory, size
	mode := os.FileMode(0o644)
	if o != nil {
		mode = o.Mode()
	}
	sum.Result, err = c.Put(ctx, req, o, f.creation(mode))
	sum.choices(c)
	return err
}

// choices notes what could have been taken.
func (s *transferSum) choices(c *xfer.Client) {
	s.Choices = c.Choices
	for _, ch := range c.Choices {
		if ch.Taken {
			s.Driver = ch.Driver
		}
	}
}

func (f *transferFlags) get(ctx context.Context, from, to *transferEnd, req xfer.Request,
	bar progress, sum *transferSum) error {

	c, hangUp, err := f.reachService(ctx, from.service)
	if err != nil {
		return err
	}
	defer hangUp()
	req.Name, req.Memory, req.Size = from.path, from.memory, max(from.size, 0)
	var create func(size int64, mode os.FileMode) (xfer.Copy, error)
	if !to.memory {
		store, name, done, err := f.transferStore(ctx, to)
		if err != nil {
			return err
		}
		defer done()
		create = func(size int64, mode os.FileMode) (xfer.Copy, error) {
			bar.expect(size)
			how := f.creation(mode)
			how.Size = size
			return store.Create(ctx, name, how)
		}
	}
	sum.Result, err = c.Get(ctx, req, create)
	sum.choices(c)
	return err
}

// copyHere is a transfer whose both sides are here.
func (f *transferFlags) copyHere(ctx context.Context, from, to *transferEnd, req xfer.Request,
	bar progress, sum *transferSum) (err error) {

	o, size, done, err := f.original(ctx, from)
	if err != nil {
		return err
	}
	defer done()
	bar.expect(size)
	sum.Driver, req.Size = xfer.Socket, size
	sum.Choices = []xfer.Choice{{Driver: xfer.Socket, Taken: true}}
	if f.asked() != "" && f.asked() != xfer.Socket {
		return refuse("both sides are in this process: there is no "+f.driver,
			"Start a service with sluice transfer --listen, and name it")
	}
	var copied xfer.Copy
	if !to.memory {
		store, name, done, err := f.transferStore(ctx, to)
		if err != nil {
			return err
		}
		defer done()
		how := f.creation(0o644)
		if how.Size = size; o != nil {
			how.Mode = o.Mode()
		}
		if copied, err = store.Create(ctx, name, how); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, copied.Close()) }()
	}
	sum.Result, err = xfer.Local(ctx, req, o, copied)
	return err
}

// explainTransfer adds what to do to an error.
func (f *transferFlags) explainTransfer(err error, from, to *transferEnd) error {
	var known *hinted
	if errors.As(err, &known) {
		return err
	}
	service := from.service + to.service
	switch errs.KindOf(err) {
	case errs.Exists:
		return hint(err, "Choose another name, or replace it: --overwrite")
	case errs.NotFound:
		return hint(err, "See what is there: ls on a host, sluice ls sluice:/ of a cluster")
	case errs.IsDir, errs.NotDir:
		return hint(err, "One file is copied, to the name of a file; sluice cp -r copies directories")
	case errs.NoMemory:
		return hint(err, "Blocks under way take --depth times --block (with --pieces the number of "+
			"pieces times their STRIDE): less of that, or more --memory here and at the service")
	case errs.NoSpace, errs.Quota:
		return hint(err, "Make room there, then run the same command: it goes on where it was")
	case errs.Perm:
		if service != "" {
			return hint(err, "The service at %s does not allow it, or does not know you: see its "+
				"--allow and --only, and your --credential or --secret", service)
		}
	case errs.Disconnected, errs.TimedOut, errs.Shutdown, errs.Canceled:
		return hint(err, "What has arrived is kept. Run the same command again: it goes on where it was")
	case errs.Busy:
		return hint(err, "Wait until the other transfer has ended")
	case errs.Corrupt:
		return hint(err, "Nothing has taken its name. Run the same command again: only what differs "+
			"is sent")
	}
	return err
}

// runTransferService serves a folder until it is told to stop.
func runTransferService(cmd *cobra.Command, f *transferFlags) (err error) {
	opts := xfer.ServiceOptions{Listen: f.listen, Only: f.only, Sessions: f.sessions,
		Log: slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))}
	for _, word := range f.allow {
		switch word {
		case "read":
			opts.Read = true
		case "write":
			opts.Write = true
		case "memory":
			opts.Memory = true
		default:
			return refuse("--allow "+word, "Choose of read, write, memory")
		}
	}
	if opts.Bytes, err = parseSize(f.memory); err != nil {
		return err
	}
	if f.sessions < 1 || f.sessions > 1024 {
		return refuse(fmt.Sprintf("--sessions %d", f.sessions), "Choose from 1 to 1024")
	}
	if f.dir == "" && (opts.Read || opts.Write) {
		return refuse("a service needs a folder", "Add --dir FOLDER, or --allow memory alone")
	}
	if f.dir != "" {
		folder, err := xfer.OpenFolder(f.dir)
		if err != nil {
			return err
		}
		defer folder.Close()
		opts.Store = folder
	}
	done, err := f.openService(cmd.Context(), &opts)
	if err != nil {
		return err
	}
	defer done()
	s, err := xfer.Serve(opts)
	if err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "listening at %s\n", s.Addr())
	<-cmd.Context().Done()
	return s.Close()
}

// openService opens the providers of a service: with keys, or on loopback with a secret that only
// this user can read.
func (f *transferFlags) openService(ctx context.Context, service *xfer.ServiceOptions) (done func(),
	err error) {

	log := service.Log
	opts, err := f.by.options(log)
	if err != nil {
		return nil, err
	}
	opts.Listens = true
	first, _, _ := strings.Cut(f.listen, ",")
	file := ""
	if f.by.secret.cred.file != "" || checkListen(f.listen, false) != nil {
		if file, err = f.by.secret.credential(scheme + "//" + first); err != nil {
			return nil, hint(err, "Nothing listens beyond loopback without keys: join a cluster "+
				"with sluice join, or listen on 127.0.0.1")
		}
	}
	if err := checkListen(f.listen, file != ""); err != nil {
		return nil, err
	}
	undo := func() {}
	if file != "" {
		k, err := join.Keep(ctx, file, log)
		if err != nil {
			return nil, err
		}
		opts.Security, service.Changed = peer.Security(k, f.authenticated), k.Changed
	} else if opts.Secret, undo, err = f.serviceSecret(); err != nil {
		return nil, err
	}
	providers, err := peer.Open(opts)
	if err != nil {
		undo()
		return nil, err
	}
	service.Providers = providers
	return func() { closeLogged(providers, log); undo() }, nil
}

// serviceSecret is a secret that lives as long as the service, in a folder that is this user's
// alone, or that of --secret or the environment.
func (f *transferFlags) serviceSecret() (*tcp.Secret, func(), error) {
	if file := cmp.Or(f.by.secret.file, os.Getenv(secretEnv)); file != "" { // clients look there, too
		return &tcp.Secret{File: file, Optional: f.by.secret.trust}, func() {}, nil
	}
	dir, err := os.MkdirTemp(os.Getenv("XDG_RUNTIME_DIR"), "sluice-transfer-")
	if err != nil {
		return nil, nil, err
	}
	undo := func() { _ = os.RemoveAll(dir) }
	var key [tcp.SecretBytes]byte
	rand.Read(key[:])
	name := filepath.Join(dir, tcp.SecretName)
	if err := os.WriteFile(name, []byte(hex.EncodeToString(key[:])+"\n"), 0o600); err != nil {
		undo()
		return nil, nil, err
	}
	return &tcp.Secret{File: name, Optional: f.by.secret.trust}, undo, nil
}
