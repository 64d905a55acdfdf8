// What the Go side calls. Functions return 0 or a negative errno unless they say otherwise. Nothing
// here keeps a pointer to Go memory.

#ifndef SLUICE_VERBS_SHIM_H
#define SLUICE_VERBS_SHIM_H

#include "abi.h"

enum { VB_MAX_DEVICES = 16, VB_PRIVATE_MAX = 196, VB_NAME_MAX = 64 };

// vb_load opens both libraries, once per process; why is filled in when it fails.
int vb_load(char *why, size_t size);

// Devices.
typedef struct {
	char name[VB_NAME_MAX];
	uint32_t vendor_id, vendor_part_id;
	int max_qp_wr, max_sge, max_cqe, max_reads_in, max_reads_out, max_inline;
	int windows; // the device has memory windows of type 2
	int ports, active_ports;
	uint32_t max_msg;
} vb_devinfo;

int vb_device_names(char (*names)[VB_NAME_MAX], int max); // their number, or a negative errno
int vb_device_open(const char *name, vb_context **ctx, vb_pd **pd, vb_devinfo *info);
void vb_device_close(vb_context *ctx, vb_pd *pd);
int vb_device_fd(vb_context *ctx);
void vb_forget_devices(void); // has librdmacm look which devices are there

typedef struct {
	int active, ethernet, mtu; // mtu in bytes
} vb_port;

int vb_port_get(vb_context *ctx, int port, vb_port *out);
int vb_gids(vb_context *ctx, vb_gid_entry *out, int max); // of all ports; their number

typedef struct {
	int type;
	int port;
	vb_cq *cq;
	uint32_t qp_num;
} vb_async;

int vb_async_get(vb_context *ctx, vb_async *out); // -EAGAIN when there is none

// Memory. iova is the address that the peer uses for its first byte; NULL with errno on failure.
vb_mr *vb_reg(vb_pd *pd, uintptr_t addr, size_t length, uint64_t iova, int access);
int vb_dereg(vb_mr *mr);
int vb_mw_new(vb_pd *pd, vb_mw **mw);
int vb_mw_free(vb_mw *mw);

// Completion queues. A set is one queue of the user, which has a part on each device.
typedef struct {
	int count, next;
	vb_cq *cq[VB_MAX_DEVICES];
} vb_cqset;

int vb_cq_new(vb_context *ctx, int entries, vb_cq **cq, int *fd);
int vb_cq_free(vb_cq *cq);
int vb_cq_event(vb_cq *cq); // takes and acknowledges events; their number, 0 when there are none
// vb_cq_poll looks so many times while there is nothing. (It and the posting of chains take numbers
// for pointers, all of C memory: so the Go side need not check at each call what they point at.)
int vb_cq_poll(uintptr_t set, int max, int looks, uintptr_t out);
int vb_cq_arm(vb_cqset *set, int solicited_only);

// Queue pairs.
typedef struct {
	uint32_t send_wr, recv_wr, send_sge, inline_bytes;
} vb_qp_size;

int vb_qp_new(vb_pd *pd, vb_cq *send, vb_cq *recv, const vb_qp_size *size, vb_qp **qp);
int vb_qp_init(vb_id *id, vb_qp *qp);
int vb_qp_ready(vb_id *id, vb_qp *qp, int reads_in, int reads_out, int timeout, int retries);
int vb_qp_fail(vb_qp *qp);
int vb_qp_free(vb_qp *qp);

// Chains: the requests in wr[0..count) with their pieces one after the other in sge.
int vb_post_send(uintptr_t qp, uintptr_t wr, uintptr_t sge, int count);
int vb_post_recv(uintptr_t qp, uintptr_t wr, uintptr_t sge, int count);
int vb_post_bind(vb_qp *qp, uint64_t wr_id, vb_mw *mw, uint32_t rkey, vb_mr *mr, uint64_t addr,
		 uint64_t length, int access);
int vb_post_write(vb_qp *qp, uint64_t wr_id, uint64_t from, uint32_t lkey, uint32_t length,
		  uint64_t to, uint32_t rkey);
int vb_post_nothing(vb_qp *qp, uint64_t wr_id);
int vb_post_last_recv(vb_qp *qp, uint64_t wr_id);
int vb_post_invalidate(vb_qp *qp, uint64_t wr_id, uint32_t rkey);

// Connections.
typedef struct {
	vb_id *id, *listen_id;
	int type, status;
	int private_len, reads_in, reads_out; // as this side sees it
	unsigned char private_data[VB_PRIVATE_MAX];
} vb_event;

int vb_channel_new(vb_channel **ch);
void vb_channel_free(vb_channel *ch);
int vb_channel_event(vb_channel *ch, vb_event *out); // -EAGAIN when there is none

int vb_id_new(vb_channel *ch, vb_id **id);
void vb_id_free(vb_id *id);
int vb_id_bind(vb_id *id, const void *addr);
int vb_id_listen(vb_id *id, int backlog);
int vb_id_resolve(vb_id *id, const void *addr, int timeout_ms);
int vb_id_route(vb_id *id, int timeout_ms);
int vb_id_connect(vb_id *id, vb_qp *qp, const void *data, int len, int reads_in, int reads_out);
int vb_id_accept(vb_id *id, vb_qp *qp, const void *data, int len, int reads_in, int reads_out);
int vb_id_establish(vb_id *id);
int vb_id_reject(vb_id *id, const void *data, int len);
int vb_id_disconnect(vb_id *id);
const char *vb_id_device(vb_id *id);

#endif
