// SPDX-License-Identifier: Apache-2.0
// User objects: what a program wants to be told the end of. Graphs and executable graphs hold references.
//
// Threads: any. The program's destructor runs in a thread of its own, since it must not call the driver and
// is not waited for.
#pragma once

#include <cuda.h>

#include <map>

namespace cudasim {

struct UserObject;

// References that a graph has. Copied with the graph; dropped at the end.
class UserReferences {
 public:
  UserReferences() = default;
  UserReferences(const UserReferences& other);
  UserReferences& operator=(const UserReferences& other);
  ~UserReferences() { drop(); }

  void add(UserObject* object, unsigned count);  // takes over references that were counted
  void add(const UserReferences& other);
  // False: it has not so many.
  bool remove(UserObject* object, unsigned count);
  void drop();
  [[nodiscard]] bool empty() const { return counts_.empty(); }

 private:
  std::map<UserObject*, unsigned> counts_;
};

inline UserObject* from_handle(CUuserObject handle) {
  return reinterpret_cast<UserObject*>(handle);
}
// CUDA_ERROR_INVALID_VALUE: there is no such object, or it has not so many references.
CUresult retain(UserObject* object, unsigned count);
CUresult release(UserObject* object, unsigned count);
UserObject* make_user_object(void* content, CUhostFn destroy, unsigned count);

}  // namespace cudasim
