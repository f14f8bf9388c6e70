// SPDX-License-Identifier: Apache-2.0
// User objects: a program is notified when their last reference is dropped. Graphs and executable graphs hold
// references.
//
// Threads: any. The program's destructor runs in its own thread, since it must not call the driver and no
// caller waits for it.
#pragma once

#include <cuda.h>

#include <map>

namespace cudasim {

struct UserObject;

// The references of a graph. They are copied with the graph, and dropped at its end.
class UserReferences {
 public:
  UserReferences() = default;
  UserReferences(const UserReferences& other);
  UserReferences& operator=(const UserReferences& other);
  ~UserReferences() { drop(); }

  void add(UserObject* object, unsigned count);  // takes over references that are already counted
  void add(const UserReferences& other);
  // Removes references. Returns false if the graph has fewer references.
  bool remove(UserObject* object, unsigned count);
  void drop();
  [[nodiscard]] bool empty() const { return counts_.empty(); }

 private:
  std::map<UserObject*, unsigned> counts_;
};

inline UserObject* from_handle(CUuserObject handle) {
  return reinterpret_cast<UserObject*>(handle);
}
// Returns CUDA_ERROR_INVALID_VALUE, as release() does, if the object does not exist or has too few
// references.
CUresult retain(UserObject* object, unsigned count);
CUresult release(UserObject* object, unsigned count);
UserObject* make_user_object(void* content, CUhostFn destroy, unsigned count);

}  // namespace cudasim
