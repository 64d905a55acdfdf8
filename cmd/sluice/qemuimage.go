package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/nbd"
	"github.com/sluice-storage/sluice/nbd/volumeexport"
)

// qemuImage is a disk image, which qemu-img reads or writes; the volume it reaches over NBD, on a
// socket that only this process and its child know.
type qemuImage struct {
	cmd    *cobra.Command
	file   string
	format string
	size   int64 // of the disk in it
	bar    progress
}

// dialToCopy is dial for who moves the data of whole volumes.
func (f *urlFlag) dialToCopy(ctx context.Context) (*connection, error) {
	return dialBy(ctx, f.base(), &f.by, client.Options{WaitMax: toolMax,
		Buffers: boundClient(true).buffers})
}

func qemuImg() (string, error) {
	path, err := exec.LookPath("qemu-img")
	if err != nil {
		return "", refuse("qemu-img is not installed, which reads and writes disk images",
			"Install it (Debian: apt install qemu-utils); or serve the volume (sluice help nbd) and copy "+
				"the image to it with a program of your own")
	}
	return path, nil
}

// look finds out the format and the size of the disk.
func (q *qemuImage) look(ctx context.Context) error {
	path, err := qemuImg()
	if err != nil {
		return err
	}
	if _, err := os.Stat(q.file); err != nil {
		return err
	}
	args := []string{"info", "--output=json"}
	if q.format != "" {
		args = append(args, "-f", q.format)
	}
	child := exec.CommandContext(ctx, path, append(args, q.file)...)
	var complaint bytes.Buffer
	child.Stderr = &complaint
	out, err := child.Output()
	if err != nil {
		return qemuError(err, &complaint)
	}
	var info struct {
		Size   int64  `json:"virtual-size"`
		Format string `json:"format"`
	}
	if err := json.Unmarshal(out, &info); err != nil || info.Size <= 0 {
		return fmt.Errorf("qemu-img says nothing about the size of the disk in %s: %v", q.file, err)
	}
	q.size, q.format = info.Size, info.Format
	return nil
}

// qemuError is a failure of qemu-img as it tells it itself.
func qemuError(err error, complaint *bytes.Buffer) error {
	if text := strings.TrimSpace(complaint.String()); text != "" {
		return fmt.Errorf("%s", text)
	}
	return fmt.Errorf("qemu-img: %w", err)
}

// convert copies the disk between the image and a volume; out: from the volume.
func (q *qemuImage) convert(ctx context.Context, fs *client.FS, name string, out bool) error {
	path, err := qemuImg()
	if err != nil {
		return err
	}
	gate, err := openGate(ctx, fs, name, out)
	if err != nil {
		return err
	}
	args := []string{"convert", "-p", "-W", "-m", "8"}
	if out {
		args = append(args, "-f", "raw", "-O", q.format, gate.uri, q.file)
	} else {
		args = append(args, "-n", "-f", q.format, "-O", "raw", q.file, gate.uri)
	}
	child := exec.CommandContext(ctx, path, args...)
	child.Cancel = func() error { return child.Process.Signal(syscall.SIGTERM) }
	child.WaitDelay = 10 * time.Second
	var complaint bytes.Buffer
	child.Stderr = &complaint
	told, err := child.StdoutPipe()
	if err == nil {
		err = child.Start()
	}
	if err == nil {
		q.follow(told)
		if err = child.Wait(); err != nil {
			err = qemuError(err, &complaint)
		}
	}
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return errors.Join(err, gate.close())
}

// follow turns qemu-img's percentages into bytes.
func (q *qemuImage) follow(told io.Reader) {
	q.bar.expect(q.size)
	words := bufio.NewScanner(told)
	words.Split(bufio.ScanWords)
	var done int64
	for words.Scan() { // (12.34/100%)
		text, _, ok := strings.Cut(strings.TrimPrefix(words.Text(), "("), "/")
		percent, err := strconv.ParseFloat(text, 64)
		if !ok || err != nil {
			continue
		}
		if now := int64(percent / 100 * float64(q.size)); now > done {
			q.bar.add(now - done)
			done = now
		}
	}
}

// volumeGate is a block server for one volume on a socket of its own.
type volumeGate struct {
	dir, uri string
	server   *nbd.Server
	served   chan error
}

func openGate(ctx context.Context, fs *client.FS, name string, readOnly bool) (*volumeGate, error) {
	cfg := boundNBD()
	cfg.Buffers = lendFrom(fs)
	cfg.Logger = newLogger()
	server, err := nbd.NewServer(cfg, nbd.Entry{Name: "volume", ReadOnly: readOnly,
		Open: func(ctx context.Context) (nbd.Export, error) {
			return volumeexport.OpenWith(ctx, fs, name, volumeexport.Options{ReadOnly: readOnly})
		}})
	if err != nil {
		return nil, err
	}
	g := &volumeGate{server: server, served: make(chan error, 1)}
	if err := server.Try(ctx, "volume"); err != nil {
		return nil, errors.Join(err, server.Shutdown(ctx))
	}
	if g.dir, err = os.MkdirTemp("", "sluice-volume-"); err != nil {
		return nil, errors.Join(err, server.Shutdown(ctx))
	}
	socket := filepath.Join(g.dir, "s")
	ln, err := net.Listen("unix", socket)
	if err != nil {
		return nil, errors.Join(err, server.Shutdown(ctx), os.RemoveAll(g.dir))
	}
	g.uri = "nbd+unix:///volume?socket=" + socket
	go func() { g.served <- server.Serve(ln) }()
	return g, nil
}

// close ends the server; what was written to the volume is durable then.
func (g *volumeGate) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	err := g.server.Shutdown(ctx)
	return errors.Join(err, <-g.served, os.RemoveAll(g.dir))
}
