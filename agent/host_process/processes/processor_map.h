// SPDX-License-Identifier: Apache-2.0
// Sets of processors, and their translation from a source to a target. For every processor that the target
// lacks, a processor of the target stands in. A processor that both nodes have keeps its number. A stand-in
// is a processor that no thread of the program names, as long as there are any, so threads stay apart.
// Threads: any. Errors: none. Sets from another node may have any content, but at most kMaxProcessorWords
// words.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace ckpt::agent::host {

inline constexpr std::size_t kMaxProcessorWords = 128;  // maximum number of words, each for 64 processors

// A set of processors with one bit for each processor, and without words of zeros at its end.
using Processors = std::vector<std::uint64_t>;

[[nodiscard]] std::size_t count_processors(const Processors& set);
[[nodiscard]] bool has_processor(const Processors& set, std::size_t processor);
void add_processor(Processors& set, std::size_t processor);
// Parses the kernel's list of numbers, such as "0-3,8". The function text_of_processors() returns such a
// list.
[[nodiscard]] Processors parse_processors(const std::string& text);
[[nodiscard]] std::string text_of_processors(const Processors& set);

// Returns the processors on which a thread may run. 0 means the calling thread. The result is empty if the
// thread no longer exists.
[[nodiscard]] Processors processors_of(pid_t thread);
// Lets the thread run on these processors only. Returns false with errno set if the kernel refuses it.
bool bind_to_processors(pid_t thread, const Processors& set);
// Returns the processors to which a thread can be bound: those of its cpuset. The function briefly binds the
// thread to all processors, and then restores the thread's own set.
[[nodiscard]] Processors processors_allowed(pid_t thread);

class ProcessorMap {
 public:
  // Chooses the stand-ins. `named` contains all processors that threads of the program name, and `here`
  // contains the target's processors.
  ProcessorMap(const Processors& named, Processors here);

  // Returns the target's processors for a thread that had `wanted`: as many as `wanted` has, if the target
  // has so many. The function is_lacking() checks whether the target lacks a processor of `wanted`.
  [[nodiscard]] Processors translate(const Processors& wanted) const;
  [[nodiscard]] bool is_lacking(const Processors& wanted) const;
  // Returns the missing processors. The function stand_ins() returns the processors that stand in for them.
  [[nodiscard]] Processors missing() const;
  [[nodiscard]] Processors stand_ins() const;
  [[nodiscard]] const Processors& here() const noexcept { return here_; }

 private:
  Processors here_;
  std::map<std::size_t, std::size_t> replaced_;  // the stand-in of each missing processor
};

}  // namespace ckpt::agent::host
