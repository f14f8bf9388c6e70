// SPDX-License-Identifier: Apache-2.0
// A job's command, as an API response shows it. The coordinator writes the command with a mark. For roles
// that may not read the command, it writes null instead (libckpt/base/private_text.h).
// Threads: plain values. Errors: reading throws record::DocumentError.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace ckpt::api {

struct Command {
  std::vector<std::string> words;

  // Writes the command with the mark.
  friend void to_json(nlohmann::ordered_json& document, const Command& command);
  // Reads a list of texts, in the form without the mark.
  friend void from_json(const nlohmann::ordered_json& document, Command& command);
};

// A text that belongs to a command, such as the command's folder, with the same mark as the command.
struct CommandText {
  std::string text;

  friend void to_json(nlohmann::ordered_json& document, const CommandText& command);
  friend void from_json(const nlohmann::ordered_json& document, CommandText& command);
};

// Returns the name of the mark's only field.
[[nodiscard]] const std::string& command_key();

}  // namespace ckpt::api
