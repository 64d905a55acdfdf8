package config

import (
	"fmt"
	"net"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
)

// checker collects what is wrong.
type checker struct {
	config   *Config
	host     Host
	problems []Problem
	names    map[string]string // of processes, and the key that gave it
	ports    map[string]string // that are listened at, likewise
}

func (c *Config) validate(h Host) []Problem {
	k := checker{config: c, host: h, names: map[string]string{}, ports: map[string]string{}}
	k.top()
	k.addresses()
	if c.Meta != nil {
		k.meta(c.Meta)
	}
	k.count("iod", len(c.Iods), IodsMax)
	ids := map[int]bool{}
	for i := range c.Iods {
		k.iod(i, &c.Iods[i], ids)
	}
	k.stores()
	k.count("nbd", len(c.NBDs), GatewaysMax)
	for i := range c.NBDs {
		k.nbd(i, &c.NBDs[i])
	}
	k.count("mount", len(c.Mounts), MountsMax)
	dirs := map[string]bool{}
	for i := range c.Mounts {
		k.mount(i, &c.Mounts[i], dirs)
	}
	k.admins()
	return k.problems
}

func (k *checker) bad(key, remedy, format string, args ...any) {
	k.problems = append(k.problems, k.config.Problem(key, fmt.Sprintf(format, args...), remedy))
}

// top is about the keys that are in no table.
func (k *checker) top() {
	c := k.config
	k.name("cluster", c.Cluster)
	k.name("host", c.Host)
	k.oneOf("security", string(c.Security), string(Secret), string(TLS), string(Authenticated))
	k.oneOf("progress", c.Progress, "any", "poll", "thread")
	for _, p := range c.Providers {
		k.oneOf("providers", p, "shm", "verbs", "tcp")
	}
	if !slices.Contains(c.Providers, "tcp") {
		k.bad("providers", `Add "tcp"`, "without tcp nobody is found")
	}
	if c.TrustLocal && c.Security != Secret {
		k.bad("trust-local", "Leave it out, or write security = \"secret\"",
			"with security = %q every peer has to prove who it is", c.Security)
	}
	if c.Security.Keyed() {
		if err := k.keys(); err != nil {
			k.bad("security", "Make keys with: sluice init   or get some with: sluice join",
				"%q needs keys, and there are none: %v", c.Security, err)
		}
	}
	if c.Meta == nil && len(c.Iods)+len(c.NBDs)+len(c.Mounts) == 0 {
		k.bad("", "Add [meta], [[iod]], [[nbd]] or [[mount]]", "there is nothing to run")
	}
}

// keys tells why a cluster of certificates cannot run here.
func (k *checker) keys() error {
	if k.host.Keys == nil {
		return fmt.Errorf("nobody has looked for them")
	}
	return k.host.Keys(k.config.Folder)
}

// addresses are about where the metadata service is, here or elsewhere, and about networks.
func (k *checker) addresses() {
	c := k.config
	k.listened("listen", c.Listen)
	k.count("data-network", len(c.DataNetwork), AddrsMax)
	for _, text := range c.DataNetwork {
		p, err := netip.ParsePrefix(text)
		switch {
		case err != nil:
			k.bad("data-network", `Write a network with its length, like "10.1.0.0/16"`,
				"%q is no network", text)
		case p.Masked() != p:
			k.bad("data-network", fmt.Sprintf("Write %q", p.Masked()),
				"%q is an address in a network", text)
		case !p.Addr().IsLoopback() && !c.Security.Keyed():
			k.beyond("data-network", text)
		}
	}
	k.count("join", len(c.Join), AddrsMax)
	for _, a := range c.Join {
		k.dialled("join", a)
		if IsAddr(a) && !IsLoopback(a) && !c.Security.Keyed() {
			k.bad("join", `Write security = "tls" and get keys with: sluice join`,
				"%s is another host, which security = %q cannot know", a, c.Security)
		}
	}
	switch {
	case c.Meta != nil && len(c.Join) > 0:
		k.bad("join", "Leave out join, or [meta]",
			"a host that runs the metadata service joins nobody")
	case c.Meta == nil && len(c.Join) == 0 && k.needsMeta():
		k.bad("join", `Say where it is, like join = "10.0.0.1:9400", or add [meta]`,
			"the metadata service is neither here nor named")
	case c.Meta == nil && len(c.Listen) > 0 && len(c.Iods) == 0:
		k.bad("listen", "Leave it out, or add [meta] or [[iod]]", "nothing here listens there")
	}
}

