// SPDX-License-Identifier: Apache-2.0
// Records as JSON documents: an object of their fields (fields.h), enums by name (names.h). A type with its
// own form has `to_json` and `from_json` in its namespace.
//   - Documents that are kept (to_document, from_document): an optional member only where it has a value.
//   - Answers of the API (to_answer, from_answer): fields in the list's order, null for an optional member
//     without a value. A field that an answer lacks, or has in another form, keeps its default: the other side
//     may be older or newer.
//
// A stored document is untrusted: a field that is missing, has another type or does not fit is refused with
// its path. Unknown fields are ignored. A list that is shorter than an array leaves the rest of the array 0.
// An enum is also read as a number, which is the older form.
// Threads: pure functions. Errors: reading throws DocumentError; parse_document returns kCorrupt.
#pragma once

#include <concepts>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "libckpt/base/result.h"
#include "libckpt/record/fields.h"
#include "libckpt/record/names.h"

namespace ckpt::record {

using nlohmann::json;
using nlohmann::ordered_json;

// An error such as "ranks[2].pid is missing".
class DocumentError : public std::runtime_error {
 public:
  explicit DocumentError(std::string what_is_wrong)
      : std::runtime_error(what_is_wrong), text_(std::move(what_is_wrong)) {}
  // Returns the same error within the field or element `where`.
  [[nodiscard]] DocumentError within(const std::string& where) const;

