package config

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sluice-storage/sluice/errs"
)

func keyed(string) error { return nil }

func at(text string) (*Config, error) {
	return Parse([]byte(text), Host{Name: "h1", File: "/etc/s/sluice.toml"})
}

func TestDefaults(t *testing.T) {
	c, err := at("[meta]\n[[iod]]\n[[iod]]\nid = 7\nstore = ['disk', '/abs']\n[[mount]]\ndir = 'm'\n" +
		"[[nbd]]\nlisten = 'unix:s'\n[[nbd.export]]\nname = 'a'\nvolume = 'v'\n")
	if err != nil {
		t.Fatal(err)
	}
	yes, minute := true, Duration(time.Minute)
	want := &Config{Cluster: "sluice", Host: "h1", Folder: "/etc/s", Security: Secret,
		Listen: List{DefaultListen}, Admin: "127.0.0.1:0", Providers: List{"shm", "verbs", "tcp"},
		Progress: "any", Meta: &Meta{Listen: List{DefaultListen}, Admin: "127.0.0.1:0",
			SessionTime: Duration(30 * time.Second), LeaseTime: Duration(5 * time.Second),
			OpenFiles: 1 << 20, OpenFilesAll: 1 << 22},
		Iods: []Iod{
			{ID: 1, Name: "iod1", Admin: "127.0.0.1:0", Store: List{"/etc/s/iod1"}, Size: "0",
				Memory: "512M", WriteBack: &yes, Lend: &yes,
				HugePages: "auto"},
			{ID: 7, Name: "iod7", Admin: "127.0.0.1:0", Store: List{"/etc/s/disk", "/abs"}, Size: "0",
				Memory: "512M", WriteBack: &yes, Lend: &yes,
				HugePages: "auto"}},
		NBDs: []NBD{{Name: "nbd1", Listen: "unix:/etc/s/s", Admin: "127.0.0.1:0",
			Exports: []Export{{Name: "a", Volume: "v"}}}},
		Mounts: []Mount{{Name: "mount", Dir: "/etc/s/m", Path: "/", Admin: "127.0.0.1:0",
			Cache: "close-to-open", Atime: "relatime", Timeout: &minute}},
	}
	if d := cmp.Diff(want, c, cmpopts.IgnoreUnexported(Config{})); d != "" {
		t.Fatal(d)
	}
}

// refusal is a file and what is said of it.
type refusal struct {
	name, text string
	line       int
	key, say   string // in what is wrong, or its remedy
}

func refusals() []refusal {
	return []refusal{

		{"syntax", "a = \n", 1, "", ""},
		{"twice", "[meta]\nlisten = '127.0.0.1:1'\nlisten = '127.0.0.1:2'\n", 3, "", "listen"},
		{"misspelled", "[meta]\n[[iod]]\nmemroy = '1G'\n", 3, "iod[1].memroy", "Did you mean memory?"},
		{"top misspelled", "clutser = 'a'\n[meta]\n", 1, "clutser", "Did you mean cluster?"},
		{"elsewhere", "store = '/a'\n[meta]\n", 1, "store", "[[iod]]"},
		{"nonsense", "[meta]\nxyzzyplugh = 1\n", 2, "meta.xyzzyplugh", "There are: admin"},
		{"table", "meta = 1\n", 1, "meta", "[meta]"},
		{"tables", "[meta]\n[iod]\nid = 1\n", 2, "iod", "[[iod]]"},
		{"number as text", "[meta]\nopen-files = '5'\n", 2, "meta.open-files", "without quotes"},
		{"negative", "[meta]\nopen-files = -5\n", 2, "meta.open-files", "above 0"},
		{"text as number", "cluster = 5\n[meta]\n", 1, "cluster", "quotes"},
		{"yes", "in-memory = 'yes'\n[meta]\n", 1, "in-memory", "true or false"},
		{"size", "[meta]\n[[iod]]\nmemory = '12X'\n", 3, "iod[1].memory", "10GiB"},
		{"time", "[meta]\nsession-time = '5 days'\n", 2, "meta.session-time", "30s"},
		{"list", "[meta]\nlisten = [1]\n", 2, "meta.listen", "list of texts"},
		{"inline", "meta = {listen = '127.0.0.1:1'}\niod = [{id = 1},\n {id = 1}]\n", 3, "iod[2].id",
			"two I/O servers are number 1"},
		{"security", "security = 'tsl'\n[meta]\n", 1, "security", "Did you mean tls?"},
		{"no keys", "security = 'tls'\n[meta]\n", 1, "security", "sluice init"},
		{"beyond loopback", "listen = '10.0.0.1:9400'\n[meta]\n", 1, "listen", "security = \"tls\""},
		{"everywhere", "listen = '0.0.0.0:9400'\n[meta]\n", 1, "listen", "refusing to listen"},
		{"iod beyond", "[meta]\n[[iod]]\nlisten = '10.0.0.1:0'\n", 3, "iod[1].listen", "loopback"},
		{"network beyond", "data-network = '10.1.0.0/16'\n[meta]\n", 1, "data-network", "keys"},
		{"no network", "data-network = '10.1.0.0'\n[meta]\n", 1, "data-network", "10.1.0.0/16"},
		{"host in network", "data-network = '127.0.0.1/8'\n[meta]\n", 1, "data-network", "127.0.0.0/8"},
	}
}

