// SPDX-License-Identifier: Apache-2.0
// The host state of a rank as its source sends it. It is sent while it is being made, where the agent gave a
// file for that (HostStateFile, HostGrew). Else it is sent whole, out of the file of the order for the final
// round.
//
// Threads: open_file(), grew(), tell(), announce() and leaves_ahead() hold one lock of the session's.
// run_final() and what follows belong to its thread, and come after the last open_file(). Ownership: outlives
// the sender, which reads it. Errors: kInvalidArgument where the agent's messages do not fit together, or do
// not fit the file.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "agent/mover/session/host_state.h"
#include "agent/mover/session/host_stream.h"
#include "libckpt/datapath/engine/source/sender.h"
#include "libckpt/datapath/track/fingerprint.h"
#include "libckpt/protocol/wire/mover_move_messages.h"

namespace ckpt::mover {

class SourceHostState {
 public:
  using Params = std::shared_ptr<const track::FingerprintParams>;

  Result<void> open_file(const wire::mover::HostStateFile& request, UniqueFd file, Params params);
  // `sender` may be null; tell() informs it once there is one.
  Result<void> grew(const wire::mover::HostGrew& request, engine::Sender* sender);
  void tell(engine::Sender& sender) const;
  // Announces the file that the agent gave, once: the target gets memory for it, and filled bytes leave
  // beside the rounds.
  void announce(engine::Sender& sender);
  [[nodiscard]] bool is_announced() const noexcept { return announced_; }
  // True if some of it is filled before the pause, and shares the link with the rounds.
  [[nodiscard]] bool leaves_ahead() const { return announced_ && stream_->extent().filled > 0; }

  // Runs the final round. `file` is the order's, unless the host state grows in a file of its own.
  Result<engine::RoundReport> run_final(const wire::mover::FinalRound& order, UniqueFd file, Params params,
                                        engine::Sender& sender);
  // Available after run_final().
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
  // Returns the bytes of these that were sent before the final round.
  [[nodiscard]] std::uint64_t ahead_bytes() const noexcept { return ahead_bytes_; }
  [[nodiscard]] track::Fingerprint fingerprint();  // waits for it; once

 private:
  std::unique_ptr<HostStream> stream_;
  bool announced_ = false;
  std::optional<HostStateView> view_;
  std::uint64_t bytes_ = 0;
  std::uint64_t ahead_bytes_ = 0;
};

}  // namespace ckpt::mover
