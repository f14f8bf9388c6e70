// SPDX-License-Identifier: Apache-2.0
#include "libckpt/api/command.h"

#include <nlohmann/json.hpp>

#include "libckpt/base/private_text.h"

namespace ckpt::api {

const std::string& command_key() {
  static const std::string key = std::string(kCommandMark) + "command";
  return key;
}

void to_json(nlohmann::ordered_json& document, const Command& command) {
  document = {{command_key(), command.words}};
}

void from_json(const nlohmann::ordered_json& document, Command& command) {
  document.get_to(command.words);
}

void to_json(nlohmann::ordered_json& document, const CommandText& command) {
  document = {{command_key(), command.text}};
}

void from_json(const nlohmann::ordered_json& document, CommandText& command) {
  document.get_to(command.text);
}

}  // namespace ckpt::api
