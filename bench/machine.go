package bench

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Machine describes this machine in one line, for captions: figures mean little without it.
func Machine() string {
	parts := []string{fmt.Sprintf("%d cores (%s)", runtime.NumCPU(),
		fieldOf("/proc/cpuinfo", "model name", runtime.GOARCH))}
	kb, err := strconv.Atoi(strings.TrimSuffix(fieldOf("/proc/meminfo", "MemTotal", ""), " kB"))
	if err == nil {
		parts = append(parts, fmt.Sprintf("%.0f GiB", float64(kb)/(1<<20)))
	}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		parts = append(parts, "Linux "+unix.ByteSliceToString(u.Release[:]))
	}
	return strings.Join(append(parts, runtime.Version()), ", ")
}

// fieldOf returns what follows "key:" in a file of the kernel's.
func fieldOf(name, key, otherwise string) string {
	text, err := os.ReadFile(name)
	if err != nil {
		return otherwise
	}
	for line := range strings.Lines(string(text)) {
		k, v, ok := strings.Cut(line, ":")
		if ok && strings.TrimSpace(k) == key {
			return strings.TrimSpace(v)
		}
	}
	return otherwise
}
