// SPDX-License-Identifier: Apache-2.0
// Ids of jobs, migrations and other objects that a coordinator numbers, as numbers and as text ("j6-k3fa").
//
// An id is a number and a tag. Numbers continue from the coordinator's store, and the tag is drawn at random
// at each start of the coordinator. A coordinator with a lost or older store repeats earlier numbers, but
// never with their tags. Ids are ordered by number. An id below 2^32 has no tag ("j6"): a coordinator that
// drew no tags assigned it.
// Threads: pure functions. Errors: parse_id() returns nullopt for text that is not an id.
#pragma once

#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>

namespace ckpt::wire {

using IdTag = std::uint32_t;  // the tag of an id; 0 if there is no tag

inline constexpr IdTag kMaxIdTag = (1U << 20) - 1;
// The greatest number of an id with a tag, limited so that the id is a positive int64.
inline constexpr std::uint64_t kMaxTaggedNumber = (std::uint64_t{1} << 31) - 1;

[[nodiscard]] constexpr std::uint64_t make_id(std::uint64_t number, IdTag tag) noexcept {
  return tag == 0 ? number : number << 32 | tag;
}
[[nodiscard]] constexpr std::uint64_t id_number(std::uint64_t id) noexcept {
  return id >> 32 == 0 ? id : id >> 32;
}
[[nodiscard]] constexpr IdTag id_tag(std::uint64_t id) noexcept {
  return id >> 32 == 0 ? 0 : static_cast<IdTag>(id);
}

// Returns a text such as "k3fa": four characters, none of which is easily confused with another.
[[nodiscard]] std::string tag_text(IdTag tag);
[[nodiscard]] std::string id_text(char kind, std::uint64_t id);
[[nodiscard]] std::optional<std::uint64_t> parse_id(char kind, std::string_view text);

[[nodiscard]] inline std::string job_text(std::uint64_t id) {
  return id_text('j', id);
}
[[nodiscard]] inline std::string migration_text(std::uint64_t id) {
  return id_text('m', id);
}

// Returns whether the id that a user gives (`said`) may refer to `id`. The user may omit the tag.
[[nodiscard]] constexpr bool may_mean(std::uint64_t said, std::uint64_t id) noexcept {
  return said == id || (id_tag(said) == 0 && said == id_number(id));
}

// Returns the entry that a person refers to by `id`: the entry with this id or, without a tag, the only entry
// with that number. Returns end() if there is no such entry, or several.
template <class Map>
[[nodiscard]] auto find_meant(Map& entries, std::uint64_t id) {
  if (const auto exact = entries.find(id); exact != entries.end() || id_tag(id) != 0) return exact;
  if (id > kMaxTaggedNumber) return entries.end();
  const auto first = entries.lower_bound(id << 32);
  const auto after = entries.lower_bound((id + 1) << 32);
  return first != after && std::next(first) == after ? first : entries.end();
}

}  // namespace ckpt::wire
