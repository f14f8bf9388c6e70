// SPDX-License-Identifier: Apache-2.0
#define ZSTD_STATIC_LINKING_ONLY  // declares the functions for contexts in the caller's memory, and for bare \
                                  // frames
#include "libckpt/datapath/codec/plane_packer.h"

#include <zstd.h>

#include <algorithm>
#include <bit>
#include <new>
#include <string>
#include <utility>

namespace ckpt::codec {
namespace {

struct FreeParameters {
  void operator()(ZSTD_CCtx_params* parameters) const { ZSTD_freeCCtxParams(parameters); }
};
using Parameters = std::unique_ptr<ZSTD_CCtx_params, FreeParameters>;

struct Setting {
  ZSTD_cParameter parameter;
  int value;
};
// The step of zstd after a failed search, which is beyond the end of every block.
constexpr int kNeverSearch = 1 << 17;
constexpr Setting kHuffman[] = {
    {ZSTD_c_compressionLevel, -100},
    {ZSTD_c_targetLength, kNeverSearch},
    {ZSTD_c_hashLog, 6},
    {ZSTD_c_chainLog, 6},
    {ZSTD_c_minMatch, 7},
    {ZSTD_c_literalCompressionMode, ZSTD_ps_enable},
    {ZSTD_c_contentSizeFlag, 0},
    {ZSTD_c_checksumFlag, 0},
    {ZSTD_c_format, ZSTD_f_zstd1_magicless},
};
constexpr Setting kMatch[] = {
    {ZSTD_c_compressionLevel, 1},
    {ZSTD_c_hashLog, 12},
    {ZSTD_c_contentSizeFlag, 0},
    {ZSTD_c_checksumFlag, 0},
    {ZSTD_c_format, ZSTD_f_zstd1_magicless},
};

Error refused(std::string_view what, std::size_t code) {
  return Error(ErrorCode::kInternal,
               "zstd refused " + std::string(what) + ": " + std::string(ZSTD_getErrorName(code)));
}

// Creates a context in its own memory, large enough for planes of `limit` bytes.
Result<ZSTD_CCtx*> make_context(std::span<const Setting> settings, std::size_t limit,
                                std::unique_ptr<std::byte[]>& memory) {
  const Parameters parameters(ZSTD_createCCtxParams());
  if (!parameters) return Error(ErrorCode::kOutOfMemory, "There is no memory for zstd's parameters");
  const auto set_all = [&](auto&& set) -> Result<void> {
    for (const Setting& setting : settings) {
      const std::size_t code = set(setting.parameter, setting.value);
      if (ZSTD_isError(code) != 0) return refused("a parameter", code);
    }
    const int window = std::clamp(static_cast<int>(std::bit_width(limit)), ZSTD_WINDOWLOG_MIN, 20);
    const std::size_t code = set(ZSTD_c_windowLog, window);
    if (ZSTD_isError(code) != 0) return refused("the window", code);
    return ok();
  };
  CKPT_TRYV(set_all([&](ZSTD_cParameter parameter, int value) {
    return ZSTD_CCtxParams_setParameter(parameters.get(), parameter, value);
  }));
  const std::size_t bytes = ZSTD_estimateCCtxSize_usingCCtxParams(parameters.get());
  if (ZSTD_isError(bytes) != 0) return refused("to report a context's size", bytes);
  memory.reset(new (std::nothrow) std::byte[bytes]);
  if (!memory) return Error(ErrorCode::kOutOfMemory, "There is no memory for a codec's zstd context");
  ZSTD_CCtx* context = ZSTD_initStaticCCtx(memory.get(), bytes);
  if (context == nullptr) return Error(ErrorCode::kInternal, "zstd refused the memory for a context");
  CKPT_TRYV(set_all([&](ZSTD_cParameter parameter, int value) {
    return ZSTD_CCtx_setParameter(context, parameter, value);
  }));
  return context;
}

}  // namespace

Result<PlanePacker> PlanePacker::create(std::size_t max_plane_bytes) {
  PlanePacker packer;
  CKPT_TRY(huffman, make_context(kHuffman, max_plane_bytes, packer.huffman_memory_));
  CKPT_TRY(match, make_context(kMatch, max_plane_bytes, packer.match_memory_));
  packer.huffman_ = huffman;
  packer.match_ = match;
  const std::size_t bytes = ZSTD_estimateDCtxSize();
  packer.unpack_memory_.reset(new (std::nothrow) std::byte[bytes]);
  if (!packer.unpack_memory_)
    return Error(ErrorCode::kOutOfMemory, "There is no memory for a codec's zstd context");
  packer.unpack_ = ZSTD_initStaticDCtx(packer.unpack_memory_.get(), bytes);
  if (packer.unpack_ == nullptr) return Error(ErrorCode::kInternal, "zstd refused the memory for a context");
  const std::size_t code = ZSTD_DCtx_setParameter(packer.unpack_, ZSTD_d_format, ZSTD_f_zstd1_magicless);
  if (ZSTD_isError(code) != 0) return refused("the frame format", code);
  return packer;
}

std::optional<std::size_t> PlanePacker::pack(std::span<const std::byte> plane, bool nearly_constant,
                                             std::span<std::byte> out) noexcept {
  const std::size_t size =
      ZSTD_compress2(nearly_constant ? match_ : huffman_, out.data(), out.size(), plane.data(), plane.size());
  if (ZSTD_isError(size) != 0) return std::nullopt;
  return size;
}

bool PlanePacker::unpack(std::span<const std::byte> packed, std::span<std::byte> plane) noexcept {
  return ZSTD_decompressDCtx(unpack_, plane.data(), plane.size(), packed.data(), packed.size()) ==
         plane.size();
}

}  // namespace ckpt::codec
