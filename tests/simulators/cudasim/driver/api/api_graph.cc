// SPDX-License-Identifier: Apache-2.0
// Graphs as a whole: creation, queries, instantiation and launch. api_graph_nodes.cc has the nodes.
#include <algorithm>
#include <thread>

#include "tests/simulators/cudasim/driver/api.h"
#include "tests/simulators/cudasim/driver/graph.h"

namespace cudasim {
namespace {

using Lock = std::lock_guard<std::mutex>;

CUresult enter_graph(CUgraph handle, GraphBody** body) {
  CUDASIM_TRY(Process::get().ready());
  *body = from_handle(handle);
  return graphs().bodies.count(*body) > 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult enter_node(CUgraphNode handle, Node** node) {
  CUDASIM_TRY(Process::get().ready());
  *node = from_handle(handle);
  return graphs().nodes.count(*node) > 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult enter_executable(CUgraphExec handle, ExecutableGraph** graph) {
  CUDASIM_TRY(Process::get().ready());
  *graph = reinterpret_cast<ExecutableGraph*>(handle);
  return graphs().executables.count(*graph) > 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// Returns a list as the driver does: without space the call returns the count, and unused places are set to
// null.
CUresult give_list(const std::vector<Node*>& list, CUgraphNode* out, std::size_t* count) {
  CUDASIM_CHECK(count != nullptr, CUDA_ERROR_INVALID_VALUE);
  for (std::size_t i = 0; out != nullptr && i < *count; i++)
    out[i] = i < list.size() ? to_handle(list[i]) : nullptr;
  *count = out == nullptr ? list.size() : std::min(*count, list.size());
  return CUDA_SUCCESS;
}

struct Edge {
  Node* from;
  Node* to;
};

std::vector<Edge> edges_of(const GraphBody& body) {
  std::vector<Edge> edges;
  for (const std::unique_ptr<Node>& node : body.nodes) {
    for (Node* need : node->needs) edges.push_back({need, node.get()});
  }
  return edges;
}

CUresult get_edges(CUgraph graph, CUgraphNode* from, CUgraphNode* to, std::size_t* count) {
  Lock lock(graphs_lock());
  GraphBody* body = nullptr;
  CUDASIM_TRY(enter_graph(graph, &body));
  CUDASIM_CHECK((from == nullptr) == (to == nullptr), CUDA_ERROR_INVALID_VALUE);
  std::vector<Node*> froms;
  std::vector<Node*> tos;
  for (const Edge& edge : edges_of(*body)) {
    froms.push_back(edge.from);
    tos.push_back(edge.to);
  }
  std::size_t again = count != nullptr ? *count : 0;
  CUDASIM_TRY(give_list(froms, from, count));
  return give_list(tos, to, &again);
}

CUresult get_needs(CUgraphNode handle, CUgraphNode* out, std::size_t* count) {
  Lock lock(graphs_lock());
  Node* node = nullptr;
  CUDASIM_TRY(enter_node(handle, &node));
  return give_list(node->needs, out, count);
}

CUresult get_dependents(CUgraphNode handle, CUgraphNode* out, std::size_t* count) {
  Lock lock(graphs_lock());
  Node* node = nullptr;
  CUDASIM_TRY(enter_node(handle, &node));
  std::vector<Node*> found;
  for (const Edge& edge : edges_of(*node->graph)) {
    if (edge.from == node) found.push_back(edge.to);
  }
  return give_list(found, out, count);
}

CUresult change_needs(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to, std::size_t count,
                      bool add) {
  Lock lock(graphs_lock());
  GraphBody* body = nullptr;
  CUDASIM_TRY(enter_graph(graph, &body));
  CUDASIM_CHECK(count == 0 || (from != nullptr && to != nullptr), CUDA_ERROR_INVALID_VALUE);
  for (std::size_t i = 0; i < count; i++) {
    Node* need = nullptr;
    Node* node = nullptr;
    CUDASIM_TRY(enter_node(from[i], &need));
    CUDASIM_TRY(enter_node(to[i], &node));
    const auto found = std::find(node->needs.begin(), node->needs.end(), need);
    CUDASIM_CHECK(
        need != node && need->graph == body && node->graph == body && (found == node->needs.end()) == add,
        CUDA_ERROR_INVALID_VALUE);
    if (add)
      node->needs.push_back(need);
    else
      node->needs.erase(found);
  }
  return CUDA_SUCCESS;
}

CUresult make_executable(CUgraphExec* out, CUgraph graph, cuuint64_t flags) {
  constexpr cuuint64_t kKnown = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH |
                                CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
                                CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
  Lock lock(graphs_lock());
  GraphBody* body = nullptr;
  CUDASIM_TRY(enter_graph(graph, &body));
  CUDASIM_CHECK(out != nullptr, CUDA_ERROR_INVALID_VALUE);
  CUDASIM_CHECK((flags & ~kKnown) == 0, CUDA_ERROR_NOT_SUPPORTED);
  auto made = std::make_shared<ExecutableGraph>();
  CUDASIM_TRY(instantiate(*body, made.get()));
  made->flags = flags;
  *out = reinterpret_cast<CUgraphExec>(made.get());
  graphs().executables.emplace(made.get(), std::move(made));
  return CUDA_SUCCESS;
}

// Retains the references of a running launch until the launch has ended. The caller does not wait for the
// launch.
void drop_user_references(ExecutableGraph* graph) {
  if (graph->user_references.empty() || graph->last == nullptr) return;
  Context* context = graph->last->context;
  const std::uint64_t recorded = graph->last->recorded.load();
  const int slot = Event::slot_of(recorded);
  const std::uint64_t sequence = Event::sequence_of(recorded);
  if (recorded == 0 || context->completed(slot, sequence)) return;
  std::thread([context, slot, sequence, references = graph->user_references]() mutable {
    context->wait(slot, sequence);
    references.drop();
  }).detach();
}

// Updates a graph of the same shape: the same kinds of nodes in the same order with the same dependencies.
bool update(const GraphBody& body, ExecutableGraph* graph) {
  ExecutableGraph fresh;
  if (instantiate(body, &fresh) != CUDA_SUCCESS || fresh.steps.size() != graph->steps.size()) return false;
  for (std::size_t i = 0; i < fresh.steps.size(); i++) {
    if (fresh.steps[i].type != graph->steps[i].type) return false;
    fresh.steps[i].enabled = graph->steps[i].enabled;
    fresh.steps[i].node = graph->steps[i].node;
  }
  graph->steps = std::move(fresh.steps);
  graph->memory.insert(graph->memory.end(), fresh.memory.begin(), fresh.memory.end());
  graph->user_references.add(fresh.user_references);
  return true;
}

}  // namespace
}  // namespace cudasim

namespace cudasim::api {

CUresult cuGraphCreate(CUgraph* out, unsigned int flags) {
  CUDASIM_TRY(Process::get().ready());
  CUDASIM_CHECK(out != nullptr && flags == 0, CUDA_ERROR_INVALID_VALUE);
  Lock lock(graphs_lock());
  *out = give_graph(make_graph());
  return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph graph) {
  Lock lock(graphs_lock());
  GraphBody* body = nullptr;
  CUDASIM_TRY(enter_graph(graph, &body));
  // A child graph belongs to its node, so the program cannot destroy it.
  return graphs().owned.erase(body) > 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphClone(CUgraph* out, CUgraph graph) {
  Lock lock(graphs_lock());
  GraphBody* body = nullptr;
  CUDASIM_TRY(enter_graph(graph, &body));
  CUDASIM_CHECK(out != nullptr, CUDA_ERROR_INVALID_VALUE);
  *out = give_graph(clone_graph(*body));
  return CUDA_SUCCESS;
}

CUresult cuGraphNodeFindInClone(CUgraphNode* out, CUgraphNode original, CUgraph clone) {
  Lock lock(graphs_lock());
  GraphBody* body = nullptr;
  CUDASIM_TRY(enter_graph(clone, &body));
  CUDASIM_CHECK(out != nullptr, CUDA_ERROR_INVALID_VALUE);
  for (const std::unique_ptr<Node>& node : body->nodes) {
    if (node->original != from_handle(original)) continue;
    *out = to_handle(node.get());
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode* nodes, std::size_t* count) {
  Lock lock(graphs_lock());
  GraphBody* body = nullptr;
  CUDASIM_TRY(enter_graph(graph, &body));
  std::vector<Node*> all;
  for (const std::unique_ptr<Node>& node : body->nodes) all.push_back(node.get());
  return give_list(all, nodes, count);
}

CUresult cuGraphGetRootNodes(CUgraph graph, CUgraphNode* nodes, std::size_t* count) {
  Lock lock(graphs_lock());
  GraphBody* body = nullptr;
  CUDASIM_TRY(enter_graph(graph, &body));
  std::vector<Node*> roots;
  for (const std::unique_ptr<Node>& node : body->nodes) {
    if (node->needs.empty()) roots.push_back(node.get());
  }
  return give_list(roots, nodes, count);
}

CUresult cuGraphGetEdges(CUgraph graph, CUgraphNode* from, CUgraphNode* to, std::size_t* count) {
  return get_edges(graph, from, to, count);
}

CUresult cuGraphGetEdges_v2(CUgraph graph, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData* edges,
                            std::size_t* count) {
  CUDASIM_TRY(get_edges(graph, from, to, count));
  for (std::size_t i = 0; edges != nullptr && from != nullptr && i < *count; i++) edges[i] = {};
  return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode* needs, std::size_t* count) {
  return get_needs(node, needs, count);
}

CUresult cuGraphNodeGetDependencies_v2(CUgraphNode node, CUgraphNode* needs, CUgraphEdgeData* edges,
                                       std::size_t* count) {
  CUDASIM_TRY(get_needs(node, needs, count));
  for (std::size_t i = 0; edges != nullptr && needs != nullptr && i < *count; i++) edges[i] = {};
  return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetDependentNodes(CUgraphNode node, CUgraphNode* dependents, std::size_t* count) {
  return get_dependents(node, dependents, count);
}

CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode node, CUgraphNode* dependents, CUgraphEdgeData* edges,
                                         std::size_t* count) {
  CUDASIM_TRY(get_dependents(node, dependents, count));
  for (std::size_t i = 0; edges != nullptr && dependents != nullptr && i < *count; i++) edges[i] = {};
  return CUDA_SUCCESS;
}

CUresult cuGraphAddDependencies(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                std::size_t count) {
  return change_needs(graph, from, to, count, true);
}

CUresult cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                   const CUgraphEdgeData* edges, std::size_t count) {
  CUDASIM_CHECK(edges == nullptr, CUDA_ERROR_NOT_SUPPORTED);
  return change_needs(graph, from, to, count, true);
}

CUresult cuGraphRemoveDependencies(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                   std::size_t count) {
  return change_needs(graph, from, to, count, false);
}

CUresult cuGraphRemoveDependencies_v2(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                      const CUgraphEdgeData* edges, std::size_t count) {
  CUDASIM_CHECK(edges == nullptr, CUDA_ERROR_NOT_SUPPORTED);
  return change_needs(graph, from, to, count, false);
}

CUresult cuGraphNodeGetType(CUgraphNode handle, CUgraphNodeType* type) {
  Lock lock(graphs_lock());
  Node* node = nullptr;
  CUDASIM_TRY(enter_node(handle, &node));
  CUDASIM_CHECK(type != nullptr, CUDA_ERROR_INVALID_VALUE);
  *type = node->type;
  return CUDA_SUCCESS;
}

CUresult cuGraphDestroyNode(CUgraphNode handle) {
  Lock lock(graphs_lock());
  Node* node = nullptr;
  CUDASIM_TRY(enter_node(handle, &node));
  // A node that owns memory of a graph cannot be removed.
  CUDASIM_CHECK(node->memory == nullptr, CUDA_ERROR_NOT_SUPPORTED);
  destroy_node(node);
  return CUDA_SUCCESS;
}

CUresult cuGraphInstantiate(CUgraphExec* out, CUgraph graph, CUgraphNode* error_node, char* log,
                            std::size_t bytes) {
  if (error_node != nullptr) *error_node = nullptr;
  if (log != nullptr && bytes > 0) *log = '\0';
  return make_executable(out, graph, 0);
}

CUresult cuGraphInstantiate_v2(CUgraphExec* out, CUgraph graph, CUgraphNode* error_node, char* log,
                               std::size_t bytes) {
  if (error_node != nullptr) *error_node = nullptr;
  if (log != nullptr && bytes > 0) *log = '\0';
  return make_executable(out, graph, 0);
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec* out, CUgraph graph, unsigned long long flags) {
  return make_executable(out, graph, flags);
}

CUresult cuGraphInstantiateWithParams(CUgraphExec* out, CUgraph graph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS* parameters) {
  CUDASIM_CHECK(parameters != nullptr, CUDA_ERROR_INVALID_VALUE);
  parameters->hErrNode_out = nullptr;
  const CUresult result = make_executable(out, graph, parameters->flags);
  parameters->result_out =
      result == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS : CUDA_GRAPH_INSTANTIATE_ERROR;
  return result;
}

CUresult cuGraphExecGetFlags(CUgraphExec handle, cuuint64_t* flags) {
  Lock lock(graphs_lock());
  ExecutableGraph* graph = nullptr;
  CUDASIM_TRY(enter_executable(handle, &graph));
  CUDASIM_CHECK(flags != nullptr, CUDA_ERROR_INVALID_VALUE);
  *flags = graph->flags;
  return CUDA_SUCCESS;
}

CUresult cuGraphExecDestroy(CUgraphExec handle) {
  Lock lock(graphs_lock());
  ExecutableGraph* graph = nullptr;
  CUDASIM_TRY(enter_executable(handle, &graph));
  drop_user_references(graph);
  if (graph->last != nullptr && graph->last->alive) graph->last->context->destroy_event(graph->last);
  graphs().executables.erase(graph);
  return CUDA_SUCCESS;
}

CUresult cuGraphUpload(CUgraphExec handle, CUstream stream_handle) {
  Context* context = nullptr;
  Stream* stream = nullptr;
  CUDASIM_TRY(enter_stream(stream_handle, &context, &stream));
  Lock lock(graphs_lock());
  ExecutableGraph* graph = nullptr;
  return enter_executable(handle, &graph);  // the graph is already where it will run
}

CUresult cuGraphLaunch(CUgraphExec handle, CUstream stream_handle) {
  Context* context = nullptr;
  Stream* stream = nullptr;
  CUDASIM_TRY(enter_stream(stream_handle, &context, &stream));
  std::shared_ptr<ExecutableGraph> graph;
  {
    Lock lock(graphs_lock());
    ExecutableGraph* found = nullptr;
    CUDASIM_TRY(enter_executable(handle, &found));
    graph = graphs().executables[found];
  }
  // The graph would become a child graph, which is not supported here.
  CUDASIM_CHECK(stream->capture == nullptr, CUDA_ERROR_NOT_SUPPORTED);
  return launch(graph.get(), context, stream);
}

CUresult cuGraphExecUpdate_v2(CUgraphExec handle, CUgraph graph, CUgraphExecUpdateResultInfo* info) {
  Lock lock(graphs_lock());
  ExecutableGraph* executable = nullptr;
  GraphBody* body = nullptr;
  CUDASIM_TRY(enter_executable(handle, &executable));
  CUDASIM_TRY(enter_graph(graph, &body));
  CUDASIM_CHECK(info != nullptr, CUDA_ERROR_INVALID_VALUE);
  *info = {};
  if (update(*body, executable)) return CUDA_SUCCESS;
  info->result = CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
  return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
}

CUresult cuGraphExecUpdate(CUgraphExec handle, CUgraph graph, CUgraphNode* error_node,
                           CUgraphExecUpdateResult* result) {
  CUgraphExecUpdateResultInfo info{};
  const CUresult updated = api::cuGraphExecUpdate_v2(handle, graph, &info);
  if (error_node != nullptr) *error_node = nullptr;
  if (result != nullptr) *result = info.result;
  return updated;
}

CUresult cuGraphNodeSetEnabled(CUgraphExec handle, CUgraphNode node, unsigned int enabled) {
  Lock lock(graphs_lock());
  ExecutableGraph* graph = nullptr;
  CUDASIM_TRY(enter_executable(handle, &graph));
  for (ExecutableGraph::Step& step : graph->steps) {
    if (step.node != from_handle(node)) continue;
    const bool possible = step.type == CU_GRAPH_NODE_TYPE_KERNEL || step.type == CU_GRAPH_NODE_TYPE_MEMSET ||
                          step.type == CU_GRAPH_NODE_TYPE_MEMCPY;
    CUDASIM_CHECK(possible, CUDA_ERROR_INVALID_VALUE);
    step.enabled = enabled != 0;
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphNodeGetEnabled(CUgraphExec handle, CUgraphNode node, unsigned int* enabled) {
  Lock lock(graphs_lock());
  ExecutableGraph* graph = nullptr;
  CUDASIM_TRY(enter_executable(handle, &graph));
  for (const ExecutableGraph::Step& step : graph->steps) {
    if (step.node != from_handle(node) || enabled == nullptr) continue;
    *enabled = step.enabled ? 1 : 0;
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

}  // namespace cudasim::api
