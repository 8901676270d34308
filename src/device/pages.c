/*
 * The page kernel: copies pages of one size from and to the places that two index lists name, a page or a cut of one per block at a
 * time. Text that the driver compiles for the card at hand when a card is made ready (driver.c), so that neither building nor
 * installing weft needs anything of CUDA. Three times the same, for what the addresses and lengths are multiples of: a thread moves
 * 16, 4 or 1 bytes at a time.
 *
 * In C, for item = blockIdx.x; item < items; item += gridDim.x:
 *     page = item / cuts; at = item % cuts * cut_bytes; end = min(at + cut_bytes, page_bytes)
 *     from_page = from_index ? from_index[page] : first + page, likewise to_page
 *     for (at += threadIdx.x * W; at < end; at += blockDim.x * W)
 *             *(W *)(to + to_page * to_stride + at) = *(W *)(from + from_page * from_stride + at)
 * The lists begin at the first page of this launch. sm_50 and PTX 6.0 are the oldest that drivers of CUDA 11.2 and newer take.
 */
#include "device/cuda.h"

/* name; bytes per thread and turn; how one such is loaded and stored, and the registers for it */
#define PAGES(name, step, type, registers, declaration)                                                                \
	".visible .entry " name "(\n"                                                                                  \
	"  .param .u64 p_to, .param .u64 p_from, .param .u64 p_to_index, .param .u64 p_from_index,\n"                  \
	"  .param .u64 p_to_stride, .param .u64 p_from_stride, .param .u64 p_page_bytes, .param .u64 p_cut_bytes,\n"   \
	"  .param .u64 p_first, .param .u32 p_cuts, .param .u32 p_items)\n"                                            \
	"{\n"                                                                                                          \
	"  .reg .pred %p<4>;\n"                                                                                        \
	"  .reg .b32 %r<16>;\n"                                                                                        \
	"  .reg .b64 %d<32>;\n" declaration "  ld.param.u64 %d0, [p_to];\n"                                            \
	"  ld.param.u64 %d1, [p_from];\n"                                                                              \
	"  ld.param.u64 %d2, [p_to_index];\n"                                                                          \
	"  ld.param.u64 %d3, [p_from_index];\n"                                                                        \
	"  ld.param.u64 %d4, [p_to_stride];\n"                                                                         \
	"  ld.param.u64 %d5, [p_from_stride];\n"                                                                       \
	"  ld.param.u64 %d6, [p_page_bytes];\n"                                                                        \
	"  ld.param.u64 %d7, [p_cut_bytes];\n"                                                                         \
	"  ld.param.u64 %d8, [p_first];\n"                                                                             \
	"  ld.param.u32 %r0, [p_cuts];\n"                                                                              \
	"  ld.param.u32 %r1, [p_items];\n"                                                                             \
	"  cvta.to.global.u64 %d0, %d0;\n"                                                                             \
	"  cvta.to.global.u64 %d1, %d1;\n"                                                                             \
	"  mov.u32 %r2, %ctaid.x;\n"                                                                                   \
	"  mov.u32 %r3, %nctaid.x;\n"                                                                                  \
	"  mov.u32 %r4, %tid.x;\n"                                                                                     \
	"  mov.u32 %r5, %ntid.x;\n"                                                                                    \
	"  mul.wide.u32 %d9, %r4, " step ";\n"  /* where this thread begins in a cut */                                \
	"  mul.wide.u32 %d10, %r5, " step ";\n" /* and how far it steps */                                             \
	"ITEM:\n"                                                                                                      \
	"  setp.ge.u32 %p0, %r2, %r1;\n"                                                                               \
	"  @%p0 bra DONE;\n"                                                                                           \
	"  div.u32 %r6, %r2, %r0;\n" /* page */                                                                        \
	"  mul.lo.u32 %r7, %r6, %r0;\n"                                                                                \
	"  sub.u32 %r7, %r2, %r7;\n"                                                                                   \
	"  cvt.u64.u32 %d11, %r7;\n"                                                                                   \
	"  mul.lo.u64 %d11, %d11, %d7;\n" /* at */                                                                     \
	"  add.u64 %d12, %d11, %d7;\n"                                                                                 \
	"  min.u64 %d12, %d12, %d6;\n" /* end */                                                                       \
	"  add.u64 %d11, %d11, %d9;\n"                                                                                 \
	"  cvt.u64.u32 %d13, %r6;\n"                                                                                   \
	"  add.u64 %d14, %d13, %d8;\n" /* to_page, and from_page, without an index */                                  \
	"  mov.u64 %d15, %d14;\n"                                                                                      \
	"  shl.b64 %d13, %d13, 2;\n"                                                                                   \
	"  setp.eq.u64 %p1, %d2, 0;\n"                                                                                 \
	"  @%p1 bra TO_FOUND;\n"                                                                                       \
	"  cvta.to.global.u64 %d16, %d2;\n"                                                                            \
	"  add.u64 %d16, %d16, %d13;\n"                                                                                \
	"  ld.global.u32 %r8, [%d16];\n"                                                                               \
	"  cvt.u64.u32 %d14, %r8;\n"                                                                                   \
	"TO_FOUND:\n"                                                                                                  \
	"  setp.eq.u64 %p1, %d3, 0;\n"                                                                                 \
	"  @%p1 bra FROM_FOUND;\n"                                                                                     \
	"  cvta.to.global.u64 %d16, %d3;\n"                                                                            \
	"  add.u64 %d16, %d16, %d13;\n"                                                                                \
	"  ld.global.u32 %r8, [%d16];\n"                                                                               \
	"  cvt.u64.u32 %d15, %r8;\n"                                                                                   \
	"FROM_FOUND:\n"                                                                                                \
	"  mad.lo.u64 %d17, %d14, %d4, %d0;\n"                                                                         \
	"  mad.lo.u64 %d18, %d15, %d5, %d1;\n"                                                                         \
	"BYTES:\n"                                                                                                     \
	"  setp.ge.u64 %p2, %d11, %d12;\n"                                                                             \
	"  @%p2 bra NEXT;\n"                                                                                           \
	"  add.u64 %d19, %d18, %d11;\n"                                                                                \
	"  add.u64 %d20, %d17, %d11;\n"                                                                                \
	"  ld.global." type " " registers ", [%d19];\n"                                                                \
	"  st.global." type " [%d20], " registers ";\n"                                                                \
	"  add.u64 %d11, %d11, %d10;\n"                                                                                \
	"  bra BYTES;\n"                                                                                               \
	"NEXT:\n"                                                                                                      \
	"  add.u32 %r2, %r2, %r3;\n"                                                                                   \
	"  bra ITEM;\n"                                                                                                \
	"DONE:\n"                                                                                                      \
	"  ret;\n"                                                                                                     \
	"}\n"

/* clang-format off */
const char wf_pages_ptx[] =
    ".version 6.0\n"
    ".target sm_50\n"
    ".address_size 64\n"
    PAGES("weft_pages_16", "16", "v4.u32", "{%v0, %v1, %v2, %v3}", "  .reg .b32 %v<4>;\n")
    PAGES("weft_pages_4", "4", "u32", "%v0", "  .reg .b32 %v<1>;\n")
    PAGES("weft_pages_1", "1", "u8", "%v0", "  .reg .b16 %v<1>;\n");
/* clang-format on */