 private:
  std::string text_;
};

namespace detail {

template <class T>
struct IsOptional : std::false_type {};
template <class T>
struct IsOptional<std::optional<T>> : std::true_type {};

template <class T>
concept Text = std::same_as<T, std::string>;
// A vector, deque, array or set.
template <class T>
concept Listed = !Text<T> && requires(const T& list) {
  list.begin();
  list.end();
  typename T::value_type;
};
template <class T>
concept OwnForm = !Listed<T> && !Text<T> && std::is_class_v<T> && !Described<T> && !IsOptional<T>::value;

// Throws an error. `found` is the name of the type that was found, or its text.
[[noreturn]] void fail_type(const char* found, const char* wanted);
[[noreturn]] void fail_range(std::string found);

template <class J>
[[noreturn]] void fail_range_of(const J& found) {
  fail_range(found.dump(-1, ' ', true, J::error_handler_t::replace));
}

template <class J>
inline constexpr bool kIsAnswer = !std::same_as<J, json>;

template <class J, class T>
J write(const T& value);
template <class J, class T>
void read(const J& from, T& value);

template <class J, Described T>
void write_fields(const T& value, J& object) {
  for_each_field<T>([&](const auto& field) {
    using F = std::remove_cvref_t<decltype(field)>;
    const auto& member = value.*field.member;
    if constexpr (F::kKept == Presence::kInlined && IsOptional<typename F::Member>::value) {
      if (member) write_fields<J>(*member, object);
    } else if constexpr (F::kKept == Presence::kInlined) {
      write_fields<J>(member, object);
    } else if constexpr (F::kKept != Presence::kNotKept) {
      const std::string name(field.name);
      if constexpr (IsOptional<typename F::Member>::value) {
        if (member)
          object[name] = write<J>(*member);
        else if (kIsAnswer<J>)
          object[name] = nullptr;
      } else {
        object[name] = write<J>(member);
      }
    }
  });
}

template <class J, class T>
J write(const T& value) {
  if constexpr (Described<T>) {
    if constexpr (is_bare<T>()) {
      return write<J>(value.*std::get<0>(fields_of(Of<T>{})).member);
    } else {
      J object = J::object();
      write_fields<J>(value, object);
      return object;
    }
  } else if constexpr (Named<T>) {
    return name_of(value);
  } else if constexpr (Listed<T>) {
    J list = J::array();
    for (const auto& element : value) list.push_back(write<J>(element));
    return list;
  } else if constexpr (IsOptional<T>::value) {
    return value ? write<J>(*value) : J();
  } else {
    static_assert(!std::is_enum_v<T>, "an enum in a document needs names_of");
    return value;
  }
}

template <class J, class T>
void read_member(const J& found, std::string_view name, T& member) {
  try {
    if constexpr (IsOptional<T>::value) {
      member.reset();
      if (!found.is_null()) read(found, member.emplace());
    } else {
      read(found, member);
    }
  } catch (const DocumentError& e) {
    throw e.within(std::string(name));
  } catch (const std::exception& e) {
    throw DocumentError(std::string(name) + ": " + e.what());
  }
}

template <class J, class T>
void read_field(const J& object, std::string_view name, Presence presence, T& member) {
  const auto found = object.find(name);
  if constexpr (kIsAnswer<J>) {
    T usual = member;
    try {
      if (found != object.end()) read_member(*found, name, member);
    } catch (const DocumentError&) {
      member = std::move(usual);
    }
  } else if (found != object.end()) {
    read_member(*found, name, member);
  } else if (presence == Presence::kAlways && !IsOptional<T>::value) {
    throw DocumentError(std::string(name) + " is missing");
  }
}

template <class J, Described T>
void read_fields(const J& object, T& value) {
  for_each_field<T>([&](const auto& field) {
    using F = std::remove_cvref_t<decltype(field)>;
    if constexpr (F::kKept == Presence::kInlined && IsOptional<typename F::Member>::value) {
      using Inner = typename F::Member::value_type;
      if (object.contains(std::get<0>(fields_of(Of<Inner>{})).name))
        read_fields(object, (value.*field.member).emplace());
    } else if constexpr (F::kKept == Presence::kInlined)
      read_fields(object, value.*field.member);
    else if constexpr (F::kKept != Presence::kNotKept)
      read_field(object, field.name, F::kKept, value.*field.member);
  });
}

template <class J, std::integral T>
void read_number(const J& from, T& value) {
  if (!from.is_number_integer()) fail_type(from.type_name(), "a whole number");
  const bool fits = from.is_number_unsigned() ? std::in_range<T>(from.template get<std::uint64_t>())
                                              : std::in_range<T>(from.template get<std::int64_t>());
  if (!fits) fail_range_of(from);
  value = from.is_number_unsigned() ? static_cast<T>(from.template get<std::uint64_t>())
                                    : static_cast<T>(from.template get<std::int64_t>());
}

template <class J, Named T>
void read_named(const J& from, T& value) {
  std::optional<T> found;
  if (from.is_string()) {
    found = value_named<T>(from.template get_ref<const std::string&>());
  } else {
    std::underlying_type_t<T> number{};
    read_number(from, number);
    if (has_name(static_cast<T>(number))) found = static_cast<T>(number);
  }
  if (!found) fail_range_of(from);
  value = *found;
}

template <class J, class T>
void read_list(const J& from, T& value) {
  if (!from.is_array()) fail_type(from.type_name(), "a list");
  std::size_t at = 0;
  for (const J& element : from) {
    try {
      if constexpr (requires { value.fill(typename T::value_type()); }) {
        if (at == value.size()) fail_range_of(from);
        read(element, value[at]);
      } else {
        typename T::value_type next{};
        read(element, next);
        value.insert(value.end(), std::move(next));
      }
    } catch (const DocumentError& e) {
      throw e.within("[" + std::to_string(at) + "]");
    }
    ++at;
  }
}

template <class J, class T>
void read(const J& from, T& value) {
  if constexpr (Described<T>) {
    if constexpr (is_bare<T>()) {
      read(from, value.*std::get<0>(fields_of(Of<T>{})).member);
    } else {
      if (!from.is_object()) fail_type(from.type_name(), "an object");
      read_fields(from, value);
    }
  } else if constexpr (Named<T>) {
    read_named(from, value);
  } else if constexpr (std::same_as<T, bool>) {
    if (!from.is_boolean()) fail_type(from.type_name(), "true or false");
    value = from.template get<bool>();
  } else if constexpr (std::integral<T>) {
    read_number(from, value);
  } else if constexpr (std::floating_point<T>) {
    if (!from.is_number()) fail_type(from.type_name(), "a number");
    value = from.template get<T>();
  } else if constexpr (Text<T>) {
    if (!from.is_string()) fail_type(from.type_name(), "a text");
    value = from.template get<T>();
  } else if constexpr (Listed<T>) {
    value = T();
    read_list(from, value);
  } else if constexpr (IsOptional<T>::value) {
    value.reset();
    if (!from.is_null()) read(from, value.emplace());
  } else {
    static_assert(OwnForm<T>, "an enum in a document needs names_of");
    from.get_to(value);
  }
}

}  // namespace detail

template <Described T>
[[nodiscard]] json to_document(const T& value) {
  return detail::write<json>(value);
}

// Reads a document. Members that the document lacks keep their defaults, if the list allows that.
template <Described T>
[[nodiscard]] T from_document(const json& document) {
  T value;
  detail::read(document, value);
  return value;
}

// Returns the document on one line, with U+FFFD for bytes that are not UTF-8.
[[nodiscard]] std::string to_text(const json& document);
template <Described T>
[[nodiscard]] std::string to_text(const T& value) {
  return to_text(to_document(value));
}

// Parses an object. Throws DocumentError for anything else.
[[nodiscard]] json parse_object(std::string_view text);
template <Described T>
[[nodiscard]] T from_text(std::string_view text) {
  return from_document<T>(parse_object(text));
}

template <Described T>
[[nodiscard]] ordered_json to_answer(const T& value) {
  return detail::write<ordered_json>(value);
}
// Reads an answer. Returns only defaults if `answer` is not an object.
template <Described T>
[[nodiscard]] T from_answer(const ordered_json& answer) {
  T value;
  if (answer.is_object()) detail::read(answer, value);
  return value;
}
// Reads the objects of a list. Other elements are skipped.
template <Described T>
[[nodiscard]] std::vector<T> list_from_answer(const ordered_json& answer) {
  std::vector<T> values;
  if (!answer.is_array()) return values;
  for (const ordered_json& element : answer)
    if (element.is_object()) values.push_back(from_answer<T>(element));
  return values;
}

// Reads a text from another process. `what` names the text in the error: "The image's notes".
template <Described T>
[[nodiscard]] Result<T> parse_document(std::string_view text, std::string_view what) {
  try {
    return from_text<T>(text);
  } catch (const DocumentError& e) {
    return Error(ErrorCode::kCorrupt, std::string(what) + " cannot be read: " + e.what());
  }
}

}  // namespace ckpt::record
