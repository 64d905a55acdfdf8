package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/sluice-storage/sluice/kv"
	"github.com/sluice-storage/sluice/kv/pebblekv"
)

// isCode compares the exit code of the last program.
func (s *session) isCode(args []string) error {
	want, err := strconv.Atoi(args[0])
	if err == nil && s.code != want {
		err = fmt.Errorf("exit code %d", s.code)
	}
	return err
}

// spoil miscounts the entries of the root directory and all files, and takes the inode of every
// file away whose name begins with "lose".
func (s *session) spoil(args []string) error {
	c, err := openCluster(s.path(args[0]))
	if err != nil {
		return err
	}
	db, err := pebblekv.Open(pebblekv.Options{Dir: c.metaDir()})
	if err != nil {
		return err
	}
	root := "\x00\x00\x00\x00\x00\x00\x00\x01"
	t := &kv.Txn{Adds: []kv.Add{{Key: []byte("N" + root), Delta: 5},
		{Key: []byte("Afiles"), Delta: -3}}}
	snap := db.Snapshot()
	prefix := []byte("D" + root + "lose")
	err = snap.Scan(prefix, kv.PrefixEnd(prefix), func(_, value []byte, _ kv.Version) bool {
		t.Deletes = append(t.Deletes, append([]byte("I"), value[2:10]...))
		return true
	})
	if err = errors.Join(err, snap.Close()); err == nil {
		_, err = db.Commit(context.Background(), t)
	}
	return errors.Join(err, db.Close())
}
