// The parts of the verbs ABI (libibverbs.so.1, librdmacm.so.1) that this provider touches.
//
// Why declarations of our own: sluice must build with a C compiler alone, on machines that have no
// RDMA headers, and run on machines that have no RDMA libraries. The structures below are the
// stable ABI of the two libraries: their names carry "vb_", their layout is the libraries'.
// abi_check.c compares every offset with the real headers wherever those are installed.
// Unions are flattened to the member that is used here. Only 64-bit little-endian Linux.

#ifndef SLUICE_VERBS_ABI_H
#define SLUICE_VERBS_ABI_H

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

typedef struct vb_device vb_device; // opaque: asked by function only
typedef struct vb_context vb_context;
typedef struct vb_pd vb_pd;
typedef struct vb_mr vb_mr;
typedef struct vb_mw vb_mw;
typedef struct vb_cq vb_cq;
typedef struct vb_qp vb_qp;
typedef struct vb_id vb_id;

typedef struct { // struct ibv_sge
	uint64_t addr;
	uint32_t length;
	uint32_t lkey;
} vb_sge;

typedef struct vb_send_wr { // struct ibv_send_wr
	uint64_t wr_id;
	struct vb_send_wr *next;
	vb_sge *sg_list;
	int num_sge;
	int opcode;
	unsigned int send_flags;
	uint32_t imm_data; // big-endian; the rkey of a VB_WR_LOCAL_INV
	uint64_t remote_addr;
	uint32_t rkey;
	uint32_t unused0[5]; // the rest of the union with atomics
	uint32_t unused1[2]; // xrc, padding
	vb_mw *mw;           // what follows: VB_WR_BIND_MW
	uint32_t mw_rkey;
	vb_mr *bind_mr;
	uint64_t bind_addr;
	uint64_t bind_length;
	unsigned int bind_access;
} vb_send_wr;

typedef struct vb_recv_wr { // struct ibv_recv_wr
	uint64_t wr_id;
	struct vb_recv_wr *next;
	vb_sge *sg_list;
	int num_sge;
} vb_recv_wr;

typedef struct { // struct ibv_wc
	uint64_t wr_id;
	int status;
	int opcode;
	uint32_t vendor_err;
	uint32_t byte_len;
	uint32_t imm_data; // big-endian
	uint32_t qp_num;
	uint32_t src_qp;
	unsigned int wc_flags;
	uint16_t pkey_index;
	uint16_t slid;
	uint8_t sl;
	uint8_t dlid_path_bits;
} vb_wc;

typedef struct { // struct ibv_context_ops: what the header's inline functions call
	void *compat0[7];
	vb_mw *(*alloc_mw)(vb_pd *, int type);
	void *bind_mw;
	int (*dealloc_mw)(vb_mw *);
	void *compat1;
	int (*poll_cq)(vb_cq *, int, vb_wc *);
	int (*req_notify_cq)(vb_cq *, int solicited_only);
	void *compat2[12];
	int (*post_send)(vb_qp *, vb_send_wr *, vb_send_wr **bad);
	int (*post_recv)(vb_qp *, vb_recv_wr *, vb_recv_wr **bad);
	void *compat3[5];
} vb_ops;

struct vb_context { // struct ibv_context, its beginning
	vb_device *device;
	vb_ops ops;
	int cmd_fd;
	int async_fd;
};

struct vb_pd { // struct ibv_pd
	vb_context *context;
	uint32_t handle;
};

struct vb_mr { // struct ibv_mr
	vb_context *context;
	vb_pd *pd;
	void *addr;
	size_t length;
	uint32_t handle;
	uint32_t lkey;
	uint32_t rkey;
};

struct vb_mw { // struct ibv_mw
	vb_context *context;
	vb_pd *pd;
	uint32_t rkey;
	uint32_t handle;
	int type;
};

typedef struct { // struct ibv_comp_channel
	vb_context *context;
	int fd;
	int refcnt;
} vb_comp_channel;

struct vb_cq { // struct ibv_cq, its beginning
	vb_context *context;
	vb_comp_channel *channel;
};

