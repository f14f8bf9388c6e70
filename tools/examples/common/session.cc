// SPDX-License-Identifier: Apache-2.0
// Session with libckpt (gpu.h); session_plain.cc implements Session without libckpt.
#include "tools/examples/common/gpu.h"

namespace ckpt::examples {

void check(ckpt_status status, const char* what) {
  if (status != CKPT_OK) fail(std::string(what) + " failed: " + ckpt_last_error());
}

Session::Session(bool with_ckpt) {
  if (!with_ckpt) return;
  ckpt_role role{};
  check(ckpt_init(nullptr, &session_, &role), "ckpt_init");
}

Session::~Session() {
  if (session_ != nullptr) ckpt_shutdown(session_);
}

CUdeviceptr Session::alloc(std::size_t bytes) {
  if (session_ == nullptr) {
    CUdeviceptr plain = 0;
    check(cuMemAlloc(&plain, bytes), "cuMemAlloc");
    return plain;
  }
  ckpt_devptr pointer = 0;
  check(ckpt_alloc(session_, bytes, &pointer), "ckpt_alloc");
  return pointer;
}

void Session::tensor(const char* name, CUdeviceptr pointer, ckpt_dtype dtype,
                     std::vector<std::uint64_t> shape, ckpt_kind kind) {
  if (session_ == nullptr) return;
  std::size_t bytes = dtype == CKPT_F32 || dtype == CKPT_U32 ? 4 : 1;
  for (const std::uint64_t extent : shape) bytes *= extent;
  check(ckpt_tensor(session_, name, pointer, bytes, dtype, static_cast<std::uint32_t>(shape.size()),
                    shape.data(), kind),
        name);
}

void Session::host_state(const char* name, void* pointer, std::size_t bytes) {
  if (session_ == nullptr) return;
  check(ckpt_host_state(session_, name, pointer, bytes), name);
}

bool Session::ready() {
  if (session_ == nullptr) return false;
  ckpt_start start{};
  check(ckpt_ready(session_, &start), "ckpt_ready");
  return start == CKPT_RESUMED;
}

void Session::barrier() {
  if (session_ == nullptr) return;
  check(ckpt_barrier(session_), "ckpt_barrier");
}

void Session::shutdown() {
  if (session_ == nullptr) return;
  check(ckpt_shutdown(session_), "ckpt_shutdown");
  session_ = nullptr;
}

}  // namespace ckpt::examples
