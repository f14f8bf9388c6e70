// SPDX-License-Identifier: Apache-2.0
#include "libckpt/net/log/daemon_log.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>

#include <memory>
#include <mutex>

#include "libckpt/base/private_text.h"
#include "libckpt/net/control/log.h"

namespace ckpt::logging {
namespace {

class CleanMessage : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&, spdlog::memory_buf_t& line) override {
    const std::string clean = clean_line({message.payload.data(), message.payload.size()});
    line.append(clean.data(), clean.data() + clean.size());
  }
  [[nodiscard]] std::unique_ptr<custom_flag_formatter> clone() const override {
    return std::make_unique<CleanMessage>();
  }
};

class BoundedSink : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit BoundedSink(LogFile file) : file_(std::move(file)) {}

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    file_.write({line.data(), line.size()});
  }
  void flush_() override {}

 private:
  LogFile file_;
};

// Returns the number of bytes of the well-formed character at `at`. Returns 0 for a malformed character or a
// control character.
std::size_t character_at(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[at + i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return first >= 0x20 && first != 0x7f ? 1 : 0;
  const std::size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || at + length > text.size()) return 0;
  for (std::size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xc0) != 0x80) return 0;
  if (first == 0xc2 && byte(1) < 0xa0) return 0;  // the first byte of a C1 control character
  // These characters end lines or paragraphs, or change the direction of writing.
  const bool separates = first == 0xe2 && byte(1) == 0x80 && byte(2) >= 0xa8 && byte(2) <= 0xae;
  const bool isolates = first == 0xe2 && byte(1) == 0x81 && byte(2) >= 0xa6 && byte(2) <= 0xa9;
  return separates || isolates ? 0 : length;
}

bool is_mark(std::string_view rest) {
  return rest.starts_with(kCommandMark) || rest.starts_with(kOutputMark) || rest.starts_with(kPrivateEndMark);
}

}  // namespace

std::string clean_line(std::string_view message) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string line;
  line.reserve(message.size());
  for (std::size_t at = 0; at < message.size();) {
    if (line.size() >= kLongestLine) return line + "...";
    if (is_mark(message.substr(at))) {
      at += kPrivateEndMark.size();
      continue;
    }
    const std::size_t length = character_at(message, at);
    if (length != 0) {
      line += message.substr(at, length);
      at += length;
      continue;
    }
    const auto byte = static_cast<unsigned char>(message[at++]);
    if (byte == '\n') {
      line += "\\n";
    } else {
      line += "\\x";
      line += kDigits[byte >> 4];
      line += kDigits[byte & 15];
    }
  }
  return line;
}

Result<void> open_log(const DaemonLog& log) {
  LogFile file = LogFile::of_stderr(log.limits);
  if (!log.file.empty()) {
    CKPT_TRY(opened, LogFile::open(log.file, log.limits));
    file = std::move(opened);
  }
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  formatter->add_flag<CleanMessage>('*').set_pattern("%Y-%m-%dT%H:%M:%S.%e%z %l " +
                                                     (log.name.empty() ? "" : log.name + " ") + "%*");
  auto sink = std::make_shared<BoundedSink>(std::move(file));
  sink->set_formatter(std::move(formatter));
  auto logger = std::make_shared<spdlog::logger>(log.name, std::move(sink));
  logger->set_level(spdlog::level::from_str(log.level));
  spdlog::set_default_logger(std::move(logger));
  return ok();
}

}  // namespace ckpt::logging
