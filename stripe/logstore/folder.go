package logstore

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/stripe/device"
	"golang.org/x/sys/unix"
)

// A member is a block device, or a folder with two files:
//
//	store.json    whose store this is and in which format, for people and for other engines
//	blocks        the member itself, see layout.go; its space is taken as it is needed
//
// store.json appears last when a store is made: without it there is no store.
type identity struct {
	Magic    string `json:"magic"`
	Format   int    `json:"format"`
	Engine   string `json:"engine"`
	StoreID  string `json:"store_id"`
	ServerID uint64 `json:"server_id"`
	Member   int    `json:"member"`
	Members  int    `json:"members"`
}

const (
	identityMagic  = "sluice stripe store"
	identityFormat = 2 // 1 is the thin store, one file an object
	engineName     = "logstore"
	thinEngine     = "filestore"
	identityName   = "store.json"
	blocksName     = "blocks"
	identityMax    = 4096 // bytes; a longer file is not ours
)

// PathOptions say where a store is.
type PathOptions struct {
	// Paths are the members in their order: folders or block devices.
	Paths []string

	// Make turns empty folders into a store when there is none. Block devices are made into one by
	// Init only.
	Make bool

	// Force lets Init overwrite a block device that holds something, and blocks without a store.json.
	Force bool

	// Bytes is the size of each new folder's member. 0: as much as its file system has in all;
	// space is taken only as it is needed.
	Bytes int64

	// ReadOnly opens for Check and Inspect, without keeping others out.
	ReadOnly bool

	// Plain asks for plain calls instead of io_uring.
	Plain bool

	// The rest is as in Options.
	Unsummed        bool
	LateCheckpoints bool
	Salvage         bool
	ServerID        uint64
	LogBytes        int64
	UnitBytes       int64
	PendingBytes    int64
	IndexBytes      int64
	ReserveBytes    int64
	Logger          *slog.Logger
}

func (p *PathOptions) options() Options {
	return Options{ServerID: p.ServerID, LogBytes: p.LogBytes, UnitBytes: p.UnitBytes,
		PendingBytes: p.PendingBytes,
		IndexBytes:   p.IndexBytes, Unsummed: p.Unsummed, LateCheckpoints: p.LateCheckpoints,
		Salvage: p.Salvage, ReserveBytes: p.ReserveBytes,
		Logger: p.Logger}
}

// OpenPaths opens the store that lies at the paths, or makes one if that is asked for. Errors
// beside those of Open: errs.NotFound (no store there), errs.NotEmpty (a folder holds something
// else), errs.Busy (another process has it), errs.Version (a thin store, or a newer format).
func OpenPaths(p PathOptions) (*Store, error) {
	if p.Make && p.allEmpty() {
		if _, err := Init(p); err != nil {
			return nil, err
		}
	}
	o, err := Devices(p)
	if err != nil {
		return nil, err
	}
	s, err := Open(o)
	if err != nil {
		closeAll(o.Devices)
		return nil, err
	}
	return s, nil
}

// allEmpty tells whether all paths are folders without a store.
func (p *PathOptions) allEmpty() bool {
	for _, path := range p.Paths {
		if st, err := os.Stat(path); err == nil && !st.IsDir() {
			return false
		}
		if _, err := os.Stat(filepath.Join(path, identityName)); err == nil {
			return false
		}
	}
	return true
}

// Devices opens the devices of a store. The caller closes them, or gives them to Open.
func Devices(p PathOptions) (Options, error) {
	o := p.options()
	for _, path := range p.Paths {
		dev, err := openPath(&p, path)
		if err != nil {
			closeAll(o.Devices)
			return o, err
		}
		o.Devices = append(o.Devices, dev)
	}
	return o, nil
}

func closeAll(list []device.Device) {
	for _, d := range list {
		d.Close()
	}
}

func openPath(p *PathOptions, path string) (device.Device, error) {
	const op = "logstore.Open"
	st, err := os.Stat(path)
	if err != nil {
		return nil, errs.Wrap(op, path, err)
	}
	if st.IsDir() {
		if err := checkIdentity(path); err != nil {
			return nil, err
		}
		path = filepath.Join(path, blocksName)
	}
	return device.OpenFile(device.FileOptions{Path: path, ReadOnly: p.ReadOnly, Plain: p.Plain})
}

// checkIdentity refuses a folder that is not a store of this engine, and says what it is.
func checkIdentity(dir string) error {
	const op = "logstore.Open"
	name := filepath.Join(dir, identityName)
	raw, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return errs.Newf(errs.NotFound, op, dir,
			"there is no store in this folder: make one with sluice store init")
	}
	if err != nil {
		return errs.Wrap(op, name, err)
	}
	_, err = parseIdentity(raw)
	return errs.Wrap(op, name, err)
}

