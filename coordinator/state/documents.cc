// SPDX-License-Identifier: Apache-2.0
#include "coordinator/state/documents.h"

#include "coordinator/state/usual_pause.h"
#include "libckpt/record/document.h"

namespace ckpt::coordinator {

std::string job_document(const Job& job) {
  return record::to_text(job);
}

Job job_from_document(const std::string& text) {
  const record::json document = record::parse_object(text);
  auto job = record::from_document<Job>(document);
  if (job.segments.empty())
    throw record::DocumentError("segments is empty, but a job has at least one instance");
  std::vector<wire::PauseFacts> pauses;
  for (const wire::PauseFacts& pause : job.pauses) add_pause(pauses, pause);
  job.pauses = std::move(pauses);
  // Older documents, from before `may_live_on`, record only that the job's own node still has a pending stop.
  const auto owed = document.find("stop_owed");
  if (owed != document.end() && owed->is_boolean() && owed->get<bool>())
    job.unfenced_nodes.insert(job.node());
  return job;
}

std::string migration_document(const Migration& migration) {
  return record::to_text(migration);
}

Migration migration_from_document(const std::string& text) {
  return record::from_text<Migration>(text);
}

}  // namespace ckpt::coordinator
