// SPDX-License-Identifier: Apache-2.0
#include "libckpt/protocol/gang/gang_judgement.h"

namespace ckpt::gang {
namespace {

// Returns the ranks as text, such as "rank 3" or "ranks 0, 1 and 3".
std::string text_of(const std::vector<std::uint32_t>& ranks) {
  constexpr std::size_t kMaxNamed = 8;
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < std::min(ranks.size(), kMaxNamed); ++i) {
    if (i != 0) text += i + 1 == ranks.size() ? " and " : ", ";
    text += std::to_string(ranks[i]);
  }
  if (ranks.size() > kMaxNamed) text += " and " + std::to_string(ranks.size() - kMaxNamed) + " more";
  return text;
}

bool gone_for_good(const Facts& f) {
  return f.lost || f.dead;
}
bool refuses_for_now(const Facts& f) {
  return f.still && !f.lifted;
}

}  // namespace

std::string Judgement::waited_for() const {
  const auto no_part = [](const Party& party, const Facts& f) {
    return party.role != Role::kBystander && !f.payload;
  };
  const auto no_groups = [](const Party& party, const Facts& f) {
    return party.role == Role::kBystander && !f.payload;
  };
  const auto copies = [](const Party& party, const Facts& f) {
    return party.role == Role::kSource && !f.precopied;
  };
  const auto runs = [](const Party& party, const Facts& f) {
    return party.role == Role::kSource ? !f.waits : party.role == Role::kBystander && !f.held;
  };
  if (const auto ranks = ranks_with(no_part); !ranks.empty())
    return "the standby of " + text_of(ranks) + " was not ready";
  if (const auto ranks = ranks_with(no_groups); !ranks.empty())
    return text_of(ranks) + " had no new communicators";
  if (const auto ranks = ranks_with(copies); !ranks.empty())
    return "the copy of " + text_of(ranks) + " had not converged";
  const bool sources_stand = all(Role::kSource, [](const Facts& f) { return f.waits; });
  const char* or_groups = sources_stand && !s_.info.overlaps ? ", or had no new communicators" : "";
  if (const auto ranks = ranks_with(runs); !ranks.empty())
    return text_of(ranks) + " had not reached the common barrier" + or_groups;
  return "the handover had not ended";
}

bool Judgement::is_vetoed() const {
  return any(Role::kSource, [](const Facts& f) { return f.never || f.resumed; }) ||
         any(Role::kTarget, [](const Facts& f) { return f.relinquished && f.veto; });
}

bool Judgement::is_damaged() const {
  return any(Role::kTarget, [](const Facts& f) { return f.lost || f.dead || f.relinquished; });
}

bool Judgement::lacks_a_source() const {
  return any(Role::kSource, gone_for_good);
}

bool Judgement::lacks_a_bystander() const {
  return any(Role::kBystander, gone_for_good);
}

bool Judgement::is_held_still() const {
  return any(withdrawer(), refuses_for_now);
}

bool Judgement::excludes_return() const {
  return s_.info.staying.empty() ? any(Role::kSource, [](const Facts& f) { return f.released; })
                                 : any(Role::kBystander, [](const Facts& f) { return f.gone; });
}

bool Judgement::is_withdrawn() const {
  return s_.info.staying.empty()
             ? all(Role::kSource, [](const Facts& f) { return f.still || f.resumed || f.never; })
             : all(Role::kBystander, [](const Facts& f) { return refuses_for_now(f) || f.old; });
}

bool Judgement::may_close_for_targets() const {
  const bool released = all(Role::kSource, [](const Facts& f) { return f.released; });
  if (!s_.info.staying.empty())
    return released || all(Role::kBystander, [](const Facts& f) { return f.gone; });
  return released || (all(Role::kTarget, [](const Facts& f) { return f.ran; }) && lacks_a_source());
}

bool Judgement::needs_image() const {
  const auto* closed = std::get_if<coordinator::Closed>(&s_.phase);
  const bool to_old = in<coordinator::Aborted>() || in<coordinator::Returned>() ||
                      (closed != nullptr && closed->side == Side::kSource);
  const bool to_new = closed != nullptr && closed->side == Side::kTarget;
  if (lacks_a_bystander() || (to_old && lacks_a_source())) return true;
  if (!is_damaged()) return false;
  return to_new || in<coordinator::Kept>() ||
         (in<coordinator::Granted>() && (excludes_return() || lacks_a_source()));
}

bool Judgement::is_fenced() const {
  return all(Role::kSource, [](const Facts& f) { return f.lost || f.released || f.fenced; }) &&
         all(Role::kTarget, [](const Facts& f) { return f.lost || f.relinquished; }) &&
         all(Role::kBystander, [](const Facts& f) { return f.lost || f.fenced; });
}

bool Judgement::is_committed() const {
  return any(Role::kTarget, [](const Facts& f) { return f.committed; });
}

}  // namespace ckpt::gang
