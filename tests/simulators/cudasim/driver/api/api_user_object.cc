// SPDX-License-Identifier: Apache-2.0
// User objects: a graph notifies the program when their references end.
#include "tests/simulators/cudasim/driver/api.h"
#include "tests/simulators/cudasim/driver/graph.h"

namespace cudasim::api {

CUresult cuUserObjectCreate(CUuserObject* out, void* content, CUhostFn destroy, unsigned int count,
                            unsigned int flags) {
  CUDASIM_TRY(Process::get().ready());
  CUDASIM_CHECK(
      out != nullptr && destroy != nullptr && count > 0 && flags == CU_USER_OBJECT_NO_DESTRUCTOR_SYNC,
      CUDA_ERROR_INVALID_VALUE);
  *out = reinterpret_cast<CUuserObject>(make_user_object(content, destroy, count));
  return CUDA_SUCCESS;
}

CUresult cuUserObjectRetain(CUuserObject object, unsigned int count) {
  CUDASIM_TRY(Process::get().ready());
  return retain(from_handle(object), count);
}

CUresult cuUserObjectRelease(CUuserObject object, unsigned int count) {
  CUDASIM_TRY(Process::get().ready());
  return release(from_handle(object), count);
}

CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned int count, unsigned int flags) {
  CUDASIM_TRY(Process::get().ready());
  CUDASIM_CHECK(count > 0 && flags <= CU_GRAPH_USER_OBJECT_MOVE, CUDA_ERROR_INVALID_VALUE);
  std::lock_guard<std::mutex> lock(graphs_lock());
  GraphBody* body = from_handle(graph);
  CUDASIM_CHECK(graphs().bodies.count(body) > 0, CUDA_ERROR_INVALID_VALUE);
  // Moved references already belong to the caller, so only other references are retained.
  if (flags != CU_GRAPH_USER_OBJECT_MOVE) CUDASIM_TRY(retain(from_handle(object), count));
  body->user_references.add(from_handle(object), count);
  return CUDA_SUCCESS;
}

CUresult cuGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned int count) {
  CUDASIM_TRY(Process::get().ready());
  std::lock_guard<std::mutex> lock(graphs_lock());
  GraphBody* body = from_handle(graph);
  CUDASIM_CHECK(graphs().bodies.count(body) > 0 && count > 0, CUDA_ERROR_INVALID_VALUE);
  CUDASIM_CHECK(body->user_references.remove(from_handle(object), count), CUDA_ERROR_INVALID_VALUE);
  return CUDA_SUCCESS;
}

}  // namespace cudasim::api
