package mount

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/meta"
	"golang.org/x/sys/unix"
)

// needTools skips a test that cannot be others, or lacks programs.
func needTools(t *testing.T, tools ...string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can be others")
	}
	for _, tool := range append(tools, "setpriv") {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip("there is no " + tool + " here (make deps)")
		}
	}
}

// as are shell functions that scripts of these tests begin with: as UID:GROUPS COMMAND runs a
// command as a user, with CAP COMMAND as user 1000 with one capability.
const as = `
as() { u=${1%%:*}; g=${1#*:}; shift
  if [ "$g" = "$u" ] || [ -z "$g" ]; then g=--clear-groups; else g=--groups=$g; fi
  setpriv --reuid "$u" --regid "$u" "$g" "$@"; }
with() { c=$1; shift
  setpriv --reuid 1000 --regid 1000 --clear-groups --inh-caps "+$c" --ambient-caps "+$c" "$@"; }
export -f as with 2>/dev/null
umask 022
cd "$D" || exit
exec 2>&1
`

// script runs a script in a directory, and returns what it says.
func script(t *testing.T, dir, text string) string {
	t.Helper()
	cmd := exec.Command("bash", "-c", as+text)
	cmd.Dir, cmd.Env = "/", append(os.Environ(), "D="+dir, "LC_ALL=C")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return strings.ReplaceAll(string(out), dir, "$D")
}

