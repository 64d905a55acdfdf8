// Package metatest is the definition of what a meta.Service does, as tests: every implementation
// passes all of it. The implementation is given a clock, stripe objects and short times by the
// suite, and gives back a way to restart it.
//
// It does not test engines (kvtest does) nor the network (package msg does), only what a service
// promises on top of them.
//
// Read metatest.go first, then the file of the operation in question; random.go compares long
// random histories with a model of a POSIX name space (model.go).
package metatest

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/capability"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

// Config is what the service under test must be made with.
type Config struct {
	Objects meta.Objects
	Key     capability.Keys
	Host    string // the name of the service's own host
	Clock   func() time.Time
	Lease   time.Duration
	CapTTL  time.Duration

	LeaseTime time.Duration
	Tick      time.Duration
}

// Instance is a service under test.
type Instance struct {
	Service meta.Service

	// Restart ends the service as a crash of its process would and starts it again on the same
	// store. Service is the new one afterwards.
	Restart func(t testing.TB)

	// As is the service as a member reaches it: see the function As.
	As func(p meta.Peer) meta.Service

	// Verify fails the test when the stored records contradict each other. May be nil.
	Verify func(t testing.TB)
}

// Open makes a service on an empty store. It cleans up by t.Cleanup.
type Open func(t testing.TB, c Config) *Instance

// testCase is one test of the suite.
type testCase struct {
	name string
	test func(e *env)
}

// run runs one test, unless there is a reason not to.
func (c *testCase) run(t *testing.T, open Open, except string) {
	if except != "" {
		t.Skip(except)
	}
	c.test(newEnv(t, open))
}

// Run runs the suite. Each test has a service of its own.
func Run(t *testing.T, open Open) { RunExcept(t, open, nil) }

// RunExcept runs the suite without some of its tests: by name, with the reason.
func RunExcept(t *testing.T, open Open, except map[string]string) {
	for _, c := range slices.Concat(membershipCases, registryCases, serverKeyCases, leaseCases,
		deferredCases, holdCases, quotaCases, lockCases(), treeCases(), upkeepCases(), aclCases,
		timeCases(), namelessCases(), successionCases(), layoutCases(), scanCases(), volumeCases,
		[]testCase{
			{"Make", testMake},
			{"MakeRefusals", testMakeRefusals},
			{"Devices", testDevices},
			{"Lookup", testLookup},
			{"Link", testLink},
			{"Remove", testRemove},
			{"RemoveRefusals", testRemoveRefusals},
			{"TimeTold", testTimeTold},
			{"Rename", testRename},
			{"RenameRefusals", testRenameRefusals},
			{"RenameExchange", testRenameExchange},
			{"RenameParents", testRenameParents},
			{"Permissions", testPermissions},
			{"Sticky", testSticky},
			{"SetGIDDirectory", testSetGIDDirectory},
			{"ReadDirPages", testReadDirPages},
			{"ReadDirDuringChanges", testReadDirDuringChanges},
			{"DirectoryAttr", testDirectoryAttr},
			{"SetAttr", testSetAttr},
			{"SetAttrRights", testSetAttrRights},
			{"Privileges", testPrivileges},
			{"Truncate", testTruncate},
			{"Holes", testHoles},
			{"SpaceOfHoles", testSpaceOfHoles},
			{"TruncateSurvivesRestart", testTruncateSurvivesRestart},
			{"TruncateWaitsForItsPredecessor", testTruncateOrder},
			{"Xattrs", testXattrs},
			{"XattrRefusals", testXattrRefusals},
			{"Hints", testHints},
			{"Create", testCreate},
			{"OpenRefusals", testOpenRefusals},
			{"Capabilities", testCapabilities},
			{"Commit", testCommit},
			{"TimeSetWhileWritten", testTimeSetWhileWritten},
			{"Append", testAppend},
			{"AppendRefusals", testAppendRefusals},
			{"AppendsInOrder", testAppendsInOrder},
			{"SizeWhileWriting", testSizeWhileWriting},
			{"SizeUnknown", testSizeUnknown},
			{"UnlinkedButOpen", testUnlinkedButOpen},
			{"RemovalIsRetried", testRemovalIsRetried},
			{"Sessions", testSessions},
			{"DeadWriter", testDeadWriter},
			{"DeadReader", testDeadReader},
			{"DeadAndIdle", testDeadAndIdle},
			{"TakenBack", testTakenBack},
			{"EndedSession", testEndedSession},
			{"HandlesSurviveRestart", testHandlesSurviveRestart},
			{"Volumes", testVolumes},
			{"Servers", testServers},
			{"Layout", testLayout},
			{"Replay", testReplay},
			{"ReplayAfterRestart", testReplayAfterRestart},
			{"ReplayWhileNamesMove", testReplayWhileNamesMove},
			{"RaceCreateRmdir", testRaceCreateRmdir},
			{"RaceCreates", testRaceCreates},
			{"RaceCycles", testRaceCycles},
			{"RaceLinks", testRaceLinks},
			{"RaceOpenUnlink", testRaceOpenUnlink},
			{"Random", testRandom},
		}) {
		t.Run(c.name, func(t *testing.T) { c.run(t, open, except[c.name]) })
	}
}

