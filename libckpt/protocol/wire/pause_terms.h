// SPDX-License-Identifier: Apache-2.0
// A pause by its terms, as they are estimated before the pause and measured during it. A later migration mode
// uses the terms that apply to it.
// Threads: plain values. Errors: none.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "libckpt/base/clock.h"
#include "libckpt/protocol/wire/codec.h"
#include "libckpt/record/names.h"

namespace ckpt::wire {

// The terms of a pause. All but the last are in the order of the pause.
enum class PauseTerm : std::uint8_t {
  kQuiesce = 0,     // from barrier entry until the source's mover knows that the rank is paused; in a move
                    // with a dump, until the agent knows it
  kContextSave,     // the driver's checkpoint
  kDump,            // the dump of the host process
  kFinal,           // the data left to send after the earlier terms
  kVerify,          // from the last acknowledgement until both sides agree
  kCommit,          // from the end of the earlier term until COMMITTED is durable
  kHostRestore,     // the restore of the host process
  kContextRestore,  // the driver's restore
  kFill,            // filling memory that the process makes itself
  kMap,             // mapping memory at its addresses, and the program's host state
  kResume,
  kCommunicators,  // communicators of ranks that move, if they are made during the pause, between kVerify and
                   // kCommit
};
inline constexpr std::size_t kPauseTerms = 12;

// The kind of a pause. A job's last pause does not predict a pause in a different mode.
enum class PauseKind : std::uint8_t {
  kInvalid = 0,
  kCooperative = 1,
  kSwap = 2,
  kProcess = 3,
  kAdoptedSwap = 4,
  kAdoptedProcess = 5,
};
[[nodiscard]] constexpr bool is_known(PauseKind kind) {
  return kind >= PauseKind::kCooperative && kind <= PauseKind::kAdoptedProcess;
}
constexpr auto names_of(record::Of<PauseKind>) {
  return record::names<PauseKind>({{PauseKind::kCooperative, "cooperative"},
                                   {PauseKind::kSwap, "swap"},
                                   {PauseKind::kProcess, "process"},
                                   {PauseKind::kAdoptedSwap, "adopted-swap"},
                                   {PauseKind::kAdoptedProcess, "adopted-process"}});
}

// One number for each term.
struct PauseNumbers {
  static constexpr std::uint8_t kVersion = 2, kCompat = 1;
  std::array<std::int64_t, kPauseTerms> all{};
  [[nodiscard]] std::int64_t& operator[](PauseTerm term) { return all[static_cast<std::size_t>(term)]; }
  [[nodiscard]] std::int64_t operator[](PauseTerm term) const { return all[static_cast<std::size_t>(term)]; }
  [[nodiscard]] std::int64_t total() const {
    std::int64_t sum = 0;
    for (const std::int64_t number : all) sum += number;
    return sum;
  }
};
template <std::same_as<PauseNumbers> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::bare(&T::all));
}

// A past or expected pause.
struct PauseFacts {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  PauseKind kind = PauseKind::kCooperative;
  PauseNumbers ns;
  PauseNumbers bytes;  // the bytes that each term depends on
};
template <std::same_as<PauseFacts> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::field("kind", &T::kind), record::field("ns", &T::ns),
                        record::field("bytes", &T::bytes));
}

// The time that a term takes on a node: a base, a part per byte, and a part per countable item.
struct CostLine {
  static constexpr std::uint8_t kVersion = 2, kCompat = 1;
  CostLine() = default;
  CostLine(std::int64_t base, std::int64_t per_mib) : base_ns(base), ns_per_mib(per_mib) {}
  std::int64_t base_ns = 0;
  std::int64_t ns_per_mib = 0;
  std::uint32_t items_permille = 1000;  // the time for threads, descriptors and similar items, in thousandths
                                        // of a common server's time
  [[nodiscard]] Nanos of_items(Nanos common) const {
    return static_cast<Nanos>(static_cast<double>(common) * items_permille / 1000);
  }
  [[nodiscard]] Nanos grown(std::int64_t bytes) const {
    return static_cast<Nanos>(static_cast<double>(ns_per_mib) * static_cast<double>(bytes) / (1 << 20));
  }
  [[nodiscard]] Nanos at(std::int64_t bytes) const { return base_ns + grown(bytes); }
  template <class A>
  decltype(auto) fields(A& a) {
    return a(base_ns, ns_per_mib, items_permille);
  }
};

}  // namespace ckpt::wire
