package lint

import (
	"path"
	"sort"
	"strings"
)

// layer says what a package may import of this module. A pattern is a folder, or a folder with
// "/..." for everything below it (not the folder itself). Vocabulary and internal packages are open
// to all and never listed; a package may always import what its own row names and nothing else.
//
// Only peer opens providers (fabric/tcp), so that a program of the library reaches servers by the
// same code as this one; above it nobody knows them by name. Only cmd/sluice opens engines
// (kv/pebblekv, stripe/logstore) and servers: no other row names one. Test files may import
// anything.
type layer struct {
	pkg string
	may []string
}

// table is the drawn structure, bottom-up. The first row whose pattern fits a package is its row,
// so that exceptions stand above the rule.
func table() []layer {
	return append(append(benchTable(), frontTable()...), []layer{
		// The vocabulary: pure, no goroutines. capability signs, which is arithmetic too.
		{"errs", nil}, {"seg", nil}, {"layout", nil}, {"wire", nil}, {"hint", nil},
		{"capability", nil}, {"internal/...", nil},

		// What a host runs, as a file. It opens nothing.
		{"config", nil},

		// Transport. Providers do not know each other, but share their bookkeeping, which nobody else
		// sees; wrappers and the suite know the contract only.
		{"fabric", nil},
		{"fabric/hook/...", []string{"fabric", "fabric/hook"}},
		{"fabric/fabrictest", []string{"fabric"}},
		{"fabric/provider", []string{"fabric"}},
		{"fabric/progress", []string{"fabric", "fabric/provider"}}, // who polls: of providers, and of msg
		{"fabric/...", []string{"fabric", "fabric/progress", "fabric/provider"}},
		{"mem", []string{"fabric"}},
		{"mem/...", []string{"fabric", "mem"}},
		{"msg/segment", []string{"fabric", "mem"}}, // what a request describes; msg moves it
		{"msg", []string{"fabric", "fabric/progress", "mem", "msg/internal/...", "msg/segment"}},
		{"msg/...", []string{"fabric", "mem", "msg"}},
		{"mover", []string{"fabric", "mem", "msg"}},
		{"exio", []string{"fabric", "mem", "mover"}}, // messages and files behind one interface
		{"exio/exiotest", []string{"exio"}},
		{"peer", []string{
			"fabric", "fabric/shm", "fabric/tcp", "fabric/verbs", "identity", "mem", "msg"}},

		// Storage. The cache knows neither sockets nor files; its parts call downward only: write-back,
		// index, memory. The stores know no cache. stripe is the contract only: ids and durability.
		{"unifier", []string{"fabric", "mem", "stripe", "unifier/internal/..."}},
		{"unifier/internal/memory", []string{"fabric", "mem"}},
		{"unifier/internal/index", []string{"fabric", "mem", "stripe", "unifier/internal/memory"}},
		{"unifier/internal/writeback", []string{"fabric", "mem", "stripe", "unifier/internal/..."}},
		{"relay", []string{"fabric", "stripe"}}, // below the I/O server and the block exports
		{"stripe", nil},
		{"stripe/logstore", []string{"stripe", "stripe/device"}}, // devices are what it stands on
		{"stripe/device/...", []string{"stripe/device"}},
		{"stripe/...", []string{"mem", "stripe"}},
		{"kv", nil},
		{"kv/...", []string{"kv", "kv/engine"}},

		// Services: types, server, remote. fabric is the contract only: msg.Memory is made of its words.
		{"admin", nil},
		{"admin/top", []string{"admin"}}, // draws what processes tell
		{"iod", []string{"fabric", "msg", "stripe"}},
		{"iod/server", []string{
			"admin", "fabric", "iod", "mem", "mover", "msg", "relay", "stripe", "unifier"}},
		{"iod/dirty", nil}, // memory, without I/O
		{"iod/remote", []string{"fabric", "iod", "iod/dirty", "mem", "mem/regcache", "mover", "msg",
			"peer", "stripe"}}, // mover: which shape data in pieces travels in
		{"iod/objects", []string{"iod", "meta", "stripe"}}, // what the metadata service needs of them
		{"iod/...", []string{"iod", "fabric", "mem", "msg", "stripe"}},
		{"identity", nil},                      // keys, certificates, tokens, and their files
		{"join", []string{"identity", "meta"}}, // how hosts and clients join: HTTPS
		{"meta", []string{"identity", "meta/acl"}},
		{"meta/acl", nil}, // pure, as the vocabulary
		{"meta/lease", []string{"meta"}},
		{"meta/member", []string{"meta"}}, // pure: heartbeats and time in, states out
		{"meta/store", []string{"identity", "kv", "meta", "meta/acl", "meta/dump", "meta/lease",
			"meta/lock", "meta/member", "meta/perm"}}, // perm: clients check likewise
		{"meta/internal/bulk", []string{"fabric", "mem", "meta", "msg"}},
		{"meta/guard", []string{"identity", "meta", "meta/perm"}}, // rights of clients
		{"meta/server", []string{"admin", "fabric", "identity", "meta", "meta/guard",
			"meta/internal/bulk", "msg"}},
		{"meta/remote", []string{"fabric", "identity", "meta", "meta/internal/bulk", "msg", "peer"}},
		{"meta/metatest", []string{"identity", "meta", "meta/acl", "meta/dump"}},
		{"meta/...", []string{"meta", "meta/acl"}},
	}...)
}

