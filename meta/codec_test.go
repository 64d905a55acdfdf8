package meta

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/sluice-storage/sluice/capability"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/hint"
	"github.com/sluice-storage/sluice/layout"
	"github.com/sluice-storage/sluice/meta/acl"
)

// someList is one for the owner, the group, a mask and others.
const someList acl.List = "\x02\x00\x00\x00\x01\x00\x07\x00\xff\xff\xff\xff" +
	"\x04\x00\x05\x00\xff\xff\xff\xff\x10\x00\x05\x00\xff\xff\xff\xff" +
	"\x20\x00\x04\x00\xff\xff\xff\xff"

// drawTime draws one of all times.
func drawTime(t *rapid.T, what string) Time {
	return Time{rapid.Int64().Draw(t, what), rapid.Uint32Range(0, secondNs-1).Draw(t, what+" ns")}
}

func drawAttr(t *rapid.T) Attr {
	n := rapid.Int64()
	a := Attr{
		Ino: Ino(rapid.Uint64().Draw(t, "ino")), Type: Type(rapid.Uint8().Draw(t, "type")),
		Mode: 0o644, UID: 1, GID: 2, Nlink: 3, Rdev: 4, Size: n.Draw(t, "size"),
		Atime: drawTime(t, "atime"), Mtime: Time{6, 7}, Ctime: Time{-8, 9}, Btime: drawTime(t, "btime"),
		Gen: 8, TruncSeq: 9, DataVersion: 10,
		Writers: rapid.Bool().Draw(t, "writers"), Holes: rapid.Bool().Draw(t, "holes"),
		Allocated: n.Draw(t, "allocated"), Small: rapid.Bool().Draw(t, "small"),
		Xattrs: rapid.Bool().Draw(t, "xattrs"), Lease: LeaseMode(rapid.Uint8().Draw(t, "lease")),
		Serial: rapid.Uint64().Draw(t, "serial"),
	}
	if a.Type == Directory {
		a.Parent = Ino(rapid.Uint64().Draw(t, "parent"))
	}
	for _, l := range []*acl.List{&a.ACL, &a.Default} {
		if rapid.Bool().Draw(t, "list") {
			*l = someList
		}
	}
	if width := rapid.IntRange(0, 5).Draw(t, "width"); width > 0 {
		a.Layout = layout.Layout{Version: 1, Unit: layout.UnitDefault, Servers: make([]uint32, width)}
	}
	return a
}

