// Command agent runs in a guest of the lab: it takes commands from the host over a virtio serial
// port, runs them with bash, many at once if need be, and sends back what they print and how they
// end. The lab builds it and puts it into the guest's initrd; nobody else starts it.
//
// It reaps only its own commands; process 1 above it reaps what they leave behind. Read serve in
// this file first, then command.go.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"github.com/sluice-storage/sluice/vmtest/frame"
)

// portName is how the host calls the serial port; vmtest has the same words.
const portName = "sluice.vmtest"

func main() {
	path, err := findPort("/sys/class/virtio-ports", portName)
	if err != nil {
		fail(err)
	}
	port, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		fail(err)
	}
	if err := serve(port, kernelRelease()); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "agent:", err)
	os.Exit(1)
}

// findPort looks for the device of the port with a name, because numbers depend on the machine.
func findPort(class, name string) (string, error) {
	files, err := filepath.Glob(filepath.Join(class, "*", "name"))
	if err != nil {
		return "", err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err == nil && string(bytes.TrimSpace(text)) == name {
			return filepath.Join("/dev", filepath.Base(filepath.Dir(file))), nil
		}
	}
	return "", fmt.Errorf("no serial port is called %s", name)
}

func kernelRelease() string {
	text, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return ""
	}
	return string(bytes.TrimSpace(text))
}

// agent is one conversation. Its port takes each frame in one Write, and files serialize those.
type agent struct {
	port  io.Writer
	table table
}

// serve answers until the host closes the port.
func serve(port io.ReadWriter, kernel string) error {
	a := &agent{port: port, table: table{running: map[uint32]int{}}}
	a.sendJSON(frame.Hello, 0, frame.Greeting{Version: frame.Version, Kernel: kernel})
	r := frame.NewReader(port)
	for {
		f, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		switch f.Kind {
		case frame.Run:
			var c frame.Command
			if err := f.Body(&c); err != nil {
				return err
			}
			a.start(f.ID, c)
		case frame.Kill:
			a.table.kill(f.ID)
		case frame.Sync:
			go func() {
				syscall.Sync()
				a.sendJSON(frame.Exit, f.ID, frame.Status{})
			}()
		default:
			return fmt.Errorf("the host sent a frame of kind %d", f.Kind)
		}
	}
}

// send has nobody to tell if it fails: the host is gone, and the machine with it.
func (a *agent) send(f frame.Frame) {
	_, _ = a.port.Write(frame.Append(nil, f))
}

func (a *agent) sendJSON(kind frame.Kind, id uint32, body any) {
	if b, err := frame.AppendJSON(nil, kind, id, body); err == nil {
		_, _ = a.port.Write(b)
	}
}
