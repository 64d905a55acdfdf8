package client

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
)

// The name of a client's sessions ends in its identity, in brackets:
//
//	host:4711 [1f2e3d4c5b6a7988/4026531836/4711/1]
//
// the boot of the host, the space of process ids, the process, and the how many-th client of the
// process it is. No two clients have the same, and whoever lives in the same boot and space can
// tell whether the process is dead. Then nothing of it can be written any more, and what it had
// open for writing can be taken over at once.
type identity struct {
	boot, space string
	pid, number int
}

// nameMax is how long the readable part of a name may be: together with an identity it is shorter
// than what the metadata service takes.
const nameMax = 128

var clients atomic.Int64 // made by this process so far

func ownIdentity() identity {
	id := identity{boot: "?", space: "?", pid: os.Getpid()}
	if b, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); err == nil {
		text := strings.ReplaceAll(strings.TrimSpace(string(b)), "-", "")
		id.boot = text[:min(len(text), 16)]
	}
	if link, err := os.Readlink("/proc/self/ns/pid"); err == nil {
		id.space = strings.Trim(strings.TrimPrefix(link, "pid:"), "[]")
	}
	return id
}

func processName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%.100s:%d", host, os.Getpid())
}

// uniqueName puts an identity behind a name.
func uniqueName(name string) string {
	id := ownIdentity()
	return fmt.Sprintf("%s [%s/%s/%d/%d]", name, id.boot, id.space, id.pid, clients.Add(1))
}

// parseIdentity finds the identity in a name.
func parseIdentity(name string) (id identity, ok bool) {
	text, closed := strings.CutSuffix(name, "]")
	at := strings.LastIndexByte(text, '[')
	if !closed || at < 0 {
		return id, false
	}
	parts := strings.Split(text[at+1:], "/")
	if len(parts) != 4 {
		return id, false
	}
	pid, err := strconv.Atoi(parts[2])
	if err == nil {
		id.number, err = strconv.Atoi(parts[3])
	}
	id.boot, id.space, id.pid = parts[0], parts[1], pid
	return id, err == nil && pid > 0
}

// knownDead tells whether the process of a client is known to have ended. Of a process elsewhere
// nothing is known. A process id that is in use again looks alive, which is on the safe side.
func knownDead(name string) bool {
	id, ok := parseIdentity(name)
	own := ownIdentity()
	if !ok || id.boot != own.boot || id.space != own.space || own.boot == "?" || own.space == "?" {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", id.pid))
	if err != nil {
		return os.IsNotExist(err)
	}
	// The state follows the name, which may contain anything but ends at the last parenthesis. A
	// zombie waits for its parent only.
	_, rest, found := bytes.Cut(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" "))
	return found && len(rest) > 0 && (rest[0] == 'Z' || rest[0] == 'X')
}
