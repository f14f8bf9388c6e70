// SPDX-License-Identifier: Apache-2.0
// A reader of a request's JSON object. It reads each field once, and refuses unknown fields. Errors:
// kInvalidArgument naming the field; finish() returns the first error.
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
  // Parses the body. An empty body is an empty object.
  static Result<BodyReader> parse(const std::string& body);

  // Returns those fields of the body that have an effect (fields.h).
  [[nodiscard]] std::vector<const Field*> asked() const;

  std::optional<std::string> text(FieldName field);
  // Returns the value of a field that contains one of the enum's names.
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
  // Returns the members of an object as texts: {"K": "V"} becomes K=V.
  std::optional<std::vector<std::string>> environment(FieldName field);

  // Returns the first error, or an error for a field that was not read.
  Result<void> finish();

 private:
  // Returns the index of the field's value in `words`.
  std::optional<std::size_t> choice(FieldName field, const std::vector<std::string>& words);
  explicit BodyReader(nlohmann::json object) : object_(std::move(object)) {}
  const nlohmann::json* consume(FieldName field);
  void wrong(FieldName field, const std::string& reason);

  nlohmann::json object_;
  std::set<std::string> taken_;
  std::optional<Error> error_;
};

}  // namespace ckpt::coordinator
