// SPDX-License-Identifier: Apache-2.0
// A span of a job's life in which its memory may be wrong. It begins with a fault that forbade reading the
// memory. It ends once the job was restored from an earlier image. A live move does not end it. Plain values
// and pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "libckpt/protocol/wire/job_messages.h"

namespace ckpt::coordinator {

struct Doubt {
  std::int64_t since_ms = 0;    // Unix time by the clock of the node that found the fault
  wire::Incarnation from = 0;   // the incarnation that ran at `since_ms`
  wire::Incarnation up_to = 0;  // the last affected incarnation; 0: the doubt is still open
  std::string reason;           // the finding's reason

  [[nodiscard]] bool open() const { return up_to == 0; }
};
template <std::same_as<Doubt> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::field("since_ms", &T::since_ms), record::field("from", &T::from),
                        record::field("up_to", &T::up_to), record::field("reason", &T::reason));
}

// Returns why an image of that incarnation and barrier is suspect, or an empty string if it is not suspect.
[[nodiscard]] std::string why_suspect(const std::vector<Doubt>& doubts, wire::Incarnation incarnation,
                                      std::int64_t barrier_ms);
// Returns the doubt that is still open, or null.
[[nodiscard]] const Doubt* open_doubt(const std::vector<Doubt>& doubts);
// Adds a doubt. Returns false if an open doubt already covers it.
bool add_doubt(std::vector<Doubt>& doubts, Doubt doubt);
// Ends the doubts for incarnations up to `up_to`, because the job continues from an image that is not
// suspect.
void end_doubts(std::vector<Doubt>& doubts, wire::Incarnation up_to);

}  // namespace ckpt::coordinator
