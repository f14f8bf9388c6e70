// SPDX-License-Identifier: Apache-2.0
// A rank that stays where it is, in the gang commit (GANG-3, GANG-5 to GANG-8, GANG-10, GANG-12).
//
//   Joining -> Held -> Gone
//   Joining, Held -> HeldStill -> Lifted -> Gone
//   Joining, Held, HeldStill, Lifted -> Old
//   each -> Fenced
//
// HELD: it stands at n and its new communicators are ready: they are made ahead of that, or once it stands at n. From then
// on it leaves n on others' word only. GO: it swaps its communicators, without a lease, and is GONE. HELD_STILL refuses GO,
// until the coordinator has recorded KEPT. OLD refuses GO for ever. Its records live as long as the rank.
#pragma once

#include "libckpt/protocol/gang/gang_types.h"

namespace ckpt::gang {

namespace bystander {
struct Joining {
  bool is_ready = false;  // it may be held
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
  bool recorded = false;  // nothing is stated before
  friend bool operator==(const Old&, const Old&) = default;
};
struct Fenced {
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
  std::optional<Reason> dead;  // its process is gone: the gang is restored
  friend bool operator==(const BystanderState&, const BystanderState&) = default;
};

using BystanderEvent = std::variant<PrepareReceived, RankReady, CommunicatorsReady, CommunicatorsFailed,
                                    RankHeld, InstanceDied, Message, TimerFired, RecordFailed, Restarted>;

Result<Step<BystanderState, Action>> step(const BystanderState& state, const BystanderEvent& event, Nanos now,
                                          const Timing& timing);
// Restarted is fed first. Without a record the state is that of the beginning: it goes on in the old epoch.
Result<BystanderState> restore_bystander(const GangInfo& info, std::uint32_t rank, const Record* newest);
[[nodiscard]] bool is_closed(const BystanderState& state) noexcept;
[[nodiscard]] std::string_view phase_name(const BystanderState& state) noexcept;

}  // namespace ckpt::gang
