#include "textflag.h"

// func fold(crc uint32, p *byte, n int, k *foldBy) uint32
//
// Z0..Z3 hold the last 256 bytes, folded: 16 polynomials of 128 bits. K1 of a constant multiplies
// the low half of a polynomial, which comes first in memory, K2 the high half.
TEXT ·fold(SB), NOSPLIT, $0-36
	MOVL  crc+0(FP), AX
	MOVQ  p+8(FP), SI
	MOVQ  n+16(FP), CX
	MOVQ  k+24(FP), DI
	VMOVD AX, X4
	VMOVDQU64 (SI), Z0
	VMOVDQU64 64(SI), Z1
	VMOVDQU64 128(SI), Z2
	VMOVDQU64 192(SI), Z3
	VPXORQ Z4, Z0, Z0
	VBROADCASTI32X4 (DI), Z5
	ADDQ $256, SI
	SUBQ $256, CX
	CMPQ CX, $256
	JLT  join

wide:
	VPCLMULQDQ $0x00, Z5, Z0, Z6
	VPCLMULQDQ $0x00, Z5, Z1, Z7
	VPCLMULQDQ $0x00, Z5, Z2, Z8
	VPCLMULQDQ $0x00, Z5, Z3, Z9
	VPCLMULQDQ $0x11, Z5, Z0, Z0
	VPCLMULQDQ $0x11, Z5, Z1, Z1
	VPCLMULQDQ $0x11, Z5, Z2, Z2
	VPCLMULQDQ $0x11, Z5, Z3, Z3
	VPTERNLOGQ $0x96, (SI), Z6, Z0
	VPTERNLOGQ $0x96, 64(SI), Z7, Z1
	VPTERNLOGQ $0x96, 128(SI), Z8, Z2
	VPTERNLOGQ $0x96, 192(SI), Z9, Z3
	ADDQ $256, SI
	SUBQ $256, CX
	CMPQ CX, $256
	JGE  wide

join: // the four registers into the last of them
	VBROADCASTI32X4 16(DI), Z5
	VPCLMULQDQ $0x00, Z5, Z0, Z6
	VPCLMULQDQ $0x11, Z5, Z0, Z0
	VPTERNLOGQ $0x96, Z6, Z0, Z1
	VPCLMULQDQ $0x00, Z5, Z1, Z6
	VPCLMULQDQ $0x11, Z5, Z1, Z1
	VPTERNLOGQ $0x96, Z6, Z1, Z2
	VPCLMULQDQ $0x00, Z5, Z2, Z6
	VPCLMULQDQ $0x11, Z5, Z2, Z2
	VPTERNLOGQ $0x96, Z6, Z2, Z3
	CMPQ CX, $64
	JLT  lanes

narrow:
	VPCLMULQDQ $0x00, Z5, Z3, Z6
	VPCLMULQDQ $0x11, Z5, Z3, Z3
	VPTERNLOGQ $0x96, (SI), Z6, Z3
	ADDQ $64, SI
	SUBQ $64, CX
	CMPQ CX, $64
	JGE  narrow

lanes: // the four polynomials of the register into the last of them; its own constant is zero
	VMOVDQU64 32(DI), Z5
	VPCLMULQDQ $0x00, Z5, Z3, Z6
	VPCLMULQDQ $0x11, Z5, Z3, Z7
	VPXORQ Z6, Z7, Z7
	VEXTRACTI32X4 $3, Z3, X0
	VEXTRACTI64X4 $1, Z7, Y1
	VPXOR Y1, Y7, Y7
	VEXTRACTI128 $1, Y7, X1
	VPXOR X1, X7, X7
	VPXOR X7, X0, X0

	// What remains has the sum of all that was read.
	VMOVQ  X0, AX
	VPEXTRQ $1, X0, BX
	XORL   DX, DX
	CRC32Q AX, DX
	CRC32Q BX, DX
	VZEROUPPER
	MOVL DX, ret+32(FP)
	RET
