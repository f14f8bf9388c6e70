// SPDX-License-Identifier: Apache-2.0
// A job's command in an answer of the API. Not all may read it: the coordinator writes it with a mark, and leaves
// it out, as null, for roles that may not (libckpt/base/private_text.h).
// Threads: values. Errors: reading throws record::DocumentError.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace ckpt::api {

struct Command {
  std::vector<std::string> words;

  // Writes it with the mark.
  friend void to_json(nlohmann::ordered_json& document, const Command& command);
  // Reads a list of texts, as it is without the mark.
  friend void from_json(const nlohmann::ordered_json& document, Command& command);
};

// One text of a command, like its folder, with the same mark.
struct CommandText {
  std::string text;

  friend void to_json(nlohmann::ordered_json& document, const CommandText& command);
  friend void from_json(const nlohmann::ordered_json& document, CommandText& command);
};

// The name of the mark's only field.
[[nodiscard]] const std::string& command_key();

}  // namespace ckpt::api