// frontTable are the rows of the client and of what stands on it.
func frontTable() []layer {
	return []layer{
		// Front ends know the client, never a server.
		{"client", []string{
			"client/internal/...", "fabric", "iod", "iod/remote", "join", "mem", "mem/regcache", "meta",
			"meta/acl", "meta/perm", "meta/remote", "mover", "msg", "peer", "stripe"}},
		{"client/array", nil}, // by an interface of its own; seg is vocabulary
		{"client/internal/behind", []string{"iod", "mem", "meta"}},
		{"client/internal/cache", []string{"meta", "meta/perm"}}, // no I/O: what is known, until when
		// A cluster in one process, which only tests import.
		{"client/clustertest", []string{"..."}},
		{"client/...", []string{"client", "fabric", "mem", "meta", "msg", "stripe"}},
		// stripe: extents, as the client tells them; state: what outlives a process that serves.
		{"mount", []string{"client", "meta", "meta/acl", "mount/state", "stripe"}},
		{"mount/state", nil},
		{"mount/keeper", []string{"mount", "mount/state"}}, // starts those that serve; serves nothing
		// What a library for C has of the client; capi/libsluice only hands arguments over.
		{"capi", []string{"client", "client/array", "config", "fabric/tcp", "join", "meta", "msg",
			"peer"}},
		{"capi/...", []string{"capi"}},
		{"nbd", nil},
		{"nbd/volumeexport", []string{"client", "nbd", "stripe"}},
		// A local disk has what an I/O server has: direct I/O, the relay, the cache.
		{"nbd/diskexport", []string{
			"fabric", "mem", "nbd", "relay", "stripe", "stripe/device", "unifier"}},
		{"nbd/...", []string{"nbd"}},
		{"transfer", []string{"exio", "fabric", "peer"}}, // files between hosts; the cluster is a Store
		{"attach", []string{"attach/netlink", "nbd"}},    // the kernel as a client of an export
		{"attach/netlink", nil},
		{"attach/early", nil}, // before Go's runtime

		{"cmd/sluice", []string{"..."}},
		{"systest", nil}, // drives the built binary
		{"mpiio", nil},   // a library in C and its tests, which drive it and the binary
		{"systest/hosttest", nil},
		{"vmtest", []string{"vmtest/frame"}}, // drives guests, and what is built in them
		{"vmtest/lab", []string{"vmtest"}},   // the same for people
		{"vmtest/...", []string{"vmtest/frame"}},
	}
}

