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
		optListMeta, optSetMeta, optExtHeaders:
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
	case opt == optStartTLS:
		return nil, h.startTLS(data)
	case h.mustSecure():
		h.refuse(opt, repErrTLSReqd, "start TLS first")
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
	case opt == optStructuredReply && h.state.extended:
		h.refuse(opt, repErrExtReqd, "extended headers were negotiated")
	case opt == optExtHeaders && h.state.extended:
		h.refuse(opt, repErrInvalid, "extended headers were negotiated already")
	case opt == optExtHeaders:
		h.state.structured, h.state.extended = true, true
		h.ack(opt)
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
	if data.tooBig || !validText(data.bytes) || h.state.extended {
		return nil, errs.New(errs.Protocol, op, "name", nil)
	}
	if h.c.srv.draining.Load() {
		return nil, errs.New(errs.Shutdown, op, name, nil)
	}
	if h.mustSecure() {
		return nil, errs.Newf(errs.Perm, op, name, "without TLS")
	}
	sh, _, why := h.find(name)
	if sh == nil {
		return nil, errs.Newf(errs.NotFound, op, name, "%s", why)
	}
	o, err := sh.acquire(h.c.ctx)
	if err != nil {
		return nil, err
	}
	h.out = binary.BigEndian.AppendUint64(h.out, o.size.Load())
	h.out = binary.BigEndian.AppendUint16(h.out, o.flags(h.bound(name)))
	if !h.noZeroes {
		h.out = append(h.out, make([]byte, 124)...)
	}
	return h.choose(sh, o, name), nil
}

// bound is what has been negotiated for an export of this name: contexts that were selected for
// another one do not count.
func (h *handshake) bound(name string) negotiated {
	st := h.state
	if !st.structured || st.metaName != name {
		st.contexts = 0
	}
	return st
}

func (h *handshake) choose(sh *shared, o *opened, name string) *chosen {
	st := h.bound(name)
	return &chosen{
		shared: sh, open: o, structured: st.structured, extended: st.extended, contexts: st.contexts,
	}
}

// list names the exports that the client may use.
func (h *handshake) list() {
	for _, sh := range h.c.srv.offers.Load().list {
		if refusal, _ := h.admits(&sh.entry); refusal != 0 {
			continue
		}
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
	sh, refusal, why := h.find(req.name)
	if sh == nil {
		h.refuse(opt, refusal, why)
		return nil
	}
	o, err := sh.acquire(h.c.ctx)
	if err != nil {
		h.c.srv.cfg.Logger.Error("nbd: cannot open export", "export", sh.entry.Name, "err", err)
		h.refuse(opt, openReply(err), "cannot open the export: "+errs.KindOf(err).String())
		return nil
	}
	h.infoReplies(opt, sh, o, &req)
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

func (h *handshake) infoReplies(opt uint32, sh *shared, o *opened, req *infoRequest) {
	info := func(kind uint16) []byte { return binary.BigEndian.AppendUint16(nil, kind) }

	p := binary.BigEndian.AppendUint64(info(infoExport), o.size.Load())
	p = binary.BigEndian.AppendUint16(p, o.flags(h.bound(req.name)))
	h.reply(opt, repInfo, p)

	// The block sizes are sent unasked too: whoever reads them is warned of a minimum above one.
	p = binary.BigEndian.AppendUint32(info(infoBlockSize), o.minimum)
	p = binary.BigEndian.AppendUint32(p, o.preferred)
	h.reply(opt, repInfo, binary.BigEndian.AppendUint32(p, o.maxPayload))

	var name, description bool
	for _, w := range req.wants {
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

// metaContext answers LIST_META_CONTEXT and SET_META_CONTEXT: base:allocation, which every export
// has, and what its entry names. The export need not be open for that.
func (h *handshake) metaContext(opt uint32, data []byte) {
	if opt == optSetMeta {
		// A new selection replaces the old one even when it fails.
		h.state.contexts, h.state.metaName = 0, ""
	}
	req, ok := decodeMeta(data)
	switch {
	case !h.state.structured:
		h.refuse(opt, repErrInvalid, "structured replies must be negotiated first")
		return
	case !ok:
		h.refuse(opt, repErrInvalid, "malformed option data")
		return
	}
	sh, refusal, why := h.find(req.name)
	if sh == nil {
		if refusal == repErrTLSReqd {
			refusal = repErrUnknown // the protocol has that answer for INFO and GO only
		}
		h.refuse(opt, refusal, why)
		return
	}
	h.tellContext(opt, &req, metaBase, metaBaseID)
	for i, name := range sh.entry.Contexts {
		h.tellContext(opt, &req, name, contextID(i))
	}
	h.ack(opt)
}

// tellContext lists or selects one context, if it is asked for.
func (h *handshake) tellContext(opt uint32, req *metaRequest, name string, id uint32) {
	listing := opt == optListMeta
	found := listing && len(req.queries) == 0
	for _, q := range req.queries {
		found = found || contextMatches(q, name, listing)
	}
	if !found {
		return
	}
	if listing {
		id = 0
	} else {
		h.state.contexts |= 1 << id
		h.state.metaName = req.name
	}
	h.reply(opt, repMetaContext, append(binary.BigEndian.AppendUint32(nil, id), name...))
}
