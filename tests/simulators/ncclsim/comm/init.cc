// SPDX-License-Identifier: Apache-2.0
#include "tests/simulators/ncclsim/comm/init.h"

#include <poll.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/simulators/ncclsim/base/faults.h"
#include "tests/simulators/ncclsim/base/settings.h"
#include "tests/simulators/ncclsim/comm/group.h"

namespace ncclsim {
namespace {

// Returns a bus id such as "0000:1a:00.0" as one number; NCCL compares only this number.
ncclResult_t bus_of(CUdevice device, std::int64_t* out) {
  char text[64] = {};
  NCCLSIM_CUDA(cuDeviceGetPCIBusId, text, sizeof text, device);
  std::string digits;
  for (const char c : std::string(text)) {
    if (c != ':' && c != '.') digits += c;
  }
  *out = std::strtoll(digits.c_str(), nullptr, 16);
  return ncclSuccess;
}

ncclResult_t check_devices(const std::vector<RankInfo>& table) {
  for (const RankInfo& one : table) {
    for (const RankInfo& other : table) {
      NCCLSIM_CHECK(one.rank >= other.rank || one.host_hash != other.host_hash || one.bus_id != other.bus_id,
                    ncclInvalidUsage, "Duplicate GPU detected : rank %d and rank %d both on CUDA device %llx",
                    one.rank, other.rank, static_cast<unsigned long long>(one.bus_id));
    }
  }
  return ncclSuccess;
}

ncclResult_t init(Communicator* communicator, const ncclUniqueId& id) {
  NCCLSIM_TRY(wait_as_ordered(*communicator, communicator->aborted));
  RankInfo self;
  NCCLSIM_TRY(listen_for_peers(communicator, &self));
  NCCLSIM_TRY(secret_of(id, &communicator->secret));
  const Limits limits = limits_of(*communicator);
  NCCLSIM_TRY(meet(id, self, limits, &communicator->table));
  return complete(communicator, limits);
}

}  // namespace

ncclResult_t wait_as_ordered(const Communicator& communicator, const Stop& stop) {
  const std::int64_t delay = init_delay(communicator.rank, communicator.config.name);
  if (delay == 0) return ncclSuccess;
  const auto until = delay < 0 ? Clock::time_point::max() : Clock::now() + std::chrono::milliseconds(delay);
  pollfd polled{stop.descriptor(), POLLIN, 0};
  while (Clock::now() < until && !stop.is_set()) ::poll(&polled, 1, milliseconds_until(until));
  NCCLSIM_CHECK(!stop.is_set(), ncclInternalError, "aborted");
  return ncclSuccess;
}

Limits limits_of(const Communicator& communicator) {
  // A background job can be aborted; as with NCCL it has no deadline.
  const auto deadline = communicator.config.blocking ? Clock::now() + std::chrono::milliseconds(timeout_ms())
                                                     : Clock::time_point::max();
  return {&communicator.aborted, deadline};
}

ncclResult_t current_device(CUcontext* context, CUdevice* device) {
  NCCLSIM_TRY(load_driver());
  NCCLSIM_CUDA(cuCtxGetCurrent, context);
  if (*context == nullptr) {
    NCCLSIM_CUDA(cuDevicePrimaryCtxRetain, context, 0);
    NCCLSIM_CUDA(cuCtxSetCurrent, *context);
  }
  NCCLSIM_CUDA(cuCtxGetDevice, device);
  return ncclSuccess;
}

ncclResult_t listen_for_peers(Communicator* communicator, RankInfo* self) {
  self->rank = communicator->rank;
  self->ranks = communicator->ranks;
  self->host_hash = host_hash();
  NCCLSIM_TRY(bus_of(communicator->device, &self->bus_id));
  NCCLSIM_TRY(communicator->data.listen(&self->data));
  return communicator->control.listen(&self->control);
}

ncclResult_t complete(Communicator* communicator, const Limits& limits) {
  NCCLSIM_TRY(check_devices(communicator->table));
  std::vector<Endpoint> data;
  std::vector<Endpoint> control;
  std::vector<int> others;
  for (const RankInfo& info : communicator->table) {
    data.push_back(info.data);
    control.push_back(info.control);
    if (info.rank != communicator->rank) others.push_back(info.rank);
  }
  communicator->data.set_peers(communicator->rank, data, communicator->secret, 0);
  communicator->control.set_peers(communicator->rank, control, communicator->secret, 1);
  if (!connects_at_first_use()) NCCLSIM_TRY(communicator->data.connect(others, limits));
  const Current current(communicator->context);
  NCCLSIM_TRY(current.result());
  const std::uint64_t bytes = memory_of_communicator();
  if (bytes > 0) NCCLSIM_TRY(DeviceMemory::make(communicator->device, bytes, &communicator->memory));
  if (keeps_imports()) NCCLSIM_TRY(exchange_imports(communicator, limits));
  use_staging(communicator->context);
  const World world{&communicator->data, communicator->rank, communicator->ranks};
  communicator->proxy = std::make_unique<Proxy>(world, communicator->config.name);
  communicator->proxy->start();
  communicator->working = communicator->proxy.get();
  return ncclSuccess;
}

ncclResult_t begin_init(ncclComm_t* out, int ranks, const ncclUniqueId& id, int rank,
                        const ncclConfig_t* config) {
  NCCLSIM_CHECK(out != nullptr, ncclInvalidArgument, "CommInitRank : newcomm argument is NULL");
  *out = nullptr;
  NCCLSIM_CHECK(ranks >= 1 && ranks <= kMaxRanks && rank >= 0 && rank < ranks, ncclInvalidArgument,
                "Invalid rank requested : %d/%d", rank, ranks);
  Config read;
  NCCLSIM_TRY(read_config(config, &read));
  CUcontext context = nullptr;
  CUdevice device = 0;
  NCCLSIM_TRY(current_device(&context, &device));
  auto* communicator = new Communicator(context, device);
  communicator->config = read;
  communicator->rank = rank;
  communicator->ranks = ranks;
  communicator->job->begin();  // begins the job before another thread can see the handle
  *out = enlist(communicator);
  Group::current().add_job(
      {communicator, communicator, out, [communicator, id] { return init(communicator, id); }});
  return ncclSuccess;
}

}  // namespace ncclsim