// needsMeta tells whether anything here asks the metadata service.
func (k *checker) needsMeta() bool {
	c := k.config
	return len(c.Iods)+len(c.Mounts) > 0 || slices.ContainsFunc(c.NBDs, func(n NBD) bool {
		return slices.ContainsFunc(n.Exports, func(e Export) bool { return e.Volume != "" })
	})
}

func (k *checker) meta(m *Meta) {
	k.process("meta", "meta")
	k.listened("meta.listen", m.Listen)
	for _, a := range m.Listen {
		k.port("meta.listen", a)
	}
}

func (k *checker) iod(i int, d *Iod, ids map[int]bool) {
	if d.ID < 1 || d.ID > IDMax {
		k.bad(Key("iod", i, "id"), fmt.Sprintf("Choose from 1 to %d", IDMax), "%d", d.ID)
	}
	if ids[d.ID] {
		k.bad(Key("iod", i, "id"), "Give each [[iod]] an id of its own, that no other host has",
			"two I/O servers are number %d", d.ID)
	}
	ids[d.ID] = true
	k.process(Key("iod", i, "name"), d.Name)
	k.listened(Key("iod", i, "listen"), d.Listen)
	for _, a := range d.Listen {
		k.port(Key("iod", i, "listen"), a)
	}
	k.oneOf(Key("iod", i, "huge-pages"), d.HugePages, "on", "auto", "off")
	k.count(Key("iod", i, "store"), len(d.Store), AddrsMax)
	if k.config.InMemory && len(d.Store) > 0 {
		k.bad(Key("iod", i, "store"), "Leave out store, or in-memory",
			"with in-memory = true data lies in memory")
	}
}

// stores must not be shared: each is locked by one server.
func (k *checker) stores() {
	owner := map[string]string{}
	for i, d := range k.config.Iods {
		for _, p := range d.Store {
			if other, ok := owner[p]; ok {
				k.bad(Key("iod", i, "store"), "Give each store a folder of its own",
					"%s has %s already", other, p)
			}
			owner[p] = d.Name
		}
	}
}

func (k *checker) nbd(i int, n *NBD) {
	k.process(Key("nbd", i, "name"), n.Name)
	listen := Key("nbd", i, "listen")
	if at, ok := cutUnix(n.Listen); ok {
		if at == "" || len(at) > 107 {
			k.bad(listen, "Write unix: and a path of at most 107 bytes", "%q is no socket", n.Listen)
		}
	} else if k.dialled(listen, n.Listen) && !IsLoopback(n.Listen) && !n.Insecure &&
		!n.Authenticates(k.config.Security) {
		k.bad(listen, `Write a loopback address, or unix:PATH, or tls-cert, tls-key and tls-ca, or `+
			`tls = "required" on a host with keys`,
			"other hosts could reach %s, and nothing asks them who they are", n.Listen)
	}
	k.gatewayTLS(i, n)
	k.port(listen, n.Listen)
	if len(n.Exports) == 0 {
		k.bad(Key("nbd", i, "export"), "Add [[nbd.export]] below it", "it serves nothing")
	}
	k.count(Key("nbd", i, "export"), len(n.Exports), ExportsMax)
	names := map[string]bool{}
	for j := range n.Exports {
		e := &n.Exports[j]
		key := func(name string) string { return fmt.Sprintf("nbd[%d].export[%d].%s", i+1, j+1, name) }
		if len(e.Name) > 4096 || names[e.Name] {
			k.bad(key("name"), "Give each export a name of its own, of at most 4096 bytes",
				"%.64q is taken or too long", e.Name)
		}
		names[e.Name] = true
		k.exportSource(key, e)
	}
}

// exportSource is about what an export serves; what its keys mean together is the gateway's to say.
func (k *checker) exportSource(key func(name string) string, e *Export) {
	given := count(e.Volume != "", e.File != "", e.Disk != "", len(e.Members) > 0, e.Mem != "")
	if given != 1 {
		k.bad(key("volume"), "Give one of volume, file, disk, members and mem",
			"%d of them are given", given)
	}
	k.count(key("members"), len(e.Members), MembersMax)
	switch {
	case e.Mode == "":
	case e.Mem != "":
		k.bad(key("mode"), "Leave it out", "memory has no modes")
	case e.Volume != "":
		k.oneOf(key("mode"), e.Mode, "cached", "cached-writes", "stream", "direct")
	default:
		k.oneOf(key("mode"), e.Mode, "page", "direct", "cached", "cached-writes")
	}
}

