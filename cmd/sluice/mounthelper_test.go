package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestHelperArgs(t *testing.T) {
	for _, c := range []struct {
		args, want    string
		fake, verbose bool
	}{
		{"h:1/ /mnt", "mount -d --source h:1/ sluice://h:1/ /mnt", false, false},
		{"h:1/p /mnt -o rw,noatime", "mount -d -o rw,noatime --source h:1/p sluice://h:1/p /mnt",
			false, false},
		{"-n -v -s -o ro sluice://h:1 /mnt -t sluice",
			"mount -d --sloppy -o ro --source sluice://h:1 sluice://h:1 /mnt", false, true},
		{"h:1/ /mnt -fvno a,b -o c -N /ns", "mount -d -o a,b -o c --source h:1/ sluice://h:1/ /mnt",
			true, true},
		{"h:1/ /mnt -r", "mount -d -o ro --source h:1/ sluice://h:1/ /mnt", false, false},
	} {
		got, fake, verbose, err := helperArgs(strings.Fields(c.args))
		if err != nil || strings.Join(got, " ") != c.want || fake != c.fake || verbose != c.verbose {
			t.Errorf("%s: %v, %q, %v, %v", c.args, err, got, fake, verbose)
		}
	}
	for _, args := range []string{"", "h:1/", "h:1/ /mnt more", "h:1/ /mnt -x"} {
		if got, _, _, err := helperArgs(strings.Fields(args)); err == nil {
			t.Errorf("%q becomes %q", args, got)
		}
	}
}

func TestMountOptions(t *testing.T) {
	var served map[string]string
	apply := func(lists ...string) (*optionList, map[string]string, string, error) {
		cmd := newMount()
		var said strings.Builder
		cmd.SetErr(&said)
		l := &optionList{served: func() map[string]string { return served }}
		for _, list := range lists {
			if err := l.Set(list); err != nil {
				t.Fatal(err)
			}
		}
		err := l.apply(cmd)
		set := map[string]string{}
		for _, name := range []string{"secret", "allow-other", "local-locks", "no-acl", "providers"} {
			if f := cmd.Flags().Lookup(name); f.Changed {
				set[name] = f.Value.String()
			}
		}
		return l, set, said.String(), err
	}
	l, set, _, err := apply("rw,_netdev,nofail,user,x-systemd.automount,X-y=z,comment=a b,noatime",
		`secret=/a,allow_other=false,nolock,noacl,providers="tcp,shm",dev`)
	if err != nil || !slices.Equal(l.flags, []string{"rw", "noatime", "dev"}) || l.remount {
		t.Errorf("%v, %q, %v", err, l.flags, l.remount)
	}
	want := map[string]string{"secret": "/a", "allow-other": "false", "local-locks": "true",
		"no-acl": "true", "providers": "tcp,shm"}
	for name, value := range want {
		if set[name] != value {
			t.Errorf("--%s is %q", name, set[name])
		}
	}
	for _, bad := range []string{"odd", "odd=1", "secret", "detach", "help", "options=ro",
		"allow_other=perhaps"} {
		if _, _, _, err := apply(bad); err == nil {
			t.Errorf("-o %s is taken", bad)
		}
	}
	l, _, said, err := apply("rw,user_id=0,max_read=5,allow_other,remount,ro")
	if err != nil || !l.remount || said != "" || l.flags[1] != "ro" {
		t.Errorf("%v, %+v, %q", err, l, said)
	}
	if _, _, said, err = apply("remount,secret=/x"); err != nil || !strings.Contains(said, "secret") {
		t.Errorf("%v, %q", err, said)
	}
	served = map[string]string{"secret": "/x", "local-locks": "false", "no-acl": "true"}
	_, _, said, err = apply("remount,ro,secret=/x,nolock,noacl")
	if err != nil || !strings.HasSuffix(said, "anew: nolock\n") {
		t.Errorf("%v, %q", err, said)
	}
}