// volumeCases are about block devices and who writes to them.
var volumeCases = []testCase{
	{"VolumePages", testVolumePages},
	{"VolumeWriter", testVolumeWriter},
	{"VolumeFence", testVolumeFence},
	{"VolumeTakeOver", testVolumeTakeOver},
	{"VolumeRestart", testVolumeRestart},
	{"VolumeShared", testVolumeShared},
	{"VolumeRejoin", testVolumeRejoin},
	{"VolumeJoinFails", testVolumeJoinFails},
	{"VolumeHandOver", testVolumeHandOver},
	{"VolumeResize", testVolumeResize},
}

// leaseCases are about what clients may keep.
var leaseCases = []testCase{
	{"LeasesAreRecalled", testLeasesAreRecalled},
	{"OwnChangesRecallNothing", testOwnChangesRecallNothing},
	{"SilentHolder", testSilentHolder},
	{"SoleWriter", testSoleWriter},
	{"WriterAndReader", testWriterAndReader},
	{"LeasesAfterRestart", testLeasesAfterRestart},
	{"LeaseRace", testLeaseRace},
	{"SmallFiles", testSmallFiles},
	{"SmallRefusals", testSmallRefusals},
	{"SmallReader", testSmallReader},
	{"MoveOut", testMoveOut},
	{"FencedWriter", testFencedWriter},
	{"CloseMany", testCloseMany},
	{"ClosedVersions", testClosedVersions},
}

// Times of the service under test. The clock is the suite's; Tick is real time.
const (
	lease = 30 * time.Second

	leaseTime = 5 * time.Second
	capTTL    = 60 * time.Second
	tick      = 5 * time.Millisecond
)

// env is one test's service with shorthands. Methods whose names start with "must" fail the test.
type env struct {
	testing.TB
	*Instance
	ctx     context.Context
	objects *Objects
	clock   *clock
	key     capability.Key
	ring    *capability.Keyring // of key, at first
	session uint64
}

type clock struct {
	mu  sync.Mutex
	now time.Time
}

// read moves on a little, so that later things have later times.
func (c *clock) read() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(time.Microsecond)
	return c.now
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

const (
	alice = 1000
	bob   = 1001
	staff = 50
)

func newEnv(t *testing.T, open Open) *env {
	e := &env{TB: t, ctx: t.Context(), objects: NewObjects(), key: capability.Key{7, 7},
		clock: &clock{now: time.Unix(1_800_000_000, 0)}}
	e.ring = e.key.Keyring()
	e.Instance = open(t, Config{Objects: e.objects, Key: e.ring, Host: ownHost, Clock: e.clock.read,
		Lease: lease, CapTTL: capTTL, LeaseTime: leaseTime, Tick: tick})
	for id := uint32(1); id <= 3; id++ {
		e.must(e.join(id))
	}
	e.session = e.newSession()
	t.Cleanup(func() {
		if e.Verify != nil && !t.Failed() {
			e.Verify(t)
		}
	})
	return e
}

func (e *env) join(id uint32) error {
	s := meta.Server{ID: id, Addr: "host:1", StoreID: 100 + uint64(id), Total: 1000, Free: 500}
	return e.Service.Join(e.ctx, s, meta.SignJoin(e.key.ServerKey(id), &s))
}

// joinAll lets all servers be heard of.
func (e *env) joinAll() {
	e.Helper()
	for id := range uint32(3) {
		e.must(e.join(id + 1))
	}
}

func (e *env) newSession() uint64 {
	e.Helper()
	info, err := e.Service.NewSession(e.ctx, "suite")
	e.must(err)
	return info.ID
}

// held is a handle as its owner claims it after a restart.
func held(h meta.Handle, flags meta.OpenFlags) meta.Claimed {
	return meta.Claimed{Handle: h.ID, Ino: h.Attr.Ino, Flags: flags}
}

// restart restarts the service and lets the suite's session claim what it has open.
func (e *env) restart(own ...meta.Claimed) {
	e.Helper()
	e.Restart(e)
	e.claim(e.session, own...)
}

// claim lets a session claim what it has open.
func (e *env) claim(session uint64, own ...meta.Claimed) {
	e.Helper()
	got, err := e.Service.Claim(e.ctx, session, e.life(), own, true)
	e.must(err)
	for i := range got {
		if got[i].Gone {
			e.Fatalf("inode %d is gone", own[i].Ino)
		}
	}
}

