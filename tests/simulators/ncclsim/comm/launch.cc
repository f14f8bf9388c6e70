// SPDX-License-Identifier: Apache-2.0
#include "tests/simulators/ncclsim/comm/launch.h"

#include <algorithm>

#include "tests/simulators/ncclsim/comm/group.h"

namespace ncclsim {
namespace {

// A batch that a graph runs at each launch. The graph owns the batch.
struct CapturedBatch {
  std::shared_ptr<Batch> batch;
  Proxy* proxy;  // outlives the graph: the communicator waits for its graphs before it is destroyed
  std::shared_ptr<CapturedGraphs> graphs;
};

void run_captured(void* data) {
  auto* captured = static_cast<CapturedBatch*>(data);
  captured->proxy->run_now(captured->batch.get());
}

// Frees the batch. The driver calls this once no graph uses the batch any more. This function calls no
// function of the driver.
void free_captured(void* data) {
  auto* captured = static_cast<CapturedBatch*>(data);
  const std::shared_ptr<CapturedGraphs> graphs = captured->graphs;
  delete captured;
  graphs->remove();
}

ncclResult_t copy(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  if (bytes == 0) return ncclSuccess;
  NCCLSIM_CUDA(cuMemcpyAsync, to, from, bytes, stream);
  return ncclSuccess;
}

CUdeviceptr number(const void* pointer) {
  return reinterpret_cast<CUdeviceptr>(pointer);
}

CUdeviceptr device_of(const Block& block, const unsigned char* host) {
  return block.device + static_cast<CUdeviceptr>(host - block.host);
}

ncclResult_t copy_in(const Communicator& communicator, const Batch& batch, std::size_t part) {
  const Part& own = batch.parts[part];
  for (const Placed& placed : batch.tasks) {
    if (placed.part != part) continue;
    const Task& task = placed.task;
    NCCLSIM_TRY(copy(device_of(*own.block, placed.in), number(task.send),
                     task.bytes_in(communicator.rank, communicator.ranks), own.stream));
    if (placed.scalar == nullptr) continue;
    NCCLSIM_TRY(copy(device_of(*own.block, placed.scalar), number(task.reduction.device_scalar),
                     size_of(task.type), own.stream));
  }
  return ncclSuccess;
}

ncclResult_t copy_out(const Communicator& communicator, const Batch& batch, std::size_t part) {
  const Part& own = batch.parts[part];
  for (const Placed& placed : batch.tasks) {
    if (placed.part != part) continue;
    NCCLSIM_TRY(copy(number(placed.task.receive), device_of(*own.block, placed.out),
                     placed.task.bytes_out(communicator.rank, communicator.ranks), own.stream));
  }
  return ncclSuccess;
}

ncclResult_t queue(Communicator* communicator, const std::shared_ptr<Batch>& batch) {
  for (std::size_t i = 0; i < batch->parts.size(); i++) {
    const Part& part = batch->parts[i];
    NCCLSIM_TRY(copy_in(*communicator, *batch, i));
    part.block->in_stream = true;
    NCCLSIM_CUDA(cuStreamWriteValue64_v2, part.stream, part.block->device + kWordReady, part.block->use, 0);
  }
  communicator->proxy->submit(batch);
  for (std::size_t i = 0; i < batch->parts.size(); i++) {
    const Part& part = batch->parts[i];
    NCCLSIM_CUDA(cuStreamWaitValue64_v2, part.stream, part.block->device + kWordFinished, part.block->use,
                 CU_STREAM_WAIT_VALUE_GEQ);
    NCCLSIM_TRY(copy_out(*communicator, *batch, i));
    NCCLSIM_CUDA(cuStreamWriteValue64_v2, part.stream, part.block->device + kWordCopied, part.block->use, 0);
  }
  return ncclSuccess;
}

ncclResult_t capture(Communicator* communicator, const std::shared_ptr<Batch>& batch, CUgraph graph) {
  NCCLSIM_CHECK(batch->parts.size() == 1, ncclInvalidUsage,
                "ncclsim captures no group of operations on more than one stream");
  const CUstream stream = batch->parts[0].stream;
  auto* captured = new CapturedBatch{batch, communicator->proxy.get(), communicator->graphs};
  communicator->graphs->add();
  CUuserObject object = nullptr;
  const ncclResult_t made = cuda_result(
      driver().cuUserObjectCreate(&object, captured, free_captured, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC),
      "cuUserObjectCreate");
  if (made != ncclSuccess) {
    free_captured(captured);
    return made;
  }
  const ncclResult_t kept =
      cuda_result(driver().cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE),
                  "cuGraphRetainUserObject");
  if (kept != ncclSuccess) driver().cuUserObjectRelease(object, 1);
  NCCLSIM_TRY(kept);
  NCCLSIM_TRY(copy_in(*communicator, *batch, 0));
  NCCLSIM_CUDA(cuLaunchHostFunc, stream, run_captured, captured);
  return copy_out(*communicator, *batch, 0);
}

// Returns the graph of the first capturing stream, or null.
ncclResult_t capturing_graph(const std::vector<Task>& tasks, CUgraph* graph) {
  for (const Task& task : tasks) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    NCCLSIM_CUDA(cuStreamGetCaptureInfo_v2, task.stream, &status, nullptr, graph, nullptr, nullptr);
    if (status != CU_STREAM_CAPTURE_STATUS_NONE) return ncclSuccess;
  }
  *graph = nullptr;
  return ncclSuccess;
}

