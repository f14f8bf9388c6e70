// SPDX-License-Identifier: Apache-2.0
// The nodes of graphs: they are created with their dependencies, queried, and changed, also in an executable
// graph.
#include <algorithm>

#include "tests/simulators/cudasim/driver/api.h"
#include "tests/simulators/cudasim/driver/capture.h"
#include "tests/simulators/cudasim/driver/graph.h"

namespace cudasim {
namespace {

using Lock = std::lock_guard<std::mutex>;

struct Place {
  GraphBody* body = nullptr;
  std::vector<Node*> needs;
};

// Finds the place of a new node. The caller holds the lock.
CUresult find_place(CUgraph graph, const CUgraphNode* needs, std::size_t count, Place* place) {
  CUDASIM_TRY(Process::get().ready());
  place->body = from_handle(graph);
  CUDASIM_CHECK(graphs().bodies.count(place->body) > 0 && (count == 0 || needs != nullptr),
                CUDA_ERROR_INVALID_VALUE);
  for (std::size_t i = 0; i < count; i++) {
    Node* need = from_handle(needs[i]);
    const bool known = graphs().nodes.count(need) > 0 && need->graph == place->body;
    const bool twice = std::find(place->needs.begin(), place->needs.end(), need) != place->needs.end();
    CUDASIM_CHECK(known && !twice, CUDA_ERROR_INVALID_VALUE);
    place->needs.push_back(need);
  }
  return CUDA_SUCCESS;
}

CUresult add_node(CUgraphNode* out, CUgraph graph, const CUgraphNode* needs, std::size_t count,
                  CUgraphNodeType type, Work work, Node** made = nullptr) {
  CUDASIM_CHECK(out != nullptr, CUDA_ERROR_INVALID_VALUE);
  Place place;
  CUDASIM_TRY(find_place(graph, needs, count, &place));
  Node* node = place.body->add(type, std::move(work), std::move(place.needs));
  *out = to_handle(node);
  if (made != nullptr) *made = node;
  return CUDA_SUCCESS;
}

CUresult current(CUcontext given, Context** out) {
  if (given == nullptr) return enter(out);
  CUDASIM_TRY(Process::get().ready());
  Shared lock(Process::get().lock);
  CUDASIM_CHECK(Process::get().valid_context(from_handle(given)), CUDA_ERROR_INVALID_CONTEXT);
  *out = from_handle(given);
  return CUDA_SUCCESS;
}

CUresult make_kernel(const CUDA_KERNEL_NODE_PARAMS* given, Work* out) {
  CUDASIM_CHECK(given != nullptr, CUDA_ERROR_INVALID_VALUE);
  CUDASIM_CHECK(given->kern == nullptr || given->func != nullptr, CUDA_ERROR_NOT_SUPPORTED);
  const CUlaunchConfig config{
      given->gridDimX,  given->gridDimY,       given->gridDimZ, given->blockDimX, given->blockDimY,
      given->blockDimZ, given->sharedMemBytes, nullptr,         nullptr,          0};
  LaunchWork work;
  CUDASIM_CHECK(given->func != nullptr, CUDA_ERROR_INVALID_VALUE);
  CUDASIM_TRY(make_launch(from_handle(given->func), config, given->kernelParams, given->extra, &work));
  *out = std::move(work);
  return CUDA_SUCCESS;
}

CUDA_KERNEL_NODE_PARAMS newer(const CUDA_KERNEL_NODE_PARAMS_v1& given) {
  return {given.func,         given.gridDimX,  given.gridDimY,  given.gridDimZ,
          given.blockDimX,    given.blockDimY, given.blockDimZ, given.sharedMemBytes,
          given.kernelParams, given.extra,     nullptr,         nullptr};
}

CUresult make_copy_work(const CUDA_MEMCPY3D* given, CUcontext context_handle, Work* out) {
  CUDASIM_CHECK(given != nullptr, CUDA_ERROR_INVALID_VALUE);
  Context* context = nullptr;
  CUDASIM_TRY(current(context_handle, &context));
  CopyWork work;
  CUDASIM_TRY(make_copy(*given, &work));
  CUDASIM_TRY(check_copy(context, work));
  *out = work;
  return CUDA_SUCCESS;
}

CUresult make_set_work(const CUDA_MEMSET_NODE_PARAMS* given, CUcontext context_handle, Work* out) {
  CUDASIM_CHECK(given != nullptr, CUDA_ERROR_INVALID_VALUE);
  CUDASIM_CHECK(given->elementSize == 1 || given->elementSize == 2 || given->elementSize == 4,
                CUDA_ERROR_INVALID_VALUE);
  Context* context = nullptr;
  CUDASIM_TRY(current(context_handle, &context));
  const SetWork work{given->dst,   given->value,  given->elementSize,
                     given->width, given->height, given->height > 1 ? given->pitch : 0};
  CUDASIM_TRY(check_set(context, work));
  *out = work;
  return CUDA_SUCCESS;
}

CUresult make_host(const CUDA_HOST_NODE_PARAMS* given, Work* out) {
  CUDASIM_CHECK(given != nullptr && given->fn != nullptr, CUDA_ERROR_INVALID_VALUE);
  *out = HostWork{given->fn, given->userData};
  return CUDA_SUCCESS;
}

CUresult check_event(CUevent handle) {
  CUDASIM_CHECK(handle != nullptr && from_handle(handle)->alive, CUDA_ERROR_INVALID_HANDLE);
  return CUDA_SUCCESS;
}

// Returns the node and the node's own copy of its work.
template <typename T>
CUresult work_of(CUgraphNode handle, Node** node, T** work) {
  CUDASIM_TRY(Process::get().ready());
  *node = from_handle(handle);
  CUDASIM_CHECK(graphs().nodes.count(*node) > 0, CUDA_ERROR_INVALID_VALUE);
  *work = std::get_if<T>(&(*node)->work);
  return *work != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

template <typename T>
CUresult change_node(CUgraphNode handle, Work work) {
  Node* node = nullptr;
  T* own = nullptr;
  CUDASIM_TRY(work_of(handle, &node, &own));
  node->work = std::move(work);
  return CUDA_SUCCESS;
}

template <typename T>
CUresult change_step(CUgraphExec executable, CUgraphNode handle, Work work) {
  CUDASIM_TRY(Process::get().ready());
  auto* graph = reinterpret_cast<ExecutableGraph*>(executable);
  CUDASIM_CHECK(graphs().executables.count(graph) > 0, CUDA_ERROR_INVALID_VALUE);
  for (ExecutableGraph::Step& step : graph->steps) {
    if (step.node != from_handle(handle) || !std::holds_alternative<T>(step.work)) continue;
    step.work = std::move(work);
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult kernel_parameters(CUgraphNode handle, CUDA_KERNEL_NODE_PARAMS* out) {
  Node* node = nullptr;
  LaunchWork* work = nullptr;
  CUDASIM_TRY(work_of(handle, &node, &work));
  CUDASIM_CHECK(out != nullptr, CUDA_ERROR_INVALID_VALUE);
  node->parameters.clear();
  for (std::uint32_t i = 0; i < work->command.count; i++)
    node->parameters.push_back(work->arguments.data() + work->command.offsets[i]);
  *out = {};
  out->func = reinterpret_cast<CUfunction>(work->function);
  out->gridDimX = work->command.grid[0];
  out->gridDimY = work->command.grid[1];
  out->gridDimZ = work->command.grid[2];
  out->blockDimX = work->command.threads;
  out->blockDimY = 1;
  out->blockDimZ = 1;
  out->sharedMemBytes = work->command.shared_bytes;
  out->kernelParams = node->parameters.data();
  return CUDA_SUCCESS;
}

CUresult add_child(CUgraphNode* out, CUgraph graph, const CUgraphNode* needs, std::size_t count,
                   CUgraph child) {
  GraphBody* body = from_handle(child);
  CUDASIM_CHECK(graphs().bodies.count(body) > 0 && body != from_handle(graph), CUDA_ERROR_INVALID_VALUE);
  Node* node = nullptr;
  CUDASIM_TRY(add_node(out, graph, needs, count, CU_GRAPH_NODE_TYPE_GRAPH, EmptyWork{}, &node));
  node->child = clone_graph(*body);
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace cudasim

namespace cudasim::api {

CUresult cuGraphAddKernelNode_v2(CUgraphNode* out, CUgraph graph, const CUgraphNode* needs, std::size_t count,
                                 const CUDA_KERNEL_NODE_PARAMS* parameters) {
  Lock lock(graphs_lock());
  Work work;
  CUDASIM_TRY(make_kernel(parameters, &work));
  return add_node(out, graph, needs, count, CU_GRAPH_NODE_TYPE_KERNEL, std::move(work));
}

CUresult cuGraphAddKernelNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* needs, std::size_t count,
                              const CUDA_KERNEL_NODE_PARAMS_v1* parameters) {
  CUDASIM_CHECK(parameters != nullptr, CUDA_ERROR_INVALID_VALUE);
  const CUDA_KERNEL_NODE_PARAMS all = newer(*parameters);
  return api::cuGraphAddKernelNode_v2(out, graph, needs, count, &all);
}

CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS* parameters) {
  Lock lock(graphs_lock());
  return kernel_parameters(node, parameters);
}

CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS* parameters) {
  Lock lock(graphs_lock());
  Work work;
  CUDASIM_TRY(make_kernel(parameters, &work));
  return change_node<LaunchWork>(node, std::move(work));
}

CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec executable, CUgraphNode node,
                                           const CUDA_KERNEL_NODE_PARAMS* parameters) {
  Lock lock(graphs_lock());
  Work work;
  CUDASIM_TRY(make_kernel(parameters, &work));
  return change_step<LaunchWork>(executable, node, std::move(work));
}

CUresult cuGraphAddMemcpyNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* needs, std::size_t count,
                              const CUDA_MEMCPY3D* parameters, CUcontext context) {
  Work work;
  CUDASIM_TRY(make_copy_work(parameters, context, &work));
  Lock lock(graphs_lock());
  return add_node(out, graph, needs, count, CU_GRAPH_NODE_TYPE_MEMCPY, std::move(work));
}

CUresult cuGraphMemcpyNodeSetParams(CUgraphNode node, const CUDA_MEMCPY3D* parameters) {
  Work work;
  CUDASIM_TRY(make_copy_work(parameters, nullptr, &work));
  Lock lock(graphs_lock());
  return change_node<CopyWork>(node, std::move(work));
}

CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec executable, CUgraphNode node,
                                        const CUDA_MEMCPY3D* parameters, CUcontext context) {
  Work work;
  CUDASIM_TRY(make_copy_work(parameters, context, &work));
  Lock lock(graphs_lock());
  return change_step<CopyWork>(executable, node, std::move(work));
}

CUresult cuGraphMemcpyNodeGetParams(CUgraphNode handle, CUDA_MEMCPY3D* parameters) {
  Lock lock(graphs_lock());
  Node* node = nullptr;
  CopyWork* work = nullptr;
  CUDASIM_TRY(work_of(handle, &node, &work));
  CUDASIM_CHECK(parameters != nullptr, CUDA_ERROR_INVALID_VALUE);
  *parameters = {};
  parameters->srcMemoryType = CU_MEMORYTYPE_UNIFIED;
  parameters->srcDevice = work->from;
  parameters->srcPitch = work->from_row;
  parameters->srcHeight = work->from_row != 0 ? work->from_slice / work->from_row : 0;
  parameters->dstMemoryType = CU_MEMORYTYPE_UNIFIED;
  parameters->dstDevice = work->to;
  parameters->dstPitch = work->to_row;
  parameters->dstHeight = work->to_row != 0 ? work->to_slice / work->to_row : 0;
  parameters->WidthInBytes = work->bytes;
  parameters->Height = work->rows;
  parameters->Depth = work->slices;
  return CUDA_SUCCESS;
}

CUresult cuGraphAddMemsetNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* needs, std::size_t count,
                              const CUDA_MEMSET_NODE_PARAMS* parameters, CUcontext context) {
  Work work;
  CUDASIM_TRY(make_set_work(parameters, context, &work));
  Lock lock(graphs_lock());
  return add_node(out, graph, needs, count, CU_GRAPH_NODE_TYPE_MEMSET, std::move(work));
}