func drawArgs(t *rapid.T) Args {
	name := rapid.StringN(0, 60, NameMax)
	change := Change{Ino: 1, Size: -2, TruncSeq: 3, Mtime: drawTime(t, "mtime"), Holes: true, Epoch: 5,
		Whole: true, Data: rapid.SliceOfN(rapid.Byte(), 1, 99).Draw(t, "data")}
	a := Args{
		Caller: Caller{Session: 5, ReqID: [16]byte{1, 2}, Leases: true, Cred: Cred{UID: 6, GID: 7,
			Groups: rapid.SliceOfN(rapid.Uint32(), 1, 99).Draw(t, "groups")}},
		Ino: 1, Dir: 2, NewDir: 3, Name: name.Draw(t, "name"), NewName: name.Draw(t, "new"),
		Client: "client", File: NewFile{Type: Symlink, Mode: 1, Umask: 2, Rdev: 2, Target: "t",
			Unit: 3, Width: -4, Pool: "p", Checked: true, Sole: true},
		Open: 3, Rename: 2, Mask: 0x101, Attr: Attr{Mode: 1, UID: 2, GID: 3, Size: -4,
			Atime: drawTime(t, "atime"), Mtime: Time{-6, 7}},
		Accesses: []Access{{Ino: 6, Was: drawTime(t, "was"), At: Time{5, 6}, Relative: true}, {}},
		Cookie:   9, Max: 10, WithAttr: true, IsDir: true, Create: true, Replace: true, Sync: true,
		Last: true, Value: rapid.SliceOfN(rapid.Byte(), 1, 99).Draw(t, "value"), Size: -5,
		Version: 11, Life: 12, Handle: 13, Change: change,
		Closing:  Closing{Handle: 15, Dirty: true, Change: change},
		Closings: []Closing{{Handle: 16}, {Handle: 17, Dirty: true, Change: change}},
		Deferred: []Deferred{{Kind: DeferTouch, Dir: 1, At: drawTime(t, "at")},
			{Kind: DeferRemove, Dir: 2, Name: name.Draw(t, "gone"), Ino: 3, File: NewFile{Type: Directory}},
			{Kind: DeferMake, Dir: 4, Name: "made", Ino: 5, At: Time{6, 7}, File: NewFile{Type: Symlink,
				Mode: 8, Rdev: 9, Target: "t"}, UID: 10, GID: 11, Gen: 12, Open: 3, Handle: 13, Dirty: true,
				Change: change}},
		Listen: Listening{Session: 18, Seen: 19, WaitMs: 20, Map: 21, About: &About{"v1", "/mnt"},
			Acks: []Recall{{1, 2, true}, {3, 4, false}}},
		Claims:  []Claimed{{Handle: 21, Ino: 22, Flags: 3, UID: 23, Write: true, DataVersion: 24}},
		Session: 14, Mac: [32]byte{31: 9},
		Handles: rapid.SliceOfN(rapid.Uint64(), 1, 9).Draw(t, "handles"),
		Limit:   Usage{Bytes: 1, Inodes: 2},
		Policy:  layout.Policy{Unit: 1, Width: 2, Pool: "p"}, Add: []uint32{1, 2}, Drop: []uint32{3},
		Server: Server{ID: 1, Addr: "a", StoreID: 2, Total: 3, Free: 4, Verifier: 5, Incarnation: 6,
			Start: 7, Host: "h1", Version: "v1", Leaving: true},
		Host: Host{Name: "h1", Incarnation: 1, Start: 2, Version: "v2", Roles: 3, Leaving: true},
		Lock: drawLock(t), Locks: []Lock{drawLock(t), {}}, Mode: LockWait, More: true, LockLife: 15,
		LockAfter: 16, WaitMs: 17,
		Step: CheckStep{Run: 1, Step: 2, Repair: true, Max: 3},
		View: 15, After: []byte("key"), Registry: drawRegistryArgs(t),
		Scan: Scan{Cookie: 18, Name: name.Draw(t, "from"), ByName: true, Max: 19, Attrs: true,
			Bytes: 20},
	}
	return a
}