// Checks that a rank receives, in the same group, everything that it sends to itself.
ncclResult_t check_own_messages(const Communicator& communicator, const std::vector<Task>& tasks) {
  std::vector<std::size_t> sent;
  std::vector<std::size_t> received;
  for (const Task& task : tasks) {
    if (task.is_collective() || task.root != communicator.rank) continue;
    (task.kind == Kind::kSend ? sent : received).push_back(task.bytes());
  }
  NCCLSIM_CHECK(sent.size() <= received.size(), ncclInvalidUsage,
                "Trying to send to self without a matching recv");
  NCCLSIM_CHECK(sent.size() >= received.size(), ncclInvalidUsage,
                "Trying to recv to self without a matching send");
  NCCLSIM_CHECK(sent == received, ncclInvalidUsage, "a message of a rank to itself has two sizes");
  return ncclSuccess;
}

ncclResult_t check_arguments(const Communicator& communicator, const Task& task) {
  NCCLSIM_CHECK(task.root >= 0 && task.root < communicator.ranks, ncclInvalidArgument,
                "%s : invalid root %d (root should be in the 0..%d range)", name_of(task.kind), task.root,
                communicator.ranks);
  NCCLSIM_CHECK(size_of(task.type) > 0, ncclInvalidArgument, "%s : invalid type %d", name_of(task.kind),
                static_cast<int>(task.type));
  const std::size_t limit =
      (std::size_t{1} << 36) / size_of(task.type) / static_cast<std::size_t>(communicator.ranks);
  NCCLSIM_CHECK(task.count <= limit, ncclInvalidArgument, "%s : %zu elements are more than ncclsim moves",
                name_of(task.kind), task.count);
  return ncclSuccess;
}

ncclResult_t find_reduction(const Communicator& communicator, Task* task) {
  const int operation = task->operation;
  Reduction* out = &task->reduction;
  NCCLSIM_CHECK(operation >= 0, ncclInvalidArgument, "%s : invalid reduction operation %d",
                name_of(task->kind), operation);
  if (operation >= ncclNumOps) {
    const auto own = communicator.operators.find(operation);
    NCCLSIM_CHECK(own != communicator.operators.end(), ncclInvalidArgument,
                  "%s : reduction operation %d unknown to this communicator", name_of(task->kind), operation);
    NCCLSIM_CHECK(
        own->second.first == task->type, ncclInvalidArgument,
        "Data type supplied to user-created ncclRedOp_t does not match type given to reduction operation");
    *out = own->second.second;
    return ncclSuccess;
  }
  if (operation == ncclProd) out->combine = Combine::kProduct;
  if (operation == ncclMax) out->combine = Combine::kMax;
  if (operation == ncclMin) out->combine = Combine::kMin;
  if (operation != ncclAvg) return ncclSuccess;
  out->divides = is_integer(task->type);
  out->scales = !out->divides;
  if (out->scales) out->scalar = one_of(task->type, communicator.ranks);
  return ncclSuccess;
}

}  // namespace

ncclResult_t add_operation(ncclComm_t handle, Task task) {
  Communicator* communicator = nullptr;
  NCCLSIM_TRY(find(handle, &communicator));
  NCCLSIM_CHECK(!communicator->revoked, ncclInvalidUsage, "%s: communicator was revoked", name_of(task.kind));
  NCCLSIM_TRY(communicator->ensure_ready());
  NCCLSIM_CHECK(!communicator->finalized, ncclInvalidUsage, "%s: the communicator has been finalized",
                name_of(task.kind));
  NCCLSIM_TRY(check_arguments(*communicator, task));
  if (task.reduces()) NCCLSIM_TRY(find_reduction(*communicator, &task));
  // NCCL also omits empty collectives.
  if (task.is_collective() && task.count == 0) return ncclSuccess;
  Group::current().add_task(communicator, task);
  return ncclSuccess;
}

ncclResult_t launch(Communicator* communicator, const std::vector<Task>& tasks) {
  NCCLSIM_TRY(check_own_messages(*communicator, tasks));
  const Current current(communicator->context);
  NCCLSIM_TRY(current.result());
  std::lock_guard<std::mutex> lock(communicator->launches);
  const World world{&communicator->data, communicator->rank, communicator->ranks};
  auto batch = std::make_shared<Batch>();
  NCCLSIM_TRY(place(tasks, communicator->context, world, batch.get()));
  CUgraph graph = nullptr;
  NCCLSIM_TRY(capturing_graph(tasks, &graph));
  return graph != nullptr ? capture(communicator, batch, graph) : queue(communicator, batch);
}

}  // namespace ncclsim
