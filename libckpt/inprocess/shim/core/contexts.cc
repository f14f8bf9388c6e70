// SPDX-License-Identifier: Apache-2.0
#include "libckpt/inprocess/shim/core/contexts.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "libckpt/inprocess/shim/core/captures.h"
#include "libckpt/inprocess/shim/core/gate.h"

namespace ckpt::shim {
namespace {

struct Contexts {
  std::mutex mutex;
  std::vector<CUcontext> made;
  std::vector<CUgreenCtx> green;
};

std::atomic<bool> g_watched{false};

Contexts& contexts() {
  static auto* const known = new Contexts;
  return *known;
}

Error failed(const char* call, CUresult result) {
  const char* name = nullptr;
  if (real().cuGetErrorName != nullptr) real().cuGetErrorName(result, &name);
  return Error(ErrorCode::kDevice, ErrorDomain::kCuda, result,
               std::string(call) + " of the program's context failed" +
                   (name == nullptr ? "" : std::string(" with ") + name));
}

Result<void> synchronize(CUcontext context) {
  if (const CUresult result = real().cuCtxPushCurrent_v2(context)) return failed("cuCtxPushCurrent", result);
  const CUresult result = real().cuCtxSynchronize();
  CUcontext popped = nullptr;
  real().cuCtxPopCurrent_v2(&popped);
  if (result != CUDA_SUCCESS) return failed("cuCtxSynchronize", result);
  return ok();
}

Result<void> synchronize_primary(CUdevice device) {
  unsigned flags = 0;
  int active = 0;
  if (real().cuDevicePrimaryCtxGetState(device, &flags, &active) != CUDA_SUCCESS || active == 0) return ok();
  CUcontext context = nullptr;
  if (const CUresult result = real().cuDevicePrimaryCtxRetain(&context, device)) {
    return failed("cuDevicePrimaryCtxRetain", result);
  }
  Result<void> done = synchronize(context);
  real().cuDevicePrimaryCtxRelease_v2(device);
  return done;
}

Result<void> synchronize_all() {
  int devices = 0;
  if (real().cuDeviceGetCount(&devices) != CUDA_SUCCESS)
    return ok();  // nothing has been submitted before cuInit
  for (int device = 0; device < devices; ++device) {
    CKPT_TRYV(synchronize_primary(device));
  }
  std::vector<CUcontext> all;
  {
    const std::lock_guard lock(contexts().mutex);
    all = contexts().made;
    for (CUgreenCtx green : contexts().green) {
      CUcontext context = nullptr;
      if (const CUresult result = real().cuCtxFromGreenCtx(&context, green))
        return failed("cuCtxFromGreenCtx", result);
      all.push_back(context);
    }
  }
  for (CUcontext context : all) {
    CKPT_TRYV(synchronize(context));
  }
  return ok();
}

// A synchronization on its own thread, because the driver's wait has no time limit. A thread that does not
// return in time is abandoned.
struct Synchronization {
  std::mutex mutex;
  std::condition_variable ended;
  std::optional<Result<void>> result;

  bool wait_until(std::chrono::steady_clock::time_point deadline) {
    std::unique_lock lock(mutex);
    return ended.wait_until(lock, deadline, [&] { return result.has_value(); });
  }
};

Result<std::shared_ptr<Synchronization>> start_synchronization() {
  auto synchronization = std::make_shared<Synchronization>();
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);  // the program's signal handlers run only on the program's
                                                  // threads
  try {
    std::thread([synchronization] {
      Result<void> result = synchronize_all();
      const std::lock_guard lock(synchronization->mutex);
      synchronization->result.emplace(std::move(result));
      synchronization->ended.notify_all();
    }).detach();
  } catch (const std::system_error& error) {
    synchronization.reset();
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (synchronization == nullptr)
    return Error(ErrorCode::kOutOfMemory, "No thread could be started to wait for the GPU");
  return synchronization;
}

// Returns a hint that names a call of the program that also waits for all or part of the work.
std::string waits_too() {
  const char* call = gate().waiting_call();
  return call == nullptr ? "" : std::string("; the program waits for this work in ") + call;
}

Result<void> synchronize_within(Nanos timeout) {
  static auto* const last = new std::shared_ptr<Synchronization>;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::nanoseconds(timeout);
  const auto late = [&] {
    return Error(ErrorCode::kTimedOut,
                 "The program's work on the GPU did not finish (cuCtxSynchronize) within " +
                     std::to_string(timeout / 1'000'000) + " ms" + waits_too());
  };
  if (*last != nullptr && !(*last)->wait_until(deadline)) return late();
  CKPT_TRY(current, start_synchronization());
  *last = current;
  if (!current->wait_until(deadline)) return late();
  return *current->result;
}

// Closes the gate between captures. A running capture of the program would not survive the synchronization,
// so the program continues until the end of its capture.
Result<void> close_between_captures(Nanos timeout) {
  const Nanos deadline = now_ns() + timeout;
  for (;;) {
    CKPT_TRYV(gate().close(std::max<Nanos>(deadline - now_ns(), 0)));
    if (!captures_open()) return ok();
    gate().open();
    if (!wait_for_captures(deadline))
      return Error(
          ErrorCode::kTimedOut,
          "The program's capture of a stream into a graph (cuStreamBeginCapture) did not end within " +
              std::to_string(timeout / 1'000'000) + " ms");
  }
}

}  // namespace

void at_first_context(void (*start)()) noexcept {
  if (!g_watched.exchange(true)) g_first_context.store(start);
}

void run_first_context() noexcept {
  if (auto* start = g_first_context.exchange(nullptr)) start();
}

void note_context(CUcontext context) noexcept {
  {
    const std::lock_guard lock(contexts().mutex);
    contexts().made.push_back(context);
  }
  note_first_context();
}

void erase_context(CUcontext context) noexcept {
  const std::lock_guard lock(contexts().mutex);
  std::erase(contexts().made, context);
}

void note_green_context(CUgreenCtx context) noexcept {
  const std::lock_guard lock(contexts().mutex);
  contexts().green.push_back(context);
}

void erase_green_context(CUgreenCtx context) noexcept {
  const std::lock_guard lock(contexts().mutex);
  std::erase(contexts().green, context);
}

Result<void> quiesce(Nanos timeout) {
  const Nanos deadline = now_ns() + timeout;
  CKPT_TRYV(close_between_captures(timeout));
  Result<void> still = synchronize_within(std::max<Nanos>(deadline - now_ns(), 0));
  if (still) still = gate().drain(std::max<Nanos>(deadline - now_ns(), 0));
  if (!still) gate().open();
  return still;
}

}  // namespace ckpt::shim
