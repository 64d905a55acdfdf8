package systest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestProgramsOnTheMount runs programs that nobody here wrote on a striped, mounted file system.
// They share one cluster and run at the same time; each gets a folder of its own.
func TestProgramsOnTheMount(t *testing.T) {
	t.Parallel()
	runPrograms(t, clusterOptions{iods: 4, mount: true}, []program{
		{"go", goTree}, {"git", gitClone}, {"fio", fioVerify}, {"sqlite", sqliteTransactions},
		{"tar", tarAndRemove}, {"odd", tarOddThings}, {"rsync", rsyncTrees}, {"module", goModule},
	})
}

// TestProgramsOverTCP is those of them that ask most of the data path, without shared memory.
func TestProgramsOverTCP(t *testing.T) {
	t.Parallel()
	runPrograms(t, clusterOptions{iods: 4, mount: true, providers: "tcp"}, []program{
		{"fio", fioVerify}, {"sqlite", sqliteTransactions},
	})
}

type program struct {
	name string
	run  func(t *testing.T, c *cluster, dir string)
}

func runPrograms(t *testing.T, o clusterOptions, programs []program) {
	c := startCluster(t, o)
	for _, p := range programs {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(c.mnt, p.name)
			must(t, os.Mkdir(dir, 0o755))
			p.run(t, c, dir)
		})
	}
}

// goTree copies this module in, compares it byte by byte, builds it there and runs what was built.
func goTree(t *testing.T, _ *cluster, dir string) {
	src := moduleRoot(t)
	tree := filepath.Join(dir, "src")
	copyTree(t, src, tree)
	run(t, "", "diff", "-r", "--exclude=.git", "--exclude=bin", "--exclude=mnt", "--exclude=.sluice",
		src, tree)
	out := filepath.Join(dir, "built")
	run(t, tree, "go", "build", "-trimpath", "-o", out, "./cmd/sluice")
	if v := run(t, dir, out, "version"); !strings.Contains(v, "sluice") {
		t.Fatalf("the binary built on the mount says %q", v)
	}
}

// gitClone commits a tree on the mount, clones it there and checks both object stores.
func gitClone(t *testing.T, _ *cluster, dir string) {
	repo, clone := filepath.Join(dir, "repo"), filepath.Join(dir, "clone")
	copyTree(t, moduleRoot(t), repo)
	git := func(args ...string) string {
		base := []string{"-c", "user.name=t", "-c", "user.email=t@example.org",
			"-c", "init.defaultBranch=main", "-c", "safe.directory=*"}
		return run(t, repo, "git", append(base, args...)...)
	}
	git("init", "-q")
	git("add", "-A")
	git("commit", "-q", "-m", "all")
	git("clone", "-q", "--no-hardlinks", repo, clone)
	git("fsck", "--full", "--strict")
	git("-C", clone, "fsck", "--full", "--strict")
	if s := git("-C", clone, "status", "--porcelain"); s != "" {
		t.Fatalf("fresh clone is not clean: %s", s)
	}
	git("gc", "-q")
	git("fsck", "--full")
}

// fioVerify writes with random sizes and offsets and reads everything back by checksum, through the
// page cache with syncs, and around it.
func fioVerify(t *testing.T, _ *cluster, dir string) {
	state := t.TempDir() // fio leaves notes for a later verification where it runs
	common := []string{"--directory=" + dir, "--verify=crc32c", "--verify_fatal=1", "--do_verify=1",
		"--group_reporting", "--randrepeat=0"}
	run(t, state, "fio", append(common, "--name=buffered", "--rw=randwrite", "--bsrange=4k-256k",
		"--size=48m", "--numjobs=2", "--ioengine=psync", "--fsync=64")...)
	run(t, state, "fio", append(common, "--name=direct", "--rw=write", "--bs=1m", "--size=64m",
		"--direct=1", "--ioengine=libaio", "--iodepth=4")...)
	run(t, state, "fio", append(common, "--name=mapped", "--rw=randwrite", "--bs=4k", "--size=8m",
		"--ioengine=mmap", "--fsync=256")...)
}

// sqliteTransactions runs transactions in both journal modes and checks the database afterwards.
func sqliteTransactions(t *testing.T, _ *cluster, dir string) {
	for _, mode := range []string{"delete", "wal"} {
		db := filepath.Join(dir, mode+".db")
		var sql strings.Builder
		fmt.Fprintf(&sql, "PRAGMA journal_mode=%s; PRAGMA synchronous=FULL;\n", mode)
		sql.WriteString("CREATE TABLE t(k INTEGER PRIMARY KEY, v TEXT);\n")
		for i := range 40 {
			fmt.Fprintf(&sql, "BEGIN; INSERT INTO t(v) SELECT hex(randomblob(200)) FROM "+
				"(WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<50) SELECT i FROM n);"+
				" UPDATE t SET v = v || '%d' WHERE k %% 7 = %d; COMMIT;\n", i, i%7)
		}
		sql.WriteString("BEGIN; DELETE FROM t; ROLLBACK;\n")
		runIn(t, "", sql.String(), "sqlite3", "-bail", db)
		out := runIn(t, "", "PRAGMA integrity_check; SELECT count(*) FROM t;", "sqlite3", db)
		if strings.Fields(out)[0] != "ok" || !strings.Contains(out, "2000") {
			t.Fatalf("journal mode %s: %q", mode, out)
		}
	}
}

// tarAndRemove packs, unpacks, compares and removes a tree with links, modes and times.
func tarAndRemove(t *testing.T, _ *cluster, dir string) {
	tree := filepath.Join(dir, "tree")
	copyTree(t, moduleRoot(t), tree)
	must(t, os.Symlink("go.mod", filepath.Join(tree, "symlink")))
	must(t, os.Link(filepath.Join(tree, "go.mod"), filepath.Join(tree, "hardlink")))
	must(t, os.Chmod(filepath.Join(tree, "go.sum"), 0o640))
	run(t, dir, "tar", "cf", "tree.tar", "tree")
	must(t, os.Mkdir(filepath.Join(dir, "again"), 0o755))
	run(t, dir, "tar", "xpf", "tree.tar", "-C", "again")
	run(t, dir, "diff", "-r", "--no-dereference", "tree", "again/tree")
	run(t, dir, "tar", "df", "tree.tar") // modes, times and sizes as well
	run(t, dir, "rm", "-r", "tree", "again", "tree.tar")
	left, err := os.ReadDir(dir)
	must(t, err)
	if len(left) != 0 {
		t.Fatalf("rm -r left %v", left)
	}
}
