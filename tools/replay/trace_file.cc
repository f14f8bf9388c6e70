// SPDX-License-Identifier: Apache-2.0
#include "tools/replay/trace_file.h"

#include <charconv>
#include <fstream>
#include <sstream>
#include <string_view>

namespace ckpt::replay {
namespace {

constexpr std::string_view kHead = "# gpumigrate-trace 1 driver ";
constexpr std::string_view kKinds = "nhvsdb";

Error bad(std::size_t line, const std::string& why) {
  return Error(ErrorCode::kInvalidArgument, "Line " + std::to_string(line) + " of the trace: " + why);
}

template <class T>
bool to_number(std::string_view text, T* out, int base = 10) {
  const auto [at, failure] = std::from_chars(text.data(), text.data() + text.size(), *out, base);
  return failure == std::errc{} && at == text.data() + text.size();
}

// Takes the first word of `rest`.
std::string_view next_word(std::string_view& rest) {
  const std::size_t end = rest.find(' ');
  const std::string_view word = rest.substr(0, end);
  rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
  return word;
}

bool to_bytes(std::string_view hex, std::vector<unsigned char>* out) {
  if (hex.size() % 2 != 0) return false;
  out->resize(hex.size() / 2);
  for (std::size_t i = 0; i < out->size(); i++) {
    if (!to_number(hex.substr(2 * i, 2), &(*out)[i], 16)) return false;
  }
  return true;
}

// KIND VALUE [=AFTER] [<BEFORE], without the spaces.
bool to_value(std::string_view word, TracedValue* value) {
  if (word.empty() || kKinds.find(word.front()) == std::string_view::npos) return false;
  value->kind = word.front();
  word.remove_prefix(1);
  if (const std::size_t at = word.find('<'); at != std::string_view::npos) {
    if (!to_bytes(word.substr(at + 1), &value->before)) return false;
    word = word.substr(0, at);
  }
  if (const std::size_t at = word.find('='); at != std::string_view::npos) {
    value->has_data = true;
    if (!to_bytes(word.substr(at + 1), &value->data)) return false;
    word = word.substr(0, at);
  }
  return value->kind == 'b' ? word.empty() : to_number(word, &value->value, 16);
}

Result<TracedCall> to_call(std::string_view text, std::size_t line) {
  TracedCall call;
  call.line = line;
  if (!to_number(next_word(text), &call.thread)) return bad(line, "no thread");
  if (!to_number(next_word(text), &call.began_us)) return bad(line, "no beginning");
  if (!to_number(next_word(text), &call.took_us)) return bad(line, "no duration");
  call.name = std::string(next_word(text));
  if (!call.name.starts_with("cu")) return bad(line, "no function of the driver");
  if (!to_number(next_word(text), &call.result)) return bad(line, "no result");
  while (!text.empty()) {
    if (call.values.size() == kMaxValues) return bad(line, "too many arguments");
    if (!to_value(next_word(text), &call.values.emplace_back()))
      return bad(line, "argument " + std::to_string(call.values.size()) + " cannot be read");
  }
  return call;
}

}  // namespace

Result<Trace> parse_trace(const std::string& text) {
  Trace trace;
  std::string_view rest = text;
  std::size_t line = 0;
  while (!rest.empty()) {
    const std::size_t end = rest.find('\n');
    if (end == std::string_view::npos) {
      trace.is_cut = true;
      break;
    }
    const std::string_view words = rest.substr(0, end);
    rest.remove_prefix(end + 1);
    line++;
    if (words.size() > kMaxLine) return bad(line, "it is too long");
    if (line == 1) {
      if (!words.starts_with(kHead) || !to_number(words.substr(kHead.size()), &trace.driver_version))
        return bad(line, "not \"" + std::string(kHead) + "VERSION\"");
      continue;
    }
    if (trace.calls.size() == kMaxCalls) return bad(line, "there are too many calls");
    CKPT_TRY(call, to_call(words, line));
    trace.calls.push_back(std::move(call));
  }
  if (line == 0) return bad(1, "the file is empty");
  return trace;
}

Result<Trace> read_trace(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf())) return Error(ErrorCode::kNotFound, "Cannot read the trace " + path);
  return parse_trace(text.str());
}

}  // namespace ckpt::replay