// parseIdentity checks magic, engine and format before anything that may have changed.
func parseIdentity(raw []byte) (identity, error) {
	var ident identity
	if len(raw) > identityMax {
		return ident, errs.Newf(errs.Corrupt, "", "", "%d bytes are not an identity", len(raw))
	}
	if err := json.Unmarshal(raw, &ident); err != nil || ident.Magic != identityMagic {
		return ident, errs.Newf(errs.Corrupt, "", "", "not the identity of a store")
	}
	switch {
	case ident.Engine == thinEngine:
		return ident, errs.Newf(errs.Version, "", "", "the folder holds a thin store (one file an "+
			"object) of an earlier build, which this one does not read: copy its files out with that "+
			"build, or choose an empty folder")
	case ident.Format > identityFormat:
		return ident, errs.Newf(errs.Version, "", "", "format %d is newer than this build's %d: use "+
			"a newer build", ident.Format, identityFormat)
	case ident.Engine != engineName:
		return ident, errs.Newf(errs.Version, "", "", "the folder belongs to engine %q, this is %q",
			ident.Engine, engineName)
	}
	if id, err := hex.DecodeString(ident.StoreID); err != nil || len(id) != 16 {
		return ident, errs.Newf(errs.Corrupt, "", "", "the store's id makes no sense")
	}
	return ident, nil
}

// Init makes an empty store at the paths. Folders must be empty; a block device must be, too, in
// its first MiB, unless Force is set.
func Init(p PathOptions) (id [16]byte, err error) {
	o := p.options()
	defer func() { closeAll(o.Devices) }()
	for _, path := range p.Paths {
		dev, err := makePath(&p, path)
		if err != nil {
			return id, err
		}
		o.Devices = append(o.Devices, dev)
	}
	if id, err = Create(o); err != nil {
		return id, err
	}
	for i, path := range p.Paths {
		if st, err := os.Stat(path); err != nil || !st.IsDir() {
			continue
		}
		err := writeIdentity(path, identity{Magic: identityMagic, Format: identityFormat,
			Engine: engineName, StoreID: hex.EncodeToString(id[:]), ServerID: p.ServerID, Member: i + 1,
			Members: len(p.Paths)})
		if err != nil {
			return id, errs.Wrap("logstore.Init", path, err)
		}
	}
	return id, nil
}

// makePath opens what a new member is made on, and refuses what holds something else.
func makePath(p *PathOptions, path string) (device.Device, error) {
	const op = "logstore.Init"
	if st, err := os.Stat(path); err == nil && st.Mode()&os.ModeDevice != 0 {
		return openBlank(p, path)
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, errs.Wrap(op, path, err)
	}
	list, err := os.ReadDir(path)
	if err != nil {
		return nil, errs.Wrap(op, path, err)
	}
	for _, e := range list {
		switch e.Name() {
		case identityName:
			if err := checkIdentity(path); err != nil {
				return nil, err
			}
			return nil, errs.Newf(errs.Exists, op, path, "the folder holds a store already")
		case blocksName, "lost+found": // half made, or a fresh file system
		default:
			return nil, errs.Newf(errs.NotEmpty, op, path,
				"the folder is not a store and holds %q: choose an empty folder", e.Name())
		}
	}
	name := filepath.Join(path, blocksName)
	if err := refuseBlocks(p, name); err != nil {
		return nil, err
	}
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, errs.Wrap(op, name, err)
	}
	size := p.Bytes
	if size == 0 {
		var fs unix.Statfs_t
		if err := unix.Statfs(path, &fs); err != nil {
			return nil, errs.Wrap(op, path, err)
		}
		size = int64(fs.Blocks) * fs.Bsize
	}
	return device.OpenFile(device.FileOptions{Path: name, Bytes: size, Plain: p.Plain})
}

// refuseBlocks refuses to write over blocks that are a whole member: only its store.json is gone.
// Superblocks are the last that a new member gets, so that what was never finished has none.
func refuseBlocks(p *PathOptions, name string) error {
	if _, err := os.Stat(name); err != nil || p.Force {
		return nil
	}
	dev, err := device.OpenFile(device.FileOptions{Path: name, ReadOnly: true, Plain: true})
	if err != nil {
		return err
	}
	defer dev.Close()
	if s, err := readSuper(dev); err == nil {
		return errs.Newf(errs.Exists, "logstore.Init", name, "it holds member %d of %d of store %x, "+
			"but %s is gone: put that back, or remove the file if nobody needs the data", s.index+1,
			s.members, s.storeID, identityName)
	}
	return nil
}

// openBlank opens a block device and refuses one that holds something.
func openBlank(p *PathOptions, path string) (device.Device, error) {
	dev, err := device.OpenFile(device.FileOptions{Path: path, Plain: p.Plain})
	if err != nil {
		return nil, err
	}
	b := alignedBytes(1 << 20)
	read := device.Op{Kind: device.Read, Bufs: [][]byte{b}}
	err = device.One(dev, &read)
	if err == nil && !p.Force && !allZero(b) {
		err = errs.Newf(errs.NotEmpty, "logstore.Init", path,
			"the device holds something: name another one, or force it")
	}
	if err != nil {
		dev.Close()
		return nil, err
	}
	return dev, nil
}

// writeIdentity puts store.json in place, whole or not at all, and durably.
func writeIdentity(dir string, ident identity) error {
	raw, err := json.MarshalIndent(ident, "", "  ")
	if err != nil {
		return err
	}
	tmp := filepath.Join(dir, identityName+".tmp")
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(raw, '\n'))
	if err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(tmp, filepath.Join(dir, identityName))
	}
	if err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
