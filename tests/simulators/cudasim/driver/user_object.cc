// SPDX-License-Identifier: Apache-2.0
#include "tests/simulators/cudasim/driver/user_object.h"

#include <mutex>
#include <set>
#include <thread>

#include "tests/simulators/cudasim/driver/api.h"

namespace cudasim {

struct UserObject {
  void* content;
  CUhostFn destroy;
  unsigned references;
};

namespace {

std::mutex& objects_lock() {
  static constinit std::mutex lock;
  return lock;
}

std::set<UserObject*>& objects() {
  static auto* all = new std::set<UserObject*>;
  return *all;
}

}  // namespace

UserObject* make_user_object(void* content, CUhostFn destroy, unsigned count) {
  auto* object = new UserObject{content, destroy, count};
  std::lock_guard<std::mutex> lock(objects_lock());
  objects().insert(object);
  return object;
}

CUresult retain(UserObject* object, unsigned count) {
  std::lock_guard<std::mutex> lock(objects_lock());
  CUDASIM_CHECK(count > 0 && objects().count(object) > 0, CUDA_ERROR_INVALID_VALUE);
  object->references += count;
  return CUDA_SUCCESS;
}

CUresult release(UserObject* object, unsigned count) {
  std::lock_guard<std::mutex> lock(objects_lock());
  CUDASIM_CHECK(count > 0 && objects().count(object) > 0 && object->references >= count,
                CUDA_ERROR_INVALID_VALUE);
  object->references -= count;
  if (object->references > 0) return CUDA_SUCCESS;
  objects().erase(object);
  std::thread([object] {
    object->destroy(object->content);
    delete object;
  }).detach();
  return CUDA_SUCCESS;
}

UserReferences::UserReferences(const UserReferences& other) {
  add(other);
}

UserReferences& UserReferences::operator=(const UserReferences& other) {
  if (this == &other) return *this;
  drop();
  add(other);
  return *this;
}

void UserReferences::add(UserObject* object, unsigned count) {
  counts_[object] += count;
}

void UserReferences::add(const UserReferences& other) {
  for (const auto& [object, count] : other.counts_) {
    if (retain(object, count) == CUDA_SUCCESS) add(object, count);
  }
}

bool UserReferences::remove(UserObject* object, unsigned count) {
  const auto found = counts_.find(object);
  if (found == counts_.end() || found->second < count) return false;
  found->second -= count;
  if (found->second == 0) counts_.erase(found);
  return release(object, count) == CUDA_SUCCESS;
}

void UserReferences::drop() {
  for (const auto& [object, count] : counts_) release(object, count);
  counts_.clear();
}

}  // namespace cudasim
