// SPDX-License-Identifier: Apache-2.0
// The one table of all fields that a request's body may have, each with what it asks for. A reader takes the names
// of this table alone (FieldName): one that does not stand here does not compile.
// Threads: pure functions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "coordinator/requests/roles.h"

namespace ckpt::coordinator {

// The effect of a field of a request, whichever call it is in.
enum class Effect : std::uint8_t {
  kNone,            // nothing beyond its call
  kMovesJobs,       // jobs move, park or come back
  kStartsProgram,   // a command runs, or a process is taken, as the jobs' user
  kNamesFolder,     // files are written or read in a folder of a node's
  kOverridesProof,  // the caller's word stands for what the cluster cannot prove
  kChangesMembers,  // who belongs to the cluster
};

struct Field {
  std::string_view name;
  Effect effect = Effect::kNone;
  // Counts for a text that begins with '/', and not for the name of a node.
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
    Field{"network"},
    Field{"node"},
    Field{"nodes"},
    Field{"parallel"},
    Field{"pid", Effect::kStartsProgram},
    Field{"place"},
    Field{"preempt", Effect::kMovesJobs},
    Field{"priority"},
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

// The name of a field of the table.
class FieldName {
 public:
  consteval FieldName(const char* name) : name_(name) {  // NOLINT: a literal is a name
    if (find_field(name) == nullptr) throw "The field does not stand in the table of fields";
  }
  [[nodiscard]] constexpr const char* text() const { return name_; }

 private:
  const char* name_;
};

// The least role that may ask for it.
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
// "starts a program", for people.
[[nodiscard]] const char* to_text(Effect effect);
// A text that means a folder of a node, where else a node is named.
[[nodiscard]] constexpr bool means_folder(std::string_view to) {
  return to.starts_with('/');
}

}  // namespace ckpt::coordinator
