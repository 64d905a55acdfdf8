//go:build cgo && linux && (amd64 || arm64)

// Compares abi.h with the real headers, where they are installed. It holds no code.

#if defined(__has_include)
#if __has_include(<infiniband/verbs.h>) && __has_include(<rdma/rdma_cma.h>)

#include "abi.h"
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#define SAME(a, b) _Static_assert((a) == (b), #a " differs from " #b)
#define SIZE(ours, real) SAME(sizeof(ours), sizeof(struct real))
#define FITS(ours, real) _Static_assert(sizeof(ours) <= sizeof(struct real), #ours)
#define AT(ours, f, real, g) SAME(offsetof(ours, f), offsetof(struct real, g))

SIZE(vb_sge, ibv_sge);
AT(vb_sge, length, ibv_sge, length);
AT(vb_sge, lkey, ibv_sge, lkey);

SIZE(vb_send_wr, ibv_send_wr);
AT(vb_send_wr, next, ibv_send_wr, next);
AT(vb_send_wr, sg_list, ibv_send_wr, sg_list);
AT(vb_send_wr, num_sge, ibv_send_wr, num_sge);
AT(vb_send_wr, opcode, ibv_send_wr, opcode);
AT(vb_send_wr, send_flags, ibv_send_wr, send_flags);
AT(vb_send_wr, imm_data, ibv_send_wr, imm_data);
AT(vb_send_wr, imm_data, ibv_send_wr, invalidate_rkey);
AT(vb_send_wr, remote_addr, ibv_send_wr, wr.rdma.remote_addr);
AT(vb_send_wr, rkey, ibv_send_wr, wr.rdma.rkey);
AT(vb_send_wr, mw, ibv_send_wr, bind_mw.mw);
AT(vb_send_wr, mw_rkey, ibv_send_wr, bind_mw.rkey);
AT(vb_send_wr, bind_mr, ibv_send_wr, bind_mw.bind_info.mr);
AT(vb_send_wr, bind_addr, ibv_send_wr, bind_mw.bind_info.addr);
AT(vb_send_wr, bind_length, ibv_send_wr, bind_mw.bind_info.length);
AT(vb_send_wr, bind_access, ibv_send_wr, bind_mw.bind_info.mw_access_flags);

SIZE(vb_recv_wr, ibv_recv_wr);
AT(vb_recv_wr, num_sge, ibv_recv_wr, num_sge);

SIZE(vb_wc, ibv_wc);
AT(vb_wc, status, ibv_wc, status);
AT(vb_wc, opcode, ibv_wc, opcode);
AT(vb_wc, byte_len, ibv_wc, byte_len);
AT(vb_wc, imm_data, ibv_wc, imm_data);
AT(vb_wc, qp_num, ibv_wc, qp_num);
AT(vb_wc, wc_flags, ibv_wc, wc_flags);

SIZE(vb_ops, ibv_context_ops);
AT(vb_ops, alloc_mw, ibv_context_ops, alloc_mw);
AT(vb_ops, dealloc_mw, ibv_context_ops, dealloc_mw);
AT(vb_ops, poll_cq, ibv_context_ops, poll_cq);
AT(vb_ops, req_notify_cq, ibv_context_ops, req_notify_cq);
AT(vb_ops, post_send, ibv_context_ops, post_send);
AT(vb_ops, post_recv, ibv_context_ops, post_recv);

FITS(struct vb_context, ibv_context);
AT(struct vb_context, ops, ibv_context, ops);
AT(struct vb_context, async_fd, ibv_context, async_fd);
SIZE(struct vb_pd, ibv_pd);
SIZE(struct vb_mr, ibv_mr);
AT(struct vb_mr, lkey, ibv_mr, lkey);
AT(struct vb_mr, rkey, ibv_mr, rkey);
SIZE(struct vb_mw, ibv_mw);
AT(struct vb_mw, rkey, ibv_mw, rkey);
SIZE(vb_comp_channel, ibv_comp_channel);
AT(vb_comp_channel, fd, ibv_comp_channel, fd);
FITS(struct vb_cq, ibv_cq);
AT(struct vb_cq, context, ibv_cq, context);
FITS(struct vb_qp, ibv_qp);
AT(struct vb_qp, context, ibv_qp, context);
AT(struct vb_qp, qp_num, ibv_qp, qp_num);