// benchTable are the rows of the bench. Its core knows nothing of the module; each part knows what
// it measures. iod has the ceilings of net and store, net those of the fabric alone. None knows a
// server: package main starts them.
func benchTable() []layer {
	return []layer{
		{"bench", nil},
		{"bench/partner", []string{"bench", "fabric", "fabric/hook/meter", "mem"}},
		{"bench/plain", []string{"bench", "bench/partner"}},
		{"bench/fabric", []string{"bench", "bench/partner", "bench/plain", "fabric", "mem"}},
		{"bench/tune", []string{"bench", "msg"}}, // the file that servers and clients read
		{"bench/net", []string{
			"bench", "bench/fabric", "bench/partner", "bench/plain", "bench/tune", "fabric", "mem",
			"mem/regcache", "mover", "msg", "msg/tune", "peer"}},
		{"bench/transfer", []string{"bench", "bench/partner", "exio"}},
		{"bench/store", []string{"bench", "bench/partner", "stripe"}},
		{"bench/iod", []string{
			"bench", "bench/net", "bench/partner", "bench/store", "fabric", "iod", "iod/remote", "mem",
			"msg", "peer", "stripe"}},
		{"bench/meta", []string{"bench", "bench/partner", "client", "kv", "meta"}},
		{"bench/fs", []string{"bench", "bench/plain", "client"}},
		{"bench/list", []string{"bench", "client"}},
		{"bench/process", []string{"bench"}},
		// The papers' experiments: choices of others' cases, and some of the client library's.
		{"bench/paper", []string{"bench", "bench/partner", "client"}},
		// They drive programs and children of the bench.
		{"bench/mount", []string{"bench", "bench/process"}},
		{"bench/nbd", []string{"bench", "bench/process"}},
		{"bench/benchtest", []string{"bench/partner", "bench/plain", "fabric/shm", "fabric/tcp"}},
		{"bench/grpcpeer", []string{ // a module of its own
			"bench", "bench/net", "bench/partner", "bench/plain", "fabric/tcp"}},
	}
}

// fits tells whether a folder is named by a pattern.
func fits(pattern, dir string) bool {
	if pattern == "..." {
		return true
	}
	if below, ok := strings.CutSuffix(pattern, "/..."); ok {
		return strings.HasPrefix(dir, below+"/")
	}
	return pattern == dir
}

func isVocabulary(dir string) bool {
	switch dir {
	case "errs", "seg", "layout", "wire", "hint", "capability":
		return true
	}
	return false
}

func openToAll(dir string) bool { return isVocabulary(dir) || fits("internal/...", dir) }

// inModule turns an import path into a folder of this module.
func inModule(imported string) (dir string, ok bool) {
	if imported == Module {
		return ".", true
	}
	return strings.CutPrefix(imported, Module+"/")
}

// layers holds the imports of one file against the table.
func layers(s *Source) []Problem {
	if s.IsTest() {
		return nil
	}
	row, ok := rowOf(s.Dir())
	if !ok {
		return []Problem{s.problem(s.AST.Package, "layer",
			"package %s is not in the table: say in layers.go what it may import", s.Dir())}
	}
	var found []Problem
	for imported, at := range s.imports() {
		dir, ok := inModule(imported)
		if !ok || row.allows(s.Dir(), dir) {
			continue
		}
		found = append(found, s.problem(at, "layer", "%s must not import %s", s.Dir(), dir))
	}
	return found
}

func rowOf(dir string) (layer, bool) {
	for _, row := range table() {
		if fits(row.pkg, dir) {
			return row, true
		}
	}
	return layer{}, false
}

func (row layer) allows(from, dir string) bool {
	if openToAll(dir) {
		return true
	}
	// A suite may build on another suite of a package that it may import.
	if isSuite(from) && isSuite(dir) {
		dir = path.Dir(dir)
	}
	for _, pattern := range row.may {
		if fits(pattern, dir) {
			return true
		}
	}
	return false
}

// isSuite tells whether a package exists for tests, like fabrictest and kvtest.
func isSuite(dir string) bool {
	return strings.HasSuffix(dir, "test") && dir != "vmtest" && dir != "systest"
}

