// SPDX-License-Identifier: Apache-2.0
// The driver's functions, each with what makes a traced call of it again.
// Threads: one at a time. Ownership: what `objects` holds. Errors: an Outcome has the reason.
#pragma once

#include <string>

#include "tools/replay/arguments.h"
#include "tools/replay/objects.h"
#include "tools/replay/trace_file.h"

namespace ckpt::replay {

struct Outcome {
  bool is_made = false;
  int result = 0;        // of a call that was made
  const char* why = "";  // it was not
};

inline Outcome left_out(const char* why) {
  Outcome outcome;
  outcome.why = why;
  return outcome;
}
inline Outcome made(CUresult result) {
  Outcome outcome;
  outcome.is_made = true;
  outcome.result = result;
  return outcome;
}

struct Surroundings {
  Surroundings(void* library, std::string module) : driver(library), kernels(std::move(module)) {}
  void* driver;         // dlopen's
  std::string kernels;  // the module file
  Objects objects;
};

// Makes a call by the types of the function's parameters alone.
[[nodiscard]] Outcome call_by_types(Surroundings& surroundings, const TracedCall& call, const Manner& manner);
// Makes a call in which the program's own code or memory takes part; `found`: the function is such a one.
[[nodiscard]] Outcome call_by_name(Surroundings& surroundings, const TracedCall& call, bool* found);
// Returns the facts with which call_by_types() can make the call.
[[nodiscard]] Manner manner_of(const TracedCall& call);
// Its first argument is memory that is gone afterwards.
[[nodiscard]] bool frees(const TracedCall& call);

}  // namespace ckpt::replay
