//go:build cgo && linux && (amd64 || arm64)

// The C side of the verbs provider. It finds both libraries at run time (nothing is linked but
// libdl) and does what the inline functions of <infiniband/verbs.h> do: post and poll go through
// the function pointers of the device's context.

#define _GNU_SOURCE
#include "shim.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>

// The functions of the libraries. The version is the ABI's, so that a later incompatible default
// version is never taken by accident.
#define VERBS(X) \
	X(vb_device **, get_device_list, (int *), "IBVERBS_1.1") \
	X(void, free_device_list, (vb_device **), "IBVERBS_1.1") \
	X(const char *, get_device_name, (vb_device *), "IBVERBS_1.1") \
	X(vb_context *, open_device, (vb_device *), "IBVERBS_1.1") \
	X(int, close_device, (vb_context *), "IBVERBS_1.1") \
	X(int, query_device, (vb_context *, vb_device_attr *), "IBVERBS_1.1") \
	X(int, query_port, (vb_context *, uint8_t, vb_port_attr *), "IBVERBS_1.1") \
	X(int, query_gid, (vb_context *, uint8_t, int, void *), "IBVERBS_1.1") \
	X(int, get_async_event, (vb_context *, vb_async_event *), "IBVERBS_1.1") \
	X(void, ack_async_event, (vb_async_event *), "IBVERBS_1.1") \
	X(vb_pd *, alloc_pd, (vb_context *), "IBVERBS_1.1") \
	X(int, dealloc_pd, (vb_pd *), "IBVERBS_1.1") \
	X(vb_mr *, reg_mr_iova, (vb_pd *, void *, size_t, uint64_t, int), "IBVERBS_1.7") \
	X(int, dereg_mr, (vb_mr *), "IBVERBS_1.1") \
	X(vb_comp_channel *, create_comp_channel, (vb_context *), "IBVERBS_1.0") \
	X(int, destroy_comp_channel, (vb_comp_channel *), "IBVERBS_1.0") \
	X(vb_cq *, create_cq, (vb_context *, int, void *, vb_comp_channel *, int), "IBVERBS_1.1") \
	X(int, destroy_cq, (vb_cq *), "IBVERBS_1.1") \
	X(int, get_cq_event, (vb_comp_channel *, vb_cq **, void **), "IBVERBS_1.1") \
	X(void, ack_cq_events, (vb_cq *, unsigned int), "IBVERBS_1.1") \
	X(vb_qp *, create_qp, (vb_pd *, vb_qp_init_attr *), "IBVERBS_1.1") \
	X(int, modify_qp, (vb_qp *, vb_qp_attr *, int), "IBVERBS_1.1") \
	X(int, destroy_qp, (vb_qp *), "IBVERBS_1.1")

#define RDMA(X) \
	X(vb_channel *, create_event_channel, (void), "RDMACM_1.0") \
	X(void, destroy_event_channel, (vb_channel *), "RDMACM_1.0") \
	X(int, get_cm_event, (vb_channel *, vb_cm_event **), "RDMACM_1.0") \
	X(int, ack_cm_event, (vb_cm_event *), "RDMACM_1.0") \
	X(vb_context **, get_devices, (int *), "RDMACM_1.0") \
	X(void, free_devices, (vb_context **), "RDMACM_1.0") \
	X(int, create_id, (vb_channel *, vb_id **, void *, int), "RDMACM_1.0") \
	X(int, destroy_id, (vb_id *), "RDMACM_1.0") \
	X(int, bind_addr, (vb_id *, struct sockaddr *), "RDMACM_1.0") \
	X(int, listen, (vb_id *, int), "RDMACM_1.0") \
	X(int, resolve_addr, (vb_id *, struct sockaddr *, struct sockaddr *, int), "RDMACM_1.0") \
	X(int, resolve_route, (vb_id *, int), "RDMACM_1.0") \
	X(int, connect, (vb_id *, vb_conn_param *), "RDMACM_1.0") \
	X(int, accept, (vb_id *, vb_conn_param *), "RDMACM_1.0") \
	X(int, reject, (vb_id *, const void *, uint8_t), "RDMACM_1.0") \
	X(int, disconnect, (vb_id *), "RDMACM_1.0") \
	X(int, establish, (vb_id *), "RDMACM_1.2") \
	X(int, init_qp_attr, (vb_id *, vb_qp_attr *, int *), "RDMACM_1.2")