// rightsScripts are what programs see of rights: they say the same on a local file system.
var rightsScripts = map[string]string{
	"lists": `
touch f; chmod 640 f; setfacl -m u:1000:rw,g:55:r f; getfacl -cn f; stat -c %A f
chmod g-w f; getfacl -cn f; chmod 604 f; getfacl -cn f
setfacl -x u:1000 f; getfacl -cn f; setfacl -b f; getfacl -cn f; stat -c %A f
setfacl -m m::rwx f; stat -c %A f; getfacl -cn f
mkdir d; setfacl -m u:1000:rwx d; cp -p f g; getfacl -cn g; cp -a d e; getfacl -cn e
getfattr -m - f d | sort; setfacl -d -m u:7:r f; mv d/. e 2>/dev/null; setfacl -k d; echo $?
setfacl -m u:1000:r nothing; chmod 2775 d; chown 1000:55 d
as 1000: setfacl -m u:7:rwx d; stat -c %A d; as 1000:55 chmod g+s d; stat -c %A d
as 1000:55 setfacl -m u:8:rwx d; stat -c %A d; as 7: setfacl -m u:7:rwx f; echo $?`,

	"inheritance": `
mkdir d; setfacl -d -m u:1000:rwx,g:55:rx,m::rwx d; getfacl -cn d
umask 077; touch d/f; mkdir d/s; mkfifo d/p; ln -s x d/l; mkdir d/s/t; (umask 0; touch d/s/t/f)
for x in d/f d/s d/p d/s/t d/s/t/f; do stat -c '%n %A' $x; getfacl -cn $x; done
cat /dev/null > d/made; install -m 600 /dev/null d/inst; stat -c '%n %A' d/made d/inst
setfacl -k d; touch d/after; stat -c %A d/after; setfacl -d -m u::rwx,g::rx,o::- d
umask 0; touch d/min; stat -c %A d/min; getfacl -cn d/min`,

	"enforcement": `
echo secret > f; chmod 600 f; setfacl -m u:1000:r f
as 1000: cat f; as 1001: cat f; as 1000: sh -c 'echo x >> f'
setfacl -m u:1000:rw,m::r f; as 1000: sh -c 'echo x >> f'; setfacl -m m::rw f
as 1000: sh -c 'echo x >> f'; cat f
setfacl -b -m g:55:rw,g:56:r f; as 1001:55 cat f; as 1001:56 sh -c 'echo y >> f'; as 1001:57 cat f
as 1001:55,56 sh -c 'echo z >> f'; setfacl -m u:1001:- f; as 1001:55 cat f
mkdir d; chmod 700 d; setfacl -m u:1000:x d; echo in > d/in; chmod 644 d/in
as 1000: cat d/in; as 1000: ls d; as 1001: cat d/in; setfacl -m u:1000:rwx d
as 1000: ls d; as 1000: touch d/new; stat -c %u d/new; as 1000: rm d/in; ls d
chmod g-w d; as 1000: touch d/newer; chmod 707 d; as 1000: ls d; as 1001: ls d`,

	"capabilities": `
mkdir d; chmod 700 d; echo x > d/f; chmod 600 d/f; touch own; chown 1000:1000 own
as 1000: touch d/a; with dac_override touch d/b; stat -c '%n %u:%g' d/*
with dac_override sh -c 'cat d/f; echo y >> d/f; mkdir d/s; rm d/b'; stat -c '%n %u' d/*
with dac_read_search cat d/f; with dac_read_search sh -c 'echo z >> d/f'
as 1000: chown 5 own; with chown chown 5:7 own; stat -c %u:%g own
as 1000: chmod 777 d; with fowner chmod 711 d; stat -c %a d
mkdir t; chmod 1777 t; touch t/x t/y; as 1000: rm t/x; with fowner rm -f t/y; ls t
touch g; chown 1000:55 g; as 1000: chmod 2755 g; stat -c %a g
with fsetid chmod 2755 g; stat -c %a g
chmod 6777 g; chown 1000:55 g; chmod 6777 g; with fsetid sh -c 'echo x >> g'; stat -c %a g
as 1000: sh -c 'echo x >> g'; stat -c %a g
mkdir sg; chown 0:55 sg; chmod 2777 sg; as 1000: install -m 2755 /dev/null sg/a
stat -c '%a %g' sg/a; with mknod mknod sg/n c 5 6; stat -c '%t,%T %u' sg/n
as 1000: mknod sg/m c 5 6
with sys_admin setfattr -n trusted.x -v y d; as 1000: setfattr -n trusted.x -v y own; echo $?`,

	"many groups": `
g=$(seq -s, 5000 5299); mkdir d; chgrp 5299 d; chmod 2770 d
as 1000:$g touch d/f; as 1000:$g sh -c 'echo x > d/f; mkdir d/s; chmod g+s d/f'
stat -c '%a %u:%g' d/f d/s; as 1000:5298 touch d/g; touch h; chown 1000 h
as 1000:$g chgrp 5290 h; stat -c %g h`,

	"set-id bits": `
mkdir d; touch f; mkfifo p; mknod c c 1 3; mknod b b 1 1
for how in "chown 1000" "chown :55" "chown 1000:55" "chown -h 1000"; do
  for m in 6555 6745 4755 2755 2745; do
    for x in d f p c b s; do chown 0:0 $x; chmod $m $x; $how $x; stat -c "$how %n $m: %a" $x; done
  done
done
echo data > w; chown 1000:1000 w
for m in 6777 6767 4755; do
  chmod $m w; as 1000: sh -c 'echo x >> w'; stat -c "write $m: %a" w
  chmod $m w; as 1000: truncate -s 3 w; stat -c "truncate $m: %a" w
  chmod $m w; as 1000: sh -c ': > w'; stat -c "open $m: %a" w
  echo data > w; chmod $m w; as 1000: fallocate -p -o 0 -l 4 w; stat -c "punch $m: %a" w
  chmod $m w; fallocate -p -o 0 -l 4 w; stat -c "punch by root $m: %a" w
  chmod $m w; echo x >> w; stat -c "write by root $m: %a" w
  chmod $m w; as 1000: chgrp 1000 w; stat -c "chgrp $m: %a" w
  chmod $m w; chown 1000 w; stat -c "chown to the same $m: %a" w
done`,

	"hidden attributes": `
touch f; chmod 666 f; setfattr -n trusted.a -v 1 f; setfattr -n user.b -v 2 f
setfattr -n security.c -v 3 f; getfattr -d -m - f; as 1000: getfattr -d -m - f
as 1000: getfattr -n trusted.a f; as 1000: getfattr -n security.c f
as 1000: setfattr -n security.c -v 4 f; as 1000: setfattr -x trusted.a f
with sys_admin getfattr -d -m - f
setpriv --bounding-set -sys_admin --inh-caps -all getfattr -d -m - f
as 1000: setfattr -n other.x -v y f; mkfifo p
setfattr -n user.x -v y p; setfattr -n trusted.x -v y p`,

	"file capabilities": `
cp /bin/true t; setcap cap_net_raw+ep t; getcap t; echo >> t; echo write; getcap t
setcap cap_net_raw+ep t; getcap t; truncate -s 100 t; echo truncate; getcap t
setcap cap_net_raw+ep t; getcap t; chown 1000 t; echo chown; getcap t
setcap cap_net_raw+ep t; chmod 700 t; echo chmod; getcap t; : > t; echo open; getcap t
as 1000: setfattr -n security.capability -v x t; echo $?`,

	"removed working directory": `
mkdir -p a/w; cd a/w; rmdir ../w; ls; touch x; stat -c '%h %F' .; mkdir y; sleep 1.3
ls; stat -c '%h %F' .; cd ..; ls; pwd | sed 's|.*/||'; mkdir z; chmod 777 z; cd z; rmdir ../z
as 1000: sh -c 'stat -c %h .; ls; cd .. && ls'`,
}

