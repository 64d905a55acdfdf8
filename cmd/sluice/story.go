package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

// upInfo is run/up.json: what is true while the cluster runs.
type upInfo struct {
	URL   string `json:"url"`
	Mount string `json:"mount,omitempty"`

	TrustLocal bool `json:"trust_local,omitempty"` // see trustWarning
}

func (u *upper) saveUp() error {
	text, err := json.Marshal(upInfo{URL: u.url, Mount: u.mount,
		TrustLocal: u.opts.by.secret.trust})
	if err != nil {
		return err
	}
	return writeFile(u.cluster.upFile(), append(text, '\n'), 0o644)
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
	Memory  bool     `json:"memory"` // data is gone when the cluster stops
}

// story tells where everything is and how to stop it.
func (u *upper) story() string {
	if u.opts.asJSON {
		text, err := json.MarshalIndent(upStory{URL: u.url, Dir: u.cluster.dir, Servers: u.addrs,
			Mount: u.mount, Memory: u.cluster.cfg.Mem}, "", "  ")
		if err == nil { // strings always can be
			return string(text) + "\n"
		}
	}
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "  %-10s %s\n", name, fmt.Sprintf(format, args...))
	}
	b.WriteString("The cluster is up.\n")
	line("url", "%s", u.url)
	line("servers", "%d I/O servers at %s", len(u.addrs), strings.Join(u.addrs, " "))
	if u.mount != "" {
		line("mount", "%s", u.mount)
	}
	line("folder", "%s (output of each process in log/)", u.cluster.dir)
	if u.cluster.cfg.Mem {
		line("data", "in memory: gone when the cluster stops")
	}
	if u.opts.by.secret.trust {
		line("warning", trustWarning)
	}
	if u.url != scheme+"//"+defaultListen {
		line("tools", "export SLUICE_URL=%s", u.url)
	}
	line("look", "%s status --dir %s", os.Args[0], u.opts.dir) // as the user called it
	line("stop", "%s down --dir %s%s", os.Args[0], u.opts.dir, u.orInterrupt())
	return b.String()
}

func (u *upper) orInterrupt() string {
	if isDetached() {
		return ""
	}
	return "   (or Ctrl-C)"
}
