// Package config is sluice.toml: what one host of a cluster runs, and how. It reads the file
// strictly, fills in defaults, says what is wrong with line and remedy, and writes such files.
//
// It starts nothing, opens no file and asks the host nothing: what it must know of its surroundings
// is handed in (Host). No value in the file is secret; keys lie in files of their own, which the
// file does not name. A Config is a value: nothing here keeps or changes one that was handed out.
//
// Read config.go first (the keys), then decode.go (text to values), validate.go (what is refused)
// and render.go (values to text).
package config

import (
	"fmt"
	"path/filepath"
	"time"
)

// FileName is what the file is called in a cluster's folder.
const FileName = "sluice.toml"

// Bounds of a file. They keep a mistake small, not a host: one has a few dozen disks at most.
const (
	BytesMax    = 1 << 20
	IodsMax     = 64 // I/O servers of a host
	IDMax       = 1 << 16
	GatewaysMax = 64
	ExportsMax  = 256 // of one gateway
	MembersMax  = 64  // of one striped export
	MountsMax   = 64
	AddrsMax    = 16   // in one list of addresses or networks
	NamesMax    = 1024 // in one list of clients
	NameMax     = 63   // bytes of a name
)

// DefaultListen is where the metadata service is found unless told otherwise.
const DefaultListen = "127.0.0.1:9400"

// Config is the whole file; what each key means is in docs.go.
type Config struct {
	Cluster  string   `toml:"cluster" json:"cluster"`
	Host     string   `toml:"host" json:"host"`
	Folder   string   `toml:"folder" json:"folder"`
	Security Security `toml:"security" json:"security"`

	Listen      List `toml:"listen" json:"listen"`
	DataNetwork List `toml:"data-network" json:"data_network"`
	Join        List `toml:"join" json:"join"`

	Admin        string `toml:"admin" json:"admin"`
	AdminClients List   `toml:"admin-clients" json:"admin_clients"`
	Providers    List   `toml:"providers" json:"providers"`
	Progress     string `toml:"progress" json:"progress"`
	TrustLocal   bool   `toml:"trust-local" json:"trust_local"`
	InMemory     bool   `toml:"in-memory" json:"in_memory"`

	Meta   *Meta   `toml:"meta" json:"meta,omitempty"`
	Iods   []Iod   `toml:"iod" json:"iod"`
	NBDs   []NBD   `toml:"nbd" json:"nbd"`
	Mounts []Mount `toml:"mount" json:"mount"`

	source source
}

// Meta is the metadata service. A cluster has one.
type Meta struct {
	Listen       List     `toml:"listen" json:"listen"`
	Admin        string   `toml:"admin" json:"admin"`
	Join         string   `toml:"join" json:"join"`
	SessionTime  Duration `toml:"session-time" json:"session_time"`
	LeaseTime    Duration `toml:"lease-time" json:"lease_time"`
	OpenFiles    int      `toml:"open-files" json:"open_files"`
	OpenFilesAll int      `toml:"open-files-all" json:"open_files_all"`
}

// Iod is one I/O server.
type Iod struct {
	ID        int    `toml:"id" json:"id"`
	Name      string `toml:"name" json:"name"`
	Listen    List   `toml:"listen" json:"listen"`
	Admin     string `toml:"admin" json:"admin"`
	Store     List   `toml:"store" json:"store"`
	Size      Size   `toml:"size" json:"size"`
	Reserve   Size   `toml:"reserve" json:"reserve,omitempty"`
	Memory    Size   `toml:"memory" json:"memory"`
	Ready     Size   `toml:"ready" json:"ready,omitempty"`
	Readahead Size   `toml:"readahead" json:"readahead,omitempty"`
	WriteBack *bool  `toml:"write-back" json:"write_back"`
	Lend      *bool  `toml:"lend" json:"lend"`
	HugePages string `toml:"huge-pages" json:"huge_pages"`
}