SIZE(vb_qp_init_attr, ibv_qp_init_attr);
AT(vb_qp_init_attr, cap, ibv_qp_init_attr, cap);
AT(vb_qp_init_attr, qp_type, ibv_qp_init_attr, qp_type);
SIZE(vb_ah_attr, ibv_ah_attr);
AT(vb_ah_attr, port_num, ibv_ah_attr, port_num);
SIZE(vb_qp_attr, ibv_qp_attr);
AT(vb_qp_attr, qp_access_flags, ibv_qp_attr, qp_access_flags);
AT(vb_qp_attr, max_rd_atomic, ibv_qp_attr, max_rd_atomic);
AT(vb_qp_attr, max_dest_rd_atomic, ibv_qp_attr, max_dest_rd_atomic);
AT(vb_qp_attr, min_rnr_timer, ibv_qp_attr, min_rnr_timer);
AT(vb_qp_attr, timeout, ibv_qp_attr, timeout);
AT(vb_qp_attr, retry_cnt, ibv_qp_attr, retry_cnt);
AT(vb_qp_attr, rnr_retry, ibv_qp_attr, rnr_retry);

SIZE(vb_device_attr, ibv_device_attr);
AT(vb_device_attr, device_cap_flags, ibv_device_attr, device_cap_flags);
AT(vb_device_attr, max_cqe, ibv_device_attr, max_cqe);
AT(vb_device_attr, max_qp_rd_atom, ibv_device_attr, max_qp_rd_atom);
AT(vb_device_attr, max_qp_init_rd_atom, ibv_device_attr, max_qp_init_rd_atom);
AT(vb_device_attr, phys_port_cnt, ibv_device_attr, phys_port_cnt);
_Static_assert(sizeof(vb_port_attr) >= sizeof(struct ibv_port_attr), "port attributes");
AT(vb_port_attr, active_mtu, ibv_port_attr, active_mtu);
AT(vb_port_attr, gid_tbl_len, ibv_port_attr, gid_tbl_len);
AT(vb_port_attr, max_msg_sz, ibv_port_attr, max_msg_sz);
AT(vb_port_attr, link_layer, ibv_port_attr, link_layer);
SIZE(vb_gid_entry, ibv_gid_entry);
AT(vb_gid_entry, port_num, ibv_gid_entry, port_num);
AT(vb_gid_entry, ndev_ifindex, ibv_gid_entry, ndev_ifindex);
SIZE(vb_async_event, ibv_async_event);
AT(vb_async_event, event_type, ibv_async_event, event_type);

SIZE(vb_channel, rdma_event_channel);
FITS(struct vb_id, rdma_cm_id);
AT(struct vb_id, verbs, rdma_cm_id, verbs);
AT(struct vb_id, src, rdma_cm_id, route.addr.src_storage);
AT(struct vb_id, dst, rdma_cm_id, route.addr.dst_storage);
AT(struct vb_id, port_num, rdma_cm_id, port_num);
SIZE(vb_conn_param, rdma_conn_param);
AT(vb_conn_param, responder_resources, rdma_conn_param, responder_resources);
AT(vb_conn_param, qp_num, rdma_conn_param, qp_num);
FITS(vb_cm_event, rdma_cm_event);
AT(vb_cm_event, event, rdma_cm_event, event);
AT(vb_cm_event, status, rdma_cm_event, status);
AT(vb_cm_event, conn, rdma_cm_event, param.conn);

