package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/sluice-storage/sluice/capability"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

// serverKeys are the keys of one I/O server. The metadata service tells them with every heartbeat.
// They are kept in a file beside the server's store, so that it can start and serve while the
// service is away:
//
//	{"format": 1, "server": 4, "keys": [{"generation": 3, "key": "base64"},
//	                                    {"generation": 2, "key": "base64"}]}
//
// In a cluster without an authority they are derived from cluster.key, and there is no file.
type serverKeys struct {
	id   uint32
	file string
	ring *capability.Keyring
	log  *slog.Logger
}

// serverKeysFile is such a file.
type serverKeysFile struct {
	Format int         `json:"format"`
	Server uint32      `json:"server"`
	Keys   []serverKey `json:"keys"`
}

type serverKey struct {
	Generation uint32 `json:"generation"`
	Key        []byte `json:"key"`
}

func (c *cluster) serverKeysFile(id uint32) string { return c.path(fmt.Sprintf("iod%d.keys", id)) }

// serverKeys finds the keys that a server begins with. On a host without cluster.key there are none
// until the metadata service has been heard of for the first time.
func (c *cluster) serverKeys(id uint32, log *slog.Logger) (*serverKeys, error) {
	k := &serverKeys{id: id, file: c.serverKeysFile(id), ring: &capability.Keyring{}, log: log}
	ring, err := readServerKeys(k.file, id)
	switch {
	case err == nil:
		log.Info("keys are those that the metadata service told last", "file", k.file,
			"generations", ring.Gens())
		k.ring.Set(ring)
	case !errors.Is(err, os.ErrNotExist):
		return nil, hint(err, "Only its owner may read the file: chmod 600 %[1]s   If it is damaged, "+
			"remove it: the metadata service tells the keys again", k.file)
	case c.key != (capability.Key{}):
		k.ring.Set(c.key.ServerKey(id).Ring())
	default:
		log.Info("no keys yet: requests wait until the metadata service has told them")
	}
	return k, nil
}

// readServerKeys reads a file of keys, which must be for the eyes of its owner only.
func readServerKeys(name string, id uint32) (capability.Ring, error) {
	info, err := os.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Mode().Perm()&0o077 != 0 || info.Size() > 64<<10 {
		return nil, errs.Newf(errs.Perm, "keys", name, "mode %v: others can read or replace it",
			info.Mode())
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var f serverKeysFile
	if err := json.Unmarshal(text, &f); err != nil {
		return nil, errs.New(errs.Corrupt, "keys", name, err)
	}
	if f.Format != 1 || f.Server != id {
		return nil, errs.Newf(errs.Corrupt, "keys", name, "format %d, of I/O server %d", f.Format,
			f.Server)
	}
	var ring capability.Ring
	for _, k := range f.Keys {
		if len(k.Key) != len(capability.Key{}) {
			return nil, errs.Newf(errs.Corrupt, "keys", name, "a key of %d bytes", len(k.Key))
		}
		ring = append(ring, capability.Numbered{Gen: k.Generation, Key: capability.Key(k.Key)})
	}
	if err := ring.Check(); err != nil {
		return nil, errs.New(errs.Corrupt, "keys", name, err)
	}
	return ring, nil
}

// write replaces the file.
func (k *serverKeys) write(ring capability.Ring) error {
	f := serverKeysFile{Format: 1, Server: k.id}
	for _, x := range ring {
		f.Keys = append(f.Keys, serverKey{x.Gen, x.Key[:]})
	}
	text, err := json.Marshal(f)
	if err != nil {
		return err
	}
	return writeFile(k.file, append(text, '\n'), 0o600)
}

// ask hears from the metadata service which keys are valid, and tells it which of them the server
// has. New ones are confirmed at once: the service waits for that before it signs with them.
func (k *serverKeys) ask(ctx context.Context, of meta.ServerKeys) error {
	for {
		told, err := of.ServerKeys(ctx, meta.Caller{}, k.id, k.ring.Ring().Newest())
		if err != nil {
			return err
		}
		if !k.ring.Set(told) {
			return nil
		}
		if told.Newest() == capability.First { // that of cluster.key, which is there
			return nil
		}
		k.log.Info("keys of capabilities", "generations", told.Gens())
		if err := k.write(told); err != nil { // the next start has to wait for the service
			k.log.Warn("the keys could not be kept", "err", err)
		}
	}
}

// sign proves to the metadata service that this is the server.
func (k *serverKeys) sign(s *meta.Server) (mac [32]byte, err error) {
	ring := k.ring.Ring()
	if len(ring) == 0 {
		return mac, errs.Newf(errs.Again, "keys", "", "the metadata service has told no keys yet")
	}
	return meta.SignJoin(ring[0].Key, s), nil
}
