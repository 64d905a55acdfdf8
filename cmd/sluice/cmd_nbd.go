package main

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/nbd"
	"github.com/sluice-storage/sluice/nbd/fileexport"
	"github.com/sluice-storage/sluice/nbd/memexport"
	"github.com/sluice-storage/sluice/nbd/volumeexport"
	"github.com/sluice-storage/sluice/peer"
)

func newNBD() *cobra.Command {
	var f urlFlag
	var addr string
	var exports []string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "nbd --listen HOST:PORT|unix:PATH --export name=N,file=PATH[,ro] ...",
		Short: "Serve files, memory and volumes as block devices",
		Long: `Serves block devices by the NBD protocol until it is interrupted. Each --export is one of

  name=N,file=PATH[,ro]    a file or block device of this host
  name=N,mem=SIZE          memory, empty at the start, gone at the end
  name=N,volume=V[,ro][,mode=M]
                           a volume of the cluster, see: sluice volume create; M is cached (the
                           default), cached-writes (reads past the servers' caches), or direct

NBD itself asks nobody who they are: every user of this host can reach HOST:PORT, and read and
write what is served there. A socket, unix:PATH, can be used by you and root alone.

A request to a volume waits for servers that are away or do not answer, as long as it takes: the
guest sees a slow disk. With --timeout it waits that long and then fails with EIO.

A volume is written through one gateway at a time, so that a flush covers every write. A gateway
has its volumes from its start to its end; a second one is refused, unless it says ro. After a
gateway was killed another one of the same host takes over at once, one of another host when the
session of the first has ended and its rights have run out, which takes up to 90 s.

Attach one with, for example:
  qemu-img info nbd://127.0.0.1:10809/N
  nbdinfo nbd://127.0.0.1:10809/N`,
		Example: "  sluice nbd --listen 127.0.0.1:10809 --export name=scratch,mem=1G\n" +
			"  sluice nbd --listen unix:/run/sluice.sock --export name=db,volume=db",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return serveNBD(cmd, f, addr, exports, timeout)
		},
	}
	cmd.Flags().StringVar(&addr, "listen", "127.0.0.1:10809", "HOST:PORT or unix:PATH")
	cmd.Flags().StringArrayVar(&exports, "export", nil, "what to serve; repeat it for more")
	cmd.Flags().DurationVar(&timeout, "timeout", 0,
		"how long a request to a volume waits for servers before it fails (0: for ever)")
	f.add(cmd)
	completeFlag(cmd, "export", completeExport(&f))
	return cmd
}

// exportSpec is one --export.
type exportSpec struct {
	name, file, volume string
	mem                int64
	readOnly           bool
	how                client.How // of a volume
	held               nbd.Export // a volume that this gateway writes to, from its start to its end
}

// parseExport reads key=value pairs. A comma in a path is written twice.
func parseExport(text string) (exportSpec, error) {
	var s exportSpec
	bad := func(format string, args ...any) (exportSpec, error) {
		return exportSpec{}, refuse(fmt.Sprintf("--export %s: ", text)+fmt.Sprintf(format, args...),
			"Write name=N,file=PATH[,ro] or name=N,mem=SIZE or name=N,volume=V[,ro][,mode=M]")
	}
	sources, mode := 0, ""
	for _, part := range splitCommas(text) {
		key, value, given := strings.Cut(part, "=")
		var err error
		switch {
		case part == "ro":
			s.readOnly = true
			continue
		case !given || value == "" && key != "name":
			return bad("%q is not key=value", part)
		case key == "name":
			s.name = value
			continue
		case key == "mode":
			mode = value
			if s.how, err = parseMode(value); err != nil {
				return bad("%v; choose of %s", err, strings.Join(modeNames(), ", "))
			}
			continue
		case key == "file":
			s.file = value
		case key == "volume":
			s.volume = value
		case key == "mem":
			s.mem, err = parseSize(value)
		default:
			return bad("there is no %q", key)
		}
		if err != nil {
			return bad("%v", err)
		}
		sources++
	}
	if sources != 1 {
		return bad("give one of file, mem and volume")
	}
	if mode != "" && s.volume == "" {
		return bad("only volumes have modes")
	}
	return s, nil
}

// splitCommas cuts at single commas; two in a row are one that belongs to the text.
func splitCommas(text string) []string {
	const mark = "\x00"
	parts := strings.Split(strings.ReplaceAll(text, ",,", mark), ",")
	for i := range parts {
		parts[i] = strings.ReplaceAll(parts[i], mark, ",")
	}
	return parts
}

