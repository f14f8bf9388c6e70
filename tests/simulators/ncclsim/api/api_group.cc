// SPDX-License-Identifier: Apache-2.0
// Groups, the program's own operators, versions and texts.
#include <cstring>

#include "tests/simulators/ncclsim/api/api.h"
#include "tests/simulators/ncclsim/comm/group.h"

using ncclsim::Communicator;
using ncclsim::Group;

namespace {

constexpr unsigned kSimulationMagic = 0x74685283;

ncclResult_t simulate(ncclSimInfo_t* info) {
  if (info != nullptr && info->magic != kSimulationMagic) {
    Group::current().note(ncclInvalidArgument);
    [[maybe_unused]] const ncclResult_t ended = Group::current().end(true);
    return ncclsim::fail(ncclInvalidArgument,
                         "ncclSimInfo_t argument not initialized via NCCL_SIM_INFO_INITIALIZER");
  }
  NCCLSIM_TRY(Group::current().end(true));
  if (info != nullptr) info->estimatedTime = 0;  // this library has no model of time
  return ncclSuccess;
}

}  // namespace

NCCLSIM_API(ncclResult_t, ncclGroupStart) {
  Group::current().start();
  return ncclSuccess;
}

NCCLSIM_API(ncclResult_t, ncclGroupEnd) {
  return Group::current().end();
}

NCCLSIM_API(ncclResult_t, ncclGroupSimulateEnd, ncclSimInfo_t* info) {
  return simulate(info);
}

NCCLSIM_API(ncclResult_t, ncclRedOpCreatePreMulSum, ncclRedOp_t* operation, void* scalar, ncclDataType_t type,
            ncclScalarResidence_t residence, ncclComm_t handle) {
  Communicator* communicator = nullptr;
  NCCLSIM_TRY(ncclsim::find(handle, &communicator));
  NCCLSIM_TRY(communicator->ensure_ready());
  const std::size_t size = ncclsim::size_of(type);
  NCCLSIM_CHECK(operation != nullptr && scalar != nullptr && size > 0, ncclInvalidArgument,
                "an argument is NULL or no type");
  ncclsim::Reduction reduction;
  reduction.scales = true;
  if (residence == ncclScalarHostImmediate)
    std::memcpy(reduction.scalar.bytes, scalar, size);
  else
    reduction.device_scalar = scalar;
  const int number = ncclNumOps + communicator->next_operator++;
  communicator->operators[number] = {type, reduction};
  *operation = static_cast<ncclRedOp_t>(number);
  return ncclSuccess;
}

NCCLSIM_API(ncclResult_t, ncclRedOpDestroy, ncclRedOp_t operation, ncclComm_t handle) {
  NCCLSIM_CHECK(operation < 0 || operation >= ncclNumOps, ncclInvalidArgument,
                "ncclRedOpDestroy : operator is a NCCL builtin.");
  Communicator* communicator = nullptr;
  NCCLSIM_TRY(ncclsim::find(handle, &communicator));
  NCCLSIM_CHECK(communicator->operators.erase(operation) > 0, ncclInvalidArgument,
                "ncclRedOpDestroy : operator unknown to this communicator.");
  return ncclSuccess;
}

NCCLSIM_API(ncclResult_t, ncclGetVersion, int* version) {
  NCCLSIM_CHECK(version != nullptr, ncclInvalidArgument, "GetVersion : version argument is NULL");
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

NCCLSIM_API(const char*, ncclGetErrorString, ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case ncclSystemError:
      return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case ncclInternalError:
      return "internal error - please report this issue to the NCCL developers";
    case ncclInvalidArgument:
      return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case ncclInvalidUsage:
      return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
    default:
      return "unknown result code";
  }
}

NCCLSIM_API(const char*, ncclGetLastError, ncclComm_t) {
  return ncclsim::last_error();
}

// NCCL_DEBUG is read at each error, so the function does nothing.
NCCLSIM_API(void, ncclResetDebugInit) {}
extern "C" __attribute__((visibility("default"))) void ncclResetDebugInitInternal() {}
