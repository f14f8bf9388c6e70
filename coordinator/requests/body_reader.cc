// SPDX-License-Identifier: Apache-2.0
#include "coordinator/requests/body_reader.h"

#include <algorithm>

namespace ckpt::coordinator {
namespace {

using nlohmann::json;

bool has_zero_byte(const std::string& text) {
  return text.find('\0') != std::string::npos;
}

// Checks whether JSON text is nested too deeply. JSON does not limit the depth, and the parser recurses when
// such a value is destroyed.
bool too_deep(const std::string& body) {
  constexpr int kDeepest = 16;
  int depth = 0;
  bool in_text = false;
  for (std::size_t i = 0; i < body.size(); ++i) {
    const char c = body[i];
    if (in_text && c == '\\') {
      ++i;
    } else if (c == '"') {
      in_text = !in_text;
    } else if (!in_text && (c == '[' || c == '{') && ++depth > kDeepest) {
      return true;
    } else if (!in_text && (c == ']' || c == '}')) {
      --depth;
    }
  }
  return false;
}

// Returns the current name for a field's name in earlier builds, or an empty text if the call has no such
// field.
std::string_view current_name(std::string_view former, const std::set<std::string>& fields) {
  if (former == "way" && fields.contains("mode")) return "mode";
  if (former == "mode" && fields.contains("strategy")) return "strategy";
  return {};
}

}  // namespace

Result<BodyReader> BodyReader::parse(const std::string& body) {
  if (body.empty()) return BodyReader(json::object());
  if (too_deep(body)) return Error(ErrorCode::kInvalidArgument, "The body is nested too deeply");
  json parsed = json::parse(body, nullptr, false);
  if (!parsed.is_object()) return Error(ErrorCode::kInvalidArgument, "The body is not a JSON object");
  return BodyReader(std::move(parsed));
}

const json* BodyReader::consume(FieldName field) {
  taken_.insert(field.text());
  const auto at = object_.find(field.text());
  return at == object_.end() || at->is_null() ? nullptr : &*at;
}

std::vector<const Field*> BodyReader::asked() const {
  std::vector<const Field*> fields;
  for (const auto& [name, value] : object_.items()) {
    const Field* field = find_field(name);
    if (field == nullptr || value.is_null()) continue;
    const bool counts =
        !field->if_folder || (value.is_string() && means_folder(value.get_ref<const std::string&>()));
    if (counts) fields.push_back(field);
  }
  return fields;
}

void BodyReader::wrong(FieldName field, const std::string& reason) {
  if (!error_)
    error_ = Error(ErrorCode::kInvalidArgument, std::string("Field \"") + field.text() + "\" " + reason);
}

std::optional<std::string> BodyReader::text(FieldName field) {
  const json* value = consume(field);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string() || has_zero_byte(value->get_ref<const std::string&>())) {
    wrong(field, "must be a string");
    return std::nullopt;
  }
  return value->get<std::string>();
}

std::optional<std::size_t> BodyReader::choice(FieldName field, const std::vector<std::string>& words) {
  const auto word = text(field);
  if (!word) return std::nullopt;
  const auto at = std::find(words.begin(), words.end(), *word);
  if (at != words.end()) return static_cast<std::size_t>(at - words.begin());
  std::string list;
  for (const std::string& known : words) list += (list.empty() ? "" : " or ") + known;
  wrong(field, "must be " + list);
  return std::nullopt;
}

std::optional<std::int64_t> BodyReader::integer(FieldName field, std::int64_t min_value,
                                                std::int64_t max_value) {
  const json* value = consume(field);
  if (value == nullptr) return std::nullopt;
  const bool fits =
      value->is_number_integer() &&
      (!value->is_number_unsigned() || value->get<std::uint64_t>() <= static_cast<std::uint64_t>(max_value));
  if (!fits || value->get<std::int64_t>() < min_value || value->get<std::int64_t>() > max_value) {
    wrong(field,
          "must be a whole number from " + std::to_string(min_value) + " to " + std::to_string(max_value));
    return std::nullopt;
  }
  return value->get<std::int64_t>();
}

std::optional<double> BodyReader::number(FieldName field, double min_value, double max_value) {
  const json* value = consume(field);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number() || !(value->get<double>() >= min_value && value->get<double>() <= max_value)) {
    wrong(field, "must be a number from " + std::to_string(min_value) + " to " + std::to_string(max_value));
    return std::nullopt;
  }
  return value->get<double>();
}

std::optional<bool> BodyReader::boolean(FieldName field) {
  const json* value = consume(field);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) {
    wrong(field, "must be true or false");
    return std::nullopt;
  }
  return value->get<bool>();
}

std::optional<std::vector<std::string>> BodyReader::texts(FieldName field) {
  const json* value = consume(field);
  if (value == nullptr) return std::nullopt;
  std::vector<std::string> texts;
  bool good = value->is_array();
  if (good) {
    for (const json& element : *value) {
      good = good && element.is_string() && !has_zero_byte(element.get_ref<const std::string&>());
      if (good) texts.push_back(element.get<std::string>());
    }
  }
  if (good) return texts;
  wrong(field, "must be a list of strings");
  return std::nullopt;
}

std::optional<std::vector<std::uint32_t>> BodyReader::numbers(FieldName field, std::uint32_t max_value) {
  const json* value = consume(field);
  if (value == nullptr) return std::nullopt;
  std::vector<std::uint32_t> numbers;
  bool good = value->is_array() && value->size() <= max_value + std::size_t{1};
  if (good) {
    for (const json& element : *value) {
      good = good && element.is_number_unsigned() && element.get<std::uint64_t>() <= max_value;
      if (good) numbers.push_back(element.get<std::uint32_t>());
    }
  }
  if (good) return numbers;
  wrong(field, "must be a list of numbers up to " + std::to_string(max_value));
  return std::nullopt;
}

std::optional<std::vector<std::string>> BodyReader::environment(FieldName field) {
  const json* value = consume(field);
  if (value == nullptr) return std::nullopt;
  std::vector<std::string> variables;
  bool good = value->is_object();
  if (good) {
    for (const auto& [name, text] : value->items()) {
      good = good && !name.empty() && name.find('=') == std::string::npos && !has_zero_byte(name) &&
             text.is_string() && !has_zero_byte(text.get_ref<const std::string&>());
      if (good) variables.push_back(name + "=" + text.get<std::string>());
    }
  }
  if (good) return variables;
  wrong(field, "must be an object of strings");
  return std::nullopt;
}

Result<void> BodyReader::finish() {
  if (error_) return *error_;
  for (const auto& [key, value] : object_.items()) {
    if (taken_.contains(key)) continue;
    const std::string_view current = current_name(key, taken_);
    return Error(ErrorCode::kInvalidArgument,
                 "Field \"" + key + "\" is unknown" +
                     (current.empty() ? "" : ": it is now \"" + std::string(current) + "\""));
  }
  return ok();
}

}  // namespace ckpt::coordinator
