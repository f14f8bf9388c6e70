// SPDX-License-Identifier: Apache-2.0
// A rank that stays where it is, in the gang commit (GANG-3, GANG-5 to GANG-8, GANG-10, GANG-12).
//
//   Joining -> Held -> Gone
//   Joining, Held -> HeldStill -> Lifted -> Gone
//   Joining, Held, HeldStill, Lifted -> Old
//   each -> Fenced
//
// HELD: the rank waits at step n and its new communicators are ready. They are made before step n or while
// the rank waits there. From then on the rank leaves step n only on statements of other parties. GO: the rank
// swaps its communicators, without a lease, and is GONE. HELD_STILL refuses GO until the coordinator has
// recorded KEPT. OLD refuses GO permanently. The records exist as long as the rank.
#pragma once

#include "libckpt/protocol/gang/gang_types.h"

namespace ckpt::gang {

namespace bystander {
struct Joining {
  bool is_ready = false;  // whether the rank may be held
  bool has_communicators = false;
  bool is_held = false;
  friend bool operator==(const Joining&, const Joining&) = default;
};
struct Held {
  friend bool operator==(const Held&, const Held&) = default;
};
struct Still {
  friend bool operator==(const Still&, const Still&) = default;
};
struct Lifted {
  friend bool operator==(const Lifted&, const Lifted&) = default;
};
struct Gone {
  friend bool operator==(const Gone&, const Gone&) = default;
};
struct Old {
  Incarnation k = 0;
  bool recorded = false;  // whether OLD is recorded; before that, the rank makes no statement
  friend bool operator==(const Old&, const Old&) = default;
};
struct Fenced {
  bool ended = false;  // whether the rank is proven to have ended; before that, it makes no statement
  friend bool operator==(const Fenced&, const Fenced&) = default;
};
}  // namespace bystander

struct BystanderState {
  GangInfo info;
  std::uint32_t rank = 0;
  std::variant<bystander::Joining, bystander::Held, bystander::Still, bystander::Lifted, bystander::Gone,
               bystander::Old, bystander::Fenced>
      phase;
  bool granted = false;
  std::optional<Reason> dead;  // the reason why the rank's process has exited; the gang is then restored
  friend bool operator==(const BystanderState&, const BystanderState&) = default;
};

using BystanderEvent =
    std::variant<PrepareReceived, RankReady, CommunicatorsReady, CommunicatorsFailed, RankHeld, InstanceDied,
                 RankEnded, Message, TimerFired, RecordFailed, Restarted>;

Result<Step<BystanderState, Action>> step(const BystanderState& state, const BystanderEvent& event, Nanos now,
                                          const Timing& timing);
// Restores the state from the newest record. The first event must be Restarted. Without a record, the state
// is the initial one, and the rank continues in the old epoch.
Result<BystanderState> restore_bystander(const GangInfo& info, std::uint32_t rank, const Record* newest);
[[nodiscard]] bool is_closed(const BystanderState& state) noexcept;
[[nodiscard]] std::string_view phase_name(const BystanderState& state) noexcept;

}  // namespace ckpt::gang