struct vb_qp { // struct ibv_qp, its beginning
	vb_context *context;
	void *qp_context;
	vb_pd *pd;
	vb_cq *send_cq;
	vb_cq *recv_cq;
	void *srq;
	uint32_t handle;
	uint32_t qp_num;
};

typedef struct { // struct ibv_qp_cap
	uint32_t max_send_wr;
	uint32_t max_recv_wr;
	uint32_t max_send_sge;
	uint32_t max_recv_sge;
	uint32_t max_inline_data;
} vb_qp_cap;

typedef struct { // struct ibv_qp_init_attr
	void *qp_context;
	vb_cq *send_cq;
	vb_cq *recv_cq;
	void *srq;
	vb_qp_cap cap;
	int qp_type;
	int sq_sig_all;
} vb_qp_init_attr;

typedef struct { // struct ibv_ah_attr
	uint64_t dgid[2];
	uint32_t flow_label;
	uint8_t sgid_index, hop_limit, traffic_class;
	uint16_t dlid;
	uint8_t sl, src_path_bits, static_rate, is_global, port_num;
} vb_ah_attr;

typedef struct { // struct ibv_qp_attr
	int qp_state;
	int cur_qp_state;
	int path_mtu;
	int path_mig_state;
	uint32_t qkey;
	uint32_t rq_psn;
	uint32_t sq_psn;
	uint32_t dest_qp_num;
	unsigned int qp_access_flags;
	vb_qp_cap cap;
	vb_ah_attr ah_attr;
	vb_ah_attr alt_ah_attr;
	uint16_t pkey_index;
	uint16_t alt_pkey_index;
	uint8_t en_sqd_async_notify;
	uint8_t sq_draining;
	uint8_t max_rd_atomic;
	uint8_t max_dest_rd_atomic;
	uint8_t min_rnr_timer;
	uint8_t port_num;
	uint8_t timeout;
	uint8_t retry_cnt;
	uint8_t rnr_retry;
	uint8_t alt_port_num;
	uint8_t alt_timeout;
	uint32_t rate_limit;
} vb_qp_attr;

typedef struct { // struct ibv_device_attr
	char fw_ver[64];
	uint64_t node_guid;
	uint64_t sys_image_guid;
	uint64_t max_mr_size;
	uint64_t page_size_cap;
	uint32_t vendor_id;
	uint32_t vendor_part_id;
	uint32_t hw_ver;
	int max_qp;
	int max_qp_wr;
	unsigned int device_cap_flags;
	int max_sge;
	int max_sge_rd;
	int max_cq;
	int max_cqe;
	int max_mr;
	int max_pd;
	int max_qp_rd_atom;
	int max_ee_rd_atom;
	int max_res_rd_atom;
	int max_qp_init_rd_atom;
	int unused[16];
	uint16_t max_pkeys;
	uint8_t local_ca_ack_delay;
	uint8_t phys_port_cnt;
} vb_device_attr;

typedef struct { // struct ibv_port_attr
	int state;
	int max_mtu;
	int active_mtu;
	int gid_tbl_len;
	uint32_t port_cap_flags;
	uint32_t max_msg_sz;
	uint8_t unused0[22];
	uint8_t link_layer;
	uint8_t unused1[9];
} vb_port_attr;

typedef struct { // struct ibv_gid_entry
	uint8_t gid[16]; // big-endian
	uint32_t gid_index;
	uint32_t port_num;
	uint32_t gid_type;
	uint32_t ndev_ifindex;
} vb_gid_entry;

typedef struct { // struct ibv_async_event
	union {
		vb_cq *cq;
		vb_qp *qp;
		int port_num;
	} element;
	int event_type;
} vb_async_event;

typedef struct { // struct rdma_event_channel
	int fd;
} vb_channel;

struct vb_id { // struct rdma_cm_id, its beginning
	vb_context *verbs;
	vb_channel *channel;
	void *context;
	vb_qp *qp;
	struct sockaddr_storage src;
	struct sockaddr_storage dst;
	uint64_t unused[7]; // InfiniBand addresses, path records
	int ps;
	uint8_t port_num;
};