#define NUM(a, b) SAME((int)(a), (int)(b))
NUM(VB_QPS_INIT, IBV_QPS_INIT);
NUM(VB_QPS_RTR, IBV_QPS_RTR);
NUM(VB_QPS_RTS, IBV_QPS_RTS);
NUM(VB_QPS_ERR, IBV_QPS_ERR);
NUM(VB_QPT_RC, IBV_QPT_RC);
NUM(VB_QP_STATE, IBV_QP_STATE);
NUM(VB_QP_ACCESS_FLAGS, IBV_QP_ACCESS_FLAGS);
NUM(VB_QP_TIMEOUT, IBV_QP_TIMEOUT);
NUM(VB_QP_RETRY_CNT, IBV_QP_RETRY_CNT);
NUM(VB_QP_RNR_RETRY, IBV_QP_RNR_RETRY);
NUM(VB_QP_MAX_QP_RD_ATOMIC, IBV_QP_MAX_QP_RD_ATOMIC);
NUM(VB_QP_MIN_RNR_TIMER, IBV_QP_MIN_RNR_TIMER);
NUM(VB_QP_MAX_DEST_RD_ATOMIC, IBV_QP_MAX_DEST_RD_ATOMIC);
NUM(VB_ACCESS_LOCAL_WRITE, IBV_ACCESS_LOCAL_WRITE);
NUM(VB_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_WRITE);
NUM(VB_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_READ);
NUM(VB_ACCESS_MW_BIND, IBV_ACCESS_MW_BIND);
NUM(VB_WR_WRITE, IBV_WR_RDMA_WRITE);
NUM(VB_WR_WRITE_IMM, IBV_WR_RDMA_WRITE_WITH_IMM);
NUM(VB_WR_SEND, IBV_WR_SEND);
NUM(VB_WR_SEND_IMM, IBV_WR_SEND_WITH_IMM);
NUM(VB_WR_READ, IBV_WR_RDMA_READ);
NUM(VB_WR_LOCAL_INV, IBV_WR_LOCAL_INV);
NUM(VB_WR_BIND_MW, IBV_WR_BIND_MW);
NUM(VB_SEND_FENCE, IBV_SEND_FENCE);
NUM(VB_SEND_SIGNALED, IBV_SEND_SIGNALED);
NUM(VB_SEND_SOLICITED, IBV_SEND_SOLICITED);
NUM(VB_SEND_INLINE, IBV_SEND_INLINE);
NUM(VB_WC_RECV_IMM, IBV_WC_RECV_RDMA_WITH_IMM);
NUM(VB_WC_WITH_IMM, IBV_WC_WITH_IMM);
NUM(VB_WC_LOC_LEN_ERR, IBV_WC_LOC_LEN_ERR);
NUM(VB_WC_LOC_QP_OP_ERR, IBV_WC_LOC_QP_OP_ERR);
NUM(VB_WC_FLUSH_ERR, IBV_WC_WR_FLUSH_ERR);
NUM(VB_WC_REM_INV_REQ_ERR, IBV_WC_REM_INV_REQ_ERR);
NUM(VB_WC_REM_ACCESS_ERR, IBV_WC_REM_ACCESS_ERR);
NUM(VB_WC_REM_OP_ERR, IBV_WC_REM_OP_ERR);
NUM(VB_WC_RETRY_EXC_ERR, IBV_WC_RETRY_EXC_ERR);
NUM(VB_WC_RNR_RETRY_EXC_ERR, IBV_WC_RNR_RETRY_EXC_ERR);
NUM(VB_EVENT_CQ_ERR, IBV_EVENT_CQ_ERR);
NUM(VB_EVENT_QP_FATAL, IBV_EVENT_QP_FATAL);
NUM(VB_EVENT_QP_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
NUM(VB_EVENT_QP_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
NUM(VB_EVENT_DEVICE_FATAL, IBV_EVENT_DEVICE_FATAL);
NUM(VB_EVENT_PORT_ERR, IBV_EVENT_PORT_ERR);
NUM(VB_MW_TYPE_2, IBV_MW_TYPE_2);
NUM(VB_DEVICE_MW_2A, IBV_DEVICE_MEM_WINDOW_TYPE_2A);
NUM(VB_DEVICE_MW_2B, IBV_DEVICE_MEM_WINDOW_TYPE_2B);
NUM(VB_PORT_ACTIVE, IBV_PORT_ACTIVE);
NUM(VB_LINK_ETHERNET, IBV_LINK_LAYER_ETHERNET);
NUM(VB_PS_TCP, RDMA_PS_TCP);
NUM(VB_CM_CONNECT_REQUEST, RDMA_CM_EVENT_CONNECT_REQUEST);
NUM(VB_CM_CONNECT_RESPONSE, RDMA_CM_EVENT_CONNECT_RESPONSE);
NUM(VB_CM_REJECTED, RDMA_CM_EVENT_REJECTED);
NUM(VB_CM_ESTABLISHED, RDMA_CM_EVENT_ESTABLISHED);
NUM(VB_CM_DEVICE_REMOVAL, RDMA_CM_EVENT_DEVICE_REMOVAL);
NUM(VB_CM_TIMEWAIT_EXIT, RDMA_CM_EVENT_TIMEWAIT_EXIT);

#endif
#endif
