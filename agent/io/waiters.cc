// SPDX-License-Identifier: Apache-2.0
#include "agent/io/waiters.h"

namespace ckpt::agent {
namespace {

// The entry of an event in a list. The destructor removes the entry.
class Listed {
 public:
  Listed(std::list<AsyncEvent*>& list, AsyncEvent* event)
      : list_(list), at_(list.insert(list.end(), event)) {}
  ~Listed() { list_.erase(at_); }
  Listed(const Listed&) = delete;
  Listed& operator=(const Listed&) = delete;

 private:
  std::list<AsyncEvent*>& list_;
  std::list<AsyncEvent*>::iterator at_;
};

}  // namespace

Task<bool> Waiters::wait(std::chrono::steady_clock::time_point until) {
  const auto self = shared_from_this();
  AsyncEvent event(executor_);
  const Listed listed(waiting_, &event);
  co_return co_await event.wait(until);
}

void Waiters::notify_all() {
  for (AsyncEvent* event : waiting_) event->notify();
}

}  // namespace ckpt::agent