func moreRefusals() []refusal {
	return []refusal{
		{"join beyond", "join = '10.0.0.1:1'\n[[iod]]\n", 1, "join", "another host"},
		{"join and meta", "join = '127.0.0.1:1'\n[meta]\n", 1, "join", "joins nobody"},
		{"no join", "[[iod]]\n", 0, "join", "neither here nor named"},
		{"nothing", "cluster = 'a'\n", 0, "", "nothing to run"},
		{"no tcp", "providers = 'shm'\n[meta]\n", 1, "providers", `Add "tcp"`},
		{"provider", "providers = ['tcp', 'pigeon']\n[meta]\n", 1, "providers", "pigeon"},
		{"admin beyond", "admin = '0.0.0.0:0'\n[meta]\n", 2, "meta.admin", "loopback"},
		{"admin shared", "admin = '127.0.0.1:99'\n[meta]\n[[iod]]\n", 3, "iod[1].admin", "port 0"},
		{"name", "host = 'Hans Wurst'\n[meta]\n", 1, "host", "small letters"},
		{"path as name", "[meta]\n[[iod]]\nname = '../x'\n", 3, "iod[1].name", "no name"},
		{"name twice", "[meta]\n[[iod]]\nname = 'meta'\n", 3, "iod[1].name", "is called meta, too"},
		{"log's name", "[meta]\n[[iod]]\nname = 'serve'\n", 3, "iod[1].name", "Choose another"},
		{"store twice", "[meta]\n[[iod]]\nstore='/a'\n[[iod]]\nstore='/a'\n", 5, "iod[2].store",
			"iod1 has /a already"},
		{"store in memory", "in-memory=true\n[meta]\n[[iod]]\nstore='/a'\n", 4, "iod[1].store", "memory"},
		{"port twice", "[meta]\n[[iod]]\nlisten = '127.0.0.1:9400'\n", 3, "iod[1].listen",
			"meta.listen listens at"},
		{"no exports", "[[nbd]]\n", 1, "nbd[1].export", "[[nbd.export]]"},
		{"two sources", "[[nbd]]\n[[nbd.export]]\nname='a'\nmem='1M'\nfile='x'\n", 2,
			"nbd[1].export[1].volume", "2 of them"},
		{"nbd beyond", "[[nbd]]\nlisten=':10809'\n[[nbd.export]]\nname='a'\nmem='1M'\n", 2,
			"nbd[1].listen", "HOST:PORT"},
		{"nbd in the clear", "[[nbd]]\nlisten='10.0.0.1:1'\n[[nbd.export]]\nname='a'\nmem='1M'\n", 2,
			"nbd[1].listen", "who they are"},
		{"nbd for anybody", "[[nbd]]\nlisten='10.0.0.1:1'\ntls-cert='c'\ntls-key='k'\n" +
			"[[nbd.export]]\nname='a'\nmem='1M'\n", 2, "nbd[1].listen", "who they are"},
		{"nbd half a key", "[[nbd]]\ntls-cert='c'\n[[nbd.export]]\nname='a'\nmem='1M'\n", 2,
			"nbd[1].tls-cert", "both"},
		{"nbd no keys", "[[nbd]]\ntls='required'\n[[nbd.export]]\nname='a'\nmem='1M'\n", 2,
			"nbd[1].tls", "certificate"},
		{"nbd tls word", "[[nbd]]\ntls='on'\n[[nbd.export]]\nname='a'\nmem='1M'\n", 2,
			"nbd[1].tls", "selective"},
		{"nbd names", "[[nbd]]\n[[nbd.export]]\nname='a'\nmem='1M'\nallow='bob'\n", 5,
			"nbd[1].export[1].allow", "required"},
		{"no dir", "[meta]\n[[mount]]\n", 2, "mount[1].dir", "Say where"},
		{"relative", "[meta]\n[[mount]]\ndir='/m'\npath='a/..'\n", 4, "mount[1].path", "whole path"},
		{"cache", "[meta]\n[[mount]]\ndir='/m'\ncache='strickt'\n", 4, "mount[1].cache", "strict"},
		{"remount", "[meta]\n[[mount]]\ndir='/m'\noptions='remount'\n", 4, "mount[1].options", "option"},
		{"trust", "trust-local = true\nsecurity = 'tls'\n[meta]\n", 1, "trust-local", "prove"},
		{"too long", "# " + strings.Repeat("x", BytesMax), 0, "", "right file"},
		{"too many", "[meta]\n" + strings.Repeat("[[iod]]\n", IodsMax+1), 0, "iod", "At most 64"},
	}
}

