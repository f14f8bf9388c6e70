// SPDX-License-Identifier: Apache-2.0
// Graphs: nodes that hold work and their dependencies. An executable graph is the same work in one order that
// respects every dependency. Each launch queues the work on one stream, so branches do not run in parallel.
//
// Threads: everything under graphs_lock(). Handles are pointers; the sets of existing objects reveal invalid
// handles.
#pragma once

#include <cuda.h>

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "tests/simulators/cudasim/driver/user_object.h"
#include "tests/simulators/cudasim/driver/work.h"

namespace cudasim {

// Memory of MEM_ALLOC nodes. The last graph that refers to the memory frees it, unless the program has freed
// the memory earlier.
class GraphMemory {
 public:
  GraphMemory(std::uint64_t address, std::uint64_t bytes) : address_(address), bytes_(bytes) {}
  ~GraphMemory();
  GraphMemory(const GraphMemory&) = delete;
  GraphMemory& operator=(const GraphMemory&) = delete;
  [[nodiscard]] std::uint64_t address() const { return address_; }
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }

 private:
  std::uint64_t address_;
  std::uint64_t bytes_;
};
std::shared_ptr<GraphMemory> make_graph_memory(std::uint64_t address, std::uint64_t bytes);
// Makes the graphs forget memory that the program frees itself.
void forget_graph_memory(std::uint64_t address);
bool is_graph_memory(std::uint64_t address);

struct Node {
  GraphBody* graph = nullptr;
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  Work work;
  std::vector<Node*> needs;
  std::shared_ptr<GraphBody> child;
  std::shared_ptr<GraphMemory> memory;
  std::vector<void*> parameters;   // parameters of a kernel node, for queries
  const Node* original = nullptr;  // the corresponding node in the graph from which this graph was cloned
};

struct GraphBody {
  std::vector<std::unique_ptr<Node>> nodes;
  UserReferences user_references;
  Node* add(CUgraphNodeType type, Work work, std::vector<Node*> needs);
};

struct ExecutableGraph {
  struct Step {
    const Node* node;  // the node's address, which serves as a key only; the node may no longer exist
    CUgraphNodeType type;
    Work work;
    bool enabled = true;
  };
  std::vector<Step> steps;
  std::vector<std::shared_ptr<GraphMemory>> memory;
  UserReferences user_references;
  cuuint64_t flags = 0;
  Event* last = nullptr;  // end of the graph's last launch; a launch ends before the next launch begins
};

struct Graphs {
  std::set<GraphBody*> bodies;
  std::map<GraphBody*, std::shared_ptr<GraphBody>> owned;  // graphs that the program owns
  std::set<Node*> nodes;
  std::map<ExecutableGraph*, std::shared_ptr<ExecutableGraph>> executables;
};
std::mutex& graphs_lock();
Graphs& graphs();

inline GraphBody* from_handle(CUgraph handle) {
  return reinterpret_cast<GraphBody*>(handle);
}
inline Node* from_handle(CUgraphNode handle) {
  return reinterpret_cast<Node*>(handle);
}
inline CUgraph to_handle(GraphBody* body) {
  return reinterpret_cast<CUgraph>(body);
}
inline CUgraphNode to_handle(Node* node) {
  return reinterpret_cast<CUgraphNode>(node);
}

std::shared_ptr<GraphBody> make_graph();
// Transfers ownership of the graph to the program. Returns the handle for the program.
CUgraph give_graph(const std::shared_ptr<GraphBody>& body);
// Clones a graph with all its content. The graph may be a child or a clone.
std::shared_ptr<GraphBody> clone_graph(const GraphBody& body);
void destroy_node(Node* node);

// Returns the nodes in an order that respects all dependencies. Returns false if the dependencies form a
// cycle.
bool order_nodes(const GraphBody& body, std::vector<const Node*>* out);
CUresult instantiate(const GraphBody& body, ExecutableGraph* out);
// Launches a graph without the lock, since the launch may wait for a copy of pageable memory. As with the
// real driver, only one thread at a time launches or changes a graph.
CUresult launch(ExecutableGraph* graph, Context* context, Stream* stream);

}  // namespace cudasim
