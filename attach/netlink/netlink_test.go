package netlink

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/errs"
)

func TestMessageBytes(t *testing.T) {
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		t.Skip("the bytes below are those of a little-endian host")
	}
	var b builder
	b.u32(attrIndex, 3)
	b.text(attrBackend, "ab")
	b.sockets([]int{7, 8})
	got := message(0x1234, unix.NLM_F_REQUEST, 9, cmdConnect, familyVersion, b.bytes)
	want := []byte{
		72, 0, 0, 0, 0x34, 0x12, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0, // netlink
		1, 1, 0, 0, // generic
		8, 0, 1, 0, 3, 0, 0, 0, // index
		7, 0, 10, 0, 'a', 'b', 0, 0, // backend, and a byte of padding
		28, 0, 7, 0x80, // sockets
		12, 0, 1, 0x80, 8, 0, 1, 0, 7, 0, 0, 0,
		12, 0, 1, 0x80, 8, 0, 1, 0, 8, 0, 0, 0,
	}
	want[0] = byte(len(want))
	if !bytes.Equal(got, want) {
		t.Errorf("\n%v\n%v", got, want)
	}
}

// kernelSays makes a message as the kernel does.
func kernelSays(kind uint16, seq uint32, body []byte) []byte {
	m := binary.NativeEndian.AppendUint32(nil, uint32(headerBytes+len(body)))
	m = binary.NativeEndian.AppendUint16(m, kind)
	m = binary.NativeEndian.AppendUint16(m, 0)
	m = binary.NativeEndian.AppendUint32(m, seq)
	m = binary.NativeEndian.AppendUint32(m, 0)
	m = append(m, body...)
	return append(m, make([]byte, pad(len(body)))...)
}

func errorBody(errno unix.Errno) []byte {
	return binary.NativeEndian.AppendUint32(nil, uint32(-int32(errno)))
}

func TestAnswers(t *testing.T) {
	var list builder
	list.nested(attrDeviceList, func(b *builder) {
		for i := range 3 {
			b.nested(deviceItem, func(b *builder) {
				b.u32(deviceIndex, uint32(i))
				b.attr(deviceConnected, []byte{byte(i & 1)})
			})
		}
	})
	reply := kernelSays(0x20, 5, append([]byte{cmdStatus, 1, 0, 0}, list.bytes...))
	ack := kernelSays(unix.NLMSG_ERROR, 5, errorBody(0))
	var a answer
	if err := a.read(append(kernelSays(unix.NLMSG_ERROR, 4, errorBody(unix.EIO)), reply...), 5); err !=
		nil || a.over {
		t.Fatalf("%v, %v", err, a.over)
	}
	if err := a.read(ack, 5); err != nil || !a.over || a.err != nil {
		t.Fatalf("%v, %+v", err, a)
	}
	devices, err := decodeStatus(a.attrs)
	if err != nil || len(devices) != 3 || devices[1] != (Status{1, true}) || devices[2].Connected {
		t.Errorf("%+v, %v", devices, err)
	}
	a = answer{}
	if err := a.read(kernelSays(unix.NLMSG_ERROR, 5, errorBody(unix.EBUSY)), 5); err != nil ||
		a.err != unix.EBUSY {
		t.Errorf("%v, %+v", err, a)
	}
	for cut := 1; cut < len(reply); cut++ {
		if err := new(answer).read(reply[:cut], 5); !errors.Is(err, errShort) {
			t.Errorf("%d bytes: %v", cut, err)
		}
	}
}

func TestSeconds(t *testing.T) {
	for d, want := range map[time.Duration]uint64{1: 1, time.Second: 1, 1500 * time.Millisecond: 2} {
		if got := seconds(d); got != want {
			t.Errorf("%v: %d", d, got)
		}
	}
}

// TestFamilies asks this host's kernel for a family that there always is, and for one that there is
// not. What the NBD client does is shown in a virtual machine: vmtest/attach.
func TestFamilies(t *testing.T) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_GENERIC)
	if err != nil {
		t.Skipf("no netlink here: %v", err)
	}
	c := &Conn{fd: fd, buf: make([]byte, answerMax)}
	defer c.Close()
	if id, err := c.findFamily("nlctrl"); err != nil || id != unix.GENL_ID_CTRL {
		t.Errorf("%d, %v", id, err)
	}
	if _, err := c.findFamily("no-such-family"); !errors.Is(err, unix.ENOENT) {
		t.Errorf("%v", err)
	}
	k, err := Open()
	if err == nil {
		_, err = k.List()
		_ = k.Close()
	}
	if err != nil && errs.KindOf(err) != errs.Unsupported && errs.KindOf(err) != errs.Perm {
		t.Errorf("%v", err)
	}
}

func FuzzAnswer(f *testing.F) {
	f.Add(kernelSays(0x20, 5, []byte{1, 1, 0, 0, 8, 0, 9, 0, 4, 0, 1, 0}))
	f.Add(kernelSays(unix.NLMSG_ERROR, 5, errorBody(unix.EINVAL)))
	f.Fuzz(func(t *testing.T, b []byte) {
		var a answer
		if a.read(b, 5) == nil {
			_, _ = decodeStatus(a.attrs)
		}
	})
}
