package store

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/hint"
	"github.com/sluice-storage/sluice/identity"
	"github.com/sluice-storage/sluice/layout"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/acl"
	"github.com/sluice-storage/sluice/wire"
)

// encoded is a record that can be written.
type encoded interface {
	record
	encode() []byte
}

// samples holds a record of every format.
func samples() []encoded {
	l := layout.Layout{Version: 1, Unit: layout.UnitDefault, Servers: []uint32{3, 1, 2}}
	return []encoded{
		&inode{Type: meta.Regular, Flags: flagData, Mode: 0o644, UID: 1, GID: 2, Nlink: 3, Gen: 4,
			Size: 5, Atime: meta.Time{Sec: 1 << 62, Nsec: 6}, Mtime: meta.Time{Sec: 7}, TruncSeq: 9,
			Ctime: meta.UnixTime(0, -8), Btime: meta.Time{Sec: -1 << 62, Nsec: 999_999_999},
			DataVersion: 10, Pending: 11, Losses: 12,
			Layout: l},
		&inode{Type: meta.Directory, Nlink: 1, Parent: 77},
		&inode{Type: meta.Directory, Nlink: 1, Parent: 77, Hints: hint.Hints{Policy: hint.PolicyKeep}},
		&inode{Type: meta.Regular, Layout: l, Hints: hint.Hints{Mode: hint.Direct,
			Streams: hint.StreamsSingle, UnitBytes: 8 << 10, ChunkBytes: 64 << 10}},
		&inode{Type: meta.Symlink, Target: "../there"},
		&inode{Type: meta.CharDevice, Rdev: 0x501, homes: homes{first: home{9, 1}}},
		&inode{Type: meta.Symlink, Target: "x", homes: homes{first: home{9, 2},
			rest: []home{{10, 65000}, {11, 1}}}},
		&inode{Type: meta.Regular, Layout: l, Quota: 7, Reserved: 8},
		&inode{Type: meta.Directory, Nlink: 1, Quota: 7, Hints: hint.Hints{Policy: hint.PolicyKeep}},
		&inode{Type: meta.Directory, Nlink: 1, Quota: 7, ACL: someList, Default: someList},
		&inode{Type: meta.Fifo, Nlink: 1, ACL: someList},
		&inode{Type: meta.Directory, Nlink: 1, Policy: policy{Unit: 64 << 10, Width: 3, Pool: 9}},
		&inode{Type: meta.Regular, Layout: l, Policy: policy{Width: layout.WidthAll}, Quota: 7,
			Reserved: 8, ACL: someList},
		&pool{ID: 5, Servers: []uint32{1, 4, 9}},
		&quota{Dir: 1, Limit: meta.Usage{Bytes: 2, Inodes: 3}, Counting: true},
		&entry{Type: meta.Fifo, Ino: 5, Cookie: 6},
		&times{Mtime: meta.UnixTime(0, 1), Ctime: meta.UnixTime(0, 2)},
		&session{State: sessionDead, Created: 5, Client: "who"},
		&session{State: sessionLive, Client: "x", Peer: meta.Peer{Kind: identity.Client, Name: "ann"}},
		&removal{meta.FileRef{Gen: 1, TruncSeq: 2, Layout: l}},
		&volume{Ino: 8, Created: 9},
		&server{meta.Server{Addr: "host:1", StoreID: 1, Verifier: 2, LastSeen: 3, Total: 4, Free: 5,
			Life: 6, MaxFile: 7, State: meta.StateSlow, Since: 9, Incarnation: 10, Start: 11, Host: "h",
			Version: "v"}, 8},
		&xattr{Value: []byte{1, 2, 3}},
	}
}

// someList is one for the owner, the group, a mask and others.
const someList acl.List = "\x02\x00\x00\x00\x01\x00\x07\x00\xff\xff\xff\xff" +
	"\x04\x00\x05\x00\xff\xff\xff\xff\x10\x00\x05\x00\xff\xff\xff\xff" +
	"\x20\x00\x04\x00\xff\xff\xff\xff"

func empty(r encoded) encoded {
	switch r.(type) {
	case *inode:
		return &inode{}
	case *quota:
		return &quota{}
	case *pool:
		return &pool{}
	case *entry:
		return &entry{}
	case *times:
		return &times{}
	case *session:
		return &session{}
	case *removal:
		return &removal{}
	case *volume:
		return &volume{}
	case *server:
		return &server{}
	}
	return &xattr{}
}

func TestRecordsSurviveStorage(t *testing.T) {
	for _, want := range samples() {
		b := want.encode()
		got := empty(want)
		if err := parse([]byte("key"), b, got); err != nil {
			t.Fatalf("%T: %v", want, err)
		}
		if d := cmp.Diff(want, got, cmp.AllowUnexported(inode{}, charge{}, homes{}, home{})); d != "" {
			t.Fatalf("%T: %s", want, d)
		}
		newest := byte(recordVersion)
		if _, ok := want.(*inode); ok {
			newest = versionPolicy
		}
		newer := append([]byte{newest + 1}, b[1:]...)
		if err := parse([]byte("key"), newer, got); errs.KindOf(err) != errs.Version {
			t.Fatalf("%T of a newer version: %v", want, err)
		}
		if _, free := want.(*xattr); free {
			continue // any bytes are a value
		}
		for cut := range b {
			if parse([]byte("key"), b[:cut], empty(want)) == nil {
				t.Fatalf("%T cut to %d of %d bytes is accepted", want, cut, len(b))
			}
		}
	}
}

// TestRecordOfAVolume: generations of writers are at the end of the record, where older ones have
// nothing: a group whose first one is not told has had no other.
func TestRecordOfAVolume(t *testing.T) {
	const shared = flagVolume | flagShared
	for _, c := range []struct {
		flags                   uint16
		epoch, first, wantFirst uint32
	}{{flagVolume, 5, 0, 5}, {shared, 5, 5, 5}, {shared, 5, 3, 3}} {
		want := &inode{Type: meta.Regular, Flags: c.flags, Epoch: c.epoch, First: c.first,
			Layout: layout.Layout{Unit: 64 << 10, Servers: []uint32{1}, Version: 1}}
		b, got := want.encode(), &inode{}
		if err := parse([]byte("key"), b, got); err != nil {
			t.Fatalf("%+v: %v", c, err)
		}
		if got.Epoch != c.epoch || got.first() != c.wantFirst || !bytes.Equal(got.encode(), b) {
			t.Errorf("%+v: generation %d of a group from %d on", c, got.Epoch, got.first())
		}
		for _, other := range []uint32{0, c.epoch, c.epoch + 1} {
			e := wire.Enc{B: bytes.Clone(b)}
			e.U32(other)
			if parse([]byte("key"), e.B, &inode{}) == nil {
				t.Errorf("%+v, and a group from %d on, is accepted", c, other)
			}
		}
	}
}

func FuzzRecord(f *testing.F) {
	for i, r := range samples() {
		f.Add(uint8(i), r.encode())
	}
	all := samples()
	f.Fuzz(func(t *testing.T, kind uint8, b []byte) {
		r := empty(all[int(kind)%len(all)])
		if parse([]byte("key"), b, r) != nil {
			return
		}
		if again := r.encode(); b[0] == recordVersion && !bytes.Equal(again, b) {
			t.Fatalf("%T: accepted %x, which encodes to %x", r, b, again)
		}
	})
}
