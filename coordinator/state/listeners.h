// SPDX-License-Identifier: Apache-2.0
// Functions that are called at each event of one kind, in the order of their subscription. They are for as
// long as this lives. Called in the midst of a change: a listener notes the event, or wakes a waiter, and
// nothing more.
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