typedef struct { // struct rdma_conn_param
	const void *private_data;
	uint8_t private_data_len;
	uint8_t responder_resources;
	uint8_t initiator_depth;
	uint8_t flow_control;
	uint8_t retry_count;
	uint8_t rnr_retry_count;
	uint8_t srq;
	uint32_t qp_num;
} vb_conn_param;

typedef struct { // struct rdma_cm_event, as far as connections use it
	vb_id *id;
	vb_id *listen_id;
	int event;
	int status;
	vb_conn_param conn;
} vb_cm_event;

// Numbers of the ABI that the shim uses.
enum {
	VB_QPS_INIT = 1, VB_QPS_RTR = 2, VB_QPS_RTS = 3, VB_QPS_ERR = 6,
	VB_QPT_RC = 2,
	VB_QP_STATE = 1 << 0, VB_QP_ACCESS_FLAGS = 1 << 3,
	VB_QP_TIMEOUT = 1 << 9, VB_QP_RETRY_CNT = 1 << 10, VB_QP_RNR_RETRY = 1 << 11,
	VB_QP_MAX_QP_RD_ATOMIC = 1 << 13, VB_QP_MIN_RNR_TIMER = 1 << 15,
	VB_QP_MAX_DEST_RD_ATOMIC = 1 << 17,
	VB_ACCESS_LOCAL_WRITE = 1, VB_ACCESS_REMOTE_WRITE = 2, VB_ACCESS_REMOTE_READ = 4,
	VB_ACCESS_MW_BIND = 16,
	VB_WR_WRITE = 0, VB_WR_WRITE_IMM = 1, VB_WR_SEND = 2, VB_WR_SEND_IMM = 3, VB_WR_READ = 4,
	VB_WR_LOCAL_INV = 7, VB_WR_BIND_MW = 8,
	VB_SEND_FENCE = 1, VB_SEND_SIGNALED = 2, VB_SEND_SOLICITED = 4, VB_SEND_INLINE = 8,
	VB_WC_RECV_IMM = 129, VB_WC_WITH_IMM = 2,
	VB_WC_SUCCESS = 0, VB_WC_LOC_LEN_ERR = 1, VB_WC_LOC_QP_OP_ERR = 2, VB_WC_FLUSH_ERR = 5,
	VB_WC_REM_INV_REQ_ERR = 9, VB_WC_REM_ACCESS_ERR = 10, VB_WC_REM_OP_ERR = 11, VB_WC_RETRY_EXC_ERR = 12,
	VB_WC_RNR_RETRY_EXC_ERR = 13,
	VB_EVENT_CQ_ERR = 0, VB_EVENT_QP_FATAL = 1, VB_EVENT_QP_REQ_ERR = 2, VB_EVENT_QP_ACCESS_ERR = 3,
	VB_EVENT_DEVICE_FATAL = 8, VB_EVENT_PORT_ERR = 10,
	VB_MW_TYPE_2 = 2, VB_DEVICE_MW_2A = 1 << 23, VB_DEVICE_MW_2B = 1 << 24,
	VB_PORT_ACTIVE = 4, VB_LINK_ETHERNET = 2,
	VB_PS_TCP = 0x0106,
	VB_CM_ADDR_RESOLVED = 0, VB_CM_ADDR_ERROR = 1, VB_CM_ROUTE_RESOLVED = 2,
	VB_CM_ROUTE_ERROR = 3, VB_CM_CONNECT_REQUEST = 4, VB_CM_CONNECT_RESPONSE = 5,
	VB_CM_CONNECT_ERROR = 6, VB_CM_UNREACHABLE = 7, VB_CM_REJECTED = 8, VB_CM_ESTABLISHED = 9,
	VB_CM_DISCONNECTED = 10, VB_CM_DEVICE_REMOVAL = 11, VB_CM_TIMEWAIT_EXIT = 15,
};

#endif