// gatewayTLS is about the keys of a gateway.
func (k *checker) gatewayTLS(i int, n *NBD) {
	if n.TLS != "" {
		k.oneOf(Key("nbd", i, "tls"), n.TLS, "off", "selective", "required")
	}
	if (n.TLSCert == "") != (n.TLSKey == "") {
		k.bad(Key("nbd", i, "tls-cert"), "Give both tls-cert and tls-key",
			"a certificate and its private key belong together")
	}
	keyed := n.TLSCert != "" || k.config.Security.Keyed()
	on := n.TLS == "selective" || n.TLS == "required"
	if on && !keyed {
		k.bad(Key("nbd", i, "tls"), "Give tls-cert and tls-key", "TLS needs a certificate")
	}
	if n.TLSCert == "" && n.TLSCA != "" || n.TLS == "off" && n.TLSCert != "" {
		k.bad(Key("nbd", i, "tls"), "Leave one of them out", "there are keys, and no TLS")
	}
	for j := range n.Exports {
		if e := &n.Exports[j]; (len(e.Allow) > 0 || e.TLSOnly) && !on && n.TLSCert == "" {
			k.bad(fmt.Sprintf("nbd[%d].export[%d].allow", i+1, j+1), `Write tls = "required" above it`,
				"without TLS nobody has a name")
		}
		k.count(fmt.Sprintf("nbd[%d].export[%d].allow", i+1, j+1), len(n.Exports[j].Allow), NamesMax)
		k.count(fmt.Sprintf("nbd[%d].export[%d].filter", i+1, j+1), len(n.Exports[j].Filters), AddrsMax)
	}
}

func (k *checker) mount(i int, m *Mount, dirs map[string]bool) {
	k.process(Key("mount", i, "name"), m.Name)
	switch {
	case m.Dir == "":
		k.bad(Key("mount", i, "dir"), `Say where, like dir = "/mnt/sluice"`, "it is missing")
	case dirs[m.Dir]:
		k.bad(Key("mount", i, "dir"), "Choose another directory", "two mounts at %s", m.Dir)
	}
	dirs[m.Dir] = true
	if !strings.HasPrefix(m.Path, "/") || path.Clean(m.Path) != m.Path {
		k.bad(Key("mount", i, "path"), `Write a whole path, like "/" or "/projects"`,
			"%q is no path on the cluster", m.Path)
	}
	k.oneOf(Key("mount", i, "cache"), m.Cache, "strict", "close-to-open", "writeback")
	k.oneOf(Key("mount", i, "atime"), m.Atime, "relatime", "strict", "none")
	for _, o := range m.Options {
		name, _, _ := strings.Cut(o, "=")
		if o == "" || strings.ContainsAny(o, "\n\x00") || name == "remount" {
			k.bad(Key("mount", i, "options"), "See: sluice help mount", "%q is no option of a mount", o)
		}
	}
}

// admins are loopback addresses, or others where certificates tell who comes, and several processes
// cannot share a port.
func (k *checker) admins() {
	c := k.config
	users := map[string]int{}
	use := func(key, addr string, known bool) {
		if addr == "off" {
			return
		}
		if !k.dialled(key, addr) {
			return
		}
		if !IsLoopback(addr) && !known {
			k.bad(key, `Write a loopback address, like "127.0.0.1:0", or "off"`,
				"other hosts could reach %s, and nothing there knows who comes", addr)
		}
		if _, port, _ := net.SplitHostPort(addr); port == "0" {
			return
		}
		if users[addr]++; users[addr] > 1 {
			k.bad(key, "Write port 0; sluice status shows the addresses",
				"several processes cannot share %s", addr)
			return
		}
		k.port(key, addr)
	}
	if c.Meta != nil {
		use("meta.admin", c.Meta.Admin, c.Security.Keyed())
		if c.Meta.Join != "" {
			k.listened("meta.join", List{c.Meta.Join})
			if !c.Security.Keyed() {
				k.bad("meta.join", `Write security = "tls", or leave it out`,
					"who joins gets a certificate, and security = %q asks for none", c.Security)
			}
		}
	}
	for i := range c.Iods {
		use(Key("iod", i, "admin"), c.Iods[i].Admin, c.Security.Keyed())
	}
	for i := range c.NBDs {
		use(Key("nbd", i, "admin"), c.NBDs[i].Admin, false)
	}
	for i := range c.Mounts {
		use(Key("mount", i, "admin"), c.Mounts[i].Admin, false)
	}
	k.count("admin-clients", len(c.AdminClients), AddrsMax)
	for _, name := range c.AdminClients {
		k.name("admin-clients", name)
	}
}

