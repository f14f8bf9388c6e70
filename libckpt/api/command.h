// SPDX-License-Identifier: Apache-2.0
// A job's command in an answer of the API. Not every role may read it. The coordinator writes it with a mark,
// and omits it, as null, for roles that may not read it (libckpt/base/private_text.h).
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

// One text of a command, such as its folder, with the same mark.
struct CommandText {
  std::string text;

  friend void to_json(nlohmann::ordered_json& document, const CommandText& command);
  friend void from_json(const nlohmann::ordered_json& document, CommandText& command);
};

// Returns the name of the mark's only field.
[[nodiscard]] const std::string& command_key();

}  // namespace ckpt::api