// TestRightsAsLocal: rights are what they are on a local file system.
func TestRightsAsLocal(t *testing.T) {
	needTools(t, "setfacl", "getfacl", "getfattr", "setfattr", "setcap", "getcap", "fallocate",
		"bash")
	local := t.TempDir()
	must(t, os.Chmod(local, 0o777))
	must(t, os.Chmod(filepath.Dir(local), 0o755))
	if out, err := exec.Command("setfacl", "-m", "u:1:r", local).CombinedOutput(); err != nil {
		t.Skipf("the local file system has no access control lists: %s", out)
	}
	must(t, exec.Command("setfacl", "-b", local).Run())
	root := newCluster(t, 1).mount(Options{AllowOther: true, Flags: []string{"dev", "suid"}}).Dir()
	must(t, os.Chmod(root, 0o777))
	for name, text := range rightsScripts {
		t.Run(name, func(t *testing.T) {
			var says [2]string
			for i, base := range []string{local, root} {
				dir := filepath.Join(base, strings.ReplaceAll(name, " ", "-"))
				must(t, os.Mkdir(dir, 0o755))
				must(t, unix.Mknod(filepath.Join(dir, "s"), unix.S_IFSOCK|0o644, 0))
				says[i] = script(t, dir, text)
			}
			if says[0] != says[1] {
				t.Errorf("the mount says\n%s\nand the local file system\n%s\n%s", says[1], says[0],
					difference(says[0], says[1]))
			}
			if len(says[0]) < 20 {
				t.Errorf("it says %q only", says[0])
			}
		})
	}
}

// difference is the first line that differs.
func difference(a, b string) string {
	x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range min(len(x), len(y)) {
		if x[i] != y[i] {
			return fmt.Sprintf("line %d: %q is not %q", i+1, y[i], x[i])
		}
	}
	return fmt.Sprintf("%d lines are not %d", len(y), len(x))
}

// TestListsBetweenMounts: a list that one mount sets holds at once in another, whose kernel has
// asked for the old one.
func TestListsBetweenMounts(t *testing.T) {
	needTools(t, "setfacl", "bash")
	c := newCluster(t, 1)
	one, two := c.mount(Options{AllowOther: true}).Dir(), c.mount(Options{AllowOther: true}).Dir()
	must(t, os.WriteFile(filepath.Join(one, "f"), []byte("x"), 0o640))
	for i := range 10 {
		says := script(t, two, "as 1000: cat f >/dev/null && echo may; true")
		if may := says == "may\n"; may != (i%2 == 1) {
			t.Fatalf("round %d: %s", i, says)
		}
		script(t, one, []string{"setfacl -m u:1000:r f", "setfacl -x u:1000 f"}[i%2])
	}
}

// asked counts requests for extended attributes.
type asked struct {
	meta.Service
	xattrs atomic.Int64
}

func (s *asked) GetXattr(ctx context.Context, c meta.Caller, ino meta.Ino, name string) (
	[]byte, error) {
	s.xattrs.Add(1)
	return s.Service.GetXattr(ctx, c, ino, name)
}

func (s *asked) ListXattr(ctx context.Context, c meta.Caller, ino meta.Ino) ([]string, error) {
	s.xattrs.Add(1)
	return s.Service.ListXattr(ctx, c, ino)
}