// TestRefusals: each problem names line and key, and what to do.
func TestRefusals(t *testing.T) {
	for _, c := range append(refusals(), moreRefusals()...) {
		t.Run(c.name, func(t *testing.T) {
			_, err := at(c.text)
			var all Invalid
			if !errors.As(err, &all) || !errors.Is(err, errs.Invalid) {
				t.Fatalf("%v", err)
			}
			fits := func(p Problem) bool {
				return p.Line == c.line && p.Key == c.key && p.Remedy != "" && p.What != "" &&
					strings.Contains(p.String(), c.say) && p.File == "/etc/s/sluice.toml"
			}
			if c.name == "twice" || c.name == "syntax" { // the library's words
				fits = func(p Problem) bool { return p.Line == c.line && p.What != "" }
			}
			if !slices.ContainsFunc(all, fits) {
				t.Fatalf("%+v", all)
			}
		})
	}
}

func TestAllProblemsAreTold(t *testing.T) {
	_, err := at("[[iod]]\nmemroy = 1\n[meta]\nlistn = 2\n[[mount]]\ndir = 5\n")
	want := "/etc/s/sluice.toml:2: iod[1].memroy: there is no such key\n  Did you mean memory?\n" +
		"/etc/s/sluice.toml:4: meta.listn: there is no such key\n  Did you mean listen?\n" +
		"/etc/s/sluice.toml:6: mount[1].dir: want a text"
	if err == nil || err.Error() != want || err.(Invalid).Remedy() != `Write it in quotes: "..."` {
		t.Fatalf("%v", err)
	}
}

func TestKeysLetOthersIn(t *testing.T) {
	text := "security = 'tls'\nlisten = ['10.0.0.1:9400', '[fd00::1]:9400']\n" +
		"data-network = '10.1.0.0/16'\n[meta]\n[[iod]]\n"
	h := Host{File: "/f/sluice.toml", Keys: keyed}
	if _, err := Parse([]byte(text), h); err != nil {
		t.Fatal(err)
	}
	asked := ""
	h.Keys = func(folder string) error { asked = folder; return fmt.Errorf("none at all") }
	if _, err := Parse([]byte(text), h); err == nil || !strings.Contains(err.Error(), "none at all") ||
		asked != "/f" {
		t.Fatalf("asked %q: %v", asked, err)
	}
}

func TestChoose(t *testing.T) {
	addrs := []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::ffff:10.1.2.3"),
		netip.MustParseAddr("10.1.9.9"), netip.MustParseAddr("fd00::7")}
	got, missing := Choose(List{"10.1.0.0/16", "fd00::/8", "10.2.0.0/16"}, addrs)
	if fmt.Sprint(got) != "[10.1.2.3 fd00::7]" || fmt.Sprint(missing) != "[10.2.0.0/16]" {
		t.Fatal(got, missing)
	}
}

// TestAdminBeyondLoopback: with certificates an admin address may be for other hosts.
func TestAdminBeyondLoopback(t *testing.T) {
	c, err := Parse([]byte("security = 'tls'\nadmin = '10.0.0.1:0'\nadmin-clients = 'prometheus'\n"+
		"listen = '10.0.0.1:9400'\n[meta]\n"), Host{Name: "h1", File: "/etc/s/x", Keys: keyed})
	if err != nil || c.Meta.Admin != "10.0.0.1:0" || c.AdminClients[0] != "prometheus" {
		t.Fatalf("%+v, %v", c, err)
	}
	_, err = at("admin-clients = 'Not a name'\n[meta]\n")
	if !errors.Is(err, errs.Invalid) || !strings.Contains(err.Error(), "admin-clients") {
		t.Fatalf("%v", err)
	}
}

