package main

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/sluice-storage/sluice/capability"
	"github.com/sluice-storage/sluice/config"
	"github.com/sluice-storage/sluice/errs"
)

// defaultListen is where the metadata service is found unless told otherwise.
const defaultListen = config.DefaultListen

// defaultDir is a cluster's folder unless told otherwise.
const defaultDir = ".sluice"

// iodsMax bounds a cluster on one host: more processes than this help nobody.
const iodsMax = config.IodsMax

// cluster is a cluster's folder.
//
//	cluster.json   what the cluster is; written last, so that it is there only when the rest is
//	sluice.toml    what this host runs of it: package config
//	cluster.key    the key that capabilities are signed with, for the owner's eyes only
//	cluster.secret what clients prove that they know; who may read it may use the cluster
//	meta/          the metadata service's store
//	iod1/ ...      the I/O servers' stores, unless the cluster was made with --store
//	log/           output of each process
//	run/           what is true while it runs: lock, state.json, meta.addr, up.json, stores.json,
//	               sockets for processes of this host: meta.sock, iod1.sock ..., and ballast: space
//	               for these
type cluster struct {
	dir string // absolute
	as  string // as the user wrote it; may be empty
	cfg clusterConfig
	key capability.Key
}

// clusterConfig is cluster.json.
type clusterConfig struct {
	Format int    `json:"format"` // of this folder: 1
	ID     string `json:"id"`     // 16 hexadecimal digits
	Iods   int    `json:"iods"`
	Mem    bool   `json:"mem"` // data in memory: gone when the cluster stops
	// Stores are where the I/O servers' stores lie: folders or block devices; none: in this folder.
	Stores []string `json:"stores,omitempty"`
	Listen string   `json:"listen"`
	// Unfinished is set until all stores have been made. Until then nothing was ever served, and what
	// is half made can be made anew.
	Unfinished bool `json:"unfinished,omitempty"`

	Name string `json:"name,omitempty"` // of the cluster, for people
	Host string `json:"host,omitempty"` // the name of this host in it

	// Security is how its processes know each other; empty: by the secret.
	Security config.Security `json:"security,omitempty"`

	// Joined is set on a host that is not the cluster's first: it has neither its authority nor its
	// secret, and its I/O servers are told their keys.
	Joined bool `json:"joined,omitempty"`
}

func (c *cluster) path(parts ...string) string {
	return filepath.Join(append([]string{c.dir}, parts...)...)
}

func (c *cluster) keyFile() string            { return c.path("cluster.key") }
func (c *cluster) lockFile() string           { return c.path("run", "lock") }
func (c *cluster) stateFile() string          { return c.path("run", "state.json") }
func (c *cluster) metaAddrFile() string       { return c.path("run", "meta.addr") }
func (c *cluster) upFile() string             { return c.path("run", "up.json") }
func (c *cluster) storesFile() string         { return c.path("run", "stores.json") }
func (c *cluster) configFile() string         { return c.path(config.FileName) }
func (c *cluster) metaDir() string            { return c.path("meta") }
func (c *cluster) iodDir(id int) string       { return c.path(fmt.Sprintf("iod%d", id)) }
func (c *cluster) logFile(name string) string { return c.path("log", name+".log") }

// shown is the folder as the user called it.
func (c *cluster) shown() string {
	if c.as != "" {
		return c.as
	}
	return c.dir
}

// clusterID is the id as a number; 0: it is none.
func (c *cluster) clusterID() uint64 {
	b := c.idBytes()
	if len(b) != 8 {
		return 0
	}
	return binary.BigEndian.Uint64(b)
}

func (c *cluster) idBytes() []byte {
	b, err := hex.DecodeString(c.cfg.ID)
	if err != nil {
		return nil
	}
	return b
}

// openCluster reads an existing folder.
func openCluster(dir string) (*cluster, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	c := &cluster{dir: abs, as: dir}
	text, err := os.ReadFile(c.path("cluster.json"))
	if errors.Is(err, os.ErrNotExist) {
		return nil, hint(errs.Newf(errs.NotFound, "cluster", dir, "no cluster.json in it"),
			"Make a cluster there with: sluice up --dir %s", dir)
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &c.cfg); err != nil {
		return nil, errs.New(errs.Corrupt, "cluster", c.path("cluster.json"), err)
	}
	if c.cfg.Format != 1 || c.clusterID() == 0 {
		return nil, errs.Newf(errs.Version, "cluster", c.path("cluster.json"),
			"format %d, id %q", c.cfg.Format, c.cfg.ID)
	}
	return c, c.readKey()
}

func (c *cluster) readKey() error {
	if c.cfg.Joined {
		return nil
	}
	text, err := os.ReadFile(c.keyFile())
	if err != nil {
		return err
	}
	b, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(b) != len(c.key) {
		return errs.Newf(errs.Corrupt, "cluster", c.keyFile(), "want 64 hexadecimal digits")
	}
	c.key = capability.Key(b)
	return nil
}

// createCluster fills a folder. It may exist, but must not hold a cluster.
func createCluster(dir string, cfg clusterConfig) (*cluster, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	c := &cluster{dir: abs, as: dir, cfg: cfg}
	var id [8]byte
	rand.Read(id[:])
	rand.Read(c.key[:])
	c.cfg.Format, c.cfg.ID = 1, hex.EncodeToString(id[:])
	if err := os.MkdirAll(abs, 0o700); err != nil {
		return nil, err
	}
	if err := c.checkPrivate(); err != nil {
		return nil, err
	}
	key := hex.EncodeToString(c.key[:]) + "\n"
	if err := writeFile(c.keyFile(), []byte(key), 0o600); err != nil {
		return nil, err
	}
	if err := c.makeDirs(); err != nil {
		return nil, err
	}
	return c, c.saveConfig()
}

// makeDirs makes what is missing: a cluster that grew lacks folders, an older one the secret.
func (c *cluster) makeDirs() error {
	dirs := []string{c.path("log"), c.path("run")}
	if !c.cfg.Joined {
		dirs = append(dirs, c.metaDir())
	}
	for _, id := range c.servers() {
		for _, path := range c.storePaths(id) {
			if !isBlockDevice(path) {
				dirs = append(dirs, path)
			}
		}
	}
	for _, d := range dirs {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return err
		}
	}
	if c.cfg.Joined {
		return c.checkPrivate()
	}
	return c.makeSecret()
}

func (c *cluster) saveConfig() error {
	text, err := json.MarshalIndent(c.cfg, "", "  ")
	if err != nil {
		return err
	}
	text = append(text, '\n')
	if old, err := os.ReadFile(c.path("cluster.json")); err == nil && bytes.Equal(old, text) {
		return nil // a start changes nothing, and needs no space
	}
	return writeFile(c.path("cluster.json"), text, 0o644)
}

// writeFile replaces a file atomically and durably: the old or the new content is there, never a
// part. On a full disk it takes the space that the cluster's folder keeps for that.
func writeFile(name string, text []byte, perm os.FileMode) error {
	return withBallast(filepath.Dir(name), func() error { return replaceFile(name, text, perm) })
}

func replaceFile(name string, text []byte, perm os.FileMode) error {
	temp := name + ".tmp"
	f, err := os.OpenFile(temp, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, perm)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(temp, name)
	}
	if err != nil {
		return err
	}
	d, err := os.Open(filepath.Dir(name))
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
