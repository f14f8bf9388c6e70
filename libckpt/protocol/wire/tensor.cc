// SPDX-License-Identifier: Apache-2.0
#include "libckpt/protocol/wire/tensor.h"

#include <array>
#include <cctype>

#include <ckpt/ckpt.h>

namespace ckpt::wire {
namespace {

struct Dtype {
  ckpt_dtype value;
  const char* name;
  std::uint64_t bytes;
};
constexpr std::array<Dtype, 15> kDtypes{{{CKPT_U8, "u8", 1},
                                         {CKPT_I8, "i8", 1},
                                         {CKPT_U16, "u16", 2},
                                         {CKPT_I16, "i16", 2},
                                         {CKPT_U32, "u32", 4},
                                         {CKPT_I32, "i32", 4},
                                         {CKPT_U64, "u64", 8},
                                         {CKPT_I64, "i64", 8},
                                         {CKPT_F16, "f16", 2},
                                         {CKPT_BF16, "bf16", 2},
                                         {CKPT_F32, "f32", 4},
                                         {CKPT_F64, "f64", 8},
                                         {CKPT_F8E4M3, "f8e4m3", 1},
                                         {CKPT_F8E5M2, "f8e5m2", 1},
                                         {CKPT_BOOL, "bool", 1}}};

const Dtype* find_dtype(std::uint32_t value) {
  for (const Dtype& dtype : kDtypes)
    if (static_cast<std::uint32_t>(dtype.value) == value) return &dtype;
  return nullptr;
}

bool is_printable(const std::string& name) {
  for (const char c : name)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) return false;
  return true;
}

Error refuse(const TensorInfo& tensor, const char* what) {
  return {ErrorCode::kProtocol,
          "Tensor \"" + (is_printable(tensor.name) ? tensor.name : "?") + "\": " + what};
}

}  // namespace

Result<void> check_tensor(const TensorInfo& tensor) {
  if (tensor.name.empty() || tensor.name.size() > kMaxTensorNameBytes || !is_printable(tensor.name))
    return refuse(tensor, "the name is empty, too long or not printable");
  const Dtype* dtype = find_dtype(tensor.dtype);
  if (dtype == nullptr) return refuse(tensor, "unknown dtype");
  if (tensor.kind < CKPT_PARAMETER || tensor.kind > CKPT_SCRATCH) return refuse(tensor, "unknown kind");
  if (tensor.shape.size() > kMaxTensorDims) return refuse(tensor, "too many dimensions");
  std::uint64_t bytes = dtype->bytes;
  for (const std::uint64_t dim : tensor.shape)
    if (__builtin_mul_overflow(bytes, dim, &bytes)) return refuse(tensor, "the shape overflows");
  if (bytes != tensor.bytes || bytes == 0) return refuse(tensor, "shape and size do not agree");
  std::uint64_t end = 0;
  if (__builtin_add_overflow(tensor.offset, tensor.bytes, &end))
    return refuse(tensor, "offset and size overflow");
  return ok();
}

std::string describe_tensor(const TensorInfo& tensor) {
  const Dtype* dtype = find_dtype(tensor.dtype);
  std::string text = dtype != nullptr ? dtype->name : "?";
  text += '[';
  for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
    if (i > 0) text += ',';
    text += std::to_string(tensor.shape[i]);
  }
  return text + ']';
}

}  // namespace ckpt::wire