CUresult cuGraphMemsetNodeSetParams(CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS* parameters) {
  Work work;
  CUDASIM_TRY(make_set_work(parameters, nullptr, &work));
  Lock lock(graphs_lock());
  return change_node<SetWork>(node, std::move(work));
}

CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec executable, CUgraphNode node,
                                        const CUDA_MEMSET_NODE_PARAMS* parameters, CUcontext context) {
  Work work;
  CUDASIM_TRY(make_set_work(parameters, context, &work));
  Lock lock(graphs_lock());
  return change_step<SetWork>(executable, node, std::move(work));
}

CUresult cuGraphMemsetNodeGetParams(CUgraphNode handle, CUDA_MEMSET_NODE_PARAMS* parameters) {
  Lock lock(graphs_lock());
  Node* node = nullptr;
  SetWork* work = nullptr;
  CUDASIM_TRY(work_of(handle, &node, &work));
  CUDASIM_CHECK(parameters != nullptr, CUDA_ERROR_INVALID_VALUE);
  *parameters = {work->to, work->row_step, work->value, work->width, work->count, work->rows};
  return CUDA_SUCCESS;
}

CUresult cuGraphAddHostNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* needs, std::size_t count,
                            const CUDA_HOST_NODE_PARAMS* parameters) {
  Work work;
  CUDASIM_TRY(make_host(parameters, &work));
  Lock lock(graphs_lock());
  return add_node(out, graph, needs, count, CU_GRAPH_NODE_TYPE_HOST, std::move(work));
}

