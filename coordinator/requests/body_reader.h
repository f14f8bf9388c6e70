// SPDX-License-Identifier: Apache-2.0
// Reads a request's JSON object field by field, each once, and refuses unknown fields.
// Errors: kInvalidArgument naming the field; the first one is kept and returned by finish().
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "coordinator/requests/fields.h"
#include "libckpt/base/result.h"
#include "libckpt/record/names.h"

namespace ckpt::coordinator {

class BodyReader {
 public:
  // An empty body is an empty object.
  static Result<BodyReader> parse(const std::string& body);

  // The fields that are there, of those with an effect (fields.h).
  [[nodiscard]] std::vector<const Field*> asked() const;

  std::optional<std::string> text(FieldName field);
  // One of `words`; its index.
  // One of the enum's names.
  template <record::Named E>
  std::optional<E> named(FieldName field) {
    std::vector<std::string> words;
    for (const auto& [value, name] : names_of(record::Of<E>{})) words.emplace_back(name);
    const auto at = choice(field, words);
    return at ? std::optional(names_of(record::Of<E>{})[*at].first) : std::nullopt;
  }
  std::optional<std::int64_t> integer(FieldName field, std::int64_t min_value, std::int64_t max_value);
  std::optional<double> number(FieldName field, double min_value, double max_value);
  std::optional<bool> boolean(FieldName field);
  std::optional<std::vector<std::string>> texts(FieldName field);
  std::optional<std::vector<std::uint32_t>> numbers(FieldName field, std::uint32_t max_value);
  std::optional<std::vector<std::string>> environment(FieldName field);  // {"K": "V"} as K=V

  // The first thing that was wrong, or a field that was not asked for.
  Result<void> finish();

 private:
  // One of `words`; its index.
  std::optional<std::size_t> choice(FieldName field, const std::vector<std::string>& words);
  explicit BodyReader(nlohmann::json object) : object_(std::move(object)) {}
  const nlohmann::json* take(FieldName field);
  void wrong(FieldName field, const std::string& reason);

  nlohmann::json object_;
  std::set<std::string> taken_;
  std::optional<Error> error_;
};

}  // namespace ckpt::coordinator
