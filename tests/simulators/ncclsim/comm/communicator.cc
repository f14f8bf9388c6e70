// SPDX-License-Identifier: Apache-2.0
#include "tests/simulators/ncclsim/comm/communicator.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "tests/simulators/ncclsim/base/settings.h"

namespace ncclsim {
namespace {

constexpr unsigned kConfigMagic = 0xcafebeef;

std::mutex& list_lock() {
  static auto* lock = new std::mutex;
  return *lock;
}

std::set<Communicator*>& list() {
  static auto* all = new std::set<Communicator*>;
  return *all;
}

bool is_flag(int value) {
  return value == NCCL_CONFIG_UNDEF_INT || value == 0 || value == 1;
}

// Returns whether the configuration is valid. The CTA numbers are compared before defaults are filled in, as
// in NCCL, so a single number may be refused.
bool valid(const ncclConfig_t& config) {
  const bool counts = (config.minCTAs == NCCL_CONFIG_UNDEF_INT || config.minCTAs > 0) &&
                      (config.maxCTAs == NCCL_CONFIG_UNDEF_INT || config.maxCTAs > 0) &&
                      config.minCTAs <= config.maxCTAs;
  return counts && is_flag(config.blocking) && is_flag(config.splitShare) && is_flag(config.shrinkShare) &&
         is_flag(config.collnetEnable) && is_flag(config.nvlinkCentricSched) &&
         (config.cgaClusterSize == NCCL_CONFIG_UNDEF_INT || config.cgaClusterSize >= 0);
}

}  // namespace

ncclResult_t read_config(const ncclConfig_t* given, Config* out) {
  if (given == nullptr) return ncclSuccess;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  // An older program's configuration is shorter.
  const std::size_t size = std::min(given->size, sizeof config);
  NCCLSIM_CHECK(size >= offsetof(ncclConfig_t, cgaClusterSize), ncclInvalidArgument,
                "this ncclConfig_t is too short");
  std::memcpy(static_cast<void*>(&config), given, size);
  NCCLSIM_CHECK(config.magic == kConfigMagic, ncclInvalidArgument,
                "ncclConfig_t argument not initialized via NCCL_CONFIG_INITIALIZER");
  NCCLSIM_CHECK(valid(config), ncclInvalidArgument, "a value of ncclConfig_t is out of its range");
  if (config.blocking != NCCL_CONFIG_UNDEF_INT) out->blocking = config.blocking != 0;
  if (config.commName != nullptr) out->name = config.commName;
  const std::int64_t forced = number_of("NCCL_COMM_BLOCKING", -1);
  if (forced == 0 || forced == 1) out->blocking = forced == 1;
  return ncclSuccess;
}

void CapturedGraphs::add() {
  std::lock_guard<std::mutex> lock(mutex_);
  count_++;
}

void CapturedGraphs::remove() {
  std::lock_guard<std::mutex> lock(mutex_);
  count_--;
  changed_.notify_all();
}

void CapturedGraphs::wait_for_none() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return count_ == 0; });
}

void JobState::begin() {
  std::unique_lock<std::mutex> lock(mutex_);
  ended_.wait(lock, [this] { return state_ != ncclInProgress; });
  state_ = ncclInProgress;
}

void JobState::end(ncclResult_t result) {
  std::lock_guard<std::mutex> lock(mutex_);
  state_ = result;
  ended_.notify_all();
}

void JobState::wait() {
  std::unique_lock<std::mutex> lock(mutex_);
  ended_.wait(lock, [this] { return state_ != ncclInProgress; });
}

ncclResult_t Communicator::async_error() const {
  const ncclResult_t state = job->state();
  if (state != ncclSuccess) return state;
  // Errors of operations that a revoke has ended do not count.
  const Proxy* own = working;
  return own != nullptr && !revoked ? own->error() : ncclSuccess;
}

ncclResult_t Communicator::ensure_ready() const {
  const ncclResult_t state = async_error();
  NCCLSIM_CHECK(state != ncclInProgress, ncclInvalidArgument,
                "Attempt to use communicator before the previous operation returned ncclSuccess");
  return state;
}

void Communicator::take_down() {
  const bool complete = proxy != nullptr;
  working = nullptr;
  proxy.reset();
  data.close();
  control.close();
  const Current current(context);
  imports.clear();
  memory.reset();
  if (complete) leave_staging(context);
}

ncclComm_t enlist(Communicator* communicator) {
  std::lock_guard<std::mutex> lock(list_lock());
  list().insert(communicator);
  return reinterpret_cast<ncclComm_t>(communicator);
}

void strike(Communicator* communicator) {
  std::lock_guard<std::mutex> lock(list_lock());
  list().erase(communicator);
}

ncclResult_t find(ncclComm_t handle, Communicator** out) {
  auto* communicator = reinterpret_cast<Communicator*>(handle);
  std::lock_guard<std::mutex> lock(list_lock());
  NCCLSIM_CHECK(list().count(communicator) > 0, ncclInvalidArgument, "%p is no communicator",
                static_cast<void*>(communicator));
  *out = communicator;
  return ncclSuccess;
}

}  // namespace ncclsim