// TestListsCostNoRequests: whether there are lists, and what they say, is known with the
// attributes.
func TestListsCostNoRequests(t *testing.T) {
	needTools(t, "setfacl", "bash")
	c := newCluster(t, 1)
	svc := &asked{Service: c.meta}
	fs, err := client.New(svc, c.data, client.Options{WaitMax: 5 * time.Second})
	must(t, err)
	defer func() { must(t, fs.Close()) }()
	dir, err := os.MkdirTemp("", "sluice-mount-")
	must(t, err)
	m, err := Mount(context.Background(), fs, dir, Options{AllowOther: true})
	must(t, err)
	defer func() {
		must(t, m.Unmount())
		must(t, os.Remove(dir))
	}()
	script(t, dir, `for d in a b; do mkdir $d; for i in $(seq 20); do echo x > $d/$i; done; done
setfacl -R -m u:1000:rX b`)
	svc.xattrs.Store(0)
	says := script(t, dir, "for i in 1 2 3; do as 1000: sh -c 'cat */* | wc -c'; sleep 0.4; done")
	if n := svc.xattrs.Load(); n != 0 || says != "80\n80\n80\n" {
		t.Errorf("%d requests for extended attributes; %s", n, says)
	}
}

// TestDevices: devices work where the mount says so, and only there.
func TestDevices(t *testing.T) {
	needTools(t)
	c := newCluster(t, 1)
	with := c.mount(Options{Flags: []string{"dev", "suid", "noexec", "noatime"}})
	without := c.mount(Options{})
	null := func(m *Mounted) string { return filepath.Join(m.Dir(), "null") }
	must(t, unix.Mknod(null(with), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))))
	f, err := os.OpenFile(null(with), os.O_RDWR, 0)
	must(t, err)
	if n, err := f.WriteString("away"); n != 4 || err != nil {
		t.Errorf("a device takes %d bytes, %v", n, err)
	}
	must(t, f.Close())
	_, err = os.OpenFile(null(without), os.O_RDWR, 0)
	want(t, err, unix.EACCES)
	var st unix.Statfs_t
	must(t, unix.Statfs(with.Dir(), &st))
	const all = unix.ST_NODEV | unix.ST_NOSUID | unix.ST_NOEXEC | unix.ST_NOATIME
	if st.Flags&all != unix.ST_NOEXEC|unix.ST_NOATIME {
		t.Errorf("flags %#x", st.Flags)
	}
	must(t, unix.Statfs(without.Dir(), &st))
	if st.Flags&all != unix.ST_NODEV|unix.ST_NOSUID {
		t.Errorf("default flags %#x", st.Flags)
	}
	_, err = Mount(context.Background(), c.client(), t.TempDir(), Options{Flags: []string{"odd"}})
	if err == nil {
		t.Error("an unknown flag is taken")
	}
}

// TestRemount: flags can be changed while programs use the mount.
func TestRemount(t *testing.T) {
	needTools(t)
	dir := newCluster(t, 1).mount(Options{}).Dir()
	f := filepath.Join(dir, "f")
	must(t, os.WriteFile(f, []byte("x"), 0o644))
	must(t, Remount(dir, []string{"ro", "noexec"}))
	want(t, os.WriteFile(f, []byte("y"), 0o644), unix.EROFS)
	equalFile(t, f, []byte("x"))
	must(t, Remount(dir, []string{"rw"}))
	must(t, os.WriteFile(f, []byte("y"), 0o644))
	var st unix.Statfs_t
	must(t, unix.Statfs(dir, &st))
	const kept = unix.ST_NODEV | unix.ST_NOSUID | unix.ST_NOEXEC
	if st.Flags&(kept|unix.ST_RDONLY) != kept {
		t.Errorf("flags %#x", st.Flags)
	}
	if err := Remount(dir, []string{"odd"}); err == nil {
		t.Error("an unknown flag is taken")
	}
}

// TestNoLists: without them nothing is asked for, and setting one is refused.
func TestNoLists(t *testing.T) {
	needTools(t, "setfacl", "bash")
	root := newCluster(t, 1).mount(Options{AllowOther: true, NoACL: true}).Dir()
	says := script(t, root, "touch f; setfacl -m u:1000:r f; umask 027; touch g; stat -c %a g")
	if says != "setfacl: f: Operation not supported\n640\n" {
		t.Error(says)
	}
}

