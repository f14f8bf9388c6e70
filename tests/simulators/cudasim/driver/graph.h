// SPDX-License-Identifier: Apache-2.0
// Graphs: nodes that hold work and what they need first. An executable graph is the same work in one order
// that keeps every need. It is queued on one stream at each launch (branches do not run side by side).
//
// Threads: everything under graphs_lock(). Handles are pointers; a handle that is none is found out by the
// sets of what exists.
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

// Memory of MEM_ALLOC nodes; it goes with the last graph that knows it, unless the program has freed it
// before.
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
// The program frees such memory itself: the graphs forget it.
void forget_graph_memory(std::uint64_t address);
bool is_graph_memory(std::uint64_t address);

struct Node {
  GraphBody* graph = nullptr;
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  Work work;
  std::vector<Node*> needs;
  std::shared_ptr<GraphBody> child;
  std::shared_ptr<GraphMemory> memory;
  std::vector<void*> parameters;   // of a kernel, for queries
  const Node* original = nullptr;  // in the graph that this one is a clone of
};

struct GraphBody {
  std::vector<std::unique_ptr<Node>> nodes;
  UserReferences user_references;
  Node* add(CUgraphNodeType type, Work work, std::vector<Node*> needs);
};

struct ExecutableGraph {
  struct Step {
    const Node* node;  // may be gone; only its address counts
    CUgraphNodeType type;
    Work work;
    bool enabled = true;
  };
  std::vector<Step> steps;
  std::vector<std::shared_ptr<GraphMemory>> memory;
  UserReferences user_references;
  cuuint64_t flags = 0;
  Event* last = nullptr;  // its last launch; one launch ends before the next begins
};

struct Graphs {
  std::set<GraphBody*> bodies;
  std::map<GraphBody*, std::shared_ptr<GraphBody>> owned;  // by the program
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
// The program owns it from now on; the handle to give out.
CUgraph give_graph(const std::shared_ptr<GraphBody>& body);
// Also of a child or a clone: all that `body` has.
std::shared_ptr<GraphBody> clone_graph(const GraphBody& body);
void destroy_node(Node* node);

// The nodes in an order that keeps all needs; false: there is a circle.
bool order_nodes(const GraphBody& body, std::vector<const Node*>* out);
CUresult instantiate(const GraphBody& body, ExecutableGraph* out);
// Without the lock: it may wait for a copy of pageable memory. As with the real driver, one graph is launched
// and changed by one thread at a time.
CUresult launch(ExecutableGraph* graph, Context* context, Stream* stream);

}  // namespace cudasim
