// SPDX-License-Identifier: Apache-2.0
// The one table of all fields that a request's body may have, each with its effect. A reader accepts only
// names of this table (FieldName). A name that is not in the table does not compile.
// Threads: pure functions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "coordinator/requests/roles.h"

namespace ckpt::coordinator {

// The effect of a field of a request, regardless of the call.
enum class Effect : std::uint8_t {
  kNone,            // no effect beyond that of the call
  kMovesJobs,       // jobs move, are parked or return
  kStartsProgram,   // a command runs, or a process is adopted, as the jobs' user
  kNamesFolder,     // files are written or read in a folder on a node
  kOverridesProof,  // the caller's statement replaces a proof that the cluster cannot make
  kChangesMembers,  // the members of the cluster change
};

struct Field {
  std::string_view name;
  Effect effect = Effect::kNone;
  // True if the effect applies only to a text that begins with '/', and not to a node's name.
  bool if_folder = false;
};

inline constexpr std::array kFields = {
    Field{"accept_loss", Effect::kOverridesProof},
    Field{"allow", Effect::kStartsProgram},
    Field{"apply", Effect::kMovesJobs},
    Field{"argv", Effect::kStartsProgram},
    Field{"at", Effect::kOverridesProof},
    Field{"bandwidth"},
    Field{"certificate", Effect::kChangesMembers},
    Field{"codec"},
    Field{"communicators"},
    Field{"connections"},
    Field{"cwd", Effect::kStartsProgram},
    Field{"deadline_ms"},
    Field{"dry_run"},
    Field{"env", Effect::kStartsProgram},
    Field{"every_ms"},
    Field{"exec", Effect::kStartsProgram},
    Field{"fallback", Effect::kMovesJobs},
    Field{"fenced", Effect::kOverridesProof},
    Field{"for_ms", Effect::kChangesMembers},
    Field{"force"},
    Field{"forgive"},
    Field{"gpu"},
    Field{"gpu_memory_bytes"},
    Field{"gpus"},
    Field{"grace_ms"},
    Field{"if_not_converged"},
    Field{"image", Effect::kStartsProgram},
    Field{"keep"},
    Field{"machine", Effect::kStartsProgram},
    Field{"max_downtime_ms"},
    Field{"max_rounds"},
    Field{"mode"},
    Field{"name"},
    Field{"namespaces"},
    Field{"network"},
    Field{"node"},
    Field{"nodes"},
    Field{"parallel"},
    Field{"pid", Effect::kStartsProgram},
    Field{"place"},
    Field{"preempt", Effect::kMovesJobs},
    Field{"priority"},
    Field{"private_tmp"},
    Field{"ranks"},
    Field{"reason"},
    Field{"request", Effect::kChangesMembers},
    Field{"serial", Effect::kChangesMembers},
    Field{"shadow_memory_bytes"},
    Field{"slowdown_percent"},
    Field{"start_ticks", Effect::kStartsProgram},
    Field{"strategy"},
    Field{"timeout_ms"},
    Field{"to", Effect::kNamesFolder, true},
};

[[nodiscard]] constexpr const Field* find_field(std::string_view name) {
  for (const Field& field : kFields)
    if (field.name == name) return &field;
  return nullptr;
}

// The name of a field in the table.
class FieldName {
 public:
  consteval FieldName(const char* name) : name_(name) {  // NOLINT: a literal is a name
    if (find_field(name) == nullptr) throw "The field is missing in the table of fields";
  }
  [[nodiscard]] constexpr const char* text() const { return name_; }

 private:
  const char* name_;
};

// Returns the lowest role that may request the effect.
[[nodiscard]] constexpr Role min_role_for(Effect effect) {
  switch (effect) {
    case Effect::kNone:
      return Role::kViewer;
    case Effect::kMovesJobs:
      return Role::kOperator;
    case Effect::kStartsProgram:
    case Effect::kNamesFolder:
    case Effect::kOverridesProof:
    case Effect::kChangesMembers:
      break;
  }
  return Role::kAdmin;
}
// Returns the effect as text for display: "starts a program".
[[nodiscard]] const char* to_text(Effect effect);
// Returns whether the text is a folder on a node. Other texts in the same field are node names.
[[nodiscard]] constexpr bool means_folder(std::string_view to) {
  return to.starts_with('/');
}

}  // namespace ckpt::coordinator
