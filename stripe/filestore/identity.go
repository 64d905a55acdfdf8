package filestore

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/sluice-storage/sluice/errs"
)

// store.json says whose store the folder is. It is text because people look at it first:
//
//	{"magic": "sluice stripe store", "format": 1, "engine": "filestore",
//	 "store_id": "<32 hex digits>", "server_id": 7}
//
// Every later format keeps magic and format, so that each build can say what it has met. The
// file appears last when a store is made: without it there is no store.
type identity struct {
	Magic    string `json:"magic"`
	Format   int    `json:"format"`
	Engine   string `json:"engine"`
	StoreID  string `json:"store_id"`
	ServerID uint64 `json:"server_id"`
}

const (
	identityMagic = "sluice stripe store"
	formatVersion = 1
	engineName    = "filestore"
	identityName  = "store.json"
	objectsName   = "objects"
	lockName      = "lock"
	identityMax   = 4096 // bytes; a longer file is not ours
)

// ownName tells what a store that is half made may have left in its folder, and what every fresh
// file system brings along.
func ownName(name string) bool {
	switch name {
	case lockName, objectsName, fencesName, fencesName + ".tmp", identityName + ".tmp",
		"lost+found":
		return true
	}
	return false
}

// refuseForeign refuses a folder without an identity that holds anything which is not ours.
func refuseForeign(dir string) error {
	const op = "filestore.Open"
	list, err := os.ReadDir(dir)
	if err != nil {
		return errs.Wrap(op, dir, err)
	}
	for _, e := range list {
		if e.Name() == identityName {
			return nil
		}
	}
	for _, e := range list {
		if !ownName(e.Name()) {
			return errs.Newf(errs.NotEmpty, op, dir,
				"the folder is not a store and holds %q: choose an empty folder", e.Name())
		}
	}
	return nil
}

// loadIdentity reads the identity, or makes the store when there is none.
func loadIdentity(o Options) (identity, error) {
	path := filepath.Join(o.Dir, identityName)
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return makeStore(o)
	}
	if err != nil {
		return identity{}, err
	}
	ident, err := parseIdentity(raw)
	if err != nil {
		return identity{}, errs.Wrap("filestore.Open", path, err)
	}
	if o.ServerID != 0 && ident.ServerID != 0 && ident.ServerID != o.ServerID {
		return identity{}, errs.Newf(errs.Invalid, "filestore.Open", path,
			"the store belongs to server %d, not to %d: choose another folder",
			ident.ServerID, o.ServerID)
	}
	return ident, nil
}

// parseIdentity checks the version before anything that a newer format may have changed.
func parseIdentity(raw []byte) (identity, error) {
	var ident identity
	if len(raw) > identityMax {
		return ident, errs.Newf(errs.Corrupt, "", "", "%d bytes are not an identity", len(raw))
	}
	var first struct {
		Magic  string `json:"magic"`
		Format int    `json:"format"`
	}
	if err := json.Unmarshal(raw, &first); err != nil || first.Magic != identityMagic {
		return ident, errs.Newf(errs.Corrupt, "", "", "not the identity of a store")
	}
	if first.Format > formatVersion {
		return ident, errs.Newf(errs.Version, "", "",
			"format %d is newer than this build's %d: use a newer build", first.Format, formatVersion)
	}
	if err := json.Unmarshal(raw, &ident); err != nil {
		return ident, errs.New(errs.Corrupt, "", "", err)
	}
	if ident.Engine != engineName {
		return ident, errs.Newf(errs.Version, "", "",
			"the folder belongs to engine %q, this is %q", ident.Engine, engineName)
	}
	if id, err := hex.DecodeString(ident.StoreID); err != nil || len(id) != 16 || ident.Format < 1 {
		return ident, errs.Newf(errs.Corrupt, "", "", "store id or format makes no sense")
	}
	return ident, nil
}

// makeStore turns the folder into a store. The identity comes last.
func makeStore(o Options) (identity, error) {
	ident := identity{
		Magic: identityMagic, Format: formatVersion, Engine: engineName, ServerID: o.ServerID,
	}
	var id [16]byte
	if _, err := rand.Read(id[:]); err != nil {
		return ident, err
	}
	ident.StoreID = hex.EncodeToString(id[:])
	err := os.Mkdir(filepath.Join(o.Dir, objectsName), 0o700)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return ident, err
	}
	// Fences of a store that was never completed are nobody's.
	err = os.Remove(filepath.Join(o.Dir, fencesName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return ident, err
	}
	raw, err := json.MarshalIndent(ident, "", "  ")
	if err != nil {
		return ident, err
	}
	return ident, replaceFile(o.Dir, identityName, append(raw, '\n'))
}

// replaceFile puts a file in place, whole or not at all, and durably.
func replaceFile(dir, name string, content []byte) error {
	tmp := filepath.Join(dir, name+".tmp")
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(tmp, filepath.Join(dir, name))
	}
	if err != nil {
		return err
	}
	return syncDir(dir)
}
