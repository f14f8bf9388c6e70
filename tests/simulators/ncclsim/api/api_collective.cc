// SPDX-License-Identifier: Apache-2.0
// Operations on streams. AlltoAll, Gather and Scatter are sends and receives, as in NCCL.
#include "tests/simulators/ncclsim/api/api.h"
#include "tests/simulators/ncclsim/comm/group.h"
#include "tests/simulators/ncclsim/comm/launch.h"

using ncclsim::Communicator;
using ncclsim::in_group;
using ncclsim::Kind;
using ncclsim::Task;

namespace {

struct Data {
  const void* send;
  void* receive;
  std::size_t count;
  ncclDataType_t type;
};

ncclResult_t add(Kind kind, const Data& data, ncclRedOp_t operation, int root, ncclComm_t communicator,
                 cudaStream_t stream) {
  Task task;
  task.kind = kind;
  task.send = data.send;
  task.receive = data.receive;
  task.count = data.count;
  task.type = data.type;
  task.operation = operation;
  task.root = root;
  task.stream = stream;
  return ncclsim::add_operation(communicator, task);
}

ncclResult_t send_to(int peer, const Data& data, std::size_t index, ncclComm_t communicator,
                     cudaStream_t stream) {
  const std::size_t bytes = data.count * ncclsim::size_of(data.type);
  const char* from = static_cast<const char*>(data.send) + index * bytes;
  return add(Kind::kSend, {from, nullptr, data.count, data.type}, ncclSum, peer, communicator, stream);
}

ncclResult_t receive_from(int peer, const Data& data, std::size_t index, ncclComm_t communicator,
                          cudaStream_t stream) {
  const std::size_t bytes = data.count * ncclsim::size_of(data.type);
  char* to = static_cast<char*>(data.receive) + index * bytes;
  return add(Kind::kReceive, {nullptr, to, data.count, data.type}, ncclSum, peer, communicator, stream);
}

// Finds a communicator that is ready: its rank and number of ranks are set.
ncclResult_t world_of(ncclComm_t handle, Communicator** communicator) {
  NCCLSIM_TRY(ncclsim::find(handle, communicator));
  return (*communicator)->ensure_ready();
}

ncclResult_t all_to_all(const Data& data, ncclComm_t handle, cudaStream_t stream) {
  Communicator* communicator = nullptr;
  NCCLSIM_TRY(world_of(handle, &communicator));
  for (int peer = 0; data.count > 0 && peer < communicator->ranks; peer++) {
    NCCLSIM_TRY(send_to(peer, data, static_cast<std::size_t>(peer), handle, stream));
    NCCLSIM_TRY(receive_from(peer, data, static_cast<std::size_t>(peer), handle, stream));
  }
  return ncclSuccess;
}

ncclResult_t gather(const Data& data, int root, ncclComm_t handle, cudaStream_t stream) {
  Communicator* communicator = nullptr;
  NCCLSIM_TRY(world_of(handle, &communicator));
  if (data.count == 0) return ncclSuccess;
  NCCLSIM_TRY(send_to(root, data, 0, handle, stream));
  for (int peer = 0; communicator->rank == root && peer < communicator->ranks; peer++) {
    NCCLSIM_TRY(receive_from(peer, data, static_cast<std::size_t>(peer), handle, stream));
  }
  return ncclSuccess;
}

ncclResult_t scatter(const Data& data, int root, ncclComm_t handle, cudaStream_t stream) {
  Communicator* communicator = nullptr;
  NCCLSIM_TRY(world_of(handle, &communicator));
  if (data.count == 0) return ncclSuccess;
  for (int peer = 0; communicator->rank == root && peer < communicator->ranks; peer++) {
    NCCLSIM_TRY(send_to(peer, data, static_cast<std::size_t>(peer), handle, stream));
  }
  return receive_from(root, data, 0, handle, stream);
}

}  // namespace

NCCLSIM_API(ncclResult_t, ncclAllReduce, const void* send, void* receive, size_t count, ncclDataType_t type,
            ncclRedOp_t operation, ncclComm_t communicator, cudaStream_t stream) {
  return in_group([&] {
    return add(Kind::kAllReduce, {send, receive, count, type}, operation, 0, communicator, stream);
  });
}

NCCLSIM_API(ncclResult_t, ncclReduce, const void* send, void* receive, size_t count, ncclDataType_t type,
            ncclRedOp_t operation, int root, ncclComm_t communicator, cudaStream_t stream) {
  return in_group([&] {
    return add(Kind::kReduce, {send, receive, count, type}, operation, root, communicator, stream);
  });
}

NCCLSIM_API(ncclResult_t, ncclReduceScatter, const void* send, void* receive, size_t count,
            ncclDataType_t type, ncclRedOp_t operation, ncclComm_t communicator, cudaStream_t stream) {
  return in_group([&] {
    return add(Kind::kReduceScatter, {send, receive, count, type}, operation, 0, communicator, stream);
  });
}

NCCLSIM_API(ncclResult_t, ncclBroadcast, const void* send, void* receive, size_t count, ncclDataType_t type,
            int root, ncclComm_t communicator, cudaStream_t stream) {
  return in_group([&] {
    return add(Kind::kBroadcast, {send, receive, count, type}, ncclSum, root, communicator, stream);
  });
}

NCCLSIM_API(ncclResult_t, ncclBcast, void* data, size_t count, ncclDataType_t type, int root,
            ncclComm_t communicator, cudaStream_t stream) {
  return in_group([&] {
    return add(Kind::kBroadcast, {data, data, count, type}, ncclSum, root, communicator, stream);
  });
}

NCCLSIM_API(ncclResult_t, ncclAllGather, const void* send, void* receive, size_t count, ncclDataType_t type,
            ncclComm_t communicator, cudaStream_t stream) {
  return in_group([&] {
    return add(Kind::kAllGather, {send, receive, count, type}, ncclSum, 0, communicator, stream);
  });
}

NCCLSIM_API(ncclResult_t, ncclSend, const void* data, size_t count, ncclDataType_t type, int peer,
            ncclComm_t communicator, cudaStream_t stream) {
  return in_group([&] { return send_to(peer, {data, nullptr, count, type}, 0, communicator, stream); });
}

NCCLSIM_API(ncclResult_t, ncclRecv, void* data, size_t count, ncclDataType_t type, int peer,
            ncclComm_t communicator, cudaStream_t stream) {
  return in_group([&] { return receive_from(peer, {nullptr, data, count, type}, 0, communicator, stream); });
}

NCCLSIM_API(ncclResult_t, ncclAlltoAll, const void* send, void* receive, size_t count, ncclDataType_t type,
            ncclComm_t communicator, cudaStream_t stream) {
  return in_group([&] { return all_to_all({send, receive, count, type}, communicator, stream); });
}

NCCLSIM_API(ncclResult_t, ncclGather, const void* send, void* receive, size_t count, ncclDataType_t type,
            int root, ncclComm_t communicator, cudaStream_t stream) {
  return in_group([&] { return gather({send, receive, count, type}, root, communicator, stream); });
}

NCCLSIM_API(ncclResult_t, ncclScatter, const void* send, void* receive, size_t count, ncclDataType_t type,
            int root, ncclComm_t communicator, cudaStream_t stream) {
  return in_group([&] { return scatter({send, receive, count, type}, root, communicator, stream); });
}
