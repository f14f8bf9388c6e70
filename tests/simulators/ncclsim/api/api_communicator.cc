// SPDX-License-Identifier: Apache-2.0
// Communicators: creation, queries and destruction.
#include <algorithm>

#include "tests/simulators/ncclsim/api/api.h"
#include "tests/simulators/ncclsim/comm/group.h"
#include "tests/simulators/ncclsim/comm/init.h"
#include "tests/simulators/ncclsim/comm/teardown.h"

using ncclsim::Communicator;
using ncclsim::fail;
using ncclsim::in_group;

namespace {

using Call = ncclResult_t (*)(Communicator*);

// Ends a communicator. NULL is neither a communicator nor an error.
ncclResult_t end_with(ncclComm_t handle, Call call) {
  if (handle == nullptr) return ncclSuccess;
  Communicator* communicator = nullptr;
  NCCLSIM_TRY(ncclsim::find(handle, &communicator));
  return call(communicator);
}

// Returns the handle's communicator once it is ready for queries.
ncclResult_t ready(ncclComm_t handle, const void* out, Communicator** communicator) {
  NCCLSIM_TRY(ncclsim::find(handle, communicator));
  NCCLSIM_CHECK(out != nullptr, ncclInvalidArgument, "an argument is NULL");
  return (*communicator)->ensure_ready();
}

ncclResult_t check_devices(int count, const int* devices) {
  int present = 0;
  NCCLSIM_TRY(ncclsim::load_driver());
  NCCLSIM_CUDA(cuDeviceGetCount, &present);
  NCCLSIM_CHECK(count >= 0, ncclInvalidArgument, "Invalid device count requested : %d", count);
  for (int i = 0; i < count; i++) {
    const int device = devices != nullptr ? devices[i] : i;
    NCCLSIM_CHECK(device >= 0 && device < present, ncclInvalidArgument, "Invalid device %d (totalnDev=%d)",
                  device, present);
    const int* before = devices != nullptr ? std::find(devices, devices + i, device) : devices + i;
    NCCLSIM_CHECK(before == devices + i || devices == nullptr, ncclInvalidUsage, "device %d is named twice",
                  device);
  }
  return ncclSuccess;
}

ncclResult_t init_all(ncclComm_t* out, int count, const int* devices) {
  NCCLSIM_CHECK(out != nullptr, ncclInvalidArgument, "CommInitAll : comms argument is NULL");
  NCCLSIM_TRY(check_devices(count, devices));
  ncclUniqueId id{};
  NCCLSIM_TRY(ncclsim::start_root(&id));
  return in_group([&] {
    for (int i = 0; i < count; i++) {
      CUcontext context = nullptr;
      // The program retains the primary contexts, as with NVIDIA's runtime, which NCCL uses.
      NCCLSIM_CUDA(cuDevicePrimaryCtxRetain, &context, devices != nullptr ? devices[i] : i);
      const ncclsim::Current current(context);
      NCCLSIM_TRY(current.result());
      NCCLSIM_TRY(ncclsim::begin_init(&out[i], count, id, i, nullptr));
    }
    return ncclSuccess;
  });
}

ncclResult_t shrink(ncclComm_t handle, int* excluded, int count, ncclComm_t* out, ncclConfig_t* config,
                    int flags) {
  Communicator* communicator = nullptr;
  NCCLSIM_TRY(ncclsim::find(handle, &communicator));
  NCCLSIM_CHECK(excluded != nullptr && count > 0, ncclInvalidArgument, "ncclCommShrink excludes no rank");
  NCCLSIM_CHECK(flags == NCCL_SHRINK_DEFAULT || flags == NCCL_SHRINK_ABORT, ncclInvalidArgument,
                "unknown flags %d", flags);
  ncclsim::ChildRequest request{true, 0, communicator->rank, std::vector<int>(excluded, excluded + count)};
  std::sort(request.excluded.begin(), request.excluded.end());
  for (const int rank : request.excluded) {
    NCCLSIM_CHECK(rank >= 0 && rank < communicator->ranks && rank != communicator->rank, ncclInvalidArgument,
                  "rank %d cannot be excluded by rank %d", rank, communicator->rank);
  }
  if (flags == NCCL_SHRINK_ABORT) ncclsim::stop_operations(communicator);
  return ncclsim::begin_child(communicator, request, out, config);
}

}  // namespace

