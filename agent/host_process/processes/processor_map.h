// SPDX-License-Identifier: Apache-2.0
// Sets of processors, and the processors of a target that stand in for those of a source that the target
// lacks. A processor that both nodes have keeps its number. Each missing one gets a processor that no thread
// of the program names, as long as there are any, so threads stay apart.
// Threads: any. Errors: none. Sets from another node may be of any content, but have at most
// kMaxProcessorWords words.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace ckpt::agent::host {

inline constexpr std::size_t kMaxProcessorWords = 128;  // maximum number of words, each for 64 processors

// A set of processors with one bit for each, and without words of zeros at its end.
using Processors = std::vector<std::uint64_t>;

[[nodiscard]] std::size_t count_processors(const Processors& set);
[[nodiscard]] bool has_processor(const Processors& set, std::size_t processor);
void add_processor(Processors& set, std::size_t processor);
// Parses the kernel's list of numbers, such as "0-3,8", and returns such a list.
[[nodiscard]] Processors parse_processors(const std::string& text);
[[nodiscard]] std::string text_of_processors(const Processors& set);

// Returns the processors on which a thread may run. 0 means the calling thread. The result is empty if the
// thread no longer exists.
[[nodiscard]] Processors processors_of(pid_t thread);
// Lets the thread run on these processors only. Returns false with errno set if the kernel refuses it.
bool bind_to_processors(pid_t thread, const Processors& set);
// Returns the processors that a bound thread can have: those of its cpuset. The thread's own set does not
// change.
[[nodiscard]] Processors processors_allowed(pid_t thread);

class ProcessorMap {
 public:
  // `named` has all processors that threads of the program name, `here` those of the target.
  ProcessorMap(const Processors& named, Processors here);

  // Returns as many processors of the target as `wanted` has, if the target has so many.
  [[nodiscard]] Processors translate(const Processors& wanted) const;
  [[nodiscard]] bool is_lacking(const Processors& wanted) const;
  // Returns the missing processors, and those that stand in for them.
  [[nodiscard]] Processors missing() const;
  [[nodiscard]] Processors stand_ins() const;
  [[nodiscard]] const Processors& here() const noexcept { return here_; }

 private:
  Processors here_;
  std::map<std::size_t, std::size_t> replaced_;  // processors of the target by the missing ones
};

}  // namespace ckpt::agent::host