func drawResult(t *rapid.T) Result {
	a := drawAttr(t)
	q := Quota{ID: 1, Dir: 2, Path: "/p", Limit: Usage{3, 4}, Used: Usage{5, 6}, Counting: true}
	h := Handle{ID: 3, Attr: a, Hints: hint.Hints{Policy: hint.PolicyLRU}, Bounded: true, GrowTo: 8,
		Caps: [][capability.Bytes]byte{{1}, {63: 2}}, Data: []byte{}}
	v := Volume{Name: "v", Ino: 1, Size: 2, Created: 3, Layout: a.Layout, Writer: "host:1",
		Epoch: 9, First: 7, Shared: true, Asked: true}
	return Result{
		Attr: a, Off: 7, Target: "target", Value: []byte{1},
		Small: SmallData{Bytes: []byte("data"), Teller: 77}, Names: []string{"user.a", "user.b"},
		Entries: []Entry{{Name: "x", Ino: 1, Type: Fifo, Cookie: 2}, {Name: "y", Cookie: 3, Attr: &a}},
		Handle:  h, Handles: []Handle{h, {ID: 4}}, Volume: v, Volumes: []Volume{v, v},
		Session: SessionInfo{ID: 1, LeaseMs: 2, ClusterID: 3, LeaseTimeMs: 4, Life: 5, Epoch: 6,
			Squashed: true, ReadOnly: true},
		FS: FSStat{1, 2, 3, 4}, Quota: q, Quotas: []Quota{q, {ID: 9}},
		Placed: Placed{layout.Policy{Unit: 1, Width: 2, Pool: "p"}, a.Layout},
		Pool:   Pool{"p", 4, []uint32{5, 6}}, Pools: []Pool{{"q", 7, nil}, {"r", 8, []uint32{9}}},
		Ended:   []Ended{{Version: 7}, {Kind: errs.Fenced}},
		First:   1 << 40,
		Settled: []Settled{{Kind: errs.Quota}, {Lease: LeaseSole, Serial: 7}},
		Found:   Found{Dir: a, Present: true, Attr: a, Cookie: 4, Target: "t", Data: []byte{1, 2}},
		Scanned: Scanned{Dir: a, End: true, Entries: []Entry{{Name: "x", Cookie: 5},
			{Name: "y", Ino: 7, Type: Regular, Cookie: 6, Attr: &a, Data: []byte{3}}}},
		Heard:  Heard{Life: 1, Epoch: 2, Extended: true, Map: 3, Recalls: []Recall{{1, 2, true}}},
		Claims: []Regained{{Gone: true, Lease: LeaseWrite, Serial: 9, DataVersion: 10}, {}},
		Servers: []Server{{ID: 1, Addr: "a", State: StateSlow, Up: true, Since: 4, LastSeen: 5,
			Total: 1, Host: "h", Keys: 9}, {ID: 2, State: StateGone}},
		Hosts: []Host{{Name: "h1", Incarnation: 1, Start: 2, Version: "v", Roles: 4, State: StateLeaving,
			Since: 5, LastSeen: 6}, {State: StateDown}},
		Clients: []Client{{Session: 1, Name: "c", Peer: Peer{2, "ann"}, About: About{"v", "/m"}, Open: 3,
			Since: 4, LastSeen: 5}, {}},
		State: LockQueued, Lock: drawLock(t), Held: true, Locks: []Lock{{}, drawLock(t)},
		News: LockNews{Life: 1, Next: 2, Events: []LockEvent{{[16]byte{15: 1}, errs.Deadlock}}},
		Check: CheckPage{Stage: "files", Stages: 9, At: 1, Looked: 2, End: true, Findings: []Finding{
			{Kind: LinkCount, State: Repaired, Ino: 1, Dir: 2, Name: "n", Server: 3, Text: "text"}}},
		Dump: DumpPage{Records: []byte{1, 2}, Count: 3, Last: []byte{4}, End: true, Version: 5},

		Registry: drawRegistryResult(t),
	}
}

func drawLock(t *rapid.T) Lock {
	return Lock{Ino: 3, Owner: rapid.Uint64().Draw(t, "owner"), Kind: LockRange,
		Type: LockExclusive, Start: 4, End: LockEndMax, PID: 5}
}

// allOps lists the operations.
func allOps() (all []Op) {
	for op := range OpEnd {
		if op.Valid() {
			all = append(all, op)
		}
	}
	return all
}

// TestEveryOperationSurvivesTheWire: what is encoded decodes to something that encodes to the same
// bytes, and every field that a row names is there again.
func TestEveryOperationSurvivesTheWire(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, r := drawArgs(t), drawResult(t)
		var allArgs Args
		var allRes Result
		for _, op := range allOps() {
			b := a.Append(op, nil)
			var got Args
			if err := got.Decode(op, b); err != nil {
				t.Fatalf("%v: %v", op, err)
			}
			if !bytes.Equal(got.Append(op, nil), b) {
				t.Fatalf("%v: arguments change on the way", op)
			}
			for cut := range b {
				if errs.KindOf(new(Args).Decode(op, b[:cut])) != errs.Protocol {
					t.Fatalf("%v: cut to %d of %d bytes is accepted", op, cut, len(b))
				}
			}
			_ = decodeFields(op, ops[op].args, &allArgs, b)
			b = r.Append(op, nil)
			if err := allRes.Decode(op, b); err != nil {
				t.Fatalf("%v: %v", op, err)
			}
		}
		if d := cmp.Diff(a, allArgs); d != "" {
			t.Fatalf("arguments: %s", d)
		}
		if d := cmp.Diff(r, allRes); d != "" {
			t.Fatalf("answers: %s", d)
		}
	})
}

