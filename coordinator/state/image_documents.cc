// SPDX-License-Identifier: Apache-2.0
#include "coordinator/state/image_documents.h"

namespace ckpt::coordinator {

using nlohmann::json;

json image_document(const Image& image) {
  return {{"node", image.node},
          {"folder", image.folder},
          {"vault_job", image.vault_job},
          {"job", image.job},
          {"version", image.version},
          {"sequence", image.sequence},
          {"barrier_ms", image.barrier_ms},
          {"state_bytes", image.state_bytes},
          {"gpu_model", image.gpu_model},
          {"incarnation", image.incarnation},
          {"suspect", image.suspect}};
}

Image image_from(const json& j) {
  Image image;
  image.node = j.at("node").get<std::string>();
  image.folder = j.at("folder").get<std::string>();
  image.vault_job = j.at("vault_job").get<std::string>();
  image.job = j.at("job").get<wire::JobId>();
  image.version = j.at("version").get<std::uint64_t>();
  image.sequence = j.value("sequence", std::uint64_t{0});
  image.barrier_ms = j.at("barrier_ms").get<std::int64_t>();
  image.state_bytes = j.at("state_bytes").get<std::uint64_t>();
  image.gpu_model = j.at("gpu_model").get<std::string>();
  image.incarnation = j.value("incarnation", wire::Incarnation{0});
  image.suspect = j.value("suspect", "");
  return image;
}

json protection_document(const Protection& p) {
  return {{"every_ms", p.every_ms}, {"folder", p.folder},     {"node", p.node},  {"keep", p.keep},
          {"begun_ms", p.begun_ms}, {"failures", p.failures}, {"error", p.error}};
}

Protection protection_from(const json& j) {
  Protection p;
  p.every_ms = j.at("every_ms").get<std::int64_t>();
  p.folder = j.at("folder").get<std::string>();
  p.node = j.at("node").get<std::string>();
  p.keep = j.at("keep").get<std::uint32_t>();
  p.begun_ms = j.at("begun_ms").get<std::int64_t>();
  p.failures = j.at("failures").get<unsigned>();
  p.error = j.at("error").get<std::string>();
  return p;
}

json snapshot_document(const SnapshotFacts& s) {
  return {{"image", image_document(s.image)},
          {"pause_ns", s.pause_ns},
          {"written_bytes", s.written_bytes},
          {"waited_bytes", s.waited_bytes}};
}

SnapshotFacts snapshot_from(const json& j) {
  SnapshotFacts s;
  s.image = image_from(j.at("image"));
  s.pause_ns = j.at("pause_ns").get<std::int64_t>();
  s.written_bytes = j.at("written_bytes").get<std::uint64_t>();
  s.waited_bytes = j.at("waited_bytes").get<std::uint64_t>();
  return s;
}

json operation_document(const ImageOperation& o) {
  return {{"goal", static_cast<unsigned>(o.goal)},
          {"stage", static_cast<unsigned>(o.stage)},
          {"verb", o.verb},
          {"why", o.why},
          {"by_user", o.by_user},
          {"image", image_document(o.image)},
          {"gone", o.gone},
          {"by_word", o.by_word},
          {"ended_ms", o.ended_ms},
          {"fenced", o.fenced},
          {"to_node", o.to_node},
          {"to_gpu", o.to_gpu},
          {"lost_ms", o.lost_ms},
          {"deadline_ms", o.deadline_ms},
          {"cancelled", o.cancelled},
          {"stops", o.stops},
          {"stop_grace_ms", o.stop_grace_ms}};
}

ImageOperation operation_from(const json& j) {
  ImageOperation o;
  o.goal = static_cast<OperationGoal>(j.at("goal").get<unsigned>());
  o.stage = static_cast<OperationStage>(j.at("stage").get<unsigned>());
  o.verb = j.at("verb").get<std::string>();
  o.why = j.at("why").get<std::string>();
  o.by_user = j.at("by_user").get<bool>();
  o.image = image_from(j.at("image"));
  o.gone = j.at("gone").get<bool>();
  o.by_word = j.at("by_word").get<bool>();
  o.ended_ms = j.at("ended_ms").get<std::int64_t>();
  o.fenced = j.at("fenced").get<wire::Incarnation>();
  o.to_node = j.at("to_node").get<std::string>();
  o.to_gpu = j.at("to_gpu").get<std::uint32_t>();
  o.lost_ms = j.at("lost_ms").get<std::int64_t>();
  o.deadline_ms = j.value("deadline_ms", std::int64_t{0});
  o.cancelled = j.value("cancelled", std::string());
  o.stops = j.value("stops", false);
  o.stop_grace_ms = j.value("stop_grace_ms", std::int64_t{0});
  return o;
}

}  // namespace ckpt::coordinator
