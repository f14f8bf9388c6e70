// SPDX-License-Identifier: Apache-2.0
#include "coordinator/requests/redaction.h"

#include <string>

#include "libckpt/api/command.h"
#include "libckpt/base/private_text.h"

namespace ckpt::coordinator {
namespace {

void redact(json& value, const PrivateParts& may_see) {
  if (value.is_object() && value.size() == 1 && value.begin().key() == api::command_key()) {
    json command = std::move(value.begin().value());
    value = may_see.command ? std::move(command) : json();
    return;
  }
  if (value.is_string()) {
    auto& text = value.get_ref<std::string&>();
    if (!is_public(text)) text = show_private(text, may_see);
  } else if (value.is_structured()) {
    for (json& part : value) redact(part, may_see);
  }
}

}  // namespace

json command_json(const json& command) {
  return {{api::command_key(), command}};
}

HttpResponse shown_to(Role role, HttpResponse answer) {
  if (answer.content_type != "application/json" || is_public(answer.body)) return answer;
  PrivateParts may_see;
  may_see.command = role >= Role::kOperator;
  may_see.output = role >= Role::kAdmin;
  json body = json::parse(answer.body, nullptr, false);
  redact(body, may_see);
  answer.body = body.is_discarded() ? "{}" : body.dump(-1, ' ', false, json::error_handler_t::replace);
  return answer;
}

}  // namespace ckpt::coordinator
