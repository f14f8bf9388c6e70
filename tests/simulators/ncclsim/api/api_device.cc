// SPDX-License-Identifier: Apache-2.0
// Windows and the device API. They are not supported, as in NCCL between GPUs without symmetric memory.
// Creating a window gives no window and no error; kernels that use a communicator are refused. Teams are
// arithmetic.
#include "tests/simulators/ncclsim/api/api.h"
#include "tests/simulators/ncclsim/comm/communicator.h"

using ncclsim::Communicator;

// nccl_device/core.h declares this struct, but only nvcc reads this header.
struct ncclTeam {
  int nRanks, rank, stride;
};

namespace {

ncclResult_t refuse() {
  return ncclsim::fail(ncclInvalidUsage, "Communicator does not support symmetric memory!");
}

ncclTeam world_of(ncclComm_t handle) {
  Communicator* communicator = nullptr;
  if (ncclsim::find(handle, &communicator) != ncclSuccess) return {0, 0, 0};
  return {communicator->ranks, communicator->rank, 1};
}

constexpr ncclTeam kAlone{1, 0, 1};

}  // namespace

NCCLSIM_API(ncclResult_t, ncclCommWindowRegister, ncclComm_t handle, void*, size_t, ncclWindow_t*, int) {
  Communicator* communicator = nullptr;
  return ncclsim::find(handle, &communicator);
}

NCCLSIM_API(ncclResult_t, ncclCommWindowDeregister, ncclComm_t handle, ncclWindow_t window) {
  if (window == nullptr) return ncclSuccess;
  Communicator* communicator = nullptr;
  NCCLSIM_TRY(ncclsim::find(handle, &communicator));
  return ncclsim::fail(ncclInvalidUsage, "Deregister: Could not find handle");
}

NCCLSIM_API(ncclResult_t, ncclDevCommCreate, ncclComm_t, const void*, void*) {
  return refuse();
}
NCCLSIM_API(ncclResult_t, ncclDevCommDestroy, ncclComm_t, const void*) {
  return refuse();
}
NCCLSIM_API(ncclResult_t, ncclGinBarrierCreateRequirement, ncclComm_t, ncclTeam, int, void*, void*) {
  return refuse();
}
NCCLSIM_API(ncclResult_t, ncclLsaBarrierCreateRequirement, ncclTeam, int, void*, void*) {
  return refuse();
}
NCCLSIM_API(ncclResult_t, ncclLLA2ACreateRequirement, int, int, void*, void*) {
  return refuse();
}
NCCLSIM_API(int, ncclLLA2ACalcSlots, int, int) {
  return 0;
}

NCCLSIM_API(ncclTeam, ncclTeamWorld, ncclComm_t communicator) {
  return world_of(communicator);
}
NCCLSIM_API(ncclTeam, ncclTeamLsa, ncclComm_t) {
  return kAlone;
}
NCCLSIM_API(ncclTeam, ncclTeamRail, ncclComm_t communicator) {
  return world_of(communicator);
}
NCCLSIM_API(int, ncclTeamRankToWorld, ncclComm_t communicator, ncclTeam team, int rank) {
  return world_of(communicator).rank + (rank - team.rank) * team.stride;
}
NCCLSIM_API(int, ncclTeamRankToLsa, ncclComm_t, ncclTeam team, int rank) {
  return kAlone.rank + (rank - team.rank) * team.stride;
}
