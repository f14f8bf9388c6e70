// SPDX-License-Identifier: Apache-2.0
#include "tools/gpu_check/items/examples.h"

namespace ckpt::gpu_check {

Result<std::string> digest_of(const std::string& output) {
  CKPT_TRY(last, last_object(output));
  const auto digest = last.find("digest");
  if (digest == last.end() || !digest->is_string())
    return Error(ErrorCode::kCorrupt, "The example printed no digest");
  return digest->get<std::string>();
}

Result<std::string> run_alone(const Setting& setting, const std::string& program,
                              const bench::Arguments& arguments) {
  std::vector<std::string> call = {setting.programs + "/examples/" + program};
  call.insert(call.end(), arguments.begin(), arguments.end());
  CKPT_TRY(output, run_program(setting, call));
  if (output.exit_code != 0)
    return Error(ErrorCode::kAborted, program + " ended with " + std::to_string(output.exit_code) + ": " +
                                          output.err + output.out);
  return digest_of(output.out);
}

void compare_digests(const std::string& moved, const std::string& unmoved, Outcome& outcome) {
  outcome.add("digest", moved == unmoved ? Status::kPassed : Status::kFailed,
              moved == unmoved ? "" : "moved " + moved + ", unmoved " + unmoved);
}

Json json_of(const bench::Move& move) {
  return {{"result", move.result},
          {"downtime_ms", move.downtime_ms},
          {"bound_ms", move.bound_ms},
          {"bound_by", move.bound_by},
          {"total_ms", move.total_ms},
          {"rounds", move.rounds},
          {"state_bytes", move.state_bytes},
          {"sent_bytes", move.sent_bytes},
          {"wire_bytes", move.wire_bytes},
          {"dirty_bytes", move.dirty_bytes},
          {"link_bytes_per_second", move.link_rate},
          {"scan_bytes_per_second", move.scan_rate},
          {"downtime_breakdown_ms",
           {{"quiesce", move.quiesce_ms},
            {"final", move.final_ms},
            {"verify", move.verify_ms},
            {"commit", move.commit_ms},
            {"context", move.context_ms},
            {"host", move.host_ms},
            {"restore", move.restore_ms},
            {"resume", move.resume_ms}}}};
}

std::string charlm_parameters(const Setting& setting) {
  return setting.quick || setting.software ? "200000" : "20000000";
}

}  // namespace ckpt::gpu_check
