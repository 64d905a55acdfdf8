package tcp

import (
	"encoding/hex"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/errs"
)

// Secret makes processes of one host prove to each other that they may read the same file, which
// its mode keeps from other users; see prove.go for how. It is for loopback, where other users can
// connect but can neither read nor change what passes: data is as fast as without it. Between hosts
// there is Security.
type Secret struct {
	// File holds the secret: 64 hexadecimal digits, for its owner's eyes only (mode 0600). It is read
	// when the domain is opened. Listeners need one, and tell its name to whoever dials. A dialler
	// without one reads the file that the listener names, if that belongs to root or to this user.
	File string

	// Optional: a peer that proves nothing is connected all the same, as nobody. A listener then
	// serves every user of the host; a dialler that has no File trusts whoever listens. A wrong proof
	// is refused in any case. Default false.
	Optional bool
}

// SecretName is what a file is called whose name a listener may tell to diallers: they open no
// others, whatever they are told.
const SecretName = "cluster.secret"

// SecretBytes is the length of a secret; its file has two digits for each.
const SecretBytes = 32

// secret is one that was read.
type secret struct {
	key  [SecretBytes]byte
	file string // absolute
}

// readNamed reads a file that a listener has named. Any process can listen at a port that is free,
// and can name a file of its own: only what root or this user keeps is a proof of anything.
func readNamed(file string) (*secret, error) {
	bad := func(format string, args ...any) (*secret, error) {
		return nil, errs.Newf(errs.Perm, "tcp.Secret", file, format, args...)
	}
	if !filepath.IsAbs(file) || filepath.Clean(file) != file || filepath.Base(file) != SecretName {
		return bad("the listener names a file that is no secret")
	}
	text, owner, err := readPrivate(file)
	if err != nil {
		return bad("the listener asks for this secret: %w", err)
	}
	if owner != 0 && owner != uint32(os.Geteuid()) {
		return bad("it belongs to uid %d, and is trusted only if you name it yourself", owner)
	}
	return parseSecret(file, text)
}

// secretFileMax is more than a secret and its line's end need.
const secretFileMax = 256

// readPrivate reads a small regular file that only its owner may read. Opening it does not wait,
// whatever it is.
func readPrivate(file string) (text string, owner uint32, err error) {
	fd, err := unix.Open(file, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return "", 0, err
	}
	f := os.NewFile(uintptr(fd), file)
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return "", 0, err
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG || st.Size > secretFileMax:
		return "", 0, errs.Newf(errs.Invalid, "", "", "it holds no secret")
	case st.Mode&0o077 != 0:
		return "", 0, errs.Newf(errs.Perm, "", "", "others may read it: chmod 600 %s", file)
	}
	b := make([]byte, st.Size)
	n, err := io.ReadFull(f, b)
	return string(b[:n]), st.Uid, err
}

func parseSecret(file, text string) (*secret, error) {
	s := &secret{file: file}
	b, err := hex.DecodeString(strings.TrimSpace(text))
	if err != nil || len(b) != len(s.key) {
		return nil, errs.Newf(errs.Invalid, "tcp.Secret", file, "want %d hexadecimal digits",
			2*len(s.key))
	}
	copy(s.key[:], b)
	return s, nil
}

// open reads the secret of a domain; nil without a File, which the user has chosen and which may
// therefore be anybody's.
func (s *Secret) open() (*secret, error) {
	if s == nil || s.File == "" {
		return nil, nil
	}
	file, err := filepath.Abs(s.File)
	if err != nil {
		return nil, errs.New(errs.IO, "tcp.Open", s.File, err)
	}
	if len(file) > secretPathMax {
		return nil, errs.Newf(errs.NameTooLong, "tcp.Open", file, "at most %d bytes", secretPathMax)
	}
	text, _, err := readPrivate(file)
	if err != nil {
		return nil, errs.Wrap("tcp.Secret", file, err)
	}
	return parseSecret(file, text)
}