#define FIELD(ret, name, args, version) ret(*name) args;

// The only state of this file: written once under the once, read by everybody after it.
static struct {
	pthread_once_t once;
	char why[256];
	struct { VERBS(FIELD) } ibv;
	ssize_t (*gid_table)(vb_context *, vb_gid_entry *, size_t, uint32_t, size_t); // or NULL
	struct { RDMA(FIELD) } rdma;
} lib = {.once = PTHREAD_ONCE_INIT};

static void *find(void *from, const char *file, const char *name, const char *version) {
	void *f = dlvsym(from, name, version);
	if (f == NULL)
		snprintf(lib.why, sizeof lib.why, "%s lacks %s of %s: too old", file, name, version);
	return f;
}

static void load(void) {
	static const char verbs[] = "libibverbs.so.1", cm[] = "librdmacm.so.1";
	void *from = dlopen(verbs, RTLD_NOW | RTLD_LOCAL);
	void *from_cm = from ? dlopen(cm, RTLD_NOW | RTLD_LOCAL) : NULL;
	if (from_cm == NULL) {
		snprintf(lib.why, sizeof lib.why, "%s", dlerror());
		return;
	}
#define TAKE_VERBS(ret, name, args, version) \
	if ((lib.ibv.name = (ret(*) args)find(from, verbs, "ibv_" #name, version)) == NULL) \
		return;
#define TAKE_RDMA(ret, name, args, version) \
	if ((lib.rdma.name = (ret(*) args)find(from_cm, cm, "rdma_" #name, version)) == NULL) \
		return;
	VERBS(TAKE_VERBS)
	RDMA(TAKE_RDMA)
	lib.gid_table = dlvsym(from, "_ibv_query_gid_table", "IBVERBS_1.11");
}

int vb_load(char *why, size_t size) {
	pthread_once(&lib.once, load);
	if (lib.why[0] == 0)
		return 0;
	snprintf(why, size, "%s", lib.why);
	return -ENOSYS;
}

// failed is the errno of a call that said no, never 0.
static int failed(void) { return errno > 0 ? -errno : -EIO; }

// result turns what libibverbs returns (0, a positive errno, or -1 with errno) into our form.
static int result(int r) { return r == 0 ? 0 : r > 0 ? -r : failed(); }

static int nonblocking(int fd) {
	int flags = fcntl(fd, F_GETFL);
	return flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ? failed() : 0;
}

int vb_device_names(char (*names)[VB_NAME_MAX], int max) {
	int count = 0, kept = 0;
	vb_device **list = lib.ibv.get_device_list(&count);
	if (list == NULL)
		return errno == ENOSYS ? 0 : failed(); // ENOSYS: the kernel has no RDMA
	for (; kept < count && kept < max; kept++)
		snprintf(names[kept], VB_NAME_MAX, "%s", lib.ibv.get_device_name(list[kept]));
	lib.ibv.free_device_list(list);
	return kept;
}

static vb_context *open_named(const char *name) {
	int count = 0;
	vb_context *ctx = NULL;
	vb_device **list = lib.ibv.get_device_list(&count);
	if (list == NULL)
		return NULL;
	errno = ENODEV;
	for (int i = 0; i < count; i++)
		if (strcmp(lib.ibv.get_device_name(list[i]), name) == 0) {
			ctx = lib.ibv.open_device(list[i]);
			break;
		}
	int why = errno;
	lib.ibv.free_device_list(list);
	errno = why;
	return ctx;
}

// probe_inline finds how much inline data a queue pair can have beside the gather list.
static int probe_inline(vb_context *ctx, vb_pd *pd, int sge) {
	int best = 0;
	vb_cq *cq = lib.ibv.create_cq(ctx, 4, NULL, NULL, 0);
	if (cq == NULL)
		return 0;
	for (int bytes = 512; bytes >= 32 && best == 0; bytes /= 2) {
		vb_qp *qp = NULL;
		vb_qp_size size = {2, 2, (uint32_t)sge, (uint32_t)bytes};
		if (vb_qp_new(pd, cq, cq, &size, &qp) == 0) {
			best = bytes;
			lib.ibv.destroy_qp(qp);
		}
	}
	lib.ibv.destroy_cq(cq);
	return best;
}

static int describe(vb_context *ctx, vb_pd *pd, vb_devinfo *info) {
	vb_device_attr attr;
	memset(&attr, 0, sizeof attr);
	int err = result(lib.ibv.query_device(ctx, &attr));
	if (err)
		return err;
	info->vendor_id = attr.vendor_id;
	info->vendor_part_id = attr.vendor_part_id;
	info->max_qp_wr = attr.max_qp_wr;
	info->max_sge = attr.max_sge < 32 ? attr.max_sge : 32;
	info->max_cqe = attr.max_cqe;
	info->max_reads_in = attr.max_qp_rd_atom;
	info->max_reads_out = attr.max_qp_init_rd_atom;
	info->windows = (attr.device_cap_flags & (VB_DEVICE_MW_2A | VB_DEVICE_MW_2B)) != 0 &&
			ctx->ops.alloc_mw != NULL;
	info->max_msg = UINT32_MAX;
	info->ports = attr.phys_port_cnt;
	for (int port = 1; port <= attr.phys_port_cnt; port++) {
		vb_port_attr p;
		memset(&p, 0, sizeof p);
		if (lib.ibv.query_port(ctx, (uint8_t)port, &p) != 0)
			continue;
		info->active_ports += p.state == VB_PORT_ACTIVE;
		if (p.max_msg_sz < info->max_msg)
			info->max_msg = p.max_msg_sz;
	}
	info->max_inline = probe_inline(ctx, pd, info->max_sge);
	return 0;
}

int vb_device_open(const char *name, vb_context **ctx, vb_pd **pd, vb_devinfo *info) {
	memset(info, 0, sizeof *info);
	snprintf(info->name, sizeof info->name, "%s", name);
	if ((*ctx = open_named(name)) == NULL)
		return failed();
	if ((*pd = lib.ibv.alloc_pd(*ctx)) == NULL) {
		int err = failed();
		lib.ibv.close_device(*ctx);
		return err;
	}
	int err = describe(*ctx, *pd, info);
	if (err == 0)
		err = nonblocking((*ctx)->async_fd);
	if (err)
		vb_device_close(*ctx, *pd);
	return err;
}

void vb_device_close(vb_context *ctx, vb_pd *pd) {
	lib.ibv.dealloc_pd(pd);
	lib.ibv.close_device(ctx);
}

void vb_forget_devices(void) {
	vb_context **list = lib.rdma.get_devices(NULL);
	if (list != NULL)
		lib.rdma.free_devices(list);
}

int vb_device_fd(vb_context *ctx) { return ctx->async_fd; }

int vb_port_get(vb_context *ctx, int port, vb_port *out) {
	vb_port_attr p;
	memset(&p, 0, sizeof p);
	int err = result(lib.ibv.query_port(ctx, (uint8_t)port, &p));
	out->active = p.state == VB_PORT_ACTIVE;
	out->ethernet = p.link_layer == VB_LINK_ETHERNET;
	out->mtu = p.active_mtu >= 1 && p.active_mtu <= 5 ? 128 << p.active_mtu : 0;
	return err;
}

// gids_one_by_one is for libraries that do not give the whole table. They do not tell interfaces.
static int gids_one_by_one(vb_context *ctx, vb_gid_entry *out, int max) {
	enum { DEEP = 128 }; // further down there is hardly anything
	static const uint8_t none[16];
	vb_device_attr attr;
	memset(&attr, 0, sizeof attr);
	int kept = 0, err = result(lib.ibv.query_device(ctx, &attr));
	for (int port = 1; err == 0 && port <= attr.phys_port_cnt; port++) {
		vb_port_attr p;
		memset(&p, 0, sizeof p);
		if (lib.ibv.query_port(ctx, (uint8_t)port, &p) != 0)
			continue;
		for (int i = 0; i < p.gid_tbl_len && i < DEEP && kept < max; i++) {
			vb_gid_entry *e = &out[kept];
			memset(e, 0, sizeof *e);
			e->port_num = (uint32_t)port;
			if (lib.ibv.query_gid(ctx, (uint8_t)port, i, e->gid) == 0)
				kept += memcmp(e->gid, none, sizeof none) != 0;
		}
	}
	return err ? err : kept;
}

int vb_gids(vb_context *ctx, vb_gid_entry *out, int max) {
	if (lib.gid_table == NULL)
		return gids_one_by_one(ctx, out, max);
	return (int)lib.gid_table(ctx, out, (size_t)max, 0, sizeof *out);
}

int vb_async_get(vb_context *ctx, vb_async *out) {
	vb_async_event ev;
	if (lib.ibv.get_async_event(ctx, &ev) != 0)
		return failed();
	memset(out, 0, sizeof *out);
	out->type = ev.event_type;
	switch (ev.event_type) {
	case VB_EVENT_CQ_ERR:
		out->cq = ev.element.cq;
		break;
	case VB_EVENT_QP_FATAL:
	case VB_EVENT_QP_REQ_ERR:
	case VB_EVENT_QP_ACCESS_ERR:
		out->qp_num = ev.element.qp->qp_num;
		break;
	case VB_EVENT_PORT_ERR:
		out->port = ev.element.port_num;
		break;
	}
	lib.ibv.ack_async_event(&ev);
	return 0;
}

vb_mr *vb_reg(vb_pd *pd, uintptr_t addr, size_t length, uint64_t iova, int access) {
	return lib.ibv.reg_mr_iova(pd, (void *)addr, length, iova, access);
}

int vb_dereg(vb_mr *mr) { return result(lib.ibv.dereg_mr(mr)); }

int vb_mw_new(vb_pd *pd, vb_mw **mw) {
	*mw = pd->context->ops.alloc_mw(pd, VB_MW_TYPE_2);
	return *mw ? 0 : failed();
}

int vb_mw_free(vb_mw *mw) { return result(mw->context->ops.dealloc_mw(mw)); }

int vb_cq_new(vb_context *ctx, int entries, vb_cq **cq, int *fd) {
	vb_comp_channel *ch = lib.ibv.create_comp_channel(ctx);
	if (ch == NULL)
		return failed();
	int err = nonblocking(ch->fd);
	if (err == 0) {
		*cq = lib.ibv.create_cq(ctx, entries, NULL, ch, 0);
		err = *cq ? 0 : failed();
	}
	if (err)
		lib.ibv.destroy_comp_channel(ch);
	else
		*fd = ch->fd;
	return err;
}

int vb_cq_free(vb_cq *cq) {
	vb_comp_channel *ch = cq->channel;
	int err = result(lib.ibv.destroy_cq(cq));
	return err ? err : result(lib.ibv.destroy_comp_channel(ch));
}

int vb_cq_event(vb_cq *cq) {
	int count = 0;
	vb_cq *which;
	void *context;
	while (lib.ibv.get_cq_event(cq->channel, &which, &context) == 0) {
		lib.ibv.ack_cq_events(which, 1);
		count++;
	}
	return count;
}

static int poll_once(vb_cqset *set, int max, vb_wc *out) {
	int got = 0;
	for (int i = 0; i < set->count && got < max; i++) { // the parts take turns to be first
		vb_cq *cq = set->cq[(set->next + i) % set->count];
		int n = cq->context->ops.poll_cq(cq, max - got, out + got);
		if (n < 0)
			return got > 0 ? got : -EIO;
		got += n;
	}
	set->next++;
	if (set->next >= set->count)
		set->next = 0;
	return got;
}

int vb_cq_poll(uintptr_t set, int max, int looks, uintptr_t out) {
	int got = 0;
	while (got == 0 && looks-- > 0)
		got = poll_once((vb_cqset *)set, max, (vb_wc *)out);
	return got;
}

int vb_cq_arm(vb_cqset *set, int solicited_only) {
	int err = 0;
	for (int i = 0; i < set->count; i++) {
		vb_cq *cq = set->cq[i];
		int r = result(cq->context->ops.req_notify_cq(cq, solicited_only));
		if (err == 0)
			err = r; // the others are asked all the same
	}
	return err;
}

int vb_qp_new(vb_pd *pd, vb_cq *send, vb_cq *recv, const vb_qp_size *size, vb_qp **qp) {
	vb_qp_init_attr attr;
	memset(&attr, 0, sizeof attr);
	attr.send_cq = send;
	attr.recv_cq = recv;
	attr.qp_type = VB_QPT_RC;
	attr.cap.max_send_wr = size->send_wr;
	attr.cap.max_recv_wr = size->recv_wr;
	attr.cap.max_send_sge = size->send_sge;
	attr.cap.max_recv_sge = 1;
	attr.cap.max_inline_data = size->inline_bytes;
	*qp = lib.ibv.create_qp(pd, &attr);
	return *qp ? 0 : failed();
}

// to_state moves a queue pair as the connection manager says.
static int to_state(vb_id *id, vb_qp *qp, vb_qp_attr *attr, int state, int *mask) {
	memset(attr, 0, sizeof *attr);
	attr->qp_state = state;
	*mask = 0;
	return result(lib.rdma.init_qp_attr(id, attr, mask));
}

int vb_qp_init(vb_id *id, vb_qp *qp) {
	vb_qp_attr attr;
	int mask, err = to_state(id, qp, &attr, VB_QPS_INIT, &mask);
	if (err)
		return err;
	attr.qp_access_flags = VB_ACCESS_REMOTE_WRITE | VB_ACCESS_REMOTE_READ;
	return result(lib.ibv.modify_qp(qp, &attr, mask | VB_QP_ACCESS_FLAGS));
}

int vb_qp_ready(vb_id *id, vb_qp *qp, int reads_in, int reads_out, int timeout, int retries) {
	vb_qp_attr attr;
	int mask, err = to_state(id, qp, &attr, VB_QPS_RTR, &mask);
	if (err)
		return err;
	attr.max_dest_rd_atomic = (uint8_t)reads_in;
	attr.min_rnr_timer = 1; // the shortest; nobody waits for it with RNR retry 0
	mask |= VB_QP_MAX_DEST_RD_ATOMIC | VB_QP_MIN_RNR_TIMER;
	if ((err = result(lib.ibv.modify_qp(qp, &attr, mask))) != 0)
		return err;
	if ((err = to_state(id, qp, &attr, VB_QPS_RTS, &mask)) != 0)
		return err;
	attr.max_rd_atomic = (uint8_t)reads_out;
	attr.timeout = (uint8_t)timeout;
	attr.retry_cnt = (uint8_t)retries;
	attr.rnr_retry = 0; // running dry is a bug of the peer, not a reason to wait
	mask |= VB_QP_MAX_QP_RD_ATOMIC | VB_QP_TIMEOUT | VB_QP_RETRY_CNT | VB_QP_RNR_RETRY;
	return result(lib.ibv.modify_qp(qp, &attr, mask));
}

int vb_qp_fail(vb_qp *qp) {
	vb_qp_attr attr;
	memset(&attr, 0, sizeof attr);
	attr.qp_state = VB_QPS_ERR;
	return result(lib.ibv.modify_qp(qp, &attr, VB_QP_STATE));
}

int vb_qp_free(vb_qp *qp) { return result(lib.ibv.destroy_qp(qp)); }

static int post_send(vb_qp *qp, vb_send_wr *wr, vb_sge *sge, int count) {
	vb_send_wr *bad = NULL;
	for (int i = 0; i < count; i++) {
		wr[i].next = i + 1 < count ? &wr[i + 1] : NULL;
		wr[i].sg_list = sge;
		sge += wr[i].num_sge;
	}
	return result(qp->context->ops.post_send(qp, wr, &bad));
}

int vb_post_send(uintptr_t qp, uintptr_t wr, uintptr_t sge, int count) {
	return post_send((vb_qp *)qp, (vb_send_wr *)wr, (vb_sge *)sge, count);
}

static int post_recv(vb_qp *qp, vb_recv_wr *wr, vb_sge *sge, int count) {
	vb_recv_wr *bad = NULL;
	for (int i = 0; i < count; i++) {
		wr[i].next = i + 1 < count ? &wr[i + 1] : NULL;
		wr[i].sg_list = sge + i;
	}
	return result(qp->context->ops.post_recv(qp, wr, &bad));
}

int vb_post_recv(uintptr_t qp, uintptr_t wr, uintptr_t sge, int count) {
	return post_recv((vb_qp *)qp, (vb_recv_wr *)wr, (vb_sge *)sge, count);
}

int vb_post_bind(vb_qp *qp, uint64_t wr_id, vb_mw *mw, uint32_t rkey, vb_mr *mr, uint64_t addr,
		 uint64_t length, int access) {
	vb_send_wr wr, *bad = NULL;
	memset(&wr, 0, sizeof wr);
	wr.wr_id = wr_id;
	wr.opcode = VB_WR_BIND_MW;
	wr.send_flags = VB_SEND_SIGNALED;
	wr.mw = mw;
	wr.mw_rkey = rkey;
	wr.bind_mr = mr;
	wr.bind_addr = addr;
	wr.bind_length = length;
	wr.bind_access = (unsigned int)access;
	int err = result(qp->context->ops.post_send(qp, &wr, &bad));
	if (err == 0)
		mw->rkey = rkey;
	return err;
}

int vb_post_write(vb_qp *qp, uint64_t wr_id, uint64_t from, uint32_t lkey, uint32_t length,
		  uint64_t to, uint32_t rkey) {
	vb_sge sge = {from, length, lkey};
	vb_send_wr wr;
	memset(&wr, 0, sizeof wr);
	wr.wr_id = wr_id;
	wr.opcode = VB_WR_WRITE;
	wr.send_flags = VB_SEND_SIGNALED;
	wr.num_sge = 1;
	wr.remote_addr = to;
	wr.rkey = rkey;
	return post_send(qp, &wr, &sge, 1);
}

int vb_post_nothing(vb_qp *qp, uint64_t wr_id) {
	vb_send_wr wr;
	memset(&wr, 0, sizeof wr);
	wr.wr_id = wr_id;
	wr.opcode = VB_WR_WRITE; // of no bytes, which needs no key
	wr.send_flags = VB_SEND_SIGNALED;
	return post_send(qp, &wr, NULL, 1);
}

int vb_post_last_recv(vb_qp *qp, uint64_t wr_id) {
	vb_recv_wr wr = {wr_id, NULL, NULL, 0};
	return post_recv(qp, &wr, NULL, 1);
}

int vb_post_invalidate(vb_qp *qp, uint64_t wr_id, uint32_t rkey) {
	vb_send_wr wr, *bad = NULL;
	memset(&wr, 0, sizeof wr);
	wr.wr_id = wr_id;
	wr.opcode = VB_WR_LOCAL_INV;
	wr.send_flags = VB_SEND_SIGNALED;
	wr.imm_data = rkey;
	return result(qp->context->ops.post_send(qp, &wr, &bad));
}

int vb_channel_new(vb_channel **ch) {
	if ((*ch = lib.rdma.create_event_channel()) == NULL)
		return failed();
	int err = nonblocking((*ch)->fd);
	if (err)
		lib.rdma.destroy_event_channel(*ch);
	return err;
}

void vb_channel_free(vb_channel *ch) { lib.rdma.destroy_event_channel(ch); }

int vb_channel_event(vb_channel *ch, vb_event *out) {
	vb_cm_event *ev = NULL;
	if (lib.rdma.get_cm_event(ch, &ev) != 0)
		return failed();
	out->id = ev->id;
	out->listen_id = ev->listen_id;
	out->type = ev->event;
	out->status = ev->status;
	out->private_len = ev->conn.private_data ? ev->conn.private_data_len : 0;
	if (out->private_len > VB_PRIVATE_MAX)
		out->private_len = VB_PRIVATE_MAX;
	memcpy(out->private_data, ev->conn.private_data, (size_t)out->private_len);
	out->reads_in = ev->conn.responder_resources; // the library has turned them to our view
	out->reads_out = ev->conn.initiator_depth;
	lib.rdma.ack_cm_event(ev);
	return 0;
}

int vb_id_new(vb_channel *ch, vb_id **id) {
	return lib.rdma.create_id(ch, id, NULL, VB_PS_TCP) ? failed() : 0;
}

void vb_id_free(vb_id *id) { lib.rdma.destroy_id(id); }

int vb_id_bind(vb_id *id, const void *addr) {
	return lib.rdma.bind_addr(id, (struct sockaddr *)addr) ? failed() : 0;
}

int vb_id_listen(vb_id *id, int backlog) { return lib.rdma.listen(id, backlog) ? failed() : 0; }

int vb_id_resolve(vb_id *id, const void *addr, int timeout_ms) {
	return lib.rdma.resolve_addr(id, NULL, (struct sockaddr *)addr, timeout_ms) ? failed() : 0;
}

int vb_id_route(vb_id *id, int timeout_ms) {
	return lib.rdma.resolve_route(id, timeout_ms) ? failed() : 0;
}

static vb_conn_param param(vb_qp *qp, const void *data, int len, int reads_in, int reads_out) {
	vb_conn_param p;
	memset(&p, 0, sizeof p);
	p.private_data = data;
	p.private_data_len = (uint8_t)len;
	p.responder_resources = (uint8_t)reads_in;
	p.initiator_depth = (uint8_t)reads_out;
	p.retry_count = 7;
	p.rnr_retry_count = 0;
	p.qp_num = qp->qp_num;
	return p;
}

int vb_id_connect(vb_id *id, vb_qp *qp, const void *data, int len, int reads_in, int reads_out) {
	vb_conn_param p = param(qp, data, len, reads_in, reads_out);
	return lib.rdma.connect(id, &p) ? failed() : 0;
}

int vb_id_accept(vb_id *id, vb_qp *qp, const void *data, int len, int reads_in, int reads_out) {
	vb_conn_param p = param(qp, data, len, reads_in, reads_out);
	return lib.rdma.accept(id, &p) ? failed() : 0;
}

int vb_id_establish(vb_id *id) { return lib.rdma.establish(id) ? failed() : 0; }

int vb_id_reject(vb_id *id, const void *data, int len) {
	return lib.rdma.reject(id, data, (uint8_t)len) ? failed() : 0;
}

int vb_id_disconnect(vb_id *id) { return lib.rdma.disconnect(id) ? failed() : 0; }

const char *vb_id_device(vb_id *id) {
	return id->verbs ? lib.ibv.get_device_name(id->verbs->device) : NULL;
}