// TestFlagsOfFiles: lsattr(1) finds none, and chattr(1) is told that there are none to be set.
func TestFlagsOfFiles(t *testing.T) {
	needTools(t, "lsattr", "chattr", "bash")
	root := newMount(t)
	says := script(t, root, `touch f; mkdir d; mkfifo p; lsattr -d f d | tr -d -; chattr =  f; echo $?
chattr +i f; echo $?; chattr +a d; echo $?; rm f; lsattr p; stat -f -c %T .`)
	const right = ` f
 d
0
chattr: Operation not supported while setting flags on f
1
chattr: Operation not supported while setting flags on d
1
lsattr: Operation not supported While reading flags on p
fuseblk
`
	if says != right {
		t.Errorf("%q", says)
	}
	f := open(t, filepath.Join(root, "g"), os.O_CREATE|os.O_RDWR)
	if _, err := unix.IoctlGetInt(int(f.Fd()), 0x5401); err != unix.ENOTTY {
		t.Errorf("an unknown ioctl: %v", err)
	}
	// The kernel does not let FUSE say that it would have to wait.
	_, err := unix.Preadv2(int(f.Fd()), [][]byte{make([]byte, 1)}, 0, rwfNowait)
	want(t, err, unix.EOPNOTSUPP)
}

const rwfNowait = 8

// TestDots: ".." of a listing is the parent, also after a directory has gone elsewhere.
func TestDots(t *testing.T) {
	needTools(t, "bash")
	c := newCluster(t, 1)
	one, two := c.mount(Options{}).Dir(), c.mount(Options{}).Dir()
	look := `for d in . a b a/sub b/sub; do [ -d $d ] || continue
ls -ai $d | awk '$2 == ".." {print $1}'; stat -c %i $d/..; done`
	pairs := func(dir string) (n int) {
		t.Helper()
		says := strings.Fields(script(t, dir, look))
		for i := 2; i < len(says); i += 2 { // of the root it is outside
			if says[i] != says[i+1] {
				t.Errorf("line %d: .. is %s, not %s", i/2, says[i], says[i+1])
			}
		}
		return len(says) / 2
	}
	script(t, one, "mkdir -p a/sub b")
	for i, move := range []string{"true", "mv a/sub b", "mv b/sub a"} {
		script(t, []string{one, two, one}[i], move)
		if x, y := pairs(one), pairs(two); x != 4 || y != 4 {
			t.Fatalf("%d and %d directories", x, y)
		}
	}
}

// TestOverlay: the mount can be what an overlay file system writes to.
func TestOverlay(t *testing.T) {
	needTools(t, "bash", "mount")
	root := newCluster(t, 1).mount(Options{AllowOther: true}).Dir()
	lower, merged := t.TempDir(), t.TempDir()
	for _, d := range []string{"up", "work"} {
		must(t, os.Mkdir(filepath.Join(root, d), 0o755))
	}
	must(t, os.MkdirAll(filepath.Join(lower, "dir/sub"), 0o755))
	for _, f := range []string{"a", "b", "dir/x", "dir/sub/y"} {
		must(t, os.WriteFile(filepath.Join(lower, f), []byte(f), 0o644))
	}
	err := unix.Mount("overlay", merged, "overlay", 0, fmt.Sprintf(
		"lowerdir=%s,upperdir=%s/up,workdir=%s/work", lower, root, root))
	if err == unix.ENODEV {
		t.Skip("the kernel has no overlay file system")
	}
	must(t, err)
	defer func() { must(t, unix.Unmount(merged, 0)) }()
	says := script(t, merged, `rm a; ls; echo more >> b; cat b; mv b c; ls; mv dir/x dir/z; ls dir
rm -r dir; ls; mkdir dir; ls dir; echo new > a; cat a; ln a l; stat -c %h l
chmod 600 c; stat -c %a c`)
	if says != "b\ndir\nbmore\nc\ndir\nsub\nz\nc\nnew\n2\n600\n" {
		t.Errorf("%q", says)
	}
	var st unix.Stat_t
	must(t, unix.Lstat(filepath.Join(root, "up/b"), &st))
	if st.Mode&unix.S_IFMT != unix.S_IFCHR || st.Rdev != 0 {
		t.Errorf("no whiteout: mode %o", st.Mode)
	}
	equalFile(t, filepath.Join(root, "up/a"), []byte("new\n"))
}
