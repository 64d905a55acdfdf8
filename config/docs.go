package config

import "maps"

// docs says what each key means, for files that are written and for those who ask. A key of a table
// is TABLE.KEY.
func docs() map[string]string {
	all := map[string]string{
		"cluster":                "the cluster's name, for people",
		"host":                   "this host's name in the cluster",
		"folder":                 "keys, metadata and logs; default: where this file is",
		"security":               "secret (this host only), tls or authenticated",
		"listen":                 "addresses of the metadata service; a string or a list",
		"data-network":           "networks whose addresses of this host I/O servers use",
		"join":                   "where the metadata service is, on a host without [meta]",
		"admin":                  "address for metrics and health of each process, or off",
		"admin-clients":          "clients that may see them beyond loopback; hosts may",
		"providers":              "ways to reach each other that may be used",
		"progress":               "who looks for what has arrived: any, poll, thread",
		"trust-local":            "serve every user of this host",
		"in-memory":              "keep data in memory: gone when it stops",
		"meta.listen":            "default: listen of this file",
		"meta.admin":             "default: admin of this file",
		"meta.join":              "where others join; empty: where they did before, nowhere without keys",
		"meta.session-time":      "how long a client may be silent",
		"meta.lease-time":        "how long others wait for a client that keeps names",
		"meta.open-files":        "files that one client may have open",
		"meta.open-files-all":    "files that all clients may have open",
		"iod.id":                 "its number in the cluster, for ever; default: its place in this file",
		"iod.name":               "of its process and its log; default: iod and its number",
		"iod.listen":             "default: any port on data-network, else where listen is",
		"iod.admin":              "default: admin of this file",
		"iod.store":              "folder, or prepared block device; a list: one store over all",
		"iod.size":               "of each folder when the store is made; 0: as its file system",
		"iod.reserve":            "what is left of the file system to others",
		"iod.memory":             "all its memory: cache, network, store",
		"iod.ready":              "of the cache, resident from the start",
		"iod.readahead":          "how far to read ahead; 0: not",
		"iod.write-back":         "acknowledge writes from the cache",
		"iod.lend":               "clients on the host read the cache",
		"iod.huge-pages":         "on, auto or off",
		"nbd.name":               "of its process and its log; default: nbd and its place",
		"nbd.listen":             "HOST:PORT, beyond loopback with TLS only, or unix:PATH",
		"nbd.cache":              "memory of files, disks and members that are cached or direct",
		"nbd.timeout":            "how long a request waits for servers; 0: for ever",
		"nbd.admin":              "default: admin of this file, if that is on loopback",
		"nbd.tls":                "off, selective or required; default: required with a certificate",
		"nbd.tls-cert":           "PEM file; without it the host's own certificate, where it has one",
		"nbd.tls-key":            "PEM file",
		"nbd.tls-ca":             "PEM file of who signs clients; without it they need no certificate",
		"nbd.insecure":           "listen beyond loopback although nobody has to prove who he is",
		"nbd.export.name":        "what clients ask for",
		"nbd.export.volume":      "a volume of the cluster",
		"nbd.export.file":        "a file or block device of this host",
		"nbd.export.disk":        "the same",
		"nbd.export.members":     "several of them, striped, in their order",
		"nbd.export.init":        "makes a set of blank members, with stripes of this size",
		"nbd.export.unit":        "of members that hold nothing but data: the size of stripes",
		"nbd.export.streams":     "of direct reads: multiple, single or plain; default: multiple",
		"nbd.export.mem":         "memory, empty at the start",
		"nbd.export.read-only":   "refuse writes",
		"nbd.export.standby":     "of a volume: take it over from another gateway with the first write",
		"nbd.export.shared":      "of a volume: several gateways write to it at the same time",
		"nbd.export.mode":        "cached, cached-writes, direct; of a volume also stream, of files page",
		"nbd.export.description": "what clients are told of it",
		"nbd.export.allow":       "names in certificates of who may use it; default: who can connect",
		"nbd.export.tls-only":    "not without TLS, where tls is selective",
		"nbd.export.filter":      "what requests pass: throttle:rate=100M, readonly, log ...; a list",
	}
	maps.Copy(all, mountDocs())
	return all
}

func mountDocs() map[string]string {
	return map[string]string{
		"mount.name":        "of its process and its log; default: mount",
		"mount.dir":         "where",
		"mount.path":        "the directory of the cluster that is mounted",
		"mount.admin":       "default: admin of this file",
		"mount.read-only":   "refuse all changes",
		"mount.allow-other": "let other users in; default: if root mounts it",
		"mount.local-locks": "locks hold within this mount only",
		"mount.cache":       "strict, close-to-open or writeback",
		"mount.atime":       "relatime, strict or none",
		"mount.timeout":     "how long programs wait for a server; 0: for ever",
		"mount.options":     "as those of mount(8)",
	}
}
