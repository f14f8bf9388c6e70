// SPDX-License-Identifier: Apache-2.0
// Functions that are called at each event of one kind, in the order of their subscription. A subscription
// lasts for the lifetime of this object. A listener is called in the middle of a change, so it may only
// record the event or wake a waiter.
// Threads: one. Errors: none.
#pragma once

#include <functional>
#include <utility>
#include <vector>

namespace ckpt::coordinator {

template <class... Args>
class Listeners {
 public:
  using Listener = std::function<void(Args...)>;

  void subscribe(Listener listener) { listeners_.push_back(std::move(listener)); }
  void notify(Args... args) const {
    for (const Listener& listener : listeners_) listener(args...);
  }

 private:
  std::vector<Listener> listeners_;
};

}  // namespace ckpt::coordinator
