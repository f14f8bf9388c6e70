// SPDX-License-Identifier: Apache-2.0
// Ids of jobs, migrations and what else a coordinator numbers, as numbers and as text ("j6-k3fa").
//
// An id is a number and a tag. Numbers go on from the coordinator's store, and the tag is drawn at each start
// of the coordinator. A coordinator with a lost or older store begins with numbers that were given before,
// but never with their tags. Ids order by number. Below 2^32 an id has no tag ("j6"): coordinators that drew
// none gave it.
// Threads: pure. Errors: parse_id() gives nothing for what is not an id.
#pragma once

#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>

namespace ckpt::wire {

using IdTag = std::uint32_t;  // 0: none

inline constexpr IdTag kMaxIdTag = (1U << 20) - 1;
inline constexpr std::uint64_t kMaxTaggedNumber = (std::uint64_t{1} << 31) - 1;  // the id is a positive int64

[[nodiscard]] constexpr std::uint64_t make_id(std::uint64_t number, IdTag tag) noexcept {
  return tag == 0 ? number : number << 32 | tag;
}
[[nodiscard]] constexpr std::uint64_t id_number(std::uint64_t id) noexcept {
  return id >> 32 == 0 ? id : id >> 32;
}
[[nodiscard]] constexpr IdTag id_tag(std::uint64_t id) noexcept {
  return id >> 32 == 0 ? 0 : static_cast<IdTag>(id);
}

// "k3fa": four characters, none that is easily taken for another.
[[nodiscard]] std::string tag_text(IdTag tag);
[[nodiscard]] std::string id_text(char kind, std::uint64_t id);
[[nodiscard]] std::optional<std::uint64_t> parse_id(char kind, std::string_view text);

[[nodiscard]] inline std::string job_text(std::uint64_t id) {
  return id_text('j', id);
}
[[nodiscard]] inline std::string migration_text(std::uint64_t id) {
  return id_text('m', id);
}

// Whether the id that a user gives (`said`) may mean `id`: the tag may be left out.
[[nodiscard]] constexpr bool may_mean(std::uint64_t said, std::uint64_t id) noexcept {
  return said == id || (id_tag(said) == 0 && said == id_number(id));
}

// Returns the entry that a person means by `id`: the one with this id or, without a tag, the only one of that
// number. end() if there is none, or several.
template <class Map>
[[nodiscard]] auto find_meant(Map& entries, std::uint64_t id) {
  if (const auto exact = entries.find(id); exact != entries.end() || id_tag(id) != 0) return exact;
  if (id > kMaxTaggedNumber) return entries.end();
  const auto first = entries.lower_bound(id << 32);
  const auto after = entries.lower_bound((id + 1) << 32);
  return first != after && std::next(first) == after ? first : entries.end();
}

}  // namespace ckpt::wire