func TestOpsAreComplete(t *testing.T) {
	seen := map[string]bool{}
	for _, op := range allOps() {
		if name := op.String(); name == "" || name == "unknown" || seen[name] {
			t.Errorf("operation %d is called %q", op, name)
		} else {
			seen[name] = true
		}
	}
	for _, op := range []Op{0, OpSucceed - 1, OpEnd, 9999} {
		if errs.KindOf(new(Args).Decode(op, nil)) != errs.Unsupported {
			t.Errorf("operation %d is accepted", op)
		}
	}
	// Written out, because a number that moves breaks every client in the field.
	if OpLookup != 1 || OpGetAttr != 8 || OpClose != 18 || OpStatFS != 29 ||
		OpAppend != 31 || OpFind != 33 || OpMoveOut != 38 || OpAppended != 39 ||
		OpLock != 45 || OpClaimLocks != 49 || OpCheck != 50 ||
		OpRemoveTree != 52 || OpScan != 54 || OpSucceed != 58 || OpHeldLocks != 59 ||
		OpGrow != 60 || OpRemoveQuota != 64 || OpCreateToken != 80 || OpSetGeneration != 91 ||
		OpReserveServers != 92 || OpServerKeys != 93 || OpBeat != 100 || OpRemoveServer != 103 {
		t.Error("operations were renumbered")
	}
}

func TestJoinMac(t *testing.T) {
	s := Server{ID: 3, Addr: "a:1", StoreID: 4, Total: 5, Free: 6, Verifier: 7}
	key := capability.Key{1}.ServerKey(3)
	mac := SignJoin(key, &s)
	if !VerifyJoin(key, &s, mac) {
		t.Fatal("own mac is refused")
	}
	for _, change := range []func(*Server){
		func(s *Server) { s.ID++ }, func(s *Server) { s.Addr += "0" },
		func(s *Server) { s.StoreID++ }, func(s *Server) { s.Total++ },
		func(s *Server) { s.Free++ }, func(s *Server) { s.Verifier++ },
		func(s *Server) { s.Incarnation++ }, func(s *Server) { s.Start++ },
		func(s *Server) { s.Host += "x" }, func(s *Server) { s.Version += "x" },
		func(s *Server) { s.Leaving = true },
	} {
		other := s
		change(&other)
		if VerifyJoin(key, &other, mac) {
			t.Errorf("mac of %+v is accepted for %+v", s, other)
		}
	}
	if VerifyJoin(capability.Key{1}.ServerKey(4), &s, mac) {
		t.Error("another server's key is accepted")
	}
}

func FuzzArgs(f *testing.F) {
	a := rapid.Custom(drawArgs).Example(1)
	for _, op := range allOps() {
		f.Add(uint16(op), a.Append(op, nil))
	}
	f.Fuzz(func(t *testing.T, op uint16, b []byte) {
		var got Args
		if got.Decode(Op(op), b) != nil {
			return
		}
		if again := got.Append(Op(op), nil); !bytes.Equal(again, b) {
			t.Fatalf("%v: accepted %x, which encodes to %x", Op(op), b, again)
		}
	})
}

func FuzzResult(f *testing.F) {
	r := rapid.Custom(drawResult).Example(1)
	for _, op := range allOps() {
		f.Add(uint16(op), r.Append(op, nil))
	}
	f.Fuzz(func(t *testing.T, number uint16, b []byte) {
		op := Op(number)
		var got Result
		if !op.Valid() || got.Decode(op, b) != nil {
			return
		}
		if again := got.Append(op, nil); !bytes.Equal(again, b) {
			t.Fatalf("%v: accepted %x, which encodes to %x", op, b, again)
		}
	})
}
