// SPDX-License-Identifier: Apache-2.0
// The steps of a rank into an image and out of an image (ImageOperation), and its stop in each of its states.
// Threads: pure functions. Errors: kRefused for an order that the state does not allow.
#pragma once

#include "coordinator/lifecycle/job_draft.h"

namespace ckpt::coordinator::lifecycle {

Result<void> on(JobDraft& draft, std::size_t at, const OperationBegun& event);
Result<void> on(JobDraft& draft, std::size_t at, const StaysParked& event);
Result<void> on(JobDraft& draft, std::size_t at, const SnapshotGivenUp& event);
Result<void> on(JobDraft& draft, std::size_t at, const RankParkedAgain& event);
Result<void> on(JobDraft& draft, std::size_t at, const NotParked& event);
Result<void> on(JobDraft& draft, std::size_t at, const ImageStored& event);
Result<void> on(JobDraft& draft, std::size_t at, const InstancesEnded& event);
Result<void> on(JobDraft& draft, std::size_t at, const RunsFromImage& event);
Result<void> on(JobDraft& draft, std::size_t at, const NotStarted& event);
Result<void> on(JobDraft& draft, std::size_t at, const Stop& event);

}  // namespace ckpt::coordinator::lifecycle