// NBD is one gateway, which serves block devices.
type NBD struct {
	Name    string   `toml:"name" json:"name"`
	Listen  string   `toml:"listen" json:"listen"`
	Timeout Duration `toml:"timeout" json:"timeout"`
	Admin   string   `toml:"admin" json:"admin"`
	Cache   Size     `toml:"cache" json:"cache,omitempty"`

	TLS      string `toml:"tls" json:"tls,omitempty"`
	TLSCert  string `toml:"tls-cert" json:"tls_cert,omitempty"`
	TLSKey   string `toml:"tls-key" json:"tls_key,omitempty"`
	TLSCA    string `toml:"tls-ca" json:"tls_ca,omitempty"`
	Insecure bool   `toml:"insecure" json:"insecure,omitempty"`

	Exports []Export `toml:"export" json:"export"`
}

// Authenticates tells whether everybody whom the gateway serves has to prove who he is: by files of
// keys, or where there are none by the certificates of the cluster.
func (n *NBD) Authenticates(s Security) bool {
	if n.TLSCert == "" {
		return n.TLS == "required" && s.Keyed()
	}
	return n.TLSCA != "" && (n.TLS == "" || n.TLS == "required")
}

// Export is one block device of a gateway: a volume, a file, a disk, members or memory.
type Export struct {
	Name     string `toml:"name" json:"name"`
	Volume   string `toml:"volume" json:"volume,omitempty"`
	File     string `toml:"file" json:"file,omitempty"`
	Disk     string `toml:"disk" json:"disk,omitempty"`
	Members  List   `toml:"members" json:"members,omitempty"`
	Init     Size   `toml:"init" json:"init,omitempty"`
	Unit     Size   `toml:"unit" json:"unit,omitempty"`
	Streams  string `toml:"streams" json:"streams,omitempty"`
	Mem      Size   `toml:"mem" json:"mem,omitempty"`
	ReadOnly bool   `toml:"read-only" json:"read_only"`
	Standby  bool   `toml:"standby" json:"standby,omitempty"`
	Shared   bool   `toml:"shared" json:"shared,omitempty"`
	Mode     string `toml:"mode" json:"mode,omitempty"`

	Description string `toml:"description" json:"description,omitempty"`
	Allow       List   `toml:"allow" json:"allow,omitempty"`
	TLSOnly     bool   `toml:"tls-only" json:"tls_only,omitempty"`
	Filters     List   `toml:"filter" json:"filter,omitempty"`
}

// Mount is one mount of the cluster's file system.
type Mount struct {
	Name       string    `toml:"name" json:"name"`
	Dir        string    `toml:"dir" json:"dir"`
	Path       string    `toml:"path" json:"path"`
	Admin      string    `toml:"admin" json:"admin"`
	ReadOnly   bool      `toml:"read-only" json:"read_only"`
	AllowOther *bool     `toml:"allow-other" json:"allow_other,omitempty"`
	LocalLocks bool      `toml:"local-locks" json:"local_locks"`
	Cache      string    `toml:"cache" json:"cache"`
	Atime      string    `toml:"atime" json:"atime"`
	Timeout    *Duration `toml:"timeout" json:"timeout"`
	Options    List      `toml:"options" json:"options"`
}

// Security is how the processes of a cluster know each other.
type Security string

// The values of Security.
const (
	Secret        Security = "secret"        // a file that only the owner can read; loopback only
	TLS           Security = "tls"           // certificates, everything encrypted
	Authenticated Security = "authenticated" // certificates, payloads in the clear but authenticated
)

// Keyed tells whether peers are known by certificates, so that other hosts may be let in.
func (s Security) Keyed() bool { return s == TLS || s == Authenticated }

// Host is what a file does not say about where it is used.
type Host struct {
	Name string // of the host; default "localhost"
	File string // the file, for messages and for paths that are relative to it

	// Keys tells why there are none for the cluster in a folder; nil: there are. Where the field is
	// nil itself nobody has any.
	Keys func(folder string) error
}

// dir is what relative paths in the file begin at.
func (h Host) dir() string {
	if h.File == "" {
		return "."
	}
	return filepath.Dir(h.File)
}

