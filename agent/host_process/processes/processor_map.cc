// SPDX-License-Identifier: Apache-2.0
#include "agent/host_process/processes/processor_map.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <iterator>
#include <utility>

namespace ckpt::agent::host {
namespace {

constexpr std::size_t kWordBits = 64;
constexpr std::size_t kMaxProcessors = kMaxProcessorWords * kWordBits;

void drop_zero_words(Processors& set) {
  while (!set.empty() && set.back() == 0) set.pop_back();
}

std::vector<std::size_t> processors_in(const Processors& set) {
  std::vector<std::size_t> numbers;
  for (std::size_t i = 0; i < set.size() * kWordBits; ++i) {
    if (has_processor(set, i)) numbers.push_back(i);
  }
  return numbers;
}

}  // namespace

std::size_t count_processors(const Processors& set) {
  std::size_t found = 0;
  for (const std::uint64_t word : set) found += static_cast<std::size_t>(std::popcount(word));
  return found;
}

bool has_processor(const Processors& set, std::size_t processor) {
  const std::size_t word = processor / kWordBits;
  return word < set.size() && (set[word] >> (processor % kWordBits) & 1) != 0;
}

void add_processor(Processors& set, std::size_t processor) {
  const std::size_t word = processor / kWordBits;
  if (word >= set.size()) set.resize(word + 1);
  set[word] |= std::uint64_t{1} << (processor % kWordBits);
}

Processors parse_processors(const std::string& text) {
  Processors all;
  const char* at = text.c_str();
  while (*at >= '0' && *at <= '9') {
    char* end = nullptr;
    const unsigned long first = std::strtoul(at, &end, 10);
    unsigned long last = first;
    if (*end == '-') last = std::strtoul(end + 1, &end, 10);
    for (unsigned long i = first; i <= last && i < kMaxProcessors; ++i) add_processor(all, i);
    if (*end != ',') break;
    at = end + 1;
  }
  return all;
}

std::string text_of_processors(const Processors& set) {
  std::string text;
  const std::vector<std::size_t> numbers = processors_in(set);
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    text += (text.empty() ? "" : ",") + std::to_string(numbers[i]);
    if (last > i) text += "-" + std::to_string(numbers[last]);
    i = last + 1;
  }
  return text;
}

Processors processors_of(pid_t thread) {
  Processors set(kMaxProcessorWords);
  const long bytes = ::syscall(SYS_sched_getaffinity, thread, set.size() * sizeof set[0], set.data());
  set.resize(bytes > 0 ? static_cast<std::size_t>(bytes) / sizeof set[0] : 0);
  drop_zero_words(set);
  return set;
}

bool bind_to_processors(pid_t thread, const Processors& set) {
  return ::syscall(SYS_sched_setaffinity, thread, set.size() * sizeof set[0], set.data()) == 0;
}

Processors processors_allowed(pid_t thread) {
  Processors own = processors_of(thread);
  const Processors all(kMaxProcessorWords, ~std::uint64_t{0});
  if (own.empty() || !bind_to_processors(thread, all)) return own;
  Processors allowed = processors_of(thread);
  // The mask of all processors stays if nothing changed: it also admits processors that the set of the control
  // group gains later, as a thread without a mask of its own does.
  if (allowed == own) return allowed;
  if (bind_to_processors(thread, own) && !allowed.empty()) return allowed;
  return own;
}

ProcessorMap::ProcessorMap(const Processors& named, Processors here) : here_(std::move(here)) {
  drop_zero_words(here_);
  const std::vector<std::size_t> all = processors_in(here_);
  std::vector<std::size_t> free;
  std::copy_if(all.begin(), all.end(), std::back_inserter(free),
               [&named](std::size_t processor) { return !has_processor(named, processor); });
  if (all.empty()) return;
  std::size_t used = 0;
  for (const std::size_t processor : processors_in(named)) {
    if (has_processor(here_, processor)) continue;
    replaced_[processor] = used < free.size() ? free[used] : all[(used - free.size()) % all.size()];
    ++used;
  }
}

bool ProcessorMap::is_lacking(const Processors& wanted) const {
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if ((wanted[i] & ~(i < here_.size() ? here_[i] : 0)) != 0) return true;
  }
  return false;
}

Processors ProcessorMap::translate(const Processors& wanted) const {
  if (!is_lacking(wanted)) return wanted;
  Processors found;
  for (const std::size_t processor : processors_in(wanted)) {
    const auto other = replaced_.find(processor);
    if (other != replaced_.end())
      add_processor(found, other->second);
    else if (has_processor(here_, processor))
      add_processor(found, processor);
  }
  // Several missing processors may share a stand-in, so other processors of the target are added to keep the
  // number.
  std::size_t lacking = std::min(count_processors(wanted), count_processors(here_)) - count_processors(found);
  for (std::size_t i = 0; lacking > 0 && i < here_.size() * kWordBits; ++i) {
    if (!has_processor(here_, i) || has_processor(found, i)) continue;
    add_processor(found, i);
    --lacking;
  }
  return found;
}

Processors ProcessorMap::missing() const {
  Processors set;
  for (const auto& [processor, other] : replaced_) add_processor(set, processor);
  return set;
}

Processors ProcessorMap::stand_ins() const {
  Processors set;
  for (const auto& [processor, other] : replaced_) add_processor(set, other);
  return set;
}

}  // namespace ckpt::agent::host
