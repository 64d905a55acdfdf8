package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/stripe/device"
	"github.com/sluice-storage/sluice/stripe/logstore"
)

func newStore() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "store",
		Short: "Make, describe and verify the local store of an I/O server",
		Long: `The store of an I/O server lies in a folder of a local file system, on a block device, or
on several of either, its members, over which objects are spread in pieces of 1 MiB. Wherever a
PATH is asked for, name all members, in the order in which the store was made.

docs/ops/store.md tells more.`,
		Example: "  sluice store init /srv/sluice\n  sluice store info /srv/sluice",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newStoreInit(), newStoreInfo(), newStoreCheck(), newStoreScrub(), newStoreDump(),
		newStoreSalvage())
	return cmd
}

// openMembers opens the devices of a store that a verb looks at. With alone nobody else may have
// the store open; on a file system that is read-only nobody can.
func openMembers(paths []string, alone bool) (logstore.Options, func(), error) {
	p := logstore.PathOptions{Paths: paths, ReadOnly: !alone, Logger: newLogger()}
	o, err := logstore.Devices(p)
	if alone && errs.KindOf(err) == errs.ReadOnly {
		p.ReadOnly = true
		o, err = logstore.Devices(p)
	}
	if err != nil {
		return o, func() {}, storeAdvice(err)
	}
	return o, func() { closeDevices(o.Devices) }, nil
}

func closeDevices(list []device.Device) {
	for _, d := range list {
		_ = d.Close() // nothing was written
	}
}

// storeAdvice says what to do about an error of a store, where the error does not.
func storeAdvice(err error) error {
	var h *hinted
	if err == nil || errors.As(err, &h) {
		return err
	}
	switch errs.KindOf(err) {
	case errs.Busy:
		return hint(err, "An I/O server has the store open: stop it first, with sluice down")
	case errs.NotFound:
		return hint(err, "Make a store with: sluice store init PATH")
	case errs.Exists, errs.NotEmpty:
		return hint(err, "Nothing was changed. See what is there: sluice store info PATH")
	case errs.Version:
		return hint(err, "Nothing was changed")
	case errs.Invalid:
		return hint(err, "See: sluice store --help")
	case errs.NoSpace:
		return hint(err, "Choose a smaller --log-size, or a larger disk")
	case errs.Access, errs.Perm:
		return hint(err, "Run it as the owner of the store, or as root for a block device")
	case errs.Corrupt:
		return hint(err, "What the rest of it is worth: sluice store check PATH\n"+
			"  Without a copy: sluice store salvage --help")
	}
	return err
}

// logBytes reads the value of --log-size.
func logBytes(text string) (int64, error) {
	n, err := parseSize(text)
	if err == nil && n == 0 {
		err = refuse("--log-size 0", "Leave it out for the default, "+defaultLog)
	}
	return n, err
}

const defaultLog = "128M"

func isBlockDevice(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode()&os.ModeDevice != 0 && st.Mode()&os.ModeCharDevice == 0
}

// plural is "1 member", "2 members".
func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// storeArgs is the arguments as a user would type them again.
func storeArgs(paths []string) string { return strings.Join(paths, " ") }