// TestEveryKeyIsDocumented: in what is written, and on the page for people.
func TestEveryKeyIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../docs/ops/serve.md")
	if err != nil {
		t.Fatal(err)
	}
	known := docs()
	for _, table := range tables() {
		path := strings.Trim(table.name, "[]")
		if table.of == reflect.TypeFor[Config]() {
			path = ""
		}
		for name, i := range fieldsOf(table.of) {
			if isTable(table.of.Field(i).Type) {
				continue
			}
			if known[joined(path, name)] == "" {
				t.Errorf("nothing is said of %s", joined(path, name))
			}
			if !strings.Contains(string(page), "| `"+name+"` |") {
				t.Errorf("docs/ops/serve.md does not have %s of %s", name, table.name)
			}
			delete(known, joined(path, name))
		}
	}
	if len(known) > 0 {
		t.Errorf("something is said of keys that there are not: %v", known)
	}
}

// FuzzParse: any text is read or refused with words, and what was read is read again the same from
// what is written.
func FuzzParse(f *testing.F) {
	for _, text := range []string{"", "[meta]\n", "a.b.c = [1, {x = 2}]\n[[iod]]\n[iod.x]\n",
		"security='tls'\nlisten=['10.0.0.1:1','[::1]:2']\n[meta]\n[[iod]]\nid=3\nmemory=5\n",
		"join='127.0.0.1:1'\n[[nbd]]\n[[nbd.export]]\nname='\\u0007\"\\\\'\nvolume='v'\nmode='direct'\n",
		"[meta]\n[[mount]]\ndir='a\\nb'\ntimeout='0s'\noptions=['ro','noatime']\nallow-other=false\n",
		"\"\\u0061\" = 1\n[[\"iod\"]]\n'id' = 1\n", "[[iod]]\n[[iod.x]]\n[iod.x.y]\nz=1\n"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		h := Host{Name: "h", File: "/f/sluice.toml", Keys: keyed}
		c, err := Parse(text, h)
		if err != nil {
			var all Invalid
			if !errors.As(err, &all) || len(all) == 0 || all[0].What == "" || all[0].Remedy == "" {
				t.Fatalf("refused without words: %v", err)
			}
			return
		}
		again, err := Parse(Render(c, "head"), h)
		if err != nil {
			t.Fatalf("%v\n%s", err, Render(c, ""))
		}
		if d := cmp.Diff(c, again, cmpopts.IgnoreUnexported(Config{}), cmpopts.EquateEmpty()); d != "" {
			t.Fatal(d)
		}
	})
}

// TestGatewaysBeyondLoopback: where everybody proves who he is, or nobody has to.
func TestGatewaysBeyondLoopback(t *testing.T) {
	export := "[[nbd.export]]\nname='a'\nmem='1M'\n"
	h := Host{Name: "h1", File: "/etc/s/sluice.toml", Keys: keyed}
	for _, text := range []string{
		"[[nbd]]\nlisten='10.0.0.1:1'\ntls-cert='c'\ntls-key='k'\ntls-ca='a'\n" + export,
		"[[nbd]]\nlisten='10.0.0.1:1'\ninsecure=true\n" + export,
		"security='tls'\n[[nbd]]\nlisten='10.0.0.1:1'\ntls='required'\n" + export + "allow=['x','y']\n",
	} {
		c, err := Parse([]byte(text), h)
		if err != nil {
			t.Errorf("%s%v", text, err)
			continue
		}
		if n := c.NBDs[0]; n.TLSCert != "" && n.TLSCert != "/etc/s/c" {
			t.Errorf("certificate at %s", n.TLSCert)
		}
	}
	for _, text := range []string{
		"security='tls'\n[[nbd]]\nlisten='10.0.0.1:1'\n" + export,
		"security='tls'\n[[nbd]]\nlisten='10.0.0.1:1'\ntls='selective'\n" + export,
		"[[nbd]]\nlisten='10.0.0.1:1'\ntls='selective'\ntls-cert='c'\ntls-key='k'\ntls-ca='a'\n" + export,
	} {
		if _, err := Parse([]byte(text), h); err == nil {
			t.Errorf("accepted: %s", text)
		}
	}
}
