package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/sluice-storage/sluice/identity"
)

// upInfo is run/up.json: what is true while the cluster runs.
type upInfo struct {
	URL   string `json:"url"`
	Mount string `json:"mount,omitempty"`

	TrustLocal bool `json:"trust_local,omitempty"` // see trustWarning
}

func (h *host) saveUp() error {
	text, err := json.Marshal(upInfo{URL: h.url, Mount: h.mountDir(), TrustLocal: h.cfg.TrustLocal})
	if err != nil {
		return err
	}
	return writeFile(h.cluster.upFile(), append(text, '\n'), 0o644)
}

// mountDir is where the cluster is mounted here, at the first place of several.
func (h *host) mountDir() string {
	if len(h.cfg.Mounts) == 0 {
		return ""
	}
	return h.cfg.Mounts[0].Dir
}

// serverAddrs are those of the I/O servers, by their numbers.
func (h *host) serverAddrs() []string {
	var addrs []string
	for _, id := range slices.Sorted(maps.Keys(h.addrs)) {
		addrs = append(addrs, h.addrs[id])
	}
	return addrs
}

// readUp is empty while the cluster starts or is down.
func (c *cluster) readUp() upInfo {
	var info upInfo
	text, err := os.ReadFile(c.upFile())
	if err != nil || json.Unmarshal(text, &info) != nil {
		return upInfo{}
	}
	return info
}

// upStory is what `sluice up --json` prints when the cluster is ready.
type upStory struct {
	URL     string   `json:"url"`
	Dir     string   `json:"dir"`
	Servers []string `json:"servers"` // addresses of the I/O servers
	Mount   string   `json:"mount,omitempty"`
	Memory  bool     `json:"memory"`         // data is gone when the cluster stops
	Join    string   `json:"join,omitempty"` // where others can join
}

// story tells where everything is and how to stop it.
func (h *host) story(o *upOptions) string {
	addrs, mount := h.serverAddrs(), h.mountDir()
	if o.asJSON {
		text, err := json.MarshalIndent(upStory{URL: h.url, Dir: h.cluster.dir, Servers: addrs,
			Mount: mount, Memory: h.cfg.InMemory, Join: h.cluster.readJoinAddr()}, "", "  ")
		if err == nil { // strings always can be
			return string(text) + "\n"
		}
	}
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "  %-10s %s\n", name, fmt.Sprintf(format, args...))
	}
	b.WriteString("The cluster is up.\n")
	line("url", "%s", h.url)
	line("servers", "%d I/O servers at %s", len(addrs), strings.Join(addrs, " "))
	if mount != "" {
		line("mount", "%s", mount)
	}
	line("folder", "%s (output of each process in log/)", h.cluster.dir)
	if at := h.cluster.readJoinAddr(); at != "" {
		line("join", "others can join at %s: sluice token create", at)
	}
	if h.cfg.InMemory {
		line("data", "in memory: gone when the cluster stops")
	}
	if h.cfg.TrustLocal {
		line("warning", trustWarning)
	}
	switch {
	case h.cfg.Security.Keyed():
		line("tools", "export SLUICE_URL=%s %s=%s", h.url, identity.CredentialEnv,
			h.cluster.hostCredentialFile())
	case h.url != scheme+"//"+defaultListen:
		line("tools", "export SLUICE_URL=%s", h.url)
	}
	line("look", "%s status --dir %s", os.Args[0], o.dir) // as the user called it
	line("stop", "%s down --dir %s%s", os.Args[0], o.dir, orInterrupt())
	return b.String()
}

func orInterrupt() string {
	if isDetached() {
		return ""
	}
	return "   (or Ctrl-C)"
}
