// SPDX-License-Identifier: Apache-2.0
// Events as the API shows them (docs/api.md).
// Threads: plain values. Errors: none.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "libckpt/record/fields.h"

namespace ckpt::api {

struct Event {
  std::uint64_t id = 0;  // a number that increases with every event
  std::string time;      // the time of the event (RFC 3339, UTC)
  std::string kind;
  std::optional<std::string> job;
  std::optional<std::string> migration;
  std::optional<std::string> node;
  std::string text;
};
template <std::same_as<Event> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::field("id", &T::id), record::field("time", &T::time),
                        record::field("kind", &T::kind), record::field("job", &T::job),
                        record::field("migration", &T::migration), record::field("node", &T::node),
                        record::field("text", &T::text));
}

}  // namespace ckpt::api
