//go:build cgo && linux && (amd64 || arm64)

package verbs

/*
#cgo CFLAGS: -O2 -Wall
#cgo LDFLAGS: -ldl
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"encoding/binary"
	"net"
	"net/netip"
	"syscall"
	"unsafe"
)

// The C types under names that files without cgo can use.
type (
	cContext = C.vb_context
	cPD      = C.vb_pd
	cMR      = C.vb_mr
	cMW      = C.vb_mw
	cCQ      = C.vb_cq
	cQP      = C.vb_qp
	cID      = C.vb_id
	cChannel = C.vb_channel
	cWC      = C.vb_wc
)

// fail turns a result of the shim into an error.
func fail(rc C.int) error {
	if rc < 0 {
		return syscall.Errno(-rc)
	}
	return nil
}

// loadLibraries opens both libraries, once; it returns why it cannot.
func loadLibraries() string {
	var why [256]C.char
	if C.vb_load(&why[0], C.size_t(len(why))) != 0 {
		return C.GoString(&why[0])
	}
	return ""
}

func deviceNames() ([]string, error) {
	var names [C.VB_MAX_DEVICES][C.VB_NAME_MAX]C.char
	n := C.vb_device_names(&names[0], C.VB_MAX_DEVICES)
	if err := fail(n); err != nil {
		return nil, err
	}
	var all []string
	for i := range int(n) {
		all = append(all, C.GoString(&names[i][0]))
	}
	return all, nil
}

// deviceInfo is what a device can do.
type deviceInfo struct {
	queueDepth, maxSge, maxCQE   int
	readsIn, readsOut, maxInline int
	maxMessage                   int
	ports, activePorts           int
	windows, soft                bool
}

func openDevice(name string) (*cContext, *cPD, deviceInfo, error) {
	var (
		ctx  *cContext
		pd   *cPD
		info C.vb_devinfo
	)
	s := C.CString(name)
	defer C.free(unsafe.Pointer(s))
	if err := fail(C.vb_device_open(s, &ctx, &pd, &info)); err != nil {
		return nil, nil, deviceInfo{}, err
	}
	return ctx, pd, deviceInfo{
		queueDepth: int(info.max_qp_wr), maxSge: int(info.max_sge), maxCQE: int(info.max_cqe),
		readsIn: int(info.max_reads_in), readsOut: int(info.max_reads_out),
		maxInline: int(info.max_inline), maxMessage: int(info.max_msg),
		ports: int(info.ports), activePorts: int(info.active_ports), windows: info.windows != 0,
		soft: info.vendor_id == 0xffffff && info.vendor_part_id == 0,
	}, nil
}

// forgetDevices makes librdmacm close devices that are gone.
func forgetDevices() { C.vb_forget_devices() }

func closeDevice(ctx *cContext, pd *cPD) { C.vb_device_close(ctx, pd) }
func deviceFD(ctx *cContext) int         { return int(C.vb_device_fd(ctx)) }

// portState is how a port is now.
type portState struct {
	active, ethernet bool
	mtu              int
}

func queryPort(ctx *cContext, port int) (portState, error) {
	var p C.vb_port
	err := fail(C.vb_port_get(ctx, C.int(port), &p))
	return portState{p.active != 0, p.ethernet != 0, int(p.mtu)}, err
}

// portGID is an address in a port's table. The interface is 0 where the library does not tell.
type portGID struct {
	port, ifIndex int
	addr          netip.Addr
}

func queryGIDs(ctx *cContext) ([]portGID, error) {
	var table [256]C.vb_gid_entry
	n := C.vb_gids(ctx, &table[0], C.int(len(table)))
	if err := fail(n); err != nil {
		return nil, err
	}
	var all []portGID
	for i := range table[:n] {
		e := &table[i]
		gid := *(*[16]byte)(unsafe.Pointer(&e.gid))
		all = append(all, portGID{int(e.port_num), int(e.ndev_ifindex), netip.AddrFrom16(gid)})
	}
	return all, nil
}

// asyncEvent is an event of a device that no work request asked for.
type asyncEvent struct {
	kind  int
	port  int
	qpNum uint32
	cq    *cCQ
}

func nextAsync(ctx *cContext) (asyncEvent, error) {
	var ev C.vb_async
	if err := fail(C.vb_async_get(ctx, &ev)); err != nil {
		return asyncEvent{}, err
	}
	return asyncEvent{
		kind: int(ev._type), port: int(ev.port), qpNum: uint32(ev.qp_num), cq: ev.cq,
	}, nil
}

// registerMemory registers memory that the caller keeps mapped and in place; iova is where the
// peer finds it. It does not allocate: grants may be made by it.
func registerMemory(pd *cPD, mem []byte, iova uint64, access int) (*cMR, error) {
	mr, err := C.vb_reg(pd, C.uintptr_t(addrOf(mem)), C.size_t(len(mem)), C.uint64_t(iova),
		C.int(access))
	switch {
	case mr != nil:
		return mr, nil
	case err == nil:
		err = syscall.EIO
	}
	return nil, err
}

func addrOf(mem []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(mem))) }

func deregisterMemory(mr *cMR) { C.vb_dereg(mr) }
func localKey(mr *cMR) uint32  { return uint32(mr.lkey) }
func remoteKey(mr *cMR) uint32 { return uint32(mr.rkey) }

func newWindow(pd *cPD) (*cMW, error) {
	var mw *cMW
	return mw, fail(C.vb_mw_new(pd, &mw))
}

func freeWindow(mw *cMW)       { C.vb_mw_free(mw) }
func windowKey(mw *cMW) uint32 { return uint32(mw.rkey) }
func newChannel() (*cChannel, error) {
	var ch *cChannel
	return ch, fail(C.vb_channel_new(&ch))
}
func freeChannel(ch *cChannel)   { C.vb_channel_free(ch) }
func channelFD(ch *cChannel) int { return int(ch.fd) }

// cmEvent is an event of the connection manager, copied out and acknowledged.
type cmEvent struct {
	id, listener      *cID
	kind, status      int
	readsIn, readsOut int
	private           [C.VB_PRIVATE_MAX]byte
	privateLen        int
}

func nextEvent(ch *cChannel) (cmEvent, error) {
	var ev C.vb_event
	if err := fail(C.vb_channel_event(ch, &ev)); err != nil {
		return cmEvent{}, err
	}
	out := cmEvent{
		id: ev.id, listener: ev.listen_id, kind: int(ev._type), status: int(ev.status),
		readsIn: int(ev.reads_in), readsOut: int(ev.reads_out), privateLen: int(ev.private_len),
	}
	for i, b := range ev.private_data {
		out.private[i] = byte(b)
	}
	return out, nil
}

func newID(ch *cChannel) (*cID, error) {
	var id *cID
	return id, fail(C.vb_id_new(ch, &id))
}

func freeID(id *cID)             { C.vb_id_free(id) }
func establishID(id *cID) error  { return fail(C.vb_id_establish(id)) }
func disconnectID(id *cID) error { return fail(C.vb_id_disconnect(id)) }
func idPort(id *cID) int         { return int(id.port_num) }

// idDevice is the name of the device that an address was found on.
func idDevice(id *cID) string {
	name := C.vb_id_device(id)
	if name == nil {
		return ""
	}
	return C.GoString(name)
}

// sockaddr is an address in the kernel's form, long enough for every family.
type sockaddr [128]byte

func toSockaddr(addr *net.TCPAddr) *sockaddr {
	var s sockaddr
	binary.BigEndian.PutUint16(s[2:], uint16(addr.Port))
	if v4 := addr.IP.To4(); v4 != nil || len(addr.IP) == 0 {
		binary.NativeEndian.PutUint16(s[0:], syscall.AF_INET)
		copy(s[4:8], v4)
		return &s
	}
	binary.NativeEndian.PutUint16(s[0:], syscall.AF_INET6)
	copy(s[8:24], addr.IP.To16())
	if ifi, err := net.InterfaceByName(addr.Zone); err == nil {
		binary.NativeEndian.PutUint32(s[24:], uint32(ifi.Index))
	}
	return &s
}

func fromSockaddr(b []byte) *net.TCPAddr {
	port := binary.BigEndian.Uint16(b[2:])
	ip, _ := netip.AddrFromSlice(b[4:8])
	if binary.NativeEndian.Uint16(b) == syscall.AF_INET6 {
		ip, _ = netip.AddrFromSlice(b[8:24])
	}
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(ip, port))
}

func bindID(id *cID, addr *net.TCPAddr) error {
	return fail(C.vb_id_bind(id, unsafe.Pointer(toSockaddr(addr))))
}

func listenID(id *cID, backlog int) error { return fail(C.vb_id_listen(id, C.int(backlog))) }

func resolveID(id *cID, addr *net.TCPAddr, timeoutMs int) error {
	return fail(C.vb_id_resolve(id, unsafe.Pointer(toSockaddr(addr)), C.int(timeoutMs)))
}

func routeID(id *cID, timeoutMs int) error { return fail(C.vb_id_route(id, C.int(timeoutMs))) }

func idAddrs(id *cID) (local, remote *net.TCPAddr) {
	get := func(s *C.struct_sockaddr_storage) *net.TCPAddr {
		return fromSockaddr(C.GoBytes(unsafe.Pointer(s), 28))
	}
	return get(&id.src), get(&id.dst)
}

func connectID(id *cID, qp *cQP, hello []byte, readsIn, readsOut int) error {
	return fail(C.vb_id_connect(id, qp, unsafe.Pointer(unsafe.SliceData(hello)),
		C.int(len(hello)), C.int(readsIn), C.int(readsOut)))
}

func acceptID(id *cID, qp *cQP, hello []byte, readsIn, readsOut int) error {
	return fail(C.vb_id_accept(id, qp, unsafe.Pointer(unsafe.SliceData(hello)),
		C.int(len(hello)), C.int(readsIn), C.int(readsOut)))
}

func rejectID(id *cID, refusal []byte) error {
	return fail(C.vb_id_reject(id, unsafe.Pointer(unsafe.SliceData(refusal)),
		C.int(len(refusal))))
}
