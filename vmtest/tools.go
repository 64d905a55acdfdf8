package vmtest

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/sluice-storage/sluice/errs"
)

const qemu = "qemu-system-x86_64"

// tool is a program of the host, and the Debian package that it comes in.
type tool struct{ name, pkg string }

// hostTools are what preparing the lab and starting a guest call. What a test runs inside of a
// guest (perftest, say) is its own affair.
func hostTools() []tool {
	return []tool{
		{qemu, "qemu-system-x86"}, {"busybox", "busybox-static"}, {"modprobe", "kmod"},
		{"depmod", "kmod"}, {"ip", "iproute2"}, {"bash", "bash"}, {"go", "golang"},
	}
}

// packageTools are needed while the kernel is not in the cache.
func packageTools() []tool {
	return []tool{{"apt-cache", "apt"}, {"apt-get", "apt"}, {"dpkg", "dpkg"}}
}

// systemFolders hold what administrators run; the PATH of other people often lacks them.
const systemFolders = "/usr/sbin:/sbin"

// lookPath is exec.LookPath that also looks where administrators do.
func lookPath(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	for dir := range strings.SplitSeq(systemFolders, ":") {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path, nil
		}
	}
	return "", errs.Newf(errs.Unsupported, "vmtest", "", "there is no %s on this machine", name)
}

func lookAll(tools []tool) error {
	for _, t := range tools {
		if _, err := lookPath(t.name); err != nil {
			return errs.Newf(errs.Unsupported, "vmtest", "",
				"there is no %s on this machine (Debian: package %s)", t.name, t.pkg)
		}
	}
	return nil
}

// checkTools tells whether a guest can run here at all.
func checkTools(ctx context.Context) error {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		return errs.Newf(errs.Unsupported, "vmtest", "",
			"guests are emulated on linux/amd64 only, this is %s/%s", runtime.GOOS, runtime.GOARCH)
	}
	if err := lookAll(hostTools()); err != nil {
		return err
	}
	out, err := output(ctx, "", qemu, "-device", "help")
	if err != nil {
		return err
	}
	for _, device := range []string{"virtio-9p-pci", "virtserialport", "virtio-net-pci"} {
		if !bytes.Contains(out, []byte(`"`+device+`"`)) {
			return errs.Newf(errs.Unsupported, "vmtest", "", "%s has no device %s", qemu, device)
		}
	}
	return nil
}

// output runs a tool of the host in a folder and returns what it prints.
func output(ctx context.Context, dir, name string, args ...string) ([]byte, error) {
	return run(ctx, dir, nil, name, args...)
}

// filter gives a tool of the host something to read and returns what it prints.
func filter(ctx context.Context, in io.Reader, name string, args ...string) ([]byte, error) {
	return run(ctx, "", in, name, args...)
}

// build compiles a package of a module, with what it uses of C.
func build(ctx context.Context, dir, pkg, to string) error {
	_, err := runWith(ctx, dir, nil, nil, "go", "build", "-ldflags=-w", "-o", to, pkg)
	return err
}

func run(ctx context.Context, dir string, in io.Reader, name string, args ...string) (
	[]byte, error) {
	// Agents are static without cgo.
	return runWith(ctx, dir, []string{"CGO_ENABLED=0"}, in, name, args...)
}

func runWith(ctx context.Context, dir string, env []string, in io.Reader, name string,
	args ...string) ([]byte, error) {
	path, err := lookPath(name)
	if err != nil {
		return nil, err
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = dir, in, &stdout, &stderr
	cmd.Env = append(append(os.Environ(), "LC_ALL=C"), env...)
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, errs.New(errs.KindOf(err), "vmtest", name,
			&toolError{err, strings.TrimSpace(stderr.String())})
	}
	return stdout.Bytes(), nil
}

// toolError adds what a tool said to how it ended.
type toolError struct {
	err  error
	said string
}

func (e *toolError) Error() string {
	if e.said == "" {
		return e.err.Error()
	}
	return e.err.Error() + ": " + e.said
}

func (e *toolError) Unwrap() error { return e.err }
