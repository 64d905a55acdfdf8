package attach

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/sluice-storage/sluice/errs"
)

// Queue is how the kernel treats a device's requests. Zero values leave a setting as it is.
type Queue struct {
	// RequestBytes is the largest request. The kernel's own default is 128 KiB or so, which makes
	// many messages of one large read.
	RequestBytes int64

	// ReadAheadBytes is how far the kernel reads ahead of a program that reads in order.
	ReadAheadBytes int64

	// Scheduler orders requests before they are sent; "none" leaves that to the servers.
	Scheduler string
}

// System is where the kernel shows devices. The zero value is this host.
type System struct {
	Sys string // default /sys
	Dev string // default /dev
}

func (s System) sys(elem ...string) string {
	root := s.Sys
	if root == "" {
		root = "/sys"
	}
	return filepath.Join(append([]string{root}, elem...)...)
}

func (s System) dev(elem ...string) string {
	root := s.Dev
	if root == "" {
		root = "/dev"
	}
	return filepath.Join(append([]string{root}, elem...)...)
}

// Node is the name of a device's file.
func (s System) Node(index int) string { return s.dev(fmt.Sprintf("nbd%d", index)) }

// Index is the number of a device by the name of its file.
func (s System) Index(node string) (int, error) {
	text, ok := strings.CutPrefix(filepath.Clean(node), s.dev("nbd"))
	n, err := strconv.Atoi(text)
	if !ok || err != nil || n < 0 {
		return 0, errs.Newf(errs.Invalid, "attach", node, "a device is written like /dev/nbd0")
	}
	return n, nil
}

// Backend is the text that a device was connected with; empty: none, or it is not connected.
func (s System) Backend(index int) string {
	text, err := os.ReadFile(s.sys("block", fmt.Sprintf("nbd%d", index), "backend"))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// SetQueue sets what is asked for. It goes on behind a setting that the kernel refuses.
func (s System) SetQueue(index int, q Queue) error {
	var failed []error
	set := func(name, value string) {
		path := s.sys("block", fmt.Sprintf("nbd%d", index), "queue", name)
		if err := os.WriteFile(path, []byte(value), 0); err != nil {
			failed = append(failed, errs.Wrap("attach.SetQueue", name, err))
		}
	}
	if q.RequestBytes > 0 {
		set("max_sectors_kb", strconv.FormatInt(q.RequestBytes>>10, 10))
	}
	if q.ReadAheadBytes > 0 {
		set("read_ahead_kb", strconv.FormatInt(q.ReadAheadBytes>>10, 10))
	}
	if q.Scheduler != "" {
		set("scheduler", q.Scheduler)
	}
	return errors.Join(failed...)
}

// Link is the name under which a device is found whatever its number is.
func (s System) Link(name string) string { return s.dev("sluice", name) }

// SetLink makes the link to a device.
func (s System) SetLink(name string, index int) error {
	link := s.Link(name)
	if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
		return errs.Wrap("attach.SetLink", link, err)
	}
	temp := link + ".new"
	_ = os.Remove(temp) // of somebody who was killed here
	if err := os.Symlink(s.Node(index), temp); err != nil {
		return errs.Wrap("attach.SetLink", link, err)
	}
	return errs.Wrap("attach.SetLink", link, os.Rename(temp, link))
}

// RemoveLink removes the link, and the folder if it was the last.
func (s System) RemoveLink(name string) error {
	err := os.Remove(s.Link(name))
	_ = os.Remove(s.Link(name) + ".new")
	_ = os.Remove(filepath.Dir(s.Link(name))) // others are in it
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return errs.Wrap("attach.RemoveLink", s.Link(name), err)
}
