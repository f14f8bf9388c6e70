// SPDX-License-Identifier: Apache-2.0
#include "tests/simulators/cudasim/driver/graph.h"

#include <algorithm>

#include "tests/simulators/cudasim/driver/api.h"

namespace cudasim {
namespace {

// Returns the memory of graphs that the program has not freed itself.
std::set<std::uint64_t>& graph_memory() {
  static auto* addresses = new std::set<std::uint64_t>;
  return *addresses;
}

std::mutex& memory_lock() {
  static constinit std::mutex lock;
  return lock;
}

void delete_body(GraphBody* body) {
  for (const std::unique_ptr<Node>& node : body->nodes) graphs().nodes.erase(node.get());
  graphs().bodies.erase(body);
  delete body;
}

}  // namespace

GraphMemory::~GraphMemory() {
  {
    std::lock_guard<std::mutex> lock(memory_lock());
    if (graph_memory().erase(address_) == 0) return;
  }
  Exclusive lock(Process::get().lock);
  Memory::get().free_block(address_);
}

void forget_graph_memory(std::uint64_t address) {
  std::lock_guard<std::mutex> lock(memory_lock());
  graph_memory().erase(address);
}

bool is_graph_memory(std::uint64_t address) {
  std::lock_guard<std::mutex> lock(memory_lock());
  return graph_memory().count(address) > 0;
}

std::shared_ptr<GraphMemory> make_graph_memory(std::uint64_t address, std::uint64_t bytes) {
  std::lock_guard<std::mutex> lock(memory_lock());
  graph_memory().insert(address);
  return std::make_shared<GraphMemory>(address, bytes);
}

std::mutex& graphs_lock() {
  static constinit std::mutex lock;
  return lock;
}

Graphs& graphs() {
  static auto* all = new Graphs;
  return *all;
}

Node* GraphBody::add(CUgraphNodeType type, Work work, std::vector<Node*> needs) {
  Node* node = nodes.emplace_back(std::make_unique<Node>()).get();
  node->graph = this;
  node->type = type;
  node->work = std::move(work);
  node->needs = std::move(needs);
  graphs().nodes.insert(node);
  return node;
}

std::shared_ptr<GraphBody> make_graph() {
  std::shared_ptr<GraphBody> body(new GraphBody, delete_body);
  graphs().bodies.insert(body.get());
  return body;
}

CUgraph give_graph(const std::shared_ptr<GraphBody>& body) {
  graphs().owned[body.get()] = body;
  return to_handle(body.get());
}

std::shared_ptr<GraphBody> clone_graph(const GraphBody& body) {
  std::shared_ptr<GraphBody> copy = make_graph();
  copy->user_references = body.user_references;
  std::map<const Node*, Node*> made;
  for (const std::unique_ptr<Node>& node : body.nodes) {
    Node* fresh = copy->add(node->type, node->work, {});
    fresh->memory = node->memory;
    fresh->original = node.get();
    if (node->child != nullptr) fresh->child = clone_graph(*node->child);
    made[node.get()] = fresh;
  }
  for (const std::unique_ptr<Node>& node : body.nodes) {
    for (const Node* need : node->needs) made[node.get()]->needs.push_back(made[need]);
  }
  return copy;
}

void destroy_node(Node* node) {
  GraphBody* body = node->graph;
  for (const std::unique_ptr<Node>& other : body->nodes) std::erase(other->needs, node);
  graphs().nodes.erase(node);
  std::erase_if(body->nodes, [node](const std::unique_ptr<Node>& other) { return other.get() == node; });
}

bool order_nodes(const GraphBody& body, std::vector<const Node*>* out) {
  std::map<const Node*, std::size_t> waits;
  std::map<const Node*, std::vector<const Node*>> needed_by;
  for (const std::unique_ptr<Node>& node : body.nodes) {
    waits[node.get()] = node->needs.size();
    for (const Node* need : node->needs) needed_by[need].push_back(node.get());
  }
  for (const std::unique_ptr<Node>& node : body.nodes) {
    if (node->needs.empty()) out->push_back(node.get());
  }
  for (std::size_t i = 0; i < out->size(); i++) {
    for (const Node* next : needed_by[(*out)[i]]) {
      if (--waits[next] == 0) out->push_back(next);
    }
  }
  return out->size() == body.nodes.size();
}

CUresult instantiate(const GraphBody& body, ExecutableGraph* out) {
  std::vector<const Node*> ordered;
  CUDASIM_CHECK(order_nodes(body, &ordered), CUDA_ERROR_INVALID_VALUE);
  out->user_references.add(body.user_references);
  for (const Node* node : ordered) {
    if (node->memory != nullptr) out->memory.push_back(node->memory);
    if (node->child != nullptr) CUDASIM_TRY(instantiate(*node->child, out));
    out->steps.push_back({node, node->type, node->work});
  }
  return CUDA_SUCCESS;
}

CUresult launch(ExecutableGraph* graph, Context* context, Stream* stream) {
  for (const ExecutableGraph::Step& step : graph->steps) {
    const auto* kernel = std::get_if<LaunchWork>(&step.work);
    CUDASIM_CHECK(kernel == nullptr || kernel->function->context == context, CUDA_ERROR_INVALID_VALUE);
  }
  if (graph->last != nullptr && graph->last->context != context) {
    CUDASIM_TRY(queue_wait(context, stream, graph->last));
    graph->last->context->destroy_event(graph->last);
    graph->last = nullptr;
  }
  if (graph->last == nullptr) CUDASIM_TRY(context->create_event(CU_EVENT_DISABLE_TIMING, &graph->last));
  CUDASIM_TRY(queue_wait(context, stream, graph->last));
  for (const ExecutableGraph::Step& step : graph->steps) {
    if (step.enabled) CUDASIM_TRY(queue_work(context, stream, step.work));
  }
  return queue_record(context, stream, graph->last);
}

}  // namespace cudasim
