// SPDX-License-Identifier: Apache-2.0
// Tests of graphs and stream capture.
#include <atomic>
#include <chrono>
#include <future>

#include "tests/conformance/support/support.h"

namespace conformance {
namespace {

class GraphTest : public DriverTest {
 protected:
  void SetUp() override {
    DriverTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    module_ = load_kernels();
    ASSERT_NE(nullptr, module_);
    ASSERT_OK(api().cuMemAlloc_v2(&memory_, kBytes));
    ASSERT_OK(api().cuMemsetD8_v2(memory_, 0, kBytes));
    ASSERT_OK(api().cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
    ASSERT_OK(api().cuStreamCreate(&other_, CU_STREAM_NON_BLOCKING));
    ASSERT_OK(api().cuEventCreate(&event_, CU_EVENT_DISABLE_TIMING));
  }
  void TearDown() override {
    if (event_ != nullptr) {
      EXPECT_OK(api().cuEventDestroy_v2(event_));
      EXPECT_OK(api().cuStreamDestroy_v2(stream_));
      EXPECT_OK(api().cuStreamDestroy_v2(other_));
      EXPECT_OK(api().cuMemFree_v2(memory_));
      EXPECT_OK(api().cuModuleUnload(module_));
    }
    DriverTest::TearDown();
  }
  [[nodiscard]] CUDA_KERNEL_NODE_PARAMS adding(void** arguments) const {
    CUDA_KERNEL_NODE_PARAMS parameters{};
    parameters.func = kernel(module_, "add_one");
    parameters.gridDimX = 2;
    parameters.gridDimY = parameters.gridDimZ = 1;
    parameters.blockDimX = 32;
    parameters.blockDimY = parameters.blockDimZ = 1;
    parameters.kernelParams = arguments;
    return parameters;
  }
  CUresult add_one(CUstream stream, std::uint64_t count = 64) {
    return launch(kernel(module_, "add_one"), 2, 32, stream, std::uint64_t{memory_}, count);
  }
  [[nodiscard]] std::uint32_t word(std::size_t index = 0) const {
    return read_words(memory_ + 4 * index, 1)[0];
  }
  [[nodiscard]] CUstreamCaptureStatus status(CUstream stream) const {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    EXPECT_OK(api().cuStreamIsCapturing(stream, &status));
    return status;
  }
  void run(CUgraph graph, int times) {
    CUgraphExec executable = nullptr;
    ASSERT_OK(api().cuGraphInstantiateWithFlags(&executable, graph, 0));
    for (int i = 0; i < times; i++) ASSERT_OK(api().cuGraphLaunch(executable, stream_));
    ASSERT_OK(api().cuStreamSynchronize(stream_));
    EXPECT_OK(api().cuGraphExecDestroy(executable));
  }
  static std::size_t nodes_of(CUgraph graph) {
    std::size_t count = 0;
    EXPECT_OK(api().cuGraphGetNodes(graph, nullptr, &count));
    return count;
  }
  static constexpr std::size_t kBytes = kMiB;
  CUmodule module_ = nullptr;
  CUdeviceptr memory_ = 0;
  CUstream stream_ = nullptr;
  CUstream other_ = nullptr;
  CUevent event_ = nullptr;
};

TEST_F(GraphTest, GraphNodesRunInDependencyOrder) {
  CUgraph graph = nullptr;
  ASSERT_OK(api().cuGraphCreate(&graph, 0));
  CUDA_MEMSET_NODE_PARAMS set{};
  set.dst = memory_;
  set.value = 5;
  set.elementSize = 4;
  set.width = 64;
  set.height = 1;
  std::uint64_t count = 64;
  void* arguments[] = {&memory_, &count};
  CUgraphNode setting = nullptr;
  CUgraphNode adding_node = nullptr;
  CUgraphNode copying = nullptr;
  CUgraphNode joining = nullptr;
  const CUDA_KERNEL_NODE_PARAMS kernel_parameters = adding(arguments);
  ASSERT_OK(api().cuGraphAddMemsetNode(&setting, graph, nullptr, 0, &set, context_));
  ASSERT_OK(api().cuGraphAddKernelNode_v2(&adding_node, graph, &setting, 1, &kernel_parameters));
  CUDA_MEMCPY3D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = memory_;
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = memory_ + 4096;
  copy.WidthInBytes = 256;
  copy.Height = 1;
  copy.Depth = 1;
  ASSERT_OK(api().cuGraphAddMemcpyNode(&copying, graph, &adding_node, 1, &copy, context_));
  ASSERT_OK(api().cuGraphAddEmptyNode(&joining, graph, &copying, 1));
  CUgraphNodeType type{};
  ASSERT_OK(api().cuGraphNodeGetType(copying, &type));
  EXPECT_EQ(CU_GRAPH_NODE_TYPE_MEMCPY, type);
  EXPECT_EQ(4U, nodes_of(graph));
  CUgraphNode roots[2] = {};
  std::size_t number = 2;
  ASSERT_OK(api().cuGraphGetRootNodes(graph, roots, &number));
  EXPECT_EQ(1U, number);
  EXPECT_EQ(setting, roots[0]);
  run(graph, 3);
  EXPECT_EQ(6U, word());
  EXPECT_EQ(6U, word(1024 + 63));
  EXPECT_EQ(0U, word(64));
  EXPECT_OK(api().cuGraphDestroy(graph));
}

TEST_F(GraphTest, AnExecutableGraphIsChangedIndependentlyOfItsGraph) {
  CUgraph graph = nullptr;
  ASSERT_OK(api().cuGraphCreate(&graph, 0));
  std::uint64_t count = 64;
  void* arguments[] = {&memory_, &count};
  CUDA_KERNEL_NODE_PARAMS parameters = adding(arguments);
  CUgraphNode node = nullptr;
  ASSERT_OK(api().cuGraphAddKernelNode_v2(&node, graph, nullptr, 0, &parameters));
  CUgraphExec executable = nullptr;
  ASSERT_OK(api().cuGraphInstantiateWithFlags(&executable, graph, 0));
  count = 8;
  ASSERT_OK(api().cuGraphKernelNodeSetParams_v2(node, &parameters));
  ASSERT_OK(api().cuGraphLaunch(executable, stream_));
  ASSERT_OK(api().cuStreamSynchronize(stream_));
  EXPECT_EQ(1U, word(63));
  ASSERT_OK(api().cuGraphExecKernelNodeSetParams_v2(executable, node, &parameters));
  ASSERT_OK(api().cuGraphDestroy(graph));
  ASSERT_OK(api().cuGraphLaunch(executable, stream_));
  ASSERT_OK(api().cuStreamSynchronize(stream_));
  EXPECT_EQ(2U, word(7));
  EXPECT_EQ(1U, word(63));
  EXPECT_OK(api().cuGraphExecDestroy(executable));
}

TEST_F(GraphTest, ChildGraphsAndHostNodesRun) {
  std::atomic<int> calls{0};
  CUgraph child = nullptr;
  CUgraph graph = nullptr;
  CUgraphNode node = nullptr;
  ASSERT_OK(api().cuGraphCreate(&child, 0));
  ASSERT_OK(api().cuGraphCreate(&graph, 0));
  CUDA_HOST_NODE_PARAMS host{};
  host.fn = [](void* count) { ++*static_cast<std::atomic<int>*>(count); };
  host.userData = &calls;
  ASSERT_OK(api().cuGraphAddHostNode(&node, child, nullptr, 0, &host));
  CUgraphNode first = nullptr;
  ASSERT_OK(api().cuGraphAddChildGraphNode(&first, graph, nullptr, 0, child));
  ASSERT_OK(api().cuGraphAddChildGraphNode(&node, graph, &first, 1, child));
  ASSERT_OK(api().cuGraphDestroy(child));
  run(graph, 2);
  EXPECT_EQ(4, calls.load());
  EXPECT_OK(api().cuGraphDestroy(graph));
}

TEST_F(GraphTest, ADependencyCycleIsRefused) {
  CUgraph graph = nullptr;
  CUgraphNode one = nullptr;
  CUgraphNode two = nullptr;
  ASSERT_OK(api().cuGraphCreate(&graph, 0));
  ASSERT_OK(api().cuGraphAddEmptyNode(&one, graph, nullptr, 0));
  ASSERT_OK(api().cuGraphAddEmptyNode(&two, graph, &one, 1));
  const CUgraphNode twice[] = {one, one};
  CUgraphNode three = nullptr;
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, api().cuGraphAddEmptyNode(&three, graph, twice, 2));
  EXPECT_OK(api().cuGraphDestroyNode(two));
  EXPECT_EQ(1U, nodes_of(graph));
  EXPECT_OK(api().cuGraphDestroy(graph));
}

TEST_F(GraphTest, CapturedWorkOfAStreamBecomesAGraph) {
  CUgraph graph = nullptr;
  EXPECT_CUDA(CUDA_ERROR_ILLEGAL_STATE, api().cuStreamEndCapture(stream_, &graph));
  ASSERT_OK(api().cuStreamBeginCapture_v2(stream_, CU_STREAM_CAPTURE_MODE_GLOBAL));
  EXPECT_EQ(CU_STREAM_CAPTURE_STATUS_ACTIVE, status(stream_));
  ASSERT_OK(api().cuMemsetD32Async(memory_, 1, 64, stream_));
  ASSERT_OK(add_one(stream_));
  ASSERT_OK(api().cuMemcpyDtoDAsync_v2(memory_ + 4096, memory_, 256, stream_));
  ASSERT_OK(api().cuStreamEndCapture(stream_, &graph));
  EXPECT_EQ(CU_STREAM_CAPTURE_STATUS_NONE, status(stream_));
  EXPECT_EQ(0U, word());
  EXPECT_EQ(3U, nodes_of(graph));
  run(graph, 2);
  EXPECT_EQ(2U, word());
  EXPECT_EQ(2U, word(1024));
  EXPECT_OK(api().cuGraphDestroy(graph));
}

TEST_F(GraphTest, AStreamThatJoinsACaptureThroughAnEventMustRejoinTheOrigin) {
  CUgraph graph = nullptr;
  ASSERT_OK(api().cuStreamBeginCapture_v2(stream_, CU_STREAM_CAPTURE_MODE_GLOBAL));
  ASSERT_OK(api().cuMemsetD32Async(memory_, 1, 64, stream_));
  ASSERT_OK(api().cuEventRecord(event_, stream_));
  ASSERT_OK(api().cuStreamWaitEvent(other_, event_, 0));
  EXPECT_EQ(CU_STREAM_CAPTURE_STATUS_ACTIVE, status(other_));
  ASSERT_OK(add_one(other_));
  ASSERT_OK(api().cuEventRecord(event_, other_));
  ASSERT_OK(api().cuStreamWaitEvent(stream_, event_, 0));
  ASSERT_OK(add_one(stream_));
  ASSERT_OK(api().cuStreamEndCapture(stream_, &graph));
  EXPECT_EQ(CU_STREAM_CAPTURE_STATUS_NONE, status(other_));
  run(graph, 1);
  EXPECT_EQ(3U, word());
  EXPECT_OK(api().cuGraphDestroy(graph));

  ASSERT_OK(api().cuStreamBeginCapture_v2(stream_, CU_STREAM_CAPTURE_MODE_GLOBAL));
  ASSERT_OK(api().cuEventRecord(event_, stream_));
  ASSERT_OK(api().cuStreamWaitEvent(other_, event_, 0));
  ASSERT_OK(add_one(other_));
  EXPECT_CUDA(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, api().cuStreamEndCapture(stream_, &graph));
  EXPECT_EQ(nullptr, graph);
  EXPECT_EQ(CU_STREAM_CAPTURE_STATUS_NONE, status(other_));
}

TEST_F(GraphTest, WaitingForACapturingStreamInvalidatesTheCapture) {
  CUgraph graph = nullptr;
  ASSERT_OK(api().cuStreamBeginCapture_v2(stream_, CU_STREAM_CAPTURE_MODE_RELAXED));
  EXPECT_CUDA(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, api().cuStreamSynchronize(stream_));
  EXPECT_EQ(CU_STREAM_CAPTURE_STATUS_INVALIDATED, status(stream_));
  EXPECT_CUDA(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, add_one(stream_));
  EXPECT_CUDA(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, api().cuStreamEndCapture(stream_, &graph));
  EXPECT_OK(add_one(stream_));
  EXPECT_OK(api().cuStreamSynchronize(stream_));
}

TEST_F(GraphTest, TheDefaultStreamCannotCapture) {
  EXPECT_CUDA(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
              api().cuStreamBeginCapture_v2(nullptr, CU_STREAM_CAPTURE_MODE_GLOBAL));
}

TEST_F(GraphTest, UseOfTheDefaultStreamIsRefusedWhileABlockingStreamCaptures) {
  CUstream blocking = nullptr;
  CUgraph graph = nullptr;
  ASSERT_OK(api().cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
  ASSERT_OK(api().cuStreamBeginCapture_v2(blocking, CU_STREAM_CAPTURE_MODE_RELAXED));
  EXPECT_CUDA(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, add_one(nullptr));
  EXPECT_CUDA(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, api().cuStreamEndCapture(blocking, &graph));
  EXPECT_OK(api().cuStreamDestroy_v2(blocking));
}

TEST_F(GraphTest, ACaptureRefusesAllocationsExceptInRelaxedMode) {
  CUgraph graph = nullptr;
  CUdeviceptr more = 0;
  ASSERT_OK(api().cuStreamBeginCapture_v2(stream_, CU_STREAM_CAPTURE_MODE_GLOBAL));
  EXPECT_CUDA(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, api().cuMemAlloc_v2(&more, 4096));
  EXPECT_CUDA(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, api().cuStreamEndCapture(stream_, &graph));
  ASSERT_OK(api().cuStreamBeginCapture_v2(stream_, CU_STREAM_CAPTURE_MODE_RELAXED));
  EXPECT_OK(api().cuMemAlloc_v2(&more, 4096));
  ASSERT_OK(api().cuStreamEndCapture(stream_, &graph));
  EXPECT_OK(api().cuMemFree_v2(more));
  EXPECT_OK(api().cuGraphDestroy(graph));
}

TEST_F(GraphTest, ACapturingStreamHasNoStreamId) {
  unsigned long long number = 0;
  CUgraph graph = nullptr;
  EXPECT_OK(api().cuStreamGetId(stream_, &number));
  ASSERT_OK(api().cuStreamBeginCapture_v2(stream_, CU_STREAM_CAPTURE_MODE_RELAXED));
  EXPECT_CUDA(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, api().cuStreamGetId(stream_, &number));
  EXPECT_CUDA(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, api().cuStreamEndCapture(stream_, &graph));
}

TEST_F(GraphTest, AllocationsDuringACaptureBelongToTheGraph) {
  CUgraph graph = nullptr;
  CUdeviceptr own = 0;
  ASSERT_OK(api().cuStreamBeginCapture_v2(stream_, CU_STREAM_CAPTURE_MODE_GLOBAL));
  ASSERT_OK(api().cuMemAllocAsync(&own, 4096, stream_));
  ASSERT_OK(api().cuMemsetD32Async(own, 9, 64, stream_));
  ASSERT_OK(api().cuMemcpyDtoDAsync_v2(memory_, own, 256, stream_));
  ASSERT_OK(api().cuMemFreeAsync(own, stream_));
  ASSERT_OK(api().cuStreamEndCapture(stream_, &graph));
  EXPECT_EQ(4U, nodes_of(graph));
  run(graph, 2);
  EXPECT_EQ(9U, word(63));
  EXPECT_OK(api().cuGraphDestroy(graph));
}

// A flag that a user object's destructor sets. The driver calls the destructor from its own thread.
class Destroyed {
 public:
  static void set(void* object) { static_cast<Destroyed*>(object)->promise_.set_value(); }
  [[nodiscard]] bool within(std::chrono::milliseconds time) {
    return future_.wait_for(time) == std::future_status::ready;
  }

 private:
  std::promise<void> promise_;
  std::future<void> future_ = promise_.get_future();
};

TEST_F(GraphTest, AUserObjectIsDestroyedAfterTheGraphsThatRetainTheObject) {
  Destroyed destroyed;
  CUuserObject object = nullptr;
  CUgraph graph = nullptr;
  CUgraphExec executable = nullptr;
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, api().cuUserObjectCreate(&object, &destroyed, Destroyed::set, 1, 0));
  ASSERT_OK(
      api().cuUserObjectCreate(&object, &destroyed, Destroyed::set, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
  ASSERT_OK(api().cuStreamBeginCapture_v2(stream_, CU_STREAM_CAPTURE_MODE_RELAXED));
  ASSERT_OK(add_one(stream_));
  ASSERT_OK(api().cuStreamEndCapture(stream_, &graph));
  ASSERT_OK(api().cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
  ASSERT_OK(api().cuGraphInstantiateWithFlags(&executable, graph, 0));
  EXPECT_OK(api().cuGraphDestroy(graph));
  EXPECT_FALSE(destroyed.within(std::chrono::milliseconds(0)));
  Gate gate(stream_);
  ASSERT_OK(api().cuGraphLaunch(executable, stream_));
  EXPECT_OK(api().cuGraphExecDestroy(executable));
  EXPECT_FALSE(destroyed.within(std::chrono::milliseconds(100)));  // the launch has not ended
  gate.open();
  EXPECT_TRUE(destroyed.within(std::chrono::minutes(1)));
  ASSERT_OK(api().cuStreamSynchronize(stream_));
}

TEST_F(GraphTest, AUserObjectIsDestroyedWithItsLastReference) {
  Destroyed destroyed;
  CUuserObject object = nullptr;
  CUgraph graph = nullptr;
  ASSERT_OK(
      api().cuUserObjectCreate(&object, &destroyed, Destroyed::set, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
  ASSERT_OK(api().cuGraphCreate(&graph, 0));
  ASSERT_OK(api().cuGraphRetainUserObject(graph, object, 2, 0));
  ASSERT_OK(api().cuUserObjectRetain(object, 1));
  ASSERT_OK(api().cuUserObjectRelease(object, 2));
  ASSERT_OK(api().cuGraphReleaseUserObject(graph, object, 1));
  EXPECT_FALSE(destroyed.within(std::chrono::milliseconds(0)));
  ASSERT_OK(api().cuGraphDestroy(graph));
  EXPECT_TRUE(destroyed.within(std::chrono::minutes(1)));
}

}  // namespace
}  // namespace conformance
