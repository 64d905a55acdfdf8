package main

import (
	"fmt"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/admin"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/stripe/logstore"
)

// initFlags are what a user chooses of a new store.
type initFlags struct {
	log, size string
	server    uint64
	force     []string
	json      bool
}

func newStoreInit() *cobra.Command {
	var f initFlags
	cmd := &cobra.Command{
		Use:   "init PATH...",
		Short: "Make an empty store in folders or on block devices",
		Long: `Makes an empty store. A folder must be empty or absent; it gets a file that takes its space
as it is needed, but for the log, which is written now. A block device is taken as a whole.

Nothing is overwritten: a folder that holds anything, a device that is mounted or in use, and a
device on which there is a file system, a partition table, or anything else in its first MiB are
refused. --force DEVICE allows to overwrite that one device, named once more, and never one that is
in use; for folders there is no force: remove what is in them.`,
		Example: `  sluice store init /srv/sluice
  sluice store init --log-size 512M /dev/nvme1n1
  sluice store init /mnt/a /mnt/b /mnt/c
  sluice store init --force /dev/sdx /dev/sdx`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args) },
	}
	cmd.Flags().StringVar(&f.log, "log-size", defaultLog,
		"size of each member's log; a restart may have to read that much")
	cmd.Flags().StringVar(&f.size, "size", "0",
		"size of the member in each folder; 0: that of its file system")
	cmd.Flags().Uint64Var(&f.server, "server", 0,
		"the id of the I/O server that it is for, which others then do not open; 0: of any")
	cmd.Flags().StringArrayVar(&f.force, "force", nil, "overwrite what is on this `DEVICE`")
	addJSON(cmd, &f.json, []logstore.MemberInfo{})
	return cmd
}

func (f *initFlags) run(cmd *cobra.Command, paths []string) error {
	log, err := logBytes(f.log)
	if err != nil {
		return err
	}
	size, err := parseSize(f.size)
	if err != nil {
		return err
	}
	if err := f.checkPaths(paths); err != nil {
		return err
	}
	p := logstore.PathOptions{Paths: paths, LogBytes: log, Bytes: size, ServerID: f.server,
		Force: len(f.force) > 0, Logger: newLogger()}
	id, err := logstore.Init(p)
	if err != nil {
		return storeAdvice(err)
	}
	o, done, err := openMembers(paths, true)
	if err != nil {
		return err
	}
	defer done()
	infos, err := logstore.Inspect(o)
	if err != nil {
		return err
	}
	if f.json {
		return printJSON(cmd, infos)
	}
	data := int64(0)
	for _, m := range infos {
		data += m.Data
	}
	fmt.Fprintf(cmd.OutOrStdout(), "store %x: %s, %s for data, log %s each\nsee it with: "+
		"sluice store info %s\n", id, plural(len(infos), "member"), admin.Bytes(data),
		admin.Bytes(infos[0].LogBytes), storeArgs(paths))
	return nil
}

// checkPaths refuses what Init must not get to see: devices that hold something and are not named
// by --force, and force for anything else.
func (f *initFlags) checkPaths(paths []string) error {
	for i, path := range paths {
		if slices.Contains(paths[:i], path) {
			return refuse(path+" is named twice", "Name each member once")
		}
	}
	for _, path := range f.force {
		switch {
		case !slices.Contains(paths, path):
			return refuse("--force "+path+": not one of the members",
				"Name a device that is to be overwritten, exactly as among the members")
		case !isBlockDevice(path):
			return refuse("--force "+path+": not a block device",
				"Folders are never overwritten: remove what is in it, or choose another one")
		}
	}
	for _, path := range paths {
		if !isBlockDevice(path) || slices.Contains(f.force, path) {
			continue
		}
		what, err := deviceContent(path)
		if err != nil {
			return storeAdvice(errs.Wrap("store init", path, err))
		}
		if what != "" {
			return hint(errs.Newf(errs.Exists, "store init", path, "the device holds %s", what),
				"Nothing was changed. To overwrite it: --force %s", path)
		}
	}
	return nil
}

// deviceContent says what a device holds; "" if nothing is to be seen.
func deviceContent(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	size, err := f.Seek(0, 2)
	if err != nil {
		return "", err
	}
	head := make([]byte, min(size, signatureHead))
	if _, err := f.ReadAt(head, 0); err != nil {
		return "", err
	}
	tail := make([]byte, min(size, signatureTail))
	if _, err := f.ReadAt(tail, size-int64(len(tail))); err != nil {
		return "", err
	}
	return signature(head, tail), nil
}
