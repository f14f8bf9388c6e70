// SPDX-License-Identifier: Apache-2.0
#include "coordinator/requests/authorize.h"

#include "coordinator/requests/body_reader.h"

namespace ckpt::coordinator {
std::string text_of_refusal(const std::string& what, Role min_role, Role role) {
  return what + " needs the role " + to_text(min_role) + ", and yours is " + to_text(role) +
         ": an admin can give you another certificate or token";
}

const char* to_text(Effect effect) {
  switch (effect) {
    case Effect::kMovesJobs:
      return "moves jobs";
    case Effect::kStartsProgram:
      return "starts or adopts a program";
    case Effect::kNamesFolder:
      return "names a folder of a node";
    case Effect::kOverridesProof:
      return "confirms what the cluster cannot prove";
    case Effect::kChangesMembers:
      return "changes the members of the cluster";
    case Effect::kNone:
      break;
  }
  return "requires nothing more";
}

Result<std::optional<std::string>> refusal_of(const HttpRequest& request, const Route& call, Role role) {
  using Refusal = std::optional<std::string>;
  if (role < call.min_role) return Refusal(text_of_refusal("This", call.min_role, role));
  CKPT_TRY(body, BodyReader::parse(request.body));
  for (const Field* field : body.asked()) {
    const Role min_role = min_role_for(field->effect);
    if (role < min_role)
      return Refusal(text_of_refusal(
          "Field \"" + std::string(field->name) + "\" " + to_text(field->effect) + ", and that", min_role,
          role));
  }
  return Refusal();
}

}  // namespace ckpt::coordinator
