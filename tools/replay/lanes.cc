// SPDX-License-Identifier: Apache-2.0
#include "tools/replay/lanes.h"

namespace ckpt::replay {

void Lanes::serve(Lane& lane) {
  std::unique_lock lock(lane.mutex);
  for (;;) {
    lane.changed.wait(lock, [&] { return lane.work != nullptr || lane.over; });
    if (lane.work == nullptr) return;
    (*lane.work)();
    lane.work = nullptr;
    lane.changed.notify_all();
  }
}

bool Lanes::run(std::uint32_t traced_thread, const std::function<void()>& work, std::chrono::seconds limit) {
  std::unique_ptr<Lane>& lane = lanes_[traced_thread];
  if (!lane) {
    lane = std::make_unique<Lane>();
    lane->thread = std::thread(&Lanes::serve, std::ref(*lane));
  }
  std::unique_lock lock(lane->mutex);
  lane->work = &work;
  lane->changed.notify_all();
  return lane->changed.wait_for(lock, limit, [&] { return lane->work == nullptr; });
}

Lanes::~Lanes() {
  for (auto& [thread, lane] : lanes_) {
    {
      const std::lock_guard lock(lane->mutex);
      lane->over = true;
    }
    lane->changed.notify_all();
    lane->thread.join();
  }
}

}  // namespace ckpt::replay
