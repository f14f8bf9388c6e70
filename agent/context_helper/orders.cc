// SPDX-License-Identifier: Apache-2.0
#include "agent/context_helper/orders.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "libckpt/base/clock.h"

namespace ckpt::context_helper {
namespace {

CUresult restore(const DriverApi& api, const context::Order& order) {
  std::vector<CUcheckpointGpuPair> pairs(order.pairs.size());
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    std::memcpy(pairs[i].oldUuid.bytes, order.pairs[i].from.data(), sizeof pairs[i].oldUuid.bytes);
    std::memcpy(pairs[i].newUuid.bytes, order.pairs[i].to.data(), sizeof pairs[i].newUuid.bytes);
  }
  CUcheckpointRestoreArgs arguments{};
  arguments.gpuPairs = pairs.data();
  arguments.gpuPairsCount = static_cast<unsigned>(pairs.size());
  // The arguments are null if no GPU changes, because drivers older than 580 refuse unknown arguments.
  return api.cuCheckpointProcessRestore(order.pid, pairs.empty() ? nullptr : &arguments);
}

CUresult call(const DriverApi& api, const context::Order& order, std::int32_t& value) {
  switch (order.kind) {
    case context::Kind::kState: {
      CUprocessState state = CU_PROCESS_STATE_RUNNING;
      const CUresult result = api.cuCheckpointProcessGetState(order.pid, &state);
      value = static_cast<std::int32_t>(state);
      return result;
    }
    case context::Kind::kLock: {
      CUcheckpointLockArgs arguments{};
      arguments.timeoutMs = order.timeout_ms;
      return api.cuCheckpointProcessLock(order.pid, &arguments);
    }
    case context::Kind::kCheckpoint:
      return api.cuCheckpointProcessCheckpoint(order.pid, nullptr);
    case context::Kind::kRestore:
      return restore(api, order);
    case context::Kind::kUnlock:
      return api.cuCheckpointProcessUnlock(order.pid, nullptr);
    case context::Kind::kRestoreThread:
      return api.cuCheckpointProcessGetRestoreThreadId(order.pid, &value);
    case context::Kind::kReady:
      break;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

std::string first_device_name(const DriverApi& api, int devices) {
  std::array<char, 256> name{};
  CUdevice device = 0;
  const bool named =
      devices > 0 && api.cuDeviceGet(&device, 0) == CUDA_SUCCESS &&
      api.cuDeviceGetName(name.data(), static_cast<int>(name.size()) - 1, device) == CUDA_SUCCESS;
  return named ? name.data() : "";
}

// Returns the error code for a result of these driver functions, where its meaning differs from the general
// mapping (cuda.h).
ErrorCode code_of(const context::Order& order, CUresult result, const Error& error) {
  if (result == CUDA_ERROR_NOT_READY) return ErrorCode::kTimedOut;
  if (result == CUDA_ERROR_ILLEGAL_STATE) return ErrorCode::kRefused;
  // this result means that the process does not use CUDA
  if (result == CUDA_ERROR_NOT_INITIALIZED) return ErrorCode::kNotFound;
  if (result == CUDA_ERROR_INVALID_VALUE && order.kind == context::Kind::kState) return ErrorCode::kNotFound;
  return error.code();
}

Error error_of(const DriverApi& api, const context::Order& order, CUresult result) {
  const std::string what = std::string("The driver's ") + context::name_of(order.kind) + " of process " +
                           std::to_string(order.pid);
  const Error error = cuda_error(api, result, what);
  return {code_of(order, result, error), ErrorDomain::kCuda, result, error.message()};
}

}  // namespace

bool can_checkpoint(const DriverApi& api) {
  return api.cuCheckpointProcessGetState && api.cuCheckpointProcessLock &&
         api.cuCheckpointProcessCheckpoint && api.cuCheckpointProcessRestore &&
         api.cuCheckpointProcessUnlock && api.cuCheckpointProcessGetRestoreThreadId;
}

context::Answer start_driver(const DriverApi*& api) {
  context::Answer answer;
  api = nullptr;
  const Nanos began = now_ns();
  const Result<const DriverApi*> loaded = load_driver();
  if (!loaded.has_value()) {
    context::set_error(answer, loaded.error());
    return answer;
  }
  const DriverApi& driver = **loaded;
  CUresult result = driver.cuInit(0);
  int devices = 0;
  if (result == CUDA_SUCCESS) result = driver.cuDeviceGetCount(&devices);
  if (result == CUDA_SUCCESS) result = driver.cuDriverGetVersion(&answer.value);
  answer.took_ns = now_ns() - began;
  if (result != CUDA_SUCCESS) {
    context::set_error(answer, {ErrorCode::kNotSupported, ErrorDomain::kCuda, result,
                                cuda_error(driver, result, "Cannot start the CUDA driver").message()});
    return answer;
  }
  answer.device_count = static_cast<std::uint32_t>(std::max(devices, 0));
  answer.can_checkpoint = can_checkpoint(driver);
  context::set_text(answer, first_device_name(driver, devices));
  api = &driver;
  return answer;
}

context::Answer perform(const DriverApi& api, const context::Order& order) {
  context::Answer answer;
  answer.kind = order.kind;
  answer.id = order.id;
  if (!can_checkpoint(api)) {
    context::set_error(
        answer, {ErrorCode::kNotSupported,
                 "This CUDA driver has no cuCheckpointProcess functions: driver 570 or newer is needed"});
    return answer;
  }
  const Nanos began = now_ns();
  const CUresult result = call(api, order, answer.value);
  answer.took_ns = now_ns() - began;
  if (result != CUDA_SUCCESS) context::set_error(answer, error_of(api, order, result));
  return answer;
}

}  // namespace ckpt::context_helper