// withDefaults fills in what was left out, and makes paths absolute if the file's own is.
func (c *Config) withDefaults(h Host) {
	or(&c.Cluster, "sluice")
	or(&c.Host, h.Name)
	or(&c.Host, "localhost")
	or(&c.Folder, ".")
	c.Folder = below(h.dir(), c.Folder)
	or(&c.Security, Secret)
	or(&c.Admin, "127.0.0.1:0")
	or(&c.Progress, "any")
	orList(&c.Providers, "shm", "verbs", "tcp")
	if c.Meta != nil {
		orList(&c.Listen, DefaultListen)
		orList(&c.Meta.Listen, c.Listen...)
		c.Meta.withDefaults(c)
	}
	for i := range c.Iods {
		c.Iods[i].withDefaults(c, h, i)
	}
	for i := range c.NBDs {
		c.NBDs[i].withDefaults(c, h, i)
	}
	for i := range c.Mounts {
		c.Mounts[i].withDefaults(c, h, i)
	}
}

func (m *Meta) withDefaults(c *Config) {
	or(&m.Admin, c.Admin)
	or(&m.SessionTime, Duration(30*time.Second))
	or(&m.LeaseTime, Duration(5*time.Second))
	or(&m.OpenFiles, 1<<20)
	or(&m.OpenFilesAll, 1<<22)
}

func (d *Iod) withDefaults(c *Config, h Host, place int) {
	or(&d.ID, place+1)
	or(&d.Name, fmt.Sprintf("iod%d", d.ID))
	or(&d.Admin, c.Admin)
	or(&d.Size, "0")
	or(&d.Memory, "512M")
	or(&d.HugePages, "auto")
	for _, b := range []**bool{&d.WriteBack, &d.Lend} {
		if *b == nil {
			yes := true
			*b = &yes
		}
	}
	if len(d.Store) == 0 && !c.InMemory {
		d.Store = List{filepath.Join(c.Folder, fmt.Sprintf("iod%d", d.ID))}
	}
	for i := range d.Store {
		d.Store[i] = below(h.dir(), d.Store[i])
	}
}

func (n *NBD) withDefaults(c *Config, h Host, place int) {
	or(&n.Name, fmt.Sprintf("nbd%d", place+1))
	if c.Admin == "off" || IsLoopback(c.Admin) { // as for mounts
		or(&n.Admin, c.Admin)
	}
	or(&n.Admin, "127.0.0.1:0")
	for _, file := range []*string{&n.TLSCert, &n.TLSKey, &n.TLSCA} {
		if *file != "" {
			*file = below(h.dir(), *file)
		}
	}
	or(&n.Listen, "127.0.0.1:10809")
	if path, ok := cutUnix(n.Listen); ok {
		n.Listen = "unix:" + below(h.dir(), path)
	}
	for i := range n.Exports {
		e := &n.Exports[i]
		for _, path := range []*string{&e.File, &e.Disk} {
			if *path != "" {
				*path = below(h.dir(), *path)
			}
		}
		for j := range e.Members {
			e.Members[j] = below(h.dir(), e.Members[j])
		}
	}
}

func (m *Mount) withDefaults(c *Config, h Host, place int) {
	name := "mount"
	if place > 0 {
		name = fmt.Sprintf("mount%d", place+1)
	}
	or(&m.Name, name)
	or(&m.Path, "/")
	if c.Admin == "off" || IsLoopback(c.Admin) { // a client is not there for other hosts
		or(&m.Admin, c.Admin)
	}
	or(&m.Admin, "127.0.0.1:0")
	or(&m.Cache, "close-to-open")
	or(&m.Atime, "relatime")
	if m.Timeout == nil {
		minute := Duration(time.Minute)
		m.Timeout = &minute
	}
	if m.Dir != "" {
		m.Dir = below(h.dir(), m.Dir)
	}
}

// or sets what was left out.
func or[T comparable](v *T, otherwise T) {
	var zero T
	if *v == zero {
		*v = otherwise
	}
}

func orList(l *List, otherwise ...string) {
	if len(*l) == 0 {
		*l = append(List(nil), otherwise...)
	}
}

// below is a path that may be relative to a folder.
func below(dir, path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(dir, path)
}
