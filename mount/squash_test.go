package mount

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/client/clustertest"
	"github.com/sluice-storage/sluice/identity"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/peer"
)

// mountAs mounts what a client with rights may see, for all users of the host.
func mountAs(t *testing.T, c *clustertest.Members, name string, rights identity.Rights) string {
	t.Helper()
	security, err := c.Client(name, rights)
	must(t, err)
	fs, err := client.Dial(t.Context(), c.URL, client.Options{WaitMax: 20 * time.Second,
		Peer: peer.Options{Security: security, Use: []string{peer.TCP}}})
	must(t, err)
	dir, err := os.MkdirTemp("", "sluice-mount-")
	must(t, err)
	m, err := Mount(context.Background(), fs, dir, Options{AllowOther: true})
	must(t, err)
	t.Cleanup(func() {
		must(t, m.Unmount())
		must(t, fs.Close())
		must(t, os.Remove(dir))
	})
	return dir
}

// squashed is what users do on a mount whose root is nobody to the service, and what comes of it.
const squashed = `
as 1000: mkdir home; as 1000: chmod 700 home; stat -c '%u %A' home
as 1000: sh -c 'echo one > home/f; echo two >> home/f; chmod 600 home/f; cat home/f'
as 1000: sh -c 'truncate -s 3 home/f; stat -c %s home/f; ln home/f home/g'
as 1000: sh -c 'mv home/g home/h; ls home'
as 1000: sh -c 'head -c 300000 /dev/zero > home/big; cp home/big home/copy; stat -c %s home/copy'
as 1000: sh -c 'echo x > home/ro; chmod 400 home/ro'
as 1000: sh -c 'exec 3<>home/new; rm home/new; echo y >&3; stat -Lc %s /proc/$$/fd/3'
as 7: cat home/f; as 7: ls home
cat home/f; rm home/f; touch root; stat -c %u root; chown 1000 root
as 1000: mkdir team; as 1000:55 chgrp 55 team; as 1000: chmod 770 team
as 7:55 touch team/x; as 7:55 ls team; as 8: touch team/y; as 7:55 rm team/x; as 7:55 ls team
as 1000: mkdir -m 1777 tmp; as 7: touch tmp/t; as 8: rm tmp/t; as 7: rm tmp/t; ls tmp
as 1000: setfacl -m u:7:rx home; as 7: ls home/copy; as 1000: setfattr -n user.x -v y home/f
as 1000: getfattr --only-values -n user.x home/f; echo
as 1000: rm -r home/copy home/big; as 1000: ls home
echo end`

const squashedWant = `1000 drwx------
one
two
3
f
h
300000
2
cat: home/f: Permission denied
ls: cannot open directory 'home': Permission denied
cat: home/f: Permission denied
rm: cannot remove 'home/f': Permission denied
65534
chown: changing ownership of 'root': Operation not permitted
x
touch: cannot touch 'team/y': Permission denied
rm: cannot remove 'tmp/t': Operation not permitted
home/copy
y
f
h
ro
end
`

// TestMountOfUsers: on the mount of a client whose root is not believed users do what they may, by
// their owners and groups, and root of the host is nobody.
func TestMountOfUsers(t *testing.T) {
	needTools(t, "setfacl", "setfattr", "getfattr")
	c, err := clustertest.StartMembers(2)
	must(t, err)
	t.Cleanup(c.Stop)
	_, err = c.Names.Make(t.Context(), meta.Caller{}, meta.RootIno, "proj",
		meta.NewFile{Type: meta.Directory, Mode: 0o777})
	must(t, err)
	got := script(t, mountAs(t, c, "ana", identity.Rights{Path: "/proj"}), squashed)
	if got != squashedWant {
		t.Fatalf("got\n%s\nwant\n%s", got, squashedWant)
	}
	ro := mountAs(t, c, "eve", identity.Rights{Path: "/proj", ReadOnly: true})
	got = script(t, ro, `as 1000: cat home/h; touch new; as 1000: rm home/h; mkdir d
findmnt -no OPTIONS -T . | tr , '\n' | grep -x ro; echo end`)
	if strings.Count(got, "Read-only file system") != 3 || !strings.HasPrefix(got, "one") ||
		!strings.HasSuffix(got, "ro\nend\n") {
		t.Fatal(got)
	}
}