// life is the number of the service's life.
func (e *env) life() uint32 {
	e.Helper()
	info, err := e.Service.NewSession(e.ctx, "life") // who listens would be waited for
	e.must(err)
	e.must(e.Service.EndSession(e.ctx, info.ID))
	return info.Life
}

func (e *env) root() meta.Caller { return meta.Caller{Session: e.session} }

func (e *env) user(uid uint32, groups ...uint32) meta.Caller {
	return meta.Caller{Session: e.session, Cred: meta.Cred{UID: uid, GID: uid, Groups: groups}}
}

func (e *env) must(err error) {
	e.Helper()
	if err != nil {
		e.Fatal(err)
	}
}

// want fails the test unless err has the kind.
func (e *env) want(kind errs.Kind, err error, what string) {
	e.Helper()
	if errs.KindOf(err) != kind {
		e.Fatalf("%s: got %v, want kind %q", what, err, kind)
	}
}

func (e *env) mustMake(dir meta.Ino, name string, f meta.NewFile) meta.Attr {
	e.Helper()
	a, err := e.Service.Make(e.ctx, e.root(), dir, name, f)
	e.must(err)
	return a
}

func (e *env) mkdir(dir meta.Ino, name string) meta.Ino {
	e.Helper()
	return e.mustMake(dir, name, meta.NewFile{Type: meta.Directory, Mode: 0o755}).Ino
}

func (e *env) mkfile(dir meta.Ino, name string) meta.Ino {
	e.Helper()
	return e.mustMake(dir, name, meta.NewFile{Type: meta.Regular, Mode: 0o644}).Ino
}

func (e *env) lookup(dir meta.Ino, name string) (meta.Attr, error) {
	return e.Service.Lookup(e.ctx, e.root(), dir, name)
}

func (e *env) attr(ino meta.Ino) meta.Attr {
	e.Helper()
	a, err := e.Service.GetAttr(e.ctx, e.root(), ino)
	e.must(err)
	return a
}

func (e *env) remove(dir meta.Ino, name string) error {
	return Failed(e.Service.Remove(e.ctx, e.root(), dir, name, false))
}

func (e *env) rmdir(dir meta.Ino, name string) error {
	return Failed(e.Service.Remove(e.ctx, e.root(), dir, name, true))
}

func (e *env) rename(dir meta.Ino, name string, newDir meta.Ino, newName string,
	flags meta.RenameFlags) error {
	return Failed(e.Service.Rename(e.ctx, e.root(), dir, name, newDir, newName, flags))
}

func (e *env) open(ino meta.Ino, flags meta.OpenFlags) meta.Handle {
	e.Helper()
	h, err := e.Service.Open(e.ctx, e.root(), ino, flags)
	e.must(err)
	return h
}

func (e *env) close(h meta.Handle) {
	e.Helper()
	e.must(e.Service.Close(e.ctx, e.root(), meta.Closing{Handle: h.ID}))
}

// list reads a whole directory in pages of a size.
func (e *env) list(dir meta.Ino, page int) []meta.Entry {
	e.Helper()
	var all []meta.Entry
	for cookie := uint64(0); ; {
		p, err := e.Service.ReadDir(e.ctx, e.root(), dir, cookie, page, true)
		e.must(err)
		if len(p) == 0 {
			return all
		}
		all = append(all, p...)
		cookie = p[len(p)-1].Cookie
	}
}

func (e *env) names(dir meta.Ino) map[string]meta.Ino {
	e.Helper()
	m := map[string]meta.Ino{}
	for _, n := range e.list(dir, 100) {
		if m[n.Name] != 0 {
			e.Fatalf("%q is listed twice", n.Name)
		}
		m[n.Name] = n.Ino
	}
	return m
}

// eventually waits for background work.
func (e *env) eventually(what string, ok func() bool) {
	e.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		if ok() {
			return
		}
		time.Sleep(time.Millisecond)
	}
	e.Fatalf("it never came true that %s", what)
}

// wrote closes a handle of a file that was written to.
func wrote(handle uint64, size int64, truncSeq uint64, mtime int64) meta.Closing {
	return meta.Closing{Handle: handle, Dirty: true, Change: told(0, size, truncSeq, mtime)}
}

// told is a plain change.
func told(ino meta.Ino, size int64, truncSeq uint64, mtime int64) meta.Change {
	return meta.Change{Ino: ino, Size: size, TruncSeq: truncSeq, Mtime: meta.UnixTime(0, mtime)}
}

// Failed is the error of a removal or a rename, for those who do not want to know its time.
func Failed(_ meta.Time, err error) error { return err }
