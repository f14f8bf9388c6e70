// SPDX-License-Identifier: Apache-2.0
// Copies a job's output across all its instances to the command's output. A line in brackets marks an
// instance that was restored from an image, because the log may repeat earlier output from that point.
// Threads: one. Ownership: borrows the context. Errors: those of the coordinator's client.
#pragma once

#include <functional>
#include <string>

#include "tools/gpumigrate/client/context.h"

namespace ckpt::cli {

struct LogWish {
  bool timestamps = false;
  std::int64_t since_ms = 0;  // Unix time; earlier output is omitted; 0: all output
  int rank = 0;               // the rank to copy, if the job has several
};

class LogStream {
 public:
  LogStream(Context& context, std::string job, LogWish wish = {})
      : context_(context), job_(std::move(job)), wish_(wish) {}

  // Makes one call. Returns false once the job has exited and all its output is copied.
  Result<bool> next(std::chrono::milliseconds follow);
  // Returns whether the last call returned bytes and more may follow at once. The result becomes false for a
  // job that writes faster than its log is read, so that reading ends.
  [[nodiscard]] bool copied() const noexcept { return copied_; }
  // Copies the last `lines` of the log, reading only its end. next() continues after these lines.
  Result<void> copy_tail(std::uint64_t lines);
  // Copies until the job exits, across moves of the job and restarts of the coordinator. An error of
  // `on_interrupt` ends the copying.
  Result<void> follow(const std::function<Result<void>()>& on_interrupt);

 private:
  // Makes one call and returns its output with marks. The next call continues after this output.
  Result<std::string> read(std::chrono::milliseconds follow);
  Result<std::string> read_to_end(std::uint64_t from);
  std::string mark_of(const LogPiece& piece) const;

  Context& context_;
  std::string job_;
  LogWish wish_;
  std::uint64_t offset_ = 0;
  std::string incarnation_;  // the instance that wrote the last output
  bool begins_line_ = true;
  unsigned short_pieces_ = 0;  // number of consecutive short answers from one incarnation
  std::string missing_;        // nodes whose missing output was reported
  bool copied_ = false;
  bool ended_ = false;
};

}  // namespace ckpt::cli