// listened is a list of addresses that servers listen at.
func (k *checker) listened(key string, list List) {
	k.count(key, len(list), AddrsMax)
	for _, a := range list {
		if !k.dialled(key, a) {
			continue
		}
		host, _, _ := net.SplitHostPort(a)
		if ip, err := netip.ParseAddr(host); err == nil && ip.IsUnspecified() {
			k.bad(key, "Name the addresses that others use, as many as there are",
				"refusing to listen on %s: nobody could be told where that is", a)
		} else if !IsLoopback(a) && !k.config.Security.Keyed() {
			k.beyond(key, a)
		}
	}
}

// beyond is an address that others could reach without being asked who they are.
func (k *checker) beyond(key, addr string) {
	k.bad(key, `Use a loopback address, or keys: security = "tls"`,
		"refusing %s: other hosts could reach it, and security = %q asks them nothing", addr,
		k.config.Security)
}

// IsAddr tells whether a text is HOST:PORT with both, and a port that there is.
func IsAddr(addr string) bool {
	host, port, err := net.SplitHostPort(addr)
	if err != nil || host == "" || len(addr) > 255 || strings.ContainsAny(host, " ,/\x00\n") {
		return false
	}
	n, err := strconv.Atoi(port)
	return err == nil && n >= 0 && n <= 65535 && port == strconv.Itoa(n)
}

func (k *checker) dialled(key, addr string) bool {
	if IsAddr(addr) {
		return true
	}
	k.bad(key, "Write HOST:PORT, like "+DefaultListen, "%q is no address", addr)
	return false
}

// port notes an address that somebody listens at; any free port is nobody's.
func (k *checker) port(key, addr string) {
	if _, port, err := net.SplitHostPort(addr); err == nil && port == "0" {
		return
	}
	if other, ok := k.ports[addr]; ok {
		k.bad(key, "Choose another port, or 0 for any that is free", "%s listens at %s already",
			other, addr)
		return
	}
	k.ports[addr] = key
}

// process is the name of one, which is part of file names.
func (k *checker) process(key, name string) {
	k.name(key, name)
	if name == "up" || name == "serve" {
		k.bad(key, "Choose another name", "%q is the name of a log already", name)
	}
	if other, ok := k.names[name]; ok {
		k.bad(key, "Choose another name", "%s is called %s, too", other, name)
		return
	}
	k.names[name] = key
}

// IsName tells whether a text may be the name of a cluster, a host or a process: small letters,
// digits and - . _, with a letter or digit at both ends. Such names are safe in paths and URIs.
func IsName(name string) bool {
	alnum := func(c byte) bool { return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' }
	ok := name != "" && len(name) <= NameMax && alnum(name[0]) && alnum(name[len(name)-1])
	for i := 0; ok && i < len(name); i++ {
		ok = alnum(name[i]) || strings.IndexByte("-._", name[i]) >= 0
	}
	return ok
}

func (k *checker) name(key, name string) {
	if !IsName(name) {
		k.bad(key, fmt.Sprintf("Take 1 to %d small letters, digits and - . _, with a letter or digit "+
			"at both ends", NameMax), "%.80q is no name", name)
	}
}

func (k *checker) oneOf(key, value string, known ...string) {
	if slices.Contains(known, value) {
		return
	}
	remedy := "Choose of " + strings.Join(known, ", ")
	if near := Suggest(value, known); near != "" {
		remedy = "Did you mean " + near + "? " + remedy
	}
	k.bad(key, remedy, "there is no %q", value)
}

func (k *checker) count(key string, n, most int) {
	if n > most {
		k.bad(key, fmt.Sprintf("At most %d are possible", most), "%d of them", n)
	}
}

func count(given ...bool) (n int) {
	for _, g := range given {
		if g {
			n++
		}
	}
	return n
}
