package nbd

import (
	"encoding/binary"

	"github.com/sluice-storage/sluice/errs"
)

func appendGreeting(p []byte) []byte {
	p = binary.BigEndian.AppendUint64(p, magicGreeting)
	p = binary.BigEndian.AppendUint64(p, magicOption)
	return binary.BigEndian.AppendUint16(p, flagFixedNewstyle|flagNoZeroes)
}

func optionKnown(opt uint32) bool {
	switch opt {
	case optExportName, optAbort, optList, optStartTLS, optInfo, optGo, optStructuredReply,
		optListMeta, optSetMeta:
		return true
	}
	return false
}

// answer handles one option. It returns the choice that ends the handshake, or nil to go on.
func (h *handshake) answer(opt uint32, data optionData) (*chosen, error) {
	switch {
	case opt == optAbort:
		h.ack(opt)
		// The client may be gone already, which is allowed.
		_ = h.send()
		return nil, errAborted
	case opt == optExportName:
		return h.exportName(data)
	case h.c.srv.draining.Load():
		h.refuse(opt, repErrShutdown, "server is shutting down")
	case !optionKnown(opt):
		h.refuse(opt, repErrUnsup, "option is not known here")
	case data.tooBig:
		h.refuse(opt, repErrTooBig, "option data is too long")
	case opt == optInfo || opt == optGo:
		return h.info(opt, data.bytes), nil
	case opt == optListMeta || opt == optSetMeta:
		h.metaContext(opt, data.bytes)
	case len(data.bytes) != 0:
		h.refuse(opt, repErrInvalid, "option takes no data")
	case opt == optList:
		h.list()
	case opt == optStartTLS:
		h.refuse(opt, repErrPolicy, "TLS is not configured")
	case opt == optStructuredReply:
		h.state.structured = true
		h.ack(opt)
	}
	return nil, nil
}

// exportName has no way to report an error but to end the connection.
func (h *handshake) exportName(data optionData) (*chosen, error) {
	const op = "nbd.EXPORT_NAME"
	name := string(data.bytes)
	if data.tooBig || !validText(data.bytes) {
		return nil, errs.New(errs.Protocol, op, "name", nil)
	}
	if h.c.srv.draining.Load() {
		return nil, errs.New(errs.Shutdown, op, name, nil)
	}
	sh := h.c.srv.find(name)
	if sh == nil {
		return nil, errs.New(errs.NotFound, op, name, nil)
	}
	o, err := sh.acquire(h.c.ctx)
	if err != nil {
		return nil, err
	}
	h.out = binary.BigEndian.AppendUint64(h.out, o.size)
	h.out = binary.BigEndian.AppendUint16(h.out, o.flags(h.state.structured))
	if !h.noZeroes {
		h.out = append(h.out, make([]byte, 124)...)
	}
	return h.choose(sh, o, name), nil
}

func (h *handshake) choose(sh *shared, o *opened, name string) *chosen {
	st := h.state
	return &chosen{
		shared: sh, open: o, structured: st.structured,
		// Contexts that were selected for another name do not count.
		meta: st.structured && st.meta && st.metaName == name,
	}
}

func (h *handshake) list() {
	for _, sh := range h.c.srv.table {
		name, text := sh.entry.Name, sh.entry.Description
		data := binary.BigEndian.AppendUint32(nil, uint32(len(name)))
		data = append(data, name...)
		h.reply(optList, repServer, append(data, text...))
	}
	h.ack(optList)
}

// info answers INFO and GO, which give the same information for the same data.
func (h *handshake) info(opt uint32, data []byte) *chosen {
	req, ok := decodeInfo(data)
	if !ok {
		h.refuse(opt, repErrInvalid, "malformed option data")
		return nil
	}
	sh := h.c.srv.find(req.name)
	if sh == nil {
		h.refuse(opt, repErrUnknown, "no such export")
		return nil
	}
	o, err := sh.acquire(h.c.ctx)
	if err != nil {
		h.c.srv.cfg.Logger.Error("nbd: cannot open export", "export", sh.entry.Name, "err", err)
		h.refuse(opt, openReply(err), "cannot open the export: "+errs.KindOf(err).String())
		return nil
	}
	h.infoReplies(opt, sh, o, req.wants)
	h.ack(opt)
	if opt == optGo {
		return h.choose(sh, o, req.name)
	}
	h.c.logClose(sh.release())
	return nil
}

// openReply tells by the reply's type whether another try may help.
func openReply(err error) uint32 {
	switch errs.KindOf(err) {
	case errs.Access, errs.Perm, errs.Busy, errs.ReadOnly:
		return repErrPolicy
	case errs.Shutdown:
		return repErrShutdown
	case errs.NotFound:
		return repErrUnknown
	}
	return repErrPlatform
}

func (h *handshake) infoReplies(opt uint32, sh *shared, o *opened, wants []uint16) {
	info := func(kind uint16) []byte { return binary.BigEndian.AppendUint16(nil, kind) }

	p := binary.BigEndian.AppendUint64(info(infoExport), o.size)
	p = binary.BigEndian.AppendUint16(p, o.flags(h.state.structured))
	h.reply(opt, repInfo, p)

	// The block sizes are sent unasked too: whoever reads them is warned of a minimum above one.
	p = binary.BigEndian.AppendUint32(info(infoBlockSize), o.minimum)
	p = binary.BigEndian.AppendUint32(p, o.preferred)
	h.reply(opt, repInfo, binary.BigEndian.AppendUint32(p, o.maxPayload))

	var name, description bool
	for _, w := range wants {
		name = name || w == infoName
		description = description || w == infoDescription
	}
	if name {
		h.reply(opt, repInfo, append(info(infoName), sh.entry.Name...))
	}
	if description && o.description != "" {
		h.reply(opt, repInfo, append(info(infoDescription), o.description...))
	}
}

// metaContext answers LIST_META_CONTEXT and SET_META_CONTEXT. There is one context,
// base:allocation, and every export has it.
func (h *handshake) metaContext(opt uint32, data []byte) {
	if opt == optSetMeta {
		// A new selection replaces the old one even when it fails.
		h.state.meta, h.state.metaName = false, ""
	}
	req, ok := decodeMeta(data)
	switch {
	case !h.state.structured:
		h.refuse(opt, repErrInvalid, "structured replies must be negotiated first")
		return
	case !ok:
		h.refuse(opt, repErrInvalid, "malformed option data")
		return
	case h.c.srv.find(req.name) == nil:
		h.refuse(opt, repErrUnknown, "no such export")
		return
	}
	found := opt == optListMeta && len(req.queries) == 0
	for _, q := range req.queries {
		// The bare namespace stands for all of its contexts when listing, for none when selecting.
		found = found || q == metaBase || opt == optListMeta && q == metaNamespace
	}
	if found {
		id := uint32(0)
		if opt == optSetMeta {
			id = metaBaseID
			h.state.meta, h.state.metaName = true, req.name
		}
		h.reply(opt, repMetaContext, append(binary.BigEndian.AppendUint32(nil, id), metaBase...))
	}
	h.ack(opt)
}