// helperScript runs in a mount namespace of its own, in which mount(8) finds the helper. Each line
// of what it says is one outcome. It begins by letting go of the mounts of others, which could not
// end while this namespace had them.
const helperScript = `
for other in $(findmnt -rn -t fuse.sluice -o TARGET); do umount -l "$other"; done
mount -t overlay overlay -o "lowerdir=$T/helper:/usr/sbin" /usr/sbin || { echo no overlay; exit; }
m=$T/m
opts() { findmnt -n -o "$1" "$m" | tr , '\n' | grep -xE "$2" | tr '\n' ' '; }
mount -t sluice "$A/" "$m" -o "ro,nosuid,nodev,secret=$S"
echo "mount $? $(opts OPTIONS 'ro|rw|nosuid|nodev')"
findmnt -n -o SOURCE,FSTYPE "$m" | sed "s|$A|ADDR|"
touch "$m/f" 2>/dev/null; echo "write to a read-only mount $?"
mount -o remount,rw "$m"; echo "remount $?"; touch "$m/f"; echo "write $?"
mount -o remount,oddness "$m" 2>"$T/err"; echo "remount with an odd option $?"; head -1 "$T/err"
mount -t sluice "$A/" "$m" 2>"$T/err" -o "secret=$S"; echo "mount twice $?"; head -1 "$T/err"
umount "$m"; echo "umount $?"; mountpoint -q "$m"; echo "is mounted $?"
mount -t sluice "$A/" "$m" -o "secret=$S,oddness" 2>"$T/err"; echo "odd option $?"; head -1 "$T/err"
mount -s -t sluice "$A/" "$m" -o "secret=$S,oddness"; echo "sloppy $?"; umount "$m"
mount -f -t sluice 127.0.0.1:1/ "$m" -o "secret=$S"; echo "fake $?"
mount -t sluice 127.0.0.1:1/ "$m" -o "secret=$S" 2>/dev/null; echo "nobody there $?"
mount -t sluice nonsense "$m" 2>/dev/null; echo "no address $?"
mount -t sluice "$A/" "$m" -o "dev,suid,noexec,secret=$S"; echo "dev $? $(opts OPTIONS 'no.*')"
mkdir "$m/sub"; touch "$m/sub/inside"; umount "$m"
echo "$A/sub $m sluice _netdev,nofail,noatime,user,x-systemd.automount,secret=$S 0 0" > "$T/fstab"
mount --bind "$T/fstab" /etc/fstab; mount "$m"; echo "fstab $?"; ls "$m"
mount -a; echo "all $? $(grep -c " $m " /proc/self/mountinfo)"
mount -o remount,ro "$m"; echo "remount $? $(opts OPTIONS 'ro|rw|no.*')"
mount -o remount,cache=strict "$m"; echo "remount $?"; umount "$m"
mknod -m 666 "$T/fuse" c 10 229; mount --bind "$T/fuse" /dev/fuse # some hosts keep it to root
chown 1000 "$m"; u="setpriv --reuid 1000 --regid 1000 --clear-groups --reset-env"
$u mount "$m"; echo "by a user $?"; $u ls "$m"; $u umount "$m"; echo "umount by the user $?"
`

const helperSays = `mount 0 ro nosuid nodev 
ADDR/ fuse.sluice
write to a read-only mount 1
remount 0
write 0
remount with an odd option 32
sluice: there is no option oddness
mount twice 32
sluice: something is mounted at MNT already
umount 0
is mounted 32
odd option 32
sluice: there is no option oddness
sloppy 0
fake 0
nobody there 32
no address 32
dev 0 noexec 
fstab 0
inside
all 0 1
remount 0 ro nosuid nodev noexec noatime 
sluice: these options stay as they are until it is unmounted and mounted anew: cache
remount 0
by a user 0
inside
umount by the user 0
`

// TestMountHelper lets mount(8) mount, by hand and by fstab.
func TestMountHelper(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root has mount namespaces")
	}
	for _, tool := range []string{"unshare", "mount", "findmnt", "setpriv", "fusermount3"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip("there is no " + tool + " here (make deps)")
		}
	}
	if _, err := os.Stat("/dev/fuse"); err != nil {
		t.Skip("there is no /dev/fuse here")
	}
	bin, dir := linkSelf(t), t.TempDir()
	sluice := filepath.Join(bin, "sluice")
	for _, d := range []string{filepath.Dir(dir), dir, filepath.Dir(bin), bin} {
		sure(t, os.Chmod(d, 0o755)) // for the user
	}
	sure(t, os.Mkdir(filepath.Join(dir, "m"), 0o755))
	sure(t, os.Mkdir(filepath.Join(dir, "helper"), 0o755))
	for name := range helperNames {
		sure(t, os.Symlink(sluice, filepath.Join(dir, "helper", name)))
	}
	c := filepath.Join(dir, "c")
	in := func(args ...string) []byte {
		t.Helper()
		out, err := exec.Command(sluice, args...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v: %s", args, err, out)
		}
		return out
	}
	in("up", "-d", "--mem", "--iods", "1", "--memory", "160M", "--listen", "127.0.0.1:0", "--dir", c)
	defer in("down", "--dir", c)
	var st struct {
		URL string `json:"url"`
	}
	sure(t, json.Unmarshal(in("status", "--dir", c, "--json"), &st))
	secret, err := os.ReadFile(filepath.Join(c, "cluster.secret"))
	sure(t, err)
	sure(t, os.WriteFile(filepath.Join(dir, "secret"), secret, 0o600))
	sure(t, os.Chown(filepath.Join(dir, "secret"), 1000, 1000))
	cmd := exec.Command("unshare", "-m", "--propagation", "private", "bash", "-c", helperScript)
	cmd.Env = append(os.Environ(), "LC_ALL=C", "T="+dir, "S="+filepath.Join(dir, "secret"),
		"A="+strings.TrimPrefix(st.URL, scheme+"//"))
	out, err := cmd.CombinedOutput()
	said := strings.ReplaceAll(string(out), filepath.Join(dir, "m"), "MNT")
	if strings.HasPrefix(said, "no overlay") {
		t.Skip("the kernel has no overlay file system")
	}
	if err != nil || said != helperSays {
		t.Errorf("%v: it says\n%s\nnot\n%s", err, said, helperSays)
	}
}

func sure(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
