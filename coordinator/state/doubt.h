// SPDX-License-Identifier: Apache-2.0
// A span of a job's life in which its memory may be wrong. It begins with a fault that forbade reading the memory.
// It ends once the job was restored from an image of before; a live move carries it along. Plain values and pure
// functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "libckpt/protocol/wire/job_messages.h"

namespace ckpt::coordinator {

struct Doubt {
  std::int64_t since_ms = 0;    // Unix time, by the clock of the node that found the fault
  wire::Incarnation from = 0;   // as which the job ran then
  wire::Incarnation up_to = 0;  // the last one that is concerned; 0: it is not over
  std::string reason;           // the finding's

  [[nodiscard]] bool open() const { return up_to == 0; }
};
template <std::same_as<Doubt> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::field("since_ms", &T::since_ms), record::field("from", &T::from),
                        record::field("up_to", &T::up_to), record::field("reason", &T::reason));
}

// Why the image is suspect that was taken of that incarnation at that barrier; empty: it is not.
[[nodiscard]] std::string why_suspect(const std::vector<Doubt>& doubts, wire::Incarnation incarnation,
                                      std::int64_t barrier_ms);
// The one that is not over; null: there is none.
[[nodiscard]] const Doubt* open_doubt(const std::vector<Doubt>& doubts);
// False: one that is open covers it already.
bool add_doubt(std::vector<Doubt>& doubts, Doubt doubt);
// The job goes on from an image that is not suspect; incarnations up to that one are over.
void end_doubts(std::vector<Doubt>& doubts, wire::Incarnation up_to);

}  // namespace ckpt::coordinator