// testSupport keeps suites out of the program.
func testSupport(s *Source) []Problem {
	if s.IsTest() || isSuite(s.Dir()) {
		return nil
	}
	var found []Problem
	for imported, at := range s.imports() {
		if dir, ok := inModule(imported); (ok && isSuite(dir)) || imported == "testing" {
			found = append(found, s.problem(at, "test support",
				"%s is for tests; only test files and suites import it", imported))
		}
	}
	return found
}

// homes says which packages may use a module from outside. Others reach it through the package
// named here, so that it can be exchanged. Modules that are not listed are free to use.
func homes() map[string][]string {
	return map[string][]string{
		"github.com/hanwen/go-fuse": {"mount", "internal/memfuse"},
		"github.com/cockroachdb":    {"kv/pebblekv"},
		"github.com/spf13":          {"cmd/sluice"},
		"github.com/vbauerster/mpb": {"cmd/sluice"},
		"github.com/rogpeppe":       {},
		"github.com/google/go-cmp":  {},
		"pgregory.net/rapid":        {},
		"go.uber.org/goleak":        {},
		"github.com/HdrHistogram":   {"bench", "internal/hist"},
		"github.com/prometheus":     {"admin"},
		"github.com/pelletier":      {"config"},
	}
}

// externals keeps modules from outside in their homes.
func externals(s *Source) []Problem {
	if s.IsTest() || isSuite(s.Dir()) {
		return nil
	}
	var found []Problem
	for imported, at := range s.imports() {
		for module, dirs := range homes() {
			if imported != module && !strings.HasPrefix(imported, module+"/") {
				continue
			}
			if !contains(dirs, s.Dir()) {
				found = append(found, s.problem(at, "external",
					"%s is used in %s only", module, strings.Join(append(dirs, "tests"), ", ")))
			}
		}
	}
	return found
}

func contains(list []string, want string) bool {
	for _, s := range list {
		if s == want {
			return true
		}
	}
	return false
}

// importCycles looks for cycles between folders. The compiler refuses cycles between packages; this
// is stricter: iod/server and iod are one folder in the picture, so client -> iod and iod/server ->
// client would be one. Packages below internal are folders of their own.
func importCycles(files []*Source) []Problem {
	g := graph{edges: map[string]map[string]*Source{}, state: map[string]int{}}
	for _, s := range files {
		if s.IsTest() {
			continue
		}
		from := folder(s.Dir())
		for imported := range s.imports() {
			dir, ok := inModule(imported)
			if !ok || folder(dir) == from {
				continue
			}
			if g.edges[from] == nil {
				g.edges[from] = map[string]*Source{}
			}
			g.edges[from][folder(dir)] = s
		}
	}
	for _, node := range g.nodes() {
		g.visit(node, nil)
	}
	return g.found
}

// folder is the room of the picture that a package lies in.
func folder(dir string) string {
	parts := strings.Split(dir, "/")
	if len(parts) > 1 && (parts[0] == "internal" || parts[0] == "cmd") {
		return parts[0] + "/" + parts[1]
	}
	return parts[0]
}

type graph struct {
	edges map[string]map[string]*Source // from, to, a file that imports it
	state map[string]int                // 0 not seen, 1 on the path, 2 done
	found []Problem
}

func (g *graph) nodes() []string {
	var all []string
	for node := range g.edges {
		all = append(all, node)
	}
	sort.Strings(all)
	return all
}

// visit walks depth first; an edge back to the path is a cycle.
func (g *graph) visit(node string, path []string) {
	if g.state[node] == 2 {
		return
	}
	g.state[node] = 1
	path = append(path, node)
	for to, s := range g.edges[node] {
		if g.state[to] == 1 {
			g.found = append(g.found, s.problem(s.AST.Package, "cycle",
				"%s -> %s closes a cycle: %s", node, to, strings.Join(path, " -> ")))
			continue
		}
		g.visit(to, path)
	}
	g.state[node] = 2
}
