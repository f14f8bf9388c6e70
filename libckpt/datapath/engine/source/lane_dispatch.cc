// SPDX-License-Identifier: Apache-2.0
#include "libckpt/datapath/engine/source/lane_dispatch.h"

#include "libckpt/datapath/engine/source/source_codec.h"

namespace ckpt::engine {

void LaneDispatch::begin_round() {
  only_sending_ = {};
  held_up_time_ = 0;
  first_copy_ns_ = 0;
}

void LaneDispatch::wake() {
  for (const auto& lane : lanes_) lane->wake();
}

Result<void> LaneDispatch::push(const DirtyChunk& chunk) {
  if (first_copy_ns_ == 0) first_copy_ns_ = now_ns();
  if (group_left_ < core_.chunk_bytes) {
    lanes_[lane_]->wake();
    lane_ = 0;
    for (std::size_t i = 1; i < lanes_.size(); ++i)
      if (lanes_[i]->queue().size() < lanes_[lane_]->queue().size()) lane_ = i;
    group_left_ = core_.message_bytes;
  }
  group_left_ -= core_.chunk_bytes;
  core_.begin(1);
  ChunkQueue<DirtyChunk>& queue = lanes_[lane_]->queue();
  while (!queue.push(chunk)) {
    const Drained before = drained();
    lanes_[lane_]->wake();
    CKPT_TRYV(core_.until([&](const SenderCore::Events&) { return queue.size() <= queue.capacity() / 2; }, 0,
                          "A round"));
    count_only_sending(before);
    observe_encoding(before);
    held_up_time_ += now_ns() - before.time;
  }
  return ok();
}

LaneDispatch::Drained LaneDispatch::drained() const {
  const SenderCounters& counters = core_.counters;
  return {counters.drained_wire_bytes.load(), counters.acked_bytes.load(), now_ns()};
}

void LaneDispatch::count_only_sending(const Drained& since) {
  const Drained now = drained();
  only_sending_.wire_bytes += now.wire_bytes - since.wire_bytes;
  only_sending_.plain_bytes += now.plain_bytes - since.plain_bytes;
  only_sending_.time += now.time - since.time;
}

// Passes the progress from `since` until now to the codec. The lanes delayed the scan during that time.
void LaneDispatch::observe_encoding(const Drained& since) {
  if (!core_.codec) return;
  const Drained now = drained();
  core_.codec->observe(now.plain_bytes - since.plain_bytes, now.time - since.time);
}

}  // namespace ckpt::engine
