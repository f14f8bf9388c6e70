// SPDX-License-Identifier: Apache-2.0
#include "libckpt/datapath/track/device_list.h"

#include <utility>

namespace ckpt::track {

Result<DeviceList> DeviceList::create(const Device& device, std::size_t bytes) {
  const DriverApi& api = device.api();
  ContextScope scope(device);
  DeviceList list(device);
  CKPT_CUDA_TRY(api, cuMemHostAlloc(&list.host_, bytes, CU_MEMHOSTALLOC_PORTABLE));
  CKPT_CUDA_TRY(api, cuMemAlloc_v2(&list.device_address_, bytes));
  CKPT_CUDA_TRY(api, cuEventCreate(&list.done_, CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC));
  return list;
}

DeviceList::DeviceList(DeviceList&& other) noexcept
    : device_(other.device_),
      host_(std::exchange(other.host_, nullptr)),
      device_address_(std::exchange(other.device_address_, 0)),
      done_(std::exchange(other.done_, nullptr)),
      busy_(std::exchange(other.busy_, false)) {}

DeviceList::~DeviceList() {
  if (host_ == nullptr && device_address_ == 0 && done_ == nullptr) return;
  const DriverApi& api = device_->api();
  ContextScope scope(*device_);
  if (busy_) api.cuEventSynchronize(done_);
  if (done_ != nullptr) api.cuEventDestroy_v2(done_);
  if (device_address_ != 0) api.cuMemFree_v2(device_address_);
  if (host_ != nullptr) api.cuMemFreeHost(host_);
}

Result<void> DeviceList::upload(CUstream stream, std::size_t offset, std::size_t bytes) {
  const DriverApi& api = device_->api();
  CKPT_CUDA_TRY(api, cuMemcpyHtoDAsync_v2(device_address_ + offset, host() + offset, bytes, stream));
  return ok();
}

Result<void> DeviceList::download(CUstream stream, std::size_t offset, std::size_t bytes) {
  const DriverApi& api = device_->api();
  CKPT_CUDA_TRY(api, cuMemcpyDtoHAsync_v2(host() + offset, device_address_ + offset, bytes, stream));
  return ok();
}

Result<void> DeviceList::mark(CUstream stream) {
  const DriverApi& api = device_->api();
  CKPT_CUDA_TRY(api, cuEventRecord(done_, stream));
  busy_ = true;
  return ok();
}

Result<void> DeviceList::stream_wait(CUstream stream) const {
  CKPT_CUDA_TRY(device_->api(), cuStreamWaitEvent(stream, done_, 0));
  return ok();
}

Result<bool> DeviceList::ready() {
  if (!busy_) return true;
  const DriverApi& api = device_->api();
  ContextScope scope(*device_);
  const CUresult result = api.cuEventQuery(done_);
  if (result == CUDA_ERROR_NOT_READY) return false;
  if (result != CUDA_SUCCESS) return cuda_error(api, result, "Cannot wait for a chunk list");
  busy_ = false;
  return true;
}

Result<void> DeviceList::wait() {
  if (!busy_) return ok();
  const DriverApi& api = device_->api();
  ContextScope scope(*device_);
  CKPT_CUDA_TRY(api, cuEventSynchronize(done_));
  busy_ = false;
  return ok();
}

}  // namespace ckpt::track