// entry makes the server's entry. fs is there when a volume was asked for.
func (s exportSpec) entry(fs *client.FS) nbd.Entry {
	e := nbd.Entry{Name: s.name, ReadOnly: s.readOnly}
	switch {
	case s.file != "":
		e.Open = func(context.Context) (nbd.Export, error) {
			return fileexport.Open(fileexport.Options{Path: s.file, ReadOnly: s.readOnly})
		}
	case s.held != nil:
		e.Keep = true
		e.Open = func(context.Context) (nbd.Export, error) { return s.held, nil }
	case s.volume != "":
		e.Open = func(ctx context.Context) (nbd.Export, error) {
			return volumeexport.OpenWith(ctx, fs, s.volume, volumeexport.Options{
				ReadOnly: s.readOnly, How: s.how})
		}
	default:
		e.Keep = true
		e.Open = func(context.Context) (nbd.Export, error) { return memexport.New(s.mem) }
	}
	return e
}

func serveNBD(cmd *cobra.Command, f urlFlag, addr string, exports []string,
	timeout time.Duration) error {
	if timeout < 0 {
		return refuse("--timeout is negative", "Write a duration like 90s, or 0 to wait for ever")
	}
	if len(exports) == 0 {
		return refuse("nothing to serve", "Add at least one --export, see: sluice help nbd")
	}
	var specs []exportSpec
	volumes := false
	for _, text := range exports {
		s, err := parseExport(text)
		if err != nil {
			return err
		}
		volumes = volumes || s.volume != ""
		specs = append(specs, s)
	}
	log := newLogger()
	cfg := boundNBD()
	cfg.Logger = log
	var fs *client.FS
	if volumes {
		conn, err := dialBy(cmd.Context(), f.base(), &f.by,
			client.Options{WaitMax: patience(timeout), Logger: log, Buffers: boundClient(true).buffers})
		if err != nil {
			return err
		}
		defer conn.close()
		fs = conn.fs
		cfg.Buffers = lendFrom(fs)
	}
	if err := tryExports(cmd.Context(), specs, fs); err != nil {
		return err
	}
	entries := make([]nbd.Entry, len(specs))
	for i, s := range specs {
		entries[i] = s.entry(fs)
	}
	server, err := nbd.NewServer(cfg, entries...)
	if err != nil {
		return err
	}
	ln, err := listen(addr)
	if err != nil {
		return err
	}
	for _, s := range specs {
		fmt.Fprintf(cmd.OutOrStdout(), "serving %s\n", nbdURI(ln.Addr(), s.name))
	}
	return serveUntilDone(cmd.Context(), server, ln)
}

// patience is what a client waits for servers: for ever, unless somebody says how long.
func patience(timeout time.Duration) time.Duration {
	if timeout == 0 {
		return peer.Forever
	}
	return timeout
}

// lendFrom makes the memory of a client that of a block server: data passes through without a copy
// between them.
func lendFrom(fs *client.FS) func(int) nbd.Buffer {
	return func(bytes int) nbd.Buffer {
		if b := fs.TryTake(bytes); b != nil {
			return b
		}
		return nil // not a Buffer that is a nil pointer
	}
}

// tryExports opens what can be wrong once, so that a typing error is told now and not to a client.
// Volumes that are written to stay open: who starts a second gateway for one is told now, too. They
// are closed with fs.
func tryExports(ctx context.Context, specs []exportSpec, fs *client.FS) error {
	for i := range specs {
		s := &specs[i]
		if s.mem != 0 {
			continue
		}
		exp, err := s.entry(fs).Open(ctx)
		if errs.KindOf(err) == errs.Busy && s.volume != "" {
			return hint(err, "Write name=%s,volume=%s,ro to read it meanwhile, or stop that gateway. "+
				"If its host is dead it is free within 90 s", s.name, s.volume)
		}
		if err != nil {
			return err
		}
		if s.volume != "" && !s.readOnly {
			s.held = exp
			continue
		}
		if err := exp.Close(); err != nil {
			return err
		}
	}
	return nil
}

func nbdURI(addr net.Addr, name string) string {
	if addr.Network() == "unix" {
		return fmt.Sprintf("nbd+unix:///%s?socket=%s", name, addr)
	}
	return fmt.Sprintf("nbd://%s/%s", addr, name)
}

// serveUntilDone ends in order when ctx ends: what is under way is answered first.
func serveUntilDone(ctx context.Context, server *nbd.Server, ln net.Listener) error {
	served := make(chan error, 1)
	go func() { served <- server.Serve(ln) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	err := server.Shutdown(limit)
	if e := <-served; err == nil {
		err = e
	}
	return err
}