NCCLSIM_API(ncclResult_t, ncclGetUniqueId, ncclUniqueId* id) {
  NCCLSIM_CHECK(id != nullptr, ncclInvalidArgument, "GetUniqueId : out argument is NULL");
  return ncclsim::start_root(id);
}

NCCLSIM_API(ncclResult_t, ncclCommInitRank, ncclComm_t* out, int ranks, ncclUniqueId id, int rank) {
  return in_group([&] { return ncclsim::begin_init(out, ranks, id, rank, nullptr); });
}

NCCLSIM_API(ncclResult_t, ncclCommInitRankConfig, ncclComm_t* out, int ranks, ncclUniqueId id, int rank,
            ncclConfig_t* config) {
  return in_group([&] { return ncclsim::begin_init(out, ranks, id, rank, config); });
}

NCCLSIM_API(ncclResult_t, ncclCommInitRankScalable, ncclComm_t* out, int ranks, int rank, int ids,
            ncclUniqueId* list, ncclConfig_t* config) {
  NCCLSIM_CHECK(ids > 0 && ids <= ranks && list != nullptr, ncclInvalidArgument,
                "improper usage of ncclCommInitRank: nId = %d, nranks=%d", ids, ranks);
  return in_group([&] { return ncclsim::begin_init(out, ranks, list[0], rank, config); });
}

NCCLSIM_API(ncclResult_t, ncclCommInitAll, ncclComm_t* out, int count, const int* devices) {
  return init_all(out, count, devices);
}

NCCLSIM_API(ncclResult_t, ncclCommSplit, ncclComm_t handle, int color, int key, ncclComm_t* out,
            ncclConfig_t* config) {
  return in_group([&] {
    Communicator* communicator = nullptr;
    NCCLSIM_TRY(ncclsim::find(handle, &communicator));
    return ncclsim::begin_child(communicator, {false, color, key, {}}, out, config);
  });
}

NCCLSIM_API(ncclResult_t, ncclCommShrink, ncclComm_t handle, int* excluded, int count, ncclComm_t* out,
            ncclConfig_t* config, int flags) {
  return in_group([&] { return shrink(handle, excluded, count, out, config, flags); });
}

NCCLSIM_API(ncclResult_t, ncclCommFinalize, ncclComm_t handle) {
  return in_group([&] { return end_with(handle, ncclsim::begin_finalize); });
}

NCCLSIM_API(ncclResult_t, ncclCommRevoke, ncclComm_t handle, int flags) {
  NCCLSIM_CHECK(handle == nullptr || flags == NCCL_REVOKE_DEFAULT, ncclInvalidArgument, "unknown flags %d",
                flags);
  return in_group([&] { return end_with(handle, ncclsim::begin_revoke); });
}

NCCLSIM_API(ncclResult_t, ncclCommDestroy, ncclComm_t handle) {
  return end_with(handle, ncclsim::destroy);
}

NCCLSIM_API(ncclResult_t, ncclCommAbort, ncclComm_t handle) {
  return end_with(handle, ncclsim::abort);
}

NCCLSIM_API(ncclResult_t, ncclCommGetAsyncError, ncclComm_t handle, ncclResult_t* error) {
  Communicator* communicator = nullptr;
  NCCLSIM_TRY(ncclsim::find(handle, &communicator));
  NCCLSIM_CHECK(error != nullptr, ncclInvalidArgument, "ncclGetAsyncError : asyncError argument is NULL");
  *error = communicator->async_error();
  return ncclSuccess;
}

NCCLSIM_API(ncclResult_t, ncclCommCount, const ncclComm_t handle, int* count) {
  Communicator* communicator = nullptr;
  NCCLSIM_TRY(ready(handle, count, &communicator));
  *count = communicator->ranks;
  return ncclSuccess;
}

NCCLSIM_API(ncclResult_t, ncclCommCuDevice, const ncclComm_t handle, int* device) {
  Communicator* communicator = nullptr;
  NCCLSIM_TRY(ready(handle, device, &communicator));
  *device = communicator->device;
  return ncclSuccess;
}

NCCLSIM_API(ncclResult_t, ncclCommUserRank, const ncclComm_t handle, int* rank) {
  Communicator* communicator = nullptr;
  NCCLSIM_TRY(ready(handle, rank, &communicator));
  *rank = communicator->rank;
  return ncclSuccess;
}
