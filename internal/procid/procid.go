// Package procid names processes so that others can tell whether they are dead. A name ends in the
// identity of its process, in brackets:
//
//	host:4711 [1f2e3d4c5b6a7988/4026531836/4711/1]
//
// the boot of the host, the space of process ids, the process, and a number within it. No two names
// have the same, and a process in the same boot and space can check whether the process is dead. Of
// a process elsewhere nothing is known.
package procid

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
)

// ID is the identity of a process.
type ID struct {
	Boot, Space string
	PID         int
}

// unknown stands for a boot or a space that cannot be read.
const unknown = "?"

var made atomic.Int64 // names, by this process

// Own is the identity of the calling process.
func Own() ID {
	id := ID{Boot: unknown, Space: unknown, PID: os.Getpid()}
	if b, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); err == nil {
		text := strings.ReplaceAll(strings.TrimSpace(string(b)), "-", "")
		id.Boot = text[:min(len(text), 16)]
	}
	if link, err := os.Readlink("/proc/self/ns/pid"); err == nil {
		id.Space = strings.Trim(strings.TrimPrefix(link, "pid:"), "[]")
	}
	return id
}

// Name puts the identity of the calling process behind a text, and a number that makes it unique.
func Name(text string) string { return Own().name(text, made.Add(1)) }

func (id ID) name(text string, n int64) string {
	return fmt.Sprintf("%s [%s/%s/%d/%d]", text, id.Boot, id.Space, id.PID, n)
}

// parse finds the identity in a name.
func parse(name string) (id ID, ok bool) {
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
		_, err = strconv.Atoi(parts[3])
	}
	return ID{Boot: parts[0], Space: parts[1], PID: pid}, err == nil && pid > 0
}

// Dead tells whether the process of a name has ended, if that can be known here. A reused process
// id looks alive, which is the safe answer.
func Dead(name string) (dead, known bool) {
	id, ok := parse(name)
	own := Own()
	if !ok || id.Boot != own.Boot || id.Space != own.Space || own.Boot == unknown ||
		own.Space == unknown {
		return false, false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", id.PID))
	if err != nil {
		return os.IsNotExist(err), os.IsNotExist(err)
	}
	// The state follows the name, which may contain anything but ends at the last parenthesis. A
	// zombie waits for its parent only.
	_, rest, found := bytes.Cut(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" "))
	return found && len(rest) > 0 && (rest[0] == 'Z' || rest[0] == 'X'), found
}