CUresult cuGraphHostNodeSetParams(CUgraphNode node, const CUDA_HOST_NODE_PARAMS* parameters) {
  Work work;
  CUDASIM_TRY(make_host(parameters, &work));
  Lock lock(graphs_lock());
  return change_node<HostWork>(node, std::move(work));
}

CUresult cuGraphExecHostNodeSetParams(CUgraphExec executable, CUgraphNode node,
                                      const CUDA_HOST_NODE_PARAMS* parameters) {
  Work work;
  CUDASIM_TRY(make_host(parameters, &work));
  Lock lock(graphs_lock());
  return change_step<HostWork>(executable, node, std::move(work));
}

CUresult cuGraphHostNodeGetParams(CUgraphNode handle, CUDA_HOST_NODE_PARAMS* parameters) {
  Lock lock(graphs_lock());
  Node* node = nullptr;
  HostWork* work = nullptr;
  CUDASIM_TRY(work_of(handle, &node, &work));
  CUDASIM_CHECK(parameters != nullptr, CUDA_ERROR_INVALID_VALUE);
  *parameters = {};
  parameters->fn = work->function;
  parameters->userData = work->data;
  return CUDA_SUCCESS;
}

CUresult cuGraphAddEmptyNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* needs, std::size_t count) {
  Lock lock(graphs_lock());
  return add_node(out, graph, needs, count, CU_GRAPH_NODE_TYPE_EMPTY, EmptyWork{});
}

CUresult cuGraphAddChildGraphNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* needs,
                                  std::size_t count, CUgraph child) {
  Lock lock(graphs_lock());
  return add_child(out, graph, needs, count, child);
}

CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode handle, CUgraph* graph) {
  Lock lock(graphs_lock());
  Node* node = from_handle(handle);
  CUDASIM_TRY(Process::get().ready());
  CUDASIM_CHECK(graphs().nodes.count(node) > 0 && node->child != nullptr && graph != nullptr,
                CUDA_ERROR_INVALID_VALUE);
  *graph = to_handle(node->child.get());
  return CUDA_SUCCESS;
}

CUresult cuGraphAddEventRecordNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* needs,
                                   std::size_t count, CUevent event) {
  CUDASIM_TRY(check_event(event));
  Lock lock(graphs_lock());
  return add_node(out, graph, needs, count, CU_GRAPH_NODE_TYPE_EVENT_RECORD, RecordWork{from_handle(event)});
}

CUresult cuGraphAddEventWaitNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* needs, std::size_t count,
                                 CUevent event) {
  CUDASIM_TRY(check_event(event));
  Lock lock(graphs_lock());
  return add_node(out, graph, needs, count, CU_GRAPH_NODE_TYPE_WAIT_EVENT, WaitWork{from_handle(event)});
}

CUresult cuGraphAddMemAllocNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* needs, std::size_t count,
                                CUDA_MEM_ALLOC_NODE_PARAMS* parameters) {
  Context* context = nullptr;
  CUDASIM_TRY(enter(&context));
  CUDASIM_CHECK(parameters != nullptr && parameters->bytesize > 0, CUDA_ERROR_INVALID_VALUE);
  CUDASIM_CHECK(parameters->poolProps.allocType == CU_MEM_ALLOCATION_TYPE_PINNED &&
                    parameters->poolProps.handleTypes == CU_MEM_HANDLE_TYPE_NONE &&
                    parameters->poolProps.location.type == CU_MEM_LOCATION_TYPE_DEVICE,
                CUDA_ERROR_INVALID_VALUE);
  CUDASIM_CHECK(parameters->poolProps.location.id == context->ordinal(), CUDA_ERROR_NOT_SUPPORTED);
  std::uint64_t address = 0;
  CUDASIM_TRY(allocate_in(context, parameters->bytesize, &address));
  Lock lock(graphs_lock());
  const std::shared_ptr<GraphMemory> memory = make_graph_memory(address, parameters->bytesize);
  Node* node = nullptr;
  CUDASIM_TRY(add_node(out, graph, needs, count, CU_GRAPH_NODE_TYPE_MEM_ALLOC,
                       AllocateWork{address, parameters->bytesize}, &node));
  node->memory = memory;
  parameters->dptr = address;
  return CUDA_SUCCESS;
}

CUresult cuGraphAddMemFreeNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* needs, std::size_t count,
                               CUdeviceptr address) {
  Lock lock(graphs_lock());
  return add_node(out, graph, needs, count, CU_GRAPH_NODE_TYPE_MEM_FREE, FreeWork{address});
}

CUresult cuGraphMemFreeNodeGetParams(CUgraphNode handle, CUdeviceptr* address) {
  Lock lock(graphs_lock());
  Node* node = nullptr;
  FreeWork* work = nullptr;
  CUDASIM_TRY(work_of(handle, &node, &work));
  CUDASIM_CHECK(address != nullptr, CUDA_ERROR_INVALID_VALUE);
  *address = work->address;
  return CUDA_SUCCESS;
}

CUresult cuGraphAddNode_v2(CUgraphNode* out, CUgraph graph, const CUgraphNode* needs,
                           const CUgraphEdgeData* edges, std::size_t count, CUgraphNodeParams* parameters) {
  CUDASIM_CHECK(parameters != nullptr, CUDA_ERROR_INVALID_VALUE);
  CUDASIM_CHECK(edges == nullptr, CUDA_ERROR_NOT_SUPPORTED);
  switch (parameters->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: {
      const CUDA_KERNEL_NODE_PARAMS_v3& given = parameters->kernel;
      const CUDA_KERNEL_NODE_PARAMS kernel{given.func,      given.gridDimX,       given.gridDimY,
                                           given.gridDimZ,  given.blockDimX,      given.blockDimY,
                                           given.blockDimZ, given.sharedMemBytes, given.kernelParams,
                                           given.extra,     given.kern,           given.ctx};
      return api::cuGraphAddKernelNode_v2(out, graph, needs, count, &kernel);
    }
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return api::cuGraphAddMemcpyNode(out, graph, needs, count, &parameters->memcpy.copyParams,
                                       parameters->memcpy.copyCtx);
    case CU_GRAPH_NODE_TYPE_MEMSET: {
      const CUDA_MEMSET_NODE_PARAMS_v2& given = parameters->memset;
      const CUDA_MEMSET_NODE_PARAMS set{given.dst,         given.pitch, given.value,
                                        given.elementSize, given.width, given.height};
      return api::cuGraphAddMemsetNode(out, graph, needs, count, &set, given.ctx);
    }
    case CU_GRAPH_NODE_TYPE_HOST: {
      CUDA_HOST_NODE_PARAMS host{};
      host.fn = parameters->host.fn;
      host.userData = parameters->host.userData;
      return api::cuGraphAddHostNode(out, graph, needs, count, &host);
    }
    case CU_GRAPH_NODE_TYPE_GRAPH:
      return api::cuGraphAddChildGraphNode(out, graph, needs, count, parameters->graph.graph);
    case CU_GRAPH_NODE_TYPE_EMPTY:
      return api::cuGraphAddEmptyNode(out, graph, needs, count);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      return api::cuGraphAddEventWaitNode(out, graph, needs, count, parameters->eventWait.event);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return api::cuGraphAddEventRecordNode(out, graph, needs, count, parameters->eventRecord.event);
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
}

CUresult cuGraphAddNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* needs, std::size_t count,
                        CUgraphNodeParams* parameters) {
  return api::cuGraphAddNode_v2(out, graph, needs, nullptr, count, parameters);
}

}  // namespace cudasim::api
