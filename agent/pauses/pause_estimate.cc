// SPDX-License-Identifier: Apache-2.0
#include "agent/pauses/pause_estimate.h"

#include <algorithm>
#include <cmath>
#include <string_view>

namespace ckpt::agent {
namespace {

constexpr std::uint64_t kAnySize = std::uint64_t{64} << 20;  // differences in size below this value are
                                                             // ignored
constexpr std::uint64_t kOtherSize = 4;                      // factor between sizes that count as different

struct Advice {
  const char* name;
  const char* help;
};

// Returns the name and the remedy of a term. The names are those of the report's breakdown, where a save and
// its restore are one term.
Advice advice_of(PauseTerm term) {
  switch (term) {
    case PauseTerm::kQuiesce:
      return {"quiesce", "let the program reach its barrier sooner"};
    case PauseTerm::kContextSave:
    case PauseTerm::kContextRestore:
      return {"context", "move the job cooperatively, use fewer modules and streams"};
    case PauseTerm::kDump:
    case PauseTerm::kHostRestore:
      return {"host",
              "free host memory in the program, move the job within its node, move the job cooperatively"};
    case PauseTerm::kFinal:
      return {"final", "use a faster link, omit --bandwidth, move the job while it writes less"};
    case PauseTerm::kVerify:
      return {"verify", "reduce the program's host memory, use a faster link"};
    case PauseTerm::kCommit:
      return {"commit", "put the agents' folders on a faster disk"};
    case PauseTerm::kFill:
      return {"fill", "use a driver that can import memory after a restore (see gpumigrate doctor)"};
    case PauseTerm::kMap:
      return {"restore", "allocate memory in fewer, larger pieces"};
    case PauseTerm::kCommunicators:
      return {"communicators", "create the communicators ahead of the pause (--communicators overlap)"};
    case PauseTerm::kResume:
      break;
  }
  return {"resume", "do less work in the program's resume callbacks"};
}

std::string ms_text(Nanos span) {
  return std::to_string(std::llround(static_cast<double>(span) / kNanosPerMs)) + " ms";
}

// Checks whether the last pause had a similar amount of work. A pause with far more or less work (another
// --mode of the copy) is a worse estimate than the line.
bool is_like(std::uint64_t bytes, std::uint64_t last) {
  const auto [less, more] = std::minmax(bytes, last);
  return (more + kAnySize) / (less + kAnySize) < kOtherSize;
}

Nanos expected_span(const PauseWork::Part& part, const wire::CostLine& line,
                    const std::optional<wire::PauseFacts>& last, PauseTerm term) {
  if (term == PauseTerm::kCommunicators) return part.known;  // the ranks' own time, which no node measures
  const auto bytes = static_cast<std::int64_t>(part.bytes);
  if (!last || !is_like(part.bytes, static_cast<std::uint64_t>(std::max<std::int64_t>(0, last->bytes[term]))))
    return std::max<Nanos>(0, line.at(bytes) + part.known + line.of_items(part.items));
  const Nanos took = last->ns[term];
  // The job's size may have changed since the last pause.
  return std::max<Nanos>(took / 4, took + line.grown(bytes) - line.grown(last->bytes[term]));
}

}  // namespace

bool is_done_at_target(PauseTerm term) {
  return term >= PauseTerm::kCommit;
}

wire::PauseFacts PauseEstimate::with_copy(Nanos whole, const PauseEstimate& reported) const {
  wire::PauseFacts out = facts;
  const Nanos longer = whole - reported.fixed();  // the longer of the copy and the work that runs in parallel
                                                  // with it
  if (longer > reported.beside) out.ns[PauseTerm::kFinal] += std::max<Nanos>(0, longer - beside);
  return out;
}

PauseEstimate estimate_pause(const PauseWork& work, const PauseLines& source, const PauseLines& target,
                             const std::optional<wire::PauseFacts>& last) {
  PauseEstimate out;
  out.facts.kind = work.kind();
  const bool same_way = last && last->kind == work.kind();
  for (std::size_t i = 0; i < wire::kPauseTerms; ++i) {
    const auto term = static_cast<PauseTerm>(i);
    const PauseWork::Part& part = work[term];
    if (!part.on) continue;
    const wire::CostLine& line = (is_done_at_target(term) ? target : source)[i];
    out.facts.ns[term] = expected_span(part, line, same_way ? last : std::nullopt, term);
    out.facts.bytes[term] = static_cast<std::int64_t>(part.bytes);
  }
  if (work.saves_beside_copy())
    out.beside = out.facts.ns[PauseTerm::kContextSave] + out.facts.ns[PauseTerm::kDump];
  return out;
}

std::string too_long(const wire::PauseFacts& pause, Nanos limit) {
  PauseTerm longest = PauseTerm::kQuiesce;
  Nanos longest_ns = -1;
  for (std::size_t i = 0; i < wire::kPauseTerms; ++i) {
    const char* name = advice_of(static_cast<PauseTerm>(i)).name;
    Nanos together = 0;
    for (std::size_t other = 0; other < wire::kPauseTerms; ++other) {
      if (advice_of(static_cast<PauseTerm>(other)).name == std::string_view(name))
        together += pause.ns.all[other];
    }
    if (together <= longest_ns) continue;
    longest = static_cast<PauseTerm>(i);
    longest_ns = together;
  }
  const Advice advice = advice_of(longest);
  return "a move would pause the job for about " + ms_text(pause.ns.total()) + ", but the limit is " +
         ms_text(limit) + ". The longest term is " + advice.name + " with " + ms_text(longest_ns) +
         ". Possible remedies: " + advice.help + ", or set a longer --max-downtime";
}

void learn_pause(PauseCosts& costs, const PauseWork& work, const wire::PauseNumbers& took, bool at_target) {
  for (std::size_t i = 0; i < wire::kPauseTerms; ++i) {
    const auto term = static_cast<PauseTerm>(i);
    const PauseWork::Part& part = work[term];
    if (!part.on || is_done_at_target(term) != at_target || term == PauseTerm::kCommunicators) continue;
    costs.learn(work.kind(), term, part.bytes, std::max<Nanos>(0, took[term] - part.known), part.items);
  }
}

}  // namespace ckpt::agent
