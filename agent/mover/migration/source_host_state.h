// SPDX-License-Identifier: Apache-2.0
// The host state of a rank as its source sends it. If the agent provided a file for this (HostStateFile,
// HostGrew), the state is sent while it is created. Otherwise the whole state is sent from the file of the
// order for the final round.
//
// Threads: open_file(), grew(), announce_to(), announce() and leaves_ahead() hold a lock of the session.
// run_final() and the following functions belong to the session's thread, and are called after the last
// open_file(). Ownership: the object outlives the sender, which reads it. Errors: kInvalidArgument if the
// agent's messages do not match one another or the file.
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
  // Records growth. `sender` may be null, and announce_to() then informs the sender later.
  Result<void> grew(const wire::mover::HostGrew& request, engine::Sender* sender);
  void announce_to(engine::Sender& sender) const;
  // Announces the file that the agent provided. Call this function once. The target allocates memory for the
  // file, and filled bytes are sent in parallel with the rounds.
  void announce(engine::Sender& sender);
  [[nodiscard]] bool is_announced() const noexcept { return announced_; }
  // Checks whether some bytes are filled before the pause and share the link with the rounds.
  [[nodiscard]] bool leaves_ahead() const { return announced_ && stream_->extent().filled > 0; }

  // Runs the final round. `file` is the order's file, unless the host state grows in its own file.
  Result<engine::RoundReport> run_final(const wire::mover::FinalRound& order, UniqueFd file, Params params,
                                        engine::Sender& sender);
  // Returns the number of bytes of the host state. Call this function after run_final().
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
  // Returns the bytes of the host state that were sent before the final round.
  [[nodiscard]] std::uint64_t ahead_bytes() const noexcept { return ahead_bytes_; }
  [[nodiscard]] track::Fingerprint fingerprint();  // waits for the result; call it once

 private:
  std::unique_ptr<HostStream> stream_;
  bool announced_ = false;
  std::optional<HostStateView> view_;
  std::uint64_t bytes_ = 0;
  std::uint64_t ahead_bytes_ = 0;
};

}  // namespace ckpt::mover
